"""The XML envelopes of the conversation tools: two spaces of indentation, one element a field.

A field that is null has no element. Text stands as it is, lines and all, with
the three signs of XML escaped and control characters removed, so that any
content parses and none can close an element of ours.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kbtui.errors import UsageError
from kbtui.text import pretty_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# What XML 1.0 cannot say, and the controls that it can but nobody should read.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SUSPECT = re.compile("[\x00-\x08\x0b-\x1f&<>\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_BACKTICKS = re.compile("`+")


def to_xml(kind: str, answer: dict[str, Any]) -> str:
    """An answer of `list`, `grep` or `read` as its envelope, without a final newline."""
    if kind == "list":
        return "\n".join(_list(answer))
    if kind == "grep":
        return "\n".join(_grep(answer))
    if kind == "read":
        return read_envelope(answer, [turn_xml(turn) for turn in answer["turns"]])
    raise UsageError(f"there is no answer of kind {kind!r}")


def read_envelope(answer: dict[str, Any], turns: list[str]) -> str:
    """The envelope of `conversation_read` around turns that are XML already."""
    lines = ["<conversation_read>"]
    for name in ("id", "title", "turns_total", "count", "omitted", "hint"):
        lines += _field(name, answer[name], 2)
    lines += ["  <turns>", *turns, "  </turns>"] if turns else ["  <turns></turns>"]
    return "\n".join([*lines, "</conversation_read>"])


def entry_xml(entry: Mapping[str, Any]) -> str:
    """One conversation, indented as it stands in the list."""
    lines = ["    <conversation>"]
    for name, value in entry.items():
        if name != "labels":
            lines += _field(name, value, 6)
        elif entry["labels"]:
            lines.append("      <labels>")
            for key, text in entry["labels"].items():
                lines += _field("label", f"{key}={text}" if text else key, 8)
            lines.append("      </labels>")
    return "\n".join([*lines, "    </conversation>"])


def hit_xml(hit: dict[str, Any]) -> str:
    """One hit, indented as it stands in its envelope."""
    lines = ["    <hit>"]
    for name, value in hit.items():
        lines += _field(name, value, 6)
    return "\n".join([*lines, "    </hit>"])


def turn_xml(turn: Mapping[str, Any]) -> str:
    """One turn, indented as it stands in its envelope."""
    lines = ["    <turn>", *_field("turn", turn["turn"], 6)]
    events = turn["events"]
    if not events:
        return "\n".join([*lines, "      <events></events>", "    </turn>"])
    lines.append("      <events>")
    lines += [event_xml(event) for event in events]
    return "\n".join([*lines, "      </events>", "    </turn>"])


def event_xml(event: Mapping[str, Any]) -> str:
    """One event, indented as it stands in its turn."""
    lines = ["        <event>"]
    for name, value in event.items():
        if name == "arguments":
            lines.append(f"          <arguments>\n{fenced(value)}\n          </arguments>")
        else:
            lines += _field(name, value, 10)
    return "\n".join([*lines, "        </event>"])


def fenced(value: Any) -> str:
    """A JSON value in a fence that nothing in it can close, escaped."""
    text = pretty_json(value)
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}json\n{escape(text)}\n{fence}"


def escape(text: str) -> str:
    """Text that stands in an element."""
    if not _SUSPECT.search(text):
        return text
    text = _SURROGATE.sub("\ufffd", _FORBIDDEN.sub("", text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _field(name: str, value: Any, indent: int) -> Iterator[str]:
    if value is None:
        return
    if isinstance(value, bool):
        value = "true" if value else "false"
    yield f"{' ' * indent}<{name}>{escape(str(value))}</{name}>"


def _list(answer: dict[str, Any]) -> Iterator[str]:
    yield "<conversation_list>"
    for name in ("total", "offset", "count", "omitted", "hint"):
        yield from _field(name, answer[name], 2)
    if not answer["conversations"]:
        yield "  <conversations></conversations>"
    else:
        yield "  <conversations>"
        yield from map(entry_xml, answer["conversations"])
        yield "  </conversations>"
    yield "</conversation_list>"


def _grep(answer: dict[str, Any]) -> Iterator[str]:
    yield "<conversation_grep>"
    for name in ("total", "count", "omitted", "hint"):
        yield from _field(name, answer[name], 2)
    if not answer["hits"]:
        yield "  <hits></hits>"
    else:
        yield "  <hits>"
        yield from map(hit_xml, answer["hits"])
        yield "  </hits>"
    yield "</conversation_grep>"
