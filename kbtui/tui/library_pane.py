"""The library pane: topics, subjects and conversations, with a filter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.highlighter import Highlighter
from textual import on
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from kbtui.dates import format_age
from kbtui.notices import format_notice
from kbtui.refs import Ref, make_conversation_ref, make_subject_ref
from kbtui.search.filters import FilterDefinition, FilterValueError, map_filters_by_key
from kbtui.search.models import QueryMistake
from kbtui.search.query_parser import parse_query
from kbtui.text import one_line
from kbtui.tui.commands import make_scope_bindings
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_widget import BorderOnlyPane
from kbtui.tui.framework.text_widgets import LabeledInput, PaneInput, WrappedParagraphs
from kbtui.tui.library_snapshot import get_activity_sort_key, get_last_activity
from kbtui.tui.navigation_target import NavigationTarget
from kbtui.tui.reader.document import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from rich.text import Text
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.conversations.models import ConversationInfo, ConversationToolsAndModels
    from kbtui.dates import Clock
    from kbtui.knowledge.models import Subject
    from kbtui.search.query_parser import FilterLikeWord, QueryFilter
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.library_snapshot import LibrarySnapshot, TopicWithSubjects


class FilterCondition(NamedTuple):
    """A condition on conversations: one of the values must match, or none if `excluded`."""

    filter: FilterDefinition
    values: tuple[Any, ...]
    excluded: bool

    def matches_conversation(
        self, info: ConversationInfo, summary: ConversationToolsAndModels | None
    ) -> bool:
        """Return whether a conversation matches; a condition that needs a missing summary never matches."""
        condition = self.filter.library
        if condition is None or (summary is None and self.filter.needs_summary):
            return False
        # `summary` may be None here only for conditions that do not use it.
        found = any(condition(info, summary, value) for value in self.values)  # type: ignore[arg-type]
        return found != self.excluded


class LibraryFilter(NamedTuple):
    """A parsed filter: a title or slug must contain all `words` and none of `without`.

    `parts` are conditions on conversations. `errors` are mistakes in the text with their positions; the
    valid rest of the filter still applies.
    """

    words: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    parts: tuple[FilterCondition, ...] = ()
    errors: tuple[QueryMistake, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.words or self.without or self.parts)

    @property
    def needs_summaries(self) -> bool:
        """Whether a condition depends on summaries; to make them, all conversations must be read."""
        return any(part.filter.needs_summary for part in self.parts)

    def matches_title(self, text: str) -> bool:
        """Return whether a title or slug contains all words and no excluded word."""
        folded = text.casefold()
        return all(word in folded for word in self.words) and not any(
            word in folded for word in self.without
        )

    def matches_conversation(
        self, info: ConversationInfo, summary: ConversationToolsAndModels | None
    ) -> bool:
        """Return whether a conversation matches the words and all conditions."""
        return self.matches_title(info.name) and all(
            part.matches_conversation(info, summary) for part in self.parts
        )


def parse_library_filter(text: str, now: datetime, *, partial: bool = False) -> LibraryFilter:
    """Parse the text of the filter line; mistakes are listed in `errors`, not raised.

    `partial` means that the user is still typing, so an incomplete last word is no mistake.
    """
    query = parse_query(text, partial=partial, surface="library")
    parts: list[FilterCondition] = []
    errors = [_make_query_error(word) for word in query.almost_filters]
    for part in query.filters:
        try:
            parts.append(_parse_condition(part, now))
        except FilterValueError as error:
            if not part.unfinished:
                errors.append(QueryMistake(part.start, part.end, error.message, error.hint))
    return LibraryFilter(
        tuple(word.casefold() for word in (*query.words, *query.phrases)),
        tuple(word.casefold() for word in query.excluded),
        tuple(parts),
        tuple(sorted(errors)),
    )


def _make_query_error(word: FilterLikeWord) -> QueryMistake:
    if word.notice.code == "filter_without_value":
        key = str(word.notice.values["word"])[:-1].lower()
        about = map_filters_by_key("library")[key].about
        return QueryMistake(word.start, word.end, "needs a value", about)
    return QueryMistake(word.start, word.end, format_notice(word.notice), "")


def _parse_condition(part: QueryFilter, now: datetime) -> FilterCondition:
    row = map_filters_by_key("library")[part.key]
    given = [value for value in part.values if value]
    values: list[Any] = []
    for value in given:
        if row.kind == "date":
            values.append(row.parse_date_value(value, now))
        elif row.kind == "choice":
            values += row.parse_choice_value(value)
        else:
            values.append(value.casefold())
    if not values:
        raise FilterValueError("needs a value", row.about)
    return FilterCondition(row, tuple(values), part.excluded)


ENTRY_MARKS = {
    "pre-loaded": ("◆ ", "accent"),
    "hidden": ("◌ ", "dim"),
    "disabled": ("✕ ", "warning"),
    "damaged or unreadable": ("! ", "error"),
    "archived": ("▫ ", "dim"),
    "local only": ("⌂ ", "dim"),
    "workspace only": ("⇣ ", "dim"),
}
"""Mark -> its sign and style role; the help page lists the marks by these names."""


SORTS = ("activity", "created", "updated", "title", "turns")
"""The sort orders of conversations: titles ascending, times and turns descending."""


@dataclass
class LibraryPaneState:
    """What the user chose: unfolded rows (by key), whether hidden subjects are shown, filter, sort order."""

    expanded: set[str] = field(default_factory=set)
    hidden: bool = False
    filter: LibraryFilter = field(default_factory=LibraryFilter)
    sort: str = "activity"


def make_library_rows(
    contents: LibrarySnapshot, state: LibraryPaneState, present: datetime
) -> list[ListRow]:
    """Return all rows of the pane, from top to bottom."""
    rows: list[ListRow] = []
    if not state.filter.parts:
        # Conditions such as `tool:` apply to conversations only, so no subject can match.
        rows += make_library_topic_rows(contents, state)
    return rows + make_conversation_rows(contents, state, present)


def _make_heading_row(key: str, text: str, right: str = "") -> ListRow:
    return ListRow(f"head:{key}", [(text, "section")], [(right, "dim")], selectable=False)


def _make_blank_row(key: str) -> ListRow:
    return ListRow(f"blank:{key}", [], selectable=False)


def _make_note_row(key: str, text: str, role: str = "dim", indent: str = "") -> ListRow:
    return ListRow(f"note:{key}", [(f"{indent}{text}", role)], selectable=False)


def make_library_topic_rows(contents: LibrarySnapshot, state: LibraryPaneState) -> list[ListRow]:
    """Return the rows of topics and subjects."""
    return list(_make_topic_section(contents, state))


def _make_topic_section(contents: LibrarySnapshot, state: LibraryPaneState) -> Iterator[ListRow]:
    yield _make_heading_row("topics", "TOPICS")
    failures = [line for line in contents.failures if line.startswith("topics")]
    for number, line in enumerate(failures):
        yield _make_problem_row(f"kb:{number}", one_line(line))
    for number, problem in enumerate(contents.problems, len(failures)):
        # Put the message before the key, because a narrow pane cuts the end of the line.
        said = problem.message if problem.key else str(problem)
        row = _make_problem_row(f"kb:{number}", one_line(said), whole=str(problem))
        if problem.key:
            row.below = [[("  ", ""), (one_line(problem.key), "dim")]]
        yield row
    if not contents.listings and not failures and not contents.problems:
        yield _make_note_row("no-topics", "none yet")
    shown = False
    for listing in contents.listings:
        rows = list(_make_topic_with_subjects_rows(listing, state, contents.unreadable))
        shown = shown or bool(rows)
        yield from rows
    if state.filter and contents.listings and not shown:
        yield _make_note_row("no-subject", "nothing matches")
    yield _make_blank_row("topics")


def _make_problem_row(key: str, text: str, indent: str = "", whole: str = "") -> ListRow:
    """Return a row for a problem; opening it shows `whole`, the message with its location and hint."""
    place = NavigationTarget(f"problem:{key}", text=whole or text)
    return ListRow(f"problem:{key}", [(f"{indent}! ", "error"), (text, "error")], data=place)


def _make_topic_with_subjects_rows(
    listing: TopicWithSubjects, state: LibraryPaneState, unreadable: Mapping[tuple[str, str], str]
) -> Iterator[ListRow]:
    topic = listing.topic
    subjects = [s for s in listing.subjects if state.hidden or not s.hidden]
    if state.filter:
        subjects = [s for s in subjects if state.filter.matches_title(f"{topic.name} {s.slug}")]
        if not subjects and not state.filter.matches_title(topic.name):
            return
    key = f"topic:{topic.id}"
    opened = key in state.expanded or bool(state.filter)
    arrow = "▾ " if opened else "▸ "
    name: Spans = [(arrow, "dim"), (one_line(topic.name), "" if topic.enable else "dim")]
    count: Spans = [(f"{len(subjects):,}", "dim")] if topic.enable else [("off", "warning")]
    if listing.problems or (unreadable and any((s.topic, s.slug) in unreadable for s in subjects)):
        count = [("! ", "error"), *count]
    place = NavigationTarget(key, ref=Ref("topic", topic=topic.id))
    yield ListRow(key, name, count, data=place)
    for number, problem in enumerate(listing.problems):
        message = one_line(problem.message)
        yield _make_problem_row(f"{topic.id}:{number}", message, "  ", whole=str(problem))
    if opened:
        yield from _make_folder_rows(topic.id, subjects, state, unreadable)


def _make_folder_rows(
    topic: str,
    subjects: list[Subject],
    state: LibraryPaneState,
    unreadable: Mapping[tuple[str, str], str],
) -> Iterator[ListRow]:
    """Yield the rows of subjects and of the directories that contain them."""
    shown: list[str] = []
    for subject in sorted(subjects, key=_get_tree_sort_key):
        parts = subject.slug.split("/")[:-1]
        common = 0
        while common < min(len(parts), len(shown)) and parts[common] == shown[common]:
            common += 1
        del shown[common:]
        closed = False
        for depth in range(len(parts)):
            key = f"folder:{topic}/" + "/".join(parts[: depth + 1])
            opened = key in state.expanded or bool(state.filter)
            if depth >= len(shown):
                arrow = "▾ " if opened else "▸ "
                name = one_line(parts[depth])
                yield ListRow(key, [("  " * (depth + 1), ""), (arrow, "dim"), (f"{name}/", "")])
                shown.append(parts[depth])
            if not opened:
                closed = True
                break
        if not closed:
            reason = unreadable.get((topic, subject.slug))
            yield _make_subject_row(subject, len(parts), reason)


def _get_tree_sort_key(subject: Subject) -> list[tuple[bool, str]]:
    """Return a sort key: the files of a directory before its subdirectories, both by name."""
    parts = subject.slug.split("/")
    return [(depth < len(parts) - 1, part) for depth, part in enumerate(parts)]


def _make_subject_row(subject: Subject, depth: int, reason: str | None) -> ListRow:
    """Return the row of a subject; `reason` says why it cannot be read, None if it can."""
    mark, role = "  ", ""
    for name, is_so in (
        ("pre-loaded", subject.learned),
        ("hidden", subject.hidden),
        ("disabled", subject.disabled),
        ("damaged or unreadable", reason is not None),
    ):
        if is_so:
            mark, role = ENTRY_MARKS[name]
    name_role = (
        "dim struck" if subject.disabled else "dim" if subject.hidden or subject.shadowed else ""
    )
    name = one_line(subject.slug.rsplit("/", 1)[-1])
    ref = make_subject_ref(subject.topic, subject.slug)
    spans: Spans = [("  " * (depth + 1), ""), (mark, role), (name, name_role)]
    row = ListRow(str(ref), spans, data=NavigationTarget(str(ref), ref=ref))
    if reason:
        row.below = [[("  " * (depth + 2), ""), (one_line(reason), "error")]]
    return row


def make_conversation_rows(
    contents: LibrarySnapshot, state: LibraryPaneState, present: datetime
) -> list[ListRow]:
    """Return the rows of conversations: pinned, then live, then archived."""
    return list(_make_conversation_section(contents, state, present))


def _make_conversation_section(
    contents: LibrarySnapshot, state: LibraryPaneState, present: datetime
) -> Iterator[ListRow]:
    summaries = contents.summaries
    infos = [
        info
        for info in contents.conversations
        if state.filter.matches_conversation(info, summaries.get(info.id))
    ]
    infos.sort(key=_get_conversation_sort_key(state.sort, contents))
    yield _make_heading_row("conversations", "CONVERSATIONS", f"by {state.sort}")
    for number, line in enumerate(contents.failures):
        if line.startswith("conversations"):
            yield _make_problem_row(f"conversations:{number}", one_line(line))
    if not contents.conversations:
        yield _make_note_row("no-talks", "none yet")
    if (state.filter.needs_summaries or state.sort == "turns") and (left := contents.unread):
        yield _make_note_row("unread", f"reading {left:,} more conversations …")
    elif contents.conversations and not infos:
        yield _make_note_row("no-talk", "nothing matches")
    if all(info.presence == "external" for info in contents.conversations):
        infos = [replace(info, presence="projected") for info in infos]
    pinned = [info for info in infos if info.pinned_at and not info.archived]
    live = [info for info in infos if not info.pinned_at and not info.archived]
    archived = [info for info in infos if info.archived]
    dated = _ConversationRowMaker(contents, state.sort, present)
    if pinned:
        yield _make_note_row("pinned", "Pinned", "day")
        yield from dated.make_rows_with_age(pinned)
    if live and pinned:
        words = {"title": "By title", "turns": "By number of turns"}
        yield _make_note_row("recent", words.get(state.sort, "By day"), "day")
    yield from dated.make_rows_with_age(live)
    if archived:
        yield _make_note_row("archived", "Archived", "day")
        yield from dated.make_rows_with_age(archived)


def _get_conversation_sort_key(
    sort: str, contents: LibrarySnapshot
) -> Callable[[ConversationInfo], Any]:
    """Return the sort key for a sort order; ties put the newest conversation first."""
    if sort == "title":
        return lambda info: (
            info.title is None,
            info.name.casefold(),
            -info.created_at.timestamp(),
            info.id,
        )
    if sort == "turns":
        return lambda info: (-contents.count_turns(info), -info.created_at.timestamp(), info.id)
    if sort == "activity":
        return get_activity_sort_key
    return lambda info: (
        -_get_sort_time(info, sort).timestamp(),
        -info.created_at.timestamp(),
        info.id,
    )


def _get_sort_time(info: ConversationInfo, sort: str) -> datetime:
    """Return the time by which a conversation is sorted; its row shows the same time."""
    if sort == "created":
        return info.created_at
    if sort == "updated":
        return info.updated_at or info.created_at
    return get_last_activity(info)


def has_recent_times(contents: LibrarySnapshot, sort: str, present: datetime) -> bool:
    """Return whether a row shows minutes or hours, which change as time passes."""
    return any(
        abs((present - _get_sort_time(info, sort)).total_seconds()) < 86_400
        for info in contents.conversations
    )


class _ConversationRowMaker(NamedTuple):
    """Makes rows with an age (`5 min`, `31 Jul`); of adjacent rows with the same age, only the first shows it."""

    contents: LibrarySnapshot
    sort: str
    present: datetime

    def make_rows_with_age(self, infos: Iterable[ConversationInfo]) -> Iterator[ListRow]:
        before = ""
        for info in infos:
            label = self._make_age_label(info)
            once = self.sort not in ("title", "turns") and label == before
            yield _make_conversation_row(info, "" if once else label)
            before = label

    def _make_age_label(self, info: ConversationInfo) -> str:
        if self.sort == "turns":
            turns = self.contents.count_turns(info)
            return "…" if turns < 0 else format_count(turns, "turn")
        return format_age(_get_sort_time(info, self.sort), self.present)


def _make_conversation_row(info: ConversationInfo, day: str) -> ListRow:
    mark: tuple[str, str] = ("", "")
    for name, is_so in (
        ("local only", info.presence == "user_local"),
        ("workspace only", info.presence == "external"),
        ("archived", info.archived),
        ("damaged or unreadable", info.problem is not None),
    ):
        if is_so:
            mark = ENTRY_MARKS[name]
    role = "dim" if info.archived or not info.title else ""
    place = NavigationTarget(info.ref, ref=make_conversation_ref(info.id))
    row = ListRow(info.ref, [mark, (one_line(info.name), role)], [(day, "dim")], data=place)
    if info.problem:
        row.below = [[("  ", ""), (one_line(info.problem), "error")]]
    return row


ROWS_AT_ONCE = 1_000
"""The number of subjects and conversations above which the rows are made in a thread."""
UPDATE_SECONDS = 10.0
"""How many seconds pass between updates of ages such as `5 min`."""


class LibraryPane(BorderOnlyPane, Vertical):
    """A list of topics, subjects and conversations; posts `OpenRequested` for the row that the user opens."""

    BINDINGS: ClassVar[list[BindingType]] = [*make_scope_bindings("library")]

    class OpenRequested(Message):
        """The user opened a row."""

        def __init__(self, place: NavigationTarget) -> None:
            super().__init__()
            self.place = place

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="library", classes="pane")
        self.border_title = "Library"
        self.contents: LibrarySnapshot | None = None
        self.state = LibraryPaneState()
        self.list = RowList("library-list")
        self._errors = _FilterErrorHighlighter()
        self.filter = LabeledInput("filter", "filter", self._errors)
        self.error_lines = WrappedParagraphs(self.list)
        self._shown_at: datetime | None = None
        self._is_restored = False
        self.list.empty_text = [("Reading the workspace …", "dim")]
        self._clock = clock
        self._worker = LatestOnlyWorker(self)

    def compose(self) -> ComposeResult:
        """Yield the filter and the list; filter errors are mounted between them."""
        yield self.filter
        yield self.list

    def on_mount(self) -> None:
        """Start the timer that updates the ages."""
        self.set_interval(UPDATE_SECONDS, self.update_age_labels)

    def show_snapshot(self, contents: LibrarySnapshot) -> None:
        """Show a snapshot; the selected row and the unfolded rows stay."""
        first = self.contents is None
        self.contents = contents
        if first and not self._is_restored:
            self._expand_topics_that_fit()
        self.update_rows()

    def restore_expanded(self, expanded: list[str]) -> None:
        """Unfold the rows that were unfolded in the saved session."""
        self._is_restored = True
        self.state.expanded = set(expanded)
        self.update_rows()

    def set_summaries(self, contents: LibrarySnapshot) -> None:
        """Replace the snapshot by one with more summaries of the same conversations."""
        self.contents = contents
        if self.needs_summaries:
            self.update_rows()

    @property
    def is_loading_rows(self) -> bool:
        """Whether rows are being made in a thread."""
        return self._worker.has_pending_result

    @property
    def needs_summaries(self) -> bool:
        """Whether the filter or the sort order depends on summaries."""
        return self.state.filter.needs_summaries or self.state.sort == "turns"

    def _expand_topics_that_fit(self) -> None:
        """Unfold each topic whose subjects still fit into the pane without scrolling."""
        contents = self.contents
        assert contents is not None
        room = self.list.scrollable_content_region.height
        room -= len(contents.conversations)
        if room <= 0:
            return
        room -= len(make_conversation_rows(contents, self.state, self._clock()))
        room += len(contents.conversations)
        for listing in contents.listings:
            if listing.visible_subject_count > ROWS_AT_ONCE:
                continue
            key = f"topic:{listing.topic.id}"
            self.state.expanded.add(key)
            if len(make_library_topic_rows(contents, self.state)) > room:
                self.state.expanded.discard(key)

    def update_rows(self, select: str | None = None) -> None:
        """Rebuild the rows, in a thread if there are many."""
        contents = self.contents
        if contents is None:
            return
        self.border_subtitle = "hidden shown" if self.state.hidden else ""
        self._worker.discard_results()
        present = self._shown_at = self._clock()
        many = sum(len(listing.subjects) for listing in contents.listings) + len(
            contents.conversations
        )
        if many <= ROWS_AT_ONCE:
            self.list.set_rows(make_library_rows(contents, self.state, present), select=select)
            return
        state = replace(self.state, expanded=set(self.state.expanded))
        self._worker.submit(
            lambda: make_library_rows(contents, state, present),
            lambda rows: self.list.set_rows(rows, select=select),
            lambda error: self.list.set_rows([], [(one_line(str(error)), "error")]),
        )

    def update_age_labels(self) -> None:
        """Rebuild the rows if an age such as `5 min` may be different now."""
        before, present = self._shown_at, self._clock()
        if self.contents is None or before is None or present <= before:
            return
        if before.date() != present.date() or (
            present.replace(second=0, microsecond=0) > before
            and has_recent_times(self.contents, self.state.sort, present)
        ):
            self.update_rows()

    def select_target(self, place: NavigationTarget) -> None:
        """Select the row of a target, and unfold the topic and directories that contain it."""
        if place.ref and place.ref.kind == "subject" and place.ref.slug:
            topic = place.ref.topic
            parts = place.ref.slug.split("/")
            wanted = {f"topic:{topic}"}
            wanted |= {f"folder:{topic}/" + "/".join(parts[:n]) for n in range(1, len(parts))}
            if not wanted <= self.state.expanded:
                self.state.expanded |= wanted
                self.update_rows(select=place.key)
        self.list.select_row(place.key)

    @on(RowList.RowClicked)
    def _open_clicked_row(self, event: RowList.RowClicked) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """Open the selected row; also fold or unfold it if it is a topic or folder."""
        row = self.list.selected_row
        if row is None:
            return
        if row.key.startswith("folder:"):
            self.action_toggle_fold()
        elif isinstance(row.data, NavigationTarget):
            if row.key.startswith("topic:"):
                self._set_row_expanded(row.key, row.key not in self.state.expanded)
            self.post_message(self.OpenRequested(row.data))

    def action_toggle_fold(self) -> None:
        """Fold or unfold the selected topic or folder."""
        row = self.list.selected_row
        if row and row.key.startswith(("topic:", "folder:")):
            self._set_row_expanded(row.key, row.key not in self.state.expanded)

    def action_expand(self) -> None:
        """Unfold the selected topic or folder."""
        row = self.list.selected_row
        if row and row.key.startswith(("topic:", "folder:")):
            self._set_row_expanded(row.key, True)

    def action_collapse(self) -> None:
        """Fold the selected topic or folder; if it is folded already, select its parent."""
        row = self.list.selected_row
        if row is None:
            return
        if row.key in self.state.expanded:
            self._set_row_expanded(row.key, False)
            return
        path = row.key.removeprefix("folder:").split("/")
        for depth in range(len(path) - 1, 0, -1):
            parent = f"folder:{'/'.join(path[:depth])}" if depth > 1 else f"topic:{path[0]}"
            if self.list.select_row(parent):
                return

    def _set_row_expanded(self, key: str, expanded: bool) -> None:
        (self.state.expanded.add if expanded else self.state.expanded.discard)(key)
        self.update_rows()

    def toggle_hidden_subjects(self) -> bool:
        """Show or hide hidden subjects; return whether they are shown now."""
        self.state.hidden = not self.state.hidden
        self.update_rows()
        return self.state.hidden

    def action_sort(self) -> None:
        """Switch to the next sort order."""
        self.state.sort = SORTS[(SORTS.index(self.state.sort) + 1) % len(SORTS)]
        self.update_rows()

    def action_filter(self) -> None:
        """Show the filter line, and focus it."""
        self.filter.show_input()

    @on(Input.Changed, "#filter")
    def _filter_while_typing(self, event: Input.Changed) -> None:
        event.stop()
        self._apply_filter(event.value, typing=True)

    @on(Input.Submitted, "#filter")
    def _submit_filter(self, event: Input.Submitted) -> None:
        event.stop()
        self._apply_filter(event.value, typing=False)
        if not self.state.filter.errors:
            self.screen.set_focus(self.list)

    def _apply_filter(self, text: str, *, typing: bool) -> None:
        """Show the rows that match a filter, and the mistakes in it."""
        found = parse_library_filter(text, self._clock(), partial=typing)
        self._errors.spans = [(error.start, error.end) for error in found.errors]
        self.filter.input.refresh()
        self.error_lines.set_paragraphs(
            [
                [
                    (f"{one_line(text[error.start : error.end])} ", "error strong"),
                    (one_line(str(error)), ""),
                ]
                for error in found.errors
            ]
        )
        if found != self.state.filter:
            self.state.filter = found
            self.update_rows()

    @on(PaneInput.EscapePressed)
    def _leave_filter(self, event: PaneInput.EscapePressed) -> None:
        event.stop()
        self.action_clear()

    def action_clear(self) -> None:
        """Clear the filter."""
        if self.filter.display:
            self.screen.set_focus(self.list)
            self.filter.hide_input()


class _FilterErrorHighlighter(Highlighter):
    """Underlines the mistakes in the filter line."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def highlight(self, text: Text) -> None:
        """Underline the mistakes."""
        for start, end in self.spans:
            text.stylize("bold underline", start, end)
