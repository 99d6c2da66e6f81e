"""The user's marks in searches: which turns a filter `mark:` selects, and the marks on hits."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.userdata import MARKS_FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbtui.search.search_request_and_answer import SearchAnswer, SearchRequest
    from kbtui.userdata.mark_store import MarkStore
    from kbtui.workspace import Workspace

_MARK_FILTERS = ("mark:", "marked:")


def list_marked_turns(workspace: Workspace, request: SearchRequest) -> tuple[str, ...]:
    """Return the value of `SearchRequest.marked`: empty if the request has no filter by marks.

    It is also empty if the marks cannot be read. `add_marks_to_hits` adds the notice that says so.
    """
    query = request.query.lower()
    if request.marks or any(key in query for key in _MARK_FILTERS):
        store = _open_mark_store(workspace)
        with suppress(KbtuiError):
            return tuple(store.list_marked_turns()) if store else ()
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
        if store := _open_mark_store(workspace):
            found[name], notice = store.map_marks_of_conversations(wanted)
            if notice is not None:
                answer = answer.add_notices(notice)
    if not any(found.values()):
        return answer
    hits = []
    for hit in answer.hits:
        marks = [
            mark.make_mark_facts_json()
            for name in (hit.workspace, *hit.also_in)
            for mark in found.get(name, {})
            .get(hit.conversation_id or "", {})
            .get(hit.turn or 0, ())
        ]
        hits.append(hit._replace(marks=marks) if marks else hit)
    return answer._replace(hits=hits)


def _open_mark_store(workspace: Workspace) -> MarkStore | None:
    """Return the store of the user's marks, or None if there is none yet.

    The module `mark_store` is imported only if there are marks, because the import takes 3 ms.
    """
    try:
        (workspace.data_dir / MARKS_FILE_NAME).stat()
    except FileNotFoundError:
        return None
    except OSError:
        pass  # The store reports that it cannot be read.
    from kbtui.userdata.mark_store import MarkStore

    return MarkStore(workspace)
