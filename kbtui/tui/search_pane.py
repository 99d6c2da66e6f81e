"""Searching: the input on top, and the list of hits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.message import Message

from kbtui.notices import NOTHING_INDEXED, format_notice, format_notices
from kbtui.text import one_line, sanitize_marked
from kbtui.tui.commands import bindings, own_key
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import (
    add_role,
    cell_width,
    slice_spans,
    truncate_spans,
    truncate_start,
)
from kbtui.tui.framework.styled_widget import BorderOnlyPane, configured_keys, plain_content
from kbtui.tui.framework.text_widgets import MultilineText, PaneInput, TextLine
from kbtui.tui.reader.document import format_count

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.dates import Clock
    from kbtui.search.models import Answer, Hit, Mode
    from kbtui.tui.framework.styled_text import Spans

MODES: dict[Mode, str] = {
    "hybrid": "keywords and meaning",
    "lexical": "keywords",
    "semantic": "meaning",
}


class SearchInput(PaneInput):
    """The input; arrows move in the results without leaving it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+n", "results('down')", show=False),
        Binding("up", "results('up')", show=False),
        Binding("pagedown", "results('scroll_pages', 1)", show=False),
        Binding("pageup", "results('scroll_pages', -1)", show=False),
        Binding("tab", "complete", show=False),
    ]

    class Recall(Message):
        """An earlier search is asked for, `step` back (1) or on (-1) from the one shown."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    recalled = ""
    """The earlier search that stands in the input; "" when it holds something typed."""

    def recall(self, text: str) -> None:
        """Put an earlier search in."""
        self.recalled = text
        self.value = text
        self.action_end()

    def action_results(self, where: str, *pages: float) -> None:
        """Move in the results; up from their first one, in an input that holds nothing or an
        earlier search, brings the search before that."""
        found = self.screen.query_one("#results", ResultsPane).list
        if where == "up" and self.value == self.recalled and found.index <= 0:
            self.post_message(self.Recall(1))
            return
        getattr(found, f"action_{where}")(*pages)

    async def action_complete(self) -> None:
        """Take what is suggested; with nothing suggested, go to the next pane."""
        if self._suggestion and self.cursor_at_end:
            self.action_cursor_right()
        else:
            await self.screen.run_action("next_pane")


class SearchBar(Horizontal):
    """The line on top: the input, and the workspace's name."""

    def __init__(self, workspace: str) -> None:
        super().__init__(id="search-bar")
        self._workspace = workspace

    def compose(self) -> ComposeResult:
        """Sign, input, name."""
        sign = TextLine(id="search-sign")
        key = own_key("search", configured_keys(self)) or "/"
        sign.left = [(key, "key")]
        sign.styles.width = 3 + cell_width(sign.left)
        yield sign
        yield SearchInput(
            id="search", placeholder="search subjects and conversations", compact=True
        )
        name = TextLine(id="workspace")
        name.left = [(one_line(self._workspace), "strong"), (" kbtui", "dim")]
        name.styles.width = cell_width(name.left) + 2
        yield name


class ResultsPane(BorderOnlyPane, Vertical):
    """The hits of the last question."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("results")]

    class HitOpened(Message):
        """A hit was opened, or only selected (`preview`)."""

        def __init__(self, hit: Hit, preview: bool) -> None:
            super().__init__()
            self.hit, self.preview = hit, preview

    class EndReached(Message):
        """The end of the hits came into sight; there are more."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(id="results", classes="pane")
        self.border_title = "Results"
        self.list = RowList("results-list")
        self._said = TextLine(id="answer")
        self._remark = MultilineText(self.list)
        self.answer: Answer | None = None
        self._clock = clock

    def on_mount(self) -> None:
        """Hidden at first, it is filled when the first screen is there."""
        self.call_after_refresh(self.fill)

    def fill(self) -> None:
        """Have what was asked of which index, then the hits."""
        if self.is_attached and not self.list.is_attached:
            self.mount(self._said, self.list)
            self.watch(self.list, "scroll_y", self._ask_for_more, init=False)

    def clear(self, reason: str) -> None:
        """Show no hits, and why."""
        self.answer = None
        self.border_title = "Results"
        self.list.set_rows([], [(reason, "dim")])
        self._said.set_text([])
        self._remark.set_paragraphs([])

    def show(self, answer: Answer, refining: bool, same_query: bool) -> None:
        """Show hits; one that was selected stays selected while the question is the same.

        Nobody has selected the first one, which is where every list begins: then the best hit is
        the first again, or what meaning found would stand above what is in sight.
        """
        self.answer = answer
        self.border_title = "Results"
        rows = [self._row(hit) for hit in answer.hits]
        begins = self.list.is_at_start and not self.list.has_focus
        keep = rows[0].key if rows and (begins or not same_query) else None
        looking: Spans = [("No keyword matches; searching by meaning …", "dim")]
        empty = looking if refining and not answer.mistakes else self._why_none(answer)
        remarks = [
            format_notice(notice) for notice in answer.notices if notice.code == "meaning_only"
        ]
        self._remark.set_paragraphs(
            [[(f"{text[:1].upper()}{text[1:]}", "warning")] for text in remarks]
        )
        self.list.set_rows(rows, empty, select=keep)
        self._said.set_text(*self._summary(answer, refining))
        self._ask_for_more()

    def _ask_for_more(self) -> None:
        """Ask for more hits where the end of those that are shown comes into sight."""
        if self.answer and len(self.answer.hits) < self.answer.total and self.list.is_near_end:
            self.post_message(self.EndReached())

    def show_wait(self, reason: str) -> None:
        """Where there is no hit, say what may still bring one."""
        if reason and not self.list.rows:
            self.list.set_rows([], [("Nothing so far. ", ""), (reason, "dim")])

    def show_similar(self, reference: str, answer: Answer) -> None:
        """Show what is like something that is named."""
        self.answer = answer
        self.border_title = plain_content(f"More like {reference}")
        self.list.set_rows(
            [self._row(hit) for hit in answer.hits], [("Nothing is like it.", "dim")]
        )
        self.list.action_top()
        self._remark.set_paragraphs([])
        self._said.set_text(*self._summary(answer, False))

    def _why_none(self, answer: Answer) -> Spans:
        if answer.mistakes:
            # Nothing was searched: show where the query is wrong.
            mistake = answer.mistakes[0]
            wrong = answer.query[max(0, mistake.start) : mistake.end] if mistake.end > 0 else ""
            shown: Spans = [(f"{one_line(wrong)}  ", "found")] if wrong else []
            said: Spans = [(one_line(mistake.message), "warning")]
            hint: Spans = [(f". {one_line(mistake.hint)}", "dim")] if mistake.hint else []
            return [*shown, *said, *hint]
        if answer.empty:
            return [(f"{NOTHING_INDEXED.capitalize()}.", "dim")]
        left_out = (
            f" {answer.omitted:,} hits were left out: their text is gone." if answer.omitted else ""
        )
        none: Spans = [
            (f"Nothing found.{left_out} Try fewer words, or ask it as a question.", "dim")
        ]
        if why := own_key("results.why", configured_keys(self)):
            none += [(" Press ", "dim"), (why, "key")]
            none += [(" after Esc to ask why something is not here.", "dim")]
        return none

    def _summary(self, answer: Answer, refining: bool) -> tuple[Spans, Spans]:
        shown = len(answer.hits)
        left: Spans = [(format_count(shown, "hit"), "")]
        if shown < answer.total:
            left = [(f"Top {shown} of {answer.total:,}", ""), (" · ↓ for more", "dim")]
        if answer.omitted:
            left.append((f", {answer.omitted:,} gone", "dim"))
        if refining:
            return left, [("keywords; meaning to come …", "dim")]
        others = [notice for notice in answer.notices if notice.code != "meaning_only"]
        if degraded := format_notices(others):
            room = self.list.scrollable_content_region.width - cell_width(left) - 4
            return left, truncate_spans([(one_line(degraded), "warning")], max(8, room))
        return left, [(MODES[answer.mode], "dim")]

    def _row(self, hit: Hit) -> ListRow:
        if hit.kind == "subject":
            sign, role = "◆ ", "accent"
            where = hit.ref
        else:
            sign, role = "▌ ", "user"
            where = hit.ref
        changed: Spans = [(" changed since", "warning")] if hit.freshness == "changed" else []
        title: Spans = [(sign, role), (one_line(hit.title), "strong"), *changed]
        width = max(20, self.list.scrollable_content_region.width - 4)
        where = truncate_start(one_line(where), max(18, width * 2 // 5))
        below: list[Spans] = [[("  ", ""), *line] for line in excerpt(hit, width, 2)]
        return ListRow(hit.chunk_id, title, [(where, "dim")], below, data=hit)

    def on_resize(self) -> None:
        """Cut the excerpts for the new width."""
        if self.answer:
            self.list.set_rows([self._row(hit) for hit in self.answer.hits])
            self._ask_for_more()

    @on(RowList.RowClicked)
    def _clicked(self, event: RowList.RowClicked) -> None:
        event.stop()
        self.action_open()

    @on(RowList.SelectionChanged)
    def _moved(self, event: RowList.SelectionChanged) -> None:
        event.stop()
        if event.row is not None:
            self.post_message(self.HitOpened(event.row.data, preview=True))

    def action_open(self) -> None:
        """Open the selected hit."""
        if row := self.list.selected:
            self.post_message(self.HitOpened(row.data, preview=False))


def excerpt(hit: Hit, width: int, lines: int) -> list[Spans]:
    """The passage around the first match on up to `lines` lines, as plain words, matches marked."""
    text, matches = sanitize_marked(hit.text, sorted(hit.matches))
    if hit.role not in ("tool-call", "tool-result"):
        # Nothing far behind the passage is shown, nor looked at.
        reach = min((end for _, end in matches), default=0) + width * (lines + 4) + 300
        from kbtui.tui.reader.markdown import strip_markdown

        text, matches = strip_markdown(text, matches, reach)
    spans: Spans = []
    position = 0
    for start, end in matches:
        if start < position:
            continue
        spans += [(text[position:start], ""), (text[start:end], "found")]
        position = end
    spans.append((text[position:], ""))
    first = min((start for start, _ in matches), default=0)
    begin = max(0, first - width // 2)
    if begin:
        space = text.find(" ", begin, first)
        begin = space + 1 if space >= 0 else begin
    kept = slice_spans(spans, begin, begin + width * (lines + 2))
    flat = _flat(kept)
    from kbtui.tui.framework.styled_text import wrap_spans

    wrapped = wrap_spans(add_role(flat, "dim") if not matches else flat, width)[: lines + 1]
    made = [line.spans for line in wrapped[:lines]]
    if len(wrapped) > lines or begin + width * (lines + 2) < len(text):
        made[-1] = truncate_spans([*made[-1], (" …", "dim")], width)
    return made


def _flat(spans: Spans) -> Spans:
    """On one line: each run of white space and of drawn lines one space, and none at the beginning."""
    flat: Spans = []
    before = " "
    for text, role in spans:
        text = re.sub(r"[\s\u2500-\u257f]+", " ", text)
        text = text.lstrip() if before.endswith(" ") else text
        if not flat:
            text = text.lstrip("· ")
        if text:
            flat.append((text, role))
            before = text
    return flat
