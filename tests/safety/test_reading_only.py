"""Reading writes no file of the workspace and opens no connection, in every front end."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pty_support import Terminal
from running import on_pipe, on_terminal
from support import Builder, kill_engine, tree_hash
from watching import watched, without_network

from kbtui.workspace import open_workspace_at_root

ESCAPE = "\x1b[27u"
SCREENS = ["jjl\r", "2vvjG", "3", ":", "?", "p", "P", "D", "/retry", "B", "'", "s", "H", ".", "T", "4"]  # fmt: skip
READING: list[list[str]] = [
    ["topics"], ["topics", "--hidden", "--json"], ["learn", "guide", "**"], ["learn", "decisions", "nothing"],
    ["prompt"], ["prompt", "-k", "guide/**"], ["conversation", "ls"], ["c", "ls", "--archived", "--format", "json"],
    ["c", "grep", "retry"], ["c", "read", "TALK"], ["c", "export", "TALK"], ["show", "TALK:1"],
    ["show", "guide/about"], ["show", "guide/nothing"], ["cites", "TALK"], ["cites", "guide/about"],
    ["entries"], ["entries", "--json", "retry"], ["entry", "show", "guide/about"], ["entry", "show", "TALK"],
    ["search", "retry", "policy"], ["search", "retry", "--mode", "lexical", "--explain"], ["search", "--like", "guide/about"],
    ["insights"], ["insights", "erase"], ["source", "ls"], ["tools", "schema"], ["mcp"],
    ["tool", '{"action": "run", "root": "ROOT"}', '{"name": "learn", "arguments": {"topic": "guide"}}'],
    ["tool", '{"action": "run", "root": "ROOT"}', '{"name": "knowledge_search", "arguments": {"query": "retry"}}'],
    ["index"], ["index", "--rebuild"], ["engine", "status"], ["doctor"], ["paths"], ["model"], ["nonsense"],
]  # fmt: skip
WRITING = {
    "entry new, edit and rm": "write subjects",
    "source add, edit, approve, run and rm": "write kb-sources.toml and fetched subjects",
    "tools install and uninstall": "write tool definitions",
    "the workshop's w, e in the reader": "write kb.toml, open an editor",
}
"""Commands that are documented to write, and are not run here."""


@pytest.fixture
def copied(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    root = tmp_path / "ws"
    shutil.copytree(Path(__file__).parents[2] / "assets/demo", root)
    # JP keeps its own copies beside those of the workspace.
    (root / ".jp/.id").write_text("ab1cd\n")
    mine = home / "jp/workspace/ws-ab1cd"
    shutil.copytree(root / ".jp/conversations", mine / "conversations")
    yield root
    kill_engine(Builder(root))


QUICK = ["topics", "conversation", "show", "cites", "entries", "search", "index", "doctor"]
"""Commands of which the quick test runs the first form."""


def run_commands(root: Path, commands: list[list[str]]) -> list[str]:
    """Run reading commands; return the errors."""
    failed = []
    talk = f"jp-c{min(path.name for path in (root / '.jp/conversations').glob('1*'))[:11]}"
    for words in commands:
        given = [word.replace("TALK", talk).replace("ROOT", str(root)) for word in words]
        _, err, code = on_pipe(["-w", str(root), *given])
        # The exit code of `kbtui model` says that the model is switched off.
        if code not in {0, 1, 2, 3 * (words == ["model"])} or b"Traceback" in err:
            failed.append(f"{given}: {code} {err.decode()[-500:]}")
    return failed


def run_all(root: Path) -> list[str]:
    """Run every reading command and open every screen; return the errors."""
    failed = run_commands(root, READING)
    raw, code = on_terminal(["-w", str(root), "search", "retry"])
    if code:
        failed.append(raw.decode())
    terminal = Terminal(["-w", str(root)], 140, 40)
    terminal.until("index ready")
    for keys in SCREENS:
        terminal.keys(keys)
        terminal.settle(0.1)
        terminal.keys(ESCAPE * 2)
    terminal.keys("\x11")
    if terminal.leave():
        failed.append("the TUI")
    on_pipe(["-w", str(root), "engine", "stop"])
    return failed


def test_the_commands_for_reading_leave_the_files_and_the_network_alone(
    copied: Path, home: Path
) -> None:
    before = tree_hash(copied), tree_hash(home / "jp")
    commands = [next(words for words in READING if words[0] == name) for name in QUICK]
    with watched(copied, home / "jp") as watch:
        failed, attempts = without_network(lambda: run_commands(copied, commands))
        assert not failed
        assert watch.events() == []
    assert attempts == {}
    assert (tree_hash(copied), tree_hash(home / "jp")) == before


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_command_and_screen_leaves_the_files_and_the_network_alone(
    copied: Path, home: Path
) -> None:
    before = tree_hash(copied), tree_hash(home / "jp")
    with watched(copied, home / "jp") as watch:
        failed, attempts = without_network(lambda: run_all(copied))
        assert not failed
        assert watch.events() == []
    assert attempts == {}
    assert (tree_hash(copied), tree_hash(home / "jp")) == before


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", ["", "sentence-transformers/paraphrase-MiniLM-L3-v2"])
def test_the_model_never_goes_to_a_hub(
    copied: Path, home: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.delenv("KBTUI_MODEL")
    # Two topics are enough: embedding the whole demo takes minutes.
    for folder in (copied / "docs/guide", copied / ".jp/kb", copied / ".jp/conversations"):
        shutil.rmtree(folder)
    shutil.rmtree(home / "jp")
    (home / "config/kbtui").mkdir()
    (home / "config/kbtui/config.toml").write_text(f'model = "{model}"\n')

    def work() -> tuple[int, int]:
        indexed = on_pipe(["-w", str(copied), "index"])[2]
        asked = on_pipe(["-w", str(copied), "search", "how are failures handled", "--wait", "60"])
        on_pipe(["-w", str(copied), "engine", "stop"])
        return indexed, asked[2]

    with watched(copied) as watch:
        codes, attempts = without_network(work)
        assert watch.events() == []
    assert attempts == {}
    assert codes[1] == 0


def test_both_watches_can_tell(tmp_path: Path) -> None:
    def call() -> None:
        plug = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        plug.settimeout(0.1)
        try:
            plug.sendto(b"x", ("192.0.2.1", 9))
        except OSError:
            return

    file = tmp_path / "one"
    file.write_text("x")
    with watched(tmp_path) as watch:
        file.read_text()
        assert watch.events() == []
        file.touch()
        assert {what for what, _ in watch.events()} >= {"attributes changed"}
    assert without_network(call)[1]
    assert open_workspace_at_root(tmp_path).root == tmp_path.resolve()
