"""Parses ordinary command lines without `argparse`, because `argparse` takes a tenth of the time of a search.

The arguments are declared once, for this parser and for `CliArgumentParser`. A command line with
`--help`, `--` or a mistake is left to `argparse`.
"""

from __future__ import annotations

from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class SimpleArgumentParser:
    """Parses the words of a command that has options and one positional argument with `nargs="*"`.

    Options may appear between the values of the positional argument, as in `parse_intermixed_args`.
    """

    usage = hint = epilog = None
    """The functions that declare arguments set these texts. This parser ignores them: only help and errors need them."""

    def __init__(self, workspace: str | None) -> None:
        self._options: dict[str, tuple[str, dict[str, Any]]] = {}
        self._defaults: dict[str, Any] = {}
        self._positional = ""
        self.add_argument("-w", "--workspace", default=workspace)

    def add_argument(self, *names: str, dest: str = "", **keys: Any) -> None:
        """Add an argument. The parameters mean the same as in `ArgumentParser.add_argument`."""
        is_option = names[0].startswith("-")
        dest = dest or names[-1].lstrip("-").replace("-", "_")
        if is_option:
            self._options |= dict.fromkeys(names, (dest, keys))
        else:
            self._positional = dest
        is_flag = keys.get("action") == "store_true"
        self._defaults[dest] = keys.get("default", False if is_flag else None)

    def parse_words(self, words: Sequence[str]) -> SimpleNamespace | None:
        """Return the value of each argument, or None if `argparse` must parse the words."""
        values, others = dict(self._defaults), []
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if not word.startswith("-"):
                others.append(word)
                continue
            name, equals, value = word.partition("=")
            if name not in self._options or (equals and not name.startswith("--")):
                return None
            dest, keys = self._options[name]
            if keys.get("action") == "store_true":
                if equals:
                    return None
                values[dest] = True
                continue
            if not equals:
                if at < len(words) and not words[at].startswith("-"):
                    value = words[at]
                    at += 1
                elif keys.get("nargs") == "?":
                    values[dest] = keys["const"]
                    continue
                else:
                    return None
            try:
                parsed = keys.get("type", str)(value)
            except ValueError:
                return None
            if parsed not in keys.get("choices", (parsed,)):
                return None
            is_repeatable = keys.get("action") == "append"
            values[dest] = [*values[dest], parsed] if is_repeatable else parsed
        values[self._positional] = others
        return SimpleNamespace(**values)
