"""Write subject files: `new` makes one, `edit` opens one in $EDITOR, `rm` moves one to the trash.

`show` prints what the index has of an entry: its passages, status and citations.
"""

from __future__ import annotations

import sys
import time

from kbtui.cli.option_spec import SUPPRESS
from kbtui.cli.output import emit, emit_json, note
from kbtui.cli.progress import working
from kbtui.errors import KbtuiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from kbtui.citations.models import Citation
    from kbtui.knowledge.models import Subject
    from kbtui.library import Library

PREVIEW = 200


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui entry`; each action has its own."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="new|edit|rm|show")
    new = actions.add_parser("new", help="make a subject file and edit it")
    new.add_argument("--topic", metavar="ID", help="where it goes (default: the only topic)")
    new.add_argument("--title", metavar="TEXT", help="its title")
    new.add_argument("--type", default="note", metavar="T", help="note, rule, decision, … (note)")
    new.add_argument("--tags", default="", metavar="T,…", help="its tags")
    new.add_argument("--slug", metavar="S", help="its name (default: made of the title)")
    new.add_argument("--text", metavar="TEXT", help="its text, - for standard input; no editor")
    edit = actions.add_parser("edit", help="open it in $EDITOR; id and citations stay")
    remove = actions.add_parser("rm", help="move it to the trash, after asking")
    remove.add_argument("--yes", action="store_true", help="do not ask")
    remove.add_argument(
        "--permanently", action="store_true", help="delete it where there is no trash"
    )
    show = actions.add_parser("show", help="its passages, status and citations")
    show.add_argument(
        "--full", action="store_true", help=f"more than {PREVIEW} characters a passage"
    )
    for one in (edit, remove, show):
        one.add_argument("ref", metavar="REF", help="topic/slug" + (", jp-c…" * (one is show)))
    for one in (new, show):
        one.add_argument("--json", action="store_true", help="one JSON document")
    for one in (new, edit, remove, show):
        one.add_argument("-w", "--workspace", metavar="PATH", default=SUPPRESS)


def run(args: Namespace) -> int:
    """Do the action."""
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    action = {"new": _new, "edit": _edit, "rm": _remove, "show": _show}[args.action]
    return action(library, args)


# new


def _new(library: Library, args: Namespace) -> int:
    from dataclasses import replace

    from kbtui.index.ids import subject_id
    from kbtui.sources import authoring

    knowledge = library.knowledge()
    topic = authoring.choose_topic(knowledge, args.topic)
    draft = authoring.Draft(
        title=args.title or "",
        text=args.text or "",
        type=args.type,
        tags=tuple(part.strip() for part in args.tags.split(",") if part.strip()),
        slug=args.slug,
    )
    if args.text is None:
        found = authoring.edit_draft(knowledge, topic, draft)
        if found is None:
            note("nothing was written")
            return 1
    else:
        authoring.check_draft(knowledge, topic, draft)
        if args.text == "-":
            draft = replace(draft, text=sys.stdin.read())
        found = authoring.add(knowledge, topic, draft)
    ref = f"{topic.id}/{found.slug}"
    if args.json:
        entry = {"ref": ref, "id": subject_id(topic.id, found.slug), "path": str(found.path)}
        emit_json(entry)
    else:
        emit(f"{ref}\n")
    return 0


# edit


def _edit(library: Library, args: Namespace) -> int:
    from kbtui.sources import authoring

    subject = _subject(library, args.ref)
    source = authoring.source_of(library.subject_text(subject))
    if source:
        note(f"the source {source!r} fetched this; it leaves what you change alone from now on")
    changed = authoring.edit(subject)
    if not changed:
        note("nothing was changed")
        return 0
    problem = authoring.front_matter_problem(library.subject_text(subject))
    if problem:
        note(f"{subject.path}: the front matter counts for nothing: {problem}")
    emit(f"{subject.topic}/{subject.slug}\n")
    return 0


def _subject(library: Library, text: str) -> Subject:
    ref = library.resolve(text)
    if ref.kind != "subject":
        raise UsageError("only subjects are files of yours", where=text, hint="write topic/slug")
    return library.subject(ref)


# rm


def _remove(library: Library, args: Namespace) -> int:
    from kbtui.sources import authoring

    subject = _subject(library, args.ref)
    if not args.yes and not ask(f"move {subject.path} to the trash?"):
        note("nothing was removed")
        return 1
    try:
        authoring.trash(subject)
    except authoring.NoTrash as error:
        if not args.permanently and (
            args.yes or not ask(f"{error.message}; delete {subject.path} for good?")
        ):
            raise KbtuiError(
                f"nothing was removed: {error.message}",
                where=str(subject.path),
                hint="--permanently deletes it",
            ) from error
        authoring.delete(subject)
    return 0


def ask(question: str) -> bool:
    """A yes from the terminal; raises `UsageError` where there is none to ask."""
    from kbtui.text import one_line

    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on", hint="--yes answers yes")
    sys.stderr.write(f"{one_line(question, 'visualize')} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


# show


def _show(library: Library, args: Namespace) -> int:
    from kbtui.cli.entries import as_json
    from kbtui.errors import NothingFound
    from kbtui.index.entry_query import CITES_DAYS, DAY, chunks_of, entry_row
    from kbtui.index.ids import conversation_id, subject_id

    ref = library.resolve(args.ref)
    if ref.kind == "subject":
        subject = library.subject(ref)
        entry_id = subject_id(subject.topic, subject.slug)
    elif ref.kind == "conversation":
        entry_id = conversation_id(ref.conversation or 0)
    else:
        raise UsageError("is no entry", where=args.ref, hint="write topic/slug or jp-c…")
    with working("bringing the index up to date"):
        library.current()
    if library.index_state:
        note(library.index_state)
    reader = library.reader()
    row = entry_row(library.workspace, reader, entry_id, vectors=library.settings.model != "off")
    if row is None:
        raise NothingFound("the index does not have it", where=str(ref), hint="`kbtui index`")
    cites = [
        cite
        for cite in library.turns_citing(ref)
        if cite.timestamp is None or cite.timestamp.timestamp() > time.time() - CITES_DAYS * DAY
    ]
    facts = {
        **as_json(row),
        "source": _source(library, row.topic, row.slug),
        "chunk_list": [
            {**chunk, "text": chunk["text"] if args.full else chunk["text"][:PREVIEW]}
            for chunk in chunks_of(reader, entry_id)
        ],
        "citations_30d": [
            {
                "source": cite.source,
                "source_title": cite.source_title,
                "how": cite.how,
                "tool": cite.tool,
                "timestamp": _time(cite),
            }
            for cite in cites
        ],
    }
    library.close()
    if args.json:
        emit_json(facts)
    else:
        emit(_shown(facts, cites))
    return 0


def _source(library: Library, topic: str | None, slug: str | None) -> str | None:
    """The name of the source that fetched a subject; says when its front matter counts for nothing."""
    from kbtui.sources.authoring import front_matter_problem, source_of

    subject = library.knowledge().find(topic or "", slug or "")
    if subject is None:
        return None
    try:
        text = library.subject_text(subject)
    except KbtuiError:
        return None
    if problem := front_matter_problem(text):
        note(f"{subject.path}: the front matter counts for nothing: {problem}")
    return source_of(text)


def _time(cite: Citation) -> str | None:
    return cite.timestamp.isoformat() if cite.timestamp else None


def _shown(facts: dict[str, Any], cites: list[Citation]) -> str:
    from kbtui.citations.format import turn_line
    from kbtui.text import one_line

    lines = [
        f"{facts['ref']}  {one_line(facts['title'])}",
        f"{facts['type']}, {facts['status']}" + (f": {facts['error']}" if facts["error"] else ""),
        f"id {facts['id']}, created {facts['created_at']}, changed {facts['changed_at']}",
    ]
    if facts["tags"]:
        lines.append("tags " + ", ".join(map(one_line, facts["tags"])))
    if facts["source"] or facts["source_url"]:
        lines.append(f"from {facts['source'] or 'a source'}  {facts['source_url'] or ''}".rstrip())
    lines.append(f"\ncited in the last 30 days: {facts['cites_30d']}")
    lines += [f"  {turn_line(cite)}" for cite in cites]
    lines.append(f"\n{facts['chunks']} passage{'s' * (facts['chunks'] != 1)}")
    for chunk in facts["chunk_list"]:
        model = f", {chunk['model']}" if chunk["model"] else ""
        lines.append(f"  chunk:{chunk['chunk_id']}  {chunk['characters']} characters{model}")
        lines += [f"    {line}" for line in chunk["text"].split("\n")]
    return "\n".join(lines) + "\n"
