"""Looks up the user's marks on turns and hits, and the turns that a `mark:` filter selects."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, UsageError
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import parse_conversation_ref
from kbtui.userdata import MARKS_FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kbtui.conversations.turn_decision_marks import MarkFactsJson, PlacedMark
    from kbtui.notices import Notice
    from kbtui.search.search_request_and_answer import SearchAnswer, SearchRequest
    from kbtui.userdata.turn_mark_store import MarkStore
    from kbtui.workspace import Workspace

_MARK_FILTERS = ("mark:", "marked:")


def list_marked_turns_if_search_filters_by_marks(
    workspace: Workspace, request: SearchRequest
) -> tuple[str, ...]:
    """Return the marked turns for `SearchRequest.marked`, if the request filters by marks.

    The result is () if the request does not filter by marks, or if the marks cannot be read. In the
    second case, `add_marks_to_hits` adds a notice.
    """
    query = request.query.lower()
    if request.marks or any(key in query for key in _MARK_FILTERS):
        store = _open_mark_store(workspace)
        with suppress(KbtuiError):
            return tuple(store.list_states_of_marked_turns()) if store else ()
    return ()


class MarksOfTurns(NamedTuple):
    """The marks on turns of several conversations.

    `by_turn` maps a conversation and a turn number to the marks on this turn, oldest first. If the
    marks cannot be read, `by_turn` is empty, and `notice` says so.
    """

    by_turn: Mapping[tuple[str, int], Sequence[PlacedMark]] = {}
    notice: Notice | None = None

    def get_marks_of_turn(self, ref: str) -> Sequence[PlacedMark]:
        """Return the marks on the turn that `ref` refers to.

        If `ref` refers to a call, the result contains the marks on the turn that contains the call.
        For any other reference, the result is ().
        """
        if not self.by_turn:
            return ()
        key = _parse_turn_of_reference(ref)
        return self.by_turn.get(key, ()) if key else ()

    def get_mark_labels_of_turn(self, ref: str) -> list[str]:
        """Return the marks on the turn that `ref` refers to, each as one line.

        The lines are safe for a terminal.
        """
        return [mark.label_in_turn for mark in self.get_marks_of_turn(ref)]

    def make_turn_marks_json_fields(self, ref: str) -> dict[str, list[MarkFactsJson]]:
        """Return `{"marks": […]}` with the marks on the turn that `ref` refers to; {} if there are none."""
        from kbtui.conversations.turn_decision_marks import make_marks_json_field_of_turn

        return make_marks_json_field_of_turn(self.get_marks_of_turn(ref))


def find_all_marks_in_conversations_of_turns(
    workspace: Workspace, refs: Iterable[str]
) -> MarksOfTurns:
    """Return all marks in the conversations that contain the turns and calls in `refs`.

    References to anything else are ignored. Conversations that cannot be read are left out. If the
    marks cannot be read, the result contains a notice.
    """
    found = (_parse_turn_of_reference(ref) for ref in refs)
    return find_marks_of_conversations(workspace, (turn[0] for turn in found if turn))


def find_marks_of_conversations(workspace: Workspace, conversations: Iterable[str]) -> MarksOfTurns:
    """Return the marks on all turns of the given conversations.

    If the marks cannot be read, the result contains a notice.
    """
    store = _open_mark_store(workspace)
    if store is None:
        return MarksOfTurns()
    return MarksOfTurns(*store.map_marks_of_conversations(conversations))


def _parse_turn_of_reference(ref: str) -> tuple[str, int] | None:
    with suppress(UsageError):
        parsed = parse_conversation_ref(ref)
        if parsed.conversation and parsed.turn:
            return parsed.conversation, parsed.turn
    return None


def add_marks_to_hits(
    answer: SearchAnswer, workspaces: Mapping[str | None, Workspace]
) -> SearchAnswer:
    """Add the user's marks on turns to the hits in these turns; return the new answer.

    `workspaces` maps the values of `Hit.workspace` to workspaces. In a search of only one
    workspace, this value is None. A hit that occurs in several workspaces gets the marks from
    all of them. If marks cannot be read, the answer contains a notice.
    """
    wanted = {hit.conversation_id for hit in answer.hits if hit.conversation_id}
    found = {}
    for name, workspace in workspaces.items():
        found[name] = find_marks_of_conversations(workspace, wanted)
        if notice := found[name].notice:
            answer = answer.prepend_notices(notice)
    if not any(one.by_turn for one in found.values()):
        return answer
    hits = []
    for hit in answer.hits:
        marks = [
            mark.make_json_for_hit_or_turn()
            for name in (hit.workspace, *hit.also_in)
            if name in found
            for mark in found[name].by_turn.get((hit.conversation_id or "", hit.turn or 0), ())
        ]
        hits.append(hit._replace(marks=marks) if marks else hit)
    return answer._replace(hits=hits)


def _open_mark_store(workspace: Workspace) -> MarkStore | None:
    """Return the store of the user's marks, or None if there is none yet.

    The module `turn_mark_store` is imported only if there are marks, because the import takes 3 ms.
    """
    try:
        (workspace.user_data_directory / MARKS_FILE_NAME).stat()
    except FileNotFoundError:
        return None
    except OSError:
        pass  # When the store is used, it reports that the file cannot be read.
    from kbtui.userdata.turn_mark_store import MarkStore

    return MarkStore(workspace)
