"""The state of the prompt: what texts cost, what is marked, and what the marks would change."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.knowledge import read_subject
from kbtui.knowledge.prompt import estimate_tokens
from kbtui.tui.reader.document import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.models import PromptFragment, Subject, SubjectMark
    from kbtui.library import Library


READ_MOST = 1_000_000
"""Bytes of the largest subject that is read only to count its characters."""
READ_ALL_MOST = 256 * 1024 * 1024
"""Bytes that are read for counting in all; sizes tell about the rest."""
TELL_EVERY = 400
"""Subjects counted between two progress reports."""


class Cost(NamedTuple):
    """Characters and estimated tokens; `about` where they are guessed from a file's size."""

    characters: int = 0
    tokens: int = 0
    about: bool = False

    def plus(self, other: Cost) -> Cost:
        """Both together."""
        return Cost(
            self.characters + other.characters,
            self.tokens + other.tokens,
            self.about or other.about,
        )

    def short(self, *, exact: bool = True) -> str:
        """`1,204 ≈ 301`, else `1.2k ≈ 301` in columns; with `~` before a guess."""
        sign = "~" if self.about else ""
        if exact:
            return f"{sign}{self.characters:,} ≈ {self.tokens:,}"
        return f"{sign + format_size(self.characters):>5} ≈ {format_size(self.tokens):<5}"

    @property
    def long(self) -> str:
        """`1,204 characters ≈ 301 tokens`."""
        about = "about " if self.about else ""
        return f"{about}{self.characters:,} characters ≈ {self.tokens:,} tokens"


NOTHING = Cost()


def cost_of(text: str | None) -> Cost:
    """What a text costs; nothing where there is none."""
    return Cost(len(text), estimate_tokens(text)) if text else NOTHING


def growth(before: Cost, after: Cost, *, words: bool = True) -> str:
    """`+3,120 characters ≈ 780 tokens`, else `+3,120 ≈ 780`; empty where nothing changed."""
    letters = after.characters - before.characters
    tokens = after.tokens - before.tokens
    if not letters and not tokens:
        return ""
    # One sign for both, unless other letters made more of the one and less of the other.
    second = f"{abs(tokens):,}" if letters * tokens >= 0 else _signed(tokens)
    if not words:
        return f"{_signed(letters)} ≈ {second}"
    return f"{_signed(letters)} characters ≈ {second} tokens"


def _signed(number: int) -> str:
    return f"{'−' if number < 0 else '+'}{abs(number):,}"


class Costs:
    """The costs of subjects as far as they are known, and why some have none.

    Written by one thread and read by others: entries are only ever replaced.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Cost] = {}
        self._versions: dict[tuple[str, str], tuple[int, int]] = {}
        self.unreadable: dict[tuple[str, str], str] = {}
        """Why a subject cannot be given, in the words that `learn` has for it."""

    def clear(self) -> None:
        """Forget everything."""
        self._known, self._versions, self.unreadable = {}, {}, {}

    def get(self, topic: str, slug: str) -> Cost | None:
        """What a subject costs; None while it is not known."""
        return self._known.get((topic, slug))

    def total(self, topic: str, slugs: Iterable[str]) -> Cost:
        """What subjects of a topic cost together; a guess while one of them is not counted."""
        letters = tokens = 0
        about = False
        for slug in slugs:
            cost = self._known.get((topic, slug))
            if cost is None:
                about = True
                continue
            letters += cost.characters
            tokens += cost.tokens
            about = about or cost.about
        return Cost(letters, tokens, about)

    def measure(self, knowledge: Knowledge, wanted: Callable[[], bool]) -> Iterable[int]:
        """Count every subject; in a thread. Yields, now and then, how many are left.

        Files of the same size and time as before are not read again; guesses
        from sizes come first. Ends early when `wanted` says no.
        """
        todo: list[Subject] = []
        passing = knowledge.with_marks(())  # a copy, so that no records stay behind
        for topic in passing.topics:
            for subject in passing.subjects(topic):
                key = (topic, subject.slug)
                version = (subject.size, subject.mtime_ns)
                if self._versions.get(key) != version:
                    self._known[key] = Cost(subject.size, (subject.size + 3) // 4, about=True)
                    todo.append(subject)
        del passing
        yield len(todo)
        allowed = READ_ALL_MOST
        for number, subject in enumerate(todo, 1):
            if subject.size <= min(READ_MOST, allowed):
                allowed -= subject.size
                self.count(subject)
            if number % TELL_EVERY == 0:
                if not wanted():
                    return
                yield len(todo) - number
        yield 0

    def count(self, subject: Subject) -> None:
        """Read one subject and remember what it costs."""
        key = (subject.topic, subject.slug)
        try:
            self._known[key] = cost_of(read_subject(subject))
            self.unreadable.pop(key, None)
        except KbtuiError as error:
            self._known[key] = NOTHING
            self.unreadable[key] = error.message
        self._versions[key] = (subject.size, subject.mtime_ns)


class Sums:
    """Costs of many subjects of a topic by any beginning that their slugs share."""

    def __init__(self, slugs: list[str], costs: list[Cost | None]) -> None:
        self._slugs = slugs
        self._characters = [0, *accumulate(cost.characters if cost else 0 for cost in costs)]
        self._tokens = [0, *accumulate(cost.tokens if cost else 0 for cost in costs)]
        self._guesses = [0, *accumulate(cost is None or cost.about for cost in costs)]

    def below(self, prefix: str = "") -> tuple[int, Cost]:
        """How many subjects have slugs that begin so, and what they cost."""
        first = bisect_left(self._slugs, prefix) if prefix else 0
        last = bisect_left(self._slugs, prefix + chr(0x10FFFF)) if prefix else len(self._slugs)
        return last - first, Cost(
            self._characters[last] - self._characters[first],
            self._tokens[last] - self._tokens[first],
            self._guesses[last] > self._guesses[first],
        )


def sums_of(knowledge: Knowledge, costs: Costs) -> dict[str, Sums]:
    """For each topic the sums over what may be seen of it."""
    return {
        topic: Sums(visible, [costs.get(topic, slug) for slug in visible])
        for topic in knowledge.topics
        for visible in [knowledge.resolve(topic).visible]
    }


State = Literal["learned", "disabled", "plain", "on", "off"]
"""Of a subject: "plain", "learned" or "disabled"; of a topic: "on" or "off"."""


class Marks:
    """What a person marked and did not write yet, in the order of marking."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str | None], SubjectMark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def all(self) -> tuple[SubjectMark, ...]:
        """The marks, as `Knowledge.with_marks` takes them."""
        return tuple(self._marks.values())

    def of(self, topic: str, slug: str | None) -> SubjectMark | None:
        """The mark on a subject, or on a topic (`slug` None)."""
        return self._marks.get((topic, slug))

    def toggle(self, mark: SubjectMark, now: State, written: State, otherwise: State) -> None:
        """Set a mark; where it is so already, go back to what is `written`.

        `now` is the state before, marks included. Where the files themselves say
        what the mark says, `otherwise` is what taking it back means.
        """
        wanted: State = mark.state
        if now == wanted:
            wanted = otherwise if written == wanted else written
        self._marks.pop((mark.topic, mark.slug), None)
        if wanted != written:
            self._marks[mark.topic, mark.slug] = replace(mark, state=wanted)

    def drop(self, mark: SubjectMark) -> None:
        """Take a mark back."""
        if self._marks.get((mark.topic, mark.slug)) == mark:
            del self._marks[mark.topic, mark.slug]

    def clear(self) -> None:
        """Take all marks back."""
        self._marks.clear()


def state_of(knowledge: Knowledge, topic: str, slug: str | None) -> State:
    """What a subject or a topic is in a knowledge."""
    resolved = knowledge.resolve(topic)
    if slug is None:
        return "on" if resolved.topic.enable else "off"
    if slug in resolved.disabled:
        return "disabled"
    return "learned" if slug in resolved.learned_set else "plain"


@dataclass(frozen=True)
class Refusal:
    """A mark that cannot be set, and why."""

    mark: SubjectMark
    error: KbtuiError


@dataclass(frozen=True)
class PromptState:
    """What the prompt is and would be; made in a thread and never changed.

    `written` is what the files say, `knowledge` the same with the marks.
    `prompt` is the `<knowledge>` section with them; `preloads` has what each
    topic adds to it, `listings` what its listing costs.
    """

    written: Knowledge
    knowledge: Knowledge
    marks: tuple[SubjectMark, ...] = ()
    prompt: str | None = None
    cost: Cost = NOTHING
    written_cost: Cost = NOTHING
    preloads: dict[str, Cost] = field(default_factory=dict)
    listings: dict[str, Cost] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    fragments: tuple[PromptFragment, ...] = ()


def read_prompt_state(library: Library, marks: tuple[SubjectMark, ...] = ()) -> PromptState:
    """Read the files and apply the marks to what they say now."""
    written = library.load_knowledge()
    for topic in written.topics:
        # Read directories here, in the thread, so that drawing a row never waits for one.
        assert written.resolve(topic).scan.relative is not None
    bare = PromptState(written, written, fragments=tuple(written.read_fragments()))
    bare = _measure_prompt(bare, written, (), ())
    bare = replace(bare, written_cost=bare.cost)
    return with_marks(bare, marks) if marks else bare


def with_marks(prompt_state: PromptState, marks: tuple[SubjectMark, ...]) -> PromptState:
    """The same state with other marks; those that cannot be set become `refusals`."""
    knowledge, kept = prompt_state.written, []
    if marks[: len(prompt_state.marks)] == prompt_state.marks:  # only more of them
        knowledge, kept = prompt_state.knowledge, list(prompt_state.marks)
    refusals = []
    for mark in marks[len(kept) :]:
        try:
            knowledge = knowledge.with_marks([mark])
            kept.append(mark)
        except (NothingFound, UsageError) as error:
            refusals.append(Refusal(mark, error))
    return _measure_prompt(prompt_state, knowledge, tuple(kept), tuple(refusals))


def _measure_prompt(
    before: PromptState,
    knowledge: Knowledge,
    marks: tuple[SubjectMark, ...],
    refusals: tuple[Refusal, ...],
) -> PromptState:
    """The state with its texts measured; unchanged topics are not read again."""
    preloads, listings = {}, {}
    for topic in knowledge.topics.values():
        name = topic.id
        if name in before.preloads and topic == before.knowledge.topics[name]:
            preloads[name], listings[name] = before.preloads[name], before.listings[name]
            continue
        preloads[name] = cost_of(knowledge.format_preloaded(name))
        listings[name] = (
            cost_of(knowledge.learn(name, has_prompt=True).text) if topic.enable else NOTHING
        )
    prompt = knowledge.prompt()
    return replace(
        before,
        knowledge=knowledge,
        marks=marks,
        prompt=prompt,
        cost=cost_of(prompt),
        preloads=preloads,
        listings=listings,
        refusals=refusals,
    )
