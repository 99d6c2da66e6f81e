"""JP's format of conversations, an implementation of `ConversationFormat`.

The functions that read events are imported on first use: listing and completion need none of them.
"""

from typing import TYPE_CHECKING, Any

from kbtui.conversations.formats.jp.locations import (
    ID_PREFIX,
    find_locations,
    find_trash,
    list_live_names,
)

if TYPE_CHECKING:
    from kbtui.conversations.formats.jp.loader import (
        add_event_count,
        add_last_event,
        decode_turns,
        has_parts,
        load_beginning,
        load_conversation,
        load_part,
        summarize_conversation,
    )

__all__ = [
    "ID_PREFIX",
    "add_event_count",
    "add_last_event",
    "decode_turns",
    "find_locations",
    "find_trash",
    "has_parts",
    "list_live_names",
    "load_beginning",
    "load_conversation",
    "load_part",
    "summarize_conversation",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.loader"), name)
