"""The first topic of a workspace: what could be declared, shown before it is written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.knowledge.editing import apply, declare
from kbtui.knowledge.models import Topic
from kbtui.tui.reader.blocks import Block, HeadBlock, NoteBlock, SourceBlock
from kbtui.tui.reader.document import Document, counted

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.knowledge.editing import TomlChange
    from kbtui.library import Library

LIKELY = ("docs", "doc", "documentation", "notes", "wiki", "knowledge", "handbook")
TEXT = (".md", ".markdown", ".txt", ".rst", ".adoc", ".org")
DEPTH, MOST = 3, 2_000
"""How deep, and at how many files, a directory is looked at."""


@dataclass(frozen=True)
class Proposal:
    """A change of `.jp/kb.toml`, the directory it names, and how many texts are in that."""

    change: TomlChange
    directory: Path
    texts: int

    def write(self) -> None:
        """Make the directory where there is none, then write; raises `KbtuiError`."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise KbtuiError(
                f"cannot be made: {error.strerror}", where=str(self.directory)
            ) from error
        apply(self.change)


def propose_first(library: Library) -> Proposal:
    """A topic of the directory that most likely holds what people know; writes nothing.

    Raises `KbtuiError` where the configuration cannot be read.
    """
    root = library.workspace.root
    found = max(_candidates(root), key=lambda pair: pair[1], default=(root / "docs", 0))
    directory, texts = found
    topic = Topic(
        id="project",
        subjects=str(directory.relative_to(root)),
        title="Project Knowledge",
        introduction="what everybody here should know",
    )
    return Proposal(declare(library.knowledge(), topic), directory, texts)


def _candidates(root: Path) -> list[tuple[Path, int]]:
    """Directories at the top that hold texts; likely names come before all others."""
    try:
        names = [entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    names = sorted(name for name in names if not name.startswith("."))
    likely = [name for name in LIKELY if name in names]
    for group in (likely, names):
        found = [(root / name, _texts(root / name)) for name in group]
        if any(count for _, count in found):
            return found
    return []


def _texts(directory: Path) -> int:
    count = seen = 0
    start = len(directory.parts)
    for folder, folders, files in os.walk(directory):
        seen += len(files)
        count += sum(name.lower().endswith(TEXT) for name in files)
        deep = folder.count(os.sep) + 1 - start >= DEPTH
        folders[:] = [] if deep or seen > MOST else [n for n in folders if not n.startswith(".")]
    return count


def proposal_page(proposal: Proposal, root: Path) -> Document:
    """What would be written, and where."""
    name = proposal.directory.relative_to(root)
    change = proposal.change
    what = "would get these lines" if change.old else "would be this file"
    blocks: list[Block] = [
        NoteBlock("title", [("A first topic", "h1")]),
        NoteBlock("where", [(str(change.path), "strong"), (f"  {what}:", "dim")], above=1),
        SourceBlock("diff", change.diff, language="diff", panel=True, above=1),
    ]
    if proposal.texts:
        said = f"{name}/ holds {counted(proposal.texts, 'text')}; each becomes a subject."
    elif proposal.directory.is_dir():
        said = f"{name}/ holds no texts yet; each that you put there becomes a subject."
    else:
        said = f"{name}/ is made too, empty; each text that you put there becomes a subject."
    blocks.append(NoteBlock("directory", [(said, "")], above=1))
    blocks.append(HeadBlock("ask", [("Write it?", "h2")], [("y yes · n no", "key")], above=1))
    blocks.append(
        NoteBlock(
            "later", [("Title, introduction and directory can be changed in that file.", "dim")]
        )
    )
    return Document("first", "A first topic", blocks)
