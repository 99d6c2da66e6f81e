"""The index: catalog, keyword indexes, vectors and cached embeddings.

Only the engine writes, with `WorkspaceIndex`; clients read, with `IndexReader`. Both classes are
imported on first use, so that a client never imports the libraries that only a writer needs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbtui.index.index_reader import IndexReader
    from kbtui.index.indexer import WorkspaceIndex

__all__ = ["IndexReader", "WorkspaceIndex"]

_HOMES = {"WorkspaceIndex": "kbtui.index.indexer", "IndexReader": "kbtui.index.index_reader"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
