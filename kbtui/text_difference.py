"""Compares two versions of a text: by line, by paragraph and by word."""

from __future__ import annotations

import re
from collections import Counter

from kbtui.light_named_tuple import NamedTuple

TextRange = tuple[int, int]
"""A range of characters in a text: the start, counted from 0, and the end (exclusive)."""

SIMILAR_WORDS_SHARE = 0.4
"""Two paragraphs are versions of one paragraph if at least this share of their words is equal."""

_WORDS_MAX = 1500
"""If texts have at most this many words, difflib compares all words.

In longer texts, difflib may ignore very frequent words, to save time.
"""
_PAIRS_MAX = 10_000
"""`_pair_similar_paragraphs` compares at most this many pairs of paragraphs."""
_WORD = re.compile(r"\w+|[^\w\s]")
_PARAGRAPH_BREAK = re.compile(r"\n(?:[^\S\n]*\n)+")


class ChangedWords(NamedTuple):
    """The ranges of the words that differ between two texts, and the fraction of equal words.

    `old` and `new` are ranges of characters in the old and in the new text, in order. Neighbouring
    changed words form one range. `similarity` is 1 if all words are equal, and 0 if none are equal.
    """

    old: list[TextRange]
    new: list[TextRange]
    similarity: float


class ComparedParagraph(NamedTuple):
    """A paragraph in its old and its new version.

    * `old` is None for a paragraph that was added, and `new` is None for one that was removed.
    * `old_ranges` and `new_ranges` are the ranges of the words that differ in a changed paragraph;
      otherwise, both are empty.
    """

    old: str | None
    new: str | None
    old_ranges: list[TextRange]
    new_ranges: list[TextRange]

    @property
    def is_changed(self) -> bool:
        """Whether the paragraph was changed, added or removed."""
        return self.old != self.new


def find_changed_words(old: str, new: str) -> ChangedWords:
    """Return the words that differ between two texts. White space is not compared."""
    old_words, new_words = list(_WORD.finditer(old)), list(_WORD.finditer(new))
    total = len(old_words) + len(new_words)
    if not total:
        return ChangedWords([], [], 1.0)
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(
        None,
        [word[0] for word in old_words],
        [word[0] for word in new_words],
        autojunk=max(len(old_words), len(new_words)) > _WORDS_MAX,
    )
    old_ranges: list[TextRange] = []
    new_ranges: list[TextRange] = []
    equal = 0
    for kind, first, end, new_first, new_end in matcher.get_opcodes():
        if kind == "equal":
            equal += end - first
            continue
        if first < end:
            old_ranges.append((old_words[first].start(), old_words[end - 1].end()))
        if new_first < new_end:
            new_ranges.append((new_words[new_first].start(), new_words[new_end - 1].end()))
    return ChangedWords(old_ranges, new_ranges, 2 * equal / total)


def compare_paragraphs(old: str, new: str) -> list[ComparedParagraph]:
    """Return the paragraphs of both texts in order, and pair changed ones with their old versions.

    Paragraphs are separated by empty lines. A different number of empty lines is not a change.
    """
    before, after = _split_paragraphs(old), _split_paragraphs(new)
    first, end, new_end = _find_differing_part_of_lists(before, after)
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, before[first:end], after[first:new_end])
    compared = _zip_equal_paragraphs(before[:first], after[:first])
    for kind, at, until, new_at, new_until in matcher.get_opcodes():
        removed = before[first + at : first + until]
        added = after[first + new_at : first + new_until]
        if kind == "equal":
            compared += _zip_equal_paragraphs(removed, added)
        else:
            compared += _pair_similar_paragraphs(removed, added)
    return compared + _zip_equal_paragraphs(before[end:], after[new_end:])


def format_unified_difference(old: str, new: str, old_name: str, new_name: str) -> str:
    """Return the difference between two texts in the format of `diff -u`; "" if they are equal.

    A missing newline at the end of a text is not a difference.
    """
    if old.removesuffix("\n") == new.removesuffix("\n"):
        return ""
    from difflib import unified_diff

    lines = unified_diff(_split_lines(old), _split_lines(new), old_name, new_name, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _split_lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _split_paragraphs(text: str) -> list[str]:
    return [part.strip("\n") for part in _PARAGRAPH_BREAK.split(text) if part.strip()]


def _find_differing_part_of_lists(old: list[str], new: list[str]) -> tuple[int, int, int]:
    """Return where two lists begin to differ, and where the difference ends in each list.

    Returns the index of the first difference, then the index after the last difference in `old` and
    in `new`.
    """
    first, end, new_end = 0, len(old), len(new)
    while first < min(end, new_end) and old[first] == new[first]:
        first += 1
    while first < min(end, new_end) and old[end - 1] == new[new_end - 1]:
        end, new_end = end - 1, new_end - 1
    return first, end, new_end


def _zip_equal_paragraphs(old: list[str], new: list[str]) -> list[ComparedParagraph]:
    return [ComparedParagraph(*pair, [], []) for pair in zip(old, new, strict=True)]


def _pair_similar_paragraphs(old: list[str], new: list[str]) -> list[ComparedParagraph]:
    """Pair old paragraphs with similar new ones. The result keeps the order of both texts.

    An old paragraph without a partner counts as removed, and a new one as added.
    """
    compared: list[ComparedParagraph] = []
    at = new_at = 0
    for pair in [*_pair_paragraphs_for_largest_total_similarity(old, new), (len(old), len(new))]:
        compared += [ComparedParagraph(text, None, [], []) for text in old[at : pair[0]]]
        compared += [ComparedParagraph(None, text, [], []) for text in new[new_at : pair[1]]]
        if pair[0] < len(old) and pair[1] < len(new):
            text, new_text = old[pair[0]], new[pair[1]]
            words = find_changed_words(text, new_text)
            compared.append(ComparedParagraph(text, new_text, words.old, words.new))
        at, new_at = pair[0] + 1, pair[1] + 1
    return compared


def _pair_paragraphs_for_largest_total_similarity(
    old: list[str], new: list[str]
) -> list[tuple[int, int]]:
    """Pair old with new paragraphs so that the sum of their similarities is as large as possible.

    Each pair has a position in `old` and one in `new`. Both positions increase from pair to pair.
    """
    if not old or not new or len(old) * len(new) > _PAIRS_MAX:
        return []
    before = [Counter(_WORD.findall(text)) for text in old]
    after = [Counter(_WORD.findall(text)) for text in new]
    sizes = [words.total() for words in before], [words.total() for words in after]
    # `best[i][j]` is the largest sum for the old paragraphs from `i` on and the new ones from `j` on.
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    shares = [[0.0] * len(new) for _ in old]
    for i in reversed(range(len(old))):
        for j in reversed(range(len(new))):
            total = sizes[0][i] + sizes[1][j]
            share = 2 * (before[i] & after[j]).total() / total if total else 0.0
            if share >= SIMILAR_WORDS_SHARE:
                shares[i][j] = share
            best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + shares[i][j])
    pairs = []
    i = j = 0
    while i < len(old) and j < len(new):
        if shares[i][j] and best[i][j] == best[i + 1][j + 1] + shares[i][j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs
