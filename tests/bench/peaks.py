"""Peak memory of processes: what is resident, and what of it is their own.

Resident memory counts the index files that a process has mapped, which the kernel may drop at any
time; a process's own (anonymous) memory is what it really costs.
"""

import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

EVERY_SECONDS = 0.003


class Peak(NamedTuple):
    """Megabytes."""

    resident: float
    own: float

    def __str__(self) -> str:
        return f"{self.resident:5.0f} MB resident, {self.own:5.0f} MB its own"


class Watch:
    """Looks at a process, every few milliseconds, until it is gone or `end` is called."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._resident = self._own = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self) -> Peak:
        """The peaks up to now."""
        self._over.set()
        self._thread.join()
        return Peak(self._resident / 1024, self._own / 1024)

    def _look(self) -> None:
        while not self._over.is_set():
            try:
                lines = self._status.read_text().splitlines()
            except OSError:
                return
            facts = dict(line.split(":", 1) for line in lines)
            if "VmHWM" not in facts:
                return  # it has ended, and waits to be asked for
            self._resident = max(self._resident, int(facts["VmHWM"].split()[0]))
            self._own = max(self._own, int(facts["RssAnon"].split()[0]))
            time.sleep(EVERY_SECONDS)


def peak_of(words: Sequence[str]) -> Peak:
    """Of a whole process, which must not fail."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        watch = Watch(process.pid)
        process.wait()
    found = watch.end()
    assert process.returncode == 0, (words, process.returncode)
    return found
