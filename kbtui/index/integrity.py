"""Looks for silent damage in an index: a flipped bit, a file cut short by a full disk or a bad sector.

SQLite has no checksums, so the catalog keeps one for each entry with its chunks and
citations; tantivy ends each of its files with one.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from typing import TYPE_CHECKING

from kbtui.errors import IndexUnavailable, KbtuiError

if TYPE_CHECKING:
    import threading
    from pathlib import Path

_FOOTER = struct.Struct("<II")
_MAGIC = 1337
_PIECE = 1 << 20


def damage(folder: Path, stop: threading.Event | None = None) -> str | None:
    """What is damaged in a generation, in a phrase; None when nothing is, or `stop` is set."""
    from kbtui.index.catalog import Catalog

    try:
        catalog = Catalog(folder / "catalog.sqlite")
    except IndexUnavailable as error:
        return error.message
    try:
        found = catalog.damage(stop)
    except sqlite3.Error as error:
        found = f"the catalog cannot be read: {error}"
    finally:
        catalog.close()
    return found or damaged_file(folder / "lexical") or damaged_file(folder / "hidden")


def damage_behind(error: BaseException, folder: Path) -> str | None:
    """What is damaged in a generation where reading it ended in `error`; None where nothing is."""
    if isinstance(error, IndexUnavailable):
        return error.message
    if isinstance(error, sqlite3.DatabaseError) or is_panic(error):
        return f"the index cannot be read: {error}"
    if isinstance(error, KbtuiError) or not isinstance(error, Exception):
        return None
    # Anything may follow from wrong bytes, and from a mistake in the code.
    return damage(folder)


def is_panic(error: BaseException) -> bool:
    """Whether it is a panic of a Rust library, which derives from no `Exception`."""
    return type(error).__name__ == "PanicException"


def damaged_file(folder: Path) -> str | None:
    """The first of a tantivy index's files that is not as it was written, in a phrase.

    Only files that its `meta.json` names count, and one that vanishes meanwhile is not
    damaged: the index goes on being written.
    """
    for _ in range(3):
        found = _damaged(folder)
        if found is None or not found.startswith("missing"):
            break
    return found and f"the keyword index is damaged: {found}"


def _damaged(folder: Path) -> str | None:
    try:
        segments = json.loads((folder / "meta.json").read_bytes())["segments"]
        names = {str(segment["segment_id"]).replace("-", "") for segment in segments}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "meta.json"
    for name in sorted(names):
        files = sorted(folder.glob(f"{name}.*"))
        if not files:
            return f"missing {name}"
        for path in files:
            try:
                if not _whole(path):
                    return path.name
            except FileNotFoundError:
                return f"missing {path.name}"
    return None


def _whole(path: Path) -> bool:
    """Whether a file's checksum, which stands at its end, is that of the file."""
    size = path.stat().st_size
    if size < _FOOTER.size:
        return False
    with path.open("rb") as file:
        file.seek(size - _FOOTER.size)
        length, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        body = size - _FOOTER.size - length
        if magic != _MAGIC or body < 0:
            return False
        file.seek(body)
        try:
            wanted = json.loads(file.read(length))["crc"]
        except (ValueError, KeyError, TypeError):
            return False
        file.seek(0)
        found = 0
        while body > 0 and (part := file.read(min(body, _PIECE))):
            found = zlib.crc32(part, found)
            body -= len(part)
    return bool(found == wanted)
