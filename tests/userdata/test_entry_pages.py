"""Pages of entries: filters combine, totals match them, and cursors survive changes between pages."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from index_without_engine import indexed
from support import Builder, asked, called, said

from kbtui.errors import IndexUnavailable, UsageError
from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.catalog_query import (
    EntryFilter,
    EntryPage,
    get_entry_list_row,
    query_entry_page,
    read_entry_chunks_as_json,
)
from kbtui.index.unembedded_entries_file import (
    EntriesWithoutVectorsWriter,
    read_entries_without_vectors,
)

DAY = 86_400.0


@pytest.fixture
def builder(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "User Guide"}, ops={})
    builder.subject(
        "guide/start.md",
        "---\ntitle: Getting started\ntype: rule\ntags: [first, day]\ncreated: 2026-03-01\n---\n"
        "The aardvark wakes first.\n",
    )
    builder.subject("guide/end.md", "---\ncreated: 2026-02-01\n---\n# Größe\n\nThe Ibex, 100%.\n")
    builder.subject("guide/.secret.md", "---\ncreated: 2026-01-15\n---\n# Secret\n\naardvark\n")
    builder.subject(
        "ops/page.md", "---\ncreated: 2026-01-01\ntype: url_crawl\n---\n# Page\n\nIbex\n"
    )
    builder.conversation(1, [[asked("Who wakes?"), said("The aardvark.")]], title="Waking")
    builder.conversation(2, [[asked("Old?"), said("Older.")]], archived=True, title="Long ago")
    return builder


def page(builder: Builder, **wanted: object) -> EntryPage:
    with indexed(builder) as reader:
        return query_entry_page(builder.workspace, reader, EntryFilter(**wanted), vectors=False)  # type: ignore[arg-type]


def refs(found: EntryPage) -> list[str]:
    return [row.ref for row in found.entries]


def test_a_page_that_nobody_wants_any_more_is_given_up(builder: Builder) -> None:
    for number in range(300):
        builder.subject(f"ops/{number}.md", f"# {number}\n\nThe ibex.\n")
    looked: list[bool] = []
    with indexed(builder) as reader:
        for is_given_up in (False, True):
            try:
                query_entry_page(
                    builder.workspace,
                    reader,
                    EntryFilter(q="ibex aardvark"),
                    is_given_up=lambda given_up=is_given_up: given_up,
                )
                looked.append(True)
            except IndexUnavailable:
                looked.append(False)
    assert looked == [True, False]


def test_newest_first_with_everything_a_row_shows(builder: Builder) -> None:
    found = page(builder)
    assert refs(found) == ["jp-c17800000001", "guide/start", "guide/end", "ops/page"]
    row = found.entries[1]
    assert (row.title, row.type, row.tags, row.status) == (
        "Getting started", "rule", ["first", "day"], "ready",
    )  # fmt: skip
    assert row.chunks >= 1
    assert row.size == (builder.root / "docs/guide/start.md").stat().st_size
    assert found.total == 4
    assert found.by_type == {"conversation": 1, "note": 1, "rule": 1, "url_crawl": 1}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"q": "aardvark"}, {"jp-c17800000001", "guide/start"}),
        ({"q": "AARDVARK first"}, {"guide/start"}),
        ({"q": "getting wakes"}, {"guide/start"}),
        ({"q": "größe"}, {"guide/end"}),
        ({"q": "GRÖßE"}, {"guide/end"}),
        ({"q": "100%"}, {"guide/end"}),
        ({"q": "1_0"}, set()),
        ({"q": "ibex", "types": ("url_crawl",)}, {"ops/page"}),
        ({"types": ("rule", "conversation")}, {"jp-c17800000001", "guide/start"}),
        ({"topics": ("guide",)}, {"guide/start", "guide/end"}),
        ({"topics": ("User Guide",)}, {"guide/start", "guide/end"}),
        ({"topics": ("No Such Guide",)}, set()),
        ({"topics": ("guide",), "hidden": True}, {"guide/start", "guide/end", "guide/secret"}),
        ({"archived": True, "types": ("conversation",)}, {"jp-c17800000001", "jp-c17800000002"}),
        ({"statuses": ("error",)}, set()),
        ({"since": 1769904000.0, "until": 1772323200.0}, {"guide/end"}),
    ],
)
def test_filters_hold_together_and_totals_follow(
    builder: Builder, wanted: dict[str, object], expected: set[str]
) -> None:
    found = page(builder, **wanted)
    assert set(refs(found)) == expected
    assert found.total == len(expected) == sum(found.by_type.values())
    assert found.total == sum(found.by_status.values())


def test_a_page_goes_on_where_it_ended_whatever_was_added(builder: Builder) -> None:
    seen: list[str] = []
    cursor = None
    wanted = EntryFilter()
    for number in range(4):
        with indexed(builder) as reader:
            found = query_entry_page(
                builder.workspace, reader, wanted, cursor=cursor, limit=1, vectors=False
            )
        seen += refs(found)
        cursor = found.cursor
        # Newer than all, and older than all that was seen: neither repeats nor hides anything.
        builder.subject(f"guide/new{number}.md", "---\ncreated: 2027-01-01\n---\nNew.\n")
    assert seen == ["jp-c17800000001", "guide/start", "guide/end", "ops/page"]
    assert cursor is None


def test_a_cursor_of_another_filter_is_refused(builder: Builder) -> None:
    with indexed(builder) as reader:
        first = query_entry_page(builder.workspace, reader, EntryFilter(), limit=1, vectors=False)
        for cursor in (first.cursor, "%%%", "", "WzFd"):
            with pytest.raises(UsageError, match="cursor"):
                query_entry_page(builder.workspace, reader, EntryFilter(q="ibex"), cursor=cursor)


def test_an_entry_that_cannot_be_read_is_an_error_with_its_reason(builder: Builder) -> None:
    (builder.root / "docs/guide/bad.md").write_bytes(b"\x00\x01binary")
    found = page(builder, statuses=("error",))
    assert refs(found) == ["guide/bad"]
    assert "binary" in (found.entries[0].error or "")
    assert found.by_status == {"error": 1}


def test_status_is_what_the_backlog_stored(builder: Builder) -> None:
    def statuses() -> dict[str, str]:
        with indexed(builder) as reader:
            found = query_entry_page(builder.workspace, reader, EntryFilter())
            return {row.ref: row.status for row in found.entries if row.kind == "subject"}

    # Nothing embedded yet.
    assert set(statuses().values()) == {"pending"}
    with indexed(builder) as reader:
        rows = query_entry_page(builder.workspace, reader, EntryFilter()).entries
        ids = {row.ref: row.id for row in rows}
        writer = EntriesWithoutVectorsWriter(reader.folder)
        seq = CatalogDatabase(reader.folder / "catalog.sqlite").get_last_transaction_number()
        writer.replace_entries_without_vectors_in_file(seq, "model-1", list(ids.values()))
        writer.mark_entries_embedded([ids["guide/start"], ids["ops/page"]])
        writer.record_embedding_error_of_entry(ids["guide/end"], "the model choked")
        assert read_entry_chunks_as_json(reader, ids["guide/start"])[0]["model"] == "model-1"
        assert read_entry_chunks_as_json(reader, ids["guide/end"])[0]["model"] is None
        row = get_entry_list_row(builder.workspace, reader, ids["guide/end"])
        assert row is not None
        assert row.error == "the model choked"
    assert statuses() == {"guide/start": "ready", "guide/end": "error", "ops/page": "ready"}
    # What is written after that has no vectors until the backlog says so.
    builder.subject("ops/page.md", "# Page\n\nIbex, changed\n")
    assert statuses()["ops/page"] == "pending"
    assert statuses()["guide/start"] == "ready"
    # A failure stays one until it has been tried again.
    with indexed(builder) as reader:
        writer = EntriesWithoutVectorsWriter(reader.folder)
        writer.replace_entries_without_vectors_in_file(
            CatalogDatabase(reader.folder / "catalog.sqlite").get_last_transaction_number(),
            "model-1",
            [ids["guide/end"]],
        )
        assert read_entries_without_vectors(reader.folder).missing == {
            ids["guide/end"]: "the model choked"
        }
        writer.mark_entries_embedded([ids["guide/end"]])
    assert set(statuses().values()) == {"ready"}


def test_cites_count_uses_of_the_last_thirty_days(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lately = int((time.time() - 5 * DAY) * 10) - 17_800_000_000
    long_ago = int((time.time() - 50 * DAY) * 10) - 17_800_000_000
    use = called("a", "learn", "…", topic="guide", subjects="start")
    read = called("b", "fs_read_file", "…", path="docs/guide/start.md")
    builder.conversation(lately, [[*use], [*use, *read]])
    builder.conversation(long_ago, [[*use]])
    found = page(builder, types=("rule",))
    assert found.entries[0].cites_30d == 2
    assert page(builder, q="Größe").entries[0].cites_30d == 0
    # Of very many entries they are counted in another way, with the same outcome.
    few = {row.ref: row.cites_30d for row in page(builder).entries}
    monkeypatch.setattr("kbtui.index.catalog_query.MAX_PAGE_SIZE", 0)
    with indexed(builder) as reader:
        many = query_entry_page(builder.workspace, reader, EntryFilter(), most=500)
    assert {row.ref: row.cites_30d for row in many.entries} == few
    assert few["guide/start"] == 2


def test_an_entry_keeps_its_id_when_it_is_edited(builder: Builder) -> None:
    before = {row.ref: row.id for row in page(builder).entries}
    builder.subject("guide/start.md", "# Something else entirely\n")
    os.utime(builder.root / "docs/guide/start.md", (2_000_000_000, 2_000_000_000))
    after = {row.ref: row.id for row in page(builder).entries}
    assert after["guide/start"] == before["guide/start"]


def test_any_text_may_be_looked_for(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/a.md", "# A\n\nsome text\n")

    @settings(max_examples=150, deadline=None)
    @given(q=st.text(max_size=30))
    @example(q="\0")
    def check(q: str) -> None:
        found = query_entry_page(builder.workspace, reader, EntryFilter(q=q), vectors=False)
        words = q.casefold().split()
        assert found.total == all(word in "a" or word in "# a\n\nsome text\n" for word in words)

    with indexed(builder) as reader:
        check()
