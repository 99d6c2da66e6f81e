"""A context manager that indexes a workspace in this process, without an engine."""

from collections.abc import Iterator
from contextlib import contextmanager

from support import Builder

from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import Settings


@contextmanager
def indexed(builder: Builder) -> Iterator[IndexReader]:
    """Refresh the index and yield a reader of it."""
    index = WorkspaceIndexWriter(builder.workspace, Settings(model="off"))
    try:
        index.refresh_index()
        reader = IndexReader(builder.workspace.cache_dir)
        try:
            yield reader
        finally:
            reader.close()
    finally:
        index.close()
