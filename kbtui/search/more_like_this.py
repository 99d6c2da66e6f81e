"""More like this: what is near to a subject or a turn, of both kinds.

Keywords: the words that are frequent in it and rare elsewhere. Meaning: its own
words as a question. The two are fused as ever.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING, Any

from kbtui.errors import NothingFound
from kbtui.search.models import MAX_QUERY_CHARACTERS, Question
from kbtui.search.pipeline import SearchRun, build_answer

if TYPE_CHECKING:
    from kbtui.index import IndexReader
    from kbtui.index.models import Chunk, Entry
    from kbtui.refs import Ref
    from kbtui.search.analysis import Language
    from kbtui.search.models import Answer
    from kbtui.search.pipeline import SemanticLeg
    from kbtui.workspace import Workspace

MAX_KEYWORDS = 25
MAX_PROSE_CHARACTERS = 600
"""So many terms stand for a text, and so many of its characters are its question."""


def find_similar(
    workspace: Workspace,
    reader: IndexReader,
    ref: Ref,
    semantic: SemanticLeg | None = None,
    question: Question | None = None,
) -> Answer:
    """The nearest passages of other entries, best first; raises `NothingFound` for what is not indexed.

    `question` narrows and limits as in a search; its query is not looked at.
    """
    from kbtui.search.explain import find_passages

    entry, chunks = find_passages(reader, ref)
    if entry is None or not chunks:
        raise NothingFound("nothing of it is indexed", where=str(ref))
    question = question or Question("", per_entry=1)
    asked = _MoreLikeThisRun(
        workspace, reader, replace(question, query=_compose_query(entry, chunks)), entry, chunks
    )
    return build_answer(asked, semantic)


def _compose_query(entry: Entry, chunks: list[Chunk]) -> str:
    """What it says, as a question: its title and the start of its own prose."""
    prose = " ".join(chunk.text for chunk in chunks if chunk.embed) or chunks[0].text
    words = " ".join(f"{entry.title}. {prose}".split())[:MAX_PROSE_CHARACTERS]
    # Nothing in it is meant as grammar.
    return words.replace('"', " ").replace(":", " ").replace(" -", " ")[:MAX_QUERY_CHARACTERS]


class _MoreLikeThisRun(SearchRun):
    """A question made of a text; everything but the entry itself."""

    def __init__(
        self,
        workspace: Workspace,
        reader: IndexReader,
        question: Question,
        entry: Entry,
        chunks: list[Chunk],
    ) -> None:
        super().__init__(workspace, reader, question)
        self.notices.clear()
        without = (*self.narrowing.without, ("entry", (entry.id,)))
        self.narrowing = self.narrowing._replace(without=without)
        words = select_keywords(
            chunks, entry, self.lexical.sides[0].searcher, self.lexical.language
        )
        spoken = self.query.spoken
        self.query = self.query._replace(words=tuple(words), phrases=(), excluded=(), spoken=spoken)
        del self.lexical  # it read the question as it was typed


def select_keywords(
    chunks: list[Chunk], entry: Entry, searcher: Any, language: Language
) -> list[str]:
    """The words that stand for a text: those with the greatest weight, frequent here and rare
    elsewhere."""
    text = f"{entry.title}\n" + "\n".join(chunk.text for chunk in chunks)
    counts: Counter[str] = Counter()
    shown: dict[str, str] = {}
    for stem, first, last in language.spans(text):
        counts[stem] += 1
        shown.setdefault(stem, text[first:last])
    total = max(1, searcher.num_docs)
    weights = {}
    for stem, count in counts.items():
        found = searcher.doc_freq("body", stem)
        token = language.token(shown[stem].lower())
        if found < 2 or len(stem) < 3 or token is None or token.weight < 1.0:
            continue
        weights[stem] = (1 + log(count)) * log(total / found)
    best = sorted(weights, key=lambda stem: (-weights[stem], stem))[:MAX_KEYWORDS]
    return [shown[stem] for stem in best]
