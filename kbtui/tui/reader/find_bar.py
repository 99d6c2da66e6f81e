"""Finding words in what is being read."""

from __future__ import annotations

from abc import abstractmethod
from itertools import islice
from typing import TYPE_CHECKING

from textual import on
from textual.containers import Vertical
from textual.widgets import Input

from kbtui.tui.framework.labeled_input import LabeledInput, PaneInput
from kbtui.tui.framework.partial_repaint import BorderOnlyPane
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.reader.document import finder
from kbtui.tui.reader.document_view import DocumentView

if TYPE_CHECKING:
    from kbtui.tui.navigation import NavigationTarget

MATCHES_MOST = 100_000
"""Matches that are counted; nobody walks through more."""


class FindingPane(BorderOnlyPane, Vertical):
    """A pane with a reader and a finder for it."""

    def __init__(self, id: str, classes: str) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.reader = DocumentView()
        self.finder = LabeledInput("find", "find")
        self.place: NavigationTarget | None = None
        self.matches: list[tuple[int, int]] = []
        self.match = -1
        self.finding = False
        self._finding_lane = LatestOnlyWorker(self)

    @abstractmethod
    def refresh_header(self) -> None:
        """Say where one is."""

    @property
    def found_where(self) -> str:
        """Which match one stands at, of how many."""
        more = "+" if len(self.matches) >= MATCHES_MOST else ""
        return f"{self.match + 1:,} of {len(self.matches):,}{more}" if self.matches else "no match"

    def action_find(self) -> None:
        """Type what to find."""
        entry = self.finder.input
        if not self.finding and self.place and self.place.words:
            entry.value = self.place.words[0]
        self.finding = True
        self.finder.ask()
        self.look(entry.value, jump=False)

    @on(Input.Changed, "#find")
    def _find_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.finding:
            self.look(event.value, jump=True)

    @on(Input.Submitted, "#find")
    def _find_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.screen.set_focus(self.reader)

    def look(self, words: str, *, jump: bool) -> None:
        """Look for words; `jump` goes to the first match from where one reads."""
        pattern = finder([words])
        document, as_model = self.reader.document, self.reader.port.as_model
        self.reader.port.look_for(pattern)
        self.reader.changed()
        if pattern is None:
            self._found([], jump=False)
            return
        self._finding_lane.submit(
            lambda: list(islice(document.search(pattern, as_model), MATCHES_MOST)),
            lambda found: self._found(found, jump=jump),
            self._failed,
        )

    def _failed(self, error: Exception) -> None:
        self._found([], jump=False)

    def _found(self, matches: list[tuple[int, int]], *, jump: bool) -> None:
        self.matches = matches
        self.match = -1
        if matches:
            here = self.reader.port.cursor.block
            at = next((n for n, (block, _) in enumerate(matches) if block >= here), 0)
            if jump:
                self.go_to_match(at)
                return
            self.match = at
        self.refresh_header()

    def go_to_match(self, match: int) -> None:
        """Read match number `match`; after the last one comes the first."""
        if self.matches:
            self.match = match % len(self.matches)
            self.reader.port.go_to_match(*self.matches[self.match])
            self.reader.changed()

    @on(PaneInput.Left)
    def _left(self, event: PaneInput.Left) -> None:
        event.stop()
        self.action_clear()

    def action_clear(self) -> None:
        """End finding; clear the marks."""
        self.stop_finding()
        self.reader.port.look_for(None)
        if self.place:
            self.place = self.place._replace(words=())
        self.screen.clear_selection()
        self.screen.set_focus(self.reader)
        self.reader.changed()

    def stop_finding(self) -> None:
        """End finding; marks stay."""
        self.finding = False
        self.matches, self.match = [], -1
        self.finder.put_away()
        self._finding_lane.forget()
