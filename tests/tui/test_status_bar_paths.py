"""A long path in a message of the status bar does not push the rest of the message off the line."""

from hypothesis import given
from hypothesis import strategies as st

from kbtui.terminal_text import measure_text_width, shorten_paths_to_width

WORD = st.text("abc-_é空", min_size=1, max_size=6)
DIRECTORY = st.lists(WORD, min_size=1, max_size=3).map(" ".join)
NAMES = st.tuples(st.lists(DIRECTORY, min_size=1, max_size=7), WORD).map(
    lambda two: [*two[0], two[1]]
)


@given(NAMES, st.integers(10, 90))
def test_a_path_loses_its_first_directories_and_keeps_its_last_name(
    names: list[str], width: int
) -> None:
    path = "/" + "/".join(names)
    text = shorten_paths_to_width(f"{path}: the directory does not exist", width)
    shown, colon, fact = text.partition(":")
    assert colon + fact == ": the directory does not exist"
    assert shown.endswith("/" + names[-1])
    assert path.endswith(shown.removeprefix("…"))
    shortest = f"…/{names[-1]}{colon}{fact}"
    assert measure_text_width(text) <= max(width, measure_text_width(shortest))
    assert shown == path or measure_text_width(f"{path}{colon}{fact}") > width
