"""Both ends of citations, each target with its present title and whether it still exists."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kbtui.citations.extract import CitationTargets
from kbtui.citations.models import Citation, Citations
from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.index.models import make_subject_id
from kbtui.refs import Ref, subject_ref

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.conversations.models import Conversation
    from kbtui.index.models import Entry
    from kbtui.knowledge.models import Subject
    from kbtui.library.library import Library


def used_by_conversation(library: Library, conversation: Conversation) -> list[Citation]:
    """What each turn of a conversation used, from the conversation itself."""
    from kbtui.citations import extract_citations
    from kbtui.conversations.repository import list_conversations

    titles = {info.id: info.name for info in list_conversations(library.workspace, counts=False)}
    targets = CitationTargets(library.knowledge(), titles, make_subject_id)
    known: dict[str, tuple[str, bool]] = {}
    found = []
    for cite in extract_citations(conversation, targets, titles):
        if cite.target not in known:
            known[cite.target] = _state(library, cite, targets)
        title, gone = known[cite.target]
        found.append(replace(cite, title=title, gone=gone, source_title=conversation.info.name))
    return found


def _state(library: Library, cite: Citation, targets: CitationTargets) -> tuple[str, bool]:
    """The title of a citation's target, and whether it is gone."""
    if cite.kind == "file":
        return cite.title, _is_missing(library.workspace.root, cite.target)
    if cite.kind == "subject" and not cite.gone:
        topic, _, slug = cite.target.partition("/")
        subject = targets.find_subject(topic, slug)
        if subject is not None:
            return _title_of(subject), False
    return cite.title, cite.gone


def _title_of(subject: Subject) -> str:
    """What its entry is called: as its text says, else by its slug."""
    from kbtui.knowledge import read_subject_text
    from kbtui.knowledge.front_matter import split_front_matter

    try:
        title = split_front_matter(read_subject_text(subject)).title
    except KbtuiError:
        title = None
    return title or subject.slug.rpartition("/")[2]


def turns_using(library: Library, target: Ref | str) -> list[Citation]:
    """The turns that used what a reference names, or the file at a path; newest first."""
    targets, chunk, gone = _called(library, target)
    reader = library.reader()
    rows = reader.citing(targets, chunk)
    wanted = {row[0] for row in rows}
    for row in rows:
        wanted.add(_entry_id(row[5]))
    entries = reader.entries(wanted)
    return [
        Citation(
            conversation=row[0], turn=row[1], call=row[2], how=row[3], kind=row[4], target=row[5],
            title=_title(entries, _entry_id(row[5]), row[6]), tool=row[7],
            timestamp=datetime.fromtimestamp(row[8], UTC) if row[8] else None,
            gone=gone, chunk=row[9], score=row[10],
            source_title=_title(entries, row[0], ""),
        )
        for row in rows
    ]  # fmt: skip


def _entry_id(target: str) -> str:
    """The id of the entry that a citation calls `topic/slug` or `jp-c…`."""
    topic, slash, slug = target.partition("/")
    return make_subject_id(topic, slug) if slash else target


def _title(entries: dict[str, Entry], entry_id: str, otherwise: str) -> str:
    entry = entries.get(entry_id)
    return entry.title if entry else otherwise


def _called(library: Library, target: Ref | str) -> tuple[list[str], str | None, bool]:
    """What citations call a thing, the chunk that it is, and whether it is gone."""
    root = library.workspace.root
    if isinstance(target, str):
        return [target, os.path.join(root, target)], None, _is_missing(root, target)  # noqa: PTH118
    if target.kind == "chunk":
        return [str(target)], target.chunk, library.reader().chunk(target.chunk or "") is None
    if target.kind == "conversation":
        return [target.conversation or ""], None, False
    names = [f"{target.topic}/{target.slug}"]
    subject = library.knowledge().find(target.topic or "", target.slug or "")
    if subject is not None and subject.path.is_relative_to(root):
        # It was read as a file before it was a subject, or by another path.
        names.append(str(subject.path.relative_to(root)))
    return names, None, subject is None


def citations_of(library: Library, name: str | Ref) -> Citations:
    """Both ends for what a reference or a path names.

    Raises `UsageError` for a topic, and `NothingFound` for what neither exists nor was ever used.
    """
    target = _target(library, name) if isinstance(name, str) else name
    if isinstance(target, Ref) and target.kind == "topic":
        raise UsageError("is a topic", where=str(name), hint="name one of its subjects: topic/slug")
    used_by = turns_using(library, target)
    try:
        return Citations(str(target), _uses(library, target), used_by)
    except NothingFound as error:
        if not used_by:
            raise
        return Citations(str(target), [], used_by, gone=error.message)


def _uses(library: Library, target: Ref | str) -> list[Citation]:
    """What a conversation or a turn used; raises `NothingFound` for what does not exist."""
    if isinstance(target, str):
        if _is_missing(library.workspace.root, target):
            raise NothingFound("there is no such file", where=target)
        return []
    if target.kind == "subject":
        library.subject(target)
        return []
    if target.kind == "chunk":
        target = library.located(str(target))
        if target.kind == "subject":
            return []
    conversation = library.conversation(target.conversation or "")
    used = used_by_conversation(library, conversation)
    if target.turn is None:
        return used
    if conversation.turn(target.turn) is None:
        turns = len(conversation.turns)
        has = "1 turn" if turns == 1 else f"{turns} turns"
        raise NothingFound(f"the conversation has {has}", where=str(target))
    return [cite for cite in used if cite.turn == target.turn]


def _target(library: Library, text: str) -> Ref | str:
    """What a text names: a reference to something that exists, else a file, else the reference."""
    try:
        ref = library.resolve(text)
    except UsageError as error:
        if (path := _file(library, text)) is not None:
            return path
        raise error
    if ref.kind in ("chunk", "conversation"):
        return ref
    try:
        if ref.kind == "topic":
            return ref._replace(topic=library.knowledge().resolve_topic(ref.topic or "").id)
        return ref._replace(topic=library.subject(ref).topic)
    except NothingFound:
        if (path := _file(library, text)) is not None:
            return path
        if ref.kind == "topic":
            raise
        return ref


def _file(library: Library, text: str) -> Ref | str | None:
    """The subject or the other file at a path; None for one that neither exists nor was read."""
    from pathlib import Path

    root = library.workspace.root
    targets, reader = CitationTargets(library.knowledge(), {}), library.reader()
    for base in (root, Path.cwd()):
        path = os.path.normpath(base / text.removeprefix("file://"))
        name = os.path.relpath(path, root) if path.startswith(f"{root}/") else path
        subject = targets.find_file_subject(name)
        if subject is not None and not subject.disabled:
            return subject_ref(subject.topic, subject.slug)
        if name != path and Path(path).is_file():
            return name
        if reader.citing([name, path]):
            return name
    return None


def _is_missing(root: Path, path: str) -> bool:
    """Whether a file of the workspace does not exist; of others it is not looked at."""
    full = os.path.normpath(root / path)
    if not full.startswith(f"{root}/"):
        return False
    try:
        os.stat(full)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:
        return False
    return False
