"""Tests of searching: every text is a valid query, hits match the files, and the order is stable."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import Builder, asked, called, said

from kbtui.cli.search_command import format_search_messages
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.notices import NOTHING_INDEXED
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SearchAnswer, SearchRequest
from kbtui.workspace import Settings


@pytest.fixture
def built(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(notes={"title": "Notes"}, guide={})
    builder.subject(
        "notes/retry.md", "# Retry policy\n\nRetries back off exponentially after a timeout.\n"
    )
    builder.subject(
        "notes/config.md", "# Settings\n\nSet maxRetries and http_timeout in C++ or C#.\n"
    )
    builder.subject("notes/cafe.md", "# Café\n\nDas Café öffnet um neun.\n")
    builder.subject("notes/tokyo.md", "# 東京\n\n東京都は日本の首都です。\n")
    builder.subject(
        "guide/version.md", "# Version\n\nUse version 1.82.3 or later; see docs/setup/linux.md.\n"
    )
    builder.conversation(
        1, [[asked("Why E0308?"), said("The types of the timeout differ.")]], title="Type error"
    )
    refresh(builder)
    return builder


def refresh(builder: Builder) -> None:
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()


@pytest.fixture
def reader(built: Builder) -> Iterator[IndexReader]:
    held = IndexReader(built.workspace.cache_dir)
    yield held
    held.close()


def ask(builder: Builder, reader: IndexReader, query: str, **options: object) -> SearchAnswer:
    return search_index(builder.workspace, reader, SearchRequest(query, mode="lexical", **options))  # type: ignore[arg-type]


def slugs(answered: SearchAnswer) -> list[str | None]:
    return [hit.slug or hit.conversation_id for hit in answered.hits]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("retrying", "retry"),
        ("maxRetries", "config"),
        ("http_timeout", "config"),
        ("C++", "config"),
        ("cafe", "cafe"),
        ("Café", "cafe"),
        ("東京", "tokyo"),
        ("首都", "tokyo"),
        ("1.82.3", "version"),
        ("docs/setup/linux.md", "version"),
        ("E0308", "jp-c17800000001"),
        ('"back off exponentially"', "retry"),
        ("exponentialy", "retry"),
    ],
)
def test_the_words_that_programmers_use_are_found(
    built: Builder, reader: IndexReader, query: str, first: str
) -> None:
    assert slugs(ask(built, reader, query))[0] == first


def test_a_phrase_must_be_there_and_an_excluded_word_must_not(
    built: Builder, reader: IndexReader
) -> None:
    assert slugs(ask(built, reader, '"off back"')) == []
    assert "retry" in slugs(ask(built, reader, "timeout"))
    assert "retry" not in slugs(ask(built, reader, "timeout -exponentially"))


def test_while_one_types_the_last_word_is_a_beginning(built: Builder, reader: IndexReader) -> None:
    assert "retry" in slugs(ask(built, reader, "expon", partial=True))
    assert "retry" not in slugs(ask(built, reader, "expon"))


@settings(max_examples=120, deadline=None)
@given(query=st.text(max_size=60))
@example(
    query="what's up? foo_bar.baz() `code` \"unbalanced (paren title: AND NOT [a TO ^2 {} <5 -x"
)
@example(query="http://x.com/a?b=c /x/y.md \ud800 \0")
@example(query="-" * 50)
def test_every_text_is_a_question(query: str) -> None:
    builder, held = _shared()
    answered = ask(builder, held, query)
    assert len(answered.hits) <= 20


_held: list[tuple[Builder, IndexReader]] = []


def _shared() -> tuple[Builder, IndexReader]:
    return _held[0]


@pytest.fixture(autouse=True)
def _share(built: Builder, reader: IndexReader) -> Iterator[None]:
    _held[:] = [(built, reader)]
    yield
    _held.clear()


def test_matches_are_offsets_of_the_words_in_the_text(built: Builder, reader: IndexReader) -> None:
    hit = ask(built, reader, "retries timeout").hits[0]
    assert {hit.text[first:last].lower() for first, last in hit.matches} >= {"retries", "timeout"}


def test_a_changed_file_is_served_where_its_text_stands_now(
    built: Builder, reader: IndexReader
) -> None:
    built.subject(
        "notes/retry.md",
        "A new first line.\n\n# Retry policy\n\nRetries back off exponentially after a timeout.\n",
    )
    hit = ask(built, reader, "exponentially").hits[0]
    assert (hit.freshness, hit.slug) == ("changed", "retry")
    assert hit.lines
    assert hit.lines[0] >= 3


def test_files_replaced_by_copies_of_the_same_times_are_fresh_after_a_refresh(
    built: Builder, reader: IndexReader
) -> None:
    notes = built.root / "docs/notes"
    shutil.copytree(notes, built.root / "docs/copied")
    # The same size and the same times, and yet other words.
    copied = built.root / "docs/copied/config.md"
    times = copied.stat()
    copied.write_text(copied.read_text().replace("maxRetries", "minRetries"))
    os.utime(copied, ns=(times.st_atime_ns, times.st_mtime_ns))
    notes.rename(built.root / "before")
    copied.parent.rename(notes)
    assert ask(built, reader, "exponentially").hits[0].freshness == "changed"
    refresh(built)
    with contextlib.closing(IndexReader(built.workspace.cache_dir)) as after:
        assert ask(built, after, "exponentially").hits[0].freshness == "fresh"
        assert slugs(ask(built, after, "minRetries"))[0] == "config"


def test_what_is_gone_or_disabled_since_is_not_served_and_is_counted(
    built: Builder, reader: IndexReader
) -> None:
    (built.root / "docs/notes/retry.md").unlink()
    answered = ask(built, reader, "exponentially")
    assert "retry" not in slugs(answered)
    assert answered.omitted >= 1
    built.topics(notes={"disabled": ["config"]}, guide={"enable": False})
    assert "config" not in slugs(ask(built, reader, "maxRetries"))
    assert "version" not in slugs(ask(built, reader, "version"))


def test_the_order_does_not_depend_on_the_limit(built: Builder, reader: IndexReader) -> None:
    whole = [hit.chunk_id for hit in ask(built, reader, "the timeout of retries", limit=100).hits]
    for limit in (1, 2, 3):
        assert [
            hit.chunk_id for hit in ask(built, reader, "the timeout of retries", limit=limit).hits
        ] == whole[:limit]


def test_a_long_query_is_cut_and_the_answer_says_so(built: Builder, reader: IndexReader) -> None:
    answered = ask(built, reader, "timeout " * 300)
    assert "1000" in (answered.degraded or "").replace(",", "")
    assert answered.hits


def test_times_narrow(built: Builder, reader: IndexReader) -> None:
    os.utime(built.root / "docs/notes/cafe.md")
    from datetime import UTC, datetime

    old = datetime(2001, 1, 1, tzinfo=UTC)
    assert ask(built, reader, "timeout", until=old).hits == []
    assert ask(built, reader, "timeout", since=old).hits


def test_a_part_of_a_compound_finds_the_compound(built: Builder, reader: IndexReader) -> None:
    assert "config" in slugs(ask(built, reader, "max retries"))


def test_what_a_very_long_conversation_hides_is_found_behind_its_best(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.search import keyword_search

    builder = Builder(workspace_root)
    builder.topics(guide={})
    turns = [[asked(f"otter {number}"), said("otter otter")] for number in range(300)]
    builder.conversation(1, turns, title="Otters")
    builder.conversation(2, turns[:200], title="More otters")
    for number in range(9):
        padding = "the river bends " * 20
        builder.subject(f"guide/s{number}.md", f"# S{number}\n\nAn otter. {padding}\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    reader = IndexReader(builder.workspace.cache_dir)
    question = SearchRequest("otter", mode="lexical", limit=15, depth=15, per_entry=2)

    def refs() -> list[str]:
        return [hit.ref for hit in search_index(builder.workspace, reader, question).hits]

    monkeypatch.setattr(keyword_search, "OVERFETCH_FACTOR", 100)
    at_once = refs()
    monkeypatch.setattr(keyword_search, "OVERFETCH_FACTOR", 1)
    assert refs() == at_once
    assert sum(ref.startswith("guide/") for ref in at_once) == 9
    assert sum(not ref.startswith("guide/") for ref in at_once) in (3, 4)
    reader.close()


def test_a_high_limit_finds_all_that_has_the_word_and_changes_nothing_before_it(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(70):
        sections = [f"## S{part}\n\nOtter {part}. {'The river bends. ' * 30}" for part in range(5)]
        text = "\n\n".join([f"# Note {number}", *sections])
        builder.subject(f"guide/n{number:02}.md", f"{text}\n")
    refresh(builder)
    reader = IndexReader(builder.workspace.cache_dir)
    first = ask(builder, reader, "otter", per_entry=1)
    assert first.has_more
    assert len(first.hits) == 20
    assert first.total < 70
    every = ask(builder, reader, "otter", per_entry=1, limit=100)
    assert not every.has_more
    assert every.total == len({hit.entry_id for hit in every.hits}) == 70
    assert [hit.ref for hit in every.hits[:20]] == [hit.ref for hit in first.hits]
    scores = [hit.score for hit in every.hits]
    assert scores == sorted(scores, reverse=True)
    reader.close()


def test_an_empty_workspace_is_said_to_be_empty_and_a_full_one_is_not(
    built: Builder, reader: IndexReader, tmp_path: Path
) -> None:
    assert not ask(built, reader, "xylophones").empty
    bare = Builder(tmp_path / "bare")
    (bare.root / ".jp").mkdir(parents=True, exist_ok=True)
    refresh(bare)
    nothing = IndexReader(bare.workspace.cache_dir)
    answered = ask(bare, nothing, "timeout")
    nothing.close()
    assert answered.empty
    assert format_search_messages(answered.as_engine_message(), "timeout") == [NOTHING_INDEXED]


def test_a_hidden_subject_does_not_show_in_what_is_said_of_emptiness(tmp_path: Path) -> None:
    secret = Builder(tmp_path / "secret")
    secret.topics(guide={})
    secret.subject("guide/.inner.md", "# Inner\n\nThe hidden handshake.\n")
    refresh(secret)
    reader = IndexReader(secret.workspace.cache_dir)
    assert ask(secret, reader, "xylophones").empty
    assert not ask(secret, reader, "xylophones", hidden=True).empty
    reader.close()


def test_a_hit_on_a_request_has_the_answer_and_the_last_later_turn(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.conversation(
        1,
        [
            [asked("Where does the otter sleep?"), said("Let me look."),
             {"type": "chat_response", "reasoning": "Where does the otter sleep?"},
             *called("a", "fs_read_file", "otter.txt"), said("In a holt by the river.")],
            [asked("Thanks."), said("Gladly.")],
            [asked("Once more: where does the otter sleep now?"), said("In the barn: it moved.")],
        ],
        title="Beds",
    )  # fmt: skip
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    reader = IndexReader(builder.workspace.cache_dir)
    hits = search_index(
        builder.workspace, reader, SearchRequest("where does the otter sleep", mode="lexical")
    ).hits
    reader.close()
    found = {(hit.turn, hit.role): hit for hit in hits}
    assert found[1, "user"].answer == "In a holt by the river."
    assert found[1, "user"].later_turn == 3
    assert found[3, "user"].answer == "In the barn: it moved."
    assert found[3, "user"].later_turn is None
    assert found[1, "reasoning"].answer == "In a holt by the river."
    assert all(hit.answer is None for hit in hits if hit.role not in ("user", "reasoning"))


def test_each_request_of_a_turn_has_its_own_answer(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.conversation(
        1,
        [
            [asked("Where does the otter sleep?"), said("In a holt by the river."),
             asked("Where does the otter eat?"), asked("Never where the otter sleeps?"),
             said("I will look."), *called("a", "fs_read_file", "otter.txt"),
             asked("Where does the otter hunt?"), said("It eats on the bank, and hunts in the weir."),
             asked("And where does the otter play?")],
        ],
        title="Places",
    )  # fmt: skip
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    reader = IndexReader(builder.workspace.cache_dir)
    hits = search_index(
        builder.workspace, reader, SearchRequest("where does the otter", mode="lexical")
    ).hits
    reader.close()
    answers = {hit.text: hit.answer for hit in hits if hit.role == "user"}
    second = "It eats on the bank, and hunts in the weir."
    assert answers == {
        "Where does the otter sleep?": "In a holt by the river.",
        "Where does the otter eat?": second,
        "Never where the otter sleeps?": second,
        "Where does the otter hunt?": second,  # sent while the assistant called a tool
        "And where does the otter play?": None,
    }
