"""What engine and clients say to each other: length-prefixed JSON over a Unix socket.

A frame is four bytes of length, big-endian, and that many bytes of UTF-8 JSON,
an object. The first frame each way is a hello. Then a client sends requests
(`id`, `op`, arguments), the engine answers (`id`, `ok` or `error`), and sends
events (`event`) to those that subscribed. Nothing is ever unpickled. One operation,
`search`, is answered by text instead of JSON, for a client that imports nothing (`answering`).
"""

import json
import struct
from typing import Any

PROTOCOL = 3
REQUEST_MOST = 1 << 20
"""Bytes of a frame to the engine."""
ANSWER_MOST = 16 << 20
"""Bytes of a frame from the engine."""
HEADER = struct.Struct(">I")


class BadFrame(Exception):
    """Something that is not of this protocol."""


def encode(message: dict[str, Any]) -> bytes:
    """A message as a frame."""
    body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return framed(body)


def framed(body: bytes) -> bytes:
    """A frame with this body."""
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


def hello(version: str, schema: str, **more: Any) -> dict[str, Any]:
    """The first message each way; `schema` is the mark of the index that the sender can read."""
    return {"hello": "kbtui", "protocol": PROTOCOL, "version": version, "schema": schema, **more}
