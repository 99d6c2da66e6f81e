"""The engine, the one process that writes the index, and its client.

Names are imported on first use, because a command that asks a running engine needs only `protocol`.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbtui.engine.client import NoEngine, connect
    from kbtui.engine.protocol import EngineClient

__all__ = ["EngineClient", "NoEngine", "connect"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "protocol" if name == "EngineClient" else "client"
    return getattr(import_module(f"kbtui.engine.{module}"), name)
