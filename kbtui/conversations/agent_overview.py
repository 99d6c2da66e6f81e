"""Lists the agents: where their conversations are, how many there are, and why some are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from kbtui.conversations.conversation_repository import (
    AGENTS_OFF_BY_DEFAULT,
    describe_known_agents,
    list_agent_names,
    list_enabled_formats,
    list_formats,
    unusable_formats,
)
from kbtui.errors import ConfigError
from kbtui.workspace import load_settings
from kbtui.workspace.settings import get_chosen_agents, locate_chosen_agents

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.workspace import Workspace


AgentOffReason = Literal["not_named", "project_unknown"]
AGENT_OFF_TEXTS: dict[AgentOffReason, str] = {
    "not_named": "`agents` in [conversations] does not name it",
    "project_unknown": "its files do not say which project they belong to; to read all of them, name it in `agents`",
}


class AgentOverview(NamedTuple):
    """Where an agent's conversations are, how many there are, and whether kbtui reads them.

    `subagents` counts the conversations of subagents in this workspace, and `sessions` all others.
    `elsewhere` counts the conversations of other projects; it is None if their number is unknown.
    `without_turn` counts the files that contain no request yet.
    `off` says why the conversations are not read; it is None if they are read.
    """

    name: str
    label: str
    directories: list[Path]
    sessions: int
    subagents: int
    elsewhere: int | None
    unusable: int
    without_turn: int
    off: AgentOffReason | None

    def as_json(self) -> dict[str, str | int | list[str] | None]:
        """Return the documented JSON object."""
        return {**self._asdict(), "directories": list(map(str, self.directories))}

    def describe_conversations(self) -> str:
        """Describe how many conversations there are and how many are left out, on one line."""
        noun = "conversation" if self.sessions == 1 else "conversations"
        place = "" if self.name in AGENTS_OFF_BY_DEFAULT else " of this project"
        parts = [f"{self.sessions:,} {noun}{place}"]
        if self.subagents:
            parts.append(f"{self.subagents:,} of subagents")
        if self.elsewhere:
            parts.append(f"{self.elsewhere:,} held elsewhere")
        if self.without_turn:
            parts.append(f"{self.without_turn:,} without a turn yet")
        if self.unusable:
            parts.append(f"{self.unusable:,} unreadable")
        if self.off is not None:
            parts.append(f"not read: {AGENT_OFF_TEXTS[self.off]}")
        return ", ".join(parts)


def list_agent_overviews(workspace: Workspace) -> list[AgentOverview]:
    """Return an overview of each agent that has conversations here or is named in the setting `agents`."""
    chosen = get_chosen_agents(load_settings())
    enabled = {one.name for one in list_enabled_formats()}
    found = []
    for one in list_formats():
        stored, unusable = one.find_stored_conversations(workspace)
        directories = [path for path in one.list_data_directories(workspace) if path.is_dir()]
        subagents = 0
        for conversation in stored:
            # Only some formats know the parent without reading a file.
            known = (
                conversation
                if hasattr(conversation, "parent")
                else conversation.read_conversation_info()
            )
            subagents += known.parent is not None
        total = one.count_conversations_of_all_projects()
        empty = sum(stray.has_no_turn for stray in unusable)
        files = sum(stray.path.is_file() for stray in unusable)
        off: AgentOffReason | None = None
        if one.name not in enabled:
            is_off_by_default = chosen is None and one.name in AGENTS_OFF_BY_DEFAULT
            off = "project_unknown" if is_off_by_default else "not_named"
        if stored or unusable or total or (chosen is not None and off is None):
            found.append(
                AgentOverview(
                    one.name,
                    one.label,
                    directories,
                    len(stored) - subagents,
                    subagents,
                    None if total is None else max(0, total - len(stored) - files),
                    len(unusable) - empty,
                    empty,
                    off,
                )
            )
    return found


def list_unknown_agents() -> list[tuple[str, str]]:
    """Return the values of the setting `agents` that are not names of agents, each with a hint."""
    known = {name.casefold() for name in list_agent_names()}
    chosen = get_chosen_agents(load_settings()) or ()
    return [(name, describe_known_agents(name)) for name in chosen if name.casefold() not in known]


def check_chosen_agents() -> None:
    """Raise `ConfigError` if the setting `agents` names an agent that does not exist.

    An agent whose format belongs to another package and cannot be loaded is no error here: `kbtui
    doctor` reports it.
    """
    for name, hint in list_unknown_agents():
        if name not in unusable_formats:
            message = f"conversations.agents names {name!r}, but there is no such agent"
            raise ConfigError(message, where=locate_chosen_agents(), hint=hint)
