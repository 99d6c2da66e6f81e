"""Dialogs that ask for a line of text, a choice, a confirmation, or the fields of a form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input

from kbtui.terminal_text import sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import (
    LeftAndRightTextLine,
    SanitizedInput,
    StyledScreen,
    StyledTextWidget,
    make_plain_label_text,
    press_hinted_key,
)
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import (
    Spans,
    StyledLines,
    capitalize_first_word_unless_name,
    join_span_texts,
    measure_cell_width,
    truncate_spans,
    wrap_spans,
)
from kbtui.tui.framework.tui_command_definition import format_key_hints, make_dialog_bindings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.strip import Strip


class ClickableHintLine(LeftAndRightTextLine):
    """A line of key hints. A click on a hint presses its key."""

    def on_click(self, event: events.Click) -> None:
        event.stop()
        press_hinted_key(self, self.left, event.x - self.gutter.left)


MAX_MESSAGE_LINES = 4


class WrappedMessageWidget(StyledTextWidget):
    """A message on at most `MAX_MESSAGE_LINES` wrapped lines. Lines beyond these are left out."""

    DEFAULT_CSS = "WrappedMessageWidget { height: 1; padding: 0 1; background: $background; }"

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.text = ""
        self._role = ""
        self._lines: StyledLines = []

    def set_message(self, text: str, role: str) -> None:
        """Set the message."""
        self.text = sanitize_to_one_line(text)
        if role != "key":  # The name of a key must not be capitalized.
            self.text = capitalize_first_word_unless_name(self.text)
        self._role = role
        self._wrap_message()

    def on_resize(self) -> None:
        self._wrap_message()

    def _wrap_message(self) -> None:
        width = self.content_size.width
        lines = wrap_spans([(self.text, self._role)], width) if width and self.text else []
        self._lines = lines[:MAX_MESSAGE_LINES]
        self.styles.height = max(1, len(self._lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        spans = self._lines[y].spans if y < len(self._lines) else []
        return self.render_spans(spans, self.content_size.width)


class TextInputDialog(StyledScreen):
    """A dialog that asks for a line of text; its result is the text, or None if the user cancels."""

    BINDINGS = make_dialog_bindings("dialog")

    def __init__(
        self,
        title: str,
        text: str = "",
        placeholder: str = "",
        hint: str = "",
        select: bool = False,
    ) -> None:
        super().__init__()
        self._title, self._hint = title, hint
        self._input = SanitizedInput(
            text, placeholder=placeholder, compact=True, select_on_focus=select, id="dialog-input"
        )

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="pane low") as pane:
            pane.border_title = make_plain_label_text(self._title)
            yield self._input
            hint = ClickableHintLine()
            hint.left = format_key_hints([("Enter", "OK"), ("Esc", "cancel")])
            hint.right = [(self._hint, "dim")]
            yield hint

    def on_mount(self) -> None:
        self._input.focus()

    @on(Input.Submitted)
    def _close_with_entered_text(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip())


@dataclass(frozen=True)
class DialogOption:
    """An option of a dialog: its key, name, preview and result.

    `result` is the dialog's result if the user chooses the option. `details` is text below the
    preview, cut after `MAX_DETAIL_LINES` lines. `role` is the style role of the name. If a name
    with the role `path` is too long, its start is cut.
    """

    key: str
    name: str
    preview: str
    result: Any
    details: str = ""
    role: str = ""


LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""The letters for jump labels, and for options that have no key of their own. The easiest ones to reach come first."""


def make_lettered_options(
    options: Iterable[tuple[str, str, Any]], role: str = ""
) -> list[DialogOption]:
    """For each tuple of name, preview and result, return an option with a letter as its key.

    Only the first 26 tuples become options.
    """
    return [
        DialogOption(letter, name, preview, result, role=role)
        for letter, (name, preview, result) in zip(LETTERS, options, strict=False)
    ]


MAX_DETAIL_LINES = 2


class OptionsDialog(StyledScreen):
    """A dialog with a row for each option, and the texts in `notes` below the rows.

    The dialog's result is the `result` of the chosen option, or None if the user cancels.
    """

    BINDINGS = make_dialog_bindings("options")

    def __init__(self, title: str, options: list[DialogOption], notes: Sequence[str] = ()) -> None:
        super().__init__()
        self._title, self._options, self._notes = title, options, notes
        self.list = RowList("options-list")

    def compose(self) -> ComposeResult:
        has_texts = bool(self._notes) or any(one.details for one in self._options)
        with Vertical(id="dialog", classes="pane wide" if has_texts else "pane") as pane:
            pane.border_title = make_plain_label_text(self._title)
            pane.border_subtitle = "letter or Enter: choose · Esc: cancel"
            pane.styles.height = len(self._options) + 2
            yield self.list

    def on_mount(self) -> None:
        self._show_row_of_each_option()
        self.list.focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_row_of_each_option)

    def _show_row_of_each_option(self) -> None:
        # Names are never cut; previews are cut to the remaining width.
        width = self.list.scrollable_content_region.width or self.app.size.width * 9 // 10 - 4
        names = max((measure_cell_width([(one.name, "")]) for one in self._options), default=0)
        has_details = any(one.details for one in self._options)
        room = max(width - names - 8, 12 if has_details else width // 2 - 8)
        rows = []
        for one in self._options:
            name = [(f"{one.key}  ", "key"), (one.name, one.role)]
            preview = truncate_spans([(one.preview, "dim")], room) if room > 8 else []
            details = _wrap_details(one.details, width - 4)
            rows.append(ListRow(one.key, name, preview, details, data=one.result))
        for number, note in enumerate(self._notes):
            for at, line in enumerate(wrap_spans([(note, "warning")], max(8, width - 2))):
                rows.append(ListRow(f"note:{number}:{at}", line.spans, selectable=False))
        self.query_one("#dialog").styles.height = sum(1 + len(row.below) for row in rows) + 2
        self.list.set_rows(rows)

    def on_key(self, event: events.Key) -> None:
        for one in self._options:
            if event.character == one.key:
                event.stop()
                self.dismiss(one.result)

    @on(RowList.RowClicked)
    def _choose_clicked_option(self, event: RowList.RowClicked) -> None:
        event.stop()
        self.action_choose_option()

    def action_choose_option(self) -> None:
        if row := self.list.selected_row:
            self.dismiss(row.data)


def _wrap_details(text: str, width: int) -> list[Spans]:
    """Wrap the text below an option, and return its lines.

    If the text is too long, it is cut, and the last line ends with `…`.
    """
    lines = [line.spans for line in wrap_spans([(text, "dim")], max(8, width))] if text else []
    if len(lines) > MAX_DETAIL_LINES:
        rest = " ".join(join_span_texts(line) for line in lines[MAX_DETAIL_LINES - 1 :])
        lines[MAX_DETAIL_LINES - 1 :] = [truncate_spans([(rest, "dim")], max(8, width))]
    return [[("    ", ""), *line] for line in lines]


class ConfirmDialog(StyledScreen, ModalScreen[str | None]):
    """A dialog with a question at the bottom of the screen.

    The result is the key with which the user answered, or None for Esc. `answers` maps each key to
    its meaning. Enter is never an answer, so that nobody confirms by accident.
    """

    DEFAULT_CSS = """
    ConfirmDialog { align: left bottom; }
    #question { height: auto; border: round $warning; background: $background; padding: 0; }
    #answers { height: 1; padding: 0 1; }
    """

    def __init__(self, question: str, answers: Mapping[str, str]) -> None:
        super().__init__()
        self._question, self._answers = question, answers
        self.styles.background = "transparent"

    def compose(self) -> ComposeResult:
        with Vertical(id="question"):
            asked, answers = WrappedMessageWidget("asked"), ClickableHintLine(id="answers")
            asked.set_message(self._question, "strong")
            answers.left = format_key_hints([*self._answers.items(), ("Esc", "no")])
            yield asked
            yield answers

    def on_key(self, event: events.Key) -> None:
        """Close the dialog if the key is an answer. Ignore all other keys."""
        event.stop()
        if event.key == "escape":
            self.dismiss(None)
        elif event.character in self._answers:
            self.dismiss(event.character)


FormValues = dict[str, str]


@dataclass(frozen=True)
class FormField:
    """A field of a form: a line of text, or a choice if there are `choices`.

    `help` is shown while the field has the focus. `is_shown` takes the values of all fields, and
    returns whether to show this field.
    """

    name: str
    label: str
    value: str = ""
    help: str = ""
    choices: tuple[str, ...] = ()
    is_shown: Callable[[FormValues], bool] = lambda values: True


class ChoiceField(StyledTextWidget, can_focus=True):
    """A form field with choices.

    The user selects a choice with the arrow keys or by typing its first letters.
    """

    BINDINGS = make_dialog_bindings("choice")
    DEFAULT_CSS = "ChoiceField { height: 1; width: 1fr; background: $surface; }"

    def __init__(self, field: FormField) -> None:
        super().__init__(id=f"field-{field.name}")
        self._choices = field.choices
        self._typed = ""
        self._index = field.choices.index(field.value) if field.value in field.choices else 0

    @property
    def value(self) -> str:
        """The current choice."""
        return self._choices[self._index] if self._choices else ""

    def action_step_choice(self, by: int) -> None:
        """Go `by` choices forward, or backward if `by` is negative."""
        self._select_choice((self._index + by) % max(1, len(self._choices)))

    def _select_choice(self, at: int) -> None:
        self._index, self._typed = at, ""
        self.refresh()
        if isinstance(self.screen, FormDialog):
            self.screen.update_shown_form_fields()

    def on_key(self, event: events.Key) -> None:
        """Select the next choice that starts with all letters typed so far.

        If no choice starts with them, select the next one that starts with the letter typed last.
        """
        letter = (event.character or "").casefold()
        if not letter.isprintable() or letter in {"", " "}:
            return
        count = len(self._choices)
        for typed in (self._typed + letter, letter):
            # While the user types a word, the current choice stays selected if it still matches.
            first = self._index + (len(typed) == 1)
            for at in range(first, first + count):
                if self._choices[at % count].casefold().startswith(typed):
                    event.stop()
                    self._select_choice(at % count)
                    self._typed = typed
                    return

    def on_click(self) -> None:
        self.focus()
        self.action_step_choice(1)

    def render_line(self, y: int) -> Strip:
        spans = [(sanitize_to_one_line(self.value) or "no choices", "")]
        if self.has_focus:
            position = f"  {self._index + 1} of {len(self._choices)}"
            spans = [("‹ ", "key"), *spans, (" ›", "key"), (position, "dim")]
        return self.render_spans(spans, self.content_size.width)


class _FormFieldList(VerticalScroll):
    """The fields of a form. It keeps the focused field visible when its height changes."""

    def on_resize(self) -> None:
        if self.has_focus_within and self.screen.focused:
            self.scroll_to_widget(self.screen.focused, animate=False)


class FormDialog(StyledScreen):
    """A form; its result is the return value of `save`, or None if the user cancels the form.

    `save` is called in a thread with the values of the fields. If it raises an exception, the form
    shows the error and stays open.
    """

    BINDINGS = make_dialog_bindings("form")
    DEFAULT_CSS = """
    FormDialog { align: center top; }
    #fields { height: auto; }
    .field { height: 1; margin: 0 1 1 1; }
    .tight .field { margin: 0 1; }
    .field-label { width: 16; height: 1; }
    .field Input { width: 1fr; }
    #form-keys { height: 1; padding: 0 1; }
    """

    def __init__(
        self,
        title: str,
        fields: Sequence[FormField],
        save: Callable[[FormValues], Any],
        format_error: Callable[[Exception], str],
        save_label: str = "save",
        *,
        enter_saves: bool = False,
    ) -> None:
        """Create the form. If `enter_saves` is true, Enter saves the form, whichever field has the focus."""
        super().__init__()
        self._title, self._save_label, self._enter_saves = title, save_label, enter_saves
        self._save, self._format_error = save, format_error
        self._fields = {field.name: field for field in fields}
        self._save_worker = LatestOnlyWorker(self)
        self._message = WrappedMessageWidget("form-said")
        self._is_saving = False

    def compose(self) -> ComposeResult:
        with Vertical(id="form", classes="pane") as pane:
            pane.border_title = make_plain_label_text(self._title)
            with _FormFieldList(id="fields", can_focus=False):
                for name, field in self._fields.items():
                    with Horizontal(id=f"line-{name}", classes="field"):
                        label = LeftAndRightTextLine(classes="field-label")
                        label.left = [(field.label, "dim")]
                        yield label
                        if field.choices:
                            yield ChoiceField(field)
                        else:
                            yield SanitizedInput(field.value, id=f"field-{name}", compact=True)
            yield self._message
            keys = ClickableHintLine(id="form-keys")
            hints = [("Enter", "next"), ("^S", self._save_label), ("Esc", "cancel")]
            if self._enter_saves:
                hints = [("Enter", self._save_label), ("Tab", "next"), ("Esc", "cancel")]
            keys.left = format_key_hints(hints)
            yield keys

    def on_mount(self) -> None:
        self.update_shown_form_fields()
        shown = self._list_shown_fields()
        texts = [name for name in shown if not self._fields[name].choices]
        self._focus_field((texts or shown)[0])

    def _get_field_value(self, name: str) -> str:
        widget = self.query_one(f"#field-{name}")
        return widget.value.strip() if isinstance(widget, ChoiceField | Input) else ""

    def _list_shown_fields(self) -> list[str]:
        everything = {name: self._get_field_value(name) for name in self._fields}
        return [name for name, field in self._fields.items() if field.is_shown(everything)]

    def update_shown_form_fields(self) -> None:
        """Show only the fields that apply to the current choices."""
        shown = self._list_shown_fields()
        for name in self._fields:
            self.query_one(f"#line-{name}").display = name in shown
        self._fit_fields_to_screen()

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit_fields_to_screen)

    def _fit_fields_to_screen(self) -> None:
        """Limit the height of the fields, so that the message and the key hints fit below them. The fields scroll if necessary.

        If there is no room for blank lines between the fields, show none.
        """
        below = self._message.styles.height
        # The margin, the border, the message and the key hints.
        room = self.size.height - 4 - int(below.value if below else 1)
        fields = self.query_one("#fields")
        fields.set_class(2 * len(self._list_shown_fields()) > room, "tight")
        fields.styles.max_height = max(1, room)

    def _show_message(self, text: str, role: str) -> None:
        self._message.set_message(text, role)
        self._fit_fields_to_screen()
        if self.focused:
            self.call_after_refresh(self.focused.scroll_visible, animate=False)

    def _focus_field(self, name: str) -> None:
        self.set_focus(self.query_one(f"#field-{name}"))

    @property
    def _focused_field_name(self) -> str:
        return (self.focused.id or "").removeprefix("field-") if self.focused else ""

    def on_descendant_focus(self) -> None:
        if not self._is_saving and (field := self._fields.get(self._focused_field_name)):
            self._show_message(field.help, "dim")

    def action_go_to_next_field(self) -> None:
        """Go to the next field, or save the form if there is no next field.

        If `enter_saves` is true, always save the form.
        """
        shown = self._list_shown_fields()
        focused = self._focused_field_name
        following = shown[shown.index(focused) + 1 :] if focused in shown else shown
        if following and not self._enter_saves:
            self._focus_field(following[0])
        else:
            self.action_save_form()

    def action_save_form(self) -> None:
        """Save the values, and close the form if they could be saved."""
        if self._is_saving:
            return
        self._is_saving = True
        # Text typed before this key may still be in the message queue of the focused field.
        (self.focused or self).call_later(self._save_values_in_background)

    def _save_values_in_background(self) -> None:
        self._show_message("…", "dim")
        values = {name: self._get_field_value(name) for name in self._list_shown_fields()}
        self._save_worker.submit_call(
            lambda: self._save(values), self.dismiss, self._show_save_error
        )

    def _show_save_error(self, error: Exception) -> None:
        self._is_saving = False
        self._show_message(self._format_error(error), "error")
