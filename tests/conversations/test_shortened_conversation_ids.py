"""Shortened ids: the list shows the shortest beginning that names one conversation."""

from pathlib import Path

import pytest
from claude_sessions import session_id, typed, write_session
from support import Builder, asked

from kbtui.conversations.conversation_repository import (
    ConversationNotFoundError,
    expand_conversation_reference,
)
from kbtui.errors import UsageError
from kbtui.references import parse_conversation_ref, shorten_conversation_ids
from kbtui.workspace import Workspace


def test_a_short_id_has_eight_characters_or_as_many_as_it_needs() -> None:
    ids = [
        "claude-258c7280-241a-462a-8d15-5122611a9569",
        "claude-258c7280-241a-462a-8d15-5122611a9569~a2898e3",
        "claude-491e126e-1e71-469c-ade2-fcc8af567c74",
        "claude-0199812e-64f0-7f73-91fc-095dda01c36e",
        "claude-0199812e-64f1-7f73-91fc-095dda01c36e",
        "claude-abcdefab-cdef-4aaa-8d15-5122611a9569",
        "jp-c17457886043",
    ]
    assert list(map(shorten_conversation_ids(ids).get, ids)) == [
        "claude-258c7280",
        "claude-258c7280~a2898e3",
        "claude-491e126e",
        "claude-0199812e-64f0",
        "claude-0199812e-64f1",
        "claude-abcdefab-cdef-4",  # without a digit it would be the name of a topic
        "jp-c17457886043",
    ]


def test_every_short_id_leads_to_its_conversation(home: Path, workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.conversation(1, [[asked("Hello")]])
    for number in (1, 2):
        write_session(home, workspace_root, session_id(number), [typed("Hello")])
        write_session(home, workspace_root, session_id(number), [typed("Go")], subagent="a2898e3")
    other = session_id(1)[:-1] + "0"
    write_session(home, workspace_root, other, [typed("Hello")])
    from kbtui.conversations.conversation_repository import list_conversation_change_signatures

    ids = list(list_conversation_change_signatures(builder.workspace))
    assert len(ids) == 6
    for id_, short in shorten_conversation_ids(ids).items():
        ref = parse_conversation_ref(f"{short}:3.2")
        assert str(expand_conversation_reference(builder.workspace, ref)) == f"{id_}:3.2"
    with pytest.raises(UsageError, match="2 conversations match"):
        expand_conversation_reference(
            builder.workspace, parse_conversation_ref(f"claude-{session_id(1)[:8]}")
        )


def test_a_mistyped_id_names_the_right_one_and_a_foreign_id_none(
    home: Path, workspace_root: Path
) -> None:
    root = workspace_root
    Builder(root).conversation(1, [[asked("Hello")]])
    session = "0199812e-64f0-7f73-91fc-095dda01c36e"
    write_session(home, root, session, [typed("Hello")])
    workspace = Workspace(root)
    for mistyped in (f"claude-{session[:-1]}f", "claude-0199821e-64f0", f"claude-{session[1:]}"):
        assert ConversationNotFoundError(workspace, mistyped).nearest == f"claude-{session}"
    for foreign in ("claude-0199812e-77aa-7c01-8a3e-d2b4e6f81357", "claude-99999999", "claude-7"):
        assert ConversationNotFoundError(workspace, foreign).nearest is None
    # The conversation may have been deleted: the other one is only of about the same time.
    assert ConversationNotFoundError(workspace, "jp-c17800000002").nearest is None
