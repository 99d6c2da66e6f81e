"""Detects writes to a directory tree (inotify) and connections out of a network namespace."""

import ctypes
import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)

# All events except IN_ACCESS, IN_OPEN and IN_CLOSE_NOWRITE, which mean reading.
_CHANGES = {
    0x002: "modified", 0x004: "attributes changed", 0x008: "closed after writing", 0x040: "moved away",
    0x080: "moved here", 0x100: "created", 0x200: "deleted", 0x400: "deleted itself", 0x800: "moved itself",
}  # fmt: skip
_EVENT = struct.Struct("iIII")


class Watch:
    """Watches a tree for anything other than reading."""

    def __init__(self, *roots: Path) -> None:
        self._descriptor = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0, os.strerror(ctypes.get_errno())
        self._paths: dict[int, Path] = {}
        for root in roots:
            for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
                number = _LIBC.inotify_add_watch(
                    self._descriptor, os.fsencode(folder), sum(_CHANGES)
                )
                assert number >= 0, os.strerror(ctypes.get_errno())
                self._paths[number] = folder

    def events(self) -> list[tuple[str, str]]:
        """Return the events since the last call, as pairs of kind and path."""
        found = []
        while data := self._read():
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = data[at : at + length].rstrip(b"\0")
                at += length
                assert not mask & 0x4000, "events were lost"
                path = self._paths[number] / os.fsdecode(name)
                found += [(what, str(path)) for bit, what in _CHANGES.items() if mask & bit]
        return found

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def watched(*roots: Path) -> Iterator[Watch]:
    watch = Watch(*roots)
    try:
        yield watch
    finally:
        watch.close()


def without_network(work: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
    """Run `work` in a process without a network; return its result and its attempts to connect.

    Where the system allows it, the process and all that it starts have a network namespace
    without a route, whose counters tell of every attempt, native code's too. Everywhere,
    Python's audit events tell of sockets that are not local, in this process and its forks.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        code = 1
        try:
            tried = _isolate()
            result = work()
            answer = pickle.dumps((result, {**_counted(tried), **tried()}))
            with os.fdopen(writing, "wb") as file:
                file.write(answer)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    assert data, "it failed; the trace is on standard error"
    result, attempts = pickle.loads(data)
    return result, attempts


def _isolate() -> Callable[[], dict[str, int]]:
    uid, gid = os.getuid(), os.getgid()
    if _LIBC.unshare(0x40000000) != 0 and _LIBC.unshare(0x50000000) == 0:
        # Without root, a user namespace gives the right to create a network namespace.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return _audited()


def _audited() -> Callable[[], dict[str, int]]:
    """Record each socket that is not local in a file that forks share."""
    note = os.open("/tmp", os.O_TMPFILE | os.O_RDWR | os.O_APPEND)
    os.set_inheritable(note, True)
    names = {"socket.connect", "socket.sendto", "socket.bind", "socket.getaddrinfo"}

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in names and not (
            hasattr(args[0], "family") and args[0].family == 1  # AF_UNIX
        ):
            os.write(note, f"{event} {args[1:]}\n".encode())

    sys.addaudithook(hook)

    def tried() -> dict[str, int]:
        lines = os.pread(note, 1 << 20, 0).decode().splitlines()
        return {line: lines.count(line) for line in set(lines)}

    return tried


def _counted(tried: object) -> dict[str, int]:
    """Return the namespace's counters of connections and packets."""
    found: dict[str, int] = {}
    wanted = {"Ip": {"OutRequests", "OutNoRoutes"}, "Tcp": {"ActiveOpens"}, "Udp": {"OutDatagrams"}}
    lines = Path("/proc/self/net/snmp").read_text().splitlines()
    if Path("/proc/self/ns/net").readlink() == Path(f"/proc/{os.getppid()}/ns/net").readlink():
        return {}
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        kind = names.partition(":")[0]
        for name, value in zip(names.split()[1:], values.split()[1:], strict=True):
            if name in wanted.get(kind, ()) and int(value):
                found[f"{kind}.{name}"] = int(value)
    for line in Path("/proc/self/net/snmp6").read_text().splitlines():
        name, value = line.split()
        if name in {"Ip6OutRequests", "Ip6OutNoRoutes", "Udp6OutDatagrams"} and int(value):
            found[name] = int(value)
    return found
