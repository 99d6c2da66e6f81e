"""The outline pane: a row for each turn or heading of the open document, with a filter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from textual import on
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from kbtui.dates import Clock, format_time_with_date
from kbtui.terminal_text import format_counted_noun
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import (
    LeftAndRightTextLine,
    PaneCoveredByChildren,
    TextInputInPane,
)
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import Span, Spans, measure_cell_width
from kbtui.tui.framework.tui_command_definition import make_list_movement_bindings_for_focused_input
from kbtui.tui.reader.reader_blocks import make_spans_of_users_mark
from kbtui.tui.reader.reader_document import (
    OutlineEntry,
    find_outline_entry_at,
    format_abbreviated_count,
    make_document_outline,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from textual.app import ComposeResult

    from kbtui.citations.turn_file_actions_and_commands import TurnActionsAndCommands
    from kbtui.conversations.turn_decision_marks import PlacedMark
    from kbtui.tui.navigation_target import ReadingPosition
    from kbtui.tui.reader.document_view import DocumentView
    from kbtui.tui.reader.reader_document import ReaderDocument

MIN_WORDS_WIDTH = 16
"""The minimum width in cells for a row's words. Columns that would leave less room are not shown."""


@dataclass(frozen=True)
class OutlineFactColumn:
    """A column with a fact about each entry, such as its time or line number.

    If the pane is too narrow, the columns with the lowest priorities are left out.
    """

    name: str
    priority: int
    cells: dict[str, Span]
    """The cells of the column, by entry key. Entries without such a fact are missing."""

    @cached_property
    def width(self) -> int:
        """The width in cells, including two cells of space before the column."""
        texts = [self.name, *(text for text, _ in self.cells.values())]
        return 2 + max(measure_cell_width([(text, "")]) for text in texts)


class OutlineFilterInput(TextInputInPane):
    """The outline's filter input. While it has the focus, the arrow keys move the selection in the list."""

    BINDINGS = make_list_movement_bindings_for_focused_input("move_in_outline")

    async def action_move_in_outline(self, move: str, *pages: float) -> None:
        """Select another row; `move` is a direction such as "up" or "down"."""
        getattr(self.screen.query_one("#outline-list", RowList), f"action_{move}")(*pages)


class OutlinePane(PaneCoveredByChildren, Vertical):
    """The pane with the outline of the open document.

    The selected row is the turn or heading at the reader's cursor. When the user selects another
    row, the reader goes there.
    """

    DEFAULT_CSS = """
    #outline-head { height: 1; padding: 0 2 0 1; background: $background; }
    #outline-filter { padding: 0 1; }
    """

    class OutlineEntryChosen(Message):
        """The user chose an entry. If `preview` is true, the user only selected it."""

        def __init__(self, entry: OutlineEntry, preview: bool) -> None:
            super().__init__()
            self.entry, self.preview = entry, preview

    class OutlineClosed(Message):
        """The user closed the outline without choosing an entry.

        `position` is the reader's position at the time when the outline received the focus.
        """

        def __init__(self, position: ReadingPosition) -> None:
            super().__init__()
            self.position = position

    def __init__(self, clock: Clock, reader: DocumentView) -> None:
        super().__init__(id="outline", classes="pane")
        self.border_title = "Outline"
        self._clock = clock
        self._reader = reader
        self._head = LeftAndRightTextLine(id="outline-head")
        self.list = RowList("outline-list")
        self.list.can_focus = False
        self.input = OutlineFilterInput(id="outline-filter", compact=True)
        self._worker = LatestOnlyWorker(self)
        self._document: ReaderDocument | None = None
        self._entries: list[OutlineEntry] = []
        self._columns: list[OutlineFactColumn] = []
        """All columns with at least one cell, even those for which the pane is too narrow."""
        self._activities: Mapping[int, TurnActionsAndCommands] = {}
        """The activity of each turn, by turn number; empty until the activities are known."""
        self._position = reader.viewport.make_reading_position()
        """The reader's position at the time when the outline received the focus."""

    def compose(self) -> ComposeResult:
        yield self.input
        yield self._head
        yield self.list

    @property
    def is_loading_outline(self) -> bool:
        """Whether the outline of the open document is still being made."""
        return self._worker.has_pending_result

    def remember_reader_position(self) -> None:
        """Store the current position of the reader.

        If the user leaves the outline without choosing an entry, the reader goes back to this position.
        """
        self._position = self._reader.viewport.make_reading_position()

    def show_outline_of_document(self, activities: Mapping[int, TurnActionsAndCommands]) -> None:
        """Show the outline of the document that is open in the reader.

        `activities` contains the known activities of turns, by turn number.
        """
        document = self._reader.document
        was_shown, is_known = document is self._document, activities is self._activities
        self._document, self._activities = document, activities
        if not was_shown:
            make_outline = partial(make_document_outline, document)
            self._worker.submit_call(make_outline, self._show_outline_entries, self._show_error)
        elif not is_known:
            self._columns = self._make_nonempty_columns()
            self._rebuild_outline_rows()

    def _show_outline_entries(self, entries: list[OutlineEntry]) -> None:
        self._entries = entries
        self._columns = self._make_nonempty_columns()
        self._rebuild_outline_rows(select_current=not self.input.value)
        if self.input.value:
            self._filter_outline_or_go_to_turn(self.input.value)

    def _show_error(self, error: Exception) -> None:
        self.list.set_rows([], [(f"! {error}", "error")])

    def on_resize(self) -> None:
        self._rebuild_outline_rows()

    # rows

    def _list_matching_entries(self) -> list[OutlineEntry]:
        if self._find_entry_by_turn_number(self.input.value) is not None:
            return self._entries
        words = self.input.value.casefold().split()
        return [
            entry
            for entry in self._entries
            if all(word in self._get_searched_text(entry) for word in words)
        ]

    def _get_searched_text(self, entry: OutlineEntry) -> str:
        activity = self._activities.get(entry.turn.number) if entry.turn else None
        paths = dict.fromkeys(one.path for one in activity.files) if activity else {}
        labels = (mark.label_in_turn for mark in self._get_marks_on_turn(entry))
        return " ".join([entry.searched, *paths, *labels]).casefold()

    def _get_marks_on_turn(self, entry: OutlineEntry) -> Sequence[PlacedMark]:
        marks = self._document.marks if self._document else None
        return marks.by_turn.get(entry.turn.number, ()) if marks and entry.turn else ()

    def _rebuild_outline_rows(self, *, select_current: bool = False) -> None:
        entries = self._list_matching_entries()
        width = self.list.scrollable_content_region.width - 2
        digits = len(str(len(self._entries)))
        columns = self._choose_columns(width - digits - 2)
        is_turns = bool(self._entries and self._entries[0].turn)
        rows = []
        for entry in entries:
            lead: Span = ("  " * entry.depth, "")
            if entry.turn is not None:
                lead = (f"{entry.turn.number:>{digits}}  ", "turn")
            is_rewound = entry.turn is not None and entry.turn.is_rewound
            words = (entry.words or "no text", "dim" if is_rewound else "")
            signs = [make_spans_of_users_mark(mark)[0] for mark in self._get_marks_on_turn(entry)]
            left: Spans = [lead, *signs, words]
            right: Spans = [
                (f"{text:>{column.width}}", role)
                for column in columns
                for text, role in [column.cells.get(entry.key, ("", ""))]
            ]
            rows.append(ListRow(entry.key, left, right, data=entry))
        views = {"changes": "change", "by-file": "change", "history": "version"}
        view = self._document.view if self._document else ""
        noun = "turn" if is_turns else views.get(view, "heading")
        self.input.placeholder = f"{'a number, or ' if is_turns else ''}words to filter by"
        found = f"{len(entries):,} of " if len(entries) < len(self._entries) else ""
        self.border_title = f"Outline · {found}{format_counted_noun(len(self._entries), noun)}"
        heads: Spans = [(f"{column.name:>{column.width}}", "dim") for column in columns]
        self._head.set_edge_texts([], heads)
        self._head.display = bool(heads)
        empty = "Nothing matches. Esc clears the filter."
        if self.is_loading_outline and not self._entries:
            empty = "Reading …"
        elif not self._entries:
            empty = "This page has no turns and no headings. Esc closes the outline."
        current = self._find_entry_key_at_cursor() if select_current else None
        self.list.set_rows(rows, [(empty, "dim")], current)

    def _choose_columns(self, width: int) -> list[OutlineFactColumn]:
        """Return the columns that fit if each row keeps `MIN_WORDS_WIDTH` cells for its words."""
        columns = list(self._columns)
        while columns and sum(one.width for one in columns) > width - MIN_WORDS_WIDTH:
            columns.remove(min(columns, key=lambda column: column.priority))
        return columns

    def _make_nonempty_columns(self) -> list[OutlineFactColumn]:
        return [column for column in self._make_possible_columns() if column.cells]

    def _make_possible_columns(self) -> list[OutlineFactColumn]:
        now = self._clock()
        turns = [(entry.key, entry.turn) for entry in self._entries if entry.turn]
        if not turns:
            lines = {one.key: (f"{one.line:,}", "dim") for one in self._entries if one.line}
            return [OutlineFactColumn("line", 1, lines)]
        did = [(key, one, self._activities.get(one.number)) for key, one in turns]
        days = {one.started_at.astimezone(now.tzinfo).date() for _, one in turns if one.started_at}
        changed = {key: act.group_changes_by_path() for key, _, act in did if act}
        added = {
            k: sum(a.added_line_count for b in v.values() for a in b) for k, v in changed.items()
        }
        removed = {
            k: sum(a.removed_line_count for b in v.values() for a in b) for k, v in changed.items()
        }
        return [
            OutlineFactColumn("time", 3, {
                key: (_format_time(one.started_at, now, is_one_day=len(days) == 1), "dim")
                for key, one in turns
                if one.started_at
            }),
            OutlineFactColumn("took", 5, {
                key: (format_duration(one.seconds), "dim")
                for key, one in turns
                if one.seconds is not None
            }),
            OutlineFactColumn("tools", 4, {
                key: (f"{one.calls:,}", "") for key, one in turns if one.calls
            }),
            OutlineFactColumn("✗", 7, {
                key: (f"{one.failed:,}", "error") for key, one in turns if one.failed
            }),
            OutlineFactColumn("files", 6, {
                key: (f"{len(paths):,}", "") for key, paths in changed.items() if paths
            }),
            OutlineFactColumn("lines", 2, {
                key: (f"+{added[key]:,} −{removed[key]:,}", "dim")
                for key in changed
                if added[key] or removed[key]
            }),
            OutlineFactColumn("tokens", 1, {
                key: (format_abbreviated_count(one.tokens), "dim") for key, one in turns if one.tokens
            }),
        ]  # fmt: skip

    # following the reader

    def select_entry_at_reader_cursor(self) -> None:
        """Select the entry at the reader's cursor, unless the user is choosing an entry."""
        if not self.input.has_focus and (key := self._find_entry_key_at_cursor()):
            self.list.select_row(key)

    def _find_entry_key_at_cursor(self) -> str | None:
        viewport = self._reader.viewport
        if self._document is not viewport.document or not viewport.document.blocks:
            return None
        line = viewport.current_styled_line
        at = find_outline_entry_at(
            viewport.document, self._entries, viewport.cursor.block, line.source_line if line else 0
        )
        return self._entries[at].key if at is not None else None

    # choosing an entry

    def _find_entry_by_turn_number(self, text: str) -> OutlineEntry | None:
        """Return the entry of the turn whose number is `text`, or None.

        To filter by a number instead, the user types a space before it; the result is then None.
        """
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= len(self._entries)):
            return None
        entry = self._entries[int(text) - 1]
        return entry if entry.turn is not None else None

    @on(Input.Changed)
    def _on_filter_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._filter_outline_or_go_to_turn(event.value)

    def _filter_outline_or_go_to_turn(self, text: str) -> None:
        entry = self._find_entry_by_turn_number(text)
        self._rebuild_outline_rows()
        if entry is None:
            return
        self.list.select_row(entry.key)
        if int(text) * 10 > len(self._entries):
            # No other turn has a number that begins with these digits.
            self.input.value = ""
            self.post_message(self.OutlineEntryChosen(entry, preview=False))

    @on(RowList.SelectedRowChanged)
    def _preview_selected_entry(self, event: RowList.SelectedRowChanged) -> None:
        event.stop()
        is_browsing = self.input.has_focus and self._reader.region.width
        if (
            is_browsing
            and event.row is not None
            and event.row.key != self._find_entry_key_at_cursor()
        ):
            self.post_message(self.OutlineEntryChosen(event.row.data, preview=True))

    @on(Input.Submitted)
    @on(RowList.RowClicked)
    def _choose_selected_entry(self, event: Message) -> None:
        event.stop()
        if row := self.list.selected_row:
            self.input.value = ""
            self.post_message(self.OutlineEntryChosen(row.data, preview=False))

    @on(TextInputInPane.EscapePressed)
    def _clear_filter_or_leave(self, event: TextInputInPane.EscapePressed) -> None:
        event.stop()
        if self.input.value:
            self.input.value = ""
        else:
            self.post_message(self.OutlineClosed(self._position))


def format_duration(seconds: float) -> str:
    """Return a short form of a duration, such as `8s`, `3m`, `1h05` or `2d`."""
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h{minutes % 60:02}" if hours < 48 else f"{hours // 24}d"


def _format_time(when: datetime, now: datetime, *, is_one_day: bool) -> str:
    local = when.astimezone(now.tzinfo)
    return f"{local:%H:%M}" if is_one_day else format_time_with_date(when, now)
