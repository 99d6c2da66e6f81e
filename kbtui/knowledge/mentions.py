"""Finds mentions of slugs that do not exist: a hint must lead somewhere (issue 3, point 8)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from kbtui.errors import NothingFound
from kbtui.knowledge.globs import has_magic
from kbtui.knowledge.records import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.knowledge.knowledge import Knowledge
    from kbtui.knowledge.records import Subject

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]* *$|\Z)", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"(?<!`)`([\w.@+-]+(?:/[\w.@+-]+)+)`(?!`)")
_CALL = re.compile(
    r"learn\(\s*topic\s*[:=]\s*[\"']([^\"'\n]+)[\"']\s*,\s*subjects\s*[:=]\s*"
    r"(\[[^\]\n]*\]|\"[^\"\n]*\"|'[^'\n]*')"
)
_STRING = re.compile(r"[\"']([^\"']+)[\"']")


def missing_mentions(
    knowledge: Knowledge, subjects: list[Subject], texts: dict[tuple[str, str], str]
) -> list[Problem]:
    """A problem for each slug that a subject mentions and nobody can learn.

    A mention is `` `topic/slug` ``, a `` `folder/slug` `` where the topic has
    that folder or subject, or a call of `learn`; outside of code blocks, and
    unless a file of that path exists.
    """
    firsts = {
        topic: {slug.partition("/")[0] for slug in knowledge.resolved(topic).scan.slugs}
        for topic in dict.fromkeys(subject.topic for subject in subjects)
    }
    problems = []
    for subject in subjects:
        text = texts.get((subject.topic, subject.slug), "")
        if "/" not in text and "learn(" not in text:
            continue
        prose = _FENCE.sub("", text)
        problems += [
            Problem(
                f"mentions {name}, which does not exist",
                where=f"{subject.topic}/{subject.slug}",
                topic=subject.topic,
                hint="correct the mention, or add the subject",
            )
            for name in dict.fromkeys(_missing(knowledge, subject, prose, firsts))
        ]
    return problems


def _missing(
    knowledge: Knowledge, subject: Subject, prose: str, firsts: dict[str, set[str]]
) -> Iterator[str]:
    for match in _QUOTED.finditer(prose):
        token = match[1]
        first, _, rest = token.partition("/")
        if _is_path(knowledge, subject, token):
            continue
        # `topic/slug` first; a topic may be called like a folder of another.
        if first in firsts and _exists(knowledge, first, rest):
            continue
        if first in firsts[subject.topic]:
            if not _exists(knowledge, subject.topic, token):
                yield f"`{token}`"
        elif first in firsts:
            yield f"`{token}`"
    for match in _CALL.finditer(prose):
        try:
            topic = knowledge.resolve_topic(match[1]).id
        except NothingFound:
            continue  # an example, or another workspace's
        for slug in _STRING.findall(match[2]):
            if not has_magic(slug) and not _exists(knowledge, topic, slug):
                yield f"{slug!r} in {topic}"


def _exists(knowledge: Knowledge, topic: str, slug: str) -> bool:
    """Whether a slug, or a folder of slugs, is there; a disabled one is not missing but hidden."""
    slugs = knowledge.resolved(topic).scan
    return slug in slugs or any(name.startswith(f"{slug}/") for name in slugs.slugs)


def _is_path(knowledge: Knowledge, subject: Subject, token: str) -> bool:
    folders = (knowledge.workspace.root, subject.path.parent)
    return any(os.path.lexists(folder / token) for folder in folders)
