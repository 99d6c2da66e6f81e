"""The library pane: topics, subjects and conversations, with a filter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from textual import on
from textual.actions import SkipAction
from textual.containers import Vertical
from textual.widgets import Input

from kbtui.dates import Clock, format_time_or_date
from kbtui.errors import KbtuiError
from kbtui.light_named_tuple import NamedTuple
from kbtui.notices import format_notice
from kbtui.references import Ref, make_conversation_ref, make_subject_ref
from kbtui.search.filter_definitions import (
    FilterDefinition,
    FilterValueError,
    map_filter_keys_and_aliases_to_definitions,
)
from kbtui.search.search_request_and_answer import EntriesMatchingFilter, QueryMistake
from kbtui.terminal_text import cut_to_width, format_counted_noun, sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import (
    CompletingInput,
    LabeledInput,
    PaneCoveredByChildren,
    QueryErrorHighlighter,
    TextInputInPane,
    WrappedTextBarAboveWidget,
)
from kbtui.tui.framework.row_list import ListRow, RowList, make_heading_row
from kbtui.tui.navigation_target import NavigationTarget, OpenTargetRequested
from kbtui.tui.tui_command_table import make_key_bindings_of_scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from textual.app import ComposeResult

    from kbtui.conversations.conversation_data_types import (
        ConversationInfo,
        ConversationToolsAndModels,
    )
    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.library import Library
    from kbtui.search.query_parsing_and_filter_application import FilterLikeWord, QueryFilter
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.topics_and_conversations_snapshot import (
        LastVisit,
        TopicsAndConversations,
        TopicWithSubjects,
    )


class SingleLibraryPaneFilterCondition(NamedTuple):
    """A condition of the library's filter: at least one of `values` must match.

    If `excluded` is true, none of the values may match.

    The pane cannot check some conditions itself, so it looks up the entries that match them in the
    index. For such a condition, `lookup` is its text, `start` is the offset of this text in the
    filter line, and `entries` contains the ids of the matching entries. Until the index has
    answered, `entries` is None, and the condition matches nothing.
    """

    filter: FilterDefinition
    values: tuple[Any, ...]
    excluded: bool
    lookup: str = ""
    start: int = 0
    entries: frozenset[str] | None = None

    def matches_conversation(
        self, info: ConversationInfo, summary: ConversationToolsAndModels | None
    ) -> bool:
        """Return whether a conversation matches this condition.

        A condition that needs a summary matches nothing while the summary is unknown (None).
        """
        if self.lookup:
            return self.matches_entry(info.id)
        condition = self.filter.library
        if condition is None or (summary is None and self.filter.needs_summary):
            return False
        found = any(condition(info, summary, value) for value in self.values)  # type: ignore[arg-type]
        return found != self.excluded

    def matches_entry(self, entry_id: str) -> bool:
        """Return whether an entry matches this condition, according to the index.

        Return False if the index has not answered yet, or if this condition needs no lookup.
        """
        return self.entries is not None and (entry_id in self.entries) != self.excluded


class LibraryPaneFilter(NamedTuple):
    """A parsed filter of the library pane.

    A title or slug matches if it contains all `words` and none of the words in `without`. An entry
    must also meet all conditions in `parts`. `errors` lists the mistakes in the filter's text.
    """

    words: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    parts: tuple[SingleLibraryPaneFilterCondition, ...] = ()
    errors: tuple[QueryMistake, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.words or self.without or self.parts)

    @property
    def needs_conversation_summaries(self) -> bool:
        """Whether a condition needs summaries of conversations.

        The summaries are costly, because kbtui must read all conversations to make them.
        """
        return any(part.filter.needs_summary for part in self.parts)

    @property
    def is_waiting_for_lookup(self) -> bool:
        """Whether the filter is waiting for the index to look up a condition."""
        return any(part.lookup and part.entries is None for part in self.parts)

    def add_looked_up_entries(
        self, found: Mapping[str, EntriesMatchingFilter]
    ) -> LibraryPaneFilter:
        """Return this filter with the results of lookups in the index.

        `found` maps the text of each condition to the entries that match it. If a condition contains
        a mistake, the mistake is added to `errors`, and the condition is removed.
        """
        parts: list[SingleLibraryPaneFilterCondition] = []
        errors = [*self.errors]
        for part in self.parts:
            selected = found.get(part.lookup)
            if selected is None:
                parts.append(part)
            elif selected.mistakes:
                mistake = selected.mistakes[0]
                end = part.start + len(part.lookup)
                errors.append(mistake._replace(start=part.start, end=end))
            else:
                parts.append(part._replace(entries=selected.entries))
        return self._replace(parts=tuple(parts), errors=tuple(sorted(errors)))

    def does_subject_meet_conditions(self, subject: Subject) -> bool:
        """Return whether a subject meets all conditions of this filter."""
        if not self.parts:
            return True
        from kbtui.index.entry_and_chunk_data_types import make_subject_id

        entry_id = make_subject_id(subject.topic, subject.slug)
        return all(part.matches_entry(entry_id) for part in self.parts)

    def matches_title(self, text: str) -> bool:
        """Return whether a title or slug contains all words and none of the excluded words."""
        folded = text.casefold()
        has_excluded = any(word in folded for word in self.without)
        return not has_excluded and all(word in folded for word in self.words)

    def matches_conversation(
        self, info: ConversationInfo, summary: ConversationToolsAndModels | None
    ) -> bool:
        """Return whether a conversation matches the words and all conditions of this filter."""
        return self.matches_title(info.name) and all(
            part.matches_conversation(info, summary) for part in self.parts
        )


def parse_library_filter(text: str, now: datetime, *, partial: bool = False) -> LibraryPaneFilter:
    """Parse the text of the filter line.

    Mistakes are added to the `errors` of the result. If `partial` is true, the user is still typing,
    so an incomplete last word is not a mistake.
    """
    from kbtui.search.query_parsing_and_filter_application import parse_query

    query = parse_query(text, partial=partial, filter_input="library")
    parts: list[SingleLibraryPaneFilterCondition] = []
    errors = [_make_mistake_of_filter_like_word(word) for word in query.almost_filters]
    for part in query.filters:
        try:
            parts.append(_parse_filter_condition(text, part, now))
        except FilterValueError as error:
            if not (part.unfinished and error.is_beginning):
                errors.append(QueryMistake(part.start, part.end, error.message, error.hint))
    return LibraryPaneFilter(
        tuple(word.casefold() for word in (*query.words, *query.phrases)),
        tuple(word.casefold() for word in query.excluded),
        tuple(parts),
        tuple(sorted(errors)),
    )


def _make_mistake_of_filter_like_word(word: FilterLikeWord) -> QueryMistake:
    if word.notice.code != "filter_without_value":
        return QueryMistake(word.start, word.end, format_notice(word.notice), "")
    key = str(word.notice.values["word"])[:-1].lower()
    about = map_filter_keys_and_aliases_to_definitions("library")[key].about
    return QueryMistake(word.start, word.end, "needs a value", about)


def _parse_filter_condition(
    text: str, part: QueryFilter, now: datetime
) -> SingleLibraryPaneFilterCondition:
    row = map_filter_keys_and_aliases_to_definitions("library")[part.key]
    if row.library is None and any(part.values):
        start = part.start + part.excluded
        lookup = text[start : part.end]
        return SingleLibraryPaneFilterCondition(row, part.values, part.excluded, lookup, start)
    values: list[Any] = []
    for value in filter(None, part.values):
        if row.kind == "date":
            values.append(row.parse_date_value(value, now))
        elif row.kind == "choice":
            values += row.parse_choice_value(value)
        elif row.kind == "agent":
            values += row.list_agents_matching_value(value)
        else:
            values.append(value.casefold())
    if not values:
        raise FilterValueError("needs a value", row.about)
    return SingleLibraryPaneFilterCondition(row, tuple(values), part.excluded)


NEW = "new or changed since your last visit"
ENTRY_MARKS = {
    NEW: ("• ", "accent"),
    "pre-loaded": ("◆ ", "accent"),
    "hidden": ("◌ ", "dim"),
    "disabled": ("✕ ", "warning"),
    "damaged or unreadable": ("! ", "error"),
    "archived": ("▫ ", "dim"),
    "local only": ("⌂ ", "dim"),
    "workspace only": ("⇣ ", "dim"),
    "from another worktree": ("⎇ ", "dim"),
    "kept copy of a deleted conversation": ("▣ ", "dim"),
}
"""The sign of each state of an entry, and the sign's style role. The help page shows the names of the states."""

TURNS_SIGN = "t"
"""The sign after a conversation's number of turns. The help page explains it."""
WORKTREE_WIDTH = 12
"""The maximum width in cells of a worktree's name in a row."""


SORT_ORDERS = {
    "activity": ("a", "latest event first"),
    "created": ("c", "newest first"),
    "updated": ("u", "most recent file change first"),
    "title": ("n", "name, A to Z"),
    "turns": ("t", "most turns first"),
}
"""The sort orders of conversations: for each one, its key in the dialog, and what comes first."""


@dataclass(eq=False, repr=False)
class LibraryPaneChoices:
    """The user's choices in the pane: unfolded rows, hidden subjects, filter and sort order."""

    unfolded: set[str] = field(default_factory=set)
    hidden: bool = False
    filter: LibraryPaneFilter = field(default_factory=LibraryPaneFilter)
    sort: str = "activity"
    visit: LastVisit | None = None
    """The last visit. Entries that are new or have changed since this visit are marked."""

    def is_row_unfolded(self, key: str) -> bool:
        """Return whether the row with the key `key` is unfolded.

        While a filter is set, all rows count as unfolded.
        """
        return key in self.unfolded or bool(self.filter)


def make_library_rows(
    contents: TopicsAndConversations, state: LibraryPaneChoices, present: datetime
) -> list[ListRow]:
    """Return all rows of the pane, from top to bottom."""
    # Conditions such as `tool:` apply to conversations only, so no subject can match.
    has_subjects = all(part.lookup for part in state.filter.parts)
    topics = _make_topics_section_rows(contents, state) if has_subjects else []
    return [*topics, *_make_conversations_section_rows(contents, state, present)]


def _make_note_row(key: str, text: str, role: str = "dim") -> ListRow:
    return ListRow(f"note:{key}", [(text, role)], selectable=False)


def _make_topics_section_rows(
    contents: TopicsAndConversations, state: LibraryPaneChoices
) -> Iterator[ListRow]:
    yield make_heading_row("topics", "TOPICS")
    if contents.topics_failure:
        yield _make_problem_row("topics", f"topics: {contents.topics_failure}")
    for number, problem in enumerate(contents.problems):
        # Show the configuration key on its own line, because a narrow pane cuts off the end of a line.
        text = problem.message if problem.key else str(problem)
        row = _make_problem_row(f"kb:{number}", text, whole=str(problem))
        if problem.key:
            row.below = [[("  ", ""), (sanitize_to_one_line(problem.key), "dim")]]
        yield row
    if not (contents.listings or contents.topics_failure or contents.problems):
        yield _make_note_row("no-topics", "none yet")
    rows = [row for one in contents.listings for row in _make_topic_rows(one, contents, state)]
    yield from rows
    if state.filter and contents.listings and not rows and not state.filter.is_waiting_for_lookup:
        yield _make_note_row("no-subject", "nothing matches")
    yield ListRow("blank:topics", [], selectable=False)


def _make_problem_row(key: str, text: str, indent: str = "", whole: str = "") -> ListRow:
    """Return the row of a problem, which shows `text`.

    For this row, the reader shows `whole`, or `text` if `whole` is empty.
    """
    place = NavigationTarget(f"problem:{key}", text=whole or sanitize_to_one_line(text))
    spans: Spans = [(f"{indent}! ", "error"), (sanitize_to_one_line(text), "error")]
    return ListRow(f"problem:{key}", spans, data=place)


def _make_topic_rows(
    listing: TopicWithSubjects, contents: TopicsAndConversations, state: LibraryPaneChoices
) -> Iterator[ListRow]:
    topic, unreadable = listing.topic, contents.unreadable
    subjects = [s for s in listing.subjects if state.hidden or not s.hidden]
    if state.filter:
        subjects = [
            s
            for s in subjects
            if state.filter.matches_title(f"{topic.name} {s.slug}")
            and state.filter.does_subject_meet_conditions(s)
        ]
        if not subjects and (state.filter.parts or not state.filter.matches_title(topic.name)):
            return
    key = f"topic:{topic.id}"
    is_open = state.is_row_unfolded(key)
    name_role = "" if topic.enable else "dim"
    name: Spans = [
        ("▾ " if is_open else "▸ ", "dim"),
        (sanitize_to_one_line(topic.name), name_role),
    ]
    count: Spans = [(f"{len(subjects):,}", "dim")] if topic.enable else [("off", "warning")]
    if listing.problems or (unreadable and any((s.topic, s.slug) in unreadable for s in subjects)):
        count = [("! ", "error"), *count]
    yield ListRow(key, name, count, data=NavigationTarget(key, ref=Ref("topic", topic=topic.id)))
    for number, problem in enumerate(listing.problems):
        yield _make_problem_row(f"{topic.id}:{number}", problem.message, "  ", whole=str(problem))
    if is_open:
        yield from _make_folder_and_subject_rows(topic.id, subjects, contents, state)


def _make_folder_and_subject_rows(
    topic: str, subjects: list[Subject], contents: TopicsAndConversations, state: LibraryPaneChoices
) -> Iterator[ListRow]:
    """Yield the rows of a topic's subjects and of their folders."""
    by_slug = {subject.slug: subject for subject in subjects}
    for path in iterate_paths_outside_folded_folders(topic, by_slug, state.is_row_unfolded):
        if path in by_slug:
            subject = by_slug[path]
            is_new = state.visit is not None and state.visit.is_subject_newer_than_visit(subject)
            yield _make_subject_row(subject, contents.unreadable.get((topic, path)), is_new)
        else:
            key, folder = make_folder_row_key(topic, path), path[:-1].rpartition("/")[2]
            arrow = ("▾ " if state.is_row_unfolded(key) else "▸ ", "dim")
            name = (f"{sanitize_to_one_line(folder)}/", "")
            yield ListRow(key, [("  " * path.count("/"), ""), arrow, name])


def iterate_paths_outside_folded_folders(
    topic: str, slugs: Iterable[str], is_unfolded: Callable[[str], bool]
) -> Iterator[str]:
    """Yield the paths of folders and the slugs of subjects, except those in folded folders.

    The path of a folder ends with `/`. In a folder, subjects come before subfolders; both are
    sorted by name. `is_unfolded` is called with the key of a folder's row.
    """
    yielded: set[str] = set()
    for slug in sorted(slugs, key=_get_slug_sort_key_subjects_first):
        for path in _list_folders_of_slug(slug):
            if path not in yielded:
                yielded.add(path)
                yield path
            if not is_unfolded(make_folder_row_key(topic, path)):
                break
        else:
            yield slug


def _get_slug_sort_key_subjects_first(slug: str) -> list[tuple[bool, str]]:
    *folders, name = slug.split("/")
    return [*((True, folder) for folder in folders), (False, name)]


def _list_folders_of_slug(slug: str) -> list[str]:
    return [*accumulate(f"{folder}/" for folder in slug.split("/")[:-1])]


def list_parent_row_keys(topic: str, slug: str) -> list[str]:
    """Return the keys of the rows that contain a subject or folder, beginning with the topic's row."""
    return [
        f"topic:{topic}",
        *(make_folder_row_key(topic, path) for path in _list_folders_of_slug(slug)),
    ]


def make_folder_row_key(topic: str, path: str) -> str:
    """Return the key of a folder's row. `path` may end with `/`."""
    return f"folder:{topic}/{path.removesuffix('/')}"


def _choose_state_symbol(states: dict[str, bool], default: str) -> tuple[str, str]:
    """Return the symbol and style role of the last state in `states` whose value is true.

    If no value is true, return `default` as the symbol, and no role.
    """
    return next((ENTRY_MARKS[name] for name in reversed(states) if states[name]), (default, ""))


def _make_subject_row(subject: Subject, reason: str | None, is_new: bool) -> ListRow:
    """Return the row of a subject. `reason` says why the subject cannot be read, or is None."""
    states = {
        NEW: is_new,
        "pre-loaded": subject.learned,
        "hidden": subject.hidden,
        "disabled": subject.disabled,
        "damaged or unreadable": reason is not None,
    }
    role = "dim" if subject.hidden or subject.shadowed else ""
    if subject.disabled:
        role = "dim struck"
    ref = make_subject_ref(subject.topic, subject.slug)
    mark = _choose_state_symbol(states, default="  ")
    name, depth = subject.slug.rpartition("/")[2], subject.slug.count("/") + 1
    spans: Spans = [("  " * depth, ""), mark, (sanitize_to_one_line(name), role)]
    row = ListRow(str(ref), spans, data=NavigationTarget(str(ref), ref=ref))
    if reason:
        row.below = [[("  " * (depth + 1), ""), (sanitize_to_one_line(reason), "error")]]
    return row


def _make_conversations_section_rows(
    contents: TopicsAndConversations, state: LibraryPaneChoices, present: datetime
) -> Iterator[ListRow]:
    """Yield the rows of the conversations: first pinned, then live, then archived ones."""
    rows = _ConversationRowMaker(contents, state, present)
    infos = [info for info in contents.main_conversations if rows.is_conversation_shown(info)]
    infos.sort(key=lambda info: _get_conversation_key_for_sort_order(info, state.sort, contents))
    yield make_heading_row("conversations", "CONVERSATIONS", f"by {state.sort}")
    if contents.conversations_failure:
        text = f"conversations: {contents.conversations_failure}"
        yield _make_problem_row("conversations", text)
    if not contents.conversations:
        yield _make_note_row("no-talks", "none yet")
    if (state.filter.needs_conversation_summaries or state.sort == "turns") and (
        left := contents.unread
    ):
        yield _make_note_row(
            "unread", f"reading {format_counted_noun(left, 'more conversation')} …"
        )
    elif state.filter.is_waiting_for_lookup:
        yield _make_note_row("lookup", "looking up the filter in the index …")
    elif contents.conversations and not infos:
        yield _make_note_row("no-talk", "nothing matches")
    pinned = [info for info in infos if info.pinned_at and not info.archived]
    live = [info for info in infos if not info.pinned_at and not info.archived]
    archived = [info for info in infos if info.archived]
    by_sort = {"title": "By title", "turns": "By number of turns"}.get(state.sort, "By day")
    for key, heading, group in (
        ("pinned", "Pinned", pinned),
        ("recent", by_sort if pinned else "", live),
        ("archived", "Archived", archived),
    ):
        if group and heading:
            yield _make_note_row(key, heading, "day")
        yield from rows.make_conversation_rows(group)


def _get_conversation_key_for_sort_order(
    info: ConversationInfo, sort: str, contents: TopicsAndConversations
) -> tuple[Any, ...]:
    """Return a key that sorts conversations in the order `sort`.

    Conversations that are equal in this order are sorted by time, newest first.
    """
    newest_first = (-info.created_at.timestamp(), info.id)
    if sort == "title":
        return (info.title is None, info.name.casefold(), *newest_first)
    if sort == "turns":
        return (-contents.count_turns_of_conversation(info), *newest_first)
    return (-info.get_sort_time(sort).timestamp(), *newest_first)


def _format_turn_count_and_date(
    info: ConversationInfo, sort: str, contents: TopicsAndConversations, present: datetime
) -> str:
    """Return the text on the right of a row: the number of turns and a time or date (`12t 31 Jul`).

    If the conversations are sorted by turns, the text is only the number of turns (`12 turns`).
    """
    turns = contents.count_turns_of_conversation(info)
    if sort == "turns":
        return "…" if turns < 0 else format_counted_noun(turns, "turn")
    when = format_time_or_date(info.get_sort_time(sort), present)
    is_unknown = turns < 0 or (info.problem and not turns)
    return when if is_unknown else f"{turns:,}{TURNS_SIGN} {when}"


class _ConversationRowMaker:
    """Makes the rows of conversations. The row of a conversation precedes the rows of its parts."""

    def __init__(
        self, contents: TopicsAndConversations, state: LibraryPaneChoices, present: datetime
    ) -> None:
        self._contents, self._state, self._present = contents, state, present
        self._parts = contents.part_conversations_by_parent
        names = (info.short_agent_name for info in contents.conversations)
        self._agent_width = max(map(len, names)) if contents.has_several_agents else 0
        """The width of the column with the agents' names, or 0 if there is only one agent."""
        self._marks_presence = any(
            info.presence not in {"external", None} for info in contents.conversations
        )
        """Whether conversations that are only in the workspace are marked as such.

        They are not marked if JP stores all conversations only in the workspace.
        """

    def is_conversation_shown(self, info: ConversationInfo) -> bool:
        """Return whether the filter matches a conversation or any of its parts."""
        summary = self._contents.summaries.get(info.id)
        return self._state.filter.matches_conversation(info, summary) or any(
            map(self.is_conversation_shown, self._parts.get(info.id, ()))
        )

    def make_conversation_rows(
        self, infos: list[ConversationInfo], depth: int = 0
    ) -> Iterator[ListRow]:
        """Yield the row of each conversation, followed by the rows of its parts if it is unfolded.

        The label of a row, for example its date, depends on the sort order.
        """
        sort = self._state.sort
        for info in infos:
            label = _format_turn_count_and_date(info, sort, self._contents, self._present)
            parts = [
                part for part in self._parts.get(info.id, ()) if self.is_conversation_shown(part)
            ]
            is_open = bool(parts) and self._state.is_row_unfolded(info.ref)
            lead: Spans = [("  " * depth, "")] if depth else []
            if parts:
                lead.append(("▾ " if is_open else "▸ ", "dim"))
            yield self._make_conversation_row(info, lead, label)
            if is_open:
                parts.sort(
                    key=lambda part: _get_conversation_key_for_sort_order(
                        part, sort, self._contents
                    )
                )
                yield from self.make_conversation_rows(parts, depth + 1)

    def _make_conversation_row(self, info: ConversationInfo, lead: Spans, label: str) -> ListRow:
        visit = self._state.visit
        states = {
            NEW: visit is not None and visit.has_conversation_events_after_visit(info),
            "from another worktree": info.worktree is not None,
            "local only": info.presence == "user_local",
            "workspace only": info.presence == "external" and self._marks_presence,
            "archived": info.archived,
            "kept copy of a deleted conversation": info.kept_from is not None,
            "damaged or unreadable": info.problem is not None,
        }
        mark = _choose_state_symbol(states, default="")
        role = "dim" if info.archived or not info.title else ""
        left: Spans = [*lead, mark, (sanitize_to_one_line(info.name), role)]
        if info.worktree is not None:
            name = cut_to_width(sanitize_to_one_line(info.worktree), WORKTREE_WIDTH)
            left.insert(-1, (f"{name} ", "dim"))
        agent: Spans = []
        if width := self._agent_width:
            agent = [(f" {info.short_agent_name:<{width}}", "dim")]
        place = NavigationTarget(info.ref, ref=make_conversation_ref(info.id))
        row = ListRow(info.ref, left, [(label, "dim")], data=place, wide_right=agent)
        if info.problem:
            row.below = [[("  ", ""), (sanitize_to_one_line(info.problem), "error")]]
        return row


ROWS_AT_ONCE = 1_000
"""If there are more subjects and conversations than this, their rows are made in a background thread."""
UPDATE_SECONDS = 60.0
"""The interval in seconds at which the pane checks whether a new day has begun."""


class LibraryPane(PaneCoveredByChildren, Vertical):
    """A list of topics, subjects and conversations."""

    BINDINGS = make_key_bindings_of_scopes("library")

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__(id="library", classes="pane")
        self._library = library
        self.border_title = "Library"
        self.contents: TopicsAndConversations | None = None
        self.state = LibraryPaneChoices()
        self.list = RowList("library-list")
        self._errors = QueryErrorHighlighter()
        self.filter = LabeledInput("filter", "filter", self._errors, CompletingInput)
        self.error_lines = WrappedTextBarAboveWidget(self.list)
        self._shown_at: datetime | None = None
        self._is_restored = False
        self.list.empty_text = [("Reading the workspace …", "dim")]
        self._clock = clock
        self._worker = LatestOnlyWorker(self)
        self._parsed = LibraryPaneFilter()
        """The filter as typed, without the results of lookups in the index."""
        self._is_typing_filter = False
        self._key_before_filter: str | None = None
        """The key of the row that was selected when the user began to type the filter."""
        self._lookups: dict[str, EntriesMatchingFilter] = {}
        """The results of lookups in the index since the last snapshot."""
        self._lookup_worker = LatestOnlyWorker(self)

    def compose(self) -> ComposeResult:
        """Yield the filter and the list. Mistakes in the filter are shown between them."""
        yield self.filter
        yield self.list

    def on_mount(self) -> None:
        self.set_interval(UPDATE_SECONDS, self.rebuild_rows_if_day_changed)

    def show_library_contents(self, contents: TopicsAndConversations) -> None:
        """Show a snapshot of the library. The selected row and the unfolded rows stay the same."""
        must_unfold = self.contents is None and not self._is_restored
        self.contents = contents
        if must_unfold:
            self._unfold_topics_that_fit(contents)
        self.update_library_rows()
        self._look_up_filter({})

    def unfold_rows_of_saved_tui_state(self, unfolded: list[str]) -> None:
        """Unfold the rows that were unfolded in the saved session."""
        self._is_restored = True
        self.state.unfolded = set(unfolded)
        self.update_library_rows()

    @property
    def is_building_rows(self) -> bool:
        """Whether a background thread is making rows."""
        return self._worker.has_pending_result

    @property
    def needs_conversation_summaries(self) -> bool:
        """Whether the filter or the sort order needs the summaries of conversations."""
        return self.state.filter.needs_conversation_summaries or self.state.sort == "turns"

    def _unfold_topics_that_fit(self, contents: TopicsAndConversations) -> None:
        """Unfold each topic, unless the pane would then have to scroll."""
        room = self.list.scrollable_content_region.height
        if len(contents.main_conversations) >= room:
            return
        for listing in contents.listings:
            if listing.visible_subject_count <= ROWS_AT_ONCE:
                key = f"topic:{listing.topic.id}"
                self.state.unfolded.add(key)
                if len(make_library_rows(contents, self.state, self._clock())) > room:
                    self.state.unfolded.discard(key)

    def update_library_rows(self, select: str | None = None) -> None:
        """Rebuild the rows, and select the row whose key is `select`.

        If `select` is None, the selected row stays selected. If there are many rows, they are
        rebuilt in a background thread.
        """
        contents = self.contents
        if contents is None:
            return
        self.border_subtitle = "hidden shown" if self.state.hidden else ""
        self._worker.discard_pending_results()
        present = self._shown_at = self._clock()
        if contents.subject_and_conversation_count <= ROWS_AT_ONCE:
            self.list.set_rows(make_library_rows(contents, self.state, present), select=select)
            return
        state = replace(self.state, unfolded=set(self.state.unfolded))
        self._worker.submit_call(
            lambda: make_library_rows(contents, state, present),
            lambda rows: self.list.set_rows(rows, select=select),
            lambda error: self.list.set_rows([], [(sanitize_to_one_line(str(error)), "error")]),
        )

    def rebuild_rows_if_day_changed(self) -> None:
        """Rebuild the rows if a new day has begun.

        Times from the previous day are then shown as dates.
        """
        before = self._shown_at
        if before is not None and self._clock().date() > before.date():
            self.update_library_rows()

    def select_row_of_target(self, place: NavigationTarget) -> None:
        """Select the row of `place`, and unfold the rows that contain it."""
        wanted: set[str] = set()
        if place.ref and place.ref.kind == "subject" and place.ref.slug:
            wanted = set(list_parent_row_keys(place.ref.topic or "", place.ref.slug))
        elif place.ref and place.ref.conversation:
            wanted = set(self._list_ancestor_conversation_ids(place.ref.conversation))
        if not wanted <= self.state.unfolded:
            self.state.unfolded |= wanted
            self.update_library_rows(select=place.key)
        self.list.select_row(place.key)

    def _list_ancestor_conversation_ids(self, conversation: str) -> list[str]:
        """Return the ids of a conversation's parent, the parent's parent, and so on."""
        parents: list[str] = []
        while self.contents and (info := self.contents.find_conversation(conversation)):
            if info.parent is None or info.parent in (info.id, *parents):
                break
            parents.append(info.parent)
            conversation = info.parent
        return parents

    @on(RowList.RowClicked)
    def action_open_selected_row(self) -> None:
        """Open the target of the selected row, if it has one, and fold or unfold the row if possible."""
        row = self.list.selected_row
        self.action_toggle_selected_fold()
        if row and isinstance(row.data, NavigationTarget):
            self.post_message(OpenTargetRequested(row.data))

    def action_toggle_selected_fold(self) -> None:
        if row := self.list.selected_row:
            self._set_row_unfolded(row.key, row.key not in self.state.unfolded)

    def action_unfold_selected_row(self) -> None:
        if row := self.list.selected_row:
            self._set_row_unfolded(row.key, True)

    def action_fold_row_or_select_parent(self) -> None:
        """Fold the selected row if it is unfolded. Otherwise, select the row that contains it."""
        row = self.list.selected_row
        if row is None:
            return
        if row.key in self.state.unfolded:
            self._set_row_unfolded(row.key, False)
            return
        topic, _, path = row.key.removeprefix("folder:").partition("/")
        folders = reversed(list_parent_row_keys(topic, path))
        next(
            filter(
                self.list.select_row, chain(folders, self._list_ancestor_conversation_ids(row.key))
            ),
            None,
        )

    def _set_row_unfolded(self, key: str, unfolded: bool) -> None:
        parts = self.contents.part_conversations_by_parent if self.contents else {}
        if key.startswith(("topic:", "folder:")) or key in parts:
            (self.state.unfolded.add if unfolded else self.state.unfolded.discard)(key)
            self.update_library_rows()

    def toggle_hidden_subjects(self) -> bool:
        """Show or hide the hidden subjects. Return whether they are shown now."""
        self.state.hidden = not self.state.hidden
        self.update_library_rows()
        self._look_up_filter({})
        return self.state.hidden

    def action_ask_for_sort_order(self) -> None:
        """Ask in which order to show the conversations."""
        from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog

        def sort_conversations(sort: str | None) -> None:
            if sort is not None:
                self.state.sort = sort
                self.update_library_rows()

        options = [
            DialogOption(key, sort, f"{what}{' · now' if sort == self.state.sort else ''}", sort)
            for sort, (key, what) in SORT_ORDERS.items()
        ]
        self.app.push_screen(
            OptionsDialog("Sort the conversations by", options), sort_conversations
        )

    def action_show_filter_input(self) -> None:
        row = self.list.selected_row
        self._key_before_filter = row.key if row else None
        self.filter.show_input()

    @on(Input.Changed, "#filter")
    def _filter_while_typing(self, event: Input.Changed) -> None:
        self._apply_filter_text(event.value, typing=True)

    @on(Input.Submitted, "#filter")
    def _submit_filter(self, event: Input.Submitted) -> None:
        self._apply_filter_text(event.value, typing=False)
        if not self.state.filter.errors:
            self.screen.set_focus(self.list)

    def _apply_filter_text(self, text: str, *, typing: bool) -> None:
        """Show the rows that match the filter `text`, and the mistakes in the filter."""
        self._parsed = parse_library_filter(text, self._clock(), partial=typing)
        self._is_typing_filter = typing
        self._look_up_filter(self._lookups)
        self._show_rows_matching_filter_and_mistakes()

    def _look_up_filter(self, known: Mapping[str, EntriesMatchingFilter]) -> None:
        """Look up the filter's conditions in the index, except those whose results are in `known`.

        If files have changed, or if hidden subjects have been shown or hidden, `known` is empty,
        because the old results are out of date.
        """
        wanted = {part.lookup for part in self._parsed.parts if part.lookup} - known.keys()
        hidden = self.state.hidden
        if not wanted:
            self._lookup_worker.discard_pending_results()
            return

        def find_entries_or_mistake(text: str) -> EntriesMatchingFilter:
            try:
                return self._library.find_entries_of_filter(text, hidden=hidden)
            except KbtuiError as error:
                mistake = QueryMistake(0, len(text), error.message, error.hint or "")
                return EntriesMatchingFilter(mistakes=(mistake,))

        def keep_lookups_and_show_filter(found: dict[str, EntriesMatchingFilter]) -> None:
            self._lookups = {**known, **found}
            self._show_rows_matching_filter_and_mistakes()

        self._lookup_worker.submit_call(
            lambda: {text: find_entries_or_mistake(text) for text in wanted},
            keep_lookups_and_show_filter,
        )

    def _show_rows_matching_filter_and_mistakes(self) -> None:
        """Show the rows that match the filter, and the mistakes in the filter."""
        text = self.filter.input.value
        found = self._parsed.add_looked_up_entries(self._lookups)
        if self._is_typing_filter:
            # Ignore new mistakes at the end, because the user may still be typing the last value.
            is_new = {*found.errors} - {*self._parsed.errors}
            kept = [one for one in found.errors if one not in is_new or one.end < len(text)]
            found = found._replace(errors=tuple(kept))
        self._errors.spans = [(error.start, error.end) for error in found.errors]
        self.filter.input.refresh()
        lines: list[Spans] = []
        for error in found.errors:
            wrong = sanitize_to_one_line(text[error.start : error.end])
            lines.append([(f"{wrong} ", "error strong"), (sanitize_to_one_line(str(error)), "")])
        self.error_lines.set_paragraphs(lines)
        if found != self.state.filter:
            self.state.filter = found
            self.update_library_rows()

    @on(TextInputInPane.EscapePressed)
    def _clear_filter_on_escape(self, event: TextInputInPane.EscapePressed) -> None:
        event.stop()
        self.action_clear_filter()
        self._apply_filter_text("", typing=False)
        self.update_library_rows(select=self._key_before_filter)

    def action_clear_filter(self) -> None:
        if self.filter.display:
            self.screen.set_focus(self.list)
            self.filter.hide_input()
        else:
            raise SkipAction
