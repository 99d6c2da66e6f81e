"""Tests that TUI, command, JP tool, MCP and the Python APIs give one question the same ranking."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import run_command
from support import Builder, asked, kill_engine, said

import kbtui
from kbtui.citations.tool_call_citations import SEARCH_RESULT_HEADER
from kbtui.errors import UsageError
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import open_workspace_at_root

sys.path.insert(0, str(Path(__file__).parents[1] / "tui"))
from tui_support import Tui, running

QUESTIONS = [
    "aardvark burrow",
    "where do badgers sleep",
    '"feed it"',
    "aardvark type:rule",
    "burow",
]


@pytest.fixture
def zoo(workspace_root: Path, request: pytest.FixtureRequest) -> Iterator[Builder]:
    builder = Builder(workspace_root)
    builder.topics(zoo={"title": "The Zoo"}, farm={})
    for number, (topic, kind, words) in enumerate(
        [
            ("zoo", "rule", "Feed it at dusk; the aardvark leaves its burrow then."),
            ("zoo", "note", "An aardvark digs a burrow in minutes. A burrow has many doors."),
            ("zoo", "rule", "Never fill a burrow: badgers and aardvarks share them."),
            ("farm", "note", "Badgers rest in a sett by day."),
            ("farm", "decision", "We keep no aardvark on the farm."),
            ("farm", "note", "Hens roost on poles at night."),
        ]
    ):
        builder.subject(
            f"{topic}/s{number}.md", f"---\ntype: {kind}\n---\n# Subject {number}\n\n{words}\n"
        )
    builder.conversation(
        1, [[asked("Where is the aardvark?"), said("In its burrow, asleep.")]], title="Asleep"
    )
    yield builder
    kill_engine(builder)


def command(builder: Builder, question: str) -> list[tuple[str, float]]:
    done = run_command("-w", str(builder.root), "search", question, "--json", "--wait", "60")
    return [(hit["chunk_id"], round(hit["score"], 4)) for hit in json.loads(done.stdout)["hits"]]


def headers(text: str) -> list[tuple[str, float]]:
    return [(found[1], float(found[2])) for found in SEARCH_RESULT_HEADER.findall(text)]


async def by_mcp(builder: Builder, questions: list[str]) -> list[list[tuple[str, float]]]:
    from mcp import Client, StdioServerParameters

    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "kbtui.cli.main", "mcp", "-w", str(builder.root)],
        env=dict(os.environ),
    )
    found = []
    async with Client(parameters, read_timeout_seconds=60) as client:
        for question in questions:
            result = await client.call_tool("knowledge_search", {"query": question})
            [content] = result.content
            assert content.type == "text"
            found.append(headers(content.text))
    return found


def by_tool(builder: Builder, question: str) -> list[tuple[str, float]]:
    context = json.dumps({"action": "run", "root": str(builder.root)})
    asked_for = {"name": "knowledge_search", "arguments": {"query": question}}
    done = run_command("tool", context, json.dumps(asked_for))
    assert done.returncode == 0, done.stderr
    return headers(json.loads(done.stdout)["content"])


async def by_tui(
    builder: Builder, library: kbtui.Library, questions: list[str]
) -> list[list[tuple[str, float]]]:
    found = []
    async with running(builder.root, library=library) as tui:
        for question in questions:
            await tui.press("slash")
            await tui.type(question)
            await tui.until(lambda: _settled(tui), 60)
            pane = tui.main.results_pane
            assert tui.main.search.query == question
            assert pane.answer is not None
            found.append([(hit.chunk_id, round(hit.score, 4)) for hit in pane.answer.hits])
            await tui.press("escape")
    return found


def _settled(tui: Tui) -> bool:
    """Whether the TUI shows the complete answer, semantic hits included."""
    asker, answer = tui.main.search, tui.main.results_pane.answer
    return answer is not None and answer.query == asker.query and "by meaning …" not in tui.text


async def same_everywhere(builder: Builder, questions: list[str]) -> None:
    library = kbtui.open_workspace(builder.root)
    try:
        library.search(SearchRequest(questions[0]), wait=60.0, origin=None)
        library.connect_engine().send_request("settle", wait=60.0, timeout=70.0)
        expected = []
        for question in questions:
            answered = library.search(SearchRequest(question), wait=60.0)
            expected.append([(hit.chunk_id, round(hit.score, 4)) for hit in answered.hits])
        assert all(expected[:3])
        assert [command(builder, question) for question in questions] == expected
        assert [by_tool(builder, question) for question in questions] == expected
        assert await by_mcp(builder, questions) == expected
        async with kbtui.create_memory_client(builder.root) as memory:
            for question, wanted in zip(questions, expected, strict=True):
                hits = await memory.knowledge.search(question, wait=60.0)
                assert [(hit.chunk_id, round(hit.score, 4)) for hit in hits] == wanted
        grouped = []
        for question in questions:
            answered = library.search(SearchRequest(question, per_entry=1), wait=60.0)
            grouped.append([(hit.chunk_id, round(hit.score, 4)) for hit in answered.hits])
        assert all(set(best) <= set(all_) for best, all_ in zip(grouped, expected, strict=True))
        assert await by_tui(builder, library, questions) == grouped
    finally:
        library.close()


async def test_every_front_end_gives_the_same_ranking_by_keywords(
    zoo: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    await same_everywhere(zoo, QUESTIONS[:3])


async def test_every_front_end_gives_the_same_ranking_with_meaning(
    zoo: Builder, with_export: Path
) -> None:
    await same_everywhere(zoo, QUESTIONS)


async def test_the_client_of_the_documents_example(
    zoo: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    async with kbtui.create_memory_client(zoo.root) as memory:
        hits = await memory.knowledge.search("burrow", limit=5, types=["rule", "pattern"])
        assert {hit.ref.partition(":")[0] for hit in hits} == {"zoo/s0", "zoo/s2"}
        assert all(hit.entry_id and hit.chunk_id and hit.score > 0 for hit in hits)
        assert "burrow" in hits[0].content
        assert hits[0].entry_title.startswith("Subject")
        for limit in (0, -1, 101):
            with pytest.raises(UsageError, match="limit: must be from 1 to 100"):
                await memory.knowledge.search("burrow", limit=limit)
        # Narrowed before ranking.
        assert await memory.knowledge.search("burrow", topics=["farm"]) == []
        talks = await memory.knowledge.search("asleep", types=["conversation"])
        assert {hit.ref.partition(":")[0] for hit in talks} == {"jp-c17800000001"}
        for wrong in ("", "  "):
            with pytest.raises(UsageError):
                await memory.knowledge.search(wrong)
        with pytest.raises(UsageError):
            await memory.knowledge.search("burrow", types="rule")
    from kbtui.userdata.user_data_store import UserData

    assert UserData(
        open_workspace_at_root(zoo.root)
    ).query_log.compute_search_statistics().by_origin == {"sdk": 3}
