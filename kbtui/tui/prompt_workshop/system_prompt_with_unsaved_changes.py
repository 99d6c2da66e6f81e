"""The prompt with the user's unwritten changes, and the sizes of its parts."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.knowledge import read_subject_for_assistant
from kbtui.knowledge.knowledge_data_types import JpPromptSection, PreloadOrDisableChange, Subject
from kbtui.knowledge.system_prompt_and_learn_tool import estimate_token_count
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import format_counted_noun
from kbtui.tui.reader.reader_document import format_abbreviated_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from kbtui.knowledge import KnowledgeBase
    from kbtui.library import Library


MAX_COUNTED_BYTES = 1_000_000
"""If a subject has more bytes than this, its characters and tokens are estimated instead of counted."""
MAX_COUNTED_TOTAL = 256 * 1024 * 1024
"""Subjects are counted only up to this total size in bytes. The sizes of the others stay estimates."""
SUBJECTS_PER_REPORT = 400
"""The number of subjects that are counted or skipped between two progress reports."""


class PromptTextSize(NamedTuple):
    """The numbers of characters and tokens in a text.

    `is_estimate` is true if the numbers are only estimated from the size of a file.
    """

    characters: int = 0
    tokens: int = 0
    is_estimate: bool = False

    def format_prompt_size_without_units(self, *, exact: bool = True) -> str:
        """Format the numbers of characters and tokens, such as `1,204 ≈ 301`; `~` marks an estimate.

        If `exact` is false, both numbers are rounded and padded to a fixed width, such as `1.2k ≈ 301`.
        """
        sign = "~" if self.is_estimate else ""
        if exact:
            return f"{sign}{self.characters:,} ≈ {self.tokens:,}"
        return f"{sign + format_abbreviated_count(self.characters):>5} ≈ {format_abbreviated_count(self.tokens):<5}"

    def format_prompt_size_with_units(self) -> str:
        """Format the size as `1,204 characters ≈ 301 tokens`. An estimated size begins with "about"."""
        about = "about " if self.is_estimate else ""
        characters = format_counted_noun(self.characters, "character")
        return f"{about}{characters} ≈ {format_counted_noun(self.tokens, 'token')}"


ZERO_SIZE = PromptTextSize()


def measure_prompt_size(text: str | None) -> PromptTextSize:
    """Return the size of a text. If there is no text, return `ZERO_SIZE`."""
    return PromptTextSize(len(text), estimate_token_count(text)) if text else ZERO_SIZE


def format_prompt_size_change(
    before: PromptTextSize, after: PromptTextSize, *, units: bool = True
) -> str:
    """Format a size change as `+3,120 characters ≈ 780 tokens`, or without units.

    Return "" if the size has not changed.
    """
    characters = after.characters - before.characters
    tokens = after.tokens - before.tokens
    if not characters and not tokens:
        return ""
    # A text with fewer characters can contain more tokens. Only then does the number of tokens get a
    # sign of its own.
    token_growth = f"{abs(tokens):,}" if characters * tokens >= 0 else f"{tokens:+,}"
    character_growth = f"{characters:+,}"
    if units:
        character_growth += " character" if abs(characters) == 1 else " characters"
        token_growth += " token" if abs(tokens) == 1 else " tokens"
    return f"{character_growth} ≈ {token_growth}".replace("-", "−")


class SubjectPromptSizes:
    """The subject sizes measured so far, and the reasons why some subjects cannot be read.

    One thread writes while other threads read, so values are replaced, never modified.
    """

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str], PromptTextSize] = {}
        self._versions: dict[tuple[str, str], tuple[int, int]] = {}
        self.unreadable: dict[tuple[str, str], str] = {}
        """The reason why a subject cannot be read, as `learn` words it, by topic and slug."""

    def forget_subject_sizes(self) -> None:
        """Forget all sizes and errors."""
        self._sizes, self._versions, self.unreadable = {}, {}, {}

    def get_measured_subject_size(self, topic: str, slug: str) -> PromptTextSize | None:
        """Return the size of a subject, or None while it is unknown."""
        return self._sizes.get((topic, slug))

    def sum_subject_sizes(self, subjects: Collection[tuple[str, str]]) -> PromptTextSize:
        """Return the total size of `subjects`, which are pairs of topic and slug.

        The total is an estimate if the size of any subject is estimated or unknown.
        """
        sizes = [size for subject in subjects if (size := self._sizes.get(subject))]
        characters = sum(size.characters for size in sizes)
        tokens = sum(size.tokens for size in sizes)
        is_counted = len(sizes) == len(subjects) and not any(size.is_estimate for size in sizes)
        return PromptTextSize(characters, tokens, not is_counted)

    def measure_subject_sizes(
        self, knowledge: KnowledgeBase, is_wanted: Callable[[], bool]
    ) -> Iterator[int]:
        """Measure the sizes of all subjects, and repeatedly yield the number of subjects that are left.

        First, estimate the sizes of all new and changed subjects from their sizes in bytes. Then read
        their files, except large ones, and count their characters and tokens. A subject counts as changed if its size in bytes or
        its modification time has changed. If `is_wanted` returns false, stop early. Called in a
        background thread.
        """
        todo: list[Subject] = []
        # A `KnowledgeBase` keeps in memory all subjects that it has listed. So use a copy, and delete it afterwards.
        copied = knowledge.copy_with_preload_or_disable_changes(())
        for topic in copied.topics:
            for subject in copied.list_subjects(topic):
                key = (topic, subject.slug)
                if self._versions.get(key) != (subject.size, subject.mtime_ns):
                    tokens = (subject.size + 3) // 4
                    self._sizes[key] = PromptTextSize(subject.size, tokens, is_estimate=True)
                    todo.append(subject)
        del copied
        yield len(todo)
        allowed = MAX_COUNTED_TOTAL
        for number, subject in enumerate(todo, 1):
            if subject.size <= min(MAX_COUNTED_BYTES, allowed):
                allowed -= subject.size
                self._measure_subject_size(subject)
            if number % SUBJECTS_PER_REPORT == 0:
                if not is_wanted():
                    return
                yield len(todo) - number
        yield 0

    def _measure_subject_size(self, subject: Subject) -> None:
        key = (subject.topic, subject.slug)
        try:
            self._sizes[key] = measure_prompt_size(read_subject_for_assistant(subject))
            self.unreadable.pop(key, None)
        except KbtuiError as error:
            self._sizes[key] = ZERO_SIZE
            self.unreadable[key] = error.message
        self._versions[key] = (subject.size, subject.mtime_ns)


class RunningSumsOfSubjectSizes:
    """The running sums of subject sizes, from which the size of any folder is computed quickly.

    The subjects are sorted by slug, so the subjects of a folder are adjacent. The folder's size is
    the difference of two running sums.
    """

    def __init__(self, slugs: list[str], sizes: Iterable[PromptTextSize | None]) -> None:
        self._slugs = slugs
        known = [size or PromptTextSize(is_estimate=True) for size in sizes]
        self._sums = [[0, *accumulate(size[n] for size in known)] for n in range(3)]
        """The running sums of the subjects' sizes: one list for each field of `PromptTextSize`."""

    def sum_sizes_in_folder(self, prefix: str) -> tuple[int, PromptTextSize]:
        """Return the number of subjects whose slugs start with `prefix`, and their total size."""
        first, last = find_index_range_of_slugs_with_prefix(self._slugs, prefix)
        characters, tokens, estimates = (sums[last] - sums[first] for sums in self._sums)
        return last - first, PromptTextSize(characters, tokens, estimates > 0)


def find_index_range_of_slugs_with_prefix(slugs: list[str], prefix: str) -> tuple[int, int]:
    """Return where the slugs that begin with `prefix` are in the sorted list `slugs`.

    The result is the index of the first such slug and the index after the last one.
    """
    return bisect_left(slugs, prefix), bisect_left(slugs, prefix + chr(0x10FFFF))


def make_running_subject_size_sums_by_topic(
    knowledge: KnowledgeBase, subject_sizes: SubjectPromptSizes
) -> dict[str, RunningSumsOfSubjectSizes]:
    """For each topic, return the running sums from which the sizes of its folders are computed.

    Hidden subjects are not counted.
    """
    visible = {
        topic: knowledge.get_topic_slugs_by_visibility(topic).visible for topic in knowledge.topics
    }
    return {
        topic: RunningSumsOfSubjectSizes(
            slugs, (subject_sizes.get_measured_subject_size(topic, slug) for slug in slugs)
        )
        for topic, slugs in visible.items()
    }


PreloadOrDisableState = Literal["learned", "disabled", "plain", "on", "off"]
"""The state of a subject ("learned", "disabled", "plain") or of a topic ("on", "off").

"learned" means pre-loaded; "plain" means neither pre-loaded nor disabled.
"""


class PendingPreloadOrDisableChanges(dict[tuple[str, str | None], PreloadOrDisableChange]):
    """The user's marks that are not written to `kb.toml` yet, in the order in which they were set.

    The key is a topic and a slug. If the slug is None, the mark is for the whole topic.
    """

    @property
    def pending_marks_in_order(self) -> tuple[PreloadOrDisableChange, ...]:
        """The marks that are not written to `kb.toml` yet."""
        return tuple(self.values())

    def find_state_with_pending_mark(
        self, written: KnowledgeBase, topic: str, slug: str | None
    ) -> PreloadOrDisableState:
        """Return the state of a subject, or of a topic if `slug` is None, with the user's mark applied.

        If there is no mark, return the state in `written`, the knowledge as the files define it.
        """
        mark = self.get((topic, slug))
        return mark.state if mark else find_subject_or_topic_state(written, topic, slug)

    def toggle_pending_mark(self, mark: PreloadOrDisableChange, knowledge: KnowledgeBase) -> None:
        """Set the state of a subject or topic to that of `mark`, or reset it if it already has this state.

        A reset restores the state that the files define (see `knowledge`). If the files themselves
        define the state of `mark`, the state becomes "plain" instead.
        """
        current = self.find_state_with_pending_mark(knowledge, mark.topic, mark.slug)
        written = find_subject_or_topic_state(knowledge, mark.topic, mark.slug)
        wanted: PreloadOrDisableState = mark.state
        if current == wanted:
            # If the files define this state, removing the mark would not change it, so mark the subject as "plain".
            wanted = "plain" if written == wanted else written
        self.pop((mark.topic, mark.slug), None)
        if wanted != written:
            self[mark.topic, mark.slug] = replace(mark, state=wanted)

    def remove_pending_mark_unless_replaced(self, mark: PreloadOrDisableChange) -> None:
        """Remove `mark`, but keep a newer mark of the same subject or topic."""
        if self.get((mark.topic, mark.slug)) == mark:
            del self[mark.topic, mark.slug]


def find_subject_or_topic_state(
    knowledge: KnowledgeBase, topic: str, slug: str | None
) -> PreloadOrDisableState:
    """Return the state of a subject, or of its topic if `slug` is None."""
    resolved = knowledge.get_topic_slugs_by_visibility(topic)
    if slug is None:
        return "on" if resolved.topic.enable else "off"
    if slug in resolved.disabled:
        return "disabled"
    return "learned" if slug in resolved.learned_set else "plain"


@dataclass(frozen=True)
class SystemPromptWithUnsavedChanges:
    """The prompt with and without the user's unwritten changes.

    An object of this class never changes, because several threads use it.

    * `written` is the knowledge as the files define it; `knowledge` also includes the changes.
    * `marks` are the changes. `refusals` are changes that are not possible, with the reasons.
    * `prompt` is the `<knowledge>` section with the changes, and `size` is its size. `written_size`
      is the size of the section without the changes.
    * Three attributes map each topic to sizes: `preloads` to those of its pre-loaded subjects,
      `listings` to that of its listing, and `sums` to those of its folders.
    """

    written: KnowledgeBase
    knowledge: KnowledgeBase
    marks: tuple[PreloadOrDisableChange, ...] = ()
    prompt: str | None = None
    size: PromptTextSize = ZERO_SIZE
    written_size: PromptTextSize = ZERO_SIZE
    preloads: dict[str, PromptTextSize] = field(default_factory=dict)
    listings: dict[str, PromptTextSize] = field(default_factory=dict)
    sums: dict[str, RunningSumsOfSubjectSizes] = field(default_factory=dict)
    refusals: tuple[tuple[PreloadOrDisableChange, KbtuiError], ...] = ()
    jp_sections: tuple[JpPromptSection, ...] = ()


def load_prompt_with_changes(
    library: Library,
    subject_sizes: SubjectPromptSizes,
    marks: tuple[PreloadOrDisableChange, ...] = (),
) -> SystemPromptWithUnsavedChanges:
    """Load the knowledge from its files, apply the changes `marks`, and return the resulting prompt."""
    written = library.load_knowledge()
    for topic in written.topics:
        # Read the directory now, in a background thread, so that drawing a row never waits for it.
        assert written.get_topic_slugs_by_visibility(topic).scan.relative_paths is not None
    unmarked = SystemPromptWithUnsavedChanges(
        written, written, jp_sections=tuple(written.read_jp_prompt_sections())
    )
    unmarked = make_prompt_with_pending_marks(unmarked, subject_sizes, ())
    return make_prompt_with_pending_marks(
        replace(unmarked, written_size=unmarked.size), subject_sizes, marks
    )


def make_prompt_with_pending_marks(
    before: SystemPromptWithUnsavedChanges,
    subject_sizes: SubjectPromptSizes,
    marks: tuple[PreloadOrDisableChange, ...],
) -> SystemPromptWithUnsavedChanges:
    """Return a prompt with the changes in `marks` instead of the changes in `before`.

    The `refusals` of the result contain the changes that cannot be made.
    """
    knowledge, applied = before.written, []
    if marks[: len(before.marks)] == before.marks:  # only new marks were added
        knowledge, applied = before.knowledge, list(before.marks)
    refusals = []
    for mark in marks[len(applied) :]:
        try:
            knowledge = knowledge.copy_with_preload_or_disable_changes([mark])
            applied.append(mark)
        except (NothingFound, UsageError) as error:
            refusals.append((mark, error))
    preloads, listings = {}, {}
    for topic in knowledge.topics.values():
        name = topic.id
        if name in before.preloads and topic == before.knowledge.topics[name]:
            preloads[name], listings[name] = before.preloads[name], before.listings[name]
            continue
        preloads[name] = measure_prompt_size(knowledge.format_preloaded_subjects(name))
        listing = knowledge.learn(name, has_prompt=True).text if topic.enable else None
        listings[name] = measure_prompt_size(listing)
    prompt = knowledge.format_knowledge_section()
    return replace(
        before,
        knowledge=knowledge,
        marks=tuple(applied),
        prompt=prompt,
        size=measure_prompt_size(prompt),
        preloads=preloads,
        listings=listings,
        sums=make_running_subject_size_sums_by_topic(knowledge, subject_sizes),
        refusals=tuple(refusals),
    )
