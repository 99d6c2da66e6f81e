"""A queue of key presses, which delivers each key after the previous key has been handled.

Textual sends a key to the widget that has the focus when the key arrives. A key that opens a dialog
takes effect only after a few more messages, and until then, Textual sends the next keys to the old
widget. Without the queue, if the user quickly typed `:` and a word, the palette would open without
the word. A key may also have to wait for a thread that loads a document.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from textual import events
from textual.message import Message

from kbtui.tui.framework.base_screens_and_widgets import StyledScreen

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen
    from textual.widget import Widget

FOLLOW_UP_MESSAGES = 3
"""A key counts as handled after this many follow-up messages, which are sent one after another.

Each of them is queued behind the messages that the key has caused so far.
"""
FOLLOW_UP_TIMEOUT_SECONDS = 0.5
"""If a key's follow-up messages have not all arrived after this many seconds, the queue delivers the next key anyway."""
MAX_WAIT_SECONDS = 3.0
"""A key waits at most this many seconds until the screen has finished its work.

After this time, the key is delivered anyway.
"""
RETRY_SECONDS = 0.01
UNQUEUED_KEYS = {"ctrl+c", "ctrl+q"}


class KeyFollowUpMessage(Message):
    """A message that follows a key and tells the app when the key has been handled.

    The message is sent to the widget that received the key, and from there to the app. Several such
    messages follow each key, one after another. The key counts as handled when the last message has
    reached the app.

    * `number` identifies the key.
    * `target` is the widget that received the key.
    * `rounds` is the number of messages that are left, including this one.
    """

    def __init__(self, number: int, rounds: int, target: Widget) -> None:
        super().__init__()
        self.number, self.rounds, self.target = number, rounds, target


class KeyPressQueue:
    """A queue that holds keys and pasted text until the previous key or text has been handled."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._queue: deque[events.Key | events.Paste] = deque()
        self._number = 0
        self._sending: events.Key | events.Paste | None = None
        """The event that was taken from the queue and is being delivered; None if no event is being delivered."""
        self._is_busy = False
        self._waiting_since: float | None = None
        """The time when the first queued key began to wait for unfinished work; None if it is not waiting."""
        self._screen: Screen[object] | None = None
        self._timeout: asyncio.TimerHandle | None = None

    def queue_key_if_busy(self, event: events.Event) -> bool:
        """Queue a key or pasted text if it must wait. Return whether the event was queued."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            return False
        if not self._app.is_running:
            # The application is closing and has no screens any more, so nothing can handle the key.
            self._queue.clear()
            return True
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
        self._post_key_follow_up_message()
        return False

    def _post_key_follow_up_message(self) -> None:
        app = self._app
        self._is_busy = True
        self._number += 1
        self._screen = app.screen
        target = app.focused or app.screen
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(
            FOLLOW_UP_TIMEOUT_SECONDS, app.call_later, self._resume_sending_keys, self._number
        )
        # `call_next` delays the follow-up message until the event itself is in the widget's message queue.
        app.call_next(
            target.post_message, KeyFollowUpMessage(self._number, FOLLOW_UP_MESSAGES, target)
        )

    def resume_keys_after_follow_up_message(self, done: KeyFollowUpMessage) -> None:
        """Send the next message or key after a follow-up message has reached the app.

        If the current key has more follow-up messages, send the next of them. Otherwise, the key
        has been handled, so deliver the next key.
        """
        if done.number != self._number or not self._is_busy or not self._app.is_running:
            return
        if done.rounds > 1:
            done.target.post_message(KeyFollowUpMessage(done.number, done.rounds - 1, done.target))
        elif self._app.screen is not self._screen:
            # The key opened a dialog, which receives the remaining keys as soon as it is shown.
            self._resume_keys_when_screen_shown()
        else:
            self._resume_sending_keys(done.number)

    def resume_keys_after_closed_screen(self) -> None:
        """After a screen has closed, deliver the queued keys to the screen that is shown now.

        The queue does not wait for follow-up messages to the closed screen, because they are lost.
        """
        is_waiting = self._is_busy and self._app.is_running
        if is_waiting and self._app.screen is not self._screen:
            self._resume_keys_when_screen_shown()

    def _resume_keys_when_screen_shown(self) -> None:
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
        if self._is_busy or self._sending or not self._queue or not self._app.is_running:
            return
        if self._should_hold_key(self._queue[0]):
            self._retry_held_key_later()
            return
        self._sending = self._queue.popleft()
        self._app.call_next(self._app.on_event, self._sending)

    def _should_hold_key(self, event: events.Event) -> bool:
        """Return whether a key must wait for unfinished work. A key waits at most `MAX_WAIT_SECONDS`."""
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
