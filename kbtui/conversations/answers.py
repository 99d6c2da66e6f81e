"""What the three tools of D39 answer: plain values in the shape of decisions B2.

Every face gives these answers and no other; the names in them are a contract.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kbtui.conversations import arguments
from kbtui.conversations.grep import Found, Line, Query, Search, resolve_scopes
from kbtui.conversations.ids import parse_conversation_id
from kbtui.conversations.listing import (
    activity,
    describe,
    examined,
    list_conversations,
    title_may_match,
    with_activity,
)
from kbtui.conversations.matching import Needle, cut_line
from kbtui.conversations.roots import EVENTS, Place, find_places
from kbtui.conversations.sieve import Sieve
from kbtui.conversations.times import parse_time, show_time
from kbtui.conversations.workers import search_all
from kbtui.conversations.xml import entry_xml, hit_xml
from kbtui.errors import NothingFound
from kbtui.secrets import mask, mask_values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from kbtui.conversations.records import ConversationInfo
    from kbtui.workspace import Workspace

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
    limit = arguments.whole("limit", limit, 1)
    offset = arguments.whole("offset", offset, 0)
    sort = arguments.one_of("sort", sort, SORTS)
    descending = arguments.flag("descending", descending)
    archived = arguments.flag("archived", archived)
    infos = list_conversations(workspace, archived, counts=False)
    if title_contains is not None and arguments.text("title_contains", title_contains):
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
    query = Query(
        arguments.text("pattern", pattern),
        arguments.flag("ignore_case", ignore_case),
        resolve_scopes(arguments.texts("scopes", scopes)),
        arguments.whole("context", context, 0),
        arguments.whole("limit", limit, 1),
        masked=masked,
    )
    if max_chars is not None:
        query = replace(query, limit=min(query.limit, max_chars // _HIT_LEAST))
    needle = Needle(query.pattern, query.ignore_case)
    archived = arguments.flag("archived", archived)
    excluded = None if arguments.flag("include_current", include_current) else current
    places, notes = _chosen(workspace, arguments.texts("ids", ids), archived, excluded)
    results = _results(places, needle, query)
    answer: dict[str, Any] = {"total": 0, "count": 0, "omitted": 0, "hint": None, "hits": []}
    blocks = [] if blocks is None else blocks
    room = None if max_chars is None else max_chars - _ENVELOPE
    unfinished: list[_Result] = []
    is_full = False
    for number, result in enumerate(results):
        before = answer["count"]
        wanted = query.limit - before - len(result.titles)
        lines = [] if is_full else [*result.titles, *result.lines(query, wanted)]
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
) -> tuple[list[Place], list[str]]:
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

    place: Place
    titles: list[Line]
    events: Found
    described: ConversationInfo | None = None

    @property
    def info(self) -> ConversationInfo:
        """What there is to say of it, read when somebody wants to know."""
        if self.described is None:
            last = parse_time(self.events.last)
            self.described = with_activity(describe(self.place).counted(None, last))
        return self.described

    @property
    def order(self) -> tuple[datetime, int]:
        """Its activity, which the last event tells without the rest."""
        return parse_time(self.events.last) or activity(self.info), self.place.id

    def lines(self, query: Query, room: int) -> list[Line]:
        """At least the first `room` matches, for which the file may have to be searched again."""
        kept = sum(line.is_match for line in self.events.lines)
        if kept < min(room, self.events.count) and self.info.events_path is not None:
            again = Search(query).file(str(self.info.events_path), room)
            # It may have vanished in between: then what there is.
            if again.lines:
                self.events = again
        return self.events.lines

    @property
    def problem(self) -> str | None:
        """Why it could not be searched whole."""
        return self.events.problem or (None if self.place.has_events else self.info.problem)


def _results(places: list[Place], needle: Needle, query: Query) -> list[_Result]:
    """Those worth mentioning, newest activity first. What nobody asks for is not even described."""
    found = _search(places, query)
    sieve = Sieve(query.pattern, query.ignore_case) if "title" in query.scopes else None
    results = []
    for place, events in zip(places, found, strict=True):
        result = _Result(place, [], events)
        if sieve is not None and title_may_match(place, sieve):
            result.titles = _title_lines(_title(result.info, masked=query.masked), needle)
        if events.count or events.problem or result.titles or not place.has_events:
            results.append(result)
    results.sort(key=lambda result: result.order, reverse=True)
    return results


def _search(places: list[Place], query: Query) -> list[Found]:
    """What the events have; those are not opened for the title's sake."""
    found = [Found() for _ in places]
    if query.scopes == {"title"}:
        return found
    having = [number for number, place in enumerate(places) if place.has_events]
    files = [
        (f"{places[number].stream.path}/{EVENTS}", places[number].stream.sizes[EVENTS])
        for number in having
    ]
    for number, events in zip(having, search_all(files, query), strict=True):
        found[number] = events
    return found


def _title_lines(title: str | None, needle: Needle) -> list[Line]:
    if not title:
        return []
    return [
        Line("title", None, None, cut_line(title[start:end], match - start), True)
        for start, end, match in needle.lines(title)
    ]


def _hit(info: ConversationInfo, line: Line, *, masked: bool) -> dict[str, Any]:
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
