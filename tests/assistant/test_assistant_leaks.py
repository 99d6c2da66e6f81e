"""Assistants cannot notice hidden and disabled subjects: answers equal those without them."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Builder, asked, said

from kbtui.assistant.assistant_tools import answer_tool_call, list_offered_tools
from kbtui.errors import EngineUnavailableError
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.knowledge import load_knowledge
from kbtui.library import Library
from kbtui.workspace import Settings

WORDS = ["aardvark", "badger", "cormorant", "dormouse", "ermine"]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
secrets = st.lists(st.sampled_from([*WORDS, "zebra"]), min_size=1, max_size=12).map(" ".join)
names = st.sampled_from(["one", "two", "deep/three", "deep/four", "five"])
visible = st.dictionaries(names, texts, min_size=1, max_size=5)
unseen = st.dictionaries(
    st.sampled_from([".six", "deep/.seven", ".folder/eight", "out/nine", "out/ten", "secret"]),
    secrets,
    min_size=1,
    max_size=6,
)
switched_off = st.dictionaries(names, texts, max_size=2)

CALLS: list[tuple[str, dict[str, Any]]] = [
    *[("learn", {"topic": topic}) for topic in ("notes", "Notes", "off", "empty", "nonsense")],
    *[
        ("learn", {"topic": "notes", "subjects": pattern})
        for pattern in ("*", "**", "out/*", "out/nine", "secret", "s*", ".*", ".folder/*", "none")
    ],
    ("learn", {"topic": "notes", "subjects": ["**", "out/ten", "secret"]}),
    *[("knowledge_search", {"query": query}) for query in (*WORDS, " ".join(WORDS))],
    # Words, near misses and filters that match only in hidden subjects.
    *[
        ("knowledge_search", {"query": query})
        for query in ("zebra", "zebr", "zebar ermine", "badgre", "ermine topic:off", "title:nine")
    ],
    ("knowledge_search", {"query": "badger -zebra type:note in:subjects"}),
    ("knowledge_search", {"query": '"aardvark badger" -ermine', "in": "subjects"}),
    ("knowledge_search", {"query": "dormouse", "topics": ["notes"], "limit": 2}),
    ("knowledge_search", {"query": "dormouse", "topics": ["off"]}),
    ("knowledge_search", {"query": "dormouse", "topics": ["empty"]}),
    ("knowledge_search", {"query": "ermine", "types": ["note"]}),
    # Types, tags and sources of hidden subjects only, names similar to theirs, and mistakes.
    *[
        ("knowledge_search", {"query": query})
        for query in (
            "ermine type:recipe",
            "ermine type:recip",
            "ermine -type:recipe",
            "ermine tag:quill",
            "type:recipe",
            "ermine typ:note",
            "ermine role:nobody",
            "ermine in:secret",
            "ermine since:secret",
            "ermine topic:of",
            "ermine topic:of*",
            "ermine title:secret",
            "quill",
            "recipe",
            "ermine tool:secret",
            "ermine entry:secret",
        )
    ],
    *[
        ("knowledge_search", {"query": "ermine", **more})
        for more in (
            {"types": ["recipe"]},
            {"types": ["recip"]},
            {"types": ["note", "recipe"]},
            {"topics": ["of"]},
            {"topics": ["Of"]},
            {"topics": ["nonsense"]},
            {"topics": [1]},
            {"limit": "many"},
            {"in": "secret"},
            {"limit": 100},
            {"limit": -1},
            {"more": 1},
        )
    ],
    *[
        ("learn", {"topic": "notes", "subjects": pattern})
        for pattern in (
            "secre",
            "nine",
            "out",
            "deep",
            "deep/",
            "deep/.seven",
            "eight",
            "ten",
            [],
            [".six"],
        )
    ],
    *[("learn", {"topic": topic}) for topic in ("of", "OFF", "note", "emp", "", "../notes")],
    ("conversation_grep", {"pattern": "ermine"}),
    ("conversation_list", {}),
]


FRONT = "---\ntitle: A zebra's secret\ntype: recipe\ntags: [quill]\nsource: quill\n---\n\n"
"""Front matter that no visible subject has."""


@contextmanager
def workspace(seen: dict[str, str], rest: dict[str, str], off: dict[str, str]) -> Iterator[Builder]:
    with tempfile.TemporaryDirectory(prefix="kb-") as base:
        builder = Builder(Path(base) / "ws")
        builder.topics(
            notes={"title": "Notes", "disabled": ["out/**", "secret"], "learned": ["five"]},
            empty={"title": "Nothing seen", "disabled": ["out/**"]},
            off={"title": "Off", "enable": False},
        )
        files = {
            **{f"notes/{slug}.md": text for slug, text in {**seen, **rest}.items()},
            **{f"empty/{slug}.md": text for slug, text in rest.items() if slug != "secret"},
            **{f"off/{slug}.md": text for slug, text in off.items()},
        }
        for path, text in files.items():
            unseen_ = path.removeprefix("notes/") in rest or not path.startswith("notes/")
            head = FRONT if unseen_ else ""
            file = builder.subject(path, f"{head}# {path.split('/')[-1]}\n\n{text}\n")
            os.utime(file, (1_700_000_000, 1_700_000_000))
        folder = builder.conversation(
            1, [[asked("An ermine?"), said("And a badger.")]], title="Talk"
        )
        for file in folder.iterdir():
            os.utime(file, (1_700_000_000, 1_700_000_000))
        yield builder


def answers(builder: Builder) -> dict[str, Any]:
    """Return all answers that an assistant can get in this workspace."""
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    library = Library(builder.workspace, Settings(model="off"))
    try:
        found: dict[str, Any] = {
            f"{name} {arguments}": answer_tool_call(name, arguments, library)
            for name, arguments in CALLS
        }
    finally:
        library.close()
    found["offered"] = [
        (tool.name, tool.description)
        for tool in list_offered_tools(load_knowledge(builder.workspace))
    ]
    return found


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build the index in this process, without an engine."""

    def unavailable(self: Library, *, start: bool = True) -> None:
        raise EngineUnavailableError("none in this test")

    monkeypatch.setattr(Library, "connect_engine", unavailable)


@settings(max_examples=4, deadline=None)
@given(seen=visible, rest=unseen, off=switched_off)
def test_every_answer_is_that_of_a_workspace_without_them(
    seen: dict[str, str], rest: dict[str, str], off: dict[str, str]
) -> None:
    with workspace(seen, rest, off) as whole, workspace(seen, {}, {}) as without:
        assert answers(whole) == answers(without)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=60, deadline=None)
@given(seen=visible, rest=unseen, off=switched_off)
def test_every_answer_of_many_workspaces_is_that_without_them(
    seen: dict[str, str], rest: dict[str, str], off: dict[str, str]
) -> None:
    with workspace(seen, rest, off) as whole, workspace(seen, {}, {}) as without:
        assert answers(whole) == answers(without)


def test_the_comparison_can_fail() -> None:
    with (
        workspace({"one": "aardvark"}, {}, {}) as first,
        workspace({"one": "aardvark", "two": "aardvark"}, {}, {}) as second,
    ):
        found, other = answers(first), answers(second)
        differing = {name.partition(" ")[0] for name in found if found[name] != other[name]}
        assert differing == {"learn", "knowledge_search"}


def test_a_subject_disabled_since_the_index_was_made_is_not_served_or_counted() -> None:
    with workspace({"one": "aardvark", "two": "aardvark badger"}, {}, {}) as builder:
        answers(builder)
        text = (builder.root / ".jp/kb.toml").read_text()
        (builder.root / ".jp/kb.toml").write_text(text.replace('"secret"', '"secret", "two"'))
        library = Library(builder.workspace, Settings(model="off"))
        question = {"query": "aardvark", "in": "subjects"}
        reply = answer_tool_call("knowledge_search", question, library)
        library.close()
        assert "notes/one" in reply.text
        assert "two" not in reply.text
        assert "badger" not in reply.text
