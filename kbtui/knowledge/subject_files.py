"""Finds, names, reads and writes the subject files in a topic's directory, never outside the workspace.

A scan of a topic's directory assigns a slug to each file. It also detects hidden files, and files that would
have the same slug.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, UsageError
from kbtui.file_reading_and_writing import write_file_atomically
from kbtui.terminal_text import make_backtick_fence
from kbtui.workspace.paths import TOPICS_FILE
from kbtui.workspace.published_library_settings import find_mirror_with_root

if TYPE_CHECKING:
    from kbtui.knowledge.knowledge_data_types import Subject, Topic
    from kbtui.workspace import Workspace


MAX_LINKED_DIRECTORIES = 10_000
"""At most this many of a topic's directories are read through links, because links could multiply the paths."""
BINARY_BYTES = 8192
"""A file counts as binary if its first `BINARY_BYTES` bytes contain a NUL byte."""
_MEGABYTE = 1024 * 1024
_EXTENSIONS_BY_RANK = [".md", ".txt", ".text", ""]
_LANGUAGES = {"yml": "yaml", "rs": "rust", "py": "python", "js": "javascript", "ts": "typescript"}
_LANGUAGES |= {name: name for name in ("toml", "json", "yaml")}


class TopicDirectoryScan:
    """The files found in a topic's directory.

    * `slugs` is sorted, and `relative_paths` maps each slug to the file's path in the directory.
    * If several files would have the same slug, one of them gets it. `shadowed` contains the slugs
      of the others, and maps them to this slug. The slug of a shadowed file is its path, with `./`
      before it if the path is also the slug of another file.
    * `mistakes` contains a pair `(message, path)` for each file that was left out.
    * `published` contains the slugs of files that are only in the mirror of the published library.
    """

    def __init__(
        self, files_by_slug: dict[str, list[str]], mistakes: list[tuple[str, str]]
    ) -> None:
        self.mistakes = mistakes
        self.relative_paths: dict[str, str] = {}
        self.shadowed: dict[str, str] = {}
        for slug, paths in files_by_slug.items():
            if len(paths) > 1:
                paths.sort(key=_get_slug_collision_rank)
            self.relative_paths[slug] = paths[0]
            for path in paths[1:]:
                # The path can itself be a slug: `LICENSE` next to `LICENSE.md`.
                other = f"./{path}" if path in files_by_slug else path
                self.relative_paths[other] = path
                self.shadowed[other] = slug
        self.published = set[str]()
        self.slugs = sorted(self.relative_paths)
        self.hidden = {slug for slug, path in self.relative_paths.items() if is_hidden_path(path)}

    def __contains__(self, slug: str) -> bool:
        return slug in self.relative_paths

    def add_published_files(self, mirror: TopicDirectoryScan) -> None:
        """Add the files of `mirror`, except those whose slug a file in the workspace already has."""
        for slug, path in mirror.relative_paths.items():
            if slug not in self.relative_paths:
                self.relative_paths[slug] = path
                self.published.add(slug)
                if slug in mirror.shadowed:
                    self.shadowed[slug] = mirror.shadowed[slug]
        self.slugs = sorted(self.relative_paths)


def split_file_extension(name: str) -> tuple[str, str]:
    """Split a file name into stem and last extension. A leading dot does not begin an extension."""
    stem, dot, ending = name.rpartition(".")
    return (stem, dot + ending) if stem.strip(".") else (name, "")


def is_hidden_path(relative: str) -> bool:
    """Return whether a component of the path starts with a dot."""
    return relative.startswith(".") or "/." in relative


def is_inside_directory(path: str, folder: str) -> bool:
    """Return whether a real path is `folder` or is under it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def scan_topic_directory(root: str, base: str) -> TopicDirectoryScan:
    """Find the files under the directory `base` in the workspace `root`. Both are real paths.

    A link is followed if its target is inside the workspace, unless the target is a directory above
    the link. Raises `OSError` if `base` cannot be read.
    """
    files_by_slug: dict[str, list[str]] = {}
    mistakes: list[tuple[str, str]] = []
    linked = 0
    # Each element: a directory's path, its slug, the real paths from `base` to it, whether links lead to it.
    todo: list[tuple[str, str, tuple[str, ...], bool]] = [("", "", (base,), False)]
    while todo:
        folder, folder_slug, chain, is_linked = todo.pop()
        linked += is_linked
        if is_linked and linked > MAX_LINKED_DIRECTORIES:
            continue
        try:
            entries = list(os.scandir(chain[-1]))
        except OSError as error:
            if not folder:
                raise
            mistakes.append((error.strerror or "cannot be read", folder[:-1]))
            continue
        for entry in entries:
            name, path, real = entry.name, folder + entry.name, entry.path
            if entry.is_symlink():
                # Skip broken links: editors use them as locks.
                # Making a Path for each of 20,000 names would take longer than the walk.
                if not os.path.exists(real):  # noqa: PTH110
                    continue
                real = os.path.realpath(real)
                if not is_inside_directory(real, root):
                    mistakes.append(("the link points outside the workspace", path))
                    continue
            if problem := find_file_name_problem(name):
                mistakes.append((problem, path))
            elif entry.is_dir():
                if real in chain:
                    mistakes.append(
                        ("the link leads back to a parent directory, so it is not followed", path)
                    )
                    continue
                slug = f"{folder_slug}{_strip_leading_dots(name)}/"
                todo.append((f"{path}/", slug, (*chain, real), is_linked or entry.is_symlink()))
            elif entry.is_file():
                slug = folder_slug + _make_last_part_of_slug(name)
                files_by_slug.setdefault(slug, []).append(path)
    if linked > MAX_LINKED_DIRECTORIES:
        message = f"only {MAX_LINKED_DIRECTORIES:,} linked directories are read"
        mistakes.append((message, ""))
    return TopicDirectoryScan(files_by_slug, mistakes)


def make_slug_of_path(relative: str) -> str:
    """Return the slug for a file, derived from its path in the topic's directory.

    The file gets this slug unless another file has it.
    """
    *folders, name = relative.split("/")
    return "/".join([*map(_strip_leading_dots, folders), _make_last_part_of_slug(name)])


def _make_last_part_of_slug(name: str) -> str:
    return _strip_leading_dots(split_file_extension(name)[0])


def _strip_leading_dots(name: str) -> str:
    return name.lstrip(".") or name


def find_file_name_problem(name: str) -> str | None:
    """Return the reason why a file's name cannot be used, or None.

    A name must be valid Unicode, so that JSON can contain it, and must not contain control
    characters.
    """
    categories = () if name.isprintable() else set(map(unicodedata.category, name))
    if "Cs" in categories:
        return "the name is not UTF-8"
    return "the name has a control character" if "Cc" in categories else None


def _get_slug_collision_rank(path: str) -> tuple[bool, int, str]:
    """Return a sort key for the paths of files that would have the same slug.

    The file whose path has the smallest key gets the slug.
    """
    ending = split_file_extension(path.rpartition("/")[2])[1].lower()
    known = ending in _EXTENSIONS_BY_RANK
    rank = _EXTENSIONS_BY_RANK.index(ending) if known else len(_EXTENSIONS_BY_RANK)
    return is_hidden_path(path), rank, path


class UnreadableSubjectError(KbtuiError):
    """A subject cannot be read. `message` says why, and `where` is the subject's reference."""

    exit_code = 1


def read_subject_text(subject: Subject) -> str:
    """Return the text of a subject's file, with unchanged line endings.

    Raises `UnreadableSubjectError`.
    """
    try:
        data, problem = _read_subject_bytes(subject)
        if b"\0" in data[:BINARY_BYTES]:
            problem = "it is a binary file"
        if problem is None:
            return data.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 text (byte {error.start:,})"
    except OSError as error:
        problem = _describe_read_error(error)
    raise UnreadableSubjectError(problem, where=subject.ref)


def read_subject_for_assistant(subject: Subject) -> str:
    """Return a subject's text as `learn` returns it: prose unchanged, other text in a code fence.

    Raises `UnreadableSubjectError`.
    """
    return fence_file_text_unless_prose(read_subject_text(subject), subject.relative)


def fence_file_text_unless_prose(text: str, relative: str) -> str:
    """Return a file's text, in a code fence unless the file is prose.

    Whether a file is prose depends on the extension of its path, `relative`.
    """
    ending = split_file_extension(relative.rpartition("/")[2])[1][1:]
    if ending.lower() in ("", "md", "txt", "text"):
        return text
    return put_text_in_code_fence(text, _LANGUAGES.get(ending.lower(), ending))


def put_text_in_code_fence(text: str, language: str) -> str:
    """Return `text` in a code fence that is longer than any run of backticks in it."""
    # Leave out a language that would break the fence's first line.
    language = "" if re.search(r"[\s`]", language) else language
    fence = make_backtick_fence(text)
    return f"{fence}{language}\n{add_final_newline(text)}{fence}"


def add_final_newline(text: str) -> str:
    """Add a newline to the end of a text, unless the text is empty or already ends with one."""
    return text if not text or text.endswith("\n") else text + "\n"


def explain_too_large_subject(size: int) -> str | None:
    """Return why a subject of `size` bytes is too large to be read; None if it is small enough."""
    if size <= _MEGABYTE:
        return None
    from kbtui.workspace import load_settings

    most = load_settings().subject_megabytes
    if most <= 0 or size <= most * _MEGABYTE:
        return None
    return (
        f"its size is {size / _MEGABYTE:,.0f} MB, more than the limit of {most} MB "
        "(setting subject_megabytes)"
    )


SKIPPED_SUBJECT = 'Skipped "{}": {}.'


def format_note_replacing_unreadable_subject(error: KbtuiError, slug: str) -> str:
    """Return the line that replaces the content of an unreadable subject."""
    return SKIPPED_SUBJECT.format(slug, error.message)


def _read_subject_bytes(subject: Subject) -> tuple[bytes, str | None]:
    """Return a subject's bytes, and the reason why they cannot be used, which is None if they can.

    If there is such a reason, the bytes are incomplete. Raises `OSError`.
    """
    path = subject.file
    root = os.fspath(subject.root) if subject.root else path.removesuffix(f"/{subject.relative}")
    # Check again: a file may have become a link since it was listed.
    real = path
    if _may_path_leave_directory(path, root):
        real = os.path.realpath(path, strict=True)
        if not is_inside_directory(real, root) and not is_inside_directory(
            real, os.path.realpath(root)
        ):
            return b"", "it is outside the workspace"
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(real, flags), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return b"", "it is not a regular file"
        problem = explain_too_large_subject(status.st_size)
        return file.read(BINARY_BYTES) if problem else file.readall(), problem


def _may_path_leave_directory(path: str, folder: str) -> bool:
    """Return whether a path may lead out of `folder`: by a link, by `..`, or because it is not below it. Raises `OSError`.

    `os.path.realpath` takes more than twice as long, because it also examines the directories above `folder`.
    """
    if not path.startswith(f"{folder}/") or "/.." in path:
        return True
    at = len(folder)
    while (at := path.find("/", at + 1)) > 0:
        if stat.S_ISLNK(os.lstat(path[:at]).st_mode):
            return True
    return stat.S_ISLNK(os.lstat(path).st_mode)


def _describe_read_error(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "its file no longer exists"
    if error.errno == errno.EACCES:
        return "permission denied"
    words = error.strerror or str(error)
    return f"it cannot be read: {words[:1].lower()}{words[1:]}"


MAX_NAME_BYTES = 80
"""The maximum size in bytes of a file name generated from text. Every file system allows more."""

_RESERVED_NAME = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)


def make_safe_file_name(text: str) -> str:
    """Make a file name without extension from any text.

    The name is never empty, hidden or reserved by an operating system.
    """
    plain = unicodedata.normalize("NFC", text).casefold()
    name = re.sub(r"[^\w.]+|_{2,}", "-", plain)
    name = re.sub(r"-{2,}", "-", re.sub(r"\.{2,}", ".", name)).strip("-._")
    while len(name.encode()) > MAX_NAME_BYTES:
        name = name[:-1].rstrip("-._")
    return f"{name}-1" if _RESERVED_NAME.fullmatch(name) else name or "untitled"


def find_editable_topic_directory(workspace: Workspace, topic: Topic) -> Path:
    """Return the real path of a topic's directory. The directory need not exist.

    Raises `KbtuiError` if its files cannot be edited, because the topic is only in the published
    library or the directory is outside the workspace.
    """
    if topic.is_published or find_mirror_with_root(workspace.root) is not None:
        raise UsageError(
            "the topic is only in the published library, which cannot be edited",
            where=topic.id,
            hint=f"declare the topic in {workspace.format_config_path(TOPICS_FILE)} of your checkout",
        )
    root = Path(os.path.realpath(workspace.root))
    return _resolve_path_inside_workspace(root, root / topic.subjects)


def create_topic_directory(workspace: Workspace, topic: Topic) -> Path:
    """Create a topic's directory if it is missing, and return the directory's real path.

    Raises `KbtuiError`.
    """
    folder = find_editable_topic_directory(workspace, topic)
    return create_directory_inside_workspace(Path(os.path.realpath(workspace.root)), folder)


def create_directory_inside_workspace(root: Path, folder: Path) -> Path:
    """Create a directory under the real path `root` if it is missing, and return its real path.

    Raises `KbtuiError` if a link leads outside `root`, or if the directory cannot be created.
    """
    try:
        real = _resolve_path_inside_workspace(root, folder)
        real.mkdir(parents=True, exist_ok=True)
        if Path(os.path.realpath(folder)) != real or not real.is_dir():
            raise KbtuiError("not a directory", where=str(folder))
    except OSError as error:
        reason = error.strerror or str(error)
        raise KbtuiError(f"the directory cannot be created: {reason}", where=str(folder)) from error
    return real


def _resolve_path_inside_workspace(root: Path, folder: Path) -> Path:
    # The part of the path that exists determines where the rest would be created.
    real = Path(os.path.realpath(folder))
    if not real.is_relative_to(root):
        raise KbtuiError("the directory is outside the workspace", where=str(folder))
    return real


def validate_slug(slug: str) -> str:
    """Return the slug unchanged; raises `UsageError` if it cannot be the path of a file."""
    parts = slug.split("/")
    if any(not part.strip(". ") or not part.isprintable() for part in parts) or "\\" in slug:
        hint = "write one or more names separated by `/`, such as folder/name"
        raise UsageError(f"{slug!r} cannot be a slug", hint=hint)
    if len(slug.encode()) > 1000 or any(len(part.encode()) > 200 for part in parts):
        raise UsageError("the slug is too long", where=slug[:60] + "…")
    return slug


def write_new_file(path: Path, text: str) -> None:
    """Create a file. Raises `KbtuiError`, for example if the file exists already.

    If an error occurs, no part of the file is left.
    """
    _write_file_text(path, text, is_new=True)


def replace_file_text(path: Path, text: str) -> None:
    """Replace the text of a file in one step; raises `KbtuiError`."""
    _write_file_text(path, text, is_new=False)


def _write_file_text(path: Path, text: str, *, is_new: bool) -> None:
    try:
        write_file_atomically(path, text.encode("utf-8", "replace"), is_new=is_new)
    except OSError as error:
        exists = is_new and isinstance(error, FileExistsError)
        reason = "cannot be written: " + (error.strerror or str(error))
        message = f"the file {'already exists' if exists else reason}"
        raise KbtuiError(message, where=str(path)) from error
