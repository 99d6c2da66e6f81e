"""Finds secrets in text: key formats, and values given to secret names; masked for assistants, flagged for people.

Own patterns, few and strict. The point is to keep keys that ended up in a
transcript from travelling on; it is no proof that a text holds none.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PEM = r"(?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
# Formats that say what they are; none starts within a longer word.
_FORMATS: tuple[tuple[str, str], ...] = (
    ("private key", rf"-----BEGIN {_PEM}[\w+/=\s\\:,.()-]{{40,8000}}?-----END {_PEM}"),
    # Cut off before its end.
    ("private key", rf"-----BEGIN {_PEM}(?:(?:\s|\\[nr]){{0,4}}[A-Za-z0-9+/=]{{40,80}}){{1,200}}"),
    ("AWS access key", r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    ("GitHub token", r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b"),
    ("GitHub token", r"\bgithub_pat_\w{60,255}\b"),
    ("GitLab token", r"\bgl(?:pat|dt|rt|ptt|ft|soat)-[\w-]{20,255}"),
    ("Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    ("Slack webhook", r"https://hooks\.slack\.com/services/T\w{6,20}/B\w{6,20}/\w{16,40}"),
    ("Anthropic key", r"\bsk-ant-[\w-]{20,255}"),
    ("OpenAI key", r"\bsk-(?:proj-|svcacct-|admin-)?(?=[a-z_-]{0,255}[A-Z0-9])[\w-]{32,255}"),
    ("Stripe key", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,255}"),
    ("Google key", r"\bAIza[\w-]{35}(?![\w-])"),
    ("npm token", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("PyPI token", r"\bpypi-AgE[\w-]{50,1000}"),
    ("Hugging Face token", r"\bhf_[A-Za-z]{30,255}\b"),
    ("SendGrid key", r"\bSG\.[\w-]{16,32}\.[\w-]{32,64}"),
    ("JSON web token", r"\beyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,2000}"),
)
_FORMAT = re.compile("|".join(f"(?P<f{n}>{pattern})" for n, (_, pattern) in enumerate(_FORMATS)))
# What they begin with: looking for these alone is fifteen times as fast.
_MARKERS = re.compile(
    r"-----BEGIN |AKIA|ASIA|gh[pousr]_|github_pat_|gl[a-z]{2,4}-|xox|https://hooks\.slack|[rs]k[-_]|AIza"
    r"|npm_|pypi-|hf_|SG\.|eyJ"
)
# scheme://user:password@host
_URL = re.compile(
    r"(?P<head>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,100}:)(?P<value>[^\s/@\"'<>]{3,200})(?=@)"
)
_BEARER = re.compile(
    r"(?P<head>\bauthorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:bearer|basic|token)\s{1,4})"
    r"(?P<value>[\w.~+/=-]{8,2000})",
    re.IGNORECASE,
)
# API_KEY = "…", "clientSecret": "…", password: …
_ASSIGNED = re.compile(
    r"(?P<head>(?:passwor[dt]|passwd|passphrase|secret|token|credentials?"
    r"|(?:api|access|private|auth|account|signing|encryption)[_.-]?key)"
    r"(?:[_.-]?(?:key|id|value|access[_.-]?key))?"
    r"[\"']?\s{0,4}(?::=|=>|:(?!:)|=(?!=))\s{0,4}[\"'`]?)"
    r"(?P<value>(?:[^\s\"'`,;<>{}()\[\]:]|:(?=\w)){8,500})",
    re.IGNORECASE,
)
# What `_ASSIGNED` can begin with, looked for in small letters: ten times as fast.
_NAMES = re.compile(
    r"passw|passphrase|secret|token|credential|(?:api|access|private|auth|account|signing|encryption)[_.-]?key"
)
ENTROPY_LEAST = 2.5
"""Bits a character that a value given to a secret name has, unless it is a word."""


def mask(text: str) -> str:
    """The text with each secret replaced by `[masked: what it is]`."""
    text = _without_keys(text)
    text = _BEARER.sub(_replaced("credentials"), text)
    text = _URL.sub(_replaced("password"), text)
    return _ASSIGNED.sub(_assigned, text)


def secrets_in(text: str) -> list[tuple[int, str]]:
    """Where each secret begins, in characters, and what it is, in order; none is repeated here."""
    found = dict(_found(text))
    return sorted(found.items())


def _found(text: str) -> Iterator[tuple[int, str]]:
    end = 0
    for marker in _MARKERS.finditer(text):
        match = _FORMAT.match(text, marker.start()) if marker.start() >= end else None
        if match is not None:
            end = match.end()
            yield match.start(), _FORMATS[int((match.lastgroup or "f0")[1:])][0]
    for pattern, what in ((_BEARER, "credentials"), (_URL, "password")):
        yield from ((match.start("value"), what) for match in pattern.finditer(text))
    for match in _assignments(text):
        value = match["value"]
        if looks_random(value) and not _FORMAT.match(value):
            yield match.start("value"), "secret"


def _assignments(text: str) -> Iterator[re.Match[str]]:
    small = text.lower()
    if len(small) != len(text):  # a letter that is two in small
        yield from _ASSIGNED.finditer(text)
        return
    end = 0
    for name in _NAMES.finditer(small):
        match = _ASSIGNED.match(text, name.start()) if name.start() >= end else None
        if match is not None:
            end = match.end()
            yield match


def remark_on(text: str) -> str | None:
    """What a reader is told of the secrets in a text: kinds and lines; None where there are none."""
    found = secrets_in(text)
    if not found:
        return None
    kinds = ", ".join(dict.fromkeys(what for _, what in found))
    lines = dict.fromkeys(text.count("\n", 0, at) + 1 for at, _ in found[:5])
    more = ", …" if len(found) > 5 else ""
    return f"looks like a secret: {kinds} (line {', '.join(map(str, lines))}{more})"


def _without_keys(text: str) -> str:
    parts, at = [], 0
    for marker in _MARKERS.finditer(text):
        match = _FORMAT.match(text, marker.start()) if marker.start() >= at else None
        if match is not None:
            what = _FORMATS[int((match.lastgroup or "f0")[1:])][0]
            parts += [text[at : match.start()], f"[masked: {what}]"]
            at = match.end()
    return "".join([*parts, text[at:]]) if parts else text


def _replaced(what: str) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{match['head']}[masked: {what}]"


def _assigned(match: re.Match[str]) -> str:
    return f"{match['head']}[masked: secret]" if looks_random(match["value"]) else match[0]


def looks_random(value: str) -> bool:
    """Whether a value is more like a key than like a word, a name, a path or a placeholder."""
    # References and negations of code.
    value = value.lstrip("&*!")
    if value.startswith(("$", "%", "/", "./", "~", "http", "env.", "os.", "process.")):
        return False
    kinds = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]", r"[^\w]"))
    if kinds < 2 or not re.search(r"[0-9]|[^\w.-]", value):
        return False
    counts = Counter(value).values()
    bits = -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
    return bits >= min(ENTROPY_LEAST, math.log2(len(value)) * 0.8)
