"""No engine starts with a cache directory on a network file system, and a message says so."""

import os
from pathlib import Path

import pytest
from support import Builder

from kbtui.engine import engine_launcher
from kbtui.engine.engine_launcher import connect_or_start_engine, find_network_file_system_type
from kbtui.errors import EngineUnavailableError
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import load_settings


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mount table that tests write."""
    path = tmp_path / "mountinfo"
    monkeypatch.setattr(engine_launcher, "MOUNT_TABLE", path)
    return path


def mounted(*places: tuple[str, str]) -> str:
    lines = [f"{n} 1 0:{n} / {at} rw - {kind} source rw\n" for n, (at, kind) in enumerate(places)]
    return "".join(lines)


def test_the_nearest_mount_decides(table: Path) -> None:
    table.write_text(
        mounted(("/", "ext4"), ("/far", "nfs4"), ("/far/near", "ext4"), ("/a\\040b", "cifs"))
    )
    assert find_network_file_system_type(Path("/far/home/x")) == "nfs4"
    assert find_network_file_system_type(Path("/far/near/x")) is None
    assert find_network_file_system_type(Path("/farther")) is None
    assert find_network_file_system_type(Path("/a b/c")) == "cifs"
    table.unlink()
    assert find_network_file_system_type(Path("/far")) is None


def test_a_mount_point_can_have_any_bytes(table: Path) -> None:
    """The mount table escapes only white space, newlines and backslashes."""
    names = [b"\xff", b"\xc3\xa9", b"a\x0cb", b"a\xe2\x80\xa8b", b"a\\134040"]
    lines = [b"1 1 0:1 / / rw - ext4 source rw\n"]
    lines += [b"2 1 0:2 / /far/%s rw shared:1 - nfs4 source rw\n" % name for name in names]
    table.write_bytes(b"".join(lines))
    assert find_network_file_system_type(Path("/far")) is None
    for name in names:
        path = os.fsdecode(b"/far/%s/x" % name.replace(b"\\134", b"\\"))
        assert find_network_file_system_type(Path(path)) == "nfs4"


def test_the_real_table_can_be_read() -> None:
    assert find_network_file_system_type(Path("/")) in {None, "9p", "nfs", "nfs4"}


def test_no_engine_is_started_there_and_search_says_why(
    table: Path, home: Path, workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/one.md", "# One\n\nAn otter.\n")
    cache = os.path.realpath(home / "cache").replace(" ", "\\040")
    table.write_text(mounted(("/", "ext4"), (cache, "nfs4")))
    with pytest.raises(EngineUnavailableError, match=r"network file system \(nfs4\)"):
        connect_or_start_engine(builder.workspace)
    library = Library(builder.workspace, load_settings())
    answer = library.search(SearchRequest("otter", mode="lexical"))
    assert [hit.ref for hit in answer.hits] == ["guide/one:1-3"]
    assert "network file system" in (answer.degraded or "")
    library.close()
    assert not list((home / "cache").rglob("catalog.sqlite"))
