"""Reading JP's JSON files, whatever state they are in.

A whole file goes through orjson. What orjson refuses is read again, slower and
element by element, so that damage costs the damaged element and nothing else.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from kbtui.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Part = Callable[[int, int], bytes]
    """Gives bytes of an array from one position on, of some length."""

LARGEST = 512 << 20
"""Bytes: a larger file is listed, never read; JP's own are a thousandth of this."""
LARGEST_CONFIG = 16 << 20
DAMAGED = object()
"""Stands where an element cannot be read, so that those after it keep their positions."""
_BOM = b"\xef\xbb\xbf"
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_SPLIT_OVER = 4 << 20
_PIECE = 1 << 20
_BEGIN = b"[\n  {"
_END = b"\n  }\n]\n"
SEPARATOR = b"\n  },\n  {"
"""What stands between two elements as JP writes them, and nowhere else."""
# Where the next element begins: JP indents by two, and puts the timestamp first.
_NEXT = re.compile(r'\n  \{|\{\s*"timestamp"\s*:')
_GAP = re.compile(r"[\s,]*")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def read_file(path: str, largest: int = LARGEST) -> bytes:
    """The bytes of a regular file of at most `largest` bytes; raises `WorkspaceError`."""
    with Opened(path) as (file, size):
        _refuse(size, largest, path)
        return _whole(file, size, largest)


def _refuse(size: int, largest: int, path: str) -> None:
    if size > largest:
        raise WorkspaceError(f"it has {size:,} bytes; {largest:,} are read at most", where=path)


def _whole(file: int, size: int, largest: int) -> bytes:
    data = os.read(file, size + 1)
    if len(data) == size:
        return data
    # It grew, or is more than one call gives.
    parts = [data]
    while data and sum(map(len, parts)) <= largest:
        data = os.read(file, _PIECE)
        parts.append(data)
    return b"".join(parts)


def read_head(path: str, length: int) -> bytes:
    """At most the first `length` bytes of a regular file; raises `WorkspaceError`."""
    with Opened(path) as (file, _):
        return os.read(file, length)


def whole_elements(data: bytes) -> bytes:
    """The beginning of an array as JP writes it, cut after its last whole element; b"" for others."""
    end = data.rfind(SEPARATOR)
    return data[:end] + b"\n  }\n]" if data.startswith(b"[\n  {") and end > 0 else b""


def read_tail(path: str, length: int) -> bytes:
    """At most the last `length` bytes of a regular file; raises `WorkspaceError`."""
    with Opened(path) as (file, size):
        os.lseek(file, max(0, size - length), os.SEEK_SET)
        return os.read(file, length)


class Mended(str):
    """What was wrong with a file, and cost nothing: all of it could be read."""

    __slots__ = ()


class Opened:
    """The file's descriptor and size, opened without waiting: a pipe in its place would never answer.

    Raises `WorkspaceError`.

    A class, because thousands are opened for one list.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1

    def __enter__(self) -> tuple[int, int]:
        try:
            try:
                self._file = os.open(self._path, _FLAGS)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                self._file = os.open(self._followed(), _FLAGS)
            status = os.fstat(self._file)
        except OSError as error:
            self._raise(error)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._file)
            raise WorkspaceError("it is not a file", where=self._path)
        return self._file, status.st_size

    def _followed(self) -> str:
        """Where a link leads; raises `WorkspaceError` unless that is among the conversations."""
        conversations = os.path.dirname(os.path.dirname(self._path))  # noqa: PTH120
        target = os.path.realpath(self._path)
        if not target.startswith(f"{os.path.realpath(conversations)}/"):
            raise WorkspaceError("it is a link that leaves the workspace", where=self._path)
        return target

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        os.close(self._file)
        if isinstance(error, OSError | MemoryError):
            self._raise(error)

    def _raise(self, error: OSError | MemoryError) -> NoReturn:
        if isinstance(error, MemoryError):
            raise WorkspaceError("it does not fit into memory", where=self._path) from None
        if isinstance(error, FileNotFoundError):
            raise WorkspaceError("there is no such file", where=self._path) from None
        if isinstance(error, IsADirectoryError):
            raise WorkspaceError("it is not a file", where=self._path) from None
        raise WorkspaceError((error.strerror or str(error)).lower(), where=self._path) from error


def read_object(data: bytes, problems: list[str]) -> dict[str, Any]:
    """One JSON object; what was mended in it goes to `problems`.

    Raises `ValueError` in words for anything else.
    """
    if data.startswith(_BOM):
        problems.append("it starts with a byte order mark")
        data = data[3:]
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _loads_slowly(_decoded(data, problems), problems)
    if not isinstance(value, dict):
        raise ValueError("it does not hold a JSON object")
    return value


def read_events(path: str, problems: list[str]) -> Iterator[list[Any]]:
    """The elements of an `events.json` in batches, as `read_array` gives them.

    A big one as JP writes it is never in memory as a whole, not even its bytes.
    Raises `WorkspaceError`.
    """
    with Opened(path) as (file, size):

        def part(start: int, length: int) -> bytes:
            return os.pread(file, length, start)

        _refuse(size, LARGEST, path)
        if _comes_in_pieces(part, size):
            yield from _pieces(part, size, problems)
            return
        data = _whole(file, size, LARGEST)
    yield from read_array(data, problems)


def read_array(data: bytes, problems: list[str]) -> Iterator[list[Any]]:
    """The elements of `events.json` in batches; what is wrong goes to `problems`.

    A big file comes in batches of about a megabyte, so that its raw form is
    never in memory as a whole. `DAMAGED` stands for an element that cannot be read.
    """
    if data.startswith(_BOM):
        problems.append("it starts with a byte order mark")
        data = data[3:]

    def part(start: int, length: int) -> bytes:
        return data[start : start + length]

    if _comes_in_pieces(part, len(data)):
        yield from _pieces(part, len(data), problems)
        return
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        yield list(_recover(data, problems))
        return
    if isinstance(value, list):
        yield value
    else:
        problems.append("it does not hold a JSON array")


def ends_well(data: bytes) -> bool:
    """Whether an array ends as JP ends it."""
    return data.endswith((_END, _END[:-1]))


def _comes_in_pieces(part: _Part, size: int) -> bool:
    """Whether an array is big, and as JP writes it, which tells where an element ends."""
    return (
        size > _SPLIT_OVER
        and part(0, len(_BEGIN)) == _BEGIN
        and ends_well(part(size - len(_END), len(_END)))
    )


def _pieces(part: _Part, size: int, problems: list[str]) -> Iterator[list[Any]]:
    """What stands between an array's brackets, in pieces of whole elements."""
    position, held, count = 1, b"", 0
    while position < size:
        # As much as is held already: an element of many megabytes is copied a few times only.
        data = part(position, max(_PIECE, len(held)))
        if not data:
            problems.append("it became shorter while it was read")
            break
        position += len(data)
        held += data
        cut = held.rfind(SEPARATOR)
        if cut >= 0:
            cut += len(b"\n  }")
            elements = _elements(b"[%b]" % held[:cut], problems, count, more=True)
            count += len(elements)
            yield elements
            held = held[cut + 1 :]
    if held:
        yield _elements(b"[%b]" % held.removesuffix(b"\n").removesuffix(b"]"), problems, count)


def _elements(piece: bytes, problems: list[str], first: int, more: bool = False) -> list[Any]:
    """The elements of one piece of an array, which begins with element `first`."""
    try:
        value: list[Any] = orjson.loads(piece)
    except orjson.JSONDecodeError:
        value = list(_recover(piece, problems, first, more))
    return value


def _recover(data: bytes, problems: list[str], first: int = 0, more: bool = False) -> Iterator[Any]:
    """Every element that is whole, of an array that is not.

    Its elements are counted from `first`; `more` says that the array goes on.
    """
    text = _decoded(data, problems)
    if not text.strip("\0 \t\r\n"):
        problems.append("it is empty" if not text.strip() else "it holds nothing but NULs")
        return
    start = text.find("[")
    if start < 0 or text[:start].strip():
        problems.append("it does not begin with a JSON array")
    # Without its bracket the elements may still be there.
    position = start + 1
    number, whole = first, False
    while True:
        gap = _GAP.match(text, position)
        assert gap is not None
        position, commas = gap.end(), gap[0].count(",")
        if position >= len(text):
            problems.append(f"it ends after element {number}, before the end of the array")
            return
        ends = text[position] == "]"
        if commas > (whole and not ends):
            where = f"after element {number - 1}" if number > first else "before the first element"
            problems.append(Mended(f"there is a comma too many {where}"))
        if ends:
            if text[position + 1 :].strip():
                problems.append("there is something after the end of the array")
            return
        found: list[str] = []
        try:
            value, position = _decode(text, position, found)
            yield _mend(value, found)
            if whole and not commas:
                problems.append(Mended(f"a comma is missing after element {number - 1}"))
            problems += [Mended(f"element {number} has {what}") for what in dict.fromkeys(found)]
            whole = True
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else "not valid JSON"
            following = _NEXT.search(text, position + 1)
            if following is None:
                if more:
                    problems.append(f"element {number} is {reason}")
                    yield DAMAGED
                else:
                    end = "and nothing after it can be read"
                    problems.append(f"element {number} is {reason}, {end}")
                return
            problems.append(f"element {number} is {reason}")
            yield DAMAGED
            position = following.end() - len(following[0].lstrip())
            whole = False
        number += 1


def _decoded(data: bytes, problems: list[str]) -> str:
    """The text of a file; what is no UTF-8 is replaced, and goes to `problems`."""
    text = data.decode("utf-8", "replace")
    replaced = text.count("\ufffd") - data.count("\ufffd".encode())
    if replaced:
        count = "1 place is" if replaced == 1 else f"{replaced:,} places are"
        problems.append(Mended(f"{count} not UTF-8, and shown as \ufffd"))
    return text


def _decode(text: str, position: int, found: list[str]) -> tuple[Any, int]:
    """A JSON value and where it ends; what JSON does not allow, and is taken anyway, goes to `found`.

    Raises `ValueError` and `RecursionError`.
    """
    from json import JSONDecoder

    def constant(name: str) -> float:
        found.append(f"the number {name}")
        return float(name)

    try:
        return JSONDecoder(parse_constant=constant).raw_decode(text, position)
    except ValueError:
        found.clear()
        value = JSONDecoder(strict=False, parse_constant=constant).raw_decode(text, position)
        found.append("control characters in a text")
        return value


def _loads_slowly(text: str, problems: list[str]) -> Any:
    found: list[str] = []
    try:
        start = len(text) - len(text.lstrip())
        value, end = _decode(text, start, found)
        if text[end:].strip():
            raise ValueError("something follows")
        value = _mend(value, found)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it is not valid JSON") from None
    problems += [f"it has {what}" for what in dict.fromkeys(found)]
    return value


def _mend(value: Any, found: list[str]) -> Any:
    """The value with unpaired surrogates replaced: nothing after this could store or print them."""
    if isinstance(value, str):
        mended, count = _LONE_SURROGATE.subn("\ufffd", value)
        if count:
            found.append("half a character (an unpaired surrogate)")
        return mended
    if isinstance(value, dict):
        return {_mend(key, found): _mend(item, found) for key, item in value.items()}
    if isinstance(value, list):
        return [_mend(item, found) for item in value]
    return value
