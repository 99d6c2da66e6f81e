"""Ten thousand entries and a million citations: pages, details, insights, and the screen."""

import asyncio
import random
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.bench import workspaces
from tests.bench.measure import Row, side_by_side

ENTRIES, CITATIONS = 10_000, 1_000_000
NOW = 1_790_000_000.0
DAY = 86_400.0


def entries(base: Path, times: int) -> Iterator[Row]:
    """What the screens of entries and insights ask for, beside the same without citations."""
    from kbtui.index.catalog_query import EntryFilter, query_entry_page, read_entry_chunks_as_json
    from kbtui.index.index_reader import IndexReader
    from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
    from kbtui.userdata.search_and_citation_insights import collect_usage_statistics
    from kbtui.userdata.user_data_store import UserData
    from kbtui.workspace import Settings, open_workspace_at_root

    root = base / "ws"
    workspaces.subjects(root, ENTRIES, 100, words=40)
    workspace = open_workspace_at_root(root)
    with closing(WorkspaceIndexWriter(workspace, Settings(model="off"))) as index:
        index.refresh_index()
        folder = index.folder
    bare_dir = base / "bare"
    shutil.copytree(workspace.cache_dir, bare_dir, symlinks=True)
    refs = cite(folder / "catalog.sqlite")
    full, bare = IndexReader(workspace.cache_dir), IndexReader(bare_dir)

    def page(reader: IndexReader, cursor: str | None = None, q: str = "") -> Any:
        wanted = EntryFilter(q=q)
        return query_entry_page(
            workspace, reader, wanted, cursor=cursor, limit=200, vectors=False, now=NOW
        )

    ours, plain = side_by_side(lambda: page(full), lambda: page(bare), times)
    yield Row(
        "page of 200 of 10,000 entries, 1,000,000 citations",
        ours,
        "without citations",
        plain,
        "<= 3",
    )
    cursor = None
    while (following := page(full, cursor)).cursor is not None:
        cursor = following.cursor
    ours, plain = side_by_side(lambda: page(full, cursor), lambda: page(full), times)
    yield Row("the last page, by its cursor", ours, "the first page", plain, "<= 1.5")
    word = " ".join(workspaces.WORDS[40:42])
    ours, plain = side_by_side(
        lambda: page(full, q=word), lambda: like(folder, word.split()), times
    )
    yield Row(
        f"entries with two words ({page(full, q=word).total:,})",
        ours,
        "LIKE over all chunks",
        plain,
        "<= 2",
    )
    most = max(refs, key=lambda ref: refs[ref])

    def detail() -> None:
        read_entry_chunks_as_json(full, page(full).entries[0].id)
        full.find_citations_of_targets_or_chunk([most])

    ours, plain = side_by_side(detail, lambda: page(full), times)
    yield Row(
        f"details of one cited {refs[most]:,} times, and a page",
        ours,
        "the page alone",
        plain,
        "<= 1.5",
    )
    userdata = UserData(workspace)
    ours, plain = side_by_side(
        lambda: collect_usage_statistics(workspace, userdata, full, now=NOW),
        lambda: walk(folder),
        max(3, times // 3),
    )
    yield Row("insights of 30 days", ours, "counting citations by target", plain, "<= 3")
    yield from screen(root, times)


def cite(catalog: Path) -> dict[str, int]:
    """Put citations into a catalog: few entries are cited often, over a year; counts by target."""
    random_ = random.Random(7)
    with closing(sqlite3.connect(catalog)) as db:
        targets = [
            f"{topic}/{slug}" for topic, slug in db.execute("SELECT topic, slug FROM entries")
        ]
        counts: dict[str, int] = {}

        def rows() -> Iterator[tuple[object, ...]]:
            for number in range(CITATIONS):
                at = min(int(random_.paretovariate(0.5)), len(targets)) - 1
                target = targets[at]
                counts[target] = counts.get(target, 0) + 1
                when = NOW - random_.random() * 365 * DAY
                yield (
                    int(when * 10),
                    number % 50 + 1,
                    1,
                    "learn",
                    "subject",
                    target,
                    "",
                    "learn",
                    when,
                )

        db.executemany(
            "INSERT INTO citations (conversation, turn, call, how, kind, target, title, tool, timestamp) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows(),
        )
        db.commit()
        # What is cited most would be all of one row; details are measured on a usual one.
        return {target: count for target, count in counts.items() if count <= 2000}


def like(folder: Path, words: list[str]) -> None:
    """The baseline of the filter: every chunk looked at once."""
    with closing(sqlite3.connect(folder / "catalog.sqlite")) as db:
        conditions = " AND ".join("text LIKE ?" for _ in words)
        db.execute(
            f"SELECT DISTINCT entry_id FROM chunks WHERE {conditions}", [f"%{w}%" for w in words]
        ).fetchall()


def walk(folder: Path) -> None:
    """The baseline of insights: every citation counted once."""
    with closing(sqlite3.connect(folder / "catalog.sqlite")) as db:
        sql = "SELECT target, date(timestamp, 'unixepoch', 'localtime'), count(*) FROM citations GROUP BY +target, 2"
        db.execute(sql).fetchall()


def screen(root: Path, times: int) -> Iterator[Row]:
    """Moving through the table when all of it was read, beside the first page alone."""
    from kbtui.errors import EngineUnavailableError
    from kbtui.library import Library
    from kbtui.tui.app import KbtuiApp
    from kbtui.tui.entries_screen import EntriesScreen
    from kbtui.workspace import Settings, open_workspace_at_root

    class Alone(Library):
        def connect_engine(self, *, start: bool = True) -> Any:
            raise EngineUnavailableError("not in this measurement")

    async def moving() -> tuple[list[float], list[float], float, float]:
        app = KbtuiApp(Alone(open_workspace_at_root(root), Settings(model="off")))
        app.animation_level = "none"
        async with app.run_test(size=(120, 40)) as pilot:
            page = EntriesScreen(app.library, app.clock)
            began = time.perf_counter()
            await app.push_screen(page)
            while not page.list.rows:
                await pilot.pause(0.005)
            opened = time.perf_counter() - began
            few = [await pressed(pilot) for _ in range(times)]
            began = time.perf_counter()
            await pilot.press("G")
            while len(page.list.rows) < ENTRIES or page.list.index < ENTRIES - 1:
                await pilot.pause(0.005)
            end = time.perf_counter() - began
            await pilot.press("g")
            many = [await pressed(pilot) for _ in range(times)]
        return many, few, opened, end

    async def pressed(pilot: Any) -> float:
        began = time.perf_counter()
        await pilot.press("down", "down", "down", "up", "up", "up")
        return time.perf_counter() - began

    many, few, opened, end = asyncio.run(moving())
    remark = f"the screen had rows after {opened:.2f} s; G read all 10,000 in {end:.2f} s"
    yield Row(
        "six keys in the table of 10,000 entries",
        many,
        "with 200 rows",
        few,
        "<= 1.5",
        remark=remark,
    )


BENCHES = {"entries": entries}
