"""Reads the subjects, conversations and passages to which references refer, and finds citations."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.library.index_and_engine_access import IndexAndEngineAccess
from kbtui.references import Ref, make_subject_ref
from kbtui.terminal_text import format_counted_noun, format_outdated_subjects_of_turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from kbtui.citations.cited_text_comparison import ComparableSubjectText
    from kbtui.citations.tool_call_citations import Citation, Citations, CitationTargetLookup
    from kbtui.conversations.conversation_data_types import Conversation, Turn
    from kbtui.index.entry_and_chunk_data_types import CatalogEntry
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.library.file_turn_history import FileTurnHistory


class ReferenceAndCitationReader(IndexAndEngineAccess):
    """Reads the targets of references, and finds citations."""

    def load_knowledge(
        self, cfg: Iterable[str] = (), knowledge: Iterable[str] = ()
    ) -> KnowledgeBase:
        """Load the topics and subjects, with the values of the options `--cfg` and `--knowledge` applied."""
        from kbtui.knowledge import load_knowledge

        # Apply names first, because assignments override them.
        return load_knowledge(
            self.workspace, sorted(cfg, key=lambda value: "=" in value), knowledge
        )

    def parse_entered_reference(self, text: str) -> Ref:
        """Parse a reference that a user typed; its topic can be an id or a title.

        A conversation's id can be shortened to a prefix. Text that is both a shortened id and the
        name of a topic is read as the topic.
        """
        from kbtui.conversations.conversation_repository import parse_entered_reference

        return parse_entered_reference(self.workspace, text)

    def resolve_reference(self, text: str) -> Ref:
        """Parse a reference, and check that its target exists.

        For `chunk:ID`, the result is a reference to the passage's lines, turn or call. Raises
        `NothingFound` if the target does not exist.
        """
        from kbtui.conversations import conversation_repository

        ref = self.parse_entered_reference(text)
        if ref.kind in ("topic", "subject"):
            self._check_topic_or_subject_exists(ref)
            return ref
        if ref.kind == "conversation":
            conversation_repository.find_conversation(self.workspace, ref.conversation or "")
            return ref
        reader = self.open_index_reader()
        found = reader.get_chunk_by_id(ref.chunk or "")
        entry = reader.get_entries_by_id({found[1]}).get(found[1]) if found else None
        if found is None or entry is None:
            raise NothingFound("this passage no longer exists", where=text)
        return entry.make_chunk_ref(found[0])

    def _check_topic_or_subject_exists(self, ref: Ref) -> None:
        """Raise `NothingFound` if the topic or subject is missing or disabled."""
        if ref.kind == "topic":
            self.load_knowledge().resolve_topic(ref.topic or "")
        else:
            self.find_subject(ref)

    def find_subject(self, ref: Ref) -> Subject:
        """Return the subject of a reference; raises `NothingFound` if it is missing or disabled."""
        knowledge = self.load_knowledge()
        try:
            topic = knowledge.resolve_topic(ref.topic or "")
        except NothingFound as error:
            similar = _suggest_similar_subject(knowledge, ref)
            brief = f"unknown topic {ref.topic!r}" if similar else error.brief
            raise NothingFound(error.message, hint=similar, brief=brief) from error
        found = knowledge.find_subject(topic.id, ref.slug or "")
        if found is not None and found.disabled:
            message = f"the subject {ref.slug!r} of the topic {topic.id!r} is disabled"
            raise NothingFound(
                message, hint="`disabled` in the topic's configuration lists this subject"
            )
        if found is None:
            hint = (
                _suggest_similar_subject(knowledge, ref) or f"`kbtui learn {topic.id}` lists them"
            )
            raise NothingFound(f"the topic {topic.id!r} has no subject {ref.slug!r}", hint=hint)
        return found

    def find_subject_of_file(self, path: str) -> Subject | None:
        """Return the subject stored in a file, even if it is disabled; None if the file is not a subject."""
        return self._make_citation_target_lookup({}).subjects_by_path.get(path)

    def read_subject_text(self, subject: Subject) -> str:
        """Read a subject's text; raises `KbtuiError` with the reason if it cannot be read."""
        from kbtui.knowledge import read_subject_text

        return read_subject_text(subject)

    def load_conversation(self, conversation: str) -> Conversation:
        """Load a whole conversation by its id; raises `NothingFound`."""
        from kbtui.conversations import conversation_repository

        return conversation_repository.load_conversation(
            conversation_repository.find_conversation(self.workspace, conversation)
        )

    def learn(self, topic: str, subjects: str | Iterable[str] = ()) -> str:
        """Return a topic's list of subjects, or the texts of some subjects, as the tool `learn` does.

        `topic` is an id or a title. `subjects` are slugs and globs; without them, the list is
        returned. Raises `NothingFound` if the tool reports an error, for example because there is
        no such topic.
        """
        wanted = subjects if isinstance(subjects, str) else list(subjects)
        learned = self.load_knowledge().learn(topic, wanted)
        if learned.is_error:
            raise NothingFound(learned.text)
        return learned.text

    def read(self, ref: str | Ref) -> str:
        """Return the text of a reference's target, as `kbtui show` prints it.

        Raises `UsageError` for an invalid reference, `NothingFound` for a missing target, and
        `IndexUnavailable` for a passage if there is no index.
        """
        target = self.parse_entered_reference(ref) if isinstance(ref, str) else ref
        if target.kind == "topic":
            return self.learn(target.topic or "")
        if target.kind == "subject":
            return self._read_text_of_subject_reference(target)
        if target.kind == "chunk":
            found = self.open_index_reader().get_chunk_by_id(target.chunk or "")
            if found is None:
                raise NothingFound("this passage no longer exists", where=str(target))
            return found[0].text
        return self._read_text_of_conversation_reference(target)

    def _read_text_of_subject_reference(self, ref: Ref) -> str:
        text = self.read_subject_text(self.find_subject(ref))
        if ref.lines is None:
            return text
        lines = text.removesuffix("\n").split("\n")
        first, last = ref.lines
        if first > len(lines):
            count = format_counted_noun(len(lines), "line")
            raise NothingFound(f"the subject has {count}", where=str(ref))
        return "\n".join(lines[first - 1 : last])

    def _read_text_of_conversation_reference(self, ref: Ref) -> str:
        # A search without an engine imports this module, and must not wait for `dataclasses`.
        from dataclasses import replace

        from kbtui.conversations.conversation_data_types import format_event_text
        from kbtui.userdata.turn_mark_store import MarkStore

        conversation = self.load_conversation(ref.conversation or "")
        turns = (
            conversation.turns
            if ref.turn is None
            else [_look_up_turn_by_reference(conversation, ref)]
        )
        marks = MarkStore(self.workspace).map_marks_by_turn(conversation)
        outdated = self.map_outdated_citations_by_turn(replace(conversation, turns=turns))
        parts = [] if ref.turn else [f"# {conversation.info.name}"]
        for turn in turns:
            if ref.call is None:
                parts.append(f"## Turn {turn.number}{' (rewound)' if turn.is_rewound else ''}")
                if cites := outdated.get(turn.number):
                    changes = format_outdated_subjects_of_turn(
                        (one.target, one.state) for one in cites
                    )
                    parts.append(f"{changes[0].upper()}{changes[1:]}")
            parts += [
                f"Mark: {mark.label_in_turn}"
                for mark in marks.by_turn.get(turn.number, ())
                if ref.call is None or mark.place is None or mark.place.call in (None, ref.call)
            ]
            for event in turn.events:
                if ref.call in (None, event.call):
                    who = event.author or event.kind.replace("_", " ")
                    if event.kind == "unknown":
                        who = f"unknown event: {event.name}"
                    if ref.call is not None and turn.is_rewound:
                        who += " (rewound)"
                    parts.append(f"### {who}\n\n{format_event_text(event)}")
        return "\n\n".join(parts)

    def blame(self, name: str, directory: str | None = None) -> FileTurnHistory:
        """Find the turns that changed or read a file, newest first.

        `name` is a path relative to `directory` or to the workspace, or else the reference of a subject. If
        it ends with a range of lines (`src/main.py:12-20`), find only the turns that wrote these lines.
        Raises the same errors as `find_turns_touching_file`.
        """
        from kbtui.library.file_turn_history import find_turns_touching_file_or_subject

        return find_turns_touching_file_or_subject(self.workspace, name, directory)

    def extract_citations_from_tool_calls(self, conversation: Conversation) -> list[Citation]:
        """Return the citations that a conversation makes, with the current titles of the cited entries and files."""
        from kbtui.citations.tool_call_citations import extract_citations_from_tool_calls
        from kbtui.conversations import conversation_repository

        titles = {
            info.id: info.name
            for info in conversation_repository.list_conversations(self.workspace, counts=False)
        }
        targets = self._make_citation_target_lookup(titles)
        known: dict[str, tuple[str, bool]] = {}
        found = []
        for cite in _add_citation_states(
            extract_citations_from_tool_calls(conversation, targets), targets
        ):
            if cite.target not in known:
                known[cite.target] = self._look_up_target_title_and_absence(cite, targets)
            title, gone = known[cite.target]
            source_title = conversation.info.name
            found.append(cite._replace(title=title, gone=gone, source_title=source_title))
        return found

    def map_outdated_citations_by_turn(
        self, conversation: Conversation
    ) -> dict[int, list[Citation]]:
        """Map the number of each outdated turn to its outdated citations, one for each subject.

        The citations do not include the subjects' current titles.
        """
        from kbtui.citations.tool_call_citations import (
            extract_citations_from_tool_calls,
            group_outdated_citations_by_turn,
        )

        events = chain.from_iterable(turn.events for turn in conversation.turns)
        if not any(event.kind == "tool_call_request" for event in events):
            return {}  # do not wait for the list of subjects
        targets = self._make_citation_target_lookup({})
        cites = extract_citations_from_tool_calls(conversation, targets)
        subjects = (cite for cite in cites if cite.kind == "subject")
        return group_outdated_citations_by_turn(_add_citation_states(subjects, targets))

    def _make_citation_target_lookup(self, titles: Mapping[str, str]) -> CitationTargetLookup:
        from kbtui.citations.tool_call_citations import CitationTargetLookup
        from kbtui.conversations.workspace_and_worktree_directories import (
            list_workspace_and_worktree_paths,
        )
        from kbtui.index.entry_and_chunk_data_types import make_subject_id

        directories = list_workspace_and_worktree_paths(self.workspace)
        return CitationTargetLookup(self.load_knowledge(), titles, make_subject_id, directories)

    def _look_up_target_title_and_absence(
        self, cite: Citation, targets: CitationTargetLookup
    ) -> tuple[str, bool]:
        """Return the title of a citation's target, and whether the target no longer exists."""
        if cite.kind == "file":
            return cite.title, _is_path_inside_workspace_but_missing(
                self.workspace.root, cite.target
            )
        if cite.kind == "subject" and not cite.gone:
            topic, _, slug = cite.target.partition("/")
            subject = targets.find_subject(topic, slug)
            if subject is not None:
                return _read_subject_title(subject), False
        return cite.title, cite.gone

    def find_citing_turns(self, target: Ref | str) -> list[Citation]:
        """Return all citations of `target` (a reference or the path of a file), newest first."""
        from kbtui.citations.cited_text_comparison import find_citation_state
        from kbtui.citations.tool_call_citations import Citation

        targets, chunk, gone = self._list_citation_names_of_target(target)
        reader = self.open_index_reader()
        rows = reader.find_citations_of_targets_or_chunk(targets, chunk)
        entries = reader.get_entries_by_id(
            {row[0] for row in rows} | {_get_target_entry_id(row[5]) for row in rows}
        )
        read_subject = cache(partial(make_lazy_cited_subject_text, self.load_knowledge()))
        states = [
            find_citation_state(row[11], row[12], read_subject(row[5]))
            if row[4] == "subject"
            else (None, None)
            for row in rows
        ]
        return [
            Citation(
                conversation=row[0], turn=row[1], call=row[2], how=row[3], kind=row[4], target=row[5],
                title=_get_entry_title(entries, _get_target_entry_id(row[5]), row[6]), tool=row[7],
                timestamp=datetime.fromtimestamp(row[8], UTC) if row[8] else None,
                gone=gone, chunk=row[9], score=row[10],
                source_title=_get_entry_title(entries, row[0], ""),
                rewound=row[0] in entries and row[1] in entries[row[0]].rewound,
                state=state, state_reason=reason,
            )
            for row, (state, reason) in zip(rows, states, strict=True)
        ]  # fmt: skip

    def _list_citation_names_of_target(
        self, target: Ref | str
    ) -> tuple[list[str], str | None, bool]:
        """Return a target's names in citations, its chunk id (or None), and whether the target is missing."""
        root = self.workspace.root
        if isinstance(target, str):
            names = [target, os.path.join(root, target)]  # noqa: PTH118
            return names, None, _is_path_inside_workspace_but_missing(root, target)
        if target.kind == "chunk":
            is_gone = self.open_index_reader().get_chunk_by_id(target.chunk or "") is None
            return [str(target)], target.chunk, is_gone
        if target.kind == "conversation":
            return [target.conversation or ""], None, False
        names = [f"{target.topic}/{target.slug}"]
        subject = self.load_knowledge().find_subject(target.topic or "", target.slug or "")
        if subject is not None and subject.path.is_relative_to(root):
            # Turns may have read the file before it became a subject, or under another path.
            names.append(str(subject.path.relative_to(root)))
        topic = self.load_knowledge().topics.get(target.topic or "")
        if subject is None and topic is not None:
            # Turns that read the file of a deleted subject cite only the file.
            names.append(os.path.normpath(os.path.join(topic.subjects, f"{target.slug}.md")))  # noqa: PTH118
        return names, None, subject is None

    def find_citations_of_and_by_target(self, name: str | Ref) -> Citations:
        """Find the turns that cite a target, and the citations that the target makes. Does not update the index."""
        from kbtui.citations.tool_call_citations import Citations

        target = self._parse_reference_or_path(name) if isinstance(name, str) else name
        if isinstance(target, Ref) and target.kind == "topic":
            hint = "name one of its subjects: topic/slug"
            raise UsageError(
                "a topic cannot be cited, only its subjects", where=str(name), hint=hint
            )
        used_by = self.find_citing_turns(target)
        try:
            return Citations(str(target), self._list_citations_made_by_target(target), used_by)
        except NothingFound as error:
            if not used_by:
                raise
            return Citations(str(target), [], used_by, gone=error.message)

    def _list_citations_made_by_target(self, target: Ref | str) -> list[Citation]:
        """Return the citations that a conversation, turn, call or passage makes; [] for other targets.

        Raises `NothingFound` if the target does not exist.
        """
        if isinstance(target, str):
            if _is_path_inside_workspace_but_missing(self.workspace.root, target):
                raise NothingFound("there is no such file", where=target)
            return []
        if target.kind == "subject":
            self.find_subject(target)
            return []
        if target.kind == "chunk":
            target = self.resolve_reference(str(target))
            if target.kind == "subject":
                return []
            target = target._replace(call=None)  # The passage may also belong to other calls.
        conversation = self.load_conversation(target.conversation or "")
        if target.turn is None:
            return self.extract_citations_from_tool_calls(conversation)
        # A search without an engine imports this module and must not wait for `dataclasses`.
        from dataclasses import replace

        turn = _look_up_turn_by_reference(conversation, target)
        if target.call is not None:
            turn = replace(turn, events=[one for one in turn.events if one.call == target.call])
        return self.extract_citations_from_tool_calls(replace(conversation, turns=[turn]))

    def _parse_reference_or_path(self, text: str) -> Ref | str:
        """Parse text that is either a reference or the path of a file.

        Text that is not a reference, or that refers to a missing topic or subject, is read as a path
        if possible.
        """
        ref = None
        try:
            ref = self.parse_entered_reference(text)
            if ref.kind in ("topic", "subject"):
                self._check_topic_or_subject_exists(ref)
            return ref
        except (UsageError, NothingFound) as error:
            if isinstance(error, NothingFound) and ref is None:
                raise  # the reference is to a conversation in another workspace
            if (path := self._find_cited_subject_or_file_by_path(text)) is not None:
                return path
            if ref is None or ref.kind == "topic":
                raise
            return ref

    def _find_cited_subject_or_file_by_path(self, text: str) -> Ref | str | None:
        """Return the citation target for a path, or None.

        For the path of a subject, return the subject's reference. For any other path, return the
        path itself if the file exists in the workspace or if a turn has read the file.
        """
        from pathlib import Path

        root = self.workspace.root
        targets = self._make_citation_target_lookup({})
        reader = self.open_index_reader()
        for base in (root, Path.cwd()):
            path = os.path.normpath(base / text.removeprefix("file://"))
            name = targets.make_path_relative_to_workspace(path)
            subject = targets.subjects_by_path.get(name)
            if subject is not None and not subject.disabled:
                return make_subject_ref(subject.topic, subject.slug)
            deleted = targets.find_reference_of_deleted_subject(name)
            if deleted is not None and reader.find_citations_of_targets_or_chunk([deleted]):
                topic, _, slug = deleted.partition("/")
                return make_subject_ref(topic, slug)
            if name != path and Path(path).is_file():
                return name
            # Only citations of files count, because the name may also be the reference of a missing
            # subject.
            if any(
                row[4] == "file" for row in reader.find_citations_of_targets_or_chunk([name, path])
            ):
                return name
        return None


def _look_up_turn_by_reference(conversation: Conversation, ref: Ref) -> Turn:
    """Return the turn of a reference; raises `NothingFound` if the turn or call does not exist."""
    from kbtui.conversations.conversation_repository import check_turn_and_call_exist

    check_turn_and_call_exist(conversation, ref)
    return conversation.turns[(ref.turn or 1) - 1]


def _add_citation_states(
    citations: Iterable[Citation], targets: CitationTargetLookup
) -> Iterator[Citation]:
    """Yield `citations`, with a state added to each citation of a subject."""
    from kbtui.citations.cited_text_comparison import find_citation_state

    read_subject = cache(partial(make_lazy_cited_subject_text, targets.knowledge))
    for cite in citations:
        if cite.kind != "subject":
            yield cite
            continue
        given = cite.given
        extent, stored = (
            (given.extent, given.make_hash_and_text_for_catalog()) if given else (None, None)
        )
        state, reason = find_citation_state(extent, stored, read_subject(cite.target))
        yield cite._replace(state=state, state_reason=reason)


def make_lazy_cited_subject_text(
    knowledge: KnowledgeBase, target: str
) -> ComparableSubjectText | None:
    """Return the text of a cited subject. The file is read only when the text is needed.

    Returns None if the subject no longer exists or is disabled.
    """
    from kbtui.citations.cited_text_comparison import ComparableSubjectText
    from kbtui.knowledge import read_subject_text

    topic, _, slug = target.partition("/")
    subject = knowledge.find_subject(topic, slug)
    if subject is None or subject.disabled or not knowledge.topics[topic].enable:
        return None
    return ComparableSubjectText(partial(read_subject_text, subject), subject.relative)


def _read_subject_title(subject: Subject) -> str:
    """Return the title in a subject's text; if there is none, return the last part of its slug."""
    from kbtui.knowledge import read_subject_text
    from kbtui.knowledge.front_matter import split_front_matter

    try:
        title = split_front_matter(read_subject_text(subject)).title
    except KbtuiError:
        title = None
    return title or subject.slug.rpartition("/")[2]


def _get_target_entry_id(target: str) -> str:
    """Return the entry id of a citation's `target`, a string such as `topic/slug` or `jp-c…`."""
    from kbtui.index.entry_and_chunk_data_types import make_subject_id

    topic, slash, slug = target.partition("/")
    return make_subject_id(topic, slug) if slash else target


def _get_entry_title(entries: dict[str, CatalogEntry], entry_id: str, default: str) -> str:
    entry = entries.get(entry_id)
    return entry.title if entry else default


def _is_path_inside_workspace_but_missing(root: Path, path: str) -> bool:
    """Return whether a file of the workspace is missing; false for a path outside the workspace."""
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


def _suggest_similar_subject(knowledge: KnowledgeBase, ref: Ref) -> str | None:
    """Return a hint that suggests the subject whose name is most similar to `ref`; None if there is none."""
    from difflib import get_close_matches

    known = [
        f"{topic.id}/{slug}"
        for topic in knowledge.topics.values()
        if topic.enable
        for slug in knowledge.list_subject_slugs(topic.id, ["**"])
    ]
    near = get_close_matches(f"{ref.topic}/{ref.slug}", known, n=1, cutoff=0.7)
    near += [name for name in known if name.endswith(f"/{ref.slug}")]
    return f"did you mean {near[0]}?" if near else None
