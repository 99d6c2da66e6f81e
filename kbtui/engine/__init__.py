"""The one process that writes the index: watch, refresh, embed, serve; and its client."""

from kbtui.engine.client import EngineClient, NoEngine, connect

__all__ = ["EngineClient", "NoEngine", "connect"]
