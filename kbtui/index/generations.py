"""Generations: a whole index in a directory of its own, taken over by one rename.

Under the workspace's cache directory lie `gen-<fingerprint>-<n>` directories and
a link `current` to the one in use. A change of schema, chunker, words or
language makes another fingerprint, and so another directory; what is half built
is never linked (design, "Storage").
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING

from kbtui.workspace.paths import make_private

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.workspace import Settings

LINK = "current"


def schema_mark() -> str:
    """Six hex digits for the form of an index: who has other ones cannot read it."""
    from kbtui.index import chunking, keyword_index, schema, tokenizer

    parts = (schema.VERSION, chunking.VERSION, tokenizer.VERSION, keyword_index.VERSION)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:6]


def fingerprint(settings: Settings) -> str:
    """The schema's mark, and six hex digits for the settings that decide what an index holds."""
    chosen = (settings.language, settings.embed_tool_results)
    return f"{schema_mark()}{hashlib.sha256(repr(chosen).encode()).hexdigest()[:6]}"


def readable(folder: Path) -> bool:
    """Whether this version of kbtui can read the generation."""
    return folder.name.startswith(f"gen-{schema_mark()}")


def current(cache_dir: Path) -> Path | None:
    """The generation in use, None where there is none yet."""
    try:
        name = (cache_dir / LINK).readlink()
    except OSError:
        return None
    folder = cache_dir / name
    return folder if (folder / "catalog.sqlite").exists() else None


def make(cache_dir: Path, mark: str) -> Path:
    """A new, empty generation."""
    folder = cache_dir / f"gen-{mark}-{time.time_ns():x}"
    make_private(folder)
    return folder


def publish(folder: Path) -> None:
    """Let a generation take over, atomically."""
    link = folder.parent / f"{LINK}.new"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    os.replace(link, folder.parent / LINK)  # noqa: PTH105  (a link, not what it points to)


def sweep(cache_dir: Path, keep: Path) -> None:
    """Remove generations that nobody uses any more: all but `keep` and the linked one."""
    used = {keep.name, getattr(current(cache_dir), "name", None)}
    for folder in cache_dir.glob("gen-*"):
        if folder.name not in used:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)
