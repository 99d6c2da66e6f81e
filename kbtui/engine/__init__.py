"""The one process that writes the index: watch, refresh, embed, serve; and its client."""

from kbtui.engine.client import EngineClient, connect

__all__ = ["EngineClient", "connect"]
