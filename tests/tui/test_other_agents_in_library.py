"""The library with conversations of several agents: agents, worktrees, subagents, `agent:`."""

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from claude_sessions import START, answered, call, result, session_id, typed, write_session
from support import FIRST_ID, Builder, asked
from tui_support import PRESENT, Tui, running

from kbtui.conversations.conversation_repository import list_conversations
from kbtui.tui.library_pane import LibraryPaneChoices, make_library_rows
from kbtui.tui.topics_and_conversations_snapshot import TopicsAndConversations

ONE, TWO = f"claude-{session_id(1)}", f"claude-{session_id(2)}"
EXPLORER, PLANNER = f"{ONE}~a1b2c3d", f"{ONE}~b1b2c3d"


def write_sessions(home: Path, root: Path) -> None:
    """Write two sessions; the first one has two subagents."""
    explored = [
        typed("Tidy up"),
        answered(call(1, "Task", description="Explore", prompt="Look around")),
        {**result(1, "All tidy."), "toolUseResult": {"agentId": "a1b2c3d"}},
    ]
    write_session(home, root, session_id(1), explored)
    write_session(home, root, session_id(1), [typed("Look around")], subagent="a1b2c3d")
    write_session(home, root, session_id(1), [typed("Make a plan")], subagent="b1b2c3d")
    later = START + timedelta(hours=1)
    write_session(home, root, session_id(2), [typed("Start the server")], start=later)


def list_keys(tui: Tui) -> list[str]:
    """The ids of the conversations in the library, from top to bottom."""
    keys = [row.key for row in tui.main.library_pane.list.rows]
    return [key for key in keys if key.startswith(("jp-c", "claude-"))]


def find_row(tui: Tui, title: str) -> str:
    """Return the row of the library with a title, as it is shown."""
    shown = [line.split("│")[1].rstrip() for line in tui.text.splitlines() if line.startswith("│")]
    return next(row for row in shown if title in row)


async def test_rows_name_the_agent_if_there_are_several(book: Builder, home: Path) -> None:
    write_sessions(home, book.root)
    async with running(book.root, size=(160, 50)) as tui:
        await tui.until("Start the server")
        assert find_row(tui, "First steps").endswith(" jp")
        assert find_row(tui, "Start the server").endswith(" claude")
        document = tui.main.reader_pane.document_view.document
        heading = document.blocks[document.find_block_index_by_key("talks") or 0]
        # Five of JP and two sessions: those of subagents do not count.
        assert "7 conversations" in str(heading.right)
        # In a narrow pane, the titles need the space.
        await tui.pilot.resize_terminal(80, 24)
        await tui.until(lambda: tui.main.library_pane.outer_size.width == 30)
        assert "claude" not in find_row(tui, "Start the server")


async def test_rows_of_one_agent_do_not_name_it(workspace_root: Path, home: Path) -> None:
    write_sessions(home, workspace_root)
    async with running(workspace_root) as tui:
        assert not any("claude" in row for row in tui.rows("library-list"))


async def test_subagents_fold_under_their_session(book: Builder, home: Path) -> None:
    write_sessions(home, book.root)
    async with running(book.root) as tui:
        listed = tui.main.library_pane.list
        assert ONE in list_keys(tui)
        assert EXPLORER not in list_keys(tui)
        listed.focus()
        listed.select_row(ONE)
        await tui.press("right")
        place = list_keys(tui).index(ONE)
        assert set(list_keys(tui)[place + 1 : place + 3]) == {EXPLORER, PLANNER}
        listed.select_row(EXPLORER)
        await tui.press("left")
        assert listed.selected_row is not None
        assert listed.selected_row.key == ONE
        await tui.press("left")
        assert EXPLORER not in list_keys(tui)


async def test_opening_a_subagent_unfolds_its_session(book: Builder, home: Path) -> None:
    write_sessions(home, book.root)
    async with running(book.root) as tui:
        await tui.open(EXPLORER)
        selected = tui.main.library_pane.list.selected_row
        assert selected is not None
        assert selected.key == EXPLORER


async def test_a_subagent_whose_session_is_gone_is_listed_by_itself(
    workspace_root: Path, home: Path
) -> None:
    write_session(home, workspace_root, session_id(1), [typed("Look around")], subagent="a1b2c3d")
    async with running(workspace_root) as tui:
        assert list_keys(tui) == [EXPLORER]


async def test_the_filter_finds_subagents_and_shows_their_session(
    book: Builder, home: Path
) -> None:
    write_sessions(home, book.root)
    async with running(book.root) as tui:
        await tui.press("f")
        await tui.type("look around")
        await tui.until(lambda: list_keys(tui) == [ONE, EXPLORER])


async def test_the_filter_completes_the_agents_that_occur(book: Builder, home: Path) -> None:
    write_sessions(home, book.root)
    async with running(book.root) as tui:
        await tui.press("f")
        await tui.type("agent:")
        hints = tui.text.splitlines()[-1]
        assert "jp 5 conversations" in hints
        assert "claude-code 2 conversations" in hints
        await tui.type("cl")
        await tui.press("tab")
        assert tui.main.library_pane.filter.input.value == "agent:claude-code"
        await tui.until(lambda: list_keys(tui) == [TWO, ONE, EXPLORER, PLANNER])


async def test_every_sort_order_keeps_subagents_under_their_session(
    book: Builder, home: Path
) -> None:
    write_sessions(home, book.root)
    async with running(book.root) as tui:
        tui.main.library_pane.state.unfolded.add(ONE)
        tui.main.library_pane.list.focus()
        for key in "cunta":
            await tui.press("m", key)
            keys = list_keys(tui)
            place = keys.index(ONE)
            assert set(keys[place + 1 : place + 3]) == {EXPLORER, PLANNER}


def test_a_row_names_another_worktree(book: Builder, home: Path) -> None:
    write_sessions(home, book.root)
    infos = list_conversations(book.workspace, counts=False)
    here, there = (next(info for info in infos if info.id == id) for id in (ONE, TWO))  # noqa: A001
    contents = TopicsAndConversations([], [here, replace(there, worktree="try-again")])
    rows = {row.key: row for row in make_library_rows(contents, LibraryPaneChoices(), PRESENT)}
    assert "⎇ try-again " in "".join(text for text, _ in rows[TWO].left)
    assert "⎇" not in "".join(text for text, _ in rows[ONE].left)


async def test_a_session_kept_with_a_key_stays_when_its_agent_deletes_it(
    workspace_root: Path, home: Path
) -> None:
    write_sessions(home, workspace_root)
    async with running(workspace_root) as tui:
        listed = tui.main.library_pane.list
        listed.focus()
        listed.select_row(ONE)
        await tui.press("K")
        await tui.until("Kept 3 sessions")
        for folder in (home / "home/.claude/projects").iterdir():
            shutil.rmtree(folder)
        await tui.press("ctrl+r")
        await tui.until("▣")
        assert [key for key in list_keys(tui) if key in (ONE, TWO)] == [ONE]


async def test_nested_conversations_of_jp_are_a_tree_even_if_parents_form_a_circle(
    workspace_root: Path,
) -> None:
    book = Builder(workspace_root)
    ids = [f"jp-c{FIRST_ID + number}" for number in range(5)]
    root, child, grandchild, first, second = ids
    parents = (None, root, child, second, first)
    folders = [
        book.conversation(
            number, [[asked("Look")]], title=f"Title {number}", metadata={"parent_id": parent}
        )
        for number, parent in enumerate(parents)
    ]
    # Later versions of JP also nest the directories.
    for above, below in ((1, 2), (0, 1)):
        place = folders[above] / "conversations"
        place.mkdir()
        folders[below].rename(place / folders[below].name)
    async with running(workspace_root) as tui:
        assert set(list_keys(tui)) == {root, first, second}
        tui.main.library_pane.list.select_row(root)
        await tui.press("right", "j", "right")
        keys = list_keys(tui)
        assert keys[keys.index(root) :][:3] == [root, child, grandchild]
        await tui.press("f")
        await tui.type("Title 2")
        await tui.until(lambda: list_keys(tui) == [root, child, grandchild])
