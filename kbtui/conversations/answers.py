"""What the three tools of D39 answer: plain values in the shape of decisions B2.

Every face gives these answers and no other; the names in them are a contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtui.conversations import arguments
from kbtui.conversations.grep import Found, Query, resolve_scopes
from kbtui.conversations.ids import parse_conversation_id
from kbtui.conversations.listing import (
    activity,
    list_conversations,
    with_activity,
    with_counts,
)
from kbtui.conversations.matching import Needle
from kbtui.conversations.times import show_time
from kbtui.conversations.workers import search_all
from kbtui.errors import NothingFound

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from kbtui.conversations.grep import Line
    from kbtui.conversations.records import ConversationInfo
    from kbtui.workspace import Workspace

SORTS = ("created", "activity", "updated")
LIST_LIMIT, GREP_LIMIT = 20, 50
_NAMED_PROBLEMS = 3


def list_answer(
    workspace: Workspace,
    *,
    limit: int = LIST_LIMIT,
    offset: int = 0,
    sort: str = "activity",
    descending: bool = True,
    archived: bool = False,
    title_contains: str | None = None,
) -> dict[str, Any]:
    """Answer `conversation_list`.

    `total` counts what the filter leaves, `omitted` what comes after this page.
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
        infos = [info for info in infos if info.title and wanted in info.title.casefold()]
    if sort == "activity":
        infos = [with_activity(info) for info in infos]
    infos.sort(key=lambda info: (_sort_time(info, sort), info.id), reverse=descending)
    page = infos[offset : offset + limit]
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
        "conversations": [_entry(with_counts(info)) for info in page],
    }


def _sort_time(info: ConversationInfo, sort: str) -> datetime:
    """What "created", "activity" and "updated" mean (decisions B3)."""
    if sort == "updated":
        return info.updated_at or info.created_at
    return activity(info) if sort == "activity" else info.created_at


def _entry(info: ConversationInfo) -> dict[str, Any]:
    return {
        "id": info.ref,
        "title": info.title,
        "events_count": info.events_count,
        "created_at": show_time(info.created_at),
        "last_event_at": show_time(info.last_event_at),
        "archived_at": show_time(info.archived_at),
        "expires_at": show_time(info.expires_at),
        "updated_at": show_time(info.updated_at),
        "pinned_at": show_time(info.pinned_at),
        "labels": info.labels,
        "problem": info.problem,
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
    current: int | None = None,
) -> dict[str, Any]:
    """Answer `conversation_grep`: newest activity first, in a conversation its title and then its order.

    `total` counts all lines that match, `count` those given, without their
    context. Raises `UsageError` for an argument that is not of its form, and
    `NothingFound` for an id that does not exist. No match is an empty answer.
    """
    answer, _ = grep_blocks(
        workspace,
        pattern=pattern,
        ignore_case=ignore_case,
        ids=ids,
        scopes=scopes,
        context=context,
        limit=limit,
        archived=archived,
        include_current=include_current,
        current=current,
    )
    return answer


def grep_blocks(
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
) -> tuple[dict[str, Any], list[int]]:
    """The same answer, and for each hit the number of its run of adjoining lines."""
    query = Query(
        arguments.text("pattern", pattern),
        arguments.flag("ignore_case", ignore_case),
        resolve_scopes(arguments.texts("scopes", scopes)),
        arguments.whole("context", context, 0),
        arguments.whole("limit", limit, 1),
    )
    needle = Needle(query.pattern, query.ignore_case)
    archived = arguments.flag("archived", archived)
    excluded = None if arguments.flag("include_current", include_current) else current
    infos, notes = _chosen(workspace, arguments.texts("ids", ids), archived, excluded)
    found = _search(infos, query)
    answer: dict[str, Any] = {"total": 0, "count": 0, "omitted": 0, "hint": None, "hits": []}
    blocks: list[int] = []
    for number, (info, events) in enumerate(zip(infos, found, strict=True)):
        titles = _title_lines(info, needle, query)
        answer["total"] += events.count + len(titles)
        for line in (*titles, *events.lines):
            if line.is_match:
                if answer["count"] == query.limit:
                    break
                answer["count"] += 1
            answer["hits"].append(_hit(info, line))
            blocks.append((number << 32) + line.block)
    _drop_loose_context(answer["hits"], blocks, query.limit)
    answer["omitted"] = answer["total"] - answer["count"]
    if answer["omitted"]:
        matches = "match" if answer["omitted"] == 1 else "matches"
        narrower = "a longer pattern, ids or scopes, or a larger limit"
        notes.insert(0, f"{answer['omitted']} more {matches}: ask with {narrower}")
    notes += _unread(infos, found)
    answer["hint"] = "; ".join(notes) or None
    return answer, blocks


def _chosen(
    workspace: Workspace, ids: list[str] | None, archived: bool, excluded: int | None
) -> tuple[list[ConversationInfo], list[str]]:
    """The conversations to search, newest activity first, and what to say about the choice."""
    infos = list_conversations(workspace, None if ids else archived, counts=False)
    notes: list[str] = []
    if ids is not None:
        wanted = dict.fromkeys(parse_conversation_id(name) for name in ids)
        known = {info.id: info for info in infos}
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
        infos = [info for info in infos if info.id in wanted]
    if excluded is not None and any(info.id == excluded for info in infos):
        infos = [info for info in infos if info.id != excluded]
        if ids is not None:
            notes.append(
                f"jp-c{excluded} is the current conversation: ask with include_current=true"
            )
    infos = [with_activity(info) for info in infos]
    infos.sort(key=lambda info: (activity(info), info.id), reverse=True)
    return infos, notes


def _search(infos: list[ConversationInfo], query: Query) -> list[Found]:
    """What the events have; those are not opened for the title's sake."""
    found = [Found() for _ in infos]
    if query.scopes == {"title"}:
        return found
    having = [number for number, info in enumerate(infos) if info.events_path is not None]
    files = [(str(infos[number].events_path), infos[number].size) for number in having]
    for number, events in zip(having, search_all(files, query), strict=True):
        found[number] = events
    return found


def _title_lines(info: ConversationInfo, needle: Needle, query: Query) -> list[Line]:
    from kbtui.conversations.grep import Line
    from kbtui.conversations.matching import cut_line

    if "title" not in query.scopes or not info.title:
        return []
    return [
        Line("title", None, None, cut_line(info.title[start:end], match - start), True)
        for start, end, match in needle.lines(info.title)
    ]


def _hit(info: ConversationInfo, line: Line) -> dict[str, Any]:
    return {
        "id": info.ref,
        "title": info.title,
        "scope": line.scope,
        "turn": line.turn,
        "timestamp": line.timestamp,
        "text": line.text,
        "is_match": line.is_match,
    }


def _drop_loose_context(hits: list[dict[str, Any]], blocks: list[int], limit: int) -> None:
    """Take away context whose match fell behind the limit."""
    having = {block for hit, block in zip(hits, blocks, strict=True) if hit["is_match"]}
    kept = [number for number, block in enumerate(blocks) if block in having]
    hits[:] = [hits[number] for number in kept]
    blocks[:] = [blocks[number] for number in kept]


def _unread(infos: list[ConversationInfo], found: list[Found]) -> list[str]:
    """Says which conversations could not be searched whole, and why."""
    broken = [
        f"{info.ref}: {events.problem or info.problem}"
        for info, events in zip(infos, found, strict=True)
        if events.problem or (info.events_path is None and info.problem)
    ]
    if not broken:
        return []
    shown = "; ".join(broken[:_NAMED_PROBLEMS])
    more = f"; and {len(broken) - _NAMED_PROBLEMS} more" if len(broken) > _NAMED_PROBLEMS else ""
    return [f"not searched whole: {shown}{more}"]
