"""Workspaces to measure on: made up, the same each time."""

import base64
import json
import random
from datetime import UTC, datetime
from pathlib import Path

WORDS = [
    "".join(random.Random(seed).choices("aeioubcdfglmnprst", k=3 + seed % 7))
    for seed in range(6000)
]


def prose(random_: random.Random, words: int) -> str:
    """Words with a long tail, as in texts."""
    picked = [WORDS[min(int(random_.paretovariate(0.6)), len(WORDS) - 1)] for _ in range(words)]
    lines, at = [], 0
    while at < words:
        step = random_.randint(8, 16)
        lines.append(" ".join(picked[at : at + step]))
        at += step
    return "\n".join(lines)


def subjects(root: Path, count: int, folders: int, words: int = 60) -> None:
    """A topic `bulk` of `count` subjects in `folders` directories."""
    random_ = random.Random(1)
    (root / ".jp").mkdir(parents=True, exist_ok=True)
    (root / ".jp/kb.toml").write_text('[kb.topic.bulk]\nsubjects = "docs"\n')
    for number in range(count):
        folder = root / "docs" / f"d{number % folders:04}"
        folder.mkdir(parents=True, exist_ok=True)
        text = f"# Subject {number}\n\n{prose(random_, words)}\n"
        (folder / f"s{number:05}.md").write_text(text)


def conversations(root: Path, count: int, messages: int, words: int = 40) -> None:
    """`count` conversations of `messages` messages, a fifth of them tool calls with results."""
    random_ = random.Random(2)
    for number in range(count):
        identity = 17_500_000_000 + number * 1000
        stamp = datetime.fromtimestamp(identity / 10, UTC).strftime("%Y-%m-%d %H:%M:%S.0")
        events: list[dict[str, object]] = []
        for position in range(messages // 5):
            call = f"c{position}"
            events += [
                {"timestamp": stamp, "type": "turn_start"},
                {"timestamp": stamp, "type": "chat_request", "content": prose(random_, words)},
                {"timestamp": stamp, "type": "chat_response", "reasoning": prose(random_, words)},
                {
                    "timestamp": stamp, "type": "tool_call_request", "id": call, "name": "fs_read_file",
                    "arguments": {"path": encoded(f"docs/d0001/s{position:05}.md")},
                },
                {
                    "timestamp": stamp, "type": "tool_call_response", "id": call, "is_error": False,
                    "content": encoded(prose(random_, words * 4)),
                },
                {"timestamp": stamp, "type": "chat_response", "message": prose(random_, words)},
            ]  # fmt: skip
        conversation(root, identity, events, f"Talk {number}")


def conversation(root: Path, identity: int, events: list[dict[str, object]], title: str) -> None:
    """One conversation, in JP's three files."""
    folder = root / ".jp/conversations" / str(identity)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "events.json", events)
    _write(folder / "metadata.json", {"title": title, "last_activated_at": events[0]["timestamp"]})
    _write(folder / "base_config.json", {})


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
