"""The bottom lines: what is going on, and which keys matter here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kbtui.text import one_line
from kbtui.tui.commands import commands_of, own_key
from kbtui.tui.framework.command import format_command_hints, format_key_hints
from kbtui.tui.framework.styled_text import align_to_edges, cell_width
from kbtui.tui.framework.styled_widget import StyledWidget
from kbtui.tui.framework.text_widgets import TextLine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.strip import Strip
    from textual.timer import Timer

    from kbtui.tui.commands import Scope
    from kbtui.tui.framework.styled_text import Spans

FLASH_SECONDS = 4.0
PHASES = {"keywords": "indexing", "vectors": "embedding"}


class StatusBar(TextLine):
    """One line: at the left what is being done, else the workspace; at the right index and search.

    What is said at the left comes first: the right has a long form and a short one.
    """

    def __init__(self, workspace: str = "") -> None:
        super().__init__(id="status")
        self._workspace = one_line(workspace)
        self._doing: dict[str, str] = {}
        self._flash: Spans = []
        self._timer: Timer | None = None
        self._sign: Spans = []
        self._index, self._short = "index: asking the engine …", "asking the engine …"
        self._role = "dim"
        self._first = ""
        """Who makes the first index: "engine", "alone" this process; "" when there is one, or
        nobody has said so."""
        self._ready_once = False
        self._mode = ""
        self._trouble = ""
        self._ready_last: dict[str, Any] = {}
        """What the engine said last of what is ready."""

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

    def trouble(self, text: str) -> None:
        """Something that stays wrong until it is said that it is not any more, with ""."""
        self._trouble = one_line(text)
        self._say()

    def waiting(self, answered: bool) -> str:
        """What every search waits for, in a sentence; "" when it need not wait.

        `answered` says that one has had its answer, and so that there is something to ask.
        """
        if self._first == "engine":
            done = self._doing.get("index")
            how_far = f": {done}" if done else ""
            return f"The first index is being made{how_far}. Hits show as soon as it is there."
        if self._first == "alone" and not answered:
            return (
                "There is no index yet, and no engine to make it. One for keywords is made here, "
                "for this time; hits show as soon as it is there."
            )
        return ""

    def hear(self, event: dict[str, Any]) -> None:
        """Take in what the engine says about itself."""
        kind = event.get("event")
        if kind == "progress":
            self._progress(event)
        elif kind == "ready":
            self._ready_last = event
            self._ready(event)
        elif kind == "gone":
            self._doing.pop("index", None)
            self._first = "" if self._ready_once else "alone"
            self._ready_last = {}
            reason = one_line(str(event.get("reason", "")))
            self._state("◌", "warning", f"keywords only: {reason}", "keywords only")
        self._say()

    def _state(self, sign: str, role: str, text: str, short: str, said: str = "dim") -> None:
        self._sign, self._index, self._short, self._role = [(f"{sign} ", role)], text, short, said

    def _progress(self, event: dict[str, Any]) -> None:
        done, total = int(event.get("done") or 0), int(event.get("total") or 0)
        if done >= total:
            self._doing.pop("index", None)
            return
        left = event.get("seconds_left")
        phase = PHASES.get(str(event.get("phase")), "indexing")
        text = f"{phase} {done:,} of {total:,}"
        if waits := event.get("waits"):
            text += f"; waiting, {one_line(str(waits))}"
        elif left:
            text += f", {_duration(float(left))} left"
        self._doing["index"] = text
        if phase == "embedding" and self._ready_last:
            self._ready({**self._ready_last, "left": total - done})

    def _ready(self, event: dict[str, Any]) -> None:
        self._ready_once = self._ready_once or bool(event.get("lexical"))
        self._first = "" if event.get("lexical") or event.get("error") else "engine"
        if event.get("error"):
            self._state("!", "error", one_line(f"index: {event['error']}"), "index failed", "error")
            return
        if self._first:
            self._state("◌", "warning", "the first index is being made", "no index yet")
            return
        left = event.get("left")
        if not event.get("semantic"):
            reason = one_line(str(event.get("reason") or "no model"))
            self._state("◐", "warning", f"index ready · keywords only: {reason}", "keywords only")
        elif left:
            self._state("◐", "warning", f"index ready · {left:,} passages to embed", "embedding")
        else:
            self._state("●", "inserted", "index ready · keywords and meaning", "index ready")

    def search_by(self, mode: str) -> None:
        """Say which way of searching was chosen, when it is not the usual one."""
        self._mode = mode
        self._say()

    def _say(self) -> None:
        self.say(self._left(), self._right(self._index))

    def _left(self) -> Spans:
        if self._flash:
            return self._flash
        if self._trouble:
            return [(f"! {self._trouble}", "error")]
        if self._doing:
            return [(" · ".join(self._doing.values()), "dim")]
        return [(self._workspace, "dim")]

    def _right(self, text: str) -> Spans:
        mode: Spans = [(f" · searching by {self._mode}", "key")] if self._mode else []
        return [*self._sign, (text, self._role), *mode]

    def render_line(self, y: int) -> Strip:
        """The line; the right gives way step by step."""
        room = self.content_size.width - cell_width(self.left) - 2
        forms: tuple[Spans, ...] = (self.right, self._right(self._short), [*self._sign], [])
        right = next((form for form in forms if cell_width(form) <= room), [])
        width = self.content_size.width
        return self.paint(align_to_edges(self.left, right, width) if y == 0 else [], width)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"


class KeyHints(StyledWidget):
    """The keys that matter where one is, as many as fit."""

    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(id="hints")
        self.scopes: tuple[Scope, ...] = ("everywhere",)
        self.keymap: Mapping[str, str] = {}
        self.typing = ""
        self.offers: frozenset[str] = frozenset()
        self._command = ""
        self._suggested: Spans = []

    def suggest(self, spans: Spans) -> None:
        """While one types, show what may come next; nothing: the keys again."""
        if spans != self._suggested:
            self._suggested = spans
            self.refresh()

    def same_as(self, command: str) -> None:
        """Say instead which command shows the same; for who cannot see the screen."""
        if command != self._command:
            self._command = command
            self.refresh()

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
        if self._command:
            return self.paint(
                [("as text: ", "dim"), (self._command, "key"), (self._help, "dim")], width
            )
        if self.typing == "search" and self._suggested:
            return self.paint(self._suggested, width)
        if self.typing:
            pairs = self._typed()
            while len(pairs) > 1 and cell_width(format_key_hints(pairs)) > width:
                # How to open and how to leave matter more than what is between.
                pairs.pop(-2)
            return self.paint(format_key_hints(pairs), width)
        commands = commands_of(*self.scopes, keymap=self.keymap)
        if "links" in self.offers:
            # Where there is nothing to unfold, Enter opens.
            commands = [
                one._replace(label="open") if one.needs == "folds" else one for one in commands
            ]
        return self.paint(format_command_hints(commands, width, self.offers), width)

    @property
    def _help(self) -> str:
        key = own_key("help", self.keymap)
        return f"  {key} help" if key else ""

    def _typed(self) -> list[tuple[str, str]]:
        """What the keys do in the input that has them."""
        pairs = [*_TYPING.get(self.typing, _TYPING[""])]
        go = [own_key(f"reader.{name}", self.keymap) for name in ("next", "previous")]
        if self.typing == "find" and all(go):
            pairs[0] = ("Enter", f"done: {' and '.join(go)} go to the matches")
        return pairs


_TYPING = {
    "search": [
        ("Enter", "open"),
        ("↑↓", "choose, or earlier searches"),
        ("Esc", "leave the input"),
    ],
    "find": [("Enter", "done"), ("Esc", "end finding")],
    "filter": [("Enter", "done"), ("Esc", "all titles")],
    "": [("Esc", "leave the input")],
}
