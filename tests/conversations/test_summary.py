"""The summary of a conversation agrees with reading it whole."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import Builder, write_json

from kbtui.conversations.conversation_data_types import ConversationInfo
from kbtui.conversations.conversation_repository import (
    find_conversation,
    list_conversations,
    load_conversation,
)
from kbtui.conversations.formats.jp.jp_conversation_finder import JpConversationCopies
from kbtui.conversations.formats.jp.jp_conversation_loader import (
    read_tools_and_models_of_jp_conversation,
)

TIME = "2026-05-01 10:00:00.0"
ELEMENTS = st.sampled_from(
    [
        {"type": "turn_start"},
        {"type": "chat_request", "content": "Hello?"},
        {"type": "chat_response", "message": "Yes."},
        {"type": "chat_response", "reasoning": "Hm."},
        {"type": "tool_call_request", "id": "a", "name": "fs_read_file", "arguments": {}},
        {"type": "tool_call_request", "id": "b", "name": 7, "arguments": {}},
        {"type": "tool_call_response", "id": "a", "content": "", "is_error": False},
        {"type": "inquiry_request", "id": "q", "question": {"text": "?"}},
        {"type": "config_delta", "delta": {"assistant": {"model": {"id": "opus"}}}},
        {"type": "config_delta", "delta": {"assistant": {"model": {"id": "haiku"}}}},
        {"type": "compaction", "from_turn": 0, "to_turn": 0},
        {"type": "of_a_later_jp"},
    ]
)


@given(elements=st.lists(ELEMENTS, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_turns_and_tools_are_those_of_the_whole_conversation(
    workspace_root: Path, elements: list[dict[str, Any]]
) -> None:
    builder = Builder(workspace_root)
    folder = builder.conversation(1, [])
    write_json(folder / "events.json", [{"timestamp": TIME, **element} for element in elements])
    info = find_conversation(builder.workspace, "jp-c17800000001")
    traits, whole = read_tools_and_models_of_jp_conversation(info), load_conversation(info)
    assert traits.turns == len(whole.turns)
    events = [event for turn in whole.turns for event in turn.events]
    assert traits.tools == {e.name for e in events if e.kind == "tool_call_request" and e.name}
    assert traits.problem == whole.describe_problems()


def test_a_model_counts_when_it_answered(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    folder = builder.conversation(1, [])
    answer = {"timestamp": TIME, "type": "chat_response", "message": "Yes."}

    def models(*elements: dict[str, Any]) -> frozenset[str]:
        write_json(folder / "events.json", list(elements))
        return read_tools_and_models_of_jp_conversation(
            find_conversation(builder.workspace, "jp-c17800000001")
        ).models

    deltas = [
        {"timestamp": TIME, "type": "config_delta", "delta": {"assistant": {"model": {"id": name}}}}
        for name in ("unused", "opus", "haiku")
    ]
    assert models(deltas[0], deltas[1], answer, deltas[2], answer) == {"opus", "haiku"}
    assert models(deltas[0], deltas[1]) == {"opus"}


def test_damage_is_told_and_costs_only_itself(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    folder = builder.conversation(1, [])
    call = '{"type": "tool_call_request", "id": "a", "name": "shell", "arguments": {}}'
    (folder / "events.json").write_text(f"[\n  {call},\n  {{nonsense")
    traits = read_tools_and_models_of_jp_conversation(
        find_conversation(builder.workspace, "jp-c17800000001")
    )
    assert traits.tools == {"shell"}
    assert traits.problem is not None
    assert traits.problem.startswith("events.json: ")


def test_a_list_made_again_reads_only_what_changed(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(workspace_root)
    for number in range(1, 5):
        builder.conversation(number, [[{"type": "chat_request", "content": "Hm?"}]], title="Old")
    known = {info.id: info for info in list_conversations(builder.workspace, counts=False)}
    builder.conversation(2, [], title="New")
    builder.conversation(5, [], title="Another")
    (builder.conversation(3, []) / "metadata.json").unlink()
    described: list[str] = []
    read_conversation_info = JpConversationCopies.read_conversation_info

    def remembered(stored: JpConversationCopies) -> ConversationInfo:
        described.append(stored.id)
        return read_conversation_info(stored)

    monkeypatch.setattr(JpConversationCopies, "read_conversation_info", remembered)
    again = list_conversations(builder.workspace, counts=False, known=known)
    assert sorted(described) == [f"jp-c1780000000{number}" for number in (2, 3, 5)]
    monkeypatch.undo()
    assert again == list_conversations(builder.workspace, counts=False)
