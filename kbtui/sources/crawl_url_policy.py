"""Decides which URLs a crawl may fetch: those within its prefixes and at public addresses.

Addresses are checked when a URL is configured, when a host name is resolved, and at every redirect.
Hosts that the user has allowed may have private addresses.
"""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from kbtui.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Special-purpose ranges (IANA registries) that `is_global` accepts in some Python versions.
_SPECIAL_RANGES = """
    0.0.0.0/8 100.64.0.0/10 192.0.0.0/24 192.88.99.0/24 198.18.0.0/15 224.0.0.0/4 240.0.0.0/4
    64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10
    ff00::/8
"""
_SPECIAL_NETWORKS = [ipaddress.ip_network(text) for text in _SPECIAL_RANGES.split()]
# IPv6 ranges whose addresses contain an IPv4 address, and the offset of its first byte.
_IPV4_CARRIERS = [
    (ipaddress.IPv6Network("::ffff:0:0/96"), 12),
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 12),
    (ipaddress.IPv6Network("::/96"), 12),
    (ipaddress.IPv6Network("64:ff9b::/96"), 12),
    (ipaddress.IPv6Network("2002::/16"), 2),
]
_PORTS = {"http": 80, "https": 443}
_LOCAL_NAMES = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "home.arpa")


def is_public_ip_address(address: IpAddress) -> bool:
    """Return whether an address is on the public internet.

    If an IPv6 address contains an IPv4 address, the IPv4 address is checked.
    """
    for network, at in _IPV4_CARRIERS:
        if address in network:
            return is_public_ip_address(ipaddress.IPv4Address(address.packed[at : at + 4]))
    return address.is_global and not any(address in network for network in _SPECIAL_NETWORKS)


def parse_ip_literal(host: str) -> IpAddress | None:
    """Parse an IP address in any form that resolvers accept, such as `127.1`.

    Returns None for a host name.
    """
    host = host.strip("[]").partition("%")[0]
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    with suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_aton(host)) if host[:1].isdigit() else None
    return None


def normalize_host_name(host: str) -> str:
    """Return a host in lower case, without brackets and without a trailing dot."""
    return host.casefold().strip("[]").rstrip(".")


def is_allowed_private_host(host: str, hosts: Collection[str]) -> bool:
    """Return whether a host is in `hosts`, the private hosts that the user has allowed."""
    return normalize_host_name(host) in {normalize_host_name(name) for name in hosts}


def check_url_is_allowed(url: str, allow_hosts: Collection[str]) -> None:
    """Raise `ConfigError` if a URL may not be fetched.

    Only HTTP and HTTPS URLs without user name and password may be fetched. The host must be public
    or in `allow_hosts`.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"not a valid URL: {error}", where=url) from error
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError("not an http or https URL", where=url)
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the URL contains a user name or password", where=url, hint="remove it")
    check_unresolved_host_is_allowed(host, allow_hosts)


def check_unresolved_host_is_allowed(host: str, allow_hosts: Collection[str]) -> None:
    """Raise `ConfigError` for a private address or a local name that is not in `allow_hosts`.

    Names are not resolved.
    """
    if is_allowed_private_host(host, allow_hosts):
        return
    address, name = parse_ip_literal(host), normalize_host_name(host)
    if address is not None:
        private = not is_public_ip_address(address)
    else:
        private = any(name == local or name.endswith(f".{local}") for local in _LOCAL_NAMES)
    if private:
        raise make_private_host_error(host)


def make_private_host_error(host: str, address: str | None = None) -> ConfigError:
    """Return the error for a host in a private or loopback network."""
    leads = f" resolves to {address}, which" if address else ""
    return ConfigError(
        f"the host {host}{leads} is in a private or loopback network",
        hint=f"if this is intended, allow the host with --allow-host {normalize_host_name(host)} of "
        "`kbtui source`, or with allow_hosts in kb-sources.toml",
    )


def normalize_url(url: str) -> str | None:
    """Return a URL without its fragment and without the default port.

    The result can be compared with other URLs. Returns None if the URL is not an HTTP or HTTPS URL.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not host or parts.username is not None:
        return None
    host = f"[{host}]" if ":" in host else host
    place = host if port in (None, _PORTS[scheme]) else f"{host}:{port}"
    return urlunsplit((scheme, place, parts.path or "/", parts.query, ""))


def make_key_for_comparing_sites_of_urls(url: str) -> tuple[str, int | str]:
    """Return the host and port of a URL.

    Ports 80 and 443 become "web", so that the result is equal for the http and https URLs of a
    site.
    """
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme, 0)
    return (parts.hostname or "").rstrip("."), "web" if port in (80, 443) else port


class AllowedUrlPrefixes:
    """The prefixes of the URLs that a crawl may fetch.

    If `prefixes` is empty, the only prefix is the directory of `url`, the first URL. The first URL
    itself is always allowed.
    """

    def __init__(self, url: str, prefixes: Iterable[str]) -> None:
        chosen = [normalize_url(prefix) or prefix for prefix in prefixes]
        first = normalize_url(url) or url
        path = first.partition("?")[0]
        chosen = chosen or [path[: path.rindex("/") + 1]]
        self._first = first
        self.description = " or ".join(chosen)
        self._inside = [
            (make_key_for_comparing_sites_of_urls(prefix), urlsplit(prefix).path or "/")
            for prefix in chosen
        ]

    def __contains__(self, url: str) -> bool:
        if url == self._first:
            return True
        origin, path = make_key_for_comparing_sites_of_urls(url), urlsplit(url).path or "/"
        # `/docs/../private` is not below `/docs/`.
        if any(part in ("..", ".") for part in unquote(path).split("/")):
            return False
        return any(origin == wanted and path.startswith(start) for wanted, start in self._inside)
