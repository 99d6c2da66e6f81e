"""The classes of the knowledge package: topics, subjects, problems, prompt sections."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from kbtui.references import make_subject_ref


@dataclass(frozen=True)
class Topic:
    """A topic, as a table `[kb.topic.<id>]` of the configuration declares it.

    * `subjects` is the path of the topic's directory, relative to the workspace's root.
    * `origin` is the first file that declared the topic.
    * `is_published` means that only the published library declares the topic, so the topic has no
      directory in the workspace.
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
    is_published: bool = False

    @property
    def name(self) -> str:
        """The title, or the id if there is no title."""
        return self.title or self.id


@dataclass(unsafe_hash=True)  # a frozen one takes three times as long to create
class Subject:
    """One text file of a topic.

    * `relative` is the file's path in the topic's directory.
    * `shadowed` means that another file of the topic already has the slug that this file would
      have. The slug of a shadowed subject is its path.
    * `root` is the workspace's root. Files outside `root` are not read.
    * `is_published` means that the file is in the mirror of the published library. `root` is then
      the root of the mirror, and the file cannot be edited.
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
    is_published: bool = False
    root: Path | None = field(default=None, repr=False, compare=False)

    @cached_property
    def path(self) -> Path:
        """The path of the file. It is computed on demand, because most subjects never need it."""
        return Path(self.file)

    @property
    def ref(self) -> str:
        """The reference of the subject: `topic/slug`."""
        return str(make_subject_ref(self.topic, self.slug))


@dataclass(frozen=True)
class KnowledgeProblem:
    """A mistake in a subject or in the configuration.

    `where` is a reference or a path, and `key` is a key in the file.
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
class LearnToolResult:
    """The result of a `learn` call."""

    text: str
    is_error: bool = False


@dataclass(frozen=True)
class JpPromptSection:
    """A prompt section that JP's own configuration declares in `.jp/config/knowledge/*.toml`.

    `path` is the file that declares the section. `loaded_by` lists the configuration files that
    extend `path`, directly or indirectly. These paths are relative to the workspace's root.
    """

    path: Path
    tag: str | None
    title: str | None
    content: str
    position: int | None = None
    loaded_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The title, the tag or the name of the file: the first of these that exists."""
        return self.title or self.tag or self.path.stem


@dataclass(frozen=True)
class PreloadOrDisableChange:
    """The new state of a subject, or of the whole topic if `slug` is None.

    A subject becomes pre-loaded (`learned`), disabled, or neither of these (`plain`). A topic is
    enabled (`on`) or disabled (`off`).
    """

    topic: str
    slug: str | None
    state: Literal["learned", "disabled", "plain", "on", "off"]
