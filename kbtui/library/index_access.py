"""Access to a workspace's index and engine for calls from any thread, and the engine's events."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kbtui.errors import Cancelled, EngineUnavailable, IndexUnavailable
from kbtui.notices import Notice, make_keywords_only_notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kbtui.engine.protocol import EngineClient
    from kbtui.index import IndexReader
    from kbtui.workspace import Settings, Workspace


SILENT_SECONDS = 10.0
"""So long an engine that did not answer is not asked again."""
STEP_SECONDS = 0.02
"""How often a wait that nothing can interrupt looks whether it was given up."""

PATIENCE_SECONDS = 60.0
"""For so long nothing is answered from a private index that is still being made."""


class Cancellation:
    """Gives a call of the Library up from another thread.

    `with cancellation: library.search(…)` in one thread, `cancellation.cancel()` in another: the
    call raises `Cancelled`, also when it was cancelled before it began.
    """

    _of_thread = threading.local()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: EngineClient | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """Give the call up; returns at once."""
        with self._lock:
            self.cancelled = True
            if self._client is not None:
                self._client.close()

    def __enter__(self) -> Cancellation:
        self._before = current_cancellation()
        Cancellation._of_thread.value = self
        return self

    def __exit__(self, *error: object) -> None:
        Cancellation._of_thread.value = self._before

    def check(self) -> None:
        """Raise `Cancelled` if it was."""
        if self.cancelled:
            raise Cancelled("given up")

    @contextmanager
    def holding(self, client: EngineClient) -> Iterator[None]:
        """While this connection is waited for, `cancel` closes it."""
        with self._lock:
            self._client = client
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._client = None


def current_cancellation() -> Cancellation:
    """The one that this thread's call stands in; one that nobody cancels where there is none."""
    found = getattr(Cancellation._of_thread, "value", None)
    return found if isinstance(found, Cancellation) else Cancellation()


class IndexAccess:
    """Opens each when it is first wanted. `behind` is why the index may not be up to date."""

    def __init__(
        self, workspace: Workspace, settings: Settings, connect: Callable[[], EngineClient]
    ) -> None:
        self._workspace, self._settings, self._connect = workspace, settings, connect
        self._lock = threading.Lock()
        self._reader: IndexReader | None = None
        self._idle: list[EngineClient] = []
        self._silent: tuple[EngineUnavailable | None, float] = (None, 0.0)
        """What was said of an engine that did not answer, and when."""
        self._private: PrivateIndex | None = None
        self.behind: Notice | None = None

    @property
    def notices(self) -> list[Notice]:
        """What is to be said of the index, nothing where it is as usual."""
        if self._private is not None:
            return self._private.notices
        return [self.behind] if self.behind else []

    @property
    def unfinished(self) -> bool:
        """Whether the index is one that this client still makes: an answer lacks what is to come."""
        private = self._private
        return private is not None and not private.complete

    @property
    def is_private(self) -> bool:
        """Whether the index is this client's own, made because there is no engine."""
        return self._private is not None

    def close(self) -> None:
        """Let go of the index and the engine."""
        with self._lock:
            reader, self._reader = self._reader, None
            clients, self._idle = self._idle, []
            private, self._private = self._private, None
        if reader is not None:
            reader.close()
        for client in clients:
            client.close()
        if private is not None:
            private.close()

    def request(self, op: str, *, timeout: float, **arguments: Any) -> dict[str, Any]:
        """Ask the engine; once more, of a new one, when it went away meanwhile.

        Each call has a connection to itself.
        """
        cancellation = current_cancellation()
        for last in (False, True):
            with self._lock:
                client = self._idle.pop() if self._idle else None
            try:
                client = client or self._reach()
                with cancellation.holding(client):
                    found = client.request(op, timeout=timeout, **arguments)
            except EngineUnavailable as error:
                cancellation.check()
                if client is None:
                    self._remember(error)
                # One that did not start, refuses, or answers too slowly would do so again.
                cause = error.__cause__
                gone = client is not None and cause and not isinstance(cause, TimeoutError)
                if client is not None:
                    client.close()
                if last or not gone:
                    raise
                continue
            with self._lock:
                self._idle.append(client)
            return found
        raise AssertionError("two tries end in an answer or an error")

    def tell(self, op: str, **arguments: Any) -> None:
        """Say something to the engine, if there is a connection that nobody uses now."""
        with self._lock:
            client = self._idle.pop() if self._idle else None
        if client is not None:
            client.notify(op, **arguments)
            with self._lock:
                self._idle.append(client)

    def _reach(self) -> EngineClient:
        """A new connection; at once an error where the engine was silent a moment ago."""
        with self._lock:
            error, since = self._silent
        if error is not None and time.monotonic() - since < SILENT_SECONDS:
            raise type(error)(error.message, where=error.where, hint=error.hint)
        return self._connect()

    def _remember(self, error: EngineUnavailable) -> None:
        """One call waits for an engine that is silent, not each of those behind it too."""
        from kbtui.engine.protocol import SilentEngine

        with self._lock:
            before, _ = self._silent
            if isinstance(error, SilentEngine) and error is not before:
                self._silent = (error, time.monotonic())

    def reader(self, wait: float) -> IndexReader:
        """The index in use; the first one is waited for. Raises `IndexUnavailable`."""
        from kbtui.index import IndexReader

        with self._lock:
            reader, private = self._reader, self._private
        if private is not None and not private.complete:
            private.wait(min(wait, private.patience))
        if reader is not None and not reader.is_replaced():
            return reader
        try:
            reader = IndexReader(private.folder if private else self._workspace.cache_dir)
        except IndexUnavailable:
            reader = self._first_reader(wait)
        with self._lock:
            self._reader = reader
        return reader

    def follow(self, wait: float) -> None:
        """Bring a private index up to date; the shared one is the engine's to keep."""
        private = self._private
        if private is not None:
            private.follow(wait)

    def _first_reader(self, wait: float) -> IndexReader:
        """Have the engine make the index, or mend it; where it cannot, a private one without vectors."""
        from kbtui.index import IndexReader

        try:
            state = self.request("refresh", force=False, wait=wait, timeout=wait + 5.0)
            with suppress(IndexUnavailable):
                return IndexReader(self._workspace.cache_dir)
            # It was there, and is gone or damaged now.
            state = self.request("refresh", check=True, wait=wait, timeout=wait + 5.0)
        except EngineUnavailable as error:
            with self._lock:
                if self._private is None:
                    self._private = PrivateIndex(self._workspace, self._settings, error.message)
                private = self._private
            private.wait(min(wait, private.patience))
            return private.reader()
        try:
            return IndexReader(self._workspace.cache_dir)
        except IndexUnavailable as error:
            if not state.get("error"):
                raise
            raise IndexUnavailable(
                f"the index cannot be built: {state['error']}",
                hint="`kbtui doctor` looks for the cause",
            ) from error


class PrivateIndex:
    """An index for this client alone, made and kept up by a thread; gone with it."""

    def __init__(self, workspace: Workspace, settings: Settings, reason: str) -> None:
        """`reason` is why there is none that all clients share."""
        import tempfile
        from pathlib import Path

        try:
            self.folder = Path(tempfile.mkdtemp(prefix="kbtui-index-"))
        except OSError as error:
            raise IndexUnavailable(
                f"no index can be made: {error.strerror or error}",
                hint=f"there is no shared one: {reason}",
            ) from error
        self._workspace, self._settings, self._reason = workspace, settings, reason
        self._began = time.monotonic()
        self._error: str | None = None
        """Why the last comparison with the files failed."""
        self._stop = threading.Event()
        self._turn = threading.Condition()
        self._wanted, self._reached = 1, 0
        """Comparisons with the files that were asked for, and the last of them that is done."""
        self._thread = threading.Thread(target=self._make, name="private-index", daemon=True)
        self._thread.start()

    def _make(self) -> None:
        from sqlite3 import DatabaseError

        from kbtui.errors import KbtuiError
        from kbtui.index import Index

        while not self._stop.is_set():
            with self._turn:
                self._turn.wait_for(lambda: self._wanted > self._reached or self._stop.is_set())
                wanted = self._wanted
            try:
                with closing(
                    Index(self._workspace, self._settings, cache_dir=self.folder, stop=self._stop)
                ) as index:
                    index.refresh()
                    index.compact()
                self._error = None
            except (KbtuiError, OSError, ValueError, DatabaseError) as error:
                # Tantivy's errors are ValueErrors; closing may even have removed the files meanwhile.
                self._error = str(error)
            with self._turn:
                self._reached = wanted
                self._turn.notify_all()

    @property
    def patience(self) -> float:
        """For how many seconds yet a whole answer is worth more than an early one."""
        return max(0.0, self._began + PATIENCE_SECONDS - time.monotonic())

    @property
    def complete(self) -> bool:
        """Whether the files were ever compared with it to the end."""
        return self._reached > 0

    @property
    def notices(self) -> list[Notice]:
        """What it is, and why."""
        state = Notice("private_index", {"is_complete": self.complete, "detail": self._error or ""})
        return [state, make_keywords_only_notice("engine", self._reason)]

    def reader(self) -> IndexReader:
        """The index, as far as it is; raises `IndexUnavailable`."""
        from kbtui.index import IndexReader

        try:
            return IndexReader(self.folder)
        except IndexUnavailable as error:
            if self._error is None:
                raise
            raise IndexUnavailable(
                f"no index can be made: {self._error}",
                where=str(self.folder),
                hint=f"there is no shared one: {self._reason}",
            ) from error

    def follow(self, seconds: float) -> None:
        """Compare it with the files as they are now; waits so long at most."""
        with self._turn:
            if self._reached == self._wanted:
                self._wanted += 1
                self._turn.notify_all()
        self.wait(seconds)

    def wait(self, seconds: float) -> None:
        """Wait so many seconds at most until it is up to date; raises `Cancelled`."""
        cancellation, end = current_cancellation(), time.monotonic() + seconds
        with self._turn:
            while self._reached < self._wanted and time.monotonic() < end:
                self._turn.wait(STEP_SECONDS)
                cancellation.check()

    def close(self) -> None:
        """Stop making it, and remove it."""
        import shutil

        self._stop.set()
        with self._turn:
            self._turn.notify_all()
        self._thread.join(2.0)
        shutil.rmtree(self.folder, ignore_errors=True)


RECONNECT_SECONDS = (0.2, 1.0, 5.0, 15.0, 30.0)


class EventListener:
    """A thread that passes the engine's events on, and starts the engine again when it went."""

    def __init__(
        self, connect: Callable[[], EngineClient], hear: Callable[[dict[str, Any]], object]
    ) -> None:
        self._connect, self._hear = connect, hear
        self._client: EngineClient | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listen", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; nothing is heard afterwards."""
        self._stop.set()
        if self._client is not None:
            self._client.close()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            reason = "the engine went away"
            try:
                self._client = self._connect()
                for event in self._client.iterate_events():
                    if self._stop.is_set():
                        return
                    failures = 0
                    self._hear(event)
            except EngineUnavailable as error:
                reason = error.message
            if self._stop.is_set():
                return
            self._hear({"event": "gone", "reason": reason})
            self._stop.wait(RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)])
            failures += 1
