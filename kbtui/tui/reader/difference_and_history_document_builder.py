"""Builds the documents that show the versions of a subject, and the files that turns changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbtui.conversations.turn_decision_marks import ConversationMarks
from kbtui.dates import format_unix_time_as_day
from kbtui.terminal_text import (
    NO_LONGER_THERE,
    format_counted_noun,
    sanitize_text_and_move_ranges,
    sanitize_to_one_line,
)
from kbtui.text_difference import ComparedParagraph, TextRange, compare_paragraphs
from kbtui.tui.framework.styled_text import (
    HighlightPattern,
    Spans,
    StyledLine,
    StyledLines,
    add_role_to_ranges,
    highlight_matches,
    measure_cell_width,
    truncate_spans,
    wrap_code_line,
)
from kbtui.tui.reader.reader_blocks import (
    LeftAndRightLineBlock,
    ParagraphReaderBlock,
    ReaderBlock,
    make_blocks_of_users_marks,
)
from kbtui.tui.reader.reader_document import CHANGES_VIEWS, ReaderDocument
from kbtui.tui.reader.tool_call_blocks import (
    make_blocks_of_diff_hunks,
    make_changed_line_count_spans,
)
from kbtui.userdata.turn_mark_lookup import MarksOfTurns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kbtui.citations.turn_file_actions_and_commands import TurnFileAction
    from kbtui.library.subject_text_versions import SubjectVersion

WIDE_SCREEN = 120
"""A screen with at least this many columns counts as wide."""
SIDE_BY_SIDE_WIDTHS = {True: 64, False: 100}
"""If the reader has at least this many cells, it shows both versions side by side. The key says whether the screen is wide."""
CONTEXT_PARAGRAPHS = 1
"""The number of unchanged paragraphs that are shown before and after each change."""
TAB_WIDTH = 4


@dataclass(slots=True, eq=False, repr=False)
class VersionNamesBlock(ReaderBlock):
    """A block with the names of the two versions.

    Each name is above the column of its version. In a narrow reader, there are no columns, and the
    names are on two lines.
    """

    old_name: str
    new_name: str
    side_by_side_width: int

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        old: Spans = [("- ", "deleted"), (self.old_name, "strong")]
        new: Spans = [("+ ", "inserted"), (self.new_name, "strong")]
        if width < self.side_by_side_width:
            return [StyledLine(truncate_spans(name, width)) for name in (old, new)]
        return list(_join_columns([StyledLine(old)], [StyledLine(new)], width))


@dataclass(slots=True, eq=False, repr=False)
class ComparedParagraphBlock(ReaderBlock):
    """A block with the old and the new version of a paragraph.

    The versions are side by side or, in a narrow reader, one below the other.
    """

    paragraph: ComparedParagraph
    side_by_side_width: int

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        one = self.paragraph
        is_wide = width >= self.side_by_side_width
        room = (width - 3) // 2 - 2 if is_wide else width - 2
        if not one.is_changed:
            old = new = _lay_out_paragraph_version(one.old or "", [], "", "dim", room, found)
        else:
            old = _lay_out_paragraph_version(one.old, one.old_ranges, "-", "deleted", room, found)
            new = _lay_out_paragraph_version(one.new, one.new_ranges, "+", "inserted", room, found)
        if is_wide:
            return list(_join_columns(old, new, width))
        return old if not one.is_changed else [*old, *new]

    def estimate_line_count(self, width: int) -> int:
        """Estimate the number of lines without laying the block out."""
        texts = [text for text in (self.paragraph.old, self.paragraph.new) if text]
        sizes = [text.count("\n") + 1 + len(text) // max(8, width) for text in texts]
        return self.above + (max(sizes) * 2 if width >= self.side_by_side_width else sum(sizes))

    def get_searchable_text(self) -> str:
        old, new = self.paragraph.old or "", self.paragraph.new or ""
        return old if old == new else "\n".join(filter(None, (old, new)))


def build_difference_document(
    key: str,
    title: str,
    old: str,
    new: str | None,
    names: tuple[str, str],
    remark: str | None = None,
    *,
    head: Sequence[ReaderBlock] = (),
    screen_width: int = 80,
) -> ReaderDocument:
    """Build the document that shows the changes from `old` to `new`.

    `new` is None if the subject no longer exists. `names` are the names of the two versions, and
    `remark` is a note below them. Unchanged paragraphs that are far from a change are left out.
    `head` contains the first blocks of the document. `block_indices_by_kind["change"]` has the
    indices of the changes. `screen_width` is the number of columns of the screen; it determines how
    wide the reader pane must be to show the versions side by side.
    """
    width = SIDE_BY_SIDE_WIDTHS[screen_width >= WIDE_SCREEN]
    compared = compare_paragraphs(old, new or "")
    count = sum(one.is_changed for one in compared)
    badges: Spans = [(format_counted_noun(count, "change"), "warning" if count else "dim")]
    if new is None:
        badges = [(NO_LONGER_THERE, "warning")]
    blocks: list[ReaderBlock] = [
        *head,
        VersionNamesBlock("names", *names, width, above=int(bool(head))),
        *([ParagraphReaderBlock("remark", [(remark, "dim")], above=1)] if remark else []),
    ]
    if not count:
        blocks.append(ParagraphReaderBlock("same", [("Nothing has changed.", "dim")], above=1))
    blocks += _iterate_blocks_of_changed_paragraphs(compared, width)
    document = ReaderDocument(key, sanitize_to_one_line(title), blocks, badges=badges)
    document.view, document.views = "difference", ("difference",)
    document.block_indices_by_kind["change"] = [
        index
        for index, block in enumerate(blocks)
        if isinstance(block, ComparedParagraphBlock) and block.paragraph.is_changed
    ]
    return document


def build_history_document(
    ref: str,
    versions: Sequence[SubjectVersion],
    marks: MarksOfTurns = MarksOfTurns(),  # noqa: B008  (nobody changes it)
    problem: str | None = None,
    *,
    screen_width: int = 80,
) -> ReaderDocument:
    """Build the document that lists the versions of a subject, newest first.

    Each version is shown with its changes. `problem` says why the current text cannot be read.
    Below each version are links to the turns that were given this version, with the user's `marks`
    on these turns. `block_indices_by_kind["change"]` has the indices of the versions.
    """
    width = SIDE_BY_SIDE_WIDTHS[screen_width >= WIDE_SCREEN]
    blocks: list[ReaderBlock] = []
    if problem is not None:
        text = f"The current text is not shown: {sanitize_to_one_line(problem)}"
        blocks.append(ParagraphReaderBlock("problem", [(text, "warning")]))
    starts = []
    for number, version in enumerate(versions):
        starts.append(len(blocks))
        blocks.append(_make_subject_version_heading(number, version))
        for turn in version.given_to:
            left: Spans = [("  given to ", "dim"), (sanitize_to_one_line(turn), "link")]
            key = f"given:{number}:{turn}"
            blocks.append(LeftAndRightLineBlock(key, left, link=turn))
            blocks += make_blocks_of_users_marks(marks.get_marks_of_turn(turn), "    ", f"{key}:")
        if number + 1 < len(versions) and version.has_text and versions[number + 1].has_text:
            compared = compare_paragraphs(
                versions[number + 1].comparable_text, version.comparable_text
            )
            blocks += _iterate_blocks_of_changed_paragraphs(compared, width, f"version:{number}:")
    if len(versions) == 1:
        text = "No earlier version is known, neither from Git nor from a conversation."
        blocks.append(ParagraphReaderBlock("only", [(text, "dim")], above=1))
    count = format_counted_noun(len(versions), "version")
    document = ReaderDocument(ref, sanitize_to_one_line(ref), blocks, ref=ref, view="history")
    document.badges = [(count, "dim")]
    document.block_indices_by_kind["change"] = starts
    return document


def build_file_changes_document(
    ref: str,
    title: str,
    changes: Sequence[tuple[str, int, TurnFileAction]],
    marks: ConversationMarks = ConversationMarks(),  # noqa: B008  (nobody changes it)
    *,
    is_by_file: bool = False,
    problems: Sequence[str] = (),
) -> ReaderDocument:
    """Build the document that shows a conversation's changes to files as one diff.

    * `changes` are the actions that changed a file, each with the reference of its call and the
      number of its turn. They are shown in the order of the tool calls or, if `is_by_file` is true,
      grouped by file.
    * `problems` say which parts of the conversation cannot be read. They are shown first.
    * The `marks` on a turn are shown with the first change of the turn.

    Below the problems is a list of the files. `block_indices_by_kind["change"]` has the indices of
    the changes.
    """
    by_path: dict[str, list[tuple[str, int, TurnFileAction]]] = {}
    for change in changes:
        by_path.setdefault(change[2].path, []).append(change)
    head: Spans = [(f"{format_counted_noun(len(by_path), 'file')} changed", "strong")]
    blocks: list[ReaderBlock] = [
        ParagraphReaderBlock(f"problem:{number}", [(f"! {sanitize_to_one_line(problem)}", "error")])
        for number, problem in enumerate(problems)
    ]
    blocks.append(LeftAndRightLineBlock("files", head if changes else [], []))
    for path, found in by_path.items():
        kinds = ", ".join(dict.fromkeys(one.kind for _, _, one in found))
        left: Spans = [("  ", ""), *_make_path_spans(path, "link"), (f"  {kinds}", "dim")]
        counts = make_changed_line_count_spans(one for _, _, one in found)
        source, turn, first = found[0]
        row = LeftAndRightLineBlock(f"file:{path}", left, counts, link=source, file=path)
        row.turn, row.call = turn, first.call
        blocks.append(row)
    starts = []
    shown: set[int] = set()
    if is_by_file:
        changes = [change for found in by_path.values() for change in found]
    for number, (source, turn, one) in enumerate(changes):
        starts.append(len(blocks))
        moved = f" from {sanitize_to_one_line(one.old_path)}" if one.old_path else ""
        left = [(f"{one.kind} ", "turn"), *_make_path_spans(one.path, "strong"), (moved, "dim")]
        right: Spans = [*make_changed_line_count_spans([one]), ("  ", "")]
        right.append((f"turn {turn}{f', call {one.call}' if one.call else ''}", "dim"))
        heading = LeftAndRightLineBlock(f"change:{number}", left, right, link=source, above=1)
        marked = (
            () if turn in shown else make_blocks_of_users_marks(marks.by_turn.get(turn, ()), "  ")
        )
        shown.add(turn)
        for block in (heading, *marked, *make_blocks_of_diff_hunks(f"diff:{number}", one.hunks)):
            block.turn, block.call, block.file = turn, one.call, one.path
            blocks.append(block)
    if not changes:
        text = "No turn of this conversation changed a file."
        if problems:
            text = "The readable part of this conversation changed no file."
        blocks.append(ParagraphReaderBlock("none", [(text, "dim")]))
    document = ReaderDocument(ref, sanitize_to_one_line(title), blocks, ref=ref)
    document.views, document.view = CHANGES_VIEWS, CHANGES_VIEWS[is_by_file]
    document.badges = [(format_counted_noun(len(changes), "change"), "dim")]
    if problems:
        document.badges.insert(0, ("damaged", "error"))
    document.block_indices_by_kind["change"] = starts
    return document


def _make_path_spans(path: str, role: str) -> Spans:
    directory, slash, name = sanitize_to_one_line(path).rpartition("/")
    return [(directory + slash, "dim path"), (name, f"{role} path")]


def _make_subject_version_heading(number: int, version: SubjectVersion) -> ReaderBlock:
    """Return the line above a version, with the date of the version.

    If the version was committed, the line also shows the commit, its author and its summary.
    """
    kind = version.commit[:8] if version.commit else "found in a conversation"
    kind = "now" if version.is_current else kind
    kind += "" if version.has_text else ", text not shown"
    left: Spans = [(f"{format_unix_time_as_day(version.time or 0.0)} ", "turn"), (kind, "strong")]
    said = [version.author, version.summary] if version.commit else []
    left += [(f"  {sanitize_to_one_line(one or '')}", "dim") for one in said]
    return LeftAndRightLineBlock(
        f"version:{number}", [*left, (" ", "")], rule=True, above=int(number > 0)
    )


def _iterate_blocks_of_changed_paragraphs(
    compared: Sequence[ComparedParagraph], width: int, key: str = ""
) -> Iterator[ReaderBlock]:
    """Yield blocks for changed paragraphs and their neighbours.

    Each run of other paragraphs is replaced by a line that says how many are left out.
    """
    changed = [index for index, one in enumerate(compared) if one.is_changed]
    shown = {
        near
        for index in changed
        for near in range(index - CONTEXT_PARAGRAPHS, index + CONTEXT_PARAGRAPHS + 1)
        if 0 <= near < len(compared)
    }
    left_out = 0
    for index, one in enumerate(compared):
        if index not in shown:
            left_out += 1
            continue
        if left_out:
            yield _make_omitted_paragraphs_block(f"{key}unchanged:{index}", left_out)
            left_out = 0
        yield ComparedParagraphBlock(f"{key}paragraph:{index}", one, width, above=1)
    if left_out and changed:
        yield _make_omitted_paragraphs_block(f"{key}unchanged:end", left_out)


def _make_omitted_paragraphs_block(key: str, count: int) -> ReaderBlock:
    text = f"⋯ {format_counted_noun(count, 'unchanged paragraph')}"
    return LeftAndRightLineBlock(key, [(text, "dim")], above=1)


def _lay_out_paragraph_version(
    text: str | None,
    ranges: Sequence[TextRange],
    mark: str,
    role: str,
    width: int,
    found: HighlightPattern | None,
) -> StyledLines:
    """Return the lines of one version of a paragraph, each preceded by `mark`.

    `ranges` are the positions of the changed words. If `ranges` is empty, the whole text has the
    role `role`.
    """
    if text is None:
        return []
    clean, marked = sanitize_text_and_move_ranges(text, list(ranges))
    base = "" if marked else role
    lines: StyledLines = []
    start = 0
    for line in clean.split("\n"):
        moved = ((max(0, first - start), min(len(line), end - start)) for first, end in marked)
        changed = [(first, end, f"{role} changed-word") for first, end in moved if first < end]
        spans = add_role_to_ranges([(line, base)] if line else [], changed)
        expanded = [(part.expandtabs(TAB_WIDTH), style) for part, style in spans]
        for wrapped in wrap_code_line(highlight_matches(expanded, found), width):
            lines.append(StyledLine([(f"{mark} ".rjust(2), role), *wrapped.spans]))
        start += len(line) + 1
    return lines


def _join_columns(left: StyledLines, right: StyledLines, width: int) -> Iterator[StyledLine]:
    """Yield lines that each show a line of `left` and a line of `right` side by side."""
    room = (width - 3) // 2
    for number in range(max(len(left), len(right))):
        spans = truncate_spans(left[number].spans if number < len(left) else [], room)
        space = " " * (room - measure_cell_width(spans))
        other = truncate_spans(right[number].spans if number < len(right) else [], room)
        yield StyledLine([*spans, (space, ""), (" │ ", "rule"), *other])
