"""Patterns to try: what a glob or `-k TOPIC/GLOB` matches and costs, and the line where it is typed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input

from kbtui.errors import UsageError
from kbtui.knowledge.lint import explain_dead_pattern
from kbtui.knowledge.visibility import MAX_PATTERN_CHARACTERS, has_unclosed_bracket
from kbtui.text import count_columns, one_line
from kbtui.tui.commands import own_key
from kbtui.tui.framework.styled_text import cell_width, truncate_spans
from kbtui.tui.framework.styled_widget import configured_keys
from kbtui.tui.framework.text_widgets import PaneInput, TextLine
from kbtui.tui.reader.document import format_count
from kbtui.tui.workshop.prompt_state import NOTHING, Cost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.models import Topic
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.workshop.prompt_state import Costs


FLAGS = ("-k", "--knowledge")


@dataclass(frozen=True)
class PatternWord:
    """A word of the input, without its quotes, and where it begins."""

    text: str
    at: int


@dataclass(frozen=True)
class PatternRemark:
    """Something about a place in the input; `wrong` where the input cannot be used so."""

    message: str
    at: int
    hint: str | None = None
    wrong: bool = True


@dataclass(frozen=True)
class PatternResult:
    """What one typed, understood: a call of `learn`, or what `-k` would pre-load.

    `matches` are pairs of topic and slug; `cost` is theirs, a guess until the
    text itself was made.
    """

    text: str
    topic: str | None = None
    patterns: tuple[str, ...] = ()
    preloads: tuple[str, ...] = ()
    matches: tuple[tuple[str, str], ...] = ()
    cost: Cost = NOTHING
    remark: PatternRemark | None = None

    @property
    def usable(self) -> bool:
        """Whether it can be shown what comes of it."""
        return bool(self.topic or self.preloads)

    @property
    def call(self) -> str:
        """The command of kbtui that prints the same, as a shell takes it."""
        if self.preloads:
            return "prompt " + " ".join(f"-k {quote(value)}" for value in self.preloads)
        return " ".join(["learn", *map(quote, [self.topic or "", *self.patterns])])


def attempt(text: str, knowledge: Knowledge, costs: Costs, selected: str | None) -> PatternResult:
    """Understand what one typed; `selected` is the topic that a bare pattern is meant for."""
    try:
        words = list(_words(text))
        if any(_is_flag(word.text) for word in words):
            return _preload(PatternResult(text), words, knowledge, costs)
        return _learn(PatternResult(text), words, knowledge, costs, selected)
    except _Mistake as mistake:
        return PatternResult(text, remark=mistake.remark)


class _Mistake(Exception):
    def __init__(self, message: str, at: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.remark = PatternRemark(message, at, hint)


def _words(text: str) -> Iterator[PatternWord]:
    """The words between spaces; quotes hold a word with spaces together."""
    position, size = 0, len(text)
    while position < size:
        if text[position].isspace():
            position += 1
            continue
        start, parts = position, ""
        while position < size and not text[position].isspace():
            if text[position] in "\"'":
                end = text.find(text[position], position + 1)
                if end < 0:
                    raise _Mistake("this quote has no end", position, "close it, or take it away")
                parts += text[position + 1 : end]
                position = end + 1
            else:
                parts += text[position]
                position += 1
        yield PatternWord(parts, start)


def _is_flag(word: str) -> bool:
    return word in FLAGS or word.startswith(("--knowledge=", "-k"))


def _known(knowledge: Knowledge) -> list[str]:
    return [topic.id for topic in knowledge.topics.values() if topic.enable]


# what `learn` would return


def _learn(
    trial: PatternResult,
    words: list[PatternWord],
    knowledge: Knowledge,
    costs: Costs,
    selected: str | None,
) -> PatternResult:
    if not words:
        return trial
    topic, patterns = _addressed(words, knowledge, selected)
    name = topic.id
    slugs = knowledge.slugs(name, [word.text for word in patterns] or None)
    return replace(
        trial,
        topic=name,
        patterns=tuple(word.text for word in patterns),
        matches=tuple((name, slug) for slug in slugs),
        cost=costs.total(name, slugs),
        remark=_remark(knowledge, name, patterns),
    )


def _addressed(
    words: list[PatternWord], knowledge: Knowledge, selected: str | None
) -> tuple[Topic, list[PatternWord]]:
    """The topic and its patterns: `TOPIC/GLOB` names it, else the selected one is meant."""
    name: str | None = None
    patterns = []
    for word in words:
        first, slash, rest = word.text.partition("/")
        own = first if first in knowledge.topics and (slash or _lone(words, word)) else None
        if own is not None and name is not None and own != name:
            raise _Mistake(
                "`learn` takes one topic at a time", word.at, f"write {name}/…, or use -k for each"
            )
        if own is not None:
            name = own
            if rest:
                patterns.append(PatternWord(rest, word.at + len(first) + 1))
        else:
            patterns.append(word)
    name = name or selected
    if name is None or name not in knowledge.topics:
        hint = "topics: " + ", ".join(_known(knowledge)) if _known(knowledge) else None
        raise _Mistake("write TOPIC/GLOB: no topic is selected", words[0].at, hint)
    topic = knowledge.topics[name]
    if not topic.enable:
        raise _Mistake(f"the topic {name} is switched off", words[0].at, "e switches it on")
    return topic, patterns


def _lone(words: list[PatternWord], word: PatternWord) -> bool:
    return len(words) == 1 and words[0] is word


# what -k would pre-load


def _preload(
    trial: PatternResult, words: list[PatternWord], knowledge: Knowledge, costs: Costs
) -> PatternResult:
    values = list(_values(words))
    matches: dict[tuple[str, str], None] = {}
    remark, cost = None, NOTHING
    for value in values:
        try:
            knowledge.with_preloaded([value.text])
        except UsageError as error:
            raise _Mistake(error.message, value.at, error.hint) from error
        name, _, pattern = value.text.partition("/")
        slugs = [
            slug
            for slug in knowledge.slugs(name, [pattern])
            if slug not in knowledge.resolve(name).learned_set and (name, slug) not in matches
        ]
        matches.update(((name, slug), None) for slug in slugs)
        cost = cost.plus(costs.total(name, slugs))
        word = PatternWord(pattern, value.at + len(name) + 1)
        remark = remark or _remark(knowledge, name, [word])
        if remark is None and not slugs:
            remark = PatternRemark("all of it is pre-loaded already", word.at, wrong=False)
    return replace(
        trial,
        preloads=tuple(value.text for value in values),
        matches=tuple(matches),
        cost=cost,
        remark=remark,
    )


def _values(words: list[PatternWord]) -> Iterator[PatternWord]:
    """The values of the flags, as a command line has them: apart, joined or after `=`."""
    rest = iter(words)
    for word in rest:
        text = word.text
        if text in FLAGS:
            value = next(rest, None)
            if value is None:
                raise _Mistake(f"{text} needs a value", word.at, "write TOPIC/GLOB after it")
            yield value
        elif text.startswith("--knowledge="):
            yield PatternWord(text.removeprefix("--knowledge="), word.at + len("--knowledge="))
        elif text.startswith("-k"):
            yield PatternWord(text[2:].removeprefix("="), word.at + 2)
        else:
            raise _Mistake("a pattern among -k values", word.at, "write -k before it")


# what is odd about a pattern


def _remark(knowledge: Knowledge, topic: str, patterns: list[PatternWord]) -> PatternRemark | None:
    """What to say about patterns that cannot do what they look like."""
    resolved = knowledge.resolve(topic)
    for word in patterns:
        pattern = word.text
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            return PatternRemark(f"longer than any slug: {len(pattern):,} characters", word.at)
        open_at = word.at + max(0, pattern.find("[")) if has_unclosed_bracket(pattern) else word.at
        if not resolved.match([pattern]):
            return PatternRemark(
                "nothing matches", open_at, explain_dead_pattern(resolved, pattern)
            )
        if has_unclosed_bracket(pattern) and not resolved.has_exact(pattern):
            return PatternRemark("this [ has no ], so it stands for itself", open_at, wrong=False)
    return None


class PatternInput(PaneInput):
    """The input; arrows move in the list without leaving it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+n", "screen.entries('down')", show=False),
        Binding("up", "screen.entries('up')", show=False),
        Binding("pagedown", "screen.entries('scroll_pages', 1)", show=False),
        Binding("pageup", "screen.entries('scroll_pages', -1)", show=False),
    ]


class PatternBar(Vertical):
    """Says what is typed, and shows what comes of it."""

    class Typed(Message):
        """The pattern is another one."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Done(Message):
        """One wants to go to what it matches."""

    def __init__(self) -> None:
        super().__init__(id="trying")
        self.input = PatternInput(
            id="pattern",
            placeholder="a glob, TOPIC/GLOB, or -k TOPIC/GLOB as on the command line",
            compact=True,
        )
        self._remark = TextLine(id="remark")
        self._label = 4
        """Columns before the input."""

    def compose(self) -> ComposeResult:
        """The input and the line under it."""
        with Horizontal(id="pattern-line"):
            sign = TextLine(id="pattern-sign")
            sign.left = [(own_key("workshop.try", configured_keys(self)) or "no key", "key")]
            self._label = 3 + cell_width(sign.left)
            sign.styles.width = self._label
            yield sign
            yield self.input
        yield self._remark

    @property
    def said(self) -> str:
        """What the line under the input says."""
        return self._remark.text

    @on(Input.Changed, "#pattern")
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(event.value))

    @on(Input.Submitted, "#pattern")
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Done())

    def clear(self) -> None:
        """Try nothing."""
        self.input.value = ""
        self._remark.set_text([])

    def show(self, trial: PatternResult, outcome: str) -> None:
        """Say what a trial comes to, or point at where it is wrong."""
        if not trial.text.strip():
            self._remark.set_text([])
            return
        count = len(trial.matches)
        right: Spans = []
        if trial.usable:
            right = [(format_count(count, "subject"), "strong"), (f", {outcome}", "")]
        remark = trial.remark
        if remark is None:
            self._remark.set_text(
                [(f"{' ' * self._label}kbtui {one_line(trial.call)}", "dim")], right
            )
            return
        if remark.wrong and not count:
            right = []
        room = self.size.width - sum(count_columns(text) + 1 for text, _ in right)
        self._remark.set_text(pointing(remark, self._column(trial.text, remark.at), room), right)

    def _column(self, text: str, at: int) -> int:
        """The column under the character `at` of the input."""
        return max(0, self._label + count_columns(text[:at]) - round(self.input.scroll_x))


def pointing(remark: PatternRemark, column: int, width: int) -> Spans:
    """A remark with `^` in a column, its words at the side where they fit."""
    words = one_line(remark.message + (f"; {remark.hint}" if remark.hint else ""))
    role = "error" if remark.wrong else "warning"
    size = count_columns(words)
    if column + 2 + size <= width or column < size + 1:
        return truncate_spans(
            [(" " * min(column, max(0, width - 2)), ""), ("^ ", role), (words, role)], width
        )
    return [(" " * (column - size - 1), ""), (f"{words} ^", role)]
