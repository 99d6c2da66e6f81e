"""The viewport: walking, folds, reloads, and laying out only what is seen."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbtui.tui.reader.blocks import Block, FoldBlock, HeadBlock, MarkdownBlock, SourceBlock
from kbtui.tui.reader.document import Document, compile_finder
from kbtui.tui.reader.document_view import Position, Viewport


def document(sizes: list[int], folds: bool = False, prefix: str = "w") -> Document:
    """Blocks of so many words; every third one folded when asked for."""
    blocks: list[Block] = []
    for number, size in enumerate(sizes):
        text = " ".join(f"{prefix}{number}x{n}" for n in range(size))
        if folds and number % 3 == 2:
            blocks.append(FoldBlock(f"fold{number}", [(f"fold {number}", "")], kind="tool"))
            blocks.append(SourceBlock(f"in{number}", text, fold=f"fold{number}"))
        else:
            blocks.append(MarkdownBlock(f"b{number}", text, above=1))
    return Document("doc", "Doc", blocks)


def opened(doc: Document, width: int = 40, height: int = 12) -> Viewport:
    port = Viewport()
    port.resize(width, height)
    port.show_document(doc)
    return port


def everything(port: Viewport) -> list[str]:
    return [line.plain for n in range(len(port.document.blocks)) for line in port.get_lines(n)]


# Nothing here is about time, and the machine may be busy.
RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

sizes = st.lists(st.integers(0, 60), min_size=1, max_size=25)


@RELAXED
@given(sizes, st.booleans(), st.lists(st.integers(-30, 30), max_size=12), st.integers(3, 20))
def test_walking_shows_the_document_s_own_lines_wherever_one_is(
    given_sizes: list[int], folds: bool, moves: list[int], height: int
) -> None:
    port = opened(document(given_sizes, folds), height=height)
    whole = everything(opened(document(given_sizes, folds), height=height))
    for move in moves:
        (port.move_cursor, port.scroll_lines, port.scroll_with_cursor)[move % 3](move)
        seen = [line.plain for _, line in port.rows]
        assert len(seen) == min(height, len(whole))
        assert any(whole[n : n + len(seen)] == seen for n in range(len(whole) + 1))
        if whole:
            assert port.cursor in [position for position, _ in port.rows]
    port.go_to_end()
    assert [line.plain for _, line in port.rows] == whole[-height:]
    port.go_to_start()
    assert [line.plain for _, line in port.rows] == whole[:height]


@RELAXED
@given(sizes, st.integers(0, 200), st.integers(0, 200))
def test_a_step_back_undoes_a_step_on(given_sizes: list[int], start: int, by: int) -> None:
    port = opened(document(given_sizes, folds=True))
    here = port.offset_position(port.first_position, start)
    there = port.offset_position(here, by)
    back = port.offset_position(there, -by)
    assert back <= here
    if there != port.last_position:
        assert back == here


@RELAXED
@given(sizes, st.integers(0, 100), st.lists(st.integers(12, 90), max_size=5))
def test_changes_of_width_return_to_the_same_line(
    given_sizes: list[int], by: int, widths: list[int]
) -> None:
    port = opened(document(given_sizes))
    port.move_cursor(by)
    before = port.cursor, port.current_line and port.current_line.plain
    for width in widths:
        port.resize(width, 12)
    port.resize(40, 12)
    assert (port.cursor, port.current_line and port.current_line.plain) == before


def test_ten_thousand_messages_lay_out_only_what_is_in_sight() -> None:
    port = opened(document([30] * 10_000), height=40)
    assert 0 < port.layout_count < 60
    port.go_to_end()
    assert port.layout_count < 120
    port.scroll_to_line(port.heights.total_lines // 2)
    assert port.layout_count < 180
    port.resize(60, 40)
    assert port.layout_count < 260


def test_unfolding_keeps_the_line_and_folding_returns_to_the_head() -> None:
    port = opened(document([20] * 9, folds=True), height=30)
    head = port.document.find_block("fold5")
    assert head is not None
    port.go_to(head)
    row = [at for at, _ in port.rows].index(port.cursor)
    port.toggle_fold("fold5")
    assert [at for at, _ in port.rows].index(port.cursor) == row
    port.move_cursor(2)
    assert port.document.blocks[port.cursor.block].fold == "fold5"
    port.toggle_fold("fold5")
    assert port.cursor.block == head


def test_all_of_a_kind_open_and_one_of_them_closes_by_itself() -> None:
    port = opened(document([20] * 9, folds=True))
    assert port.toggle_kind("tool") is True
    assert all(port.folds.is_open(f"fold{n}") for n in (2, 5, 8))
    port.toggle_fold("fold5")
    assert not port.folds.is_open("fold5")
    assert port.folds.is_open("fold2")
    assert port.toggle_kind("tool") is False
    assert not any(port.folds.is_open(f"fold{n}") for n in (2, 5, 8))


def test_a_reload_keeps_the_line_although_text_came_before_it() -> None:
    port = opened(document([30] * 40))
    port.go_to(20, 3)
    line = port.current_line
    assert line is not None
    fresh = document([30] * 40)
    fresh.blocks.insert(0, MarkdownBlock("new", "something new " * 50))
    port.reload_document(Document("doc", "Doc", fresh.blocks))
    assert port.current_line is not None
    assert port.current_line.plain == line.plain
    assert port.cursor.block == 21


def test_at_the_end_it_follows_what_is_added_and_elsewhere_it_stays() -> None:
    port = opened(document([30] * 40))
    port.go_to_end()
    port.reload_document(document([30] * 45))
    assert port.cursor == port.last_position
    assert port.last_position.block == 44
    port.move_cursor(-10)
    port.scroll_lines(-30)
    before = port.rows
    port.reload_document(document([30] * 50))
    assert [line.plain for _, line in port.rows] == [line.plain for _, line in before]


def test_a_short_document_read_from_its_top_does_not_jump_when_it_grows() -> None:
    port = opened(document([3]), height=30)
    port.reload_document(document([30] * 40))
    assert port.top == Position(0, 0)


def test_the_match_one_stands_at_is_marked_and_in_sight() -> None:
    port = opened(document([40] * 60))
    pattern = compile_finder(["w30x20"])
    port.set_pattern(pattern)
    assert pattern is not None
    (match,) = list(port.document.find_matches(pattern))
    port.go_to_match(*match)
    assert port.current_line is not None
    assert [text for text, role in port.current_line.spans if "found-here" in role] == ["w30x20"]
    port.set_pattern(None)
    assert not any("found" in role for _, row in port.rows for _, role in row.spans)


def test_terms_match_whatever_the_case_and_white_space() -> None:
    pattern = compile_finder(["Two  Words", "re[a-z]+"])
    assert pattern is not None
    assert re.findall(pattern, "two\nwords and RE[A-Z]+ not read") == ["two\nwords", "RE[A-Z]+"]
    assert compile_finder(["", "  "]) is None


def test_an_empty_document_can_be_walked() -> None:
    port = opened(Document("e", "E", []))
    for _ in range(2):
        port.move_cursor(3)
        port.scroll_with_cursor(-2)
        port.go_to_end()
        port.go_to_start()
        port.resize(30, 5)
    assert port.rows == []
    assert port.current_line is None
    assert port.current_turn is None
    port.show_document(Document("h", "H", [HeadBlock("x", [("x", "")])]))
    assert len(port.rows) == 1
