"""The workspace, its directories, JP's configuration and kbtui's settings.

Each module of the package is imported only when one of its names is first used, so importing
`paths` imports no other module.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbtui.workspace.user_settings import Settings, load_settings
    from kbtui.workspace.workspace import Workspace, find_workspace, open_workspace_at_root

__all__ = ["Settings", "Workspace", "find_workspace", "load_settings", "open_workspace_at_root"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Importing `importlib` would take longer than importing the whole package.
    from importlib import import_module

    module = "user_settings" if name in {"Settings", "load_settings"} else "workspace"
    return getattr(import_module(f"kbtui.workspace.{module}"), name)
