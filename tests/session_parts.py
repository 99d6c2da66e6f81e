"""What tests read of a conversation: its parts, joined, and its token usage."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kbtui.conversations.conversation_data_types import (
    ConversationInfo,
    ConversationSegment,
    ParsingResumePoint,
    TokenUsage,
    Turn,
    sum_token_usage,
)
from kbtui.conversations.formats.conversation_format import ConversationFormat


def join_turns(turns: list[Turn], part: ConversationSegment) -> list[Turn]:
    """Return the turns of earlier parts and those of a part, which may go on with the last of them."""
    new = part.conversation.turns
    if part.start is None:
        return list(new)
    if part.start.open_turn is None:
        return [*turns, *new]
    return [*turns[:-1], replace(new[0], events=[*turns[-1].events, *new[0].events]), *new[1:]]


def select_turns_before(turns: Iterable[Turn], mark: ParsingResumePoint | None) -> list[Turn]:
    """Return the turns and events that are not read again at a mark."""
    if mark is None:
        return []
    open_turn = mark.turns + (mark.open_turn is not None)
    return [
        replace(turn, events=[one for one in turn.events if one.index < mark.elements])
        for turn in turns
        if turn.number <= open_turn
    ]


def read_in_parts(
    reader: ConversationFormat,
    info: ConversationInfo,
    size: int,
    mark: ParsingResumePoint | None = None,
    earlier: Iterable[Turn] = (),
) -> tuple[list[Turn], ParsingResumePoint | None]:
    """Read a conversation from a mark on, in parts; return all turns and the last mark."""
    turns = select_turns_before(earlier, mark)
    while True:
        part = reader.load_conversation_segment(info, mark, size)
        assert part is not None
        turns, mark = join_turns(turns, part), part.resume_point
        if part.is_last:
            return turns, mark
        turns = select_turns_before(turns, mark)


def read_token_usage(reader: ConversationFormat, info: ConversationInfo) -> TokenUsage | None:
    """The tokens of all turns of a conversation; None if no turn has token counts."""
    turns = reader.load_conversation(info).turns
    return sum_token_usage(usage for turn in turns for usage in turn.usage.values())


def describe_turns(turns: list[Turn]) -> list[Any]:
    """Return all that a reader or a search shows of turns."""
    return [
        (
            turn.number,
            turn.model,
            turn.started_at,
            turn.is_rewound,
            turn.usage,
            [
                (
                    event.kind,
                    event.text,
                    event.index,
                    event.name,
                    event.arguments,
                    event.call,
                    event.is_error,
                    event.problem,
                    event.result and event.result.index,
                    event.request and event.request.index,
                )
                for event in turn.events
            ],
        )
        for turn in turns
    ]
