"""The directory of a source's documents, and the context of a run that changes it.

The front matter of each file contains a digest of the file's other content. If the digest does not
match, the user has edited the file. This works even in a clone of the workspace. kbtui never
overwrites edited files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kbtui.errors import KbtuiError
from kbtui.file_reading_and_writing import read_regular_file, remove_empty_directories
from kbtui.knowledge.front_matter import join_front_matter_and_body, split_front_matter
from kbtui.knowledge.subject_files import (
    create_directory_inside_workspace,
    make_safe_file_name,
    replace_file_text,
    write_new_file,
)
from kbtui.sources.crawl_url_policy import make_key_for_comparing_sites_of_urls
from kbtui.sources.document_source_definitions import SourceRunProgress
from kbtui.sources.document_text_extraction import EXTRACTION_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.sources.document_source_definitions import DocumentSourceDefinition
    from kbtui.userdata.user_data_store import FetchedAddressFacts


MAX_TITLE_CHARACTERS, MAX_TEXT_CHARACTERS = 300, 5_000_000
MAX_FILE_BYTES = 20_000_000
MAX_NAME_DEPTH = 8
"""Files are stored at most this many levels below the source's directory.

If a document's name has more parts, the last parts are joined.
"""
_ENDINGS = re.compile(
    r"(?<=.)\.(?:html|htm|xhtml|md|markdown|txt|text|php|asp|aspx|pdf)\Z", re.IGNORECASE
)


@dataclass(frozen=True)
class FetchedDocument:
    """A fetched document, identified by `url`.

    Its file is called `name`, unless another file has this name.
    """

    url: str
    name: str
    title: str
    text: str
    tags: tuple[str, ...] = ()


@dataclass
class StoredDocument:
    """A stored document and its file.

    `digest` is the digest of the document as it was fetched. `is_edited` says whether the user has
    edited the file since then.
    """

    path: Path
    url: str
    digest: str
    is_edited: bool


class SourceDocumentStore:
    """The documents of one source.

    The files are read only once. Each change updates both the file and this object. `root` is the
    real path of the workspace, and `folder` is the real path of the topic.
    """

    def __init__(self, root: Path, folder: Path, source: DocumentSourceDefinition) -> None:
        self._root, self._source = root, source
        self.folder = folder / source.name
        self.counts = {"added": 0, "updated": 0, "removed": 0, "unchanged": 0}
        """The numbers of documents that a run has added, updated, removed and left unchanged."""
        self.problems: list[str] = []
        self.edited: list[str] = []
        """Messages about documents that were not changed because the user has edited them."""
        self.documents: dict[str, StoredDocument] = {}
        self._names_in_use: set[str] = set()
        self._seen: set[str] = set()
        if os.path.realpath(self.folder) != str(self.folder):
            message = "the source's directory is a link, which is not supported"
            raise KbtuiError(message, where=str(self.folder))
        paths = [Path(base, name) for base, _, names in os.walk(self.folder) for name in names]
        for path in sorted(paths):
            self._names_in_use.add(self._make_file_name_key(path))
            if path.suffix == ".md" and (stored := read_stored_document(path, source.name)):
                # If two files contain the same document, use the unedited one.
                other = self.documents.get(stored.url)
                if other is None or (other.is_edited and not stored.is_edited):
                    self.documents[stored.url] = stored

    def _make_file_name_key(self, path: Path) -> str:
        return str(path.relative_to(self.folder).with_suffix("")).casefold()

    def is_stored_and_unedited(self, url: str) -> bool:
        """Return whether the document is stored and the user has not edited its file."""
        stored = self.documents.get(url)
        return stored is not None and not stored.is_edited

    def change_document_url(self, before: str, url: str) -> None:
        """Change the URL that identifies a document."""
        if before != url and before in self.documents and url not in self.documents:
            self.documents[url] = self.documents.pop(before)

    def mark_document_unchanged(self, url: str) -> None:
        """Record that a document has not changed."""
        if url in self.documents and url not in self._seen:
            self._seen.add(url)
            self.counts["unchanged"] += 1

    def write_document(self, document: FetchedDocument) -> None:
        """Write a document if it changed and its file is unedited. Raises `KbtuiError`."""
        from kbtui.terminal_text import sanitize, sanitize_to_one_line

        if document.url in self._seen:
            return
        text = sanitize(document.text, "strip").strip("\n")
        if len(text) > MAX_TEXT_CHARACTERS:
            limit = f"more than {MAX_TEXT_CHARACTERS:,}"
            raise KbtuiError(f"the text has {len(text):,} characters, {limit}")
        facts: dict[str, Any] = {
            "title": sanitize_to_one_line(document.title, "strip")[:MAX_TITLE_CHARACTERS]
            or document.url,
            "type": self._source.kind,
            "tags": [sanitize_to_one_line(tag, "strip") for tag in document.tags],
            "source": self._source.name,
            "source_url": document.url,
        }
        facts = {key: value for key, value in facts.items() if value}
        digest = compute_document_digest(facts, text)
        stored = self.documents.get(document.url)
        self._seen.add(document.url)
        if stored is not None and stored.digest == digest:
            self.counts["unchanged"] += 1
            return
        if stored is not None and stored.is_edited:
            self._report_edited_document_left_alone(stored, "changed at its source")
            return
        stamps = {"fetched_at": datetime.now(UTC).replace(microsecond=0), "digest": digest}
        content = join_front_matter_and_body({**facts, **stamps}, text)
        if stored is not None:
            replace_file_text(stored.path, content)
            stored.digest = digest
            self.counts["updated"] += 1
            return
        name = document.name
        if name.casefold() in self._names_in_use:
            name = f"{name}-{_compute_short_hash(document.url)}"
        path = self.folder / f"{name}.md"
        create_directory_inside_workspace(self._root, path.parent)
        write_new_file(path, content)
        self._names_in_use.add(self._make_file_name_key(path))
        self.documents[document.url] = StoredDocument(path, document.url, digest, is_edited=False)
        self.counts["added"] += 1

    def remove_document(self, url: str) -> None:
        """Remove a document that no longer exists at its source, but keep the file if it was edited."""
        stored = self.documents.pop(url, None)
        if stored is None:
            return
        if stored.is_edited:
            self._report_edited_document_left_alone(stored, "deleted at its source")
            return
        try:
            stored.path.unlink(missing_ok=True)
            remove_empty_directories(stored.path.parent, self.folder)
        except OSError as error:
            self.problems.append(f"{stored.path.name}: cannot be removed: {error.strerror}")
            return
        self.counts["removed"] += 1

    def remove_unseen_documents(self) -> None:
        """Remove the documents that a complete run did not find."""
        for url in [url for url in self.documents if url not in self._seen]:
            self.remove_document(url)

    def _report_edited_document_left_alone(self, stored: StoredDocument, why: str) -> None:
        name = stored.path.relative_to(self.folder)
        self.edited.append(f"{name}: {why}, but kept because you have edited it")

    def detach_documents_from_source(self) -> None:
        """Turn the documents into ordinary subjects without a source."""
        for stored in self.documents.values():
            if split := _read_stored_source_document(stored.path):
                facts, text = split
                if facts.get("type") == self._source.kind:
                    facts["type"] = "reference"
                kept = {key: facts[key] for key in facts if key not in ("source", "digest")}
                replace_file_text(stored.path, join_front_matter_and_body(kept, text))

    def remove_all_unedited_documents(self) -> None:
        """Remove all unedited documents. `edited` and `problems` name the documents that remain."""
        for url in list(self.documents):
            self.remove_document(url)
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def read_stored_document(path: Path, source: str) -> StoredDocument | None:
    """Return the document in a file; None if the source did not write the file."""
    split = None if path.is_symlink() else _read_stored_source_document(path)
    if split is None:
        return None
    facts, text = split
    url, digest = facts.get("source_url"), str(facts.get("digest") or "")
    if facts.get("source") != source or not isinstance(url, str):
        return None
    rest = {key: value for key, value in facts.items() if key not in ("fetched_at", "digest")}
    return StoredDocument(path, url, digest, compute_document_digest(rest, text) != digest)


def _read_stored_source_document(path: Path) -> tuple[dict[str, Any], str] | None:
    try:
        content = read_regular_file(path, MAX_FILE_BYTES).decode("utf-8").replace("\r\n", "\n")
    except (OSError, ValueError):
        return None
    split = split_front_matter(content)
    return split.facts, split.body.strip("\n")


def compute_document_digest(facts: dict[str, Any], text: str) -> str:
    """Return a digest of a document's front matter and text, as 16 hexadecimal digits.

    `facts` is the front matter without the keys `fetched_at` and `digest`.
    """
    shape = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(f"{shape}\0{text}".encode("utf-8", "replace")).hexdigest()[:16]


MAX_NAMED_PROBLEMS = 500


@dataclass
class SourceRunContext:
    """The state of one run. Fetchers report documents and failures to it.

    `memory` maps URLs to facts from the previous run, such as ETags. `new_memory` collects the
    facts for the next run. If `is_complete` is true, documents that the run did not find count as
    deleted.
    """

    source: DocumentSourceDefinition
    document_store: SourceDocumentStore
    memory: dict[str, FetchedAddressFacts]
    on_progress: Callable[[SourceRunProgress], None]
    new_memory: dict[str, FetchedAddressFacts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    skips: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True

    def __post_init__(self) -> None:
        self.memory = {
            url: facts
            for url, facts in self.memory.items()
            if facts.get("reader") == EXTRACTION_VERSION
        }

    def report_progress(self, done: int, total: int, now: str) -> None:
        """Report the progress of the run. `now` is the URL or the name of the current document."""
        self.on_progress(SourceRunProgress(self.source.name, done, total, now))

    def store_document(self, document: FetchedDocument, facts: FetchedAddressFacts) -> None:
        """Store a document. A document without text is skipped.

        If the document cannot be written, a failure is recorded.
        """
        if not document.text.strip():
            self.record_skipped_document(document.url, "the document has no text")
            return
        try:
            self.document_store.write_document(document)
            self.new_memory[document.url] = {**facts, "reader": EXTRACTION_VERSION}
        except KbtuiError as error:
            self.record_failed_document(document.url, str(error), permanent=False)

    def record_unchanged_document(self, url: str) -> None:
        """Record that a document has not changed. The facts from the previous run stay valid."""
        self.document_store.mark_document_unchanged(url)
        self.new_memory[url] = self.memory.get(url, {})

    def record_skipped_document(self, what: str, reason: str) -> None:
        """Record the reason why a URL or file is skipped, for example that it is not a document."""
        self.skips.setdefault(what, reason)

    def record_failed_document(self, what: str, reason: str, *, permanent: bool = True) -> None:
        """Record a failure. If it is not `permanent`, the run counts as incomplete.

        After an incomplete run, no document is considered deleted.
        """
        self.problems.append(f"{what}: {reason}")
        if not permanent:
            self.is_complete = False
            if what in self.memory:
                self.new_memory[what] = self.memory[what]


def make_document_name_from_url(url: str, base: str) -> str:
    """Return the path, without extension, of the file for the document at `url`.

    The result is the path in `url`, relative to the directory of the URL `base`. If the two URLs
    have different hosts, the result begins with the host of `url`.
    """
    parts, start = urlsplit(url), urlsplit(base)
    path = unquote(parts.path, errors="replace")
    common = unquote(start.path, errors="replace").rpartition("/")[0] + "/"
    names = []
    if make_key_for_comparing_sites_of_urls(url) == make_key_for_comparing_sites_of_urls(base):
        path = path.removeprefix(common)
    else:
        names.append(parts.hostname or "host")
    pieces = [piece for piece in path.split("/") if piece.strip(". ")]
    if path.endswith("/") or not pieces:
        pieces.append("index")
    names += [*pieces[:-1], _ENDINGS.sub("", pieces[-1])]
    if len(names) > MAX_NAME_DEPTH:
        names = [*names[: MAX_NAME_DEPTH - 1], "-".join(names[MAX_NAME_DEPTH - 1 :])]
    name = "/".join(map(make_safe_file_name, names))
    return f"{name}-{_compute_short_hash(parts.query)}" if parts.query else name


def _compute_short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6]
