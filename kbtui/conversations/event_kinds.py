"""The kinds of event in a conversation, one row each.

The parser, the index, grep, the filters of a search, the assistants' tools, the command line and
the exports read this table. A new kind takes a row here and a renderer in
`kbtui/tui/reader/conversation_document.py`; without the renderer it is shown folded.
"""

from __future__ import annotations

TYPE_CHECKING = (
    False  # `kbtui search` reads this table, and importing `typing` would take a tenth of its time
)
if TYPE_CHECKING:
    from collections.abc import Iterable


class EventKind:
    """What every part of kbtui has to know of one kind of event."""

    def __init__(
        self,
        name: str,
        role: str,
        include: str | None,
        label: str,
        scope_group: str | None = None,
        role_group: str | None = None,
        *,
        is_indexed: bool = True,
        is_embedded: bool = True,
    ) -> None:
        self.name = name
        self.role = role
        """Its name in searches (`role:`) and in grep (`--scope`); kinds may share one."""
        self.include = include
        """The word of `include` that selects it; None for events that follow others."""
        self.label = label
        """Its heading."""
        self.scope_group = scope_group
        """Its group of scopes in grep."""
        self.role_group = role_group
        """Its group of roles in searches."""
        self.is_indexed = is_indexed
        """Whether a search finds it."""
        self.is_embedded = is_embedded
        """Whether its text gets a vector unless the settings ask for more."""


EVENT_KINDS: dict[str, EventKind] = {
    kind.name: kind
    for kind in (
        EventKind("chat_request", "user", "chat", "You", "chat", "chat"),
        EventKind("message", "assistant", "chat", "Assistant", "chat", "chat"),
        EventKind("reasoning", "reasoning", "reasoning", "Reasoning", "chat"),
        EventKind("structured", "structured", "chat", "Structured answer", "chat"),
        EventKind(
            "tool_call_request",
            "tool-call",
            "tool_calls",
            "Call",
            "tool",
            "tool",
            is_embedded=False,
        ),
        EventKind(
            "tool_call_response",
            "tool-result",
            "tool_results",
            "Result",
            "tool",
            "tool",
            is_embedded=False,
        ),
        EventKind("inquiry_request", "inquiry", "tool_calls", "Question"),
        # An answer is a word or two, which mean nothing without the question.
        EventKind("inquiry_response", "inquiry", "tool_results", "Answer", is_indexed=False),
        # What an event of an unknown kind means nobody can tell.
        EventKind("unknown", "unknown", None, "Unknown event", is_indexed=False),
    )
}


def role_of(kind: str) -> str:
    """The role of a kind, which is its scope in grep."""
    return EVENT_KINDS[kind].role


def scopes() -> tuple[str, ...]:
    """What grep can be narrowed to: the title, and every role."""
    return ("title", *dict.fromkeys(kind.role for kind in EVENT_KINDS.values()))


def scope_groups() -> dict[str, tuple[str, ...]]:
    """The scopes behind each group."""
    return _group((kind.scope_group, kind.role) for kind in EVENT_KINDS.values())


def search_roles() -> tuple[str, ...]:
    """The roles that a search can be narrowed to."""
    return tuple(dict.fromkeys(kind.role for kind in EVENT_KINDS.values() if kind.is_indexed))


def search_role_groups() -> dict[str, tuple[str, ...]]:
    """The roles behind each group."""
    return _group((kind.role_group, kind.role) for kind in EVENT_KINDS.values() if kind.is_indexed)


def include_groups() -> dict[str, tuple[str, ...]]:
    """The kinds behind each word of `include`."""
    return _group((kind.include, kind.name) for kind in EVENT_KINDS.values())


def _group(pairs: Iterable[tuple[str | None, str]]) -> dict[str, tuple[str, ...]]:
    """The distinct values of each group, in order; pairs without a group are left out."""
    groups: dict[str, tuple[str, ...]] = {}
    for group, value in pairs:
        if group is not None and value not in groups.setdefault(group, ()):
            groups[group] += (value,)
    return groups
