"""Wide code is wrapped or scrolled; only images in the workspace are opened, after confirmation."""

import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support import Builder
from tui_support import running

from kbtui.tui.framework.styled_text import wrap_code_line
from kbtui.tui.reader.links_and_copyable_texts import resolve_image_or_pdf_link

LONG = "value = " + " + ".join(f"part_{number}" for number in range(40)) + " + THE_END"
PAGE = f"# Code\n\nBefore.\n\n```python\n{LONG}\nshort = 1\n```\n\nAfter.\n"


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=("C", "M", "Zl", "Zp")), max_size=90),
    st.integers(8, 40),
    st.integers(0, 100),
)
def test_scrolled_code_is_one_line_that_fits_and_keeps_the_whole(
    text: str, width: int, shift: int
) -> None:
    (line,) = wrap_code_line([(text, "code")] if text else [], width, 3, shift)
    assert cell_len(line.plain) <= width
    assert (line.full_text or line.plain) == text
    assert line.source_line == 3
    assert line.continues_right == line.plain.endswith("›") or "›" in text


@given(st.text("abc xyz_", max_size=200), st.integers(8, 40))
def test_going_right_shows_every_character_once(text: str, width: int) -> None:
    seen, shift = "", 0
    while True:
        (line,) = wrap_code_line([(text, "")], width, 0, shift)
        part = line.plain
        if shift and part:
            part = part[1:]
        seen += part[:-1] if line.continues_right else part
        if not line.continues_right:
            break
        shift = len(seen)
    assert seen == text


async def test_a_key_turns_wrapping_into_scrolling_and_back(book: Builder) -> None:
    book.subject("project/wide.md", PAGE)
    async with running(book.root, size=(80, 30)) as tui:
        await tui.open("project/wide")
        await tui.until("After.")
        tui.main.panes.focus_widget("#document")
        wrapped = len(tui.main.reader_pane.document_view.viewport.rows)
        assert "THE_END" in tui.text
        await tui.press("backslash")
        await tui.until(lambda: len(tui.main.reader_pane.document_view.viewport.rows) < wrapped)
        assert "THE_END" not in tui.text
        assert "value = part_0" in tui.text
        for _ in range(40):
            if "THE_END" in tui.text:
                break
            await tui.press("right")
        assert "THE_END" in tui.text
        assert "value = part_0" not in tui.text
        assert "Before." in tui.text
        for _ in range(40):
            if "value = part_0" in tui.text:
                break
            await tui.press("h")
        assert "value = part_0" in tui.text
        await tui.press("backslash")
        await tui.until(lambda: len(tui.main.reader_pane.document_view.viewport.rows) == wrapped)


def test_only_images_in_the_workspace_are_opened(tmp_path: Path) -> None:
    root = tmp_path / "ws"
    docs = root / "docs"
    docs.mkdir(parents=True)
    for path in (docs / "a b.png", root / "up.jpg", docs / "run.sh", tmp_path / "out.png"):
        path.write_bytes(b"x")
    (docs / "link.png").symlink_to(tmp_path / "out.png")
    (docs / "dir.png").mkdir()
    assert resolve_image_or_pdf_link("a%20b.png", docs, root) == docs / "a b.png"
    assert resolve_image_or_pdf_link("../up.jpg#part", docs, root) == root / "up.jpg"
    for href in ("run.sh", "../../out.png", str(tmp_path / "out.png"), "link.png", "dir.png", ""):
        assert resolve_image_or_pdf_link(href, docs, root) is None, href
    assert resolve_image_or_pdf_link("no\0.png", docs, root) is None


async def test_an_image_is_opened_by_the_systems_program_after_confirmation(
    book: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = book.subject("project/pictured.md", "# Picture\n\n![A plan](plan.png)\n")
    plan = path.with_name("plan.png")
    plan.write_bytes(b"\x89PNG")
    programs, given_to = tmp_path / "bin", tmp_path / "opened"
    programs.mkdir()
    document_controller = programs / ("open" if sys.platform == "darwin" else "xdg-open")
    document_controller.write_text(f'#!/bin/sh\nprintf %s "$1" > {shlex.quote(str(given_to))}\n')
    document_controller.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    async with running(book.root) as tui:
        await tui.open("project/pictured")
        await tui.until("[image: A plan]")
        tui.main.panes.focus_widget("#document")
        await tui.press("j", "j")
        await tui.press("o")
        await tui.until("open it in the system's viewer")
        assert not given_to.exists()
        await tui.press("o")
        await tui.until(lambda: given_to.exists() and given_to.read_text() == str(plan))
