"""Finds secrets in text, to mask them or to warn about them.

A secret is a key in a known format, or the value of a name such as `password`. This module finds
most secrets in conversations, but not all.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from bisect import bisect_left, bisect_right
from collections import Counter
from contextlib import suppress
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from kbtui.contextual_secret_detection import find_secrets_by_context, is_random_looking
from kbtui.secret_key_detection import (
    MAX_KEY_CHARACTERS,
    DetectedSecret,
    compile_any_word_byte_pattern,
    compile_secret_search_pattern,
    find_keys_and_tokens_of_known_formats,
)
from kbtui.terminal_text import find_invisible_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
_PHRASE_WORD_RUN = r"(?:[a-z]{3,8}(?:[\s,.\"':)\d\\]|\\[nrt])+){11,}[a-z]{3,8}"
_PHRASE_WORD = re.compile(r"(?:(?<![\\\w])|(?<=\\[nrt]))[a-z]{3,8}\b")
_PHRASE_SEPARATOR = re.compile(r"(?:[\s,\"']|\\{1,8}[nrt\"]|\d{1,2}[.):]){1,12}")


_MIN_SECRET_CHARACTERS = 8
_MAX_CACHED_CHARACTERS = 100
_MAX_ENCODINGS = 2
# Base64 digits, which may be wrapped over several lines.
_ENCODED_RUN = r"[\w+/-]{20,}(?:(?:\\{1,8}n|\r?\n[ \t]{0,16})[A-Za-z0-9+/]{8,})*={0,2}"
_RUN_BREAK = re.compile(rb"\\{1,8}n|\s+")


def mask_secrets(text: str) -> str:
    """Replace each secret in a text with `[masked: KIND]`."""
    return mask_secrets_in_text_part(text, 0, len(text), find_secrets(text))


def mask_secrets_in_text_part(
    text: str, start: int, end: int, found: Sequence[DetectedSecret]
) -> str:
    """Return the text from `start` to `end` with its secrets masked.

    `found` contains the secrets of the whole text.
    """
    parts, at = [], start
    for secret in found:
        if secret.end > start and secret.start < end:
            parts += [text[at : max(at, secret.start)], f"[masked: {secret.what}]"]
            at = secret.end
    return "".join([*parts, text[at:end]])


def mask_secrets_in_excerpt(excerpt: str, source: str) -> str:
    """Mask the secrets in a passage of the text `source`.

    Some secrets can be recognized only with the text around the passage. The passage and the source
    may differ in white space. If the source does not contain the passage, only the passage is
    checked.
    """
    dense = "".join(excerpt.split())
    begin = "".join(source.split()).find(dense)
    if begin < 0 or not dense:
        return mask_secrets(excerpt)
    # The offsets of the passage's characters other than white space, in the source and in the passage.
    offsets = [at for at, sign in enumerate(source) if not sign.isspace()]
    offsets = offsets[begin : begin + len(dense)]
    own_offsets = [at for at, sign in enumerate(excerpt) if not sign.isspace()]
    start = max(0, offsets[0] - MAX_KEY_CHARACTERS)
    found = []
    for secret in find_secrets(source[start : offsets[-1] + MAX_KEY_CHARACTERS]):
        first = bisect_left(offsets, start + secret.start)
        end = bisect_left(offsets, start + secret.end)
        if first < end:
            found.append(DetectedSecret(own_offsets[first], own_offsets[end - 1] + 1, secret.what))
    return mask_secrets_in_text_part(excerpt, 0, len(excerpt), found)


def mask_secrets_in_json(value: Any) -> Any:
    """Mask the secrets in all strings of a parsed JSON value.

    A string is masked even if only its key, such as `password`, shows that it is a secret.
    """
    return _JsonSecretMasker().mask_value(value)


class _JsonSecretMasker:
    """Masks the secrets in JSON values. Calls `remember(secret, kind)` for each secret found."""

    def __init__(self, remember: Callable[[str, str], None] | None = None) -> None:
        self._remember_secret = remember or (lambda secret, what: None)
        self._masked_strings: dict[tuple[str, str], str] = {}

    def mask_value(self, value: Any, name: str = "") -> Any:
        if isinstance(value, str):
            return self.mask_string(value, name)
        if isinstance(value, dict):
            return self._mask_dict(value)
        return self._mask_list(value, name) if isinstance(value, list) else value

    def mask_string(self, value: str, name: str) -> str:
        """Mask the secrets in a string. A string that occurs again is not searched again."""
        masked = self._masked_strings.get((value, name))
        if masked is None:
            masked = self._masked_strings[value, name] = self._mask_new_string(value, name)
        return masked

    def _mask_new_string(self, value: str, name: str) -> str:
        if value[:1] in ("{", "["):
            # A tool's result is often JSON itself.
            with suppress(ValueError, RecursionError):
                inner = json.loads(value)
                masked = self.mask_value(inner)
                if masked != inner:
                    indent = 2 if "\n" in value else None
                    value = json.dumps(masked, indent=indent, ensure_ascii=False)
        found = _find_secrets_in_named_value(value, name)
        for secret in found:
            self._remember_secret(value[secret.start : secret.end], secret.what)
        return mask_secrets_in_text_part(value, 0, len(value), found) if found else value

    def _mask_dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        masked = {}
        for key, item in value.items():
            name = str(key)
            if value.get("kind") == "Secret" and key in ("data", "stringData"):
                new = self._mask_kubernetes_values(item)
            elif key in _WEB_KEY_MEMBERS and "kty" in value and isinstance(item, str):
                new = self._replace_value_with_mask(item, "private key")
            else:
                # A name and a value as two members, as in lists of environment variables.
                named = value.get("name", value.get("key")) if name.lower() == "value" else None
                new = self.mask_value(item, named if isinstance(named, str) else name)
            masked[self.mask_string(key, "") if isinstance(key, str) else key] = new
        return masked

    def _mask_kubernetes_values(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return self._replace_value_with_mask(value, "Kubernetes secret")
        return {
            key: self._replace_value_with_mask(item, "Kubernetes secret")
            for key, item in value.items()
        }

    def _replace_value_with_mask(self, value: Any, what: str) -> str:
        if isinstance(value, str):
            self._remember_secret(value, what)
        return f"[masked: {what}]"

    def _mask_list(self, value: list[Any], name: str) -> list[Any]:
        texts = [item for item in value if isinstance(item, str)]
        if len(texts) == len(value) and self._should_search_list_as_one_line(texts):
            line = " ".join(texts)
            found = find_secrets(line)
            if any(secret.what == "mnemonic" for secret in found):
                return ["[masked: mnemonic]"]
            starts = accumulate((len(text) + 1 for text in texts), initial=0)
            value = [
                mask_secrets_in_text_part(line, start, start + len(text), found)
                for start, text in zip(starts, texts, strict=False)
            ]
            for secret in found:
                self._remember_secret(line[secret.start : secret.end], secret.what)
        # In a list of arguments, the name can precede the value: ["curl", "--token", "…"].
        names = [item if isinstance(item, str) and item[:1] == "-" else name for item in value]
        return list(map(self.mask_value, value, [name, *names]))

    @staticmethod
    def _should_search_list_as_one_line(texts: list[str]) -> bool:
        is_short = len(texts) <= 500 and sum(map(len, texts)) <= 20_000
        return is_short and (
            len(texts) >= _MIN_PHRASE_WORDS or any(text[:1] == "-" for text in texts)
        )


def _find_secrets_in_named_value(value: str, name: str) -> list[DetectedSecret]:
    """Return the secrets in a string from JSON. `name` is the key of the string."""
    if not _is_name_of_secret(name):
        return find_secrets(value)
    if _is_random_value_under_secret_name(value, name) and not re.search(r"\s", value):
        return [DetectedSecret(0, len(value), "secret")]
    before = f'"{name}": "'
    found = [
        DetectedSecret(max(0, start - len(before)), end - len(before), what)
        for start, end, what in find_secrets(f'{before}{value}"')
        if end > len(before)
    ]
    return _merge_overlapping_secrets([*found, *find_secrets(value)])


def _is_random_value_under_secret_name(value: str, name: str) -> bool:
    """Return whether a value looks random and its key is the name of a secret."""
    has_length = bool(name) and 8 <= len(value) <= 4_000
    return has_length and _is_name_of_secret(name) and is_random_looking(value)


@lru_cache(maxsize=1_000)
def _is_name_of_secret(name: str) -> bool:
    """Return whether a value under the key `name` is a secret.

    `name` is a name such as `password`, or an option such as `-u`.
    """
    example = f'"{name}": "q7Rz-41kP_x8Wm2T"'
    return bool(name) and (name.lower() in _STRUCTURED_NAMES or bool(find_secrets(example)))


# Names of values that are secret in part, or only if they are encoded.
_WEB_KEY_MEMBERS = ("d", "p", "q", "dp", "dq", "qi", "k")
_STRUCTURED_NAMES = frozenset({"auth", "authorization", "cookie", "set-cookie"})
_MASK = re.compile(r"\[masked: ([^\]\n]{1,60})\]")
_MIN_REPEATED_CHARACTERS = 8
_SECRETS_PER_SCANNER = 500
_V = TypeVar("_V")


class SecretMasker:
    """Masks the secrets of texts that belong together, such as the events of a conversation.

    A value may be recognizable as a secret in only one text, for example by the name before it. It
    is then masked in all texts. Therefore, call `remember_secrets` with all texts before you call
    `mask_secrets`.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        """The kind of each known secret."""
        self._scanners: list[Any] | None = None
        self._json_masker = _JsonSecretMasker(self._remember_secret)

    def remember_secrets(self, value: Any, name: str = "") -> None:
        """Remember the secrets in all strings of a JSON value.

        `name` is the key of the value.
        """
        self._json_masker.mask_value(value, name)

    def _remember_secret(self, secret: str, what: str) -> None:
        # Elsewhere, a short or ordinary word is probably just a word, not this secret.
        if len(secret) >= _MIN_REPEATED_CHARACTERS and is_random_looking(secret):
            self._kinds.setdefault(secret, what)
            self._scanners = None

    def mask_secrets(self, value: _V) -> _V:
        """Return a JSON value in which the secrets in all strings are masked."""
        masked: _V = self._mask_known_secrets(self._json_masker.mask_value(value))
        return masked

    def _mask_known_secrets(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._mask_known_secrets_in_string(value) if self._kinds else value
        if isinstance(value, dict):
            return {
                self._mask_known_secrets(key): self._mask_known_secrets(item)
                for key, item in value.items()
            }
        return list(map(self._mask_known_secrets, value)) if isinstance(value, list) else value

    def _mask_known_secrets_in_string(self, text: str) -> str:
        if len(text) < _MIN_REPEATED_CHARACTERS:
            return text
        data = text.encode("utf-8", "surrogatepass")
        masked = data
        for scanner in self._compile_known_secret_patterns():
            masked = scanner.sub(self._make_mask, masked)
        return text if masked is data else masked.decode("utf-8", "surrogatepass")

    def _make_mask(self, match: Any) -> bytes:
        return f"[masked: {self._kinds[match[0].decode('utf-8', 'surrogatepass')]}]".encode()

    def _compile_known_secret_patterns(self) -> list[Any]:
        """Return regular expressions that match the known secrets.

        Longer secrets come first, because they can contain shorter ones. Each expression matches
        many secrets: a separate pass for each secret would take too long if there are hundreds of
        secrets.
        """
        if self._scanners is None:
            known = sorted(self._kinds, key=len, reverse=True)
            self._scanners = [
                compile_any_word_byte_pattern(known[at : at + _SECRETS_PER_SCANNER])
                for at in range(0, len(known), _SECRETS_PER_SCANNER)
            ]
        return self._scanners


def count_masks(value: Any) -> Counter[str]:
    """Return how many masks the strings of a JSON value contain, for each kind of secret."""
    return Counter(_find_mask_placeholders_in_json(value))


def _find_mask_placeholders_in_json(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _MASK.findall(value) if "[masked: " in value else ()
    elif isinstance(value, dict | list):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _find_mask_placeholders_in_json(item)


def describe_secrets_in_text(text: str) -> str | None:
    """Return a warning that names the kinds and lines of the secrets; None if there are none."""
    found = find_secrets(text)
    if not found:
        return None
    kinds = ", ".join(dict.fromkeys(secret.what for secret in found))
    lines = dict.fromkeys(str(text.count("\n", 0, secret.start) + 1) for secret in found[:5])
    more = ", …" if len(found) > 5 else ""
    return f"looks like a secret: {kinds} (line {', '.join(lines)}{more})"


def find_secrets(text: str) -> list[DetectedSecret]:
    """Return the secrets in a text in order of position. Overlapping secrets are merged.

    A secret is found even if escape sequences or invisible characters interrupt it.
    """
    if len(text) < _MIN_SECRET_CHARACTERS:
        return []
    return list(
        _find_secrets_in_short_text(text)
        if len(text) <= _MAX_CACHED_CHARACTERS
        else _find_secrets_in_text(text)
    )


def _find_secrets_in_text(text: str) -> list[DetectedSecret]:
    found = list(_find_possibly_overlapping_secrets(text))
    if hidden := find_invisible_characters(text):
        found += _find_secrets_with_invisible_parts(text, hidden)
    return _merge_overlapping_secrets(found)


_find_secrets_in_short_text = lru_cache(maxsize=4_000)(_find_secrets_in_text)
"""Results are cached, because the same names and paths occur in many events."""


def _merge_overlapping_secrets(secrets: list[DetectedSecret]) -> list[DetectedSecret]:
    found: list[DetectedSecret] = []
    for secret in sorted(secrets, key=lambda one: (one.start, -one.end)):
        if found and secret.start < found[-1].end:
            found[-1] = found[-1]._replace(end=max(found[-1].end, secret.end))
        else:
            found.append(secret)
    return found


def _find_secrets_with_invisible_parts(
    text: str, hidden: list[tuple[int, int]]
) -> Iterator[DetectedSecret]:
    """Find the secrets that a text contains after its invisible parts have been removed.

    `hidden` contains the start and end of each invisible part. The offsets of the yielded secrets
    are offsets in the unchanged text.
    """
    starts, ends = [0, *(end for _, end in hidden)], [*(start for start, _ in hidden), len(text)]
    visible = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    # The offset of each visible part in the text without hidden parts.
    offsets = list(accumulate(map(len, visible), initial=0))[:-1]
    for secret in _find_possibly_overlapping_secrets("".join(visible)):
        first = bisect_right(offsets, secret.start) - 1
        last = bisect_left(offsets, secret.end) - 1
        start = starts[first] + secret.start - offsets[first]
        yield DetectedSecret(start, starts[last] + secret.end - offsets[last], secret.what)


def _find_possibly_overlapping_secrets(text: str, depth: int = 0) -> Iterator[DetectedSecret]:
    # One byte for each character, so that offsets stay the same.
    data = text.encode("ascii", "replace")
    yield from find_keys_and_tokens_of_known_formats(text, data)
    yield from _find_kubernetes_secret_values(text)
    for run in compile_secret_search_pattern(_PHRASE_WORD_RUN).finditer(data):
        yield from _find_wallet_seed_phrases(text, *run.span())
    yield from find_secrets_by_context(text, data)
    if depth < _MAX_ENCODINGS:
        yield from _find_encoded_secrets(data, depth)


def _find_encoded_secrets(data: bytes, depth: int) -> Iterator[DetectedSecret]:
    """Yield the runs of base64 or hexadecimal digits that encode a text with a secret.

    `depth` is the number of encodings that have already been removed from `data`.
    """
    for run in compile_secret_search_pattern(_ENCODED_RUN).finditer(data):
        decoded = _decode_base64_or_hexadecimal_run(run[0])
        if decoded and any(_find_possibly_overlapping_secrets(decoded, depth + 1)):
            yield DetectedSecret(run.start(), run.end(), "encoded secret")


def _decode_base64_or_hexadecimal_run(run: bytes) -> str | None:
    """Return the text that a run of base64 or hexadecimal digits encodes, or None."""
    # Most runs are words and paths. Their first characters do not decode to text.
    if not (
        decode := next(filter(lambda one: _is_mostly_printable(one(run[:24])), _DECODERS), None)
    ):
        return None
    decoded = decode(b"".join(_RUN_BREAK.split(run)))
    return decoded.decode("utf-8", "replace") if _is_mostly_printable(decoded) else None


def _decode_base64(digits: bytes) -> bytes:
    digits = digits.rstrip(b"=").translate(_URL_SAFE_TO_STANDARD)
    # One digit after the last group of four encodes nothing.
    digits = digits[:-1] if len(digits) % 4 == 1 else digits
    try:
        return b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
    except ValueError:
        return b""


def _decode_hexadecimal(digits: bytes) -> bytes:
    try:
        return bytes.fromhex(digits[: len(digits) // 2 * 2].decode())
    except ValueError:
        return b""


_DECODERS = (_decode_base64, _decode_hexadecimal)
_URL_SAFE_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_PRINTABLE = bytes([9, 10, 13, *range(32, 127)])


def _is_mostly_printable(data: bytes) -> bool:
    """Return whether nearly all bytes are printable ASCII characters."""
    return len(data) >= 8 and len(data.translate(None, _PRINTABLE)) * 20 <= len(data)


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


def _find_wallet_seed_phrases(text: str, start: int, end: int) -> Iterator[DetectedSecret]:
    """Yield wallet seed phrases: twelve or more consecutive words from the BIP 39 list."""
    known = _load_wallet_seed_words()
    phrase: list[re.Match[str]] = []
    for word in (*_PHRASE_WORD.finditer(text, start, end), None):
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
