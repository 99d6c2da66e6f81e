"""Sources: fetches web pages, files and MCP resources into topics, once their user approved it.

Names are imported on first use: listing sources loads no HTTP client.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbtui.sources.config import Sources, load_sources
    from kbtui.sources.models import Source
    from kbtui.sources.runner import run_source
    from kbtui.sources.schedule import Schedule

__all__ = ["Schedule", "Source", "Sources", "load_sources", "run_source"]

_HOMES = {
    "Schedule": "schedule",
    "Source": "models",
    "Sources": "config",
    "load_sources": "config",
    "run_source": "runner",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"kbtui.sources.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
