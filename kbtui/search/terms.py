"""A query's words as the index has them: stems, weights, code forms, corrections, completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kbtui.index.lexical import analyzer, languages, other_fields
from kbtui.index.words import Forms, forms, plain
from kbtui.search.function_words import function_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtui.search.query import Query

FUNCTION_WORD_WEIGHT = 0.3
CORRECTED_LETTERS = 6
"""A word of so many letters that is nowhere is looked for with one letter changed."""
CORRECTIONS = 3
PREFIX_TERMS = 32
ENDING_LETTERS = 5
"""A word being typed may be so much longer than its stem."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Token(NamedTuple):
    """A run of letters and digits in a word of a query.

    `stem` is what stands in the index for it, `others` the same in the fields of
    further languages, `corrected` the stems that it may have been meant as.
    """

    plain: str
    stem: str
    others: tuple[tuple[str, str], ...]
    weight: float
    corrected: tuple[str, ...] = ()


class Word(NamedTuple):
    """A word of a query: its tokens, its forms as code, and what it may become when typed on."""

    text: str
    tokens: tuple[Token, ...]
    forms: Forms
    begun: tuple[str, ...] = ()
    begun_code: tuple[str, ...] = ()


class Language:
    """The analyzers of a `language` setting."""

    def __init__(self, setting: str) -> None:
        names = languages(setting)
        self._plain = analyzer("")
        self._first = analyzer(names[0]) if names else self._plain
        self._others = {field: analyzer(name) for field, name in other_fields(setting).items()}
        self._function_words = function_words(names or ["english"])

    def stems(self, text: str) -> list[str]:
        """The stems of a text, in order."""
        return list(self._first.analyze(plain(text)))

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Stem, first and last character offset of each token."""
        tokens = self._first.pre_tokenize(text).tokens
        return [(token.text, token.char_offset_from, token.char_offset_to) for token in tokens]

    def token(self, text: str) -> Token | None:
        """One token from one run of letters."""
        stems = self._first.analyze(text)
        if not stems:
            return None
        others = tuple(
            (field, found[0])
            for field, other in self._others.items()
            if (found := other.analyze(text))
        )
        weight = FUNCTION_WORD_WEIGHT if text in self._function_words else 1.0
        return Token(text, stems[0], others, weight)

    def tokens(self, word: str) -> list[Token]:
        """The tokens of a word, each once; `don't` is two."""
        runs = dict.fromkeys(self._plain.analyze(word))
        return [token for run in runs if (token := self.token(run))]


def read_words(
    query: Query, searcher: Any, language: Language, *, partial: bool = False
) -> list[Word]:
    """The words of a query against one index: what is nowhere in it is corrected.

    With `partial` the last word of an open query is completed instead.
    """
    found = []
    last = len(query.words) - 1
    for position, text in enumerate(query.words):
        word = plain(text)
        tokens = language.tokens(word)
        begun: list[str] = []
        begun_code: list[str] = []
        if partial and query.open and position == last and len(word) > 1:
            begun, begun_code = _begun(word, tokens, searcher)
        if not begun and not begun_code:
            tokens = [_corrected(token, searcher, language) for token in tokens]
        found.append(Word(text, tuple(tokens), forms(word), tuple(begun), tuple(begun_code)))
    return found


def _begun(word: str, tokens: Sequence[Token], searcher: Any) -> tuple[list[str], list[str]]:
    """What the word may become: terms that begin like its last run of letters, or like all of it."""
    begun: list[str] = []
    if tokens and tokens[-1].weight == 1.0:
        run = tokens[-1].plain
        begun = _terms(searcher, "body", run)
        # `configurati` has outgrown the stem `configur`.
        for cut in range(1, ENDING_LETTERS + 1):
            if len(run) - cut >= 4 and searcher.doc_freq("body", run[:-cut]):
                begun.append(run[:-cut])
                break
    code = word.lower()
    begun_code = _terms(searcher, "code", code) if len(code) > 2 and not code.isalpha() else []
    return begun, begun_code


def _terms(searcher: Any, field: str, prefix: str) -> list[str]:
    return [term for term, _ in searcher.terms_with_prefix(field, prefix, limit=PREFIX_TERMS)]


def begun_with(searcher: Any, character: str) -> list[str]:
    """The pairs of characters that begin with one of a script without spaces."""
    return _terms(searcher, "code", character)


def _corrected(token: Token, searcher: Any, language: Language) -> Token:
    word = token.plain
    if len(word) < CORRECTED_LETTERS or not (word.isascii() and word.isalpha()):
        return token
    places = [("body", token.stem), ("title", token.stem), ("code", word), *token.others]
    if any(searcher.doc_freq(field, term) for field, term in places):
        return token
    stems = dict.fromkeys(language.stems(" ".join(_one_off(word))))
    counts = {stem: searcher.doc_freq("body", stem) for stem in stems if len(stem) > 2}
    best = sorted((stem for stem in counts if counts[stem]), key=lambda stem: -counts[stem])
    return token._replace(corrected=tuple(best[:CORRECTIONS]))


def _one_off(word: str) -> list[str]:
    """Every word that is one letter dropped, swapped with the next, changed or added away."""
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    dropped = [head + tail[1:] for head, tail in cuts if tail]
    swapped = [head + tail[1] + tail[0] + tail[2:] for head, tail in cuts if len(tail) > 1]
    changed = [head + letter + tail[1:] for head, tail in cuts if tail for letter in _LETTERS]
    added = [head + letter + tail for head, tail in cuts for letter in _LETTERS]
    return [*dropped, *swapped, *changed, *added]
