"""The command `workspaces`: lists the workspaces that the user has opened, and forgets some."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from kbtui.cli.command_output import print_text_or_json, print_to_stderr
from kbtui.dates import format_unix_time_as_iso
from kbtui.errors import IndexUnavailable, UsageError
from kbtui.text import format_counted_noun, sanitize_to_one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import TypedDict

    from kbtui.userdata.workspace_registry import RegisteredWorkspace

    class WorkspaceJson(TypedDict):
        """A workspace as documented JSON. `problem` says why it cannot be searched, or is None."""

        project: str
        root: str
        opened: str | None
        problem: str | None
        subjects: int | None
        conversations: int | None


def declare_workspaces_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    text = "list the workspaces, or remove some from the list"
    add("action", choices=["list", "forget"], nargs="?", default="list", help=text)
    add("paths", nargs="*", metavar="PATH", help="with `forget`: the workspace to remove")
    text = "with `forget`: remove the workspaces whose directory does not exist"
    add("--missing", action="store_true", help=text)
    add("--json", action="store_true", help="print one JSON document")


def run_workspaces_command(args: Namespace) -> int:
    """List the workspaces that you have opened, by project; or remove some from the list.

    The worktrees and clones of one Git repository are one project. `forget` only shortens the list: the
    files, bookmarks and indexes of the workspaces are kept.
    """
    from kbtui.userdata.workspace_registry import list_registered_workspaces
    from kbtui.workspace import load_settings

    if args.action == "list" and (args.paths or args.missing):
        raise UsageError("only `forget` takes a path or --missing", hint="`kbtui workspaces`")
    registered = list_registered_workspaces(load_settings())
    if args.action == "forget":
        return _forget_workspaces(args, registered)
    found = [_describe_workspace(one) for one in registered]
    lines, project = [], ""
    for row in found:
        if row["project"] != project:
            project = row["project"]
            lines.append(sanitize_to_one_line(project))
        lines.append(f"  {sanitize_to_one_line(row['root'])}  ({_format_contents(row)})")
    print_text_or_json("".join(f"{line}\n" for line in lines), found, args.json)
    if not found:
        print_to_stderr("no workspace has been opened yet")
    return 0 if found else 1


def _describe_workspace(one: RegisteredWorkspace) -> WorkspaceJson:
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


def _format_contents(row: WorkspaceJson) -> str:
    opened = f"opened {(row['opened'] or '')[:10]}"
    if row["problem"] or row["subjects"] is None or row["conversations"] is None:
        return f"{row['problem']}; {opened}"
    subjects = format_counted_noun(row["subjects"], "subject")
    conversations = format_counted_noun(row["conversations"], "conversation")
    return f"{subjects}, {conversations}; {opened}"


def _forget_workspaces(args: Namespace, registered: list[RegisteredWorkspace]) -> int:
    from kbtui.userdata.workspace_registry import forget_workspace

    if bool(args.paths) == args.missing:
        hint = "`kbtui workspaces forget PATH`, or `kbtui workspaces forget --missing`"
        raise UsageError("name a workspace, or write --missing", where="forget", hint=hint)
    known = {str(one.workspace.root): one for one in registered}
    roots = [root for root, one in known.items() if one.is_missing] if args.missing else []
    for path in args.paths:
        given = os.path.abspath(path)  # noqa: PTH100  (a missing directory has no real path)
        root = given if given in known else os.path.realpath(given)
        if root not in known:
            hint = "`kbtui workspaces` lists them"
            raise UsageError("this workspace is not in the list", where=path, hint=hint)
        roots.append(root)
    forgotten = [root for root in roots if forget_workspace(Path(root))]
    text = "".join(f"forgot {sanitize_to_one_line(root)}\n" for root in forgotten)
    print_text_or_json(text or "nothing to forget\n", {"forgotten": forgotten}, args.json)
    return 0
