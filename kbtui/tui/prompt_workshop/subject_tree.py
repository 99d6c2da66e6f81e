"""The workshop's list: topics, folders and subjects as a tree, with marks and costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from kbtui.text import one_line
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import measure_cell_width
from kbtui.tui.library_pane import ENTRY_MARKS
from kbtui.tui.prompt_workshop.prompt_state import (
    PromptCost,
    find_prefix_range,
    find_subject_or_topic_state,
    format_cost_growth,
    measure_prompt_cost,
)
from kbtui.tui.reader.document import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from textual.strip import Strip

    from kbtui.knowledge import Knowledge
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.prompt_workshop.prompt_state import (
        FolderCostSums,
        MarkState,
        PendingPreloadMarks,
        PromptState,
        SubjectCosts,
    )


NodeKind = Literal["whole", "topic", "folder", "subject", "problem", "fragment", "heading"]

WHOLE_KEY = "whole"
"""The key of the row for the whole `<knowledge>` section."""
UNWRITTEN_SIGN = "*"
"""The sign after a subject or topic whose mark is not written yet."""
LEARNED_SIGN = ENTRY_MARKS["pre-loaded"][0].strip()
EXACT_COST_CELLS = 52
"""The minimum width in cells of a list that shows exact numbers."""


class SubjectTreeNode(NamedTuple):
    """The content of a row.

    `name` is the path of a folder with a `/` at its end, the slug of a subject, or the text of any
    other row. `number` is the index of a problem or fragment. If `shows_path` is true, the row shows
    the whole slug instead of its last part.
    """

    kind: NodeKind
    topic: str = ""
    name: str = ""
    depth: int = 0
    number: int = 0
    shows_path: bool = False


@dataclass
class SubjectTreeOptions:
    """What the list shows: the keys of expanded rows, whether hidden subjects appear, the filter words."""

    opened: set[str] = field(default_factory=set)
    hidden: bool = False
    words: str = ""


class VisibleSubjectSlugs:
    """The slugs of each topic that the list may show, sorted on first use and cached."""

    def __init__(self, knowledge: Knowledge, *, hidden: bool) -> None:
        self._knowledge, self._hidden = knowledge, hidden
        self._in_tree_order: dict[str, list[str]] = {}

    def sort_by_name(self, topic: str) -> list[str]:
        """Return the slugs of a topic in alphabetical order."""
        scan = self._knowledge.get_topic_slugs(topic).scan
        if self._hidden or not scan.hidden:
            return scan.slugs
        return [slug for slug in scan.slugs if slug not in scan.hidden]

    def sort_by_folder(self, topic: str) -> list[str]:
        """Return the slugs of a topic in tree order: the subjects of a folder before its subfolders."""
        slugs = self._in_tree_order.get(topic)
        if slugs is None:
            slugs = self._in_tree_order[topic] = sorted(
                self.sort_by_name(topic), key=_get_tree_sort_key
            )
        return slugs


def _get_tree_sort_key(slug: str) -> list[tuple[bool, str]]:
    *folders, name = slug.split("/")
    return [*((True, folder) for folder in folders), (False, name)]


def make_subject_tree_rows(
    prompt_state: PromptState, slugs: VisibleSubjectSlugs, options: SubjectTreeOptions
) -> list[ListRow]:
    """Return all rows of the tree; the text of a row is made when the row is drawn."""
    written = prompt_state.written
    rows = [
        _make_tree_row(WHOLE_KEY, SubjectTreeNode("whole")),
        _make_heading_row("topics", "TOPICS"),
    ]
    for number, problem in enumerate(written.problems):
        node = SubjectTreeNode("problem", name=str(problem), number=number)
        rows.append(_make_tree_row(f"problem:{number}", node))
    for topic in written.topics:
        rows += _make_topic_rows(topic, slugs, options)
    if not written.topics:
        text = "none yet; declare one in .jp/kb.toml as [kb.topic.ID]"
        rows.append(_make_heading_row("none", text))
    if prompt_state.fragments:
        rows.append(_make_heading_row("fragments", "JP'S PROMPT FRAGMENTS, read-only"))
    for number, fragment in enumerate(prompt_state.fragments):
        node = SubjectTreeNode("fragment", name=fragment.name, number=number)
        rows.append(_make_tree_row(f"fragment:{number}", node))
    return rows


def make_match_rows(matches: Iterable[tuple[str, str]]) -> list[ListRow]:
    """Return the rows of the subjects that a pattern matches; `matches` are pairs of topic and slug."""
    rows = [_make_tree_row(WHOLE_KEY, SubjectTreeNode("whole"))]
    rows += [_make_subject_row(topic, slug, 0, shows_path=True) for topic, slug in matches]
    return rows


def _make_topic_rows(
    topic: str, slugs: VisibleSubjectSlugs, options: SubjectTreeOptions
) -> Iterator[ListRow]:
    key = f"topic:{topic}"
    if options.words:
        words = options.words.casefold().split()
        found = [
            slug
            for slug in slugs.sort_by_name(topic)
            if _contains_all_words(f"{topic}/{slug}", words)
        ]
        if found or _contains_all_words(topic, words):
            yield _make_tree_row(key, SubjectTreeNode("topic", topic))
        for slug in found:
            yield _make_subject_row(topic, slug, 1, shows_path=True)
        return
    yield _make_tree_row(key, SubjectTreeNode("topic", topic))
    if key in options.opened:
        yield from _make_folder_rows(topic, slugs.sort_by_folder(topic), options.opened)


def _contains_all_words(text: str, words: list[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)


def _make_folder_rows(topic: str, slugs: list[str], opened: set[str]) -> Iterator[ListRow]:
    """Yield the rows of slugs in tree order, with a row for each folder before its first slug."""
    shown: list[str] = []
    closed = ""
    for slug in slugs:
        if closed and slug.startswith(closed):
            continue
        folders = slug.split("/")[:-1]
        common = 0
        while common < min(len(folders), len(shown)) and folders[common] == shown[common]:
            common += 1
        del shown[common:]
        closed = ""
        for depth in range(common, len(folders)):
            path = "/".join(folders[: depth + 1]) + "/"
            key = make_folder_key(topic, path)
            yield _make_tree_row(key, SubjectTreeNode("folder", topic, path, depth + 1))
            shown.append(folders[depth])
            if key not in opened:
                closed = path
                break
        if not closed:
            yield _make_subject_row(topic, slug, len(folders) + 1)


def make_folder_key(topic: str, path: str) -> str:
    """Return the key of the row of a folder."""
    return f"folder:{topic}/{path}"


_NO_SPANS: list[tuple[str, str]] = []
_NO_LINES: list[list[tuple[str, str]]] = []


def _make_tree_row(key: str, node: SubjectTreeNode) -> ListRow:
    # All rows share the same empty lists, because there may be 20,000 rows, of which few are ever drawn.
    return ListRow(key, _NO_SPANS, _NO_SPANS, _NO_LINES, True, "", node)


def _make_subject_row(topic: str, slug: str, depth: int, *, shows_path: bool = False) -> ListRow:
    return _make_tree_row(
        f"{topic}/{slug}", SubjectTreeNode("subject", topic, slug, depth, 0, shows_path)
    )


def _make_heading_row(key: str, text: str) -> ListRow:
    return ListRow(
        f"head:{key}", [(text, "section")], selectable=False, data=SubjectTreeNode("heading")
    )


class SubjectRowFormatter:
    """Formats rows when they are drawn, with the newest state, marks and costs."""

    def __init__(
        self, costs: SubjectCosts, marks: PendingPreloadMarks, options: SubjectTreeOptions
    ) -> None:
        self.prompt_state: PromptState | None = None
        self.sums: dict[str, FolderCostSums] = {}
        self._costs, self._marks, self._options = costs, marks, options
        self._learned: dict[str, list[str]] = {}
        self._shows_exact_costs = True

    def update(self, prompt_state: PromptState, sums: dict[str, FolderCostSums]) -> None:
        """Use a newer state of the prompt."""
        self.prompt_state, self.sums = prompt_state, sums
        knowledge = prompt_state.knowledge
        self._learned = {
            topic.id: sorted(knowledge.get_topic_slugs(topic.id).learned) if topic.enable else []
            for topic in knowledge.topics.values()
        }

    def find_subject_state(self, topic: str, slug: str | None) -> MarkState:
        """Return the state of a subject or topic, including unwritten marks."""
        mark = self._marks.get_mark(topic, slug)
        if mark is not None:
            return mark.state
        written = self.prompt_state.written if self.prompt_state else None
        return find_subject_or_topic_state(written, topic, slug) if written else "plain"

    def format_row(self, node: SubjectTreeNode, *, exact: bool = True) -> tuple[Spans, Spans]:
        """Return the left and the right part of a row; `exact` means unrounded numbers."""
        self._shows_exact_costs = exact
        prompt_state = self.prompt_state
        if prompt_state is None:
            return [], []
        if node.kind == "whole":
            return [("<knowledge>", "strong")], self._format_cost(prompt_state.cost, "strong")
        if node.kind == "problem":
            return [("! ", "error"), (one_line(node.name), "error")], []
        if node.kind == "fragment":
            fragment = prompt_state.fragments[node.number : node.number + 1]
            cost = measure_prompt_cost(fragment[0].content) if fragment else PromptCost()
            return [("  ", ""), (one_line(node.name), "")], self._format_cost(cost)
        if node.topic not in prompt_state.written.topics:
            return [("  ", ""), (one_line(node.name or node.topic), "dim")], [("gone", "dim")]
        if node.kind == "subject":
            return self._format_subject(prompt_state, node)
        return self._format_branch(prompt_state, node)

    def _format_subject(
        self, prompt_state: PromptState, node: SubjectTreeNode
    ) -> tuple[Spans, Spans]:
        topic, slug = node.topic, node.name
        state, scan = (
            self.find_subject_state(topic, slug),
            prompt_state.written.get_topic_slugs(topic).scan,
        )
        is_hidden = slug in scan.hidden
        sign, role = "  ", ""
        if state == "learned":
            sign, role = ENTRY_MARKS["pre-loaded"]
        elif state == "disabled":
            sign, role = ENTRY_MARKS["disabled"]
        elif is_hidden:
            sign, role = ENTRY_MARKS["hidden"]
        if self._marks.get_mark(topic, slug) is not None:
            sign, role = f"{sign[0]}{UNWRITTEN_SIGN}", role or "warning"
        is_dim = is_hidden or slug in scan.shadowed
        name_role = "dim struck" if state == "disabled" else "dim" if is_dim else ""
        name = slug if node.shows_path else slug.rsplit("/", 1)[-1]
        left: Spans = [("  " * node.depth, ""), (sign, role), (one_line(name), name_role)]
        if (topic, slug) in self._costs.unreadable:
            reason = one_line(self._costs.unreadable[topic, slug])
            return left, [("! ", "error"), (reason, "error")]
        cost = self._costs.get_cost(topic, slug)
        return left, self._format_cost(cost) if cost else [("…", "dim")]

    def _format_branch(
        self, prompt_state: PromptState, node: SubjectTreeNode
    ) -> tuple[Spans, Spans]:
        """Format a topic or folder: its name, its pre-loaded and total subject counts, its cost."""
        topic, prefix = node.topic, node.name
        key = make_folder_key(topic, prefix) if node.kind == "folder" else f"topic:{topic}"
        is_opened = key in self._options.opened or bool(self._options.words)
        left: Spans = [("  " * node.depth, ""), ("▾ " if is_opened else "▸ ", "dim")]
        right: Spans = []
        if node.kind == "folder":
            left.append((f"{one_line(prefix[:-1].rsplit('/', 1)[-1])}/", ""))
        else:
            is_on = self.find_subject_state(topic, None) == "on"
            name = one_line(prompt_state.written.topics[topic].name)
            left.append((name, "" if is_on else "dim struck"))
            is_marked = self._marks.get_mark(topic, None) is not None
            if is_marked or not is_on:
                sign = UNWRITTEN_SIGN if is_marked else ""
                right.append((f"{'on' if is_on else 'off'}{sign} ", "warning"))
        sums = self.sums.get(topic)
        if sums is None:
            return left, right
        count, cost = sums.sum_costs_below(prefix)
        first, last = find_prefix_range(self._learned.get(topic, []), prefix)
        if last > first:
            right.append((f"{LEARNED_SIGN}{last - first:,}/", "accent"))
        right.append((f"{count:,}  ", "dim"))
        return left, [*right, *self._format_cost(cost)]

    def _format_cost(self, cost: PromptCost, role: str = "dim") -> Spans:
        return [(cost.format_short_cost(exact=self._shows_exact_costs), role)]


def format_prompt_totals(
    prompt_state: PromptState | None, marks: int, width: int
) -> tuple[Spans, Spans]:
    """Return the totals: the cost of the prompt, how the marks change it, and the number of marks."""
    if prompt_state is None:
        return [("reading the workspace …", "dim")], []
    right: Spans = [(f"{marks:,} to write", "warning")] if marks else []
    before, after = prompt_state.written_cost, prompt_state.cost
    role = "warning" if after.characters >= before.characters else "inserted"
    left: Spans = []
    for units in (True, False):
        left = [(after.format_long_cost() if units else after.format_short_cost(), "strong")]
        if growth := format_cost_growth(before, after, units=units):
            left += [(", ", "dim"), (growth, role)]
        if measure_cell_width(left) + measure_cell_width(right) < width:
            break
    return left, right


def describe_selected_row(prompt_state: PromptState, node: SubjectTreeNode) -> str:
    """Return the line below the list, which says more about the selected row."""
    if node.kind == "whole":
        topics = [topic for topic in prompt_state.knowledge.topics.values() if topic.enable]
        learned = sum(
            len(prompt_state.knowledge.get_topic_slugs(topic.id).learned) for topic in topics
        )
        return f"{format_count(len(topics), 'topic')} on, {format_count(learned, 'subject')} pre-loaded"
    if node.kind == "topic" and node.topic in prompt_state.preloads:
        loaded = prompt_state.preloads[node.topic]
        parts = [f"in the prompt {loaded.format_short_cost()}"] if loaded.characters else []
        resolved = prompt_state.knowledge.get_topic_slugs(node.topic)
        listed, total = len(resolved.visible), len(resolved.scan.slugs)
        # The row counts only the listed subjects, not the hidden and disabled ones.
        name = "listing" if listed == total else f"lists {listed:,} of {total:,}:"
        parts.append(f"{name} {prompt_state.listings[node.topic].format_short_cost()}")
        return " · ".join(parts)
    if node.kind == "subject" and node.topic in prompt_state.written.topics:
        resolved = prompt_state.written.get_topic_slugs(node.topic)
        if node.name in resolved.scan:
            return f"{resolved.topic.subjects}/{resolved.scan.relative_paths[node.name]}"
    if node.kind == "fragment":
        found = prompt_state.fragments[node.number : node.number + 1]
        loaders = ", ".join(found[0].loaded_by) if found else ""
        return f"loaded by {loaders or 'nothing'}"
    return ""


class SubjectTreeList(RowList):
    """The list of the workshop, which may have tens of thousands of rows; each row has one line."""

    def __init__(self, formatter: SubjectRowFormatter) -> None:
        super().__init__("entries")
        self._formatter = formatter
        self.empty_text = [("Reading the workspace …", "dim")]

    @property
    def selected_node(self) -> SubjectTreeNode:
        """The node of the selected row; while no row is selected, the node of the whole section."""
        row = self.selected_row
        return row.data if row is not None else SubjectTreeNode("whole")

    def render_line(self, y: int) -> Strip:
        """Draw visible line `y`."""
        number = y + round(self.scroll_y)
        if 0 <= number < len(self.rows):
            row = self.rows[number]
            if row.selectable:
                exact = self.scrollable_content_region.width >= EXACT_COST_CELLS
                row.left, row.right = self._formatter.format_row(row.data, exact=exact)
        return super().render_line(y)
