"""A turn read from where it lies is that of the whole conversation, and costs what it has."""

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import Builder, asked, called, said, write_json

from kbtui.conversations import find_conversation, load_conversation
from kbtui.conversations.formats.jp import incremental_reader
from kbtui.conversations.formats.jp.incremental_reader import TurnReader
from kbtui.conversations.models import ConversationInfo, Turn
from kbtui.errors import WorkspaceError

ONE = {"timestamp": "2026-01-01 00:00:00.0"}
FEIGNED = '\n    "type": "turn_start"\n  },\n  {'


@pytest.fixture
def short_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental_reader, "FOLLOWED_FROM", 0)
    monkeypatch.setattr(incremental_reader, "_PIECE", 40)


def told(builder: Builder) -> ConversationInfo:
    return find_conversation(builder.workspace, 17_800_000_001)


def write(builder: Builder, events: list[dict[str, Any]]) -> Path:
    folder = builder.conversation(1, [[]], title="Long")
    write_json(folder / "events.json", [{**ONE, **event} for event in events])
    return folder / "events.json"


def bare(turn: Turn | None) -> Any:
    return turn and (
        turn.number,
        [(one.kind, one.text, one.arguments, one.call, one.is_error) for one in turn.events],
    )


def same(info: ConversationInfo, order: random.Random) -> int:
    """Whether every turn is that of the whole, whatever is asked for first; how many there are."""
    whole = load_conversation(info)
    numbers = list(range(len(whole.turns) + 3))
    order.shuffle(numbers)
    in_place = TurnReader(info)
    for number in numbers:
        assert bare(in_place.turn(number)) == bare(whole.turn(number)), number
    return len(whole.turns)


EVENTS = st.one_of(
    st.just({"type": "turn_start"}),
    st.builds(asked, st.sampled_from(["why", FEIGNED])),
    st.builds(said, st.sampled_from(["because", FEIGNED, "so\n  },\n  {\n"])),
    st.builds(lambda at: called(f"c{at}", "learn", FEIGNED, topic="t")[0], st.integers(0, 2)),
    st.just({"type": "config_delta", "delta": {"type": "turn_start"}}),
    st.just({"type": "of-later", "more": [{"type": "turn_start"}]}),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(events=st.lists(EVENTS, min_size=1, max_size=12), seed=st.integers(0, 99))
@pytest.mark.usefixtures("short_ones_too")
def test_each_turn_is_that_of_the_whole(workspace_root: Path, events: list[Any], seed: int) -> None:
    builder = Builder(workspace_root)
    write(builder, events)
    same(told(builder), random.Random(seed))


@pytest.mark.usefixtures("short_ones_too")
@pytest.mark.parametrize("indent", [None, 1, 4])
def test_another_layout_is_read_whole(workspace_root: Path, indent: int | None) -> None:
    builder = Builder(workspace_root)
    path = write(builder, [])
    events = [{"type": "turn_start"}, asked("one"), {"type": "turn_start"}, said("two")]
    path.write_text(json.dumps([{**ONE, **event} for event in events], indent=indent))
    assert same(told(builder), random.Random(1)) == 2


@pytest.mark.usefixtures("short_ones_too")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"content": "one"', '"content": "one'),
        ('"message": "two"', '"message": "two \\ud800"'),
        ('"message": "two"\n  }\n]\n', '"message": "tw'),
        ('"timestamp": "2026-01-01 00:00:00.0",\n    "type": "chat_request"', '"type'),
    ],
    ids=["an element", "half a character", "the end", "a key"],
)
def test_damage_costs_what_it_costs_in_the_whole(workspace_root: Path, old: str, new: str) -> None:
    builder = Builder(workspace_root)
    start = {"type": "turn_start"}
    path = write(builder, [start, said("zero"), start, asked("one"), said("1"), start, said("two")])
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert same(told(builder), random.Random(1)) == 3


@pytest.mark.usefixtures("short_ones_too")
def test_what_grows_and_what_is_replaced_is_read_as_it_is_now(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    start = {"type": "turn_start"}
    path = write(builder, [start, asked("one"), start, said("two")])
    found = TurnReader(told(builder))
    assert bare(found.turn(2)) == (2, [("message", "two", None, None, False)])
    write(builder, [start, asked("one, and more of it"), start, said("two"), said("!"), start])
    assert bare(found.turn(2)) == (2, [("message", "two!", None, None, False)])
    assert bare(found.turn(3)) == (3, [])
    path.unlink()
    with pytest.raises(WorkspaceError):
        found.turn(2)


def test_a_turn_of_a_long_conversation_takes_the_memory_of_a_turn(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    path = write(builder, [])
    with path.open("w") as file:
        for number in range(400):
            events = [{"type": "turn_start"}, asked(f"question {number}"), said("otter " * 5000)]
            text = json.dumps([{**ONE, **event} for event in events], indent=2)
            file.write(("[" if number == 0 else ",") + text[1:-2])
        file.write("\n]\n")
    info = told(builder)
    assert info.size > 10_000_000
    tracemalloc.start()
    try:
        found = TurnReader(info)
        for number in (400, 3, 200):
            turn = found.turn(number)
            assert turn
            assert turn.events[0].text == f"question {number - 1}"
            del turn
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000
    assert held < 500_000
