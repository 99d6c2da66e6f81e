"""JP's conversations: listed, searched and read from their files, which are never written."""

from kbtui.conversations.ids import parse_conversation_id, parse_conversation_ref
from kbtui.conversations.listing import (
    find_conversation,
    list_conversations,
    strays,
    with_activity,
    with_counts,
)
from kbtui.conversations.reading import load_conversation

__all__ = [
    "find_conversation",
    "list_conversations",
    "load_conversation",
    "parse_conversation_id",
    "parse_conversation_ref",
    "strays",
    "with_activity",
    "with_counts",
]
