"""Searches the conversations of all workspaces that the user has opened, line by line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kbtui.assistant.conversation_tool_answers import (
    ConversationGrepAnswer,
    ConversationGrepLine,
    ConversationToolNotice,
)
from kbtui.assistant.conversation_tools import make_omitted_matches_notice
from kbtui.errors import KbtuiError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbtui.userdata.workspace_registry import RegisteredWorkspace
    from kbtui.workspace import Workspace


def grep_all_projects(
    registered: Sequence[RegisteredWorkspace],
    grep_workspace: Callable[[Workspace], ConversationGrepAnswer],
    limit: int,
) -> ConversationGrepAnswer:
    """Search the conversations of several workspaces, and join the answers in the order of the workspaces.

    The answer has at most `limit` matches. A conversation that several workspaces of a project contain
    counts once. A workspace that cannot be searched is named in a notice. Raises `UsageError` for an
    invalid argument.
    """
    answer = ConversationGrepAnswer(is_bounded=False)
    seen: set[tuple[str, str]] = set()
    for number, one in enumerate(registered):
        root = str(one.workspace.root)
        if one.is_missing:
            hint = "`kbtui workspaces forget --missing` forgets such workspaces"
            fact = f"{root} was not searched, because the directory does not exist"
            answer.notices.append(ConversationToolNotice(fact, "", hint))
            continue
        try:
            found = grep_workspace(one.workspace)
        except UsageError:
            raise
        except (KbtuiError, OSError) as error:
            answer.notices.append(ConversationToolNotice(f"{root} was not searched: {error}"))
            continue
        new = [row for row in found.conversations if (one.project_key, row.id) not in seen]
        seen |= {(one.project_key, row.id) for row in new}
        answer.conversations += [row._replace(project=one.project, workspace=root) for row in new]
        answer.total += sum(row.matches for row in new)
        ids = {row.id for row in new}
        hits = [hit for hit in found.hits if hit.id in ids]
        _add_hits_up_to_limit(answer, hits, limit, one.project, root, first_block=number << 48)
        for notice in found.notices:
            if notice is not found.omitted_matches_notice:
                answer.notices.append(notice._replace(fact=f"{one.project}: {notice.fact}"))
    if answer.omitted_match_count:
        notice = make_omitted_matches_notice(answer, None)
        answer.omitted_matches_notice = notice
        answer.notices.append(notice)
    return answer


def _add_hits_up_to_limit(
    answer: ConversationGrepAnswer,
    hits: list[ConversationGrepLine],
    limit: int,
    project: str,
    workspace: str,
    *,
    first_block: int,
) -> None:
    """Add lines of one workspace. Leave out the context of matching lines that exceed the limit."""
    added = []
    for hit in hits:
        if hit.line.is_match:
            if answer.count == limit:
                break
            answer.count += 1
        added.append(
            replace(hit, block=first_block + hit.block, project=project, workspace=workspace)
        )
    matching = {hit.block for hit in added if hit.line.is_match}
    answer.hits += [hit for hit in added if hit.block in matching]
