"""JP's conversations: listed, searched and read from their files, which are never written.

Each name is imported on first use: who lists does not pay for searching.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbtui.conversations.answers import grep_answer, list_answer
    from kbtui.conversations.ids import parse_conversation_id, parse_conversation_ref
    from kbtui.conversations.listing import (
        conversation_signatures,
        examined,
        find_conversation,
        list_conversations,
        strays,
        with_activity,
        with_counts,
    )
    from kbtui.conversations.reading import load_beginning, load_conversation
    from kbtui.conversations.readout import read_answer
    from kbtui.conversations.traits import conversation_traits
    from kbtui.conversations.xml import to_xml

__all__ = [
    "conversation_signatures",
    "conversation_traits",
    "examined",
    "find_conversation",
    "grep_answer",
    "list_answer",
    "list_conversations",
    "load_beginning",
    "load_conversation",
    "parse_conversation_id",
    "parse_conversation_ref",
    "read_answer",
    "strays",
    "to_xml",
    "with_activity",
    "with_counts",
]

_MODULES = {
    "conversation_traits": "traits",
    "grep_answer": "answers",
    "list_answer": "answers",
    "load_beginning": "reading",
    "load_conversation": "reading",
    "parse_conversation_id": "ids",
    "parse_conversation_ref": "ids",
    "read_answer": "readout",
    "to_xml": "xml",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'listing')}"), name)
