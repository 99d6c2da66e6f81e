"""What is wrong with a knowledge base that still works: `check` finds it (issue 3, point 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.knowledge.config import FIELDS
from kbtui.knowledge.content import subject_text
from kbtui.knowledge.globs import has_magic, matcher, unclosed
from kbtui.knowledge.mentions import missing_mentions
from kbtui.knowledge.records import Problem
from kbtui.knowledge.scan import is_hidden, split_name
from kbtui.knowledge.similar import near_duplicates
from kbtui.knowledge.size import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.knowledge.knowledge import Knowledge
    from kbtui.knowledge.records import Subject, Topic
    from kbtui.knowledge.resolve import Resolved

PRELOAD_TOKENS = 10_000
"""Estimated tokens from which one pre-loaded subject is called too large."""


def check(knowledge: Knowledge) -> list[Problem]:
    """Everything that hygiene finds, topic by topic; reads every subject that may be seen.

    Collisions, dead patterns, empty topics, subjects that are too large to
    pre-load or cannot be read, near-duplicates, mentions of slugs that do not
    exist, titles that two topics share. What is wrong with the configuration
    itself is in `Knowledge.problems`.
    """
    problems = list(_titles(knowledge))
    texts: dict[tuple[str, str], str] = {}
    subjects: list[Subject] = []
    for topic in knowledge.topics.values():
        if not topic.enable:
            continue
        resolved = knowledge.resolved(topic.id)
        problems += _collisions(resolved)
        problems += _dead(resolved, "learned")
        problems += _dead(resolved, "disabled")
        problems += _empty(knowledge, resolved)
        for subject in knowledge.subjects(topic.id):
            if subject.disabled:
                continue
            subjects.append(subject)
            try:
                text = subject_text(subject)
            except KbtuiError as error:
                if not subject.hidden:
                    problems.append(_of(subject, f"cannot be learned: {error.message}"))
                continue
            texts[subject.topic, subject.slug] = text
            problems += _large(subject, text)
    problems += near_duplicates(subjects, texts)
    problems += missing_mentions(knowledge, subjects, texts)
    return problems


def _of(subject: Subject, message: str, hint: str | None = None) -> Problem:
    return Problem(message, where=f"{subject.topic}/{subject.slug}", topic=subject.topic, hint=hint)


def _titles(knowledge: Knowledge) -> Iterator[Problem]:
    """Titles that do not say which topic is meant: the first declared wins, an id always."""
    enabled = [topic for topic in knowledge.topics.values() if topic.enable]
    first: dict[str, Topic] = {}
    for topic in enabled:
        if topic.title is None:
            continue
        winner = first.setdefault(topic.title.casefold(), topic)
        other = knowledge.topics.get(topic.title)
        if winner is not topic:
            message = f"has the title of {winner.id}, which wins: '{topic.title}'"
        elif other is not None and other is not topic and other.enable:
            message = f"has as its title the id of another topic, which wins: '{topic.title}'"
        else:
            continue
        key = f"kb.topic.{topic.id}.title"
        yield Problem(message, key=key, topic=topic.id, hint="give it a title of its own")


def _collisions(resolved: Resolved) -> Iterator[Problem]:
    scan = resolved.scan
    losers: dict[str, list[str]] = {}
    for name, slug in scan.shadowed.items():
        losers.setdefault(slug, []).append(name)
    for slug, names in sorted(losers.items()):
        winner = scan.relative[slug]
        others = ", ".join(sorted(names))
        yield Problem(
            f"{winner} and {others} have one slug; {winner} has it, the rest go by path only",
            where=f"{resolved.topic.id}/{slug}",
            topic=resolved.topic.id,
            hint="rename one of them",
        )


def _dead(resolved: Resolved, field: str) -> Iterator[Problem]:
    """Patterns that reach nothing."""
    assert field in FIELDS
    topic, scan = resolved.topic, resolved.scan
    for pattern in getattr(topic, field):
        if field == "learned":
            alive = bool(resolved.match([pattern]))
        else:
            matches = matcher(pattern)
            alive = pattern in scan or any(map(matches, scan.slugs))
        if not alive and scan.slugs:
            hint = why_dead(resolved, pattern)
            key = f"kb.topic.{topic.id}.{field}"
            yield Problem(f"'{pattern}' reaches no subject", key=key, topic=topic.id, hint=hint)


def why_dead(resolved: Resolved, pattern: str) -> str | None:
    """Why a pattern reaches nothing, or what may have been meant; None where nobody can tell."""
    scan = resolved.scan
    matches = matcher(pattern)
    reached = [slug for slug in scan.slugs if slug == pattern or matches(slug)]
    if any(slug in resolved.disabled for slug in reached):
        return "what it names is disabled"
    if reached:
        return f"a glob reaches no hidden subject: name '{reached[0]}' itself"
    folder, slash, name = pattern.rpartition("/")
    bare = folder + slash + split_name(name)[0]
    if bare != pattern and (bare in scan or any(map(matcher(bare), scan.slugs))):
        return f"slugs have no extension: '{bare}'"
    if is_hidden(pattern):
        return "slugs have no leading dots"
    if unclosed(pattern):
        return "a [ without its ] is itself"
    if has_magic(pattern):
        return None
    from difflib import get_close_matches

    near = get_close_matches(pattern, scan.slugs[:5000], n=1)
    return f"did you mean '{near[0]}'?" if near else None


def _empty(knowledge: Knowledge, resolved: Resolved) -> Iterator[Problem]:
    topic = resolved.topic
    key = f"kb.topic.{topic.id}.subjects"
    if resolved.visible or any(problem.key == key for problem in knowledge.problems):
        return
    count = len(resolved.scan.slugs)
    if count:
        message = f"nothing in it may be seen: all {count} subjects are hidden or disabled"
    else:
        message = f"{topic.subjects} has no subjects"
    yield Problem(message, key=key, topic=topic.id, hint="add a file, or set enable = false")


def _large(subject: Subject, text: str) -> Iterator[Problem]:
    tokens = estimate_tokens(text)
    if subject.learned and tokens > PRELOAD_TOKENS:
        yield _of(
            subject,
            f"is large to pre-load: about {tokens:,} tokens in every request",
            "take it out of `learned`, or split it",
        )


__all__ = ["PRELOAD_TOKENS", "check", "why_dead"]
