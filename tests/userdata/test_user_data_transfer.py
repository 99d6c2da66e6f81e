"""The user's data moves to another machine: nothing is lost, in any order, and a bad file changes nothing."""

import base64
import gzip
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from claude_sessions import answered, session_id, typed, write_session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import run_command
from support import Builder, asked, said, write_json

from kbtui.cli.main import main
from kbtui.conversations.conversation_repository import find_conversation, list_conversations
from kbtui.conversations.session_archive import (
    KeptSession,
    delete_kept_sessions,
    find_kept_session,
    keep_copy_of_conversation,
    list_kept_sessions,
    plan_session_archive_merge,
)
from kbtui.library import open_workspace
from kbtui.userdata.bookmark_anchor_store import BookmarkAnchorStore
from kbtui.userdata.turn_mark_store import MarkStore
from kbtui.userdata.user_data_records import (
    SourceApproval,
    UserDataRecord,
    make_user_record,
    merge_user_records,
)
from kbtui.userdata.user_data_store import Bookmark, SavedSearch, UserData
from kbtui.userdata.workspace_registry import register_workspace
from kbtui.workspace import Settings, Workspace, open_workspace_at_root

ID = f"claude-{session_id(1)}"
TALK = "jp-c17800000001"


class Machine:
    """A home directory of its own with a workspace. The tests' process is on one machine at a time."""

    def __init__(self, base: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.base, self._patch = base / name, monkeypatch
        self.root = self.base / "projects" / "zoo"
        (self.base / "data").mkdir(parents=True)
        built = Builder(self.root)
        (self.root / ".jp" / ".id").write_text("zoo12\n")
        built.topics(animals={})
        built.subject("animals/walrus.md", "# Walrus\n\nIt sleeps.")
        built.conversation(1, [[asked("why?"), said("because")]])
        self.file = base / f"{name}.jsonl"
        self._switch_off()

    def _switch_off(self) -> None:
        """Hide the projects: the machines share the disk of the test."""
        (self.base / "projects").rename(self.base / "off")

    @property
    def workspace(self) -> Workspace:
        return open_workspace_at_root(self.root)

    @property
    def data(self) -> UserData:
        return UserData(self.workspace)

    @contextmanager
    def use(self) -> Iterator[None]:
        (self.base / "off").rename(self.base / "projects")
        with self._patch.context() as patch:
            patch.setenv("HOME", str(self.base / "home"))
            patch.setenv("XDG_DATA_HOME", str(self.base / "data"))
            patch.chdir(self.root)
            yield
        self._switch_off()

    def kbtui(self, *words: str, code: int = 0) -> None:
        with self.use():
            assert main(["data", *words]) == code

    def export(self, *words: str) -> list[dict[str, Any]]:
        self.kbtui("export", str(self.file), *words)
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def read_files(self) -> dict[str, bytes]:
        """The bytes of every file of the data directory."""
        files = (path for path in (self.base / "data").rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files}

    def data_rows(self) -> list[tuple[Any, ...]]:
        with self.use():
            return self.data.file.select_rows("SELECT * FROM bookmarks")

    def summarize(self) -> object:
        """What a person has here, without what differs between machines by nature."""
        with self.use():
            kept = {one.id: (one.file_name, one.kept_at) for one in list_kept_sessions()[0]}
            marks = MarkStore(self.workspace).list_marks()
            data = self.data
            return (
                data.list_bookmarks(), data.list_saved_searches(), marks, kept,
                data.load_front_end_state("tui"), data.load_front_end_state("visit"),
            )  # fmt: skip


@pytest.fixture
def machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> tuple[Machine, Machine]:
    return Machine(tmp_path, "a", monkeypatch), Machine(tmp_path, "b", monkeypatch)


def fill(machine: Machine) -> None:
    """Give a machine a record of each kind."""
    with machine.use():
        data = machine.data
        data.save_bookmark("animals/walrus", "Walrus", "reads well\nin winter")
        data.save_search(SavedSearch("sleep", "walrus topic:animals"))
        data.save_source_approval("pages", "ab12")
        data.save_front_end_state("tui", {"places": [{"key": "home"}], "at": 0})
        data.save_front_end_state("visit", {"at": time.time(), "turns": {TALK: 1}})
        data.query_log.log_search("walrus", "hybrid", 3, "cli")
        with open_workspace(machine.root) as library:
            library.mark(f"{TALK}:1", "decided", note="as said")
        register_workspace(machine.workspace, Settings())
        talk = [typed("why?"), answered("It is full.")]
        path = write_session(machine.base, machine.root, session_id(1), talk)
        keep_copy_of_conversation(machine.workspace, find_conversation(machine.workspace, ID))
        path.unlink()


def test_everything_a_person_made_moves_and_a_second_import_changes_nothing(
    machines: tuple[Machine, Machine], capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = machines
    fill(one)
    lines = one.export()
    assert one.file.stat().st_mode & 0o777 == 0o600
    assert lines[1] | {"worktrees": [], "root": str(one.root)} == {
        "kind": "workspace", "root": str(one.root), "jp_id": "zoo12", "repository": None, "directory": "", "worktrees": [],
    }  # fmt: skip
    assert {line["kind"] for line in lines} == {
        "kbtui_data", "workspace", "bookmark", "mark", "saved_search", "approval", "session",
        "kept_session", "copy", "part", "end",
    }  # fmt: skip
    before = other.read_files()
    other.kbtui("import", str(one.file), "--dry-run")
    assert other.read_files() == before
    capfd.readouterr()
    other.kbtui("import", str(one.file))
    out, err = capfd.readouterr()
    assert "bookmarks: 1 added" in out
    assert "kept sessions: 1 added" in out
    assert "1 approval of a source skipped" in err
    assert other.summarize() == one.summarize()
    with other.use():
        assert other.data.get_source_approval_time("ab12") is None
        assert other.data.query_log.list_recent_tui_queries() == []
        # The session is listed in the workspace at its path on this machine.
        assert ID in [info.id for info in list_conversations(other.workspace)]
        assert "full" in str(open_workspace(other.root).read(f"{ID}:1"))
    other.kbtui("import", str(one.file), "--approvals")
    with other.use():
        assert other.data.get_source_approval_time("ab12")
    state = other.read_files()
    capfd.readouterr()
    other.kbtui("import", str(one.file), "--approvals")
    assert "nothing new" in capfd.readouterr().out
    assert other.read_files() == state
    assert other.export() == other.export()
    one.kbtui("import", str(other.file))
    assert one.export() == lines


def test_a_removal_is_merged_and_a_later_change_wins_over_it(
    machines: tuple[Machine, Machine],
) -> None:
    one, other = machines
    fill(one)
    one.export()
    other.kbtui("import", str(one.file), "--approvals")
    with other.use():
        other.data.remove_bookmark("animals/walrus")
        other.data.remove_saved_search("sleep")
        other.data.remove_source_data("pages")
        store = MarkStore(other.workspace)
        store.remove_mark(store.list_marks()[0].id)
        delete_kept_sessions([ID])
    other.kbtui("import", str(one.file), "--approvals")  # an old file brings nothing back
    with one.use():
        one.data.save_search(SavedSearch("sleep", "later"))
    other.export()
    one.kbtui("import", str(other.file))
    one.export()
    other.kbtui("import", str(one.file))
    for machine in machines:
        bookmarks, searches, marks, kept, *_ = machine.summarize()  # type: ignore[misc]
        assert (bookmarks, [one.query for one in searches], marks, kept) == ([], ["later"], [], {})
        with machine.use():
            assert machine.data.get_source_approval_time("ab12") is None


_NAMES = st.sampled_from(["a", "b"])
_TIMES = st.integers(1, 4).map(float)
_RECORDS = st.one_of(
    st.builds(
        lambda ref, note, at: make_user_record(Bookmark(ref, "", note, at, at)), _NAMES, _NAMES, _TIMES
    ),
    st.builds(lambda name, at: make_user_record(SourceApproval(name, "s", at)), _NAMES, _TIMES),
    st.builds(
        lambda kind, name, at: UserDataRecord(kind, name, at, None),
        st.sampled_from(["bookmark", "approval"]), _NAMES, _TIMES,
    ),
)  # fmt: skip
_FILES = st.lists(_RECORDS, max_size=8, unique_by=lambda one: one.key)


def merge(known: Sequence[UserDataRecord], added: Sequence[UserDataRecord]) -> list[UserDataRecord]:
    changed, replaced = merge_user_records(known, added)
    return sorted([one for one in known if one not in replaced] + changed)


@given(_FILES, _FILES, _FILES)
def test_records_merge_alike_in_any_order(
    one: list[UserDataRecord], two: list[UserDataRecord], three: list[UserDataRecord]
) -> None:
    both = merge(merge(one, two), three)
    assert both == merge(merge(three, two), one) == merge(two, merge(one, three))
    assert merge(both, two) == both
    for record in [*one, *two, *three]:
        assert any(kept.key == record.key and kept.at >= record.at for kept in both)


def make_kept(name: str, size: int, at: float) -> KeptSession:
    file_name = f"{hashlib.sha256(bytes(size)).hexdigest()}.jsonl.gz"
    return KeptSession(
        f"claude-{name}", "claude-code", "/x", "", file_name, size, 0, 1.0, at, "/nowhere", None, "2026-01-01", None,
    )  # fmt: skip


_KEPT = st.lists(
    st.builds(make_kept, _NAMES, st.integers(1, 3), _TIMES),
    max_size=2,
    unique_by=lambda one: one.id,
)
_REMOVALS = st.dictionaries(_NAMES.map("claude-{}".format), _TIMES)
Archive = tuple[list[KeptSession], dict[str, float]]


def merge_archives(here: Archive, other: Archive) -> Archive:
    found = plan_session_archive_merge(*here, *other)
    kept = {one.id: one for one in here[0]} | {one.id: one for one in found.written}
    alive = [one for name, one in sorted(kept.items()) if name not in found.removed]
    return alive, found.removal_times


@given(st.tuples(_KEPT, _REMOVALS), st.tuples(_KEPT, _REMOVALS))
def test_kept_sessions_merge_alike_on_both_machines(one: Archive, other: Archive) -> None:
    both = merge_archives(one, other)
    assert both == merge_archives(other, one)
    assert merge_archives(both, one) == merge_archives(both, other) == both
    # The larger file of a session is never replaced by a smaller one, unless the user removed it.
    for session in [*one[0], *other[0]]:
        is_removed = both[1].get(session.id, 0.0) >= session.kept_at
        sizes = [kept.size for kept in both[0] if kept.id == session.id]
        assert is_removed or max(sizes) >= session.size


def write_file(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write lines with a valid end, as somebody would who knows the format."""
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    end = {"kind": "end", "lines": len(lines), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_bytes(data + json.dumps(end).encode() + b"\n")


def change(of: str, /, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Return a change of the values of the first line of a kind."""
    return lambda lines: next(one for one in lines if one["kind"] == of).update(values)


def repeat(kind: str) -> Callable[[list[dict[str, Any]]], None]:
    return lambda lines: lines.append(next(one for one in lines if one["kind"] == kind))


def replace_session_by_a_bomb(lines: list[dict[str, Any]]) -> None:
    data = gzip.compress(bytes(3_000_000))
    lines[-2]["bytes"] = len(data)
    lines[-1]["data"] = base64.b64encode(data).decode()


BAD_FILES: dict[str, tuple[Callable[[list[dict[str, Any]]], None], str]] = {
    "newer version": (change("kbtui_data", version=2), "update kbtui"),
    "other file": (lambda lines: lines.pop(0), "this is not exported user data"),
    "path traversal": (change("copy", file_name="../../../x.jsonl.gz"), "invalid name"),
    "path traversal by an id": (change("kept_session", id="claude-../../x"), "invalid values"),
    "absolute name": (change("kept_session", file_name="/etc/passwd"), "invalid values"),
    "control characters": (change("bookmark", ref="a/\x1b]0;x\x07"), "invalid 'ref'"),
    "reordered text": (change("workspace", root="/a\u202eb"), "invalid 'root'"),
    "whole disk as a worktree": (change("workspace", worktrees=[["/gone", "/"]]), "'worktrees'"),
    "huge number": (change("session", state={"widths": {"library": 10**15}}), "invalid 'state'"),
    "wrong type": (change("saved_search", hidden="no"), "invalid 'hidden'"),
    "wrong type of a name": (change("kept_session", file_name=1), "invalid values"),
    "unknown key": (change("approval", command="rm"), "has an unknown key"),
    "unknown kind": (change("bookmark", kind="program"), "unknown kind"),
    "year 10000": (change("mark", changed=10.0**12), "invalid"),
    "record twice": (
        lambda lines: lines.insert(3, next(one for one in lines if one["kind"] == "bookmark")),
        "twice",
    ),
    "copy twice": (lambda lines: lines.extend(lines[-2:]), "twice"),
    "copy missing": (lambda lines: lines.__delitem__(slice(-2, None)), "is missing"),
    "huge claim": (change("kept_session", size=1 << 50), "size"),
    "bomb": (replace_session_by_a_bomb, "size"),
    "other bytes": (
        change("part", data=base64.b64encode(gzip.compress(b"x" * 500)).decode()),
        "is missing|more bytes|damaged",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_hostile_file_is_refused_and_nothing_changes(
    machines: tuple[Machine, Machine], capfd: pytest.CaptureFixture[str], name: str
) -> None:
    one, other = machines
    fill(one)
    fill(other)
    lines = one.export()[:-1]
    alter, reason = BAD_FILES[name]
    alter(lines)
    write_file(one.file, lines)
    before = other.read_files()
    capfd.readouterr()
    other.kbtui("import", str(one.file), code=2)
    err = capfd.readouterr().err
    assert any(text in err for text in reason.split("|")), err
    assert "nothing was imported" in err
    assert "hint: " in err
    assert other.read_files() == before


def test_a_damaged_or_incomplete_file_is_refused_and_nothing_changes(
    machines: tuple[Machine, Machine], capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = machines
    fill(one)
    one.export()
    data = one.file.read_bytes()
    before = other.read_files()
    ends = range(0, len(data) - 1, max(1, len(data) // 40))
    for at in ends:
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]):
            one.file.write_bytes(damaged)
            other.kbtui("import", str(one.file), code=2)
    for appended in (b"\n", data, b"x" * 9_000_000):
        one.file.write_bytes(data + appended)
        other.kbtui("import", str(one.file), code=2)
    assert other.read_files() == before
    assert "after the end" in capfd.readouterr().err


_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.5, 10**18, "", "../..", "/", "\x1b[31m", [], [["/a", "/b"]], {}, {"x": 1}]
)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), _VALUES), min_size=1, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changed_value_is_refused_or_imported_and_can_be_exported_again(
    machines: tuple[Machine, Machine], changes: list[tuple[int, int, Any]]
) -> None:
    one, other = machines
    if not one.file.exists():
        fill(one)
        one.export("--searches")
        one.file.rename(one.base / "whole")
        one.file.touch()
    lines = [json.loads(line) for line in (one.base / "whole").read_text().splitlines()[:-1]]
    for number, place, value in changes:
        line = lines[number % len(lines)]
        line[[*line][place % len(line)]] = value
    write_file(one.file, lines)
    with other.use():
        words = ["data", "import", str(one.file), "--approvals", "--searches"]
        assert main(words) in (0, 1, 2)
        assert main(["data", "export", str(other.file), "--searches"]) == 0
        assert main(["data", "import", str(other.file), "--approvals", "--searches"]) == 0


def test_if_one_file_here_is_damaged_nothing_is_imported_anywhere(
    machines: tuple[Machine, Machine], capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = machines
    fill(one)
    one.export()
    with other.use():
        other.data.save_bookmark("animals/walrus", "mine")
        (other.workspace.user_data_directory / "marks.sqlite").write_bytes(b"not a database" * 100)
    before = other.data_rows()
    other.kbtui("import", str(one.file), code=3)
    err = capfd.readouterr().err
    assert "marks.sqlite" in err
    assert "nothing was imported" in err
    assert other.data_rows() == before
    with other.use():
        assert list_kept_sessions() == ([], [])


def test_a_workspace_that_is_not_here_is_named_and_can_be_mapped(
    machines: tuple[Machine, Machine], capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = machines
    fill(one)
    one.export()
    with other.use():
        (other.root / ".jp/.id").write_text("other\n")
        (other.root / ".jp/conversations").rename(other.base / "gone")
        other.data.save_bookmark("animals/otter")
    other.kbtui("import", str(one.file), code=1)
    err = capfd.readouterr().err
    assert str(one.root) in err
    assert "--map" in err
    other.kbtui("import", str(one.file), "--map", f"{one.root}={other.root}", "--json")
    out = json.loads(capfd.readouterr().out)
    assert out["workspaces"][0]["missing_references"] == [f"{TALK}:1"]
    bookmarks = other.summarize()[0]  # type: ignore[index]
    assert {one.ref for one in bookmarks} == {"animals/otter", "animals/walrus"}
    with other.use():
        kept = find_kept_session(ID)
        assert kept
        assert kept.working_directory == str(other.root)
    other.kbtui("import", str(one.file), "--map", "/nowhere=/tmp", code=2)


def test_a_workspace_without_jp_is_recognized_by_its_repository(
    machines: tuple[Machine, Machine], capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = machines
    for machine, address in (
        (one, "git@forge.example:zoo/a.git"),
        (other, "https://forge.example/zoo/a"),
    ):
        with machine.use():
            (machine.root / ".jp").rename(machine.base / "jp")
            (machine.root / ".git").mkdir()
            (machine.root / ".git/config").write_text(f'[remote "origin"]\n\turl = {address}\n')
            machine.data.save_bookmark(f"animals/{machine.base.name}")
    one.export("--here")
    other.kbtui("import", str(one.file))
    assert len(other.summarize()[0]) == 2  # type: ignore[index]
    with other.use():
        (other.root / ".git/config").write_text(
            '[remote "origin"]\n\turl = https://other.example/b\n'
        )
    other.kbtui("import", str(one.file), code=1)
    assert "kbtui does not know this workspace on this machine" in capfd.readouterr().err


def test_a_running_engine_finds_imported_sessions(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    one, other = machines
    fill(one)
    one.export()
    with other.use():
        assert run_command("index", cwd=other.root).returncode == 0
        try:
            assert run_command("data", "import", str(one.file), cwd=other.root).returncode == 0
            end = time.monotonic() + 30
            while ID[:15] not in run_command("search", "full", cwd=other.root).stdout:
                assert time.monotonic() < end
        finally:
            run_command("engine", "stop", cwd=other.root)


def test_a_bookmark_of_a_turn_stays_with_its_text(machines: tuple[Machine, Machine]) -> None:
    one, other = machines
    with one.use():
        Builder(one.root).conversation(2, [[asked("first")], [asked("second")]])
        one.data.save_bookmark("jp-c17800000002:2", "second")
        BookmarkAnchorStore(one.workspace, one.data).list_bookmarks()
    one.export("--here")
    other.kbtui("import", str(one.file))
    with other.use():
        folder = Builder(other.root).conversation(2, [[asked("first")], [asked("second")]])
        events = json.loads((folder / "events.json").read_text())
        write_json(folder / "events.json", events[2:])  # the first turn is gone
        (bookmark,) = BookmarkAnchorStore(other.workspace, other.data).list_bookmarks()
        assert bookmark.ref == "jp-c17800000002:1"


def test_the_data_of_a_renamed_directory_is_found_in_the_new_one(
    machines: tuple[Machine, Machine],
) -> None:
    one, _ = machines
    fill(one)
    before = one.summarize()
    with one.use():
        new = one.root.rename(one.root.with_name("park"))
    one.root = new
    assert one.data_rows() == []
    one.export()
    one.kbtui("import", str(one.file))
    assert one.summarize() == before


def test_the_log_of_searches_moves_only_on_demand(machines: tuple[Machine, Machine]) -> None:
    one, other = machines
    fill(one)
    one.export("--searches", "--here")
    other.kbtui("import", str(one.file))
    with other.use():
        assert other.data.query_log.compute_search_statistics().total == 0
    for _ in range(2):
        other.kbtui("import", str(one.file), "--searches")
    with other.use():
        assert other.data.query_log.compute_search_statistics().total == 1


def list_guide_commands(heading: str) -> str:
    """Return the shell commands in a section of the guide's page on moving."""
    page = Path(__file__).parents[2] / "docs/guide/moving.md"
    section = page.read_text("utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    return section.split("```sh\n")[1].split("```")[0]


def test_the_commands_of_the_guide_make_two_machines_equal(
    machines: tuple[Machine, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = machines
    fill(one)
    programs, hub = tmp_path / "bin", tmp_path / "hub.git"
    programs.mkdir()
    for name, text in {
        "kbtui": f'exec {shlex.quote(sys.executable)} -m kbtui.cli.main "$@"',
        "ssh": f'shift; XDG_DATA_HOME={shlex.quote(str(other.base / "data"))} exec "$@"',
        "hostname": 'basename "$(dirname "$XDG_DATA_HOME")"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "zoo")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "zoo@example.com")

    def run(commands: str, directory: Path) -> None:
        subprocess.run(["sh", "-ec", commands], cwd=directory, check=True)

    # Both machines have the workspace at the same path.
    with one.use():
        data = one.data
        run(list_guide_commands("Over ssh"), one.root)
        monkeypatch.setenv("XDG_DATA_HOME", str(other.base / "data"))
        assert UserData(one.workspace).list_bookmarks() == data.list_bookmarks()
        UserData(one.workspace).save_bookmark("animals/seal", "Seal")
        run("git init -q hub.git && git -C hub.git commit -q --allow-empty -m zoo", tmp_path)
        run("git -C hub.git config core.bare true", tmp_path)
        for machine in (other, one, other):
            monkeypatch.setenv("XDG_DATA_HOME", str(machine.base / "data"))
            clone = machine.base / "moved"
            if not clone.exists():
                run(f"git clone -q {shlex.quote(str(hub))} {shlex.quote(str(clone))}", tmp_path)
            run(list_guide_commands("With Git"), clone)
        assert len(data.list_bookmarks()) == 2
        assert UserData(one.workspace).list_bookmarks() == data.list_bookmarks()
        assert find_kept_session(ID)
