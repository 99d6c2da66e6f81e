"""Exports citations as JSON and Markdown, and a conversation as Markdown with its citations."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from kbtui.conversations.conversation_data_types import get_subagent_id_of_result
from kbtui.conversations.conversation_event_kinds import EVENT_KINDS
from kbtui.dates import format_time_as_rfc3339_utc
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import JP_ID_PREFIX, decode_jp_id_creation_time
from kbtui.terminal_text import (
    NO_LONGER_THERE,
    format_readable_json,
    make_backtick_fence,
    sanitize,
    sanitize_to_one_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kbtui.citations.cited_text_comparison import UnknownStateReason
    from kbtui.citations.tool_call_citations import Citation
    from kbtui.conversations.conversation_data_types import Conversation, ConversationEvent, Turn
    from kbtui.references import Ref


_MARKDOWN_CHARACTERS = re.compile(r"([\\`*_\[\]<>#|])")
CITATION_METHOD_LABELS = {
    "learn": "learned",
    "search": "found by search",
    "file": "read from its file",
    "read": "read",
    "grep": "found by grep",
}


UNKNOWN_STATE_REASONS: dict[UnknownStateReason, str] = {
    "cut": "the turn was given a shortened text",
    "masked": "secrets in the given text were masked",
    "part": "the turn was given only part of the subject",
    "tool": "kbtui cannot read what the tool returned",
    "unreadable": "the subject cannot be read",
}
"""Maps each reason for the state "unknown" to a text that explains the reason."""


def format_citation_state(cite: Citation) -> str:
    """Return the state of a citation as text, such as "changed since"; "" if the citation has no state."""
    if cite.state == "unknown" and cite.state_reason is not None:
        return f"may have changed: {UNKNOWN_STATE_REASONS[cite.state_reason]}"
    texts = {"changed": "changed since", "gone": NO_LONGER_THERE, "unchanged": "unchanged"}
    return texts.get(cite.state or "", NO_LONGER_THERE if cite.gone else "")


def explain_incomplete_given_text(cite: Citation) -> str | None:
    """Return a remark if the given text was cut, masked or only part of the subject, else None."""
    remarks = {
        "cut": "The turn was given a shortened text; the part that was cut off is not compared.",
        "masked": "Secrets in the given text were masked; each mask is shown as a difference.",
        "part": "The turn was given only part of the subject; the rest is not compared.",
    }
    return remarks.get(cite.given.extent) if cite.given else None


class CitedTextDifference(NamedTuple):
    """How a subject's current text differs from the text that a turn was given.

    `text` is a unified diff. `remark` explains it; None if there is nothing to explain.
    """

    text: str
    remark: str | None

    def format_diff_with_remark(self) -> str:
        """Return the diff, preceded by a line with the remark if there is one."""
        return f"    {self.remark}\n{self.text}" if self.remark else self.text


def format_difference_remark(
    cite: Citation,
    given: str,
    now: str | None,
    *,
    renamed_to: Ref | None = None,
    is_disabled: bool = False,
) -> str | None:
    """Describe how the text that a turn was given differs from the current text.

    Return None if there is nothing to say. The parameters are the fields of `GivenAndCurrentSubjectText`.
    """
    remarks = [explain_incomplete_given_text(cite)]
    if renamed_to is not None:
        what = "which still has this text" if given == now else "whose text is compared"
        remarks.append(f"The subject was renamed to {renamed_to}, {what}.")
    if now is None:
        what = "is disabled" if is_disabled else "no longer exists"
        remarks = [
            f"The subject {what}, so the whole text that the turn was given is shown as deleted."
        ]
    elif not now.strip() and cite.given is not None:
        is_part = cite.given.extent in ("part", "cut")
        none_left = "The subject no longer contains any of the paragraphs that the turn was given."
        remarks.append(none_left if is_part else "The subject is empty now.")
    return " ".join(filter(None, remarks)) or None


def format_conversation_markdown(
    conversation: Conversation,
    turns: Sequence[Turn],
    citations: Mapping[int, Sequence[Citation]],
    marks: Mapping[int, Sequence[str]],
    remarks: Iterable[str],
) -> str:
    """Return `turns` of a conversation as Markdown.

    Messages stay Markdown, but escape sequences and other terminal control characters are removed.
    Tool calls and results are in code fences that are longer than any fence in their content.
    `citations` maps turn numbers to citations, and `marks` maps turn numbers to the labels of the
    marks. Each turn begins with its marks and ends with a list of its citations. The document ends
    with a list of all citations. `remarks` are shown before the turns.
    """
    blocks = [
        f"# {_escape_markdown(conversation.info.name)}",
        _format_conversation_metadata(conversation),
    ]
    blocks += [f"> {_escape_markdown(remark)}" for remark in remarks]
    for turn in turns:
        time = format_time_as_rfc3339_utc(turn.started_at)
        state = " (rewound)" if turn.is_rewound else ""
        blocks.append(f"## Turn {turn.number}{state}{f' · {time}' if time else ''}")
        labels = marks.get(turn.number, ())
        blocks += [f"> **Mark:** {_escape_markdown(label)}" for label in labels]
        for event in turn.events:
            blocks += _format_event_markdown(event)
            if subagent := get_subagent_id_of_result(event, conversation.info.id):
                blocks.append(f"Subagent: {_format_code_span(subagent)}")
        if used := citations.get(turn.number):
            blocks += [
                "### Citations of this turn",
                "\n".join(f"- {_format_citation_line(cite)}" for cite in used),
            ]
    cited = (cite for turn in turns for cite in citations.get(turn.number, ()))
    blocks += ["## Citations", _format_markdown_list_of_cited_targets(cited)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _format_conversation_metadata(conversation: Conversation) -> str:
    info = conversation.info
    facts = {
        "Conversation": f"`{info.ref}`",
        "Created": format_time_as_rfc3339_utc(info.created_at),
        "Assistant": _escape_markdown(conversation.assistant or ""),
        "Model": _escape_markdown(conversation.model or ""),
        "Part of": _format_code_span(info.parent) if info.parent else "",
        "Turns": str(len(conversation.turns)),
        "Archived": format_time_as_rfc3339_utc(info.archived_at),
        "Attachments": ", ".join(map(_format_code_span, conversation.attachments)),
    }
    return "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)


def _format_event_markdown(event: ConversationEvent) -> Iterator[str]:
    """Yield blocks of Markdown for an event: its heading, its text and its values."""
    kind, text, values = (
        EVENT_KINDS[event.kind],
        sanitize(event.text, "strip"),
        event.arguments_or_fields,
    )
    text = text.strip("\n")
    heading = "Error" if event.is_error else _escape_markdown(event.author or kind.label)
    call = f" {event.call}" if event.call else ""
    has_name = event.name and kind.language is not None
    name = f": {_format_code_span(event.name or '')}" if has_name else ""
    outcome = f" · {_escape_markdown(event.outcome)}" if event.outcome else ""
    yield f"### {heading}{call}{name}{outcome}"
    if kind.is_subdued:
        yield "\n".join(f"> {line}".rstrip() for line in text.split("\n")) if text else ""
    elif kind.language is None:
        yield text
    elif text or values is None:
        yield format_code_fence(text, "" if isinstance(event.data, str) else kind.language)
    if values is not None:
        yield format_code_fence(sanitize(format_readable_json(values), "strip"), "json")


def _format_citation_line(citation: Citation) -> str:
    call = f", call {citation.call}" if citation.call else ""
    changed = ", changed since" if citation.state == "changed" else ""
    gone = ", deleted since" if citation.gone else changed
    return (
        f"{_format_citation_target(citation)} ({CITATION_METHOD_LABELS[citation.how]}{call}{gone})"
    )


def _format_markdown_list_of_cited_targets(cited: Iterable[Citation]) -> str:
    """Return a Markdown list of cited targets. Each line lists the turns that used the target."""
    by_target: dict[str, list[Citation]] = {}
    for citation in cited:
        by_target.setdefault(citation.target, []).append(citation)
    lines = []
    for citations in by_target.values():
        turns = list(dict.fromkeys(str(citation.turn) for citation in citations))
        label = "turns" if len(turns) > 1 else "turn"
        lines.append(f"- {_format_citation_target(citations[0])}: {label} {', '.join(turns)}")
    return "\n".join(lines) or "No turn cites anything."


def _format_citation_target(citation: Citation) -> str:
    """Return a citation's target, followed by the target's title if the title is different."""
    has_title = citation.title not in (citation.target, "")
    title = f" {_escape_markdown(citation.title)}" if has_title else ""
    return _format_code_span(citation.target) + title


def _escape_markdown(text: str) -> str:
    """Return `text` on one line, without terminal escape sequences, and with Markdown's special characters escaped."""
    return _MARKDOWN_CHARACTERS.sub(r"\\\1", sanitize_to_one_line(text, "strip"))


def _format_code_span(text: str) -> str:
    text = sanitize_to_one_line(text, "strip")
    ticks = make_backtick_fence(text, 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def format_code_fence(text: str, language: str) -> str:
    """Return `text` in a Markdown code fence that is longer than any fence in it."""
    ticks = make_backtick_fence(text)
    return f"{ticks}{language}\n{text}\n{ticks}"


def make_citation_json(cite: Citation) -> dict[str, object]:
    """Return a citation in the documented JSON format."""
    return {
        "source": cite.source,
        "source_title": cite.source_title,
        "call": cite.call,
        "how": cite.how,
        "tool": cite.tool,
        "kind": cite.kind,
        "target": cite.target,
        "title": cite.title,
        "chunk_id": cite.chunk,
        "score": cite.score,
        "timestamp": cite.timestamp.isoformat() if cite.timestamp else None,
        "gone": cite.gone,
        "rewound": cite.rewound,
        "state": cite.state,
        "state_reason": cite.state_reason,
    }


def make_uses_and_used_by_json(
    ref: str,
    uses: Sequence[Citation],
    used_by: Sequence[Citation],
    differences: Mapping[Citation, CitedTextDifference] | None = None,
    make_mark_fields: Callable[[str], Mapping[str, object]] = lambda _: {},
) -> dict[str, object]:
    """Return the object that `kbtui cites --json` prints.

    `uses` are the citations that `ref` makes. `used_by` are other turns' citations of `ref`. With
    `differences`, each citation has the keys "difference" and "remark", which are None for a
    citation that is not in `differences`. `make_mark_fields` takes the reference of a turn, and
    returns the fields about the user's marks on this turn.
    """

    def make_citation_json_with_difference(cite: Citation) -> dict[str, object]:
        more: dict[str, str | None] = {}
        if differences is not None:
            found = differences.get(cite)
            more["difference"] = found.text if found else None
            more["remark"] = found.remark if found else None
        return {**make_citation_json(cite), **make_mark_fields(cite.source), **more}

    return {
        "ref": ref,
        "uses": list(map(make_citation_json_with_difference, uses)),
        "used_by": list(map(make_citation_json_with_difference, used_by)),
    }


def format_uses_and_used_by_json(
    ref: str,
    uses: Sequence[Citation],
    used_by: Sequence[Citation],
    make_mark_fields: Callable[[str], Mapping[str, object]] = lambda _: {},
) -> str:
    """Return the result of `make_uses_and_used_by_json` as JSON text."""
    shape = make_uses_and_used_by_json(ref, uses, used_by, make_mark_fields=make_mark_fields)
    return json.dumps(shape, ensure_ascii=False, indent=2) + "\n"


def format_citing_turn(cite: Citation, short_refs: Mapping[str, str]) -> str:
    """Return a line about a citing turn: its reference, date, conversation, method, tool and state."""
    how = f"({cite.how}, {sanitize_to_one_line(cite.tool)}{', rewound' if cite.rewound else ''})"
    source = short_refs.get(cite.source, cite.source)
    state = format_citation_state(cite)
    return (
        f"{source}  {_format_citation_date(cite)}  {sanitize_to_one_line(cite.source_title)}  {how}"
        + (f"  {state}" if state else "")
    )


def _format_citation_date(cite: Citation) -> str:
    """Return the local time of the citing call, as text.

    If this time is unknown, return "no date" or, for a JP conversation, its start time.
    """
    time = cite.timestamp
    if time is None and cite.conversation.startswith(JP_ID_PREFIX):
        time = decode_jp_id_creation_time(cite.conversation)
    return f"{time.astimezone():%Y-%m-%d %H:%M}" if time else "no date"


def format_uses_and_used_by_markdown(
    ref: str,
    uses: Sequence[Citation],
    used_by: Sequence[Citation],
    list_mark_labels: Callable[[str], Iterable[str]] = lambda _: (),
) -> str:
    """Return two Markdown lists: the citations that `ref` makes, and the turns that cite `ref`.

    `uses` and `used_by` are as in `make_uses_and_used_by_json`. The first list is numbered as in the citations
    pane. `list_mark_labels` takes the reference of a turn, and returns the user's marks on this turn.
    """
    parts = []
    if uses:
        lines = [f"{number}. {_format_citation_line(cite)}" for number, cite in enumerate(uses, 1)]
        parts.append("\n".join([f"Citations of `{ref}`:", "", *lines]))
    if used_by:
        turns = {cite.source: cite for cite in reversed(used_by)}
        lines = [
            f"- `{turn}` {_escape_markdown(cite.source_title)} ({_format_citation_date(cite)})"
            + "".join(f"\n  - mark: {_escape_markdown(label)}" for label in list_mark_labels(turn))
            for turn, cite in reversed(turns.items())
        ]
        parts.append("\n".join([f"Turns that cite `{ref}`:", "", *lines]))
    parts = parts or [f"No citations to or from `{ref}`."]
    return "\n\n".join(parts) + "\n"
