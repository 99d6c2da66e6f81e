"""The commands `engine`, `index` and `workspaces`, which control the engine and list workspaces."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from pathlib import Path

from kbtui.cli.cli_output import (
    ProgressLine,
    format_time_left,
    print_json_result,
    print_result,
    print_text_or_json,
    print_to_stderr,
)
from kbtui.dates import format_unix_time_as_iso
from kbtui.errors import IndexUnavailable, UsageError, WorkspaceError
from kbtui.notices import (
    PAUSE_TEXTS,
    format_embedded_percentages,
    format_keywords_only_reason,
    format_notice,
)
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line

TYPE_CHECKING = False

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from kbtui.engine.engine_client import EngineClient
    from kbtui.engine.engine_protocol import (
        EngineReadiness,
        IndexProgressEvent,
        IndexRefreshOptions,
        WorkspaceStatus,
    )
    from kbtui.userdata.workspace_registry import RegisteredWorkspace


EMBEDDING_PAUSED = "embedding is paused; `kbtui engine continue` continues it"


def declare_engine_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    text = "show the state of the engine, stop it, or pause or continue the embedding of passages"
    actions = ["status", "stop", "pause", "continue"]
    add("action", choices=actions, nargs="?", default="status", help=text)
    add("--json", action="store_true", help="print one JSON document")


def run_engine_command(args: Namespace) -> int:
    """Show or stop the engine, the process that keeps the indexes of all workspaces up to date.

    One engine serves all your workspaces, so `stop` stops it for all of them. An open TUI and running
    tools start it again. `pause` stops the embedding of this workspace's passages until you run
    `continue`, even if the engine is restarted in the meantime.
    """
    if args.action in ("pause", "continue"):
        from kbtui.library import open_workspace

        library = open_workspace(args.workspace)
        library.set_embedding_paused(args.action == "pause")
        print(EMBEDDING_PAUSED if args.action == "pause" else "embedding continues")
        return 0
    from kbtui.engine.engine_launcher import EngineNotRunningError, connect_or_start_engine
    from kbtui.workspace import find_workspace, open_workspace_at_root
    from kbtui.workspace.paths import get_user_home

    # Do not load the settings, so that the user can stop the engine even if the settings are invalid.
    try:
        workspace = find_workspace(args.workspace)
    except WorkspaceError:
        if args.workspace:
            raise
        # The current directory was deleted. Use another one: the same engine serves all directories.
        workspace = open_workspace_at_root(Path(get_user_home()))
    try:
        engine = connect_or_start_engine(workspace, start=False)
    except EngineNotRunningError:
        if args.json:
            print_json_result({"running": False})
        else:
            print_to_stderr("no engine is running")
        return 1
    if args.action == "stop":
        pid = engine.pid
        engine.stop_engine()
        print(f"stopped the engine (process {pid})")
        return 0
    state = engine.send_request("engine_status")
    memory = "" if state["memory"] is None else f", {state['memory'] / 1e6:.0f} MB of memory"
    lines = [f"engine: process {state['pid']}, version {state['version']}{memory}"]
    for opened in state["workspaces"]:
        clients = format_counted_noun(opened["clients"], "client")
        lines += [
            f"workspace: {opened['root']}, {clients}",
            f"  keywords: {'ready' if opened['lexical'] else 'indexing'}",
            f"  vectors: {_format_embedding_progress(opened)}",
        ]
        if opened["error"]:
            lines.append(f"  the last refresh failed: {opened['error']}")
    if not state["workspaces"]:
        lines.append("no workspace is open")
    facts = {
        "running": True,
        **state,
        "workspaces": [
            {**opened, "reason": _format_keywords_only_reason_of_workspace(opened)}
            for opened in state["workspaces"]
        ],
    }
    print_text_or_json("\n".join(lines) + "\n", facts, args.json)
    return 0


def _format_keywords_only_reason_of_workspace(state: EngineReadiness) -> str | None:
    values = state["keywords_only"]
    return None if values is None else format_keywords_only_reason(values)


def _format_embedding_progress(state: WorkspaceStatus) -> str | None:
    if not state["semantic"]:
        return _format_keywords_only_reason_of_workspace(state)
    pause = f"; {EMBEDDING_PAUSED}" if state["paused"] else ""
    if not state["left"]:
        return f"ready{pause}"
    progress = state["progress"]
    if progress is None or progress["phase"] != "vectors":
        return f"{format_counted_noun(state['left'], 'passage')} not embedded yet{pause}"
    total = format_counted_noun(progress["total"], "passage")
    parts = format_embedded_percentages(progress["parts"])
    text = f"{state['left']:,} of {total} not embedded yet" + (f" ({parts} done)" if parts else "")
    return f"{text}{_format_indexing_pace_or_pause(progress)}"


def _format_indexing_pace_or_pause(progress: IndexProgressEvent) -> str:
    """Return the speed and the remaining time of the indexing, or the reason for a pause, or ""."""
    if progress["waits"] == "user":
        return f"; {EMBEDDING_PAUSED}"
    if progress["waits"]:
        return f"; {PAUSE_TEXTS[progress['waits']]}"
    if not progress["per_second"] or not progress["seconds_left"]:
        return ""
    return f", {progress['per_second']:,.0f} a second, {format_time_left(progress['seconds_left'])}"


def declare_index_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    text = "build a new index while the old one stays in use, then switch to the new one"
    add("--rebuild", action="store_true", help=text)
    add(
        "--watch",
        action="store_true",
        help="keep running, and print changes until you press Ctrl+C",
    )
    add("--no-vectors", action="store_true", help="do not wait for embedding")
    add("--json", action="store_true", help="print one JSON document")


def run_index_command(args: Namespace) -> int:
    """Bring the index up to date with the files, and show the progress.

    Waits until all passages are embedded, unless --no-vectors is given.
    """
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    began = time.monotonic()
    engine = library.connect_engine()
    options: IndexRefreshOptions = (
        {"rebuild": True} if args.rebuild else {"retry": True, "check": True}
    )
    progress = ProgressLine()
    state = engine.send_request("refresh", wait=0.5, **options)
    while not state["done"]:
        _show_index_progress(progress, engine)
        # Wait for the refresh requested above. If each step requested one, the loop might never end.
        state = engine.send_request("refreshed", wait=0.5)
    keywords = time.monotonic() - began
    if state.get("mended"):
        print_to_stderr(f"{state['mended']}; the index was rebuilt")
    vectors: EngineReadiness = engine.send_request("status")
    while not args.no_vectors:
        vectors = engine.send_request("settle", wait=0.5)
        if vectors["done"] or vectors["paused"]:
            break
        _show_index_progress(progress, engine)
    progress.clear_line()
    knowledge = library.load_knowledge()
    problems = [str(problem) for problem in knowledge.problems]
    has_disabled = any(
        subject.disabled for topic in knowledge.topics for subject in knowledge.list_subjects(topic)
    )
    without = " (without disabled ones)" if has_disabled else ""
    counts = library.open_index_reader().count_catalog_rows()
    facts = {
        **counts,
        "seconds_keywords": round(keywords, 3),
        "seconds": round(time.monotonic() - began, 3),
        "semantic": vectors["semantic"],
        "vectors_left": vectors["left"],
        "reason": _format_keywords_only_reason_of_workspace(vectors),
        "problems": problems,
    }
    for problem in [*problems, *map(format_notice, library.differing_agent_directory_notices)]:
        print_to_stderr(problem)
    subjects = format_counted_noun(counts["subjects"], "subject")
    conversations = format_counted_noun(counts["conversations"], "conversation")
    passages = format_counted_noun(counts["chunks"], "passage")
    citations = format_counted_noun(counts["citations"], "citation")
    text = (
        f"{subjects}{without}, {conversations}, {passages}, {citations} "
        f"in {facts['seconds']:.1f} s\n"
    )
    print_text_or_json(text, facts, args.json)
    if facts["reason"] and not (args.no_vectors or args.json):
        print_to_stderr(f"search uses keywords only: {facts['reason']}")
    if vectors["paused"] and vectors["left"] and not args.no_vectors:
        rest = format_counted_noun(vectors["left"], "passage")
        print_to_stderr(f"{rest} not embedded yet; {EMBEDDING_PAUSED}")
    if vectors["error"]:
        print_to_stderr(f"the last refresh failed: {vectors['error']}")
        return 3
    if args.watch:
        print_to_stderr("watching for changes; press Ctrl+C to stop")
        for event in engine.subscribe_to_engine_events():
            if event["event"] == "changed":
                names = [*event["subjects"], *event["conversations"]]
                print_result("changed: " + (", ".join(names[:10]) or "configuration") + "\n")
                sys.stdout.flush()
    engine.close()
    library.close()
    return 2 if problems else 0


def _show_index_progress(progress: ProgressLine, engine: EngineClient) -> None:
    if not sys.stderr.isatty():
        return
    found = engine.send_request("status")["progress"]
    if not found:
        progress.show_progress("comparing the files with the index")
        return
    phase = {"keywords": "indexing", "vectors": "embedding"}[found["phase"]]
    counts = f"{found['done']:,} of {found['total']:,}"
    progress.show_progress(f"{phase} {counts}{_format_indexing_pace_or_pause(found)}")


def declare_workspaces_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    text = "list the workspaces, or remove some from the list"
    add("action", choices=["list", "forget"], nargs="?", default="list", help=text)
    add("paths", nargs="*", metavar="PATH", help="with `forget`: a workspace to remove")
    text = "with `forget`: remove the workspaces whose directory does not exist"
    add("--missing", action="store_true", help=text)
    add("--json", action="store_true", help="print one JSON document")


def run_workspaces_command(args: Namespace) -> int:
    """List the workspaces that you have opened, grouped by project, or remove some from the list.

    The worktrees and clones of one Git repository are one project. `forget` changes only the list. It does
    not delete the files, bookmarks or indexes of a workspace.
    """
    from kbtui.userdata.workspace_registry import list_registered_workspaces
    from kbtui.workspace import load_settings

    if args.action == "list" and (args.paths or args.missing):
        raise UsageError(
            "only `forget` takes a path or --missing", hint="`kbtui workspaces` lists all"
        )
    registered = list_registered_workspaces(load_settings())
    if args.action == "forget":
        return _unregister_workspaces(args, registered)
    found = [_make_registered_workspace_json(one) for one in registered]
    lines, project = [], ""
    for row in found:
        if row["project"] != project:
            project = row["project"]
            lines.append(sanitize_to_one_line(project))
        lines.append(f"  {sanitize_to_one_line(row['root'])}  ({_format_workspace_counts(row)})")
    print_text_or_json("".join(f"{line}\n" for line in lines), found, args.json)
    if not found:
        print_to_stderr("no workspace has been opened yet")
    return 0 if found else 1


def _make_registered_workspace_json(one: RegisteredWorkspace) -> dict[str, Any]:
    problem, counts = None, dict[str, int]()
    if one.is_missing:
        problem = "the directory does not exist"
    else:
        from kbtui.index.index_reader import IndexReader

        try:
            with closing(IndexReader(one.workspace.cache_dir)) as reader:
                counts = reader.count_catalog_rows()
        except IndexUnavailable as error:
            problem = error.message
    return {
        "project": one.project,
        "root": str(one.workspace.root),
        "opened": format_unix_time_as_iso(one.opened),
        "problem": problem,
        "subjects": counts.get("subjects"),
        "conversations": counts.get("conversations"),
    }


def _format_workspace_counts(row: dict[str, Any]) -> str:
    opened = f"opened {(row['opened'] or '')[:10]}"
    if row["problem"] or row["subjects"] is None or row["conversations"] is None:
        return f"{row['problem']}; {opened}"
    subjects = format_counted_noun(row["subjects"], "subject")
    conversations = format_counted_noun(row["conversations"], "conversation")
    return f"{subjects}, {conversations}; {opened}"


def _unregister_workspaces(args: Namespace, registered: list[RegisteredWorkspace]) -> int:
    from kbtui.userdata.workspace_registry import unregister_workspace

    if bool(args.paths) == args.missing:
        hint = "`kbtui workspaces forget PATH`, or `kbtui workspaces forget --missing`"
        raise UsageError("name a workspace, or write --missing", where="forget", hint=hint)
    known = {str(one.workspace.root): one for one in registered}
    roots = [root for root, one in known.items() if one.is_missing] if args.missing else []
    for path in args.paths:
        given = os.path.abspath(path)  # noqa: PTH100  (a missing directory has no real path)
        root = given if given in known else os.path.realpath(given)
        if root not in known:
            hint = "`kbtui workspaces` prints the list"
            raise UsageError("this workspace is not in the list", where=path, hint=hint)
        roots.append(root)
    forgotten = [root for root in roots if unregister_workspace(Path(root))]
    text = "".join(f"forgot {sanitize_to_one_line(root)}\n" for root in forgotten)
    print_text_or_json(text or "nothing to forget\n", {"forgotten": forgotten}, args.json)
    return 0
