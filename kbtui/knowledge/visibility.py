"""Which subjects of a topic may be seen, and what patterns match."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import NothingFound, UsageError
from kbtui.knowledge.discovery import Scan, inside, scan
from kbtui.knowledge.models import Problem
from kbtui.knowledge.slug_patterns import matcher
from kbtui.knowledge.topic_config import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.knowledge.models import SubjectMark, Topic


class Resolved:
    """One topic's slugs, sorted into what may be seen.

    `visible` is sorted and has neither hidden nor disabled subjects nor the
    losers of collisions, which only their exact name reaches. `learned` is in
    the order of its patterns. `available` is what a listing offers.
    `folder` is the directory as configured, links and all.
    """

    def __init__(self, topic: Topic, found: Scan, folder: str) -> None:
        self.topic = topic
        self.scan = found
        self.folder = folder
        self.disabled = self._disabled()
        out = self.disabled | found.hidden | found.shadowed.keys()
        self.visible = [slug for slug in found.slugs if slug not in out] if out else found.slugs
        self.learned = self.match(topic.learned)
        self.learned_set = learned = frozenset(self.learned)
        self.available = (
            [slug for slug in self.visible if slug not in learned] if learned else self.visible
        )

    def match(self, patterns: Iterable[str]) -> list[str]:
        """The slugs that patterns name, in pattern order, then slug order, each once.

        A pattern that equals an existing slug is that subject, hidden or not;
        any other is a glob over the visible ones.
        """
        found: dict[str, None] = {}
        for pattern in patterns:
            if self.exact(pattern):
                found[pattern] = None
            else:
                found.update(dict.fromkeys(filter(matcher(pattern), self.visible)))
        return list(found)

    def exact(self, pattern: str) -> bool:
        """Whether a pattern is the slug of a subject that is not disabled."""
        return pattern in self.scan and pattern not in self.disabled

    def _disabled(self) -> set[str]:
        """What `disabled` reaches: by slug or glob, hidden and contested ones too."""
        found: set[str] = set()
        for pattern in self.topic.disabled:
            if pattern in self.scan:
                found.add(pattern)
                found.update(name for name, slug in self.scan.shadowed.items() if slug == pattern)
            else:
                matches = matcher(pattern)
                found.update(filter(matches, self.scan.slugs))
                found.update(name for name, slug in self.scan.shadowed.items() if matches(slug))
        return found


def directory(root: str, topic: Topic) -> tuple[str | None, Problem | None]:
    """The real path of a topic's directory under the real path `root`, or what is wrong with it."""

    def problem(message: str, hint: str | None = None) -> tuple[None, Problem]:
        key = f"kb.topic.{topic.id}.subjects"
        where = shown(Path(root), topic.origin) if topic.origin else None
        return None, Problem(message, where=where, key=key, topic=topic.id, hint=hint)

    try:
        real = os.path.realpath(Path(root, topic.subjects), strict=True)
        if not inside(real, root):
            return problem(f"{topic.subjects} leads out of the workspace")
        if not Path(real).is_dir():
            return problem(f"{topic.subjects} is not a directory")
        if not os.access(real, os.R_OK | os.X_OK):
            return problem(f"{topic.subjects} cannot be read: permission denied")
    except NotADirectoryError:
        return problem(f"{topic.subjects} is not a directory")
    except FileNotFoundError:
        return problem(
            f"{topic.subjects} does not exist", "make the directory, or correct the path"
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return problem(f"{topic.subjects} cannot be read: {reason}")
    return real, None


def resolve(root: str, topic: Topic) -> tuple[Resolved, list[Problem]]:
    """Walk a topic's directory under the real path `root`; what is wrong comes beside it."""
    folder = os.path.normpath(Path(root, topic.subjects))
    real, problem = directory(root, topic)
    if real is None:
        return Resolved(topic, Scan(folder), folder), [problem] if problem else []
    try:
        found = scan(root, real)
    except OSError:
        # Gone or closed between the look and the walk: look again to say which.
        _, problem = directory(root, topic)
        return Resolved(topic, Scan(folder), folder), [problem] if problem else []
    mistakes = [
        Problem(message, where=ascii_name(str(Path(topic.subjects, path))), topic=topic.id)
        for message, path in found.mistakes
    ]
    return Resolved(topic, found, folder), mistakes


def mark_topic(topic: Topic, resolved: Resolved, mark: SubjectMark) -> Topic:
    """Return a topic with a mark set.

    Raises `NothingFound` for an unknown subject, `UsageError` where a glob
    already says otherwise: only the person who wrote it knows what it is for.
    """
    if mark.state in ("on", "off"):
        return replace(topic, enable=mark.state == "on")
    slug = mark.slug
    if slug is None:
        raise UsageError(f"a topic cannot be marked {mark.state}", where=topic.id)
    if slug not in resolved.scan:
        raise NothingFound("there is no such subject", where=f"{topic.id}/{slug}")
    learned = tuple(pattern for pattern in topic.learned if pattern != slug)
    disabled = tuple(pattern for pattern in topic.disabled if pattern != slug)
    bare = replace(topic, learned=learned, disabled=disabled)
    by_learned = _find_pattern(resolved, bare, "learned", slug)
    by_disabled = _find_pattern(resolved, bare, "disabled", slug)
    if mark.state == "disabled":
        return bare if by_disabled else replace(bare, disabled=(*disabled, slug))
    if by_disabled:
        raise _pattern_error(topic, slug, "disabled", by_disabled)
    if mark.state == "learned":
        # In its old place, if it had one: the order of `learned` is that of the prompt.
        if slug in topic.learned:
            return replace(bare, learned=topic.learned)
        return bare if by_learned else replace(bare, learned=(*learned, slug))
    if by_learned:
        raise _pattern_error(topic, slug, "learned", by_learned)
    return bare


def _find_pattern(resolved: Resolved, topic: Topic, field: str, slug: str) -> str | None:
    """The pattern of a field that reaches a slug, None where none does."""
    for pattern in getattr(topic, field):
        alone = replace(topic, learned=(), disabled=(pattern,) if field == "disabled" else ())
        other = Resolved(alone, resolved.scan, resolved.folder)
        reached = other.disabled if field == "disabled" else other.match([pattern])
        if slug in reached:
            return str(pattern)
    return None


def _pattern_error(topic: Topic, slug: str, field: str, pattern: str) -> UsageError:
    return UsageError(
        f"{slug} is {field} by the pattern {pattern!r}",
        where=f"kb.topic.{topic.id}.{field}",
        hint="change that pattern in .jp/kb.toml",
    )


def ascii_name(path: str) -> str:
    """A path in which what cannot be printed, such as bytes that are no text, is an escape."""
    if path.isprintable():
        return path
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in path)
