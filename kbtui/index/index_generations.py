"""Creates, activates and removes generations of the index, and checks them for damage.

Each generation is a directory `gen-<fingerprint>-<n>` in the workspace's cache directory. The
symbolic link `current` points to the generation in use. A new schema, chunker, tokenizer or
language changes the fingerprint, so the index is built in a new directory. Once the new generation
is complete, the link is replaced in one step.

A flipped bit, a bad sector or a full disk can damage files. Checksums reveal the damage: the catalog
has one for each entry, and each of tantivy's files ends with one.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import struct
import time
import zlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import IndexUnavailable, KbtuiError
from kbtui.workspace.paths import make_private_directory

if TYPE_CHECKING:
    import threading

    from kbtui.workspace import Settings


CURRENT_LINK = "current"


def compute_index_schema_hash() -> str:
    """Return six hex digits that identify the index format of this version of kbtui."""
    from kbtui.conversations.conversation_event_kinds import EVENT_KINDS
    from kbtui.index import (
        catalog_database,
        entry_and_chunk_data_types,
        identifier_and_cjk_tokenizer,
        keyword_index_writer,
    )

    kinds = [
        (kind.name, kind.role, kind.is_indexed, kind.is_embedded, kind.fields)
        for kind in EVENT_KINDS.values()
    ]
    versions = (
        catalog_database.CATALOG_VERSION,
        entry_and_chunk_data_types.CHUNKING_VERSION,
        identifier_and_cjk_tokenizer.TOKENIZER_VERSION,
    )
    return _hash_values((*versions, keyword_index_writer.KEYWORD_INDEX_VERSION, kinds))


def compute_index_fingerprint(settings: Settings) -> str:
    """Return the schema hash, followed by six hex digits for the settings that affect the index."""
    chosen = (settings.language, settings.embed_tool_results)
    return f"{compute_index_schema_hash()}{_hash_values(chosen)}"


def _hash_values(values: tuple[object, ...]) -> str:
    # A search without an engine must not wait for `hashlib`.
    return f"{zlib.crc32(repr(values).encode()) & 0xFFFFFF:06x}"


def is_readable_index_generation(folder: Path) -> bool:
    """Return whether this version of kbtui can read the generation at `folder`."""
    return folder.name.startswith(f"gen-{compute_index_schema_hash()}")


def find_current_index_generation(cache_dir: Path) -> Path | None:
    """Return the directory of the current generation; None if there is none yet."""
    try:
        name = (cache_dir / CURRENT_LINK).readlink()
    except OSError:
        return None
    folder = cache_dir / name
    return folder if (folder / "catalog.sqlite").exists() else None


def create_index_generation(cache_dir: Path, fingerprint: str) -> Path:
    """Create the directory of a new generation with this fingerprint, and return it."""
    folder = cache_dir / f"gen-{fingerprint}-{time.time_ns():x}"
    make_private_directory(folder)
    return folder


def activate_index_generation(folder: Path) -> None:
    """Make the generation in `folder` the current one, in one atomic step. Readers open the current generation."""
    link = folder.parent / f"{CURRENT_LINK}.new"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    os.replace(link, folder.parent / CURRENT_LINK)  # noqa: PTH105  (this replaces the link itself, not its target)


def remove_old_index_generations(cache_dir: Path, keep: Path) -> None:
    """Remove all generations except `keep` and the current one."""
    used = {keep.name, getattr(find_current_index_generation(cache_dir), "name", None)}
    for folder in cache_dir.glob("gen-*"):
        if folder.name not in used:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)


_FOOTER = struct.Struct("<II")
_FOOTER_MAGIC = 1337
_READ_BYTES = 1 << 20


def find_catalog_or_keyword_index_damage(
    folder: Path, stop: threading.Event | None = None
) -> str | None:
    """Check a generation for damage; return a phrase that describes the damage, or None.

    When `stop` is set, the check of the catalog ends early and may miss damage.
    """
    from kbtui.index.catalog_database import CatalogDatabase

    try:
        with closing(CatalogDatabase(folder / "catalog.sqlite")) as catalog:
            found = catalog.find_catalog_damage(stop)
    except IndexUnavailable as error:
        return error.message
    except sqlite3.Error as error:
        return f"the catalog cannot be read: {error}"
    for name in ("lexical", "hidden"):
        found = found or find_damaged_tantivy_file(folder / name)
    return found


def find_index_damage_behind_error(error: BaseException, folder: Path) -> str | None:
    """Return a phrase that describes the damage behind a read error; None if the error has another cause."""
    if isinstance(error, IndexUnavailable):
        return error.message
    if isinstance(error, sqlite3.DatabaseError) or is_rust_panic(error):
        return f"the index cannot be read: {error}"
    if isinstance(error, KbtuiError) or not isinstance(error, Exception):
        return None
    # Damaged files or a bug can cause any other error, so check the files.
    return find_catalog_or_keyword_index_damage(folder)


def is_rust_panic(error: BaseException) -> bool:
    """Return whether an error is a panic of a Rust library. Such an error is not an `Exception`."""
    return type(error).__name__ == "PanicException"


def find_damaged_tantivy_file(folder: Path) -> str | None:
    """Return a phrase that names the first damaged file of a tantivy index; None if no file is damaged.

    Checks only the files of the segments that `meta.json` names. If a file disappears during the check,
    a writer has replaced it, so the check starts again.
    """
    found: str | None = None
    for _ in range(3):
        try:
            name = _find_damaged_segment_file(folder)
            found = name and f"the file {name} is damaged"
            break
        except FileNotFoundError as error:
            found = f"the file {Path(error.filename).name} is missing"
    return found and f"the keyword index is damaged: {found}"


def _find_damaged_segment_file(folder: Path) -> str | None:
    """Return the name of the first damaged file, or None.

    Raises `FileNotFoundError` if a segment has no files.
    """
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
            raise FileNotFoundError(errno.ENOENT, "the segment has no files", name)
        for path in files:
            if not _has_valid_tantivy_checksum(path):
                return path.name
    return None


def _has_valid_tantivy_checksum(path: Path) -> bool:
    """Return whether a tantivy file matches the checksum in its footer.

    The footer consists of a JSON object with the key `crc`, the length of this JSON, and a magic
    number.
    """
    size = path.stat().st_size
    if size < _FOOTER.size:
        return False
    with path.open("rb") as file:
        file.seek(size - _FOOTER.size)
        length, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        body = size - _FOOTER.size - length
        if magic != _FOOTER_MAGIC or body < 0:
            return False
        file.seek(body)
        try:
            wanted = json.loads(file.read(length))["crc"]
        except (ValueError, KeyError, TypeError):
            return False
        file.seek(0)
        found = 0
        while body > 0 and (part := file.read(min(body, _READ_BYTES))):
            found = zlib.crc32(part, found)
            body -= len(part)
    return bool(found == wanted)
