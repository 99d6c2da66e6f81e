"""The library's filter line: words for titles, and filters for conversations.

Every text is a filter; what is wrong with a part of it is a `QueryError` that says where,
and that part narrows nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kbtui.notices import phrase
from kbtui.search.filters import Filter, FilterError, filters_for
from kbtui.search.query_parser import QueryError, parse_query

if TYPE_CHECKING:
    from datetime import datetime

    from kbtui.conversations.formats.jp import ConversationSummary
    from kbtui.conversations.models import ConversationInfo
    from kbtui.search.query_parser import AlmostFilter, QueryFilter


class FilterCondition(NamedTuple):
    """One condition on conversations: one of the values must hold."""

    filter: Filter
    values: tuple[Any, ...]
    excluded: bool

    def holds(self, info: ConversationInfo, summary: ConversationSummary | None) -> bool:
        """Whether a conversation meets it; one that was not read meets no tool and no model."""
        condition = self.filter.library
        if condition is None or (summary is None and self.filter.needs_summary):
            return False
        # A condition that needs no summary does not look at it.
        found = any(condition(info, summary, value) for value in self.values)  # type: ignore[arg-type]
        return found != self.excluded


class LibraryFilter(NamedTuple):
    """A filter, read. `words` must stand in a title or slug, `without` must not."""

    words: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    parts: tuple[FilterCondition, ...] = ()
    errors: tuple[QueryError, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.words or self.without or self.parts)

    @property
    def needs_summaries(self) -> bool:
        """Whether it asks for what only reading the conversations tells."""
        return any(part.filter.needs_summary for part in self.parts)

    def matches_title(self, text: str) -> bool:
        """Whether a title or slug has the words."""
        folded = text.casefold()
        return all(word in folded for word in self.words) and not any(
            word in folded for word in self.without
        )

    def matches(self, info: ConversationInfo, summary: ConversationSummary | None) -> bool:
        """Whether a conversation is shown; without its summary, not by tool or model."""
        return self.matches_title(info.name) and all(
            part.holds(info, summary) for part in self.parts
        )


def parse_library_filter(text: str, now: datetime, *, partial: bool = False) -> LibraryFilter:
    """Read a filter; while it is being typed, its last part may be unfinished and is no error."""
    query = parse_query(text, partial=partial, surface="library")
    parts: list[FilterCondition] = []
    errors = [_error_in(word) for word in query.almost_filters]
    for part in query.filters:
        try:
            parts.append(_condition(part, now))
        except FilterError as error:
            if not part.unfinished:
                errors.append(QueryError(part.start, part.end, error.message, error.hint))
    return LibraryFilter(
        tuple(word.casefold() for word in (*query.words, *query.phrases)),
        tuple(word.casefold() for word in query.excluded),
        tuple(parts),
        tuple(sorted(errors)),
    )


def _error_in(word: AlmostFilter) -> QueryError:
    if word.notice.code == "filter_without_value":
        key = str(word.notice.values["word"])[:-1].lower()
        about = filters_for("library")[key].about
        return QueryError(word.start, word.end, "needs a value", about)
    return QueryError(word.start, word.end, phrase(word.notice), "")


def _condition(part: QueryFilter, now: datetime) -> FilterCondition:
    row = filters_for("library")[part.key]
    given = [value for value in part.values if value]
    values: list[Any] = []
    for value in given:
        if row.kind == "date":
            values.append(row.read_date(value, now))
        elif row.kind == "choice":
            values += row.read_choice(value)
        else:
            values.append(value.casefold())
    if not values:
        raise FilterError("needs a value", row.about)
    return FilterCondition(row, tuple(values), part.excluded)
