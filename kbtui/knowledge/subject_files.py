"""Names and writes subject files: in one step for readers, never outside the workspace."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, UsageError
from kbtui.files import write_file

if TYPE_CHECKING:
    from kbtui.knowledge.loader import Knowledge
    from kbtui.knowledge.models import Topic

NAME_BYTES = 80
"""Bytes of the longest file name that is made up here; far below what any file system refuses."""

_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)


def name_of(text: str) -> str:
    """A file name without extension made of any text: small letters, digits, `-`, `_` and `.`.

    Never empty, never hidden, never one that some system reserves.
    """
    plain = unicodedata.normalize("NFC", text).casefold()
    name = re.sub(r"[^\w.]+|_{2,}", "-", plain, flags=re.UNICODE)
    name = re.sub(r"-{2,}", "-", re.sub(r"\.{2,}", ".", name)).strip("-._")
    while len(name.encode()) > NAME_BYTES:
        name = name[:-1].rstrip("-._")
    if not name or _RESERVED.fullmatch(name):
        name = f"{name or 'untitled'}-1" if name else "untitled"
    return name


def topic_folder(knowledge: Knowledge, topic: Topic) -> Path:
    """The real directory of a topic, made when missing.

    Raises `KbtuiError` where it leads out of the workspace or cannot be made.
    """
    root = Path(os.path.realpath(knowledge.workspace.root))
    return folder_inside(root, root / topic.subjects)


def folder_inside(root: Path, folder: Path) -> Path:
    """The real path of a directory inside the real path `root`, made when missing.

    Raises `KbtuiError` where a link leads out, something else is in the way, or
    the system refuses.
    """
    try:
        # What is there already says where the rest would come to lie.
        real = Path(os.path.realpath(folder))
        if not real.is_relative_to(root):
            raise KbtuiError("leads out of the workspace", where=str(folder))
        real.mkdir(parents=True, exist_ok=True)
        if Path(os.path.realpath(folder)) != real or not real.is_dir():
            raise KbtuiError("is not a directory", where=str(folder))
    except OSError as error:
        reason = error.strerror or str(error)
        raise KbtuiError(f"cannot be made: {reason}", where=str(folder)) from error
    return real


def check_slug(slug: str) -> str:
    """A slug that may become a file; raises `UsageError`."""
    parts = slug.split("/")
    if any(not part.strip(". ") or not part.isprintable() for part in parts) or "\\" in slug:
        raise UsageError(
            f"{slug!r} cannot be a subject's name", hint="write words, and folders with `/`"
        )
    if len(slug.encode()) > 1000 or any(len(part.encode()) > 200 for part in parts):
        raise UsageError("the subject's name is too long", where=slug[:60] + "…")
    return slug


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist yet, all of it or none; raises `KbtuiError`."""
    try:
        write_file(path, text.encode("utf-8", "replace"), is_new=True)
    except FileExistsError as error:
        raise KbtuiError("there is such a file already", where=str(path)) from error
    except OSError as error:
        raise _write_error(path, error) from error


def replace_file(path: Path, text: str) -> None:
    """Write a file in place of what is there, in one step for readers; raises `KbtuiError`."""
    try:
        write_file(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise _write_error(path, error) from error


def _write_error(path: Path, error: OSError) -> KbtuiError:
    return KbtuiError(f"cannot be written: {error.strerror or error}", where=str(path))
