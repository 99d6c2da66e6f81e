"""The user's marks in searches: which turns a filter `mark:` selects, and the marks on hits."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.userdata.mark_store import MarkStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbtui.search.search_request_and_answer import SearchAnswer, SearchRequest
    from kbtui.workspace import Workspace

_MARK_FILTER = re.compile("mark(ed)?:", re.IGNORECASE)


def list_marked_turns(workspace: Workspace, request: SearchRequest) -> tuple[str, ...]:
    """Return the value of `SearchRequest.marked`: empty if the request has no filter by marks.

    It is also empty if the marks cannot be read. `add_marks_to_hits` adds the notice that says so.
    """
    if request.marks or _MARK_FILTER.search(request.query):
        with suppress(KbtuiError):
            return tuple(MarkStore(workspace).list_marked_turns())
    return ()


def add_marks_to_hits(
    answer: SearchAnswer, workspaces: Mapping[str | None, Workspace]
) -> SearchAnswer:
    """Return the answer with the user's marks on the turns of its hits.

    `workspaces` maps the value of `Hit.workspace`, which is None in a search of one workspace, to the
    workspace. A hit that is also in other workspaces has their marks, too. If marks cannot be read, the
    answer has a notice.
    """
    wanted = {hit.conversation_id for hit in answer.hits if hit.conversation_id}
    found = {}
    for name, workspace in workspaces.items():
        found[name], notice = MarkStore(workspace).map_marks_of_conversations(wanted)
        if notice is not None:
            answer = answer.add_notices(notice)
    if not any(found.values()):
        return answer
    hits = []
    for hit in answer.hits:
        marks = [
            mark.make_facts()
            for name in (hit.workspace, *hit.also_in)
            for mark in found.get(name, {})
            .get(hit.conversation_id or "", {})
            .get(hit.turn or 0, ())
        ]
        hits.append(hit._replace(marks=marks) if marks else hit)
    return answer._replace(hits=hits)
