"""What engine and clients say to each other: length-prefixed JSON over a Unix socket.

A frame is four bytes of length, big-endian, and that many bytes of UTF-8 JSON,
an object. The first frame each way is a hello. Then a client sends requests
(`id`, `op`, arguments), the engine answers (`id`, `ok` or `error`), and sends
events (`event`) to those that subscribed. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROTOCOL = 3
REQUEST_MOST = 1 << 20
"""Bytes of a frame to the engine."""
ANSWER_MOST = 16 << 20
"""Bytes of a frame from the engine."""
WAIT_SECONDS, SEARCH_SECONDS = 10.0, 25.0
"""How long a search waits for the model if not told otherwise, and how long it may take besides."""
HEADER = struct.Struct(">I")


class BadFrame(Exception):
    """Something that is not of this protocol."""


def encode(message: dict[str, Any]) -> bytes:
    """A message as a frame."""
    body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return HEADER.pack(len(body)) + body


def length(header: bytes, most: int) -> int:
    """The length that a header announces; raises `BadFrame` over `most`."""
    (size,) = HEADER.unpack(header)
    if size > most:
        raise BadFrame(f"a frame of {size} bytes is over {most}")
    return int(size)


def decode(body: bytes) -> dict[str, Any]:
    """A frame's body as a message; raises `BadFrame`."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadFrame("not an object")
    return message


def hello(version: str, **more: Any) -> dict[str, Any]:
    """The first message each way; an engine's has the `schema` of its index too."""
    return {"hello": "kbtui", "protocol": PROTOCOL, "version": version, **more}
