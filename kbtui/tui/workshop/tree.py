"""The workshop's tree of topics, subjects and folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from kbtui.tui.framework.row_list import ListRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.knowledge import Knowledge
    from kbtui.tui.workshop.marks import PromptState


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
        scan = self._knowledge.resolved(topic).scan
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
