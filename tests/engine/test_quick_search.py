"""`kbtui search` by way of a running engine prints what the command itself would print."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder, asked, end_engine, kill_engine, said

from kbtui.cli.engine_search import _quoted, quick_search
from kbtui.engine import EngineClient, connect
from kbtui.userdata import UserData
from kbtui.workspace import path_strings


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
    settled(connect(builder.workspace))
    yield builder
    kill_engine(builder)


def settled(engine: EngineClient) -> EngineClient:
    """Wait until the engine has nothing to do: before, it leaves a search to the command."""
    engine.request("refresh", wait=60.0)
    end = time.monotonic() + 60
    while engine.request("status")["busy"]:
        assert time.monotonic() < end, "the engine is never done"
        time.sleep(0.02)
    return engine


def quick(builder: Builder, *words: str) -> int:
    """The short way; while the engine looks at the files again, it is tried again."""
    for _ in range(3):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            code = quick_search([*words], str(builder.root))
            if code is not None:
                return code
            time.sleep(0.05)
        # Somebody edits kbtui itself meanwhile: an engine of the code as it is now.
        end_engine(builder)
        settled(connect(builder.workspace))
    raise AssertionError("the engine never answers")


def run(builder: Builder, *words: str) -> tuple[int, bytes, bytes]:
    command = [sys.executable, "-m", "kbtui.cli.main", "search", "-w", str(builder.root)]
    done = subprocess.run([*command, *words], capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


PLAIN = [
    ("aardvark",),
    ("badger", "--json"),
    ("in:conversations", "sett"),
    ('"is awake"', "--limit=1", "--json"),
    ("東京", "über"),
    ("zzzz",),
    ("zzzz", "--json"),
]
NOT_PLAIN = [
    ["--mode", "lexical", "topic:nowhere"],  # a mistake, which the command points at
    ["--mode", "lexical", "--explain", "aardvark"],
    ["--mode", "keen", "aardvark"],
    ["--limit", "0", "aardvark"],
    ["--limit"],
    ["aardvark"],  # the semantic leg is off, which the command says
    ["--mode", "lexical"],
    ["--mode", "lexical", "\udcff"],
]


def test_it_prints_what_the_command_prints(
    served: Builder, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for words in PLAIN:
        code = quick(served, "--mode", "lexical", *words)
        mine = capfdbinary.readouterr()
        # An option that the short way does not know: the command does it all.
        itself = run(served, "--mode", "lexical", "--wait", "10", *words)
        assert (code, mine.out, mine.err) == itself


def test_whatever_is_not_plain_is_left_to_the_command(
    served: Builder, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for words in NOT_PLAIN:
        assert quick_search(words, str(served.root)) is None
        assert capfdbinary.readouterr() == (b"", b"")


def test_without_an_engine_and_beside_other_settings_the_command_searches(
    served: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = ["--mode", "lexical", "aardvark"]
    with monkeypatch.context() as other:
        other.setenv("TZ", "Asia/Tokyo")
        assert quick_search(plain, str(served.root)) is None
    settings = Path(path_strings.config_home()) / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("query_log = false\n")
    assert quick_search(plain, str(served.root)) is None
    settings.unlink()
    assert quick(served, *plain) == 0
    end_engine(served)
    assert quick_search(plain, str(served.root)) is None
    assert quick_search(plain, str(tmp_path)) is None


def test_a_search_is_logged_once(served: Builder) -> None:
    assert run(served, "--mode", "lexical", "aardvark")[0] == 0
    assert UserData(served.workspace).insights().total == 1


def test_what_was_just_saved_is_found(served: Builder) -> None:
    served.subject("guide/new.md", "# New\n\nThe capybara swims.\n")
    settled(connect(served.workspace))
    code, shown, _ = run(served, "--mode", "lexical", "--json", "capybara")
    assert code == 0
    assert [hit["ref"] for hit in json.loads(shown)["hits"]] == ["guide/new:1-3"]
    (served.root / "docs/guide/new.md").unlink()
    assert run(served, "--mode", "lexical", "capybara")[0] == 1


def test_it_imports_next_to_nothing(served: Builder) -> None:
    script = (
        "import sys; from kbtui.cli.main import main; code = main(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    words = ["search", "-w", str(served.root), "--mode", "lexical", "aardvark"]
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {script}"]
    end = time.monotonic() + 60
    held = {"kbtui.cli.search"}
    while "kbtui.cli.search" in held:  # the engine was looking at the files again
        assert time.monotonic() < end, "the engine never answers"
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        held = set(done.stderr.split())
    assert done.stdout.startswith("guide/start"), done.stderr
    assert not held & {"re", "json", "typing", "pathlib", "sqlite3", "tantivy", "argparse"}


@given(st.text(st.characters(exclude_categories=[])))
def test_every_text_is_quoted_as_json_has_it(text: str) -> None:
    assert json.loads(_quoted(text)) == json.loads(json.dumps(text))
