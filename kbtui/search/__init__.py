"""Search: from a `SearchRequest` to a `SearchAnswer`; `kbtui.search.pipeline.search_index` runs it."""

# The commands' options read `search.filters` and do not need the dataclasses, which take half the
# time of `kbtui search --help` to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbtui.search.models import Hit, SearchAnswer, SearchRequest

__all__ = ["Hit", "SearchAnswer", "SearchRequest"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kbtui.search import models

    return getattr(models, name)
