"""`kbtui conversation` with conversations of other agents than JP."""

import json
from pathlib import Path

import pytest
from claude_sessions import answered, call, result, session_id, typed, write_session
from support import Builder, asked, said

from kbtui.cli.main import main

CLAUDE = f"claude-{session_id(1)}"
JP = "jp-c17800000001"


@pytest.fixture
def root(home: Path, workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Builder(workspace_root).conversation(1, [[asked("Hello"), said("Hi")]], title="Greeting")
    records = [
        typed("Where is the \x1b[2Jneedle?"),
        answered(call(1, "Read", file_path="/hay"), usage=(10, 2, 1000, 500)),
        result(1, "straw"),
        answered("In the hay.", message="msg_2", usage=(20, 3, 1500, 0)),
        typed("And the thread?"),
        answered("Gone.", message="msg_3", model="claude-haiku-4-5", usage=(7, 5, 0, 0)),
    ]
    write_session(home, workspace_root, session_id(1), records)
    subagent = [typed("Search"), answered("Done.", message="msg_4", usage=(1, 1, 0, 0))]
    write_session(home, workspace_root, session_id(1), subagent, subagent="a2898e3")
    monkeypatch.chdir(workspace_root)
    return workspace_root


def kbtui(*words: str) -> int:
    return main(["conversation", *words])


def test_ls_shows_short_ids_and_json_whole_ones(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbtui("ls", "--agent", "claude-code") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["claude-158c7280", "claude-158c7280~a2898e3"]
    assert lines[1].endswith("  in claude-158c7280")
    assert kbtui("ls", "--json") == 0
    found = {one["id"]: one for one in json.loads(capsys.readouterr().out)["conversations"]}
    assert {one: found[one]["agent"] for one in found} == {
        CLAUDE: "claude-code",
        f"{CLAUDE}~a2898e3": "claude-code",
        JP: "jp",
    }
    assert found[CLAUDE]["events_count"] == 6


def test_ls_selects_agents(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kbtui("ls", "--agent", "jp") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [JP]
    assert kbtui("ls", "--agent", "jp", "--agent", "claude-code") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert kbtui("ls", "--agent", "claude") == 2
    assert "--agent: there is no agent 'claude'" in capsys.readouterr().err


@pytest.mark.parametrize("id_", ["claude-158c7280", CLAUDE])
def test_every_command_takes_whole_and_shortened_ids(
    root: Path, capsys: pytest.CaptureFixture[str], id_: str
) -> None:
    for words in (
        ["conversation", "read", f"{id_}:1"],
        ["conversation", "export", f"{id_}:1"],
        ["conversation", "grep", "-i", id_, "needle"],
        ["show", f"{id_}:1"],
        ["cites", f"{id_}:1.1", "--json"],
    ):
        code = main(words)
        out = capsys.readouterr().out
        assert (code, "needle" in out or CLAUDE in out) == (1 if words[0] == "cites" else 0, True)
    assert main(["show", f"{id_}:1.1"]) == 0
    assert "straw" in capsys.readouterr().out
