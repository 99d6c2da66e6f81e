"""Writing sessions as Claude Code does, for tests."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 5, 29, 10, 0, tzinfo=UTC)


def session_id(number: int) -> str:
    """A session's id; those of two numbers differ in the first character."""
    return f"{number:x}58c7280-241a-462a-8d15-5122611a9569"


def claude_folder(home: Path, directory: Path) -> Path:
    """Where Claude Code keeps the sessions of a directory."""
    name = re.sub(r"[^0-9A-Za-z]", "-", str(directory))
    folder = home / "home/.claude/projects" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_session(
    home: Path,
    directory: Path,
    session: str,
    records: Sequence[dict[str, Any]],
    *,
    start: datetime = START,
    subagent: str | None = None,
) -> Path:
    """Write a session that was held in a directory, or a session's subagent."""
    lines = []
    for number, record in enumerate(records):
        time = (start + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        common = {"uuid": f"{session[:8]}-{subagent}-{number}", "timestamp": time}
        common |= {"sessionId": session, "cwd": str(directory)}
        if subagent is not None:
            common |= {"isSidechain": True, "agentId": subagent}
        lines.append(json.dumps({**common, **record}))
    folder = claude_folder(home, directory)
    path = folder / f"{session}.jsonl"
    if subagent is not None:
        path = folder / session / "subagents" / f"agent-{subagent}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def typed(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}}


def answered(
    *blocks: dict[str, Any] | str,
    message: str = "msg_1",
    model: str = "claude-opus-4-6",
    usage: tuple[int, int, int, int] | None = None,
) -> dict[str, Any]:
    """A record of an answer; `usage` is input, output, cache read and cache written."""
    content = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
    made: dict[str, Any] = {"id": message, "role": "assistant", "model": model, "content": content}
    if usage is not None:
        names = ("input", "output", "cache_read_input", "cache_creation_input")
        made["usage"] = {f"{name}_tokens": one for name, one in zip(names, usage, strict=True)}
    return {"type": "assistant", "message": made}


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}


def result(number: int, text: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}
    return {"type": "user", "message": {"role": "user", "content": [block]}}
