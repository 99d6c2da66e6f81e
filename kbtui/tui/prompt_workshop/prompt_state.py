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
    from kbtui.knowledge.models import PreloadOrDisableMark, PromptFragment, Subject
    from kbtui.library import Library


COUNTED_BYTES_MOST = 1_000_000
"""Bytes of the largest subject that is read only to count its characters."""
COUNTED_TOTAL_MOST = 256 * 1024 * 1024
"""Bytes that are read for counting in all; the remaining subjects are estimated by size."""
REPORT_EVERY = 400
"""Subjects counted between two progress reports."""


class PromptCost(NamedTuple):
    """Characters and estimated tokens; with `is_estimate` both are estimated from a file's size."""

    characters: int = 0
    tokens: int = 0
    is_estimate: bool = False

    def add_cost(self, other: PromptCost) -> PromptCost:
        """Return the sum of both."""
        return PromptCost(
            self.characters + other.characters,
            self.tokens + other.tokens,
            self.is_estimate or other.is_estimate,
        )

    def format_short_cost(self, *, exact: bool = True) -> str:
        """Format as `1,204 ≈ 301`, or aligned as `1.2k ≈ 301`; `~` marks an estimate."""
        sign = "~" if self.is_estimate else ""
        if exact:
            return f"{sign}{self.characters:,} ≈ {self.tokens:,}"
        return f"{sign + format_size(self.characters):>5} ≈ {format_size(self.tokens):<5}"

    def format_long_cost(self) -> str:
        """Format as `1,204 characters ≈ 301 tokens`."""
        about = "about " if self.is_estimate else ""
        return f"{about}{self.characters:,} characters ≈ {self.tokens:,} tokens"


NO_COST = PromptCost()


def measure_prompt_cost(text: str | None) -> PromptCost:
    """Return the cost of a text."""
    return PromptCost(len(text), estimate_tokens(text)) if text else NO_COST


def format_cost_growth(before: PromptCost, after: PromptCost, *, units: bool = True) -> str:
    """Format as `+3,120 characters ≈ 780 tokens`, or without units; empty if nothing changed."""
    characters = after.characters - before.characters
    tokens = after.tokens - before.tokens
    if not characters and not tokens:
        return ""
    # The second sign is left out unless it differs: other characters can make more or fewer tokens.
    second = f"{abs(tokens):,}" if characters * tokens >= 0 else _format_signed_number(tokens)
    if not units:
        return f"{_format_signed_number(characters)} ≈ {second}"
    return f"{_format_signed_number(characters)} characters ≈ {second} tokens"


def _format_signed_number(number: int) -> str:
    return f"{'−' if number < 0 else '+'}{abs(number):,}"


class SubjectCosts:
    """The known costs of subjects, and why some subjects have none.

    One thread writes while others read: values are replaced, never changed.
    """

    def __init__(self) -> None:
        self._costs: dict[tuple[str, str], PromptCost] = {}
        self._versions: dict[tuple[str, str], tuple[int, int]] = {}
        self.unreadable: dict[tuple[str, str], str] = {}
        """Why a subject cannot be read, in the words of `learn`."""

    def clear(self) -> None:
        """Forget everything."""
        self._costs, self._versions, self.unreadable = {}, {}, {}

    def get_cost(self, topic: str, slug: str) -> PromptCost | None:
        """Return the cost of a subject, None while it is unknown."""
        return self._costs.get((topic, slug))

    def sum_costs(self, topic: str, slugs: Iterable[str]) -> PromptCost:
        """Return the cost of subjects together; an estimate unless all of them are counted."""
        found = [self._costs.get((topic, slug)) for slug in slugs]
        costs = [cost for cost in found if cost is not None]
        return PromptCost(
            sum(cost.characters for cost in costs),
            sum(cost.tokens for cost in costs),
            len(costs) < len(found) or any(cost.is_estimate for cost in costs),
        )

    def measure_all_subjects(
        self, knowledge: Knowledge, is_wanted: Callable[[], bool]
    ) -> Iterable[int]:
        """Count every subject; yield the number of subjects left from time to time.

        Called in a thread. All new subjects are estimated first. Files with the same size and time
        as before are not read again. Ends early when `is_wanted` returns False.
        """
        todo: list[Subject] = []
        copied = knowledge.copy_with_marks(
            ()
        )  # a copy, so that the original does not keep all subjects
        for topic in copied.topics:
            for subject in copied.list_subjects(topic):
                key = (topic, subject.slug)
                if self._versions.get(key) != (subject.size, subject.mtime_ns):
                    self._costs[key] = PromptCost(
                        subject.size, (subject.size + 3) // 4, is_estimate=True
                    )
                    todo.append(subject)
        del copied
        yield len(todo)
        allowed = COUNTED_TOTAL_MOST
        for number, subject in enumerate(todo, 1):
            if subject.size <= min(COUNTED_BYTES_MOST, allowed):
                allowed -= subject.size
                self.measure_subject(subject)
            if number % REPORT_EVERY == 0:
                if not is_wanted():
                    return
                yield len(todo) - number
        yield 0

    def measure_subject(self, subject: Subject) -> None:
        """Read one subject and remember its cost."""
        key = (subject.topic, subject.slug)
        try:
            self._costs[key] = measure_prompt_cost(read_subject(subject))
            self.unreadable.pop(key, None)
        except KbtuiError as error:
            self._costs[key] = NO_COST
            self.unreadable[key] = error.message
        self._versions[key] = (subject.size, subject.mtime_ns)


class FolderCostSums:
    """Running sums of subject costs, which give the cost of any folder in two lookups."""

    def __init__(self, slugs: list[str], costs: list[PromptCost | None]) -> None:
        self._slugs = slugs
        self._characters = [0, *accumulate(cost.characters if cost else 0 for cost in costs)]
        self._tokens = [0, *accumulate(cost.tokens if cost else 0 for cost in costs)]
        self._estimates = [0, *accumulate(cost is None or cost.is_estimate for cost in costs)]

    def sum_costs_below(self, prefix: str = "") -> tuple[int, PromptCost]:
        """Return the number and the cost of the subjects whose slugs start with a prefix."""
        first, last = find_prefix_range(self._slugs, prefix)
        return last - first, PromptCost(
            self._characters[last] - self._characters[first],
            self._tokens[last] - self._tokens[first],
            self._estimates[last] > self._estimates[first],
        )


def find_prefix_range(slugs: list[str], prefix: str) -> tuple[int, int]:
    """Return the start and end of the slugs with a prefix in a sorted list."""
    if not prefix:
        return 0, len(slugs)
    return bisect_left(slugs, prefix), bisect_left(slugs, prefix + chr(0x10FFFF))


def make_prefix_sums(knowledge: Knowledge, costs: SubjectCosts) -> dict[str, FolderCostSums]:
    """Return the sums of each topic over its visible subjects."""
    return {
        topic: FolderCostSums(visible, [costs.get_cost(topic, slug) for slug in visible])
        for topic in knowledge.topics
        for visible in [knowledge.resolve(topic).visible]
    }


MarkState = Literal["learned", "disabled", "plain", "on", "off"]
"""Of a subject: "plain", "learned" or "disabled"; of a topic: "on" or "off"."""


class PendingMarks:
    """The marks that are not written yet, in the order of marking."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str | None], PreloadOrDisableMark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def all_marks(self) -> tuple[PreloadOrDisableMark, ...]:
        """The marks, as `Knowledge.copy_with_marks` takes them."""
        return tuple(self._marks.values())

    def get_mark(self, topic: str, slug: str | None) -> PreloadOrDisableMark | None:
        """Return the mark on a subject, or on a topic if `slug` is None."""
        return self._marks.get((topic, slug))

    def toggle_mark(
        self,
        mark: PreloadOrDisableMark,
        current: MarkState,
        written: MarkState,
        otherwise: MarkState,
    ) -> None:
        """Set a mark, or remove it if it is set already.

        `current` is the state with the marks, `written` the state in the files. Where the files
        already have the state, removing it means `otherwise`.
        """
        wanted: MarkState = mark.state
        if current == wanted:
            wanted = otherwise if written == wanted else written
        self._marks.pop((mark.topic, mark.slug), None)
        if wanted != written:
            self._marks[mark.topic, mark.slug] = replace(mark, state=wanted)

    def remove_mark(self, mark: PreloadOrDisableMark) -> None:
        """Remove exactly this mark; a newer mark of the same subject stays."""
        if self._marks.get((mark.topic, mark.slug)) == mark:
            del self._marks[mark.topic, mark.slug]

    def clear(self) -> None:
        """Remove all marks."""
        self._marks.clear()


def find_subject_or_topic_state(knowledge: Knowledge, topic: str, slug: str | None) -> MarkState:
    """Return the state of a subject, or of a topic if `slug` is None."""
    resolved = knowledge.resolve(topic)
    if slug is None:
        return "on" if resolved.topic.enable else "off"
    if slug in resolved.disabled:
        return "disabled"
    return "learned" if slug in resolved.learned_set else "plain"


@dataclass(frozen=True)
class RefusedMark:
    """A mark that cannot be set, and why."""

    mark: PreloadOrDisableMark
    error: KbtuiError


@dataclass(frozen=True)
class PromptState:
    """The prompt as the files say and as the marks would change it; made in a thread, immutable.

    `written` is what the files say, `knowledge` the same with the marks. `prompt` is the
    `<knowledge>` section with the marks. For each topic, `preloads` is the cost of what it adds to
    the prompt, and `listings` that of its listing.
    """

    written: Knowledge
    knowledge: Knowledge
    marks: tuple[PreloadOrDisableMark, ...] = ()
    prompt: str | None = None
    cost: PromptCost = NO_COST
    written_cost: PromptCost = NO_COST
    preloads: dict[str, PromptCost] = field(default_factory=dict)
    listings: dict[str, PromptCost] = field(default_factory=dict)
    refusals: tuple[RefusedMark, ...] = ()
    fragments: tuple[PromptFragment, ...] = ()


def read_prompt_state(
    library: Library, marks: tuple[PreloadOrDisableMark, ...] = ()
) -> PromptState:
    """Read the files and apply the marks to them."""
    written = library.load_knowledge()
    for topic in written.topics:
        # Read directories in this thread, so that drawing a row never waits for one.
        assert written.resolve(topic).scan.relative_paths is not None
    bare = PromptState(written, written, fragments=tuple(written.read_prompt_fragments()))
    bare = _measure_prompt(bare, written, (), ())
    bare = replace(bare, written_cost=bare.cost)
    return apply_marks(bare, marks) if marks else bare


def apply_marks(prompt_state: PromptState, marks: tuple[PreloadOrDisableMark, ...]) -> PromptState:
    """Return the same state with other marks; marks that cannot be set become `refusals`."""
    knowledge, applied = prompt_state.written, []
    if marks[: len(prompt_state.marks)] == prompt_state.marks:  # only new marks were added
        knowledge, applied = prompt_state.knowledge, list(prompt_state.marks)
    refusals = []
    for mark in marks[len(applied) :]:
        try:
            knowledge = knowledge.copy_with_marks([mark])
            applied.append(mark)
        except (NothingFound, UsageError) as error:
            refusals.append(RefusedMark(mark, error))
    return _measure_prompt(prompt_state, knowledge, tuple(applied), tuple(refusals))


def _measure_prompt(
    before: PromptState,
    knowledge: Knowledge,
    marks: tuple[PreloadOrDisableMark, ...],
    refusals: tuple[RefusedMark, ...],
) -> PromptState:
    """Return the state with measured texts; unchanged topics are not read again."""
    preloads, listings = {}, {}
    for topic in knowledge.topics.values():
        name = topic.id
        if name in before.preloads and topic == before.knowledge.topics[name]:
            preloads[name], listings[name] = before.preloads[name], before.listings[name]
            continue
        preloads[name] = measure_prompt_cost(knowledge.format_preloaded(name))
        listing = knowledge.learn(name, has_prompt=True).text if topic.enable else None
        listings[name] = measure_prompt_cost(listing)
    prompt = knowledge.format_prompt_section()
    return replace(
        before,
        knowledge=knowledge,
        marks=marks,
        prompt=prompt,
        cost=measure_prompt_cost(prompt),
        preloads=preloads,
        listings=listings,
        refusals=refusals,
    )
