"""The code of the guide's Python page runs unchanged, and its names exist."""

import asyncio
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo_files import DEMO, subject_files
from support import Builder, kill_engine

import kbtui

PAGE = subject_files()["guide/python"].read_text("utf-8")
CODE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
CALLS = ["topics", "learn", "search", "read", "cites", "list_conversations"]


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "demo"
    shutil.copytree(DEMO, root)
    monkeypatch.setenv("KBTUI_MODEL", "off")
    yield root
    kill_engine(Builder(root))


def test_the_code_of_the_guide_runs_as_it_stands(demo: Path) -> None:
    told = []
    for code in CODE:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=demo,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=os.environ.copy(),
        )
        assert (done.returncode, done.stderr) == (0, ""), code
        told.append(done.stdout)
    library, memory, errors = told
    assert "engineering" in library
    assert "# How text is cut into passages" in library
    assert re.search(r"^[a-z]+/[a-z/0-9-]+:\d+-\d+ 0\.\d+ ", library, re.MULTILINE)
    assert re.search(r"^jp-c\d+:\d+ .+ 2026-", library, re.MULTILINE), "cites"
    assert re.search(r"^jp-c\d+ .+ 2026-", library, re.MULTILINE), "conversations"
    assert memory.strip()
    assert errors.startswith("not there: the topic 'engineering' has no subject ")


def test_the_page_names_all_that_is_public_and_nothing_else() -> None:
    public = {name for name in kbtui.__all__ if not name.startswith("__")}
    named = set(re.findall(r"`([A-Z]\w+)`", PAGE))
    assert named <= public
    for name in public:
        assert name in PAGE or name == "Library", name
        assert getattr(kbtui, name).__doc__


@pytest.mark.parametrize("call", CALLS)
def test_the_client_for_coroutines_has_the_same_calls(call: str) -> None:
    assert f"`{call}(" in PAGE
    own = inspect.signature(getattr(kbtui.Library, call)).parameters
    client = getattr(kbtui.MemoryClient, call)
    assert inspect.iscoroutinefunction(client)
    assert set(inspect.signature(client).parameters) == set(own) - {"origin"}


def test_the_attributes_that_the_page_names_exist(demo: Path) -> None:
    async def ask() -> tuple[kbtui.SearchAnswer, kbtui.Citations, list[kbtui.Topic]]:
        async with kbtui.create_memory_client(demo) as memory:
            assert len(await memory.list_conversations(archived=False)) > 5
            assert '<subject "fusion">' in await memory.learn("engineering", ["chunking", "fusion"])
            return (
                await memory.search("lock file"),
                await memory.cites("engineering/engine-rules"),
                await memory.topics(),
            )

    answer, citations, topics = asyncio.run(ask())
    with kbtui.open_workspace(demo) as library:
        assert [hit.ref for hit in library.search("lock file").hits] == [
            hit.ref for hit in answer.hits
        ]
        assert library.cites("engineering/engine-rules") == citations
        assert library.topics() == topics
        assert library.search("qqqzzzyyy xxyyzz").hits == []
    [conversation, *_] = library.list_conversations()
    for kind, value in {
        "Topic": topics[0],
        "SearchAnswer": answer,
        "Citations": citations,
        "ConversationInfo": conversation,
    }.items():
        [described] = re.findall(rf"`{kind}`: (.*?)[|\n]", PAGE) or [""]
        for name in re.findall(r"`(\w+)`", described):
            assert hasattr(value, name), f"{kind}.{name}"


def test_mistakes_are_clear_errors(demo: Path, tmp_path: Path) -> None:
    with kbtui.open_workspace(demo) as library:
        for wrong in ("", "  ", "after:soonish words"):
            with pytest.raises(kbtui.UsageError):
                library.search(wrong)
        for options in ({"types": "note"}, {"topics": "guide"}, {"mode": "fuzzy"}):
            with pytest.raises(kbtui.UsageError):
                library.search("words", **options)  # type: ignore[call-overload]
        with pytest.raises(kbtui.NothingFound, match="Unknown topic"):
            library.learn("nowhere")
        with pytest.raises(kbtui.NothingFound):
            library.read("chunk:nosuch")
        with pytest.raises(kbtui.UsageError, match="is not a reference"):
            library.read("two words")
    with pytest.raises(kbtui.WorkspaceError, match="no such directory"):
        kbtui.open_workspace(tmp_path / "nowhere")
    with pytest.raises(kbtui.WorkspaceError):
        kbtui.create_memory_client(tmp_path / "nowhere")
