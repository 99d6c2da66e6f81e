"""What the index room hands out: entries and chunks."""

import os
from dataclasses import dataclass, field
from typing import Literal


@dataclass(slots=True)
class Chunk:
    """A piece of an entry, small enough for the model to read whole.

     `id` is made from the entry, the text and its ordinal among equal texts
    , so an edit elsewhere does not change it. `lines` belong to
     subjects, `turn`, `role`, `tool`, `timestamp` (Unix seconds) to
     conversations; `call` is the number of the tool call in its turn, `args` its
     short arguments. `embed` says whether it gets a vector; `vector_hash` changes
     whenever that vector or what it is filtered by would.
    """

    id: str
    text: str
    ordinal: int
    lines: tuple[int, int] | None = None
    turn: int | None = None
    role: str | None = None
    tool: str | None = None
    timestamp: float | None = None
    embed: bool = True
    number: int = 0
    vector_hash: bytes | None = None
    call: int | None = None
    args: dict[str, str] | None = None


@dataclass(slots=True)
class Entry:
    """A subject file or a conversation, as the catalog holds it.

    `signature` names the state of the files that it was read from, `stat` that of
    `path` alone (`stat_text`), for a cheap look before a hit is shown. Times are
    Unix seconds. `error` says why nothing of it is indexed.
    """

    id: str
    kind: Literal["subject", "conversation"]
    title: str
    signature: str
    path: str
    type: str = ""
    topic: str | None = None
    slug: str | None = None
    conversation: str | None = None
    tags: list[str] = field(default_factory=list)
    source_url: str | None = None
    created: float = 0.0
    changed: float = 0.0
    size: int = 0
    hidden: bool = False
    archived: bool = False
    error: str | None = None
    stat: str = ""


def stat_text(status: os.stat_result) -> str:
    """The state of a file: inode, size, modification time in nanoseconds."""
    return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
