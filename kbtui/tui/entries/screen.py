"""The entries screen: a table of subjects and conversations, a filter, and what the index has of each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.widgets import Input

from kbtui.dates import format_iso_day, format_time
from kbtui.errors import KbtuiError, UsageError
from kbtui.index.entry_query import CITATION_DAYS, ENTRY_STATUSES, describe_chunks
from kbtui.refs import parse_ref
from kbtui.search.query_parser import parse_entry_filter, parse_query
from kbtui.text import one_line, safe
from kbtui.tui.commands import bindings
from kbtui.tui.entries.editor import EntryWriter
from kbtui.tui.entries.table import (
    EVERYTHING,
    SIGNS,
    EntryPager,
    EntryTable,
    LoadedEntries,
    headings,
)
from kbtui.tui.external_programs import open_web_address
from kbtui.tui.feature_screen import SplitScreen
from kbtui.tui.framework.clipboard import copy_text
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import StyledLine, TextMatches, wrap_spans
from kbtui.tui.framework.text_widgets import LabeledInput as Typed
from kbtui.tui.framework.text_widgets import PaneInput, TextLine
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.reader.blocks import FactsBlock, FoldBlock, HeadBlock, NoteBlock
from kbtui.tui.reader.document import Document, format_count

if TYPE_CHECKING:
    from datetime import datetime

    from textual.binding import BindingType
    from textual.timer import Timer
    from textual.widget import Widget

    from kbtui.citations.models import Citation
    from kbtui.dates import Clock
    from kbtui.index.entry_query import EntryFilter, EntryRow
    from kbtui.index.entry_query import EntryRow as Entry
    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.blocks import Block


PREVIEW = 200
CITES_MOST = 500
NO_MODEL = "no vector"


@dataclass(slots=True, eq=False)
class ChunkBlock(FoldBlock):
    """A chunk: its first characters, all of it when unfolded."""

    text: str = ""

    def layout(self, width: int, found: TextMatches | None, opened: bool) -> list[StyledLine]:
        """The head line, then the text as far as it shows."""
        lines = FoldBlock.layout(self, width, found, opened)
        text = self.text if opened or len(self.text) <= PREVIEW else f"{self.text[:PREVIEW]}…"
        margin: Spans = [("  ", "")]
        for part in safe(text).split("\n"):
            lines += wrap_spans([(part, "" if opened else "dim")], width, margin, margin)
        return lines

    def estimate_height(self, width: int) -> int:
        """The head line and the preview."""
        return self.above + 2 + min(len(self.text), PREVIEW) // max(8, width)

    def search_text(self) -> str:
        """The text."""
        return self.text


def entry_document(library: Library, row: EntryRow, present: datetime) -> Document:
    """The page of an entry; called in a thread."""
    chunks = describe_chunks(library.reader(), row.id)
    source, error = _source(library, row)
    blocks: list[Block] = [
        NoteBlock("title", [(one_line(row.title), "h1")]),
        FactsBlock("facts", _facts(row, source)),
    ]
    if problem := row.error or error:
        blocks.append(NoteBlock("error", [(f"! {one_line(problem)}", "error")], above=1))
    blocks += _citations(library, row, present)
    blocks.append(
        HeadBlock(
            "chunks", [("Passages", "h2")], [(format_count(len(chunks), "passage"), "dim")], above=1
        )
    )
    for number, chunk in enumerate(chunks, 1):
        where = _where(chunk)
        size = format_count(chunk["characters"], "character")
        left: Spans = [(f"{number} ", "number"), (size, ""), (where, "dim")]
        right: Spans = [(chunk["model"] or NO_MODEL, "dim" if chunk["model"] else "warning")]
        blocks.append(
            ChunkBlock(f"chunk:{chunk['chunk_id']}", left, right, kind="chunk", text=chunk["text"])
        )
    return Document(f"entry:{row.id}", one_line(row.ref), blocks, ref=row.ref, record=row)


def _facts(row: EntryRow, source: str | None) -> list[tuple[str, Spans]]:
    sign, role = SIGNS.get(row.status, ("?", "dim"))
    facts: dict[str, Spans] = {
        "entry": [(one_line(row.ref), ""), (f"  {row.id}" if row.id != row.ref else "", "dim")],
        "type": [(one_line(row.type), "")],
        "status": [(f"{sign} ", role), (row.status, "")],
        "tags": [(one_line(", ".join(row.tags)), "")] if row.tags else [],
        "source": [(one_line(source), "")] if source else [],
        "address": [(one_line(row.source_url), "link")] if row.source_url else [],
        "created": [(format_iso_day(row.created), "")],
        "changed": [(format_iso_day(row.changed), "")],
        "size": [(f"{row.size:,} bytes", "")],
    }
    return [(name, value) for name, value in facts.items() if value]


def _source(library: Library, row: EntryRow) -> tuple[str | None, str | None]:
    """The source that fetched a subject, and why its front matter counts for nothing."""
    from kbtui.knowledge.front_matter import split_front_matter

    subject = library.knowledge().find(row.topic or "", row.slug or "")
    if subject is None:
        return None, None
    try:
        text = split_front_matter(library.subject_text(subject))
    except KbtuiError as error:
        return None, error.message
    problem = text.problem and f"its front matter counts for nothing: {text.problem}"
    return text.source, problem


def _citations(library: Library, row: EntryRow, present: datetime) -> list[Block]:
    since = present - timedelta(days=CITATION_DAYS)
    cites = [
        cite
        for cite in library.turns_citing(library.resolve(row.ref))
        if cite.timestamp is None or cite.timestamp >= since
    ]
    heading = f"Cited in the last {CITATION_DAYS} days"
    blocks: list[Block] = [
        HeadBlock("cites", [(heading, "h2")], [(f"{len(cites):,}", "dim")], above=1)
    ]
    if not cites:
        blocks.append(NoteBlock("none", [("No turn used it in this time.", "dim")]))
    for number, cite in enumerate(cites[:CITES_MOST]):
        blocks.append(_cite(number, cite, present))
    if len(cites) > CITES_MOST:
        blocks.append(NoteBlock("further", [(f"and {len(cites) - CITES_MOST:,} more", "dim")]))
    return blocks


def _cite(number: int, cite: Citation, present: datetime) -> Block:
    when = format_time(cite.timestamp, present) if cite.timestamp else ""
    left: Spans = [
        (cite.source, "link"),
        (f"  {one_line(cite.source_title)}", ""),
        (f"  {cite.how}", "dim"),
    ]
    return HeadBlock(f"cite:{number}:{cite.source}", left, [(when, "dim")], link=cite.source)


def _where(chunk: dict[str, object]) -> str:
    lines, turn = chunk["lines"], chunk["turn"]
    if isinstance(lines, list):
        first, last = lines
        return f"  line {first}" if first == last else f"  lines {first}–{last}"
    return f"  turn {turn}, {chunk['role']}" if turn else ""


NONE = "There are no entries yet. {} writes one, where a topic is declared to write it into."
LOOK_SECONDS = 0.08
"""How long one stays on an entry, or on a word of the filter, before it is read."""
PENDING_SECONDS = 3.0
APART = {"filter", "help", "back", "leave", "new", "reload", "app.theme"}
"""Commands that are not about the selected entry."""
AHEAD = 100
"""Rows below the selected one that are there before one comes to them."""


class EntriesScreen(SplitScreen):
    """A table that is read as one goes through it; gives back the reference to be opened."""

    HEADING = "Entries"
    SCOPE = "entries"
    NOTES = (
        "● ready, ◌ waiting to be embedded, ! could not be read or embedded.",
        "Example of a filter: `deploy type:rule,decision is:pending after:2026-05 before:2026-06`. "
        "Words must be in the title or text; after and before bound the day of creation.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("entries", "moving")]
    AUTO_FOCUS = "#entries"
    DEFAULT_CSS = "EntriesScreen #columns { height: 1; padding: 0 1; background: $background; }"

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__(library)
        self.table = EntryTable()
        self.filter = Typed("entry-filter", "filter")
        self.filter.display = True
        self.listing = EntryPager(self, library, clock, self._listed, self._unread)
        self.writer = EntryWriter(self, library, self.show_message, self._wrote)
        self._clock = clock
        self._flags = {"hidden": False, "archived": False}
        self._wanted: EntryFilter = parse_entry_filter("")
        self._detail_lane = LatestOnlyWorker(self)
        self._timer: Timer | None = None
        self._filter_timer: Timer | None = None
        self._to_end = False
        self._types: list[str] = []
        """Types that were seen: a filter by one must not take the others away."""
        self._select: str | None = None

    def compose_list_pane(self) -> list[Widget]:
        """Filter, headings, table."""
        return [self.filter, TextLine(id="columns"), self.table]

    def on_mount(self) -> None:
        """Begin to read, once something is on the screen."""
        self.filter.input.placeholder = "words, type:, is:, topic:, after:, before:"
        self.call_after_refresh(self.action_reload)
        self.set_interval(PENDING_SECONDS, self._watch_pending)

    def _watch_pending(self) -> None:
        """Reload while entries are pending: no message says that one was embedded."""
        listed = self.listing.listed
        if listed is not None and listed.page.by_status.get("pending"):
            self.action_reload()

    def on_resize(self) -> None:
        """Show the columns that fit the new width."""
        super().on_resize()
        self.call_after_refresh(self._say_columns)

    def _say_columns(self) -> None:
        width = self.table.scrollable_content_region.width
        left, right = headings(width)
        # The scroll bar's column, which the table keeps free.
        self.query_one("#columns", TextLine).set_text(left, [*right, ("  ", "")])

    @property
    def offers(self) -> frozenset[str]:
        """Whether there is an address, and something that failed."""
        entry, listed = self.table.entry, self.listing.listed
        found = {
            "address": bool(entry and entry.source_url),
            "errors": bool(listed and listed.page.by_status.get("error")),
        }
        return frozenset(name for name, has in found.items() if has)

    def should_key_wait(self, key: str) -> bool:
        """Whether a key is about the selected entry, and the list or the details are another's."""
        owner, action = self._find_action(key)
        # A letter that is typed is no command's, so it has no owner.
        typed = self.focused is self.filter.input and owner in (None, self.filter.input)
        if typed or action in APART:
            return False
        details = self.is_detail_focused and (
            self._timer is not None or self._detail_lane.has_pending_result
        )
        return details or self._filter_timer is not None or self.listing.lacks(self._wanted)

    # reading the list

    def action_reload(self) -> None:
        """Read everything again."""
        self.listing.read(self._wanted)

    def handle_files_changed(self, event: dict[str, Any]) -> None:
        """Reload when files change."""
        self.action_reload()

    def _listed(self, listed: LoadedEntries) -> None:
        rows = [ListRow(entry.id, [], data=entry) for entry in listed.rows]
        if self._select is not None:
            wanted = next((e.id for e in listed.rows if e.ref == self._select), None)
            self._select = None if wanted else self._select
        else:
            wanted = None
        passes = self.filter.input.value.strip() or any(self._flags.values())
        none = "No entry passes the filter." if passes else NONE.format(self.key_hint("new"))
        self.table.set_rows(rows, [(none, "dim")], wanted)
        if self._to_end and not listed.more:
            self._to_end = False
            self.table.select(listed.rows[-1].id)
        elif self._to_end:
            self.listing.more(EVERYTHING)
        self._say_totals(listed)
        self._look()

    def _unread(self, error: Exception) -> None:
        if self.listing.listed is None:
            self.table.set_rows([], [("The entries cannot be read.", "error")])
        self.show_error(error)

    def _say_totals(self, listed: LoadedEntries) -> None:
        page = listed.page
        total = f"{page.total:,} {'entry' if page.total == 1 else 'entries'}"
        states = [
            f"{page.by_status[name]:,} {name}"
            for name in ENTRY_STATUSES
            if page.by_status.get(name)
        ]
        kinds = sorted(page.by_type.items(), key=lambda pair: (-pair[1], pair[0]))
        flags = [f"with {name}" for name, shown in self._flags.items() if shown]
        left = [(total, "strong"), (f"  {' · '.join([*states, *flags])}", "dim")]
        right = [(one_line(" · ".join(f"{count:,} {kind}" for kind, count in kinds[:6])), "dim")]
        self.show_totals(left, right)
        self._say_place()
        self.show_keys()

    def _say_place(self) -> None:
        listed = self.listing.listed
        place = (
            f"{self.table.index + 1:,} of {listed.page.total:,}" if listed and listed.rows else ""
        )
        self.query_one("#listed").border_subtitle = place

    # the selected one

    @on(RowList.SelectionChanged)
    def _moved(self, event: RowList.SelectionChanged) -> None:
        event.stop()
        self._say_place()
        if self.table.index > len(self.table.rows) - AHEAD:
            self.listing.more()
        self._look()

    def _look(self) -> None:
        """Have the details made for what is selected, once one stays on it."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(LOOK_SECONDS, self._make)

    def _make(self) -> None:
        self._timer = None
        from kbtui.tui.reader.document import Document

        entry = self.table.entry
        self.show_keys()
        if entry is None:
            self._detail_lane.discard_results()
            self.show_document(Document("entry:", "", []))
            return
        self._detail_lane.submit(
            lambda: entry_document(self.library, entry, self._clock()),
            self.show_document,
            self.show_error,
        )

    @on(EntryTable.AtEnd)
    def _at_end(self, event: EntryTable.AtEnd) -> None:
        """Read all there are."""
        event.stop()
        listed = self.listing.listed
        if listed is not None and listed.more:
            self._to_end = True
            self.listing.more(EVERYTHING)

    @on(RowList.RowClicked)
    def _clicked(self, event: RowList.RowClicked) -> None:
        event.stop()
        self.action_enter()

    def action_enter(self) -> None:
        """Go to the details; there unfold, or open the turn."""
        if not self.is_detail_focused:
            if self.table.entry is not None:
                self.focus_detail()
            return
        port = self.reader.viewport
        if not port.document.blocks:
            return
        if link := port.document.blocks[port.cursor.block].link:
            self.dismiss(parse_ref(link))
        elif fold := port.find_fold_at_cursor():
            port.toggle_fold(fold)
            self.reader.update_view()

    def action_read(self) -> None:
        """Open it in the reader."""
        if (entry := self.table.entry) is not None:
            self.dismiss(self._ref(entry))

    def _ref(self, entry: Entry) -> Any:
        # It is in the index: which part of a name with colons is the slug is known.
        return parse_ref(entry.ref, lambda topic, slug: (topic, slug) == (entry.topic, entry.slug))

    def action_copy(self) -> None:
        """Copy its reference."""
        if (entry := self.table.entry) is not None:
            copy_text(self.app, entry.ref)
            self.show_message(f"copied {entry.ref}")

    def action_address(self) -> None:
        """Open the address that it was fetched from; copy it where nothing can open it."""
        entry = self.table.entry
        if entry is None or not entry.source_url:
            self.show_message("it was not fetched from anywhere", "warning")
        elif open_web_address(self.app, entry.source_url):
            self.show_message(f"opened {entry.source_url}")
        else:
            copy_text(self.app, entry.source_url)
            self.show_message(f"nothing here opens it; copied {entry.source_url}", "warning")

    # the filter

    def action_filter(self) -> None:
        """Type a filter."""
        self.focus_list_pane(self.filter.input)

    @on(Input.Changed, "#entry-filter")
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if self._filter_timer is not None:
            self._filter_timer.stop()
        self._filter_timer = self.set_timer(LOOK_SECONDS, self._apply)

    def _apply(self) -> None:
        self._filter_timer = None
        try:
            wanted = parse_entry_filter(
                self.filter.input.value,
                hidden=self._flags["hidden"],
                archived=self._flags["archived"],
            )
        except UsageError as error:
            self.show_error(error)
            return
        self.show_message()
        if wanted != self._wanted:
            self._wanted = wanted
            self.action_reload()

    @on(Input.Submitted, "#entry-filter")
    def _filtered(self, event: Input.Submitted) -> None:
        event.stop()
        self.set_focus(self.table)

    def action_turn(self, name: str) -> None:
        """The next value of a part of the filter, then none."""
        listed, text = self.listing.listed, self.filter.input.value
        values: list[str] = list(ENTRY_STATUSES)
        if name == "type":
            values = self._types = sorted({*self._types, *(listed.page.by_type if listed else ())})
        now = last_filter_value(text, name)
        after: list[str | None] = [*values, None]
        following = after[(values.index(now) + 1) if now in values else 0]
        self.filter.input.value = replace_filter_value(text, name, following)

    def action_flag(self, name: str) -> None:
        """Show or hide hidden subjects or archived conversations."""
        self._flags[name] = not self._flags[name]
        self._apply()

    # writing

    def action_new(self) -> None:
        """Write a new entry."""
        entry = self.table.entry
        self.writer.new(topic=entry.topic if entry else None)

    def action_edit(self) -> None:
        """Edit the selected subject."""
        if (entry := self._own()) is not None:
            self.writer.edit(self._ref(entry))

    def action_remove(self) -> None:
        """Move the selected subject to the trash."""
        if (entry := self._own()) is not None:
            self.writer.remove(self._ref(entry))

    def _own(self) -> Entry | None:
        entry = self.table.entry
        if entry is not None and entry.kind == "subject":
            return entry
        if entry is not None:
            self.show_message("only subjects are files of yours; conversations are JP's", "warning")
        return None

    def _wrote(self, ref: str) -> None:
        self._select = ref
        self.action_reload()

    def action_retry(self) -> None:
        """Have what failed tried again."""
        self.show_message("trying again …", "dim")
        self.worker.submit(self.library.retry, self._retried, self.show_error)

    def _retried(self, done: None) -> None:
        self.show_message("tried again; what still fails stays marked")
        self.action_reload()

    # leaving

    @on(PaneInput.EscapePressed)
    def _left_input(self, event: PaneInput.EscapePressed) -> None:
        event.stop()
        self.action_back()

    def action_back(self) -> None:
        """One step back."""
        if self.focused is self.filter.input or self.is_detail_focused:
            self.focus_list_pane(self.table)
        elif self.filter.input.value:
            self.filter.input.value = ""
        else:
            self.action_leave()


def replace_filter_value(text: str, key: str, value: str | None) -> str:
    """Return a filter text with another value for `key`, or without `key` for None."""
    for part in reversed(parse_query(text, surface="entries").filters):
        if part.key == key:
            text = text[: part.start] + text[part.end :]
    rest = " ".join(text.split())
    if value is None:
        return rest
    quoted = f'"{value}"' if " " in value else value
    return f"{rest} {key}:{quoted}".strip()


def last_filter_value(text: str, key: str) -> str | None:
    """Return the last value of `key` in a filter text, None if it has none."""
    parts = parse_query(text, surface="entries").filters
    values = [part.values[-1] for part in parts if part.key == key]
    return (values[-1] if values else None) or None
