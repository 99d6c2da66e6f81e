"""Finds the subjects and conversations that a search filter selects, for the library pane."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbtui.index.index_reader import IndexReader
    from kbtui.search.search_request_and_answer import QueryMistake, SearchRequest
    from kbtui.workspace import Workspace


class EntriesOfFilter(NamedTuple):
    """The ids of the entries that a filter selects, and the mistakes in the filter."""

    entries: frozenset[str] = frozenset()
    mistakes: tuple[QueryMistake, ...] = ()


def find_entries_of_filter(
    workspace: Workspace, reader: IndexReader, request: SearchRequest
) -> EntriesOfFilter:
    """Return the entries that have a passage selected by the filters in `request`."""
    # The library pane imports this module before anything is searched.
    from kbtui.search.search_pipeline import SearchRun

    run = SearchRun(workspace, reader, request)
    if run.mistakes:
        return EntriesOfFilter(mistakes=tuple(run.mistakes))
    chunks = reader.get_visible_chunk_ids(
        run.keyword_search.list_entry_chunks(), hidden=request.hidden, archived=request.archived
    )
    return EntriesOfFilter(frozenset(entry_id for _, entry_id in chunks.values()))
