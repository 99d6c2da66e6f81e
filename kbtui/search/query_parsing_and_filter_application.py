"""Parses queries, and applies their filters to search requests."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from kbtui.dates import parse_time_zone
from kbtui.light_named_tuple import NamedTuple
from kbtui.notices import Notice
from kbtui.references import parse_ref
from kbtui.search.filter_definitions import (
    VALUE_PATTERN,
    FilterDefinition,
    FilterValueError,
    list_input_fields_accepting_filter,
    map_filter_keys_and_aliases_to_definitions,
    split_filter_values,
)
from kbtui.search.search_request_and_answer import QueryMistake

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kbtui.index.catalog_query import EntryFilter
    from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
    from kbtui.index.index_reader import IndexReader
    from kbtui.search.filter_definitions import FilterInput
    from kbtui.search.search_request_and_answer import SearchRequest
    from kbtui.workspace import Workspace


_SURROGATES = re.compile(r"[\ud800-\udfff]")
_FILTER_LIKE = re.compile(r"([a-z]{2,12}):(?![:/\\])(\S+)")


class QueryFilter(NamedTuple):
    """A filter `key:value,value` in a query, at the offsets `start` to `end`.

    `excluded` means that the filter has the form `-key:value`. `unfinished` means that the user is
    still typing the filter, so that the beginning of a valid value is not a mistake.
    """

    key: str
    values: tuple[str, ...]
    excluded: bool
    start: int
    end: int
    unfinished: bool = False


class FilterLikeWord(NamedTuple):
    """A word that looks like a filter, at the offsets `start` to `end` of the query."""

    start: int
    end: int
    notice: Notice


class ParsedQuery(NamedTuple):
    """A parsed query.

    A hit contains all `phrases` and none of the `excluded` texts. If there are no phrases, a
    keyword hit contains at least one of the `words`. `spoken` is the text for the search by
    meaning: the words and phrases as the user wrote them. `open` means that the query ends with a
    word that the user may still be typing.
    """

    text: str
    words: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    filters: tuple[QueryFilter, ...] = ()
    almost_filters: tuple[FilterLikeWord, ...] = ()
    spoken: str = ""
    open: bool = False

    @property
    def notices_about_filter_like_words(self) -> tuple[Notice, ...]:
        """Notices about words of the query that look like filters.

        Words that resemble no known filter get no notice; screens only mark them.
        """
        notices = (word.notice for word in self.almost_filters)
        return tuple(one for one in notices if one.values.get("suggestion") != "")


def _compile_query_part_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches one filter, phrase or word of a query."""
    return re.compile(
        r"(?P<no>(?<!\S)-(?=[^\s-]))?"
        rf"(?:(?P<key>(?<![^\s-])(?:{'|'.join(names)})):(?P<values>{VALUE_PATTERN}(?:,{VALUE_PATTERN})*)"
        r'|"(?P<phrase>[^"]*)(?:"|$)|(?P<word>[^\s"]+))',
        re.IGNORECASE,
    )


def parse_query(
    text: str, *, partial: bool = False, filter_input: FilterInput = "search"
) -> ParsedQuery:
    """Parse a query. Any string is a valid query.

    `filter_input` is the input field whose filters are recognized: "search", "library" or
    "entries".

    A phrase without a closing quotation mark extends to the end of the query. A lone `-` is
    ignored. `--flag` is a word. A filter with an unknown key is a word, too. `partial` means that
    the user is still typing the query, so a filter at its end may be unfinished.
    """
    words: list[str] = []
    phrases: list[str] = []
    excluded: list[str] = []
    filters: list[QueryFilter] = []
    almost_filters: list[FilterLikeWord] = []
    spoken: list[str] = []
    known = map_filter_keys_and_aliases_to_definitions(filter_input)
    # No document contains surrogates, and tantivy rejects them.
    text = _SURROGATES.sub("\ufffd", text)
    for match in _compile_query_part_pattern(known).finditer(text):
        start, end = match.span()
        typing = partial and end == len(text)
        if match["key"]:
            key = known[match["key"].lower()].key
            values = split_filter_values(match["values"])
            filters.append(QueryFilter(key, values, bool(match["no"]), start, end, typing))
            continue
        phrase = match["phrase"]
        part = match["word"] if phrase is None else phrase
        if not part.strip() or part == "-":
            continue
        if match["no"]:
            excluded.append(part)
            continue
        spoken.append(" ".join(part.split()))
        if phrase is not None:
            phrases.append(part)
            continue
        # A filter key without a value is a word in a search; other input fields ignore it.
        if filter_input == "search" or not (part.endswith(":") and part[:-1].lower() in known):
            words.append(part)
        notice = _make_filter_like_word_notice(part, known)
        # A key is complete as soon as a value follows, even if the user is still typing the value.
        if notice and not (typing and notice.code == "filter_without_value"):
            almost_filters.append(FilterLikeWord(start, end, notice))
    return ParsedQuery(
        text,
        tuple(words),
        tuple(phrases),
        tuple(excluded),
        tuple(filters),
        tuple(almost_filters),
        spoken=" ".join(spoken),
        open=bool(words) and not text[-1:].isspace() and text[-1:] != '"',
    )


def _make_filter_like_word_notice(word: str, known: Iterable[str]) -> Notice | None:
    """If a word looks like a filter, return a notice about it, otherwise None."""
    if word.endswith(":") and word[:-1].lower() in known:
        return Notice("filter_without_value", {"word": word})
    if match := _FILTER_LIKE.match(word.lower()):
        from difflib import get_close_matches

        if match[1] not in known and (inputs := list_input_fields_accepting_filter(match[1])):
            return Notice("filter_of_other_input", {"word": match[1], "inputs": inputs})
        if near := get_close_matches(match[1], known, n=1, cutoff=0.79):
            return Notice("unknown_filter", {"word": match[1], "suggestion": near[0]})
        if match[1] not in known and not match[2].isdigit():
            alike = [key for key in known if key[0] == match[1][0]]
            nearest = "".join(get_close_matches(match[1], alike, n=1, cutoff=0.6))
            others = {
                *map_filter_keys_and_aliases_to_definitions("library"),
                *map_filter_keys_and_aliases_to_definitions("entries"),
            } - {*known}
            elsewhere = get_close_matches(match[1], sorted(others), n=1, cutoff=0.79)
            if elsewhere:
                nearest = elsewhere[0]
            inputs = list_input_fields_accepting_filter(nearest) if elsewhere else []
            return Notice(
                "unknown_filter",
                {"word": match[1], "suggestion": "", "nearest": nearest, "inputs": inputs},
            )
    return None


_Turn = tuple[str, int | None]
"""A turn, as the id of its conversation and its number."""

TOOL_CALL_ROLE = "tool-call"
MAX_CALLS_NAMING_FILE = 5000
"""The filter `file:` checks at most this many calls in each index. Only calls whose arguments contain the words of the path are candidates."""
MAX_TITLED_ENTRIES = 2000
"""The filter `title:` selects at most this many entries, even if more titles match."""


class ToolArgumentAndExclusionFilters(NamedTuple):
    """Filters that have no field in `SearchRequest`: arguments of tool calls, and exclusions.

    * `args` contains a tuple of terms for each `arg:` filter. A chunk must match at least one term
      of each tuple.
    * `without` contains a pair `(field, values)` for each exclusion: a chunk must have none of the
      values in this field of the keyword index.
    * If `turns` is not None, a chunk must be in one of these turns, which are pairs of a
      conversation's id and a number.
    * `without_turns` contains the excluded turns.
    * `without_chunks` contains the numbers of the chunks in the excluded turns.
    """

    args: tuple[tuple[str, ...], ...] = ()
    without: tuple[tuple[str, tuple[str, ...]], ...] = ()
    turns: frozenset[_Turn] | None = None
    without_turns: frozenset[_Turn] = frozenset()
    without_chunks: tuple[int, ...] = ()

    def allows_chunk(self, entry: CatalogEntry, chunk: Chunk) -> bool:
        """Return whether a chunk passes the filters that the vector table cannot apply."""
        turn = (entry.id, chunk.turn)
        if turn in self.without_turns or (self.turns is not None and turn not in self.turns):
            return False
        return all(
            set(terms) & _list_argument_terms_of_chunk(chunk) for terms in self.args
        ) and not any(
            set(values) & _get_chunk_values_to_compare_with_filter(name, entry, chunk)
            for name, values in self.without
        )


def _get_chunk_values_to_compare_with_filter(
    name: str, entry: CatalogEntry, chunk: Chunk
) -> set[str | None]:
    if name == "arg":
        return {*_list_argument_terms_of_chunk(chunk)}
    return {
        {
            "topic": entry.topic,
            "kind": entry.kind,
            "type": entry.type or entry.kind,
            "role": chunk.role,
            "tool": chunk.tool,
            "agent": entry.agent,
            "entry": entry.id,
        }[name]
    }


def _list_argument_terms_of_chunk(chunk: Chunk) -> set[str]:
    from kbtui.index.keyword_index_writer import make_tool_argument_terms

    return {
        term
        for key, value in (chunk.args or {}).items()
        for term in make_tool_argument_terms(key, value)
    }


def apply_query_filters(
    workspace: Workspace, reader: IndexReader, query: ParsedQuery, request: SearchRequest
) -> tuple[SearchRequest, ToolArgumentAndExclusionFilters, list[QueryMistake]]:
    """Apply a query's filters to a request.

    Returns the changed request, the filters for which `SearchRequest` has no field, and the
    mistakes. A filter can narrow the request's options, but never widen them.
    """
    resolved = (getattr(request, row.search) for row in _list_filters_to_resolve())
    if not (query.filters or request.marks or any(resolved)):
        return request, ToolArgumentAndExclusionFilters(), []
    return _FilterToRequestConverter(workspace, reader, request).apply_filters_to_request(query)


def _list_filters_to_resolve() -> list[FilterDefinition]:
    """Return the filters whose values can differ from the indexed terms, as the titles of topics do."""
    known = map_filter_keys_and_aliases_to_definitions("search")
    return [known[key] for key in ("topic", "role", "type", "agent")]


class _FilterToRequestConverter:
    """Applies the filters of one query to its request."""

    def __init__(self, workspace: Workspace, reader: IndexReader, request: SearchRequest) -> None:
        self._workspace, self._reader = workspace, reader
        self._zone = parse_time_zone(request.zone) if request.zone is not None else None
        self._request = request
        self._mistakes: list[QueryMistake] = []
        self._wanted: dict[str, list[str]] = {}
        self._last_filters: dict[str, QueryFilter] = {}
        self._args: list[tuple[str, ...]] = []
        self._without: list[tuple[str, tuple[str, ...]]] = []
        self._entries: set[str] | None = None
        self._turns: set[_Turn] | None = None
        """Hits must be in one of these turns; None means that all turns are allowed."""
        self._without_turns: set[_Turn] = set()
        self._without_marks: list[str] = []

    def apply_filters_to_request(
        self, query: ParsedQuery
    ) -> tuple[SearchRequest, ToolArgumentAndExclusionFilters, list[QueryMistake]]:
        self._resolve_request_filters()
        for part in query.filters:
            try:
                self._apply_query_filter(part)
            except FilterValueError as wrong:
                if not (part.unfinished and wrong.is_beginning):
                    self._add_query_mistake(part, wrong.message, wrong.hint)
        for field in self._wanted:
            self._intersect_request_field(field)
        if self._entries is not None:
            held = self._request.entries
            entries = self._entries & set(held) if held else self._entries
            self._request = self._request._replace(entries=tuple(sorted(entries)) or ("",))
        further = ToolArgumentAndExclusionFilters(tuple(self._args), tuple(self._without))
        self._select_marked_turns()
        further = self._limit_request_to_selected_turns(further)
        return self._request, further, self._mistakes

    def _select_marked_turns(self) -> None:
        """Select the turns with the wanted marks, and exclude those with unwanted marks."""
        if not (self._request.marks or self._without_marks):
            return
        turns: dict[str, set[_Turn]] = {}
        for text in self._request.marked:
            state, _, reference = text.partition(" ")
            ref = parse_ref(reference)
            turns.setdefault(state, set()).add((ref.conversation or "", ref.turn))
        if self._request.marks:
            self._restrict_to_turns(
                turn for state in self._request.marks for turn in turns.get(state, ())
            )
        self._without_turns.update(
            turn for state in self._without_marks for turn in turns.get(state, ())
        )

    def _restrict_to_turns(self, turns: Iterable[_Turn]) -> None:
        kept = set(turns)
        self._turns = kept if self._turns is None else self._turns & kept

    def _limit_request_to_selected_turns(
        self, further: ToolArgumentAndExclusionFilters
    ) -> ToolArgumentAndExclusionFilters:
        """Limit the request to the selected turns, and leave out the excluded ones."""
        if self._turns is not None:
            numbers = self._reader.find_chunk_numbers_of_turns(self._turns)
            # No chunk has the number 0, so nothing is found if no turn is selected.
            self._request = self._request._replace(chunks=tuple(numbers) or (0,))
            further = further._replace(turns=frozenset(self._turns))
        without = tuple(self._reader.find_chunk_numbers_of_turns(self._without_turns))
        return further._replace(
            without_turns=frozenset(self._without_turns), without_chunks=without
        )

    def _add_query_mistake(self, part: QueryFilter, message: str, hint: str) -> None:
        mistake = QueryMistake(part.start, part.end, message, hint)
        self._mistakes.append(mistake)

    def _resolve_request_filters(self) -> None:
        """Convert the values of the request's filters to indexed terms. Report unknown values."""
        for row in _list_filters_to_resolve():
            field = row.search
            values: list[str] = []
            mistakes: list[QueryMistake] = []
            for value in getattr(self._request, field):
                try:
                    values += self._resolve_filter_value(row, value)
                except FilterValueError as wrong:
                    mistakes.append(QueryMistake(-1, -1, wrong.message, wrong.hint))
            # A program may request a type that exists only in other workspaces.
            if field != "types" or not values:
                self._mistakes += mistakes
            self._set_request_field(field, tuple(dict.fromkeys(values)))

    def _set_request_field(self, field: str, values: tuple[str, ...]) -> None:
        changed: dict[str, Any] = {field: values}
        self._request = self._request._replace(**changed)

    def _apply_query_filter(self, part: QueryFilter) -> None:
        row = map_filter_keys_and_aliases_to_definitions("search")[part.key]
        values = [value for value in part.values if value]
        if not values:
            raise FilterValueError(f"{part.key}: needs a value", row.about)
        if row.kind == "date":
            for value in values:
                moment = row.parse_date_value(value, zone=self._zone)
                # `-before:` means `after:`, and `-after:` means `before:`.
                if (row.search == "since") != part.excluded:
                    since = max(moment, self._request.since or moment)
                    self._request = self._request._replace(since=since)
                else:
                    until = min(moment, self._request.until or moment)
                    self._request = self._request._replace(until=until)
            return
        if row.kind == "project":
            self._apply_project_filter(row, values, excluded=part.excluded)
            return
        if row.kind == "file":
            turns = set[_Turn]().union(*map(self._find_turns_naming_file, values))
            if part.excluded:
                self._without_turns |= turns
            else:
                self._restrict_to_turns(turns)
            return
        if row.kind == "title":
            entries = set().union(*map(self._find_entries_by_title, values))
            terms = sorted(entries)
        elif row.kind == "label":
            entries = self._find_conversations_by_label(row, values)
            terms = sorted(entries)
        elif row.key == "is":
            states = [state for value in values for state in row.parse_choice_value(value)]
            entries = self._find_conversations_by_library_pane_filter(row, states)
            terms = sorted(entries)
            if "archived" in states and not part.excluded:
                self._request = self._request._replace(archived=True)
        elif row.kind == "argument":
            terms = [_convert_argument_filter_to_term(value) for value in values]
        else:
            terms = [term for value in values for term in self._resolve_filter_value(row, value)]
        if part.excluded and row.key == "mark":
            self._without_marks += terms
        elif part.excluded:
            self._without.append((row.term, tuple(terms)))
        elif row.kind in {"title", "label"} or row.key == "is":
            self._entries = entries if self._entries is None else self._entries & entries
        elif row.kind == "argument":
            self._args.append(tuple(terms))
        else:
            self._wanted.setdefault(row.search, []).extend(terms)
            self._last_filters[row.search] = part

    def _intersect_request_field(self, field: str) -> None:
        """Keep only those values of a field that both the query and the request allow."""
        wanted = tuple(dict.fromkeys(self._wanted[field]))
        held: Sequence[str] = getattr(self._request, field)
        if held:
            both = tuple(value for value in wanted if value in held)
            if not both:
                self._add_query_mistake(
                    self._last_filters[field],
                    f"this search does not include {' or '.join(wanted)}",
                    f"it is limited to {', '.join(held)}",
                )
            wanted = both
        self._set_request_field(field, wanted)

    def _resolve_filter_value(self, row: FilterDefinition, value: str) -> Sequence[str]:
        """Return the indexed terms of a value. Raises `FilterValueError` if the value is unknown."""
        if row.kind == "choice":
            return row.parse_choice_value(value)
        if row.kind == "agent":
            return row.list_agents_matching_value(value)
        searchers = [index.searcher() for index in self._open_keyword_indexes()]
        is_term = any(searcher.doc_freq(row.term, value) for searcher in searchers)
        if value and is_term:
            return [value]
        if row.kind == "topic":
            return [self._resolve_topic_id(row, value)]
        counts: Counter[str] = Counter()
        for searcher in searchers:
            counts.update(dict(searcher.terms_with_prefix(row.term, "", limit=200)))
        known = sorted(counts, key=lambda term: (-counts[term], term))
        if term := next((term for term in known if term.lower() == value.lower()), None):
            return [term]
        raise row.make_unknown_value_error(value, known)

    def _resolve_topic_id(self, row: FilterDefinition, value: str) -> str:
        from kbtui.errors import NothingFound
        from kbtui.knowledge import load_knowledge

        knowledge = load_knowledge(self._workspace)
        try:
            return knowledge.resolve_topic(value).id
        except NothingFound:
            topics = [topic for topic in knowledge.topics.values() if topic.enable]
            ids, titles = [topic.id for topic in topics], [topic.title or "" for topic in topics]
            raise row.make_unknown_value_error(value, ids, titles) from None

    def _open_keyword_indexes(self) -> list[Any]:
        sides = (False, True) if self._request.hidden else (False,)
        return [self._reader.open_keyword_index(hidden=hidden) for hidden in sides]

    def _apply_project_filter(
        self, row: FilterDefinition, values: Sequence[str], *, excluded: bool
    ) -> None:
        """Apply the filter `project:`, whose value names a project or a worktree.

        The filter selects or excludes the whole project, or the conversations in the worktree.
        Raises `FilterValueError` if nothing of the project is left, so that a search of all
        projects leaves out the workspace.
        """
        from kbtui.conversations.conversation_repository import list_conversations
        from kbtui.conversations.workspace_and_worktree_directories import identify_project

        name = self._request.project_name or identify_project(str(self._workspace.root)).name
        is_project = any(value.casefold() in name.casefold() for value in values)
        worktrees: dict[str, set[str]] = {}
        if not is_project:
            for info in list_conversations(self._workspace, counts=False):
                if info.worktree:
                    worktrees.setdefault(info.worktree, set()).add(info.id)
        wanted = {value.casefold() for value in values}
        entries = set[str]().union(
            *(ids for worktree, ids in worktrees.items() if worktree.casefold() in wanted)
        )
        if is_project == excluded and (is_project or not entries):
            if excluded:
                raise FilterValueError(f"the filter excludes the project {name}", row.about)
            raise row.make_unknown_value_error(values[0], [name, *sorted(worktrees)])
        if excluded:
            self._without.append(("entry", tuple(sorted(entries))))
        elif not is_project:
            self._entries = entries if self._entries is None else self._entries & entries

    def _find_turns_naming_file(self, name: str) -> set[_Turn]:
        """Return the turns with a tool call whose arguments contain the path of a file.

        The path is `name`, or ends with `/` and `name`.
        """
        from tantivy import Occur, Query

        from kbtui.index.identifier_and_cjk_tokenizer import normalize_unicode
        from kbtui.search.query_stemming_and_matching import StemmingAnalyzer

        name = name.removeprefix("./")
        stems = StemmingAnalyzer(self._reader.language).list_stems_of_text(normalize_unicode(name))
        numbers: list[int] = []
        for index in self._open_keyword_indexes() if stems else ():
            searcher, schema = index.searcher(), index.schema
            words = (
                Query.phrase_query(schema, "body", list(stems))
                if len(stems) > 1
                else Query.term_query(schema, "body", stems[0], "basic")
            )
            is_call = Query.term_query(schema, "role", TOOL_CALL_ROLE, "basic")
            query = Query.boolean_query([(Occur.Must, words), (Occur.Must, is_call)])
            hits = searcher.search(query, limit=MAX_CALLS_NAMING_FILE, count=False).hits
            addresses = [address for _, address in hits]
            numbers += searcher.fast_field_values("chunk", addresses)
        whole = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w/-])")
        chunks = self._reader.get_chunks_by_number(numbers).values()
        return {(entry_id, chunk.turn) for chunk, entry_id in chunks if whole.search(chunk.text)}

    def _find_conversations_by_label(
        self, row: FilterDefinition, values: Sequence[str]
    ) -> set[str]:
        """Return the ids of the conversations with one of the labels `values`, compared as in the library pane.

        Raises `FilterValueError` if there are no such conversations. Labels are read from the
        conversations' files, because the index does not contain labels.
        """
        from kbtui.conversations.conversation_repository import list_conversations

        found = self._find_conversations_by_library_pane_filter(row, values)
        if not found:
            infos = list_conversations(self._workspace, counts=False)
            known = Counter(
                name
                for info in infos
                for key, value in info.labels.items()
                for name in ((key, f"{key}={value}") if value else (key,))
            )
            raise row.make_unknown_value_error(values[0], [name for name, _ in known.most_common()])
        return found

    def _find_conversations_by_library_pane_filter(
        self, row: FilterDefinition, values: Sequence[str]
    ) -> set[str]:
        """Return the ids of the conversations that the library pane would show if filtered by `row`.

        A conversation must match at least one of `values`.
        """
        from kbtui.conversations.conversation_data_types import ConversationToolsAndModels
        from kbtui.conversations.conversation_repository import list_conversations

        assert row.library is not None
        wanted, unused = [value.casefold() for value in values], ConversationToolsAndModels()
        infos = list_conversations(self._workspace, counts=False)
        if "damaged" in wanted:
            from dataclasses import replace

            # Problems with the events of a conversation are recorded only in the index.
            entries = self._reader.get_entries_by_id({info.id for info in infos})
            errors = {entry.id: entry.error for entry in entries.values()}
            infos = [replace(info, problem=info.problem or errors.get(info.id)) for info in infos]
        return {info.id for info in infos for text in wanted if row.library(info, unused, text)}

    def _find_entries_by_title(self, text: str) -> set[str]:
        """Return the ids of the entries whose title contains all words of `text`."""
        from tantivy import Occur, Query

        from kbtui.index.entry_and_chunk_data_types import extract_entry_number_from_place_number
        from kbtui.index.identifier_and_cjk_tokenizer import (
            extract_cjk_character_pairs,
            has_unspaced_script,
            normalize_unicode,
        )
        from kbtui.search.query_stemming_and_matching import StemmingAnalyzer

        text = normalize_unicode(text)
        stems = StemmingAnalyzer(self._reader.language).list_stems_of_text(text)
        pairs = list(extract_cjk_character_pairs(text))
        terms = [("title", stem) for stem in stems if not has_unspaced_script(stem)]
        terms += [("code", pair) for pair in pairs]
        found: dict[object, int] = {}
        for index in self._open_keyword_indexes() if terms else ():
            searcher, schema = index.searcher(), index.schema
            queries = [Query.term_query(schema, field, term, "basic") for field, term in terms]
            query = Query.boolean_query([(Occur.Must, part) for part in queries])
            hits = searcher.search(query, limit=max(1, searcher.num_docs), count=False).hits
            addresses = [address for _, address in hits]
            numbers = searcher.fast_field_values("chunk", addresses)
            places = searcher.fast_field_values("place", addresses)
            for number, place in zip(numbers, places, strict=True):
                if len(found) < MAX_TITLED_ENTRIES:
                    found.setdefault(extract_entry_number_from_place_number(place), number)
        ids = {
            entry_id for _, entry_id in self._reader.get_chunks_by_number(found.values()).values()
        }
        if not pairs:
            return ids
        # The index may have found the pairs of characters in a chunk's text, so compare the titles
        # themselves.
        wanted = "".join(text.lower().split())
        return {
            entry.id
            for entry in self._reader.get_entries_by_id(ids).values()
            if wanted in "".join(normalize_unicode(entry.title).lower().split())
        }


def _convert_argument_filter_to_term(value: str) -> str:
    from kbtui.index.identifier_and_cjk_tokenizer import normalize_unicode

    key, sign, wanted = normalize_unicode(value).partition("=")
    wanted = " ".join(wanted.lower().split())
    if len(wanted) > 1:
        wanted = wanted.rstrip("/")
    return f"{key.lower()}={wanted}" if sign and wanted else key.lower()


def parse_entry_filter(
    text: str,
    options: Mapping[str, Sequence[str]] | None = None,
    *,
    hidden: bool = False,
    archived: bool = False,
) -> EntryFilter:
    """Parse the text of a filter on the Entries screen or in `kbtui entries`.

    `options` maps options of the command line, such as `--type`, to their values. `hidden` and
    `archived` say whether hidden and archived entries are listed. Raises `UsageError` if a filter
    is invalid.
    """
    from kbtui.errors import UsageError
    from kbtui.index.catalog_query import EntryFilter

    query = parse_query(text, filter_input="entries")
    known = map_filter_keys_and_aliases_to_definitions("entries")
    given: list[tuple[FilterDefinition, Sequence[str], str]] = [
        (known[part.key], part.values, part.key) for part in query.filters
    ]
    for name, values in (options or {}).items():
        given.append((next(row for row in known.values() if name in row.options), values, name))
    for part in query.filters:
        if part.excluded:
            raise UsageError(
                f"-{part.key}: cannot be used in a list of entries",
                where=text[part.start : part.end],
                hint=f"list the values to include instead, as in {part.key}:A,B",
            )
    fields: dict[str, Any] = {}
    for row, values, where in given:
        try:
            for value in filter(None, values):
                if row.kind == "date":
                    moment = row.parse_date_value(value).timestamp()
                    narrower = max if row.entries == "since" else min
                    fields[row.entries] = narrower(fields.get(row.entries, moment), moment)
                    continue
                meant: Sequence[str] = (value,)
                if row.kind == "choice":
                    meant = row.parse_choice_value(value)
                elif row.kind == "agent":
                    meant = row.list_agents_matching_value(value)
                fields[row.entries] = (*fields.get(row.entries, ()), *meant)
        except FilterValueError as error:
            raise UsageError(error.message, where=where, hint=error.hint) from error
    return EntryFilter(
        q=" ".join(query.words),
        phrases=query.phrases,
        without=query.excluded,
        hidden=hidden,
        archived=archived,
        **fields,
    )
