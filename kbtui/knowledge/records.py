"""What the knowledge room hands out: topics, subjects, problems."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Topic:
    """One `[kb.topic.<id>]` (KB, "Field Reference").

    `subjects` is the directory as configured, relative to the root;
    `origin` the file that declared it first.
    """

    id: str
    subjects: str
    enable: bool = True
    title: str | None = None
    introduction: str | None = None
    description: str | None = None
    learned: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    origin: Path | None = None

    @property
    def name(self) -> str:
        """The title, else the id: what people and assistants see."""
        return self.title or self.id


@dataclass(frozen=True)
class Subject:
    """One text file of a topic (KB, "Subject Resolution").

    `slug` is what `learn` and references call it. The loser of a collision
    keeps its path as written as its slug (decisions A3) and has `shadowed`.
    `path` is the file, `relative` its path inside the topic's directory.
    """

    topic: str
    slug: str
    path: Path
    relative: str
    hidden: bool = False
    disabled: bool = False
    learned: bool = False
    shadowed: bool = False
    size: int = 0
    mtime_ns: int = 0


@dataclass(frozen=True)
class Problem:
    """Something wrong that leaves the rest working: shown as a badge or a line.

    `where` is a file, `key` a dotted key, `topic` the topic it concerns.
    """

    message: str
    where: str | None = None
    key: str | None = None
    topic: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.key) if part)
        text = f"{place}: {self.message}" if place else self.message
        return f"{text} ({self.hint})" if self.hint else text
