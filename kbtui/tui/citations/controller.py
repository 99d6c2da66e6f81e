"""Keeping the citations pane with what is being read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.refs import conversation_ref, subject_ref
from kbtui.tui.citations.pane import Sidebar
from kbtui.tui.framework.workers import LatestOnlyWorker

if TYPE_CHECKING:
    from textual.timer import Timer

    from kbtui.citations.models import Citation
    from kbtui.conversations.models import Conversation
    from kbtui.library import Library
    from kbtui.refs import Ref
    from kbtui.tui.citations.pane import CitationsPane
    from kbtui.tui.navigation import NavigationTarget
    from kbtui.tui.reader.document import Document
    from kbtui.tui.reader.document_view import DocumentView

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
    def is_asking(self) -> bool:
        """Whether nothing is known yet of one end of what is shown, or it is another turn's."""
        if self._turning is not None:
            return True
        unknown = self._used is None and self._conversation is not None
        return self._target is not None and (unknown or self._why_not_used == WAITING)

    def opened(self, document: Document, place: NavigationTarget) -> None:
        """Show the citations of a document; what is known of the same one stays until asked again."""
        before, known = self._target, self._conversation
        ref, record = place.ref, document.record
        self._target = self._conversation = None
        if ref is not None and record is not None and ref.kind == "conversation":
            self._conversation = record
            self._target = conversation_ref(record.info.id)
        elif ref is not None and record is not None and ref.kind == "subject":
            self._target = subject_ref(record.topic, record.slug)
        if self._target is None or self._target != before:
            self._used_lane.forget()
            self._using_lane.forget()
            self._used, self._using, self._why_not_used = None, [], WAITING
        if self._target is None:
            self._pane.say(NOTHING_TO_CITE)
            return
        if self._conversation is not None and self._conversation is not known:
            self._used_lane.submit(lambda: self._library.cited(record), self._cited, self._no_used)
        self.refresh_using()
        self._show()

    def refresh_using(self) -> None:
        """Ask the index who used what is shown; again, when it has changed."""
        target = self._target
        if target is not None:
            self._using_lane.submit(
                lambda: self._library.turns_citing(target), self._citing, self._no_using
            )

    def moved(self) -> None:
        """Another line is read, perhaps in another turn: shown when one stays in it."""
        if self._turning is not None:
            self._turning.stop()
            self._turning = None
        if self._reader.port.turn != self._turn:
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
        self._turn = self._reader.port.turn
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
        if notes and self._reader.port.number_calls(notes):
            self._reader.paint_again()

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
