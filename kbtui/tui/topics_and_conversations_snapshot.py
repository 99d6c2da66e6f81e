"""A snapshot of the library: topics, subjects, conversations, and news since the last visit."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import shorten_conversation_ids, shorten_reference
from kbtui.workspace.paths import TOPICS_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kbtui.conversations.conversation_data_types import (
        ConversationInfo,
        ConversationToolsAndModels,
    )
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import KnowledgeProblem, Subject, Topic
    from kbtui.knowledge.knowledge_lint import LearnToolProblem
    from kbtui.library import Library


READ_SECONDS = 0.5
"""While kbtui reads details, it updates the lists each time it has read for this many seconds."""


class TopicWithSubjects(NamedTuple):
    """A topic with its subjects, and with the problems in its declaration and files."""

    topic: Topic
    subjects: list[Subject]
    problems: list[KnowledgeProblem]

    @property
    def visible_subject_count(self) -> int:
        """The number of subjects that are not hidden."""
        return sum(not subject.hidden for subject in self.subjects)


@dataclass(eq=False, repr=False)
class TopicsAndConversations:
    """All topics and conversations at one moment, and the problems with reading them.

    `problems` contains only the problems that belong to no topic. `topics_failure` is the reason why
    no topic could be read, or None. `conversations_failure` is the same for conversations.
    """

    listings: list[TopicWithSubjects] = field(default_factory=list)
    conversations: list[ConversationInfo] = field(default_factory=list)
    problems: list[KnowledgeProblem] = field(default_factory=list)
    topics_failure: str | None = None
    conversations_failure: str | None = None
    summaries: Mapping[str, ConversationToolsAndModels] = field(default_factory=dict)
    """The turns, models and tools of each conversation that has been read, by conversation id."""
    unread: int = 0
    """The number of conversations that are not in `summaries` yet."""
    unreadable: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Why each unreadable subject cannot be read, by topic and slug."""
    unchecked: int = 0
    """The number of subjects that kbtui has not tried to read yet."""
    is_jp_workspace: bool = True
    topics_file: str = ""
    """The path of the file that declares topics, relative to the workspace."""
    learn_tool_problem: LearnToolProblem | None = None
    """The problem with the installed definition of `learn` for JP, or None."""
    agents: Sequence[str] = ()
    """The names of the agents, except JP, whose conversations are listed."""

    @property
    def has_unread_details(self) -> bool:
        """Whether some details have not been read yet."""
        return bool(self.unread or self.unchecked)

    @property
    def subject_and_conversation_count(self) -> int:
        """The number of subjects and conversations."""
        return len(self.subjects) + len(self.conversations)

    @cached_property
    def part_conversations_by_parent(self) -> dict[str, list[ConversationInfo]]:
        """The parts of each conversation, by the id of the conversation.

        For example, the parts of a conversation include the conversations of its subagents.
        """
        parents = {info.id: info.parent for info in self.conversations}
        parts: dict[str, list[ConversationInfo]] = {}
        for info in self.conversations:
            if info.parent in parents and not _is_conversation_own_ancestor(info.id, parents):
                parts.setdefault(info.parent, []).append(info)
        return parts

    @property
    def main_conversations(self) -> list[ConversationInfo]:
        """The conversations that are not part of another conversation."""
        parts = {info.id for parts in self.part_conversations_by_parent.values() for info in parts}
        return [info for info in self.conversations if info.id not in parts]

    @cached_property
    def _short_conversation_ids(self) -> dict[str, str]:
        return shorten_conversation_ids(info.id for info in self.conversations)

    def shorten_reference(self, reference: str) -> str:
        """Return a reference whose conversation id is cut to its shortest unique prefix."""
        return shorten_reference(reference, self._short_conversation_ids)

    def map_titles_of_related_conversations(self, info: ConversationInfo) -> dict[str, str]:
        """Return the titles of the conversations that are related to `info`, by conversation id.

        The related conversations are its parent, its parts (for example the conversations of its
        subagents), and the other parts of its parent.
        """
        parent = self.find_conversation(info.parent) if info.parent is not None else None
        related = [parent] if parent else []
        for one in (info.id, info.parent or ""):
            related += self.part_conversations_by_parent.get(one, ())
        return {one.id: one.name for one in related}

    @property
    def has_several_agents(self) -> bool:
        """Whether there are conversations with more than one agent."""
        return len({info.agent for info in self.conversations}) > 1

    @property
    def subjects(self) -> list[Subject]:
        """All subjects of all topics."""
        return [subject for listing in self.listings for subject in listing.subjects]

    def count_turns_of_conversation(self, info: ConversationInfo) -> int:
        """Return the number of turns in a conversation, or -1 while the number is unknown."""
        summary = self.summaries.get(info.id)
        return summary.turns if summary else -1

    def find_subject(self, topic: str, slug: str) -> Subject | None:
        """Return the subject with the slug `slug` in a topic, or None."""
        found = (one for one in self.subjects if (one.topic, one.slug) == (topic, slug))
        return next(found, None)

    def find_conversation(self, conversation: str) -> ConversationInfo | None:
        """Return the conversation with the id `conversation`, or None."""
        return next((info for info in self.conversations if info.id == conversation), None)


def _is_conversation_own_ancestor(conversation: str, parents: Mapping[str, str | None]) -> bool:
    """Return whether a conversation is its own ancestor, which is possible if files are damaged.

    `parents` maps the id of a conversation to the id of its parent.
    """
    seen: set[str] = set()
    ancestor = parents[conversation]
    while ancestor is not None and ancestor != conversation and ancestor not in seen:
        seen.add(ancestor)
        ancestor = parents.get(ancestor)
    return ancestor == conversation


class TopicsAndConversationsReader:
    """Reads snapshots of the library: first the lists, then the details in small steps.

    The details are the summaries of conversations, and the reasons why subjects cannot be read. To
    find them, the reader reads each file, and reads it again only after the file has changed. Call
    the methods in a background thread, one at a time.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._summaries: dict[str, tuple[str, ConversationToolsAndModels]] = {}
        """The signature and summary of each conversation as last read, by conversation id."""
        self._infos: dict[str, ConversationInfo] = {}
        self._checked: dict[str, int] = {}
        """The stamp (see `_make_subject_file_stamp`) of each subject's file when it was last read, by path."""
        self._reasons: dict[str, str] = {}
        """Why each unreadable subject cannot be read, by the path of its file."""

    def read_library_snapshot(self) -> TopicsAndConversations:
        """Read the lists of topics, subjects and conversations.

        If a list cannot be read, the snapshot contains the reason.
        """
        topics_failure = conversations_failure = None
        learn_tool_problem: LearnToolProblem | None = None
        listings: list[TopicWithSubjects] = []
        problems: list[KnowledgeProblem] = []
        try:
            knowledge = self._library.load_knowledge()
            for topic in knowledge.topics.values():
                own = [problem for problem in knowledge.problems if problem.topic == topic.id]
                listings.append(TopicWithSubjects(topic, knowledge.list_subjects(topic.id), own))
            learn_tool_problem = self._find_learn_tool_problem(knowledge)
            problems = [one for one in knowledge.problems if one.topic not in knowledge.topics]
        except (KbtuiError, OSError) as error:
            topics_failure = str(error)
        conversations: list[ConversationInfo] = []
        agents: list[str] = []
        try:
            agents = self._library.list_enabled_agents_except_jp()
            conversations = self._library.list_conversations_without_counts(self._infos)
            self._infos = {info.id: info for info in conversations}
        except (KbtuiError, OSError) as error:
            conversations_failure = str(error)
        workspace = self._library.workspace
        snapshot = TopicsAndConversations(
            listings,
            conversations,
            problems,
            topics_failure,
            conversations_failure,
            is_jp_workspace=workspace.is_jp_workspace,
            topics_file=workspace.format_config_path(TOPICS_FILE),
            agents=agents,
            learn_tool_problem=learn_tool_problem,
        )
        return self._add_known_details(snapshot)

    def _find_learn_tool_problem(self, knowledge: KnowledgeBase) -> LearnToolProblem | None:
        root = self._library.workspace.root
        if not os.path.isdir(root / ".jp/mcp/tools"):  # noqa: PTH112  (never raises)
            return None  # No tools are installed, so the module is not needed.
        from kbtui.knowledge.knowledge_lint import find_installed_learn_tool_problem

        return find_installed_learn_tool_problem(root, knowledge)

    def read_more_snapshot_details(
        self, contents: TopicsAndConversations
    ) -> TopicsAndConversations:
        """Read more details for about `READ_SECONDS`. Return the snapshot with all details read so far."""
        end = monotonic() + READ_SECONDS
        self._read_changed_subjects_until_deadline(contents, end)
        for info in contents.conversations:
            if self._summaries.get(info.id, (None,))[0] != info.signature:
                summary = self._library.read_conversation_tools_and_models(info)
                self._summaries[info.id] = (info.signature, summary)
                if monotonic() > end:
                    break
        return self._add_known_details(contents)

    def _read_changed_subjects_until_deadline(
        self, contents: TopicsAndConversations, end: float
    ) -> None:
        """Read new and changed subjects until the time `end`, and record those that cannot be read."""
        for subject in contents.subjects:
            stamp = _make_subject_file_stamp(subject)
            if self._checked.get(subject.file) == stamp:
                continue
            self._checked[subject.file] = stamp
            self._reasons.pop(subject.file, None)
            try:
                self._library.read_subject_text(subject)
            except KbtuiError as error:
                self._reasons[subject.file] = error.message
            if monotonic() > end:
                return

    def _add_known_details(self, contents: TopicsAndConversations) -> TopicsAndConversations:
        """Return `contents` with all details read so far, except those of files that have changed since."""
        unreadable: dict[tuple[str, str], str] = {}
        unchecked = 0
        for subject in contents.subjects:
            if self._checked.get(subject.file) != _make_subject_file_stamp(subject):
                unchecked += 1
            elif self._reasons and (reason := self._reasons.get(subject.file)):
                unreadable[subject.topic, subject.slug] = reason
        summaries: dict[str, ConversationToolsAndModels] = {}
        infos: list[ConversationInfo] = []
        for info in contents.conversations:
            signature, summary = self._summaries.get(info.id, ("", None))
            if summary is not None and signature == info.signature:
                summaries[info.id] = summary
                if summary.problem:
                    info = replace(info, problem=summary.problem)
            infos.append(info)
        return replace(
            contents,
            conversations=infos,
            summaries=summaries,
            unread=len(infos) - len(summaries),
            unreadable=unreadable,
            unchecked=unchecked,
        )


def _make_subject_file_stamp(subject: Subject) -> int:
    """Return a number that changes when a subject's file changes."""
    return hash((subject.mtime_ns, subject.size, subject.inode))


STATE_NAME = "visit"
"""The name under which the last visit is stored in the user data."""
MAX_TURN_COUNTS = 2_000
"""If there are more conversations than this, turn counts are stored only for the latest ones."""
RUNNING_FOR = timedelta(minutes=2)
"""A conversation counts as being written now if its last event is at most this old."""


class LastVisit(NamedTuple):
    """The user's last visit: when it ended, and how many turns each conversation had then."""

    at: datetime
    turns: Mapping[str, int] = MappingProxyType({})

    def has_conversation_events_after_visit(self, info: ConversationInfo) -> bool:
        """Return whether a conversation has events that are later than the visit."""
        return info.last_activity_at > self.at

    def is_subject_newer_than_visit(self, subject: Subject) -> bool:
        """Return whether the file of a subject was written after the visit."""
        return subject.mtime_ns > self.at.timestamp() * 1e9


class NewsSinceVisit(NamedTuple):
    """The entries that are new or have changed since the last visit.

    In each list, the latest item comes first. `turns` says how many new turns a
    conversation has, by conversation id, if this is known.
    """

    conversations: list[ConversationInfo]
    turns: Mapping[str, int]
    subjects: list[Subject]


def find_news_since_visit(contents: TopicsAndConversations, visit: LastVisit) -> NewsSinceVisit:
    """Return the main conversations and visible subjects that are new or changed since the last visit."""
    found = [
        info
        for info in contents.main_conversations
        if visit.has_conversation_events_after_visit(info)
    ]
    found.sort(key=lambda info: info.last_activity_at, reverse=True)
    turns = {
        info.id: count - visit.turns[info.id]
        for info in found
        if info.id in visit.turns
        and (count := contents.count_turns_of_conversation(info)) > visit.turns[info.id]
    }
    subjects = [
        one
        for one in contents.subjects
        if not one.hidden and visit.is_subject_newer_than_visit(one)
    ]
    subjects.sort(key=lambda subject: subject.mtime_ns, reverse=True)
    return NewsSinceVisit(found, turns, subjects)


def list_running_conversations(
    contents: TopicsAndConversations, now: datetime
) -> list[ConversationInfo]:
    """Return the conversations that are being written now, the latest first."""
    found = [
        info
        for info in contents.main_conversations
        if info.last_event_at is not None and timedelta() <= now - info.last_event_at <= RUNNING_FOR
    ]
    return sorted(found, key=lambda info: info.last_activity_at, reverse=True)


def load_last_visit(library: Library) -> LastVisit | None:
    """Return the last visit, or None if no readable visit is stored."""
    from kbtui.userdata.user_data_store import UserData

    try:
        state = UserData(library.workspace).load_front_end_state(STATE_NAME)
        if not state:
            return None
        turns = {str(name): int(count) for name, count in state["turns"].items()}
        return LastVisit(datetime.fromtimestamp(float(state["at"]), UTC), turns)
    except (KbtuiError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def save_end_of_workspace_visit(
    library: Library, now: datetime, contents: TopicsAndConversations | None
) -> None:
    """Record that the user is leaving the workspace now. Errors are ignored."""
    from kbtui.userdata.user_data_store import UserData

    turns: dict[str, int] = {}
    if contents is not None:
        latest = sorted(contents.conversations, key=lambda one: one.last_activity_at, reverse=True)
        counts = (
            (info.id, contents.count_turns_of_conversation(info))
            for info in latest[:MAX_TURN_COUNTS]
        )
        turns = {name: count for name, count in counts if count >= 0}
    state = {"at": now.timestamp(), "turns": turns}
    with suppress(KbtuiError, OSError, ValueError):
        UserData(library.workspace).save_front_end_state(STATE_NAME, state)
