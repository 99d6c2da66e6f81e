"""Build the document of a conversation: facts, then turns with messages and folded tool calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbtui.conversations.event_kinds import EVENT_KINDS
from kbtui.dates import format_time
from kbtui.secret_detection import describe_secrets
from kbtui.text import cut_to_width, one_line, strip_before_cutting
from kbtui.tui.reader.document import Document, format_count, format_size, format_text_length
from kbtui.tui.reader.document_blocks import (
    DocumentBlock,
    FactTableBlock,
    FoldHeadingBlock,
    HeadingBlock,
    ParagraphBlock,
    make_markdown_blocks,
    make_source_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from kbtui.conversations.models import (
        Conversation,
        ConversationCompaction,
        ConversationEvent,
        ConversationInfo,
        Turn,
    )
    from kbtui.tui.framework.styled_text import Spans


# The arguments that best describe a call, best first. If a call has none of them, its first argument with
# text describes it.
_MAIN_ARGUMENTS = (
    "path",
    "file",
    "topic",
    "query",
    "pattern",
    "command",
    "cmd",
    "url",
    "id",
    "name",
    "title",
    "package",
)
_MAX_SUMMARY_CHARACTERS = 120


def summarize_tool_arguments(arguments: dict[str, Any] | None) -> str:
    """Return the value of the argument that best describes a tool call, on one line; "" if there is none."""
    if not arguments:
        return ""
    if "topic" in arguments:
        subjects = arguments.get("subjects")
        names = ", ".join(map(str, subjects)) if isinstance(subjects, list) else str(subjects or "")
        return cut_to_width(
            one_line(f"{arguments['topic']}/{names}" if names else str(arguments["topic"])),
            _MAX_SUMMARY_CHARACTERS,
        )
    keys = [name for name in _MAIN_ARGUMENTS if name in arguments] or list(arguments)
    for name in keys:
        if text := _summarize_value(arguments[name]):
            return cut_to_width(text, _MAX_SUMMARY_CHARACTERS)
    return ""


def _summarize_value(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value[: _MAX_SUMMARY_CHARACTERS * 4])
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return ", ".join(filter(None, map(_summarize_value, value[:5])))
    return ""


def format_value(value: Any, indent: int = 0) -> str:
    """Format a JSON value as indented text; keep the line breaks of strings."""
    return "\n".join(_format_value_lines(value, "  " * indent))


def _format_value_lines(value: Any, pad: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _format_list_item(f"{pad}{name}:", item, pad)
    elif isinstance(value, list):
        for item in value:
            yield from _format_list_item(f"{pad}-", item, pad)
    else:
        yield f"{pad}{_format_scalar_value(value)}"


def _format_list_item(head: str, item: Any, pad: str) -> Iterator[str]:
    if isinstance(item, str) and "\n" in item:
        yield head
        yield from (f"{pad}  {line}" for line in item.rstrip("\n").split("\n"))
    elif isinstance(item, dict | list) and item:
        yield head
        yield from _format_value_lines(item, pad + "  ")
    else:
        yield f"{head} {_format_scalar_value(item)}"


def _format_scalar_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class CompactedTurn:
    """The parts of a turn that the model no longer sees after compaction.

    If `summary` is set, it replaces the turns `first` to `last`. Otherwise the flags say whether the turn lacks
    its reasoning, its tool calls, or the arguments or results of its tool calls.
    """

    summary: ConversationCompaction | None = None
    first: int = 0
    last: int = 0
    lacks_reasoning: bool = False
    lacks_calls: bool = False
    lacks_arguments: bool = False
    lacks_results: bool = False


def find_compacted_turns(conversation: Conversation) -> dict[int, CompactedTurn]:
    """Map the number of each compacted turn to what compactions removed from it.

    If several compactions cover a turn, the latest summary applies, and also the latest removal of
    reasoning and the latest change of tool calls. For equal times, the order in the file decides.
    """
    turns = len(conversation.turns)
    summaries: dict[int, ConversationCompaction] = {}
    reasoning: dict[int, ConversationCompaction] = {}
    calls: dict[int, ConversationCompaction] = {}
    ordered = sorted(
        conversation.compactions, key=lambda c: c.timestamp.timestamp() if c.timestamp else 0.0
    )
    for compaction in ordered:
        for turn in range(compaction.first, min(compaction.last, turns) + 1):
            if compaction.summary is not None:
                summaries[turn] = compaction
            if compaction.reasoning:
                reasoning[turn] = compaction
            if compaction.tool_calls:
                calls[turn] = compaction
    compacted: dict[int, CompactedTurn] = {}
    for turn in sorted({*summaries, *reasoning, *calls}):
        summary = summaries.get(turn)
        if summary is not None:
            first, last = turn, turn
            while summaries.get(first - 1) is summary:
                first -= 1
            while summaries.get(last + 1) is summary:
                last += 1
            compacted[turn] = CompactedTurn(summary, first, last)
            continue
        policy = (calls[turn].tool_calls if turn in calls else None) or ""
        compacted[turn] = CompactedTurn(
            lacks_reasoning=turn in reasoning,
            lacks_calls=policy == "omit",
            lacks_arguments=policy in ("strip", "strip-request"),
            lacks_results=policy in ("strip", "strip-response"),
        )
    return compacted


PRESENCE_LABELS = {
    "projected": "workspace and local",
    "user_local": "local only",
    "external": "workspace only",
}
MAX_TOOLS = 12
"""How many of the most used tools the details name."""


def list_conversation_facts(
    conversation: Conversation, present: datetime, *, brief: bool = False
) -> list[tuple[str, Spans]]:
    """Return names and values of facts; with `brief`, only the facts shown above the first turn."""
    info = conversation.info
    facts = [("id", info.ref)]
    facts += [
        (name, format_time(when, present))
        for name, when, always in (
            ("created", info.created_at, True),
            ("activity", info.last_event_at, True),
            ("pinned", info.pinned_at, False),
            ("archived", info.archived_at, False),
            ("expires", info.expires_at, False),
        )
        if when and (always or not brief)
    ]
    if conversation.model:
        name = f"{conversation.assistant} · " if conversation.assistant else ""
        facts.append(("assistant", f"{name}{conversation.model}"))
    turns = format_count(len(conversation.turns), "turn")
    events = (
        f", {format_count(info.events_count, 'event')}" if info.events_count is not None else ""
    )
    size = f"{format_size(info.size, ' ')}B"
    facts.append(("size", f"{turns}{events}, {size}"))
    facts.append(("stored", PRESENCE_LABELS[info.presence]))
    if extras := conversation.describe_unknown_content():
        facts.append(("other files", ", ".join(extras)))
    if not brief or conversation.problems or info.problem:
        facts.append(("directory", str(info.directory)))
    if info.labels:
        labels = [f"{key}={value}" if value else key for key, value in info.labels.items()]
        facts.append(("labels", ", ".join(labels)))
    facts += [("attachment", item) for item in conversation.attachments]
    if not brief:
        facts += _list_turn_facts(conversation)
        facts += [
            (name, format_time(when, present))
            for name, when in (("updated", info.updated_at), ("activated", info.last_activated_at))
            if when
        ]
    return [(name, [(one_line(value), "")]) for name, value in facts]


def _list_turn_facts(conversation: Conversation) -> Iterator[tuple[str, str]]:
    """Yield facts about all turns together: models, tool calls, compactions."""
    models = Counter(turn.model for turn in conversation.turns if turn.model)
    if len(models) > 1:
        yield "models", ", ".join(f"{name} {format_count(n, 'turn')}" for name, n in models.items())
    tools: Counter[str] = Counter()
    failed = 0
    for turn in conversation.turns:
        for event in turn.events:
            if event.kind == "tool_call_request":
                tools[event.name or "a tool"] += 1
                failed += bool(event.result and event.result.is_error)
    if tools:
        calls = format_count(tools.total(), "tool call")
        yield "calls", f"{calls}, {format_count(failed, 'error')}" if failed else calls
        named = [f"{name} {number:,}" for name, number in tools.most_common(MAX_TOOLS)]
        more = len(tools) - len(named)
        yield "tools", ", ".join(named) + (f", {more} more" if more > 0 else "")
    for compaction in conversation.compactions:
        yield (
            "compacted",
            f"{format_turn_range(compaction.first, compaction.last)}, {describe_compaction(compaction)}",
        )


def format_turn_range(first: int, last: int) -> str:
    """Return "turn 3" or "turns 3–5"."""
    return f"turns {first}–{last}" if last > first else f"turn {first}"


def describe_compaction(compaction: ConversationCompaction) -> str:
    """Describe what a compaction removed."""
    what = []
    if compaction.summary is not None:
        what.append("replaced by a summary")
    if compaction.reasoning:
        what.append("reasoning removed")
    if compaction.tool_calls:
        omitted = compaction.tool_calls == "omit"
        what.append("tool calls removed" if omitted else "contents of tool calls removed")
    return " and ".join(what) or "nothing removed"


_FOLD_LEAD: Spans = [("  │ ", "rule")]
_USER_LEAD: Spans = [("▌ ", "user")]


def build_conversation_document(
    conversation: Conversation, present: datetime, *, partial: bool = False
) -> Document:
    """Build the document of a conversation.

    Dates are formatted relative to the time `present`. `partial` says whether the rest of the conversation is
    still loading.
    """
    info = conversation.info
    builder = _ConversationDocumentBuilder(conversation, present)
    blocks = builder.build_blocks()
    return Document(
        key=info.ref,
        title=one_line(info.name),
        blocks=blocks,
        ref=info.ref,
        badges=make_conversation_badges(info),
        record=conversation,
        turns_total=len(conversation.turns),
        landmarks={"request": builder.requests, "error": builder.errors},
        facts=list_conversation_facts(conversation, present),
        is_partial=partial,
    )


def make_conversation_badges(info: ConversationInfo) -> Spans:
    """Return badges for the state of a conversation: pinned, archived, part of another, local only, damaged."""
    words: list[tuple[str, str]] = []
    if info.pinned_at:
        words.append(("pinned", "accent"))
    if info.archived:
        words.append(("archived", "dim"))
    if info.parent is not None:
        words.append((f"part of {info.parent}", "dim"))
    if info.presence == "user_local":
        words.append(("local only", "dim"))
    if info.problem:
        words.append(("damaged", "error"))
    return words


MAX_SCANNED_PER_TEXT, MAX_SCANNED_TOTAL = 20_000, 2_000_000
"""How many characters are searched for secrets: in one text, and in a whole conversation."""


class _ConversationDocumentBuilder:
    """Builds the blocks of a conversation event by event, and collects the positions of requests and errors."""

    def __init__(self, conversation: Conversation, present: datetime) -> None:
        self.conversation = conversation
        self.present = present
        self.blocks: list[DocumentBlock] = []
        self.turn = 0
        self.speaker = ""
        self.after_fold = False
        self.space_above = 0
        self.last_time: datetime | None = None
        self.compacted_turns = find_compacted_turns(conversation)
        self.view = ""
        """The view of the blocks being added (`DocumentBlock.view`)."""
        self.requests: list[int] = []
        self.errors: list[int] = []
        self.unscanned_characters = MAX_SCANNED_TOTAL

    def build_blocks(self) -> list[DocumentBlock]:
        """Build the blocks of the whole conversation."""
        self._add_facts()
        begin: dict[int, list[tuple[int, ConversationCompaction]]] = {}
        for number, compaction in enumerate(self.conversation.compactions):
            begin.setdefault(compaction.first, []).append((number, compaction))
        for event in self.conversation.leading:
            self._add_event(event, None)
        for turn in self.conversation.turns:
            self.turn = turn.number
            for number, compaction in begin.get(turn.number, ()):
                self._add_compaction(number, compaction)
            self._add_turn(turn)
        if not self.conversation.turns:
            said = "This conversation cannot be read." if self._list_problems() else "No messages."
            self.blocks.append(ParagraphBlock("empty", [(said, "dim")], above=1))
        return self.blocks

    def _format_time(self, when: datetime | None) -> str:
        return format_time(when, self.present) if when else ""

    def _format_time_change(self, when: datetime | None) -> str:
        """Format a time within a turn; return "" if the last time shown was in the same minute."""
        if when is None:
            return ""
        local = when.astimezone(self.present.tzinfo).replace(second=0, microsecond=0)
        before, self.last_time = self.last_time, local
        if local == before:
            return ""
        return (
            f"{local:%H:%M}"
            if before and before.date() == local.date()
            else self._format_time(when)
        )

    def _add_facts(self) -> None:
        facts = list_conversation_facts(self.conversation, self.present, brief=True)
        self.blocks.append(FactTableBlock("facts", facts))
        for number, problem in enumerate(self._list_problems()):
            self.blocks.append(
                ParagraphBlock(
                    f"problem:{number}",
                    [(f"! {one_line(problem)}", "error")],
                    above=int(number == 0),
                )
            )

    def _list_problems(self) -> list[str]:
        """Return the problems of the conversation and of its parts, without duplicates."""
        own = self.conversation.info.problem
        return list(dict.fromkeys([*self.conversation.problems, *([own] if own else [])]))

    def _add_compaction(self, number: int, compaction: ConversationCompaction) -> None:
        """Add a note for the user before the first turn that a compaction covers."""
        self.view = "person"
        key = f"compaction:{number}"
        left: Spans = [
            ("compacted ", "accent"),
            (
                f"for the model: {format_turn_range(compaction.first, compaction.last)}, {describe_compaction(compaction)}",
                "dim",
            ),
        ]
        when: Spans = [(self._format_time(compaction.timestamp), "dim")]
        if compaction.summary is None:
            self._add_blocks(HeadingBlock(key, [("≡ ", "accent"), *left], when, above=1))
        else:
            self._add_blocks(FoldHeadingBlock(key, left, when, kind="compaction", above=1))
            self._add_markdown(key, compaction.summary, lead=_FOLD_LEAD, fold=key)
        self.view = ""

    def _add_summary(self, compacted: CompactedTurn) -> None:
        """Add the summary that the model sees in place of the compacted turns."""
        self.view = "model"
        assert compacted.summary is not None
        key = f"summary:{compacted.first}"
        words: Spans = [("≡ ", "accent"), ("summary ", "accent")]
        words.append((f"in place of {format_turn_range(compacted.first, compacted.last)}", "dim"))
        when: Spans = [(self._format_time(compacted.summary.timestamp), "dim")]
        self._add_blocks(HeadingBlock(key, words, when, rule=True, above=1))
        self.space_above = 0
        self._add_markdown(key, compacted.summary.summary or "")
        self.view = ""

    def _add_turn(self, turn: Turn) -> None:
        self.speaker, self.after_fold, self.space_above = "", False, 0
        model = f"{one_line(turn.model).rsplit('/', 1)[-1]} · " if turn.model else ""
        self.last_time = None
        self._format_time_change(turn.started_at)
        compacted = self.compacted_turns.get(turn.number)
        if compacted and compacted.summary and compacted.first == turn.number:
            self._add_summary(compacted)
        self.view = "person" if compacted and compacted.summary else ""
        head: Spans = [("─ ", "rule"), (f"turn {turn.number} ", "turn")]
        when: Spans = [(f"{model}{self._format_time(turn.started_at)}", "dim")]
        self._add_blocks(HeadingBlock(f"turn:{turn.number}", head, when, rule=True, above=1))
        if not turn.events:
            self._add_blocks(ParagraphBlock(f"empty:{turn.number}", [("Empty turn", "dim")]))
        for event in turn.events:
            if event.kind != "tool_call_response" or event.request is None:
                self._add_event(event, compacted)
        self.view = ""

    def _add_event(self, event: ConversationEvent, compacted: CompactedTurn | None) -> None:
        before, key = self.view, f"{self.turn}.{event.index}"
        if compacted and not compacted.summary and _is_removed_by_compaction(event, compacted):
            self.view = "person"
        self._render_event(key, event, compacted)
        if event.problem:
            self._add_blocks(
                ParagraphBlock(f"{key}:problem", [(f"! {one_line(event.problem)}", "error")])
            )
        self._add_secret_warning(key, event.text)
        if event.result is not None:
            self._add_secret_warning(f"{key}:result", event.result.text)
        self.view = before

    def _add_secret_warning(self, key: str, text: str) -> None:
        """Add a warning if the text seems to contain a secret; search only the start of a long text, for speed."""
        text = text[: min(MAX_SCANNED_PER_TEXT, self.unscanned_characters)]
        self.unscanned_characters -= len(text)
        if said := describe_secrets(text):
            self._add_blocks(ParagraphBlock(f"{key}:secret", [(f"! {said}", "warning")]))

    def _render_event(
        self, key: str, event: ConversationEvent, compacted: CompactedTurn | None
    ) -> None:
        render = _RENDERERS.get(event.kind, _ConversationDocumentBuilder._add_folded_text)
        render(self, key, event, compacted or CompactedTurn())

    def _add_request(self, key: str, event: ConversationEvent, _: CompactedTurn) -> None:
        self.requests.append(len(self.blocks))
        self._add_speaker_heading(key, event.author or "You", "user", event.timestamp, _USER_LEAD)
        self._add_markdown(key, event.text, lead=_USER_LEAD, breaks=True)

    def _add_message(self, key: str, event: ConversationEvent, _: CompactedTurn) -> None:
        name = self.conversation.assistant or "Assistant"
        self._add_speaker_heading(key, name, "assistant", event.timestamp, [])
        self._add_markdown(key, event.text)

    def _add_structured_answer(self, key: str, event: ConversationEvent, _: CompactedTurn) -> None:
        name = self.conversation.assistant or "Assistant"
        self._add_speaker_heading(key, name, "assistant", event.timestamp, [])
        self._add_source(key, event.text, language="json", panel=True)

    def _add_reasoning(self, key: str, event: ConversationEvent, _: CompactedTurn) -> None:
        first = one_line(event.text[:400]) or "(not shown by the provider)"
        words: Spans = [("reasoning ", "emph"), (first, "dim")]
        self._add_fold(key, "reasoning", words, [(format_text_length(event.text), "dim")])
        self._add_markdown(key, event.text, lead=_FOLD_LEAD, fold=key)

    def _add_blocks(self, *blocks: DocumentBlock) -> None:
        for block in blocks:
            block.turn, block.view = self.turn or None, self.view
            self.blocks.append(block)

    def _add_speaker_heading(
        self, key: str, name: str, role: str, when: datetime | None, lead: Spans
    ) -> None:
        who = f"{role}:{name}"
        # If the same speaker continues after tool calls, add only a blank line, without the name.
        self.space_above = int(who == self.speaker)
        self.after_fold = False
        if who != self.speaker:
            time = self._format_time_change(when)
            self._add_blocks(
                HeadingBlock(
                    f"{key}:who",
                    [(one_line(name), f"{role} strong")],
                    [(time, "dim")],
                    lead=list(lead),
                    above=1,
                )
            )
            self.speaker = who

    def _add_fold(
        self, key: str, kind: str, left: Spans, right: Spans, call: int | None = None
    ) -> None:
        above = 0 if self.after_fold else 1
        self._add_blocks(FoldHeadingBlock(key, left, right, kind=kind, above=above, call=call))
        self.after_fold, self.space_above = True, 0

    def _add_markdown(self, key: str, text: str, **fields: Any) -> None:
        self._add_blocks(
            *make_markdown_blocks(key, strip_before_cutting(text), above=self.space_above, **fields)
        )

    def _add_source(self, key: str, text: str, **fields: Any) -> None:
        self._add_blocks(*make_source_blocks(key, strip_before_cutting(text), **fields))

    def _add_tool_call(self, _: str, event: ConversationEvent, compacted: CompactedTurn) -> None:
        key = f"call:{self.turn}.{event.call}" if event.call else f"{self.turn}.{event.index}"
        result = event.result
        failed = bool(result and result.is_error)
        words: Spans = [("✗ ", "error")] if failed else []
        words += [(one_line(event.name or "a tool"), "error" if failed else "tool"), ("  ", "")]
        words.append((summarize_tool_arguments(event.arguments), "dim"))
        size = format_text_length(result.text) if result else ""
        right: Spans = [(f"{'error, ' if failed else ''}{size}", "error" if failed else "dim")]
        if failed:
            self.errors.append(len(self.blocks))
        self._add_fold(
            key, "tool", words, right if result else [("no result", "warning")], event.call
        )
        before = self.view
        if event.arguments:
            self.view = "person" if compacted.lacks_arguments else before
            text = format_value(event.arguments)
            self._add_source(f"{key}:arguments", text, lead=_FOLD_LEAD, fold=key, call=event.call)
        if result is not None:
            self.view = "person" if compacted.lacks_results else before
            self._add_tool_result(key, event, result)
            if compacted.lacks_results and not before:
                self.view = "model"
                words = [(f"[compacted] {one_line(event.name or '')}: ", "dim")]
                words.append(("error" if failed else "success", "dim"))
                self._add_blocks(
                    ParagraphBlock(f"{key}:compacted", words, fold=key, lead=list(_FOLD_LEAD))
                )
        self.view = before

    def _add_tool_result(
        self, key: str, event: ConversationEvent, result: ConversationEvent
    ) -> None:
        word = ("error", "error") if result.is_error else ("result", "strong")
        when: Spans = [(self._format_time(result.timestamp), "dim")]
        head = HeadingBlock(f"{key}:result", [word], when, lead=list(_FOLD_LEAD), fold=key)
        head.call = event.call
        self._add_blocks(head)
        self._add_source(f"{key}:text", result.text, lead=_FOLD_LEAD, fold=key, call=event.call)
        if result.problem:
            problem: Spans = [(f"! {one_line(result.problem)}", "error")]
            self._add_blocks(
                ParagraphBlock(f"{key}:problem", problem, fold=key, lead=list(_FOLD_LEAD))
            )

    def _add_result_without_call(
        self, key: str, event: ConversationEvent, _: CompactedTurn
    ) -> None:
        words: Spans = [("result without a call  ", "warning")]
        words.append((one_line(event.text[:200]), "dim"))
        self._add_fold(key, "tool", words, [(format_text_length(event.text), "dim")])
        self._add_source(key, event.text, lead=_FOLD_LEAD, fold=key)

    def _add_unknown_event(self, key: str, event: ConversationEvent, _: CompactedTurn) -> None:
        """Add the JSON of an event of an unknown kind, which a newer version of JP may have written."""
        words: Spans = [("unknown event  ", "warning"), (one_line(event.name or ""), "dim")]
        self._add_fold(key, "tool", words, [(format_text_length(event.text), "dim")])
        self._add_source(key, event.text, lead=_FOLD_LEAD, fold=key, language="json")

    def _add_inquiry(self, key: str, event: ConversationEvent, compacted: CompactedTurn) -> None:
        self._add_folded_text(key, event, compacted, "asks")

    def _add_folded_text(
        self, key: str, event: ConversationEvent, _: CompactedTurn, word: str | None = None
    ) -> None:
        """Add a line that unfolds to the text of the event."""
        word = word or EVENT_KINDS[event.kind].label.lower()
        left: Spans = [(f"{word}  ", "tool"), (one_line(event.text[:400]), "dim")]
        self._add_fold(key, "tool", left, [])
        self._add_source(key, event.text, lead=_FOLD_LEAD, fold=key)


_RENDERERS: dict[
    str, Callable[[_ConversationDocumentBuilder, str, ConversationEvent, CompactedTurn], None]
] = {
    "chat_request": _ConversationDocumentBuilder._add_request,
    "message": _ConversationDocumentBuilder._add_message,
    "structured": _ConversationDocumentBuilder._add_structured_answer,
    "reasoning": _ConversationDocumentBuilder._add_reasoning,
    "tool_call_request": _ConversationDocumentBuilder._add_tool_call,
    "tool_call_response": _ConversationDocumentBuilder._add_result_without_call,
    "inquiry_request": _ConversationDocumentBuilder._add_inquiry,
    "unknown": _ConversationDocumentBuilder._add_unknown_event,
}
"""Event kind -> the method that adds its blocks; `_add_folded_text` adds all other kinds."""


def _is_removed_by_compaction(event: ConversationEvent, compacted: CompactedTurn) -> bool:
    """Return whether compaction removed the whole event."""
    if event.kind == "reasoning":
        return compacted.lacks_reasoning
    return compacted.lacks_calls and event.kind in ("tool_call_request", "tool_call_response")
