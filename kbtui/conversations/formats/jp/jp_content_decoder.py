"""Decodes the contents of events: base64, blocks of typed content, and blobs.

A blob is content in a separate file.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zlib
from typing import TYPE_CHECKING, Any

from pybase64 import b64decode

from kbtui.conversations.conversation_data_types import ContentBlock
from kbtui.conversations.formats.turn_builder import (
    count_base64_bytes,
    get_count_or_none,
    get_text_or_none,
)
from kbtui.terminal_text import format_json_value_on_one_line, format_readable_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kbtui.conversations.conversation_data_types import ContentState


MAX_BLOB_BYTES = 16 << 20
"""The maximum size in bytes of the content of a blob. A larger blob is not read."""
MAX_TOTAL_BYTES = 64 << 20
"""The maximum total size in bytes of the blobs that are read for one conversation."""
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_GZIP_SIGNATURE = b"\x1f\x8b"
_GZIP_FORMAT = zlib.MAX_WBITS | 16


class UnreadableJpBlobError(Exception):
    """A blob cannot be read; `state` is the reason."""

    def __init__(self, state: ContentState) -> None:
        super().__init__(state)
        self.state: ContentState = state


class JpBlobReader:
    """Reads the blobs that one conversation refers to.

    A blob's name is the SHA-256 of its content. The `directories` are searched in order.
    """

    def __init__(self, directories: Sequence[str] = ()) -> None:
        self._directories = directories
        self._bytes_left = MAX_TOTAL_BYTES

    def read_blob(self, name: object) -> bytes:
        """Return the content of a blob. Raises `UnreadableJpBlobError`.

        `name` is the value of `$blob`. The content is returned only if its SHA-256 is the one
        in `name`.
        """
        found = _DIGEST.fullmatch(name) if type(name) is str else None
        if found is None:
            # Only hexadecimal digits may become a part of a path.
            raise UnreadableJpBlobError("elsewhere")
        digest, state = found[1].lower(), UnreadableJpBlobError("missing")
        for path in self._iterate_possible_blob_paths(digest):
            try:
                content = _read_gzip_file(path, min(MAX_BLOB_BYTES, self._bytes_left))
            except FileNotFoundError:
                continue
            except (OSError, zlib.error, EOFError):
                state = UnreadableJpBlobError("damaged")
            except UnreadableJpBlobError as error:
                state = error
            else:
                if hashlib.sha256(content).hexdigest() == digest:
                    self._bytes_left -= len(content)
                    return content
                state = UnreadableJpBlobError("damaged")
        raise state

    def _iterate_possible_blob_paths(self, digest: str) -> Iterator[str]:
        """Yield the paths at which a blob's file may be stored.

        The file is in two nested directories, which are named after the beginning of the digest.
        The file's name is the whole digest, or only the rest of it.
        """
        first, second, rest = digest[:2], digest[2:4], digest[4:]
        for directory in self._directories:
            folder = f"{directory}/{first}/{second}"
            # A link in place of one of the directories could point outside the workspace.
            if os.path.realpath(folder) == f"{os.path.realpath(directory)}/{first}/{second}":
                yield f"{folder}/{rest}.blob.gz"
                yield f"{folder}/{digest}.blob.gz"


def _read_gzip_file(path: str, max_bytes: int) -> bytes:
    """Return the decompressed content of a gzip file.

    Raises `OSError`, `zlib.error` or `EOFError` if the file cannot be read, and `UnreadableJpBlobError` if
    the content has more than `max_bytes` bytes.
    """
    file = os.open(path, _FLAGS)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_size > max_bytes:
            raise UnreadableJpBlobError("too-large")
        with os.fdopen(file, "rb", closefd=False) as opened:
            data = opened.read(max_bytes + 1)
    finally:
        os.close(file)
    if not data.startswith(_GZIP_SIGNATURE):
        raise OSError("not a gzip file")
    # A small file can decompress to gigabytes, so the output is limited, too.
    stream = zlib.decompressobj(_GZIP_FORMAT)
    content = stream.decompress(data, max_bytes + 1)
    if len(content) > max_bytes:
        raise UnreadableJpBlobError("too-large")
    if not stream.eof:
        raise EOFError
    return content


_TWICE_ENCODED = re.compile(r"[A-Za-z0-9_-]{38,}={0,2}")


def decode_if_base64(text: str) -> str:
    """Return the text that a base64 string encodes; any other string is returned unchanged.

    Decoding is as strict as in JP: a string must not mix the two base64 alphabets, padding is
    required, and unused bits must be zero.
    """
    if not text or len(text) % 4:
        return text
    encoded = text
    if "-" in text or "_" in text:
        if "+" in text or "/" in text:
            return text
        # Before March 2026 JP wrote results in the URL-safe alphabet.
        encoded = text.replace("-", "+").replace("_", "/")
    if text[-1] == "=":
        # Python ignores the unused bits of the last character; JP's decoder requires zeros.
        last, allowed = (text[-3], "AQgw") if text[-2] == "=" else (text[-2], "AEIMQUYcgkosw048")
        if last not in allowed:
            return text
    try:
        return b64decode(encoded, None, True).decode()
    except ValueError:
        return text


def decode_tool_result_text(text: str) -> str:
    """Return the text of a tool result, which may be encoded twice.

    Old versions of JP wrote results in URL-safe base64. Newer versions treat such a result as plain
    text and encode it again.
    """
    decoded = decode_if_base64(text)
    is_encoded = decoded is not text and _TWICE_ENCODED.fullmatch(decoded)
    return decode_if_base64(decoded) if is_encoded else decoded


def decode_base64_strings(value: Any) -> Any:
    """Return a JSON value in which all base64 strings, except keys, are decoded.

    Raises `RecursionError` for a value that is nested too deeply.
    """
    if type(value) is str:
        return decode_if_base64(value)
    if type(value) is dict:
        return {
            key: decode_if_base64(item) if type(item) is str else decode_base64_strings(item)
            for key, item in value.items()
        }
    if type(value) is list:
        return [decode_base64_strings(item) for item in value]
    return value


class JpContentBlockDecoder:
    """Decodes typed content: blocks of texts, resources, images and questions.

    `problems` contains a phrase for each blob that should be readable but is not.
    """

    def __init__(self, blobs: JpBlobReader | None = None) -> None:
        self._blobs = blobs or JpBlobReader()
        self.problems: list[str] = []

    def decode_content_blocks(self, value: Any) -> list[ContentBlock] | None:
        """Return the blocks of typed content; None for any other value.

        Typed content is a block, a list of blocks, or a reference (`$blob`) to a text in a blob. A
        block is an object with a `type`. Raises `RecursionError` for a value that is nested too
        deeply.
        """
        items = value if type(value) is list else [value]
        for item in items:
            if type(item) is not dict or not (type(item.get("type")) is str or "$blob" in item):
                return None
        return [self._decode_content_block(item) for item in items]

    def decode_resource(self, resource: Any) -> ContentBlock:
        """Return a resource as a block.

        Raises `RecursionError` if the resource is nested too deeply.
        """
        if type(resource) is str:
            return ContentBlock(
                "resource", name=resource, state=_get_elsewhere_state_if_external_uri(resource)
            )
        if type(resource) is not dict:
            return ContentBlock("resource", format_readable_json(resource))
        block = ContentBlock(
            "resource",
            name=_get_first_string_value(resource, _NAME_KEYS),
            title=get_text_or_none(resource.get("title")),
            media_type=_get_first_string_value(resource, _MEDIA_TYPE_KEYS),
        )
        known = _DESCRIPTION_KEYS
        if self._add_content_to_block(block, resource):
            known |= _CONTENT_KEYS
        else:
            block.state = _get_elsewhere_state_if_external_uri(block.name)
        said = get_text_or_none(resource.get("description"))
        rest = {key: value for key, value in resource.items() if key not in known}
        more = format_readable_json(decode_base64_strings(rest)) if rest else None
        block.text = "\n".join(part for part in (said, block.text, more) if part)
        return block

    def _decode_content_block(self, block: dict[str, Any]) -> ContentBlock:
        kind = block.get("type", "text")
        if "$blob" in block:
            result = ContentBlock(kind, media_type=_get_first_string_value(block, _MEDIA_TYPE_KEYS))
            self._add_blob_to_block(result, block)
            return result
        if kind in ("resource", "resource_link"):
            return self.decode_resource(block.get("resource", block))
        if kind == "question" and type(question := block.get("question")) is dict:
            return _make_question_block(question)
        if kind in _CONTENT_KINDS:
            result = ContentBlock(
                kind,
                name=_get_first_string_value(block, _NAME_KEYS),
                media_type=_get_first_string_value(block, _MEDIA_TYPE_KEYS),
            )
            if self._add_content_to_block(result, block):
                return result
        return ContentBlock(kind, format_readable_json(decode_base64_strings(block)))

    def _add_content_to_block(self, block: ContentBlock, value: dict[str, Any]) -> bool:
        """Add the content of an object to a block: a text, base64 data, or the content of a blob.

        Returns whether the object has content.
        """
        content = value.get("content")
        # Since JP's RFD 066, the content is in a separate object, or a blob replaces the text or data.
        held = [content, *(value.get(key) for key in ("text", "blob", "data"))]
        holder = next((one for one in held if type(one) is dict and "$blob" in one), None)
        if holder is None:
            holder = content if type(content) is dict else value
        if "$blob" in holder:
            self._add_blob_to_block(block, holder)
        elif type(text := holder.get("text")) is str:
            block.text = decode_tool_result_text(text)
        elif type(data := holder.get("blob", holder.get("data"))) is str:
            self._add_base64_data_to_block(block, data)
        elif type(content) is str:
            block.text = decode_tool_result_text(content)
        else:
            return False
        return True

    def _add_base64_data_to_block(self, block: ContentBlock, data: str) -> None:
        try:
            self._add_bytes_to_block(block, b64decode(data, None, True))
        except ValueError:
            block.size = count_base64_bytes(data)

    def _add_blob_to_block(self, block: ContentBlock, reference: dict[str, Any]) -> None:
        """Add the content of a blob, or the reason why it cannot be read."""
        block.size = get_count_or_none(reference.get("size"))
        name = reference["$blob"]
        if "encryption" in reference:
            block.state = "encrypted"
            block.recipients = _list_blob_encryption_recipients(reference["encryption"])
            return
        try:
            self._add_bytes_to_block(block, self._blobs.read_blob(name))
        except UnreadableJpBlobError as error:
            block.state = error.state
            block.name = block.name or get_text_or_none(name)
            if error.state in _BLOB_PROBLEMS:
                beginning = str(name).removeprefix("sha256:")[:12]
                self.problems.append(f"the blob {beginning}… {_BLOB_PROBLEMS[error.state]}")

    def _add_bytes_to_block(self, block: ContentBlock, data: bytes) -> None:
        """Add bytes to a block as text if they are UTF-8 without NUL characters.

        For all other bytes, such as media or encrypted data, add only the size.
        """
        is_media = (block.media_type or "").startswith(("image/", "audio/", "video/"))
        if data.startswith(_AGE_SIGNATURES):
            block.state, block.size = "encrypted", len(data)
        elif is_media or block.kind in _MEDIA_KINDS or b"\0" in data:
            block.size = len(data)
        else:
            try:
                block.text, block.size = data.decode(), None
            except UnicodeDecodeError:
                block.size = len(data)


_NAME_KEYS = ("uri", "url", "path", "name")
_MEDIA_TYPE_KEYS = ("mimeType", "mime_type")
_CONTENT_KEYS = frozenset({"text", "content", "data", "blob"})
_MEDIA_KINDS = ("image", "audio")
_CONTENT_KINDS = ("text", *_MEDIA_KINDS)
_DESCRIPTION_KEYS = frozenset(
    # `formatted` repeats the content in the form that the model received; `annotations` are for programs.
    {"type", "title", "description", "annotations", "formatted", "_meta"}
    | {*_NAME_KEYS, *_MEDIA_TYPE_KEYS}
)
_AGE_SIGNATURES = (b"age-encryption.org/", b"-----BEGIN AGE ENCRYPTED FILE-----")
"""The beginnings of files that are encrypted as JP's draft D55 describes."""
_BLOB_PROBLEMS: dict[ContentState, str] = {
    "missing": "is missing",
    "damaged": "is damaged",
    "too-large": "is too large to read",
}


def _make_question_block(question: dict[str, Any]) -> ContentBlock:
    """Return a question as a block.

    The block's text is the question, followed by the possible answers and the default answer.
    """
    schema = question.get("schema")
    lines = [get_text_or_none(question.get("text")) or ""]
    if type(schema) is dict and type(choices := schema.get("enum")) is list:
        lines.append("choices: " + ", ".join(map(format_json_value_on_one_line, choices)))
    if "default" in question:
        lines.append(f"default: {format_json_value_on_one_line(question['default'])}")
    return ContentBlock("question", "\n".join(lines), name=get_text_or_none(question.get("id")))


def _list_blob_encryption_recipients(encryption: Any) -> tuple[str, ...]:
    recipients = encryption.get("recipients") if type(encryption) is dict else None
    found = recipients if type(recipients) is list else []
    return tuple(recipient for recipient in found if type(recipient) is str)


def _get_elsewhere_state_if_external_uri(uri: str | None) -> ContentState | None:
    """Return `elsewhere` if the URI refers to a file that JP has copied, otherwise None.

    JP's draft D56 describes such URIs.
    """
    return "elsewhere" if uri and uri.startswith("external:") else None


def _get_first_string_value(values: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((values[key] for key in keys if type(values.get(key)) is str), None)
