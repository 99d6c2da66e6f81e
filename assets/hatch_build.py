"""Adds the manual page to the wheel. The page is generated from the declarations of the commands."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualPage(BuildHookInterface[Any]):
    """Writes `share/man/man1/kbtui.1` of the environment that the wheel is installed into."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate the page. The modules that declare the commands need no other package."""
        sys.path.insert(0, self.root)
        try:
            from kbtui.cli.man_page_command import format_man_page

            text = format_man_page()
        finally:
            sys.path.remove(self.root)
        target = Path(self.root) / "build" / "kbtui.1"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
        build_data["shared_data"][str(target)] = "share/man/man1/kbtui.1"
