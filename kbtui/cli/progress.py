"""One line on standard error that says what is being done, on a terminal, after half a second."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import Self

QUIET_SECONDS = 0.5
"""What is done sooner says nothing."""
EVERY_SECONDS = 0.1


class ProgressLine:
    """A line that is written over; `with Progress() as progress` takes it away at the end."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._shown = False
        self._counted: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Say this, when it is time to."""
        now = time.monotonic()
        if now - self._began < QUIET_SECONDS or now - self._last < EVERY_SECONDS * self._shown:
            return
        if not sys.stderr.isatty():
            return
        from kbtui.text import cut, one_line

        self._last, self._shown = now, True
        sys.stderr.write(f"\r\x1b[K{cut(one_line(text), _columns() - 1)}")
        sys.stderr.flush()

    def count(self, what: str, done: int, total: int | None) -> None:
        """Say how much is done; how long the rest takes, once that can be told from what was."""
        if total is None:
            self.show(f"{what} {done:,}")
            return
        now = time.monotonic()
        if self._counted is None or done < self._counted[1]:
            self._counted = (now, done)
        since, first = self._counted
        text = f"{what} {done:,} of {total:,}"
        if now - since >= 1.0 and done > first:
            text += f", {left_text((now - since) / (done - first) * (total - done))}"
        self.show(text)

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


def left_text(seconds: float) -> str:
    """How long it will take, as exactly as that can be known."""
    if seconds < 10:
        return "some seconds left"
    if seconds < 90:
        return f"about {round(seconds / 10) * 10} s left"
    return f"about {round(seconds / 60)} min left"


def _columns() -> int:
    from kbtui.cli.output import columns

    return columns()


class working:
    """Says on standard error what is being waited for, and for how long already.

    Nothing is said in the first half second, nor where standard error is no terminal.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            import threading

            self._ended = threading.Event()
            self._thread = threading.Thread(target=self._tell, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()

    def _tell(self) -> None:
        began = time.monotonic()
        with ProgressLine() as progress:
            while not self._ended.wait(QUIET_SECONDS):
                progress.show(f"{self._what} … {time.monotonic() - began:.0f} s")
