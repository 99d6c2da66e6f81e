"""Provides the threads of this process with access to a workspace's index, the engine, and the engine's events."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kbtui.errors import CallCancelledError, EngineUnavailableError, IndexUnavailable, KbtuiError
from kbtui.notices import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from kbtui.engine.engine_client import EngineClient
    from kbtui.engine.engine_protocol import (
        EngineEvent,
        EngineReadinessAfterWait,
        IndexRefreshOptions,
    )
    from kbtui.index.index_reader import IndexReader
    from kbtui.notices import NoticeValues
    from kbtui.workspace import Settings, Workspace

Answer = TypeVar("Answer")

SILENT_SECONDS = 10.0
"""After an engine has failed to answer, this process does not connect to it again for this many seconds."""
STEP_SECONDS = 0.02
"""The interval in seconds at which a waiting call checks whether it was cancelled."""

FIRST_INDEX_SECONDS = 60.0
"""By default, a call waits at most this many seconds for the first index."""
PATIENCE_SECONDS = 60.0
"""Calls wait for a temporary index at most until this many seconds after the start of its construction."""


def make_engine_unavailable_notice_values(error: EngineUnavailableError) -> NoticeValues:
    """Return the values for the notice that the engine cannot be reached."""
    return {"cause": "engine", "detail": error.message, "where": error.where, "hint": error.hint}


class CallCancellation:
    """Lets a thread cancel the calls that another thread makes in a `with` block of this object.

    A cancelled call raises `CallCancelledError`.
    """

    _of_thread = threading.local()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.client: EngineClient | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the call without waiting for it to end."""
        with self._lock:
            self.cancelled = True
            if self.client is not None:
                self.client.close()

    def __enter__(self) -> CallCancellation:
        self._before = get_current_cancellation()
        CallCancellation._of_thread.value = self
        return self

    def __exit__(self, *error: object) -> None:
        CallCancellation._of_thread.value = self._before

    def raise_if_cancelled(self) -> None:
        """Raise `CallCancelledError` if the call was cancelled."""
        if self.cancelled:
            raise CallCancelledError("cancelled")

    @contextmanager
    def close_client_on_cancel(self, client: EngineClient) -> Iterator[None]:
        """Within the `with` block, a call to `cancel` also closes the connection `client`."""
        with self._lock:
            self.client = client
        try:
            self.raise_if_cancelled()
            yield
        finally:
            with self._lock:
                self.client = None


def get_current_cancellation() -> CallCancellation:
    """Return the `CallCancellation` of the current call in this thread, or a new one if there is none."""
    found = getattr(CallCancellation._of_thread, "value", None)
    return found if isinstance(found, CallCancellation) else CallCancellation()


class IndexAndEngineAccess:
    """Opens the index, and connections to the engine, when a call first needs them.

    `index_behind_notice` is the notice that says why the index may not be up to date, or None.
    """

    def __init__(self, workspace: Workspace, settings: Settings) -> None:
        self.workspace, self.settings = workspace, settings
        self._lock = threading.Lock()
        self._reader: IndexReader | None = None
        self._idle_clients: list[EngineClient] = []
        self._silent: tuple[EngineUnavailableError | None, float] = (None, 0.0)
        """The last error from an engine that failed to answer (None if there was none), and the time of this error."""
        self._private: TemporaryClientIndex | None = None
        self.index_behind_notice: Notice | None = None
        self._different_variables: list[str] = []
        """The environment variables for agents' directories whose values differ between the engine and this client."""

    @property
    def index_notices(self) -> list[Notice]:
        """The notices about the state of the index."""
        if self._private is not None:
            return self._private.index_notices
        behind = [self.index_behind_notice] if self.index_behind_notice else []
        return [*behind, *self.differing_agent_directory_notices]

    @property
    def differing_agent_directory_notices(self) -> list[Notice]:
        """A list with a notice if the engine and this client disagree about where agents store their files.

        If they agree, the list is empty.
        """
        names = self._different_variables
        return [Notice("other_directories", {"variables": names})] if names else []

    @property
    def is_index_unfinished(self) -> bool:
        """Whether this client's temporary index is not complete yet, so that searches may miss hits."""
        private = self._private
        return private is not None and not private.is_complete

    @property
    def is_index_private(self) -> bool:
        """Whether this client uses a temporary index of its own, because there is no engine."""
        return self._private is not None

    def close(self) -> None:
        """Close the index and the connections to the engine. They are opened again when they are next needed."""
        with self._lock:
            opened = [self._reader, *self._idle_clients, self._private]
            self._reader, self._idle_clients, self._private = None, [], None
        for one in opened:
            if one is not None:
                one.close()

    def connect_engine(self, *, start: bool = True) -> EngineClient:
        """Open a new connection to the engine. If none is running and `start` is true, start an engine.

        Raises `EngineUnavailableError`.
        """
        from kbtui.engine.engine_launcher import (
            connect_or_start_engine,
            list_differing_agent_directory_variables,
        )

        check = get_current_cancellation().raise_if_cancelled
        client = connect_or_start_engine(self.workspace, start=start, check=check)
        self._different_variables = list_differing_agent_directory_variables(client)
        return client

    def request_engine_refresh(
        self, wait: float, **options: Unpack[IndexRefreshOptions]
    ) -> EngineReadinessAfterWait:
        """Have the engine refresh the index, and wait at most `wait` seconds for it to finish."""
        return self.call_engine(
            lambda client: client.send_request("refresh", timeout=wait + 5.0, wait=wait, **options)
        )

    def call_engine(self, send: Callable[[EngineClient], Answer]) -> Answer:
        """Call `send` with a connection to the engine. If the connection breaks, connect and call `send` once more.

        Raises `EngineUnavailableError`.
        """
        cancellation = get_current_cancellation()
        for last in (False, True):
            with self._lock:
                client = self._idle_clients.pop() if self._idle_clients else None
            try:
                client = client or self._connect_engine_unless_recently_unresponsive()
                with cancellation.close_client_on_cancel(client):
                    found = send(client)
            except EngineUnavailableError as error:
                cancellation.raise_if_cancelled()
                if client is None:
                    raise
                client.close()
                # Retry only after a lost connection. If the engine refused the request or was too
                # slow, a second attempt would fail, too.
                cause = error.__cause__
                if last or cause is None or isinstance(cause, TimeoutError):
                    raise
                continue
            with self._lock:
                self._idle_clients.append(client)
            return found
        raise AssertionError("unreachable: the second try returns or raises")

    def _connect_engine_unless_recently_unresponsive(self) -> EngineClient:
        """Connect to the engine.

        If the engine recently failed to answer, raise the same error at once.
        """
        from kbtui.engine.engine_client import UnresponsiveEngineError

        with self._lock:
            error, since = self._silent
        if error is not None and time.monotonic() - since < SILENT_SECONDS:
            raise type(error)(error.message, where=error.where, hint=error.hint)
        try:
            return self.connect_engine()
        except UnresponsiveEngineError as silent:
            with self._lock:
                self._silent = (silent, time.monotonic())
            raise

    def open_index_reader(self, wait: float = FIRST_INDEX_SECONDS) -> IndexReader:
        """Return an index reader. Waits at most `wait` seconds for an index. Raises `IndexUnavailable`."""
        from kbtui.index.index_reader import IndexReader

        with self._lock:
            reader, private = self._reader, self._private
        if private is not None and not private.is_complete:
            private.wait_until_up_to_date(min(wait, private.remaining_wait_seconds))
        if reader is not None and not reader.is_generation_replaced():
            return reader
        try:
            reader = IndexReader(private.folder if private else self.workspace.cache_dir)
        except IndexUnavailable:
            reader = self._open_first_index_reader(wait)
        with self._lock:
            self._reader = reader
        return reader

    def record_missing_engine_and_update_index(
        self, error: EngineUnavailableError, wait: float
    ) -> None:
        """Record that the engine cannot be reached.

        If this client has a temporary index, update it, and wait at most `wait` seconds for the update.
        """
        self.index_behind_notice = Notice(
            "index_behind", make_engine_unavailable_notice_values(error)
        )
        if (private := self._private) is not None:
            private.update_index_from_files(wait)

    def _open_first_index_reader(self, wait: float) -> IndexReader:
        """Open the index after the engine has built it. Without an engine, build a temporary index.

        Waits at most `wait` seconds for an index that is being built.
        """
        from kbtui.index.index_reader import IndexReader

        try:
            state = self.request_engine_refresh(wait, force=False)
            with suppress(IndexUnavailable):
                return IndexReader(self.workspace.cache_dir)
            # The index was deleted or damaged after the refresh.
            state = self.request_engine_refresh(wait, check=True)
        except EngineUnavailableError as error:
            with self._lock:
                if self._private is None:
                    self._private = TemporaryClientIndex(self.workspace, self.settings, error)
                private = self._private
            private.wait_until_up_to_date(min(wait, private.remaining_wait_seconds))
            return private.open_index_reader()
        try:
            return IndexReader(self.workspace.cache_dir)
        except IndexUnavailable as error:
            if not state.get("error"):
                raise
            raise IndexUnavailable(
                f"the index cannot be built: {state['error']}",
                hint="`kbtui doctor` looks for the cause",
            ) from error


class TemporaryClientIndex:
    """A temporary index without vectors. A thread of this client builds and updates the index."""

    def __init__(
        self, workspace: Workspace, settings: Settings, error: EngineUnavailableError
    ) -> None:
        """Start building the index. `error` is the reason why the engine's index cannot be used."""
        import tempfile

        try:
            self.folder = Path(tempfile.mkdtemp(prefix="kbtui-index-"))
        except OSError as failed:
            raise IndexUnavailable(
                f"cannot build an index: {failed.strerror or failed}",
                hint=f"there is no shared index: {error.message}",
            ) from failed
        self._workspace, self._settings, self._cause = workspace, settings, error
        self._began = time.monotonic()
        self._error: str | None = None
        """The reason why the last update failed; None if it succeeded."""
        self._configuration_problem: str | None = None
        self._stop = threading.Event()
        self._turn = threading.Condition()
        self._wanted, self._reached = 1, 0
        """The numbers of the last requested update and of the last finished update."""
        self._thread = threading.Thread(
            target=self._update_index_until_closed, name="private-index", daemon=True
        )
        self._thread.start()

    def _update_index_until_closed(self) -> None:
        from sqlite3 import DatabaseError

        from kbtui.index.workspace_index_writer import WorkspaceIndexWriter

        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._wanted > self._reached or self._stop.is_set())
                if self._stop.is_set():
                    return  # an update would create files that `close` removes
                wanted = self._wanted
            try:
                index = WorkspaceIndexWriter(
                    self._workspace, self._settings, cache_dir=self.folder, stop=self._stop
                )
                with closing(index):
                    index.refresh_index()
                    index.rewrite_indexes_with_many_replaced_documents()
                    self._configuration_problem = index.configuration_problem
                self._error = None
            except (KbtuiError, OSError, ValueError, DatabaseError) as error:
                # Tantivy raises ValueError, for example if `close` has removed the files.
                self._error = str(error)
            with self._turn:
                self._reached = wanted
                self._turn.notify_all()

    @property
    def remaining_wait_seconds(self) -> float:
        """The number of seconds that a call should still wait for this index to be up to date with the files."""
        return max(0.0, self._began + PATIENCE_SECONDS - time.monotonic())

    @property
    def is_complete(self) -> bool:
        """Whether the index has been up to date with the files at least once."""
        return self._reached > 0

    @property
    def index_notices(self) -> list[Notice]:
        """The notices that tell the user about this temporary index and why kbtui uses it.

        If the configuration is invalid, another notice says so.
        """
        notices = [
            Notice("private_index", {"is_complete": self.is_complete, "detail": self._error or ""}),
            Notice("keywords_only", make_engine_unavailable_notice_values(self._cause)),
        ]
        if self._configuration_problem is not None:
            notices.append(Notice("configuration_invalid", {"detail": self._configuration_problem}))
        return notices

    def open_index_reader(self) -> IndexReader:
        """Return a reader of the index in its current state. Raises `IndexUnavailable`."""
        from kbtui.index.index_reader import IndexReader

        try:
            return IndexReader(self.folder)
        except IndexUnavailable as error:
            if self._error is None:
                raise
            raise IndexUnavailable(
                f"cannot build an index: {self._error}",
                where=str(self.folder),
                hint=f"there is no shared index: {self._cause.message}",
            ) from error

    def update_index_from_files(self, seconds: float) -> None:
        """Update the index from the files. Wait at most `seconds` seconds for the index to be up to date."""
        with self._turn:
            if self._reached == self._wanted:
                self._wanted += 1
                self._turn.notify_all()
        self.wait_until_up_to_date(seconds)

    def wait_until_up_to_date(self, seconds: float) -> None:
        """Wait at most `seconds` seconds for the index to be up to date. Raises `CallCancelledError`."""
        cancellation, end = get_current_cancellation(), time.monotonic() + seconds
        with self._turn:
            while (
                self._reached < self._wanted and time.monotonic() < end and not self._stop.is_set()
            ):
                self._turn.wait(STEP_SECONDS)
                cancellation.raise_if_cancelled()

    def close(self) -> None:
        """Stop the thread that updates this index, and remove the files of the index."""
        import shutil

        self._stop.set()
        with self._turn:
            self._turn.notify_all()
        self._thread.join(2.0)
        shutil.rmtree(self.folder, ignore_errors=True)


RECONNECT_SECONDS = (0.2, 1.0, 5.0, 15.0, 30.0)


class EngineEventListener:
    """A thread that calls `on_event` with each event of the engine, and restarts an engine that has exited."""

    def __init__(
        self, connect: Callable[[], EngineClient], on_event: Callable[[EngineEvent], object]
    ) -> None:
        self._connect, self._on_event = connect, on_event
        self._client: EngineClient | None = None
        self._stop = threading.Event()
        threading.Thread(target=self._pass_on_engine_events, name="listen", daemon=True).start()

    def stop_listening(self) -> None:
        """Stop the thread, so that `on_event` is not called for later events."""
        self._stop.set()
        if self._client is not None:
            self._client.close()

    def _pass_on_engine_events(self) -> None:
        failures = 0
        while not self._stop.is_set():
            reason = None
            try:
                self._client = self._connect()
                for event in self._client.subscribe_to_engine_events():
                    if self._stop.is_set():
                        return
                    failures = 0
                    self._on_event(event)
            except EngineUnavailableError as error:
                reason = error.message
            if self._stop.is_set():
                return
            self._on_event({"event": "gone", "reason": reason})
            self._stop.wait(RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)])
            failures += 1
