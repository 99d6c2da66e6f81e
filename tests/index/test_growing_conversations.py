"""Only the new part of a growing conversation is indexed, with the result of a fresh build."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from claude_sessions import answered, call, result, session_id, typed, write_session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import Builder, asked, called, content_of, said, write_json

from kbtui.conversations.formats import jsonl_conversation_format
from kbtui.conversations.formats.jp import jp_conversation_loader as loader
from kbtui.engine.index_refresh_worker import IndexRefreshWorker
from kbtui.index import indexable_entry_reader
from kbtui.index import workspace_index_writer as writing
from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.index_generations import find_catalog_or_keyword_index_damage
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import IndexRefreshChanges, WorkspaceIndexWriter
from kbtui.workspace import Settings

WORDS = ["otter", "heron", "alder", "river", "stone", "egret", "same"]
TURNS = ["28", "29", "30", "31"]
"""Words of `long_one` that only these turns have."""


@pytest.fixture(autouse=True)
def short_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "MIN_BYTES_FOR_SEGMENTS", 0)
    monkeypatch.setattr(loader, "BLOCK_BYTES", 16)
    monkeypatch.setattr(jsonl_conversation_format, "MIN_BYTES_FOR_SEGMENTS", 0)
    monkeypatch.setattr(jsonl_conversation_format, "RESUME_POINT_DISTANCE_BYTES", 1)
    monkeypatch.setattr(indexable_entry_reader, "BATCH_BYTES", 1500)
    monkeypatch.setattr(indexable_entry_reader, "WHOLE_BYTES_MAX", 3000)


def refresh(builder: Builder, **options: Any) -> IndexRefreshChanges:
    index = WorkspaceIndexWriter(builder.workspace, Settings(), **options)
    try:
        return index.refresh_index()
    finally:
        index.close()


def everything(cache: Path) -> dict[str, Any]:
    """Return an index's content, with the hashes of vectors and the words of each document."""
    reader = IndexReader(cache)
    assert find_catalog_or_keyword_index_damage(reader.folder) is None
    found = content_of(cache)
    tables = sqlite3.connect(reader.folder / "catalog.sqlite")
    rows = "entry_id, ordinal, id, turn, role, tool, timestamp, embed, hash, call, args"
    found["rows"] = tables.execute(
        f"SELECT {rows} FROM chunks ORDER BY entry_id, ordinal"
    ).fetchall()
    found["usage"] = sorted(map(repr, tables.execute("SELECT * FROM usage")))
    found["changed"] = tables.execute(
        "SELECT id, changed, stat, size FROM entries ORDER BY id"
    ).fetchall()
    ids = dict(tables.execute("SELECT number, id FROM chunks"))
    index = reader.open_keyword_index()
    searcher = index.searcher()
    for name in ("chunk", "place", "prose_length"):
        for word in [*WORDS, *TURNS]:
            query = index.parse_query(word, ["body"])
            hits = [
                (score, address) for score, address in searcher.search(query, limit=10_000).hits
            ]
            numbers = searcher.fast_field_values(name, [address for _, address in hits])
            named = (ids[number] if name == "chunk" else number for number in numbers)
            found[name, word] = sorted(named)
    tables.close()
    reader.close()
    return found


def is_as_fresh(builder: Builder, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    refresh(builder, cache_dir=place)
    assert everything(builder.workspace.cache_dir) == everything(place)


def write(builder: Builder, events: list[dict[str, Any]]) -> None:
    folder = builder.conversation(1, [[]], title="Long")
    stamped = [
        {"timestamp": f"2026-01-01 00:{at // 60:02}:{at % 60:02}.0"} | event
        for at, event in enumerate(events)
    ]
    write_json(folder / "events.json", stamped)


SAID = st.lists(st.sampled_from(WORDS), min_size=1, max_size=160).map(" ".join)
TURN = st.builds(
    lambda question, answers, call: [
        {"type": "turn_start"}, asked(question), *call, *map(said, answers)
    ],
    SAID,
    st.lists(SAID, max_size=2),
    st.sampled_from(
        [
            [],
            called("c", "learn", "same same", topic="guide", subjects="s"),
            called("d", "learn", "x", topic="guide", subjects="s")[:1],
            called("d", "learn", "late", topic="guide", subjects="s")[1:],
            [{"type": "chat_response", "message": "same", "timestamp": "never"}],
        ]
    ),
)  # fmt: skip
STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(TURN, min_size=1, max_size=8)),
    st.tuples(st.just("append"), st.lists(TURN, min_size=1, max_size=2)),
    st.tuples(st.just("replace"), st.lists(TURN, max_size=4)),
    st.tuples(st.just("continue"), SAID),
)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, min_size=1, max_size=5))
def test_however_it_grows_it_is_what_a_fresh_build_gives(
    workspace_root: Path, tmp_path: Path, steps: list[Any]
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/s.md", "# S\n\notter\n")
    events: list[dict[str, Any]] = []
    for how, what in steps:
        if how == "replace":
            events = events[: len(events) // 2]
        added = [said(what)] if how == "continue" else [one for turn in what for one in turn]
        events = events + added
        write(builder, events)
        refresh(builder)
    is_as_fresh(builder, tmp_path / "fresh")


def long_one(turns: int) -> list[dict[str, Any]]:
    random_ = random.Random(turns)
    text = " ".join(random_.choices(WORDS, k=30))
    return [
        event
        for number in range(turns)
        for event in ({"type": "turn_start"}, asked(f"{number} {text}"), said("same"))
    ]


def test_a_turn_that_continues_where_the_next_one_began_stays_one_turn(
    workspace_root: Path, tmp_path: Path
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    first = [{"type": "turn_start"}, asked("otter"), said("heron")]
    write(builder, [*first, {"type": "turn_start"}, asked("alder"), said("river")])
    refresh(builder)
    write(builder, [*first, said("stone"), {"type": "turn_start"}, asked("egret")])
    refresh(builder)
    is_as_fresh(builder, tmp_path / "fresh")


def test_what_is_appended_leaves_what_was_there_alone(
    workspace_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    write(builder, long_one(200))
    refresh(builder)
    catalog = CatalogDatabase(IndexReader(builder.workspace.cache_dir).folder / "catalog.sqlite")
    vectors = set(catalog.iterate_chunks_to_embed())
    put: list[int] = []
    real = CatalogDatabase.write_entry_and_chunks

    def counting(self: CatalogDatabase, entry: Any, chunks: Any, seq: int, **more: Any) -> Any:
        put.append(len(chunks))
        return real(self, entry, chunks, seq, **more)

    monkeypatch.setattr(CatalogDatabase, "write_entry_and_chunks", counting)
    write(builder, [*long_one(200), {"type": "turn_start"}, asked("and now"), said("an ibis")])
    refresh(builder)
    assert sum(put) <= 8
    now = set(catalog.iterate_chunks_to_embed())
    assert len(vectors - now) <= 4, "vectors that are made again"
    assert len(now - vectors) <= 8
    catalog.close()
    is_as_fresh(builder, tmp_path / "fresh")


@pytest.mark.parametrize(
    "how", ["retitled", "archived", "rewritten", "shortened", "taken back", "damaged"]
)
def test_what_is_not_appended_is_taken_in_too(
    workspace_root: Path, tmp_path: Path, how: str
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    write(builder, [*long_one(60), *([asked("31")] if how == "taken back" else [])])
    refresh(builder)
    folder = builder.root / ".jp/conversations/17800000001"
    if how == "retitled":
        write_json(folder / "metadata.json", {"title": "Another title"})
    elif how == "archived":
        (folder.parent / ".archive").mkdir()
        folder.rename(folder.parent / ".archive" / folder.name)
    elif how == "rewritten":
        write(builder, [{"type": "turn_start"}, asked("first of all"), *long_one(60)])
    elif how == "shortened":
        write(builder, long_one(60)[:90])
    elif how == "taken back":
        write(builder, long_one(60))
    else:
        path = folder / "events.json"
        path.write_text(path.read_text().replace('"same"', '"same', 1))
    refresh(builder)
    is_as_fresh(builder, tmp_path / "fresh")


def test_an_edited_subject_does_not_wait_for_a_long_conversation(
    workspace_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PATIENCE_SECONDS", 0.0)
    builder = Builder(workspace_root)
    builder.topics(guide={})
    write(builder, long_one(120))
    saved = threading.Event()

    def saving() -> bool:
        if not saved.is_set():
            builder.subject("guide/new.md", "# New\n\nAn ibis.\n")
            saved.set()
            return True
        return False

    index = WorkspaceIndexWriter(builder.workspace, Settings(), should_yield=saving)
    assert index.refresh_index().is_unfinished
    reader = IndexReader(builder.workspace.cache_dir)
    part = len(reader.list_entry_chunks("jp-c17800000001"))
    assert part
    changes = index.refresh_index()
    assert changes.subjects == ["guide/new"]
    assert not changes.is_unfinished
    assert len(reader.list_entry_chunks("jp-c17800000001")) > part
    reader.close()
    index.close()
    is_as_fresh(builder, tmp_path / "fresh")


def test_who_asked_first_is_told_when_all_is_done(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PATIENCE_SECONDS", 0.0)
    builder = Builder(workspace_root)
    builder.topics(guide={})
    write(builder, long_one(150))
    rounds: list[bool] = []
    asked_: list[threading.Event] = []

    def refreshed(changes: IndexRefreshChanges) -> None:
        rounds.append(changes.is_unfinished)
        if changes.is_unfinished:
            assert not asked_[0].is_set()

    def say(progress: Any) -> None:
        if len(asked_) < 3:
            asked_.append(refresher.request_index_refresh())

    refresher = IndexRefreshWorker(builder.workspace, Settings(), say, refreshed, lambda _: None)
    refresher.start_thread()
    while len(asked_) < 3 or not all(done.wait(60) for done in asked_):
        assert refresher.first_refresh.wait(60)
    refresher.stop_thread()
    assert rounds[0]
    assert not rounds[-1]
    chunks = IndexReader(builder.workspace.cache_dir).list_entry_chunks("jp-c17800000001")
    assert chunks[-2].turn == 150


KILLED = """
import os, signal, sys
from pathlib import Path
from kbtui.conversations.formats.jp import jp_conversation_loader as parts
from kbtui.index import keyword_index_writer as lexical; from kbtui.index import indexable_entry_reader as pieces; from kbtui.index import catalog_database; from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import Settings, open_workspace_at_root

parts.MIN_BYTES_FOR_SEGMENTS, parts.BLOCK_BYTES, pieces.BATCH_BYTES, pieces.WHOLE_BYTES_MAX = 0, 16, 1500, 3000
left = {"count": int(sys.argv[3])}

def dying(kind, call):
    def wrapped(*args, **kwargs):
        if sys.argv[2] == f"before-{kind}":
            left["count"] -= 1
            if left["count"] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        result = call(*args, **kwargs)
        if sys.argv[2] == f"after-{kind}":
            left["count"] -= 1
            if left["count"] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapped

catalog_database.CatalogDatabase.commit_transaction = dying("commit", catalog_database.CatalogDatabase.commit_transaction)
catalog_database.CatalogDatabase.replace_citation_or_usage_rows_of_conversation = dying("cite", catalog_database.CatalogDatabase.replace_citation_or_usage_rows_of_conversation)
lexical.KeywordIndexWriter.commit_with_watermark = dying("lexical", lexical.KeywordIndexWriter.commit_with_watermark)
lexical.KeywordIndexWriter.update_chunk_documents = dying("update", lexical.KeywordIndexWriter.update_chunk_documents)
WorkspaceIndexWriter(open_workspace_at_root(Path(sys.argv[1])), Settings()).refresh_index()
"""

BOUNDARIES = [
    (side, kind, count)
    for count in (0, 5, 1, 9)
    for kind in ("commit", "lexical", "update", "cite")
    for side in ("before", "after")
]


@pytest.mark.parametrize(
    ("side", "kind", "count"),
    [
        *BOUNDARIES[2:5],
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in BOUNDARIES
            if one not in BOUNDARIES[2:5]
        ),
    ],
)
def test_killed_while_it_takes_in_parts_the_next_start_goes_on(
    workspace_root: Path, tmp_path: Path, side: str, kind: str, count: int
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    write(builder, long_one(20))
    refresh(builder)
    write(builder, long_one(80))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(builder.root), f"{side}-{kind}", str(count)],
        capture_output=True,
        env=os.environ.copy(),
        check=False,
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    assert done.returncode or kind == "lexical", "it was not killed"
    refresh(builder)
    is_as_fresh(builder, tmp_path / "fresh")


def make_records(step: tuple[str, int, str]) -> list[dict[str, Any]]:
    kind, number, text = step
    if kind == "ask":
        return [typed(text)]
    if kind == "say":
        return [answered(text, message=f"m{number}", usage=(number, len(text), 0, 0))]
    made = [
        answered(call(number, "Read", file_path=f"src/{number}.py"), usage=(1, number, 0, 0)),
        result(number, text),
    ]
    return made if kind == "call" else made[:1]


RECORDS = st.builds(
    lambda kind, number, text: make_records((kind, number, text)),
    st.sampled_from(["ask", "say", "say", "call", "call", "call", "open call"]),
    st.integers(0, 3),
    SAID,
)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(records=st.lists(RECORDS, min_size=1, max_size=14), cuts=st.lists(st.integers(1, 25)))
def test_a_session_that_grows_within_a_turn_is_what_a_fresh_build_gives(
    home: Path, workspace_root: Path, tmp_path: Path, records: list[Any], cuts: list[int]
) -> None:
    shutil.rmtree(home / "home/.claude", ignore_errors=True)
    builder = Builder(workspace_root)
    lines = [typed("The first request"), *(one for more in records for one in more)]
    for cut in [*sorted({cut for cut in cuts if cut < len(lines)}), len(lines)]:
        write_session(home, workspace_root, session_id(1), lines[:cut])
        refresh(builder)
    is_as_fresh(builder, tmp_path / "fresh")
