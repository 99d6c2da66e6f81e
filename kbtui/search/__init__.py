"""Search: `kbtui.search.search_pipeline.search_index` answers a `SearchRequest` with a `SearchAnswer`."""

# The command line imports `search.filter_definitions` for its options, but needs no other type of this
# package. These names are therefore imported on first use.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbtui.search.search_request_and_answer import Hit, SearchAnswer, SearchRequest

__all__ = ["Hit", "SearchAnswer", "SearchRequest"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kbtui.search import search_request_and_answer

    return getattr(search_request_and_answer, name)
