"""With a real engine and changing files: lists, reader and search are updated without a key."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Builder, asked, kill_engine, said
from tui_support import handbook, running

from kbtui.library import Library
from kbtui.workspace import load_settings

TALK = "jp-c17800000001"


@pytest.fixture
def live(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    # Without a model, an engine starts faster.
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = handbook(Builder(workspace_root))
    yield builder
    kill_engine(builder)


def library(builder: Builder) -> Library:
    return Library(builder.workspace, load_settings())


async def test_what_is_saved_added_renamed_and_deleted_shows_without_a_key(live: Builder) -> None:
    async with running(live.root, library=library(live)) as tui:
        await tui.until("index ready")
        await tui.open("project/people/ada")
        await tui.press("1", "j")
        selected = tui.main.library_pane.list.selected_row
        assert selected is not None
        live.subject("project/people/ada.md", "# Ada\n\nWrote the second program too.\n")
        await tui.until("Wrote the second program too.")
        live.subject("project/new.md", "# New\n\nA fresh numbat.\n")
        await tui.until(lambda: "new" in tui.rows("library-list"))
        (live.root / "docs/project/new.md").rename(live.root / "docs/project/newer.md")
        await tui.until(lambda: "newer" in tui.rows("library-list"))
        assert "new" not in tui.rows("library-list")
        (live.root / "docs/project/newer.md").unlink()
        await tui.until(lambda: "newer" not in tui.rows("library-list"))
        live.conversation(20, [[asked("Hello?"), said("Yes.")]], title="Brand new talk")
        await tui.until(lambda: any("Brand new talk" in row for row in tui.rows("library-list")))
        # The selection did not move.
        assert tui.main.library_pane.list.selected_row is not None
        assert tui.main.library_pane.list.selected_row.key == selected.key


async def test_a_growing_conversation_is_followed_at_its_end_and_nowhere_else(
    live: Builder,
) -> None:
    turns = [[asked(f"Question {n}"), said(f"Answer {n}")] for n in range(12)]
    live.conversation(21, turns, title="Live talk")
    async with running(live.root, size=(100, 24), library=library(live)) as tui:
        await tui.until("index ready")
        await tui.open("jp-c17800000021")
        await tui.press("G")
        await tui.until("Answer 11")
        turns.append([asked("Question 12"), said("Answer 12")])
        live.conversation(21, turns, title="Live talk")
        await tui.until("Answer 12")
        assert (
            tui.main.reader_pane.document_view.viewport.cursor
            == tui.main.reader_pane.document_view.viewport.document_end_position
        )
        await tui.press("g", "n", "n", "n")
        before = tui.main.reader_pane.document_view.viewport.cursor
        turns.append([asked("Question 13"), said("Answer 13")])
        live.conversation(21, turns, title="Live talk")
        await tui.until("turn 3 of 14")
        assert tui.main.reader_pane.document_view.viewport.cursor == before
        assert "Answer 13" not in tui.text


async def test_results_follow_the_files_while_one_looks_at_them(live: Builder) -> None:
    async with running(live.root, library=library(live)) as tui:
        await tui.until("index ready")
        await tui.press("slash")
        await tui.type("quokka")
        await tui.until("No results.")
        live.subject("project/animal.md", "# Animal\n\nThe quokka smiles.\n")
        await tui.until("project/animal")
        await tui.press("enter")
        await tui.until("The quokka smiles.")


async def test_the_status_line_says_what_the_index_can_do(live: Builder) -> None:
    async with running(live.root, library=library(live)) as tui:
        await tui.until("index ready · keywords only")
