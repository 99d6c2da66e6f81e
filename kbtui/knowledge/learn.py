"""The texts that `learn` returns (KB, "The `learn` Tool"; decisions A5 to A11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, NothingFound
from kbtui.knowledge.content import ended, read_subject, skipped
from kbtui.knowledge.records import Learned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbtui.knowledge.records import Subject, Topic
    from kbtui.knowledge.resolve import Resolved

NAMED_MOST = 300
"""Characters of an argument that an error repeats."""

_USE = "Use the `learn` tool with the `subjects` argument to learn specific subjects."


def find_topic(topics: Iterable[Topic], name: str) -> Topic:
    """The enabled topic of this id, else of this title without regard to case.

    Of two with one title the first declared wins. Raises `NothingFound`, whose
    message lists the valid topics (KB, "Topic Resolution").
    """
    valid = [topic for topic in topics if topic.enable]
    for topic in valid:
        if topic.id == name:
            return topic
    for topic in valid:
        if topic.title is not None and topic.title.casefold() == name.casefold():
            return topic
    if not valid:
        raise NothingFound(f'Unknown topic "{cut(name)}". There are no topics.')
    listed = "\n".join(
        f"- {topic.id} ({topic.title})" if topic.title else f"- {topic.id}" for topic in valid
    )
    raise NothingFound(f'Unknown topic "{cut(name)}".\n\nValid topics:\n\n{listed}')


def listing(resolved: Resolved) -> str:
    """What `learn` returns without subjects (KB, "Behavior: List Subjects")."""
    topic = resolved.topic
    blocks = [f"# Topic: {topic.name}"]
    if topic.description and topic.description.strip():
        blocks.append(topic.description.rstrip())
    if resolved.available:
        blocks += [*_available(resolved), _USE]
    elif not resolved.learned:
        blocks.append("No subjects are available.")
    if resolved.learned:
        blocks += ["## Already learned (in system prompt):", _list(sorted(resolved.learned))]
    return "\n\n".join(blocks)


def load(resolved: Resolved, patterns: list[str], subject: Callable[[str], Subject]) -> Learned:
    """What `learn` returns for subjects (KB, "Behavior: Load Subjects")."""
    learned = set(resolved.learned)
    if len(patterns) == 1 and resolved.exact(patterns[0]):
        slug = patterns[0]
        if slug in learned:
            return Learned(_already(slug))
        try:
            return Learned(read_subject(subject(slug)))
        except KbtuiError as error:
            return Learned(skipped(error, slug), is_error=True)
    # An exact slug that is learned keeps its place with a line; a glob skips it.
    wanted: dict[str, None] = {}
    missing, exhausted = [], []
    for pattern in patterns:
        matches = resolved.match([pattern])
        if not resolved.exact(pattern):
            if matches and learned.issuperset(matches):
                exhausted.append(pattern)
            elif not matches:
                missing.append(pattern)
            matches = [slug for slug in matches if slug not in learned]
        wanted.update(dict.fromkeys(matches))
    blocks, failed = [], 0
    for slug in wanted:
        text, good = _content(subject, slug, slug in learned)
        failed += not good
        blocks.append(wrap(slug, text))
    blocks += [
        f'Everything that matches "{cut(pattern)}" is already in the system prompt.'
        for pattern in exhausted
    ]
    if not blocks:
        return Learned(_nothing(resolved, missing), is_error=True)
    blocks += [f'Nothing matches "{cut(pattern)}".' for pattern in missing]
    return Learned("\n\n".join(blocks), is_error=failed == len(blocks))


def wrap(slug: str, text: str) -> str:
    """A subject's content in its tags (KB, "Behavior: Load Subjects")."""
    return f'<subject "{quoted(slug)}">\n{ended(text)}</subject>'


def quoted(name: str) -> str:
    """A title or slug as it stands between quotes (decisions A11)."""
    return name.replace('"', "&quot;")


def cut(argument: str) -> str:
    """An argument as an error names it: whole, unless somebody sent a book."""
    return argument if len(argument) <= NAMED_MOST else argument[:NAMED_MOST] + "…"


def _content(subject: Callable[[str], Subject], slug: str, learned: bool) -> tuple[str, bool]:
    if learned:
        return _already(slug), True
    try:
        return read_subject(subject(slug)), True
    except KbtuiError as error:
        return skipped(error, slug), False


def _already(slug: str) -> str:
    return f'"{slug}" is already in the system prompt.'


def _nothing(resolved: Resolved, patterns: list[str]) -> str:
    """The error for patterns that match nothing, with what there is (decisions A7)."""
    named = ", ".join(f'"{cut(pattern)}"' for pattern in patterns)
    blocks = [f'Nothing in topic "{resolved.topic.name}" matches {named}.']
    if resolved.available:
        blocks += _available(resolved)
    else:
        blocks.append("No subjects are available.")
    return "\n\n".join(blocks)


def _available(resolved: Resolved) -> list[str]:
    return ["## Available subjects:", _list(resolved.available)]


def _list(slugs: list[str]) -> str:
    return "\n".join(f"- {slug}" for slug in slugs)
