"""Somebody else's text in every pane and screen, narrow and wide, whatever a person chose to be done with it."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile_terminal import ESCAPE, PASTED, check
from pty_support import Terminal
from support import Builder

TALK = "jp-c17800000001"


@dataclass(frozen=True)
class Place:
    """A pane or screen: the keys that lead to it, what is then seen, and what is done there."""

    name: str
    keys: str
    seen: str
    done: tuple[str, ...]


PANES = (
    Place("subject", "#", "Go to", ("bad/front\r", "v", "v", "G", "a")),
    Place("code", "#", "Go to", ("bad/code\r", "v", "G")),
    Place(
        "conversation", "#", "Go to", (f"{TALK}\r", "t", "r", "a", "n", "w", "G", "c", "Y", ESCAPE)
    ),
    Place("library", "1", "─ Library ", ("j", "j", "l", "G", "f", PASTED, ESCAPE)),
    Place("citations", "3", "CITED", ("j", "j", "J")),
    Place("results", "/\x7f", "─ Search ", ("harmless", "\x1b[B", ESCAPE, "m")),
)
SCREENS = (
    Place("finding", "2f", "", (PASTED, "\r", "n")),
    Place("why", "/\x7f", "─ Search ", ("harmless", "\x1b[B", ESCAPE, "x", "G")),
    Place("palette", ":", "Command palette", (PASTED, "\r")),
    Place("go to", "#", "Go to", (PASTED, "\r")),
    Place("prompt", "p", "<knowledge>", ("v", "G")),
    Place("workshop", "P", "Prompt workshop", ("j", " ", "v", "\t", "G", "w")),
    Place("trying", "P", "Prompt workshop", ("/", PASTED, "\r")),
    Place("doctor", "D", "Doctor", ("n", "n", "G")),
    Place("entries", "E", "Entries", ("j", "j", "j", "j", "\r", "G", " ")),
    Place("filtered", "E", "Entries", ("f", PASTED, "\r")),
    Place("entry", "+", "New entry", (PASTED, "\t", PASTED, "\x13")),
    Place("sources", "S", "Sources", ("a", "G", ESCAPE, "j", "\r")),
    Place("source", "S", "Sources", ("n", PASTED, "\t", PASTED, "\x13")),
    Place("insights", "I", "Insights", ("n", "d", "G")),
    Place("export", "#", "Go to", (f"{TALK}\r", "2", "X", PASTED, "\x13")),
    Place("bookmark", "#", "Go to", (f"{TALK}\r", "2", "B", PASTED, "\r")),
    Place("bookmarks", "'", "Bookmarks", ("j", "e", PASTED, "\r")),
    Place("jumping", ";", "", ("a",)),
    Place("similar", "s", "", ("\x1b[B", "\x1b[B")),
    Place("home", "H", "", ("G",)),
    Place("help", "?", "Help", ("G",)),
    Place("dark or light", "T", "", ("T", ".", "z", "=")),
)
SIZES = {60: 20, 80: 24, 160: 45}


def reach(terminal: Terminal, place: Place) -> None:
    """On a slow machine what came before may still be there, and take the keys."""
    for seconds in (10.0, 10.0, 40.0):
        terminal.keys(place.keys)
        with suppress(AssertionError):
            terminal.until(place.seen, seconds)
            return
        terminal.keys(ESCAPE * 4)
        terminal.settle(0.5, 5.0)
    raise AssertionError(f"{place.name} was not reached:\n{terminal.read()}")


def go_through(terminal: Terminal, places: tuple[Place, ...]) -> None:
    for place in places:
        reach(terminal, place)
        for keys in place.done:
            terminal.keys(keys)
            terminal.settle(0.1, 2.0)
        terminal.keys(ESCAPE * 4)
        terminal.settle(0.1, 2.0)


FEW = tuple(place for place in PANES if place.name in {"conversation", "library"})
EACH = [
    pytest.param("off", 80, FEW, id="off-80-few"),
    *(
        pytest.param(policy, columns, places, id=f"{policy}-{columns}-{name}", marks=pytest.mark.slow)
        for policy in ("strip", "visualize", "off")
        for columns in SIZES
        for name, places in (("panes", PANES), ("screens", SCREENS))
    ),
]  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("policy", "columns", "places"), EACH)
def test_nothing_commands_the_terminal(
    hostile: Builder, home: Path, policy: str, columns: int, places: tuple[Place, ...]
) -> None:
    (home / "config/kbtui").mkdir()
    (home / "config/kbtui/config.toml").write_text(f'terminal_text = "{policy}"\n')
    # It starts at another size and is then resized: what is drawn again must be safe too.
    terminal = Terminal(["-w", str(hostile.root), "open", f"{TALK}:1"], 100, 30)
    terminal.until("keywords only")
    terminal.resize(columns, SIZES[columns])
    go_through(terminal, places)
    terminal.keys("\x11")
    assert terminal.leave() == 0, terminal.read()
    check(terminal.raw, stripped=policy == "strip")
    # Also with "off" the screen shows what it would not let through.
    assert ("␛" in terminal.raw.decode()) == (policy != "strip")
