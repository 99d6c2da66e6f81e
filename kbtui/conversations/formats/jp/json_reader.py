"""Reads JP's JSON files, even damaged ones.

orjson parses intact files. If it rejects one, a slower parser reads that file element by element, so
that a damaged element does not affect the others.
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

    _ReadRange = Callable[[int, int], bytes]
    """A function that returns bytes of the array, given their position and their number."""

LARGEST = 512 << 20
"""The maximum size in bytes of a file that is read. JP's own files are a thousandth of this."""
LARGEST_CONFIG = 16 << 20
DAMAGED = object()
"""The value in the place of an unreadable element, so that the later ones keep their index."""
_BOM = b"\xef\xbb\xbf"
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
SPLIT_FROM = 4 << 20
"""The size in bytes from which an array is decoded in parts."""
BLOCK_BYTES = 1 << 20
"""How much of a file is read at a time, in bytes."""
_BEGIN = b"[\n  {"
_END = b"\n  }\n]\n"
SEPARATOR = b"\n  },\n  {"
"""The bytes between two elements as JP writes them; they occur nowhere else."""
# The start of the next element: JP indents by two and writes the timestamp first.
_NEXT_ELEMENT = re.compile(r'\n  \{|\{\s*"timestamp"\s*:')
_GAP = re.compile(r"[\s,]*")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def read_file(path: str, largest: int = LARGEST) -> bytes:
    """Read a regular file of at most `largest` bytes; raises `WorkspaceError`."""
    with OpenedFile(path) as (file, size):
        _check_file_size(size, largest, path)
        return _read_whole_file(file, size, largest)


def _check_file_size(size: int, largest: int, path: str) -> None:
    if size > largest:
        raise WorkspaceError(f"it has {size:,} bytes; the limit is {largest:,}", where=path)


def _read_whole_file(file: int, size: int, largest: int) -> bytes:
    data = os.read(file, size + 1)
    if len(data) == size:
        return data
    # The file has grown, or is larger than one call reads.
    parts = [data]
    while data and sum(map(len, parts)) <= largest:
        data = os.read(file, BLOCK_BYTES)
        parts.append(data)
    return b"".join(parts)


def read_file_head(path: str, length: int) -> bytes:
    """Read the first `length` bytes of a regular file, or fewer; raises `WorkspaceError`."""
    with OpenedFile(path) as (file, _):
        return os.read(file, length)


def keep_complete_array_elements(data: bytes) -> bytes:
    """Return the complete elements at the beginning of a truncated array, as an array.

    Returns b"" if there are none, or if the array is not formatted like JP's.
    """
    end = data.rfind(SEPARATOR)
    return data[:end] + b"\n  }\n]" if data.startswith(b"[\n  {") and end > 0 else b""


def read_file_tail(path: str, length: int) -> bytes:
    """Read the last `length` bytes of a regular file, or fewer; raises `WorkspaceError`."""
    with OpenedFile(path) as (file, size):
        os.lseek(file, max(0, size - length), os.SEEK_SET)
        return os.read(file, length)


class HarmlessFileProblem(str):
    """A problem in a file, without loss of data."""

    __slots__ = ()


class OpenedFile:
    """A context manager that opens a file and returns its descriptor and size.

    Opening a pipe fails instead of waiting for a writer. Raises `WorkspaceError`, also for links
    out of the root of the conversations and for read errors within the block.

    This is a class because a generator with `contextmanager` is slower, and a list opens thousands of
    files.
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
                self._file = os.open(self._resolve_link(), _FLAGS)
            status = os.fstat(self._file)
        except OSError as error:
            self._raise_workspace_error(error)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._file)
            raise WorkspaceError("it is not a file", where=self._path)
        return self._file, status.st_size

    def _resolve_link(self) -> str:
        """Return the target of a link; raises `WorkspaceError` if it is outside the root."""
        conversations = os.path.dirname(os.path.dirname(self._path))  # noqa: PTH120
        target = os.path.realpath(self._path)
        if not target.startswith(f"{os.path.realpath(conversations)}/"):
            raise WorkspaceError("it is a link to a file outside the workspace", where=self._path)
        return target

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        os.close(self._file)
        if isinstance(error, OSError | MemoryError):
            self._raise_workspace_error(error)

    def _raise_workspace_error(self, error: OSError | MemoryError) -> NoReturn:
        if isinstance(error, MemoryError):
            raise WorkspaceError("it does not fit into memory", where=self._path) from None
        if isinstance(error, FileNotFoundError):
            raise WorkspaceError("there is no such file", where=self._path) from None
        if isinstance(error, IsADirectoryError):
            raise WorkspaceError("it is not a file", where=self._path) from None
        raise WorkspaceError((error.strerror or str(error)).lower(), where=self._path) from error


def parse_json_object(data: bytes, problems: list[str]) -> dict[str, Any]:
    """Parse one JSON object; append problems without loss of data to `problems`.

    Raises `ValueError` with a message for anything else.
    """
    if data.startswith(_BOM):
        problems.append("it starts with a byte order mark")
        data = data[3:]
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _parse_json_leniently(_decode_utf8(data, problems), problems)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def read_event_batches(path: str, problems: list[str]) -> Iterator[list[Any]]:
    """Yield the elements of an `events.json` in batches, like `parse_array_batches`.

    A large file that is formatted like JP's is never in memory as a whole. Raises `WorkspaceError`.
    """
    with OpenedFile(path) as (file, size):

        def read_range(start: int, length: int) -> bytes:
            return os.pread(file, length, start)

        _check_file_size(size, LARGEST, path)
        if _can_split_json_array(read_range, size):
            yield from _split_json_array(read_range, size, problems)
            return
        data = _read_whole_file(file, size, LARGEST)
    yield from parse_array_batches(data, problems)


def parse_array_batches(data: bytes, problems: list[str]) -> Iterator[list[Any]]:
    """Yield the elements of `events.json` in batches; append descriptions of damage to `problems`.

    Batches of a large file are about a megabyte, so that its JSON values are never in memory as a
    whole. `DAMAGED` takes the place of an element that cannot be read.
    """
    if data.startswith(_BOM):
        problems.append("it starts with a byte order mark")
        data = data[3:]

    def read_range(start: int, length: int) -> bytes:
        return data[start : start + length]

    if _can_split_json_array(read_range, len(data)):
        yield from _split_json_array(read_range, len(data), problems)
        return
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        yield list(_recover_array_elements(data, problems))
        return
    if isinstance(value, list):
        yield value
    else:
        problems.append("it is not a JSON array")


def has_jp_array_ending(data: bytes) -> bool:
    """Return whether an array ends exactly as JP writes it."""
    return data.endswith((_END, _END[:-1]))


def _can_split_json_array(read_range: _ReadRange, size: int) -> bool:
    """Return whether an array is large and formatted like JP's, so that it can be split."""
    return (
        size > SPLIT_FROM
        and read_range(0, len(_BEGIN)) == _BEGIN
        and has_jp_array_ending(read_range(size - len(_END), len(_END)))
    )


def _split_json_array(
    read_range: _ReadRange, size: int, problems: list[str]
) -> Iterator[list[Any]]:
    """Yield the elements of an array, split at separators into blocks of whole elements."""
    position, pending, count = 1, b"", 0
    while position < size:
        # Double the block, so that an element of many megabytes is copied only a few times.
        data = read_range(position, max(BLOCK_BYTES, len(pending)))
        if not data:
            problems.append("it became shorter while it was read")
            break
        position += len(data)
        pending += data
        cut = pending.rfind(SEPARATOR)
        if cut >= 0:
            cut += len(b"\n  }")
            elements = _parse_element_block(b"[%b]" % pending[:cut], problems, count, more=True)
            count += len(elements)
            yield elements
            pending = pending[cut + 1 :]
    if pending:
        yield _parse_element_block(
            b"[%b]" % pending.removesuffix(b"\n").removesuffix(b"]"), problems, count
        )


def _parse_element_block(
    block: bytes, problems: list[str], first: int, more: bool = False
) -> list[Any]:
    """Parse the elements of one block; `first` is the index of its first element."""
    try:
        value: list[Any] = orjson.loads(block)
    except orjson.JSONDecodeError:
        value = list(_recover_array_elements(block, problems, first, more))
    return value


def _recover_array_elements(
    data: bytes, problems: list[str], first: int = 0, more: bool = False
) -> Iterator[Any]:
    """Yield the elements of a damaged array that can be parsed.

    `first` is the index of the first one in the file; `more` says whether other blocks follow.
    """
    text = _decode_utf8(data, problems)
    if not text.strip("\0 \t\r\n"):
        problems.append("it is empty" if not text.strip() else "it contains only NUL characters")
        return
    start = text.find("[")
    if start < 0 or text[:start].strip():
        problems.append("it does not begin with a JSON array")
    # The elements may be intact even if the bracket is missing.
    position = start + 1
    number, is_whole = first, False
    while True:
        gap = _GAP.match(text, position)
        assert gap is not None
        position, commas = gap.end(), gap[0].count(",")
        if position >= len(text):
            problems.append(f"it ends after element {number}, before the end of the array")
            return
        is_end = text[position] == "]"
        if commas > (is_whole and not is_end):
            where = f"after element {number - 1}" if number > first else "before the first element"
            problems.append(HarmlessFileProblem(f"there is an extra comma {where}"))
        if is_end:
            if text[position + 1 :].strip():
                problems.append("there is extra data after the end of the array")
            return
        found: list[str] = []
        try:
            value, position = _decode_json(text, position, found)
            yield _replace_surrogates(value, found)
            if is_whole and not commas:
                problems.append(
                    HarmlessFileProblem(f"a comma is missing after element {number - 1}")
                )
            problems += [
                HarmlessFileProblem(f"element {number} has {what}") for what in dict.fromkeys(found)
            ]
            is_whole = True
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else "not valid JSON"
            following = _NEXT_ELEMENT.search(text, position + 1)
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
            is_whole = False
        number += 1


def _decode_utf8(data: bytes, problems: list[str]) -> str:
    """Decode a file; bytes that are not UTF-8 are replaced and counted in `problems`."""
    text = data.decode("utf-8", "replace")
    replaced = text.count("\ufffd") - data.count("\ufffd".encode())
    if replaced:
        count = "1 place is" if replaced == 1 else f"{replaced:,} places are"
        problems.append(HarmlessFileProblem(f"{count} not UTF-8 and shown as \ufffd"))
    return text


def _decode_json(text: str, position: int, found: list[str]) -> tuple[Any, int]:
    """Return a JSON value and the position of its end; append the invalid parts in it to `found`.

    Raises `ValueError` and `RecursionError`.
    """
    from json import JSONDecoder

    def accept_nan_or_infinity(name: str) -> float:
        found.append(f"the number {name}")
        return float(name)

    try:
        return JSONDecoder(parse_constant=accept_nan_or_infinity).raw_decode(text, position)
    except ValueError:
        found.clear()
        value = JSONDecoder(strict=False, parse_constant=accept_nan_or_infinity).raw_decode(
            text, position
        )
        found.append("control characters in a string")
        return value


def _parse_json_leniently(text: str, problems: list[str]) -> Any:
    found: list[str] = []
    try:
        start = len(text) - len(text.lstrip())
        value, end = _decode_json(text, start, found)
        if text[end:].strip():
            raise ValueError("trailing data")
        value = _replace_surrogates(value, found)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it is not valid JSON") from None
    problems += [f"it has {what}" for what in dict.fromkeys(found)]
    return value


def _replace_surrogates(value: Any, found: list[str]) -> Any:
    """Replace unpaired surrogates, which cannot be stored or printed."""
    if isinstance(value, str):
        replaced, count = _LONE_SURROGATE.subn("\ufffd", value)
        if count:
            found.append("an unpaired surrogate")
        return replaced
    if isinstance(value, dict):
        return {
            _replace_surrogates(key, found): _replace_surrogates(item, found)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_replace_surrogates(item, found) for item in value]
    return value
