"""The engine (the one process that writes the index) and its client.

Names are imported on first use, because most commands need only the module `client`.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbtui.engine.client import EngineClient
    from kbtui.engine.find_or_start import EngineNotRunning, connect_or_start

__all__ = ["EngineClient", "EngineNotRunning", "connect_or_start"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "client" if name == "EngineClient" else "find_or_start"
    return getattr(import_module(f"kbtui.engine.{module}"), name)
