"""What every test has: directories of its own, so that nothing touches the user's."""

import fcntl
import gc
import hashlib
import importlib.metadata
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# In CI the same examples each time: a change is judged by what it changed. Elsewhere new ones.
# An example may take as long as it takes: machines are shared.
settings.register_profile("quick", max_examples=25, deadline=None)
settings.register_profile("ci", max_examples=25, deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "quick")

LONGEST_BASE = 70
"""The length of a temporary directory's path, in bytes, up to which sockets fit below it."""

# Let torch's threads sleep as soon as they are idle. By default, they poll for a while, which takes processor time from
# the other workers.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A job in the background, or below `nohup`, ignores these, and so would the programs under test.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector away from modules and tests: they live as long as the process.

    What a test makes is collected more seldom than usual, which costs memory and saves time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(20_000, 20, 50)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of its own, and a runtime directory with a short path: a socket's path has 104 bytes at most."""
    base = Path(tempfile.mkdtemp(prefix="kb-"))
    runtime = base
    if len(os.fsencode(base)) > LONGEST_BASE:
        # What such a directory reveals besides its length, this one reveals for sockets.
        runtime = Path(tempfile.mkdtemp(prefix="kb Ü-", dir="/tmp"))
    for variable, name in {
        "HOME": "home",
        "XDG_CACHE_HOME": "cache",
        "XDG_CONFIG_HOME": "config",
        "XDG_DATA_HOME": "data",
        "XDG_STATE_HOME": "state",
        "XDG_RUNTIME_DIR": "run",
        "JP_USER_DATA_DIR": "jp",
    }.items():
        path = (runtime if name == "run" else base) / name
        path.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(path))
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "5")
    # Exporting the model takes a core for seconds; the test of it allows it.
    monkeypatch.setenv("KBTUI_EXPORT", "off")
    monkeypatch.setenv("LANG", "C.UTF-8")
    for variable in ("NO_COLOR", "JP_GLOBAL_CONFIG_DIR", "KBTUI_MODEL", "COLUMNS", "LINES"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "LLM_USER_PATH"):
        monkeypatch.delenv(variable, raising=False)
    assert os.environ["HOME"].startswith(str(base))
    yield base
    for path in {base, runtime}:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def workspace_root(tmp_path: Path) -> Path:
    """An empty JP workspace."""
    root = tmp_path / "ws"
    (root / ".jp").mkdir(parents=True)
    return root


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path is short enough for a socket, wherever temporary ones lie."""
    with tempfile.TemporaryDirectory(prefix="kb-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture(scope="session")
def stand_in() -> Iterator[list[str]]:
    """Return what starts `kbtui mcp`, or a Python file of an MCP server, with nothing to import.

    The words of the command, or the file and its words, come after it.
    """
    import mcp.server.lowlevel
    import mcp.server.stdio  # noqa: F401
    from running import serve_programs

    import kbtui.assistant.mcp_server
    import kbtui.cli.assistant_tool_commands  # noqa: F401

    ours, write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="kb-", dir="/tmp") as directory:
        path = f"{directory}/programs"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen()
            pid = os.fork()
            if pid == 0:
                os.close(write)
                serve_programs(listener, ours)
        os.close(ours)
        yield [sys.executable, "-IS", str(Path(__file__).with_name("stand_in.py")), path]
        os.close(write)
        os.waitpid(pid, 0)


@pytest.fixture(scope="session")
def exported(pytestconfig: pytest.Config) -> Path:
    """The directory of an export of the model, which an engine loads in a second.

    Runs share it until the module that exports or an installed package changes, because the export takes
    a core for ten seconds.
    """
    from kbtui.index import embedding_model

    packages = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions())
    made_by = Path(embedding_model.__file__).read_bytes() + repr(packages).encode()
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir(f"exported-{hashlib.sha256(made_by).hexdigest()[:16]}")
    with (cache / "lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        fcntl.flock(lock, fcntl.LOCK_EX)
        model = embedding_model.find_embedding_model("")
        path = embedding_model.get_onnx_export_path(model)
        if not path.exists():
            embedding_model.export_model_to_onnx(model)
    return path.parent


@pytest.fixture
def with_export(home: Path, exported: Path) -> Path:
    """Return the path of the export in this test's home directory."""
    from kbtui.index.embedding_model import find_embedding_model, get_onnx_export_path

    target = get_onnx_export_path(find_embedding_model(""))
    shutil.copytree(exported, target.parent)
    return target
