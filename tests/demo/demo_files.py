"""What the tests know of the demo by themselves: json and tomllib, nothing of kbtui."""

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
    """Every subject's file by `topic/slug`: extension and leading dots stripped."""
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
    """Whether a component below the topic's directory begins with a dot."""
    folders = [DEMO / table["subjects"] for table in TOPICS.values()]
    folder = next(folder for folder in folders if path.is_relative_to(folder))
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def conversation_folders(root: Path = DEMO) -> dict[int, Path]:
    """Directories of live and archived conversations by id."""
    folders = [path.parent for path in (root / ".jp/conversations").rglob("events.json")]
    return {int(folder.name.partition("-")[0]): folder for folder in folders}


def events(folder: Path) -> list[dict[str, Any]]:
    """The elements of a conversation's events.json, as they are on disk."""
    found = json.loads((folder / "events.json").read_text("utf-8"))
    assert isinstance(found, list)
    return found


def metadata(folder: Path) -> dict[str, Any]:
    """A conversation's metadata.json."""
    found = json.loads((folder / "metadata.json").read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def decoded(text: str) -> str:
    """A base64 field in either alphabet; strict, because everything here is encoded."""
    if re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", text):
        return base64.b64decode(text, validate=True).decode()
    assert re.fullmatch(r"[A-Za-z0-9_-]*={0,2}", text), text[:60]
    return base64.urlsafe_b64decode(text).decode()


def calls(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Tool calls with their results: each result answers the oldest open call of its id."""
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
    """A string argument, or each of a list of them, decoded."""
    value = call["arguments"].get(name, [])
    return [decoded(part) for part in ([value] if isinstance(value, str) else value)]
