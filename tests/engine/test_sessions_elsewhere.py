"""Sessions of an agent whose directory an environment variable names: the engine looks there, too."""

import time
from pathlib import Path

import pytest
from claude_sessions import answered, session_id, typed, write_session
from support import Builder, kill_engine

from kbtui.library import open_workspace
from kbtui.search import SearchRequest


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
