"""The library's rows: topics with their subjects, then conversations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtui.refs import Ref, conversation_ref, subject_ref
from kbtui.text import one_line
from kbtui.tui.clock import age_label
from kbtui.tui.framework.row_list import ListRow
from kbtui.tui.library.filter import LibraryFilter
from kbtui.tui.library.snapshot import activity, by_activity
from kbtui.tui.navigation import NavigationTarget
from kbtui.tui.reader.document import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from kbtui.conversations.models import ConversationInfo
    from kbtui.knowledge.models import Subject
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.library.snapshot import LibrarySnapshot, TopicListing

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
    if not contents.shelves and not failures and not contents.problems:
        yield _note("no-topics", "none yet")
    shown = False
    for shelf in contents.shelves:
        rows = list(_shelf(shelf, state))
        shown = shown or bool(rows)
        yield from rows
    if state.filter and contents.shelves and not shown:
        yield _note("no-subject", "nothing matches")
    yield _blank("topics")


def _problem(key: str, text: str, indent: str = "", whole: str = "") -> ListRow:
    """A row that says what is wrong; opened, it says `whole`, with where and what to do."""
    place = NavigationTarget(f"problem:{key}", text=whole or text)
    return ListRow(f"problem:{key}", [(f"{indent}! ", "error"), (text, "error")], data=place)


def _shelf(shelf: TopicListing, state: LibraryState) -> Iterator[ListRow]:
    topic = shelf.topic
    subjects = [s for s in shelf.subjects if state.hidden or not s.hidden]
    if state.filter:
        subjects = [s for s in subjects if state.filter.matches_title(f"{topic.name} {s.slug}")]
        if not subjects and not state.filter.matches_title(topic.name):
            return
    key = f"topic:{topic.id}"
    opened = key in state.expanded or bool(state.filter)
    arrow = "▾ " if opened else "▸ "
    name: Spans = [(arrow, "dim"), (one_line(topic.name), "" if topic.enable else "dim")]
    count: Spans = [(f"{len(subjects):,}", "dim")] if topic.enable else [("off", "warning")]
    if shelf.problems:
        count = [("! ", "error"), *count]
    place = NavigationTarget(key, ref=Ref("topic", topic=topic.id))
    yield ListRow(key, name, count, data=place)
    for number, problem in enumerate(shelf.problems):
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
    ref = subject_ref(subject.topic, subject.slug)
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
    traits = contents.traits
    infos = [
        info for info in contents.conversations if state.filter.matches(info, traits.get(info.id))
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
            return "…" if turns < 0 else counted(turns, "turn")
        return age_label(_moment(info, self.sort), self.present)


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
    place = NavigationTarget(info.ref, ref=conversation_ref(info.id))
    row = ListRow(info.ref, [mark, (one_line(info.name), role)], [(day, "dim")], data=place)
    if info.problem:
        row.below = [[("  ", ""), (one_line(info.problem), "error")]]
    return row
