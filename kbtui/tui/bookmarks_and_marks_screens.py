"""The screens with lists of bookmarks and marks, and the dialog that edits a mark."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.containers import Vertical

from kbtui.conversations.turn_decision_marks import MARK_SIGNS, MARK_STATES
from kbtui.errors import KbtuiError, UsageError, format_error_on_one_line
from kbtui.references import parse_ref
from kbtui.terminal_text import sanitize_to_one_line
from kbtui.tui.external_programs_and_clipboard import copy_text_to_clipboards
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import StyledScreen
from kbtui.tui.framework.dialogs import (
    ClickableHintLine,
    DialogOption,
    FormDialog,
    FormField,
    OptionsDialog,
    TextInputDialog,
)
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.tui_command_definition import format_fitting_key_hints
from kbtui.tui.reader.reader_blocks import MARK_ROLES, make_spans_of_users_mark
from kbtui.tui.tui_command_table import (
    Scope,
    find_key_label_of_command,
    list_commands_of_scopes,
    make_key_bindings_of_scopes,
)
from kbtui.userdata.bookmark_anchor_store import BookmarkAnchorStore
from kbtui.userdata.turn_mark_store import MarkStore
from kbtui.userdata.user_data_store import Bookmark, UserData

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult

    from kbtui.conversations.turn_decision_marks import Mark, MarkProblem, MarkState, PlacedMark
    from kbtui.library import Library
    from kbtui.tui.framework.dialogs import FormValues
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.topics_and_conversations_snapshot import TopicsAndConversations
    from kbtui.userdata.turn_mark_lookup import MarksOfTurns

_REMOVE = "remove"
_COPY = "copy"
_PROBLEM_TEXTS: dict[MarkProblem, str] = {
    "conversation": "the conversation no longer exists",
    "unreadable": "the conversation or a part of it cannot be read",
    "text": "no turn has the marked text any more",
}


def ask_for_and_save_turn_mark(
    screen: StyledScreen,
    library: Library,
    reference: str,
    placed: PlacedMark | None,
    on_changed: Callable[[str], None],
) -> None:
    """Ask for the state, note and passage of a mark on a turn or call, and save the mark.

    `placed` is the mark that the user changes or removes; it is None for a new mark. After the mark
    has been saved or removed, `on_changed` is called with a message for the user.
    """
    known = placed.mark if placed else None
    options = [DialogOption(name[0], name, "", name) for name in MARK_STATES]
    if placed:
        options.append(DialogOption("x", "remove the mark", placed.label, _REMOVE))

    def remove_mark_or_open_form(chosen: MarkState | str | None) -> None:
        if chosen == _REMOVE and known:
            LatestOnlyWorker(screen).submit_call(
                lambda: library.unmark(known.id),
                lambda _: on_changed(f"Removed the mark on {reference}"),
                lambda error: on_changed(format_error_on_one_line(error, library.workspace.root)),
            )
        elif chosen is not None:
            dialog = _make_turn_mark_form(library, reference, chosen, placed)
            screen.app.push_screen(dialog, report_saved_mark)

    def report_saved_mark(mark: Mark | None) -> None:
        if mark is not None:
            on_changed(f"Marked {reference} as {mark.state}")

    screen.app.push_screen(OptionsDialog(f"Mark {reference} as", options), remove_mark_or_open_form)


def _make_turn_mark_form(
    library: Library, reference: str, state: str, placed: PlacedMark | None
) -> FormDialog:
    root, known = library.workspace.root, placed.mark if placed else None
    by = known.superseded_by if known else None
    note_help = "Optional: a note, such as the reason."
    fields = [FormField("note", "note", known.note if known else "", note_help)]
    if state == "superseded":
        about = (
            "A reference to the text that applies instead, such as jp-c17457886043:3 or topic/slug."
        )
        fields.insert(0, FormField("by", "superseded by", by or "", about))
    if known is None or known.passage is None:
        about = "Optional: a part of the text, to mark only this part instead of the whole turn or call."
        fields.append(FormField("passage", "passage", "", about))

    def save_mark_from_form(values: FormValues) -> Mark:
        passage = values.get("passage") or (known.passage if known else None)
        if state == "superseded" and not values["by"]:
            raise UsageError("enter a reference to the text that applies instead")
        chosen: MarkState = next(one for one in MARK_STATES if one == state)
        note, by = values["note"], values.get("by") or None
        return library.mark(reference, chosen, note=note, superseded_by=by, passage=passage)

    title = f"Mark {reference} as {state}"
    return FormDialog(
        title,
        fields,
        save_mark_from_form,
        lambda error: format_error_on_one_line(error, root),
        enter_saves=True,
    )


class BookmarkAndMarkScreenBase(StyledScreen):
    """The base class of the screens with a list of bookmarks or marks.

    When such a screen closes, it returns the reference to open, or None. If the list is empty, the
    screen says which key adds an item. `ADD_COMMAND` is the command of this key, and `ADD_HINT` is
    the text after the key, such as "on a turn to mark it".
    """

    SCOPE: ClassVar[Scope]
    TITLE: ClassVar[str]
    ADD_COMMAND: ClassVar[str]
    ADD_HINT: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        cls.BINDINGS = make_key_bindings_of_scopes(cls.SCOPE)
        super().__init_subclass__(**options)

    def __init__(self, library: Library, contents: TopicsAndConversations) -> None:
        super().__init__()
        self._library, self._contents = library, contents
        self._worker = LatestOnlyWorker(self)
        self._removed: Bookmark | PlacedMark | None = None
        self.list = RowList(f"{self.TITLE.lower()}-list")
        self._hints = ClickableHintLine()

    @abstractmethod
    def read_rows(self) -> list[ListRow]:
        """Return a row for each item; the row's `data` is the item. Called in a background thread."""

    @abstractmethod
    def remove_item(self, item: Any) -> object:
        """Remove an item from the user's data. Called in a background thread."""

    @abstractmethod
    def restore_item(self, item: Any) -> object:
        """Put a removed item back into the user's data. Called in a background thread."""

    @abstractmethod
    def open_item(self, item: Any) -> None:
        """Open an item."""

    @abstractmethod
    def edit_item(self, item: Any) -> None:
        """Let the user change an item."""

    def compose(self) -> ComposeResult:
        with Vertical(id="palette", classes="pane") as pane:
            pane.border_title = self.TITLE
            yield self.list
            yield self._hints

    def on_mount(self) -> None:
        self.list.focus()
        self.list.set_rows([], [("Reading …", "dim")])
        self.show_key_hints_and_message()
        self.reload_rows_after_change()

    def show_key_hints_and_message(self, message: str = "") -> None:
        """Show key hints and a message below the list."""
        if self._removed is not None and not message:
            ref = self._contents.shorten_reference(self._removed.ref)
            message = f"removed {ref}"
        width = self._hints.content_size.width or self.app.size.width
        commands = list_commands_of_scopes(self.SCOPE, keymap=self.configured_keys)
        met = {"removed"} if self._removed is not None else set()
        hints = format_fitting_key_hints(commands, width, met)
        self._hints.set_edge_texts(hints, [(message, "strong")])

    def should_key_wait(self, key: str) -> bool:
        """Return whether a key must wait because items are still being read or changed."""
        return self._worker.has_pending_result and key != "escape"

    def reload_rows_after_change(self, change: Callable[[], object] | None = None) -> None:
        """Read the items in a background thread, and show them.

        If `change` is given, the thread calls it first.
        """

        def change_and_read_rows() -> list[ListRow]:
            if change is not None:
                change()
            return self.read_rows()

        self._worker.submit_call(change_and_read_rows, self._show_rows, self._show_error)

    def _show_rows(self, rows: list[ListRow]) -> None:
        key = find_key_label_of_command(self.ADD_COMMAND, self.configured_keys)
        how = f" Press {key} {self.ADD_HINT}." if key else ""
        self.list.set_rows(rows, [(f"No {self.TITLE.lower()} yet.{how}", "dim")])

    def _show_error(self, error: Exception) -> None:
        self.list.set_rows([], [(f"! {sanitize_to_one_line(str(error))}", "error")])

    def close_and_open_reference(self, reference: str) -> None:
        """Close the screen, and open the place to which a reference refers."""
        try:
            self.dismiss(parse_ref(reference))
        except KbtuiError as error:
            self._show_error(error)

    @on(RowList.RowClicked)
    def action_open_item(self) -> None:
        if row := self.list.selected_row:
            self.open_item(row.data)

    def action_edit_item(self) -> None:
        if row := self.list.selected_row:
            self.edit_item(row.data)

    def action_remove_item(self) -> None:
        if row := self.list.selected_row:
            self._removed = row.data
            self.show_key_hints_and_message()
            self.reload_rows_after_change(partial(self.remove_item, row.data))

    def action_undo_removal(self) -> None:
        item, self._removed = self._removed, None
        if item is not None:
            self.show_key_hints_and_message()
            self.reload_rows_after_change(partial(self.restore_item, item))


class BookmarksScreen(BookmarkAndMarkScreenBase):
    """A screen with a list of bookmarks."""

    SCOPE = "bookmarks"
    TITLE = "Bookmarks"
    ADD_COMMAND = "bookmark"
    ADD_HINT = "to bookmark the selected or open item"

    def __init__(self, library: Library, contents: TopicsAndConversations) -> None:
        super().__init__(library, contents)
        self._userdata = UserData(library.workspace)

    def remove_item(self, item: Bookmark) -> None:
        self._userdata.remove_bookmark(item.ref)

    def restore_item(self, item: Bookmark) -> None:
        self._userdata.save_bookmark(item.ref, item.title, item.note)

    def read_rows(self) -> list[ListRow]:
        bookmarks = BookmarkAnchorStore(self._library.workspace, self._userdata).list_bookmarks()
        marks = self._library.find_all_marks_in_conversations_of_turns(one.ref for one in bookmarks)
        return [self._make_row(bookmark, marks) for bookmark in bookmarks]

    def _make_row(self, bookmark: Bookmark, marks: MarksOfTurns) -> ListRow:
        ref = self._contents.shorten_reference(bookmark.ref)
        left: Spans = [("★ ", "accent"), (sanitize_to_one_line(bookmark.title) or ref, "strong")]
        note = sanitize_to_one_line(bookmark.note)
        below: list[Spans] = [[("  ", ""), (note, "")]] if bookmark.note else []
        below += [
            [("  ", ""), *make_spans_of_users_mark(placed)]
            for placed in marks.get_marks_of_turn(bookmark.ref)
        ]
        return ListRow(bookmark.ref, left, [(ref, "dim")], below, data=bookmark)

    def open_item(self, item: Bookmark) -> None:
        self.close_and_open_reference(item.ref)

    def edit_item(self, item: Bookmark) -> None:
        def save_bookmark_note(note: str | None) -> None:
            if note is not None:
                changed = item._replace(note=note)
                self.reload_rows_after_change(partial(self.restore_item, changed))

        title = f"Note on {self._contents.shorten_reference(item.ref)}"
        self.app.push_screen(TextInputDialog(title, item.note), save_bookmark_note)


class TurnMarksScreen(BookmarkAndMarkScreenBase):
    """A screen with a list of marks."""

    SCOPE = "marks"
    TITLE = "Marks"
    ADD_COMMAND = "mark"
    ADD_HINT = "on a turn to mark it"

    def __init__(self, library: Library, contents: TopicsAndConversations) -> None:
        super().__init__(library, contents)
        self._store = MarkStore(library.workspace)

    def remove_item(self, item: PlacedMark) -> None:
        self._store.remove_mark(item.mark.id)

    def restore_item(self, item: PlacedMark) -> None:
        self._store.restore_mark(item.mark)

    def read_rows(self) -> list[ListRow]:
        return [self._make_row(placed) for placed in self._store.list_placed_marks()]

    def _make_row(self, placed: PlacedMark) -> ListRow:
        mark = placed.mark
        ref = self._contents.shorten_reference(placed.ref)
        sign = (f"{MARK_SIGNS[mark.state]} ", MARK_ROLES[mark.state])
        below: list[Spans] = [[("  ", ""), (sanitize_to_one_line(mark.title), "dim")]]
        if placed.problem:
            below.append([(f"  {_PROBLEM_TEXTS[placed.problem]}", "warning")])
        left: Spans = [sign, (placed.label, "strong")]
        return ListRow(mark.id, left, [(ref, "dim")], below, data=placed)

    def open_item(self, item: PlacedMark) -> None:
        if item.place is None:
            self._offer_actions_on_lost_mark(item)
        else:
            self.close_and_open_reference(item.ref)

    def edit_item(self, item: PlacedMark) -> None:
        if item.place is None:
            self._offer_actions_on_lost_mark(item)
        else:
            reload = self.reload_rows_after_change
            ask_for_and_save_turn_mark(
                self, self._library, item.ref, item, lambda message: reload()
            )

    def _offer_actions_on_lost_mark(self, placed: PlacedMark) -> None:
        """Show what is known about a mark whose text no longer exists, and offer actions.

        The number of the marked turn may now belong to another turn, so no action opens it.
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

        def copy_or_remove_mark_or_open_reference(chosen: str | None) -> None:
            if chosen == _COPY:
                copy_text_to_clipboards(self.app, "\n".join(filter(None, (text, mark.note))))
                self.show_key_hints_and_message("copied")
            elif chosen == _REMOVE:
                self.action_remove_item()
            elif chosen is not None:
                self.close_and_open_reference(chosen)

        title = f"{placed.ref}: {_PROBLEM_TEXTS[placed.problem]}" if placed.problem else placed.ref
        self.app.push_screen(
            OptionsDialog(title, options, notes), copy_or_remove_mark_or_open_reference
        )
