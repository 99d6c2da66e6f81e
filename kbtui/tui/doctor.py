"""The doctor: what is wrong with knowledge, conversations, index, engine and model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kbtui.library.diagnostics import AREAS, Finding, run_diagnostics
from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.commands import bindings
from kbtui.tui.feature_screen import FeatureScreen
from kbtui.tui.reader.blocks import HeadBlock, NoteBlock
from kbtui.tui.reader.document import Document

if TYPE_CHECKING:
    from textual.binding import BindingType

    from kbtui.library import Library
    from kbtui.library.diagnostics import FindingState
    from kbtui.tui.framework.styled_text import Spans, StyledLine, TextMatches
    from kbtui.tui.reader.blocks import Block

SIGNS = {"ok": ("✓ ", "inserted"), "note": ("· ", "warning"), "wrong": ("! ", "error")}
"""What stands before a finding; the words of the bottom line explain them."""


@dataclass(slots=True, eq=False)
class FindingBlock(NoteBlock):
    """A finding: its sign, and its words beside it on as many lines as they need."""

    state: FindingState

    def layout(self, width: int, found: TextMatches | None, opened: bool) -> list[StyledLine]:
        """The sign stands in the first line only."""
        sign = SIGNS[self.state]
        made = NoteBlock.layout(self, max(8, width - len(sign[0])), found, opened)
        for number, line in enumerate(made):
            line.spans.insert(0, (" " * len(sign[0]), "") if number else sign)
        return made


def doctor_document(findings: list[Finding], looking: str | None) -> Document:
    """The findings by area, those that are wrong first; `looking` is the area being looked at."""
    blocks: list[Block] = []
    for area in AREAS:
        own = [finding for finding in findings if finding.area == area]
        if not own and area != looking:
            continue
        above = int(bool(blocks))
        heading = area.capitalize()
        blocks.append(HeadBlock(f"head:{area}", [(heading, "h2")], _counts(own), above=above))
        own.sort(key=lambda finding: ("ok", "wrong", "note").index(finding.state))
        for finding in own:
            spans: Spans = [(one_line(finding.message), "dim" if finding.state == "ok" else "")]
            key = f"{area}:{finding.message}"
            blocks.append(FindingBlock(key, spans, finding.state, link=finding.ref))
        if area == looking:
            blocks.append(NoteBlock(f"looking:{area}", [("… looking", "dim")]))
    return Document("doctor", "Doctor", blocks)


def _counts(findings: list[Finding]) -> Spans:
    words = []
    for state, noun in (("wrong", "wrong"), ("note", "to look at")):
        count = sum(finding.state == state for finding in findings)
        if count:
            words.append(f"{count:,} {noun}")
    return [(", ".join(words), "dim")] if words else []


class DoctorScreen(FeatureScreen):
    """A page that fills while it is looked; gives back the reference that one chose to open."""

    HEADING = "Doctor"
    SCOPE = "doctor"
    NOTES = ("✓ in order, · to be looked at, ! wrong.",)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("doctor", "moving")]

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self.findings: list[Finding] = []
        self.looking: str | None = AREAS[0]
        self._round = 0
        # Whatever goes wrong is a finding.
        self.message_line.display = False

    def on_mount(self) -> None:
        """Begin to look, once something is on the screen."""
        self.reader.focus()
        self.call_after_refresh(self.action_look)

    def on_unmount(self) -> None:
        """Look no further."""
        self._round += 1

    def action_look(self) -> None:
        """Look at everything again."""
        self._round += 1
        self.findings, self.looking = [], AREAS[0]
        self._show_findings(doctor_document([], self.looking))
        args = (self._round,)
        threading.Thread(target=self._look, args=args, name="kbtui-doctor", daemon=True).start()

    def _look(self, number: int) -> None:
        """Collect findings in a thread and show them in growing batches."""
        found: list[Finding] = []
        looking, next_time = AREAS[0], 1
        try:
            for finding in run_diagnostics(self.library):
                if number != self._round:
                    return
                if finding.area != looking:
                    looking, next_time = finding.area, 0
                found.append(finding)
                # Each area's first at once: the next may take seconds. Then ever more at a time.
                if len(found) >= next_time:
                    next_time = 2 * len(found)
                    self._tell(number, found, looking)
        except Exception as error:
            message = f"cannot be looked at: {type(error).__name__}: {error}"
            found.append(Finding(looking, "wrong", message))
        self._tell(number, found, None)

    def _tell(self, number: int, found: list[Finding], looking: str | None) -> None:
        document = doctor_document(found, looking)
        self.call_later(self._told, number, list(found), looking, document)

    def _told(
        self, number: int, found: list[Finding], looking: str | None, document: Document
    ) -> None:
        if number == self._round:
            self.findings, self.looking = found, looking
            self._show_findings(document)

    def _show_findings(self, document: Document) -> None:
        self.show_document(document)
        counts = [sum(f.state == state for f in self.findings) for state in ("wrong", "note")]
        left: Spans = [("! ", "error"), (f"{counts[0]:,} wrong", "strong")] if counts[0] else []
        if not counts[0] and self.looking is None:
            left = [("✓ ", "inserted"), ("nothing is wrong", "strong")]
        if counts[1]:
            left += [("  · ", "warning"), (f"{counts[1]:,} to look at", "strong")]
        right: Spans = [(f"looking at {self.looking} …", "dim")] if self.looking else []
        self.show_totals(left, right)

    def action_next(self, step: int) -> None:
        """Go to the next finding that is wrong or to be looked at."""
        self.go_to_block(
            step, lambda block: isinstance(block, FindingBlock) and block.state != "ok"
        )

    def action_open(self) -> None:
        """Open what the finding is about."""
        port = self.reader.viewport
        blocks = port.document.blocks
        if blocks and (link := blocks[port.cursor.block].link):
            # It existed when it was found; opening it reports if it is gone by now.
            self.dismiss(parse_ref(link, lambda topic, slug: True))
