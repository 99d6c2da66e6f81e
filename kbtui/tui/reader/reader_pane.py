"""The reader pane: the reader with its pinned header and its finder."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.message import Message

from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.commands import bindings
from kbtui.tui.framework.gc_tuning import let_go
from kbtui.tui.framework.styled_widget import plain
from kbtui.tui.framework.text_line import TextLine
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.main.status_bar import StatusBar
from kbtui.tui.navigation import place_of
from kbtui.tui.reader.document import counted, finder
from kbtui.tui.reader.document_view import DocumentView
from kbtui.tui.reader.find_bar import FindingPane
from kbtui.tui.reader.header import Header

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.navigation import NavigationTarget
    from kbtui.tui.reader.document import Document
    from kbtui.tui.reader.facts_bar import FactsBar


class ReaderPane(FindingPane):
    """Shows what is open, and where in it one is."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("reader")]

    class Moved(Message):
        """Another line is being read."""

    class Open(Message):
        """What a line leads to is to be opened."""

        def __init__(self, place: NavigationTarget) -> None:
            super().__init__()
            self.place = place

    class OtherView(Message):
        """The same thing is to be shown in another view; "" is the next."""

        def __init__(self, view: str = "") -> None:
            super().__init__()
            self.view = view

    def __init__(self) -> None:
        super().__init__(id="reader", classes="pane")
        self.border_title = "Reader"
        self._beginning_lane = LatestOnlyWorker(self)
        self._requests: dict[int, str] = {}
        self._more = 0
        """Events that were written below since one was at the end."""

    @cached_property
    def facts(self) -> FactsBar:
        """What there is to know of what is read."""
        from kbtui.tui.reader.facts_bar import FactsBar

        return FactsBar(self.reader)

    def compose(self) -> ComposeResult:
        """Header, text, finder; the facts come over the text."""
        yield Header(id="where")
        yield self.reader
        yield self.finder

    @property
    def looks(self) -> bool:
        """Whether it is still looked for where to begin to read, or what to find."""
        return self._beginning_lane.owes or self._finding_lane.owes

    # what is shown

    def show(self, document: Document, place: NavigationTarget) -> None:
        """Show a document at a place in it."""
        again = (
            self.place is not None and self.place.same_document(place) and self.reader.document.key
        )
        self.place = place
        if again and document.record is None and document.blocks == self.reader.document.blocks:
            document = self.reader.document
        self.stop_finding()
        self.facts.say([])
        self.reader.port.look_for(finder(list(place.words)))
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
        self.reader.port.look_for(finder(list(place.words)))
        self._begin(self.reader.document, place)

    def reload(self, document: Document) -> None:
        """Show the same document as it is now, where one was reading."""
        before = self.reader.document
        if not before.partial:
            self._more += max(0, _events(document) - _events(before))
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
            let_go(document)

    def _begin(self, document: Document, place: NavigationTarget) -> None:
        """Go where a place begins; in a big document that is looked for in a thread."""
        from kbtui.tui.reader.document_loader import beginning

        self._beginning_lane.forget()
        if place.mark or not (document.weights and place.words):
            self._start(place, None if place.mark else beginning(document, place))
            return
        self.reader.changed()
        self._beginning_lane.submit(
            lambda: beginning(document, place),
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
        self.border_title = plain(document.title or "Reader")

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
            left = [(counted(document.turns_total, "turn"), "dim")]
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
            right = [(f"↓ {counted(self._more, 'new event')}", "found")]
        if self.finding:
            right = [(self.found_where, "found" if self.matches else "warning")]
        self.query_one("#where", TextLine).say(left, right)
        reference = port.reference
        self.say_below(plain(reference) if reference else "")

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
            from kbtui.tui.reader.strip_markdown import unmarked

            conversation = document.record
            found = conversation.turn(turn) if conversation else None
            events = found.events if found else []
            text = next((event.text for event in events if event.kind == "chat_request"), "")
            self._requests[turn] = one_line(unmarked(text[:300], [])[0])
        return self._requests[turn]

    # folds and turns

    def action_fold(self) -> None:
        """Unfold or fold at the line being read, or open what it leads to."""
        port = self.reader.port
        if port.document.blocks and (link := port.document.blocks[port.cursor.block].link):
            self.post_message(self.Open(place_of(parse_ref(link))))
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
                f"there is no turn {match[1]}: there are {counted(total, 'turn')}", "warning"
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
        self.screen.query_one(StatusBar).flash(text, role)

    def action_view(self) -> None:
        """Ask for the next view of what is shown."""
        if len(self.reader.document.views) > 1:
            self.post_message(self.OtherView())


def _events(document: Document) -> int:
    """How many events a conversation has; 0 for anything else."""
    info = getattr(document.record, "info", None)
    return getattr(info, "events_count", None) or 0
