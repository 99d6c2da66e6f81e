"""Cranfield split into five workspaces: how many of the first ten hits are those of one index.

    python -m tests.eval.split_collection DIRECTORY [keywords] [meaning] [fusion]

DIRECTORY is that of Cranfield. The exit code is 1 if fewer than nine of ten hits agree on average.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.index.vector_store import make_vector_filter_sql
from kbtui.search.multi_index_search import QueryVectorOrNotice, SearchedIndex, search_indexes
from kbtui.search.search_request_and_answer import SearchRequest
from tests.eval import cranfield
from tests.eval.indexed_corpus import IndexedCorpus, Vectors, cache_folder, index_corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbtui.search.keyword_search import ChunkRanking

PARTS = 5
FIRST = 10
LEAST_AGREEMENT = 0.9
MODES = {"keywords": "lexical", "meaning": "semantic", "fusion": "hybrid"}
WAYS_TO_SPLIT = ("in turn", "in runs")
"""Abstract n is in workspace n modulo 5, or the first fifth of the abstracts is in the first workspace."""


class CorpusVectors:
    """The vectors of the parts: a `VectorSearch`."""

    def __init__(self, parts: Sequence[IndexedCorpus]) -> None:
        self._vectors = parts[0].vectors
        self._stores = {part.reader.folder: part.store for part in parts}

    def start_computing_query_vector(self, text: str) -> Callable[[], QueryVectorOrNotice]:
        """Return a function that returns the vector of a query."""
        return partial(QueryVectorOrNotice, self._vectors.embed_question(text))

    def get_vector_of_first_given_chunk_with_vector_in_index(
        self, index: SearchedIndex, numbers: Sequence[int]
    ) -> list[float] | None:
        """Return the vector of the first chunk that has one."""
        return self._stores[index.reader.folder].get_vector_of_first_given_chunk_with_vector(
            numbers
        )

    def search_nearest_chunks_in_index(
        self, index: SearchedIndex, vector: list[float], request: SearchRequest
    ) -> ChunkRanking:
        """Return the nearest chunks of a part."""
        store = self._stores[index.reader.folder]
        return store.search_nearest_chunks(vector, make_vector_filter_sql(), request.depth)

    def count_missing_and_required_vectors_of_index(
        self, index: SearchedIndex, *, hidden: bool
    ) -> tuple[int, int]:
        """Return that no vector is missing."""
        return 0, 1

    def select_chunks_without_vector_in_index(
        self, index: SearchedIndex, numbers: Sequence[int]
    ) -> list[int]:
        """Return an empty list: every chunk has a vector."""
        return []


def measure_split(
    folder: Path, vectors: Vectors, way: str, names: Sequence[str]
) -> dict[str, float]:
    """Return for each mode which share of the first ten hits is among the first ten of one index."""
    root = cache_folder() / "cranfield"
    cranfield.write_workspace(folder, root)
    index = partial(index_corpus, vectors=vectors, embeds=list(names) != ["keywords"])
    whole = index(root)
    parts = [index(part) for part in _write_parts(root, way)]
    indexes = [
        SearchedIndex(part.workspace, part.reader, f"part{at}", f"part{at}")
        for at, part in enumerate(parts)
    ]
    questions = cranfield.read_questions(folder)
    shares = {}
    for name in names:
        mode = MODES[name]
        same = expected = 0
        for _, text, _ in questions:
            request = SearchRequest(text, mode=mode, limit=FIRST)  # type: ignore[arg-type]
            wanted = {hit.chunk_id for hit in whole.search(request).hits}
            found = search_indexes(indexes, request, CorpusVectors(parts)).hits
            same += len(wanted & {hit.chunk_id for hit in found})
            expected += len(wanted)
        shares[name] = same / max(1, expected)
    for one in (whole, *parts):
        one.close()
    return shares


def _write_parts(root: Path, way: str) -> list[Path]:
    """Copy the abstracts into five workspaces, and return their roots."""
    files = sorted((root / "abstracts").glob("*.md"))
    parts = []
    for number in range(PARTS):
        part = cache_folder() / f"cranfield-{number}"
        shutil.rmtree(part, ignore_errors=True)
        (part / "abstracts").mkdir(parents=True)
        shutil.copytree(root / ".jp", part / ".jp")
        for at, path in enumerate(files):
            if (at % PARTS if way == "in turn" else at * PARTS // len(files)) == number:
                shutil.copy(path, part / "abstracts")
        parts.append(part)
    return parts


def main() -> int:
    """Print the agreement of each mode; return 1 if one is too low."""
    parser = argparse.ArgumentParser(prog="python -m tests.eval.split_collection")
    parser.add_argument("directory", type=Path)
    parser.add_argument("modes", nargs="*", metavar="MODE", help=", ".join(MODES))
    args = parser.parse_args()
    names = args.modes or list(MODES)
    vectors, lowest = Vectors(), 1.0
    print(f"{'split':<12}" + "".join(f"{name:>11}" for name in names))
    for way in WAYS_TO_SPLIT:
        shares = measure_split(args.directory, vectors, way, names)
        print(f"  {way:<10}" + "".join(f"{share:>11.4f}" for share in shares.values()), flush=True)
        lowest = min(lowest, *shares.values())
    return int(lowest < LEAST_AGREEMENT)


if __name__ == "__main__":
    sys.exit(main())
