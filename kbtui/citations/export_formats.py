"""The formats in which a conversation is exported, and the ranges of turns that people type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from kbtui.errors import UsageError

if TYPE_CHECKING:
    from kbtui.citations.shared_conversation import SharedConversation

ExportFormat = Literal["html", "markdown", "json", "jsonl"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
_SUFFIXES: dict[str, ExportFormat] = {
    "html": "html",
    "htm": "html",
    "json": "json",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
}
FORMAT_SUFFIXES: dict[ExportFormat, str] = {
    "html": ".html",
    "markdown": ".md",
    "json": ".json",
    "jsonl": ".jsonl",
}
"""Format -> the suffix of the file name that kbtui proposes."""


def get_export_format_of_path(path: str) -> ExportFormat:
    """Return the export format for the suffix of a file; Markdown for an unknown suffix."""
    return _SUFFIXES.get(path.rpartition(".")[2].lower(), "markdown")


def format_shared_conversation(shared: SharedConversation, name: ExportFormat) -> str:
    """Return a shared conversation as text in a format."""
    from kbtui.citations import shared_conversation

    if name == "html":
        from kbtui.citations.conversation_html import format_conversation_html

        return format_conversation_html(shared)
    if name == "json":
        return shared_conversation.format_shared_conversation_json(shared)
    if name == "jsonl":
        return shared_conversation.format_shared_conversation_jsonl(shared)
    return shared_conversation.format_shared_conversation_markdown(shared)


_MAX_DIGITS = 6


def parse_turn_ranges(text: str) -> frozenset[int]:
    """Return the numbers of turns in ranges such as `1,4,7-9`.

    Raises `UsageError` if the text is no list of ranges.
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
