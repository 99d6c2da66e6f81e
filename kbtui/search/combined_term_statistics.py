"""Sums the term statistics of several keyword indexes, so that scores from these indexes can be compared.

tantivy scores each index by the statistics of that index alone. A word that is rare in one
workspace but common elsewhere would therefore raise the scores of its hits in that workspace too
much. With the summed statistics, all indexes score their chunks as one index with all entries
would.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from tantivy import Query

from kbtui.search.query_stemming_and_matching import compute_rarity

if TYPE_CHECKING:
    from collections.abc import Sequence


class CombinedTermStatistics:
    """The summed statistics of several keyword indexes.

    `num_docs`, `doc_freq` and `terms_with_prefix` return what a tantivy searcher would return for one
    index with all entries. Do not change the indexes while this object is in use.
    """

    def __init__(self, searchers: Sequence[Any], schema: Any) -> None:
        """Sum the statistics of `searchers`, whose indexes have the same `schema`."""
        self._searchers, self._schema = searchers, schema
        self.doc_freq = lru_cache(maxsize=None)(self._sum_document_frequencies)

    @cached_property
    def num_docs(self) -> int:
        """The number of documents."""
        return sum(searcher.num_docs for searcher in self._searchers)

    def _sum_document_frequencies(self, field: str, term: str) -> int:
        """Return how many documents contain a term in a field."""
        return sum(searcher.doc_freq(field, term) for searcher in self._searchers)

    def terms_with_prefix(
        self, field: str, prefix: str, *, limit: int | None = None
    ) -> list[tuple[str, int]]:
        """Return the `limit` most common terms that begin with `prefix`, each with its frequency."""
        counts: Counter[str] = Counter()
        for searcher in self._searchers:
            counts.update(dict(searcher.terms_with_prefix(field, prefix)))
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit]

    @cached_property
    def _scored_document_count(self) -> int:
        """The number of documents that tantivy counts for its scores.

        This number includes replaced documents.
        """
        return sum(_count_scored_documents(one, self._schema) for one in self._searchers)

    def compute_rarity(self, *field_terms: tuple[str, str]) -> float:
        """Return the sum of the BM25 inverse document frequencies of terms, given as pairs `(field, term)`."""
        counts = (self.doc_freq(field, term) for field, term in field_terms)
        return sum(compute_rarity(count, self._scored_document_count) for count in counts)


def _count_scored_documents(searcher: Any, schema: Any) -> int:
    """Return how many documents tantivy counts for its scores.

    tantivy reveals this number only in the explanation of a score.
    """
    # `num_docs` does not count replaced documents, but `doc_freq` and scores do.
    for value in ("no", "yes"):
        query = Query.term_query(schema, "archived", value, "basic")
        hits = searcher.search(query, limit=1, count=False).hits
        if hits:
            found = _find_value_in_explanation(
                json.loads(query.explain(searcher, hits[0][1]).to_json()), "N, "
            )
            return int(found or searcher.num_docs)
    return int(searcher.num_docs)


def _find_value_in_explanation(explained: dict[str, Any], description: str) -> float | None:
    """Return the value of the first part of `explained` that has a description beginning with `description`."""
    if explained["description"].startswith(description):
        return float(explained["value"])
    parts = (
        _find_value_in_explanation(part, description) for part in explained.get("details") or ()
    )
    return next((value for value in parts if value is not None), None)
