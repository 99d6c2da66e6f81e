"""Where things are: finding the workspace, its directories, configuration and settings."""

from kbtui.workspace.root import Workspace, find_workspace, open_root
from kbtui.workspace.settings import Settings, load_settings

__all__ = ["Settings", "Workspace", "find_workspace", "load_settings", "open_root"]
