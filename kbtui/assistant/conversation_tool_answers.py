"""The answers, notices and refusals of the conversation tools, with their JSON and XML.

Each notice and refusal has two wordings, because assistants pass arguments and people type options.
JSON and XML contain the wording for assistants.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.citations.citation_formatting_and_markdown_export import format_code_fence
from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import format_readable_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import NotRequired, TypedDict

    from kbtui.conversations.conversation_data_types import ConversationEventJson
    from kbtui.conversations.conversation_grep import GrepLine
    from kbtui.conversations.turn_decision_marks import MarkFactsJson

    class ConversationInfoJson(TypedDict):
        """A conversation as JSON, with the documented keys."""

        id: str
        agent: str
        title: str | None
        events_count: int | None
        created_at: str
        last_event_at: str | None
        archived_at: str | None
        expires_at: str | None
        updated_at: str | None
        pinned_at: str | None
        parent_id: str | None
        worktree: str | None
        labels: Mapping[str, str]
        problem: str | None
        kept_from: NotRequired[str]
        file_turns: NotRequired[list[TurnTouchingFileSummaryJson]]

    class TurnTouchingFileSummaryJson(TypedDict):
        """The JSON form of a turn that changed or read a file, or that wrote the requested lines."""

        ref: str
        turn: int
        rewound: NotRequired[bool]
        time: str | None
        actions: str
        lines: str | None
        request: str
        marks: NotRequired[list[MarkFactsJson]]

    class TurnJson(TypedDict):
        """A turn in the JSON that docs/guide/json.md describes."""

        turn: int
        rewound: NotRequired[bool]
        attachments: NotRequired[int]
        outdated_subjects: NotRequired[list[dict[str, str]]]
        marks: NotRequired[list[MarkFactsJson]]
        events: list[ConversationEventJson]


MAX_GREP_HINT_LENGTH = 1_500
"""The hint in an answer of `conversation_grep` to an assistant has at most this many characters."""
MAX_READ_HINT_LENGTH = 400
"""The hint in an answer of `conversation_read` has at most this many characters."""
# Characters that XML 1.0 does not allow, and control characters that no text needs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SUSPECT = re.compile("[\x00-\x08\x0b-\x1f&<>\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class ConversationAnswerNotice(NamedTuple):
    """A remark about an answer, with a hint for assistants and one for people."""

    fact: str
    tool_hint: str = ""
    command_hint: str = ""


def format_tool_notices(
    notices: Iterable[ConversationAnswerNotice], *, for_command: bool = False
) -> str:
    """Join notices on one line. The hints are for people if `for_command` is true, else for assistants."""
    parts = []
    for notice in notices:
        hint = notice.command_hint if for_command else notice.tool_hint
        parts.append(f"{notice.fact}: {hint}" if hint else notice.fact)
    return "; ".join(parts)


class ConversationToolError(KbtuiError):
    """An error worded for assistants; `command_message` and `command_hint` are worded for people."""

    def __init__(
        self,
        message: str,
        hint: str,
        *,
        where: str | None = None,
        command_message: str | None = None,
        command_hint: str | None = None,
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.command_message = command_message or message
        self.command_hint = command_hint or hint


class ToolArgumentsRefusedError(ConversationToolError, UsageError):
    """The arguments contradict each other, name the current conversation, or ask for an answer that is too long."""


class RequestedConversationNotFoundError(ConversationToolError, NothingFound):
    """A requested conversation does not exist, or the argument `archived` excludes it."""


@dataclass
class ConversationListPage:
    """A page of the list of conversations.

    `total` counts all matching conversations. `omitted` counts those after this page.
    """

    total: int
    offset: int
    conversations: list[ConversationInfoJson]
    omitted: int = 0
    notices: list[ConversationAnswerNotice] = field(default_factory=list)
    short_ids: dict[str, str] = field(default_factory=dict)
    """Maps the id of each conversation to a shorter id of the same conversation."""
    unexplained_lines: list[dict[str, Any]] | None = None
    """Those of the requested lines that no turn wrote; None if no lines were requested."""

    @property
    def conversation_count_on_page(self) -> int:
        """The number of conversations on this page."""
        return len(self.conversations)

    def as_json(self) -> dict[str, object]:
        """Return the page as the JSON object that docs/guide/json.md describes."""
        return {
            "total": self.total,
            "offset": self.offset,
            "count": self.conversation_count_on_page,
            "omitted": self.omitted,
            "hint": format_tool_notices(self.notices) or None,
            **(
                {"unexplained_lines": lines}
                if (lines := self.unexplained_lines) is not None
                else {}
            ),
            "conversations": self.conversations,
        }


@dataclass
class ConversationGrepLine:
    """A matching line or a line of context; adjacent lines have the same `block`.

    `parent_id` is the id of the parent of the line's conversation, or None. If all projects were
    searched, `project` is the name of the line's project and `workspace` is the root of its
    workspace; otherwise both are None. `marks` are the user's marks on the line's turn.
    """

    id: str
    agent: str
    title: str | None
    parent_id: str | None
    line: GrepLine
    block: int
    project: str | None = None
    workspace: str | None = None
    marks: list[MarkFactsJson] = field(default_factory=list)

    @property
    def turn_key(self) -> tuple[str | None, str, int | None]:
        """A key that identifies the line's turn: the workspace, the conversation and the number of the turn."""
        return self.workspace, self.id, self.line.turn

    def as_json(self) -> dict[str, object]:
        """Return the line as the JSON object that docs/guide/json.md describes."""
        return {
            "id": self.id,
            "agent": self.agent,
            "title": self.title,
            "parent_id": self.parent_id,
            "scope": self.line.scope,
            "turn": self.line.turn,
            **({"rewound": True} if self.line.is_rewound else {}),
            **({"marks": self.marks} if self.marks else {}),
            "timestamp": self.line.timestamp,
            "text": self.line.text,
            "is_match": self.line.is_match,
            **(
                {"project": self.project, "workspace": self.workspace}
                if self.project is not None
                else {}
            ),
        }


class ConversationMatchCount(NamedTuple):
    """A conversation with matches, and the number of its matching lines.

    `project` and `workspace` are None unless all projects were searched.
    """

    id: str
    agent: str
    title: str | None
    matches: int
    project: str | None = None
    workspace: str | None = None

    def as_json(self) -> dict[str, object]:
        """Return a JSON object with the title, even if it is None, and all other fields that have a value."""
        return {
            name: value
            for name, value in self._asdict().items()
            if name == "title" or value is not None
        }


@dataclass
class ConversationGrepAnswer:
    """The answer of `conversation_grep`: matching lines, with lines of context.

    `total` is the number of matches. `hits` contains `count` of these matches, and their context.
    `is_bounded` says whether the answer and its hint have a maximum length. `conversations`, which
    is not part of the JSON, lists all conversations with matches.
    """

    is_bounded: bool
    total: int = 0
    count: int = 0
    hits: list[ConversationGrepLine] = field(default_factory=list)
    conversations: list[ConversationMatchCount] = field(default_factory=list)
    notices: list[ConversationAnswerNotice] = field(default_factory=list)
    omitted_matches_notice: ConversationAnswerNotice | None = None
    """The notice that says how many matches are left out. It is also in `notices`."""

    @property
    def omitted_match_count(self) -> int:
        """The number of matches that are not in `hits`."""
        return self.total - self.count

    def as_json(self) -> dict[str, object]:
        """Return the answer as the JSON object that docs/guide/json.md describes."""
        hint = format_tool_notices(self.notices)
        return {
            "total": self.total,
            "count": self.count,
            "omitted": self.omitted_match_count,
            "hint": (hint[:MAX_GREP_HINT_LENGTH] if self.is_bounded else hint) or None,
            "hits": [hit.as_json() for hit in self.hits],
        }


@dataclass
class ConversationReadAnswer:
    """The answer of `conversation_read`.

    `turns` are the returned turns, and `turns_total` is the conversation's total number of turns.
    """

    id: str
    agent: str
    title: str | None
    parent_id: str | None
    turns_total: int
    turns: list[TurnJson]
    notices: list[ConversationAnswerNotice] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """Return the answer as the JSON object that docs/guide/json.md describes."""
        return {
            "id": self.id,
            "agent": self.agent,
            "title": self.title,
            "parent_id": self.parent_id,
            "turns_total": self.turns_total,
            "count": len(self.turns),
            "omitted": self.turns_total - len(self.turns),
            "hint": format_tool_notices(self.notices)[:MAX_READ_HINT_LENGTH] or None,
            "turns": self.turns,
        }


_ITEM_TAGS = {
    "marks": "mark",
    "conversations": "conversation",
    "file_turns": "file_turn",
    "unexplained_lines": "unexplained_line_range",
    "hits": "hit",
    "turns": "turn",
    "events": "event",
    "outdated_subjects": "outdated_subject",
}
"""Maps each field that contains a list of objects to the XML tag of one object."""


def format_answer_as_xml(kind: str, answer: Mapping[str, Any]) -> str:
    """Format an answer of `list`, `grep` or `read` as XML, without a final newline.

    Each field that is not null becomes an element, indented by two spaces. Text keeps its line
    breaks. Markup characters are escaped and control characters removed, so that no content can
    close an element.
    """
    return format_xml_element(f"conversation_{kind}", answer, 0)


def format_xml_element(tag: str, fields: Mapping[str, Any], indent: int) -> str:
    """Format an answer or part of an answer as an XML element, indented by `indent` spaces."""
    outer, inner = " " * indent, " " * (indent + 2)
    lines = [f"{outer}<{tag}>"]
    for name, value in fields.items():
        if value is None or (name == "labels" and not value):
            continue
        if name in _ITEM_TAGS:
            items = [format_xml_element(_ITEM_TAGS[name], item, indent + 4) for item in value]
        elif name == "labels":
            labels = [f"{key}={text}" if text else key for key, text in value.items()]
            items = [f"{inner}  <label>{escape_xml(label)}</label>" for label in labels]
        elif isinstance(value, dict):
            items = [escape_xml(format_code_fence(format_readable_json(value), "json"))]
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            lines.append(f"{inner}<{name}>{escape_xml(text)}</{name}>")
            continue
        if items:
            lines += [f"{inner}<{name}>", *items, f"{inner}</{name}>"]
        else:
            lines.append(f"{inner}<{name}></{name}>")
    return "\n".join([*lines, f"{outer}</{tag}>"])


def escape_xml(text: str) -> str:
    """Escape text for an XML element, and remove characters that XML does not allow."""
    if not _SUSPECT.search(text):
        return text
    text = _SURROGATE.sub("\ufffd", _FORBIDDEN.sub("", text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
