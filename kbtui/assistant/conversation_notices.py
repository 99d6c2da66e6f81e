"""What the conversation tools have to say beside their results, as values.

Each notice is a class with typed fields, and `word_notice` words it for assistants. The command
line words the same notices in `kbtui/cli/conversation.py`.
"""

from __future__ import annotations

from typing import NamedTuple, assert_never

from kbtui.errors import KbtuiError, NothingFound, UsageError


class MoreConversations(NamedTuple):
    """The list goes on at `offset`, with `number` more."""

    number: int
    offset: int


class OffsetTooLarge(NamedTuple):
    """The list has only `total` conversations."""

    total: int


class MoreMatches(NamedTuple):
    """`number` matches are left out because of the limit."""

    number: int


class AnswerFull(NamedTuple):
    """`number` matches do not fit into the answer; `ids` and `more_ids` others have them."""

    number: int
    ids: tuple[str, ...]
    more_ids: int


class CurrentLeftOut(NamedTuple):
    """A conversation was asked for that is the one that asks."""

    id: str


class NotSearched(NamedTuple):
    """Conversations that could not be searched completely, with the reason; `more` others."""

    problems: tuple[tuple[str, str], ...]
    more: int


class OtherTurns(NamedTuple):
    """Only turns up to `turn` of `total` are given."""

    turn: int
    total: int


class EarlierTurns(NamedTuple):
    """Turns 1 to `last` are left out."""

    last: int


class TurnShortened(NamedTuple):
    """Long texts of a turn are cut, and `left_out` of its `events` are left out."""

    turn: int
    left_out: int
    events: int


class Damaged(NamedTuple):
    """A part of the conversation cannot be read; `more` other problems."""

    problem: str
    more: int


class NoTurns(NamedTuple):
    """The conversation has no turn."""


class Extras(NamedTuple):
    """What the conversation has besides JP's kinds of event."""

    named: tuple[str, ...]


ConversationNotice = (
    MoreConversations
    | OffsetTooLarge
    | MoreMatches
    | AnswerFull
    | CurrentLeftOut
    | NotSearched
    | OtherTurns
    | EarlierTurns
    | TurnShortened
    | Damaged
    | NoTurns
    | Extras
)


class UnknownConversation(NamedTuple):
    """There is no conversation with this id."""

    id: str


class ArchivedOtherwise(NamedTuple):
    """The conversation is archived where a live one is asked for, or the reverse."""

    id: str
    is_archived: bool


class CurrentConversation(NamedTuple):
    """The conversation to read is the one that asks."""

    id: str


class TurnNamedTwice(NamedTuple):
    """The id names a turn, and `argument` (`turn` or `last`) with `value` names others."""

    turn: int
    argument: str
    value: int


class TurnAndLast(NamedTuple):
    """`turn` and `last` are both given."""


class TooLong(NamedTuple):
    """The answer would have `size` characters; the last `fitting` turns fit."""

    id: str
    turns: int
    size: int
    limit: int
    fitting: int


Refusal = (
    UnknownConversation
    | ArchivedOtherwise
    | CurrentConversation
    | TurnNamedTwice
    | TurnAndLast
    | TooLong
)


class RefusedUsage(UsageError):
    """A refusal because of arguments, worded for assistants."""

    def __init__(self, refusal: Refusal, *, where: str | None = None) -> None:
        message, hint = word_refusal(refusal)
        super().__init__(message, where=where, hint=hint)
        self.refusal = refusal


class RefusedMissing(NothingFound):
    """A refusal because something is not there, worded for assistants."""

    def __init__(self, refusal: Refusal, *, where: str | None = None) -> None:
        message, hint = word_refusal(refusal)
        super().__init__(message, where=where, hint=hint)
        self.refusal = refusal


def refusal_of(error: KbtuiError) -> Refusal | None:
    """The refusal behind an error, None where it is an error of another kind."""
    return error.refusal if isinstance(error, RefusedUsage | RefusedMissing) else None


def word_notice(notice: ConversationNotice) -> str:
    """A notice for an assistant, in terms of the tools' arguments."""
    match notice:
        case MoreConversations():
            return f"{notice.number} more: ask with offset={notice.offset}"
        case OffsetTooLarge():
            return f"there are only {notice.total}: ask with a smaller offset"
        case MoreMatches():
            narrower = "a longer pattern, ids or scopes, or a larger limit"
            return f"{count_matches(notice.number)}: ask with {narrower}"
        case AnswerFull():
            return f"{count_matches(notice.number)}: ask with {_word_rest(notice)}"
        case CurrentLeftOut():
            return f"{notice.id} is the current conversation: ask with include_current=true"
        case OtherTurns():
            return f"turn {notice.turn} of {notice.total}: ask with another turn, or with last"
        case EarlierTurns():
            return f"{name_turns(notice)}: ask with turn, or a larger last"
        case TurnShortened():
            return f"{name_shortened(notice)}: ask with include for fewer kinds of event"
        case NotSearched() | Damaged() | NoTurns() | Extras():
            return word_finding(notice)
    assert_never(notice)


def _word_rest(notice: AnswerFull) -> str:
    """How to get the matches that did not fit."""
    narrower = "a longer pattern or scopes"
    if not notice.ids:
        return f"{narrower}, or read it with `conversation_read`"
    names = ", ".join(f'"{one}"' for one in notice.ids)
    more = f" and {notice.more_ids} more" if notice.more_ids else ""
    return f"{narrower}, or go on with ids=[{names}]{more}"


# what reads the same for assistants and for people


def word_finding(notice: NotSearched | Damaged | NoTurns | Extras) -> str:
    """A notice that names no argument."""
    match notice:
        case NotSearched():
            named = "; ".join(f"{one}: {problem}" for one, problem in notice.problems)
            more = f"; and {notice.more} more" if notice.more else ""
            return f"not searched whole: {named}{more}"
        case Damaged():
            more = f" (and {notice.more} more problems)" if notice.more else ""
            return f"damaged: {notice.problem}{more}"
        case NoTurns():
            return "it has no turns yet"
        case Extras():
            return f"it also has {' and '.join(notice.named)}"
    assert_never(notice)


def count_matches(count: int) -> str:
    """How many more matches there are."""
    return f"{count} more {'match' if count == 1 else 'matches'}"


def name_turns(notice: EarlierTurns) -> str:
    """Which turns are left out."""
    return f"turns 1 to {notice.last} are left out"


def name_shortened(notice: TurnShortened) -> str:
    """What was shortened."""
    said = f"turn {notice.turn} is shortened"
    if not notice.left_out:
        return said
    return f"{notice.left_out} of its {notice.events} events are left out in the middle; {said}"


def describe_too_long(refusal: TooLong) -> str:
    """How long the answer would have been."""
    turns = "1 turn" if refusal.turns == 1 else f"{refusal.turns} turns"
    return (
        f"{refusal.id} has {turns}; this answer would have {refusal.size:,} characters, "
        f"and {refusal.limit:,} are allowed"
    )


def word_refusal(refusal: Refusal) -> tuple[str, str]:
    """Message and hint of a refusal for an assistant."""
    match refusal:
        case UnknownConversation():
            return f"there is no conversation {refusal.id}", "`conversation_list` gives the ids"
        case ArchivedOtherwise():
            state = "archived" if refusal.is_archived else "not archived"
            hint = f"ask with archived={str(refusal.is_archived).lower()}"
            return f"{refusal.id} is {state}", hint
        case CurrentConversation():
            return (
                f"{refusal.id} is the current conversation, which you can see already",
                "ask with include_current=true",
            )
        case TurnNamedTwice():
            other = f"{refusal.argument}={refusal.value}"
            message = f"the id names turn {refusal.turn} already, and {other} names others"
            return message, "give one of them"
        case TurnAndLast():
            return "turn and last exclude each other", "give one of them"
        case TooLong():
            if refusal.fitting:
                one = f"ask for one turn with turn=1 to turn={refusal.turns}"
                hint = f"last={refusal.fitting} fits; or {one}"
            else:
                hint = f"not even the last turn fits whole; turn={refusal.turns} gives it shortened"
            return describe_too_long(refusal), f"{hint}; fewer kinds of event with include"
    assert_never(refusal)
