"""Extracts citations from the tool calls of a conversation."""

from __future__ import annotations

import json
import posixpath
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from kbtui.citations.models import Citation, CitationMethod
from kbtui.errors import UsageError
from kbtui.refs import parse_ref, split_line_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kbtui.conversations.models import Conversation, ConversationEvent, Turn
    from kbtui.knowledge.models import Subject, Topic


class KnowledgeLookup(Protocol):
    """The part of `kbtui.knowledge.Knowledge` that citations need."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by id, in the order of declaration."""

    def list_subjects(self, topic: str, /) -> Iterable[Subject]:
        """Return all subjects of a topic."""

    def find(self, topic: str, slug: str, /) -> Subject | None:
        """Return the subject with this slug, or None."""


class CitationTargetLookup:
    """Finds the topics, subjects and files that calls cite; caches them for many conversations.

    `titles` maps the ids of existing conversations to their titles. `subject_id(topic, slug)`
    returns the entry id that search results contain.
    """

    def __init__(
        self,
        knowledge: KnowledgeLookup,
        titles: Mapping[str, str],
        subject_id: Callable[[str, str], str] | None = None,
    ) -> None:
        self.knowledge = knowledge
        self.titles = titles
        self._subject_id = subject_id
        self._subjects: dict[str, list[Subject]] = {}
        self._found: dict[tuple[str, str], Subject | None] = {}
        self._entries: dict[str, Subject] | None = None
        self._files: dict[str, Subject] | None = None

    def find_topic(self, name: str) -> Topic | None:
        """Find a topic by its id or, ignoring case, by its title; None if there is none.

        Disabled topics count: they may have been enabled when they were cited.
        """
        topics = self.knowledge.topics
        if name in topics:
            return topics[name]
        titled = [
            topic
            for topic in topics.values()
            if topic.title is not None and topic.title.casefold() == name.casefold()
        ]
        return next((topic for topic in titled if topic.enable), titled[0] if titled else None)

    def list_subjects(self, topic: str) -> list[Subject]:
        """Return all subjects of a topic."""
        if topic not in self._subjects:
            self._subjects[topic] = list(self.knowledge.list_subjects(topic))
        return self._subjects[topic]

    def find_subject(self, topic: str, slug: str) -> Subject | None:
        """Return the subject with this slug (also a hidden, disabled or shadowed one), or None."""
        key = (topic, slug)
        if key not in self._found:
            self._found[key] = self.knowledge.find(topic, slug)
        return self._found[key]

    @property
    def has_entry_ids(self) -> bool:
        """Whether `find_entry_subject` can find subjects."""
        return self._subject_id is not None

    def find_entry_subject(self, identity: str) -> Subject | None:
        """Return the subject with this entry id, or None."""
        if self._entries is None:
            self._entries = {}
            if self._subject_id is not None:
                for subject in self._iterate_all_subjects():
                    self._entries[self._subject_id(subject.topic, subject.slug)] = subject
        return self._entries.get(identity)

    def find_file_subject(self, path: str) -> Subject | None:
        """Return the subject with this file, or None.

        `path` is relative to the workspace or absolute.
        """
        if self._files is None:
            self._files = {}
            for subject in self._iterate_all_subjects():
                folder = self.knowledge.topics[subject.topic].subjects
                relative = posixpath.normpath(posixpath.join(folder, subject.relative))
                # If two topics share a directory, the file belongs to the first one.
                self._files.setdefault(relative, subject)
                self._files.setdefault(subject.file, subject)
        return self._files.get(path)

    def _iterate_all_subjects(self) -> Iterable[Subject]:
        for topic in self.knowledge.topics:
            yield from self.list_subjects(topic)


ToolFamily = Literal["learn", "knowledge_search", "conversation_read", "conversation_grep"]

FILE_TOOLS: dict[str, str] = {"fs_read_file": "path"}
"""The tools that read a file, each with the name of the argument for the path."""

_TOOL_FAMILIES: tuple[ToolFamily, ...] = (
    "learn",
    "knowledge_search",
    "conversation_read",
    "conversation_grep",
)
# Hosts rename the tools of an MCP server: `kbtui_learn`, `mcp__kbtui__learn`, `learn__kbtui`. Only
# names that contain `kbtui` count, because other servers have tools such as `duolingo_learn`: a
# wrong citation is worse than a missing one.
_SERVED_NAME = re.compile(
    rf"(?:mcp[_.:/-]+)?kbtui[_.:/-]+(?P<tail>{'|'.join(_TOOL_FAMILIES)})"
    rf"|(?P<head>{'|'.join(_TOOL_FAMILIES)})[_.:/-]+(?:mcp[_.:/-]+)?kbtui"
)


def parse_tool_family(name: str) -> ToolFamily | None:
    """Return which of kbtui's tools a call's tool name stands for; None for any other tool."""
    match = _SERVED_NAME.fullmatch(name)
    plain = (match["tail"] or match["head"]) if match else name
    return next((family for family in _TOOL_FAMILIES if family == plain), None)


_CONVERSATION_ID = re.compile(r"jp-c\d+")
QUOTE_CHARACTERS = 600
"""The maximum number of characters of a passage that a citation quotes."""

SEARCH_RESULT_HEADER = re.compile(
    r"^\[entry (\S+) · chunk (\S+) · score (-?\d+(?:\.\d+)?)\][ \t]*(.*?)\r?$", re.MULTILINE
)
"""The first line of a hit in the answer of `knowledge_search`: entry, chunk, score, title."""
_SUBJECT_TAG = re.compile(r'^<subject "([^"\n]+)">\r?$', re.MULTILINE)
# The answers of `learn` that have no text of a subject.
_NO_TEXT = re.compile(
    r'\s*(?:"[^\n]+" is already in the system prompt\.|Skipped "[^\n]+": [^\n]+\.'
    r'|Everything that matches "[^\n]+" is already in the system prompt\.'
    r'|Nothing (?:in topic "[^\n]+" )?matches "[^\n]+\.)\s*(?:\Z|</subject>)'
)
# Text inside the XML answer is escaped, so no transcript can forge these lines.
_GREP_HIT = re.compile(r"^[ \t]*<hit>(.*?)^[ \t]*</hit>", re.MULTILINE | re.DOTALL)
_GREP_HIT_ID = re.compile(r"^[ \t]*<id>(jp-c\d+)</id>", re.MULTILINE)
_GREP_HIT_MATCH = re.compile(r"^[ \t]*<is_match>true</is_match>", re.MULTILINE)


class _CitedTarget(NamedTuple):
    """One thing that a tool call used: the fields of `Citation` that depend on the target."""

    how: CitationMethod
    kind: Any
    target: str
    title: str
    gone: bool = False
    chunk: str | None = None
    score: float | None = None
    quote: str = ""


def extract_citations(
    conversation: Conversation,
    knowledge: KnowledgeLookup | CitationTargetLookup,
    titles: Mapping[str, str],
    *,
    file_tools: Mapping[str, str] = FILE_TOOLS,
    subject_id: Callable[[str, str], str] | None = None,
) -> list[Citation]:
    """Return the citations of a conversation in the order of its tool calls.

    Only successful calls count, and each target or passage only once per turn. `titles` maps the
    ids of existing conversations to their titles. To process many conversations, pass one
    `CitationTargetLookup` as `knowledge`; it has its own `titles` and `subject_id`, so the
    arguments of these names are ignored. The target of a search hit in a subject is `topic/slug` if
    `subject_id` is given, else `chunk:<id>`.
    """
    if not isinstance(knowledge, CitationTargetLookup):
        knowledge = CitationTargetLookup(knowledge, titles, subject_id)
    return [
        citation
        for turn in conversation.turns
        for citation in _extract_turn_citations(conversation.info.id, turn, knowledge, file_tools)
    ]


def _extract_turn_citations(
    conversation: str, turn: Turn, targets: CitationTargetLookup, file_tools: Mapping[str, str]
) -> Iterator[Citation]:
    seen = set()
    for event in turn.events:
        if (
            event.kind != "tool_call_request"
            or event.name is None
            or not _has_call_succeeded(event)
        ):
            continue
        for target in _find_cited_targets(event, targets, file_tools):
            key = (target.target, target.chunk)
            if key in seen:
                continue
            seen.add(key)
            yield Citation(
                conversation,
                turn.number,
                event.call,
                tool=event.name,
                timestamp=event.timestamp,
                **target._asdict(),
            )


def _has_call_succeeded(call: ConversationEvent) -> bool:
    return call.result is not None and not call.result.is_error


def _find_cited_targets(
    call: ConversationEvent, targets: CitationTargetLookup, file_tools: Mapping[str, str]
) -> Iterator[_CitedTarget]:
    name = call.name or ""
    arguments = call.arguments or {}
    result = call.result.text if call.result else ""
    if name in file_tools:
        yield from _find_cited_file(arguments.get(file_tools[name]), targets)
        return
    ours: ToolFamily | None = parse_tool_family(name)
    if ours == "learn":
        yield from _find_learned_subjects(arguments, result, targets)
    elif ours == "knowledge_search":
        yield from _find_cited_search_hits(result, targets)
    elif ours == "conversation_read":
        yield from _find_cited_conversation(arguments.get("id"), targets)
    elif ours == "conversation_grep":
        yield from _find_cited_grep_hits(result, targets)


def _find_learned_subjects(
    arguments: dict[str, Any], result: str, targets: CitationTargetLookup
) -> Iterator[_CitedTarget]:
    """Yield the subjects that `learn` returned; a listing cites nothing."""
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
    identity = topic.id if topic else name
    slugs = _find_learned_slugs(identity if topic else None, patterns, result, targets)
    for slug in dict.fromkeys(slugs):
        found = targets.find_subject(identity, slug) if topic else None
        yield _CitedTarget("learn", "subject", f"{identity}/{slug}", slug, gone=found is None)


def _find_learned_slugs(
    topic: str | None, patterns: list[str], result: str, targets: CitationTargetLookup
) -> Iterator[str]:
    """Yield the slugs of the learned subjects.

    An exact pattern is itself the slug. The slugs that match a glob are taken from the result.
    """
    from kbtui.knowledge.visibility import compile_slug_pattern, is_glob

    def is_exact_slug_pattern(pattern: str) -> bool:
        return not is_glob(pattern) or (
            topic is not None and targets.find_subject(topic, pattern) is not None
        )

    def remove_line_range(name: str) -> str:
        """Return the slug without a range of lines."""
        if topic is not None and targets.find_subject(topic, name) is None:
            try:
                return split_line_range(name)[0]
            except UsageError:
                pass
        return name

    if len(patterns) == 1 and is_exact_slug_pattern(patterns[0]):
        if not _NO_TEXT.match(result):
            yield remove_line_range(patterns[0])
        return
    blocks = list(_SUBJECT_TAG.finditer(result))
    shown = [
        block[1].replace("&quot;", '"')
        for block in blocks
        if not _NO_TEXT.match(result, block.end())
    ]
    if not shown and (blocks or all(map(_NO_TEXT.fullmatch, result.split("\n\n")))):
        return
    known = (
        [
            subject.slug
            for subject in targets.list_subjects(topic)
            if not (subject.hidden or subject.disabled)
        ]
        if topic is not None and not shown
        else []
    )
    for pattern in patterns:
        if is_exact_slug_pattern(pattern):
            # Among several patterns, one that matched nothing has no block in the result.
            if not shown or pattern in shown:
                yield remove_line_range(pattern)
        else:
            matches = compile_slug_pattern(pattern)
            yield from (
                remove_line_range(slug)
                for slug in shown or known
                if matches(remove_line_range(slug))
            )


def _find_cited_search_hits(result: str, targets: CitationTargetLookup) -> Iterator[_CitedTarget]:
    """Yield the hits of a `knowledge_search`, recognized by their header lines."""
    headers = list(SEARCH_RESULT_HEADER.finditer(result))
    for number, header in enumerate(headers):
        entry, chunk, score, title = header.groups()
        end = headers[number + 1].start() if number + 1 < len(headers) else len(result)
        quote = result[header.end() : min(end, header.end() + QUOTE_CHARACTERS)].strip()
        if _CONVERSATION_ID.fullmatch(entry):
            found = _make_conversation_target("search", entry, targets, title)
            yield found._replace(chunk=chunk, score=float(score), quote=quote)
            continue
        subject = targets.find_entry_subject(entry)
        target = f"{subject.topic}/{subject.slug}" if subject else f"chunk:{chunk}"
        yield _CitedTarget(
            "search",
            "subject",
            target,
            title,
            # Without entry ids it is unknown whether the subject still exists.
            gone=subject is None and targets.has_entry_ids,
            chunk=chunk,
            score=float(score),
            quote=quote,
        )


def _find_cited_file(path: Any, targets: CitationTargetLookup) -> Iterator[_CitedTarget]:
    if not isinstance(path, str) or not path.strip():
        return
    path = posixpath.normpath(path.strip().removeprefix("file://"))
    subject = targets.find_file_subject(path)
    if subject is not None:
        yield _CitedTarget("file", "subject", f"{subject.topic}/{subject.slug}", subject.slug)
    else:
        yield _CitedTarget("file", "file", path, path)


def _find_cited_conversation(name: Any, targets: CitationTargetLookup) -> Iterator[_CitedTarget]:
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    try:
        ref = parse_ref(name.partition("?")[0]) if isinstance(name, str) else None
    except UsageError:
        return
    if ref is not None and ref.conversation is not None:
        yield _make_conversation_target("read", ref.conversation, targets)


def _find_cited_grep_hits(result: str, targets: CitationTargetLookup) -> Iterator[_CitedTarget]:
    """Yield the conversations with a matching line, from an answer in XML or JSON."""
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
            yield _make_conversation_target("grep", conversation, targets)


def _make_conversation_target(
    how: CitationMethod,
    conversation: str,
    targets: CitationTargetLookup,
    title: str = "",
) -> _CitedTarget:
    known = targets.titles.get(conversation)
    return _CitedTarget(
        how,
        "conversation",
        conversation,
        known or title or "Untitled",
        gone=conversation not in targets.titles,
    )
