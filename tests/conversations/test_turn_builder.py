"""Events have values of the types that all screens and the index rely on."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kbtui.conversations.conversation_data_types import Conversation, ConversationInfo
from kbtui.conversations.formats.turn_builder import TurnBuilder


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (5, {}),
        (None, {}),
        ("text", {"name": 5}),
        ("text", {"call_id": []}),
        ("text", {"author": {}}),
        ("text", {"arguments": [1]}),
        ("text", {"arguments": {1: "one"}}),
        ("text", {"metadata": "none"}),
    ],
)
def test_an_event_with_a_value_of_a_wrong_type_is_refused(text: Any, fields: Any) -> None:
    builder = TurnBuilder()
    with pytest.raises(TypeError):
        builder.add_event("message", text, **fields)
    assert builder.turns == []


def test_calls_and_results_with_values_of_a_wrong_type_are_refused() -> None:
    builder = TurnBuilder()
    for name, arguments, call_id in ((5, {}, "a"), ("ls", {}, []), ("ls", {5: 5}, "a")):
        with pytest.raises(TypeError):
            builder.add_tool_call(name, arguments, call_id)  # type: ignore[arg-type]
    for call_id, text in (([], "text"), ("a", 5)):
        with pytest.raises(TypeError):
            builder.add_tool_result(call_id, text)  # type: ignore[arg-type]
    assert builder.turns == []
    assert builder.unanswered_call_ids == ()


def test_an_unreadable_record_is_shown_and_named_without_hostile_text() -> None:
    builder = TurnBuilder(count=1, record_noun="line")
    builder.add_unreadable_record("\x1b[31m", {"a": 1})
    assert builder.problems == [
        "line 2: the record has values of an unexpected type, so it is shown as JSON"
    ]
    assert '"a": 1' in builder.leading[0].text


def test_problems_are_compared_as_a_whole() -> None:
    """A problem stays listed even if its words are the beginning of another problem's."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    info = ConversationInfo("jp-c1", None, Path(), None, None, False, None, now)
    info = info.copy_with_problem("element 12: it has no name").copy_with_problem(
        "there is no base_config.json"
    )
    problems = ["element 1", "element 12: it has no name", "there is no base_config.json"]
    assert Conversation(info, [], problems=problems).describe_problems() == (
        "element 12: it has no name; there is no base_config.json; element 1"
    )
