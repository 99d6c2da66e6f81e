"""Turns what was fetched into Markdown: HTML, PDF, Word and plain text. Runs in a process of its own.

A page or a PDF made to choke its reader then costs that process, not the run:
`python -m kbtui.sources.extraction` reads frames (four bytes of length, JSON of the
request, four bytes of length, the content) and answers with frames of JSON.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import BinaryIO

VERSION = 2
"""Raise it when documents come out differently: what did not change is then read again too."""
SIZE = struct.Struct(">I")
MEMORY_MOST = 3 << 30
PDF_PAGES_MOST = 3000

HTML, PDF = ("text/html", "application/xhtml+xml"), ("application/pdf", "application/x-pdf")
MARKDOWN, PLAIN = ("text/markdown", "text/x-markdown"), ("text/plain",)
DOCX = ("application/vnd.openxmlformats-officedocument.wordprocessingml.document",)
CODE = ("text/x-source-code",)
"""A name of our own for text of any form, which is given as it is."""
READABLE = (*HTML, *PDF, *MARKDOWN, *PLAIN, *DOCX)
"""The content types that are read."""


_OWN_CHARSET = re.compile(rb"charset\s*=\s*[\"']?([a-zA-Z0-9_.:-]{1,40})")


class UnreadableDocument(Exception):
    """Why a document gave no text."""


def extract(content: bytes, kind: str, url: str, charset: str | None) -> dict[str, Any]:
    """A document of content type `kind` as `title`, `text` and `tags`; for HTML `links`,
    `noindex` and `nofollow` too. Raises `Unreadable`.
    """
    if kind in PDF:
        return _pdf(content)
    if kind in DOCX:
        return _docx(content)
    text = decoded(content, charset)
    if kind in HTML:
        from kbtui.sources.pages import NoPage, read_page

        try:
            return read_page(text, url)
        except NoPage as error:
            raise UnreadableDocument(str(error)) from error
    if "\0" in text[:8192]:
        raise UnreadableDocument("it is a binary file")
    if kind in CODE:
        return {"title": "", "text": text, "tags": []}
    return _plain(text, markdown=kind in MARKDOWN)


def decoded(content: bytes, charset: str | None) -> str:
    """Text in the named character set, in UTF-8, in the one it names itself, or in a likely one."""
    own = _OWN_CHARSET.search(content[:2048])
    for name in (charset, "utf-8-sig", own[1].decode("ascii") if own else None):
        try:
            if name:
                return content.decode(name)
        except (LookupError, UnicodeError):
            continue
    from trafilatura.utils import detect_encoding

    # A few bytes are no evidence.
    likely = detect_encoding(content[:200_000]) if len(content) > 100 else []
    return content.decode(likely[0] if likely else "cp1252", "replace")


def _pdf(content: bytes) -> dict[str, Any]:
    import io

    import pypdf
    from pypdf.errors import PyPdfError

    try:
        reader = pypdf.PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableDocument("it is encrypted")
        pages = len(reader.pages)
        if pages > PDF_PAGES_MOST:
            raise UnreadableDocument(f"it has {pages:,} pages, more than {PDF_PAGES_MOST:,}")
        texts = [page.extract_text().strip() for page in reader.pages]
        title = str(reader.metadata.title or "") if reader.metadata else ""
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        # Damaged files make pypdf stumble in many ways.
        raise UnreadableDocument(f"it is not a readable PDF: {error}") from error
    # Headings tell a reader, and the chunker, where a page begins.
    body = "\n\n".join(f"## Page {at}\n\n{text}" for at, text in enumerate(texts, 1) if text)
    if not body:
        raise UnreadableDocument("it has no text (a scan?)")
    return {"title": title, "text": body, "tags": []}


def _docx(content: bytes) -> dict[str, Any]:
    import io
    from xml.parsers.expat import ExpatError
    from zipfile import BadZipFile

    import mammoth

    from kbtui.sources.pages import markdown_of

    try:
        html = mammoth.convert_to_html(
            io.BytesIO(content),
            style_map="p[style-name='Title'] => h1:fresh\np[style-name='Code'] => pre:separator('\\n')",
            convert_image=mammoth.images.img_element(lambda image: {"src": ""}),
        ).value
    except (BadZipFile, ExpatError, KeyError, ValueError, AttributeError, IndexError) as error:
        # Damaged files make mammoth stumble in many ways.
        raise UnreadableDocument(f"it is not a readable Word file: {error}") from error
    text = markdown_of(html) if html else ""
    head = next((line for line in text.split("\n") if line.startswith("# ")), "")
    return {"title": head[2:].strip(), "text": text, "tags": []}


def _plain(text: str, *, markdown: bool) -> dict[str, Any]:
    from kbtui.knowledge.front_matter import split_front_matter

    split = split_front_matter(text)
    facts, body = split.facts, split.body
    title = facts.get("title")
    tags = facts.get("tags")
    if not isinstance(title, str):
        heads = (line for line in body.split("\n")[:50] if line.startswith("# "))
        title = next(heads, "")[2:].strip() if markdown else ""
    return {
        "title": title,
        "text": body,
        "tags": [str(tag) for tag in tags] if isinstance(tags, list) else [],
    }


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(SIZE.size)
    if len(head) < SIZE.size:
        return None
    (size,) = SIZE.unpack(head)
    body = stream.read(size)
    return body if len(body) == size else None


def main() -> None:
    """Answer requests until the input ends."""
    import resource
    import warnings

    warnings.simplefilter("ignore")
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MOST, MEMORY_MOST))
    answers = sys.stdout.buffer
    # What a library prints must not be taken for an answer.
    sys.stdout = sys.stderr
    # Converting HTML takes several frames for each element that stands in another.
    sys.setrecursionlimit(10_000)
    while True:
        request, content = _read(sys.stdin.buffer), _read(sys.stdin.buffer)
        if request is None or content is None:
            return
        try:
            found = extract(content, **json.loads(request))
        except UnreadableDocument as error:
            found = {"error": str(error)}
        except ImportError as error:
            found = {"import": str(error), "name": error.name}
        except (Exception, RecursionError, MemoryError) as error:
            found = {"error": f"it cannot be read: {type(error).__name__}"}
        answer = json.dumps(found).encode("ascii")
        answers.write(SIZE.pack(len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    main()
