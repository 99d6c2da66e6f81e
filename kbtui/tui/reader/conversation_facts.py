"""What there is to know of a conversation besides what was said."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbtui.conversations.formats.jp import name_extras
from kbtui.text import one_line
from kbtui.tui.clock import moment
from kbtui.tui.reader.document import characters, counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from kbtui.conversations.models import Compaction, Conversation
    from kbtui.tui.framework.styled_text import Spans

STORED = {
    "projected": "in the workspace and on this machine",
    "user_local": "on this machine only",
    "external": "in the workspace only",
}
TOOLS_MOST = 12
"""Tools that are named, the most used first."""


def conversation_facts(
    conversation: Conversation, present: datetime, *, brief: bool = False
) -> list[tuple[str, Spans]]:
    """Names and values; `brief` are those that stand above the first turn."""
    info = conversation.info
    facts = [("id", info.ref)]
    facts += [
        (name, moment(when, present))
        for name, when, always in (
            ("created", info.created_at, True),
            ("last event", info.last_event_at, True),
            ("pinned", info.pinned_at, False),
            ("archived", info.archived_at, False),
            ("expires", info.expires_at, False),
        )
        if when and (always or not brief)
    ]
    if conversation.model:
        name = f"{conversation.assistant} · " if conversation.assistant else ""
        facts.append(("assistant", f"{name}{conversation.model}"))
    turns = counted(len(conversation.turns), "turn")
    events = f", {counted(info.events_count, 'event')}" if info.events_count is not None else ""
    size = f"{characters(info.size, ' ')}B"
    facts.append(("holds", f"{turns}{events}, {size}"))
    facts.append(("stored", STORED[info.presence]))
    if extras := name_extras(conversation):
        facts.append(("also holds", ", ".join(extras)))
    if not brief or conversation.problems or info.problem:
        facts.append(("directory", str(info.directory)))
    if info.labels:
        labels = [f"{key}={value}" if value else key for key, value in info.labels.items()]
        facts.append(("labels", ", ".join(labels)))
    facts += [("attachment", item) for item in conversation.attachments]
    if not brief:
        facts += _more(conversation)
        facts += [
            (name, moment(when, present))
            for name, when in (("written", info.updated_at), ("activated", info.last_activated_at))
            if when
        ]
    return [(name, [(one_line(value), "")]) for name, value in facts]


def _more(conversation: Conversation) -> Iterator[tuple[str, str]]:
    """What takes a look at every turn."""
    models = Counter(turn.model for turn in conversation.turns if turn.model)
    if len(models) > 1:
        yield "models", ", ".join(f"{name} {counted(n, 'turn')}" for name, n in models.items())
    tools: Counter[str] = Counter()
    failed = 0
    for turn in conversation.turns:
        for event in turn.events:
            if event.kind == "tool_call_request":
                tools[event.name or "a tool"] += 1
                failed += bool(event.result and event.result.is_error)
    if tools:
        calls = counted(tools.total(), "tool call")
        yield "calls", f"{calls}, {counted(failed, 'error')}" if failed else calls
        named = [f"{name} {number:,}" for name, number in tools.most_common(TOOLS_MOST)]
        more = len(tools) - len(named)
        yield "tools", ", ".join(named) + (f", {more} more" if more > 0 else "")
    for compaction in conversation.compactions:
        yield "compacted", f"{span(compaction.first, compaction.last)}, {done(compaction)}"


def span(first: int, last: int) -> str:
    """Turns as people write them."""
    return f"turns {first}–{last}" if last > first else f"turn {first}"


def done(compaction: Compaction) -> str:
    """What a compaction did, in words."""
    what = []
    if compaction.summary is not None:
        what.append("replaced by a summary")
    if compaction.reasoning:
        what.append("reasoning removed")
    if compaction.tool_calls:
        omitted = compaction.tool_calls == "omit"
        what.append("tool calls removed" if omitted else "tool calls emptied")
    return " and ".join(what) or "nothing removed"
