"""The workshop's list: topics, folders and subjects as a tree, with marks and costs."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from kbtui.text import one_line
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import cell_width
from kbtui.tui.library_pane import MARKS
from kbtui.tui.reader.document import format_count
from kbtui.tui.workshop.prompt_state import Cost, cost_of, growth, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from textual.strip import Strip

    from kbtui.knowledge import Knowledge
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.workshop.prompt_state import Costs, Marks, PromptState, State, Sums


Kind = Literal["whole", "topic", "folder", "subject", "problem", "fragment", "heading"]

WHOLE = "whole"
"""The key of the entry for the whole `<knowledge>` section."""


class TreeEntry(NamedTuple):
    """What a row stands for.

    `name` is a folder's path ended by `/`, a subject's slug, or the words of
    anything else; `number` counts problems and fragments. `flat` is whether the
    slug is shown whole.
    """

    kind: Kind
    topic: str = ""
    name: str = ""
    depth: int = 0
    number: int = 0
    flat: bool = False


@dataclass
class TreeOptions:
    """What one chose to see: open topics and folders, hidden subjects, a filter."""

    opened: set[str] = field(default_factory=set)
    hidden: bool = False
    words: str = ""


class Tree:
    """A topic's slugs by folder: for each folder's path its folders and its subjects."""

    def __init__(self, slugs: Iterable[str]) -> None:
        self.folders: dict[str, list[str]] = {"": []}
        self.subjects: dict[str, list[str]] = {}
        for slug in slugs:
            folder = slug[: slug.rfind("/") + 1]
            found = self.subjects.get(folder)
            if found is None:
                found = self.subjects[folder] = []
                self._enter(folder)
            found.append(slug)

    def _enter(self, folder: str) -> None:
        """Hang a folder into the tree, and those above it that are new too."""
        new = []
        while folder not in self.folders:
            self.folders[folder] = []
            parent = folder[: folder.rfind("/", 0, -1) + 1]
            new.append((parent, folder))
            folder = parent
        for parent, child in new:
            self.folders[parent].append(child)


class Trees:
    """The trees of all topics, made when first asked for and kept as long as the walk."""

    def __init__(self, knowledge: Knowledge, *, hidden: bool) -> None:
        self._knowledge = knowledge
        self._hidden = hidden
        self._trees: dict[str, Tree] = {}

    def slugs(self, topic: str) -> list[str]:
        """The slugs to be shown, sorted."""
        scan = self._knowledge.resolve(topic).scan
        if self._hidden or not scan.hidden:
            return scan.slugs
        return [slug for slug in scan.slugs if slug not in scan.hidden]

    def of(self, topic: str) -> Tree:
        """A topic's tree."""
        tree = self._trees.get(topic)
        if tree is None:
            tree = self._trees[topic] = Tree(self.slugs(topic))
        return tree


def make_rows(prompt_state: PromptState, trees: Trees, options: TreeOptions) -> list[ListRow]:
    """All rows, in order; their words are made when they are drawn."""
    rows = [_row(WHOLE, TreeEntry("whole"))]
    rows.append(_heading("topics", "TOPICS"))
    for number, problem in enumerate(prompt_state.written.problems):
        entry = TreeEntry("problem", name=str(problem), number=number)
        rows.append(_row(f"problem:{number}", entry))
    for topic in prompt_state.written.topics:
        rows += _topic_rows(topic, trees, options)
    if not prompt_state.written.topics:
        rows.append(_heading("none", "none yet; declare one in .jp/kb.toml as [kb.topic.ID]"))
    if prompt_state.fragments:
        rows.append(_heading("fragments", "JP'S PROMPT FRAGMENTS, read-only"))
        rows += [
            _row(f"fragment:{number}", TreeEntry("fragment", name=fragment.name, number=number))
            for number, fragment in enumerate(prompt_state.fragments)
        ]
    return rows


def match_rows(matches: Iterable[tuple[str, str]]) -> list[ListRow]:
    """The rows of subjects that a pattern matches, in its order."""
    rows = [_row(WHOLE, TreeEntry("whole"))]
    rows += [
        _row(f"{topic}/{slug}", TreeEntry("subject", topic, slug, 0, 0, True))
        for topic, slug in matches
    ]
    return rows


def _topic_rows(topic: str, trees: Trees, options: TreeOptions) -> Iterator[ListRow]:
    key = f"topic:{topic}"
    if options.words:
        words = options.words.casefold().split()
        found = [slug for slug in trees.slugs(topic) if _fits(f"{topic}/{slug}", words)]
        if found or _fits(topic, words):
            yield _row(key, TreeEntry("topic", topic))
        for slug in found:
            yield _row(f"{topic}/{slug}", TreeEntry("subject", topic, slug, 1, 0, True))
        return
    yield _row(key, TreeEntry("topic", topic))
    if key in options.opened:
        yield from _folder_rows(topic, "", 1, trees.of(topic), options.opened)


def _fits(text: str, words: list[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)


def _folder_rows(
    topic: str, folder: str, depth: int, tree: Tree, opened: set[str]
) -> Iterator[ListRow]:
    for slug in tree.subjects.get(folder, ()):
        yield _row(f"{topic}/{slug}", TreeEntry("subject", topic, slug, depth))
    # A stack, because a person's folders may be deeper than Python's calls.
    todo = [(below, depth) for below in sorted(tree.folders.get(folder, ()), reverse=True)]
    while todo:
        path, level = todo.pop()
        key = folder_key(topic, path)
        yield _row(key, TreeEntry("folder", topic, path, level))
        if key in opened:
            for slug in tree.subjects.get(path, ()):
                yield _row(f"{topic}/{slug}", TreeEntry("subject", topic, slug, level + 1))
            below = sorted(tree.folders.get(path, ()), reverse=True)
            todo += [(child, level + 1) for child in below]


def folder_key(topic: str, path: str) -> str:
    """The key of a folder's row."""
    return f"folder:{topic}/{path}"


_NONE: list[tuple[str, str]] = []
_NO_LINES: list[list[tuple[str, str]]] = []


def _row(key: str, entry: TreeEntry) -> ListRow:
    # Shared empty lists: there may be twenty thousand rows, and few are ever drawn.
    return ListRow(key, _NONE, _NONE, _NO_LINES, True, "", entry)


def _heading(key: str, words: str) -> ListRow:
    return ListRow(f"head:{key}", [(words, "section")], selectable=False, data=TreeEntry("heading"))


UNWRITTEN = "*"
"""What stands behind the sign of whatever was marked and not written."""

SIGNS = {"learned": MARKS["pre-loaded"][0].strip(), "disabled": MARKS["disabled"][0].strip()}


class RowFormatter:
    """Makes the two sides of a row when it comes into sight, from the newest state, marks and costs."""

    def __init__(self, costs: Costs, marks: Marks, options: TreeOptions) -> None:
        self.prompt_state: PromptState | None = None
        self.sums: dict[str, Sums] = {}
        self._costs, self._marks, self._options = costs, marks, options
        self._learned: dict[str, list[str]] = {}
        self._wide = True

    def update(self, prompt_state: PromptState, sums: dict[str, Sums]) -> None:
        """Use a newer state of the prompt."""
        self.prompt_state, self.sums = prompt_state, sums
        self._learned = {
            topic.id: sorted(prompt_state.knowledge.resolve(topic.id).learned)
            if topic.enable
            else []
            for topic in prompt_state.knowledge.topics.values()
        }

    def state(self, topic: str, slug: str | None) -> State:
        """The state of a subject or topic with the marks; `prompt_state.written` has it without."""
        mark = self._marks.of(topic, slug)
        if mark is not None:
            return mark.state
        return state_of(self.prompt_state.written, topic, slug) if self.prompt_state else "plain"

    def describe(self, entry: TreeEntry, *, wide: bool = True) -> tuple[Spans, Spans]:
        """The left and the right side of a row; `wide` where there is room for whole numbers."""
        self._wide = wide
        prompt_state = self.prompt_state
        if prompt_state is None:
            return [], []
        if entry.kind == "whole":
            return [("<knowledge>", "strong")], self._cost(prompt_state.cost, "strong")
        if entry.kind == "problem":
            return [("! ", "error"), (one_line(entry.name), "error")], []
        if entry.kind == "fragment":
            fragment = prompt_state.fragments[entry.number : entry.number + 1]
            cost = cost_of(fragment[0].content) if fragment else Cost()
            return [("  ", ""), (one_line(entry.name), "")], self._cost(cost)
        if entry.topic not in prompt_state.written.topics:
            return [("  ", ""), (one_line(entry.name or entry.topic), "dim")], [("gone", "dim")]
        if entry.kind == "subject":
            return self._subject(prompt_state, entry)
        return self._branch(prompt_state, entry)

    def _subject(self, prompt_state: PromptState, entry: TreeEntry) -> tuple[Spans, Spans]:
        topic, slug = entry.topic, entry.name
        state = self.state(topic, slug)
        resolved = prompt_state.written.resolve(topic)
        hidden = slug in resolved.scan.hidden
        sign, role = "  ", ""
        if state == "learned":
            sign, role = MARKS["pre-loaded"]
        elif state == "disabled":
            sign, role = MARKS["disabled"]
        elif hidden:
            sign, role = MARKS["hidden"]
        if self._marks.of(topic, slug) is not None:
            sign, role = f"{sign[0]}{UNWRITTEN}", role or "warning"
        quiet = hidden or slug in resolved.scan.shadowed
        name_role = "dim struck" if state == "disabled" else "dim" if quiet else ""
        name = slug if entry.flat else slug.rsplit("/", 1)[-1]
        left: Spans = [("  " * entry.depth, ""), (sign, role), (one_line(name), name_role)]
        if (topic, slug) in self._costs.unreadable:
            reason = one_line(self._costs.unreadable[topic, slug])
            return left, [("! ", "error"), (reason, "error")]
        cost = self._costs.get(topic, slug)
        return left, self._cost(cost) if cost else [("…", "dim")]

    def _branch(self, prompt_state: PromptState, entry: TreeEntry) -> tuple[Spans, Spans]:
        """A topic or a folder: how many of its subjects are pre-loaded, and what all would cost."""
        topic, prefix = entry.topic, entry.name
        key = folder_key(topic, prefix) if entry.kind == "folder" else f"topic:{topic}"
        opened = key in self._options.opened or bool(self._options.words)
        left: Spans = [("  " * entry.depth, ""), ("▾ " if opened else "▸ ", "dim")]
        right: Spans = []
        if entry.kind == "folder":
            left.append((f"{one_line(prefix[:-1].rsplit('/', 1)[-1])}/", ""))
        else:
            on = self.state(topic, None) == "on"
            name = one_line(prompt_state.written.topics[topic].name)
            left.append((name, "" if on else "dim struck"))
            changed = self._marks.of(topic, None) is not None
            if changed or not on:
                right.append((f"{'on' if on else 'off'}{UNWRITTEN if changed else ''} ", "warning"))
        sums = self.sums.get(topic)
        if sums is None:
            return left, right
        count, cost = sums.below(prefix)
        learned = self._count(topic, prefix)
        if learned:
            right.append((f"{SIGNS['learned']}{learned:,}/", "accent"))
        right.append((f"{count:,}  ", "dim"))
        return left, [*right, *self._cost(cost)]

    def _count(self, topic: str, prefix: str) -> int:
        """How many pre-loaded subjects have slugs that begin so."""
        learned = self._learned.get(topic, [])
        if not prefix:
            return len(learned)
        return bisect_left(learned, prefix + chr(0x10FFFF)) - bisect_left(learned, prefix)

    def _cost(self, cost: Cost, role: str = "dim") -> Spans:
        return [(cost.short(exact=self._wide), role)]


def totals(prompt_state: PromptState | None, marks: int, width: int) -> tuple[Spans, Spans]:
    """The line under it all: what the prompt costs, and what the marks change of that."""
    if prompt_state is None:
        return [("reading the workspace …", "dim")], []
    right: Spans = [(f"{marks:,} to write", "warning")] if marks else []
    before, after = prompt_state.written_cost, prompt_state.cost
    role = "warning" if after.characters >= before.characters else "inserted"
    left: Spans = []
    for words in (True, False):
        left = [(after.long if words else after.short(), "strong")]
        if grown := growth(before, after, words=words):
            left += [(", ", "dim"), (grown, role)]
        if cell_width(left) + cell_width(right) < width:
            break
    return left, right


def particulars(prompt_state: PromptState, entry: TreeEntry) -> Spans:
    """The line under the list: what there is to say about the selected entry besides."""
    if entry.kind == "whole":
        on = [topic for topic in prompt_state.knowledge.topics.values() if topic.enable]
        learned = sum(len(prompt_state.knowledge.resolve(topic.id).learned) for topic in on)
        words = (
            f"{format_count(len(on), 'topic')} on, {format_count(learned, 'subject')} pre-loaded"
        )
        return [(words, "dim")]
    if entry.kind == "topic" and entry.topic in prompt_state.preloads:
        loaded = prompt_state.preloads[entry.topic]
        words = f"listing {prompt_state.listings[entry.topic].short()}"
        if loaded.characters:
            words = f"in the prompt {loaded.short()} · {words}"
        return [(words, "dim")]
    if entry.kind == "subject" and entry.topic in prompt_state.written.topics:
        resolved = prompt_state.written.resolve(entry.topic)
        if entry.name in resolved.scan:
            path = f"{resolved.topic.subjects}/{resolved.scan.relative[entry.name]}"
            return [(one_line(path), "dim")]
    if entry.kind == "fragment":
        found = prompt_state.fragments[entry.number : entry.number + 1]
        loaded_by = ", ".join(found[0].loaded_by) if found else ""
        return [(one_line(f"loaded by {loaded_by or 'nothing'}"), "dim")]
    return []


WIDE = 52
"""Columns from which there is room for whole numbers."""


class TreeList(RowList):
    """Entries of the workshop; there may be tens of thousands, each of one line."""

    def __init__(self, formatter: RowFormatter) -> None:
        super().__init__("entries")
        self._formatter = formatter
        self.empty = [("Reading the workspace …", "dim")]

    @property
    def entry(self) -> TreeEntry:
        """The selected entry; the whole prompt while there is none."""
        row = self.selected
        return row.data if row is not None else TreeEntry("whole")

    def render_line(self, y: int) -> Strip:
        """Line `y` of what is in sight."""
        number = y + round(self.scroll_y)
        if 0 <= number < len(self.rows):
            row = self.rows[number]
            if row.selectable:
                wide = self.scrollable_content_region.width >= WIDE
                row.left, row.right = self._formatter.describe(row.data, wide=wide)
        return super().render_line(y)
