"""Compares two embedding models on the user's own queries and passages.

Vectors are read from the workspace's embedding cache and stored in it. The current model therefore
has little to embed, and an interrupted comparison continues where it stopped. If the user then
switches to the other model, the compared passages need not be embedded again.
"""

from __future__ import annotations

import math
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kbtui.errors import NothingFound, UsageError
from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.chunk_embedder import combine_title_text_and_neighbour_vectors
from kbtui.index.embedding_cache import EmbeddingCache
from kbtui.index.embedding_model import (
    EmbeddingModelUnavailableError,
    TorchEmbeddingModel,
    find_embedding_model,
)
from kbtui.index.entry_and_chunk_data_types import hash_embedded_text
from kbtui.light_named_tuple import NamedTuple
from kbtui.search.filter_definitions import split_regex_query
from kbtui.search.query_parsing_and_filter_application import parse_query
from kbtui.terminal_text import format_counted_noun
from kbtui.userdata.query_log import QueryLog
from kbtui.workspace.paths import expand_user, make_private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kbtui.index.embedding_model import EmbeddingModelKeyAndSource, Matrix
    from kbtui.index.index_reader import IndexReader
    from kbtui.workspace import Workspace

BEST_HITS = 10
"""For each query, this many of the best hits of each model are compared."""
PROGRESS_SECONDS = 5.0
"""The minimum number of seconds between two progress reports."""
TEXTS_EMBEDDED_AT_ONCE = 32
"""Texts are embedded in groups of this size. After each group, its vectors are stored in the cache."""
MIN_TIMED_PASSAGES = 16
"""If fewer passages than this had to be embedded, the model's speed is measured on a sample.

The sample has at most this many passages. They are embedded even if their vectors are cached.
"""


class _ModelMeasurementsAndVectors(NamedTuple):
    """The measurements of a model, and its vectors for the sampled passages and for the queries."""

    facts: dict[str, Any]
    passages: Matrix
    queries: Matrix


class _SampledPassage(NamedTuple):
    ref: str
    kind: str
    title: str
    text: str
    chunk_id: str


def compare_models(
    workspace: Workspace,
    reader: IndexReader,
    setting: str,
    other: str,
    *,
    max_queries: int,
    max_passages: int,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Embed queries from the query log and passages of the index with both models, and compare the best hits.

    `setting` is the value of the setting `model`, and `other` is the directory of the other model.
    From a large index, only every n-th passage is compared. At most `max_passages` are compared, in
    addition to those that the user opened. A passage's vector is computed from its text and title.
    `report` is called with a message about each step.

    In the answer, the size of a model is in bytes, and `seconds_for_all` is the time for all
    passages of the index. `agreement` is between 0 and 1. `quality` is None if no hits were opened.
    Each example lists the references of the hits that only one of the models found: in `current`
    those of the current model, in `other` those of the other model.

    Raises `UsageError` if `other` is not a directory with a model, `EmbeddingModelUnavailableError` if
    the current model cannot be loaded, and `NothingFound` if there are no queries or no passages.
    """
    log = QueryLog(workspace.user_data_directory / "queries.sqlite")
    opened = _map_queries_to_opened_chunks(log)
    queries = _select_logged_queries_to_compare(log, [*opened], max_queries)
    passages, total = _sample_evenly_spaced_passages(
        reader, max_passages, set().union(*opened.values())
    )
    # Load both models first, so that a model that cannot be loaded is reported before the slow part
    # begins.
    report("loading both models")
    loaded = [_load_model_to_compare_with(other), _load_current_model(setting)][::-1]
    measured = []
    for one in loaded:
        with closing(_CachingEmbedder(workspace, one, report)) as vectors:
            measured.append(_embed_samples_and_measure_model(vectors, queries, passages, total))
    first, second = measured
    ranks = (_rank_passages_for_each_query(first), _rank_passages_for_each_query(second))
    compared = [
        _compare_best_passages(query, passages, ranks_first, ranks_second)
        for query, ranks_first, ranks_second in zip(queries, *ranks, strict=True)
    ]
    return {
        "passages": len(passages),
        "all_passages": total,
        "agreement": sum(one["agreement"] for one in compared) / len(compared),
        "same_best": sum(one["same_best"] for one in compared) / len(compared),
        "quality": _compare_ranking_quality_of_models(queries, passages, opened, ranks),
        "current": first.facts,
        "other": second.facts,
        "queries": sorted(compared, key=lambda one: one["agreement"]),
    }


class _ModelToCompare(NamedTuple):
    """A loaded model. `seconds` is how long loading took."""

    source: EmbeddingModelKeyAndSource
    embedder: TorchEmbeddingModel
    seconds: float


def _load_current_model(setting: str) -> _ModelToCompare:
    if setting == "off":
        raise EmbeddingModelUnavailableError(
            "the model is switched off, so there is nothing to compare with",
            where="model",
            hint="`KBTUI_MODEL= kbtui model compare PATH` compares with the packaged model",
        )
    return _load_model_and_measure_duration(find_embedding_model(setting))


def _load_model_to_compare_with(folder: str) -> _ModelToCompare:
    path = Path(expand_user(folder))
    hint = (
        "name a directory in the layout of sentence-transformers, with modules.json and the weights"
    )
    if not path.is_dir():
        raise UsageError("there is no such directory", where=str(path), hint=hint)
    try:
        return _load_model_and_measure_duration(find_embedding_model(str(path.resolve())))
    except EmbeddingModelUnavailableError as error:
        if error.where is None:  # a package cannot be imported
            raise
        raise UsageError(error.message, where=str(path), hint=hint) from error


def _load_model_and_measure_duration(source: EmbeddingModelKeyAndSource) -> _ModelToCompare:
    began = time.perf_counter()
    embedder = TorchEmbeddingModel(source)
    return _ModelToCompare(source, embedder, time.perf_counter() - began)


def _map_queries_to_opened_chunks(log: QueryLog) -> dict[str, set[str]]:
    """Map the words of each query to the ids of the chunks that the user opened from its hits."""
    found: dict[str, set[str]] = {}
    for hit in log.list_opened_hits():
        if spoken := parse_query(hit.query).spoken:
            found.setdefault(spoken, set()).add(hit.chunk_id)
    return found


def _select_logged_queries_to_compare(log: QueryLog, first: Sequence[str], limit: int) -> list[str]:
    """Return at most `limit` logged queries, with their filters removed.

    The queries in `first` come first, then the most frequent queries of the last year.
    """
    logged = log.compute_search_statistics(days=365, limit=limit).top
    texts = [one.query for one in logged if split_regex_query(one.query) is None]
    spoken = dict.fromkeys([*first, *(parse_query(text).spoken for text in texts)])
    found = [query for query in spoken if query][:limit]
    if not found:
        raise NothingFound(
            "the query log has no queries",
            hint="turn on the setting `query_log` and run some searches; then compare again",
        )
    return found


def _sample_evenly_spaced_passages(
    reader: IndexReader, limit: int, wanted: Collection[str]
) -> tuple[list[_SampledPassage], int]:
    """Return at most `limit` evenly spaced passages, and the number of passages in the index that need a vector.

    The chunks in `wanted` that still exist are returned in addition to these passages.
    """
    with closing(CatalogDatabase(Path(reader.folder) / "catalog.sqlite")) as catalog:
        numbers = [number for number, _, _ in catalog.iterate_chunks_to_embed()]
        step = max(1, -(-len(numbers) // max(1, limit)))
        chunks = catalog.get_chunks_by_number(numbers[::step])
        known = {chunk.id for chunk, _ in chunks.values()}
        for chunk_id in sorted({*wanted} - known):
            if opened := catalog.get_chunk_by_id(chunk_id):
                chunks[opened[0].number] = opened
        entries = catalog.get_entries_by_id({entry_id for _, entry_id in chunks.values()})
        found = [
            _SampledPassage(
                str(entries[entry_id].make_chunk_ref(chunk)),
                entries[entry_id].kind,
                entries[entry_id].title,
                chunk.text,
                chunk.id,
            )
            for chunk, entry_id in chunks.values()
            if entry_id in entries
        ]
    if not found:
        raise NothingFound("the index has no passages", hint="`kbtui index` builds it")
    return found, len(numbers)


def _compare_ranking_quality_of_models(
    queries: Sequence[str],
    passages: Sequence[_SampledPassage],
    opened: Mapping[str, Collection[str]],
    ranks: tuple[Any, Any],
) -> dict[str, Any] | None:
    """Compare how well both models rank the passages that the user opened.

    Returns None if none of these passages still exists.

    The values are means over the queries, from 0 to 1. `ndcg` is nDCG@10. `hit_rate` is the fraction
    of queries with an opened passage among the ten best hits.
    """
    positions = {passage.chunk_id: at for at, passage in enumerate(passages)}
    judged = {
        number: relevant
        for number, query in enumerate(queries)
        if (relevant := {positions[one] for one in opened.get(query, ()) if one in positions})
    }
    if not judged:
        return None

    def measure_ranking_quality(rows: Any) -> dict[str, Any]:
        gains = [
            [position in relevant for position in rows[number].tolist()]
            for number, relevant in judged.items()
        ]
        ideal = [min(BEST_HITS, len(relevant)) for relevant in judged.values()]
        return {
            "ndcg": sum(
                _sum_discounted_gains(gain) / _sum_discounted_gains([True] * best)
                for gain, best in zip(gains, ideal, strict=True)
            )
            / len(judged),
            "hit_rate": sum(map(any, gains)) / len(judged),
        }

    return {
        "queries": len(judged),
        "current": measure_ranking_quality(ranks[0]),
        "other": measure_ranking_quality(ranks[1]),
    }


def _sum_discounted_gains(gains: Sequence[bool]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


class _CachingEmbedder:
    """Looks up the vectors of texts in the workspace's cache, and embeds texts that are not in it."""

    def __init__(
        self, workspace: Workspace, model: _ModelToCompare, report: Callable[[str], None]
    ) -> None:
        self.model, self._report = model, report
        make_private_directory(workspace.cache_dir)
        self._cache = EmbeddingCache(workspace.cache_dir / "embeddings.sqlite", model.source.key)

    def close(self) -> None:
        """Close the cache."""
        self._cache.close()

    def look_up_or_embed_texts(
        self, texts: Sequence[str], noun: str
    ) -> tuple[dict[str, Matrix], int, float]:
        """Map each text to its unit vector; embed the texts that have no cached vector.

        Also returns how many texts were embedded, and how many seconds this took. Progress is
        reported; `noun` is the word for one text in these reports.
        """
        by_hash = {hash_embedded_text(text): text for text in texts}
        blobs = self._cache.get_cached_vectors(by_hash)
        found = {by_hash[key]: np.frombuffer(blob, np.float32) for key, blob in blobs.items()}
        missing = [text for text in by_hash.values() if text not in found]
        self._report(
            f"{self.model.source.source}: {len(missing):,} of {format_counted_noun(len(by_hash), noun)} to embed"
        )
        began = reported = time.perf_counter()
        for start in range(0, len(missing), TEXTS_EMBEDDED_AT_ONCE):
            group = missing[start : start + TEXTS_EMBEDDED_AT_ONCE]
            vectors = self.model.embedder.embed_texts(group)
            fresh = dict(zip(group, vectors, strict=True))
            self._cache.store_cached_vectors(
                {hash_embedded_text(text): vector for text, vector in fresh.items()}
            )
            found |= fresh
            now, done = time.perf_counter(), start + len(group)
            if now - reported > PROGRESS_SECONDS and done < len(missing):
                reported = now
                left = math.ceil((now - began) * (len(missing) - done) / done)
                self._report(f"embedded {done:,} of {len(missing):,}, about {left:,} s left")
        return found, len(missing), time.perf_counter() - began


def _embed_samples_and_measure_model(
    vectors: _CachingEmbedder,
    queries: Sequence[str],
    passages: Sequence[_SampledPassage],
    total: int,
) -> _ModelMeasurementsAndVectors:
    model, embedder = vectors.model, vectors.model.embedder
    titles, _, _ = vectors.look_up_or_embed_texts([one.title for one in passages], "title")
    texts, timed, seconds = vectors.look_up_or_embed_texts(
        [one.text for one in passages], "passage"
    )
    if timed < MIN_TIMED_PASSAGES:
        sample = passages[:: -(-len(passages) // MIN_TIMED_PASSAGES)]
        timed, began = len(sample), time.perf_counter()
        embedder.embed_texts([one.text for one in sample])
        seconds = time.perf_counter() - began
    speed = timed / max(1e-9, seconds)
    of_passages = np.vstack(
        [
            combine_title_text_and_neighbour_vectors(
                one.kind, titles[one.title], texts[one.text], ()
            )
            for one in passages
        ]
    )
    began = time.perf_counter()
    of_queries = np.concatenate([embedder.embed_query(query) for query in queries])
    seconds = time.perf_counter() - began
    folder = Path(model.source.source)
    sizes = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    facts: dict[str, Any] = {
        "source": model.source.source,
        "size": sum(sizes) if folder.is_dir() else 0,
        "dimension": embedder.dimension,
        "load_seconds": model.seconds,
        "passages_per_second": speed,
        "query_milliseconds": 1000 * seconds / len(queries),
        "seconds_for_all": total / speed,
    }
    return _ModelMeasurementsAndVectors(facts, of_passages, of_queries)


def _rank_passages_for_each_query(measured: _ModelMeasurementsAndVectors) -> Any:
    """Return one row for each query: the positions of the passages most similar to the query, best first."""
    similarities = measured.queries @ measured.passages.T
    return np.argsort(-similarities, axis=1, kind="stable")[:, :BEST_HITS]


def _compare_best_passages(
    query: str, passages: Sequence[_SampledPassage], first: Any, second: Any
) -> dict[str, Any]:
    current, other = first.tolist(), second.tolist()
    common = set(current) & set(other)
    return {
        "query": query,
        "agreement": len(common) / len(current),
        "same_best": current[0] == other[0],
        "current": [passages[at].ref for at in current if at not in common],
        "other": [passages[at].ref for at in other if at not in common],
    }
