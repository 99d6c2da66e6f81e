"""The search on the main screen: queries, completion, previews, similar passages, rank explanations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, format_error_on_one_line
from kbtui.library import CallCancellation
from kbtui.references import Ref, parse_ref
from kbtui.search.filter_definitions import split_regex_query
from kbtui.search.search_request_and_answer import (
    MAX_HITS,
    Hit,
    Mode,
    RankExplanation,
    SearchAnswer,
    SearchRequest,
)
from kbtui.terminal_text import sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.main.pane_layout import FOCUS_TARGETS
from kbtui.tui.navigation_target import make_hit_target
from kbtui.tui.search_pane import (
    FILTER_NOTICES,
    MODES,
    EmptyQuerySuggestionsAndProblems,
    SearchBar,
    SearchInput,
    load_empty_query_suggestions,
    suggest_all_search_filters,
)
from kbtui.tui.tui_command_table import find_key_label_of_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.timer import Timer
    from textual.widgets import Input

    from kbtui.notices import Notice
    from kbtui.search.filter_definitions import FilterInput
    from kbtui.search.query_completion import QueryCompletion
    from kbtui.tui.main.document_controller import MainScreenContext
    from kbtui.tui.main.selected_item_actions import SelectedItemActions
    from kbtui.tui.main.status_bar import KeyHintLine
    from kbtui.tui.search_pane import EmptyQuerySuggestion
    from kbtui.userdata.user_data_store import SavedSearch

FULL_SEARCH_DELAY_SECONDS = 0.25
"""The delay in seconds between a change of the query and the full search by keywords and meaning."""
REPEAT_INTERVAL_SECONDS = 2.0
"""The interval in seconds at which the query runs again while a temporary index is being built."""
FIRST_HITS = 20
"""The number of hits that a new query requests. Scrolling to the end of the list requests more."""
LOG_DELAY_SECONDS = 2.0
"""The delay in seconds between an answer and the logging of its query. If the user opens a hit, the query is logged at once."""
PREVIEW_DELAY_SECONDS = 0.12
"""The number of seconds that a hit must stay selected before the reader previews it."""


class SearchController:
    """Searches while the user types, and shows the hits in place of the library.

    Each key press starts a keyword search. Soon after the last key press, the full search follows.
    """

    def __init__(
        self, main: MainScreenContext, items: SelectedItemActions, hints: KeyHintLine
    ) -> None:
        self._main = main
        self._items = items
        self._library = main.library
        self._pane = pane = main.panes.results
        self.query = ""
        self.mode: Mode = "hybrid"
        self.searches_all_projects = False
        self._answered_request: SearchRequest | None = None
        """The request whose hits are shown. None before the first answer, and for similar passages."""
        self._keyword_worker = LatestOnlyWorker(pane, cancellation=CallCancellation)
        self._full_worker = LatestOnlyWorker(pane, limit=3, cancellation=CallCancellation)
        self._passages_worker = LatestOnlyWorker(pane, cancellation=CallCancellation)
        self._search_all_passages: Callable[[], SearchAnswer] | None = None
        """A function that repeats the search whose hits are shown and returns all passages of each entry; None if there is no such search."""
        self._timer: Timer | None = None
        self._answered_query = ""
        self._limit = FIRST_HITS
        self._wanted_hit = 0
        """The number of the hit to select as soon as it is loaded; 0 if there is none."""
        self._has_failed = False
        self._must_open_first = False
        """Whether to open the first hit as soon as the search finds one."""
        self._is_opening_hit = False
        self._opened_hit: tuple[int, str] | None = None
        """The history index and the document key of the hit that was opened last; None after a new query."""
        self._log_worker = LatestOnlyWorker(pane)
        self._opened_hit_worker = LatestOnlyWorker(pane)
        self._unlogged: SearchAnswer | None = None
        self._has_reported_log = False
        self._is_logged = False
        """Whether the current query is logged, so that repeating the search does not log it again."""
        self._unused = ""
        """The last logged query; "" after the user has opened a hit or left the search.

        A longer query that begins with this one replaces it in the log.
        """
        self._recent_worker = LatestOnlyWorker(pane)
        self._recent_queries: list[str] = []
        self._walked_queries: list[str] = []
        """The earlier queries through which the user steps, newest first."""
        self._walked_index = -1
        """The index in `_walked_queries` of the query that is recalled; -1 if no query is recalled."""
        self._typed_query = ""
        """What the input contained before the user recalled a query."""
        self._suggestions_worker = LatestOnlyWorker(pane)
        self._saved: SavedSearch | None = None
        """The saved search that is shown; None as soon as the user changes its query."""
        self._hints = hints
        self._suggestion_worker = LatestOnlyWorker(pane)
        self._completions: tuple[Input | None, str, int, list[QueryCompletion]] = (None, "", 0, [])
        """The last completions: the input, its text, the cursor's position, and the completions."""
        self._preview_timer: Timer | None = None
        self._focus_before = FOCUS_TARGETS["library"]

    @property
    def is_results_pane_open(self) -> bool:
        """Whether the results pane is shown."""
        return self._main.screen.has_class("searching")

    @property
    def is_opening_hit(self) -> bool:
        """Whether a hit is being opened, or will be opened as soon as the search finds one.

        This is also true while suggestions are being read, and while a hit that the user wants to
        select is being loaded.
        """
        if self._wanted_hit or self._suggestions_worker.has_pending_result:
            return True
        is_searching = self._is_full_search_pending or self._keyword_worker.has_pending_result
        return self._is_opening_hit or (self._must_open_first and is_searching)

    @property
    def _is_full_search_pending(self) -> bool:
        return self._timer is not None or self._full_worker.has_pending_result

    @property
    def _search_input(self) -> SearchInput:
        return self._main.screen.query_one("#search", SearchInput)

    # entering and leaving

    def focus_search_input(self, all_projects: bool | None = None) -> None:
        """Focus the search input.

        `all_projects` says whether to search all projects; None keeps the current choice.
        """
        screen = self._main.screen
        if all_projects is not None and all_projects != self.searches_all_projects:
            self.searches_all_projects = all_projects
            screen.query_one(SearchBar).show_search_scope(all_projects)
            if self.query:
                self._start_search()
        if screen.focused is not self._search_input:
            self._remember_focused_pane()
            screen.set_focus(self._search_input)
            self._search_input.action_select_all()
        self._main.panes.update_layout_css_classes({"searching": True})
        self._main.panes.show_pane("results")
        if not self.query:
            self._load_and_show_suggested_searches_and_bookmarks()

    def focus_search_results(self) -> None:
        """Focus the hits of the last query. If there are none, focus the input."""
        if self._pane.list.rows and not self._pane.is_showing_suggestions:
            self._show_and_focus_results()
            self.repeat_search()
        else:
            self.focus_search_input()

    def _show_and_focus_results(self) -> None:
        self._remember_focused_pane()
        self._main.panes.update_layout_css_classes({"searching": True})
        self._main.panes.focus_widget("#results-list")

    @property
    def is_opened_hit_shown(self) -> bool:
        """Whether the reader shows a hit that was opened from the current results."""
        history = self._main.document_controller.history
        current = history.current_target
        return current is not None and (history.at, current.key) == self._opened_hit

    def return_to_results(self) -> None:
        """Go back from an opened hit to the results, and keep this hit selected."""
        document_controller = self._main.document_controller
        document_controller.demote_opened_document_to_preview()
        self._main.panes.update_layout_css_classes({"searching": True})
        self._main.panes.focus_widget("#results-list")
        self.repeat_search()

    def _remember_focused_pane(self) -> None:
        name = self._main.panes.focused_pane_id
        if name and name != "results":
            self._focus_before = FOCUS_TARGETS[name]

    def leave_search_input(self) -> None:
        """Focus the hits; close the search if there are none."""
        self._unused = ""
        has_results = self._pane.list.rows or self._pane.answer is not None
        if self.is_results_pane_open and has_results and not self._pane.is_showing_suggestions:
            self._main.panes.focus_widget("#results-list")
        else:
            self.close_results()

    def close_results(self) -> None:
        """Close the search, and focus the pane that had the focus before."""
        self.hide_results()
        self._main.document_controller.return_to_document_before_preview()
        self._main.panes.focus_widget(self._focus_before)

    def hide_results(self) -> None:
        """Hide the results without changing the focus."""
        self._unused = ""
        if self._preview_timer:
            self._preview_timer.stop()
        self._must_open_first = self._is_opening_hit = False
        self._select_hit_when_loaded(0)
        self._main.panes.update_layout_css_classes({"searching": False})

    # searching

    def search_and_show_results(self, text: str) -> None:
        """Search for `text` and show the results. If `text` is empty, hide the results."""
        self.search_new_query(text)
        is_typing = self._main.screen.focused is self._search_input
        self._main.panes.update_layout_css_classes({"searching": bool(self.query) or is_typing})
        if self.query:
            self._main.panes.show_pane("results")
        else:
            self._main.document_controller.return_to_document_before_preview()

    def search_new_query(self, text: str) -> None:
        """Search for `text`, unless it is the current query."""
        query = sanitize_to_one_line(text, "strip")
        if query == self.query:
            return
        self.query = query
        if self._saved is not None and self._saved.query != query:
            self._saved = None
        at = self._walked_index
        if at >= 0 and query != sanitize_to_one_line(self._walked_queries[at], "strip"):
            self._walked_index = -1
        self._unlogged, self._is_logged = None, False
        self._opened_hit = None
        self._start_search()

    def set_search_mode(self, mode: Mode) -> None:
        """Set the search mode. The status line shows the mode, unless it is the default mode."""
        self.mode = mode
        self._main.status.search_mode = "" if mode == "hybrid" else MODES[mode]
        self._hints.search_mode = "both" if mode == "hybrid" else MODES[mode]

    def switch_to_next_search_mode(self) -> None:
        """Switch to the next search mode, and search again."""
        if self._regex_of_query_in_slashes is not None:
            self._main.show_why_key_does_nothing(
                "Search modes do not apply to regular expressions: they only find matching lines."
            )
            return
        modes = list(MODES)
        self.set_search_mode(modes[(modes.index(self.mode) + 1) % len(modes)])
        if self.query:
            self._start_search()
        self._main.status.flash_message(f"Search mode: {MODES[self.mode]}")

    def repeat_search(self) -> None:
        """Search for the current query again, for example after the index has changed."""
        if self.query and self._answered_query == self.query:
            self._start_full_search()

    def load_more_hits(self) -> None:
        """Request twice as many hits, unless a search is running."""
        if not self._is_full_search_pending and self._limit < MAX_HITS:
            self._limit = min(MAX_HITS, 2 * self._limit)
            self.repeat_search()

    def go_to_hit_by_number(self, number: int) -> None:
        """Select a hit by its number, after loading it if necessary.

        If the number is too large, select the last hit.
        """
        answer = self._pane.answer
        if answer is None or self._pane.is_showing_suggestions:
            self._pane.select_last_hit()
        elif not self._pane.select_hit(number):
            can_load = self._pane.can_load_more_hits and self._limit < MAX_HITS
            if can_load and self.query and self._answered_query == self.query:
                self._limit = MAX_HITS
                self._select_hit_when_loaded(number)
                self.repeat_search()
            else:
                self._select_last_hit(number)

    def _select_hit_when_loaded(self, number: int) -> None:
        """Select the hit with this number when it is loaded. If the number is 0, stop waiting."""
        self._wanted_hit = number
        self._main.status.set_activity_text("hits", "loading all hits …" if number else None)

    def _select_last_hit(self, wanted: int) -> None:
        last, total = self._pane.select_last_hit(), self._pane.total_entries_with_hits
        show = self._main.status.show_unavailable_key_message
        if last < total:
            remedy = " Add words or a filter to the query." if self.query else ""
            show(
                f"The list ends at hit {last:,} of {self._pane.total_entries_with_hits_text}.{remedy}"
            )
        elif wanted < MAX_HITS:
            show(f"There is no hit {wanted:,}; this is the last one.")

    def ask_for_hit_number(self) -> None:
        """Ask for the number of a hit, and select this hit."""
        from kbtui.tui.framework.dialogs import TextInputDialog

        def go_to_entered_hit(text: str | None) -> None:
            if text and text.isdecimal() and int(text):
                self.go_to_hit_by_number(int(text))
            elif text:
                self._main.show_why_key_does_nothing(f"{text} is not the number of a hit.")

        total = self._pane.total_entries_with_hits
        if not total or self._pane.is_showing_suggestions:
            self._main.show_why_key_does_nothing("There are no hits to go to.")
            return
        dialog = TextInputDialog(
            "Go to hit",
            placeholder=f"1 to {self._pane.total_entries_with_hits_text}",
            hint="number of a hit",
        )
        self._main.open_dialog(dialog, go_to_entered_hit)

    def load_all_passages(self) -> None:
        """Request all passages of all entries, because the user has unfolded an entry."""
        if self._search_all_passages is not None:
            self._passages_worker.submit_call(
                self._search_all_passages, self._pane.show_passages_of_unfolded_entries
            )

    def _stop_search(self) -> None:
        self._full_worker.discard_pending_results()
        self._keyword_worker.discard_pending_results()
        self._passages_worker.discard_pending_results()
        if self._timer:
            self._timer.stop()

    def _start_search(self) -> None:
        self._stop_search()
        self._must_open_first = self._has_failed = False
        self._limit = FIRST_HITS
        self._select_hit_when_loaded(0)
        if not self.query:
            self._answered_query = ""
            self._load_and_show_suggested_searches_and_bookmarks()
            return
        if not self._pane.list.rows:
            self.show_search_wait_reason()
        if self.mode != "semantic" and self._regex_of_query_in_slashes is None:
            request = self._make_search_request(mode="lexical", partial=True)
            self._keyword_worker.submit_call(
                lambda: self._library.search_by_keywords(request),
                lambda answer: self._show_search_answer(answer, refining=self.mode == "hybrid"),
                self._report_search_failure,
            )
        self._timer = self._pane.set_timer(FULL_SEARCH_DELAY_SECONDS, self._start_full_search)

    def show_search_wait_reason(self) -> None:
        """If there are no hits, show why the search is waiting."""
        if not self.query or self._has_failed:
            return
        answer, status = self._pane.answer, self._main.status
        if answer is None and self._answered_query != self.query:
            self._pane.show_text_instead_of_hits(
                status.describe_search_wait_reason(has_answer=False) or "Searching …"
            )
        elif answer is not None and not answer.hits:
            self._pane.show_search_wait_reason(status.describe_search_wait_reason(has_answer=True))

    def _make_search_request(self, *, mode: Mode, partial: bool) -> SearchRequest:
        hidden = self._main.panes.library.state.hidden
        hidden = hidden or (self._saved is not None and self._saved.hidden)
        return SearchRequest(
            self.query,
            mode=mode,
            hidden=hidden,
            archived=self._saved is not None and self._saved.archived,
            limit=self._limit,
            per_entry=1,
            partial=partial,
            all_projects=self.searches_all_projects,
        )

    @property
    def _regex_of_query_in_slashes(self) -> str | None:
        """If the query is a regular expression between slashes, this expression; otherwise, None."""
        regex = split_regex_query(self.query)
        return regex and regex[0]

    def _start_full_search(self) -> None:
        self._timer = None
        query = self.query
        if self._regex_of_query_in_slashes is not None:
            from kbtui.library.regex_line_search import search_lines_by_pattern

            hidden = self._main.panes.library.state.hidden
            self._full_worker.submit_call(
                lambda: search_lines_by_pattern(self._library, query, hidden=hidden),
                self._show_full_search_answer,
                self._report_search_failure,
            )
            return
        request = self._make_search_request(mode=self.mode, partial=False)
        unfinished = self._make_search_request(mode=self.mode, partial=True)

        def has_inexact_matches(answer: SearchAnswer) -> bool:
            return answer.has_notice("meaning_only") or answer.has_notice("near_spellings")

        def search_with_word_prefix_fallback() -> SearchAnswer:
            # `origin=None` keeps the search out of the query log; `log_current_query` logs it later.
            answer = self._library.search(request, origin=None)
            if answer.hits and not has_inexact_matches(answer):
                return answer
            # The last word may be incomplete, so search for words that begin with it. Ignore an incomplete
            # filter, but report it as a mistake.
            wider = self._library.search(unfinished, origin=None)
            if not wider.hits or (answer.hits and has_inexact_matches(wider)):
                return answer if answer.hits or answer.mistakes else wider
            if answer.mistakes:
                return wider._replace(notices=[answer.mistakes[0].as_notice])
            return wider

        self._full_worker.submit_call(
            search_with_word_prefix_fallback,
            self._show_full_search_answer,
            self._report_search_failure,
        )

    def _show_full_search_answer(self, answer: SearchAnswer) -> None:
        self._keyword_worker.discard_pending_results()
        self._show_search_answer(answer, refining=False)
        self._unlogged = None if self._is_logged else answer
        query = self.query
        seconds, follow_up = LOG_DELAY_SECONDS, self.log_current_query
        if self._library.is_index_unfinished:
            seconds, follow_up = REPEAT_INTERVAL_SECONDS, self.repeat_search
        elif any(one.code in ("query_mistake", *FILTER_NOTICES) for one in answer.notices):
            # The user has not finished the query, or will correct it, so do not log it yet. Opening a hit
            # logs it.
            return
        self._pane.set_timer(seconds, lambda: follow_up() if query == self.query else None)

    def _show_search_answer(self, answer: SearchAnswer, *, refining: bool) -> None:
        self._pane.show_search_answer(
            answer, refining, same_query=self._answered_query == self.query
        )
        if not answer.hits:
            self._pane.show_search_wait_reason(
                self._main.status.describe_search_wait_reason(has_answer=True)
            )
            self._preview_absence_of_hits_soon()
        self._answered_query = self.query
        self.underline_filter_mistakes(self._search_input)
        request = self._make_search_request(mode=answer.mode, partial=answer.partial)
        self._answered_request = request
        self._search_all_passages = partial(
            self._library.search, request._replace(limit=MAX_HITS, per_entry=0), origin=None
        )
        if self._regex_of_query_in_slashes is not None:
            self._answered_request = None  # a matching line has no rank to explain
        if self._wanted_hit and not refining:
            wanted = self._wanted_hit
            self._select_hit_when_loaded(0)
            if not self._pane.select_hit(wanted):
                self._select_last_hit(wanted)
        if self._must_open_first and answer.hits:
            self._open_selected_hit()

    def _report_search_failure(self, error: Exception) -> None:
        self._answered_query = ""
        self._select_hit_when_loaded(0)
        self._has_failed = True
        self._must_open_first = False
        self._pane.show_text_instead_of_hits(
            f"The search failed: {sanitize_to_one_line(str(error))}"
        )
        self._preview_absence_of_hits_soon()

    def log_current_query(self) -> None:
        """Add the current query to the query log, unless it is logged already.

        If the current query begins with the last logged query, it replaces that query in the log,
        unless the user has opened a hit or left the search in between.
        """
        answer, self._unlogged = self._unlogged, None
        if answer is None:
            return
        self._is_logged = True
        before, self._unused = self._unused, answer.query
        is_longer = answer.query.startswith(before) and answer.query != before
        replaces = before if is_longer else ""
        if self._walked_index < 0:
            others = (query for query in self._recent_queries if query != replaces)
            self._recent_queries = list(dict.fromkeys([answer.query, *others]))
        self._log_worker.submit_call(
            lambda: self._library.log_search(answer, "dashboard", replaces=replaces),
            self._report_unlogged_search,
        )

    def _report_unlogged_search(self, notice: Notice | None) -> None:
        """If there is a notice, tell the user that searches are not logged because the query log is damaged.

        The message is shown only once.
        """
        if notice is not None and not self._has_reported_log:
            self._has_reported_log = True
            text = "The query log is damaged, so searches are not logged. See `kbtui doctor`."
            self._main.status.flash_message(text, "warning")

    def walk_query_history(self, step: int) -> None:
        """Put the next older query into the input if `step` is 1, or the next newer one if it is -1.

        After the newest query of the history comes the query that the user had typed before.
        """
        if self._walked_index >= 0:
            self._show_query_of_history(self._walked_index + step)
            return
        from kbtui.userdata.user_data_store import UserData

        typed = self._search_input.value

        def start_at_latest_query(found: list[str]) -> None:
            if self._search_input.value != typed:
                return
            self._recent_queries = list(dict.fromkeys([*self._recent_queries, *found]))
            # The query in the input is often the latest of the history.
            here = sanitize_to_one_line(typed, "strip")
            others = [query for query in self._recent_queries if query != here]
            self._walked_queries, self._typed_query = others, typed
            self._show_query_of_history(0)

        def report_unreadable_log(error: Exception) -> None:
            start_at_latest_query([])
            self._main.status.flash_message(
                format_error_on_one_line(error, self._library.workspace.root), "warning"
            )

        self._recent_worker.submit_call(
            lambda: UserData(self._library.workspace).query_log.list_recent_tui_queries(),
            start_at_latest_query,
            report_unreadable_log,
        )

    def _show_query_of_history(self, index: int) -> None:
        if index < 0:
            self._walked_index = -1
            self._search_input.show_typed_query(self._typed_query)
        elif index < len(self._walked_queries):
            self._walked_index = index
            self._search_input.show_recalled_query(self._walked_queries[index])
        else:
            self._main.show_why_key_does_nothing("No earlier searches.", "dim")

    # suggestions and saved searches

    def _load_and_show_suggested_searches_and_bookmarks(self) -> None:
        """Show earlier and saved searches, bookmarks and filters in place of the hits."""
        from kbtui.userdata.user_data_store import UserData

        def load_suggestions_from_user_data() -> EmptyQuerySuggestionsAndProblems:
            return load_empty_query_suggestions(UserData(self._library.workspace), recent)

        def show_suggestions_if_query_is_empty(found: EmptyQuerySuggestionsAndProblems) -> None:
            if not self.query:
                self._pane.show_empty_query_suggestions(found)

        recent = list(self._recent_queries)
        self._pane.show_text_instead_of_hits("Type to search.")
        self._suggestions_worker.submit_call(
            load_suggestions_from_user_data,
            show_suggestions_if_query_is_empty,
            lambda error: show_suggestions_if_query_is_empty(
                EmptyQuerySuggestionsAndProblems(suggest_all_search_filters(), [str(error)])
            ),
        )

    def use_suggested_search_bookmark_or_filter(self, suggestion: EmptyQuerySuggestion) -> None:
        """Run an earlier or saved search, open a bookmark, or begin a filter."""
        if suggestion.kind == "bookmark":
            self._main.document_controller.open_text_if_reference(
                suggestion.ref,
                lambda: self._main.status.flash_message(
                    f"{sanitize_to_one_line(suggestion.ref)} no longer exists.", "warning"
                ),
            )
            return
        saved = suggestion.saved
        if saved is not None:
            self.set_search_mode(saved.mode)
            self._saved = saved
        self.focus_search_input(saved.all_projects if saved is not None else None)
        self._search_input.value = suggestion.text
        self._search_input.action_end()

    def ask_for_name_and_save_search(self) -> None:
        """Ask for a name, and save the current query and mode under this name."""
        from kbtui.tui.framework.dialogs import TextInputDialog
        from kbtui.userdata.user_data_store import SavedSearch, UserData

        request = self._make_search_request(mode=self.mode, partial=False)
        status = self._main.status
        if not self.query:
            self._main.show_why_key_does_nothing("Search first: there is no query to save.")
            return

        def save_search_under_name(name: str | None) -> None:
            name = sanitize_to_one_line(name or "", "strip").strip()
            if not name:
                return
            search = SavedSearch(
                name,
                request.query,
                request.mode,
                request.archived,
                request.hidden,
                request.all_projects,
            )
            self._items.run_in_thread_with_activity_shown(
                "saving the search …",
                lambda: UserData(self._library.workspace).save_search(search),
                lambda replaced: status.flash_message(
                    f"Saved as {name}{', in place of the earlier search' if replaced else ''}."
                ),
            )

        name = self._saved.name if self._saved else request.query
        dialog = TextInputDialog("Save the search as", name, "a name", "name", select=True)
        self._main.open_dialog(dialog, save_search_under_name)

    def open_reference_or_best_hit(self, text: str) -> None:
        """Open `text` if it is a reference to something that exists. Otherwise, open the selected hit."""
        self._main.document_controller.open_text_if_reference(
            text, self._open_selected_or_first_hit
        )

    def _open_selected_or_first_hit(self) -> None:
        """Open the selected hit. If the search is still running, open the first hit that it finds."""
        if not self.query:
            if self._pane.is_showing_suggestions:
                self._pane.action_open_selected_row()
            return
        if self._answered_query == self.query:
            self._open_selected_hit()
        elif self._has_failed:
            self._start_search()
        else:
            self._must_open_first = True

    def _open_selected_hit(self) -> None:
        self._must_open_first = False
        self._is_opening_hit = self._pane.list.selected_row is not None
        self._pane.action_open_selected_row()

    def open_or_preview_hit(self, hit: Hit, preview: bool) -> None:
        """Open a hit or, if `preview` is true, preview it after a short delay."""
        if self._preview_timer:
            self._preview_timer.stop()
        if not preview:
            self.log_current_query()
            self._unused = ""
            if self._main.is_hit_of_other_workspace(hit):
                self._is_opening_hit = False
                self._main.open_hit_in_other_workspace(hit)
            else:
                self._log_opened_hit(hit)
                target = make_hit_target(hit)
                self._main.open_target_in_reader(target)
                self._opened_hit = self._main.document_controller.history.at, target.key
            return
        self._preview_timer = self._main.screen.set_timer(
            PREVIEW_DELAY_SECONDS, lambda: self._preview_hit_in_reader(hit)
        )

    def _log_opened_hit(self, hit: Hit) -> None:
        answer = self._pane.passages or self._pane.answer
        # A line that matches a regular expression says nothing about how good a ranking is.
        if answer is not None and answer.query and split_regex_query(answer.query) is None:
            self._opened_hit_worker.submit_call(lambda: self._library.log_opened_hit(answer, hit))

    def preview_selected_hit(self) -> None:
        """Preview the selected hit at once, if the screen has room for the reader."""
        if (row := self._pane.list.selected_row) and not self._pane.is_showing_suggestions:
            self._preview_hit_in_reader(row.data)

    def _preview_hit_in_reader(self, hit: Hit) -> None:
        has_room = bool(self._main.screen.classes & {"-three", "-wide"})
        if not self.is_results_pane_open or not has_room:
            return
        document_controller = self._main.document_controller
        if self._main.is_hit_of_other_workspace(hit):
            document_controller.preview_hit_of_other_workspace(hit)
        elif (target := make_hit_target(hit)) == document_controller.shown:
            document_controller.cancel_document_loading()
        else:
            document_controller.open_target_in_reader(target, preview=True)

    def _preview_absence_of_hits_soon(self) -> None:
        """After a short delay, replace the preview of an earlier hit with the reason why there are no hits."""
        if self._preview_timer:
            self._preview_timer.stop()

        def preview_absence_of_hits() -> None:
            if self.is_results_pane_open and not self._pane.list.rows:
                reason = self._pane.list.empty_text
                self._main.document_controller.preview_absence_of_hits(reason)

        self._preview_timer = self._main.screen.set_timer(
            PREVIEW_DELAY_SECONDS, preview_absence_of_hits
        )

    # similar items and explanations

    def show_similar_to_selected_item(self) -> None:
        """Show passages similar to the selected or open item."""
        reference = self._items.get_selected_reference_or_warn()
        if reference is None:
            return
        ref = parse_ref(reference)
        if ref.kind == "topic":
            self._main.show_why_key_does_nothing(
                "Select a subject or conversation; a topic has no text of its own to compare."
            )
            return
        request = SearchRequest("", limit=MAX_HITS, per_entry=1)
        contents = self._main.document_controller.contents
        title = self._items.get_title_of_current_item(reference)
        name = contents.shorten_reference(reference) if contents else reference
        name = f"“{title}”" if title else name
        if title and ref.turn is not None:
            name += f", turn {ref.turn}"

        def show_similar_passages(answer: SearchAnswer) -> None:
            self._stop_search()
            self.query, self._answered_query, self._answered_request = "", "", None
            self._search_all_passages = partial(
                self._library.find_similar_passages, ref, request._replace(per_entry=0)
            )
            self._opened_hit = None
            self._pane.show_similar_passages(name, answer)
            self._show_and_focus_results()

        self._items.run_in_thread_with_activity_shown(
            f"searching for passages similar to {name} …",
            lambda: self._library.find_similar_passages(ref, request),
            show_similar_passages,
        )

    @property
    def has_ranked_hits(self) -> bool:
        """Whether the hits are ranked for a query, so that search modes and rank explanations apply.

        This is false for matches of a regular expression, similar passages and suggestions.
        """
        return self._answered_request is not None and not self._pane.is_showing_suggestions

    def open_hit_for_outline(self) -> bool:
        """Open the selected hit, so that its outline can be shown.

        If this is impossible, say why and return False.
        """
        row = self._pane.list.selected_row
        if row is None or self._pane.is_showing_suggestions:
            self._main.show_why_key_does_nothing("No hit is selected, so there is no outline.")
            return False
        if self._main.is_hit_of_other_workspace(row.data):
            self._main.show_why_key_does_nothing(
                "This hit is in another workspace. Open the hit before you open its outline."
            )
            return False
        self.open_or_preview_hit(row.data, preview=False)
        return True

    def explain_selected_hit(self) -> None:
        """Explain the rank of the selected hit."""
        row = self._pane.list.selected_row
        if row is None or self._pane.is_showing_suggestions:
            return
        ref = str(Ref("chunk", chunk=row.data.chunk_id))
        self._show_rank_explanation(
            lambda request: request._replace(why=ref, per_entry=0, limit=MAX_HITS)
        )

    def ask_which_missing_hit_to_explain(self) -> None:
        """Ask for a reference, and explain why the results do not contain its target."""
        current = self._main.document_controller.history.current_target
        ref = current.ref if current else None
        known = str(ref) if ref and ref.kind != "topic" else ""
        if sanitize_to_one_line(known) != known:
            known = ""  # The slug contains characters that an input cannot show.
        from kbtui.tui.framework.dialogs import TextInputDialog

        title = "Which subject or turn is missing from the results?"
        dialog = TextInputDialog(
            title, known, "topic/slug, jp-c…:3 or claude-…:3", "reference", True
        )

        def explain_missing_reference(text: str | None) -> None:
            if text:
                self._show_rank_explanation(lambda request: request._replace(why=text))

        self._main.open_dialog(dialog, explain_missing_reference)

    def _show_rank_explanation(self, change: Callable[[SearchRequest], SearchRequest]) -> None:
        """Repeat the last search with the request that `change` returns, and show the explanation."""
        request, status = self._answered_request, self._main.status
        if request is not None and request.all_projects:
            key = find_key_label_of_command("search", self._main.screen.configured_keys)
            self._main.show_why_key_does_nothing(
                f"Ranks can be explained only in a search of one workspace ({key} starts one)."
            )
            return
        if request is None:
            reason = "Search first: only search results can be explained."
            if self._regex_of_query_in_slashes is not None:
                reason = "The lines that match a regular expression have no rank to explain."
            self._main.show_why_key_does_nothing(reason)
            return

        def show_explanation_document(explanation: RankExplanation | None) -> None:
            if explanation is None:
                gone = "The results no longer contain this hit, because files or the index changed."
                status.flash_message(gone, "warning")
                return
            from kbtui.tui.generated_reader_pages import build_rank_explanation_document
            from kbtui.tui.secondary_screen import DocumentOverlayScreen

            page = build_rank_explanation_document(explanation, request.query)
            self._main.open_dialog(DocumentOverlayScreen("Why", page))

        self._items.run_in_thread_with_activity_shown(
            "explaining …",
            lambda: self._library.search(change(request), origin=None).why,
            show_explanation_document,
        )

    def show_completion_suggestions(
        self, entry: Input, filter_input: FilterInput = "search"
    ) -> None:
        """Show the best completion of the text in the input, and all completions in the key hints."""
        text, cursor = entry.value, entry.cursor_position
        if not text.strip():
            self._suggestion_worker.discard_pending_results()
            self._show_completions_in_key_hint_line(entry, text, cursor, [])
            return
        self._suggestion_worker.submit_call(
            lambda: self._find_query_completions(text, cursor, filter_input),
            lambda found: self._show_completions_in_key_hint_line(entry, text, cursor, found),
            lambda error: self._show_completions_in_key_hint_line(entry, text, cursor, []),
        )

    def _show_completions_in_key_hint_line(
        self, entry: Input, text: str, cursor: int, found: list[QueryCompletion]
    ) -> None:
        self._hints.show_completions(entry, text, cursor, found)
        self._completions = (entry, text, cursor, found)

    @property
    def is_finding_completions(self) -> bool:
        """Whether kbtui is still looking for completions of the text in an input."""
        return self._suggestion_worker.has_pending_result

    def accept_completion(self, entry: Input) -> None:
        """Put the best completion into the input. If the input is empty, focus the next pane.

        The focus stays in an input with text, because the next keys are often more text.
        """
        *completed, found = self._completions
        if not entry.value:
            self._main.panes.focus_next_pane(1)
        elif found and completed == [entry, entry.value, entry.cursor_position]:
            best = found[0]
            entry.value = f"{entry.value[: best.start]}{best.text}{entry.value[best.end :]}"
            entry.cursor_position = best.start + len(best.text)
        else:
            self._main.status.show_unavailable_key_message("There is nothing to complete.", "dim")

    def _find_query_completions(
        self, text: str, cursor: int, filter_input: FilterInput
    ) -> list[QueryCompletion]:
        from kbtui.search.query_completion import list_query_completions

        contents = self._main.document_controller.contents
        # Until a search has returned an answer, there may be no index yet.
        has_index = self._pane.answer is not None or filter_input == "library"
        try:
            reader = self._library.open_index_reader(0.0) if has_index else None
        except KbtuiError:
            reader = None  # do not suggest values that only the index contains
        return list_query_completions(
            text,
            cursor,
            self._library.load_knowledge(),
            reader,
            filter_input=filter_input,
            conversations=contents.conversations if contents else (),
            summaries=[*contents.summaries.values()] if contents else (),
            projects=self._list_project_names() if "project" in text else (),
        )

    def _list_project_names(self) -> list[str]:
        from kbtui.conversations.workspace_and_worktree_directories import identify_project
        from kbtui.userdata.workspace_registry import list_registered_workspaces

        names = [identify_project(str(self._library.workspace.root)).name]
        if self.searches_all_projects:
            names += [one.project for one in list_registered_workspaces(self._library.settings)]
        return [*dict.fromkeys(names)]

    def underline_filter_mistakes(self, entry: SearchInput) -> None:
        """Underline the invalid filters in the query, and words that look like filters but are not.

        For each word that only looks like a filter, a remark above the results says what is wrong.
        """
        from kbtui.search.query_parsing_and_filter_application import parse_query

        text = entry.value
        almost_filters = parse_query(text, partial=True).almost_filters
        self._pane.show_remarks_on_filter_like_words([word.notice for word in almost_filters])
        spans = [(word.start, word.end) for word in almost_filters]
        answer = self._pane.answer
        if answer is not None and answer.query == text:
            spans += [(one.start, one.end) for one in answer.mistakes if one.start >= 0]
        if spans != entry.errors.spans:
            entry.errors.spans = spans
            entry.refresh()
