"""The argument parser of all commands, and functions that adapt option values and errors."""

from __future__ import annotations

import argparse
from contextlib import contextmanager

from kbtui.cli.cli_output import get_terminal_width
from kbtui.errors import KbtuiError, NothingFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn


# All help is in English, so `argparse` need not look for translations.
argparse._ = str  # type: ignore[attr-defined]


class _CliHelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help for the width of the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=get_terminal_width() - 2)


class CliArgumentParser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `UsageError` instead of printing a message and exiting.

    Every parser has the option `-w`, so that users can write `-w` before or after the command. The
    option has no default, because a default in the command's parser would replace an
    earlier `-w`.
    """

    hint: str | None = None
    """The hint in usage errors. If None, usage errors refer to `--help`."""

    def __init__(self, *, prog: str, **keys: Any) -> None:
        super().__init__(prog=prog, allow_abbrev=False, formatter_class=_CliHelpFormatter, **keys)
        self.add_argument(
            "-w",
            "--workspace",
            metavar="PATH",
            default=argparse.SUPPRESS,
            help="the workspace (default: the one around the current directory)",
        )

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with argparse's message."""
        raise UsageError(message, hint=self.hint or f"`{self.prog} --help` explains the arguments")


def split_values_at_commas(values: list[str] | None) -> list[str] | None:
    """Split each value of a repeatable option at its commas."""
    if values is None:
        return None
    # Keep an empty value, which may come from an unset variable in a script, so that the command
    # can refuse it. Without the value, the command would include everything.
    return [word for value in values for word in value.split(",") if word] or [""]


_OPTIONS_BY_ARGUMENT = {
    "ids": "--id",
    "scopes": "--scope",
    "include": "--include",
    "max_chars": "--max-chars",
    "pattern": "PATTERN",
    "id": "ID",
    "agents": "--agent",
    "labels": "--label",
    "file": "--file",
    **{name: f"--{name}" for name in ("limit", "offset", "sort", "context", "turn", "last")},
}
"""Maps each argument of a conversation tool to the command's option or argument with the same meaning."""


@contextmanager
def reword_errors_for_command() -> Iterator[None]:
    """Reword the tools' errors so that they refer to command-line options instead of tool arguments."""
    try:
        yield
    except KbtuiError as error:
        from kbtui.assistant.conversation_tool_answers import ConversationToolError

        where = _OPTIONS_BY_ARGUMENT.get(error.where or "")
        if isinstance(error, ConversationToolError):
            kind = UsageError if isinstance(error, UsageError) else NothingFound
            raise kind(error.command_message, where=where, hint=error.command_hint) from error
        if where:
            raise type(error)(error.message, where=where, hint=error.hint) from error
        raise
