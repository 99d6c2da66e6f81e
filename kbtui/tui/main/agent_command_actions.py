"""Copies or runs the agent's commands that continue the conversation of the current item."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from textual.app import SuspendNotSupported

from kbtui.errors import KbtuiError, format_error_on_one_line
from kbtui.text import sanitize_to_one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.conversations.agent_commands import CommandPurpose, OfferedAgentCommand
    from kbtui.refs import Ref
    from kbtui.tui.main.document_navigator import MainScreenContext

_KEYS: dict[CommandPurpose, str] = {"resume": "c", "fork": "f", "attach": "a"}
"""Purpose of a command -> the key that copies the command. The same key in upper case runs the command."""


class AgentCommandActions:
    """Offers the commands of a conversation's agent, copies them, and runs them in the terminal."""

    def __init__(
        self,
        main: MainScreenContext,
        run_with_activity_shown: Callable[..., None],
        copy_text: Callable[[str, str], None],
    ) -> None:
        """Create the commands.

        `run_with_activity_shown` and `copy_text` are the methods of `SelectedItemActions` with these names.
        """
        self._main = main
        self._run_with_activity_shown = run_with_activity_shown
        self._copy_text = copy_text

    def offer_commands(self, ref: Ref) -> None:
        """Offer the commands that a conversation's agent has for the conversation or for one of its turns."""
        if ref.kind != "conversation":
            self._main.status.show_unavailable_key_message(
                "Only a conversation can be continued in its agent."
            )
            return
        self._run_with_activity_shown(
            "looking for the agent's commands …",
            partial(self._find_commands, ref),
            partial(self._show_commands, ref),
            holds_keys=True,
        )

    def _find_commands(self, ref: Ref) -> list[OfferedAgentCommand]:
        from kbtui.conversations.agent_commands import find_agent_command, list_agent_commands
        from kbtui.conversations.conversation_repository import find_conversation

        workspace = self._main.library.workspace
        info = find_conversation(workspace, ref.conversation or "")
        # Without any command, this raises an error that says why.
        return list_agent_commands(workspace, info, ref.turn) or [
            find_agent_command(workspace, info, ref.turn, "resume")
        ]

    def _show_commands(self, ref: Ref, commands: list[OfferedAgentCommand]) -> None:
        from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog

        names = [_format_command_name(command, ref) for command in commands]
        keys = [_KEYS[command.purpose] for command in commands]
        choices = list(zip(keys, names, commands, strict=True))
        options = [
            DialogOption(
                key, f"copy: {name}", one.shell_command, _ChosenAgentCommand(one, is_run=False)
            )
            for key, name, one in choices
        ] + [
            DialogOption(
                key.upper(), f"run: {name}", "asks first", _ChosenAgentCommand(one, is_run=True)
            )
            for key, name, one in choices
        ]
        title = f"Continue {sanitize_to_one_line(str(ref))}"
        self._main.screen.app.push_screen(OptionsDialog(title, options), self._copy_or_ask)

    def _copy_or_ask(self, choice: _ChosenAgentCommand | None) -> None:
        if choice is None:
            return
        command = choice.command
        if not choice.is_run:
            self._copy_text(command.shell_command, command.shell_command)
            return
        from shlex import join

        from kbtui.tui.framework.dialogs import ConfirmDialog

        question = f"Run `{join(command.words)}` in {command.directory}?"
        self._main.screen.app.push_screen(
            ConfirmDialog(question, {"y": "run it"}), partial(self._run_if_confirmed, command)
        )

    def _run_if_confirmed(self, command: OfferedAgentCommand, answer: str | None) -> None:
        """Run the command in the terminal if the answer is "y". The TUI returns when the agent ends."""
        if answer != "y":
            return
        from kbtui.conversations.agent_commands import run_agent_command

        show, program = self._main.status.flash_message, command.words[0]
        try:
            with self._main.screen.app.suspend():
                code = run_agent_command(command)
        except SuspendNotSupported:
            show("A program cannot be started in this terminal; copy the command.", "error")
        except (KbtuiError, OSError, ValueError) as error:
            show(format_error_on_one_line(error, self._main.library.workspace.root), "error")
        else:
            if code:
                show(f"{program} ended with exit code {code}", "warning")
            else:
                show(f"{program} has ended", "dim")


class _ChosenAgentCommand(NamedTuple):
    """A command that the user chose, and whether to run or to copy it."""

    command: OfferedAgentCommand
    is_run: bool


def _format_command_name(command: OfferedAgentCommand, ref: Ref) -> str:
    if command.purpose == "resume":
        return "continue"
    if command.purpose == "attach":
        return f"attach turn {ref.turn}" if ref.turn is not None else "attach all turns"
    return (
        f"fork after turn {command.last_turn}"
        if command.last_turn is not None
        else "fork, all turns"
    )
