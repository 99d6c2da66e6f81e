"""The main screen: library, search results, reader and citations, composed of controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.containers import Horizontal
from textual.widgets import Input

from kbtui.tui.citations_pane import NOTHING_TO_CITE, CitationsController, CitationsPane
from kbtui.tui.commands import bindings, command_by_id, own_key
from kbtui.tui.framework.command import Command
from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.library_pane import LibraryPane
from kbtui.tui.main.item_actions import ItemActions
from kbtui.tui.main.navigator import Navigator, ReferenceNavigator
from kbtui.tui.main.pane_layout import FOCUS_TARGETS, HEIGHT_CLASSES, WIDTH_CLASSES, PaneLayout
from kbtui.tui.main.search_controller import QueryCompleter, SearchController, SearchView
from kbtui.tui.main.session import SessionManager
from kbtui.tui.main.status_bar import KeyHints, StatusBar
from kbtui.tui.main.workspace_sync import WorkspaceSync
from kbtui.tui.navigation_target import HOME, PROMPT, place_of
from kbtui.tui.reader.reader_pane import ReaderPane
from kbtui.tui.search_pane import ResultsPane, SearchBar, SearchInput

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.geometry import Size
    from textual.widget import Widget

    from kbtui.dates import Clock
    from kbtui.knowledge.editing import TomlChange
    from kbtui.library import Library
    from kbtui.refs import Ref
    from kbtui.tui.commands import Scope
    from kbtui.tui.navigation_target import NavigationTarget
    from kbtui.tui.reader.document import Document


class PaneRow(Horizontal):
    """The panes side by side, which cover it."""

    BLANK = True


class MainScreen(StyledScreen):
    """Hands keys and the panes' messages to the controllers:

    * `panes` shows, folds, resizes and focuses the panes;
    * `navigator` and `references` open places in the reader;
    * `items` acts on what is selected or read;
    * `search` asks the library, `search_view` enters, leaves and previews the results;
    * `citations` follows what is being read;
    * `sync` follows the files and the engine;
    * `session` reopens and saves how the screen was left.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("everywhere")]
    AUTO_FOCUS = ""
    # Its panes and bars cover it: nothing of its own is drawn.
    BLANK = True
    HORIZONTAL_BREAKPOINTS = WIDTH_CLASSES
    VERTICAL_BREAKPOINTS = HEIGHT_CLASSES
    # The pane to show where there is room for one only.
    DEFAULT_CLASSES = "at-library"

    def __init__(
        self,
        library: Library,
        clock: Clock,
        open_ref: Ref | None = None,
        first: Ref | None = None,
        fresh: bool = False,
        plain: bool = False,
    ) -> None:
        super().__init__()
        self.library = library
        self._clock = clock
        self._plain = plain
        wanted = open_ref or first
        self._first = place_of(wanted) if wanted else HOME
        if open_ref:
            # Show what was asked for at once, however narrow the terminal is.
            self.set_classes("at-reader")
        self.status = StatusBar(library.workspace.name)
        self.hints = KeyHints()
        self.library_pane = LibraryPane(clock)
        self.reader_pane = ReaderPane()
        self.citations_pane = CitationsPane(clock)
        self.results_pane = ResultsPane(clock)
        self.panes = PaneLayout(
            self, self.library_pane, self.results_pane, self.reader_pane, self.citations_pane
        )
        self.citations = CitationsController(library, self.citations_pane, self.reader_pane.reader)
        self.navigator = Navigator(library, clock, self.reader_pane, self.status, self._show_opened)
        self.references = ReferenceNavigator(library, self.reader_pane, self.open)
        self.items = ItemActions(self, library, self.panes, self.navigator, self.status, self.open)
        self.search = SearchController(
            library,
            self.results_pane,
            lambda: self.library_pane.state.hidden,
            self.status.waiting,
        )
        self.completer = QueryCompleter(
            library, self.hints.suggest, lambda: self.results_pane.answer is not None
        )
        self.search_view = SearchView(
            self,
            library,
            self.panes,
            self.navigator,
            self.references,
            self.search,
            self.items,
            self.status,
            self.open,
        )
        self.sync = WorkspaceSync(
            self, library, self.panes, self.navigator, self.search, self.status
        )
        self.session = SessionManager(
            self,
            library,
            self.panes,
            self.navigator,
            self.search,
            self.search_view,
            reopen=open_ref is None and not fresh,
        )
        self._changes: list[TomlChange] = []
        """What the prompt workshop wrote, to be undone there."""

    def compose(self) -> ComposeResult:
        """Search on top, the panes, two lines below."""
        yield SearchBar(self.library.workspace.name)
        with PaneRow(id="panes"):
            yield self.library_pane
            yield self.results_pane
            yield self.reader_pane
            yield self.citations_pane
        yield self.status
        yield self.hints

    def on_mount(self) -> None:
        """Begin to read, once something is on the screen."""
        self.hints.keymap = self.navigator.keymap = self.own_keys
        if self._plain:
            self.add_class("plain", "zoomed")
        self.panes.apply_widths()
        reading = self.has_class("at-reader")
        self.set_focus(self.reader_pane.reader if reading else self.library_pane.list)
        self.citations_pane.say(NOTHING_TO_CITE)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        notices = self.navigator.notices = list(getattr(self.app, "problems", ()))
        if notices:
            # The home page lists all of them, but may not be the first page.
            home = own_key("home", self.hints.keymap)
            shown = f"; {home} shows them" if home else ""
            more = f" ({len(notices)} such{shown})" if len(notices) > 1 else ""
            self.status.flash(f"{notices[0]}{more}", "warning")
        self.session.start(self._first)
        self.sync.start()

    def on_unmount(self) -> None:
        """Save the session, and stop listening."""
        self.session.stop()
        self.sync.stop()

    # size, focus and the borders between panes

    def fit(self, size: Size) -> None:
        """Set the classes of a size before the first layout."""
        self.update_classes(self.panes.classes_for(size), update=False)

    def on_resize(self) -> None:
        """Lay the panes out for the new size."""
        self.panes.resized()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Take hold of a border between panes."""
        if self.panes.grab(event.screen_x, event.screen_y):
            event.stop()
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the border that was grabbed."""
        self.panes.drag(event.screen_x)

    def on_mouse_up(self) -> None:
        """Let go of the border."""
        if self.panes.release():
            self.release_mouse()

    def on_descendant_focus(self) -> None:
        """Show the pane that has the focus, and its keys."""
        self._show_hints()

    def _show_hints(self) -> None:
        name = self.panes.focused
        self.panes.show(name)
        typing = (self.focused.id or "input") if isinstance(self.focused, Input) else ""
        scopes: tuple[Scope, ...] = (name, "everywhere") if name else ("everywhere",)  # type: ignore[assignment]
        offers = self.reader_pane.reader.document.offers
        self.hints.point(*scopes, typing=typing, offers=offers)
        self._show_command()

    def _show_command(self) -> None:
        """For a screen reader: which command prints what is shown."""
        if not self._plain:
            return
        from kbtui.tui.reader.copy_options import build_search_command, build_show_command

        name, reader = self.panes.focused, self.reader_pane.reader
        if name == "results" or self.search_view.is_open:
            command = build_search_command(self.search.query)
        elif name == "library":
            command = "kbtui topics; kbtui conversation ls"
        elif name == "citations" and reader.port.reference:
            command = f"kbtui cites {reader.port.reference}"
        else:
            command = build_show_command(reader.document, reader.port.reference) or "kbtui --help"
        self.hints.same_as(command)

    def is_unsettled(self, key: str) -> bool:
        """Whether a key is about something that is still being opened, found, asked or listed."""
        if self.search.is_opening or self.references.is_looking_up or self.items.is_asking:
            # Where it leads is where the next key belongs.
            return key != "escape"
        opening = self.navigator.is_opening
        reader = opening or self.reader_pane.is_looking
        citations = opening or self.citations.is_asking
        library = self.library_pane.is_filling
        if not (reader or citations or library):
            return False
        owner, binding = self._binding_at(key)
        command = command_by_id(binding.id or "") if binding else None
        about_item = command is not None and command.about == "item"
        in_pane = owner not in (None, self, self.app)
        name = self.panes.focused
        if name == "reader":
            return (reader and in_pane) or (opening and about_item)
        if name == "citations":
            return citations and (in_pane or about_item)
        return name == "library" and library and about_item

    # what changed

    def files_changed(self, event: dict[str, Any]) -> None:
        """Read again whatever the engine's message says may have changed."""
        for screen in self.app.screen_stack:
            if screen is not self and isinstance(screen, StyledScreen):
                screen.files_changed(event)
        if self.search_view.is_open:
            self.search.again()
        self.citations.refresh_using()
        place = self.navigator.shown
        if self.sync.may_have_changed(place.ref if place else None, event):
            self.navigator.reload()

    def action_reload(self) -> None:
        """Read everything again."""
        self.sync.read()
        if self.navigator.shown:
            self.navigator.reload()

    def action_hidden(self) -> None:
        """Show or hide hidden subjects."""
        shown = self.library_pane.toggle_hidden()
        self.status.flash("hidden subjects are shown" if shown else "hidden subjects are not shown")
        self.search.again()

    # opening

    @on(LibraryPane.Open)
    @on(CitationsPane.Open)
    @on(ReaderPane.Open)
    def _open_place(self, event: LibraryPane.Open | CitationsPane.Open | ReaderPane.Open) -> None:
        event.stop()
        self.open(event.place)

    def open(self, place: NavigationTarget) -> None:
        """Show a place and go to the reader."""
        self.search_view.leave()
        self.navigator.open(place)
        self.panes.go("#document")

    def open_ref(self, ref: Ref | None) -> None:
        """Open what another screen gave back; None opens nothing."""
        if ref is not None:
            self.open(place_of(ref))

    def _show_opened(self, document: Document, place: NavigationTarget, again: bool) -> None:
        self.citations.opened(document, place)
        self._show_hints()
        self.session.changed()
        if not again and place.ref and place == self.navigator.trail.here:
            self.library_pane.reveal(place)

    @on(ReaderPane.Moved)
    def _follow_reader(self, event: ReaderPane.Moved) -> None:
        event.stop()
        self.citations.moved()
        self._show_command()

    @on(ReaderPane.OtherView)
    def _change_view(self, event: ReaderPane.OtherView) -> None:
        event.stop()
        place, document = self.navigator.shown, self.reader_pane.reader.document
        if place:
            views = document.views
            view = event.view or views[(views.index(document.view) + 1) % len(views)]
            self.navigator.open(place._replace(view=view, mark=None, words=()))

    @on(ReaderPane.Remark)
    def _show_remark(self, event: ReaderPane.Remark) -> None:
        event.stop()
        self.status.flash(event.text, event.role)

    def action_back(self) -> None:
        """Back to what was read before."""
        if not self.navigator.step(-1):
            self.status.flash("nothing further back", "dim")

    def action_forward(self) -> None:
        """Forward again."""
        if not self.navigator.step(1):
            self.status.flash("nothing further on", "dim")

    def action_go(self) -> None:
        """Go to a turn by its number, or to any reference."""
        from kbtui.tui.framework.dialogs import LineDialog

        def typed(text: str | None) -> None:
            if text:
                self.references.go(text, lambda reason: self.status.flash(reason, "warning"))

        self.app.push_screen(
            LineDialog("Go to", placeholder="a turn's number, or a reference"), typed
        )

    def action_home(self) -> None:
        """Show the home page."""
        self.open(HOME)

    def action_prompt(self) -> None:
        """Show the whole prompt."""
        self.open(PROMPT)

    # the selected item

    def action_copy(self) -> None:
        """Copy the reference of what is selected or read."""
        self.items.copy_reference()

    def action_copy_more(self) -> None:
        """Choose what else to copy."""
        self.items.choose_copy()

    def action_copy_text(self) -> None:
        """Copy what the mouse selected, and say so."""
        from textual.actions import SkipAction

        text = self.get_selected_text()
        if not text:
            raise SkipAction
        self.items.copy(text, "the selection")

    @on(CitationsPane.Copy)
    def _copy_citations(self, event: CitationsPane.Copy) -> None:
        event.stop()
        self.items.copy(event.text, event.name)

    def action_bookmark(self) -> None:
        """Bookmark what is selected or read."""
        self.items.bookmark()

    def action_link(self) -> None:
        """Open a link of the line or paragraph being read."""
        self.items.choose_link()

    def action_edit(self) -> None:
        """Open the subject in the person's editor."""
        self.items.edit()

    def action_first(self) -> None:
        """Propose a first topic."""
        self.items.propose_first_topic(self.action_reload)

    def action_export(self) -> None:
        """Write the conversation with its sources to a Markdown file."""
        from kbtui.tui.main.item_actions import export_conversation

        export_conversation(self, self.library, self.status, self.navigator.shown)

    # searching

    @on(Input.Changed, "#search")
    def _search_typed(self, event: Input.Changed) -> None:
        event.stop()
        self.completer.type(event.input)
        self.search_view.query_changed(event.value)
        self._show_command()

    @on(Input.Submitted, "#search")
    def _submit_search(self, event: Input.Submitted) -> None:
        event.stop()
        self.search_view.submit(event.value)

    @on(SearchInput.Left)
    def _leave_search_input(self, event: SearchInput.Left) -> None:
        event.stop()
        self.search_view.leave_input()

    @on(SearchInput.Recall)
    def _recall_search(self, event: SearchInput.Recall) -> None:
        event.stop()
        self.search_view.recall(event.step)

    @on(ResultsPane.Open)
    def _open_hit(self, event: ResultsPane.Open) -> None:
        event.stop()
        self.search_view.open_hit(event.hit, event.preview)

    @on(ResultsPane.Close)
    def _close_results(self, event: ResultsPane.Close) -> None:
        event.stop()
        self.search_view.close()

    @on(ResultsPane.More)
    def _find_more(self, event: ResultsPane.More) -> None:
        event.stop()
        self.search.ask_for_more()

    @on(ResultsPane.OtherMode)
    def _change_search_mode(self, event: ResultsPane.OtherMode) -> None:
        event.stop()
        self.search_view.change_mode()

    @on(ResultsPane.Why)
    def _explain_hit(self, event: ResultsPane.Why) -> None:
        event.stop()
        self.search_view.explain(event.hit)

    def action_search(self) -> None:
        """Type a query."""
        self.search_view.focus_input()

    def action_similar(self) -> None:
        """Show more like what is selected or read."""
        self.search_view.find_similar()

    # panes

    def action_pane(self, name: str) -> None:
        """Go to a pane by name; from there: fold it away."""
        if name == "search":
            self.search_view.focus_results()
            return
        self.search_view.leave()
        self.navigator.end_preview()
        if self.panes.fold(name):
            key = own_key(f"pane.{name}", self.own_keys)
            if key and not self.has_class("-one"):
                self.status.flash(f"folded away; {key} brings the {name} back")
            return
        self.panes.go(FOCUS_TARGETS[name])

    def action_next_pane(self) -> None:
        """Go to the next pane."""
        self.panes.cycle(1)

    def action_previous_pane(self) -> None:
        """Go to the previous pane."""
        self.panes.cycle(-1)

    def action_zoom(self) -> None:
        """Show this pane alone, or all of them again."""
        self.panes.toggle_zoom()

    def action_widen(self, by: int) -> None:
        """Make the pane wider, or narrower."""
        self.panes.widen(self.panes.focused, by)

    def action_usual_widths(self) -> None:
        """Give all panes their default widths, and unfold them."""
        self.panes.reset()

    # other screens

    def action_help(self) -> None:
        """Explain the keys of where one is."""
        from kbtui.tui.pages import help_document
        from kbtui.tui.reader.document_view import PageScreen

        page = help_document(self.hints.scopes, self.hints.keymap)
        self.app.push_screen(PageScreen("Help", page))

    def action_palette(self) -> None:
        """Find a command, topic, subject or conversation by name."""
        from kbtui.tui.palette import PaletteScreen, command_choices, place_choices, theme_choices

        contents, hidden = self.library_pane.contents, self.library_pane.state.hidden
        palette = PaletteScreen(
            command_choices(self.hints.scopes, self.hints.keymap),
            theme_choices(self.app.available_themes),
            lambda: place_choices(contents, hidden),
        )
        self.app.push_screen(palette, self.chosen)

    async def chosen(self, what: Command | NavigationTarget | str | None) -> None:
        """Do or open what was chosen in the palette; a text is the name of a theme."""
        if what is None:
            return
        if isinstance(what, str):
            self.app.theme = what
            self.session.changed()
            return
        if not isinstance(what, Command):
            self.open(what)
            return
        owners: dict[str, Widget] = {name: self.query_one(f"#{name}") for name in FOCUS_TARGETS}
        if what.scope not in {*owners, "everywhere"}:
            keys = " ".join(what.shown_keys) or "without a key"
            self.status.flash(f"{what.id} is {keys}, where it is of use", "dim")
            return
        await self.app.run_action(what.action, owners.get(what.scope, self))

    def action_jump(self) -> None:
        """Put letters on what is in sight, and go where the one typed leads."""
        from kbtui.tui.main.jump import JumpScreen

        jump = JumpScreen(self, self.panes, self.items.choose_link)
        self.app.push_screen(jump, lambda go: go() if go else None)

    def action_bookmarks(self) -> None:
        """Show the bookmarks."""
        from kbtui.tui.bookmarks import BookmarksScreen

        self.app.push_screen(
            BookmarksScreen(self.library), lambda place: self.open(place) if place else None
        )

    def action_workshop(self) -> None:
        """Shape the prompt, beginning at what is selected or read."""
        from kbtui.tui.workshop.screen import WorkshopScreen

        def left(wrote: bool | None) -> None:
            if wrote:
                self.action_reload()

        screen = WorkshopScreen(self.library, self.items.reference(), self._changes)
        self.app.push_screen(screen, left)

    def action_doctor(self) -> None:
        """See what is wrong; what one chooses there is opened."""
        from kbtui.tui.doctor import DoctorScreen

        self.app.push_screen(DoctorScreen(self.library), self.open_ref)

    def action_entries(self) -> None:
        """See all entries as a table."""
        from kbtui.tui.entries.screen import EntriesScreen

        self.app.push_screen(EntriesScreen(self.library, self._clock), self.open_ref)

    def action_sources(self) -> None:
        """See what fetches documents."""
        from kbtui.tui.sources.screen import SourcesScreen

        self.app.push_screen(SourcesScreen(self.library, self._clock), self.open_ref)

    def action_insights(self) -> None:
        """See what was asked, found, used and missing."""
        from kbtui.tui.insights import InsightsScreen

        self.app.push_screen(InsightsScreen(self.library, self._clock), self.open_ref)

    def action_new(self) -> None:
        """Write a new entry."""
        from kbtui.refs import parse_ref
        from kbtui.tui.entries.editor import EntryWriter

        def wrote(ref: str) -> None:
            self.open_ref(parse_ref(ref, lambda topic, slug: f"{topic}/{slug}" == ref))

        EntryWriter(self, self.library, self.status.flash, wrote).new()
