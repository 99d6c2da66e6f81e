"""What commands print: results on stdout, everything else on stderr (decisions D).

What goes to a terminal is made safe first; a pipe gets the bytes (decisions A13).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kbtui.errors import KbtuiError
    from kbtui.workspace import Workspace


def is_plain(stream: Any = None) -> bool:
    """Whether to print without colours: `NO_COLOR`, `TERM=dumb` or no terminal."""
    stream = stream or sys.stdout
    return (
        bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not stream.isatty()
    )


def columns() -> int:
    """The terminal's width as `shutil` tells it, whose compression modules no short command needs."""
    try:
        width = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        width = 0
    if width <= 0:
        try:
            width = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            width = 0
    return width or 80


def emit(text: str) -> None:
    """Print a result: safe and ended by a newline on a terminal, as it is on a pipe."""
    if sys.stdout.isatty():
        from kbtui.text import safe

        sys.stdout.write(safe(text).rstrip("\n") + "\n")
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()


def follow_settings() -> None:
    """Make text safe for a terminal as the person wants it (the setting `terminal_text`).

    Settings that cannot be read mean the default here; the commands that need them say so.
    """
    if not (sys.stdout.isatty() or sys.stderr.isatty()):
        return
    from kbtui.errors import ConfigError
    from kbtui.workspace.paths import config_home

    path = config_home() / "config.toml"
    if path.is_file():
        from kbtui.text import choose_policy
        from kbtui.workspace.settings import load_settings

        try:
            choose_policy(load_settings(path).terminal_text)
        except ConfigError:
            return


def valid(text: str) -> str:
    """An argument as text that every library takes: bytes that are no UTF-8 become U+FFFD."""
    return os.fsencode(text).decode("utf-8", "replace")


def emit_json(value: Any) -> None:
    """Print a result as one JSON document; ASCII escapes keep it safe anywhere."""
    import json

    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=sys.stdout.isatty()) + "\n")


def save(workspace: Workspace, target: str, text: str) -> None:
    """Write a result to the file that `-o` names; raises `UsageError`."""
    from pathlib import Path

    from kbtui.errors import KbtuiError, UsageError
    from kbtui.sources.atomic_write import write_export

    try:
        write_export(workspace, Path(target), text)
    except KbtuiError as error:
        raise UsageError(error.message, where=target, hint=error.hint) from error


def note(text: str) -> None:
    """Say something that is not the result, on stderr."""
    from kbtui.text import safe

    sys.stderr.write(safe(f"kbtui: {text}") + "\n")


def report(error: KbtuiError) -> None:
    """Say what went wrong, where, and what to do."""
    note(f"{error.where}: {error.message}" if error.where else error.message)
    if error.hint:
        from kbtui.text import safe

        sys.stderr.write(safe(f"  hint: {error.hint}") + "\n")
