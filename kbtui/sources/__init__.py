"""Fetches web pages, files and MCP resources into topics, after the user has approved their source.

Names are imported on first use, so that listing sources does not load the HTTP client.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbtui.sources.config import SourceDefinition, SourceDefinitions, load_sources
    from kbtui.sources.schedule import SourceScheduler
    from kbtui.sources.source_runner import run_source

__all__ = ["SourceDefinition", "SourceDefinitions", "SourceScheduler", "load_sources", "run_source"]

_MODULES = {"SourceScheduler": "schedule", "run_source": "source_runner"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"kbtui.sources.{_MODULES.get(name, 'config')}"), name)
