"""`kbtui search` prints the same with and without a running engine."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies
from running import run_command
from support import Builder, asked, called, end_engine, kill_engine, said

from kbtui.cli.cli_output import format_indented_json
from kbtui.engine.engine_client import EngineClient
from kbtui.engine.engine_launcher import connect_or_start_engine
from kbtui.engine.engine_protocol import (
    FRAME_HEADER_BYTES,
    InvalidProtocolFrameError,
    decode_frame_body,
    encode_message_as_frame,
)
from kbtui.terminal_text import sanitize
from kbtui.userdata.user_data_store import UserData


@pytest.fixture
def served(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/start.md", '# Start\n\nThe aardvark is awake; über "alles" 東京.\n')
    builder.conversation(
        1, [[asked("Where is the badger?"), said("In its sett.\x1b[31m")]], title="Badgers"
    )
    settled(connect_or_start_engine(builder.workspace))
    yield builder
    kill_engine(builder)


def settled(engine: EngineClient) -> EngineClient:
    """Wait until the engine is idle; before that it declines searches."""
    engine.send_request("refresh", wait=60.0)
    end = time.monotonic() + 60
    while engine.send_request("status")["busy"]:
        assert time.monotonic() < end, "the engine is never done"
        time.sleep(0.02)
    return engine


def run(builder: Builder, *words: str, **environment: str) -> tuple[int, str, str]:
    """Run `kbtui search`."""
    command = ["search", "-w", str(builder.root), *words]
    done = run_command(*command, environment={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


QUESTIONS = [
    ("aardvark",),
    ("in:conversations", "sett"),
    ("sett", "--in", "conversations", "where"),
    ('"is awake"', "--limit=1", "--json"),
    ("zzzz",),
    ("aardvark", "--since", "2026-01-01", "--until", "tomorrow"),
    ("aardvark", "--since", "2026-01-01", "--topic", "guide"),
    ("aardvark", "--explain", "--json"),
    ("aardvark", "--why", "guide/start"),
    ("aardvark", "--why", "jp-c17800000001:1", "--json"),
    ("--like", "guide/start"),
    ("--role", "assistant", "sett", "東京"),
    ("topic:nowhere",),
    ("aardvark", "titel:x"),
    ("after:yesterday", "aardvark"),
    ("--", "-aardvark", "badger"),
]


def test_it_prints_the_same_however_the_answer_is_reached(served: Builder) -> None:
    """The engine answers, the library through the engine, and the library alone if the engine does not
    know the time zone."""
    for words in QUESTIONS:
        asked_for = ("--mode", "lexical", *words)
        at_once = run(served, *asked_for)
        assert run(served, *asked_for, TZ=":Etc/UTC") == at_once, words
        assert run(served, *asked_for, TZ="UTC0") == at_once, words


def test_dates_of_a_query_hold_in_the_time_zone_of_who_asks(served: Builder) -> None:
    """Kiritimati, 14 hours ahead of UTC, and Niue, 11 hours behind, always have different dates."""
    for zone in ("Pacific/Kiritimati", "Pacific/Niue"):
        midnight = datetime(2026, 3, 1, tzinfo=ZoneInfo(zone)).timestamp()
        for name, moment in (("before", midnight - 60), ("after", midnight + 60)):
            served.subject(f"guide/{name}.md", f"# {name}\n\nA pangolin of {zone}.\n")
            path = served.root / f"docs/guide/{name}.md"
            os.utime(path, (moment, moment))
        settled(connect_or_start_engine(served.workspace))
        words = ("--mode", "lexical", "--json", "pangolin", "after:2026-03-01", "before:2026-03-02")
        code, shown, errors = run(served, *words, TZ=zone)
        assert code == 0, errors
        assert [hit["slug"] for hit in json.loads(shown)["hits"]] == ["after"]


def test_a_search_without_its_engine_starts_one(served: Builder) -> None:
    end_engine(served)
    code, shown, _ = run(served, "--mode", "lexical", "aardvark")
    assert (code, shown.startswith("guide/start")) == (0, True)


def test_a_search_is_logged_once(served: Builder) -> None:
    assert run(served, "--mode", "lexical", "aardvark")[0] == 0
    assert UserData(served.workspace).query_log.compute_search_statistics().total == 1


def test_what_was_just_saved_is_found(served: Builder) -> None:
    served.subject("guide/new.md", "# New\n\nThe capybara swims.\n")
    settled(connect_or_start_engine(served.workspace))
    code, shown, _ = run(served, "--mode", "lexical", "--json", "capybara")
    assert code == 0
    assert [hit["ref"] for hit in json.loads(shown)["hits"]] == ["guide/new:1-3"]
    (served.root / "docs/guide/new.md").unlink()
    assert run(served, "--mode", "lexical", "capybara")[0] == 1


UNNEEDED_WITHOUT_ENGINE = {
    "dataclasses",
    "hashlib",
    "kbtui.citations.tool_call_citations",
    "kbtui.conversations.conversation_data_types",
    "kbtui.conversations.turn_decision_marks",
    "kbtui.index.chunk_splitter",
    "kbtui.knowledge.knowledge_base",
    "kbtui.library.subject_text_versions",
    "kbtui.text_difference",
    "kbtui.userdata.turn_mark_store",
}
"""Modules that a search in the client must not import, because importing takes most of its time."""


def list_modules_of_search(at: Builder, *words: str, shown: str = "guide/start") -> set[str]:
    """Search for the aardvark in a new process; return the names of the modules it imported."""
    script = (
        "import sys; from kbtui.cli.main import main; code = main(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    asked_for = ["search", "-w", str(at.root), "--mode", "lexical", "aardvark", *words]
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {script}"]
    done = subprocess.run([*command, *asked_for], capture_output=True, text=True, check=False)
    assert shown in done.stdout, done.stderr
    return set(done.stderr.split())


def test_it_imports_little_while_an_engine_runs(served: Builder) -> None:
    unneeded = {"contextvars", "dataclasses", "pathlib", "sqlite3", "tantivy", "typing"}
    parsers = {"argparse", "json", "re"}  # `json` imports `re`
    served.subject("guide/start.md", "# Start\n\nThe aardvark – “über” – is awake.\n")
    settled(connect_or_start_engine(served.workspace))
    options = ((), ("--since", "2026-01-01"), ("--topic", "guide"), ("--explain",), ("--json",))
    for words in options:
        assert not list_modules_of_search(served, *words) & (unneeded | parsers), words


def test_it_imports_no_parsers_without_an_engine(
    served: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_or_start_engine(served.workspace).stop_engine()
    # No engine can start where its log cannot be written.
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    held = list_modules_of_search(served)
    assert "tantivy" in held
    assert not sorted(held & UNNEEDED_WITHOUT_ENGINE)


def test_it_imports_no_parsers_to_find_outdated_turns(
    served: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hit's turn was given a subject that has changed since."""
    given = called("t1", "fs_read_file", "```md\n# Start\n```", path="docs/guide/start.md")
    served.conversation(2, [[asked("Is the aardvark awake?"), *given, said("Yes.")]])
    settled(connect_or_start_engine(served.workspace)).stop_engine()
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    held = list_modules_of_search(served, shown="knowledge changed since")
    assert not sorted(held & UNNEEDED_WITHOUT_ENGINE)


JSON_VALUES = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text(strategies.characters(exclude_categories=())),
    lambda values: (
        strategies.lists(values, max_size=4)
        | strategies.dictionaries(strategies.text(max_size=5), values, max_size=4)
    ),
)


@given(strategies.dictionaries(strategies.text(), JSON_VALUES, max_size=4))
def test_a_frame_is_read_and_written_as_json_does(message: dict[str, object]) -> None:
    body = encode_message_as_frame(message)[FRAME_HEADER_BYTES:]
    assert body == json.dumps(message, separators=(",", ":")).encode()
    assert json.dumps(decode_frame_body(body)) == json.dumps(message)


@given(strategies.binary() | JSON_VALUES.map(lambda value: json.dumps(value).encode()[:-1]))
def test_what_json_refuses_is_no_frame(body: bytes) -> None:
    try:
        message = json.loads(body.decode())
    except ValueError:
        message = None
    if isinstance(message, dict):
        assert json.dumps(decode_frame_body(body)) == json.dumps(message)
    else:
        with pytest.raises(InvalidProtocolFrameError):
            decode_frame_body(body)


@given(
    JSON_VALUES | strategies.dictionaries(strategies.integers(), JSON_VALUES), strategies.booleans()
)
def test_json_results_are_indented_as_json_does(value: object, ensure_ascii: bool) -> None:
    formatted = format_indented_json(value, ensure_ascii=ensure_ascii)
    assert formatted == json.dumps(value, indent=2, ensure_ascii=ensure_ascii)


def test_text_is_sanitized_alike_before_re_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [chr(code) for code in (*range(0x3000), 0xD800, 0xFEFF, 0xFFFD, 0x1F600, 0xE0001)]
    expected = {sample: sanitize(f"ü{sample}a") for sample in samples}
    unusual = 0
    for sample in samples:
        if "re" in sys.modules:
            if unusual > 50:
                break
            unusual += 1
            monkeypatch.delitem(sys.modules, "re")
        assert sanitize(f"ü{sample}a") == expected[sample], hex(ord(sample))
    usual = [sample for sample in samples if sample.isalpha() and sample < "\u0300"]
    monkeypatch.delitem(sys.modules, "re", raising=False)
    assert all(sanitize(f"–{sample}\t\n") == f"–{sample}\t\n" for sample in usual)
    assert "re" not in sys.modules
