"""The conversation tools: argument checking, answers and their size limits."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kbtui.assistant import conversation_tools
from kbtui.assistant.xml import entry_xml, escape, event_xml, hit_xml, read_envelope, turn_xml
from kbtui.conversations.event_kinds import EVENT_KINDS, include_groups
from kbtui.conversations.formats.jp.base64_fields import pretty
from kbtui.conversations.formats.jp.loader import load_conversation, name_extras
from kbtui.conversations.formats.jp.locations import EVENTS, ConversationLocation, find_places
from kbtui.conversations.grep import (
    ConversationMatches,
    GrepLine,
    GrepQuery,
    GrepSearch,
    LinePattern,
    cut_line,
    resolve_scopes,
)
from kbtui.conversations.ids import parse_conversation_id, parse_conversation_ref
from kbtui.conversations.repository import (
    activity,
    describe,
    examined,
    find_conversation,
    list_conversations,
    read_title,
    with_activity,
)
from kbtui.conversations.timestamps import show_time
from kbtui.errors import NothingFound, UsageError
from kbtui.secrets import mask, mask_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from kbtui.conversations.models import Conversation, ConversationInfo, Event, Turn
    from kbtui.refs import Ref
    from kbtui.workspace import Workspace


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`; raises `UsageError`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"it must be a whole number, not {_shown(value)}", where=name)
    if value < least:
        raise UsageError(f"it must be at least {least}, not {value}", where=name)
    return value


def optional_whole(name: str, value: Any, least: int) -> int | None:
    """The same, or None."""
    return None if value is None else whole(name, value, least)


def flag(name: str, value: Any) -> bool:
    """True or false; raises `UsageError`."""
    if not isinstance(value, bool):
        raise UsageError(f"it must be true or false, not {_shown(value)}", where=name)
    return value


def text(name: str, value: Any) -> str:
    """A string; raises `UsageError`."""
    if not isinstance(value, str):
        raise UsageError(f"it must be a string, not {_shown(value)}", where=name)
    return value


def texts(name: str, value: Any) -> list[str] | None:
    """A list of strings; a single string is a list of one, an empty list is None."""
    if value is None or value == []:
        return None
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"it must be a list of strings, not {_shown(value)}", where=name)
    return list(value)


def one_of(name: str, value: Any, known: Sequence[str]) -> str:
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
        return len(escape(pretty(text) if self.json else text))

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


def fit_turn(turn: dict[str, Any], room: int) -> tuple[list[dict[str, Any]], str]:
    """The turn in at most `room` characters of XML, as a list of one, and what to say of it.

    Long texts lose their middle, the longest the most. Where even that does not
    do, events in the middle of the turn are left out.
    """
    events = turn["events"]
    kept = _events_that_fit(events, room)
    shortened = {**turn, "events": deepcopy(kept)}
    texts = [text for event in shortened["events"] for text in _texts(event)]
    fixed = len(turn_xml(shortened)) + 1 - sum(text.size for text in texts)
    level = _level([text.size for text in texts], room - fixed)
    for text in texts:
        text.shorten(level)
    said = f"turn {turn['turn']} is shortened: ask with include for fewer kinds of event"
    if len(kept) < len(events):
        left = len(events) - len(kept)
        said = f"{left} of its {len(events)} events are left out in the middle; {said}"
    return [shortened], said


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


def _events_that_fit(events: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
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


def _texts(event: dict[str, Any]) -> Iterator[_ShortenableText]:
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
) -> dict[str, Any]:
    """Answer `conversation_list`.

    `total` counts what the filter leaves, `omitted` what comes after this page, which ends early
    where its envelope would have more than `max_chars` characters. `masked` replaces secrets.
    Raises `UsageError` for an argument that is not of its form.
    """
    limit = conversation_tools.whole("limit", limit, 1)
    offset = conversation_tools.whole("offset", offset, 0)
    sort = conversation_tools.one_of("sort", sort, SORTS)
    descending = conversation_tools.flag("descending", descending)
    archived = conversation_tools.flag("archived", archived)
    infos = list_conversations(workspace, archived, counts=False)
    if title_contains is not None and conversation_tools.text("title_contains", title_contains):
        wanted = title_contains.casefold()
        titles = ((info, _title(info, masked=masked)) for info in infos)
        infos = [info for info, title in titles if title and wanted in title.casefold()]
    if sort == "activity":
        infos = [with_activity(info) for info in infos]
    infos.sort(key=lambda info: (_sort_time(info, sort), info.id), reverse=descending)
    page: list[dict[str, Any]] = []
    room = None if max_chars is None else max_chars - _ENVELOPE
    for info in infos[offset : offset + limit]:
        entry = _entry(examined(info), masked=masked, short=room is not None)
        if room is not None:
            room -= len(entry_xml(entry)) + 1
            if room < 0 and page:
                break
        page.append(entry)
    rest = max(0, len(infos) - offset - len(page))
    hint = f"{rest} more: ask with offset={offset + len(page)}" if rest else None
    if not page and infos:
        hint = f"there are only {len(infos)}: ask with a smaller offset"
    return {
        "total": len(infos),
        "offset": offset,
        "count": len(page),
        "omitted": rest,
        "hint": hint,
        "conversations": page,
    }


def _sort_time(info: ConversationInfo, sort: str) -> datetime:
    """What "created", "activity" and "updated" mean (decisions B3)."""
    if sort == "updated":
        return info.updated_at or info.created_at
    return activity(info) if sort == "activity" else info.created_at


def _title(info: ConversationInfo, *, masked: bool) -> str | None:
    return mask(info.title) if masked and info.title else info.title


def _entry(info: ConversationInfo, *, masked: bool, short: bool) -> dict[str, Any]:
    """One conversation as plain values; `short` leaves out what no list needs whole."""
    entry = {
        "id": info.ref,
        "title": info.title,
        "events_count": info.events_count,
        "created_at": show_time(info.created_at),
        "last_event_at": show_time(info.last_event_at),
        "archived_at": show_time(info.archived_at),
        "expires_at": show_time(info.expires_at),
        "updated_at": show_time(info.updated_at),
        "pinned_at": show_time(info.pinned_at),
        "parent_id": None if info.parent is None else f"jp-c{info.parent}",
        "labels": info.labels,
        "problem": info.problem,
    }
    if masked:
        entry = mask_values(entry)
    return _shortened(entry) if short else entry


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return cut_line(value)
    if isinstance(value, dict):
        first = islice(value.items(), _LABELS_MOST)
        return {_shortened(key): _shortened(item) for key, item in first}
    return value


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
    current: int | None = None,
    max_chars: int | None = None,
    masked: bool = False,
    blocks: list[int] | None = None,
) -> dict[str, Any]:
    """Answer `conversation_grep`: newest activity first, in a conversation its title and then its order.

    `total` counts all lines that match, `count` those given, without their
    context. Its envelope has at most `max_chars` characters. `masked` replaces
    secrets before anything is searched. Raises `UsageError` for an argument that is not of its form, and
    `NothingFound` for an id that does not exist. No match is an empty answer.
    `blocks` gets for each hit the number of its run of adjoining lines.
    """
    query = GrepQuery(
        conversation_tools.text("pattern", pattern),
        conversation_tools.flag("ignore_case", ignore_case),
        resolve_scopes(conversation_tools.texts("scopes", scopes)),
        conversation_tools.whole("context", context, 0),
        conversation_tools.whole("limit", limit, 1),
        masked=masked,
    )
    if max_chars is not None:
        query = replace(query, limit=min(query.limit, max_chars // _HIT_LEAST))
    needle = LinePattern(query.pattern, query.ignore_case)
    archived = conversation_tools.flag("archived", archived)
    excluded = None if conversation_tools.flag("include_current", include_current) else current
    places, notes = _chosen(workspace, conversation_tools.texts("ids", ids), archived, excluded)
    results = _search(places, query, needle)
    answer: dict[str, Any] = {"total": 0, "count": 0, "omitted": 0, "hint": None, "hits": []}
    blocks = [] if blocks is None else blocks
    room = None if max_chars is None else max_chars - _ENVELOPE
    unfinished: list[_Result] = []
    is_full = False
    for number, result in enumerate(results):
        before = answer["count"]
        lines = [] if is_full else [*result.titles, *result.events.lines]
        for line in lines:
            if line.is_match and answer["count"] == query.limit:
                is_full = True
                break
            hit = _hit(result.info, line, masked=masked)
            if room is not None and (room := room - len(hit_xml(hit)) - 1) < 0:
                is_full = True
                break
            answer["count"] += line.is_match
            answer["hits"].append(hit)
            blocks.append((number << 32) + line.block)
        found = result.events.count + len(result.titles)
        answer["total"] += found
        if answer["count"] - before < found:
            unfinished.append(result)
    _drop_loose_context(answer["hits"], blocks)
    answer["omitted"] = answer["total"] - answer["count"]
    if answer["omitted"]:
        matches = "match" if answer["omitted"] == 1 else "matches"
        narrower = "a longer pattern, ids or scopes, or a larger limit"
        if room is not None and (room < 0 or query.limit < limit):
            narrower = _going_on(unfinished, answer["hits"])
        notes.insert(0, f"{answer['omitted']} more {matches}: ask with {narrower}")
    notes += _unread(results, masked=masked)
    hint = "; ".join(notes)
    answer["hint"] = (hint if max_chars is None else hint[:_HINT_MOST]) or None
    return answer


def _going_on(unfinished: list[_Result], hits: list[dict[str, Any]]) -> str:
    """What to ask for after an answer that is full."""
    narrower = "a longer pattern or scopes"
    # Asked for alone, a conversation that fills an answer would fill the next one, too.
    if hits and unfinished[0].info.ref == hits[0]["id"]:
        unfinished = unfinished[1:]
    if not unfinished:
        return f"{narrower}, or read it with `conversation_read`"
    names = [f'"{result.info.ref}"' for result in unfinished[:_NAMED_IDS]]
    more = f" and {len(unfinished) - _NAMED_IDS} more" if len(unfinished) > _NAMED_IDS else ""
    return f"{narrower}, or go on with ids=[{', '.join(names)}]{more}"


def _chosen(
    workspace: Workspace, ids: list[str] | None, archived: bool, excluded: int | None
) -> tuple[list[ConversationLocation], list[str]]:
    """The conversations to search, and what to say about the choice."""
    known = {place.id: place for place in find_places(workspace)[0]}
    notes: list[str] = []
    if ids is None:
        places = [place for place in known.values() if place.archived is archived]
        return [place for place in places if place.id != excluded], notes
    wanted = dict.fromkeys(parse_conversation_id(name, workspace.id) for name in ids)
    for number in wanted:
        if number not in known:
            raise NothingFound(
                f"there is no conversation jp-c{number}",
                where="ids",
                hint="`conversation_list` gives the ids",
            )
        if known[number].archived is not archived:
            state = "archived" if known[number].archived else "not archived"
            raise NothingFound(
                f"jp-c{number} is {state}",
                where="ids",
                hint=f"ask with archived={str(known[number].archived).lower()}",
            )
    if excluded in wanted:
        notes.append(f"jp-c{excluded} is the current conversation: ask with include_current=true")
    return [known[number] for number in wanted if number != excluded], notes


@dataclass(slots=True)
class _Result:
    """One conversation that has matches, or that could not be searched whole."""

    place: ConversationLocation
    titles: list[GrepLine]
    events: ConversationMatches
    described: ConversationInfo | None = None

    @property
    def info(self) -> ConversationInfo:
        """The conversation's list entry, read on first use: most results need none."""
        if self.described is None:
            last = self.events.last_event_at
            self.described = with_activity(describe(self.place).counted(None, last))
        return self.described

    @property
    def order(self) -> tuple[datetime, int]:
        """The time of the last activity, then the id."""
        return self.events.last_event_at or activity(self.info), self.place.id

    @property
    def problem(self) -> str | None:
        """Why it could not be searched completely."""
        return self.events.problem or (None if self.place.has_events else self.info.problem)


def _search(
    places: list[ConversationLocation], query: GrepQuery, pattern: LinePattern
) -> list[_Result]:
    """The conversations with matches or problems, newest activity first."""
    search = GrepSearch(query)
    results = []
    for place in places:
        result = _Result(place, [], ConversationMatches())
        if place.has_events and query.scopes != {"title"}:
            result.events = search.search_file(f"{place.stream.path}/{EVENTS}")
        if "title" in query.scopes:
            result.titles = _title_lines(read_title(place), pattern, masked=query.masked)
        if result.events.count or result.events.problem or result.titles or not place.has_events:
            results.append(result)
    results.sort(key=lambda result: result.order, reverse=True)
    return results


def _title_lines(title: str | None, needle: LinePattern, *, masked: bool) -> list[GrepLine]:
    if not title or not needle.count(title):
        return []
    title = mask(title) if masked else title
    return [
        GrepLine("title", None, None, cut_line(title[start:end], match - start), True)
        for start, end, match in needle.lines(title)
    ]


def _hit(info: ConversationInfo, line: GrepLine, *, masked: bool) -> dict[str, Any]:
    title = _title(info, masked=masked)
    return {
        "id": info.ref,
        "title": cut_line(title) if title else title,
        "scope": line.scope,
        "turn": line.turn,
        "timestamp": line.timestamp,
        "text": line.text,
        "is_match": line.is_match,
    }


def _drop_loose_context(hits: list[dict[str, Any]], blocks: list[int]) -> None:
    """Take away context whose match fell behind the limit."""
    having = {block for hit, block in zip(hits, blocks, strict=True) if hit["is_match"]}
    kept = [number for number, block in enumerate(blocks) if block in having]
    hits[:] = [hits[number] for number in kept]
    blocks[:] = [blocks[number] for number in kept]


def _unread(results: list[_Result], *, masked: bool) -> list[str]:
    """Says which conversations could not be searched whole, and why."""
    broken = [f"{result.info.ref}: {result.problem}" for result in results if result.problem]
    if not broken:
        return []
    shown = "; ".join(broken[:_NAMED_PROBLEMS])
    shown = mask(shown) if masked else shown
    more = f"; and {len(broken) - _NAMED_PROBLEMS} more" if len(broken) > _NAMED_PROBLEMS else ""
    return [f"not searched whole: {shown}{more}"]


READ_LIMIT = 60_000
"""Characters of the XML envelope that an assistant is given at most (decisions B4)."""
_HINT_ROOM = 400

INCLUDED = include_groups()
"""The kinds of event behind each word of `include`; by default all, those not known among them."""


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
    name = str(id) if isinstance(id, int) else conversation_tools.text("id", id)
    ref = parse_conversation_ref(name, workspace.id)
    turn = named_turn(ref, turn, last)
    kinds = included_kinds(conversation_tools.texts("include", include))
    limit = conversation_tools.optional_whole("max_chars", max_chars, 1000)
    number = ref.conversation
    assert number is not None
    if number == current and not conversation_tools.flag("include_current", include_current):
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
        for kind in INCLUDED[conversation_tools.one_of("include", word, tuple(INCLUDED))]
    }
    # Events that no word names come with all others: those of unknown kinds may be of any kind.
    is_all = kinds.issuperset(kind for group in INCLUDED.values() for kind in group)
    return frozenset(EVENT_KINDS if is_all else kinds)


def choose_turns(conversation: Conversation, turn: int | None, last: int | None) -> list[Turn]:
    """One turn, the last ones, or all; raises `UsageError` for both, `NothingFound`."""
    if turn is not None and last is not None:
        raise UsageError("turn and last exclude each other", hint="give one of them")
    turn = conversation_tools.optional_whole("turn", turn, 1)
    last = conversation_tools.optional_whole("last", last, 1)
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
