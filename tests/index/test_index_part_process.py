"""Tests that several processes build the same index as one process."""

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from support import Builder, asked, called, content_of, said

from kbtui.index import index_part_process
from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import IndexProgress, WorkspaceIndexWriter
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings

QUERIES = ["crane", "heron number 7", '"number 31"', "tool:learn crane", "title:S12", "topic:guide -heron"]  # fmt: skip
needs_two_cores = pytest.mark.skipif(
    index_part_process.count_usable_cores() < 2, reason="one core: no other process is started"
)


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    """A workspace that is large enough for the writer to start one other process."""
    monkeypatch.setattr(index_part_process, "BYTES_PER_PROCESS", 20_000)
    monkeypatch.setattr(index_part_process, "HANDED_OUT_BYTES", 2_000)
    monkeypatch.setattr(index_part_process, "RESERVED_BYTES", 2_000)
    monkeypatch.setattr(index_part_process, "PROCESSES_MAX", 1)
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(120):
        file = builder.subject(
            f"guide/s{number}.md", f"# S{number}\n\nThe crane number {number}.\n\n" + "Reeds. " * 30
        )
        os.utime(file, (1_000_000 + number, 1_000_000 + number))
    second = builder.subject("guide/s0.txt", "Another crane, whose file has the same name.\n")
    os.utime(second, (1, 1))
    builder.subject("guide/.inner.md", "# Inner\n\nThe hidden handshake of zebras.\n")
    for number in range(60):
        learned = called("a", "learn", f"The crane {number}", topic="guide", subjects=f"s{number}")
        builder.conversation(
            number, [[asked(f"What of heron number {number}?"), *learned, said("It fishes.")]]
        )
    return builder


class WaitForOtherProcess:
    """A progress callback that makes the writer wait until another process has indexed something."""

    def __init__(self, act: Callable[[psutil.Process], None] = lambda process: None) -> None:
        self._act = act
        self.progress: list[IndexProgress] = []
        self.folder = Path()
        self.has_helped = False

    def __call__(self, progress: IndexProgress) -> None:
        self.progress.append(progress)
        if progress.done and not self.has_helped:
            ends = time.monotonic() + 60
            while not self._has_indexed_something():
                assert time.monotonic() < ends
                time.sleep(0.02)
            self.has_helped = True
            (process,) = (
                child
                for child in psutil.Process().children()
                if "kbtui.index.index_part_process" in child.cmdline()
            )
            self._act(process)

    def _has_indexed_something(self) -> bool:
        for path in self.folder.glob("gen-*/parts/1/gen-*/catalog.sqlite"):
            # A reader that takes locks would block the process.
            address = f"{path.as_uri()}?mode=ro&immutable=1"
            with (
                contextlib.suppress(sqlite3.Error),
                closing(sqlite3.connect(address, uri=True)) as db,
            ):
                return bool(db.execute("SELECT 1 FROM entries LIMIT 1").fetchone())
        return False


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the writer report its progress early, so that a test can wait for the other process."""
    from kbtui.index import catalog_and_keyword_indexer

    monkeypatch.setattr(catalog_and_keyword_indexer, "BATCH_ENTRIES", 4)


def write_index(
    built: Builder, cache: Path, other: WaitForOtherProcess | None = None, **options: object
) -> bool:
    """Refresh an index; return whether the refresh was interrupted."""
    if other is not None:
        other.folder = cache
        options["on_progress"] = other
    index = WorkspaceIndexWriter(built.workspace, Settings(model="off"), cache_dir=cache, **options)  # type: ignore[arg-type]
    with closing(index):
        is_unfinished = index.refresh_index().is_unfinished
        assert index.catalog.find_catalog_damage() is None
        assert not list(index.folder.glob("parts/*"))
        return is_unfinished


def write_index_on_one_core(built: Builder, cache: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_part_process, "count_usable_cores", lambda: 1)
        write_index(built, cache)


def answers(built: Builder, cache: Path) -> list[list[tuple[str, float]]]:
    with closing(IndexReader(cache)) as reader:
        found = [
            search_index(built.workspace, reader, SearchRequest(query, mode="lexical", limit=100))
            for query in QUERIES
        ]
    return [[(hit.ref, hit.score) for hit in answer.hits] for answer in found]


@needs_two_cores
@pytest.mark.usefixtures("small_batches")
def test_two_processes_build_what_one_builds(built: Builder, tmp_path: Path) -> None:
    other = WaitForOtherProcess()
    write_index(built, tmp_path / "two", other)
    assert other.has_helped
    write_index_on_one_core(built, tmp_path / "one")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")
    assert other.progress[-1] == IndexProgress("keywords", 182, 182)
    for cache in (tmp_path / "one", tmp_path / "two"):
        index = WorkspaceIndexWriter(built.workspace, Settings(model="off"), cache_dir=cache)
        with closing(index):
            index.rewrite_indexes_with_many_replaced_documents()
    found = answers(built, tmp_path / "two")
    assert all(found)
    assert found == answers(built, tmp_path / "one")


@needs_two_cores
@pytest.mark.usefixtures("small_batches")
def test_files_of_a_part_are_deleted_when_they_are_no_longer_needed(
    built: Builder, tmp_path: Path
) -> None:
    write_index(built, tmp_path / "two", WaitForOtherProcess())
    for path in (built.root / "docs/guide").iterdir():
        path.unlink()
    index = WorkspaceIndexWriter(built.workspace, Settings(model="off"), cache_dir=tmp_path / "two")
    with closing(index):
        index.refresh_index()
        index.rewrite_indexes_with_many_replaced_documents()
    index = WorkspaceIndexWriter(built.workspace, Settings(model="off"), cache_dir=tmp_path / "two")
    with closing(index):  # tantivy deletes files when it commits
        built.subject("guide/last.md", "# Last\n\nThe last crane.\n")
        index.refresh_index()
        lexical = index.folder / "lexical"
        segments = json.loads((lexical / "meta.json").read_bytes())["segments"]
        used = {segment["segment_id"].replace("-", "") for segment in segments}
        found = {path.name.partition(".")[0] for path in lexical.glob("[0-9a-f]*.*")}
        assert found == used


@needs_two_cores
@pytest.mark.usefixtures("small_batches")
def test_a_power_cut_that_takes_the_last_transactions_repeats_no_document(
    built: Builder, tmp_path: Path
) -> None:
    write_index(built, tmp_path / "two")
    (catalog,) = tmp_path.glob("two/gen-*/catalog.sqlite")
    with closing(sqlite3.connect(catalog, isolation_level=None)) as db:
        db.execute("DELETE FROM entries WHERE kind = 'subject'")
        for table in ("sums", "chunks"):
            db.execute(f"DELETE FROM {table} WHERE entry_id NOT IN (SELECT id FROM entries)")
        db.execute("UPDATE meta SET value = '1' WHERE key = 'seq'")
    write_index(built, tmp_path / "two", WaitForOtherProcess())
    write_index_on_one_core(built, tmp_path / "one")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


def test_documents_of_lost_transactions_go_even_if_documents_of_others_were_missing(
    built: Builder, tmp_path: Path
) -> None:
    write_index_on_one_core(built, tmp_path / "one")
    write_index_on_one_core(built, tmp_path / "two")
    index = WorkspaceIndexWriter(built.workspace, Settings(model="off"), cache_dir=tmp_path / "two")
    with closing(index):
        last, writer = index.catalog.get_last_transaction_number(), index.storage.writers[False]
        lost = CatalogEntry("s-lost", "subject", "Lost", "", "")
        writer.replace_entry_documents(lost, [Chunk("c" * 16, "A lost crane.", 0)], [9_999])
        writer.commit_with_watermark(last + 2, complete=last)
    assert content_of(tmp_path / "two") != content_of(tmp_path / "one")
    write_index_on_one_core(built, tmp_path / "two")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


@needs_two_cores
@pytest.mark.usefixtures("small_batches")
def test_what_another_process_indexed_can_change_and_go(built: Builder, tmp_path: Path) -> None:
    write_index(built, tmp_path / "two", WaitForOtherProcess())
    built.subject("guide/s3.md", "# S3\n\nA stork now.\n")
    (built.root / "docs/guide/s1.md").unlink()
    built.conversation(0, [[asked("And storks?")]])
    write_index(built, tmp_path / "two")
    write_index_on_one_core(built, tmp_path / "one")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


@needs_two_cores
@pytest.mark.usefixtures("small_batches")
def test_another_process_indexes_a_conversation_of_several_segments(
    built: Builder, tmp_path: Path
) -> None:
    herons = [
        said(f"The heron {number % 40} stood there. " + "Water. " * 150) for number in range(60)
    ]
    folder = built.conversation(200, [[asked("And?"), *herons] for _ in range(45)])
    assert (folder / "events.json").stat().st_size > 2_500_000
    os.utime(folder / "events.json", (1, 1))
    os.utime(folder / "metadata.json", (1, 1))
    write_index(built, tmp_path / "two", WaitForOtherProcess())
    write_index_on_one_core(built, tmp_path / "one")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


@needs_two_cores
@pytest.mark.usefixtures("small_batches")
def test_documents_of_a_part_that_were_not_added_are_made_from_its_rows(
    built: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            index_part_process.IndexPartProcesses, "list_parts_with_new_documents", lambda self: []
        )
        write_index(built, tmp_path / "two", WaitForOtherProcess())
    write_index_on_one_core(built, tmp_path / "one")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


@needs_two_cores
def test_a_process_that_starts_early_ends_if_it_gets_no_entry(
    built: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.index import workspace_index_writer

    started = []
    monkeypatch.setattr(index_part_process, "BYTES_PER_PROCESS", 10_000_000)
    monkeypatch.setattr(workspace_index_writer, "USUAL_CONVERSATION_BYTES", 1_000_000)
    write_index(
        built,
        tmp_path / "two",
        on_progress=lambda progress: started.extend(psutil.Process().children()),
    )
    assert started
    assert not any(process.is_running() for process in started)
    write_index_on_one_core(built, tmp_path / "one")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


@needs_two_cores
@pytest.mark.usefixtures("small_batches")
def test_nothing_is_lost_if_the_other_process_is_killed(built: Builder, tmp_path: Path) -> None:
    write_index(built, tmp_path / "two", WaitForOtherProcess(psutil.Process.kill))
    write_index_on_one_core(built, tmp_path / "one")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


@needs_two_cores
@pytest.mark.usefixtures("small_batches")
def test_a_stop_ends_the_other_process_and_the_next_refresh_does_the_rest(
    built: Builder, tmp_path: Path
) -> None:
    stop, ended = threading.Event(), list[psutil.Process]()

    def stop_refresh(process: psutil.Process) -> None:
        ended.append(process)
        stop.set()

    write_index(built, tmp_path / "two", WaitForOtherProcess(stop_refresh), stop=stop)
    assert not ended[0].is_running()
    write_index(built, tmp_path / "two")
    write_index_on_one_core(built, tmp_path / "one")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


@needs_two_cores
@pytest.mark.usefixtures("small_batches")
def test_an_interrupted_refresh_keeps_what_the_other_process_indexed(
    built: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.index import workspace_index_writer

    monkeypatch.setattr(workspace_index_writer, "PATIENCE_SECONDS_WITH_PROCESSES", 0.0)
    other, requested = WaitForOtherProcess(lambda process: requested.set()), threading.Event()
    assert write_index(built, tmp_path / "two", other, should_yield=requested.is_set)
    with closing(IndexReader(tmp_path / "two")) as reader:
        oldest = SearchRequest("title:S0", mode="lexical")
        assert search_index(built.workspace, reader, oldest).hits
    assert not write_index(built, tmp_path / "two")
    write_index_on_one_core(built, tmp_path / "one")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


@needs_two_cores
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("moment", ["rename", "meta.json", "watermark"])
def test_a_crash_while_a_part_is_added_loses_nothing(
    built: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    from kbtui.index import keyword_index_writer

    def crash(*_: object, **__: object) -> None:
        raise OSError("power cut")

    with monkeypatch.context() as patch:
        if moment == "rename":
            patch.setattr(Path, "rename", crash)
        elif moment == "meta.json":
            patch.setattr(keyword_index_writer, "write_file_atomically", crash)
        else:
            original = keyword_index_writer.KeywordIndexWriter.add_segments_of_parts

            def add_and_crash(self: object, folders: list[Path]) -> None:
                original(self, folders)  # type: ignore[arg-type]
                crash()

            patch.setattr(
                keyword_index_writer.KeywordIndexWriter, "add_segments_of_parts", add_and_crash
            )
        other = WaitForOtherProcess()
        other.folder = tmp_path / "two"
        index = WorkspaceIndexWriter(
            built.workspace, Settings(model="off"), cache_dir=tmp_path / "two", on_progress=other
        )
        with pytest.raises(OSError, match="power cut"):
            index.refresh_index()
        index.catalog.close()
        del index
    write_index(built, tmp_path / "two")
    write_index_on_one_core(built, tmp_path / "one")
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")
