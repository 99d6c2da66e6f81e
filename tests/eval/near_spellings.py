"""Measures how often the word that was meant is found for a word with a typing error.

    python -m tests.eval.near_spellings [SEED]

Each of 400 random words of the demo corpus (5 to 12 letters, in at least three passages, no function words)
gets one random error after its first letter: a letter left out, added or changed, or two swapped. An error that
makes another word of the corpus, or one with the same stem, is left out.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.query_stemming_and_matching import StemmingAnalyzer
from kbtui.search.search_pipeline import SearchRun
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings, Workspace, open_workspace_at_root
from tests.eval.labelled_questions import CORPUS

WORDS = 400
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def make_typing_error(word: str, chance: random.Random) -> str:
    """Return the word with one random error after its first letter."""
    at = chance.randrange(1, len(word) - 1)
    letter = chance.choice(_LETTERS)
    return chance.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + letter + word[at:],
            word[:at] + letter + word[at + 1 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        )
    )


def find_stems_meant(workspace: Workspace, reader: IndexReader, typed: str) -> list[str] | None:
    """Return the stems that a search tries for a word, the likeliest first; None if it finds the word itself."""
    run = SearchRun(workspace, reader, SearchRequest(typed, mode="lexical"))
    run.rank_chunks_by_keywords(20)
    tokens = [token for word in run.keyword_search.analyzed_words for token in word.tokens]
    side = run.keyword_search.sides[0].searcher
    if any(side.doc_freq("body", token.stem) for token in tokens):
        return None
    return [near.stem for token in tokens for near in token.corrected]


def main(seed: int) -> None:
    """Print how many words were found, and how many of them first."""
    chance, language = random.Random(seed), StemmingAnalyzer("english")
    workspace = open_workspace_at_root(CORPUS)
    with tempfile.TemporaryDirectory() as folder:
        index = WorkspaceIndexWriter(workspace, Settings(), cache_dir=Path(folder))
        index.refresh_index()
        index.close()
        with closing(IndexReader(Path(folder))) as reader:
            with closing(CatalogDatabase(Path(reader.folder) / "catalog.sqlite")) as catalog:
                numbers = [number for number, _, _ in catalog.iterate_chunks_to_embed()]
                texts = [one.text for one, _ in catalog.get_chunks_by_number(numbers).values()]
            counts = Counter(
                word for text in texts for word in {*re.findall(r"\b[a-z]{5,12}\b", text.lower())}
            )
            common = sorted(word for word, count in counts.items() if count >= 3)
            words = [word for word in common if word not in language.function_words]
            asked = first = among = 0
            for word in chance.sample(words, min(WORDS, len(words))):
                typed = make_typing_error(word, chance)
                stems = None if typed in counts else find_stems_meant(workspace, reader, typed)
                if stems is not None:
                    asked += 1
                    first += stems[:1] == language.list_stems_of_text(word)
                    among += language.list_stems_of_text(word)[0] in stems
    print(
        f"{asked} words with an error: meant word first {first / asked:.1%}, found {among / asked:.1%}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
