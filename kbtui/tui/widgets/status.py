"""The bottom lines: what is going on, and which keys matter here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kbtui.text import one_line
from kbtui.tui.commands import Command, commands_of
from kbtui.tui.document.lines import width_of
from kbtui.tui.widgets.bar import Bar
from kbtui.tui.widgets.paint import Painted

if TYPE_CHECKING:
    from textual.strip import Strip
    from textual.timer import Timer

    from kbtui.tui.commands import Scope
    from kbtui.tui.document.lines import Spans

FLASH_SECONDS = 4.0
PHASES = {"keywords": "indexing", "vectors": "embedding"}


class Status(Bar):
    """One line: what is being done at the left, the state of index and search at the right."""

    def __init__(self) -> None:
        super().__init__(id="status")
        self._doing: dict[str, str] = {}
        self._flash: Spans = []
        self._timer: Timer | None = None
        self._index: Spans = [("index: asking the engine …", "dim")]
        self._mode = ""

    def on_mount(self) -> None:
        """Say the first thing."""
        self._say()

    def doing(self, what: str, text: str | None) -> None:
        """Something named `what` is being done; None: no more."""
        if text is None:
            self._doing.pop(what, None)
        else:
            self._doing[what] = one_line(text)
        self._say()

    def flash(self, text: str, role: str = "strong") -> None:
        """Say something for a few seconds."""
        self._flash = [(one_line(text), role)]
        if self._timer:
            self._timer.stop()
        self._timer = self.set_timer(FLASH_SECONDS, self._unflash)
        self._say()

    def _unflash(self) -> None:
        self._flash = []
        self._say()

    def hear(self, event: dict[str, Any]) -> None:
        """Take in what the engine says about itself."""
        kind = event.get("event")
        if kind == "progress":
            self._progress(event)
        elif kind == "ready":
            self._ready(event)
        elif kind == "gone":
            self._doing.pop("index", None)
            reason = one_line(str(event.get("reason", "")))
            self._index = [("◌ ", "warning"), (f"keywords only: {reason}", "dim")]
        self._say()

    def _progress(self, event: dict[str, Any]) -> None:
        done, total = int(event.get("done") or 0), int(event.get("total") or 0)
        if done >= total:
            self._doing.pop("index", None)
            return
        left = event.get("seconds_left")
        phase = PHASES.get(str(event.get("phase")), "indexing")
        text = f"{phase} {done:,} of {total:,}"
        self._doing["index"] = text + (f", {_duration(float(left))} left" if left else "")

    def _ready(self, event: dict[str, Any]) -> None:
        if event.get("error"):
            self._index = [("! ", "error"), (one_line(f"index: {event['error']}"), "error")]
            return
        if not event.get("lexical"):
            self._index = [("◌ ", "warning"), ("the first index is being made", "dim")]
            return
        left = event.get("left")
        if not event.get("semantic"):
            reason = one_line(str(event.get("reason") or "no model"))
            self._index = [("◐ ", "warning"), (f"index ready · keywords only: {reason}", "dim")]
        elif left:
            self._index = [("◐ ", "warning"), (f"index ready · {left:,} passages to embed", "dim")]
        else:
            self._index = [("● ", "inserted"), ("index ready · keywords and meaning", "dim")]

    def search_by(self, mode: str) -> None:
        """Say which way of searching was chosen, when it is not the usual one."""
        self._mode = mode
        self._say()

    def _say(self) -> None:
        left: Spans = list(self._flash)
        if not left:
            left = [(" · ".join(self._doing.values()), "dim")] if self._doing else []
        mode: Spans = [(f" · searching by {self._mode}", "key")] if self._mode else []
        self.say(left, [*self._index, *mode])


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"


class Hints(Painted):
    """The keys that matter where one is, as many as fit."""

    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(id="hints")
        self.scopes: tuple[Scope, ...] = ("everywhere",)
        self.typing = ""
        self.offers: frozenset[str] = frozenset()

    def point(self, *scopes: Scope, typing: str = "", offers: frozenset[str] = frozenset()) -> None:
        """Show the keys of other scopes, or those of the input named `typing`.

        `offers` is what the document has that commands can need.
        """
        if (scopes, typing, offers) != (self.scopes, self.typing, self.offers):
            self.scopes, self.typing, self.offers = scopes, typing, offers
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        width = self.content_size.width
        if y:
            return self.paint([], width)
        if self.typing:
            return self.paint(_hints(_TYPING.get(self.typing, _TYPING[""])), width)
        wanted = [
            command
            for command in commands_of(*self.scopes)
            if command.hint and (not command.needs or command.needs in self.offers)
        ]
        while wanted and width_of(_hints(_pairs(wanted))) > width:
            wanted.remove(min(wanted, key=lambda command: command.hint))
        return self.paint(_hints(_pairs(wanted)), width)


_TYPING = {
    "search": [("Enter", "open"), ("↑↓", "choose"), ("Esc", "leave the input")],
    "find": [("Enter", "done: n and N go to the matches"), ("Esc", "end finding")],
    "filter": [("Enter", "done"), ("Esc", "all titles")],
    "": [("Esc", "leave the input")],
}


def _pairs(commands: list[Command]) -> list[tuple[str, str]]:
    return [(command.shown_keys[0], command.label) for command in commands]


def _hints(pairs: list[tuple[str, str]]) -> Spans:
    spans: Spans = []
    for key, label in pairs:
        spans += [("  " if spans else "", ""), (key, "key"), (f" {label}", "dim")]
    return spans
