"""Find the links in a document, and resolve them to subjects and files."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from kbtui.refs import make_subject_ref
from kbtui.text import one_line, strip_escape_sequences
from kbtui.tui.reader.document_blocks import TextBlock

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.refs import Ref
    from kbtui.tui.reader.document_view import DocumentViewport

_BARE_ADDRESS = re.compile(r"https?://[^\s<>\"'`)\]}]+")
_TRAILING_PUNCTUATION = ".,;:!?"
OPENABLE_SUFFIXES = {
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".avif", ".tif", ".tiff", ".pdf",
}  # fmt: skip
"""The suffixes of files that are opened with the system's default program.

Opening any other file might execute it.
"""


class DocumentLink(NamedTuple):
    """A link: its text, and its address as written in the document."""

    text: str
    href: str

    @property
    def is_web_link(self) -> bool:
        """Whether the address starts with `http://` or `https://`. Only such addresses are passed to a browser."""
        return self.href.lower().startswith(("http://", "https://"))


def find_markdown_links(
    text: str, references: dict[str, dict[str, str]] | None = None
) -> list[DocumentLink]:
    """Return the links of a Markdown text in order, including bare web addresses."""
    from kbtui.tui.reader.markdown_layout import parse_markdown

    text = strip_escape_sequences(text)  # The reader does not show escape sequences.
    found: list[DocumentLink] = []
    for token in parse_markdown(text, references):
        href = words = ""
        for child in token.children or ():
            if child.type == "link_open":
                href, words = str(child.attrGet("href") or ""), ""
            elif child.type == "link_close" and href:
                found.append(DocumentLink(one_line(words) or href, href))
                href = ""
            elif child.type == "image":
                text = f"image: {one_line(child.content)}"
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
    """Return the links on the current line; if it has none, return all links of its paragraph."""
    document, line = viewport.document, viewport.current_styled_line
    if not document.blocks or line is None:
        return []
    block = document.blocks[viewport.cursor.block]
    if not isinstance(block, TextBlock):
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
    """Return the reference to the subject that a relative address in the subject `topic`/`slug` refers to.

    That subject may not exist. Return None if the address cannot name a subject.
    """
    path = href.partition("#")[0].partition("?")[0]
    if not path or "://" in path or path.startswith(("/", "mailto:")):
        return None
    stem = path.rpartition(".")[0] if "." in posixpath.basename(path) else path
    found = posixpath.normpath(posixpath.join(posixpath.dirname(slug), stem))
    return None if found.startswith("..") else make_subject_ref(topic, found)


def resolve_file_link(href: str, folder: Path, root: Path) -> Path | None:
    """Return the image or PDF that an address refers to; None for other files and for files outside `root`."""
    written = unquote(href.removeprefix("file://").partition("#")[0].partition("?")[0])
    if not written or "\0" in written:
        return None
    try:
        path = (folder / written).resolve()
        inside, openable = (
            path.is_relative_to(root.resolve()),
            path.suffix.lower() in OPENABLE_SUFFIXES,
        )
        return path if inside and openable and path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None
