"""The commands `source add`, `ls`, `edit`, `approve`, `run` and `rm`."""

from __future__ import annotations

import sys

from kbtui.cli.cli_output import (
    ProgressLine,
    ask_for_confirmation,
    print_json_result,
    print_result,
    print_text_or_json,
    print_to_stderr,
)
from kbtui.dates import format_unix_time_as_iso
from kbtui.errors import KbtuiError, UsageError
from kbtui.knowledge import load_knowledge
from kbtui.sources.document_source_definitions import (
    MAIN_KEY,
    DocumentSourceDefinition,
    SourceRunProgress,
    add_source_definition,
    change_source_definition_keys,
    find_source_approval_time,
    format_source_as_toml,
    load_source_definitions,
    record_source_approval,
    suggest_source_name,
)
from kbtui.sources.document_source_scheduler import find_source_due_time
from kbtui.terminal_text import format_counted_noun, sanitize, sanitize_to_one_line
from kbtui.userdata.user_data_store import UserData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.userdata.user_data_store import SourceRunRecord
    from kbtui.workspace import Workspace

_KINDS_BY_SHORT_NAME = {"url": "url_crawl", "file": "file_upload"}
"""Maps short names on the command line to kinds of sources."""
MAX_SKIPS_SHOWN = 5
"""For each reason, at most this many skipped documents are printed. `--json` prints all of them."""
_BLOCK_OPTIONS = ("topic", "depth", "prefixes", "pattern", "server", "allow_hosts", "env", "cron")


def declare_source_command_arguments(parser: ArgumentParser) -> None:
    metavar = "add|ls|edit|approve|run|rm"
    actions = parser.add_subparsers(dest="action", required=True, metavar=metavar)
    add = actions.add_parser("add", help="declare a source and approve it")
    kinds = [*_KINDS_BY_SHORT_NAME, *_KINDS_BY_SHORT_NAME.values(), "mcp"]
    add.add_argument("kind", choices=kinds, metavar="KIND", help="url_crawl, file_upload or mcp")
    text = "what to fetch: a URL, a file or directory, or an MCP server's command"
    add.add_argument("what", nargs="?", metavar="WHAT", help=text)
    text = "the name of the source and of its directory (default: derived from WHAT)"
    add.add_argument("--name", metavar="N", help=text)
    edit = actions.add_parser("edit", help="change a source and approve the change")
    edit.add_argument("name", metavar="NAME", help="a source's name")
    edit.add_argument("--what", metavar="WHAT", help="the new URL, file, directory or command")
    edit.add_argument("--no-cron", action="store_true", help="run the source only on request")
    for command in (add, edit):
        _add_document_source_options(command, needs_topic=command is add)
    approve = actions.add_parser("approve", help="show a source, and approve it if you agree")
    run = actions.add_parser("run", help="fetch a source now")
    run.add_argument("--all", action="store_true", help="fetch every approved source")
    remove = actions.add_parser("rm", help="remove a source, and keep or delete its documents")
    kept = remove.add_mutually_exclusive_group()
    text = "keep the source's documents as subjects that you edit yourself"
    kept.add_argument("--keep", action="store_true", help=text)
    kept.add_argument("--delete", action="store_true", help="delete the source's documents")
    for command in (approve, remove):
        command.add_argument("name", metavar="NAME", help="a source's name")
        command.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    run.add_argument("name", nargs="?", metavar="NAME", help="a source's name")
    listing = actions.add_parser("ls", aliases=["list"], help="list sources with their last runs")
    for command in (listing, run, add):
        command.add_argument("--json", action="store_true", help="print one JSON document")


def _add_document_source_options(parser: ArgumentParser, *, needs_topic: bool) -> None:
    add = parser.add_argument
    add("--topic", metavar="ID", required=needs_topic, help="the topic for the documents")
    text = "fetch pages up to N links away from the first page (default: 1)"
    add("--depth", type=int, metavar="N", help=text)
    text = "fetch only URLs below this one (repeatable)"
    add("--prefix", dest="prefixes", action="append", metavar="P", help=text)
    add("--pattern", metavar="P", help="fetch only resources whose URI matches this glob")
    add("--server", metavar="CMD", help="the MCP server's command")
    text = "fetch from this host even if it is in a private network (repeatable)"
    add("--allow-host", dest="allow_hosts", action="append", metavar="H", help=text)
    text = "pass this environment variable to the MCP server (repeatable)"
    add("--env", action="append", metavar="VAR", help=text)
    text = "run at these times, given as a cron expression: '0 4 * * 1' means Mondays at 4:00"
    add("--cron", metavar="EXPR", help=text)


def run_source_command(args: Namespace) -> int:
    """Manage sources: web pages, files and MCP resources that kbtui fetches into a topic.

    `add` declares a source in kb-sources.toml and approves it. `approve` approves a
    source that another user declared or changed. Only approved sources run.
    """
    from kbtui.library import open_workspace

    workspace = open_workspace(args.workspace).workspace
    actions = {
        "add": _add_source_definition_to_workspace,
        "ls": _print_document_sources,
        "list": _print_document_sources,
        "edit": _edit_document_source,
        "approve": _ask_user_to_allow_source_to_run,
        "run": _run_requested_document_sources,
        "rm": _remove_document_source,
    }
    return actions[args.action](workspace, UserData(workspace), args)


def _collect_document_source_options(args: Namespace) -> dict[str, object]:
    return {key: value for key in _BLOCK_OPTIONS if (value := getattr(args, key)) is not None}


def _add_source_definition_to_workspace(
    workspace: Workspace, userdata: UserData, args: Namespace
) -> int:
    kind = _KINDS_BY_SHORT_NAME.get(args.kind, args.kind)
    what = args.what or args.server
    if not what:
        raise UsageError("WHAT is missing", where=f"source add {args.kind}")
    topic = load_knowledge(workspace).resolve_topic(args.topic)
    block = {
        "kind": kind,
        **_collect_document_source_options(args),
        "topic": topic.id,
        MAIN_KEY[kind]: what,
    }
    name = args.name or suggest_source_name(kind, what)
    source = add_source_definition(workspace, name, block)
    record_source_approval(workspace, userdata, source)
    facts = _make_document_source_json(workspace, userdata, source, None)
    print_text_or_json(f"{name}\n", facts, args.json)
    if not args.json:
        print_to_stderr(f"`kbtui source run {name}` fetches its documents")
        _print_when_scheduled_source_will_run(source)
    return 0


def _edit_document_source(workspace: Workspace, userdata: UserData, args: Namespace) -> int:
    before = load_source_definitions(workspace).find_source(args.name)
    changes = _collect_document_source_options(args)
    if args.topic is not None:
        changes["topic"] = load_knowledge(workspace).resolve_topic(args.topic).id
    if args.what:
        changes[MAIN_KEY[before.kind]] = args.what
    if args.no_cron:
        changes["cron"] = None
    if not changes:
        raise UsageError("nothing to change", where=f"source edit {args.name}")
    was_approved = find_source_approval_time(workspace, userdata, before) is not None
    source = change_source_definition_keys(workspace, args.name, changes)
    if not was_approved:
        # Do not approve the source: a user who changes one key may not have seen the other keys.
        print_to_stderr(
            "the source is still not approved; `kbtui source approve` shows the source and asks for approval"
        )
        return 0
    record_source_approval(workspace, userdata, source)
    _print_when_scheduled_source_will_run(source)
    return 0


def _print_when_scheduled_source_will_run(source: DocumentSourceDefinition) -> None:
    if source.cron is not None:
        print_to_stderr(
            "the engine runs the source at the scheduled times, and catches up on a missed run when it starts; "
            "the engine keeps running while the TUI, `kbtui mcp` or `kbtui index --watch` is open"
        )


def _ask_user_to_allow_source_to_run(
    workspace: Workspace, userdata: UserData, args: Namespace
) -> int:
    source = load_source_definitions(workspace).find_source(args.name)
    if find_source_approval_time(workspace, userdata, source) is not None:
        print_to_stderr("the source is already approved")
        return 0
    sys.stderr.write(sanitize(format_source_as_toml(source), "visualize"))
    question = "allow kbtui to run this source, now and at its scheduled times?"
    if not args.yes and not ask_for_confirmation(question):
        print_to_stderr("the source was not approved")
        return 1
    # Approve the block that was shown; the one in the file may have changed since.
    record_source_approval(workspace, userdata, source)
    return 0


def _run_requested_document_sources(
    workspace: Workspace, userdata: UserData, args: Namespace
) -> int:
    from kbtui.sources.document_source_runner import run_document_source

    if bool(args.name) == args.all:
        raise UsageError("name a source, or use --all", where="source run")
    found = load_source_definitions(workspace)
    names = [args.name] if args.name else []
    for source in found.sources.values() if args.all else ():
        if find_source_approval_time(workspace, userdata, source) is None:
            print_to_stderr(f"{source.name}: skipped, because it is not approved")
        else:
            names.append(source.name)
    progress = ProgressLine()

    def show_source_progress(now: SourceRunProgress) -> None:
        progress.show_progress(f"{now.source} {now.done}/{now.total} {now.now}")

    runs = []
    for name in names:
        try:
            with progress:
                runs.append(run_document_source(workspace, name, on_progress=show_source_progress))
        except KeyboardInterrupt:
            if (run := userdata.load_last_source_runs().get(name)) is not None:
                _print_source_run_result(run)
            raise
        if not args.json:
            _print_source_run_result(runs[-1])
    if args.json:
        print_json_result([{"name": run.source, **run.as_json()} for run in runs])
    return 0 if runs and all(run.status == "ok" for run in runs) else 1


def _print_source_run_result(run: SourceRunRecord) -> None:
    print_result(
        f"{run.source}: {run.status}, {format_counted_noun(run.entries, 'document')} ({run.document_counts_text}) "
        f"in {run.ended - run.began:.1f} s\n"
    )
    for problem in (*run.problems, *run.edited):
        print_to_stderr(problem)
    for reason, skipped in run.skipped_documents_by_reason.items():
        more = len(skipped) - MAX_SKIPS_SHOWN
        further = f" and {more:,} more" if more > 0 else ""
        print_to_stderr(f"skipped, {reason}: {', '.join(skipped[:MAX_SKIPS_SHOWN])}{further}")


def _print_document_sources(workspace: Workspace, userdata: UserData, args: Namespace) -> int:
    found = load_source_definitions(workspace)
    runs = userdata.load_last_source_runs()
    shown = [
        _make_document_source_json(workspace, userdata, source, runs.get(name))
        for name, source in found.sources.items()
    ]
    lines = [
        _format_document_source_summary(
            source, runs.get(source.name), is_approved=bool(row["approved_at"])
        )
        for source, row in zip(found.sources.values(), shown, strict=True)
    ]
    for problem in found.problems:
        print_to_stderr(str(problem))
    print_text_or_json("".join(lines), shown, args.json)
    if not shown and not found.problems:
        print_to_stderr("no sources; `kbtui source add` declares one")
    return 0 if shown else 2 if found.problems else 1


def _make_document_source_json(
    workspace: Workspace,
    userdata: UserData,
    source: DocumentSourceDefinition,
    run: SourceRunRecord | None,
) -> dict[str, object]:
    never = dict.fromkeys(f"last_run_{name}" for name in ("at", "status", "error", "entry_count"))
    return {
        "name": source.name,
        "kind": source.kind,
        "topic": source.topic,
        "what": source.url_path_or_command,
        "config": source.block,
        "cron": source.cron,
        "approved_at": format_unix_time_as_iso(
            find_source_approval_time(workspace, userdata, source)
        ),
        "next_run_at": format_unix_time_as_iso(find_source_due_time(workspace, userdata, source)),
        **(run.as_json() if run else never),
    }


def _format_document_source_summary(
    source: DocumentSourceDefinition, run: SourceRunRecord | None, *, is_approved: bool
) -> str:
    state = "never run"
    if run:
        state = run.status
        if time := format_unix_time_as_iso(run.began):
            count = format_counted_noun(run.entries, "document")
            state += f" {time[:16].replace('T', ' ')}, {count}"
    if not is_approved:
        state = "NOT APPROVED"
    cron = f", scheduled at {source.cron}" if source.cron else ""
    text = f"{source.name}  {source.kind} into {source.topic}{cron}: {state}\n"
    details = filter(None, [source.url_path_or_command, run.error if run else None])
    return text + "".join(f"    {sanitize_to_one_line(detail)}\n" for detail in details)


def _remove_document_source(workspace: Workspace, userdata: UserData, args: Namespace) -> int:
    from kbtui.sources.document_source_runner import (
        count_source_documents,
        remove_source_and_fetched_files,
    )

    source = load_source_definitions(workspace).find_source(args.name)
    try:
        count = count_source_documents(workspace, source)
    except KbtuiError:
        count = 0  # the removal below reports the error
    if not args.yes and not ask_for_confirmation(f"remove the source {source.name}?"):
        print_to_stderr("nothing was removed")
        return 1
    keep = args.keep or not args.delete
    if count and not (args.keep or args.delete or args.yes):
        documents = "document" if count == 1 else f"{count} documents"
        keep = not ask_for_confirmation(f"remove the {documents} of this source, too?")
    for problem in remove_source_and_fetched_files(workspace, source.name, keep=keep):
        print_to_stderr(problem)
    return 0
