"""Who may talk to the server: what a request says about where it comes from.

Two attacks decide this. A page elsewhere opens a WebSocket to 127.0.0.1, which browsers
allow: its Origin gives it away. A page whose own name is made to mean 127.0.0.1 (DNS
rebinding) is same-origin to the browser: the Host that it asks for gives it away.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING

from kbtui.errors import UsageError

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

HEADERS = {
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
"""What every answer carries: nothing from elsewhere is loaded, and nobody may frame it.

Styles are inline because the terminal in the page makes its own.
"""


class Hosts:
    """The names under which the server may be asked for."""

    def __init__(self, host: str, port: int) -> None:
        names = {"127.0.0.1", "localhost", "[::1]", _bracketed(host)}
        self._names = {f"{name}:{port}" for name in names}
        if port == 80:
            self._names |= names
        # Bound to every address, whatever address it is asked by is its own. A name is not.
        self._port = port if host in {"0.0.0.0", "::"} else None

    def __contains__(self, host: str) -> bool:
        if host in self._names:
            return True
        if self._port is None:
            return False
        name, _, port = host.rpartition(":")
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return port == str(self._port)


def refusal(headers: CIMultiDictProxy[str], hosts: Hosts, kind: str) -> str | None:
    """Why a request is refused, None when it is not; `kind` is "page", "file" or "socket"."""
    named = headers.getall("Host", [])
    if len(named) != 1 or named[0].lower() not in hosts:
        return "this server has no such name"
    origins = headers.getall("Origin", [])
    if kind == "socket" and not origins:
        return "a connection must say where it comes from"
    if origins and (len(origins) > 1 or origins[0].lower() != f"http://{named[0].lower()}"):
        return "requests from other places are not answered"
    site = headers.get("Sec-Fetch-Site", "none")
    if kind != "page" and site not in {"none", "same-origin"}:
        return "requests from other places are not answered"
    if kind == "page" and headers.get("Sec-Fetch-Dest", "document") != "document":
        return "the page stands by itself"
    return None


def knows(given: str | None, token: str) -> bool:
    """Whether this is the token, in time that does not depend on how much of it is right."""
    return hmac.compare_digest((given or "").encode("utf-8", "replace"), token.encode())


def address(host: str, allow_network: bool) -> str:
    """The address to listen on; raises `UsageError` for one that others reach, unless allowed."""
    try:
        found = {
            str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        }
    except UnicodeError as error:
        raise UsageError("is no address", where=host) from error
    except OSError as error:
        raise UsageError(f"is no address of this machine: {error.strerror}", where=host) from error
    if host == "localhost":
        return "127.0.0.1" if "127.0.0.1" in found else "::1"
    if all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found):
        return sorted(found)[0]
    if not allow_network:
        raise UsageError(
            "other machines would reach the workspace there, unencrypted",
            where=f"--host {host}",
            hint="an ssh tunnel is safer; if you mean it, say --allow-network too",
        )
    return host if host in {"0.0.0.0", "::"} else sorted(found)[0]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
