"""Assistants search all projects, and read what they found there by the reference that they got."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import FIRST_ID, Builder, asked, index_without_engine, said

from kbtui.assistant.assistant_tools import answer_tool_call
from kbtui.library import Library
from kbtui.library.async_memory_client import MemoryClient
from kbtui.userdata.workspace_registry import find_workspace_by_label, list_registered_workspaces
from kbtui.workspace import load_settings

TALK = f"jp-c{FIRST_ID + 1}"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")  # no engine can start
    built = {name: Builder(tmp_path / name) for name in ("alps", "coast")}
    for name, one in built.items():
        one.topics(notes={"disabled": ["den"]})
        one.subject("notes/animal.md", f"# Animal of the {name}\n\nThe ibex of the {name}.\n")
        one.subject("notes/.nest.md", "# Nest\n\nWhere the hidden ibex sleeps.\n")
        one.subject("notes/den.md", "# Den\n\nThe disabled ibex.\n")
        one.conversation(1, [[asked(f"Which ibex of the {name}?"), said(f"The {name} ibex.")]])
        index_without_engine(one)
    return built


@pytest.fixture
def library(built: dict[str, Builder]) -> Iterator[Library]:
    with Library(built["alps"].workspace, load_settings()) as library:
        yield library


def ask(library: Library, tool: str, **arguments: Any) -> str:
    reply = answer_tool_call(tool, arguments, library, masked=True)
    assert not reply.is_error, reply.text
    return reply.text


def test_a_passage_of_another_project_is_labelled_and_read_by_its_reference(
    library: Library, built: dict[str, Builder]
) -> None:
    here = ask(library, "knowledge_search", query="ibex")
    assert "coast" not in here, "the default stays here"
    found = ask(library, "knowledge_search", query="ibex", all_projects=True)
    sources = next(line for line in found.split("\n") if "Sources:" in line).split("Sources: ")[1]
    assert {"notes/animal:1-3", "[coast] notes/animal:1-3", f"[coast] {TALK}:1"} <= set(
        sources.split(", ")
    )
    assert "hidden ibex" not in found
    assert "disabled ibex" not in found
    assert str(built["coast"].root.parent) not in found, "assistants get no paths"
    assert re.search(r"^\[entry \S+ · project coast · chunk ", found, re.MULTILINE)
    assert "The ibex of the coast." in ask(library, "learn", topic="[coast] notes/animal:1-3")
    assert "The coast ibex." in ask(library, "conversation_read", id=f"[coast] {TALK}:1")
    assert "The alps ibex." in ask(library, "conversation_read", id=f"{TALK}:1")


def test_lines_of_all_projects_are_found_and_read_by_their_ids(library: Library) -> None:
    assert "coast" not in ask(library, "conversation_grep", pattern="ibex")
    found = ask(library, "conversation_grep", pattern="ibex", all_projects=True)
    ids = re.findall(r"<id>(.+?)</id>", found)
    assert set(ids) == {TALK, f"[coast] {TALK}"}
    assert "The coast ibex." in ask(library, "conversation_read", id=ids[-1])
    few = ask(library, "conversation_grep", pattern="ibex", all_projects=True, max_chars=1_000)
    assert len(few) <= 1_000
    assert "<omitted>0</omitted>" not in few
    assert "raise `max_chars`" in few


def test_hidden_disabled_excluded_and_unknown_stay_out(
    library: Library, built: dict[str, Builder], home: Path
) -> None:
    for topic in ("[coast] notes/den", "[woods] notes/animal"):
        reply = answer_tool_call("learn", {"topic": topic}, library, masked=True)
        assert "ibex" not in reply.text
    folder = home / "config" / "kbtui"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'[workspaces]\nexclude = ["{built["coast"].root}"]\n')
    with Library(built["alps"].workspace, load_settings()) as library:
        assert "coast" not in ask(library, "knowledge_search", query="ibex", all_projects=True)
        reply = answer_tool_call("conversation_read", {"id": f"[coast] {TALK}"}, library)
        assert reply.is_error
        assert "no project 'coast'" in reply.text


def test_python_clients_get_project_and_workspace(
    library: Library, built: dict[str, Builder]
) -> None:
    client = MemoryClient(library)
    hits = asyncio.run(client.knowledge.search("ibex", all_projects=True))
    assert {(hit.project, hit.workspace) for hit in hits} == {
        (name, str(one.root)) for name, one in built.items()
    }
    assert {hit.project for hit in asyncio.run(client.knowledge.search("ibex"))} == {None}


def test_workspaces_of_one_project_have_labels_of_their_own(
    tmp_path: Path, built: dict[str, Builder]
) -> None:
    tree = tmp_path / "fix" / "alps"
    git = ["git", "-C", str(built["alps"].root), "-c", "user.name=A", "-c", "user.email=a@b"]
    for words in ("init -q", "add -A", "commit -qm first"):
        subprocess.run([*git, *words.split()], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True)
    for one in (Builder(tree), built["alps"]):
        index_without_engine(one)
    settings = load_settings()
    listed = list_registered_workspaces(settings, built["alps"].workspace)
    assert {one.project for one in listed} == {"alps", "coast"}
    labels = {one.label for one in listed}
    assert len(labels) == 3
    for one in listed:
        assert find_workspace_by_label(one.label, settings).root == one.workspace.root
