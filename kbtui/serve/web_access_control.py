"""Decides which requests the server may answer.

The checks stop two attacks by pages of other sites. In the first, a page opens a WebSocket to
127.0.0.1, which browsers allow. The Origin header reveals this attack. In the second (DNS
rebinding), the host name of a page suddenly resolves to 127.0.0.1, so that the browser treats the
page and this server as one origin. The Host header reveals this attack.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING

from kbtui.errors import UsageError

if TYPE_CHECKING:
    from aiohttp.web import Request

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self' {socket}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The headers that the server adds to every response.

They prevent the page from loading anything from other sites, and from being shown in a frame.
Inline styles are allowed, because the terminal in the page creates some.
"""


class AllowedHostHeaders:
    """The values of the Host header that the server accepts."""

    def __init__(self, host: str, port: int) -> None:
        names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
        self._names = {f"{name}:{port}" for name in names}
        if port == 80:
            self._names |= names
        # A server on all interfaces accepts every IP address, but no other host names.
        self._port = str(port) if host in {"0.0.0.0", "::"} else None

    def __contains__(self, host: str) -> bool:
        if host in self._names:
            return True
        name, _, port = host.rpartition(":")
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return port == self._port


def find_web_request_refusal_reason(
    request: Request, hosts: AllowedHostHeaders, kind: str
) -> str | None:
    """Return the reason to refuse a request for a "page", "file" or "socket"; None if the request is allowed."""
    headers = request.headers
    named = headers.getall("Host", [])
    if len(named) != 1 or named[0].lower() not in hosts:
        return "unknown host name"
    origins = headers.getall("Origin", [])
    if kind == "socket" and not origins:
        return "the Origin header is missing"
    if origins and (len(origins) > 1 or origins[0].lower() != f"http://{named[0].lower()}"):
        return "requests from other sites are refused"
    site = headers.get("Sec-Fetch-Site", "none")
    if kind != "page" and site not in {"none", "same-origin"}:
        return "requests from other sites are refused"
    if kind == "page" and headers.get("Sec-Fetch-Dest", "document") != "document":
        return "the page cannot be embedded in another page"
    return None


def is_correct_token(given: str | None, token: str) -> bool:
    """Return whether `given` equals the token; the comparison takes constant time."""
    return hmac.compare_digest((given or "").encode("utf-8", "replace"), token.encode())


def choose_web_server_listen_address(host: str, allow_network: bool) -> str:
    """Return the IP address on which the web server listens for `host`, a host name or address.

    Raises `UsageError` if `host` is unknown, or if other computers can reach it and
    `allow_network` is false.
    """
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise UsageError("not a valid address", where=host) from error
    except OSError as error:
        message = f"not an address of this computer: {error.strerror}"
        raise UsageError(message, where=host) from error
    found = sorted({str(info[4][0]) for info in infos})
    if host == "localhost":
        return "127.0.0.1" if "127.0.0.1" in found else "::1"
    is_local = all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)
    if not is_local and not allow_network:
        raise UsageError(
            "other computers could reach the workspace at this address, without encryption",
            where=f"--host {host}",
            hint="use an SSH tunnel, or add --allow-network to let other computers connect",
        )
    return host if host in {"0.0.0.0", "::"} else found[0]
