"""The viewport: moving, folds, reloading, and laying out only visible blocks."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbtui.tui.reader.document_view import DocumentLinePosition, DocumentViewport
from kbtui.tui.reader.reader_blocks import (
    FoldHeadingBlock,
    LeftAndRightLineBlock,
    MarkdownReaderBlock,
    ReaderBlock,
    VerbatimTextReaderBlock,
)
from kbtui.tui.reader.reader_document import ReaderDocument, compile_pattern_for_terms


def document(sizes: list[int], folds: bool = False, prefix: str = "w") -> ReaderDocument:
    """Return a document with one block of each size in words; with `folds` every third one is folded."""
    blocks: list[ReaderBlock] = []
    for number, size in enumerate(sizes):
        text = " ".join(f"{prefix}{number}x{n}" for n in range(size))
        if folds and number % 3 == 2:
            blocks.append(FoldHeadingBlock(f"fold{number}", [(f"fold {number}", "")], kind="tool"))
            blocks.append(VerbatimTextReaderBlock(f"in{number}", text, fold=f"fold{number}"))
        else:
            blocks.append(MarkdownReaderBlock(f"b{number}", text, above=1))
    return ReaderDocument("doc", "Doc", blocks)


def opened(doc: ReaderDocument, width: int = 40, height: int = 12) -> DocumentViewport:
    viewport = DocumentViewport()
    viewport.resize(width, height)
    viewport.show_document(doc)
    return viewport


def everything(viewport: DocumentViewport) -> list[str]:
    return [
        line.plain
        for n in range(len(viewport.document.blocks))
        for line in viewport.get_block_lines(n)
    ]


# These tests do not depend on time, and the machine may be busy.
RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

sizes = st.lists(st.integers(0, 60), min_size=1, max_size=25)


@RELAXED
@given(sizes, st.booleans(), st.lists(st.integers(-30, 30), max_size=12), st.integers(3, 20))
def test_moving_shows_consecutive_lines_of_the_document(
    given_sizes: list[int], folds: bool, moves: list[int], height: int
) -> None:
    viewport = opened(document(given_sizes, folds), height=height)
    whole = everything(opened(document(given_sizes, folds), height=height))
    for move in moves:
        (viewport.move_cursor_by_lines, viewport.scroll_by_lines, viewport.scroll_and_move_cursor)[
            move % 3
        ](move)
        seen = [line.plain for _, line in viewport.rows]
        assert len(seen) == min(height, len(whole))
        assert any(whole[n : n + len(seen)] == seen for n in range(len(whole) + 1))
        if whole:
            assert viewport.cursor in [position for position, _ in viewport.rows]
    viewport.go_to_last_line()
    assert [line.plain for _, line in viewport.rows] == whole[-height:]
    viewport.go_to_first_line()
    assert [line.plain for _, line in viewport.rows] == whole[:height]


@RELAXED
@given(sizes, st.integers(0, 200), st.integers(0, 200))
def test_moving_back_undoes_moving_forward(given_sizes: list[int], start: int, by: int) -> None:
    viewport = opened(document(given_sizes, folds=True))
    here = viewport.find_position_lines_below(viewport.document_start_position, start)
    there = viewport.find_position_lines_below(here, by)
    back = viewport.find_position_lines_below(there, -by)
    assert back <= here
    if there != viewport.document_end_position:
        assert back == here


@RELAXED
@given(sizes, st.integers(0, 100), st.lists(st.integers(12, 90), max_size=5))
def test_changes_of_width_return_to_the_same_line(
    given_sizes: list[int], by: int, widths: list[int]
) -> None:
    viewport = opened(document(given_sizes))
    viewport.move_cursor_by_lines(by)
    before = viewport.cursor, viewport.current_styled_line and viewport.current_styled_line.plain
    for width in widths:
        viewport.resize(width, 12)
    viewport.resize(40, 12)
    assert (
        viewport.cursor,
        viewport.current_styled_line and viewport.current_styled_line.plain,
    ) == before


def test_only_visible_blocks_of_ten_thousand_are_laid_out() -> None:
    viewport = opened(document([30] * 10_000), height=40)
    assert 0 < viewport.layout_count < 60
    viewport.go_to_last_line()
    assert viewport.layout_count < 120
    viewport.scroll_to_document_line(viewport.total_line_count // 2)
    assert viewport.layout_count < 180
    viewport.resize(60, 40)
    assert viewport.layout_count < 260


@RELAXED
@given(sizes, st.integers(0, 300))
def test_a_position_and_its_line_in_the_document_agree(given_sizes: list[int], line: int) -> None:
    viewport = opened(document(given_sizes, folds=True))
    lines = everything(viewport)
    assert viewport.total_line_count == len(lines)
    position = viewport.find_position_at_line(line)
    if lines:
        assert viewport.count_lines_before_position(position) == min(line, len(lines) - 1)
        shown = viewport.get_block_lines(position.block)[position.line].plain
        assert shown == lines[min(line, len(lines) - 1)]


def test_unfolding_keeps_the_line_and_folding_returns_to_the_head() -> None:
    viewport = opened(document([20] * 9, folds=True), height=30)
    head = viewport.document.find_block_index_by_key("fold5")
    assert head is not None
    viewport.go_to_block_line(head)
    row = [at for at, _ in viewport.rows].index(viewport.cursor)
    viewport.toggle_fold("fold5")
    assert [at for at, _ in viewport.rows].index(viewport.cursor) == row
    viewport.move_cursor_by_lines(2)
    assert viewport.document.blocks[viewport.cursor.block].fold == "fold5"
    viewport.toggle_fold("fold5")
    assert viewport.cursor.block == head


def test_one_fold_can_be_closed_after_all_of_its_kind_were_opened() -> None:
    viewport = opened(document([20] * 9, folds=True))
    viewport.toggle_folds_of_kind("tool")
    assert all(viewport.is_fold_open(f"fold{n}") for n in (2, 5, 8))
    viewport.toggle_fold("fold5")
    assert not viewport.is_fold_open("fold5")
    assert viewport.is_fold_open("fold2")
    viewport.toggle_folds_of_kind("tool")
    assert not any(viewport.is_fold_open(f"fold{n}") for n in (2, 5, 8))


def test_reloading_keeps_the_line_when_text_was_inserted_before_it() -> None:
    viewport = opened(document([30] * 40))
    viewport.go_to_block_line(20, 3)
    line = viewport.current_styled_line
    assert line is not None
    fresh = document([30] * 40)
    fresh.blocks.insert(0, MarkdownReaderBlock("new", "something new " * 50))
    viewport.show_reloaded_document(ReaderDocument("doc", "Doc", fresh.blocks))
    assert viewport.current_styled_line is not None
    assert viewport.current_styled_line.plain == line.plain
    assert viewport.cursor.block == 21


def test_reloading_follows_at_the_end_and_stays_elsewhere() -> None:
    viewport = opened(document([30] * 40))
    viewport.go_to_last_line()
    viewport.show_reloaded_document(document([30] * 45))
    assert viewport.cursor == viewport.document_end_position
    assert viewport.document_end_position.block == 44
    viewport.move_cursor_by_lines(-10)
    viewport.scroll_by_lines(-30)
    before = viewport.rows
    viewport.show_reloaded_document(document([30] * 50))
    assert [line.plain for _, line in viewport.rows] == [line.plain for _, line in before]


def test_a_short_document_read_from_its_top_does_not_jump_when_it_grows() -> None:
    viewport = opened(document([3]), height=30)
    viewport.show_reloaded_document(document([30] * 40))
    assert viewport.top == DocumentLinePosition(0, 0)


def test_the_current_match_is_highlighted_and_visible() -> None:
    viewport = opened(document([40] * 60))
    pattern = compile_pattern_for_terms(["w30x20"])
    viewport.highlight_search_pattern(pattern)
    assert pattern is not None
    (match,) = list(viewport.document.find_search_pattern_matches(pattern))
    viewport.go_to_match_in_block(*match)
    assert viewport.current_styled_line is not None
    assert [text for text, role in viewport.current_styled_line.spans if "found-here" in role] == [
        "w30x20"
    ]
    viewport.highlight_search_pattern(None)
    assert not any("found" in role for _, row in viewport.rows for _, role in row.spans)


def test_terms_match_in_any_case_and_with_any_white_space() -> None:
    pattern = compile_pattern_for_terms(["Two  Words", "re[a-z]+"])
    assert pattern is not None
    assert re.findall(pattern, "two\nwords and RE[A-Z]+ not read") == ["two\nwords", "RE[A-Z]+"]
    assert compile_pattern_for_terms(["", "  "]) is None


def test_moving_in_an_empty_document_does_nothing() -> None:
    viewport = opened(ReaderDocument("e", "E", []))
    for _ in range(2):
        viewport.move_cursor_by_lines(3)
        viewport.scroll_and_move_cursor(-2)
        viewport.go_to_last_line()
        viewport.go_to_first_line()
        viewport.resize(30, 5)
    assert viewport.rows == []
    assert viewport.current_styled_line is None
    assert viewport.current_turn_number is None
    viewport.show_document(ReaderDocument("h", "H", [LeftAndRightLineBlock("x", [("x", "")])]))
    assert len(viewport.rows) == 1
