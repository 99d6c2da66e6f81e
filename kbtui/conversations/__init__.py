"""JP's conversations: listed, searched and read from their files, which are never written.

Each name is imported on first use: who lists does not pay for searching.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbtui.conversations.formats.jp import (
        conversation_traits,
        examined,
        load_beginning,
        load_conversation,
        with_activity,
        with_counts,
    )
    from kbtui.conversations.repository import (
        conversation_signatures,
        find_conversation,
        list_conversations,
        strays,
    )

__all__ = [
    "conversation_signatures",
    "conversation_traits",
    "examined",
    "find_conversation",
    "list_conversations",
    "load_beginning",
    "load_conversation",
    "strays",
    "with_activity",
    "with_counts",
]

_MODULES = {
    "conversation_signatures": "repository",
    "find_conversation": "repository",
    "list_conversations": "repository",
    "strays": "repository",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'formats.jp')}"), name)
