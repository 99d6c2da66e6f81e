"""`Library`, the object through which front ends use one workspace."""

from kbtui.library.index_and_engine_access import CallCancellation
from kbtui.library.workspace_library import Library, open_workspace

__all__ = ["CallCancellation", "Library", "open_workspace"]
