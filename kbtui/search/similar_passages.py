"""Finds passages that are similar to a given subject, turn or passage.

The search by keywords looks for words that are frequent in the given text and rare in other texts
(tf-idf). The query of the search by meaning is the title and the beginning of the text.
"""

from __future__ import annotations

from collections import Counter
from math import log
from typing import TYPE_CHECKING, Any

from kbtui.errors import NothingFound
from kbtui.search.search_pipeline import SearchRun, run_search_and_build_answer
from kbtui.search.search_request_and_answer import MAX_QUERY_CHARACTERS, SearchRequest

if TYPE_CHECKING:
    from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
    from kbtui.index.index_reader import IndexReader
    from kbtui.references import Ref
    from kbtui.search.query_stemming_and_matching import StemmingAnalyzer
    from kbtui.search.search_pipeline import SemanticSearchStarter
    from kbtui.search.search_request_and_answer import SearchAnswer
    from kbtui.workspace import Workspace

MAX_KEYWORDS = 25
"""To find similar passages by keywords, at most this many words of a text are searched for."""
MAX_PROSE_CHARACTERS = 600
"""To find passages with a similar meaning, at most this many characters of a text are used, from its beginning."""


def find_similar_passages(
    workspace: Workspace,
    reader: IndexReader,
    ref: Ref,
    request: SearchRequest,
    semantic: SemanticSearchStarter | None = None,
) -> SearchAnswer:
    """Find the passages of other entries that are most similar to the text of a reference.

    `request` provides the filters and the limit; its query is ignored. Raises `NothingFound` if no
    text is indexed for the reference, or if the reference names a conversation that does not exist.
    """
    from kbtui.search.rank_explanation import find_passages_of_reference

    entry, chunks = find_passages_of_reference(reader, ref)
    if entry is None and ref.kind == "conversation":
        from kbtui.conversations.conversation_repository import find_conversation

        try:
            find_conversation(workspace, ref.conversation or "")
        except NothingFound as error:
            # The engine can send an error only if its class is in the module `errors`.
            raise NothingFound(error.message, where=error.where, hint=error.hint) from None
    if entry is None or not chunks:
        raise NothingFound("no text is indexed for this reference", where=str(ref))
    query = _make_query_from_title_and_beginning_of_text(entry, chunks)
    run = SearchRun(workspace, reader, request._replace(query=query))
    run.notices.clear()
    without = (*run.narrowing.without, ("entry", (entry.id,)))
    run.narrowing = run.narrowing._replace(without=without)
    searcher, language = run.keyword_search.sides[0].searcher, run.keyword_search.language
    words = select_distinctive_words(chunks, entry, searcher, language)
    run.query = run.query._replace(words=tuple(words), phrases=(), excluded=())
    del run.keyword_search  # it has the original query; the next access builds a new one
    return run_search_and_build_answer(run, semantic)


def _make_query_from_title_and_beginning_of_text(entry: CatalogEntry, chunks: list[Chunk]) -> str:
    """Return a query generated from an entry's title and the beginning of its text."""
    prose = " ".join(chunk.text for chunk in chunks if chunk.embed) or chunks[0].text
    words = " ".join(f"{entry.title}. {prose}".split())[:MAX_PROSE_CHARACTERS]
    # Remove the characters that have a meaning in queries.
    return words.replace('"', " ").replace(":", " ").replace(" -", " ")[:MAX_QUERY_CHARACTERS]


def select_distinctive_words(
    chunks: list[Chunk], entry: CatalogEntry, searcher: Any, language: StemmingAnalyzer
) -> list[str]:
    """Return the most distinctive words: frequent in the entry's text, and rare in the index (tf-idf)."""
    text = f"{entry.title}\n" + "\n".join(chunk.text for chunk in chunks)
    counts: Counter[str] = Counter()
    shown: dict[str, str] = {}
    for stem, first, last in language.locate_stems(text):
        counts[stem] += 1
        shown.setdefault(stem, text[first:last])
    total = max(1, searcher.num_docs)
    weights = {}
    for stem, count in counts.items():
        found = searcher.doc_freq("body", stem)
        token = language.make_letter_run_token(shown[stem].lower())
        if found < 2 or len(stem) < 3 or token is None or token.weight < 1.0:
            continue
        weights[stem] = (1 + log(count)) * log(total / found)
    best = sorted(weights, key=lambda stem: (-weights[stem], stem))[:MAX_KEYWORDS]
    return [shown[stem] for stem in best]
