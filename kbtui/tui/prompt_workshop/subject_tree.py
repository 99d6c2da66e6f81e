"""The list of the prompt workshop: topics, folders and subjects as a tree, with marks and sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line
from kbtui.tui.framework.row_list import ListRow, RowList, make_heading_row
from kbtui.tui.library_pane import (
    ENTRY_MARKS,
    iterate_paths_outside_folded_folders,
    make_folder_row_key,
)
from kbtui.tui.prompt_workshop.system_prompt_with_unsaved_changes import (
    PendingPreloadOrDisableChanges,
    PromptTextSize,
    SubjectPromptSizes,
    SystemPromptWithUnsavedChanges,
    find_index_range_of_slugs_with_prefix,
    format_prompt_size_change,
    measure_prompt_size,
)
from kbtui.tui.secondary_screen import contains_all_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.knowledge.subject_files import TopicDirectoryScan
    from kbtui.tui.framework.styled_text import Spans


NodeKind = Literal["whole", "topic", "folder", "subject", "problem", "fragment"]

WHOLE_PROMPT_KEY = "whole"
"""The key of the row for the whole `<knowledge>` section."""
UNWRITTEN_SIGN = "*"
"""The sign of a subject or topic whose change is not written to `kb.toml` yet."""
LEARNED_SIGN = ENTRY_MARKS["pre-loaded"][0].strip()
EXACT_SIZE_CELLS = 52
"""The minimum width in cells of a list that shows exact sizes. A narrower list shows rounded sizes."""


class SubjectTreeNode(NamedTuple):
    """The data of a row in the workshop's list.

    Depending on `kind`, `name` is the slug of a subject, the path of a folder (with a final `/`), the
    name of a prompt section, or the text of a problem. `number` is the index of a prompt section. If
    `shows_path` is true, the row shows the whole slug instead of only its last part.
    """

    kind: NodeKind
    topic: str = ""
    name: str = ""
    depth: int = 0
    number: int = 0
    shows_path: bool = False

    @property
    def row_key_if_foldable(self) -> str:
        """The row key of a topic or folder; "" for other nodes, because they cannot be folded."""
        if self.kind == "topic":
            return f"topic:{self.topic}"
        return make_folder_row_key(self.topic, self.name) if self.kind == "folder" else ""


WHOLE_PROMPT_NODE = SubjectTreeNode("whole")


@dataclass
class SubjectTreeFoldsAndFilter:
    """The user's choices for the list.

    `opened` contains the keys of the unfolded rows, `hidden` says whether hidden subjects are listed,
    and `words` is the text of the filter.
    """

    opened: set[str] = field(default_factory=set)
    hidden: bool = False
    words: str = ""


def make_subject_tree_rows(
    prompt: SystemPromptWithUnsavedChanges, options: SubjectTreeFoldsAndFilter
) -> list[ListRow]:
    """Return all rows of the tree, without text. The text of a row is made when the row is drawn."""
    written = prompt.written
    rows = [
        _make_tree_row(WHOLE_PROMPT_KEY, WHOLE_PROMPT_NODE),
        make_heading_row("topics", "TOPICS"),
    ]
    for number, problem in enumerate(written.problems):
        node = SubjectTreeNode("problem", name=str(problem))
        rows.append(_make_tree_row(f"problem:{number}", node))
    for topic in written.topics:
        rows += _make_topic_rows(topic, written.get_topic_slugs_by_visibility(topic).scan, options)
    if not written.topics:
        rows.append(make_heading_row("none", f"none yet; {written.hint_to_declare_topic}"))
    if prompt.jp_sections:
        rows.append(make_heading_row("fragments", "JP'S PROMPT SECTIONS, read-only"))
    for number, section in enumerate(prompt.jp_sections):
        node = SubjectTreeNode("fragment", name=section.name, number=number)
        rows.append(_make_tree_row(f"fragment:{number}", node))
    return rows


def make_rows_of_matching_subjects(matches: Iterable[tuple[str, str]]) -> list[ListRow]:
    """Return the rows of the subjects that a pattern matches; `matches` are pairs of topic and slug."""
    rows = [_make_subject_row(topic, slug, 0, shows_path=True) for topic, slug in matches]
    return [_make_tree_row(WHOLE_PROMPT_KEY, WHOLE_PROMPT_NODE), *rows]


def _make_topic_rows(
    topic: str, scan: TopicDirectoryScan, options: SubjectTreeFoldsAndFilter
) -> Iterator[ListRow]:
    slugs = scan.slugs
    if not options.hidden:
        slugs = [slug for slug in slugs if slug not in scan.hidden]
    topic_row = _make_tree_row(f"topic:{topic}", SubjectTreeNode("topic", topic))
    if options.words:
        words = options.words.casefold().split()
        found = [slug for slug in slugs if contains_all_words(f"{topic}/{slug}", words)]
        if found or contains_all_words(topic, words):
            yield topic_row
        for slug in found:
            yield _make_subject_row(topic, slug, 1, shows_path=True)
        return
    yield topic_row
    if topic_row.key in options.opened:
        for path in iterate_paths_outside_folded_folders(topic, slugs, options.opened.__contains__):
            depth = path.rstrip("/").count("/") + 1
            if path.endswith("/"):
                node = SubjectTreeNode("folder", topic, path, depth)
                yield _make_tree_row(node.row_key_if_foldable, node)
            else:
                yield _make_subject_row(topic, path, depth)


def _make_tree_row(key: str, node: SubjectTreeNode) -> ListRow:
    return ListRow(key, [], data=node)


def _make_subject_row(topic: str, slug: str, depth: int, *, shows_path: bool = False) -> ListRow:
    node = SubjectTreeNode("subject", topic, slug, depth, shows_path=shows_path)
    return _make_tree_row(f"{topic}/{slug}", node)


class SubjectTreeList(RowList):
    """The workshop's list, in which each row has one line.

    A row is formatted only when it is drawn, because there may be tens of thousands of rows. It shows
    the prompt, marks and sizes of that moment.
    """

    def __init__(
        self,
        subject_sizes: SubjectPromptSizes,
        marks: PendingPreloadOrDisableChanges,
        options: SubjectTreeFoldsAndFilter,
    ) -> None:
        super().__init__("entries")
        self.empty_text = [("Reading the workspace …", "dim")]
        self.prompt_with_changes: SystemPromptWithUnsavedChanges | None = None
        self._subject_sizes, self._marks, self._options = subject_sizes, marks, options
        self._learned: dict[str, list[str]] = {}

    @property
    def selected_tree_node(self) -> SubjectTreeNode:
        """The node of the selected row, or the node of the whole prompt if no row is selected."""
        row = self.selected_row
        return row.data if row is not None else WHOLE_PROMPT_NODE

    def set_prompt_with_changes(self, prompt_with_changes: SystemPromptWithUnsavedChanges) -> None:
        """Redraw the rows with this prompt's pre-loaded subjects and sizes."""
        self.prompt_with_changes = prompt_with_changes
        knowledge = prompt_with_changes.knowledge
        self._learned = {
            topic.id: sorted(knowledge.get_topic_slugs_by_visibility(topic.id).learned)
            if topic.enable
            else []
            for topic in knowledge.topics.values()
        }
        self.refresh()

    def prepare_row_text(self, row: ListRow) -> None:
        if row.selectable:
            row.left, row.right = self.format_tree_row(row.data)

    def format_tree_row(self, node: SubjectTreeNode) -> tuple[Spans, Spans]:
        """Return the left and the right part of the row of `node`."""
        prompt = self.prompt_with_changes
        if prompt is None:
            return [], []
        if node.kind == "whole":
            return [("<knowledge>", "strong")], self._format_size_column(prompt.size, "strong")
        if node.kind == "problem":
            return [("! ", "error"), (sanitize_to_one_line(node.name), "error")], []
        if node.kind == "fragment":
            found = prompt.jp_sections[node.number : node.number + 1]
            size = measure_prompt_size(found[0].content if found else None)
            return [("  ", ""), (sanitize_to_one_line(node.name), "")], self._format_size_column(
                size
            )
        if node.topic not in prompt.written.topics:
            return [("  ", ""), (sanitize_to_one_line(node.name or node.topic), "dim")], [
                ("removed", "dim")
            ]
        if node.kind == "subject":
            return self._format_subject_row(prompt, node)
        return self._format_topic_or_folder_row(prompt, node)

    def _format_subject_row(
        self, prompt: SystemPromptWithUnsavedChanges, node: SubjectTreeNode
    ) -> tuple[Spans, Spans]:
        topic, slug = node.topic, node.name
        scan = prompt.written.get_topic_slugs_by_visibility(topic).scan
        state = self._marks.find_state_with_pending_mark(prompt.written, topic, slug)
        marked_as = {"learned": "pre-loaded", "disabled": "disabled"}.get(state)
        if marked_as is None and slug in scan.hidden:
            marked_as = "hidden"
        sign, role = ENTRY_MARKS[marked_as] if marked_as else ("  ", "")
        if (topic, slug) in self._marks:
            sign, role = f"{sign[0]}{UNWRITTEN_SIGN}", role or "warning"
        name_role = "dim" if slug in scan.hidden or slug in scan.shadowed else ""
        if state == "disabled":
            name_role = "dim struck"
        name = slug if node.shows_path else slug.rsplit("/", 1)[-1]
        left: Spans = [
            ("  " * node.depth, ""),
            (sign, role),
            (sanitize_to_one_line(name), name_role),
        ]
        if (topic, slug) in self._subject_sizes.unreadable:
            reason = sanitize_to_one_line(self._subject_sizes.unreadable[topic, slug])
            return left, [("! ", "error"), (reason, "error")]
        size = self._subject_sizes.get_measured_subject_size(topic, slug)
        return left, self._format_size_column(size) if size else [("…", "dim")]

    def _format_topic_or_folder_row(
        self, prompt: SystemPromptWithUnsavedChanges, node: SubjectTreeNode
    ) -> tuple[Spans, Spans]:
        """Return the name of a topic or folder (left), and its subject counts and size (right)."""
        topic, prefix = node.topic, node.name
        is_opened = node.row_key_if_foldable in self._options.opened or bool(self._options.words)
        left: Spans = [("  " * node.depth, ""), ("▾ " if is_opened else "▸ ", "dim")]
        right: Spans = []
        if node.kind == "folder":
            left.append((f"{sanitize_to_one_line(prefix[:-1].rsplit('/', 1)[-1])}/", ""))
        else:
            is_on = self._marks.find_state_with_pending_mark(prompt.written, topic, None) == "on"
            name = sanitize_to_one_line(prompt.written.topics[topic].name)
            left.append((name, "" if is_on else "dim struck"))
            is_marked = (topic, None) in self._marks
            if is_marked or not is_on:
                sign = UNWRITTEN_SIGN if is_marked else ""
                right.append((f"{'on' if is_on else 'off'}{sign} ", "warning"))
        count, size = prompt.sums[topic].sum_sizes_in_folder(prefix)
        first, last = find_index_range_of_slugs_with_prefix(self._learned.get(topic, []), prefix)
        if last > first:
            right.append((f"{LEARNED_SIGN}{last - first:,}/", "accent"))
        right.append((f"{count:,}  ", "dim"))
        return left, [*right, *self._format_size_column(size)]

    def _format_size_column(self, size: PromptTextSize, role: str = "dim") -> Spans:
        is_exact = self.scrollable_content_region.width >= EXACT_SIZE_CELLS
        return [(size.format_prompt_size_without_units(exact=is_exact), role)]


def format_prompt_totals(
    prompt: SystemPromptWithUnsavedChanges | None, marks: int
) -> list[tuple[Spans, Spans]]:
    """Return variants of the totals line, longest first.

    The size and its change are on the left, and the number of marks is on the right.
    """
    if prompt is None:
        return [([("reading the workspace …", "dim")], [])]
    right: Spans = [(format_counted_noun(marks, "unwritten change"), "warning")] if marks else []
    before, after = prompt.written_size, prompt.size
    role = "warning" if after.characters >= before.characters else "inserted"
    sizes = after.format_prompt_size_with_units(), after.format_prompt_size_without_units()
    forms: list[tuple[Spans, Spans]] = []
    for size, units in zip(sizes, (True, False), strict=True):
        growth = format_prompt_size_change(before, after, units=units)
        forms.append(
            ([(size, "strong"), *([(", ", "dim"), (growth, role)] if growth else [])], right)
        )
    return forms


def describe_tree_node(prompt: SystemPromptWithUnsavedChanges, node: SubjectTreeNode) -> str:
    """Return the text below the list: the counts, sizes or path of `node`, the selected row."""
    if node.kind == "whole":
        topics = [topic for topic in prompt.knowledge.topics.values() if topic.enable]
        slugs = (prompt.knowledge.get_topic_slugs_by_visibility(topic.id) for topic in topics)
        learned = format_counted_noun(sum(len(found.learned) for found in slugs), "subject")
        return f"{format_counted_noun(len(topics), 'topic')} switched on, {learned} pre-loaded"
    if node.kind == "topic" and node.topic in prompt.preloads:
        loaded = prompt.preloads[node.topic]
        size = loaded.format_prompt_size_without_units()
        preloads = f"in the prompt: {size} · " if loaded.characters else ""
        resolved = prompt.knowledge.get_topic_slugs_by_visibility(node.topic)
        listed, total = len(resolved.visible), len(resolved.scan.slugs)
        # The row counts only the listed subjects, not the hidden and disabled ones.
        listing = "listing:" if listed == total else f"listing {listed:,} of {total:,}:"
        return (
            f"{preloads}{listing} {prompt.listings[node.topic].format_prompt_size_without_units()}"
        )
    if node.kind == "subject" and node.topic in prompt.written.topics:
        resolved = prompt.written.get_topic_slugs_by_visibility(node.topic)
        if node.name in resolved.scan:
            return f"{resolved.topic.subjects}/{resolved.scan.relative_paths[node.name]}"
    if node.kind == "fragment":
        found = prompt.jp_sections[node.number : node.number + 1]
        loaders = ", ".join(found[0].loaded_by) if found else ""
        return f"loaded by {loaders or 'nothing'}"
    return ""
