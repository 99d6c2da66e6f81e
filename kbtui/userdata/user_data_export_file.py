"""The file that moves user data to another machine: lines of JSON, and a checksum at the end.

The format is documented in `docs/guide/moving.md`. kbtui never writes to a path that the file
contains. Equal data results in equal bytes. Therefore two versions of the file in a Git repository
differ only where the data differs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any

import orjson

from kbtui.conversations.formats.kept_session_file import (
    has_kept_session_file_name,
    iterate_kept_session_file_blocks,
)
from kbtui.conversations.session_archive import (
    KeptSession,
    find_session_copy_damage,
    is_untrusted_session_record_valid,
)
from kbtui.conversations.turn_decision_marks import MarkedEventIdentity
from kbtui.errors import UsageError, WorkspaceError
from kbtui.file_reading_and_writing import iterate_regular_file_blocks
from kbtui.light_named_tuple import NamedTuple
from kbtui.userdata.user_data_records import (
    RECORD_KINDS,
    UserDataRecord,
    check_user_record_fields,
    is_record_identifier,
    is_unix_time,
    parse_user_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FORMAT_VERSION = 1
MAX_LINE_BYTES = 8_000_000
"""A file with a line of more than this many bytes is refused. No record needs such a line."""
MAX_RECORD_BYTES = 256_000_000
"""A file whose records have more than this many bytes in total is refused.

Parts of kept sessions do not count, because they are written to the disk.
"""
_PART_BYTES = 12_288
"""A line contains at most this many bytes of a kept session, so only the last lines change when a session grows."""
_MAX_COMPRESSION = 1100
"""A file that claims a higher compression ratio is refused, because gzip makes data at most 1,032 times smaller."""
_LOCAL_FIELDS = ("original_state", "kept_size")
"""The fields of a `KeptSession` that are valid on one machine only."""
_EXPORT_AGAIN = "export the data again, and copy the whole file"


@dataclass
class ExportedWorkspaceData:
    """The data of one workspace.

    * `root` is the workspace's path on the machine that exported the data.
    * `repository` is the address of the workspace's Git repository. `directory` is the workspace's
      path in the repository, or "" for the root.
    * `worktrees` contains, for each known worktree, its root and the absolute path of the workspace
      in it.
    * `anchors` maps the reference of each bookmark of a turn or call to the bookmark's anchor.
    """

    root: str
    jp_id: str | None = None
    repository: str | None = None
    directory: str = ""
    worktrees: list[list[str]] = field(default_factory=list)
    records: list[UserDataRecord] = field(default_factory=list)
    anchors: dict[str, MarkedEventIdentity] = field(default_factory=dict)


class ExportOmission(NamedTuple):
    """Something that an export does not contain, and the reason.

    If `is_damaged` is true, the data is damaged. If not, it belongs to an unknown workspace.
    """

    what: str
    reason: str
    is_damaged: bool = True


@dataclass
class ExportedUserData:
    """The content of a file: the data of workspaces, kept sessions, and removals of kept sessions.

    `kept_removals` maps the ids of removed sessions to the times of their removal.
    """

    workspaces: list[ExportedWorkspaceData] = field(default_factory=list)
    kept: list[KeptSession] = field(default_factory=list)
    kept_removals: dict[str, float] = field(default_factory=dict)


class _ExportLineWriterWithChecksum:
    """Writes lines of JSON, and computes their checksum."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target, self.count, self.digest = target, 0, hashlib.sha256()

    def write_line(self, shape: dict[str, Any]) -> None:
        line = _format_export_line(shape)
        self._target.write(line)
        self.digest.update(line)
        self.count += 1


# Control, format and private characters, which would change how a terminal or a diff shows the line.
_UNSAFE = re.compile(r"[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def _format_export_line(shape: dict[str, Any]) -> bytes:
    text = json.dumps(shape, ensure_ascii=False)
    return (_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n").encode()


def write_user_data_file(target: IO[bytes], data: ExportedUserData) -> list[ExportOmission]:
    """Write data to an open file. Raises `OSError`.

    Returns a list of the data that was left out because the file cannot contain it.
    """
    left_out: list[ExportOmission] = []
    writer = _ExportLineWriterWithChecksum(target)
    writer.write_line({"kind": "kbtui_data", "version": FORMAT_VERSION})
    for workspace in sorted(data.workspaces, key=lambda one: one.root):
        header = {
            name: one for name, one in vars(workspace).items() if name not in ("records", "anchors")
        }
        header["worktrees"] = sorted(workspace.worktrees)
        order = {kind: number for number, kind in enumerate(RECORD_KINDS)}
        # Searches that are equal in all values, including the time, are one record.
        unique = {one.key: one for one in workspace.records}
        records = sorted(unique.values(), key=lambda one: (order[one.kind], one.id))
        try:
            _parse_exported_workspace_header(header)
        except ValueError as error:
            left_out.append(ExportOmission(repr(workspace.root), str(error)))
            continue
        writer.write_line({"kind": "workspace", **header})
        for record in records:
            if reason := _find_record_export_problem(record):
                left_out.append(ExportOmission(f"{record.kind} {record.id!r}", reason))
            else:
                writer.write_line(record.as_json())
        for name, anchor in sorted(workspace.anchors.items()):
            line = {"kind": "bookmark_anchor", "ref": name, **anchor._asdict()}
            if all(one is None or is_record_identifier(one) for one in line.values()):
                writer.write_line(line)
    for name, removed_at in sorted(data.kept_removals.items()):
        writer.write_line({"kind": "kept_removal", "id": name, "removed_at": removed_at})
    copies: dict[str, KeptSession] = {}
    for session in sorted(data.kept, key=lambda one: one.id):
        damage = find_session_copy_damage(session)
        if damage or not is_untrusted_session_record_valid(session):
            reason = damage.reason if damage else "its record has invalid values"
            left_out.append(ExportOmission(f"kept session {session.id}", reason))
            continue
        shape = {name: one for name, one in asdict(session).items() if name not in _LOCAL_FIELDS}
        writer.write_line({"kind": "kept_session", **shape})
        copies[session.file_name] = session
    for name, session in sorted(copies.items()):
        writer.write_line({"kind": "copy", "file_name": name, "bytes": session.kept_size})
        try:
            for part in iterate_regular_file_blocks(str(session.path), _PART_BYTES):
                writer.write_line({"kind": "part", "data": base64.b64encode(part).decode()})
        except FileNotFoundError as error:
            # A running engine replaces the copy of a session that has grown.
            message = f"the kept session {session.id} changed while it was being exported"
            raise WorkspaceError(message, hint="export the data again") from error
    end = {"kind": "end", "lines": writer.count, "sha256": writer.digest.hexdigest()}
    target.write(_format_export_line(end))
    target.flush()
    return left_out


def _find_record_export_problem(record: UserDataRecord) -> str | None:
    """Return the reason why a record cannot be exported, or None."""
    try:
        line = _format_export_line(record.as_json())
        if len(line) <= MAX_LINE_BYTES:
            parse_user_record(orjson.loads(line))
            return None
    except UnicodeEncodeError:
        pass
    except ValueError as error:
        return str(error)
    return "it is too large, or has characters that the file cannot contain"


class UserDataFileReader:
    """Reads and checks a whole file of exported data.

    The copies of kept sessions are written into `directory`. `where` identifies the file in errors.
    """

    def __init__(self, source: IO[bytes], where: str, directory: Path) -> None:
        self._source, self._where, self._directory = source, where, directory
        self._number = 0
        self._digest = hashlib.sha256()
        self._data = ExportedUserData()
        self._seen: set[tuple[str, ...]] = set()
        self._sizes_of_copies: dict[str, set[int]] = {}
        """Maps the name of each copy to its size as recorded in each of its sessions' records."""
        self._kept_sizes: dict[str, int] = {}
        """Maps the name of each copy that was read to its compressed size."""

    def read(self) -> ExportedUserData:
        """Return the data in the file.

        Raises `UsageError`, which names the line, if anything in the file is wrong. Raises
        `OSError` if the file cannot be read or a copy cannot be written.
        """
        self._check_export_header(self._read_line())
        sections: dict[str, Callable[[dict[str, Any]], None]] = {
            "workspace": self._add_workspace,
            **dict.fromkeys(RECORD_KINDS, self._add_record),
            "bookmark_anchor": self._add_bookmark_anchor,
            "kept_removal": self._add_kept_session_removal,
            "kept_session": self._parse_and_add_kept_session,
            "copy": self._add_session_copy,
        }
        record_bytes = 0
        while True:
            before = self._digest.hexdigest(), self._number
            shape = self._read_line()
            kind = shape.get("kind")
            if kind == "end":
                self._check_export_end(shape, *before)
                return self._data
            add = sections.get(kind) if isinstance(kind, str) else None
            if add is None:
                raise self._make_import_error("the line is of an unknown kind")
            record_bytes += len(orjson.dumps(shape))
            if record_bytes > MAX_RECORD_BYTES:
                raise self._make_import_error(
                    f"the records have more than {MAX_RECORD_BYTES:,} bytes"
                )
            try:
                add(shape)
            except ValueError as error:
                raise self._make_import_error(str(error)) from error
            except TypeError as error:
                raise self._make_import_error("the line has too few or too many values") from error

    def _make_import_error(self, reason: str, hint: str = _EXPORT_AGAIN) -> UsageError:
        message = f"{reason}; nothing was imported"
        return UsageError(message, where=f"{self._where}:{self._number}", hint=hint)

    def _read_line(self) -> dict[str, Any]:
        line = self._source.readline(MAX_LINE_BYTES + 1)
        self._number += 1
        if self._number > 1 and not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
            raise self._make_import_error("the file ends too early: a part of it is missing")
        try:
            if len(line) > MAX_LINE_BYTES:
                raise ValueError("the line is too long")
            shape = orjson.loads(line)
            if not isinstance(shape, dict):
                raise ValueError("the line is not a JSON object")
        except ValueError as error:
            if self._number == 1:
                raise self._make_export_header_error() from error
            reason = "the line is not valid JSON" if "line 1" in str(error) else str(error)
            raise self._make_import_error(reason) from error
        self._digest.update(line)
        return shape

    def _make_export_header_error(self) -> UsageError:
        hint = "name a file that `kbtui data export` wrote"
        return self._make_import_error("this is not exported user data", hint)

    def _check_export_header(self, shape: dict[str, Any]) -> None:
        version = shape.get("version")
        if shape.get("kind") != "kbtui_data" or type(version) is not int:
            raise self._make_export_header_error()
        if version != FORMAT_VERSION:
            reason = f"the file has format {version}, but this version of kbtui reads format {FORMAT_VERSION}"
            raise self._make_import_error(reason, "update kbtui on this machine")

    def _check_export_end(self, shape: dict[str, Any], sha256: str, lines: int) -> None:
        if shape != {"kind": "end", "lines": lines, "sha256": sha256}:
            hint = f"{_EXPORT_AGAIN}; after a merge conflict in Git, take one of the two versions"
            raise self._make_import_error(
                "the file was changed after it was written, or is damaged", hint
            )
        if self._source.read(1):
            self._number += 1
            raise self._make_import_error("there is text after the end of the data")
        if missing := sorted(self._sizes_of_copies.keys() - self._kept_sizes.keys()):
            raise self._make_import_error(f"the copy {missing[0]} of a kept session is missing")
        self._data.kept = [
            replace(one, kept_size=self._kept_sizes[one.file_name]) for one in self._data.kept
        ]

    def _check_is_not_duplicate(self, *key: str) -> None:
        if key in self._seen:
            raise ValueError(f"the {key[0]} {key[-1][:100]!r} is in the file twice")
        self._seen.add(key)

    def _add_workspace(self, shape: dict[str, Any]) -> None:
        del shape["kind"]
        workspace = _parse_exported_workspace_header(shape)
        if self._data.kept or self._data.kept_removals:
            raise ValueError("a workspace comes after the kept sessions")
        self._check_is_not_duplicate("workspace", workspace.root)
        self._data.workspaces.append(workspace)

    def _add_record(self, shape: dict[str, Any]) -> None:
        record = parse_user_record(shape)
        if not self._data.workspaces:
            raise ValueError("a record comes before the first workspace")
        workspace = self._data.workspaces[-1]
        self._check_is_not_duplicate(record.kind, workspace.root, record.id)
        workspace.records.append(record)

    def _add_bookmark_anchor(self, shape: dict[str, Any]) -> None:
        del shape["kind"]
        checks: dict[str, Callable[[object], bool]] = {
            "ref": is_record_identifier,
            "digest": is_record_identifier,
            "event_id": _is_identifier_or_none,
            "timestamp": _is_identifier_or_none,
            "history": is_record_identifier,
        }
        check_user_record_fields(shape, checks, "anchor of a bookmark")
        if not self._data.workspaces:
            raise ValueError("an anchor comes before the first workspace")
        workspace, name = self._data.workspaces[-1], shape.pop("ref")
        self._check_is_not_duplicate("bookmark_anchor", workspace.root, name)
        workspace.anchors[name] = MarkedEventIdentity(**shape)

    def _add_kept_session_removal(self, shape: dict[str, Any]) -> None:
        del shape["kind"]
        check_user_record_fields(
            shape, {"id": is_record_identifier, "removed_at": is_unix_time}, "removal"
        )
        self._check_is_not_duplicate("kept_removal", shape["id"])
        self._data.kept_removals[shape["id"]] = float(shape["removed_at"])

    def _parse_and_add_kept_session(self, shape: dict[str, Any]) -> None:
        del shape["kind"]
        session = KeptSession(**shape, original_state="", kept_size=0)
        if not is_untrusted_session_record_valid(session):
            raise ValueError("the record of a kept session has invalid values")
        self._check_is_not_duplicate("kept_session", session.id)
        self._data.kept.append(session)
        self._sizes_of_copies.setdefault(session.file_name, set()).add(session.size)

    def _add_session_copy(self, shape: dict[str, Any]) -> None:
        name, size = shape.get("file_name"), shape.get("bytes")
        if shape.keys() != {"kind", "file_name", "bytes"} or type(size) is not int or size < 0:
            raise ValueError("the header of a copy has invalid values")
        if not isinstance(name, str) or not has_kept_session_file_name(name) or "/" in name:
            raise ValueError("the copy of a kept session has an invalid name")
        self._check_is_not_duplicate("copy", name)
        sizes = self._sizes_of_copies.get(name)
        if not sizes or max(sizes) > max(1, size) * _MAX_COMPRESSION:
            raise ValueError(
                "no kept session has this copy, or the size in a session's record is too large for the copy"
            )
        path, written = self._directory / name, 0
        with path.open("xb") as target:
            while written < size:
                part = self._read_line()
                if part.keys() != {"kind", "data"} or part["kind"] != "part" or not part["data"]:
                    raise ValueError("a part of a copied session is missing")
                try:
                    block = base64.b64decode(part["data"], validate=True)
                except binascii.Error as error:
                    raise ValueError("a part of a copied session is not valid base64") from error
                written += len(block)
                if written > size:
                    raise ValueError("the parts of a copy have more bytes than its header says")
                target.write(block)
        self._check_session_copy(path, sizes)
        self._kept_sizes[name] = size

    def _check_session_copy(self, path: Path, sizes: set[int]) -> None:
        """Raise `ValueError` if the copy of a session is damaged.

        The copy must match the SHA-256 in its name, and its size must be the one in its sessions'
        records.
        """
        count, limit = 0, max(sizes)
        try:
            for block in iterate_kept_session_file_blocks(str(path)):
                count += len(block)
                if count > limit:
                    break
        except WorkspaceError as error:
            raise ValueError(error.message) from error
        if sizes != {count}:
            raise ValueError("the size of a kept session differs from the size in its record")


def _is_identifier_or_none(value: object) -> bool:
    return value is None or is_record_identifier(value)


def _parse_exported_workspace_header(shape: dict[str, Any]) -> ExportedWorkspaceData:
    """Parse the header of a workspace. Raises `ValueError`."""

    def is_absolute_path(value: object) -> bool:
        return is_record_identifier(value) and str(value).startswith("/")

    def is_list_of_worktrees(value: object) -> bool:
        return isinstance(value, list) and all(map(is_worktree, value))

    def is_worktree(value: object) -> bool:
        if not isinstance(value, list) or len(value) != 2 or not all(map(is_absolute_path, value)):
            return False
        # Conversations below `path` are assigned to the workspace, so no arbitrary directory is accepted.
        top, path = value
        is_inside = f"{path}/".startswith(f"{top}/")
        return is_inside and top != "/" and [*map(os.path.normpath, value)] == value

    checks: dict[str, Callable[[object], bool]] = {
        "root": is_absolute_path,
        "jp_id": _is_identifier_or_none,
        "repository": _is_identifier_or_none,
        "directory": lambda value: value == "" or is_record_identifier(value),
        "worktrees": is_list_of_worktrees,
    }
    check_user_record_fields(shape, checks, "workspace")
    return ExportedWorkspaceData(**shape)
