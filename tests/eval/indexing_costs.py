"""Measures what indexing costs: the words that are indexed, and the documents that an edit rewrites.

Both are compared with version 0.1, which indexed each passage together with its neighbours: up to two passages
and 600 characters on each side. The words are counted in a workspace's index. The edits are made in a copy
of the demo corpus, and the indexer reports what it rewrites.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import tempfile
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import Settings, open_workspace_at_root
from tests.eval.labelled_questions import CORPUS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbtui.index.entry_and_chunk_data_types import Chunk

NEIGHBOURS, NEIGHBOUR_CHARACTERS = 2, 600
EDITS = 20
"""The number of edits of each kind."""
MEETING_FILES = ".jp/conversations/174*/events.json"
_ADDED = "A new paragraph about the {} number of a heron that nobody has counted before."


def list_passages(folder: Path) -> dict[str, list[Chunk]]:
    """Return the passages of each entry in the index below `folder`, in order."""
    found: dict[str, list[Chunk]] = defaultdict(list)
    with closing(CatalogDatabase(folder / "catalog.sqlite")) as catalog:
        numbers = [number for number, _, _ in catalog.iterate_chunks_to_embed()]
        for start in range(0, len(numbers), 500):
            for chunk, entry in catalog.get_chunks_by_number(numbers[start : start + 500]).values():
                found[entry].append(chunk)
    return {entry: sorted(chunks, key=lambda one: one.ordinal) for entry, chunks in found.items()}


def list_neighbours(chunks: Sequence[Chunk], at: int) -> list[Chunk]:
    """Return the passages that version 0.1 indexed together with the passage at `at`."""
    found = []
    for step in (-1, 1):
        room = NEIGHBOUR_CHARACTERS
        for near in range(at + step, at + step * (NEIGHBOURS + 1), step):
            if 0 <= near < len(chunks) and len(chunks[near].text) <= room:
                room -= len(chunks[near].text)
                found.append(chunks[near])
            else:
                break
    return found


def count_indexed_words(passages: dict[str, list[Chunk]]) -> tuple[int, int]:
    """Return the numbers of words in the passages, and in passages with their neighbours."""
    alone = around = 0
    for chunks in passages.values():
        lengths = {chunk.id: len(chunk.text.split()) for chunk in chunks}
        alone += sum(lengths.values())
        # The field for the neighbours also had the passage's own text.
        around += sum(
            2 * lengths[chunk.id] + sum(lengths[one.id] for one in list_neighbours(chunks, at))
            for at, chunk in enumerate(chunks)
        )
    return alone, around


def _change_word(text: str, draw: random.Random) -> str:
    words = text.split(" ")
    at = draw.choice([n for n, word in enumerate(words) if word.isalpha() and len(word) > 3])
    return " ".join([*words[:at], f"{words[at]}x", *words[at + 1 :]])


def _append_paragraph(text: str, draw: random.Random) -> str:
    return f"{text.rstrip()}\n\n{_ADDED.format(draw.random())}\n"


def _insert_paragraph(text: str, draw: random.Random) -> str:
    parts = text.split("\n\n")
    at = draw.randrange(1, len(parts) + 1)
    return "\n\n".join([*parts[:at], _ADDED.format(draw.random()), *parts[at:]])


def _change_message(text: str, draw: random.Random) -> str:
    events = json.loads(text)
    event = draw.choice([event for event in events if len(event.get("content", "")) > 40])
    event["content"] += " indeed"
    return json.dumps(events)


def _append_message(text: str, draw: random.Random) -> str:
    events = json.loads(text)
    added = {**events[-1], "content": _ADDED.format(draw.random())}
    return json.dumps([*events, events[0], added])


WAYS_TO_EDIT: dict[str, tuple[str, Callable[[str, random.Random], str]]] = {
    "a word of a subject changed": ("docs/**/*.md", _change_word),
    "a paragraph of a subject added": ("docs/**/*.md", _insert_paragraph),
    "a paragraph appended to a subject": ("docs/**/*.md", _append_paragraph),
    "a message of a meeting changed": (MEETING_FILES, _change_message),
    "a message appended to a meeting": (MEETING_FILES, _append_message),
}
"""For each way to edit, the files that are edited, and the function that changes the text of one of them."""


def count_rewritten_documents(
    meetings: Path | None, seed: int = 17
) -> dict[str, tuple[float, float]]:
    """Return for each way to edit the mean numbers of rewritten documents: now, and in version 0.1.

    `meetings` is the workspace of the meetings of QMSum. If it is None, only subjects are edited.
    """
    draw = random.Random(seed)
    results: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "demo", Path(folder) / "index"
        shutil.copytree(CORPUS, root)
        for one in sorted(meetings.glob(MEETING_FILES))[:2] if meetings else ():
            shutil.copytree(one.parent, root / one.parent.relative_to(meetings or one))
        index: Any = WorkspaceIndexWriter(open_workspace_at_root(root), Settings(), cache_dir=cache)
        index.refresh_index()
        written = []
        write = index.catalog.write_entry_and_chunks

        def record_result(*arguments: Any, **options: Any) -> Any:
            written.append(write(*arguments, **options))
            return written[-1]

        index.catalog.write_entry_and_chunks = record_result
        with closing(IndexReader(cache)) as reader:
            location = Path(reader.folder)
        before = list_passages(location)
        for name, (pattern, edit) in WAYS_TO_EDIT.items():
            files = sorted(root.glob(pattern))
            now, earlier = [], []
            for _ in range(EDITS if files else 0):
                file = draw.choice(files)
                file.write_text(edit(file.read_text("utf-8"), draw), "utf-8")
                written.clear()
                index.refresh_index()
                after = list_passages(location)
                now.append(sum(len(one.changed) for one in written))
                earlier.append(_count_changed_contexts(before, after))
                before = after
            if files:
                results[name] = (statistics.mean(now), statistics.mean(earlier))
        index.close()
    return results


def _count_changed_contexts(before: dict[str, list[Chunk]], after: dict[str, list[Chunk]]) -> int:
    """Return how many passages are new or have other neighbours."""
    return sum(
        len(_list_contexts(chunks) - _list_contexts(before.get(entry, [])))
        for entry, chunks in after.items()
        if [one.id for one in chunks] != [one.id for one in before.get(entry, [])]
    )


def _list_contexts(chunks: Sequence[Chunk]) -> set[tuple[str, ...]]:
    return {
        (chunk.id, *(one.id for one in list_neighbours(chunks, at)))
        for at, chunk in enumerate(chunks)
    }


def format_indexing_costs(corpora: dict[str, Path], meetings: Path | None) -> list[str]:
    """Return lines with the costs: words in the indexes of `corpora`, and documents that edits rewrite."""
    lines = []
    for name, folder in corpora.items():
        alone, around = count_indexed_words(list_passages(folder))
        lines.append(
            f"  words indexed, {name:<33}{1:>6.2f}{around / alone:>6.2f}  ({alone / around:.0%})"
        )
    lines += [
        f"  documents rewritten, {name:<34}{now:>4.1f}{earlier:>6.1f}  ({now / earlier:.0%})"
        for name, (now, earlier) in count_rewritten_documents(meetings).items()
    ]
    return lines
