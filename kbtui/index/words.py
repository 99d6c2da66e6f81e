"""The words that programmers use: identifiers, paths, versions, and scripts without spaces.

tantivy's tokenizer keeps runs of letters and digits: `camelCase` is one word,
`C++` is `c`, a Chinese sentence is one long word. This module makes the words
of a second field, `code`, from a text and, by the same rules, from a query.
"""

import re
from collections.abc import Iterator

VERSION = 2
"""Part of the generation's fingerprint: change it when the same text gives other words."""

# Something with a joint inside: a_b, a-b, a.b, a/b, a::b, aB, a1, or C++ / C#.
_COMPOUND = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*(?:(?:[.\-/]|::)[A-Za-z0-9_]+)+"
    r"|[A-Za-z0-9]*[a-z0-9][A-Z][A-Za-z0-9]*"
    r"|[A-Za-z0-9]*_[A-Za-z0-9_]*[A-Za-z0-9]"
    r"|\b[A-Za-z](?:\+\+|#)"
    r"|\bv?\d+(?:\.\d+)+[A-Za-z0-9.\-]*"
    r"|\b[A-Za-z]+[-]?\d+[A-Za-z0-9]*\b"
)
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_JOINTS = re.compile(r"[.\-/_:]+")
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002ffff]+"
)


def code_words(text: str) -> Iterator[str]:
    """The words of the `code` field: each compound whole, then its parts; pairs of CJK characters."""
    for match in _COMPOUND.finditer(text):
        whole = match[0].rstrip(".-/")
        yield whole.lower()
        if any(joint in whole for joint in "./:-"):
            for part in _JOINTS.split(whole):
                if part and part != whole:
                    yield part.lower()
        for part in camel_parts(whole):
            yield part
    if not text.isascii():
        yield from cjk_pairs(text)


def camel_parts(word: str) -> list[str]:
    """The lower-case parts of a camelCase word; [] where there is but one."""
    parts = [
        part.lower()
        for piece in _JOINTS.split(word)
        for part in _split_camel(piece)
        if len(part) > 1
    ]
    return parts


def _split_camel(piece: str) -> list[str]:
    parts = _PARTS.findall(piece)
    return parts if len(parts) > 1 else []


def cjk_pairs(text: str) -> Iterator[str]:
    """Overlapping pairs of characters of scripts written without spaces; a lone one as it is."""
    for match in _UNSPACED.finditer(text):
        run = match[0]
        if len(run) == 1:
            yield run
        for at in range(len(run) - 1):
            yield run[at : at + 2]
