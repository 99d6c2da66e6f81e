"""What `conversation_read` answers, and what it refuses (D39; decisions B3 and B4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtui.conversations import arguments
from kbtui.conversations.fitting import fit_turn
from kbtui.conversations.ids import parse_conversation_ref
from kbtui.conversations.listing import find_conversation
from kbtui.conversations.matching import cut_line
from kbtui.conversations.reading import load_conversation, name_extras
from kbtui.conversations.times import show_time
from kbtui.conversations.xml import read_envelope, turn_xml
from kbtui.errors import NothingFound, UsageError
from kbtui.secrets import mask, mask_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtui.conversations.records import Conversation, Event, Turn
    from kbtui.refs import Ref
    from kbtui.workspace import Workspace

READ_LIMIT = 60_000
"""Characters of the XML envelope that an assistant is given at most (decisions B4)."""
_HINT_ROOM = 400

INCLUDED: dict[str, tuple[str, ...]] = {
    "chat": ("chat_request", "message", "structured"),
    "reasoning": ("reasoning",),
    "tool_calls": ("tool_call_request", "inquiry_request"),
    "tool_results": ("tool_call_response", "inquiry_response"),
}
"""The kinds of event behind each word of `include`; by default all, those not known among them."""

_ALL_KINDS = frozenset(kind for kinds in INCLUDED.values() for kind in kinds)


def read_answer(
    workspace: Workspace,
    *,
    id: str | int,  # noqa: A002
    turn: int | None = None,
    last: int | None = None,
    include: Sequence[str] | None = None,
    include_current: bool = False,
    current: int | None = None,
    max_chars: int | None = READ_LIMIT,
    masked: bool = False,
) -> dict[str, Any]:
    """Answer `conversation_read`; `id` may name a turn as well (`jp-c17457886043:3`).

    The size is that of the XML envelope, whatever format is printed. Over
    `max_chars` it refuses, except for a single `turn`, which is cut; None means
    no limit. `masked` replaces secrets. Raises `UsageError` for that and for bad
    arguments, `NothingFound` for a conversation or turn that does not exist.
    """
    name = str(id) if isinstance(id, int) else arguments.text("id", id)
    ref = parse_conversation_ref(name, workspace.id)
    turn = named_turn(ref, turn, last)
    kinds = included_kinds(arguments.texts("include", include))
    limit = arguments.optional_whole("max_chars", max_chars, 1000)
    number = ref.conversation
    assert number is not None
    if number == current and not arguments.flag("include_current", include_current):
        raise UsageError(
            f"jp-c{number} is the current conversation, which you can see already",
            hint="ask with include_current=true",
        )
    conversation = load_conversation(find_conversation(workspace, number))
    chosen = choose_turns(conversation, turn, last)
    return _answer(conversation, chosen, kinds, limit, single=turn is not None, masked=masked)


def named_turn(ref: Ref, turn: int | None, last: int | None) -> int | None:
    """The turn that an id with a turn and the arguments name together; raises `UsageError`."""
    if ref.turn is None:
        return turn
    if last is not None or (turn is not None and turn != ref.turn):
        other = f"turn={turn}" if last is None else f"last={last}"
        raise UsageError(
            f"the id names turn {ref.turn} already, and {other} names others",
            hint="give one of them",
        )
    return ref.turn


def included_kinds(include: list[str] | None) -> frozenset[str]:
    """The kinds of event that words of `include` name, by default all. Raises `UsageError`."""
    words = INCLUDED if include is None else include
    kinds = {
        kind
        for word in words
        for kind in INCLUDED[arguments.one_of("include", word, tuple(INCLUDED))]
    }
    # Events of unknown kinds come unless something is left out: they may be of any kind.
    return frozenset({*kinds, "unknown"} if kinds.issuperset(_ALL_KINDS) else kinds)


def choose_turns(conversation: Conversation, turn: int | None, last: int | None) -> list[Turn]:
    """One turn, the last ones, or all; raises `UsageError` for both, `NothingFound`."""
    if turn is not None and last is not None:
        raise UsageError("turn and last exclude each other", hint="give one of them")
    turn = arguments.optional_whole("turn", turn, 1)
    last = arguments.optional_whole("last", last, 1)
    if turn is None:
        return conversation.turns if last is None else conversation.turns[-last:]
    found = conversation.turn(turn)
    if found is None:
        have = len(conversation.turns)
        raise NothingFound(
            f"{conversation.info.ref} has no turn {turn}",
            hint=f"its turns are 1 to {have}" if have else "it has no turns",
        )
    return [found]


def _answer(
    conversation: Conversation,
    chosen: list[Turn],
    kinds: frozenset[str],
    limit: int | None,
    *,
    single: bool,
    masked: bool,
) -> dict[str, Any]:
    total = len(conversation.turns)
    title, turns = conversation.info.title, [turn_value(turn, kinds) for turn in chosen]
    if masked:
        title, turns = mask_values(title), mask_values(turns)
    answer: dict[str, Any] = {
        "id": conversation.info.ref,
        "title": cut_line(title) if title and limit is not None else title,
        "turns_total": total,
        "count": len(chosen),
        "omitted": total - len(chosen),
        "hint": None,
        "turns": turns,
    }
    hints = [_rest(chosen, total)] if answer["omitted"] else []
    hints += [mask(hint) if masked else hint for hint in _remarks(conversation)]
    answer["hint"] = "; ".join(hints)[:_HINT_ROOM] or None
    if limit is None:
        return answer
    shown = [turn_xml(turn) for turn in turns]
    size = len(read_envelope(answer, shown))
    if size > limit:
        room = limit - len(read_envelope({**answer, "hint": None}, [])) - _HINT_ROOM
        if not single:
            raise _refusal(answer, [len(turn) + 1 for turn in shown], size, room, limit)
        answer["turns"], said = fit_turn(turns[0], max(0, room))
        answer["hint"] = "; ".join([said, *hints])[:_HINT_ROOM]
    return answer


def _rest(chosen: list[Turn], total: int) -> str:
    first, final = chosen[0].number, chosen[-1].number
    if final < total:
        return f"turn {first} of {total}: ask with another turn, or with last"
    return f"turns 1 to {first - 1} are left out: ask with turn, or a larger last"


def _remarks(conversation: Conversation) -> list[str]:
    """What is wrong with the conversation, and what it has besides JP's kinds of event."""
    remarks = []
    if problems := conversation.problems:
        more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
        remarks.append(f"damaged: {problems[0]}{more}")
    elif not conversation.turns:
        remarks.append("it has no turns yet")
    if extras := name_extras(conversation):
        remarks.append(f"it also has {' and '.join(extras)}")
    return remarks


def _refusal(
    answer: dict[str, Any], sizes: list[int], size: int, room: int, limit: int
) -> UsageError:
    """Says how many turns there are, and which `last` would fit (decisions B4)."""
    fitting = used = 0
    for one in reversed(sizes):
        used += one
        if used > room:
            break
        fitting += 1
    total = answer["turns_total"]
    if fitting:
        hint = f"last={fitting} fits; or ask for one turn with turn=1 to turn={total}"
    else:
        hint = f"not even the last turn fits whole; turn={total} gives it shortened"
    turns = "1 turn" if total == 1 else f"{total} turns"
    return UsageError(
        f"{answer['id']} has {turns}; this answer would have {size:,} characters, "
        f"and {limit:,} are allowed",
        hint=f"{hint}; fewer kinds of event with include",
    )


def turn_value(turn: Turn, kinds: frozenset[str]) -> dict[str, Any]:
    """A turn as plain values, with the events of these kinds."""
    events = [event_value(event) for event in turn.events if event.kind in kinds]
    return {"turn": turn.number, "events": events}


def event_value(event: Event) -> dict[str, Any]:
    """An event as plain values; which keys it has depends on its kind."""
    value: dict[str, Any] = {
        "event_kind": event.kind,
        "timestamp": show_time(event.timestamp),
    }
    if event.author is not None:
        value["author"] = event.author
    if event.name is not None:
        value["name"] = event.name
    if event.call is not None:
        value["call"] = event.call
    if event.kind == "tool_call_response":
        value["is_error"] = event.is_error
    if event.kind == "tool_call_request":
        value["arguments"] = event.arguments or {}
    if event.problem is not None:
        value["problem"] = event.problem
    value["content"] = event.text or None if event.kind == "tool_call_request" else event.text
    return value
