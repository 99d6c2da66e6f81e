"""Finds the links that the user can open, and the texts that the user can copy, at the current line."""

from __future__ import annotations

import posixpath
import re
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kbtui.light_named_tuple import NamedTuple
from kbtui.references import Ref, make_subject_ref, parse_ref
from kbtui.terminal_text import cut_to_width, sanitize_to_one_line, strip_escape_sequences
from kbtui.tui.reader.reader_blocks import ReaderBlock, TextRangeReaderBlock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kbtui.tui.framework.dialogs import DialogOption
    from kbtui.tui.reader.document_view import DocumentViewport
    from kbtui.tui.reader.reader_document import ReaderDocument

_BARE_ADDRESS = re.compile(r"https?://[^\s<>\"'`)\]}]+")
_TRAILING_PUNCTUATION = ".,;:!?"
OPENABLE_SUFFIXES = {
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".avif", ".tif", ".tiff", ".pdf",
}  # fmt: skip
"""The suffixes of the files that kbtui opens with the system's default program.

Files with other suffixes are not opened, because the system might execute them.
"""


class DocumentLink(NamedTuple):
    """A link: its text, and its address as written in the document."""

    text: str
    href: str

    @property
    def is_web_link(self) -> bool:
        """Whether the address starts with `http://` or `https://`.

        Only such addresses are passed to a browser.
        """
        return self.href.lower().startswith(("http://", "https://"))


def find_markdown_links(
    text: str, references: dict[str, dict[str, str]] | None = None
) -> list[DocumentLink]:
    """Return the links of a Markdown text in order, including bare web addresses.

    `references` are the link definitions of the whole document.
    """
    from kbtui.tui.reader.markdown_layout import parse_markdown

    text = strip_escape_sequences(text)  # The reader does not show escape sequences.
    found: list[DocumentLink] = []
    for token in parse_markdown(text, references):
        href = words = ""
        for child in token.children or ():
            if child.type == "link_open":
                href, words = str(child.attrGet("href") or ""), ""
            elif child.type == "link_close" and href:
                found.append(DocumentLink(sanitize_to_one_line(words) or href, href))
                href = ""
            elif child.type == "image":
                text = f"image: {sanitize_to_one_line(child.content)}"
                found.append(DocumentLink(text, str(child.attrGet("src"))))
            elif href:
                words += child.content
            else:
                found += _find_bare_web_addresses(child.content)
        if token.type in ("fence", "code_block", "html_block"):
            found += _find_bare_web_addresses(token.content)
    return list(dict.fromkeys(found))


def _find_bare_web_addresses(text: str) -> list[DocumentLink]:
    addresses = (match[0].rstrip(_TRAILING_PUNCTUATION) for match in _BARE_ADDRESS.finditer(text))
    return [DocumentLink(address, address) for address in addresses]


def find_links_at_cursor(viewport: DocumentViewport) -> list[DocumentLink]:
    """Return the links on the current line or, if the line has no links, all links of its paragraph."""
    document, line = viewport.document, viewport.current_styled_line
    if not document.blocks or line is None:
        return []
    block = document.blocks[viewport.cursor.block]
    if not isinstance(block, TextRangeReaderBlock):
        return _find_bare_web_addresses(strip_escape_sequences(block.get_searchable_text()))
    if not line.source_line or not block.first_line:
        return _find_bare_web_addresses(line.plain)
    lines = block.get_searchable_text().split("\n")[line.source_line - block.first_line :]
    end = next((number for number, text in enumerate(lines) if not text.strip()), len(lines))
    found = find_markdown_links("\n".join(lines[:end]), getattr(block, "links", None))
    # All screen lines of a paragraph have the same source line. A link may be wrapped, so look for the
    # first word of its text.
    return [link for link in found if link.text.split(" ")[0] in line.plain] or found


def resolve_subject_link(href: str, topic: str, slug: str) -> Ref | None:
    """Return the reference of the subject to which a link leads.

    `href` is the relative address of the link, and `topic` and `slug` name the subject that
    contains the link. The subject may not exist. Return None if the address cannot refer to a
    subject.
    """
    path = href.partition("#")[0].partition("?")[0]
    if not path or "://" in path or path.startswith(("/", "mailto:")):
        return None
    stem = path.rpartition(".")[0] if "." in posixpath.basename(path) else path
    found = posixpath.normpath(posixpath.join(posixpath.dirname(slug), stem))
    return None if found.startswith("..") else make_subject_ref(topic, found)


def resolve_image_or_pdf_link(href: str, folder: Path, root: Path) -> Path | None:
    """Return the path of the image or PDF that an address refers to.

    A relative address starts at `folder`. Return None for other files, and for files outside `root`.
    """
    written = unquote(href.removeprefix("file://").partition("#")[0].partition("?")[0])
    if not written or "\0" in written:
        return None
    try:
        path = (folder / written).resolve()
        inside = path.is_relative_to(root.resolve())
        openable = path.suffix.lower() in OPENABLE_SUFFIXES
        return path if inside and openable and path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None


PREVIEW_WIDTH = 40


def list_copyable_texts(viewport: DocumentViewport, reference: str | None) -> list[DialogOption]:
    """Return an option for each text that the user can copy at the current line.

    The result of an option is a name and a function that returns the text. Call the function in a
    thread, because joining a long text takes time.
    """
    from kbtui.tui.framework.dialogs import DialogOption

    document = viewport.document
    line = viewport.current_styled_line
    turn = viewport.current_turn_number
    found: list[tuple[str, str, str, Callable[[], str]]] = []
    if line is not None and document.blocks:
        words = (line.full_text or line.plain).strip()
        text = _find_markdown_of_paragraph_at_line(
            document.blocks[viewport.cursor.block], line.source_line
        )
        preview = cut_to_width(sanitize_to_one_line(text[:200]), PREVIEW_WIDTH)
        found.append(("l", "the line", cut_to_width(words, PREVIEW_WIDTH), lambda: words))
        found.append(("b", "the block", preview, lambda: text))
        if turn is not None:
            found.append(("t", f"turn {turn}", "", lambda: _join_turn_text(document, turn)))
        if document.ref is not None or document.view in ("prompt", "learn"):
            get_text = partial(_join_document_text, document)
            found.append(("a", "whole document", document.size, get_text))
    if reference is not None:
        found.append(("r", "the reference", reference, lambda: reference))
        if link := parse_ref(reference).jp_link:
            found.append(("j", "JP link", link, lambda: link))
        if lasting := _make_reference_containing_event_id(document, parse_ref(reference)):
            found.append(("e", "reference by event id", lasting, lambda: lasting))
    if command := build_kbtui_show_command(document, reference):
        found.append(("c", "kbtui command", command, lambda: command))
    return [DialogOption(key, name, preview, (name, get)) for key, name, preview, get in found]


def _make_reference_containing_event_id(document: ReaderDocument, ref: Ref) -> str | None:
    """Return a reference that identifies a turn or call by the id of its event.

    Return None if the event has no id.
    """
    turn = document.record.find_turn(ref.turn) if ref.turn and document.turns_total else None
    event_id = turn.find_jp_event_id_of_turn_or_call(ref.call) if turn else None
    return f"{ref.conversation}#{event_id}" if event_id else None


def _find_markdown_of_paragraph_at_line(block: ReaderBlock, source_line: int) -> str:
    """Return the Markdown of the paragraph, list, table or code block at line `source_line`.

    If none of these contains the line, return the whole text of `block`.
    """
    whole = block.get_searchable_text().strip("\n")
    if not isinstance(block, TextRangeReaderBlock) or not source_line or not block.first_line:
        return whole
    from kbtui.tui.reader.markdown_layout import parse_markdown

    at = source_line - block.first_line
    for token in parse_markdown(block.get_searchable_text()):
        if token.level == 0 and token.map and token.map[0] <= at < token.map[1]:
            return "\n".join(block.get_searchable_text().split("\n")[slice(*token.map)]).strip("\n")
    return whole


def _join_turn_text(document: ReaderDocument, turn: int) -> str:
    """Return the text of a turn without its heading. Text that only the model saw is left out."""
    in_turn = (b for b in document.blocks if b.turn == turn and b.key != f"turn:{turn}")
    texts = [block.get_searchable_text().strip() for block in in_turn if block.view != "model"]
    return "\n\n".join(filter(None, texts))


def _join_document_text(document: ReaderDocument) -> str:
    shown = (block for block in document.blocks if block.view != "model")
    texts = [block.get_searchable_text().strip("\n") for block in shown]
    return "\n\n".join(text for text in texts if text.strip()) + "\n"


def build_kbtui_show_command(document: ReaderDocument, reference: str | None) -> str | None:
    """Return the shell command that prints the document; None if there is no such command."""
    if document.key == "home":
        return "kbtui topics" if reference is None else f"kbtui show {reference}"
    if document.view == "prompt":
        return "kbtui prompt"
    if reference is None:
        return None
    if document.key.startswith("topic:") and document.ref == reference:
        return f"kbtui learn {quote(reference)}"
    if document.view == "learn" and document.ref and "/" in document.ref:
        topic, _, slug = document.ref.partition("/")
        return f"kbtui learn {quote(topic)} {quote(slug)}"
    return f"kbtui show {quote(reference)}"


def build_kbtui_search_command(query: str, all_projects: bool) -> str:
    """Return the shell command that searches for `query`."""
    command = "kbtui search --all" if all_projects else "kbtui search"
    return f"{command} {quote(query) if query else 'WORDS'}"
