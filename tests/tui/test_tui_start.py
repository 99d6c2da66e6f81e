"""Starting: what is imported, what happens without a terminal, and where standard error goes."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from pty_support import Terminal
from support import Builder, end_engine
from tui_support import WithoutEngine, clock, running

from kbtui.tui.app import KbtuiApp
from kbtui.workspace import load_settings

HEAVY = {
    "torch",
    "lancedb",
    "pyarrow",
    "sentence_transformers",
    "tantivy",
    "numpy",
    "mcp",
    "watchfiles",
}


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )


def test_the_start_imports_nothing_heavy() -> None:
    done = python("import kbtui.tui.app, sys, json; print(json.dumps(sorted(sys.modules)))")
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & (HEAVY | {"yaml", "markdown_it", "pygments"})


def test_a_running_tui_imports_neither_torch_nor_lancedb(book: Builder) -> None:
    code = """
import asyncio, json, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from tui_support import running
async def main():
    async with running(Path(sys.argv[1])) as tui:
        await tui.open("project/start")
        await tui.press("slash")
        await tui.type("make")
        await tui.until_hits()
asyncio.run(main())
print(json.dumps(sorted(sys.modules)))
"""
    here = Path(__file__).parent
    done = python(code, str(book.root), str(here), str(here.parent))
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert not loaded & {"torch", "sentence_transformers", "lancedb", "pyarrow"}


async def test_the_first_paint_waits_for_nothing(book: Builder) -> None:
    from threading import Event

    released = Event()

    class Slow(WithoutEngine):
        def load_knowledge(self, *words: object, **more: object):  # type: ignore[no-untyped-def,override]
            released.wait(30)
            return super().load_knowledge()

    app = KbtuiApp(Slow(book.workspace, load_settings()), None, clock)
    try:
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.pause()
            text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
            assert "Search topics and conversations" in text
            assert "Reading the workspace" in text
            # Keys work while it is being read.
            await pilot.press("slash", "x")
            assert app.screen.query_one("#search").value == "x"  # type: ignore[attr-defined]
            released.set()
    finally:
        released.set()


async def test_leaving_does_not_wait_for_slow_calls(book: Builder) -> None:
    from threading import Event

    never = Event()

    class Stuck(WithoutEngine):
        def conversations(self, archived: bool | None = None):  # type: ignore[no-untyped-def,override]
            never.wait(60)
            return []

    app = KbtuiApp(Stuck(book.workspace, load_settings()), None, clock)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("q")
    assert not app.is_running
    never.set()


def test_a_pipe_gets_a_message_and_exit_code_2(book: Builder) -> None:
    for words in (["-w", str(book.root)], ["-w", str(book.root), "open", "project/start"]):
        done = subprocess.run(
            [sys.executable, "-m", "kbtui.cli.main", *words],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 2
        assert done.stdout == ""
        assert "needs a terminal" in done.stderr
        assert "kbtui search" in done.stderr


@pytest.mark.slow
def test_the_terminal_says_how_large_it_is_and_not_what_was_exported(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    terminal = Terminal(["-w", str(book.root)], 120, 30, COLUMNS="60", LINES="15")
    terminal.until("Project Handbook")
    terminal.until(lambda shown: len(shown.split("\n")[1]) == 120 and "quit" in shown)
    terminal.resize(90, 20)
    terminal.until(
        lambda shown: shown.split("\n")[1][-1:] == "╮" and "quit" in shown.split("\n")[19]
    )
    terminal.keys("q")
    assert terminal.leave() == 0
    end_engine(book)


def test_a_terminal_that_cannot_place_its_cursor_is_refused(book: Builder) -> None:
    terminal = Terminal(["-w", str(book.root)], TERM="dumb")
    assert terminal.leave() == 2
    assert "TERM is 'dumb'" in terminal.raw.decode()
    assert "\x1b" not in terminal.raw.decode()


def test_sigterm_gives_the_terminal_back(book: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    terminal = Terminal(["-w", str(book.root)])
    terminal.until("Project Handbook")
    terminal.child.kill(signal.SIGTERM)
    assert terminal.leave() == 128 + signal.SIGTERM
    assert terminal.raw.rstrip().rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
    end_engine(book)


BROKEN = """
import sys
from kbtui.cli.main import main
from kbtui.tui.app import KbtuiApp
def broken(self):
    secret = "what stands in a file"
    raise RuntimeError("a mistake")
KbtuiApp.action_switch_light_or_dark = broken
sys.exit(main(sys.argv[1:]))
"""


def test_a_mistake_of_our_own_is_said_after_the_screen_and_kept_in_the_log(
    book: Builder, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    terminal = Terminal(["-w", str(book.root)], program=["-c", BROKEN])
    terminal.until("Project Handbook")
    terminal.keys("T")
    assert terminal.leave() == 3
    said = terminal.raw.decode().partition("\x1b[?1049l")[2]
    assert "kbtui crashed: RuntimeError: a mistake" in said
    assert "hint" in said
    assert "Traceback" not in said
    log = (home / "state/kbtui/tui.log").read_text()
    assert "in broken" in log
    # The log has the stack, but no values.
    assert "what stands in a file" not in log.replace('secret = "what stands in a file"', "")
    end_engine(book)


def test_a_missing_workspace_is_said_before_the_screen_is_taken(tmp_path: Path) -> None:
    child = pexpect.spawn(
        sys.executable,
        ["-m", "kbtui.cli.main", "-w", str(tmp_path / "none")],
        timeout=30,
        encoding="utf-8",
    )
    shown = child.read()
    child.close()
    assert child.exitstatus == 3
    assert "no such directory" in shown
    assert "hint" in shown
    assert "\x1b[?1049h" not in shown


GUARD = """
import os, sys
from pathlib import Path
from kbtui.tui.terminal_setup import StderrRedirect
redirect = StderrRedirect(Path(sys.argv[1]))
redirect.redirect_stderr()
sys.__stderr__.write("drawn\\n"); sys.__stderr__.flush()
os.write(2, b"native noise\\n")
with redirect.restore_stderr_temporarily():
    os.write(2, b"an editor speaks\\n")
os.write(2, b"more noise\\n")
redirect.restore_stderr()
os.write(2, b"a traceback\\n")
"""


def test_native_noise_goes_to_a_log_and_only_while_the_screen_is_ours(tmp_path: Path) -> None:
    log = tmp_path / "state" / "tui.log"
    shown = pexpect.run(
        f"{sys.executable} -c '{GUARD}' {shlex.quote(str(log))}", timeout=30, encoding="utf-8"
    )
    assert shown.split("\r\n") == ["drawn", "an editor speaks", "a traceback", ""]
    assert log.read_text() == "native noise\nmore noise\n"
    assert log.stat().st_mode & 0o077 == 0


def test_a_redirected_standard_error_is_left_alone(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    log = tmp_path / "tui.log"
    script = tmp_path / "guard.py"
    script.write_text(GUARD)
    shown = pexpect.run(
        f'/bin/sh -c \'{sys.executable} "{script}" "{log}" 2>"{errors}"\'',
        timeout=30,
        encoding="utf-8",
    )
    assert shown == "drawn\r\n"
    assert "native noise" in errors.read_text()
    assert not log.exists()


async def test_a_reference_is_opened_at_the_start(book: Builder) -> None:
    from kbtui.references import parse_ref

    ref = parse_ref("jp-c17800000001:2")
    async with running(book.root, open_ref=ref) as tui:
        await tui.until("turn 2 of 3")
        assert tui.app.focused is not None


def test_open_resolves_chunks_to_where_they_are_from(book: Builder) -> None:
    from kbtui.errors import NothingFound
    from kbtui.search.search_request_and_answer import SearchRequest

    library = WithoutEngine(book.workspace, load_settings())
    try:
        for query in ("program", "three times"):
            hit = library.search_by_keywords(SearchRequest(query)).hits[0]
            assert str(library.resolve_reference(f"chunk:{hit.chunk_id}")) == hit.ref
        with pytest.raises(NothingFound):
            library.resolve_reference("chunk:nosuchchunk")
    finally:
        library.close()


async def test_the_theme_of_the_settings_is_used_and_an_unknown_one_is_not(book: Builder) -> None:

    settings = load_settings()
    for wanted, got in (("nord", "nord"), ("no-such-theme", "kbtui-dark"), ("", "kbtui-dark")):
        library = WithoutEngine(book.workspace, settings._replace(theme=wanted))
        async with running(book.root, library=library) as tui:
            assert tui.app.theme == got


def test_environment_is_not_left_changed(book: Builder) -> None:
    before = dict(os.environ)
    KbtuiApp(WithoutEngine(book.workspace, load_settings()), None, clock)
    assert dict(os.environ) == before
