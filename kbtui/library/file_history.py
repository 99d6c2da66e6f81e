"""What turns did to files: the changes of a conversation, and the turns that changed or read a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.citations.file_changes import FileAction, TurnActivity
    from kbtui.conversations.models import Conversation
    from kbtui.workspace import Workspace


class TurnFileAction(NamedTuple):
    """An action on a file, with the reference of its call or, without a call, of its turn."""

    ref: str
    turn: int
    action: FileAction


def summarize_turns(workspace: Workspace, conversation: Conversation) -> dict[int, TurnActivity]:
    """Return what each turn of a conversation did, by turn number."""
    from kbtui.citations.file_changes import summarize_turn

    known_paths: set[str] = set()
    shorten_path = make_path_shortener(workspace)
    return {
        turn.number: summarize_turn(
            turn, conversation.info.working_directory, shorten_path, known_paths
        )
        for turn in conversation.turns
    }


def make_path_shortener(workspace: Workspace) -> Callable[[str], str]:
    """Return a function that makes paths relative to a workspace or to one of its worktrees."""
    from functools import lru_cache

    from kbtui.conversations.project_directories import (
        list_project_directories,
        make_path_relative_to_project,
    )

    directories = list_project_directories(workspace)
    return lru_cache(maxsize=10_000)(lambda path: make_path_relative_to_project(path, directories))
