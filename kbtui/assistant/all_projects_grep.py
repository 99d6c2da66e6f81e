"""Searches the conversations of all workspaces that the user has opened, line by line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kbtui.assistant.conversation_tool_answers import (
    ConversationGrepAnswer,
    ConversationGrepLine,
    ConversationToolNotice,
    format_xml_element,
)
from kbtui.assistant.conversation_tools import (
    compute_characters_left_for_rows,
    make_larger_answer_hint,
    make_omitted_matches_notice,
)
from kbtui.errors import KbtuiError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbtui.userdata.workspace_registry import RegisteredWorkspace
    from kbtui.workspace import Workspace


def grep_all_projects(
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
    room = None if max_chars is None else compute_characters_left_for_rows(max_chars)
    seen: set[tuple[str, str]] = set()
    for number, one in enumerate(registered):
        root = str(one.workspace.root)
        # Assistants must not see paths.
        name = one.label if answer.is_bounded else root
        if one.is_missing:
            hint = "`kbtui workspaces forget --missing` forgets such workspaces"
            fact = f"{name} was not searched, because its directory does not exist"
            answer.notices.append(ConversationToolNotice(fact, "", hint))
            continue
        try:
            found = grep_workspace(one.workspace)
        except UsageError:
            raise
        except (KbtuiError, OSError) as error:
            reason = error.message if isinstance(error, KbtuiError) else error.strerror
            answer.notices.append(ConversationToolNotice(f"{name} was not searched: {reason}"))
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
        room = _add_hits_up_to_limit(answer, labelled, limit, room)
        for notice in found.notices:
            if notice is not found.omitted_matches_notice:
                answer.notices.append(notice._replace(fact=f"{one.label}: {notice.fact}"))
    if answer.omitted_match_count:
        is_cut = room is not None and answer.count < limit
        larger = make_larger_answer_hint(max_chars, is_cut)
        notice = make_omitted_matches_notice(answer, None, larger)
        answer.omitted_matches_notice = notice
        answer.notices.append(notice)
    return answer


def _add_hits_up_to_limit(
    answer: ConversationGrepAnswer, hits: list[ConversationGrepLine], limit: int, room: int | None
) -> int | None:
    """Add the hits of one workspace to `answer`. Return how many characters of XML are left of `room`.

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
