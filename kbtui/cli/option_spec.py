"""What a command's `configure` declares, recorded without building a parser.

Completions and the manual page are made of it. Importing argparse takes as long
as starting Python does, and a TAB should not wait for it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SUPPRESS = "==SUPPRESS=="
"""The value of `argparse.SUPPRESS`, for modules that declare and do not parse."""


class Argument:
    """One option or positional; `names` is empty for the latter."""

    def __init__(self, *names: str, **keys: Any) -> None:
        self.names = tuple(name for name in names if name.startswith("-"))
        self.dest: str = keys.get("dest") or names[-1].lstrip("-").replace("-", "_")
        self.metavar: str | None = keys.get("metavar")
        self.help: str = keys.get("help") or ""
        self.choices: tuple[str, ...] = tuple(keys.get("choices") or ())
        self.nargs: str | int | None = keys.get("nargs")
        self.required: bool = bool(keys.get("required"))
        self.action: str = keys.get("action", "store")

    @property
    def takes_value(self) -> bool:
        """Whether a word belongs to the option."""
        return self.action in {"store", "append"}

    @property
    def repeats(self) -> bool:
        """Whether it may stand there more than once."""
        return self.action == "append" or self.nargs in {"*", "+"}

    @property
    def value(self) -> str:
        """What stands for its value in help."""
        return self.metavar or ("|".join(self.choices) if self.choices else self.dest.upper())


class CommandSpec:
    """Stands in for an `ArgumentParser`: takes the same declarations, and keeps them."""

    def __init__(self, name: str, text: str = "", aliases: tuple[str, ...] = ()) -> None:
        self.name = name
        self.text = text
        self.aliases = aliases
        self.hint: str | None = None
        self.arguments: list[Argument] = []
        self.actions: list[CommandSpec] = []

    def add_argument(self, *names: str, **keys: Any) -> Argument:
        """Keep an argument."""
        self.arguments.append(Argument(*names, **keys))
        return self.arguments[-1]

    def add_mutually_exclusive_group(self, **_: Any) -> CommandSpec:
        """A group's arguments are the command's."""
        return self

    add_argument_group = add_mutually_exclusive_group

    def add_subparsers(self, **_: Any) -> CommandSpec:
        """The actions of a command are added to itself."""
        return self

    def add_parser(self, name: str, **keys: Any) -> CommandSpec:
        """Keep an action."""
        action = CommandSpec(name, keys.get("help", ""), tuple(keys.get("aliases", ())))
        self.actions.append(action)
        return action

    def set_defaults(self, **_: Any) -> None:
        """What is not said on the command line needs no recording."""

    def action(self, word: str) -> CommandSpec | None:
        """The action of this name or alias."""
        return next((one for one in self.actions if word in (one.name, *one.aliases)), None)

    def options(self) -> list[Argument]:
        """What begins with a dash."""
        return [argument for argument in self.arguments if argument.names]

    def positionals(self) -> list[Argument]:
        """What does not."""
        return [argument for argument in self.arguments if not argument.names]

    def walk(self) -> Iterator[tuple[str, CommandSpec]]:
        """The command, or each of its actions, with its words."""
        if not self.actions:
            yield self.name, self
        for action in self.actions:
            yield f"{self.name} {action.name}", action


def declared(name: str) -> CommandSpec:
    """What a command of `kbtui.cli.main.COMMANDS` declares; raises `KeyError` for no command."""
    from kbtui.cli.main import COMMANDS, load_command

    configure, _ = load_command(name)
    command = CommandSpec(name, COMMANDS[name][1])
    command.add_argument("-w", "--workspace", metavar="PATH", help=WORKSPACE_HELP)
    configure(command)
    return command


WORKSPACE_HELP = "the workspace (default: the nearest one)"
