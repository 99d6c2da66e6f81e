"""The conversation tools: list, grep and read. Their answers have a limited size.

Assistants call these tools, and `kbtui conversation` prints their answers. Callers must check the
types of the arguments.
"""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from kbtui.assistant.conversation_tool_answers import (
    MAX_READ_HINT_LENGTH,
    ConversationAnswerNotice,
    ConversationGrepAnswer,
    ConversationGrepLine,
    ConversationListPage,
    ConversationMatchCount,
    ConversationReadAnswer,
    RequestedConversationNotFoundError,
    ToolArgumentsRefusedError,
    escape_xml,
    format_answer_as_xml,
    format_xml_element,
)
from kbtui.conversations.conversation_data_types import make_event_json
from kbtui.conversations.conversation_event_kinds import (
    EVENT_KINDS,
    map_include_groups_to_event_kinds,
)
from kbtui.conversations.conversation_grep import (
    ConversationGrepMatches,
    GrepLine,
    GrepQuery,
    cut_line_around_match,
    grep_conversation_title,
    grep_turns,
    make_grep_pattern,
    resolve_grep_scopes,
)
from kbtui.conversations.conversation_repository import (
    ConversationNotFoundError,
    add_event_count_and_problems_to_info,
    add_event_count_to_info,
    add_last_event_time_to_info,
    check_turn_and_call_exist,
    find_agent_names_with_prefixes,
    find_conversation,
    get_conversation_format,
    list_agent_names,
    list_conversations,
    load_conversation,
    parse_entered_conversation_reference,
)
from kbtui.conversations.turn_decision_marks import make_marks_json_field_of_turn
from kbtui.dates import format_time_as_rfc3339_utc
from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import make_conversation_ref, shorten_conversation_ids
from kbtui.secret_detection import mask_secrets, mask_secrets_in_json
from kbtui.terminal_text import format_counted_noun, format_readable_json
from kbtui.userdata.turn_mark_lookup import find_marks_of_conversations
from kbtui.userdata.turn_mark_store import MarkStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kbtui.assistant.conversation_tool_answers import (
        ConversationInfoJson,
        TurnJson,
        TurnTouchingFileSummaryJson,
    )
    from kbtui.citations.tool_call_citations import Citation
    from kbtui.conversations.conversation_data_types import (
        Conversation,
        ConversationEventJson,
        ConversationInfo,
        Turn,
    )
    from kbtui.conversations.turn_decision_marks import ConversationMarks, MarkFactsJson
    from kbtui.library.file_turn_history import FileTurnHistory
    from kbtui.notices import Notice
    from kbtui.references import Ref
    from kbtui.userdata.workspace_registry import RegisteredWorkspace
    from kbtui.workspace import Workspace

MAX_READ_LENGTH = 60_000
"""The default limit for the length of an answer of `conversation_read`, in characters of XML."""
_FRAME_LENGTH = 10_000
"""At most this many characters of an answer are reserved for the hint and other short fields."""
_FRAME_SHARE = 0.4
"""At most this share of an answer's `max_chars` is reserved for the hint and other short fields."""
_MIN_HIT_LENGTH = 100
"""A hit takes at least this many characters of XML. A search collects no more hits than could fit."""
REGEX_SECONDS = 30
"""The time limit of a search for a regular expression, in seconds."""
_MAX_PROBLEMS_NAMED = 3
_MAX_IDS_NAMED = 40
_MAX_LABELS_SHOWN = 20
_FEWER_KINDS_HINT = "name only the kinds of event that you need"


def _compute_characters_left_for_rows(max_chars: int) -> int:
    """Return how many of an answer's `max_chars` characters are available for rows or matches.

    The rest is reserved for the other fields of the answer.
    """
    return max_chars - min(_FRAME_LENGTH, int(_FRAME_SHARE * max_chars))


def _check_argument_minimum(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise UsageError(f"must be at least {minimum}, not {value}", where=name)


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
    agents: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    file: str | None = None,
    max_chars: int | None = None,
    masked: bool = False,
) -> ConversationListPage:
    """Answer a call to `conversation_list`.

    `file` is a path in the workspace or the reference of a subject. If `file` is given, only
    conversations with turns that changed or read this file are listed, together with these turns.
    If `file` ends with line numbers (`src/a.py:12-20`), only turns that wrote these lines are listed,
    and notices name the lines that no turn wrote. With `file`, sorting by activity uses the times of the
    listed turns.

    `agents` contains prefixes of agent names; None selects all agents. A conversation must have all
    `labels`, each `KEY` or `KEY=VALUE`. `sort` is one of `TIME_SORTS`.
    If `masked` is true, secrets are masked. The page has at most `limit` conversations, and at most
    `max_chars` characters of XML. Raises `UsageError` if `limit` or `offset` is too small.
    """
    _check_argument_minimum("limit", limit, 1)
    _check_argument_minimum("offset", offset, 0)
    names = find_agent_names_with_prefixes(agents) if agents else set(list_agent_names())
    infos = list_conversations(workspace, counts=False)
    short_ids = shorten_conversation_ids(info.id for info in infos)
    infos = [info for info in infos if info.archived is archived and info.agent in names]
    infos = _select_conversations_by_label(infos, labels)
    file_turns: dict[str, list[TurnTouchingFileSummaryJson]] = {}
    file_notices: list[ConversationAnswerNotice] = []
    found = _find_turns_of_file(workspace, file) if file else None
    if found is not None:
        file_notices += _list_notices_of_unexplained_lines_and_unread_conversations(
            found, infos, masked=masked
        )
        file_turns, unreadable = _group_turns_touching_file_by_conversation(
            workspace, found, masked=masked
        )
        file_notices += [_make_unreadable_marks_notice(unreadable)] if unreadable else []
        infos = [info for info in infos if info.id in file_turns]
    if title_contains:
        wanted = title_contains.casefold()
        infos = [
            info
            for info in infos
            if info.title and wanted in _mask_secrets_if_requested(masked, info.title).casefold()
        ]
    if sort == "activity" and found is not None:
        newest_first = list(file_turns)
        infos.sort(key=lambda info: newest_first.index(info.id), reverse=not descending)
    else:
        if sort == "activity":
            infos = [add_last_event_time_to_info(info) for info in infos]
        infos.sort(key=lambda info: info.make_time_sort_key(sort), reverse=descending)
    page = ConversationListPage(len(infos), offset, [], short_ids=short_ids)
    if found is not None and found.lines is not None:
        unexplained = [one.as_json() for one in found.unexplained[:_LINE_RANGES_SHOWN]]
        page.unexplained_lines = mask_secrets_in_json(unexplained) if masked else unexplained
    room = None if max_chars is None else _compute_characters_left_for_rows(max_chars)
    for info in infos[offset : offset + limit]:
        entry = _make_conversation_info_json(
            _add_event_count_and_find_problems_if_small(info), masked=masked, short=room is not None
        )
        if info.id in file_turns:
            entry["file_turns"] = file_turns[info.id]
        if room is not None:
            room -= len(format_xml_element("conversation", entry, 4)) + 1
            if room < 0 and page.conversations:
                break
        page.conversations.append(entry)
    page.omitted = max(0, len(infos) - offset - page.conversation_count_on_page)
    if page.omitted:
        fact, following = f"{page.omitted} more", offset + page.conversation_count_on_page
        notice = ConversationAnswerNotice(
            fact, f"use offset={following}", f"use --offset {following}"
        )
        page.notices.append(notice)
    elif infos and not page.conversation_count_on_page:
        only = (
            "is only 1 conversation" if len(infos) == 1 else f"are only {len(infos)} conversations"
        )
        fact = f"there {only}"
        notice = ConversationAnswerNotice(fact, "use a smaller offset", "use a smaller --offset")
        page.notices.append(notice)
    page.notices += file_notices
    return page


_LINE_RANGES_SHOWN = 50
"""The list of lines that no turn wrote has at most this many ranges."""
_FILE_TURNS_SHOWN = 20
"""The maximum number of turns listed for each conversation, newest first, if a file is requested."""


def _find_turns_of_file(workspace: Workspace, name: str) -> FileTurnHistory:
    """Return the turns that changed or read a file of the workspace, newest first.

    Errors name the argument `file`.
    """
    from kbtui.library.file_turn_history import find_turns_touching_file_or_subject

    try:
        return find_turns_touching_file_or_subject(workspace, name, is_limited_to_workspace=True)
    except KbtuiError as error:
        raise type(error)(error.message, where="file", hint=error.hint) from error


def _group_turns_touching_file_by_conversation(
    workspace: Workspace, found: FileTurnHistory, *, masked: bool
) -> tuple[dict[str, list[TurnTouchingFileSummaryJson]], Notice | None]:
    """Return the turns that changed or read a file, by conversation id, and a notice or None.

    The notice says that the marks cannot be read.
    """
    marks = find_marks_of_conversations(workspace, {turn.conversation for turn in found.turns})
    turns: dict[str, list[TurnTouchingFileSummaryJson]] = {}
    for turn in found.turns:
        listed = turns.setdefault(turn.conversation, [])
        if len(listed) == _FILE_TURNS_SHOWN:
            continue
        request = _mask_secrets_if_requested(masked, turn.request)
        summary: TurnTouchingFileSummaryJson = {
            "ref": turn.ref,
            "turn": turn.turn,
            "time": format_time_as_rfc3339_utc(turn.time),
            "actions": turn.describe_actions(),
            "lines": turn.format_written_lines() or None,
            "request": cut_line_around_match(" ".join(request.split())),
        }
        if turn.rewound:
            summary["rewound"] = True
        if fields := make_marks_json_field_of_turn(
            marks.get_marks_of_turn(turn.ref), is_short=True
        ):
            on_turn = fields["marks"]
            summary["marks"] = mask_secrets_in_json(on_turn) if masked else on_turn
        listed.append(summary)
    return turns, marks.notice


def _list_notices_of_unexplained_lines_and_unread_conversations(
    found: FileTurnHistory, infos: Iterable[ConversationInfo], *, masked: bool
) -> Iterator[ConversationAnswerNotice]:
    """Yield notices about lines that no turn wrote, and about conversations that cannot be read."""
    from kbtui.library.file_turn_history import (
        describe_incompletely_read_conversations,
        describe_lines_not_written_by_turns,
    )

    for text in describe_lines_not_written_by_turns(found.unexplained):
        yield ConversationAnswerNotice(_mask_secrets_if_requested(masked, text))
    problems = {
        info.ref: _mask_secrets_if_requested(masked, found.problems[info.id])
        for info in infos
        if info.id in found.problems
    }
    if problems:
        yield ConversationAnswerNotice(describe_incompletely_read_conversations(problems))


def _select_conversations_by_label(
    infos: list[ConversationInfo], labels: Sequence[str] | None
) -> list[ConversationInfo]:
    """Return the conversations that have all `labels`. Raises `UsageError` for a label without a key."""
    for label in labels or ():
        if not label.partition("=")[0].strip():
            hint = "write KEY or KEY=VALUE"
            raise UsageError("a label needs a key", where="labels", hint=hint)
    return [info for info in infos if all(map(info.has_label, labels or ()))]


def _add_event_count_and_find_problems_if_small(info: ConversationInfo) -> ConversationInfo:
    """Return `info` with the number of events.

    A conversation of at most `max_checked_bytes` is also checked for problems.
    """
    limit = get_conversation_format(info).max_checked_bytes
    is_long = limit is not None and info.size > limit
    return add_event_count_to_info(info) if is_long else add_event_count_and_problems_to_info(info)


def _mask_secrets_if_requested(masked: bool, text: str) -> str:
    return mask_secrets(text) if masked else text


def _make_conversation_info_json(
    info: ConversationInfo, *, masked: bool, short: bool
) -> ConversationInfoJson:
    """Return a conversation as JSON.

    If `short` is true, cut long texts and leave out all but the first labels.
    """
    entry: ConversationInfoJson = {
        "id": info.ref,
        "agent": info.agent,
        "title": info.title,
        "events_count": info.events_count,
        "created_at": format_time_as_rfc3339_utc(info.created_at) or "",
        "last_event_at": format_time_as_rfc3339_utc(info.last_event_at),
        "archived_at": format_time_as_rfc3339_utc(info.archived_at),
        "expires_at": format_time_as_rfc3339_utc(info.expires_at),
        "updated_at": format_time_as_rfc3339_utc(info.updated_at),
        "pinned_at": format_time_as_rfc3339_utc(info.pinned_at),
        "parent_id": info.parent,
        "worktree": info.worktree,
        "labels": info.labels,
        "problem": info.problem,
    }
    if info.kept_from is not None:
        entry["kept_from"] = info.kept_from
    if masked:
        entry = mask_secrets_in_json(entry)
    if not short:
        return entry
    labels = islice(entry["labels"].items(), _MAX_LABELS_SHOWN)
    entry["labels"] = {
        cut_line_around_match(key): cut_line_around_match(text) for key, text in labels
    }
    cut = {
        name: cut_line_around_match(value) if isinstance(value, str) else value
        for name, value in entry.items()
    }
    return cast("ConversationInfoJson", cut)


# grep


def answer_conversation_grep(
    workspace: Workspace,
    *,
    pattern: str,
    ignore_case: bool = True,
    regex: bool = False,
    ids: Sequence[str] | None = None,
    scopes: Sequence[str] | None = None,
    agents: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    context: int = 0,
    limit: int = 50,
    archived: bool = False,
    include_current: bool = False,
    current: str | None = None,
    max_chars: int | None = None,
    masked: bool = False,
) -> ConversationGrepAnswer:
    """Answer a call to `conversation_grep`.

    `agents` contains prefixes of agent names; None selects all agents. The conversation
    with the latest activity comes first. In each conversation, matches in the title come first. The
    XML has at most `max_chars` characters. If `masked` is true, secrets are masked before the
    search. If `regex` is true, the pattern is a regular expression. Such a search stops after
    `REGEX_SECONDS`, and a notice says what was not searched.

    Raises `UsageError` for an invalid argument. Raises `NothingFound` for an unknown id.
    """
    _check_argument_minimum("context", context, 0)
    _check_argument_minimum("limit", limit, 1)
    most = limit if max_chars is None else min(limit, max_chars // _MIN_HIT_LENGTH)
    deadline = time.monotonic() + REGEX_SECONDS if regex else None
    compiled = make_grep_pattern(
        pattern, ignore_case=ignore_case, is_regex=regex, deadline=deadline
    )
    query = GrepQuery(compiled, resolve_grep_scopes(scopes), context, most, masked, deadline)
    excluded = None if include_current else current
    names = find_agent_names_with_prefixes(agents) if agents else None
    infos = _select_conversations_to_search(workspace, ids, archived, excluded)
    infos = [info for info in infos if names is None or info.agent in names]
    infos = _select_conversations_by_label(infos, labels)
    results = _grep_each_conversation(infos, query)
    marked = find_marks_of_conversations(workspace, (result.info.id for result in results))
    answer = ConversationGrepAnswer(is_bounded=max_chars is not None)
    room = None if max_chars is None else _compute_characters_left_for_rows(max_chars)
    unfinished: list[str] = []

    def make_marks_json(conversation_id: str, turn: int | None) -> list[MarkFactsJson]:
        marks = [
            mark.make_json_for_hit_or_turn(is_short=max_chars is not None)
            for mark in marked.by_turn.get((conversation_id, turn or 0), ())
        ]
        return mask_secrets_in_json(marks) if masked else marks

    for number, result in enumerate(results):
        before = answer.count
        info = result.info
        ref, title = info.ref, info.title
        title = cut_line_around_match(_mask_secrets_if_requested(masked, title)) if title else title
        hits = (
            ConversationGrepLine(
                ref,
                info.agent,
                title,
                info.parent,
                line,
                (number << 32) + line.block,
                marks=make_marks_json(info.id, line.turn),
            )
            for line in (*result.titles, *result.events.lines)
        )
        room = _add_grep_hits_up_to_limit(answer, hits, query.limit, room)
        found = result.events.count + len(result.titles)
        answer.total += found
        if found:
            answer.conversations.append(ConversationMatchCount(ref, info.agent, title, found))
        if answer.count - before < found:
            unfinished.append(ref)
    if answer.omitted_match_count:
        is_cut = room is not None and (room < 0 or query.limit < limit)
        notice = _make_omitted_matches_notice(
            answer, unfinished if is_cut else None, _make_larger_answer_hint(max_chars, is_cut)
        )
        answer.omitted_matches_notice = notice
        answer.notices.append(notice)
    if ids and excluded and excluded in _resolve_conversation_ids(workspace, ids):
        fact = f"{excluded} is the current conversation"
        answer.notices.append(ConversationAnswerNotice(fact, "use include_current=true"))
    if unsearched := sum(not result.events.is_complete for result in results):
        count = format_counted_noun(unsearched, "conversation was", "conversations were")
        fact = f"the search stopped after {REGEX_SECONDS} seconds; {count} not searched completely"
        hint = "use a simpler `pattern`, or search only some `ids` or `scopes`"
        command_hint = "use a simpler pattern, --id, --scope or --label"
        answer.notices.append(ConversationAnswerNotice(fact, hint, command_hint))
    if marked.notice:
        answer.notices.append(_make_unreadable_marks_notice(marked.notice))
    if broken := [(result.info.ref, result.problem) for result in results if result.problem]:
        named = "; ".join(
            f"{ref}: {_mask_secrets_if_requested(masked, problem)}"
            for ref, problem in broken[:_MAX_PROBLEMS_NAMED]
        )
        more = len(broken) - _MAX_PROBLEMS_NAMED
        rest = f"; and {more} more" if more > 0 else ""
        count = format_counted_noun(len(broken), "conversation")
        fact = f"{count} could not be searched completely: {named}{rest}"
        answer.notices.append(ConversationAnswerNotice(fact))
    return answer


def _make_unreadable_marks_notice(notice: Notice) -> ConversationAnswerNotice:
    """Return the notice about unreadable marks, without the path of their file."""
    fact = f"the user's marks are not shown, because they cannot be read: {notice.values['detail']}"
    return ConversationAnswerNotice(fact, "tell the user", "`kbtui doctor` says what to do")


def _make_larger_answer_hint(max_chars: int | None, is_cut: bool = True) -> str:
    """Return the words "raise `max_chars`, " for a hint, or "" if a larger value would not help.

    `is_cut` says whether the answer was cut because of `max_chars`.
    """
    can_be_raised = is_cut and max_chars is not None and max_chars < MAX_READ_LENGTH
    return "raise `max_chars`, " if can_be_raised else ""


def _make_omitted_matches_notice(
    answer: ConversationGrepAnswer, unfinished: list[str] | None, larger_answer_hint: str = ""
) -> ConversationAnswerNotice:
    """Return the notice that says how many matches are omitted.

    `unfinished` lists the conversations whose matches were omitted because the answer became too
    long; it is None if `limit` was reached. `larger_answer_hint` is the beginning of the hint.
    """
    fact = format_counted_noun(answer.omitted_match_count, "more match", "more matches")
    command_hint = "use a longer pattern, --id or --scope to find fewer, or --limit to show more"
    if unfinished is None:
        hint = "use a longer pattern or a larger `limit`, or search only some `ids` or `scopes`"
        if larger_answer_hint:
            hint = (
                f"{larger_answer_hint}use a longer pattern, or search only some `ids` or `scopes`"
            )
        return ConversationAnswerNotice(fact, hint, command_hint)
    hint = f"{larger_answer_hint}use a longer pattern, or search only some `scopes`"
    # A conversation that fills this answer on its own would also fill the next one.
    if answer.hits and unfinished[0] == answer.hits[0].id:
        unfinished = unfinished[1:]
    if not unfinished:
        hint += ", or read the conversation with `conversation_read`"
        return ConversationAnswerNotice(fact, hint, command_hint)
    names = ", ".join(f'"{ref}"' for ref in unfinished[:_MAX_IDS_NAMED])
    more = len(unfinished) - _MAX_IDS_NAMED
    hint += f", or continue with ids=[{names}]" + (f" and {more} more" if more > 0 else "")
    return ConversationAnswerNotice(fact, hint, command_hint)


def _resolve_conversation_ids(workspace: Workspace, names: Sequence[str]) -> list[str]:
    """Return the full ids of conversations, without duplicates; `names` are references or shortened ids."""
    ids = (parse_entered_conversation_reference(workspace, name).conversation for name in names)
    return [id for id in dict.fromkeys(ids) if id is not None]  # noqa: A001


def _select_conversations_to_search(
    workspace: Workspace, ids: Sequence[str] | None, archived: bool, excluded: str | None
) -> list[ConversationInfo]:
    """Return the conversations to search, without the one with the id `excluded`."""
    if not ids:
        infos = list_conversations(workspace, archived, counts=False)
        return [info for info in infos if info.id != excluded]
    chosen = []
    for id in _resolve_conversation_ids(workspace, ids):  # noqa: A001
        try:
            info = find_conversation(workspace, id)
        except ConversationNotFoundError:
            raise RequestedConversationNotFoundError(
                f"there is no conversation {id}",
                "`conversation_list` lists the ids",
                where="ids",
                command_hint="`kbtui conversation ls` lists all conversations",
            ) from None
        if info.archived is not archived:
            raise RequestedConversationNotFoundError(
                f"{info.id} is {'archived' if info.archived else 'not archived'}",
                f"use archived={str(info.archived).lower()}",
                where="ids",
                command_hint="add --archived" if info.archived else "leave out --archived",
            )
        if info.id != excluded:
            chosen.append(info)
    return chosen


class _ConversationGrepResult(NamedTuple):
    """The matches in one conversation, and the problem that prevented a complete search, or None."""

    info: ConversationInfo
    titles: list[GrepLine]
    events: ConversationGrepMatches
    problem: str | None


def _grep_each_conversation(
    infos: list[ConversationInfo], query: GrepQuery
) -> list[_ConversationGrepResult]:
    """Search conversations. Return the results with matches or problems, newest activity first."""
    results = []
    for info in infos:
        events, last_event_at, problem = ConversationGrepMatches(), None, None
        if info.events_path is None:
            problem = info.problem
        elif query.is_out_of_time:
            events.is_complete = False
        elif query.scopes != {"title"}:
            turns, last_event_at, problem = get_conversation_format(info).load_turns_for_searching(
                info
            )
            events = grep_turns(turns, query)
        titles = grep_conversation_title(info.title or "", query) if "title" in query.scopes else []
        if titles or events.count or problem or info.events_path is None or not events.is_complete:
            info = add_last_event_time_to_info(replace(info, last_event_at=last_event_at))
            results.append(_ConversationGrepResult(info, titles, events, problem))
    results.sort(key=lambda one: one.info.make_time_sort_key(), reverse=True)
    return results


# grep in all projects


def grep_conversations_of_all_projects(
    registered: Sequence[RegisteredWorkspace],
    grep_workspace: Callable[[Workspace], ConversationGrepAnswer],
    limit: int,
    max_chars: int | None = None,
) -> ConversationGrepAnswer:
    """Search the conversations of the `registered` workspaces, and join their answers in this order.

    The answer has at most `limit` matches, and at most `max_chars` characters of XML. A
    conversation that is in several workspaces of a project counts once. A notice names the
    workspaces that cannot be searched. Raises `UsageError` for an invalid argument.
    """
    answer = ConversationGrepAnswer(is_bounded=max_chars is not None)
    room = None if max_chars is None else _compute_characters_left_for_rows(max_chars)
    seen: set[tuple[str, str]] = set()
    for number, one in enumerate(registered):
        root = str(one.workspace.root)
        # Assistants must not see paths.
        name = one.label if answer.is_bounded else root
        if one.is_missing:
            hint = "`kbtui workspaces forget --missing` forgets such workspaces"
            fact = f"{name} was not searched, because its directory does not exist"
            answer.notices.append(ConversationAnswerNotice(fact, "", hint))
            continue
        try:
            found = grep_workspace(one.workspace)
        except UsageError:
            raise
        except (KbtuiError, OSError) as error:
            reason = error.message if isinstance(error, KbtuiError) else error.strerror
            answer.notices.append(ConversationAnswerNotice(f"{name} was not searched: {reason}"))
            continue
        new = [row for row in found.conversations if (one.project_key, row.id) not in seen]
        seen |= {(one.project_key, row.id) for row in new}
        answer.conversations += [row._replace(project=one.project, workspace=root) for row in new]
        answer.total += sum(row.matches for row in new)
        ids = {row.id for row in new}
        hits = [hit for hit in found.hits if hit.id in ids]
        labelled = [
            replace(hit, block=(number << 48) + hit.block, project=one.project, workspace=root)
            for hit in hits
        ]
        room = _add_grep_hits_up_to_limit(answer, labelled, limit, room)
        for notice in found.notices:
            if notice is not found.omitted_matches_notice:
                answer.notices.append(notice._replace(fact=f"{one.label}: {notice.fact}"))
    if answer.omitted_match_count:
        is_cut = room is not None and answer.count < limit
        larger = _make_larger_answer_hint(max_chars, is_cut)
        notice = _make_omitted_matches_notice(answer, None, larger)
        answer.omitted_matches_notice = notice
        answer.notices.append(notice)
    return answer


def _add_grep_hits_up_to_limit(
    answer: ConversationGrepAnswer,
    hits: Iterable[ConversationGrepLine],
    limit: int,
    room: int | None,
) -> int | None:
    """Add the hits of a conversation or a workspace to `answer`.

    Returns how many characters of XML are left of `room`; a negative number if a hit did not fit.

    Matching lines that exceed a limit are left out, together with their context.
    """
    added = []
    for hit in hits:
        if hit.line.is_match and answer.count == limit:
            break
        if room is not None:
            room -= len(format_xml_element("hit", hit.as_json(), 4)) + 1
            if room < 0:
                break
        answer.count += hit.line.is_match
        added.append(hit)
    matching = {hit.block for hit in added if hit.line.is_match}
    answer.hits += [hit for hit in added if hit.block in matching]
    return room


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
    max_chars: int | None = MAX_READ_LENGTH,
    masked: bool = False,
    extract_citations_from_tool_calls: Callable[[Conversation], Iterable[Citation]] | None = None,
) -> ConversationReadAnswer:
    """Answer a call to `conversation_read`.

    `extract_citations_from_tool_calls` returns the citations of a conversation. If it is given, each turn in the
    answer names the subjects that have changed since the turn used them.

    `id` can also name a turn or call (`jp-c17457886043:3.2`). `max_chars` limits the size of the
    answer as XML, even if another format is printed; None means no limit. A single turn that
    exceeds the limit is shortened. If several turns together exceed the limit, `UsageError` is
    raised. If `masked` is true, secrets are masked.

    Raises `UsageError` for an invalid argument. Raises `NothingFound` for an unknown conversation
    or turn.
    """
    ref = parse_entered_conversation_reference(workspace, str(id))
    turn = get_requested_turn_number(ref, turn, last)
    kinds = resolve_included_event_kinds(include)
    if max_chars is not None:
        _check_argument_minimum("max_chars", max_chars, 1000)
    conversation_id = ref.conversation
    assert conversation_id is not None
    if conversation_id == current and not include_current:
        raise ToolArgumentsRefusedError(
            f"{conversation_id} is the current conversation, which you can already see",
            "use include_current=true",
        )
    conversation = load_conversation(find_conversation(workspace, conversation_id))
    turns = select_requested_turns(conversation, ref, turn, last)
    return _make_conversation_read_answer(
        conversation,
        turns,
        ref.call,
        kinds,
        max_chars,
        is_single=turn is not None,
        masked=masked,
        citations=extract_citations_from_tool_calls(conversation)
        if extract_citations_from_tool_calls
        else (),
        marks=MarkStore(workspace).map_marks_by_turn(conversation),
    )


def get_requested_turn_number(ref: Ref, turn: int | None, last: int | None) -> int | None:
    """Return the number of the requested turn: the one in the reference, or else `turn`.

    Returns None if neither the reference nor `turn` names a turn. Raises `UsageError` if `turn` or `last`
    contradicts the turn in the reference.
    """
    if ref.turn is None:
        return turn
    name, value = ("turn", turn) if last is None else ("last", last)
    if value is not None and (name == "last" or value != ref.turn):
        message = "the id selects turn {}, but {} selects other turns"
        raise ToolArgumentsRefusedError(
            message.format(ref.turn, f"{name}={value}"),
            "use only one of them",
            command_message=message.format(ref.turn, f"--{name} {value}"),
        )
    return ref.turn


def resolve_included_event_kinds(include: Sequence[str] | None) -> frozenset[str]:
    """Return the kinds of events that `include` selects; None selects all.

    Raises `UsageError` for an unknown kind.
    """
    groups = map_include_groups_to_event_kinds()
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
    conversation: Conversation, ref: Ref, turn: int | None, last: int | None
) -> list[Turn]:
    """Return turn number `turn`, or the last `last` turns, or all turns if both arguments are None.

    If `ref` names a tool call, the returned turn contains only the events of this call.

    Raises `UsageError` if `turn` and `last` are both given, or if one of them is below 1. Raises
    `NothingFound` for an unknown turn or call.
    """
    if turn is not None and last is not None:
        raise ToolArgumentsRefusedError(
            "`turn` and `last` cannot be combined",
            "use only one of them",
            command_message="--turn and --last cannot be combined",
        )
    for name, value in (("turn", turn), ("last", last)):
        if value is not None:
            _check_argument_minimum(name, value, 1)
    if turn is None:
        return conversation.turns if last is None else conversation.turns[-last:]
    if found := conversation.find_turn(turn):
        if ref.call is None:
            return [found]
        check_turn_and_call_exist(conversation, ref)
        return [replace(found, events=[one for one in found.events if one.call == ref.call])]
    total = len(conversation.turns)
    hint = f"it has turns 1 to {total}" if total else "it has no turns"
    raise NothingFound(f"{conversation.info.ref} has no turn {turn}", hint=hint)


def _make_conversation_read_answer(
    conversation: Conversation,
    selected: list[Turn],
    call: int | None,
    kinds: frozenset[str],
    limit: int | None,
    *,
    is_single: bool,
    masked: bool,
    citations: Iterable[Citation],
    marks: ConversationMarks,
) -> ConversationReadAnswer:
    outdated = _map_turns_to_outdated_subjects(citations)
    total = len(conversation.turns)
    title = conversation.info.title
    turns: list[TurnJson] = []
    for turn in selected:
        events = [
            make_event_json(event, conversation.info.id)
            for event in turn.events
            if event.kind in kinds
        ]
        more: dict[str, Any] = {"rewound": True} if turn.is_rewound else {}
        if count := turn.attachment_count:
            more["attachments"] = count
        if subjects := outdated.get(turn.number):
            more["outdated_subjects"] = subjects
        more |= make_marks_json_field_of_turn(
            marks.by_turn.get(turn.number, ()), is_short=limit is not None
        )
        if limit is not None:
            for event_json in events:
                # Assistants name turns by their numbers, and the ids would cost tokens.
                event_json.pop("event_id", None)
        # The long texts come last.
        turns.append(cast("TurnJson", {"turn": turn.number, **more, "events": events}))
    if masked:
        title, turns = mask_secrets_in_json(title), mask_secrets_in_json(turns)
    title = cut_line_around_match(title) if title and limit is not None else title
    info = conversation.info
    answer = ConversationReadAnswer(info.ref, info.agent, title, info.parent, total, turns)
    if any(turn.events for turn in selected) and not any(turn["events"] for turn in turns):
        notice = ConversationAnswerNotice(
            "there are no events of these kinds",
            "name other kinds in `include`",
            "use --include to show other kinds",
        )
        answer.notices.append(notice)
    if call is not None:
        turn_ref = make_conversation_ref(info.id, selected[0].number)
        notice = ConversationAnswerNotice(
            f"this is only call {call} of turn {turn_ref.turn}",
            f"pass {turn_ref} as `id` for the whole turn",
            f"{turn_ref} shows the whole turn",
        )
        answer.notices.append(notice)
    elif len(selected) < total:
        first, last = selected[0].number, selected[-1].number
        if last == total:
            notice = ConversationAnswerNotice(
                "turn 1 is omitted" if first == 2 else f"turns 1 to {first - 1} are omitted",
                "use `turn`, or a larger `last`",
                "--turn N shows one of them, a larger --last shows more",
            )
        else:
            notice = ConversationAnswerNotice(
                f"turn {first} of {total}",
                "pass another `turn`, or use `last`",
                "--turn N shows another turn, --last N the last N turns",
            )
        answer.notices.append(notice)
    answer.notices += _list_notices_of_damaged_or_empty_conversation(conversation, masked=masked)
    if marks.notice:
        answer.notices.append(_make_unreadable_marks_notice(marks.notice))
    if limit is None:
        return answer
    values = answer.as_json()
    size = len(format_answer_as_xml("read", values))
    if size > limit:
        frame = len(format_answer_as_xml("read", {**values, "hint": None, "turns": []}))
        room = limit - frame - MAX_READ_HINT_LENGTH
        if not is_single:
            raise _make_answer_too_long_error(answer, size, limit, room)
        answer.turns[0], shortened = shorten_turn(turns[0], max(0, room))
        larger = _make_larger_answer_hint(limit)
        shortened = shortened._replace(
            tool_hint=f"{larger}{'or ' * bool(larger)}{shortened.tool_hint}"
        )
        answer.notices.insert(0, shortened)
    return answer


def _map_turns_to_outdated_subjects(
    citations: Iterable[Citation],
) -> dict[int, list[dict[str, str]]]:
    """Map the number of each turn to the subjects that have changed since the turn used them."""
    from kbtui.citations.tool_call_citations import group_outdated_citations_by_turn

    return {
        turn: [
            {"ref": cite.target, "state": "gone" if cite.state == "gone" else "changed"}
            for cite in cites
        ]
        for turn, cites in group_outdated_citations_by_turn(citations).items()
    }


def _make_answer_too_long_error(
    answer: ConversationReadAnswer, size: int, limit: int, room: int
) -> ToolArgumentsRefusedError:
    """Return an error whose hint says how many of the last turns fit into an answer."""
    total = answer.turns_total
    turns = format_counted_noun(total, "turn")
    fitting = _count_last_turns_that_fit(answer.turns, room)
    if fitting:
        hint = f"use last={fitting}, or `turn` with a number from 1 to {total}"
        command_hint = f"use --last {fitting}, or --turn with a number from 1 to {total}"
    else:
        hint = f"the last turn alone is too long; turn={total} returns it shortened"
        command_hint = f"the last turn alone is too long; --turn {total} shows it shortened"
    return ToolArgumentsRefusedError(
        f"{answer.id} has {turns}; this answer would have {size:,} characters; "
        f"the limit is {limit:,}",
        f"{_make_larger_answer_hint(limit)}{hint}; or {_FEWER_KINDS_HINT} in `include`",
        command_hint=f"{command_hint}; or {_FEWER_KINDS_HINT} with --include",
    )


def _list_notices_of_damaged_or_empty_conversation(
    conversation: Conversation, *, masked: bool
) -> Iterator[ConversationAnswerNotice]:
    """Yield notices if a conversation is damaged, has no turns, or contains unknown events."""
    if problems := conversation.problems:
        count = len(problems) - 1
        more = f" (and {format_counted_noun(count, 'more problem')})" if count else ""
        yield ConversationAnswerNotice(
            f"the conversation is damaged: {_mask_secrets_if_requested(masked, problems[0])}{more}"
        )
    elif not conversation.turns:
        yield ConversationAnswerNotice("the conversation has no turns yet")
    if unknown := conversation.describe_unknown_events():
        named = _mask_secrets_if_requested(masked, unknown)
        yield ConversationAnswerNotice(f"the conversation contains {named}")


def _count_last_turns_that_fit(turns: list[TurnJson], room: int) -> int:
    """Return how many of the last turns fit together into `room` characters of XML."""
    for fitting, turn in enumerate(reversed(turns)):
        room -= len(format_xml_element("turn", turn, 4)) + 1
        if room < 0:
            return fitting
    return len(turns)


# shortening a turn

_TURN_FRAME = 200
"""The approximate length of a turn without its events, in characters of XML."""
_MIN_TEXT_LENGTH = 200
"""Shortening leaves at least this many characters of each text of a turn.

If the turn is still too long, events are left out.
"""


class _ShortenableText(NamedTuple):
    """A string to shorten in place: `container[key]`, where `container` is part of an event."""

    container: Any
    key: Any
    is_json: bool
    size: int
    """The length of the text in the XML, in characters."""

    def shorten_to_xml_size(self, size: int) -> None:
        """Shorten the text to `size` characters of XML. The shortened text says how much is left out."""
        if self.size <= size:
            return
        text = self.container[self.key]
        keep = min(size, len(text))
        while keep > 0:
            taken = _measure_length_in_xml(_cut_text_middle(text, keep), self.is_json)
            if taken <= size:
                break
            keep = min(keep - 1, keep * size // taken)
        self.container[self.key] = _cut_text_middle(text, max(0, keep))


def _measure_length_in_xml(text: str, is_json: bool) -> int:
    return len(escape_xml(format_readable_json(text) if is_json else text))


def shorten_turn(turn: TurnJson, size: int) -> tuple[TurnJson, ConversationAnswerNotice]:
    """Return a copy of a turn, shortened to `size` characters of XML, and a notice about the shortening.

    Long texts lose their middle, and the longest ones lose the most. If this is not enough, events in
    the middle of the turn are omitted.
    """
    events = turn["events"]
    kept = _select_first_and_last_events_that_fit(events, size)
    shortened: TurnJson = {**turn, "events": deepcopy(kept)}
    texts = [text for event in shortened["events"] for text in _find_shortenable_texts(event)]
    fixed = len(format_xml_element("turn", shortened, 4)) + 1 - sum(text.size for text in texts)
    limit = _compute_max_text_size([text.size for text in texts], size - fixed)
    for text in texts:
        text.shorten_to_xml_size(limit)
    fact = f"turn {turn['turn']} is shortened"
    if left_out := len(events) - len(kept):
        verb = "is" if left_out == 1 else "are"
        fact += f": {left_out} of its {len(events)} events {verb} omitted from the middle"
    return shortened, ConversationAnswerNotice(
        fact, f"{_FEWER_KINDS_HINT} in `include`", f"{_FEWER_KINDS_HINT} with --include"
    )


def _cut_text_middle(text: str, keep: int) -> str:
    left = len(text) - keep
    if left <= 0:
        return text
    head = (keep + 1) // 2
    tail = text[len(text) - (keep - head) :]
    return f"{text[:head]}\n[… {left:,} characters left out …]\n{tail}"


def _compute_max_text_size(sizes: list[int], total: int) -> int:
    """Return the largest size of a text with which all texts together fit into `total`.

    The caller cuts longer texts to this size. `sizes` are the sizes of the uncut texts.
    """
    rest, count = total, len(sizes)
    for size in sorted(sizes):
        share = rest // count if count else 0
        if size > share:
            return max(0, share)
        rest -= size
        count -= 1
    return max(sizes, default=0)


def _select_first_and_last_events_that_fit(
    events: list[ConversationEventJson], size: int
) -> list[ConversationEventJson]:
    """Return as many of a turn's first and last events as fit into `size` characters of XML.

    A text longer than `_MIN_TEXT_LENGTH` counts as only that many characters, because the caller can
    shorten it to that length.
    """
    sizes = []
    for event in events:
        spare = sum(max(0, text.size - _MIN_TEXT_LENGTH) for text in _find_shortenable_texts(event))
        sizes.append(len(format_xml_element("event", event, 8)) + 1 - spare)
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


def _find_shortenable_texts(event: ConversationEventJson) -> Iterator[_ShortenableText]:
    if isinstance(content := event["content"], str):
        size = _measure_length_in_xml(content, is_json=False)
        yield _ShortenableText(event, "content", False, size)
    values = event.get("arguments") or event.get("fields") or {}
    yield from _find_shortenable_strings_in_json(values)


def _find_shortenable_strings_in_json(value: Any) -> Iterator[_ShortenableText]:
    """Yield the strings at all levels of a JSON value."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, str):
            size = _measure_length_in_xml(item, is_json=True)
            yield _ShortenableText(value, key, True, size)
        elif isinstance(item, dict | list):
            yield from _find_shortenable_strings_in_json(item)
