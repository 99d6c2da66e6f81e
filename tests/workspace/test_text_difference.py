"""Two versions of a text are compared so that nothing is lost and only what differs is marked."""

from hypothesis import given
from hypothesis import strategies as st

from kbtui.text_difference import (
    compare_paragraphs,
    find_changed_words,
    format_unified_difference,
)

paragraphs = st.lists(
    st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta"]), min_size=1, max_size=6).map(
        " ".join
    ),
    max_size=8,
)


@given(paragraphs, paragraphs)
def test_each_side_has_all_its_paragraphs_in_order(old: list[str], new: list[str]) -> None:
    compared = compare_paragraphs("\n\n".join(old), "\n\n".join(new))
    assert [one.old for one in compared if one.old is not None] == old
    assert [one.new for one in compared if one.new is not None] == new
    assert any(one.is_changed for one in compared) == (old != new)


@given(paragraphs, paragraphs)
def test_without_the_marked_words_both_versions_are_equal(old: list[str], new: list[str]) -> None:
    before, after = "\n".join(old), "\n".join(new)
    changed = find_changed_words(before, after)

    def remove(text: str, ranges: list[tuple[int, int]]) -> list[str]:
        for start, end in reversed(ranges):
            text = f"{text[:start]} {text[end:]}"
        return text.split()

    assert remove(before, changed.old) == remove(after, changed.new)


def test_a_changed_paragraph_stands_beside_its_old_version_with_the_words_marked() -> None:
    old = "# Limits\n\nA hundred from each leg.\n\nThe end.\n"
    new = "# Limits\n\nA new first paragraph.\n\nA thousand from each leg.\n\nThe end.\n"
    heading, added, changed, end = compare_paragraphs(old, new)
    assert (heading.is_changed, end.is_changed) == (False, False)
    assert (added.old, added.new) == (None, "A new first paragraph.")
    assert changed.old is not None
    assert changed.new is not None
    assert [changed.old[slice(*part)] for part in changed.old_ranges] == ["hundred"]
    assert [changed.new[slice(*part)] for part in changed.new_ranges] == ["thousand"]


def test_the_unified_difference_names_both_versions_and_ignores_the_last_newline() -> None:
    text = format_unified_difference("one\ntwo\n", "one\n2", "then", "now")
    assert text == "--- then\n+++ now\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert format_unified_difference("same\n", "same", "then", "now") == ""
