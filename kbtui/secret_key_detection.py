"""Defines the formats of secret keys (API keys, tokens, private keys), and finds such keys in texts.

A key of a known format begins with a prefix, such as `ghp_`. Keys are found even if they are
wrapped over lines or cut off; private keys are found even without their first line.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    # A key in a file as tools print it, with a line number, a quote mark or the like before each line.
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
    # The encoded form of the fields with which PKCS 8, PKCS 1, SEC 1 and OpenSSH keys begin.
    (
        "private key",
        "b3BlbnNzaC1rZXktdjE|MHcCAQEEI|MIGHAgEAMBMGByqGSM49AgEG|MC4CAQAwBQYDK2Vw|MII",
        r"(?:(?<=MII)(?:[\w+/]{1,3}IBA(?:DANBgkqhkiG9w0BAQEFAASC|AK[BC])|[\w+/]{2}gIBAAK[BC])|(?<!MII))"
        rf"[A-Za-z0-9+/]{{20,8000}}={{0,2}}(?:{_LINE_BREAK}{{1,4}}[A-Za-z0-9+/]{{16,80}}={{0,2}}){{0,200}}",
    ),
    ("private key", "-----BEGIN OpenVPN Static key", r"[^\n-]{0,10}-----[0-9a-f\s\\n]{40,4000}"),
    (
        "private key",
        "PuTTY-User-Key-File-",
        r"[^\x00]{1,2000}?Private-Lines: \d+[\w+/=\s\\]{40,8000}",
    ),
    ("AWS access key", "AKIA|ASIA|ABIA|ACCA", r"[A-Z2-7]{16}\b"),
    ("GitHub token", "ghp_|gho_|ghu_|ghs_|ghr_", r"[A-Za-z0-9]{36,255}\b"),
    ("GitHub token", "github_pat_", r"\w{60,255}\b"),
    (
        "GitLab token",
        "glpat-|gldt-|glrt-|glptt-|glft-|glsoat-|glcbt-|glimt-|glagent-|gloas-|glffct-",
        r"[\w-]{20,255}(?:\.\w{2}\.\w{7,20})?",
    ),
    ("Slack token", "xox|xoxe.xox", r"[a-eoprs]-[A-Za-z0-9%-]{10,255}"),
    ("Slack token", "xapp-", r"\d-[A-Za-z0-9-]{10,255}"),
    ("Slack webhook", "https://hooks.slack.com/services/", r"T\w{6,20}/B\w{6,20}/\w{16,40}"),
    ("Anthropic key", "sk-ant-", r"[\w-]{20,255}"),
    ("OpenAI key", "sk-", r"(?:proj-|svcacct-|admin-)?(?=[a-z_-]{0,255}[A-Z0-9])[\w-]{32,255}"),
    ("Stripe key", "rk_live_|rk_test_|sk_live_|sk_test_", r"[A-Za-z0-9]{16,255}"),
    ("Google key", "AIza", r"[\w-]{35}(?![\w-])"),
    ("npm token", "npm_", r"[A-Za-z0-9]{36}\b"),
    ("PyPI token", "pypi-AgE", r"[\w-]{50,1000}"),
    ("Hugging Face token", "hf_", r"(?=[a-z0-9]{0,255}[A-Z])[A-Za-z0-9]{30,255}\b"),
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
    ("Mapbox token", "sk.eyJ", r"[\w-]{10,2000}\.[\w-]{10,200}"),
    # A signed token with or without its signature, or an encrypted token, which has five parts.
    ("JSON web token", "eyJ", r"[\w-]{10,2000}\.eyJ[\w-]{10,4000}(?:\.[\w-]{0,2000})?"),
    ("JSON web token", "eyJ", r"[\w-]{10,2000}\.[\w-]{0,2000}(?:\.[\w-]{8,8000}){3}"),
    ("Azure client secret", "8Q~|7Q~", r"[\w.~-]{31,34}"),
    ("Airtable token", "pat", r"[A-Za-z0-9]{14}\.[a-f0-9]{64}\b"),
    ("Firebase key", "AAAA", r"[\w-]{7}:APA91b[\w-]{100,200}"),
    ("Dropbox token", "sl.", r"(?:u\.)?[\w-]{120,2000}"),
    ("Facebook token", "EAA", r"(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{100,300}\b"),
    ("X bearer token", "AAAAAAAAAAAAAAAAAAAAA", r"(?!A{9})(?=[\w%]{0,40}\d)[\w%]{60,120}\b"),
    ("Fly token", "fm1_|fm2_|fo1_", r"[\w+/=-]{40,2000}"),
    ("Buildkite token", "bkua_", r"[a-f0-9]{40}\b"),
    ("Pulumi token", "pul-", r"[a-f0-9]{40}\b"),
    ("Dynatrace token", "dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}\b"),
    ("SonarQube token", "sqp_|squ_|sqa_", r"[a-f0-9]{40}\b"),
    ("1Password token", "ops_eyJ", r"[\w=-]{100,2000}"),
    ("Flutterwave key", "FLWSECK", r"[_-][\w-]{12,100}"),
    ("Contentful token", "CFPAT-", r"[\w-]{40,64}"),
    ("Typeform token", "tfp_", r"[\w.=-]{40,80}"),
    ("Alibaba key", "LTAI", r"[A-Za-z0-9]{17,24}\b"),
    ("Prefect key", "pnu_|pnb_", r"[A-Za-z0-9]{36}\b"),
    ("ReadMe key", "rdme_", r"[a-z0-9]{70}\b"),
    ("Clojars token", "CLOJARS_", r"[a-z0-9]{60}\b"),
    ("Asana token", "1/|2/", r"\d{12,20}(?:/\d{12,20})?:[a-f0-9]{32}\b"),
    ("wallet key", "xprv|yprv|zprv|tprv", r"[1-9A-HJ-NP-Za-km-z]{100,112}\b"),
    (
        "password hash",
        "$2a$|$2b$|$2y$",
        r"\d\d\$[./A-Za-z0-9]{53}(?![./A-Za-z0-9])",
    ),
    (
        "password hash",
        "$1$|$5$|$6$|$y$|$7$|$apr1$",
        r"(?:rounds=\d{1,9}\$)?[./\w]{1,32}\$(?:[./\w]{8,64}\$)?[./A-Za-z0-9]{22,100}",
    ),
    (
        "password hash",
        "$argon2i$|$argon2d$|$argon2id$",
        r"v=\d{1,3}\$[\w=,]{3,60}\$[\w+/]{8,100}\$[\w+/]{16,200}",
    ),
    (
        "password hash",
        "pbkdf2_sha|{SSHA",
        r"\d{0,4}(?:\$\d{1,9}\$[\w./+]{1,64}\$|\})[\w+/]{20,200}={0,2}",
    ),
)
"""For each kind of key: its name, its prefixes separated by `|`, and a pattern for the text after the prefix.

A key is recognized only at the start of a word, or after `_` inside a word.
"""
_PREFIXES = sorted(
    {prefix for _, prefixes, _ in _FORMATS for prefix in prefixes.split("|")}, key=len
)
_KINDS = {prefix: kind for kind, prefixes, _ in _FORMATS for prefix in prefixes.split("|")}
# Prefixes that also occur before other texts. If a key with such a prefix is cut off, it is not recognized.
_WEAK_PREFIXES = frozenset(
    prefix
    for prefix in _PREFIXES
    if len(prefix) < 4 or _KINDS[prefix] in ("private key", "password hash", "Discord webhook")
) | {"AAAA", "dapi", "key-", "mfa.", "npm_", "https://hooks.slack.com/services/"}
# The end of a private key whose beginning is cut off.
_PEM_END = re.compile(
    rf"{_PEM_LINE_START}(?:[A-Za-z0-9+/=]{{16,80}}+{_LINE_BREAK}++)++-----END {_PEM_TYPE}"
)
MAX_KEY_CHARACTERS = 16_000
"""The maximum number of characters in a private key."""
# A line from the middle of a private key: 64 characters in PEM files, 70 in those of OpenSSH.
_PEM_BODY_LINE = r"[A-Za-z0-9+/]{64,72}"
_PEM_BODY_WIDTHS = (64, 70)
_MAX_LINE_MARK_CHARACTERS = 24
_PEM_LAST_LINE = re.compile(
    r"[^\w+/]{0,8}(?:\d{1,6}[^\w+/]{1,4})?[A-Za-z0-9+/]{4,70}={0,2}(?![\w+/=])"
)
_OTHER_PEM_START = re.compile(
    r"-----BEGIN (?!(?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY)[A-Z0-9 ]{1,40}-----"
)
# Escapes in JSON and URLs, and terminal colours. An escape can end in a letter, but the letter after
# it starts a new word.
_ESCAPE = re.compile(
    r"(?:\\[nrtbf]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9A-F]{2}|\x1b\[[\d;]{0,9}m)\Z"
)
_KEY_CHARACTERS = re.compile(r"[\w+/=.~%-]+", re.ASCII)
# A line break within a key, and what can begin the next line: a mark of a quote or comment, or a line number.
_WRAP = re.compile(
    r"[ \t]*\\?(?:\r?\n|\\{1,8}n)[ \t]*(?:[>|│#*+]{1,3}[ \t]*)?(?:\d{1,6}[→\t|:][ \t]*)?"
)
_MAX_WRAPPED_LINES = 40
_MAX_SCANNER_BYTES = 64 * 1024 * 1024
_CUT = re.compile(r"(?:…|\.\.\.|\*\*|[\[<(]|\s*\Z)")
_MIN_CUT_KEY_CHARACTERS, _MIN_UNMARKED_CUT_KEY_CHARACTERS = 8, 12


class DetectedSecret(NamedTuple):
    """A secret in a text: its start and end in characters, and its kind, such as "private key"."""

    start: int
    end: int
    what: str


def make_any_word_expression(words: Iterable[str]) -> str:
    """Return a regular expression for `compile_secret_search_pattern` that matches any of several words."""
    return "|".join(map(re.escape, words))


# Short prefixes occur in many words, so they are searched for together with the text that must follow.
_LONGER_FORMS = {"pat": r"pat[A-Za-z0-9]{14}\.", "sl.": r"sl\.[\w-]{20}", "SK": "SK[a-f0-9]{8}"} | {
    prefix: f"{prefix}[AEIMQUYcgk][w-z0-5]"
    for prefix in _PREFIXES
    if _KINDS[prefix] == "Discord token" and len(prefix) == 2
}
_ANY_PREFIX = "|".join(_LONGER_FORMS.get(prefix, re.escape(prefix)) for prefix in _PREFIXES)


def find_keys_and_tokens_of_known_formats(text: str, data: bytes) -> Iterator[DetectedSecret]:
    """Yield the keys in a text that have a known format. Keys may overlap.

    `data` is the text encoded with one byte for each character, so offsets are the same in both.
    """
    end = 0
    for prefix in compile_secret_search_pattern(_ANY_PREFIX).finditer(data):
        at = prefix.start()
        if (
            at >= end
            and _is_word_start(text, at)
            and (found := _find_key_or_token_of_known_format_at(text, at))
        ):
            end = found.end
            yield found
    before = 0
    for line in compile_secret_search_pattern("-----END ").finditer(data):
        at = line.start()
        if match := _PEM_END.search(text, max(before, at - MAX_KEY_CHARACTERS), at + 120):
            yield DetectedSecret(*match.span(), "private key")
        before = at
    yield from _find_private_key_lines(text, data)


@cache
def compile_secret_search_pattern(pattern: str) -> Any:
    """Compile a regular expression with RE2.

    RE2 can search for a hundred words in one pass over a text.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_SCANNER_BYTES
    return re2.compile(pattern.encode(), options)


def compile_any_word_byte_pattern(words: Iterable[str]) -> Any:
    """Compile a regular expression that finds any of many words in UTF-8 bytes."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MAX_SCANNER_BYTES
    escaped = (re.escape(word.encode("utf-8", "surrogatepass")) for word in words)
    return re2.compile(b"|".join(escaped), options)


@cache
def _compile_secret_key_formats() -> re.Pattern[str]:
    """Compile all formats into one expression, in which each format is a group.

    This happens on first use, because it takes 10 ms.
    """
    formats = []
    for _, prefixes, rest in _FORMATS:
        longest_first = sorted(prefixes.split("|"), key=len, reverse=True)
        formats.append(f"((?:{'|'.join(map(re.escape, longest_first))}){rest})")
    return re.compile("|".join(formats))


@cache
def _compile_secret_key_prefixes() -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, reversed(_PREFIXES))))


def _is_word_start(text: str, at: int) -> bool:
    """Return whether a word starts at an offset.

    A word can also start after an escape: in the five characters `\\nkey`, the word `key` starts
    after `\\n`.
    """
    if not at or not (text[at].isalnum() and text[at - 1].isalnum()):
        return True
    return _is_after_escape(text, at)


def _is_after_escape(text: str, at: int) -> bool:
    return _ESCAPE.search(text, max(0, at - 12), at) is not None


def _find_key_or_token_of_known_format_at(text: str, at: int) -> DetectedSecret | None:
    """Return the key that starts at an offset. The key may be wrapped across lines or cut off."""
    match = _compile_secret_key_formats().match(text, at)
    if match:
        what = _FORMATS[(match.lastindex or 1) - 1][0]
        end = (
            _find_end_of_token_wrapped_across_lines(text, at, match.end())
            if what != "private key"
            else None
        )
        return DetectedSecret(at, end or match.end(), what)
    longest = _compile_secret_key_prefixes().match(text, at)
    prefix = longest[0] if longest else ""
    if prefix not in _WEAK_PREFIXES or prefix == "eyJ":
        if end := _find_end_of_token_wrapped_across_lines(text, at, None):
            return DetectedSecret(at, end, _KINDS[prefix])
        if prefix != "eyJ" and (end := _find_end_of_truncated_token(text, at + len(prefix))):
            return DetectedSecret(at, end, _KINDS[prefix])
    return None


def _find_end_of_token_wrapped_across_lines(text: str, at: int, end: int | None) -> int | None:
    """Return the end of a key that continues on the next lines; None if the key does not continue.

    If the key's text on the first line looks complete, `end` is the end of that text. Otherwise,
    `end` is None.
    """
    part = _KEY_CHARACTERS.match(text, at)
    if part is None or (end is not None and part.end() != end):
        return None
    key, found = part[0], None
    for _ in range(_MAX_WRAPPED_LINES):
        wrap = _WRAP.match(text, part.end())
        part = _KEY_CHARACTERS.match(text, wrap.end()) if wrap else None
        if part is None or (end is not None and not _mixes_cases_and_digits_like_key(part[0])):
            break
        before, key = len(key), key + part[0]
        match = _compile_secret_key_formats().match(key)
        if (
            match
            and match.end() > before
            and (end is not None or _mixes_cases_and_digits_like_key(key[4:]))
        ):
            found = part.start() + match.end() - before
    return found


def _mixes_cases_and_digits_like_key(part: str) -> bool:
    return len(part) >= 6 and all(re.search(kind, part) for kind in ("[a-z]", "[A-Z]", "[0-9]"))


def _find_end_of_truncated_token(text: str, start: int) -> int | None:
    """Return the end of a key that was cut off.

    Returns None if the text after the key's prefix does not belong to a key.
    """
    part = _KEY_CHARACTERS.match(text, start)
    if part is None:
        return None
    rest = part[0].rstrip(".")
    is_cut = _CUT.match(text, start + len(rest)) is not None
    kinds = sum(bool(re.search(kind, rest)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    least = _MIN_CUT_KEY_CHARACTERS if is_cut else _MIN_UNMARKED_CUT_KEY_CHARACTERS
    is_key = len(rest) >= least and kinds >= (2 if is_cut else 3) and re.search("[0-9]", rest)
    return start + len(rest) if is_key and len(set(rest)) >= 6 else None


def _find_private_key_lines(text: str, data: bytes) -> Iterator[DetectedSecret]:
    """Yield runs of two or more lines from the middle of a private key."""
    run: list[tuple[int, int]] = []
    for match in compile_secret_search_pattern(_PEM_BODY_LINE).finditer(data):
        start, end = match.span()
        if text[start] == "+" and end - start - 1 in _PEM_BODY_WIDTHS:
            # A line that a diff adds.
            start += 1
        if not _is_private_key_line(text, start, end):
            continue
        if run and not (
            end - start == run[-1][1] - run[-1][0]
            and _are_on_adjacent_lines(text, run[-1][1], start)
        ):
            yield from _detect_private_key_in_lines(text, run)
            run = []
        run.append((start, end))
    yield from _detect_private_key_in_lines(text, run)


def _is_private_key_line(text: str, start: int, end: int) -> bool:
    return (
        end - start in _PEM_BODY_WIDTHS
        and _mixes_cases_and_digits_like_key(text[start:end])
        and not re.match(r"[\w+/=]", text[end : end + 1])
        and (
            not start or not re.match(r"[\w/=-]", text[start - 1]) or _is_after_escape(text, start)
        )
    )


def _are_on_adjacent_lines(text: str, end: int, start: int) -> bool:
    between = text[end:start]
    breaks = between.count("\n") + between.count("\\n")
    return len(between) <= _MAX_LINE_MARK_CHARACTERS and breaks == 1


def _detect_private_key_in_lines(text: str, run: list[tuple[int, int]]) -> Iterator[DetectedSecret]:
    if len(run) < 2:
        return
    start, end = run[0][0], run[-1][1]
    before = text[max(0, start - MAX_KEY_CHARACTERS) : start]
    begin = before.rfind("-----BEGIN ")
    if begin > before.rfind("-----END ") and _OTHER_PEM_START.match(before, begin):
        # A certificate, a public key or a signature.
        return
    if last := _PEM_LAST_LINE.match(text, end):
        end = last.end()
    yield DetectedSecret(start, end, "private key")
