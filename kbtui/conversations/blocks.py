"""Typed content: blocks of text, images and resources where JP otherwise writes one string.

Text is given as it is. What has no text is named in brackets on a line of its own. What is not
known is shown as JSON, so that nothing is left out.
"""

from __future__ import annotations

from typing import Any

from kbtui.conversations.formats.jp.base64_fields import decode_content, decode_value, pretty

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
    return f"[{kind}]\n{pretty(decode_value(block))}"


def _resource_text(resource: Any) -> str:
    """A resource's name and media type, then its text or whatever else it has."""
    if type(resource) is str:
        return _named("resource", resource)
    name = _first(resource, _NAMES) if type(resource) is dict else None
    if name is None:
        return f"[resource]\n{pretty(decode_value(resource))}"
    data = resource.get("blob")
    size = _size(data) if type(data) is str else None
    shown = _named("resource", name, _first(resource, _MEDIA), size)
    known = {"type", *_NAMES, *_MEDIA, *(["blob"] if size else [])}
    rest = {key: value for key, value in resource.items() if key not in known}
    if rest.keys() == {"text"} and type(rest["text"]) is str:
        return f"{shown}\n{decode_content(rest['text'])}"
    return f"{shown}\n{pretty(decode_value(rest))}" if rest else shown


def _first(block: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((block[key] for key in keys if type(block.get(key)) is str), None)


def _size(data: str) -> str:
    """The size of what a string holds in base64."""
    return f"{len(data.rstrip('=')) * 3 // 4:,} bytes"


def _named(what: str, *parts: Any) -> str:
    said = ", ".join(str(part) for part in parts if part)
    return f"[{what}: {said}]" if said else f"[{what}]"
