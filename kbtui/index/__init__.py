"""What is stored: catalog, chunks, lexical index, vectors, embeddings.

`Index` writes and is the engine's alone; `IndexReader` is what clients open.
Names are imported on first use: a client never loads what only a writer needs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbtui.index.indexer import Index
    from kbtui.index.reader import IndexReader

__all__ = ["Index", "IndexReader"]

_HOMES = {"Index": "kbtui.index.indexer", "IndexReader": "kbtui.index.reader"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
