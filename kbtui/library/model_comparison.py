"""Compares two embedding models on the user's own queries and passages."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from kbtui.errors import NothingFound
from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.embedding_model import TorchEmbedder, find_embedding_model
from kbtui.search.query_parser import parse_query
from kbtui.userdata.query_log import QueryLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbtui.index.embedding_model import EmbeddingModelSource, Matrix
    from kbtui.index.index_reader import IndexReader
    from kbtui.workspace import Workspace

BEST_HITS = 10
"""How many hits of each model are compared for a query."""
SECONDS_PER_DAY = 86_400


class ModelFactsJson(TypedDict):
    """The measured facts about one model.

    `size` is in bytes. `passages_per_second` is the speed on one or more cores.
    `seconds_for_all` is how long this machine needs, at this speed, to embed all passages of the workspace.
    """

    source: str
    size: int
    dimension: int
    load_seconds: float
    passages_per_second: float
    query_milliseconds: float
    seconds_for_all: float


class ComparedQueryJson(TypedDict):
    """How far the best hits of both models agree for a query: the share of common hits, from 0 to 1.

    `current` and `other` are the references of the best hits that only the current or only the other
    model has.
    """

    query: str
    agreement: float
    same_best: bool
    current: list[str]
    other: list[str]


class ModelComparisonJson(TypedDict):
    """A comparison of the current model with another one. Of `all_passages` passages, `passages` were embedded."""

    passages: int
    all_passages: int
    agreement: float
    same_best: float
    current: ModelFactsJson
    other: ModelFactsJson
    queries: list[ComparedQueryJson]


class _MeasuredModel(NamedTuple):
    facts: ModelFactsJson
    passages: Matrix
    queries: Matrix


class _SampledPassage(NamedTuple):
    ref: str
    text: str


def compare_models(
    workspace: Workspace,
    reader: IndexReader,
    setting: str,
    other: str,
    *,
    max_queries: int,
    max_passages: int,
    report: Callable[[str], None],
) -> ModelComparisonJson:
    """Embed queries from the query log and passages of the index with both models, and compare the best hits.

    `setting` and `other` are values of the setting `model`. Of a large index, every n-th passage is taken, so
    that at most `max_passages` are embedded. `report` is called with what is being done.

    Raises `EmbeddingModelUnavailable` if a model cannot be loaded, and `NothingFound` if there are no queries or
    no passages.
    """
    models = [find_embedding_model(one) for one in (setting, other)]
    queries = _list_logged_queries(workspace, max_queries)
    passages, total = _sample_passages(reader, max_passages)
    measured = []
    for model in models:
        report(f"embedding {len(passages):,} passages with {model.source}")
        measured.append(_measure_model(model, queries, passages, total))
    first, second = measured
    compared = [
        _compare_hits(query, passages, ranks_first, ranks_second)
        for query, ranks_first, ranks_second in zip(
            queries, _rank_passages(first), _rank_passages(second), strict=True
        )
    ]
    return {
        "passages": len(passages),
        "all_passages": total,
        "agreement": sum(one["agreement"] for one in compared) / len(compared),
        "same_best": sum(one["same_best"] for one in compared) / len(compared),
        "current": first.facts,
        "other": second.facts,
        "queries": sorted(compared, key=lambda one: one["agreement"]),
    }


def _list_logged_queries(workspace: Workspace, limit: int) -> list[str]:
    """Return the words of the most frequent queries of the last year, without their filters."""
    log = QueryLog(workspace.data_dir / "queries.sqlite")
    logged = log.compute_search_statistics(days=365, limit=limit).top
    spoken = dict.fromkeys(parse_query(one.query).spoken for one in logged)
    found = [query for query in spoken if query]
    if not found:
        raise NothingFound("the query log has no queries", hint="search first, then compare")
    return found


def _sample_passages(reader: IndexReader, limit: int) -> tuple[list[_SampledPassage], int]:
    """Return evenly spaced passages that get a vector, at most `limit`, and how many there are in all."""
    with closing(CatalogDatabase(Path(reader.folder) / "catalog.sqlite")) as catalog:
        numbers = [number for number, _, _ in catalog.iterate_chunks_to_embed()]
        step = max(1, -(-len(numbers) // max(1, limit)))
        chunks = catalog.get_chunks_by_number(numbers[::step])
        entries = catalog.get_entries_by_id({entry_id for _, entry_id in chunks.values()})
        found = [
            _SampledPassage(
                str(entries[entry_id].make_ref(chunk)), f"{entries[entry_id].title}\n{chunk.text}"
            )
            for chunk, entry_id in chunks.values()
            if entry_id in entries
        ]
    if not found:
        raise NothingFound("the index has no passages", hint="`kbtui index` builds it")
    return found, len(numbers)


def _measure_model(
    model: EmbeddingModelSource,
    queries: Sequence[str],
    passages: Sequence[_SampledPassage],
    total: int,
) -> _MeasuredModel:
    began = time.perf_counter()
    embedder = TorchEmbedder(model)
    loaded = time.perf_counter()
    of_passages = embedder.embed_texts([one.text for one in passages])
    embedded = time.perf_counter()
    of_queries = np.concatenate([embedder.embed_query(query) for query in queries])
    ended = time.perf_counter()
    speed = len(passages) / max(1e-9, embedded - loaded)
    folder = Path(model.source)
    sizes = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    facts: ModelFactsJson = {
        "source": model.source,
        "size": sum(sizes) if folder.is_dir() else 0,
        "dimension": embedder.dimension,
        "load_seconds": loaded - began,
        "passages_per_second": speed,
        "query_milliseconds": 1000 * (ended - embedded) / len(queries),
        "seconds_for_all": total / speed,
    }
    return _MeasuredModel(facts, of_passages, of_queries)


def _rank_passages(measured: _MeasuredModel) -> Any:
    """Return a row for each query: the positions of the passages that are most similar to it, best first."""
    similarities = measured.queries @ measured.passages.T
    return np.argsort(-similarities, axis=1, kind="stable")[:, :BEST_HITS]


def _compare_hits(
    query: str, passages: Sequence[_SampledPassage], first: Any, second: Any
) -> ComparedQueryJson:
    current, other = first.tolist(), second.tolist()
    common = set(current) & set(other)
    return {
        "query": query,
        "agreement": len(common) / len(current),
        "same_best": current[0] == other[0],
        "current": [passages[at].ref for at in current if at not in common],
        "other": [passages[at].ref for at in other if at not in common],
    }
