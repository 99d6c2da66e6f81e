"""The format of JP's conversations."""

from __future__ import annotations

from kbtui.conversations.conversation_data_types import AgentCommand, ConversationInfo
from kbtui.conversations.formats.conversation_format import ConversationFormat
from kbtui.conversations.formats.jp import jp_conversation_finder, jp_conversation_loader
from kbtui.conversations.formats.jp.jp_conversation_finder import (
    list_jp_conversations_for_completion,
)
from kbtui.references import JP_ID_PREFIX

__all__ = ["JpFormat", "list_jp_conversations_for_completion"]


class JpFormat(ConversationFormat):
    """Finds and reads JP's conversations, both in the workspace and in JP's user-local directory."""

    name = "jp"
    label = "JP"
    id_prefix = JP_ID_PREFIX
    max_checked_bytes = None

    forks_at_turn = True

    find_stored_conversations = staticmethod(jp_conversation_finder.find_stored_jp_conversations)
    list_data_directories = staticmethod(jp_conversation_finder.list_roots_of_jp_conversations)
    count_trashed_conversations = staticmethod(
        jp_conversation_finder.count_trashed_jp_conversations
    )
    add_last_event_time = staticmethod(
        jp_conversation_loader.add_last_event_time_of_jp_conversation
    )
    add_event_count = staticmethod(jp_conversation_loader.add_event_count_of_jp_conversation)
    load_conversation = staticmethod(jp_conversation_loader.load_jp_conversation)
    load_conversation_beginning = staticmethod(
        jp_conversation_loader.load_jp_conversation_beginning
    )
    should_load_conversation_in_segments = staticmethod(
        jp_conversation_loader.should_load_jp_conversation_in_segments
    )
    load_conversation_segment = staticmethod(jp_conversation_loader.load_jp_conversation_segment)
    load_turns_for_searching = staticmethod(
        jp_conversation_loader.load_turns_of_jp_conversation_for_searching
    )
    read_conversation_tools_and_models = staticmethod(
        jp_conversation_loader.read_tools_and_models_of_jp_conversation
    )

    def make_resume_command(self, info: ConversationInfo) -> AgentCommand | None:
        return _make_jp_command_unless_archived(info, "q", "--id", info.id)

    def make_fork_command(self, info: ConversationInfo, turn: int | None) -> AgentCommand | None:
        first = () if turn is None else ("--first", str(turn))
        # `--activate` makes the copy the conversation of this terminal, which `jp q` continues.
        return _make_jp_command_unless_archived(info, "c", "fork", info.id, *first, "--activate")

    def make_attach_command(self, info: ConversationInfo, turn: int | None) -> AgentCommand | None:
        link = f"jp://{info.id}?select=u,a:{'..' if turn is None else turn}"
        return _make_jp_command_unless_archived(info, "q", "--new", "--attachment", link)


def _make_jp_command_unless_archived(info: ConversationInfo, *words: str) -> AgentCommand | None:
    """Return the command `jp` with the arguments `words`.

    Returns None if the conversation is in JP's archive.
    """
    return None if info.archived else AgentCommand(("jp", *words), None)
