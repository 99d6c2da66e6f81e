"""A shared conversation as one HTML file without scripts, which loads nothing from elsewhere."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING, Any

from kbtui.citations.citation_and_conversation_export import (
    CITATION_METHOD_LABELS,
    format_citation_state,
    format_given_text_remark,
)
from kbtui.citations.shared_conversation import describe_masked_secrets, get_given_text
from kbtui.conversations.event_kinds import EVENT_KINDS
from kbtui.conversations.models import format_event_text
from kbtui.dates import format_timestamp
from kbtui.text import (
    cut_to_width,
    format_counted_noun,
    format_json,
    sanitize,
    sanitize_to_one_line,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token

    from kbtui.citations.shared_conversation import SharedConversation
    from kbtui.citations.tool_call_citations import Citation
    from kbtui.conversations.models import ConversationEvent, Turn

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


def format_conversation_html(shared: SharedConversation) -> str:
    """Return a shared conversation as one HTML document.

    Tool calls, reasoning and given texts are folded. Images and links in messages become texts with
    their addresses. The document's content security policy forbids a browser to load anything.
    """
    digest = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = _escape_line(shared.title)
    head = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
    ]
    body = [
        f"<header>\n<h1>{title}</h1>",
        _format_facts(shared),
        *([f"<p>{_escape_line(shared.remark)}</p>"] if shared.remark else []),
        *_format_masked_secrets(shared),
        *_format_contents(shared.turns),
        "</header>\n<main>",
        *(part for turn in shared.turns for part in _format_turn(shared, turn)),
        "</main>\n<footer>Exported by kbtui.</footer>\n</body>\n</html>\n",
    ]
    return "\n".join(head + body)


def _format_facts(shared: SharedConversation) -> str:
    conversation, info = shared.conversation, shared.conversation.info
    shown = len(shared.turns)
    total = len(conversation.turns)
    facts = {
        "Conversation": info.ref,
        "Agent": info.agent,
        "Created": format_timestamp(info.created_at),
        "Assistant": conversation.assistant,
        "Model": conversation.model,
        "Part of": info.parent,
        "Labels": ", ".join(f"{key}={value}" for key, value in info.labels.items()),
        "Attachments": ", ".join(conversation.attachments),
        "Turns": str(total) if shown == total else f"{shown} of {total}",
    }
    rows = (
        f"<dt>{name}</dt><dd>{_escape_line(value)}</dd>" for name, value in facts.items() if value
    )
    return f"<dl>{''.join(rows)}</dl>"


def _format_masked_secrets(shared: SharedConversation) -> Iterator[str]:
    if shared.masked is None:
        yield f'<p id="unmasked"><strong>{_escape_line(shared.warning or "")}</strong></p>'
        return
    lines = describe_masked_secrets(shared)
    total = sum(one.times for one in shared.masked)
    if not total:
        yield '<p class="dim">kbtui found no secrets in this export.</p>'
        return
    items = "".join(f"<li>{_escape_line(line)}</li>" for line in lines)
    is_or_are = "is" if total == 1 else "are"
    summary = f"{format_counted_noun(total, 'secret')} {is_or_are} masked"
    yield f'<details id="masked"><summary>{summary}</summary><ul>{items}</ul></details>'


def _format_contents(turns: Sequence[Turn]) -> Iterator[str]:
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


def _format_turn(shared: SharedConversation, turn: Turn) -> Iterator[str]:
    rewound = " (rewound)" if turn.is_rewound else ""
    time = (
        f' <span class="dim">{format_timestamp(turn.started_at)}</span>' if turn.started_at else ""
    )
    yield f'<section id="turn-{turn.number}">\n<h2>Turn {turn.number}{rewound}{time}</h2>'
    for label in shared.marks.get(turn.number, ()):
        yield f"<p><strong>Mark:</strong> {_escape_line(label)}</p>"
    yield from map(_format_event, turn.events)
    if cited := shared.citations_by_turn.get(turn.number):
        yield "<h3>Used in this turn</h3>"
        yield from map(_format_citation, cited)
    yield "</section>"


def _format_event(event: ConversationEvent) -> str:
    """Return an event as HTML.

    Requests, messages, notices, questions and answers are unfolded; all other events are folded.
    """
    kind = EVENT_KINDS[event.kind]
    label = event.author or kind.label
    call = f" {event.call}" if event.call else ""
    name = f" <code>{_escape_line(event.name)}</code>" if event.name else ""
    outcome = f" · {_escape_line(event.outcome)}" if event.outcome else ""
    error = " · error" if event.is_error else ""
    heading = f"{_escape_line(label)}{call}{name}{outcome}{error}"
    if event.kind in ("chat_request", "message", "notice", "inquiry_request", "inquiry_response"):
        values = _format_code(format_json(event.values)) if event.values else ""
        style = "request" if event.kind == "chat_request" else event.kind
        text = f'<div class="text">{render_markdown(event.text)}</div>{values}'
        return f'<article class="{style}">\n<h3>{heading}</h3>\n{text}\n</article>'
    if kind.language is None:
        body = f'<div class="text subdued">{render_markdown(event.text)}</div>'
    else:
        body = _format_code(event.text) if event.text else ""
    if event.values:
        body += _format_code(format_json(event.values))
    first = cut_to_width(sanitize_to_one_line(format_event_text(event)[:400]), _SUMMARY_WIDTH)
    style = ' class="error"' if event.is_error else ""
    summary = f'{heading} <span class="dim">{escape(first)}</span>'
    return f"<details{style}><summary>{summary}</summary>\n{body}\n</details>"


def _format_citation(citation: Citation) -> str:
    has_title = citation.title not in (citation.target, "")
    facts = [
        CITATION_METHOD_LABELS[citation.how],
        f"call {citation.call}" if citation.call else "",
        format_citation_state(citation),
    ]
    title = f" {_escape_line(citation.title)}" if has_title else ""
    summary = (
        f"<code>{_escape_line(citation.target)}</code>{title}"
        f' <span class="dim">({_escape_line(", ".join(filter(None, facts)))})</span>'
    )
    given = get_given_text(citation)
    if not given:
        return f'<p class="citation">{summary}</p>'
    remark = format_given_text_remark(citation)
    note = f'<p class="dim">{escape(remark)}</p>' if remark else ""
    return f'<details class="citation"><summary>{summary}</summary>{note}{_format_code(given)}</details>'


def _format_code(text: str) -> str:
    return f"<pre><code>{escape(sanitize(text, 'strip'))}</code></pre>"


def _escape_line(text: str) -> str:
    return escape(sanitize_to_one_line(text, "strip"))


def render_markdown(text: str) -> str:
    """Return a Markdown text as HTML. HTML in the text, links and images become plain text."""
    return str(_make_markdown_parser().render(sanitize(text, "strip"), {"addresses": []}))


@cache
def _make_markdown_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("js-default", {"html": False, "linkify": False})
    for name, rule in {
        "link_open": _render_link_start,
        "link_close": _render_link_end,
        "image": _render_image,
    }.items():
        parser.add_render_rule(name, rule)
    return parser


def _render_link_start(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, environment: Any
) -> str:
    link = tokens[index]
    address = "" if link.markup == "autolink" else str(link.attrGet("href") or "")
    environment["addresses"].append(address)
    return '<span class="link">'


def _render_link_end(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, environment: Any
) -> str:
    return "</span>" + _format_address(environment["addresses"].pop())


def _render_image(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, environment: Any
) -> str:
    image = tokens[index]
    address = _format_address(str(image.attrGet("src") or ""))
    return f'<span class="link">image: {_escape_line(image.content)}</span>{address}'


def _format_address(address: str) -> str:
    cut = cut_to_width(sanitize_to_one_line(address, "strip"), _MAX_ADDRESS_WIDTH)
    return f' <span class="address">({escape(cut)})</span>' if cut else ""
