"""Compounds of code are found however they are written, in linear time."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbtui.index.identifier_and_cjk_tokenizer import (
    MAX_COMPOUND_LENGTH,
    extract_cjk_character_pairs,
    extract_code_words,
    get_code_word_forms,
    may_have_code_words,
    normalize_unicode,
)
from kbtui.index.keyword_index_writer import make_tool_argument_terms


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("call readSubject()", "readSubject"),
        ("call readSubject()", "read_subject"),
        ("call read_subject()", "readSubject"),
        ("a read-subject step", "read_subject"),
        ("in kbtui/search/fusion.py it", "fusion.py"),
        ("in kbtui/search/fusion.py it", "search/fusion.py"),
        ("in .jp/kb.toml it", ".jp/kb.toml"),
        ("std::vec::Vec", "vec::Vec"),
        ("needs v2.8.3.", "2.8.3"),
        ("needs v2.8.3.", "2.8"),
        ("needs 2.8.3.", "v2.8.3"),
        ("C++ and C#", "C++"),
        ("C++ and C#", "c#"),
        ("error ERR-1042!", "ERR-1042"),
        ("KBTUI_ENGINE_IDLE=5", "KBTUI_ENGINE_IDLE"),
        ("with --no-vectors", "--no-vectors"),
        ("on 2026-11-01 we", "2026-11-01"),
    ],
)
def test_a_compound_is_found_in_each_of_its_forms(text: str, query: str) -> None:
    wanted = get_code_word_forms(query)
    assert set(wanted.wholes) & set(extract_code_words(text))
    assert may_have_code_words(text)


def test_a_part_of_a_camel_case_word_is_a_word() -> None:
    assert {"parse", "http", "request"} <= set(extract_code_words("parseHTTPRequest"))
    assert get_code_word_forms("parseHTTPRequest").parts == ["parse", "http", "request"]


def test_prose_has_no_code_words() -> None:
    prose = "It is said, after all. And WHY not? "
    assert list(extract_code_words(prose)) == []
    assert not may_have_code_words(prose)


def test_scripts_without_spaces_become_pairs() -> None:
    assert list(extract_cjk_character_pairs("全文検索 x 猫")) == ["全文", "文検", "検索", "猫"]
    assert set(get_code_word_forms("検索").pairs) <= set(extract_code_words("全文検索のしくみ"))


def test_letters_have_one_form() -> None:
    assert normalize_unicode("cafe\u0301") == normalize_unicode("caf\u00e9")
    assert normalize_unicode("ＡＰＩ ｶﾅ") == "API カナ"
    normalize_unicode("\ud800").encode()


@given(st.text(max_size=300))
@example("a/" * 150)
@example("_" * 300)
@settings(max_examples=200, deadline=None)
def test_any_text_gives_words_that_can_be_indexed(text: str) -> None:
    for word in extract_code_words(text):
        assert word
        assert not word.isspace()
        assert len(word) <= MAX_COMPOUND_LENGTH


@given(
    st.lists(
        st.sampled_from(
            [
                "read_subject",
                "C++",
                "c#.",
                "a/b.py,",
                "aB",
                "(XMLHttp)",
                "v2.8.3",
                "a::b!",
                "snake_",
            ]
        ),
        max_size=5,
    ),
    st.sampled_from(["plain", "Plain", "plain,", "Plain.", "(it's)", "a", "I", "ǆ", "naïve;"]),
    st.sampled_from([" ", "\n", "\u00a0"]),
)
def test_plain_words_around_them_neither_hide_nor_add_any(
    words: list[str], plain_: str, space: str
) -> None:
    among = space.join([plain_, *(part for word in words for part in (word, plain_))])
    found = [list(extract_code_words(word)) for word in words]
    assert all(found), "each of them is an identifier"
    assert list(extract_code_words(among)) == [part for parts in found for part in parts]
    assert not words or may_have_code_words(among)


@pytest.mark.parametrize("blob", ["a", "aB", "a/", "_", "A", "1.", "aa:", "-a"])
def test_a_long_blob_costs_as_much_as_its_length(blob: str) -> None:
    # In quadratic time this would take minutes and exceed the test's timeout.
    assert sum(1 for _ in extract_code_words(blob * 200_000)) < 2_000_000


def test_an_argument_is_asked_for_whole_by_an_end_or_by_a_directory() -> None:
    terms = make_tool_argument_terms("Path", "Docs/decisions/005-fuse.md")
    assert {
        "path",
        "path=docs/decisions/005-fuse.md",
        "path=decisions/005-fuse.md",
        "path=005-fuse.md",
        "path=docs",
        "path=docs/decisions",
    } <= set(terms)
    assert "pattern=never" in make_tool_argument_terms("pattern", "or never so")
