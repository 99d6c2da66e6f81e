"""Citations: which turn used which subject, passage, conversation or file.

The names of the package are imported on first use, because a search needs only `cited_text_comparison`.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbtui.citations.tool_call_citations import (
        Citation,
        Citations,
        CitationTargetLookup,
        extract_citations,
    )

__all__ = ["Citation", "CitationTargetLookup", "Citations", "extract_citations"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("kbtui.citations.tool_call_citations"), name)
