"""`file_upload`: takes in a file, or every readable file of a directory."""

from __future__ import annotations

import os
import stat
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError
from kbtui.knowledge.subject_files import BINARY_BYTES, name_of, present
from kbtui.sources.extraction import CODE, DOCX, HTML, MARKDOWN, PDF, PLAIN, ExtractError
from kbtui.sources.http_fetcher import too_large
from kbtui.sources.source_directory import FetchedDocument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.sources.extraction import Extractor
    from kbtui.sources.http_fetcher import Limits
    from kbtui.sources.source_directory import RunContext

_KINDS = {
    **dict.fromkeys((".md", ".markdown"), MARKDOWN[0]),
    **dict.fromkeys((".txt", ".text", ".rst", ".adoc", ".org"), PLAIN[0]),
    **dict.fromkeys((".html", ".htm", ".xhtml"), HTML[0]),
    ".pdf": PDF[0],
    ".docx": DOCX[0],
}
"""What a file is by its extension; any other is source code, if it is text at all."""
_BY_NAME = {"makefile": "makefile", "dockerfile": "dockerfile", "jenkinsfile": "groovy"}
"""The languages of files that have no extension."""
_INTERPRETERS = ("python", "bash", "sh", "zsh", "fish", "node", "perl", "ruby")


class _NotTaken(Exception):
    """Why a file is none of a source's documents."""


async def upload(run: RunContext, root: Path, extractor: Extractor, limits: Limits) -> None:
    """Take in what `file` names, relative to the workspace's `root`; raises `KbtuiError`."""
    base = root / Path(run.source.file or "").expanduser()
    if not base.exists():
        raise KbtuiError("there is no such file", where=str(base))
    if not base.is_file() and not base.is_dir():
        raise KbtuiError("is neither a file nor a directory", where=str(base))
    named = _address(run.source.file or "", base, root)
    found = [(base, "")] if base.is_file() else list(_below(run, base, named))
    if len(found) > limits.files:
        run.fail(named, limits.too_many(len(found), "files"), lasting=False)
    for done, (path, relative) in enumerate(found[: limits.files]):
        below = f"/{relative}" if relative else ""
        # Versions up to 0.1 wrote absolute paths.
        run.shelf.rename(f"{run.source.file}{below}", named + below)
        run.doing(done, len(found), named + below)
        await _file(run, path, relative, named + below, extractor, limits.bytes)


def _address(file: str, base: Path, root: Path) -> str:
    """What documents are known by: it is written into files that others get, so it never tells
    where a person keeps theirs.
    """
    if not file.startswith(("/", "~")):
        return file
    real = Path(os.path.realpath(base))
    top = Path(os.path.realpath(root))
    return real.relative_to(top).as_posix() if real.is_relative_to(top) else base.name


def _below(run: RunContext, base: Path, named: str) -> Iterator[tuple[Path, str]]:
    """The files of a directory; what is hidden, and links, are skipped."""
    for folder, folders, names in os.walk(base):
        for name in sorted([*folders, *names]):
            path = Path(folder, name)
            relative = path.relative_to(base).as_posix()
            if name.startswith("."):
                run.skip(f"{named}/{relative}", "is hidden")
            elif path.is_symlink():
                run.skip(f"{named}/{relative}", "is a link, which is not followed")
            elif name in names:
                yield path, relative
        folders[:] = sorted(name for name in folders if not name.startswith("."))


async def _file(
    run: RunContext, path: Path, relative: str, url: str, extractor: Extractor, most: int
) -> None:
    try:
        content, mark = _read(path, most)
        if run.memory.get(url, {}).get("stat") == mark and run.shelf.fresh(url):
            run.keep(url)
            return
        kind = _KINDS.get(path.suffix.lower()) or _kind_of(path)
        # Without an address: links between the files stay as they are.
        facts = await extractor.extract(content(), kind, "")
    except _NotTaken as error:
        run.skip(url, str(error))
    except OSError as error:
        reason = error.strerror or str(error)
        run.fail(url, f"cannot be read: {reason}", lasting=False)
    except ExtractError as error:
        run.fail(url, str(error))
    else:
        run.put(_document(path, relative, url, kind, facts), {"stat": mark})


def _read(path: Path, most: int) -> tuple[Any, str]:
    """How to read a file's content, and its state; raises `OSError`, `_NotTaken`."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise _NotTaken("is not a regular file")
    if status.st_size > most:
        raise _NotTaken(too_large(most, status.st_size))
    return path.read_bytes, f"{status.st_size}:{status.st_mtime_ns}"


def _kind_of(path: Path) -> str:
    """What a file of an unknown extension is; raises `OSError`, `_NotTaken`."""
    kind = guess_type(path.name)[0] or ""
    if kind.partition("/")[0] in ("image", "audio", "font"):
        raise _NotTaken(f"is {kind}, which is not read")
    with path.open("rb") as file:
        if b"\0" in file.read(BINARY_BYTES):
            raise _NotTaken("is a binary file")
    return CODE[0]


def _document(
    path: Path, relative: str, url: str, kind: str, facts: dict[str, Any]
) -> FetchedDocument:
    text, parts = facts["text"], Path(relative or path.name).parts
    if kind in CODE:
        language = path.suffix[1:] or _language_of(path.name, text)
        text = present(text, f"x.{language}") if language and text.strip() else text
    else:
        parts = (*parts[:-1], path.stem)
    title = facts["title"] or parts[-1]
    return FetchedDocument(url, "/".join(map(name_of, parts)), title, text, tuple(facts["tags"]))


def _language_of(name: str, text: str) -> str:
    """The language of a file without extension; "" for prose."""
    first = text.partition("\n")[0]
    if first.startswith("#!"):
        program = first.split("/")[-1].split()[-1].rstrip("0123456789.")
        return program if program in _INTERPRETERS else "sh"
    return _BY_NAME.get(name.lower(), "")
