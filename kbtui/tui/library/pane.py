"""The library pane: topics and conversations, with a filter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.highlighter import Highlighter
from textual import on
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from kbtui.text import one_line
from kbtui.tui.commands import bindings
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.framework.styled_widget import BorderOnlyPane
from kbtui.tui.framework.text_widgets import LabeledInput, MultilineText, PaneInput
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.library.filter import parse_library_filter
from kbtui.tui.library.rows import (
    SORTS,
    LibraryState,
    conversation_rows,
    library_rows,
    sooner_than_a_day,
    topic_rows,
)
from kbtui.tui.navigation import NavigationTarget

if TYPE_CHECKING:
    from datetime import datetime

    from rich.text import Text
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.tui.clock import Clock
    from kbtui.tui.library.snapshot import LibrarySnapshot


AT_ONCE = 1_000
"""Subjects and conversations up to which the rows are made at once."""
TICK_SECONDS = 10.0
"""How often it is looked whether a date should be said differently."""


class LibraryPane(BorderOnlyPane, Vertical):
    """Lists what there is; says what is to be opened."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("library")]

    class Open(Message):
        """A place is to be opened."""

        def __init__(self, place: NavigationTarget) -> None:
            super().__init__()
            self.place = place

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="library", classes="pane")
        self.border_title = "Library"
        self.contents: LibrarySnapshot | None = None
        self.state = LibraryState()
        self.list = RowList("library-list")
        self._wrong = _Wrong()
        self.filter = LabeledInput("filter", "filter", self._wrong)
        self.says = MultilineText(self.list)
        self._ticked: datetime | None = None
        self._reopened = False
        self.list.empty = [("Reading the workspace …", "dim")]
        self._clock = clock
        self._lane = LatestOnlyWorker(self)

    def compose(self) -> ComposeResult:
        """The filter and the list; what is wrong with the filter comes between them."""
        yield self.filter
        yield self.list

    def on_mount(self) -> None:
        """Let the dates tick."""
        self.set_interval(TICK_SECONDS, self.tick)

    def update(self, contents: LibrarySnapshot) -> None:
        """Show other contents, keeping what is selected and expanded."""
        first = self.contents is None
        self.contents = contents
        if first and not self._reopened:
            self._expand_what_fits()
        self.refill()

    def reopen(self, expanded: list[str]) -> None:
        """Expand what was expanded when it was left."""
        self._reopened = True
        self.state.expanded = set(expanded)
        self.refill()

    def learn(self, contents: LibrarySnapshot) -> None:
        """Take in what was read of the same conversations; shown only where it is asked for."""
        self.contents = contents
        if self.waits_for_traits:
            self.refill()

    @property
    def is_filling(self) -> bool:
        """Whether other rows are still being made."""
        return self._lane.owes

    @property
    def waits_for_traits(self) -> bool:
        """Whether what is shown depends on what conversations used."""
        return self.state.filter.needs_summaries or self.state.sort == "turns"

    def _expand_what_fits(self) -> None:
        """Expand topics as long as everything still fits into the pane."""
        contents = self.contents
        assert contents is not None
        room = self.list.scrollable_content_region.height
        room -= len(contents.conversations)
        if room <= 0:
            return
        room -= len(conversation_rows(contents, self.state, self._clock()))
        room += len(contents.conversations)
        for shelf in contents.shelves:
            if shelf.visible > AT_ONCE:
                continue
            key = f"topic:{shelf.topic.id}"
            self.state.expanded.add(key)
            if len(topic_rows(contents, self.state)) > room:
                self.state.expanded.discard(key)

    def refill(self, select: str | None = None) -> None:
        """Make the rows again; in a thread where there are so many that one would notice."""
        contents = self.contents
        if contents is None:
            return
        self.border_subtitle = "hidden shown" if self.state.hidden else ""
        self._lane.forget()
        present = self._ticked = self._clock()
        many = sum(len(shelf.subjects) for shelf in contents.shelves) + len(contents.conversations)
        if many <= AT_ONCE:
            self.list.set_rows(library_rows(contents, self.state, present), select=select)
            return
        state = replace(self.state, expanded=set(self.state.expanded))
        self._lane.submit(
            lambda: library_rows(contents, state, present),
            lambda rows: self.list.set_rows(rows, select=select),
            lambda error: self.list.set_rows([], [(one_line(str(error)), "error")]),
        )

    def tick(self) -> None:
        """Say the dates anew where time has changed them."""
        before, present = self._ticked, self._clock()
        if self.contents is None or before is None or present <= before:
            return
        if before.date() != present.date() or (
            present.replace(second=0, microsecond=0) > before
            and sooner_than_a_day(self.contents, self.state.sort, present)
        ):
            self.refill()

    def reveal(self, place: NavigationTarget) -> None:
        """Select a place, expanding what it lies in."""
        if place.ref and place.ref.kind == "subject" and place.ref.slug:
            topic = place.ref.topic
            parts = place.ref.slug.split("/")
            wanted = {f"topic:{topic}"}
            wanted |= {f"folder:{topic}/" + "/".join(parts[:n]) for n in range(1, len(parts))}
            if not wanted <= self.state.expanded:
                self.state.expanded |= wanted
                self.refill(select=place.key)
        self.list.select(place.key)

    @on(RowList.Opened)
    def _clicked(self, event: RowList.Opened) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """Open the selected entry; a topic or folder is expanded too."""
        row = self.list.selected
        if row is None:
            return
        if row.key.startswith("folder:"):
            self.action_expand_or_collapse()
        elif isinstance(row.data, NavigationTarget):
            if row.key.startswith("topic:"):
                self._set(row.key, row.key not in self.state.expanded)
            self.post_message(self.Open(row.data))

    def action_expand_or_collapse(self) -> None:
        """Expand or collapse the selected entry."""
        row = self.list.selected
        if row and row.key.startswith(("topic:", "folder:")):
            self._set(row.key, row.key not in self.state.expanded)

    def action_expand(self) -> None:
        """Expand the selected entry."""
        row = self.list.selected
        if row and row.key.startswith(("topic:", "folder:")):
            self._set(row.key, True)

    def action_collapse(self) -> None:
        """Collapse the selected entry, else the one that it lies in."""
        row = self.list.selected
        if row is None:
            return
        if row.key in self.state.expanded:
            self._set(row.key, False)
            return
        path = row.key.removeprefix("folder:").split("/")
        for depth in range(len(path) - 1, 0, -1):
            parent = f"folder:{'/'.join(path[:depth])}" if depth > 1 else f"topic:{path[0]}"
            if self.list.select(parent):
                return

    def _set(self, key: str, expanded: bool) -> None:
        (self.state.expanded.add if expanded else self.state.expanded.discard)(key)
        self.refill()

    def toggle_hidden(self) -> bool:
        """Show or hide hidden subjects; says whether they are shown now."""
        self.state.hidden = not self.state.hidden
        self.refill()
        return self.state.hidden

    def action_sort(self) -> None:
        """Sort conversations by the next key."""
        self.state.sort = SORTS[(SORTS.index(self.state.sort) + 1) % len(SORTS)]
        self.refill()

    def action_filter(self) -> None:
        """Show the filter and type into it."""
        self.filter.ask()

    @on(Input.Changed, "#filter")
    def _filter(self, event: Input.Changed) -> None:
        event.stop()
        self._narrow(event.value, typing=True)

    @on(Input.Submitted, "#filter")
    def _filtered(self, event: Input.Submitted) -> None:
        event.stop()
        self._narrow(event.value, typing=False)
        if not self.state.filter.errors:
            self.screen.set_focus(self.list)

    def _narrow(self, text: str, *, typing: bool) -> None:
        """Show what a filter lets through; what is wrong with it is pointed at."""
        found = parse_library_filter(text, self._clock(), partial=typing)
        self._wrong.spans = [(error.start, error.end) for error in found.errors]
        self.filter.input.refresh()
        self.says.say(
            [
                [
                    (f"{one_line(text[error.start : error.end])} ", "error strong"),
                    (one_line(str(error)), ""),
                ]
                for error in found.errors
            ]
        )
        if found != self.state.filter:
            self.state.filter = found
            self.refill()

    @on(PaneInput.Left)
    def _left(self, event: PaneInput.Left) -> None:
        event.stop()
        self.action_clear()

    def action_clear(self) -> None:
        """Take the filter away."""
        if self.filter.display:
            self.screen.set_focus(self.list)
            self.filter.put_away()


class _Wrong(Highlighter):
    """Marks what is wrong with a filter where it stands."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def highlight(self, text: Text) -> None:
        """Mark it."""
        for start, end in self.spans:
            text.stylize("bold underline", start, end)
