"""Layout of text as lines: wrapping, cutting, Markdown, code and tables, mostly as properties."""

import itertools
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from kbtui.tui.framework.styled_text import (
    HighlightPattern,
    align_spans_to_edges,
    capitalize_first_word_unless_name,
    highlight_matches,
    measure_cell_width,
    slice_spans,
    slice_spans_by_ranges,
    truncate_spans,
    truncate_text_start,
    wrap_code_line,
    wrap_spans,
)
from kbtui.tui.reader.markdown_layout import (
    SECTION_CHARACTERS,
    find_link_definitions,
    fit_column_widths,
    highlight_source_code,
    lay_out_markdown,
    split_markdown_into_sections_at_blank_lines,
    split_source_text_into_sections,
)

# Nothing here is about time, and the machine may be busy.
RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(st.sampled_from("ab cé日本語🙂-\u0301  "), max_size=120)
spans = st.lists(st.tuples(texts, st.sampled_from(["", "strong", "code"])), max_size=6)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def plain(lines: list) -> list[str]:  # type: ignore[type-arg]
    return [line.plain for line in lines]


@RELAXED
@given(spans, st.integers(4, 60))
def test_wrapped_lines_fit_and_lose_only_spaces(given_spans: list, width: int) -> None:  # type: ignore[type-arg]
    lines = wrap_spans(given_spans, width)
    assert all(measure_cell_width(line.spans) <= width for line in lines)
    whole = "".join(text for text, _ in given_spans)
    assert "".join("".join(plain(lines)).split()) == "".join(whole.split())


@RELAXED
@given(spans, st.integers(4, 60))
def test_wrapped_code_fits_and_loses_nothing(given_spans: list, width: int) -> None:  # type: ignore[type-arg]
    lines = wrap_code_line(given_spans, width)
    assert all(measure_cell_width(line.spans) <= width for line in lines)
    whole = "".join(text for text, _ in given_spans)
    assert "".join(text if not n else text[2:] for n, text in enumerate(plain(lines))) == whole


@RELAXED
@given(spans, st.lists(st.integers(0, 300), max_size=8))
def test_slicing_many_ranges_equals_slicing_each(given_spans: list, cuts: list[int]) -> None:  # type: ignore[type-arg]
    cuts = sorted(cuts)
    bounds = list(itertools.pairwise(cuts))
    assert list(slice_spans_by_ranges(given_spans, bounds)) == [
        slice_spans(given_spans, a, b) for a, b in bounds
    ]


@RELAXED
@given(spans, st.integers(0, 60), spans)
def test_truncated_and_aligned_spans_fit(left: list, width: int, right: list) -> None:  # type: ignore[type-arg]
    assert measure_cell_width(truncate_spans(left, width)) <= width
    assert measure_cell_width(align_spans_to_edges(left, right, width)) <= width
    text = "".join(part for part, _ in left)
    assert cell_len(truncate_text_start(text, max(1, width))) <= max(1, width)


def test_highlighting_counts_matches_and_marks_the_current_one() -> None:
    found = HighlightPattern(re.compile("an", re.IGNORECASE), current=1)
    marked = highlight_matches([("b", ""), ("anan", "strong"), ("A", ""), ("N", "")], found)
    assert [(t, r) for t, r in marked if "found" in r] == [
        ("an", "strong found"),
        ("an", "strong found-here"),
        ("A", "found"),
        ("N", "found"),
    ]
    assert found.seen_count == 3


MARKDOWN = """\
# Title with `code`

A paragraph with **bold**, *slant*, ~~gone~~, a [link](https://example.org/x) and <https://e.org>.
Second line.

> Quoted
> text

- one
- two
  - nested
- [x] done
- [ ] to do

3. three
4. four

| a | right |
|---|------:|
| 1 | 22 |

```python
def f(x):
    return x  # why
```

    indented code

---

<div>html stays text</div>

![a cat](cat.png)
"""


def test_markdown_is_laid_out_for_reading() -> None:
    lines = plain(lay_out_markdown(MARKDOWN, 60))
    text = "\n".join(lines)
    assert lines[0] == "Title with code"
    assert set(lines[1]) == {"━"}
    assert "A paragraph with bold, slant, gone, a link" in text
    assert "(https://example.org/x)" in text
    assert "▎ Quoted text" in text
    assert "• one\n• two\n  • nested\n• ☑ done\n• ☐ to do" in text
    assert "3. three\n4. four" in text
    assert "a │ right" in text
    assert "1 │    22" in text
    assert "  def f(x):" in text
    assert "indented code" in text
    assert "─" * 60 in lines
    assert "<div>html stays text</div>" in text
    assert "[image: a cat]" in text
    assert all(cell_len(line) <= 60 for line in lines)


def test_every_line_knows_the_line_of_its_source() -> None:
    lines = lay_out_markdown(MARKDOWN, 60, first_line=10)
    source = MARKDOWN.split("\n")
    for wanted in ("A paragraph", "def f(x)", "return x", "html stays", "four"):
        line = next(line for line in lines if wanted in line.plain)
        assert wanted in source[line.source_line - 10], (wanted, line.source_line)


@RELAXED
@given(st.text(max_size=300), st.integers(8, 80))
def test_any_text_is_laid_out_without_control_characters(text: str, width: int) -> None:
    for lines in (
        lay_out_markdown(text, width),
        [line for s in highlight_source_code(text, "python") for line in wrap_code_line(s, width)],
    ):
        for line in lines:
            assert not CONTROL.search(line.plain)
            assert "\n" not in line.plain


def test_line_breaks_after_short_lines_of_a_message_are_kept() -> None:
    short = "first\nsecond\nthird"
    assert plain(lay_out_markdown(short, 80, breaks=True)) == ["first", "second", "third"]
    assert plain(lay_out_markdown(short, 80)) == ["first second third"]
    broken = "This line was broken by the margin of an editor, not\non purpose."
    assert len(lay_out_markdown(broken, 100, breaks=True)) == 1


def test_code_keeps_its_indentation_and_gets_roles() -> None:
    lines = highlight_source_code("if x:\n\treturn 'a'\n", "python")
    assert "".join(text for text, _ in lines[1]) == "    return 'a'"
    assert ("return", "keyword") in lines[1]
    assert len(lines) == 3
    assert highlight_source_code("a\nb", "no-such-language") == [[("a", "")], [("b", "")]]


@RELAXED
@given(
    st.lists(
        st.sampled_from(
            [
                "word " * 30,
                "",
                "- item",
                "  more",
                "# head",
                "```",
                "~~~",
                "code line",
                "    x",
                "1. n",
            ]
        ),
        max_size=120,
    ),
    st.integers(60, 400),
)
def test_sections_contain_the_whole_text_in_order(lines: list[str], most: int) -> None:
    text = "\n".join(lines)
    for pieces in (
        list(split_markdown_into_sections_at_blank_lines(text, most)),
        list(split_source_text_into_sections(text, most)),
    ):
        position = 0
        for piece in pieces:
            assert piece.start >= position
            # Only the lines of the fence itself are missing between sections.
            assert not re.sub(r"[`~\s]|[^\n]*(?:```|~~~)[^\n]*", "", text[position : piece.start])
            assert piece.first_line == text.count("\n", 0, piece.start) + 1
            position = piece.end
        assert all(p.end - p.start <= 2 * most + 200 for p in pieces)


def test_a_section_never_ends_inside_a_fence_or_a_short_list() -> None:
    fence = "```rust\n" + "let a = 1;\n\n" * 40 + "```\n"
    items = "".join(f"{n}. item\n\n   more\n\n" for n in range(20))
    text = ("para " * 100 + "\n\n" + fence + "\n" + items + "\n") * 10
    pieces = list(split_markdown_into_sections_at_blank_lines(text, 2000))
    assert len(pieces) > 4
    for piece in pieces:
        part = text[piece.start : piece.end]
        assert part.count("```") % 2 == 0
    whole = [line for line in plain(lay_out_markdown(text, 70)) if line.strip()]
    parts = [
        line
        for piece in pieces
        for line in plain(lay_out_markdown(text[piece.start : piece.end], 70))
        if line.strip()
    ]
    assert parts == whole


def test_a_long_fence_is_split_into_sections_of_code() -> None:
    text = (
        "intro\n\n```rust\n" + "".join(f"let x{n} = {n};\n" for n in range(5000)) + "```\n\nend\n"
    )
    pieces = list(split_markdown_into_sections_at_blank_lines(text))
    code = [piece for piece in pieces if piece.code]
    assert len(code) > 5
    assert {piece.language for piece in code} == {"rust"}
    assert text[code[0].start :].startswith("let x0 = 0;")
    assert max(piece.end - piece.start for piece in pieces) <= 2 * SECTION_CHARACTERS
    assert not code[0].continued
    assert all(piece.continued for piece in code[1:])


def test_links_defined_elsewhere_in_the_text_still_work() -> None:
    links = find_link_definitions("[RFD 1]: https://example.org/1\n\n[b]: <x y>\n")
    lines = lay_out_markdown("See [RFD 1].", 80, links=links)
    assert any("link" in role for _, role in lines[0].spans)
    assert plain(lines) == ["See RFD 1 (https://example.org/1)."]


@RELAXED
@given(st.lists(st.integers(1, 80), min_size=1, max_size=6), st.integers(20, 100))
def test_columns_fit_if_they_can(wanted: list[int], width: int) -> None:
    widths = fit_column_widths(wanted, width)
    total = sum(widths) + 3 * (len(widths) - 1)
    assert total <= width or all(w <= 6 for w in widths)
    assert all(got <= want for got, want in zip(widths, wanted, strict=True))
    if sum(wanted) + 3 * (len(wanted) - 1) <= width:
        assert widths == wanted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("copied project/style", "Copied project/style"),
        ("url: is missing", "url: is missing"),
        ("nothing.", "Nothing."),
        ("project/style was not changed", "project/style was not changed"),
        ("jp-c17800000001:2 is gone", "jp-c17800000001:2 is gone"),
        ("kbtui crashed", "kbtui crashed"),
        ("workshop.write works only there", "workshop.write works only there"),
        ("3 changes", "3 changes"),
        ("", ""),
    ],
)
def test_messages_begin_with_a_capital_unless_with_a_name(text: str, shown: str) -> None:
    assert capitalize_first_word_unless_name(text) == shown
