"""Marks on subjects and topics: what they change, previewed, written to `.jp/kb.toml`, undone.

Nothing is written but by `apply` and `undo`, and nowhere else: JP refuses the
`kb` table in its own files (decisions A1).
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError, KbtuiError, NothingFound, UsageError
from kbtui.knowledge.knowledge import Knowledge, load_knowledge
from kbtui.knowledge.toml import set_values
from kbtui.workspace.regular import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kbtui.knowledge.records import Mark, Topic

_MARKABLE = ("enable", "learned", "disabled")
_FIELDS = ("enable", "title", "introduction", "description", "subjects", "learned", "disabled")


@dataclass(frozen=True)
class Change:
    """What `apply` would do to a file: its text before and after; None is no file."""

    path: Path
    old: str | None
    new: str | None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.old == self.new

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty where there is none."""
        from difflib import unified_diff

        name = f".jp/{self.path.name}"
        before = (self.old or "").splitlines(keepends=True)
        after = (self.new or "").splitlines(keepends=True)
        source = name if self.old is not None else "/dev/null"
        target = name if self.new is not None else "/dev/null"
        lines = unified_diff(before, after, source, target)
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def marked(knowledge: Knowledge, topic: Topic, mark: Mark) -> Topic:
    """A topic with a mark set.

    Raises `NothingFound` for an unknown subject, `UsageError` where a glob
    already says otherwise: only the person who wrote it knows what it is for.
    """
    if mark.state in ("on", "off"):
        return replace(topic, enable=mark.state == "on")
    slug = mark.slug
    if slug is None:
        raise UsageError(f"a topic cannot be marked {mark.state}", where=topic.id)
    if slug not in knowledge.resolved(topic.id).scan:
        raise NothingFound("there is no such subject", where=f"{topic.id}/{slug}")
    learned = tuple(pattern for pattern in topic.learned if pattern != slug)
    disabled = tuple(pattern for pattern in topic.disabled if pattern != slug)
    bare = replace(topic, learned=learned, disabled=disabled)
    by_learned = _globs(knowledge, bare, "learned", slug)
    by_disabled = _globs(knowledge, bare, "disabled", slug)
    if mark.state == "disabled":
        return bare if by_disabled else replace(bare, disabled=(*disabled, slug))
    if by_disabled:
        raise _by_glob(topic, slug, "disabled", by_disabled)
    if mark.state == "learned":
        # In its old place, if it had one: the order of `learned` is that of the prompt.
        if slug in topic.learned:
            return replace(bare, learned=topic.learned)
        return bare if by_learned else replace(bare, learned=(*learned, slug))
    if by_learned:
        raise _by_glob(topic, slug, "learned", by_learned)
    return bare


def _globs(knowledge: Knowledge, topic: Topic, field: str, slug: str) -> str | None:
    """The pattern of a field that reaches a slug, None where none does."""
    resolved = knowledge.resolved(topic.id)
    for pattern in getattr(topic, field):
        alone = replace(topic, learned=(), disabled=(pattern,) if field == "disabled" else ())
        other = type(resolved)(alone, resolved.scan, resolved.folder)
        reached = other.disabled if field == "disabled" else other.match([pattern])
        if slug in reached:
            return str(pattern)
    return None


def _by_glob(topic: Topic, slug: str, field: str, pattern: str) -> UsageError:
    return UsageError(
        f"{slug} is {field} by the pattern {pattern!r}",
        where=f"kb.topic.{topic.id}.{field}",
        hint="change that pattern in .jp/kb.toml",
    )


def propose(knowledge: Knowledge, marks: Iterable[Mark]) -> Change:
    """What setting marks would write to `.jp/kb.toml`; writes nothing.

    Works from the files as they are now: what `-k` and `--cfg` added is not
    written. Raises `NothingFound` or `UsageError` for a mark that cannot be
    set, `ConfigError` where the file cannot be read as TOML.
    """
    base = load_knowledge(knowledge.workspace)
    wanted = base.with_marks(marks).topics
    edits: dict[str, dict[str, Any]] = {}
    for name, topic in wanted.items():
        for field in _MARKABLE:
            value = getattr(topic, field)
            if value != getattr(base.topics[name], field):
                edits.setdefault(name, {})[field] = _plain(value)
    return _change(base.workspace.jp / "kb.toml", edits)


def declare(knowledge: Knowledge, topic: Topic) -> Change:
    """What declaring a new topic would write to `.jp/kb.toml`; writes nothing.

    Raises `UsageError` where the id is taken, `ConfigError` as `propose` does.
    """
    if topic.id in load_knowledge(knowledge.workspace).topics:
        raise UsageError("there is such a topic already", where=topic.id)
    default = type(topic)(topic.id, "")
    values = {field: getattr(topic, field) for field in _FIELDS}
    written = {
        field: _plain(value) for field, value in values.items() if value != getattr(default, field)
    }
    return _change(knowledge.workspace.jp / "kb.toml", {topic.id: written})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _change(path: Path, edits: dict[str, dict[str, Any]]) -> Change:
    old = _read(path)
    return Change(path, old, set_values(old, edits, path) if edits else old)


def apply(change: Change) -> None:
    """Write a change, in one step for whoever reads the file meanwhile.

    Raises `KbtuiError` when the file is not what it was when the change was
    proposed, or cannot be written; it is untouched then.
    """
    if _read(change.path) != change.old:
        raise KbtuiError(
            "changed meanwhile; nothing was written",
            where=str(change.path),
            hint="look at the change again",
        )
    if change.empty:
        return
    try:
        if change.new is None:
            change.path.unlink()
        else:
            _replace(change.path, change.new.encode("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise KbtuiError(f"cannot be written: {reason}", where=str(change.path)) from error


def undo(change: Change) -> None:
    """Take an applied change back; raises `KbtuiError` as `apply` does."""
    apply(Change(change.path, change.new, change.old))


def _replace(path: Path, data: bytes) -> None:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _read(path: Path) -> str | None:
    """The file's text with its line ends, None where there is none."""
    if path.is_symlink():
        raise ConfigError("is a link, which is not written through", where=str(path))
    try:
        return read_regular(path).decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8", where=str(path)) from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
