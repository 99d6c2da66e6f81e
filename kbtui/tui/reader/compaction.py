"""What a model still sees of each turn after compaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbtui.conversations.models import Compaction, Conversation


@dataclass(frozen=True)
class CompactedTurn:
    """What is left of a turn.

    `summary` stands in its place, and `first` to `last` are the turns that it stands for
    there. Without one `reasoning` says that reasoning was removed, and `calls`,
    `arguments`, `results` which parts of tool calls were.
    """

    summary: Compaction | None = None
    first: int = 0
    last: int = 0
    reasoning: bool = False
    calls: bool = False
    arguments: bool = False
    results: bool = False


def what_is_left(conversation: Conversation) -> dict[int, CompactedTurn]:
    """For each turn that a compaction touches, what is left; the others are not in it.

    Of the compactions of a turn the latest wins, for summary, reasoning and tool calls each
    by itself; of equally late ones the later in the file.
    """
    turns = len(conversation.turns)
    summaries: dict[int, Compaction] = {}
    reasoning: dict[int, Compaction] = {}
    calls: dict[int, Compaction] = {}
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
    left: dict[int, CompactedTurn] = {}
    for turn in sorted({*summaries, *reasoning, *calls}):
        summary = summaries.get(turn)
        if summary is not None:
            first, last = turn, turn
            while summaries.get(first - 1) is summary:
                first -= 1
            while summaries.get(last + 1) is summary:
                last += 1
            left[turn] = CompactedTurn(summary, first, last)
            continue
        policy = (calls[turn].tool_calls if turn in calls else None) or ""
        left[turn] = CompactedTurn(
            reasoning=turn in reasoning,
            calls=policy == "omit",
            arguments=policy in ("strip", "strip-request"),
            results=policy in ("strip", "strip-response"),
        )
    return left
