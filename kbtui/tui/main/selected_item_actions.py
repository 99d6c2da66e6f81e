"""Commands on the selected or open item: copy, bookmark, open links, edit, export, continue in its agent."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kbtui.errors import KbtuiError, format_error_on_one_line
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import Ref, parse_ref
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.navigation_target import make_navigation_target
from kbtui.tui.reader.reader_document import ReaderDocument
from kbtui.tui.tui_command_table import find_key_label_of_command
from kbtui.workspace.paths import get_user_home
from kbtui.workspace.workspace import (
    Workspace,
    check_export_path_is_outside_jp_directories,
    write_text_to_export_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.conversations.agent_commands_for_conversations import (
        AgentCommandForConversation,
        CommandPurpose,
    )
    from kbtui.conversations.turn_decision_marks import PlacedMark
    from kbtui.knowledge.toml_config_editor import TomlFileChange
    from kbtui.library import Library
    from kbtui.search.search_request_and_answer import Hit
    from kbtui.tui.framework.dialogs import FormValues
    from kbtui.tui.main.document_controller import MainScreenContext
    from kbtui.tui.reader.links_and_copyable_texts import DocumentLink
    from kbtui.userdata.user_data_store import Bookmark


T = TypeVar("T")

EXPORTED_KINDS: dict[str, list[str] | None] = {
    "messages": ["chat"],
    "everything": None,
}
"""The kinds of events to export, by choice in the export form. None stands for all kinds."""

MASKED = "masked"
SECRETS_HELP = (
    "kbtui masks the keys and passwords that it recognizes. Check the file before you share it."
)

LIKELY_NAMES = ("docs", "doc", "documentation", "notes", "wiki", "knowledge", "handbook")
TEXT_SUFFIXES = (".md", ".markdown", ".txt", ".rst", ".adoc", ".org")
SEARCH_DEPTH, MAX_SEARCHED_FILES = 3, 2_000
"""The limits of the search for text files: the depth of directories, and the approximate number of files."""


class SelectedItemActions:
    """Runs commands on the current item.

    The current item is the selected row of the focused list. If no list has the focus, it is the
    current line of the reader.
    """

    def __init__(self, main: MainScreenContext) -> None:
        self._main = main
        self._worker = LatestOnlyWorker(main.screen)
        self.is_asking = False
        """Whether a dialog is about to open, so that keys must wait."""

    def get_selected_reference(self) -> str | None:
        """Return the reference of the current item, or None if it has no reference in this workspace."""
        if self._get_selected_hit_of_other_workspace():
            return None
        panes = self._main.panes
        for pane in (panes.results, panes.library, panes.citations):
            if pane.id == panes.focused_pane_id and (row := pane.list.selected_row):
                return str(row.data.ref) if row.data is not None and row.data.ref else None
        return panes.reader.document_view.viewport.current_reference

    def _get_selected_hit_of_other_workspace(self) -> Hit | None:
        panes = self._main.panes
        row = panes.results.list.selected_row if panes.focused_pane_id == "results" else None
        return row.data if row and self._main.is_hit_of_other_workspace(row.data) else None

    def get_selected_reference_or_warn(self) -> str | None:
        """Return the reference of the current item.

        If the item has no reference, show a message and return None.
        """
        reference = self.get_selected_reference()
        if hit := self._get_selected_hit_of_other_workspace():
            self._main.show_why_key_does_nothing(
                f"This hit is in the project {hit.project}. Open the hit first."
            )
        elif reference is None:
            self._main.show_why_key_does_nothing("The selected or open item has no reference.")
        return reference

    def run_in_thread_with_activity_shown(
        self,
        activity: str,
        work: Callable[[], T],
        on_done: Callable[[T], object],
        holds_keys: bool = False,
    ) -> None:
        """Run `work` in a background thread, and pass its result to `on_done`.

        The status line shows `activity` while `work` runs, or the error if `work` fails. If
        `holds_keys` is true, keys that the user presses meanwhile wait for the dialog that
        `on_done` opens.
        """
        status = self._main.status
        status.set_activity_text("slow", activity)
        self.is_asking = holds_keys

        def clear_activity() -> None:
            self.is_asking = False
            status.set_activity_text("slow", None)

        def deliver_result(result: T) -> None:
            clear_activity()
            on_done(result)

        def report_failure(error: Exception) -> None:
            clear_activity()
            self._main.show_error(error)

        self._worker.submit_call(work, deliver_result, report_failure)

    def copy_selected_reference(self) -> None:
        """Copy the reference of the current item."""
        if reference := self.get_selected_reference_or_warn():
            self.copy_text_and_show_its_size(reference, reference)

    def copy_text_and_show_its_size(self, text: str, name: str) -> None:
        """Copy `text` to the clipboard, and show `name` and the text's size in the status line."""
        from kbtui.tui.external_programs_and_clipboard import (
            copy_text_to_clipboards,
            format_copied_size,
        )

        warning = copy_text_to_clipboards(self._main.screen.app, text)
        size = "" if name == text else f" ({format_copied_size(text)})"
        role = "warning" if warning else "strong"
        self._main.status.flash_message(warning or f"copied {name}{size}", role)

    def choose_what_to_copy(self) -> None:
        """Ask which text to copy, such as the line, the turn or the whole document, and copy it."""
        from kbtui.tui.framework.dialogs import OptionsDialog
        from kbtui.tui.reader.links_and_copyable_texts import list_copyable_texts

        viewport = self._main.panes.reader.document_view.viewport
        options = list_copyable_texts(viewport, self.get_selected_reference())

        def copy_chosen_text(chosen: tuple[str, Callable[[], str]] | None) -> None:
            if chosen is not None:
                name, get_text = chosen
                self.run_in_thread_with_activity_shown(
                    "copying …", get_text, partial(self.copy_text_and_show_its_size, name=name)
                )

        self._main.open_dialog(OptionsDialog("Copy", options), copy_chosen_text)

    def add_or_change_bookmark(self) -> None:
        """Bookmark the current item with a note, or change the note of its bookmark."""
        reference = self.get_selected_reference_or_warn()
        if reference is None:
            return
        from kbtui.userdata.bookmark_anchor_store import BookmarkAnchorStore
        from kbtui.userdata.user_data_store import UserData

        userdata = UserData(self._main.library.workspace)
        anchors = BookmarkAnchorStore(self._main.library.workspace, userdata)
        title = self.get_title_of_current_item(reference)

        def find_bookmark() -> Bookmark | None:
            return next((mark for mark in anchors.list_bookmarks() if mark.ref == reference), None)

        def ask_for_bookmark_note(known: Bookmark | None) -> None:
            def save_bookmark(note: str | None) -> None:
                if note is None:
                    return
                done = f"Changed the bookmark: {reference}" if known else f"Bookmarked {reference}"

                def save_and_anchor_bookmark() -> None:
                    userdata.save_bookmark(reference, title, note)
                    anchors.list_bookmarks()

                self.run_in_thread_with_activity_shown(
                    "bookmarking …",
                    save_and_anchor_bookmark,
                    lambda _: self._main.status.flash_message(done),
                    holds_keys=True,
                )

            from kbtui.tui.framework.dialogs import TextInputDialog

            note = known.note if known else ""
            dialog = TextInputDialog(f"Bookmark {reference}", note, "note (optional)")
            self._main.open_dialog(dialog, save_bookmark)

        self.run_in_thread_with_activity_shown(
            "reading bookmarks …", find_bookmark, ask_for_bookmark_note, holds_keys=True
        )

    def keep_copy_of_conversation(self) -> None:
        """Copy the current item's conversation into the archive of kept sessions.

        The conversations of its subagents are copied, too.
        """
        reference = self.get_selected_reference_or_warn()
        if reference is None:
            return
        workspace = self._main.library.workspace
        conversation_id = parse_ref(reference).conversation
        if conversation_id is None:
            self._main.show_why_key_does_nothing("Only conversations can be kept.")
            return

        def keep_conversation_and_subagents() -> int:
            from kbtui.conversations.conversation_repository import find_conversation
            from kbtui.conversations.session_archive import keep_copy_of_conversation

            info = find_conversation(workspace, conversation_id, counts=False)
            infos = list_conversation_and_subagents_to_keep(workspace, info)
            outcomes = [keep_copy_of_conversation(workspace, one, verified=True) for one in infos]
            return sum(outcome in ("kept", "replaced") for outcome in outcomes)

        def show_number_of_kept_sessions(count: int) -> None:
            text = f"Kept {format_counted_noun(count, 'session')}"
            self._main.status.flash_message(text if count else "It is already kept")

        from kbtui.conversations.conversation_repository import (
            list_conversation_and_subagents_to_keep,
        )

        self.run_in_thread_with_activity_shown(
            "keeping …", keep_conversation_and_subagents, show_number_of_kept_sessions
        )

    def mark_turn(self) -> None:
        """Set, change or remove the mark on the turn or call of the current item."""
        reference = self.get_selected_reference_or_warn()
        if reference is None:
            return
        main = self._main
        ref = parse_ref(reference)
        if ref.kind != "conversation" or ref.turn is None:
            main.show_why_key_does_nothing("Only a turn of a conversation can be marked.")
            return
        library = main.library

        def find_mark() -> PlacedMark | None:
            marks = library.marks(ref.conversation)
            return next(
                (one for one in marks if one.ref == reference and not one.mark.passage), None
            )

        def report_and_reload_changed_marks(message: str) -> None:
            main.status.flash_message(message)
            main.document_controller.reload_shown_document()

        def ask_for_new_or_changed_mark(known: PlacedMark | None) -> None:
            from kbtui.tui.bookmarks_and_marks_screens import ask_for_and_save_turn_mark

            ask_for_and_save_turn_mark(
                main.screen, library, reference, known, report_and_reload_changed_marks
            )

        self.run_in_thread_with_activity_shown(
            "reading marks …", find_mark, ask_for_new_or_changed_mark, holds_keys=True
        )

    def get_title_of_current_item(self, reference: str) -> str:
        """Return the title of the current item, or "" if the title is unknown.

        `reference` is the reference of this item.
        """
        panes = self._main.panes
        if panes.focused_pane_id == "results" and (row := panes.results.list.selected_row):
            return str(row.data.title)
        contents = self._main.document_controller.contents
        conversation = parse_ref(reference).conversation
        if contents and conversation is not None:
            info = contents.find_conversation(conversation)
            return info.name if info else ""
        title = panes.reader.document_view.document.title
        return sanitize_to_one_line(title) if panes.focused_pane_id == "reader" else ""

    def open_link_on_current_line(self) -> None:
        """Open the link on the current line. If there are several links, ask which one to open."""
        from kbtui.tui.framework.dialogs import OptionsDialog, make_lettered_options
        from kbtui.tui.reader.links_and_copyable_texts import find_links_at_cursor

        found = find_links_at_cursor(self._main.panes.reader.document_view.viewport)
        if not found:
            self._main.show_why_key_does_nothing("No link on this line.")
        elif len(found) == 1:
            self._open_document_link(found[0])
        else:
            options = make_lettered_options((link.text, link.href, link) for link in found)
            self._main.open_dialog(OptionsDialog("Links", options), self._open_document_link)

    def _open_document_link(self, link: DocumentLink | None) -> None:
        """Open the subject that a link refers to.

        If the link refers to a web page, image or PDF, offer to open the target in another program.
        """
        from kbtui.tui.reader.links_and_copyable_texts import (
            resolve_image_or_pdf_link,
            resolve_subject_link,
        )

        if link is None:
            return
        if link.is_web_link:
            self._offer_to_open_link(link.href)
            return
        main = self._main
        root = main.library.workspace.root
        record_path = getattr(main.panes.reader.document_view.document.record, "path", None)
        folder = record_path.parent if record_path is not None else root
        # Look for a file first, because the path of an image next to subjects looks like a slug.
        path = resolve_image_or_pdf_link(link.href, folder, root)
        if path is not None:
            self._offer_to_open_link(str(path), path)
            return
        here = main.document_controller.shown.ref if main.document_controller.shown else None
        ref = None
        if here is not None and here.kind == "subject":
            ref = resolve_subject_link(link.href, here.topic or "", here.slug or "")
        contents = main.document_controller.contents
        if ref and contents and contents.find_subject(ref.topic or "", ref.slug or ""):
            main.open_target_in_reader(make_navigation_target(ref))
            return
        reason = "kbtui opens only web pages, and subjects, images and PDFs in the workspace"
        main.status.flash_message(f"cannot open {link.href}: {reason}", "warning")

    def _offer_to_open_link(self, address: str, path: Path | None = None) -> None:
        """Show a web address or a path, and ask whether to open it in another program or to copy it."""
        from kbtui.tui import external_programs_and_clipboard
        from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog

        app, status = self._main.screen.app, self._main.status
        program, kind = ("system's viewer", "path") if path else ("browser", "address")

        def open_or_copy_link(choice: str | None) -> None:
            if choice == "copy":
                self.copy_text_and_show_its_size(address, address)
            elif choice == "open":
                if path:
                    is_open = external_programs_and_clipboard.open_in_default_program(str(path))
                else:
                    is_open = external_programs_and_clipboard.open_web_address_in_browser(
                        app, address
                    )
                if is_open:
                    status.flash_message(f"opened {address} in the {program}")
                else:
                    status.flash_message(f"no program found to open {address}", "warning")

        options = [
            DialogOption("o", f"open it in the {program}", "", "open"),
            DialogOption("y", f"copy the {kind}", "", "copy"),
        ]
        self._main.open_dialog(OptionsDialog(address, options), open_or_copy_link)

    def edit_subject_or_used_file(self) -> None:
        """Open the current subject, or a file that the current call or turn used, in the user's editor."""
        reference = self.get_selected_reference_or_warn()
        if reference is None:
            return
        main = self._main
        ref = parse_ref(reference)
        if ref.kind == "conversation" and ref.turn is not None:
            from kbtui.tui.main.item_file_actions import ItemFileActions

            ItemFileActions(main, self.run_in_thread_with_activity_shown).edit_file_of_call_or_turn(
                ref
            )
            return
        if ref.kind == "conversation":
            main.show_why_key_does_nothing("To edit a file, go to the tool call or change first.")
            return
        if ref.kind != "subject":
            key = find_key_label_of_command("copy_more", main.screen.configured_keys)
            hint = f" Press {key} to copy the text." if key else ""
            main.status.flash_message(f"Only subject files can be edited here.{hint}", "warning")
            return
        from kbtui.tui.subject_file_actions import SubjectFileActions

        show, reload = main.status.flash_message, main.document_controller.reload_shown_document
        actions = SubjectFileActions(main.screen, main.library, show, lambda _: reload())
        self.run_in_thread_with_activity_shown(
            "opening the editor …",
            partial(actions.find_subject_with_line_and_fetching_source, ref),
            actions.edit_subject_and_report,
            holds_keys=True,
        )

    def list_turns_of_file_and_open_one(self) -> None:
        """List the turns that changed or read the file of the current item."""
        reference = self.get_selected_reference_or_warn()
        if reference is None:
            return
        from kbtui.tui.main.item_file_actions import ItemFileActions

        actions = ItemFileActions(self._main, self.run_in_thread_with_activity_shown)
        actions.list_turns_of_file_and_open_one(parse_ref(reference))

    def offer_commands_that_continue_conversation(self) -> None:
        """Offer commands that continue the current item's conversation in its agent."""
        reference = self.get_selected_reference_or_warn()
        if reference is None:
            return
        ref = parse_ref(reference)
        if ref.kind != "conversation":
            self._main.show_why_key_does_nothing(
                "Only a conversation can be continued in its agent."
            )
            return
        self.run_in_thread_with_activity_shown(
            "looking for the agent's commands …",
            partial(_list_agent_commands_or_raise_reason, self._main.library.workspace, ref),
            partial(self._show_commands_that_continue_conversation, ref),
            holds_keys=True,
        )

    def _show_commands_that_continue_conversation(
        self, ref: Ref, commands: list[AgentCommandForConversation]
    ) -> None:
        from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog

        copying: list[DialogOption] = []
        running: list[DialogOption] = []
        for command in commands:
            key, name = _KEYS[command.purpose], _describe_purpose_of_agent_command(command, ref)
            text = command.shell_command
            copy = partial(self.copy_text_and_show_its_size, text, text)
            run = partial(self._run_agent_command_if_confirmed, command)
            copying.append(DialogOption(key, f"copy: {name}", text, copy))
            running.append(DialogOption(key.upper(), f"run: {name}", "asks first", run))
        title = f"Continue {sanitize_to_one_line(str(ref))}"
        dialog = OptionsDialog(title, [*copying, *running])
        self._main.open_dialog(dialog, lambda act: act() if act else None)

    def _run_agent_command_if_confirmed(self, command: AgentCommandForConversation) -> None:
        """Ask whether to run a command, and run it in the terminal. The TUI returns when the agent exits."""
        from shlex import join

        from kbtui.conversations.agent_commands_for_conversations import run_agent_command
        from kbtui.tui.external_programs_and_clipboard import run_in_terminal
        from kbtui.tui.framework.dialogs import ConfirmDialog

        main, program = self._main, command.words[0]

        def report_exit(code: int) -> None:
            if code:
                main.status.flash_message(f"{program} exited with code {code}", "warning")
            else:
                main.status.flash_message(f"{program} has exited", "dim")

        def run_if_confirmed(answer: str | None) -> None:
            if answer == "y":
                work = partial(run_agent_command, command)
                how = ("a program", "copy the command")
                run_in_terminal(main.screen.app, work, report_exit, main.show_error, *how)

        question = f"Run `{join(command.words)}` in {command.directory}?"
        main.open_dialog(ConfirmDialog(question, {"y": "run it"}), run_if_confirmed)

    def export_conversation(self) -> None:
        """Ask for a file and for the content to include, and write the open conversation to the file."""
        from kbtui.tui.framework.dialogs import ConfirmDialog, FormDialog, FormField

        main, library = self._main, self._main.library
        shown = main.document_controller.shown
        conversation = shown.ref.conversation if shown and shown.ref else None
        if conversation is None:
            key = find_key_label_of_command("export", main.screen.configured_keys)
            hint = f", then press {key}" if key else ""
            main.show_why_key_does_nothing(f"Open a conversation first{hint}.")
            return

        def export_after_confirmation(export: tuple[Path, str, int] | None) -> None:
            if export is None:
                return
            path, text, masked = export
            secrets = f"; {format_counted_noun(masked, 'secret')} masked" if masked else ""

            def write_export_if_confirmed(answer: str | None) -> None:
                if answer == "y":
                    self.run_in_thread_with_activity_shown(
                        "exporting …",
                        lambda: write_text_to_export_file(library.workspace, path, text),
                        lambda _: main.status.flash_message(f"wrote {path}{secrets}"),
                    )

            if path.exists():
                question = f"{path} already exists. Overwrite it?"
                main.open_dialog(
                    ConfirmDialog(question, {"y": "overwrite"}), write_export_if_confirmed
                )
            else:
                write_export_if_confirmed("y")

        included = "What to include (citations are always included)."
        default_path = str(Path.cwd() / f"{conversation}.md")
        names = "The extension sets the format: .html, which opens in any browser, .md, .json or .jsonl."
        fields = (
            FormField("what", "what", "messages", included, tuple(EXPORTED_KINDS)),
            FormField("turns", "turns", "all", "The turns to include: all, 3, 2-5 or 1,4,7-9."),
            FormField("secrets", "secrets", MASKED, SECRETS_HELP, (MASKED, "as they are")),
            FormField("path", "file", default_path, names),
        )
        dialog = FormDialog(
            f"Export {conversation} with its citations",
            fields,
            lambda values: prepare_conversation_export(library, conversation, values),
            lambda error: format_error_on_one_line(error, library.workspace.root),
            "write",
        )
        main.open_dialog(dialog, export_after_confirmation)

    def update_jp_tools(self, on_written: Callable[[], None]) -> None:
        """Show how the installed tools for JP would change, and update the tools if the user agrees."""
        from kbtui.tui.doctor_screen import offer_tool_update

        main = self._main

        run = partial(
            self.run_in_thread_with_activity_shown, "checking the tools …", holds_keys=True
        )
        offer_tool_update(main.screen.app, main.library, run, main.status.flash_message, on_written)

    def propose_first_topic(self, on_written: Callable[[], None]) -> None:
        """Propose lines for `kb.toml` that declare a first topic, and write them if the user agrees."""
        main = self._main
        contents = main.document_controller.contents
        reason = ""
        if contents is None:
            reason = "the topics and conversations are still being read"
        elif contents.listings:
            reason = "the workspace already has topics"
        elif contents.problems:
            reason = f"{contents.topics_file} cannot be read"
        if reason:
            message = f"{reason}; guide/topics explains how to declare topics"
            main.status.flash_message(message)
            return

        def show_topic_proposal(proposal: FirstTopicKbTomlChange) -> None:
            def write_topic_if_confirmed(is_yes: bool | None) -> None:
                if is_yes:
                    self.run_in_thread_with_activity_shown(
                        "writing …", proposal.write_proposed_topic, report_written_topic
                    )

            from kbtui.tui.secondary_screen import DocumentOverlayScreen

            page = make_first_topic_page(proposal, main.library.workspace.root)
            screen = DocumentOverlayScreen("A first topic", page, confirm_label="write it")
            main.open_dialog(screen, write_topic_if_confirmed)

        def report_written_topic(file: str) -> None:
            workshop = find_key_label_of_command("workshop", main.screen.configured_keys)
            hint = f"; press {workshop} to open the prompt workshop" if workshop else ""
            main.status.flash_message(f"wrote {file}, which declares a topic{hint}")
            on_written()

        self.run_in_thread_with_activity_shown(
            "looking for text files …",
            lambda: propose_likeliest_directory_as_first_topic(main.library),
            show_topic_proposal,
        )


def prepare_conversation_export(
    library: Library, conversation: str, values: FormValues
) -> tuple[Path, str, int]:
    """Return the export of a conversation: its file, its text, and how many secrets were masked in it.

    `values` are those of the export form. Raises `KbtuiError` if the path is invalid.
    """
    from kbtui.assistant.conversation_tools import resolve_included_event_kinds
    from kbtui.citations.shared_conversation_export import (
        format_shared_conversation,
        get_export_format_of_path,
        parse_turn_ranges,
        prepare_shared_conversation,
    )

    if not values["path"]:
        raise KbtuiError("enter a file name")
    path = Path(values["path"]).expanduser()
    if path.is_dir():
        path /= f"{conversation}.md"
    if not path.parent.is_dir():
        raise KbtuiError("no such directory", where=str(path.parent))
    check_export_path_is_outside_jp_directories(library.workspace, path)
    found = library.load_conversation(conversation)
    citations = library.extract_citations_from_tool_calls(found)
    kinds = resolve_included_event_kinds(EXPORTED_KINDS[values["what"]])
    turns = found.turns
    if values["turns"] not in ("", "all"):
        numbers = parse_turn_ranges(values["turns"])
        turns = [turn for turn in turns if turn.number in numbers]
        if not turns:
            raise KbtuiError(
                f"the conversation has no such turn; it has turns 1 to {len(found.turns)}"
            )
    marks, is_masked = library.map_marks_by_turn(found), values["secrets"] == MASKED
    shared = prepare_shared_conversation(
        found, turns, kinds, citations, marks, masks_secrets=is_masked
    )
    text = format_shared_conversation(shared, get_export_format_of_path(str(path)))
    masked = sum(one.times for one in shared.masked or ())
    return path, text, masked


class FirstTopicKbTomlChange(NamedTuple):
    """A proposed change to `kb.toml` that declares `directory` as a topic."""

    change: TomlFileChange
    directory: Path
    text_files: int
    """The number of text files that were found in the directory."""

    def write_proposed_topic(self) -> str:
        """Create the directory if it is missing, and write the change.

        Return the name of the changed file. Raises `KbtuiError` on failure.
        """
        from kbtui.knowledge.toml_config_editor import write_toml_file_change

        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"the directory cannot be created: {error.strerror}"
            raise KbtuiError(reason, where=str(self.directory)) from error
        write_toml_file_change(self.change)
        return self.change.name


def propose_likeliest_directory_as_first_topic(library: Library) -> FirstTopicKbTomlChange:
    """Propose a topic for the directory that most likely contains the project's documents."""
    from kbtui.knowledge.knowledge_data_types import Topic
    from kbtui.knowledge.toml_config_editor import plan_toml_change_that_declares_topic

    root = library.workspace.root
    candidates = _find_candidate_topic_directories(root)
    directory, text_files = max(candidates, key=lambda pair: pair[1], default=(root / "docs", 0))
    topic = Topic(
        id="project",
        subjects=str(directory.relative_to(root)),
        title="Project Knowledge",
        introduction="what everybody here should know",
    )
    change = plan_toml_change_that_declares_topic(library.load_knowledge(), topic)
    return FirstTopicKbTomlChange(change, directory, text_files)


def _find_candidate_topic_directories(root: Path) -> list[tuple[Path, int]]:
    """Return the directories in `root` that may contain documents, each with its number of text files.

    The result contains the directories whose names are in `LIKELY_NAMES`. If none of them has a
    text file, it contains all other directories instead, unless `root` is `/` or the home
    directory, which are not projects. If none of those has a text file either, it is empty.
    """
    try:
        names = [entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    names = sorted(name for name in names if not name.startswith("."))
    likely = [name for name in LIKELY_NAMES if name in names]
    others = [name for name in names if name not in likely]
    if str(root) in {"/", os.path.realpath(get_user_home() or "/")}:
        others = []
    for group in (likely, others):
        found = [(root / name, _count_text_files(root / name)) for name in group]
        if any(count for _, count in found):
            return found
    return []


def _count_text_files(directory: Path) -> int:
    count = seen = 0
    for folder, folders, files in os.walk(directory):
        seen += len(files)
        count += sum(name.lower().endswith(TEXT_SUFFIXES) for name in files)
        depth = len(Path(folder).relative_to(directory).parts)
        stop = depth >= SEARCH_DEPTH or seen > MAX_SEARCHED_FILES
        folders[:] = [] if stop else [name for name in folders if not name.startswith(".")]
    return count


def make_first_topic_page(proposal: FirstTopicKbTomlChange, root: Path) -> ReaderDocument:
    """Return the page that shows the proposed change of `kb.toml` and asks whether to write it."""
    from kbtui.tui.reader.reader_blocks import (
        LeftAndRightLineBlock,
        ParagraphReaderBlock,
        ReaderBlock,
        VerbatimTextReaderBlock,
    )

    name = proposal.directory.relative_to(root)
    change = proposal.change
    lead = "These lines will be added to " if change.old else "This will be written to "
    if proposal.text_files:
        count = format_counted_noun(proposal.text_files, "text file")
        about = f"{name}/ has {count}; each becomes a subject."
    elif proposal.directory.is_dir():
        about = f"{name}/ has no text files yet; each one that you add becomes a subject."
    else:
        about = f"An empty {name}/ will be created; each text file that you add becomes a subject."
    later = "You can change the title, introduction and directory later."
    blocks: list[ReaderBlock] = [
        ParagraphReaderBlock("where", [(lead, "dim"), (str(change.path), "strong"), (":", "dim")]),
        VerbatimTextReaderBlock("diff", change.diff, language="diff", panel=True, above=1),
        ParagraphReaderBlock("directory", [(about, "")], above=1),
        LeftAndRightLineBlock("ask", [("Write it?", "h2")], [("y: yes · n: no", "key")], above=1),
        ParagraphReaderBlock("later", [(later, "dim")]),
    ]
    return ReaderDocument("first", "A first topic", blocks)


_KEYS: dict[CommandPurpose, str] = {"resume": "c", "fork": "f", "attach": "a"}
"""The key that copies a command, by the command's purpose. The same key in upper case runs the command."""


def _list_agent_commands_or_raise_reason(
    workspace: Workspace, ref: Ref
) -> list[AgentCommandForConversation]:
    from kbtui.conversations.agent_commands_for_conversations import (
        list_agent_commands_for_conversation,
        make_agent_command_for_conversation,
    )
    from kbtui.conversations.conversation_repository import find_conversation

    info = find_conversation(workspace, ref.conversation or "")
    # If there is no command, `make_agent_command_for_conversation` raises an error that says why.
    return list_agent_commands_for_conversation(workspace, info, ref.turn) or [
        make_agent_command_for_conversation(workspace, info, ref.turn, "resume")
    ]


def _describe_purpose_of_agent_command(command: AgentCommandForConversation, ref: Ref) -> str:
    if command.purpose == "resume":
        return "continue"
    if command.purpose == "attach":
        return f"attach turn {ref.turn}" if ref.turn is not None else "attach all turns"
    last = command.last_turn
    return f"fork after turn {last}" if last is not None else "fork, all turns"
