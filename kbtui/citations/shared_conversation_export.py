"""Exports chosen turns and events of a conversation for other people, with masked secrets.

The formats are Markdown, JSON, JSON Lines and HTML.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING, Any, Literal, get_args

from kbtui.citations.citation_formatting_and_markdown_export import (
    CITATION_METHOD_LABELS,
    explain_incomplete_given_text,
    format_citation_state,
    format_conversation_markdown,
    make_citation_json,
)
from kbtui.conversations.conversation_data_types import format_event_text, make_event_json
from kbtui.conversations.conversation_event_kinds import EVENT_KINDS
from kbtui.dates import format_time_as_rfc3339_utc
from kbtui.errors import UsageError
from kbtui.light_named_tuple import NamedTuple
from kbtui.notices import format_notice
from kbtui.secret_detection import SecretMasker, count_masks
from kbtui.terminal_text import (
    cut_to_width,
    format_counted_noun,
    format_readable_json,
    sanitize,
    sanitize_to_one_line,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token

    from kbtui.citations.tool_call_citations import Citation
    from kbtui.conversations.conversation_data_types import Conversation, ConversationEvent, Turn
    from kbtui.conversations.turn_decision_marks import ConversationMarks


class MaskedSecretsAtPlace(NamedTuple):
    """The secrets of one kind that were masked at one place in a conversation.

    * `turn` is None for the title and other facts about the conversation.
    * `part` is `citation`, `mark`, `facts` or the kind of an event.
    * `times` is the number of masks.
    """

    kind: str
    turn: int | None
    call: int | None
    part: str
    times: int

    def as_json(self) -> dict[str, object]:
        """Return the masked secrets in the documented JSON format."""
        place = {"turn": self.turn, "call": self.call, "part": self.part}
        return {"kind": self.kind, **place, "count": self.times}


@dataclass
class SharedConversationParts:
    """The parts of a conversation that are shared with other people.

    * `conversation` contains all turns, and `turns` only the shared ones.
    * `marks` maps the number of a turn to the labels of its marks.
    * `remark` says that the marks cannot be read; it is None if they can be read.
    * `masked` lists the masked secrets; it is None if secrets were not masked.
    """

    conversation: Conversation
    turns: list[Turn]
    citations: list[Citation]
    marks: dict[int, list[str]]
    remark: str | None = None
    masked: list[MaskedSecretsAtPlace] | None = None

    @property
    def unmasked_secrets_warning(self) -> str | None:
        """A warning that secrets were not masked; None if they were masked."""
        return (
            None
            if self.masked is not None
            else "Secrets were not masked; this export contains them unchanged."
        )

    @cached_property
    def citations_by_turn(self) -> dict[int, list[Citation]]:
        """Maps the number of each turn to its citations. Turns without citations are left out."""
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
    marks: ConversationMarks | None = None,
    *,
    masks_secrets: bool = True,
) -> SharedConversationParts:
    """Prepare `turns` of a conversation for sharing, with only the events whose kind is in `kinds`.

    Citations contain texts from the results of tool calls only if `kinds` includes results. If
    `masks_secrets` is true, a secret that kbtui recognizes anywhere in the conversation is masked
    everywhere.
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
        number: [mark.make_json_for_hit_or_turn()["label"] for mark in found]
        for number, found in (marks.by_turn if marks else {}).items()
        if number in numbers
    }
    remark = format_notice(marks.notice) if marks and marks.notice else None
    shared = SharedConversationParts(conversation, chosen, cited, labels, remark)
    return _ConversationMasker(conversation).mask_conversation(shared) if masks_secrets else shared


@dataclass
class _ConversationMasker:
    """Masks the secrets of one conversation, and records what it masked."""

    conversation: Conversation
    masker: SecretMasker = field(default_factory=SecretMasker)
    masked: list[MaskedSecretsAtPlace] = field(default_factory=list)

    def __post_init__(self) -> None:
        info = self.conversation.info
        self.masker.remember_secrets([info.title, dict(info.labels), self.conversation.attachments])
        # Search all turns: the context that identifies a secret may be in a turn that is not shared.
        for turn in self.conversation.turns:
            for event in turn.events:
                for name, value in _get_maskable_event_values(event).items():
                    self.masker.remember_secrets(value, name)

    def mask_conversation(self, shared: SharedConversationParts) -> SharedConversationParts:
        for label in (label for labels in shared.marks.values() for label in labels):
            self.masker.remember_secrets(label)
        for citation in shared.citations:
            self.masker.remember_secrets(_get_maskable_citation_texts(citation))
        conversation = self._mask_conversation_facts(shared.conversation)
        turns = [
            replace(turn, events=[self._mask_event(event, turn) for event in turn.events])
            for turn in shared.turns
        ]
        citations = [self._mask_citation(citation) for citation in shared.citations]
        marks = {
            number: self._mask_secrets_in_value(labels, number, None, "mark")
            for number, labels in shared.marks.items()
        }
        return SharedConversationParts(
            conversation, turns, citations, marks, shared.remark, self.masked
        )

    def _mask_secrets_in_value(
        self, value: Any, turn: int | None, call: int | None, part: str
    ) -> Any:
        """Return a JSON value with its secrets masked, and record the masked secrets."""
        after = self.masker.mask_secrets(value)
        self.masked += [
            MaskedSecretsAtPlace(kind, turn, call, part, times)
            for kind, times in (count_masks(after) - count_masks(value)).items()
        ]
        return after

    def _mask_conversation_facts(self, conversation: Conversation) -> Conversation:
        info = conversation.info
        facts = {
            "title": info.title,
            "labels": dict(info.labels),
            "assistant": conversation.assistant,
            "model": conversation.model,
            "attachments": conversation.attachments,
        }
        masked = self._mask_secrets_in_value(facts, None, None, "facts")
        info = replace(info, title=masked.pop("title"), labels=masked.pop("labels"))
        return replace(conversation, info=info, **masked)

    def _mask_event(self, event: ConversationEvent, turn: Turn) -> ConversationEvent:
        values = self._mask_secrets_in_value(
            _get_maskable_event_values(event), turn.number, event.call, event.kind
        )
        if event.blocks is not None:
            masked = zip(event.blocks, values["blocks"], strict=True)
            values["blocks"] = [replace(block, **texts) for block, texts in masked]
        metadata = _remove_metadata_except_subagent_id(event.metadata)
        return replace(event, **values, metadata=metadata, request=None, result=None)

    def _mask_citation(self, citation: Citation) -> Citation:
        texts = self._mask_secrets_in_value(
            _get_maskable_citation_texts(citation), citation.turn, citation.call, "citation"
        )
        given = citation.given
        if given is not None:
            given = given._replace(text=texts.pop("given"), result="")
        return citation._replace(**texts, given=given)


def _get_maskable_event_values(event: ConversationEvent) -> dict[str, Any]:
    """Return the attributes of an event that can contain secrets."""
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
            # The text of the event contains the texts of its blocks.
            {"text": "", "name": block.name, "title": block.title}
            for block in event.blocks or ()
        ],
    }


def _remove_metadata_except_subagent_id(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return only the item that identifies a subagent. Other metadata, such as signatures, is not exported."""
    return {"subagent": metadata["subagent"]} if metadata and "subagent" in metadata else None


def _get_maskable_citation_texts(citation: Citation) -> dict[str, str]:
    texts = {
        "title": citation.title,
        "target": citation.target,
        "quote": citation.quote,
        "tool": citation.tool,
        "source_title": citation.source_title,
    }
    return texts | ({"given": citation.given.text} if citation.given else {})


def describe_masked_secrets_by_place(shared: SharedConversationParts) -> list[str]:
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


def get_given_or_quoted_text(citation: Citation) -> str:
    """Return the text of the subject that the call gave to the turn, or else the beginning of the cited passage.

    Returns "" if neither is known.
    """
    return citation.given.text if citation.given else citation.quote


def format_shared_conversation_markdown(shared: SharedConversationParts) -> str:
    """Return a shared conversation as Markdown, with its citations and a list of the masked secrets."""
    text = format_conversation_markdown(
        shared.conversation,
        shared.turns,
        shared.citations_by_turn,
        shared.marks,
        filter(None, (shared.remark, shared.unmasked_secrets_warning)),
    )
    if lines := describe_masked_secrets_by_place(shared):
        text += "\n## Masked secrets\n\n" + "".join(f"- {line}\n" for line in lines)
    return text


# JSON


def make_shared_conversation_json(shared: SharedConversationParts) -> dict[str, Any]:
    """Return a shared conversation as JSON; `docs/guide/json.md` describes it."""
    turns = [
        {
            "turn": turn.number,
            "started_at": format_time_as_rfc3339_utc(turn.started_at),
            "model": turn.model,
            "rewound": turn.is_rewound,
            "attachments": turn.attachment_count,
            "marks": shared.marks.get(turn.number, []),
            "events": [
                make_event_json(event, shared.conversation.info.id) for event in turn.events
            ],
            "citations": [
                {
                    **make_citation_json(citation),
                    "given": get_given_or_quoted_text(citation) or None,
                }
                for citation in shared.citations_by_turn.get(turn.number, ())
            ],
        }
        for turn in shared.turns
    ]
    return {
        **_make_shared_conversation_facts_json(shared),
        "turns": turns,
        "masked": None if shared.masked is None else [one.as_json() for one in shared.masked],
    }


def _make_jsonl_records(shared: SharedConversationParts) -> Iterator[dict[str, Any]]:
    """Yield the records of a shared conversation: one for each turn, event and citation."""
    whole = make_shared_conversation_json(shared)
    turns, masked = whole.pop("turns"), whole.pop("masked")
    yield {"type": "conversation", **whole}
    for turn in turns:
        events, citations = turn.pop("events"), turn.pop("citations")
        yield {"type": "turn", **turn}
        yield from ({"type": "event", "turn": turn["turn"], **event} for event in events)
        yield from ({"type": "citation", "turn": turn["turn"], **one} for one in citations)
    yield {"type": "end", "masked": masked}


def _make_shared_conversation_facts_json(shared: SharedConversationParts) -> dict[str, Any]:
    conversation, info = shared.conversation, shared.conversation.info
    return {
        "id": info.id,
        "agent": info.agent,
        "title": info.title,
        "created_at": format_time_as_rfc3339_utc(info.created_at),
        "last_event_at": format_time_as_rfc3339_utc(info.last_event_at),
        "parent_id": info.parent,
        "labels": info.labels,
        "assistant": conversation.assistant,
        "model": conversation.model,
        "attachments": conversation.attachments,
        "turns_total": len(conversation.turns),
    }


_STYLE = """
:root { color-scheme: light dark; --text: #1c2128; --dim: #57606a; --page: #ffffff; --panel: #f4f6f8;
  --line: #d0d7de; --user: #1a7f37; --link: #0550ae; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --text: #dde3ea; --dim: #9aa5b1; --page: #14181d;
  --panel: #1d232a; --line: #363f4a; --user: #57c26f; --link: #79b8ff; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 52rem; background: var(--page); color: var(--text);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1rem; margin: 2.5rem 0 1rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
h3 { font-size: .9rem; margin: 1.25rem 0 .25rem; }
.text h1, .text h2, .text h3, .text h4 { font-size: 1.05rem; border: 0; margin: 1rem 0 .5rem; padding: 0; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .1rem 1rem; margin: 0; font-size: .9rem; }
dt, .dim, .address { color: var(--dim); } dd { margin: 0; }
.request { border-left: 3px solid var(--user); padding-left: .75rem; } .request h3 { color: var(--user); }
.error > summary, .error > h3 { color: var(--bad); }
.subdued { color: var(--dim); } #unmasked { color: var(--bad); }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .6rem;
  overflow-x: auto; font-size: .85rem; line-height: 1.4; white-space: pre; }
code { font-family: ui-monospace, monospace; } :not(pre) > code { background: var(--panel); padding: 0 .2em; }
blockquote { margin: .5rem 0; padding-left: .75rem; border-left: 3px solid var(--line); color: var(--dim); }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .2rem .5rem; text-align: left; }
details { border: 1px solid var(--line); border-radius: 6px; padding: .3rem .6rem; margin: .4rem 0; }
summary { cursor: pointer; font-size: .9rem; } summary code { background: none; }
a, .link { color: var(--link); } .address { font-size: .85em; }
footer { margin-top: 3rem; color: var(--dim); font-size: .85rem; }
@media print { details { border: 0; } }
"""
_MAX_ADDRESS_WIDTH = 300
_SUMMARY_WIDTH = 100


def format_conversation_html(shared: SharedConversationParts) -> str:
    """Return a shared conversation as one HTML document.

    Tool calls, reasoning and the texts of citations are folded. Images and links in messages become
    plain text with their addresses. The document's content security policy prevents browsers from
    loading anything.
    """
    digest = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = _escape_html_line(shared.title)
    head = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
    ]
    body = [
        f"<header>\n<h1>{title}</h1>",
        _format_conversation_facts_as_html(shared),
        *([f"<p>{_escape_html_line(shared.remark)}</p>"] if shared.remark else []),
        *_format_masked_secrets_notice_html(shared),
        *_format_table_of_contents(shared.turns),
        "</header>\n<main>",
        *(part for turn in shared.turns for part in _format_turn_as_html(shared, turn)),
        "</main>\n<footer>Exported by kbtui.</footer>\n</body>\n</html>\n",
    ]
    return "\n".join(head + body)


def _format_conversation_facts_as_html(shared: SharedConversationParts) -> str:
    conversation, info = shared.conversation, shared.conversation.info
    shown = len(shared.turns)
    total = len(conversation.turns)
    facts = {
        "Conversation": info.ref,
        "Agent": info.agent,
        "Created": format_time_as_rfc3339_utc(info.created_at),
        "Assistant": conversation.assistant,
        "Model": conversation.model,
        "Part of": info.parent,
        "Labels": ", ".join(f"{key}={value}" for key, value in info.labels.items()),
        "Attachments": ", ".join(conversation.attachments),
        "Turns": str(total) if shown == total else f"{shown} of {total}",
    }
    rows = (
        f"<dt>{name}</dt><dd>{_escape_html_line(value)}</dd>"
        for name, value in facts.items()
        if value
    )
    return f"<dl>{''.join(rows)}</dl>"


def _format_masked_secrets_notice_html(shared: SharedConversationParts) -> Iterator[str]:
    if shared.masked is None:
        yield f'<p id="unmasked"><strong>{_escape_html_line(shared.unmasked_secrets_warning or "")}</strong></p>'
        return
    lines = describe_masked_secrets_by_place(shared)
    total = sum(one.times for one in shared.masked)
    if not total:
        yield '<p class="dim">kbtui found no secrets in this export.</p>'
        return
    items = "".join(f"<li>{_escape_html_line(line)}</li>" for line in lines)
    is_or_are = "is" if total == 1 else "are"
    summary = f"{format_counted_noun(total, 'secret')} {is_or_are} masked"
    yield f'<details id="masked"><summary>{summary}</summary><ul>{items}</ul></details>'


def _format_table_of_contents(turns: Sequence[Turn]) -> Iterator[str]:
    if len(turns) < 2:
        return
    items = []
    for turn in turns:
        request = next((one.text for one in turn.events if one.kind == "chat_request"), "")
        words = cut_to_width(sanitize_to_one_line(request[:400]), _SUMMARY_WIDTH)
        items.append(
            f'<li value="{turn.number}"><a href="#turn-{turn.number}">{escape(words) or "…"}</a></li>'
        )
    yield f"<details><summary>Turns</summary><ol>{''.join(items)}</ol></details>"


def _format_turn_as_html(shared: SharedConversationParts, turn: Turn) -> Iterator[str]:
    rewound = " (rewound)" if turn.is_rewound else ""
    time = (
        f' <span class="dim">{format_time_as_rfc3339_utc(turn.started_at)}</span>'
        if turn.started_at
        else ""
    )
    yield f'<section id="turn-{turn.number}">\n<h2>Turn {turn.number}{rewound}{time}</h2>'
    for label in shared.marks.get(turn.number, ()):
        yield f"<p><strong>Mark:</strong> {_escape_html_line(label)}</p>"
    yield from map(_format_event_as_html, turn.events)
    if cited := shared.citations_by_turn.get(turn.number):
        yield "<h3>Used in this turn</h3>"
        yield from map(_format_citation_as_html, cited)
    yield "</section>"


def _format_event_as_html(event: ConversationEvent) -> str:
    """Return an event as HTML.

    Requests, messages, notices, questions and answers are unfolded; all other events are folded.
    """
    kind = EVENT_KINDS[event.kind]
    label = event.author or kind.label
    call = f" {event.call}" if event.call else ""
    name = f" <code>{_escape_html_line(event.name)}</code>" if event.name else ""
    outcome = f" · {_escape_html_line(event.outcome)}" if event.outcome else ""
    error = " · error" if event.is_error else ""
    heading = f"{_escape_html_line(label)}{call}{name}{outcome}{error}"
    if event.kind in ("chat_request", "message", "notice", "inquiry_request", "inquiry_response"):
        values = (
            _format_code_as_html(format_readable_json(event.arguments_or_fields))
            if event.arguments_or_fields
            else ""
        )
        style = "request" if event.kind == "chat_request" else event.kind
        text = f'<div class="text">{render_markdown_as_html(event.text)}</div>{values}'
        return f'<article class="{style}">\n<h3>{heading}</h3>\n{text}\n</article>'
    if kind.language is None:
        body = f'<div class="text subdued">{render_markdown_as_html(event.text)}</div>'
    else:
        body = _format_code_as_html(event.text) if event.text else ""
    if event.arguments_or_fields:
        body += _format_code_as_html(format_readable_json(event.arguments_or_fields))
    first = cut_to_width(sanitize_to_one_line(format_event_text(event)[:400]), _SUMMARY_WIDTH)
    style = ' class="error"' if event.is_error else ""
    summary = f'{heading} <span class="dim">{escape(first)}</span>'
    return f"<details{style}><summary>{summary}</summary>\n{body}\n</details>"


def _format_citation_as_html(citation: Citation) -> str:
    has_title = citation.title not in (citation.target, "")
    facts = [
        CITATION_METHOD_LABELS[citation.how],
        f"call {citation.call}" if citation.call else "",
        format_citation_state(citation),
    ]
    title = f" {_escape_html_line(citation.title)}" if has_title else ""
    summary = (
        f"<code>{_escape_html_line(citation.target)}</code>{title}"
        f' <span class="dim">({_escape_html_line(", ".join(filter(None, facts)))})</span>'
    )
    given = get_given_or_quoted_text(citation)
    if not given:
        return f'<p class="citation">{summary}</p>'
    remark = explain_incomplete_given_text(citation)
    note = f'<p class="dim">{escape(remark)}</p>' if remark else ""
    return f'<details class="citation"><summary>{summary}</summary>{note}{_format_code_as_html(given)}</details>'


def _format_code_as_html(text: str) -> str:
    return f"<pre><code>{escape(sanitize(text, 'strip'))}</code></pre>"


def _escape_html_line(text: str) -> str:
    return escape(sanitize_to_one_line(text, "strip"))


def render_markdown_as_html(text: str) -> str:
    """Convert Markdown to HTML. Links, images and embedded HTML become plain text."""
    return str(_make_markdown_parser().render(sanitize(text, "strip"), {"addresses": []}))


@cache
def _make_markdown_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("js-default", {"html": False, "linkify": False})
    for name, rule in {
        "link_open": _render_link_start_as_span,
        "link_close": _render_link_end_as_span_and_address,
        "image": _render_image_as_span_and_address,
    }.items():
        parser.add_render_rule(name, rule)
    return parser


def _render_link_start_as_span(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, environment: Any
) -> str:
    link = tokens[index]
    address = "" if link.markup == "autolink" else str(link.attrGet("href") or "")
    environment["addresses"].append(address)
    return '<span class="link">'


def _render_link_end_as_span_and_address(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, environment: Any
) -> str:
    return "</span>" + _format_address_shown_after_link(environment["addresses"].pop())


def _render_image_as_span_and_address(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, environment: Any
) -> str:
    image = tokens[index]
    address = _format_address_shown_after_link(str(image.attrGet("src") or ""))
    return f'<span class="link">image: {_escape_html_line(image.content)}</span>{address}'


def _format_address_shown_after_link(address: str) -> str:
    cut = cut_to_width(sanitize_to_one_line(address, "strip"), _MAX_ADDRESS_WIDTH)
    return f' <span class="address">({escape(cut)})</span>' if cut else ""


ExportFormat = Literal["html", "markdown", "json", "jsonl"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
_SUFFIXES: dict[str, ExportFormat] = {
    "html": "html",
    "htm": "html",
    "json": "json",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
}


def get_export_format_of_path(path: str) -> ExportFormat:
    """Return the export format for the suffix of a file; Markdown for an unknown suffix."""
    return _SUFFIXES.get(path.rpartition(".")[2].lower(), "markdown")


def format_shared_conversation(shared: SharedConversationParts, name: ExportFormat) -> str:
    """Return a shared conversation as text in the format `name`."""
    if name == "html":
        return format_conversation_html(shared)
    if name == "json":
        shape = make_shared_conversation_json(shared)
        return json.dumps(shape, ensure_ascii=False, indent=2) + "\n"
    if name == "jsonl":
        lines = _make_jsonl_records(shared)
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return format_shared_conversation_markdown(shared)


_MAX_DIGITS = 6


def parse_turn_ranges(text: str) -> frozenset[int]:
    """Return the turn numbers in a list of ranges such as `1,4,7-9`.

    Raises `UsageError` if the text is not such a list.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        ends = [first, last] if dash else [first]
        if not all(one.isdecimal() and len(one) <= _MAX_DIGITS for one in ends) or int(first) < 1:
            message = f"{part.strip()!r} is not a range of turns"
            raise UsageError(message, hint="write 3, 2-5 or 1,4,7-9")
        if int(ends[-1]) < int(first):
            raise UsageError(f"the range {part.strip()!r} ends before it begins")
        numbers.update(range(int(first), int(ends[-1]) + 1))
    return frozenset(numbers)
