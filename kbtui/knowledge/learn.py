"""The texts that `learn` returns."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.knowledge.models import Learned
from kbtui.knowledge.subject_files import ended, present, skipped, subject_text
from kbtui.refs import split_lines, subject_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbtui.knowledge.models import Subject, Topic
    from kbtui.knowledge.visibility import Resolved

NAMED_MOST = 300
"""Characters of an argument that an error repeats."""
NAMES_MOST = 4_000
"""Characters for the names of subjects that did not fit into an answer."""
_NOTE = 700
"""Characters for the remark below a subject that is cut."""
_PATTERNS_NAMED = 20

_USE = "Use the `learn` tool with the `subjects` argument to learn specific subjects."


class Caller(NamedTuple):
    """Who calls `learn`.

    With `has_prompt` the caller has the `<knowledge>` section, so that what it pre-loads is not
    given again. An answer has at most `max_chars` characters, None for no limit. `masked`
    replaces secrets.
    """

    has_prompt: bool = False
    max_chars: int | None = None
    masked: bool = False

    def given(self, resolved: Resolved) -> frozenset[str]:
        """The subjects that the caller has already."""
        return resolved.learned_set if self.has_prompt else frozenset()

    def available(self, resolved: Resolved) -> list[str]:
        """The subjects that a listing offers."""
        if self.has_prompt or not resolved.learned:
            return resolved.available
        return sorted({*resolved.available, *resolved.learned})

    def shown(self, text: str) -> str:
        """A text without its secrets, where they are masked."""
        if not self.masked:
            return text
        from kbtui import secrets

        return secrets.mask(text)


class Part(NamedTuple):
    """A subject, or some of its lines."""

    slug: str
    lines: tuple[int, int] | None = None

    def __str__(self) -> str:
        return str(subject_ref("", self.slug, self.lines))[1:]


def find_topic(topics: Iterable[Topic], name: str) -> Topic:
    """The enabled topic of this id, else of this title without regard to case.

    Of two with one title the first declared wins. Raises `NothingFound`, whose
    message lists the valid topics.
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


def listing(resolved: Resolved, caller: Caller) -> str:
    """What `learn` returns without subjects."""
    topic = resolved.topic
    blocks = [f"# Topic: {topic.name}"]
    if topic.description and topic.description.strip():
        blocks.append(topic.description.rstrip())
    available, given = caller.available(resolved), sorted(caller.given(resolved))
    if available:
        blocks += [*_available(available, caller), _USE]
    elif not given:
        blocks.append("No subjects are available.")
    if given:
        blocks += ["## Already learned (in system prompt):", _list(given, caller)]
    return caller.shown("\n\n".join(blocks))


def load(
    resolved: Resolved, patterns: list[str], subject: Callable[[str], Subject], caller: Caller
) -> Learned:
    """What `learn` returns for subjects.

    A pattern may be a slug with lines, `slug:first-last`, as `knowledge_search` names its sources.
    """
    given = caller.given(resolved)
    try:
        exact = {pattern: _exact(resolved, pattern) for pattern in patterns}
    except UsageError as error:
        return Learned(f'"{cut(error.where or "")}": {error.message}.', is_error=True)
    if len(patterns) == 1 and (one := exact[patterns[0]]) is not None:
        if one.slug in given:
            return Learned(_already(one.slug))
        try:
            return Learned(_text(subject(one.slug), one, caller, caller.max_chars))
        except KbtuiError as error:
            return Learned(skipped(error, one.slug), is_error=True)
    # An exact slug that is in the prompt keeps its place with a line; a glob skips it.
    wanted: dict[Part, None] = {}
    missing, exhausted = [], []
    for pattern in patterns:
        if (one := exact[pattern]) is not None:
            wanted[one] = None
            continue
        matches = resolved.match([pattern])
        if not matches:
            missing.append(pattern)
        elif given.issuperset(matches):
            exhausted.append(pattern)
        wanted.update(dict.fromkeys(Part(slug) for slug in matches if slug not in given))
    blocks, left, failed = _blocks(list(wanted), given, subject, caller)
    blocks += [
        f'Everything that matches "{cut(pattern)}" is already in the system prompt.'
        for pattern in exhausted
    ]
    if not blocks:
        return Learned(_nothing(resolved, missing, caller), is_error=True)
    blocks += [f'Nothing matches "{cut(pattern)}".' for pattern in missing]
    failure = failed == len(blocks)
    if left:
        blocks.append(_left_out([str(part) for part in left], caller))
    return Learned("\n\n".join(blocks), is_error=failure)


def _blocks(
    wanted: list[Part], given: frozenset[str], subject: Callable[[str], Subject], caller: Caller
) -> tuple[list[str], list[Part], int]:
    """The subjects in their tags, those that do not fit, and how many cannot be read."""
    room = None if caller.max_chars is None else caller.max_chars - NAMES_MOST
    blocks: list[str] = []
    failed = 0
    for number, part in enumerate(wanted):
        if part.slug in given:
            text = _already(part.slug)
        else:
            try:
                text = _text(subject(part.slug), part, caller, None if blocks else room)
            except KbtuiError as error:
                text = skipped(error, part.slug)
                failed += 1
        block = wrap(str(part), text)
        if room is not None:
            # The first one is given in any case, cut to what fits.
            if blocks and len(block) > room:
                return blocks, wanted[number:], failed
            room -= len(block) + 2
        blocks.append(block)
    return blocks, [], failed


def _exact(resolved: Resolved, pattern: str) -> Part | None:
    """The subject, or the lines of one, that a pattern names exactly; raises `UsageError`."""
    if resolved.exact(pattern):
        return Part(pattern)
    slug, _, _ = pattern.rpartition(":")
    if not slug or not resolved.exact(slug):
        return None
    return Part(*split_lines(pattern))


def _text(subject: Subject, part: Part, caller: Caller, room: int | None) -> str:
    """A subject, or lines of it, as `learn` presents them, in at most `room` characters.

    What does not fit is named by its lines. Raises `KbtuiError` with the reason it cannot be read.
    """
    text = subject_text(subject)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    if starts[-1] == len(text) and len(starts) > 1:
        starts.pop()
    count = len(starts)
    starts.append(len(text))
    first, last = part.lines or (1, count)
    last = min(last, count)
    if first > count:
        raise NothingFound("it has one line" if count == 1 else f"it has {count:,} lines")
    from kbtui import secrets  # its patterns take as long to compile as the rest to import

    hidden = secrets.find_secrets(text) if caller.masked else []

    def lines(final: int, end: int | None = None) -> str:
        start, end = starts[first - 1], starts[final] if end is None else end
        return present(secrets.mask_part(text, start, end, hidden), subject.relative)

    shown = lines(last)
    if room is None or len(shown) <= room:
        return shown
    room -= _NOTE
    # By their own lengths, then by those in their form: a fence and masks take room, too.
    final = max(first, bisect_right(starts, starts[first - 1] + room, first) - 1)
    while final > first and len(lines(final)) > room:
        final -= max(1, (final - first) // 8)
    shown = lines(final)
    said = f"Lines {first:,} to {final:,} of {count:,}."
    if len(shown) > room:
        whole = starts[final] - starts[first - 1]
        keep = room
        while len(shown := lines(final, starts[first - 1] + keep)) > room:
            keep -= max(1, len(shown) - room)
        said = f"Line {first:,} of {count:,}, cut after {keep:,} of its {whole:,} characters."
    if final < last:
        rest = Part(part.slug, (final + 1, last))
        said += f' Go on with `learn`: topic "{cut(subject.topic)}", subjects "{cut(str(rest))}".'
    return f"{ended(shown)}\n[{said}]\n"


def wrap(slug: str, text: str) -> str:
    """A subject's content in its tags."""
    return f'<subject "{quoted(slug)}">\n{ended(text)}</subject>'


def quoted(name: str) -> str:
    """A title or slug as it stands between quotes."""
    return name.replace('"', "&quot;")


def cut(argument: str) -> str:
    """An argument as an error names it: whole, unless somebody sent a book."""
    return argument if len(argument) <= NAMED_MOST else argument[:NAMED_MOST] + "…"


def _already(slug: str) -> str:
    return f'"{slug}" is already in the system prompt.'


def _nothing(resolved: Resolved, patterns: list[str], caller: Caller) -> str:
    """The error for patterns that match nothing, with what there is."""
    named = ", ".join(f'"{cut(pattern)}"' for pattern in patterns[:_PATTERNS_NAMED])
    blocks = [f'Nothing in topic "{resolved.topic.name}" matches {named}.']
    available = caller.available(resolved)
    if available:
        blocks += _available(available, caller)
    else:
        blocks.append("No subjects are available.")
    return caller.shown("\n\n".join(blocks))


def _available(slugs: list[str], caller: Caller) -> list[str]:
    return ["## Available subjects:", _list(slugs, caller)]


def _list(slugs: list[str], caller: Caller) -> str:
    """The slugs, a line each; as many as fit, and how to see the others."""
    if caller.max_chars is None:
        return "\n".join(f"- {slug}" for slug in slugs)
    lines: list[str] = []
    room = caller.max_chars // 2
    for number, slug in enumerate(slugs):
        room -= len(slug) + 3
        if room < 0:
            more = f"- … and {len(slugs) - number:,} more, from {slug[:NAMED_MOST]!r} on."
            how = "A glob in `subjects` gives some of them; `knowledge_search` finds them by topic."
            return "\n".join([*lines, f"{more} {how}"])
        lines.append(f"- {slug}")
    return "\n".join(lines)


def _left_out(parts: list[str], caller: Caller) -> str:
    """Says which subjects did not fit, and how to get them."""
    lines: list[str] = []
    room = NAMES_MOST - 2 * _NOTE
    for number, part in enumerate(parts):
        room -= len(part) + 3
        if room < 0:
            lines.append(f"- … and {len(parts) - number:,} more, by a narrower glob")
            break
        lines.append(f"- {part}")
    count = "1 subject does" if len(parts) == 1 else f"{len(parts):,} subjects do"
    return "\n".join(
        [
            f"{count} not fit into {caller.max_chars:,} characters. Go on with `learn` and "
            "these in `subjects`, a few at a time:",
            "",
            *lines,
        ]
    )
