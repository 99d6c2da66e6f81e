"""Runs slow calls in threads, so that the screen stays responsive."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from textual.message_pump import MessagePump

    ReportProgress = Callable[[Any], None]

    class CancellableContextManager(Protocol):
        """A context manager for a call that another thread can cancel."""

        def __enter__(self) -> object: ...

        def __exit__(self, *error: object) -> None: ...

        def cancel(self) -> None:
            """Cancel the call without waiting for it to end."""


class LatestOnlyWorker:
    """Runs calls in threads and delivers only the result of the newest call.

    At most `limit` calls run at the same time. If more calls are submitted, only the newest of them
    waits, and the others never run. Results are delivered through the message queue of `owner`, a
    widget or screen. `drop` is called with each result that is not delivered. The threads are
    daemons, so quitting never waits for them.

    If `cancellation` is given, it makes a context manager for each call, and the call runs in the
    `with` block of this context manager. To cancel an older call, a newer call invokes `cancel` on
    the older call's context manager.
    """

    def __init__(
        self,
        owner: MessagePump,
        limit: int = 1,
        *,
        cancellation: Callable[[], CancellableContextManager] | None = None,
        drop: Callable[[Any], None] = lambda answer: None,
    ) -> None:
        self._owner = owner
        self._drop = drop
        self._limit, self._cancellation = limit, cancellation
        self._newest = cancellation() if cancellation else None
        self._lock = threading.Lock()
        self._running_count = 0
        self._waiting_call: Callable[[], None] | None = None
        self._generation = 0
        self.has_pending_result = False
        """Whether the result of the newest call is still to be delivered."""

    @property
    def has_running_call(self) -> bool:
        """Whether a call is running or waiting."""
        return self._running_count > 0

    def submit_call(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], object] = lambda result: None,
        on_error: Callable[[Exception], object] = lambda error: None,
    ) -> None:
        """Run `work` in a thread, then call `on_done` with its result or `on_error` with its exception."""

        def run_work_and_deliver_result() -> None:
            try:
                with context:
                    answer = work()
            except Exception as error:
                self._owner.call_later(self._deliver_newest_result, generation, on_error, error)
            else:
                self._owner.call_later(self._deliver_newest_result, generation, on_done, answer)

        with self._lock:
            self._make_earlier_calls_obsolete()
            self.has_pending_result = True
            generation, context = self._generation, self._newest or nullcontext()
            if self._running_count >= self._limit:
                self._waiting_call = run_work_and_deliver_result
                return
            self._running_count += 1
        threading.Thread(
            target=self._run_call_and_newest_waiting_call,
            args=(run_work_and_deliver_result,),
            name="kbtui-worker",
            daemon=True,
        ).start()

    def submit_call_with_progress(
        self,
        work: Callable[[ReportProgress], T],
        on_progress: Callable[[Any], object],
        on_done: Callable[[T], object],
        on_error: Callable[[Exception], object],
    ) -> None:
        """Run `work` as `submit_call` does, and pass it a function that reports progress to `on_progress`."""
        generation = self._generation + 1

        def deliver_progress(value: Any) -> None:
            if generation == self._generation:
                on_progress(value)

        def report_progress(value: Any) -> None:
            self._owner.call_later(deliver_progress, value)

        self.submit_call(lambda: work(report_progress), on_done, on_error)

    def _run_call_and_newest_waiting_call(self, call: Callable[[], None] | None) -> None:
        while call is not None:
            call()
            with self._lock:
                call, self._waiting_call = self._waiting_call, None
                if call is None:
                    self._running_count -= 1

    def _deliver_newest_result(
        self, generation: int, deliver: Callable[[Any], object], value: Any
    ) -> None:
        # When the application quits, widgets are removed one by one while the others still receive results.
        if generation == self._generation and self._owner.is_attached:
            self.has_pending_result = False
            deliver(value)
        else:
            self._drop(value)

    def discard_pending_results(self) -> None:
        """Discard all results that have not been delivered yet."""
        with self._lock:
            self._make_earlier_calls_obsolete()

    def _make_earlier_calls_obsolete(self) -> None:
        """Cancel running calls, discard the waiting call, and ignore the results of all earlier calls."""
        self._generation += 1
        self.has_pending_result = False
        self._waiting_call = None
        if self._newest is not None and self._cancellation is not None:
            self._newest.cancel()
            self._newest = self._cancellation()
