"""Opens the files of conversations, and parses JSON even if a part of it is damaged.

orjson parses intact files. If orjson rejects a file, a slower parser reads its elements one by one,
so that a damaged element does not affect the others.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
import re
import stat
from contextlib import contextmanager
from io import FileIO
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.formats.kept_session_file import (
    has_kept_session_file_name,
    verify_and_decompress_kept_session,
)
from kbtui.errors import WorkspaceError
from kbtui.terminal_text import format_counted_noun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.conversations.conversation_data_types import ParsingResumePoint

MAX_EVENTS_BYTES = 512 << 20
"""The maximum size in bytes of a conversation's file. A larger file is not read."""
MAX_CONFIG_BYTES = 16 << 20
DAMAGED = object()
"""Replaces an element that cannot be parsed, so that later elements keep their indexes."""
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
MIN_BYTES_FOR_BLOCKS = 4 << 20
"""An `events.json` larger than this is read in blocks. A smaller one is read as a whole."""
BLOCK_BYTES = 1 << 20
"""The usual size of the blocks in which a large file is read, in bytes."""
ARRAY_START = b"[\n  {"
"""The bytes with which JP begins an array in a file."""
_END = b"\n  }\n]\n"
SEPARATOR = b"\n  },\n  {"
"""The bytes that JP writes between two elements of an array. They occur nowhere else in the file."""
# The start of the next element: JP indents by two and writes the timestamp first.
_NEXT_ELEMENT = re.compile(r'\n  \{|\{\s*"timestamp"\s*:')
_GAP = re.compile(r"[\s,]*")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


@contextmanager
def open_regular_file(path: str, max_bytes: int | None = None) -> Iterator[tuple[int, int]]:
    """Open a file; yield its descriptor, for reading with `os.pread`, and its size in bytes.

    If the file is a kept copy (`formats/kept_session_file.py`), it is decompressed, and the
    descriptor and the size are those of the original bytes.

    Raises `WorkspaceError` in these cases:

    * The file is larger than `max_bytes`.
    * The file is a pipe or another special file. Reading from it could block forever.
    * The path is a link that points outside the conversations' directory.
    * The file cannot be opened, or the `with` block cannot read from it.
    """
    try:
        if has_kept_session_file_name(path):
            kept = verify_and_decompress_kept_session(path)
            yield (
                kept.fileno(),
                _ensure_size_within_limit(path, os.fstat(kept.fileno()).st_size, max_bytes),
            )
            return
        try:
            file = os.open(path, _FLAGS)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            file = os.open(_resolve_link_inside_conversations_directory(path), _FLAGS)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise WorkspaceError("it is not a regular file", where=path)
            yield file, _ensure_size_within_limit(path, status.st_size, max_bytes)
        finally:
            os.close(file)
    except FileNotFoundError:
        message = (
            "the kept copy is missing"
            if has_kept_session_file_name(path)
            else "there is no such file"
        )
        raise WorkspaceError(message, where=path) from None
    except IsADirectoryError:
        raise WorkspaceError("it is not a regular file", where=path) from None
    except MemoryError:
        raise WorkspaceError("it does not fit into memory", where=path) from None
    except OSError as error:
        raise WorkspaceError((error.strerror or str(error)).lower(), where=path) from error


def _ensure_size_within_limit(path: str, size: int, max_bytes: int | None) -> int:
    """Return `size`. Raises `WorkspaceError` if `size` is greater than `max_bytes`."""
    if max_bytes is not None and size > max_bytes:
        message = f"its size is {size:,} bytes; the limit is {max_bytes:,}"
        raise WorkspaceError(message, where=path)
    return size


def _resolve_link_inside_conversations_directory(path: str) -> str:
    """Return a link's target.

    Raises `WorkspaceError` if the target is outside the directory two levels above the link.
    """
    conversations = os.path.dirname(os.path.dirname(path))  # noqa: PTH120
    target = os.path.realpath(path)
    if not target.startswith(f"{os.path.realpath(conversations)}/"):
        raise WorkspaceError(f"it is a link to a file outside {conversations}", where=path)
    return target


def read_file(path: str, max_bytes: int) -> bytes:
    """Read a regular file.

    Raises `WorkspaceError`, for example if the file is larger than `max_bytes`.
    """
    with open_regular_file(path, max_bytes) as (file, size):
        blocks, at = list[bytes](), 0
        # One more byte than expected, because the file may have grown.
        while block := os.pread(file, max(1, size + 1 - at), at):
            blocks.append(block)
            at += len(block)
        return b"".join(blocks)


def read_file_head(path: str, length: int) -> bytes:
    """Read the first bytes of a regular file, at most `length`. Raises `WorkspaceError`."""
    with open_regular_file(path) as (file, _):
        return os.pread(file, length, 0)


def read_file_tail(path: str, length: int) -> bytes:
    """Read the last bytes of a regular file, at most `length`. Raises `WorkspaceError`."""
    with open_regular_file(path) as (file, size):
        return os.pread(file, length, max(0, size - length))


def update_hash_with_file_range(digest: Any, file: int, start: int, end: int) -> None:
    """Update a hash with the bytes of an open file from offset `start` up to offset `end`.

    The byte at `end` is not included.
    """
    while start < end and (block := os.pread(file, min(BLOCK_BYTES, end - start), start)):
        digest.update(block)
        start += len(block)


def hash_file_until_resume_point(file: int, resume_point: ParsingResumePoint) -> Any:
    """Return a SHA-256 hash object of an open file's bytes up to `resume_point`.

    Returns None if this is not the hash in `resume_point`. In this case, the file has changed.
    """
    digest = hashlib.sha256()
    update_hash_with_file_range(digest, file, 0, resume_point.offset)
    return digest if digest.hexdigest() == resume_point.digest else None


class FileProblemWithoutDataLoss(str):
    """A file problem that does not cause any loss of data."""

    __slots__ = ()


def parse_json_object_leniently(data: bytes, problems: list[str]) -> dict[str, Any]:
    """Parse one JSON object. Problems that lose no data are appended to `problems`.

    Any other problem raises `ValueError`. The text of the error becomes part of a message for the
    user.
    """
    data = _remove_byte_order_mark(data, problems)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _parse_json_leniently(_decode_utf8_and_report_problems(data, problems), problems)
    value = _unwrap_envelope(value)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _unwrap_envelope(value: Any) -> Any:
    """If `value` is an envelope `{format, version, data}`, return its data, otherwise the value itself.

    JP's draft D34 describes envelopes.
    """
    is_envelope = isinstance(value, dict) and value.keys() == {"format", "version", "data"}
    return value["data"] if is_envelope else value


def _remove_byte_order_mark(data: bytes, problems: list[str]) -> bytes:
    if data.startswith(codecs.BOM_UTF8):
        problems.append("it starts with a byte order mark")
    return data.removeprefix(codecs.BOM_UTF8)


def read_event_batches(path: str, problems: list[str]) -> Iterator[list[Any]]:
    """Yield the elements of an `events.json` in batches. Append the file's problems to `problems`.

    A large file that has JP's line breaks and indentation is read in blocks of about a megabyte. Any
    other file is read as a whole. Raises `WorkspaceError` if the file cannot be read or is too
    large.
    """
    with open_regular_file(path, MAX_EVENTS_BYTES) as (file, size):
        if (
            size > MIN_BYTES_FOR_BLOCKS
            and os.pread(file, len(ARRAY_START), 0) == ARRAY_START
            and has_jp_array_ending(os.pread(file, len(_END), size - len(_END)))
        ):
            yield from _read_json_array_in_blocks(file, size, problems)
            return
        data = FileIO(file, closefd=False).readall()
    yield parse_json_array_and_mark_damaged_elements(data, problems)


def has_jp_array_ending(data: bytes) -> bool:
    """Return whether the data ends with the bytes that JP writes at the end of an array."""
    return data.endswith((_END, _END[:-1]))


def drop_incomplete_array_end(data: bytes) -> bytes:
    """Return an array with the complete elements at the beginning of a truncated array.

    Returns b"" if there are no complete elements, or if the array does not have JP's line breaks
    and indentation.
    """
    end = data.rfind(SEPARATOR)
    return data[:end] + _END if data.startswith(ARRAY_START) and end > 0 else b""


def _read_json_array_in_blocks(file: int, size: int, problems: list[str]) -> Iterator[list[Any]]:
    """Yield the elements of an array in batches.

    The file is read in blocks. A block ends at a separator, so it contains only whole elements.
    """
    position, pending, count = 1, b"", 0
    while position < size:
        # Double the block, so that an element of many megabytes is copied only a few times.
        data = os.pread(file, max(BLOCK_BYTES, len(pending)), position)
        if not data:
            problems.append("the file shrank while it was being read")
            break
        position += len(data)
        pending += data
        cut = pending.rfind(SEPARATOR)
        if cut >= 0:
            cut += len(b"\n  }")
            elements = parse_json_array_and_mark_damaged_elements(
                b"[%b]" % pending[:cut], problems, count, more=True
            )
            count += len(elements)
            yield elements
            pending = pending[cut + 1 :]
    if pending:
        rest = pending.removesuffix(b"\n").removesuffix(b"]")
        yield parse_json_array_and_mark_damaged_elements(b"[%b]" % rest, problems, count)


def parse_json_array_and_mark_damaged_elements(
    data: bytes, problems: list[str], first: int = 0, more: bool = False
) -> list[Any]:
    """Return the elements of an array, or of a block of adjacent array elements.

    If an element cannot be read, `DAMAGED` takes its place, and a description is appended to
    `problems`. `first` is the index of the block's first element in the array. `more` says whether
    the array has elements after the block.
    """
    data = _remove_byte_order_mark(data, problems)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return list(_recover_array_elements(data, problems, first, more))
    value = _unwrap_envelope(value)
    if isinstance(value, list):
        return value
    problems.append("it is not a JSON array")
    return []


def _recover_array_elements(
    data: bytes, problems: list[str], first: int, more: bool
) -> Iterator[Any]:
    """Yield the elements of a damaged JSON array. `DAMAGED` replaces each invalid element."""
    text = _decode_utf8_and_report_problems(data, problems)
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
            problems.append(FileProblemWithoutDataLoss(f"there is an extra comma {where}"))
        if is_end:
            if text[position + 1 :].strip():
                problems.append("there is extra data after the end of the array")
            return
        found: list[str] = []
        try:
            value, position = _decode_json_value_at_position(text, position, found)
            yield _replace_surrogates(value, found)
            if is_whole and not commas:
                problems.append(
                    FileProblemWithoutDataLoss(f"a comma is missing after element {number - 1}")
                )
            problems += [
                FileProblemWithoutDataLoss(f"element {number} has {what}")
                for what in dict.fromkeys(found)
            ]
            is_whole = True
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else "not valid JSON"
            following = _NEXT_ELEMENT.search(text, position + 1)
            if following is None and not more:
                problems.append(f"element {number} is {reason}, and nothing after it can be read")
                return
            problems.append(f"element {number} is {reason}")
            yield DAMAGED
            if following is None:
                return
            position = following.end() - len(following[0].lstrip())
            is_whole = False
        number += 1


def _decode_utf8_and_report_problems(data: bytes, problems: list[str]) -> str:
    """Decode the bytes of a file.

    U+FFFD replaces invalid UTF-8. If there is any, a problem says in how many places.
    """
    text = data.decode("utf-8", "replace")
    replaced = text.count("\ufffd") - data.count("\ufffd".encode())
    if replaced:
        count = format_counted_noun(replaced, "place is", "places are")
        problems.append(FileProblemWithoutDataLoss(f"{count} not UTF-8 and shown as \ufffd"))
    return text


def _decode_json_value_at_position(text: str, position: int, found: list[str]) -> tuple[Any, int]:
    """Decode the JSON value at `position`; return the value and the position of its end.

    Strings with control characters and the numbers NaN and infinity are accepted, although JSON
    does not allow them. A description of each such value is appended to `found`. Raises
    `ValueError` or `RecursionError`.
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
        value, end = _decode_json_value_at_position(text, start, found)
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
    """Return a JSON value in which U+FFFD replaces each unpaired surrogate.

    Unpaired surrogates cannot be stored or printed. For each string that contains one, a problem is
    appended to `found`.
    """
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
