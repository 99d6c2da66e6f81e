"""JP's format of conversations.

Functions that read events are imported on first use: listing conversations and completing ids works
without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.conversations.formats.conversation_format import ConversationFormat, DecodedTurns
from kbtui.conversations.formats.jp import stored_conversations
from kbtui.conversations.formats.jp.stored_conversations import list_conversations_for_completion
from kbtui.refs import JP_ID_PREFIX

__all__ = ["JpFormat", "list_conversations_for_completion"]

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kbtui.conversations.formats.conversation_format import (
        StoredConversation,
        UnlistedConversationPath,
    )
    from kbtui.conversations.models import (
        AgentCommand,
        Conversation,
        ConversationInfo,
        ConversationPart,
        ConversationToolsAndModels,
        ReadingResumePoint,
    )
    from kbtui.workspace import Workspace


class JpFormat(ConversationFormat):
    """The conversations of JP, both in the workspace and in JP's user-local directory."""

    name = "jp"
    label = "JP"
    id_prefix = JP_ID_PREFIX
    max_checked_bytes = None

    forks_at_turn = True

    def find_stored_conversations(
        self, workspace: Workspace, only: str | None = None
    ) -> tuple[Sequence[StoredConversation], list[UnlistedConversationPath]]:
        return stored_conversations.find_stored_conversations(workspace, only)

    def list_data_directories(self, workspace: Workspace) -> list[Path]:
        return stored_conversations.list_conversation_directories(workspace)

    def count_trashed_conversations(self, workspace: Workspace) -> dict[str, int]:
        return stored_conversations.count_trashed_conversations(workspace)

    def add_last_event_time(self, info: ConversationInfo) -> ConversationInfo:
        from kbtui.conversations.formats.jp import conversation_loader

        return conversation_loader.add_last_event_time(info)

    def add_event_count(self, info: ConversationInfo) -> ConversationInfo:
        from kbtui.conversations.formats.jp import conversation_loader

        return conversation_loader.add_event_count(info)

    def load_conversation(self, info: ConversationInfo) -> Conversation:
        from kbtui.conversations.formats.jp import conversation_loader

        return conversation_loader.load_conversation(info)

    def load_conversation_beginning(self, info: ConversationInfo) -> Conversation | None:
        from kbtui.conversations.formats.jp import conversation_loader

        return conversation_loader.load_conversation_beginning(info)

    def should_load_conversation_in_parts(self, info: ConversationInfo) -> bool:
        from kbtui.conversations.formats.jp import conversation_loader

        return conversation_loader.should_load_conversation_in_parts(info)

    def load_conversation_part(
        self, info: ConversationInfo, mark: ReadingResumePoint | None, size: int
    ) -> ConversationPart | None:
        from kbtui.conversations.formats.jp import conversation_loader

        return conversation_loader.load_conversation_part(info, mark, size)

    def decode_turns(self, info: ConversationInfo) -> DecodedTurns:
        from kbtui.conversations.formats.jp import conversation_loader

        return conversation_loader.decode_turns(info)

    def read_conversation_tools_and_models(
        self, info: ConversationInfo
    ) -> ConversationToolsAndModels:
        from kbtui.conversations.formats.jp import conversation_loader

        return conversation_loader.read_conversation_tools_and_models(info)

    def make_resume_command(self, info: ConversationInfo) -> AgentCommand | None:
        return _make_jp_command(info, "q", "--id", info.id)

    def make_fork_command(self, info: ConversationInfo, turn: int | None) -> AgentCommand | None:
        first = () if turn is None else ("--first", str(turn))
        # `--activate` makes the copy the conversation of this terminal, which `jp q` continues.
        return _make_jp_command(info, "c", "fork", info.id, *first, "--activate")

    def make_attach_command(self, info: ConversationInfo, turn: int | None) -> AgentCommand | None:
        link = f"jp://{info.id}?select=u,a:{'..' if turn is None else turn}"
        return _make_jp_command(info, "q", "--new", "--attachment", link)


def _make_jp_command(info: ConversationInfo, *words: str) -> AgentCommand | None:
    """Return a command of JP, or None for an archived conversation, which JP does not find."""
    from kbtui.conversations.models import AgentCommand

    return None if info.archived else AgentCommand(("jp", *words), None)
