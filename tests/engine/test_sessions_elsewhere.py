"""Sessions of an agent whose directory an environment variable names: the engine looks there, too."""

import json
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from claude_sessions import answered, session_id, typed, write_session
from support import Builder, kill_engine

from kbtui.cli.main import main
from kbtui.engine.file_watcher import FileWatcher
from kbtui.library import open_workspace
from kbtui.search.search_request_and_answer import SearchRequest


def test_the_engine_follows_sessions_in_a_directory_that_a_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home/.claude"))
    builder = Builder(tmp_path / "ws")
    builder.topics(guide={})
    session, asked = session_id(1), typed("Where is the wombat?")
    write_session(tmp_path, builder.root, session, [asked])
    try:
        with open_workspace(builder.root) as library:

            def find(word: str) -> set[str]:
                answer = library.search(SearchRequest(word, mode="lexical"))
                return {hit.ref for hit in answer.hits}

            assert find("wombat") == {f"claude-{session}:1"}
            write_session(tmp_path, builder.root, session, [asked, answered("With the numbat.")])
            until = time.monotonic() + 20
            while not find("numbat") and time.monotonic() < until:
                time.sleep(0.05)
            assert find("numbat") == {f"claude-{session}:1"}
            # The engine answered, not this process.
            assert library.connect_engine().send_request("status")["generation"]
    finally:
        kill_engine(builder)


def test_a_search_with_another_variable_finds_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(tmp_path / "ws")
    builder.topics(guide={})
    write_session(tmp_path, builder.root, session_id(1), [typed("Where is the wombat?")])

    def search(*words: str) -> tuple[int, str, str]:
        code = main(["-w", str(builder.root), "search", *words])
        return code, *capfd.readouterr()

    try:
        # The engine starts without the variable.
        assert search("wombat")[0] == 1
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home/.claude"))
        found = search("wombat")
        # The engine may not have noticed yet that the first command is gone.
        while "CLAUDE_CONFIG_DIR" in found[2]:
            found = search("wombat")
        assert (found[0], found[1].partition(":")[0]) == (0, "claude-158c7280")
        # While another client uses this engine, the search says what it cannot find.
        with (
            open_workspace(builder.root) as late,
            open_workspace(builder.root) as other,
            closing(other.connect_engine()) as other_client,
        ):
            monkeypatch.delenv("CLAUDE_CONFIG_DIR")
            assert late.search("wombat").has_notice("other_directories")
            code, _, err = search("wombat")
            assert code == 0
            assert (
                "because the engine was started with another value of CLAUDE_CONFIG_DIR, and cannot restart"
                in err
            )
            other.close()
            other_client.close()
            # The other client has left, so the workspace is opened anew for those that stay.
            while (answer := late.search("wombat")).has_notice("other_directories"):
                pass
            assert not answer.hits
            assert search("wombat")[0] == 1
    finally:
        kill_engine(builder)


def test_a_codex_session_of_another_project_starts_no_comparison(
    workspace_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    folder = tmp_path / "codex/sessions/2026/05/01"
    folder.mkdir(parents=True)

    def start_session(number: int, directory: Path) -> Path:
        uuid = f"0198c728-0000-7000-8000-{number:012}"
        head = {"type": "session_meta", "payload": {"id": uuid, "cwd": str(directory)}}
        file = folder / f"rollout-2026-05-01T10-00-00-{uuid}.jsonl"
        file.write_text(json.dumps(head) + "\n")
        return file

    other, own = start_session(1, tmp_path / "elsewhere"), start_session(2, workspace_root)
    builder = Builder(workspace_root)
    builder.topics(guide={})
    seen = threading.Event()
    watcher = FileWatcher(builder.workspace, seen.set, print)
    watcher.start_thread()
    try:
        assert seen.wait(30)  # the first look
        seen.clear()
        for _ in range(5):
            with other.open("a") as file:
                file.write("{}\n")
            assert not seen.wait(0.2)
        with own.open("a") as file:
            file.write("{}\n")
        assert seen.wait(30)
    finally:
        watcher.stop_thread()
