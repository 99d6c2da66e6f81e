"""There is one engine per user, started on demand, up to date with the files, ended when idle."""

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import Builder, asked, content_of, end_engine, kill_engine, said

from kbtui.cli.main import main
from kbtui.engine.engine_client import EngineClient
from kbtui.engine.engine_launcher import (
    connect_or_start_engine,
    get_engine_socket_path,
    read_engine_lock_file,
)
from kbtui.errors import EngineUnavailableError
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings, load_settings
from kbtui.workspace.paths import get_kbtui_cache_directory


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    # An engine without a model starts quickly; test_semantic.py tests the model.
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/start.md", "# Start\n\nThe aardvark is awake.\n")
    builder.conversation(
        1, [[asked("Where is the badger?"), said("In its sett.")]], title="Badgers"
    )
    yield builder
    kill_engine(builder)


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return value


def library(builder: Builder) -> Library:
    return Library(builder.workspace, load_settings())


def refs(lib: Library, query: str) -> list[str]:
    return [hit.ref for hit in lib.search_by_keywords(SearchRequest(query, mode="lexical")).hits]


def test_ten_clients_at_once_get_one_engine(built: Builder) -> None:
    with ThreadPoolExecutor(10) as pool:
        clients = list(pool.map(lambda _: connect_or_start_engine(built.workspace), range(10)))
    assert len({client.pid for client in clients}) == 1
    # Engines that did not get the lock end by themselves.
    until(lambda: len(engines()) == 1)


def engines() -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"]
        if line and line[-1] == get_kbtui_cache_directory() and process.info["status"] != "zombie":
            found.append(process.pid)
    return found


def test_a_search_without_an_index_starts_the_engine_and_answers(built: Builder) -> None:
    lib = library(built)
    answer = lib.search(SearchRequest("aardvark", mode="lexical"))
    assert [hit.ref for hit in answer.hits] == ["guide/start:1-3"]


def test_without_a_model_hybrid_answers_with_keywords_and_says_so(built: Builder) -> None:
    answer = library(built).search(SearchRequest("badger"), wait=5)
    assert answer.hits[0].ref == "jp-c17800000001:1"
    assert "keywords only" in (answer.degraded or "")
    assert "switched off" in (answer.degraded or "")


def test_what_changes_is_told_and_found(built: Builder, request: pytest.FixtureRequest) -> None:
    lib = library(built)
    heard: list[dict[str, Any]] = []
    # A listener that is left when this test fails would start engines in all later tests.
    request.addfinalizer(lib.listen_to_engine_events(heard.append))
    until(lambda: any(event.get("lexical") for event in heard))

    def changed(reference: str) -> bool:
        return any(
            reference in event.get("subjects", []) or reference in event.get("conversations", [])
            for event in heard
            if event["event"] == "changed"
        )

    built.subject("guide/new.md", "# New\n\nThe capybara swims.\n")
    until(lambda: changed("guide/new"))
    assert refs(lib, "capybara") == ["guide/new:1-3"]
    built.subject("guide/new.md", "# New\n\nThe dolphin swims.\n")
    until(lambda: refs(lib, "dolphin"))
    assert refs(lib, "capybara") == []
    (built.root / "docs/guide/new.md").rename(built.root / "docs/guide/newer.md")
    until(lambda: refs(lib, "dolphin") == ["guide/newer:1-3"])
    (built.root / "docs/guide/newer.md").unlink()
    until(lambda: not refs(lib, "dolphin"))
    built.conversation(2, [[asked("And the echidna?"), said("It digs.")]])
    until(lambda: changed("jp-c17800000002"))  # type: ignore[arg-type]
    assert refs(lib, "echidna")[0] == "jp-c17800000002:1"
    heard.clear()
    built.topics(guide={"disabled": ["start"]}, extra={})
    until(lambda: any(event["event"] == "changed" and event["knowledge"] for event in heard))
    assert refs(lib, "aardvark") == []
    built.subject("extra/deep/er/one.md", "The fennec listens.\n")
    until(lambda: refs(lib, "fennec"))


def test_a_topic_directory_that_is_removed_and_made_again_is_watched_again(built: Builder) -> None:
    import shutil

    lib = library(built)
    lib.request_index_update_and_wait()
    shutil.rmtree(built.root / "docs/guide")
    until(lambda: not refs(lib, "aardvark"))
    built.subject("guide/start.md", "# Start\n\nThe aardvark is back.\n")
    until(lambda: refs(lib, "aardvark"))
    built.subject("guide/start.md", "# Start\n\nThe gnu is here.\n")
    until(lambda: refs(lib, "gnu"))


def test_directories_that_were_moved_into_a_topic_or_within_it_are_watched(
    built: Builder, tmp_path: Path
) -> None:
    lib = library(built)
    lib.request_index_update_and_wait()
    (tmp_path / "new/deep/er").mkdir(parents=True)
    (tmp_path / "new/deep/er/one.md").write_text("The fennec listens.\n")
    guide = built.root / "docs/guide"
    (tmp_path / "new").rename(guide / "moved")
    until(lambda: refs(lib, "fennec"))
    built.subject("guide/moved/deep/er/two.md", "The gnu grazes.\n")
    until(lambda: refs(lib, "gnu"))
    (guide / "moved/deep").rename(guide / "again")
    until(lambda: refs(lib, "gnu") == ["guide/again/er/two:1"])
    (guide / "again/er/below").mkdir()
    until(lambda: refs(lib, "fennec") == ["guide/again/er/one:1"])
    built.subject("guide/again/er/below/three.md", "The ibex climbs.\n")
    until(lambda: refs(lib, "ibex"))


def test_a_linked_directory_of_the_workspace_is_watched(built: Builder) -> None:
    built.subject("elsewhere/one.md", "The fennec listens.\n")
    (built.root / "docs/guide/link").symlink_to(built.root / "docs/elsewhere")
    lib = library(built)
    lib.request_index_update_and_wait()
    until(lambda: refs(lib, "fennec") == ["guide/link/one:1"])
    built.subject("elsewhere/one.md", "The gnu grazes.\n")
    until(lambda: refs(lib, "gnu"))


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.2, 0.6])
def test_killed_at_any_moment_the_next_engine_repairs(
    built: Builder, moment: float, tmp_path: Path
) -> None:
    for number in range(60):
        built.subject(f"guide/s{number}.md", f"# S{number}\n\n" + f"word{number} and more. " * 40)
    engine = connect_or_start_engine(built.workspace)
    time.sleep(moment)
    os.kill(engine.pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(engine.pid)] if psutil.pid_exists(engine.pid) else [], 5)
    built.subject("guide/s3.md", "# S3\n\nrewritten after the kill\n")
    lib = library(built)
    until(lambda: lib.connect_engine().send_request("refresh", wait=10)["done"])
    assert lib.connect_engine().pid != engine.pid
    end_engine(built)
    index = WorkspaceIndexWriter(
        built.workspace, Settings(model="off"), cache_dir=tmp_path / "fresh"
    )
    index.refresh_index()
    index.close()
    assert content_of(built.workspace.cache_dir) == content_of(tmp_path / "fresh")


def test_an_engine_without_clients_goes_away_and_leaves_nothing(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "0.3")
    engine = connect_or_start_engine(built.workspace)
    pid = engine.pid
    place = get_engine_socket_path()
    assert place.exists()
    engine.close()
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")
    until(lambda: not place.exists())
    assert read_engine_lock_file() is None


def wakes(pid: int) -> int:
    """Return how often the threads of a process have woken up so far."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has just ended
            _, _, rest = (task / "status").read_text().partition("\nvoluntary_ctxt_switches:")
            found += int(rest.split()[0])
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts them")
def test_an_idle_engine_wakes_at_most_twice_a_second(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    engine = connect_or_start_engine(built.workspace)
    assert engine.send_request("refresh", wait=60)["done"]
    seconds, counted = 4.0, []
    # Work of the first seconds, or of every half minute, may be in one of the samples.
    for _ in range(5):
        before = wakes(engine.pid)
        time.sleep(seconds)
        counted.append((wakes(engine.pid) - before) / seconds)
        if counted[-1] <= 2.0:
            break
    assert min(counted) <= 2.0, counted


def test_a_deleted_cache_does_not_give_two_engines(built: Builder) -> None:
    import shutil

    first = connect_or_start_engine(built.workspace)
    shutil.rmtree(get_kbtui_cache_directory(), ignore_errors=True)
    until(
        lambda: not psutil.pid_exists(first.pid) or psutil.Process(first.pid).status() == "zombie"
    )
    lib = library(built)
    until(lambda: refs(lib, "aardvark"))
    assert lib.connect_engine().pid != first.pid


def test_an_engine_does_not_call_an_index_up_to_date_that_was_taken_away(built: Builder) -> None:
    import shutil

    first = connect_or_start_engine(built.workspace)
    assert first.send_request("refresh", wait=60, timeout=90)["done"]
    shutil.rmtree(built.workspace.cache_dir, ignore_errors=True)
    with pytest.raises(EngineUnavailableError):
        first.send_request("refresh", wait=60, timeout=90)
    # The engine opens the workspace anew.
    lib = library(built)
    until(lambda: refs(lib, "aardvark"))
    assert lib.connect_engine().pid == first.pid


def raw(builder: Builder) -> socket.socket:
    found = read_engine_lock_file()
    assert found
    plug = socket.socket(socket.AF_UNIX)
    plug.settimeout(10)
    plug.connect(found["socket"])
    return plug


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 0xFFFFFFFF),
        struct.pack(">I", 5) + b"hello",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 60_000) + b"[" * 60_000,
        struct.pack(">I", 40) + b'{"hello": "kbtui", "protocol": "many"}  ',
    ],
    ids=["nothing", "http", "huge", "no json", "no object", "deep", "protocol"],
)
def test_a_client_that_talks_nonsense_hurts_nobody(built: Builder, junk: bytes) -> None:
    engine = connect_or_start_engine(built.workspace)
    plug = raw(built)
    plug.sendall(junk)
    plug.shutdown(socket.SHUT_WR)
    with plug:
        while plug.recv(4096):
            pass
    assert engine.send_request("status")["pid"] == engine.pid


def test_a_client_that_does_not_read_is_let_go_and_others_are_served(built: Builder) -> None:
    engine = connect_or_start_engine(built.workspace)
    silent = raw(built)
    body = b'{"hello":"kbtui","protocol":1,"version":"0"}'
    silent.sendall(struct.pack(">I", len(body)) + body)
    ask = b'{"id":1,"op":"status"}'
    silent.settimeout(0.5)

    def flood() -> None:
        try:
            for _ in range(200_000):
                silent.sendall((struct.pack(">I", len(ask)) + ask) * 50)
        except OSError:
            pass

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    for _ in range(20):
        assert engine.send_request("status", timeout=60)["pid"] == engine.pid
    silent.close()
    thread.join(10)


def test_an_unknown_operation_and_bad_arguments_are_errors_not_ends(built: Builder) -> None:
    engine = connect_or_start_engine(built.workspace)
    with pytest.raises(EngineUnavailableError, match="unknown operation"):
        engine.send_request("explode")
    with pytest.raises(EngineUnavailableError):
        engine.send_request("search", question={"query": 1, "kinds": [1]}, wait="x")
    assert engine.send_request("status")["pid"] == engine.pid


def test_a_newer_client_has_an_older_engine_make_way(built: Builder) -> None:
    engine = connect_or_start_engine(built.workspace)
    plug = raw(built)
    body = b'{"hello":"kbtui","protocol":99,"version":"9.9"}'
    plug.sendall(struct.pack(">I", len(body)) + body)
    until(
        lambda: not psutil.pid_exists(engine.pid) or psutil.Process(engine.pid).status() == "zombie"
    )
    plug.close()


def test_an_engine_whose_index_cannot_be_read_is_replaced(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.engine import engine_launcher
    from kbtui.index import index_generations

    first = library(built).connect_engine()
    until(lambda: refs(library(built), "aardvark"))
    # As after an update: this process reads another index format than the engine writes.
    monkeypatch.setattr(index_generations, "compute_index_schema_hash", lambda: "abcdef")
    monkeypatch.setattr(engine_launcher, "compute_index_schema_hash", lambda: "abcdef")
    assert connect_or_start_engine(built.workspace).pid != first.pid


def test_an_older_client_leaves_a_newer_engine_and_makes_do(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.engine import engine_launcher
    from kbtui.index import index_generations

    lib = library(built)
    engine = lib.connect_engine()
    until(lambda: refs(lib, "aardvark"))
    with monkeypatch.context() as older:
        older.setattr(engine_launcher, "__version__", "0.0.1")
        older.setattr(index_generations, "compute_index_schema_hash", lambda: "abcdef")
        older.setattr(engine_launcher, "compute_index_schema_hash", lambda: "abcdef")
        aged = library(built)
        answer = aged.search(SearchRequest("aardvark", mode="lexical"))
        assert [hit.ref for hit in answer.hits] == ["guide/start:1-3"]
        assert "newer than this kbtui" in (answer.degraded or "")
        aged.close()
    assert engine.send_request("status")["pid"] == engine.pid


def test_the_socket_is_this_users_alone(built: Builder) -> None:
    connect_or_start_engine(built.workspace)
    place = get_engine_socket_path()
    assert place.parent.stat().st_mode & 0o077 == 0
    assert place.stat().st_mode & 0o077 == 0


def test_a_working_directory_supplies_no_modules(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (built.root / "kbtui.py").write_text("raise SystemExit('hijacked')")
    (built.root / "json.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(built.root)
    monkeypatch.setenv("PYTHONPATH", str(built.root))
    assert connect_or_start_engine(built.workspace).pid


def test_a_read_only_cache_means_a_temporary_index_and_a_notice(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root can write anywhere, so a file in place of the directory causes the error.
    cache = built.workspace.cache_dir
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text("in the way")
    lib = library(built)
    answer = lib.search(SearchRequest("aardvark", mode="lexical"))
    assert [hit.ref for hit in answer.hits] == ["guide/start:1-3"]
    assert "temporary index" in (answer.degraded or "")
    lib.close()
    cache.unlink()


def test_clients_with_another_runtime_directory_find_the_engine(
    built: Builder, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    first = connect_or_start_engine(built.workspace)
    (home / "run2").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run2"))
    second: EngineClient = connect_or_start_engine(built.workspace)
    assert second.pid == first.pid


def test_each_cache_directory_has_an_engine_of_its_own(
    built: Builder, monkeypatch: pytest.MonkeyPatch, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = connect_or_start_engine(built.workspace)
    command = ["-w", str(built.root)]
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_CACHE_HOME", str(home / "cache2"))
        assert main([*command, "engine", "stop"]) == 1, "that is another cache's engine"
        assert main([*command, "index", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["subjects"] == 1
        second = connect_or_start_engine(built.workspace, start=False)
        assert second.pid != first.pid
        assert main([*command, "engine", "stop"]) == 0
    assert first.send_request("status")["pid"] == first.pid
    assert connect_or_start_engine(built.workspace, start=False).pid == first.pid


def test_a_copied_cache_directory_does_not_lead_to_the_engine_of_the_original(
    built: Builder, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    import shutil

    first = connect_or_start_engine(built.workspace)
    assert first.send_request("refresh", wait=60)["done"]
    # SQLite removes its side files when the engine closes a connection, perhaps during the copy.
    without_side_files = shutil.ignore_patterns("*-shm", "*-wal")
    shutil.copytree(home / "cache", home / "cache2", ignore=without_side_files)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_CACHE_HOME", str(home / "cache2"))
        second = connect_or_start_engine(built.workspace)
        assert second.pid != first.pid
        end_engine(built)
    assert connect_or_start_engine(built.workspace, start=False).pid == first.pid


@pytest.mark.parametrize("name", ["x" * 120, "ä" * 50], ids=["long", "long in bytes"])
@pytest.mark.parametrize("variables", [("XDG_RUNTIME_DIR",), ("TMPDIR", "XDG_RUNTIME_DIR")])
def test_a_runtime_directory_too_long_for_a_socket_is_passed_over(
    built: Builder,
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    name: str,
    variables: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = home / name
    long.mkdir(mode=0o700)
    for variable in variables:
        monkeypatch.setenv(variable, str(long))
    engine = connect_or_start_engine(built.workspace)
    place = read_engine_lock_file()
    assert place
    assert not place["socket"].startswith(str(long))
    assert Path(place["socket"]).parent.stat().st_mode & 0o077 == 0
    assert connect_or_start_engine(built.workspace, start=False).pid == engine.pid
    main(["paths", "-w", str(built.root), "--json"])
    assert json.loads(capsys.readouterr().out)["engine_socket"] == place["socket"]


def test_the_pace_is_that_of_the_last_half_minute_without_loading_and_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kbtui.engine import engine_workspace as estimating

    clock = {"now": 0.0}
    monkeypatch.setattr(estimating.time, "monotonic", lambda: clock["now"])
    pace = estimating.ItemRateMeter()

    def measure(now: float, done: int, *, is_paused: bool = False) -> float | None:
        clock["now"] = now
        return pace.measure_items_per_second("vectors", done, 1000, is_paused=is_paused)

    assert measure(0, 0) is None
    assert measure(60, 0) is None  # loading
    assert measure(62, 10) is None  # a part of this time was loading
    assert measure(64, 20) == 5.0
    assert measure(72, 60) == 5.0
    assert measure(73, 60, is_paused=True) is None
    assert measure(900, 60) is None
    assert measure(901, 65) is None
    assert measure(903, 85) == 10.0
    for second in range(905, 965, 2):
        found = measure(second, 85 + (second - 903) * 2)
    assert found == 2.0
    assert measure(966, 1000) is None


def test_a_pause_of_embedding_is_remembered_by_the_next_engine(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*words: str) -> str:
        assert main([*words, "-w", str(built.root)]) == 0
        return capsys.readouterr().out

    assert "`kbtui engine continue`" in command("engine", "pause")
    kill_engine(built)
    command("index")
    assert json.loads(command("engine", "status", "--json"))["workspaces"][0]["paused"] is True
    main(["doctor", "-w", str(built.root)])
    assert "embedding is paused, with 0 passages left" in capsys.readouterr().out
    assert command("engine", "continue") == "embedding continues\n"
    assert json.loads(command("engine", "--json"))["workspaces"][0]["paused"] is False


def test_the_engine_sweeps_old_searches_from_the_log(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    from kbtui.userdata.user_data_store import UserData

    userdata = UserData(built.workspace)
    userdata.query_log.log_search("an old one", "lexical", 0, "cli")
    with sqlite3.connect(userdata.query_log.path) as db:
        (table,) = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchone()
        db.execute(f"UPDATE {table} SET at = at - 91 * 86400")
    userdata.query_log.log_search("a new one", "lexical", 0, "cli")
    connect_or_start_engine(built.workspace)

    def left() -> list[str]:
        with sqlite3.connect(userdata.query_log.path) as db:
            return [row[0] for row in db.execute(f"SELECT query FROM {table}")]

    until(lambda: left() == ["a new one"])


def test_a_connection_is_closed_after_half_a_message(built: Builder) -> None:
    lib = library(built)
    lib.search(SearchRequest("aardvark"), wait=5)
    client = EngineClient(str(get_engine_socket_path()), str(built.root), timeout=0.2)
    engine = psutil.Process(client.pid)
    engine.suspend()
    try:
        with pytest.raises(EngineUnavailableError):
            client.send_request("search", timeout=0.2, question={"query": "x" * 3_000_000})
    finally:
        engine.resume()
    with pytest.raises(EngineUnavailableError):
        client.send_request("status")
    assert lib.search(SearchRequest("aardvark"), wait=5).hits
