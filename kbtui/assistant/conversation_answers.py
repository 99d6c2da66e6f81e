"""The results of the conversation tools: answers, notices and refusals, as text and XML.

Each notice and each refusal is a class with typed fields. `word_notice` and
`format_refusal_for_assistant` turn them into texts for assistants, `kbtui/cli/conversation.py` turns
them into texts for people.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypedDict, assert_never

from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.text import format_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kbtui.conversations.grep import GrepLine

GREP_HINT_LENGTH = 1_500
"""The maximum number of characters of the hint of `conversation_grep`."""
READ_HINT_LENGTH = 400
"""The maximum number of characters of the hint of `conversation_read`."""
# Characters that XML 1.0 does not allow, and control characters that no text needs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SUSPECT = re.compile("[\x00-\x08\x0b-\x1f&<>\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_BACKTICKS = re.compile("`+")


# answers


class ConversationEntry(TypedDict):
    """One conversation of a list. Times are RFC 3339 in UTC."""

    id: str
    title: str | None
    events_count: int | None
    created_at: str
    last_event_at: str | None
    archived_at: str | None
    expires_at: str | None
    updated_at: str | None
    pinned_at: str | None
    parent_id: str | None
    labels: dict[str, str]
    problem: str | None


@dataclass
class ConversationListPage:
    """A page of the list of conversations.

    `total` is the number of matching conversations, `omitted` the number of those after this page.
    """

    total: int
    offset: int
    conversations: list[ConversationEntry]
    omitted: int = 0
    notices: list[ConversationNotice] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of conversations on this page."""
        return len(self.conversations)

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        return {
            "total": self.total,
            "offset": self.offset,
            "count": self.count,
            "omitted": self.omitted,
            "hint": _format_notices_hint(self.notices),
            "conversations": self.conversations,
        }


@dataclass
class ConversationGrepLine:
    """A matching line or a line of context; adjacent lines have the same `block`."""

    id: str
    title: str | None
    line: GrepLine
    block: int

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        return {
            "id": self.id,
            "title": self.title,
            "scope": self.line.scope,
            "turn": self.line.turn,
            "timestamp": self.line.timestamp,
            "text": self.line.text,
            "is_match": self.line.is_match,
        }


@dataclass
class ConversationGrepAnswer:
    """The answer of `conversation_grep`: matching lines, with lines of context.

    `total` is the number of matches; `hits` contains `count` of them, with their context.
    `is_bounded` means that the answer and its hint have a limited size.
    """

    total: int = 0
    count: int = 0
    hits: list[ConversationGrepLine] = field(default_factory=list)
    notices: list[ConversationNotice] = field(default_factory=list)
    is_bounded: bool = False

    @property
    def omitted(self) -> int:
        """The number of matches that are not in `hits`."""
        return self.total - self.count

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        return {
            "total": self.total,
            "count": self.count,
            "omitted": self.omitted,
            "hint": _format_notices_hint(
                self.notices, GREP_HINT_LENGTH if self.is_bounded else None
            ),
            "hits": [hit.as_json() for hit in self.hits],
        }


class AnswerEventJson(TypedDict, total=False):
    """An event as JSON. Every event has `event_kind`, `timestamp` and `content`."""

    event_kind: Required[str]
    timestamp: Required[str | None]
    author: str
    name: str
    call: int
    is_error: bool
    arguments: dict[str, Any]
    problem: str
    content: Required[str | None]


class AnswerTurnJson(TypedDict):
    """A turn as JSON."""

    turn: int
    events: list[AnswerEventJson]


@dataclass
class ConversationReadAnswer:
    """The answer of `conversation_read`: turns of a conversation that has `turns_total` turns."""

    id: str
    title: str | None
    turns_total: int
    turns: list[AnswerTurnJson]
    notices: list[ConversationNotice] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of turns in this answer."""
        return len(self.turns)

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        return {
            "id": self.id,
            "title": self.title,
            "turns_total": self.turns_total,
            "count": self.count,
            "omitted": self.turns_total - self.count,
            "hint": _format_notices_hint(self.notices, READ_HINT_LENGTH),
            "turns": self.turns,
        }


def _format_notices_hint(
    notices: list[ConversationNotice], length: int | None = None
) -> str | None:
    """Return the joined notices for an assistant, cut to `length`; None if there are none."""
    return "; ".join(map(word_notice, notices))[:length] or None


# notices


class MoreConversationsNotice(NamedTuple):
    """`number` more conversations follow, beginning at `offset`."""

    number: int
    offset: int


class OffsetTooLargeNotice(NamedTuple):
    """The list has only `total` conversations."""

    total: int


class MoreMatchesNotice(NamedTuple):
    """`number` matches are omitted because of the limit."""

    number: int


class AnswerFullNotice(NamedTuple):
    """`number` matches do not fit into the answer.

    `ids` names conversations that have such matches, and `more_ids` counts the others.
    """

    number: int
    ids: tuple[str, ...]
    more_ids: int


class CurrentConversationOmittedNotice(NamedTuple):
    """The requested conversation `id` is the current one and was left out."""

    id: str


class ConversationsNotSearchedNotice(NamedTuple):
    """Some conversations could not be searched completely.

    `problems` has pairs of id and reason; `more` is the number of further conversations.
    """

    problems: tuple[tuple[str, str], ...]
    more: int


class OnlyOneTurnReturnedNotice(NamedTuple):
    """Only turn `turn` of `total` is returned."""

    turn: int
    total: int


class EarlierTurnsOmittedNotice(NamedTuple):
    """Turns 1 to `last` are omitted."""

    last: int


class TurnShortenedNotice(NamedTuple):
    """Long texts of the turn are cut, and `left_out` of its `events` events are omitted."""

    turn: int
    left_out: int
    events: int


class DamagedConversationNotice(NamedTuple):
    """A part of the conversation cannot be read; `more` is the number of further problems."""

    problem: str
    more: int


class ConversationWithoutTurnsNotice(NamedTuple):
    """The conversation has no turns."""


class UnknownContentNotice(NamedTuple):
    """The conversation has content of unknown kinds; `named` has a phrase for each kind."""

    named: tuple[str, ...]


ConversationNotice = (
    MoreConversationsNotice
    | OffsetTooLargeNotice
    | MoreMatchesNotice
    | AnswerFullNotice
    | CurrentConversationOmittedNotice
    | ConversationsNotSearchedNotice
    | OnlyOneTurnReturnedNotice
    | EarlierTurnsOmittedNotice
    | TurnShortenedNotice
    | DamagedConversationNotice
    | ConversationWithoutTurnsNotice
    | UnknownContentNotice
)


class UnknownConversationRefusal(NamedTuple):
    """There is no conversation with this id."""

    id: str


class WrongArchiveStateRefusal(NamedTuple):
    """The conversation is archived although a live one was requested, or the reverse."""

    id: str
    is_archived: bool


class CurrentConversationRefusal(NamedTuple):
    """The conversation to read is the current one."""

    id: str


class TurnNamedTwiceRefusal(NamedTuple):
    """The id names `turn`, but `argument` (`turn` or `last`) with `value` names other turns."""

    turn: int
    argument: str
    value: int


class TurnAndLastBothGivenRefusal(NamedTuple):
    """Both `turn` and `last` are given."""


class AnswerTooLongRefusal(NamedTuple):
    """The answer would have `size` characters, over `limit`; only the last `fitting` turns fit."""

    id: str
    turns: int
    size: int
    limit: int
    fitting: int


Refusal = (
    UnknownConversationRefusal
    | WrongArchiveStateRefusal
    | CurrentConversationRefusal
    | TurnNamedTwiceRefusal
    | TurnAndLastBothGivenRefusal
    | AnswerTooLongRefusal
)


class ToolArgumentsRefusedError(UsageError):
    """A refusal because of the arguments, worded for assistants."""

    def __init__(self, refusal: Refusal, *, where: str | None = None) -> None:
        message, hint = format_refusal_for_assistant(refusal)
        super().__init__(message, where=where, hint=hint)
        self.refusal = refusal


class ToolConversationNotFoundError(NothingFound):
    """A refusal because a conversation does not exist, worded for assistants."""

    def __init__(self, refusal: Refusal, *, where: str | None = None) -> None:
        message, hint = format_refusal_for_assistant(refusal)
        super().__init__(message, where=where, hint=hint)
        self.refusal = refusal


def get_refusal_from_error(error: KbtuiError) -> Refusal | None:
    """Return the refusal of an error, None if the error is not a refusal."""
    return (
        error.refusal
        if isinstance(error, ToolArgumentsRefusedError | ToolConversationNotFoundError)
        else None
    )


def word_notice(notice: ConversationNotice) -> str:
    """Return the text of a notice for an assistant, with the arguments to use."""
    match notice:
        case MoreConversationsNotice():
            return f"{notice.number} more: use offset={notice.offset}"
        case OffsetTooLargeNotice():
            return f"there are only {notice.total} conversations: use a smaller offset"
        case MoreMatchesNotice():
            narrower = "a longer pattern, ids or scopes, or a larger limit"
            return f"{describe_match_count(notice.number)}: use {narrower}"
        case AnswerFullNotice():
            return f"{describe_match_count(notice.number)}: use {_format_hint_for_more_matches(notice)}"
        case CurrentConversationOmittedNotice():
            return f"{notice.id} is the current conversation: use include_current=true"
        case OnlyOneTurnReturnedNotice():
            return f"turn {notice.turn} of {notice.total}: pass another `turn`, or use `last`"
        case EarlierTurnsOmittedNotice():
            return f"{describe_earlier_turns(notice)}: use `turn`, or a larger `last`"
        case TurnShortenedNotice():
            return f"{describe_shortened_turn(notice)}: name only the kinds of event that you need in `include`"
        case (
            ConversationsNotSearchedNotice()
            | DamagedConversationNotice()
            | ConversationWithoutTurnsNotice()
            | UnknownContentNotice()
        ):
            return format_notice_without_arguments(notice)
    assert_never(notice)


def _format_hint_for_more_matches(notice: AnswerFullNotice) -> str:
    """Describe how to get the matches that did not fit into the answer."""
    narrower = "a longer pattern or scopes"
    if not notice.ids:
        return f"{narrower}, or read the conversation with `conversation_read`"
    names = ", ".join(f'"{one}"' for one in notice.ids)
    more = f" and {notice.more_ids} more" if notice.more_ids else ""
    return f"{narrower}, or continue with ids=[{names}]{more}"


# words for assistants and people alike


def format_notice_without_arguments(
    notice: ConversationsNotSearchedNotice
    | DamagedConversationNotice
    | ConversationWithoutTurnsNotice
    | UnknownContentNotice,
) -> str:
    """Return the text of a notice whose wording is the same for assistants and people."""
    match notice:
        case ConversationsNotSearchedNotice():
            named = "; ".join(f"{one}: {problem}" for one, problem in notice.problems)
            more = f"; and {notice.more} more" if notice.more else ""
            return f"not searched completely: {named}{more}"
        case DamagedConversationNotice():
            more = f" (and {notice.more} more problems)" if notice.more else ""
            return f"damaged: {notice.problem}{more}"
        case ConversationWithoutTurnsNotice():
            return "the conversation has no turns yet"
        case UnknownContentNotice():
            return f"the conversation also has {' and '.join(notice.named)}"
    assert_never(notice)


def describe_match_count(count: int) -> str:
    """Format the number of further matches, such as `3 more matches`."""
    return f"{count} more {'match' if count == 1 else 'matches'}"


def describe_earlier_turns(notice: EarlierTurnsOmittedNotice) -> str:
    """Describe which turns are omitted."""
    return f"turns 1 to {notice.last} are omitted"


def describe_shortened_turn(notice: TurnShortenedNotice) -> str:
    """Describe that a turn was shortened, and how many of its events are omitted."""
    text = f"turn {notice.turn} is shortened"
    if not notice.left_out:
        return text
    return f"{text}: {notice.left_out} of its {notice.events} events in the middle are omitted"


def describe_answer_too_long(refusal: AnswerTooLongRefusal) -> str:
    """Describe how long the answer would be, and what the limit is."""
    turns = "1 turn" if refusal.turns == 1 else f"{refusal.turns} turns"
    return (
        f"{refusal.id} has {turns}; this answer would have {refusal.size:,} characters; "
        f"the limit is {refusal.limit:,}"
    )


def format_refusal_for_assistant(refusal: Refusal) -> tuple[str, str]:
    """Return message and hint of a refusal for an assistant."""
    match refusal:
        case UnknownConversationRefusal():
            return f"there is no conversation {refusal.id}", "`conversation_list` gives the ids"
        case WrongArchiveStateRefusal():
            state = "archived" if refusal.is_archived else "not archived"
            hint = f"use archived={str(refusal.is_archived).lower()}"
            return f"{refusal.id} is {state}", hint
        case CurrentConversationRefusal():
            return (
                f"{refusal.id} is the current conversation, which you can already see",
                "use include_current=true",
            )
        case TurnNamedTwiceRefusal():
            other = f"{refusal.argument}={refusal.value}"
            message = f"the id selects turn {refusal.turn}, and {other} selects other turns"
            return message, "use only one of them"
        case TurnAndLastBothGivenRefusal():
            return "`turn` and `last` cannot be combined", "use only one of them"
        case AnswerTooLongRefusal():
            if refusal.fitting:
                one = f"ask for a single turn: `turn` is a number from 1 to {refusal.turns}"
                hint = f"last={refusal.fitting} fits; or {one}"
            else:
                hint = f"the last turn alone is too long; turn={refusal.turns} gives it shortened"
            hint += "; or name only the kinds of event that you need in `include`"
            return describe_answer_too_long(refusal), hint
    assert_never(refusal)


# XML


def format_xml(kind: str, answer: dict[str, Any]) -> str:
    """Format an answer of `list`, `grep` or `read` as XML, without a final newline.

    Each field is an element; null fields are omitted. Indentation is two spaces. Text keeps its
    line breaks. Markup characters are escaped and control characters removed, so that no content
    can close an element.
    """
    if kind == "list":
        return _format_items_xml("conversation_list", answer, "conversations", format_entry_xml)
    if kind == "grep":
        return _format_items_xml("conversation_grep", answer, "hits", format_hit_xml)
    return format_read_xml(answer, [format_turn_xml(turn) for turn in answer["turns"]])


def _format_items_xml(
    tag: str, answer: dict[str, Any], name: str, format_item: Callable[[Any], str]
) -> str:
    lines = [f"<{tag}>"]
    for key, value in answer.items():
        if key != name:
            lines += _make_xml_field_lines(key, value, 2)
    items = [format_item(item) for item in answer[name]]
    lines += [f"  <{name}>", *items, f"  </{name}>"] if items else [f"  <{name}></{name}>"]
    return "\n".join([*lines, f"</{tag}>"])


def format_read_xml(answer: dict[str, Any], turns: list[str]) -> str:
    """Format an answer of `conversation_read` whose turns are already formatted as XML."""
    return _format_items_xml("conversation_read", {**answer, "turns": turns}, "turns", str)


def format_entry_xml(entry: Mapping[str, Any]) -> str:
    """Format one conversation of a list as indented XML."""
    lines = ["    <conversation>"]
    for name, value in entry.items():
        if name != "labels":
            lines += _make_xml_field_lines(name, value, 6)
        elif entry["labels"]:
            lines.append("      <labels>")
            for key, text in entry["labels"].items():
                lines += _make_xml_field_lines("label", f"{key}={text}" if text else key, 8)
            lines.append("      </labels>")
    return "\n".join([*lines, "    </conversation>"])


def format_hit_xml(hit: dict[str, Any]) -> str:
    """Format one hit as indented XML."""
    lines = ["    <hit>"]
    for name, value in hit.items():
        lines += _make_xml_field_lines(name, value, 6)
    return "\n".join([*lines, "    </hit>"])


def format_turn_xml(turn: Mapping[str, Any]) -> str:
    """Format one turn as indented XML."""
    lines = ["    <turn>", *_make_xml_field_lines("turn", turn["turn"], 6)]
    events = turn["events"]
    if not events:
        return "\n".join([*lines, "      <events></events>", "    </turn>"])
    lines.append("      <events>")
    lines += [format_event_xml(event) for event in events]
    return "\n".join([*lines, "      </events>", "    </turn>"])


def format_event_xml(event: Mapping[str, Any]) -> str:
    """Format one event as indented XML."""
    lines = ["        <event>"]
    for name, value in event.items():
        if name == "arguments":
            lines.append(
                f"          <arguments>\n{format_json_code_block(value)}\n          </arguments>"
            )
        else:
            lines += _make_xml_field_lines(name, value, 10)
    return "\n".join([*lines, "        </event>"])


def format_json_code_block(value: Any) -> str:
    """Format a JSON value, escaped, in a Markdown fence that its content cannot close."""
    text = format_json(value)
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}json\n{escape_xml(text)}\n{fence}"


def escape_xml(text: str) -> str:
    """Escape text for the content of an XML element."""
    if not _SUSPECT.search(text):
        return text
    text = _SURROGATE.sub("\ufffd", _FORBIDDEN.sub("", text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _make_xml_field_lines(name: str, value: Any, indent: int) -> Iterator[str]:
    if value is None:
        return
    if isinstance(value, bool):
        value = "true" if value else "false"
    yield f"{' ' * indent}<{name}>{escape_xml(str(value))}</{name}>"
