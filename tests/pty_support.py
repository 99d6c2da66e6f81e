"""The command in a pseudo-terminal, for tests that need a real one."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pexpect
import pyte

COMMAND = str(Path(sys.executable).parent / "kbtui")


class Terminal:
    """The command in a pseudo-terminal, and what a person sees on its screen."""

    def __init__(
        self,
        words: list[str],
        columns: int = 100,
        lines: int = 30,
        program: list[str] | None = None,
        **environment: str,
    ) -> None:
        """`program` is given to Python in place of the command."""
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.child = pexpect.spawn(
            sys.executable if program else COMMAND,
            [*(program or []), *words],
            dimensions=(lines, columns),
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment},
            timeout=30,
        )

    def read(self) -> str:
        with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
            while True:
                part = self.child.read_nonblocking(65536, timeout=0.05)
                self.raw += part
                self._stream.feed(part)
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, condition: str | Callable[[str], bool], seconds: float = 40.0) -> str:
        end = time.monotonic() + seconds
        while True:
            shown = self.read()
            if condition in shown if isinstance(condition, str) else condition(shown):
                return shown
            assert time.monotonic() < end, f"never saw {condition!r}:\n{shown}"

    def keys(self, text: str) -> None:
        self.child.send(text)

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        self.child.setwinsize(lines, columns)

    def settle(self, quiet: float = 0.2, most: float = 5.0) -> str:
        """What is shown once nothing new came for `quiet` seconds, or after `most`."""
        end = time.monotonic() + most
        changed = time.monotonic()
        while True:
            had = len(self.raw)
            shown = self.read()
            now = time.monotonic()
            if len(self.raw) != had:
                changed = now
            if now - changed >= quiet or now >= end:
                return shown

    def leave(self) -> int:
        end = time.monotonic() + 60
        while self.child.isalive():
            self.read()
            assert time.monotonic() < end, "it did not end"
        self.read()
        self.child.close()
        status, killed = self.child.exitstatus, self.child.signalstatus
        return int(status) if status is not None else -int(killed or 99)
