"""JP's format of conversations, an implementation of `ConversationFormat`.

The functions that read events are imported on first use: listing and completion need none of them.
"""

from typing import TYPE_CHECKING, Any

from kbtui.conversations.formats.jp.stored_conversations import (
    ID_PREFIX,
    count_trashed_conversations,
    find_stored_conversations,
    list_conversations_for_completion,
)

if TYPE_CHECKING:
    from kbtui.conversations.formats.jp.conversation_loader import (
        add_event_count,
        add_last_event_time,
        can_load_conversation_parts,
        decode_turns,
        load_conversation,
        load_conversation_beginning,
        load_conversation_part,
        read_conversation_tools_and_models,
    )

__all__ = [
    "ID_PREFIX",
    "add_event_count",
    "add_last_event_time",
    "can_load_conversation_parts",
    "count_trashed_conversations",
    "decode_turns",
    "find_stored_conversations",
    "list_conversations_for_completion",
    "load_conversation",
    "load_conversation_beginning",
    "load_conversation_part",
    "read_conversation_tools_and_models",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.conversation_loader"), name)
