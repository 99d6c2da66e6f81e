"""kbtui: browse, search and read what a JP workspace knows and remembers.

The public Python API is `open_workspace` and, for coroutines, `create_memory_client`; they are
imported on first use so that `import kbtui` costs nothing.
"""

from kbtui.version import __version__

TYPE_CHECKING = False  # importing `typing` would not cost nothing
if TYPE_CHECKING:
    from kbtui.library import Library, open_workspace
    from kbtui.library.memory import KnowledgeHit, MemoryClient, create_memory_client

__all__ = [
    "KnowledgeHit",
    "Library",
    "MemoryClient",
    "__version__",
    "create_memory_client",
    "open_workspace",
]


def __getattr__(name: str) -> object:
    if name in {"Library", "open_workspace"}:
        from kbtui import library

        return getattr(library, name)
    if name in {"KnowledgeHit", "MemoryClient", "create_memory_client"}:
        from kbtui.library import memory

        return getattr(memory, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
