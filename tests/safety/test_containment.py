"""Nothing outside the workspace is indexed or shown, whatever links or paths point to it."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import on_pipe
from support import Builder, asked, kill_engine, said

from kbtui.assistant.assistant_tools import answer_tool_call
from kbtui.index import index_generations
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.library import Library
from kbtui.workspace import Settings

OUTSIDE = "0UTS1DE"
TALK = "jp-c17800000001"
ESCAPES = [
    "linked", "folder/secret", "loop/x", "../../../outside/secret", "/etc/hostname", "..", "./../one",
    "one/../../../../outside/secret", "%2e%2e/%2e%2e/outside/secret", "..\\..\\outside\\secret",
    "~/secret", "file:///etc/hostname", "hard/../../../outside/secret", "pipe", "device", "socket",
]  # fmt: skip


@pytest.fixture
def built(
    workspace_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    outside = tmp_path / "outside"
    talks = outside / "conversations"
    other = Builder(outside)
    other.conversation(
        5, [[asked(f"{OUTSIDE} of another workspace"), said(OUTSIDE)]], title=OUTSIDE
    )
    (outside / "secret.md").write_text(f"# Secret\n\n{OUTSIDE}\n")
    (outside / "more").mkdir()
    (outside / "more/deep.md").write_text(f"{OUTSIDE}\n")
    talks = outside / ".jp/conversations"
    builder = Builder(workspace_root)
    builder.topics(notes={}, away={"subjects": "linked-topic"}, up={"subjects": "../outside"})
    with (workspace_root / ".jp/kb.toml").open("a") as file:
        file.write(f'[kb.topic.absolute]\nsubjects = "{outside}"\n')
        file.write('[kb.topic.dots]\nsubjects = "docs/../../outside"\n')
    builder.subject("notes/one.md", "# One\n\nA harmless otter.\n")
    notes = workspace_root / "docs/notes"
    (notes / "linked.md").symlink_to(outside / "secret.md")
    (notes / "folder").symlink_to(outside)
    (notes / "loop").symlink_to(notes)
    (notes / "relative.md").symlink_to("../../../outside/secret.md")
    (notes / "twice.md").symlink_to(notes / "linked.md")
    (notes / "device.md").symlink_to("/dev/zero")
    os.mkfifo(notes / "pipe.md")
    plug = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(notes)
    plug.bind("socket.md")
    os.chdir(here)
    (workspace_root / "linked-topic").rmdir()
    (workspace_root / "linked-topic").symlink_to(outside)
    for name in (
        "CON.md",
        "nul.txt",
        "One.md",
        "ONE.md",
        "a:b.md",
        "-rf.md",
        "trailing. .md",
        "~.md",
    ):
        (notes / name).write_text(f"# {name}\n\nA harmless heron.\n")
    builder.conversation(1, [[asked("Where is the otter?"), said("In the river.")]], title="Talk")
    # A link to a conversation elsewhere, and one to the events of another.
    conversations = workspace_root / ".jp/conversations"
    (conversations / "17800000005").symlink_to(talks / "17800000005")
    half = builder.conversation(6, [[asked("mine")]], title="Half")
    (half / "events.json").unlink()
    (half / "events.json").symlink_to(talks / "17800000005/events.json")
    endless = builder.conversation(7, [[asked("mine")]], title="Endless")
    (endless / "events.json").unlink()
    (endless / "events.json").symlink_to("/dev/zero")
    stuck = builder.conversation(8, [[asked("mine")]], title="Stuck")
    (stuck / "events.json").unlink()
    os.mkfifo(stuck / "events.json")
    yield builder
    plug.close()
    kill_engine(builder)


def commands() -> list[list[str]]:
    given = [
        ["topics", "--hidden"], ["prompt"], ["learn", "notes", "**"], ["learn", "away"], ["learn", "up"], ["learn", "absolute"],
        ["learn", "dots"], ["c", "ls"], ["c", "grep", OUTSIDE[:4]], ["c", "read", "jp-c17800000005"], ["c", "read", "jp-c17800000006"],
        ["c", "read", "jp-c17800000007"], ["c", "read", "jp-c17800000008"], ["c", "export", "jp-c17800000006"],
        ["show", "jp-c17800000005"], ["show", "jp-c17800000006:1"], ["entries"], ["doctor"], ["cites", "jp-c17800000006"],
        ["search", "another", "workspace"], ["search", "secret"], ["entry", "show", "jp-c17800000006"],
    ]  # fmt: skip
    for escape in ESCAPES:
        given += [["show", f"notes/{escape}"], ["learn", "notes", escape]]
    given += [["entry", "show", f"notes/{escape}"] for escape in ESCAPES[:4]]
    return given


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_no_command_shows_what_lies_outside(built: Builder, step: int) -> None:
    for words in commands()[::step]:
        out, err, code = on_pipe(["-w", str(built.root), *words])
        text = (out + err).decode()
        # Answers repeat the reference that was requested.
        assert OUTSIDE not in text.replace(OUTSIDE[:4] + " ", ""), (words, text)
        assert "Traceback" not in text, (words, text)
        assert code in {0, 1, 2, 3}, (words, code)


def test_no_assistant_is_given_it_and_no_index_has_it(built: Builder) -> None:
    index = WorkspaceIndexWriter(built.workspace, Settings())
    index.refresh_index()
    index.close()
    folder = index_generations.find_current_index_generation(built.workspace.cache_dir)
    assert folder is not None
    for path in folder.rglob("*"):
        if path.is_file():
            assert OUTSIDE.encode() not in path.read_bytes(), path
    library = Library(built.workspace, Settings(model="off"))
    calls = [
        *[("learn", {"topic": topic}) for topic in ("notes", "away", "up", "absolute", "dots")],
        *[("learn", {"topic": "notes", "subjects": escape}) for escape in [*ESCAPES, "**"]],
        ("knowledge_search", {"query": "secret another workspace", "limit": 100}),
        ("conversation_list", {}),
        ("conversation_grep", {"pattern": "another"}),
        *[("conversation_read", {"id": f"jp-c1780000000{number}"}) for number in (5, 6, 7, 8)],
    ]
    try:
        for name, arguments in calls:
            assert OUTSIDE not in answer_tool_call(name, arguments, library).text, (name, arguments)  # type: ignore[arg-type]
    finally:
        library.close()


def test_writing_stays_inside_too(built: Builder, tmp_path: Path) -> None:
    before = {
        path: path.read_bytes() for path in (tmp_path / "outside").rglob("*") if path.is_file()
    }
    for slug in ("../../../outside/new", "folder/new", "/tmp/kbtui-new", "linked"):
        for topic in ("notes", "away", "up", "absolute"):
            words = [
                "entry",
                "new",
                "--topic",
                topic,
                "--title",
                "x",
                "--slug",
                slug,
                "--text",
                "x",
            ]
            on_pipe(["-w", str(built.root), *words])
    assert not Path("/tmp/kbtui-new.md").exists()
    after = {
        path: path.read_bytes() for path in (tmp_path / "outside").rglob("*") if path.is_file()
    }
    assert after == before


def test_several_hard_links_are_reported_by_doctor(built: Builder, tmp_path: Path) -> None:
    os.link(built.root / "docs/notes/one.md", tmp_path / "elsewhere.md")
    out, _, _ = on_pipe(["-w", str(built.root), "doctor", "--json"])
    said_ = [finding["message"] for finding in json.loads(out)]
    assert [text for text in said_ if "notes/one: the file has other hard links" in text]


def test_names_that_differ_in_case_alone_are_all_reachable(built: Builder) -> None:
    for name in ("one", "One", "ONE", "CON", "nul", "-rf"):
        out, _, code = on_pipe(["-w", str(built.root), "show", f"notes/{name}"])
        assert code == 0, name
        assert b"harmless" in out
