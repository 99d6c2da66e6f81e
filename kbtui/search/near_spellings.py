"""Finds the indexed words that a user probably meant by a rare or misspelled word.

The index contains only stems, which can mislead: *receves* without its last letters resembles the
stem of *recovers*. The words with a similar stem are therefore read from a few texts and compared
with the typed word.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from kbtui.index.identifier_and_cjk_tokenizer import normalize_unicode
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    StemsOfText = Callable[[str], list[str]]
    TextsWithStem = Callable[[str, int], Iterable[str]]
    """A function that takes a stem and a maximum number, and returns texts that contain the stem."""


MAX_NEAR_SPELLINGS = 3
MAX_JUDGED_STEMS = 8
"""The words of at most this many stems, the most common ones, are compared with the typed word."""
FIRST_TEXTS, TEXTS_OF_STEM = 3, 16
"""A stem's words are read from `FIRST_TEXTS` texts or, if none of them is near, from up to `TEXTS_OF_STEM` texts."""
MIN_LETTERS_OF_FREE_START = 6
"""If a word has at least this many letters, its near spellings may begin with another letter."""
MIN_LETTERS_TO_COMPARE = 7
"""A word is compared with similar terms only if it has at least this many letters.

In addition, there must be no near spelling at edit distance one.
"""
NEAR_SPELLING_RATIO = 0.75
"""The minimum similarity of a stem that is not at edit distance one: `difflib`'s ratio, from 0 to 1."""
MAX_COMPARED_TERMS = 2000
"""A word is compared with at most this many terms, the most common ones, so that searches stay fast."""
MAX_ENDING_LETTERS = 5
"""At most this many letters are dropped from the end of an unfinished or inflected word to find its stem."""
MAX_INFLECTION_LETTERS = 3
"""The maximum length of an ending that only one of two words has, as in *receive* and *receives*."""
SWAP_DISTANCE = 0.7
"""The edit distance of a swap of two letters. Every other edit counts as 1."""
INFLECTION_DISTANCE = 0.1
"""The edit distance of an additional ending."""
MAX_DISTANCE = 2.5
"""A word with a larger edit distance is not a near spelling."""
LIKELIHOOD_PER_EDIT = 0.03
"""The factor by which each edit reduces the likelihood that a word was meant."""
MIN_LIKELIHOOD_SHARE = 0.25
"""A near spelling is searched for only if it is at least this share as likely as the likeliest one."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class NearSpelling(NamedTuple):
    """An indexed stem that the user probably meant. `weight` is its likelihood relative to the likeliest stem."""

    stem: str
    weight: float


def find_near_spellings(
    word: str,
    searcher: Any,
    list_stems_of_text: StemsOfText,
    read_texts_with_stem: TextsWithStem,
    *,
    function_words: Collection[str],
    keeps_first_letter: bool,
    excluded: str = "",
    compares_similar: bool = True,
) -> tuple[NearSpelling, ...]:
    """Return the stems that the user probably meant by `word`, the likeliest first.

    At most `MAX_NEAR_SPELLINGS` stems are returned. A stem is likelier if more passages contain it,
    and if its words differ less from `word`. If `keeps_first_letter` is true, only words with the
    same first letter are considered. The stem `excluded` is left out. If `compares_similar` is true
    and no word is at edit distance one, similar terms are considered.
    """
    near = _list_words_at_edit_distance_one(word)
    if keeps_first_letter:
        near = [other for other in near if other[:1] == word[0]]
    stems = set(list_stems_of_text(" ".join(near))) - {excluded}
    found = _estimate_near_spelling_likelihoods(
        word, stems, searcher, list_stems_of_text, read_texts_with_stem, function_words
    )
    if not found and compares_similar and len(word) >= MIN_LETTERS_TO_COMPARE:
        similar = {stem for stem in _list_similar_terms(word, searcher) if stem != excluded}
        found = _estimate_near_spelling_likelihoods(
            word, similar, searcher, list_stems_of_text, read_texts_with_stem, function_words
        )
    return found


def _estimate_near_spelling_likelihoods(
    word: str,
    stems: Iterable[str],
    searcher: Any,
    list_stems_of_text: StemsOfText,
    read_texts_with_stem: TextsWithStem,
    function_words: Collection[str],
) -> tuple[NearSpelling, ...]:
    counts = {
        stem: count
        for stem in stems
        if len(stem) > 2 and (count := int(searcher.doc_freq("body", stem)))
    }
    likelihoods: dict[str, float] = {}
    for stem in sorted(counts, key=lambda stem: (-counts[stem], stem))[:MAX_JUDGED_STEMS]:
        distance = 99.0
        for texts in (FIRST_TEXTS, TEXTS_OF_STEM):
            words = _read_words_of_stem(stem, list_stems_of_text, read_texts_with_stem(stem, texts))
            distances = (measure_spelling_distance(word, one) for one in words - {*function_words})
            distance = min(distances, default=99.0)
            if distance <= 1 or counts[stem] <= texts:
                break
        if distance <= MAX_DISTANCE:
            # Use the square root, because counts in one workspace say little about which words its users type.
            likelihoods[stem] = math.sqrt(counts[stem]) * LIKELIHOOD_PER_EDIT**distance
    best = max(likelihoods.values(), default=0.0)
    order = sorted(likelihoods, key=lambda stem: (-likelihoods[stem], stem))
    return tuple(
        NearSpelling(stem, likelihoods[stem] / best)
        for stem in order[:MAX_NEAR_SPELLINGS]
        if likelihoods[stem] >= MIN_LIKELIHOOD_SHARE * best
    )


def _read_words_of_stem(
    stem: str, list_stems_of_text: StemsOfText, texts: Iterable[str]
) -> set[str]:
    """Return the words in `texts` with this stem, in lower case and without accents."""
    found: set[str] = set()
    for text in texts:
        words = set(re.findall(r"[^\W_]+", normalize_unicode(text).lower()))
        # Stem only words that begin like the stem; most do not. A stem may differ from its words in the last letters.
        likely = [one for one in words - found if one[:2] == stem[:2]]
        found |= {one for one in likely if stem in list_stems_of_text(one)}
    return found


def _list_similar_terms(word: str, searcher: Any) -> list[str]:
    """Return the indexed terms that begin with the first letter of `word` and are most similar to it.

    Terms are stems, so each term is compared with the prefix of `word` that has the term's length.
    """
    from difflib import get_close_matches

    terms: dict[int, list[str]] = {}
    for term, _ in searcher.terms_with_prefix("body", word[0], limit=MAX_COMPARED_TERMS):
        terms.setdefault(len(term), []).append(term)
    lengths = range(
        len(word) + 1, max(MIN_LETTERS_TO_COMPARE, len(word) - MAX_ENDING_LETTERS) - 1, -1
    )
    return [
        term
        for length in lengths
        for term in get_close_matches(
            word[:length], terms.get(length, ()), MAX_NEAR_SPELLINGS, NEAR_SPELLING_RATIO
        )
    ]


def _list_words_at_edit_distance_one(word: str) -> list[str]:
    """Return all variants of a word with one letter dropped, changed, added or swapped with the next."""
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    dropped = [head + tail[1:] for head, tail in cuts if tail]
    swapped = [head + tail[1] + tail[0] + tail[2:] for head, tail in cuts if len(tail) > 1]
    changed = [head + letter + tail[1:] for head, tail in cuts if tail for letter in _LETTERS]
    added = [head + letter + tail for head, tail in cuts for letter in _LETTERS]
    return [*dropped, *swapped, *changed, *added]


def measure_spelling_distance(typed: str, word: str) -> float:
    """Return how different two words are: their edit distance.

    If one word is a misspelling of the other plus an ending of up to `MAX_INFLECTION_LETTERS`
    letters, the ending counts as `INFLECTION_DISTANCE`.
    """
    rows = _compute_edit_distances(typed, word)
    typed_endings = range(1, min(MAX_INFLECTION_LETTERS, len(typed) - MAX_INFLECTION_LETTERS) + 1)
    word_endings = range(1, min(MAX_INFLECTION_LETTERS, len(word) - MAX_INFLECTION_LETTERS) + 1)
    inflected = [rows[-1][len(word) - letters] for letters in word_endings]
    inflected += [rows[len(typed) - letters][-1] for letters in typed_endings]
    # Words that differ only in an inflection have the same stem. An ending is therefore no
    # inflection if the words are otherwise equal.
    return min([rows[-1][-1], *(edits + INFLECTION_DISTANCE for edits in inflected if edits)])


def _compute_edit_distances(first: str, second: str) -> list[list[float]]:
    """Return the edit distance between each prefix of `first` and each prefix of `second`."""
    rows = [[float(at) for at in range(len(second) + 1)]]
    for at, letter in enumerate(first, 1):
        row, above = [float(at)], rows[at - 1]
        for to, other in enumerate(second, 1):
            distance = min(above[to] + 1, row[to - 1] + 1, above[to - 1] + (letter != other))
            if at > 1 and to > 1 and letter == second[to - 2] and first[at - 2] == other:
                distance = min(distance, rows[at - 2][to - 2] + SWAP_DISTANCE)
            row.append(distance)
        rows.append(row)
    return rows
