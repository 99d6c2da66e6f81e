"""Bookmarks of turns stay with their texts when a conversation's file is rewritten."""

import json
from pathlib import Path
from typing import Any

import pytest
from support import Builder, asked, called, said, write_json

from kbtui.userdata.bookmark_anchor_store import BookmarkAnchorStore
from kbtui.userdata.user_data_store import UserData

ID = "jp-c17800000001"


class Shelf:
    """A conversation with three turns, whose file a test rewrites, and the user's bookmarks."""

    def __init__(self, root: Path) -> None:
        builder = Builder(root)
        turns = [
            [asked(f"Question {n}"), *called("1", "look", "ok", n=n), said("Yes.")] for n in "abc"
        ]
        self.path = builder.conversation(1, turns) / "events.json"
        self.userdata = UserData(builder.workspace)
        self.anchors = BookmarkAnchorStore(builder.workspace, self.userdata)

    def read(self) -> list[dict[str, Any]]:
        elements: list[dict[str, Any]] = json.loads(self.path.read_text())
        return elements

    def add_event_ids(self) -> None:
        """Rewrite the file as JP does since its RFD 097."""
        write_json(
            self.path, [{"event_id": f"k3f{n:04}", **one} for n, one in enumerate(self.read())]
        )

    def remove_turn(self, number: int) -> None:
        elements = self.read()
        starts = [n for n, one in enumerate(elements) if one["type"] == "turn_start"]
        ends = [*starts[1:], len(elements)]
        del elements[starts[number - 1] : ends[number - 1]]
        write_json(self.path, elements)

    def list_refs(self) -> dict[str, str]:
        return {one.ref.removeprefix(ID): one.note for one in self.anchors.list_bookmarks()}


@pytest.fixture
def shelf(workspace_root: Path) -> Shelf:
    shelf = Shelf(workspace_root)
    for ref, note in ((f"{ID}:2", "b"), (f"{ID}:3", "c"), (f"{ID}:3.1", "call"), (ID, "all")):
        shelf.userdata.save_bookmark(ref, "Title", note)
    shelf.userdata.save_bookmark("guide/start", "Start", "subject")
    assert shelf.list_refs() == {
        ":2": "b",
        ":3": "c",
        ":3.1": "call",
        "": "all",
        "guide/start": "subject",
    }
    return shelf


def test_bookmarks_survive_the_rewrite_that_adds_ids_and_follow_them_then(shelf: Shelf) -> None:
    before = shelf.userdata.list_bookmarks()
    shelf.add_event_ids()
    assert shelf.list_refs().keys() == {":2", ":3", ":3.1", "", "guide/start"}
    assert shelf.userdata.list_bookmarks() == before
    # From now on, the id decides, even if the text is another one.
    elements = shelf.read()
    for one in elements:
        if one.get("content") == "Question c":
            one["content"] = "Question C, edited"
    write_json(shelf.path, elements)
    shelf.remove_turn(1)
    assert shelf.list_refs() == {
        ":1": "b",
        ":2": "c",
        ":2.1": "call",
        "": "all",
        "guide/start": "subject",
    }


def test_bookmarks_follow_their_texts_without_ids_and_stay_if_the_text_is_gone(
    shelf: Shelf,
) -> None:
    shelf.remove_turn(1)
    assert shelf.list_refs() == {
        ":1": "b",
        ":2": "c",
        ":2.1": "call",
        "": "all",
        "guide/start": "subject",
    }
    shelf.remove_turn(1)
    assert shelf.list_refs() == {
        ":1": "c\nb",
        ":1.1": "call",
        "": "all",
        "guide/start": "subject",
    }


def test_damaged_anchors_leave_the_bookmarks_as_they_are(shelf: Shelf) -> None:
    (shelf.userdata.directory / "bookmark-anchors.sqlite").write_bytes(b"no database" * 100)
    for name in ("-wal", "-shm"):
        (shelf.userdata.directory / f"bookmark-anchors.sqlite{name}").unlink(missing_ok=True)
    shelf.remove_turn(1)
    assert shelf.list_refs().keys() == {":2", ":3", ":3.1", "", "guide/start"}
