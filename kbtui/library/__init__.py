"""`Library`, the object through which front ends use one workspace."""

from kbtui.library.index_access import Cancellation
from kbtui.library.library import Library, open_workspace

__all__ = ["Cancellation", "Library", "open_workspace"]
