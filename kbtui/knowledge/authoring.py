"""A person's own subjects: a draft becomes a file in a topic, is edited, goes to the trash."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.knowledge.front_matter import join_front_matter, split_front_matter
from kbtui.knowledge.subject_files import (
    check_slug,
    make_file_name,
    make_folder_inside,
    make_topic_folder,
    write_new_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kbtui.knowledge.loader import Knowledge
    from kbtui.knowledge.models import Subject, Topic

UNTITLED = "Untitled"
_EDITOR_NAMES = """
    vi vim nvim view ex ed nano pico micro emacs jed joe jmacs mcedit ne helix hx kak less more
    sensible-editor
"""
_TERMINAL_EDITORS = frozenset(_EDITOR_NAMES.split())
"""Editors that need a terminal; without one they hang or do harm."""


class MissingTitle(UsageError):
    """An entry without a title, which nobody would find again."""


class TrashUnavailable(KbtuiError):
    """The system has no trash that this file could go to."""


@dataclass(frozen=True)
class Draft:
    """A subject that is not written yet; `slug` None means one made of the title."""

    title: str
    text: str = ""
    type: str = "note"
    tags: tuple[str, ...] = ()
    slug: str | None = None

    @property
    def document(self) -> str:
        """The whole file: front matter and text."""
        facts = {
            "title": " ".join(self.title.split()) or UNTITLED,
            "type": self.type,
            "tags": list(self.tags),
            # With the time: a day alone begins at midnight, before all that was made since.
            "created": datetime.now().astimezone().replace(microsecond=0),
        }
        return join_front_matter(facts, self.text)


def choose_topic(knowledge: Knowledge, name: str | None) -> Topic:
    """The topic of this id or title; without a name the only one. Raises `KbtuiError`."""
    if name is not None:
        return knowledge.resolve_topic(name)
    topics = [topic for topic in knowledge.topics.values() if topic.enable]
    if len(topics) == 1:
        return topics[0]
    known = ", ".join(topic.id for topic in topics)
    raise UsageError(
        "say which topic it belongs to",
        where="--topic",
        hint=f"topics: {known}" if known else "declare one in .jp/kb.toml as [kb.topic.ID]",
    )


def add_subject(knowledge: Knowledge, topic: Topic, draft: Draft) -> Subject:
    """Write a draft into a topic; raises `UsageError` where the name is taken or impossible.

    `NoTitle` is one without a title.
    """
    check_draft(knowledge, topic, draft)
    return _write_subject(
        knowledge, topic, draft.slug or make_file_name(draft.title), draft.document
    )


def check_draft(knowledge: Knowledge, topic: Topic, draft: Draft) -> None:
    """Raise what `add` would, before a text is asked for that could not be written."""
    if not draft.title.strip():
        raise MissingTitle("an entry needs a title", hint="--title gives it one")
    check_slug_is_free(knowledge, topic, draft.slug or make_file_name(draft.title))


def edit_draft(knowledge: Knowledge, topic: Topic, draft: Draft) -> Subject | None:
    """Have a draft edited and write it; None when it was left as it was.

    What was typed is never lost: when it cannot be written, the error says where it is.
    Raises `UsageError` where there is no editor, or no terminal for it.
    """
    find_editor()
    with tempfile.NamedTemporaryFile(
        "w", suffix=".md", prefix="kbtui-", encoding="utf-8", delete=False
    ) as file:
        file.write(draft.document)
    path = Path(file.name)
    is_settled = False
    try:
        run_editor([*find_editor(), str(path)])
        text = path.read_text("utf-8")
        if text == draft.document or not text.strip():
            is_settled = True
            return None
        if problem := split_front_matter(text).problem:
            raise UsageError(f"the front matter would count for nothing: {problem}")
        title = _choose_title(text, draft.title)
        found = _write_subject(knowledge, topic, draft.slug or make_file_name(title), text)
        is_settled = True
        return found
    except (KbtuiError, OSError, ValueError) as error:
        if _is_untouched(path, draft.document.encode()):
            raise
        raise _add_kept_path(error, path) from error
    finally:
        if is_settled or _is_untouched(path, draft.document.encode()):
            path.unlink(missing_ok=True)


def _is_untouched(path: Path, before: bytes) -> bool:
    """Whether a file that an editor had holds nothing that was typed."""
    try:
        return path.read_bytes() in {before, b""}
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _add_kept_path(error: Exception, path: Path) -> KbtuiError:
    """The error, with where the text is that was typed before it."""
    kept = f"what you wrote is in {path}"
    if not isinstance(error, KbtuiError):
        return KbtuiError(str(error), hint=kept)
    hint = f"{error.hint}; {kept}" if error.hint else kept
    return KbtuiError(error.message, where=error.where, hint=hint)


def _choose_title(text: str, otherwise: str) -> str:
    """What an edited draft is called: by its front matter, its first heading, or as it was before."""
    split = split_front_matter(text)
    is_emptied = "title" in split.facts and not str(split.facts["title"] or "").strip()
    title = None if is_emptied else split.title or otherwise.strip()
    if not title or title == UNTITLED:
        raise MissingTitle("an entry needs a title")
    return title


def check_slug_is_free(knowledge: Knowledge, topic: Topic, slug: str) -> str:
    """The slug that a file of this name gets; raises `UsageError` where it is taken or impossible."""
    slug = check_slug(slug.removesuffix(".md"))
    if knowledge.find(topic.id, slug) is not None:
        raise UsageError(
            "there is such a subject already",
            where=f"{topic.id}/{slug}",
            hint=f"`kbtui entry edit {topic.id}/{slug}` changes it, --slug names another",
        )
    return slug


def _write_subject(knowledge: Knowledge, topic: Topic, slug: str, text: str) -> Subject:
    slug = check_slug_is_free(knowledge, topic, slug)
    root = Path(os.path.realpath(knowledge.workspace.root))
    base = make_topic_folder(knowledge.workspace, topic)
    *folders, name = slug.split("/")
    path = make_folder_inside(root, base.joinpath(*folders)) / f"{name}.md"
    write_new_file(path, text)
    from kbtui.knowledge.loader import load_knowledge

    known = load_knowledge(knowledge.workspace)
    for subject in known.subjects(topic.id):
        if os.path.realpath(subject.path) == os.path.realpath(path):
            return subject
    raise NothingFound("was written, but the topic does not list it", where=str(path))


def edit_subject(subject: Subject) -> bool:
    """Open a subject in the person's editor; says whether it changed. Raises `KbtuiError`."""
    path = subject.path
    try:
        before = path.read_bytes()
        try:
            run_editor([*find_editor(), str(path)])
        except KbtuiError as error:
            if _is_untouched(path, before):
                raise
            raise _add_kept_path(error, path) from error
        return path.read_bytes() != before
    except OSError as error:
        reason = error.strerror or str(error)
        raise KbtuiError(f"cannot be read: {reason}", where=str(path)) from error


def run_editor(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    """Run an editor and wait until it ends; raises `KbtuiError` where it fails."""
    try:
        with _interrupts_ignored():
            code = subprocess.call(command, env=environment)
    except OSError as error:
        raise KbtuiError(
            f"the editor cannot be started: {error.strerror}",
            where=command[0],
            hint="set $VISUAL or $EDITOR",
        ) from error
    if code:
        raise KbtuiError(f"the editor ended with {code}", where=command[0])


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Leave Ctrl-C to the program that has the terminal; only the main thread can do so.

    A handler that does nothing is not inherited, as SIG_IGN would be.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def find_editor() -> list[str]:
    """The person's editor as a command; raises `UsageError` where there is none that can run here.

    None is guessed: whoever did not choose an editor may not know how to leave it.
    """
    import shlex

    for variable in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(os.environ.get(variable, ""))
        except ValueError as error:
            raise UsageError(f"is not a command line: {error}", where=f"${variable}") from error
        if words:
            _check_terminal(words[0])
            return words
    raise UsageError("no editor is set", hint="set $VISUAL or $EDITOR, such as EDITOR=nano")


def _check_terminal(program: str) -> None:
    import shutil

    # `editor` may be a link to `vim.basic`.
    paths = (program, os.path.realpath(shutil.which(program) or program))
    names = {Path(path).name.partition(".")[0] for path in paths}
    if names & _TERMINAL_EDITORS and not all(map(os.isatty, (0, 1))):
        raise UsageError(
            f"there is no terminal for {program}", hint="`kbtui entry new --text` needs no editor"
        )


def trash_subject(subject: Subject) -> None:
    """Move a subject's file to the system's trash; raises `NoTrash`, `NothingFound`."""
    from send2trash import send2trash

    if not os.path.lexists(subject.path):
        raise NothingFound("is gone already", where=str(subject.path))
    try:
        with contextlib.redirect_stdout(None):
            send2trash(os.fspath(subject.path))
    except Exception as error:
        # Each platform's trash has errors of its own.
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TrashUnavailable(
            f"there is no trash for it: {reason}", where=str(subject.path)
        ) from error


def delete_subject(subject: Subject) -> None:
    """Delete a subject's file for good; raises `KbtuiError`."""
    try:
        subject.path.unlink()
    except OSError as error:
        raise KbtuiError(f"cannot be deleted: {error.strerror}", where=str(subject.path)) from error
