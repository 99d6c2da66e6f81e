"""The search bar, and the results pane, which shows suggestions while the search input is empty."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Literal

from textual import on
from textual.containers import Horizontal, Vertical
from textual.message import Message

from kbtui.dates import Clock, format_date_with_month_name
from kbtui.errors import WorkspaceError
from kbtui.light_named_tuple import NamedTuple
from kbtui.notices import NOTHING_INDEXED, Notice, format_notice, join_notice_texts_with_semicolons
from kbtui.search.filter_definitions import list_filters_accepted_by_input_field
from kbtui.search.search_request_and_answer import MAX_HITS
from kbtui.terminal_text import (
    KNOWLEDGE_CHANGED,
    LEG_NAMES,
    cut_to_width,
    find_excerpt_start,
    find_start_of_densest_matches,
    format_counted_noun,
    format_parent_title_suffix,
    measure_text_width,
    remove_repeated_title,
    sanitize_text_and_move_ranges,
    sanitize_to_one_line,
)
from kbtui.tui.framework.base_screens_and_widgets import (
    CompletingInput,
    LeftAndRightTextLine,
    PaneCoveredByChildren,
    QueryErrorHighlighter,
    WrappedTextBarAboveWidget,
    get_configured_keys,
    make_plain_label_text,
)
from kbtui.tui.framework.row_list import ListRow, RowList, make_heading_row
from kbtui.tui.framework.styled_text import (
    add_style_role,
    capitalize_first_word_unless_name,
    measure_cell_width,
    slice_spans,
    truncate_spans,
    truncate_text_start,
    wrap_spans,
)
from kbtui.tui.framework.tui_command_definition import make_list_movement_bindings_for_focused_input
from kbtui.tui.tui_command_table import (
    find_key_label_for_input,
    find_key_label_of_command,
    make_key_bindings_of_scopes,
)
from kbtui.workspace.paths import get_user_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from textual.app import ComposeResult
    from textual.widgets.input import Selection

    from kbtui.search.search_request_and_answer import Hit, Mode, SearchAnswer
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.userdata.user_data_store import SavedSearch, UserData


MODES: dict[Mode, str] = {
    "hybrid": " and ".join(LEG_NAMES.values()),
    "lexical": LEG_NAMES["lexical"],
    "semantic": LEG_NAMES["semantic"],
}


MATCH_NOTICES = ("meaning_only", "near_spellings", "filters_leave_nothing")
"""The codes of notices about how well the hits match the query. They are shown above the hits."""
FILTER_NOTICES = ("unknown_filter", "filter_of_other_input", "filter_without_value")
"""The codes of notices about words that look like filters.

They are shown above the hits while the user types, before the search has returned an answer.
"""
UNSEARCHED_NOTICES = ("configuration_invalid", "workspace_left_out", "other_directories")
"""The codes of notices about what was not searched.

They are shown above the hits, because they may not fit into the summary line.
"""
OPEN_PHRASE = 'the last " is not closed, so all words after it are one phrase'
"""A remark above the hits, for queries with an odd number of quotation marks."""
PLACEHOLDER = 'Search topics and conversations: words, "phrase", tool:, after:'
PLACEHOLDER_OF_ALL_PROJECTS = 'Search all projects: words, "phrase", tool:, after:'


class SearchInput(CompletingInput):
    """The search input. While it has the focus, the arrow keys move the selection in the results."""

    BINDINGS = make_list_movement_bindings_for_focused_input("move_in_results")

    class InputTextSelectionChanged(Message):
        """The selection in the input changed."""

        def __init__(self, is_whole_query: bool, is_query_empty: bool) -> None:
            super().__init__()
            self.is_whole_query, self.is_query_empty = is_whole_query, is_query_empty

    def watch_selection(self, selection: Selection) -> None:
        """Post a message that says whether the whole query is selected."""
        length = len(self.value)
        is_whole = bool(length) and {selection.start, selection.end} == {0, length}
        self.post_message(self.InputTextSelectionChanged(is_whole, not length))

    recalled: str | None = None
    """The query that the user has recalled from the history.

    It is None if the user has edited the query or selected another hit since then.
    """
    moved_with: str | None = None
    """The query that was in the input when the user last selected another hit; None if that never happened."""

    def __init__(self) -> None:
        self.errors = QueryErrorHighlighter()
        super().__init__(
            id="search", placeholder=PLACEHOLDER, compact=True, highlighter=self.errors
        )

    def show_recalled_query(self, text: str) -> None:
        """Put an earlier query into the input."""
        self.recalled = self.value = text
        self.action_end()

    def show_typed_query(self, text: str) -> None:
        """Put back the query that the user had typed before recalling earlier queries."""
        self.recalled, self.value = None, text
        self.action_end()

    async def action_move_in_results(self, move: str, *pages: float) -> None:
        """Select another hit in the list; `move` is a direction such as "up" or "down".

        As in a shell, "up" recalls the previous query, unless the user has moved to a hit below the
        first. After a query has been recalled, "up" and "down" walk through the history until the
        user edits the query or selects another hit.
        """
        results = self.screen.query_one("#results", SearchResultsPane).list
        is_in_history = self.recalled is not None and self.value == self.recalled
        is_in_list = self.moved_with == self.value and not results.is_at_list_start
        if is_in_history or not is_in_list:
            step = {"up": 1, "down": -1}.get(move, 0)
            if step > 0 or (step and is_in_history):
                await self.screen.run_action(f"walk_query_history({step})")
                return
        self.recalled, self.moved_with = None, self.value
        getattr(results, f"action_{move}")(*pages)


class SearchBar(Horizontal):
    """The top line: the search input, and the name of the workspace."""

    def __init__(self, workspace: str, former: str = "") -> None:
        """Create the bar.

        `former` is the workspace to which the user can return, or "" if there is none.
        """
        super().__init__(id="search-bar")
        self._workspace, self._former = workspace, former
        self._sign = LeftAndRightTextLine(id="search-sign")

    def show_search_scope(self, all_projects: bool) -> None:
        """Show whether the search covers all projects or only this workspace."""
        self._show_search_scope_label(all_projects)
        entry = self.query_one("#search", SearchInput)
        entry.placeholder = PLACEHOLDER_OF_ALL_PROJECTS if all_projects else PLACEHOLDER

    def _show_search_scope_label(self, all_projects: bool) -> None:
        command = "search_all" if all_projects else "search"
        spans: Spans = [(find_key_label_of_command(command, get_configured_keys(self)), "key")]
        if all_projects:
            spans.append((" all projects", "accent"))
        self._sign.set_edge_texts(spans)
        self._sign.styles.width = 3 + measure_cell_width(spans)

    def compose(self) -> ComposeResult:
        """Yield the label of the key that starts a search, the input, and the workspace's name."""
        self._show_search_scope_label(False)
        yield self._sign
        yield SearchInput()
        name = LeftAndRightTextLine(id="workspace")
        name.left = [(sanitize_to_one_line(self._workspace), "strong"), (" kbtui", "dim")]
        if self._former:
            name.left.insert(0, (f"{sanitize_to_one_line(self._former)} › ", "dim"))
        name.styles.width = measure_cell_width(name.left) + 2
        yield name


class HitList(RowList):
    """The list of hits. Going to its end loads all hits first."""

    class GoToLastHitRequested(Message):
        """The user wants to go to the last hit."""

    def action_bottom(self) -> None:
        self.post_message(self.GoToLastHitRequested())


class SearchResultsPane(PaneCoveredByChildren, Vertical):
    """The pane with the hits of the last query."""

    BINDINGS = make_key_bindings_of_scopes("results")

    class OpenHitRequested(Message):
        """The user opened a hit. If `preview` is true, the user only selected it."""

        def __init__(self, hit: Hit, preview: bool) -> None:
            super().__init__()
            self.hit, self.preview = hit, preview

    class EmptyQuerySuggestionChosen(Message):
        """The user chose a row of the list that is shown while the search input is empty."""

        def __init__(self, suggestion: EmptyQuerySuggestion) -> None:
            super().__init__()
            self.suggestion = suggestion

    class AllPassagesRequested(Message):
        """The user unfolded an entry, but the answer contains only its best passage."""

    class MoreHitsRequested(Message):
        """The user scrolled close to the end of the list, and the search has more hits."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="results", classes="pane")
        self._clock = clock
        self.border_title = "Results"
        self.list = HitList("results-list")
        self._summary = LeftAndRightTextLine(id="answer")
        self._notice = WrappedTextBarAboveWidget(self.list)
        self._remarks: list[str] = []
        self._filter_remarks: list[str] = []
        self.answer: SearchAnswer | None = None
        self._unfolded: set[tuple[str | None, str]] = set()
        """The unfolded entries, as pairs of project and id.

        All their hits are shown; of any other entry, only the best one is.
        """
        self.passages: SearchAnswer | None = None
        """The answer with all passages of each entry; None until the user unfolds an entry."""
        self._is_refining = False
        """Whether the search by meaning, which may add hits to the answer, is still running."""

    def compose(self) -> ComposeResult:
        yield self._summary
        yield self.list

    def on_mount(self) -> None:
        """Watch the scroll position, and request more hits when it comes close to the end of the list."""
        self.watch(self.list, "scroll_y", self._request_more_hits_at_end, init=False)

    def show_text_instead_of_hits(self, reason: str) -> None:
        """Show a text instead of hits."""
        self.answer = None
        self.border_title = "Results"
        self.list.set_rows([], [(reason, "dim")])
        self._summary.set_edge_texts([])
        self._remarks = []
        self._show_query_remarks()

    def show_empty_query_suggestions(self, loaded: EmptyQuerySuggestionsAndProblems) -> None:
        """Show earlier searches and other suggestions instead of hits.

        Messages about suggestions that could not be read are shown above them.
        """
        self.show_text_instead_of_hits("Type to search.")
        self._show_warnings(map(sanitize_to_one_line, loaded.problems))
        rows = list(iterate_empty_query_suggestion_rows(loaded.suggestions))
        self.border_title = "Search"
        self.list.set_rows(rows, select=rows[1].key if rows else None)

    @property
    def is_showing_suggestions(self) -> bool:
        """Whether suggestions are shown instead of hits."""
        row = self.list.selected_row
        return row is not None and isinstance(row.data, EmptyQuerySuggestion)

    def show_search_answer(self, answer: SearchAnswer, refining: bool, same_query: bool) -> None:
        """Show the hits of an answer.

        If the answer is for the same query as before (`same_query`), a hit that the user has
        selected stays selected. Otherwise, the first hit is selected. `refining` says whether the
        search by meaning is still running.
        """
        self.answer, self._is_refining = answer, refining
        if not same_query:
            self._fold_all_entries()
        elif self._unfolded and not refining:
            self.post_message(self.AllPassagesRequested())
        self.border_title = "Results"
        is_untouched = self.list.is_at_list_start and not self.list.has_focus
        select_first = answer.hits and (is_untouched or not same_query)
        empty = self._explain_empty_results(answer)
        if refining and not answer.mistakes:
            empty = [("No keyword hits; searching by meaning …", "dim")]
        # Without hits, the list says what is wrong with the query.
        shown = {*MATCH_NOTICES, *UNSEARCHED_NOTICES}
        if answer.hits:
            shown.add("query_mistake")
        self._remarks = [format_notice(one) for one in answer.notices if one.code in shown]
        is_phrase_open = answer.query.count('"') % 2 and not answer.has_notice("regular_expression")
        if is_phrase_open and not refining:
            self._remarks.append(OPEN_PHRASE)
        self._show_query_remarks()
        self._show_hits(empty, select=answer.hits[0].chunk_id if select_first else None)

    def _fold_all_entries(self) -> None:
        self._unfolded.clear()
        self.passages = None

    def show_passages_of_unfolded_entries(self, passages: SearchAnswer) -> None:
        """Add `passages` to the rows of unfolded entries that are in the current answer."""
        self.passages = passages
        self._show_hits()

    def show_remarks_on_filter_like_words(self, notices: Sequence[Notice]) -> None:
        """Show the problems with query words that look like filters."""
        self._filter_remarks = [format_notice(one) for one in notices]
        self._show_query_remarks()

    def _show_query_remarks(self) -> None:
        """Show the remarks about the query and its answer above the list."""
        remarks = [*self._filter_remarks, *self._remarks]
        self._show_warnings(map(capitalize_first_word_unless_name, remarks))

    def _show_warnings(self, texts: Iterable[str]) -> None:
        self._notice.set_paragraphs([[(text, "warning")] for text in texts])

    def _show_hits(self, empty: Spans | None = None, select: str | None = None) -> None:
        if self.answer:
            rows = list(self._iterate_hit_rows_by_entry(self.answer))
            self.list.set_rows(rows, empty, select=select)
            self._summary.set_edge_texts(*self._make_answer_summary(self.answer))
            self._request_more_hits_at_end()
        self.show_hit_position()

    @property
    def can_load_more_hits(self) -> bool:
        """Whether a search with a higher limit would return more hits."""
        answer = self.answer
        return answer is not None and (len(answer.hits) < answer.total or answer.has_more)

    @property
    def total_entries_with_hits(self) -> int:
        """The number of entries with hits, including hits beyond the limit of the search."""
        if self.answer is None:
            return 0
        entries = {_make_key_of_project_and_entry(hit) for hit in self.answer.hits}
        return max(len(entries), self.answer.total - len(self.answer.hits) + len(entries))

    @property
    def total_entries_with_hits_text(self) -> str:
        """`total_entries_with_hits` as text, followed by a plus sign if more hits are not ranked yet."""
        more = "+" if self.answer is not None and self.answer.has_more else ""
        return f"{self.total_entries_with_hits:,}{more}"

    def _list_best_hit_rows(self) -> list[ListRow]:
        """Return the row of the best hit of each entry."""
        rows = {
            _make_key_of_project_and_entry(row.data): row
            for row in self.list.rows[::-1]
            if row.selectable
        }
        return [*rows.values()][::-1]

    def select_hit(self, number: int) -> bool:
        """Select the hit with this number, counted from 1. Return whether the list contains the hit."""
        rows = (
            [] if self.answer is None or self.is_showing_suggestions else self._list_best_hit_rows()
        )
        return 1 <= number <= len(rows) and self.list.select_row(rows[number - 1].key)

    def select_last_hit(self) -> int:
        """Select the last row, and return the number of its hit."""
        RowList.action_bottom(self.list)
        return len(self._list_best_hit_rows())

    def show_hit_position(self) -> None:
        """Show in the border which hit is selected, such as "hit 30 of 103", and how to go to another hit."""
        text = ""
        if self.answer and self.answer.hits and not self.is_showing_suggestions:
            above = [row.data for row in self.list.rows[: self.list.index + 1] if row.selectable]
            text = f"hit {len({*map(_make_key_of_project_and_entry, above)}):,} of {self.total_entries_with_hits_text}"
            keys = get_configured_keys(self)
            key = find_key_label_of_command("go", keys)
            if isinstance(self.screen.focused, SearchInput):
                leave_and_press = f"Esc, then {key}" if key else ""
                key = find_key_label_for_input("go", keys) or leave_and_press
            if key:
                text += f" · {key} goes to a hit"
        self.border_subtitle = make_plain_label_text(text)

    def _iterate_hit_rows_by_entry(self, answer: SearchAnswer) -> Iterator[ListRow]:
        """Yield a row for the best hit of each entry.

        If an entry is unfolded, the rows of its other hits follow.
        """
        groups: dict[tuple[str | None, str], list[Hit]] = {}
        for hit in _group_hits_by_project(answer.hits):
            groups.setdefault(_make_key_of_project_and_entry(hit), []).append(hit)
        short_refs = answer.short_refs
        if self.passages is not None:
            short_refs = {**short_refs, **self.passages.short_refs}
            shown = {hit.chunk_id for hit in answer.hits}
            for hit in self.passages.hits:
                if hit.chunk_id not in shown and _make_key_of_project_and_entry(hit) in groups:
                    groups[_make_key_of_project_and_entry(hit)].append(hit)
        project = workspace = None
        digits = len(str(len(groups)))
        for number, (entry, hits) in enumerate(groups.items(), 1):
            if hits[0].project != project:
                project, workspace = hits[0].project, hits[0].workspace
                yield _make_project_heading_row(hits[0])
            refs = [short_refs.get(hit.ref, hit.ref) for hit in hits]
            is_unfolded = entry in self._unfolded
            more = 0 if is_unfolded and len(hits) > 1 else hits[0].entry_passages - 1
            other = hits[0].workspace if hits[0].workspace != workspace else None
            row = self._make_best_hit_row(hits[0], refs[0], more, other)
            row.left.insert(0, (f"{number:>{digits}} ", "dim"))
            yield row
            if is_unfolded:
                for hit, ref in zip(hits[1:], refs[1:], strict=True):
                    yield self._make_further_hit_row(hit, ref)

    def action_toggle_passages_of_entry(self) -> None:
        """Show all hits of the selected hit's entry, or only the best one."""
        row, answer = self.list.selected_row, self.answer
        if row is None or answer is None:
            return
        entry = _make_key_of_project_and_entry(row.data)
        hits = [hit for hit in answer.hits if _make_key_of_project_and_entry(hit) == entry]
        if entry in self._unfolded:
            self._unfolded.remove(entry)
            self._show_hits(select=hits[0].chunk_id)
        elif row.data.entry_passages > 1:
            self._unfolded.add(entry)
            self._show_hits()
            if answer.left_out and self.passages is None:
                self.post_message(self.AllPassagesRequested())

    def _request_more_hits_at_end(self) -> None:
        """If the list is scrolled near its end and there are more hits, post `MoreHitsRequested`."""
        if self.answer and self.can_load_more_hits and self.list.is_scrolled_near_end:
            self.post_message(self.MoreHitsRequested())

    def show_search_wait_reason(self, reason: str) -> None:
        """Show the reason why the search is waiting, unless the list already shows something."""
        if reason and not self.list.rows:
            self.list.set_rows([], [("No results yet. ", ""), (reason, "dim")])

    def show_similar_passages(self, name: str, answer: SearchAnswer) -> None:
        """Show the passages that are similar to the text of the item `name`."""
        self.answer, self._is_refining = answer, False
        self._fold_all_entries()
        self.border_title = make_plain_label_text(f"Similar to {name}")
        self._remarks, self._filter_remarks = [], []
        self._show_query_remarks()
        self._show_hits([("Nothing similar.", "dim")])
        self.list.action_top()

    def _explain_empty_results(self, answer: SearchAnswer) -> Spans:
        if answer.mistakes:
            # The search did not run, so show which part of the query is invalid.
            mistake = answer.mistakes[0]
            spans: Spans = [(sanitize_to_one_line(mistake.message), "warning")]
            if mistake.end > 0 and (wrong := answer.query[max(0, mistake.start) : mistake.end]):
                spans.insert(0, (f"{sanitize_to_one_line(wrong)}  ", "found"))
            if mistake.hint:
                spans.append((f"; {sanitize_to_one_line(mistake.hint)}", "dim"))
            return spans
        if answer.empty:
            return [(f"{NOTHING_INDEXED.capitalize()}.", "dim")]
        text = "No results. Try fewer words or ask a question."
        if answer.has_notice("regular_expression"):
            text = "No line matches this regular expression."
            if answer.has_notice("pattern_out_of_time"):
                # The summary above the list also says this, but it may be cut off.
                text = "The search ran out of time; no line that it reached matches."
        if answer.has_notice("filters_leave_nothing"):
            text = "No results. The filter excludes everything that matches."
        if answer.omitted:
            hits = format_counted_noun(answer.omitted, "hit")
            text = f"{hits} left out, because the text was deleted. {text}"
        spans = [(text, "dim")]
        if key := find_key_label_of_command("results.why", get_configured_keys(self)):
            spans += [(" Esc, then ", "dim"), (key, "key"), (": explain missing", "dim")]
        return spans

    def _make_answer_summary(self, answer: SearchAnswer) -> tuple[Spans, Spans]:
        if answer.mistakes:
            return [], []  # nothing was searched
        shown = len(answer.hits)
        left: Spans = [(format_counted_noun(shown, "hit"), "")]
        if self.can_load_more_hits:
            total = f"{answer.total:,}{'+' if answer.has_more else ''}"
            left = [(f"Top {shown} of {total}", "")]
            if shown < MAX_HITS:
                left.append((" · ↓ for more", "dim"))
        elif entries := len({_make_key_of_project_and_entry(hit) for hit in answer.hits}):
            passages = answer.total + answer.left_out
            if passages > entries:
                left.append((f" · {passages:,} passages", "dim"))
                left[0] = (format_counted_noun(entries, "hit"), "")
        projects = Counter(hit.project for hit in answer.hits if hit.project)
        if len(projects) > 1:
            counts = ", ".join(f"{name} {count}" for name, count in projects.items())
            left.append((f" · {sanitize_to_one_line(counts)}", "dim"))
        if answer.omitted:
            left.append((f", {answer.omitted:,} deleted", "dim"))
        if self._is_refining:
            return left, [("searching by meaning …", "dim")]
        shown_below = {*MATCH_NOTICES, *UNSEARCHED_NOTICES, *FILTER_NOTICES, "query_mistake"}
        others = [notice for notice in answer.notices if notice.code not in shown_below]
        if degraded := join_notice_texts_with_semicolons(others):
            room = self.list.scrollable_content_region.width - measure_cell_width(left) - 4
            return left, truncate_spans([(sanitize_to_one_line(degraded), "warning")], max(8, room))
        return left, [(MODES[answer.mode], "dim")]

    def _make_further_hit_row(self, hit: Hit, ref: str) -> ListRow:
        """Return the row of a hit that is not the best one of its entry.

        The row is shown below the row of the best hit, and has no title.
        """
        width, where = self._get_hit_text_width_and_location_label(hit, ref)
        first, *others = make_hit_excerpt(hit, width - len(where) - 2, 1) or [[]]
        left: Spans = [("  │ ", "dim"), *first]
        return ListRow(hit.chunk_id, left, [(where, "dim")], others, data=hit)

    def _get_hit_text_width_and_location_label(self, hit: Hit, ref: str) -> tuple[int, str]:
        """Return the number of cells for the text of a hit, and a string that says where the hit is.

        For a hit in a conversation, the string contains the role, turn and date. For a hit in a
        subject, it is the reference, which is shortened if it is long.
        """
        width = max(20, self.list.scrollable_content_region.width - 4)
        if hit.turn is not None and hit.timestamp is not None:
            now = self._clock()
            date = format_date_with_month_name(
                hit.timestamp.astimezone(now.tzinfo).date(), now.date()
            )
            return width, f"{sanitize_to_one_line(hit.role or '')}, turn {hit.turn} · {date}"
        return width, truncate_text_start(sanitize_to_one_line(ref), max(18, width * 2 // 5))

    def _make_best_hit_row(self, hit: Hit, ref: str, more: int, workspace: str | None) -> ListRow:
        """Return the row of the best hit of an entry.

        `more` is the number of other passages that are folded. `workspace` is the workspace to show
        in the row, or None.
        """
        mark = ("◆ ", "accent") if hit.kind == "subject" else ("▌ ", "user")
        # Put the signs before the title, because a narrow row cuts off the text after the title.
        title: Spans = [
            mark,
            *_make_mark_signs_of_hit(hit),
            (sanitize_to_one_line(hit.title), "strong"),
        ]
        title.append((format_parent_title_suffix(hit.parent_title, hit.parent_id), "dim"))
        if hit.rewound:
            title.append((" rewound", "warning"))
        title += [(f" {cut_to_width(one['label'], 60)}", "accent") for one in hit.marks]
        if hit.later_turn:
            title.append((f" again in turn {hit.later_turn}", "dim"))
        if hit.freshness == "changed":
            title.append((" changed after indexing", "warning"))
        if workspace:
            title.append((f" in {_abbreviate_home_directory(workspace)}", "dim"))
        width, where = self._get_hit_text_width_and_location_label(hit, ref)
        lines = 1 if hit.answer else 2
        below: list[Spans] = [[("  ", ""), *line] for line in make_hit_excerpt(hit, width, lines)]
        if hit.answer:
            answer = hit._replace(text=hit.answer, matches=(), role="assistant")
            for at, line in enumerate(make_hit_excerpt(answer, width - 2, 2)):
                below.append([("  ↳ " if at == 0 else "    ", "accent"), *line])
        if hit.outdated_subjects:
            # Show this on a separate line, because a narrow row would cut it off after the title.
            below.insert(0, [("  ", ""), (KNOWLEDGE_CHANGED, "warning")])
        right: Spans = [(f"+{more}  ", "accent")] if more > 0 else []
        return ListRow(hit.chunk_id, title, [*right, (where, "dim")], below, data=hit)

    def on_resize(self) -> None:
        self._show_hits()

    @on(RowList.SelectedRowChanged)
    def _preview_selected_hit(self, event: RowList.SelectedRowChanged) -> None:
        self.show_hit_position()
        if event.row is not None and not isinstance(event.row.data, EmptyQuerySuggestion):
            self.post_message(self.OpenHitRequested(event.row.data, preview=True))

    @on(RowList.RowClicked)
    def action_open_selected_row(self) -> None:
        row = self.list.selected_row
        if row is not None and isinstance(row.data, EmptyQuerySuggestion):
            self.post_message(self.EmptyQuerySuggestionChosen(row.data))
        elif row is not None:
            self.post_message(self.OpenHitRequested(row.data, preview=False))


def _make_key_of_project_and_entry(hit: Hit) -> tuple[str | None, str]:
    """Return a value that identifies the entry of a hit.

    An entry id alone is not enough, because two projects can have entries with the same id.
    """
    return hit.project, hit.entry_id


def _group_hits_by_project(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits project by project; the project with the best hit comes first."""
    first: dict[str | None, int] = {}
    for hit in hits:
        first.setdefault(hit.project, len(first))
    return sorted(hits, key=lambda hit: first[hit.project])


def _make_project_heading_row(hit: Hit) -> ListRow:
    """Return the row with the heading of a project, which also shows the workspace of its best hit."""
    name = sanitize_to_one_line(hit.project or "")
    return make_heading_row(
        f"project:{name}", name, _abbreviate_home_directory(hit.workspace or "")
    )


def _abbreviate_home_directory(path: str) -> str:
    """Return a path as it is displayed, with `~` instead of the user's home directory."""
    home = get_user_home().rstrip("/")
    is_inside = bool(home) and path.startswith(f"{home}/")
    return sanitize_to_one_line(f"~{path[len(home) :]}" if is_inside else path)


def make_hit_excerpt(hit: Hit, width: int, lines: int) -> list[Spans]:
    """Return at most `lines` lines of text around the first match of a hit.

    All matches are highlighted, and Markdown marks are removed.
    """
    text = hit.text
    if hit.role == "tool-call":
        # The arguments are JSON. Replace its escaped line breaks by spaces, as in other texts.
        text = re.sub(r"\\[nrt]", "  ", text)
    text, matches = sanitize_text_and_move_ranges(text, sorted(hit.matches))
    text, matches = remove_repeated_title(text, matches, hit.title)
    if hit.role not in ("tool-call", "tool-result"):
        # Removing Markdown marks from a long text is slow, so stop soon after the end of the excerpt.
        reach = (
            find_start_of_densest_matches(text, matches, width * lines) + width * (lines + 4) + 400
        )
        from kbtui.tui.reader.markdown_layout import strip_markdown_and_move_matches

        text, matches = strip_markdown_and_move_matches(text, matches, reach)
    spans: Spans = []
    position = 0
    for start, end in matches:
        if start >= position:
            spans += [(text[position:start], ""), (text[start:end], "found")]
            position = end
    spans.append((text[position:], ""))
    # Count fewer cells than a line has, because wrapping leaves the ends of most lines empty.
    begin = find_excerpt_start(text, matches, lines * max(width - 8, width // 2))
    made = _lay_out_excerpt(spans, begin, width, lines)
    if matches and not any(role == "found" for line in made for _, role in line):
        # Because of wide characters or long words, the match did not fit. So begin with the match.
        begin = find_start_of_densest_matches(text, matches, width * lines)
        made = _lay_out_excerpt(spans, begin, width, lines)
    return made


def _lay_out_excerpt(spans: Spans, begin: int, width: int, lines: int) -> list[Spans]:
    """Return at most `lines` lines of a text, beginning at the index `begin`. `…` marks omitted text."""
    end = begin + width * (lines + 2)
    flat = _collapse_spaces(slice_spans(spans, begin, end))
    if not any(role == "found" for _, role in spans):
        flat = add_style_role(flat, "dim")
    if begin and flat:
        flat.insert(0, ("…", "dim"))
    wrapped = wrap_spans(flat, width)
    made = [line.spans for line in wrapped[:lines]]
    if len(wrapped) > lines or end < sum(len(text) for text, _ in spans):
        made[-1] = truncate_spans([*made[-1], (" …", "dim")], width)
    return made


def _collapse_spaces(spans: Spans) -> Spans:
    """Replace each run of white space and box-drawing characters by one space."""
    flat: Spans = []
    for text, role in spans:
        text = re.sub(r"[\s\u2500-\u257f]+", " ", text)
        if not flat:
            text = text.lstrip("· ")
        elif flat[-1][0].endswith(" "):
            text = text.lstrip()
        if text:
            flat.append((text, role))
    return flat


def _make_mark_signs_of_hit(hit: Hit) -> Spans:
    if not hit.marks:
        return []
    from kbtui.conversations.turn_decision_marks import MARK_SIGNS

    return [(f"{MARK_SIGNS[one['state']]} ", "accent") for one in hit.marks]


MAX_SUGGESTIONS_OF_A_KIND = 8
"""At most this many earlier searches, and at most this many bookmarks, are suggested."""
NAME_WIDTH = 24
"""The width, in terminal cells, of the column with names and examples.

The explanations are in the next column.
"""


class EmptyQuerySuggestion(NamedTuple):
    """A row of the list that is shown while the search input is empty.

    `text` is the query of an earlier or saved search, or the beginning of a filter. `ref` and
    `title` are set only for a bookmark, and `saved` only for a saved search.
    """

    kind: Literal["recent", "saved", "bookmark", "filter"]
    text: str = ""
    ref: str = ""
    title: str = ""
    saved: SavedSearch | None = None


class EmptyQuerySuggestionsAndProblems(NamedTuple):
    """Suggestions, and messages about suggestions that could not be read."""

    suggestions: list[EmptyQuerySuggestion]
    problems: list[str]


def load_empty_query_suggestions(
    data: UserData, recent: Iterable[str]
) -> EmptyQuerySuggestionsAndProblems:
    """Return the earlier searches, saved searches, bookmarks and filters, in this order.

    `recent` contains the searches of this session, newest first. Earlier searches come from the
    query log.
    """
    found: list[EmptyQuerySuggestion] = []
    problems: list[str] = []
    try:
        queries = dict.fromkeys([*recent, *data.query_log.list_recent_tui_queries()])
        found += [EmptyQuerySuggestion("recent", text) for text in queries][
            :MAX_SUGGESTIONS_OF_A_KIND
        ]
    except WorkspaceError as error:
        problems.append(f"Earlier searches cannot be read: {error}")
    try:
        saved = data.list_saved_searches()
        found += [EmptyQuerySuggestion("saved", one.query, saved=one) for one in saved]
        found += [
            EmptyQuerySuggestion("bookmark", ref=one.ref, title=one.title or one.ref)
            for one in data.list_bookmarks()[:MAX_SUGGESTIONS_OF_A_KIND]
        ]
    except WorkspaceError as error:
        problems.append(f"Saved searches and bookmarks cannot be read: {error}")
    return EmptyQuerySuggestionsAndProblems([*found, *suggest_all_search_filters()], problems)


def suggest_all_search_filters() -> list[EmptyQuerySuggestion]:
    """Return a suggestion for each filter that a search supports."""
    return [
        EmptyQuerySuggestion("filter", f"{row.key}:")
        for row in list_filters_accepted_by_input_field("search")
    ]


HEADINGS = {
    "recent": "EARLIER SEARCHES",
    "saved": "SAVED SEARCHES",
    "bookmark": "BOOKMARKS",
    "filter": "FILTERS",
}


def iterate_empty_query_suggestion_rows(
    suggestions: Iterable[EmptyQuerySuggestion],
) -> Iterator[ListRow]:
    """Yield a row for each suggestion, and a heading before the first of each kind."""
    about = {f"{row.key}:": row for row in list_filters_accepted_by_input_field("search")}
    kind = ""
    for number, one in enumerate(suggestions):
        if one.kind != kind:
            kind = one.kind
            yield make_heading_row(kind, HEADINGS[kind])
        name, note = sanitize_to_one_line(one.title or one.text), ""
        if one.saved is not None:
            name, note = sanitize_to_one_line(one.saved.name), sanitize_to_one_line(one.text)
        elif kind == "bookmark":
            note = sanitize_to_one_line(one.ref)
        elif kind == "filter":
            name, note = about[one.text].example or one.text, about[one.text].about
        gap = " " * max(2, NAME_WIDTH - measure_text_width(name)) if note else ""
        yield ListRow(
            f"suggestion:{kind}:{number}", [(name, "strong"), (f"{gap}{note}", "dim")], data=one
        )
