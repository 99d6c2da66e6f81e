"""Runs a source: approval, lock, runner, files, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import ConfigError, KbtuiError
from kbtui.journal import Journal
from kbtui.journal.records import Run
from kbtui.sources.approval import approved_at
from kbtui.sources.config import load_sources
from kbtui.sources.documents import Shelf
from kbtui.sources.fetch import Fetcher, Limits, resolve_name
from kbtui.sources.passes import PROBLEMS_MOST, Pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kbtui.sources.fetch import Resolve
    from kbtui.sources.records import Progress, Source
    from kbtui.workspace import Workspace


class Busy(KbtuiError):
    """Another run of the source is going on."""


class NotApproved(ConfigError):
    """The user did not agree to this block."""


def run_source(
    workspace: Workspace,
    name: str,
    *,
    say: Callable[[Progress], None] = lambda progress: None,
    limits: Limits | None = None,
    resolve: Resolve = resolve_name,
) -> Run:
    """Run a source now, and note in the journal how it ended.

    What fails is in the run; raised are `NothingFound` and `ConfigError` for a
    source that does not exist or is not sound, `NotApproved`, and `Busy`.
    """
    source = load_sources(workspace).find(name)
    journal = Journal(workspace)
    if approved_at(workspace, journal, source) is None:
        raise NotApproved(
            "you did not approve this source as it is now",
            where=f".jp/kb-sources.toml: source.{name}",
            hint=f"`kbtui source approve {name}` shows it and asks",
        )
    with lock(workspace, name):
        began = time.time()
        try:
            run = _run(workspace, journal, source, began, say, limits or Limits(), resolve)
        except (KbtuiError, OSError) as error:
            reason = str(error) if isinstance(error, KbtuiError) else error.strerror or str(error)
            run = _failed(journal, name, began, reason)
        except KeyboardInterrupt:
            journal.put_run(_failed(journal, name, began, "interrupted"))
            raise
        journal.put_run(run)
    return run


def _failed(journal: Journal, name: str, began: float, reason: str) -> Run:
    before = journal.runs().get(name)
    entries = before.entries if before else 0
    return Run(name, began, time.time(), "error", reason, entries, problems=(reason,))


@contextlib.contextmanager
def lock(workspace: Workspace, name: str) -> Iterator[None]:
    """Hold the source for oneself; raises `Busy`. It is let go with the process, however that ends."""
    workspace.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = workspace.data_dir / f"source-{name}.lock"
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Busy("is running already", where=f"source {name}") from error
        yield


def _run(
    workspace: Workspace,
    journal: Journal,
    source: Source,
    began: float,
    say: Callable[[Progress], None],
    limits: Limits,
    resolve: Resolve,
) -> Run:
    shelf = open_shelf(workspace, source)
    found = Pass(source, shelf, journal.fetched(source.name), say)
    try:
        asyncio.run(_fetch(workspace, found, limits, resolve))
    except KbtuiError as error:
        # What came before stays, and counts.
        found.problems.insert(0, str(error))
        found.complete = False
    if found.complete:
        shelf.drop_unseen()
    # What an incomplete run did not meet may be there yet.
    memory = {} if found.complete else found.memory
    journal.put_fetched(source.name, {**memory, **found.remember})
    problems = (*found.problems, *shelf.problems)
    tally = shelf.tally
    worked = tally.added + tally.updated + tally.unchanged + tally.removed
    status = "ok" if not problems else "partial" if worked else "error"
    return Run(
        source=source.name,
        began=began,
        ended=time.time(),
        status=status,  # type: ignore[arg-type]
        error=problems[0] if problems else None,
        entries=len(shelf.held),
        added=tally.added,
        updated=tally.updated,
        removed=tally.removed,
        unchanged=tally.unchanged,
        problems=problems[:PROBLEMS_MOST],
    )


def open_shelf(workspace: Workspace, source: Source) -> Shelf:
    """The documents of a source; raises `KbtuiError` where its topic is gone or leads elsewhere."""
    from kbtui.knowledge import load_knowledge
    from kbtui.sources.writing import topic_folder

    knowledge = load_knowledge(workspace)
    topic = knowledge.resolve_topic(source.topic)
    root = Path(os.path.realpath(workspace.root))
    return Shelf(root, topic_folder(knowledge, topic), source)


async def _fetch(workspace: Workspace, run: Pass, limits: Limits, resolve: Resolve) -> None:
    from kbtui.sources.extractor import Extractor

    async with Extractor() as extractor:
        if run.source.kind == "file_upload":
            from kbtui.sources.upload import upload

            await upload(run, workspace.root, extractor)
        elif run.source.kind == "mcp":
            from kbtui.sources.mcp import take_resources

            await take_resources(run, workspace.root, extractor, limits)
        else:
            from kbtui.sources.crawl import Crawl

            async with Fetcher(limits, run.source.allow_hosts, resolve) as fetcher:
                await Crawl(run, fetcher, extractor).run()
