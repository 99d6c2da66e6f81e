"""Creates, edits and deletes the user's own subjects."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.file_reading_and_writing import rename_staged_file_unless_path_exists
from kbtui.foreground_program import run_program_in_terminal
from kbtui.knowledge.front_matter import join_front_matter_and_body, split_front_matter
from kbtui.knowledge.subject_files import (
    create_directory_inside_workspace,
    create_topic_directory,
    make_safe_file_name,
    validate_slug,
    write_new_file,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace.paths import get_user_home

if TYPE_CHECKING:
    from kbtui.knowledge.knowledge_base import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import Subject, Topic

UNTITLED = "Untitled"
_TERMINAL_EDITORS = """
    vi vim nvim view ex ed nano pico micro emacs jed joe jmacs mcedit ne helix hx kak less more
    sensible-editor
"""
"""Editors that need a terminal. Without one, they would hang or damage the file."""

_EDITORS = {
    "+LINE PATH": "vi vim nvim view nano pico micro emacs emacsclient kak joe jed mg ne gedit",
    "PATH:LINE": "hx helix subl sublime_text zed",
    "--goto PATH:LINE": "code code-insiders codium cursor",
}
"""Maps the arguments that open the file PATH at LINE to the editors that accept these arguments."""


class MissingSubjectTitleError(UsageError):
    """A new subject has no title."""


class TrashUnavailableError(KbtuiError):
    """The system has no trash for this file."""


@dataclass(frozen=True)
class SubjectDraft:
    """A subject to be written. If `slug` is None, the slug is generated from the title."""

    title: str
    text: str = ""
    type: str = "note"
    tags: tuple[str, ...] = ()
    slug: str | None = None

    @property
    def file_text(self) -> str:
        """The whole file: front matter and text."""
        facts = {
            "title": " ".join(self.title.split()) or UNTITLED,
            "type": self.type,
            "tags": list(self.tags),
            # Include the time: a date alone would sort before everything created on that day.
            "created": datetime.now().astimezone().replace(microsecond=0),
        }
        return join_front_matter_and_body(facts, self.text)


def get_named_or_only_topic(knowledge: KnowledgeBase, name: str | None) -> Topic:
    """Return the topic with the id or title `name`, or the only topic if `name` is None.

    Raises `KbtuiError` if there is no such topic, or if `name` is None and there are several
    topics.
    """
    if name is not None:
        return knowledge.resolve_topic(name)
    topics = [topic for topic in knowledge.topics.values() if topic.enable]
    if len(topics) == 1:
        return topics[0]
    known = ", ".join(topic.id for topic in topics)
    hint = f"topics: {known}" if known else knowledge.hint_to_declare_topic
    raise UsageError("choose a topic", where="--topic", hint=hint)


def add_subject(knowledge: KnowledgeBase, topic: Topic, draft: SubjectDraft) -> Subject:
    """Write a draft into a topic, and return the new subject.

    Raises `MissingSubjectTitleError` or `UsageError`.
    """
    slug = choose_slug_for_draft(knowledge, topic, draft)
    return _write_subject_file(knowledge, topic, slug, draft.file_text)


def choose_slug_for_draft(knowledge: KnowledgeBase, topic: Topic, draft: SubjectDraft) -> str:
    """Return the slug that `add_subject` would choose for a draft; raises the same errors as `add_subject`."""
    if not draft.title.strip():
        raise MissingSubjectTitleError("a subject needs a title", hint="add --title")
    return validate_new_slug(knowledge, topic, draft.slug or make_safe_file_name(draft.title))


def edit_draft_and_add_subject(
    knowledge: KnowledgeBase, topic: Topic, draft: SubjectDraft
) -> Subject | None:
    """Open a draft in the user's editor, and write the edited text as a subject.

    Returns None if the user did not change the draft, or deleted all of its text. If the subject
    cannot be written, raises a `KbtuiError` whose hint contains the path of the temporary file with
    the user's text.
    """
    editor, document = find_editor_command(), draft.file_text
    with tempfile.NamedTemporaryFile(suffix=".md", prefix="kbtui-", delete=False) as file:
        file.write(document.encode())
    path = Path(file.name)
    is_settled = False
    try:
        _run_editor([*editor, str(path)])
        text = path.read_text("utf-8")
        found = None
        if text != document and text.strip():
            if problem := split_front_matter(text).problem:
                raise UsageError(f"the front matter is invalid: {problem}")
            slug = draft.slug or make_safe_file_name(_choose_draft_title(text, draft.title))
            found = _write_subject_file(knowledge, topic, slug, text)
        is_settled = True
        return found
    except (KbtuiError, OSError, ValueError) as error:
        if _is_file_unchanged_or_empty(path, document.encode()):
            raise
        raise _add_draft_path_to_error(error, path) from error
    finally:
        if is_settled or _is_file_unchanged_or_empty(path, document.encode()):
            path.unlink(missing_ok=True)


def _is_file_unchanged_or_empty(path: Path, before: bytes) -> bool:
    """Return whether the file at `path` still contains `before`, is empty, or is missing."""
    try:
        return path.read_bytes() in {before, b""}
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _add_draft_path_to_error(error: Exception, path: Path) -> KbtuiError:
    """Return an error whose hint contains the path of the file with the user's text."""
    cause = error if isinstance(error, KbtuiError) else KbtuiError(str(error))
    hint = "; ".join(filter(None, [cause.hint, f"your text is in {path}"]))
    return KbtuiError(cause.message, where=cause.where, hint=hint)


def _choose_draft_title(text: str, otherwise: str) -> str:
    """Return the title of an edited draft.

    The title is the first of these that exists: the title in the front matter, the first heading,
    and `otherwise`. Raises `MissingSubjectTitleError` if none of them exists, if the title in the front
    matter is empty, or if the title is `UNTITLED`.
    """
    split = split_front_matter(text)
    is_emptied = "title" in split.facts and not str(split.facts["title"] or "").strip()
    title = None if is_emptied else split.title or otherwise.strip()
    if not title or title == UNTITLED:
        raise MissingSubjectTitleError("a subject needs a title")
    return title


def validate_new_slug(knowledge: KnowledgeBase, topic: Topic, slug: str) -> str:
    """Return the slug for a new file; raises `UsageError` if the slug is taken or invalid."""
    slug = validate_slug(slug.removesuffix(".md"))
    existing = knowledge.find_subject(topic.id, slug)
    # A new file in the workspace takes the place of a published one.
    if existing is not None and not existing.is_published:
        ref = f"{topic.id}/{slug}"
        hint = f"change it with `kbtui entry edit {ref}`, or choose another --slug"
        raise UsageError("the subject already exists", where=ref, hint=hint)
    return slug


def _write_subject_file(knowledge: KnowledgeBase, topic: Topic, slug: str, text: str) -> Subject:
    slug = validate_new_slug(knowledge, topic, slug)
    root = Path(os.path.realpath(knowledge.workspace.root))
    base = create_topic_directory(knowledge.workspace, topic)
    *folders, name = slug.split("/")
    path = create_directory_inside_workspace(root, base.joinpath(*folders)) / f"{name}.md"
    write_new_file(path, text)
    from kbtui.knowledge.knowledge_base import load_knowledge

    for subject in load_knowledge(knowledge.workspace).list_subjects(topic.id):
        if os.path.realpath(subject.path) == os.path.realpath(path):
            return subject
    raise NothingFound("the file was written, but the topic does not list it", where=str(path))


def edit_subject_in_editor(subject: Subject, line: int = 0) -> bool:
    """Open a subject at a line in the user's editor; return whether the subject changed.

    Raises `KbtuiError`.
    """
    check_subject_is_editable(subject)
    path = subject.path
    try:
        before = path.read_bytes()
        try:
            _run_editor(build_editor_command(find_editor_command(), path, line))
        except KbtuiError as error:
            if _is_file_unchanged_or_empty(path, before):
                raise
            raise _add_draft_path_to_error(error, path) from error
        return path.read_bytes() != before
    except OSError as error:
        reason = error.strerror or str(error)
        raise KbtuiError(f"the file cannot be read: {reason}", where=str(path)) from error


def check_subject_is_editable(subject: Subject) -> None:
    """Raise `UsageError` if a subject is only in the mirror of a published library.

    Files of the mirror cannot be edited.
    """
    if subject.is_published:
        raise UsageError(
            "the subject is only in the published library, which cannot be edited",
            where=subject.ref,
            hint="create a subject with the same name in your checkout; it replaces the published subject",
        )


def open_file_in_editor(path: Path, line: int) -> None:
    """Open a file at a line in the user's editor. Raises `KbtuiError`.

    If the user has set no editor, a common editor that is installed is used.
    """
    _run_editor(build_editor_command(find_editor_command(or_installed=True), path, line))


def build_editor_command(editor: list[str], path: Path, line: int) -> list[str]:
    """Return the command that opens `path` at `line` (1-based).

    An unknown editor opens the file at the top.
    """
    name = Path(editor[0]).name.partition(".")[0]
    forms = (form for form, names in _EDITORS.items() if line >= 2 and name in names.split())
    words = next(forms, "PATH").replace("LINE", str(line)).split()
    return [*editor, *(word.replace("PATH", str(path)) for word in words)]


def _run_editor(command: list[str]) -> None:
    """Run an editor and wait until it exits; raises `KbtuiError` if it fails."""
    try:
        code = run_program_in_terminal(command)
    except OSError as error:
        message, hint = f"the editor cannot be started: {error.strerror}", "set $VISUAL or $EDITOR"
        raise KbtuiError(message, where=command[0], hint=hint) from error
    if code:
        raise KbtuiError(f"the editor failed with exit code {code}", where=command[0])


_USUAL_EDITORS = ("sensible-editor", "nano", "micro", "vim", "vi")


def find_editor_command(*, or_installed: bool = False) -> list[str]:
    """Return the command that starts the user's editor.

    If the user has set no editor and `or_installed` is true, the command starts a common editor
    that is installed. By default, kbtui does not choose an editor, because users may not know how
    to quit it. Raises `UsageError` if no editor is found, or if the editor needs a terminal and
    there is none.
    """
    import shlex
    import shutil

    for variable in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(os.environ.get(variable, ""))
        except ValueError as error:
            raise UsageError(f"not a valid command line: {error}", where=f"${variable}") from error
        if words:
            # `editor` may be a link to `vim.basic`.
            paths = (words[0], os.path.realpath(shutil.which(words[0]) or words[0]))
            names = {Path(path).name.partition(".")[0] for path in paths}
            if names.intersection(_TERMINAL_EDITORS.split()) and not all(map(os.isatty, (0, 1))):
                hint = "`kbtui entry new --text` works without an editor"
                raise UsageError(f"the editor {words[0]} needs a terminal", hint=hint)
            return words
    if or_installed and all(map(os.isatty, (0, 1))):
        installed = (name for name in _USUAL_EDITORS if shutil.which(name))
        if (name := next(installed, None)) is not None:
            return [name]
    raise UsageError("no editor is set", hint="set $VISUAL or $EDITOR, for example EDITOR=nano")


class TrashedSubjectFile(NamedTuple):
    """A subject's file that was moved to the trash.

    `path` is the original path of the file, and `trashed` is its path in the trash.
    """

    subject: Subject
    path: Path
    trashed: Path


def move_subject_to_trash(subject: Subject) -> TrashedSubjectFile | None:
    """Move a subject's file to the system's trash, and return both paths of the file.

    The result is None if the file is not found in the trash, for example because the trash is on
    another disk. Raises `TrashUnavailableError` or `NothingFound`.
    """
    check_subject_is_editable(subject)
    from send2trash import send2trash

    try:
        status = subject.path.lstat()
    except OSError:
        raise NothingFound("the file no longer exists", where=str(subject.path)) from None
    try:
        with contextlib.redirect_stdout(None):
            send2trash(os.fspath(subject.path))
    except Exception as error:
        # send2trash raises different exceptions on different platforms.
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        message = f"the file cannot be moved to the trash: {reason}"
        raise TrashUnavailableError(message, where=str(subject.path)) from error
    trashed = _find_file_in_trash_by_inode(subject.path.parent, status)
    return TrashedSubjectFile(subject, subject.path, trashed) if trashed else None


def _find_file_in_trash_by_inode(directory: Path, status: os.stat_result) -> Path | None:
    """Find a file in the trash by its inode, which `status` contains.

    The file was moved from `directory`. send2trash does not say where it moved a file, and it may
    rename the file. A file that is moved within one disk keeps its inode.
    """
    from send2trash.plat_other import HOMETRASH, find_mount_point

    volume, user = Path(find_mount_point(os.fspath(directory))), os.getuid()
    for folder in (
        Path(HOMETRASH, "files"),
        volume / ".Trash" / str(user) / "files",
        volume / f".Trash-{user}" / "files",
        Path(get_user_home(), ".Trash"),
    ):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if (found.st_ino, found.st_dev) == (status.st_ino, status.st_dev):
                    return Path(entry.path)
    return None


def restore_trashed_subject_file(trashed: TrashedSubjectFile) -> None:
    """Move a subject's file from the trash back to its original path.

    Raises `KbtuiError` if another file now has this path, or if the file is no longer in the trash.
    """
    where = str(trashed.path)
    try:
        if trashed.subject.root is not None:
            create_directory_inside_workspace(trashed.subject.root, trashed.path.parent)
        rename_staged_file_unless_path_exists(trashed.trashed, trashed.path)
    except FileExistsError:
        hint = f"the removed file is in the trash: {trashed.trashed}"
        raise KbtuiError("another file now has this name", where=where, hint=hint) from None
    except FileNotFoundError:
        raise NothingFound("the file is no longer in the trash", where=where) from None
    except OSError as error:
        message = f"the file cannot be moved back: {error.strerror}"
        raise KbtuiError(message, where=where) from error
    # On Linux, the trash also contains a description of each file, which must go, too.
    info = trashed.trashed.parent.parent / "info" / f"{trashed.trashed.name}.trashinfo"
    with contextlib.suppress(OSError):
        info.unlink()


def delete_subject_permanently(subject: Subject) -> None:
    """Delete a subject's file permanently; raises `KbtuiError`."""
    check_subject_is_editable(subject)
    try:
        subject.path.unlink()
    except OSError as error:
        message = f"the file cannot be deleted: {error.strerror}"
        raise KbtuiError(message, where=str(subject.path)) from error
