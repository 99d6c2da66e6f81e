"""What the citations room hands out."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

CitationMethod = Literal["learn", "search", "file", "read", "grep"]
"""`learn`, a `knowledge_search` result, a file tool, `conversation_read`, a hit of
`conversation_grep`."""


@dataclass(frozen=True)
class Citation:
    """One use of a piece of knowledge by a turn.

    The turn is `conversation:turn`, in it the `call`-th tool call. `target` is a
    reference (`topic/slug`, `jp-c…`, `chunk:…`), or a path for a file that is no
    subject (`kind` "file"). `title` is the target's, as far as known, `source_title` that of the
    conversation that cites. `gone` says that the target does not exist any more. `quote` is how
    the passage of a search result begins, by which it is found after its chunk was cut another
    way; the index does not keep it.
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
    """Both ends of the citations of one thing.

    `ref` is its reference, or the path of a file that is no subject. `uses` is what it used,
    where it is a conversation or a turn; `used_by` are the turns that used it, newest first.
    `gone` says why it does not exist any more, None while it does.
    """

    ref: str
    uses: list[Citation]
    used_by: list[Citation]
    gone: str | None = None
