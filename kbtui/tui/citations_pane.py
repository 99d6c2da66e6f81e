"""The citations pane: what a turn used, and which turns used what is being read."""

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
from kbtui.tui.commands import bindings
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import wrap_spans
from kbtui.tui.framework.styled_widget import BorderOnlyPane
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.navigation_target import NavigationTarget, make_target

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


WAYS = {
    "learn": "learned",
    "search": "found",
    "file": "read as a file",
    "read": "read",
    "grep": "found",
}


class Sidebar(NamedTuple):
    """What the pane shows: what turn `turn` used, and the turns that used what is read.

    None leaves a part out; an empty list is explained by `why_none` and `why_not_used`.
    `reason` is said when there are neither. `ref` is the reference of what is shown.
    """

    used: list[Citation] | None = None
    why_none: str = ""
    turn: int = 0
    using: list[Citation] | None = None
    why_not_used: str = ""
    reason: str = ""
    ref: str = ""


class CitationsPane(BorderOnlyPane, Vertical):
    """Lists both ends of citations; says which one is to be opened."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("citations")]

    class Open(Message):
        """A place is to be opened."""

        def __init__(self, place: NavigationTarget) -> None:
            super().__init__()
            self.place = place

    class CopyRequested(Message):
        """A text is to be copied; `name` says what it is."""

        def __init__(self, text: str, name: str) -> None:
            super().__init__()
            self.text, self.name = text, name

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="citations", classes="pane")
        self.border_title = "Citations"
        self.list = RowList("citations-list")
        self._shown = Sidebar()
        self._clock = clock

    def compose(self) -> ComposeResult:
        """The list."""
        yield self.list

    def say(self, text: str) -> None:
        """Show nothing but a reason."""
        self._shown = Sidebar(reason=text)
        self._fill()

    def show(self, sidebar: Sidebar) -> None:
        """Show both ends."""
        self._shown = sidebar
        self._fill()

    def on_resize(self) -> None:
        """Wrap reasons for the new width."""
        self._fill()

    def _fill(self) -> None:
        shown = self._shown
        rows: list[ListRow] = []
        if shown.used is not None:
            rows.append(_heading("used", f"TURN {shown.turn} USED"))
            rows += [self._used(number, cite) for number, cite in enumerate(shown.used, 1)]
            if not shown.used:
                rows += self._reason("used", shown.why_none)
        if shown.using is not None:
            if rows:
                rows.append(ListRow("blank", [], selectable=False))
            turns: dict[str, list[Citation]] = {}
            for cite in shown.using:
                turns.setdefault(cite.source, []).append(cite)
            rows.append(_heading("using", "USED BY", str(len(turns) or "")))
            rows += [self._using(number, cites) for number, cites in enumerate(turns.values())]
            if not shown.using:
                rows += self._reason("using", shown.why_not_used)
        self.list.set_rows(rows, [(shown.reason, "dim")])

    def _reason(self, key: str, text: str) -> list[ListRow]:
        width = max(12, self.list.scrollable_content_region.width - 2)
        lines = wrap_spans([(text, "dim")], width)
        return [
            ListRow(f"note:{key}:{n}", line.spans, selectable=False) for n, line in enumerate(lines)
        ]

    def _used(self, number: int, cite: Citation) -> ListRow:
        # A file that is no subject is shown where it was read, in the tool call, gone or not.
        place = _target(cite)
        if cite.kind == "file" or (place is None and not cite.gone):
            place = make_target(make_conversation_ref(cite.conversation, cite.turn, cite.call))
        if place is not None and cite.quote:
            # The passage itself: its chunk may have been cut another way since.
            place = place._replace(text=cite.quote, words=_phrase(cite.quote))
        name: Spans = [(one_line(cite.title or cite.target), "dim struck" if cite.gone else "")]
        how = WAYS.get(cite.how, cite.how)
        below: Spans = [("    ", "")]
        if cite.gone:
            below.append(("gone  ", "warning"))
        below.append((how, "dim"))
        if cite.title and cite.title != cite.target:
            below.append((f" · {one_line(cite.target)}", "dim"))
        key = f"used:{cite.target}:{cite.how}:{cite.call}:{cite.chunk}"
        return ListRow(key, [(f"[{number}] ", "note"), *name], below=[below], data=place)

    def _using(self, number: int, cites: list[Citation]) -> ListRow:
        """A turn that used it, in however many ways."""
        cite = cites[0]
        ref = parse_ref(cite.source)
        when = format_time_or_date(cite.timestamp, self._clock()) if cite.timestamp else ""
        how = ", ".join(dict.fromkeys(WAYS.get(one.how, one.how) for one in cites))
        # The date stands below, so that the title has the whole width.
        parts = [f"turn {cite.turn}", *([when] if when else []), how]
        below: Spans = [("  ", ""), (" · ".join(parts), "dim")]
        name = one_line(cite.source_title or cite.source)
        return ListRow(
            f"using:{number}:{cite.source}", [(name, "")], below=[below], data=make_target(ref)
        )

    @on(RowList.RowClicked)
    def _clicked(self, event: RowList.RowClicked) -> None:
        event.stop()
        self.action_open()

    def action_copy_as(self, form: str) -> None:
        """Copy both ends as Markdown or JSON."""
        from kbtui.citations.export import format_citations_json, format_citations_markdown

        shown = self._shown
        used, using = shown.used or [], shown.using or []
        ref = used[0].source if used else shown.ref
        if ref:
            text = (format_citations_json if form == "json" else format_citations_markdown)(
                ref, used, using
            )
            name = f"the citations of {ref} as {'JSON' if form == 'json' else 'Markdown'}"
            self.post_message(self.CopyRequested(text, name))

    def action_open(self) -> None:
        """Open the selected end."""
        row = self.list.selected
        if row and isinstance(row.data, NavigationTarget):
            self.post_message(self.Open(row.data))


def _phrase(quote: str) -> tuple[str, ...]:
    """The first words of a passage that stand in it as they are drawn, to go to and to mark."""
    for pattern in (r"\w+(?: \w+){2,7}", r"\w{5,20}"):
        for line in quote.split("\n"):
            # Headings are often repeated; what follows them seldom.
            if not line.startswith("#") and (found := re.search(pattern, line)):
                return (found[0],)
    return ()


def _target(cite: Citation) -> NavigationTarget | None:
    """Where a citation leads; None for what is gone, and for what has no place of its own."""
    if cite.gone or cite.kind == "file":
        return None
    try:
        ref = parse_ref(cite.target)
    except UsageError:
        return None
    return None if ref.kind == "chunk" else make_target(ref)


def _heading(key: str, text: str, right: str = "") -> ListRow:
    return ListRow(f"head:{key}", [(text, "section")], [(right, "dim")], selectable=False)


LOOKS_UP = {
    "learn",
    "knowledge_search",
    "conversation_list",
    "conversation_grep",
    "conversation_read",
}
WAITING = "asking the index …"
NOTHING_TO_CITE = "Open a conversation or a subject to see its citations."
TURNING_SECONDS = 0.06
"""From one turn to the next while a key is held."""


class CitationsController:
    """Asks for both ends of the citations of what is shown, in threads."""

    def __init__(
        self,
        library: Library,
        pane: CitationsPane,
        reader: DocumentView,
    ) -> None:
        self._library = library
        self._pane = pane
        self._reader = reader
        self._used_lane = LatestOnlyWorker(pane)
        self._using_lane = LatestOnlyWorker(pane)
        self._conversation: Conversation | None = None
        self._used: dict[int, list[Citation]] | None = None
        self._using: list[Citation] = []
        self._why_not_used = ""
        self._target: Ref | None = None
        self._turn: int | None = None
        self._turning: Timer | None = None

    @property
    def is_loading(self) -> bool:
        """Whether nothing is known yet of one end of what is shown, or it is another turn's."""
        if self._turning is not None:
            return True
        unknown = self._used is None and self._conversation is not None
        return self._target is not None and (unknown or self._why_not_used == WAITING)

    def show_document(self, document: Document, place: NavigationTarget) -> None:
        """Show the citations of a document; what is known of the same one stays until asked again."""
        before, known = self._target, self._conversation
        ref, record = place.ref, document.record
        self._target = self._conversation = None
        if ref is not None and record is not None and ref.kind == "conversation":
            self._conversation = record
            self._target = make_conversation_ref(record.info.id)
        elif ref is not None and record is not None and ref.kind == "subject":
            self._target = make_subject_ref(record.topic, record.slug)
        if self._target is None or self._target != before:
            self._used_lane.discard_results()
            self._using_lane.discard_results()
            self._used, self._using, self._why_not_used = None, [], WAITING
        if self._target is None:
            self._pane.say(NOTHING_TO_CITE)
            return
        if self._conversation is not None and self._conversation is not known:
            self._used_lane.submit(
                lambda: self._library.extract_citations(record), self._cited, self._no_used
            )
        self.load_using()
        self._show()

    def load_using(self) -> None:
        """Ask the index who used what is shown; again, when it has changed."""
        target = self._target
        if target is not None:
            self._using_lane.submit(
                lambda: self._library.find_citing_turns(target), self._citing, self._no_using
            )

    def follow_cursor(self) -> None:
        """Another line is read, perhaps in another turn: shown when one stays in it."""
        if self._turning is not None:
            self._turning.stop()
            self._turning = None
        if self._reader.viewport.current_turn != self._turn:
            self._turning = self._pane.set_timer(TURNING_SECONDS, self._show)

    def _cited(self, citations: list[Citation]) -> None:
        self._used = {}
        for cite in citations:
            self._used.setdefault(cite.turn, []).append(cite)
        self._show()

    def _no_used(self, error: Exception) -> None:
        self._used = {}
        self._show()

    def _citing(self, citations: list[Citation]) -> None:
        self._using = citations
        # Beside what one turn used, "it" could be that.
        what = "it" if self._conversation is None else "this conversation"
        self._why_not_used = f"No turn has used {what}."
        self._show()

    def _no_using(self, error: Exception) -> None:
        self._why_not_used = f"Not known: {error}"
        self._show()

    def _show(self) -> None:
        self._turning = None
        if self._target is None:
            return
        self._turn = self._reader.viewport.current_turn
        if self._conversation is None:
            self._pane.show(
                Sidebar(using=self._using, why_not_used=self._why_not_used, ref=str(self._target))
            )
            return
        turn = self._turn or (1 if self._conversation.turns else 0)
        used = (self._used or {}).get(turn, [])
        why = WAITING if self._used is None else self._why_none(turn)
        ref = f"{self._target}:{turn}" if turn else str(self._target)
        self._pane.show(Sidebar(used, why, turn, self._using, self._why_not_used, ref=ref))
        notes = {
            f"call:{turn}.{cite.call}": number
            for number, cite in reversed(list(enumerate(used, 1)))
            if cite.call is not None
        }
        if notes and self._reader.viewport.set_citation_numbers(notes):
            self._reader._repaint_changes()

    def _why_none(self, turn: int) -> str:
        found = self._conversation.turn(turn) if self._conversation else None
        calls = (
            [event.name for event in found.events if event.kind == "tool_call_request"]
            if found
            else []
        )
        looked_up = sum(name in LOOKS_UP for name in calls)
        if looked_up:
            return "It looked things up, and found nothing."
        if calls:
            many = f"Its {len(calls)} tool calls" if len(calls) > 1 else "Its tool call"
            return f"{many} read no subject, file or conversation."
        return "It searched nothing and called no tools."
