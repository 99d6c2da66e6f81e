"""User data that version 0.1 wrote is kept by this version."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kbtui.userdata.user_data_store import SavedSearch, UserData
from kbtui.workspace import open_workspace_at_root

FIXTURE = Path(__file__).parent / "userdata_0_1.sql"
"""Dumps of both databases, as version 0.1 wrote them."""


@pytest.fixture
def userdata(workspace_root: Path) -> UserData:
    """The user data of a workspace that only version 0.1 has used."""
    workspace = open_workspace_at_root(workspace_root)
    workspace.user_data_directory.mkdir(parents=True)
    for part in FIXTURE.read_text().split("-- file: ")[1:]:
        name, _, statements = part.partition("\n")
        with closing(sqlite3.connect(workspace.user_data_directory / name)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(statements)
    return UserData(workspace)


def test_bookmarks_are_kept(userdata: UserData) -> None:
    assert [(mark.ref, mark.title, mark.note) for mark in userdata.list_bookmarks()] == [
        ("jp-c17800000001:2", "Waking order", "the ibex"),
        ("guide/start", "Getting started", ""),
    ]
    userdata.save_bookmark("guide/end")
    assert len(userdata.list_bookmarks()) == 3


def test_recent_queries_are_kept(userdata: UserData) -> None:
    assert userdata.query_log.list_recent_tui_queries() == ["Retry policy", "waking order"]


def test_searches_and_gaps_are_kept(userdata: UserData) -> None:
    userdata.query_log.log_search("new", "hybrid", 0, "cli", at=1_780_000_500.0)
    found = userdata.query_log.compute_search_statistics(30, 10, now=1_780_001_000.0)
    assert found.total == 6
    assert found.by_origin == {"cli": 2, "dashboard": 3, "mcp": 1}
    # Nothing found, or nothing by a word of the query.
    assert {query.query for query in found.gaps} == {"zymurgy", "by meaning alone", "new"}


def test_sessions_approvals_runs_and_fetched_addresses_are_kept(userdata: UserData) -> None:
    assert userdata.load_front_end_state("tui") == {"open": "guide/start", "line": 12}
    assert userdata.get_source_approval_time("abc") == 1_780_000_000.0
    run = userdata.load_last_source_runs()["docs"]
    assert (run.status, run.entries, run.unchanged) == ("partial", 7, 4)
    assert run.problems == ("one address timed out",)
    assert userdata.load_fetched_address_facts("docs") == {"https://a.example/": {"etag": "1"}}


def test_searches_can_be_saved(userdata: UserData) -> None:
    assert userdata.list_saved_searches() == []
    userdata.save_search(SavedSearch("walruses", "walrus topic:guide"))
    assert [one.name for one in userdata.list_saved_searches()] == ["walruses"]
