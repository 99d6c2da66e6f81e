"""The archive: sessions stay readable, byte for byte, after their agent has deleted them."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from claude_sessions import answered, claude_folder, session_id, typed, write_session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import run_command
from support import tree_hash

from kbtui.cli.main import main
from kbtui.conversations.conversation_data_types import Conversation
from kbtui.conversations.conversation_repository import (
    find_conversation,
    list_conversations,
    load_conversation,
)
from kbtui.conversations.session_archive import (
    compute_session_archive_size_in_bytes,
    delete_kept_sessions,
    find_kept_session,
    keep_copy_of_conversation,
    list_kept_sessions,
)
from kbtui.workspace import Workspace, open_workspace_at_root

CODEX_SAMPLES = Path(__file__).parents[1] / "data/agent_sessions/codex"
ID = f"claude-{session_id(1)}"
TEXT = [typed("why does the walrus sleep?"), answered("The walrus sleeps because it is full.")]


@pytest.fixture
def workspace(workspace_root: Path) -> Workspace:
    return open_workspace_at_root(workspace_root)


def keep(workspace: Workspace, conversation_id: str = ID) -> str:
    info = find_conversation(workspace, conversation_id, counts=False)
    return keep_copy_of_conversation(workspace, info, verified=True)


def load(workspace: Workspace, conversation_id: str = ID) -> Conversation:
    return load_conversation(find_conversation(workspace, conversation_id))


def texts(conversation: Conversation) -> list[tuple[str, str | None]]:
    return [(event.kind, event.text) for turn in conversation.turns for event in turn.events]


def original_bytes(conversation_id: str = ID) -> bytes:
    kept = find_kept_session(conversation_id)
    assert kept is not None
    return gzip.decompress(kept.path.read_bytes())


def copy_sample(sample: Path, target: Path, root: Path) -> bytes:
    """Copy a recorded session as if it had been held in `root`, and return its bytes."""
    data = sample.read_bytes()
    line = next(line for line in data.split(b"\n") if b'"cwd"' in line)
    record = json.loads(line)
    cwd = record.get("cwd") or record["payload"]["cwd"]
    data = data.replace(json.dumps(cwd).encode(), json.dumps(str(root)).encode())
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return data


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_recorded_session_reads_the_same_after_its_file_is_gone(
    workspace: Workspace, home: Path, agent: str
) -> None:
    if agent == "codex":
        sample = next(iter(sorted(CODEX_SAMPLES.glob("*.jsonl"))))
        original = home / "home/.codex/sessions/2025/09/24" / sample.name
    else:
        sample = CODEX_SAMPLES.parent / "claude/tool_heavy.jsonl"
        original = claude_folder(home, workspace.root) / f"{session_id(1)}.jsonl"
    data = copy_sample(sample, original, workspace.root)
    (info,) = list_conversations(workspace)
    before = load(workspace, info.id)
    agents_files = tree_hash(home / "home")
    assert keep(workspace, info.id) == "kept"
    assert original_bytes(info.id) == data
    assert tree_hash(home / "home") == agents_files
    assert compute_session_archive_size_in_bytes() < len(data)
    original.unlink()
    (kept,) = list_conversations(workspace)
    assert kept.kept_from == str(original)
    assert (kept.title, kept.created_at, kept.last_event_at, kept.events_count) == (
        info.title,
        info.created_at,
        info.last_event_at,
        info.events_count,
    )
    after = load(workspace, info.id)
    assert texts(after) == texts(before) != []
    assert after.problems == before.problems


def test_a_gemini_session_is_kept(workspace: Workspace, home: Path) -> None:
    sample = next(iter(sorted((CODEX_SAMPLES.parent / "gemini").glob("*.json"))))
    project = home / "home/.gemini/tmp/any"
    (project / "chats").mkdir(parents=True)
    (project / ".project_root").write_text(str(workspace.root))
    shutil.copy(sample, project / "chats")
    (info,) = list_conversations(workspace)
    before = load(workspace, info.id)
    assert keep(workspace, info.id) == "kept"
    shutil.rmtree(project)
    assert texts(load(workspace, info.id)) == texts(before) != []


def test_a_grown_session_replaces_its_copy_and_a_shorter_one_does_not(
    workspace: Workspace, home: Path
) -> None:
    path = write_session(home, workspace.root, session_id(1), TEXT)
    assert keep(workspace) == "kept"
    assert keep(workspace) == "unchanged"
    longer = write_session(home, workspace.root, session_id(1), [*TEXT, typed("And the seal?")])
    data = longer.read_bytes()
    assert keep(workspace) == "replaced"
    assert original_bytes() == data
    files = find_kept_session(ID).path.parent  # type: ignore[union-attr]
    assert len(list(files.iterdir())) == 1
    path.write_bytes(data[: data.index(b"\n") + 1])
    assert keep(workspace) == "shrunk"
    assert original_bytes() == data


def test_equal_sessions_share_a_copy_until_both_are_forgotten(
    workspace: Workspace, home: Path
) -> None:
    first = write_session(home, workspace.root, session_id(1), TEXT)
    shutil.copy(first, first.with_name(f"{session_id(2)}.jsonl"))
    other = f"claude-{session_id(2)}"
    assert [keep(workspace, one) for one in (ID, other)] == ["kept", "kept"]
    kept, _ = list_kept_sessions()
    assert len({one.path for one in kept}) == 1
    assert delete_kept_sessions([ID]) > 0
    assert original_bytes(other) == first.read_bytes()
    delete_kept_sessions([other])
    assert compute_session_archive_size_in_bytes() == 0
    assert load(workspace, other).turns


def test_damaged_files_are_named_and_the_others_stay_readable(
    workspace: Workspace,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = [
        write_session(home, workspace.root, session_id(number), [typed(f"question {number}")])
        for number in range(1, 5)
    ]
    ids = [f"claude-{session_id(number)}" for number in range(1, 5)]
    for one in ids:
        keep(workspace, one)
    originals = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    copies = [find_kept_session(one).path for one in ids]  # type: ignore[union-attr]
    changed = bytearray(copies[0].read_bytes())
    changed[len(changed) // 2] ^= 1
    copies[0].write_bytes(changed)
    copies[1].write_bytes(gzip.compress(b"something else"))
    record = copies[2].parents[1] / "records" / f"{ids[2]}.json"
    record.write_text('{"id": 3}')
    assert {info.id for info in list_conversations(workspace)} == {ids[0], ids[1], ids[3]}
    for one in ids[:2]:
        assert "the kept copy is damaged" in load(workspace, one).problems[0]
    assert [text for _, text in texts(load(workspace, ids[3]))] == ["question 4"]
    monkeypatch.chdir(workspace.root)
    assert main(["export", ids[0]]) == 3
    assert "the conversation is damaged: the kept copy is damaged" in capsys.readouterr().err
    assert main(["keep", "ls"]) == 0
    assert "the kept copy is damaged: its size is wrong" in capsys.readouterr().out
    assert main(["keep", "check", "--json"]) == 3
    damage = json.loads(capsys.readouterr().out)["damaged"]
    assert {one["path"] for one in damage} == {str(copies[0]), str(copies[1]), str(record)}
    main(["doctor", "--json"])
    findings = capsys.readouterr().out
    assert str(record) in findings
    assert '"archive_counted"' in findings
    # The agent still has a session whose copy is damaged.
    paths[0].write_bytes(originals[0])
    assert keep(workspace, ids[0]) == "kept"
    assert original_bytes(ids[0]) == originals[0]


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(end=st.binary(max_size=200))
def test_any_bytes_are_kept(workspace: Workspace, home: Path, end: bytes) -> None:
    path = write_session(home, workspace.root, session_id(1), TEXT)
    with path.open("ab") as file:
        file.write(end)
    data = path.read_bytes()
    before = texts(load(workspace))
    forget = find_kept_session(ID) is not None
    if forget:
        delete_kept_sessions([ID])
    keep(workspace)
    path.unlink()
    assert original_bytes() == data
    assert texts(load(workspace)) == before


def test_the_command_keeps_searches_and_forgets(
    home: Path, workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")

    def kbtui(*words: str) -> tuple[int, str]:
        done = run_command(*words, cwd=workspace_root)
        return done.returncode, done.stdout

    path = write_session(home, workspace_root, session_id(1), TEXT)
    part = write_session(home, workspace_root, session_id(1), TEXT, subagent="a2898e3")
    short = ID[:15]
    assert kbtui("keep", short) == (0, "2 kept\n")
    assert kbtui("keep", "--agent", "claude") == (0, "2 already kept\n")
    path.unlink()
    part.unlink()
    assert short in kbtui("search", "walrus", "sleeps")[1]
    listed = kbtui("conversation", "ls")[1].splitlines()
    assert {line.split("  ")[-1] for line in listed} == {"kept", f"kept in {short}"}
    assert "because it is full" in kbtui("conversation", "read", short)[1]
    assert "only the copy is left" in kbtui("keep", "ls")[1]
    assert kbtui("conversation", "resume", short)[0] == 1
    assert kbtui("keep", "rm", short)[0] == 2
    assert kbtui("keep", "rm", "--yes", short)[1].startswith("deleted 2 kept sessions")
    assert kbtui("keep", "ls")[0] == 1
    assert short not in kbtui("search", "walrus", "sleeps")[1]


def test_what_cannot_be_kept_is_an_error(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["keep"], ["keep", "rm"], ["keep", "jp-c17457886043"], ["keep", "rm", "codex-1"]):
        assert main(["-w", str(workspace.root), *words]) in (1, 2)
