"""`kbtui doctor` reads conversations for a second; of the others it says what the index knows."""

from pathlib import Path

import pytest
from claude_sessions import result, session_id, typed, write_session

from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.library import diagnostics, open_workspace
from kbtui.workspace import Settings


def findings(root: Path) -> list[tuple[str, str]]:
    found = diagnostics.run_diagnostics(open_workspace(root, Settings()))
    return [(one.state, one.message) for one in found if one.area == "conversations"]


@pytest.fixture
def root(home: Path, workspace_root: Path) -> Path:
    write_session(home, workspace_root, session_id(1), [typed("Hello")])
    write_session(home, workspace_root, session_id(2), [typed("Hello"), result(7, "lost")])
    return workspace_root


DAMAGED = (
    "wrong",
    f"claude-{session_id(2)}: line 2 (tool_call_response): no tool call has the same id",
)


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_damage_is_named_whether_it_is_read_or_indexed(
    root: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    library = open_workspace(root, Settings())
    index = WorkspaceIndexWriter(library.workspace, Settings())
    index.refresh_index()
    index.close()
    monkeypatch.setattr(diagnostics, "READING_SECONDS", seconds)
    unread = ("ok", "already checked during indexing: 2 conversations")
    assert findings(root) == [
        ("ok", "2 conversations, 0 archived"),
        DAMAGED,
        *([unread] if not seconds else []),
    ]


def test_conversations_that_nobody_has_read_are_counted(
    home: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings(root)[1:] == [DAMAGED]
    library = open_workspace(root, Settings())
    index = WorkspaceIndexWriter(library.workspace, Settings())
    index.refresh_index()
    index.close()
    write_session(home, root, session_id(2), [typed("Hello"), typed("again")])
    monkeypatch.setattr(diagnostics, "READING_SECONDS", 0.0)
    assert [state for state, _ in findings(root)] == ["ok", "ok", "note"]
    assert findings(root)[2][1].startswith("1 conversation not indexed yet and not checked;")
