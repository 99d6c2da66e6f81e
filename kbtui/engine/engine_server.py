"""The engine's server: owns the workers of the engine, and answers clients on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kbtui.engine import engine_protocol
from kbtui.engine.embedding_worker import EmbeddingWorker
from kbtui.engine.file_watcher import FileWatcher
from kbtui.engine.index_worker import IndexWorker
from kbtui.engine.search_service import SearchService
from kbtui.errors import ConfigError, KbtuiError
from kbtui.index.index_generations import compute_index_schema_hash
from kbtui.sources.source_scheduler import SCHEDULE_SECONDS, SourceScheduler
from kbtui.userdata.user_data_store import UserData
from kbtui.version import __version__
from kbtui.workspace import load_settings
from kbtui.workspace.paths import (
    convert_path_to_utf8,
    is_peer_same_user,
    make_search_environment_fingerprint,
    read_agent_directory_variables,
)

if TYPE_CHECKING:
    import socket
    import threading
    from collections.abc import Awaitable, Callable, Mapping

    from kbtui.engine.engine_protocol import (
        EngineEvent,
        EngineReadiness,
        EngineReadinessEvent,
        EngineSearchReply,
        EngineSearchRequest,
        EngineStatus,
        HelloMessage,
        IndexProgressEvent,
        RefreshOutcome,
        RefreshProgress,
        RefreshRequest,
        WaitTimeLimit,
    )
    from kbtui.index.indexer import IndexProgress, IndexRefreshChanges
    from kbtui.workspace import Settings, Workspace


class RemainingTimeEstimator:
    """Estimates how many seconds a phase of work has left, from its pace so far."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[float, int]] = {}
        self._idle: dict[str, int] = {}

    def estimate_seconds_left(self, phase: str, done: int, total: int) -> float | None:
        """Return the seconds left, or None while too few items are done for an estimate."""
        now = time.monotonic()
        began, first = self._began.get(phase, (now, done))
        if done >= total:
            self._began.pop(phase, None)
            return None
        # The time before the first finished item includes loading, so it is ignored.
        if phase not in self._began or done < first or done == self._idle.get(phase):
            self._began[phase] = (now, done)
            self._idle[phase] = done
            return None
        self._idle.pop(phase, None)
        if now - began < 1.0 or done == first:
            return None
        return round((total - done) * (now - began) / (done - first), 1)


async def read_protocol_frame(reader: asyncio.StreamReader) -> Any:
    """Read the next message.

    Raises `InvalidProtocolFrame`, or `IncompleteReadError` if the connection has ended.
    """
    header = await reader.readexactly(engine_protocol.FRAME_HEADER.size)
    size = engine_protocol.parse_frame_length(header, engine_protocol.REQUEST_BYTES_MAX)
    return engine_protocol.decode_frame_body(await reader.readexactly(size))


def is_client_from_same_user(writer: asyncio.StreamWriter) -> bool:
    """Return whether the client is a process of this user."""
    peer = writer.get_extra_info("socket")
    return peer is None or is_peer_same_user(peer)


class ClientConnection:
    """The engine's connection to one client. The engine closes it if the client stops reading."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.is_subscribed = False
        self.pending_refresh: threading.Event | None = None
        """This event is set when the refresh that this client requested last is done."""
        self.wants_damage_check = False
        """Whether the refresh that this client requested last includes a check for damage."""

    def send_frame(self, frame: bytes) -> None:
        """Send a frame without waiting; close the connection if more than 4 MiB are unsent."""
        if self._writer.transport.get_write_buffer_size() > (4 << 20):
            self.close()
        elif not self._writer.is_closing():
            self._writer.write(frame)

    async def wait_until_frames_are_sent(self) -> None:
        """Wait while the send buffer is full. Raises `TimeoutError` if the wait takes more than 30 seconds."""
        await asyncio.wait_for(self._writer.drain(), 30.0)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(RuntimeError):
            self._writer.close()


async def wait_for_thread_event(event: threading.Event, seconds: float) -> bool:
    """Wait up to `seconds` for an event of another thread; return whether the event is set.

    Waiting does not occupy a thread.
    """
    end = time.monotonic() + seconds
    pause = 0.002
    while not event.is_set():
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return True


FIRST_REFRESH_SECONDS = 10.0
"""A search waits at most this many seconds until the engine has compared the index with the files once."""
MAX_SEARCHES = 16
"""At most this many searches run at the same time. Further searches wait until one has ended."""
HELLO_SECONDS = 10.0
"""If a client does not send its greeting within this many seconds, the engine closes the connection."""
IDLE_CHECK_SECONDS = 1.0
"""The interval in seconds at which the engine checks whether it is still needed."""
MAX_CLIENTS = 128
MAX_UNGREETED = 64
"""If more clients than this have connected but sent no greeting, the engine disconnects the first of them."""
LOG_SWEEP_SECONDS = 86_400.0
"""The interval in seconds at which the engine removes old searches from the query log."""


class EngineServer:
    """The engine's server for one workspace.

    It ends when it is idle or stopped, or when another engine has taken its place.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        listener: socket.socket,
        holds_lock_and_socket: Callable[[], bool],
        umask: int,
        log: Callable[[str], None],
    ) -> None:
        """Create the server.

        `holds_lock_and_socket` returns whether the lock file and the socket still belong to this
        engine. `umask` is the user's own umask, for files that sources write.
        """
        self._log = log
        self._workspace, self._settings = workspace, settings
        self._listener, self._umask = listener, umask
        self._holds_lock_and_socket = holds_lock_and_socket
        self._clients: set[ClientConnection] = set()
        self._ungreeted: list[ClientConnection] = []
        self._last_seen = time.monotonic()
        self._environment = make_search_environment_fingerprint()
        """The fingerprint of environment and settings file. When it changes, the settings are loaded again."""
        self._broken_environment: str | None = None
        """The value of the fingerprint when an error in the settings was last logged."""
        self._last_progress: IndexProgressEvent | None = None
        self._index_progress: RefreshProgress | None = None
        """The progress of the running refresh; None if no refresh is running."""
        self._time_estimate = RemainingTimeEstimator()
        self._search_pool = ThreadPoolExecutor(MAX_SEARCHES, thread_name_prefix="search")

    async def serve_clients(self) -> None:
        """Start the workers, serve clients until there is a reason to end, and stop the workers."""
        self._loop = asyncio.get_running_loop()
        self._should_end = asyncio.Event()
        self._embedding_worker = EmbeddingWorker(
            self._settings,
            self._workspace.cache_dir,
            self._broadcast_index_progress,
            self._broadcast_engine_readiness,
            self._log,
        )
        self._index_worker = IndexWorker(
            self._workspace,
            self._settings,
            self._broadcast_index_progress,
            self._handle_finished_refresh,
            self._log,
        )
        self._search_service = SearchService(
            self._workspace,
            self._settings,
            self._embedding_worker,
            lambda: self._index_worker.was_damage_checked_recently,
        )
        self._file_watcher = FileWatcher(
            self._workspace, self._index_worker.request_index_refresh, self._log
        )
        self._schedule = SourceScheduler(self._workspace, self._log, self._umask)
        self._index_worker.start_thread()
        self._file_watcher.start_thread()
        self._embedding_worker.start_thread()
        server = await asyncio.start_unix_server(self._serve_client, sock=self._listener)
        for name in ("SIGTERM", "SIGINT"):
            import signal

            self._loop.add_signal_handler(getattr(signal, name), self._should_end.set)
        try:
            await self._do_periodic_work_until_idle()
        finally:
            server.close()
            for client in [*self._clients, *self._ungreeted]:
                client.close()
            stops = (
                self._schedule.stop,
                self._file_watcher.stop_thread,
                self._index_worker.stop_thread,
                self._embedding_worker.stop_thread,
            )
            await asyncio.gather(*map(asyncio.to_thread, stops))
            self._search_pool.shutdown(wait=False, cancel_futures=True)

    async def _do_periodic_work_until_idle(self) -> None:
        """Do the engine's periodic work until there is a reason to end the engine."""
        swept = looked = -math.inf
        while not self._should_end.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._should_end.wait(), IDLE_CHECK_SECONDS)
            if time.monotonic() - swept > LOG_SWEEP_SECONDS:
                swept = time.monotonic()
                days = self._settings.query_log_days
                await asyncio.to_thread(
                    UserData(self._workspace).query_log.remove_old_logged_searches, days
                )
            if time.monotonic() - looked > SCHEDULE_SECONDS:
                looked = time.monotonic()
                await asyncio.to_thread(self._run_due_sources)
            self._search_service.close_index_if_idle()
            if reason := self._find_reason_to_end_engine():
                self._log(reason)
                return
            busy = (
                self._embedding_worker.is_busy
                or self._index_worker.is_busy
                or self._schedule.running_source_name
            )
            if self._clients or busy:
                self._last_seen = time.monotonic()
            elif time.monotonic() - self._last_seen > self._settings.engine_idle:
                self._log("idle")
                return

    def _find_reason_to_end_engine(self) -> str | None:
        """Return why this engine must end, or None if it can continue."""
        if not self._holds_lock_and_socket():
            return "the lock file or the socket was replaced"
        now = make_search_environment_fingerprint()
        if now == self._environment:
            return None
        try:
            is_changed = load_settings() != self._settings
        except ConfigError as error:
            if now != self._broken_environment:
                self._broken_environment = now
                self._log(f"keeping the previous settings: {error}")
            return None
        if is_changed:
            return "the settings have changed"
        # The environment has changed, but it leads to the same settings.
        self._environment = now
        return None

    def _run_due_sources(self) -> None:
        """Run the sources that are due, and log errors."""
        try:
            self._schedule.check_and_start_due_sources()
        except KbtuiError as error:
            self._log(f"sources: {error}")

    # called by the workers' threads

    def _broadcast_index_progress(self, progress: IndexProgress) -> None:
        event: IndexProgressEvent = {
            "event": "progress",
            "phase": progress.phase,
            "done": progress.done,
            "total": progress.total,
            "waits": progress.pause_reason,
            "seconds_left": self._time_estimate.estimate_seconds_left(
                progress.phase, progress.done, progress.total
            ),
        }
        self._last_progress = event if progress.done < progress.total else None
        if progress.phase == "keywords":
            self._index_progress = {"done": progress.done, "total": progress.total}
        self._broadcast_event_from_thread(event)

    def _handle_finished_refresh(self, changes: IndexRefreshChanges) -> None:
        self._file_watcher.set_watched_topic_directories(self._index_worker.topic_folders)
        if not changes.is_unfinished:
            self._index_progress = None
        if changes or not self._index_worker.has_reported_generation:
            self._index_worker.has_reported_generation = True
            self._embedding_worker.set_generation_to_embed(self._index_worker.generation_directory)
        if changes:
            self._broadcast_event_from_thread(
                {
                    "event": "changed",
                    "knowledge": changes.knowledge,
                    "subjects": changes.subjects[:500],
                    "conversations": changes.conversations[:500],
                }
            )
        self._broadcast_engine_readiness()

    def _broadcast_engine_readiness(self) -> None:
        self._broadcast_event_from_thread({"event": "ready", **self._describe_engine_readiness()})

    def _describe_engine_readiness(self) -> EngineReadiness:
        """Return the readiness that clients get in answers and in `ready` events."""
        notice = (
            None
            if self._embedding_worker.is_asleep
            else self._embedding_worker.keywords_only_notice
        )
        return {
            "lexical": self._index_worker.first_refresh.is_set(),
            "semantic": notice is None,
            "keywords_only": notice.values if notice else None,
            "left": self._embedding_worker.left,
            "error": self._index_worker.error,
            "configuration_problem": self._index_worker.configuration_problem,
            "reading": self._index_progress,
        }

    def _broadcast_event_from_thread(self, event: EngineEvent) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._broadcast_event, event)

    def _broadcast_event(self, event: EngineEvent) -> None:
        frame = engine_protocol.encode_message_as_frame(event)
        for client in list(self._clients):
            if client.is_subscribed:
                client.send_frame(frame)

    # clients

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Exchange hello messages, then answer the client's requests until the client disconnects."""
        client = ClientConnection(writer)
        if len(self._clients) >= MAX_CLIENTS or not is_client_from_same_user(writer):
            client.close()
            return
        self._ungreeted.append(client)
        if len(self._ungreeted) > MAX_UNGREETED:
            # Close the oldest connection without a hello, so that silent connections do not lock
            # clients out.
            self._ungreeted.pop(0).close()
        try:
            greeting: HelloMessage = await asyncio.wait_for(
                read_protocol_frame(reader), HELLO_SECONDS
            )
            self._ungreeted.remove(client)
            if greeting.get("hello") != "kbtui":
                return
            self._end_engine_if_obsolete()
            others = len(self._clients)
            self._clients.add(client)
            client.send_frame(
                engine_protocol.encode_message_as_frame(
                    engine_protocol.make_hello_message(
                        version=__version__,
                        schema=compute_index_schema_hash(),
                        pid=os.getpid(),
                        root=str(self._workspace.root),
                        cache=convert_path_to_utf8(os.path.realpath(self._workspace.cache_dir)),
                        model=self._settings.model,
                        agent_variables=read_agent_directory_variables(),
                        others=others,
                    )
                )
            )
            if int(greeting.get("protocol") or 0) > engine_protocol.PROTOCOL_VERSION:
                self._log("stopping because a newer client connected")
                self._should_end.set()
                return
            while True:
                request = await read_protocol_frame(reader)
                # The requests of one client run in sequence, those of several clients in parallel.
                client.send_frame(await self._answer_request(client, request))
                await client.wait_until_frames_are_sent()
        except (engine_protocol.InvalidProtocolFrame, TypeError, ValueError) as error:
            self._log(f"closed a client's connection: {error}")
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        except asyncio.CancelledError:
            pass  # the engine ends while this client waits; asyncio would log this as an error
        finally:
            self._clients.discard(client)
            if client in self._ungreeted:
                self._ungreeted.remove(client)
            self._last_seen = time.monotonic()
            client.close()

    async def _answer_request(self, client: ClientConnection, request: Any) -> bytes:
        """Run the operation of a request and return the answer as a frame."""
        number = request.get("id")
        operation = self._OPERATIONS.get(request.get("op"))
        if operation is None:
            return engine_protocol.encode_message_as_frame(
                {"id": number, "error": f"unknown operation {request.get('op')!r}"}
            )
        try:
            found = await operation(self, client, request)
        except (engine_protocol.InvalidProtocolFrame, KeyError, TypeError, ValueError) as error:
            return engine_protocol.encode_message_as_frame(
                {"id": number, "error": f"{type(error).__name__}: {error}"}
            )
        return engine_protocol.encode_message_as_frame({"id": number, "ok": found})

    async def _execute_status_operation(
        self, client: ClientConnection, request: object
    ) -> EngineStatus:
        return {
            "pid": os.getpid(),
            "version": __version__,
            "root": str(self._workspace.root),
            "generation": self._index_worker.generation_name,
            "clients": len(self._clients),
            "progress": self._last_progress,
            "busy": self._embedding_worker.is_busy or self._index_worker.is_busy,
            "polling": self._file_watcher.polling_reason,
            **self._describe_engine_readiness(),
        }

    async def _execute_subscribe_operation(
        self, client: ClientConnection, request: object
    ) -> EngineReadinessEvent:
        client.is_subscribed = True
        self._embedding_worker.request_model_loading()
        return {"event": "ready", **self._describe_engine_readiness()}

    async def _execute_refresh_operation(
        self, client: ClientConnection, request: RefreshRequest
    ) -> RefreshOutcome:
        """Bring the index up to date with a new refresh; answer when the refresh is done."""
        self._end_engine_if_obsolete()
        wait = engine_protocol.get_wait_seconds(request)
        check = request.get("check")
        if check == "suspicion" and self._index_worker.was_damage_checked_recently:
            return {"done": True, "mended": None, **self._describe_engine_readiness()}
        if request.get("rebuild"):
            done = self._index_worker.request_index_rebuild()
        elif check:
            if request.get("retry"):
                self._embedding_worker.retry_failed_model_loading()
                self._index_worker.request_retry_of_unreadable_files()
            done = self._index_worker.request_index_damage_check()
        elif request.get("retry"):
            self._embedding_worker.retry_failed_model_loading()
            done = self._index_worker.request_retry_of_unreadable_files()
        elif request.get("force", True):
            done = self._index_worker.request_index_refresh()
        else:
            done = self._index_worker.first_refresh
        client.pending_refresh, client.wants_damage_check = done, bool(check)
        return await self._wait_for_requested_refresh(client, wait)

    async def _execute_refreshed_operation(
        self, client: ClientConnection, request: WaitTimeLimit
    ) -> RefreshOutcome:
        """Wait, up to the time limit in `request`, for the refresh that this client requested last."""
        if client.pending_refresh is None:
            raise ValueError("this connection has not requested a refresh")
        return await self._wait_for_requested_refresh(
            client, engine_protocol.get_wait_seconds(request)
        )

    async def _wait_for_requested_refresh(
        self, client: ClientConnection, wait: float
    ) -> RefreshOutcome:
        assert client.pending_refresh is not None
        finished = await wait_for_thread_event(client.pending_refresh, wait)
        self._end_engine_if_obsolete()
        mended = (
            self._index_worker.repaired_damage if client.wants_damage_check and finished else None
        )
        return {"done": finished, "mended": mended, **self._describe_engine_readiness()}

    def _end_engine_if_obsolete(self) -> None:
        """End the engine if it must end, and raise `ConnectionResetError` so that the client asks the next engine."""
        if reason := self._find_reason_to_end_engine():
            self._should_end.set()
            raise ConnectionResetError(reason)

    async def _execute_settle_operation(
        self, client: ClientConnection, request: WaitTimeLimit
    ) -> RefreshOutcome:
        """Wait until every chunk has its vector.

        The wait also ends when an error prevents embedding, or at the time limit in `request`.
        """
        finished = await wait_for_thread_event(
            self._embedding_worker.caught_up, engine_protocol.get_wait_seconds(request)
        )
        return {"done": finished, "mended": None, **self._describe_engine_readiness()}

    async def _execute_search_operation(
        self, client: ClientConnection, request: EngineSearchRequest
    ) -> EngineSearchReply:
        """Answer a search. Decline it if the client and the engine have different environments or settings files."""
        self._end_engine_if_obsolete()
        if request.get("surroundings", self._environment) != self._environment:
            return {"declined": "surroundings"}
        if request["question"].get("mode") != "lexical" and request.get("uses_model", True):
            self._embedding_worker.request_model_loading()
        is_done = await wait_for_thread_event(
            self._index_worker.first_refresh, FIRST_REFRESH_SECONDS
        )
        state: RefreshOutcome = {
            "done": is_done,
            "mended": None,
            **self._describe_engine_readiness(),
        }
        return await self._loop.run_in_executor(
            self._search_pool, self._search_service.answer_client_search, request, state
        )

    async def _execute_stop_operation(
        self, client: ClientConnection, request: object
    ) -> dict[str, bool]:
        # The event loop sends the answer before it runs this callback.
        self._loop.call_soon(self._should_end.set)
        return {"stopping": True}

    _OPERATIONS: Mapping[
        object, Callable[[EngineServer, ClientConnection, Any], Awaitable[Mapping[str, object]]]
    ] = {
        "search": _execute_search_operation,
        "refresh": _execute_refresh_operation,
        "refreshed": _execute_refreshed_operation,
        "settle": _execute_settle_operation,
        "status": _execute_status_operation,
        "subscribe": _execute_subscribe_operation,
        "stop": _execute_stop_operation,
    }
