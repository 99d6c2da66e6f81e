"""A snapshot of what the library holds, taken in a thread and then only looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError

if TYPE_CHECKING:
    from kbtui.conversations.records import ConversationInfo
    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.records import Problem, Subject, Topic
    from kbtui.library import Library


@dataclass(frozen=True)
class Shelf:
    """One topic with its subjects and with what is wrong with it."""

    topic: Topic
    subjects: list[Subject]
    problems: list[Problem]

    @property
    def visible(self) -> int:
        """Subjects that are not hidden."""
        return sum(not subject.hidden for subject in self.subjects)


@dataclass(frozen=True)
class Contents:
    """Topics, conversations, and what could not be read of them."""

    shelves: list[Shelf] = field(default_factory=list)
    conversations: list[ConversationInfo] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    knowledge: Knowledge | None = None

    def subject(self, topic: str, slug: str) -> Subject | None:
        """The subject with this slug."""
        for shelf in self.shelves:
            if shelf.topic.id == topic:
                return next((found for found in shelf.subjects if found.slug == slug), None)
        return None

    def conversation(self, number: int) -> ConversationInfo | None:
        """The conversation with this id."""
        return next((info for info in self.conversations if info.id == number), None)


def read_contents(library: Library) -> Contents:
    """Read everything that the library lists; what fails becomes a line in `failures`."""
    failures: list[str] = []
    shelves: list[Shelf] = []
    problems: list[Problem] = []
    knowledge = None
    try:
        knowledge = library.knowledge()
        read = [(topic, knowledge.subjects(topic.id)) for topic in knowledge.topics.values()]
        for topic, subjects in read:
            own = [problem for problem in knowledge.problems if problem.topic == topic.id]
            shelves.append(Shelf(topic, subjects, own))
        known = set(knowledge.topics)
        problems = [problem for problem in knowledge.problems if problem.topic not in known]
    except (KbtuiError, OSError) as error:
        failures.append(f"topics: {error}")
    conversations: list[ConversationInfo] = []
    try:
        conversations = library.conversations()
    except (KbtuiError, OSError) as error:
        failures.append(f"conversations: {error}")
    return Contents(shelves, conversations, problems, failures, knowledge)
