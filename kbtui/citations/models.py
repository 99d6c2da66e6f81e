"""The types of the citations package."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

CitationMethod = Literal["learn", "search", "file", "read", "grep"]
"""How a turn used its target: with `learn`, `knowledge_search` ("search"), a file tool,
`conversation_read` or `conversation_grep`.
"""


@dataclass(frozen=True)
class Citation:
    """One use of a subject, conversation or file by a turn.

    `conversation`, `turn` and `call` identify the tool call; `source_title` is the title of its
    conversation. `target` is a reference (`topic/slug`, `jp-c…`, `chunk:…`), or a path if
    `kind` is "file"; `title` is the title of the target, if known. `gone` means that the target
    does not exist any more. `quote` is the beginning of a search result's passage, which
    identifies it if the subject was divided into passages in another way since; the index does
    not store it.
    """

    conversation: str
    turn: int
    call: int | None
    how: CitationMethod
    kind: Literal["subject", "conversation", "file"]
    target: str
    title: str
    tool: str
    timestamp: datetime | None = None
    gone: bool = False
    chunk: str | None = None
    score: float | None = None
    quote: str = ""
    source_title: str = ""

    @property
    def source(self) -> str:
        """The reference of the turn that cites."""
        return f"{self.conversation}:{self.turn}"


@dataclass(frozen=True)
class Citations:
    """The citations of one thing in both directions.

    `ref` is its reference, or the path of a file that is not a subject. `uses` is what it used,
    if it is a conversation or a turn. `used_by` are the turns that used it, newest first.
    `gone` says why it does not exist any more; None if it exists.
    """

    ref: str
    uses: list[Citation]
    used_by: list[Citation]
    gone: str | None = None
