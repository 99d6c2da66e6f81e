"""Citations of what an assistant found by searching: shown, opened, copied and exported."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Builder, asked, called, kill_engine, said
from tui_support import Tui, running

from kbtui.references import parse_ref
from kbtui.tui.framework.dialogs import FormDialog
from kbtui.userdata.turn_mark_store import MarkStore

TALK = "jp-c17800000008"


@pytest.fixture
def wide(book: Builder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """Return the handbook with a long subject, one passage of which is cited."""
    monkeypatch.setenv("KBTUI_MODEL", "off")
    filler = [
        f"## Part {number}\n\n" + f"Plain words of part {number}. " * 60 for number in range(8)
    ]
    wanted = (
        "## The pangolin\n\n"
        + "A pangolin rolls up when it is afraid, and so should a deploy. " * 15
    )
    book.subject("project/long.md", "# Long\n\n" + "\n\n".join([*filler, wanted, *filler]))
    yield book
    kill_engine(book)


async def search_by_mcp(builder: Builder, query: str) -> str:
    from mcp import Client, StdioServerParameters

    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "kbtui.cli.main", "mcp", "-w", str(builder.root)],
        env=dict(os.environ),
    )
    async with Client(parameters, read_timeout_seconds=60) as client:
        [content] = (await client.call_tool("knowledge_search", {"query": query})).content
        assert content.type == "text"
        return content.text


async def cited(tui: Tui, ref: str) -> list[str]:
    await tui.open(ref)
    await tui.until(lambda: any("[1]" in row for row in tui.rows("citations-list")))
    return tui.rows("citations-list")


async def test_what_an_assistant_found_stands_in_the_sidebar_and_opens_at_its_passage(
    wide: Builder,
) -> None:
    answer = await search_by_mcp(wide, "pangolin afraid")
    assert "\n[entry s" in answer
    turn = [asked("Afraid?"), *called("s", "mcp__kbtui__knowledge_search", answer, query="pangolin"), said("Roll up.")]  # fmt: skip
    wide.conversation(8, [turn], title="On pangolins")
    async with running(wide.root, size=(160, 40)) as tui:
        assert (await cited(tui, TALK))[:2] == ["CITED IN TURN 1", "[1] Long"]
        await tui.press("3", "enter")
        reader = tui.main.reader_pane.document_view
        await tui.until(lambda: reader.document.key == "project/long")
        await tui.until(
            lambda: (
                (line := reader.viewport.current_styled_line) is not None
                and "pangolin" in line.plain
            )
        )
        # The other direction: the turn that used the subject.
        await tui.until(lambda: any("On pangolins" in row for row in tui.rows("citations-list")))
        assert "turn 1 · 28 May" in tui.text


async def test_a_passage_is_found_after_its_subject_was_written_anew(wide: Builder) -> None:
    answer = await search_by_mcp(wide, "pangolin afraid")
    turn = [asked("Afraid?"), *called("s", "knowledge_search", answer, query="pangolin"), said(".")]
    wide.conversation(8, [turn], title="On pangolins")
    text = (wide.root / "docs/project/long.md").read_text()
    wide.subject(
        "project/long.md", "# Long\n\nA new beginning.\n\n" + text.replace("part 3", "three")
    )
    async with running(wide.root, size=(160, 40)) as tui:
        await cited(tui, TALK)
        await tui.press("3", "enter")
        reader = tui.main.reader_pane.document_view
        await tui.until(lambda: reader.document.key == "project/long")
        await tui.until(
            lambda: (
                (line := reader.viewport.current_styled_line) is not None
                and "pangolin" in line.plain
            )
        )


async def test_a_passage_of_what_is_gone_says_so(wide: Builder) -> None:
    answer = await search_by_mcp(wide, "pangolin afraid")
    turn = [asked("Afraid?"), *called("s", "knowledge_search", answer, query="pangolin"), said(".")]
    wide.conversation(8, [turn], title="On pangolins")
    (wide.root / "docs/project/long.md").unlink()
    async with running(wide.root, size=(160, 40)) as tui:
        await cited(tui, TALK)
        assert "no longer there" in tui.text


async def test_citations_are_copied_as_markdown_and_as_json(book: Builder) -> None:
    MarkStore(book.workspace).mark_turn(parse_ref("jp-c17800000001:1"), "rejected", note="*no*")
    async with running(book.root, size=(160, 40)) as tui:
        await cited(tui, "jp-c17800000001")
        await tui.press("3", "ctrl+y")
        await tui.until("Copied the citations of jp-c17800000001:1 as Markdown")
        lines = tui.app.clipboard.split("\n")
        assert lines[0] == "Citations of `jp-c17800000001:1`:"
        assert lines[2].startswith("1. `project/start`")
        await tui.press("J")
        await tui.until("as JSON")
        found = json.loads(tui.app.clipboard)
        assert [cite["target"] for cite in found["uses"]] == ["project/start", "Makefile"]
        assert (found["ref"], found["used_by"]) == ("jp-c17800000001:1", [])
        assert found["uses"][0]["marks"][0]["label"] == "rejected: *no*"
        await tui.press("1")
        await tui.open("project/start")
        await tui.until(lambda: any("First steps" in row for row in tui.rows("citations-list")))
        await tui.press("3", "ctrl+y")
        await tui.until("Copied the citations of project/start as Markdown")
        assert "- `jp-c17800000001:1` First steps (2026-05-28 " in tui.app.clipboard
        assert "  - mark: rejected: \\*no\\*\n" in tui.app.clipboard


async def test_a_conversation_is_exported_with_its_sources(book: Builder, tmp_path: Path) -> None:
    target = tmp_path / "out.md"
    target.write_text("mine")
    async with running(book.root, size=(120, 40)) as tui:
        await tui.press("X")
        await tui.until("Open a conversation first")
        await tui.open("jp-c17800000001")
        await tui.press("X")
        await tui.until(lambda: isinstance(tui.app.screen, FormDialog))
        from textual.widgets import Input

        tui.app.screen.query_one("#field-path", Input).value = str(tmp_path / "no" / "where.md")
        await tui.press("ctrl+s")
        # The line may be wrapped between any two words.
        await tui.until(lambda: re.search(r"no[\s│]+such[\s│]+directory", tui.text))
        tui.app.screen.query_one("#field-path", Input).value = str(target)
        await tui.press("ctrl+s")
        await tui.until("y overwrite")
        assert target.read_text() == "mine"
        await tui.press("y")
        await tui.until(lambda: target.read_text() != "mine")
    text = target.read_text()
    assert text.startswith("# First steps\n")
    assert "## Citations\n\n- `project/start`" in text
    assert "The user is new here" not in text, "reasoning only when asked for"
