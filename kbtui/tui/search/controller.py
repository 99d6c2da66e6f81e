"""Searching as one types: keywords at once, meaning a moment later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.library import Cancellation
from kbtui.text import one_line
from kbtui.tui.framework.workers import LatestOnlyWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.timer import Timer

    from kbtui.library import Library
    from kbtui.search.models import Answer, Mode, Question
    from kbtui.tui.search.pane import ResultsPane

SETTLED_SECONDS = 0.25
"""After so long without a key the whole answer is asked for."""
UNFINISHED_SECONDS = 2.0
"""How long after an answer from an index that is still being made the question is asked again."""
FIRST_HITS = 20
"""Hits that are asked for at first; more of them as one scrolls down."""
LOGGED_SECONDS = 2.0
"""A question that stands so long is one that somebody asked, not one on the way to another."""


class SearchController:
    """Asks the library, and shows the answers that were not overtaken."""

    def __init__(
        self,
        library: Library,
        pane: ResultsPane,
        hidden: Callable[[], bool],
        waits_for: Callable[[bool], str] = lambda answered: "",
    ) -> None:
        self._library = library
        self._pane = pane
        self._hidden = hidden
        self._waits_for = waits_for
        """What keeps every search waiting, in a sentence; "" when nothing does. It is told
        whether one was answered."""
        self._keywords = LatestOnlyWorker(pane, cancellation=Cancellation)
        self._whole = LatestOnlyWorker(pane, limit=3, cancellation=Cancellation)
        self._log = LatestOnlyWorker(pane)
        self._unlogged: Answer | None = None
        self._noted = False
        """Whether the question is in the query log; asked again for another index it is the same one."""
        self._recents_lane = LatestOnlyWorker(pane)
        self._recents: list[str] = []
        self._recent = -1
        self._asked: Question | None = None
        self._timer: Timer | None = None
        self._shown = ""
        self._opens_first = False
        """Whether the first hit is to be opened as soon as there is one."""
        self._opening = False
        """Whether a hit was told to be opened, and is not yet."""
        self._broken = False
        self._limit = FIRST_HITS
        self.query = ""
        self.mode: Mode = "hybrid"

    def type(self, text: str) -> None:
        """The query is another one now."""
        query = one_line(text, "strip")
        if query == self.query:
            return
        self.query = query
        if self._recent >= 0 and query != one_line(self._recents[self._recent], "strip"):
            self._recent = -1
        self._unlogged, self._noted = None, False
        self._start()

    @property
    def is_opening(self) -> bool:
        """Whether a hit is being opened, or will be once what is under way has found one."""
        seeks = self._timer is not None or self._keywords.owes or self._whole.owes
        return self._opening or (self._opens_first and seeks)

    def left(self) -> None:
        """The search was left, for a hit or otherwise: no other one is to be opened."""
        self._opens_first = self._opening = False

    @property
    def question(self) -> Question | None:
        """What the hits that are shown answer; None when they answer no question."""
        return self._asked

    def recall(self, step: int, show: Callable[[str], None]) -> None:
        """Give `show` the search before the one recalled last (or after it, for -1)."""

        def read(found: list[str]) -> None:
            self._recents = list(dict.fromkeys([*self._recents, *found]))
            self._recall(step, show)

        if self._recent < 0:
            self._recents_lane.submit(self._logged, read, lambda error: read([]))
        else:
            self._recall(step, show)

    def _logged(self) -> list[str]:
        from kbtui.userdata import UserData

        return UserData(self._library.workspace).recent()

    def _recall(self, step: int, show: Callable[[str], None]) -> None:
        if self._recents:
            self._recent = max(-1, min(self._recent + step, len(self._recents) - 1))
            show(self._recents[self._recent] if self._recent >= 0 else "")

    def put_away(self) -> None:
        """Hits of no question are shown: those of the last one are not to come in between."""
        self._whole.forget()
        self._keywords.forget()
        if self._timer:
            self._timer.stop()
        self.query, self._shown, self._asked = "", "", None

    def again(self) -> None:
        """Ask the same question again: the index has changed."""
        if self.query and self._shown == self.query:
            self._ask_whole()

    def ask_for_more(self) -> None:
        """Ask the same question for twice as many hits, once what is under way was answered."""
        from kbtui.search.models import REACH

        under_way = self._timer is not None or self._whole.owes
        if self.query and self._shown == self.query and not under_way and self._limit < REACH:
            self._limit = min(REACH, 2 * self._limit)
            self._ask_whole()

    def open(self) -> None:
        """Open the selected hit; while hits for what was typed are still to come, the first then.

        Where the search failed, it is tried again.
        """
        if self._shown == self.query:
            self._open()
        elif self._broken:
            self._start()
        else:
            self._opens_first = True

    def _open(self) -> None:
        self._opens_first = False
        self._opening = self._pane.list.selected is not None
        self._pane.action_open()

    def next_mode(self) -> Mode:
        """Search in the next mode."""
        from kbtui.tui.search.pane import MODES

        modes = list(MODES)
        self.mode = modes[(modes.index(self.mode) + 1) % len(modes)]
        if self.query:
            self._start()
        return self.mode

    def _start(self) -> None:
        self._whole.forget()
        self._keywords.forget()
        self._opens_first = False
        self._broken = False
        self._limit = FIRST_HITS
        if self._timer:
            self._timer.stop()
        if not self.query:
            self._shown = ""
            self._pane.clear("Type to search.")
            return
        if not self._pane.list.rows:
            self.say_waiting()
        if self.mode != "semantic":
            question = self._question(mode="lexical", partial=True)
            self._keywords.submit(
                lambda: self._library.lexical(question),
                lambda answer: self._show(answer, refining=self.mode == "hybrid"),
                self._failed,
            )
        self._timer = self._pane.set_timer(SETTLED_SECONDS, self._ask_whole)

    def say_waiting(self) -> None:
        """While nothing was answered yet, say what is waited for."""
        if not self.query or self._broken:
            return
        if self._pane.answer is None and self._shown != self.query:
            self._pane.clear(self._waits_for(False) or "Searching …")
        elif self._pane.answer is not None and not self._pane.answer.hits:
            self._pane.waits_for(self._waits_for(True))

    def _question(self, *, mode: Mode, partial: bool) -> Question:
        from kbtui.search.models import Question

        return Question(
            self.query, mode=mode, hidden=self._hidden(), limit=self._limit, partial=partial
        )

    def _ask_whole(self) -> None:
        self._timer = None
        question = self._question(mode=self.mode, partial=False)
        unfinished = self._question(mode=self.mode, partial=True)

        def ask() -> Answer:
            # Logged when it has settled: see `note`.
            answer = self._library.search(question, origin=None)
            if answer.hits and not answer.is_by_meaning_alone:
                return answer
            # A word that is only half typed is in no text as a whole word; a filter that may
            # be is left out, and said to be wrong as it stands.
            wider = self._library.search(unfinished, origin=None)
            if not wider.hits or (answer.hits and wider.is_by_meaning_alone):
                return answer if answer.hits or answer.mistakes else wider
            if answer.mistakes:
                wider.notices = [answer.mistakes[0].notice]
            return wider

        self._whole.submit(ask, self._settled, self._failed)

    def _settled(self, answer: Answer) -> None:
        self._keywords.forget()
        self._show(answer, refining=False)
        self._unlogged = None if self._noted else answer
        query = self.query
        if self._library.unfinished:
            self._pane.set_timer(
                UNFINISHED_SECONDS, lambda: self.again() if query == self.query else None
            )
        else:
            self._pane.set_timer(
                LOGGED_SECONDS, lambda: self.note() if query == self.query else None
            )

    def note(self) -> None:
        """Put the question in the query log, once: it is a settled one."""
        answer, self._unlogged = self._unlogged, None
        if answer is not None:
            self._noted = True
            if self._recent < 0:
                self._recents = list(dict.fromkeys([answer.query, *self._recents]))
            self._log.submit(
                lambda: self._library.log(answer, "dashboard"), lambda _: None, lambda _: None
            )

    def _show(self, answer: Answer, *, refining: bool) -> None:
        self._pane.show(answer, refining, same_query=self._shown == self.query)
        if not answer.hits:
            self._pane.waits_for(self._waits_for(True))
        self._shown = self.query
        self._asked = self._question(mode=answer.mode, partial=answer.partial)
        if self._opens_first and answer.hits:
            self._open()

    def _failed(self, error: Exception) -> None:
        self._shown = ""
        self._broken = True
        self._opens_first = False
        self._pane.clear(f"The search failed: {one_line(str(error))}")
