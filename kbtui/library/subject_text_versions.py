"""Finds the subject text that a turn was given, the subject's current text, and its earlier versions."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from kbtui.citations.cited_text_comparison import (
    ComparableSubjectText,
    derive_citation_state_from_texts,
    find_current_part_of_given_text,
    find_text_given_by_file_tool,
    normalize_text,
)
from kbtui.citations.files_read_by_tool_calls import list_files_read_by_call
from kbtui.errors import KbtuiError, NothingFound
from kbtui.knowledge.subject_files import BINARY_BYTES, explain_too_large_subject
from kbtui.library.reference_and_citation_reader import make_lazy_cited_subject_text
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import make_subject_ref
from kbtui.workspace.git_history import find_git_history

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from kbtui.citations.cited_text_comparison import GivenSubjectText
    from kbtui.citations.tool_call_citations import Citation, CitationKey
    from kbtui.conversations.conversation_data_types import Conversation
    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.library.reference_and_citation_reader import ReferenceAndCitationReader
    from kbtui.references import Ref
    from kbtui.workspace.git_history import GitHistory


class GivenAndCurrentSubjectText(NamedTuple):
    """The subject text that a turn was given, and the subject's current text (None if the subject no longer exists).

    Both texts lack the tags, code fences, line numbers and notes that tools add. If the turn was
    given only part of the subject, `now` is the corresponding part of the current text. If the
    subject was renamed, `renamed_to` is its new reference, and `now` is the text at that reference.
    If `is_disabled` is true, the subject still exists but is disabled, and `now` is None.
    """

    cite: Citation
    given: str
    now: str | None
    renamed_to: Ref | None = None
    is_disabled: bool = False

    def format_as_unified_difference(self) -> str:
        """Return the difference in the format of `diff -u`; "" if both texts are equal."""
        from kbtui.text_difference import format_unified_difference

        now_name = "/dev/null" if self.now is None else str(self.renamed_to or self.cite.target)
        given_name = f"{self.cite.target} (given to {self.cite.source})"
        return format_unified_difference(self.given, self.now or "", given_name, now_name)


class SubjectVersion(NamedTuple):
    """One version of a subject's text.

    * `commit`, `author` and `summary` are None for a version that is not from a commit: the current
      text, or a text from a conversation.
    * `time` is when the version was committed, changed or first given to a turn, in seconds since
      1970.
    * If `has_text` is false, the version is binary or too large, and `text` is empty.
    * `given_to` contains the references of the turns that were given this version, newest first.
    """

    text: str
    time: float | None
    commit: str | None = None
    author: str | None = None
    summary: str | None = None
    is_current: bool = False
    has_text: bool = True
    given_to: tuple[str, ...] = ()

    @property
    def comparable_text(self) -> str:
        """The text with LF line endings, and without byte order marks or leading and trailing white space."""
        return normalize_text(self.text)


class SubjectHistory(NamedTuple):
    """The versions that a subject had, newest first.

    `ref` is the current reference. It differs from the requested one if the subject was renamed.
    `problem` says why the current text cannot be read; it is None if the text can be read or does
    not exist.
    """

    ref: Ref
    versions: list[SubjectVersion]
    problem: str | None = None


def find_citation_by_key(reader: ReferenceAndCitationReader, key: CitationKey) -> Citation:
    """Return the citation with this key, extracted from its conversation. Raises `NothingFound`."""
    for cite in reader.extract_citations_from_tool_calls(
        reader.load_conversation(key.conversation)
    ):
        if cite.key == key:
            return cite
    raise NothingFound(f"the turn no longer cites {key.target}", where=key.conversation)


def read_given_and_current_text(
    reader: ReferenceAndCitationReader, cite: Citation
) -> GivenAndCurrentSubjectText:
    """Return the subject text that a citing turn was given, and the subject's current text.

    Raises `NothingFound` if the cited target is not a subject, if the turn no longer exists, or if
    the text that the turn was given is unknown. Raises `KbtuiError` if the subject cannot be read.
    """
    given = cite.given or find_citation_by_key(reader, cite.key).given
    if given is None:
        raise NothingFound("the text that the turn was given is unknown", where=cite.source)
    knowledge = reader.load_knowledge()
    subject, renamed = make_lazy_cited_subject_text(knowledge, cite.target), None
    if subject is None:
        topic, _, slug = cite.target.partition("/")
        if knowledge.find_subject(topic, slug) is not None:
            return GivenAndCurrentSubjectText(
                cite, given.text_without_code_fence, None, is_disabled=True
            )
        renamed = find_renamed_subject(reader, make_subject_ref(topic, slug))
        subject = renamed and make_lazy_cited_subject_text(knowledge, str(renamed))
    if subject is None:
        return GivenAndCurrentSubjectText(cite, given.text_without_code_fence, None)
    text = (
        normalize_text(given.text)
        if subject.is_returned_without_code_fence
        else given.text_without_code_fence
    )
    now = find_current_part_of_given_text(text, given.extent, subject.normalized_text)
    return GivenAndCurrentSubjectText(cite, text, now, renamed)


def read_subject_history(reader: ReferenceAndCitationReader, ref: Ref) -> SubjectHistory:
    """Return the versions of a subject, newest first, each with the turns that were given this version.

    Versions come from Git, if the subject is in a repository, and from conversations in which a
    turn was given the whole subject. A turn that was given only a part is listed with the newest
    version that contains this part and is not newer than the turn. If Git says that the subject was
    renamed, the result is the history of the renamed subject. If the subject no longer exists, none
    of the versions is current.

    Raises `NothingFound` if the subject is disabled, or if it is missing and has no known version.
    """
    try:
        subject = reader.find_subject(ref)
    except NothingFound:
        if not _may_subject_have_been_deleted(reader, ref):
            raise
        if (renamed := find_renamed_subject(reader, ref)) is not None:
            return read_subject_history(reader, renamed)
        versions, refs, relative = _list_committed_versions_of_deleted_subject(reader, ref)
        given = _add_given_versions(reader, [ref, *refs], versions, relative)
        if not given:
            raise
        return SubjectHistory(ref, given)
    versions, refs, problem = _list_current_and_committed_versions(reader, subject)
    versions = _add_given_versions(reader, [ref, *refs], versions, subject.relative)
    return SubjectHistory(ref, versions, problem)


def _may_subject_have_been_deleted(reader: ReferenceAndCitationReader, ref: Ref) -> bool:
    """Return whether a subject that was not found may have been deleted, rather than disabled."""
    knowledge = reader.load_knowledge()
    topic = knowledge.topics.get(ref.topic or "")
    is_disabled = topic is not None and not topic.enable
    return not is_disabled and knowledge.find_subject(ref.topic or "", ref.slug or "") is None


def _add_given_versions(
    reader: ReferenceAndCitationReader,
    refs: Iterable[Ref],
    versions: list[SubjectVersion],
    relative: str | None,
) -> list[SubjectVersion]:
    """Add the versions that only conversations contain, and return all versions.

    Each version lists the turns that were given this version. `refs` are all references that the
    subject has had. `relative` is the subject's path in its topic; None if unknown.
    """
    cites = _list_citations_of_subject_with_given_texts(reader, refs)
    history = _SubjectVersionCollector(versions, relative)
    oldest_first = reversed(cites)
    for cite in sorted(
        oldest_first, key=lambda one: one.timestamp.timestamp() if one.timestamp else 0.0
    ):
        if cite.given is not None:
            history.add_turn(cite.source, cite.given, cite.timestamp)
    return history.list_versions()


class _SubjectVersionCollector:
    """Collects the versions of a subject. Turns are added in chronological order.

    A text that is known only from turns becomes a version. If turns were given a text A,
    then a text B, and then A again, A becomes two versions.
    """

    def __init__(self, versions: list[SubjectVersion], relative: str | None) -> None:
        self._relative = relative
        self._versions = list(versions)
        self._texts = [ComparableSubjectText(one.text, relative or "") for one in versions]
        self._given: list[list[str]] = [[] for _ in versions]
        self._latest: int | None = None
        """The index of the version that the subject had just before the next turn."""
        self._commits = sorted(
            (one.time or 0.0, -index) for index, one in enumerate(versions) if one.commit
        )

    def add_turn(self, source: str, given: GivenSubjectText, timestamp: datetime | None) -> None:
        """Add a turn to the subject version that it was given.

        If no version matches, a turn that was given the whole text gets a new version, and a turn
        that was given only part of the text is ignored.
        """
        time = timestamp.timestamp() if timestamp else None
        while time is not None and self._commits and self._commits[0][0] <= time:
            self._latest = -self._commits.pop(0)[1]
        found = self._find_version_given_to_turn(given, time)
        if found is None:
            if given.extent != "whole":
                return
            text = self._get_given_text_without_additions(given)
            found = len(self._versions)
            self._versions.append(SubjectVersion(text, time))
            self._texts.append(ComparableSubjectText(text, self._relative or ""))
            self._given.append([])
        self._given[found].append(source)
        if time is not None and given.extent == "whole":
            self._latest = found

    def _find_version_given_to_turn(
        self, given: GivenSubjectText, time: float | None
    ) -> int | None:
        """Return the index of the version that a turn was given; None if no version matches.

        The version that the subject had just before the turn is tried first, then the committed
        versions. If the turn has no time, or was given only part of a text, all other versions are
        tried, too. If several versions match, the newest one that is not newer than the turn is
        chosen.
        """
        stored = given.make_hash_and_text_for_catalog()
        if self._latest is not None and self._does_version_match_given_text(
            self._latest, given, stored
        ):
            return self._latest
        takes_any = time is None or given.extent != "whole"
        matches = [
            index
            for index, one in enumerate(self._versions)
            if (takes_any or one.commit)
            and self._does_version_match_given_text(index, given, stored)
        ]
        earlier = [
            index
            for index in matches
            if time is None or (self._versions[index].time or 0.0) <= time
        ]
        return max(
            earlier or matches, key=lambda index: self._versions[index].time or 0.0, default=None
        )

    def _does_version_match_given_text(
        self, index: int, given: GivenSubjectText, stored: str
    ) -> bool:
        if not self._versions[index].has_text:
            return False
        state = derive_citation_state_from_texts(given.extent, stored, self._texts[index]).state
        if state != "changed":
            return True
        return (
            self._relative is None
            and self._get_given_text_without_additions(given) == self._texts[index].normalized_text
        )

    def _get_given_text_without_additions(self, given: GivenSubjectText) -> str:
        """Return the text that a turn was given, without additions of the tool `learn`."""
        is_prose = (
            self._relative is not None
            and ComparableSubjectText(given.text, self._relative).is_returned_without_code_fence
        )
        return normalize_text(given.text) if is_prose else given.text_without_code_fence

    def list_versions(self) -> list[SubjectVersion]:
        """Return the versions, newest first. The turns of each version are also sorted, newest first."""
        self._merge_latest_with_current_version()
        versions = [
            one._replace(given_to=tuple(dict.fromkeys(reversed(given))))
            for one, given in zip(self._versions, self._given, strict=True)
        ]
        versions.sort(key=lambda one: (one.is_current, one.time or 0.0), reverse=True)
        return versions

    def _merge_latest_with_current_version(self) -> None:
        """Merge the latest version into the current version if both texts are equal.

        A latest version that has a commit remains a separate version.
        """
        current = next((n for n, one in enumerate(self._versions) if one.is_current), None)
        latest = self._latest
        if current is None or latest is None or latest == current or self._commits:
            return
        kept = self._versions[latest]
        if (
            kept.commit
            or self._texts[latest].normalized_text != self._texts[current].normalized_text
        ):
            return
        times = [one for one in (kept.time, self._versions[current].time) if one is not None]
        self._versions[current] = self._versions[current]._replace(time=min(times))
        self._given[current][:0] = self._given[latest]
        for values in (self._versions, self._texts, self._given):
            del values[latest]


def find_renamed_subject(reader: ReferenceAndCitationReader, ref: Ref) -> Ref | None:
    """Return the new reference of a missing subject if Git shows that it was renamed; otherwise None."""
    history = find_git_history(str(reader.workspace.root))
    path = _find_committed_path_of_deleted_subject(reader, ref, history)
    later = (
        history.find_path_after_renames(path) if history is not None and path is not None else None
    )
    if history is None or later is None:
        return None
    subject = reader.find_subject_of_file(os.path.join(history.root, later))  # noqa: PTH118
    if subject is None or subject.disabled:
        return None
    return make_subject_ref(subject.topic, subject.slug)


def _list_current_and_committed_versions(
    reader: ReferenceAndCitationReader, subject: Subject
) -> tuple[list[SubjectVersion], list[Ref], str | None]:
    """Return a subject's versions, its earlier references, and why its current text cannot be read (None if it can)."""
    text, problem = "", None
    try:
        text = reader.read_subject_text(subject)
    except KbtuiError as error:
        problem = error.message
    versions: list[SubjectVersion] = []
    refs: list[Ref] = []
    is_committed = False
    history = find_git_history(str(reader.workspace.root))
    if history is not None and subject.path.is_relative_to(history.root):
        path = str(subject.path.relative_to(history.root))
        directory = path.removesuffix(subject.relative)
        committed = history.find_committed_path(path)
        versions, refs = _list_committed_versions(history, committed, directory, subject.topic)
        is_committed = problem is not None and history.is_current_file_text_committed(path)
    if problem is None and versions and versions[0].has_text:
        is_committed = (
            ComparableSubjectText(versions[0].text).normalized_text
            == ComparableSubjectText(text).normalized_text
        )
    if is_committed and versions:
        versions[0] = versions[0]._replace(is_current=True)
    else:
        time, has_text = subject.mtime_ns / 1e9, problem is None
        versions.insert(0, SubjectVersion(text, time, is_current=True, has_text=has_text))
    return versions, refs, problem


def _list_committed_versions_of_deleted_subject(
    reader: ReferenceAndCitationReader, ref: Ref
) -> tuple[list[SubjectVersion], list[Ref], str | None]:
    """Return a deleted subject's versions, its earlier references, and its path in the topic.

    If Git has no such file, both lists are empty, and the path is None.
    """
    history = find_git_history(str(reader.workspace.root))
    path = _find_committed_path_of_deleted_subject(reader, ref, history)
    if history is None or path is None:
        return [], [], None
    directory = _find_topic_directory_in_repository(reader, ref, history)
    versions, refs = _list_committed_versions(history, path, directory, ref.topic or "")
    return versions, refs, path.removeprefix(directory)


def _find_committed_path_of_deleted_subject(
    reader: ReferenceAndCitationReader, ref: Ref, history: GitHistory | None
) -> str | None:
    """Return the path that a missing subject had in the repository; None if Git has no such file."""
    if history is None or ref.topic not in reader.load_knowledge().topics:
        return None
    directory = _find_topic_directory_in_repository(reader, ref, history)
    for path in history.list_paths_in_any_commit(directory):
        folder, name = os.path.split(os.path.splitext(path.removeprefix(directory))[0])  # noqa: PTH122
        if os.path.join(folder, name.removeprefix(".")) == ref.slug:  # noqa: PTH118
            return path
    return None


def _find_topic_directory_in_repository(
    reader: ReferenceAndCitationReader, ref: Ref, history: GitHistory
) -> str:
    """Return the directory of the topic to which `ref` refers, relative to the repository, with a final slash."""
    subjects = reader.load_knowledge().topics[ref.topic or ""].subjects
    directory = os.path.relpath(
        os.path.join(str(reader.workspace.root), subjects),  # noqa: PTH118
        history.root,
    )
    return "" if directory == "." else f"{directory}/"


def _list_committed_versions(
    history: GitHistory, path: str, directory: str, topic: str
) -> tuple[list[SubjectVersion], list[Ref]]:
    """Return the committed versions of a file, and the references to its earlier names in the topic's directory."""
    versions: list[SubjectVersion] = []
    slugs: list[str] = []
    for one in history.list_file_commits(path):
        if one.path.startswith(directory):
            slugs.append(os.path.splitext(one.path.removeprefix(directory))[0])  # noqa: PTH122
        old = history.read_file(one.commit, one.path)
        if old is not None:
            has_text = "\0" not in old[:BINARY_BYTES] and not explain_too_large_subject(len(old))
            text = old if has_text else ""
            versions.append(
                SubjectVersion(
                    text, one.time, one.commit, one.author, one.summary, has_text=has_text
                )
            )
    return versions, [make_subject_ref(topic, slug) for slug in dict.fromkeys(slugs)]


def _list_citations_of_subject_with_given_texts(
    reader: ReferenceAndCitationReader, refs: Iterable[Ref]
) -> list[Citation]:
    """Return the citations of a subject under any of `refs`, with the texts that the turns were given."""
    found = [cite for ref in dict.fromkeys(refs) for cite in reader.find_citing_turns(ref)]
    given: dict[CitationKey, Citation] = {}
    by_conversation: dict[str, list[Citation]] = {}
    for cite in found:
        by_conversation.setdefault(cite.conversation, []).append(cite)
    for conversation_id, cites in by_conversation.items():
        with suppress(KbtuiError):
            conversation = reader.load_conversation(conversation_id)
            extracted = {
                cite.key: cite for cite in reader.extract_citations_from_tool_calls(conversation)
            }
            for cite in cites:
                own = extracted.get(cite.key)
                given[cite.key] = (
                    own
                    if own and own.given
                    else _add_text_read_by_call_to_citation(cite, conversation)
                )
    return [given[cite.key] for cite in found if cite.key in given]


def _add_text_read_by_call_to_citation(cite: Citation, conversation: Conversation) -> Citation:
    """Add to a citation the text that its call read, if the call read one file, which was a subject then.

    Otherwise, return the citation unchanged.
    """
    turn = conversation.find_turn(cite.turn)
    for event in turn.events if turn and cite.call is not None else ():
        is_cited = event.call == cite.call and event.kind == "tool_call_request"
        if is_cited and len(list_files_read_by_call(event)) == 1:
            return cite._replace(given=find_text_given_by_file_tool(event))
    return cite
