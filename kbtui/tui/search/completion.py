"""Completing the query while it is typed: the likeliest as a shadow in the input, others below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.suggester import SuggestionReady

from kbtui.text import one_line
from kbtui.tui.framework.workers import LatestOnlyWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.widgets import Input

    from kbtui.library import Library
    from kbtui.search.suggestions import Suggestion
    from kbtui.tui.framework.styled_text import Spans

SHOWN = 8


class QueryCompleter:
    """Asks what may be typed next, in a thread."""

    def __init__(
        self, library: Library, suggest: Callable[[Spans], None], indexed: Callable[[], bool]
    ) -> None:
        self._library = library
        self._suggest = suggest
        self._indexed = indexed
        """Whether there is an index to ask; none is made for the sake of a completion."""
        self._lane: LatestOnlyWorker | None = None

    def type(self, entry: Input) -> None:
        """The input holds something else now."""
        self._lane = self._lane or LatestOnlyWorker(entry)
        text, cursor = entry.value, entry.cursor_position
        if not text.strip():
            self._lane.forget()
            self._suggest([])
            return
        self._lane.submit(
            lambda: self._complete(text, cursor),
            lambda found: self._show(entry, text, cursor, found),
            lambda error: self._suggest([]),
        )

    def _complete(self, text: str, cursor: int) -> list[Suggestion]:
        """Called in a thread."""
        from kbtui.search.suggestions import complete

        reader = self._library.reader(0.0) if self._indexed() else None
        return complete(text, cursor, self._library.knowledge(), reader)

    def _show(self, entry: Input, text: str, cursor: int, found: list[Suggestion]) -> None:
        if entry.value != text:
            return
        self._suggest([] if not found else _spans(found))
        if cursor != len(text):
            return
        for one in found:
            whole = text[: one.start] + one.text
            if whole.startswith(text):
                entry.post_message(SuggestionReady(text, whole))
                return


def _spans(found: list[Suggestion]) -> Spans:
    spans: Spans = [("Tab", "key"), (" completes: ", "dim")]
    for number, one in enumerate(found[:SHOWN]):
        spans += [("  " if number else "", ""), (one_line(one.text), "strong")]
        if one.note:
            spans.append((f" {one_line(one.note)}", "dim"))
    return spans
