"""The baseline of `make eval` is reciprocal rank fusion with equal weights."""

from pathlib import Path

import pytest
from support import Builder

from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.search_pipeline import SemanticRanker, run_search_and_build_answer
from kbtui.search.search_request_and_answer import SearchRequest, SemanticRanking
from kbtui.workspace import Settings


def test_the_baseline_adds_one_over_sixty_plus_rank_of_each_leg(workspace_root: Path) -> None:
    from eval.__main__ import PlainFusion

    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/heron.md", "# Heron\n\nThe heron fishes.\n")
    builder.subject("guide/crane.md", "# Crane\n\nAnother bird.\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    reader = IndexReader(builder.workspace.cache_dir)
    numbers = {
        entry.slug: number
        for number in (1, 2)
        for _, entry_id in [reader.get_chunks_by_number([number])[number]]
        for entry in [reader.get_entries_by_id({entry_id})[entry_id]]
    }
    worded: list[tuple[int, ...]] = []

    def semantic(text: str) -> SemanticRanker:
        assert text == "heron"

        def ranked(question: SearchRequest, generation: str) -> SemanticRanking:
            worded.append(question.worded)
            return SemanticRanking([(numbers["crane"], 0.9), (numbers["heron"], 0.8)])

        return ranked

    hits = run_search_and_build_answer(
        PlainFusion(builder.workspace, reader, SearchRequest("heron")), semantic
    ).hits
    reader.close()
    scores = {hit.slug: hit.score for hit in hits}
    assert scores["heron"] == pytest.approx(1 / 61 + 1 / 62, abs=1e-5)
    assert scores["crane"] == pytest.approx(1 / 61, abs=1e-5)
    # The query's vector is not moved towards a keyword hit.
    assert worded == [()]
