"""kbtui: browse, search and read what a JP workspace knows and remembers.

The public Python API is one function, `open_workspace`; it is imported on
first use so that `import kbtui` costs nothing.
"""

from kbtui.version import __version__

TYPE_CHECKING = False  # importing `typing` would not cost nothing
if TYPE_CHECKING:
    from kbtui.library import Library, open_workspace

__all__ = ["Library", "__version__", "open_workspace"]


def __getattr__(name: str) -> object:
    if name in {"Library", "open_workspace"}:
        from kbtui import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
