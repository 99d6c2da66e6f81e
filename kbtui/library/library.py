"""`Library`: settings, files, index, engine and citations of one workspace, put together.

All calls are synchronous and may be made from any thread; a face that must not
block makes them in a thread of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.workspace import Settings, Workspace, find_workspace, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import Any

    from kbtui.citations.records import Citation
    from kbtui.conversations.records import Conversation, ConversationInfo
    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.records import Subject
    from kbtui.refs import Ref
    from kbtui.search.records import Answer, Question


def open_workspace(path: Path | str | None = None, settings: Settings | None = None) -> Library:
    """Open the workspace at or above `path` (default: the current directory).

    Reads settings, nothing else; raises `WorkspaceError` or `ConfigError`.
    """
    from pathlib import Path

    return Library(find_workspace(Path(path) if path else None), settings or load_settings())


class Library:
    """One workspace: what it knows, what was said, and how to find it."""

    def __init__(self, workspace: Workspace, settings: Settings) -> None:
        self.workspace = workspace
        self.settings = settings

    # files, read anew at each call

    def knowledge(self, cfg: Iterable[str] = (), knowledge: Iterable[str] = ()) -> Knowledge:
        """Topics and subjects; never raises for what one topic does wrong.

        `cfg` are `--cfg` values: names, or `kb.topic.<id>.<key>=value` assignments.
        """
        from kbtui.knowledge import load_knowledge

        values = list(cfg)
        return load_knowledge(
            self.workspace,
            cfg=[value for value in values if "=" not in value],
            assignments=[value for value in values if "=" in value],
            knowledge=list(knowledge),
        )

    def subject_text(self, subject: Subject) -> str:
        """A subject's text; raises `KbtuiError` with the reason it cannot be read."""
        from kbtui.knowledge import subject_text

        return subject_text(subject)

    def conversations(self, archived: bool | None = None) -> list[ConversationInfo]:
        """The conversations, live and archived (None), or one of the two; newest first."""
        from kbtui.conversations import list_conversations

        return list_conversations(self.workspace, archived)

    def conversation(self, conversation: int) -> Conversation:
        """A whole conversation by id; raises `NothingFound`."""
        from kbtui.conversations import find_conversation, load_conversation

        return load_conversation(find_conversation(self.workspace, conversation))

    # the index

    def lexical(self, question: Question) -> Answer:
        """Keyword hits at once, from what is indexed; never waits for engine or model."""
        raise NotImplementedError

    def search(self, question: Question, wait: float = 10.0) -> Answer:
        """The whole answer; waits up to `wait` seconds for the semantic leg."""
        raise NotImplementedError

    # citations

    def cited_by_turn(self, conversation: Conversation, turn: int) -> list[Citation]:
        """What a turn used, from the conversation itself."""
        raise NotImplementedError

    def turns_citing(self, ref: Ref) -> list[Citation]:
        """The turns that used a subject or a conversation, newest first, from the index."""
        raise NotImplementedError

    # the engine

    def listen(self, hear: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Call `hear` from a thread with each of the engine's messages; returns how to stop.

        Starts the engine, and again when it went away. Messages have `event`:
        `changed` (`knowledge`: bool, `conversations`: ids, `subjects`: refs; lists and reader are
        to be read again), `progress` (`phase`, `done`, `total`, `seconds_left` or None),
        `ready` (`lexical`, `semantic`: bool, `reason`), `gone` (`reason`).
        """
        raise NotImplementedError
