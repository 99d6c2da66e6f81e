"""The links in what is being read, and where each of them leads."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from kbtui.refs import make_subject_ref
from kbtui.text import one_line, strip_escape_sequences
from kbtui.tui.reader.blocks import TextBlock

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.refs import Ref
    from kbtui.tui.reader.document_view import Viewport

_BARE_ADDRESS = re.compile(r"https?://[^\s<>\"'`)\]}]+")
_TRAILING_PUNCTUATION = ".,;:!?"
OPENABLE_SUFFIXES = {
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".avif", ".tif", ".tiff", ".pdf",
}  # fmt: skip
"""Endings of files that the system's own program may show; it might run others."""


class Link(NamedTuple):
    """A link: the words that stand for it, and its address as it is written."""

    text: str
    href: str

    @property
    def is_web(self) -> bool:
        """Whether a browser opens it; nothing else is ever given to one."""
        return self.href.lower().startswith(("http://", "https://"))


def find_links(text: str, references: dict[str, dict[str, str]] | None = None) -> list[Link]:
    """Every link of a piece of Markdown, in order; bare addresses too.

    Not those that stand in what only a terminal would obey: nobody sees them in the text.
    """
    from markdown_it import MarkdownIt

    text = strip_escape_sequences(text)
    found: list[Link] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text, {"references": references or {}})
    for token in tokens:
        href, words = None, ""
        for child in token.children or ():
            if child.type == "link_open":
                href, words = str(child.attrGet("href") or ""), ""
            elif child.type == "link_close" and href:
                found.append(Link(one_line(words) or href, href))
                href = None
            elif child.type == "image":
                found.append(Link(f"image: {one_line(child.content)}", str(child.attrGet("src"))))
            elif href is not None:
                words += child.content
            elif child.content:
                found += _find_bare_addresses(child.content)
        if token.type in ("fence", "code_block", "html_block"):
            found += _find_bare_addresses(token.content)
    return list(dict.fromkeys(found))


def _find_bare_addresses(text: str) -> list[Link]:
    addresses = (match[0].rstrip(_TRAILING_PUNCTUATION) for match in _BARE_ADDRESS.finditer(text))
    return [Link(address, address) for address in addresses]


def find_links_at_cursor(port: Viewport) -> list[Link]:
    """The links of the line being read, else those of its paragraph."""
    document, line = port.document, port.current_line
    if not document.blocks or line is None:
        return []
    block = document.blocks[port.cursor.block]
    if not isinstance(block, TextBlock):
        return _find_bare_addresses(strip_escape_sequences(block.search_text()))
    if not line.source_line or not block.first_line:
        return _find_bare_addresses(line.plain)
    lines = block.get_text().split("\n")[line.source_line - block.first_line :]
    end = next((number for number, text in enumerate(lines) if not text.strip()), len(lines))
    found = find_links("\n".join(lines[:end]), getattr(block, "links", None))
    # A paragraph's lines have one number; wrapping may part a link's words: the first is enough.
    return [link for link in found if link.text.split(" ")[0] in line.plain] or found


def resolve_subject_link(href: str, topic: str, slug: str) -> Ref | None:
    """The subject that a relative address of another subject may name."""
    path = href.partition("#")[0].partition("?")[0]
    if not path or "://" in path or path.startswith(("/", "mailto:")):
        return None
    stem = path.rpartition(".")[0] if "." in posixpath.basename(path) else path
    found = posixpath.normpath(posixpath.join(posixpath.dirname(slug), stem))
    return None if found.startswith("..") else make_subject_ref(topic, found)


def resolve_file_link(href: str, folder: Path, root: Path) -> Path | None:
    """The image or PDF within `root` that an address names; None for everything else."""
    written = unquote(href.removeprefix("file://").partition("#")[0].partition("?")[0])
    if not written or "\0" in written:
        return None
    try:
        path = (folder / written).resolve()
        inside = path.is_relative_to(root.resolve())
        return (
            path if inside and path.suffix.lower() in OPENABLE_SUFFIXES and path.is_file() else None
        )
    except (OSError, ValueError, RuntimeError):
        return None
