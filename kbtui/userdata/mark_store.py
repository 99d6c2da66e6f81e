"""`MarkStore`: the marks that a user has set on turns and passages, in the workspace's user data."""

from __future__ import annotations

import json
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from kbtui.conversations.turn_marks import (
    MARK_STATES,
    Mark,
    MarkPlace,
    find_mark_places,
    make_mark,
    make_mark_ref,
)
from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.refs import make_conversation_ref, parse_conversation_ref
from kbtui.text import replace_surrogates
from kbtui.userdata.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kbtui.conversations.models import Conversation
    from kbtui.conversations.turn_marks import MarkState
    from kbtui.refs import Ref
    from kbtui.workspace import Workspace

_TABLES = """
CREATE TABLE IF NOT EXISTS marks (
  id TEXT PRIMARY KEY, conversation TEXT NOT NULL, changed REAL NOT NULL, mark TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS marks_of_conversation ON marks (conversation)
"""


MarkProblem = Literal["", "conversation", "unreadable", "text"]


class PlacedMark(NamedTuple):
    """A mark, and where its text is now.

    If the text cannot be found, `place` is None, and `problem` is the reason: "conversation" if the
    conversation is gone, "unreadable" if it or a part of it cannot be read, "text" if no turn has this
    text any more.
    """

    mark: Mark
    place: MarkPlace | None
    problem: MarkProblem = ""

    @property
    def ref(self) -> str:
        """The current reference of the marked turn or call, or the old one if its text is gone."""
        return make_mark_ref(self.mark, self.place)

    def as_json(self) -> dict[str, object]:
        """Return the mark as documented JSON. `matches` is false if its text cannot be found."""
        return {"ref": self.ref, "matches": self.place is not None, **self.mark.as_json()}


class MarkStore:
    """The marks of one workspace. Thread-safe."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._file = SqliteFile(
            workspace.data_dir / "marks.sqlite",
            _TABLES,
            hint="check the file's permissions and the free space on its disk",
            sync=True,
            damage_hint="move it and its -wal and -shm files away; `kbtui mark import` adds the marks of an earlier export",
        )

    def check_marks(self) -> None:
        """Raise `WorkspaceError` if the marks cannot be read."""
        self._file.check_database_file()
        self.list_marks()

    def list_marks(self, conversation: str | None = None) -> list[Mark]:
        """Return all marks, or those of one conversation, newest first."""
        condition = "" if conversation is None else " WHERE conversation = ?"
        values = () if conversation is None else (conversation,)
        rows = self._file.select_rows(f"SELECT mark FROM marks{condition}", *values)
        try:
            marks = [Mark.from_json(json.loads(text)) for (text,) in rows]
        except (ValueError, TypeError, RecursionError) as error:
            raise self._file.make_damage_error(str(error)) from error
        return sorted(marks, key=lambda mark: (-mark.created, mark.id))

    def mark_turn(
        self,
        ref: Ref,
        state: MarkState,
        *,
        note: str = "",
        superseded_by: str | None = None,
        passage: str | None = None,
    ) -> Mark:
        """Mark a turn, a call or a passage of one, and replace an earlier mark of the same place.

        `superseded_by` is a reference, and is kept only with the state `superseded`. Raises `UsageError`
        or `NothingFound` if there is nothing to mark.
        """
        if state not in MARK_STATES:
            hint = f"the states are {', '.join(MARK_STATES)}"
            raise UsageError(f"unknown state {state!r}", where="state", hint=hint)
        conversation = self._load_conversation(ref.conversation or "")
        mark = make_mark(
            conversation,
            ref,
            state,
            note=replace_surrogates(note.strip()),
            superseded_by=superseded_by,
            passage=passage,
            now=time.time(),
        )
        known = self.list_marks(conversation.info.id)
        places = find_mark_places(conversation, known)
        place = MarkPlace(mark.turn, mark.call)
        for earlier in known:
            is_same = places.get(earlier.id) == place and earlier.passage == mark.passage
            if is_same or earlier.id == mark.id:
                # The anchor is made anew, so that it has the event's id if JP has written one since.
                mark = mark._replace(id=earlier.id, created=earlier.created)
        self._save_marks([mark])
        return mark

    def _save_marks(self, marks: Iterable[Mark]) -> int:
        """Save each mark that is new or newer than its stored version. Return how many were saved."""
        saved = 0
        with self._file.open_write_transaction() as db:
            for mark in marks:
                text = json.dumps(mark.as_json())
                saved += db.execute(
                    "INSERT INTO marks VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET changed = "
                    "excluded.changed, mark = excluded.mark WHERE excluded.changed > changed",
                    (mark.id, mark.conversation, mark.changed, text),
                ).rowcount
        return saved

    def import_marks(self, marks: Iterable[Mark]) -> int:
        """Add marks that were exported elsewhere. Of two marks with the same id, the one that was changed last is kept.

        Returns how many marks were new or newer.
        """
        return self._save_marks(marks)

    def restore_mark(self, mark: Mark) -> None:
        """Save a removed mark again."""
        self._save_marks([mark])

    def remove_mark(self, mark_id: str) -> bool:
        """Remove a mark by its id; return False if there is none."""
        with self._file.open_write_transaction() as db:
            return db.execute("DELETE FROM marks WHERE id = ?", (mark_id,)).rowcount > 0

    def find_marks(self, text: str) -> list[PlacedMark]:
        """Return the mark with this id, or the marks on the turn or call of a reference.

        A mark whose text cannot be found is on no turn, so only its id selects it. Raises `NothingFound`
        if there is no mark.
        """
        placed = self.list_placed_marks()
        found = [one for one in placed if one.mark.id == text]
        if not found:
            from kbtui.conversations.conversation_repository import expand_conversation_reference

            try:
                ref = parse_conversation_ref(text, self._workspace.id)
                ref = expand_conversation_reference(self._workspace, ref)
            except UsageError:
                ref = None
            same = [one for one in placed if ref is not None and one.ref == str(ref)]
            found = [one for one in same if one.place]
            if same and not found:
                message = f"no mark on {text} has its text any more"
                hint = "`kbtui mark ls --unmatched` prints the ids that select such marks"
                raise NothingFound(message, hint=hint)
        if not found:
            raise NothingFound(f"there is no mark {text}", hint="`kbtui mark ls` lists the marks")
        return found

    def list_placed_marks(self, conversation: str | None = None) -> list[PlacedMark]:
        """Return all marks, or those of one conversation, with the places of their texts, newest first."""
        marks = self.list_marks(conversation)
        places: dict[str, MarkPlace] = {}
        problems: dict[str, MarkProblem] = {}
        for name in dict.fromkeys(mark.conversation for mark in marks):
            try:
                own = tuple(one for one in marks if one.conversation == name)
                found, is_whole = self._find_places(own)
                places |= found
                problems[name] = "text" if is_whole else "unreadable"
            except KbtuiError:
                problems[name] = "conversation"
        return [
            PlacedMark(mark, places[mark.id])
            if mark.id in places
            else PlacedMark(mark, None, problems[mark.conversation])
            for mark in marks
        ]

    def list_marked_turns(self) -> list[str]:
        """Return `STATE REFERENCE` for each marked turn whose text exists, as in `SearchRequest.marked`."""
        return [
            f"{one.mark.state} {make_conversation_ref(one.mark.conversation, one.place.turn)}"
            for one in self.list_placed_marks()
            if one.place
        ]

    def map_marks_by_turn(self, conversation: Conversation) -> dict[int, list[Mark]]:
        """Return the marks on each turn of a loaded conversation, oldest first, by the turn's number.

        If the marks cannot be read, the result is empty, so that the conversation can be shown.
        """
        try:
            marks = self.list_marks(conversation.info.id)
        except KbtuiError:
            return {}
        places = find_mark_places(conversation, marks)
        return _group_marks_by_turn(marks, places)

    def map_marks_of_conversations(
        self, conversations: Iterable[str]
    ) -> dict[str, dict[int, list[Mark]]]:
        """Return the marks on the turns of some conversations, by conversation and turn.

        Conversations without marks are left out, and so are those that cannot be read. If the marks
        cannot be read, the result is empty.
        """
        wanted, found = set(conversations), {}
        by_conversation: dict[str, list[Mark]] = {}
        try:
            marks = self.list_marks() if wanted else []
        except KbtuiError:
            return {}
        for mark in marks:
            if mark.conversation in wanted:
                by_conversation.setdefault(mark.conversation, []).append(mark)
        for name, own in by_conversation.items():
            try:
                found[name] = _group_marks_by_turn(own, self._find_places(tuple(own))[0])
            except KbtuiError:
                continue
        return found

    def _find_places(self, marks: tuple[Mark, ...]) -> tuple[Mapping[str, MarkPlace], bool]:
        """Return the places of the marks of one conversation, by the mark's id.

        The second value is whether the whole conversation can be read. The result is kept until the marks or the conversation's files change. Raises `KbtuiError` if the
        conversation cannot be read.
        """
        from kbtui.conversations.conversation_repository import find_conversation

        info = find_conversation(self._workspace, marks[0].conversation)
        return _find_places_in_files(self._workspace, info.signature, marks)

    def _load_conversation(self, conversation: str) -> Conversation:
        from kbtui.conversations.conversation_repository import find_conversation, load_conversation

        return load_conversation(find_conversation(self._workspace, conversation))


@lru_cache(maxsize=32)
def _find_places_in_files(
    workspace: Workspace, signature: str, marks: tuple[Mark, ...]
) -> tuple[Mapping[str, MarkPlace], bool]:
    from kbtui.conversations.conversation_repository import find_conversation, load_conversation

    info = find_conversation(workspace, marks[0].conversation)
    conversation = load_conversation(info)
    return find_mark_places(conversation, marks), conversation.describe_problems() is None


def _group_marks_by_turn(
    marks: Iterable[Mark], places: Mapping[str, MarkPlace]
) -> dict[int, list[Mark]]:
    """Return the marks on each turn, oldest first, with their current turns and calls."""
    found: dict[int, list[Mark]] = {}
    for mark in sorted(marks, key=lambda one: one.created):
        if place := places.get(mark.id):
            moved = mark._replace(turn=place.turn, call=place.call)
            found.setdefault(place.turn, []).append(moved)
    return found
