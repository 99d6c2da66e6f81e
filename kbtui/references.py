"""References: short names for everything in a workspace, and the ids of conversations.

A reference has one of these forms:

* `topic`
* `topic/slug`: a subject
* `topic/slug:12-18`: lines of a subject
* `jp-c17457886043`: a conversation of JP
* `jp-c17457886043:3`: a turn
* `jp-c17457886043:3.2`: the second tool call in turn 3
* `jp-c17457886043#k3f9a1z`: the event with the id `k3f9a1z`
* `claude-258c7280:3.2`: a tool call in a conversation of another agent
* `chunk:<id>`: a passage that a search has found

A line that `grep` prints (`jp-c17457886043:3:user:m:…`) is a reference to the line's turn.

The ids of other agents' conversations can be shortened to beginnings that still identify them; JP's ids
cannot. In the id of a subagent (`claude-258c7280-…~a2898e3`), both the part before `~` and the part after
it can be shortened.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from os.path import commonprefix
from typing import TYPE_CHECKING, Literal

from kbtui.errors import OtherWorkspaceReferenceError, UsageError
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


RefKind = Literal["topic", "subject", "conversation", "chunk"]

# These patterns are not compiled here, so that importing the module takes no time; `re` caches them.
# Numbers have at most 18 digits, so that they fit into 64 bits.
_ID = r"(\d{1,18})(?:-([0-9a-z]+))?"
_CONVERSATION = rf"(?:jp-c)?{_ID}(?::(\d{{1,18}})(?:\.(\d{{1,18}}))?)?"
_LINK = rf"(?s)jp://(?:jp-c)?{_ID}(?:\?([^#]*))?"
# JP's draft D68: after the id of an event, `@` and a place in it, or `..` and the id of another event.
_EVENT_ADDRESS = rf"(?s)(?:jp://)?jp-c{_ID}(?:\?[^#]*)?#([0-9A-Za-z_-]{{1,64}})(?:(?:@|\.\.).*)?"
# The ids of formats from other packages begin with `x-`. A digit distinguishes an id from a topic's name.
_AGENT = r"(?:claude|codex|gemini|opencode|aider|llm|x-[a-z0-9]+)"
_OTHER_ID = rf"{_AGENT}-(?=[^:]*[0-9_])[0-9A-Za-z][0-9A-Za-z_~-]{{7,}}"
CONVERSATION_ID = rf"(?:jp-c\d+|{_OTHER_ID})"
"""A regular expression for the ids of conversations of all agents."""
_OTHER_CONVERSATION = rf"({_OTHER_ID})(?::(\d{{1,18}})(?:\.(\d{{1,18}}))?)?"
_SELECTED = r"(?:^|&)select=[^&:]*:(\d{1,18})"
# JP's short form of a link: `jp-c17457886043?a:142`.
_SHORTHAND = rf"(?s)jp-c{_ID}\?(?:[^&:]*:(\d{{1,18}}))?.*"
# What `jp c grep` and `kbtui conversation grep` print in front of the text of a line: `jp-c17457886043:3:user:m:`.
_COORDINATE = rf"(?s)({CONVERSATION_ID}):(\d{{1,18}}|\.\.):[a-z][a-z-]*(?::[mc](?::.*)?)?"
_LINES = r"(?s)(.+):(\d{1,18})(?:-(\d{1,18}))?"
_CHUNK = r"chunk:(\S+)"
JP_ID_PREFIX = "jp-c"
_LARGEST_JP_ID = 253402300799 * 10
"""The largest valid number in a JP id. The number is a time in tenths of a second since 1970.

The limit is the last second of the year 9999, the latest that `datetime` supports.
"""
SHORT_ID_CHARACTERS = 8
"""After the prefix that names the agent, a shortened id has at least this many characters."""


class Ref(NamedTuple):
    """A reference to a topic, subject, conversation or passage.

    * `conversation` is an id with the prefix of its format (`jp-c17457886043`).
    * `turn` and `call` count from 1.
    * `lines` are the first and the last line, counted from 1, both inclusive.
    * `workspace` is the id of the workspace if the reference contains it, such as `otvo8` in
      `jp-c17457886043-otvo8`.
    * `event` is the id of an event, which `expand_conversation_reference` replaces with the event's
      turn and call.
    """

    kind: RefKind
    topic: str | None = None
    slug: str | None = None
    lines: tuple[int, int] | None = None
    conversation: str | None = None
    turn: int | None = None
    call: int | None = None
    chunk: str | None = None
    workspace: str | None = None
    event: str | None = None

    def __str__(self) -> str:
        if self.kind == "chunk":
            return f"chunk:{self.chunk}"
        if self.kind == "topic":
            return str(self.topic)
        if self.kind == "subject":
            text = f"{self.topic}/{self.slug}"
            if self.lines is None:
                return text
            first, last = self.lines
            return f"{text}:{first}" if first == last else f"{text}:{first}-{last}"
        if self.turn is None:
            return f"{self.conversation}#{self.event}" if self.event else str(self.conversation)
        text = f"{self.conversation}:{self.turn}"
        return text if self.call is None else f"{text}.{self.call}"

    @property
    def jp_link(self) -> str | None:
        """The `jp://` link to a JP conversation or turn; None for any other reference."""
        if self.conversation is None or not self.conversation.startswith(JP_ID_PREFIX):
            return None
        turn = f"?select=*:{self.turn}" if self.turn is not None else ""
        return f"jp://{self.conversation}{turn}"


def make_subject_ref(topic: str, slug: str, lines: tuple[int, int] | None = None) -> Ref:
    """Return a reference to a subject, or to some of its lines."""
    return Ref("subject", topic=topic, slug=slug, lines=lines)


def make_conversation_ref(
    conversation: str, turn: int | None = None, call: int | None = None
) -> Ref:
    """Return a reference to a conversation, one of its turns, or one of its tool calls."""
    return Ref("conversation", conversation=conversation, turn=turn, call=call)


def make_jp_conversation_id(digits: str) -> str:
    """Return a JP conversation's id, derived from the digits in its directory's name."""
    return f"{JP_ID_PREFIX}{int(digits)}"


def is_valid_jp_id_number(number: int) -> bool:
    """Return whether a number is in the range of JP's conversation ids."""
    return 0 <= number <= _LARGEST_JP_ID


def decode_jp_id_creation_time(conversation: str) -> datetime:
    """Return the time at which a JP conversation was created.

    The conversation's id contains this time, in tenths of seconds since 1970.
    """
    seconds, tenths = divmod(int(conversation.removeprefix(JP_ID_PREFIX)), 10)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=tenths * 100_000)


def parse_conversation_id(text: str, workspace: str | None = None) -> str:
    """Parse a reference to a conversation, and return the conversation's id.

    Raises the errors of `parse_conversation_ref`.
    """
    return str(parse_conversation_ref(text, workspace).conversation)


def parse_conversation_ref(text: str, workspace: str | None = None) -> Ref:
    """Parse a reference to a conversation, a turn or a tool call.

    `workspace` is the id of this workspace, or None if this workspace has no id. Raises
    `UsageError` if the text is not such a reference, and `OtherWorkspaceReferenceError` if the
    reference contains the id of another workspace.
    """
    with suppress(UsageError):
        ref = parse_ref(text)
        if ref.kind == "conversation":
            return remove_workspace_id_from_ref(ref, workspace)
    if (typed := parse_other_agents_conversation_ref(text)) is not None:
        return typed
    hint = "write jp-c17457886043, 17457886043, jp://jp-c17457886043, claude-258c7280 or codex-0199812e"
    raise UsageError(f"{text!r} is not the id of a conversation", hint=hint)


def parse_ref(text: str, exists: Callable[[str, str], bool] | None = None) -> Ref:
    """Parse a reference; raises `UsageError`.

    `exists(topic, slug)` returns whether a subject exists. Its result decides whether `:12` at the
    end of a text is a line number or belongs to the slug.
    """
    text = text.strip()
    if match := re.fullmatch(_CHUNK, text):
        return Ref("chunk", chunk=match[1])
    if match := re.fullmatch(_EVENT_ADDRESS, text):
        ref = make_conversation_ref(make_jp_conversation_id(match[1]))
        return ref._replace(workspace=match[2], event=match[3])
    if match := re.fullmatch(_LINK, text):
        selected = re.search(_SELECTED, match[3] or "")
        turn = int(selected[1]) if selected else None
        ref = make_conversation_ref(make_jp_conversation_id(match[1]), turn)
        return ref._replace(workspace=match[2])
    if match := re.fullmatch(_CONVERSATION, text) or re.fullmatch(_SHORTHAND, text):
        digits, workspace, *rest = match.groups()
        numbers = (int(part) if part else None for part in rest)
        ref = make_conversation_ref(make_jp_conversation_id(digits), *numbers)
        return ref._replace(workspace=workspace)
    if match := re.fullmatch(_OTHER_CONVERSATION, text):
        conversation, *rest = match.groups()
        return make_conversation_ref(conversation, *(int(part) if part else None for part in rest))
    if match := re.fullmatch(_COORDINATE, text):
        # `..` stands for the title, which belongs to no turn.
        return make_conversation_ref(match[1], None if match[2] == ".." else int(match[2]))
    topic, slash, slug = text.partition("/")
    if topic and slug:
        if exists is not None and exists(topic, slug):
            return make_subject_ref(topic, slug)
        try:
            return make_subject_ref(topic, *split_slug_and_line_range(slug))
        except UsageError as error:
            raise UsageError(error.message, where=text, hint=error.hint) from error
    if topic and not slash and not re.search(r"\s", text):
        return Ref("topic", topic=text)
    raise UsageError(
        f"{text!r} is not a reference",
        hint="write topic/slug, topic/slug:12-18, jp-c17457886043, claude-258c7280:3 or chunk:ID",
    )


_MIN_ID_CHARACTERS = 8


def parse_other_agents_conversation_ref(text: str) -> Ref | None:
    """Parse a reference that begins like the id of another agent's conversation.

    Returns None for any other text. Unlike `parse_ref`, this function accepts an id without a
    digit, although such a text could also be the name of a topic. Raises `UsageError` if the id is
    too short.
    """
    pattern = rf"(({_AGENT}-)([0-9A-Za-z_~-]+))(?::(\d{{1,18}})(?:\.(\d{{1,18}}))?)?"
    match = re.fullmatch(pattern, text.strip())
    if match is None:
        return None
    conversation, prefix, own, *rest = match.groups()
    if len(own) < _MIN_ID_CHARACTERS:
        message = f"the id of a conversation needs at least {_MIN_ID_CHARACTERS} characters after {prefix}"
        raise UsageError(message, where=text)
    return make_conversation_ref(conversation, *(int(part) if part else None for part in rest))


def is_other_agents_conversation_ref(text: str) -> bool:
    """Return whether a text is a reference to a conversation of any agent except JP."""
    return re.fullmatch(_OTHER_CONVERSATION, text) is not None


def get_agent_prefix_of_id(conversation: str) -> str:
    """Return the agent's prefix in an id, such as `claude-` for `claude-258c7280`.

    Returns "" if the id has no prefix.
    """
    match = re.match(f"{_AGENT}-", conversation)
    return match[0] if match else ""


def is_conversation_id(text: str) -> bool:
    """Return whether a text is a conversation's id and nothing else."""
    with suppress(UsageError):
        return parse_ref(text) == make_conversation_ref(text)
    return False


def remove_workspace_id_from_ref(ref: Ref, workspace: str | None) -> Ref:
    """Return a reference without its workspace id.

    `workspace` is the id of this workspace. Raises `OtherWorkspaceReferenceError` if the reference
    contains the id of another workspace.
    """
    if ref.workspace is not None and workspace is not None and ref.workspace != workspace:
        raise OtherWorkspaceReferenceError(
            f"{ref.conversation}-{ref.workspace} is a conversation of another workspace",
            hint=f"this workspace has the id {workspace}; choose the other workspace with -w PATH",
        )
    return ref._replace(workspace=None)


def split_slug_and_line_range(slug: str) -> tuple[str, tuple[int, int] | None]:
    """Split `slug:first-last` into the slug and the two line numbers; raises `UsageError`.

    If the text has no line numbers, the second value is None.
    """
    match = re.fullmatch(_LINES, slug)
    if match is None:
        return slug, None
    first = int(match[2])
    last = int(match[3] or first)
    if first < 1 or last < first:
        raise UsageError(
            f"{slug[match.end(1) + 1 :]} is not a valid range of lines",
            where=slug,
            hint="write two line numbers, such as 12-18; the first line is 1",
        )
    return match[1], (first, last)


def find_ids_with_prefix(ids: Iterable[str], beginning: str) -> list[str]:
    """Return the ids for which `beginning` is a short form.

    In an id with `~`, both the part before `~` and the part after it can be shortened.
    """
    beginnings = beginning.split("~")
    found = [
        id
        for id in ids  # noqa: A001
        if all(map(str.startswith, id.split("~"), beginnings))
        and id.count("~") >= len(beginnings) - 1
    ]
    if len(beginnings) == 1:
        # The ids of a session's subagents begin with the id of the session.
        return [id for id in found if "~" not in id] or found  # noqa: A001
    return found


def map_references_to_short_forms(
    references: Iterable[str], find_ids: Callable[[set[str]], Iterable[str]]
) -> dict[str, str]:
    """Map each reference that has a short form to this form.

    `find_ids` receives a set of prefixes, and returns all conversation ids that begin with one of
    them.
    """
    wanted = {ref for ref in references if is_other_agents_conversation_ref(ref)}
    short = shorten_conversation_ids(
        find_ids(set(map(_cut_session_id_to_prefix_of_all_short_forms, wanted)))
    )
    return {ref: shorten_reference(ref, short) for ref in wanted}


def shorten_reference(reference: str, short_ids: Mapping[str, str]) -> str:
    """Return a reference with its conversation's id in the short form."""
    conversation, colon, position = reference.partition(":")
    return f"{short_ids.get(conversation, conversation)}{colon}{position}"


def shorten_conversation_ids(ids: Iterable[str]) -> dict[str, str]:
    """Map each id to its short form. No two ids have the same short form."""
    parents: set[str] = set()
    parts: dict[str, set[str]] = {}
    for id in ids:  # noqa: A001
        parent, sign, part = id.partition("~")
        parents.add(parent)
        if sign:
            parts.setdefault(parent, set()).add(part)
    others = {one for one in parents if get_agent_prefix_of_id(one)}
    short = {one: one for one in parents - others} | _find_unique_beginnings(others)
    for parent, names in parts.items():
        for name, start in _find_unique_beginnings(names).items():
            short[f"{parent}~{name}"] = f"{short[parent]}~{start}"
    return short


def _cut_session_id_to_prefix_of_all_short_forms(reference: str) -> str:
    """Cut a session's id to the prefix that all of its short forms have in common."""
    prefix = get_agent_prefix_of_id(reference)
    return reference.partition("~")[0][: len(prefix) + SHORT_ID_CHARACTERS]


def _find_unique_beginnings(names: Iterable[str]) -> dict[str, str]:
    """Map each name to its shortest prefix that is unique and a valid id.

    A prefix is unique if no other name begins with it.
    """
    ordered = sorted(names)
    if not ordered:
        return {}
    common = [len(commonprefix(pair)) for pair in pairwise(ordered)]  # noqa: RUF071
    found = {}
    for name, before, after in zip(ordered, [0, *common], [*common, 0], strict=True):
        own = len(get_agent_prefix_of_id(name))
        length = max(own + SHORT_ID_CHARACTERS, before + 1, after + 1)
        # An id without a digit would be read as the name of a topic.
        while length < len(name) and not re.search(r"[0-9_]", name[own:length]):
            length += 1
        found[name] = name[:length]
    return found
