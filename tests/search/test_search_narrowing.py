"""Tests that filters in a query narrow both legs, never widen a search, and report mistakes."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support import Builder, asked, called, said

from kbtui.conversations.conversation_repository import list_conversations
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.knowledge import load_knowledge
from kbtui.notices import Notice, format_notice
from kbtui.references import parse_ref
from kbtui.search.query_completion import list_query_completions
from kbtui.search.rank_explanation import SearchExplainer
from kbtui.search.search_pipeline import SemanticRanker, search_index
from kbtui.search.search_request_and_answer import (
    RankExplanation,
    SearchAnswer,
    SearchRequest,
    SemanticRanking,
)
from kbtui.search.similar_passages import find_similar_passages
from kbtui.workspace import Settings


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Builder, IndexReader]]:
    base = tmp_path_factory.mktemp("narrowing")
    builder = Builder(base / "ws")
    builder.topics(guide={"title": "The Guide"}, notes={"disabled": ["off"]})
    builder.subject("guide/start.md", "# Getting started\n\nThe engine compacts fragments.\n")
    builder.subject(
        "notes/lance.md",
        "---\ntype: decision\n---\n# Fragments of the table\n\nThe engine joins them at night.\n",
    )
    builder.subject("notes/.inner.md", "# Inner\n\nThe engine has a secret type.\n")
    builder.subject("notes/off.md", "# Off\n\nThe engine is off.\n")
    builder.conversation(
        1,
        [
            [
                asked("Does the engine keep fragments low?"),
                *called("a", "fs_read_file", "The engine text", path="docs/notes/lance.md"),
                *called("b", "learn", "The engine page", topic="notes", subjects="lance"),
                said("The engine does, with optimize."),
            ]
        ],
        title="Keeping fragments low",
        metadata={"labels": {"area": "index", "draft": ""}},
    )
    index = WorkspaceIndexWriter(builder.workspace, Settings(), cache_dir=base / "cache")
    index.refresh_index()
    index.close()
    reader = IndexReader(base / "cache")
    yield builder, reader
    reader.close()


def ask(held: tuple[Builder, IndexReader], query: str, **options: object) -> SearchAnswer:
    builder, reader = held
    return search_index(
        builder.workspace, reader, SearchRequest(query, **{"mode": "lexical", **options})
    )  # type: ignore[arg-type]


def refs(answered: SearchAnswer) -> set[str]:
    return {hit.ref for hit in answered.hits}


GUIDE, NOTE = "guide/start:1-3", "notes/lance:4-6"
CHAT, READ, LEARN = "jp-c17800000001:1", "jp-c17800000001:1.1", "jp-c17800000001:1.2"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("topic:guide", {GUIDE}),
        ('topic:"the guide"', {GUIDE}),
        ("topic:guide,notes", {GUIDE, NOTE}),
        ("-topic:guide in:subjects", {NOTE}),
        ("in:conversations role:user", {CHAT}),
        ("in:conversations role:chat", {CHAT}),
        ("role:tool", {READ, LEARN}),
        ("type:decision", {NOTE}),
        ("-type:conversation,decision", {GUIDE}),
        ("tool:learn", {LEARN}),
        ("-tool:learn role:tool", {READ}),
        ("arg:path=lance.md", {READ}),
        ("arg:path=docs/notes/", {READ}),
        ("arg:subjects", {LEARN}),
        ("title:fragment", {NOTE, CHAT, READ, LEARN}),
        ("title:table", {NOTE}),
        ("title:fragments -title:low", {NOTE}),
        ("-in:conversations title:started", {GUIDE}),
        ("label:area", {CHAT, READ, LEARN}),
        ("label:area=INDEX label:draft", {CHAT, READ, LEARN}),
        ("-label:area", {GUIDE, NOTE}),
        ("is:live", {CHAT, READ, LEARN}),
        ("-is:live", {GUIDE, NOTE}),
        ("is:pinned", set()),
        ("file:docs/notes/lance.md", {CHAT, READ, LEARN}),
        ("file:lance.md role:tool", {READ, LEARN}),
        ("file:nce.md", set()),
        ("-file:lance.md", {GUIDE, NOTE}),
        ("project:ws topic:guide", {GUIDE}),
        ("before:2020-01-01", set()),
        ("-after:2020-01-01", set()),
        ("in:subjects after:1d", {GUIDE, NOTE}),
    ],
)
def test_filters_leave_what_they_say(
    held: tuple[Builder, IndexReader], filters: str, found: set[str]
) -> None:
    assert refs(ask(held, f"engine {filters}")) == found


def test_filters_hold_for_the_semantic_leg_as_well(held: tuple[Builder, IndexReader]) -> None:
    builder, reader = held
    everything = [
        (number, 1.0 / number) for number in range(1, 20) if reader.get_chunks_by_number([number])
    ]

    def semantic(text: str) -> SemanticRanker:
        assert ":" not in text
        return lambda question, generation: SemanticRanking(everything)

    for filters in ("-type:decision,conversation -title:inner", '"compacts fragments"'):
        question = SearchRequest(f"engine {filters}", mode="semantic")
        hits = search_index(builder.workspace, reader, question, semantic).hits
        assert {hit.ref for hit in hits} == {GUIDE}


def test_what_a_leg_still_has_of_something_hidden_since_is_not_shown(
    held: tuple[Builder, IndexReader],
) -> None:
    builder, reader = held
    everything = [(number, 1.0) for number in range(1, 20) if reader.get_chunks_by_number([number])]
    for hidden in (False, True):
        question = SearchRequest("engine", mode="semantic", hidden=hidden)
        answered = search_index(
            builder.workspace, reader, question, lambda _: lambda *_: SemanticRanking(everything)
        )
        assert ("notes/inner:1-3" in refs(answered)) is hidden


def test_filters_alone_give_the_newest_first_and_say_so(
    held: tuple[Builder, IndexReader],
) -> None:
    answered = ask(held, "role:user,assistant")
    assert [hit.role for hit in answered.hits] == ["assistant", "user"]
    assert "newest hits first" in (answered.degraded or "")


def test_exclusions_alone_are_neither_everything_nor_silent(
    held: tuple[Builder, IndexReader],
) -> None:
    answered = ask(held, "-engine")
    assert answered.hits == []
    assert "add a word" in (answered.degraded or "")


@pytest.mark.parametrize(
    ("query", "place", "words", "hint"),
    [
        ("engine topic:gude", "topic:gude", "unknown topic 'gude'", "guide"),
        ("in:notes engine", "in:notes", "unknown kind 'notes'", "subjects"),
        ("engine type:decison", "type:decison", "unknown type 'decison'", "decision"),
        ("tool:lern engine", "tool:lern", "unknown tool 'lern'", "learn"),
        ("role:bot engine", "role:bot", "unknown role 'bot'", "user"),
        ("engine before:soon", "before:soon", "not a date", "yesterday"),
        ("engine project:other", "project:other", "unknown project 'other'", "ws"),
        ("engine -project:ws", "-project:ws", "excludes the project ws", ""),
        ('engine title:""', 'title:""', "needs a value", ""),
    ],
)
def test_a_mistake_is_pointed_at(
    held: tuple[Builder, IndexReader], query: str, place: str, words: str, hint: str
) -> None:
    answered = ask(held, query)
    (mistake,) = answered.mistakes
    assert query[mistake.start : mistake.end] == place
    assert words in mistake.message
    assert hint in mistake.hint
    assert answered.hits == []
    assert answered.degraded


def test_while_one_types_an_unfinished_filter_is_no_mistake(
    held: tuple[Builder, IndexReader],
) -> None:
    answered = ask(held, "engine topic:gui", partial=True)
    assert answered.mistakes == ()
    assert GUIDE in refs(answered)
    assert ask(held, "engine topic:gui zebra", partial=True).mistakes


@pytest.mark.parametrize(
    "wrong", ["topic:nosuch", "role:nonsense", "agent:nonsense", "type:qq", "after:nonsense"]
)
def test_a_value_that_nothing_begins_with_is_a_mistake_at_once(
    held: tuple[Builder, IndexReader], wrong: str
) -> None:
    answered = ask(held, f"engine {wrong}", partial=True)
    assert answered.mistakes
    assert answered.hits == []


@pytest.mark.parametrize("begun", ["topic:The", "role:ass", "after:yes", "after:20", "in:conv"])
def test_the_beginning_of_a_value_is_ignored_while_one_types(
    held: tuple[Builder, IndexReader], begun: str
) -> None:
    answered = ask(held, f"engine {begun}", partial=True)
    assert answered.mistakes == ()
    assert answered.hits


def test_an_agent_without_conversations_is_no_mistake(held: tuple[Builder, IndexReader]) -> None:
    for name in ("opencode", "open", "Claude-Code"):
        answered = ask(held, f"engine agent:{name}")
        assert (answered.mistakes, answered.hits) == ((), [])
        answered = ask(held, "engine", agents=(name,))
        assert (answered.mistakes, answered.hits) == ((), [])
    assert GUIDE in refs(ask(held, "engine -agent:codex"))
    (mistake,) = ask(held, "engine agent:opncode").mistakes
    assert "did you mean opencode" in mistake.hint


def test_a_query_never_widens_what_it_may_see(held: tuple[Builder, IndexReader]) -> None:
    answered = ask(held, "engine topic:notes", topics=("guide",))
    assert answered.hits == []
    assert answered.mistakes[0].message == "this search does not include notes"
    since = datetime(2020, 1, 1, tzinfo=UTC)
    assert refs(ask(held, "engine after:2000 in:subjects", since=since)) == {GUIDE, NOTE}
    assert ask(held, "engine in:subjects after:2000", until=since).hits == []


def test_an_unknown_topic_among_the_options_is_a_mistake_too(
    held: tuple[Builder, IndexReader],
) -> None:
    assert ask(held, "engine", topics=("gude",)).mistakes
    assert refs(ask(held, "engine", topics=("The Guide",))) == {GUIDE}


# completion


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("ti", "title:"),
        ("engine be", "before:"),
        ("topic:gu", "guide"),
        ("topic:the", "guide"),
        ("topic:guide,n", "notes"),
        ("-in:s", "subjects"),
        ("role:tool-r", "tool-result"),
        ("type:de", "decision"),
        ("tool:fs", "fs_read_file"),
        ("arg:pa", "path"),
        ("arg:path=la", "path=lance.md"),
        ("before:yes", "yesterday"),
        ("file:la", "lance.md"),
        ("label:ar", "area"),
        ("label:area=", "area=index"),
        ("project:", "site"),
        ("after:20", datetime.now().date().isoformat()),
        ("proj", "project:"),
    ],
)
def test_what_is_begun_is_completed(
    held: tuple[Builder, IndexReader], typed: str, first: str
) -> None:
    builder, reader = held
    suggestion = list_query_completions(
        typed,
        len(typed),
        load_knowledge(builder.workspace),
        reader,
        conversations=list_conversations(builder.workspace),
        projects=["site"],
    )[0]
    assert suggestion.text == first
    completed = typed[: suggestion.start] + suggestion.text + typed[suggestion.end :]
    assert completed.endswith(first)


def test_nothing_hidden_or_within_a_phrase_is_completed(
    held: tuple[Builder, IndexReader],
) -> None:
    builder, reader = held
    knowledge = load_knowledge(builder.workspace)
    assert list_query_completions('"ti', 3, knowledge, reader) == []
    types = {one.text for one in list_query_completions("type:", 5, knowledge, reader)}
    assert types == {"conversation", "decision", "note"}
    assert list_query_completions("engine ti more", 9, knowledge, reader)[0].end == 9


# explanation


def test_a_hit_is_explained_by_rank_score_and_terms(held: tuple[Builder, IndexReader]) -> None:
    builder, reader = held
    explainer = SearchExplainer(
        builder.workspace, reader, SearchRequest("joins fragments", mode="lexical")
    )
    first = explainer.explain_hits()[0]
    assert (first.ref, first.rank, first.lexical.rank) == (NOTE, 1, 1)
    assert first.score == pytest.approx(first.lexical.gives, abs=1e-6)
    assert sum(match.score for match in first.matches) == pytest.approx(
        first.lexical.score, abs=1e-2
    )
    assert {match.word for match in first.matches} >= {"joins", "fragments"}
    assert first.embedded is None  # no vector was compared with the query
    assert not first.kept_out
    number = reader.list_entry_chunks(make_subject_id("notes", "lance"))[0].number
    ranked = SemanticRanking([(number, 0.5)])
    explainer = SearchExplainer(
        builder.workspace, reader, SearchRequest("joins"), lambda text: lambda *_: ranked
    )
    (embedded,) = [one.embedded for one in explainer.explain_hits() if one.semantic.rank]
    assert embedded is not None
    assert "joins them" in embedded.text


@pytest.mark.parametrize(
    ("query", "ref", "reason"),
    [
        ("zebra", "guide/start", "none of the words"),
        ("engine", "notes/inner", "hidden"),
        ("engine", "notes/off", "disabled"),
        ("engine", "notes/gone", "no subject"),
        ("engine", "jp-c1", "no conversation"),
        ("engine role:user", "guide/start", "role"),
        ("engine -type:note", "guide/start", "filter"),
        ("engine -fragments", "guide/start", "which the query excludes"),
        ('"engine engine"', "guide/start", "does not contain"),
        ("engine before:2000", "guide/start", "newer"),
        ("engine title:table", "guide/start", "title"),
    ],
)
def test_what_was_not_found_says_what_kept_it_out(
    held: tuple[Builder, IndexReader], query: str, ref: str, reason: str
) -> None:
    builder, reader = held
    explained = SearchExplainer(
        builder.workspace, reader, SearchRequest(query, mode="lexical")
    ).explain_missing_hit(parse_ref(ref))
    assert any(reason in format_notice(one) for one in explained.kept_out), explained.kept_out
    shape = json.loads(json.dumps(explained.as_json()))
    assert RankExplanation.from_json(shape).kept_out == explained.kept_out
    # A passage that contains words of the query is not said to contain none.
    if explained.matches and explained.lexical.reason:
        assert explained.lexical.reason.code == "words_but_excluded"


def test_what_stands_below_the_limit_says_where(held: tuple[Builder, IndexReader]) -> None:
    builder, reader = held
    question = SearchRequest("fragments engine", mode="lexical", limit=1)
    explainer = SearchExplainer(builder.workspace, reader, question)
    shown = explainer.answer.hits[0].ref
    other = GUIDE if shown != GUIDE else NOTE
    explained = explainer.explain_missing_hit(parse_ref(other))
    assert explained.rank
    assert explained.rank > 1
    assert explained.kept_out == [Notice("below_limit", {"rank": explained.rank, "limit": 1})]


# more like this


def test_more_like_this_finds_the_other_kind_and_never_itself(
    held: tuple[Builder, IndexReader],
) -> None:
    builder, reader = held
    answered = find_similar_passages(
        builder.workspace, reader, parse_ref("notes/lance"), SearchRequest(per_entry=1)
    )
    assert answered.hits
    assert "conversation" in {hit.kind for hit in answered.hits}
    assert not [hit for hit in answered.hits if hit.slug in {"lance", "inner", "off"}]


def test_scores_do_not_move_when_hidden_subjects_say_the_same(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "ws")
    builder.topics(guide={})
    builder.subject("guide/one.md", "# One\n\nA merger of twe complny parts.\n")

    def scores() -> list[tuple[str, float]]:
        index = WorkspaceIndexWriter(builder.workspace, Settings(), cache_dir=tmp_path / "cache")
        index.refresh_index()
        index.close()
        reader = IndexReader(tmp_path / "cache")
        query = "merger companyy title:one"
        explainer = SearchExplainer(builder.workspace, reader, SearchRequest(query, mode="lexical"))
        found = [(one.ref, one.lexical.score or 0.0) for one in explainer.explain_hits()]
        reader.close()
        return found

    before = scores()
    builder.subject("guide/.two.md", "# One\n\nmerger merger companyx companyx\n")
    assert before
    assert scores() == before
