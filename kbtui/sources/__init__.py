"""Sources: fetches web pages, files and MCP resources into topics, once their user approved it."""

from kbtui.sources.config import Sources, load_sources
from kbtui.sources.records import Source

__all__ = ["Source", "Sources", "load_sources"]
