"""Lists the agents, and lists, finds and loads the conversations of a workspace."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kbtui.conversations.formats.aider_format import AiderFormat
from kbtui.conversations.formats.claude_code_format import ClaudeCodeFormat
from kbtui.conversations.formats.codex_format import CodexFormat
from kbtui.conversations.formats.conversation_format import ConversationFormat
from kbtui.conversations.formats.gemini_cli_format import GeminiCliFormat
from kbtui.conversations.formats.jp import JpFormat
from kbtui.conversations.formats.llm_cli_format import LlmCliFormat
from kbtui.conversations.formats.opencode_format import OpencodeFormat
from kbtui.conversations.formats.published_library_conversation_format import (
    PUBLISHED_FORMAT,
    is_from_published_library,
)
from kbtui.conversations.session_archive import (
    find_conversations_only_in_archive,
    get_kept_session_records_directory,
)
from kbtui.errors import ConfigError, NothingFound, UsageError
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import (
    JP_ID_PREFIX,
    SHORT_ID_CHARACTERS,
    find_ids_with_prefix,
    make_conversation_ref,
    parse_conversation_ref,
    parse_other_agents_conversation_ref,
    parse_ref,
    remove_workspace_id_from_ref,
)
from kbtui.terminal_text import format_counted_noun
from kbtui.workspace import load_settings
from kbtui.workspace.user_settings import (
    get_agents_chosen_for_keeping_sessions,
    get_chosen_agents,
    locate_agent_names_in_settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.conversations.conversation_data_types import Conversation, ConversationInfo
    from kbtui.conversations.formats.conversation_format import (
        SkippedConversationPath,
        StoredConversation,
    )
    from kbtui.references import Ref
    from kbtui.workspace import Workspace

FORMATS: tuple[ConversationFormat, ...] = (
    JpFormat(),
    ClaudeCodeFormat(),
    CodexFormat(),
    GeminiCliFormat(),
    OpencodeFormat(),
    AiderFormat(),
    LlmCliFormat(),
)
"""kbtui's own formats. Other packages can add more (`ENTRY_POINT_GROUP`)."""
ENTRY_POINT_GROUP = "kbtui.conversation_formats"
"""The group of the entry points through which other packages add subclasses of `ConversationFormat`."""
_OTHER_PREFIX = re.compile("x-[a-z0-9]+-")
AGENTS_OFF_BY_DEFAULT = frozenset({"llm"})
"""The agents whose conversations are read only if the setting `agents` lists the agent.

These agents do not record the directory in which they ran.
"""


@cache
def list_conversation_formats() -> tuple[ConversationFormat, ...]:
    """Return all formats: first kbtui's own, then those of other packages, sorted by name."""
    if not _does_any_package_offer_formats():
        return FORMATS
    from importlib.metadata import entry_points

    formats = {one.name: one for one in FORMATS}
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            found = point.load()()
            _check_format_of_other_package(found, formats)
        except Exception as error:
            unusable_formats[point.name] = f"{type(error).__name__}: {error}"
        else:
            formats[found.name] = found
    return tuple(formats.values())


def _does_any_package_offer_formats() -> bool:
    """Return whether an installed package declares entry points for conversation formats.

    Most users have no such package, and importing `importlib.metadata` takes longer than this search.
    """
    for place in map(Path, sys.path):
        if place.is_file():
            return True  # An archive: only `importlib.metadata` can read it.
        try:
            names = [path.name for path in place.iterdir()]
        except OSError:
            continue
        for name in names:
            # A metadata directory is called `*.dist-info`, `*.egg-info` or `EGG-INFO`.
            if name.lower().endswith("-info"):
                with suppress(OSError):
                    entries = (place / name / "entry_points.txt").read_bytes()
                    if ENTRY_POINT_GROUP.encode() in entries:
                        return True
    return False


def _check_format_of_other_package(
    found: ConversationFormat, formats: Mapping[str, ConversationFormat]
) -> None:
    """Raise `TypeError` or `ValueError` if a format from another package cannot be used.

    The format must be valid, and must not conflict with one of `formats`.
    """
    if not isinstance(found, ConversationFormat):
        raise TypeError("the entry point does not provide a ConversationFormat")
    if found.name in formats:
        raise ValueError(f"there is already a format with the name {found.name!r}")
    if not _OTHER_PREFIX.fullmatch(found.id_prefix):
        raise ValueError(f"its id_prefix must have the form 'x-parrot-', not {found.id_prefix!r}")
    if any(found.id_prefix == one.id_prefix for one in formats.values()):
        raise ValueError(f"another format has the id_prefix {found.id_prefix!r}")


unusable_formats: dict[str, str] = {}
"""If the format of an entry point could not be loaded, maps the name of the entry point to the reason."""


def list_enabled_conversation_formats() -> list[ConversationFormat]:
    """Return the formats of the agents that the user's settings enable."""
    chosen = get_chosen_agents(load_settings())
    if chosen is None:
        return [one for one in list_conversation_formats() if one.name not in AGENTS_OFF_BY_DEFAULT]
    names = {name.casefold() for name in chosen}
    return [one for one in list_conversation_formats() if one.name.casefold() in names]


def get_conversation_format(info: ConversationInfo) -> ConversationFormat:
    """Return the format of a conversation."""
    if is_from_published_library(info):
        return PUBLISHED_FORMAT
    return next(one for one in list_conversation_formats() if one.name == info.agent)


def list_conversations(
    workspace: Workspace,
    archived: bool | None = None,
    *,
    counts: bool = True,
    known: Mapping[str, ConversationInfo] | None = None,
) -> list[ConversationInfo]:
    """Return the conversations of a workspace, newest activity first.

    A conversation that cannot be read is included; its `problem` says why.

    * `archived`: True selects archived conversations, False selects live ones, None selects all.
    * `counts`: whether to parse all events, which sets `events_count` and `last_event_at`. Without
      `counts`, JP's conversations are sorted by creation time.
    * `known`: results of an earlier call, by id. A result is used again if the conversation's files
      have not changed.
    """
    infos = []
    for stored in _iterate_own_and_published_conversations(workspace):
        if archived is not None and stored.is_archived is not archived:
            continue
        info = (known or {}).get(stored.id)
        # A problem such as a missing permission may disappear without a change of the files.
        if info is None or info.problem or info.signature != stored.signature:
            info = stored.read_conversation_info()
        infos.append(add_event_count_to_info(info) if counts else info)
    infos.sort(key=lambda info: info.make_time_sort_key(), reverse=True)
    return infos


def find_stored_conversations(workspace: Workspace) -> list[StoredConversation]:
    """Return the conversations of a workspace, each id once. Their events are not read."""
    found = {one.id: one for one in _iterate_own_and_published_conversations(workspace)}
    return list(found.values())


class ConversationTitles(Mapping[str, str]):
    """Maps the ids of conversations to their titles. A title is read when it is first looked up."""

    def __init__(self, conversations: Iterable[StoredConversation]) -> None:
        self._conversations = {one.id: one for one in conversations}
        self._titles: dict[str, str] = {}

    def __getitem__(self, id: str) -> str:  # noqa: A002
        if id not in self._titles:
            self._titles[id] = self._conversations[id].read_conversation_info().name
        return self._titles[id]

    def __contains__(self, id: object) -> bool:  # noqa: A002
        return id in self._conversations

    def __iter__(self) -> Iterator[str]:
        return iter(self._conversations)

    def __len__(self) -> int:
        return len(self._conversations)


def list_conversation_change_signatures(workspace: Workspace) -> dict[str, str]:
    """Map the ids of all conversations to their signatures. The events are not read.

    A signature changes if the conversation's files change.
    """
    return {one.id: one.signature for one in find_stored_conversations(workspace)}


def find_conversation(
    workspace: Workspace,
    id: str,  # noqa: A002
    *,
    counts: bool = False,
) -> ConversationInfo:
    """Return the live or archived conversation with this id.

    If `counts` is true, all events are parsed to set `events_count` and `last_event_at`. Raises
    `ConversationNotFoundError` if there is no such conversation.
    """
    id = str(expand_conversation_reference(workspace, make_conversation_ref(id)).conversation)  # noqa: A001
    for stored in _iterate_own_and_published_conversations(workspace, id):
        info = stored.read_conversation_info()
        return add_event_count_to_info(info) if counts else info
    raise ConversationNotFoundError(workspace, id)


def expand_conversation_reference(workspace: Workspace, ref: Ref) -> Ref:
    """Replace a shortened conversation id in a reference by the whole id, and return the reference.

    In the id of a subagent, both the part before `~` and the part after it can be shortened. If no
    conversation matches, the reference is returned unchanged. Raises `UsageError` if several
    conversations match.

    If the reference contains the id of an event, the id is replaced by the event's turn and call.
    Raises `NothingFound` if the conversation does not exist or has no such event.
    """
    if ref.event is not None:
        return _replace_event_id_by_turn_and_call(workspace, ref)
    begun = ref.conversation
    if ref.kind != "conversation" or begun is None or begun.startswith(JP_ID_PREFIX):
        return ref
    if any(_iterate_own_and_published_conversations(workspace, begun)):
        return ref
    stored = [one.id for one in _iterate_own_and_published_conversations(workspace)]
    # Some programs show the same id in capital letters.
    ids = find_ids_with_prefix(stored, begun) or find_ids_with_prefix(stored, begun.lower())
    if len(ids) > 1:
        named = ", ".join(sorted(ids)[:3])
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        raise UsageError(f"{len(ids)} conversations match: {named}{more}", where=begun)
    return ref._replace(conversation=ids[0]) if ids else ref


def _replace_event_id_by_turn_and_call(workspace: Workspace, ref: Ref) -> Ref:
    conversation = load_conversation(find_conversation(workspace, ref.conversation or ""))
    for turn in conversation.turns:
        if turn.event_id == ref.event:
            return ref._replace(turn=turn.number, event=None)
        for event in turn.events:
            if event.event_id == ref.event:
                return ref._replace(turn=turn.number, call=event.call, event=None)
    raise NothingFound(f"{ref.conversation} has no event {ref.event!r}", where=str(ref))


def parse_entered_conversation_reference(workspace: Workspace, text: str) -> Ref:
    """Parse a user's reference to a conversation, turn, tool call or event.

    A shortened id is replaced by the whole id. The id of an event is replaced by the event's turn
    and call. Raises `UsageError` if the text is not such a reference, or if several conversations
    match. Raises `NothingFound` if an event does not exist.
    """
    return expand_conversation_reference(workspace, parse_conversation_ref(text, workspace.id))


def parse_entered_reference(workspace: Workspace, text: str) -> Ref:
    """Parse a reference that a user typed. It can contain a topic's id or the topic's title.

    In the result, the title of a topic is replaced by its id, and a shortened conversation id by
    the whole id. Names that match nothing stay unchanged. A `:` in the slug of an existing subject
    belongs to the slug. A text that is both a shortened id and the name of a topic refers to the
    topic. Raises `UsageError` or `NothingFound`.
    """
    from kbtui.knowledge import load_knowledge

    load_once = cache(partial(load_knowledge, workspace))

    def find_topic_id(name: str) -> str | None:
        try:
            return load_once().resolve_topic(name).id
        except NothingFound:
            return None

    def does_subject_exist(topic: str, slug: str) -> bool:
        return load_once().find_subject(find_topic_id(topic) or topic, slug) is not None

    ref = remove_workspace_id_from_ref(parse_ref(text, does_subject_exist), workspace.id)
    if ref.topic is not None:
        if found := find_topic_id(ref.topic):
            return ref._replace(topic=found)
        if ref.kind == "topic":
            ref = parse_other_agents_conversation_ref(text) or ref
    return expand_conversation_reference(workspace, ref)


def list_agent_names() -> list[str]:
    """Return the names of all agents whose conversations can be read."""
    return [one.name for one in list_conversation_formats()]


def find_agent_names_with_prefixes(beginnings: Iterable[str]) -> set[str]:
    """Return the names of the agents whose name or label begins with one of `beginnings`.

    Raises `UsageError` if one of `beginnings` matches no agent, and `NothingFound` if the settings
    exclude all agents that match.
    """
    found = set[str]()
    for beginning in beginnings:
        begun = beginning.casefold()
        names = {
            one.name
            for one in list_conversation_formats()
            if begun
            and (one.name.casefold().startswith(begun) or one.label.casefold().startswith(begun))
        }
        if not names:
            hint = suggest_known_agent(beginning)
            raise UsageError(f"unknown agent {beginning!r}", where="agents", hint=hint)
        found |= names
    if not any(one.name in found for one in list_enabled_conversation_formats()):
        name = min(found)
        raise NothingFound(_describe_excluded_agent(name), where="agents")
    return found


def suggest_known_agent(mistyped: str) -> str:
    """Return a hint that lists all agents.

    If the name of an agent is similar to `mistyped`, the hint first suggests this agent.
    """
    from difflib import get_close_matches

    known = list_agent_names()
    near = get_close_matches(mistyped.casefold(), known, n=1)
    return f"{f'did you mean {near[0]}? ' if near else ''}the agents are {', '.join(known)}"


def _describe_excluded_agent(name: str) -> str:
    problem = f"conversations of {name} are not read; to read them"
    place = "in the table [conversations] of config.toml"
    if get_chosen_agents(load_settings()) is not None:
        return f"{problem}, add the agent to `agents` {place}"
    # A list with only this agent would exclude the agents that are read by default.
    enabled = [one.name for one in list_enabled_conversation_formats()]
    names = ", ".join(f'"{one}"' for one in [*enabled, name])
    return f"{problem}, too, set `agents = [{names}]` {place}"


class ConversationNotFoundError(NothingFound):
    """There is no conversation with this id. `nearest` is a similar id, or None."""

    def __init__(self, workspace: Workspace, id: str) -> None:  # noqa: A002
        self.nearest = _find_similar_conversation_id(
            id, list_conversation_change_signatures(workspace)
        )
        everything = "`kbtui conversation ls` lists all conversations"
        hint = f"did you mean {self.nearest}?" if self.nearest else everything
        owner = next(
            (one for one in list_conversation_formats() if id.startswith(one.id_prefix)), None
        )
        if owner is not None and owner not in list_enabled_conversation_formats():
            hint = _describe_excluded_agent(owner.name)
        super().__init__(f"there is no conversation {id}", where=str(workspace.root), hint=hint)


def _find_similar_conversation_id(typed: str, ids: Iterable[str]) -> str | None:
    """Return the id whose beginning is most similar to `typed`; None if no id is similar.

    Only ids with the same agent prefix as `typed`, such as `codex-`, are compared.
    """
    from difflib import get_close_matches

    prefix = next(
        (one.id_prefix for one in list_conversation_formats() if typed.startswith(one.id_prefix)),
        "",
    )
    own = typed.removeprefix(prefix)
    # JP's ids are times: a similar id only belongs to a conversation of about the same time, which
    # need not be the one that the user means.
    if len(own) < SHORT_ID_CHARACTERS or typed.startswith(JP_ID_PREFIX):
        return None
    same = (one for one in ids if one.startswith(prefix))
    begun = {one.removeprefix(prefix)[: len(own)]: one for one in same}
    near = get_close_matches(own, begun, n=1, cutoff=0.85)
    return begun[near[0]] if near else None


def check_turn_and_call_exist(conversation: Conversation, ref: Ref) -> None:
    """Raise `NothingFound` if the conversation does not contain the turn or call that `ref` refers to."""
    if ref.turn is None:
        return
    turn = conversation.find_turn(ref.turn)
    if turn is None:
        turns = format_counted_noun(len(conversation.turns), "turn")
        raise NothingFound(f"the conversation has {turns}", where=str(ref))
    calls = max((event.call or 0 for event in turn.events), default=0)
    if ref.call is not None and not 1 <= ref.call <= calls:
        count = format_counted_noun(calls, "call") if calls else "no calls"
        raise NothingFound(f"turn {ref.turn} has {count}", where=str(ref))


def load_conversation(info: ConversationInfo) -> Conversation:
    """Load a conversation with its turns. Never raises; errors are in `problems` of the result."""
    return get_conversation_format(info).load_conversation(info)


def add_event_count_and_problems_to_info(info: ConversationInfo) -> ConversationInfo:
    """Return `info` with the event count, the time of the last event and all problems.

    This decodes all events, because only decoding finds wrong types and missing times.
    """
    conversation = load_conversation(info)
    return replace(conversation.info, problem=conversation.describe_problems())


def add_event_count_to_info(info: ConversationInfo) -> ConversationInfo:
    """Return `info` with `events_count` and `last_event_at`."""
    if info.events_count is not None:
        return info
    return get_conversation_format(info).add_event_count(info)


def add_last_event_time_to_info(info: ConversationInfo) -> ConversationInfo:
    """Return `info` with the time of the last event.

    Reads as little of the conversation as possible.
    """
    return get_conversation_format(info).add_last_event_time(info)


def find_subagents(workspace: Workspace, info: ConversationInfo) -> list[ConversationInfo]:
    """Return all subagents of a conversation, including the subagents of its subagents."""
    by_parent: dict[str | None, list[StoredConversation]] = {}
    for stored in iterate_conversations_of_agent(workspace, get_conversation_format(info)):
        by_parent.setdefault(_get_parent_conversation_id(stored), []).append(stored)
    found: dict[str, ConversationInfo] = {}
    unexplored = [info.id]
    while unexplored:
        # Remove the list: otherwise, damaged files that name each other as parents would cause an
        # endless loop.
        for one in by_parent.pop(unexplored.pop(), []):
            found[one.id] = one.read_conversation_info()
            unexplored.append(one.id)
    found.pop(info.id, None)
    return list(found.values())


def list_conversation_and_subagents_to_keep(
    workspace: Workspace, info: ConversationInfo
) -> list[ConversationInfo]:
    """Return a conversation and its subagents, which the archive keeps together.

    Raises `UsageError` if sessions of this agent cannot be kept.
    """
    if not get_conversation_format(info).has_file_per_conversation:
        hint = "sessions of Claude Code, Codex and Gemini CLI can be kept"
        message = f"{info.agent} does not store each conversation in a separate file"
        raise UsageError(message, where=info.id, hint=hint)
    return [info, *find_subagents(workspace, info)]


def _get_parent_conversation_id(stored: StoredConversation) -> str | None:
    # Only some formats know the parent without reading a file.
    known = stored if hasattr(stored, "parent") else stored.read_conversation_info()
    parent: str | None = known.parent
    return parent


def find_skipped_conversation_paths(
    workspace: Workspace, agents: Iterable[str] | None = None
) -> list[SkippedConversationPath]:
    """Return the files and directories that are not listed as conversations, with the reasons.

    `agents` contains prefixes of agent names; None means all agents.
    """
    wanted = find_agent_names_with_prefixes(agents) if agents is not None else None
    found = (
        one.find_stored_conversations(workspace)[1]
        for one in list_enabled_conversation_formats()
        if wanted is None or one.name in wanted
    )
    return [directory for directories in found for directory in directories]


def count_conversations_in_agent_trash_directories(workspace: Workspace) -> dict[str, int]:
    """Map each trash directory to the number of conversations in it.

    Agents move damaged conversations to trash directories.
    """
    counts: dict[str, int] = {}
    for one in list_enabled_conversation_formats():
        counts |= one.count_trashed_conversations(workspace)
    return counts


def list_watched_conversation_directories(workspace: Workspace) -> list[Path]:
    """Return the directories to watch for new and changed conversations, except JP's directories.

    The directory of kbtui's archive is included if it exists.
    """
    found = [
        path
        for one in list_enabled_conversation_formats()
        for path in one.list_watched_directories(workspace)
    ]
    archive = get_kept_session_records_directory()
    return [*found, archive] if archive.is_dir() else found


def is_file_of_other_project(workspace: Workspace, path: str) -> bool:
    """Return whether a changed file is certainly a conversation of another project."""
    return any(
        one.is_file_of_other_project(workspace, path) for one in list_enabled_conversation_formats()
    )


def list_individually_watched_conversation_files(workspace: Workspace) -> list[Path]:
    """Return the conversation files that are watched one by one.

    All other files are watched through their directories.
    """
    return [
        path
        for one in list_enabled_conversation_formats()
        for path in one.list_watched_files(workspace)
    ]


def _iterate_own_and_published_conversations(
    workspace: Workspace, only: str | None = None
) -> Iterator[StoredConversation]:
    found = set[str]()
    formats = list_enabled_conversation_formats()
    for one in formats:
        if only is None or only.startswith(one.id_prefix):
            for stored in iterate_conversations_of_agent(workspace, one, only):
                found.add(stored.id)
                yield stored
    prefixes = tuple(one.id_prefix for one in formats)
    for stored in PUBLISHED_FORMAT.find_stored_conversations(workspace, only)[0]:
        # The user's own copy of a conversation takes precedence over the published one.
        if stored.id not in found and stored.id.startswith(prefixes):
            yield stored


def iterate_conversations_of_agent(
    workspace: Workspace, conversation_format: ConversationFormat, only: str | None = None
) -> Iterator[StoredConversation]:
    """Yield an agent's conversations.

    The conversations in the agent's own files come first, then those that only the archive still
    has. If `only` is given, only the conversation with this id is yielded.
    """
    found = set[str]()
    for one in conversation_format.find_stored_conversations(workspace, only)[0]:
        found.add(one.id)
        yield one
    if conversation_format.has_file_per_conversation and only not in found:
        yield from find_conversations_only_in_archive(
            workspace, conversation_format.name, found, only
        )


AgentOffReason = Literal["not_named", "project_unknown"]
AGENT_OFF_TEXTS: dict[AgentOffReason, str] = {
    "not_named": "`agents` in the table [conversations] does not name the agent",
    "project_unknown": "its files do not say to which project a conversation belongs; to read the conversations of all projects, name this agent and all others that you want in `agents` in the table [conversations]",
}


class AgentDirectoriesAndConversationCounts(NamedTuple):
    """An agent's directories, the counts of its conversations, and whether kbtui reads them.

    * `sessions` counts the conversations in this workspace, without those of subagents.
    * `subagents` counts the conversations of subagents in this workspace.
    * `elsewhere` counts the conversations of other projects; None means that their number is
      unknown.
    * `without_turn` counts the files that contain no request yet.
    * `unusable` counts all other files and directories that are not listed as conversations.
    * `off` says why the conversations are not read; it is None if they are read.
    """

    name: str
    label: str
    directories: list[Path]
    sessions: int
    subagents: int
    elsewhere: int | None
    unusable: int
    without_turn: int
    off: AgentOffReason | None

    def as_json(self) -> dict[str, str | int | list[str] | None]:
        """Return all fields as a JSON object with the documented keys."""
        return {**self._asdict(), "directories": list(map(str, self.directories))}

    def describe_conversation_counts(self) -> str:
        """Return a line that counts the conversations of this project, of subagents and of other projects.

        If the conversations are not read, the line also says why.
        """
        place = "" if self.name in AGENTS_OFF_BY_DEFAULT else " of this project"
        parts = [f"{format_counted_noun(self.sessions, 'conversation')}{place}"]
        if self.subagents:
            parts.append(f"{self.subagents:,} of subagents")
        if self.elsewhere:
            parts.append(f"{self.elsewhere:,} of other projects")
        if self.without_turn:
            parts.append(f"{self.without_turn:,} without a turn yet")
        if self.unusable:
            parts.append(f"{self.unusable:,} unreadable")
        if self.off is not None:
            parts.append(f"not read: {AGENT_OFF_TEXTS[self.off]}")
        return ", ".join(parts)


def list_agent_directories_and_conversation_counts(
    workspace: Workspace,
) -> list[AgentDirectoriesAndConversationCounts]:
    """Return the directories and conversation counts of each agent that has conversations.

    Agents listed in the setting `agents` are included even if they have no conversations.
    """
    chosen = get_chosen_agents(load_settings())
    enabled = {one.name for one in list_enabled_conversation_formats()}
    found = []
    for one in list_conversation_formats():
        stored, unusable = one.find_stored_conversations(workspace)
        directories = [path for path in one.list_data_directories(workspace) if path.is_dir()]
        subagents = sum(
            _get_parent_conversation_id(conversation) is not None for conversation in stored
        )
        total = one.count_conversations_of_all_projects()
        empty = sum(stray.has_no_turn for stray in unusable)
        files = sum(stray.path.is_file() for stray in unusable)
        off: AgentOffReason | None = None
        if one.name not in enabled:
            is_off_by_default = chosen is None and one.name in AGENTS_OFF_BY_DEFAULT
            off = "project_unknown" if is_off_by_default else "not_named"
        if stored or unusable or total or (chosen is not None and off is None):
            found.append(
                AgentDirectoriesAndConversationCounts(
                    one.name,
                    one.label,
                    directories,
                    len(stored) - subagents,
                    subagents,
                    None if total is None else max(0, total - len(stored) - files),
                    len(unusable) - empty,
                    empty,
                    off,
                )
            )
    return found


def list_unknown_agents_in_settings() -> list[tuple[str, str]]:
    """Return each value of the setting `agents` that is not the name of an agent, with a hint."""
    known = {name.casefold() for name in list_agent_names()}
    chosen = get_chosen_agents(load_settings()) or ()
    return [(name, suggest_known_agent(name)) for name in chosen if name.casefold() not in known]


def check_agent_names_in_settings() -> None:
    """Raise `ConfigError` if the setting `agents` or `keep` lists an agent that is not allowed there.

    `agents` can list any existing agent. `keep` can list only agents whose sessions can be kept. If
    the format of a listed agent belongs to another package and cannot be loaded, no error is
    raised, because `kbtui doctor` reports this.
    """
    for name, hint in list_unknown_agents_in_settings():
        if name not in unusable_formats:
            message = (
                f"`agents` in the table [conversations] names {name!r}, but there is no such agent"
            )
            raise ConfigError(message, where=locate_agent_names_in_settings(), hint=hint)
    formats = {one.name.casefold(): one for one in list_conversation_formats()}
    for name in get_agents_chosen_for_keeping_sessions(load_settings()):
        kept = formats.get(name.casefold())
        if kept is None and name in unusable_formats:
            continue
        if kept is None or not kept.has_file_per_conversation:
            names = (one.name for one in formats.values() if one.has_file_per_conversation)
            reason = "there is no such agent" if kept is None else "its sessions cannot be kept"
            message = f"`keep` in the table [conversations] names {name!r}, but {reason}"
            hint = f"the agents whose sessions can be kept are {', '.join(names)}"
            raise ConfigError(message, where=locate_agent_names_in_settings("keep"), hint=hint)
