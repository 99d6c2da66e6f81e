"""The one object that faces talk to: everything about one workspace."""

from kbtui.library.library import Library, open_workspace

__all__ = ["Library", "open_workspace"]
