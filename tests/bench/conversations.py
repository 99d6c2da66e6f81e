"""Conversations: decoding against parsing, and grep against jq into rg.

`surveyed` makes conversations whose texts are of the kinds and sizes that a survey of real ones
found: mostly tool results, of some thousand characters each.
"""

import random
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import orjson

from kbtui.conversations.conversation_data_types import ConversationInfo
from kbtui.conversations.conversation_repository import list_conversations, load_conversation
from kbtui.workspace import open_workspace_at_root
from tests.bench import workspaces
from tests.bench.measure import Row, process, side_by_side, timed

RARE = "quicksilver zeppelin"


def surveyed(root: Path, count: int) -> None:
    """`count` conversations of 190 kB; every hundredth says `RARE`."""
    chance = random.Random(7)
    words = ["".join(chance.choices("etaoinshrdlucmfwyp", k=2 + n % 9)) for n in range(4000)]

    def text(size: int) -> str:
        lines, length = [], 0
        while length < size:
            lines.append(" ".join(chance.choices(words, k=12)) + chance.choice([".", ".", " – é"]))
            length += len(lines[-1])
        return "\n".join(lines)

    for number in range(count):
        identity = 17_500_000_000 + number * 1000
        stamp = datetime.fromtimestamp(identity / 10, UTC).strftime("%Y-%m-%d %H:%M:%S.123456")
        events: list[dict[str, object]] = [
            {"type": "config_delta", "delta": {"assistant": {"instructions": text(30_000)}}}
        ]
        for turn in range(3):
            events += [
                {"type": "turn_start"},
                {"type": "chat_request", "content": text(1500)},
                {"type": "chat_response", "reasoning": text(1500), "metadata": {"x_signature": "A" * 2000}},
            ]  # fmt: skip
            for call in range(9):
                name, key = "fs_read_file", f"{turn}.{call}"
                path, result = workspaces.encoded(f"src/{key}.rs"), workspaces.encoded(text(3500))
                events += [
                    {"type": "tool_call_request", "id": key, "name": name, "arguments": {"path": path}},
                    {"type": "tool_call_response", "id": key, "content": result, "is_error": False},
                ]  # fmt: skip
            said = text(600) + (f" They said: {RARE.title()}!" if number % 100 == 0 else "")
            events.append({"type": "chat_response", "message": said})
        workspaces.conversation(
            root, identity, [{"timestamp": stamp, **event} for event in events], f"Talk {number}"
        )


def decode(base: Path, times: int) -> Iterator[Row]:
    """Reading conversations whole against parsing the same bytes."""
    surveyed(base / "surveyed", 50)
    workspaces.conversations(base / "small", 100, 200)
    for name in ("surveyed", "small"):
        infos = list_conversations(open_workspace_at_root(base / name), counts=False)
        paths = [info.events_path for info in infos if info.events_path]

        def ours(infos: list[ConversationInfo] = infos) -> object:
            return [load_conversation(info) for info in infos]

        def parse(paths: list[Path] = paths) -> object:
            return [orjson.loads(path.read_bytes()) for path in paths]

        taken, parsed = side_by_side(ours, parse, times)
        what = "sizes as surveyed" if name == "surveyed" else "many small events"
        yield Row(f"decode, {what}", taken, "orjson.loads of the bytes", parsed, "<= 3")


JQ = r"""
def decoded: try @base64d catch .;
input_filename as $file | .[]
| if .type == "tool_call_response" then .content | decoded
  elif .type == "tool_call_request" then
    .name, (.arguments | walk(if type == "string" then decoded else . end) | tojson)
  elif .type == "chat_request" then .content
  elif .type == "chat_response" then .message // .reasoning // (.data | tojson)
  elif .type == "inquiry_request" then .question.text
  else empty end
"""
NAMED = JQ + r'| split("\n")[] | "\($file):\(.)"'
"""One jq process that decodes all that kbtui searches, into one rg: what one would type without it.

Each line with its conversation, as without it a match could not be read; `JQ` alone gives bare text.
"""
PATTERNS = {
    "rare": [RARE],
    "rare, case counts": ["--case-sensitive", RARE.title()],
    "27,000 matches": ["fs_read_file"],
    "other letters": ["größe über"],
}
COMMAND = "import sys; from kbtui.cli.main import main; sys.exit(main(sys.argv[1:]) & 2)"


def grep(base: Path, times: int) -> Iterator[Row]:
    """`conversation grep` over a thousand conversations, whole processes, in turns."""
    for tool in ("jq", "rg"):
        if not shutil.which(tool):
            print(f"grep: not measured, {tool} is not installed")
            return
    surveyed(base / "surveyed", 1000)
    workspaces.conversations(base / "small", 1000, 50)
    rounds = max(3, times // 3)
    yield from _against(base / "surveyed", PATTERNS, rounds)
    yield from _against(base / "small", {"28 kB each, rare": [RARE]}, rounds)


def _against(root: Path, patterns: dict[str, list[str]], rounds: int) -> Iterator[Row]:
    pipelines: dict[str, str] = {}
    for name, program in (("named", NAMED), ("bare", JQ)):
        (root / f"{name}.jq").write_text(program)
        pipelines[name] = (
            f"find {root}/.jp/conversations -name events.json -print0"
            f" | xargs -0 jq -r -f {root}/{name}.jq | rg -F -i -c '{RARE}' || true"
        )
    print(f"  {pipelines['named']}\n  {NAMED.strip()}")
    calls: dict[str, Callable[[], object]] = {
        name: process(["sh", "-c", line]) for name, line in pipelines.items()
    }
    for name, words in patterns.items():
        command = [sys.executable, "-c", COMMAND, "-w", str(root), "conversation", "grep", *words]
        calls[name] = process(command)
        calls[name]()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(timed(call))
    for name in patterns:
        label = f"grep in 1,000 conversations, {name}"
        yield Row(label, taken[name], "jq | rg", taken["named"], "<= 0.1")
        yield Row(label, taken[name], "jq | rg, bare text", taken["bare"], "none")


BENCHES = {"decode": decode, "grep": grep}
