"""Tests of the library: search, the query log and references."""

import asyncio
from pathlib import Path

import pytest
from support import Builder, asked, end_engine, said

from kbtui import create_memory_client, open_workspace
from kbtui.errors import NothingFound, UsageError
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace import Settings


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "The Guide", "disabled": ["gone"]})
    builder.subject("guide/start.md", "# Start\n\nThe aardvark wakes.\n")
    builder.subject("guide/gone.md", "# Gone\n\nThe aardvark left.\n")
    builder.conversation(1, [[asked("Aardvark?"), said("Awake.")]], title="Talk")
    return builder


def test_values_that_are_not_allowed_are_refused_and_named(built: Builder) -> None:
    with open_workspace(built.root) as lib:
        for name, value in [("limit", 0), ("limit", -1), ("limit", 101), ("wait", float("nan"))]:
            with pytest.raises(UsageError) as raised:
                lib.search("aardvark", **{name: value})
            assert raised.value.where == name
        for limit in ("5", 2.5):
            with pytest.raises(TypeError):
                lib.search("aardvark", limit=limit)  # type: ignore[arg-type]
        assert len(lib.search("aardvark", limit=1).hits) == 1


def test_a_search_is_logged_with_its_origin_and_can_be_forbidden(built: Builder) -> None:
    lib = open_workspace(built.root)
    lib.search(SearchRequest("aardvark", mode="lexical"), origin="cli")
    lib.search(SearchRequest("xylophone", mode="lexical"), origin="mcp")
    lib.search(SearchRequest("unlogged", mode="lexical"), origin=None)
    found = UserData(lib.workspace).query_log.compute_search_statistics()
    assert sorted(row.query for row in found.top) == ["aardvark", "xylophone"]
    assert [row.query for row in found.gaps] == ["xylophone"]
    Library(lib.workspace, Settings(query_log=False)).search(
        SearchRequest("secret", mode="lexical")
    )
    assert "secret" not in [
        row.query for row in UserData(lib.workspace).query_log.compute_search_statistics().top
    ]
    lib.connect_engine().send_request("stop")


def test_a_log_that_cannot_be_written_does_not_fail_the_search(built: Builder) -> None:
    lib = open_workspace(built.root)
    lib.workspace.user_data_directory.parent.mkdir(parents=True, exist_ok=True)
    lib.workspace.user_data_directory.write_text("in the way")
    assert lib.search(SearchRequest("aardvark", mode="lexical"), origin="cli").hits
    lib.connect_engine().send_request("stop")


@pytest.mark.parametrize("wait", [-1.0, float("nan"), float("inf"), 1e300])
def test_a_search_refuses_to_wait_for_ever(built: Builder, wait: float) -> None:
    lib = open_workspace(built.root)
    with pytest.raises(UsageError, match="wait: must be from 0 to 86400 seconds"):
        lib.search("aardvark", wait)


def test_lines_past_the_end_are_refused_with_one_count_everywhere(built: Builder) -> None:
    lib = open_workspace(built.root)
    assert lib.read("guide/start:3") == "The aardvark wakes."
    with pytest.raises(NothingFound, match="the subject has 3 lines"):
        lib.read("guide/start:4")
    with pytest.raises(NothingFound, match="the subject has 3 lines"):
        lib.learn("guide", "start:4")


def test_references_name_subjects_and_never_disabled_ones(built: Builder) -> None:
    lib = open_workspace(built.root / "docs" / "guide")
    assert lib.find_subject(lib.parse_entered_reference("guide/start")).slug == "start"
    with pytest.raises(NothingFound):
        lib.find_subject(lib.parse_entered_reference("guide/gone"))
    assert lib.parse_entered_reference("guide/start:2-3").lines == (2, 3)
    assert str(lib.parse_entered_reference("jp-c17800000001:1")) == "jp-c17800000001:1"
    assert lib.parse_entered_reference("The Guide/nowhere").topic == "guide"
    assert str(lib.parse_entered_reference("No Topic/start")) == "No Topic/start"


def test_a_topic_is_named_by_its_title_wherever_a_reference_is_entered(built: Builder) -> None:
    built.subject("guide/11:30.md", "# Noon\n\nThe aardvark eats.\n")
    with open_workspace(built.root) as lib:
        for slug, title in (("start", "Start"), ("11:30", "Noon")):
            named = f"the guide/{slug}"
            assert lib.read(named) == lib.read(f"guide/{slug}")
            why = lib.search(SearchRequest("wombat", mode="lexical", why=named)).why
            assert why is not None
            assert (why.ref, why.title) == (f"guide/{slug}", title)
            similar = lib.search(SearchRequest(mode="lexical", like=named))
            assert similar.hits
            assert title not in [hit.title for hit in similar.hits]


def test_a_file_named_like_a_workspace_is_none(tmp_path: Path) -> None:
    (tmp_path / ".jp").write_text("a file")
    library = open_workspace(tmp_path)
    assert not library.workspace.is_jp_workspace
    assert (library.topics(), library.list_conversations()) == ([], [])


async def test_a_cancelled_call_of_the_client_leaves_it_usable(built: Builder) -> None:
    async with create_memory_client(built.root) as memory:
        for _ in range(3):
            task = asyncio.create_task(memory.search("aardvark"))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await memory.search("aardvark")).hits
    end_engine(built)
