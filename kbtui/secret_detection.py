"""Finds secrets in text, to mask them or to warn about them.

A secret is a key in a known format, or the value of a name such as `password`. This module finds most
of them in conversations, but not all.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from contextlib import suppress
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_LINE_BREAK = r"(?:\s|\\{1,8}[nr])"
_PEM_TYPE = r"(?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_PEM_NEWLINE = r"(?:\n|\\{1,8}n)"
_PEM_NUMBERED_LINE = r"[^\n]{0,40}?[A-Za-z0-9+/]{40,80}={0,2}"
_PEM_LINE_START = r"(?:(?<![\w+/=\\])|(?<=\\[nr]))"
_FORMATS: tuple[tuple[str, str, str], ...] = (
    (
        "private key",
        "-----BEGIN ",
        rf"{_PEM_TYPE}[\w+/=\s\\:,.()-]{{40,8000}}?-----END {_PEM_TYPE}",
    ),
    # A key whose lines begin with line numbers, quote marks or the like, as tools print files.
    (
        "private key",
        "-----BEGIN ",
        rf"{_PEM_TYPE}[^\n\\]{{0,12}}{_PEM_NEWLINE}(?:[^\n\\]{{0,100}}{_PEM_NEWLINE}){{0,5}}?"
        rf"{_PEM_NUMBERED_LINE}(?:[^\n]{{0,12}}?{_PEM_NEWLINE}{_PEM_NUMBERED_LINE}){{0,200}}+"
        rf"(?:(?:[^\n]{{0,120}}?{_PEM_NEWLINE}){{1,2}}?[^\n]{{0,40}}?-----END {_PEM_TYPE})?",
    ),
    # A key that is cut off before its end.
    (
        "private key",
        "-----BEGIN ",
        rf"{_PEM_TYPE}(?:{_LINE_BREAK}{{0,4}}[A-Za-z0-9+/=]{{40,80}}){{1,200}}",
    ),
    # A key encoded in base64; the lookahead matches "PRIVATE KEY" at its three possible offsets.
    (
        "private key",
        "LS0tLS1CRUdJTi",
        r"(?=[\w+/]{0,20000}?(?:UFJJVkFURSBLRV|BSSVZBVEUgS0VZ|QUklWQVRFIEtFW))"
        r"[A-Za-z0-9+/]{40,20000}={0,2}",
    ),
    ("AWS access key", "AKIA|ASIA", r"[A-Z2-7]{16}\b"),
    ("GitHub token", "ghp_|gho_|ghu_|ghs_|ghr_", r"[A-Za-z0-9]{36,255}\b"),
    ("GitHub token", "github_pat_", r"\w{60,255}\b"),
    (
        "GitLab token",
        "glpat-|gldt-|glrt-|glptt-|glft-|glsoat-",
        r"[\w-]{20,255}(?:\.\w{2}\.\w{7,20})?",
    ),
    ("Slack token", "xox|xoxe.xox", r"[abeoprs]-[A-Za-z0-9-]{10,255}"),
    ("Slack token", "xapp-", r"\d-[A-Za-z0-9-]{10,255}"),
    ("Slack webhook", "https://hooks.slack.com/services/", r"T\w{6,20}/B\w{6,20}/\w{16,40}"),
    ("Anthropic key", "sk-ant-", r"[\w-]{20,255}"),
    ("OpenAI key", "sk-", r"(?:proj-|svcacct-|admin-)?(?=[a-z_-]{0,255}[A-Z0-9])[\w-]{32,255}"),
    ("Stripe key", "rk_live_|rk_test_|sk_live_|sk_test_", r"[A-Za-z0-9]{16,255}"),
    ("Google key", "AIza", r"[\w-]{35}(?![\w-])"),
    ("npm token", "npm_", r"[A-Za-z0-9]{36}\b"),
    ("PyPI token", "pypi-AgE", r"[\w-]{50,1000}"),
    ("Hugging Face token", "hf_", r"[A-Za-z]{30,255}\b"),
    ("SendGrid key", "SG.", r"[\w-]{16,32}\.[\w-]{32,64}"),
    ("Google token", "ya29.", r"[\w-]{20,2000}"),
    ("Google client secret", "GOCSPX-", r"[\w-]{20,64}"),
    ("Stripe signing secret", "whsec_", r"[A-Za-z0-9+/=]{24,255}"),
    ("Groq key", "gsk_", r"[A-Za-z0-9]{40,255}\b"),
    ("xAI key", "xai-", r"[A-Za-z0-9]{40,255}\b"),
    ("Perplexity key", "pplx-", r"[A-Za-z0-9]{40,255}\b"),
    ("Replicate token", "r8_", r"[A-Za-z0-9]{37}\b"),
    ("Docker token", "dckr_oat_|dckr_pat_", r"[\w-]{24,64}"),
    ("DigitalOcean token", "doo_v1_|dop_v1_|dor_v1_", r"[a-f0-9]{64}\b"),
    ("Databricks token", "dapi", r"[a-f0-9]{32}(?:-\d)?\b"),
    ("Shopify token", "shpat_|shpca_|shppa_|shpss_", r"[A-Fa-f0-9]{32}\b"),
    ("Vault token", "hvb.|hvs.|hvr.", r"[\w-]{24,500}"),
    ("Grafana token", "glsa_|glc_", r"[\w+/=-]{32,500}"),
    ("Linear key", "lin_api_|lin_oauth_", r"[A-Za-z0-9]{32,64}\b"),
    ("Notion token", "ntn_", r"[A-Za-z0-9]{40,64}\b"),
    ("Figma token", "figd_|figo_|figr_", r"[\w-]{40,64}"),
    ("Postman key", "PMAK-", r"[a-f0-9]{24}-[a-f0-9]{34}\b"),
    ("New Relic key", "NRAK-", r"[A-Z0-9]{27}\b"),
    ("Sentry token", "sntrys_|sntryu_", r"[\w+/=-]{40,500}"),
    ("Supabase token", "sbp_|sb_secret_", r"[\w-]{30,255}"),
    ("Atlassian token", "ATATT3", r"[\w=-]{60,500}"),
    ("RubyGems key", "rubygems_", r"[a-f0-9]{48}\b"),
    ("Square token", "sq0atp-|sq0csp-", r"[\w-]{22,64}"),
    ("Twilio key", "SK", r"[a-f0-9]{32}\b"),
    ("Mailgun key", "key-", r"[a-f0-9]{32}\b"),
    ("age key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{58}\b"),
    ("Tailscale key", "tskey-", r"[a-z]{3,10}-[\w-]{20,80}"),
    ("NVIDIA key", "nvapi-", r"[\w-]{60,80}"),
    ("Pinecone key", "pcsk_", r"\w{50,90}\b"),
    ("LangSmith key", "lsv2_pt_|lsv2_sk_", r"\w{32,60}\b"),
    ("Tavily key", "tvly-", r"[\w-]{32,60}"),
    ("Heroku key", "HRKU-", r"[\w-]{36,80}"),
    ("PlanetScale token", "pscale_tkn_|pscale_pw_|pscale_oauth_", r"[\w.=-]{32,64}"),
    ("Netlify token", "nfp_", r"[A-Za-z0-9]{36,64}\b"),
    ("CircleCI token", "CCIPAT_", r"\w{40,100}"),
    ("Brevo key", "xkeysib-", r"[a-f0-9]{64}-\w{16}\b"),
    ("PostHog key", "phx_", r"[A-Za-z0-9]{40,60}\b"),
    ("Doppler token", "dp.pt.|dp.st.", r"(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,44}\b"),
    ("Discord token", "mfa.", r"[\w-]{84}(?![\w-])"),
    # The id of a bot or user in base64, a time, and a signature.
    (
        "Discord token",
        "MD|MT|Mj|Mz|ND|NT|Nj|Nz|OD|OT|Oj|Oz",
        r"[AEIMQUYcgk][w-z0-5](?:[MNO][DTjz][AEIMQUYcgk][w-z0-5]){4,6}"
        r"(?:[MNO](?:[AQgw]|[DTjz][AEIMQUYcgk]))?\.[\w-]{6}\.[\w-]{27,40}(?![\w-])",
    ),
    (
        "Discord webhook",
        "https://discord|https://canary.discord|https://ptb.discord",
        r"(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{15,22}/[\w-]{50,90}",
    ),
    ("JSON web token", "eyJ", r"[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,2000}"),
)
"""For each kind of key: its name, its prefixes separated by `|`, and a pattern for the text after the prefix.

A key is not recognized inside a word.
"""
_PREFIXES = {prefix for _, prefixes, _ in _FORMATS for prefix in prefixes.split("|")}
_FORMAT = re.compile(
    "|".join(
        f"((?:{re.escape(prefixes).replace(re.escape('|'), '|')}){rest})"
        for _, prefixes, rest in _FORMATS
    )
)
# The end of a private key whose beginning is cut off.
_PEM_END = re.compile(
    rf"{_PEM_LINE_START}(?:[A-Za-z0-9+/=]{{16,80}}+{_LINE_BREAK}++)++-----END {_PEM_TYPE}"
)
_MAX_KEY_CHARACTERS = 16_000
# Lines from the middle of a private key.
_PEM_LINES = re.compile(
    rf"{_PEM_LINE_START}[A-Za-z0-9+/]{{0,80}}{_LINE_BREAK}{{1,4}}"
    r"(?:(?=[A-Za-z0-9+/]{0,40}[A-Z])(?=[A-Za-z0-9+/]{0,40}[a-z])(?=[A-Za-z0-9+/]{0,60}[0-9+/])"
    rf"[A-Za-z0-9+/]{{60,76}}(?:{_LINE_BREAK}{{1,4}}|\Z)){{2,}}[A-Za-z0-9+/]{{0,80}}={{0,2}}"
)
# Escapes of JSON and URLs, and terminal colours. An escape can end in a letter, but the letter after
# it starts a new word.
_ESCAPE = re.compile(
    r"(?:\\[nrtbf]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9A-F]{2}|\x1b\[[\d;]{0,9}m)\Z"
)
_NAME_START = r"(?:(?<![A-Za-z])|(?<=\\[nrt]))"
_VALUES = (
    (
        "credentials",
        "authorization",
        re.compile(
            rf"{_NAME_START}authorization[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?"
            r"(?:bearer|basic|token)\s{1,4}(?P<value>[\w.~+/=-]{8,2000})",
            re.IGNORECASE,
        ),
    ),
    (
        "Telegram token",
        ":aa",
        re.compile(
            r"(?:(?<!\d)|(?<=\\u[0-9a-fA-F]{4}))(?P<value>\d{8,10}:AA[\w-]{32,33})(?![\w-])"
        ),
    ),
    (
        "Kubernetes token",
        ".",
        re.compile(
            r"(?:token|kubeadm)[^\n]{0,80}?(?<![\w.-])"
            r"(?P<value>[a-z0-9]{6}\.[a-z0-9]{16})(?![\w.-])",
            re.IGNORECASE,
        ),
    ),
    # scheme://user:password@host
    (
        "password",
        "://",
        re.compile(r"(?<=[A-Za-z0-9])://[^\s/:@\"'<>]{0,100}:(?P<value>[^\s/\"'<>]{3,200})(?=@)"),
    ),
    # curl -u user:password
    (
        "password",
        "curl",
        re.compile(r"\s(?:-u|--user)[ =][\"']?[^\s:\"'/]{1,100}:(?P<value>[^\s\"'`<>\\]{8,200})"),
    ),
)
"""For each kind of secret: its name, a lower-case string, and a pattern that matches the secret.

Every text with such a secret contains the string after conversion to lower case.
"""
# A quote, which may be escaped in a JSON string or written as an XML entity.
_QUOTE = r"(?:\\{0,7}[\"'`]|&(?:quot|apos|#3[49]);)?"
# API_KEY = "…", \"clientSecret\": \"…\", password: …, <token>…, --token …, the password is …
_ASSIGNED = re.compile(
    rf"(?:pass(?:wor[dt]|wd|phrase|code)|{_NAME_START}(?:pass|pwd)|secret|token|credentials?"
    rf"|authorization|cookie|{_NAME_START}bearer(?=[ \t])|(?<=[?&;])(?:sig|signature|key)(?==)"
    r"|(?<=_)auth|(?:api|access|private|auth|account|signing|encryption)[_. -]?key)"
    r"(?:[_.-]?(?:key|id|value|base|access[_.-]?key)){0,2}"
    rf"{_QUOTE}(?:\s{{0,4}}(?::=|=>|:(?!:)|=(?!=))\s{{0,4}}|>|&gt;|(?P<blank>[ \t]{{1,4}}(?:is[ \t]{{1,4}})?)){_QUOTE}"
    # Within quotes, a value with a digit can also have brackets and semicolons.
    r"(?P<value>(?<=[\"'`])(?![{<(\[$])(?=[^\s\"'`\\]{0,200}\d)[^\s\"'`\\]{8,200}(?=\\{0,7}[\"'`])"
    r"|(?:[^\s\"'`,;<>{}()\[\]:\\&]|:(?=\w)|&(?!\w{1,30}[=;]|#\d)|\\(?![\s\"'`\\nrt])){8,500})",
    re.IGNORECASE,
)
_ASSIGNED_PREFIXES = """
    pass pwd secret token credential authorization cookie bearer sig key
    api access private auth account signing encryption
"""
# Lines and quotes of a Kubernetes manifest, which may be in a JSON string.
_LINE_START = r"(?:^|(?<=\\n))"
_LINE_END = r"(?:\n|\\{1,8}n)"
_MANIFEST_QUOTE = r"(?:\\{0,7}[\"'])?"
_SECRET_KIND = re.compile(
    rf"(?:\b|(?<=\\n))kind{_MANIFEST_QUOTE}:[ \t]{{0,4}}{_MANIFEST_QUOTE}Secret\b"
)
_DOCUMENT_START = re.compile(rf"{_LINE_START}---[ \t]*(?={_LINE_END})", re.MULTILINE)
_MANIFEST_BLOCK = re.compile(
    rf"{_LINE_START}(?P<indent>[ \t]*)(?:- )?(?:data|stringData):[ \t]*"
    rf"(?P<yaml>(?:{_LINE_END}(?:(?P=indent)[ \t]+\S(?:(?!\\{{1,8}}n)[^\n])*|[ \t]*(?={_LINE_END}|\Z)))+)"
    rf"|{_MANIFEST_QUOTE}(?:data|stringData){_MANIFEST_QUOTE}\s*:\s*(?P<json>\{{[^{{}}]*\}})",
    re.MULTILINE,
)
_MANIFEST_VALUE = re.compile(
    rf"(?:{_LINE_START}[ \t]*|[{{,]\s*){_MANIFEST_QUOTE}[\w.-]+{_MANIFEST_QUOTE}\s*:[ \t]*"
    rf"{_MANIFEST_QUOTE}(?P<value>(?:(?!\\{{1,8}}[n\"])[^\n\"])+)",
    re.MULTILINE,
)
_MIN_PHRASE_WORDS = 12
# The n of an escaped line break is not the first letter of the next word.
_PHRASE_WORD = re.compile(r"(?:(?<![\\\w])|(?<=\\[nrt]))[a-z]{3,8}\b")
_PHRASE_SEPARATOR = re.compile(r"(?:[\s,\"']|\\{1,8}[nrt\"]|\d{1,2}[.):]){1,12}")


class DetectedSecret(NamedTuple):
    """A secret in a text: its start and end in characters, and its kind, such as "private key"."""

    start: int
    end: int
    what: str


def mask_secrets(text: str) -> str:
    """Replace each secret in a text with `[masked: KIND]`."""
    return mask_secrets_in_text_part(text, 0, len(text), find_secrets(text))


def mask_secrets_in_text_part(
    text: str, start: int, end: int, found: Sequence[DetectedSecret]
) -> str:
    """Return a part of a text with its secrets masked. `found` has the secrets of the whole text."""
    parts, at = [], start
    for secret in found:
        if secret.end > start and secret.start < end:
            parts += [text[at : max(at, secret.start)], f"[masked: {secret.what}]"]
            at = secret.end
    return "".join([*parts, text[at:end]])


def mask_secrets_in_excerpt(excerpt: str, source: str) -> str:
    """Mask the secrets in a passage, including those that are recognizable only in its `source`.

    The passage and the source may differ in white space. If the source does not contain the passage,
    only the passage is checked.
    """
    dense = "".join(excerpt.split())
    begin = "".join(source.split()).find(dense)
    if begin < 0 or not dense:
        return mask_secrets(_PEM_LINES.sub("[masked: private key]", excerpt))
    # The offsets of the passage's characters except white space, in the source and in the passage.
    offsets = [at for at, sign in enumerate(source) if not sign.isspace()]
    offsets = offsets[begin : begin + len(dense)]
    own_offsets = [at for at, sign in enumerate(excerpt) if not sign.isspace()]
    start = max(0, offsets[0] - _MAX_KEY_CHARACTERS)
    found = []
    for secret in find_secrets(source[start : offsets[-1] + _MAX_KEY_CHARACTERS]):
        first = bisect_left(offsets, start + secret.start)
        end = bisect_left(offsets, start + secret.end)
        if first < end:
            found.append(DetectedSecret(own_offsets[first], own_offsets[end - 1] + 1, secret.what))
    return mask_secrets_in_text_part(excerpt, 0, len(excerpt), found)


def mask_secrets_in_json(value: Any, name: str = "") -> Any:
    """Mask the secrets in all strings of a parsed JSON value.

    `name` is the key of the value; a string is masked if its key is the name of a secret.
    """
    if isinstance(value, str):
        return _mask_secrets_in_json_string(value, name)
    if isinstance(value, dict):
        is_secret = value.get("kind") == "Secret"
        return {
            mask_secrets(key) if isinstance(key, str) else key: _mask_kubernetes_secret_values(item)
            if is_secret and key in ("data", "stringData")
            else mask_secrets_in_json(item, str(key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value) and any(
            _find_wallet_seed_phrases(" ".join(value))
        ):
            return ["[masked: mnemonic]"]
        # In a list of arguments, the name can precede the value: ["curl", "--token", "…"].
        names = [item if isinstance(item, str) and item[:1] == "-" else name for item in value]
        return list(map(mask_secrets_in_json, value, [name, *names]))
    return value


def _mask_secrets_in_json_string(value: str, name: str) -> str:
    if _is_secret_by_name(value, name):
        # A value with a space is a sentence, not a key.
        return mask_secrets(value) if re.search(r"\s", value) else "[masked: secret]"
    if value[:1] in ("{", "["):
        # A tool's result is often JSON itself.
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return mask_secrets(value)
        masked = mask_secrets_in_json(inner)
        if masked != inner:
            indent = 2 if "\n" in value else None
            value = json.dumps(masked, indent=indent, ensure_ascii=False)
    return mask_secrets(value)


def _is_secret_by_name(value: str, name: str) -> bool:
    """Return whether a value looks random and its key is the name of a secret."""
    has_length = bool(name) and 8 <= len(value) <= 4_000
    return has_length and _is_secret_name(name) and is_random_looking(value)


@lru_cache(maxsize=1_000)
def _is_secret_name(name: str) -> bool:
    return any(secret.what == "secret" for secret in find_secrets(f"{name}: q7Rz-41kP_x8Wm2T"))


def _mask_kubernetes_secret_values(value: Any) -> Any:
    mask = "[masked: Kubernetes secret]"
    return dict.fromkeys(value, mask) if isinstance(value, dict) else mask


_MASK = re.compile(r"\[masked: ([^\]\n]{1,60})\]")
_MIN_REPEATED_CHARACTERS = 8
_V = TypeVar("_V")


class SecretMasker:
    """Masks the secrets of texts that belong together, such as the events of a conversation.

    A value that is recognizable as a secret in one text, for example by the name before it, is masked in
    all texts. So call `learn_secrets` with all texts before the first call of `mask_secrets`.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        """Secret -> its kind."""
        self._longest_first: list[str] | None = None

    def learn_secrets(self, value: Any, name: str = "") -> None:
        """Remember the secrets in all strings of a JSON value. `name` is the key of the value."""
        if isinstance(value, str):
            self._learn_secrets_of_string(value, name)
        elif isinstance(value, dict):
            is_secret = value.get("kind") == "Secret"
            for key, item in value.items():
                self._learn_secrets_of_string(str(key), "")
                if is_secret and key in ("data", "stringData") and isinstance(item, dict):
                    for one in filter(_is_string, item.values()):
                        self._remember(one, "Kubernetes secret")
                self.learn_secrets(item, str(key))
        elif isinstance(value, list):
            before = name
            for item in value:
                self.learn_secrets(item, before)
                before = item if isinstance(item, str) and item[:1] == "-" else name

    def _learn_secrets_of_string(self, text: str, name: str) -> None:
        if _is_secret_by_name(text, name) and not re.search(r"\s", text):
            self._remember(text, "secret")
            return
        for secret in find_secrets(text):
            self._remember(text[secret.start : secret.end], secret.what)
        if text[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                self.learn_secrets(json.loads(text))

    def _remember(self, secret: str, what: str) -> None:
        # Elsewhere, a short or ordinary word is probably just a word, not this secret.
        if len(secret) >= _MIN_REPEATED_CHARACTERS and is_random_looking(secret):
            self._kinds.setdefault(secret, what)
            self._longest_first = None

    def mask_secrets(self, value: _V, name: str = "") -> _V:
        """Return a JSON value with the secrets in all strings masked. `name` is the key of the value."""
        masked: _V = self._mask_known_secrets(mask_secrets_in_json(value, name))
        return masked

    def _mask_known_secrets(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._list_longest_first():
                if secret in value:
                    value = value.replace(secret, f"[masked: {self._kinds[secret]}]")
            return value
        if isinstance(value, dict):
            return {
                self._mask_known_secrets(key): self._mask_known_secrets(item)
                for key, item in value.items()
            }
        return list(map(self._mask_known_secrets, value)) if isinstance(value, list) else value

    def _list_longest_first(self) -> list[str]:
        """Return the known secrets. Longer ones come first, because a short one can be a part of them."""
        if self._longest_first is None:
            self._longest_first = sorted(self._kinds, key=len, reverse=True)
        return self._longest_first


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def count_masks(value: Any) -> Counter[str]:
    """Count the masks in all strings of a JSON value by the kind of the secret."""
    if isinstance(value, str):
        return Counter(_MASK.findall(value))
    if isinstance(value, dict):
        value = [*value, *value.values()]
    found: Counter[str] = Counter()
    for item in value if isinstance(value, list) else ():
        found += count_masks(item)
    return found


def describe_secrets_in_text(text: str) -> str | None:
    """Return a warning with the kinds and lines of the secrets in a text; None if it has no secret."""
    found = find_secrets(text)
    if not found:
        return None
    kinds = ", ".join(dict.fromkeys(secret.what for secret in found))
    lines = dict.fromkeys(str(text.count("\n", 0, secret.start) + 1) for secret in found[:5])
    more = ", …" if len(found) > 5 else ""
    return f"looks like a secret: {kinds} (line {', '.join(lines)}{more})"


def find_secrets(text: str) -> list[DetectedSecret]:
    """Return the secrets of a text in order of position. Overlapping secrets are merged."""
    found: list[DetectedSecret] = []
    for secret in sorted(_find_secret_candidates(text), key=lambda one: (one.start, -one.end)):
        if found and secret.start < found[-1].end:
            found[-1] = found[-1]._replace(end=max(found[-1].end, secret.end))
        else:
            found.append(secret)
    return found


def _find_secret_candidates(text: str) -> Iterator[DetectedSecret]:
    yield from _find_keys_in_known_formats(text)
    yield from _find_kubernetes_secret_values(text)
    yield from _find_wallet_seed_phrases(text)
    # Replace İ, the only letter that becomes two characters in lower case: offsets must stay the same.
    lower = text.replace("İ", "I").lower()
    for what, sign, pattern in _VALUES:
        if sign in lower:
            for match in pattern.finditer(text):
                yield DetectedSecret(*match.span("value"), what)
    end = 0
    for at in _find_substring_offsets(lower, _ASSIGNED_PREFIXES.split()):
        if at >= end and (assigned := _ASSIGNED.match(text, at)):
            end = assigned.end()
            if _is_secret_assignment(assigned):
                yield DetectedSecret(*assigned.span("value"), "secret")


def _find_keys_in_known_formats(text: str) -> Iterator[DetectedSecret]:
    """Yield the keys that have one of the known formats."""
    end = 0
    for at in _find_substring_offsets(text, _PREFIXES):
        if at >= end and _is_word_start(text, at) and (match := _FORMAT.match(text, at)):
            end = match.end()
            yield DetectedSecret(at, end, _FORMATS[(match.lastindex or 1) - 1][0])
    before = 0
    for at in _find_substring_offsets(text, ["-----END "]):
        if match := _PEM_END.search(text, max(before, at - _MAX_KEY_CHARACTERS), at + 120):
            yield DetectedSecret(*match.span(), "private key")
        before = at


def _find_substring_offsets(text: str, words: Iterable[str]) -> list[int]:
    """Return the sorted offsets of several substrings."""
    found: set[int] = set()
    for word in words:
        at = text.find(word)
        while at >= 0:
            found.add(at)
            at = text.find(word, at + 1)
    return sorted(found)


def _is_word_start(text: str, at: int) -> bool:
    """Return whether a word starts at an offset. In the text `\\nkey`, a word starts after the escape `\\n`."""
    if not at or not (text[at].isalnum() and (text[at - 1].isalnum() or text[at - 1] == "_")):
        return True
    return _ESCAPE.search(text, max(0, at - 12), at) is not None


def _find_kubernetes_secret_values(text: str) -> Iterator[DetectedSecret]:
    """Yield the values in Kubernetes manifests with `kind: Secret`, in YAML or JSON."""
    if "Secret" not in text or not _SECRET_KIND.search(text):
        return
    starts = [document.start() for document in _DOCUMENT_START.finditer(text)]
    for start, end in pairwise([0, *starts, len(text)]):
        if _SECRET_KIND.search(text, start, end):
            for block in _MANIFEST_BLOCK.finditer(text, start, end):
                for value in _MANIFEST_VALUE.finditer(text, *block.span(block.lastgroup or 0)):
                    yield DetectedSecret(*value.span("value"), "Kubernetes secret")


def _find_wallet_seed_phrases(text: str) -> Iterator[DetectedSecret]:
    """Yield seed phrases of wallets: twelve or more words of the BIP 39 list in a row."""
    known = _load_wallet_seed_words()
    phrase: list[re.Match[str]] = []
    for word in (*_PHRASE_WORD.finditer(text), None):
        is_known = word is not None and word[0] in known
        if (
            word
            and is_known
            and (not phrase or _PHRASE_SEPARATOR.fullmatch(text, phrase[-1].end(), word.start()))
        ):
            phrase.append(word)
            continue
        if len(phrase) >= _MIN_PHRASE_WORDS:
            yield DetectedSecret(phrase[0].start(), phrase[-1].end(), "mnemonic")
        phrase = [word] if word and is_known else []


@cache
def _load_wallet_seed_words() -> frozenset[str]:
    from mnemonic import Mnemonic

    return frozenset(Mnemonic("english").wordlist)


def _is_secret_assignment(match: re.Match[str]) -> bool:
    """Return whether an assigned value looks secret. The rules are stricter if neither `=` nor `:` precedes it."""
    value = match["value"]
    is_mixed = all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    if match["blank"] and not (len(value) >= 12 and is_mixed):
        return False
    return is_random_looking(value)


def is_random_looking(value: str) -> bool:
    """Return whether a value looks like a key, not like a word, name, path or placeholder."""
    # In code, these operators can precede a variable.
    value = value.lstrip("&*!")
    if value.startswith(("$", "%", "/", "./", "~", "http", "env.", "os.", "process.")):
        return False
    kinds = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]", r"[^\w]"))
    if kinds < 2 or not re.search(r"[0-9]|[^\w.-]", value):
        return False
    counts = Counter(value).values()
    bits = -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
    # A value with less entropy in bits per character counts as an ordinary word.
    return bits >= min(2.5, math.log2(len(value)) * 0.8)
