"""Bookmarks, sessions, approvals and runs are kept between processes."""

import time
from pathlib import Path

import pytest

from kbtui.errors import WorkspaceError, format_error_on_one_line
from kbtui.userdata.user_data_store import SourceRunRecord, UserData
from kbtui.workspace import open_workspace_at_root


@pytest.fixture
def userdata(workspace_root: Path) -> UserData:
    return UserData(open_workspace_at_root(workspace_root))


def test_a_bookmark_keeps_its_place_when_its_note_changes(
    userdata: UserData, workspace_root: Path
) -> None:
    userdata.save_bookmark("guide/start", "Getting started")
    time.sleep(0.01)
    userdata.save_bookmark("jp-c17800000001:2", "Waking order", "the ibex")
    userdata.save_bookmark("guide/start", "Getting started", "read me\nagain")
    marks = UserData(open_workspace_at_root(workspace_root)).list_bookmarks()
    assert [(mark.ref, mark.note) for mark in marks] == [
        ("jp-c17800000001:2", "the ibex"),
        ("guide/start", "read me\nagain"),
    ]
    assert marks[1].changed > marks[1].created
    assert userdata.remove_bookmark("guide/start")
    assert not userdata.remove_bookmark("guide/start")
    assert len(userdata.list_bookmarks()) == 1


def test_a_session_is_found_again(userdata: UserData, workspace_root: Path) -> None:
    assert userdata.load_front_end_state("tui") is None
    userdata.save_front_end_state("tui", {"open": "guide/start", "line": 12})
    userdata.save_front_end_state("tui", {"open": "guide/end", "line": 3})
    assert UserData(open_workspace_at_root(workspace_root)).load_front_end_state("tui") == {
        "open": "guide/end",
        "line": 3,
    }
    with pytest.raises(ValueError, match="too large"):
        userdata.save_front_end_state("tui", {"text": "x" * 1_000_001})


def test_approvals_are_by_hash_and_go_with_their_source(userdata: UserData) -> None:
    assert userdata.get_source_approval_time("abc") is None
    userdata.save_source_approval("docs", "abc")
    userdata.save_source_approval("docs", "def")
    userdata.save_source_approval("other", "ghi")
    assert userdata.get_source_approval_time("abc")
    userdata.remove_source_data("docs")
    assert userdata.get_source_approval_time("abc") is None
    assert userdata.get_source_approval_time("def") is None
    assert userdata.get_source_approval_time("ghi")


def test_the_last_run_is_kept(userdata: UserData) -> None:
    first = SourceRunRecord("docs", 100.0, 101.0, "error", "no such host")
    last = SourceRunRecord("docs", 200.0, 209.0, "partial", "x", 7, 1, 2, 3, 4, ("x", "y: \ud800"))
    userdata.save_source_run(first)
    userdata.save_source_run(last)
    assert userdata.load_last_source_runs() == {"docs": last}
    assert last.as_json()["last_run_at"] == "1970-01-01T00:03:20+00:00"


def test_what_a_source_fetched_is_replaced_as_a_whole(userdata: UserData) -> None:
    userdata.save_fetched_address_facts("docs", {"https://a/": {"etag": "1"}, "https://b/": {}})
    userdata.save_fetched_address_facts("other", {"https://a/": {"etag": "2"}})
    userdata.save_fetched_address_facts("docs", {"https://a/": {"etag": "3"}})
    assert userdata.load_fetched_address_facts("docs") == {"https://a/": {"etag": "3"}}
    assert userdata.load_fetched_address_facts("other") == {"https://a/": {"etag": "2"}}


def test_two_clones_share_nothing(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / ".jp").mkdir(parents=True)
        (tmp_path / name / ".jp" / ".id").write_text("abcde\n")
    UserData(open_workspace_at_root(tmp_path / "one")).save_source_approval("docs", "abc")
    assert (
        UserData(open_workspace_at_root(tmp_path / "two")).get_source_approval_time("abc") is None
    )


def test_what_must_not_be_lost_says_when_it_cannot_be_kept(userdata: UserData, home: Path) -> None:
    (home / "data" / "kbtui").write_text("a file where the directory should be")
    with pytest.raises(WorkspaceError, match="cannot use this file"):
        userdata.save_bookmark("guide/start")


def test_a_damaged_file_is_named_with_what_to_do(userdata: UserData) -> None:
    userdata.save_bookmark("guide/start")
    (path,) = userdata.directory.glob("journal.sqlite")
    for file in userdata.directory.glob("journal.sqlite*"):
        file.write_bytes(b"not a database, " * 500)
    for read in (userdata.list_saved_searches, userdata.file.check_database_file):
        with pytest.raises(
            WorkspaceError, match="move it and its -wal and -shm files away"
        ) as found:
            read()
        assert found.value.where == str(path)
        line = format_error_on_one_line(found.value, Path("/"))
        assert line == "journal.sqlite is damaged; `kbtui doctor` says what to do"
