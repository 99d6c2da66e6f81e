"""Damage while the engine runs is reported and repaired, and never gives an empty answer."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from running import run_command
from support import Builder, asked, kill_engine, said

from kbtui.engine.engine_launcher import connect_or_start_engine
from kbtui.index import index_generations
from kbtui.index.index_generations import find_catalog_or_keyword_index_damage


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    # On a busy machine an engine may end between two commands, and a new one checks for damage by
    # itself.
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "120")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(12):
        text = f"# S{number}\n\n" + f"word{number} tells of otters and rivers. " * 30
        builder.subject(f"guide/s{number}.md", text)
    builder.conversation(1, [[asked("Where are the otters?"), said("In the rivers.")]])
    with closing(connect_or_start_engine(builder.workspace)) as engine:
        assert engine.send_request("refresh", wait=60)["done"]
        # The check for damage after an engine's start has ended.
        assert engine.send_request("refresh", check=True, wait=60)["done"]
    yield builder
    kill_engine(builder)


def command(builder: Builder, *words: str) -> subprocess.CompletedProcess[str]:
    return run_command("-w", str(builder.root), *words)


def folder(builder: Builder) -> Path:
    found = index_generations.find_current_index_generation(builder.workspace.cache_dir)
    assert found is not None
    return found


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 0x55
    # In place, like a failing disk, so that processes that have mapped the file see it too.
    with path.open("r+b") as file:
        file.write(data)


def damage_segment(builder: Builder, suffix: str) -> None:
    for path in (folder(builder) / "lexical").glob(f"*{suffix}"):
        for at in range(4, 40, 5):
            flip(path, path.stat().st_size * at // 60)
    assert find_catalog_or_keyword_index_damage(folder(builder))


@pytest.mark.parametrize(
    "suffix",
    [
        ".term",
        *(pytest.param(name, marks=pytest.mark.slow) for name in (".idx", ".fast", ".fieldnorm")),
    ],
)
def test_a_search_of_a_damaged_index_is_answered_by_a_new_one(built: Builder, suffix: str) -> None:
    before = command(built, "search", "otters", "--limit", "20")
    damage_segment(built, suffix)
    # One question that the engine's open index cannot answer, and one that it can.
    for words in (["search", "otters", "--limit", "20", "--mode", "lexical", "--since", "2001-01-01"],
                  ["search", "otters", "--limit", "20"]):  # fmt: skip
        done = command(built, *words)
        assert "Traceback" not in done.stderr
        assert "nothing found" not in done.stderr
    if find_catalog_or_keyword_index_damage(folder(built)) is None:
        assert done.stdout == before.stdout
    index = command(built, "index")
    assert (index.returncode, find_catalog_or_keyword_index_damage(folder(built))) == (0, None)
    assert command(built, "search", "otters", "--limit", "20").stdout == before.stdout


def test_doctor_names_damage_and_index_mends_it(built: Builder) -> None:
    assert "damaged" not in command(built, "doctor").stdout
    damage_segment(built, ".pos")
    assert "the keyword index is damaged" in command(built, "doctor").stdout
    index = command(built, "index")
    assert index.returncode == 0
    assert "the index was rebuilt" in index.stderr
    assert find_catalog_or_keyword_index_damage(folder(built)) is None
    assert "damaged" not in command(built, "doctor").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["search", "otters"], ["entries"],
        pytest.param(["cites", "guide/s1"], marks=pytest.mark.slow),
        pytest.param(["insights"], marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_damaged_catalog_is_no_traceback(built: Builder, words: list[str]) -> None:
    path = folder(built) / "catalog.sqlite"
    with closing(connect_or_start_engine(built.workspace)) as engine:
        engine.stop_engine()
    for number in range(40):
        flip(path, 100 + path.stat().st_size * number // 41)
    done = command(built, *words)
    assert "Traceback" not in done.stderr
    command(built, "index")
    assert command(built, *words).returncode in {0, 1}
    assert command(built, "search", "otters").returncode == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("current", ["search", "otters"]), ("current", ["index"]),
        ("catalog.sqlite", ["cites", "guide/s1"]), ("lexical", ["search", "otters"]),
        ("hidden", ["index"]),
    ],
)  # fmt: skip
def test_a_part_that_is_removed_is_made_again(built: Builder, name: str, words: list[str]) -> None:
    path = (built.workspace.cache_dir if name == "current" else folder(built)) / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    done = command(built, *words)
    assert done.returncode == (1 if words[0] == "cites" else 0), done.stderr
    assert "no index yet" not in done.stderr
    assert command(built, "search", "otters", "--hidden").returncode == 0
