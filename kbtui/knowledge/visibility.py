"""Which subjects of a topic may be seen, and what patterns match (KB, "Resolution Algorithm")."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.knowledge.discovery import Scan, inside, scan
from kbtui.knowledge.models import Problem
from kbtui.knowledge.slug_patterns import matcher
from kbtui.knowledge.topic_config import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.knowledge.models import Topic


class Resolved:
    """One topic's slugs, sorted into what may be seen.

    `visible` is sorted and has neither hidden nor disabled subjects nor the
    losers of collisions, which only their exact name reaches. `learned` is in
    the order of its patterns (decisions A4). `available` is what a listing offers.
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


def ascii_name(path: str) -> str:
    """A path in which what cannot be printed, such as bytes that are no text, is an escape."""
    if path.isprintable():
        return path
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in path)
