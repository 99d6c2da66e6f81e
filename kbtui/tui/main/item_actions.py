"""What can be done with what is selected or being read: copy, mark, edit, follow, explain, compare."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.commands import own_key
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.main.pane_layout import PaneScreen
from kbtui.tui.navigation import HOME

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.library import Library
    from kbtui.search.explain import Explainer, Explanation
    from kbtui.search.models import Answer, Hit
    from kbtui.tui.citations.pane import CitationsPane
    from kbtui.tui.library.pane import LibraryPane
    from kbtui.tui.main.navigator import Navigator
    from kbtui.tui.main.status_bar import StatusBar
    from kbtui.tui.navigation import NavigationTarget
    from kbtui.tui.reader.links import Link
    from kbtui.tui.reader.reader_pane import ReaderPane
    from kbtui.tui.search.controller import SearchController
    from kbtui.tui.search.pane import ResultsPane


class ActingScreen(PaneScreen):
    """The main screen's commands on one thing; what it is about is the reference under the hand."""

    library: Library
    status: StatusBar
    library_pane: LibraryPane
    reader_pane: ReaderPane
    results_pane: ResultsPane
    citations_pane: CitationsPane
    navigator: Navigator
    search: SearchController

    def __init__(self) -> None:
        super().__init__()
        self._slow = LatestOnlyWorker(self)
        self.asks = False
        """Whether something short is under way that the next keys build on."""

    @abstractmethod
    def open(self, place: NavigationTarget) -> None:
        """Show a place and go to the reader."""

    def action_home(self) -> None:
        """Show the home page."""
        self.open(HOME)

    def _reference(self) -> str | None:
        """The reference of what is selected or read."""
        where = self.pane
        if where == "results" and (row := self.results_pane.list.selected):
            return str(row.data.ref)
        lists = {"library": self.library_pane.list, "citations": self.citations_pane.list}
        if (found := lists.get(where or "")) and (row := found.selected):
            return str(row.data.ref) if row.data is not None and row.data.ref else None
        return self.reader_pane.reader.port.reference

    def _needed(self) -> str | None:
        """The same; says so where there is none."""
        reference = self._reference()
        if reference is None:
            self.status.flash("nothing here has a reference", "warning")
        return reference

    def _wait(
        self,
        name: str,
        work: Callable[[], object],
        done: Callable[[object], None],
        asks: bool = False,
    ) -> None:
        """Do something slow in a thread, with its name in the status line."""
        self.status.doing("slow", name)
        self.asks = asks

        def finished(found: object) -> None:
            self.asks = False
            self.status.doing("slow", None)
            done(found)

        def failed(error: Exception) -> None:
            self.asks = False
            self.status.doing("slow", None)
            self.status.flash(one_line(str(error)), "error")

        self._slow.submit(work, finished, failed)

    # copying

    def action_copy(self) -> None:
        """Copy the reference of what is selected or read."""
        if reference := self._needed():
            self.copy(reference, reference)

    def copy(self, text: str, name: str) -> None:
        """Copy a text, and say what was copied."""
        from kbtui.tui.framework.clipboard import copy, size_of

        warning = copy(self.app, text)
        size = "" if name == text else f" ({size_of(text)})"
        self.status.flash(warning or f"copied {name}{size}", "warning" if warning else "strong")

    def action_copy_text(self) -> None:
        """Copy what the mouse selected, and say so."""
        from textual.actions import SkipAction

        text = self.get_selected_text()
        if not text:
            raise SkipAction
        self.copy(text, "the selection")

    def action_copy_more(self) -> None:
        """Choose what else to copy."""
        from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog
        from kbtui.tui.reader.copy_options import copies

        found = copies(self.reader_pane.reader.port, self._reference())
        options = [DialogOption(one.key, one.name, one.preview, one) for one in found]

        def chosen(one: object) -> None:
            if one is not None:
                self._wait("copying …", one.text, lambda text: self.copy(str(text), one.name))  # type: ignore[attr-defined]

        self.app.push_screen(OptionsDialog("Copy", options), chosen)

    # bookmarks

    def action_bookmark(self) -> None:
        """Bookmark what is selected or read, with a note."""
        reference = self._needed()
        if reference is None:
            return
        from kbtui.tui.framework.dialogs import LineDialog
        from kbtui.userdata import UserData

        journal = UserData(self.library.workspace)
        title = self._title_of(reference)

        def typed(note: str | None, known: bool) -> None:
            if note is not None:
                self._wait(
                    "bookmarking …",
                    lambda: journal.bookmark(reference, title, note),
                    lambda _: self.status.flash(
                        f"{'changed the' if known else 'made a'} bookmark: {reference}"
                    ),
                    asks=True,
                )

        def ask(found: object) -> None:
            known = found is not None
            note = found.note if known else ""  # type: ignore[attr-defined]
            screen = LineDialog(f"Bookmark {reference}", note, "a note, or nothing")
            self.app.push_screen(screen, lambda text: typed(text, known))

        self._wait(
            "looking for the bookmark …",
            lambda: next((mark for mark in journal.bookmarks() if mark.ref == reference), None),
            ask,
            asks=True,
        )

    def _title_of(self, reference: str) -> str:
        if self.pane == "results" and (row := self.results_pane.list.selected):
            return str(row.data.title)
        contents = self.navigator.contents
        ref = parse_ref(reference)
        if contents and ref.conversation is not None:
            info = contents.conversation(ref.conversation)
            return info.name if info else ""
        return one_line(self.reader_pane.reader.document.title) if self.pane == "reader" else ""

    def action_bookmarks(self) -> None:
        """Show the bookmarks."""
        from kbtui.tui.bookmarks import BookmarksScreen

        self.app.push_screen(
            BookmarksScreen(self.library), lambda place: self.open(place) if place else None
        )

    # following

    def action_jump(self) -> None:
        """Put letters on what is in sight, and go where the one typed leads."""
        from kbtui.tui.jump import JumpScreen

        self.app.push_screen(JumpScreen(self), lambda go: go() if go else None)  # type: ignore[arg-type]

    def action_link(self) -> None:
        """Open a link of the line or paragraph being read."""
        from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog
        from kbtui.tui.jump import LETTERS
        from kbtui.tui.reader.links import links_here

        found = links_here(self.reader_pane.reader.port)[: len(LETTERS)]
        if not found:
            self.status.flash("there is no link here", "warning")
        elif len(found) == 1:
            self._follow(found[0])
        else:
            options = [
                DialogOption(letter, link.text, link.href, link)
                for letter, link in zip(LETTERS, found, strict=False)
            ]
            self.app.push_screen(
                OptionsDialog("Links", options), lambda link: self._follow(link) if link else None
            )

    def _follow(self, link: Link) -> None:
        from kbtui.tui.reader.open_link import follow

        follow(self, link)

    def action_wrap(self) -> None:
        """Wrap wide code, or cut it to be scrolled."""
        reader = self.reader_pane.reader
        wrapped = reader.port.shift is None
        reader.port.move_code(0 if wrapped else None)
        reader.changed()
        said = "wide code is cut; → and ← scroll it" if wrapped else "wide code is wrapped"
        self.status.flash(said)

    def action_sideways(self, way: int) -> None:
        """Scroll wide code by a third of the reader's width."""
        reader = self.reader_pane.reader
        port = reader.port
        step = max(8, port.width // 3)
        if way > 0 and port.shift is not None and not any(line.more for _, line in port.rows):
            self.status.flash("no code goes on at the right", "dim")
            return
        if way < 0 and not port.shift:
            return
        port.move_code(max(0, (port.shift or 0) + way * step) if port.shift is not None else 0)
        reader.changed()

    # editing

    def action_first(self) -> None:
        """Show what a first topic would be; write it when one says yes."""
        from kbtui.tui.first_topic import proposal_page, propose_first
        from kbtui.tui.reader.page_screen import PageScreen

        contents = self.navigator.contents
        if contents is None or contents.shelves or contents.problems:
            said = "there are topics already" if contents and contents.shelves else "not now"
            self.status.flash(f"{said}; .jp/kb.toml declares them (guide/topics in `kbtui demo`)")
            return

        def show(proposal: object) -> None:
            def answered(yes: bool | None) -> None:
                if yes:
                    self._wait("writing …", proposal.write, lambda _: self._first_written())  # type: ignore[attr-defined]

            page = proposal_page(proposal, self.library.workspace.root)  # type: ignore[arg-type]
            self.app.push_screen(PageScreen("A first topic", page, yes="write it"), answered)

        self._wait("looking for texts …", lambda: propose_first(self.library), show)

    def _first_written(self) -> None:
        workshop = own_key("workshop", self.own_keys)
        more = f"; {workshop} shapes what assistants get" if workshop else ""
        self.status.flash(f"written: .jp/kb.toml declares a topic{more}")
        self.action_reload()

    @abstractmethod
    def action_reload(self) -> None:
        """Read everything again."""

    def action_edit(self) -> None:
        """Open the subject in the person's editor, at the line being read."""
        from kbtui.tui.external_editor import edit

        reference = self._needed()
        if reference is None:
            return
        try:
            ref = parse_ref(reference)
            if ref.kind != "subject":
                self.status.flash("only subjects are edited; copying takes the rest", "warning")
                return
            subject = self.library.subject(ref)
            edit(self.app, subject.path, ref.lines[0] if ref.lines else 0)
        except KbtuiError as error:
            self.status.flash(str(error), "error")
            return
        self.navigator.reload()

    # why, and what else

    def action_similar(self) -> None:
        """Show more like what is selected or read."""
        reference = self._needed()
        if reference is None:
            return
        ref = parse_ref(reference)
        if ref.kind == "topic":
            self.status.flash("a topic is compared subject by subject: select one", "warning")
            return
        from kbtui.search.models import REACH, Question

        everything = Question("", per_entry=1, limit=REACH)
        self._wait(
            f"looking for more like {reference} …",
            lambda: self.library.related(ref, everything),
            lambda answer: self.show_similar(reference, answer),  # type: ignore[arg-type]
        )

    @abstractmethod
    def show_similar(self, reference: str, answer: Answer) -> None:
        """Show what is like something."""

    def explain(self, hit: Hit) -> None:
        """Say why a hit stands where it stands."""
        self._explain(lambda explainer: _of_hit(explainer, hit))

    def why_not(self) -> None:
        """Ask for a reference, and say what keeps it out."""
        from kbtui.tui.framework.dialogs import LineDialog

        here = self.navigator.trail.here
        known = str(here.ref) if here and here.ref and here.ref.kind != "topic" else ""

        def typed(text: str | None) -> None:
            if text:
                self._explain(lambda explainer: explainer.why(self.library.resolve(text)))

        screen = LineDialog(
            "Why was this not found?", known, "topic/slug or jp-c…:3", "a subject or turn", True
        )
        self.app.push_screen(screen, typed)

    def _explain(self, of: Callable[[Explainer], Explanation | None]) -> None:
        question = self.search.question
        if question is None:
            self.status.flash("only what was searched for can be explained", "warning")
            return

        def work() -> Explanation | None:
            return of(self.library.explain(question))

        def show(found: object) -> None:
            from kbtui.tui.reader.page_screen import PageScreen
            from kbtui.tui.search.explanation_page import explanation_page

            if found is None:
                self.status.flash(
                    "it is no hit any more: the files or the index changed", "warning"
                )
                return
            page = explanation_page(found, question.query)  # type: ignore[arg-type]
            self.app.push_screen(PageScreen("Why", page))

        self._wait("working out why …", work, show)


def _of_hit(explainer: Explainer, hit: Hit) -> Explanation | None:
    for found, explained in zip(explainer.answer.hits, explainer.hits(), strict=False):
        if found.chunk_id == hit.chunk_id:
            return explained
    return None
