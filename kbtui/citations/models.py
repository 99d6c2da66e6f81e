"""The data classes of citations."""

from datetime import datetime
from typing import Literal, NamedTuple

CitationMethod = Literal["learn", "search", "file", "read", "grep"]
"""The kind of tool with which a turn used a target.

"search" means `knowledge_search`, "file" a tool or a command that reads files, "read"
`conversation_read`, and "grep" `conversation_grep`.
"""


class Citation(NamedTuple):
    """A turn's use of a subject, a conversation or a file.

    `conversation`, `turn` and `call` identify the tool call; `source_title` is the title of its
    conversation. `target` is a reference (`topic/slug`, `jp-c…`, `chunk:…`), or a path if
    `kind` is "file"; `title` is the title of the target, if known. `gone` means that the target
    no longer exists. `quote` is the beginning of the passage that a search returned. By its quote, a
    passage is found even if its subject is now split differently. Citations from the index have no
    quote. `rewound` means that the user later went back to a turn before the citing turn.
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
    rewound: bool = False

    @property
    def source(self) -> str:
        """The reference of the citing turn."""
        return f"{self.conversation}:{self.turn}"


class Citations(NamedTuple):
    """The citations by `ref`, and the citations of `ref` by turns.

    `ref` is a reference, or the path of a file that is not a subject. `uses` lists what `ref` cites;
    it is empty unless `ref` is a conversation or a turn. `used_by` lists the turns that cite `ref`,
    newest first. `gone` says why `ref` no longer exists; None if it exists.
    """

    ref: str
    uses: list[Citation]
    used_by: list[Citation]
    gone: str | None = None
