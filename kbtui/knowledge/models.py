"""What the knowledge room hands out: topics, subjects, problems."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Topic:
    """One `[kb.topic.<id>]`.

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
    """One text file of a topic.

    `slug` is what `learn` and references call it. The loser of a collision
    keeps its path as written as its slug and has `shadowed`.
    `file` is the path of the file, `relative` that inside the topic's directory,
    `root` the workspace that its content must not lie outside of.
    """

    topic: str
    slug: str
    file: str
    relative: str
    hidden: bool = False
    disabled: bool = False
    learned: bool = False
    shadowed: bool = False
    size: int = 0
    mtime_ns: int = 0
    inode: int = 0
    root: Path | None = field(default=None, repr=False, compare=False)

    @cached_property
    def path(self) -> Path:
        """The file; made when first asked for, because thousands of subjects are only compared."""
        return Path(self.file)

    @classmethod
    def from_fields(cls, **values: Any) -> "Subject":
        """One of these fields; the constructor of a frozen record takes six times as long."""
        subject = object.__new__(cls)
        subject.__dict__.update(values)
        return subject


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


@dataclass(frozen=True)
class LearnResult:
    """What a call of `learn` returns."""

    text: str
    is_error: bool = False


@dataclass(frozen=True)
class PromptFragment:
    """One prompt section of JP's own `.jp/config/knowledge/*.toml`.

    `loaded_by` has the configuration files whose `extends` bring it in, directly
    or through others, relative to the root.
    """

    path: Path
    tag: str | None
    title: str | None
    content: str
    position: int | None = None
    loaded_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The title, else the tag, else the file's name."""
        return self.title or self.tag or self.path.stem


@dataclass(frozen=True)
class SubjectMark:
    """A wish of a person: a subject learned, disabled or neither; a topic on or off.

    `slug` is None for the topic itself. `plain` takes a subject's marks back.
    """

    topic: str
    slug: str | None
    state: Literal["learned", "disabled", "plain", "on", "off"]
