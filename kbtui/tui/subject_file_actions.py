"""Creates and edits subject files, and moves them to the trash and back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, UsageError, format_error_on_one_line
from kbtui.knowledge import subject_editing
from kbtui.knowledge.front_matter import split_front_matter
from kbtui.knowledge.subject_files import make_safe_file_name
from kbtui.tui.external_programs_and_clipboard import run_in_terminal
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import StyledScreen, get_configured_keys
from kbtui.tui.framework.dialogs import ConfirmDialog, FormDialog, FormField, FormValues
from kbtui.tui.tui_command_table import find_key_label_of_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import Subject, Topic
    from kbtui.library import Library
    from kbtui.references import Ref

    PlannedSubject = tuple[KnowledgeBase, Topic, subject_editing.SubjectDraft]

TYPE_HELP = "note, rule, pattern, reference, decision, or any other word"


class SubjectFileActions:
    """Creates, changes and removes subject files for a screen.

    * `show_message` is called with a message and its style role.
    * `on_written` is called with the reference of each subject that was written or removed.
    * `trashed` lists the files that were moved to the trash, in the order in which they were moved.
      The caller can pass the same list to several screens. Then a later screen can restore files that
      an earlier screen has moved.
    """

    def __init__(
        self,
        screen: StyledScreen,
        library: Library,
        show_message: Callable[[str, str], None],
        on_written: Callable[[str], None],
        trashed: list[subject_editing.TrashedSubjectFile] | None = None,
    ) -> None:
        self._screen, self._library = screen, library
        self._show_message, self._on_written = show_message, on_written
        self._worker = LatestOnlyWorker(screen)
        self._trashed = [] if trashed is None else trashed

    def _show_error(self, error: Exception) -> None:
        self._show_message(self._describe_error(error), "error")

    def _describe_error(self, error: Exception) -> str:
        return format_error_on_one_line(error, self._library.workspace.root)

    def ask_for_and_create_subject(self, title: str = "", topic: str | None = None) -> None:
        """Ask for the title, topic, type, tags and file name, then open the editor to write the text."""
        open_form = partial(self._open_new_subject_form, title, topic)
        self._worker.submit_call(self._library.load_knowledge, open_form, self._show_error)

    def _open_new_subject_form(
        self, title: str, topic: str | None, knowledge: KnowledgeBase
    ) -> None:
        topics = tuple(name for name, found in knowledge.topics.items() if found.enable)
        if not topics:
            hint = knowledge.hint_to_declare_topic
            self._show_error(UsageError("there is no topic to add the entry to", hint=hint))
            return
        title_help = "Title of the entry; the file name is generated from it."
        topic_help = "Topic of the entry; choose it with ← and →."
        slug_help = "Separate folders with /. Without a file name, kbtui makes one from the title."
        fields = (
            FormField("title", "title", title, title_help),
            FormField("topic", "topic", topic or "", topic_help, topics),
            FormField("type", "type", "note", TYPE_HELP),
            FormField("tags", "tags", "", "Comma-separated, optional."),
            FormField("slug", "file name", "", slug_help),
        )
        form = FormDialog(
            "New entry",
            fields,
            self._check_form_and_plan_new_subject,
            self._describe_error,
            "write the text",
        )
        self._screen.app.push_screen(form, self._write_planned_subject_in_editor)

    def _check_form_and_plan_new_subject(self, values: FormValues) -> PlannedSubject:
        """Check the form, and return the knowledge base, the topic and the draft of the new subject.

        The form is checked before the user writes the text, so that no text is lost after an error.
        """
        if not values["title"]:
            raise subject_editing.MissingSubjectTitleError("a subject needs a title")
        subject_editing.find_editor_command()
        knowledge = self._library.load_knowledge()
        topic = subject_editing.get_named_or_only_topic(knowledge, values["topic"])
        given = values["tags"].replace(";", ",").split(",")
        tags = tuple(tag for part in given if (tag := part.strip()))
        draft = subject_editing.SubjectDraft(
            values["title"], type=values["type"] or "note", tags=tags, slug=values["slug"] or None
        )
        slug = draft.slug or make_safe_file_name(draft.title)
        subject_editing.validate_new_slug(knowledge, topic, slug)
        return knowledge, topic, draft

    def _write_planned_subject_in_editor(self, planned: PlannedSubject | None) -> None:
        if planned is None:
            return

        def report_new_entry(subject: Subject | None) -> None:
            if subject is None:
                self._show_message("the text was not changed, so nothing was written", "warning")
                return
            self._report_written_or_removed_subject(f"created {subject.ref}", subject)

        edit = partial(subject_editing.edit_draft_and_add_subject, *planned)
        run_in_terminal(self._screen.app, edit, report_new_entry, self._show_error)

    def edit_subject(self, ref: Ref) -> None:
        """Open a subject in the user's editor."""
        find_subject = partial(self.find_subject_with_line_and_fetching_source, ref)
        self._worker.submit_call(find_subject, self.edit_subject_and_report, self._show_error)

    def find_subject_with_line_and_fetching_source(
        self, ref: Ref
    ) -> tuple[Subject, int, str | None]:
        """Return a subject, the line to edit, and the name of the source that fetched the subject.

        The line is 0 if `ref` contains no line. The name is None if no source fetched the subject, or
        if the subject cannot be read. Called in a background thread.
        """
        line = ref.lines[0] if ref.lines else 0
        subject_editing.find_editor_command()
        subject = self._library.find_subject(ref)
        try:
            text = split_front_matter(self._library.read_subject_text(subject))
            return subject, line, text.fetching_source_name
        except KbtuiError:
            return (
                subject,
                line,
                None,
            )  # Return the subject anyway, because the user may want to repair the file in the editor.

    def edit_subject_and_report(self, found: tuple[Subject, int, str | None]) -> None:
        """Open a subject in the user's editor, and then show a message about the change.

        `found` is the result of `find_subject_with_line_and_fetching_source`.
        """
        subject, line, source = found
        name = subject.ref

        def report_subject_change(is_changed: bool) -> None:
            if not is_changed:
                self._show_message(f"{name} was not changed", "dim")
                return
            try:
                problem = split_front_matter(self._library.read_subject_text(subject)).problem
            except KbtuiError as error:
                problem = error.message
            if problem:
                message = f"changed {name}, but its front matter is ignored: {problem}"
                self._show_message(message, "warning")
            else:
                note = f"; the source {source!r} no longer updates it" if source else ""
                self._show_message(f"changed {name}{note}", "inserted")
            self._on_written(name)

        edit = partial(subject_editing.edit_subject_in_editor, subject, line)
        run_in_terminal(self._screen.app, edit, report_subject_change, self._show_error)

    def move_subject_to_trash_if_confirmed(self, ref: Ref) -> None:
        """Move a subject's file to the trash if the user agrees.

        If no trash is available, offer to delete the file.
        """
        find_subject = partial(self._library.find_subject, ref)
        self._worker.submit_call(find_subject, self._ask_to_trash_subject, self._show_error)

    def _ask_to_trash_subject(self, subject: Subject) -> None:
        def trash_subject_on_confirmation(answer: str | None) -> None:
            if answer is not None:
                self._worker.submit_call(
                    partial(subject_editing.move_subject_to_trash, subject),
                    partial(self._report_trashed_file, subject),
                    partial(self._ask_to_delete_subject_without_trash, subject),
                )

        question = f"Move {subject.ref} ({subject.path}) to the trash?"
        self._screen.app.push_screen(
            ConfirmDialog(question, {"y": "move it"}), trash_subject_on_confirmation
        )

    def _ask_to_delete_subject_without_trash(self, subject: Subject, error: Exception) -> None:
        def delete_subject_if_confirmed(answer: str | None) -> None:
            if answer is not None:
                self._worker.submit_call(
                    partial(subject_editing.delete_subject_permanently, subject),
                    lambda _: self._report_written_or_removed_subject(
                        f"deleted {subject.ref}", subject
                    ),
                    self._show_error,
                )

        if not isinstance(error, subject_editing.TrashUnavailableError):
            self._show_error(error)
            return
        question = f"{error.message}. Delete {subject.path} permanently?"
        dialog = ConfirmDialog(question, {"D": "delete it permanently"})
        self._screen.app.push_screen(dialog, delete_subject_if_confirmed)

    def _report_trashed_file(
        self, subject: Subject, trashed: subject_editing.TrashedSubjectFile | None
    ) -> None:
        if trashed is not None:
            self._trashed.append(trashed)
        key = find_key_label_of_command("entries.undo", get_configured_keys(self._screen))
        undo = f" ({key} restores it)" if key and trashed is not None else ""
        self._report_written_or_removed_subject(f"moved to the trash: {subject.ref}{undo}", subject)

    def restore_last_trashed_subject(self) -> None:
        """Restore the subject that was trashed last: move its file from the trash back to its place."""
        if not self._trashed:
            self._show_message("nothing to undo", "warning")
            return
        trashed = self._trashed.pop()
        subject, text = trashed.subject, f"moved back: {trashed.subject.ref}"
        self._worker.submit_call(
            partial(subject_editing.restore_trashed_subject_file, trashed),
            lambda _: self._report_written_or_removed_subject(text, subject),
            self._show_error,
        )

    @property
    def has_trashed_subject(self) -> bool:
        """Whether a subject can be moved back from the trash."""
        return bool(self._trashed)

    def _report_written_or_removed_subject(self, text: str, subject: Subject) -> None:
        self._show_message(text, "inserted")
        self._on_written(subject.ref)
