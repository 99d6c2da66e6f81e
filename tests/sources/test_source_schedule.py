"""The schedule: several missed times count once, approval is required, each run is a process."""

import os
import time
from datetime import datetime
from pathlib import Path

import pytest
from web_support import SourceWorkspace

from kbtui.sources.document_source_definitions import find_next_cron_time
from kbtui.sources.document_source_runner import lock_document_source
from kbtui.sources.document_source_scheduler import (
    DocumentSourceScheduler,
    find_source_due_time,
    list_due_sources,
)
from kbtui.userdata.user_data_store import SourceRunRecord, UserData
from kbtui.workspace.client_environment import ClientEnvironment

HOUR, DAY = 3600.0, 86_400.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def record_run(project: SourceWorkspace, began: float) -> None:
    UserData(project.builder.workspace).save_source_run(
        SourceRunRecord("docs", began, began + 1, "ok")
    )


@pytest.fixture
def hourly(project: SourceWorkspace) -> SourceWorkspace:
    (project.root / "x.md").write_text("# X\n\ntext\n")
    project.add(kind="file_upload", file="x.md", cron="0 * * * *")
    return project


def find_first_time(project: SourceWorkspace) -> float:
    """Return the first time at which the source is due; the tests do not depend on the clock."""
    found = find_source_due_time(
        project.builder.workspace, UserData(project.builder.workspace), project.source()
    )
    assert found is not None
    return found


def test_a_source_is_due_at_its_time_and_not_before(hourly: SourceWorkspace) -> None:
    workspace = hourly.builder.workspace
    record_run(hourly, at("2100-01-01 12:00:30"))
    assert list_due_sources(workspace, at("2100-01-01 12:59:59")) == []
    assert list_due_sources(workspace, at("2100-01-01 13:00:00")) == ["docs"]


def test_missed_times_are_made_up_once(hourly: SourceWorkspace) -> None:
    workspace = hourly.builder.workspace
    record_run(hourly, at("2100-01-01 12:00:30"))
    late = at("2100-01-05 09:20:00")
    assert list_due_sources(workspace, late) == ["docs"]
    record_run(hourly, late)
    assert list_due_sources(workspace, late + 60) == []
    assert list_due_sources(workspace, at("2100-01-05 10:00:00")) == ["docs"]


def test_a_new_source_waits_for_its_first_time(hourly: SourceWorkspace) -> None:
    workspace, first = hourly.builder.workspace, find_first_time(hourly)
    assert time.time() - 1 < first <= time.time() + HOUR
    assert list_due_sources(workspace, first - 1) == []
    assert list_due_sources(workspace, first) == ["docs"]


def test_without_a_schedule_nothing_is_due(project: SourceWorkspace) -> None:
    project.add(kind="file_upload", file="x.md")
    workspace = project.builder.workspace
    assert list_due_sources(workspace, time.time() + 1000 * DAY) == []
    assert find_source_due_time(workspace, UserData(workspace), project.source()) is None


def test_an_unapproved_change_is_not_due(hourly: SourceWorkspace) -> None:
    from kbtui.sources.document_source_definitions import change_source_definition_keys

    workspace = hourly.builder.workspace
    change_source_definition_keys(workspace, "docs", {"file": "/etc/passwd"})
    assert list_due_sources(workspace, time.time() + DAY) == []


def test_a_clock_that_went_back_makes_nothing_due_early(hourly: SourceWorkspace) -> None:
    record_run(hourly, at("2100-01-01 12:00:00"))
    assert list_due_sources(hourly.builder.workspace, at("2099-01-01 12:00:00")) == []


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 4 * * *", "2026-11-21 03:59:59", "2026-11-21 04:00:00"),
        ("0 4 * * *", "2026-11-21 04:00:00", "2026-11-22 04:00:00"),
        ("*/15 * * * *", "2026-11-21 10:07:00", "2026-11-21 10:15:00"),
        ("0 9 * * 1", "2026-11-21 10:00:00", "2026-11-23 09:00:00"),
        ("0 0 29 2 *", "2026-01-01 00:00:00", "2028-02-29 00:00:00"),
    ],
)
def test_times_are_local(expression: str, after: str, expected: str) -> None:
    assert find_next_cron_time(expression, at(after)) == at(expected)


def test_summer_time_neither_skips_a_day_nor_runs_backwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for start, end in (
            ("2026-03-28 00:00", "2026-03-31 00:00"),
            ("2026-10-24 00:00", "2026-10-27 00:00"),
        ):
            moment, days = at(start), []
            while (moment := find_next_cron_time("30 2 * * *", moment) or 0.0) < at(end):
                days.append(datetime.fromtimestamp(moment).date())
            assert len(days) == len(set(days)) == 3
            moment, seen = at(start), []
            while (moment := find_next_cron_time("*/20 * * * *", moment) or 0.0) < at(end):
                seen.append(moment)
            assert seen == sorted(set(seen))
    finally:
        monkeypatch.undo()
        time.tzset()


def wait_for_end(schedule: DocumentSourceScheduler) -> None:
    end = time.monotonic() + 30
    while schedule.running_source_name is not None:
        assert time.monotonic() < end, "the run does not end"
        time.sleep(0.02)
        schedule.check_and_start_due_sources(0.0)


def test_the_engine_runs_what_is_due_in_a_process_of_its_own(hourly: SourceWorkspace) -> None:
    lines: list[str] = []
    schedule = DocumentSourceScheduler(hourly.builder.workspace, lines.append)
    schedule.check_and_start_due_sources(find_first_time(hourly) - 1)
    assert schedule.running_source_name is None
    schedule.check_and_start_due_sources(find_first_time(hourly))
    assert schedule.running_source_name == "docs"
    wait_for_end(schedule)
    assert list(hourly.documents()) == ["x.md"]
    assert UserData(hourly.builder.workspace).load_last_source_runs()["docs"].status == "ok"
    assert [line[13:] for line in lines] == ["started, because it is due", "ended with exit code 0"]


def test_a_scheduled_run_writes_with_the_umask_of_the_user(hourly: SourceWorkspace) -> None:
    before = os.umask(0o077)  # as the engine has it
    try:
        schedule = DocumentSourceScheduler(hourly.builder.workspace, print, 0o022)
        schedule.check_and_start_due_sources(find_first_time(hourly))
        wait_for_end(schedule)
    finally:
        os.umask(before)
    written = hourly.root / "docs/guide/docs/x.md"
    assert written.stat().st_mode & 0o777 == 0o644


def test_a_scheduled_run_reads_the_home_of_the_client(
    project: SourceWorkspace, tmp_path: Path
) -> None:
    (tmp_path / "of-the-client.md").write_text("# X\n\ntext\n")
    project.add(kind="file_upload", file="~/of-the-client.md", cron="0 * * * *")
    with ClientEnvironment(os.environ | {"HOME": str(tmp_path)}).apply_to_thread_or_task():
        schedule = DocumentSourceScheduler(project.builder.workspace, print)
        schedule.check_and_start_due_sources(find_first_time(project))
        wait_for_end(schedule)
    assert list(project.documents()) == ["of-the-client.md"]


def test_a_run_that_notes_nothing_is_not_started_again_and_again(hourly: SourceWorkspace) -> None:
    workspace = hourly.builder.workspace
    lines: list[str] = []
    schedule = DocumentSourceScheduler(workspace, lines.append)
    now = find_first_time(hourly)
    with lock_document_source(workspace, "docs"):
        schedule.check_and_start_due_sources(now)
        wait_for_end(schedule)
    assert UserData(workspace).load_last_source_runs() == {}
    schedule.check_and_start_due_sources(now + 60)
    assert schedule.running_source_name is None
    schedule.check_and_start_due_sources(now + HOUR)
    assert schedule.running_source_name == "docs"
    schedule.stop()
    assert schedule.running_source_name is None
