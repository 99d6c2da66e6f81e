"""An argument parser whose errors are kbtui's own: one line, a hint, exit code 2."""

import argparse
from typing import Any, NoReturn

from kbtui.cli.output import columns
from kbtui.errors import UsageError


class _Help(argparse.RawDescriptionHelpFormatter):
    """Knows the terminal's width; argparse makes one for each argument that is declared."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)


class Parser(argparse.ArgumentParser):
    """`ArgumentParser` that raises `UsageError` instead of printing and exiting."""

    hint: str | None = None
    """What to do about a usage error, where a command knows better than `--help`."""

    def __init__(self, *, prog: str, description: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=_Help,
        )

    def add_argument(self, *names: Any, **keys: Any) -> argparse.Action:
        """As argparse's, which compares its SUPPRESS by identity; modules that only declare have their own."""
        if keys.get("default") == argparse.SUPPRESS:
            keys["default"] = argparse.SUPPRESS
        return super().add_argument(*names, **keys)

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with the parser's words."""
        raise UsageError(message, hint=self.hint or f"`{self.prog} --help` explains the arguments")
