"""The command palette: find a command, topic, subject or conversation by a few letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.containers import Vertical
from textual.theme import BUILTIN_THEMES
from textual.widgets import Input

from kbtui.light_named_tuple import NamedTuple
from kbtui.references import Ref, make_conversation_ref, make_subject_ref
from kbtui.terminal_text import sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import SanitizedInput, StyledScreen
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.tui_command_definition import (
    TuiCommand,
    apply_keymap_to_commands,
    make_dialog_bindings,
    make_list_movement_bindings_for_focused_input,
)
from kbtui.tui.navigation_target import (
    EnteredReferenceText,
    looks_like_reference,
    make_navigation_target,
)
from kbtui.tui.tui_command_table import ALL_COMMANDS, SCOPES, list_commands_of_scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from textual.app import ComposeResult

    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.topics_and_conversations_snapshot import TopicsAndConversations

MAX_ITEMS = 100
"""The maximum number of items that the palette lists, except in a search for command ids."""


class CommandPaletteItem(NamedTuple):
    """An item of the palette: a command, a theme, a topic, an entry, or a typed reference.

    `penalty` is added to the item's score. Because lower scores are better, a penalty moves the
    item down the list.
    """

    name: str
    kind: str
    value: TuiCommand | Ref | Subject | EnteredReferenceText | str
    right: str = ""
    penalty: float = 0.0


def list_palette_commands(
    scopes: Iterable[str], keymap: Mapping[str, str] | None = None
) -> list[CommandPaletteItem]:
    """Return an item for each command that works in one of `scopes` or everywhere."""
    here = {*scopes, "everywhere"}
    return [
        _make_command_item(_make_palette_name_of_command(command), command)
        for scope in SCOPES
        if scope in here
        for command in list_commands_of_scopes(scope, keymap=keymap)
        if command.palette and command.id != "palette"
    ]


def _make_command_item(name: str, command: TuiCommand) -> CommandPaletteItem:
    return CommandPaletteItem(name, "command", command, " ".join(command.key_labels))


def _make_palette_name_of_command(command: TuiCommand) -> str:
    """Return a command's help text, preceded by its label if the help text lacks a word of the label."""
    text, label = command.help.rstrip("."), command.label
    if all(word in text.casefold() for word in label.casefold().split()):
        return text
    return f"{label[0].upper()}{label[1:]}: {text[0].lower()}{text[1:]}"


def list_palette_themes(themes: Iterable[str]) -> list[CommandPaletteItem]:
    """Return an item for each theme: first the themes of kbtui and of the user, then Textual's."""
    return [
        CommandPaletteItem(f"Theme: {name}", "theme", name, penalty=0.5 * is_builtin)
        for is_builtin, name in sorted((name in BUILTIN_THEMES, name) for name in themes)
    ]


def list_palette_topics_and_entries(
    contents: TopicsAndConversations | None, hidden: bool
) -> list[CommandPaletteItem]:
    """Return an item for each topic, subject and conversation.

    Hidden subjects are left out unless `hidden` is true.
    """
    if contents is None:
        return []
    items: list[CommandPaletteItem] = []
    for listing in contents.listings:
        ref, name = Ref("topic", topic=listing.topic.id), sanitize_to_one_line(listing.topic.name)
        items.append(CommandPaletteItem(name, "topic", ref, str(ref)))
    # There may be tens of thousands of subjects, so make a reference only for the one that the user chooses.
    items += [
        CommandPaletteItem(f"{listing.topic.id}/{subject.slug}", "subject", subject)
        for listing in contents.listings
        for subject in listing.subjects
        if hidden or not subject.hidden
    ]
    for info in contents.conversations:
        ref = make_conversation_ref(info.id)
        name, short = sanitize_to_one_line(info.name), contents.shorten_reference(info.ref)
        items.append(CommandPaletteItem(name, "conversation", ref, short))
    return items


def _score_name_match(text: str, words: list[str]) -> float | None:
    """Return a score that says how well `text` matches, or None if it does not match.

    A lower score is better. The text matches if it contains each of `words`, or at least the
    letters of each word in the same order.
    """
    folded = text.casefold()
    total = 0.0
    for word in words:
        at = folded.find(word)
        if at >= 0:
            is_inside_word = at > 0 and folded[at - 1].isalnum()
            total += is_inside_word + at / 1000
            continue
        first = position = folded.find(word[0])
        for letter in word[1:]:
            position = folded.find(letter, position + 1) if position >= 0 else -1
        if position < 0:
            return None
        total += 3 + (position - first) / 10
    return total + len(text) / 10_000


def find_command_palette_items(
    items: list[CommandPaletteItem], text: str, keymap: Mapping[str, str] | None = None
) -> list[CommandPaletteItem]:
    """Return the items that match `text`, best first.

    If `text` starts with `id:`, search for the rest of it in the ids of all commands, even those of
    other screens. If no item matches and `text` looks like a reference, return an item for this
    reference.
    """
    words = text.casefold().split()
    if not words:
        return items[:MAX_ITEMS]
    most = MAX_ITEMS
    if words[0].startswith("id:"):
        commands = apply_keymap_to_commands(ALL_COMMANDS, keymap)
        items = [_make_command_item(f"id: {command.id}", command) for command in commands]
        most = len(items)
    ranked: list[tuple[float, int]] = []
    for number, item in enumerate(items):
        score = _score_name_match(item.name, words)
        if score is None and (score := _score_name_match(item.right, words)) is not None:
            score += 5
        if score is not None:
            ranked.append((score + item.penalty, number))
    if not ranked and looks_like_reference(text.strip()):
        return [CommandPaletteItem(text.strip(), "reference", EnteredReferenceText(text.strip()))]
    ranked.sort()
    return [items[number] for _, number in ranked[:most]]


class CommandPaletteScreen(StyledScreen):
    """The command palette: an input, and a list of the items that match the typed text.

    The screen's result depends on the chosen item: a `TuiCommand`, the name of a theme, an
    `EnteredReferenceText`, or the `NavigationTarget` of a topic, subject or conversation.
    `find_targets` returns the items for topics, subjects and conversations; it is called in a
    background thread.
    """

    BINDINGS = make_dialog_bindings("dialog") + make_list_movement_bindings_for_focused_input(
        "move_in_list", priority=True
    )

    def __init__(
        self,
        commands: list[CommandPaletteItem],
        themes: list[CommandPaletteItem],
        find_targets: Callable[[], list[CommandPaletteItem]],
    ) -> None:
        super().__init__()
        self._items = [*commands, *themes]
        self._find_targets = find_targets
        self._targets_worker = LatestOnlyWorker(self)
        self._search_worker = LatestOnlyWorker(self)
        self.input = SanitizedInput(
            id="palette-input", placeholder="Type a command or a name", compact=True
        )
        self.list = RowList("palette-list")
        # The input handles all keys, so Tab and clicks must not take the focus from it.
        self.list.can_focus = False

    def compose(self) -> ComposeResult:
        with Vertical(id="palette", classes="pane") as pane:
            pane.border_title = "Command palette"
            yield self.input
            yield self.list

    def on_mount(self) -> None:
        self.input.focus()
        self._show_palette_items(find_command_palette_items(self._items, ""))
        self._targets_worker.submit_call(self._find_targets, self._append_loaded_palette_items)

    def _append_loaded_palette_items(self, targets: list[CommandPaletteItem]) -> None:
        self._items = [*self._items, *targets]
        if self.input.value:
            self._search_palette_items()

    @on(Input.Changed)
    def _search_palette_items(self) -> None:
        items, text = self._items, self.input.value
        self._search_worker.submit_call(
            lambda: find_command_palette_items(items, text, self.configured_keys),
            self._show_palette_items,
        )

    def _show_palette_items(self, items: list[CommandPaletteItem]) -> None:
        rows = [_make_palette_item_row(number, item) for number, item in enumerate(items)]
        self.list.set_rows(rows, [("No match.", "dim")], rows[0].key if rows else None)

    def should_key_wait(self, key: str) -> bool:
        """Return whether a key must wait until the list is up to date.

        Only keys that act on the list wait.
        """
        needs_list = key in {"enter", "down", "up", "pagedown", "pageup", "ctrl+n"}
        is_loading = bool(self.input.value) and self._targets_worker.has_pending_result
        return needs_list and (is_loading or self._search_worker.has_pending_result)

    def action_move_in_list(self, move: str, *pages: float) -> None:
        getattr(self.list, f"action_{move}")(*pages)

    @on(Input.Submitted)
    @on(RowList.RowClicked)
    def _choose_selected_item(self) -> None:
        if row := self.list.selected_row:
            value = row.data.value
            if row.data.kind == "subject":
                value = make_subject_ref(value.topic, value.slug)
            self.dismiss(make_navigation_target(value) if isinstance(value, Ref) else value)


def _make_palette_item_row(number: int, item: CommandPaletteItem) -> ListRow:
    left: Spans = [(f"{item.kind:<13}", "dim"), (sanitize_to_one_line(item.name), "")]
    right: Spans = [(item.right, "key" if item.kind == "command" else "dim")]
    return ListRow(f"{number}:{item.kind}:{item.name}", left, right, data=item)
