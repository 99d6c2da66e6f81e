"""The citations pane: what a turn used, and which turns used what is being read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Vertical
from textual.message import Message

from kbtui.errors import UsageError
from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.clock import moment
from kbtui.tui.commands import bindings
from kbtui.tui.places import Place, place_of
from kbtui.tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.citations.records import Citation
    from kbtui.tui.clock import Clock
    from kbtui.tui.document.lines import Spans

WAYS = {
    "learn": "learned",
    "search": "found",
    "file": "read as a file",
    "read": "read",
    "grep": "found",
}


class CitationsPane(Vertical):
    """Lists both ends of citations; says which one is to be opened."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("citations")]

    @dataclass
    class Open(Message):
        """A place is to be opened."""

        place: Place

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="citations", classes="pane")
        self.border_title = "Citations"
        self.list = RowList("citations-list")
        self._clock = clock

    def compose(self) -> ComposeResult:
        """The list."""
        yield self.list

    def say(self, text: str) -> None:
        """Show nothing but a reason."""
        self.list.set_rows([], [(text, "dim")])

    def show(
        self,
        used: list[Citation] | None,
        why_none: str,
        using: list[Citation] | str | None,
        what: str,
        turn: int = 0,
    ) -> None:
        """Show what a turn used (`used`, or why nothing), and who used what is read.

        `using` may be a reason instead of a list; None leaves that part out, as
        None for `used` does.
        """
        rows: list[Row] = []
        if used is not None:
            rows.append(Row("head:used", [(f"TURN {turn} USED", "section")], selectable=False))
            rows += [self._used(number, cite) for number, cite in enumerate(used, 1)]
            if not used:
                rows += _wrapped("why", why_none, self.list.scrollable_content_region.width)
        if using is not None:
            if rows:
                rows.append(Row("blank", [], selectable=False))
            count = str(len(using)) if isinstance(using, list) and using else ""
            rows.append(
                Row(
                    "head:using",
                    [(f"{what} USED BY", "section")],
                    [(count, "dim")],
                    selectable=False,
                )
            )
            width = self.list.scrollable_content_region.width
            if isinstance(using, str):
                rows += _wrapped("why-using", using, width)
            elif not using:
                rows += _wrapped("none", "no turn, as far as conversations tell", width)
            else:
                rows += [self._using(number, cite) for number, cite in enumerate(using)]
        self.list.set_rows(rows)

    def _used(self, number: int, cite: Citation) -> Row:
        place = None if cite.gone else _target(cite)
        name: Spans = [(one_line(cite.title or cite.target), "dim struck" if cite.gone else "")]
        how = WAYS.get(cite.how, cite.how)
        below: Spans = [("    ", ""), (how, "dim")]
        if cite.title and cite.title != cite.target:
            below.append((f"  {one_line(cite.target)}", "dim"))
        if cite.gone:
            below.append(("  gone", "warning"))
        elif place is None:
            below.append(("  not a subject", "dim"))
        key = f"used:{cite.target}:{cite.how}:{cite.call}:{cite.chunk}"
        return Row(key, [(f"[{number}] ", "note"), *name], below=[below], data=place)

    def _using(self, number: int, cite: Citation) -> Row:
        ref = parse_ref(cite.source)
        when = moment(cite.timestamp, self._clock()) if cite.timestamp else ""
        below: Spans = [("  ", ""), (f"{WAYS.get(cite.how, cite.how)}  {cite.source}", "dim")]
        name = one_line(cite.title) if cite.kind == "conversation" else cite.source
        return Row(
            f"using:{number}:{cite.source}",
            [(name, "")],
            [(when, "dim")],
            [below],
            data=place_of(ref),
        )

    @on(RowList.Opened)
    def _clicked(self, event: RowList.Opened) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """Open the selected end."""
        row = self.list.selected
        if row and isinstance(row.data, Place):
            self.post_message(self.Open(row.data))


def _target(cite: Citation) -> Place | None:
    if cite.kind == "file":
        return None
    try:
        ref = parse_ref(cite.target)
    except UsageError:
        return None
    return None if ref.kind == "chunk" else place_of(ref)


def _wrapped(key: str, text: str, width: int) -> list[Row]:
    from kbtui.tui.document.lines import wrap

    lines = wrap([(text, "dim")], max(12, width - 2))
    return [Row(f"note:{key}:{n}", line.spans, selectable=False) for n, line in enumerate(lines)]
