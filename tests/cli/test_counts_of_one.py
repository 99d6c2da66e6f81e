"""A count of one has a noun in the singular."""

from pathlib import Path

import pytest
from support import Builder, asked, called, index_without_engine, kill_engine, said

from kbtui.cli.main import main
from kbtui.conversations.conversation_data_types import (
    ContentBlock,
    TokenUsage,
    describe_content_block,
)
from kbtui.conversations.formats.turn_builder import format_media_placeholder
from kbtui.notices import Notice, format_notice
from kbtui.userdata.search_and_citation_insights import TokenCountAndCost


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/x.md", "x")
    monkeypatch.chdir(builder.root)
    return builder


def test_the_index_counts_what_it_has(built: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    index_without_engine(built)
    main(["doctor"])
    counts = "1 subject (without disabled ones), 0 conversations, 1 passage, 0 citations\n"
    assert counts in capsys.readouterr().out
    learn = called("a", "learn", "x", topic="notes", subjects="x")
    built.conversation(1, [[asked("What is x?"), *learn, said("A letter.")]])
    try:
        assert main(["index", "--no-vectors"]) == 0
    finally:
        kill_engine(built)
    out = capsys.readouterr().out
    assert out.startswith("1 subject, 1 conversation, ")
    assert " passages, 1 citation in " in out


def test_the_passages_of_an_entry_have_sizes(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    index_without_engine(built)
    assert main(["entry", "show", "notes/x"]) == 0
    assert "  1 character\n" in capsys.readouterr().out


def test_a_library_is_published_and_pulled(
    built: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (built.root / ".jp/kb-library.toml").write_text(f'[library]\nremote = "{share}"\n')
    words = ["publish", str(share), "--no-vectors"]
    assert main(words) == 0
    assert (
        "version 1: 1 entry (1 new, 0 changed, 0 removed), 0 new vectors; "
        in capsys.readouterr().out
    )
    built.subject("notes/y.md", "y")
    assert main(words) == 0
    assert main(["library", "pull"]) == 0
    (built.root / "docs/notes/y.md").unlink()
    assert main(words) == 0
    capsys.readouterr()
    assert main(["library", "pull"]) == 0
    out, error = capsys.readouterr()
    assert " vectors, removed 1 entry; " in error
    assert "contains   0 conversations, 1 passage, 1 subject, 0 vectors\n" in out


def test_sizes_and_tokens() -> None:
    assert format_media_placeholder("x", "text/plain", 1) == "[file: x, text/plain, 1 byte]"
    assert describe_content_block(ContentBlock("file", name="x", size=1)) == "x, 1 byte"
    tokens = TokenCountAndCost("m", TokenUsage(output_tokens=1), 1)
    assert tokens.list_token_count_phrases() == ["1 turn", "1 output token"]
    behind = Notice("index_behind", {"cause": "changes_pending", "done": 0, "total": 1})
    assert format_notice(behind).endswith(": 0 of 1 changed entry is indexed")
