"""What there is to cite: subjects by slug and by file, conversations by id."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kbtui.knowledge.models import Subject, Topic


class KnowledgeLike(Protocol):
    """The part of `kbtui.knowledge.Knowledge` that citations need."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Topics by id, in order of declaration."""

    def subjects(self, topic: str, /) -> Iterable[Subject]:
        """All subjects of a topic."""

    def find(self, topic: str, slug: str, /) -> Subject | None:
        """The subject with this slug."""


class CitationTargets:
    """Lookups over knowledge and titles, each made once: use one for many conversations.

    `titles` are those of the conversations that exist; `subject_id(topic, slug)`
    gives the entry ids that search results carry.
    """

    def __init__(
        self,
        knowledge: KnowledgeLike,
        titles: Mapping[str, str],
        subject_id: Callable[[str, str], str] | None = None,
    ) -> None:
        self.knowledge = knowledge
        self.titles = titles
        self._subject_id = subject_id
        self._subjects: dict[str, list[Subject]] = {}
        self._found: dict[tuple[str, str], Subject | None] = {}
        self._entries: dict[str, Subject] | None = None
        self._files: dict[str, Subject] | None = None

    def topic(self, name: str) -> Topic | None:
        """The topic of this id, else of this title without regard to case.

        One that is switched off today may have been on when it was cited.
        """
        topics = self.knowledge.topics
        if name in topics:
            return topics[name]
        titled = [
            topic
            for topic in topics.values()
            if topic.title is not None and topic.title.casefold() == name.casefold()
        ]
        return next((topic for topic in titled if topic.enable), titled[0] if titled else None)

    def subjects(self, topic: str) -> list[Subject]:
        """All subjects of a topic."""
        if topic not in self._subjects:
            self._subjects[topic] = list(self.knowledge.subjects(topic))
        return self._subjects[topic]

    def find(self, topic: str, slug: str) -> Subject | None:
        """The subject with this slug, hidden, disabled and shadowed ones too."""
        key = (topic, slug)
        if key not in self._found:
            self._found[key] = self.knowledge.find(topic, slug)
        return self._found[key]

    @property
    def knows_entries(self) -> bool:
        """Whether entry ids can be told."""
        return self._subject_id is not None

    def entry(self, identity: str) -> Subject | None:
        """The subject with this entry id."""
        if self._entries is None:
            self._entries = {}
            if self._subject_id is not None:
                for subject in self._all():
                    self._entries[self._subject_id(subject.topic, subject.slug)] = subject
        return self._entries.get(identity)

    def file(self, path: str) -> Subject | None:
        """The subject whose file this is: a path relative to the workspace, or an absolute one."""
        if self._files is None:
            self._files = {}
            for subject in self._all():
                folder = self.knowledge.topics[subject.topic].subjects
                relative = posixpath.normpath(posixpath.join(folder, subject.relative))
                # Two topics may share a directory; the first declared has the file.
                self._files.setdefault(relative, subject)
                self._files.setdefault(subject.file, subject)
        return self._files.get(path)

    def _all(self) -> Iterable[Subject]:
        for topic in self.knowledge.topics:
            yield from self.subjects(topic)
