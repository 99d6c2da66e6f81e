"""The engine (the one process that writes the index) and its client.

Each module of the package is imported only when one of the module's names is first used, because
most commands need only `engine_client`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbtui.engine.engine_client import EngineClient
    from kbtui.engine.engine_launcher import EngineNotRunning, connect_or_start_engine

__all__ = ["EngineClient", "EngineNotRunning", "connect_or_start_engine"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Importing `importlib` would take longer than importing the whole package.
    from importlib import import_module

    module = "engine_client" if name == "EngineClient" else "engine_launcher"
    return getattr(import_module(f"kbtui.engine.{module}"), name)
