"""Finds out which subjects of a topic are visible."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import NothingFound, UsageError
from kbtui.knowledge.knowledge_data_types import KnowledgeProblem
from kbtui.knowledge.slug_patterns import compile_slug_pattern
from kbtui.knowledge.subject_files import (
    TopicDirectoryScan,
    is_inside_directory,
    scan_topic_directory,
)
from kbtui.workspace.paths import format_path_relative_to_root

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.knowledge.knowledge_data_types import PreloadOrDisableChange, Topic


class SubjectSlugsByVisibility:
    """The slugs of a topic, grouped by visibility.

    * `visible` contains the slugs that are not hidden, disabled or shadowed, sorted.
    * `learned` contains the slugs of the pre-loaded subjects, in the order of the patterns that
      select them.
    * `available` contains all other visible slugs, which an assistant can learn.
    * `folder` is the path of the topic's directory; it can contain symbolic links.
    """

    def __init__(self, topic: Topic, found: TopicDirectoryScan, folder: str) -> None:
        self.topic = topic
        self.scan = found
        self.folder = folder
        self.disabled = self._find_disabled_subject_slugs()
        invisible = self.disabled | found.hidden | found.shadowed.keys()
        self.visible = [slug for slug in found.slugs if slug not in invisible]
        self.learned = self.list_matching_slugs(topic.learned)
        self.learned_set = frozenset(self.learned)
        self.available = [slug for slug in self.visible if slug not in self.learned_set]

    def list_matching_slugs(self, patterns: Iterable[str]) -> list[str]:
        """Return the slugs that match the patterns.

        The slugs are in the order of the patterns; slugs that match the same pattern are sorted. If
        a pattern is equal to a slug, it matches only this slug, which may be hidden. Any other
        pattern is a glob, which matches only visible slugs.
        """
        found: dict[str, None] = {}
        for pattern in patterns:
            if self.is_enabled_slug(pattern):
                found[pattern] = None
            else:
                found.update(dict.fromkeys(filter(compile_slug_pattern(pattern), self.visible)))
        return list(found)

    def is_enabled_slug(self, pattern: str) -> bool:
        """Return whether a pattern is the slug of a subject that is not disabled."""
        return pattern in self.scan and pattern not in self.disabled

    def _find_disabled_subject_slugs(self) -> set[str]:
        """Return the slugs that match a pattern in the topic's key `disabled`.

        Slugs of hidden and shadowed subjects are included.
        """
        found: set[str] = set()
        for pattern in self.topic.disabled:
            is_slug = pattern in self.scan
            matches = pattern.__eq__ if is_slug else compile_slug_pattern(pattern)
            found.update(filter(matches, self.scan.slugs))
            found.update(name for name, slug in self.scan.shadowed.items() if matches(slug))
        return found


def find_topic_directory_or_problem(
    root: str, topic: Topic
) -> tuple[str | None, KnowledgeProblem | None]:
    """Return the real path of a topic's directory and None, or None and the problem of the directory.

    `root` is the workspace's real path.
    """
    hint = None
    try:
        real = os.path.realpath(Path(root, topic.subjects), strict=True)
        if not is_inside_directory(real, root):
            reason = "is outside the workspace"
        elif not Path(real).is_dir():
            reason = "is not a directory"
        elif not os.access(real, os.R_OK | os.X_OK):
            reason = "cannot be read: permission denied"
        else:
            return real, None
    except NotADirectoryError:
        reason = "is not a directory"
    except FileNotFoundError:
        reason, hint = "does not exist", "create the directory or correct the path"
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    key, message = f"kb.topic.{topic.id}.subjects", f"{topic.subjects} {reason}"
    where = format_path_relative_to_root(Path(root), topic.origin) if topic.origin else None
    return None, KnowledgeProblem(message, where=where, key=key, topic=topic.id, hint=hint)


def scan_topic_slugs(
    root: str, topic: Topic, mirrored: str | None = None
) -> tuple[SubjectSlugsByVisibility, list[KnowledgeProblem]]:
    """Walk a topic's directory, and return the topic's slugs and the problems found.

    `root` is the workspace's real path. `mirrored` is the real path of the topic's directory in the
    mirror of the published library, if there is one. The result includes the files in the mirror's
    directory that the workspace lacks.
    """
    scan = TopicDirectoryScan({}, [])
    if topic.is_published:
        real, problem = None, None
    else:
        real, problem = find_topic_directory_or_problem(root, topic)
    if real is not None:
        try:
            scan = scan_topic_directory(root, real)
        except OSError:
            # The directory has changed since the check. Check again to get the right message.
            _, problem = find_topic_directory_or_problem(root, topic)
    if mirrored is not None:
        with suppress(OSError):
            scan.add_published_files(scan_topic_directory(mirrored, mirrored))
        # A checkout need not contain the published files.
        problem = None if not Path(root, topic.subjects).exists() else problem
    problems = [problem] if problem else []
    for message, path in scan.mistakes:
        where = Path(topic.subjects, path).as_posix()
        if not where.isprintable():
            where = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in where)
        problems.append(KnowledgeProblem(message, where=where, topic=topic.id))
    folder = os.path.normpath(Path(root, topic.subjects))
    return SubjectSlugsByVisibility(topic, scan, folder), problems


def copy_topic_with_preload_or_disable_change(
    topic: Topic, resolved: SubjectSlugsByVisibility, mark: PreloadOrDisableChange, file: str
) -> Topic:
    """Return `topic` with the change `mark` applied to one of its subjects or to the topic itself.

    `resolved` contains the slugs of the topic. `file` is the name of the file that declares topics,
    for error messages. Raises `NothingFound` if the subject does not exist. Raises `UsageError` if
    a glob in the topic's declaration prevents the new state, because kbtui does not edit globs.
    """
    if mark.state in ("on", "off"):
        return replace(topic, enable=mark.state == "on")
    slug = mark.slug
    if slug is None:
        raise UsageError(
            f"a topic cannot be marked {mark.state}; only a subject can", where=topic.id
        )
    if slug not in resolved.scan:
        raise NothingFound("unknown subject", where=f"{topic.id}/{slug}")
    learned = tuple(pattern for pattern in topic.learned if pattern != slug)
    disabled = tuple(pattern for pattern in topic.disabled if pattern != slug)
    bare = replace(topic, learned=learned, disabled=disabled)
    by_learned = _find_matching_pattern(resolved, bare, "learned", slug)
    by_disabled = _find_matching_pattern(resolved, bare, "disabled", slug)
    if mark.state == "disabled":
        return bare if by_disabled else replace(bare, disabled=(*disabled, slug))
    if mark.state == "learned" and not by_disabled:
        # Keep the slug's position: the order of `learned` is the order in the prompt.
        if slug in topic.learned:
            return replace(bare, learned=topic.learned)
        return bare if by_learned else replace(bare, learned=(*learned, slug))
    field, pattern = ("disabled", by_disabled) if by_disabled else ("learned", by_learned)
    if pattern is None:
        return bare
    raise UsageError(
        f"{slug} matches the pattern {pattern!r} in `{field}`",
        where=f"kb.topic.{topic.id}.{field}",
        hint=f"change that pattern in {file}",
    )


def _find_matching_pattern(
    resolved: SubjectSlugsByVisibility, topic: Topic, field: str, slug: str
) -> str | None:
    """Return the first of a topic's patterns that matches a slug; None if no pattern matches.

    `field` is the topic's key that contains the patterns: `learned` or `disabled`.
    """
    for pattern in getattr(topic, field):
        fields: dict[str, Any] = {"learned": (), "disabled": (), field: (pattern,)}
        alone = replace(topic, **fields)
        if slug in getattr(SubjectSlugsByVisibility(alone, resolved.scan, resolved.folder), field):
            return str(pattern)
    return None
