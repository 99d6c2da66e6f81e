"""Finds and runs the agents' commands that continue, copy or attach a conversation."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from typing import TYPE_CHECKING, Literal, get_args

from kbtui.conversations.conversation_repository import get_conversation_format
from kbtui.conversations.formats.stored_session import convert_conversation_id_to_id_used_by_agent
from kbtui.errors import KbtuiError, NothingFound
from kbtui.foreground_program import run_program_in_terminal
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from kbtui.conversations.conversation_data_types import ConversationInfo
    from kbtui.workspace import Workspace

CommandPurpose = Literal["resume", "fork", "attach"]
"""The purpose of an agent's command.

* `resume`: continue a conversation.
* `fork`: continue a copy of a conversation.
* `attach`: start a new conversation to which turns of the old one are attached.
"""
# Agents' own ids contain only these characters; a file whose name contains others is not a session.
# An id must not begin with `-`, because the command would read it as an option.
_SAFE_ID = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.:-]*")


_PURPOSES: tuple[CommandPurpose, ...] = get_args(CommandPurpose)


class AgentCommandForConversation(NamedTuple):
    """An agent's command for one conversation, and the directory in which it must run.

    `directory` is an absolute path. `last_turn` is the last turn that a copy of the
    conversation contains; None means that the copy contains all turns.
    """

    purpose: CommandPurpose
    words: tuple[str, ...]
    directory: str
    last_turn: int | None = None

    @property
    def does_directory_exist(self) -> bool:
        """Whether the directory still exists."""
        return os.path.isdir(self.directory)  # noqa: PTH112

    @property
    def shell_command(self) -> str:
        """The command as one line for a POSIX shell. The line first changes to the command's directory."""
        return f"cd {shlex.quote(self.directory)} && {shlex.join(self.words)}"


def list_agent_commands_for_conversation(
    workspace: Workspace, info: ConversationInfo, turn: int | None
) -> list[AgentCommandForConversation]:
    """Return the commands that continue, copy or attach a conversation, in this order.

    `turn` is the last turn to copy, or the turn to attach; None means the whole conversation. The
    list is empty if the conversation exists only in kbtui's archive. Commands
    with an unsafe id or path are left out: an agent's files can contain anything.
    """
    commands = (
        _make_possibly_unsafe_agent_command(workspace, info, turn, purpose) for purpose in _PURPOSES
    )
    return [
        one
        for one in commands
        if one is not None and _explain_why_agent_command_is_unsafe(info, one) is None
    ]


def _make_possibly_unsafe_agent_command(
    workspace: Workspace, info: ConversationInfo, turn: int | None, purpose: CommandPurpose
) -> AgentCommandForConversation | None:
    """Return the agent's command for a purpose, safe or not; None if there is no such command."""
    if info.kept_from is not None:
        return None
    conversation_format = get_conversation_format(info)
    if purpose == "resume":
        command = conversation_format.make_resume_command(info)
    elif purpose == "fork":
        command = conversation_format.make_fork_command(info, turn)
    else:
        command = conversation_format.make_attach_command(info, turn)
    if command is None:
        return None
    directory = str(workspace.root) if command.directory is None else command.directory
    last = turn if purpose == "fork" and conversation_format.forks_at_turn else None
    return AgentCommandForConversation(purpose, command.words, directory, last)


def _explain_why_agent_command_is_unsafe(
    info: ConversationInfo, command: AgentCommandForConversation
) -> str | None:
    """Return the reason why a command is unsafe; None if it is safe."""
    prefix = get_conversation_format(info).id_prefix
    if not _SAFE_ID.fullmatch(convert_conversation_id_to_id_used_by_agent(prefix, info.id)):
        return "the conversation's id could be mistaken for an option of the command"
    if not all(map(str.isprintable, (*command.words, command.directory))):
        return "the path of the conversation's directory contains characters that a terminal does not show"
    if not os.path.isabs(command.directory):  # noqa: PTH117
        return "the conversation's directory is not an absolute path"
    return None


def make_agent_command_for_conversation(
    workspace: Workspace, info: ConversationInfo, turn: int | None, purpose: CommandPurpose
) -> AgentCommandForConversation:
    """Return the agent's command for a purpose.

    Raises `NothingFound` if kbtui offers no command for this purpose.
    """
    command = _make_possibly_unsafe_agent_command(workspace, info, turn, purpose)
    hint = _explain_why_agent_command_is_unsafe(info, command) if command else None
    if command is not None and hint is None:
        return command
    label = get_conversation_format(info).label
    verb = {"resume": "continue", "fork": "fork", "attach": "attach"}[purpose]
    if hint is not None:
        message = f"kbtui offers no command to {verb} this conversation"
        raise NothingFound(message, where=info.ref, hint=hint)
    if info.archived and info.agent == "jp":
        hint = f"the conversation is archived; restore it with `jp c unarchive {info.id}`"
    elif info.kept_from is not None:
        hint = f"{label} has deleted the conversation; only the copy in kbtui's archive is left"
    elif info.parent is not None:
        hint = f"this conversation is part of {info.parent}; use {info.parent} instead"
    message = f"{label} has no command to {verb} this conversation"
    raise NothingFound(message, where=info.ref, hint=hint)


def run_agent_command(command: AgentCommandForConversation) -> int:
    """Run a command in the terminal of this process, wait for it, and return its exit code.

    Raises `KbtuiError` if the command's directory does not exist, or if its program is not
    installed.
    """
    if not command.does_directory_exist:
        raise KbtuiError(
            "the directory of the conversation no longer exists",
            where=command.directory,
            hint="create the directory again, or move the project back; the agent can run only there",
        )
    # Look for the program before the directory is changed: PATH may contain relative directories,
    # which could lead to another program in a foreign directory.
    program = shutil.which(command.words[0])
    if program is None:
        raise KbtuiError("the program is not installed, or not on the PATH", where=command.words[0])
    try:
        return run_program_in_terminal(
            (os.path.abspath(program), *command.words[1:]),  # noqa: PTH100
            command.directory,
        )
    except OSError as error:
        raise KbtuiError(f"cannot be started: {error.strerror}", where=command.words[0]) from error
