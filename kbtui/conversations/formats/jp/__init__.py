"""JP's format: where conversations lie, and how their files are read. Nothing is written.

The rest of kbtui imports these names, each of which is loaded on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbtui.conversations.formats.jp.event_parser import EventParser
    from kbtui.conversations.formats.jp.incremental_reader import (
        ConversationPart,
        TurnMark,
        comes_in_parts,
        read_part,
    )
    from kbtui.conversations.formats.jp.json_reader import Mended, read_events
    from kbtui.conversations.formats.jp.loader import (
        ConversationSummary,
        conversation_traits,
        load_beginning,
        load_conversation,
        name_extras,
        problems_of,
    )
    from kbtui.conversations.formats.jp.locations import (
        EVENTS,
        ConversationLocation,
        conversation_folders,
        find_places,
        live_names,
        trashed,
    )
    from kbtui.conversations.formats.jp.metadata import (
        describe,
        examined,
        read_title,
        with_activity,
        with_counts,
    )

__all__ = [
    "EVENTS",
    "ConversationLocation",
    "ConversationPart",
    "ConversationSummary",
    "EventParser",
    "Mended",
    "TurnMark",
    "comes_in_parts",
    "conversation_folders",
    "conversation_traits",
    "describe",
    "examined",
    "find_places",
    "live_names",
    "load_beginning",
    "load_conversation",
    "name_extras",
    "problems_of",
    "read_events",
    "read_part",
    "read_title",
    "trashed",
    "with_activity",
    "with_counts",
]

_MODULES = {
    "EventParser": "event_parser",
    "ConversationPart": "incremental_reader",
    "TurnMark": "incremental_reader",
    "comes_in_parts": "incremental_reader",
    "read_part": "incremental_reader",
    "Mended": "json_reader",
    "read_events": "json_reader",
    "ConversationSummary": "loader",
    "conversation_traits": "loader",
    "load_beginning": "loader",
    "load_conversation": "loader",
    "name_extras": "loader",
    "problems_of": "loader",
    "ConversationLocation": "locations",
    "EVENTS": "locations",
    "conversation_folders": "locations",
    "find_places": "locations",
    "live_names": "locations",
    "trashed": "locations",
    "describe": "metadata",
    "examined": "metadata",
    "read_title": "metadata",
    "with_activity": "metadata",
    "with_counts": "metadata",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
