"""kbtui: browse, search and read the knowledge and the conversations of a workspace.

The public Python API consists of `open_workspace`, `create_memory_client` for coroutines, and the
classes and errors that these two functions use. `import kbtui` takes almost no time, because each
name is imported when it is first used. The guide's page `guide/python` documents the API.
"""

from kbtui.version import __version__

TYPE_CHECKING = False  # importing `typing` would take time
if TYPE_CHECKING:
    from kbtui.citations.tool_call_citations import Citation, Citations
    from kbtui.conversations.conversation_data_types import ConversationInfo
    from kbtui.conversations.turn_decision_marks import Mark, PlacedMark
    from kbtui.errors import (
        ConfigError,
        IndexUnavailable,
        KbtuiError,
        NothingFound,
        UsageError,
        WorkspaceError,
    )
    from kbtui.knowledge.knowledge_data_types import Topic
    from kbtui.library import Library, open_workspace
    from kbtui.library.async_memory_client import KnowledgeHit, MemoryClient, create_memory_client
    from kbtui.search.search_request_and_answer import Hit, SearchAnswer, SearchRequest

__all__ = [
    "Citation",
    "Citations",
    "ConfigError",
    "ConversationInfo",
    "Hit",
    "IndexUnavailable",
    "KbtuiError",
    "KnowledgeHit",
    "Library",
    "Mark",
    "MemoryClient",
    "NothingFound",
    "PlacedMark",
    "SearchAnswer",
    "SearchRequest",
    "Topic",
    "UsageError",
    "WorkspaceError",
    "__version__",
    "create_memory_client",
    "open_workspace",
]

_MODULES = {
    "SearchAnswer": "search.search_request_and_answer",
    "Citation": "citations.tool_call_citations",
    "Citations": "citations.tool_call_citations",
    "ConversationInfo": "conversations.conversation_data_types",
    "Hit": "search.search_request_and_answer",
    "KnowledgeHit": "library.async_memory_client",
    "Library": "library",
    "Mark": "conversations.turn_decision_marks",
    "MemoryClient": "library.async_memory_client",
    "PlacedMark": "conversations.turn_decision_marks",
    "SearchRequest": "search.search_request_and_answer",
    "Topic": "knowledge.knowledge_data_types",
    "create_memory_client": "library.async_memory_client",
    "open_workspace": "library",
}
"""The module that defines each public name. Names that are not listed are defined in `errors`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
