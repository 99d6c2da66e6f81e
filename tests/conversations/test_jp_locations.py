"""Where conversations are found, which copy is read, and what the list shows."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from jp_files import (
    BASE,
    ID,
    WORKSPACE_ID,
    Stream,
    dump,
    jp_id,
    load,
    time,
    workspace_at,
    write,
)

from kbtui.conversations.conversation_data_types import ConversationInfo
from kbtui.conversations.conversation_repository import (
    find_conversation,
    find_skipped_conversation_paths,
    list_conversations,
    load_conversation,
)
from kbtui.conversations.workspace_and_worktree_directories import identify_project
from kbtui.errors import NothingFound, UsageError
from kbtui.references import make_conversation_ref, parse_conversation_id, parse_conversation_ref
from kbtui.workspace.paths import read_jp_pointer_file
from kbtui.workspace.workspace import check_export_path_is_outside_jp_directories, find_workspace


def listed(jp: Path, archived: bool | None = None) -> list[ConversationInfo]:
    return list_conversations(workspace_at(jp.parent), archived)


def hello(text: str = "Hi") -> Stream:
    return Stream().turn().ask(text)


def date(folder: Path, name: str, seconds: int) -> None:
    os.utime(folder / name, (seconds, seconds))


def date_all(folder: Path, seconds: int) -> None:
    for file in folder.iterdir():
        os.utime(file, (seconds, seconds))


def test_both_roots_are_one_list(jp: Path, silo: Path) -> None:
    write(jp, hello(), number=ID)
    write(silo, hello(), number=ID)
    write(silo, hello(), number=ID + 1)
    write(jp, hello(), number=ID + 2)
    presence = {info.id: info.presence for info in listed(jp)}
    assert presence == {
        jp_id(): "projected",
        jp_id(ID + 1): "user_local",
        jp_id(ID + 2): "external",
    }


def test_the_link_back_from_the_user_local_directory_is_never_followed(
    jp: Path, silo: Path
) -> None:
    write(jp, hello())
    (silo / "conversations").mkdir()
    (silo / "conversations/storage").symlink_to(jp)
    assert [info.presence for info in listed(jp)] == ["external"]


def test_the_newer_copy_is_read_and_metadata_and_events_compete_apart(jp: Path, silo: Path) -> None:
    here = write(jp, hello("workspace"), title="Workspace")
    there = write(silo, hello("silo"), title="Silo")
    date_all(here, 1000)
    date_all(there, 1000)
    assert (listed(jp)[0].title, load(jp.parent).turns[0].events[0].text) == ("Silo", "silo"), (
        "a tie goes to the user-local copy"
    )
    date(here, "metadata.json", 2000)
    assert (listed(jp)[0].title, load(jp.parent).turns[0].events[0].text) == ("Workspace", "silo")
    date(here, "base_config.json", 3000)
    conversation = load(jp.parent)
    assert conversation.turns[0].events[0].text == "workspace", (
        "events and base configuration are one unit, dated by the newer"
    )
    assert conversation.info.directory == here


def test_a_copy_without_events_never_hides_one_with_them(jp: Path, silo: Path) -> None:
    here = write(jp, hello("here"))
    there = write(silo, None)
    date_all(here, 1000)
    date_all(there, 2000)
    assert load(jp.parent).turns[0].events[0].text == "here"


def test_archived_ones_are_listed_with_a_flag_and_read_too(jp: Path, silo: Path) -> None:
    write(jp, hello("old"), archived=True, number=ID)
    write(silo, hello("older"), archived=True, number=ID - 1)
    write(jp, hello("new"), number=ID + 1)
    assert [(info.id, info.archived) for info in listed(jp)] == [
        (jp_id(ID + 1), False),
        (jp_id(), True),
        (jp_id(ID - 1), True),
    ]
    assert [info.id for info in listed(jp, archived=True)] == [jp_id(), jp_id(ID - 1)]
    assert [info.id for info in listed(jp, archived=False)] == [jp_id(ID + 1)]
    assert load(jp.parent, ID - 1).turns[0].events[0].text == "older"


def test_in_the_archive_the_workspaces_metadata_comes_first(jp: Path, silo: Path) -> None:
    here = write(jp, hello(), archived=True, title="Workspace")
    there = write(silo, hello(), archived=True, title="Silo")
    date_all(here, 1000)
    date_all(there, 2000)
    assert listed(jp)[0].title == "Workspace"


def test_trash_drafts_and_temporary_files_are_no_conversations(jp: Path) -> None:
    folder = write(jp, hello())
    write(jp, hello(), number=ID + 1).rename(folder.parent / f".{ID + 1}-hidden")
    trash = folder.parent / ".trash" / f"{ID + 2}-broken"
    trash.mkdir(parents=True)
    (trash / "TRASHED.md").write_text("why")
    (folder / "events.json.tmp").write_text("[")
    (folder / "QUERY_MESSAGE.md").write_text("draft")
    (folder.parent / "metadata.json").write_text("{}")
    (jp / "local-conversations").mkdir()
    assert [info.id for info in listed(jp)] == [jp_id()]
    assert find_skipped_conversation_paths(workspace_at(jp.parent)) == []
    assert listed(jp)[0].problem is None


@pytest.mark.parametrize(
    "name", ["notes", "-5", "٣٤", "99999999999999999999-far", "12345678901234"]
)
def test_a_directory_without_an_id_is_told_apart(jp: Path, name: str) -> None:
    write(jp, hello())
    (jp / "conversations" / name).mkdir()
    assert [info.id for info in listed(jp)] == [jp_id()]
    [found] = find_skipped_conversation_paths(workspace_at(jp.parent))
    assert found.path.name == name
    assert "id" in found.reason


def test_any_leading_number_is_an_id_as_in_jp(jp: Path) -> None:
    write(jp, hello(), number=2024, slug="notes")
    assert [(info.id, info.created_at) for info in listed(jp)] == [
        ("jp-c2024", datetime(1970, 1, 1, 0, 3, 22, 400_000, UTC))
    ]


def test_one_id_in_three_places_is_one_entry_that_says_so(jp: Path, silo: Path) -> None:
    first = write(jp, hello("first"), slug="first")
    second = write(jp, hello("second"), slug="second")
    third = write(silo, hello("third"), slug="third", archived=True)
    date_all(first, 1000)
    date_all(second, 2000)
    date_all(third, 3000)
    [info] = listed(jp)
    assert not info.archived, "live wins over archived"
    assert load_conversation(info).turns[0].events[0].text == "second"
    assert info.problem is not None
    for name in ("first", "second", "third"):
        assert name in info.problem


def test_the_order_is_newest_activity_first(jp: Path) -> None:
    write(jp, hello(), number=ID)
    write(jp, hello().say("later"), number=ID - 50)
    write(jp, [], number=ID + 1, metadata={"last_activated_at": time(0)})
    # Without an element, the creation counts; here it is later than the events of the others.
    assert [info.id for info in listed(jp)] == [jp_id(ID + 1), jp_id(ID - 50), jp_id()]


def test_metadata_gives_title_pin_expiry_and_labels(jp: Path) -> None:
    metadata = {
        "title": "A conversation",
        "last_activated_at": "2026-05-29T10:00:00+02:00",
        "pinned_at": "2026-05-29 09:00:00.0",
        "expires_at": "2026-06-29 09:00:00.0",
        "labels": {"area": "search", "bare": "", "odd": 7},
        "local": False,
        "parent_id": "jp-c1",
    }
    write(jp, hello(), metadata=metadata)
    [info] = listed(jp)
    assert info.title == info.name == "A conversation"
    assert info.last_activated_at == datetime(2026, 5, 29, 8, tzinfo=UTC)
    assert info.pinned_at == datetime(2026, 5, 29, 9, tzinfo=UTC)
    assert info.expires_at == datetime(2026, 6, 29, 9, tzinfo=UTC)
    assert info.labels == {"area": "search", "bare": ""}
    assert info.archived_at is None
    assert info.ref == f"jp-c{ID}"
    assert info.problem == "metadata.json: some labels are not strings"
    assert info.size > 0


@pytest.mark.parametrize(
    "metadata", [{"last_activated_at": time(0)}, {"title": "  "}, {"title": 7}]
)
def test_an_untitled_conversation_has_no_title(jp: Path, metadata: dict[str, object]) -> None:
    write(jp, hello(), metadata=metadata)
    [info] = listed(jp)
    assert info.title is None
    assert info.name == "Untitled"


def test_counts_are_of_every_element_and_can_be_left_out(jp: Path) -> None:
    stream = Stream().delta(**BASE).turn().ask("a").add("novelty").say("b")
    write(jp, stream, base=None)
    [info] = listed(jp)
    assert info.events_count == 5
    assert info.last_event_at == datetime(2026, 5, 29, 10, 0, 4, 500_000, UTC)
    [quick] = list_conversations(workspace_at(jp.parent), counts=False)
    assert (quick.events_count, quick.last_event_at) == (None, None)
    assert quick.signature == info.signature
    assert find_conversation(workspace_at(jp.parent), jp_id(), counts=True) == info


def test_listing_without_counts_opens_no_events(jp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(jp, hello())
    from kbtui.conversations.formats import damage_tolerant_file_reader

    read = damage_tolerant_file_reader.read_file

    def guarded(path: str, *more: int) -> bytes:
        assert not path.endswith("events.json")
        return read(path, *more)

    monkeypatch.setattr(damage_tolerant_file_reader, "read_file", guarded)
    assert [info.title for info in list_conversations(workspace_at(jp.parent), counts=False)] == [
        "A title"
    ]


@pytest.mark.parametrize("name", ["events.json", "metadata.json", "base_config.json"])
@pytest.mark.parametrize("root", ["jp", "silo"])
def test_the_signature_changes_with_every_file_in_either_root(
    jp: Path, silo: Path, name: str, root: str
) -> None:
    folders = {"jp": write(jp, hello()), "silo": write(silo, hello())}
    before = listed(jp)[0].signature
    assert listed(jp)[0].signature == before
    file = folders[root] / name
    # JP writes a new file and renames it over the old one, here with the same bytes and time.
    status = file.stat()
    fresh = file.with_suffix(".json.tmp")
    fresh.write_bytes(file.read_bytes())
    os.utime(fresh, ns=(status.st_atime_ns, status.st_mtime_ns))
    fresh.rename(file)
    assert listed(jp)[0].signature != before


def test_the_signature_changes_with_a_new_title_and_with_a_vanished_file(jp: Path) -> None:
    folder = write(jp, hello())
    before = listed(jp)[0].signature
    renamed = folder.rename(folder.with_name(f"{ID}-another-title"))
    after = listed(jp)[0].signature
    assert after != before
    (renamed / "base_config.json").unlink()
    assert listed(jp)[0].signature not in {before, after}


def test_finding_knows_live_and_archived_and_nothing_else(jp: Path) -> None:
    write(jp, hello(), archived=True)
    assert find_conversation(workspace_at(jp.parent), jp_id()).archived
    with pytest.raises(NothingFound) as caught:
        find_conversation(workspace_at(jp.parent), jp_id(ID + 1))
    # A similar id is only a conversation of about the same time, so it is not suggested.
    assert caught.value.hint == "`kbtui conversation ls` lists all conversations"


def test_no_conversations_at_all_is_an_empty_list(jp: Path) -> None:
    assert listed(jp) == []
    (jp / "conversations").write_text("a file, not a directory")
    assert listed(jp) == []


@pytest.mark.parametrize(
    "text",
    [
        f"jp-c{ID}",
        f"{ID}",
        f" jp-c{ID} ",
        f"jp-c{ID}-otvo8",
        f"jp-c{ID}:3",
        f"jp-c{ID}:3.2",
        f"jp-c{ID}?a:142",
        f"jp://jp-c{ID}",
        f"jp://jp-c{ID}?select=a:-1&raw=all",
        f"jp://{ID}",
    ],
)
def test_an_id_is_known_in_every_form(text: str) -> None:
    assert parse_conversation_id(text) == jp_id()


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        (f"jp-c{ID}", None),
        (f"jp-c{ID}:3", 3),
        (f"jp-c{ID}?a:142", 142),
        (f"jp-c{ID}-otvo8?u,a:2..5", 2),
        (f"jp-c{ID}?a:-1", None),
        (f"jp-c{ID}?raw", None),
        (f"jp://jp-c{ID}?select=*:3", 3),
        (f"jp://jp-c{ID}?select=a:3&raw=all", 3),
        (f"jp://jp-c{ID}?raw", None),
    ],
)
def test_jps_links_name_a_turn_where_they_select_one(text: str, turn: int | None) -> None:
    assert parse_conversation_ref(text) == make_conversation_ref(jp_id(), turn)


@pytest.mark.parametrize(
    "text", ["", "jp-c", "jp-t123", "guide/start", "the one about locks", "-1"]
)
def test_what_is_no_id_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_conversation_id(text)
    assert "jp-c17457886043" in (caught.value.hint or "")


def test_nothing_under_either_root_is_written_by_reading(jp: Path, silo: Path) -> None:
    from support import grep_answer, list_answer, read_answer

    write(jp, hello())
    write(silo, Stream().turn().ask("half").elements[:1] and '[\n  {"a": ', number=ID + 1)

    def state() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino)
            for root in (jp, silo)
            for path in (root, *root.rglob("*"))
        }

    before = state()
    workspace = workspace_at(jp.parent)
    list_answer(workspace)
    grep_answer(workspace, pattern="h")
    read_answer(workspace, id=str(ID))
    for info in list_conversations(workspace):
        load_conversation(info)
    assert state() == before


def test_a_hand_written_file_has_the_same_counts(jp: Path) -> None:
    write(jp, dump(hello().elements).replace("\n", "").replace("  ", " "))
    assert listed(jp)[0].events_count == 2


def make_pointer(jp: Path, place: Path, text: str) -> Path:
    """Move the `.jp` of a workspace to `place`, and write a file with `text` in its place."""
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(jp, place)
    jp.write_text(text)
    return jp.parent


@pytest.mark.parametrize("form", ["{place}\n", "../elsewhere/storage", "~/storage\n"])
def test_a_pointer_file_leads_to_the_directory_that_it_names(
    jp: Path, home: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    write(jp, hello())
    in_home = form.startswith("~")
    place = home / "storage" if in_home else jp.parent.parent / "elsewhere/storage"
    root = make_pointer(jp, place, form.format(place=place))
    (root / "src").mkdir()
    workspace = find_workspace(root / "src")
    assert workspace.root == root.resolve()
    assert workspace.is_jp_workspace
    assert workspace.id == WORKSPACE_ID
    assert workspace.config_directory.samefile(place)
    [info] = list_conversations(workspace)
    assert info.id == jp_id()
    with pytest.raises(UsageError):
        check_export_path_is_outside_jp_directories(workspace, place / "conversations/x.md")


def test_a_pointer_to_nothing_still_makes_its_directory_the_root(jp: Path) -> None:
    root = make_pointer(jp, jp.parent.parent / "moved", "/nowhere/at/all\n")
    (root / "src").mkdir()
    workspace = find_workspace(root / "src")
    assert workspace.root == root.resolve()
    assert not workspace.is_jp_workspace
    (root / ".jp").write_text("two\nlines\n")
    assert read_jp_pointer_file(str(root)) is None


def test_two_worktrees_of_one_id_share_their_user_local_conversations(
    jp: Path, silo: Path, tmp_path: Path
) -> None:
    write(silo, hello())
    other = tmp_path / "other-worktree"
    other.mkdir()
    (other / ".jp").write_text(str(jp))
    third = tmp_path / "third"
    shutil.copytree(jp, third / ".jp")
    roots = [jp.parent, other, third]
    assert [[info.id for info in list_conversations(workspace_at(one))] for one in roots] == [
        [jp_id()]
    ] * 3
    assert len({identify_project(str(one)).key for one in roots}) == 1
