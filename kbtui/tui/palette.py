"""The palette: find a command, topic, subject or conversation by a few of its letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual import on
from textual.binding import Binding
from textual.containers import Vertical
from textual.theme import BUILTIN_THEMES
from textual.widgets import Input

from kbtui.refs import Ref, make_conversation_ref, make_subject_ref
from kbtui.text import one_line
from kbtui.tui.commands import SCOPES, commands_of
from kbtui.tui.framework.command import Command, apply_keymap
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.framework.text_widgets import SafeInput
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.navigation_target import make_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.knowledge.models import Subject
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.library_snapshot import LibrarySnapshot

SHOWN_MOST = 100


class PaletteItem(NamedTuple):
    """Something that can be chosen: a command, what can be opened, or a theme's name."""

    name: str
    kind: str
    what: Command | Ref | Subject | str
    right: str = ""


def command_choices(
    scopes: Iterable[str], keymap: Mapping[str, str] | None = None
) -> list[PaletteItem]:
    """The commands of where one is, then those of everywhere."""
    here = [scope for scope in SCOPES if scope in scopes or scope == "everywhere"]
    return [
        PaletteItem(_named(command), "command", command, " ".join(command.key_labels))
        for scope in here
        for command in commands_of(scope, keymap=keymap)
        if command.palette and command.id != "palette"
    ]


def _named(command: Command) -> str:
    """What a command does; before it its label, where one could not find it by that otherwise."""
    does, label = command.help.rstrip("."), command.label
    if all(word in does.casefold() for word in label.casefold().split()):
        return does
    return f"{label[0].upper()}{label[1:]}: {does[0].lower()}{does[1:]}"


def theme_choices(themes: Iterable[str]) -> list[PaletteItem]:
    """The themes; our own and the person's come before Textual's."""
    names = {name: f"Theme {'by Textual: ' * (name in BUILTIN_THEMES)}{name}" for name in themes}
    return [
        PaletteItem(names[name], "theme", name) for name in sorted(names, key=names.__getitem__)
    ]


def place_choices(contents: LibrarySnapshot | None, hidden: bool) -> list[PaletteItem]:
    """All that can be opened; called in a thread, since there may be very many."""
    found: list[PaletteItem] = []
    if contents is None:
        return found
    for listing in contents.listings:
        ref = Ref("topic", topic=listing.topic.id)
        found.append(PaletteItem(one_line(listing.topic.name), "topic", ref, str(ref)))
    for listing in contents.listings:
        # As little as possible for each: there may be tens of thousands, and keys wait meanwhile.
        topic = listing.topic.id
        found += [
            PaletteItem(f"{topic}/{subject.slug}", "subject", subject)
            for subject in listing.subjects
            if hidden or not subject.hidden
        ]
    for info in contents.conversations:
        ref = make_conversation_ref(info.id)
        found.append(PaletteItem(one_line(info.name), "conversation", ref, info.ref))
    return found


def id_choices(keymap: Mapping[str, str] | None = None) -> list[PaletteItem]:
    """Every command, of the other screens too, under the id that the configuration calls it by."""
    from kbtui.tui.commands import ALL

    return [
        PaletteItem(f"id: {command.id}", "command", command, " ".join(command.key_labels))
        for command in apply_keymap(ALL, keymap)
    ]


def rank(text: str, words: list[str]) -> float | None:
    """How well a name fits: smaller is better, None when it does not.

    Each word must be in it, as it is or letter by letter; beginnings of words count most.
    """
    folded = text.casefold()
    total = 0.0
    for word in words:
        at = folded.find(word)
        if at >= 0:
            start = at == 0 or not folded[at - 1].isalnum()
            total += (0 if start else 1) + at / 1000
            continue
        position = -1
        first = None
        for letter in word:
            position = folded.find(letter, position + 1)
            if position < 0:
                return None
            first = position if first is None else first
        total += 3 + (position - (first or 0)) / 10
    return total + len(text) / 10_000


def choose(
    found: list[PaletteItem], text: str, keymap: Mapping[str, str] | None = None
) -> list[PaletteItem]:
    """The choices that fit what was typed, best first."""
    words = text.casefold().split()
    if not words:
        return found[:SHOWN_MOST]
    most = SHOWN_MOST
    if words[0].startswith("id:"):
        found = id_choices(keymap)
        most = len(found)
    ranked: list[tuple[float, int]] = []
    for number, choice in enumerate(found):
        score = rank(choice.name, words)
        if score is None and choice.right:
            score = rank(choice.right, words)
            score = None if score is None else score + 5
        if score is not None:
            ranked.append((score, number))
    ranked.sort()
    return [found[number] for _, number in ranked[:most]]


class PaletteScreen(StyledScreen):
    """An input with a list; gives back what was chosen. `find_places` is called in a thread."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", show=False),
        Binding("down,ctrl+n", "rows('down')", show=False, priority=True),
        Binding("up", "rows('up')", show=False, priority=True),
        Binding("pagedown", "rows('scroll_pages', 1)", show=False, priority=True),
        Binding("pageup", "rows('scroll_pages', -1)", show=False, priority=True),
    ]

    def __init__(
        self,
        commands: list[PaletteItem],
        themes: list[PaletteItem],
        find_places: Callable[[], list[PaletteItem]],
    ) -> None:
        super().__init__()
        self._choices = [*commands, *themes]
        self._find_places = find_places
        self._places_lane = LatestOnlyWorker(self)
        self._lane = LatestOnlyWorker(self)
        self.list = RowList("palette-list")

    def compose(self) -> ComposeResult:
        """The input and the list."""
        with Vertical(id="palette", classes="pane") as pane:
            pane.border_title = "Go to or do"
            yield SafeInput(
                id="palette-input",
                placeholder="command, topic, subject, conversation",
                compact=True,
            )
            yield self.list

    def on_mount(self) -> None:
        """Show everything."""
        self.query_one("#palette-input").focus()
        self._fill(choose(self._choices, ""))
        self._places_lane.submit(self._find_places, self._know, lambda error: None)

    def _know(self, places: list[PaletteItem]) -> None:
        """What can be opened is known now."""
        self._choices = [*self._choices, *places]
        if text := self.query_one("#palette-input", SafeInput).value:
            self._look(text)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._look(event.value)

    def _look(self, text: str) -> None:
        self._lane.submit(
            lambda: choose(self._choices, text, self.configured_keys),
            self._fill,
            lambda error: None,
        )

    def _fill(self, found: list[PaletteItem]) -> None:
        rows = list(_rows(found))
        self.list.set_rows(rows, [("Nothing has this name.", "dim")], rows[0].key if rows else None)

    def should_key_wait(self, key: str) -> bool:
        """Rows are moved in and chosen from when they are those of what was typed."""
        typed = self.query_one("#palette-input", SafeInput).value
        chooses = key in {"enter", "down", "up", "pagedown", "pageup", "ctrl+n"}
        return chooses and (
            self._lane.has_pending_result or bool(typed and self._places_lane.has_pending_result)
        )

    def action_rows(self, where: str, *pages: float) -> None:
        """Move in the list."""
        getattr(self.list, f"action_{where}")(*pages)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._take()

    @on(RowList.RowClicked)
    def _clicked(self, event: RowList.RowClicked) -> None:
        event.stop()
        self._take()

    def _take(self) -> None:
        if row := self.list.selected:
            what = row.data.what
            if row.data.kind == "subject":
                what = make_subject_ref(what.topic, what.slug)
            self.dismiss(make_target(what) if isinstance(what, Ref) else what)


def _rows(found: list[PaletteItem]) -> Iterator[ListRow]:
    for number, choice in enumerate(found):
        left: Spans = [(f"{choice.kind:<13}", "dim"), (one_line(choice.name), "")]
        yield ListRow(
            f"{number}:{choice.kind}:{choice.name}",
            left,
            [(choice.right, "key" if choice.kind == "command" else "dim")],
            data=choice,
        )
