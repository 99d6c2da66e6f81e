"""The interface of a conversation format: how kbtui reads the conversations of one agent.

A format is an instance of a subclass of `ConversationFormat`. kbtui's own formats are listed in
`kbtui/conversations/conversation_repository.py`. Other packages add formats through the entry-point
group `kbtui.conversation_formats`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from kbtui.conversations.conversation_data_types import (
        AgentCommand,
        Conversation,
        ConversationEvent,
        ConversationInfo,
        ConversationSegment,
        ConversationToolsAndModels,
        ParsingResumePoint,
        Turn,
    )
    from kbtui.workspace import Workspace


BEGINNING_BYTES = 1 << 20
"""How many bytes of a long conversation are read first, so that its first turns appear early."""
MIN_BYTES_FOR_SEGMENTS = 128 << 10
"""A conversation of at least this many bytes is read in segments."""


class SkippedConversationPath(NamedTuple):
    """A file or directory that is not listed as a conversation, and why.

    `is_unreadable` means that `path` should contain conversations but cannot be read. `has_no_turn`
    means that the conversation is intact, but contains no request yet.
    """

    path: Path
    reason: str
    is_unreadable: bool = False
    has_no_turn: bool = False


class TurnsForSearching(NamedTuple):
    """The turns of a conversation, without its metadata, for searching.

    `problem` describes unreadable parts; `last_event_at` is the time of the last event.
    """

    turns: list[Turn]
    last_event_at: datetime | None = None
    problem: str | None = None


class StoredConversation(Protocol):
    """A conversation that has been found on disk but not read."""

    id: str
    is_archived: bool

    @property
    def signature(self) -> str:
        """A digest of the paths, inodes, sizes and times of the conversation's files.

        The signature changes when one of the files changes.
        """

    def read_conversation_info(self) -> ConversationInfo:
        """Read the conversation's metadata, but not its events.

        Never raises; if an error occurs, `problem` of the result describes it.
        """


class ConversationFormat(ABC):
    """Finds and reads the conversations of one agent.

    A format must define `name`, `label`, `id_prefix`, `find_stored_conversations` and
    `load_conversation`. All other methods have default implementations. If a default
    implementation reads a conversation, it reads all of it. A method's argument `info` always
    describes a conversation in this format.
    """

    name: str
    """The agent's name in settings and filters, such as `claude-code`."""
    label: str
    """The agent's name on screens, such as `Claude Code`."""
    id_prefix: str
    """The prefix of the ids of the agent's conversations, such as `claude-`."""
    forks_at_turn = False
    """Whether the command from `make_fork_command` can end the copy at a chosen turn."""
    has_file_per_conversation = False
    """Whether each conversation is one JSON file, read through `open_regular_file`.

    kbtui can keep copies of such conversations.
    """
    max_checked_bytes: int | None = 4 << 20
    """When a conversation of at most this many bytes is listed, it is checked for all problems.

    A larger conversation is checked for only some problems. None means that there is no limit.
    """

    @abstractmethod
    def find_stored_conversations(
        self, workspace: Workspace, only: str | None = None
    ) -> tuple[Sequence[StoredConversation], list[SkippedConversationPath]]:
        """Return a workspace's conversations, and the files and directories that were skipped.

        If `only` is not None, the first list contains only the conversation with this id.
        """

    @abstractmethod
    def load_conversation(self, info: ConversationInfo) -> Conversation:
        """Load a conversation and count its events.

        Never raises; errors are in `problems` of the result.
        """

    def list_watched_directories(self, workspace: Workspace) -> list[Path]:
        """Return the directories to watch for new and changed conversations of a workspace."""
        return []

    def is_file_of_other_project(self, workspace: Workspace, path: str) -> bool:
        """Return whether a changed file certainly belongs to another project.

        `path` is a file in a watched directory.
        """
        return False

    def list_watched_files(self, workspace: Workspace) -> list[Path]:
        """Return the files to watch individually. They need not exist.

        Some agents write files into the project's own directory, which is too large to be watched
        as a whole.
        """
        return []

    def list_data_directories(self, workspace: Workspace) -> list[Path]:
        """Return the directories in which the agent stores conversations.

        The directories of other projects are included if kbtui can find them.
        """
        return self.list_watched_directories(workspace)

    def count_conversations_of_all_projects(self) -> int | None:
        """Count the agent's conversations in all projects.

        Returns None if kbtui does not know all projects of the agent.
        """
        return None

    def count_trashed_conversations(self, workspace: Workspace) -> dict[str, int]:
        """Map each trash directory to the number of conversations in it.

        The agent moves damaged conversations to trash directories.
        """
        return {}

    def add_last_event_time(self, info: ConversationInfo) -> ConversationInfo:
        """Return `info` with the time of the last event.

        Reads as little of the conversation as possible.
        """
        return info

    def add_event_count(self, info: ConversationInfo) -> ConversationInfo:
        """Return `info` with `events_count` and `last_event_at`."""
        conversation = self.load_conversation(info)
        problem = info.problem or next(iter(conversation.problems), None)
        return replace(conversation.info, problem=problem)

    def load_conversation_beginning(self, info: ConversationInfo) -> Conversation | None:
        """Load the first turns of a long conversation.

        Returns None if the conversation must be loaded as a whole.
        """
        return None

    def should_load_conversation_in_segments(self, info: ConversationInfo) -> bool:
        """Return whether a conversation is large enough to be loaded in segments."""
        return False

    def load_conversation_segment(
        self, info: ConversationInfo, resume_point: ParsingResumePoint | None, size: int
    ) -> ConversationSegment | None:
        """Load about `size` bytes of a conversation, but at least one turn.

        The segment starts at `resume_point`, or at the first turn if `resume_point` is None. Returns
        None if the conversation can only be loaded as a whole.
        """
        return None

    def load_turns_for_searching(self, info: ConversationInfo) -> TurnsForSearching:
        """Load all turns for searching, without metadata and configuration. Never raises."""
        conversation = self.load_conversation(info)
        problem = next(iter(conversation.problems), None)
        return TurnsForSearching(conversation.turns, conversation.info.last_event_at, problem)

    def read_conversation_tools_and_models(
        self, info: ConversationInfo
    ) -> ConversationToolsAndModels:
        """Return the tools and models used in a conversation. Never raises."""
        from kbtui.conversations.conversation_data_types import (
            ConversationToolsAndModels,
            count_unrewound_turns,
        )

        found = self.load_turns_for_searching(info)
        events = [event for turn in found.turns for event in turn.events]
        tools = {event.name for event in events if event.kind == "tool_call_request" and event.name}
        models = {turn.model for turn in found.turns if turn.model}
        return ConversationToolsAndModels(
            frozenset(tools), frozenset(models), count_unrewound_turns(found.turns), found.problem
        )

    def list_files_added_to_chat(self, event: ConversationEvent) -> list[str]:
        """Return the files that the user added to the conversation, if the event reports them."""
        return []

    def make_resume_command(self, info: ConversationInfo) -> AgentCommand | None:
        """Return the command with which the agent continues a conversation; None if it has no such command."""
        return None

    def make_fork_command(self, info: ConversationInfo, turn: int | None) -> AgentCommand | None:
        """Return the command that copies a conversation into a new one; None if the agent has no such command.

        The copy ends with turn number `turn`, counted from 1. If `turn` is None, or if
        `forks_at_turn` is false, the copy has all turns.
        """
        return None

    def make_attach_command(self, info: ConversationInfo, turn: int | None) -> AgentCommand | None:
        """Return the command that attaches a turn to a new conversation; None if the agent has no such command.

        If `turn` is None, all turns are attached.
        """
        return None
