"""Conversations as text for people: lists, matches and turns, with colours or without."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from kbtui.conversations.event_kinds import EVENT_KINDS
from kbtui.text import cells, cut, one_line, safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

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

    def listing(self, answer: dict[str, Any]) -> Iterator[str]:
        """One line a conversation: id, elements, last activity, title, marks.

        On a terminal under a head with JP's names for them.
        """
        entries = answer["conversations"]
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

    def _heading(self, value: dict[str, Any]) -> str:
        title = self.line(value["title"] or "Untitled")
        if self.terminal:
            title = cut(title, max(20, self.width - len(value["id"]) - 2))
        return f"{self.paint(value['id'], CYAN)}  {self.paint(title, BOLD)}"

    # matches

    def hits(
        self,
        answer: dict[str, Any],
        blocks: list[int],
        spans: Callable[[str], list[tuple[int, int]]],
        *,
        separate: bool,
    ) -> Iterator[str]:
        """Matches under their conversations on a terminal, else `ID:TURN:SCOPE:m|c:TEXT` as in JP."""
        conversation, previous = None, None
        for hit, block in zip(answer["hits"], blocks, strict=True):
            opens = hit["id"] != conversation
            if (
                separate
                and previous is not None
                and block != previous
                and not (opens and self.terminal)
            ):
                yield self.paint("--", DIM)
            if self.terminal and opens:
                if conversation is not None:
                    yield ""
                yield self._heading(hit)
            conversation, previous = hit["id"], block
            yield self._hit(hit, spans)

    def _hit(self, hit: dict[str, Any], spans: Callable[[str], list[tuple[int, int]]]) -> str:
        turn = ".." if hit["turn"] is None else str(hit["turn"])
        if not self.terminal:
            kind = "m" if hit["is_match"] else "c"
            return f"{hit['id']}:{turn}:{hit['scope']}:{kind}:{hit['text']}"
        # The colon says how to name it: the id above, and this.
        head = f" {turn if turn == '..' else f':{turn}':>4} {hit['scope']:<11} "
        text = safe(hit["text"]).expandtabs(4)
        found = spans(text) if hit["is_match"] else []
        if cells(head) + cells(text) > self.width and found:
            # Keep the match in sight.
            start = max(0, found[0][0] - (self.width - cells(head)) // 3)
            if start:
                text = "…" + text[start:]
                found = spans(text)
        text = cut(text, max(20, self.width - cells(head)))
        if hit["is_match"]:
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

    def reading(self, answer: dict[str, Any]) -> Iterator[str]:
        """A conversation's turns: who, when, and what, each event under its head."""
        yield self._heading(answer)
        for turn in answer["turns"]:
            yield ""
            yield self.paint(f"── {answer['id']}:{turn['turn']} ──", BOLD)
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

    def _head(self, event: dict[str, Any]) -> str:
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


def _marks(entry: dict[str, Any]) -> Iterator[str]:
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
