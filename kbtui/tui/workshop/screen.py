"""The prompt workshop: what an assistant is given, and marks that change it when they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.widgets import Input

from kbtui.knowledge.models import SubjectMark
from kbtui.tui.framework.labeled_input import PaneInput
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.framework.styled_widget import LEAVING
from kbtui.tui.help import HelpScreen
from kbtui.tui.key_hints import bindings_of, key_of
from kbtui.tui.workshop.costs import growth
from kbtui.tui.workshop.help import help_page
from kbtui.tui.workshop.kb_toml import KbTomlWriter
from kbtui.tui.workshop.layout import WorkshopLayout
from kbtui.tui.workshop.marks import state_of
from kbtui.tui.workshop.pages import change_page
from kbtui.tui.workshop.pattern_bar import PatternBar
from kbtui.tui.workshop.tree import folder_key

if TYPE_CHECKING:
    from textual.binding import BindingType

    from kbtui.knowledge.editing import TomlChange
    from kbtui.library import Library
    from kbtui.tui.workshop.tree import TreeEntry


class PromptScreen(WorkshopLayout):
    """Topics and subjects with what they cost, the text beside them, and a line to try patterns.

    Gives back whether anything was written. `written` has the changes written
    from here before, and takes further ones.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("workshop")]

    def __init__(self, library: Library, reference: str | None, written: list[TomlChange]) -> None:
        super().__init__(library, reference)
        self.writer = KbTomlWriter(self, self, written)
        self._wrote = False
        self._writing: tuple[SubjectMark, ...] = ()

    @property
    def holding(self) -> bool:
        """Whether a change is shown, which is to stay."""
        return self.writer.shown is not None

    @property
    def can_undo(self) -> bool:
        """Whether something was written from here."""
        return bool(self.writer.written)

    def _key(self, name: str) -> str:
        return key_of(f"workshop.{name}", self.own_keys)

    def is_unsettled(self, key: str) -> bool:
        """Until the topics are read, there is nothing for a key to be about."""
        return self.bench.standing is None and self._meant_by(key)[1] not in LEAVING

    # what is selected

    @on(RowList.Moved)
    def _moved(self, event: RowList.Moved) -> None:
        event.stop()
        self._withdraw()
        self._look(at_once=False)

    @on(RowList.Opened)
    def _clicked(self, event: RowList.Opened) -> None:
        event.stop()
        if self.list.entry.kind in ("topic", "folder"):
            self.action_open()

    def action_entries(self, where: str) -> None:
        """Move in the list while one types."""
        getattr(self.list, f"action_{where}")()

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
                "topic": f"a topic is switched with {self._key('switch')}; mark its subjects",
                "fragment": "JP's fragments are read-only here",
            }
            self._say(words.get(entry.kind, "select a subject to mark"), "warning")
            return
        mark = SubjectMark(entry.topic, entry.name, "learned" if state == "learned" else "disabled")
        self._toggle(mark, otherwise="plain")

    def action_switch(self) -> None:
        """Switch the selected entry's topic off, or on again."""
        topic = self.list.entry.topic
        if not topic:
            self._say("select a topic to switch", "warning")
            return
        on = self.bench.faces.state(topic, None) == "on"
        self._toggle(SubjectMark(topic, None, "off" if on else "on"), otherwise="on")

    def _toggle(self, mark: SubjectMark, otherwise: str) -> None:
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

    @on(PatternBar.Typed)
    def _typed(self, event: PatternBar.Typed) -> None:
        event.stop()
        self._withdraw()
        self.bench.attempt(event.text)

    @on(PatternBar.Done)
    def _tried(self, event: PatternBar.Done) -> None:
        event.stop()
        self.set_focus(self.list)

    def action_filter(self) -> None:
        """Type words of slugs."""
        self.filter.ask()

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
            self._writing = marks
            self.writer.write()
        elif not marks:
            self._say("nothing is marked, so there is nothing to write", "warning")
        elif standing is not None:
            self.writer.propose(standing.written, marks)

    def _withdraw(self) -> None:
        """The change that is shown will not be written."""
        if self.holding:
            self._say()
        self.writer.withdraw()

    def proposed(self, change: TomlChange) -> None:
        """Show the change before it is written."""
        if change.empty:
            self._say("the file says so already: there is nothing to write", "warning")
            return
        self.bench.forget_pages()
        standing = self.bench.standing
        grown = growth(standing.written_cost, standing.cost) if standing else ""
        words = f"The prompt: {grown or 'as long as before'}. Nothing is written yet."
        self._show(change_page(change, "This would be written to .jp/kb.toml", words))
        write, enter, back = (self._key(name) for name in ("write", "open", "back"))
        self._say(f"{write} or {enter} writes this · {back} goes back without writing", "key")

    def wrote(self, change: TomlChange) -> None:
        """Say so, and see how things are now."""
        self._wrote = True
        self.bench.read(self._writing)
        self._say(f"written to .jp/kb.toml · {self._key('undo')} takes it back", "inserted")

    def action_undo(self) -> None:
        """Take back what was last written from here."""
        if not self.writer.written:
            self._say("nothing was written from here", "warning")
            return
        self._withdraw()
        self.writer.undo()

    def took_back(self, change: TomlChange) -> None:
        """Say so, and see how things are now."""
        self._wrote = True
        self.bench.read()
        self._say("taken back: .jp/kb.toml is as it was before", "inserted")

    def not_written(self, error: Exception) -> None:
        """Say why, and go back to the texts."""
        self._say(f"Not written. {self._words(error)}", "error")
        self.bench.read()

    # leaving

    @on(PaneInput.Left)
    def _left_input(self, event: PaneInput.Left) -> None:
        event.stop()
        self.action_back()

    def action_back(self) -> None:
        """One step back."""
        if self._asking:
            self._say()
        elif self.holding:
            self._withdraw()
            self._look()
        elif self.trybar.input.value or self.focused is self.trybar.input:
            self.trybar.clear()
            self.set_focus(self.list)
        elif self.filter.display:
            self.set_focus(self.list)
            self.filter.put_away()
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
        leave, write, back = (self._key(name) for name in ("leave", "write", "back"))
        ways = f"{leave} leaves without · {write} shows them · {back} stays"
        self._say(f"{marks} not written · {ways}", "warning")
        self._asking = True
        return False

    # the rest

    def action_reload(self) -> None:
        """Read everything again."""
        self.bench.read()

    def files_changed(self, event: dict[str, Any]) -> None:
        """Topics or subjects are others: read them again, with the marks that are not written."""
        touched = event.get("knowledge") or event.get("subjects")
        if touched and not self.holding and not self.writer.writing:
            self.bench.read()

    def action_help(self) -> None:
        """Explain the keys."""
        self.app.push_screen(HelpScreen(page=help_page(self.own_keys)))
