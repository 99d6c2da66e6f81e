"""The interface of a conversation format: how kbtui reads the conversations of one agent.

A format is a module, or a package, with the attributes of `ConversationFormat`. It is listed in
`FORMATS` of `kbtui/conversations/conversation_repository.py`, which is the only module that imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from kbtui.conversations.models import (
        Conversation,
        ConversationInfo,
        ConversationPart,
        ConversationToolsAndModels,
        Turn,
        TurnResumePoint,
    )
    from kbtui.workspace import Workspace


class UnusableConversationDirectory(NamedTuple):
    """A directory that cannot be listed as a conversation, and the reason.

    `is_unreadable` means that the directory should contain conversations but cannot be read.
    """

    path: Path
    reason: str
    is_unreadable: bool = False


class DecodedTurns(NamedTuple):
    """The turns of one conversation without its metadata, for searching.

    `problem` says what could not be read; `last_event_at` is the time of the last event.
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
        """A digest of path, inode, size and modification time of all files; it changes if a file does."""

    def read_conversation_info(self) -> ConversationInfo:
        """Read the metadata but no events. Never raises; `problem` says what is wrong."""


class ConversationFormat(Protocol):
    """The functions of a format.

    A function that takes a `ConversationInfo` is called only with objects that this format made.
    """

    ID_PREFIX: str
    """The prefix of this format's ids, such as `jp-c`."""

    def find_stored_conversations(
        self, workspace: Workspace, only: str | None = None
    ) -> tuple[Sequence[StoredConversation], list[UnusableConversationDirectory]]:
        """Return all conversations, or only the one with the id `only`, and all unusable directories."""

    def count_trashed_conversations(self, workspace: Workspace) -> dict[str, int]:
        """Return the number of conversations in each trash directory, where the agent moves damaged ones."""

    def add_last_event_time(self, info: ConversationInfo) -> ConversationInfo:
        """Return `info` with `last_event_at`, reading as little as possible."""

    def add_event_count(self, info: ConversationInfo) -> ConversationInfo:
        """Return `info` with `events_count` and `last_event_at`."""

    def load_conversation(self, info: ConversationInfo) -> Conversation:
        """Load a conversation. Never raises; `problems` says what is wrong."""

    def load_conversation_beginning(self, info: ConversationInfo) -> Conversation | None:
        """Load the first turns of a long conversation; None if it must be loaded whole."""

    def can_load_conversation_parts(self, info: ConversationInfo) -> bool:
        """Return whether a conversation is long enough for `load_conversation_part`."""

    def load_conversation_part(
        self, info: ConversationInfo, mark: TurnResumePoint | None, size: int
    ) -> ConversationPart | None:
        """Load the turns that follow `mark`: about `size` bytes, but at least one turn.

        Returns None if the conversation must be loaded whole.
        """

    def decode_turns(self, info: ConversationInfo) -> DecodedTurns:
        """Decode all turns for searching, without metadata and configuration. Never raises."""

    def read_conversation_tools_and_models(
        self, info: ConversationInfo
    ) -> ConversationToolsAndModels:
        """Return the tools and models used in a conversation, without decoding its texts.

        Never raises.
        """
