"""JP's base64 fields: obfuscation that keeps bulk text out of grep (jp-format 2.3)."""

import re
from binascii import Error, a2b_base64
from typing import Any

# The characters that may stand before one and two `=`: any other has bits that
# say nothing, which JP's strict decoder refuses and Python's does not notice.
_BEFORE_ONE = frozenset("AEIMQUYcgkosw048")
_BEFORE_TWO = frozenset("AQgw")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{38,}={0,2}")
_TOKEN_LENGTH = 40


def decode_text(text: str) -> str:
    """The text behind one string: standard alphabet, else URL-safe, else the string itself.

    Strict as JP is: canonical padding and valid UTF-8, or it was never encoded.
    """
    if len(text) & 3 or not text:
        return text
    try:
        try:
            data = a2b_base64(text, strict_mode=True)
        except Error:
            # Before March 2026 results were written in the URL-safe alphabet.
            if "+" in text or "/" in text:
                return text
            data = a2b_base64(text.replace("-", "+").replace("_", "/"), strict_mode=True)
        if text[-1] == "=":
            if text[-2] == "=":
                if text[-3] not in _BEFORE_TWO:
                    return text
            elif text[-2] not in _BEFORE_ONE:
                return text
        return data.decode()
    except ValueError:
        return text


def decode_content(text: str) -> str:
    """The text of a tool result, which a later JP may have encoded over the URL-safe form."""
    decoded = decode_text(text)
    if len(decoded) >= _TOKEN_LENGTH and _TOKEN.fullmatch(decoded):
        return decode_text(decoded)
    return decoded


def decode_value(value: Any) -> Any:
    """A JSON value with every string in it decoded; keys, numbers and null stay.

    Raises `RecursionError` for a value nested deeper than Python goes.
    """
    if type(value) is str:
        return decode_text(value)
    if type(value) is dict:
        return {key: decode_value(item) for key, item in value.items()}
    if type(value) is list:
        return [decode_value(item) for item in value]
    return value


def decode_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """An event's metadata; `rendered_arguments` is base64 by design and once more on disk."""
    decoded: dict[str, Any] = decode_value(metadata)
    rendered = decoded.get("rendered_arguments")
    if type(rendered) is str:
        decoded["rendered_arguments"] = decode_text(rendered)
    return decoded
