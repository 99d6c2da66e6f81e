"""Runs another program, such as an editor, in the user's terminal, and waits until the program exits."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def run_program_in_terminal(words: Sequence[str], directory: str | None = None) -> int:
    """Run a program with the terminal of this process, and return its exit code.

    `words` are the program and its arguments; no shell interprets them. The program runs in
    `directory`; None means the working directory of this process. Raises `OSError` if the program
    cannot be started.
    """
    with _ignore_interrupts():
        return subprocess.call(list(words), cwd=directory)


@contextlib.contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C in this process within the `with` block. The other program still receives it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # The other program does not inherit this handler; it would inherit SIG_IGN.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
