"""Writing entries from the TUI: a new one, a change in the person's editor, the trash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import SuspendNotSupported

from kbtui.errors import KbtuiError, UsageError, describe_error
from kbtui.tui.framework.dialogs import ConfirmDialog, FormDialog, FormField, FormValues
from kbtui.tui.framework.workers import LatestOnlyWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.authoring import Draft
    from kbtui.knowledge.models import Subject, Topic
    from kbtui.library import Library
    from kbtui.refs import Ref
    from kbtui.tui.framework.styled_widget import StyledScreen

    Planned = tuple[Knowledge, Topic, Draft]

TYPES = "note, rule, pattern, reference, decision, or a word of your own"


class EntryWriter:
    """Makes, changes and removes subject files for a screen.

    `say` is given words and a role; `wrote` the reference of what was written or removed.
    """

    def __init__(
        self,
        screen: StyledScreen,
        library: Library,
        say: Callable[[str, str], None],
        wrote: Callable[[str], None],
    ) -> None:
        self._screen, self._library = screen, library
        self._say, self._wrote = say, wrote
        self._lane = LatestOnlyWorker(screen)

    def _failed(self, error: Exception) -> None:
        self._say(self._words(error), "error")

    def _words(self, error: Exception) -> str:
        return describe_error(error, self._library.workspace.root)

    # a new one

    def new(self, title: str = "", topic: str | None = None) -> None:
        """Ask for title, topic, type and tags, then for the text in the editor."""
        self._lane.submit(
            self._library.knowledge, lambda known: self._ask(known, title, topic), self._failed
        )

    def _ask(self, knowledge: Knowledge, title: str, topic: str | None) -> None:
        topics = tuple(name for name, found in knowledge.topics.items() if found.enable)
        if not topics:
            hint = "declare one in .jp/kb.toml as [kb.topic.ID]"
            self._failed(UsageError("there is no topic to write into", hint=hint))
            return
        fields = (
            FormField(
                "title", "title", title, "What it is called; its file's name is made of this."
            ),
            FormField("topic", "topic", topic or "", "Where it goes: ← and → choose.", topics),
            FormField("type", "type", "note", TYPES),
            FormField("tags", "tags", "", "Words with commas between them; may stay empty."),
            FormField("slug", "file name", "", "Empty: made of the title. Folders with /."),
        )
        form = FormDialog("New entry", fields, self._plan, self._words, "write the text")
        self._screen.app.push_screen(form, self._planned)

    def _plan(self, values: FormValues) -> Planned:
        """In a thread: see that what would be edited could be written."""
        from kbtui.knowledge import authoring
        from kbtui.knowledge.subject_files import make_file_name

        if not values["title"]:
            raise authoring.MissingTitle("an entry needs a title")
        authoring.find_editor()
        knowledge = self._library.knowledge()
        topic = authoring.choose_topic(knowledge, values["topic"])
        tags = tuple(part.strip() for part in values["tags"].split(",") if part.strip())
        draft = authoring.Draft(
            values["title"], type=values["type"] or "note", tags=tags, slug=values["slug"] or None
        )
        authoring.check_slug_is_free(knowledge, topic, draft.slug or make_file_name(draft.title))
        return knowledge, topic, draft

    def _planned(self, planned: Planned | None) -> None:
        if planned is None:
            return
        from kbtui.knowledge.authoring import edit_draft

        found = self._lend(lambda: edit_draft(*planned))
        if found is not None and found[0] is None:
            self._say("the text was left as it was, so nothing was written", "warning")
        elif found is not None:
            ref = f"{planned[1].id}/{found[0].slug}"
            self._say(f"written: {ref}", "inserted")
            self._wrote(ref)

    # changing

    def edit(self, ref: Ref) -> None:
        """Open a subject in the editor; its id and its citations stay."""
        self._lane.submit(lambda: self._to_edit(ref), self._edit, self._failed)

    def _to_edit(self, ref: Ref) -> tuple[Subject, str | None]:
        from kbtui.knowledge import authoring
        from kbtui.knowledge.front_matter import split_front_matter

        authoring.find_editor()
        subject = self._library.subject(ref)
        try:
            return subject, split_front_matter(self._library.subject_text(subject)).source
        except KbtuiError:
            return subject, None  # it may be edited to be readable again

    def _edit(self, found: tuple[Subject, str | None]) -> None:
        from kbtui.knowledge import authoring
        from kbtui.knowledge.front_matter import split_front_matter

        subject, source = found
        name = f"{subject.topic}/{subject.slug}"
        changed = self._lend(lambda: authoring.edit_subject(subject))
        if changed is None:
            return
        if not changed[0]:
            self._say(f"{name} was left as it was", "dim")
            return
        try:
            problem = split_front_matter(self._library.subject_text(subject)).problem
        except KbtuiError as error:
            problem = error.message
        if problem:
            self._say(
                f"{name} is changed, but its front matter counts for nothing: {problem}", "warning"
            )
        elif source:
            self._say(
                f"{name} is changed; the source {source!r} leaves it alone from now on", "inserted"
            )
        else:
            self._say(f"{name} is changed", "inserted")
        self._wrote(name)

    def _lend(self, work: Callable[[], Any]) -> tuple[Any] | None:
        """Do something while the terminal belongs to the editor; None when it failed."""
        try:
            with self._screen.app.suspend():
                return (work(),)
        except SuspendNotSupported:
            self._failed(UsageError("this terminal cannot be lent to an editor"))
        except (KbtuiError, OSError, ValueError) as error:
            self._failed(error)
        return None

    # removing

    def remove(self, ref: Ref) -> None:
        """Ask, and move a subject's file to the trash."""
        self._lane.submit(lambda: self._library.subject(ref), self._ask_remove, self._failed)

    def _ask_remove(self, subject: Subject) -> None:
        def answered(answer: str | None) -> None:
            if answer == "y":
                from kbtui.knowledge.authoring import trash_subject

                self._lane.submit(
                    lambda: trash_subject(subject),
                    lambda _: self._removed(subject, "is in the trash"),
                    lambda error: self._no_trash(subject, error),
                )

        name = f"{subject.topic}/{subject.slug}"
        question = f"Move {name} ({subject.path}) to the trash?"
        self._screen.app.push_screen(ConfirmDialog(question, {"y": "move it"}), answered)

    def _no_trash(self, subject: Subject, error: Exception) -> None:
        from kbtui.knowledge.authoring import TrashUnavailable, delete_subject

        if not isinstance(error, TrashUnavailable):
            self._failed(error)
            return

        def answered(answer: str | None) -> None:
            if answer == "D":
                self._lane.submit(
                    lambda: delete_subject(subject),
                    lambda _: self._removed(subject, "is deleted"),
                    self._failed,
                )

        question = f"{error.message}. Delete {subject.path} for good?"
        self._screen.app.push_screen(ConfirmDialog(question, {"D": "delete it for good"}), answered)

    def _removed(self, subject: Subject, how: str) -> None:
        name = f"{subject.topic}/{subject.slug}"
        self._say(f"{name} {how}", "inserted")
        self._wrote(name)
