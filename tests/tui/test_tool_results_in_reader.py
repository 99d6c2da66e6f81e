"""What tools returned, as the reader shows it: code, JSON, colours, and the middle of long texts in a fold."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support import Builder, asked, called
from tui_support import running

from kbtui.tui.framework.styled_text import join_span_texts
from kbtui.tui.reader.reader_blocks import ReaderBlock
from kbtui.tui.reader.tool_call_blocks import (
    HiddenLinesHeadingBlock,
    find_language_of_path,
    make_tool_text_blocks,
)


def lay_out(blocks: list[ReaderBlock]) -> list[tuple[str, str]]:
    """Return the spans of all lines, without those that only indent."""
    lines = [line for block in blocks for line in block.lay_out_with_lead_and_space_above(80)]
    return [(text, role) for line in lines for text, role in line.spans if text.strip()]


def test_the_content_of_a_file_is_highlighted_without_its_fences() -> None:
    text = "```rs\n/// Makes one:\n/// ```\n/// f();\n/// ```\npub fn f() {}\n```\n"
    spans = lay_out(make_tool_text_blocks("k", text, path="src/lib.rs"))
    assert not any("```rs" in text for text, _ in spans)
    assert ("pub", "keyword") in spans
    assert "/// ```" in "".join(text for text, _ in spans)  # a fence inside the file stays


def test_line_numbers_of_an_agent_are_a_column() -> None:
    text = "     9→def f():\n    10→    return 'x'\n"
    (block,) = make_tool_text_blocks("k", text, path="src/a.py")
    rows = [join_span_texts(line.spans) for line in block.lay_out_with_lead_and_space_above(80)]
    assert rows == [" 9  def f():", "10      return 'x'"]
    assert block.get_searchable_text() == "def f():\n    return 'x'"
    assert ("def", "keyword") in lay_out([block])


def test_fenced_parts_and_json_are_laid_out() -> None:
    text = "Ran 2 tests.\n\n```xml\n<results>\n  <a/>\n</results>\n```\n\nDone."
    spans = lay_out(make_tool_text_blocks("k", text))
    assert not any("```" in text for text, _ in spans)
    assert ("Ran 2 tests.", "") in spans
    assert any("keyword" in role and "results" in text for text, role in spans)
    spans = lay_out(make_tool_text_blocks("k", '{"message":"one\\ntwo","trace":[1]}'))
    assert [text for text, _ in spans] == ["message:", "  one", "  two", "trace:", "  - 1"]


def test_blank_lines_stay_at_the_start_of_a_result_and_go_after_a_fence() -> None:
    for path in (None, "a.py"):
        (block,) = make_tool_text_blocks("k", "\n\nx = 1\n\n", path=path)
        assert block.get_searchable_text() == "\n\nx = 1"
    blocks = make_tool_text_blocks("k", "\nRan.\n\n```py\n\nx\n\n```\n\n\nDone.\n")
    assert [block.get_searchable_text() for block in blocks] == ["\nRan.", "\nx", "Done."]


def test_terminal_colours_are_colours() -> None:
    text = "\x1b[1;31merror\x1b[0m: \x1b[38;5;40mgreen\x1b[39m \x1b[38;2;250;240;10mgold\x1b[m \x1b[2Kend"
    spans = lay_out(make_tool_text_blocks("k", text))
    assert spans == [
        ("error", "error strong"),
        (": ", ""),
        ("green", "inserted"),
        ("gold", "warning"),
        (" end", ""),
    ]
    (block,) = make_tool_text_blocks("k", text)
    assert block.get_searchable_text() == "error: green gold end"


_LINES = st.lists(st.sampled_from(["a", "b c", "", "```", "```py", "~~~", "  ", "\x1b[31mx"]))


@given(_LINES, st.sampled_from([None, "a.py"]), st.integers(1, 40))
def test_no_line_is_lost(lines: list[str], path: str | None, times: int) -> None:
    text = "\n".join(lines * times)
    blocks = make_tool_text_blocks("k", text, path=path)
    shown = "\n".join(block.get_searchable_text() for block in blocks)
    wanted = [line.replace("\x1b[31m", "") for line in lines * times]
    is_word = re.compile(r"\w").search
    fences = {"```py"}
    assert [line for line in shown.split("\n") if is_word(line) and line not in fences] == [
        line for line in wanted if is_word(line) and line not in fences
    ]
    assert len({block.key for block in blocks}) == len(blocks)


async def test_the_middle_of_a_long_result_is_folded(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    text = "".join(f"line {n}\n" for n in range(1, 101))
    builder.conversation(1, [[asked("Read"), *called("a", "fs_read_file", text, path="a.txt")]])
    async with running(builder.root, size=(100, 60)) as tui:
        await tui.open("jp-c17800000001:1.1")
        await tui.until("58 more lines")
        assert "line 30 " in tui.text
        assert "line 31 " not in tui.text
        assert "line 89 " in tui.text
        await tui.press("2", "f")
        await tui.type("line 50")
        await tui.press("enter")
        await tui.until("line 49 ")


def test_languages_by_name() -> None:
    names = ["src/lib.rs", "C:\\a\\b.PY", "x/Makefile", "notes.txt", "LICENSE", "a.yml"]
    assert [find_language_of_path(one) for one in names] == ["rs", "py", "make", "", "", "yaml"]
    assert HiddenLinesHeadingBlock("k", [("3 more lines", "")]).get_searchable_text() == ""


def test_xml_in_one_line_is_laid_out_and_keeps_its_prefixes() -> None:
    items = "".join(f'<x:item n="{n}">word {n}</x:item>' for n in range(12))
    text = f'<x:list xmlns:x="urn:x"><!-- all -->{items}</x:list>'
    (block,) = make_tool_text_blocks("k", text)
    rows = [join_span_texts(line.spans) for line in block.lay_out_with_lead_and_space_above(100)]
    assert rows[0] == '<x:list xmlns:x="urn:x">'
    assert rows[1:3] == ["  <!-- all -->", '  <x:item n="0">word 0</x:item>']
    assert len(rows) == 15
    broken = text.replace("</x:list>", "</x:lost>")
    assert (
        "".join(block.get_searchable_text() for block in make_tool_text_blocks("k", broken))
        == broken
    )


def test_one_long_line_shows_its_head_and_its_tail() -> None:
    text = " ".join(f"word{n}" for n in range(4_000))
    blocks = make_tool_text_blocks("k", text)
    heading = next(block for block in blocks if isinstance(block, HiddenLinesHeadingBlock))
    hidden = [block for block in blocks if block.fold == heading.key]
    size = sum(len(block.get_searchable_text()) for block in hidden)
    assert join_span_texts(heading.left) == f"{size:,} more characters"
    assert size > 20_000
    assert "".join(block.get_searchable_text() for block in blocks) == text
