"""Defines `Citation`, and extracts citations from the tool calls of a conversation."""

from __future__ import annotations

import json
import os
import posixpath
import re
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

from kbtui.citations.cited_text_comparison import (
    CitationState,
    GivenSubjectText,
    UnknownStateReason,
    find_text_given_by_file_tool,
    make_given_text_of_tool_result,
)
from kbtui.citations.files_read_by_tool_calls import PathReadByCall, list_files_read_by_call
from kbtui.errors import UsageError
from kbtui.knowledge.subject_files import is_hidden_path, make_slug_of_path
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import (
    CONVERSATION_ID,
    JP_ID_PREFIX,
    find_ids_with_prefix,
    make_conversation_ref,
    parse_ref,
    split_slug_and_line_range,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from kbtui.conversations.conversation_data_types import Conversation, ConversationEvent
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import Subject, Topic


CitationMethod = Literal["learn", "search", "file", "read", "grep"]
"""The kind of tool with which a turn used a subject, a conversation or a file.

* "learn": the tool `learn`.
* "search": the tool `knowledge_search`.
* "file": a tool or a command that reads files.
* "read": the tool `conversation_read`.
* "grep": the tool `conversation_grep`.
"""


class CitationKey(NamedTuple):
    """The identity of a citation: the tool call, and the target that the call cites."""

    conversation: str
    turn: int
    call: int | None
    target: str
    chunk: str | None


class Citation(NamedTuple):
    """A turn's use of a subject, a conversation or a file.

    * `conversation`, `turn` and `call` identify the tool call. `source_title` is the title of the
      conversation.
    * `target` is a reference (`topic/slug`, `jp-c…`, `chunk:…`), or a path if `kind` is "file".
      `title` is the title of the target, if known.
    * `gone` is true if the target no longer exists.
    * `rewound` is true if the citing turn was rewound.
    * `quote` is the beginning of a passage that a search returned. The quote identifies the passage
      even if the subject is now split into other passages. Citations from the index have no quote.
    * `given` is the text of a subject that the call returned, if known. It is None in citations
      from the index.
    * `state` says whether the subject still has the text that the turn was given. It is None for
      conversations and files, and for a subject whose state has not been looked up. `state_reason`
      is the reason for the state "unknown".
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
    given: GivenSubjectText | None = None
    state: CitationState | None = None
    state_reason: UnknownStateReason | None = None

    @property
    def key(self) -> CitationKey:
        """The key that identifies the citation."""
        return CitationKey(self.conversation, self.turn, self.call, self.target, self.chunk)

    @property
    def source(self) -> str:
        """The reference of the citing turn."""
        return str(make_conversation_ref(self.conversation, self.turn))


class Citations(NamedTuple):
    """The citations that `ref` makes (`uses`), and other turns' citations of `ref` (`used_by`, newest first).

    * `ref` is a reference, or the path of a file that is not a subject.
    * If `ref` is not a conversation or a turn, `uses` is empty.
    * `gone` is the reason why `ref` no longer exists; None if `ref` exists.
    """

    ref: str
    uses: list[Citation]
    used_by: list[Citation]
    gone: str | None = None


def group_outdated_citations_by_turn(citations: Iterable[Citation]) -> dict[int, list[Citation]]:
    """Map turn numbers to the turn's outdated citations, at most one for each subject.

    Turns without outdated citations are left out.
    """
    found: dict[int, dict[str, Citation]] = {}
    for cite in citations:
        if cite.state in ("changed", "gone"):
            found.setdefault(cite.turn, {}).setdefault(cite.target, cite)
    return {turn: list(cites.values()) for turn, cites in found.items()}


class CitationTargetLookup:
    """Looks up the topics, subjects and conversations that tool calls cite.

    A lookup can be used for many conversations, and keeps the lists of subjects in memory. `titles`
    maps the ids of existing conversations to their titles. `make_subject_id(topic, slug)` returns the
    entry id of a subject, as in search results. `directories` contains the workspace. In a Git
    repository, it also contains the same directory in each of the other worktrees.
    """

    def __init__(
        self,
        knowledge: KnowledgeBase,
        titles: Mapping[str, str],
        make_subject_id: Callable[[str, str], str],
        directories: Iterable[str] = (),
    ) -> None:
        self.titles = titles
        self.knowledge = knowledge
        self._directories = list(directories)
        self._topics = knowledge.topics
        self._make_subject_id = make_subject_id
        self.list_subjects = cache(knowledge.list_subjects)
        self.find_subject = knowledge.find_subject

    def find_topic(self, name: str) -> Topic | None:
        """Return the topic with this id or, ignoring case, with this title; None if there is none.

        Disabled topics are found too, because they may have been enabled when they were cited.
        """
        if name in self._topics:
            return self._topics[name]
        titled = [
            topic
            for topic in self._topics.values()
            if (topic.title or "").casefold() == name.casefold()
        ]
        return next((topic for topic in titled if topic.enable), titled[0] if titled else None)

    def expand_conversation_id(self, id: str) -> str:  # noqa: A002
        """Return the full id for a shortened conversation id; `id` itself if not exactly one id matches."""
        if id in self.titles or id.startswith(JP_ID_PREFIX):
            return id
        found = find_ids_with_prefix(self.titles, id)
        return found[0] if len(found) == 1 else id

    @cached_property
    def subjects_by_id(self) -> dict[str, Subject]:
        """Maps the entry ids of all subjects to the subjects."""
        return {
            self._make_subject_id(topic, subject.slug): subject
            for topic in self._topics
            for subject in self.list_subjects(topic)
        }

    @cached_property
    def subjects_by_path(self) -> dict[str, Subject]:
        """Maps the file paths of all subjects to the subjects.

        Each subject has two keys: the absolute path, and the path relative to the workspace.

        If two topics share a directory, its files belong to the first of these topics.
        """
        found: dict[str, Subject] = {}
        for name, topic in self._topics.items():
            for subject in self.list_subjects(name):
                relative = posixpath.normpath(posixpath.join(topic.subjects, subject.relative))
                found.setdefault(relative, subject)
                found.setdefault(subject.file, subject)
        return found

    def find_reference_of_deleted_subject(self, path: str) -> str | None:
        """Return the reference that the subject of a deleted file had; None if there was no such subject.

        `path` is relative to the workspace. Deleted files of hidden subjects are not found, because
        their names must not be shown.
        """
        for name, topic in self._topics.items():
            directory = posixpath.normpath(topic.subjects)
            relative = path if directory == "." else path.removeprefix(f"{directory}/")
            if not topic.enable or (relative == path and directory != "."):
                continue
            if relative.startswith(("/", "../")) or is_hidden_path(relative):
                return None
            slug = make_slug_of_path(relative)
            is_missing = self.find_subject(name, slug) is None
            if is_missing and not os.path.lexists(self.knowledge.workspace.root / path):
                return f"{name}/{slug}"
            return None
        return None

    def make_path_relative_to_workspace(self, path: str) -> str:
        """Return a path relative to the workspace or to one of its worktrees.

        A path outside these directories is only normalized.
        """
        from kbtui.conversations.workspace_and_worktree_directories import (
            make_path_relative_to_project,
        )

        return make_path_relative_to_project(path, self._directories)


_KBTUI_TOOLS = "learn|knowledge_search|conversation_read|conversation_grep"
# Hosts rename the tools of an MCP server: `kbtui_learn`, `mcp__kbtui__learn`, `learn__kbtui`. A longer
# name must contain `kbtui`, because other servers have tools such as `duolingo_learn`. A wrong citation
# is worse than a missing one.
_TOOL_NAME = re.compile(
    rf"(?:mcp[_.:/-]+)?kbtui[_.:/-]+(?P<tail>{_KBTUI_TOOLS})"
    rf"|(?P<head>{_KBTUI_TOOLS})(?:[_.:/-]+(?:mcp[_.:/-]+)?kbtui)?"
)


def parse_kbtui_tool_name(name: str) -> str | None:
    """Return the name of a kbtui tool, such as `learn` for `mcp__kbtui__learn`; None for other tools.

    MCP hosts add prefixes and suffixes to the names of tools.
    """
    match = _TOOL_NAME.fullmatch(name)
    return (match["tail"] or match["head"]) if match else None


_TOOL_OF_ANY_SERVER = re.compile(rf"(?:mcp__)?[^_].*?__(?P<tool>{_KBTUI_TOOLS})")
"""Matches a tool name such as `mcp__notes__learn`: the name of a kbtui tool, offered by any MCP server."""
_CONVERSATION_ID = re.compile(CONVERSATION_ID)
_ENVELOPE_CHARACTERS = 200
"""If a result contains the JSON of an MCP server, the JSON starts within this many characters."""
QUOTE_CHARACTERS = 600
"""A citation quotes at most this many characters of a passage."""

SEARCH_RESULT_HEADER = re.compile(
    r"^\[entry (\S+) · chunk (\S+) · score (-?\d+(?:\.\d+)?)\][ \t]*(.*?)\r?$", re.MULTILINE
)
"""Matches the first line of a hit in an answer from `knowledge_search`.

The groups are the ids of the entry and the chunk, the score and the title.
"""
_SUBJECT_TAG = re.compile(r'^<subject "([^"\n]+)">\r?$', re.MULTILINE)
# Text inside the XML answer is escaped, so no quoted conversation can forge these lines.
_GREP_HIT = re.compile(r"^[ \t]*<hit>(.*?)^[ \t]*</hit>", re.MULTILINE | re.DOTALL)
_GREP_HIT_ID = re.compile(rf"^[ \t]*<id>({CONVERSATION_ID})</id>", re.MULTILINE)
_GREP_HIT_MATCH = re.compile(r"^[ \t]*<is_match>true</is_match>", re.MULTILINE)


class _CitationTargetFields(NamedTuple):
    """The fields of a `Citation` that describe the cited target and how it was used."""

    how: CitationMethod
    kind: Any
    target: str
    title: str
    gone: bool = False
    chunk: str | None = None
    score: float | None = None
    quote: str = ""
    given: GivenSubjectText | None = None


def extract_citations_from_tool_calls(
    conversation: Conversation, targets: CitationTargetLookup
) -> Iterator[Citation]:
    """Yield the citations of a conversation in the order of its tool calls.

    Failed calls do not count. Within a turn, the same target or passage counts once, but
    different parts of a subject count separately.
    """
    from kbtui.conversations.conversation_repository import get_conversation_format

    conversation_format = get_conversation_format(conversation.info)
    for turn in conversation.turns:
        seen: dict[tuple[str, str | None], set[str]] = {}
        for event in turn.events:
            added = conversation_format.list_files_added_to_chat(event)
            if not added and event.kind != "tool_call_request":
                continue
            for target in _find_targets_of_event(conversation, event, added, targets):
                forms = seen.setdefault((target.target, target.chunk), set())
                form = _make_given_text_key(target)
                if form not in forms and (form or not forms):
                    forms.add(form)
                    yield Citation(
                        conversation.info.id,
                        turn.number,
                        event.call,
                        target.how,
                        target.kind,
                        target.target,
                        target.title,
                        event.name or conversation.info.agent,
                        event.timestamp,
                        target.gone,
                        target.chunk,
                        target.score,
                        target.quote,
                        rewound=turn.is_rewound,
                        given=target.given,
                    )


def list_subjects_given_by_event(
    conversation: Conversation, event: ConversationEvent, targets: CitationTargetLookup
) -> list[str]:
    """Return the references of the subjects whose text an event gave to the turn.

    The event is a tool call, or an event that adds files to the conversation.
    """
    from kbtui.conversations.conversation_repository import get_conversation_format

    added = get_conversation_format(conversation.info).list_files_added_to_chat(event)
    found = _find_targets_of_event(conversation, event, added, targets)
    # The target of a hit is the subject or, if the subject no longer exists, the passage.
    return list(dict.fromkeys(one.target for one in found if one.kind == "subject"))


def _make_given_text_key(target: _CitationTargetFields) -> str:
    """Return a key that two citations share if their calls returned the same text of a subject.

    Returns "" for a passage, and for a target whose text is unknown.
    """
    if target.given is None or target.chunk is not None:
        return ""
    return "whole" if target.given.extent == "whole" else target.given.text


def _find_targets_of_event(
    conversation: Conversation,
    event: ConversationEvent,
    added_files: list[str],
    targets: CitationTargetLookup,
) -> Iterator[_CitationTargetFields]:
    """Yield what an event used; `added_files` are the files that it added to the chat."""
    directory = conversation.info.working_directory
    yield from _find_targets_of_read_files(map(PathReadByCall, added_files), directory, targets)
    if event.kind != "tool_call_request" or event.name is None:
        return
    if event.result is None or event.result.is_error:
        return
    files = list_files_read_by_call(event)
    given = find_text_given_by_file_tool(event) if len(files) == 1 else None
    for target in _find_targets_of_read_files(files, directory, targets):
        if target.kind == "subject":
            yield target._replace(given=given)
        elif given is not None and (
            deleted := targets.find_reference_of_deleted_subject(target.target)
        ):
            slug = deleted.partition("/")[2]
            yield _CitationTargetFields("file", "subject", deleted, slug, gone=True, given=given)
        else:
            yield target
    if family := parse_kbtui_tool_name(event.name):
        yield from _find_targets_cited_by_kbtui_tool(family, event, targets)
    elif match := _TOOL_OF_ANY_SERVER.fullmatch(event.name):
        # The tool may belong to another server, whose results refer to nothing that exists here.
        found = _find_targets_cited_by_kbtui_tool(match["tool"], event, targets)
        yield from (target for target in found if not target.gone)


def list_subjects_learned_by_call(
    call: ConversationEvent, targets: CitationTargetLookup
) -> list[tuple[str, str]]:
    """Return the topic and the slug of each subject whose text a call of `learn` returned."""
    if call.kind != "tool_call_request" or call.result is None or call.result.is_error:
        return []
    if parse_kbtui_tool_name(call.name or "") != "learn":
        return []
    found = _find_targets_cited_by_kbtui_tool("learn", call, targets)
    return [(topic, slug) for one in found for topic, _, slug in (one.target.partition("/"),)]


def _find_targets_cited_by_kbtui_tool(
    family: str, call: ConversationEvent, targets: CitationTargetLookup
) -> Iterator[_CitationTargetFields]:
    arguments = call.arguments or {}
    result = _remove_mcp_envelope(call.result.text) if call.result else ""
    if family == "learn":
        yield from _find_learned_subjects(arguments, result, targets)
    elif family == "knowledge_search":
        yield from _find_targets_in_search_answer(result, targets)
    elif family == "conversation_read":
        yield from _find_cited_conversation(arguments.get("id"), targets)
    elif family == "conversation_grep":
        yield from _find_conversations_in_grep_answer(result, targets)


def _find_learned_subjects(
    arguments: dict[str, Any], result: str, targets: CitationTargetLookup
) -> Iterator[_CitationTargetFields]:
    """Yield the subjects whose text a call of `learn` returned. Subjects that it only listed do not count."""
    name = arguments.get("topic")
    patterns = arguments.get("subjects")
    if isinstance(patterns, str):
        patterns = [patterns]
    if not isinstance(name, str):
        return
    topic = targets.find_topic(name)
    if not patterns and topic is None:
        # The argument may be a reference, `topic/slug:lines`.
        name, _, slug = name.partition("/")
        topic, patterns = targets.find_topic(name), [slug]
    if not isinstance(patterns, list):
        return
    patterns = [pattern for pattern in patterns if isinstance(pattern, str) and pattern]
    name = topic.id if topic else name
    seen = set()
    for slug, given in _find_learned_texts(topic, patterns, result, targets):
        if slug not in seen:
            seen.add(slug)
            is_gone = topic is None or targets.find_subject(name, slug) is None
            target = _CitationTargetFields("learn", "subject", f"{name}/{slug}", slug, gone=is_gone)
            yield target._replace(given=given)


def _find_learned_texts(
    topic: Topic | None, patterns: list[str], result: str, targets: CitationTargetLookup
) -> Iterator[tuple[str, GivenSubjectText | None]]:
    """Yield the slug and the text of each subject that a call of `learn` returned.

    The text is None if the result does not say where the text begins.
    """
    from kbtui.knowledge.learn_tool_answers import ANSWER_WITHOUT_TEXT
    from kbtui.knowledge.slug_patterns import compile_slug_pattern, is_glob_pattern

    def is_existing_slug(name: str) -> bool:
        return topic is not None and targets.find_subject(topic.id, name) is not None

    def remove_line_range(name: str) -> str:
        if topic is not None and not is_existing_slug(name):
            with suppress(UsageError):
                return split_slug_and_line_range(name)[0]
        return name

    texts = _split_tagged_subjects(result)

    def find_subject_text_given_by_call(name: str) -> tuple[str, GivenSubjectText | None]:
        slug, text = remove_line_range(name), texts.get(name)
        return slug, None if text is None else make_given_text_of_tool_result(
            text, is_part=slug != name
        )

    blocks = list(_SUBJECT_TAG.finditer(result))
    shown = [
        block[1].replace("&quot;", '"')
        for block in blocks
        if not ANSWER_WITHOUT_TEXT.match(result, block.end())
    ]
    if len(patterns) == 1 and (not is_glob_pattern(patterns[0]) or is_existing_slug(patterns[0])):
        if not ANSWER_WITHOUT_TEXT.match(result):
            slug = remove_line_range(patterns[0])
            yield slug, make_given_text_of_tool_result(result, is_part=slug != patterns[0])
        return
    if not shown and (blocks or all(map(ANSWER_WITHOUT_TEXT.fullmatch, result.split("\n\n")))):
        return
    candidates = shown
    if topic is not None and not shown:
        subjects = targets.list_subjects(topic.id)
        candidates = [one.slug for one in subjects if not (one.hidden or one.disabled)]
    for pattern in patterns:
        if is_glob_pattern(pattern) and not is_existing_slug(pattern):
            matches = compile_slug_pattern(pattern)
            found = map(find_subject_text_given_by_call, candidates)
            yield from ((slug, given) for slug, given in found if matches(slug))
        elif not shown or pattern in shown:
            # If there are several patterns, a pattern that matched nothing has no block in the result.
            yield find_subject_text_given_by_call(pattern)


def _split_tagged_subjects(result: str) -> dict[str, str]:
    """Map the name in each `<subject>` tag to the text between this tag and its end tag."""
    result = result.replace("\r\n", "\n")
    # Ignore tags inside the text of a subject: a real tag is at the beginning, or follows the end
    # of another subject.
    first = len(result) - len(result.lstrip())
    tags = [
        tag
        for tag in _SUBJECT_TAG.finditer(result)
        if tag.start() == first or result.endswith("</subject>\n\n", 0, tag.start())
    ]
    ends = [tag.start() for tag in tags[1:]] + [len(result)] * bool(tags)
    texts: dict[str, str] = {}
    for tag, end in zip(tags, ends, strict=True):
        close = result.rfind("</subject>", tag.end(), end)
        if close >= 0:
            texts.setdefault(tag[1].replace("&quot;", '"'), result[tag.end() + 1 : close])
    return texts


def _find_targets_in_search_answer(
    result: str, targets: CitationTargetLookup
) -> Iterator[_CitationTargetFields]:
    """Yield the targets of the hits in an answer from `knowledge_search`. Each hit begins with a header."""
    headers = list(SEARCH_RESULT_HEADER.finditer(result))
    for number, header in enumerate(headers):
        entry, chunk, score, title = header.groups()
        end = headers[number + 1].start() if number + 1 < len(headers) else len(result)
        quote = result[header.end() : min(end, header.end() + QUOTE_CHARACTERS)].strip()
        if _CONVERSATION_ID.fullmatch(entry):
            found = _make_cited_conversation("search", entry, targets, title)
        else:
            subject = targets.subjects_by_id.get(entry)
            target = subject.ref if subject else f"chunk:{chunk}"
            found = _CitationTargetFields("search", "subject", target, title, gone=subject is None)
            passage = result[header.end() : end].strip()
            found = found._replace(given=make_given_text_of_tool_result(passage, is_part=True))
        yield found._replace(chunk=chunk, score=float(score), quote=quote)


def _remove_mcp_envelope(result: str) -> str:
    """Return the text of a tool result without the MCP server's JSON, which some agents store around it."""
    start = result.find("[{", 0, _ENVELOPE_CHARACTERS)
    is_envelope = '"text"' in result and not result.startswith(("<", '{"total"'))
    if start < 0 or not is_envelope:
        return result
    try:
        blocks, _ = json.JSONDecoder().raw_decode(result, start)
        return "\n".join([block["text"] for block in blocks if block["type"] == "text"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return result


def _find_targets_of_read_files(
    files: Iterable[PathReadByCall], working_directory: str | None, targets: CitationTargetLookup
) -> Iterator[_CitationTargetFields]:
    for path, directory, may_be_directory in files:
        path = path.strip().removeprefix("file://")
        if working_directory is not None or directory is not None:
            path = posixpath.join(working_directory or "", directory or "", path)
        path = targets.make_path_relative_to_workspace(path)
        subject = targets.subjects_by_path.get(path)
        if subject is not None:
            yield _CitationTargetFields("file", "subject", subject.ref, subject.slug)
        elif not may_be_directory:
            yield _CitationTargetFields("file", "file", path, path)


def _find_cited_conversation(
    name: Any, targets: CitationTargetLookup
) -> Iterator[_CitationTargetFields]:
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    try:
        ref = parse_ref(name.partition("?")[0]) if isinstance(name, str) else None
    except UsageError:
        return
    if ref is not None and ref.conversation is not None:
        conversation = targets.expand_conversation_id(ref.conversation)
        yield _make_cited_conversation("read", conversation, targets)


def _find_conversations_in_grep_answer(
    result: str, targets: CitationTargetLookup
) -> Iterator[_CitationTargetFields]:
    """Yield the conversations listed in `result`, an answer from `conversation_grep`."""
    if result.lstrip().startswith("{"):
        try:
            hits = json.loads(result)["hits"]
            ids = [hit["id"] for hit in hits if hit["is_match"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        found = [text for text in ids if isinstance(text, str)]
    else:
        blocks = [block for block in _GREP_HIT.findall(result) if _GREP_HIT_MATCH.search(block)]
        found = [match[1] for block in blocks if (match := _GREP_HIT_ID.search(block))]
    for conversation in dict.fromkeys(found):
        if _CONVERSATION_ID.fullmatch(conversation):
            yield _make_cited_conversation("grep", conversation, targets)


def _make_cited_conversation(
    how: CitationMethod, conversation: str, targets: CitationTargetLookup, title: str = ""
) -> _CitationTargetFields:
    shown = targets.titles.get(conversation) or title or "Untitled"
    is_gone = conversation not in targets.titles
    return _CitationTargetFields(how, "conversation", conversation, shown, gone=is_gone)
