"""Queue keys typed ahead, and deliver each one after the previous key has been handled.

Textual delivers a key to the widget that has the focus at that moment. The effect of a key (a dialog, a
new focus) takes a few more messages, so a second key typed at once would still go to the old widget:
`:` and a word would lose the word. A key may also wait for work in a thread that it depends on, such as
opening a document or finding matches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from textual import events
from textual.message import Message

from kbtui.tui.framework.styled_widget import StyledScreen

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen
    from textual.widget import Widget

KEY_HANDLED_ROUNDS = 3
"""Follow-ups per key: behind the key, behind its effects, and behind their effects."""
FOLLOW_UP_TIMEOUT_SECONDS = 0.5
"""Without a follow-up for this long (the widget may be gone), the next key is delivered."""
MAX_WAIT_SECONDS = 3.0
"""Longest time that a key waits for unfinished work."""
RETRY_SECONDS = 0.01
UNQUEUED_KEYS = {"ctrl+c", "ctrl+q"}


class KeyHandled(Message):
    """A message sent after a key; when it has bubbled up, the key has been handled."""

    def __init__(self, number: int, rounds: int, target: Widget) -> None:
        super().__init__()
        self.number, self.rounds, self.target = number, rounds, target


class KeyQueue:
    """Holds keys and pasted text until the previous one has been handled."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._queue: deque[events.Key | events.Paste] = deque()
        self._number = 0
        self._sending: events.Key | events.Paste | None = None
        """The queued event that is being delivered."""
        self._is_busy = False
        self._waiting_since: float | None = None
        """When the first queued key began to wait for unfinished work."""
        self._screen: Screen[object] | None = None
        self._timeout: asyncio.TimerHandle | None = None

    def hold_key_if_busy(self, event: events.Event) -> bool:
        """Queue an event and return True, or return False if it should be handled now."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            return False
        if isinstance(event, events.Key) and event.key in UNQUEUED_KEYS:
            self._queue.clear()
        elif event is self._sending:
            self._sending = None
        elif self._is_busy or self._queue or self._sending:
            self._queue.append(event)
            return True
        elif self._should_hold_key(event):
            self._queue.append(event)
            self._retry_held_key_later()
            return True
        self._send_follow_up_behind_event()
        return False

    def _send_follow_up_behind_event(self) -> None:
        """Send a follow-up behind an event that is being handled."""
        app = self._app
        self._is_busy = True
        self._number += 1
        self._screen = app.screen
        target = app.focused or app.screen
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(
            FOLLOW_UP_TIMEOUT_SECONDS, app.call_later, self._resume_sending_keys, self._number
        )
        # The event enters the same queue first.
        app.call_next(target.post_message, KeyHandled(self._number, KEY_HANDLED_ROUNDS, target))

    def resume_after_handled_key(self, done: KeyHandled) -> None:
        """Send the next round of a follow-up; after the last one, resume."""
        if done.number != self._number or not self._is_busy:
            return
        if done.rounds > 1:
            done.target.post_message(KeyHandled(done.number, done.rounds - 1, done.target))
        elif self._app.screen is not self._screen:
            # A dialog has opened: it gets the remaining keys once it is shown.
            self._resume_when_shown()
        else:
            self._resume_sending_keys(done.number)

    def resume_after_closed_screen(self) -> None:
        """Resume after a screen was closed, because its follow-up messages are lost."""
        if self._is_busy and self._app.screen is not self._screen:
            self._resume_when_shown()

    def _resume_when_shown(self) -> None:
        self._screen = self._app.screen
        self._screen.call_after_refresh(
            self._app.call_later, self._resume_sending_keys, self._number
        )

    def _resume_sending_keys(self, number: int) -> None:
        if number != self._number or not self._is_busy:
            return
        self._is_busy = False
        if self._timeout:
            self._timeout.cancel()
        self._send_next_key()

    def _send_next_key(self) -> None:
        """Deliver the first queued event unless it should wait."""
        if self._is_busy or self._sending or not self._queue:
            return
        if self._should_hold_key(self._queue[0]):
            self._retry_held_key_later()
            return
        self._sending = self._queue.popleft()
        self._app.call_next(self._app.on_event, self._sending)

    def _should_hold_key(self, event: events.Event) -> bool:
        """Return whether a key depends on unfinished work; after `MAX_WAIT_SECONDS` it no longer waits."""
        screen = self._app.screen
        if not (
            isinstance(event, events.Key)
            and isinstance(screen, StyledScreen)
            and screen.should_key_wait(event.key)
        ):
            self._waiting_since = None
            return False
        self._waiting_since = self._waiting_since or monotonic()
        return monotonic() - self._waiting_since < MAX_WAIT_SECONDS

    def _retry_held_key_later(self) -> None:
        asyncio.get_running_loop().call_later(
            RETRY_SECONDS, self._app.call_later, self._send_next_key
        )
