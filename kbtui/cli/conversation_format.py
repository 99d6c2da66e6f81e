"""Conversations as text for people: lists, matches and turns, with colours or without."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from kbtui.assistant import conversation_notices as notices
from kbtui.conversations.event_kinds import EVENT_KINDS
from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.text import cells, cut, one_line, safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kbtui.assistant.conversation_tools import (
        ConversationEntry,
        ConversationHit,
        ConversationPage,
        EventValue,
        GrepAnswer,
        ReadAnswer,
    )

BOLD, DIM, RED, GREEN, YELLOW, BLUE, CYAN = "1", "2", "31", "32", "33", "34", "36"

_COLOURS = {
    "user": GREEN,
    "assistant": BLUE,
    "reasoning": DIM,
    "structured": BLUE,
    "tool-result": CYAN,
}
"""The colour of a heading by the event's role, where it is not yellow."""


class ConversationWriter:
    """Writes text in one of two ways: for a terminal, or plain, as it is."""

    def __init__(self, *, terminal: bool, colours: bool, width: int, now: datetime) -> None:
        self.terminal = terminal
        self.colours = colours
        self.width = width
        self.now = now

    def paint(self, text: str, *codes: str) -> str:
        """Text in colour, where there are colours."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self.colours and text else text

    def clean(self, text: str) -> str:
        """Text of somebody else: safe on a terminal, untouched in a pipe."""
        return safe(text) if self.terminal else text

    def line(self, text: str) -> str:
        """The same on one line, whatever is in it: a list has a line for each."""
        return one_line(text) if self.terminal else " ".join(text.splitlines())

    # lists

    def listing(self, answer: ConversationPage) -> Iterator[str]:
        """One line a conversation: id, elements, last activity, title, marks.

        On a terminal under a head with JP's names for them.
        """
        entries = answer.conversations
        counts = ["?" if e["events_count"] is None else str(e["events_count"]) for e in entries]
        times = [self._when(e["last_event_at"] or e["created_at"]) for e in entries]
        wide, late = max(map(len, counts), default=0), max(map(len, times), default=0)
        if self.terminal and entries:
            late = max(late, len("Activity"))
            names = f"{'ID':<{len(entries[0]['id'])}}  {'#':>{wide}}  {'Activity':<{late}}  Title"
            yield self.paint(names, DIM)
        for entry, count, time in zip(entries, counts, times, strict=True):
            head = f"{entry['id']}  {count:>{wide}}  {time:<{late}}  "
            marks = " ".join(_marks(entry))
            title = self.line(entry["title"] or "Untitled")
            if self.terminal:
                room = self.width - len(head) - (cells(marks) + 2 if marks else 0)
                title = cut(title, max(20, room))
            line = (
                f"{self.paint(entry['id'], CYAN)}  {count:>{wide}}  "
                f"{self.paint(f'{time:<{late}}', DIM)}  {title}"
            )
            yield f"{line}  {self.paint(self.line(marks), YELLOW)}" if marks else line
            if entry["problem"]:
                yield "    " + self.paint(self.line(entry["problem"]), RED)

    def _when(self, text: str) -> str:
        return ago(datetime.fromisoformat(text), self.now) if self.terminal else text

    def _heading(self, ref: str, title: str | None) -> str:
        title = self.line(title or "Untitled")
        if self.terminal:
            title = cut(title, max(20, self.width - len(ref) - 2))
        return f"{self.paint(ref, CYAN)}  {self.paint(title, BOLD)}"

    # matches

    def hits(
        self,
        answer: GrepAnswer,
        spans: Callable[[str], list[tuple[int, int]]],
        *,
        separate: bool,
    ) -> Iterator[str]:
        """Matches under their conversations on a terminal, else `ID:TURN:SCOPE:m|c:TEXT` as in JP."""
        conversation, previous = None, None
        for hit in answer.hits:
            opens = hit.id != conversation
            if (
                separate
                and previous is not None
                and hit.block != previous
                and not (opens and self.terminal)
            ):
                yield self.paint("--", DIM)
            if self.terminal and opens:
                if conversation is not None:
                    yield ""
                yield self._heading(hit.id, hit.title)
            conversation, previous = hit.id, hit.block
            yield self._hit(hit, spans)

    def _hit(self, hit: ConversationHit, spans: Callable[[str], list[tuple[int, int]]]) -> str:
        line = hit.line
        turn = ".." if line.turn is None else str(line.turn)
        if not self.terminal:
            kind = "m" if line.is_match else "c"
            return f"{hit.id}:{turn}:{line.scope}:{kind}:{line.text}"
        # The colon says how to name it: the id above, and this.
        head = f" {turn if turn == '..' else f':{turn}':>4} {line.scope:<11} "
        text = safe(line.text).expandtabs(4)
        found = spans(text) if line.is_match else []
        if cells(head) + cells(text) > self.width and found:
            # Keep the match in sight.
            start = max(0, found[0][0] - (self.width - cells(head)) // 3)
            if start:
                text = "…" + text[start:]
                found = spans(text)
        text = cut(text, max(20, self.width - cells(head)))
        if line.is_match:
            text = self._highlight(text, [span for span in found if span[1] <= len(text)])
        else:
            text = self.paint(text, DIM)
        return self.paint(head, DIM) + text

    def _highlight(self, text: str, spans: list[tuple[int, int]]) -> str:
        parts, place = [], 0
        for start, end in spans:
            parts += [text[place:start], self.paint(text[start:end], BOLD, RED)]
            place = end
        return "".join([*parts, text[place:]])

    # turns

    def reading(self, answer: ReadAnswer) -> Iterator[str]:
        """A conversation's turns: who, when, and what, each event under its head."""
        yield self._heading(answer.id, answer.title)
        for turn in answer.turns:
            yield ""
            yield self.paint(f"── {answer.id}:{turn['turn']} ──", BOLD)
            for event in turn["events"]:
                yield ""
                yield self._head(event)
                if event.get("problem"):
                    yield self.paint(self.line(event["problem"]), RED)
                if event.get("arguments"):
                    yield self.clean(json.dumps(event["arguments"], indent=2, ensure_ascii=False))
                if event["content"]:
                    text = self.clean(event["content"]).rstrip("\n")
                    yield self.paint(text, DIM) if event["event_kind"] == "reasoning" else text

    def _head(self, event: EventValue) -> str:
        kind = EVENT_KINDS[event["event_kind"]]
        who, colour = kind.label, _COLOURS.get(kind.role, YELLOW)
        if event.get("author"):
            who = self.line(event["author"])
        parts = [who]
        if event.get("name"):
            parts.append(self.line(event["name"]))
        if event.get("call"):
            parts.append(f"#{event['call']}")
        if event.get("is_error"):
            parts.append("error")
            colour = RED
        time = event["timestamp"]
        shown = f"  {self.paint(self._when(time), DIM)}" if time else ""
        return self.paint(" ".join(parts), BOLD, colour) + shown


def _marks(entry: ConversationEntry) -> Iterator[str]:
    if entry["pinned_at"]:
        yield "pinned"
    if entry["archived_at"]:
        yield "archived"
    if entry["parent_id"]:
        yield f"in {entry['parent_id']}"
    for key, value in entry["labels"].items():
        yield f"[{key}={value}]" if value else f"[{key}]"


def ago(time: datetime, now: datetime) -> str:
    """How long ago, in one unit; a date once that says more."""
    seconds = (now - time).total_seconds()
    if seconds < 60:
        return "just now" if seconds > -60 else time.astimezone(UTC).strftime("%Y-%m-%d")
    for unit, size, most in (("minute", 60, 60), ("hour", 3600, 24), ("day", 86400, 30)):
        count = int(seconds // size)
        if count < most:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return time.astimezone(UTC).strftime("%Y-%m-%d")


_OPTIONS = {
    "ids": "--id",
    "scopes": "--scope",
    "include": "--include",
    "max_chars": "--max-chars",
    "pattern": "PATTERN",
    "id": "ID",
    **{name: f"--{name}" for name in ("limit", "offset", "sort", "context", "turn", "last")},
}
"""The option behind each argument of the tools."""


def word_notice(notice: notices.ConversationNotice) -> str:
    """A notice in terms of the command's options."""
    match notice:
        case notices.MoreConversations():
            return f"{notice.number} more: --offset {notice.offset}"
        case notices.OffsetTooLarge():
            return f"there are only {notice.total}: give a smaller --offset"
        case notices.MoreMatches() | notices.AnswerFull():
            more = notices.count_matches(notice.number)
            return f"{more}: a longer pattern, -i or -s narrows, --limit gives more"
        case notices.CurrentLeftOut():
            return f"{notice.id} is the current conversation"
        case notices.OtherTurns():
            others = "--turn N gives another, --last N the last ones"
            return f"turn {notice.turn} of {notice.total}: {others}"
        case notices.EarlierTurns():
            return f"{notices.name_turns(notice)}: --turn N gives one, a larger --last more"
        case notices.TurnShortened():
            return f"{notices.name_shortened(notice)}: --include gives fewer kinds of event"
        case _:
            return notices.word_finding(notice)


def for_people(error: KbtuiError) -> KbtuiError:
    """The same error, of the same kind, in terms of the command's options."""
    refusal = notices.refusal_of(error)
    where = _OPTIONS.get(error.where or "")
    if refusal is None and where is None:
        return error
    message, hint = error.message, error.hint
    match refusal:
        case notices.UnknownConversation():
            hint = "`kbtui conversation ls` lists them"
        case notices.ArchivedOtherwise():
            hint = "add --archived" if refusal.is_archived else "leave out --archived"
        case notices.TurnNamedTwice():
            other = f"--{refusal.argument} {refusal.value}"
            message = f"the id names turn {refusal.turn} already, and {other} names others"
        case notices.TurnAndLast():
            message = "--turn and --last exclude each other"
        case notices.TooLong():
            hint = f"not even the last turn fits whole; --turn {refusal.turns} gives it shortened"
            if refusal.fitting:
                one = f"give one turn with --turn 1 to --turn {refusal.turns}"
                hint = f"--last {refusal.fitting} fits; or {one}"
            hint += "; fewer kinds of event with --include"
        case _:
            pass
    kind = type(error)
    if isinstance(error, notices.RefusedUsage):
        kind = UsageError
    elif isinstance(error, notices.RefusedMissing):
        kind = NothingFound
    return kind(message, where=where, hint=hint)
