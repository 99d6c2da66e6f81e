"""One question, one answer: query, legs, fusion, freshness."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbtui.search.answer import answer
    from kbtui.search.records import Answer, Hit, Question

__all__ = ["Answer", "Hit", "Question", "answer"]

_HOMES = {
    "Answer": "records",
    "Hit": "records",
    "Question": "records",
    "answer": "answer",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"kbtui.search.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
