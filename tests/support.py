"""Building real workspaces on disk for tests: topics, subjects, conversations as JP writes them."""

import base64
import contextlib
import hashlib
import json
import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kbtui.workspace import Workspace, open_workspace_at_root

FIRST_ID = 17_800_000_000


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S.0")


def check_options(tool: str, options: dict[str, Any]) -> dict[str, Any]:
    """Check the arguments of a tool as a call does; keep the options that are no arguments."""
    from kbtui.assistant.assistant_tools import TOOLS, check_and_convert_tool_arguments

    known = TOOLS[tool].parameters
    arguments = {name: value for name, value in options.items() if name in known}
    return {**options, **check_and_convert_tool_arguments(TOOLS[tool], arguments)}


def list_answer(workspace: Any, **options: Any) -> dict[str, Any]:
    """Answer `conversation_list` as JSON."""
    from kbtui.assistant.conversation_tools import answer_conversation_list

    options = check_options("conversation_list", options)
    return answer_conversation_list(workspace, **options).as_json()


def grep_answer(workspace: Any, **options: Any) -> dict[str, Any]:
    """Answer `conversation_grep` as JSON."""
    from kbtui.assistant.conversation_tools import answer_conversation_grep

    options = check_options("conversation_grep", options)
    assert not options.pop("all_projects"), "only the tool itself searches all projects"
    return answer_conversation_grep(workspace, **options).as_json()


def read_answer(workspace: Any, **options: Any) -> dict[str, Any]:
    """Answer `conversation_read` as JSON."""
    from kbtui.assistant.conversation_tools import answer_conversation_read

    options = check_options("conversation_read", options)
    return answer_conversation_read(workspace, **options).as_json()


def end_engine(builder: "Builder") -> None:
    """End this workspace's engine by its id, and see that it is gone."""
    import psutil

    from kbtui.engine.engine_launcher import read_engine_lock_file

    found = read_engine_lock_file()
    if not found:
        return
    try:
        process = psutil.Process(found["pid"])
        process.terminate()
        process.wait(60)
    except psutil.NoSuchProcess:
        return


def kill_engine(builder: "Builder") -> None:
    """Kill this workspace's engine after a test: ending in order takes up to seconds on a busy machine."""
    import psutil

    from kbtui.engine.engine_launcher import read_engine_lock_file

    found = read_engine_lock_file()
    if found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(found["pid"])
            process.kill()
            # Until its parent looks, it is a zombie, which holds no file and no socket.
            end = time.monotonic() + 60
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < end, "the engine survived SIGKILL"
                time.sleep(0.005)


def hurt_file(path: Path, random_: random.Random) -> str:
    """Flip a bit of a file, cut it short, or take it away; gives what was done."""
    data = bytearray(path.read_bytes())
    how = random_.choice(["flip", "flip", "cut", "remove"])
    at = random_.randrange(len(data))
    if how == "remove":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[:at])
    else:
        data[at] ^= 1 << random_.randrange(8)
        path.write_bytes(data)
    return f"{how} {path.name} at {at} of {len(data)}"


class Builder:
    """A workspace that a test fills."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / ".jp").mkdir(parents=True, exist_ok=True)

    @property
    def workspace(self) -> Workspace:
        return open_workspace_at_root(self.root)

    def topics(self, **topics: Mapping[str, Any]) -> None:
        """Write kb.toml: id -> fields; `subjects` defaults to `docs/<id>`."""
        import tomli_w

        tables = {name: {"subjects": f"docs/{name}", **fields} for name, fields in topics.items()}
        for name, table in tables.items():
            (self.root / str(table["subjects"])).mkdir(parents=True, exist_ok=True)
            assert name
        (self.root / ".jp" / "kb.toml").write_text(tomli_w.dumps({"kb": {"topic": tables}}))

    def subject(self, path: str, text: str) -> Path:
        """Write `docs/<path>` as editors do: a new file renamed over the old."""
        target = self.root / "docs" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(target.name + ".new~")
        fresh.write_text(text)
        fresh.replace(target)
        return target

    def conversation(
        self,
        number: int,
        turns: Sequence[Sequence[dict[str, Any]]],
        *,
        title: str | None = None,
        archived: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write conversation `FIRST_ID + number` with these turns of events."""
        identity = FIRST_ID + number
        start = datetime.fromtimestamp(identity / 10, UTC)
        events: list[dict[str, Any]] = []
        for turn in turns:
            events.append({"timestamp": stamp(start), "type": "turn_start"})
            for event in turn:
                start += timedelta(seconds=1)
                events.append({"timestamp": stamp(start), **event})
        folder = self.root / ".jp" / "conversations"
        if archived:
            folder /= ".archive"
        folder /= str(identity)
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"last_activated_at": stamp(start), **(metadata or {})}
        if title:
            facts["title"] = title
        write_json(folder / "metadata.json", facts)
        write_json(folder / "base_config.json", {"assistant": {"name": "JP"}})
        write_json(folder / "events.json", events)
        return folder


def index_without_engine(built: Builder) -> None:
    """Build the index without an engine, and register the workspace as an engine does."""
    from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
    from kbtui.userdata.workspace_registry import register_workspace
    from kbtui.workspace import Settings

    writer = WorkspaceIndexWriter(built.workspace, Settings())
    writer.refresh_index()
    writer.close()
    register_workspace(built.workspace, Settings())


def write_json(path: Path, value: object) -> None:
    """As JP writes: pretty, to a file beside it, renamed over the target."""
    fresh = path.with_name(path.name + ".tmp")
    fresh.write_text(json.dumps(value, indent=2) + "\n")
    fresh.replace(path)


def asked(text: str) -> dict[str, Any]:
    return {"type": "chat_request", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"type": "chat_response", "message": text}


def called(
    identity: str, name: str, result: str, error: bool = False, **arguments: Any
) -> list[dict[str, Any]]:
    return [
        {
            "type": "tool_call_request",
            "id": identity,
            "name": name,
            "arguments": {
                key: encoded(value) if isinstance(value, str) else value
                for key, value in arguments.items()
            },
        },
        {
            "type": "tool_call_response",
            "id": identity,
            "content": encoded(result),
            "is_error": error,
        },
    ]


def tree_hash(root: Path) -> str:
    """Names, kinds, contents, sizes, modification times and links of everything below."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        digest.update(
            f"{path.relative_to(root)}\0{status.st_mode}\0{status.st_mtime_ns}\0".encode()
        )
        if path.is_symlink():
            digest.update(str(path.readlink()).encode())
        elif path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def content_of(cache_dir: Path) -> dict[str, Any]:
    """What an index holds, by content: comparable between two indexes of the same files."""
    import sqlite3

    from kbtui.index.catalog_database import CatalogDatabase
    from kbtui.index.index_reader import IndexReader

    reader = IndexReader(cache_dir)
    catalog = CatalogDatabase(reader.folder / "catalog.sqlite")
    tables = sqlite3.connect(reader.folder / "catalog.sqlite")
    found: dict[str, Any] = {"entries": {}, "lexical": {}}
    for entry in catalog.iterate_entries():
        chunks = catalog.list_entry_chunks(entry.id)
        found["entries"][entry.id] = (
            entry.title, entry.signature, entry.type, entry.hidden, entry.archived, entry.error,
            [(chunk.id, chunk.text, chunk.lines, chunk.turn, chunk.role, chunk.tool) for chunk in chunks],
        )  # fmt: skip
    found["citations"] = sorted(map(repr, tables.execute("SELECT * FROM citations")))
    numbers = dict(tables.execute("SELECT number, id FROM chunks"))
    import tantivy

    for hidden in (False, True):
        searcher = reader.open_keyword_index(hidden=hidden).searcher()
        hits = searcher.search(tantivy.Query.all_query(), limit=100_000).hits
        chunks_found = searcher.fast_field_values("chunk", [address for _, address in hits])
        found["lexical"][hidden] = sorted(
            numbers.get(number, f"stray {number}") for number in chunks_found if number is not None
        )
    tables.close()
    catalog.close()
    reader.close()
    return found
