"""The reader pane: the document, with a header above it, its facts, and a bar to find words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.commands import bindings
from kbtui.tui.framework.gc_tuning import free_in_background
from kbtui.tui.framework.styled_text import align_to_edges, cell_width
from kbtui.tui.framework.styled_widget import BorderOnlyPane, plain_content
from kbtui.tui.framework.text_widgets import LabeledInput, MultilineText, PaneInput, TextLine
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.navigation_target import make_target
from kbtui.tui.reader.document import compile_finder, format_count
from kbtui.tui.reader.document_view import DocumentView

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.strip import Strip

    from kbtui.tui.framework.styled_text import Spans, StyledLine
    from kbtui.tui.navigation_target import NavigationTarget
    from kbtui.tui.reader.document import Document


MAX_MATCHES = 100_000
"""Matches that are counted; nobody walks through more."""


class Header(TextLine):
    """The line above the text; what is clicked on its left may mean something."""

    class Clicked(Message):
        """A part of it was clicked on."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def render_line(self, y: int) -> Strip:
        """The line; where there is little room, of the size only the tokens."""
        width, right = self.content_size.width, self.right
        if cell_width(self.left) + cell_width(right) >= width:
            right = [
                (text[text.find("≈") :] if "≈" in text else text, role) for text, role in right
            ]
        return self.paint(align_to_edges(self.left, right, width) if y == 0 else [], width)

    def on_click(self, event: events.Click) -> None:
        """Find the part."""
        edge = self.gutter.left
        for text, _ in self.left:
            edge += cell_width([(text, "")])
            if event.x < edge:
                self.post_message(self.Clicked(text))
                return


class FactsBar(MultilineText):
    """Names and values above the text, shown while they are asked for."""

    DEFAULT_CSS = "FactsBar { max-height: 75%; }"

    def tell(self, facts: list[tuple[str, Spans]]) -> None:
        """Show these."""
        from kbtui.tui.reader.blocks import FactsBlock

        self._block = FactsBlock("facts", facts)
        self.say([spans for _, spans in facts])

    def _lines(self, width: int) -> list[StyledLine]:
        return self._block.lines(width) if self.display else []

    def render_line(self, y: int) -> Strip:
        """A line; the last one says how many there is no room for."""
        width, height = self.content_size
        left = len(self._lines(width)) - height
        if y == height - 1 and left > 0:
            return self.paint([(f"… {format_count(left + 1, 'more line')}", "dim")], width)
        return super().render_line(y)


class ReaderPane(BorderOnlyPane, Vertical):
    """Shows what is open, and where in it one is."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("reader")]

    class Moved(Message):
        """Another line is being read."""

    class Open(Message):
        """What a line leads to is to be opened."""

        def __init__(self, place: NavigationTarget) -> None:
            super().__init__()
            self.place = place

    class Remark(Message):
        """Something to say in the status line."""

        def __init__(self, text: str, role: str) -> None:
            super().__init__()
            self.text, self.role = text, role

    class OtherView(Message):
        """The same thing is to be shown in another view; "" is the next."""

        def __init__(self, view: str = "") -> None:
            super().__init__()
            self.view = view

    def __init__(self) -> None:
        super().__init__(id="reader", classes="pane")
        self.border_title = "Reader"
        self.reader = DocumentView()
        self.finder = LabeledInput("find", "find")
        self.place: NavigationTarget | None = None
        self.matches: list[tuple[int, int]] = []
        self.match = -1
        self.finding = False
        self._finding_lane = LatestOnlyWorker(self)
        self.facts = FactsBar(self.reader)
        self._beginning_lane = LatestOnlyWorker(self)
        self._requests: dict[int, str] = {}
        self._more = 0
        """Events that were written below since one was at the end."""

    def compose(self) -> ComposeResult:
        """Header, text, finder; the facts come over the text."""
        yield Header(id="where")
        yield self.reader
        yield self.finder

    @property
    def is_looking(self) -> bool:
        """Whether it is still looked for where to begin to read, or what to find."""
        return self._beginning_lane.owes or self._finding_lane.owes

    # what is shown

    def show(self, document: Document, place: NavigationTarget) -> None:
        """Show a document at a place in it."""
        again = (
            self.place is not None
            and self.place.is_same_document(place)
            and self.reader.document.key
        )
        self.place = place
        if again and document.record is None and document.blocks == self.reader.document.blocks:
            document = self.reader.document
        self.stop_finding()
        self.facts.say([])
        self.reader.port.look_for(compile_finder(list(place.words)))
        before = self.reader.document
        self._more = 0
        self.reader.show(document, place.mark)
        self.let_go(before)
        self._begin(document, place)
        self._titles()

    def go(self, place: NavigationTarget) -> None:
        """Go to another place in the document that is shown."""
        self.place = place
        self.stop_finding()
        self.reader.port.look_for(compile_finder(list(place.words)))
        self._begin(self.reader.document, place)

    def reload(self, document: Document) -> None:
        """Show the same document as it is now, where one was reading."""
        before = self.reader.document
        if not before.partial:
            self._more += max(0, _count_events(document) - _count_events(before))
        self.reader.reload(document)
        self.let_go(before)
        if self.facts.display:
            self._show_facts()
        self._titles()
        if self.finding:
            self.look(self.finder.input.value, jump=False)

    def let_go(self, document: Document) -> None:
        """Give back a document unless it is shown."""
        if document is self.reader.document:
            return
        self._requests = {}
        if document.weights or document.partial:
            free_in_background(document)

    def _begin(self, document: Document, place: NavigationTarget) -> None:
        """Go where a place begins; in a big document that is looked for in a thread."""
        from kbtui.tui.reader.document import find_start_block

        self._beginning_lane.forget()
        if place.mark or not (document.weights and place.words):
            self._start(place, None if place.mark else find_start_block(document, place))
            return
        self.reader.changed()
        self._beginning_lane.submit(
            lambda: find_start_block(document, place),
            lambda start: self._start(place, start),
            lambda error: self._start(place, None),
        )

    def _start(self, place: NavigationTarget, start: tuple[int, int] | None) -> None:
        document = self.reader.document
        if start is not None and start[0] < len(document.blocks):
            block, count = start
            if count >= 0:
                self.reader.port.go_to_match(block, count)
            else:
                self.reader.port.go_to(block, document.blocks[block].above, lead=0)
                if place.ref and place.ref.call:
                    self.reader.port.unfold(document.blocks[block].key)
        self.reader.changed()

    def _titles(self) -> None:
        document = self.reader.document
        self.border_title = plain_content(document.title or "Reader")

    # the header

    @on(DocumentView.Moved)
    def _moved(self, event: DocumentView.Moved) -> None:
        event.stop()
        self.refresh_header()
        self.post_message(self.Moved())

    def refresh_header(self) -> None:
        """Say where one is."""
        port, document = self.reader.port, self.reader.document
        left: Spans = []
        if document.turns_total and port.turn is not None:
            left = [
                ("turn ", "dim"),
                (f"{port.turn:,}", "turn"),
                (f" of {document.turns_total:,}{' or more' if document.partial else ''}  ", "dim"),
            ]
            left.append((self._request(port.turn), ""))
        elif document.turns_total:
            left = [(format_count(document.turns_total, "turn"), "dim")]
        elif len(document.views) > 1:
            for view in document.views:
                left += [(view, "key" if view == document.view else "dim"), (" ", "")]
        elif document.view in ("learn", "prompt"):
            left = [("as the assistant gets it", "dim")]
        right: Spans = [("● as the model sees it", "accent")] if port.as_model else []
        for badge in document.badges:
            right += [("● " if not right else " ● ", badge[1]), badge]
        if document.size:
            right += [("  " if right else "", ""), (document.size, "dim")]
        if self._more and port.at_end:
            self._more = 0
        if self._more:
            right = [(f"↓ {format_count(self._more, 'new event')}", "found")]
        if self.finding:
            right = [(self.found_where, "found" if self.matches else "warning")]
        self.query_one("#where", TextLine).say(left, right)
        reference = port.reference
        self.say_below(plain_content(reference) if reference else "")

    @on(Header.Clicked)
    def _clicked(self, event: Header.Clicked) -> None:
        """A click on the name of a view shows it."""
        event.stop()
        if event.text in self.reader.document.views:
            self.post_message(self.OtherView(event.text))

    def _request(self, turn: int) -> str:
        """The first words of a turn's request."""
        document = self.reader.document
        if turn not in self._requests:
            from kbtui.tui.reader.markdown import strip_markdown

            conversation = document.record
            found = conversation.turn(turn) if conversation else None
            events = found.events if found else []
            text = next((event.text for event in events if event.kind == "chat_request"), "")
            self._requests[turn] = one_line(strip_markdown(text[:300], [])[0])
        return self._requests[turn]

    # folds and turns

    def action_fold(self) -> None:
        """Unfold or fold at the line being read, or open what it leads to."""
        port = self.reader.port
        if port.document.blocks and (link := port.document.blocks[port.cursor.block].link):
            self.post_message(self.Open(make_target(parse_ref(link))))
        if fold := port.fold_at_cursor():
            port.toggle(fold)
            self.reader.changed()

    def action_tools(self) -> None:
        """Unfold or fold all tool calls."""
        self._toggle("tool", "tool call")

    def action_reasoning(self) -> None:
        """Unfold or fold all reasoning."""
        self._toggle("reasoning", "reasoning")

    def _toggle(self, kind: str, name: str) -> None:
        """Fold or unfold all of a kind; what is opened next is then shown the same way."""
        document = self.reader.document
        if kind not in document.fold_kinds.values() and not document.partial:
            self._flash(f"there is no {name} here", "dim")
            return
        self.reader.port.toggle_kind(kind)
        self.reader.changed()

    def action_next(self) -> None:
        """The next match while finding, else the next turn."""
        self._next(1)

    def action_previous(self) -> None:
        """The previous match while finding, else the previous turn."""
        self._next(-1)

    def _next(self, step: int) -> None:
        if self.finding:
            self.go_to_match(self.match + step)
        else:
            self._go_along("turn", step)

    def action_landmark(self, kind: str, step: int) -> None:
        """The next or previous request or tool error."""
        if not self._go_along(kind, step):
            names = {"request": "request", "error": "tool error"}
            self._flash(f"no {names[kind]} further {'on' if step > 0 else 'back'}")

    def _go_along(self, kind: str, step: int) -> bool:
        """Go to the next thing of a kind that is in sight of the view; False where there is none."""
        port = self.reader.port
        marks = self.reader.document.landmarks.get(kind, [])
        here = port.cursor.block
        at = bisect_right(marks, here) if step > 0 else bisect_left(marks, here) - 1
        while 0 <= at < len(marks) and not port.shows(marks[at]):
            at += step
        if not 0 <= at < len(marks):
            return False
        port.go_to(marks[at], self.reader.document.blocks[marks[at]].above, lead=0)
        self.reader.changed()
        return True

    def go_to_turn(self, text: str) -> bool:
        """Go to a turn, or a call in it, of what is shown; False where `text` names neither."""
        document = self.reader.document
        match = re.fullmatch(r"(-?\d{1,9})(?:\.(\d{1,9}))?", text.strip())
        if match is None or not document.turns_total:
            return False
        turn, total = int(match[1]), document.turns_total
        turn = total + 1 + turn if turn < 0 else turn
        block = document.block_of_turn(turn, int(match[2]) if match[2] else None)
        if block is None:
            self._flash(
                f"there is no turn {match[1]}: there are {format_count(total, 'turn')}", "warning"
            )
            return True
        if not self.reader.port.shows(block):
            self.reader.port.show_as_model(False)
        self.reader.port.go_to(block, document.blocks[block].above, lead=0)
        if match[2] and document.blocks[block].key in document.fold_kinds:
            self.reader.port.unfold(document.blocks[block].key)
        self.reader.changed()
        return True

    def action_follow(self) -> None:
        """Go to the end, and stay there while more is written."""
        self.reader.action_bottom()

    # the facts, and what a model sees

    def action_facts(self) -> None:
        """Show or hide what there is to know of what is shown."""
        if self.facts.display:
            self.facts.say([])
            return
        self._show_facts()
        if not self.facts.display:
            self._flash("there is nothing more to say of this", "dim")

    def _show_facts(self) -> None:
        self.facts.tell(self.reader.document.facts)

    def action_compacted(self) -> None:
        """Show what the model sees after compaction, or the whole again."""
        port = self.reader.port
        if not port.as_model and not self.reader.document.compacted:
            self._flash("nothing was compacted: the model sees all of it", "dim")
            return
        port.show_as_model(not port.as_model)
        self.reader.changed()
        if self.finding:
            self.look(self.finder.input.value, jump=False)

    def _flash(self, text: str, role: str = "warning") -> None:
        self.post_message(self.Remark(text, role))

    # wide code

    def action_wrap(self) -> None:
        """Wrap wide code, or cut it to be scrolled."""
        wrapped = self.reader.port.shift is None
        self.reader.port.move_code(0 if wrapped else None)
        self.reader.changed()
        said = "wide code is cut; → and ← scroll it" if wrapped else "wide code is wrapped"
        self._flash(said, "strong")

    def action_sideways(self, way: int) -> None:
        """Scroll wide code by a third of the reader's width."""
        port = self.reader.port
        step = max(8, port.width // 3)
        if way > 0 and port.shift is not None and not any(line.more for _, line in port.rows):
            self._flash("no code goes on at the right", "dim")
            return
        if way < 0 and not port.shift:
            return
        port.move_code(max(0, (port.shift or 0) + way * step) if port.shift is not None else 0)
        self.reader.changed()

    # finding words

    @property
    def found_where(self) -> str:
        """Which match one stands at, of how many."""
        more = "+" if len(self.matches) >= MAX_MATCHES else ""
        return f"{self.match + 1:,} of {len(self.matches):,}{more}" if self.matches else "no match"

    def action_find(self) -> None:
        """Type what to find."""
        entry = self.finder.input
        if not self.finding and self.place and self.place.words:
            entry.value = self.place.words[0]
        self.finding = True
        self.finder.ask()
        self.look(entry.value, jump=False)

    @on(Input.Changed, "#find")
    def _find_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.finding:
            self.look(event.value, jump=True)

    @on(Input.Submitted, "#find")
    def _find_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.screen.set_focus(self.reader)

    def look(self, words: str, *, jump: bool) -> None:
        """Look for words; `jump` goes to the first match from where one reads."""
        pattern = compile_finder([words])
        document, as_model = self.reader.document, self.reader.port.as_model
        self.reader.port.look_for(pattern)
        self.reader.changed()
        if pattern is None:
            self._show_matches([], jump=False)
            return
        self._finding_lane.submit(
            lambda: list(islice(document.search(pattern, as_model), MAX_MATCHES)),
            lambda found: self._show_matches(found, jump=jump),
            self._fail_to_find,
        )

    def _fail_to_find(self, error: Exception) -> None:
        self._show_matches([], jump=False)

    def _show_matches(self, matches: list[tuple[int, int]], *, jump: bool) -> None:
        self.matches = matches
        self.match = -1
        if matches:
            here = self.reader.port.cursor.block
            at = next((n for n, (block, _) in enumerate(matches) if block >= here), 0)
            if jump:
                self.go_to_match(at)
                return
            self.match = at
        self.refresh_header()

    def go_to_match(self, match: int) -> None:
        """Read match number `match`; after the last one comes the first."""
        if self.matches:
            self.match = match % len(self.matches)
            self.reader.port.go_to_match(*self.matches[self.match])
            self.reader.changed()

    @on(PaneInput.Left)
    def _leave_find(self, event: PaneInput.Left) -> None:
        event.stop()
        self.action_clear()

    def action_clear(self) -> None:
        """End finding; clear the marks."""
        self.stop_finding()
        self.reader.port.look_for(None)
        if self.place:
            self.place = self.place._replace(words=())
        self.screen.clear_selection()
        self.screen.set_focus(self.reader)
        self.reader.changed()

    def stop_finding(self) -> None:
        """End finding; marks stay."""
        self.finding = False
        self.matches, self.match = [], -1
        self.finder.put_away()
        self._finding_lane.forget()

    def action_view(self) -> None:
        """Ask for the next view of what is shown."""
        if len(self.reader.document.views) > 1:
            self.post_message(self.OtherView())


def _count_events(document: Document) -> int:
    """How many events a conversation has; 0 for anything else."""
    info = getattr(document.record, "info", None)
    return getattr(info, "events_count", None) or 0
