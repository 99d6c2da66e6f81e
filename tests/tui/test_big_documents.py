"""Long conversations and large subjects in the running application: only visible blocks are laid out."""

from pathlib import Path

import pytest
from support import Builder, asked, called, said
from tui_support import running


async def test_ten_thousand_messages_open_with_only_visible_lines_laid_out(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    turns = [
        [
            asked(f"Question {n}?"),
            *called(f"c{n}", "fs_read_file", f"text {n}", path=f"{n}.rs"),
            said(f"# Answer {n}\n\nSome *words*."),
        ]
        for n in range(2500)
    ]
    builder.conversation(1, turns, title="Huge talk")
    async with running(builder.root, size=(120, 40)) as tui:
        await tui.open("jp-c17800000001")
        viewport = tui.main.reader_pane.document_view.viewport
        assert len(viewport.document.blocks) > 10_000
        height = viewport.height
        assert viewport.layout_count < 4 * height
        await tui.press("G")
        await tui.until("Answer 2499")
        await tui.press("ctrl+u", "ctrl+u", "g", "n", "n")
        await tui.until("turn 2 of 2,500")
        assert viewport.layout_count < 16 * height
        await tui.press("f")
        await tui.type("answer 1234")
        await tui.until("1 of 1")
        assert "Answer 1234" in tui.text


@pytest.mark.parametrize(
    ("name", "text", "last"),
    [
        ("lines.md", "".join(f"Paragraph {n}.\n\n" for n in range(60_000)), "Paragraph 59999."),
        (
            "fence.md",
            "```rust\n" + "let x = 1;\n" * 90_000 + "let last = 2;\n```\n",
            "let last = 2;",
        ),
        ("one.json", '{"k": [' + ", ".join(map(str, range(200_000))) + ', "last"]}', '"last"]}'),
        ("one.md", "word " * 200_000 + "last", "last"),
    ],
    ids=["paragraphs", "a fence", "one line of JSON", "one paragraph"],
)
async def test_a_subject_of_a_megabyte_is_laid_out_section_by_section(
    workspace_root: Path, name: str, text: str, last: str
) -> None:
    builder = Builder(workspace_root)
    builder.topics(big={})
    builder.subject(f"big/{name}", text)
    async with running(builder.root, size=(100, 30)) as tui:
        await tui.open(f"big/{name.partition('.')[0]}")
        viewport = tui.main.reader_pane.document_view.viewport
        assert 0 < viewport.layout_count < 30
        assert max(len(block.get_searchable_text()) for block in viewport.document.blocks) <= 12_200
        await tui.press("G")
        await tui.until(
            lambda: (
                viewport.current_styled_line is not None
                and last in viewport.current_styled_line.plain
            )
        )
        assert viewport.layout_count < 80
