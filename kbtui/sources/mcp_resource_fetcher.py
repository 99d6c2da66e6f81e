"""Runs sources of the kind `mcp`: reads the resources of an MCP server over stdio."""

from __future__ import annotations

import base64
import binascii
import logging
import os
import tempfile
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from kbtui.errors import KbtuiError
from kbtui.knowledge.subject_files import fence_file_text_unless_prose, make_safe_file_name
from kbtui.sources.document_text_extraction import HTML, MARKDOWN, PDF, PLAIN, TextExtractionError
from kbtui.sources.http_fetcher import explain_too_large_document
from kbtui.sources.source_document_store import FetchedDocument
from kbtui.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kbtui.sources.document_text_extraction import TextExtractorProcess
    from kbtui.sources.http_fetcher import SourceRunLimits
    from kbtui.sources.source_document_store import SourceRunContext

# Without a handler, Python prints the SDK's tracebacks to stderr. The run reports these errors itself.
logging.getLogger("mcp.client").addHandler(logging.NullHandler())

MAX_TIMEOUTS_IN_A_ROW = 3


class UnextractableMcpResourceError(TextExtractionError):
    """A resource whose type or size is not supported."""


async def fetch_mcp_resources(
    run: SourceRunContext, root: Path, extractor: TextExtractorProcess, limits: SourceRunLimits
) -> None:
    """Start the source's MCP server in the directory `root`, and store the server's resources.

    Raises `KbtuiError` if the server fails.
    """
    source = run.source
    server = StdioServerParameters(
        command=source.server[0],
        args=list(source.server[1:]),
        env={name: os.environ[name] for name in source.env if name in os.environ},
        cwd=root,
    )
    failure: Exception | None = None
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            # Use anyio's timeouts: asyncio's would also cancel the SDK while it stops the server.
            with anyio.fail_after(limits.run_seconds):
                async with (
                    stdio_client(server, errlog=log) as (read, write),
                    ClientSession(
                        read,
                        write,
                        client_info=types.Implementation(name="kbtui", version=__version__),
                    ) as session,
                ):
                    try:
                        with anyio.fail_after(max(limits.seconds, limits.connect_seconds)):
                            await session.initialize()
                        await _fetch_matching_mcp_resources(run, session, extractor, limits)
                    except (MCPError, TimeoutError, RuntimeError, ValueError) as error:
                        # Raise the error later: the task groups would wrap it in an ExceptionGroup.
                        failure = error
        except (OSError, ExceptionGroup) as error:
            failure = failure or error
        if failure is not None:
            raise KbtuiError(
                f"the MCP server failed: {_describe_mcp_error(failure)}",
                where=source.url_path_or_command,
                hint=_read_last_stderr_line_of_mcp_server(log),
            ) from failure


def _describe_mcp_error(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "the server did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _read_last_stderr_line_of_mcp_server(log: Any) -> str | None:
    """Return the last line that the server wrote to stderr, as a hint."""
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - 2000))
    lines = log.read().strip().split("\n")
    return f"the server wrote: {lines[-1][:300]}" if lines[-1] else None


async def _fetch_matching_mcp_resources(
    run: SourceRunContext,
    session: ClientSession,
    extractor: TextExtractorProcess,
    limits: SourceRunLimits,
) -> None:
    """Fetch and store every resource that matches the source's pattern."""
    seconds = limits.seconds
    with anyio.fail_after(seconds):
        wanted = [
            resource
            async for resource in _list_mcp_resources(session, limits.files)
            if run.source.pattern is None or fnmatchcase(resource.uri, run.source.pattern)
        ]
    if len(wanted) > limits.files:
        reason = limits.explain_too_many_documents(len(wanted), "resources")
        run.record_failed_document(run.source.name, reason, permanent=False)
    late = 0
    for done, resource in enumerate(wanted[: limits.files]):
        run.report_progress(done, len(wanted), resource.uri)
        try:
            with anyio.fail_after(seconds):
                text = await _read_mcp_resource_text(session, resource, extractor, limits.bytes)
        except TimeoutError:
            reason = f"no complete answer after {seconds:g} s"
            run.record_failed_document(resource.uri, reason, permanent=False)
            late += 1
            if late >= MAX_TIMEOUTS_IN_A_ROW:
                raise
        except UnextractableMcpResourceError as error:
            run.record_skipped_document(resource.uri, str(error))
        except (TextExtractionError, MCPError) as error:
            permanent = isinstance(error, TextExtractionError)
            run.record_failed_document(resource.uri, str(error), permanent=permanent)
        else:
            late = 0
            pieces = resource.uri.partition("://")[2].split("/")
            names = [piece for piece in pieces if piece.strip(". ")] or [resource.uri]
            title = resource.title or resource.name or resource.uri
            name = "/".join(map(make_safe_file_name, names))
            run.store_document(FetchedDocument(resource.uri, name, title, text), {})


async def _list_mcp_resources(session: ClientSession, limit: int) -> AsyncIterator[types.Resource]:
    cursor: str | None = None
    seen: set[str] = set()
    # Limit the pages: a server may put one resource on each, or never end its list.
    for _ in range(limit + 1):
        params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
        found = await session.list_resources(params=params)
        for resource in found.resources:
            if resource.uri not in seen:
                seen.add(resource.uri)
                yield resource
        cursor = found.next_cursor
        if not cursor:
            return


async def _read_mcp_resource_text(
    session: ClientSession,
    resource: types.Resource,
    extractor: TextExtractorProcess,
    max_bytes: int,
) -> str:
    """Return a resource's contents as Markdown.

    Raises `TextExtractionError` if any part of the contents is unreadable.
    """
    found = await session.read_resource(resource.uri)
    if not isinstance(found, types.ReadResourceResult):
        raise TextExtractionError("the server asks for input, which kbtui cannot provide")
    parts = []
    for content in found.contents:
        kind = (content.mime_type or resource.mime_type or "").partition(";")[0].strip().lower()
        if isinstance(content, types.TextResourceContents):
            data = content.text.encode("utf-8", "replace")
        else:
            try:
                data = base64.b64decode(content.blob, validate=True)
            except (binascii.Error, ValueError) as error:
                raise TextExtractionError("the content is not base64") from error
        if len(data) > max_bytes:
            raise UnextractableMcpResourceError(explain_too_large_document(max_bytes, len(data)))
        if kind in (*HTML, *PDF, *MARKDOWN, *PLAIN):
            parts.append(
                (await extractor.extract_in_child_process(data, kind, resource.uri, "utf-8"))[
                    "text"
                ]
            )
        elif isinstance(content, types.TextResourceContents):
            is_prose = not kind or kind.startswith("text/")
            name = "x" if is_prose else f"x.{kind.rpartition('/')[2].rpartition('+')[2]}"
            parts.append(fence_file_text_unless_prose(content.text, name))
        else:
            raise UnextractableMcpResourceError(
                f"content type {kind or '(unknown)'} is not supported"
            )
    return "\n\n".join(part.strip("\n") for part in parts)
