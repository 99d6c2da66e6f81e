"""Offers to update the installed tools for JP after the topics have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from kbtui.errors import NothingFound
from kbtui.text import format_counted_noun
from kbtui.tui.reader.document_view import DocumentOverlayScreen
from kbtui.tui.reader.reader_blocks import HeadingBlock, ParagraphBlock, SourceTextBlock
from kbtui.tui.reader.reader_document import ReaderDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import App

    from kbtui.assistant.jp_tool_installer import PlannedFileChange
    from kbtui.library import Library
    from kbtui.tui.reader.reader_blocks import ReaderBlock

T = TypeVar("T")


class RunInThread(Protocol):
    """Runs a function in a background thread, and passes the result to a second function.

    If the first function raises an error, shows the error.
    """

    def __call__(self, work: Callable[[], T], on_done: Callable[[T], object], /) -> object: ...


def offer_tool_update(
    app: App[None],
    library: Library,
    run_in_thread: RunInThread,
    show_message: Callable[[str], object],
    on_done: Callable[[], object],
) -> None:
    """Show how the files of the tools would change, and write the files if the user agrees.

    `on_done` is called after the files have been written.
    """

    def show_changes(changes: list[PlannedFileChange]) -> None:
        def write_if_confirmed(is_yes: bool | None) -> None:
            if is_yes:
                run_in_thread(lambda: _write_changes(library, changes), report_written_files)

        page = build_tool_update_page(changes)
        screen = DocumentOverlayScreen("Tools for JP", page, confirm_label="write it")
        app.push_screen(screen, write_if_confirmed)

    def report_written_files(count: int) -> None:
        show_message(f"updated the tools for JP: {format_counted_noun(count, 'file')} changed")
        on_done()

    run_in_thread(lambda: plan_tool_update(library), show_changes)


def plan_tool_update(library: Library) -> list[PlannedFileChange]:
    """Return the changes that bring the installed tools up to date.

    Raises `NothingFound` if no tools are installed, or if nothing has to change.
    """
    from kbtui.assistant.jp_tool_installer import plan_tool_installation

    changes = plan_tool_installation(library.workspace, library.load_knowledge())
    if all(change.action in ("write", "taken") for change in changes):
        raise NothingFound(
            "the tools for JP are not installed", hint="`kbtui tools install` installs them"
        )
    todo = [change for change in changes if change.is_needed]
    if not todo and any(change.is_outdated for change in changes):
        raise NothingFound(
            "the file of a tool is out of date, but you have edited it",
            hint="`kbtui tools install` shows what is new",
        )
    if not todo:
        raise NothingFound("the tools for JP are up to date")
    return todo


def _write_changes(library: Library, changes: list[PlannedFileChange]) -> int:
    from kbtui.assistant.jp_tool_installer import apply_file_changes

    apply_file_changes(library.workspace, changes)
    return len(changes)


def build_tool_update_page(changes: Sequence[PlannedFileChange]) -> ReaderDocument:
    """Return a page with the difference that each change makes."""
    about = "The topics have changed since the tools for JP were installed. JP reads these files:"
    blocks: list[ReaderBlock] = [ParagraphBlock("about", [(about, "")])]
    for change in changes:
        blocks.append(ParagraphBlock(f"path:{change.path}", [(change.path, "strong")], above=1))
        blocks.append(
            SourceTextBlock(f"diff:{change.path}", change.make_diff(), language="diff", panel=True)
        )
    ask = HeadingBlock("ask", [("Write it?", "h2")], [("y: yes · n: no", "key")], above=1)
    return ReaderDocument("tools", "Tools for JP", [*blocks, ask])
