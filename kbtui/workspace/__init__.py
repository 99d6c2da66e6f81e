"""Where things are: finding the workspace, its directories, configuration and settings.

Names are imported on first use, so that `paths` costs nothing else.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbtui.workspace.settings import Settings, load_settings
    from kbtui.workspace.workspace import Workspace, find_workspace, open_root

__all__ = ["Settings", "Workspace", "find_workspace", "load_settings", "open_root"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "settings" if name in {"Settings", "load_settings"} else "workspace"
    return getattr(import_module(f"kbtui.workspace.{module}"), name)
