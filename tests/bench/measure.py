"""Measuring: medians with spread, side by side, so that a noisy machine disturbs both."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass
class Row:
    """One line of the report. `ratio` is ours over the baseline's median."""

    name: str
    ours: list[float]
    baseline_name: str
    baseline: list[float]
    target: str
    higher_is_better: bool = False
    remark: str = ""

    @property
    def ratio(self) -> float:
        ours, base = statistics.median(self.ours), statistics.median(self.baseline)
        return base / ours if self.higher_is_better else ours / base

    def __str__(self) -> str:
        remark = f"  {self.remark}" if self.remark else ""
        return (
            f"{self.name:<52} {spread(self.ours)}  /  {spread(self.baseline)} {self.baseline_name:<38}"
            f" = {self.ratio:5.2f}x   (target {self.target}){remark}"
        )


def spread(seconds: Sequence[float]) -> str:
    """Median and the range of the middle half, in milliseconds."""
    held = sorted(seconds)
    low, high = held[len(held) // 4], held[-1 - len(held) // 4]
    return f"{statistics.median(held) * 1000:8.1f} ms [{low * 1000:.0f}-{high * 1000:.0f}]"


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def side_by_side(
    ours: Callable[[], object], baseline: Callable[[], object], times: int
) -> tuple[list[float], list[float]]:
    """Both, in turns, after one of each for warmth."""
    ours(), baseline()
    first, second = [], []
    for _ in range(times):
        second.append(timed(baseline))
        first.append(timed(ours))
    return first, second


def process(
    words: Sequence[str], environment: Mapping[str, str] | None = None, *, ok: Sequence[int] = (0,)
) -> Callable[[], object]:
    """A whole process as a call; its output goes nowhere."""
    env = {**os.environ, **(environment or {})}

    def call() -> object:
        done = subprocess.run(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, check=False
        )
        assert done.returncode in ok, (words, done.stderr[-500:])
        return done

    return call
