"""Going to what is typed or pasted: a turn of what is being read, or any reference."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kbtui.text import one_line
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.navigation import place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.library import Library
    from kbtui.tui.navigation import NavigationTarget
    from kbtui.tui.reader.reader_pane import ReaderPane

_SURE = re.compile(r"jp-c\d+(?:-[0-9a-z]+)?(?::\d+(?:\.\d+)?)?|jp://\S+|chunk:\S+")
_PERHAPS = re.compile(r"[^\s/]+/\S+")


class ReferenceNavigator:
    """Opens what a reference names; it is looked up in a thread."""

    def __init__(
        self, library: Library, pane: ReaderPane, open_: Callable[[NavigationTarget], None]
    ) -> None:
        self._library = library
        self._pane = pane
        self._open = open_
        self._lane = LatestOnlyWorker(pane)

    @property
    def looks(self) -> bool:
        """Whether it is still looked up where a reference leads."""
        return self._lane.owes

    def go(self, text: str, failed: Callable[[str], None]) -> None:
        """Go where `text` says; what is wrong with it goes to `failed`."""
        if self._pane.go_to_turn(text):
            return
        self._lane.submit(
            lambda: self._find(text), self._open, lambda error: failed(one_line(self._words(error)))
        )

    def opens(self, text: str, otherwise: Callable[[], None]) -> bool:
        """Open a text that is a reference and nothing else; False where it cannot be one.

        One that looks like a subject's is opened where there is such a subject; where there
        is none, `otherwise` is done.
        """
        text = text.strip()
        if not _SURE.fullmatch(text) and not _PERHAPS.fullmatch(text):
            return False
        self._lane.submit(lambda: self._find(text), self._open, lambda error: otherwise())
        return True

    def _words(self, error: Exception) -> str:
        from kbtui.errors import describe_error

        return describe_error(error, self._library.workspace.root)

    def _find(self, text: str) -> NavigationTarget:
        """Called in a thread; raises `KbtuiError` for what does not exist."""
        return place_of(self._library.located(text))
