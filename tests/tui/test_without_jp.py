"""The TUI in a project without JP: the home page, the first topic, and a `.jp` that appears."""

from pathlib import Path

import pytest
from claude_sessions import answered, session_id, typed, write_session
from support import Builder, asked, said
from tui_support import running

from kbtui.workspace.user_settings import get_settings_path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "lighthouse"
    (root / ".git").mkdir(parents=True)
    (root / "notes").mkdir()
    (root / "notes/one.md").write_text("# One\n\nThe first text.\n")
    return root


async def test_the_home_page_says_what_is_shown_instead(repository: Path, home: Path) -> None:
    async with running(repository, size=(100, 50)) as tui:
        await tui.until("No conversations yet")
        text = " ".join(tui.text.split())
        assert "lighthouse" in text
        assert "No JP workspace here." in text
        assert "Claude Code" in text
        assert "first session with one of these agents" in text
        assert "jp query" not in text
        assert "`.jp" not in text
        assert ".kbtui/kb.toml" in text
    assert not (repository / ".kbtui").exists()
    records = [typed("Where is the lamp?"), answered("At the top.")]
    write_session(home, repository, session_id(1), records)
    async with running(repository, size=(100, 50)) as tui:
        await tui.until("Recent conversations")
        assert "Where is the lamp?" in tui.text


async def test_without_agents_the_home_page_names_the_setting(repository: Path) -> None:
    get_settings_path().parent.mkdir(parents=True, exist_ok=True)
    get_settings_path().write_text('[conversations]\nagents = ["jp"]\n')
    async with running(repository, size=(100, 50)) as tui:
        await tui.until("No conversations yet")
        assert "kbtui shows the topics that you declare." in tui.text
        assert "`agents` in the" in tui.text
        assert "table [conversations] of" in tui.text


async def test_a_first_topic_is_written_into_a_directory_made_for_it(repository: Path) -> None:
    async with running(repository, size=(100, 50)) as tui:
        await tui.until("No topics yet")
        await tui.press("i")
        await tui.until("Write it?")
        assert "+++ .kbtui/kb.toml" in tui.text
        await tui.press("n")
        await tui.until(lambda: tui.app.screen is tui.main)
        assert not (repository / ".kbtui").exists()
        await tui.press("i")
        await tui.until("Write it?")
        await tui.press("y")
        await tui.until((repository / ".kbtui/kb.toml").exists)
        await tui.until("rote .kbtui/kb.toml")
        await tui.until("Project Knowledge")
        assert "No JP workspace here." in tui.text


async def test_a_jp_directory_that_appears_and_vanishes_changes_the_page(repository: Path) -> None:
    async with running(repository, size=(100, 50)) as tui:
        await tui.until("No JP workspace here.")
        builder = Builder(repository)
        await tui.until(lambda: "No JP workspace here." not in tui.text)
        assert "jp query" in tui.text
        builder.conversation(1, [[asked("Who?"), said("I.")]], title="Who it was")
        (repository / ".jp").rename(repository / "away")
        await tui.until("No JP workspace here.")
        assert "moved or deleted" not in tui.text


async def test_the_home_directory_proposes_no_directory_of_another_project(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = home / "home"
    (place / "pictures").mkdir()
    (place / "pictures/list.md").write_text("A list.\n")
    async with running(place, size=(100, 50)) as tui:
        await tui.until("No topics yet")
        await tui.press("i")
        await tui.until("Write it?")
        assert "pictures" not in tui.text
        assert "An empty docs/ will be created" in tui.text
        await tui.press("n")
    assert not (place / ".kbtui").exists()
