"""`file_upload`: takes in a file, or every readable file of a directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError
from kbtui.sources.documents import Document
from kbtui.sources.extractor import ExtractError
from kbtui.sources.writing import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.sources.extractor import Extractor
    from kbtui.sources.passes import Pass

FILE_MOST = 50_000_000
FILES_MOST = 5000
KINDS = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".txt": "text/plain",
    ".text": "text/plain",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "application/xhtml+xml",
    ".pdf": "application/pdf",
}
"""What is taken from a directory; a file that is named itself may also be any text."""


async def upload(run: Pass, root: Path, extractor: Extractor) -> None:
    """Take in what `file` names, relative to the workspace's `root`; raises `KbtuiError`."""
    named = run.source.file or ""
    base = root / Path(named).expanduser()
    if not base.exists():
        raise KbtuiError("there is no such file", where=str(base))
    if not base.is_file() and not base.is_dir():
        raise KbtuiError("is neither a file nor a directory", where=str(base))
    found = [(base, "")] if base.is_file() else list(_below(base))
    if len(found) > FILES_MOST:
        raise KbtuiError(f"has more than {FILES_MOST:,} files", where=str(base))
    for done, (path, relative) in enumerate(found):
        url = f"{named}/{relative}" if relative else named
        run.doing(done, len(found), url)
        await _file(run, path, relative, url, extractor)


def _below(base: Path) -> Iterator[tuple[Path, str]]:
    """Readable files of a directory; hidden ones and links are left out."""
    for folder, folders, names in os.walk(base):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix.lower() in KINDS and name[0] != "." and not path.is_symlink():
                yield path, path.relative_to(base).as_posix()


async def _file(run: Pass, path: Path, relative: str, url: str, extractor: Extractor) -> None:
    try:
        content, mark = _read(path)
        if run.memory.get(url, {}).get("stat") == mark and run.shelf.fresh(url):
            run.keep(url)
            return
        kind = KINDS.get(path.suffix.lower(), "text/plain")
        facts = await extractor.extract(content(), kind, path.as_uri())
    except OSError as error:
        reason = error.strerror or str(error)
        run.fail(url, f"cannot be read: {reason}", lasting=False)
        return
    except ExtractError as error:
        run.fail(url, str(error))
        return
    run.put(_document(path, relative, url, facts), {"stat": mark})


def _read(path: Path) -> tuple[Any, str]:
    """How to read a file's content, and its state; raises `OSError`."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is not a regular file")
    if status.st_size > FILE_MOST:
        raise OSError(f"it has {status.st_size:,} bytes, more than the {FILE_MOST:,} that are read")
    return path.read_bytes, f"{status.st_size}:{status.st_mtime_ns}"


def _document(path: Path, relative: str, url: str, facts: dict[str, Any]) -> Document:
    parts = Path(relative).with_suffix("").parts if relative else (path.stem,)
    title = facts["title"] or path.stem
    return Document(url, "/".join(map(name_of, parts)), title, facts["text"], tuple(facts["tags"]))
