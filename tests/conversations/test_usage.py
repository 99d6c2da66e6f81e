"""What conversations of other agents used: each message counts once, in the turn in which it was."""

from pathlib import Path

from claude_sessions import answered, call, result, session_id, typed, write_session
from support import Builder

from kbtui.conversations.conversation_data_types import TokenUsage
from kbtui.conversations.conversation_repository import find_conversation, load_conversation


def test_a_message_counts_once_in_its_turn(home: Path, workspace_root: Path) -> None:
    """An agent writes a message in several records, which repeat its usage while it grows."""
    records = [
        typed("Where is the needle?"),
        answered("I look.", usage=(10, 1, 100, 20)),
        answered(call(1, "Read", file_path="/hay"), usage=(10, 7, 100, 20)),
        result(1, "straw"),
        answered("In the hay.", message="msg_2", usage=(1, 5, 130, 0)),
        typed("And the thread?"),
        answered("Lost.", message="msg_3", model="claude-haiku-4-5", usage=(2, 3, 0, 0)),
    ]
    write_session(home, workspace_root, session_id(1), records)
    info = find_conversation(Builder(workspace_root).workspace, f"claude-{session_id(1)}")
    first, second = load_conversation(info).turns
    assert first.usage == {"claude-opus-4-6": TokenUsage(11, 12, 230, 20, 273)}
    assert second.usage == {"claude-haiku-4-5": TokenUsage(2, 3, 0, 0, 5)}
