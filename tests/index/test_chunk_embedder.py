"""The chunk embedder resumes, follows changes, pauses on request and stops at once."""

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import Builder, asked, said, write_json

from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.chunk_embedder import ChunkEmbedder, ChunksWithoutVector
from kbtui.index.embedding_cache import EmbeddingCache
from kbtui.index.unembedded_entries_file import is_index_fully_embedded
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import Settings

if TYPE_CHECKING:
    from kbtui.index.workspace_index_writer import IndexProgress


class Counting:
    """Makes vectors of texts, and counts texts and batches."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.texts: list[str] = []
        self.batches = 0
        self._before = before

    def embed_texts(self, texts: Sequence[str]) -> Any:
        self._before()
        self.texts += texts
        self.batches += 1
        return np.stack([np.eye(4, dtype=np.float32)[len(text) % 4] for text in texts])


class Bed:
    """An index of a workspace, with the objects that a chunk embedder needs."""

    def __init__(self, builder: Builder) -> None:
        from kbtui.index.vector_store import VectorStore

        self.builder = builder
        self.index = WorkspaceIndexWriter(builder.workspace, Settings(model="off"))
        self.index.refresh_index()
        self.catalog = CatalogDatabase(self.index.folder / "catalog.sqlite")
        self.store = VectorStore(self.index.folder / "vectors", "m", 4)
        self.remembered = EmbeddingCache(builder.workspace.cache_dir / "embeddings.sqlite", "m")
        self.said: list[IndexProgress] = []
        self.stop = threading.Event()

    def backlog(self, **more: Any) -> ChunkEmbedder:
        return ChunkEmbedder(
            self.catalog,
            self.store,
            self.remembered,
            on_progress=self.said.append,
            stop=self.stop,
            **more,
        )

    def close(self) -> None:
        self.index.close()
        self.catalog.close()
        self.remembered.close()


@pytest.fixture
def bed(workspace_root: Path) -> Iterator[Bed]:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(12):
        builder.subject(f"guide/s{number}.md", f"# S{number}\n\nOf {number} is {number} said.\n")
    builder.conversation(1, [[asked("Where is the badger?"), said("In its sett.")]])
    found = Bed(builder)
    yield found
    found.close()


def wanted(bed: Bed) -> dict[int, bytes]:
    return {number: mark for number, _, mark in bed.catalog.iterate_chunks_to_embed()}


def held(bed: Bed) -> dict[int, bytes]:
    numbers, marks = bed.store.read_vector_hashes()
    return dict(zip(numbers.tolist(), marks.tolist(), strict=True))


def test_whatever_is_edited_the_table_follows(bed: Bed) -> None:
    chosen = random.Random(4)
    backlog, encoder = bed.backlog(), Counting()
    for step in range(12):
        for _ in range(chosen.randint(0, 3)):
            name = f"guide/s{chosen.randint(0, 14)}.md"
            if chosen.random() < 0.3:
                (bed.builder.root / "docs" / name).unlink(missing_ok=True)
            else:
                bed.builder.subject(
                    name, f"# Step {step}\n\nSaid in step {chosen.randint(0, 5)}.\n"
                )
        bed.index.refresh_index()
        assert backlog.embed_missing_chunks(lambda is_bulk: encoder) == 0
        assert held(bed) == wanted(bed)
    assert len(set(encoder.texts)) == len(encoder.texts), "nothing is embedded twice"


def test_subjects_are_embedded_before_conversations(bed: Bed) -> None:
    missing = ChunksWithoutVector()
    missing.queue_chunks_and_remove_stale_vectors(bed.catalog, bed.store)
    assert missing.numbers == set(wanted(bed))
    assert list(missing.entries)[-1] == "jp-c17800000001"


def test_what_the_user_reads_or_searched_for_is_embedded_next_and_nothing_twice(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbtui.index.chunk_embedder.SLICE_CHUNKS", 2)
    long = "\n\n".join(f"# Part {part}\n\n" + f"Said {part} " * 90 for part in range(20))
    bed.builder.subject("guide/long.md", long)
    bed.index.refresh_index()
    numbers = {name: number for number, name, _ in bed.catalog.iterate_chunks_to_embed()}
    subjects = {bed.catalog.get_entry(name).slug: name for name in numbers}  # type: ignore[union-attr]
    backlog = bed.backlog()
    encoder = Counting()

    class Reader(Counting):
        def embed_texts(self, texts: Sequence[str]) -> Any:
            if len(encoder.texts) < 6:  # `long`, which is the newest, has begun
                backlog.prefer_entries_for_embedding([subjects["s3"], "gone"])
                backlog.prefer_entries_of_chunks_for_embedding([numbers[subjects["s7"]], 10**9])
            return encoder.embed_texts(texts)

    backlog.prefer_entries_for_embedding(["jp-c17800000001"])
    assert backlog.embed_missing_chunks(lambda is_bulk: Reader()) == 0
    order = [at for at, text in enumerate(encoder.texts) if text.startswith("Where is the badger")]
    assert order
    assert order[0] < 6
    for name in ("S7", "S3"):
        assert encoder.texts.index(name) < 20, "it comes before the rest of `long`"
    assert encoder.texts.index("S1") > 30
    assert held(bed).keys() == wanted(bed).keys()
    assert bed.store.count_vector_rows() == len(wanted(bed))


def test_many_chunks_are_embedded_in_bulk_over_entries_and_few_are_not(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    sizes: list[int] = []

    class Model(Counting):
        def embed_texts(self, texts: Sequence[str]) -> Any:
            sizes.append(len(texts))
            return super().embed_texts(texts)

    def get_or_start_passage_embedder(is_bulk: bool) -> Counting:
        asked.append(is_bulk)
        return Model()

    monkeypatch.setattr("kbtui.index.chunk_embedder.BULK_CHUNKS", 10)
    monkeypatch.setattr("kbtui.index.chunk_embedder.BULK_TEXTS", 12)
    assert bed.backlog().embed_missing_chunks(get_or_start_passage_embedder) == 0
    assert asked == [True]
    assert sizes[0] > 12 * 2, "the texts of all entries are one request"
    assert held(bed) == wanted(bed)
    # All vectors are lost, but the cache has all of them except a few.
    asked.clear()
    bed.store.remove_vectors_of_chunks(list(wanted(bed)))
    bed.builder.subject("guide/s1.md", "# S1\n\nSaid anew.\n")
    bed.index.refresh_index()
    assert bed.backlog().embed_missing_chunks(get_or_start_passage_embedder) == 0
    assert asked == [False]
    assert held(bed) == wanted(bed)


def test_a_row_that_is_there_twice_is_made_once(bed: Bed) -> None:
    bed.backlog().embed_missing_chunks(lambda is_bulk: Counting())
    rows = bed.store.table.search().limit(3).to_arrow()
    bed.store.table.add(rows)
    assert bed.store.count_vector_rows() == len(wanted(bed)) + 3
    bed.backlog().embed_missing_chunks(lambda is_bulk: Counting())
    assert held(bed) == wanted(bed)
    assert bed.store.count_vector_rows() == len(wanted(bed))


def test_stopped_it_makes_no_further_batch_and_goes_on_later(bed: Bed) -> None:
    encoder = Counting(before=bed.stop.set)
    left = bed.backlog().embed_missing_chunks(lambda is_bulk: encoder)
    assert left > 0
    assert encoder.batches == 1
    bed.stop.clear()
    again = Counting()
    assert bed.backlog().embed_missing_chunks(lambda is_bulk: again) == 0
    assert not set(again.texts) & set(encoder.texts)
    assert held(bed) == wanted(bed)


def test_it_waits_while_the_machine_has_other_work_and_says_why(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbtui.index.chunk_embedder.PAUSE_SECONDS", 0.01)
    reasons = iter([None, "busy", "busy", None])
    made: list[int] = []
    encoder = Counting(before=lambda: made.append(len(bed.said)))
    assert (
        bed.backlog(find_embedding_pause_reason=lambda: next(reasons, None)).embed_missing_chunks(
            lambda is_bulk: encoder
        )
        == 0
    )
    assert [one.pause_reason for one in bed.said].count("busy") == 2
    assert held(bed) == wanted(bed)


def test_told_to_stop_while_it_waits_it_stops(bed: Bed) -> None:
    def hold() -> str:
        bed.stop.set()
        return "battery"

    encoder = Counting()
    assert (
        bed.backlog(find_embedding_pause_reason=hold).embed_missing_chunks(lambda is_bulk: encoder)
        > 0
    )
    assert encoder.batches == 0


def test_what_was_saved_meanwhile_comes_first(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbtui.index.chunk_embedder.SLICE_CHUNKS", 1)
    moved = iter([False, False, True])
    first = Counting()
    backlog = bed.backlog()
    assert backlog.embed_missing_chunks(lambda is_bulk: first, lambda: next(moved, False)) > 0
    bed.builder.subject("guide/fresh.md", "# Fresh\n\nJust now it was saved.\n")
    bed.index.refresh_index()
    second = Counting()
    backlog.embed_missing_chunks(lambda is_bulk: second)
    assert second.texts[0] == "Fresh"
    assert held(bed) == wanted(bed)


def test_it_is_known_without_the_vectors_whether_something_lacks(bed: Bed) -> None:
    assert not is_index_fully_embedded(bed.index.folder, "m")
    bed.backlog().embed_missing_chunks(lambda is_bulk: Counting())
    assert is_index_fully_embedded(bed.index.folder, "m")
    assert not is_index_fully_embedded(bed.index.folder, "another model")
    bed.builder.subject("guide/s1.md", "# S1\n\nSaid anew.\n")
    bed.index.refresh_index()
    assert not is_index_fully_embedded(bed.index.folder, "m")


def test_what_waits_is_counted_for_who_may_see_it(bed: Bed) -> None:
    backlog = bed.backlog()
    assert backlog.embed_missing_chunks(lambda is_bulk: Counting()) == 0
    visible = len(wanted(bed))
    bed.builder.subject(
        "guide/.h.md", "# H\n\n" + "\n\n".join(f"{n} zebra " * 150 for n in range(3))
    )
    bed.index.refresh_index()
    hidden = len(wanted(bed)) - visible
    assert hidden > 1
    # Before the first comparison nothing is known to be missing.
    assert bed.backlog().count_missing_and_required_vectors(hidden=True) == (0, 0)
    assert backlog.embed_missing_chunks(lambda is_bulk: Counting(), lambda: True) == hidden
    assert backlog.count_missing_and_required_vectors(hidden=True) == (hidden, visible + hidden)
    assert backlog.count_missing_and_required_vectors(hidden=False) == (0, visible)
    assert backlog.embed_missing_chunks(lambda is_bulk: Counting()) == 0
    assert backlog.count_missing_and_required_vectors(hidden=True) == (0, visible + hidden)
    assert backlog.count_missing_and_required_vectors(hidden=False) == (0, visible)


def test_nothing_is_embedded_again_when_jp_adds_ids_to_all_events(bed: Bed) -> None:
    encoder = Counting()
    assert bed.backlog().embed_missing_chunks(lambda is_bulk: encoder) == 0
    before, numbers = len(encoder.texts), list(bed.catalog.iterate_chunks_to_embed())
    # JP's RFD 097: an old file is rewritten as a whole at its next save.
    path = next(bed.builder.root.glob(".jp/conversations/*/events.json"))
    elements = json.loads(path.read_text())
    with_ids = [{"event_id": f"k3f9a{n:02}", **one} for n, one in enumerate(elements)]
    write_json(path, with_ids)
    assert bed.index.refresh_index().conversations == ["jp-c17800000001"]
    assert list(bed.catalog.iterate_chunks_to_embed()) == numbers
    assert bed.backlog().embed_missing_chunks(lambda is_bulk: encoder) == 0
    assert len(encoder.texts) == before
    assert held(bed) == wanted(bed)
