"""A workspace that the engine has open: its workers, its clients' connections, and the answers to their requests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from kbtui.engine import engine_protocol
from kbtui.engine.embedding_worker import EmbeddingWorker, WorkspaceEmbeddingModel
from kbtui.engine.file_watcher import FileWatcher
from kbtui.engine.index_refresh_worker import IndexRefreshWorker
from kbtui.engine.search_service import SearchService
from kbtui.engine.session_archiver import SessionArchiver
from kbtui.errors import ConfigError, KbtuiError
from kbtui.sources.document_source_scheduler import SCHEDULE_SECONDS, DocumentSourceScheduler
from kbtui.userdata.user_data_store import UserData
from kbtui.version import __version__
from kbtui.workspace import load_settings
from kbtui.workspace.paths import (
    convert_path_to_utf8,
    make_fingerprint_of_settings_affecting_search,
)
from kbtui.workspace.published_library_settings import find_existing_mirror_of_subscribed_library

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable, Mapping
    from concurrent.futures import Executor

    from kbtui.engine.embedding_worker import SharedEmbeddingModels
    from kbtui.engine.engine_protocol import (
        EngineEvent,
        EngineReadiness,
        EngineReadinessAfterWait,
        EngineReadinessEvent,
        EngineSearchArguments,
        EngineSearchReply,
        IndexProgressEvent,
        IndexRefreshProgress,
        IndexRefreshRequest,
        WorkspaceStatus,
    )
    from kbtui.index.workspace_index_writer import IndexProgress, IndexRefreshChanges
    from kbtui.workspace import Settings, Workspace
    from kbtui.workspace.client_environment import ClientEnvironment


class ClientConnection:
    """The engine's connection to one client. The engine closes it if the client stops reading."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.is_subscribed = False
        self.pending_refresh: threading.Event | None = None
        """The event for the refresh that this client requested last; None if it has requested none.

        The event is set when the refresh is done.
        """
        self.wants_damage_check = False
        """Whether the refresh that this client requested last includes a check for damage."""

    def send_frame(self, frame: bytes) -> None:
        """Send a frame without waiting. Close the connection if over 4 MiB are waiting to be sent."""
        if self._writer.transport.get_write_buffer_size() > (4 << 20):
            self.close()
        elif not self._writer.is_closing():
            self._writer.write(frame)

    async def wait_for_send_buffer_space(self) -> None:
        """Wait while the send buffer is full. Raises `TimeoutError` if the wait takes more than 30 seconds."""
        await asyncio.wait_for(self._writer.drain(), 30.0)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(RuntimeError):
            self._writer.close()


Answer = TypeVar("Answer")

PACE_SECONDS = 30.0
"""The approximate time in seconds over which the speed of a phase of work is measured."""


class ItemRateMeter:
    """Measures the speed of each phase of work, in items per second."""

    def __init__(self) -> None:
        self._samples: dict[str, list[tuple[float, int]]] = {}
        """Maps each phase to pairs (time, number of items done by then) from about the last `PACE_SECONDS`.

        The first pair is from the beginning of the phase. It is dropped as soon as more items are
        done, because the time until then includes loading.
        """
        self._has_advanced: set[str] = set()

    def measure_items_per_second(
        self, phase: str, done: int, total: int, *, is_paused: bool = False
    ) -> float | None:
        """Return the number of items per second, or None while it is unknown.

        Call this whenever the work advances or pauses.
        """
        now = time.monotonic()
        samples = self._samples.setdefault(phase, [])
        if done >= total or is_paused or (samples and done < samples[-1][1]):
            samples.clear()
            self._has_advanced.discard(phase)
        if done >= total or is_paused:
            return None
        if samples and phase not in self._has_advanced:
            if done > samples[0][1]:
                self._has_advanced.add(phase)
            samples.clear()
        samples.append((now, done))
        while len(samples) > 2 and now - samples[1][0] >= PACE_SECONDS:
            samples.pop(0)
        began, first = samples[0]
        return (done - first) / (now - began) if now - began >= 1.0 and done > first else None


async def wait_for_thread_event(event: threading.Event, seconds: float) -> bool:
    """Wait up to `seconds` for another thread's event; return whether the event is set.

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
"""A search waits at most this many seconds for the engine to compare the index with the files for the first time."""
UNSCHEDULED_SECONDS = 120.0
"""While no source has a schedule, the engine looks for new schedules at this interval, in seconds."""
PULL_CHECK_SECONDS = 30.0
"""The engine checks at this interval, in seconds, whether to refresh the published library."""
LOG_SWEEP_SECONDS = 86_400.0
"""The interval in seconds at which the engine removes old searches from the query log."""


class EngineWorkspace:
    """An open workspace, with the threads that watch and index its files and embed its passages.

    `clients` are the clients that have sent a hello message. `operations` maps the name of each
    operation to the function that answers requests for it. Call the function within
    `client_environment.apply_to_thread_or_task()`.
    """

    def __init__(
        self,
        workspace: Workspace,
        client_environment: ClientEnvironment,
        settings: Settings,
        search_pool: Executor,
        umask: int,
        end_if_obsolete: Callable[[], None],
        log: Callable[[str], None],
        models: SharedEmbeddingModels | None = None,
        loads_model_early: Callable[[], bool] = lambda: True,
    ) -> None:
        """Create the workers; call this in the event loop.

        The workers and `operations` read the environment variables in `client_environment`.
        Searches and other slow work run in `search_pool`, which no other workspace uses; `models`
        are shared by all workspaces. Sources write their files with `umask`, the user's own umask.
        Operations call `end_if_obsolete`, which raises `ConnectionResetError` if the client must
        connect again. If `loads_model_early` returns true, the model is loaded when a client
        subscribes to events; if it returns false, at the client's first search.
        """
        self.workspace, self.settings, self._log = workspace, settings, log
        self.client_environment = client_environment
        self._search_pool, self._end_if_obsolete = search_pool, end_if_obsolete
        self._loads_model_early = loads_model_early
        self._loop = asyncio.get_running_loop()
        self.clients: set[ClientConnection] = set()
        self._environment: str | None = None
        """The fingerprint of the environment and the settings file at the last check.

        If the fingerprint has changed, the settings are loaded again. It is initially None, so that
        the first check loads them, because the file may have changed since the workspace was opened.
        """
        self._broken_environment: str | None = None
        """The value that the fingerprint had when an error in the settings was last logged."""
        self._last_progress: IndexProgressEvent | None = None
        self._index_progress: IndexRefreshProgress | None = None
        """The progress of the running refresh; None if no refresh is running."""
        self._pace = ItemRateMeter()
        self._log_swept_at = self._schedule_checked_at = self._pull_check_due_at = -math.inf
        # The workers create their threads here, so that the threads read these environment variables.
        with client_environment.apply_to_thread_or_task():
            self._embedding_worker = EmbeddingWorker(
                settings,
                workspace.cache_dir,
                self._broadcast_index_progress,
                self._broadcast_engine_readiness,
                log,
                WorkspaceEmbeddingModel(settings.model, log, models),
                lambda: find_existing_mirror_of_subscribed_library(workspace),
            )
            self._index_refresh_worker = IndexRefreshWorker(
                workspace,
                settings,
                self._broadcast_index_progress,
                self._report_refresh_to_workers_and_clients,
                log,
            )
            self._search_service = SearchService(
                workspace,
                settings,
                self._embedding_worker,
                lambda: self._index_refresh_worker.was_damage_checked_recently,
            )
            self._file_watcher = FileWatcher(
                workspace, self._index_refresh_worker.refresh_after_file_change, log
            )
            self._schedule = DocumentSourceScheduler(workspace, log, umask)
            self._session_archiver = SessionArchiver(workspace, settings, log)
        self.operations: Mapping[
            object, Callable[[ClientConnection, Any], Awaitable[Mapping[str, object]]]
        ] = {
            "search": self._execute_search_operation,
            "refresh": self._execute_refresh_operation,
            "refreshed": self._wait_for_last_refresh_of_client,
            "settle": self._wait_until_all_embedded,
            "pause": self._execute_pause_operation,
            "prefer": self._execute_prefer_operation,
            "status": self._execute_status_operation,
            "subscribe": self._execute_subscribe_operation,
        }

    def start_threads(self) -> None:
        """Start the threads, which first bring the index up to date."""
        self._index_refresh_worker.start_thread()
        self._file_watcher.start_thread()
        self._embedding_worker.start_thread()
        self._session_archiver.start_thread()

    async def stop_threads(self) -> None:
        """Stop the threads and the running source; wait up to ten seconds for them to end."""
        stops = (
            self._schedule.stop,
            self._file_watcher.stop_thread,
            self._index_refresh_worker.stop_thread,
            self._embedding_worker.stop_thread_without_waiting,
            self._session_archiver.stop_thread,
        )
        # Other workspaces may occupy all threads of `asyncio.to_thread`.
        with_threads = ThreadPoolExecutor(len(stops), thread_name_prefix="stop")
        try:
            await asyncio.gather(
                *(self._loop.run_in_executor(with_threads, stop) for stop in stops)
            )
        finally:
            with_threads.shutdown(wait=False)

    @property
    def may_still_write_files(self) -> bool:
        """Whether a thread may still be writing the index or the vectors. Use this only after `stop_threads`."""
        return self._index_refresh_worker.is_alive or self._embedding_worker.may_still_write_files

    def close_index_and_wakeup_descriptor(self) -> None:
        """Close the files and descriptors that are still open after `stop_threads`."""
        self._search_service.close_index_if_idle(0.0)
        self._file_watcher.close_wakeup_descriptor()

    @property
    def is_busy(self) -> bool:
        """Whether the engine is indexing or embedding this workspace, or running one of its sources."""
        is_embedding = (
            self._embedding_worker.is_busy and not self._embedding_worker.is_paused_by_user
        )
        return bool(
            is_embedding or self._index_refresh_worker.is_busy or self._schedule.running_source_name
        )

    @property
    def has_passages_to_embed(self) -> bool:
        """Whether there are passages without a vector; True while this is unknown."""
        return self._embedding_worker.left != 0

    async def do_periodic_work(self) -> None:
        """Do the work that is due: clean the query log, start sources, pull the published library, close the index."""
        with self.client_environment.apply_to_thread_or_task():
            if time.monotonic() - self._log_swept_at > LOG_SWEEP_SECONDS:
                self._log_swept_at = time.monotonic()
                days = self.settings.query_log_days
                await self._run_in_thread(
                    UserData(self.workspace).query_log.remove_old_logged_searches, days
                )
            has_schedule = self._schedule.has_scheduled_source
            pause = SCHEDULE_SECONDS if has_schedule else UNSCHEDULED_SECONDS
            if time.monotonic() - self._schedule_checked_at > pause:
                self._schedule_checked_at = time.monotonic()
                await self._run_in_thread(self._start_due_document_sources)
            if time.monotonic() > self._pull_check_due_at:
                pause = PULL_CHECK_SECONDS
                if find_existing_mirror_of_subscribed_library(self.workspace) is not None:
                    pause = await self._run_in_thread(self._pull_library_if_due)
                self._pull_check_due_at = time.monotonic() + pause
        self._search_service.close_index_if_idle()

    def check_files_soon(self) -> None:
        """Make the watcher look for changed files soon, unless it has done so recently."""
        self._file_watcher.check_watched_roots_soon()

    async def _run_in_thread(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Call `work` in a thread of this workspace, in the workspace's client environment."""
        return await self._loop.run_in_executor(
            self._search_pool, copy_context().run, work, *arguments
        )

    def _start_due_document_sources(self) -> None:
        """Run the sources that are due, and log errors."""
        try:
            self._schedule.check_and_start_due_sources()
        except KbtuiError as error:
            self._log(f"sources: {error}")

    def _pull_library_if_due(self) -> float:
        """Fetch the current version of the published library if a pull is due; log errors.

        Returns the number of seconds until the next check.
        """
        from kbtui.publishing.published_library_pull import (
            load_library_subscription_settings,
            pull_subscribed_library,
            record_pull_attempt_if_due,
        )

        try:
            if (
                record_pull_attempt_if_due(self.workspace)
                and not pull_subscribed_library(self.workspace).is_unchanged
            ):
                self._index_refresh_worker.request_index_refresh()
            if minutes := load_library_subscription_settings(self.workspace).refresh_minutes:
                return min(PULL_CHECK_SECONDS, minutes * 60)
        except (KbtuiError, OSError, sqlite3.Error) as error:
            self._log(f"the published library was not refreshed: {error}")
        return PULL_CHECK_SECONDS

    def find_reason_to_reopen(self) -> str | None:
        """Return why the workspace must be closed and opened again, or None if it can stay open."""
        if not self._index_refresh_worker.is_alive:
            return "the thread that writes the index has ended"
        with self.client_environment.apply_to_thread_or_task():
            return self._find_settings_reason_to_reopen()

    def _find_settings_reason_to_reopen(self) -> str | None:
        now = make_fingerprint_of_settings_affecting_search()
        if now == self._environment:
            return None
        try:
            is_changed = load_settings() != self.settings
        except ConfigError as error:
            if now != self._broken_environment:
                self._broken_environment = now
                self._log(f"keeping the previous settings: {error}")
            return None
        if is_changed:
            return "the settings have changed"
        # The environment has changed, but the settings are the same.
        self._environment = now
        return None

    # called by the workers' threads

    def _broadcast_index_progress(self, progress: IndexProgress) -> None:
        pace = self._pace.measure_items_per_second(
            progress.phase,
            progress.done,
            progress.total,
            is_paused=progress.pause_reason is not None,
        )
        event: IndexProgressEvent = {
            "event": "progress",
            "phase": progress.phase,
            "done": progress.done,
            "total": progress.total,
            "parts": progress.parts,
            "waits": progress.pause_reason,
            "per_second": round(pace, 1) if pace else None,
            "seconds_left": round((progress.total - progress.done) / pace, 1) if pace else None,
        }
        self._last_progress = event if progress.done < progress.total else None
        if progress.phase == "keywords":
            self._index_progress = {"done": progress.done, "total": progress.total}
        self._broadcast_event_from_thread(event)

    def _report_refresh_to_workers_and_clients(self, changes: IndexRefreshChanges) -> None:
        self._file_watcher.set_watched_topic_directories(self._index_refresh_worker.topic_folders)
        if not changes.is_unfinished:
            self._index_progress = None
            self._session_archiver.request_archiving()
        if changes or not self._index_refresh_worker.has_reported_generation:
            self._index_refresh_worker.has_reported_generation = True
            self._embedding_worker.set_index_generation_to_embed(
                self._index_refresh_worker.index_generation_directory
            )
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
        """Return the readiness that clients receive in answers and in `ready` events."""
        notice = (
            None
            if self._embedding_worker.is_asleep
            else self._embedding_worker.keywords_only_notice
        )
        return {
            "lexical": self._index_refresh_worker.first_refresh.is_set(),
            "semantic": notice is None,
            "keywords_only": notice.values if notice else None,
            "left": self._embedding_worker.left,
            "paused": self._embedding_worker.is_paused_by_user,
            "error": self._index_refresh_worker.error,
            "configuration_problem": self._index_refresh_worker.configuration_problem,
            "reading": self._index_progress,
        }

    def _broadcast_event_from_thread(self, event: EngineEvent) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._broadcast_event, event)

    def _broadcast_event(self, event: EngineEvent) -> None:
        frame = engine_protocol.encode_message_as_frame(event)
        for client in list(self.clients):
            if client.is_subscribed:
                client.send_frame(frame)

    # operations

    async def _execute_status_operation(
        self, client: ClientConnection, request: object
    ) -> WorkspaceStatus:
        return self.make_workspace_status()

    def make_workspace_status(self) -> WorkspaceStatus:
        """Return the state of the workspace and of its workers."""
        return {
            "pid": os.getpid(),
            "version": __version__,
            "root": convert_path_to_utf8(self.workspace.root),
            "generation": self._index_refresh_worker.index_generation_name,
            "clients": len(self.clients),
            "progress": self._last_progress,
            "busy": self._embedding_worker.is_busy or self._index_refresh_worker.is_busy,
            "polling": self._file_watcher.polling_reason,
            **self._describe_engine_readiness(),
        }

    async def _execute_subscribe_operation(
        self, client: ClientConnection, request: object
    ) -> EngineReadinessEvent:
        client.is_subscribed = True
        if self._loads_model_early():
            self._embedding_worker.request_model_loading()
        return {"event": "ready", **self._describe_engine_readiness()}

    async def _execute_refresh_operation(
        self, client: ClientConnection, request: IndexRefreshRequest
    ) -> EngineReadinessAfterWait:
        """Refresh the index, and answer when the refresh is done."""
        self._end_if_obsolete()
        wait = engine_protocol.get_max_wait_seconds_of_request(request)
        check = request.get("check")
        if check == "suspicion" and self._index_refresh_worker.was_damage_checked_recently:
            return {"done": True, "mended": None, **self._describe_engine_readiness()}
        retry, rebuild = request.get("retry", False), request.get("rebuild", False)
        done = self._index_refresh_worker.first_refresh
        if retry:
            self._embedding_worker.retry_failed_model_loading()
        if retry or rebuild or check or request.get("force", True):
            done = self._index_refresh_worker.request_index_refresh(
                retry=retry, check=bool(check), rebuild=rebuild
            )
        client.pending_refresh, client.wants_damage_check = done, bool(check)
        return await self._wait_for_requested_refresh(client, wait)

    async def _wait_for_last_refresh_of_client(
        self, client: ClientConnection, request: Mapping[str, Any]
    ) -> EngineReadinessAfterWait:
        """Wait, up to the time limit in `request`, for the refresh that this client requested last."""
        if client.pending_refresh is None:
            raise ValueError("this connection has not requested a refresh")
        return await self._wait_for_requested_refresh(
            client, engine_protocol.get_max_wait_seconds_of_request(request)
        )

    async def _wait_for_requested_refresh(
        self, client: ClientConnection, wait: float
    ) -> EngineReadinessAfterWait:
        assert client.pending_refresh is not None
        finished = await wait_for_thread_event(client.pending_refresh, wait)
        self._end_if_obsolete()
        mended = (
            self._index_refresh_worker.repaired_damage
            if client.wants_damage_check and finished
            else None
        )
        return {"done": finished, "mended": mended, **self._describe_engine_readiness()}

    async def _wait_until_all_embedded(
        self, client: ClientConnection, request: Mapping[str, Any]
    ) -> EngineReadinessAfterWait:
        """Wait until every chunk has its vector.

        The wait also ends when an error prevents embedding, or at the time limit in `request`.
        """
        finished = await wait_for_thread_event(
            self._embedding_worker.caught_up,
            engine_protocol.get_max_wait_seconds_of_request(request),
        )
        return {"done": finished, "mended": None, **self._describe_engine_readiness()}

    async def _execute_prefer_operation(
        self, client: ClientConnection, request: Mapping[str, Any]
    ) -> dict[str, bool]:
        """Embed an entry before all others."""
        self._embedding_worker.prefer_entry_for_embedding(str(request["entry"]))
        return {"preferred": True}

    async def _execute_pause_operation(
        self, client: ClientConnection, request: Mapping[str, Any]
    ) -> EngineReadiness:
        """Pause or continue embedding this workspace's passages."""
        try:
            self._embedding_worker.set_embedding_paused(request["paused"])
        except OSError as error:
            raise ValueError(f"cannot record the pause: {error}") from error
        return self._describe_engine_readiness()

    async def _execute_search_operation(
        self, client: ClientConnection, request: EngineSearchArguments
    ) -> EngineSearchReply:
        """Answer a search.

        Decline the search if the client and the engine have different environments or settings
        files.
        """
        self._end_if_obsolete()
        if request.get("client_environment", self._environment) != self._environment:
            return {"declined": "client_environment"}
        if request["question"].get("mode") != "lexical" and request.get("uses_model", True):
            self._embedding_worker.request_model_loading()
        is_done = await wait_for_thread_event(
            self._index_refresh_worker.first_refresh, FIRST_REFRESH_SECONDS
        )
        state: EngineReadinessAfterWait = {
            "done": is_done,
            "mended": None,
            **self._describe_engine_readiness(),
        }
        return await self._run_in_thread(self._search_service.answer_client_search, request, state)
