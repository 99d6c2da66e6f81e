"""An argument parser whose errors are kbtui's own: one line, a hint, exit code 2."""

from __future__ import annotations

import argparse

from kbtui.cli.output import columns
from kbtui.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class _Help(argparse.RawDescriptionHelpFormatter):
    """Knows the terminal's width; argparse makes one for each argument that is declared."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)


class Parser(argparse.ArgumentParser):
    """`ArgumentParser` that raises `UsageError` instead of printing and exiting.

    It has `-w`. The parser of an action leaves `workspace` alone unless the option is given, so
    that one before the action holds.
    """

    hint: str | None = None
    """What to do about a usage error, where a command knows better than `--help`."""

    def __init__(self, *, prog: str, **keys: Any) -> None:
        super().__init__(prog=prog, allow_abbrev=False, formatter_class=_Help, **keys)
        self.add_argument(
            "-w",
            "--workspace",
            metavar="PATH",
            default=argparse.SUPPRESS,
            help="the workspace (default: the nearest one)",
        )

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with the parser's words."""
        raise UsageError(message, hint=self.hint or f"`{self.prog} --help` explains the arguments")
