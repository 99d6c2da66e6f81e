"""`MarkStore`: stores the marks that a user has set on turns and passages of a workspace."""

from __future__ import annotations

import json
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from kbtui.conversations.turn_decision_marks import (
    MARK_STATES,
    ConversationMarks,
    Mark,
    MarkedTurnOrCall,
    PlacedMark,
    make_identity_of_turn_or_call,
    make_mark_on_turn_call_or_passage,
    map_marks_to_current_places,
    map_marks_to_current_places_of_superseding_texts,
)
from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.notices import Notice
from kbtui.references import make_conversation_ref, parse_conversation_ref, parse_ref
from kbtui.terminal_text import replace_surrogates
from kbtui.userdata import MARKS_FILE_NAME
from kbtui.userdata.user_data_sqlite_file import (
    REMOVALS_TABLE,
    UserDataSqliteFile,
    choose_change_time_of_user_record,
    remove_user_record_and_store_removal_time,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from kbtui.conversations.conversation_data_types import Conversation
    from kbtui.conversations.turn_decision_marks import (
        MarkedEventIdentity,
        MarkProblem,
        MarkState,
        TargetProblem,
    )
    from kbtui.references import Ref
    from kbtui.workspace import Workspace

_TABLES = f"""
CREATE TABLE IF NOT EXISTS marks (
  id TEXT PRIMARY KEY, conversation TEXT NOT NULL, changed REAL NOT NULL, mark TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS marks_of_conversation ON marks (conversation);
{REMOVALS_TABLE}"""
_UPGRADES = (REMOVALS_TABLE,)
_CLOCK_STEP = 1e-6
"""Times that differ by at most this many seconds count as equal, because an export rounds to microseconds."""


class MarkStore:
    """The marks of one workspace. Thread-safe."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.file = UserDataSqliteFile(
            workspace.user_data_directory / MARKS_FILE_NAME,
            _TABLES,
            hint="check the file's permissions and the free space on its disk",
            sync=True,
            damage_hint="move it and its -wal and -shm files away; `kbtui mark import` adds the marks of an earlier export",
            upgrades=_UPGRADES,
        )

    def check_marks_are_readable(self) -> None:
        """Raise `WorkspaceError` if the marks cannot be read."""
        self.file.check_database_file()
        self.list_marks()

    def list_marks(self, conversation: str | None = None) -> list[Mark]:
        """Return all marks, or only the marks of one conversation, newest first."""
        condition = "" if conversation is None else " WHERE conversation = ?"
        values = () if conversation is None else (conversation,)
        rows = self.file.select_rows(f"SELECT mark FROM marks{condition}", *values)
        try:
            marks = [Mark.from_json(json.loads(text)) for (text,) in rows]
        except (ValueError, TypeError, RecursionError) as error:
            raise self.file.make_damage_error(str(error)) from error
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
        """Mark a turn, a call or a passage. An earlier mark at the same place is replaced.

        The reference `superseded_by` is stored only if the state is `superseded`. Raises
        `UsageError` or `NothingFound` if there is nothing to mark.
        """
        if state not in MARK_STATES:
            hint = f"the states are {', '.join(MARK_STATES)}"
            raise UsageError(f"unknown state {state!r}", where="state", hint=hint)
        from kbtui.conversations.conversation_repository import check_turn_and_call_exist

        conversation = self._find_and_load_conversation(ref.conversation or "")
        check_turn_and_call_exist(conversation, ref)
        mark = make_mark_on_turn_call_or_passage(
            conversation,
            ref,
            state,
            note=replace_surrogates(note.strip()),
            superseded_by=superseded_by,
            target_anchor=self._make_anchor_of_superseding_turn_or_call(superseded_by),
            passage=passage,
            now=time.time(),
        )
        known = self.list_marks(conversation.info.id)
        places = map_marks_to_current_places(conversation, known)
        place = MarkedTurnOrCall(mark.turn, mark.call)
        for earlier in known:
            known_place = places.get(earlier.id)
            is_same = known_place is not None and known_place[:2] == place[:2]
            if (is_same and earlier.passage == mark.passage) or earlier.id == mark.id:
                # Make a new anchor, so that it has the event's id if JP has written one since.
                mark = mark._replace(id=earlier.id, created=earlier.created)
        return self._save_changed_mark(mark)

    def _save_changed_mark(self, mark: Mark) -> Mark:
        """Save a mark that the user has just set or changed.

        Returns the mark with the time of the change.
        """
        with self.file.open_write_transaction() as db:
            select = "SELECT changed FROM marks WHERE id = ?"
            earlier = db.execute(select, (mark.id,)).fetchone()
            mark = mark._replace(
                changed=choose_change_time_of_user_record(db, "mark", mark.id, earlier)
            )
            _write_mark(db, mark)
        return mark

    def _make_anchor_of_superseding_turn_or_call(
        self, superseded_by: str | None
    ) -> MarkedEventIdentity | None:
        """Return the anchor of the turn or call that the reference `superseded_by` refers to.

        Returns None if there is no such turn or call.
        """
        try:
            target = parse_conversation_ref(superseded_by or "")
            if target.turn is None:
                return None
            return make_identity_of_turn_or_call(
                self._find_and_load_conversation(target.conversation or ""), target
            )
        except KbtuiError:
            return None

    def import_marks(self, marks: Iterable[Mark]) -> int:
        """Add the marks from an export, and return how many marks were added or replaced.

        If a mark with the same id is already stored, the version that was changed last is kept. If
        a mark was removed here after the export was made, importing adds it again.
        """
        saved = 0
        with self.file.open_write_transaction() as db:
            for mark in marks:
                select = "SELECT changed FROM marks WHERE id = ?"
                earlier = db.execute(select, (mark.id,)).fetchone()
                if earlier is None or earlier[0] < mark.changed - _CLOCK_STEP:
                    db.execute("DELETE FROM removals WHERE kind = 'mark' AND id = ?", (mark.id,))
                    _write_mark(db, mark)
                    saved += 1
        return saved

    def restore_mark(self, mark: Mark) -> None:
        """Save a removed mark again. Its change time becomes the current time."""
        self._save_changed_mark(mark)

    def remove_mark(self, mark_id: str) -> bool:
        """Remove a mark by its id; return False if no mark has this id."""
        with self.file.open_write_transaction() as db:
            return remove_user_record_and_store_removal_time(
                db, "mark", "marks", "id", "changed", mark_id
            )

    def find_marks_by_id_or_reference(self, text: str) -> list[PlacedMark]:
        """Return the mark with the id `text`, or the marks on the turn or call that `text` refers to.

        If the text of a mark no longer exists, the mark is found only by its id. Raises
        `NothingFound` if no mark is found.
        """
        placed = self.list_placed_marks()
        found = [one for one in placed if one.mark.id == text]
        if not found:
            from kbtui.conversations.conversation_repository import (
                parse_entered_conversation_reference,
            )

            try:
                ref = parse_entered_conversation_reference(self._workspace, text)
            except UsageError:
                ref = None
            same = [one for one in placed if ref is not None and one.ref == str(ref)]
            found = [one for one in same if one.place]
            if same and not found:
                message = f"the marked texts of {text} no longer exist"
                hint = "`kbtui mark ls --unmatched` prints the ids of these marks"
                raise NothingFound(message, hint=hint)
        if not found:
            raise NothingFound(f"there is no mark {text}", hint="`kbtui mark ls` lists the marks")
        return found

    def list_placed_marks(self, conversation: str | None = None) -> list[PlacedMark]:
        """Return all marks, or only those of one conversation, newest first.

        Each mark comes with the place of its text.
        """
        marks = self.list_marks(conversation)
        places: dict[str, MarkedTurnOrCall] = {}
        problems: dict[str, MarkProblem] = {}
        for name in dict.fromkeys(mark.conversation for mark in marks):
            try:
                own = tuple(one for one in marks if one.conversation == name)
                found, is_whole = self._find_mark_places(name, own)
                places |= found
                problems[name] = "text" if is_whole else "unreadable"
            except KbtuiError:
                problems[name] = "conversation"
        return [
            PlacedMark(mark, place, "" if place else problems[mark.conversation], target_problem)
            for mark, target_problem in self._resolve_superseding_targets(marks)
            for place in (places.get(mark.id),)
        ]

    def _resolve_superseding_targets(
        self, marks: Sequence[Mark]
    ) -> list[tuple[Mark, TargetProblem]]:
        """Return each mark with the current reference of its target, and what is wrong with the target.

        The target is the text that supersedes the marked text. If nothing is wrong with it, the
        second value is "".
        """
        by_conversation: dict[str, list[Mark]] = {}
        for mark in marks:
            if mark.target_anchor and mark.superseded_by:
                name = parse_conversation_ref(mark.superseded_by).conversation or ""
                by_conversation.setdefault(name, []).append(mark)
        found: dict[str, tuple[Mark, TargetProblem]] = {}
        for name, own in by_conversation.items():
            try:
                places: Mapping[str, MarkedTurnOrCall] = self._find_mark_places(
                    name, tuple(own), True
                )[0]
            except KbtuiError:
                places = {}
            for mark in own:
                if place := places.get(mark.id):
                    ref = str(make_conversation_ref(name, place.turn, place.call))
                    problem: TargetProblem = "changed" if place.is_text_changed else ""
                    found[mark.id] = mark._replace(superseded_by=ref), problem
                else:
                    found[mark.id] = mark, "gone"
        absent = self._find_superseding_references_that_do_not_exist(
            mark.superseded_by for mark in marks if mark.superseded_by and not mark.target_anchor
        )
        return [
            found.get(mark.id, (mark, "gone" if mark.superseded_by in absent else ""))
            for mark in marks
        ]

    def _find_superseding_references_that_do_not_exist(self, refs: Iterable[str]) -> set[str]:
        """Return the references whose topic, subject or conversation does not exist."""
        from kbtui.conversations.conversation_repository import find_conversation
        from kbtui.knowledge import load_knowledge

        absent = set()
        for text in set(refs):
            try:
                ref = parse_ref(text)
                if ref.kind == "conversation":
                    find_conversation(self._workspace, ref.conversation or "")
                elif ref.kind in ("topic", "subject"):
                    topics = load_knowledge(self._workspace)
                    topic = topics.resolve_topic(ref.topic or "")
                    subject = topics.find_subject(topic.id, ref.slug) if ref.slug else None
                    if ref.slug and (subject is None or subject.disabled):
                        absent.add(text)
            except (NothingFound, UsageError):
                absent.add(text)
            except KbtuiError:
                continue  # The configuration of the topics is invalid, so this cannot be checked.
        return absent

    def list_states_of_marked_turns(self) -> list[str]:
        """Return `STATE REFERENCE` for each marked turn whose text still exists.

        `SearchRequest.marked` has this form.
        """
        return [
            f"{one.mark.state} {make_conversation_ref(one.mark.conversation, one.place.turn)}"
            for one in self.list_placed_marks()
            if one.place
        ]

    def map_marks_by_turn(self, conversation: Conversation) -> ConversationMarks:
        """Return the marks on each turn of a loaded conversation.

        If the marks cannot be read, the result contains a notice, and no error is raised. The
        conversation can then still be shown.
        """
        try:
            marks = self.list_marks(conversation.info.id)
        except KbtuiError as error:
            return ConversationMarks(notice=_make_mark_read_error_notice(error))
        return ConversationMarks(
            self._group_marks_by_turn(marks, map_marks_to_current_places(conversation, marks))
        )

    def map_marks_of_conversations(
        self, conversations: Iterable[str]
    ) -> tuple[dict[tuple[str, int], list[PlacedMark]], Notice | None]:
        """Map each conversation and turn number to the marks on the turn.

        The second returned value is a notice or None. Conversations that have no marks or cannot be
        read are left out. If the marks cannot be read, the mapping is empty, and the notice says
        so.
        """
        wanted = set(conversations)
        found: dict[tuple[str, int], list[PlacedMark]] = {}
        by_conversation: dict[str, list[Mark]] = {}
        try:
            marks = self.list_marks()
        except KbtuiError as error:
            return {}, _make_mark_read_error_notice(error)
        for mark in marks:
            if mark.conversation in wanted:
                by_conversation.setdefault(mark.conversation, []).append(mark)
        for name, own in by_conversation.items():
            try:
                by_turn = self._group_marks_by_turn(
                    own, self._find_mark_places(name, tuple(own))[0]
                )
            except KbtuiError:
                continue
            found |= {(name, turn): marks for turn, marks in by_turn.items()}
        return found, None

    def _group_marks_by_turn(
        self, marks: Iterable[Mark], places: Mapping[str, MarkedTurnOrCall]
    ) -> dict[int, list[PlacedMark]]:
        """Map the current number of each marked turn to the marks on this turn, oldest first."""
        placed = [one for one in marks if one.id in places]
        found: dict[int, list[PlacedMark]] = {}
        for mark, problem in self._resolve_superseding_targets(
            sorted(placed, key=lambda one: one.created)
        ):
            place = places[mark.id]
            found.setdefault(place.turn, []).append(PlacedMark(mark, place, "", problem))
        return found

    def _find_mark_places(
        self, name: str, marks: tuple[Mark, ...], of_targets: bool = False
    ) -> tuple[Mapping[str, MarkedTurnOrCall], bool]:
        """Map the ids of marks to the places of the marked texts in one conversation.

        If `of_targets` is true, the places are those of the marks' targets. The second returned
        value says whether the whole conversation can be read. The result is cached until the marks
        or the conversation's files change. Raises `KbtuiError` if the conversation cannot be read.
        """
        from kbtui.conversations.conversation_repository import find_conversation

        info = find_conversation(self._workspace, name)
        return _load_conversation_and_find_mark_places(
            self._workspace, name, info.signature, marks, of_targets
        )

    def _find_and_load_conversation(self, conversation: str) -> Conversation:
        from kbtui.conversations.conversation_repository import find_conversation, load_conversation

        return load_conversation(find_conversation(self._workspace, conversation))


@lru_cache(maxsize=32)
def _load_conversation_and_find_mark_places(
    workspace: Workspace, name: str, signature: str, marks: tuple[Mark, ...], of_targets: bool
) -> tuple[Mapping[str, MarkedTurnOrCall], bool]:
    from kbtui.conversations.conversation_repository import find_conversation, load_conversation

    conversation = load_conversation(find_conversation(workspace, name))
    find = (
        map_marks_to_current_places_of_superseding_texts
        if of_targets
        else map_marks_to_current_places
    )
    return find(conversation, marks), conversation.describe_problems() is None


def _write_mark(db: sqlite3.Connection, mark: Mark) -> None:
    row = (mark.id, mark.conversation, mark.changed, json.dumps(mark.as_json()))
    db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", row)


def _make_mark_read_error_notice(error: KbtuiError) -> Notice:
    where, hint = str(error.where or ""), error.hint
    return Notice("marks_unreadable", {"detail": error.message, "where": where, "hint": hint})
