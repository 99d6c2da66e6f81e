"""The search on the main screen: entering and leaving it, previews, similar items, explanations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kbtui.refs import parse_ref
from kbtui.tui.main.pane_layout import FOCUS_TARGETS
from kbtui.tui.navigation import place_of_hit
from kbtui.tui.search.pane import MODES, SearchInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.timer import Timer

    from kbtui.library import Library
    from kbtui.search.models import Answer, Explanation, Hit, Mode
    from kbtui.tui.framework.styled_widget import StyledScreen
    from kbtui.tui.main.item_actions import ItemActions
    from kbtui.tui.main.navigator import Navigator, ReferenceNavigator
    from kbtui.tui.main.pane_layout import PaneLayout
    from kbtui.tui.main.status_bar import StatusBar
    from kbtui.tui.navigation import NavigationTarget
    from kbtui.tui.search.controller import SearchController

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
            from kbtui.tui.reader.document_view import PageScreen
            from kbtui.tui.search.explanation_page import explanation_page

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
