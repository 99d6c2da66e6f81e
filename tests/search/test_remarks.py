"""Tests of the notices that `kbtui search` prints with its hits."""

import re
from contextlib import closing
from pathlib import Path

import pytest
from support import Builder

from kbtui.assistant.assistant_tools import format_search_answer_for_assistant
from kbtui.cli.search_command import (
    format_hits_with_explanations,
    format_search_hit,
    format_search_messages,
)
from kbtui.engine.search_service import answer_search_request
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.notices import Notice
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import (
    Hit,
    Mode,
    SearchAnswer,
    SearchRequest,
    SemanticRanking,
)
from kbtui.terminal_text import (
    find_start_of_densest_matches,
    remove_heading_and_bold_marks,
    remove_repeated_title,
)
from kbtui.workspace import Settings


def test_nothing_found_is_said_once_and_briefly(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/one.md", "# One\n\nAn otter.\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    reader = IndexReader(builder.workspace.cache_dir)

    def said(query: str) -> list[str]:
        question = SearchRequest(query, mode="lexical")
        return format_search_messages(
            search_index(builder.workspace, reader, question).as_engine_message(), query
        )

    assert said("otter") == []
    assert said("badger") == ["nothing found for 'badger'"]
    for empty in ("", "  ", '"', "-"):
        assert said(empty) == ["nothing to search for; add a word"]
    [long] = said("a" * 900)
    assert len(long) < 100
    reader.close()


def test_few_hits_bring_near_spellings_and_an_excluding_filter_is_named(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/one.md", "# One\n\nAn otter receives letters.\n")
    builder.subject("notes/two.md", "# Two\n\nThe configuration of an oter.\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    with closing(IndexReader(builder.workspace.cache_dir)) as reader:

        def ask(query: str) -> tuple[list[str], str | None]:
            answer = search_index(builder.workspace, reader, SearchRequest(query, mode="lexical"))
            read = SearchAnswer.from_engine_message(answer.as_engine_message())
            assert read.notices == answer.notices
            return [hit.title for hit in answer.hits], answer.degraded

        # The exact spelling ranks first, although the near one is as rare.
        assert ask("oter") == (["Two", "One"], "few texts contain “oter”; also showing “otter”")
        assert ask("recieve") == (["One"], "no text contains “recieve”; showing “receives”")
        assert ask("cnofiguraton") == (
            ["Two"],
            "no text contains “cnofiguraton”; showing “configuration”",
        )
        assert ask("badger") == ([], None)
        nothing = "nothing matches with the filter after:2090; without it, 1 passage matches"
        assert ask("letters topic:notes after:2090") == ([], nothing)
        assert ask("badger after:2090") == ([], None)
        # The answer has no hits, so it does not say how they are sorted.
        nothing = "nothing matches with the filter after:2090; without it, 2 passages match"
        assert ask("after:2090") == ([], nothing)
        both = (
            "nothing matches with the filters title:two after:2090; without them, 1 passage matches"
        )
        assert ask("letters title:two after:2090") == ([], both)


def test_a_rare_near_spelling_does_not_come_before_the_word_that_was_meant(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    builder.topics(notes={})
    for number in range(12):
        builder.subject(f"notes/{number}.md", f"# Letter {number}\n\nThe otter receives it.\n")
    builder.subject("notes/rare.md", "# Rare\n\nHelpers relieve the otter.\n")
    # `recoves` has the same stem as this word, but nobody means it by `receves`.
    builder.subject("notes/health.md", "# Health\n\nThe otter recovers.\n")
    # The passages around a typing error are found, too. They do not contain it.
    passages = "".join(f"## Part {part}\n\n{'A plain sentence. ' * 60}\n\n" for part in range(4))
    builder.subject("notes/typo.md", f"# Typo\n\nI recieve mail.\n\n{passages}")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    with closing(IndexReader(builder.workspace.cache_dir)) as reader:

        def ask(query: str) -> tuple[list[str], str | None]:
            question = SearchRequest(query, mode="lexical", per_entry=1)
            answer = search_index(builder.workspace, reader, question)
            return [hit.title.split()[0] for hit in answer.hits], answer.degraded

        titles, notice = ask("recieve")
        assert notice == "few texts contain “recieve”; also showing “receives”"
        assert titles == ["Typo", *["Letter"] * 12]
        assert ask("receves") == (
            ["Letter"] * 12,
            "no text contains “receves”; showing “receives”",
        )
        titles, notice = ask("releive")
        assert notice == "no text contains “releive”; showing “relieve” and “receives”"
        assert titles[0] == "Rare"


def test_an_answer_says_that_its_hits_were_found_by_meaning_alone(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/one.md", "# One\n\nAn otter.\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    with closing(IndexReader(builder.workspace.cache_dir)) as reader:
        everything = [
            (chunk.number, 0.5)
            for chunk in reader.list_entry_chunks(make_subject_id("notes", "one"))
        ]

        def ask(query: str, mode: Mode = "hybrid") -> SearchAnswer:
            question = SearchRequest(query, mode=mode)
            found = lambda _: lambda *_: SemanticRanking(everything)  # noqa: E731
            return search_index(builder.workspace, reader, question, found)

        found = ask("badger")
        assert found.hits
        assert found.notices == [Notice("meaning_only")]
        assert found.as_json()["degraded"] == "no text contains these words; closest by meaning"
        assert format_search_messages(found.as_engine_message(), "badger") == [found.degraded]
        assert format_search_answer_for_assistant(found).startswith(
            "No text contains these words; closest by meaning.\n"
        )
        assert ask("otter").notices == []
        assert ask("badger otter").notices == []
        # Nobody looked for words.
        assert ask("badger", "semantic").notices == []


def test_an_explanation_names_only_the_legs_of_the_mode(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/one.md", "# One\n\nAn otter.\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    with closing(IndexReader(builder.workspace.cache_dir)) as reader:
        question = SearchRequest("otter", mode="lexical", explain=True)
        found = answer_search_request(builder.workspace, reader, question)
        text = format_hits_with_explanations(found.as_engine_message(), plain=True)
    assert "keywords: rank 1" in text
    assert "meaning:" not in text


def test_an_excerpt_begins_after_the_title_where_most_words_of_the_query_are() -> None:
    text = "# Otters\n\nOtters swim. " + "The river is cold. " * 30 + "An otter sleeps in a holt."
    hit = Hit("guide/otters:1-3", "subject", "s1", "c1", "Otters", text, 1.0)
    words = [
        (at, at + len(word)) for word in ("Otters", "sleeps", "holt") for at in [text.rfind(word)]
    ]
    hit = hit._replace(matches=[(2, 8), *sorted(words)])
    left, matches = remove_repeated_title(hit.text, hit.matches, hit.title)
    assert left.startswith("Otters swim.")
    assert [left[first:last] for first, last in matches] == ["Otters", "sleeps", "holt"]
    assert left[find_start_of_densest_matches(left, matches, 100) :].startswith("sleeps in a holt")
    shown = format_search_hit(hit.as_json(), hit.ref, plain=True)
    assert "sleeps in a holt" in shown
    assert "# Otters" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Rain. " * 60 + "The small otter sleeps here. " + "Wind. " * 60, "…The small otter sleeps here. Wind."),
        ("rain " * 60 + "the small otter sleeps here, " + "wind " * 60, "…rain rain rain rain rain rain rain rain rain the small otter"),
        ("Rain. " * 60 + "The small otter sleeps here.", "…Rain. Rain."),  # the excerpt is full
        ("Rain. The small otter sleeps here.", "Rain. The small otter sleeps here."),
    ],
)  # fmt: skip
def test_an_excerpt_begins_with_a_sentence(text: str, shown: str) -> None:
    at = text.index("otter")
    hit = Hit("g/o:1-3", "subject", "s1", "c1", "O", text, 1.0, matches=[(at, at + 5)])
    _, excerpt = format_search_hit(hit.as_json(), hit.ref, plain=True).split("\n")
    assert excerpt.strip().startswith(shown)
    assert "otter sleeps here" in excerpt


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("## Hidden pages\n\nA dot hides.", "Hidden pages:\n\nA dot hides."),
        ("# Hidden?\nA dot hides.", "Hidden?\nA dot hides."),
        ("Run:\n# a comment\nmake", "Run:\n# a comment\nmake"),
        ("## Only a heading", "Only a heading"),
        ("1. **C1 is missing.** It is **not** C0.", "1. C1 is missing. It is not C0."),
        ("## A **bold** word\nhere", "A bold word:\nhere"),
        ("people/** and notes/**", "people/** and notes/**"),
        ("f(**options)", "f(**options)"),
        ("#hidden and ####### many", "#hidden and ####### many"),
    ],
)
def test_marks_of_headings_and_bold_words_are_removed_from_excerpts(text: str, plain: str) -> None:
    words = [match.span() for match in re.finditer(r"[A-Za-z0-9]+", text)]
    found, matches = remove_heading_and_bold_marks(text, words)
    assert found == plain
    # Each match is still the same word.
    assert [found[a:b] for a, b in matches] == [text[a:b] for a, b in words]
