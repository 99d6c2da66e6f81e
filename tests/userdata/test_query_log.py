"""The query log: it never delays a search, loses nothing, and can be trimmed and erased."""

import contextlib
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbtui.errors import WorkspaceError
from kbtui.userdata.query_log import OpenedHit, QueryLog
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace import open_workspace_at_root

DAY = 86_400.0


@pytest.fixture
def userdata(workspace_root: Path) -> UserData:
    return UserData(open_workspace_at_root(workspace_root))


def test_a_search_is_counted_with_what_it_found(userdata: UserData) -> None:
    userdata.query_log.log_search("retry  Policy", "hybrid", 3, "cli", "me", 12.5)
    userdata.query_log.log_search("retry policy", "lexical", 4, "dashboard")
    userdata.query_log.log_search("unknown thing", "hybrid", 0, "mcp")
    found = userdata.query_log.compute_search_statistics()
    assert found.total == 3
    assert [(one.query, one.times, one.results) for one in found.top] == [
        ("retry policy", 2, 4),
        ("unknown thing", 1, 0),
    ]
    assert [one.query for one in found.gaps] == ["unknown thing"]
    assert found.by_origin == {"cli": 1, "dashboard": 1, "mcp": 1}
    assert list(found.by_day.values())[-1] == 3
    assert len(found.by_day) == 30


def test_a_gap_closes_when_the_same_query_finds_something(userdata: UserData) -> None:
    userdata.query_log.log_search("deploy", "hybrid", 0, "cli")
    assert [one.query for one in userdata.query_log.compute_search_statistics().gaps] == ["deploy"]
    time.sleep(0.01)
    userdata.query_log.log_search("Deploy", "hybrid", 2, "cli")
    assert userdata.query_log.compute_search_statistics().gaps == []


def test_a_query_whose_results_do_not_fit_is_a_gap_too(userdata: UserData) -> None:
    userdata.query_log.log_search("zymurgy", "hybrid", 20, "cli", is_gap=True)
    userdata.query_log.log_search("retry", "hybrid", 20, "cli")
    assert [
        (one.query, one.results) for one in userdata.query_log.compute_search_statistics().gaps
    ] == [("zymurgy", 20)]


def test_a_search_with_filters_neither_opens_nor_closes_a_gap(userdata: UserData) -> None:
    userdata.query_log.log_search("deploy", "hybrid", 0, "cli", filters="type:rule")
    assert userdata.query_log.compute_search_statistics().gaps == []
    [deploy] = userdata.query_log.compute_search_statistics().top
    assert (deploy.times, deploy.filters) == (1, "type:rule")
    userdata.query_log.log_search("retry", "hybrid", 0, "cli")
    userdata.query_log.log_search("retry", "hybrid", 3, "cli", filters="in:conversations")
    assert [
        (one.query, one.times) for one in userdata.query_log.compute_search_statistics().gaps
    ] == [("retry", 1)]


def test_a_log_of_version_0_1_is_kept_with_its_gaps(userdata: UserData) -> None:
    userdata.directory.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(userdata.query_log.path, isolation_level=None)) as db:
        db.executescript(
            "CREATE TABLE searches (id INTEGER PRIMARY KEY, at REAL NOT NULL, query TEXT NOT NULL, "
            "key TEXT NOT NULL, mode TEXT NOT NULL, result_count INTEGER NOT NULL, "
            "keyword_count INTEGER, origin TEXT NOT NULL, caller TEXT, milliseconds REAL); "
            "PRAGMA user_version=1;"
        )
        for query, results, worded in (("nothing", 0, 0), ("meaning", 9, 0), ("retry", 9, 3), ("old", 9, None)):  # fmt: skip
            db.execute(
                "INSERT INTO searches VALUES (NULL, ?, ?, ?, 'hybrid', ?, ?, 'cli', NULL, NULL)",
                (time.time() - 60, query, query, results, worded),
            )
    assert {one.query for one in userdata.query_log.compute_search_statistics().gaps} == {
        "nothing",
        "meaning",
    }
    userdata.query_log.log_search("new", "hybrid", 0, "cli")
    assert userdata.query_log.compute_search_statistics().total == 5
    assert {one.query for one in userdata.query_log.compute_search_statistics().gaps} == {
        "nothing",
        "meaning",
        "new",
    }


def test_a_longer_query_replaces_its_beginning(userdata: UserData) -> None:
    log = userdata.query_log
    log.log_search("deploy", "hybrid", 3, "cli")
    log.log_search("deploy", "hybrid", 3, "dashboard")
    log.log_search("deploy staging", "hybrid", 1, "dashboard", replaces="Deploy")
    counts = {one.query: one.times for one in log.compute_search_statistics().top}
    assert counts == {"deploy": 1, "deploy staging": 1}
    assert log.compute_search_statistics().by_origin == {"cli": 1, "dashboard": 1}
    # What is long ago was another search.
    log.log_search("retry", "hybrid", 3, "dashboard", at=time.time() - 3600)
    log.log_search("retry policy", "hybrid", 1, "dashboard", replaces="retry")
    assert {"retry", "retry policy"} <= {one.query for one in log.compute_search_statistics().top}


def test_a_search_whose_words_are_in_no_text_is_marked(userdata: UserData) -> None:
    log = userdata.query_log
    log.log_search("zymurgy", "hybrid", 66, "cli", is_meaning_only=True)
    log.log_search("retry", "hybrid", 3, "cli")
    found = {one.query: one for one in log.compute_search_statistics().top}
    assert found["zymurgy"].as_json()["last_meaning_only"] is True
    assert found["retry"].as_json()["last_meaning_only"] is False
    # The last search counts.
    log.log_search("zymurgy", "hybrid", 2, "cli")
    found = {one.query: one for one in log.compute_search_statistics().top}
    assert not found["zymurgy"].is_meaning_only


def test_a_log_of_version_0_2_is_kept(userdata: UserData) -> None:
    userdata.directory.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(userdata.query_log.path, isolation_level=None)) as db:
        db.executescript(
            "CREATE TABLE searches (id INTEGER PRIMARY KEY, at REAL NOT NULL, query TEXT NOT NULL, "
            "key TEXT NOT NULL, mode TEXT NOT NULL, filters TEXT NOT NULL DEFAULT '', "
            "result_count INTEGER NOT NULL, is_gap INTEGER NOT NULL DEFAULT 0, "
            "origin TEXT NOT NULL, caller TEXT, milliseconds REAL); "
            "PRAGMA user_version=2;"
        )
        db.execute(
            "INSERT INTO searches VALUES (NULL, ?, 'old', 'old', 'hybrid', '', 9, 0, 'cli', NULL, NULL)",
            (time.time() - 60,),
        )
    userdata.query_log.log_search("new", "hybrid", 5, "cli", is_meaning_only=True)
    found = {
        one.query: one.is_meaning_only for one in userdata.query_log.compute_search_statistics().top
    }
    assert found == {"old": False, "new": True}


def test_an_empty_journal_has_empty_insights_and_makes_no_file(userdata: UserData) -> None:
    found = userdata.query_log.compute_search_statistics(7)
    assert (found.total, found.top, found.gaps) == (0, [], [])
    assert list(found.by_day.values()) == [0] * 7
    assert userdata.query_log.delete_all_logged_searches() == 0
    assert userdata.query_log.remove_old_logged_searches(90) == 0
    assert not userdata.directory.exists()


def test_what_is_old_is_swept_and_what_a_wrong_clock_wrote(tmp_path: Path) -> None:
    log = QueryLog(tmp_path / "queries.sqlite")
    now = time.time()
    for age in (0.0, 89.0, 91.0, -200.0):
        log.log_search(f"{age} days old", "hybrid", 1, "cli", None, None, at=now - age * DAY)
    assert log.remove_old_logged_searches(90, now) == 2
    left = {one.query for one in log.compute_search_statistics(100, 10, now).top}
    assert left == {"0.0 days old", "89.0 days old"}


def test_erasing_leaves_no_byte_of_a_query(userdata: UserData) -> None:
    for number in range(200):
        userdata.query_log.log_search(f"tell-nobody-{number}", "hybrid", 0, "cli")
    assert userdata.query_log.delete_all_logged_searches() == 200
    left = b"".join(path.read_bytes() for path in userdata.directory.iterdir())
    assert b"tell-nobody" not in left
    assert userdata.query_log.compute_search_statistics().total == 0


def test_a_damaged_file_stops_no_search_and_can_be_erased(userdata: UserData) -> None:
    userdata.directory.mkdir(parents=True)
    userdata.query_log.path.write_bytes(b"not a database, " * 500)
    damage = userdata.query_log.log_search("retry", "hybrid", 1, "cli")
    assert "`kbtui insights erase` replaces the file" in str(damage)
    with pytest.raises(WorkspaceError, match="insights erase"):
        userdata.query_log.compute_search_statistics()
    userdata.query_log.delete_all_logged_searches()
    userdata.query_log.log_search("retry", "hybrid", 1, "cli")
    assert userdata.query_log.compute_search_statistics().total == 1


def test_opened_hits_are_kept_as_long_as_searches_and_erased_with_them(userdata: UserData) -> None:
    log = userdata.query_log
    old = OpenedHit("retry", "guide/start:1-5", "c1", 1)
    new = OpenedHit("retry policy", "guide/end:2", "c2", 3)
    log.log_opened_hit(old, at=time.time() - 100 * 86_400)
    log.log_opened_hit(new)
    assert log.list_opened_hits() == [new, old]
    log.remove_old_logged_searches(90)
    assert log.list_opened_hits() == [new]
    log.delete_all_logged_searches()
    assert log.list_opened_hits() == []
    assert b"retry policy" not in log.path.read_bytes()


def test_a_place_that_cannot_be_written_stops_no_search(userdata: UserData, home: Path) -> None:
    (home / "data" / "kbtui").write_text("a file where the directory should be")
    userdata.query_log.log_search("retry", "hybrid", 1, "cli")
    assert userdata.query_log.remove_old_logged_searches(90) == 0


def test_an_unknown_origin_is_dropped_not_stored(userdata: UserData) -> None:
    userdata.query_log.log_search("retry", "hybrid", 1, "elsewhere")
    userdata.query_log.log_search("retry", "hybrid", 1, "sdk")
    assert userdata.query_log.compute_search_statistics().by_origin == {"sdk": 1}


def test_a_search_does_not_wait_for_a_writer_that_holds_the_file(userdata: UserData) -> None:
    userdata.query_log.log_search("first", "hybrid", 1, "cli")
    other = sqlite3.connect(userdata.query_log.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    logging = threading.Thread(
        target=userdata.query_log.log_search, args=("second", "hybrid", 1, "cli")
    )
    logging.start()
    logging.join(30.0)
    assert not logging.is_alive(), "logging waited for the other writer"
    other.execute("COMMIT")
    other.close()
    assert [one.query for one in userdata.query_log.compute_search_statistics().top] == ["first"]


def test_many_at_once_lose_nothing_that_had_room(userdata: UserData) -> None:
    def log() -> None:
        for _ in range(25):
            userdata.query_log.log_search("together", "hybrid", 1, "sdk")

    threads = [threading.Thread(target=log) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < userdata.query_log.compute_search_statistics().total <= 100
    check = sqlite3.connect(userdata.query_log.path)
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()


def test_nobody_else_may_read_it(userdata: UserData) -> None:
    userdata.query_log.log_search("private", "hybrid", 1, "cli")
    assert userdata.directory.stat().st_mode & 0o777 == 0o700
    assert userdata.query_log.path.stat().st_mode & 0o777 == 0o600


@settings(max_examples=50, deadline=None)
@given(query=st.text(st.characters(), max_size=1200), count=st.integers(0, 10**25))
def test_any_query_is_taken_or_dropped_but_never_raises(
    tmp_path_factory: pytest.TempPathFactory, query: str, count: int
) -> None:
    log = QueryLog(tmp_path_factory.mktemp("log") / "queries.sqlite")
    log.log_search(query, "hybrid", count, "cli", query, 1.0)
    found = log.compute_search_statistics(30, 10)
    assert found.total == (1 if count < 2**63 else 0)
    assert all(len(one.query) <= 1000 for one in found.top)
