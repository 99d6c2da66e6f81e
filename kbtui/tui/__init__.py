"""The TUI: browse, search and read a workspace in the terminal.

When Textual is imported, it imports `textual.types` for the name of one type. That module imports
widgets that kbtui does not use, such as trees and selection lists. So this package puts a module in
its place, which imports the real one when another name is read from it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyTextualTypes(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "IgnoreReturnCallbackType":
            return import_module("textual._types").IgnoreReturnCallbackType
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules["textual.types"] is self:
            del sys.modules["textual.types"]
        return getattr(import_module("textual.types"), name)


sys.modules.setdefault("textual.types", _LazyTextualTypes("textual.types"))
