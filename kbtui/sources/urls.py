"""Addresses as a crawl compares them, what lies inside its bounds, and which file a document becomes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from kbtui.knowledge.subject_files import name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

DEPTH_MOST = 8
"""Directories that a document's address may make; what is deeper is joined to one name."""
_ENDINGS = (
    ".html",
    ".htm",
    ".xhtml",
    ".md",
    ".markdown",
    ".txt",
    ".text",
    ".php",
    ".asp",
    ".aspx",
    ".pdf",
)
_PORTS = {"http": 80, "https": 443}


def tidy(url: str) -> str | None:
    """An address in the one form that is compared: without fragment, with a small host and no
    default port. None for one that is not HTTP(S)."""
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


def _origin(url: str) -> tuple[str, int | str]:
    """Host and port; the two default ports count as one, so that http may lead to https."""
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme, 0)
    return (parts.hostname or "").rstrip("."), "web" if port in (80, 443) else port


class Bounds:
    """What a crawl may fetch: addresses that begin with a prefix.

    Without prefixes the directory of the first address.
    """

    def __init__(self, url: str, prefixes: Iterable[str]) -> None:
        chosen = [tidy(prefix) or prefix for prefix in prefixes]
        first = tidy(url) or url
        chosen = chosen or [first[: first.rindex("/") + 1] if "?" not in first else _folder(first)]
        self._first = first
        self.words = " or ".join(chosen)
        """The prefixes, for people."""
        self._inside = [(_origin(prefix), urlsplit(prefix).path or "/") for prefix in chosen]

    def __contains__(self, url: str) -> bool:
        if url == self._first:
            return True
        origin, path = _origin(url), urlsplit(url).path or "/"
        # `/docs/../private` is another place than it looks.
        if any(part in ("..", ".") for part in unquote(path).split("/")):
            return False
        return any(origin == wanted and path.startswith(start) for wanted, start in self._inside)


def _folder(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rpartition("/")[0] + "/", "", ""))


def relative_name(url: str, base: str) -> str:
    """The path, without extension, of the file that an address becomes in its source's directory.

    `base` is the source's own address: what it and `url` have in common is left out.
    """
    parts, start = urlsplit(url), urlsplit(base)
    path = unquote(parts.path, errors="replace")
    common = unquote(start.path, errors="replace").rpartition("/")[0] + "/"
    names = [] if _origin(url) == _origin(base) else [parts.hostname or "host"]
    below = path.removeprefix(common) if not names else path
    pieces = [piece for piece in below.split("/") if piece.strip(". ")]
    if below.endswith("/") or not pieces:
        pieces.append("index")
    last = pieces[-1]
    for ending in _ENDINGS:
        if last.lower().endswith(ending) and len(last) > len(ending):
            pieces[-1] = last[: -len(ending)]
            break
    names += pieces
    if len(names) > DEPTH_MOST:
        names = [*names[: DEPTH_MOST - 1], "-".join(names[DEPTH_MOST - 1 :])]
    name = "/".join(map(name_of, names))
    return f"{name}-{short_hash(parts.query)}" if parts.query else name


def free_name(name: str, url: str, taken: Collection[str]) -> str:
    """`name`, or when another document has it, `name` with a mark made of the address.

    `taken` has the names in use, without extension and case.
    """
    if name.casefold() not in taken:
        return name
    return f"{name}-{short_hash(url)}"


def short_hash(text: str) -> str:
    """Six hex digits."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6]
