"""A turn that the person left behind is marked as rewound wherever it is shown."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_sessions import answered, call, result, session_id, typed, write_session
from support import Builder, kill_engine

from kbtui.assistant.assistant_tools import answer_tool_call
from kbtui.cli.main import main
from kbtui.library import open_workspace

ID = f"claude-{session_id(1)}"
PADDING = "padding " * 20_000
"""Makes a session long enough to be indexed in parts."""


@pytest.fixture
def built(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(tmp_path / "ws")
    builder.topics(guide={})
    yield builder
    kill_engine(builder)


def write_turns(home: Path, root: Path, turns: list[tuple[str, str, int | None]]) -> None:
    """Write turns: request, answer, and the number of the record to which the request replies."""
    records: list[dict[str, Any]] = []
    for request, answer, parent in turns:
        number = len(records)
        last = f"{session_id(1)[:8]}-None-"
        at = number - 1 if parent is None else parent
        records.append({**typed(request), "parentUuid": f"{last}{at}" if number else None})
        records.append({**answered(answer, message=f"m{number}"), "parentUuid": f"{last}{number}"})
    write_session(home, root, session_id(1), records)


@pytest.fixture
def rewound(built: Builder, home: Path) -> Builder:
    turns = [("Begin", "Begun.", None), ("Wrong lane", "A heron.", None), ("Right", "Done.", 1)]
    write_turns(home, built.root, turns)
    return built


def run(built: Builder, capfd: pytest.CaptureFixture[str], *words: str) -> str:
    capfd.readouterr()
    assert main(["-w", str(built.root), *words]) == 0
    return capfd.readouterr().out


def test_commands_mark_a_rewound_turn(rewound: Builder, capfd: pytest.CaptureFixture[str]) -> None:
    read = run(rewound, capfd, "conversation", "read", ID)
    assert f"── {ID}:2, rewound ──" in read
    assert read.count("rewound") == 1
    exported = run(rewound, capfd, "conversation", "export", ID)
    assert "\n## Turn 2 (rewound)" in exported
    assert exported.count("rewound") == 1
    assert "## Turn 2 (rewound)" in run(rewound, capfd, "show", f"{ID}:2")
    facts = json.loads(run(rewound, capfd, "conversation", "info", ID, "--json"))
    assert (facts["turns"], facts["rewound_turns"]) == (3, 1)
    turns = json.loads(run(rewound, capfd, "conversation", "read", ID, "--format", "json"))["turns"]
    assert [turn.get("rewound") for turn in turns] == [None, True, None]
    hits = json.loads(run(rewound, capfd, "conversation", "grep", "e", "--format", "json"))["hits"]
    assert {hit["turn"] for hit in hits if hit.get("rewound")} == {2}


def test_a_call_and_a_citation_of_a_rewound_turn_are_marked(
    built: Builder, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (built.root / "Makefile").write_text("all:\n")
    (built.root / "README").write_text("text\n")
    last = f"{session_id(1)[:8]}-None-"
    records = [
        typed("Begin"),
        answered("Begun.", message="m1"),
        typed("Read"),
        answered(call(1, "Read", file_path=str(built.root / "Makefile")), message="m3"),
        result(1, "all:"),
        answered(call(2, "Read", file_path=str(built.root / "README")), message="m5"),
        result(2, "text"),
        answered(call(3, "Read", file_path=str(built.root / "Makefile")), message="m7"),
        result(3, "all:"),
        {**typed("Instead"), "parentUuid": f"{last}1"},
    ]
    for number, record in enumerate(records[1:], 1):
        record.setdefault("parentUuid", f"{last}{number - 1}")
    write_session(home, built.root, session_id(1), records)
    assert "### tool call request (rewound)" in run(built, capfd, "show", f"{ID}:2.1")
    assert len(run(built, capfd, "cites", f"{ID}:2").splitlines()) == 2
    for number, name in enumerate(("Makefile", "README", "Makefile"), 1):
        (line,) = run(built, capfd, "cites", f"{ID}:2.{number}").splitlines()
        assert line.startswith(f"[1] {name}  (file, ")
        assert line.endswith(", rewound)")
    assert run(built, capfd, "cites", "README").endswith(", rewound)\n")
    facts = json.loads(run(built, capfd, "cites", "README", "--json"))
    assert [one["rewound"] for one in facts["used_by"]] == [True]


def test_tools_and_hits_mark_a_rewound_turn(
    rewound: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_workspace(rewound.root) as library:
        for arguments in ({"id": ID}, {"id": ID, "turn": 2}):
            text = answer_tool_call("conversation_read", arguments, library).text
            assert text.count("<rewound>true</rewound>") == 1
        library.request_index_update_and_wait()
        assert (
            "(rewound turn)"
            in answer_tool_call("knowledge_search", {"query": "heron"}, library).text
        )
    assert " · rewound" in run(rewound, capfd, "search", "heron").splitlines()[0]
    for word, expected in (("heron", True), ("Done", False)):
        hit, *_ = json.loads(run(rewound, capfd, "search", word, "--json"))["hits"]
        assert hit["rewound"] is expected


def test_a_turn_that_was_indexed_before_is_marked_when_the_session_grows(
    built: Builder, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = [("Begin", PADDING, None), ("Wrong lane", "A heron.", None), ("More", "Lane.", None)]
    for turns, marked in (
        (first, set[int]()),
        ([*first, ("Right", "Good.", 1)], {2, 3}),
        ([*first, ("Right", "Good.", 1), ("Further", "A last heron.", None)], {2, 3}),
    ):
        write_turns(home, built.root, turns)
        run(built, capfd, "index")
        hits = json.loads(run(built, capfd, "search", "lane", "--json"))["hits"]
        assert {hit["turn"] for hit in hits if hit["rewound"]} == marked
