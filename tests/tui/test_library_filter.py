"""The library's filter line: what matches, and how mistakes are reported."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.conversations.conversation_data_types import ConversationInfo, ConversationToolsAndModels
from kbtui.search.filter_definitions import map_filter_keys_and_aliases_to_definitions
from kbtui.tui.library_pane import parse_library_filter

PRESENT = datetime(2026, 5, 20, 12, tzinfo=UTC)
INFO = ConversationInfo(
    id="jp-c17800000001",
    title="Cold-start of the Engine",
    directory=Path("x"),
    events_path=None,
    base_config_path=None,
    archived=False,
    presence="projected",
    created_at=PRESENT - timedelta(days=9),
    last_event_at=PRESENT - timedelta(days=2),
    labels={"area": "UI", "urgent": ""},
)
TRAITS = ConversationToolsAndModels(
    tools=frozenset({"fs_read_file"}), models=frozenset({"anthropic/claude-opus-4-6"})
)


@pytest.mark.parametrize(
    ("text", "through"),
    [
        ("engine cold", True),
        ("engine warm", False),
        ('"of the engine"', True),
        ("cold-start", True),
        ("-engine", False),
        ("label:area", True),
        ("label:area=ui", True),
        ("label:ui", True),
        ("label:area=cli", False),
        ("-label:urgent", False),
        ("tool:read_file", True),
        ("tool:shell", False),
        ("-tool:shell", True),
        ("model:opus engine", True),
        ("model:haiku", False),
        ("after:3d", True),
        ("after:yesterday", False),
        ("before:yesterday", True),
        ("after:2026-05-18 before:2026-05-19", True),
        ("since:3d", True),
        ("is:pinned", False),
        ("-is:archived", True),
        ("http://engine", False),
        ("", True),
    ],
)
def test_each_kind_of_part_lets_through_what_it_says(text: str, through: bool) -> None:
    found = parse_library_filter(text, PRESENT)
    assert found.errors == ()
    assert found.matches_conversation(INFO, TRAITS) is through


def test_what_was_not_read_yet_is_let_through_by_no_tool_and_no_model() -> None:
    for text in ("tool:read", "-tool:shell", "model:opus", "-model:haiku"):
        found = parse_library_filter(text, PRESENT)
        assert found.needs_conversation_summaries
        assert not found.matches_conversation(INFO, None)


@pytest.mark.parametrize(
    ("text", "part", "word"),
    [
        ("engine after:someday x", "after:someday", "2026-11-01"),
        ("is:blue", "is:blue", "pinned"),
        ("tool: engine", "tool:", "needs a value"),
        ("modle:opus", "modle:opus", "did you mean 'model:'?"),
        ("from:3d", "from:3d", "only in the entries"),
        ("speaker:bob", "speaker:bob", "no filter 'speaker:'"),
    ],
)
def test_a_mistake_is_pointed_at_and_the_rest_still_filters(
    text: str, part: str, word: str
) -> None:
    found = parse_library_filter(text, PRESENT)
    assert [text[slip.start : slip.end] for slip in found.errors] == [part]
    assert word in str(found.errors[0])
    # An unknown filter is also a word.
    words = tuple(w for w in text.split() if w != part)
    assert found.words == words or part.startswith(("modle", "from", "speaker"))


def test_what_is_still_being_typed_is_no_mistake_yet() -> None:
    assert parse_library_filter("after:20", PRESENT, partial=True).errors == ()
    assert parse_library_filter("after:20 x", PRESENT, partial=True).errors != ()


@given(
    st.lists(
        st.sampled_from(
            [*'ab:"- =\n', *map_filter_keys_and_aliases_to_definitions("library"), "after:", "3d"]
        ),
        max_size=12,
    )
)
def test_every_text_is_a_filter_and_a_slip_lies_inside_it(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = parse_library_filter(text, PRESENT)
    assert isinstance(found.matches_conversation(INFO, TRAITS), bool)
    assert all(0 <= error.start < error.end <= len(text) for error in found.errors)


@given(st.text(max_size=20))
def test_a_title_passes_through_its_own_words(title: str) -> None:
    words = [word for word in title.split() if word.isalnum()]
    found = parse_library_filter(" ".join(words), PRESENT)
    assert found.matches_conversation(replace(INFO, title=" ".join(words) or None), None)
