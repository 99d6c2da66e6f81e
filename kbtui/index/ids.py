"""The names of entries and chunks: short, stable, made from what they are."""

import hashlib


def subject_id(topic: str, slug: str) -> str:
    """The entry id of a subject: `s` and 12 hex digits."""
    return "s" + _digest(topic, slug)[:12]


def chunk_id(entry: str, text: str, repeat: int) -> str:
    """The id of a chunk: 16 hex digits; `repeat` counts equal texts before it in the entry."""
    return _digest(entry, text, str(repeat))[:16]


def text_hash(text: str) -> bytes:
    """What an embedding is remembered by."""
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()[:16]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
