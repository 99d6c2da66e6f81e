"""`kbtui doctor` and `kbtui paths` say which agents' conversations are read, and why others are not."""

import json
import os
import re
from pathlib import Path

import pytest
from claude_sessions import claude_folder, session_id, typed, write_session
from support import Builder, asked

from kbtui.cli.main import main
from kbtui.conversations import conversation_repository
from kbtui.conversations.formats.gemini_cli_format import hash_project_path
from kbtui.library import open_workspace
from kbtui.library.diagnostics import run_diagnostics
from kbtui.workspace import Settings


def findings(root: Path) -> list[tuple[str, str]]:
    # As `kbtui doctor` does if the settings are wrong.
    found = run_diagnostics(open_workspace(root, Settings()))
    return [(one.state, one.message) for one in found if one.area == "agents"]


@pytest.fixture
def root(home: Path, workspace_root: Path, tmp_path: Path) -> Path:
    Builder(workspace_root).conversation(1, [[asked("Hello")]])
    write_session(home, workspace_root, session_id(1), [typed("Hello")])
    write_session(home, workspace_root, session_id(1), [typed("Go")], subagent="a2898e3")
    write_session(home, tmp_path / "other", session_id(2), [typed("Hello")])
    return workspace_root


def settings(home: Path, text: str) -> None:
    (home / "config/kbtui").mkdir(exist_ok=True)
    (home / "config/kbtui/config.toml").write_text(text)


def test_sessions_here_and_elsewhere_are_counted(home: Path, root: Path) -> None:
    projects = home / "home/.claude/projects"
    assert findings(root) == [
        ("ok", f"JP (jp), {root}/.jp/conversations: 1 conversation of this project"),
        (
            "ok",
            f"Claude Code (claude-code), {projects}: "
            "1 conversation of this project, 1 of subagents, 1 of other projects",
        ),
    ]


def test_an_agent_that_is_off_says_why(home: Path, root: Path) -> None:
    settings(home, '[conversations]\nagents = ["jp", "claude-kode"]\n')
    found = findings(root)
    assert [state for state, _ in found] == ["ok", "note", "wrong"]
    assert found[1][1].endswith(
        "not read: `agents` in the table [conversations] does not name the agent"
    )
    assert "names 'claude-kode', which kbtui cannot read; did you mean claude-code?" in found[2][1]


def test_a_variable_that_names_no_directory_is_wrong(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.setenv(name, f"{root}/gone")
        message = f"{name} names {root}/gone, which is not an existing directory"
        assert ("wrong", message) in findings(root)


def test_a_format_that_cannot_be_loaded_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site/parrot-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[kbtui.conversation_formats]\nparrot = no.such.module:Parrot\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(conversation_repository, "unusable_formats", {})
    conversation_repository.list_conversation_formats.cache_clear()
    try:
        [*_, last] = findings(root)
    finally:
        conversation_repository.list_conversation_formats.cache_clear()
    assert last[0] == "wrong"
    assert "'parrot', which an installed package provides, cannot be loaded: Module" in last[1]


def test_paths_has_a_line_for_each_agent(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paths", "-w", str(root)]) == 0
    projects = claude_folder(home, root).parent
    assert (
        f"claude-code    {projects}  (1 conversation of this project, " in capsys.readouterr().out
    )
    assert main(["paths", "-w", str(root), "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["agents"]}
    assert found["claude-code"] == {
        "name": "claude-code",
        "label": "Claude Code",
        "directories": [str(projects)],
        "sessions": 1,
        "subagents": 1,
        "elsewhere": 1,
        "unusable": 0,
        "without_turn": 0,
        "off": None,
    }


@pytest.mark.parametrize("text", ["agents = 3", "agents = [1]", "agent = []"])
def test_a_wrong_table_is_refused_with_its_line(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    settings(home, f"session = false\n[conversations]\n{text}\n")
    assert main(["conversation", "ls", "-w", str(root)]) == 2
    assert "config.toml:3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "hint"), [("claud", "did you mean claude-code?"), ("JPP", "did you mean jp?")]
)
def test_a_wrong_name_is_a_mistake_of_the_settings(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str], name: str, hint: str
) -> None:
    settings(home, f'[conversations]\n# agents = []\nagents = ["jp", "{name}"]\n')
    for words in (["conversation", "ls"], ["learn", "guide"], ["show", "jp-c17800000001"]):
        assert main([*words, "-w", str(root)]) == 2
        err = capsys.readouterr().err
        assert f"config.toml:3: `agents` in the table [conversations] names '{name}'" in err
        assert hint in err
    assert main(["doctor", "-w", str(root)]) == 1
    assert f"names '{name}', which kbtui cannot read; {hint}" in capsys.readouterr().out


def test_names_are_compared_without_case_and_none_means_none(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(home, '[conversations]\nagents = ["JP"]\n')
    assert main(["conversation", "ls", "-w", str(root)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    settings(home, "[conversations]\nagents = []\n")
    assert main(["conversation", "ls", "-w", str(root)]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "kbtui: no conversation matches\n")


def test_what_the_settings_exclude_is_said(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(home, '[conversations]\nagents = ["jp"]\n')
    said = "conversations of claude-code are not read; to read them, add the agent to `agents` in the table"
    for words in (["ls", "--agent", "claude"], ["info", f"claude-{session_id(1)}"]):
        assert main(["conversation", *words, "-w", str(root)]) == 1
        assert said in capsys.readouterr().err
    assert main(["conversation", "ls", "--agent", "jp", "-w", str(root)]) == 0


def test_the_advice_to_read_llm_keeps_the_other_agents(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conversation", "ls", "-w", str(root)]) == 0
    before = capsys.readouterr().out
    assert main(["conversation", "ls", "--agent", "llm", "-w", str(root)]) == 1
    said = capsys.readouterr().err
    assert "conversations of llm are not read" in said
    (line,) = re.findall(r"agents = \[.*?\]", said)
    settings(home, f"[conversations]\n{line}\n")
    assert main(["conversation", "ls", "-w", str(root)]) == 0
    assert capsys.readouterr().out == before
    assert main(["conversation", "ls", "--agent", "llm", "-w", str(root)]) == 1
    assert "are not read" not in capsys.readouterr().err


def test_the_doctor_says_that_naming_llm_needs_the_other_agents(home: Path, root: Path) -> None:
    database = home / "config/io.datasette.llm/logs.db"
    database.parent.mkdir(parents=True)
    database.write_text("no database")
    (said,) = [text for _, text in findings(root) if text.startswith("llm ")]
    assert said.endswith(
        "to read the conversations of all projects, "
        "name this agent and all others that you want in `agents` in the table [conversations]"
    )


def test_files_without_a_turn_are_neither_unreadable_nor_held_elsewhere(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = claude_folder(home, root)
    (folder / f"{session_id(3)}.jsonl").write_text('{"type":"file-history-snapshot"}\n')
    (folder / f"{session_id(4)}.jsonl").write_text('{"type":"user","mess')
    (folder / f"{session_id(5)}.jsonl").write_text("")
    (_, (_, told)) = findings(root)
    assert told.endswith("1 of subagents, 1 of other projects, 3 without a turn yet")
    named = [one.message for one in run_diagnostics(open_workspace(root))]
    assert sum("skipped: the session has no turn yet" in one for one in named) == 3
    assert main(["conversation", "ls", "-w", str(root)]) == 0
    assert "skipped" not in capsys.readouterr().err


def test_a_broken_file_counts_as_unreadable_and_not_as_held_elsewhere(
    home: Path, root: Path
) -> None:
    (claude_folder(home, root) / f"{session_id(3)}.jsonl").write_bytes(b"\0" * 4096)
    (_, (_, told)) = findings(root)
    assert told.endswith("1 of subagents, 1 of other projects, 1 unreadable")
    named = [one.message for one in run_diagnostics(open_workspace(root))]
    assert any(
        f"{session_id(3)}.jsonl: skipped: the file starts with NUL bytes" in one for one in named
    )


@pytest.mark.parametrize(
    "place",
    [
        ".claude/projects/{folder}/a.jsonl",
        ".codex/sessions/2026/05/01/rollout-a.jsonl",
        ".gemini/tmp/{hash}/chats/session-a.json",
    ],
)
def test_a_session_that_cannot_be_opened_is_wrong_and_an_empty_one_is_noted(
    home: Path, root: Path, tmp_path: Path, place: str
) -> None:
    folder, name = claude_folder(home, root).name, hash_project_path(str(root))
    path = home / "home" / place.format(folder=folder, hash=name)
    path.parent.mkdir(parents=True, exist_ok=True)
    empty = path.with_stem(f"{path.stem}-empty")
    empty.write_text("")
    os.utime(empty, (1e9, 1e9))
    (tmp_path / "elsewhere").write_text("{}")
    path.symlink_to(tmp_path / "elsewhere")
    found = {one.message: one.state for one in run_diagnostics(open_workspace(root))}
    link = f"it is a link to a file outside {path.parent.parent}"
    assert found.get(f"{path}: unreadable: {link}") == "wrong"
    assert found.get(f"{empty}: skipped: the file is empty") == "note"
