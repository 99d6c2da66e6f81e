"""Formats the answers of the tool `learn`."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.knowledge.knowledge_data_types import LearnToolResult
from kbtui.knowledge.subject_files import (
    SKIPPED_SUBJECT,
    add_final_newline,
    fence_file_text_unless_prose,
    format_note_replacing_unreadable_subject,
    read_subject_text,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import make_subject_ref, split_slug_and_line_range
from kbtui.terminal_text import format_counted_noun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbtui.knowledge.knowledge_data_types import Subject, Topic
    from kbtui.knowledge.subject_visibility import SubjectSlugsByVisibility

MAX_ARGUMENT_CHARACTERS = 300
MAX_NAMES_CHARACTERS = 4_000
"""The maximum length, in characters, of the list of subjects that do not fit into an answer."""
_NAMES_SHARE = 3
"""The list of subjects that do not fit gets at most 1/`_NAMES_SHARE` of the characters of an answer."""
_NOTE_CHARACTERS = 150
"""The number of characters reserved for a note about omitted text, not counting the names in the note."""
MAX_SUGGESTED_TOPICS = 3
_MAX_PATTERNS = 20

_AVAILABLE = "## Available subjects:"
_USE = "Use the `learn` tool with the `subjects` argument to learn specific subjects."

_ALREADY_LEARNED = '"{}" is already in the system prompt.'
_EVERYTHING_LEARNED = 'Everything that matches "{}" is already in the system prompt.'
_NO_MATCH = 'Nothing matches "{}".'
_NO_MATCH_IN_TOPIC = 'Nothing in topic "{}" matches {}.'
_NOTES = (_ALREADY_LEARNED, _EVERYTHING_LEARNED, _NO_MATCH, _NO_MATCH_IN_TOPIC, SKIPPED_SUBJECT)
_NOTE_PATTERNS = [re.escape(note.replace("{}", "\0")).replace("\0", "[^\n]+") for note in _NOTES]
ANSWER_WITHOUT_TEXT = re.compile(rf"\s*(?:{'|'.join(_NOTE_PATTERNS)})\s*(?:\Z|</subject>)")
"""Matches an answer from `learn` that contains only a remark, and not the text of a subject.

Such a remark also matches between the tags of a subject. If the wording of a remark changes, keep
the old wording in `_NOTES`, because stored conversations contain it.
"""


class PropertiesOfLearnCaller(NamedTuple):
    """The properties of a caller that determine how `learn` answers.

    * `has_prompt`: whether the caller's prompt already contains the pre-loaded subjects
    * `max_chars`: the maximum length of an answer in characters; None means no limit
    * `masked`: whether secrets in the answer are masked
    """

    has_prompt: bool = False
    max_chars: int | None = None
    masked: bool = False

    @property
    def max_characters_of_omitted_list(self) -> int:
        """The maximum length, in characters, of the list of subjects whose texts do not fit."""
        if self.max_chars is None:
            return MAX_NAMES_CHARACTERS
        return min(MAX_NAMES_CHARACTERS, self.max_chars // _NAMES_SHARE)

    def list_slugs_in_caller_prompt(self, resolved: SubjectSlugsByVisibility) -> frozenset[str]:
        """Return the slugs of the subjects that the caller's prompt already contains."""
        return resolved.learned_set if self.has_prompt else frozenset()

    def list_offered_slugs(self, resolved: SubjectSlugsByVisibility) -> list[str]:
        """Return the slugs that a listing offers to the caller."""
        learned = frozenset() if self.has_prompt else resolved.learned_set
        return sorted(learned.union(resolved.available))

    def mask_secrets_if_requested(self, text: str) -> str:
        """Return `text`, with its secrets masked if `masked` is true."""
        if not self.masked:
            return text
        from kbtui import secret_detection

        return secret_detection.mask_secrets(text)


class SubjectOrLineRange(NamedTuple):
    """A subject, or a range of its lines."""

    slug: str
    lines: tuple[int, int] | None = None

    def __str__(self) -> str:
        return str(make_subject_ref("", self.slug, self.lines))[1:]


def find_enabled_topic(topics: Iterable[Topic], name: str) -> Topic:
    """Return the enabled topic with the id `name` or, if there is none, with the title `name`.

    Raises `NothingFound` if neither exists.
    """
    valid = [topic for topic in topics if topic.enable]
    by_id = [topic for topic in valid if topic.id == name]
    by_title = [
        topic for topic in valid if topic.title and topic.title.casefold() == name.casefold()
    ]
    if found := by_id or by_title:
        return found[0]
    if not valid:
        raise NothingFound(f'Unknown topic "{shorten_argument(name)}". There are no topics.')
    titles = [f" ({topic.title})" if topic.title else "" for topic in valid]
    lines = [f"- {topic.id}{title}" for topic, title in zip(valid, titles, strict=True)]
    unknown = f'Unknown topic "{shorten_argument(name)}"'
    brief = f"{unknown} ({suggest_similar_topics(name, [topic.id for topic in valid])})"
    raise NothingFound("\n".join([f"{unknown}.\n\nValid topics:\n", *lines]), brief=brief)


def suggest_similar_topics(name: str, topics: list[str]) -> str:
    """Return a hint that lists the topics most similar to `name`.

    If no topic is similar, the hint lists the first topics.
    """
    from difflib import get_close_matches

    if not topics:
        return "no topics are configured"
    near = get_close_matches(name.casefold(), topics, n=MAX_SUGGESTED_TOPICS, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = len(topics) - MAX_SUGGESTED_TOPICS
    others = f" and {more:,} more" if more > 0 else ""
    return f"topics: {', '.join(topics[:MAX_SUGGESTED_TOPICS])}{others}"


def format_subject_listing(
    resolved: SubjectSlugsByVisibility, caller: PropertiesOfLearnCaller
) -> str:
    """Return the answer from `learn` to a call without `subjects`: a list of the topic's subjects."""
    topic = resolved.topic
    blocks = [f"# Topic: {topic.name}"]
    if topic.description and topic.description.strip():
        blocks.append(topic.description.rstrip())
    available = caller.list_offered_slugs(resolved)
    given = sorted(caller.list_slugs_in_caller_prompt(resolved))
    if available:
        blocks += [_AVAILABLE, _format_slugs_one_per_line(available, caller), _USE]
    elif not given:
        blocks.append("No subjects are available.")
    if given:
        blocks += [
            "## Already learned (in system prompt):",
            _format_slugs_one_per_line(given, caller),
        ]
    return caller.mask_secrets_if_requested("\n\n".join(blocks))


def answer_learn_call_with_patterns(
    resolved: SubjectSlugsByVisibility,
    patterns: list[str],
    subject: Callable[[str], Subject],
    caller: PropertiesOfLearnCaller,
) -> LearnToolResult:
    """Return the answer from the tool `learn` to a call with `patterns`.

    A pattern is a slug, a glob, or a slug with line numbers, such as `slug:3-12`. The function
    `subject` returns the subject with a given slug.
    """
    given = caller.list_slugs_in_caller_prompt(resolved)
    try:
        exact = {
            pattern: _parse_pattern_as_slug_or_lines(resolved, pattern) for pattern in patterns
        }
    except UsageError as error:
        name = shorten_argument(error.where or "")
        return LearnToolResult(f'"{name}": {error.message}.', is_error=True)
    if len(patterns) == 1 and (one := exact[patterns[0]]) is not None:
        if one.slug in given:
            return LearnToolResult(_ALREADY_LEARNED.format(one.slug))
        try:
            record = subject(one.slug)
            return LearnToolResult(
                _format_text_of_subject_or_lines(record, one, caller, caller.max_chars)
            )
        except KbtuiError as error:
            return LearnToolResult(
                format_note_replacing_unreadable_subject(error, one.slug), is_error=True
            )
    # If a subject is already in the prompt, the answer to its exact slug says so; a glob skips it.
    wanted: dict[SubjectOrLineRange, None] = {}
    missing, exhausted = [], []
    for pattern in patterns:
        if (one := exact[pattern]) is not None:
            wanted[one] = None
            continue
        matches = resolved.list_matching_slugs([pattern])
        if not matches:
            missing.append(pattern)
        elif given.issuperset(matches):
            exhausted.append(pattern)
        new = [SubjectOrLineRange(slug) for slug in matches if slug not in given]
        wanted.update(dict.fromkeys(new))
    blocks, left, failed = _format_subject_blocks(list(wanted), given, subject, caller)
    blocks += [_EVERYTHING_LEARNED.format(shorten_argument(pattern)) for pattern in exhausted]
    if not blocks:
        return LearnToolResult(_format_no_match_error(resolved, missing, caller), is_error=True)
    blocks += [_NO_MATCH.format(shorten_argument(pattern)) for pattern in missing]
    is_error = failed == len(blocks)
    if left:
        blocks.append(_format_omitted_subjects(list(map(str, left)), caller))
    return LearnToolResult("\n\n".join(blocks), is_error)


def _format_subject_blocks(
    wanted: list[SubjectOrLineRange],
    given: frozenset[str],
    subject: Callable[[str], Subject],
    caller: PropertiesOfLearnCaller,
) -> tuple[list[str], list[SubjectOrLineRange], int]:
    """Return as many texts of wanted subjects as fit into an answer, each between tags.

    The result also contains the subjects that do not fit, and the count of unreadable subjects.
    `given` contains the slugs of subjects that the caller already has; a note replaces their texts.
    """
    room = (
        None
        if caller.max_chars is None
        else caller.max_chars - caller.max_characters_of_omitted_list
    )
    blocks: list[str] = []
    failed = 0
    for number, part in enumerate(wanted):
        if part.slug in given:
            text = _ALREADY_LEARNED.format(part.slug)
        else:
            try:
                limit = None if blocks else room
                text = _format_text_of_subject_or_lines(subject(part.slug), part, caller, limit)
            except KbtuiError as error:
                text = format_note_replacing_unreadable_subject(error, part.slug)
                failed += 1
        block = wrap_subject_in_tags(str(part), text)
        if room is not None:
            # The first subject is always included, and shortened if necessary.
            if blocks and len(block) > room:
                return blocks, wanted[number:], failed
            room -= len(block) + 2
        blocks.append(block)
    return blocks, [], failed


def _parse_pattern_as_slug_or_lines(
    resolved: SubjectSlugsByVisibility, pattern: str
) -> SubjectOrLineRange | None:
    """If a pattern is a slug, with or without line numbers, return the subject or lines that it names, else None.

    Raises `UsageError` if the line numbers are invalid.
    """
    if resolved.is_enabled_slug(pattern):
        return SubjectOrLineRange(pattern)
    if not resolved.is_enabled_slug(pattern.rpartition(":")[0]):
        return None
    slug, lines = split_slug_and_line_range(pattern)
    return None if lines is None else SubjectOrLineRange(slug, lines)


def _format_text_of_subject_or_lines(
    subject: Subject, part: SubjectOrLineRange, caller: PropertiesOfLearnCaller, room: int | None
) -> str:
    """Return a subject or some of its lines in at most `room` characters.

    If the text is cut, a note says where.
    """
    text = read_subject_text(subject)
    starts = [0, *(newline.end() for newline in re.finditer(r"\n(?!\Z)", text)), len(text)]
    count = len(starts) - 1
    first, last = part.lines or (1, count)
    last = min(last, count)
    if first > count:
        lines = format_counted_noun(count, "line")
        raise NothingFound(f"there is no line {first:,}: the subject has {lines}")
    from kbtui import secret_detection  # imported late: compiling its patterns is slow

    hidden = secret_detection.find_secrets(text) if caller.masked else []
    start = starts[first - 1]

    def format_lines_until(end: int) -> str:
        plain = secret_detection.mask_secrets_in_text_part(text, start, end, hidden)
        return fence_file_text_unless_prose(plain, subject.relative)

    shown = format_lines_until(starts[last])
    if room is None or len(shown) <= room:
        return shown
    topic, slug = shorten_argument(subject.topic), shorten_argument(part.slug)
    room = max(_NOTE_CHARACTERS, room - _NOTE_CHARACTERS - len(topic) - len(slug))
    ends = starts[first : last + 1]
    final = first + max(
        0, bisect_right(ends, room, key=lambda end: len(format_lines_until(end))) - 1
    )
    note = f"Lines {first:,} to {final:,} of {count:,}."
    shown = format_lines_until(starts[final])
    if len(shown) > room:
        size, keep = starts[final] - start, room
        while len(shown := format_lines_until(start + keep)) > room:
            keep -= max(1, len(shown) - room)
        note = f"Line {first:,} of {count:,}, cut after {keep:,} of its {size:,} characters."
    if final < last:
        rest = shorten_argument(str(SubjectOrLineRange(part.slug, (final + 1, last))))
        note += f' Continue with `learn`: topic "{topic}", subjects "{rest}".'
    return f"{add_final_newline(shown)}\n[{note}]\n"


def wrap_subject_in_tags(slug: str, text: str) -> str:
    """Return the text of a subject between the tags `<subject "SLUG">` and `</subject>`."""
    return f'<subject "{escape_quotes_as_entities(slug)}">\n{add_final_newline(text)}</subject>'


def escape_quotes_as_entities(name: str) -> str:
    """Return a title or slug in which `&quot;` replaces each double quote."""
    return name.replace('"', "&quot;")


def shorten_argument(argument: str) -> str:
    """Cut an argument to `MAX_ARGUMENT_CHARACTERS`, so that a message can quote it."""
    is_long = len(argument) > MAX_ARGUMENT_CHARACTERS
    return argument[:MAX_ARGUMENT_CHARACTERS] + "…" if is_long else argument


def _format_no_match_error(
    resolved: SubjectSlugsByVisibility, patterns: list[str], caller: PropertiesOfLearnCaller
) -> str:
    """Return the error for patterns that match nothing. It also lists the available subjects."""
    named = ", ".join(f'"{shorten_argument(pattern)}"' for pattern in patterns[:_MAX_PATTERNS])
    blocks = [_NO_MATCH_IN_TOPIC.format(resolved.topic.name, named)]
    available = caller.list_offered_slugs(resolved)
    if available:
        blocks += [_AVAILABLE, _format_slugs_one_per_line(available, caller)]
    else:
        blocks.append("No subjects are available.")
    return caller.mask_secrets_if_requested("\n\n".join(blocks))


def _format_slugs_one_per_line(slugs: list[str], caller: PropertiesOfLearnCaller) -> str:
    """Return the slugs, one per line.

    If not all slugs fit, the last line says how many are left out.
    """
    lines = _list_fitting_names(slugs, caller.max_chars and caller.max_chars // 2)
    if left := slugs[len(lines) :]:
        lines.append(
            f"- … and {len(left):,} more, from {left[0][:MAX_ARGUMENT_CHARACTERS]!r} on. Use a glob "
            "in `subjects` to load some of them, or `knowledge_search` to find them."
        )
    return "\n".join(lines)


def _format_omitted_subjects(parts: list[str], caller: PropertiesOfLearnCaller) -> str:
    """Return the note that lists `parts`, the subjects that did not fit into the answer."""
    # The note and its last line also take room.
    lines = _list_fitting_names(
        parts, max(0, caller.max_characters_of_omitted_list - 2 * _NOTE_CHARACTERS)
    )
    if left := parts[len(lines) :]:
        lines.append(f"- … and {len(left):,} more: use a narrower glob")
    count = format_counted_noun(len(parts), "subject was", "subjects were")
    note = (
        f"{count} left out, because the answer has at most {caller.max_chars:,} characters. To load them, "
        "call `learn` again with a few of these names in `subjects`:"
    )
    return "\n".join([note, "", *lines])


def _list_fitting_names(names: list[str], room: int | None) -> list[str]:
    """Return the first names that fit into `room` characters, each as a line of a list."""
    sizes = accumulate(len(name) + 3 for name in names)
    count = sum(room is None or size <= room for size in sizes)
    return [f"- {name}" for name in names[:count]]
