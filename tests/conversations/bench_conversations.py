"""Decoding against parsing, and grep against one jq into one rg (or grep): ratios of one run.

Run it by hand on an idle machine: `python tests/conversations/bench_conversations.py [COUNT]`.
"""

import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson
from jp_files import BASE, ID, Stream, write

from kbtui.conversations.events import Builder

HERE = Path(__file__).parent
PATTERN = "quicksilver zeppelin"


def corpus(root: Path, count: int) -> None:
    """Conversations whose texts are of the kinds and sizes that jp-format 2.11 counted."""
    chance = random.Random(7)
    words = [
        "".join(chance.choices("etaoinshrdlucmfwyp", k=chance.randint(2, 10))) for _ in range(4000)
    ]

    def text(size: int) -> str:
        lines, length = [], 0
        while length < size:
            lines.append(" ".join(chance.choices(words, k=12)) + chance.choice([".", ".", " – é"]))
            length += len(lines[-1])
        return "\n".join(lines)

    for number in range(count):
        stream = Stream().delta(**BASE, prompt=text(30_000))
        for turn in range(3):
            stream.turn().ask(text(1500)).think(text(1500), metadata={"x_signature": "A" * 2000})
            for call in range(9):
                stream.used("fs_read_file", f"{turn}.{call}", text(3500), path=f"src/{call}.rs")
            stream.say(text(600))
        if number % 100 == 0:
            stream.say(f"They said: {PATTERN.title()}!")
        write(root / ".jp", stream, number=ID + number, base=None)


def best(call: Callable[[], object], times: int = 5) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def processor(call: Callable[[], object]) -> float:
    """Seconds of processor time in other processes, which a busy machine changes least."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    finder = shutil.which("rg") or "grep"
    with tempfile.TemporaryDirectory() as folder:
        corpus(Path(folder), count)
        files = sorted(Path(folder).glob(".jp/conversations/*/events.json"))
        datas = [file.read_bytes() for file in files[:50]]
        parsed = [orjson.loads(data) for data in datas]

        def build() -> None:
            for elements in parsed:
                builder = Builder()
                builder.add(elements)
                builder.finish()

        parse = best(lambda: [orjson.loads(data) for data in datas])
        print(f"decoding takes {best(build) / parse:.1f} times as long as orjson takes to parse")
        size = sum(file.stat().st_size for file in files)
        print(f"{len(files)} conversations, {size / 1e6:.0f} MB")
        jq = (
            f"cat {folder}/.jp/conversations/*/events.json | jq -r -f {HERE}/decode.jq"
            f" | {finder} -F -i -c '{PATTERN}'"
        )
        ours = [sys.executable, "-m", "kbtui.cli.main", "-w", folder, "c", "grep", PATTERN]

        def baseline() -> None:
            subprocess.run(jq, shell=True, check=True, stdout=subprocess.DEVNULL)

        def command() -> None:
            subprocess.run(ours, check=True, capture_output=True)

        slow, fast = best(baseline, 2), best(command, 3)
        print(f"{jq}\n  {slow:.2f} s; kbtui {fast:.2f} s: {slow / fast:.1f} times as fast")
        slow, fast = processor(baseline), processor(command)
        print(f"  processor time: {slow:.2f} s; kbtui {fast:.2f} s: {slow / fast:.1f} times less")


if __name__ == "__main__":
    main()
