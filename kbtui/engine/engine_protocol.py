"""The engine's protocol: length-prefixed JSON over a Unix socket.

A frame is a length (four bytes, big-endian) followed by a JSON object of that many bytes in UTF-8.
The first frame in each direction is a hello. Then the client sends requests (`id`, `op`, arguments). The
engine sends answers (`id`, `ok` or `error`) and, to clients that have subscribed, events (`event`).
The protocol does not use pickle.

This module imports little, so that short commands start fast.
"""

from __future__ import annotations

# `json` imports `re`. Importing `re` would take a third of the total time of a search through the
# engine.
from _json import encode_basestring_ascii, make_encoder, make_scanner

from kbtui.workspace.paths import get_time_zone_variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal, Required, TypedDict, Unpack

    from kbtui.index.workspace_index_writer import IndexPhase
    from kbtui.notices import EmbeddedParts, NoticeValues, PauseReason

    class HelloMessage(TypedDict, total=False):
        """The first message that each side of a connection sends.

        Both sides send `hello`, `protocol` and `version`. A client also sends `root`, the path of
        the workspace that its requests are for, and `client_environment`, its values for the
        variables in `paths.CLIENT_VARIABLES`. If `opens` is false, the engine does not open this
        workspace.

        An engine also sends `schema`, a hash of the index's format, its `pid`, and `cache`, the
        path of the directory with all its indexes. `is_open` says whether the workspace is open, or
        is being opened. `agent_variables` contains the variables that say where agents store their
        conversations, with the values from the client that opened the workspace.
        """

        hello: str
        protocol: int
        version: str
        root: str
        client_environment: dict[str, str]
        opens: bool
        schema: str
        pid: int
        cache: str
        is_open: bool
        agent_variables: dict[str, str]

    class IndexRefreshProgress(TypedDict):
        """The progress of a refresh: `done` of `total` changed entries are indexed already."""

        done: int
        total: int

    class EngineReadiness(TypedDict, total=False):
        """The kinds of search that are available now, and the reasons why others are not.

        * `lexical` and `semantic` say whether keyword search and semantic search are available.
        * `keywords_only` contains the values to insert into the notice that explains why semantic
          search is unavailable. It is None if there is no such notice.
        * `left` is the number of passages without a vector, or None if it is unknown.
        * `paused` says whether the user has paused the embedding of passages.
        * `error` says why the last refresh failed.
        * `configuration_problem` says what is wrong with the workspace's configuration.
        * `reading` is the progress of a running refresh.
        """

        lexical: bool
        semantic: bool
        keywords_only: NoticeValues | None
        left: int | None
        paused: bool
        error: str | None
        configuration_problem: str | None
        reading: IndexRefreshProgress | None

    class EngineReadinessAfterWait(EngineReadiness, total=False):
        """The engine's readiness when a client stops waiting for a refresh or for vectors.

        `done` says whether the awaited work has finished: for the operation `settle`, the embedding;
        for other operations, a refresh. `mended` describes the damage to the index that the refresh
        has repaired; None if there was none.
        """

        done: bool
        mended: str | None

    class EngineReadinessEvent(EngineReadiness):
        """An event: the engine's readiness may have changed."""

        event: Literal["ready"]

    class IndexProgressEvent(TypedDict):
        """An event: a phase of indexing has advanced.

        * `done`, `total` and `parts` mean the same as in `IndexProgress`.
        * `waits` says why the work is paused; it is None if the work is not paused.
        * `per_second` is the number of entries or passages done per second.
        * `per_second` and `seconds_left` are None while they are unknown.
        """

        event: Literal["progress"]
        phase: IndexPhase
        done: int
        total: int
        parts: EmbeddedParts
        waits: PauseReason | None
        per_second: float | None
        seconds_left: float | None

    class IndexChangedEvent(TypedDict):
        """An event: files have changed, and the index contains the changes.

        `subjects` contains the references of changed subjects, and `conversations` the ids of changed
        conversations. `knowledge` says whether the lists of topics and subjects must be reloaded.
        """

        event: Literal["changed"]
        knowledge: bool
        subjects: list[str]
        conversations: list[str]

    class ConnectionEndedEvent(TypedDict):
        """An event: the connection to the engine has ended. The client itself creates this event.

        `reason` is the message of the error, or None if there was no error.
        """

        event: Literal["gone"]
        reason: str | None

    EngineEvent = (
        EngineReadinessEvent | IndexProgressEvent | IndexChangedEvent | ConnectionEndedEvent
    )
    """An event that a client receives after it has subscribed to the engine."""

    class WorkspaceStatus(EngineReadiness):
        """The answer to `status`: the state of an open workspace.

        `clients` is the number of the workspace's clients. `progress` is the last `progress` event,
        or None if the phase that it reports is done.
        """

        pid: int
        version: str
        root: str
        generation: str | None
        clients: int
        progress: IndexProgressEvent | None
        busy: bool
        polling: str | None

    class EngineStatus(TypedDict):
        """The answer to `engine_status`, an operation that needs no open workspace.

        `memory` is the resident memory of the engine's process in bytes, or None if it is unknown.
        """

        pid: int
        version: str
        memory: int | None
        workspaces: list[WorkspaceStatus]

    class IndexRefreshOptions(TypedDict, total=False):
        """The options of the operation `refresh`.

        * `force`: start a refresh (the default). If false, only wait for the engine's first
          refresh; the file watcher takes care of later changes.
        * `retry`: retry the files that could not be read, and the passages that could not be
          embedded.
        * `check`: check the index for damage first. If it is damaged, rebuild it, and describe the
          damage in the answer's `mended`. The value "suspicion" skips the check if there was one
          recently.
        * `rebuild`: build a new index.
        """

        force: bool
        retry: bool
        check: bool | Literal["suspicion"]
        rebuild: bool

    class IndexRefreshRequest(IndexRefreshOptions, total=False):
        """The arguments of the operation `refresh`. The engine waits at most `wait` seconds, then answers."""

        wait: float

    class EngineSearchArguments(TypedDict, total=False):
        """The arguments of the operation `search`.

        * `question`: a `SearchRequest` as JSON.
        * `wait`: the maximum number of seconds that the search waits for the model.
        * `origin` and `caller`: recorded in the query log. Without `origin`, the search is not
          logged.
        * `uses_model`: whether the search may use the model; if false, it uses only keywords.
        * `client_environment`: the fingerprint of the client's environment and settings file. If the
          engine's fingerprint differs, the engine declines the search.
        """

        question: Required[dict[str, Any]]
        wait: float
        origin: str | None
        caller: str | None
        uses_model: bool
        client_environment: str

    class EngineSearchReply(TypedDict, total=False):
        """The answer to `search`, which has one of three sets of fields.

        * `answer` (from `SearchAnswer.as_engine_message`) and `suspect`. If `suspect` is true, the
          answer is empty, and the index was not checked recently, so damage could be the reason. Such
          a search is not logged.
        * `failed`: an error that the client must raise (class, message, location and hint).
        * `declined` and `detail`: why the engine cannot search, as a code and a message.
        """

        answer: dict[str, Any]
        suspect: bool
        failed: tuple[str, str, str | None, str | None]
        declined: Literal["damaged", "no_index", "client_environment", "zone"]
        detail: str


PROTOCOL_VERSION = 4
REQUEST_BYTES_MAX = 1 << 20
"""The maximum size, in bytes, of a frame that a client sends to the engine."""
ANSWER_BYTES_MAX = 16 << 20
"""The maximum size, in bytes, of a frame that the engine sends to a client."""
WAIT_SECONDS, SEARCH_SECONDS = 10.0, 25.0
"""The default limits, in seconds, on the time that a request waits.

* A search waits at most `WAIT_SECONDS` for the model.
* A request for a refresh waits at most `WAIT_SECONDS` for the end of the refresh. Then the engine
  answers that the refresh is not done.
* A client waits at most `WAIT_SECONDS` + `SEARCH_SECONDS` for the answer to a search.
"""
MAX_WAIT_SECONDS = 86_400
FRAME_HEADER_BYTES = 4
"""The size of a frame's header: the length of the frame's body, big-endian."""


class InvalidProtocolFrameError(Exception):
    """The received bytes violate the protocol."""


def validate_wait_seconds(seconds: float, where: str) -> None:
    """Raise `UsageError` unless `seconds` is from 0 to `MAX_WAIT_SECONDS`.

    `where` is the argument's name for the error message.
    """
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        from kbtui.errors import UsageError

        raise UsageError(
            f"must be from 0 to {MAX_WAIT_SECONDS} seconds, not {seconds:g}", where=where
        )


def get_max_wait_seconds_of_request(request: Mapping[str, object]) -> float:
    """Return how many seconds a request may wait: `WAIT_SECONDS` by default, and at most `MAX_WAIT_SECONDS`."""
    wait = request.get("wait")
    return float(min(MAX_WAIT_SECONDS, wait)) if isinstance(wait, int | float) else WAIT_SECONDS


def make_engine_search_arguments(request: EngineSearchArguments) -> dict[str, Any]:
    """Return the arguments of `EngineClient.send_request` for a search, including its time limit.

    If `request` specifies no time zone, its dates are in the time zone of this process.
    """
    wait = get_max_wait_seconds_of_request(request)
    question = {"zone": get_time_zone_variable(), **request["question"]}
    return {**request, "question": question, "wait": wait, "timeout": wait + SEARCH_SECONDS}


class _DefaultJsonDecoderOptions:
    """The options that `json.loads` gives to its scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def _raise_for_unserializable_value(value: object) -> object:
    raise TypeError(f"not a JSON value: {value!r}")


_scan_json: Any = make_scanner(_DefaultJsonDecoderOptions)  # type: ignore[arg-type]
_encode_json: Any = make_encoder(
    None,
    _raise_for_unserializable_value,
    encode_basestring_ascii,
    None,
    ":",
    ",",
    False,
    False,
    True,
)


def _parse_json_without_importing_json(text: str) -> Any:
    """Parse JSON like `json.loads`, but import `json` only to raise its error."""
    try:
        value, end = _scan_json(text, 0)
    except (StopIteration, SystemError, ValueError):
        end = -1
    if end == len(text):
        return value

    import json

    return json.loads(text)


def encode_message_as_frame(message: Mapping[str, Any]) -> bytes:
    """Return a message as a frame."""
    body = "".join(_encode_json(message, 0)).encode("ascii")
    return len(body).to_bytes(FRAME_HEADER_BYTES, "big") + body


def parse_frame_length(header: bytes, max_bytes: int) -> int:
    """Return the length in a frame's header. Raises `InvalidProtocolFrameError` if it exceeds `max_bytes`."""
    size = int.from_bytes(header, "big")
    if size > max_bytes:
        raise InvalidProtocolFrameError(f"a frame of {size} bytes exceeds the limit of {max_bytes}")
    return size


def decode_frame_body(body: bytes) -> Any:
    """Parse a frame's body. Raises `InvalidProtocolFrameError` if the body is not a JSON object."""
    try:
        message = _parse_json_without_importing_json(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidProtocolFrameError(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise InvalidProtocolFrameError("not an object")
    return message


def make_hello_message(**facts: Unpack[HelloMessage]) -> HelloMessage:
    """Return a hello message. `facts` are all its fields except `hello` and `protocol`."""
    return {"hello": "kbtui", "protocol": PROTOCOL_VERSION, **facts}
