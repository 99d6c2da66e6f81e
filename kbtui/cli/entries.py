"""List entries, newest first: subjects and conversations with type, status, size and citations.

QUERY narrows to entries with all its words in title or text. Totals are of all
that the filters leave; a longer list goes on with --cursor.
"""

from __future__ import annotations

from kbtui.cli.output import emit, emit_json, note, valid
from kbtui.cli.progress import working

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from kbtui.index.entry_query import EntryFilter, EntryPage, EntryRow

_HEADINGS = ("cites 30d", "status", "type", "passages", "size", "changed", "entry", "title", "tags")
_RIGHT = {0, 3, 4}


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui entries` (decisions C, "dashboard pages")."""
    add = parser.add_argument
    add("query", nargs="*", metavar="QUERY", help="words in title or text")
    add("--type", dest="types", metavar="T,…", help="entry types, source kinds, conversation")
    add("--status", metavar="S,…", help="ready, pending, error")
    add("--topic", dest="topics", action="append", default=[], metavar="ID", help="only this topic")
    add("--from", dest="since", metavar="DATE", help="created on this day or time or later")
    add("--to", dest="until", metavar="DATE", help="created on this day or before")
    add("--hidden", action="store_true", help="hidden subjects too")
    add("--archived", action="store_true", help="archived conversations too")
    add("--limit", type=int, default=50, metavar="N", help="so many a page, 1 to 500 (50)")
    add("--cursor", metavar="C", help="go on where the last page of the same filter ended")
    add("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    """Print a page; 1 when the filters leave nothing."""
    from kbtui.errors import UsageError
    from kbtui.index.entry_query import list_entries
    from kbtui.library import open_workspace

    if not 1 <= args.limit <= 500:
        raise UsageError(f"it must be 1 to 500, not {args.limit}", where="--limit")
    wanted = _wanted(args)
    library = open_workspace(args.workspace)
    with working("bringing the index up to date"):
        library.current()
    page = list_entries(
        library.workspace,
        library.reader(),
        wanted,
        cursor=args.cursor,
        limit=args.limit,
        vectors=library.settings.model != "off",
    )
    if library.index_state:
        note(library.index_state)
    library.close()
    if args.json:
        emit_json(
            {
                "total": page.total,
                "by_status": page.by_status,
                "by_type": page.by_type,
                "cursor": page.cursor,
                "entries": [as_json(row) for row in page.entries],
            }
        )
    else:
        _print(page)
    return 0 if page.total else 1


def _wanted(args: Namespace) -> EntryFilter:
    from kbtui.index.entry_query import EntryFilter
    from kbtui.userdata.entry_filter import check_statuses, moment

    statuses = tuple(part for part in (args.status or "").split(",") if part)
    return EntryFilter(
        q=valid(" ".join(args.query)),
        types=tuple(part for part in (args.types or "").split(",") if part),
        statuses=check_statuses(statuses, "--status"),
        topics=tuple(args.topics),
        since=moment(args.since, "--from"),
        until=moment(args.until, "--to", ends=True),
        hidden=args.hidden,
        archived=args.archived,
    )


def as_json(row: EntryRow) -> dict[str, Any]:
    """The documented shape of an entry."""
    from kbtui.userdata.models import iso

    return {
        "id": row.id,
        "ref": row.ref,
        "kind": row.kind,
        "title": row.title,
        "type": row.type,
        "status": row.status,
        "error": row.error,
        "tags": row.tags,
        "topic": row.topic,
        "slug": row.slug,
        "created_at": iso(row.created),
        "changed_at": iso(row.changed),
        "chunks": row.chunks,
        "size": row.size,
        "cites_30d": row.cites_30d,
        "source_url": row.source_url,
        "hidden": row.hidden,
        "archived": row.archived,
    }


def _print(page: EntryPage) -> None:
    if not page.total:
        note("no entry passes these filters")
        return
    emit(_table([_HEADINGS, *map(_cells, page.entries)]))
    counts = [f"{count} {status}" for status, count in page.by_status.items() if count]
    kinds = [f"{count} {kind}" for kind, count in page.by_type.items()]
    entries = "entry" if page.total == 1 else "entries"
    note(f"{len(page.entries)} of {page.total} {entries}: {', '.join(counts)}; {', '.join(kinds)}")
    if page.cursor:
        note(f"more with --cursor {page.cursor}")


def _cells(row: EntryRow) -> tuple[str, ...]:
    from kbtui.text import cut, one_line
    from kbtui.userdata.models import iso

    return (
        str(row.cites_30d),
        row.status,
        one_line(row.type),
        str(row.chunks),
        _size(row.size),
        (iso(row.changed) or "")[:10],
        one_line(row.ref),
        cut(one_line(row.title), 60),
        cut(one_line(", ".join(row.tags)), 40),
    )


def _size(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:.1f} kB" if size < 1024**2 else f"{size / 1024**2:.1f} MB"


def _table(rows: list[tuple[str, ...]]) -> str:
    from kbtui.text import cells

    widths = [max(cells(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        padded = []
        for at, (text, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cells(text))
            padded.append(space + text if at in _RIGHT else text + space)
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines) + "\n"
