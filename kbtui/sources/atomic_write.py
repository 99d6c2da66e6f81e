"""Writes subject files into topics: front matter, names, one step at a time, never outside the workspace."""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError, UsageError
from kbtui.workspace.paths import jp_data_home

if TYPE_CHECKING:
    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.models import Topic
    from kbtui.workspace import Workspace

NAME_BYTES = 80
"""Bytes of the longest file name that is made up here; far below what any file system refuses."""

_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)


def with_front_matter(facts: dict[str, Any], body: str) -> str:
    """A subject file's text: YAML front matter in the order of `facts`, a blank line, the body.

    Values are strings, dates and lists of strings; empty ones are left out.
    """
    import yaml

    lines = []
    for key, value in facts.items():
        if value in (None, "", [], ()):
            continue
        flow = isinstance(value, list | tuple)
        shown = {key: list(value) if flow else value}
        text = yaml.safe_dump(shown, allow_unicode=True, default_flow_style=False, width=100_000)
        if flow:
            listed = yaml.safe_dump(
                list(value), allow_unicode=True, default_flow_style=True, width=100_000
            )
            text = f"{key}: {listed}"
        lines.append(text.rstrip("\n"))
    head = "\n".join(lines)
    body = body.strip("\n")
    return f"---\n{head}\n---\n\n{body}\n" if body else f"---\n{head}\n---\n"


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
    _written(path, text, fresh=True)


def replace_file(path: Path, text: str) -> None:
    """Write a file in place of what is there, in one step for readers; raises `KbtuiError`."""
    _written(path, text, fresh=False)


def write_export(workspace: Workspace, path: Path, text: str) -> None:
    """Write a file that a person asked for, wherever it is, but never among JP's own files.

    A link is followed; a file with further names (hard links) is replaced, so those keep what
    they had. Raises `UsageError` where the file would lie in a `.jp` directory or in JP's
    user-local one, and `KbtuiError` where it cannot be written.
    """
    check_export(workspace, path)
    real = Path(os.path.realpath(path))
    if os.path.exists(real) and not os.path.isfile(real):  # noqa: PTH110, PTH113  (never raise)
        # A device or a pipe is written to, not replaced. A directory is refused by the system.
        try:
            real.write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            raise _unwritable(path, error) from error
    else:
        replace_file(real, text)


def check_export(workspace: Workspace, path: Path) -> None:
    """Raise `UsageError` for a path that `write_export` refuses."""
    kept = [workspace.jp, jp_data_home()]
    real = Path(os.path.realpath(path))
    for folder in (real, *real.parents):
        if folder.name.casefold() == ".jp" or any(_is_same(folder, place) for place in kept):
            raise UsageError(
                "an export is not written there: the directory belongs to JP",
                where=str(path),
                hint=f"name a file outside {folder}",
            )


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths lead to one file, however each is spelled."""
    try:
        return path.samefile(other)
    except OSError:
        return False


def _unwritable(path: Path, error: OSError) -> KbtuiError:
    return KbtuiError(f"cannot be written: {error.strerror or error}", where=str(path))


def _written(path: Path, text: str, *, fresh: bool) -> None:
    # A hidden name: whoever lists the topic meanwhile sees no half file among the visible ones.
    temporary = path.with_name(f".{path.name[:60]}.{os.getpid()}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        if fresh:
            _name_new(temporary, path)
        else:
            temporary.replace(path)
    except FileExistsError as error:
        raise KbtuiError("there is such a file already", where=str(path)) from error
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _name_new(temporary: Path, path: Path) -> None:
    """Give a file its name, unless something has it."""
    try:
        os.link(temporary, path, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: all but as good.
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        temporary.rename(path)
