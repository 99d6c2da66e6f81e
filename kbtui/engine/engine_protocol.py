"""The engine's protocol: length-prefixed JSON over a Unix socket.

A frame is a length (four bytes, big-endian) and a JSON object of that length in UTF-8. The first
frame in each direction is a hello. Then the client sends requests (`id`, `op`, arguments). The
engine sends answers (`id`, `ok` or `error`) and, to clients that have subscribed, events (`event`).
The protocol does not use pickle.

This module imports little, so that short commands start fast.
"""

from __future__ import annotations

import json
import struct

from kbtui.workspace.paths import get_time_zone_variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal, TypedDict

    class RefreshProgress(TypedDict):
        """The progress of a refresh: `done` of `total` changed entries are indexed."""

        done: int
        total: int

    class EngineReadiness(TypedDict, total=False):
        """Which kinds of search the engine can do now, and what prevents the others.

        `lexical` and `semantic` say whether keyword search and semantic search are available.
        `reason` says why semantic search is not available. `left` is the number of passages without
        a vector, or None if it is unknown. `error` says why the last refresh failed.
        `configuration_problem` says what is wrong with the workspace's configuration. `reading` is the
        progress of a running refresh.
        """

        lexical: bool
        semantic: bool
        reason: str | None
        left: int | None
        error: str | None
        configuration_problem: str | None
        reading: RefreshProgress | None

    class RefreshOutcome(EngineReadiness, total=False):
        """The engine's readiness after a client has waited for a refresh.

        `done` says whether the refresh is finished. `mended` describes the damage that the refresh repaired.
        """

        done: bool
        mended: str | None

    class EngineEvent(EngineReadiness, total=False):
        """A message to subscribers.

        The event `ready` has the fields of `EngineReadiness`, `progress` has `phase`, `done`,
        `total`, `waits` and `seconds_left`, and `gone` has `reason`. `changed` has
        `subjects` (references), `conversations` (ids) and `knowledge` (whether the lists of topics
        and subjects must be reloaded).
        """

        event: Literal["changed", "gone", "progress", "ready"]
        phase: str
        done: int
        total: int
        waits: str | None
        seconds_left: float | None
        knowledge: bool
        subjects: list[str]
        conversations: list[str]


PROTOCOL_VERSION = 3
REQUEST_BYTES_MAX = 1 << 20
"""The maximum length in bytes of a frame to the engine."""
ANSWER_BYTES_MAX = 16 << 20
"""The maximum length in bytes of a frame from the engine."""
WAIT_SECONDS, SEARCH_SECONDS = 10.0, 25.0
"""The default time that a search waits for the model, and its time limit after this wait, in seconds."""
MAX_WAIT_SECONDS = 86_400
FRAME_HEADER = struct.Struct(">I")


class InvalidProtocolFrame(Exception):
    """The received bytes violate the protocol."""


def validate_wait_seconds(seconds: float, where: str) -> None:
    """Raise `UsageError` unless `seconds` is from 0 to `MAX_WAIT_SECONDS`; `where` names the argument."""
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        from kbtui.errors import UsageError

        raise UsageError(
            f"must be from 0 to {MAX_WAIT_SECONDS} seconds, not {seconds:g}", where=where
        )


def make_engine_search_arguments(
    question: dict[str, Any], *, wait: float = WAIT_SECONDS, origin: str | None, **more: Any
) -> dict[str, Any]:
    """Return the arguments of `EngineClient.send_request` for the operation `search`.

    `question` is a `SearchRequest` as JSON; if it names no time zone, it gets the time zone of this
    process. The search waits up to `wait` seconds for the model. `origin` is recorded in the query
    log; if it is None, the search is not logged.
    """
    question = {"zone": get_time_zone_variable(), **question}
    timeout = wait + SEARCH_SECONDS
    return {"question": question, "wait": wait, "origin": origin, "timeout": timeout, **more}


def encode_message_as_frame(message: Mapping[str, Any]) -> bytes:
    """Return a message as a frame."""
    body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return FRAME_HEADER.pack(len(body)) + body


def parse_frame_length(header: bytes, most: int) -> int:
    """Parse the length of a frame; raises `InvalidProtocolFrame` if it exceeds `most`."""
    (size,) = FRAME_HEADER.unpack(header)
    if size > most:
        raise InvalidProtocolFrame(f"a frame of {size} bytes exceeds the limit of {most}")
    return int(size)


def decode_frame_body(body: bytes) -> dict[str, Any]:
    """Parse a frame's body; raises `InvalidProtocolFrame` if it is not a JSON object."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidProtocolFrame(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise InvalidProtocolFrame("not an object")
    return message


def make_hello_message(version: str, **more: Any) -> dict[str, Any]:
    """Return the first message of a connection.

    `more` has the facts that an engine adds about itself, such as its `pid` and its index's `schema`.
    """
    return {"hello": "kbtui", "protocol": PROTOCOL_VERSION, "version": version, **more}
