"""Resources of a real MCP server in its own process, and of servers that misbehave."""

import base64
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from web_support import SourceWorkspace

from kbtui.sources.http_fetcher import SourceRunLimits

SERVER = Path(__file__).with_name("mcp_server.py")
NOTES = {
    "note://team/retries": {"text": "# Retries\n\nBack off.\n", "type": "text/markdown", "title": "On retries"},
    "note://team/deploys": {"text": "Ship on Mondays.", "type": "text/plain"},
    "note://private/diary": {"text": "Dear diary", "type": "text/plain"},
    "config://limits": {"text": '{"most": 3}', "type": "application/json"},
    "note://team/blob": {"blob": base64.b64encode(b"Plain in a blob.").decode(), "type": "text/plain"},
}  # fmt: skip


def configure(
    project: SourceWorkspace,
    resources: dict[str, Any],
    mode: str = "",
    python: Sequence[str] = (sys.executable,),
    **options: Any,
) -> None:
    (project.root / "resources.json").write_text(json.dumps(resources))
    command = shlex.join([*python, str(SERVER), "resources.json", *([mode] if mode else [])])
    project.add(kind="mcp", server=command, **options)


def is_server_gone(project: SourceWorkspace) -> bool:
    pid = int((project.root / "started").read_text())
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_resources_that_match_become_subjects(project: SourceWorkspace) -> None:
    configure(project, NOTES, pattern="note://team/*")
    run = project.run()
    assert (run.status, run.entries) == ("ok", 3), run.problems
    found = project.documents()
    assert set(found) == {"team/retries.md", "team/deploys.md", "team/blob.md"}
    assert "title: On retries" in found["team/retries.md"]
    assert "source_url: note://team/retries" in found["team/retries.md"]
    assert "Back off." in found["team/retries.md"]
    assert "Plain in a blob." in found["team/blob.md"]
    assert is_server_gone(project)


def test_without_a_pattern_all_are_taken_and_what_is_no_prose_is_fenced(
    project: SourceWorkspace,
    stand_in: list[str],
) -> None:
    configure(project, NOTES, python=stand_in)
    run = project.run()
    assert run.entries == 5, run.problems
    assert '```json\n{"most": 3}\n```' in project.documents()["limits.md"]


def test_a_second_run_follows_the_server(project: SourceWorkspace, stand_in: list[str]) -> None:
    configure(project, NOTES, python=stand_in, pattern="note://team/*")
    project.run()
    changed = {**NOTES, "note://team/deploys": {"text": "Ship on Tuesdays.", "type": "text/plain"}}
    del changed["note://team/blob"]
    (project.root / "resources.json").write_text(json.dumps(changed))
    run = project.run()
    assert (run.added, run.updated, run.removed, run.unchanged) == (0, 1, 1, 1)
    assert "Tuesdays" in project.documents()["team/deploys.md"]


def test_one_resource_that_fails_leaves_the_others(
    project: SourceWorkspace, stand_in: list[str]
) -> None:
    resources = {
        "a://bad": {"error": "not today", "text": ""},
        "a://image": {"blob": base64.b64encode(b"\x89PNG").decode(), "type": "image/png"},
        "a://good": {"text": "fine", "type": "text/plain"},
    }
    configure(project, resources, python=stand_in)
    run = project.run()
    assert run.status == "partial"
    assert run.problems == ("a://bad: not today",)
    assert run.skips == (("a://image", "content type image/png is not supported"),)
    assert list(project.documents()) == ["good.md"]


@pytest.mark.parametrize("mode", ["hang-start", "hang-list"])
@pytest.mark.slow
def test_a_server_that_hangs_is_ended(project: SourceWorkspace, mode: str) -> None:
    configure(project, NOTES, mode)
    run = project.run(limits=SourceRunLimits(seconds=2.0, connect_seconds=2.0))
    assert run.status == "error"
    assert "in time" in (run.error or "")
    assert is_server_gone(project)


@pytest.mark.slow
def test_a_server_that_hangs_half_way_loses_nothing(project: SourceWorkspace) -> None:
    resources = {
        "a://one": {"text": "one", "type": "text/plain"},
        "a://slow": {"text": "slow", "type": "text/plain", "slow": True},
        "a://two": {"text": "two", "type": "text/plain"},
    }
    configure(project, resources)
    assert project.run().status == "ok"
    before = project.documents()
    from kbtui.sources.document_source_definitions import (
        change_source_definition_keys,
        record_source_approval,
    )
    from kbtui.userdata.user_data_store import UserData

    workspace = project.builder.workspace
    slower = change_source_definition_keys(
        workspace, "docs", {"server": project.source().block["server"] + " hang-read"}
    )
    record_source_approval(workspace, UserData(workspace), slower)
    run = project.run(limits=SourceRunLimits(seconds=2.0))
    assert run.status == "partial", run.problems
    assert run.problems[0].startswith("a://slow")
    assert project.documents() == before
    assert is_server_gone(project)


def test_a_server_that_dies_is_an_error_with_its_last_words(project: SourceWorkspace) -> None:
    configure(project, {"a://x": {"text": "x", "type": "text/plain", "slow": True}}, "die")
    run = project.run()
    assert run.status == "error"
    assert "something broke" in (run.error or "") or run.problems


@pytest.mark.parametrize("command", ["/does/not/exist --x", f"{sys.executable} -c pass"])
def test_a_command_that_is_no_server_is_an_error(project: SourceWorkspace, command: str) -> None:
    project.add(kind="mcp", server=command)
    run = project.run(limits=SourceRunLimits(seconds=5.0))
    assert run.status == "error"
    assert "MCP server" in (run.error or "")


def test_a_server_that_writes_garbage_is_an_error(project: SourceWorkspace) -> None:
    configure(project, NOTES, "garbage")
    run = project.run(limits=SourceRunLimits(seconds=5.0))
    assert run.status == "error"
    assert project.documents() == {}


def test_the_error_of_such_a_server_has_no_traceback(project: SourceWorkspace) -> None:
    configure(project, NOTES, "garbage")
    ended = subprocess.run(
        [sys.executable, "-m", "kbtui.cli.main", "-w", str(project.root), "source", "run", "docs"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert "the MCP server failed" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert "JSONRPC" not in ended.stderr


def test_a_server_gets_only_the_variables_that_are_named(
    project: SourceWorkspace, stand_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hush")
    resources = {"a://x": {"text": "it is $SECRET", "type": "text/plain"}}
    configure(project, resources, python=stand_in)
    project.run()
    assert "it is unset" in project.documents()["x.md"]
    from kbtui.sources.document_source_definitions import (
        change_source_definition_keys,
        record_source_approval,
    )
    from kbtui.userdata.user_data_store import UserData

    workspace = project.builder.workspace
    record_source_approval(
        workspace,
        UserData(workspace),
        change_source_definition_keys(workspace, "docs", {"env": ["SECRET"]}),
    )
    project.run()
    assert "it is hush" in project.documents()["x.md"]
