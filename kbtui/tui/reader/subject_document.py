"""Build the document of a subject: rendered, as source text, or as the output of `learn`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtui.knowledge.front_matter import split_front_matter
from kbtui.secret_detection import describe_secrets
from kbtui.text import one_line
from kbtui.tui.reader.document import Document, count_lines, format_token_cost
from kbtui.tui.reader.document_blocks import (
    DocumentBlock,
    FactTableBlock,
    ParagraphBlock,
    make_markdown_blocks,
    make_source_blocks,
)

if TYPE_CHECKING:
    from kbtui.knowledge.models import Subject
    from kbtui.tui.framework.styled_text import Spans

VIEWS = ("read", "source", "learn")
_MARKDOWN = {".md", ".markdown", ".mdown"}
_PLAIN = {"", ".txt", ".text"}
_LANGUAGES = {
    ".rs": "rust",
    ".py": "python",
    ".js": "javascript",
    ".ts": "typescript",
    ".yml": "yaml",
    ".sh": "bash",
}


def make_subject_badges(subject: Subject) -> Spans:
    """Return the state of a subject as badges: hidden, pre-loaded, disabled, shadowed."""
    words: Spans = []
    if subject.hidden:
        words.append(("hidden", "dim"))
    if subject.learned:
        words.append(("pre-loaded", "accent"))
    if subject.disabled:
        words.append(("disabled", "warning"))
    if subject.shadowed:
        words.append(("shadowed by another file", "warning"))
    return words


def build_subject_document(subject: Subject, text: str, view: str = "read") -> Document:
    """Build the document of a subject for the view `read` or `source`."""
    blocks = (
        _make_numbered_source(text, _find_language(subject))
        if view == "source"
        else _make_rendered_blocks(subject, text)
    )
    if not text.strip():
        blocks = [ParagraphBlock("empty", [("This file is empty.", "dim")])]
    ref = f"{subject.topic}/{subject.slug}"
    return Document(
        key=ref,
        title=one_line(ref),
        blocks=blocks,
        ref=ref,
        view=view,
        views=VIEWS,
        badges=[*make_subject_badges(subject), *_make_secret_badge(text)],
        size=format_token_cost(len(text)),
        record=subject,
        lines_total=count_lines(text),
    )


def _make_secret_badge(text: str) -> Spans:
    """Return a warning as a badge if a text seems to contain a key or a password."""
    said = describe_secrets(text)
    return [(said, "warning")] if said else []


def build_text_document(
    key: str, title: str, text: str, *, view: str = "learn", ref: str | None = None
) -> Document:
    """Build a document that shows a text exactly as an assistant receives it."""
    blocks = make_source_blocks("text", text, has_line_numbers=True)
    return Document(
        key=key,
        title=title,
        blocks=blocks,
        ref=ref,
        view=view,
        size=format_token_cost(len(text)),
        lines_total=count_lines(text),
    )


def _find_language(subject: Subject) -> str:
    suffix = subject.path.suffix.lower()
    if suffix in _MARKDOWN:
        return "markdown"
    return "" if suffix in _PLAIN else _LANGUAGES.get(suffix, suffix.lstrip("."))


def _make_numbered_source(text: str, language: str) -> list[DocumentBlock]:
    digits = len(str(text.count("\n") + 1))
    return make_source_blocks(
        "text", text, has_line_numbers=True, language=language, numbers=digits
    )


def _make_rendered_blocks(subject: Subject, text: str) -> list[DocumentBlock]:
    suffix = subject.path.suffix.lower()
    if suffix not in _MARKDOWN:
        return _make_numbered_source(text, _find_language(subject))
    split = split_front_matter(text)
    facts: list[tuple[str, Spans]] = [
        (one_line(name), [(_format_front_matter_value(value), "")])
        for name, value in split.facts.items()
    ]
    front: list[DocumentBlock] = [FactTableBlock("front", facts)] if facts else []
    start = len(text) - len(split.body)
    body = make_markdown_blocks(
        "text", text, start=start, lines_before=split.lines, above=int(bool(front))
    )
    return [*front, *body]


def _format_front_matter_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(one_line(str(item)) for item in value)
    return one_line(str(value)) if value is not None else ""
