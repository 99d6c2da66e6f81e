"""A key or password is pointed at in the reader, and masked for an assistant over MCP."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder, asked, called, said

from kbtui.assistant.assistant_tools import should_mask_secrets
from kbtui.conversations.conversation_repository import find_conversation, load_conversation
from kbtui.knowledge import load_knowledge, read_subject_text
from kbtui.secret_detection import describe_secrets_in_text, find_secrets, mask_secrets
from kbtui.tui.reader.conversation_document_builder import build_conversation_document
from kbtui.tui.reader.subject_document_builder import build_subject_document
from kbtui.workspace import Settings

_RANDOM = random.Random(4)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
AWS = "AKIA" + "".join(_RANDOM.choices(_LETTERS, k=16))
GITHUB = "ghp_" + "".join(_RANDOM.choices("aZbY19" + _LETTERS, k=36))
ASSIGNED = "api_key = 'q7Rz-41kP_x8Wm2T'"
KINDS = {AWS: "AWS access key", GITHUB: "GitHub token", ASSIGNED: "secret",
         "postgres://me:hu5h-hu5h@db.example/x": "password"}  # fmt: skip


@pytest.mark.parametrize("secret", KINDS)
def test_the_reader_says_kind_and_line_and_never_the_secret(secret: str) -> None:
    said_ = describe_secrets_in_text(f"one\ntwo\n{secret}\n")
    assert said_ == f"looks like a secret: {KINDS[secret]} (line 3)"


@given(
    st.lists(
        st.sampled_from([*KINDS, "plain words", "token: string", "\u0130 password"]), max_size=6
    )
)
def test_what_is_flagged_is_what_is_masked(parts: list[str]) -> None:
    text = "\n".join(parts)
    assert bool(find_secrets(text)) == (mask_secrets(text) != text)


def test_subjects_and_conversations_carry_the_remark(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/keys.md", f"# Keys\n\n{AWS}\n")
    builder.subject("notes/none.md", "# None\n\nThe password is a secret.\n")
    builder.conversation(
        1,
        [
            [
                asked("What now?"),
                *called("a", "shell", f"env\n{GITHUB}\n", command="env"),
                said("No."),
            ]
        ],
    )
    knowledge = load_knowledge(builder.workspace)
    for slug, flagged in (("keys", True), ("none", False)):
        subject = knowledge.find_subject("notes", slug)
        assert subject
        document = build_subject_document(subject, read_subject_text(subject))
        assert any("AWS access key (line 3)" in word for word, _ in document.badges) == flagged
    conversation = load_conversation(find_conversation(builder.workspace, "jp-c17800000001"))
    from datetime import UTC, datetime

    shown = build_conversation_document(conversation, datetime.now(UTC))
    lines = [
        line.plain
        for block in shown.blocks
        for line in block.lay_out_with_lead_and_space_above(100)
    ]
    assert [line for line in lines if "looks like a secret: GitHub token (line 2)" in line]
    assert should_mask_secrets(Settings(), "mcp")
