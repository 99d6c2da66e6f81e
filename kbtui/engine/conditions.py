"""When embedding waits: on battery, or while the machine has other work (the setting `embed_pause`)."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_SECONDS = 5.0
"""How often the machine is looked at."""
BUSY, OURS = 0.75, 1.0
"""Load a core from which the machine is busy with other things, and what embedding itself adds."""


class Conditions:
    """`pause` is the setting: never, battery, load or either. The rest is replaced in tests."""

    def __init__(
        self,
        pause: str,
        *,
        on_battery: Callable[[], bool] | None = None,
        load: Callable[[], float] = lambda: os.getloadavg()[0],
        cores: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pause = pause
        self._on_battery, self._load, self._clock = on_battery or is_on_battery, load, clock
        self._cores = cores or os.cpu_count() or 1
        self._looked = -LOOK_SECONDS
        self._reason: str | None = None

    def reason(self) -> str | None:
        """Why work waits, in a phrase; None when it need not."""
        if self._pause == "never":
            return None
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            self._looked, self._reason = now, self._look()
        return self._reason

    def _look(self) -> str | None:
        if self._pause in {"battery", "either"} and self._on_battery():
            return "the computer runs on battery"
        if self._pause in {"load", "either"}:
            # While we work, our own load is in the figure.
            most = self._cores * (BUSY if self._reason else BUSY + OURS)
            if self._load() > most:
                return "the computer is busy"
        return None


def is_on_battery(supplies: Path = Path("/sys/class/power_supply")) -> bool:
    """Whether a battery is what the computer runs on; False where that cannot be told."""
    if sys.platform == "darwin":
        import subprocess

        said = subprocess.run(["pmset", "-g", "batt"], capture_output=True, text=True, check=False)
        return "'Battery Power'" in said.stdout
    try:
        found = [(_fact(place, "type"), place) for place in sorted(supplies.iterdir())]
    except OSError:
        return False
    if any(kind != "Battery" and _fact(place, "online") == "1" for kind, place in found):
        return False
    return any(
        kind == "Battery" and _fact(place, "status") == "Discharging" for kind, place in found
    )


def _fact(place: Path, name: str) -> str:
    try:
        return (place / name).read_text("ascii", errors="replace").strip()
    except OSError:
        return ""
