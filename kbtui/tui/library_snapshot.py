"""A snapshot of what the library holds, taken in a thread and then only looked at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from kbtui.errors import KbtuiError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from kbtui.conversations.models import ConversationInfo, ConversationSummary
    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.models import Problem, Subject, Topic
    from kbtui.library import Library


READ_SECONDS = 0.5
"""After reading for so long, lists that wait for it are shown what is known by then."""


def activity(info: ConversationInfo) -> datetime:
    """When something last happened in a conversation."""
    return info.last_event_at or info.created_at


def by_activity(info: ConversationInfo) -> tuple[float, float, str]:
    """The sort key that puts the latest activity first, and of equal ones the newest."""
    return (-activity(info).timestamp(), -info.created_at.timestamp(), info.id)


class TopicListing(NamedTuple):
    """One topic with its subjects and with what is wrong with it."""

    topic: Topic
    subjects: list[Subject]
    problems: list[Problem]

    @property
    def visible(self) -> int:
        """Subjects that are not hidden."""
        return sum(not subject.hidden for subject in self.subjects)


@dataclass(frozen=True)
class LibrarySnapshot:
    """Topics, conversations, and what could not be read of them."""

    listings: list[TopicListing] = field(default_factory=list)
    conversations: list[ConversationInfo] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    knowledge: Knowledge | None = None
    summaries: Mapping[str, ConversationSummary] = field(default_factory=dict)
    """What each conversation used, by id, as far as it was read."""
    unread: int = 0
    """Conversations whose events were not read yet."""

    def turns_of(self, info: ConversationInfo) -> int:
        """How many turns a conversation has, -1 while it is not known."""
        summary = self.summaries.get(info.id)
        return summary.turns if summary else -1

    def subject(self, topic: str, slug: str) -> Subject | None:
        """The subject with this slug."""
        for listing in self.listings:
            if listing.topic.id == topic:
                return next((found for found in listing.subjects if found.slug == slug), None)
        return None

    def conversation(self, conversation: str) -> ConversationInfo | None:
        """The conversation with this id."""
        return next((info for info in self.conversations if info.id == conversation), None)


class SnapshotReader:
    """Reads the lists: what is cheap at once, what takes reading every file afterwards.

    Its calls are made in threads, one at a time. What was read of a conversation is
    remembered until one of its files changes.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[str, tuple[str, ConversationSummary]] = {}
        self._infos: dict[str, ConversationInfo] = {}

    def read(self) -> LibrarySnapshot:
        """Everything that the library lists; what fails becomes a line in `failures`."""
        failures: list[str] = []
        listings: list[TopicListing] = []
        problems: list[Problem] = []
        knowledge = None
        try:
            knowledge = self._library.load_knowledge()
            read = [(topic, knowledge.subjects(topic.id)) for topic in knowledge.topics.values()]
            for topic, subjects in read:
                own = [problem for problem in knowledge.problems if problem.topic == topic.id]
                listings.append(TopicListing(topic, subjects, own))
            known = set(knowledge.topics)
            problems = [problem for problem in knowledge.problems if problem.topic not in known]
        except (KbtuiError, OSError) as error:
            failures.append(f"topics: {error}")
        conversations: list[ConversationInfo] = []
        try:
            conversations = self._library.list_conversations_quickly(self._infos)
            self._infos = {info.id: info for info in conversations}
        except (KbtuiError, OSError) as error:
            failures.append(f"conversations: {error}")
        return self._completed(
            LibrarySnapshot(listings, conversations, problems, failures, knowledge)
        )

    def read_summaries(
        self, contents: LibrarySnapshot, seconds: float = READ_SECONDS
    ) -> LibrarySnapshot:
        """The same with the traits of more conversations, as many as can be read in that time."""
        end = monotonic() + seconds
        for info in contents.conversations:
            held = self._known.get(info.id)
            if held is None or held[0] != info.signature:
                self._known[info.id] = (info.signature, self._library.summarize_conversation(info))
                if monotonic() > end:
                    break
        return self._completed(contents)

    def _completed(self, contents: LibrarySnapshot) -> LibrarySnapshot:
        """The contents with what is known of the conversations."""
        summaries: dict[str, ConversationSummary] = {}
        infos: list[ConversationInfo] = []
        for info in contents.conversations:
            held = self._known.get(info.id)
            if held is not None and held[0] == info.signature:
                summaries[info.id] = held[1]
                if held[1].problem and not info.problem:
                    info = replace(info, problem=held[1].problem)
            infos.append(info)
        unread = len(infos) - len(summaries)
        return replace(contents, conversations=infos, summaries=summaries, unread=unread)
