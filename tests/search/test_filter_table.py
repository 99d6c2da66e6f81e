"""Tests that one row of the filter table makes a filter work on all its surfaces."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from running import complete_line
from support import Builder, asked, said

from kbtui.cli import search_command
from kbtui.cli.argument_parser_base_class import CliArgumentParser
from kbtui.cli.filter_options import parse_filter_options
from kbtui.cli.main import main
from kbtui.conversations.conversation_data_types import ConversationToolsAndModels
from kbtui.conversations.conversation_repository import list_conversations
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.knowledge import load_knowledge
from kbtui.search import filter_definitions, query_completion
from kbtui.search.filter_definitions import FilterDefinition
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import parse_search_request_json
from kbtui.tui.library_pane import parse_library_filter
from kbtui.workspace import Settings

AREA = FilterDefinition(
    "area",
    "only this area",
    "term",
    ("zone",),
    search="topics",
    term="topic",
    entries="topics",
    library=lambda info, _, value: value in info.name.casefold(),
    options=("--area",),
    metavar="AREA",
)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(tmp_path / "ws")
    builder.topics(guide={}, notes={})
    builder.subject("guide/start.md", "# Start\n\nThe engine starts.\n")
    builder.subject("notes/end.md", "# End\n\nThe engine ends.\n")
    builder.conversation(1, [[asked("Which engine?"), said("The guide's.")]], title="Guide talk")
    builder.conversation(2, [[asked("Why?"), said("So.")]], title="Other talk")
    return builder


@pytest.fixture
def reader(built: Builder, tmp_path: Path) -> Iterator[IndexReader]:
    index = WorkspaceIndexWriter(built.workspace, Settings(), cache_dir=tmp_path / "index")
    index.refresh_index()
    index.close()
    with closing(IndexReader(tmp_path / "index")) as reader:
        yield reader


def test_a_new_row_is_a_filter_of_search_library_entries_options_and_completion(
    built: Builder,
    reader: IndexReader,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def searched(*words: str) -> set[str]:
        parser = CliArgumentParser(prog="kbtui search")
        search_command.declare_search_command_arguments(parser)
        args = parser.parse_args(words)
        fields = {"query": " ".join(args.query), "mode": "lexical", **parse_filter_options(args)}
        question = parse_search_request_json(fields)
        return {
            hit.ref.split(":")[0] for hit in search_index(built.workspace, reader, question).hits
        }

    def listed(*words: str) -> set[str]:
        assert main(["-w", str(built.root), "entries", "--json", *words]) == 0
        return {row["ref"] for row in json.loads(capfd.readouterr().out)["entries"]}

    monkeypatch.setattr(filter_definitions, "FILTERS", (*filter_definitions.FILTERS, AREA))
    for words in (["engine area:guide"], ["engine zone:guide"], ["engine", "--area", "guide"]):
        assert searched(*words) == {"guide/start"}
    for words in (["area:guide"], ["zone:guide"], ["--area", "guide"]):
        assert listed(*words) == {"guide/start"}
    shown = parse_library_filter("area:guide", datetime.now(UTC))
    summary = ConversationToolsAndModels(tools=frozenset(), models=frozenset())
    infos = list_conversations(built.workspace)
    assert [info.title for info in infos if shown.matches_conversation(info, summary)] == [
        "Guide talk"
    ]

    for command in ("search", "entries"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "--area AREA" in capfd.readouterr().out
        assert "--area\tonly this area" in complete_line(f"kbtui {command} --a").splitlines()
    offered = query_completion.list_query_completions("ar", 2, load_knowledge(built.workspace))
    assert ("area:", "only this area") in [(one.text, one.note) for one in offered]


def test_search_and_entries_know_the_same_words_for_dates(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in (["entries"], ["search", "--mode", "lexical", "engine"]):
        for past in (["before:2020"], ["until:2020"], ["--before", "2020"], ["--until=2020"]):
            assert main(["-w", str(built.root), *command, *past]) == 1, past
        for since in (["after:2020"], ["since:2020"], ["--after", "2020"], ["--since=2020"]):
            assert main(["-w", str(built.root), *command, *since]) == 0, since
        assert main(["-w", str(built.root), *command, "after:soonish"]) == 2
        assert "'soonish' is not a date" in capfd.readouterr().err


def test_a_space_in_an_option_belongs_to_its_value(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in (["entries"], ["search", "--mode", "lexical", "engine"]):

        def run(*words: str, command: list[str] = command) -> tuple[int, str]:
            code = main(["-w", str(built.root), *command, *words])
            return code, capfd.readouterr().err

        for words in (["--agent", "Claude Code, jp"], ["--since", "2020-11-20 10:05"]):
            assert run(*words)[0] == 0, words
        code, err = run("--agent", "Clod jp")
        assert (code, "unknown agent 'Clod jp'" in err) == (2, True)
        code, err = run("--since", "2020-11-20 2020-11-22")
        assert (code, "'2020-11-20 2020-11-22' is not a date" in err) == (2, True)


def test_entries_leave_out_words_and_keep_phrases(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    for query, refs in (
        ("engine -ends", {"guide/start", "jp-c17800000001"}),
        ('"engine starts"', {"guide/start"}),
        ("type:conversation engine status:ready,pending", {"jp-c17800000001"}),
    ):
        assert main(["-w", str(built.root), "entries", "--json", "--", query]) == 0
        rows = json.loads(capfd.readouterr().out)["entries"]
        assert {row["ref"] for row in rows} == refs
    assert main(["-w", str(built.root), "entries", "is:red"]) == 2
    assert "unknown status 'red'" in capfd.readouterr().err
