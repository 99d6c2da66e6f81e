"""The conversation tools: list, grep and read. Their answers have a limited size.

Assistants call them, and `kbtui conversation` prints their answers. Callers must check the types
of the arguments.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kbtui.assistant.conversation_answers import (
    READ_HINT_LENGTH,
    AnswerEventJson,
    AnswerFullNotice,
    AnswerTooLongRefusal,
    AnswerTurnJson,
    ConversationEntry,
    ConversationGrepAnswer,
    ConversationGrepLine,
    ConversationListPage,
    ConversationNotice,
    ConversationReadAnswer,
    ConversationsNotSearchedNotice,
    ConversationWithoutTurnsNotice,
    CurrentConversationOmittedNotice,
    CurrentConversationRefusal,
    DamagedConversationNotice,
    EarlierTurnsOmittedNotice,
    MoreConversationsNotice,
    MoreMatchesNotice,
    OffsetTooLargeNotice,
    OnlyOneTurnReturnedNotice,
    ToolArgumentsRefusedError,
    ToolConversationNotFoundError,
    TurnAndLastBothGivenRefusal,
    TurnNamedTwiceRefusal,
    TurnShortenedNotice,
    UnknownContentNotice,
    UnknownConversationRefusal,
    WrongArchiveStateRefusal,
    escape_xml,
    format_entry_xml,
    format_event_xml,
    format_hit_xml,
    format_read_xml,
    format_turn_xml,
)
from kbtui.conversations.event_kinds import EVENT_KINDS, group_included_kinds
from kbtui.conversations.grep import (
    ConversationMatches,
    GrepLine,
    GrepQuery,
    LiteralGrepPattern,
    cut_line_around_match,
    resolve_grep_scopes,
    search_turns,
)
from kbtui.conversations.repository import (
    ConversationNotFound,
    add_last_event_time,
    check_conversation,
    find_conversation,
    get_conversation_format,
    get_last_activity,
    list_conversations,
    load_conversation,
)
from kbtui.dates import format_timestamp
from kbtui.errors import NothingFound, UsageError
from kbtui.refs import parse_conversation_id, parse_conversation_ref
from kbtui.secret_detection import mask_json_values, mask_secrets
from kbtui.text import format_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from kbtui.conversations.models import Conversation, ConversationEvent, ConversationInfo, Turn
    from kbtui.refs import Ref
    from kbtui.workspace import Workspace

READ_LENGTH = 60_000
"""The maximum number of characters of the XML answer of `conversation_read`."""
_FRAME_LENGTH = 10_000
"""How many characters are reserved for the fields around entries and hits.

The number is generous, because escaping can lengthen the hint.
"""
_HIT_LENGTH_LEAST = 100
"""The minimum number of characters of a hit's XML."""
_PROBLEMS_NAMED = 3
_IDS_NAMED = 40
_LABELS_SHOWN = 20


def _check_argument_minimum(name: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(f"must be at least {least}, not {value}", where=name)


# list


def answer_conversation_list(
    workspace: Workspace,
    *,
    limit: int = 20,
    offset: int = 0,
    sort: str = "activity",
    descending: bool = True,
    archived: bool = False,
    title_contains: str | None = None,
    max_chars: int | None = None,
    masked: bool = False,
) -> ConversationListPage:
    """Answer a call of `conversation_list`.

    `sort` is `created`, `activity` or `updated`. The page has fewer than `limit` conversations if
    its XML would exceed `max_chars` characters. `masked` replaces secrets. Raises `UsageError` for
    a number that is too small.
    """
    _check_argument_minimum("limit", limit, 1)
    _check_argument_minimum("offset", offset, 0)
    infos = list_conversations(workspace, archived, counts=False)
    if title_contains:
        wanted = title_contains.casefold()
        titles = ((info, _get_conversation_title(info, masked=masked)) for info in infos)
        infos = [info for info, title in titles if title and wanted in title.casefold()]
    if sort == "activity":
        infos = [add_last_event_time(info) for info in infos]
    infos.sort(
        key=lambda info: (_get_sort_time(info, sort), info.created_at, info.id), reverse=descending
    )
    page = ConversationListPage(len(infos), offset, [])
    room = None if max_chars is None else max_chars - _FRAME_LENGTH
    for info in infos[offset : offset + limit]:
        entry = _make_conversation_entry(
            check_conversation(info), masked=masked, short=room is not None
        )
        if room is not None:
            room -= len(format_entry_xml(entry)) + 1
            if room < 0 and page.conversations:
                break
        page.conversations.append(entry)
    page.omitted = max(0, len(infos) - offset - page.count)
    if page.omitted:
        page.notices.append(MoreConversationsNotice(page.omitted, offset + page.count))
    elif infos and not page.count:
        page.notices.append(OffsetTooLargeNotice(len(infos)))
    return page


def _get_sort_time(info: ConversationInfo, sort: str) -> datetime:
    if sort == "updated":
        return info.updated_at or info.created_at
    return get_last_activity(info) if sort == "activity" else info.created_at


def _get_conversation_title(info: ConversationInfo, *, masked: bool) -> str | None:
    return mask_secrets(info.title) if masked and info.title else info.title


def _make_conversation_entry(
    info: ConversationInfo, *, masked: bool, short: bool
) -> ConversationEntry:
    """Return a conversation as JSON; `short` cuts long texts and limits the number of labels."""
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
        "parent_id": info.parent,
        "labels": info.labels,
        "problem": info.problem,
    }
    if masked:
        entry = mask_json_values(entry)
    found: ConversationEntry = _shorten_strings_in_json(entry) if short else entry
    return found


def _shorten_strings_in_json(value: Any) -> Any:
    if isinstance(value, str):
        return cut_line_around_match(value)
    if isinstance(value, dict):
        first = islice(value.items(), _LABELS_SHOWN)
        return {
            _shorten_strings_in_json(key): _shorten_strings_in_json(item) for key, item in first
        }
    return value


# grep


def answer_conversation_grep(
    workspace: Workspace,
    *,
    pattern: str,
    ignore_case: bool = True,
    ids: Sequence[str] | None = None,
    scopes: Sequence[str] | None = None,
    context: int = 0,
    limit: int = 50,
    archived: bool = False,
    include_current: bool = False,
    current: str | None = None,
    max_chars: int | None = None,
    masked: bool = False,
) -> ConversationGrepAnswer:
    """Answer a call of `conversation_grep`.

    The conversation with the latest activity comes first; in each, a match in the title comes
    before the matching lines. The XML has at most `max_chars` characters. `masked` replaces secrets
    before the search. Without matches, the answer is empty. Raises `UsageError` for an invalid
    argument, and `NothingFound` for an unknown id.
    """
    _check_argument_minimum("context", context, 0)
    _check_argument_minimum("limit", limit, 1)
    query = GrepQuery(
        pattern, ignore_case, resolve_grep_scopes(scopes or None), context, limit, masked=masked
    )
    if max_chars is not None:
        query = replace(query, limit=min(query.limit, max_chars // _HIT_LENGTH_LEAST))
    line_pattern = LiteralGrepPattern(query.pattern, query.ignore_case)
    excluded = None if include_current else current
    answer = ConversationGrepAnswer(is_bounded=max_chars is not None)
    infos, left_out = _select_conversations_to_search(workspace, ids or None, archived, excluded)
    results = _search_conversations(infos, query, line_pattern)
    room = None if max_chars is None else max_chars - _FRAME_LENGTH
    unfinished: list[str] = []
    is_full = False
    for number, result in enumerate(results):
        before = answer.count
        lines = [] if is_full else [*result.titles, *result.events.lines]
        for line in lines:
            if line.is_match and answer.count == query.limit:
                is_full = True
                break
            title = _get_conversation_title(result.info, masked=masked)
            block = (number << 32) + line.block
            hit = ConversationGrepLine(
                result.info.ref, cut_line_around_match(title) if title else title, line, block
            )
            if room is not None and (room := room - len(format_hit_xml(hit.as_json())) - 1) < 0:
                is_full = True
                break
            answer.count += line.is_match
            answer.hits.append(hit)
        found = result.events.count + len(result.titles)
        answer.total += found
        if answer.count - before < found:
            unfinished.append(result.info.ref)
    # Drop lines of context whose matching line exceeded the limit.
    matching = {hit.block for hit in answer.hits if hit.line.is_match}
    answer.hits = [hit for hit in answer.hits if hit.block in matching]
    if answer.omitted and room is not None and (room < 0 or query.limit < limit):
        answer.notices.append(_make_answer_full_notice(answer, unfinished))
    elif answer.omitted:
        answer.notices.append(MoreMatchesNotice(answer.omitted))
    if left_out is not None:
        answer.notices.append(CurrentConversationOmittedNotice(left_out))
    answer.notices += _make_conversations_not_searched_notices(results, masked=masked)
    return answer


def _make_answer_full_notice(
    answer: ConversationGrepAnswer, unfinished: list[str]
) -> AnswerFullNotice:
    """Return the notice that the answer is full; it names the conversations to ask for next."""
    # A conversation that fills this answer alone would fill the next one, too.
    if answer.hits and unfinished[0] == answer.hits[0].id:
        unfinished = unfinished[1:]
    named = tuple(unfinished[:_IDS_NAMED])
    return AnswerFullNotice(answer.omitted, named, len(unfinished) - len(named))


def _select_conversations_to_search(
    workspace: Workspace, ids: Sequence[str] | None, archived: bool, excluded: str | None
) -> tuple[list[ConversationInfo], str | None]:
    """Return the conversations to search, and `excluded` if it is among `ids`, else None."""
    if ids is None:
        infos = list_conversations(workspace, archived, counts=False)
        return [info for info in infos if info.id != excluded], None
    chosen = []
    wanted = dict.fromkeys(parse_conversation_id(name, workspace.id) for name in ids)
    for id in wanted:  # noqa: A001
        try:
            info = find_conversation(workspace, id)
        except ConversationNotFound:
            raise ToolConversationNotFoundError(
                UnknownConversationRefusal(id), where="ids"
            ) from None
        if info.archived is not archived:
            raise ToolConversationNotFoundError(
                WrongArchiveStateRefusal(id, info.archived), where="ids"
            )
        if id != excluded:
            chosen.append(info)
    return chosen, excluded if excluded in wanted else None


@dataclass(slots=True)
class _ConversationGrepResult:
    """A conversation that has matches, or that could not be searched completely."""

    info: ConversationInfo
    titles: list[GrepLine]
    events: ConversationMatches
    problem: str | None


def _search_conversations(
    infos: list[ConversationInfo], query: GrepQuery, pattern: LiteralGrepPattern
) -> list[_ConversationGrepResult]:
    """Return the conversations with matches or problems, newest activity first."""
    results = []
    for info in infos:
        titles: list[GrepLine] = []
        events, last_event_at, problem = ConversationMatches(), None, None
        if info.events_path is None:
            problem = info.problem
        elif query.scopes != {"title"}:
            turns, last_event_at, problem = get_conversation_format(info).decode_turns(info)
            events = search_turns(turns, query, pattern)
        if "title" in query.scopes:
            titles = _find_title_match(info.title, pattern, masked=query.masked)
        if titles or events.count or problem or info.events_path is None:
            info = add_last_event_time(info.copy_with_counts(None, last_event_at))
            results.append(_ConversationGrepResult(info, titles, events, problem))
    results.sort(
        key=lambda one: (get_last_activity(one.info), one.info.created_at, one.info.id),
        reverse=True,
    )
    return results


def _find_title_match(
    title: str | None, pattern: LiteralGrepPattern, *, masked: bool
) -> list[GrepLine]:
    if not title or not pattern.count_matching_lines(title):
        return []
    title = mask_secrets(title) if masked else title
    return [
        GrepLine("title", None, None, cut_line_around_match(title[start:end], match - start), True)
        for start, end, match in pattern.find_matching_lines(title)
    ]


def _make_conversations_not_searched_notices(
    results: list[_ConversationGrepResult], *, masked: bool
) -> list[ConversationNotice]:
    """Return a notice of the conversations that could not be searched completely, if any."""
    broken = [(result.info.ref, result.problem) for result in results if result.problem]
    if not broken:
        return []
    shown = tuple(
        (ref, mask_secrets(problem) if masked else problem)
        for ref, problem in broken[:_PROBLEMS_NAMED]
    )
    return [ConversationsNotSearchedNotice(shown, len(broken) - len(shown))]


# read


def answer_conversation_read(
    workspace: Workspace,
    *,
    id: str | int,  # noqa: A002
    turn: int | None = None,
    last: int | None = None,
    include: Sequence[str] | None = None,
    include_current: bool = False,
    current: str | None = None,
    max_chars: int | None = READ_LENGTH,
    masked: bool = False,
) -> ConversationReadAnswer:
    """Answer a call of `conversation_read`; `id` can also name a turn (`jp-c17457886043:3`).

    `max_chars` limits the size of the answer as XML, even if another format is printed; None means
    no limit. A single turn that exceeds the limit is shortened; for several turns, `UsageError` is
    raised. `masked` replaces secrets. Also raises `UsageError` for an invalid argument, and
    `NothingFound` for an unknown conversation or turn.
    """
    ref = parse_conversation_ref(str(id), workspace.id)
    turn = resolve_requested_turn(ref, turn, last)
    kinds = resolve_included_kinds(include)
    if max_chars is not None:
        _check_argument_minimum("max_chars", max_chars, 1000)
    conversation_id = ref.conversation
    assert conversation_id is not None
    if conversation_id == current and not include_current:
        raise ToolArgumentsRefusedError(CurrentConversationRefusal(conversation_id))
    conversation = load_conversation(find_conversation(workspace, conversation_id))
    turns = select_requested_turns(conversation, turn, last)
    return _make_read_answer(
        conversation, turns, kinds, max_chars, is_single=turn is not None, masked=masked
    )


def resolve_requested_turn(ref: Ref, turn: int | None, last: int | None) -> int | None:
    """Return the turn that the reference or the argument names; raises `UsageError`."""
    if ref.turn is None:
        return turn
    if last is not None:
        raise ToolArgumentsRefusedError(TurnNamedTwiceRefusal(ref.turn, "last", last))
    if turn is not None and turn != ref.turn:
        raise ToolArgumentsRefusedError(TurnNamedTwiceRefusal(ref.turn, "turn", turn))
    return ref.turn


def resolve_included_kinds(include: Sequence[str] | None) -> frozenset[str]:
    """Return the event kinds of the named groups (None: of all groups); raises `UsageError`."""
    groups = group_included_kinds()
    names = include or tuple(groups)
    for name in names:
        if name not in groups:
            message = f"must be one of {', '.join(groups)}, not {cut_line_around_match(repr(name), length=60)}"
            raise UsageError(message, where="include")
    kinds = {kind for name in names for kind in groups[name]}
    # Events of unknown kinds are in no group. They are returned if all groups are requested.
    has_all = kinds.issuperset(kind for group in groups.values() for kind in group)
    return frozenset(EVENT_KINDS if has_all else kinds)


def select_requested_turns(
    conversation: Conversation, turn: int | None, last: int | None
) -> list[Turn]:
    """Return one turn, the `last` turns, or all turns.

    Raises `UsageError` if both numbers are given or one is below 1, and `NothingFound` for an
    unknown turn.
    """
    if turn is not None and last is not None:
        raise ToolArgumentsRefusedError(TurnAndLastBothGivenRefusal())
    for name, value in (("turn", turn), ("last", last)):
        if value is not None:
            _check_argument_minimum(name, value, 1)
    if turn is None:
        return conversation.turns if last is None else conversation.turns[-last:]
    found = conversation.turn(turn)
    if found is None:
        total = len(conversation.turns)
        raise NothingFound(
            f"{conversation.info.ref} has no turn {turn}",
            hint=f"it has the turns 1 to {total}" if total else "it has no turns",
        )
    return [found]


def _make_read_answer(
    conversation: Conversation,
    selected: list[Turn],
    kinds: frozenset[str],
    limit: int | None,
    *,
    is_single: bool,
    masked: bool,
) -> ConversationReadAnswer:
    total = len(conversation.turns)
    title, turns = conversation.info.title, [_make_turn_json(turn, kinds) for turn in selected]
    if masked:
        title, turns = mask_json_values(title), mask_json_values(turns)
    title = cut_line_around_match(title) if title and limit is not None else title
    answer = ConversationReadAnswer(conversation.info.ref, title, total, turns)
    if len(selected) < total:
        first, last = selected[0].number, selected[-1].number
        answer.notices.append(
            EarlierTurnsOmittedNotice(first - 1)
            if last == total
            else OnlyOneTurnReturnedNotice(first, total)
        )
    answer.notices += _list_conversation_notices(conversation, masked=masked)
    if limit is None:
        return answer
    shown = [format_turn_xml(turn) for turn in turns]
    values = answer.as_json()
    size = len(format_read_xml(values, shown))
    if size > limit:
        room = limit - len(format_read_xml({**values, "hint": None}, [])) - READ_HINT_LENGTH
        if not is_single:
            fitting = _count_fitting_turns([len(turn) + 1 for turn in shown], room)
            raise ToolArgumentsRefusedError(
                AnswerTooLongRefusal(answer.id, total, size, limit, fitting)
            )
        answer.turns[0], shortened = shorten_turn(turns[0], max(0, room))
        answer.notices.insert(0, shortened)
    return answer


def _list_conversation_notices(
    conversation: Conversation, *, masked: bool
) -> list[ConversationNotice]:
    """Return the notices about damage, missing turns and unknown events of a conversation."""
    remarks: list[ConversationNotice] = []
    if problems := conversation.problems:
        problem = mask_secrets(problems[0]) if masked else problems[0]
        remarks.append(DamagedConversationNotice(problem, len(problems) - 1))
    elif not conversation.turns:
        remarks.append(ConversationWithoutTurnsNotice())
    if extras := conversation.describe_unknown_content():
        remarks.append(
            UnknownContentNotice(
                tuple(mask_secrets(extra) if masked else extra for extra in extras)
            )
        )
    return remarks


def _count_fitting_turns(sizes: list[int], room: int) -> int:
    """Return how many of the last turns fit into `room` characters together."""
    for fitting, size in enumerate(reversed(sizes)):
        room -= size
        if room < 0:
            return fitting
    return len(sizes)


def _make_turn_json(turn: Turn, kinds: frozenset[str]) -> AnswerTurnJson:
    """Return a turn as JSON with its events of the given kinds."""
    events = [_make_event_json(event) for event in turn.events if event.kind in kinds]
    return {"turn": turn.number, "events": events}


def _make_event_json(event: ConversationEvent) -> AnswerEventJson:
    """Return an event as JSON; its keys depend on its kind."""
    is_call = event.kind == "tool_call_request"
    value: Any = {"event_kind": event.kind, "timestamp": format_timestamp(event.timestamp)}
    for name in ("author", "name", "call"):
        if (field := getattr(event, name)) is not None:
            value[name] = field
    if event.kind == "tool_call_response":
        value["is_error"] = event.is_error
    if is_call:
        value["arguments"] = event.arguments or {}
    if event.problem is not None:
        value["problem"] = event.problem
    value["content"] = event.text or None if is_call else event.text
    found: AnswerEventJson = value
    return found


# shortening a turn

_TURN_FRAME = 200
"""How many characters of XML a turn has around its events."""
_TEXT_LEAST = 200
"""The length to which texts are cut before whole events are omitted."""


class _ShortenableEventText:
    """A shortenable text in an event; `replace` puts the shortened text in its place."""

    def __init__(self, text: str, replace: Callable[[str], None], is_json: bool) -> None:
        self.text, self.replace, self.is_json = text, replace, is_json
        self.size = self.count_xml_characters(text)

    def count_xml_characters(self, text: str) -> int:
        """Return how many characters a text takes up in the XML."""
        return len(escape_xml(format_json(text) if self.is_json else text))

    def shorten_to_xml_size(self, size: int) -> None:
        """Shorten the text to `size` characters of XML; a note in it says how much is left out."""
        if self.size <= size:
            return
        keep = min(size, len(self.text))
        while keep > 0:
            shown = _cut_text_middle(self.text, keep)
            taken = self.count_xml_characters(shown)
            if taken <= size:
                break
            keep = min(keep - 1, keep * size // taken)
        self.replace(_cut_text_middle(self.text, max(0, keep)))


def shorten_turn(turn: AnswerTurnJson, size: int) -> tuple[AnswerTurnJson, TurnShortenedNotice]:
    """Shorten a turn to `size` characters of XML; return it, and a notice of what was shortened.

    Long texts lose their middle, and the longest ones lose most. If this is not enough, events in
    the middle of the turn are omitted.
    """
    events = turn["events"]
    kept = _select_fitting_events(events, size)
    shortened: AnswerTurnJson = {"turn": turn["turn"], "events": deepcopy(kept)}
    texts = [text for event in shortened["events"] for text in _find_shortenable_texts(event)]
    fixed = len(format_turn_xml(shortened)) + 1 - sum(text.size for text in texts)
    limit = _find_text_limit([text.size for text in texts], size - fixed)
    for text in texts:
        text.shorten_to_xml_size(limit)
    left_out = len(events) - len(kept)
    return shortened, TurnShortenedNotice(turn["turn"], left_out, len(events))


def _cut_text_middle(text: str, keep: int) -> str:
    left = len(text) - keep
    if left <= 0:
        return text
    head = (keep + 1) // 2
    tail = text[len(text) - (keep - head) :]
    return f"{text[:head]}\n[… {left:,} characters left out …]\n{tail}"


def _find_text_limit(sizes: list[int], total: int) -> int:
    """Return the size to which texts must be cut to have `total` characters together."""
    rest, count = total, len(sizes)
    for size in sorted(sizes):
        share = rest // count if count else 0
        if size > share:
            return max(0, share)
        rest -= size
        count -= 1
    return max(sizes, default=0)


def _select_fitting_events(events: list[AnswerEventJson], size: int) -> list[AnswerEventJson]:
    """Return the events from both ends that fit into `size` if texts are cut to `_TEXT_LEAST`."""
    sizes = []
    for event in events:
        spare = sum(max(0, text.size - _TEXT_LEAST) for text in _find_shortenable_texts(event))
        sizes.append(len(format_event_xml(event)) + 1 - spare)
    first, last, used = 0, len(events), _TURN_FRAME
    while first < last:
        at_front = first <= len(events) - last
        used += sizes[first] if at_front else sizes[last - 1]
        if used > size:
            return events[:first] + events[last:]
        if at_front:
            first += 1
        else:
            last -= 1
    return events


def _find_shortenable_texts(event: AnswerEventJson) -> Iterator[_ShortenableEventText]:
    if isinstance(content := event["content"], str):
        yield _ShortenableEventText(content, _make_text_setter(event, "content"), is_json=False)
    if "arguments" in event:
        yield from _find_shortenable_strings(event["arguments"])


def _find_shortenable_strings(value: Any) -> Iterator[_ShortenableEventText]:
    """Yield the strings in a JSON value, at any depth."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        if isinstance(item, str):
            yield _ShortenableEventText(item, _make_text_setter(value, key), is_json=True)
        elif isinstance(item, dict | list):
            yield from _find_shortenable_strings(item)


def _make_text_setter(container: Any, key: Any) -> Callable[[str], None]:
    def replace_text(text: str) -> None:
        container[key] = text

    return replace_text
