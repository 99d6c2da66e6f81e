"""Runs sources of the kind `url_crawl`: fetches a page and the pages that it links to.

Requests are slow and limited in number, so that they do not burden the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
import time
import zlib
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from protego import Protego

from kbtui.errors import KbtuiError
from kbtui.sources.crawl_url_policy import AllowedUrlPrefixes, normalize_url
from kbtui.sources.document_text_extraction import READABLE, TextExtractionError
from kbtui.sources.http_fetcher import AGENT, FetchError
from kbtui.sources.source_document_store import FetchedDocument, make_document_name_from_url
from kbtui.terminal_text import format_counted_noun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from kbtui.sources.document_text_extraction import TextExtractorProcess
    from kbtui.sources.http_fetcher import FetchedResponse, HttpFetcher, SourceRunLimits
    from kbtui.sources.source_document_store import SourceRunContext
    from kbtui.userdata.user_data_store import FetchedAddressFacts

MAX_ROBOTS_BYTES = 512_000
"""A robots.txt with more than this many bytes counts as missing.

RFC 9309 requires a limit of at least 500 KiB.
"""
MAX_SITEMAPS, MAX_SITEMAP_BYTES = 50, 50_000_000
MAX_FAILURES_IN_A_ROW = 10

ROBOTS_REFUSAL = "not allowed by robots.txt"
_XML = ("application/xml", "text/xml")
_GZIP = ("application/gzip", "application/x-gzip")
_SITEMAP_LOCATION = re.compile(r"<(?:\w{1,20}:)?loc>\s{0,100}(?:<!\[CDATA\[)?([^<]{1,3000})")
_UNREADABLE_EXTENSION = re.compile(
    r"\.(?:png|jpe?g|gif|svg|webp|ico|css|js|mjs|json|zip|gz|tgz|xz|bz2|7z|tar|exe|dmg|whl|jar|mp[34]|webm|"
    r"woff2?|ttf|eot|avi|mov|iso|deb|rpm|xlsx?|doc|pptx?|rss|atom)$",
    re.IGNORECASE,
)


class WebCrawler:
    """One crawl of a source's website."""

    def __init__(
        self, run: SourceRunContext, fetcher: HttpFetcher, extractor: TextExtractorProcess
    ) -> None:
        self._run, self._fetcher, self._extractor = run, fetcher, extractor
        self._limits: SourceRunLimits = fetcher.limits
        self._start = normalize_url(run.source.url or "") or ""
        self._bounds = AllowedUrlPrefixes(self._start, run.source.prefixes)
        self._queue: deque[tuple[str, int]] = deque()
        self._known: set[str] = set()
        self._robots: dict[str, Protego] = {}
        self._last_requests: dict[str, float] = {}
        self._done = self._failures = 0

    async def crawl_and_store_pages(self) -> None:
        """Fetch the first page, and the linked pages that are within the source's prefixes.

        Raises `KbtuiError` if the first page cannot be fetched.
        """
        end = time.monotonic() + self._limits.run_seconds
        self._enqueue_urls([self._start], 0)
        while self._queue:
            left, reason = len(self._queue), None
            if self._done >= self._limits.pages or time.monotonic() > end:
                key = "source_pages" if self._done >= self._limits.pages else "source_seconds"
                reason = (
                    f"stopped after {format_counted_noun(self._done, 'page')} with {left:,} more to fetch; "
                    f"to fetch more, raise the setting {key}"
                )
            elif self._failures >= MAX_FAILURES_IN_A_ROW:
                pages = format_counted_noun(left, "page was", "pages were")
                reason = (
                    f"stopped after {MAX_FAILURES_IN_A_ROW} failures in a row; {pages} not fetched"
                )
            if reason:
                self._run.record_failed_document(self._start, reason, permanent=False)
                return
            url, depth = self._queue.popleft()
            self._run.report_progress(self._done, self._done + len(self._queue) + 1, url)
            await self._crawl_page(url, depth)
            self._done += 1
            if url == self._start and self._run.source.depth > 0:
                await self._enqueue_sitemap_urls()

    def _enqueue_urls(self, urls: Iterable[str], depth: int) -> None:
        for found in urls:
            url = normalize_url(found)
            if url is None or url in self._known or url not in self._bounds:
                continue
            if named := _UNREADABLE_EXTENSION.search(urlsplit(url).path):
                reason = f"{named[0].lower()} files are not supported"
                self._run.record_skipped_document(url, reason)
            else:
                self._known.add(url)
                self._queue.append((url, depth))

    async def _crawl_page(self, url: str, depth: int) -> None:
        try:
            robots = await self._load_robots_txt(url)
            if not robots.can_fetch(url, AGENT):
                if url == self._start:
                    raise KbtuiError(ROBOTS_REFUSAL, where=url)
                self._run.record_skipped_document(url, ROBOTS_REFUSAL)
                return
            found = await self._fetch_after_host_delay(url, robots)
            self._failures = 0
            final = normalize_url(found.url) or url
            if final != url:
                if final in self._known and final != self._start:
                    return
                self._known.add(final)
                if not (await self._load_robots_txt(final)).can_fetch(final, AGENT):
                    self._run.record_skipped_document(final, ROBOTS_REFUSAL)
                    return
            await self._store_or_enqueue_response(final, found, depth)
        except FetchError as error:
            if url == self._start:
                raise KbtuiError(error.reason, where=url) from error
            self._failures += not error.is_permanent
            if error.is_gone:
                self._run.document_store.remove_document(url)
            if error.is_permanent:
                self._run.record_skipped_document(url, error.reason)
            else:
                self._run.record_failed_document(url, error.reason, permanent=False)

    async def _store_or_enqueue_response(
        self, url: str, found: FetchedResponse, depth: int
    ) -> None:
        if found.status == 304:
            if not self._run.document_store.is_stored_and_unedited(url):
                raise FetchError("unexpected answer 304: the request was not conditional")
            self._run.record_unchanged_document(url)
            self._enqueue_links(self._run.memory.get(url, {}).get("links", []), depth)
            return
        if found.content_type in _XML:
            self._enqueue_urls(
                _parse_page_urls_in_sitemap(found.body.decode("utf-8", "replace")), depth
            )
            return
        kind = found.content_type
        try:
            facts = await self._extractor.extract_in_child_process(
                found.body, kind, url, found.charset
            )
        except TextExtractionError as error:
            if url == self._start:
                raise KbtuiError(str(error), where=url) from error
            self._run.record_failed_document(url, str(error))
            return
        targets = dict.fromkeys(map(normalize_url, facts.get("links", [])))
        links = [link for link in targets if link and link in self._bounds]
        self._enqueue_links(links, depth)
        if facts.get("noindex"):
            self._run.record_skipped_document(url, "the page asks not to be indexed (noindex)")
        else:
            name = make_document_name_from_url(url, self._start)
            title = facts["title"] or name.rpartition("/")[2].replace("-", " ")
            document = FetchedDocument(url, name, title, facts["text"], tuple(facts["tags"]))
            get = found.headers.get
            kept: FetchedAddressFacts = {
                "etag": get("etag"),
                "modified": get("last-modified"),
                "links": links,
            }
            self._run.store_document(document, kept)

    def _enqueue_links(self, links: Iterable[str], depth: int) -> None:
        if depth < self._run.source.depth:
            self._enqueue_urls(links, depth + 1)

    async def _fetch_after_host_delay(self, url: str, robots: Protego) -> FetchedResponse:
        """Fetch a URL after the delay for its host.

        If the server asks for a short pause, wait, and fetch the URL once more.
        """
        accept = (*READABLE, *_XML) if url == self._start else READABLE
        for again in (True, False):
            try:
                async with self._wait_for_host_delay(url, robots):
                    return await self._fetcher.fetch_url(
                        url,
                        accept=accept,
                        conditions=self._make_conditional_headers,
                        inside=lambda target: (normalize_url(target) or "") in self._bounds,
                    )
            except FetchError as error:
                wait = error.retry_after
                if wait is None or wait > self._limits.max_delay or not again:
                    raise
                await asyncio.sleep(wait)
        raise AssertionError

    @contextlib.asynccontextmanager
    async def _wait_for_host_delay(self, url: str, robots: Protego | None) -> AsyncIterator[None]:
        """Wait until a request to the host is allowed again.

        The caller sends the request in the `async with` block. The delay between two requests is
        the one in the settings or the one in robots.txt, whichever is longer.
        """
        host = urlsplit(url).netloc
        delay = self._limits.delay
        if robots is not None:
            wanted = robots.crawl_delay(AGENT) or 0.0
            # A delay of NaN fails the comparison and is ignored.
            delay = max(delay, min(wanted, self._limits.max_delay)) if wanted > 0 else delay
        left = self._last_requests.get(host, -1e9) + delay - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        try:
            yield
        finally:
            self._last_requests[host] = time.monotonic()

    def _make_conditional_headers(self, url: str) -> dict[str, str]:
        known = normalize_url(url) or url
        facts = self._run.memory.get(known, {})
        if not self._run.document_store.is_stored_and_unedited(known):
            return {}
        headers = {"If-None-Match": facts.get("etag"), "If-Modified-Since": facts.get("modified")}
        return {name: value for name, value in headers.items() if value}

    async def _load_robots_txt(self, url: str) -> Protego:
        """Return the rules in the host's robots.txt.

        If the server fails, no page may be fetched (RFC 9309, 2.3.1.4), so this raises
        `FetchError`.
        """
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._robots:
            text = ""
            try:
                async with self._wait_for_host_delay(url, None):
                    path = f"{origin}/robots.txt"
                    found = await self._fetcher.fetch_url(path, max_bytes=MAX_ROBOTS_BYTES)
                text = found.body.decode("utf-8", "replace")
            except FetchError as error:
                if not error.is_permanent:
                    raise FetchError(f"robots.txt: {error.reason}") from error
            self._robots[origin] = Protego.parse(text)
        return self._robots[origin]

    async def _enqueue_sitemap_urls(self) -> None:
        """Add the URLs in the host's sitemaps to the queue.

        They get the same depth as links on the first page.
        """
        parts = urlsplit(self._start)
        usual = f"{parts.scheme}://{parts.netloc}/sitemap.xml"
        robots = await self._load_robots_txt(self._start)
        listed = [url for url in map(normalize_url, robots.sitemaps) if url]
        todo = deque(dict.fromkeys([*listed, usual]))
        seen = set(todo)
        while todo and len(seen) <= MAX_SITEMAPS:
            url = todo.popleft()
            if urlsplit(url).netloc != parts.netloc:
                continue
            try:
                accept, max_bytes = (*_XML, *_GZIP, "text/plain"), MAX_SITEMAP_BYTES
                async with self._wait_for_host_delay(url, robots):
                    found = await self._fetcher.fetch_url(url, accept=accept, max_bytes=max_bytes)
            except FetchError as error:
                # Most hosts have no sitemap. After a temporary failure, unseen pages may still exist.
                if not error.is_permanent:
                    self._run.record_failed_document(url, error.reason, permanent=False)
                continue
            text = _unpack_sitemap(found.body)
            locations = [
                url for url in map(normalize_url, _parse_page_urls_in_sitemap(text)) if url
            ]
            if "<sitemapindex" in text[:2000]:
                fresh = [url for url in locations if url not in seen]
                seen.update(fresh)
                todo.extend(fresh)
            else:
                self._enqueue_urls(locations, 1)


def _parse_page_urls_in_sitemap(text: str) -> list[str]:
    found = [
        html.unescape(match[1].strip().removesuffix("]]>").strip())
        for match in _SITEMAP_LOCATION.finditer(text)
    ]
    return found or [line.strip() for line in text.split("\n") if line.startswith("http")]


def _unpack_sitemap(body: bytes) -> str:
    if body[:2] == b"\x1f\x8b":
        try:
            body = zlib.decompressobj(wbits=31).decompress(body, MAX_SITEMAP_BYTES)
        except zlib.error:
            return ""
    return body.decode("utf-8", "replace")
