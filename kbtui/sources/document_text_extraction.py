"""Converts HTML, PDF, Word and plain text to Markdown in a separate process.

If a hostile page or PDF blocks or crashes this process, the run of the source continues. The
process reads requests from stdin: a line of JSON, then the content of the document. It answers each
request with one line of JSON.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from kbtui.errors import RequiredPackageUnavailableError
from kbtui.knowledge.subject_files import put_text_in_code_fence

if TYPE_CHECKING:
    import asyncio
    from typing import NotRequired, TypedDict

    class ExtractedText(TypedDict):
        """The text of a document, as Markdown.

        `links` and `noindex` are set only for HTML. `noindex` means that the page asks not to be
        indexed.
        """

        title: str
        text: str
        tags: list[str]
        links: NotRequired[list[str]]
        noindex: NotRequired[bool]


MAX_LINKS = 5000

_CONTENT_CLASSES = """
    vp-doc theme-doc-markdown md-content__inner markdown-body rst-content bd-article
"""
"""CSS classes that documentation tools and GitHub give to the element that contains a page's text."""
_FURNITURE_TAGS = """
    script style noscript template svg button clipboard-copy nav iframe object dialog input select
    textarea
"""
_FURNITURE_CLASSES = """
    linenos linenodiv lineno line-numbers-wrapper gutter rouge-gutter hljs-ln-numbers blob-num lnt
    visually-hidden sr-only screen-reader-text md-source-file md-content__button
    zeroclipboard-container theme-doc-toc-mobile theme-doc-breadcrumbs wy-breadcrumbs
    rst-footer-buttons
"""
_ADMONITION_TITLE = re.compile(
    r"admonition-title|custom-block-title|markdown-alert-title|admonitionHeading.*"
)
_LANGUAGE_CLASS = re.compile(
    r"(?:language|lang|highlight-source|highlight-text|highlight|brush:?)-?(?<=[-:])([a-z0-9][\w+#-]*)",
    re.IGNORECASE,
)
_NO_LANGUAGE = ("default", "none", "text", "plaintext", "plain", "notranslate")
_LANGUAGES = {"shell": "sh", "html-basic": "html"}
_ONLY_SIGNS = re.compile(r"[\W_]*")
_CODE_MARK = "kbtuicodeblock{}end"
_QUOTE_MARK = "kbtuiquote"
_CODE_MARKS = re.compile(r"kbtuicodeblock(\d{1,7})end")


class TextExtractionError(Exception):
    """A document cannot be converted; the message says why."""


def convert_html_page_to_markdown(text: str, url: str) -> ExtractedText:
    """Return a page's title, text and links, and whether it asks not to be indexed.

    `url` is the URL of the page. If it is empty, links stay relative.
    """
    import lxml.html
    import trafilatura

    try:
        # Ignore the declared encoding: the text is decoded already.
        parser = lxml.html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=False)
        tree = lxml.html.document_fromstring(text.encode("utf-8"), parser=parser)
    except (lxml.etree.LxmlError, ValueError, AssertionError) as error:
        raise TextExtractionError(f"the document is not HTML: {error}") from error
    base = next((node.get("href") for node in tree.iter("base") if node.get("href")), None)
    # Drop links within the page that show only a sign such as `¶`. They can be recognised by their `#`
    # only before links become absolute.
    for anchor in list(tree.iter("a")):
        is_inside = (anchor.get("href") or "#").startswith("#")
        if is_inside and _ONLY_SIGNS.fullmatch(anchor.text_content()):
            anchor.drop_tree()
    if url or (base and "://" in base):
        tree.make_links_absolute(urljoin(url, base) if base else url, handle_failures="discard")
    robots = " ".join(
        (node.get("content") or "").lower()
        for node in tree.iter("meta")
        if (node.get("name") or "").lower() in ("robots", "kbtui")
    )
    nofollow = "nofollow" in robots or "none" in robots.split()
    targets = {
        anchor.get("href"): None
        for anchor in tree.iter("a", "area")
        if anchor.get("href") and "nofollow" not in (anchor.get("rel") or "").lower()
    }
    links = [] if nofollow else list(targets)[:MAX_LINKS]
    about = trafilatura.extract_metadata(tree, default_url=url or None)
    heading = next((node.text_content() for node in tree.iter("title")), "")
    title = (about.title if about else None) or heading
    _drop_menus_and_buttons(tree)
    codes = _replace_code_blocks_with_placeholders(tree)
    main = _find_main_content_element(tree)
    body = _convert_element_to_markdown(main) if main is not None else ""
    if body:
        heads = [node.text_content().strip() for node in main.iter("h1")]
        title = heads[0] if len(heads) == 1 and heads[0] else title
    else:
        # trafilatura does not recognise the main part of a page with little text.
        body = _extract_with_trafilatura(copy.deepcopy(tree), url) or trafilatura.html2txt(tree)
    return {
        "title": " ".join(title.split()),
        "text": _restore_code_blocks(body, codes),
        "tags": [],
        "links": links,
        "noindex": "noindex" in robots or "none" in robots.split(),
    }


def _drop_menus_and_buttons(tree: Any) -> None:
    """Remove the parts of a page that are not content: menus, buttons and line numbers.

    Check boxes, and the titles of notes and warnings, become text.
    """
    furniture_tags = frozenset(_FURNITURE_TAGS.split())
    furniture_classes = frozenset(_FURNITURE_CLASSES.split())
    for node in list(tree.iter()):
        if not isinstance(node.tag, str) or node.getparent() is None:
            continue
        parent, classes = node.getparent(), _list_css_classes(node)
        if (
            node.tag == "input"
            and node.get("type") == "checkbox"
            and any("task" in name for name in classes | _list_css_classes(parent))
        ):
            mark = "x" if node.get("checked") is not None else " "
            node.tail = f"[{mark}] {(node.tail or '').lstrip()}"
            node.drop_tree()
        elif node.tag == "button" and parent.tag in ("h1", "h2", "h3", "h4", "h5", "h6", "summary"):
            node.drop_tag()
        elif (
            node.tag in furniture_tags
            or classes & furniture_classes
            or _is_hidden_element(node)
            or (node.tag == "span" and "lang" in classes)  # the name of a language
            or (node.tag == "label" and re.search(r"(?:^|\s)tab", parent.get("class") or ""))
        ):
            node.drop_tree()
        elif any(map(_ADMONITION_TITLE.fullmatch, classes)):
            node.tag, node.tail = "strong", f" {node.tail or ''}"


def _is_hidden_element(node: Any) -> bool:
    """Return whether an element is hidden.

    A tab panel does not count as hidden, because the user can open it.
    """
    if node.tag in ("body", "main", "article") or node.get("role") == "tabpanel":
        return False
    return node.get("hidden") is not None or node.get("aria-hidden") == "true"


def _list_css_classes(node: Any) -> set[str]:
    return set((node.get("class") or "").split())


def _find_main_content_element(tree: Any) -> Any:
    """Return the element whose class or role marks it as the page's main text, or None."""
    elements, classes = tree.iter("div", "article", "main"), _CONTENT_CLASSES.split()
    named = [node for node in elements if not _list_css_classes(node).isdisjoint(classes)]
    if named:
        # If there are several such elements, they are the posts of a thread.
        return named[0] if len(named) == 1 else None
    # `<main>` is not used, because on many sites it contains more than the text.
    return next((node for node in tree.iter("div", "article") if node.get("role") == "main"), None)


def _extract_with_trafilatura(tree: Any, url: str) -> str | None:
    import trafilatura

    for quote in tree.iter("blockquote"):
        # trafilatura keeps the text of a quote but not its `>`.
        for node in list(quote.iter("p")) or [quote]:
            node.text = f"{_QUOTE_MARK}{node.text or ''}"
    found: str | None = trafilatura.extract(
        tree,
        url=url or None,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        include_formatting=True,
        include_comments=False,
    )
    return found and found.replace(_QUOTE_MARK, "> ")


def _convert_element_to_markdown(element: Any) -> str:
    import lxml.html
    from markdownify import markdownify

    html = lxml.html.tostring(element, encoding="unicode", with_tail=False)
    found: str = markdownify(
        html,
        heading_style="ATX",
        bullets="-",
        strip=["img"],
        escape_asterisks=False,
        escape_underscores=False,
        table_infer_header=True,
    )
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", found, flags=re.MULTILINE)).strip()


def _replace_code_blocks_with_placeholders(tree: Any) -> list[str]:
    """Replace each code block with a placeholder, and return the code blocks.

    Placeholders prevent the converters from changing the code.
    """
    for table in list(tree.iter("table")):
        _unwrap_code_table(table)
    codes: list[str] = []
    last = ("", "")
    # Detect all languages first, while neighbouring blocks are still in the tree.
    for block, language in [(node, _detect_code_language(node)) for node in tree.iter("pre")]:
        text = _read_code_block(block)
        before = block.getprevious()
        if not text or (before is not None and (before.text, text) == last):
            # The block is empty, or it repeats the previous block for the dark theme.
            block.drop_tree()
            continue
        mark = block.makeelement("p")
        mark.text, mark.tail = _CODE_MARK.format(len(codes)), block.tail
        codes.append(put_text_in_code_fence(text, language))
        last = (mark.text, text)
        block.getparent().replace(block, mark)
    return codes


def _unwrap_code_table(table: Any) -> None:
    """If a table only arranges code and line numbers, replace the table with its content."""
    from lxml import etree

    cells = [
        ("".join(cell.text_content().split()), list(cell.iter("pre"))) for cell in table.iter("td")
    ]
    if any(blocks for _, blocks in cells) and all(
        text == "".join("".join(block.text_content() for block in blocks).split())
        for text, blocks in cells
    ):
        for heading in table.iter("th"):
            heading.tag = "p"
        etree.strip_tags(table, "thead", "tbody", "tr", "td")
        table.tag = "div"


def _read_code_block(block: Any) -> str:
    parts: list[str] = []

    def collect_code_text(node: Any) -> None:
        if not isinstance(node.tag, str):
            return
        if node.tag == "br" or (node.tag == "div" and parts and not parts[-1].endswith("\n")):
            parts.append("\n")
        if node.text:
            parts.append(node.text)
        for child in node:
            collect_code_text(child)
            if child.tail:
                parts.append(child.tail)

    collect_code_text(block)
    lines = "".join(parts).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _detect_code_language(block: Any) -> str:
    """Return the programming language of a code block; "" if it is unknown.

    The attributes of the code block, or of the elements around it, can contain the language.
    """
    around = [block, *block.iter("code")]
    for node in block.iterancestors():
        around.append(node)
        if len(around) > 8 or len(list(islice(node.iter("pre"), 2))) > 1:
            break
    for node in around:
        languages = [node.get("data-lang"), node.get("data-language")]
        languages += [node.get("lang")] if node.tag in ("pre", "code") else []
        matches = map(_LANGUAGE_CLASS.fullmatch, sorted(_list_css_classes(node)))
        languages += [found[1] for found in matches if found]
        for language in map(str.lower, filter(None, languages)):
            if language not in _NO_LANGUAGE:
                return _LANGUAGES.get(language, language)
    return ""


def _restore_code_blocks(text: str | None, codes: list[str]) -> str:
    """Replace each placeholder in `text` with its code block from `codes`.

    The code block gets the indentation of the placeholder.
    """
    lines: list[str] = []
    left = dict(enumerate(codes))
    for line in (text or "").split("\n"):
        pieces = _CODE_MARKS.split(line)
        if len(pieces) == 1:
            lines.append(line)
            continue
        start = re.match(r"\s*(?:(?:[-*+]|\d+\.)\s+)?", line)
        indent = " " * len(start[0]) if start else ""
        for at, piece in enumerate(pieces):
            if at % 2 == 0:
                lines += [piece.rstrip()] if piece.strip() else []
                continue
            # Insert each block only once, because the page's own text can contain a placeholder.
            block = left.pop(int(piece), "")
            lines += ["", *(f"{indent}{row}" if row else "" for row in block.split("\n")), ""]
    return re.sub(r"\A\n+|\n+\Z", "", _squeeze_blank_lines(lines))


def _squeeze_blank_lines(lines: list[str]) -> str:
    """Join lines. Outside of code blocks, consecutive blank lines become one."""
    kept: list[str] = []
    fence = ""
    for line in lines:
        start = re.match(r"\s*(`{3,})", line)
        if start and (not fence or (start[1].startswith(fence) and line.strip() == start[1])):
            fence = "" if fence else start[1]
        if line.strip() or fence or (kept and kept[-1].strip()):
            kept.append(line)
    return "\n".join(kept)


EXTRACTION_VERSION = 2
"""The version of the text extraction.

Increase it when the extraction changes, so that the next run extracts everything again.
"""
MAX_MEMORY_BYTES = 3 << 30
MAX_PDF_PAGES = 3000

HTML, PDF = ("text/html", "application/xhtml+xml"), ("application/pdf", "application/x-pdf")
MARKDOWN, PLAIN = ("text/markdown", "text/x-markdown"), ("text/plain",)
DOCX = ("application/vnd.openxmlformats-officedocument.wordprocessingml.document",)
CODE = ("text/x-source-code",)
"""kbtui's own content type for source code and for text files of unknown types.

The extraction does not change their text.
"""
READABLE = (*HTML, *PDF, *MARKDOWN, *PLAIN, *DOCX)


_DECLARED_CHARSET = re.compile(rb"charset\s*=\s*[\"']?([a-zA-Z0-9_.:-]{1,40})")


def extract_document_text(
    content: bytes, kind: str, url: str, charset: str | None
) -> ExtractedText:
    """Return the text of a document of content type `kind`. Raises `TextExtractionError`."""
    if kind in PDF:
        return _extract_pdf_text(content)
    if kind in DOCX:
        return _extract_docx_text(content)
    text = decode_document_text(content, charset)
    if kind in HTML:
        return convert_html_page_to_markdown(text, url)
    if "\0" in text[:8192]:
        raise TextExtractionError("the document is a binary file")
    if kind in CODE:
        return {"title": "", "text": text, "tags": []}
    return _split_plain_text_into_title_tags_and_body(text, markdown=kind in MARKDOWN)


def decode_document_text(content: bytes, charset: str | None) -> str:
    """Decode a document's bytes.

    The encodings are tried in this order: `charset`, UTF-8, the encoding that the text itself
    declares, and an encoding guessed from the bytes.
    """
    own = _DECLARED_CHARSET.search(content[:2048])
    for name in (charset, "utf-8-sig", own[1].decode("ascii") if own else None):
        try:
            if name:
                return content.decode(name)
        except (LookupError, UnicodeError):
            continue
    from trafilatura.utils import detect_encoding

    # Detection is unreliable for a few bytes.
    likely = detect_encoding(content[:200_000]) if len(content) > 100 else []
    return content.decode(likely[0] if likely else "cp1252", "replace")


def _extract_pdf_text(content: bytes) -> ExtractedText:
    import io

    import pypdf
    from pypdf.errors import PyPdfError

    try:
        reader = pypdf.PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise TextExtractionError("the PDF is encrypted")
        pages = len(reader.pages)
        if pages > MAX_PDF_PAGES:
            raise TextExtractionError(f"the PDF has {pages:,} pages, more than {MAX_PDF_PAGES:,}")
        texts = [page.extract_text().strip() for page in reader.pages]
        title = str(reader.metadata.title or "") if reader.metadata else ""
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        # pypdf raises many exceptions for damaged files.
        raise TextExtractionError(f"the document is not a readable PDF: {error}") from error
    # A heading marks the start of each page; the index splits the text there.
    body = "\n\n".join(f"## Page {at}\n\n{text}" for at, text in enumerate(texts, 1) if text)
    if not body:
        raise TextExtractionError("the PDF has no text and may be a scan")
    return {"title": title, "text": body, "tags": []}


def _extract_docx_text(content: bytes) -> ExtractedText:
    import io
    from xml.parsers.expat import ExpatError
    from zipfile import BadZipFile

    import lxml.html
    import mammoth

    try:
        html = mammoth.convert_to_html(
            io.BytesIO(content),
            style_map="p[style-name='Title'] => h1:fresh\np[style-name='Code'] => pre:separator('\\n')",
            convert_image=mammoth.images.img_element(lambda image: {"src": ""}),
        ).value
    except (BadZipFile, ExpatError, KeyError, ValueError, AttributeError, IndexError) as error:
        # mammoth raises many exceptions for damaged files.
        raise TextExtractionError(f"the document is not a readable Word file: {error}") from error
    text = ""
    if html:
        tree = lxml.html.document_fromstring(f"<body>{html}</body>")
        _drop_menus_and_buttons(tree)
        codes = _replace_code_blocks_with_placeholders(tree)
        text = _restore_code_blocks(_convert_element_to_markdown(tree), codes)
    head = next((line for line in text.split("\n") if line.startswith("# ")), "")
    return {"title": head[2:].strip(), "text": text, "tags": []}


def _split_plain_text_into_title_tags_and_body(text: str, *, markdown: bool) -> ExtractedText:
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


def answer_extraction_requests() -> None:
    """Answer extraction requests until stdin ends."""
    import resource
    import warnings

    warnings.simplefilter("ignore")
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    answers = sys.stdout.buffer
    # Keep the output of libraries out of the answers.
    sys.stdout = sys.stderr
    # Converting HTML recurses several times per level of nesting.
    sys.setrecursionlimit(10_000)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        content = sys.stdin.buffer.read(request.pop("size"))
        found: Any
        try:
            found = extract_document_text(content, **request)
        except TextExtractionError as error:
            found = {"error": str(error)}
        except ImportError as error:
            found = {"import": str(error), "name": error.name}
        except (Exception, RecursionError, MemoryError) as error:
            found = {"error": f"the document cannot be read: {type(error).__name__}"}
        answers.write(json.dumps(found).encode("ascii") + b"\n")
        answers.flush()


if __name__ == "__main__":
    answer_extraction_requests()


EXTRACTION_SECONDS = 60.0
"""If one document takes more than this many seconds, the child process is stopped."""
MAX_ANSWER_BYTES = 64_000_000


class TextExtractorProcess:
    """Converts documents one at a time in a child process. Use it in an `async with` statement.

    The child process starts with the first document. If a document takes more than
    `EXTRACTION_SECONDS`, the process is stopped, and a new process converts the next document.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> TextExtractorProcess:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self._stop_child_process()

    async def extract_in_child_process(
        self, content: bytes, kind: str, url: str, charset: str | None = None
    ) -> ExtractedText:
        """Call `extract_document_text` in the child process.

        Raises `TextExtractionError`, or `RequiredPackageUnavailableError` if a package is missing.
        """
        import asyncio  # not at the top: the child process does not need it

        request = {"kind": kind, "url": url, "charset": charset, "size": len(content)}
        try:
            async with asyncio.timeout(EXTRACTION_SECONDS):
                found = await self._send_extraction_request(
                    json.dumps(request).encode() + b"\n" + content
                )
        except (TimeoutError, OSError, EOFError, ValueError) as error:
            await self._stop_child_process()
            is_late = isinstance(error, TimeoutError)
            reason = f"took more than {EXTRACTION_SECONDS:g} s" if is_late else "failed"
            raise TextExtractionError(f"reading the document {reason}") from error
        except BaseException:
            # The child may have read half a request, so it cannot be used again.
            await self._stop_child_process()
            raise
        if "import" in found:
            raise RequiredPackageUnavailableError(ImportError(found["import"], name=found["name"]))
        if "error" in found:
            raise TextExtractionError(str(found["error"]))
        text: ExtractedText = found
        return text

    async def _send_extraction_request(self, request: bytes) -> Any:
        import asyncio

        if self._process is None or self._process.returncode is not None:
            # The child receives the variables that it needs to find modules, and no others.
            kept = {"PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "HOME"}
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "kbtui.sources.document_text_extraction"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=MAX_ANSWER_BYTES,
                cwd="/",
                env={name: os.environ[name] for name in kept & os.environ.keys()},
            )
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        pipe.write(request)
        await pipe.drain()
        found = json.loads(await answers.readline())
        if not isinstance(found, dict):
            raise ValueError("the process that reads documents returned an invalid answer")
        return found

    async def _stop_child_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()
