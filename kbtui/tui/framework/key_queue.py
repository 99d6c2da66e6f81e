"""Keys that were typed ahead: each is handed out when what the one before it did is done.

Textual hands a key to whatever has the focus at that moment. What the key before it does (opening,
a dialog, another focus) happens a few messages later, so of keys that come in one go the second
would still go to the old place: `:` and a word would lose the word. A key that is about something still
under way in a thread (what was opened just now, the matches of what was typed) waits for that too.
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

FOLLOW_UP_ROUNDS = 3
"""How many messages follow a key up: behind the key, what it caused, and what that caused."""
FOLLOW_UP_TIMEOUT_SECONDS = 0.5
"""After this long without a message (the widget may be gone) the next key is handed out."""
MAX_WAIT_SECONDS = 3.0
"""How long a key waits for what is being read."""
RETRY_SECONDS = 0.01
UNQUEUED_KEYS = {"ctrl+c", "ctrl+q"}


class KeyFollowUp(Message):
    """Follows a key: whatever it has passed has dealt with the key."""

    def __init__(self, number: int, rounds: int, target: Widget) -> None:
        super().__init__()
        self.number, self.rounds, self.target = number, rounds, target


class KeyQueue:
    """Holds the keys and pasted texts that come before the one before them is done."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._queue: deque[events.Key | events.Paste] = deque()
        self._number = 0
        self._sending: events.Key | events.Paste | None = None
        """What was held and is handed out just now."""
        self._is_busy = False
        self._waiting_since: float | None = None
        """Since when the first of the held keys waits for what is under way."""
        self._screen: Screen[object] | None = None
        self._timeout: asyncio.TimerHandle | None = None

    def try_hold(self, event: events.Event) -> bool:
        """Whether the event is kept for later; one that is not is given out now."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            return False
        if isinstance(event, events.Key) and event.key in UNQUEUED_KEYS:
            self._queue.clear()
        elif event is self._sending:
            self._sending = None
        elif self._is_busy or self._queue or self._sending:
            self._queue.append(event)
            return True
        elif self._should_wait(event):
            self._queue.append(event)
            self._retry_later()
            return True
        self._track_event()
        return False

    def _track_event(self) -> None:
        """An event is given out: follow it."""
        app = self._app
        self._is_busy = True
        self._number += 1
        self._screen = app.screen
        target = app.focused or app.screen
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(
            FOLLOW_UP_TIMEOUT_SECONDS, app.call_later, self._resume, self._number
        )
        # Behind the event, which is put in the same queue at once.
        app.call_next(target.post_message, KeyFollowUp(self._number, FOLLOW_UP_ROUNDS, target))

    def handle_follow_up(self, done: KeyFollowUp) -> None:
        """A message that followed an event has come all the way up."""
        if done.number != self._number or not self._is_busy:
            return
        if done.rounds > 1:
            done.target.post_message(KeyFollowUp(done.number, done.rounds - 1, done.target))
        elif self._app.screen is not self._screen:
            # The dialog that was opened gets the rest once it is there.
            self._resume_when_shown()
        else:
            self._resume(done.number)

    def handle_closed_screen(self) -> None:
        """A screen was closed, and with it goes what follows the key that closed it."""
        if self._is_busy and self._app.screen is not self._screen:
            self._resume_when_shown()

    def _resume_when_shown(self) -> None:
        self._screen = self._app.screen
        self._screen.call_after_refresh(self._app.call_later, self._resume, self._number)

    def _resume(self, number: int) -> None:
        if number != self._number or not self._is_busy:
            return
        self._is_busy = False
        if self._timeout:
            self._timeout.cancel()
        self._send_next()

    def _send_next(self) -> None:
        """Hand out the first of the held keys, unless it has to wait."""
        if self._is_busy or self._sending or not self._queue:
            return
        if self._should_wait(self._queue[0]):
            self._retry_later()
            return
        self._sending = self._queue.popleft()
        self._app.call_next(self._app.on_event, self._sending)

    def _should_wait(self, event: events.Event) -> bool:
        """Whether a key is about something that is still under way, though not for too long."""
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

    def _retry_later(self) -> None:
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._app.call_later, self._send_next)
