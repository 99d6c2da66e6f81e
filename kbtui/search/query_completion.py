"""Completes filters in a query: their keys, and values that exist in the workspace."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbtui.search.filter_definitions import (
    FilterDefinition,
    list_filters_accepted_by_input_field,
    map_filter_keys_and_aliases_to_definitions,
    quote_filter_value,
)
from kbtui.terminal_text import format_counted_noun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kbtui.conversations.conversation_data_types import (
        ConversationInfo,
        ConversationToolsAndModels,
    )
    from kbtui.index.index_reader import IndexReader
    from kbtui.knowledge import KnowledgeBase
    from kbtui.search.filter_definitions import FilterInput

MAX_COMPLETIONS = 20
DATE_COMPLETIONS = {
    "today": "since midnight",
    "yesterday": "since the beginning of yesterday",
    "3d": "three days",
    "2w": "two weeks",
    "1m": "a month",
    "1y": "a year",
}

_TYPED_PART = (
    r"(?:^|(?<=\s))-?(?:(?P<key>{}):(?P<done>(?:[^\s\",]*,)*))?"
    r'(?P<part>"[^"]*|[^\s",]*)$'
)


@dataclass(frozen=True)
class QueryCompletion:
    """Text that replaces the characters `start` to `end` of a query. `note` describes this text."""

    start: int
    end: int
    text: str
    note: str


def list_query_completions(
    text: str,
    cursor: int,
    knowledge: KnowledgeBase,
    reader: IndexReader | None = None,
    *,
    filter_input: FilterInput = "search",
    conversations: Sequence[ConversationInfo] = (),
    summaries: Collection[ConversationToolsAndModels] = (),
    projects: Sequence[str] = (),
) -> list[QueryCompletion]:
    """Return up to `MAX_COMPLETIONS` completions of the word before the cursor.

    Values that begin with the typed text come first. Types, arguments and files come from the index
    of visible entries, if there is one. Labels and worktrees come from `conversations`. Tools,
    models and agents come from the index, or from `conversations` and their `summaries`.
    """

    def list_counted_or_known_filter_values(
        row: FilterDefinition, part: str
    ) -> list[tuple[str, str]]:
        counted = _count_values_of_conversations(row, conversations, summaries)
        if row.kind == "project":
            return [*((name, "project") for name in projects), *counted]
        return counted or _list_filter_values(row, part, knowledge, reader)

    return list_filter_completions(text, cursor, filter_input, list_counted_or_known_filter_values)


def _count_values_of_conversations(
    row: FilterDefinition,
    conversations: Sequence[ConversationInfo],
    summaries: Collection[ConversationToolsAndModels],
) -> list[tuple[str, str]]:
    """Return the values of a filter that occur in conversations, each with a count.

    The most frequent value comes first.
    """
    counts: Counter[str] = Counter()
    if row.key == "label":
        for info in conversations:
            counts.update(info.labels.keys())
            counts.update(f"{key}={value}" for key, value in info.labels.items() if value)
    elif row.key == "agent":
        counts.update(info.agent for info in conversations if info.parent is None)
    elif row.key == "project":
        counts.update(info.worktree for info in conversations if info.worktree)
    elif row.key in {"tool", "model"}:
        for summary in summaries:
            counts.update(summary.tools if row.key == "tool" else summary.models)
    order = sorted(counts, key=lambda one: (-counts[one], one))
    return [(one, format_counted_noun(counts[one], "conversation")) for one in order]


def list_filter_completions(
    text: str,
    cursor: int,
    filter_input: FilterInput,
    list_values: Callable[[FilterDefinition, str], list[tuple[str, str]]],
) -> list[QueryCompletion]:
    """Return up to `MAX_COMPLETIONS` filters or filter values that complete the word before the cursor.

    `filter_input` is the input field ("search", "library" or "entries") whose filters are
    completed. `list_values(filter, beginning)` returns values of a filter, each with a note.
    """
    known = map_filter_keys_and_aliases_to_definitions(filter_input)
    match = re.search(_TYPED_PART.format("|".join(known)), text[:cursor], re.IGNORECASE)
    if match is None:
        return []
    start, part = match.start("part"), match["part"].lstrip('"').lower()
    if match["key"] is None:
        if match["part"].startswith('"') or not (part or not text.strip()):
            return []
        return [
            QueryCompletion(start, cursor, f"{row.key}:", row.about)
            for row in list_filters_accepted_by_input_field(filter_input)
            if f"{row.key}:".startswith(part) and f"{row.key}:" != part
        ]
    values = list_values(known[match["key"].lower()], part)
    found = [pair for pair in values if part in f"{pair[0]} {pair[1]}".lower()]
    found.sort(key=lambda pair: not pair[0].lower().startswith(part))
    return [
        QueryCompletion(start, cursor, quote_filter_value(value), note)
        for value, note in found[:MAX_COMPLETIONS]
        if value.lower() != part
    ]


def _list_filter_values(
    row: FilterDefinition, part: str, knowledge: KnowledgeBase, reader: IndexReader | None
) -> list[tuple[str, str]]:
    if row.kind == "topic":
        return [(topic.id, topic.name) for topic in knowledge.topics.values() if topic.enable]
    if row.kind in {"term", "argument", "agent", "file"} and reader is not None:
        searcher = reader.open_keyword_index().searcher()
        if row.kind == "file":
            return _list_file_names_in_tool_arguments(searcher, part)
        begun = part if row.kind == "argument" else ""
        terms = searcher.terms_with_prefix(row.term, begun, limit=200)
        return [(term, format_counted_noun(count, "passage")) for term, count in terms]
    return list_fixed_filter_values(row)


FILE_ARGUMENTS = ("path", "file_path", "filepath", "absolute_path", "filename", "file")
"""The names of the arguments that contain a file's path in tool calls, in lower case as in the index."""


def _list_file_names_in_tool_arguments(searcher: Any, part: str) -> list[tuple[str, str]]:
    """Return the file names that begin with `part`, from arguments of tool calls, the most frequent first."""
    counts: Counter[str] = Counter()
    for argument in FILE_ARGUMENTS:
        for term, count in searcher.terms_with_prefix("arg", f"{argument}={part}", limit=200):
            counts[term.partition("=")[2]] += count
    return [(name, format_counted_noun(count, "call")) for name, count in counts.most_common()]


def list_fixed_filter_values(row: FilterDefinition) -> list[tuple[str, str]]:
    """Return the values that a filter accepts in every workspace, each with a note."""
    if row.kind == "choice":
        groups = {name: " and ".join(row.choices[name]) for name in row.shown_choices}
        return [(name, "" if " " not in text else text) for name, text in groups.items()]
    if row.kind == "date":
        return [*DATE_COMPLETIONS.items(), (datetime.now().date().isoformat(), "a day")]
    return []
