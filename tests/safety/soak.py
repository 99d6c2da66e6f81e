"""`python -m tests.safety.soak --minutes N`: edit, search and grow, and draw what it takes.

An edit a second, five searches a second, and a conversation that grows to `--megabytes`, on
a workspace and in directories of its own. Memory, descriptors, threads, disk and latency are
written to `soak.csv` and drawn to `soak.svg`; it fails when one of them still grows after
the first half.
"""

import argparse
import csv
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import FIRST_ID, Builder, asked, said, stamp

WORDS = [f"{a}{b}" for a in ("river", "otter", "alder", "heron", "stone") for b in range(200)]
CURVES = {
    "engine_mb": "engine, memory, MB",
    "client_mb": "client, memory, MB",
    "client_mapped_mb": "client, the index's files that it has mapped, MB",
    "descriptors": "engine, open files",
    "threads": "engine, threads",
    "disk_mb": "cache on disk, MB",
    "conversation_mb": "the conversation, MB",
    "lexical_ms": "keyword search, median, ms",
    "hybrid_ms": "hybrid search, median, ms",
    "behind_s": "edit until found, s",
    "engine_cpu": "engine, processor, cores",
    "machine_ms": "the same piece of work each time, median, ms",
}
GROWTH_MOST = {"engine_mb": 1.25, "client_mb": 1.15, "descriptors": 1.3, "threads": 1.3, "lexical_ms": 1.7, "hybrid_ms": 1.7, "behind_s": 1.5, "engine_cpu": 1.5}  # fmt: skip
"""The highest allowed ratio of the last quarter's median to that of the second quarter.

Lance starts up to a dozen threads when a table of 10,000 rows gets its first index.
"""
OF_THE_MACHINE = frozenset({"lexical_ms", "hybrid_ms"})
"""Compared with the time of a fixed piece of work, so that other load on the machine does not count."""

SOON = 3.0
"""The seconds within which a marked edit should be found; a longer time is shown while it lasts."""


class Bed:
    """A workspace, the changes to it, and the clients that search it."""

    def __init__(self, base: Path, minutes: float, megabytes: float) -> None:
        for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
                     "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "JP_USER_DATA_DIR"):  # fmt: skip
            place = base / name.lower()
            place.mkdir(mode=0o700)
            os.environ[name] = str(place)
        from kbtui.library import Library
        from kbtui.workspace import load_settings

        self.random = random.Random(1)
        self.numbers = [self.random.random() for _ in range(20_000)]
        self.builder = Builder(base / "ws")
        self.builder.topics(notes={})
        for number in range(200):
            self.edit(number)
        for number in range(1, 50):
            turns = [[asked(self.text(20)), said(self.text(80))]] * 6
            self.builder.conversation(number, turns, title=f"Talk {number}")
        self.step = megabytes * (1 << 20) / max(1.0, minutes * 60 / 10)
        self.size = 0
        self.library = Library(self.builder.workspace, load_settings())
        self.engine = psutil.Process(self.library.connect_engine().pid)
        self.spent = (time.monotonic(), 0.0)

    def text(self, count: int) -> str:
        return " ".join(self.random.choices(WORDS, k=count))

    def edit(self, number: int, mark: str = "") -> None:
        parts = "\n\n".join(f"## Part {n}\n\n{self.text(90)}" for n in range(5))
        self.builder.subject(f"notes/n{number}.md", f"# Note {number}\n\n{mark}\n\n{parts}\n")

    def grow(self) -> None:
        """Append to the conversation like JP, which writes a new file and renames it over the old one.

        What is there is copied and not read, so that this process's memory is the client's.
        """
        folder = self.builder.root / f".jp/conversations/{FIRST_ID + 99}"
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"title": "The long one", "last_activated_at": stamp(_now())}
        (folder / "metadata.json").write_text(json.dumps(facts))
        (folder / "base_config.json").write_text("{}")
        old, fresh = folder / "events.json", folder / "events.tmp"
        if old.exists():
            shutil.copyfile(old, fresh)
        with fresh.open("ab") as file:
            file.truncate(max(0, self.size - len("\n]")))
            opening, end = ("[\n" if not self.size else ",\n"), self.size + self.step
            while file.tell() < end:
                file.write((opening + ",\n".join(self.turn())).encode())
                opening = ",\n"
            file.write(b"\n]")
        self.size = fresh.stat().st_size
        fresh.replace(old)

    def turn(self) -> list[str]:
        """Return the elements of one more turn as they are in the file."""
        text = self.text(400)
        when = {"timestamp": "2026-01-01 00:00:00.0"}
        events = [{"type": "turn_start"}, asked(text[:200]), said(text)]
        return [
            "  " + json.dumps({**when, **event}, indent=2).replace("\n", "\n  ") for event in events
        ]

    def ask(self, mode: str) -> float:
        from kbtui.search.search_request_and_answer import SearchRequest

        began = time.perf_counter()
        self.library.search(SearchRequest(self.text(2), mode=mode), wait=0.0)  # type: ignore[arg-type]
        return (time.perf_counter() - began) * 1000

    def work(self) -> float:
        """Return how long a fixed piece of work takes now, in milliseconds."""
        began = time.perf_counter()
        sorted(range(20_000), key=self.numbers.__getitem__)
        return (time.perf_counter() - began) * 1000

    def finds(self, mark: str) -> bool:
        from kbtui.search.search_request_and_answer import SearchRequest

        return bool(self.library.search_by_keywords(SearchRequest(mark, mode="lexical")).hits)


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


def soak(bed: Bed, minutes: float, out: Path) -> list[dict[str, float]]:
    """Run the test and write a row every ten seconds."""
    rows: list[dict[str, float]] = []
    began = time.monotonic()
    second = 0
    spans: dict[str, list[float]] = {"lexical": [], "hybrid": [], "machine": []}
    mark, marked, since, behind = "", -1, 0.0, float("nan")
    with (out / "soak.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["seconds", *CURVES])
        table.writeheader()
        while (now := time.monotonic() - began) < minutes * 60:
            if mark and bed.finds(mark):
                behind, mark = now - since, ""
            elif mark and now - since > SOON:
                behind = now - since  # it is late, and not known yet by how much
            number = bed.random.randrange(200)
            if not mark:
                mark, marked, since = f"marked{second}", number, now
            # The marked subject does not change until it is found.
            bed.edit(number, mark if number == marked else "")
            for number in range(5):
                mode = "hybrid" if number % 2 else "lexical"
                spans[mode].append(bed.ask(mode))
            spans["machine"].append(bed.work())
            if second % 10 == 0:
                bed.grow()
                row = {"seconds": round(now, 1), **measured(bed, spans), "behind_s": behind}
                rows.append(row)
                table.writerow(row)
                file.flush()
                spans = {name: [] for name in spans}
            second += 1
            time.sleep(max(0.0, began + second - time.monotonic()))
    return rows


def measured(bed: Bed, spans: dict[str, list[float]]) -> dict[str, float]:
    cache = bed.builder.workspace.cache_dir
    disk = 0
    for path in cache.rglob("*"):
        try:
            disk += 0 if path.is_symlink() else path.stat().st_size
        except OSError:
            continue
    own, _ = memory(bed.engine)
    client, mapped = memory(psutil.Process())
    (then, before), used = bed.spent, sum(bed.engine.cpu_times()[:2])
    bed.spent = (time.monotonic(), used)
    return {
        "engine_mb": own,
        "client_mb": client,
        "client_mapped_mb": mapped,
        "descriptors": bed.engine.num_fds(),
        "threads": bed.engine.num_threads(),
        "disk_mb": round(disk / 1e6, 1),
        "conversation_mb": round(bed.size / 1e6, 1),
        **{f"{name}_ms": round(statistics.median(spans[name]), 2) for name in spans},
        "engine_cpu": round((used - before) / (bed.spent[0] - then), 2),
    }


def memory(process: psutil.Process) -> tuple[float, float]:
    """Return a process's private memory and its unshared mapped files, in MB.

    The second is mostly the keyword index, which the system may keep in memory or drop.
    """
    try:
        rows = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:  # another system than Linux
        return round(process.memory_full_info().uss / 1e6, 1), float("nan")
    size = {name: int(row.split()[0]) for name, _, row in (row.partition(":") for row in rows)}
    clean = round(size["Private_Clean"] * 1024 / 1e6, 1)
    return round((size["Private_Dirty"] + size["Swap"]) * 1024 / 1e6, 1), clean


def drawn(rows: list[dict[str, float]]) -> str:
    """Return the curves, one below the other, as SVG."""
    width, height, gap = 720, 90, 34
    last = rows[-1]["seconds"] or 1.0
    parts = []
    for place, (name, label) in enumerate(CURVES.items()):
        points = [(row["seconds"], row[name]) for row in rows if row[name] == row[name]]
        if not points:
            continue
        most = max(value for _, value in points) or 1.0
        top = place * (height + gap) + gap
        line = " ".join(
            f"{60 + x / last * (width - 70):.1f},{top + height - y / most * height:.1f}"
            for x, y in points
        )
        parts.append(
            f'<text x="60" y="{top - 6}">{label}: at most {most:g}, at the end {points[-1][1]:g}</text>'
            f'<line x1="60" x2="{width - 10}" y1="{top + height}" y2="{top + height}" stroke="#999"/>'
            f'<text x="54" y="{top + height}" text-anchor="end">0</text>'
            f'<polyline points="{line}" fill="none" stroke="#2a6f97" stroke-width="1.5"/>'
        )
    total = len(CURVES) * (height + gap) + gap
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def grown(rows: list[dict[str, float]]) -> list[str]:
    """Return the figures that are too much higher in the last quarter than in the second one."""
    quarter = len(rows) // 4
    found = []
    for name, most in GROWTH_MOST.items():
        before, after = median(rows[quarter : 2 * quarter], name), median(rows[3 * quarter :], name)
        said_ = f"{CURVES[name]}: {before:g} → {after:g}"
        load = 1.0
        if name in OF_THE_MACHINE:
            load = median(rows[3 * quarter :], "machine_ms") / median(
                rows[quarter : 2 * quarter], "machine_ms"
            )
            said_ += f", the machine {load:.2f} times as busy"
        print(said_)
        if after > before * most * load + 1:
            found.append(said_)
    return found


def median(rows: list[dict[str, float]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.safety.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--megabytes", type=float, default=50.0, help="of the conversation (50)")
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kb-", ignore_cleanup_errors=True) as base:
        bed = Bed(Path(base), args.minutes, args.megabytes)
        try:
            rows = soak(bed, args.minutes, args.out)
        finally:
            bed.library.connect_engine().stop_engine()
            bed.library.close()
    (args.out / "soak.svg").write_text(drawn(rows))
    found = grown(rows) if len(rows) >= 8 else []
    print(f"curves: {args.out / 'soak.svg'}")
    print("still growing: " + "; ".join(found) if found else "nothing goes on growing")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
