"""The command `data`: exports the user's bookmarks, marks and other data, and imports such an export."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from kbtui.cli.cli_output import (
    StderrWaitIndicator,
    print_json_result,
    print_text_or_json,
    print_to_stderr,
)
from kbtui.errors import KbtuiError, UsageError
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable
    from typing import IO

    from kbtui.userdata.user_data_export_file import ExportedUserData, ExportOmission
    from kbtui.userdata.user_data_transfer import (
        ImportedRecordCounts,
        UserDataImportReport,
        WorkspaceUserDataImportReport,
    )
    from kbtui.workspace import Workspace

_NOUNS = {
    "bookmark": ("bookmark", "bookmarks"),
    "mark": ("mark", "marks"),
    "saved_search": ("saved search", "saved searches"),
    "approval": ("approval", "approvals"),
    "session": ("state of the TUI", "states of the TUI"),
    "search": ("logged search", "logged searches"),
    "kept_session": ("kept session", "kept sessions"),
}
_ORDER = list(_NOUNS)
MAX_CHECKED_REFERENCES = 200
"""In each workspace, at most this many imported references are looked up, because each look-up may read a file."""
MAX_NAMED_REFERENCES = 10
"""The message about a workspace lists at most this many missing references."""


def declare_data_command_arguments(parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True, metavar="export|import")
    export = commands.add_parser("export", help="write your data to a file")
    text = "the file to write; - writes to standard output"
    export.add_argument("file", metavar="FILE", help=text)
    text = "only this workspace (default: all workspaces that you have opened)"
    export.add_argument("--here", action="store_true", help=text)
    text = "also export the log of your searches, which is private"
    export.add_argument("--searches", action="store_true", help=text)
    text = "print what would be written, and write nothing"
    export.add_argument("--dry-run", action="store_true", help=text)
    imported = commands.add_parser("import", help="merge an exported file into your data")
    text = "the file to read; - reads standard input"
    imported.add_argument("file", metavar="FILE", help=text)
    text = "import the data of the workspace OLD into the workspace NEW (repeatable)"
    imported.add_argument("--map", action="append", default=[], metavar="OLD=NEW", help=text)
    text = "also import approvals: the approved sources may then run on this machine"
    imported.add_argument("--approvals", action="store_true", help=text)
    text = "also import the log of searches, if the file has one"
    imported.add_argument("--searches", action="store_true", help=text)
    text = "print what would change, and change nothing"
    imported.add_argument("--dry-run", action="store_true", help=text)
    for command, run in ((export, _export_user_data), (imported, _import_user_data)):
        command.set_defaults(run_action=run)
        command.add_argument("--json", action="store_true", help="print one JSON document")


def run_data_command(args: Namespace) -> int:
    """Move your bookmarks, marks, saved searches, approvals and kept sessions to another machine.

    kbtui data export mine.jsonl             write the data for all workspaces to a file
    kbtui data import mine.jsonl --dry-run   print what the file would change here
    kbtui data import mine.jsonl             merge the file: of two versions, the later one wins
    ssh laptop kbtui data export - | kbtui data import -

    Importing the same file again changes nothing. `guide/moving` explains the file and the rules for merging.
    """
    code: int = args.run_action(args)
    return code


def _export_user_data(args: Namespace) -> int:
    from kbtui.userdata.user_data_transfer import collect_user_data
    from kbtui.workspace import find_workspace, load_settings

    if not args.file:
        raise UsageError("the path is empty", where="FILE", hint="write `-` for standard output")
    if args.json and args.file == "-" and not args.dry_run:
        raise UsageError("cannot be combined with standard output", where="--json")
    workspace = find_workspace(args.workspace)
    with StderrWaitIndicator("reading"):
        data, left_out = collect_user_data(
            load_settings(), workspace, is_only_here=args.here, with_searches=args.searches
        )
    if args.dry_run:
        print_text_or_json(
            _describe_exported_user_data(data),
            _make_user_data_export_summary_json(data, left_out),
            args.json,
        )
    else:
        with StderrWaitIndicator("writing"):
            left_out += _write_user_data_export(workspace, args.file, data)
        if args.json:
            print_json_result(_make_user_data_export_summary_json(data, left_out))
        elif args.file != "-":
            print_to_stderr(f"wrote {args.file}")
    for one in left_out:
        print_to_stderr(f"left out: {one.what}: {one.reason}")
    return 3 if any(one.is_damaged for one in left_out) else 0


def _write_user_data_export(
    workspace: Workspace, target: str, data: ExportedUserData
) -> list[ExportOmission]:
    """Write the exported data to the file `target` (`-`: standard output), and return what was left out.

    An existing file is replaced only when the new one is complete.
    """
    from kbtui.userdata.user_data_export_file import write_user_data_file
    from kbtui.workspace.workspace import check_export_path_is_outside_jp_directories

    if target == "-":
        return write_user_data_file(sys.stdout.buffer, data)
    path = Path(target)
    check_export_path_is_outside_jp_directories(workspace, path)
    real = Path(os.path.realpath(path))
    try:
        if real.exists() and not real.is_file():
            with real.open("wb") as file:
                return write_user_data_file(file, data)
        staged = real.with_name(f".{real.name[:50]}.{os.urandom(4).hex()}.tmp")
        try:
            # Only the user may read the file, because it contains private texts.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(staged, flags, 0o600), "wb") as file:
                left_out = write_user_data_file(file, data)
                with suppress(FileNotFoundError):
                    staged.chmod(real.stat().st_mode & 0o777)
                os.fsync(file.fileno())
            staged.replace(real)
        finally:
            with suppress(OSError):
                staged.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise KbtuiError(f"the file cannot be written: {reason}", where=target) from error
    return left_out


def _describe_exported_user_data(data: ExportedUserData) -> str:
    lines = []
    for workspace in data.workspaces:
        counts = _count_user_data_records_by_kind(
            one.kind for one in workspace.records if one.value is not None
        )
        removed = sum(one.value is None for one in workspace.records)
        texts = [format_counted_noun(count, *_NOUNS[kind]) for kind, count in counts.items()]
        texts += [format_counted_noun(removed, "removal")] if removed else []
        root = sanitize_to_one_line(workspace.root)
        lines.append(f"{root}\n  {', '.join(texts) or 'no records'}\n")
    if data.kept:
        size = sum({one.file_name: one.kept_size for one in data.kept}.values())
        noun = format_counted_noun(len(data.kept), *_NOUNS["kept_session"])
        lines.append(f"{noun}, {size:,} bytes\n")
    return "".join(lines) or "nothing to export\n"


def _count_user_data_records_by_kind(kinds: Iterable[str]) -> dict[str, int]:
    counts = dict[str, int]()
    for kind in sorted(kinds, key=_ORDER.index):
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def _make_user_data_export_summary_json(
    data: ExportedUserData, left_out: list[ExportOmission]
) -> dict[str, object]:
    workspaces = [
        {
            "root": one.root,
            "records": _count_user_data_records_by_kind(
                r.kind for r in one.records if r.value is not None
            ),
            "removals": sum(r.value is None for r in one.records),
        }
        for one in sorted(data.workspaces, key=lambda one: one.root)
    ]
    return {
        "workspaces": workspaces,
        "kept_sessions": len(data.kept),
        "left_out": [{"what": one.what, "reason": one.reason} for one in left_out],
    }


def _import_user_data(args: Namespace) -> int:
    from kbtui.userdata.user_data_transfer import UserDataImportOptions, import_user_data
    from kbtui.workspace import find_workspace, load_settings

    workspace, settings = find_workspace(args.workspace), load_settings()
    options = UserDataImportOptions(
        args.approvals, args.searches and settings.query_log, args.dry_run
    )
    chosen = dict(map(_split_path_mapping, args.map))
    with _open_user_data_file_to_import(args.file) as source, StderrWaitIndicator("importing"):
        where = "standard input" if args.file == "-" else args.file
        report = import_user_data(source, where, settings, workspace, chosen, options)
    if not args.dry_run and (report.kept_sessions.added or report.kept_sessions.changed):
        _ask_running_engine_to_index_imported_sessions([one.root for one in report.workspaces])
    missing = {one.root: _find_imported_references_without_target(one) for one in report.workspaces}
    text = _describe_user_data_import(report, is_dry_run=args.dry_run)
    print_text_or_json(text, _make_user_data_import_json(report, missing), args.json)
    _report_user_data_import_omissions(
        report, missing, is_log_off=args.searches and not settings.query_log
    )
    return 1 if report.missing else 0


def _split_path_mapping(text: str) -> tuple[str, Path]:
    old, sign, new = text.partition("=")
    if not (old and sign and new):
        raise UsageError(f"{text!r} is not OLD=NEW", where="--map", hint="write two paths")
    return old.rstrip("/") or "/", Path(new).expanduser()


def _open_user_data_file_to_import(name: str) -> IO[bytes]:
    if name == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    try:
        return Path(name).open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot be read: {reason}", where=name) from error


def _ask_running_engine_to_index_imported_sessions(roots: list[str]) -> None:
    """Ask a running engine to index the imported sessions.

    Without this request, an engine that does not watch the archive yet would miss the sessions.
    """
    from kbtui.engine.engine_launcher import is_workspace_open_in_engine
    from kbtui.library import open_workspace

    for root in roots:
        with suppress(KbtuiError), open_workspace(root) as library:
            if is_workspace_open_in_engine(library.workspace):
                client = library.connect_engine(start=False)
                client.send_request("refresh", timeout=5.0, wait=0.0)
                client.close()


def _find_imported_references_without_target(imported: WorkspaceUserDataImportReport) -> list[str]:
    """Return the imported references whose subject or conversation does not exist here."""
    from kbtui.library import open_workspace

    missing = []
    references = sorted(set(imported.references))[:MAX_CHECKED_REFERENCES]
    with suppress(KbtuiError), open_workspace(imported.root) as library:
        for reference in references:
            if not reference.startswith("chunk:"):
                try:
                    library.resolve_reference(reference)
                except KbtuiError:
                    missing.append(reference)
    return missing


def _describe_user_data_import(report: UserDataImportReport, *, is_dry_run: bool) -> str:
    lines = []
    for one in report.workspaces:
        origin = [root for root in one.imported_from if root != one.root]
        note = f"  (in the file: {', '.join(origin)})" if origin else ""
        lines.append(sanitize_to_one_line(f"{one.root}{note}") + "\n")
        lines += [
            f"  {_NOUNS[kind][1]}: {text}\n"
            for kind, counts in sorted(one.counts.items(), key=lambda pair: _ORDER.index(pair[0]))
            if (text := _format_imported_record_counts(counts))
        ]
    if counts := _format_imported_record_counts(report.kept_sessions):
        lines.append(f"kept sessions: {counts}\n")
    if report.backup is not None:
        lines.append(
            f"backup of the data before the import: {sanitize_to_one_line(str(report.backup))}\n"
        )
    if is_dry_run:
        lines.append("nothing was changed, because of --dry-run\n")
    elif not report.has_changes:
        lines.append("nothing new\n")
    return "".join(lines)


def _format_imported_record_counts(counts: ImportedRecordCounts) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in vars(counts).items() if count)


def _make_user_data_import_json(
    report: UserDataImportReport, missing: dict[str, list[str]]
) -> dict[str, object]:
    workspaces = [
        {
            "root": one.root,
            "imported_from": one.imported_from,
            "records": {kind: vars(counts) for kind, counts in sorted(one.counts.items())},
            "missing_references": missing[one.root],
        }
        for one in report.workspaces
    ]
    return {
        "workspaces": workspaces,
        "left_out": [
            {
                "root": one.data.root,
                "records": len(one.data.records),
                "candidates": list(one.candidates),
            }
            for one in report.missing
        ],
        "kept_sessions": vars(report.kept_sessions),
        "backup": str(report.backup) if report.backup else None,
    }


def _report_user_data_import_omissions(
    report: UserDataImportReport, missing: dict[str, list[str]], *, is_log_off: bool
) -> None:
    for root, references in missing.items():
        if references:
            least = "at least " if len(references) == MAX_CHECKED_REFERENCES else ""
            noun = format_counted_noun(len(references), "reference names", "references name")
            names = ", ".join(references[:MAX_NAMED_REFERENCES])
            more = " …" if len(references) > MAX_NAMED_REFERENCES else ""
            print_to_stderr(
                f"{root}: {least}{noun} nothing that exists on this machine yet: {sanitize_to_one_line(names)}{more}"
            )
    skipped = sum(
        one.counts["approval"].skipped for one in report.workspaces if "approval" in one.counts
    )
    if skipped:
        noun = format_counted_noun(skipped, "approval of a source", "approvals of sources")
        print_to_stderr(f"{noun} skipped; --approvals imports them")
    if is_log_off:
        print_to_stderr("the log of searches was not imported, because query_log is false")
    for one in report.missing:
        noun = format_counted_noun(len(one.data.records), "record")
        root = sanitize_to_one_line(one.data.root)
        reason = "kbtui does not know this workspace on this machine"
        if one.candidates:
            reason = f"this workspace could be {sanitize_to_one_line(' or '.join(one.candidates))}"
        print_to_stderr(f"left out: {noun} of {root}: {reason}")
        hint = f"`--map {root}=DIRECTORY` imports these records into a workspace on this machine"
        print_to_stderr(hint, "  hint: ")
