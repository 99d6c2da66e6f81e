"""The main screen: its panes (library, search results, reader, citations) and their controllers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events, on
from textual.actions import SkipAction
from textual.containers import Horizontal
from textual.events import DescendantFocus
from textual.widgets import Input

from kbtui.errors import KbtuiError, format_error_on_one_line
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import Ref, parse_ref
from kbtui.search.search_request_and_answer import MAX_HITS, Hit
from kbtui.tui.citations_pane import CitationsPane
from kbtui.tui.framework.base_screens_and_widgets import CompletingInput, StyledScreen
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.framework.tui_command_definition import TuiCommand
from kbtui.tui.main.document_controller import DocumentController, MainScreenContext
from kbtui.tui.main.pane_layout import FOCUS_TARGETS, HEIGHT_CLASSES, WIDTH_CLASSES, PaneLayout
from kbtui.tui.main.saved_tui_state import SavedTuiStateManager
from kbtui.tui.main.search_controller import SearchController
from kbtui.tui.main.selected_item_actions import SelectedItemActions
from kbtui.tui.main.status_bar import KeyHintLine, StatusBar
from kbtui.tui.main.workspace_change_listener import WorkspaceChangeListener
from kbtui.tui.navigation_target import (
    HOME,
    PROMPT,
    EnteredReferenceText,
    OpenTargetRequested,
    make_hit_target,
    make_navigation_target,
)
from kbtui.tui.reader.reader_document import CHANGES_VIEWS, ReaderDocument
from kbtui.tui.reader.reader_pane import ReaderPane
from kbtui.tui.search_pane import HitList, SearchBar, SearchInput, SearchResultsPane
from kbtui.tui.topics_and_conversations_snapshot import TopicsAndConversations
from kbtui.tui.tui_command_table import (
    COMMANDS_BY_ID,
    SCOPES,
    SCREENS,
    find_key_label_of_command,
    make_key_bindings_of_scopes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult

    from kbtui.dates import Clock
    from kbtui.engine.engine_protocol import IndexChangedEvent
    from kbtui.knowledge.subject_editing import TrashedSubjectFile
    from kbtui.knowledge.toml_config_editor import TomlFileChange
    from kbtui.library import Library
    from kbtui.tui.navigation_target import NavigationTarget
    from kbtui.tui.outline_pane import OutlinePane
    from kbtui.tui.tui_command_table import Scope


class OtherWorkspaceVisit(NamedTuple):
    """A visit to another workspace.

    `former` is the name of the workspace where the user was before. `target` is the place to show
    first.
    """

    former: str
    target: NavigationTarget


class PaneContainer(Horizontal):
    """The container of the panes. The panes cover it, so it draws nothing itself."""

    BLANK = True


class MainScreen(StyledScreen):
    """The main screen, whose controllers handle its commands and the messages of its panes.

    * `panes` shows, folds, resizes and focuses the panes.
    * `document_controller` opens documents in the reader.
    * `items` runs commands on the selected or open item.
    * `search` runs searches and shows the results.
    * `change_listener` follows changes of files and events of the engine.
    * `session` saves and restores the state of the screen.
    """

    BINDINGS = make_key_bindings_of_scopes("everywhere")
    AUTO_FOCUS = ""
    # The screen draws nothing itself, because widgets cover it completely.
    BLANK = True
    HORIZONTAL_BREAKPOINTS = WIDTH_CLASSES
    VERTICAL_BREAKPOINTS = HEIGHT_CLASSES
    # The pane to show if the terminal has room for only one.
    DEFAULT_CLASSES = "at-library"

    def __init__(
        self,
        library: Library,
        clock: Clock,
        open_ref: Ref | None = None,
        first: Ref | None = None,
        fresh: bool = False,
        plain: bool = False,
        visit: OtherWorkspaceVisit | None = None,
    ) -> None:
        """Create the screen, which first shows `open_ref`.

        If `open_ref` is None, the screen restores its saved state. If there is no saved state, or
        `fresh` is true, the screen shows `first`, or the home page if `first` is None. If `plain`
        is true, one pane is shown at a time, without decoration, for users of a screen reader. If
        there is a `visit`, the screen shows the visited place, and the workspace's saved state is
        neither restored nor overwritten.
        """
        super().__init__()
        self.library = library
        self._clock = clock
        self._plain = plain
        self._visit = visit
        self._trashed: list[TrashedSubjectFile] = []
        """The files that the entries screen has moved to the trash, so that it can move them back later."""
        if open_ref or visit:
            # Even in a narrow terminal, show the document that the user asked for.
            self.set_classes("at-reader")
        self.status = StatusBar(library.workspace.name)
        self.hints = KeyHintLine()
        self.panes = PaneLayout(self, library, clock)
        self.library_pane, self.results_pane = self.panes.library, self.panes.results
        self.reader_pane, self.citations_pane = self.panes.reader, self.panes.citations
        self.document_controller = DocumentController(
            library,
            clock,
            self.reader_pane,
            self.status,
            self._update_screen_after_showing_document,
            self.open_target_in_reader,
        )
        context = MainScreenContext(
            self,
            library,
            self.panes,
            self.status,
            self.document_controller,
            self.open_target_in_reader,
            self.open_hit_in_other_workspace,
        )
        self.items = SelectedItemActions(context)
        self.search = SearchController(context, self.items, self.hints)
        self.change_listener = WorkspaceChangeListener(
            context, self.search, self.handle_files_changed, self._update_key_hints
        )
        wanted = open_ref or first
        first_target = make_navigation_target(wanted) if wanted else HOME
        if visit:
            first_target = visit.target
        must_reopen = open_ref is None and not fresh and not visit
        self.session = SavedTuiStateManager(
            context, self.search, first_target, must_reopen, is_saved=not visit
        )
        self._is_first_resume = True
        self._has_removed_message = False
        """Whether the last key has removed a message that said why a key did nothing."""
        self._visited_hit: Hit | None = None
        """The hit in another workspace that the user opened last, or None."""
        self._outline: OutlinePane | None = None
        """The outline; None until the user has opened it once."""
        self._prompt_changes: list[TomlFileChange] = []
        """The changes that the prompt workshop has written since kbtui started.

        The workshop can undo them.
        """
        # To run the command NAME, Textual calls `action_NAME`.
        self.action_copy = self.items.copy_selected_reference
        self.action_copy_more = self.items.choose_what_to_copy
        self.action_bookmark = self.items.add_or_change_bookmark
        self.action_mark = self.items.mark_turn
        self.action_keep = self.items.keep_copy_of_conversation
        self.action_link = self.items.open_link_on_current_line
        self.action_edit = self.items.edit_subject_or_used_file
        self.action_blame = self.items.list_turns_of_file_and_open_one
        self.action_offer_commands_that_continue_conversation = (
            self.items.offer_commands_that_continue_conversation
        )
        self.action_update_tools = partial(self.items.update_jp_tools, self.action_reload)
        self.action_export = self.items.export_conversation
        self.action_first = partial(self.items.propose_first_topic, self.action_reload)
        self.action_search = partial(self.search.focus_search_input, all_projects=False)
        self.action_search_all_projects = partial(self.search.focus_search_input, all_projects=True)
        self.action_walk_query_history = self.search.walk_query_history
        self.action_similar = self.search.show_similar_to_selected_item
        self.action_explain_hit = self.search.explain_selected_hit
        self.action_explain_missing = self.search.ask_which_missing_hit_to_explain
        self.action_change_search_mode = self.search.switch_to_next_search_mode
        self.action_close_results = self.search.close_results
        self.action_save_search = self.search.ask_for_name_and_save_search
        self.action_pause_embedding = self.change_listener.pause_or_continue_embedding
        self.action_home = partial(self.open_target_in_reader, HOME)
        self.action_prompt = partial(self.open_target_in_reader, PROMPT)
        self.action_focus_next_pane = self.panes.focus_next_pane
        self.action_widen = self.panes.widen_focused_pane
        self.action_reset_panes = self.panes.reset_pane_layout
        self.action_zoom = self.panes.toggle_pane_zoom

    def compose(self) -> ComposeResult:
        yield SearchBar(self.library.workspace.name, self._visit.former if self._visit else "")
        with PaneContainer(id="panes"):
            yield self.library_pane
            yield self.results_pane
            yield self.reader_pane
            yield self.citations_pane
        yield self.status
        yield self.hints

    @on(SearchInput.InputTextSelectionChanged)
    def _update_hints_of_search_input(self, event: SearchInput.InputTextSelectionChanged) -> None:
        self.hints.is_query_selected = event.is_whole_query
        self.hints.is_query_empty = event.is_query_empty

    def on_mount(self) -> None:
        """Focus a pane. After the first paint, open a document and read the library."""
        self.hints.keymap = self.document_controller.keymap = self.configured_keys
        if self._plain:
            self.panes.load_remaining_styles()
            self.add_class("plain", "zoomed")
        self.panes.apply_pane_widths()
        is_reading = self.has_class("at-reader")
        self.set_focus(self.reader_pane.document_view if is_reading else self.library_pane.list)
        self.call_after_refresh(self._start_controllers)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        # Textual computes the styles again at each resume, because themes can change while the
        # screen is covered. At the first resume, this is unnecessary: the styles were computed when
        # the widgets were mounted.
        event.refresh_styles = not self._is_first_resume
        self._is_first_resume = False

    def _start_controllers(self) -> None:
        self.panes.load_remaining_styles()
        notices = self.document_controller.notices = list(getattr(self.app, "problems", ()))
        if notices:
            # The home page lists all notices, but the reader may show another page at first.
            home = find_key_label_of_command("home", self.hints.keymap)
            shown = f"; press {home} to see all" if home else ""
            more = f" (1 of {len(notices)} problems{shown})" if len(notices) > 1 else ""
            self.status.flash_message(f"{notices[0]}{more}", "warning")
        if self._visit:
            self.status.flash_message(f"This is the workspace {self.library.workspace.root}")
        self.session.load_session_and_open_saved_or_startup_target()
        self.session.read_last_visit_and_mark_news()
        self.change_listener.read_lists_and_listen_to_engine()

    def on_unmount(self) -> None:
        self.session.save_tui_state_on_exit()
        self.change_listener.stop_listening_to_engine()
        if self._visit:
            self.library.close()

    def clear_unavailable_key_message(self) -> None:
        self._has_removed_message = self.status.clear_unavailable_key_message()

    # size, focus and the borders between panes

    def on_resize(self) -> None:
        self.panes.adapt_layout_to_terminal_size()
        self.search.preview_selected_hit()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """If the mouse is on the border between two panes, start to drag the border."""
        if self.panes.start_dragging_pane_border(event.screen_x, event.screen_y):
            event.stop()
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self.panes.drag_pane_border(event.screen_x)

    def on_mouse_up(self) -> None:
        if self.panes.stop_dragging_pane_border():
            self.release_mouse()

    @on(DescendantFocus)
    @on(ReaderPane.FindInDocumentEnded)
    def _update_key_hints(self) -> None:
        self.panes.show_pane(self.panes.focused_pane_id)
        self.results_pane.show_hit_position()
        self._show_key_hints_for_current_line_of_focused_pane()
        self._show_shell_command_for_screen()

    @on(RowList.SelectedRowChanged)
    def _show_key_hints_for_current_line_of_focused_pane(self) -> None:
        """Show the hints of the keys that do something at the current line of the focused pane."""
        name = self.panes.focused_pane_id
        input_id = (self.focused.id or "input") if isinstance(self.focused, Input) else ""
        scopes: tuple[Scope, ...] = (name, "everywhere") if name else ("everywhere",)  # type: ignore[assignment]
        viewport, document = self.reader_pane.viewport, self.reader_pane.viewport.document
        contents, step = self.document_controller.contents, self._find_go_back_function(name)
        conditions = {
            "find": self.reader_pane.is_finding,
            "matches": bool(self.reader_pane.matches),
            # The command that needs "folds" also opens links.
            "folds": viewport.is_openable_block_at_cursor
            or viewport.find_fold_at_cursor() is not None,
            "links": viewport.is_openable_block_at_cursor,
            "file": name == "reader" and (viewport.is_file_at_cursor or "source" in document.views),
            "tools": contents is not None and contents.learn_tool_problem is not None,
            "ranks": name == "results" and self.search.has_ranked_hits,
            "step_back": step is not None,
            "opened_hit": step == self._return_to_results,
        }
        self.hints.scopes, self.hints.input_id = scopes, input_id
        self.hints.offers = document.met_command_conditions.union(
            self.status.embedding_key_hint_conditions,
            self.citations_pane.met_command_conditions if name == "citations" else (),
            (feature for feature, is_met in conditions.items() if is_met),
        )
        self.hints.next_view = document.next_view

    def _show_shell_command_for_screen(self) -> None:
        """For users of a screen reader, show the shell command that prints the content of the screen."""
        if not self._plain:
            return
        from kbtui.tui.reader.links_and_copyable_texts import (
            build_kbtui_search_command,
            build_kbtui_show_command,
        )

        name, document = self.panes.focused_pane_id, self.reader_pane.document_view.document
        reference = self.reader_pane.document_view.viewport.current_reference
        if name == "results" or self.search.is_results_pane_open:
            command = build_kbtui_search_command(
                self.search.query, self.search.searches_all_projects
            )
        elif name == "library":
            command = "kbtui topics; kbtui conversation ls"
        elif name == "citations" and reference:
            command = f"kbtui cites {reference}"
        else:
            command = build_kbtui_show_command(document, reference) or "kbtui --help"
        self.hints.shell_command_for_screen = command

    def should_key_wait(self, key: str) -> bool:
        """Return whether a key must wait, because it acts on content that is still loading."""
        if (
            self.search.is_opening_hit
            or self.document_controller.is_looking_up_reference
            or self.items.is_asking
        ):
            # The key belongs to the document or dialog that is about to open.
            return key != "escape"
        if key == "tab" and self.search.is_finding_completions:
            return True
        is_opening = self.document_controller.is_opening
        reader_waits = is_opening or self.reader_pane.is_find_or_start_position_pending
        if self._outline is not None and self._outline.is_loading_outline:
            # Enter and the arrow keys act on rows that are still being made.
            return key in {"enter", "down", "up", "pagedown", "pageup"}
        citations_wait = is_opening or self.citations_pane.is_loading_citations
        library_waits = self.library_pane.is_building_rows
        if not (reader_waits or citations_wait or library_waits):
            return False
        owner, binding = self._find_key_binding(key)
        command = COMMANDS_BY_ID.get(binding.id or "") if binding else None
        is_about_item = command is not None and command.about == "item"
        is_in_pane = owner not in (None, self, self.app)
        name = self.panes.focused_pane_id
        if name == "reader":
            return (reader_waits and is_in_pane) or (is_opening and is_about_item)
        if name == "citations":
            return citations_wait and (is_in_pane or is_about_item)
        return name == "library" and library_waits and is_about_item

    def handle_files_changed(self, event: IndexChangedEvent) -> None:
        """Reload everything that the engine's `changed` event affects, on all open screens."""
        from kbtui.tui.secondary_screen import SecondaryScreen

        screens = self.app.screen_stack
        for screen in screens[screens.index(self) + 1 :]:
            if isinstance(screen, MainScreen):
                break  # It shows another workspace.
            if isinstance(screen, SecondaryScreen):
                screen.handle_files_changed(event)
        if self.search.is_results_pane_open:
            self.search.repeat_search()
        self.citations_pane.reload_citations()
        target = self.document_controller.shown
        if self.change_listener.may_event_concern_entry(target.ref if target else None, event):
            self.document_controller.reload_shown_document()

    def action_reload(self) -> None:
        self.change_listener.read_library_lists()
        if self.document_controller.shown:
            self.document_controller.reload_shown_document()

    def action_toggle_hidden_subjects(self) -> None:
        is_shown = self.library_pane.toggle_hidden_subjects()
        self.status.flash_message(f"Hidden subjects are {'shown' if is_shown else 'not shown'}.")
        self.search.repeat_search()

    def on_open_target_requested(self, event: OpenTargetRequested) -> None:
        self.open_target_in_reader(event.target)

    def open_target_in_reader(self, target: NavigationTarget) -> None:
        """Show the place `target` in the reader, and focus the reader."""
        self.status.clear_unavailable_key_message()
        self.search.hide_results()
        self.document_controller.open_target_in_reader(target)
        self.panes.focus_widget("#document")

    def open_hit_in_other_workspace(self, hit: Hit) -> None:
        """Visit the workspace of a hit, and show the hit in the reader there."""
        visit = OtherWorkspaceVisit(self.library.workspace.name, make_hit_target(hit))
        try:
            library = self.library.open_library_of_workspace(Path(hit.workspace or ""))
        except KbtuiError as error:
            self.status.show_unavailable_key_message(
                format_error_on_one_line(error, self.library.workspace.root)
            )
            return
        screen = MainScreen(library, self._clock, plain=self._plain, visit=visit)
        screen.panes.set_screen_size_css_classes(self.app.size, update=False)
        # When the user comes back, the hit is selected in the results, as it is after a visit to a
        # hit in this workspace.
        self.panes.focus_widget(FOCUS_TARGETS["results"])
        self._visited_hit = hit
        self.app.push_screen(screen)

    def action_go_back_one_step(self) -> None:
        """Go back one step.

        The step ends the zoom, closes a pane, leaves a visited workspace, or goes back in the
        history.
        """
        step = self._find_go_back_function(self.panes.focused_pane_id)
        if step is None:
            raise SkipAction
        step()
        self._show_key_hints_for_current_line_of_focused_pane()

    def _find_go_back_function(self, focused: str | None) -> Callable[[], object] | None:
        """Return the function that goes back one step from the pane `focused`, or None if there is no such step."""
        if self.has_class("zoomed") and not self._plain:
            return self.panes.toggle_pane_zoom
        if self.panes.is_outline_open and focused != "citations":
            return self.panes.close_outline
        if focused == "citations":
            return partial(self.panes.focus_widget, FOCUS_TARGETS["reader"])
        if focused == "reader" and self.search.is_opened_hit_shown:
            return self._return_to_results
        if self._visit is not None:
            return self.dismiss
        if focused == "reader" and self.document_controller.history.at > 0:
            return self._go_back_to_previous_document
        return None

    def _return_to_results(self) -> None:
        """Go back from an opened hit to the results.

        If this key press has already removed a message, do nothing.
        """
        if not self._has_removed_message:
            self.search.return_to_results()

    def _go_back_to_previous_document(self) -> None:
        """Show the previous place in the history, and show its name in the status line.

        If this key press has already removed a message, do nothing.
        """
        if self._has_removed_message:
            return
        self.document_controller.go_back_or_forward(-1)
        self.status.show_unavailable_key_message(
            self.document_controller.describe_place_gone_back_to(), "dim"
        )

    def action_move_in_history(self, steps: int) -> None:
        if self._visit and steps < 0 and self.document_controller.history.at + steps < 0:
            self.dismiss()
            return
        hit, row = self._visited_hit, self.results_pane.list.selected_row
        if (
            steps > 0
            and self.panes.focused_pane_id == "results"
            and hit is not None
            and row is not None
            and row.key == hit.chunk_id
        ):
            self.open_hit_in_other_workspace(hit)
        else:
            self.document_controller.go_back_or_forward(steps)

    def open_returned_reference(self, ref: Ref | None) -> None:
        """Open the reference that another screen has returned. If it is None, do nothing."""
        if ref is not None:
            self.open_target_in_reader(make_navigation_target(ref))

    def _update_screen_after_showing_document(
        self, document: ReaderDocument, target: NavigationTarget, is_reload: bool
    ) -> None:
        """Update the citations, key hints, session and library after a document has been shown."""
        self.citations_pane.show_citations_of_document(document, target)
        if self._outline is not None and self.panes.is_outline_open and not is_reload:
            # When the outline closes, the reader returns to this position, so it must be in the new
            # document.
            self._outline.remember_reader_position()
        self._update_outline()
        self._update_key_hints()
        self.session.save_tui_state_soon()
        self.change_listener.prefer_shown_entry_for_embedding()
        if (
            not is_reload
            and target.ref
            and target == self.document_controller.history.current_target
        ):
            self.library_pane.select_row_of_target(target)

    @on(ReaderPane.CursorPositionChanged)
    def _on_reader_position_changed(self) -> None:
        self.citations_pane.show_citations_at_cursor()
        if self._outline is not None and self.panes.is_outline_open:
            self._outline.select_entry_at_reader_cursor()
        self._show_key_hints_for_current_line_of_focused_pane()
        self._show_shell_command_for_screen()

    @on(ReaderPane.ViewChangeRequested)
    def _change_document_view(self, event: ReaderPane.ViewChangeRequested) -> None:
        target, document = self.document_controller.shown, self.reader_pane.document_view.document
        if document.loss:
            # Any other view would be made from the file, and would replace the last text.
            self.status.show_unavailable_key_message(
                "Only this text is left, so there is no other view."
            )
        elif target:
            view = event.view or document.next_view
            target = target._replace(view=view, mark=None, words=(), text="")
            reference = self.reader_pane.viewport.current_reference
            if view in CHANGES_VIEWS or document.view in CHANGES_VIEWS:
                # Open the changes at the turn or call that the user is reading. Switching back
                # returns to it.
                target = target._replace(ref=parse_ref(reference) if reference else target.ref)
            self.document_controller.switch_document_view(target)

    @on(ReaderPane.StatusMessage)
    def _show_status_message(self, event: ReaderPane.StatusMessage) -> None:
        if event.role in ("warning", "dim"):
            self.status.show_unavailable_key_message(event.text, event.role)
        else:
            self.status.flash_message(event.text, event.role)

    def action_ask_where_to_go(self) -> None:
        from kbtui.tui.framework.dialogs import TextInputDialog

        is_typing_query = (
            isinstance(self.focused, SearchInput) and self.results_pane.total_entries_with_hits
        )
        if self.panes.focused_pane_id == "results" or is_typing_query:
            self.search.ask_for_hit_number()
            return
        dialog = TextInputDialog(
            "Go to turn, line or reference", placeholder="turn number, line number or reference"
        )
        self.app.push_screen(dialog, self._open_entered_reference)

    def _open_entered_reference(self, text: str | None) -> None:
        if text:
            self.document_controller.open_entered_reference(text)

    # commands on the selected or open item

    def action_copy_text(self) -> None:
        text = self.get_selected_text()
        if not text:
            raise SkipAction
        self.items.copy_text_and_show_its_size(text, "the selection")

    @on(CitationsPane.CopyRequested)
    def _copy_citations(self, event: CitationsPane.CopyRequested) -> None:
        self.items.copy_text_and_show_its_size(event.text, event.name)

    @on(CitationsPane.TurnCitationSummaryLineChanged)
    def _show_turn_citations_line_in_reader(
        self, event: CitationsPane.TurnCitationSummaryLineChanged
    ) -> None:
        self.reader_pane.show_turn_citations_line(event.forms)

    # searching

    @on(Input.Changed, "#search")
    def _search_while_typing(self, event: Input.Changed) -> None:
        self.search.show_completion_suggestions(event.input)
        self.search.underline_filter_mistakes(self.query_one("#search", SearchInput))
        self.search.search_and_show_results(event.value)
        self._show_shell_command_for_screen()

    @on(Input.Changed, "#filter")
    def _suggest_library_filters_while_typing(self, event: Input.Changed) -> None:
        self.search.show_completion_suggestions(event.input, "library")

    def action_accept_completion(self) -> None:
        if isinstance(self.focused, CompletingInput):
            self.search.accept_completion(self.focused)

    @on(Input.Submitted, "#search")
    def _open_submitted_reference_or_best_hit(self, event: Input.Submitted) -> None:
        self.search.open_reference_or_best_hit(event.value)

    @on(SearchInput.EscapePressed)
    def _leave_search_input(self) -> None:
        self.search.leave_search_input()

    @on(SearchResultsPane.OpenHitRequested)
    def _open_or_preview_hit(self, event: SearchResultsPane.OpenHitRequested) -> None:
        self.search.open_or_preview_hit(event.hit, event.preview)

    @on(SearchResultsPane.EmptyQuerySuggestionChosen)
    def _use_suggested_search_bookmark_or_filter(
        self, event: SearchResultsPane.EmptyQuerySuggestionChosen
    ) -> None:
        self.search.use_suggested_search_bookmark_or_filter(event.suggestion)

    @on(SearchResultsPane.MoreHitsRequested)
    def _load_more_hits(self) -> None:
        self.search.load_more_hits()

    @on(HitList.GoToLastHitRequested)
    def _load_and_select_last_hit(self) -> None:
        self.search.go_to_hit_by_number(MAX_HITS)

    @on(SearchResultsPane.AllPassagesRequested)
    def _load_passages_of_all_entries(self) -> None:
        self.search.load_all_passages()

    # panes

    def action_focus_pane(self, name: str) -> None:
        if name == "search":
            self.search.focus_search_results()
            return
        self.search.hide_results()
        self.document_controller.return_to_document_before_preview()
        self.panes.focus_widget(FOCUS_TARGETS[name])

    def action_fold_pane(self) -> None:
        """Fold the focused pane; if it cannot be folded, unfold all panes."""
        name = self.panes.focused_pane_id or ""
        if not self.panes.fold_pane_if_focused(name):
            self.panes.unfold_panes()
            return
        key = find_key_label_of_command(f"pane.{name}", self.configured_keys)
        if key and not self.has_class("-one"):
            self.status.flash_message(f"The {name} pane is folded. Press {key} to go to it again.")

    # other screens

    def action_show_key_help(self) -> None:
        from kbtui.tui.generated_reader_pages import build_main_help_document
        from kbtui.tui.secondary_screen import HelpScreen

        self.app.push_screen(
            HelpScreen(build_main_help_document(self.hints.scopes, self.hints.keymap))
        )

    def action_open_command_palette(self) -> None:
        """Open the palette, which finds commands, topics, subjects and conversations by name."""
        from kbtui.tui import command_palette

        contents, hidden = self.library_pane.contents, self.library_pane.state.hidden
        palette = command_palette.CommandPaletteScreen(
            command_palette.list_palette_commands(self.hints.scopes, self.hints.keymap),
            command_palette.list_palette_themes(self.app.available_themes),
            lambda: command_palette.list_palette_topics_and_entries(contents, hidden),
        )
        self.app.push_screen(palette, self.run_command_palette_choice)

    async def run_command_palette_choice(
        self, choice: TuiCommand | NavigationTarget | EnteredReferenceText | str | None
    ) -> None:
        """Run the command, open the target or set the theme that the user chose in the palette.

        A string is the name of a theme. None means that the user closed the palette.
        """
        if isinstance(choice, TuiCommand):
            await self._run_palette_command(choice)
        elif isinstance(choice, EnteredReferenceText):
            self._open_entered_reference(choice.text)
        elif isinstance(choice, str):
            self.app.theme = choice
            self.session.save_tui_state_soon()
        elif choice is not None:
            self.open_target_in_reader(choice)

    async def _run_palette_command(self, command: TuiCommand) -> None:
        if command.scope in FOCUS_TARGETS:
            await self.app.run_action(command.action, self.query_one(f"#{command.scope}"))
        elif command.scope == "everywhere":
            await self.app.run_action(command.action, self)
        else:
            where = {**SCOPES, **SCREENS}[command.scope]  # type: ignore[index]
            keys = " ".join(command.key_labels)
            how = f"its key is {keys}" if keys else "it has no key"
            text = f"{command.id} works only {where[0].lower()}{where[1:]}; {how}"
            self.status.show_unavailable_key_message(text, "dim")

    async def action_show_outline(self) -> None:
        """Show the outline of the open document, or of the selected hit's document, and focus its filter."""
        from kbtui.tui.outline_pane import OutlinePane

        if self.panes.focused_pane_id == "results" and not self.search.open_hit_for_outline():
            return
        self.search.hide_results()
        self.document_controller.return_to_document_before_preview()
        outline = self._outline
        if outline is None:
            # The pane is created when it is first needed, so that kbtui starts faster.
            outline = self._outline = OutlinePane(self._clock, self.reader_pane.document_view)
            await self.query_one("#panes").mount(outline, before=self.reader_pane)
        outline.remember_reader_position()
        outline.input.value = ""
        self.panes.focus_widget(FOCUS_TARGETS["outline"])
        self.panes.apply_pane_widths()
        outline.show_outline_of_document(self.citations_pane.activities)

    def on_outline_pane_outline_entry_chosen(self, event: OutlinePane.OutlineEntryChosen) -> None:
        self.reader_pane.go_to_outline_entry(event.entry)
        if not event.preview:
            self.panes.focus_widget("#document")

    def on_outline_pane_outline_closed(self, event: OutlinePane.OutlineClosed) -> None:
        self.panes.close_outline()
        self.reader_pane.go_to_reading_position(event.position)

    @on(CitationsPane.ActionsOfAllTurnsLoaded)
    def _update_outline(self) -> None:
        if self._outline is not None and self.panes.is_outline_open:
            self._outline.show_outline_of_document(self.citations_pane.activities)

    def action_show_jump_labels(self) -> None:
        """Show a label at each visible item. When the user types a label, go to its item."""
        from kbtui.tui.main.jump_labels import JumpLabelScreen

        jump = JumpLabelScreen(self, self.panes, self.items.open_link_on_current_line)
        self.app.push_screen(jump, lambda go: go() if go else None)

    def action_show_bookmarks(self) -> None:
        from kbtui.tui.bookmarks_and_marks_screens import BookmarksScreen

        contents = self.document_controller.contents or TopicsAndConversations()
        self.app.push_screen(BookmarksScreen(self.library, contents), self.open_returned_reference)

    def action_show_marks(self) -> None:
        from kbtui.tui.bookmarks_and_marks_screens import TurnMarksScreen

        def reload_document_and_open_reference(ref: Ref | None) -> None:
            # Marks may have been changed or removed.
            self.document_controller.reload_shown_document()
            self.open_returned_reference(ref)

        contents = self.document_controller.contents or TopicsAndConversations()
        self.app.push_screen(
            TurnMarksScreen(self.library, contents), reload_document_and_open_reference
        )

    def action_open_prompt_workshop(self) -> None:
        from kbtui.tui.prompt_workshop.prompt_workshop_screen import PromptWorkshopScreen

        reference = self.items.get_selected_reference()
        workshop = PromptWorkshopScreen(self.library, reference, self._prompt_changes)
        self.app.push_screen(workshop, lambda changed: self.action_reload() if changed else None)

    def action_open_doctor(self) -> None:
        from kbtui.tui.doctor_screen import DoctorScreen

        self.app.push_screen(DoctorScreen(self.library), self.open_returned_reference)

    def action_open_entries_screen(self) -> None:
        from kbtui.tui.entries_screen import EntriesScreen

        self.app.push_screen(
            EntriesScreen(self.library, self._clock, self._trashed), self.open_returned_reference
        )

    def action_open_sources_screen(self) -> None:
        from kbtui.tui.sources_screen import SourcesScreen

        self.app.push_screen(SourcesScreen(self.library, self._clock), self.open_returned_reference)

    def action_open_insights_screen(self) -> None:
        from kbtui.tui.insights_screen import InsightsScreen

        insights = InsightsScreen(self.library, self._clock)
        self.app.push_screen(insights, self.open_returned_reference)

    def action_create_entry(self) -> None:
        from kbtui.tui.subject_file_actions import SubjectFileActions

        def open_new_entry(name: str) -> None:
            ref = parse_ref(name, lambda topic, slug: f"{topic}/{slug}" == name)
            self.open_returned_reference(ref)

        actions = SubjectFileActions(self, self.library, self.status.flash_message, open_new_entry)
        actions.ask_for_and_create_subject()
