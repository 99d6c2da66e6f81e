"""How JP writes what events hold: base64 over texts, and typed content."""

from __future__ import annotations

import re
from binascii import a2b_base64
from typing import Any

from pybase64 import b64decode

from kbtui.text import pretty_json

# The characters that may stand before one and two `=`: any other has bits that
# say nothing, which JP's strict decoder refuses and Python's does not notice.
_BEFORE_ONE = frozenset("AEIMQUYcgkosw048")
_BEFORE_TWO = frozenset("AQgw")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{38,}={0,2}")
_TOKEN_LENGTH = 40
_SHORT = 60


def decode_bytes(text: str) -> bytes | None:
    """The bytes behind a string, None where it is not base64.

    The standard alphabet, else the URL-safe one; strict as JP is, with canonical padding.
    """
    length = len(text)
    if length & 3 or not length:
        return None
    try:
        # The fast one has begun only when the other has done a short string.
        if length > _SHORT:
            data = b64decode(text, None, True)
        else:
            data = a2b_base64(text, strict_mode=True)
    except ValueError:
        # Before March 2026 results were written in the URL-safe alphabet.
        if not ("-" in text or "_" in text) or "+" in text or "/" in text:
            return None
        try:
            data = b64decode(text.replace("-", "+").replace("_", "/"), None, True)
        except ValueError:
            return None
    if text[-1] == "=":
        if text[-2] == "=":
            return data if text[-3] in _BEFORE_TWO else None
        return data if text[-2] in _BEFORE_ONE else None
    return data


def decode_text(text: str) -> str:
    """The text behind one string, or the string itself where there is none."""
    data = decode_bytes(text)
    if data is None:
        return text
    try:
        return data.decode()
    except ValueError:
        return text


def decode_content(text: str) -> str:
    """The text of a tool result, which a later JP may have encoded over the URL-safe form."""
    decoded = decode_text(text)
    if decoded is text or " " in decoded or len(decoded) < _TOKEN_LENGTH:
        return decoded
    return decode_text(decoded) if _TOKEN.fullmatch(decoded) else decoded


def decode_value(value: Any) -> Any:
    """A JSON value with every string in it decoded; keys, numbers and null stay.

    Raises `RecursionError` for a value nested deeper than Python goes.
    """
    if type(value) is str:
        return decode_text(value)
    if type(value) is dict:
        decoded = {}
        for key, item in value.items():
            decoded[key] = decode_text(item) if type(item) is str else decode_value(item)
        return decoded
    if type(value) is list:
        return [decode_value(item) for item in value]
    return value


def decode_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """An event's metadata; `rendered_arguments` is base64 by design and once more on disk.

    Signatures stay as they are on disk: they are opaque, large, and never text.
    """
    decoded: dict[str, Any] = {
        key: value if key.endswith("_signature") else decode_value(value)
        for key, value in metadata.items()
    }
    rendered = decoded.get("rendered_arguments")
    if type(rendered) is str:
        decoded["rendered_arguments"] = decode_text(rendered)
    return decoded


_NAMES = ("uri", "url", "path", "name")
_MEDIA = ("mimeType", "mime_type")


def content_text(value: Any) -> str | None:
    """The text of typed content, None for what is no typed content.

    That is an array of objects that each have a type, one such object, or a reference to content
    that is stored elsewhere. Raises `RecursionError` for what is nested too deeply.
    """
    blocks = value if type(value) is list else [value]
    if not all(type(block) is dict and _is_typed(block) for block in blocks):
        return None
    return "\n".join(map(_block_text, blocks))


def resources_text(value: Any) -> tuple[int, str]:
    """How many resources a request has, and what they say. Raises as `content_text` does."""
    resources = value if type(value) is list else [value]
    return len(resources), "\n".join(map(_resource_text, resources))


def _is_typed(block: dict[str, Any]) -> bool:
    return type(block.get("type")) is str or "$blob" in block


def _block_text(block: dict[str, Any]) -> str:
    kind = block.get("type")
    if "$blob" in block:
        size = block.get("size")
        return _named("stored elsewhere", block["$blob"], f"{size:,} bytes" if size else None)
    if kind == "text" and type(text := block.get("text")) is str:
        return decode_content(text)
    if kind in ("resource", "resource_link"):
        return _resource_text(block.get("resource", block))
    if kind in ("image", "audio") and type(data := block.get("data")) is str:
        return _named(kind, _first(block, _MEDIA), _size(data))
    return f"[{kind}]\n{pretty_json(decode_value(block))}"


def _resource_text(resource: Any) -> str:
    """A resource's name and media type, then its text or whatever else it has."""
    if type(resource) is str:
        return _named("resource", resource)
    name = _first(resource, _NAMES) if type(resource) is dict else None
    if name is None:
        return f"[resource]\n{pretty_json(decode_value(resource))}"
    data = resource.get("blob")
    size = _size(data) if type(data) is str else None
    shown = _named("resource", name, _first(resource, _MEDIA), size)
    known = {"type", *_NAMES, *_MEDIA, *(["blob"] if size else [])}
    rest = {key: value for key, value in resource.items() if key not in known}
    if rest.keys() == {"text"} and type(rest["text"]) is str:
        return f"{shown}\n{decode_content(rest['text'])}"
    return f"{shown}\n{pretty_json(decode_value(rest))}" if rest else shown


def _first(block: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((block[key] for key in keys if type(block.get(key)) is str), None)


def _size(data: str) -> str:
    """The size of what a string holds in base64."""
    return f"{len(data.rstrip('=')) * 3 // 4:,} bytes"


def _named(what: str, *parts: Any) -> str:
    said = ", ".join(str(part) for part in parts if part)
    return f"[{what}: {said}]" if said else f"[{what}]"
