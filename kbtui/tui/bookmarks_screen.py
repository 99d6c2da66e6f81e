"""The bookmarks screen: open bookmarks, change their notes, or remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding
from textual.containers import Vertical

from kbtui.errors import KbtuiError
from kbtui.refs import parse_ref
from kbtui.text import sanitize_to_one_line
from kbtui.tui.command_table import find_key_label_of_command
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.dialogs import TextInputDialog
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.framework.text_widgets import LeftAndRightTextLine
from kbtui.tui.framework.tui_command import format_key_hints
from kbtui.tui.navigation_target import make_navigation_target
from kbtui.tui.reader.mark_blocks import make_mark_spans
from kbtui.userdata.bookmark_anchors import BookmarkAnchors
from kbtui.userdata.user_data_store import UserData

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.library_snapshot import LibrarySnapshot
    from kbtui.userdata.mark_lookup import MarksOfTurns
    from kbtui.userdata.user_data_store import Bookmark


class BookmarksScreen(StyledScreen):
    """A screen with a list of bookmarks. When it closes, it returns what to open, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,apostrophe", "dismiss", show=False),
        Binding("enter", "open_bookmark", show=False),
        Binding("e", "edit_note", show=False),
        Binding("d,delete", "remove_bookmark", show=False),
        Binding("u", "undo_removal", show=False),
    ]

    def __init__(self, library: Library, contents: LibrarySnapshot) -> None:
        super().__init__()
        self._library, self._contents = library, contents
        self._userdata = UserData(library.workspace)
        self._worker = LatestOnlyWorker(self)
        self._removed: Bookmark | None = None
        self.list = RowList("bookmarks-list")
        self._hints = LeftAndRightTextLine()

    def compose(self) -> ComposeResult:
        with Vertical(id="palette", classes="pane") as pane:
            pane.border_title = "Bookmarks"
            yield self.list
            yield self._hints

    def on_mount(self) -> None:
        self.list.focus()
        self.list.set_rows([], [("Reading …", "dim")])
        self._update_key_hints()
        self._worker.submit_call(self._read_bookmarks, self._show_bookmarks, self._show_error)

    def _update_key_hints(self) -> None:
        pairs = [("Enter", "open"), ("e", "note"), ("d", "remove"), ("Esc", "back")]
        if self._removed:
            pairs.insert(
                0,
                ("u", f"undo the removal of {self._contents.shorten_reference(self._removed.ref)}"),
            )
        self._hints.set_edge_texts(format_key_hints(pairs))

    def should_key_wait(self, key: str) -> bool:
        """Return whether a key must wait until the bookmarks have been read or changed."""
        return self._worker.has_pending_result and key != "escape"

    def _read_bookmarks(self) -> tuple[list[Bookmark], MarksOfTurns]:
        bookmarks = BookmarkAnchors(self._library.workspace, self._userdata).list_bookmarks()
        return bookmarks, self._library.find_marks_of_turns(one.ref for one in bookmarks)

    def _show_bookmarks(self, found: tuple[list[Bookmark], MarksOfTurns]) -> None:
        bookmarks, marks = found
        key = find_key_label_of_command("bookmark", self.configured_keys)
        how = f" Press {key} to bookmark the selected or open item." if key else ""
        rows = []
        for mark in bookmarks:
            ref = self._contents.shorten_reference(mark.ref)
            left: Spans = [("★ ", "accent"), (sanitize_to_one_line(mark.title) or ref, "strong")]
            below: list[Spans] = (
                [[("  ", ""), (sanitize_to_one_line(mark.note), "")]] if mark.note else []
            )
            below += [
                [("  ", ""), *make_mark_spans(placed)] for placed in marks.get_marks(mark.ref)
            ]
            rows.append(ListRow(mark.ref, left, [(ref, "dim")], below, data=mark))
        self.list.set_rows(rows, [(f"No bookmarks yet.{how}", "dim")])

    def _show_error(self, error: Exception) -> None:
        self.list.set_rows([], [(f"! {sanitize_to_one_line(str(error))}", "error")])

    @on(RowList.RowClicked)
    def action_open_bookmark(self) -> None:
        if row := self.list.selected_row:
            try:
                self.dismiss(make_navigation_target(parse_ref(row.data.ref)))
            except KbtuiError as error:
                self._show_error(error)

    def action_edit_note(self) -> None:
        if row := self.list.selected_row:
            mark: Bookmark = row.data

            def save_note(note: str | None) -> None:
                if note is not None:
                    self._save_bookmark(mark, note)

            self.app.push_screen(
                TextInputDialog(f"Note on {self._contents.shorten_reference(mark.ref)}", mark.note),
                save_note,
            )

    def action_remove_bookmark(self) -> None:
        if row := self.list.selected_row:
            self._removed = row.data
            self._update_key_hints()
            self._change_bookmarks(lambda: self._userdata.remove_bookmark(row.data.ref))

    def action_undo_removal(self) -> None:
        mark, self._removed = self._removed, None
        if mark is not None:
            self._update_key_hints()
            self._save_bookmark(mark, mark.note)

    def _save_bookmark(self, mark: Bookmark, note: str) -> None:
        self._change_bookmarks(lambda: self._userdata.save_bookmark(mark.ref, mark.title, note))

    def _change_bookmarks(self, change: Callable[[], object]) -> None:
        def change_and_read_bookmarks() -> tuple[list[Bookmark], MarksOfTurns]:
            change()
            return self._read_bookmarks()

        self._worker.submit_call(change_and_read_bookmarks, self._show_bookmarks, self._show_error)
