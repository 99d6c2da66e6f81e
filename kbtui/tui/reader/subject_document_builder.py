"""Builds the document of a subject: rendered, as source text, or as the output of `learn`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtui.knowledge.front_matter import split_front_matter
from kbtui.secret_detection import describe_secrets_in_text
from kbtui.terminal_text import sanitize_to_one_line
from kbtui.tui.reader.reader_blocks import (
    FactTableReaderBlock,
    ParagraphReaderBlock,
    ReaderBlock,
    make_markdown_blocks,
    make_source_text_blocks,
)
from kbtui.tui.reader.reader_document import (
    ReaderDocument,
    count_text_lines,
    format_characters_and_tokens,
    format_token_estimate,
)

if TYPE_CHECKING:
    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.tui.framework.styled_text import Spans

NO_KNOWLEDGE_SECTION = (
    "There is no <knowledge> section, because no topic has a subject to list or pre-load."
)
SUBJECT_VIEWS = ("read", "source", "learn")
_MARKDOWN = {".md", ".markdown", ".mdown"}


def make_subject_badges(subject: Subject) -> Spans:
    """Return the badges that apply to a subject, such as "hidden" and "pre-loaded"."""
    badges = (
        (subject.hidden, "hidden", "dim"),
        (subject.learned, "pre-loaded", "accent"),
        (subject.disabled, "disabled", "warning"),
        (subject.shadowed, "another file has the same slug", "warning"),
    )
    return [(text, role) for applies, text, role in badges if applies]


def build_subject_document(subject: Subject, text: str, view: str = "read") -> ReaderDocument:
    """Build the document that shows a subject; `view` is "read" or "source"."""
    if not text.strip():
        blocks: list[ReaderBlock] = [
            ParagraphReaderBlock("empty", [("This file is empty.", "dim")])
        ]
    elif view == "read" and subject.path.suffix.lower() in _MARKDOWN:
        blocks = _make_rendered_markdown_blocks(text)
    else:
        language, digits = (
            _find_highlight_language_of_subject(subject),
            len(str(text.count("\n") + 1)),
        )
        blocks = make_source_text_blocks(
            "text", text, has_line_numbers=True, language=language, numbers=digits
        )
    ref = subject.ref
    secret = describe_secrets_in_text(text)
    return ReaderDocument(
        key=ref,
        title=sanitize_to_one_line(ref),
        blocks=blocks,
        ref=ref,
        view=view,
        views=SUBJECT_VIEWS,
        badges=[*make_subject_badges(subject), *([(secret, "warning")] if secret else [])],
        size=format_characters_and_tokens(len(text)),
        short_size=format_token_estimate(len(text)),
        record=subject,
        lines_total=count_text_lines(text),
    )


def build_assistant_text_document(
    key: str, title: str, text: str, *, view: str = "learn", ref: str | None = None
) -> ReaderDocument:
    """Build a document that shows `text` exactly as an assistant receives it."""
    blocks = make_source_text_blocks("text", text, has_line_numbers=True)
    return ReaderDocument(
        key=key,
        title=title,
        blocks=blocks,
        ref=ref,
        view=view,
        size=format_characters_and_tokens(len(text)),
        short_size=format_token_estimate(len(text)),
        lines_total=count_text_lines(text),
    )


def _find_highlight_language_of_subject(subject: Subject) -> str:
    suffix = subject.path.suffix.lower()
    if suffix in {".txt", ".text"}:
        return ""
    return "markdown" if suffix in _MARKDOWN else suffix.lstrip(".")  # Pygments knows most suffixes


def _make_rendered_markdown_blocks(text: str) -> list[ReaderBlock]:
    split = split_front_matter(text)
    facts = [
        (sanitize_to_one_line(name), [(_format_front_matter_value(value), "")])
        for name, value in split.facts.items()
    ]
    front: list[ReaderBlock] = [FactTableReaderBlock("front", facts)] if facts else []
    start, above = len(text) - len(split.body), int(bool(front))
    body = make_markdown_blocks("text", text, start=start, lines_before=split.lines, above=above)
    return [*front, *body]


def _format_front_matter_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(sanitize_to_one_line(str(item)) for item in value)
    return sanitize_to_one_line(str(value)) if value is not None else ""
