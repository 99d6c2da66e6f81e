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
    (
        "private key",
        rf"-----BEGIN {_PEM}(?:(?:\s|\\{{1,8}}[nr]){{0,4}}[A-Za-z0-9+/=]{{40,80}}){{1,200}}",
    ),
    ("AWS access key", r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    ("GitHub token", r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b"),
    ("GitHub token", r"\bgithub_pat_\w{60,255}\b"),
    ("GitLab token", r"\bgl(?:pat|dt|rt|ptt|ft|soat)-[\w-]{20,255}(?:\.\w{2}\.\w{7,20})?"),
    ("Slack token", r"\b(?:xoxe\.)?xox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    ("Slack token", r"\bxapp-\d-[A-Za-z0-9-]{10,255}"),
    ("Slack webhook", r"https://hooks\.slack\.com/services/T\w{6,20}/B\w{6,20}/\w{16,40}"),
    ("Anthropic key", r"\bsk-ant-[\w-]{20,255}"),
    ("OpenAI key", r"\bsk-(?:proj-|svcacct-|admin-)?(?=[a-z_-]{0,255}[A-Z0-9])[\w-]{32,255}"),
    ("Stripe key", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,255}"),
    ("Google key", r"\bAIza[\w-]{35}(?![\w-])"),
    ("npm token", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("PyPI token", r"\bpypi-AgE[\w-]{50,1000}"),
    ("Hugging Face token", r"\bhf_[A-Za-z]{30,255}\b"),
    ("SendGrid key", r"\bSG\.[\w-]{16,32}\.[\w-]{32,64}"),
    ("Google token", r"\bya29\.[\w-]{20,2000}"),
    ("Google client secret", r"\bGOCSPX-[\w-]{20,64}"),
    ("Stripe signing secret", r"\bwhsec_[A-Za-z0-9+/=]{24,255}"),
    ("Groq key", r"\bgsk_[A-Za-z0-9]{40,255}\b"),
    ("xAI key", r"\bxai-[A-Za-z0-9]{40,255}\b"),
    ("Perplexity key", r"\bpplx-[A-Za-z0-9]{40,255}\b"),
    ("Replicate token", r"\br8_[A-Za-z0-9]{37}\b"),
    ("Docker token", r"\bdckr_[op]at_[\w-]{24,64}"),
    ("DigitalOcean token", r"\bdo[opr]_v1_[a-f0-9]{64}\b"),
    ("Databricks token", r"\bdapi[a-f0-9]{32}(?:-\d)?\b"),
    ("Shopify token", r"\bshp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}\b"),
    ("Vault token", r"\bhv[bsr]\.[\w-]{24,500}"),
    ("Grafana token", r"\bgl(?:sa|c)_[\w+/=-]{32,500}"),
    ("Linear key", r"\blin_(?:api|oauth)_[A-Za-z0-9]{32,64}\b"),
    ("Notion token", r"\bntn_[A-Za-z0-9]{40,64}\b"),
    ("Figma token", r"\bfig[dor]_[\w-]{40,64}"),
    ("Postman key", r"\bPMAK-[a-f0-9]{24}-[a-f0-9]{34}\b"),
    ("New Relic key", r"\bNRAK-[A-Z0-9]{27}\b"),
    ("Sentry token", r"\bsntry[su]_[\w+/=-]{40,500}"),
    ("Supabase token", r"\bsb(?:p|_secret)_[\w-]{30,255}"),
    ("Atlassian token", r"\bATATT3[\w=-]{60,500}"),
    ("RubyGems key", r"\brubygems_[a-f0-9]{48}\b"),
    ("Square token", r"\bsq0(?:atp|csp)-[\w-]{22,64}"),
    ("Twilio key", r"\bSK[a-f0-9]{32}\b"),
    ("Mailgun key", r"\bkey-[a-f0-9]{32}\b"),
    ("age key", r"\bAGE-SECRET-KEY-1[A-Z0-9]{58}\b"),
    ("JSON web token", r"\beyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,2000}"),
)
_PEM_LINE = re.compile(r"[A-Za-z0-9+/=]{16,80}")
_PEM_BREAK = re.compile(r"((?:\s|\\{1,8}[nr])+)")
_PEM_END = re.compile(rf"[\w+/=\s\\]*?-----END {_PEM}")
_PEM_MOST = 16_000
_FORMAT = re.compile("|".join(f"(?P<f{n}>{pattern})" for n, (_, pattern) in enumerate(_FORMATS)))
# What they begin with: looking for these alone is fifteen times as fast.
_MARKERS = (
    *(
        "-----BEGIN ",
        "-----END ",
        "AKIA",
        "ASIA",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
    ),
    *("glpat-", "gldt-", "glrt-", "glptt-", "glft-", "glsoat-", "xoxe.xox", "xox", "xapp-"),
    *("https://hooks.slack", "sk-", "sk_", "rk_", "AIza", "npm_", "pypi-", "hf_", "SG.", "eyJ"),
    *("ya29.", "GOCSPX-", "whsec_", "gsk_", "xai-", "pplx-", "r8_", "dckr_", "dop_v1_", "doo_v1_"),
    *("dor_v1_", "dapi", "shpat_", "shpca_", "shppa_", "shpss_", "hvs.", "hvb.", "hvr.", "glsa_"),
    *("glc_", "lin_", "ntn_", "figd_", "figo_", "figr_", "PMAK-", "NRAK-", "sntrys_", "sntryu_"),
    *("sbp_", "sb_secret_", "ATATT3", "rubygems_", "sq0", "SK", "key-", "AGE-SECRET-KEY-"),
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
# Also within JSON in a string, and as entities of XML.
_QUOTE = r"(?:\\{0,7}[\"'`]|&(?:quot|apos|#3[49]);)?"
# API_KEY = "…", \"clientSecret\": \"…\", password: …, <token>…, --token …, the password is …
_ASSIGNED = re.compile(
    r"(?P<head>(?:pass(?:wor[dt]|wd|phrase|code)|(?<![a-z])(?:pass|pwd)|secret|token|credentials?|authorization"
    r"|cookie|\bbearer(?=[ \t])|(?<=[?&;])(?:sig|signature|key)(?==)|(?<=_)auth"
    r"|(?:api|access|private|auth|account|signing|encryption)[_. -]?key)"
    r"(?:[_.-]?(?:key|id|value|base|access[_.-]?key)){0,2}"
    rf"{_QUOTE}(?:\s{{0,4}}(?::=|=>|:(?!:)|=(?!=))\s{{0,4}}|>|&gt;|(?P<blank>[ \t]{{1,4}}(?:is[ \t]{{1,4}})?)){_QUOTE})"
    r"(?P<value>(?:[^\s\"'`,;<>{}()\[\]:\\&]|:(?=\w)|&(?!\w{1,30}[=;]|#\d)|\\(?![\s\"'`\\nrt])){8,500})",
    re.IGNORECASE,
)
# curl -u user:password
_USER = re.compile(
    r"(?P<head>\s(?:-u|--user)[ =][\"']?[^\s:\"'/]{1,100}:)(?P<value>[^\s\"'`<>\\]{8,200})"
)
# What `_ASSIGNED` can begin with, looked for in small letters: ten times as fast.
_NAMES = re.compile(
    r"pass|pwd|secret|token|credential|authorization|cookie|bearer|(?<=_)auth"
    r"|(?<=[?&;])(?:sig|signature|key)=|(?:api|access|private|account|signing|encryption)[_. -]?key"
)
ENTROPY_LEAST = 2.5
"""Bits a character that a value given to a secret name has, unless it is a word."""


def mask(text: str) -> str:
    """The text with each secret replaced by `[masked: what it is]`."""
    text = _without_keys(text)
    text = _BEARER.sub(_replaced("credentials"), text)
    text = _URL.sub(_replaced("password"), text)
    if "curl" in text:
        text = _USER.sub(_replaced("password"), text)
    return _without_assigned(text)


def secrets_in(text: str) -> list[tuple[int, str]]:
    """Where each secret begins, in characters, and what it is, in order; none is repeated here."""
    found = dict(_found(text))
    return sorted(found.items())


def _found(text: str) -> Iterator[tuple[int, str]]:
    for match in _keys(text):
        yield match.start(), _FORMATS[int((match.lastgroup or "f0")[1:])][0]
    patterns = [(_BEARER, "credentials"), (_URL, "password")]
    if "curl" in text:
        patterns.append((_USER, "password"))
    for pattern, what in patterns:
        yield from ((match.start("value"), what) for match in pattern.finditer(text))
    for match in _assignments(text):
        value = match["value"]
        if _is_secret(match) and not _FORMAT.match(value):
            yield match.start("value"), "secret"


def _keys(text: str) -> Iterator[re.Match[str]]:
    """What is of a format that says what it is."""
    there = [re.escape(marker) for marker in _MARKERS if marker in text]
    end = looked = 0
    for marker in re.finditer("|".join(there), text) if there else ():
        at = marker.start()
        if at < end:
            continue
        if marker[0] == "-----END ":
            match = _end_of_key(text, max(end, looked, at - _PEM_MOST), at)
            looked = at
        else:
            match = _FORMAT.match(text, at)
        if match is not None:
            end = match.end()
            yield match


def _end_of_key(text: str, low: int, at: int) -> re.Match[str] | None:
    """The end of a private key whose beginning was cut off, from `low` on."""
    parts = _PEM_BREAK.split(text[low:at])
    start = at
    # A line and what ends it, from the last one upwards.
    while len(parts) >= 3 and not parts[-1] and _PEM_LINE.fullmatch(parts[-3]):
        start -= len(parts[-3]) + len(parts[-2])
        parts[-3:] = [""]
    return _PEM_END.match(text, start) if start < at else None


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
    for match in _keys(text):
        what = _FORMATS[int((match.lastgroup or "f0")[1:])][0]
        parts += [text[at : match.start()], f"[masked: {what}]"]
        at = match.end()
    return "".join([*parts, text[at:]]) if parts else text


def _replaced(what: str) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{match['head']}[masked: {what}]"


def _without_assigned(text: str) -> str:
    parts, at = [], 0
    for match in _assignments(text):
        if _is_secret(match):
            parts += [text[at : match.start("value")], "[masked: secret]"]
            at = match.end()
    return "".join([*parts, text[at:]]) if parts else text


def _is_secret(match: re.Match[str]) -> bool:
    """Whether what is assigned is one; after a blank alone, only what could be no word."""
    value = match["value"]
    if match["blank"] and not (
        len(value) >= 12 and all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    ):
        return False
    return looks_random(value)


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
