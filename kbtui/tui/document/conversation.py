"""A conversation as a document: turns, messages, and what lies folded between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.text import one_line
from kbtui.tui.clock import moment
from kbtui.tui.document.blocks import (
    Block,
    FactsBlock,
    FoldBlock,
    HeadBlock,
    MarkdownBlock,
    NoteBlock,
    SourceBlock,
)
from kbtui.tui.document.document import Document, characters, counted
from kbtui.tui.document.markdown import link_definitions
from kbtui.tui.document.split import split_markdown, split_source
from kbtui.tui.document.tools import main_argument, readable

if TYPE_CHECKING:
    from datetime import datetime

    from kbtui.conversations.records import Compaction, Conversation, ConversationInfo, Event, Turn
    from kbtui.tui.document.lines import Spans

_INSIDE: Spans = [("  │ ", "rule")]
_USER: Spans = [("▌ ", "user")]


def conversation_document(conversation: Conversation, present: datetime) -> Document:
    """The document of a conversation; `present` is what its dates are relative to."""
    info = conversation.info
    builder = _Builder(conversation, present)
    blocks = builder.build()
    return Document(
        key=info.ref,
        title=one_line(info.name),
        blocks=blocks,
        ref=info.ref,
        badges=badges(info),
        record=conversation,
        turns_total=len(conversation.turns),
    )


def badges(info: ConversationInfo) -> Spans:
    """What is special about a conversation, in words."""
    words: list[tuple[str, str]] = []
    if info.pinned_at:
        words.append(("pinned", "accent"))
    if info.archived:
        words.append(("archived", "dim"))
    if info.presence == "user_local":
        words.append(("only on this machine", "dim"))
    if info.problem:
        words.append(("damaged", "error"))
    return words


class _Builder:
    def __init__(self, conversation: Conversation, present: datetime) -> None:
        self.conversation = conversation
        self.present = present
        self.blocks: list[Block] = []
        self.turn = 0
        self.speaker = ""
        self.after_fold = False
        self.gap = 0
        self.said: datetime | None = None

    def build(self) -> list[Block]:
        self._facts()
        for turn in self.conversation.turns:
            for number, compaction in enumerate(self.conversation.compactions):
                if compaction.first == turn.number:
                    self._compaction(number, compaction)
            self._turn(turn)
        if not self.conversation.turns:
            self.blocks.append(
                NoteBlock("empty", [("Nothing was said in this conversation.", "dim")], above=1)
            )
        return self.blocks

    def _time(self, when: datetime | None) -> str:
        return moment(when, self.present) if when else ""

    def _time_within(self, when: datetime | None) -> str:
        """The time of something within a turn; nothing when it is the minute last said."""
        if when is None:
            return ""
        local = when.astimezone(self.present.tzinfo).replace(second=0, microsecond=0)
        before, self.said = self.said, local
        if local == before:
            return ""
        return f"{local:%H:%M}" if before and before.date() == local.date() else self._time(when)

    def _facts(self) -> None:
        conversation, info = self.conversation, self.conversation.info
        facts: list[tuple[str, Spans]] = [("id", [(info.ref, "")])]
        facts.append(("created", [(self._time(info.created_at), "")]))
        if info.last_event_at:
            facts.append(("last event", [(self._time(info.last_event_at), "")]))
        if conversation.model:
            name = f"{conversation.assistant} · " if conversation.assistant else ""
            facts.append(("assistant", [(one_line(f"{name}{conversation.model}"), "")]))
        turns = counted(len(conversation.turns), "turn")
        events = f", {counted(info.events_count, 'event')}" if info.events_count is not None else ""
        facts.append(
            (
                "holds",
                [(f"{turns}{events}, {characters(info.size)}B", "")],
            )
        )
        stored = {
            "projected": "in the workspace and on this machine",
            "user_local": "on this machine only",
            "external": "in the workspace only",
        }
        facts.append(("stored", [(stored[info.presence], "")]))
        if info.labels:
            labels = ", ".join(
                f"{key}={value}" if value else key for key, value in info.labels.items()
            )
            facts.append(("labels", [(one_line(labels), "")]))
        facts += [("attachment", [(one_line(item), "")]) for item in conversation.attachments]
        self.blocks.append(FactsBlock("facts", facts))
        # The entry's problem is usually one of the parts' too; it is not said twice.
        problems = dict.fromkeys(
            [*conversation.problems, *([info.problem] if info.problem else [])]
        )
        for number, problem in enumerate(problems):
            self.blocks.append(
                NoteBlock(
                    f"problem:{number}",
                    [(f"! {one_line(problem)}", "error")],
                    above=int(number == 0),
                )
            )

    def _compaction(self, number: int, compaction: Compaction) -> None:
        span = (
            f"turns {compaction.first}–{compaction.last}"
            if compaction.last > compaction.first
            else f"turn {compaction.first}"
        )
        what = []
        if compaction.summary is not None:
            what.append("replaced by a summary")
        if compaction.reasoning:
            what.append("reasoning removed")
        if compaction.tool_calls:
            what.append(
                "tool calls removed" if compaction.tool_calls == "omit" else "tool calls emptied"
            )
        left: Spans = [
            ("compacted ", "accent"),
            (f"for the model: {span}, {' and '.join(what) or 'nothing removed'}", "dim"),
        ]
        key = f"compaction:{number}"
        when: Spans = [(self._time(compaction.timestamp), "dim")]
        if compaction.summary is None:
            self.blocks.append(HeadBlock(key, [("≡ ", "accent"), *left], when, above=1))
            return
        self.blocks.append(FoldBlock(key, left, when, kind="compaction", above=1))
        self._markdown(key, compaction.summary, lead=_INSIDE, fold=key)

    def _turn(self, turn: Turn) -> None:
        self.turn = turn.number
        self.speaker, self.after_fold, self.gap = "", False, 0
        model = f"{one_line(turn.model).rsplit('/', 1)[-1]} · " if turn.model else ""
        self.said = None
        self._time_within(turn.started_at)
        self.blocks.append(
            HeadBlock(
                f"turn:{turn.number}",
                [("─ ", "rule"), (f"turn {turn.number} ", "turn")],
                [(f"{model}{self._time(turn.started_at)}", "dim")],
                rule=True,
                above=1,
                turn=turn.number,
            )
        )
        if not turn.events:
            self.blocks.append(
                NoteBlock(f"empty:{turn.number}", [("an empty turn", "dim")], turn=turn.number)
            )
        for event in turn.events:
            if event.kind != "tool_call_response" or event.request is None:
                self._event(event)

    def _event(self, event: Event) -> None:
        key = f"{self.turn}.{event.index}"
        if event.kind == "chat_request":
            self._speaker(key, event.author or "You", "user", event.timestamp, _USER)
            self._markdown(key, event.text, lead=_USER, breaks=True)
        elif event.kind == "message":
            self._speaker(
                key, self.conversation.assistant or "Assistant", "assistant", event.timestamp, []
            )
            self._markdown(key, event.text)
        elif event.kind == "structured":
            self._speaker(
                key, self.conversation.assistant or "Assistant", "assistant", event.timestamp, []
            )
            self._source(key, event.text, language="json", panel=True, lead=[], fold=None)
        elif event.kind == "reasoning":
            first = one_line(event.text[:400]) or "(not shown by the provider)"
            self._fold(
                key,
                "reasoning",
                [("thinking ", "emph"), (first, "dim")],
                [(characters(len(event.text)), "dim")],
            )
            self._markdown(key, event.text, lead=_INSIDE, fold=key)
        elif event.kind == "tool_call_request":
            self._tool(event)
        elif event.kind == "tool_call_response":
            self._orphan(key, event)
        else:
            self._inquiry(key, event)
        if event.problem:
            self._add(NoteBlock(f"{key}:problem", [(f"! {one_line(event.problem)}", "error")]))

    def _add(self, block: Block) -> None:
        block.turn = self.turn
        self.blocks.append(block)

    def _speaker(self, key: str, name: str, role: str, when: datetime | None, lead: Spans) -> None:
        who = f"{role}:{name}"
        # After tool calls the same speaker goes on; a blank line is enough.
        self.gap = int(who == self.speaker)
        self.after_fold = False
        if who != self.speaker:
            time = self._time_within(when)
            self._add(
                HeadBlock(
                    f"{key}:who",
                    [(one_line(name), f"{role} strong")],
                    [(time, "dim")],
                    lead=list(lead),
                    above=1,
                )
            )
            self.speaker = who

    def _fold(
        self, key: str, kind: str, left: Spans, right: Spans, call: int | None = None
    ) -> None:
        above = 0 if self.after_fold else 1
        self._add(FoldBlock(key, left, right, kind=kind, above=above, call=call))
        self.after_fold, self.gap = True, 0

    def _markdown(
        self,
        key: str,
        text: str,
        lead: Spans | None = None,
        fold: str | None = None,
        breaks: bool = False,
    ) -> None:
        links = link_definitions(text)
        for number, piece in enumerate(split_markdown(text)):
            part = f"{key}:{number}"
            block: Block
            if piece.code:
                block = SourceBlock(
                    part, text, piece.start, piece.end, language=piece.language, panel=True
                )
            else:
                block = MarkdownBlock(
                    part, text, piece.start, piece.end, links=links, breaks=breaks
                )
            block.above = int(not piece.continued) if number else self.gap
            block.lead = list(lead or [])
            block.fold = fold
            self._add(block)

    def _source(
        self,
        key: str,
        text: str,
        lead: Spans,
        fold: str | None,
        language: str = "",
        panel: bool = False,
        call: int | None = None,
    ) -> None:
        for number, piece in enumerate(split_source(text)):
            block = SourceBlock(
                f"{key}:{number}", text, piece.start, piece.end, language=language, panel=panel
            )
            block.lead, block.fold, block.call = list(lead), fold, call
            self._add(block)

    def _tool(self, event: Event) -> None:
        key = f"call:{self.turn}.{event.call}" if event.call else f"{self.turn}.{event.index}"
        result = event.result
        failed = bool(result and result.is_error)
        left: Spans = [("✗ ", "error")] if failed else []
        left += [(one_line(event.name or "a tool"), "error" if failed else "tool"), ("  ", "")]
        left.append((main_argument(event.arguments), "dim"))
        if result is None:
            right: Spans = [("no result", "warning")]
        else:
            right = [
                (
                    f"{'error ' if failed else ''}{characters(len(result.text))}",
                    "error" if failed else "dim",
                )
            ]
        self._fold(key, "tool", left, right, event.call)
        if event.arguments:
            self._source(
                f"{key}:arguments", readable(event.arguments), _INSIDE, key, call=event.call
            )
        if result is not None:
            head = HeadBlock(
                f"{key}:result",
                [("error" if failed else "result", "error" if failed else "strong")],
                [(self._time(result.timestamp), "dim")],
                lead=list(_INSIDE),
                fold=key,
                call=event.call,
            )
            self._add(head)
            self._source(f"{key}:text", result.text, _INSIDE, key, call=event.call)
            if result.problem:
                problem: Spans = [(f"! {one_line(result.problem)}", "error")]
                self._add(NoteBlock(f"{key}:problem", problem, fold=key, lead=list(_INSIDE)))

    def _orphan(self, key: str, event: Event) -> None:
        self._fold(
            key,
            "tool",
            [("a result without its call  ", "warning"), (one_line(event.text[:200]), "dim")],
            [(characters(len(event.text)), "dim")],
        )
        self._source(key, event.text, _INSIDE, key)

    def _inquiry(self, key: str, event: Event) -> None:
        asks = event.kind == "inquiry_request"
        left: Spans = [
            ("asks  " if asks else "answer  ", "tool"),
            (one_line(event.text[:400]), "dim"),
        ]
        self._fold(key, "tool", left, [])
        self._source(key, event.text, _INSIDE, key)
