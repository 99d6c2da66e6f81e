"""Searches subjects and conversations line by line for a regular expression. Each matching line is a hit."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

from kbtui.conversations.conversation_grep import (
    GrepQuery,
    cut_line_around_match,
    grep_turns,
    make_grep_pattern,
)
from kbtui.conversations.conversation_repository import (
    get_conversation_format,
    list_conversations,
)
from kbtui.errors import KbtuiError, UsageError
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.knowledge import load_knowledge, read_subject_text
from kbtui.knowledge.front_matter import split_front_matter
from kbtui.library.index_and_engine_access import get_current_cancellation
from kbtui.notices import Notice
from kbtui.references import make_conversation_ref, make_subject_ref
from kbtui.search.filter_definitions import split_regex_query
from kbtui.search.query_parsing_and_filter_application import parse_query
from kbtui.search.search_request_and_answer import MAX_HITS, Hit, QueryMistake, SearchAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.conversations.conversation_data_types import ConversationInfo
    from kbtui.conversations.conversation_grep import GrepPattern
    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.library import Library
    from kbtui.workspace import Workspace

PATTERN_SEARCH_SECONDS = 10
"""A search for a regular expression stops after this many seconds."""
ENTRY_FILTERS = ("topic", "in", "type", "title", "agent", "label", "is", "project")
"""The filters that select whole entries. Other filters select passages, so a search for lines cannot use them."""
MAX_LINES_OF_ENTRY = 50
"""One subject or conversation has at most this many hits."""


def search_lines_by_pattern(
    library: Library,
    query: str,
    *,
    hidden: bool = False,
    limit: int = MAX_HITS,
    per_entry: int = 0,
) -> SearchAnswer:
    """Return the lines of subjects and live conversations that match a regular expression in RE2's syntax.

    Subjects come first, then conversations, newest first. Case is ignored. `query` is the text that
    the user typed: the expression between slashes, and filters that select whole entries. At most
    `per_entry` lines of an entry are hits (0: up to `MAX_LINES_OF_ENTRY`). If the expression is
    invalid, the answer's `mistakes` say so. The search stops after `PATTERN_SEARCH_SECONDS` or at
    `limit` lines, and a notice says so.

    The lines are read from the files; the index is used only to apply filters. The search can be
    cancelled before each file.
    """
    expression, filters = split_regex_query(query) or ("", "")
    deadline = time.monotonic() + PATTERN_SEARCH_SECONDS
    try:
        pattern = make_grep_pattern(expression, is_regex=True, deadline=deadline)
    except UsageError as error:
        mistake = QueryMistake(0, len(query), error.message, error.hint or "")
        return _make_answer_about_query_mistake(query, mistake)
    parts = parse_query(filters).filters
    for part in parts:
        if part.key not in ENTRY_FILTERS:
            text = f"{part.key}: cannot be combined with a regular expression between slashes"
            hint = f"these filters can: {', '.join(ENTRY_FILTERS)}"
            return _make_answer_about_query_mistake(
                query, QueryMistake(part.start, part.end, text, hint)
            )
    selected = None
    if parts:
        selected, mistakes = library.find_entries_of_filter(filters, hidden=hidden)
        if mistakes:
            return _make_answer_about_query_mistake(query, mistakes[0])
    is_archived_wanted = any(part.key == "is" and "archived" in part.values for part in parts)
    hits: list[Hit] = []
    left_out = 0
    notices = [Notice("regular_expression")]
    cancellation = get_current_cancellation()
    for found in _iterate_matching_lines_of_entries(
        library.workspace,
        pattern,
        deadline,
        selected,
        hidden=hidden,
        archived=is_archived_wanted,
    ):
        cancellation.raise_if_cancelled()
        shown = found[:per_entry] if per_entry else found
        hits += [hit._replace(entry_passages=len(found)) for hit in shown]
        left_out += len(found) - len(shown)
        if len(hits) > limit:
            notices.append(Notice("pattern_hits_cut", {"limit": limit}))
            break
        if time.monotonic() > deadline:
            notices.append(Notice("pattern_out_of_time", {"total": PATTERN_SEARCH_SECONDS}))
            break
    hits = hits[:limit]
    return SearchAnswer(query, "lexical", hits, total=len(hits), left_out=left_out, notices=notices)


def _make_answer_about_query_mistake(query: str, mistake: QueryMistake) -> SearchAnswer:
    return SearchAnswer(query, "lexical", [], notices=[mistake.as_notice], mistakes=(mistake,))


def _iterate_matching_lines_of_entries(
    workspace: Workspace,
    pattern: GrepPattern,
    deadline: float,
    selected: frozenset[str] | None,
    *,
    hidden: bool,
    archived: bool,
) -> Iterator[list[Hit]]:
    """Yield a list of hits for each subject and conversation. The list can be empty.

    If `selected` is not None, only the entries with these ids are read.
    """

    def is_selected(entry_id: str) -> bool:
        return selected is None or entry_id in selected

    knowledge = load_knowledge(workspace)
    for topic in knowledge.topics.values():
        for subject in knowledge.iterate_subjects_of_topic(topic.id) if topic.enable else ():
            is_shown = not subject.disabled and (hidden or not subject.hidden)
            if is_shown and is_selected(make_subject_id(subject.topic, subject.slug)):
                yield _find_matching_lines_in_subject(subject, pattern)
    infos = [
        info
        for info in list_conversations(workspace, counts=False)
        if (archived or not info.archived) and is_selected(info.id)
    ]
    for info in sorted(infos, key=lambda one: one.make_time_sort_key(), reverse=True):
        yield _find_matching_lines_in_conversation(info, pattern, deadline)


def _find_matching_lines_in_subject(subject: Subject, pattern: GrepPattern) -> list[Hit]:
    try:
        text = read_subject_text(subject)
    except KbtuiError:
        return []
    hits: list[Hit] = []
    title = ""
    number, last = 1, 0
    for start, end, match in pattern.find_matching_lines(text):
        number += text.count("\n", last, start)
        last = start
        line = cut_line_around_match(text[start:end], match - start)
        title = title or split_front_matter(text).title or subject.slug.rpartition("/")[2]
        ref = str(make_subject_ref(subject.topic, subject.slug)._replace(lines=(number, number)))
        hits.append(
            Hit(
                ref, "subject", subject.ref, f"{subject.ref}:{number}", title, line, 1.0,
                matches=pattern.find_match_spans(line), topic=subject.topic, slug=subject.slug,
                lines=(number, number),
            )
        )  # fmt: skip
        if len(hits) == MAX_LINES_OF_ENTRY:
            break
    return hits


def _find_matching_lines_in_conversation(
    info: ConversationInfo, pattern: GrepPattern, deadline: float
) -> list[Hit]:
    if info.events_path is None:
        return []
    query = GrepQuery(pattern, limit=MAX_LINES_OF_ENTRY, deadline=deadline)
    turns, _, _ = get_conversation_format(info).load_turns_for_searching(info)
    found = grep_turns(turns, query)
    hits = []
    for at, line in enumerate(found.lines):
        ref = str(make_conversation_ref(info.id, line.turn)) if line.turn else info.ref
        hits.append(
            Hit(
                ref, "conversation", info.id, f"{info.id}:{at}", info.name, line.text, 1.0,
                matches=pattern.find_match_spans(line.text), conversation_id=info.id,
                turn=line.turn, role=line.scope, agent=info.agent, rewound=line.is_rewound,
                timestamp=datetime.fromisoformat(line.timestamp) if line.timestamp else None,
            )
        )  # fmt: skip
    return hits
