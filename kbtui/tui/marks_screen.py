"""The marks screen, which lists marks to open, change and remove, and the dialog that edits a mark."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding
from textual.containers import Vertical

from kbtui.conversations.turn_marks import MARK_SIGNS, MARK_STATES
from kbtui.errors import KbtuiError, UsageError, format_error_on_one_line
from kbtui.refs import parse_ref
from kbtui.text import sanitize_to_one_line
from kbtui.tui.browser_and_clipboard import copy_text_to_clipboards
from kbtui.tui.command_table import find_key_label_of_command
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.dialogs import DialogOption, FormDialog, FormField, OptionsDialog
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.framework.text_widgets import LeftAndRightTextLine
from kbtui.tui.framework.tui_command import format_key_hints
from kbtui.tui.navigation_target import make_navigation_target
from kbtui.tui.reader.mark_blocks import MARK_ROLES
from kbtui.userdata.mark_store import MarkStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.conversations.turn_marks import Mark, MarkProblem, MarkState, PlacedMark
    from kbtui.library import Library
    from kbtui.tui.framework.dialogs import FormValues
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.library_snapshot import LibrarySnapshot

_REMOVE = "remove"
_COPY = "copy"
_PROBLEM_TEXTS: dict[MarkProblem, str] = {
    "conversation": "the conversation is gone",
    "unreadable": "the conversation or a part of it cannot be read",
    "text": "no turn has the marked text any more",
}


def ask_for_mark(
    screen: StyledScreen,
    library: Library,
    reference: str,
    placed: PlacedMark | None,
    on_changed: Callable[[str], None],
) -> None:
    """Ask for the state, note and passage of a mark on a turn or call, and save it.

    `placed` is the mark that the user changes or removes; None means that the user sets a new mark.
    `on_changed` is called with a message when the mark has been saved or removed.
    """
    known = placed.mark if placed else None
    options = [DialogOption(name[0], name, "", name) for name in MARK_STATES]
    if placed:
        options.append(DialogOption("x", "remove the mark", placed.label, _REMOVE))

    def ask_for_details(chosen: MarkState | str | None) -> None:
        if chosen == _REMOVE and known:
            LatestOnlyWorker(screen).submit_call(
                lambda: library.unmark(known.id),
                lambda _: on_changed(f"Removed the mark on {reference}"),
                lambda error: on_changed(format_error_on_one_line(error, library.workspace.root)),
            )
        elif chosen is not None:
            dialog = _make_mark_form(screen, library, reference, chosen, placed)
            screen.app.push_screen(dialog, report_saved_mark)

    def report_saved_mark(mark: Mark | None) -> None:
        if mark is not None:
            on_changed(f"Marked {reference} as {mark.state}")

    screen.app.push_screen(OptionsDialog(f"Mark {reference} as", options), ask_for_details)


def _make_mark_form(
    screen: StyledScreen, library: Library, reference: str, state: str, placed: PlacedMark | None
) -> FormDialog:
    root, known = library.workspace.root, placed.mark if placed else None
    by = known.superseded_by if known else None
    fields = [
        FormField(
            "note", "note", known.note if known else "", "Optional: a note, such as the reason."
        )
    ]
    if state == "superseded":
        about = "The reference that applies instead, such as jp-c17457886043:3 or topic/slug."
        fields.insert(0, FormField("by", "superseded by", by or "", about))
    if known is None or known.passage is None:
        about = "Optional: a part of the text, to mark only this part instead of the whole turn or call."
        fields.append(FormField("passage", "passage", "", about))

    def save(values: FormValues) -> Mark:
        passage = values.get("passage") or (known.passage if known else None)
        if state == "superseded" and not values["by"]:
            raise UsageError("enter the reference that applies instead")
        chosen: MarkState = next(one for one in MARK_STATES if one == state)
        return library.mark(
            reference,
            chosen,
            note=values["note"],
            superseded_by=values.get("by") or None,
            passage=passage,
        )

    title = f"Mark {reference} as {state}"
    return FormDialog(title, fields, save, lambda error: format_error_on_one_line(error, root))


class MarksScreen(StyledScreen):
    """A screen with a list of marks. When it closes, it returns what to open, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,quotation_mark", "dismiss", show=False),
        Binding("enter", "open_marked_turn", show=False),
        Binding("e", "edit_mark", show=False),
        Binding("d,delete", "remove_mark", show=False),
        Binding("u", "undo_removal", show=False),
    ]

    def __init__(self, library: Library, contents: LibrarySnapshot) -> None:
        super().__init__()
        self._library, self._contents = library, contents
        self._store = MarkStore(library.workspace)
        self._worker = LatestOnlyWorker(self)
        self._removed: PlacedMark | None = None
        self.list = RowList("marks-list")
        self._hints = LeftAndRightTextLine()

    def compose(self) -> ComposeResult:
        with Vertical(id="palette", classes="pane") as pane:
            pane.border_title = "Marks"
            yield self.list
            yield self._hints

    def on_mount(self) -> None:
        self.list.focus()
        self.list.set_rows([], [("Reading …", "dim")])
        self._update_key_hints()
        self._read_marks_after(lambda: None)

    def _update_key_hints(self, message: str = "") -> None:
        pairs = [("Enter", "open"), ("e", "change"), ("d", "remove"), ("Esc", "back")]
        if self._removed:
            ref = self._contents.shorten_reference(self._removed.ref)
            pairs.insert(0, ("u", f"undo the removal of {ref}"))
        self._hints.set_edge_texts(format_key_hints(pairs), [(message, "strong")])

    def should_key_wait(self, key: str) -> bool:
        """Return whether a key must wait until the marks have been read or changed."""
        return self._worker.has_pending_result and key != "escape"

    def _read_marks_after(self, change: Callable[[], object]) -> None:
        def change_and_read_marks() -> list[PlacedMark]:
            change()
            return self._store.list_placed_marks()

        self._worker.submit_call(change_and_read_marks, self._show_marks, self._show_error)

    def _show_marks(self, marks: list[PlacedMark]) -> None:
        key = find_key_label_of_command("mark", self.configured_keys)
        how = f" Press {key} on a turn to mark it." if key else ""
        rows = []
        for placed in marks:
            mark = placed.mark
            ref = self._contents.shorten_reference(placed.ref)
            left: Spans = [
                (f"{MARK_SIGNS[mark.state]} ", MARK_ROLES[mark.state]),
                (placed.label, "strong"),
            ]
            below: list[Spans] = [[("  ", ""), (sanitize_to_one_line(mark.title), "dim")]]
            if placed.problem:
                below.append([(f"  {_PROBLEM_TEXTS[placed.problem]}", "warning")])
            rows.append(ListRow(mark.id, left, [(ref, "dim")], below, data=placed))
        self.list.set_rows(rows, [(f"No marks yet.{how}", "dim")])

    def _show_error(self, error: Exception) -> None:
        self.list.set_rows([], [(f"! {sanitize_to_one_line(str(error))}", "error")])

    @on(RowList.RowClicked)
    def action_open_marked_turn(self) -> None:
        if row := self.list.selected_row:
            placed: PlacedMark = row.data
            if placed.place is None:
                self._offer_what_is_known(placed)
            else:
                self._close_and_open(placed.ref)

    def _close_and_open(self, reference: str) -> None:
        try:
            self.dismiss(make_navigation_target(parse_ref(reference)))
        except KbtuiError as error:
            self._show_error(error)

    def _offer_what_is_known(self, placed: PlacedMark) -> None:
        """Show that a marked text no longer exists and what is known about it, and offer actions.

        The turn with the mark's old number is not opened, because it is a different turn now.
        """
        mark = placed.mark
        text = mark.passage or mark.text
        notes = [f"marked as {mark.state} on {datetime.fromtimestamp(mark.created):%Y-%m-%d}"]
        notes += [f"the text was: {sanitize_to_one_line(text)}"] if text else []
        notes += [f"the note: {sanitize_to_one_line(mark.note)}"] if mark.note else []
        options = []
        if placed.problem != "conversation":
            preview = sanitize_to_one_line(mark.title)
            options.append(DialogOption("o", "open the conversation", preview, mark.conversation))
        if mark.superseded_by and placed.target_problem != "gone":
            name = "open what supersedes it"
            options.append(DialogOption("b", name, mark.superseded_by, mark.superseded_by))
        options += [
            DialogOption("y", "copy the text and the note", "", _COPY),
            DialogOption("x", "remove the mark", "", _REMOVE),
        ]

        def act(chosen: str | None) -> None:
            if chosen == _COPY:
                copy_text_to_clipboards(self.app, "\n".join(filter(None, (text, mark.note))))
                self._update_key_hints("copied")
            elif chosen == _REMOVE:
                self.action_remove_mark()
            elif chosen is not None:
                self._close_and_open(chosen)

        title = f"{placed.ref}: {_PROBLEM_TEXTS[placed.problem]}" if placed.problem else placed.ref
        self.app.push_screen(OptionsDialog(title, options, notes), act)

    def action_edit_mark(self) -> None:
        if row := self.list.selected_row:
            placed: PlacedMark = row.data
            if placed.place is None:
                self._offer_what_is_known(placed)
            else:
                ask_for_mark(self, self._library, placed.ref, placed, self._show_change)

    def _show_change(self, _: str) -> None:
        self._read_marks_after(lambda: None)

    def action_remove_mark(self) -> None:
        if row := self.list.selected_row:
            self._removed = row.data
            self._update_key_hints()
            self._read_marks_after(partial(self._store.remove_mark, row.data.mark.id))

    def action_undo_removal(self) -> None:
        placed, self._removed = self._removed, None
        if placed is not None:
            self._update_key_hints()
            self._read_marks_after(partial(self._store.restore_mark, placed.mark))
