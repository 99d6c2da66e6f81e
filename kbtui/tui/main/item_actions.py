"""Commands on what is selected or being read: copy, bookmark, follow links, edit, export."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, describe_error
from kbtui.knowledge.editing import apply_change, propose_topic
from kbtui.knowledge.models import Topic
from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.commands import own_key
from kbtui.tui.framework.dialogs import ConfirmDialog, FormDialog, FormField, FormValues
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.navigation_target import place_of
from kbtui.tui.reader.blocks import Block, HeadBlock, NoteBlock, SourceBlock
from kbtui.tui.reader.document import Document, format_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.knowledge.editing import TomlChange
    from kbtui.library import Library
    from kbtui.tui.framework.styled_widget import StyledScreen
    from kbtui.tui.main.navigator import Navigator
    from kbtui.tui.main.pane_layout import PaneLayout
    from kbtui.tui.main.status_bar import StatusBar
    from kbtui.tui.navigation_target import NavigationTarget
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
        from kbtui.tui.framework.clipboard import copy_text, format_copied_size

        warning = copy_text(self._screen.app, text)
        size = "" if name == text else f" ({format_copied_size(text)})"
        self._status.flash(warning or f"copied {name}{size}", "warning" if warning else "strong")

    def choose_copy(self) -> None:
        """Ask what else to copy."""
        from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog
        from kbtui.tui.reader.copy_options import list_copy_options

        found = list_copy_options(self._panes.reader.reader.port, self.reference())
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
        from kbtui.tui.reader.links import find_links_at_cursor

        found = find_links_at_cursor(self._panes.reader.reader.port)[: len(LETTERS)]
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
        from kbtui.tui.reader.links import resolve_file_link, resolve_subject_link

        if link.is_web:
            self._offer_to_open(link.href)
            return
        root = self._library.workspace.root
        # A picture beside a topic's subjects looks like one of them, and cannot be read.
        path = resolve_file_link(link.href, self._folder() or root, root)
        if path is not None:
            self._offer_to_open(str(path), path)
            return
        here = self._navigator.shown.ref if self._navigator.shown else None
        ref = None
        if here is not None and here.kind == "subject":
            ref = resolve_subject_link(link.href, here.topic or "", here.slug or "")
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
        from kbtui.tui.reader.links import open_with_system

        def chosen(choice: str | None) -> None:
            if choice == "copy":
                self.copy(what, what)
            elif choice == "open" and path is None:
                self._screen.app.open_url(what)
                self._status.flash(f"given to the browser: {what}")
            elif choice == "open" and path is not None:
                problem = open_with_system(path)
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
        from kbtui.tui.external_programs import edit

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


WHAT: dict[str, list[str] | None] = {
    "messages": ["chat"],
    "messages, reasoning, tools": None,
}
"""What a choice leaves in; None: everything."""


def export_conversation(
    screen: StyledScreen, library: Library, status: StatusBar, place: NavigationTarget | None
) -> None:
    """Ask where to, and write the conversation that is being read."""
    conversation = place.ref.conversation if place and place.ref else None
    if conversation is None:
        status.flash("open a conversation to export it", "warning")
        return
    lane = LatestOnlyWorker(screen)

    def words(error: Exception) -> str:
        return describe_error(error, library.workspace.root)

    def written(made: tuple[Path, str, bool] | None) -> None:
        if made is None:
            return
        path, text, there = made
        if not there:
            write(path, text)
            return

        def answered(answer: str | None) -> None:
            if answer == "y":
                write(path, text)

        question = f"{path} is there already. Write over it?"
        screen.app.push_screen(ConfirmDialog(question, {"y": "write over it"}), answered)

    def write(path: Path, text: str) -> None:
        lane.submit(
            lambda: _write(library, path, text),
            lambda _: status.flash(f"written: {path}"),
            lambda error: status.flash(words(error), "error"),
        )

    fields = (
        FormField("what", "what", "messages", "What of each turn; sources always.", tuple(WHAT)),
        FormField(
            "path", "file", str(Path.cwd() / f"{conversation}.md"), "Where it is written to."
        ),
    )
    title = f"Export {conversation} with its sources"
    save = _Maker(library, conversation)
    screen.app.push_screen(FormDialog(title, fields, save, words, "write"), written)


class _Maker:
    """Makes the document of a filled form, in the form's thread."""

    def __init__(self, library: Library, conversation: str) -> None:
        self._library, self._conversation = library, conversation

    def __call__(self, values: FormValues) -> tuple[Path, str, bool]:
        from kbtui.assistant.conversation_tools import included_kinds
        from kbtui.citations.export import format_conversation_markdown
        from kbtui.workspace.workspace import check_export_path

        if not values["path"]:
            raise KbtuiError("say where it is to be written")
        path = Path(values["path"]).expanduser()
        if path.is_dir():
            path /= f"{self._conversation}.md"
        if not path.parent.is_dir():
            raise KbtuiError("there is no such directory", where=str(path.parent))
        check_export_path(self._library.workspace, path)
        found = self._library.conversation(self._conversation)
        kinds = included_kinds(WHAT[values["what"]])
        text = format_conversation_markdown(found, self._library.cited(found), found.turns, kinds)
        return path, text, path.exists()


def _write(library: Library, path: Path, text: str) -> None:
    from kbtui.workspace.workspace import write_export

    write_export(library.workspace, path, text)


LIKELY = ("docs", "doc", "documentation", "notes", "wiki", "knowledge", "handbook")
TEXT = (".md", ".markdown", ".txt", ".rst", ".adoc", ".org")
DEPTH, MOST = 3, 2_000
"""How deep, and at how many files, a directory is looked at."""


@dataclass(frozen=True)
class Proposal:
    """A change of `.jp/kb.toml`, the directory it names, and how many texts are in that."""

    change: TomlChange
    directory: Path
    texts: int

    def write(self) -> None:
        """Make the directory where there is none, then write; raises `KbtuiError`."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise KbtuiError(
                f"cannot be made: {error.strerror}", where=str(self.directory)
            ) from error
        apply_change(self.change)


def propose_first(library: Library) -> Proposal:
    """A topic of the directory that most likely holds what people know; writes nothing.

    Raises `KbtuiError` where the configuration cannot be read.
    """
    root = library.workspace.root
    found = max(_candidates(root), key=lambda pair: pair[1], default=(root / "docs", 0))
    directory, texts = found
    topic = Topic(
        id="project",
        subjects=str(directory.relative_to(root)),
        title="Project Knowledge",
        introduction="what everybody here should know",
    )
    return Proposal(propose_topic(library.knowledge(), topic), directory, texts)


def _candidates(root: Path) -> list[tuple[Path, int]]:
    """Directories at the top that hold texts; likely names come before all others."""
    try:
        names = [entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    names = sorted(name for name in names if not name.startswith("."))
    likely = [name for name in LIKELY if name in names]
    for group in (likely, names):
        found = [(root / name, _texts(root / name)) for name in group]
        if any(count for _, count in found):
            return found
    return []


def _texts(directory: Path) -> int:
    count = seen = 0
    start = len(directory.parts)
    for folder, folders, files in os.walk(directory):
        seen += len(files)
        count += sum(name.lower().endswith(TEXT) for name in files)
        deep = folder.count(os.sep) + 1 - start >= DEPTH
        folders[:] = [] if deep or seen > MOST else [n for n in folders if not n.startswith(".")]
    return count


def proposal_page(proposal: Proposal, root: Path) -> Document:
    """What would be written, and where."""
    name = proposal.directory.relative_to(root)
    change = proposal.change
    what = "would get these lines" if change.old else "would be this file"
    blocks: list[Block] = [
        NoteBlock("title", [("A first topic", "h1")]),
        NoteBlock("where", [(str(change.path), "strong"), (f"  {what}:", "dim")], above=1),
        SourceBlock("diff", change.diff, language="diff", panel=True, above=1),
    ]
    if proposal.texts:
        said = f"{name}/ holds {format_count(proposal.texts, 'text')}; each becomes a subject."
    elif proposal.directory.is_dir():
        said = f"{name}/ holds no texts yet; each that you put there becomes a subject."
    else:
        said = f"{name}/ is made too, empty; each text that you put there becomes a subject."
    blocks.append(NoteBlock("directory", [(said, "")], above=1))
    blocks.append(HeadBlock("ask", [("Write it?", "h2")], [("y yes · n no", "key")], above=1))
    blocks.append(
        NoteBlock(
            "later", [("Title, introduction and directory can be changed in that file.", "dim")]
        )
    )
    return Document("first", "A first topic", blocks)
