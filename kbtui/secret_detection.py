"""Finds secrets in text, to mask them or to warn of them.

Secrets are keys in known formats and values with names such as `password`. The patterns are few and
strict. They keep most keys in transcripts from being passed on; they do not prove that a text has
no secrets.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ENCODED_KEY = "private key in base64"
_PEM = r"(?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
# Formats with a recognizable prefix; none starts within a longer word.
_FORMATS: tuple[tuple[str, str], ...] = (
    ("private key", rf"-----BEGIN {_PEM}[\w+/=\s\\:,.()-]{{40,8000}}?-----END {_PEM}"),
    # A key that is cut off before its end.
    (
        "private key",
        rf"-----BEGIN {_PEM}(?:(?:\s|\\{{1,8}}[nr]){{0,4}}[A-Za-z0-9+/=]{{40,80}}){{1,200}}",
    ),
    ("AWS access key", r"(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    ("GitHub token", r"gh[pousr]_[A-Za-z0-9]{36,255}\b"),
    ("GitHub token", r"github_pat_\w{60,255}\b"),
    ("GitLab token", r"gl(?:pat|dt|rt|ptt|ft|soat)-[\w-]{20,255}(?:\.\w{2}\.\w{7,20})?"),
    ("Slack token", r"(?:xoxe\.)?xox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    ("Slack token", r"xapp-\d-[A-Za-z0-9-]{10,255}"),
    ("Slack webhook", r"https://hooks\.slack\.com/services/T\w{6,20}/B\w{6,20}/\w{16,40}"),
    ("Anthropic key", r"sk-ant-[\w-]{20,255}"),
    ("OpenAI key", r"sk-(?:proj-|svcacct-|admin-)?(?=[a-z_-]{0,255}[A-Z0-9])[\w-]{32,255}"),
    ("Stripe key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,255}"),
    ("Google key", r"AIza[\w-]{35}(?![\w-])"),
    ("npm token", r"npm_[A-Za-z0-9]{36}\b"),
    ("PyPI token", r"pypi-AgE[\w-]{50,1000}"),
    ("Hugging Face token", r"hf_[A-Za-z]{30,255}\b"),
    ("SendGrid key", r"SG\.[\w-]{16,32}\.[\w-]{32,64}"),
    ("Google token", r"ya29\.[\w-]{20,2000}"),
    ("Google client secret", r"GOCSPX-[\w-]{20,64}"),
    ("Stripe signing secret", r"whsec_[A-Za-z0-9+/=]{24,255}"),
    ("Groq key", r"gsk_[A-Za-z0-9]{40,255}\b"),
    ("xAI key", r"xai-[A-Za-z0-9]{40,255}\b"),
    ("Perplexity key", r"pplx-[A-Za-z0-9]{40,255}\b"),
    ("Replicate token", r"r8_[A-Za-z0-9]{37}\b"),
    ("Docker token", r"dckr_[op]at_[\w-]{24,64}"),
    ("DigitalOcean token", r"do[opr]_v1_[a-f0-9]{64}\b"),
    ("Databricks token", r"dapi[a-f0-9]{32}(?:-\d)?\b"),
    ("Shopify token", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}\b"),
    ("Vault token", r"hv[bsr]\.[\w-]{24,500}"),
    ("Grafana token", r"gl(?:sa|c)_[\w+/=-]{32,500}"),
    ("Linear key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,64}\b"),
    ("Notion token", r"ntn_[A-Za-z0-9]{40,64}\b"),
    ("Figma token", r"fig[dor]_[\w-]{40,64}"),
    ("Postman key", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}\b"),
    ("New Relic key", r"NRAK-[A-Z0-9]{27}\b"),
    ("Sentry token", r"sntry[su]_[\w+/=-]{40,500}"),
    ("Supabase token", r"sb(?:p|_secret)_[\w-]{30,255}"),
    ("Atlassian token", r"ATATT3[\w=-]{60,500}"),
    ("RubyGems key", r"rubygems_[a-f0-9]{48}\b"),
    ("Square token", r"sq0(?:atp|csp)-[\w-]{22,64}"),
    ("Twilio key", r"SK[a-f0-9]{32}\b"),
    ("Mailgun key", r"key-[a-f0-9]{32}\b"),
    ("age key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}\b"),
    ("Discord token", r"mfa\.[\w-]{84}(?![\w-])"),
    (
        "Discord webhook",
        r"https://(?:\w{2,10}\.)?discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{15,22}/[\w-]{50,90}",
    ),
    (_ENCODED_KEY, r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{40,20000}={0,2}"),
    ("JSON web token", r"eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,2000}"),
)
_PEM_LINE = re.compile(r"[A-Za-z0-9+/=]{16,80}")
_PEM_BREAK = re.compile(r"((?:\s|\\{1,8}[nr])+)")
_PEM_END = re.compile(rf"[\w+/=\s\\]*?-----END {_PEM}")
_PEM_MOST = 16_000
_FORMAT = re.compile("|".join(f"(?P<f{n}>{pattern})" for n, (_, pattern) in enumerate(_FORMATS)))
# The prefixes of the formats: searching for these first is fifteen times as fast.
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
    *("mfa.", "https://discord", "https://ptb.discord", "https://canary.discord", "LS0tLS1CRUdJTi"),
)
# Escapes of JSON and URLs, and terminal colours. They end in a letter, but the letter after them
# starts a word.
_ESCAPE = re.compile(
    r"(?:\\[nrtbf]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9A-F]{2}|\x1b\[[\d;]{0,9}m)\Z"
)
_STARTS = r"(?:(?<![A-Za-z])|(?<=\\[nrt]))"
# Lines from the middle of a key.
_PEM_LINES = re.compile(
    r"(?:(?<![\w+/=])|(?<=\\[nr]))[A-Za-z0-9+/]{0,80}(?:\s|\\{1,8}[nr]){1,4}"
    r"(?:(?=[A-Za-z0-9+/]{0,40}[A-Z])(?=[A-Za-z0-9+/]{0,40}[a-z])(?=[A-Za-z0-9+/]{0,60}[0-9+/])"
    r"[A-Za-z0-9+/]{60,76}(?:(?:\s|\\{1,8}[nr]){1,4}|\Z)){2,}[A-Za-z0-9+/]{0,80}={0,2}"
)
# The token begins with the number of a bot or user; in base64, that begins with M, N or O.
_DISCORD = re.compile(r"(?P<identity>[MNO][\w-]{22,28})\.[\w-]{6}\.[\w-]{27,40}(?![\w-])", re.ASCII)
_BOOTSTRAP = re.compile(
    r"(?:token|kubeadm)[^\n]{0,80}?(?<![\w.-])(?P<value>[a-z0-9]{6}\.[a-z0-9]{16})(?![\w.-])",
    re.IGNORECASE,
)
_MANIFEST_PARTS = ("data", "stringData")
# Lines and quotes of a manifest, which may be in a JSON string.
_LINE_START = r"(?:^|(?<=\\n))"
_LINE_END = r"(?:\n|\\{1,8}n)"
_REST = r"(?:(?!\\{1,8}n)[^\n])*"
_MARK = r"(?:\\{0,7}[\"'])?"
_SECRET_KIND = re.compile(rf"(?:\b|(?<=\\n))kind{_MARK}:[ \t]{{0,4}}{_MARK}Secret\b")
_DOCUMENT = re.compile(rf"{_LINE_START}---[ \t]*(?={_LINE_END})", re.MULTILINE)
_MANIFEST_BLOCK = re.compile(
    rf"{_LINE_START}(?P<indent>[ \t]*)(?:- )?(?:data|stringData):[ \t]*"
    rf"(?P<values>(?:{_LINE_END}(?:(?P=indent)[ \t]+\S{_REST}|[ \t]*(?={_LINE_END}|\Z)))+)"
    rf"|{_MARK}(?:data|stringData){_MARK}\s*:\s*(?P<json>\{{[^{{}}]*\}})",
    re.MULTILINE,
)
_MANIFEST_VALUE = re.compile(
    rf"(?:{_LINE_START}[ \t]*|[{{,]\s*){_MARK}[\w.-]+{_MARK}\s*:[ \t]*{_MARK}"
    r"(?P<value>(?:(?!\\{1,8}[n\"])[^\n\"])+)",
    re.MULTILINE,
)
_MNEMONIC_LEAST = 12
_BLANKS = bytes(32 if chr(code) in "0123456789.):,\"'[]\\" else code for code in range(256))
# The n of an escaped line break is not the first letter of the next word.
_WORD_START = r"(?:(?<![\\\w])|(?<=\\[nrt]))"
_WORD = re.compile(rf"{_WORD_START}[a-z]{{3,8}}\b")
_BETWEEN = r"(?:[\s,\"']|\\{1,8}[nrt\"]|\d{1,2}[.):]){1,12}"
_WORD_RUN = re.compile(rf"{_WORD_START}[a-z]{{3,8}}(?:{_BETWEEN}[a-z]{{3,8}}\b){{11,}}+")
_VALUE_MOST = 4_000
_AROUND = 20_000
"""How many characters around a passage are checked: more than the longest private key has."""
_PROBE = "q7Rz-41kP_x8Wm2T"
# scheme://user:password@host
_URL = re.compile(r"(?<=[a-z0-9])://[^\s/:@\"'<>]{0,100}:(?P<value>[^\s/@\"'<>]{3,200})(?=@)")
_BEARER = re.compile(
    rf"(?P<head>{_STARTS}authorization[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?(?:bearer|basic|token)\s{{1,4}})"
    r"(?P<value>[\w.~+/=-]{8,2000})",
    re.IGNORECASE,
)
# A quote, which may be escaped in a JSON string or written as an XML entity.
_QUOTE = r"(?:\\{0,7}[\"'`]|&(?:quot|apos|#3[49]);)?"
# API_KEY = "…", \"clientSecret\": \"…\", password: …, <token>…, --token …, the password is …
_ASSIGNED = re.compile(
    rf"(?P<head>(?:pass(?:wor[dt]|wd|phrase|code)|{_STARTS}(?:pass|pwd)|secret|token|credentials?|authorization"
    rf"|cookie|{_STARTS}bearer(?=[ \t])|(?<=[?&;])(?:sig|signature|key)(?==)|(?<=_)auth"
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
# What a match of `_ASSIGNED` can begin with, in lower case; and what can precede "key" in it.
_NAMES = (
    *("pass", "pwd", "secret", "token", "credential", "authorization", "cookie", "bearer"),
    *("auth", "sig"),
)
_KEY_OF = re.compile(r"(?:api|access|private|auth|account|signing|encryption)[_. -]?\Z")
ENTROPY_LEAST = 2.5
"""The minimum entropy in bits per character of a value that is masked because of its name.

A value with less entropy counts as an ordinary word.
"""


class DetectedSecret(NamedTuple):
    """A secret in a text: start and end in characters, and what it is."""

    start: int
    end: int
    what: str


def mask_secrets(text: str) -> str:
    """Replace each secret in a text with `[masked: what it is]`."""
    return mask_text_part(text, 0, len(text), find_secrets(text))


def mask_text_part(text: str, start: int, end: int, found: Sequence[DetectedSecret]) -> str:
    """Return a part of a text; mask the secrets that were `found` in the whole text.

    A line from the middle of a private key cannot be recognized without the lines around it.
    """
    parts, at = [], start
    for secret in found:
        if secret.end > start and secret.start < end:
            parts += [text[at : max(at, secret.start)], f"[masked: {secret.what}]"]
            at = secret.end
    return "".join([*parts, text[at:end]]) if parts else text[start:end]


def mask_excerpt(excerpt: str, source: str) -> str:
    """Mask the secrets in a passage, including those recognizable only in its `source`.

    Passage and source may differ in white space. If the source does not contain the passage, only
    the passage itself is checked.
    """
    dense = "".join(excerpt.split())
    at = "".join(source.split()).find(dense)
    if at < 0 or not dense:
        return mask_secrets(_PEM_LINES.sub("[masked: private key]", excerpt))
    begin = _find_offset_ignoring_spaces(source, at)
    start, end = max(0, begin - _AROUND), begin + len(excerpt) + _AROUND
    window = source[start:end]
    at -= len("".join(source[:start].split()))
    found = []
    for secret in find_secrets(window):
        first = len("".join(window[: secret.start].split())) - at
        last = first + len("".join(window[secret.start : secret.end].split()))
        if last > 0 and first < len(dense):
            found.append(
                DetectedSecret(
                    _find_offset_ignoring_spaces(excerpt, max(0, first)),
                    _find_offset_ignoring_spaces(excerpt, min(last, len(dense)) - 1) + 1,
                    secret.what,
                )
            )
    return mask_text_part(excerpt, 0, len(excerpt), found)


def _find_offset_ignoring_spaces(text: str, count: int) -> int:
    """Return the offset of non-space character number `count`, counted from 0."""
    for word in re.finditer(r"\S+", text):
        if count < len(word[0]):
            return word.start() + count
        count -= len(word[0])
    return len(text)


def mask_json_values(value: Any) -> Any:
    """Mask the secrets in all strings of a JSON value, before JSON escapes the strings.

    A string is also masked if its key is the name of a secret, as in `{"password": "…"}`.
    """
    return _mask_json_value(value, "")


def _mask_json_value(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return _mask_named_string(value, name)
    if isinstance(value, dict):
        is_secret = value.get("kind") == "Secret"
        return {
            mask_secrets(key) if isinstance(key, str) else key: _mask_manifest_part(item)
            if is_secret and key in _MANIFEST_PARTS
            else _mask_json_value(item, str(key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        words = value if all(isinstance(item, str) for item in value) else []
        if len(words) >= _MNEMONIC_LEAST and _find_wallet_seed_phrases(" ".join(words)):
            return ["[masked: mnemonic]"]
        # In a list of arguments, the name can precede the value: ["curl", "--token", "…"].
        names = [
            name,
            *(item if isinstance(item, str) and item[:1] == "-" else name for item in value),
        ]
        return [_mask_json_value(item, before) for item, before in zip(value, names, strict=False)]
    return value


def _mask_named_string(value: str, name: str) -> str:
    if (
        name
        and _is_secret_name(name)
        and 8 <= len(value) <= _VALUE_MOST
        and is_random_looking(value)
    ):
        # A value with a space is a sentence, not a key.
        return mask_secrets(value) if re.search(r"\s", value) else "[masked: secret]"
    if value[:1] in ("{", "["):
        # A tool's result is often JSON itself.
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return mask_secrets(value)
        masked = mask_json_values(inner)
        if masked != inner:
            indent = 2 if "\n" in value else None
            return mask_secrets(json.dumps(masked, indent=indent, ensure_ascii=False))
    return mask_secrets(value)


@lru_cache(maxsize=1024)
def _is_secret_name(name: str) -> bool:
    return any(secret.what == "secret" for secret in find_secrets(f"{name}: {_PROBE}"))


def _mask_manifest_part(value: Any) -> Any:
    """Mask all values in the `data` or `stringData` of a Kubernetes secret."""
    if isinstance(value, dict):
        return dict.fromkeys(value, "[masked: Kubernetes secret]")
    return "[masked: Kubernetes secret]"


def list_secret_kinds(text: str) -> list[tuple[int, str]]:
    """Return the offset (in characters) and the kind of each secret, without the secret itself."""
    return [(secret.start, secret.what) for secret in find_secrets(text)]


def find_secrets(text: str) -> list[DetectedSecret]:
    """Return the secrets of a text in order; overlapping secrets are merged."""
    found: list[DetectedSecret] = []
    for number, secret in enumerate(
        sorted(_find_secret_candidates(text), key=lambda one: (one.start, -one.end))
    ):
        if number and secret.start < found[-1].end:
            last = found[-1]
            found[-1] = last._replace(end=max(last.end, secret.end))
        else:
            found.append(secret)
    return found


def _find_secret_candidates(text: str) -> Iterator[DetectedSecret]:
    small = text.lower()
    if len(small) != len(text):  # a few letters become two characters in lower case
        small = text
    yield from _find_formatted_keys(text)
    yield from _find_discord_tokens(text)
    yield from _find_manifest_values(text)
    yield from _find_wallet_seed_phrases(text)
    for match in _match_at_offsets(_BEARER, text, _find_word_offsets(small, ("authorization",))):
        yield DetectedSecret(match.start("value"), match.end("value"), "credentials")
    for match in _match_at_offsets(
        _BOOTSTRAP, text, _find_word_offsets(small, ("token", "kubeadm"))
    ):
        yield DetectedSecret(match.start("value"), match.end("value"), "Kubernetes token")
    for pattern, sign in ((_URL, "://"), (_USER, "curl")):
        if sign in text:
            for match in pattern.finditer(text):
                yield DetectedSecret(match.start("value"), match.end("value"), "password")
    for match in _match_at_offsets(_ASSIGNED, text, _find_assignment_offsets(small)):
        if _is_secret_assignment(match):
            yield DetectedSecret(match.start("value"), match.end("value"), "secret")


def _find_formatted_keys(text: str) -> Iterator[DetectedSecret]:
    """Yield the keys that have one of the known formats."""
    end = looked = 0
    for at in _find_word_offsets(text, _MARKERS):
        if at < end or not _is_word_start(text, at):
            continue
        if text.startswith("-----END ", at):
            match = _match_private_key_end(text, max(end, looked, at - _PEM_MOST), at)
            looked = at
        else:
            match = _FORMAT.match(text, at)
        if match is None:
            continue
        what = _FORMATS[int((match.lastgroup or "f0")[1:])][0]
        if what == _ENCODED_KEY and not _is_encoded_key(match[0]):
            continue
        end = match.end()
        yield DetectedSecret(match.start(), end, "private key" if what == _ENCODED_KEY else what)


def _is_word_start(text: str, at: int) -> bool:
    """Return whether a word starts at an offset; a preceding escape (`\\n`) is not part of it."""
    if not at or not (text[at].isalnum() and (text[at - 1].isalnum() or text[at - 1] == "_")):
        return True
    return _ESCAPE.search(text, max(0, at - 12), at) is not None


def _is_encoded_key(encoded: str) -> bool:
    from binascii import a2b_base64

    body = encoded.rstrip("=")
    data = a2b_base64(body[: len(body) // 4 * 4])
    return b"PRIVATE KEY" in data


def _find_discord_tokens(text: str) -> Iterator[DetectedSecret]:
    """Yield tokens of Discord bots: the bot's number in base64, a time, and a signature."""
    from binascii import Error, a2b_base64

    for match in _DISCORD.finditer(text):
        if not _is_word_start(text, match.start()):
            continue
        identity = match["identity"]
        try:
            number = a2b_base64(identity + "=" * (-len(identity) % 4))
        except Error:
            continue
        if number.isdigit():
            yield DetectedSecret(match.start(), match.end(), "Discord token")


def _find_manifest_values(text: str) -> Iterator[DetectedSecret]:
    """Yield the values in Kubernetes manifests with `kind: Secret`, in YAML or JSON."""
    if "Secret" not in text or not _SECRET_KIND.search(text):
        return
    at = 0
    for document in [*_DOCUMENT.finditer(text), None]:
        stop = document.start() if document else len(text)
        if _SECRET_KIND.search(text, at, stop):
            for block in _MANIFEST_BLOCK.finditer(text, at, stop):
                first, end = block.span("values" if block["json"] is None else "json")
                for value in _MANIFEST_VALUE.finditer(text, first, end):
                    yield DetectedSecret(
                        value.start("value"), value.end("value"), "Kubernetes secret"
                    )
        at = stop + 1


def _find_wallet_seed_phrases(text: str) -> Iterator[DetectedSecret]:
    """Yield seed phrases of wallets: twelve or more words of the BIP 39 list in a row."""
    # `translate` takes twenty times as long for text as for bytes.
    words = text.replace("\\n", " ").encode("utf-8", "replace").translate(_BLANKS).split()
    known = _load_wallet_seed_words() if len(words) >= _MNEMONIC_LEAST else frozenset()
    # Probing every twelfth word is enough: a phrase has at least twelve.
    step = _MNEMONIC_LEAST
    if not any(
        words[at] in known and _count_adjacent_words(words, at, known) >= step
        for at in range(step - 1, len(words), step)
    ):
        return
    run: list[re.Match[str]] = []
    for match in _WORD_RUN.finditer(text):
        for word in (*_WORD.finditer(text, match.start(), match.end()), None):
            if word is not None and word[0].encode() in known:
                run.append(word)
                continue
            if len(run) >= step:
                yield DetectedSecret(run[0].start(), run[-1].end(), "mnemonic")
            run = []


def _count_adjacent_words(words: Sequence[bytes], at: int, known: frozenset[bytes]) -> int:
    """Return the length of the unbroken run of known words that contains the word at `at`."""
    first = last = at
    while first and words[first - 1] in known:
        first -= 1
    while last + 1 < len(words) and words[last + 1] in known:
        last += 1
    return last - first + 1


@cache
def _load_wallet_seed_words() -> frozenset[bytes]:
    from mnemonic import Mnemonic

    return frozenset(word.encode() for word in Mnemonic("english").wordlist)


def _match_private_key_end(text: str, low: int, at: int) -> re.Match[str] | None:
    """Match the end of a private key whose beginning is cut off; `at` is its last line.

    The match begins with the key's first line at or after `low`.
    """
    parts = _PEM_BREAK.split(text[low:at])
    start = at
    # Lines with their separators, from the last one up.
    while len(parts) >= 3 and not parts[-1] and _PEM_LINE.fullmatch(parts[-3]):
        start -= len(parts[-3]) + len(parts[-2])
        parts[-3:] = [""]
    return _PEM_END.match(text, start) if start < at else None


def _find_word_offsets(text: str, words: Iterable[str]) -> list[int]:
    """Return the sorted offsets of all occurrences of the words.

    `str.find` is many times as fast as one regular expression.
    """
    found: set[int] = set()
    for word in words:
        at = text.find(word)
        while at >= 0:
            found.add(at)
            at = text.find(word, at + 1)
    return sorted(found)


def _match_at_offsets(
    pattern: re.Pattern[str], text: str, places: Iterable[int]
) -> Iterator[re.Match[str]]:
    """Yield the matches at the given offsets, but none that overlaps an earlier match."""
    end = 0
    for at in places:
        match = pattern.match(text, at) if at >= end else None
        if match is not None:
            end = match.end()
            yield match


def _find_assignment_offsets(small: str) -> list[int]:
    """Return the offsets at which `_ASSIGNED` may match."""
    found = set(_find_word_offsets(small, _NAMES))
    for at in _find_word_offsets(small, ("key",)):
        before = _KEY_OF.search(small, max(0, at - 12), at)
        found.add(before.start() if before else at)
    return sorted(found)


def describe_secrets(text: str) -> str | None:
    """Return a warning that names the kinds and lines of the secrets in a text; None if it has none."""
    found = list_secret_kinds(text)
    if not found:
        return None
    kinds = ", ".join(dict.fromkeys(what for _, what in found))
    lines = dict.fromkeys(text.count("\n", 0, at) + 1 for at, _ in found[:5])
    more = ", …" if len(found) > 5 else ""
    return f"looks like a secret: {kinds} (line {', '.join(map(str, lines))}{more})"


def _is_secret_assignment(match: re.Match[str]) -> bool:
    """Return whether an assigned value is a secret.

    After a space (`the password is …`), a value counts only if it cannot be an ordinary word.
    """
    value = match["value"]
    if match["blank"] and not (
        len(value) >= 12 and all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    ):
        return False
    return is_random_looking(value)


def is_random_looking(value: str) -> bool:
    """Return whether a value looks like a key, not like a word, name, path or placeholder."""
    # In code, these operators precede a variable.
    value = value.lstrip("&*!")
    if value.startswith(("$", "%", "/", "./", "~", "http", "env.", "os.", "process.")):
        return False
    kinds = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]", r"[^\w]"))
    if kinds < 2 or not re.search(r"[0-9]|[^\w.-]", value):
        return False
    counts = Counter(value).values()
    bits = -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
    return bits >= min(ENTROPY_LEAST, math.log2(len(value)) * 0.8)
