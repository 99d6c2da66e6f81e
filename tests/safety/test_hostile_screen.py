"""Somebody else's text on every screen of the TUI: a real terminal gets nothing but what Textual draws."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hostile_terminal import ESCAPE, PASTED, check
from pty_support import Terminal
from support import Builder

from kbtui.tui.framework.tui_command_definition import TuiCommand
from kbtui.tui.tui_command_table import MAIN_SCREEN_COMMANDS


def walk(terminal: Terminal, commands: Sequence[TuiCommand], quiet: float) -> None:
    """Through all screens, with hostile text pasted wherever text is entered."""
    terminal.until(lambda shown: "The good topic" in shown and "Evil talk" in shown)
    terminal.until("keywords only")
    for name in ("bad/front", "bad/code", "Evil talk"):
        terminal.keys(":")
        terminal.until("Command palette")
        terminal.keys(name)
        terminal.until(lambda seen, name=name: name in seen.partition("Command palette")[2])
        terminal.keys("\r")
        terminal.until(lambda seen, name=name: f"╮╭─ {name}" in seen)
        for keys in ("2vtr", "vGg", "vnN", "3j", "1jlj"):
            terminal.keys(keys)
            terminal.settle(quiet)
    terminal.keys("/")
    terminal.settle()
    terminal.keys("harmless")
    terminal.until("good/plain:")
    terminal.keys("\x1b[B\x1b[B\r")
    terminal.settle()
    terminal.keys(f"{ESCAPE}{ESCAPE}")
    terminal.settle()
    for command in commands:
        press(terminal, command, quiet)


def press(terminal: Terminal, command: TuiCommand, quiet: float) -> None:
    """Its key, text where it may be entered, and back."""
    key = command.keys.split(",")[0]
    terminal.keys(KEYS.get(key, key if len(key) == 1 else ""))
    if quiet > 0.1 or command.id in TAKES_TEXT:
        terminal.settle(quiet)
        terminal.keys(PASTED)
    terminal.keys("jj")
    terminal.settle(quiet)
    terminal.keys(ESCAPE * 2)


TAKES_TEXT = {"search", "palette", "reader.find", "library.filter", "bookmark", "workshop"}
KEYS = {
    "slash": "/", "question_mark": "?", "full_stop": ".", "left_square_bracket": "[",
    "right_square_bracket": "]", "colon": ":", "enter": "\r", "escape": "\x1b[27u", "tab": "\t",
    "shift+tab": "\x1b[Z", "space": " ", "down": "\x1b[B", "up": "\x1b[A", "pagedown": "\x1b[6~",
    "pageup": "\x1b[5~", "home": "\x1b[H", "end": "\x1b[F",
    **{f"ctrl+{letter}": chr(ord(letter) - 96) for letter in "abcdefghijklmnopqrstuvwxyz"},
}  # fmt: skip


LEAVING = {"quit"}
SCREENS = frozenset(
    {
        "search",
        "palette",
        "similar",
        "bookmark",
        "bookmarks",
        "prompt",
        "workshop",
        "doctor",
        "home",
        "help",
    }
)
USUAL = [command for command in MAIN_SCREEN_COMMANDS if command.id in SCREENS]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("policy", "quiet"),
    [("strip", 0.1), *[pytest.param(p, 0.3, marks=pytest.mark.slow) for p in ("visualize", "off")]],
)
@pytest.mark.slow
def test_no_screen_lets_hostile_text_command_the_terminal(
    hostile: Builder, home: Path, policy: str, quiet: float
) -> None:
    (home / "config/kbtui").mkdir()
    (home / "config/kbtui/config.toml").write_text(f'terminal_text = "{policy}"\n')
    terminal = Terminal(["-w", str(hostile.root)], 140, 45)
    walk(terminal, USUAL, quiet)
    shown = terminal.raw.decode()
    terminal.keys("\x11")
    assert terminal.leave() == 0, terminal.read()
    check(terminal.raw, stripped=policy == "strip")
    # Where nothing is removed, it is shown.
    assert ("␛" in shown) == (policy != "strip")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("columns", "lines"), [(60, 20), (80, 24), (200, 60)])
@pytest.mark.parametrize("pane", ["1", "2", "3", "4"])
def test_no_key_in_no_pane_lets_it(hostile: Builder, columns: int, lines: int, pane: str) -> None:
    terminal = Terminal(["-w", str(hostile.root)], columns, lines)
    terminal.until("keywords only")
    terminal.keys("/harmless")
    terminal.until("bad/")
    terminal.keys(f"\r{ESCAPE}{ESCAPE}")
    for command in MAIN_SCREEN_COMMANDS:
        if command.id not in LEAVING:
            terminal.keys(ESCAPE + pane)
            press(terminal, command, 0.2)
    terminal.keys("\x11")
    assert terminal.leave() == 0, terminal.read()
    check(terminal.raw, stripped=True)
