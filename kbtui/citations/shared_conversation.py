"""A conversation prepared for other people: the chosen turns and events, with masked secrets."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtui.citations.citation_and_conversation_export import (
    format_conversation_markdown,
    make_citation_json,
)
from kbtui.conversations.event_json import make_event_json
from kbtui.conversations.event_kinds import EVENT_KINDS
from kbtui.dates import format_timestamp
from kbtui.notices import format_notice
from kbtui.secret_detection import SecretMasker, count_masks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kbtui.citations.tool_call_citations import Citation
    from kbtui.conversations.models import Conversation, ConversationEvent, Turn
    from kbtui.conversations.turn_marks import TurnMarks


class MaskedSecrets(NamedTuple):
    """How many secrets of a kind were masked at one place of a conversation.

    `turn` is None for the title and other facts about the conversation. `part` is the kind of an event,
    `citation`, `mark` or `facts`.
    """

    kind: str
    turn: int | None
    call: int | None
    part: str
    times: int

    def as_json(self) -> dict[str, object]:
        """Return the documented JSON form."""
        place = {"turn": self.turn, "call": self.call, "part": self.part}
        return {"kind": self.kind, **place, "count": self.times}


@dataclass
class SharedConversation:
    """The parts of a conversation that are shared with other people.

    `conversation` has all its turns, and `turns` those that are shared. `marks` maps the number of
    a turn to the labels of its marks. `remark` says that the marks cannot be read; it is None if
    they can be read. `masked` lists the masked secrets; it is None if secrets were not masked.
    """

    conversation: Conversation
    turns: list[Turn]
    citations: list[Citation]
    marks: dict[int, list[str]]
    remark: str | None = None
    masked: list[MaskedSecrets] | None = None

    @property
    def warning(self) -> str | None:
        """The warning that secrets are not masked; None if they are masked."""
        return (
            None
            if self.masked is not None
            else "Nothing was masked: the export contains all secrets unchanged."
        )

    @cached_property
    def citations_by_turn(self) -> dict[int, list[Citation]]:
        """The number of each turn with citations -> its citations."""
        found: dict[int, list[Citation]] = {}
        for citation in self.citations:
            found.setdefault(citation.turn, []).append(citation)
        return found

    @property
    def title(self) -> str:
        """The title, or "Untitled"."""
        return self.conversation.info.name


def prepare_shared_conversation(
    conversation: Conversation,
    turns: Sequence[Turn],
    kinds: Collection[str],
    citations: Iterable[Citation],
    marks: TurnMarks | None = None,
    *,
    masks_secrets: bool = True,
) -> SharedConversation:
    """Return `turns` of a conversation with the events of `kinds`, for other people.

    Given texts come from the results of calls, so citations have them only if `kinds` contains such
    results. With `masks_secrets`, a secret that kbtui recognizes at one place of the whole
    conversation is masked at every place.
    """
    numbers = {turn.number for turn in turns}
    chosen = [
        replace(turn, events=[event for event in turn.events if event.kind in kinds])
        for turn in turns
    ]
    cited = [citation for citation in citations if citation.turn in numbers]
    if "tool_call_response" not in kinds:
        cited = [citation._replace(given=None, quote="") for citation in cited]
    labels = {
        number: [mark.make_mark_facts_json()["label"] for mark in found]
        for number, found in (marks.by_turn if marks else {}).items()
        if number in numbers
    }
    remark = format_notice(marks.notice) if marks and marks.notice else None
    shared = SharedConversation(conversation, chosen, cited, labels, remark)
    return _ConversationMasker(conversation).mask_conversation(shared) if masks_secrets else shared


@dataclass
class _ConversationMasker:
    """Masks the secrets of one conversation, and records what it masked."""

    conversation: Conversation
    masker: SecretMasker = field(default_factory=SecretMasker)
    masked: list[MaskedSecrets] = field(default_factory=list)

    def __post_init__(self) -> None:
        info = self.conversation.info
        self.masker.learn_secrets([info.title, dict(info.labels), self.conversation.attachments])
        # Look at all turns: a shared secret may be recognizable only in a turn that is not shared.
        for turn in self.conversation.turns:
            for event in turn.events:
                for name, value in _get_event_values(event).items():
                    self.masker.learn_secrets(value, name)

    def mask_conversation(self, shared: SharedConversation) -> SharedConversation:
        for label in (label for labels in shared.marks.values() for label in labels):
            self.masker.learn_secrets(label)
        for citation in shared.citations:
            self.masker.learn_secrets(_get_citation_texts(citation))
        conversation = self._mask_facts(shared.conversation)
        turns = [
            replace(turn, events=[self._mask_event(event, turn) for event in turn.events])
            for turn in shared.turns
        ]
        citations = [self._mask_citation(citation) for citation in shared.citations]
        marks = {
            number: self._mask(labels, number, None, "mark")
            for number, labels in shared.marks.items()
        }
        return SharedConversation(conversation, turns, citations, marks, shared.remark, self.masked)

    def _mask(self, value: Any, turn: int | None, call: int | None, part: str) -> Any:
        """Mask the secrets in a JSON value, and record them."""
        after = self.masker.mask_secrets(value)
        self.masked += [
            MaskedSecrets(kind, turn, call, part, times)
            for kind, times in (count_masks(after) - count_masks(value)).items()
        ]
        return after

    def _mask_facts(self, conversation: Conversation) -> Conversation:
        info = conversation.info
        facts = {
            "title": info.title,
            "labels": dict(info.labels),
            "assistant": conversation.assistant,
            "model": conversation.model,
            "attachments": conversation.attachments,
        }
        masked = self._mask(facts, None, None, "facts")
        info = replace(info, title=masked.pop("title"), labels=masked.pop("labels"))
        return replace(conversation, info=info, **masked)

    def _mask_event(self, event: ConversationEvent, turn: Turn) -> ConversationEvent:
        values = self._mask(_get_event_values(event), turn.number, event.call, event.kind)
        if event.blocks is not None:
            masked = zip(event.blocks, values["blocks"], strict=True)
            values["blocks"] = [replace(block, **texts) for block, texts in masked]
        metadata = _keep_subagent(event.metadata)
        return replace(event, **values, metadata=metadata, request=None, result=None)

    def _mask_citation(self, citation: Citation) -> Citation:
        texts = self._mask(_get_citation_texts(citation), citation.turn, citation.call, "citation")
        given = citation.given
        if given is not None:
            given = given._replace(text=texts.pop("given"), result="")
        return citation._replace(**texts, given=given)


def _get_event_values(event: ConversationEvent) -> dict[str, Any]:
    """Return the attributes of an event that can contain texts."""
    return {
        "text": event.text,
        "name": event.name,
        "author": event.author,
        "arguments": event.arguments,
        "fields": event.fields,
        "data": event.data,
        "outcome": event.outcome,
        "problem": event.problem,
        "blocks": [
            # Their texts are in the text of the event.
            {"text": "", "name": block.name, "title": block.title}
            for block in event.blocks or ()
        ],
    }


def _keep_subagent(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return only the item that names a subagent. Other items, such as signatures, are not exported."""
    return {"subagent": metadata["subagent"]} if metadata and "subagent" in metadata else None


def _get_citation_texts(citation: Citation) -> dict[str, str]:
    texts = {
        "title": citation.title,
        "target": citation.target,
        "quote": citation.quote,
        "tool": citation.tool,
        "source_title": citation.source_title,
    }
    return texts | ({"given": citation.given.text} if citation.given else {})


def describe_masked_secrets(shared: SharedConversation) -> list[str]:
    """Return a line for each place with masked secrets, such as `GitHub token: turn 2, call 1, Result`."""
    lines = []
    for one in shared.masked or ():
        kind = EVENT_KINDS.get(one.part)
        part = kind.label if kind else _PART_LABELS[one.part]
        turn = f"turn {one.turn}, " if one.turn is not None else ""
        call = f"call {one.call}, " if one.call is not None else ""
        times = f" ({one.times} times)" if one.times > 1 else ""
        lines.append(f"{one.kind}: {turn}{call}{part}{times}")
    return lines


_PART_LABELS = {"citation": "a citation", "mark": "a mark", "facts": "title and details"}


def get_given_text(citation: Citation) -> str:
    """Return the given text of a cited subject, or the beginning of a cited passage; "" if both are unknown."""
    return citation.given.text if citation.given else citation.quote


def format_shared_conversation_markdown(shared: SharedConversation) -> str:
    """Return a shared conversation as Markdown, with its citations and a list of what was masked."""
    text = format_conversation_markdown(
        shared.conversation,
        shared.citations,
        shared.turns,
        EVENT_KINDS,
        shared.marks,
        filter(None, (shared.remark, shared.warning)),
    )
    if lines := describe_masked_secrets(shared):
        text += "\n## Masked secrets\n\n" + "".join(f"- {line}\n" for line in lines)
    return text


# JSON


def make_shared_conversation_json(shared: SharedConversation) -> dict[str, Any]:
    """Return a shared conversation as JSON; `docs/guide/json.md` describes it."""
    turns = [
        {
            **_make_turn_facts(turn),
            "marks": shared.marks.get(turn.number, []),
            "events": [
                make_event_json(event, shared.conversation.info.id) for event in turn.events
            ],
            "citations": [
                _make_citation_object(citation)
                for citation in shared.citations_by_turn.get(turn.number, ())
            ],
        }
        for turn in shared.turns
    ]
    return {**_make_conversation_facts(shared), "turns": turns, "masked": _list_masked(shared)}


def format_shared_conversation_json(shared: SharedConversation) -> str:
    """Return a shared conversation as one JSON document."""
    return json.dumps(make_shared_conversation_json(shared), ensure_ascii=False, indent=2) + "\n"


def format_shared_conversation_jsonl(shared: SharedConversation) -> str:
    """Return a shared conversation as JSON Lines: the conversation, its events and citations, and what was masked."""
    return "".join(
        json.dumps(line, ensure_ascii=False) + "\n" for line in _make_jsonl_records(shared)
    )


def _make_jsonl_records(shared: SharedConversation) -> Iterator[dict[str, Any]]:
    whole = make_shared_conversation_json(shared)
    turns, masked = whole.pop("turns"), whole.pop("masked")
    yield {"type": "conversation", **whole}
    for turn in turns:
        events, citations = turn.pop("events"), turn.pop("citations")
        yield {"type": "turn", **turn}
        yield from ({"type": "event", "turn": turn["turn"], **event} for event in events)
        yield from ({"type": "citation", "turn": turn["turn"], **one} for one in citations)
    yield {"type": "end", "masked": masked}


def _make_conversation_facts(shared: SharedConversation) -> dict[str, Any]:
    conversation, info = shared.conversation, shared.conversation.info
    return {
        "id": info.id,
        "agent": info.agent,
        "title": info.title,
        "created_at": format_timestamp(info.created_at),
        "last_event_at": format_timestamp(info.last_event_at),
        "parent_id": info.parent,
        "labels": info.labels,
        "assistant": conversation.assistant,
        "model": conversation.model,
        "attachments": conversation.attachments,
        "turns_total": len(conversation.turns),
    }


def _make_turn_facts(turn: Turn) -> dict[str, Any]:
    return {
        "turn": turn.number,
        "started_at": format_timestamp(turn.started_at),
        "model": turn.model,
        "rewound": turn.is_rewound,
        "attachments": turn.attachments,
    }


def _make_citation_object(citation: Citation) -> dict[str, object]:
    return {**make_citation_json(citation), "given": get_given_text(citation) or None}


def _list_masked(shared: SharedConversation) -> list[dict[str, object]] | None:
    return None if shared.masked is None else [one.as_json() for one in shared.masked]
