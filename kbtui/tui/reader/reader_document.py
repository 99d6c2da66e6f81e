"""The document shown in the reader: its blocks, positions in it, and its outline."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import count, pairwise, takewhile
from typing import TYPE_CHECKING, Any

from kbtui.light_named_tuple import NamedTuple
from kbtui.references import Ref, make_conversation_ref, make_subject_ref
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line
from kbtui.tui.framework.styled_text import Spans, join_span_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from kbtui.citations.tool_call_citations import Citation
    from kbtui.conversations.conversation_data_types import TokenUsage, Turn
    from kbtui.conversations.turn_decision_marks import ConversationMarks
    from kbtui.tui.navigation_target import NavigationTarget
    from kbtui.tui.reader.reader_blocks import ReaderBlock


MANY_BLOCKS = 4_000
"""A document with more blocks than this is searched and freed in a background thread, so that keys are not delayed."""


CHANGES_VIEWS = ("changes", "by-file")
"""The views of the file changes made in a conversation: in the order of its calls, and file by file."""
CHANGES_VIEW_NAMES = {"changes": "in order", "by-file": "by file"}
"""The name on the screen of each view of the file changes."""
STEP_VIEWS = (*CHANGES_VIEWS, "history")
"""The views that add a step to the history. Any other view replaces the previous one."""


@dataclass(eq=False, repr=False)
class ReaderDocument:
    """The content of the reader: a sequence of blocks with a title and badges.

    * `key` identifies the document even after a reload: `topic/slug`, `jp-c…` or the name of a
      page.
    * `views` are the views that the user can choose.
    * `view` is the one that is shown.
    * `ref` is the document's reference, or None for a page such as the help.
    * `record` is the subject or conversation from which the document was built.
    """

    key: str
    title: str
    blocks: list[ReaderBlock]
    ref: str | None = None
    short_ref: str | None = None
    """A short form of `ref` for the screen, or None."""
    view: str = "read"
    views: tuple[str, ...] = ("read",)
    badges: Spans = field(default_factory=list)
    size: str = ""
    short_size: str = ""
    """The text that a narrow header shows instead of `size`."""
    record: Any = None
    marks: ConversationMarks | None = None
    """The marks on the turns of a conversation."""
    outdated: Mapping[int, Sequence[Citation]] = field(default_factory=dict)
    """The outdated citations of each outdated turn of a conversation, by turn number."""
    turns_total: int = 0
    rewound_turns: int = 0
    """The number of turns that the user left behind by going back to an earlier turn."""
    lines_total: int = 0
    """The number of lines of the text. 0 if references to this document cannot contain line numbers."""
    block_indices_by_kind: dict[str, list[int]] = field(default_factory=dict)
    """The indices of the blocks at which a turn, request, error or change starts, in ascending order, by kind.

    The kinds are "turn", "request", "error" and "change".
    """
    facts: list[tuple[str, Spans]] = field(default_factory=list)
    """The document's details (names and values), which the user can show above the document."""
    is_partial: bool = False
    """Whether the rest of the document is still loading."""
    is_missing: bool = False
    """Whether this is the page about a requested document that does not exist."""
    problem: str = ""
    """If this page replaces a document that cannot be read, the reason why; otherwise ""."""
    stops_at_links: bool = False
    """Whether the cursor stops only at lines that can be opened, if there are any."""
    loss: str = ""
    """If the document can no longer be read, so that its last text is shown dimmed, the reason why; otherwise ""."""
    fold_kinds: dict[str, str] = field(init=False, repr=False)
    """The kind of each fold, by the key of the fold."""
    _outer_folds: dict[str, str | None] = field(init=False, repr=False)
    """The key of the fold that encloses each fold (None if there is none), by the key of the inner fold."""
    is_compacted: bool = field(init=False)
    """Whether the user and the model see different blocks because of a compaction (`ReaderBlock.view`)."""

    @property
    def conversation_signature(self) -> str | None:
        """The signature of the conversation's files; None for a document of another kind.

        The signature changes when one of the files changes.
        """
        return getattr(getattr(self.record, "info", None), "signature", None)

    def __post_init__(self) -> None:
        # Build the index here, because this runs in a thread; building it later would delay keys.
        blocks = self.blocks
        self._indices = {block.key: index for index, block in enumerate(blocks)}
        self.fold_kinds = _find_kinds_of_folds(blocks) if blocks else {}
        self._outer_folds = {key: blocks[self._indices[key]].fold for key in self.fold_kinds}
        self.is_compacted = any(block.view for block in blocks)
        self._has_links = any(block.can_be_opened for block in blocks)
        self.block_indices_by_kind["turn"] = [
            n for n, b in enumerate(blocks) if b.key == f"turn:{b.turn}"
        ]

    @property
    def is_cursor_limited_to_openable_lines(self) -> bool:
        """Whether the cursor stops only at lines that can be opened."""
        return self.stops_at_links and self._has_links

    @property
    def next_view(self) -> str:
        """The view that follows the current view in `views`."""
        if self.view not in self.views:
            return self.views[0]
        return self.views[(self.views.index(self.view) + 1) % len(self.views)]

    @property
    def has_many_blocks(self) -> bool:
        """Whether the document has so many blocks that reading them all would delay a key press."""
        return len(self.blocks) > MANY_BLOCKS

    @property
    def met_command_conditions(self) -> frozenset[str]:
        """The features of the document, which some commands need.

        The possible features are "turns", "changes", "calls" and "views".
        """
        features = {
            "turns": self.turns_total > 0,
            "changes": bool(self.block_indices_by_kind.get("change")),
            # The document shows a conversation's changes, each with the call that made it.
            "calls": self.view in CHANGES_VIEWS and bool(self.block_indices_by_kind.get("change")),
            "views": len(self.views) > 1,
        }
        return frozenset(name for name, has in features.items() if has)

    def find_block_index_by_key(self, key: str) -> int | None:
        """Return the index of the block with this key, or None."""
        return self._indices.get(key)

    def list_folds_of_block(self, block: int) -> list[str]:
        """Return the keys of the folds around the block at index `block`, innermost first."""
        folds = []
        fold = self.blocks[block].fold
        while fold is not None:
            folds.append(fold)
            fold = self._outer_folds.get(fold)
        return folds

    def find_block_index_of_source_line(self, line: int) -> int:
        """Return the index of the block that shows source line `line`.

        If no block shows the line, return the index of the nearest block before it.
        """
        from kbtui.tui.reader.reader_blocks import TextRangeReaderBlock

        best = 0
        for index, block in enumerate(self.blocks):
            if isinstance(block, TextRangeReaderBlock) and 0 < block.first_line <= line:
                best = index
        return best

    def make_reference_to_line(self, index: int, line: int) -> str | None:
        """Return the most precise reference to source line `line` of the block at `index`."""
        if self.ref is None or not self.blocks:
            return self.ref
        from kbtui.tui.reader.reader_blocks import TextRangeReaderBlock

        block = self.blocks[index]
        if block.turn is not None:
            return str(make_conversation_ref(self.ref, block.turn, block.call))
        has_lines = isinstance(block, TextRangeReaderBlock) and block.first_line > 0
        if line and has_lines and self.view in ("read", "source"):
            topic, _, slug = self.ref.partition("/")
            return str(make_subject_ref(topic, slug, (line, line)))
        return self.ref

    def find_search_pattern_matches(
        self, pattern: re.Pattern[str], model: bool = False
    ) -> Iterator[tuple[int, int]]:
        """Yield each match as a pair: the index of its block, and its index within this block.

        If `model` is true, search the blocks that the model sees; otherwise, those that the user
        sees.
        """
        hidden_view = "user" if model else "model"
        for index, block in enumerate(self.blocks):
            if block.view != hidden_view:
                for count, _ in enumerate(pattern.finditer(block.get_searchable_text())):
                    yield index, count


def _find_kinds_of_folds(blocks: list[ReaderBlock]) -> dict[str, str]:
    # The first paint shows an empty document, and does not wait for the classes of blocks.
    from kbtui.tui.reader.reader_blocks import FoldHeadingBlock

    return {block.key: block.kind for block in blocks if isinstance(block, FoldHeadingBlock)}


def map_old_to_new_source_lines(before: ReaderDocument, after: ReaderDocument) -> dict[int, int]:
    """Return a mapping from the old to the new number of each line that a changed text still contains.

    The result is empty if the documents are not two different versions of a text with numbered
    lines. A text with very many lines is not compared, because this would delay keys.
    """
    from difflib import SequenceMatcher

    if not before.lines_total or before.key != after.key or before.has_many_blocks:
        return {}
    old, new = _list_lines_of_numbered_text(before), _list_lines_of_numbered_text(after)
    if old == new:
        return {}
    blocks = SequenceMatcher(None, old, new).get_matching_blocks()
    return {old_at + n + 1: new_at + n + 1 for old_at, new_at, size in blocks for n in range(size)}


def _list_lines_of_numbered_text(document: ReaderDocument) -> list[str]:
    from kbtui.tui.reader.reader_blocks import TextRangeReaderBlock

    texts = (
        b.text for b in document.blocks if isinstance(b, TextRangeReaderBlock) and b.first_line
    )
    return next(texts, "").split("\n")


def has_lost_turns(before: ReaderDocument, after: ReaderDocument) -> bool:
    """Return whether `after` is the same conversation as `before`, with fewer turns."""
    return (
        before.key == after.key
        and not (before.is_partial or after.is_partial)
        and before.record is not None
        and after.record is not None
        and 0 <= after.turns_total < before.turns_total
    )


def map_block_to_document_with_turns_removed(
    before: ReaderDocument, after: ReaderDocument, block: int
) -> int:
    """Return the index of the block in `after` that corresponds to a block in `before`.

    `after` is a later version of the same conversation, from which turns were removed. If the
    block's turn was removed, return the heading of the next remaining turn, or the last block.
    """
    turn = before.blocks[block].turn
    if turn is None:
        return min(block, len(after.blocks) - 1)
    numbers = _map_old_to_new_turn_numbers(before.record.turns, after.record.turns)
    following = (numbers[n] for n in range(turn, before.turns_total + 1) if n in numbers)
    number = next(following, None)
    start = after.find_block_index_by_key(f"turn:{number}") if number else None
    if start is None:
        return len(after.blocks) - 1
    old_start = before.find_block_index_by_key(f"turn:{turn}")
    if turn not in numbers or old_start is None:
        return start
    end = start + max(0, block - old_start)
    in_turn = [n for n in range(start, len(after.blocks)) if after.blocks[n].turn == number]
    return min(end, in_turn[-1] if in_turn else start)


def _map_old_to_new_turn_numbers(before: Sequence[Turn], after: Sequence[Turn]) -> dict[int, int]:
    """Return a mapping from the old to the new number of each remaining turn.

    A turn is recognized by its start time and the text of its first event.
    """
    from difflib import SequenceMatcher

    old, new = (
        [(turn.started_at, next((event.text for event in turn.events), "")) for turn in turns]
        for turns in (before, after)
    )
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return {
        before[old_at + n].number: after[new_at + n].number
        for old_at, new_at, size in matcher.get_matching_blocks()
        for n in range(size)
    }


def compile_pattern_for_terms(terms: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern for any of `terms` in any case and spacing. Return None if all terms are empty."""
    parts = {r"\s+".join(map(re.escape, term.split())) for term in terms} - {""}
    longest_first = sorted(parts, key=len, reverse=True)
    return re.compile("|".join(longest_first), re.IGNORECASE) if parts else None


def count_text_lines(text: str) -> int:
    """Return the number of lines of a text. A line break at the end does not start another line."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def format_abbreviated_count(number: int, gap: str = "") -> str:
    """Format a number of characters or bytes, such as 640, 3.4k or 1.2M.

    `gap` is put before k or M.
    """
    if number < 1000:
        return f"{number}{gap}"
    if number < 999_500:
        thousands = f"{number / 1000:.1f}" if number < 99_950 else f"{number / 1000:.0f}"
        return f"{thousands}{gap}k"
    return f"{number / 1_000_000:.1f}{gap}M"


def format_text_length(text: str) -> str:
    """Format the length of a text, such as "3.4k chars"."""
    return f"{format_abbreviated_count(len(text))} {'char' if len(text) == 1 else 'chars'}"


def format_turn_count(turns: int, rewound: int) -> str:
    """Format a number of turns, such as "5 turns". Rewound turns are counted separately."""
    text = format_counted_noun(turns - rewound, "turn")
    return f"{text}, {rewound:,} rewound" if rewound else text


def format_characters_and_tokens(number: int) -> str:
    """Format a number of characters, followed by an estimate of the number of tokens."""
    return f"{format_counted_noun(number, 'character')} {format_token_estimate(number)}"


def format_token_estimate(characters: int) -> str:
    """Format an estimate of the number of tokens in a text, such as "≈ 300 tokens".

    `characters` is the number of characters of the text.
    """
    return f"≈ {format_counted_noun(round(characters / 4), 'token')}"


def find_start_block_and_match(
    document: ReaderDocument, place: NavigationTarget
) -> tuple[int, int] | None:
    """Return the index of the block to show first, and the index of the current match.

    The second index is the position among the matches in this block, or -1 if there is no match. If
    `place` refers to a turn or line that does not exist, the nearest one is used. Return None if
    the document should be shown from its top.
    """
    ref, blocks = place.ref, document.blocks
    if ref is None or not blocks:
        return None
    if document.view in CHANGES_VIEWS:
        start = _find_first_change_block_from_turn_on(document, ref)
        return None if start is None else (start, -1)
    if ref.turn is not None:
        turn = min(max(1, ref.turn), document.turns_total)
        start = document.find_block_index_by_key(f"turn:{turn}")
        if ref.call is not None and turn == ref.turn:
            start = document.find_block_index_by_key(f"call:{turn}.{ref.call}") or start
        if start is None:
            return None
        first = start
        in_turn = takewhile(lambda n: blocks[n].turn == turn, range(first, len(blocks)))
        span = [n for n in in_turn if ref.call in (None, blocks[n].call)]
    elif ref.lines is not None:
        first, last = map(document.find_block_index_of_source_line, ref.lines)
        span = list(range(first, last + 1))
    elif place.text and not place.words:
        return _find_passage_block(document, place.text, range(len(blocks))) or 0, -1
    else:
        first, span = 0, list(range(len(blocks)))
    pattern = compile_pattern_for_terms(place.words)
    best = _find_best_matching_block(document, span, pattern, place.text) if pattern else None
    if best is None and place.text and ref.turn is not None:
        # A hit that was found by its meaning has no words to look for.
        first = _find_passage_block(document, place.text, span) or first
    return best or (first, -1)


def _find_first_change_block_from_turn_on(document: ReaderDocument, ref: Ref) -> int | None:
    """Return the index of the first block with a change in or after the turn or call of `ref`.

    If there is no such change, return None. If `ref` contains no turn, return the index of the
    block with the first file.
    """
    if ref.turn is None:
        # The first file of the list: keys act on it, but not on the heading above it.
        files = (n for n, block in enumerate(document.blocks) if block.key.startswith("file:"))
        return next(files, None)
    wanted = ref.turn, ref.call or 0
    places = [
        ((document.blocks[index].turn or 0, document.blocks[index].call or 0), index)
        for index in document.block_indices_by_kind.get("change", ())
    ]
    later = [place for place in places if place[0] >= wanted]
    return min(later)[1] if later else None


def describe_missing_turn_or_line(document: ReaderDocument, ref: Ref | None) -> str:
    """Return a message if the document lacks the turn, tool call or line that `ref` refers to.

    Otherwise, return "".
    """
    if ref is None or document.view in CHANGES_VIEWS:
        return ""
    if ref.turn is not None:
        if not 1 <= ref.turn <= document.turns_total:
            total = format_counted_noun(document.turns_total, "turn")
            return f"no turn {ref.turn}: the conversation has {total}"
        key = f"call:{ref.turn}."
        if ref.call is not None and document.find_block_index_by_key(f"{key}{ref.call}") is None:
            calls = next(
                n for n in count() if document.find_block_index_by_key(f"{key}{n + 1}") is None
            )
            return f"no tool call {ref.call}: turn {ref.turn} has {format_counted_noun(calls, 'tool call')}"
    # In a document without numbered lines, such as a history, no line can be missing.
    elif (
        ref.lines is not None
        and document.lines_total
        and not 1 <= ref.lines[0] <= document.lines_total
    ):
        return describe_missing_line(document, ref.lines[0])
    return ""


def describe_missing_line(document: ReaderDocument, line: int) -> str:
    """Return the message for a line number that the shown text does not have."""
    # The output of `learn` has other line numbers than the subject.
    what = "subject" if document.view in ("read", "source") else "text"
    return f"no line {line}: the {what} has {format_counted_noun(document.lines_total, 'line')}"


def _find_best_matching_block(
    document: ReaderDocument, span: list[int], pattern: re.Pattern[str], passage: str
) -> tuple[int, int] | None:
    """Return the index of the best block in `span`, and the index of a match in this block.

    Return None if there is no match. Only blocks with a match of `pattern` are considered. The best
    block is the one that contains the beginning of the passage, or else the one with the greatest
    number of distinct matches. A block in a fold is preferred to the fold's
    heading.
    """
    from kbtui.tui.reader.reader_blocks import TextRangeReaderBlock

    probe = _compile_passage_start_pattern(passage)
    best_score, best = 0.0, None
    for index in span:
        block = document.blocks[index]
        text = block.get_searchable_text()
        score: float = len({match[0].lower() for match in pattern.finditer(text)})
        near = (
            probe.search(text)
            if score and probe and isinstance(block, TextRangeReaderBlock)
            else None
        )
        if near:
            score += 1000
        elif score and block.key in document.fold_kinds:
            score -= 0.5
        if score > best_score:
            best_score = score
            best = index, len(pattern.findall(text, 0, near.start())) if near else 0
    return best


def _find_passage_block(document: ReaderDocument, passage: str, span: Sequence[int]) -> int | None:
    """Return the index of the block in `span` that contains the beginning of a passage, or None.

    If the first line of the passage is not found, the next lines are tried.
    """
    from kbtui.tui.reader.reader_blocks import TextRangeReaderBlock

    texts = [
        (index, document.blocks[index].get_searchable_text())
        for index in span
        if isinstance(document.blocks[index], TextRangeReaderBlock)
    ]
    probes = filter(None, map(_compile_passage_start_pattern, passage.split("\n")))
    return next((index for probe in probes for index, text in texts if probe.search(text)), None)


def _compile_passage_start_pattern(passage: str) -> re.Pattern[str] | None:
    """Return a pattern for the first eight words of a passage.

    Return None if the passage has fewer than three words.
    """
    words = [word for word in passage.split() if any(map(str.isalnum, word))][:8]
    return re.compile(r"\W+".join(map(re.escape, words))) if len(words) > 2 else None


def is_start_position_loaded(document: ReaderDocument, place: NavigationTarget) -> bool:
    """Return whether the loaded part of a document contains the position that `place` refers to."""
    if place.mark is not None:
        return document.find_block_index_by_key(place.mark.key) is not None
    if place.ref is not None and place.ref.turn is not None:
        # The last turn may be incomplete.
        return place.ref.turn < document.turns_total
    return not place.words


MAX_WORDS_CHARACTERS = 200
"""The outline shows at most this many characters of a request or heading."""
MAX_SEARCHED_CHARACTERS = 4_000
"""The filter of the outline searches at most this many characters of a request."""


class OutlineTurnFacts(NamedTuple):
    """The facts about a turn that the outline shows.

    * `seconds` is the time from the start of the turn to its last event; None if the agent stores
      no times.
    * `tokens` is None if the agent does not count them.
    * `tools` has the name of each called tool only once.
    """

    number: int
    started_at: datetime | None
    seconds: float | None
    calls: int
    failed: int
    tools: tuple[str, ...]
    tokens: int | None
    is_rewound: bool


class OutlineEntry(NamedTuple):
    """A part of a document: the key of its first block, and the words that describe it.

    * `line` is a line of the source text inside the block, counted from 1, or 0 for the start of
      the block.
    * `depth` is the zero-based level of a heading.
    * `searched` is the text that the filter searches.
    """

    block: str
    words: str
    line: int = 0
    depth: int = 0
    turn: OutlineTurnFacts | None = None
    searched: str = ""

    @property
    def key(self) -> str:
        """The key of the entry, which a reload does not change."""
        return f"{self.block}:{self.line}"


def make_document_outline(document: ReaderDocument) -> list[OutlineEntry]:
    """Return the entries of a document's outline, from top to bottom.

    The function reads the whole document, so call it in a thread.
    """
    from kbtui.conversations.conversation_data_types import Conversation

    if isinstance(document.record, Conversation) and document.view == "read":
        return [_make_outline_entry_of_turn(turn) for turn in document.record.turns]
    if changes := document.block_indices_by_kind.get("change"):
        blocks = [document.blocks[index] for index in changes]
        return list(map(_make_outline_entry_of_version_or_file_change, blocks))
    return list(_iterate_outline_entries_of_headings(document))


def find_outline_entry_at(
    document: ReaderDocument, entries: list[OutlineEntry], block: int, line: int
) -> int | None:
    """Return the index of the entry that contains a position.

    The position is the source line `line` in the block with the index `block`. Return None if the
    position is before all entries.
    """
    if entries and entries[0].turn is not None:
        turn = document.blocks[block].turn
        return None if turn is None else min(turn, len(entries)) - 1
    found = None
    for number, entry in enumerate(entries):
        index = document.find_block_index_by_key(entry.block)
        if index is None or index > block or (index == block and entry.line > line):
            break
        found = number
    return found


def _make_outline_entry_of_turn(turn: Turn) -> OutlineEntry:
    from kbtui.conversations.conversation_data_types import sum_token_usage
    from kbtui.tui.reader.markdown_layout import strip_markdown_and_move_matches

    calls = [event for event in turn.events if event.kind == "tool_call_request"]
    failed = sum(bool(call.result and call.result.is_error) for call in calls)
    tools = tuple(dict.fromkeys(call.name or "a tool" for call in calls))
    usage = sum_token_usage(turn.usage.values())
    times = [event.timestamp for event in turn.events[-3:] if event.timestamp is not None]
    seconds = None
    if times and turn.started_at is not None:
        seconds = max(0.0, (max(times) - turn.started_at).total_seconds())
    requests = (event.text for event in turn.events if event.kind == "chat_request")
    request = next(requests, "") or next((event.text for event in turn.events), "")
    tokens = _get_reported_token_total_or_sum_counts(usage) if usage else None
    facts = OutlineTurnFacts(
        turn.number, turn.started_at, seconds, len(calls), failed, tools, tokens, turn.is_rewound
    )
    words = strip_markdown_and_move_matches(request[:MAX_WORDS_CHARACTERS], [])[0]
    parts = [request[:MAX_SEARCHED_CHARACTERS], *tools, *(["failed"] if failed else [])]
    key, words, searched = f"turn:{turn.number}", sanitize_to_one_line(words), " ".join(parts)
    return OutlineEntry(key, words, turn=facts, searched=searched.casefold())


def _get_reported_token_total_or_sum_counts(usage: TokenUsage) -> int | None:
    """Return the total number of tokens that the agent reports, or else the sum of its other counts."""
    if usage.total_tokens is not None:
        return usage.total_tokens
    cached = usage.cache_read_tokens, usage.cache_write_tokens
    counts = (usage.input_tokens, usage.output_tokens, *cached)
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _iterate_outline_entries_of_headings(document: ReaderDocument) -> Iterator[OutlineEntry]:
    from kbtui.tui.reader.markdown_layout import parse_markdown
    from kbtui.tui.reader.reader_blocks import LeftAndRightLineBlock, MarkdownReaderBlock

    for block in document.blocks:
        if isinstance(block, LeftAndRightLineBlock):
            yield _make_outline_entry_of_heading(block.key, join_span_texts(block.left))
        elif isinstance(block, MarkdownReaderBlock) and "#" in block.get_searchable_text():
            tokens = parse_markdown(block.get_searchable_text())
            for token, inside in pairwise(tokens):
                if token.type == "heading_open" and token.level == 0 and token.map:
                    line, depth = (block.first_line or 1) + token.map[0], int(token.tag[1]) - 1
                    yield _make_outline_entry_of_heading(block.key, inside.content, line, depth)


def _make_outline_entry_of_version_or_file_change(block: ReaderBlock) -> OutlineEntry:
    """Return the outline entry for a subject's version, or for a file change made by a turn or call."""
    if block.turn is None:
        return _make_outline_entry_of_heading(block.key, block.get_searchable_text())
    place = f"{block.turn}.{block.call}" if block.call else str(block.turn)
    directory, _, name = (block.file or "").rpartition("/")
    return _make_outline_entry_of_heading(block.key, f"{place}  {name}  {directory}")


def _make_outline_entry_of_heading(
    block: str, text: str, line: int = 0, depth: int = 0
) -> OutlineEntry:
    words = sanitize_to_one_line(text.strip()[:MAX_WORDS_CHARACTERS])
    return OutlineEntry(block, words, line, depth, searched=words.casefold())
