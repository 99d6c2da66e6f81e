"""Finds the entries of a workspace that may be published, and the texts for which vectors are published.

The table `[publish]` lists topics and conversations. Hidden and disabled subjects of the topics are
left out. Subjects with secrets are left out, too, because subjects are published unchanged. In
conversations, secrets are masked. The result of a tool call is left out if it contains the text of
a subject that is hidden, disabled or in an unpublished topic.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from kbtui.citations.shared_conversation_export import prepare_shared_conversation
from kbtui.citations.tool_call_citations import (
    CitationTargetLookup,
    list_subjects_given_by_event,
)
from kbtui.conversations.conversation_event_kinds import EVENT_KINDS
from kbtui.conversations.conversation_repository import list_conversations, load_conversation
from kbtui.conversations.formats.published_library_conversation_format import (
    MAX_FILE_BYTES,
    encode_published_conversation,
    is_from_published_library,
)
from kbtui.conversations.workspace_and_worktree_directories import list_workspace_and_worktree_paths
from kbtui.errors import KbtuiError
from kbtui.index.chunk_splitter import split_conversation_into_chunks
from kbtui.index.entry_and_chunk_data_types import CatalogEntry, hash_embedded_text, make_subject_id
from kbtui.index.indexable_entry_reader import complete_chunks, read_subject_entry
from kbtui.knowledge import load_knowledge
from kbtui.knowledge.subject_files import read_subject_text
from kbtui.light_named_tuple import NamedTuple
from kbtui.publishing.published_library_format import (
    MAX_ENTRY_BYTES,
    DamagedLibraryPartError,
    EntryFileToPublish,
    EntryKey,
    PublishedTopic,
    validate_entry_key,
)
from kbtui.secret_detection import find_secrets, mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kbtui.conversations.conversation_data_types import (
        Conversation,
        ConversationEvent,
        ConversationInfo,
    )
    from kbtui.index.entry_and_chunk_data_types import Chunk
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.workspace import Settings, Workspace
    from kbtui.workspace.published_library_settings import PublishSettings

MIN_RECOGNIZED_TEXT = 40
"""The text of an unpublished subject, or a line of it, is searched for in conversations only if it has at least this many characters.

Shorter texts can occur there by chance.
"""

LeftOutReason = Literal["secret", "unreadable", "too_large", "name"]


class UnpublishedEntry(NamedTuple):
    """An entry that is not published, and the reason. `detail` is a human-readable phrase."""

    ref: str
    reason: LeftOutReason
    detail: str


@dataclass
class PublishableEntries:
    """The entries of a workspace that may be published, and the entries that are left out.

    * `texts` maps keys to entries.
    * `embedded` maps hashes to the texts to embed.
    * `masked` maps the ids of conversations to the number of secrets that were masked in them.
    * `withheld` maps the ids of conversations to the reasons why results of calls were left out of
      them.
    * `hidden` counts the hidden and disabled subjects of published topics, which are not published.
    """

    topics: list[PublishedTopic] = field(default_factory=list)
    texts: dict[EntryKey, EntryFileToPublish] = field(default_factory=dict)
    embedded: dict[bytes, str] = field(default_factory=dict)
    left_out: list[UnpublishedEntry] = field(default_factory=list)
    masked: dict[str, int] = field(default_factory=dict)
    withheld: dict[str, list[str]] = field(default_factory=dict)
    quoted: dict[str, dict[str, int]] = field(default_factory=dict)
    """The number of lines that quote unpublished subjects, by conversation id and reason."""
    unmatched: list[str] = field(default_factory=list)
    """The patterns in `[publish]` that match nothing, such as `topics: 'nonsense' matches nothing`."""
    missing_directories: dict[str, str] = field(default_factory=dict)
    """Maps the ids of topics to their missing directories. A directory can be missing because a disk is not mounted."""
    hidden: int = 0
    passages: int = 0
    chunks: dict[EntryKey, tuple[CatalogEntry, list[Chunk]]] = field(default_factory=dict)
    """Each entry and its passages. A reader's index splits the entry into the same passages."""

    def record_unpublished_entry(self, ref: str, reason: LeftOutReason, detail: str) -> None:
        """Record that an entry is not published."""
        self.left_out.append(UnpublishedEntry(ref, reason, detail))

    def add_entry(self, text: EntryFileToPublish, entry: CatalogEntry, chunks: list[Chunk]) -> None:
        """Add an entry with its passages."""
        self.texts[text.key] = text
        self.chunks[text.key] = (entry, chunks)
        has_vectors = False
        for chunk in chunks:
            self.passages += 1
            if chunk.embed:
                has_vectors = True
                self.embedded[hash_embedded_text(chunk.text)] = chunk.text
        if has_vectors:
            self.embedded[hash_embedded_text(entry.title)] = entry.title


def collect_publishable_entries(
    workspace: Workspace, settings: Settings, publish: PublishSettings
) -> PublishableEntries:
    """Read everything that may be published. Entries that cannot be published are in `left_out`."""
    found = PublishableEntries()
    knowledge = load_knowledge(workspace)
    names = [topic.id for topic in knowledge.topics.values() if not topic.is_published]
    found.unmatched += [
        f"topics: {pattern!r} matches nothing"
        for pattern in publish.topics
        if not fnmatch.filter(names, pattern)
    ]
    for topic in knowledge.topics.values():
        is_chosen = any(fnmatch.fnmatchcase(topic.id, pattern) for pattern in publish.topics)
        if not topic.enable or topic.is_published or not is_chosen:
            continue
        try:
            validate_entry_key(("subject", topic.id, "x"))
        except DamagedLibraryPartError as error:
            found.record_unpublished_entry(topic.id, "name", error.message)
            continue
        if not (workspace.root / topic.subjects).is_dir():
            found.missing_directories[topic.id] = topic.subjects
        texts = (topic.title, topic.introduction, topic.description)
        if kinds := _describe_secrets_in_text("\n".join(filter(None, (topic.id, *texts)))):
            detail = f"its name or description contains {kinds}"
            found.record_unpublished_entry(mask_secrets(topic.id), "secret", detail)
            continue
        found.topics.append(PublishedTopic(topic.id, *texts))
        for subject in knowledge.iterate_subjects_of_topic(topic.id):
            if subject.is_published:
                continue
            if subject.hidden or subject.disabled:
                found.hidden += 1
            else:
                _add_subject_if_publishable(found, subject)
    topics = {topic.id for topic in found.topics}
    given = _UnpublishedTextFinder(workspace, knowledge, topics, found.texts)
    for info in _select_conversations_to_publish(workspace, publish, found):
        _add_conversation_if_publishable(found, info, settings, given)
    return found


class _UnpublishedTextFinder:
    """Finds the results of tool calls that contain the text of a subject that must not be published."""

    def __init__(
        self,
        workspace: Workspace,
        knowledge: KnowledgeBase,
        topics: set[str],
        published: Mapping[EntryKey, EntryFileToPublish],
    ) -> None:
        """Prepare to search conversations. `topics` and `published` are the published topics and entries."""
        self._knowledge, self._topics = knowledge, topics
        self._published = {key: text for key, text in published.items() if key[0] == "subject"}
        directories = list_workspace_and_worktree_paths(workspace)
        self._citation_target_lookup = CitationTargetLookup(
            knowledge, {}, make_subject_id, directories
        )

    @cached_property
    def _unpublished_texts(self) -> dict[str, str]:
        """Maps the references of the subjects that must not be published to the subjects' texts."""
        found = {}
        for topic in self._knowledge.topics:
            for subject in self._citation_target_lookup.list_subjects(topic):
                if self._explain_why_subject_must_not_be_published(subject.ref):
                    with suppress(KbtuiError):
                        text = read_subject_text(subject).strip()
                        if len(text) >= MIN_RECOGNIZED_TEXT:
                            found[subject.ref] = text
        return found

    def _explain_why_subject_must_not_be_published(self, ref: str) -> str | None:
        """Return the reason why a subject must not be published, such as `a/b is disabled`, or None."""
        topic, _, slug = ref.partition("/")
        subject = self._knowledge.find_subject(topic, slug)
        if subject is None or subject.is_published:
            return None
        if subject.hidden:
            # The names of hidden subjects are not published either.
            return "a subject is hidden"
        if subject.disabled:
            return f"{ref} is disabled"
        return None if topic in self._topics else f"{ref} is not published"

    @cached_property
    def _unpublished_lines(self) -> dict[str, str]:
        """Maps each line that occurs only in unpublished subjects to the reference of one of them."""
        lines = {
            line: ref
            for ref, text in self._unpublished_texts.items()
            for line in map(_strip_markup_around_line, text.splitlines())
            if len(line) >= MIN_RECOGNIZED_TEXT
        }
        for published in self._published.values() if lines else ():
            for line in published.data.decode().splitlines():
                lines.pop(_strip_markup_around_line(line), None)
        return lines

    def mask_unpublished_lines(self, text: str) -> tuple[str, list[str]]:
        """Replace the lines that quote unpublished subjects; return the text and the reason for each line."""
        quoted = self._unpublished_lines
        lines: list[str] = []
        reasons: list[str] = []
        for line in text.split("\n") if quoted else ():
            ref = quoted.get(_strip_markup_around_line(line))
            if (
                ref is None
                or (reason := self._explain_why_subject_must_not_be_published(ref)) is None
            ):
                lines.append(line)
                continue
            reasons.append(reason)
            if not lines or lines[-1] != _format_left_out_placeholder(reason):
                lines.append(_format_left_out_placeholder(reason))
        return ("\n".join(lines), reasons) if reasons else (text, reasons)

    def find_events_to_leave_out(self, conversation: Conversation) -> dict[tuple[int, int], str]:
        """Return the position (turn, event) of each event whose text must be left out, with the reason."""
        places = {
            id(event): (turn_at, at)
            for turn_at, turn in enumerate(conversation.turns)
            for at, event in enumerate(turn.events)
        }
        found: dict[tuple[int, int], str] = {}
        for turn in conversation.turns:
            for event in turn.events:
                holder = event.result if event.kind == "tool_call_request" else event
                if holder is None or id(holder) not in places:
                    continue
                refs = list_subjects_given_by_event(
                    conversation, event, self._citation_target_lookup
                )
                if event.kind == "tool_call_request":
                    # The call may not name the subject: the output of a shell command can contain its text, too.
                    refs += [
                        ref for ref, text in self._unpublished_texts.items() if text in holder.text
                    ]
                reasons = filter(
                    None, map(self._explain_why_subject_must_not_be_published, dict.fromkeys(refs))
                )
                if text := "; ".join(dict.fromkeys(reasons)):
                    found[places[id(holder)]] = text
        return found


_QUOTATION_MARKS = " \t>-*+#|`\"'\u201c\u201d"


def _strip_markup_around_line(line: str) -> str:
    """Return a line without the surrounding markup of a quotation, a list, a table or code."""
    return line.strip(_QUOTATION_MARKS)


def _format_left_out_placeholder(reason: str) -> str:
    return f"[left out: {reason}]"


def _replace_all_content_of_event(event: ConversationEvent, text: str) -> ConversationEvent:
    """Return a copy of `event` whose text is `text`, without other values that could contain the old text."""
    return replace(
        event, text=text, data=None, fields=None, blocks=None, outcome=None, problem=None
    )


def _describe_secrets_in_text(text: str) -> str:
    """Return the kinds and lines of the secrets in a text, such as `GitHub token (line 3)`; "" if there are none."""
    lines: dict[str, list[int]] = {}
    for secret in find_secrets(text):
        lines.setdefault(secret.what, []).append(text.count("\n", 0, secret.start) + 1)
    return ", ".join(
        f"{what} (line {', '.join(map(str, numbers[:3]))})" for what, numbers in lines.items()
    )


def _describe_secrets_in_entry_names(*names: str) -> str:
    return ", ".join(dict.fromkeys(secret.what for name in names for secret in find_secrets(name)))


def _add_subject_if_publishable(found: PublishableEntries, subject: Subject) -> None:
    if kinds := _describe_secrets_in_entry_names(subject.ref, subject.relative):
        found.record_unpublished_entry(
            mask_secrets(subject.ref), "secret", f"its name contains {kinds}"
        )
        return
    try:
        text = read_subject_text(subject)
        key = validate_entry_key(("subject", subject.topic, subject.relative))
    except DamagedLibraryPartError as error:
        found.record_unpublished_entry(subject.ref, "name", error.message)
        return
    except KbtuiError as error:
        found.record_unpublished_entry(subject.ref, "unreadable", error.message)
        return
    data = text.encode()
    if len(data) > MAX_ENTRY_BYTES:
        found.record_unpublished_entry(
            subject.ref, "too_large", f"it is larger than {MAX_ENTRY_BYTES:,} bytes"
        )
        return
    if kinds := _describe_secrets_in_text(text):
        found.record_unpublished_entry(subject.ref, "secret", f"it contains {kinds}")
        return
    part = read_subject_entry(subject)
    if part.entry.error:
        found.record_unpublished_entry(subject.ref, "unreadable", part.entry.error)
        return
    found.add_entry(EntryFileToPublish(key, data), part.entry, part.chunks)


def _select_conversations_to_publish(
    workspace: Workspace, publish: PublishSettings, found: PublishableEntries
) -> Iterator[ConversationInfo]:
    if not publish.conversations:
        return
    unmatched = dict.fromkeys(publish.conversations)
    for info in list_conversations(workspace, counts=False):
        if is_from_published_library(info):
            continue
        matching = [
            name for name in publish.conversations if _does_setting_name_conversation(name, info)
        ]
        for name in matching:
            unmatched.pop(name, None)
        if matching:
            yield info
    found.unmatched += [f"conversations: {name!r} matches nothing" for name in unmatched]


def _does_setting_name_conversation(name: str, info: ConversationInfo) -> bool:
    """Return whether `name`, a value in the setting `conversations`, selects a conversation."""
    if name == "*":
        return True
    kind, colon, label = name.partition(":")
    return info.has_label(label) if colon and kind == "label" else info.id == name


def _add_conversation_if_publishable(
    found: PublishableEntries,
    info: ConversationInfo,
    settings: Settings,
    given: _UnpublishedTextFinder,
) -> None:
    if secrets := _describe_secrets_in_entry_names(info.id):
        found.record_unpublished_entry(
            mask_secrets(info.id), "secret", f"its name contains {secrets}"
        )
        return
    original = load_conversation(info)
    if info.problem or original.problems:
        found.record_unpublished_entry(info.id, "unreadable", info.problem or original.problems[0])
        return
    kinds = EVENT_KINDS.keys()
    shared = prepare_shared_conversation(original, original.turns, kinds, ())
    # The masked events are in `turns`; the conversation itself still contains the original ones.
    masked = shared.conversation
    masked.turns = shared.turns
    withheld = given.find_events_to_leave_out(original)
    for (turn_at, at), reason in withheld.items():
        events = masked.turns[turn_at].events
        events[at] = _replace_all_content_of_event(events[at], _format_left_out_placeholder(reason))
    quoted: list[str] = []
    for turn in masked.turns:
        for at, event in enumerate(turn.events):
            text, reasons = given.mask_unpublished_lines(event.text)
            if reasons:
                turn.events[at] = _replace_all_content_of_event(event, text)
                quoted += reasons
    data = encode_published_conversation(original, masked)
    if len(data) > MAX_FILE_BYTES:
        found.record_unpublished_entry(
            info.id, "too_large", f"it is larger than {MAX_FILE_BYTES:,} bytes"
        )
        return
    try:
        key = validate_entry_key(("conversation", info.id))
    except DamagedLibraryPartError as error:
        found.record_unpublished_entry(info.id, "name", error.message)
        return
    if masks := sum(secret.times for secret in shared.masked or ()):
        found.masked[info.id] = masks
    if withheld:
        found.withheld[info.id] = list(dict.fromkeys(withheld.values()))
    if quoted:
        found.quoted[info.id] = dict(Counter(quoted))
    entry = CatalogEntry(
        info.id,
        "conversation",
        masked.info.name,
        "",
        "",
        type="conversation",
        conversation=info.id,
        archived=info.archived,
        agent=info.agent,
        changed=info.last_activity_at.timestamp(),
    )
    split = split_conversation_into_chunks(masked, embed_tool_results=settings.embed_tool_results)
    chunks = complete_chunks(entry, list(split))
    found.add_entry(EntryFileToPublish(key, data), entry, chunks)
