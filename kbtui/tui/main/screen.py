"""The main screen: library, reader, citations, and the search above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.containers import Horizontal

from kbtui.tui.citations.controller import NOTHING_TO_CITE, CitationsController
from kbtui.tui.citations.pane import CitationsPane
from kbtui.tui.commands import bindings, own_key
from kbtui.tui.framework.command import Command
from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.goto import ReferenceNavigator
from kbtui.tui.library.pane import LibraryPane
from kbtui.tui.main.navigator import Navigator
from kbtui.tui.main.pane_layout import SCOPES
from kbtui.tui.main.search_actions import SearchingScreen
from kbtui.tui.main.status_bar import StatusBar
from kbtui.tui.navigation import HOME, PROMPT, place_of
from kbtui.tui.reader.reader_pane import ReaderPane
from kbtui.tui.search.completion import QueryCompleter
from kbtui.tui.search.controller import SearchController
from kbtui.tui.search.pane import ResultsPane, SearchBar
from kbtui.tui.session_manager import SessionManager
from kbtui.tui.workspace_sync import WorkspaceSync

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.timer import Timer
    from textual.widget import Widget

    from kbtui.knowledge.editing import TomlChange
    from kbtui.library import Library
    from kbtui.refs import Ref
    from kbtui.tui.clock import Clock
    from kbtui.tui.library.snapshot import LibrarySnapshot
    from kbtui.tui.navigation import NavigationTarget
    from kbtui.tui.reader.document import Document


class PaneRow(Horizontal):
    """The panes side by side, which cover it."""

    BLANK = True


class MainScreen(SearchingScreen):
    """Everything one sees; opening, searching and citations are done by their own objects."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("everywhere")]
    AUTO_FOCUS = ""
    # Its panes and bars cover it: nothing of its own is drawn.
    BLANK = True

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
        self._plain = plain
        wanted = open_ref or first
        self._first = place_of(wanted) if wanted else HOME
        if open_ref:
            # Whoever asked for something reads it at once, however narrow the terminal is.
            self.set_classes("at-reader")
        self.status = StatusBar(library.workspace.name)
        self.library_pane = LibraryPane(clock)
        self.reader_pane = ReaderPane()
        self.citations_pane = CitationsPane(clock)
        self.results_pane = ResultsPane(clock)
        self.sync = WorkspaceSync(self)
        self.citations = CitationsController(library, self.citations_pane, self.reader_pane.reader)
        self.navigator = Navigator(library, clock, self.reader_pane, self.status, self._opened)
        self.search = SearchController(
            library,
            self.results_pane,
            lambda: self.library_pane.state.hidden,
            self.status.waiting,
        )
        self.completer = QueryCompleter(
            library, self.hints, lambda: self.results_pane.answer is not None
        )
        self.session = SessionManager(self, reopen=open_ref is None and not fresh)
        self.references = ReferenceNavigator(library, self.reader_pane, self.open)
        self._preview: Timer | None = None
        self._before_search = "#library-list"
        self._changes: list[TomlChange] = []
        """What was written from the prompt workshop, to be taken back there."""

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
        self.widths.apply()
        reading = self.has_class("at-reader")
        self.set_focus(self.reader_pane.reader if reading else self.library_pane.list)
        self.citations_pane.say(NOTHING_TO_CITE)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        notices = self.navigator.notices = list(getattr(self.app, "problems", ()))
        if notices:
            # The home page has them all, and may not be what one begins on.
            home = own_key("home", self.hints.keymap)
            shown = f"; {home} shows them" if home else ""
            more = f" ({len(notices)} such{shown})" if len(notices) > 1 else ""
            self.status.flash(f"{notices[0]}{more}", "warning")
        self.session.start(self._first)
        self.sync.start()

    def on_unmount(self) -> None:
        """Remember how it was left, and hear no more."""
        self.session.stop()
        self.sync.stop()

    # what changed

    def files_changed(self, event: dict[str, Any]) -> None:
        """Read again what is shown, where the engine's message says that it may be another."""
        for screen in self.app.screen_stack:
            if screen is not self and isinstance(screen, StyledScreen):
                screen.files_changed(event)
        if self.has_class("searching"):
            self.search.again()
        self.citations.refresh_using()
        place = self.navigator.shown
        if self.sync.touches(place.ref if place else None, event):
            self.navigator.reload()

    def action_reload(self) -> None:
        """Read everything again."""
        self.sync.read()
        if self.navigator.shown:
            self.navigator.reload()

    @on(CitationsPane.Copy)
    def _copy_citations(self, event: CitationsPane.Copy) -> None:
        event.stop()
        self.copy(event.text, event.name)

    def show_contents(self, contents: LibrarySnapshot) -> None:
        """Show lists that were read."""
        self.navigator.contents = contents
        self.library_pane.update(contents)
        if self.navigator.shown and self.navigator.shown.key == "home":
            self.navigator.reload()

    # opening

    @on(LibraryPane.Open)
    @on(CitationsPane.Open)
    @on(ReaderPane.Open)
    def _open(self, event: LibraryPane.Open | CitationsPane.Open | ReaderPane.Open) -> None:
        event.stop()
        self.open(event.place)

    def open(self, place: NavigationTarget) -> None:
        """Show a place and go to the reader."""
        self._leave_search()
        self.navigator.open(place)
        self.go("#document")

    def _opened(self, document: Document, place: NavigationTarget, again: bool) -> None:
        self.citations.opened(document, place)
        self.point()
        self.session.changed()
        if not again and place.ref and place == self.navigator.trail.here:
            self.library_pane.reveal(place)

    @on(ReaderPane.Moved)
    def _moved(self, event: ReaderPane.Moved) -> None:
        event.stop()
        self.citations.moved()
        if self._plain:
            self.hints.same_as(self._as_command())

    @on(ReaderPane.OtherView)
    def _other_view(self, event: ReaderPane.OtherView) -> None:
        event.stop()
        place, document = self.navigator.shown, self.reader_pane.reader.document
        if place:
            views = document.views
            view = event.view or views[(views.index(document.view) + 1) % len(views)]
            self.navigator.open(place._replace(view=view, mark=None, words=()))

    def action_back(self) -> None:
        """Back to what was read before."""
        self._step(-1)

    def action_forward(self) -> None:
        """Forward again."""
        self._step(1)

    def _step(self, by: int) -> None:
        if not self.navigator.step(by):
            self.status.flash("nothing further back" if by < 0 else "nothing further on", "dim")

    def action_go(self) -> None:
        """Go to a turn by its number, or to any reference."""
        from kbtui.tui.framework.dialogs import LineDialog

        def typed(text: str | None) -> None:
            if text:
                self.references.go(text, lambda reason: self.status.flash(reason, "warning"))

        self.app.push_screen(
            LineDialog("Go to", placeholder="a turn's number, or a reference"), typed
        )

    def action_prompt(self) -> None:
        """Show the whole prompt."""
        self.open(PROMPT)

    def action_workshop(self) -> None:
        """Shape the prompt, beginning at what is selected or read."""
        from kbtui.tui.workshop.screen import WorkshopScreen

        def left(wrote: bool | None) -> None:
            if wrote:
                self.action_reload()

        screen = WorkshopScreen(self.library, self._reference(), self._changes)
        self.app.push_screen(screen, left)

    def action_doctor(self) -> None:
        """See what is wrong; what one chooses there is opened."""
        from kbtui.tui.doctor import DoctorScreen

        def left(ref: Ref | None) -> None:
            if ref is not None:
                self.open(place_of(ref))

        self.app.push_screen(DoctorScreen(self.library), left)

    def action_hidden(self) -> None:
        """Show or hide hidden subjects."""
        shown = self.library_pane.toggle_hidden()
        self.status.flash("hidden subjects are shown" if shown else "hidden subjects are not shown")
        self.search.again()

    # commands

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
        owners: dict[str, Widget] = {
            scope: self.query_one(f"#{name}") for name, scope in SCOPES.items()
        }
        if what.scope not in {*owners, "everywhere"}:
            keys = " ".join(what.shown_keys) or "without a key"
            self.status.flash(f"{what.id} is {keys}, where it is of use", "dim")
            return
        await self.app.run_action(what.action, owners.get(what.scope, self))

    def action_help(self) -> None:
        """Explain the keys of where one is."""
        from kbtui.tui.help import help_document
        from kbtui.tui.reader.page_screen import PageScreen

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

    # panes

    def action_pane(self, name: str) -> None:
        """Go to a pane by name."""
        if name == "search":
            if self.results_pane.list.rows:
                self._remember_focus()
                self.add_class("searching")
                self.go("#results-list")
                self.search.again()
            else:
                self.action_search()
            return
        self._leave_search()
        self.navigator.end_preview()
        if self.fold(name):
            key = own_key(f"pane.{name}", self.own_keys)
            if key and not self.has_class("-one"):
                self.status.flash(f"folded away; {key} brings the {name} back")
            return
        self.go({"library": "#library-list", "reader": "#document"}.get(name, "#citations-list"))

    def point(self) -> None:
        """Show the keys that matter where one is, or which command shows the same."""
        super().point()
        if self._plain:
            self.hints.same_as(self._as_command())

    def _as_command(self) -> str:
        from kbtui.tui.reader.copy_options import command_for, search_command

        if self.pane == "results" or self.has_class("searching"):
            return search_command(self.search.query)
        if self.pane == "library":
            return "kbtui topics; kbtui conversation ls"
        reader = self.reader_pane.reader
        if self.pane == "citations" and reader.port.reference:
            return f"kbtui cites {reader.port.reference}"
        return command_for(reader.document, reader.port.reference) or "kbtui --help"

    def offers(self) -> frozenset[str]:
        """What the document has that commands can need."""
        return self.reader_pane.reader.document.offers
