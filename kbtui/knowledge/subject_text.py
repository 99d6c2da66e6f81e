"""Reads subjects: what is in the file, and how `learn` presents it."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.knowledge.discovery import inside, split_name

if TYPE_CHECKING:
    from kbtui.knowledge.models import Subject

BINARY_BYTES = 8192
"""A NUL in so many first bytes makes a file binary."""
_MEGABYTE = 1024 * 1024

_AS_IT_IS = frozenset({"", "md", "txt", "text"})
_LANGUAGES = {"yml": "yaml", "rs": "rust", "py": "python", "js": "javascript", "ts": "typescript"}
_BACKTICKS = re.compile("`{3,}")


class UnreadableSubject(KbtuiError):
    """A subject that cannot be given; `message` says why, `where` is its reference."""

    exit_code = 1


def subject_text(subject: Subject) -> str:
    """The text as it is in the file, line ends and all.

    Raises `Unreadable` for a binary file, one that is not UTF-8, one that may
    not be read, is gone, is too large or leads out of the workspace.
    """
    data = _read(subject)
    if b"\0" in data[:BINARY_BYTES]:
        raise _unreadable(subject, "it is a binary file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable(subject, f"it is not UTF-8 text (byte {error.start:,})") from error


def read_subject(subject: Subject) -> str:
    """The text as `learn` gives it: as it is, or in a fence that names its language.

    Raises `Unreadable` as `subject_text` does.
    """
    return present(subject_text(subject), subject.relative)


def present(text: str, relative: str) -> str:
    """A file's text in the form that its extension asks for."""
    ending = split_name(relative.rpartition("/")[2])[1][1:]
    kind = ending.lower()
    if kind in _AS_IT_IS:
        return text
    language = _LANGUAGES.get(kind, ending if kind not in _SAME else kind)
    return fenced(text, language)


def fenced(text: str, language: str) -> str:
    """A text in a fence that is longer than any run of backticks inside."""
    # A name that would break the fence's first line names no language.
    language = "" if re.search(r"[\s`]", language) else language
    fence = "`" * (max((len(run) for run in _BACKTICKS.findall(text)), default=2) + 1)
    return f"{fence}{language}\n{ended(text)}{fence}"


_SAME = frozenset({"toml", "json", "yaml"})


def ended(text: str) -> str:
    """Text that ends its last line; empty text has none to end."""
    return text if not text or text.endswith("\n") else text + "\n"


def excess_of(size: int) -> str | None:
    """Why a subject of this size (bytes) is not read, None where it is.

    Reads the settings, for large files only.
    """
    if size <= _MEGABYTE:
        return None
    from kbtui.workspace import load_settings

    most = load_settings().subject_megabytes
    if most <= 0 or size <= most * _MEGABYTE:
        return None
    return (
        f"it has {size / _MEGABYTE:,.0f} MB, more than the {most} MB that are read "
        "(setting subject_megabytes)"
    )


def skipped(error: KbtuiError, slug: str) -> str:
    """The line that stands in place of a subject's content."""
    return f'Skipped "{slug}": {error.message}.'


def _unreadable(subject: Subject, reason: str) -> UnreadableSubject:
    return UnreadableSubject(reason, where=f"{subject.topic}/{subject.slug}")


def _read(subject: Subject) -> bytes:
    path = subject.file
    root = os.fspath(subject.root) if subject.root else path.removesuffix(f"/{subject.relative}")
    try:
        # Looked at again here: what was a file when it was listed may be a link by now.
        real = os.path.realpath(path, strict=True)
        if not inside(real, root) and not inside(real, os.path.realpath(root)):
            raise _unreadable(subject, "it leads out of the workspace")
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(real, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _unreadable(subject, "it is not a regular file")
            if excess := excess_of(status.st_size):
                head = file.read(BINARY_BYTES)
                raise _unreadable(subject, "it is a binary file" if b"\0" in head else excess)
            return file.read(status.st_size + 1)
    except OSError as error:
        raise _unreadable(subject, _reason(error)) from error


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "it has vanished"
    if error.errno == errno.EACCES:
        return "permission denied"
    words = error.strerror or str(error)
    return f"it cannot be read: {words[:1].lower()}{words[1:]}"
