"""Runs a source: checks its approval, fetches its documents, and records the result.

The engine starts `python -m kbtui.sources.document_source_runner ROOT NAME` when a source is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError, KbtuiError, UsageError
from kbtui.sources.document_source_definitions import (
    find_source_approval_time,
    load_source_definitions,
    remove_source_definition,
)
from kbtui.sources.http_fetcher import (
    HttpFetcher,
    make_source_run_limits,
    resolve_host_name,
)
from kbtui.sources.source_document_store import (
    MAX_NAMED_PROBLEMS,
    SourceDocumentStore,
    SourceRunContext,
)
from kbtui.userdata.user_data_store import SkippedAddressOrFile, SourceRunRecord, UserData
from kbtui.workspace.paths import SOURCES_FILE, make_private_directory
from kbtui.workspace.user_settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from kbtui.sources.document_source_definitions import (
        DocumentSourceDefinition,
        SourceRunProgress,
    )
    from kbtui.sources.http_fetcher import HostResolver, SourceRunLimits
    from kbtui.workspace import Workspace

STOP_CHECK_SECONDS = 0.2


class SourceAlreadyRunningError(KbtuiError):
    """Another run of the source has not ended yet."""


class SourceNotApprovedError(ConfigError):
    """The user has not approved this version of the source."""


def run_document_source(
    workspace: Workspace,
    name: str,
    *,
    on_progress: Callable[[SourceRunProgress], None] = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
    limits: SourceRunLimits | None = None,
    resolve: HostResolver = resolve_host_name,
) -> SourceRunRecord:
    """Run a source now, record the run in the user's data, and return the record.

    `should_stop` is called several times a second from this thread. When it returns true, the run
    ends; fetched documents are kept, and nothing is deleted. The same happens on
    `KeyboardInterrupt`, which is then raised again. Raises `KbtuiError` if the run cannot start.
    """
    source = load_source_definitions(workspace).find_source(name)
    userdata = UserData(workspace)
    if find_source_approval_time(workspace, userdata, source) is None:
        raise SourceNotApprovedError(
            "the source is not approved, or has changed since its approval",
            where=f"{workspace.format_config_path(SOURCES_FILE)}: source.{name}",
            hint=f"review it with `kbtui source approve {name}`",
        )
    with lock_document_source(workspace, name):
        began = time.time()
        try:
            store = open_source_document_store(workspace, source, create=True)
            memory = userdata.load_fetched_address_facts(name)
            context = SourceRunContext(source, store, memory, on_progress)
            limits = limits or make_source_run_limits(load_settings())
            fetching = _fetch_and_store_source_documents(workspace.root, context, limits, resolve)
            interrupted = _run_fetching_until_end_or_stop(context, fetching, should_stop)
            run = _make_source_run_record(context, began)
            userdata.save_fetched_address_facts(name, context.new_memory)
        except (KbtuiError, OSError) as error:
            reason = str(error) if isinstance(error, KbtuiError) else error.strerror or str(error)
            before = userdata.load_last_source_runs().get(name)
            entries, ended = before.entries if before else 0, time.time()
            run = SourceRunRecord(name, began, ended, "error", reason, entries, problems=(reason,))
            interrupted = False
        userdata.save_source_run(run)
    if interrupted:
        raise KeyboardInterrupt
    return run


@contextlib.contextmanager
def lock_document_source(workspace: Workspace, name: str) -> Iterator[None]:
    """Lock a source until the `with` block or the process ends.

    Raises `SourceAlreadyRunningError` if the source is already locked.
    """
    make_private_directory(workspace.user_data_directory)
    path = workspace.user_data_directory / f"source-{name}.lock"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = "the source is already running"
            raise SourceAlreadyRunningError(message, where=f"source {name}") from error
        yield


def _run_fetching_until_end_or_stop(
    context: SourceRunContext, fetching: Coroutine[Any, Any, None], should_stop: Callable[[], bool]
) -> bool:
    """Run `fetching` until it ends or `should_stop` returns true.

    Returns whether the run was interrupted.
    """
    interrupted = False
    try:
        asyncio.run(_run_fetching_unless_stopped(context.source.name, fetching, should_stop))
    except (KbtuiError, KeyboardInterrupt) as error:
        # Keep and count the documents that were fetched before the error.
        interrupted = isinstance(error, KeyboardInterrupt)
        context.problems.insert(0, "interrupted" if interrupted else str(error))
        context.is_complete = False
    if context.is_complete:
        context.document_store.remove_unseen_documents()
    else:
        # Documents that an incomplete run did not reach may still exist.
        context.new_memory = {**context.memory, **context.new_memory}
    return interrupted


def _make_source_run_record(context: SourceRunContext, began: float) -> SourceRunRecord:
    """Return the record of a run that ends now."""
    store = context.document_store
    problems = (*context.problems, *store.problems)
    has_worked = any(store.counts.values())
    skips = tuple(SkippedAddressOrFile(*skip) for skip in context.skips.items())
    if skips and not (problems or has_worked or store.documents):
        what, reason = skips[0]
        problems = (f"nothing could be fetched: {what}: {reason}",)
    return SourceRunRecord(
        source=context.source.name,
        began=began,
        ended=time.time(),
        status="ok" if not problems else "partial" if has_worked else "error",
        error=problems[0] if problems else None,
        entries=len(store.documents),
        problems=problems[:MAX_NAMED_PROBLEMS],
        skipped=len(skips),
        skips=skips[:MAX_NAMED_PROBLEMS],
        edited=tuple(store.edited),
        **store.counts,
    )


def open_source_document_store(
    workspace: Workspace, source: DocumentSourceDefinition, *, create: bool = False
) -> SourceDocumentStore:
    """Open the store of a source's documents in the topic that the source declares.

    If `create` is true, the topic's directory is created if it is missing. Raises `KbtuiError` if the
    source's topic is unknown or outside the workspace.
    """
    from kbtui.knowledge import load_knowledge
    from kbtui.knowledge.subject_files import create_topic_directory, find_editable_topic_directory

    knowledge = load_knowledge(workspace)
    topic = knowledge.resolve_topic(source.topic)
    root = Path(os.path.realpath(workspace.root))
    get_directory = create_topic_directory if create else find_editable_topic_directory
    return SourceDocumentStore(root, get_directory(workspace, topic), source)


def count_source_documents(workspace: Workspace, source: DocumentSourceDefinition) -> int:
    """Return how many documents a source has. Raises `KbtuiError` if they cannot be read."""
    open_source_document_store(workspace, source)
    return sum(
        len(found.documents) for found in _open_stores_of_source_in_all_topics(workspace, source)
    )


def _open_stores_of_source_in_all_topics(
    workspace: Workspace, source: DocumentSourceDefinition
) -> list[SourceDocumentStore]:
    """Open the stores of a source's documents in all topics.

    Earlier runs may have used a topic other than the one declared now.
    """
    from kbtui.knowledge import load_knowledge

    root = Path(os.path.realpath(workspace.root))
    folders = {
        Path(os.path.realpath(root / topic.subjects))
        for topic in load_knowledge(workspace).topics.values()
    }
    found = []
    for folder in sorted(folders):
        if folder.is_relative_to(root) and (folder / source.name).is_dir():
            with contextlib.suppress(KbtuiError):  # skip a directory that is a link
                found.append(SourceDocumentStore(root, folder, source))
    return found


def remove_source_and_fetched_files(workspace: Workspace, name: str, *, keep: bool) -> list[str]:
    """Remove a source, and delete its documents unless `keep` is true.

    Documents that are kept become ordinary subjects. Documents that the user has edited are never
    deleted. Returns a message for each edited document that was kept, and for each document or
    directory that could not be changed. Raises `KbtuiError`.
    """
    source = load_source_definitions(workspace).find_source(name)
    with lock_document_source(workspace, name):
        problems = []
        try:
            open_source_document_store(workspace, source)
        except KbtuiError as error:
            if not keep:
                raise UsageError(
                    f"the source's documents cannot be deleted: {error}",
                    where=name,
                    hint="keep the documents, or first change the source's topic to one that exists",
                ) from error
            problems.append(
                f"the source's documents cannot be read, so they stay unchanged: {error}"
            )
        stores = _open_stores_of_source_in_all_topics(workspace, source)
        remove_source_definition(workspace, name)
        for store in stores:
            if keep:
                store.detach_documents_from_source()
            else:
                store.remove_all_unedited_documents()
            problems += [*store.problems, *store.edited]
        UserData(workspace).remove_source_data(name)
        return problems


async def _run_fetching_unless_stopped(
    name: str, fetching: Coroutine[Any, Any, None], should_stop: Callable[[], bool]
) -> None:
    task = asyncio.ensure_future(fetching)
    while not task.done():
        if should_stop():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            raise KbtuiError("stopped; the documents fetched so far are kept", where=name)
        await asyncio.wait([task], timeout=STOP_CHECK_SECONDS)
    task.result()


async def _fetch_and_store_source_documents(
    root: Path, run: SourceRunContext, limits: SourceRunLimits, resolve: HostResolver
) -> None:
    from kbtui.sources.document_text_extraction import TextExtractorProcess

    async with TextExtractorProcess() as extractor:
        if run.source.kind == "file_upload":
            from kbtui.sources.file_import import import_source_files

            await import_source_files(run, root, extractor, limits)
        elif run.source.kind == "mcp":
            from kbtui.sources.mcp_resource_fetcher import fetch_mcp_resources

            await fetch_mcp_resources(run, root, extractor, limits)
        else:
            from kbtui.sources.web_crawler import WebCrawler

            async with HttpFetcher(limits, run.source.allow_hosts, resolve) as fetcher:
                await WebCrawler(run, fetcher, extractor).crawl_and_store_pages()


def run_source_in_child_process(words: list[str]) -> int:
    """Run the source `words[1]` of the workspace at `words[0]`; return the exit code."""
    from kbtui.workspace import open_workspace_at_root

    with contextlib.suppress(OSError):
        os.nice(10)
    try:
        run = run_document_source(open_workspace_at_root(Path(words[0])), words[1])
    except KbtuiError as error:
        print(f"source {words[1]}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    print(f"source {words[1]}: {run.status}: {run.error or 'done'}", file=sys.stderr)
    return 0 if run.status == "ok" else 1


if __name__ == "__main__":
    sys.exit(run_source_in_child_process(sys.argv[1:]))
