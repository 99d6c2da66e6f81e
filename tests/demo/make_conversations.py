"""Writes the demo's conversations in JP's format, from readable scripts.

`python tests/demo/make_conversations.py` generates assets/demo/.jp/conversations from
tests/demo/conversations/*.txt; tests/demo/README.md explains the scripts. This module shares no
code with kbtui, so that the demo is an independent check of kbtui's reader.
"""

import base64
import hashlib
import json
import shutil
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "conversations"
TARGET = Path(__file__).parents[2] / "assets" / "demo" / ".jp" / "conversations"

# The usual seconds before each kind of event, unless a script says otherwise.
PAUSES = {
    "turn": 0.0,
    "user": 0.000004,
    "reasoning": 7.2,
    "say": 2.3,
    "call": 0.35,
    "result": 0.12,
    "error": 0.14,
    "ask": 0.05,
    "answer": 6.4,
    "data": 4.1,
    "config": 41.0,
    "compaction": 11.0,
}


def build_conversation(script: str) -> tuple[str, dict[str, bytes]]:
    """Return a conversation's directory, relative to `conversations`, and its files by name."""
    head, _, body = script.partition("\n\n")
    facts = dict(line.split(": ", 1) for line in head.splitlines())
    created = datetime.fromisoformat(facts["created"]).replace(tzinfo=UTC)
    number = (created - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=100)
    writer = EventWriter(number, facts)
    events = writer.write_events(body)
    files = {"metadata.json": _pretty(_metadata(facts))}
    config = _base_config(facts)
    layout = facts["layout"]
    if layout == "split":
        files["base_config.json"] = _pretty(config)
    else:
        first = {"timestamp": _stamp(writer.began), "type": "config_delta"}
        events.insert(0, first | (config if layout == "inlined" else {"delta": config}))
    files["events.json"] = _pretty(events)
    folder = directory_name(number, facts.get("title"))
    return (f".archive/{folder}" if "archived" in facts else folder), files


def directory_name(number: int, title: str | None) -> str:
    """Return the directory's name: 60 characters of the title, cut at the last hyphen if it has over 60 bytes."""
    title = (title or "").strip()
    slug = "".join(letter if letter.isalnum() else "-" for letter in title[:60]).rstrip("-").lower()
    name = f"{number}-{slug}" if slug else str(number)
    if len(title.encode()) > 60:
        name = name.rpartition("-")[0]
    return name


class EventWriter:
    """Converts a script's events to JP's, with reproducible ids and times."""

    def __init__(self, number: int, facts: dict[str, str]) -> None:
        self.number, self.facts = number, facts
        self.now = self.began = datetime.fromisoformat(facts["begins"]).replace(tzinfo=UTC)
        self.names: dict[str, str] = {}
        self.arguments: dict[str, dict[str, Any]] = {}
        self.count = 0

    def write_events(self, body: str) -> list[dict[str, Any]]:
        """Return all events of a script, in order."""
        events: list[dict[str, Any]] = []
        blocks = ("\n" + body).split("\n@ ")[1:]
        for block in blocks:
            line, _, text = block.partition("\n")
            words = line.split()
            text = text.strip("\n")
            if words[0] == "schema":
                _insert(events[-1], "schema", json.loads(text), before="author")
            elif words[0] == "rendered":
                events[-1]["metadata"] = _encoded({"rendered_arguments": _base64(_escapes(text))})
            else:
                events.append(self._event(words, text))
        return events

    def _event(self, words: list[str], text: str) -> dict[str, Any]:
        kind = words[0]
        rest = self._pass_time(kind, words[1:])
        event: dict[str, Any] = {"timestamp": _stamp(self.now), "type": _TYPES[kind]}
        getattr(self, f"_{kind}")(event, rest, text)
        return event

    def _pass_time(self, kind: str, words: list[str]) -> list[str]:
        """Advance the clock: by `+seconds`, to a date and time, or by the usual pause."""
        self.count += 1
        if words and words[0].startswith("+"):
            self.now += timedelta(seconds=float(words[0][1:]))
            return words[1:]
        if len(words) >= 2 and words[0][:2] == "20":
            self.now = datetime.fromisoformat(f"{words[0]} {words[1]}").replace(tzinfo=UTC)
            return words[2:]
        if self.count > 1:
            share = int.from_bytes(self._digest(str(self.count))[:4], "big") / 2**32
            self.now += timedelta(seconds=PAUSES[kind] * (0.6 + share))
        return words

    def _digest(self, name: str) -> bytes:
        return hashlib.sha512(f"{self.number}/{name}".encode()).digest()

    def _turn(self, event: dict[str, Any], words: list[str], text: str) -> None:
        pass

    def _user(self, event: dict[str, Any], words: list[str], text: str) -> None:
        event["content"] = text
        if words:
            event["author"] = " ".join(words)

    def _say(self, event: dict[str, Any], words: list[str], text: str) -> None:
        event["message"] = text

    def _reasoning(self, event: dict[str, Any], words: list[str], text: str) -> None:
        event["reasoning"] = text
        provider = self.facts["model"].partition("/")[0]
        key = {"anthropic": "anthropic_thinking_signature", "google": "google_thought_signature"}
        if provider in key:
            opaque = self._digest(f"signature{self.count}") + self._digest(f"more{self.count}")
            event["metadata"] = _encoded({key[provider]: base64.b64encode(opaque).decode()})

    def _data(self, event: dict[str, Any], words: list[str], text: str) -> None:
        event["data"] = json.loads(text)

    def _call(self, event: dict[str, Any], words: list[str], text: str) -> None:
        self.names[words[0]] = words[1]
        event |= {"id": self._call_id(words[0]), "name": words[1]}
        arguments = tomllib.loads(text)
        if "content" in arguments:
            arguments["content"] = _insert_subjects(arguments["content"])
        self.arguments[words[0]] = arguments
        event["arguments"] = _encoded(arguments)

    def _result(self, event: dict[str, Any], words: list[str], text: str) -> None:
        name = self.names[words[0]]
        text = _insert_subjects(_escapes(text))
        if name == "fs_read_file":
            text = text.removesuffix("\n")
            text = f"```{words[1]}\n{text}\n```\n"
        elif name == "knowledge_search":
            text = _add_headers(text)
        elif name == "fs_create_file":
            path, content = (self.arguments[words[0]][key] for key in ("path", "content"))
            text = f"File '{path}' created. File size: {len(content.encode())}"
        self._respond(event, words[0], text, failed=False)

    def _error(self, event: dict[str, Any], words: list[str], text: str) -> None:
        self._respond(event, words[0], text, failed=True)

    def _respond(self, event: dict[str, Any], call: str, text: str, *, failed: bool) -> None:
        urlsafe = self.facts.get("alphabet") == "urlsafe"
        encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
        event |= {"id": self._call_id(call), "content": encode(text.encode()).decode()}
        event["is_error"] = failed

    def _ask(self, event: dict[str, Any], words: list[str], text: str) -> None:
        call, _, question = words[0].partition(".")
        event["id"] = f"{self._call_id(call)}.{question}"
        event["source"] = {"source": "tool", "name": self.names[call]}
        event["question"] = {"text": text, "answer_type": {"type": "boolean"}, "default": True}

    def _answer(self, event: dict[str, Any], words: list[str], text: str) -> None:
        call, _, question = words[0].partition(".")
        event |= {"id": f"{self._call_id(call)}.{question}", "answer": words[1] == "true"}

    def _config(self, event: dict[str, Any], words: list[str], text: str) -> None:
        event["delta"] = tomllib.loads(text)

    def _compaction(self, event: dict[str, Any], words: list[str], text: str) -> None:
        event |= {
            "from_turn": int(words[0]),
            "to_turn": int(words[1]),
            "summary": {"summary": text},
        }

    def _call_id(self, name: str) -> str:
        if "_" in name:  # an older provider's id, which may repeat
            return name
        letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
        digest = self._digest(f"call {name}")
        return "toolu_01" + "".join(letters[byte % len(letters)] for byte in digest[:22])


_TYPES = {
    "turn": "turn_start",
    "user": "chat_request",
    "say": "chat_response",
    "reasoning": "chat_response",
    "data": "chat_response",
    "call": "tool_call_request",
    "result": "tool_call_response",
    "error": "tool_call_response",
    "ask": "inquiry_request",
    "answer": "inquiry_response",
    "config": "config_delta",
    "compaction": "compaction",
}


def _insert_subjects(text: str) -> str:
    """Replace each line `<< topic/slug`, and the edits below it, by the text of that subject.

    `<< topic/slug § Heading` is the section with this heading. An edit is a line `words of today ==> words of
    then`; the edits make an earlier version of the subject.
    """
    lines = text.strip("\n").split("\n") if "<< " in text else [text]
    found: list[str] = []
    while lines:
        line = lines.pop(0)
        if not line.startswith("<< "):
            found.append(line)
            continue
        edits = []
        while lines and " ==>" in lines[0]:
            edits.append(lines.pop(0))
        subject = _read_subject(line.removeprefix("<< "), edits)
        found.append(subject.removesuffix("\n") if found or lines else subject)
    return "\n".join(found)


def _read_subject(reference: str, edits: list[str]) -> str:
    name, _, heading = reference.partition(" § ")
    topic, _, slug = name.partition("/")
    tables = tomllib.loads((TARGET.parent / "kb.toml").read_text("utf-8"))["kb"]["topic"]
    folder = TARGET.parents[1] / tables[topic]["subjects"]
    *parents, last = slug.split("/")
    path = folder.joinpath(*parents, f"{last}.md")
    hidden = folder.joinpath(*parents, f".{last}.md")
    text = (path if path.exists() else hidden).read_text("utf-8")
    if heading:
        start = text.index(f"## {heading}\n")
        end = text.find("\n## ", start)
        text = text[start:end].strip("\n") if end > 0 else text[start:]
    for edit in edits:
        now, _, then = edit.replace("\\n", "\n").partition(" ==>")
        assert now in text, f"{name} no longer says {now!r}"
        text = text.replace(now, then.removeprefix(" "))
    return text


def _add_headers(text: str) -> str:
    """Replace `>> topic/slug score title` by the header of a passage."""
    blocks = []
    for block in ("\n" + text).split("\n>> ")[1:]:
        line, _, passage = block.partition("\n")
        reference, score, title = line.split(" ", 2)
        passage = passage.strip("\n")
        topic, _, slug = reference.partition("/")
        entry = reference if not slug else "s" + _hex(topic, slug)[:12]
        chunk = _hex(entry, passage, "0")[:16]
        blocks.append(f"[entry {entry} · chunk {chunk} · score {score}] {title}\n{passage}")
    return "\n\n".join(blocks)


def _hex(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _metadata(facts: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "title" in facts:
        found["title"] = facts["title"]
    found["last_activated_at"] = facts["activated"]
    for name in ("pinned", "archived"):
        if name in facts:
            found[f"{name}_at"] = facts[name]
    if "labels" in facts:
        pairs = (label.partition("=") for label in facts["labels"].split(", "))
        found["labels"] = {key: value for key, _, value in pairs}
    return found


def _base_config(facts: dict[str, str]) -> dict[str, Any]:
    """Return a small configuration; real ones are a hundred times as long."""
    provider, _, name = facts["model"].partition("/")
    off = {"enable": False, "source": "local", "run": "ask"}
    config: dict[str, Any] = {
        "inherit": False,
        "config_load_paths": [".jp/config"],
        "extends": ["config.d/**/*"],
        "assistant": {
            "name": facts.get("assistant", "Workbench"),
            "system_prompt": "You help to build kbtui, a terminal browser for JP workspaces.",
            "instructions": [],
            "tool_choice": "auto",
            "model": {
                "id": {"provider": provider, "name": name},
                "parameters": {"reasoning": "auto", "stop_words": [], "other": {}},
            },
        },
        "conversation": {
            "title": {"generate": {"auto": True}},
            "tools": {"*": {"run": "ask", "result": "unattended"}, "fs_modify_file": off},
            "attachments": [],
        },
        "style": {"code": {"color": True}, "reasoning": {"display": "full"}},
        "editor": {"envs": ["JP_EDITOR", "VISUAL", "EDITOR"]},
        "template": {"values": {}},
        "providers": {"llm": {"aliases": {}}},
    }
    if "attachments" in facts:
        config["conversation"]["attachments"] = facts["attachments"].split(", ")
    if "user" in facts:
        config["user"] = {"name": facts["user"]}
    return config


def _insert(event: dict[str, Any], key: str, value: Any, *, before: str) -> None:
    tail = {before: event.pop(before)} if before in event else {}
    event[key] = value
    event |= tail


def _escapes(text: str) -> str:
    """Replace `␛` and `␇`, which keep the scripts safe to display, by the control characters."""
    return text.replace("␛", "\x1b").replace("␇", "\x07")


def _encoded(value: Any) -> Any:
    """Return a value with every string except keys in base64."""
    if isinstance(value, str):
        return _base64(value)
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    if isinstance(value, dict):
        return {key: _encoded(item) for key, item in value.items()}
    return value


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _stamp(when: datetime) -> str:
    whole, _, fraction = when.strftime("%Y-%m-%d %H:%M:%S.%f").partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}"


def _pretty(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def build_all_files() -> dict[str, bytes]:
    """Return every file of the demo's conversations by its path below `conversations`."""
    found = {}
    for script in sorted(SCRIPTS.glob("*.txt")):
        folder, files = build_conversation(script.read_text("utf-8"))
        found |= {f"{folder}/{name}": data for name, data in files.items()}
    return found


def main() -> None:
    """Replace the demo's conversations."""
    shutil.rmtree(TARGET, ignore_errors=True)
    for name, data in build_all_files().items():
        path = TARGET / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    sys.stdout.write(f"{len(list(TARGET.rglob('events.json')))} conversations\n")


if __name__ == "__main__":
    main()
