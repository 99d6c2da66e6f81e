"""The list of workspaces that the user has opened: who is in it, and what is one project."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from running import on_pipe

from kbtui.userdata.workspace_registry import (
    list_registered_workspaces,
    register_workspace,
    unregister_workspace,
)
from kbtui.workspace import Settings, Workspace, open_workspace_at_root
from kbtui.workspace.user_settings import get_settings_path


def make_workspace(path: Path) -> Workspace:
    (path / ".kbtui").mkdir(parents=True)
    return open_workspace_at_root(path)


def git(*words: str, at: Path) -> None:
    settings = ("user.name=a", "user.email=a@b", "protocol.file.allow=always")
    options = [word for one in settings for word in ("-c", one)]
    subprocess.run(["git", *options, *words], cwd=at, check=True, capture_output=True)


def list_projects(settings: Settings | None = None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in list_registered_workspaces(settings or Settings()):
        found.setdefault(one.project, []).append(one.workspace.root.name)
    return found


def test_worktrees_and_clones_are_one_project_and_other_repositories_are_not(
    tmp_path: Path,
) -> None:
    original = tmp_path / "engine"
    original.mkdir()
    git("init", "-q", at=original)
    git("commit", "-q", "--allow-empty", "-m", "one", at=original)
    git("worktree", "add", "-q", str(tmp_path / "fix"), at=original)
    git("clone", "-q", str(original), str(tmp_path / "clone"), at=tmp_path)
    for name, address in (
        ("mine", "git@example.org:team/site.git"),
        ("yours", "https://ada@example.org/team/site"),
        ("fork", "https://example.org/other/site"),
    ):
        (tmp_path / name).mkdir()
        git("init", "-q", at=tmp_path / name)
        git("remote", "add", "origin", address, at=tmp_path / name)
    for name in ("engine", "fix", "clone", "mine", "yours", "fork"):
        register_workspace(open_workspace_at_root(tmp_path / name), Settings())
    projects = [set(roots) for roots in list_projects().values()]
    assert {"engine", "fix", "clone"} in projects
    assert {"mine", "yours"} in projects
    assert {"fork"} in projects
    assert len(set(list_projects())) == 3, "different projects have different names"


def test_projects_with_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for parent in ("work", "home"):
        register_workspace(make_workspace(tmp_path / parent / "api"), Settings())
    assert set(list_projects()) == {"work/api", "home/api"}


def test_damaged_files_and_excluded_directories_are_left_out(tmp_path: Path, home: Path) -> None:
    kept, damaged, private = (
        make_workspace(tmp_path / name) for name in ("kept", "damaged", "private")
    )
    for one in (kept, damaged, private):
        register_workspace(one, Settings())
    (damaged.user_data_directory / "workspace.json").write_bytes(b'{"root": 3')
    excluding = Settings(workspaces={"exclude": [str(private.root)]})
    assert list_projects(excluding) == {"kept": ["kept"]}
    register_workspace(private, excluding)
    assert list_projects() == {"kept": ["kept"]}, "the record was removed"
    register_workspace(damaged, Settings())
    assert set(list_projects()) == {"kept", "damaged"}


def test_many_at_once_lose_no_record(tmp_path: Path) -> None:
    workspaces = [make_workspace(tmp_path / f"w{number}") for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: register_workspace(one, Settings()), workspaces * 3))
    assert len(list_registered_workspaces(Settings())) == 20


def test_here_comes_first_even_if_it_was_never_opened(tmp_path: Path) -> None:
    other, here = make_workspace(tmp_path / "other"), make_workspace(tmp_path / "here")
    register_workspace(other, Settings())
    found = list_registered_workspaces(Settings(), here)
    assert [one.workspace.root.name for one in found] == ["here", "other"]


def test_the_command_lists_and_forgets(tmp_path: Path) -> None:
    gone, there = make_workspace(tmp_path / "gone"), make_workspace(tmp_path / "there")
    for one in (gone, there):
        register_workspace(one, Settings())
    (gone.root / ".kbtui").rmdir()
    gone.root.rmdir()
    out, _, code = on_pipe(["workspaces"])
    assert code == 0
    assert f"{gone.root}  (the directory does not exist; opened 2" in out.decode()
    assert f"{there.root}  (there is no index yet; opened 2" in out.decode()
    out, _, code = on_pipe(["workspaces", "forget", "--missing", "--json"])
    assert (code, json.loads(out)) == (0, {"forgotten": [str(gone.root)]})
    out, _, code = on_pipe(["workspaces", "--json"])
    assert [row["root"] for row in json.loads(out)] == [str(there.root)]
    assert unregister_workspace(there.root)
    assert not unregister_workspace(there.root)
    assert on_pipe(["workspaces"])[2] == 1
    _, err, code = on_pipe(["workspaces", "forget", str(tmp_path)])
    assert code == 2
    assert b"not in the list" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[workspaces]\nexclud = ["/a"]', "unknown key 'exclud'"),
        ('[workspaces]\nexclude = ["a"]', "must be a list of directories"),
    ],
)
def test_a_wrong_setting_names_its_line(home: Path, text: str, said: str) -> None:
    folder = home / "config" / "kbtui"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)
    _, err, code = on_pipe(["config"])
    assert code == 2
    assert (
        f"config.toml:2: {said}" in err.decode()
        or f"config.toml:2: `exclude` in the table [workspaces] {said}" in err.decode()
    )


def test_an_empty_directory_is_not_listed_and_a_forgotten_workspace_is_listed_again(
    tmp_path: Path,
) -> None:
    make_workspace(tmp_path / "used")
    (tmp_path / "empty").mkdir()
    try:
        for name in ("used", "empty"):
            assert on_pipe(["-w", str(tmp_path / name), "index", "--no-vectors"])[2] == 0
        assert list_projects() == {"used": ["used"]}
        assert on_pipe(["workspaces", "forget", str(tmp_path / "used")])[2] == 0
        assert on_pipe(["-w", str(tmp_path / "used"), "index", "--no-vectors"])[2] == 0
        assert list_projects() == {"used": ["used"]}
    finally:
        on_pipe(["engine", "stop"])


def test_invalid_settings_do_not_prevent_that_the_engine_is_stopped(
    tmp_path: Path, home: Path
) -> None:
    workspace = make_workspace(tmp_path / "used")
    assert on_pipe(["-w", str(workspace.root), "index", "--no-vectors"])[2] == 0
    path = get_settings_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('model = ["broken')
    assert on_pipe(["engine", "status"])[2] == 0
    out, _, code = on_pipe(["engine", "stop"])
    assert (code, out[:18]) == (0, b"stopped the engine")
