"""Archives new and changed sessions of the agents in the setting `keep`, while the engine runs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from kbtui.conversations.conversation_repository import (
    iterate_conversations_of_agent,
    list_enabled_conversation_formats,
)
from kbtui.conversations.session_archive import keep_copy_of_conversation
from kbtui.errors import KbtuiError
from kbtui.workspace.client_environment import make_thread_with_client_environment
from kbtui.workspace.user_settings import get_agents_chosen_for_keeping_sessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.workspace import Settings, Workspace

QUIET_SECONDS = 30.0
"""A session is copied into the archive only after it has stayed unchanged for this many seconds.

Copying a long session after each new record would be slow. There is no hurry, because agents delete
sessions only after days.
"""


class SessionArchiver:
    """A thread that copies new and changed sessions of a workspace into the archive.

    If the setting `keep` lists no agent, the thread is never started.
    """

    def __init__(
        self, workspace: Workspace, settings: Settings, log: Callable[[str], None]
    ) -> None:
        self._workspace, self._log = workspace, log
        self._agents = {
            name.casefold() for name in get_agents_chosen_for_keeping_sessions(settings)
        }
        self._handled: dict[str, str] = {}
        """Maps the id of each session that was copied or skipped to the session's signature at that time."""
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = make_thread_with_client_environment(
            self._archive_sessions_until_stopped, "keep"
        )

    def start_thread(self) -> None:
        """Start the thread if the setting `keep` lists an agent. The thread waits for `request_archiving`."""
        if self._agents:
            self._thread.start()

    def stop_thread(self) -> None:
        """Stop the thread after the current session. Wait up to ten seconds for the thread to end."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(10.0)

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def request_archiving(self) -> None:
        """Ask the thread to copy new and changed sessions. Returns at once."""
        self._wake.set()

    def _archive_sessions_until_stopped(self) -> None:
        pause: float | None = None
        while not self._stop.is_set():
            self._wake.wait(pause)
            self._wake.clear()
            began = time.monotonic()
            try:
                pause = self._archive_quiet_sessions()
            except (KbtuiError, OSError) as error:
                self._log(f"keeping sessions failed: {type(error).__name__}: {error}")
                pause = None
            # A session that is being written causes a request for each record. This pause keeps the thread
            # idle for about half the time.
            self._stop.wait(min(time.monotonic() - began, 1.0))

    def _archive_quiet_sessions(self) -> float | None:
        """Copy changed sessions into the archive, except those that changed less than `QUIET_SECONDS` ago.

        Returns the time in seconds until the next session can be copied, or None if no session is
        waiting.
        """
        pauses = []
        for one in list_enabled_conversation_formats():
            if one.name.casefold() not in self._agents or not one.has_file_per_conversation:
                continue
            for stored in iterate_conversations_of_agent(self._workspace, one):
                if self._stop.is_set():
                    return None
                if self._handled.get(stored.id) == stored.signature:
                    continue
                info = stored.read_conversation_info()
                changed = info.updated_at or info.created_at
                pause = QUIET_SECONDS - (time.time() - changed.timestamp())
                if 0 < pause <= QUIET_SECONDS:
                    pauses.append(pause)
                    continue
                try:
                    outcome = keep_copy_of_conversation(self._workspace, info)
                except KbtuiError as error:
                    self._log(f"{info.id} was not kept: {error}")
                else:
                    if outcome == "shrunk":
                        self._log(f"{info.id} has shrunk; the earlier, larger copy stays")
                self._handled[stored.id] = stored.signature
        return min(pauses, default=None)
