"""The pattern bar: an input for a pattern, and the number and size of its matches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from textual.containers import Horizontal, Vertical

from kbtui.errors import UsageError
from kbtui.knowledge.knowledge_lint import explain_pattern_without_match
from kbtui.knowledge.slug_patterns import MAX_PATTERN_CHARACTERS, has_unclosed_glob_bracket
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import format_counted_noun, measure_text_width, sanitize_to_one_line
from kbtui.tui.framework.base_screens_and_widgets import (
    LeftAndRightTextLine,
    TextInputInPane,
    get_configured_keys,
)
from kbtui.tui.framework.styled_text import Spans, measure_cell_width, truncate_spans
from kbtui.tui.framework.tui_command_definition import make_list_movement_bindings_for_focused_input
from kbtui.tui.prompt_workshop.system_prompt_with_unsaved_changes import ZERO_SIZE, PromptTextSize
from kbtui.tui.tui_command_table import find_key_label_of_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult

    from kbtui.knowledge import KnowledgeBase
    from kbtui.tui.prompt_workshop.system_prompt_with_unsaved_changes import SubjectPromptSizes


KNOWLEDGE_FLAGS = ("-k", "--knowledge")


class SubjectPatternWord(NamedTuple):
    """A word of the input without its quotes. `at` is the index of its first character in the input."""

    text: str
    at: int


class SubjectPatternProblem(NamedTuple):
    """An error in the input, or a warning about the input. `at` is the index of the wrong character."""

    message: str
    at: int
    hint: str | None = None
    is_error: bool = True


@dataclass(frozen=True)
class SubjectPatternMatches:
    """The subjects that match the input, which is read as arguments of `learn` or values of the option `-k`.

    * `topic` and `patterns` are the arguments of `learn`.
    * `preloads` are the values of `-k`, the option that pre-loads subjects.
    * `matches` are the matching subjects, as pairs of topic and slug.
    * `size` is the total size of the matching subjects.
    """

    text: str
    topic: str | None = None
    patterns: tuple[str, ...] = ()
    preloads: tuple[str, ...] = ()
    matches: tuple[tuple[str, str], ...] = ()
    size: PromptTextSize = ZERO_SIZE
    problem: SubjectPatternProblem | None = None

    @property
    def is_valid_pattern(self) -> bool:
        """Whether the input contains a pattern that could be parsed."""
        return bool(self.topic or self.preloads)

    @property
    def kbtui_command_arguments(self) -> str:
        """The arguments of the `kbtui` command that prints this result, quoted for a shell."""
        if self.preloads:
            return "prompt " + " ".join(f"-k {quote(value)}" for value in self.preloads)
        return " ".join(["learn", *map(quote, [self.topic or "", *self.patterns])])


def find_subject_pattern_matches(
    text: str, knowledge: KnowledgeBase, subject_sizes: SubjectPromptSizes, selected: str | None
) -> SubjectPatternMatches:
    """Parse the input and find its matches. Patterns without a topic are matched in `selected`."""
    try:
        words = list(_split_pattern_words(text))
        if not words:
            return SubjectPatternMatches(text)
        if any(
            word.text in KNOWLEDGE_FLAGS or word.text.startswith(("--knowledge=", "-k"))
            for word in words
        ):
            return _find_matches_of_knowledge_flags(text, words, knowledge, subject_sizes)
        name, patterns = _split_topic_from_patterns(words, knowledge, selected)
    except _SubjectPatternError as error:
        return SubjectPatternMatches(text, problem=error.problem)
    globs = tuple(word.text for word in patterns)
    matches = tuple((name, slug) for slug in knowledge.list_subject_slugs(name, globs or None))
    size = subject_sizes.sum_subject_sizes(matches)
    problem = _find_pattern_problem(knowledge, name, patterns)
    return SubjectPatternMatches(text, name, globs, (), matches, size, problem)


class _SubjectPatternError(Exception):
    def __init__(self, message: str, at: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.problem = SubjectPatternProblem(message, at, hint)


_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+|["']""")
"""Matches the quotation mark of an unclosed quote, or a word, which can contain quoted parts."""


def _split_pattern_words(text: str) -> Iterator[SubjectPatternWord]:
    """Yield the words of the input with their positions. Spaces inside quotes do not separate words."""
    for match in _WORD.finditer(text):
        if match[0] in "\"'":
            hint = "close the quote or remove it"
            raise _SubjectPatternError("unclosed quote", match.start(), hint)
        word = re.sub(r"""\"([^"]*)"|'([^']*)'""", r"\1\2", match[0])
        yield SubjectPatternWord(word, match.start())


def _split_topic_from_patterns(
    words: list[SubjectPatternWord], knowledge: KnowledgeBase, selected: str | None
) -> tuple[str, list[SubjectPatternWord]]:
    """Return the topic that the patterns begin with, and the patterns without this topic.

    If the patterns contain no topic, return `selected` as the topic.
    """
    name: str | None = None
    patterns = []
    for word in words:
        first, slash, rest = word.text.partition("/")
        if first not in knowledge.topics or not (slash or len(words) == 1):
            patterns.append(word)
            continue
        if name is not None and name != first:
            hint = f"use only patterns of the topic {name}, or put -k before each pattern"
            raise _SubjectPatternError("`learn` takes one topic at a time", word.at, hint)
        name = first
        if rest:
            patterns.append(SubjectPatternWord(rest, word.at + len(first) + 1))
    found = knowledge.topics.get(name or selected or "")
    if found is None:
        topics = ", ".join(topic.id for topic in knowledge.topics.values() if topic.enable)
        known = f"topics: {topics}" if topics else None
        raise _SubjectPatternError("no topic is selected: write TOPIC/GLOB", words[0].at, known)
    if not found.enable:
        message = f"the topic {found.id} is switched off"
        raise _SubjectPatternError(message, words[0].at, "switch the topic on first")
    return found.id, patterns


# patterns of the option -k


def _find_matches_of_knowledge_flags(
    text: str,
    words: list[SubjectPatternWord],
    knowledge: KnowledgeBase,
    subject_sizes: SubjectPromptSizes,
) -> SubjectPatternMatches:
    values = list(_iterate_values_of_knowledge_flags(words))
    matches: dict[tuple[str, str], None] = {}
    problem = None
    for value in values:
        try:
            knowledge.copy_with_preload_options([value.text])
        except UsageError as error:
            raise _SubjectPatternError(error.message, value.at, error.hint) from error
        name, _, pattern = value.text.partition("/")
        learned = knowledge.get_topic_slugs_by_visibility(name).learned_set
        slugs = [
            slug for slug in knowledge.list_subject_slugs(name, [pattern]) if slug not in learned
        ]
        before = len(matches)
        matches |= dict.fromkeys((name, slug) for slug in slugs)
        word = SubjectPatternWord(pattern, value.at + len(name) + 1)
        problem = problem or _find_pattern_problem(knowledge, name, [word])
        if problem is None and len(matches) == before:
            problem = SubjectPatternProblem(
                "all matches are already pre-loaded", word.at, is_error=False
            )
    preloads = tuple(value.text for value in values)
    size = subject_sizes.sum_subject_sizes(matches)
    return SubjectPatternMatches(text, None, (), preloads, tuple(matches), size, problem)


def _iterate_values_of_knowledge_flags(
    words: list[SubjectPatternWord],
) -> Iterator[SubjectPatternWord]:
    """Yield the values of the flags `-k` and `--knowledge`.

    A flag is written as `-k VALUE`, `-kVALUE` or `-k=VALUE`.
    """
    rest = iter(words)
    for word in rest:
        text = word.text
        if text in KNOWLEDGE_FLAGS:
            value = next(rest, None)
            if value is None:
                raise _SubjectPatternError(
                    f"{text} needs a value", word.at, "write TOPIC/GLOB after it"
                )
            yield value
        elif text.startswith("--knowledge="):
            yield SubjectPatternWord(
                text.removeprefix("--knowledge="), word.at + len("--knowledge=")
            )
        elif text.startswith("-k"):
            yield SubjectPatternWord(text[2:].removeprefix("="), word.at + 2)
        else:
            hint = "write -k before each pattern"
            raise _SubjectPatternError("this pattern needs -k too", word.at, hint)


def _find_pattern_problem(
    knowledge: KnowledgeBase, topic: str, patterns: list[SubjectPatternWord]
) -> SubjectPatternProblem | None:
    """Return the first problem with the patterns, such as a pattern that matches nothing, or None."""
    resolved = knowledge.get_topic_slugs_by_visibility(topic)
    for word in patterns:
        pattern = word.text
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            message = f"the pattern has {len(pattern):,} characters; no slug is that long"
            return SubjectPatternProblem(message, word.at)
        is_unclosed = has_unclosed_glob_bracket(pattern)
        at = word.at + max(0, pattern.find("[")) if is_unclosed else word.at
        if not resolved.list_matching_slugs([pattern]):
            return SubjectPatternProblem(
                "nothing matches", at, explain_pattern_without_match(resolved, pattern)
            )
        if is_unclosed and not resolved.is_enabled_slug(pattern):
            return SubjectPatternProblem(
                "the [ without ] matches only the character [", at, is_error=False
            )
    return None


# the line where a pattern is typed


class SubjectPatternInput(TextInputInPane):
    """The input for a pattern. While it has the focus, the arrow keys move the selection in the list."""

    BINDINGS = make_list_movement_bindings_for_focused_input("screen.move_in_list")


class SubjectPatternInputBar(Vertical):
    """An input for a pattern, with a line below it.

    The line shows the result or a problem. In the case of a problem, a `^` is shown below the wrong
    character.
    """

    def __init__(self) -> None:
        super().__init__(id="trying")
        self.input = SubjectPatternInput(
            id="pattern", placeholder="try a pattern: TOPIC/GLOB, such as guide/s*", compact=True
        )
        self._result_line = LeftAndRightTextLine(id="problem")
        self._label_cells = 4
        """The width of the label before the input, in cells."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="pattern-line"):
            key = find_key_label_of_command("workshop.try", get_configured_keys(self)) or "no key"
            sign = LeftAndRightTextLine(id="pattern-sign")
            sign.left = [(key, "key")]
            self._label_cells = 3 + measure_cell_width(sign.left)
            sign.styles.width = self._label_cells
            yield sign
            yield self.input
        yield self._result_line

    def show_pattern_result(self, result: SubjectPatternMatches, outcome: str) -> None:
        """Show the result of a pattern, or the problem with the pattern.

        The left side shows the problem, or the command that prints the result if there is no problem.
        The right side shows the number of matches and `outcome`, which says how large the matches are,
        or how much they change the size of the prompt.
        """
        self._result_line.display = bool(result.text.strip())
        if not self._result_line.display:
            return
        count, problem = len(result.matches), result.problem
        right: Spans = []
        if result.is_valid_pattern and not (problem and problem.is_error and not count):
            right = [(format_counted_noun(count, "subject"), "strong"), (f", {outcome}", "")]
        if problem is None:
            command = f"{' ' * self._label_cells}kbtui {sanitize_to_one_line(result.kbtui_command_arguments)}"
            self._result_line.set_edge_texts([(command, "dim")], right)
            return
        width = self.size.width - sum(measure_text_width(text) + 1 for text, _ in right)
        position = self._label_cells + measure_text_width(result.text[: problem.at])
        column = max(0, position - round(self.input.scroll_x))
        self._result_line.set_edge_texts(_format_problem_with_caret(problem, column, width), right)


def _format_problem_with_caret(problem: SubjectPatternProblem, column: int, width: int) -> Spans:
    """Return a line with a `^` in `column` and the description of a problem.

    The description is to the right of the `^` if it fits there, or else to its left.
    """
    text = sanitize_to_one_line(problem.message + (f"; {problem.hint}" if problem.hint else ""))
    role = "error" if problem.is_error else "warning"
    size = measure_text_width(text)
    if column + 2 + size <= width or column < size + 1:
        indent = " " * min(column, max(0, width - 2))
        return truncate_spans([(indent, ""), ("^ ", role), (text, role)], width)
    return [(" " * (column - size - 1), ""), (f"{text} ^", role)]
