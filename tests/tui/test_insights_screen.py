"""The insights screen: its lists, creating a missing entry, deleting the log."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from claude_sessions import answered, call, result, session_id, typed, write_session
from feature_screen_support import NOW, editor, paged
from support import Builder
from tui_support import Tui, matches_snapshot

from kbtui.tui.framework.dialogs import FormDialog
from kbtui.tui.insights_screen import GAP_PREFIX, InsightsScreen
from kbtui.userdata.user_data_store import UserData


@pytest.fixture
def asked_book(book: Builder) -> Builder:
    """The small workspace with some logged searches."""
    for path in sorted(book.root.rglob("*")):
        os.utime(path, (1_760_000_000, 1_760_000_000))
    log = UserData(book.workspace).query_log
    for back in range(3):
        log.log_search("clone build", "hybrid", 4, "dashboard", at=NOW - back * 86_400)
    log.log_search("how do I  deploy?", "hybrid", 0, "mcp", at=NOW - 3600)
    log.log_search("old question", "hybrid", 0, "cli", at=NOW - 60 * 86_400)
    return book


async def read(tui: Tui, screen: InsightsScreen) -> None:
    await tui.until(lambda: screen.insights is not None)
    await tui.pilot.pause()


async def test_it_looks_as_it_should(asked_book: Builder) -> None:
    async with paged(asked_book, "I", InsightsScreen, (110, 60)) as (tui, screen, _):
        await read(tui, screen)
        assert "4 searches, 1 citation in 30 days" in tui.text
        matches_snapshot("insights_110x60", tui.text)


async def test_tokens_have_sections_once_an_agent_used_some(
    home: Path, asked_book: Builder
) -> None:
    records = [
        typed("Where is the build?"),
        answered(call(1, "Read", file_path="docs/project/goals.md"), usage=(1, 2, 1_000, 0)),
        result(1, "Goals"),
    ]
    start = datetime.fromtimestamp(NOW - 3600, UTC)
    write_session(home, asked_book.root, session_id(1), records, start=start)
    async with paged(asked_book, "I", InsightsScreen, (110, 90)) as (tui, screen, _):
        await read(tui, screen)
        assert screen.insights is not None
        for heading in ("by day", "by agent", "by model", "by project"):
            assert f"Tokens {heading}" in tui.text
        assert "1,003  claude-opus-4-6" in tui.text
        assert "1 turn, 2 output" in tui.text


async def test_a_gap_becomes_an_entry_with_its_words_as_title(
    asked_book: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with editor(monkeypatch, tmp_path, 'echo "Push the button." >> "$1"'):
        async with paged(asked_book, "I", InsightsScreen) as (tui, screen, _):
            await read(tui, screen)
            assert "create an entry" in tui.text
            viewport = screen.reader.viewport
            blocks = viewport.document.blocks
            gaps = [n for n, block in enumerate(blocks) if block.key.startswith(GAP_PREFIX)]
            assert len(gaps) == 1
            viewport.go_to_block_line(gaps[0])
            await tui.press("enter")
            await tui.until(lambda: isinstance(tui.app.screen, FormDialog))
            await tui.press("ctrl+s")
            await tui.until("Created project/how-do-i-deploy")
    [path] = asked_book.root.rglob("how-do-i-deploy.md")
    assert "title: how do I deploy?" in path.read_text()


async def test_other_days_show_other_searches(asked_book: Builder) -> None:
    async with paged(asked_book, "I", InsightsScreen) as (tui, screen, _):
        await read(tui, screen)
        assert "old question" not in tui.text
        await tui.press("m")
        await tui.until("old question")
        assert "in 90 days" in tui.text
        await tui.press("m")
        await tui.until("in 7 days")


async def test_enter_opens_what_is_cited(asked_book: Builder) -> None:
    async with paged(asked_book, "I", InsightsScreen) as (tui, screen, _):
        await read(tui, screen)
        viewport = screen.reader.viewport
        viewport.go_to_block_line(
            next(n for n, b in enumerate(viewport.document.blocks) if b.key.startswith("most:"))
        )
        await tui.press("enter")
        await tui.until(lambda: tui.app.screen is tui.main)
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == "project/start")


async def test_erasing_asks_and_leaves_no_word(asked_book: Builder) -> None:
    userdata = UserData(asked_book.workspace)
    async with paged(asked_book, "I", InsightsScreen) as (tui, screen, _):
        await read(tui, screen)
        await tui.press("d")
        await tui.until("Delete all logged searches")
        await tui.press("enter", "escape")
        assert userdata.query_log.compute_search_statistics(days=365).total == 5
        await tui.press("d")
        await tui.until("Delete all logged searches")
        await tui.press("y")
        await tui.until("Deleted 5 searches")
        await tui.until("0 searches, 1 citation")
    assert userdata.query_log.compute_search_statistics(days=365).total == 0
    kept = b"".join(path.read_bytes() for path in userdata.directory.glob("queries*"))
    assert b"deploy" not in kept


async def test_a_search_answered_by_meaning_only_says_that_nothing_has_its_words(
    asked_book: Builder,
) -> None:
    log = UserData(asked_book.workspace).query_log
    log.log_search("xyzzy plugh", "hybrid", 66, "dashboard", at=NOW, is_meaning_only=True)
    async with paged(asked_book, "I", InsightsScreen) as (tui, screen, _):
        await read(tui, screen)
        [line] = [line for line in tui.text.splitlines() if "xyzzy plugh" in line]
        assert "0 with these words, 66 by meaning" in line
        assert "66 found" not in tui.text


async def test_a_damaged_log_is_said(asked_book: Builder) -> None:
    path = UserData(asked_book.workspace).query_log.path
    for beside in path.parent.glob("queries*"):
        beside.unlink()
    path.write_bytes(b"this is no database, and never was one" * 99)
    async with paged(asked_book, "I", InsightsScreen) as (tui, _, _library):
        # The line may be wrapped anywhere.
        await tui.until(lambda: "queries.sqlite is damaged" in " ".join(tui.text.split()))
