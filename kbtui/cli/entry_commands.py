"""The commands `entries`, `entry`, `show` and `cites`: list, change and print entries and citations."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace

from kbtui.cli.cli_output import (
    StderrWaitIndicator,
    ask_for_confirmation,
    decode_command_argument,
    print_json_result,
    print_result,
    print_text_or_json,
    print_through_pager,
    print_to_stderr,
    update_and_open_index,
)
from kbtui.cli.filter_options import add_filter_options, iterate_filters_from_options
from kbtui.cli.tui_start_commands import declare_open_command_arguments
from kbtui.cli.turn_mark_command import (
    format_turn_mark_lines,
    print_notice_of_unreadable_turn_marks,
    warn_if_marks_cannot_be_read,
)
from kbtui.dates import DAY_SECONDS, format_unix_time_as_iso
from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.knowledge.front_matter import split_front_matter
from kbtui.search.filter_definitions import ENTRY_STATUSES
from kbtui.terminal_text import (
    cut_to_width,
    format_counted_noun,
    format_parent_title_suffix,
    measure_text_width,
    sanitize,
    sanitize_to_one_line,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from kbtui.citations.citation_formatting_and_markdown_export import CitedTextDifference
    from kbtui.citations.tool_call_citations import Citation
    from kbtui.cli.argument_parser_base_class import CliArgumentParser
    from kbtui.index.catalog_query import EntryChunkJson, EntryListRow, EntryPage
    from kbtui.knowledge.front_matter import FrontMatterAndBody
    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.library import Library
    from kbtui.library.subject_text_versions import SubjectVersion
    from kbtui.references import Ref
    from kbtui.userdata.turn_mark_lookup import MarksOfTurns

_COLUMN_HEADINGS = (
    "cited 30d",
    "status",
    "type",
    "passages",
    "size",
    "changed",
    "entry",
    "title",
    "tags",
)
_RIGHT_ALIGNED = {0, 3, 4}


def declare_entries_command_arguments(parser: CliArgumentParser) -> None:
    from kbtui.index.catalog_query import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE

    add = parser.add_argument
    add(
        "query",
        nargs="*",
        metavar="QUERY",
        help="words to find in titles and texts; the query can also contain filters",
    )
    add_filter_options(parser, "entries")
    add("--hidden", action="store_true", help="include hidden subjects")
    add("--archived", action="store_true", help="include archived conversations")
    text = f"page size, 1 to {MAX_PAGE_SIZE} (default: {DEFAULT_PAGE_SIZE})"
    add("--limit", type=int, default=DEFAULT_PAGE_SIZE, metavar="N", help=text)
    add(
        "--cursor",
        metavar="C",
        help="list the next page; C is the cursor printed below the previous page; repeat all filters",
    )
    add("--json", action="store_true", help="print one JSON document")


def run_entries_command(args: Namespace) -> int:
    """List subjects and conversations, newest first, with type, status, size and citations.

    With QUERY, lists only entries whose title or text contains all words of QUERY; -word excludes
    entries that contain the word. The totals count all matching entries; --cursor lists the next page.
    """
    from kbtui.index.catalog_query import MAX_PAGE_SIZE, query_entry_page
    from kbtui.library import open_workspace
    from kbtui.search.query_parsing_and_filter_application import parse_entry_filter

    if not 1 <= args.limit <= MAX_PAGE_SIZE:
        raise UsageError(f"must be from 1 to {MAX_PAGE_SIZE}, not {args.limit}", where="--limit")
    options = {
        row.options[0]: values for row, values in iterate_filters_from_options(args, "entries")
    }
    query = decode_command_argument(" ".join(args.query))
    wanted = parse_entry_filter(query, options, hidden=args.hidden, archived=args.archived)
    library = open_workspace(args.workspace)
    page = query_entry_page(
        library.workspace,
        update_and_open_index(library),
        wanted,
        cursor=args.cursor,
        limit=args.limit,
        vectors=library.settings.model != "off",
    )
    library.close()
    if args.json:
        entries = [_serialize_entry(row) for row in page.entries]
        by_status = {status: page.by_status[status] for status in ENTRY_STATUSES}
        counts = {"total": page.total, "by_status": by_status, "by_type": page.by_type}
        print_json_result({**counts, "cursor": page.cursor, "entries": entries})
    else:
        _print_table_of_entries(page)
    return 0 if page.total else 1


def _serialize_entry(row: EntryListRow) -> dict[str, object]:
    """Return an entry in the documented JSON format."""
    facts = asdict(row)
    del facts["path"], facts["short_ref"]
    for name in ("created", "changed"):
        facts[f"{name}_at"] = format_unix_time_as_iso(facts.pop(name))
    return facts


def _print_table_of_entries(page: EntryPage) -> None:
    if not page.total:
        print_to_stderr("no entry matches")
        return
    print_result(_format_entry_table([_COLUMN_HEADINGS, *map(_format_entry_cells, page.entries)]))
    numbers = ((page.by_status[status], status) for status in ENTRY_STATUSES)
    counts = [f"{count} {status}" for count, status in numbers if count]
    kinds = [f"{count} {kind}" for kind, count in page.by_type.items()]
    entries = "entry" if page.total == 1 else "entries"
    print_to_stderr(
        f"{len(page.entries)} of {page.total} {entries}: {', '.join(counts)}; {', '.join(kinds)}"
    )
    if page.cursor:
        print_to_stderr(f"--cursor {page.cursor} lists the next page")


def _format_entry_cells(row: EntryListRow) -> tuple[str, ...]:
    return (
        str(row.cites_30d),
        row.status,
        sanitize_to_one_line(row.type),
        str(row.chunks),
        _format_entry_size(row.size),
        (format_unix_time_as_iso(row.changed) or "")[:10],
        sanitize_to_one_line(row.short_ref),
        cut_to_width(
            sanitize_to_one_line(row.title)
            + format_parent_title_suffix(row.parent_title, row.parent_id),
            60,
        ),
        cut_to_width(sanitize_to_one_line(", ".join(row.tags)), 40),
    )


def _format_entry_size(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:.1f} kB" if size < 1024**2 else f"{size / 1024**2:.1f} MB"


def _format_entry_table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(measure_text_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for at, (text, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - measure_text_width(text))
            cells.append(space + text if at in _RIGHT_ALIGNED else text + space)
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def declare_entry_command_arguments(parser: ArgumentParser) -> None:
    from kbtui.index.catalog_query import PREVIEW_CHARACTERS

    actions = parser.add_subparsers(
        dest="action", required=True, metavar="new|edit|rm|show|history"
    )
    new = actions.add_parser("new", help="create a subject file and edit it")
    text = "the subject's topic; optional if there is only one topic"
    new.add_argument("--topic", metavar="ID", help=text)
    new.add_argument("--title", metavar="TEXT", help="the title")
    new.add_argument("--type", default="note", metavar="T", help="the type (default: note)")
    new.add_argument("--tags", default="", metavar="T,…", help="the tags")
    new.add_argument("--slug", metavar="S", help="the slug (default: generated from the title)")
    text = "the text, or - to read it from standard input; no editor opens"
    new.add_argument("--text", metavar="TEXT", help=text)
    edit = actions.add_parser(
        "edit", help="open a subject in $EDITOR; the subject keeps its id and citations"
    )
    remove = actions.add_parser("rm", help="ask for confirmation and move a subject to the trash")
    remove.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    text = "delete the file if there is no trash"
    remove.add_argument("--permanently", action="store_true", help=text)
    show = actions.add_parser("show", help="print an entry's passages, status and citations")
    text = f"print whole passages, not just {PREVIEW_CHARACTERS} characters of each"
    show.add_argument("--full", action="store_true", help=text)
    history = actions.add_parser("history", help="list the versions of a subject")
    text = "below each version, print its changes in the format of `diff -u`"
    history.add_argument("--diff", action="store_true", help=text)
    text = "print what changed between two versions; name each by its number, its abbreviated commit hash, or `now`"
    history.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help=text)
    for command in (edit, remove, show, history):
        text = "topic/slug, jp-c… or claude-…" if command is show else "topic/slug"
        command.add_argument("ref", metavar="REF", help=text)
    for command in (new, show, history):
        command.add_argument("--json", action="store_true", help="print one JSON document")


def run_entry_command(args: Namespace) -> int:
    """Edit subject files: `new` creates one, `edit` opens one in $EDITOR, `rm` moves one to the trash.

    `show` prints the passages, the status and the citations of an entry. `history` lists the
    versions of a subject, from Git and from conversations. For each version, it names the turns
    that used it.
    """
    from kbtui.library import open_workspace

    actions = {
        "new": _create_subject,
        "edit": _edit_subject,
        "rm": _move_subject_to_trash,
        "show": _print_entry_details,
        "history": _show_subject_history,
    }
    return actions[args.action](open_workspace(args.workspace), args)


def _create_subject(library: Library, args: Namespace) -> int:
    from kbtui.index.entry_and_chunk_data_types import make_subject_id
    from kbtui.knowledge import subject_editing

    knowledge = library.load_knowledge()
    topic = subject_editing.get_named_or_only_topic(knowledge, args.topic)
    draft = subject_editing.SubjectDraft(
        title=args.title or "",
        text=args.text or "",
        type=args.type,
        tags=tuple(tag.strip() for tag in re.split("[,;]", args.tags) if tag.strip()),
        slug=args.slug,
    )
    if args.text is None:
        found = subject_editing.edit_draft_and_add_subject(knowledge, topic, draft)
        if found is None:
            print_to_stderr("nothing was written")
            return 1
    else:
        subject_editing.choose_slug_for_draft(knowledge, topic, draft)
        text = sys.stdin.buffer.read() if args.text == "-" else os.fsencode(args.text)
        draft = replace(draft, text=_decode_new_subject_text(text))
        found = subject_editing.add_subject(knowledge, topic, draft)
    ref = f"{topic.id}/{found.slug}"
    facts = {"ref": ref, "id": make_subject_id(topic.id, found.slug), "path": str(found.path)}
    print_text_or_json(f"{ref}\n", facts, args.json)
    return 0


def _decode_new_subject_text(text: bytes) -> str:
    try:
        # Convert line breaks as Python does when it reads a text file.
        return text.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"the text is not UTF-8: byte 0x{text[error.start]:02x} in line {line}",
            where="--text",
            hint="convert it to UTF-8, for example with iconv; nothing was written",
        ) from error


def _edit_subject(library: Library, args: Namespace) -> int:
    from kbtui.knowledge import subject_editing

    subject = library.find_subject(_parse_subject_reference(library, args.ref))
    if source := split_front_matter(library.read_subject_text(subject)).fetching_source_name:
        print_to_stderr(
            f"the source {source!r} fetched this subject, but will not update it once you have edited it"
        )
    if not subject_editing.edit_subject_in_editor(subject):
        print_to_stderr("nothing changed")
        return 0
    _read_front_matter_with_warning(library, subject)
    print_result(f"{subject.ref}\n")
    return 0


def _read_front_matter_with_warning(library: Library, subject: Subject) -> FrontMatterAndBody:
    """Read the front matter of a subject. If it is invalid, print a warning."""
    text = split_front_matter(library.read_subject_text(subject))
    if text.problem:
        print_to_stderr(f"{subject.path}: the front matter is ignored: {text.problem}")
    return text


def _parse_subject_reference(library: Library, text: str) -> Ref:
    ref = library.parse_entered_reference(text)
    if ref.kind != "subject":
        raise UsageError("not a subject", where=text, hint="write topic/slug")
    return ref


def _move_subject_to_trash(library: Library, args: Namespace) -> int:
    from kbtui.knowledge import subject_editing

    subject = library.find_subject(_parse_subject_reference(library, args.ref))
    if not args.yes and not ask_for_confirmation(f"move {subject.path} to the trash?"):
        print_to_stderr("nothing was removed")
        return 1
    try:
        subject_editing.move_subject_to_trash(subject)
    except subject_editing.TrashUnavailableError as error:
        if not args.permanently and (
            args.yes
            or not ask_for_confirmation(f"{error.message}; delete {subject.path} permanently?")
        ):
            raise KbtuiError(
                f"nothing was removed: {error.message}",
                where=str(subject.path),
                hint="with --permanently, the file is deleted and not moved to the trash",
            ) from error
        subject_editing.delete_subject_permanently(subject)
    return 0


def _print_entry_details(library: Library, args: Namespace) -> int:
    from kbtui.index.catalog_query import (
        CITATION_DAYS,
        PREVIEW_CHARACTERS,
        get_entry_list_row,
        read_entry_chunks_as_json,
    )
    from kbtui.index.entry_and_chunk_data_types import make_subject_id

    ref = library.parse_entered_reference(args.ref)
    if ref.kind == "subject":
        subject = library.find_subject(ref)
        entry_id = make_subject_id(subject.topic, subject.slug)
    elif ref.kind == "conversation":
        entry_id = ref.conversation or ""
    else:
        raise UsageError("not an entry", where=args.ref, hint="write topic/slug, jp-c… or claude-…")
    reader = update_and_open_index(library)
    uses_model = library.settings.model != "off"
    row = get_entry_list_row(library.workspace, reader, entry_id, vectors=uses_model)
    if row is None:
        hint = "`kbtui index` brings the index up to date"
        raise NothingFound("not in the index", where=str(ref), hint=hint)
    since = time.time() - CITATION_DAYS * DAY_SECONDS
    cites = [
        cite
        for cite in library.find_citing_turns(ref)
        if cite.timestamp is None or cite.timestamp.timestamp() > since
    ]
    marks = library.find_all_marks_in_conversations_of_turns(cite.source for cite in cites)
    chunks = read_entry_chunks_as_json(reader, entry_id)
    for chunk in chunks if not args.full else ():
        chunk["text"] = chunk["text"][:PREVIEW_CHARACTERS]
    source = _find_source_name_of_subject(library, row)
    facts = {
        **_serialize_entry(row),
        "source": source,
        "chunk_list": chunks,
        "citations_30d": [
            {
                "source": cite.source,
                "source_title": cite.source_title,
                "how": cite.how,
                "tool": cite.tool,
                "timestamp": cite.timestamp.isoformat() if cite.timestamp else None,
                **marks.make_turn_marks_json_fields(cite.source),
            }
            for cite in cites
        ],
    }
    short_refs = reader.map_references_to_short_forms(cite.source for cite in cites)
    library.close()
    text = _format_entry_details(row, source, chunks, cites, short_refs, marks)
    print_text_or_json(text, facts, args.json)
    print_notice_of_unreadable_turn_marks(marks)
    return 0


def _show_subject_history(library: Library, args: Namespace) -> int:
    from kbtui.cli.blame_and_conversation_changes_commands import print_git_problem
    from kbtui.text_difference import format_unified_difference

    ref = _parse_subject_reference(library, args.ref)
    reader = update_and_open_index(library)
    history = library.read_subject_history(ref)
    versions = history.versions
    print_git_problem(library.workspace)
    if history.ref != ref:
        print_to_stderr(f"{ref} was renamed to {history.ref}; this is the history under both names")
        ref = history.ref
    if history.problem is not None:
        print_to_stderr(f"the current text of {ref} is not shown: {history.problem}")
    elif not versions[0].is_current:
        print_to_stderr(f"{ref} no longer exists; these are its earlier versions")
    if args.compare:
        return _compare_subject_versions(ref, versions, args)
    turns = [turn for version in versions for turn in version.given_to]
    short_refs = reader.map_references_to_short_forms(turns)
    marks = library.find_all_marks_in_conversations_of_turns(turns)
    library.close()
    names = [_format_subject_version(version) for version in versions]
    lines, facts = [], []
    for index, version in enumerate(versions):
        given = [short_refs.get(turn, turn) for turn in version.given_to]
        said = [version.author, version.summary] if version.commit else []
        number = f"{index + 1:>{len(str(len(versions)))}}"
        lines.append(
            "  ".join([number, names[index], *(sanitize_to_one_line(one or "") for one in said)])
        )
        lines.append("\n")
        lines += [f"  given to {', '.join(given)}\n"] if given else []
        for turn, name in zip(version.given_to, given, strict=True):
            lines.append(
                format_turn_mark_lines(marks.get_mark_labels_of_turn(turn), f"    {name}  ")
            )
        fact: dict[str, object] = {
            "number": index + 1,
            "time": format_unix_time_as_iso(version.time),
            "commit": version.commit,
            "author": version.author,
            "summary": version.summary,
            "is_current": version.is_current,
            "has_text": version.has_text,
            "given_to": list(version.given_to),
        }
        if marked := [
            {"ref": turn, **fields}
            for turn in version.given_to
            if (fields := marks.make_turn_marks_json_fields(turn))
        ]:
            fact["marked_turns"] = marked
        if args.diff and index + 1 < len(versions):
            older = versions[index + 1]
            difference = None
            if version.has_text and older.has_text:
                difference = format_unified_difference(
                    older.comparable_text, version.comparable_text, names[index + 1], names[index]
                )
            lines.append(sanitize(difference or ""))
            fact["difference"] = difference
        facts.append(fact)
    print_text_or_json("".join(lines), {"ref": str(ref), "versions": facts}, args.json)
    print_notice_of_unreadable_turn_marks(marks)
    return 0


def _compare_subject_versions(ref: Ref, versions: list[SubjectVersion], args: Namespace) -> int:
    """Print what changed between the two versions that the user named."""
    from kbtui.text_difference import format_unified_difference

    old, new = (_find_subject_version_by_number_or_commit(versions, name) for name in args.compare)
    if not (versions[old].has_text and versions[new].has_text):
        raise UsageError("a version cannot be compared if its text is not shown", where="--compare")
    difference = format_unified_difference(
        versions[old].comparable_text,
        versions[new].comparable_text,
        _format_subject_version(versions[old]),
        _format_subject_version(versions[new]),
    )
    facts = {"ref": str(ref), "old": old + 1, "new": new + 1, "difference": difference}
    print_text_or_json(sanitize(difference), facts, args.json)
    if not difference and not args.json:
        print_to_stderr("both versions have the same text")
    return 0


def _find_subject_version_by_number_or_commit(versions: list[SubjectVersion], name: str) -> int:
    """Return the index in `versions` of the version that the user named.

    `name` is the number of the version, its abbreviated commit hash, or `now` for the current text.
    """
    if name == "now" and versions[0].is_current:
        return 0
    if name.isdecimal() and 1 <= int(name) <= len(versions):
        return int(name) - 1
    found = [
        index
        for index, one in enumerate(versions)
        if len(name) >= 4 and one.commit and one.commit.startswith(name.lower())
    ]
    if len(found) != 1:
        hint = f"give a version by number (1 to {len(versions)}; 1 is the newest) or by commit"
        raise UsageError(f"there is no version {name!r}", where="--compare", hint=hint)
    return found[0]


def _format_subject_version(version: SubjectVersion) -> str:
    """Return the time of a version, followed by its commit or, without a commit, by its origin."""
    kind = version.commit[:8] if version.commit else "from a conversation"
    if version.is_current:
        kind = f"{version.commit[:8]} (now)" if version.commit else "now"
    if not version.has_text:
        kind += ", text not shown"
    time = (format_unix_time_as_iso(version.time) or "no date")[:16].replace("T", " ")
    return f"{time}  {kind}"


def _find_source_name_of_subject(library: Library, row: EntryListRow) -> str | None:
    """Return the name of the source that fetched a subject, or None."""
    subject = library.load_knowledge().find_subject(row.topic or "", row.slug or "")
    try:
        return (
            _read_front_matter_with_warning(library, subject).fetching_source_name
            if subject
            else None
        )
    except KbtuiError:
        return None


def _format_entry_details(
    row: EntryListRow,
    source: str | None,
    chunks: list[EntryChunkJson],
    cites: list[Citation],
    short_refs: dict[str, str],
    marks: MarksOfTurns,
) -> str:
    from kbtui.citations.citation_formatting_and_markdown_export import format_citing_turn

    created, changed = map(format_unix_time_as_iso, (row.created, row.changed))
    lines = [
        f"{row.ref}  {sanitize_to_one_line(row.title)}{format_parent_title_suffix(row.parent_title, row.parent_id)}",
        f"{row.type}, {row.status}" + (f": {row.error}" if row.error else ""),
        f"id {row.id}, created {created}, changed {changed}",
    ]
    if row.tags:
        lines.append("tags " + ", ".join(map(sanitize_to_one_line, row.tags)))
    if source or row.source_url:
        lines.append(f"source {source or '-'}  {row.source_url or ''}".rstrip())
    lines.append(f"\ncited in the last 30 days: {row.cites_30d}")
    for cite, mark_lines in zip(cites, _format_marks_of_citing_turns(cites, marks), strict=True):
        lines.append(f"  {format_citing_turn(cite, short_refs)}")
        lines += [f"  {line}" for line in mark_lines.splitlines()]
    lines.append(f"\n{format_counted_noun(row.chunks, 'passage')}")
    for chunk in chunks:
        model = f", {chunk['model']}" if chunk["model"] else ""
        size = format_counted_noun(chunk["characters"], "character")
        lines.append(f"  chunk:{chunk['chunk_id']}  {size}{model}")
        lines += [f"    {line}" for line in chunk["text"].split("\n")]
    return "\n".join(lines) + "\n"


declare_show_command_arguments = declare_open_command_arguments


def run_show_command(args: Namespace) -> int:
    """Print a topic, a subject or some of its lines, a conversation, a turn, a tool call or a passage."""
    from kbtui.library import open_workspace
    from kbtui.references import parse_conversation_ref

    library = open_workspace(args.workspace)
    text = library.read(args.ref)
    if sys.stdout.isatty():
        print_through_pager(sanitize(text).rstrip("\n") + "\n")
    else:
        print_result(text)
    with suppress(UsageError):
        parse_conversation_ref(args.ref)
        warn_if_marks_cannot_be_read(library)
    return 0


def declare_cites_command_arguments(parser: ArgumentParser) -> None:
    text = "topic/slug, jp-c…, claude-…:3, chunk:ID or a file's path"
    parser.add_argument("ref", metavar="REF", help=text)
    text = "below each changed subject, print the changes in the format of `diff -u`"
    parser.add_argument("--diff", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_cites_command(args: Namespace) -> int:
    """Show what a turn used, and which turns used a subject, a conversation, a passage or a file.

    Each line about a subject ends with a state: unchanged, changed since, no longer there, or may
    have changed (with the reason). The state says whether the subject still has the text that the
    turn used. --diff prints the difference.
    """
    from kbtui.citations.citation_formatting_and_markdown_export import (
        format_citing_turn,
        make_uses_and_used_by_json,
    )
    from kbtui.library import open_workspace

    with open_workspace(args.workspace) as library:
        reader = update_and_open_index(library)
        with StderrWaitIndicator("finding citations"):
            found = library.find_citations_of_and_by_target(decode_command_argument(args.ref))
        cites = [*found.uses, *found.used_by]
        differences = _compare_citations_with_current_texts(library, cites) if args.diff else None
        renamed = library.find_renamed_subject(found.ref) if found.gone else None
        marks = library.find_all_marks_in_conversations_of_turns(cite.source for cite in cites)
        named = [ref for cite in cites for ref in (cite.target, cite.source)]
        short_refs = reader.map_references_to_short_forms(named)
    if found.gone:
        later = f"; it was renamed to {renamed}" if renamed else ""
        print_to_stderr(f"{found.ref} cannot be opened: {found.gone}{later}")
    shown = {
        cite: sanitize(one.format_diff_with_remark()) for cite, one in (differences or {}).items()
    }
    lines = [
        f"{_format_citation(number, cite, short_refs)}{mark_lines}{shown.get(cite, '')}"
        for (number, cite), mark_lines in zip(
            enumerate(found.uses, 1), _format_marks_of_citing_turns(found.uses, marks), strict=True
        )
    ]
    lines += [
        f"cited by {format_citing_turn(cite, short_refs)}\n{mark_lines}{shown.get(cite, '')}"
        for cite, mark_lines in zip(
            found.used_by, _format_marks_of_citing_turns(found.used_by, marks), strict=True
        )
    ]
    facts = make_uses_and_used_by_json(
        found.ref, found.uses, found.used_by, differences, marks.make_turn_marks_json_fields
    )
    print_text_or_json("".join(lines), facts, args.json)
    print_notice_of_unreadable_turn_marks(marks)
    if not found.uses and not found.used_by:
        print_to_stderr(f"no citations to or from {found.ref}")
        return 1
    return 0


def _format_marks_of_citing_turns(cites: list[Citation], marks: MarksOfTurns) -> Iterator[str]:
    """For each citation, yield the marks of the citing turn as text, one mark on each line.

    Yields "" if an earlier citation has already shown the marks of this turn.
    """
    seen: set[str] = set()
    for cite in cites:
        yield (
            ""
            if cite.source in seen
            else format_turn_mark_lines(marks.get_mark_labels_of_turn(cite.source))
        )
        seen.add(cite.source)


def _compare_citations_with_current_texts(
    library: Library, cites: list[Citation]
) -> dict[Citation, CitedTextDifference]:
    """Map each citation of a changed or missing subject to what has changed since the turn used the subject."""
    from kbtui.citations.citation_formatting_and_markdown_export import (
        CitedTextDifference,
        format_difference_remark,
    )

    differences = {}
    for cite in cites:
        if cite.state in ("changed", "gone"):
            with suppress(KbtuiError):
                texts = library.read_given_and_current_text(cite)
                remark = format_difference_remark(
                    cite,
                    texts.given,
                    texts.now,
                    renamed_to=texts.renamed_to,
                    is_disabled=texts.is_disabled,
                )
                differences[cite] = CitedTextDifference(
                    texts.format_as_unified_difference(), remark
                )
    return differences


def _format_citation(number: int, cite: Citation, short_refs: dict[str, str]) -> str:
    from kbtui.citations.citation_formatting_and_markdown_export import format_citation_state

    state = format_citation_state(cite)
    is_named = cite.target in (cite.title, f"{cite.target.partition('/')[0]}/{cite.title}")
    title = "" if is_named else f"  {sanitize_to_one_line(cite.title)}"
    target, source = (short_refs.get(ref, ref) for ref in (cite.target, cite.source))
    rewound = ", rewound" if cite.rewound else ""
    return (
        f"[{number}] {sanitize_to_one_line(target)}{title}  ({cite.how}, {source}{rewound})"
        f"{f'  {state}' if state else ''}\n"
    )
