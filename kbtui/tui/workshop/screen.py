"""The prompt workshop: what an assistant is given, and marks that change it when they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.containers import Vertical
from textual.widgets import Input

from kbtui.knowledge.models import SubjectMark
from kbtui.tui.commands import bindings
from kbtui.tui.feature_screen import SplitScreen
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.framework.styled_widget import ALWAYS_AVAILABLE_ACTIONS, plain_content
from kbtui.tui.framework.text_widgets import LabeledInput, PaneInput, TextLine
from kbtui.tui.library_pane import MARKS
from kbtui.tui.reader.blocks import FactsBlock, HeadBlock
from kbtui.tui.workshop.controller import KbTomlWriter, WorkshopController
from kbtui.tui.workshop.pages import change_page
from kbtui.tui.workshop.pattern import PatternBar
from kbtui.tui.workshop.prompt_state import growth, state_of
from kbtui.tui.workshop.tree import UNWRITTEN, WHOLE, TreeList, folder_key, particulars, totals

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.timer import Timer
    from textual.widget import Widget

    from kbtui.knowledge.editing import TomlChange
    from kbtui.library import Library
    from kbtui.tui.framework.row_list import ListRow
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.blocks import Block
    from kbtui.tui.workshop.pages import WorkshopPage
    from kbtui.tui.workshop.pattern import PatternResult
    from kbtui.tui.workshop.tree import TreeEntry

PAGE_SECONDS = 0.06
"""How long one stays on an entry before its text is made."""
EXPAND_MOST = 40
"""Subjects up to which all topics are open in the beginning."""


class WorkshopScreen(SplitScreen):
    """Topics and subjects with what they cost, the text beside them, and a line to try patterns.

    Gives back whether anything was written. `reference` is selected at first; `written`
    has the changes written from here before, and takes further ones.
    """

    HEADING = "Prompt workshop"
    SCOPE = "workshop"
    HORIZONTAL_BREAKPOINTS = [(0, "-stacked"), (70, "-beside")]  # noqa: RUF012
    AUTO_FOCUS = "#entries"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("workshop")]
    DEFAULT_CSS = """
    WorkshopScreen {
        #listed, #detail { width: 1fr; }
        &.-stacked #panes { layout: vertical; }
        #particulars, #remark { height: 1; padding: 0 1; background: $background; }
        #trying { height: auto; }
        #pattern-line { height: 1; background: $surface; }
        #pattern-sign { width: 4; height: 1; padding: 0 0 0 2; background: $surface; }
        #pattern { width: 1fr; background: $surface; color: $foreground; }
        #remark { padding: 0; display: none; }
    }
    """

    def __init__(self, library: Library, reference: str | None, written: list[TomlChange]) -> None:
        super().__init__(library)
        self.controller = WorkshopController(self, self, library)
        self.list = TreeList(self.controller.formatter)
        self.pattern_bar = PatternBar()
        self.filter = LabeledInput("choose", "filter")
        self.writer = KbTomlWriter(self, self, written)
        self.view = "learn"
        self.page: WorkshopPage | None = None
        self._reference = reference
        self._select: str | None = WHOLE
        self._page_timer: Timer | None = None
        self._asking = False
        self._trying = False
        self._wrote = False
        self._writing: tuple[SubjectMark, ...] = ()

    def compose_list_pane(self) -> list[Widget]:
        """The filter, the list, and a line about the selected entry."""
        return [self.filter, self.list, TextLine(id="particulars")]

    def compose_below_panes(self) -> list[Widget]:
        """The line to try patterns."""
        return [self.pattern_bar]

    def on_mount(self) -> None:
        """Begin to read, once something is on the screen."""
        self._show_totals()
        self.call_after_refresh(self.controller.read)

    def on_unmount(self) -> None:
        """Count no more, and keep nothing."""
        self.controller.stop()
        self.list.rows = []

    def on_resize(self) -> None:
        """Show totals and keys that fit the new width."""
        self.call_after_refresh(self._show_totals)

    def _show_totals(self) -> None:
        width = self.query_one("#totals", TextLine).content_size.width
        self.show_totals(*totals(self.controller.prompt_state, len(self.controller.marks), width))
        self.show_keys()

    def show_message(self, text: str = "", role: str = "strong") -> None:
        """Show a message until there is another one; a question that was asked is over."""
        self._asking = False
        super().show_message(text, role)

    @property
    def offers(self) -> frozenset[str]:
        """Whether there are marks to drop, and changes to take back."""
        found = {"marks": len(self.controller.marks) > 0, "written": bool(self.writer.written)}
        return frozenset(name for name, has in found.items() if has)

    @property
    def holding(self) -> bool:
        """Whether a change is shown before it is written, which is to stay."""
        return self.writer.shown is not None

    def should_key_wait(self, key: str) -> bool:
        """Until the topics are read, there is nothing for a key to be about."""
        return (
            self.controller.prompt_state is None
            and self._find_action(key)[1] not in ALWAYS_AVAILABLE_ACTIONS
        )

    # what the controller reports

    def prompt_state_changed(self, *, reread: bool) -> None:
        """Show the new state of the prompt."""
        if reread and self._reference is not None:
            self._begin(self._reference)
            self._reference = None
        elif reread and not self.list.rows:
            self._begin("")
        self._show_totals()
        self.list.refresh()
        self._look()

    def _begin(self, reference: str) -> None:
        """Select what the screen was opened for, with everything open that it lies in."""
        prompt_state = self.controller.prompt_state
        if prompt_state is None:
            return
        knowledge, options = prompt_state.written, self.controller.options
        counts = {topic: len(knowledge.resolve(topic).visible) for topic in knowledge.topics}
        if sum(counts.values()) <= EXPAND_MOST:
            options.opened |= {f"topic:{topic}" for topic in counts}
        topic, _, slug = reference.partition("/")
        if topic not in knowledge.topics:
            return
        self._select = f"topic:{topic}"
        options.opened.add(self._select)
        scan = knowledge.resolve(topic).scan
        slug = slug if slug in scan else slug.rpartition(":")[0]  # lines may follow
        if slug and slug in scan:
            options.hidden = options.hidden or slug in scan.hidden
            self._select = f"{topic}/{slug}"
            parts = slug.split("/")
            options.opened |= {
                folder_key(topic, "/".join(parts[:depth]) + "/") for depth in range(1, len(parts))
            }

    def rows_made(self, rows: list[ListRow]) -> None:
        """Show other rows; the selected one stays selected."""
        nothing = "Nothing matches." if self.controller.trial.text else "Nothing is here."
        if self.controller.trial.text and not self._trying and len(rows) > 1:
            self._select = rows[1].key  # the first match
        self._trying = bool(self.controller.trial.text)
        self.list.set_rows(rows, [(nothing, "dim")], select=self._select)
        self._select = None
        self._look()

    def trial_made(self, trial: PatternResult) -> None:
        """Say what was understood."""
        self.query_one("#remark").display = bool(trial.text.strip())
        self.pattern_bar.show(trial, trial.cost.long)
        self._look(at_once=False)

    def counted(self, left: int) -> None:
        """More subjects were counted."""
        self.query_one("#listed", Vertical).border_subtitle = f"counting {left:,}" if left else ""
        self.list.refresh()

    def report_error(self, error: Exception) -> None:
        """Say why a mark cannot be set, or what cannot be read."""
        self.show_error(error)

    def page_made(self, page: WorkshopPage) -> None:
        """Show the text for what is selected."""
        if self.holding:
            return
        self._show_page(page)
        trial = self.controller.trial
        if trial.usable and page.cost is not None:
            outcome = page.cost.long
            if trial.preloads and self.controller.prompt_state is not None:
                outcome = growth(self.controller.prompt_state.cost, page.cost) or "no change"
            self.pattern_bar.show(trial, outcome)

    def _show_page(self, page: WorkshopPage) -> None:
        same = self.page is not None and self.page.document.key == page.document.key
        before, self.page = self.page, page
        if same and before is not None and before.line == page.line:
            self.reader.reload_document(page.document)
        else:
            self.reader.show_document(page.document)
            if page.line is not None:
                self._go_to(page.line)
        pane = self.query_one("#detail", Vertical)
        pane.border_title = plain_content(page.document.title)
        pane.border_subtitle = plain_content(page.cost.long if page.cost else page.document.size)

    def _go_to(self, line: int) -> None:
        port = self.reader.viewport
        block = port.document.find_line_block(line)
        lines = port.get_lines(block)
        port.go_to(
            block, next((n for n, drawn in enumerate(lines) if drawn.source_line == line), 0), 0
        )
        self.reader.update_view()

    # what is selected

    def _look(self, *, at_once: bool = True) -> None:
        """Have the text made for what is selected, and say what there is to say about it."""
        prompt_state = self.controller.prompt_state
        if prompt_state is None:
            return
        self.query_one("#particulars", TextLine).set_text(
            particulars(prompt_state, self.list.entry)
        )
        if self._page_timer is not None:
            self._page_timer.stop()
        seconds = 0.001 if at_once else PAGE_SECONDS
        self._page_timer = self.set_timer(seconds, self._make_page)

    def _make_page(self) -> None:
        if not self.holding:
            self.controller.make_page(self.list.entry, self.view)

    @on(RowList.SelectionChanged)
    def _moved(self, event: RowList.SelectionChanged) -> None:
        event.stop()
        self._withdraw()
        self._look(at_once=False)

    @on(RowList.RowClicked)
    def _clicked(self, event: RowList.RowClicked) -> None:
        event.stop()
        if self.list.entry.kind in ("topic", "folder"):
            self.action_open()

    def action_entries(self, where: str, *pages: float) -> None:
        """Move in the list while one types."""
        getattr(self.list, f"action_{where}")(*pages)

    def action_view(self) -> None:
        """The other view of what is selected."""
        self.view = "prompt" if self.view == "learn" else "learn"
        self._withdraw()
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
            self.controller.options.opened ^= {key}
            self.controller.make_rows()

    def action_expand(self) -> None:
        """Open the selected topic or folder."""
        if (key := self._branch(self.list.entry)) is not None:
            self.controller.options.opened.add(key)
            self.controller.make_rows()

    def action_collapse(self) -> None:
        """Close the selected topic or folder, else go to what the entry lies in."""
        entry, opened = self.list.entry, self.controller.options.opened
        key = self._branch(entry)
        if key in opened:
            opened.discard(key or "")
            self.controller.make_rows()
        elif entry.topic:
            above = entry.name.rstrip("/").rpartition("/")[0]
            parent = folder_key(entry.topic, f"{above}/") if above else f"topic:{entry.topic}"
            self.list.select(parent)

    def _branch(self, entry: TreeEntry) -> str | None:
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
                "topic": f"a topic is switched with {self.key_hint('switch')}; mark its subjects",
                "fragment": "JP's fragments are read-only here",
            }
            self.show_message(words.get(entry.kind, "select a subject to mark"), "warning")
            return
        mark = SubjectMark(entry.topic, entry.name, "learned" if state == "learned" else "disabled")
        self._toggle(mark, otherwise="plain")

    def action_switch(self) -> None:
        """Switch the selected entry's topic off, or on again."""
        topic = self.list.entry.topic
        if not topic:
            self.show_message("select a topic to switch", "warning")
            return
        on = self.controller.formatter.state(topic, None) == "on"
        self._toggle(SubjectMark(topic, None, "off" if on else "on"), otherwise="on")

    def _toggle(self, mark: SubjectMark, otherwise: str) -> None:
        prompt_state = self.controller.prompt_state
        if (
            prompt_state is None
            or mark.topic not in prompt_state.written.topics
            or self.writer.writing
        ):
            return
        now = self.controller.formatter.state(mark.topic, mark.slug)
        before = state_of(prompt_state.written, mark.topic, mark.slug)
        self.controller.marks.toggle(mark, now, before, "on" if otherwise == "on" else "plain")
        self._marks_changed()

    def _marks_changed(self) -> None:
        self.writer.withdraw()
        self.show_message()
        self._show_totals()
        self.list.refresh()
        self.controller.mark()

    def action_drop(self) -> None:
        """Take all marks back."""
        if len(self.controller.marks):
            self.controller.marks.clear()
            self._marks_changed()

    # patterns, filter, hidden

    def action_try(self) -> None:
        """Type a pattern."""
        self.controller.addressed = self.list.entry.topic or self.controller.addressed
        self.set_focus(self.pattern_bar.input)

    @on(PatternBar.Typed)
    def _typed(self, event: PatternBar.Typed) -> None:
        event.stop()
        self._withdraw()
        self.controller.attempt(event.text)

    @on(PatternBar.Done)
    def _tried(self, event: PatternBar.Done) -> None:
        event.stop()
        self.set_focus(self.list)

    def action_filter(self) -> None:
        """Type words of slugs."""
        self.filter.open()

    @on(Input.Changed, "#choose")
    def _chosen(self, event: Input.Changed) -> None:
        event.stop()
        self.controller.options.words = event.value
        self.controller.make_rows()

    @on(Input.Submitted, "#choose")
    def _choice_done(self, event: Input.Submitted) -> None:
        event.stop()
        self.set_focus(self.list)

    def action_hidden(self) -> None:
        """Show or hide hidden subjects."""
        self.controller.show_hidden(not self.controller.options.hidden)
        shown = self.controller.options.hidden
        self.show_message("hidden subjects are shown" if shown else "hidden subjects are not shown")

    # writing

    def action_write(self) -> None:
        """Show what would be written; when that is shown, write it."""
        prompt_state, marks = self.controller.prompt_state, self.controller.marks.all
        if self.writer.shown is not None:
            self._writing = marks
            self.writer.write()
        elif not marks:
            self.show_message("nothing is marked, so there is nothing to write", "warning")
        elif prompt_state is not None:
            self.writer.propose(prompt_state.written, marks)

    def _withdraw(self) -> None:
        """The change that is shown will not be written."""
        if self.holding:
            self.show_message()
        self.writer.withdraw()

    def proposed(self, change: TomlChange) -> None:
        """Show the change before it is written."""
        if change.is_empty:
            self.show_message("the file says so already: there is nothing to write", "warning")
            return
        self.controller.forget_pages()
        prompt_state = self.controller.prompt_state
        grown = growth(prompt_state.written_cost, prompt_state.cost) if prompt_state else ""
        words = f"The prompt: {grown or 'as long as before'}. Nothing is written yet."
        self._show_page(change_page(change, "This would be written to .jp/kb.toml", words))
        write, enter, back = (self.key_hint(name) for name in ("write", "open", "back"))
        self.show_message(
            f"{write} or {enter} writes this · {back} goes back without writing", "key"
        )

    def wrote(self, change: TomlChange) -> None:
        """Say so, and see how things are now."""
        self._wrote = True
        self.controller.read(self._writing)
        self.show_message(
            f"written to .jp/kb.toml · {self.key_hint('undo')} takes it back", "inserted"
        )

    def action_undo(self) -> None:
        """Take back what was last written from here."""
        if not self.writer.written:
            self.show_message("nothing was written from here", "warning")
            return
        self._withdraw()
        self.writer.undo()

    def took_back(self, change: TomlChange) -> None:
        """Say so, and see how things are now."""
        self._wrote = True
        self.controller.read()
        self.show_message("taken back: .jp/kb.toml is as it was before", "inserted")

    def not_written(self, error: Exception) -> None:
        """Say why, and go back to the texts."""
        self.show_message(f"Not written. {self.describe_error(error)}", "error")
        self.controller.read()

    # leaving

    @on(PaneInput.EscapePressed)
    def _left_input(self, event: PaneInput.EscapePressed) -> None:
        event.stop()
        self.action_back()

    def action_back(self) -> None:
        """One step back."""
        if self._asking:
            self.show_message()
        elif self.holding:
            self._withdraw()
            self._look()
        elif self.pattern_bar.input.value or self.focused is self.pattern_bar.input:
            self.pattern_bar.clear()
            self.set_focus(self.list)
        elif self.filter.display:
            self.set_focus(self.list)
            self.filter.close()
        elif self.focused is self.reader:
            self.set_focus(self.list)
        else:
            self.action_leave()

    def action_leave(self) -> None:
        """Leave the screen."""
        if self.can_leave():
            self.dismiss(self._wrote)

    def can_leave(self) -> bool:
        """Whether nothing would be lost, or one was asked already; asks otherwise."""
        if self.writer.writing:
            self.show_message("a file is being written", "warning")
            return False
        count = len(self.controller.marks)
        if not count or self._asking:
            return True
        marks = "1 mark is" if count == 1 else f"{count:,} marks are"
        leave, write, back = (self.key_hint(name) for name in ("leave", "write", "back"))
        ways = f"{leave} leaves without · {write} shows them · {back} stays"
        self.show_message(f"{marks} not written · {ways}", "warning")
        self._asking = True
        return False

    # the rest

    def action_reload(self) -> None:
        """Read everything again."""
        self.controller.read()

    def handle_files_changed(self, event: dict[str, Any]) -> None:
        """Read again when topics or subjects change; marks that are not written stay."""
        touched = event.get("knowledge") or event.get("subjects")
        if touched and not self.holding and not self.writer.writing:
            self.controller.read()

    # help

    def help_blocks(self) -> list[Block]:
        """The signs of the list."""
        names = ("pre-loaded", "disabled", "hidden")
        signs: list[tuple[str, Spans]] = [(MARKS[name][0], [(name, "")]) for name in names]
        signs.append((UNWRITTEN, [("marked, and not written yet", "")]))
        signs.append(("~", [("guessed from the file's size; the text is not counted yet", "")]))
        signs.append(("≈", [("characters at its left, estimated tokens at its right", "")]))
        return [HeadBlock("head:signs", [("Signs", "h2")], above=1), FactsBlock("signs", signs)]

    def help_notes(self) -> tuple[str]:
        """How marks are written, with the keys that do."""
        write, enter = self.key_hint("write"), self.key_hint("open")
        return (
            f"Marks change nothing until they are written: {write} shows the change of "
            f".jp/kb.toml, {write} or {enter} then writes it. In an input letters are text: "
            "Esc leaves it.",
        )
