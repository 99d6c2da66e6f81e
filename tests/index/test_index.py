"""The index follows the files, whatever happens to either."""

import os
import random
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from running import on_pipe
from support import FIRST_ID, Builder, asked, called, content_of, said

from kbtui.conversations.conversation_data_types import Conversation
from kbtui.engine.index_refresh_worker import IndexRefreshWorker
from kbtui.index import catalog_and_keyword_indexer, index_generations, indexable_entry_reader
from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.entry_and_chunk_data_types import Chunk
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import (
    IndexProgress,
    IndexRefreshChanges,
    WorkspaceIndexWriter,
)
from kbtui.knowledge.front_matter import FrontMatterAndBody
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings


@pytest.fixture
def built(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(guide={}, notes={"disabled": ["secret"]})
    builder.subject(
        "guide/start.md", "# Getting started\n\nInstall the program with one command.\n"
    )
    builder.subject("guide/.inner.md", "# Inner\n\nThe hidden handshake of zebras.\n")
    builder.subject("notes/lancedb.md", "# LanceDB\n\nFragments pile up without compaction.\n")
    builder.subject("notes/secret.md", "# Secret\n\nThe zebras must not be found.\n")
    builder.conversation(
        1,
        [
            [
                asked("How do I keep fragments low?"),
                *called("a", "learn", "…", topic="notes", subjects="lancedb"),
                said("Call optimize now and then."),
            ],
            [asked("And what of zebras?"), said("They have stripes.")],
        ],
        title="Fragments",
    )
    builder.conversation(2, [[asked("An archived matter"), said("Old giraffes.")]], archived=True)
    return builder


def refresh(builder: Builder, **options: object) -> IndexRefreshChanges:
    index = WorkspaceIndexWriter(builder.workspace, Settings(), **options)  # type: ignore[arg-type]
    try:
        return index.refresh_index()
    finally:
        index.close()


def test_a_conversation_that_cannot_be_read_leaves_the_others(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = indexable_entry_reader.split_conversation_into_chunks

    def fail(conversation: Conversation, **options: bool) -> Iterator[Chunk]:
        if conversation.info.title == "Fragments":
            raise AttributeError("'int' object has no attribute 'isascii'")
        return original(conversation, **options)

    monkeypatch.setattr(indexable_entry_reader, "split_conversation_into_chunks", fail)
    refresh(built)
    folder = index_generations.find_current_index_generation(built.workspace.cache_dir)
    assert folder is not None
    entries = CatalogDatabase(folder / "catalog.sqlite").iterate_entries()
    errors = {one.title: one.error for one in entries if one.error}
    assert list(errors) == ["Fragments"]
    assert errors["Fragments"].startswith("not indexed: ")
    assert found(built, "install program") == ["guide/start:1-3"]
    assert found(built, "optimize") == []


def test_a_subject_that_cannot_be_read_leaves_the_others(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = indexable_entry_reader.split_subject_into_chunks

    def fail(text: FrontMatterAndBody) -> list[Chunk]:
        if text.title == "LanceDB":
            raise RecursionError("too deep")
        return original(text)

    monkeypatch.setattr(indexable_entry_reader, "split_subject_into_chunks", fail)
    refresh(built)
    assert found(built, "install program") == ["guide/start:1-3"]


def test_nobody_waits_for_a_refresh_that_failed(
    built: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: WorkspaceIndexWriter, **options: bool) -> IndexRefreshChanges:
        raise TypeError("unexpected")

    monkeypatch.setattr(WorkspaceIndexWriter, "refresh_index", fail)
    log: list[str] = []
    worker = IndexRefreshWorker(
        built.workspace, Settings(), lambda progress: None, lambda changes: None, log.append
    )
    worker.start_thread()
    try:
        assert worker.request_index_refresh().wait(20)
        assert worker.error == "unexpected"
        assert log[0] == "refresh failed: TypeError: unexpected"
        monkeypatch.undo()
        assert worker.request_index_refresh().wait(20)
        assert worker.error is None
    finally:
        worker.stop_thread()


def found(builder: Builder, query: str, **options: object) -> list[str]:
    reader = IndexReader(builder.workspace.cache_dir)
    hits = search_index(
        builder.workspace, reader, SearchRequest(query, mode="lexical", **options)
    ).hits  # type: ignore[arg-type]
    reader.close()
    return [hit.ref for hit in hits]


def test_subjects_and_conversations_are_found_by_their_words(built: Builder) -> None:
    refresh(built)
    assert found(built, "install program") == ["guide/start:1-3"]
    assert found(built, "fragments compaction")[0] == "notes/lancedb:1-3"
    assert "jp-c17800000001:1" in found(built, "optimize")


def test_hidden_subjects_are_found_only_when_asked_for_and_disabled_never(built: Builder) -> None:
    refresh(built)
    # The first hit has the word; the next ones are its neighbours in the same conversation.
    assert found(built, "zebras")[0] == "jp-c17800000001:2"
    assert {ref.partition(":")[0] for ref in found(built, "zebras")} == {"jp-c17800000001"}
    assert "guide/inner:1-3" in found(built, "zebras", hidden=True)
    assert not [
        ref for ref in found(built, "zebras", hidden=True) if ref.startswith("notes/secret")
    ]


def test_archived_conversations_are_found_only_when_asked_for(built: Builder) -> None:
    refresh(built)
    assert found(built, "giraffes") == []
    assert found(built, "giraffes", archived=True)[0] == "jp-c17800000002:1"


def test_scores_of_visible_hits_do_not_move_when_hidden_subjects_are_added(built: Builder) -> None:
    refresh(built)
    reader = IndexReader(built.workspace.cache_dir)
    before = [
        (hit.ref, hit.score)
        for hit in search_index(
            built.workspace, reader, SearchRequest("zebras stripes", mode="lexical")
        ).hits
    ]
    for number in range(20):
        built.subject(f"guide/.hidden{number}.md", "zebras stripes zebras\n")
    refresh(built)
    after = [
        (hit.ref, hit.score)
        for hit in search_index(
            built.workspace, reader, SearchRequest("zebras stripes", mode="lexical")
        ).hits
    ]
    assert before == after


def test_nothing_changed_means_nothing_written(built: Builder) -> None:
    assert refresh(built)
    assert not refresh(built)


@pytest.mark.parametrize(
    "change", ["edit", "add", "rename", "delete", "disable", "archive", "retitle"]
)
def test_every_change_gives_what_a_fresh_build_gives(
    built: Builder, change: str, tmp_path: Path
) -> None:
    refresh(built)
    conversations = built.root / ".jp" / "conversations"
    if change == "edit":
        built.subject(
            "guide/start.md", "# Getting started\n\nInstall it with two commands.\n\nThen run.\n"
        )
    elif change == "add":
        built.subject("guide/deep/new.toml", 'key = "value of a new file"\n')
    elif change == "rename":
        (built.root / "docs/guide/start.md").rename(built.root / "docs/guide/begin.md")
    elif change == "delete":
        (built.root / "docs/notes/lancedb.md").unlink()
    elif change == "disable":
        built.topics(guide={"disabled": ["start"]}, notes={"enable": False})
    elif change == "archive":
        shutil.move(conversations / "17800000001", conversations / ".archive" / "17800000001")
    elif change == "retitle":
        (conversations / "17800000001").rename(conversations / "17800000001-other-title")
    assert refresh(built)
    fresh = tmp_path / "fresh"
    refresh(built, cache_dir=fresh)
    assert content_of(built.workspace.cache_dir) == content_of(fresh)


def test_an_edit_keeps_the_numbers_of_unchanged_chunks(built: Builder) -> None:
    text = "\n\n".join(f"# Part {n}\n\n" + f"sentence {n} says something. " * 20 for n in range(12))
    built.subject("guide/long.md", text)
    refresh(built)
    before = numbers(built)
    built.subject("guide/long.md", text.replace("sentence 5 says", "sentence five tells"))
    refresh(built)
    after = numbers(built)
    assert len(before.keys() & after.keys()) >= len(before) - 2
    assert all(after[key] == before[key] for key in before.keys() & after.keys())


def numbers(builder: Builder) -> dict[str, int]:
    from kbtui.index.catalog_database import CatalogDatabase

    catalog = CatalogDatabase(IndexReader(builder.workspace.cache_dir).folder / "catalog.sqlite")
    return {
        chunk.id: chunk.number
        for entry in catalog.iterate_entries()
        for chunk in catalog.list_entry_chunks(entry.id)
    }


def test_a_broken_conversation_is_an_entry_with_an_error_and_the_rest_is_indexed(
    built: Builder,
) -> None:
    folder = built.conversation(3, [[asked("half of it")]])
    (folder / "events.json").write_text('[{"timestamp": "2026-01-01 00:00:00.0", "type": "chat_req')
    refresh(built)
    entry = IndexReader(built.workspace.cache_dir).get_entries_by_id({"jp-c17800000003"})[
        "jp-c17800000003"
    ]
    assert entry.error
    assert found(built, "optimize")


def test_an_unreadable_subject_is_an_entry_with_an_error(built: Builder) -> None:
    (built.root / "docs/guide/picture.md").write_bytes(b"\x89PNG\0\0" + b"binary" * 10)
    refresh(built)
    reader = IndexReader(built.workspace.cache_dir)
    from kbtui.index.entry_and_chunk_data_types import make_subject_id

    identity = make_subject_id("guide", "picture")
    assert "binary" in (reader.get_entries_by_id({identity})[identity].error or "")


def test_another_language_makes_another_generation_that_takes_over(built: Builder) -> None:
    refresh(built)
    old = index_generations.find_current_index_generation(built.workspace.cache_dir)
    index = WorkspaceIndexWriter(built.workspace, Settings(language="german"))
    assert index_generations.find_current_index_generation(built.workspace.cache_dir) == old
    index.refresh_index()
    index.close()
    new = index_generations.find_current_index_generation(built.workspace.cache_dir)
    assert new != old
    assert not old.exists()  # type: ignore[union-attr]
    assert found(built, "install program") == ["guide/start:1-3"]


def test_a_rebuild_serves_the_old_generation_until_it_is_complete(built: Builder) -> None:
    refresh(built)
    reader = IndexReader(built.workspace.cache_dir)
    index = WorkspaceIndexWriter(built.workspace, Settings(), rebuild=True)
    assert not reader.is_generation_replaced()
    index.refresh_index()
    assert reader.is_generation_replaced()
    index.close()


def test_a_reader_that_nobody_uses_any_longer_closes_its_files(built: Builder) -> None:
    """Threads share a reader of a replaced generation, so none of them can close it."""
    refresh(built)
    reader = IndexReader(built.workspace.cache_dir)
    catalog = str(reader.folder / "catalog.sqlite")

    def is_catalog_open() -> bool:
        return any(one.path.startswith(catalog) for one in psutil.Process().open_files())

    reader.count_catalog_rows()
    assert is_catalog_open()
    del reader
    assert not is_catalog_open()


def test_a_rebuild_reads_a_file_that_looks_unchanged(built: Builder) -> None:
    refresh(built)
    path = built.root / "docs/guide/start.md"
    status, text = path.stat(), path.read_text()
    with path.open("r+") as file:
        file.write(text.replace("Install", "Uproots"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_ino) == (status.st_size, status.st_ino)
    refresh(built, rebuild=True)
    assert found(built, "uproots") == ["guide/start:1-3"]


def test_an_empty_subject_is_in_the_catalog_but_no_search_finds_it(built: Builder) -> None:
    built.subject("guide/nothing.md", "")
    changed = refresh(built).subjects
    assert "guide/nothing" in changed
    assert found(built, "title:nothing") == []
    built.subject("guide/start.md", "")
    assert refresh(built).subjects == ["guide/start"]
    assert found(built, "install program") == []
    assert not refresh(built)


@pytest.mark.parametrize("damage", ["catalog", "lexical", "hidden", "meta", "empty-catalog"])
def test_a_damaged_index_is_made_anew(built: Builder, damage: str, tmp_path: Path) -> None:
    refresh(built)
    folder = IndexReader(built.workspace.cache_dir).folder
    if damage == "catalog":
        for name in ("catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"):
            (folder / name).unlink(missing_ok=True)
        (folder / "catalog.sqlite").write_bytes(b"not a database" * 1000)
    elif damage == "empty-catalog":
        (folder / "catalog.sqlite").unlink()
    elif damage == "meta":
        (folder / "lexical" / "meta.json").write_text("{")
    else:
        shutil.rmtree(folder / damage)
    refresh(built)
    refresh(built, cache_dir=tmp_path / "fresh")
    assert content_of(built.workspace.cache_dir) == content_of(tmp_path / "fresh")


KILLED = """
import os, signal, sys
from pathlib import Path
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.index import keyword_index_writer as lexical; from kbtui.index import catalog_database
from kbtui.workspace import Settings, open_workspace_at_root

where, count = sys.argv[2], int(sys.argv[3])
left = {"count": count}

def dying(kind, call):
    def wrapped(*args, **kwargs):
        if where == f"before-{kind}":
            left["count"] -= 1
            if left["count"] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        result = call(*args, **kwargs)
        if where == f"after-{kind}":
            left["count"] -= 1
            if left["count"] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapped

catalog_database.CatalogDatabase.commit_transaction = dying("catalog", catalog_database.CatalogDatabase.commit_transaction)
catalog_database.CatalogDatabase.write_entry_and_chunks = dying("put", catalog_database.CatalogDatabase.write_entry_and_chunks)
lexical.KeywordIndexWriter.commit_with_watermark = dying("lexical", lexical.KeywordIndexWriter.commit_with_watermark)
lexical.KeywordIndexWriter.replace_entry_documents = dying("replace", lexical.KeywordIndexWriter.replace_entry_documents)
lexical.KeywordIndexWriter.update_chunk_documents = dying("replace", lexical.KeywordIndexWriter.update_chunk_documents)
WorkspaceIndexWriter(open_workspace_at_root(Path(sys.argv[1])), Settings()).refresh_index()
print("survived")
"""


def refresh_until_killed(
    builder: Builder, directory: Path, where: str, count: int
) -> tuple[bytes, bytes, int]:
    """Refresh the index in a process that kills itself at a write, unless there are fewer writes."""
    script = directory / "killed.py"
    script.write_text(KILLED)
    return on_pipe([str(script), str(builder.root), where, str(count)])


@pytest.mark.parametrize("kind", ["catalog", "put", "lexical", "replace"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_killed_at_a_write_boundary_the_next_start_repairs(
    built: Builder, side: str, kind: str, tmp_path: Path
) -> None:
    refresh(built)
    cache = built.workspace.cache_dir
    shutil.copytree(cache, tmp_path / "indexed", symlinks=True)
    built.subject("guide/start.md", "# Getting started\n\nA wholly new text about okapis.\n")
    built.subject("guide/.inner.md", "# Inner\n\nNo more handshakes.\n")
    built.subject("guide/inner.md", "# Inner\n\nNow visible.\n")
    (built.root / "docs/notes/lancedb.md").unlink()
    built.conversation(1, [[asked("Rewritten from the start")]], title="Other")
    refresh(built, cache_dir=tmp_path / "fresh")
    expected = content_of(tmp_path / "fresh")
    codes = []
    for count in range(3):
        # Renamed, because tantivy's threads may still create files after an index was closed.
        cache.rename(cache.with_name(f"repaired-{count}"))
        shutil.copytree(tmp_path / "indexed", cache, symlinks=True)
        out, err, code = refresh_until_killed(built, tmp_path, f"{side}-{kind}", count)
        assert code == -signal.SIGKILL or b"survived" in out, (count, err)
        codes.append(code)
        refresh(built)
        assert content_of(cache) == expected, f"killed at write {count}"
    assert codes[0] == -signal.SIGKILL, "it was not killed"


SEED = int(os.environ.get("KBTUI_SEED") or random.SystemRandom().randrange(1 << 30))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_kills_one_after_the_other_leave_what_a_fresh_build_gives(
    built: Builder, tmp_path: Path
) -> None:
    print(f"KBTUI_SEED={SEED}")
    random_ = random.Random(SEED)
    killed = 0
    for round_ in range(200):
        for _ in range(random_.randint(1, 4)):
            change(built, random_)
        where = (
            random_.choice(["before", "after"])
            + "-"
            + random_.choice(["catalog", "put", "lexical", "replace"])
        )
        out, err, code = refresh_until_killed(built, tmp_path, where, random_.randrange(4))
        killed += code == -signal.SIGKILL
        assert code == -signal.SIGKILL or b"survived" in out, err
        if round_ % 10 == 9:
            refresh(built)
            fresh = tmp_path / f"fresh{round_}"
            refresh(built, cache_dir=fresh)
            assert content_of(built.workspace.cache_dir) == content_of(fresh), (SEED, round_)
            shutil.rmtree(fresh)
    assert killed > 50


def change(built: Builder, random_: random.Random) -> None:
    """Apply one random change to a workspace."""
    name = f"s{random_.randrange(12)}"
    word = f"word{random_.randrange(1000)}"
    kind = random_.randrange(6)
    if kind == 0:
        built.subject(f"guide/{name}.md", f"# {name}\n\n{word} " * random_.randint(1, 60))
    elif kind == 1:
        built.subject(f"guide/.{name}.md", f"# hidden {name}\n\n{word}\n")
    elif kind == 2:
        for path in (built.root / "docs" / "guide").glob(f"*{name}.md"):
            path.unlink()
    elif kind == 3:
        number = 10 + random_.randrange(6)
        built.conversation(
            number, [[asked(word), said(word * 3)]] * random_.randint(1, 5), title=word
        )
    elif kind == 4:
        shutil.rmtree(
            built.root / ".jp/conversations" / f"178000000{10 + random_.randrange(6)}",
            ignore_errors=True,
        )
    else:
        built.topics(guide={"disabled": [name]}, notes={"enable": bool(random_.randrange(2))})


def test_a_second_writer_is_told_that_there_is_one(built: Builder) -> None:
    from kbtui.errors import IndexUnavailable
    from kbtui.index.keyword_index_writer import KeywordIndexWriter

    index = WorkspaceIndexWriter(built.workspace, Settings())
    with pytest.raises(IndexUnavailable, match="another process"):
        KeywordIndexWriter(index.folder / "lexical", "english")
    index.close()


class Counting(threading.Event):
    """An event that counts as set from the `after`th check on."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("after", [0, 1, 3, 6, 9, 12, 15, 60])
def test_a_refresh_that_is_stopped_loses_nothing(
    built: Builder, after: int, tmp_path: Path
) -> None:
    for number in range(300):
        built.subject(f"guide/s{number}.md", f"# S{number}\n\nThe crane number {number}.\n")
    refresh(built)
    built.subject("guide/s7.md", "# S7\n\nA heron now.\n")
    (built.root / "docs/guide/s8.md").unlink()
    stopped = refresh(built, stop=Counting(after))
    # Checks: every 64 of 306 states and 304 subjects, once for conversations, and once for each file read.
    if after < 11:
        assert stopped.is_unfinished
        assert found(built, "heron") == []
    refresh(built)
    assert found(built, "heron") == ["guide/s7:1-3"]
    refresh(built, cache_dir=tmp_path / "fresh")
    assert content_of(built.workspace.cache_dir) == content_of(tmp_path / "fresh")


def test_the_newest_subjects_and_conversations_are_searchable_before_the_rest(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_and_keyword_indexer, "BATCH_ENTRIES", 4)
    built = Builder(workspace_root)
    built.topics(guide={})
    for number in range(10):
        file = built.subject(f"guide/s{number}.md", f"# S{number}\n\nThe crane number {number}.\n")
        os.utime(file, (1_000_000 + number, 1_000_000 + number))
        built.conversation(number, [[asked(f"The crane number {number}")]])
    stop = threading.Event()

    def stop_after_first_batch(progress: IndexProgress) -> None:
        if progress.done:
            stop.set()

    refresh(built, stop=stop, on_progress=stop_after_first_batch)
    newest = [f"guide/s{number}:1-3" for number in (8, 9)]
    newest += [f"jp-c{FIRST_ID + number}:1" for number in (8, 9)]
    assert sorted(found(built, "crane")) == newest
