"""The suggestions in the results pane before the user types: earlier and saved searches, bookmarks, filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from kbtui.errors import WorkspaceError
from kbtui.search.filter_definitions import list_filters_of_input
from kbtui.text import measure_text_width, sanitize_to_one_line
from kbtui.tui.framework.row_list import ListRow, make_heading_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kbtui.userdata.user_data_store import SavedSearch, UserData

MAX_SUGGESTIONS_OF_A_KIND = 8
"""At most this many earlier searches, and this many bookmarks, are suggested."""
NAME_WIDTH = 24
"""The width, in terminal cells, of the column with names and examples.

The explanations are in the next column.
"""


class SearchSuggestion(NamedTuple):
    """A row of the list that an empty search shows.

    `text` is the query of an earlier search, or the beginning of a filter. A bookmark has the reference `ref`
    and a `title`. A saved search is in `saved`.
    """

    kind: Literal["recent", "saved", "bookmark", "filter"]
    text: str = ""
    ref: str = ""
    title: str = ""
    saved: SavedSearch | None = None


class LoadedSuggestions(NamedTuple):
    """Suggestions, and the reasons why others could not be read."""

    suggestions: list[SearchSuggestion]
    problems: list[str]


def load_search_suggestions(data: UserData, recent: Iterable[str]) -> LoadedSuggestions:
    """Return the earlier searches, saved searches, bookmarks and filters, in this order.

    `recent` are the searches of this session, newest first; the query log has earlier ones.
    """
    found: list[SearchSuggestion] = []
    problems: list[str] = []

    def add_earlier_searches() -> None:
        queries = dict.fromkeys([*recent, *data.query_log.list_recent_queries()])
        found.extend(
            [SearchSuggestion("recent", text) for text in queries][:MAX_SUGGESTIONS_OF_A_KIND]
        )

    def add_saved_searches_and_bookmarks() -> None:
        found.extend(
            SearchSuggestion("saved", one.query, saved=one) for one in data.list_saved_searches()
        )
        found.extend(
            SearchSuggestion("bookmark", ref=one.ref, title=one.title or one.ref)
            for one in data.list_bookmarks()[:MAX_SUGGESTIONS_OF_A_KIND]
        )

    readers: dict[str, Callable[[], None]] = {
        "Earlier searches cannot be read": add_earlier_searches,
        "Saved searches and bookmarks cannot be read": add_saved_searches_and_bookmarks,
    }
    for problem, read in readers.items():
        try:
            read()
        except WorkspaceError as error:
            problems.append(f"{problem}: {error}")
    return LoadedSuggestions([*found, *list_filter_suggestions()], problems)


def list_filter_suggestions() -> list[SearchSuggestion]:
    """Return one suggestion for each filter of the search."""
    return [SearchSuggestion("filter", f"{row.key}:") for row in list_filters_of_input("search")]


HEADINGS = {
    "recent": "EARLIER SEARCHES",
    "saved": "SAVED SEARCHES",
    "bookmark": "BOOKMARKS",
    "filter": "FILTERS",
}


def iterate_suggestion_rows(suggestions: Iterable[SearchSuggestion]) -> Iterator[ListRow]:
    """Yield a row for each suggestion, and a heading before the first of each kind."""
    about = {f"{row.key}:": row for row in list_filters_of_input("search")}
    kind = ""
    for number, one in enumerate(suggestions):
        if one.kind != kind:
            kind = one.kind
            yield make_heading_row(kind, HEADINGS[kind])
        name, note = sanitize_to_one_line(one.title or one.text), ""
        if one.saved is not None:
            name, note = sanitize_to_one_line(one.saved.name), sanitize_to_one_line(one.text)
        elif kind == "bookmark":
            note = sanitize_to_one_line(one.ref)
        elif kind == "filter":
            name, note = about[one.text].example or one.text, about[one.text].about
        gap = " " * max(2, NAME_WIDTH - measure_text_width(name)) if note else ""
        yield ListRow(
            f"suggestion:{kind}:{number}", [(name, "strong"), (f"{gap}{note}", "dim")], data=one
        )
