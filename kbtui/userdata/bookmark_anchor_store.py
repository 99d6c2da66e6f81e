"""Moves bookmarks of turns and calls when the numbers of these turns and calls change.

The numbers can change when an agent rewrites a conversation's file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kbtui.conversations.conversation_repository import find_conversation, load_conversation
from kbtui.conversations.turn_decision_marks import (
    MarkedEventIdentity,
    make_identity_of_turn_or_call,
    map_bookmarks_to_current_places,
)
from kbtui.errors import KbtuiError, NothingFound, UsageError, WorkspaceError
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import make_conversation_ref, parse_conversation_ref
from kbtui.userdata.user_data_sqlite_file import UserDataSqliteFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kbtui.references import Ref
    from kbtui.userdata.user_data_store import Bookmark, UserData
    from kbtui.workspace import Workspace

_TABLES = """
CREATE TABLE IF NOT EXISTS anchors (
  ref TEXT PRIMARY KEY, signature TEXT NOT NULL, anchor TEXT NOT NULL
) WITHOUT ROWID
"""


class _StoredBookmarkAnchor(NamedTuple):
    """The anchor of a bookmark.

    `signature` is the signature that the conversation had when the anchor was stored.
    """

    signature: str
    anchor: MarkedEventIdentity | None


class BookmarkAnchorStore:
    """The anchors of the bookmarks of turns and calls.

    A bookmark is stored with a reference that contains the turn's number. This number can change.
    The anchor then identifies the turn by the id of an event or by the turn's text.
    """

    def __init__(self, workspace: Workspace, userdata: UserData) -> None:
        self._workspace, self._userdata = workspace, userdata
        self._file = UserDataSqliteFile(
            workspace.user_data_directory / "bookmark-anchors.sqlite",
            _TABLES,
            hint="check the file's permissions and the free space on its disk",
            sync=False,
        )

    def list_bookmarks(self) -> list[Bookmark]:
        """Return all bookmarks, newest first.

        First moves each bookmark to the turn that now contains the bookmarked text. If the anchors
        cannot be read, the bookmarks are returned as they are stored.
        """
        bookmarks = self._userdata.list_bookmarks()
        turns: dict[str, list[Ref]] = {}
        for bookmark in bookmarks:
            if (ref := _parse_turn_ref(bookmark.ref)) is not None:
                turns.setdefault(str(ref.conversation), []).append(ref)
        try:
            has_moved = [self._move_bookmarks(name, refs) for name, refs in turns.items()]
        except WorkspaceError:
            return bookmarks
        return self._userdata.list_bookmarks() if any(has_moved) else bookmarks

    def _move_bookmarks(self, conversation_id: str, refs: list[Ref]) -> bool:
        """Move a conversation's bookmarks `refs` to the turns that now contain their texts.

        Returns whether any reference has changed.
        """
        try:
            info = find_conversation(self._workspace, conversation_id)
        except KbtuiError:
            return False
        stored = self._load_bookmark_anchors(map(str, refs))
        if all(str(ref) in stored and stored[str(ref)].signature == info.signature for ref in refs):
            return False
        conversation = load_conversation(info)
        anchors = {name: one.anchor for name, one in stored.items() if one.anchor is not None}
        places = map_bookmarks_to_current_places(conversation, anchors)
        now: dict[str, _StoredBookmarkAnchor] = {}
        moves: dict[str, str] = {}
        for ref in refs:
            name, place = str(ref), places.get(str(ref))
            if place is None and anchors.get(name) is not None:
                # The text no longer exists. Keep the anchor, because the text may come back.
                now[name] = stored[name]._replace(signature=info.signature)
                continue
            if place is not None:
                ref = make_conversation_ref(conversation_id, place.turn, place.call)
            # Make a new anchor: JP may have added the event's id after the old anchor was made.
            now[str(ref)] = _StoredBookmarkAnchor(
                info.signature, make_identity_of_turn_or_call(conversation, ref)
            )
            if str(ref) != name:
                moves[name] = str(ref)
        if moves:
            self._userdata.move_bookmarks(moves)
        self._save_bookmark_anchors(stored, now)
        return bool(moves)

    def _load_bookmark_anchors(self, names: Iterable[str]) -> dict[str, _StoredBookmarkAnchor]:
        wanted = set(names)
        rows = self._file.select_rows("SELECT ref, signature, anchor FROM anchors")
        found = {}
        for name, signature, text in rows:
            if name in wanted:
                values = json.loads(text)
                found[name] = _StoredBookmarkAnchor(
                    signature, MarkedEventIdentity(**values) if values else None
                )
        return found

    def read_bookmark_anchors(self) -> dict[str, MarkedEventIdentity]:
        """Map the reference of each bookmark to the bookmark's anchor. Raises `WorkspaceError`."""
        stored = self._load_bookmark_anchors(one.ref for one in self._userdata.list_bookmarks())
        return {name: one.anchor for name, one in stored.items() if one.anchor is not None}

    def add_imported_bookmark_anchors(self, anchors: Mapping[str, MarkedEventIdentity]) -> None:
        """Store the anchors of bookmarks from another machine. Raises `WorkspaceError`.

        `anchors` maps the reference of each bookmark to the bookmark's anchor.
        """
        # No conversation has an empty signature, so the next call of `list_bookmarks` looks for the texts.
        self._save_bookmark_anchors(
            anchors, {name: _StoredBookmarkAnchor("", one) for name, one in anchors.items()}
        )

    def _save_bookmark_anchors(
        self, replaced: Iterable[str], anchors: dict[str, _StoredBookmarkAnchor]
    ) -> None:
        rows = [
            (name, one.signature, json.dumps(one.anchor._asdict() if one.anchor else None))
            for name, one in anchors.items()
        ]
        with self._file.open_write_transaction() as db:
            db.executemany("DELETE FROM anchors WHERE ref = ?", [(name,) for name in replaced])
            db.executemany("INSERT OR REPLACE INTO anchors VALUES (?, ?, ?)", rows)


def _parse_turn_ref(text: str) -> Ref | None:
    """Parse the reference of a bookmark; return None if it does not refer to a turn or call."""
    try:
        ref = parse_conversation_ref(text)
    except (UsageError, NothingFound):
        return None
    return ref if ref.turn is not None else None
