"""Searching as one types: keywords at once, meaning a moment later."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from kbtui.search.records import Mode, Question
from kbtui.text import one_line
from kbtui.tui.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.timer import Timer

    from kbtui.library import Library
    from kbtui.search.records import Answer
    from kbtui.tui.widgets.searching import ResultsPane

SETTLED_SECONDS = 0.25
"""After so long without a key the whole answer is asked for."""
LOGGED_SECONDS = 2.0
"""A question that stands so long is one that somebody asked, not one on the way to another."""


class Asker:
    """Asks the library, and shows the answers that were not overtaken."""

    def __init__(self, library: Library, pane: ResultsPane, hidden: Callable[[], bool]) -> None:
        self._library = library
        self._pane = pane
        self._hidden = hidden
        self._keywords = Lane(pane)
        self._whole = Lane(pane, limit=3)
        self._log = Lane(pane)
        self._unlogged: Answer | None = None
        self._timer: Timer | None = None
        self._shown = ""
        self._open_first = False
        self.query = ""
        self.mode: Mode = "hybrid"

    def type(self, text: str) -> None:
        """The query is another one now."""
        query = one_line(text, "strip")
        if query == self.query:
            return
        self.query = query
        self._unlogged = None
        self._start()

    def again(self) -> None:
        """Ask the same question again: the index has changed."""
        if self.query and self._shown == self.query:
            self._ask_whole()

    def open(self) -> None:
        """Open the selected hit; while hits for what was typed are still to come, the first then."""
        if self._shown == self.query:
            self._pane.action_open()
        else:
            self._open_first = True

    def next_mode(self) -> Mode:
        """Search in the next mode."""
        modes = get_args(Mode)
        self.mode = modes[(modes.index(self.mode) + 1) % len(modes)]
        if self.query:
            self._start()
        return self.mode

    def _start(self) -> None:
        self._whole.forget()
        self._keywords.forget()
        self._open_first = False
        if self._timer:
            self._timer.stop()
        if not self.query:
            self._shown = ""
            self._pane.clear("Type to search.")
            return
        if not self._pane.list.rows:
            self._pane.clear("Searching …")
        if self.mode != "semantic":
            question = self._question(mode="lexical", partial=True)
            self._keywords.submit(
                lambda: self._library.lexical(question),
                lambda answer: self._show(answer, refining=self.mode == "hybrid"),
                self._failed,
            )
        self._timer = self._pane.set_timer(SETTLED_SECONDS, self._ask_whole)

    def _question(self, *, mode: Mode, partial: bool) -> Question:
        return Question(self.query, mode=mode, hidden=self._hidden(), partial=partial)

    def _ask_whole(self) -> None:
        question = self._question(mode=self.mode, partial=False)
        unfinished = self._question(mode=self.mode, partial=True)

        def ask() -> Answer:
            # Logged when it has settled: see `note`.
            answer = self._library.search(question, origin=None)
            # A word that is only half typed finds nothing as a whole word.
            return answer if answer.hits else self._library.search(unfinished, origin=None)

        self._whole.submit(ask, self._settled, self._failed)

    def _settled(self, answer: Answer) -> None:
        self._keywords.forget()
        self._show(answer, refining=False)
        self._unlogged = answer
        query = self.query
        self._pane.set_timer(LOGGED_SECONDS, lambda: self.note() if query == self.query else None)

    def note(self) -> None:
        """Put the question in the query log, once: it is a settled one."""
        answer, self._unlogged = self._unlogged, None
        if answer is not None:
            self._log.submit(
                lambda: self._library.log(answer, "dashboard"), lambda _: None, lambda _: None
            )

    def _show(self, answer: Answer, *, refining: bool) -> None:
        self._pane.show(answer, refining, same_query=self._shown == self.query)
        self._shown = self.query
        if self._open_first and answer.hits:
            self._open_first = False
            self._pane.action_open()

    def _failed(self, error: Exception) -> None:
        self._shown = ""
        self._pane.clear(f"The search failed: {one_line(str(error))}")
