"""The prompt workshop: what an assistant is given, and marks that change it when they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from kbtui.errors import KbtuiError
from kbtui.knowledge.records import Mark
from kbtui.text import one_line
from kbtui.tui.prompt.bench import Bench
from kbtui.tui.prompt.costs import growth
from kbtui.tui.prompt.entries import WHOLE, folder_key
from kbtui.tui.prompt.faces import particulars, totals
from kbtui.tui.prompt.keys import help_page, hints, workshop_bindings
from kbtui.tui.prompt.list import EntryList
from kbtui.tui.prompt.pages import change_page
from kbtui.tui.prompt.standing import state_of
from kbtui.tui.prompt.trybar import TryBar
from kbtui.tui.prompt.writing import Writer
from kbtui.tui.screens.help import HelpScreen
from kbtui.tui.widgets.bar import Bar
from kbtui.tui.widgets.paint import RoleScreen, plain
from kbtui.tui.widgets.reader import Reader
from kbtui.tui.widgets.rows import RowList

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.timer import Timer

    from kbtui.knowledge.editing import Change
    from kbtui.library import Library
    from kbtui.tui.prompt.entries import Entry
    from kbtui.tui.prompt.pages import Page
    from kbtui.tui.prompt.trying import Trial
    from kbtui.tui.widgets.rows import Row

PAGE_SECONDS = 0.06
"""How long one stays on an entry before its text is made."""
EXPAND_MOST = 40
"""Subjects up to which all topics are open in the beginning."""


class PromptScreen(RoleScreen):
    """Topics and subjects with what they cost, the text beside them, and a line to try patterns.

    Gives back whether anything was written. `reference` is what to begin at;
    `written` has the changes written from here before, and takes further ones.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*workshop_bindings()]
    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (70, "-broad")]  # noqa: RUF012
    AUTO_FOCUS = "#entries"
    DEFAULT_CSS = """
    PromptScreen {
        #sides { height: 1fr; }
        #sides > .pane { width: 1fr; }
        &.-slim #sides { layout: vertical; }
        #particulars, #remark { height: 1; padding: 0 1; background: $background; }
        #trying { height: auto; }
        #pattern-line { height: 1; background: $surface; }
        #pattern-sign { width: 4; height: 1; padding: 0 0 0 2; background: $surface; }
        #pattern, #choose { width: 1fr; background: $surface; color: $foreground; }
        #choose { padding: 0 1; display: none; }
        #remark { padding: 0; display: none; }
        #totals, #said { height: 1; padding: 0 1; background: $background; }
        #keys { height: 1; padding: 0 1; background: $surface; }
    }
    """

    def __init__(self, library: Library, reference: str | None, written: list[Change]) -> None:
        super().__init__()
        self.bench = Bench(self, self, library)
        self.writer = Writer(self, self, written)
        self.list = EntryList(self.bench.faces)
        self.reader = Reader()
        self.trybar = TryBar()
        self.view = "learn"
        self.page: Page | None = None
        self._reference = reference
        self._select: str | None = WHOLE
        self._page_timer: Timer | None = None
        self._asking = False
        self._wrote = False

    def compose(self) -> ComposeResult:
        """List and text, the pattern, the totals, what was said, the keys."""
        with Horizontal(id="sides"):
            with Vertical(id="shelves", classes="pane") as pane:
                pane.border_title = "Prompt workshop"
                yield Input(id="choose", placeholder="words of slugs", compact=True)
                yield self.list
                yield Bar(id="particulars")
            with Vertical(id="given", classes="pane"):
                yield self.reader
        yield self.trybar
        yield Bar(id="totals")
        yield Bar(id="said")
        yield Bar(id="keys")

    def on_mount(self) -> None:
        """Begin to read, once something is on the screen."""
        self._say_totals()
        self.call_after_refresh(self.bench.read)

    def on_unmount(self) -> None:
        """Count no more."""
        self.bench.stop()

    def on_resize(self) -> None:
        """Other keys fit."""
        self._say_keys()

    # what the bench says

    def standing_changed(self, *, anew: bool) -> None:
        """Show the newest standing."""
        if anew and self._reference is not None:
            self._begin(self._reference)
            self._reference = None
        elif anew and not self.list.rows:
            self._begin("")
        self._say_totals()
        self.list.refresh()
        self._look()

    def _begin(self, reference: str) -> None:
        """Select what the screen was opened for, with everything open that it lies in."""
        standing = self.bench.standing
        if standing is None:
            return
        knowledge, wishes = standing.written, self.bench.wishes
        counts = {topic: len(knowledge.resolved(topic).visible) for topic in knowledge.topics}
        if sum(counts.values()) <= EXPAND_MOST:
            wishes.opened |= {f"topic:{topic}" for topic in counts}
        topic, _, slug = reference.partition("/")
        if topic not in knowledge.topics:
            return
        self._select = f"topic:{topic}"
        wishes.opened.add(self._select)
        scan = knowledge.resolved(topic).scan
        slug = slug if slug in scan else slug.rpartition(":")[0]  # lines may follow
        if slug and slug in scan:
            wishes.hidden = wishes.hidden or slug in scan.hidden
            self._select = f"{topic}/{slug}"
            parts = slug.split("/")
            wishes.opened |= {
                folder_key(topic, "/".join(parts[:depth]) + "/") for depth in range(1, len(parts))
            }

    def rows_made(self, rows: list[Row]) -> None:
        """Show other rows; the selected one stays selected."""
        nothing = "Nothing matches." if self.bench.trial.text else "Nothing is here."
        self.list.set_rows(rows, [(nothing, "dim")], select=self._select)
        self._select = None
        self._look()

    def trial_made(self, trial: Trial) -> None:
        """Say what was understood."""
        self.query_one("#remark").display = bool(trial.text.strip())
        self.trybar.show(trial, trial.cost.long)
        self._look(at_once=False)

    def counted(self, left: int) -> None:
        """More subjects were counted."""
        self.query_one("#shelves", Vertical).border_subtitle = f"counting {left:,}" if left else ""
        self.list.refresh()

    def refused(self, error: Exception) -> None:
        """Say why a mark cannot be set, or what cannot be read."""
        self._say(_words(error), "error")

    def page_made(self, page: Page) -> None:
        """Show the text for what is selected."""
        if self.writer.shown is not None:
            return
        self._show(page)
        trial = self.bench.trial
        if trial.usable and page.cost is not None:
            outcome = page.cost.long
            if trial.preloads and self.bench.standing is not None:
                outcome = growth(self.bench.standing.cost, page.cost) or "no change"
            self.trybar.show(trial, outcome)

    def _show(self, page: Page) -> None:
        same = self.page is not None and self.page.document.key == page.document.key
        before, self.page = self.page, page
        if same and before is not None and before.line == page.line:
            self.reader.reload(page.document)
        else:
            self.reader.show(page.document)
            if page.line is not None:
                self._go_to(page.line)
        pane = self.query_one("#given", Vertical)
        pane.border_title = plain(page.document.title)
        pane.border_subtitle = plain(page.cost.long if page.cost else page.document.size)

    def _go_to(self, line: int) -> None:
        port = self.reader.port
        block = port.document.block_of_line(line)
        lines = port.lines(block)
        port.go_to(block, next((n for n, drawn in enumerate(lines) if drawn.source == line), 0), 0)
        self.reader.changed()

    # what is selected

    @on(RowList.Moved)
    def _moved(self, event: RowList.Moved) -> None:
        event.stop()
        if self.writer.shown is not None:
            self.writer.withdraw()
            self._say()
        self._look(at_once=False)

    @on(RowList.Opened)
    def _clicked(self, event: RowList.Opened) -> None:
        event.stop()
        if self.list.entry.kind in ("topic", "folder"):
            self.action_open()

    def _look(self, *, at_once: bool = True) -> None:
        """Have the text made for what is selected, and say what there is to say about it."""
        standing = self.bench.standing
        if standing is None:
            return
        self.query_one("#particulars", Bar).say(particulars(standing, self.list.entry))
        if self._page_timer is not None:
            self._page_timer.stop()
        seconds = 0.001 if at_once else PAGE_SECONDS
        self._page_timer = self.set_timer(seconds, self._make_page)

    def _make_page(self) -> None:
        if self.writer.shown is None:
            self.bench.make_page(self.list.entry, self.view)

    def action_entries(self, where: str) -> None:
        """Move in the list while one types."""
        getattr(self.list, f"action_{where}")()

    def action_view(self) -> None:
        """The other view of what is selected."""
        self.view = "prompt" if self.view == "learn" else "learn"
        self.writer.withdraw()
        self._look()

    def action_open(self) -> None:
        """Write what is shown; else open or close a topic or folder, or go to the text."""
        if self.writer.shown is not None:
            self.action_write()
            return
        key = self._branch(self.list.entry)
        if key is None:
            self.set_focus(self.reader)
        else:
            self.bench.wishes.opened ^= {key}
            self.bench.make_rows()

    def action_expand(self) -> None:
        """Open the selected topic or folder."""
        if (key := self._branch(self.list.entry)) is not None:
            self.bench.wishes.opened.add(key)
            self.bench.make_rows()

    def action_collapse(self) -> None:
        """Close the selected topic or folder, else go to what the entry lies in."""
        entry, opened = self.list.entry, self.bench.wishes.opened
        key = self._branch(entry)
        if key in opened:
            opened.discard(key or "")
            self.bench.make_rows()
        elif entry.topic:
            above = entry.name.rstrip("/").rpartition("/")[0]
            parent = folder_key(entry.topic, f"{above}/") if above else f"topic:{entry.topic}"
            self.list.select(parent)

    def _branch(self, entry: Entry) -> str | None:
        if entry.kind == "topic":
            return f"topic:{entry.topic}"
        return folder_key(entry.topic, entry.name) if entry.kind == "folder" else None

    def action_other_side(self) -> None:
        """Go between the list and the text."""
        self.set_focus(self.reader if self.focused is self.list else self.list)

    # marks

    def action_mark(self, state: str) -> None:
        """Mark the selected subject learned or disabled, or take that back."""
        entry = self.list.entry
        if entry.kind != "subject":
            words = {
                "folder": "a folder has no mark of its own: mark its subjects",
                "topic": "a topic is switched with e; mark its subjects",
                "fragment": "JP's fragments are read-only here",
            }
            self._say(words.get(entry.kind, "select a subject to mark"), "warning")
            return
        mark = Mark(entry.topic, entry.name, "learned" if state == "learned" else "disabled")
        self._toggle(mark, otherwise="plain")

    def action_switch(self) -> None:
        """Switch the selected entry's topic off, or on again."""
        topic = self.list.entry.topic
        if not topic:
            self._say("select a topic to switch", "warning")
            return
        on = self.bench.faces.state(topic, None) == "on"
        self._toggle(Mark(topic, None, "off" if on else "on"), otherwise="on")

    def _toggle(self, mark: Mark, otherwise: str) -> None:
        standing = self.bench.standing
        if standing is None or mark.topic not in standing.written.topics or self.writer.writing:
            return
        now = self.bench.faces.state(mark.topic, mark.slug)
        before = state_of(standing.written, mark.topic, mark.slug)
        self.bench.marks.toggle(mark, now, before, "on" if otherwise == "on" else "plain")
        self._marks_changed()

    def _marks_changed(self) -> None:
        self.writer.withdraw()
        self._say()
        self._say_totals()
        self.list.refresh()
        self.bench.mark()

    def action_drop(self) -> None:
        """Take all marks back."""
        if len(self.bench.marks):
            self.bench.marks.clear()
            self._marks_changed()

    # patterns, filter, hidden

    def action_try(self) -> None:
        """Type a pattern."""
        self.bench.addressed = self.list.entry.topic or self.bench.addressed
        self.set_focus(self.trybar.input)

    @on(TryBar.Typed)
    def _typed(self, event: TryBar.Typed) -> None:
        event.stop()
        self.writer.withdraw()
        self.bench.attempt(event.text)

    @on(TryBar.Done)
    def _tried(self, event: TryBar.Done) -> None:
        event.stop()
        self.set_focus(self.list)

    def action_filter(self) -> None:
        """Type words of slugs."""
        found = self.query_one("#choose", Input)
        found.display = True
        self.set_focus(found)

    @on(Input.Changed, "#choose")
    def _chosen(self, event: Input.Changed) -> None:
        event.stop()
        self.bench.wishes.words = event.value
        self.bench.make_rows()

    @on(Input.Submitted, "#choose")
    def _choice_done(self, event: Input.Submitted) -> None:
        event.stop()
        self.set_focus(self.list)

    def action_hidden(self) -> None:
        """Show or hide hidden subjects."""
        self.bench.show_hidden(not self.bench.wishes.hidden)
        shown = self.bench.wishes.hidden
        self._say("hidden subjects are shown" if shown else "hidden subjects are not shown")

    # writing

    def action_write(self) -> None:
        """Show what would be written; when that is shown, write it."""
        standing, marks = self.bench.standing, self.bench.marks.all
        if self.writer.shown is not None:
            self.writer.write()
        elif not marks:
            self._say("nothing is marked, so there is nothing to write", "warning")
        elif standing is not None:
            self.writer.propose(standing.written, marks)

    def proposed(self, change: Change) -> None:
        """Show the change before it is written."""
        if change.empty:
            self._say("the file says so already: there is nothing to write", "warning")
            return
        self.bench.forget_pages()
        standing = self.bench.standing
        grown = growth(standing.written_cost, standing.cost) if standing else ""
        words = f"The prompt: {grown or 'as long as before'}. Nothing is written yet."
        self._show(change_page(change, "This would be written to .jp/kb.toml", words))
        self._say("w or Enter writes this · Esc goes back without writing", "key")

    def wrote(self, change: Change) -> None:
        """Say so, and see how things are now."""
        self._wrote = True
        self.bench.marks.clear()
        self.bench.read()
        self._say("written to .jp/kb.toml · u takes it back", "inserted")

    def action_undo(self) -> None:
        """Take back what was last written from here."""
        if not self.writer.written:
            self._say("nothing was written from here", "warning")
            return
        self.writer.withdraw()
        self.writer.undo()

    def took_back(self, change: Change) -> None:
        """Say so, and see how things are now."""
        self._wrote = True
        self.bench.read()
        self._say("taken back: .jp/kb.toml is as it was before", "inserted")

    def not_written(self, error: Exception) -> None:
        """Say why, and go back to the texts."""
        self._say(f"nothing was written: {_words(error)}", "error")
        self.bench.read()

    # leaving

    def action_back(self) -> None:
        """One step back."""
        chosen = self.query_one("#choose", Input)
        if self._asking:
            self._say()
        elif self.writer.shown is not None:
            self.writer.withdraw()
            self._say()
            self._look()
        elif self.trybar.input.value or self.focused is self.trybar.input:
            self.trybar.clear()
            self.set_focus(self.list)
        elif chosen.display:
            self.set_focus(self.list)
            chosen.value = ""
            chosen.display = False
        elif self.focused is self.reader:
            self.set_focus(self.list)
        else:
            self.action_leave()

    def action_leave(self) -> None:
        """Leave the screen."""
        if self.may_leave():
            self.dismiss(self._wrote)

    def may_leave(self) -> bool:
        """Whether nothing would be lost, or one was asked already; asks otherwise."""
        if self.writer.writing:
            self._say("a file is being written", "warning")
            return False
        count = len(self.bench.marks)
        if not count or self._asking:
            return True
        marks = "1 mark is" if count == 1 else f"{count:,} marks are"
        self._say(f"{marks} not written · q leaves without · w shows them · Esc stays", "warning")
        self._asking = True
        return False

    # the rest

    def action_reload(self) -> None:
        """Read everything again."""
        self.bench.read()

    def files_changed(self) -> None:
        """The files are others: read them again, with the marks that are not written."""
        if self.writer.shown is None and not self.writer.writing:
            self.bench.read()

    def action_help(self) -> None:
        """Explain the keys."""
        self.app.push_screen(WorkshopHelp())

    def _say_totals(self) -> None:
        left, right = totals(self.bench.standing, len(self.bench.marks))
        self.query_one("#totals", Bar).say(left, right)
        self._say_keys()

    def _say(self, text: str = "", role: str = "strong") -> None:
        """Say something until something else is said; a question that was asked is over."""
        self._asking = False
        self.query_one("#said", Bar).say([(one_line(text), role)] if text else [])

    def _say_keys(self) -> None:
        offers = {"marks": len(self.bench.marks) > 0, "written": bool(self.writer.written)}
        bar = self.query_one("#keys", Bar)
        bar.say(
            hints(bar.content_size.width, frozenset(name for name, has in offers.items() if has))
        )


class WorkshopHelp(HelpScreen):
    """The keys of the workshop."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "app.focus_next", show=False)]

    def __init__(self) -> None:
        super().__init__(("everywhere",))

    def on_mount(self) -> None:
        """Show them."""
        self.reader.show(help_page())
        self.reader.focus()


def _words(error: Exception) -> str:
    if isinstance(error, KbtuiError):
        where = f"{error.where}: " if error.where else ""
        return f"{where}{error.message}" + (f" ({error.hint})" if error.hint else "")
    return f"{type(error).__name__}: {error}"
