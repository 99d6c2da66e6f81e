"""Parses records of the user's data, such as bookmarks and marks, and merges two sets of records.

Of two versions of a record, the later one wins. If both have the same time, a removal wins. If
neither is a removal, the version whose JSON sorts last wins. Therefore the order of merges does not
matter, repeated merges change nothing, and all machines end up with the same version.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal

from kbtui.conversations.turn_decision_marks import LATEST_TIME, Mark, parse_exported_mark
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import sanitize_to_one_line
from kbtui.userdata.query_log import normalize_query
from kbtui.userdata.turn_mark_store import MarkStore
from kbtui.userdata.user_data_store import Bookmark, SavedSearch, UserData

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kbtui.userdata.user_data_sqlite_file import UserDataSqliteFile
    from kbtui.workspace import Workspace

RecordKind = Literal["bookmark", "mark", "saved_search", "approval", "session", "search"]
MAX_ID_CHARACTERS = 4096
"""The maximum length of the ids in a record, such as a reference or a name, in characters."""
_MAX_DEPTH = 20
_SCREEN_NUMBERS = 10_000_000
"""The largest number that the state of a front end may contain. It exceeds every position and width on a screen."""


class SourceApproval(NamedTuple):
    """The user's approval of a source.

    `hash` is the hash of the source's declaration. `at` is in Unix seconds.
    """

    hash: str
    source: str
    at: float


class SavedFrontEndState(NamedTuple):
    """The state that a front end saved under a name. `at` is in Unix seconds."""

    name: str
    state: dict[str, Any]
    at: float


class LoggedSearch(NamedTuple):
    """A search in the query log. The fields are those of `QueryLog.log_search`."""

    at: float
    query: str
    mode: str
    filters: str
    result_count: int
    is_gap: bool
    origin: str
    caller: str | None
    milliseconds: float | None
    is_meaning_only: bool


RecordValue = Bookmark | Mark | SavedSearch | SourceApproval | SavedFrontEndState | LoggedSearch


class UserDataRecord(NamedTuple):
    """A record of one workspace, or the removal of a record.

    `at` is the time of the last change or of the removal, in Unix seconds. `value` is None for a
    removal.
    """

    kind: RecordKind
    id: str
    at: float
    value: RecordValue | None

    @property
    def key(self) -> tuple[RecordKind, str]:
        """The kind and the id, which together identify the record in its workspace."""
        return self.kind, self.id

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON object with the documented keys.

        `parse_user_record` turns the object back into the record.
        """
        if self.value is None:
            return {"kind": self.kind, "id": self.id, "removed_at": self.at}
        shape = self.value.as_json() if isinstance(self.value, Mark) else self.value._asdict()
        return {"kind": self.kind, **shape}


def make_user_record(value: RecordValue) -> UserDataRecord:
    """Return the record for a value. The kind, the id and the time come from the value."""
    if isinstance(value, Bookmark):
        return UserDataRecord("bookmark", value.ref, value.changed, value)
    if isinstance(value, Mark):
        return UserDataRecord("mark", value.id, value.changed, value)
    if isinstance(value, SavedSearch):
        return UserDataRecord("saved_search", value.name, value.created, value)
    if isinstance(value, SourceApproval):
        return UserDataRecord("approval", value.hash, value.at, value)
    if isinstance(value, SavedFrontEndState):
        return UserDataRecord("session", value.name, value.at, value)
    # A search is never changed, so all its values identify it. SQLite returns its numbers as `float`s without a negative zero.
    duration = None if value.milliseconds is None else float(value.milliseconds) + 0.0
    value = value._replace(at=float(value.at) + 0.0, milliseconds=duration)
    return UserDataRecord("search", json.dumps(value), value.at, value)


def merge_user_records(
    known: Iterable[UserDataRecord], added: Iterable[UserDataRecord]
) -> tuple[list[UserDataRecord], list[UserDataRecord]]:
    """Merge the records `added` into the records `known`.

    Returns the records that are new or changed, and the known records that they replace.
    """
    current = {one.key: one for one in known}
    changed: dict[tuple[RecordKind, str], UserDataRecord] = {}
    for one in added:
        earlier = changed.get(one.key) or current.get(one.key)
        if earlier is None or _make_record_recency_key(one) > _make_record_recency_key(earlier):
            changed[one.key] = one
    return list(changed.values()), [current[key] for key in changed if key in current]


def _make_record_recency_key(record: UserDataRecord) -> tuple[float, bool, str]:
    text = json.dumps(record.as_json(), sort_keys=True) if record.value is not None else ""
    return record.at, record.value is None, text


def is_record_identifier(value: object) -> bool:
    """Return whether a value can be the id of a record.

    An id is a single line of text that a terminal shows unchanged.
    """
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_ID_CHARACTERS
        and sanitize_to_one_line(value, "strip") == value
    )


def is_unix_time(value: object) -> bool:
    """Return whether a value is a time in Unix seconds, before the year 10000."""
    # Python accepts NaN in JSON, but NaN is in no range.
    return type(value) in (int, float) and 0 <= value <= LATEST_TIME  # type: ignore[operator]


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-zA-Z]{1,128}", value) is not None


def _is_non_negative_integer(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _is_front_end_state(value: object) -> bool:
    return isinstance(value, dict) and _is_json_value_within_limits(value, _MAX_DEPTH)


def _is_json_value_within_limits(value: object, depth: int) -> bool:
    """Return whether a front end can use a JSON value from a file.

    Its numbers must not be too large, and at most `depth` levels may be nested. The number under a
    key `at` can be larger, because it is a time in Unix seconds.
    """
    if isinstance(value, dict):
        return depth > 0 and all(
            _is_json_value_within_limits(one, depth - 1) or (key == "at" and is_unix_time(one))
            for key, one in value.items()
        )
    if isinstance(value, list):
        return depth > 0 and all(_is_json_value_within_limits(one, depth - 1) for one in value)
    return not isinstance(value, int | float) or abs(value) <= _SCREEN_NUMBERS


def _make_membership_check(*values: str) -> Callable[[object], bool]:
    return lambda value: value in values


_is_mode = _make_membership_check("hybrid", "lexical", "semantic")

_CHECKS: Mapping[str, tuple[type, Mapping[str, Callable[[object], bool]]]] = {
    "bookmark": (
        Bookmark,
        {"ref": is_record_identifier, "title": _is_string, "note": _is_string, "created": is_unix_time, "changed": is_unix_time},
    ),
    "saved_search": (
        SavedSearch,
        {
            "name": is_record_identifier, "query": _is_string, "mode": _is_mode, "archived": _is_boolean,
            "hidden": _is_boolean, "all_projects": _is_boolean, "created": is_unix_time,
        },
    ),
    "approval": (SourceApproval, {"hash": _is_hash, "source": is_record_identifier, "at": is_unix_time}),
    "session": (SavedFrontEndState, {"name": is_record_identifier, "state": _is_front_end_state, "at": is_unix_time}),
    "search": (
        LoggedSearch,
        {
            "at": is_unix_time, "query": _is_string, "mode": is_record_identifier, "filters": _is_string,
            "result_count": _is_non_negative_integer, "is_gap": _is_boolean,
            "origin": _make_membership_check("sdk", "dashboard", "cli", "mcp"),
            "caller": lambda value: value is None or _is_string(value),
            "milliseconds": lambda value: value is None or type(value) in (int, float),
            "is_meaning_only": _is_boolean,
        },
    ),
}  # fmt: skip
RECORD_KINDS = ("bookmark", "mark", "saved_search", "approval", "session", "search")
REMOVABLE_KINDS = ("bookmark", "mark", "saved_search", "approval")
"""The kinds of records whose removal is also stored as a record."""


def parse_user_record(shape: Mapping[str, Any]) -> UserDataRecord:
    """Parse a result of `UserDataRecord.as_json`, which anyone may have edited since.

    Raises `ValueError` with the reason.
    """
    kind, values = shape["kind"], {name: one for name, one in shape.items() if name != "kind"}
    if "removed_at" in values:
        if kind not in REMOVABLE_KINDS or values.keys() != {"id", "removed_at"}:
            raise ValueError(f"this is not the removal of a {kind}")
        check_user_record_fields(
            values, {"id": is_record_identifier, "removed_at": is_unix_time}, f"removal of a {kind}"
        )
        return UserDataRecord(kind, values["id"], float(values["removed_at"]), None)
    if kind == "mark":
        return make_user_record(parse_exported_mark(values))
    made, checks = _CHECKS[kind]
    check_user_record_fields(values, checks, kind)
    value: RecordValue = made(**values)
    return make_user_record(value)


def check_user_record_fields(
    values: Mapping[str, Any], checks: Mapping[str, Callable[[object], bool]], noun: str
) -> None:
    """Raise `ValueError` if `values` and `checks` have different keys, or a value fails its check.

    `noun` describes the record in the error.
    """
    if values.keys() != checks.keys():
        missing = sorted(checks.keys() - values.keys())
        problem = f"lacks the key {missing[0]!r}" if missing else "has an unknown key"
        raise ValueError(f"the {noun} {problem}")
    for name, check in checks.items():
        if not check(values[name]):
            raise ValueError(f"the {noun} has an invalid {name!r}")


class UserDataRecordFile(NamedTuple):
    """An SQLite file that contains a workspace's records, and the kinds of these records.

    The function `read` reads the records from an open connection.
    """

    file: UserDataSqliteFile
    kinds: Sequence[RecordKind]
    read: Callable[[sqlite3.Connection], Iterator[UserDataRecord]]

    def read_user_records(self) -> list[UserDataRecord]:
        """Return all records in the file, without a transaction. Raises `WorkspaceError`."""
        with self.file.open_for_reading() as db:
            return [] if db is None else self.read_user_records_from_connection(db)

    def read_user_records_from_connection(self, db: sqlite3.Connection) -> list[UserDataRecord]:
        """Read all records in the file over the open connection `db`. Raises `WorkspaceError`."""
        try:
            with self.file.convert_sqlite_errors():
                return list(self.read(db))
        except (ValueError, TypeError, RecursionError) as error:
            raise self.file.make_damage_error(str(error)) from error


def list_user_data_record_files(workspace: Workspace) -> list[UserDataRecordFile]:
    """Return the files for a workspace's records. Some may not exist yet."""
    data = UserData(workspace)
    return [
        UserDataRecordFile(
            data.file, ("bookmark", "saved_search", "approval", "session"), _read_user_data_records
        ),
        UserDataRecordFile(MarkStore(workspace).file, ("mark",), _read_mark_records),
        UserDataRecordFile(data.query_log.file, ("search",), _read_search_records),
    ]


def _read_user_data_records(db: sqlite3.Connection) -> Iterator[UserDataRecord]:
    for row in db.execute("SELECT ref, title, note, created, changed FROM bookmarks"):
        yield make_user_record(Bookmark(*row))
    columns = "name, query, mode, archived, hidden, all_projects, created"
    for row in db.execute(f"SELECT {columns} FROM saved_searches"):
        name, query, mode, archived, hidden, all_projects, created = row
        flags = bool(archived), bool(hidden), bool(all_projects)
        yield make_user_record(SavedSearch(name, query, mode, *flags, created=created))
    for row in db.execute("SELECT hash, source, at FROM approvals"):
        yield make_user_record(SourceApproval(*row))
    for name, state, at in db.execute("SELECT name, state, at FROM sessions"):
        yield make_user_record(SavedFrontEndState(name, json.loads(state), at))
    yield from _read_removals_of_user_records(db)


def _read_mark_records(db: sqlite3.Connection) -> Iterator[UserDataRecord]:
    for (text,) in db.execute("SELECT mark FROM marks"):
        yield make_user_record(Mark.from_json(json.loads(text)))
    yield from _read_removals_of_user_records(db)


def _read_removals_of_user_records(db: sqlite3.Connection) -> Iterator[UserDataRecord]:
    for kind, name, at in db.execute("SELECT kind, id, at FROM removals"):
        yield UserDataRecord(kind, name, at, None)


def _read_search_records(db: sqlite3.Connection) -> Iterator[UserDataRecord]:
    columns = (
        "at, query, mode, filters, result_count, is_gap, origin, caller, milliseconds, "
        "is_meaning_only"
    )
    for row in db.execute(f"SELECT {columns} FROM searches"):
        found = LoggedSearch._make(row)
        found = found._replace(
            is_gap=bool(found.is_gap), is_meaning_only=bool(found.is_meaning_only)
        )
        yield make_user_record(found)


def write_user_record(db: sqlite3.Connection, record: UserDataRecord) -> None:
    """Write a record into the file for its kind, replacing an earlier version of the record."""
    kind, name, at, value = record
    tables = {
        "bookmark": ("bookmarks", "ref"),
        "saved_search": ("saved_searches", "name"),
        "approval": ("approvals", "hash"),
        "mark": ("marks", "id"),
    }
    if kind in tables:
        table, column = tables[kind]
        db.execute("DELETE FROM removals WHERE kind = ? AND id = ?", (kind, name))
        if value is None:
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", (name,))
            db.execute("INSERT INTO removals VALUES (?, ?, ?)", (kind, name, at))
    if isinstance(value, Bookmark):
        _replace_row(db, "bookmarks", value)
    elif isinstance(value, SavedSearch):
        _replace_row(db, "saved_searches", value)
    elif isinstance(value, SourceApproval):
        _replace_row(db, "approvals", value)
    elif isinstance(value, SavedFrontEndState):
        _replace_row(db, "sessions", (value.name, json.dumps(value.state), value.at))
    elif isinstance(value, Mark):
        text = json.dumps(value.as_json())
        _replace_row(db, "marks", (value.id, value.conversation, value.changed, text))
    elif isinstance(value, LoggedSearch):
        row = value._asdict() | {"key": normalize_query(value.query)}
        places = ", ".join("?" * len(row))
        db.execute(f"INSERT INTO searches ({', '.join(row)}) VALUES ({places})", [*row.values()])


def _replace_row(db: sqlite3.Connection, table: str, row: Sequence[object]) -> None:
    db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
