"""The entries screen: a table of subjects and conversations, a filter, and details of one entry."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.message import Message
from textual.widgets import Input

from kbtui.dates import Clock, format_time_with_date, format_unix_time_as_day
from kbtui.errors import KbtuiError, UsageError
from kbtui.index.catalog_query import (
    CITATION_DAYS,
    PREVIEW_CHARACTERS,
    EntryFilter,
    EntryListRow,
    EntryPage,
    query_entry_page,
    read_entry_chunks_as_json,
)
from kbtui.knowledge.front_matter import split_front_matter
from kbtui.library.index_and_engine_access import CallCancellation, get_current_cancellation
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import Ref, parse_ref
from kbtui.search.filter_definitions import ENTRY_STATUSES
from kbtui.search.query_parsing_and_filter_application import parse_entry_filter, parse_query
from kbtui.terminal_text import (
    cut_to_width,
    format_counted_noun,
    format_parent_title_suffix,
    measure_text_width,
    sanitize,
    sanitize_to_one_line,
)
from kbtui.tui.external_programs_and_clipboard import (
    copy_text_to_clipboards,
    open_web_address_in_browser,
)
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import LabeledInput, LeftAndRightTextLine
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import (
    HighlightPattern,
    StyledLines,
    wrap_spans,
)
from kbtui.tui.reader.reader_blocks import (
    FactTableReaderBlock,
    FoldHeadingBlock,
    LeftAndRightLineBlock,
    ParagraphReaderBlock,
    make_blocks_of_users_marks,
    make_heading_block_with_note,
)
from kbtui.tui.reader.reader_document import ReaderDocument, format_abbreviated_count
from kbtui.tui.secondary_screen import ListDetailScreen
from kbtui.tui.subject_file_actions import SubjectFileActions

if TYPE_CHECKING:
    from textual.timer import Timer
    from textual.widget import Widget

    from kbtui.index.catalog_query import EntryChunkJson
    from kbtui.knowledge.subject_editing import TrashedSubjectFile
    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.framework.tui_command_definition import TuiCommand
    from kbtui.tui.reader.reader_blocks import ReaderBlock

PAGE_ROWS = 200
MAX_PAGE_ROWS = 5000
"""The screen reads at most this many rows at a time.

Every read goes through all entries of the index, so a few large reads are faster than many small
ones.
"""
ALL_ROWS = 10**9
STATUS_SIGNS = {"ready": ("●", "inserted"), "pending": ("◌", "warning"), "error": ("!", "error")}


class LoadedEntryRows(NamedTuple):
    """The rows of the table that have been read so far.

    `wanted` is the filter that the rows match. `page` is the page that was read last; its totals
    count all matching entries, even those that have not been read.
    """

    wanted: EntryFilter
    rows: list[EntryListRow]
    page: EntryPage

    @property
    def has_more_rows(self) -> bool:
        """Whether some rows have not been read yet."""
        return self.page.cursor is not None


def read_more_entry_rows(
    library: Library, wanted: EntryFilter, before: LoadedEntryRows | None, count: int, now: datetime
) -> LoadedEntryRows:
    """Return the rows in `before`, followed by at least `count` more rows.

    If fewer rows are left, all of them are returned. `wanted` is the filter. `now` is the end of the
    period in which citations count as recent. Called in a background thread.
    """
    call = get_current_cancellation()
    rows = list(before.rows) if before else []
    cursor = before.page.cursor if before else None
    goal = len(rows) + count
    while True:
        page = query_entry_page(
            library.workspace,
            library.open_index_reader(),
            wanted,
            cursor=cursor,
            limit=goal - len(rows),
            most=MAX_PAGE_ROWS,
            vectors=library.settings.model != "off",
            now=now.timestamp(),
            is_given_up=lambda: call.cancelled,
        )
        rows += page.entries
        cursor = page.cursor
        if cursor is None or len(rows) >= goal:
            return LoadedEntryRows(wanted, rows, page)


class EntryTableColumn(NamedTuple):
    """A column to the right of the titles.

    The column is shown if the table is at least `min_width` cells wide. This leaves at least 48
    cells for the titles.
    """

    name: str
    cells: int
    is_right_aligned: bool
    min_width: int

    def fit_text_to_column(self, text: str) -> str:
        """Cut or pad a text to the width of the column."""
        text = cut_to_width(sanitize_to_one_line(text), self.cells)
        space = " " * (self.cells - measure_text_width(text))
        return space + text if self.is_right_aligned else text + space


COLUMNS = (
    EntryTableColumn("type", 12, False, 86),
    EntryTableColumn("changed", 10, False, 58),
    EntryTableColumn("passages", 8, True, 96),
    EntryTableColumn("size", 6, True, 104),
    EntryTableColumn("cited 30d", 9, True, 0),
)

TITLE_HEADINGS = ("title, reference, #tags", "title, reference", "title")
"""Headings for the first column, longest first. The longest one that fits is shown."""


class EntryTable(RowList):
    """A table with a row for each entry.

    The text of a row is made only when the row is drawn, because there may be tens of thousands of
    entries.
    """

    def __init__(self) -> None:
        super().__init__("entries")
        self.empty_text = [("Reading the entries …", "dim")]

    class GoToLastEntryRequested(Message):
        """The user asks to go to the last entry, which may not be loaded yet."""

    def action_bottom(self) -> None:
        super().action_bottom()
        self.post_message(self.GoToLastEntryRequested())

    @property
    def selected_entry(self) -> EntryListRow | None:
        """The entry in the selected row; None if the list is empty."""
        row = self.selected_row
        return row.data if row is not None else None

    def prepare_row_text(self, row: ListRow) -> None:
        row.left = _format_entry_title_cell(row.data)
        row.right = _format_entry_value_cells(row.data, self.scrollable_content_region.width)


def make_entry_table_headings(width: int) -> tuple[Spans, Spans]:
    """Return the column headings of a table that is `width` cells wide: the left and the right part."""
    right = "  ".join(
        column.fit_text_to_column(column.name) for column in COLUMNS if width >= column.min_width
    )
    # Leave two cells free at the left edge and two for the scroll bar; two cells separate the headings.
    room = width - measure_text_width(right) - 6
    left = next((text for text in TITLE_HEADINGS if len(text) <= room), TITLE_HEADINGS[-1])
    return [(f"  {left}", "section")], [(right, "section")]


def _format_entry_title_cell(entry: EntryListRow) -> Spans:
    sign, role = STATUS_SIGNS[entry.status]
    flags = ", ".join(name for name in ("hidden", "archived") if getattr(entry, name))
    # Tags come last, because a narrow table cuts off the end of the text.
    tags = "".join(f" #{sanitize_to_one_line(tag)}" for tag in entry.tags)
    return [
        (f"{sign} ", role),
        (sanitize_to_one_line(entry.title), ""),
        (format_parent_title_suffix(entry.parent_title, entry.parent_id), "dim"),
        (f"  {flags}" if flags else "", "dim"),
        (f"  {sanitize_to_one_line(entry.short_ref)}", "dim"),
        (f" {tags}" if tags else "", "note"),
    ]


def _format_entry_value_cells(entry: EntryListRow, width: int) -> Spans:
    values = {
        "type": (entry.type, "dim"),
        "changed": (format_unix_time_as_day(entry.changed), "dim"),
        "passages": (f"{entry.chunks:,}", "dim"),
        "size": (format_abbreviated_count(entry.size), "dim"),
        "cited 30d": (f"{entry.cites_30d:,}", "" if entry.cites_30d else "dim"),
    }
    spans: Spans = []
    for column in COLUMNS:
        if width >= column.min_width:
            text, role = values[column.name]
            spans += [("  " if spans else "", ""), (column.fit_text_to_column(text), role)]
    return spans


MAX_CITATIONS = 500
NO_ENTRIES = "No entries yet. Declare a topic, then press {}."
READ_DELAY_SECONDS = 0.08
"""The time in seconds from a change of the filter or selection until the screen reads data."""
PENDING_RELOAD_SECONDS = 3.0
ACTIONS_WITHOUT_ENTRY = {
    "focus_filter",
    "help",
    "back",
    "leave",
    "create_subject",
    "reload",
    "app.switch_light_or_dark",
}
"""Actions that do not depend on the selected entry. Their keys do not wait until entries are loaded."""
READ_AHEAD_ROWS = 100
"""The screen reads more rows if fewer than about `READ_AHEAD_ROWS` rows follow the selected row."""


# the details of an entry


@dataclass(slots=True, eq=False)
class FoldablePassageBlock(FoldHeadingBlock):
    """A passage that the user can unfold. While it is folded, only its beginning is visible."""

    text: str = ""

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        lines = FoldHeadingBlock.lay_out_lines(self, width, found)
        is_whole = self.is_open or len(self.text) <= PREVIEW_CHARACTERS
        text = self.text if is_whole else f"{self.text[:PREVIEW_CHARACTERS]}…"
        margin: Spans = [("  ", "")]
        for part in sanitize(text).split("\n"):
            lines += wrap_spans([(part, "" if self.is_open else "dim")], width, margin, margin)
        return lines

    def estimate_line_count(self, width: int) -> int:
        return self.above + 2 + min(len(self.text), PREVIEW_CHARACTERS) // max(8, width)

    def get_searchable_text(self) -> str:
        return self.text


def build_entry_details_document(
    library: Library, row: EntryListRow, now: datetime
) -> ReaderDocument:
    """Return a document with the facts, recent citations and passages of an entry.

    Called in a background thread.
    """
    chunks = read_entry_chunks_as_json(library.open_index_reader(), row.id)
    source, problem = _read_fetching_source_and_text_problem(library, row)
    title: Spans = [
        (sanitize_to_one_line(row.title), "h1"),
        (format_parent_title_suffix(row.parent_title, row.parent_id), "dim"),
    ]
    facts = FactTableReaderBlock("facts", _make_entry_facts(row, source))
    blocks: list[ReaderBlock] = [ParagraphReaderBlock("title", title), facts]
    if problem := row.error or problem:
        text = f"! {sanitize_to_one_line(problem)}"
        blocks.append(ParagraphReaderBlock("error", [(text, "error")], above=1))
    blocks += _make_recent_citing_turn_blocks(library, row, now)
    count = format_counted_noun(len(chunks), "passage")
    blocks.append(make_heading_block_with_note("chunks", "Passages", count))
    for number, chunk in enumerate(chunks, 1):
        size = format_counted_noun(chunk["characters"], "character")
        origin = _describe_passage_place(chunk)
        left: Spans = [(f"{number} ", "number"), (size, ""), (origin, "dim")]
        right = (chunk["model"], "dim") if chunk["model"] else ("no vector", "warning")
        key, text = f"chunk:{chunk['chunk_id']}", chunk["text"]
        blocks.append(FoldablePassageBlock(key, left, [right], kind="chunk", text=text))
    return ReaderDocument(
        f"entry:{row.id}", sanitize_to_one_line(row.short_ref), blocks, ref=row.ref, record=row
    )


def _make_entry_facts(row: EntryListRow, source: str | None) -> list[tuple[str, Spans]]:
    sign, role = STATUS_SIGNS[row.status]
    facts: dict[str, Spans] = {
        "entry": [
            (sanitize_to_one_line(row.ref), ""),
            (f"  {row.id}" if row.id != row.ref else "", "dim"),
        ],
        "type": [(sanitize_to_one_line(row.type), "")],
        "status": [(f"{sign} ", role), (row.status, "")],
        "tags": [(sanitize_to_one_line(", ".join(row.tags)), "")] if row.tags else [],
        "source": [(sanitize_to_one_line(source), "")] if source else [],
        "address": [(sanitize_to_one_line(row.source_url), "link")] if row.source_url else [],
        "created": [(format_unix_time_as_day(row.created), "")],
        "changed": [(format_unix_time_as_day(row.changed), "")],
        "size": [(format_counted_noun(row.size, "byte"), "")],
    }
    return [(name, value) for name, value in facts.items() if value]


def _read_fetching_source_and_text_problem(
    library: Library, row: EntryListRow
) -> tuple[str | None, str | None]:
    """Return the name of the source that fetched a subject, and the problem with the subject's text.

    The name is None if no source fetched the subject. The problem is None if the text is valid. If
    the subject no longer exists, both are None.
    """
    subject = library.load_knowledge().find_subject(row.topic or "", row.slug or "")
    if subject is None:
        return None, None
    try:
        text = split_front_matter(library.read_subject_text(subject))
    except KbtuiError as error:
        return None, error.message
    return text.fetching_source_name, text.problem and f"front matter ignored: {text.problem}"


def _make_recent_citing_turn_blocks(
    library: Library, row: EntryListRow, now: datetime
) -> list[ReaderBlock]:
    from kbtui.citations.citation_formatting_and_markdown_export import format_citation_state

    since = now - timedelta(days=CITATION_DAYS)
    found = library.find_citing_turns(library.parse_entered_reference(row.ref))
    citations = [one for one in found if one.timestamp is None or one.timestamp >= since]
    short_refs = library.open_index_reader().map_references_to_short_forms(
        one.source for one in citations
    )
    shown = citations[:MAX_CITATIONS]
    marks = library.find_all_marks_in_conversations_of_turns(one.source for one in shown)
    heading = f"Cited in the last {CITATION_DAYS} days"
    blocks: list[ReaderBlock] = [
        make_heading_block_with_note("cites", heading, f"{len(citations):,}")
    ]
    if not citations:
        blocks.append(ParagraphReaderBlock("none", [("No turn cited this entry.", "dim")]))
    for number, citation in enumerate(shown):
        when = format_time_with_date(citation.timestamp, now) if citation.timestamp else ""
        title = f"  {sanitize_to_one_line(citation.source_title)}"
        source = short_refs.get(citation.source, citation.source)
        left = [(source, "link"), (title, ""), (f"  {citation.how}", "dim")]
        key = f"cite:{number}:{citation.source}"
        blocks.append(LeftAndRightLineBlock(key, left, [(when, "dim")], link=citation.source))
        if state := format_citation_state(citation):
            # Show the state on a separate line, because a narrow screen would cut it off after the title.
            role = "warning" if citation.state in ("changed", "gone") else "dim"
            blocks.append(ParagraphReaderBlock(f"{key}:state", [(f"  {state}", role)]))
        blocks += make_blocks_of_users_marks(
            marks.get_marks_of_turn(citation.source), "  ", f"{key}:"
        )
    if len(citations) > MAX_CITATIONS:
        more = f"and {len(citations) - MAX_CITATIONS:,} more"
        blocks.append(ParagraphReaderBlock("further", [(more, "dim")]))
    return blocks


def _describe_passage_place(chunk: EntryChunkJson) -> str:
    """Return a passage's line numbers, or its turn, as text; "" if neither is known."""
    lines, turn = chunk["lines"], chunk["turn"]
    if lines is not None:
        first, last = lines
        return f"  line {first}" if first == last else f"  lines {first}–{last}"
    return f"  turn {turn}, {chunk['role']}" if turn else ""


class EntriesScreen(ListDetailScreen):
    """A screen with a table of entries. When it closes, it returns a reference to open, or None.

    `trashed` lists the files that earlier screens have moved to the trash (see `SubjectFileActions`).
    """

    HEADING = "Entries"
    SCOPE = "entries"
    NOTES = (
        "● ready, ◌ pending (not embedded yet), ! error (cannot be read or embedded).",
        "Filter example: `deploy type:rule,decision is:pending after:2026-05 before:2026-06`. "
        "Words must occur in the title or text; after: and before: limit the creation date.",
    )
    DEFAULT_CSS = "EntriesScreen #columns { height: 1; padding: 0 1; background: $background; }"

    def __init__(
        self, library: Library, clock: Clock, trashed: list[TrashedSubjectFile] | None = None
    ) -> None:
        self.list: EntryTable
        super().__init__(library, EntryTable())
        self.filter = LabeledInput("entry-filter", "filter")
        self.filter.display = True
        self.loaded: LoadedEntryRows | None = None
        self.subject_actions = SubjectFileActions(
            self, library, self.show_message, self._reload_and_select_entry, trashed
        )
        self._clock = clock
        self._flags = {"hidden": False, "archived": False}
        self._wanted: EntryFilter = parse_entry_filter("")
        self._page_worker = LatestOnlyWorker(self, cancellation=CallCancellation)
        self._detail_worker = LatestOnlyWorker(self)
        self._detail_timer: Timer | None = None
        self._filter_timer: Timer | None = None
        self._go_to_end = False
        self._types: list[str] = []
        """All entry types seen so far. The type filter offers them even if the list does not contain them."""
        self._ref_to_select: str | None = None

    def compose_list_pane(self) -> list[Widget]:
        return [self.filter, LeftAndRightTextLine(id="columns"), self.list]

    def on_mount(self) -> None:
        """Show the names of the filters in the empty input, and start the reload timer."""
        self.filter.input.placeholder = "words, type:, is:, topic:, after:, before:"
        self.set_interval(PENDING_RELOAD_SECONDS, self._reload_if_entries_pending)

    def _reload_if_entries_pending(self) -> None:
        """Reload the list if it has entries that are not embedded yet.

        A timer calls this, because the engine sends no event when an entry has been embedded.
        """
        if self.loaded and self.loaded.page.by_status.get("pending"):
            self.action_reload()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_column_headings)

    def _show_column_headings(self) -> None:
        left, right = make_entry_table_headings(self.list.scrollable_content_region.width)
        # The table keeps two cells free for its scroll bar.
        self.query_one("#columns", LeftAndRightTextLine).set_edge_texts(left, [*right, ("  ", "")])

    @property
    def command_condition_states(self) -> dict[str, bool]:
        entry, loaded = self.list.selected_entry, self.loaded
        return {
            "address": bool(entry and entry.source_url),
            "errors": bool(loaded and loaded.page.by_status.get("error")),
            "trashed": self.subject_actions.has_trashed_subject,
        }

    def list_hinted_commands(self) -> list[TuiCommand]:
        """Return the commands for the key hints. The label of Enter depends on the focused pane."""
        commands = super().list_hinted_commands()
        labels = {"entries.enter": "unfold / open"} if self.is_detail_pane_focused else {}
        return [one._replace(label=labels.get(one.id, one.label)) for one in commands]

    def should_key_wait(self, key: str) -> bool:
        """Return whether a key must wait until the list or the entry's details are loaded."""
        owner, action = self._find_key_action(key)
        # No widget binds a letter that is typed into the filter, so its `owner` is None.
        is_typing = self.focused is self.filter.input and owner in (None, self.filter.input)
        if is_typing or action in ACTIONS_WITHOUT_ENTRY:
            return False
        is_page_due = self._detail_timer is not None or self._detail_worker.has_pending_result
        is_list_due = self._filter_timer is not None or self.is_reading_filtered_rows
        return is_list_due or (self.is_detail_pane_focused and is_page_due)

    @property
    def is_reading_filtered_rows(self) -> bool:
        """Whether the first rows for the current filter are still being read."""
        is_shown = self.loaded is not None and self.loaded.wanted == self._wanted
        return self._page_worker.has_pending_result and not is_shown

    # reading the list

    def action_reload(self) -> None:
        """Reload the list. If the filter has not changed, read at least as many rows as before."""
        before = self.loaded
        # Read one page more than before, so that the selected row stays in the list even if new rows come before it.
        known = len(before.rows) if before is not None and before.wanted == self._wanted else 0
        self._read_entries(None, PAGE_ROWS + known)

    def _read_more_entries(self, least: int = PAGE_ROWS) -> None:
        if self.loaded and self.loaded.has_more_rows and not self._page_worker.has_pending_result:
            self._read_entries(self.loaded, least)

    def _read_entries(self, before: LoadedEntryRows | None, least: int) -> None:
        wanted, now = before.wanted if before else self._wanted, self._clock()
        read_pages = partial(read_more_entry_rows, self.library, wanted, before, least, now)
        self._page_worker.submit_call(read_pages, self._show_entries, self._show_read_error)

    def _show_entries(self, loaded: LoadedEntryRows) -> None:
        self.loaded = loaded
        selected = next((e.id for e in loaded.rows if e.ref == self._ref_to_select), None)
        if selected is not None:
            self._ref_to_select = None
        empty = NO_ENTRIES.format(self.get_key_label("new"))
        if self.filter.input.value.strip() or any(self._flags.values()):
            empty = "No entries match."
        rows = [ListRow(entry.id, [], data=entry) for entry in loaded.rows]
        self.list.set_rows(rows, [(empty, "dim")], selected)
        if self._go_to_end and not loaded.has_more_rows:
            self._go_to_end = False
            self.list.select_row(loaded.rows[-1].id)
        elif self._go_to_end:
            self._read_more_entries(ALL_ROWS)
        self._show_entry_totals(loaded.page)
        self._show_entry_details_after_delay()

    def _show_read_error(self, error: Exception) -> None:
        if self.loaded is None:
            self.list.set_rows([], [("The entries cannot be read.", "error")])
        self.show_error(error)

    def _show_entry_totals(self, page: EntryPage) -> None:
        total = format_counted_noun(page.total, "entry", "entries")
        counts = ((name, page.by_status.get(name)) for name in ENTRY_STATUSES)
        statuses = [f"{count:,} {name}" for name, count in counts if count]
        details = " · ".join([*statuses, *self._describe_included_entry_states()])
        left: Spans = [(total, "strong"), (f"  {details}", "dim")]
        kinds = sorted(page.by_type.items(), key=lambda pair: (-pair[1], pair[0]))[:6]
        types = [
            sanitize_to_one_line(
                format_counted_noun(count, kind, kind if kind.endswith("s") else None)
            )
            for kind, count in kinds
        ]
        # A narrow screen shows only the most frequent types.
        rights = (" · ".join(types[:count]) for count in range(len(types), -1, -1))
        self.show_totals_line(*((left, [(right, "dim")]) for right in rights))
        self._show_list_position()
        self.show_key_hints()

    def _describe_included_entry_states(self) -> list[str]:
        """Return phrases about the entries in the list, such as "without archived and disabled"."""
        shown = [name for name, is_shown in self._flags.items() if is_shown]
        # Disabled subjects are not in the index.
        *missing, last = [name for name in [*self._flags, "disabled"] if name not in shown]
        left_out = f"without {', '.join(missing)} and {last}" if missing else f"without {last}"
        return [f"with {' and '.join(shown)}", left_out] if shown else [left_out]

    def _show_list_position(self) -> None:
        position = ""
        if self.loaded and self.loaded.rows:
            position = f"{self.list.index + 1:,} of {self.loaded.page.total:,}"
        self.query_one("#listed").border_subtitle = position

    # the selected entry

    @on(RowList.SelectedRowChanged)
    def _on_row_selected(self) -> None:
        self._show_list_position()
        if self.list.index > len(self.list.rows) - READ_AHEAD_ROWS:
            self._read_more_entries()
        self._show_entry_details_after_delay()

    def _show_entry_details_after_delay(self) -> None:
        """Show the details of the selected entry once it has been selected for `READ_DELAY_SECONDS`."""
        if self._detail_timer is not None:
            self._detail_timer.stop()
        self._detail_timer = self.set_timer(READ_DELAY_SECONDS, self._show_entry_details)

    def _show_entry_details(self) -> None:
        self._detail_timer = None
        entry = self.list.selected_entry
        self.show_key_hints()
        if entry is None:
            self._detail_worker.discard_pending_results()
            self.show_document(ReaderDocument("entry:", "", []))
            return
        build_document = partial(build_entry_details_document, self.library, entry, self._clock())
        self.run_in_thread(build_document, self.show_document, self._detail_worker)

    @on(EntryTable.GoToLastEntryRequested)
    def _load_all_entries_and_go_to_last(self) -> None:
        self._go_to_end = self.loaded is not None and self.loaded.has_more_rows
        self._read_more_entries(ALL_ROWS)

    @on(RowList.RowClicked)
    def action_open_details_or_link(self) -> None:
        viewport, block = self.reader.viewport, self.cursor_block
        if not self.is_detail_pane_focused:
            if self.list.selected_entry is not None:
                self.focus_detail_pane()
        elif block and block.link:
            self.dismiss(parse_ref(block.link))
        elif block and (fold := viewport.find_fold_at_cursor()):
            viewport.toggle_fold(fold)
            self.reader.redraw_after_viewport_change()

    def action_open_in_reader(self) -> None:
        if (entry := self.list.selected_entry) is not None:
            self.dismiss(self._parse_entry_ref(entry))

    def _parse_entry_ref(self, entry: EntryListRow) -> Ref:
        # The entry exists, so a colon in its slug does not start a line number.
        return parse_ref(entry.ref, lambda topic, slug: (topic, slug) == (entry.topic, entry.slug))

    def action_copy_reference(self) -> None:
        if (entry := self.list.selected_entry) is not None:
            copy_text_to_clipboards(self.app, entry.ref)
            self.show_message(f"copied {entry.ref}")

    def action_open_web_address(self) -> None:
        """Open the web address from which the entry was fetched.

        If there is no browser, copy the address.
        """
        entry = self.list.selected_entry
        if entry is None or not entry.source_url:
            self.show_unavailable_key_message("this entry was not fetched from a web address")
        elif open_web_address_in_browser(self.app, entry.source_url):
            self.show_message(f"opened {entry.source_url}")
        else:
            copy_text_to_clipboards(self.app, entry.source_url)
            self.show_message(f"no browser found; copied {entry.source_url}", "warning")

    # the filter

    def action_focus_filter(self) -> None:
        self.focus_list_pane(self.filter.input)

    @on(Input.Changed, "#entry-filter")
    def _on_filter_changed(self) -> None:
        if self._filter_timer is not None:
            self._filter_timer.stop()
        self._filter_timer = self.set_timer(READ_DELAY_SECONDS, self._apply_filter)

    def _apply_filter(self) -> None:
        self._filter_timer = None
        try:
            text, flags = self.filter.input.value, self._flags
            wanted = parse_entry_filter(text, hidden=flags["hidden"], archived=flags["archived"])
        except UsageError as error:
            self.show_error(error)
            return
        self.show_message()
        if wanted != self._wanted:
            self._wanted = wanted
            self.action_reload()

    def action_filter_by_next_value(self, name: str) -> None:
        """Set the filter `name` (`type` or `is`) to its next value, or remove it after the last value."""
        text, values = self.filter.input.value, list[str](ENTRY_STATUSES)
        if name == "type":
            found = self.loaded.page.by_type if self.loaded else ()
            values = self._types = sorted({*self._types, *found})
        current = get_last_filter_value(text, name)
        position = values.index(current) + 1 if current in values else 0
        self.filter.input.value = replace_filter_value(text, name, [*values, None][position])

    def action_toggle_hidden_or_archived(self, name: str) -> None:
        self._flags[name] = not self._flags[name]
        self._apply_filter()

    def action_create_subject(self) -> None:
        entry = self.list.selected_entry
        self.subject_actions.ask_for_and_create_subject(topic=entry.topic if entry else None)

    def action_edit_subject(self) -> None:
        if (entry := self._get_selected_subject_or_warn()) is not None:
            self.subject_actions.edit_subject(self._parse_entry_ref(entry))

    def action_remove_subject(self) -> None:
        if (entry := self._get_selected_subject_or_warn()) is not None:
            self.subject_actions.move_subject_to_trash_if_confirmed(self._parse_entry_ref(entry))

    def action_restore_removed_subject(self) -> None:
        self.subject_actions.restore_last_trashed_subject()

    def _get_selected_subject_or_warn(self) -> EntryListRow | None:
        """Return the selected subject. If a conversation is selected, show a message and return None."""
        entry = self.list.selected_entry
        if entry is not None and entry.kind == "conversation":
            self.show_unavailable_key_message(
                "only subjects can be changed here, not conversations"
            )
            return None
        return entry

    def _reload_and_select_entry(self, ref: str) -> None:
        self._ref_to_select = ref
        self.action_reload()

    def action_retry_indexing_failed_entries(self) -> None:
        self.show_message("retrying …", "dim")

        def show_retry_result(_: None) -> None:
            self.show_message("retried; entries that failed again are still marked with !")
            self.action_reload()

        self.run_in_thread(self.library.retry_failed_files_and_passages, show_retry_result)

    def action_back(self) -> None:
        if self.focused is self.filter.input or self.is_detail_pane_focused:
            self.focus_list_pane()
        elif self.filter.input.value:
            self.filter.input.value = ""
        else:
            self.action_leave()


def replace_filter_value(text: str, key: str, value: str | None) -> str:
    """Return `text` with the filter `key` set to `value`, or without this filter if `value` is None."""
    for part in reversed(parse_query(text, filter_input="entries").filters):
        if part.key == key:
            text = text[: part.start] + text[part.end :]
    words = text.split()
    if value is not None:
        words.append(f'{key}:"{value}"' if " " in value else f"{key}:{value}")
    return " ".join(words)


def get_last_filter_value(text: str, key: str) -> str | None:
    """Return the last value of the filter `key` in `text`, or None if there is no such filter."""
    parts = parse_query(text, filter_input="entries").filters
    values = [part.values[-1] for part in parts if part.key == key]
    return values[-1] or None if values else None
