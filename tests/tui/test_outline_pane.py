"""The outline: a row for each turn or heading, which is filtered, chosen, and follows the reader."""

from pathlib import Path
from time import process_time
from unittest import mock

import pytest
from support import Builder, asked, called, said
from tui_support import Tui, running

from kbtui.tui.reader.reader_document import OutlineEntry, OutlineTurnFacts

EDIT = "File modified successfully:\n\n```diff\n--- src/a.py\n+++ src/a.py\n@@ -9,2 +9,2 @@\n kept\n-old = 1\n+new = 2\n```"


@pytest.fixture
def talk(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(project={})
    turns = [[asked(f"Question {n}"), said(f"Answer {n}.\n\n" * 30)] for n in range(1, 13)]
    turns[1] += called("a", "fs_modify_file", EDIT, path="src/a.py")
    turns[2] += called("b", "cargo_test", "2 failed", True, package="core")
    builder.conversation(1, turns, title="Talk")
    builder.subject(
        "project/rules.md", "# Rules\n\nFirst.\n\n## Naming\n\nShort.\n\n" + "x\n\n" * 60
    )
    return builder


def outline_rows(tui: Tui) -> list[str]:
    # A line has the border of the reader beside the outline if the screen is wide.
    lines = [row.partition("││")[0] for row in tui.text.split("\n") if "│" in row]
    return [line.strip("│▎ ") for line in lines]


async def test_any_turn_is_three_keys_away(talk: Builder) -> None:
    async with running(talk.root, size=(80, 24)) as tui:
        await tui.open("jp-c17800000001")
        await tui.press("2", "O")
        await tui.until("Outline · 12 turns")
        await tui.press("1", "1")
        await tui.until("jp-c17800000001:11")
        assert "Outline" not in tui.text
        # No other turn has a number that begins with 7, so no more keys are needed.
        await tui.press("O", "7")
        await tui.until("jp-c17800000001:7")
        await tui.press("O", "1", "enter")
        await tui.until("jp-c17800000001:1 ")


async def test_the_outline_stands_beside_the_reader_and_both_follow(talk: Builder) -> None:
    async with running(talk.root, size=(160, 40)) as tui:
        await tui.open("jp-c17800000001")
        await tui.press("2", "O")
        await tui.until(lambda: any(row.startswith("2  Question 2") for row in outline_rows(tui)))
        await tui.until("✗  files")
        (edited,) = (row for row in outline_rows(tui) if "Question 2" in row)
        assert edited.split()[-2:] == ["1", "1"]  # a tool call, and a file
        (failed,) = (row for row in outline_rows(tui) if "Question 3" in row)
        assert failed.split()[-2:] == ["1", "1"]  # a tool call, which failed
        await tui.press("down", "down")
        await tui.until("jp-c17800000001:3")
        await tui.press("escape")
        await tui.until("Library")
        assert "jp-c17800000001:3" not in tui.text
        await tui.press("O")
        await tui.type("src/a.py")
        await tui.until("Outline · 1 of 12 turns")
        await tui.press("enter")
        await tui.until("jp-c17800000001:2")
        await tui.press("n", "n")
        await tui.until(lambda: "▎ 4  Question 4" in tui.text)


async def test_a_subject_has_an_outline_of_its_headings(talk: Builder) -> None:
    async with running(talk.root, size=(120, 30)) as tui:
        await tui.open("project/rules")
        await tui.press("O")
        await tui.until("Outline · 2 headings")
        assert "a number" not in tui.text, "headings have no numbers"
        assert "1…9" not in tui.text
        assert [row.split() for row in outline_rows(tui)[2:4]] == [["Rules", "1"], ["Naming", "5"]]
        await tui.type("nam")
        await tui.press("enter")
        await tui.until("rules:5")
        await tui.press("O", "escape")
        assert "Outline" not in tui.text


async def test_the_rows_of_thousands_of_turns_are_made_at_once(workspace_root: Path) -> None:
    entries = [
        OutlineEntry(
            f"turn:{n}", f"Question {n}", turn=OutlineTurnFacts(n, None, 5.0, n, n, (), n, False)
        )
        for n in range(1, 3_001)
    ]
    Builder(workspace_root)
    async with running(workspace_root, size=(160, 30)) as tui:
        with mock.patch("kbtui.tui.outline_pane.make_document_outline", return_value=entries):
            start = process_time()
            await tui.press("O")
            await tui.until("Outline · 3,000 turns")
            # A width that is measured anew for each row takes minutes.
            assert process_time() - start < 3
