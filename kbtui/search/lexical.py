"""The lexical leg: a question as a tantivy query over the fields of a chunk.

Scores are sums over fields, each word's worth its weight: the chunk's body, its
neighbours, the title, and the `code` field of identifiers (stack, section 7).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import tantivy

from kbtui.index.lexical import analyzer
from kbtui.index.words import code_words

if TYPE_CHECKING:
    from kbtui.index import IndexReader
    from kbtui.search.query import Query
    from kbtui.search.records import Question

WEIGHTS = {"body": 1.0, "context": 1.0, "title": 0.75}
CODE_WEIGHT = 1.0
FUNCTION_WORD_WEIGHT = 0.3
PREFIX_TERMS = 32
OVERFETCH = 5
"""How many times the limit is looked at before an entry's surplus chunks are left out."""

FUNCTION_WORDS = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could
    did do does doing down during each few for from further had has have having he her here hers him
    his how i if in into is it its itself just me more most my no nor not now of off on once only or
    other our out over own same she should so some such than that the their them then there these
    they this those through to too under until up very was we were what when where which while who
    whom why will with would you your""".split()
)
"""Words of English that say little about what a text is about."""

Ranked = list[tuple[int, float]]
"""Chunk numbers with their scores, best first."""


def lexical_leg(reader: IndexReader, query: Query, question: Question, limit: int) -> Ranked:
    """The best chunks by keywords; ties by chunk number.

    At most `per_entry` chunks of one entry, so that a long one does not fill the leg.
    """
    found: list[tuple[int, float]] = []
    for hidden in (False, True) if question.hidden else (False,):
        index = reader.lexical(hidden=hidden)
        searcher = index.searcher()
        if not searcher.num_docs:
            continue
        built = _Builder(index.schema, searcher, reader.language).build(query, question)
        if built is None:
            return []
        hits = searcher.search(built, limit=limit * OVERFETCH, count=False).hits
        addresses = [address for _, address in hits]
        numbers = searcher.fast_field_values("chunk", addresses)
        owners = searcher.fast_field_values("owner", addresses)
        rows = [
            (int(number or 0), float(score), owner)
            for number, owner, (score, _) in zip(numbers, owners, hits, strict=True)
        ]
        seen: Counter[object] = Counter()
        for number, score, owner in sorted(rows, key=lambda row: (-row[1], row[0])):
            seen[owner] += 1
            if seen[owner] <= question.per_entry:
                found.append((number, score))
    return sorted(found, key=lambda hit: (-hit[1], hit[0]))[:limit]


class _Builder:
    """Makes tantivy queries for one index."""

    def __init__(self, schema: Any, searcher: Any, language: str) -> None:
        self._schema, self._searcher = schema, searcher
        self._analyzer = analyzer(language)

    def build(self, query: Query, question: Question) -> Any:
        """The whole query, None when nothing is asked for."""
        clauses: list[tuple[Any, Any]] = []
        last = len(query.words) - 1
        for position, word in enumerate(query.words):
            prefix = question.partial and query.open and position == last
            clauses += [(tantivy.Occur.Should, part) for part in self._word(word, prefix=prefix)]
        for phrase in query.phrases:
            clauses.append((tantivy.Occur.Must, self._phrase(phrase)))
        if not clauses:
            return None
        wanted = tantivy.Query.boolean_query(clauses)
        limits = [(tantivy.Occur.MustNot, self._phrase(text)) for text in query.excluded]
        limits += [(tantivy.Occur.Must, part) for part in self._filters(question)]
        if not limits:
            return wanted
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, wanted), *limits])

    def _term(self, field: str, term: str, weight: float, option: str = "freq") -> Any:
        found = tantivy.Query.term_query(self._schema, field, term, option)
        return found if weight == 1.0 else tantivy.Query.boost_query(found, weight)

    def _word(self, word: str, *, prefix: bool) -> list[Any]:
        weight = FUNCTION_WORD_WEIGHT if word.lower().strip("?!.,;:") in FUNCTION_WORDS else 1.0
        terms = self._analyzer.analyze(word)
        parts = []
        for term in dict.fromkeys(terms):
            for field, worth in WEIGHTS.items():
                parts.append(self._term(field, term, worth * weight))
        for term in dict.fromkeys(code_words(word)):
            parts.append(self._term("code", term, CODE_WEIGHT))
        if prefix and weight == 1.0 and len(word) > 1 and terms:
            parts += self._prefix(word)
        return parts

    def _prefix(self, word: str) -> list[Any]:
        """What the word may become: the terms of the body that begin like it, as one word."""
        plain = analyzer("").analyze(word)
        if not plain:
            return []
        begun = self._searcher.terms_with_prefix("body", plain[-1], PREFIX_TERMS)
        terms = [term if isinstance(term, str) else term[0] for term in begun]
        if not terms:
            return []
        return [
            tantivy.Query.disjunction_max_query([self._term("body", term, 0.8) for term in terms])
        ]

    def _phrase(self, text: str) -> Any:
        terms = self._analyzer.analyze(text)
        if not terms:
            # Nothing but marks (`"C++"`, `"東京"` is one term): its code words, all of them.
            words = list(dict.fromkeys(code_words(text)))
            if not words:
                return tantivy.Query.empty_query()
            return tantivy.Query.boolean_query(
                [(tantivy.Occur.Must, self._term("code", word, 1.0)) for word in words]
            )
        fields = ("body", "title")
        if len(terms) == 1:
            found = [self._term(field, terms[0], 1.0) for field in fields]
        else:
            found = [tantivy.Query.phrase_query(self._schema, field, terms) for field in fields]
        return tantivy.Query.boolean_query([(tantivy.Occur.Should, part) for part in found])

    def _filters(self, question: Question) -> list[Any]:
        """What narrows before ranking, without a say in the score."""
        wanted: dict[str, tuple[str, ...]] = {
            "topic": question.topics,
            "type": question.types,
            "role": question.roles,
            "tool": question.tools,
        }
        if set(question.kinds) != {"subject", "conversation"}:
            wanted["kind"] = question.kinds
        if not question.archived:
            wanted["archived"] = ("no",)
        parts = [
            tantivy.Query.term_set_query(self._schema, field, list(values))
            for field, values in wanted.items()
            if values
        ]
        if question.since or question.until:
            parts.append(
                tantivy.Query.range_query(
                    self._schema,
                    "time",
                    tantivy.FieldType.Integer,
                    lower_bound=int(question.since.timestamp()) if question.since else None,
                    upper_bound=int(question.until.timestamp()) if question.until else None,
                    include_upper=question.until is None,
                )
            )
        if question.exclude is not None:
            entry = tantivy.Query.term_query(
                self._schema, "entry", f"jp-c{question.exclude}", "basic"
            )
            both = [(tantivy.Occur.Must, tantivy.Query.all_query()), (tantivy.Occur.MustNot, entry)]
            parts.append(tantivy.Query.boolean_query(both))
        return [tantivy.Query.const_score_query(part, 0.0) for part in parts]
