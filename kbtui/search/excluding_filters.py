"""Finds the filters because of which a search has no hits, so that front ends can name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kbtui.notices import Notice
from kbtui.search.filter_definitions import list_filters_of_input, quote_filter_value
from kbtui.search.search_request_and_answer import SearchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kbtui.search.query_parser import ParsedQuery


class _FilterInEffect(NamedTuple):
    """A filter as users write it, and where it is: the offsets in the query, or the field of the request."""

    text: str
    span: tuple[int, int] | None
    field: str | None


def find_excluding_filters(
    query: ParsedQuery, request: SearchRequest, count_matches: Callable[[SearchRequest], int]
) -> Notice | None:
    """Return a notice that names the filters because of which a query has no hits.

    If removing a single filter gives hits, only this filter is named. Returns None if the search
    has no filters, or if it would find nothing without them either. `request` is the original
    request, and `count_matches` counts the passages that match a request by keywords.
    """
    filters = _list_filters_in_effect(query, request)
    for one in filters:
        if count := count_matches(_remove_filters(query, request, [one])):
            return _make_notice([one], count)
    if len(filters) > 1 and (count := count_matches(_remove_filters(query, request, filters))):
        return _make_notice(filters, count)
    return None


def _make_notice(filters: Iterable[_FilterInEffect], count: int) -> Notice:
    return Notice(
        "filters_leave_nothing", {"filters": [one.text for one in filters], "total": count}
    )


def _list_filters_in_effect(query: ParsedQuery, request: SearchRequest) -> list[_FilterInEffect]:
    found = [
        _FilterInEffect(query.text[part.start : part.end], (part.start, part.end), None)
        for part in query.filters
    ]
    defaults = SearchRequest._field_defaults
    for row in list_filters_of_input("search"):
        value = getattr(request, row.search, None)
        if value in (None, (), defaults.get(row.search)):
            continue
        values = value if isinstance(value, tuple) else (value.date().isoformat(),)
        shown = ",".join(quote_filter_value(one) for one in values)
        found.append(_FilterInEffect(f"{row.key}:{shown}", None, row.search))
    return found


def _remove_filters(
    query: ParsedQuery, request: SearchRequest, filters: Sequence[_FilterInEffect]
) -> SearchRequest:
    changed: dict[str, Any] = {
        one.field: SearchRequest._field_defaults[one.field] for one in filters if one.field
    }
    text = query.text
    for start, end in sorted((one.span for one in filters if one.span), reverse=True):
        text = f"{text[:start]} {text[end:]}"
    return request._replace(**changed, query=text)
