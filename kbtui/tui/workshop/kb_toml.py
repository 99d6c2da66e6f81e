"""Writing marks to `.jp/kb.toml`: shown first, written when asked again, and taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kbtui.knowledge import editing
from kbtui.tui.framework.workers import LatestOnlyWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message_pump import MessagePump

    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.editing import TomlChange
    from kbtui.knowledge.models import SubjectMark


class WriteObserver(Protocol):
    """Who hears of what was done, on the event loop."""

    def proposed(self, change: TomlChange) -> None:
        """This is what would be written."""

    def wrote(self, change: TomlChange) -> None:
        """It was written."""

    def took_back(self, change: TomlChange) -> None:
        """It was taken back."""

    def not_written(self, error: Exception) -> None:
        """Nothing was written, and why."""


class KbTomlWriter:
    """Proposes a change, and writes only the one that was shown.

    `written` has the changes written from here, oldest first; it outlives the
    screen, so that they can be taken back later.
    """

    def __init__(self, owner: WriteObserver, pump: MessagePump, written: list[TomlChange]) -> None:
        self.written = written
        self.shown: TomlChange | None = None
        self.writing = False
        """Whether a file is being written just now."""
        self._owner = owner
        self._lane = LatestOnlyWorker(pump)

    def propose(self, knowledge: Knowledge, marks: tuple[SubjectMark, ...]) -> None:
        """Work out what the marks would write."""
        if not self.writing:
            self._lane.submit(
                lambda: editing.propose(knowledge, marks), self._propose, self._owner.not_written
            )

    def _propose(self, change: TomlChange) -> None:
        self.shown = None if change.empty else change
        self._owner.proposed(change)

    def withdraw(self) -> None:
        """What is shown, or being worked out, will not be written."""
        self.shown = None
        if not self.writing:
            self._lane.forget()

    def write(self) -> None:
        """Write what is shown; nothing else is ever written."""
        change, self.shown = self.shown, None
        if change is not None:
            self._do(change, editing.apply, self._wrote)

    def _wrote(self, change: TomlChange) -> None:
        self.written.append(change)
        self._owner.wrote(change)

    def undo(self) -> None:
        """Take back what was last written from here."""
        if self.written:
            self._do(self.written[-1], editing.undo, self._took_back)

    def _took_back(self, change: TomlChange) -> None:
        self.written.remove(change)
        self._owner.took_back(change)

    def _do(
        self,
        change: TomlChange,
        act: Callable[[TomlChange], None],
        tell: Callable[[TomlChange], None],
    ) -> None:
        if self.writing:
            return
        self.writing = True

        def done(_: None) -> None:
            self.writing = False
            tell(change)

        def failed(error: Exception) -> None:
            self.writing = False
            self._owner.not_written(error)

        self._lane.submit(lambda: act(change), done, failed)
