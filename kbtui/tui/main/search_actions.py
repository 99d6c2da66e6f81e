"""Searching on the main screen: the input and the results, and what their messages ask for."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from textual import on
from textual.widgets import Input

from kbtui.tui.main.item_actions import ActingScreen
from kbtui.tui.main.pane_layout import INSIDE
from kbtui.tui.navigation import place_of_hit
from kbtui.tui.search.pane import MODES, ResultsPane, SearchInput

if TYPE_CHECKING:
    from textual.timer import Timer

    from kbtui.search.models import Answer, Mode
    from kbtui.tui.citations.controller import CitationsController
    from kbtui.tui.goto import ReferenceNavigator
    from kbtui.tui.search.completion import QueryCompleter

PREVIEW_SECONDS = 0.12

OF_READING = {
    "copy", "copy_more", "edit", "similar", "bookmark", "go", "jump", "app.platform('export')",
}  # fmt: skip
"""Commands of everywhere that are about what is being read."""


class SearchingScreen(ActingScreen):
    """The main screen's part that searches; asking itself is done by `Asker`."""

    citations: CitationsController
    completer: QueryCompleter
    references: ReferenceNavigator
    _plain: bool
    _preview: Timer | None
    _before_search: str
    """What had the focus before."""

    @abstractmethod
    def _as_command(self) -> str:
        """The command that shows the same."""

    @on(Input.Changed, "#search")
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.completer.type(event.input)
        self.search.type(event.value)
        self.set_class(bool(self.search.query), "searching")
        if self.search.query:
            self._show_pane("results")
        else:
            self.navigator.end_preview()
        if self._plain:
            self.hints.same_as(self._as_command())

    @on(Input.Submitted, "#search")
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        # A reference that was typed or pasted is opened itself.
        if not self.references.opens(event.value, self.search.open):
            self.search.open()

    @on(SearchInput.Left)
    def _left(self, event: SearchInput.Left) -> None:
        event.stop()
        pane = self.results_pane
        if self.has_class("searching") and (pane.list.rows or pane.answer is not None):
            self.go("#results-list")
        else:
            self._close_search()

    @on(SearchInput.Recall)
    def _recall(self, event: SearchInput.Recall) -> None:
        event.stop()
        self.search.recall(event.step, self.query_one("#search", SearchInput).recall)

    @on(ResultsPane.Why)
    def _why(self, event: ResultsPane.Why) -> None:
        event.stop()
        if event.hit is None:
            self.why_not()
        else:
            self.explain(event.hit)

    def show_similar(self, reference: str, answer: Answer) -> None:
        """Show what is like something, as hits."""
        self._remember_focus()
        self.search.put_away()
        self.add_class("searching")
        self.results_pane.show_similar(reference, answer)
        self.go("#results-list")

    @on(ResultsPane.Close)
    def _results_left(self, event: ResultsPane.Close) -> None:
        event.stop()
        self._close_search()

    def _close_search(self) -> None:
        self._leave_search()
        self.navigator.end_preview()
        self.go(self._before_search)

    def _leave_search(self) -> None:
        if self._preview:
            self._preview.stop()
        self.search.left()
        self.remove_class("searching")

    @on(ResultsPane.More)
    def _more(self, event: ResultsPane.More) -> None:
        event.stop()
        self.search.ask_for_more()

    @on(ResultsPane.OtherMode)
    def _other_mode(self, event: ResultsPane.OtherMode) -> None:
        event.stop()
        self.search_by(self.search.next_mode())
        self.status.flash(f"searching by {MODES[self.search.mode]}")

    def search_by(self, mode: Mode) -> None:
        """Search in a mode, and say so where it is not the usual one."""
        self.search.mode = mode
        self.status.search_by("" if mode == "hybrid" else MODES[mode])

    @on(ResultsPane.Open)
    def _open_hit(self, event: ResultsPane.Open) -> None:
        event.stop()
        self.search.note()
        place = place_of_hit(event.hit)
        if self._preview:
            self._preview.stop()
        if not event.preview:
            self.open(place)
        elif self.has_class("searching") and self.classes & {"-three", "-wide"}:
            self._preview = self.set_timer(
                PREVIEW_SECONDS, lambda: self.navigator.open(place, preview=True)
            )

    def is_unsettled(self, key: str) -> bool:
        """Whether a key is about what is still being opened, found, asked or looked for."""
        if self.search.opens or self.references.looks or self.asks:
            # Where it leads is where the next key belongs.
            return key != "escape"
        opening = self.navigator.opening
        asks, fills = self.citations.asks, self.library_pane.fills
        if not (opening or self.reader_pane.looks or asks or fills):
            return False
        owner, action = self._meant_by(key)
        own = owner not in (None, self, self.app)
        if self.pane == "reader":
            unsettled = opening or (own and self.reader_pane.looks)
            return unsettled and (own or action in OF_READING)
        if self.pane == "citations":
            return (opening or asks) and (own or action in OF_READING)
        return self.pane == "library" and action == "open" and fills

    def action_search(self) -> None:
        """Type a question."""
        self.results_pane.fill()
        found = self.query_one("#search", SearchInput)
        if self.focused is not found:
            self._remember_focus()
            self.set_focus(found)
            found.action_select_all()
        self.set_class(bool(self.search.query), "searching")

    def _remember_focus(self) -> None:
        where = self.pane
        if where and where != "results":
            self._before_search = INSIDE[where]
