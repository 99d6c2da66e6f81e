"""Fetches URLs over HTTP within limits, and only from public addresses.

A host name is resolved once, and the address is checked. The connection uses this checked address,
even if DNS later returns another one. Proxies and credentials in the environment are ignored.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import httpx

from kbtui.errors import ConfigError
from kbtui.sources import crawl_url_policy
from kbtui.version import __version__

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from kbtui.workspace import Settings

    HostResolver = Callable[[str, int], Awaitable[list[str]]]
    """A function that takes a host and a port and returns the addresses of the host."""

AGENT = "kbtui"
USER_AGENT = f"{AGENT}/{__version__} (a user's own crawl; obeys robots.txt)"
MAX_URL_CHARACTERS = 2000
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class SourceRunLimits:
    """The limits of a run, with times in seconds and sizes in bytes.

    `seconds` is the longest time for one document, including redirects. `delay` is the time to wait
    between two requests to the same host. A host's robots.txt can increase this delay up to
    `max_delay`.
    """

    pages: int = 1000
    files: int = 5000
    bytes: int = 50_000_000
    redirects: int = 5
    seconds: float = 60.0
    connect_seconds: float = 10.0
    run_seconds: float = 3600.0
    delay: float = 0.5
    max_delay: float = 30.0

    def explain_too_many_documents(self, count: int, what: str) -> str:
        """Return the message for a run that found more documents than the limit `files`.

        `count` is the number of documents found. `what` is a plural noun for them, such as
        "resources".
        """
        return (
            f"only the first {self.files:,} of {count:,} {what} were read; "
            "to read more, raise the setting source_files"
        )


def make_source_run_limits(settings: Settings) -> SourceRunLimits:
    """Return the limits that the user's settings define."""
    return SourceRunLimits(
        pages=settings.source_pages,
        files=settings.source_files,
        bytes=settings.source_bytes,
        run_seconds=settings.source_seconds,
        delay=settings.source_delay,
    )


def explain_too_large_document(max_bytes: int, size: int | None = None) -> str:
    """Format the error message for a document that is larger than `max_bytes`.

    `size` is the document's size in bytes; None if the size is unknown.
    """
    limit = f"than the limit of {max_bytes:,} bytes (setting source_bytes)"
    if size is None:
        return f"the document is larger {limit}"
    return f"the document has {size:,} bytes, more {limit}"


class FetchError(Exception):
    """A URL could not be fetched; `reason` says why.

    * If `is_permanent` is true, another try would not help.
    * If `is_gone` is true, the document no longer exists.
    * `retry_after` is the number of seconds that the server asks the client to wait.
    """

    def __init__(
        self,
        reason: str,
        *,
        permanent: bool = False,
        gone: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason, self.is_permanent = reason, permanent or gone
        self.is_gone, self.retry_after = gone, retry_after


@dataclass
class FetchedResponse:
    """A response. `url` is the URL after all redirects, not the requested one."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    charset: str | None = None

    @property
    def content_type(self) -> str:
        """The content type in lower case without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


async def resolve_host_name(host: str, port: int) -> list[str]:
    """Return the addresses that the system's resolver returns for a host."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in found))


@dataclass
class HttpFetcher:
    """Fetches the URLs of one source. Use it in an `async with` statement."""

    limits: SourceRunLimits
    allow_hosts: Collection[str] = ()
    resolve: HostResolver = resolve_host_name
    _clients: dict[tuple[str, str, int], httpx.AsyncClient] = field(default_factory=dict)

    async def __aenter__(self) -> HttpFetcher:
        return self

    async def __aexit__(self, *args: object) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    async def fetch_url(
        self,
        url: str,
        *,
        accept: Collection[str] = (),
        conditions: Callable[[str], Mapping[str, str]] = lambda url: {},
        inside: Callable[[str], bool] = lambda url: True,
        max_bytes: int | None = None,
    ) -> FetchedResponse:
        """Fetch a URL and follow its redirects; raises `FetchError`.

        * `accept` contains the accepted content types; if it is empty, all types are accepted.
        * `conditions(url)` returns request headers such as If-None-Match.
        * `inside(url)` returns whether a redirect to this URL is followed. Any other redirect
          raises `FetchError`.
        * `max_bytes` limits the size of the body; a larger body raises `FetchError`. None means the
          run's limit.
        """
        limit = self.limits.redirects
        try:
            async with asyncio.timeout(self.limits.seconds):
                for _ in range(limit + 1):
                    size = max_bytes or self.limits.bytes
                    found = await self._fetch_without_redirects(url, accept, conditions(url), size)
                    if found.status not in _REDIRECTS:
                        return found
                    url = self._get_allowed_redirect_url(url, found, inside)
        except TimeoutError:
            reason = f"no complete answer after {self.limits.seconds:g} s"
            raise FetchError(reason) from None
        raise FetchError(f"redirected more than {limit} times", permanent=True)

    def _get_allowed_redirect_url(
        self, url: str, found: FetchedResponse, inside: Callable[[str], bool]
    ) -> str:
        """Return the URL that a response redirects to.

        Raises `FetchError` if that URL is not allowed.
        """
        try:
            target = str(httpx.URL(urljoin(url, found.headers.get("location", ""))))
            crawl_url_policy.check_url_is_allowed(target, self.allow_hosts)
        except (httpx.InvalidURL, ValueError) as error:
            raise FetchError("redirected to an invalid URL", permanent=True) from error
        except ConfigError as error:
            reason = f"redirected to {target}: {error.message}"
            raise FetchError(reason, permanent=True) from error
        if not inside(target):
            raise FetchError(
                f"redirected to {target}, which is outside the source's prefixes", permanent=True
            )
        return target

    async def _fetch_without_redirects(
        self, url: str, accept: Collection[str], conditions: Mapping[str, str], max_bytes: int
    ) -> FetchedResponse:
        if len(url) > MAX_URL_CHARACTERS:
            raise FetchError("the URL is too long", permanent=True)
        try:
            crawl_url_policy.check_url_is_allowed(url, self.allow_hosts)
            parsed = httpx.URL(url)
        except (ConfigError, httpx.InvalidURL) as error:
            reason = error.message if isinstance(error, ConfigError) else str(error)
            raise FetchError(reason, permanent=True) from error
        host = parsed.raw_host.decode("ascii")
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        client = self._get_or_create_http_client_of_host(parsed.scheme, host, port)
        headers = {
            "Host": parsed.netloc.decode("ascii"),
            "User-Agent": USER_AGENT,
            "Accept": ", ".join(accept) or "*/*",
            "Accept-Encoding": "gzip",
            **conditions,
        }
        failure: httpx.HTTPError | None = None
        for address in await self._resolve_public_addresses(host, port):
            # Drop cookies, so that the server cannot track the crawl from page to page.
            client.cookies.clear()
            target, extensions = parsed.copy_with(host=address), {"sni_hostname": host}
            try:
                async with client.stream(
                    "GET", target, headers=headers, extensions=extensions
                ) as response:
                    return await _read_http_response(response, str(parsed), accept, max_bytes)
            except httpx.HTTPError as error:
                failure = error
                if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    break
        raise FetchError(_describe_http_error(failure)) from failure

    async def _resolve_public_addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host.

        Raises `FetchError` if an address is private and the user has not allowed the host.
        """
        given = crawl_url_policy.parse_ip_literal(host)
        found = [str(given)]
        if given is None:
            try:
                async with asyncio.timeout(self.limits.connect_seconds):
                    found = await self.resolve(host, port)
            except (OSError, UnicodeError) as error:
                reason = (
                    getattr(error, "strerror", None) or str(error) or "the look-up took too long"
                )
                raise FetchError(f"the name {host} cannot be resolved: {reason}") from error
        if not found:
            raise FetchError(f"the name {host} has no address")
        if not crawl_url_policy.is_allowed_private_host(host, self.allow_hosts):
            for text in found:
                if not crawl_url_policy.is_public_ip_address(
                    ipaddress.ip_address(text.partition("%")[0])
                ):
                    resolved = None if given is not None else text
                    private = crawl_url_policy.make_private_host_error(host, resolved)
                    raise FetchError(f"{private.message} ({private.hint})", permanent=True)
        return found

    def _get_or_create_http_client_of_host(
        self, scheme: str, host: str, port: int
    ) -> httpx.AsyncClient:
        """Return the HTTP client of a host.

        Each host has its own client, because a shared client would not check all certificates.
        """
        key = (scheme, host, port)
        if key not in self._clients:
            self._clients[key] = httpx.AsyncClient(
                verify=self.make_tls_context() if scheme == "https" else False,
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(self.limits.connect_seconds, read=self.limits.seconds),
            )
        return self._clients[key]

    def make_tls_context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the authorities of certifi and of this system."""
        context = httpx.create_ssl_context(trust_env=False)
        context.load_default_certs()
        return context


async def _read_http_response(
    response: httpx.Response, url: str, accept: Collection[str], max_bytes: int
) -> FetchedResponse:
    status, headers, charset = response.status_code, response.headers, response.charset_encoding
    found = FetchedResponse(url, status, headers, charset=charset)
    if status == 200:
        kind, length = found.content_type, headers.get("content-length", "")
        if accept and kind not in accept:
            message = f"content type {kind or '(unknown)'} is not supported"
            raise FetchError(message, permanent=True)
        if length.isdigit() and int(length) > max_bytes:
            raise FetchError(explain_too_large_document(max_bytes, int(length)), permanent=True)
        found.body = await _read_http_response_body(response, max_bytes)
    elif status not in (*_REDIRECTS, 304):
        after = headers.get("retry-after", "")
        raise FetchError(
            f"the server answered {status}",
            permanent=status < 500 and status != 429,
            gone=status in (404, 410),
            retry_after=float(after) if status in (429, 503) and after.isdecimal() else None,
        )
    return found


async def _read_http_response_body(response: httpx.Response, max_bytes: int) -> bytes:
    """Return the decompressed body of a response.

    Raises `FetchError` if the body is larger than `max_bytes` bytes.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", ""):
        message = f"the response is compressed as {encoding}, which was not requested"
        raise FetchError(message, permanent=True)
    unpack = zlib.decompressobj(wbits=31) if "gzip" in encoding else None
    parts, size = [], 0
    async for raw in response.aiter_raw():
        try:
            part = unpack.decompress(raw, max_bytes + 1 - size) if unpack else raw
        except zlib.error as error:
            raise FetchError("the compressed data is damaged") from error
        size += len(part)
        if size > max_bytes:
            raise FetchError(explain_too_large_document(max_bytes), permanent=True)
        parts.append(part)
    if unpack and not unpack.eof:
        raise FetchError("the response ended too early")
    return b"".join(parts)


def _describe_http_error(error: httpx.HTTPError | None) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return "the connection timed out"
    if isinstance(error, httpx.ConnectError):
        return f"no connection: {error}"
    if isinstance(error, httpx.RemoteProtocolError):
        return f"the response is invalid: {error}"
    return f"{type(error).__name__}: {error}"
