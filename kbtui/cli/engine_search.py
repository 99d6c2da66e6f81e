"""`kbtui search` by way of a running engine: most of what a short command costs is imports.

Only the plainest form is done here: words, -w, --mode, --limit, --json. Whatever else is asked
for, and whatever the engine declines, is for `cli.search`; both print the same.
"""

import os
import sys

from kbtui.version import __version__
from kbtui.workspace import path_strings

try:
    import _socket as sockets  # `socket` takes as long to import as all of this
except ImportError:
    import socket as sockets  # type: ignore[no-redef]

SECONDS = 3.0
"""Longer is not waited for the engine; the command then finds out itself what is wrong."""
MODES = {"hybrid", "lexical", "semantic"}


def quick_search(words: list[str], workspace: str | None) -> int | None:
    """The exit code of `kbtui search WORDS`, which is printed; None when nothing was done."""
    asked = _read(words)
    if asked is None:
        return None
    place = _engine(asked.pop("workspace", workspace))
    if place is None:
        return None
    reply = _ask(place, asked)
    if reply[:1] not in {b"0", b"1"}:
        return None
    shown, _, said = reply[1:].partition(b"\0")
    sys.stderr.write(said.decode("utf-8", "replace"))
    sys.stderr.flush()
    if sys.stdout.isatty():
        sys.stdout.write(shown.decode("utf-8", "replace"))
    else:
        sys.stdout.buffer.write(shown)
    sys.stdout.flush()
    return int(reply[:1])


def _read(words: list[str]) -> dict[str, str] | None:
    """What is asked for; None where this is not the place to find out."""
    asked = {"mode": "hybrid", "limit": "20"}
    query: list[str] = []
    rest = list(words)
    names = {"--mode": "mode", "--limit": "limit", "-w": "workspace", "--workspace": "workspace"}
    while rest:
        word = rest.pop(0)
        name, given, value = word.partition("=")
        if word == "--json":
            asked["form"] = "json"
        elif name in names and (given or rest):
            asked[names[name]] = value if given else rest.pop(0)
        elif word.startswith("-"):
            return None
        else:
            query.append(word)
    asked["query"] = " ".join(query)
    limit = asked["limit"]
    fine = limit.isascii() and limit.isdigit() and 1 <= int(limit) <= 100
    if not fine or not query or asked["mode"] not in MODES or not _is_text(asked["query"]):
        return None
    return _formed(asked)


def _is_text(text: str) -> bool:
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


def _formed(asked: dict[str, str]) -> dict[str, str] | None:
    """How it is to be printed."""
    if not sys.stdout.isatty() and not sys.stderr.isatty():
        asked.setdefault("form", "plain")
        return asked
    if os.path.exists(path_strings.config_home() + "/config.toml"):  # noqa: PTH110
        return None  # it may say what a terminal is to be shown
    if "form" in asked:
        asked["form"] = "ascii" if sys.stdout.isatty() else "json"
    else:
        from kbtui.cli.output import is_plain

        asked["form"] = "plain" if is_plain() else "colour"
    return asked


def _engine(start: str | None) -> str | None:
    """Where the workspace's engine listens, if there may be one."""
    try:
        here = os.path.realpath(start or os.getcwd())  # noqa: PTH109
    except OSError:
        return None
    root = path_strings.nearest_root(here)
    if root is None or not os.access(root + "/.jp", os.R_OK | os.X_OK):
        return None
    place = path_strings.socket_path(root)
    try:
        status = os.lstat(os.path.dirname(place))  # noqa: PTH120
    except OSError:
        return None
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        return None
    return place


def _ask(place: str, asked: dict[str, str]) -> bytes:
    """The engine's reply (`engine.answering`); b"" where there is none."""
    asked |= {"version": __version__, "surroundings": path_strings.surroundings()}
    connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        connection.settimeout(SECONDS)
        connection.connect(place)
        if not path_strings.is_own_process(connection):
            return b""
        # The engine's hello is not needed: it declines what it is not made for.
        connection.sendall(
            _frame({"hello": "kbtui"}, '"protocol":2') + _frame({"op": "search", **asked}, '"id":1')
        )
        _receive(connection)
        return _receive(connection)
    except OSError:
        return b""
    finally:
        connection.close()


def _frame(texts: dict[str, str], more: str) -> bytes:
    """A request of the engine's protocol."""
    pairs = [f'"{name}":{_quoted(text)}' for name, text in texts.items()]
    body = ("{" + ",".join([*pairs, more]) + "}").encode()
    return len(body).to_bytes(4, "big") + body


def _quoted(text: str) -> str:
    """A JSON string: every character that is no plain one by its UTF-16 units."""
    return '"' + "".join(sign if _is_plain(sign) else _units(sign) for sign in text) + '"'


def _is_plain(sign: str) -> bool:
    return " " <= sign <= "~" and sign not in '"\\'


def _units(sign: str) -> str:
    data = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at]:02x}{data[at + 1]:02x}" for at in range(0, len(data), 2))


def _receive(connection: sockets.socket) -> bytes:
    """The next frame's body."""
    return _exactly(connection, int.from_bytes(_exactly(connection, 4), "big"))


def _exactly(connection: sockets.socket, size: int) -> bytes:
    held = b""
    while len(held) < size:
        part = connection.recv(min(size - len(held), 1 << 20))
        if not part:
            raise ConnectionResetError
        held += part
    return held
