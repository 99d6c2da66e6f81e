"""Excerpts as plain text: Markdown marks are removed, and no match is lost or moved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.search.search_request_and_answer import Hit
from kbtui.tui.reader.markdown_layout import strip_markdown_and_move_matches
from kbtui.tui.search_pane import make_hit_excerpt


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("**Status** quo", "Status quo"),
        ("a **bold *and* more** word", "a bold and more word"),
        ("*this* or _that_ or ~~those~~", "this or that or those"),
        ("see [the *guide*](http://a.b/c_d_e 'x'", "see [the guide](http://a.b/c_d_e 'x'"),
        ('see [the *guide*](a.md "Title") and ![a tree](t.png)', "see the guide and a tree"),
        ("run `make **x**` now", "run make **x** now"),
        ("## Head\ntext # not C# one", "Head\ntext # not C# one"),
        ("> [!TIP]\n> > Use it > that", "TIP\nUse it > that"),
        ("```rust\nlet a = *b * **c**;\n# no head\n```\n**after**",
         "\nlet a = *b * **c**;\n# no head\n\nafter"),
        ("~~~\n```\n**x**\n~~~", "\n```\n**x**\n"),
        ("a\n\n---\n\n| x | y |\n|---|:-:|\n| 1 | 2 |", "a\n\n\n\n· x · y \n\n· 1 · 2 "),
        ("2 * 3 * 4, a**2 + b**2, f(*a, **k)", "2 * 3 * 4, a**2 + b**2, f(*a, **k)"),
        ("foo_bar_baz and __init__", "foo_bar_baz and __init__"),
        ("2\\. not \\*this\\* but `\\d`", "2. not *this* but \\d"),
        ("- a list\n  * [ ] to do\n-5 or a - b", "· a list\n  · [ ] to do\n-5 or a - b"),
        ("| a \\| b | `c` |\n|---|---|\nx | y", "· a | b · c \n\nx | y"),
        ("as [the docs][d] say, not m[i][j]", "as the docs say, not m[i][j]"),
        ("[a][b](c)", "[a]b"),
        ("```\n- x\n| a | b |\n```", "\n- x\n| a | b |\n"),
        ("not **closed and `open", "not **closed and `open"),
    ],
)  # fmt: skip
def test_marks_are_removed_and_words_stay(text: str, words: str) -> None:
    assert strip_markdown_and_move_matches(text, []) == (words, [])


MARKS = [
    "**",
    "*",
    "_",
    "`",
    "```",
    "```rust",
    "~~~",
    "~~",
    "[!TIP]",
    "#",
    "[",
    "](u)",
    "!",
    "---",
    "|",
    "|---|",
    "\\",
]
pieces = st.sampled_from([*MARKS, "> ", "# ", "\n", "\n\n", " ", "word", "a", "é", "语"])


@st.composite
def marked(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    text = "".join(draw(st.lists(pieces, max_size=40)))
    ends = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    return text, list(zip(ends[::2], ends[1::2], strict=False))


@given(marked(), st.none() | st.integers(0, 60))
def test_no_match_is_lost_and_characters_keep_their_order(
    given: tuple[str, list[tuple[int, int]]], reach: int | None
) -> None:
    text, matches = given
    words, moved = strip_markdown_and_move_matches(text, matches, reach)
    assert [words[a:b] for a, b in moved] == [text[a:b] for a, b in matches]
    assert moved == sorted(moved)
    # List bullets and table bars became dots.
    rest = iter(text)
    for character in words:
        assert any(one == character or (character == "·" and one in "-*+|") for one in rest)
    # Only the words of a fence's language or of an address are lost.
    assert words.count("word") == text.count("word") or "```" in text or "~~~" in text


HIT = Hit("a/b", "subject", "e", "c", "B", "", 1.0)


@given(marked(), st.integers(20, 60))
def test_an_excerpt_highlights_its_matches(
    given: tuple[str, list[tuple[int, int]]], width: int
) -> None:
    text, matches = given
    lines = make_hit_excerpt(HIT._replace(text=text, matches=matches), width, 2)
    found = "".join(part for line in lines for part, role in line if role == "found")
    wanted = "".join(text[a:b] for a, b in matches)
    assert "".join(wanted.split()).startswith("".join(found.replace("…", "").split()))


def test_a_tool_result_keeps_its_marks() -> None:
    hit = HIT._replace(text="**kept** `as` it is", matches=[(2, 6)])
    (line,) = make_hit_excerpt(hit._replace(kind="conversation", role="tool-result"), 60, 2)
    assert "".join(part for part, _ in line) == "**kept** `as` it is"
    (line,) = make_hit_excerpt(hit, 60, 2)
    assert line == [("kept", "found"), (" as it is", "")]


def test_dots_separate_items_and_cells_in_an_excerpt() -> None:
    text = "- first  thing\n- second\n\n| step | command |\n|---|---|\n| build | `make` |\n"
    (line,) = make_hit_excerpt(HIT._replace(text=text, matches=[(17, 23)]), 80, 2)
    said = "".join(part for part, _ in line).rstrip()
    assert said == "first thing · second · step · command · build · make"
    assert [part for part, role in line if role == "found"] == [text[17:23]]


def test_an_excerpt_begins_with_the_sentence_of_its_match() -> None:
    text = (
        f"{'Some other sentence is here. ' * 20}The lock of the engine is a file. {'More. ' * 60}"
    )
    at = text.index("engine")
    lines = make_hit_excerpt(HIT._replace(text=text, matches=[(at, at + 6)]), 60, 2)
    said = "".join(part for line in lines for part, _ in line)
    assert said.startswith("…The lock of the engine is a file.")


def test_an_excerpt_shows_its_match_after_wide_characters() -> None:
    text = f"{'漢字' * 200}lock{'漢字' * 200}"
    at = text.index("lock")
    lines = make_hit_excerpt(HIT._replace(text=text, matches=[(at, at + 4)]), 40, 1)
    assert any(role == "found" for line in lines for _, role in line)
