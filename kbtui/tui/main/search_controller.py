"""The search on the main screen: queries, completion, previews, similar items, explanations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual.suggester import SuggestionReady

from kbtui.library import Cancellation
from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.main.pane_layout import FOCUS_TARGETS
from kbtui.tui.navigation_target import place_of_hit
from kbtui.tui.search_pane import MODES, SearchInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.timer import Timer
    from textual.widgets import Input

    from kbtui.library import Library
    from kbtui.search.models import Answer, Explanation, Hit, Mode, Question
    from kbtui.search.suggestions import Suggestion
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.framework.styled_widget import StyledScreen
    from kbtui.tui.main.item_actions import ItemActions
    from kbtui.tui.main.navigator import Navigator, ReferenceNavigator
    from kbtui.tui.main.pane_layout import PaneLayout
    from kbtui.tui.main.status_bar import StatusBar
    from kbtui.tui.navigation_target import NavigationTarget
    from kbtui.tui.search_pane import ResultsPane


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
        from kbtui.tui.search_pane import MODES

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
            if answer.hits and not answer.has_notice("meaning_only"):
                return answer
            # A word that is only half typed is in no text as a whole word; a filter that may
            # be is left out, and said to be wrong as it stands.
            wider = self._library.search(unfinished, origin=None)
            if not wider.hits or (answer.hits and wider.has_notice("meaning_only")):
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


SHOWN = 8


class QueryCompleter:
    """Asks what may be typed next, in a thread."""

    def __init__(
        self, library: Library, suggest: Callable[[Spans], None], indexed: Callable[[], bool]
    ) -> None:
        self._library = library
        self._suggest = suggest
        self._indexed = indexed
        """Whether there is an index to ask; none is made for the sake of a completion."""
        self._lane: LatestOnlyWorker | None = None

    def type(self, entry: Input) -> None:
        """The input holds something else now."""
        self._lane = self._lane or LatestOnlyWorker(entry)
        text, cursor = entry.value, entry.cursor_position
        if not text.strip():
            self._lane.forget()
            self._suggest([])
            return
        self._lane.submit(
            lambda: self._complete(text, cursor),
            lambda found: self._show(entry, text, cursor, found),
            lambda error: self._suggest([]),
        )

    def _complete(self, text: str, cursor: int) -> list[Suggestion]:
        """Called in a thread."""
        from kbtui.search.suggestions import complete

        reader = self._library.reader(0.0) if self._indexed() else None
        return complete(text, cursor, self._library.knowledge(), reader)

    def _show(self, entry: Input, text: str, cursor: int, found: list[Suggestion]) -> None:
        if entry.value != text:
            return
        self._suggest([] if not found else _spans(found))
        if cursor != len(text):
            return
        for one in found:
            whole = text[: one.start] + one.text
            if whole.startswith(text):
                entry.post_message(SuggestionReady(text, whole))
                return


def _spans(found: list[Suggestion]) -> Spans:
    spans: Spans = [("Tab", "key"), (" completes: ", "dim")]
    for number, one in enumerate(found[:SHOWN]):
        spans += [("  " if number else "", ""), (one_line(one.text), "strong")]
        if one.note:
            spans.append((f" {one_line(one.note)}", "dim"))
    return spans


PREVIEW_SECONDS = 0.12


class SearchView:
    """Shows the results in place of the library while a search is open."""

    def __init__(
        self,
        screen: StyledScreen,
        library: Library,
        panes: PaneLayout,
        navigator: Navigator,
        references: ReferenceNavigator,
        search: SearchController,
        items: ItemActions,
        status: StatusBar,
        open_place: Callable[[NavigationTarget], None],
    ) -> None:
        self._screen = screen
        self._library = library
        self._panes = panes
        self._navigator = navigator
        self._references = references
        self._search = search
        self._items = items
        self._status = status
        self._open_place = open_place
        self._preview: Timer | None = None
        self._focus_before = FOCUS_TARGETS["library"]

    @property
    def is_open(self) -> bool:
        """Whether the results are shown."""
        return self._screen.has_class("searching")

    @property
    def _input(self) -> SearchInput:
        return self._screen.query_one("#search", SearchInput)

    # entering and leaving

    def focus_input(self) -> None:
        """Go to the input, to type a query."""
        self._panes.results.fill()
        if self._screen.focused is not self._input:
            self._remember_focus()
            self._screen.set_focus(self._input)
            self._input.action_select_all()
        self._screen.set_class(bool(self._search.query), "searching")

    def focus_results(self) -> None:
        """Go back to the hits of the last query; to the input where there are none."""
        if not self._panes.results.list.rows:
            self.focus_input()
            return
        self._remember_focus()
        self._screen.add_class("searching")
        self._panes.go("#results-list")
        self._search.again()

    def _remember_focus(self) -> None:
        name = self._panes.focused
        if name and name != "results":
            self._focus_before = FOCUS_TARGETS[name]

    def leave_input(self) -> None:
        """Go from the input to the hits; end the search where there are none."""
        results = self._panes.results
        if self.is_open and (results.list.rows or results.answer is not None):
            self._panes.go("#results-list")
        else:
            self.close()

    def close(self) -> None:
        """End the search, and go back to what had the focus before it."""
        self.leave()
        self._navigator.end_preview()
        self._panes.go(self._focus_before)

    def leave(self) -> None:
        """End the search; something else gets the focus."""
        if self._preview:
            self._preview.stop()
        self._search.left()
        self._screen.remove_class("searching")

    # searching

    def query_changed(self, text: str) -> None:
        """Search for what is typed now."""
        self._search.type(text)
        self._screen.set_class(bool(self._search.query), "searching")
        if self._search.query:
            self._panes.show("results")
        else:
            self._navigator.end_preview()

    def submit(self, text: str) -> None:
        """Open the first hit; a reference that was typed or pasted is opened itself."""
        if not self._references.open_reference(text, self._search.open):
            self._search.open()

    def set_mode(self, mode: Mode) -> None:
        """Search in a mode; the status line names one that is not the default."""
        self._search.mode = mode
        self._status.search_by("" if mode == "hybrid" else MODES[mode])

    def change_mode(self) -> None:
        """Search in the next mode."""
        self.set_mode(self._search.next_mode())
        self._status.flash(f"searching by {MODES[self._search.mode]}")

    def recall(self, step: int) -> None:
        """Put an earlier query in the input."""
        self._search.recall(step, self._input.recall)

    def open_hit(self, hit: Hit, preview: bool) -> None:
        """Open a hit; a preview shows it a moment later, where there is room beside the hits."""
        self._search.note()
        place = place_of_hit(hit)
        if self._preview:
            self._preview.stop()
        if not preview:
            self._open_place(place)
        elif self.is_open and self._screen.classes & {"-three", "-wide"}:
            self._preview = self._screen.set_timer(
                PREVIEW_SECONDS, lambda: self._navigator.open(place, preview=True)
            )

    # similar items and explanations

    def find_similar(self) -> None:
        """Show more like what is selected or read."""
        reference = self._items.require_reference()
        if reference is None:
            return
        ref = parse_ref(reference)
        if ref.kind == "topic":
            self._status.flash("a topic is compared subject by subject: select one", "warning")
            return
        from kbtui.search.models import REACH, Question

        everything = Question("", per_entry=1, limit=REACH)
        self._items.run_slow(
            f"looking for more like {reference} …",
            lambda: self._library.related(ref, everything),
            lambda answer: self._show_similar(reference, answer),  # type: ignore[arg-type]
        )

    def _show_similar(self, reference: str, answer: Answer) -> None:
        self._remember_focus()
        self._search.put_away()
        self._screen.add_class("searching")
        self._panes.results.show_similar(reference, answer)
        self._panes.go("#results-list")

    def explain(self, hit: Hit | None) -> None:
        """Explain why a hit is where it is; None: why something was not found, after asking."""
        if hit is not None:
            self._explain({"explain": True}, lambda answer: _explanation_of(answer, hit))
            return
        from kbtui.tui.framework.dialogs import LineDialog

        here = self._navigator.trail.here
        known = str(here.ref) if here and here.ref and here.ref.kind != "topic" else ""

        def typed(text: str | None) -> None:
            if text:
                self._explain({"why": text}, lambda answer: answer.why)

        screen = LineDialog(
            "Why was this not found?", known, "topic/slug or jp-c…:3", "a subject or turn", True
        )
        self._screen.app.push_screen(screen, typed)

    def _explain(
        self, options: dict[str, Any], find: Callable[[Answer], Explanation | None]
    ) -> None:
        question = self._search.question
        if question is None:
            self._status.flash("only what was searched for can be explained", "warning")
            return

        def show(found: object) -> None:
            from kbtui.tui.pages import explanation_page
            from kbtui.tui.reader.document_view import PageScreen

            if found is None:
                self._status.flash(
                    "it is no hit any more: the files or the index changed", "warning"
                )
                return
            page = explanation_page(found, question.query)  # type: ignore[arg-type]
            self._screen.app.push_screen(PageScreen("Why", page))

        self._items.run_slow(
            "working out why …",
            lambda: find(self._library.search(replace(question, **options), origin=None)),
            show,
        )


def _explanation_of(answer: Answer, hit: Hit) -> Explanation | None:
    for found, explained in zip(answer.hits, answer.explanations, strict=False):
        if found.chunk_id == hit.chunk_id:
            return explained
    return None
