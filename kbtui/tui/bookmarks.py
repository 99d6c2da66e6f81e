"""The bookmarks: a list to open one from, to change its note, to take one away."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding
from textual.containers import Vertical

from kbtui.errors import KbtuiError
from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.commands import own_key
from kbtui.tui.framework.command import format_key_hints
from kbtui.tui.framework.dialogs import LineDialog
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.framework.text_widgets import TextLine
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.navigation_target import make_target

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.library import Library
    from kbtui.userdata.userdata import Bookmark

NONE = "No bookmarks yet. {} makes one of what is selected or being read."


class BookmarksScreen(StyledScreen):
    """Gives back the place that one chose."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,apostrophe", "dismiss", show=False),
        Binding("enter", "open", show=False),
        Binding("e,n", "note", show=False),
        Binding("d,delete", "remove", show=False),
        Binding("u", "undo", show=False),
    ]

    def __init__(self, library: Library) -> None:
        super().__init__()
        from kbtui.userdata import UserData

        self._journal = UserData(library.workspace)
        self._lane = LatestOnlyWorker(self)
        self._removed: Bookmark | None = None
        self.list = RowList("bookmarks-list")
        self._says = TextLine()

    def compose(self) -> ComposeResult:
        """The list, and its keys."""
        with Vertical(id="palette", classes="pane") as pane:
            pane.border_title = "Bookmarks"
            yield self.list
            yield self._says

    def on_mount(self) -> None:
        """Read them."""
        self.list.focus()
        self.list.set_rows([], [("Reading …", "dim")])
        self._hints()
        self._read()

    def _hints(self) -> None:
        pairs = [("Enter", "open"), ("e", "note"), ("d", "remove"), ("Esc", "close")]
        if self._removed:
            pairs.insert(0, ("u", f"undo: {self._removed.ref} is removed"))
        self._says.set_text(format_key_hints(pairs))

    def should_key_wait(self, key: str) -> bool:
        """Whether the bookmarks are still being read or changed."""
        return self._lane.has_pending_result and key != "escape"

    def _read(self) -> None:
        self._lane.submit(self._journal.list_bookmarks, self._show, self._failed)

    def _show(self, found: list[Bookmark]) -> None:
        none = NONE.format(own_key("bookmark", self.configured_keys) or "The palette")
        self.list.set_rows([_row(one) for one in found], [(none, "dim")])

    def _failed(self, error: Exception) -> None:
        self.list.set_rows([], [(f"! {one_line(str(error))}", "error")])

    @on(RowList.RowClicked)
    def _clicked(self, event: RowList.RowClicked) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """Open the selected one."""
        if row := self.list.selected:
            try:
                self.dismiss(make_target(parse_ref(row.data.ref)))
            except KbtuiError as error:
                self._failed(error)

    def action_note(self) -> None:
        """Change its note."""
        if row := self.list.selected:
            mark: Bookmark = row.data

            def typed(note: str | None) -> None:
                if note is not None:
                    self._change(lambda: self._journal.save_bookmark(mark.ref, mark.title, note))

            self.app.push_screen(LineDialog(f"Note on {mark.ref}", mark.note), typed)

    def action_remove(self) -> None:
        """Take it away."""
        if row := self.list.selected:
            self._removed = row.data
            self._hints()
            self._change(lambda: self._journal.remove_bookmark(row.data.ref))

    def action_undo(self) -> None:
        """Bring back what was removed last."""
        mark, self._removed = self._removed, None
        if mark is not None:
            self._hints()
            self._change(lambda: self._journal.save_bookmark(mark.ref, mark.title, mark.note))

    def _change(self, what: object) -> None:
        def work() -> list[Bookmark]:
            what()  # type: ignore[operator]
            return self._journal.list_bookmarks()

        self._lane.submit(work, self._show, self._failed)


def _row(mark: Bookmark) -> ListRow:
    title = one_line(mark.title) or mark.ref
    below = [[("  ", ""), (one_line(mark.note), "")]] if mark.note else []
    return ListRow(
        mark.ref, [("★ ", "accent"), (title, "strong")], [(mark.ref, "dim")], below, data=mark
    )
