"""What is new since the last visit: on the home page, in the library and in the reader."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support import FIRST_ID, Builder, asked, said
from tui_support import running

from kbtui.tui.app import TuiStartOptions

START = FIRST_ID / 10
AGAIN = TuiStartOptions()


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START + seconds, UTC)


@pytest.fixture
def visited(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(project={})
    for name in ("rules", "style"):
        path = builder.subject(f"project/{name}.md", f"# {name}\n\nShort.\n")
        os.utime(path, (START, START))
    builder.conversation(1, [[asked("One?"), said("Yes.")]], title="First talk")
    return builder


async def test_home_says_what_is_new_since_the_last_visit(visited: Builder) -> None:
    async with running(visited.root, start=AGAIN, now=lambda: at(1_000)) as tui:
        assert "Since your last visit" not in tui.text
        await tui.open("jp-c17800000001")
        await tui.until("1 turn")
        assert "•" not in tui.text
    async with running(visited.root, start=AGAIN, now=lambda: at(2_000)) as tui:
        await tui.until("First talk")
        await tui.press("H")
        await tui.until("Nothing has changed.")
        assert "Where you left off" in tui.text
    # 30 s before the next visit, an agent starts a conversation, and a subject is written.
    visited.conversation(29_700, [[asked("Two?"), said("No.")]], title="Second talk")
    path = visited.subject("project/style.md", "# style\n\nLonger.\n")
    os.utime(path, (START + 2_500, START + 2_500))
    async with running(visited.root, start=AGAIN, now=lambda: at(3_000)) as tui:
        await tui.until("Since your last visit")
        assert any(
            "Second talk" in row and "new conversation" in row for row in tui.text.split("\n")
        )
        assert any("project/style" in row and "changed" in row for row in tui.text.split("\n"))
        assert "Being written now" in tui.text
        await tui.until("• Second talk")
        assert "• First talk" not in tui.text


async def test_where_one_left_off_is_the_line_that_was_read_last(visited: Builder) -> None:
    visited.subject("project/rules.md", "".join(f"# Rule {n}\n\nKeep it.\n\n" for n in range(9)))
    async with running(visited.root, start=AGAIN, now=lambda: at(1_000)) as tui:
        await tui.open("project/rules")
        await tui.press("G", "H")
        await tui.until("Where you left off")
        await tui.press("g", "enter")
        viewport = tui.main.reader_pane.viewport
        await tui.until(lambda: viewport.current_reference == "project/rules:35")


async def test_a_line_separates_new_turns(visited: Builder) -> None:
    turns = [[asked("One?"), said("Yes.")], [asked("Two?"), said("No.")]]
    visited.conversation(10_000, turns[:1], title="Long talk")
    async with running(visited.root, start=AGAIN, now=lambda: at(1_000.5)) as tui:
        await tui.open("jp-c17800010000")
        await tui.open("jp-c17800000001")
    visited.conversation(10_000, turns, title="Long talk")
    async with running(visited.root, start=AGAIN, now=lambda: at(5_000)) as tui:
        await tui.until(lambda: tui.main.document_controller.visit is not None)
        await tui.open("jp-c17800010000")
        await tui.until("new since your last visit")
        first, second = tui.text.split("new since your last visit")
        assert "One?" in first
        assert "Two?" in second
