"""The citations pane: the entries that a turn used, and the turns that used the open document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual import on
from textual.containers import Vertical
from textual.message import Message

from kbtui.dates import format_time_or_date
from kbtui.errors import UsageError
from kbtui.refs import make_conversation_ref, make_subject_ref, parse_ref
from kbtui.text import one_line
from kbtui.tui.commands import make_scope_bindings
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import wrap_spans
from kbtui.tui.framework.styled_widget import BorderOnlyPane
from kbtui.tui.navigation_target import NavigationTarget, make_navigation_target

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.timer import Timer

    from kbtui.citations.models import Citation
    from kbtui.conversations.models import Conversation
    from kbtui.dates import Clock
    from kbtui.library import Library
    from kbtui.refs import Ref
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.document import Document
    from kbtui.tui.reader.document_view import DocumentView


USE_NAMES = {
    "learn": "learned",
    "search": "found",
    "file": "file",
    "read": "read",
    "grep": "found",
}


class CitationsPaneContent(NamedTuple):
    """The content of the pane: `used` are citations in turn `turn`, `using` those of the document.

    If a list is None, its section is omitted. `why_not_using` is shown if `used` is empty,
    `why_not_used` if `using` is empty, and `reason` if both sections are omitted. `ref` is the
    reference of the open document, with the turn in a conversation.
    """

    used: list[Citation] | None = None
    why_not_using: str = ""
    turn: int = 0
    using: list[Citation] | None = None
    why_not_used: str = ""
    reason: str = ""
    ref: str = ""


class CitationsPane(BorderOnlyPane, Vertical):
    """A list of citations in both directions; posts `OpenRequested` when the user opens one."""

    BINDINGS: ClassVar[list[BindingType]] = [*make_scope_bindings("citations")]

    class OpenRequested(Message):
        """The user opened a citation."""

        def __init__(self, place: NavigationTarget) -> None:
            super().__init__()
            self.place = place

    class CopyRequested(Message):
        """The user asks to copy a text; the status line calls it `name`."""

        def __init__(self, text: str, name: str) -> None:
            super().__init__()
            self.text, self.name = text, name

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="citations", classes="pane")
        self.border_title = "Citations"
        self.list = RowList("citations-list")
        self._content = CitationsPaneContent()
        self._clock = clock

    def compose(self) -> ComposeResult:
        """Yield the list."""
        yield self.list

    def show_text(self, text: str) -> None:
        """Show a text in place of citations."""
        self._content = CitationsPaneContent(reason=text)
        self._update_citation_rows()

    def show_citations(self, sidebar: CitationsPaneContent) -> None:
        """Show citations."""
        self._content = sidebar
        self._update_citation_rows()

    def on_resize(self) -> None:
        """Rebuild the rows for the new width."""
        self._update_citation_rows()

    def _update_citation_rows(self) -> None:
        shown = self._content
        rows: list[ListRow] = []
        if shown.used is not None:
            rows.append(_make_citations_heading("used", f"USED IN TURN {shown.turn}"))
            rows += [
                self._make_cited_passage_row(number, cite)
                for number, cite in enumerate(shown.used, 1)
            ]
            if not shown.used:
                rows += self._make_explanation_rows("used", shown.why_not_using)
        if shown.using is not None:
            if rows:
                rows.append(ListRow("blank", [], selectable=False))
            turns: dict[str, list[Citation]] = {}
            for cite in shown.using:
                turns.setdefault(cite.source, []).append(cite)
            rows.append(_make_citations_heading("using", "USED BY", str(len(turns) or "")))
            rows += [
                self._make_citing_turn_row(number, cites)
                for number, cites in enumerate(turns.values())
            ]
            if not shown.using:
                rows += self._make_explanation_rows("using", shown.why_not_used)
        self.list.set_rows(rows, [(shown.reason, "dim")])

    def _make_explanation_rows(self, key: str, text: str) -> list[ListRow]:
        width = max(12, self.list.scrollable_content_region.width - 2)
        lines = wrap_spans([(text, "dim")], width)
        return [
            ListRow(f"note:{key}:{n}", line.spans, selectable=False) for n, line in enumerate(lines)
        ]

    def _make_cited_passage_row(self, number: int, cite: Citation) -> ListRow:
        # A file that is not a subject cannot be opened by itself, so open the tool call that read it.
        place = _get_citation_target(cite)
        if cite.kind == "file" or (place is None and not cite.gone):
            place = make_navigation_target(
                make_conversation_ref(cite.conversation, cite.turn, cite.call)
            )
        if place is not None and cite.quote:
            # Find the passage by its text, because its chunk may have been deleted from the index.
            place = place._replace(text=cite.quote, words=_find_quoted_phrase(cite.quote))
        name: Spans = [(one_line(cite.title or cite.target), "dim struck" if cite.gone else "")]
        how = USE_NAMES.get(cite.how, cite.how)
        below: Spans = [("    ", "")]
        if cite.gone:
            below.append(("gone  ", "warning"))
        below.append((how, "dim"))
        if cite.title and cite.title != cite.target:
            below.append((f" · {one_line(cite.target)}", "dim"))
        key = f"used:{cite.target}:{cite.how}:{cite.call}:{cite.chunk}"
        return ListRow(key, [(f"[{number}] ", "note"), *name], below=[below], data=place)

    def _make_citing_turn_row(self, number: int, cites: list[Citation]) -> ListRow:
        """Return the row of a turn that used the open document, possibly in several ways."""
        cite = cites[0]
        ref = parse_ref(cite.source)
        when = format_time_or_date(cite.timestamp, self._clock()) if cite.timestamp else ""
        how = ", ".join(dict.fromkeys(USE_NAMES.get(one.how, one.how) for one in cites))
        # Show the date on the second line, so that the title has the whole width.
        parts = [f"turn {cite.turn}", *([when] if when else []), how]
        below: Spans = [("  ", ""), (" · ".join(parts), "dim")]
        name = one_line(cite.source_title or cite.source)
        return ListRow(
            f"using:{number}:{cite.source}",
            [(name, "")],
            below=[below],
            data=make_navigation_target(ref),
        )

    @on(RowList.RowClicked)
    def _open_clicked_citation(self, event: RowList.RowClicked) -> None:
        event.stop()
        self.action_open()

    def action_copy_as(self, form: str) -> None:
        """Copy the citations in both directions as `markdown` or `json`."""
        from kbtui.citations.export import format_citations_json, format_citations_markdown

        shown = self._content
        used, using = shown.used or [], shown.using or []
        ref = used[0].source if used else shown.ref
        if ref:
            text = (format_citations_json if form == "json" else format_citations_markdown)(
                ref, used, using
            )
            name = f"the citations of {ref} as {'JSON' if form == 'json' else 'Markdown'}"
            self.post_message(self.CopyRequested(text, name))

    def action_open(self) -> None:
        """Open the selected citation."""
        row = self.list.selected_row
        if row and isinstance(row.data, NavigationTarget):
            self.post_message(self.OpenRequested(row.data))


def _find_quoted_phrase(quote: str) -> tuple[str, ...]:
    """Return a phrase of the quote that contains no Markdown, so that the reader can find it in the document."""
    for pattern in (r"\w+(?: \w+){2,7}", r"\w{5,20}"):
        for line in quote.split("\n"):
            # Skip headings, because the same heading often occurs several times.
            if not line.startswith("#") and (found := re.search(pattern, line)):
                return (found[0],)
    return ()


def _get_citation_target(cite: Citation) -> NavigationTarget | None:
    """Return the target of a citation; None if it was deleted or cannot be opened by itself."""
    if cite.gone or cite.kind == "file":
        return None
    try:
        ref = parse_ref(cite.target)
    except UsageError:
        return None
    return None if ref.kind == "chunk" else make_navigation_target(ref)


def _make_citations_heading(key: str, text: str, right: str = "") -> ListRow:
    return ListRow(f"head:{key}", [(text, "section")], [(right, "dim")], selectable=False)


LOOKUP_TOOLS = {
    "learn",
    "knowledge_search",
    "conversation_list",
    "conversation_grep",
    "conversation_read",
}
WAITING = "looking up citations …"
NOTHING_TO_CITE = "Open a conversation or a subject to see its citations."
TURN_DELAY_SECONDS = 0.06
"""How many seconds the cursor stays on a turn before its citations are shown.

While the user holds a key, the turns on the way are skipped.
"""


class CitationsController:
    """Looks up the citations of the open document in threads, and shows them in the pane."""

    def __init__(
        self,
        library: Library,
        pane: CitationsPane,
        reader: DocumentView,
    ) -> None:
        self._library = library
        self._pane = pane
        self._reader = reader
        self._used_worker = LatestOnlyWorker(pane)
        self._using_worker = LatestOnlyWorker(pane)
        self._conversation: Conversation | None = None
        self._used: dict[int, list[Citation]] | None = None
        self._using: list[Citation] = []
        self._why_not_used = ""
        self._target: Ref | None = None
        self._turn: int | None = None
        self._turn_timer: Timer | None = None

    @property
    def is_loading(self) -> bool:
        """Whether the pane does not show the citations of the current turn and document yet."""
        if self._turn_timer is not None:
            return True
        unknown = self._used is None and self._conversation is not None
        return self._target is not None and (unknown or self._why_not_used == WAITING)

    def show_document(self, document: Document, place: NavigationTarget) -> None:
        """Show the citations of a document; after a reload, keep the old list until the new list is loaded."""
        before, known = self._target, self._conversation
        ref, record = place.ref, document.record
        self._target = self._conversation = None
        if ref is not None and record is not None and ref.kind == "conversation":
            self._conversation = record
            self._target = make_conversation_ref(record.info.id)
        elif ref is not None and record is not None and ref.kind == "subject":
            self._target = make_subject_ref(record.topic, record.slug)
        if self._target is None or self._target != before:
            self._used_worker.discard_results()
            self._using_worker.discard_results()
            self._used, self._using, self._why_not_used = None, [], WAITING
        if self._target is None:
            self._pane.show_text(NOTHING_TO_CITE)
            return
        if self._conversation is not None and self._conversation is not known:
            self._used_worker.submit(
                lambda: self._library.extract_citations(record),
                self._receive_used_citations,
                self._report_used_failure,
            )
        self.load_citing_turns()
        self._update_pane()

    def load_citing_turns(self) -> None:
        """Look up in the index which turns used the open document."""
        target = self._target
        if target is not None:
            self._using_worker.submit(
                lambda: self._library.find_citing_turns(target),
                self._receive_citing_turns,
                self._report_citing_failure,
            )

    def show_citations_at_cursor(self) -> None:
        """Show the citations of the turn at the cursor, after a short delay."""
        if self._turn_timer is not None:
            self._turn_timer.stop()
            self._turn_timer = None
        if self._reader.viewport.current_turn != self._turn:
            self._turn_timer = self._pane.set_timer(TURN_DELAY_SECONDS, self._update_pane)

    def _receive_used_citations(self, citations: list[Citation]) -> None:
        self._used = {}
        for cite in citations:
            self._used.setdefault(cite.turn, []).append(cite)
        self._update_pane()

    def _report_used_failure(self, error: Exception) -> None:
        self._used = {}
        self._update_pane()

    def _receive_citing_turns(self, citations: list[Citation]) -> None:
        self._using = citations
        self._why_not_used = "Not used by any turn yet."
        self._update_pane()

    def _report_citing_failure(self, error: Exception) -> None:
        self._why_not_used = f"Cannot look up the turns: {error}"
        self._update_pane()

    def _update_pane(self) -> None:
        self._turn_timer = None
        if self._target is None:
            return
        self._turn = self._reader.viewport.current_turn
        if self._conversation is None:
            self._pane.show_citations(
                CitationsPaneContent(
                    using=self._using, why_not_used=self._why_not_used, ref=str(self._target)
                )
            )
            return
        turn = self._turn or (1 if self._conversation.turns else 0)
        used = (self._used or {}).get(turn, [])
        why = WAITING if self._used is None else self._explain_missing_citations(turn)
        ref = f"{self._target}:{turn}" if turn else str(self._target)
        self._pane.show_citations(
            CitationsPaneContent(used, why, turn, self._using, self._why_not_used, ref=ref)
        )
        notes = {
            f"call:{turn}.{cite.call}": number
            for number, cite in reversed(list(enumerate(used, 1)))
            if cite.call is not None
        }
        if notes and self._reader.viewport.set_citation_numbers(notes):
            self._reader._repaint_changes()

    def _explain_missing_citations(self, turn: int) -> str:
        found = self._conversation.turn(turn) if self._conversation else None
        calls = (
            [event.name for event in found.events if event.kind == "tool_call_request"]
            if found
            else []
        )
        looked_up = sum(name in LOOKUP_TOOLS for name in calls)
        if looked_up:
            return "The lookups in this turn found nothing."
        if calls:
            if len(calls) == 1:
                return "The tool call read no subject, file or conversation."
            return f"None of the {len(calls):,} tool calls read a subject, file or conversation."
        return "No searches or tool calls in this turn."
