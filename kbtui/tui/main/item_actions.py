"""What can be done with the selected item or what is being read: copy, bookmark, follow, edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.commands import own_key
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.navigation import place_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kbtui.library import Library
    from kbtui.tui.framework.styled_widget import StyledScreen
    from kbtui.tui.main.navigator import Navigator
    from kbtui.tui.main.pane_layout import PaneLayout
    from kbtui.tui.main.status_bar import StatusBar
    from kbtui.tui.navigation import NavigationTarget
    from kbtui.tui.reader.links import Link


class ItemActions:
    """Acts on the item that has the focus: a row of a list, or the line being read."""

    def __init__(
        self,
        screen: StyledScreen,
        library: Library,
        panes: PaneLayout,
        navigator: Navigator,
        status: StatusBar,
        open_place: Callable[[NavigationTarget], None],
    ) -> None:
        self._screen = screen
        self._library = library
        self._panes = panes
        self._navigator = navigator
        self._status = status
        self._open_place = open_place
        self._worker = LatestOnlyWorker(screen)
        self.is_asking = False
        """Whether something short is under way that the next keys build on."""

    # the item

    def reference(self) -> str | None:
        """The reference of what is selected or read."""
        panes = self._panes
        lists = {
            "results": panes.results.list,
            "library": panes.library.list,
            "citations": panes.citations.list,
        }
        rows = lists.get(panes.focused or "")
        if rows is not None and (row := rows.selected):
            return str(row.data.ref) if row.data is not None and row.data.ref else None
        return panes.reader.reader.port.reference

    def require_reference(self) -> str | None:
        """The same; the status line says so where there is none."""
        reference = self.reference()
        if reference is None:
            self._status.flash("nothing here has a reference", "warning")
        return reference

    def run_slow(
        self,
        name: str,
        work: Callable[[], object],
        done: Callable[[object], None],
        asks: bool = False,
    ) -> None:
        """Run `work` in a thread with its name in the status line; `asks` holds keys until then."""
        self._status.doing("slow", name)
        self.is_asking = asks

        def finished(found: object) -> None:
            self.is_asking = False
            self._status.doing("slow", None)
            done(found)

        def failed(error: Exception) -> None:
            self.is_asking = False
            self._status.doing("slow", None)
            self._status.flash(one_line(str(error)), "error")

        self._worker.submit(work, finished, failed)

    # copying

    def copy_reference(self) -> None:
        """Copy the item's reference."""
        if reference := self.require_reference():
            self.copy(reference, reference)

    def copy(self, text: str, name: str) -> None:
        """Copy a text, and say what was copied."""
        from kbtui.tui.framework.clipboard import copy, size_of

        warning = copy(self._screen.app, text)
        size = "" if name == text else f" ({size_of(text)})"
        self._status.flash(warning or f"copied {name}{size}", "warning" if warning else "strong")

    def choose_copy(self) -> None:
        """Ask what else to copy."""
        from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog
        from kbtui.tui.reader.copy_options import copies

        found = copies(self._panes.reader.reader.port, self.reference())
        options = [DialogOption(one.key, one.name, one.preview, one) for one in found]

        def chosen(one: object) -> None:
            if one is not None:
                self.run_slow("copying …", one.text, lambda text: self.copy(str(text), one.name))  # type: ignore[attr-defined]

        self._screen.app.push_screen(OptionsDialog("Copy", options), chosen)

    # bookmarks

    def bookmark(self) -> None:
        """Bookmark the item, with a note."""
        reference = self.require_reference()
        if reference is None:
            return
        from kbtui.tui.framework.dialogs import LineDialog
        from kbtui.userdata import UserData

        journal = UserData(self._library.workspace)
        title = self._title_of(reference)

        def typed(note: str | None, known: bool) -> None:
            if note is not None:
                self.run_slow(
                    "bookmarking …",
                    lambda: journal.bookmark(reference, title, note),
                    lambda _: self._status.flash(
                        f"{'changed the' if known else 'made a'} bookmark: {reference}"
                    ),
                    asks=True,
                )

        def ask(found: object) -> None:
            known = found is not None
            note = found.note if known else ""  # type: ignore[attr-defined]
            screen = LineDialog(f"Bookmark {reference}", note, "a note, or nothing")
            self._screen.app.push_screen(screen, lambda text: typed(text, known))

        self.run_slow(
            "looking for the bookmark …",
            lambda: next((mark for mark in journal.bookmarks() if mark.ref == reference), None),
            ask,
            asks=True,
        )

    def _title_of(self, reference: str) -> str:
        panes = self._panes
        if panes.focused == "results" and (row := panes.results.list.selected):
            return str(row.data.title)
        contents = self._navigator.contents
        ref = parse_ref(reference)
        if contents and ref.conversation is not None:
            info = contents.conversation(ref.conversation)
            return info.name if info else ""
        return one_line(panes.reader.reader.document.title) if panes.focused == "reader" else ""

    # links

    def choose_link(self) -> None:
        """Open the link of the line or paragraph being read; ask which where there are several."""
        from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog
        from kbtui.tui.main.jump import LETTERS
        from kbtui.tui.reader.links import links_here

        found = links_here(self._panes.reader.reader.port)[: len(LETTERS)]
        if not found:
            self._status.flash("there is no link here", "warning")
        elif len(found) == 1:
            self._follow(found[0])
        else:
            options = [
                DialogOption(letter, link.text, link.href, link)
                for letter, link in zip(LETTERS, found, strict=False)
            ]
            self._screen.app.push_screen(
                OptionsDialog("Links", options), lambda link: self._follow(link) if link else None
            )

    def _follow(self, link: Link) -> None:
        """Open the subject that a link names; anything else after showing where it leads."""
        from kbtui.tui.reader.links import file_behind, subject_behind

        if link.is_web:
            self._offer_to_open(link.href)
            return
        root = self._library.workspace.root
        # A picture beside a topic's subjects looks like one of them, and cannot be read.
        path = file_behind(link.href, self._folder() or root, root)
        if path is not None:
            self._offer_to_open(str(path), path)
            return
        here = self._navigator.shown.ref if self._navigator.shown else None
        ref = None
        if here is not None and here.kind == "subject":
            ref = subject_behind(link.href, here.topic or "", here.slug or "")
        contents = self._navigator.contents
        if ref and contents and contents.subject(ref.topic or "", ref.slug or ""):
            self._open_place(place_of(ref))
            return
        self._status.flash(
            f"{link.href} is no subject, no page on the web, and no image or PDF of this workspace",
            "warning",
        )

    def _folder(self) -> Path | None:
        """The directory that relative links of what is being read start from."""
        path: Path | None = getattr(self._panes.reader.reader.document.record, "path", None)
        return path.parent if path is not None else None

    def _offer_to_open(self, what: str, path: Path | None = None) -> None:
        """Show an address or a file, and give it to another program on request only."""
        from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog
        from kbtui.tui.reader.links import open_file

        def chosen(choice: str | None) -> None:
            if choice == "copy":
                self.copy(what, what)
            elif choice == "open" and path is None:
                self._screen.app.open_url(what)
                self._status.flash(f"given to the browser: {what}")
            elif choice == "open" and path is not None:
                problem = open_file(path)
                self._status.flash(
                    problem or f"given to the system: {what}", "warning" if problem else "strong"
                )

        offer = "open it in the browser" if path is None else "open it with the system's program"
        options = [
            DialogOption("o", offer, "", "open"),
            DialogOption("y", f"copy the {'address' if path is None else 'path'}", "", "copy"),
        ]
        self._screen.app.push_screen(OptionsDialog(what, options), chosen)

    # editing

    def edit(self) -> None:
        """Open the subject in the person's editor, at the line being read."""
        from kbtui.tui.external_editor import edit

        reference = self.require_reference()
        if reference is None:
            return
        try:
            ref = parse_ref(reference)
            if ref.kind != "subject":
                self._status.flash("only subjects are edited; copying takes the rest", "warning")
                return
            subject = self._library.subject(ref)
            edit(self._screen.app, subject.path, ref.lines[0] if ref.lines else 0)
        except KbtuiError as error:
            self._status.flash(str(error), "error")
            return
        self._navigator.reload()

    def propose_first_topic(self, written: Callable[[], None]) -> None:
        """Show what a first topic would be; write it on yes."""
        from kbtui.tui.first_topic import proposal_page, propose_first
        from kbtui.tui.reader.document_view import PageScreen

        contents = self._navigator.contents
        if contents is None or contents.shelves or contents.problems:
            said = "there are topics already" if contents and contents.shelves else "not now"
            self._status.flash(f"{said}; .jp/kb.toml declares them (guide/topics in `kbtui demo`)")
            return

        def show(proposal: object) -> None:
            def answered(yes: bool | None) -> None:
                if yes:
                    self.run_slow("writing …", proposal.write, lambda _: finished())  # type: ignore[attr-defined]

            page = proposal_page(proposal, self._library.workspace.root)  # type: ignore[arg-type]
            self._screen.app.push_screen(
                PageScreen("A first topic", page, yes="write it"), answered
            )

        def finished() -> None:
            workshop = own_key("workshop", self._screen.own_keys)
            more = f"; {workshop} shapes what assistants get" if workshop else ""
            self._status.flash(f"written: .jp/kb.toml declares a topic{more}")
            written()

        self.run_slow("looking for texts …", lambda: propose_first(self._library), show)
