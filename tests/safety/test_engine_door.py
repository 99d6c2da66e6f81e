"""The engine's socket serves only this user, within limits, and clients cannot harm each other."""

import json
import os
import re
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from running import run_command
from support import Builder, kill_engine

from kbtui.cli.main import main
from kbtui.engine import engine_protocol
from kbtui.engine.engine_launcher import (
    connect_or_start_engine,
    get_engine_lock_path,
    get_engine_socket_path,
    read_engine_lock_file,
)
from kbtui.engine.engine_server import MAX_UNGREETED, is_client_from_same_user
from kbtui.errors import EngineUnavailableError
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import load_settings

ROOM = Path(__file__).parents[2] / "kbtui"


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/one.md", "# One\n\nAn otter.\n")
    yield builder
    kill_engine(builder)


def plug(builder: Builder) -> socket.socket:
    found = read_engine_lock_file()
    assert found
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(30)
    while True:
        try:
            made.connect(found["socket"])
        except BlockingIOError:
            time.sleep(0.01)  # as many as may wait to be let in do so already
        else:
            return made


def test_directory_socket_cache_and_lock_are_this_users_alone(built: Builder) -> None:
    with_umask = os.umask(0)
    try:
        connect_or_start_engine(built.workspace).close()
    finally:
        os.umask(with_umask)
    for path in (get_engine_socket_path().parent, built.workspace.cache_dir):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert stat.S_IMODE(get_engine_socket_path().stat().st_mode) == 0o600
    assert get_engine_lock_path().parent == built.workspace.cache_dir.parent


def test_a_runtime_directory_that_others_may_enter_is_closed_first(
    built: Builder,
) -> None:
    folder = get_engine_socket_path().parent
    folder.chmod(0o755)
    connect_or_start_engine(built.workspace).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def make_link(place: Path) -> None:
    place.symlink_to("/")


def make_file(place: Path) -> None:
    place.touch()


def make_foreign(place: Path) -> None:
    place.mkdir()
    if os.getuid() != 0:
        pytest.skip("only root can give a directory to another user")
    os.chown(place, 65534, 65534)


@pytest.mark.parametrize(
    ("taken", "has_index"),
    [(make_link, False), (make_file, True), (make_foreign, False), (make_foreign, True)],
)
def test_keywords_work_though_somebody_else_made_the_runtime_directory(
    built: Builder,
    short_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    taken: Callable[[Path], None],
    has_index: bool,
) -> None:
    if has_index:
        index = WorkspaceIndexWriter(built.workspace, load_settings())
        index.refresh_index()
        index.close()
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("TMPDIR", str(short_dir))
    taken(short_dir / f"kbtui-{os.getuid()}")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return run_command("-w", str(built.root), *words)

    for mode in ("lexical", "hybrid"):
        found = run("search", "--mode", mode, "--json", "otter")
        assert found.returncode == 0, found.stderr
        assert [hit["ref"] for hit in json.loads(found.stdout)["hits"]] == ["guide/one:1-3"]
    told = [one for one in json.loads(run("doctor", "--json").stdout) if one["area"] == "engine"]
    assert [one["state"] for one in told] == ["wrong"]
    assert "the runtime directory" in told[0]["message"]
    assert str(short_dir / f"kbtui-{os.getuid()}") in told[0]["message"]
    assert run("paths").returncode == 0
    assert read_engine_lock_file() is None


LISTENER = """
import os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[1])
os.setuid(65534)
door.listen()
print("listening", flush=True)
while True:
    guest = door.accept()[0]
    print(guest.recv(4096), flush=True)
"""
"""A process of another user that listens on the engine's socket."""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start another user's process")
def test_nothing_is_said_to_another_users_process(built: Builder) -> None:
    place = get_engine_socket_path()
    command = [sys.executable, "-c", LISTENER, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout
        try:
            assert listener.stdout.readline() == "listening\n"
            with pytest.raises(EngineUnavailableError, match="another user"):
                connect_or_start_engine(built.workspace)
            main(["search", "-w", str(built.root), "--mode", "lexical", "otter"])
            assert [listener.stdout.readline() for _ in range(2)] == ["b''\n"] * 2
        finally:
            listener.kill()


def test_an_engine_ends_calmly_while_somebody_at_the_door_is_silent(built: Builder) -> None:
    connect_or_start_engine(built.workspace).close()
    found = read_engine_lock_file()
    assert found
    silent = [plug(built) for _ in range(3)]
    half = plug(built)
    half.sendall(b"\0\0")
    connect_or_start_engine(built.workspace).close()  # those before are let in by now
    process = psutil.Process(found["pid"])
    process.terminate()
    process.wait(60)
    assert all(one.recv(1) == b"" for one in [*silent, half])
    assert "Traceback" not in built.workspace.engine_log_file.read_text()
    for one in [*silent, half]:
        one.close()


def test_an_engine_ends_calmly_while_a_client_waits_for_its_model(
    built: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    os.mkfifo(model / "modules.json")  # whoever reads it waits for ever
    monkeypatch.setenv("KBTUI_MODEL", str(model))
    waiting = connect_or_start_engine(built.workspace)

    def search_until_engine_ends() -> None:
        with pytest.raises(EngineUnavailableError):
            waiting.send_request("search", timeout=60.0, question={"query": "otter"}, wait=600)

    thread = threading.Thread(target=search_until_engine_ends)
    thread.start()
    process = psutil.Process(waiting.pid)
    other = connect_or_start_engine(built.workspace)
    other.send_request("status")  # what was said before is heard by now
    process.terminate()
    process.wait(60)
    thread.join()
    log = built.workspace.engine_log_file.read_text()
    assert log.rstrip().endswith("ended")
    assert "Traceback" not in log
    waiting.close()
    other.close()


def as_another_user(builder: Builder) -> bytes:
    """Connect as another user, which only root can do, and return what that user receives."""
    place = get_engine_socket_path()
    for path in (place, *list(place.parents)[:2]):
        path.chmod(path.stat().st_mode | 0o077)  # so that only the engine itself refuses
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        heard = b"not even connected"
        try:
            os.setgid(65534)
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as made:
                made.settimeout(30)
                made.connect(str(place))
                made.sendall(
                    engine_protocol.encode_message_as_frame(
                        engine_protocol.make_hello_message(version="9", schema="x")
                    )
                )
                heard = made.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            heard = b""
        finally:
            os.write(writing, heard or b"nothing")
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as file:
        return file.read()


class _Writer:
    """A connection whose peer has the user id `uid`."""

    def __init__(self, uid: int) -> None:
        self._uid = uid

    def get_extra_info(self, _: str) -> "_Writer":
        return self

    def getsockopt(self, *_: int) -> bytes:
        return struct.pack("3i", 1, self._uid, 0)


def test_another_users_process_is_refused(
    built: Builder, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    engine = connect_or_start_engine(built.workspace)
    if os.getuid() == 0:
        assert as_another_user(built) == b"nothing"
    assert is_client_from_same_user(_Writer(os.getuid()))  # type: ignore[arg-type]
    assert not is_client_from_same_user(_Writer(os.getuid() + 1))  # type: ignore[arg-type]
    assert engine.send_request("status")["pid"] == engine.pid


def test_silent_clients_do_not_keep_others_out(built: Builder) -> None:
    engine = connect_or_start_engine(built.workspace)
    silent = [plug(built) for _ in range(MAX_UNGREETED * 3)]
    try:
        # Like every client, this one retries while the queue is full.
        newcomer = connect_or_start_engine(built.workspace, start=False)
        assert newcomer.send_request("status")["pid"] == engine.pid
        newcomer.close()
        assert engine.send_request("status")["pid"] == engine.pid
        # The connections that were silent longest were closed.
        assert silent[0].recv(1) == b""
    finally:
        for one in silent:
            one.close()


def test_half_a_frame_and_a_huge_one_end_only_their_own_connection(built: Builder) -> None:
    engine = connect_or_start_engine(built.workspace)
    hello = engine_protocol.encode_message_as_frame(
        engine_protocol.make_hello_message(version="1", schema="x")
    )
    for bad in (
        struct.pack(">I", 100) + b"{",
        struct.pack(">I", engine_protocol.REQUEST_BYTES_MAX + 1),
    ):
        with plug(built) as made:
            made.sendall(hello)
            made.recv(4096)
            made.sendall(bad)
            made.shutdown(socket.SHUT_WR)
            end = time.monotonic() + 30
            while made.recv(4096):
                assert time.monotonic() < end
        assert engine.send_request("status")["pid"] == engine.pid


def test_nothing_is_ever_unpickled_or_evaluated() -> None:
    wrong = re.compile(
        r"^\s*(?:import|from) (?:pickle|shelve|dill|cloudpickle|joblib)\b"
        # `marshal.dumps` for a checksum reads nothing, so it is allowed.
        r"|^\s*import marshal\b|^\s*from marshal import (?!dumps$)|\bmarshal\."
        # The only class named `YamlLoaderWithoutAliases` is a safe loader that also refuses aliases.
        r"|(?<![\w.])(?:eval|exec)\(|yaml\.(?:unsafe_)?load\((?!source, YamlLoaderWithoutAliases\))|\bshell=True",
        re.MULTILINE,
    )
    for path in sorted(ROOM.rglob("*.py")):
        found = wrong.search(path.read_text())
        assert found is None, (path, found)
