"""Runs the sources that are due. The engine calls `check_and_start_due_sources` regularly."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from kbtui.sources.document_source_definitions import (
    find_next_cron_time,
    find_source_approval_time,
    load_source_definitions,
)
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace.client_environment import make_client_environment_for_child_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbtui.sources.document_source_definitions import DocumentSourceDefinition
    from kbtui.workspace import Workspace

SCHEDULE_SECONDS = 30.0
MAX_RUN_SECONDS = 7200.0


def find_source_due_time(
    workspace: Workspace, userdata: UserData, source: DocumentSourceDefinition, since: float = 0.0
) -> float | None:
    """Return the time, in Unix seconds, when a source is due; None if it is never due.

    This is the first cron time that is later than the source's last run, its approval and `since`.
    The due time can be in the past.
    """
    approved = find_source_approval_time(workspace, userdata, source) if source.cron else None
    if source.cron is None or approved is None:
        return None
    last = userdata.load_last_source_runs().get(source.name)
    return find_next_cron_time(source.cron, max(approved, since, last.began if last else 0.0))


def list_due_sources(
    workspace: Workspace, now: float | None = None, started: Mapping[str, float] | None = None
) -> list[str]:
    """Return the names of the sources that are due.

    The source that has been due the longest comes first. `started` maps names of sources
    to their last start in this process, in Unix seconds.
    """
    now = time.time() if now is None else now
    userdata = UserData(workspace)
    due = []
    for source in load_source_definitions(workspace).sources.values():
        at = find_source_due_time(
            workspace, userdata, source, (started or {}).get(source.name, 0.0)
        )
        if at is not None and at <= now:
            due.append((at, source.name))
    return [name for _, name in sorted(due)]


class DocumentSourceScheduler:
    """Runs the sources that are due, one at a time, each in a process with low priority.

    Only one thread may use a scheduler. If `umask` is -1, runs inherit the umask of this process.
    """

    def __init__(self, workspace: Workspace, log: Callable[[str], None], umask: int = -1) -> None:
        self._workspace, self._log, self._umask = workspace, log, umask
        self._process: subprocess.Popen[bytes] | None = None
        self._name, self._began = "", 0.0
        # A run that crashes before recording its result must not be started again and again.
        self._started: dict[str, float] = {}
        self.has_scheduled_source = True
        """Whether the last check found a source with a schedule."""

    @property
    def running_source_name(self) -> str | None:
        """The name of the source that is running, or None."""
        return self._name if self._process is not None else None

    def check_and_start_due_sources(self, now: float | None = None) -> None:
        """Stop a run that takes too long. If nothing is running, start a source that is due."""
        self._check_running_source_process()
        now = time.time() if now is None else now
        sources = load_source_definitions(self._workspace).sources.values()
        self.has_scheduled_source = any(source.cron is not None for source in sources)
        may_start = self.has_scheduled_source and self._process is None
        due = list_due_sources(self._workspace, now, self._started) if may_start else []
        if due:
            self._name, self._began = due[0], time.monotonic()
            self._started[self._name] = now
            self._log(f"source {self._name}: started, because it is due")
            module, root = "kbtui.sources.document_source_runner", os.fspath(self._workspace.root)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, root, self._name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=make_client_environment_for_child_process(),
                umask=self._umask,
            )

    def stop(self) -> None:
        """Stop the current run. When the engine starts again, the source runs again."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _check_running_source_process(self) -> None:
        code = self._process.poll() if self._process else None
        if code is not None:
            self._log(f"source {self._name}: ended with exit code {code}")
            self._process = None
        elif self._process and time.monotonic() - self._began > MAX_RUN_SECONDS:
            limit = f"the run had not finished after {MAX_RUN_SECONDS:g} s"
            self._log(f"source {self._name}: stopped, because {limit}")
            self.stop()
