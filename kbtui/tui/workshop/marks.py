"""The state of the prompt: what the files say, what is marked, and what the marks would change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.tui.workshop.costs import NOTHING, Cost, cost_of

if TYPE_CHECKING:
    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.models import Fragment, SubjectMark
    from kbtui.library import Library

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
    resolved = knowledge.resolved(topic)
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
    fragments: tuple[Fragment, ...] = ()


def read_prompt_state(library: Library, marks: tuple[SubjectMark, ...] = ()) -> PromptState:
    """Read the files and apply the marks to what they say now."""
    written = library.knowledge()
    for topic in written.topics:
        # Read directories here, in the thread, so that drawing a row never waits for one.
        assert written.resolved(topic).scan.relative is not None
    bare = PromptState(written, written, fragments=tuple(written.fragments()))
    bare = _with(bare, written, (), ())
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
    return _with(prompt_state, knowledge, tuple(kept), tuple(refusals))


def _with(
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
        preloads[name] = cost_of(knowledge.preloaded(name))
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
