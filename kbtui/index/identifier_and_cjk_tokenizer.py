"""Extracts words from identifiers, paths, version numbers, and languages written without spaces.

tantivy's tokenizer splits text into runs of letters and digits: `camelCase` is one word,
`read_subject` is two, `C++` is `c`, and a Chinese sentence is one long word. This module extracts
words by other rules. The words are indexed in the field `code`, and queries of this field are split
by the same rules.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENIZER_VERSION = 3
"""The version of the rules that split texts into words.

Increase it when the rules change, so that the index is rebuilt.
"""

# The alternatives: joined words (a/b.py, a-b, a::b, 2.8.3); C++ and C#; camel case or underscores
# (aB, ABc, a_b). Each alternative starts at the start of a word and never backtracks, so that the time
# for a very long word is linear.
_COMPOUND = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"[A-Za-z0-9_]++(?:(?:/\.|[.\-/]|::)[A-Za-z0-9_]++)++"
    r"|[A-Za-z]{1,2}(?:\+\+|#)"
    r"|(?=[A-Za-z0-9]*+_|[a-z0-9]+[A-Z]|[A-Z][a-z0-9]+[A-Z]|[A-Z]{2,}[a-z])[A-Za-z0-9_]++"
    r")"
)
# Each compound contains one of these.
_SIGNS_OF_COMPOUND = (
    rb"[A-Za-z0-9_](?:/\.|[.\-/]|::)[A-Za-z0-9_]|[A-Za-z](?:\+\+|#)|_|[a-z0-9][A-Z]|[A-Z][A-Z][a-z]"
)
_PUNCTUATION = ".,;:!?)"
_PATH_SEPARATOR = re.compile(r"/\.?|::|\.")
_COMPOUND_SEPARATOR = re.compile(r"[.\-/_:]+")
_CAMEL_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_VERSION = re.compile(r"[vV]?(\d+(?:\.\d+)+)")
MAX_COMPOUND_LENGTH = 200
"""The maximum length of a compound word, such as a path, that is indexed in the field `code`."""
MAX_PATH_ENDS = 5
"""At most this many suffixes of a path or dotted name are indexed.

The suffixes of `a/b/c.py` are `c.py` and `b/c.py`.
"""


# Compiled on first use, because English texts do not need it.
_UNSPACED_SCRIPT = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002ffff]+"
)


class CodeFieldWordForms(NamedTuple):
    """The forms in which a word of a query can occur in the field `code`.

    `wholes` are forms of the whole word, `parts` are the parts of a camelCase word, and `pairs` are
    pairs of adjacent characters of a script without spaces.
    """

    wholes: list[str]
    parts: list[str]
    pairs: list[str]


def normalize_unicode(text: str) -> str:
    """Normalize text for indexing and queries: Unicode form NFKC, without lone surrogates."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text.encode("utf-8", "replace").decode("utf-8"))


def may_have_code_words(text: str) -> bool:
    """Return whether a text may contain words for `extract_code_words`.

    The check is faster than the extraction, and many texts contain no such words.
    """
    return not text.isascii() or _compile_code_word_signs_pattern().Match(text) is not None


@cache
def _compile_code_word_signs_pattern() -> Any:
    import re2  # imported here because a search does not need it

    # Unlike a set, a compiled pattern also makes a match object, which takes half as long again.
    patterns = re2.Set.SearchSet()
    patterns.Add(_SIGNS_OF_COMPOUND)
    patterns.Compile()
    return patterns


def extract_code_words(text: str) -> Iterator[str]:
    """Yield the words of a text for the field `code`: compounds, camelCase parts, pairs of CJK characters."""
    # Most words of a text are plain. In code, skipping them is faster than matching them.
    odd = " ".join(
        [
            word
            for word in text.split()
            if not (word.isalpha() or (word[-1] in _PUNCTUATION and word[:-1].isalpha()))
            or not (word.islower() or word.istitle())
        ]
    )
    for whole in _COMPOUND.findall(odd):
        if len(whole) <= MAX_COMPOUND_LENGTH:
            yield from _list_forms_and_camel_case_parts_of_compound(whole)
    if not text.isascii():
        yield from extract_cjk_character_pairs(text)


@lru_cache(maxsize=4096)
def _list_forms_and_camel_case_parts_of_compound(whole: str) -> list[str]:
    """Return the words of a compound: its forms and its camelCase parts."""
    return [*_iterate_compound_word_forms(whole), *split_camel_case(whole)]


def get_code_word_forms(word: str) -> CodeFieldWordForms:
    """Return the forms in which a word of a query can occur in the field `code`."""
    wholes: list[str] = []
    parts: list[str] = []
    for match in _COMPOUND.finditer(word[: MAX_COMPOUND_LENGTH * 2]):
        whole = match[0].lower()
        # Search only for the whole path, because its suffixes would find other paths.
        wholes += [whole, _remove_underscores_and_hyphens(whole)]
        if version := _VERSION.fullmatch(whole):
            wholes.append(version[1])
        parts += split_camel_case(match[0])
    pairs = [] if word.isascii() else list(extract_cjk_character_pairs(word))
    return CodeFieldWordForms(*(list(dict.fromkeys(forms)) for forms in (wholes, parts, pairs)))


def _iterate_compound_word_forms(whole: str) -> Iterator[str]:
    """Yield the forms by which a compound can be found.

    For a version such as `1.2.3`, these are the version and its first numbers, such as `1.2`. For
    any other compound, these are the compound itself and, if it is a path, its suffixes, each with
    and without `_` and `-`.
    """
    lower = whole.lower()
    if match := _VERSION.fullmatch(lower):
        numbers = match[1].split(".")
        yield lower
        for count in range(2, len(numbers) + (lower[0] == "v")):
            yield ".".join(numbers[:count])
        return
    ends = [lower[step.end() :] for step in _PATH_SEPARATOR.finditer(lower)][-MAX_PATH_ENDS:]
    for form in (lower, *filter(_COMPOUND_SEPARATOR.search, ends)):
        yield form
        if (joined := _remove_underscores_and_hyphens(form)) != form:
            yield joined


def _remove_underscores_and_hyphens(word: str) -> str:
    """Return a word without `_` and `-`, so that `read_subject` and `read-subject` become equal."""
    return word.replace("_", "").replace("-", "") or word


def split_camel_case(word: str) -> list[str]:
    """Split the camelCase words in `word`, and return their parts in lower case; [] if there are none."""
    if word.islower() or word.isupper():
        return []
    found: list[str] = []
    for piece in _COMPOUND_SEPARATOR.split(word):
        parts = _CAMEL_PART.findall(piece)
        if len(parts) > 1 and not piece.islower():
            found += [part.lower() for part in parts if len(part) > 1]
    return found


def extract_cjk_character_pairs(text: str) -> Iterator[str]:
    """Yield each pair of adjacent characters of a script without spaces, such as Chinese.

    A character without such a neighbour is yielded alone.
    """
    for match in re.finditer(_UNSPACED_SCRIPT, text):
        run = match[0]
        if len(run) == 1:
            yield run
        for at in range(len(run) - 1):
            yield run[at : at + 2]


def has_unspaced_script(text: str) -> bool:
    """Return whether a text contains characters of a script without spaces, such as Chinese or Thai."""
    return not text.isascii() and re.search(_UNSPACED_SCRIPT, text) is not None
