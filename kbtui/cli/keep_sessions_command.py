"""The command `keep`: copies sessions into the archive, and lists, checks and deletes the copies."""

from __future__ import annotations

from kbtui.cli.argument_parser_base_class import split_values_at_commas
from kbtui.cli.cli_output import (
    StderrWaitIndicator,
    ask_for_confirmation,
    print_error,
    print_text_or_json,
    print_to_stderr,
)
from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.conversations.conversation_data_types import ConversationInfo
    from kbtui.conversations.session_archive import KeptSession
    from kbtui.library import Library


def declare_keep_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    text = "the conversations to keep, or an action: ls (list the copies), check [ID…] (verify copies) or rm ID… (delete copies)"
    add("names", metavar="REF", nargs="*", help=text)
    text = "only conversations with this agent: claude-code, codex, gemini-cli (repeatable, or comma-separated)"
    add("--agent", dest="agents", action="append", metavar="AGENT", help=text)
    text = "only conversations with this label (repeatable; all labels must match)"
    add("--label", dest="labels", action="append", metavar="KEY[=VALUE]", help=text)
    add("--title", metavar="TEXT", help="only titles that contain TEXT")
    text = "keep all conversations of this workspace that can be kept"
    add("--all", action="store_true", help=text)
    add("--yes", "-y", action="store_true", help="with rm, do not ask for confirmation")
    add("--json", action="store_true", help="print one JSON document")


def run_keep_command(args: Namespace) -> int:
    """Keep copies of sessions, so that you can still read the sessions after their agent has deleted them.

    kbtui keep claude-258c7280           copy a session and its subagents into the archive
    kbtui keep --agent claude-code       copy all sessions of an agent in this workspace
    kbtui keep ls                        list the kept sessions of all workspaces
    kbtui keep check                     read all copies and compare their checksums
    kbtui keep rm claude-258c7280        delete a copy

    If a session has grown, a new copy replaces the earlier one. The agent's own files are never changed.
    """
    action, *ids = args.names or [""]
    if action == "ls":
        return _print_kept_sessions(args, ids)
    if action == "check":
        return _check_kept_session_copies_for_damage(args, ids)
    if action == "rm":
        return _delete_kept_sessions(args, ids)
    from kbtui.library import open_workspace

    with open_workspace(args.workspace) as library:
        return _keep_selected_sessions(library, args)


def _keep_selected_sessions(library: Library, args: Namespace) -> int:
    from kbtui.conversations.session_archive import keep_copy_of_conversation

    if args.names and (args.agents or args.labels or args.title or args.all):
        raise UsageError("write either references or options that select conversations")
    counts = dict[str, int]()
    rows, failed = [], 0
    with StderrWaitIndicator("keeping sessions"):
        for info in _select_conversations_and_subagents_to_keep(library, args):
            try:
                outcome = keep_copy_of_conversation(library.workspace, info, verified=True)
            except KbtuiError as error:
                print_error(error)
                failed += 1
                continue
            counts[outcome] = counts.get(outcome, 0) + 1
            rows.append({"id": info.id, "outcome": outcome})
            if outcome == "shrunk":
                print_to_stderr(
                    f"{info.id}: not copied, because the file is smaller than the kept copy; "
                    f"to replace the copy, run `kbtui keep rm {info.id}` first"
                )
    text = ", ".join(f"{count:,} {_OUTCOMES[name]}" for name, count in counts.items())
    print_text_or_json(f"{text or 'nothing kept'}\n", {"sessions": rows}, args.json)
    return 3 if failed else 0 if rows else 1


_OUTCOMES: dict[str, str] = {
    "kept": "kept",
    "replaced": "kept again after a change",
    "unchanged": "already kept",
    "shrunk": "not kept",
}


def _select_conversations_and_subagents_to_keep(
    library: Library, args: Namespace
) -> list[ConversationInfo]:
    """Return the conversations that `args` selects, and the conversations of their subagents."""
    from kbtui.conversations.conversation_repository import (
        find_agent_names_with_prefixes,
        find_conversation,
        get_conversation_format,
        list_conversation_and_subagents_to_keep,
        list_conversations,
        parse_entered_reference,
    )

    workspace = library.workspace
    if args.names:
        found: dict[str, ConversationInfo] = {}
        for name in args.names:
            ref = parse_entered_reference(workspace, name)
            if ref.conversation is None:
                raise UsageError("this does not name a conversation", where=name)
            info = find_conversation(workspace, ref.conversation, counts=False)
            found |= {
                one.id: one for one in list_conversation_and_subagents_to_keep(workspace, info)
            }
        return list(found.values())
    agents = split_values_at_commas(args.agents)
    if not (agents or args.labels or args.title or args.all):
        hint = "`kbtui keep ls` lists the kept sessions"
        raise UsageError(
            "name a conversation, or add --agent, --label, --title or --all", hint=hint
        )
    names = find_agent_names_with_prefixes(agents) if agents else None
    infos = [
        info
        for info in list_conversations(workspace, counts=False)
        if get_conversation_format(info).has_file_per_conversation
        and (names is None or info.agent in names)
    ]
    title = (args.title or "").casefold()
    chosen = {
        info.id
        for info in infos
        if title in (info.title or "").casefold() and all(map(info.has_label, args.labels or ()))
    }
    if not chosen:
        raise NothingFound("no matching conversation can be kept")
    parents = {info.id: info.parent for info in infos}
    return [info for info in infos if _is_conversation_or_ancestor_chosen(info.id, chosen, parents)]


def _is_conversation_or_ancestor_chosen(
    id_: str, chosen: set[str], parents: dict[str, str | None]
) -> bool:
    """Return whether a conversation or one of its ancestors in `parents` is in `chosen`."""
    seen = set[str]()
    current: str | None = id_
    while current is not None and current not in seen:
        if current in chosen:
            return True
        seen.add(current)
        current = parents.get(current)
    return False


def _print_kept_sessions(args: Namespace, ids: list[str]) -> int:
    from kbtui.conversations.session_archive import (
        compute_session_archive_size_in_bytes,
        find_session_copy_damage,
        get_session_archive_directory,
        list_kept_sessions,
    )

    kept, damaged = list_kept_sessions()
    kept = _filter_kept_sessions_by_options(kept, args, ids)
    shape = {
        "directory": str(get_session_archive_directory()),
        "bytes": compute_session_archive_size_in_bytes(),
        "sessions": [_make_json_of_kept_session_copy(one) for one in kept],
        "damaged": [{"path": str(one.path), "reason": one.reason} for one in damaged],
    }
    lines = []
    for one in kept:
        state = "only the copy is left" if one.is_original_missing else "the original still exists"
        if damage := find_session_copy_damage(one, verified=False):
            state += f"; {damage.reason}"
        title = sanitize_to_one_line(one.title or "Untitled")
        lines.append(f"{one.id}  {title}  ({one.kept_size:,} of {one.size:,} bytes; {state})\n")
    print_text_or_json("".join(lines), shape, args.json)
    for bad in damaged:
        print_to_stderr(f"{bad.path}: skipped: {bad.reason}")
    if not args.json:
        count = format_counted_noun(len(kept), "kept session")
        print_to_stderr(
            f"{count}; the archive takes {compute_session_archive_size_in_bytes():,} bytes on disk"
        )
    return 0 if kept else 1


def _make_json_of_kept_session_copy(session: KeptSession) -> dict[str, str | int | bool | None]:
    from kbtui.dates import format_unix_time_as_iso

    return {
        "id": session.id,
        "agent": session.agent,
        "title": session.title,
        "kept_from": session.original,
        "is_original_missing": session.is_original_missing,
        "path": str(session.path),
        "size": session.size,
        "kept_size": session.kept_size,
        "kept_at": format_unix_time_as_iso(session.kept_at),
        "working_directory": session.working_directory,
        "parent_id": session.parent,
    }


def _filter_kept_sessions_by_options(
    kept: list[KeptSession], args: Namespace, ids: list[str]
) -> list[KeptSession]:
    agents = split_values_at_commas(args.agents) or []
    title = (args.title or "").casefold()
    return [
        one
        for one in kept
        if (not ids or any(one.id.startswith(begun) for begun in ids))
        and (not agents or any(one.agent.startswith(begun) for begun in agents))
        and title in (one.title or "").casefold()
        and all(one.has_label(label) for label in args.labels or ())
    ]


def _check_kept_session_copies_for_damage(args: Namespace, ids: list[str]) -> int:
    from kbtui.conversations.session_archive import find_session_copy_damage, list_kept_sessions

    kept, damaged = list_kept_sessions()
    kept = _filter_kept_sessions_by_options(kept, args, ids)
    with StderrWaitIndicator("checking the kept sessions"):
        damaged += [damage for one in kept if (damage := find_session_copy_damage(one)) is not None]
    shape = {
        "checked": len(kept),
        "damaged": [{"id": one.id, "path": str(one.path), "reason": one.reason} for one in damaged],
    }
    lines = [f"{one.id or one.path}: {one.reason}\n" for one in damaged]
    lines.append(f"{format_counted_noun(len(kept), 'kept session')}, {len(damaged):,} damaged\n")
    print_text_or_json("".join(lines), shape, args.json)
    return 3 if damaged else 0


def _delete_kept_sessions(args: Namespace, names: list[str]) -> int:
    from urllib.parse import unquote

    from kbtui.conversations.session_archive import delete_kept_sessions, list_kept_sessions

    kept, damaged = list_kept_sessions()
    known = {one.id: one for one in kept}
    known_ids = {*known, *(unquote(one.path.stem) for one in damaged)}
    chosen: dict[str, None] = {}
    for name in names:
        begun = [name] if name in known_ids else [id_ for id_ in known_ids if id_.startswith(name)]
        # The ids of a session's subagents begin with the session's id.
        whole = {id_.partition("~")[0] for id_ in begun}
        if len(whole) > 1:
            raise UsageError(f"{len(whole)} kept sessions match", where=name)
        if not begun:
            hint = "`kbtui keep ls` lists the kept sessions"
            raise NothingFound("there is no kept copy of this session", where=name, hint=hint)
        chosen |= dict.fromkeys(begun)
    if not names:
        raise UsageError("an id is missing", where="rm", hint="write `kbtui keep rm ID`")
    parents = {one.id: one.parent for one in kept}
    ids = sorted(
        {
            *chosen,
            *(
                id_
                for id_ in known
                if _is_conversation_or_ancestor_chosen(id_, set(chosen), parents)
            ),
        }
    )
    lost = sum(id_ in known and known[id_].is_original_missing for id_ in ids)
    if lost and not args.yes:
        noun = format_counted_noun(
            lost,
            "session whose original no longer exists",
            "sessions whose originals no longer exist",
        )
        if not ask_for_confirmation(f"delete the kept {noun}?"):
            print_to_stderr("nothing was deleted")
            return 1
    freed = delete_kept_sessions(ids)
    text = f"deleted {format_counted_noun(len(ids), 'kept session')}, {freed:,} bytes freed\n"
    print_text_or_json(text, {"forgotten": ids, "bytes": freed}, args.json)
    return 0
