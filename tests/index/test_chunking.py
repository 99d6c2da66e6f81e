"""Chunks contain the whole text, know their lines, fit the model, and survive edits elsewhere."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbtui.conversations.conversation_data_types import ConversationEvent, format_event_text
from kbtui.index.chunk_splitter import (
    MAX_CHUNK_SIZE,
    count_weighted_characters,
    make_chunk_ids,
    split_subject_into_chunks,
    split_text_into_chunks,
)
from kbtui.index.entry_and_chunk_data_types import Chunk
from kbtui.knowledge.front_matter import split_front_matter
from kbtui.knowledge.knowledge_data_types import Subject
from kbtui.tui.reader.reader_blocks import MarkdownReaderBlock, VerbatimTextReaderBlock
from kbtui.tui.reader.subject_document_builder import build_subject_document

WORDS = st.text(
    alphabet=st.sampled_from("abcdefgh.!?。 \t#`~-\\é日本語\u3000\r\x0b"), min_size=0, max_size=60
)
LINES = st.one_of(
    WORDS,
    st.sampled_from(["", "# Title", "## Part", "```python", "```", "~~~~", "- item", "    code"]),
    st.integers(1, 40).map(lambda times: "long line without end " * times),
    st.integers(100, 2500).map(lambda times: "x" * times),
)
TEXTS = st.lists(LINES, max_size=40).map("\n".join)


def bare(text: str) -> str:
    return "".join(text.split())


@given(TEXTS | st.lists(WORDS, max_size=6).map("\n".join), st.sampled_from([120, MAX_CHUNK_SIZE]))
@settings(max_examples=50, deadline=None)
def test_one_paragraph_is_cut_as_it_is_after_an_empty_line(text: str, most: int) -> None:
    below = [
        (piece.text, piece.first - 1, piece.last - 1)
        for piece in split_text_into_chunks("\n" + text, most)
    ]
    assert [
        (piece.text, piece.first, piece.last) for piece in split_text_into_chunks(text, most)
    ] == below


@given(TEXTS, st.sampled_from([120, 400, MAX_CHUNK_SIZE]))
@settings(max_examples=50, deadline=None)
def test_nothing_but_white_space_is_lost(text: str, most: int) -> None:
    assert "".join(bare(piece.text) for piece in split_text_into_chunks(text, most)) == bare(text)


@given(TEXTS, st.sampled_from([120, 400, MAX_CHUNK_SIZE]))
@settings(max_examples=50, deadline=None)
def test_every_piece_fits_and_stands_in_its_lines(text: str, most: int) -> None:
    lines = text.split("\n")
    before = 1
    for piece in split_text_into_chunks(text, most):
        assert piece.text.strip()
        assert count_weighted_characters(piece.text) <= most
        assert before <= piece.first <= piece.last <= len(lines)
        before = piece.first
        assert bare(piece.text) in bare("\n".join(lines[piece.first - 1 : piece.last]))


PLAIN = st.lists(
    st.text(alphabet="abc .!?日。", max_size=400).filter(lambda text: bool(text.strip())),
    max_size=12,
).map("\n\n".join)


@given(st.lists(PLAIN, min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_sections_are_cut_independently_of_each_other(bodies: list[str]) -> None:
    sections = [f"# Section\n\nwords\n\n{body}" for body in bodies]
    alone = [piece.text for section in sections for piece in split_text_into_chunks(section)]
    assert [piece.text for piece in split_text_into_chunks("\n\n".join(sections))] == alone


def paragraphs(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    words = ["alpha", "beta", "gamma", "delta", "index", "engine", "chunk", "vector", "turn"]
    return [
        " ".join(dice.choice(words) for _ in range(dice.randint(8, 60))) + f" {number}."
        for number in range(count)
    ]


def test_an_edit_in_a_text_without_headings_moves_few_boundaries() -> None:
    for seed in range(5):
        before = paragraphs(80, seed)
        after = [*before[:3], "A new paragraph in the first part.", *before[3:]]
        old = Counter(piece.text for piece in split_text_into_chunks("\n\n".join(before)))
        new = Counter(piece.text for piece in split_text_into_chunks("\n\n".join(after)))
        assert (old & new).total() >= old.total() * 0.8


def test_a_heading_begins_a_piece_and_headings_stay_with_their_text() -> None:
    text = "# Title\n\n## First\n\nOne.\n\n## Second\n\nTwo."
    assert [piece.text for piece in split_text_into_chunks(text)] == [
        "# Title\n\n## First\n\nOne.",
        "## Second\n\nTwo.",
    ]


def test_a_fenced_block_is_not_cut_at_its_empty_lines_or_hashes() -> None:
    fence = "```sh\n# not a heading\n\nmake test\n```"
    assert [piece.text for piece in split_text_into_chunks(f"Before.\n\n{fence}")] == [
        f"Before.\n\n{fence}"
    ]


def test_a_long_line_is_cut_between_sentences() -> None:
    line = "One sentence stands here. " * 60
    cut = split_text_into_chunks(line)
    assert len(cut) > 1
    assert all(piece.text.endswith(".") and piece.text.startswith("One") for piece in cut)


def test_text_without_spaces_is_cut_after_its_full_stops_and_counts_for_more() -> None:
    cut = split_text_into_chunks("索引は一つの過程だけが書きます。" * 40)
    assert len(cut) > 1
    assert all(piece.text.endswith("。") for piece in cut)
    assert max(len(piece.text) for piece in cut) <= MAX_CHUNK_SIZE / 3 + 1


def test_front_matter_is_left_out_and_lines_still_count_from_the_top() -> None:
    text = "---\ntitle: Words\ntags: [a]\n---\n\n# Heading\n\nBody.\n"
    (chunk,) = split_subject_into_chunks(split_front_matter(text))
    assert chunk.text == "# Heading\n\nBody."
    assert chunk.lines == (6, 8)


@pytest.mark.parametrize(
    "text",
    [
        "---\nno front matter at all\n" + "line\n" * 300,
        "---\ntitle: [never closed\n---\n\nBody.\n",
        "---\nA paragraph between two rules.\n---\n\nBody.\n",
    ],
    ids=["no end", "no YAML", "no table"],
)
def test_what_only_looks_like_front_matter_is_found_as_text(text: str) -> None:
    chunks = split_subject_into_chunks(split_front_matter(text))
    assert " ".join(text.split()) == " ".join(" ".join(chunk.text for chunk in chunks).split())
    assert chunks[0].lines
    assert chunks[0].lines[0] == 1


@pytest.mark.parametrize(
    "head",
    ["---\ntitle: T\n---\n", "---\ntitle: T\n...\n", "---\r\ntitle: T\r\n---\r\n", "---\n---\n",
     "---\ntitle: T\n--- \n", "---\ntitle: T\n----\n", "---\ntitle: [x\n---\n", "---\ntitle: T\n"],
)  # fmt: skip
def test_the_reader_shows_as_text_what_the_index_finds(head: str) -> None:
    text = f"{head}\nA body.\n\nMore of it.\n"
    subject = Subject("guide", "s", "s.md", "s.md")
    blocks = [
        block
        for block in build_subject_document(subject, text).blocks
        if isinstance(block, MarkdownReaderBlock | VerbatimTextReaderBlock)
    ]
    shown = " ".join(text[block.start : block.end] for block in blocks)
    found = " ".join(chunk.text for chunk in split_subject_into_chunks(split_front_matter(text)))
    assert shown.split() == found.split()


def test_an_id_is_made_from_entry_text_and_its_place_among_equal_texts() -> None:
    one = make_chunk_ids("s1", [Chunk("", "same", 0), Chunk("", "same", 0)])
    other = make_chunk_ids("s2", [Chunk("", "same", 0)])
    moved = make_chunk_ids("s1", [Chunk("", "new", 0), Chunk("", "same", 0), Chunk("", "same", 0)])
    assert len({*one, *other}) == 3
    assert moved[1:] == one


def test_the_text_of_a_call_is_its_name_and_its_arguments_by_line() -> None:
    event = ConversationEvent(
        "tool_call_request", None, "", 0, name="fs_read_file", arguments={"path": "a.md", "n": [1]}
    )
    assert format_event_text(event) == "fs_read_file\npath: a.md\nn: [1]"
    patch = ConversationEvent("tool_call_request", None, "+ a", 0, name="apply_patch", arguments={})
    assert format_event_text(patch) == "apply_patch\n+ a"
