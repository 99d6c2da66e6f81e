"""Commands for the files of a subject, call or turn: open a file in the editor, or list the turns that used it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import NothingFound
from kbtui.knowledge.subject_editing import open_file_in_editor
from kbtui.library.file_turn_history import (
    FileTurnHistory,
    FileUsedByCall,
    describe_incompletely_read_conversations,
    describe_lines_not_written_by_turns,
    find_turns_touching_file,
    format_line_ranges,
    list_files_used_by_call_or_turn,
    map_turns_to_actions_and_commands,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import Ref, parse_ref
from kbtui.terminal_text import cut_to_width, sanitize_to_one_line
from kbtui.tui.external_programs_and_clipboard import run_in_terminal
from kbtui.tui.framework.dialogs import (
    LETTERS,
    DialogOption,
    OptionsDialog,
    TextInputDialog,
    make_lettered_options,
)
from kbtui.tui.framework.styled_text import truncate_text_start
from kbtui.tui.navigation_target import make_navigation_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.tui.main.document_controller import MainScreenContext
    from kbtui.userdata.turn_mark_lookup import MarksOfTurns


MAX_DONE_WIDTH = 36
"""In the list of a file's turns, the description of a turn's actions is cut to this width in cells."""


MAX_TITLE_WIDTH = 36
"""The maximum width in cells of a path in a dialog's title. The start of a longer path is cut."""


class _TurnsTouchingFileAndMarks(NamedTuple):
    """The turns that used a file, and the marks on these turns.

    `line` is the number of the file's line at the cursor, or 0.
    """

    history: FileTurnHistory
    line: int
    marks: MarksOfTurns


class ItemFileActions:
    """Runs commands on the files of the current item, which is a subject, a tool call or a turn."""

    def __init__(
        self, main: MainScreenContext, run_in_thread_with_activity_shown: Callable[..., None]
    ) -> None:
        """Create the actions.

        `run_in_thread_with_activity_shown` is the method of `SelectedItemActions` with this name.
        """
        self._main = main
        self._run_with_activity_shown = run_in_thread_with_activity_shown

    def edit_file_of_call_or_turn(self, ref: Ref) -> None:
        """Start the editor with a file that a call or a turn used.

        If there are several files, ask which one to open.
        """
        self._run_with_activity_shown(
            "looking for the file …",
            partial(self._find_editable_files_of_item, ref, *self._get_line_and_file_at_cursor()),
            partial(self._choose_file_to_edit, ref),
            holds_keys=True,
        )

    def _get_line_and_file_at_cursor(self) -> tuple[int, str | None]:
        """Return the number of the source line at the cursor, and the path of the file whose change is shown there.

        The number is 0 if there is no source line at the cursor. The path is None if the cursor is
        not on a change of a file. If the reader does not have the focus, the result is (0, None).
        """
        panes = self._main.panes
        viewport = panes.reader.document_view.viewport
        if panes.focused_pane_id != "reader":
            return 0, None
        blocks = viewport.document.blocks
        path = blocks[viewport.cursor.block].file if blocks else None
        return viewport.current_source_line, path

    def _find_editable_files_of_item(
        self, ref: Ref, line: int, path: str | None
    ) -> list[FileUsedByCall]:
        conversation = self._main.library.load_conversation(ref.conversation or "")
        found = list_files_used_by_call_or_turn(
            self._main.library.workspace, conversation, ref, line
        )
        found = [one for one in found if path in (None, one.name)]
        if not found:
            gone = [name for name, _ in self._find_files_and_lines_of_item(ref, line, path)]
            if len(gone) == 1:
                raise NothingFound("the file no longer exists", where=gone[0])
            owner = "call" if ref.call else "turn"
            raise NothingFound(f"none of the {owner}'s {len(gone):,} files exists any longer")
        return found

    def _choose_file_to_edit(self, ref: Ref, files: list[FileUsedByCall]) -> None:
        is_whole_turn = ref.call is None and self._get_line_and_file_at_cursor()[1] is None
        if len(files) == 1:
            self._open_touched_file_in_editor(
                files[0], f", the only file of turn {ref.turn}" if is_whole_turn else ""
            )
            return
        named = ((sanitize_to_one_line(file.name), "", file) for file in files)
        options = make_lettered_options(named, "path")
        title = f"Edit which file of turn {ref.turn}?" if is_whole_turn else "Edit which file?"
        self._main.open_dialog(OptionsDialog(title, options), self._open_touched_file_in_editor)

    def _open_touched_file_in_editor(self, file: FileUsedByCall | None, why: str = "") -> None:
        """Open a file in the editor. When the editor closes, show the name of the file followed by `why`, the reason why it was opened."""
        if file is None:
            return
        main, closed = self._main, f"closed {sanitize_to_one_line(file.name)}{why}"
        run_in_terminal(
            main.screen.app,
            partial(open_file_in_editor, Path(file.path), file.line),
            lambda _: main.status.flash_message(closed, "dim"),
            main.show_error,
        )

    def list_turns_of_file_and_open_one(self, ref: Ref) -> None:
        """List the turns that changed or read a file of an item, and open the turn that the user chooses.

        If the item has several files, ask for one of them first.
        """
        is_turn = ref.kind == "conversation" and ref.turn is not None
        if ref.kind != "subject" and not is_turn:
            self._main.show_why_key_does_nothing(
                "Go to a tool call or a subject first, to list the turns of its file."
            )
            return
        self._run_with_activity_shown(
            "looking for the file …",
            partial(self._find_files_and_lines_of_item, ref, *self._get_line_and_file_at_cursor()),
            self._ask_for_file_whose_turns_to_list,
            holds_keys=True,
        )

    def _find_files_and_lines_of_item(
        self, ref: Ref, line: int, path: str | None
    ) -> list[tuple[str, int]]:
        """For each file of an item, return its path and the number of its line at the cursor, or 0.

        Changed files come first. If `path` is not None, only this file is returned.
        """
        library = self._main.library
        if ref.kind == "subject":
            return [(library.find_subject(ref).file, ref.lines[0] if ref.lines else 0)]
        conversation = library.load_conversation(ref.conversation or "")
        activity = map_turns_to_actions_and_commands(library.workspace, conversation).get(
            ref.turn or 0
        )
        touched = [
            one
            for one in (activity.files if activity else ())
            if ref.call in (None, one.call) and path in (None, one.path)
        ]
        touched.sort(key=lambda one: one.kind == "read")
        if not touched:
            raise NothingFound(f"this {'call' if ref.call else 'turn'} read or changed no file")
        files = list_files_used_by_call_or_turn(library.workspace, conversation, ref, line)
        lines = {one.name: one.line for one in files}
        return [(path, lines.get(path, 0)) for path in dict.fromkeys(one.path for one in touched)]

    def _ask_for_file_whose_turns_to_list(self, files: list[tuple[str, int]]) -> None:
        if len(files) == 1:
            self._find_turns_of_file(files[0])
            return
        named = ((sanitize_to_one_line(file[0]), "", file) for file in files)
        options = make_lettered_options(named, "path")
        self._main.open_dialog(
            OptionsDialog("Turns of which file?", options), self._find_turns_of_file
        )

    def _find_turns_of_file(self, file: tuple[str, int] | None) -> None:
        if file is None:
            return
        path, line = file
        self._run_with_activity_shown(
            "reading conversations …",
            lambda: self._add_users_marks_to_turns_touching_file(
                find_turns_touching_file(self._main.library.workspace, path), line
            ),
            self._ask_which_turn_to_open,
            holds_keys=True,
        )

    def _add_users_marks_to_turns_touching_file(
        self, found: FileTurnHistory, line: int
    ) -> _TurnsTouchingFileAndMarks:
        marks = self._main.library.find_all_marks_in_conversations_of_turns(
            turn.ref for turn in found.turns
        )
        return _TurnsTouchingFileAndMarks(found, line, marks)

    def _ask_which_turn_to_open(self, turns: _TurnsTouchingFileAndMarks) -> None:
        """Show the turns, and open the turn that the user chooses.

        With the option `:`, the user can ask which turns wrote certain lines.
        """
        found, line, marks = turns
        what = f"{found.path}:{found.format_requested_line_range()}" if found.lines else found.path
        what = sanitize_to_one_line(what)
        notes = [*describe_lines_not_written_by_turns(found.unexplained)]
        if found.problems:
            notes.append(describe_incompletely_read_conversations(found.problems))
        if not found.turns:
            done = "wrote" if found.lines else "changed or read"
            text = "; ".join(notes) if found.unexplained else f"no turn {done} {what}"
            self._main.status.flash_message(text, "dim")
            return
        options = []
        for letter, turn in zip(LETTERS, found.turns, strict=False):
            date = f"{turn.time.astimezone():%Y-%m-%d}" if turn.time else "-"
            rewound = ", rewound" if turn.rewound else ""
            # The dialog never cuts the name of an option; on a narrow screen, it cuts the preview.
            done = cut_to_width(turn.describe_actions(with_calls=False), MAX_DONE_WIDTH)
            name = f"{date:<10}  {done}"
            said = f"turn {turn.turn}{rewound} · {sanitize_to_one_line(turn.title)}"
            lines = f"{format_line_ranges(turn.lines)}: " if turn.lines else ""
            labels = "".join(f"{label} · " for label in marks.get_mark_labels_of_turn(turn.ref))
            request = f"{labels}{lines}{sanitize_to_one_line(turn.request[:1000])}"
            options.append(DialogOption(letter, name, said, turn.ref, request))

        if not found.lines:
            options.append(DialogOption(":", "lines …", "only turns that wrote certain lines", ":"))

        def open_turn_or_ask_for_lines(chosen: str | None) -> None:
            if chosen == ":":
                self._ask_which_lines_to_blame(found.path, line)
            elif chosen is not None:
                self._main.open_target_in_reader(make_navigation_target(parse_ref(chosen)))

        left_out = max(0, len(found.turns) - len(LETTERS))
        more = f", {left_out} older left out" if left_out > 0 else ""
        title = f"Turns of {truncate_text_start(what, MAX_TITLE_WIDTH)}, newest first{more}"
        self._main.open_dialog(OptionsDialog(title, options, notes), open_turn_or_ask_for_lines)

    def _ask_which_lines_to_blame(self, path: str, line: int) -> None:
        """Ask for lines of a file, and show the turns that wrote these lines.

        At first, the input contains the number `line`, unless `line` is 0.
        """

        def find_turns_that_wrote_lines(lines: str) -> _TurnsTouchingFileAndMarks:
            return self._add_users_marks_to_turns_touching_file(
                self._main.library.blame(f"{path}:{lines.strip()}"), 0
            )

        def show_turns_that_wrote_lines(lines: str | None) -> None:
            if lines and lines.strip():
                self._run_with_activity_shown(
                    "reading conversations …",
                    partial(find_turns_that_wrote_lines, lines),
                    self._ask_which_turn_to_open,
                    holds_keys=True,
                )

        title = f"Lines of {truncate_text_start(sanitize_to_one_line(path), MAX_TITLE_WIDTH)}"
        dialog = TextInputDialog(title, str(line or ""), "12 or 12-20", select=True)
        self._main.open_dialog(dialog, show_turns_that_wrote_lines)
