"""Whatever happened to the cache, the next start repairs the index without the user's help."""

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Builder, asked, content_of, hurt_file, kill_engine, said

from kbtui.engine.engine_launcher import connect_or_start_engine
from kbtui.errors import EngineUnavailableError
from kbtui.index import index_generations
from kbtui.index.index_generations import find_catalog_or_keyword_index_damage
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import Settings

SEED = int(os.environ.get("KBTUI_SEED") or 8)


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(12):
        text = f"# S{number}\n\n" + f"word{number} tells of otters and rivers. " * 30
        builder.subject(f"guide/{'.' * (number % 4 == 0)}s{number}.md", text)
    for number in range(4):
        turns = [[asked(f"question {number}"), said(f"answer {number} " * 20)]] * 3
        builder.conversation(number, turns, title=f"Talk {number}")
    yield builder
    kill_engine(builder)


def refresh(builder: Builder, cache: Path | None = None) -> None:
    index = WorkspaceIndexWriter(
        builder.workspace, Settings(), **({"cache_dir": cache} if cache else {})
    )
    index.refresh_index()
    index.close()


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def is_fresh(builder: Builder, fresh: dict[str, Any]) -> bool:
    """Whether the index in use is undamaged and equals a fresh build."""
    folder = index_generations.find_current_index_generation(builder.workspace.cache_dir)
    try:
        return (
            folder is not None
            and find_catalog_or_keyword_index_damage(folder) is None
            and content_of(builder.workspace.cache_dir) == fresh
        )
    except Exception:  # being replaced at this moment
        return False


def content_files(cache: Path) -> list[Path]:
    """Return the files in which every bit matters, without locks, logs and SQLite's shared memory."""
    kept = (path for path in cache.rglob("*") if path.is_file() and path.stat().st_size)
    return [path for path in kept if path.suffix not in {".lock", ".sqlite-shm"}]


def hurt(cache: Path, random_: random.Random) -> str:
    """Flip a bit of a file, truncate it or delete it; return what was done."""
    return hurt_file(
        random_.choice(
            content_files(index_generations.find_current_index_generation(cache) or cache)
        ),
        random_,
    )


def heal_and_compare(builder: Builder, fresh: dict[str, Any], what: str) -> None:
    engine = connect_or_start_engine(builder.workspace, wait=60)
    end = time.monotonic() + 60
    while not is_fresh(builder, fresh):
        assert time.monotonic() < end, (what, SEED)
        time.sleep(0.05)
    engine.stop_engine()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_a_hurt_index_is_noticed_and_built_anew(
    built: Builder, tmp_path: Path, rounds: int
) -> None:
    refresh(built)
    refresh(built, tmp_path / "fresh")
    fresh = content_of(tmp_path / "fresh")
    random_ = random.Random(SEED)
    print(f"KBTUI_SEED={SEED}")
    cache = built.workspace.cache_dir
    shutil.copytree(cache, tmp_path / "good", symlinks=True)
    for number in range(rounds):
        shutil.rmtree(cache)
        shutil.copytree(tmp_path / "good", cache, symlinks=True)
        what = hurt(cache, random_)
        heal_and_compare(built, fresh, f"round {number}: {what}")


@pytest.mark.parametrize("name", ["catalog.sqlite", "lexical", "hidden"])
def test_no_flipped_bit_of_content_goes_unnoticed(built: Builder, name: str) -> None:
    refresh(built)
    folder = index_generations.find_current_index_generation(built.workspace.cache_dir)
    assert folder is not None
    assert find_catalog_or_keyword_index_damage(folder) is None
    random_ = random.Random(SEED)
    if name == "catalog.sqlite":
        db = sqlite3.connect(folder / name)
        for table, column in (
            ("chunks", "text"), ("chunks", "turn"), ("chunks", "role"), ("entries", "title"),
            ("entries", "signature"), ("entries", "hidden"), ("chunks", "entry_id"),
        ):  # fmt: skip
            row, value = db.execute(
                f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL LIMIT 1"
                if table == "chunks"
                else f"SELECT id, {column} FROM {table} LIMIT 1"
            ).fetchone()
            key = "rowid" if table == "chunks" else "id"
            other = value[:-1] + chr(ord(value[-1]) ^ 1) if isinstance(value, str) else value ^ 1
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (other, row))
            db.commit()
            assert find_catalog_or_keyword_index_damage(folder), (table, column)
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value, row))
            db.commit()
            assert find_catalog_or_keyword_index_damage(folder) is None
        db.close()
        return
    for path in content_files(folder / name):
        if path.suffix == ".json":
            continue
        data = bytearray(path.read_bytes())
        # The last bytes are tantivy's footer with version and checksum.
        at, bit = random_.randrange(max(1, len(data) - 150)), 1 << random_.randrange(8)
        data[at] ^= bit
        path.write_bytes(data)
        assert find_catalog_or_keyword_index_damage(folder), (path.name, at)
        data[at] ^= bit
        path.write_bytes(data)
        assert find_catalog_or_keyword_index_damage(folder) is None


def test_a_cache_that_is_half_deleted_while_running_is_whole_again(
    built: Builder, tmp_path: Path
) -> None:
    refresh(built, tmp_path / "fresh")
    fresh = content_of(tmp_path / "fresh")
    engine = connect_or_start_engine(built.workspace)
    until(lambda: is_fresh(built, fresh))
    folder = index_generations.find_current_index_generation(built.workspace.cache_dir)
    assert folder is not None
    shutil.rmtree(folder / "lexical")
    (folder / "catalog.sqlite").unlink()
    built.subject("guide/later.md", "# Later\n\nAn ibex.\n")
    refresh(built, tmp_path / "fresh2")
    fresh = content_of(tmp_path / "fresh2")

    def mended() -> bool:
        try:
            client = connect_or_start_engine(built.workspace)
            client.send_request("refresh", wait=5)
            client.close()
        except EngineUnavailableError:
            return False
        return is_fresh(built, fresh)

    until(mended)
    engine.close()


FULL = """
import errno, os, resource, signal, sys
from pathlib import Path
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import Settings, open_workspace_at_root

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    index = WorkspaceIndexWriter(open_workspace_at_root(Path(sys.argv[1])), Settings())
    index.refresh_index()
    print("survived")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    "room", [0, 20_000, *[pytest.param(n, marks=pytest.mark.slow) for n in (4096, 40_000, 80_000)]]
)
def test_a_full_disk_is_said_and_the_next_start_repairs(
    built: Builder, room: int, tmp_path: Path
) -> None:
    refresh(built)
    for number in range(40):
        built.subject(f"guide/more{number}.md", f"# More {number}\n\n" + f"heron{number} " * 200)
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(built.root), str(room)],
        capture_output=True,
        env=os.environ.copy(),
        check=False,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    refresh(built)
    refresh(built, tmp_path / "fresh")
    assert is_fresh(built, content_of(tmp_path / "fresh"))


def test_an_engine_on_a_full_disk_lives_says_so_and_goes_on_when_there_is_room(
    built: Builder, tmp_path: Path
) -> None:
    engine = connect_or_start_engine(built.workspace)
    until(lambda: engine.send_request("status")["lexical"])
    held = resource.prlimit(engine.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, (1, held[1]))
    built.subject("guide/new.md", "# New\n\nThe stork.\n")
    until(lambda: engine.send_request("refresh", wait=5).get("error"))
    assert engine.send_request("status")["pid"] == engine.pid
    resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, held)
    refresh(built, tmp_path / "fresh")
    fresh = content_of(tmp_path / "fresh")
    until(lambda: engine.send_request("refresh", wait=5)["done"] and is_fresh(built, fresh))
    assert not engine.send_request("status")["error"]


@pytest.mark.parametrize("years", [-30, 50])
def test_a_clock_that_jumps_changes_nothing_of_the_content(
    built: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    refresh(built)
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + years * 31_557_600)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + years * 31_557_600 * 10**9)
    path = built.subject("guide/s1.md", "# S1\n\nWritten in another year.\n")
    os.utime(path, (time.time(), time.time()))
    shutil.rmtree(built.root / ".jp/conversations/17800000001")
    refresh(built)
    monkeypatch.undo()
    path = built.subject("guide/s2.md", "# S2\n\nWritten after the clock was set right.\n")
    refresh(built)
    refresh(built, tmp_path / "fresh")
    assert is_fresh(built, content_of(tmp_path / "fresh"))


def test_a_killed_engine_leaves_no_damage(built: Builder) -> None:
    for number in range(60):
        built.subject(f"guide/k{number}.md", f"# K{number}\n\n" + "egret " * 300)
    engine = connect_or_start_engine(built.workspace)
    os.kill(engine.pid, signal.SIGKILL)
    engine.close()
    refresh(built)
    folder = index_generations.find_current_index_generation(built.workspace.cache_dir)
    assert folder is not None
    assert find_catalog_or_keyword_index_damage(folder) is None
