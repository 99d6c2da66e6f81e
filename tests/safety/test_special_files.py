"""A pipe, device, socket or circular link in place of a file: nothing hangs, and other files are read."""

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import running
from running import complete_line, on_pipe
from support import Builder, asked, kill_engine, said

from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings

TALK = "jp-c17800000001"


def device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def circle(place: Path) -> None:
    place.symlink_to(place.name)


def plug(place: Path) -> None:
    here = Path.cwd()
    os.chdir(place.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(place.name)
    finally:
        os.chdir(here)


KINDS = pytest.mark.parametrize(
    "put", [os.mkfifo, device, circle, plug, Path.mkdir], ids=["pipe", "device", "circle", "socket", "folder"]
)  # fmt: skip


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setattr(running, "SECONDS", 60.0)
    builder = Builder(workspace_root)
    builder.topics(notes={}, more={})
    builder.subject("notes/one.md", "# One\n\nA harmless otter.\n")
    builder.subject("notes/two.md", "# Two\n\nA harmless heron.\n")
    builder.subject("more/three.md", "# Three\n\nA harmless stone.\n")
    for number in (1, 2):
        builder.conversation(number, [[asked("A harmless river?"), said("Yes.")]], title="Talk")
    yield builder
    kill_engine(builder)


def replace(place: Path, put: Callable[[Path], None]) -> None:
    """Replace a file by something else."""
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    put(place)


def run(builder: Builder, *words: str) -> str:
    out, err, code = on_pipe(["-w", str(builder.root), *words])
    text = (out + err).decode()
    assert "Traceback" not in text, (words, text)
    assert code in {0, 1, 2, 3}, (words, code, text)
    return text


@KINDS
def test_beside_them_everything_is_found(built: Builder, put: Callable[[Path], None]) -> None:
    for name in (
        ".jp/.id",
        ".jp/config.toml",
        ".jp/kb-sources.toml",
        ".jp/mcp/tools/x.toml",
        ".jp/conversations/17800000002/events.json",
        ".jp/conversations/17800000002/metadata.json",
        ".jp/conversations/17800000003",
        "docs/notes/two.md",
    ):
        replace(built.root / name, put)
    assert "one" in run(built, "topics", "notes")
    assert TALK in run(built, "c", "ls", "--format", "json")
    assert "otter" in run(built, "learn", "notes", "**")
    found = json.loads(run(built, "search", "harmless", "--json"))
    assert {hit.get("slug") or hit["ref"] for hit in found["hits"]} >= {"one", "three", f"{TALK}:1"}
    for words in (["doctor"], ["source", "ls"], ["tools", "install", "--yes"]):
        run(built, *words)


@KINDS
def test_a_persons_own_file_that_is_none_is_said(
    built: Builder, home: Path, put: Callable[[Path], None]
) -> None:
    replace(home / "config/kbtui/config.toml", put)
    said_ = run(built, "topics")
    assert "config.toml: the file cannot be read: " in said_
    assert "None" not in said_


@pytest.mark.parametrize("put", [os.mkfifo, device, circle, Path.mkdir])
def test_a_subject_that_became_one_after_it_was_indexed_is_no_hit(
    built: Builder, put: Callable[[Path], None]
) -> None:
    index = WorkspaceIndexWriter(built.workspace, Settings(model="off"))
    index.refresh_index()
    index.close()
    reader = IndexReader(built.workspace.cache_dir)
    replace(built.root / "docs/notes/one.md", put)
    found = search_index(built.workspace, reader, SearchRequest("harmless", mode="lexical"))
    assert "one" not in {hit.slug for hit in found.hits} >= {"two", "three"}
    assert found.omitted == 1
    reader.close()


def test_a_hit_is_not_looked_for_outside_the_workspace(built: Builder, tmp_path: Path) -> None:
    index = WorkspaceIndexWriter(built.workspace, Settings(model="off"))
    index.refresh_index()
    index.close()
    reader = IndexReader(built.workspace.cache_dir)
    moved = built.root / "docs/notes/one.md"
    shutil.copy(moved, tmp_path / "elsewhere.md")
    replace(moved, lambda place: place.symlink_to(tmp_path / "elsewhere.md"))
    found = search_index(built.workspace, reader, SearchRequest("otter", mode="lexical"))
    assert "one" not in {hit.slug for hit in found.hits}
    reader.close()


PLACES = [
    ".jp/.id", ".jp/kb.toml", ".jp/config.toml", ".jp/config", ".jp/config/knowledge/n.toml",
    ".jp/kb-sources.toml", ".jp/conversations", ".jp/conversations/17800000001",
    ".jp/conversations/17800000001/events.json", ".jp/conversations/17800000001/metadata.json",
    ".jp/conversations/17800000001/base_config.json", ".jp/conversations/.archive", ".jp/mcp",
    ".jp/mcp/tools", "docs/notes", "docs/notes/one.md", ".mcp.json",
]  # fmt: skip
COMMANDS = [
    ["topics", "--hidden"], ["learn", "notes", "**"], ["prompt"], ["c", "ls"], ["c", "grep", "harmless"],
    ["c", "read", TALK], ["show", "notes/one"], ["show", TALK], ["cites", "notes/one"], ["entries"],
    ["entry", "show", "notes/one"], ["entry", "edit", "notes/one"], ["entry", "rm", "notes/one", "--yes"],
    ["entry", "new", "--topic", "notes", "--title", "x", "--text", "x"], ["search", "harmless"], ["doctor"],
    ["paths"], ["config"], ["source", "ls"], ["source", "run", "x"], ["tools", "install", "--yes"],
    ["source", "add", "url_crawl", "u", "--topic", "more", "--url", "https://y.example/"],
    ["tools", "uninstall"], ["insights"], ["index"],
]  # fmt: skip


@pytest.mark.parametrize("put", [os.mkfifo, device, circle], ids=["pipe", "device", "circle"])
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_command_hangs_wherever_one_lies(
    built: Builder, tmp_path: Path, put: Callable[[Path], None]
) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(built.root, kept)
    for name in PLACES:
        replace(built.root / name, put)
        for words in COMMANDS:
            run(built, *words)
        complete_line("kbtui show no", cwd=built.root)
        for path in built.root.iterdir():
            replace(path, lambda place: None)
        shutil.copytree(kept, built.root, dirs_exist_ok=True)
    assert "harmless" in run(built, "show", "notes/one")
