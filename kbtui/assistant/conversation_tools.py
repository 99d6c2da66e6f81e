"""The conversation tools: argument checking, answers and their size limits."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Required, TypedDict

from kbtui.assistant.conversation_notices import (
    AnswerFull,
    ArchivedOtherwise,
    ConversationNotice,
    CurrentConversation,
    CurrentLeftOut,
    Damaged,
    EarlierTurns,
    Extras,
    MoreConversations,
    MoreMatches,
    NotSearched,
    NoTurns,
    OffsetTooLarge,
    OtherTurns,
    RefusedMissing,
    RefusedUsage,
    TooLong,
    TurnAndLast,
    TurnNamedTwice,
    TurnShortened,
    UnknownConversation,
    word_notice,
)
from kbtui.assistant.xml import entry_xml, escape, event_xml, hit_xml, read_envelope, turn_xml
from kbtui.conversations.event_kinds import EVENT_KINDS, group_included_kinds
from kbtui.conversations.grep import (
    ConversationMatches,
    GrepLine,
    GrepQuery,
    LinePattern,
    cut_line,
    resolve_scopes,
    search_turns,
)
from kbtui.conversations.repository import (
    ConversationNotFound,
    add_last_event,
    check_conversation,
    find_conversation,
    get_format,
    last_activity,
    list_conversations,
    load_conversation,
)
from kbtui.dates import format_timestamp
from kbtui.errors import NothingFound, UsageError
from kbtui.refs import parse_conversation_id, parse_conversation_ref
from kbtui.secrets import mask, mask_values
from kbtui.text import pretty_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from kbtui.conversations.models import Conversation, ConversationInfo, Event, Turn
    from kbtui.refs import Ref
    from kbtui.workspace import Workspace


def check_number(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`; raises `UsageError`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"it must be a whole number, not {_shown(value)}", where=name)
    if value < least:
        raise UsageError(f"it must be at least {least}, not {value}", where=name)
    return value


def check_optional_number(name: str, value: Any, least: int) -> int | None:
    """The same, or None."""
    return None if value is None else check_number(name, value, least)


def check_flag(name: str, value: Any) -> bool:
    """True or false; raises `UsageError`."""
    if not isinstance(value, bool):
        raise UsageError(f"it must be true or false, not {_shown(value)}", where=name)
    return value


def check_text(name: str, value: Any) -> str:
    """A string; raises `UsageError`."""
    if not isinstance(value, str):
        raise UsageError(f"it must be a string, not {_shown(value)}", where=name)
    return value


def check_texts(name: str, value: Any) -> list[str] | None:
    """A list of strings; a single string is a list of one, an empty list is None."""
    if value is None or value == []:
        return None
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"it must be a list of strings, not {_shown(value)}", where=name)
    return list(value)


def check_choice(name: str, value: Any, known: Sequence[str]) -> str:
    """One of some words; raises `UsageError` that lists them."""
    if value not in known:
        raise UsageError(f"it must be one of {', '.join(known)}, not {_shown(value)}", where=name)
    return str(value)


def _shown(value: Any) -> str:
    from kbtui.text import cut

    return cut(repr(value), 60)


_WRAPPING = 200
"""Characters that a turn takes around its events."""
_LEAST = 200
"""Characters that a text keeps before whole events are left out."""


class _ShortenableText:
    """One text of an event that may be shortened; `put` puts another in its place."""

    def __init__(self, text: str, put: Callable[[str], None], json: bool) -> None:
        self.text, self.put, self.json = text, put, json
        self.size = self.measure(text)

    def measure(self, text: str) -> int:
        """Characters that the text takes in the envelope."""
        return len(escape(pretty_json(text) if self.json else text))

    def shorten(self, size: int) -> None:
        """Put the text in at most `size` characters, saying how many are left out."""
        if self.size <= size:
            return
        keep = min(size, len(self.text))
        while keep > 0:
            shown = _cut_middle(self.text, keep)
            taken = self.measure(shown)
            if taken <= size:
                break
            keep = min(keep - 1, keep * size // taken)
        self.put(_cut_middle(self.text, max(0, keep)))


def fit_turn(turn: TurnValue, room: int) -> tuple[TurnValue, TurnShortened]:
    """The turn in at most `room` characters of XML, and what was left out of it.

    Long texts lose their middle, the longest the most. Where even that does not
    do, events in the middle of the turn are left out.
    """
    events = turn["events"]
    kept = _events_that_fit(events, room)
    shortened: TurnValue = {"turn": turn["turn"], "events": deepcopy(kept)}
    texts = [text for event in shortened["events"] for text in _texts(event)]
    fixed = len(turn_xml(shortened)) + 1 - sum(text.size for text in texts)
    level = _level([text.size for text in texts], room - fixed)
    for text in texts:
        text.shorten(level)
    left_out = len(events) - len(kept)
    return shortened, TurnShortened(turn["turn"], left_out, len(events))


def _cut_middle(text: str, keep: int) -> str:
    left = len(text) - keep
    if left <= 0:
        return text
    head = (keep + 1) // 2
    tail = text[len(text) - (keep - head) :]
    return f"{text[:head]}\n[… {left:,} characters left out …]\n{tail}"


def _level(sizes: list[int], room: int) -> int:
    """The height to which the longest are cut so that all together take `room`."""
    rest, count = room, len(sizes)
    for size in sorted(sizes):
        share = rest // count if count else 0
        if size > share:
            return max(0, share)
        rest -= size
        count -= 1
    return max(sizes, default=0)


def _events_that_fit(events: list[EventValue], room: int) -> list[EventValue]:
    """As many from both ends as fit when each text keeps little."""
    sizes = []
    for event in events:
        spare = sum(max(0, text.size - _LEAST) for text in _texts(event))
        sizes.append(len(event_xml(event)) + 1 - spare)
    first, final, used = 0, len(events), _WRAPPING
    while first < final:
        at_front = first <= len(events) - final
        used += sizes[first] if at_front else sizes[final - 1]
        if used > room:
            return events[:first] + events[final:]
        if at_front:
            first += 1
        else:
            final -= 1
    return events


def _texts(event: EventValue) -> Iterator[_ShortenableText]:
    if isinstance(content := event["content"], str):
        yield _ShortenableText(content, _setter(event, "content"), json=False)
    if "arguments" in event:
        yield from _strings(event["arguments"])


def _strings(value: Any) -> Iterator[_ShortenableText]:
    """The strings in a JSON value, at any depth."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        if isinstance(item, str):
            yield _ShortenableText(item, _setter(value, key), json=True)
        elif isinstance(item, dict | list):
            yield from _strings(item)


def _setter(container: Any, key: Any) -> Callable[[str], None]:
    def put(text: str) -> None:
        container[key] = text

    return put


SORTS = ("created", "activity", "updated")
LIST_LIMIT, GREP_LIMIT = 20, 50
_NAMED_PROBLEMS = 3
_NAMED_IDS = 40
_LABELS_MOST = 20
_HINT_MOST = 1_500
_ENVELOPE = 10_000
"""Characters kept for an envelope around its entries, of which the hint may grow by escapes."""
_HIT_LEAST = 100
"""Characters of XML that no hit goes below."""


class ConversationEntry(TypedDict):
    """One conversation of a list. Times are RFC 3339."""

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
class ConversationPage:
    """A part of the list: `total` have passed the filter, `omitted` come after this part."""

    total: int
    offset: int
    conversations: list[ConversationEntry]
    omitted: int = 0
    notices: list[ConversationNotice] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many conversations this part has."""
        return len(self.conversations)

    def as_json(self) -> dict[str, Any]:
        """The documented shape."""
        return {
            "total": self.total,
            "offset": self.offset,
            "count": self.count,
            "omitted": self.omitted,
            "hint": _hint(self.notices),
            "conversations": self.conversations,
        }


def _hint(notices: list[ConversationNotice], most: int | None = None) -> str | None:
    """What an assistant is told beside a result, in at most `most` characters."""
    return "; ".join(map(word_notice, notices))[:most] or None


def list_answer(
    workspace: Workspace,
    *,
    limit: int = LIST_LIMIT,
    offset: int = 0,
    sort: str = "activity",
    descending: bool = True,
    archived: bool = False,
    title_contains: str | None = None,
    max_chars: int | None = None,
    masked: bool = False,
) -> ConversationPage:
    """Answer `conversation_list`.

    The page ends early where its envelope would have more than `max_chars` characters. `masked` replaces secrets.
    Raises `UsageError` for an argument that is not of its form.
    """
    limit = check_number("limit", limit, 1)
    offset = check_number("offset", offset, 0)
    sort = check_choice("sort", sort, SORTS)
    descending = check_flag("descending", descending)
    archived = check_flag("archived", archived)
    infos = list_conversations(workspace, archived, counts=False)
    if title_contains is not None and check_text("title_contains", title_contains):
        wanted = title_contains.casefold()
        titles = ((info, _title(info, masked=masked)) for info in infos)
        infos = [info for info, title in titles if title and wanted in title.casefold()]
    if sort == "activity":
        infos = [add_last_event(info) for info in infos]
    infos.sort(
        key=lambda info: (_sort_time(info, sort), info.created_at, info.id), reverse=descending
    )
    page = ConversationPage(len(infos), offset, [])
    room = None if max_chars is None else max_chars - _ENVELOPE
    for info in infos[offset : offset + limit]:
        entry = _entry(check_conversation(info), masked=masked, short=room is not None)
        if room is not None:
            room -= len(entry_xml(entry)) + 1
            if room < 0 and page.conversations:
                break
        page.conversations.append(entry)
    page.omitted = max(0, len(infos) - offset - page.count)
    if page.omitted:
        page.notices.append(MoreConversations(page.omitted, offset + page.count))
    elif infos and not page.count:
        page.notices.append(OffsetTooLarge(len(infos)))
    return page


def _sort_time(info: ConversationInfo, sort: str) -> datetime:
    """What "created", "activity" and "updated" mean."""
    if sort == "updated":
        return info.updated_at or info.created_at
    return last_activity(info) if sort == "activity" else info.created_at


def _title(info: ConversationInfo, *, masked: bool) -> str | None:
    return mask(info.title) if masked and info.title else info.title


def _entry(info: ConversationInfo, *, masked: bool, short: bool) -> ConversationEntry:
    """One conversation as plain values; `short` leaves out what no list needs whole."""
    entry: Any = {
        "id": info.ref,
        "title": info.title,
        "events_count": info.events_count,
        "created_at": format_timestamp(info.created_at),
        "last_event_at": format_timestamp(info.last_event_at),
        "archived_at": format_timestamp(info.archived_at),
        "expires_at": format_timestamp(info.expires_at),
        "updated_at": format_timestamp(info.updated_at),
        "pinned_at": format_timestamp(info.pinned_at),
        "parent_id": None if info.parent is None else info.parent,
        "labels": info.labels,
        "problem": info.problem,
    }
    if masked:
        entry = mask_values(entry)
    found: ConversationEntry = _shortened(entry) if short else entry
    return found


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return cut_line(value)
    if isinstance(value, dict):
        first = islice(value.items(), _LABELS_MOST)
        return {_shortened(key): _shortened(item) for key, item in first}
    return value


@dataclass
class ConversationHit:
    """One line that matches, or beside one; `block` numbers the runs of adjoining lines."""

    id: str
    title: str | None
    line: GrepLine
    block: int

    def as_json(self) -> dict[str, Any]:
        """The documented shape."""
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
class GrepAnswer:
    """Lines that match: `total` counts all, `count` those given; context is not counted."""

    total: int = 0
    count: int = 0
    hits: list[ConversationHit] = field(default_factory=list)
    notices: list[ConversationNotice] = field(default_factory=list)
    is_bounded: bool = False

    @property
    def omitted(self) -> int:
        """How many matches are not given."""
        return self.total - self.count

    def as_json(self) -> dict[str, Any]:
        """The documented shape."""
        return {
            "total": self.total,
            "count": self.count,
            "omitted": self.omitted,
            "hint": _hint(self.notices, _HINT_MOST if self.is_bounded else None),
            "hits": [hit.as_json() for hit in self.hits],
        }


def grep_answer(
    workspace: Workspace,
    *,
    pattern: str,
    ignore_case: bool = True,
    ids: Sequence[str] | None = None,
    scopes: Sequence[str] | None = None,
    context: int = 0,
    limit: int = GREP_LIMIT,
    archived: bool = False,
    include_current: bool = False,
    current: str | None = None,
    max_chars: int | None = None,
    masked: bool = False,
) -> GrepAnswer:
    """Answer `conversation_grep`: newest activity first, in a conversation its title and then its order.

    Its envelope has at most `max_chars` characters. `masked` replaces
    secrets before anything is searched. Raises `UsageError` for an argument that is not of its form, and
    `NothingFound` for an id that does not exist. No match is an empty answer.
    """
    query = GrepQuery(
        check_text("pattern", pattern),
        check_flag("ignore_case", ignore_case),
        resolve_scopes(check_texts("scopes", scopes)),
        check_number("context", context, 0),
        check_number("limit", limit, 1),
        masked=masked,
    )
    if max_chars is not None:
        query = replace(query, limit=min(query.limit, max_chars // _HIT_LEAST))
    pattern_of_lines = LinePattern(query.pattern, query.ignore_case)
    archived = check_flag("archived", archived)
    excluded = None if check_flag("include_current", include_current) else current
    answer = GrepAnswer(is_bounded=max_chars is not None)
    infos, left_out = _chosen(workspace, check_texts("ids", ids), archived, excluded)
    results = _search(infos, query, pattern_of_lines)
    room = None if max_chars is None else max_chars - _ENVELOPE
    unfinished: list[str] = []
    is_full = False
    for number, result in enumerate(results):
        before = answer.count
        lines = [] if is_full else [*result.titles, *result.events.lines]
        for line in lines:
            if line.is_match and answer.count == query.limit:
                is_full = True
                break
            title = _title(result.info, masked=masked)
            block = (number << 32) + line.block
            hit = ConversationHit(result.info.ref, cut_line(title) if title else title, line, block)
            if room is not None and (room := room - len(hit_xml(hit.as_json())) - 1) < 0:
                is_full = True
                break
            answer.count += line.is_match
            answer.hits.append(hit)
        found = result.events.count + len(result.titles)
        answer.total += found
        if answer.count - before < found:
            unfinished.append(result.info.ref)
    # Context whose match fell behind the limit is of no use.
    matching = {hit.block for hit in answer.hits if hit.line.is_match}
    answer.hits = [hit for hit in answer.hits if hit.block in matching]
    if answer.omitted and room is not None and (room < 0 or query.limit < limit):
        answer.notices.append(_full(answer, unfinished))
    elif answer.omitted:
        answer.notices.append(MoreMatches(answer.omitted))
    if left_out is not None:
        answer.notices.append(CurrentLeftOut(left_out))
    answer.notices += _unread(results, masked=masked)
    return answer


def _full(answer: GrepAnswer, unfinished: list[str]) -> AnswerFull:
    """Which conversations to ask for after an answer that is full."""
    # Asked for alone, a conversation that fills an answer would fill the next one, too.
    if answer.hits and unfinished[0] == answer.hits[0].id:
        unfinished = unfinished[1:]
    named = tuple(unfinished[:_NAMED_IDS])
    return AnswerFull(answer.omitted, named, len(unfinished) - len(named))


def _chosen(
    workspace: Workspace, ids: list[str] | None, archived: bool, excluded: str | None
) -> tuple[list[ConversationInfo], str | None]:
    """Return the conversations to search, and the current one if it is asked for and left out."""
    if ids is None:
        infos = list_conversations(workspace, archived, counts=False)
        return [info for info in infos if info.id != excluded], None
    chosen = []
    wanted = dict.fromkeys(parse_conversation_id(name, workspace.id) for name in ids)
    for id in wanted:  # noqa: A001
        try:
            info = find_conversation(workspace, id)
        except ConversationNotFound:
            raise RefusedMissing(UnknownConversation(id), where="ids") from None
        if info.archived is not archived:
            raise RefusedMissing(ArchivedOtherwise(id, info.archived), where="ids")
        if id != excluded:
            chosen.append(info)
    return chosen, excluded if excluded in wanted else None


@dataclass(slots=True)
class _Result:
    """A conversation that has matches, or that could not be searched completely."""

    info: ConversationInfo
    titles: list[GrepLine]
    events: ConversationMatches
    problem: str | None


def _search(infos: list[ConversationInfo], query: GrepQuery, pattern: LinePattern) -> list[_Result]:
    """Return the conversations with matches or problems, newest activity first."""
    results = []
    for info in infos:
        result = _Result(info, [], ConversationMatches(), None)
        if info.events_path is None:
            result.problem = info.problem
        elif query.scopes != {"title"}:
            decoded = get_format(info).decode_turns(info)
            result.problem = decoded.problem
            result.events = search_turns(decoded.turns, query, pattern)
            result.info = info.with_counts(None, decoded.last_event_at)
        if "title" in query.scopes:
            result.titles = _title_lines(info.title, pattern, masked=query.masked)
        if result.events.count or result.problem or result.titles or info.events_path is None:
            result.info = add_last_event(result.info)
            results.append(result)
    results.sort(
        key=lambda one: (last_activity(one.info), one.info.created_at, one.info.id), reverse=True
    )
    return results


def _title_lines(title: str | None, needle: LinePattern, *, masked: bool) -> list[GrepLine]:
    if not title or not needle.count_lines(title):
        return []
    title = mask(title) if masked else title
    return [
        GrepLine("title", None, None, cut_line(title[start:end], match - start), True)
        for start, end, match in needle.find_lines(title)
    ]


def _unread(results: list[_Result], *, masked: bool) -> list[ConversationNotice]:
    """Says which conversations could not be searched completely, and why."""
    broken = [(result.info.ref, result.problem) for result in results if result.problem]
    if not broken:
        return []
    shown = tuple(
        (ref, mask(problem) if masked else problem) for ref, problem in broken[:_NAMED_PROBLEMS]
    )
    return [NotSearched(shown, len(broken) - len(shown))]


READ_LIMIT = 60_000
"""Characters of the XML envelope that an assistant is given at most."""
_HINT_ROOM = 400

INCLUDED = group_included_kinds()
"""The kinds of event behind each word of `include`; by default all, those not known among them."""


class EventValue(TypedDict, total=False):
    """An event as plain values; `event_kind`, `timestamp` and `content` are always there."""

    event_kind: Required[str]
    timestamp: Required[str | None]
    author: str
    name: str
    call: int
    is_error: bool
    arguments: dict[str, Any]
    problem: str
    content: Required[str | None]


class TurnValue(TypedDict):
    """A turn as plain values."""

    turn: int
    events: list[EventValue]


@dataclass
class ReadAnswer:
    """Turns of one conversation, of which it has `turns_total`."""

    id: str
    title: str | None
    turns_total: int
    turns: list[TurnValue]
    notices: list[ConversationNotice] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many turns are given."""
        return len(self.turns)

    def as_json(self) -> dict[str, Any]:
        """The documented shape."""
        return {
            "id": self.id,
            "title": self.title,
            "turns_total": self.turns_total,
            "count": self.count,
            "omitted": self.turns_total - self.count,
            "hint": _hint(self.notices, _HINT_ROOM),
            "turns": self.turns,
        }


def read_answer(
    workspace: Workspace,
    *,
    id: str | int,  # noqa: A002
    turn: int | None = None,
    last: int | None = None,
    include: Sequence[str] | None = None,
    include_current: bool = False,
    current: str | None = None,
    max_chars: int | None = READ_LIMIT,
    masked: bool = False,
) -> ReadAnswer:
    """Answer `conversation_read`; `id` may name a turn as well (`jp-c17457886043:3`).

    The size is that of the XML envelope, whatever format is printed. Over
    `max_chars` it refuses, except for a single `turn`, which is cut; None means
    no limit. `masked` replaces secrets. Raises `UsageError` for that and for bad
    arguments, `NothingFound` for a conversation or turn that does not exist.
    """
    name = str(id) if isinstance(id, int) else check_text("id", id)
    ref = parse_conversation_ref(name, workspace.id)
    turn = named_turn(ref, turn, last)
    kinds = included_kinds(check_texts("include", include))
    limit = check_optional_number("max_chars", max_chars, 1000)
    number = ref.conversation
    assert number is not None
    if number == current and not check_flag("include_current", include_current):
        raise RefusedUsage(CurrentConversation(number))
    conversation = load_conversation(find_conversation(workspace, number))
    chosen = choose_turns(conversation, turn, last)
    return _answer(conversation, chosen, kinds, limit, single=turn is not None, masked=masked)


def named_turn(ref: Ref, turn: int | None, last: int | None) -> int | None:
    """The turn that an id with a turn and the arguments name together; raises `UsageError`."""
    if ref.turn is None:
        return turn
    if last is not None:
        raise RefusedUsage(TurnNamedTwice(ref.turn, "last", last))
    if turn is not None and turn != ref.turn:
        raise RefusedUsage(TurnNamedTwice(ref.turn, "turn", turn))
    return ref.turn


def included_kinds(include: list[str] | None) -> frozenset[str]:
    """The kinds of event that words of `include` name, by default all. Raises `UsageError`."""
    words = INCLUDED if include is None else include
    kinds = {
        kind for word in words for kind in INCLUDED[check_choice("include", word, tuple(INCLUDED))]
    }
    # Events that no word names come with all others: those of unknown kinds may be of any kind.
    is_all = kinds.issuperset(kind for group in INCLUDED.values() for kind in group)
    return frozenset(EVENT_KINDS if is_all else kinds)


def choose_turns(conversation: Conversation, turn: int | None, last: int | None) -> list[Turn]:
    """One turn, the last ones, or all; raises `UsageError` for both, `NothingFound`."""
    if turn is not None and last is not None:
        raise RefusedUsage(TurnAndLast())
    turn = check_optional_number("turn", turn, 1)
    last = check_optional_number("last", last, 1)
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
) -> ReadAnswer:
    total = len(conversation.turns)
    title, turns = conversation.info.title, [turn_value(turn, kinds) for turn in chosen]
    if masked:
        title, turns = mask_values(title), mask_values(turns)
    title = cut_line(title) if title and limit is not None else title
    answer = ReadAnswer(conversation.info.ref, title, total, turns)
    if len(chosen) < total:
        first, final = chosen[0].number, chosen[-1].number
        is_last = final == total
        answer.notices.append(EarlierTurns(first - 1) if is_last else OtherTurns(first, total))
    answer.notices += _remarks(conversation, masked=masked)
    if limit is None:
        return answer
    shown = [turn_xml(turn) for turn in turns]
    values = answer.as_json()
    size = len(read_envelope(values, shown))
    if size > limit:
        room = limit - len(read_envelope({**values, "hint": None}, [])) - _HINT_ROOM
        if not single:
            fitting = _count_fitting([len(turn) + 1 for turn in shown], room)
            raise RefusedUsage(TooLong(answer.id, total, size, limit, fitting))
        answer.turns[0], shortened = fit_turn(turns[0], max(0, room))
        answer.notices.insert(0, shortened)
    return answer


def _remarks(conversation: Conversation, *, masked: bool) -> list[ConversationNotice]:
    """What is wrong with the conversation, and what it has besides JP's kinds of event."""
    remarks: list[ConversationNotice] = []
    if problems := conversation.problems:
        problem = mask(problems[0]) if masked else problems[0]
        remarks.append(Damaged(problem, len(problems) - 1))
    elif not conversation.turns:
        remarks.append(NoTurns())
    if extras := conversation.describe_extras():
        remarks.append(Extras(tuple(mask(one) if masked else one for one in extras)))
    return remarks


def _count_fitting(sizes: list[int], room: int) -> int:
    """How many of the last turns fit together."""
    for fitting, size in enumerate(reversed(sizes)):
        room -= size
        if room < 0:
            return fitting
    return len(sizes)


def turn_value(turn: Turn, kinds: frozenset[str]) -> TurnValue:
    """A turn as plain values, with the events of these kinds."""
    events = [event_value(event) for event in turn.events if event.kind in kinds]
    return {"turn": turn.number, "events": events}


def event_value(event: Event) -> EventValue:
    """An event as plain values; which keys it has depends on its kind."""
    is_call = event.kind == "tool_call_request"
    value: Any = {"event_kind": event.kind, "timestamp": format_timestamp(event.timestamp)}
    if event.author is not None:
        value["author"] = event.author
    if event.name is not None:
        value["name"] = event.name
    if event.call is not None:
        value["call"] = event.call
    if event.kind == "tool_call_response":
        value["is_error"] = event.is_error
    if is_call:
        value["arguments"] = event.arguments or {}
    if event.problem is not None:
        value["problem"] = event.problem
    value["content"] = event.text or None if is_call else event.text
    found: EventValue = value
    return found
