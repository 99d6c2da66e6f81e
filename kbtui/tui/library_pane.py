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
from kbtui.search.filters import Filter, FilterError, map_filters
from kbtui.search.models import QueryError
from kbtui.search.query_parser import parse_query
from kbtui.text import one_line
from kbtui.tui.commands import bindings
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_widget import BorderOnlyPane
from kbtui.tui.framework.text_widgets import LabeledInput, MultilineText, PaneInput
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.library_snapshot import activity, by_activity
from kbtui.tui.navigation_target import NavigationTarget
from kbtui.tui.reader.document import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from rich.text import Text
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.conversations.models import ConversationInfo, ConversationSummary
    from kbtui.dates import Clock
    from kbtui.knowledge.models import Subject
    from kbtui.search.query_parser import FilterLikeWord, QueryFilter
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.library_snapshot import LibrarySnapshot, TopicListing


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


def _error_in(word: FilterLikeWord) -> QueryError:
    if word.notice.code == "filter_without_value":
        key = str(word.notice.values["word"])[:-1].lower()
        about = map_filters("library")[key].about
        return QueryError(word.start, word.end, "needs a value", about)
    return QueryError(word.start, word.end, format_notice(word.notice), "")


def _condition(part: QueryFilter, now: datetime) -> FilterCondition:
    row = map_filters("library")[part.key]
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


MARKS = {
    "pre-loaded": ("◆ ", "accent"),
    "hidden": ("◌ ", "dim"),
    "disabled": ("✕ ", "warning"),
    "damaged": ("! ", "error"),
    "archived": ("▫ ", "dim"),
    "only on this machine": ("⌂ ", "dim"),
    "in the workspace alone": ("⇣ ", "dim"),
}
"""What stands before an entry; the help screen explains them in these words."""


SORTS = ("activity", "created", "updated", "title", "turns")
"""What conversations can be sorted by; titles from a to z, all else from new or much to old."""


@dataclass
class LibraryState:
    """What one chose to see of the library."""

    expanded: set[str] = field(default_factory=set)
    hidden: bool = False
    filter: LibraryFilter = field(default_factory=LibraryFilter)
    sort: str = "activity"


def library_rows(
    contents: LibrarySnapshot, state: LibraryState, present: datetime
) -> list[ListRow]:
    """All rows, in order."""
    rows: list[ListRow] = []
    if not state.filter.parts:
        # A subject has no labels, tools or models.
        rows += topic_rows(contents, state)
    return rows + conversation_rows(contents, state, present)


def _heading(key: str, text: str, right: str = "") -> ListRow:
    return ListRow(f"head:{key}", [(text, "section")], [(right, "dim")], selectable=False)


def _blank(key: str) -> ListRow:
    return ListRow(f"blank:{key}", [], selectable=False)


def _note(key: str, text: str, role: str = "dim", indent: str = "") -> ListRow:
    return ListRow(f"note:{key}", [(f"{indent}{text}", role)], selectable=False)


def topic_rows(contents: LibrarySnapshot, state: LibraryState) -> list[ListRow]:
    """The rows of topics and subjects."""
    return list(_topic_section(contents, state))


def _topic_section(contents: LibrarySnapshot, state: LibraryState) -> Iterator[ListRow]:
    yield _heading("topics", "TOPICS")
    failures = [line for line in contents.failures if line.startswith("topics")]
    for number, line in enumerate(failures):
        yield _problem(f"kb:{number}", one_line(line))
    for number, problem in enumerate(contents.problems, len(failures)):
        # What is wrong with a key stands before the key: in a narrow pane the rest is cut.
        said = problem.message if problem.key else str(problem)
        row = _problem(f"kb:{number}", one_line(said), whole=str(problem))
        if problem.key:
            row.below = [[("  ", ""), (one_line(problem.key), "dim")]]
        yield row
    if not contents.listings and not failures and not contents.problems:
        yield _note("no-topics", "none yet")
    shown = False
    for listing in contents.listings:
        rows = list(_topic_rows_of(listing, state))
        shown = shown or bool(rows)
        yield from rows
    if state.filter and contents.listings and not shown:
        yield _note("no-subject", "nothing matches")
    yield _blank("topics")


def _problem(key: str, text: str, indent: str = "", whole: str = "") -> ListRow:
    """A row that says what is wrong; opened, it says `whole`, with where and what to do."""
    place = NavigationTarget(f"problem:{key}", text=whole or text)
    return ListRow(f"problem:{key}", [(f"{indent}! ", "error"), (text, "error")], data=place)


def _topic_rows_of(listing: TopicListing, state: LibraryState) -> Iterator[ListRow]:
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
    if listing.problems:
        count = [("! ", "error"), *count]
    place = NavigationTarget(key, ref=Ref("topic", topic=topic.id))
    yield ListRow(key, name, count, data=place)
    for number, problem in enumerate(listing.problems):
        message = one_line(problem.message)
        yield _problem(f"{topic.id}:{number}", message, "  ", whole=str(problem))
    if opened:
        yield from _folder(topic.id, subjects, state)


def _folder(topic: str, subjects: list[Subject], state: LibraryState) -> Iterator[ListRow]:
    """Subjects, those in directories below a row for each directory."""
    shown: list[str] = []
    for subject in sorted(subjects, key=_tree_order):
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
            yield _subject(subject, len(parts))


def _tree_order(subject: Subject) -> list[tuple[bool, str]]:
    """Files of a directory before the directories in it, both by name."""
    parts = subject.slug.split("/")
    return [(depth < len(parts) - 1, part) for depth, part in enumerate(parts)]


def _subject(subject: Subject, depth: int) -> ListRow:
    mark, role = "  ", ""
    for name, is_so in (
        ("pre-loaded", subject.learned),
        ("hidden", subject.hidden),
        ("disabled", subject.disabled),
    ):
        if is_so:
            mark, role = MARKS[name]
    name_role = (
        "dim struck" if subject.disabled else "dim" if subject.hidden or subject.shadowed else ""
    )
    name = one_line(subject.slug.rsplit("/", 1)[-1])
    ref = make_subject_ref(subject.topic, subject.slug)
    spans: Spans = [("  " * (depth + 1), ""), (mark, role), (name, name_role)]
    return ListRow(str(ref), spans, data=NavigationTarget(str(ref), ref=ref))


def conversation_rows(
    contents: LibrarySnapshot, state: LibraryState, present: datetime
) -> list[ListRow]:
    """The rows of conversations: pinned, then live, then archived ones."""
    return list(_conversation_section(contents, state, present))


def _conversation_section(
    contents: LibrarySnapshot, state: LibraryState, present: datetime
) -> Iterator[ListRow]:
    summaries = contents.summaries
    infos = [
        info
        for info in contents.conversations
        if state.filter.matches(info, summaries.get(info.id))
    ]
    infos.sort(key=_order(state.sort, contents))
    yield _heading("conversations", "CONVERSATIONS", f"by {state.sort}")
    for number, line in enumerate(contents.failures):
        if line.startswith("conversations"):
            yield _problem(f"conversations:{number}", one_line(line))
    if not contents.conversations:
        yield _note("no-talks", "none yet")
    if (state.filter.needs_summaries or state.sort == "turns") and (left := contents.unread):
        yield _note("unread", f"{left:,} are still to be read …")
    elif contents.conversations and not infos:
        yield _note("no-talk", "nothing matches")
    if all(info.presence == "external" for info in contents.conversations):
        infos = [replace(info, presence="projected") for info in infos]
    pinned = [info for info in infos if info.pinned_at and not info.archived]
    live = [info for info in infos if not info.pinned_at and not info.archived]
    archived = [info for info in infos if info.archived]
    dated = _Dated(contents, state.sort, present)
    if pinned:
        yield _note("pinned", "Pinned", "day")
        yield from dated.rows(pinned)
    if live and pinned:
        words = {"title": "By title", "turns": "By number of turns"}
        yield _note("recent", words.get(state.sort, "By day"), "day")
    yield from dated.rows(live)
    if archived:
        yield _note("archived", "Archived", "day")
        yield from dated.rows(archived)


def _order(sort: str, contents: LibrarySnapshot) -> Callable[[ConversationInfo], Any]:
    """The sort key of conversations; of equal ones the newest first."""
    if sort == "title":
        return lambda info: (
            info.title is None,
            info.name.casefold(),
            -info.created_at.timestamp(),
            info.id,
        )
    if sort == "turns":
        return lambda info: (-contents.turns_of(info), -info.created_at.timestamp(), info.id)
    if sort == "activity":
        return by_activity
    return lambda info: (-_moment(info, sort).timestamp(), -info.created_at.timestamp(), info.id)


def _moment(info: ConversationInfo, sort: str) -> datetime:
    """The time that a conversation stands at when sorted so."""
    if sort == "created":
        return info.created_at
    if sort == "updated":
        return info.updated_at or info.created_at
    return activity(info)


def sooner_than_a_day(contents: LibrarySnapshot, sort: str, present: datetime) -> bool:
    """Whether any conversation's label says hours or minutes, and so changes with time."""
    return any(
        abs((present - _moment(info, sort)).total_seconds()) < 86_400
        for info in contents.conversations
    )


class _Dated(NamedTuple):
    """Makes rows that say when: in minutes or hours today, else the day, once for all of it."""

    contents: LibrarySnapshot
    sort: str
    present: datetime

    def rows(self, infos: Iterable[ConversationInfo]) -> Iterator[ListRow]:
        before = ""
        for info in infos:
            label = self._label(info)
            once = self.sort not in ("title", "turns") and label == before
            yield _conversation(info, "" if once else label)
            before = label

    def _label(self, info: ConversationInfo) -> str:
        if self.sort == "turns":
            turns = self.contents.turns_of(info)
            return "…" if turns < 0 else format_count(turns, "turn")
        return format_age(_moment(info, self.sort), self.present)


def _conversation(info: ConversationInfo, day: str) -> ListRow:
    mark: tuple[str, str] = ("", "")
    for name, is_so in (
        ("only on this machine", info.presence == "user_local"),
        ("in the workspace alone", info.presence == "external"),
        ("archived", info.archived),
        ("damaged", info.problem is not None),
    ):
        if is_so:
            mark = MARKS[name]
    role = "dim" if info.archived or not info.title else ""
    place = NavigationTarget(info.ref, ref=make_conversation_ref(info.id))
    row = ListRow(info.ref, [mark, (one_line(info.name), role)], [(day, "dim")], data=place)
    if info.problem:
        row.below = [[("  ", ""), (one_line(info.problem), "error")]]
    return row


AT_ONCE = 1_000
"""Subjects and conversations up to which the rows are made at once."""
TICK_SECONDS = 10.0
"""How often it is looked whether a date should be said differently."""


class LibraryPane(BorderOnlyPane, Vertical):
    """Lists what there is; says what is to be opened."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("library")]

    class Open(Message):
        """A place is to be opened."""

        def __init__(self, place: NavigationTarget) -> None:
            super().__init__()
            self.place = place

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="library", classes="pane")
        self.border_title = "Library"
        self.contents: LibrarySnapshot | None = None
        self.state = LibraryState()
        self.list = RowList("library-list")
        self._wrong = _Wrong()
        self.filter = LabeledInput("filter", "filter", self._wrong)
        self.says = MultilineText(self.list)
        self._ticked: datetime | None = None
        self._is_restored = False
        self.list.empty_text = [("Reading the workspace …", "dim")]
        self._clock = clock
        self._lane = LatestOnlyWorker(self)

    def compose(self) -> ComposeResult:
        """The filter and the list; what is wrong with the filter comes between them."""
        yield self.filter
        yield self.list

    def on_mount(self) -> None:
        """Let the dates tick."""
        self.set_interval(TICK_SECONDS, self.tick)

    def show(self, contents: LibrarySnapshot) -> None:
        """Show other contents, keeping what is selected and expanded."""
        first = self.contents is None
        self.contents = contents
        if first and not self._is_restored:
            self._expand_what_fits()
        self.refill()

    def restore_expanded(self, expanded: list[str]) -> None:
        """Expand what was expanded when it was left."""
        self._is_restored = True
        self.state.expanded = set(expanded)
        self.refill()

    def set_summaries(self, contents: LibrarySnapshot) -> None:
        """Take in what was read of the same conversations; shown only where it is asked for."""
        self.contents = contents
        if self.needs_summaries:
            self.refill()

    @property
    def is_filling(self) -> bool:
        """Whether other rows are still being made."""
        return self._lane.has_pending_result

    @property
    def needs_summaries(self) -> bool:
        """Whether what is shown depends on what conversations used."""
        return self.state.filter.needs_summaries or self.state.sort == "turns"

    def _expand_what_fits(self) -> None:
        """Expand topics as long as everything still fits into the pane."""
        contents = self.contents
        assert contents is not None
        room = self.list.scrollable_content_region.height
        room -= len(contents.conversations)
        if room <= 0:
            return
        room -= len(conversation_rows(contents, self.state, self._clock()))
        room += len(contents.conversations)
        for listing in contents.listings:
            if listing.visible > AT_ONCE:
                continue
            key = f"topic:{listing.topic.id}"
            self.state.expanded.add(key)
            if len(topic_rows(contents, self.state)) > room:
                self.state.expanded.discard(key)

    def refill(self, select: str | None = None) -> None:
        """Make the rows again; in a thread where there are so many that one would notice."""
        contents = self.contents
        if contents is None:
            return
        self.border_subtitle = "hidden shown" if self.state.hidden else ""
        self._lane.discard_results()
        present = self._ticked = self._clock()
        many = sum(len(listing.subjects) for listing in contents.listings) + len(
            contents.conversations
        )
        if many <= AT_ONCE:
            self.list.set_rows(library_rows(contents, self.state, present), select=select)
            return
        state = replace(self.state, expanded=set(self.state.expanded))
        self._lane.submit(
            lambda: library_rows(contents, state, present),
            lambda rows: self.list.set_rows(rows, select=select),
            lambda error: self.list.set_rows([], [(one_line(str(error)), "error")]),
        )

    def tick(self) -> None:
        """Say the dates anew where time has changed them."""
        before, present = self._ticked, self._clock()
        if self.contents is None or before is None or present <= before:
            return
        if before.date() != present.date() or (
            present.replace(second=0, microsecond=0) > before
            and sooner_than_a_day(self.contents, self.state.sort, present)
        ):
            self.refill()

    def reveal(self, place: NavigationTarget) -> None:
        """Select a place, expanding what it lies in."""
        if place.ref and place.ref.kind == "subject" and place.ref.slug:
            topic = place.ref.topic
            parts = place.ref.slug.split("/")
            wanted = {f"topic:{topic}"}
            wanted |= {f"folder:{topic}/" + "/".join(parts[:n]) for n in range(1, len(parts))}
            if not wanted <= self.state.expanded:
                self.state.expanded |= wanted
                self.refill(select=place.key)
        self.list.select(place.key)

    @on(RowList.RowClicked)
    def _clicked(self, event: RowList.RowClicked) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """Open the selected entry; a topic or folder is expanded too."""
        row = self.list.selected
        if row is None:
            return
        if row.key.startswith("folder:"):
            self.action_expand_or_collapse()
        elif isinstance(row.data, NavigationTarget):
            if row.key.startswith("topic:"):
                self._set(row.key, row.key not in self.state.expanded)
            self.post_message(self.Open(row.data))

    def action_expand_or_collapse(self) -> None:
        """Expand or collapse the selected entry."""
        row = self.list.selected
        if row and row.key.startswith(("topic:", "folder:")):
            self._set(row.key, row.key not in self.state.expanded)

    def action_expand(self) -> None:
        """Expand the selected entry."""
        row = self.list.selected
        if row and row.key.startswith(("topic:", "folder:")):
            self._set(row.key, True)

    def action_collapse(self) -> None:
        """Collapse the selected entry, else the one that it lies in."""
        row = self.list.selected
        if row is None:
            return
        if row.key in self.state.expanded:
            self._set(row.key, False)
            return
        path = row.key.removeprefix("folder:").split("/")
        for depth in range(len(path) - 1, 0, -1):
            parent = f"folder:{'/'.join(path[:depth])}" if depth > 1 else f"topic:{path[0]}"
            if self.list.select(parent):
                return

    def _set(self, key: str, expanded: bool) -> None:
        (self.state.expanded.add if expanded else self.state.expanded.discard)(key)
        self.refill()

    def toggle_hidden(self) -> bool:
        """Show or hide hidden subjects; says whether they are shown now."""
        self.state.hidden = not self.state.hidden
        self.refill()
        return self.state.hidden

    def action_sort(self) -> None:
        """Sort conversations by the next key."""
        self.state.sort = SORTS[(SORTS.index(self.state.sort) + 1) % len(SORTS)]
        self.refill()

    def action_filter(self) -> None:
        """Show the filter and type into it."""
        self.filter.open()

    @on(Input.Changed, "#filter")
    def _filter(self, event: Input.Changed) -> None:
        event.stop()
        self._narrow(event.value, typing=True)

    @on(Input.Submitted, "#filter")
    def _filtered(self, event: Input.Submitted) -> None:
        event.stop()
        self._narrow(event.value, typing=False)
        if not self.state.filter.errors:
            self.screen.set_focus(self.list)

    def _narrow(self, text: str, *, typing: bool) -> None:
        """Show what a filter lets through; what is wrong with it is pointed at."""
        found = parse_library_filter(text, self._clock(), partial=typing)
        self._wrong.spans = [(error.start, error.end) for error in found.errors]
        self.filter.input.refresh()
        self.says.set_paragraphs(
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
            self.refill()

    @on(PaneInput.EscapePressed)
    def _left(self, event: PaneInput.EscapePressed) -> None:
        event.stop()
        self.action_clear()

    def action_clear(self) -> None:
        """Take the filter away."""
        if self.filter.display:
            self.screen.set_focus(self.list)
            self.filter.close()


class _Wrong(Highlighter):
    """Marks what is wrong with a filter where it stands."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def highlight(self, text: Text) -> None:
        """Mark it."""
        for start, end in self.spans:
            text.stylize("bold underline", start, end)
