"""Reading a long conversation in parts gives the same turns as reading it whole, also after it grows."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import Builder, asked, called, said, write_json

from kbtui.conversations.conversation_data_types import (
    ConversationEvent,
    ConversationInfo,
    ParsingResumePoint,
    Turn,
)
from kbtui.conversations.conversation_repository import find_conversation, load_conversation
from kbtui.conversations.formats.jp import jp_conversation_loader as loader
from kbtui.conversations.formats.jp.jp_conversation_loader import load_jp_conversation_segment

ONE = {"timestamp": "2026-01-01 00:00:00.0"}


@pytest.fixture(autouse=True)
def short_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "MIN_BYTES_FOR_SEGMENTS", 0)
    monkeypatch.setattr(loader, "BLOCK_BYTES", 16)


def write(builder: Builder, events: list[dict[str, Any]]) -> ConversationInfo:
    folder = builder.conversation(1, [[]], title="Long")
    write_json(folder / "events.json", [{**ONE, **event} for event in events])
    return find_conversation(builder.workspace, "jp-c17800000001")


def bare(turns: list[Turn]) -> list[Any]:
    """Return turns without the model, which parts lack, and without references between events."""

    def event(one: ConversationEvent) -> Any:
        return (
            one.kind, one.text, one.index, one.name, one.arguments, one.call, one.call_id,
            one.is_error, one.problem, one.result and one.result.index,
            one.request and one.request.index,
        )  # fmt: skip

    return [(turn.number, turn.started_at, [event(one) for one in turn.events]) for turn in turns]


def in_parts(
    info: ConversationInfo,
    mark: ParsingResumePoint | None,
    most: int,
    earlier: list[Any] | None = None,
) -> tuple[list[Any], ParsingResumePoint | None]:
    """Return `earlier` with the turns from the mark on, read part by part, and the last mark."""
    found = (earlier or [])[: mark.turns if mark else 0]
    while True:
        part = load_jp_conversation_segment(info, mark, most)
        if part is None:
            return bare(load_conversation(info).turns), None
        if part.start is None:
            found.clear()
        found += bare(part.conversation.turns)
        mark = part.resume_point
        if part.is_last:
            return found, mark


EVENTS = st.one_of(
    st.just({"type": "turn_start"}),
    st.builds(asked, st.sampled_from(["why", "\n  },\n  {", "[\n  {"])),
    st.builds(said, st.sampled_from(["because", "so\n  },\n  {\n"])),
    st.builds(lambda at: called(f"c{at}", "learn", "x", topic="t")[0], st.integers(0, 2)),
    st.builds(lambda at: called(f"c{at}", "learn", "x", topic="t")[1], st.integers(0, 2)),
    st.just({"type": "config_delta", "delta": {}}),
    st.just({"type": "tool_call_request", "id": [1]}),
    st.just({"type": "of-later"}),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=st.lists(EVENTS, min_size=1), more=st.lists(EVENTS), most=st.integers(1, 900))
def test_parts_make_up_the_whole(
    workspace_root: Path, first: list[Any], more: list[Any], most: int
) -> None:
    builder = Builder(workspace_root)
    info = write(builder, first)
    whole = bare(load_conversation(info).turns)
    turns, mark = in_parts(info, None, most)
    assert turns == whole
    end = load_jp_conversation_segment(info, mark, 1 << 20)
    assert not end or end.conversation.problems[:1] == load_conversation(info).problems[:1]
    info = write(builder, first + more)
    assert in_parts(info, mark, most, turns)[0] == bare(load_conversation(info).turns)


def test_what_was_appended_is_read_and_nothing_before_the_last_turn(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    turn = [{"type": "turn_start"}, asked("why"), said("because")]
    mark = in_parts(write(builder, turn * 50), None, 1000)[1]
    assert mark is not None
    assert mark.turns == 49
    part = load_jp_conversation_segment(write(builder, turn * 52), mark, 10_000)
    assert part is not None
    assert [turn.number for turn in part.conversation.turns] == [50, 51, 52]


def test_a_change_before_the_mark_means_the_beginning(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    turn = [{"type": "turn_start"}, asked("why"), said("because")]
    mark = in_parts(write(builder, turn * 9), None, 1000)[1]
    other = [{"type": "turn_start"}, asked("who"), said("because")]
    part = load_jp_conversation_segment(write(builder, other + turn * 9), mark, 100_000)
    assert part is not None
    assert part.start is None
    assert len(part.conversation.turns) == 10


def test_an_answer_to_a_call_of_an_earlier_part_means_the_whole(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    call, answer = called("a", "learn", "text", topic="t")
    turn = [{"type": "turn_start"}, asked("why"), said("because")]
    first = [{"type": "turn_start"}, call, *turn * 4]
    mark = in_parts(write(builder, first), None, 100_000)[1]
    assert mark is not None
    assert mark.waiting == ("a",)
    assert load_jp_conversation_segment(write(builder, [*first, answer]), mark, 100_000) is None


@pytest.mark.parametrize("how", ["compact", "damaged", "cut", "empty", "missing"])
def test_what_jp_would_not_write_so_is_left_to_be_read_whole(
    workspace_root: Path, how: str
) -> None:
    builder = Builder(workspace_root)
    events = [{**ONE, "type": "turn_start"}, {**ONE, **asked("why")}] * 20
    info = write(builder, events)
    path = info.events_path
    assert path is not None
    text = path.read_text()
    broken = {
        "compact": json.dumps(events),
        "damaged": text.replace('"why"', '"why', 1),
        "cut": text[:-30],
        "empty": "",
    }
    if how == "missing":
        path.unlink()
    else:
        path.write_text(broken[how])
    assert (
        load_jp_conversation_segment(find_conversation(builder.workspace, info.id), None, 100_000)
        is None
    )


def test_a_mark_survives_as_json(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    turn = [{"type": "turn_start"}, asked("why"), {"type": "tool_call_request"}]
    mark = in_parts(write(builder, turn * 3), None, 1000)[1]
    assert mark is not None
    kept = ParsingResumePoint(*json.loads(json.dumps(mark)))
    assert load_jp_conversation_segment(write(builder, turn * 4), kept, 1000) is not None
