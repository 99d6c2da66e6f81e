"""Runs sources of the kind `file_upload`: imports a file, or each readable file of a directory."""

from __future__ import annotations

import os
import stat
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.knowledge.subject_files import (
    BINARY_BYTES,
    fence_file_text_unless_prose,
    make_safe_file_name,
)
from kbtui.sources.document_text_extraction import (
    CODE,
    DOCX,
    HTML,
    MARKDOWN,
    PDF,
    PLAIN,
    TextExtractionError,
)
from kbtui.sources.http_fetcher import explain_too_large_document
from kbtui.sources.source_document_store import FetchedDocument
from kbtui.workspace.paths import expand_user

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.sources.document_text_extraction import TextExtractorProcess
    from kbtui.sources.http_fetcher import SourceRunLimits
    from kbtui.sources.source_document_store import SourceRunContext

_CONTENT_TYPES_BY_EXTENSION = {
    **dict.fromkeys((".md", ".markdown"), MARKDOWN[0]),
    **dict.fromkeys((".txt", ".text", ".rst", ".adoc", ".org"), PLAIN[0]),
    **dict.fromkeys((".html", ".htm", ".xhtml"), HTML[0]),
    ".pdf": PDF[0],
    ".docx": DOCX[0],
}
"""The content type of each file extension. A text file with any other extension counts as source code."""
_LANGUAGES_BY_FILE_NAME = {
    "makefile": "makefile",
    "dockerfile": "dockerfile",
    "jenkinsfile": "groovy",
}
_INTERPRETERS = ("python", "bash", "sh", "zsh", "fish", "node", "perl", "ruby")


class _FileSkippedError(Exception):
    """A file is skipped; the message says why."""


async def import_source_files(
    run: SourceRunContext, root: Path, extractor: TextExtractorProcess, limits: SourceRunLimits
) -> None:
    """Import the file or directory that the source's key `file` specifies.

    A relative path is relative to `root`, the workspace's root. Raises `KbtuiError` if the path
    does not exist.
    """
    base = root / Path(expand_user(run.source.file or ""))
    if not base.exists():
        raise KbtuiError("the file does not exist", where=str(base))
    if not base.is_file() and not base.is_dir():
        raise KbtuiError("neither a file nor a directory", where=str(base))
    named = _make_url_prefix_of_imported_files(run.source.file or "", base, root)
    found = (
        [(base, "")] if base.is_file() else list(_iterate_visible_files_to_import(run, base, named))
    )
    if len(found) > limits.files:
        reason = limits.explain_too_many_documents(len(found), "files")
        run.record_failed_document(named, reason, permanent=False)
    for done, (path, relative) in enumerate(found[: limits.files]):
        below = f"/{relative}" if relative else ""
        # Versions up to 0.1 identified documents by absolute paths.
        run.document_store.change_document_url(f"{run.source.file}{below}", named + below)
        run.report_progress(done, len(found), named + below)
        await _import_source_file(run, path, relative, named + below, extractor, limits.bytes)


def _make_url_prefix_of_imported_files(file: str, base: Path, root: Path) -> str:
    """Return the path that all URLs of a source's documents begin with.

    A relative `file` is returned unchanged. An absolute path inside the workspace becomes relative
    to `root`. For any other path, only the last part is returned.
    """
    if not file.startswith(("/", "~")):
        return file
    real, top = base.resolve(), root.resolve()
    return real.relative_to(top).as_posix() if real.is_relative_to(top) else base.name


def _iterate_visible_files_to_import(
    run: SourceRunContext, base: Path, named: str
) -> Iterator[tuple[Path, str]]:
    """Yield each file in the directory `base`, with its relative path.

    Hidden files and links are recorded as skipped, under a path that begins with `named`.
    """
    for folder, folders, names in os.walk(base):
        for name in sorted([*folders, *names]):
            path = Path(folder, name)
            relative = path.relative_to(base).as_posix()
            if name.startswith(".") or path.is_symlink():
                reason = "the file is hidden" if name[0] == "." else "links are not followed"
                run.record_skipped_document(f"{named}/{relative}", reason)
            elif name in names:
                yield path, relative
        folders[:] = sorted(name for name in folders if not name.startswith("."))


async def _import_source_file(
    run: SourceRunContext,
    path: Path,
    relative: str,
    url: str,
    extractor: TextExtractorProcess,
    max_bytes: int,
) -> None:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _FileSkippedError("not a regular file")
        if status.st_size > max_bytes:
            raise _FileSkippedError(explain_too_large_document(max_bytes, status.st_size))
        mark = f"{status.st_size}:{status.st_mtime_ns}"
        if run.memory.get(url, {}).get(
            "stat"
        ) == mark and run.document_store.is_stored_and_unedited(url):
            run.record_unchanged_document(url)
            return
        kind = _CONTENT_TYPES_BY_EXTENSION.get(
            path.suffix.lower()
        ) or _get_content_type_of_text_file(path)
        # Without a URL, links between the files stay relative.
        facts = await extractor.extract_in_child_process(path.read_bytes(), kind, "")
    except _FileSkippedError as error:
        run.record_skipped_document(url, str(error))
    except OSError as error:
        reason = error.strerror or str(error)
        run.record_failed_document(url, f"the file cannot be read: {reason}", permanent=False)
    except TextExtractionError as error:
        run.record_failed_document(url, str(error))
    else:
        text, parts = facts["text"], Path(relative or path.name).parts
        if kind not in CODE:
            parts = (*parts[:-1], path.stem)
        elif text.strip() and (
            language := path.suffix[1:] or _detect_programming_language_of_file(path.name, text)
        ):
            text = fence_file_text_unless_prose(text, f"x.{language}")
        name, title = "/".join(map(make_safe_file_name, parts)), facts["title"] or parts[-1]
        document = FetchedDocument(url, name, title, text, tuple(facts["tags"]))
        run.store_document(document, {"stat": mark})


def _get_content_type_of_text_file(path: Path) -> str:
    """Return the content type for code and other text files.

    Raises `_FileSkippedError` if the file is not a text file.
    """
    kind = guess_type(path.name)[0] or ""
    if kind.partition("/")[0] in ("image", "audio", "font"):
        raise _FileSkippedError(f"content type {kind} is not supported")
    with path.open("rb") as file:
        if b"\0" in file.read(BINARY_BYTES):
            raise _FileSkippedError("the file is binary")
    return CODE[0]


def _detect_programming_language_of_file(name: str, text: str) -> str:
    """Return the programming language of a file whose name has no extension; "" for prose."""
    first = text.partition("\n")[0]
    if first.startswith("#!"):
        program = first.split("/")[-1].split()[-1].rstrip("0123456789.")
        return program if program in _INTERPRETERS else "sh"
    return _LANGUAGES_BY_FILE_NAME.get(name.lower(), "")
