"""The table of the kinds of conversation events, one row for each kind.

To add a kind, add a row. The parser, the index, the filters, the tools, the commands, the exports
and the reader pane use this table. The reader pane shows events of a new kind folded.
"""

from __future__ import annotations

from kbtui.light_named_tuple import NamedTuple

# `kbtui search` imports this module, and must not wait for `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class ConversationEventKindDefinition(NamedTuple):
    """One kind of event: its names and groups, and how it is shown and searched."""

    name: str
    role: str
    """The value of `role:` in searches, and of `--scope` in grep, that selects events of this kind.

    Several kinds can have the same value.
    """
    include: str | None
    """The value of the tool argument `include` that selects events of this kind.

    If it is None, events of this kind are returned only to a call that includes all kinds.
    """
    label: str
    """The heading of events of this kind."""
    scope_group: str | None = None
    """The group that selects this kind and others in grep's `--scope`, such as `chat`; None if there is none."""
    role_group: str | None = None
    """The group that selects this kind and others in the filter `role:`, such as `tool`; None if there is none."""
    is_indexed: bool = True
    """Whether searches find events of this kind."""
    is_embedded: bool = True
    """Whether events of this kind get vectors by default."""
    is_response: bool = False
    """Whether each event of this kind responds to an earlier event with the same id."""
    colour: str = "yellow"
    """The colour of the heading in the output of commands."""
    fields: tuple[str, ...] = ()
    """The names of the fields that events of this kind have besides their text.

    See `ConversationEvent.fields`.
    """
    language: str | None = None
    """The language of the text, such as `json`. "" if the text is unformatted, None if it is Markdown."""
    is_subdued: bool = False
    """Whether the text is secondary.

    Commands print secondary text in dim characters. Exports show it as a quotation.
    """


# fmt: off
_KINDS = (
    ConversationEventKindDefinition("chat_request", "user", "chat", "You", "chat", "chat", colour="green"),
    # Whole files, like the results of tools: not embedded by default.
    ConversationEventKindDefinition("attachment", "attachment", "chat", "Attachment", is_embedded=False, colour="cyan", language=""),
    ConversationEventKindDefinition("message", "assistant", "chat", "Assistant", "chat", "chat", colour="blue"),
    ConversationEventKindDefinition("reasoning", "reasoning", "reasoning", "Reasoning", "chat", colour="dim", is_subdued=True),
    ConversationEventKindDefinition("structured", "structured", "chat", "Structured answer", "chat", colour="blue", language="json"),
    ConversationEventKindDefinition("tool_call_request", "tool-call", "tool_calls", "Call", "tool", "tool", is_embedded=False, language="json"),
    ConversationEventKindDefinition("tool_call_response", "tool-result", "tool_results", "Result", "tool", "tool", is_embedded=False, is_response=True, colour="cyan", language=""),
    ConversationEventKindDefinition("inquiry_request", "inquiry", "tool_calls", "Question"),
    # Answers are a word or two, which mean nothing without the question.
    ConversationEventKindDefinition("inquiry_response", "inquiry", "tool_results", "Answer", is_indexed=False, is_response=True),
    ConversationEventKindDefinition("notice", "notice", "chat", "Notice", is_embedded=False, colour="dim"),
    # The summary that the model sees instead of everything before it.
    ConversationEventKindDefinition("compaction", "notice", "chat", "Compacted", is_embedded=False, colour="dim"),
    ConversationEventKindDefinition("unknown", "unknown", None, "Unknown event", is_indexed=False, language="json"),
)
# fmt: on
EVENT_KINDS = {kind.name: kind for kind in _KINDS}


def map_names_to_grep_scopes() -> dict[str, tuple[str, ...]]:
    """Map each value that `--scope` accepts to the scopes that it selects.

    A value is `all`, a group such as `chat`, or a single scope.
    """
    kinds = EVENT_KINDS.values()
    scopes = ("title", *dict.fromkeys(kind.role for kind in kinds))
    groups = _collect_values_by_group((kind.scope_group, kind.role) for kind in kinds)
    return {"all": scopes, **groups, **{scope: (scope,) for scope in scopes}}


def map_names_to_search_roles() -> dict[str, tuple[str, ...]]:
    """Map each value that the filter `role:` accepts to the roles that it selects.

    A value is a single role, or a group such as `tool`.
    """
    kinds = [kind for kind in EVENT_KINDS.values() if kind.is_indexed]
    names = [(kind.role, kind.role) for kind in kinds]
    return _collect_values_by_group([*names, *((kind.role_group, kind.role) for kind in kinds)])


def map_include_groups_to_event_kinds() -> dict[str, tuple[str, ...]]:
    """Map each group that the tool argument `include` accepts to the kinds of events in the group."""
    return _collect_values_by_group((kind.include, kind.name) for kind in EVENT_KINDS.values())


def _collect_values_by_group(pairs: Iterable[tuple[str | None, str]]) -> dict[str, tuple[str, ...]]:
    """Map each group to its values, without repetitions, in the order of `pairs`.

    Pairs without a group are ignored.
    """
    groups: dict[str, tuple[str, ...]] = {}
    for group, value in pairs:
        if group is not None and value not in groups.setdefault(group, ()):
            groups[group] += (value,)
    return groups
