"""JP's configuration layers: order, formats, `extends`, `inherit`, `--cfg` names."""

import os
from pathlib import Path
from typing import Any

import pytest

from kbtui.errors import UsageError
from kbtui.workspace import Workspace, open_workspace_at_root
from kbtui.workspace.jp_config import (
    LoadedConfigLayers,
    add_named_config_layers,
    find_extended_config_files,
    read_config_layers,
)


@pytest.fixture
def workspace(workspace_root: Path) -> Workspace:
    (workspace_root / ".jp/.id").write_text("preamble\nabc12\n")
    return open_workspace_at_root(workspace_root)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def names(found: LoadedConfigLayers) -> list[Any]:
    """Return the name that each layer contains, in order."""
    return [layer.data.get("name") for layer in found.layers]


def test_layers_come_in_jps_order_and_kb_toml_last(workspace: Workspace, home: Path) -> None:
    root = workspace.root
    write(home / "config/jp/config.toml", 'name = "global"')
    write(root / ".jp/config.toml", 'name = "workspace"')
    write(root / ".jp.toml", 'name = "root"')
    write(root / "a/.jp.yaml", "name: a")
    write(root / "a/b/.jp.json", '{"name": "b"}')
    write(home / "jp/workspace/ws-abc12/config.toml", 'name = "local"')
    write(root / ".jp/kb.toml", 'name = "kb"')
    below = read_config_layers(workspace, cwd=root / "a/b")
    assert names(below) == ["global", "workspace", "root", "a", "b", "local", "kb"]
    assert below.errors == []
    assert names(read_config_layers(workspace, cwd=root)) == [
        "global",
        "workspace",
        "root",
        "local",
        "kb",
    ]
    assert names(read_config_layers(workspace, cwd=home)) == names(
        read_config_layers(workspace, cwd=root)
    )


@pytest.mark.parametrize(
    ("extension", "text"),
    [
        ("toml", 'name = "x"'),
        ("json", '{"name": "x"}'),
        ("json5", "{name: 'x',}"),
        ("yaml", "name: x\n"),
        ("yml", "name: x\n"),
    ],
)
def test_every_format_is_read(workspace: Workspace, extension: str, text: str) -> None:
    write(workspace.jp_directory / f"config.{extension}", text)
    assert names(read_config_layers(workspace)) == ["x"]


def test_the_first_extension_wins(workspace: Workspace) -> None:
    for extension, text in {
        "yml": "name: y",
        "json": '{"name": "j"}',
        "toml": 'name = "t"',
    }.items():
        write(workspace.jp_directory / f"config.{extension}", text)
        assert names(read_config_layers(workspace)) == [text.split()[-1].strip('"{}') or None]


def test_inherit_false_stops_the_file_layers_after_it_but_not_kb_toml(workspace: Workspace) -> None:
    write(workspace.jp_directory / "config.toml", 'name = "workspace"\ninherit = false')
    write(workspace.root / ".jp.toml", 'name = "root"')
    write(workspace.jp_directory / "kb.toml", 'name = "kb"')
    assert names(read_config_layers(workspace)) == ["workspace", "kb"]


def test_extends_is_relative_to_its_file_and_comes_before_or_after_it(workspace: Workspace) -> None:
    write(
        workspace.jp_directory / "config.toml",
        'name = "top"\n'
        'extends = ["parts/one.toml", {path = "parts/last.toml", strategy = "after"}, '
        '{path = "parts/two.toml", strategy = "before"}]',
    )
    write(workspace.jp_directory / "parts/one.toml", 'name = "one"\nextends = ["deep/inner.toml"]')
    write(workspace.jp_directory / "parts/deep/inner.toml", 'name = "inner"')
    write(workspace.jp_directory / "parts/two.toml", 'name = "two"')
    write(workspace.jp_directory / "parts/last.toml", 'name = "last"')
    assert names(read_config_layers(workspace)) == ["inner", "one", "two", "top", "last"]


def test_extends_takes_globs_in_sorted_order_and_configuration_files_only(
    workspace: Workspace,
) -> None:
    write(workspace.jp_directory / "config.toml", 'name = "top"\nextends = ["config.d/**/*"]')
    for name in ("b.toml", "a/z.toml", ".c.toml"):
        write(workspace.jp_directory / "config.d" / name, f'name = "{name}"')
    write(workspace.jp_directory / "config.d/readme.md", "# no configuration")
    found = read_config_layers(workspace)
    assert names(found) == [".c.toml", "a/z.toml", "b.toml", "top"]
    assert found.errors == []
    assert workspace.jp_directory / "config.d" in found.files, "a new file there must be noticed"


def test_a_cycle_is_reported_and_cut(workspace: Workspace) -> None:
    write(workspace.jp_directory / "config.toml", 'name = "a"\nextends = ["b.toml"]')
    write(workspace.jp_directory / "b.toml", 'name = "b"\nextends = ["./../.jp/config.toml"]')
    found = read_config_layers(workspace)
    assert names(found) == ["b", "a"]
    (error,) = found.errors
    assert error.where == str(workspace.jp_directory / "b.toml")
    assert "`extends` forms a cycle" in error.message


def test_a_file_extended_twice_is_no_cycle(workspace: Workspace) -> None:
    write(workspace.jp_directory / "config.toml", 'name = "top"\nextends = ["a.toml", "b.toml"]')
    write(workspace.jp_directory / "a.toml", 'name = "a"\nextends = ["base.toml"]')
    write(workspace.jp_directory / "b.toml", 'name = "b"\nextends = ["base.toml"]')
    write(workspace.jp_directory / "base.toml", 'name = "base"')
    found = read_config_layers(workspace)
    assert names(found) == ["base", "a", "base", "b", "top"]
    assert found.errors == []


def test_a_tower_of_extends_ends(workspace: Workspace) -> None:
    for level in range(30):
        other = f"l{level + 1}.toml"
        write(workspace.jp_directory / f"l{level}.toml", f'extends = ["{other}", "./{other}"]')
    write(workspace.jp_directory / "l30.toml", "")
    write(workspace.jp_directory / "config.toml", 'extends = ["l0.toml"]')
    write(workspace.jp_directory / "kb.toml", 'name = "kb"')
    found = read_config_layers(workspace)
    assert len(found.layers) <= 1001
    assert names(found)[-1] == "kb"
    assert [error.message for error in found.errors] == ["`extends` loads too many files"]


def test_a_long_chain_of_extends_ends(workspace: Workspace) -> None:
    for level in range(600):
        write(workspace.jp_directory / f"l{level}.toml", f'extends = ["l{level + 1}.toml"]')
    write(workspace.jp_directory / "config.toml", 'name = "top"\nextends = ["l0.toml"]')
    found = read_config_layers(workspace)
    assert names(found)[-1] == "top"
    assert [error.message for error in found.errors] == ["`extends` loads too many files"]


@pytest.mark.parametrize(
    ("extends", "says"),
    [
        ('["gone.toml"]', "`extends` names gone.toml, which does not exist"),
        ('["/etc/x.toml"]', "not a path relative to this file"),
        ('[""]', "not a path relative to this file"),
        ("[1]", "`extends` takes paths"),
        ('[{path = "x.toml", strategy = "sideways"}]', "`extends` takes paths"),
        ('["x**y/*"]', "is not a glob pattern"),
        ("true", "`extends` takes paths"),
    ],
)
def test_a_wrong_extends_is_said_and_the_file_still_counts(
    workspace: Workspace, extends: str, says: str
) -> None:
    write(workspace.jp_directory / "config.toml", f'name = "top"\nextends = {extends}')
    found = read_config_layers(workspace)
    assert names(found) == ["top"]
    (error,) = found.errors
    assert says in error.message
    assert error.where == str(workspace.jp_directory / "config.toml")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.toml", b"a = [", "not valid TOML"),
        ("config.toml", b"a = 1\nb = \xff", "not UTF-8 (byte 10)"),
        ("config.json", b'{"a": ', "not valid JSON"),
        ("config.json", b"[" * 100_000, "nested too deeply"),
        ("config.json", b"[1]", "must contain a table"),
        ("config.json5", b"{a: ", "not valid JSON5"),
        ("config.yaml", b"a: [", "not valid YAML"),
        ("config.yaml", b"- 1", "must contain a table"),
        ("config.yaml", b"!!python/object:os.system {}", "not valid YAML"),
    ],
)
def test_a_broken_file_is_said_and_the_others_count(
    workspace: Workspace, name: str, content: bytes, says: str
) -> None:
    (workspace.jp_directory / name).write_bytes(content)
    write(workspace.jp_directory / "kb.toml", 'name = "kb"')
    found = read_config_layers(workspace)
    assert names(found) == ["kb"]
    (error,) = found.errors
    assert says in error.message
    assert error.where == str(workspace.jp_directory / name)


def test_a_toml_mistake_names_its_line(workspace: Workspace) -> None:
    write(workspace.jp_directory / "kb.toml", "[kb]\n\nx = = 1\n")
    (error,) = read_config_layers(workspace).errors
    assert "line 3" in error.message


def test_an_empty_yaml_file_is_an_empty_layer(workspace: Workspace) -> None:
    write(workspace.jp_directory / "config.yaml", "# nothing yet\n")
    found = read_config_layers(workspace)
    assert (names(found), found.errors) == ([None], [])


def test_pipes_huge_files_and_broken_links_do_not_hang(workspace: Workspace) -> None:
    os.mkfifo(workspace.jp_directory / "config.toml")
    write(workspace.root / ".jp.toml", "")
    os.truncate(workspace.root / ".jp.toml", 5_000_000)
    (workspace.jp_directory / "kb.toml").symlink_to("nowhere")
    messages = [error.message for error in read_config_layers(workspace).errors]
    assert messages == [
        "the file cannot be read: not a regular file",
        "the file cannot be read: larger than 500,000 bytes",
        "the file cannot be read: No such file or directory",
    ]


@pytest.mark.parametrize("name", ["config.yml", "config.yaml", "config.json5"])
def test_what_would_be_read_for_many_seconds_is_said_and_not_read(
    workspace: Workspace, name: str
) -> None:
    write(workspace.jp_directory / name, "{x: [" + "'a'," * 50_000 + "]}")
    (error,) = read_config_layers(workspace).errors
    assert "only up to 100,000" in error.message
    write(workspace.jp_directory / name, "{x: ['a']}")
    assert read_config_layers(workspace).errors == []


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 200_000 + " = 1",
        "[" + "a . " * 100_000 + "a]",
        "x = {" + "'a'." * 100_000 + "a = 1}",
        'x = """\n"""\n' + '"a"."' * 80_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_key_of_very_many_parts_is_refused_at_once(workspace: Workspace, text: str) -> None:
    write(workspace.jp_directory / "config.toml", text)
    (error,) = read_config_layers(workspace).errors
    assert "not valid TOML" in error.message
    write(
        workspace.jp_directory / "config.toml",
        "a.b.'c d'.e = '1.2.3.4.5'\n[" + ".".join("x" * 99) + "]\n",
    )
    assert read_config_layers(workspace).errors == []


def test_files_that_are_not_there_are_known_too(workspace: Workspace, home: Path) -> None:
    files = read_config_layers(workspace).files
    for path in ("config/jp/config.yml",):
        assert home / path in files
    for path in (".jp/config.toml", ".jp/config.json5", ".jp.toml", ".jp/kb.toml"):
        assert workspace.root / path in files


def named(workspace: Workspace, name: str) -> LoadedConfigLayers:
    found = read_config_layers(workspace)
    done = len(found.layers)
    add_named_config_layers(workspace, found, name)
    del found.layers[:done]
    return found


def test_a_name_is_looked_up_in_the_load_paths_of_all_three_roots(
    workspace: Workspace, home: Path
) -> None:
    write(
        workspace.jp_directory / "config.toml", 'config_load_paths = [".jp/config", ".jp/config.d"]'
    )
    write(home / "config/jp/config/.jp/config/kb/m.toml", 'name = "global"')
    write(workspace.jp_directory / "config.d/kb/m.toml", 'name = "second"')
    write(home / "jp/workspace/ws-abc12/config/.jp/config/kb/m.yaml", "name: local")
    read = read_config_layers(workspace)
    assert read.load_paths == [".jp/config", ".jp/config.d"]
    assert names(named(workspace, "kb/m")) == ["global", "second", "local"]
    write(workspace.jp_directory / "config/kb/m.toml", 'name = "first"')
    assert names(named(workspace, "kb/m")) == ["global", "first", "local"]
    assert names(named(workspace, "kb/m.toml")) == ["global", "first"]


def test_load_paths_of_several_layers_add_up(workspace: Workspace, home: Path) -> None:
    write(home / "config/jp/config.toml", 'config_load_paths = ["a", "b"]')
    write(workspace.jp_directory / "config.toml", 'config_load_paths = ["b", "c"]')
    assert read_config_layers(workspace).load_paths == ["a", "b", "c"]


def test_a_path_of_a_file_is_that_file(workspace: Workspace, tmp_path: Path) -> None:
    write(tmp_path / "mine.toml", 'name = "mine"\nextends = ["other.toml"]')
    write(tmp_path / "other.toml", 'name = "other"')
    assert names(named(workspace, str(tmp_path / "mine.toml"))) == ["other", "mine"]


def test_an_unknown_name_says_where_it_was_searched(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="no configuration named 'x'"):
        named(workspace, "x")
    write(workspace.jp_directory / "config.toml", 'config_load_paths = [".jp/config"]')
    for name in ("x", "", "\0", "../../x"):
        with pytest.raises(UsageError) as caught:
            named(workspace, name)
    assert str(workspace.jp_directory / "config") in str(caught.value)


def test_extended_files_follow_the_chain(workspace: Workspace) -> None:
    write(workspace.jp_directory / "p.toml", 'extends = ["q.toml"]')
    write(workspace.jp_directory / "q.toml", 'extends = ["r.toml", "gone.toml"]')
    write(workspace.jp_directory / "r.toml", "")
    assert find_extended_config_files(workspace.jp_directory / "p.toml") == [
        workspace.jp_directory / "r.toml",
        workspace.jp_directory / "q.toml",
    ]
