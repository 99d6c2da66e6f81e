"""The demo's files, read with json and tomllib and without kbtui."""

import base64
import json
import re
import tomllib
from pathlib import Path
from typing import Any

DEMO = Path(__file__).parents[2] / "assets" / "demo"
CONVERSATIONS = DEMO / ".jp" / "conversations"
CORPUS = Path(__file__).parents[1] / "eval" / "corpus"
"""A frozen copy of the demo, over which search is measured."""


def topic_tables(root: Path) -> dict[str, dict[str, Any]]:
    """Return the topics of `.jp/kb.toml`."""
    found = tomllib.loads((root / ".jp/kb.toml").read_text("utf-8"))["kb"]["topic"]
    assert isinstance(found, dict)
    return found


TOPICS = topic_tables(DEMO)


def subject_files(root: Path = DEMO) -> dict[str, Path]:
    """Return every subject's file by `topic/slug`, without extension and leading dots."""
    found = {}
    for topic, table in topic_tables(root).items():
        folder = root / table["subjects"]
        for path in folder.rglob("*"):
            if path.is_file():
                parts = path.relative_to(folder).with_suffix("").parts
                slug = "/".join(part.lstrip(".") for part in parts)
                assert f"{topic}/{slug}" not in found, f"two files have the slug {topic}/{slug}"
                found[f"{topic}/{slug}"] = path
    return found


def is_hidden(path: Path) -> bool:
    """Return whether a part of the path below the topic's directory begins with a dot."""
    folders = [DEMO / table["subjects"] for table in TOPICS.values()]
    folder = next(folder for folder in folders if path.is_relative_to(folder))
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def conversation_folders(root: Path = DEMO) -> dict[int, Path]:
    """Return the directories of live and archived conversations by id."""
    folders = [path.parent for path in (root / ".jp/conversations").rglob("events.json")]
    return {int(folder.name.partition("-")[0]): folder for folder in folders}


def events(folder: Path) -> list[dict[str, Any]]:
    """Read the elements of a conversation's events.json."""
    found = json.loads((folder / "events.json").read_text("utf-8"))
    assert isinstance(found, list)
    return found


def metadata(folder: Path) -> dict[str, Any]:
    """Read a conversation's metadata.json."""
    found = json.loads((folder / "metadata.json").read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def decoded(text: str) -> str:
    """Decode a base64 field in either alphabet, strictly."""
    if re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", text):
        return base64.b64decode(text, validate=True).decode()
    assert re.fullmatch(r"[A-Za-z0-9_-]*={0,2}", text), text[:60]
    return base64.urlsafe_b64decode(text).decode()


def calls(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Return tool calls with their results; a result belongs to the oldest open call of its id."""
    found: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
    for event in events(folder):
        if event["type"] == "tool_call_request":
            found.append((event, None))
        elif event["type"] == "tool_call_response":
            place = next(
                at
                for at, (call, result) in enumerate(found)
                if call["id"] == event["id"] and result is None
            )
            found[place] = (found[place][0], event)
    return found


def argument(call: dict[str, Any], name: str) -> list[str]:
    """Return a decoded string argument, or each of a list of them."""
    value = call["arguments"].get(name, [])
    return [decoded(part) for part in ([value] if isinstance(value, str) else value)]
