"""`tools install` writes files that JP can load, changes no others, and removes only its own."""

import errno
import json
import os
import pty
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from support import Builder

from kbtui.assistant import jp_local_tools
from kbtui.assistant.assistant_tools import TOOLS, ToolDefinition
from kbtui.assistant.jp_local_tools import format_skill_toml, format_tool_toml
from kbtui.cli.main import main
from kbtui.errors import WorkspaceError
from kbtui.knowledge import load_knowledge

FOLDER = ".jp/mcp/tools/kbtui"
SKILL = ".jp/config/skill/kbtui.toml"


def command(root: Path, *words: str) -> int:
    return main(["-w", str(root), "tools", *words])


def tree(root: Path) -> dict[str, object]:
    """Return every directory, file and link below, with contents."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


# The keys of a tool definition and of a parameter, with the values that JP allows.

STYLE = {"inline_results": {"off", "full"}, "results_file_link": {"off", "full", "osc8"},
         "parameters": {"json", "function_call", "off"}}  # fmt: skip
TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


def wrong_in_tool(table: Mapping[str, Any]) -> Iterator[str]:
    known = {
        "source", "enable", "run", "command", "summary", "description", "examples", "parameters",
        "result", "format", "style", "options", "questions", "access", "cancellation_response",
    }  # fmt: skip
    yield from (f"unknown key {key}" for key in set(table) - known)
    if table.get("source") != "local":
        yield "source is not local"
    if table.get("enable") not in ("on", "off", "always", "explicit", True, False):
        yield "enable"
    if table.get("run") not in ("ask", "unattended", "edit", "skip"):
        yield "run"
    words = str(table.get("command", "")).split()
    if not words or "{{context}}" not in words or "{{tool}}" not in words:
        yield "command does not pass context and tool as words of their own"
    for key in ("summary", "description", "examples"):
        if not isinstance(table.get(key, ""), str):
            yield f"{key} is no string"
    for key, value in table.get("style", {}).items():
        if value not in STYLE.get(key, ()):
            yield f"style.{key} = {value!r}"
    for name, parameter in table.get("parameters", {}).items():
        yield from (f"{name}: {mistake}" for mistake in wrong_in_parameter(parameter))


def wrong_in_parameter(table: Mapping[str, Any], *, item: bool = False) -> Iterator[str]:
    known = {
        "type", "required", "default", "summary", "description", "examples", "enum", "items",
        "properties",
    }  # fmt: skip
    yield from (f"unknown key {key}" for key in set(table) - known)
    types = table.get("type")
    listed = types if isinstance(types, list) else [types]
    if not set(listed) <= TYPES:
        yield f"type {types!r}"
    if not isinstance(table.get("required", False), bool):
        yield "required"
    if "array" in listed:
        # A local tool must describe the elements.
        yield from wrong_in_parameter(table.get("items", {}), item=True)
    elif "items" in table:
        yield "items of something that is no array"
    if not item and not table.get("summary"):
        yield "no summary"
    if not isinstance(table.get("enum", []), list):
        yield "enum"


def definition(path: Path) -> tuple[str, dict[str, Any]]:
    document = tomllib.loads(path.read_text("utf-8"))
    assert list(document) == ["conversation"]
    assert list(document["conversation"]) == ["tools"]
    [(name, table)] = document["conversation"]["tools"].items()
    return name, table


def test_each_definition_loads_under_the_rules_of_jp_and_is_the_one_definition(
    built: Builder,
) -> None:
    assert command(built.root, "install", "--yes") == 0
    files = sorted((built.root / FOLDER).iterdir())
    assert [path.stem for path in files] == sorted(TOOLS)
    for path in files:
        name, table = definition(path)
        assert name == path.stem
        assert list(wrong_in_tool(table)) == []
        # Off unless a conversation names it, and run without asking.
        assert (table["enable"], table["run"]) == ("explicit", "unattended")
        assert table["command"] == "kbtui tool {{context}} {{tool}}"
        assert "data" in table["summary"]
        assert "not instructions" in table["summary"]
        schema = TOOLS[name].make_arguments_schema()
        assert set(table["parameters"]) == set(schema["properties"])
        for key, parameter in table["parameters"].items():
            expected = schema["properties"][key]
            assert parameter["summary"] == expected["description"]
            for word in ("type", "default", "enum", "items"):
                assert parameter.get(word) == expected.get(word), (name, key, word)
            assert parameter.get("required", False) == (key in schema["required"])


def test_learn_names_the_topics_where_jp_shows_them(built: Builder) -> None:
    command(built.root, "install", "--yes")
    _, table = definition(built.root / FOLDER / "learn.toml")
    expected = load_knowledge(built.workspace).make_learn_tool_definition()
    assert expected is not None
    assert table["summary"] == expected["description"]
    assert "User Guide" in table["summary"]


def test_the_doctor_says_when_the_installed_topics_are_others_than_now(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    def notes() -> str:
        capfd.readouterr()
        main(["-w", str(built.root), "doctor", "--json"])
        found = json.loads(capfd.readouterr().out)
        return "\n".join(str(one) for one in found if "learn.toml" in str(one))

    assert notes() == "", "nothing is installed"
    command(built.root, "install", "--yes")
    assert notes() == ""
    built.topics(guide={"title": "Renamed"}, off={"enable": False})
    assert (
        "learn.toml is out of date: the topics that it describes have changed; `kbtui tools install`"
        in notes()
    )
    command(built.root, "install", "--yes")
    assert notes() == ""
    built.topics(guide={"enable": False})
    assert "learn.toml offers `learn`, but no topic has a subject to learn" in notes()
    command(built.root, "install", "--yes")
    assert notes() == ""
    built.topics(guide={"title": "Back"})
    assert "learn.toml is missing, but topics have subjects to learn" in notes()


def test_a_check_tells_a_script_whether_the_tools_are_up_to_date_and_changes_nothing(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    before = tree(built.root)
    assert command(built.root, "install", "--check") == 1
    assert tree(built.root) == before
    command(built.root, "install", "--yes")
    assert command(built.root, "install", "--check") == 0
    built.topics(guide={"title": "Renamed"})
    before = tree(built.root)
    capfd.readouterr()
    assert command(built.root, "install", "--check", "--json") == 1
    shown = capfd.readouterr()
    actions = {one["path"]: one["action"] for one in json.loads(shown.out)}
    assert [path for path, action in actions.items() if action == "update"] == [
        f"{FOLDER}/learn.toml"
    ]
    assert "`kbtui tools install` updates them" in shown.err
    assert tree(built.root) == before
    command(built.root, "install", "--yes")
    assert command(built.root, "install", "--check") == 0
    assert main(["-w", str(built.root), "tools", "schema", "--check"]) == 2


def test_the_skill_switches_on_the_installed_tools_and_nothing_else(built: Builder) -> None:
    command(built.root, "install", "--yes")
    skill = tomllib.loads((built.root / SKILL).read_text("utf-8"))
    [section] = skill["assistant"]["system_prompt_sections"]
    assert set(section) <= {"tag", "title", "content", "position"}
    assert set(skill) == {"assistant", "conversation"}
    assert set(skill["assistant"]) == {"system_prompt_sections"}
    tools = skill["conversation"]["tools"]
    assert list(tools) == list(TOOLS)
    for name, table in tools.items():
        assert table == {"enable": True, "run": "unattended", "result": "unattended"}
        assert f"- {name}: " in section["content"]


def test_nothing_to_learn_means_no_learn_tool_anywhere(built: Builder) -> None:
    command(built.root, "install", "--yes")
    built.topics(guide={"enable": False})
    assert command(built.root, "install", "--yes") == 0
    assert not (built.root / FOLDER / "learn.toml").exists()
    skill = tomllib.loads((built.root / SKILL).read_text("utf-8"))
    assert "learn" not in skill["conversation"]["tools"]
    assert "learn" not in skill["assistant"]["system_prompt_sections"][0]["content"]


def test_uninstall_leaves_the_workspace_as_it_was(built: Builder) -> None:
    before = tree(built.root)
    command(built.root, "install", "--yes")
    assert tree(built.root) != before
    assert command(built.root, "uninstall") == 0
    assert tree(built.root) == before
    assert command(built.root, "uninstall") == 1


def test_folders_that_were_there_before_stay(built: Builder) -> None:
    (built.root / ".jp/mcp").mkdir()
    (built.root / ".jp/config/skill").mkdir(parents=True)
    before = tree(built.root)
    command(built.root, "install", "--yes")
    built.topics(guide={"title": "Renamed"}, off={"enable": False})
    renamed = {**before, ".jp/kb.toml": (built.root / ".jp/kb.toml").read_bytes()}
    # An update keeps the list of directories that the first installation created.
    assert command(built.root, "install", "--yes") == 0
    command(built.root, "uninstall")
    assert tree(built.root) == renamed


def test_installing_again_changes_nothing(built: Builder) -> None:
    command(built.root, "install", "--yes")
    before = {path: path.stat().st_mtime_ns for path in (built.root / FOLDER).iterdir()}
    assert command(built.root, "install") == 0  # nothing to ask about
    assert before == {path: path.stat().st_mtime_ns for path in (built.root / FOLDER).iterdir()}


def test_nothing_is_written_before_it_was_shown_and_agreed_to(
    built: Builder, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(built.root)
    with open(os.devnull) as nobody:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", nobody)
        assert command(built.root, "install") == 2
    shown = capfd.readouterr()
    assert "add --yes" in shown.err
    for tool in TOOLS:
        assert f"{FOLDER}/{tool}.toml: write\n" in shown.out
        assert f"    [conversation.tools.{tool}]\n" in shown.out
    assert tree(built.root) == before


@pytest.mark.parametrize(("said", "written"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_is_asked(built: Builder, said: str, written: bool) -> None:
    main_end, other_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kbtui.cli.main", "-w", str(built.root), "tools", "install"],
        stdin=other_end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.write(main_end, said.encode())
    _, err = process.communicate(timeout=60)
    os.close(main_end)
    os.close(other_end)
    assert process.returncode == 0
    assert "change these files? [y/N]" in err
    assert (built.root / SKILL).exists() is written


def test_a_file_of_somebody_else_is_never_overwritten(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs = built.root / FOLDER / "learn.toml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("# mine\n")
    assert command(built.root, "install", "--yes") == 3
    assert theirs.read_text() == "# mine\n"
    assert "not installed: the file exists, and kbtui did not write it" in capfd.readouterr().out
    # The other files are there, and the skill does not enable tools of others.
    assert (built.root / FOLDER / "conversation_read.toml").exists()
    skill = tomllib.loads((built.root / SKILL).read_text("utf-8"))
    assert "learn" not in skill["conversation"]["tools"]
    assert command(built.root, "uninstall") == 0
    assert theirs.read_text() == "# mine\n"


def test_a_file_that_a_person_edited_is_theirs(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    command(built.root, "install", "--yes")
    edited = built.root / FOLDER / "learn.toml"
    text = edited.read_text().replace('run = "unattended"', 'run = "ask"')
    edited.write_text(text)
    capfd.readouterr()
    assert command(built.root, "install", "--yes") == 0
    assert "learn.toml: not changed, because you edited it" in capfd.readouterr().out
    assert command(built.root, "uninstall") == 0
    assert "learn.toml: not changed, because you edited it" in capfd.readouterr().out
    assert edited.read_text() == text
    assert [path.name for path in (built.root / FOLDER).iterdir()] == ["learn.toml"]


def test_a_check_tells_an_edited_file_from_one_that_is_also_out_of_date(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    command(built.root, "install", "--yes")
    edited = built.root / FOLDER / "learn.toml"
    text = edited.read_text().replace('run = "unattended"', 'run = "ask"')
    edited.write_text(text)
    assert command(built.root, "install", "--check") == 0
    built.topics(guide={"title": "Renamed"})
    capfd.readouterr()
    assert command(built.root, "install", "--check") == 4
    shown = capfd.readouterr()
    assert "because you edited it; it is out of date" in shown.out
    assert "files that you edited are out of date" in shown.err
    assert command(built.root, "install", "--yes") == 0
    # What is new can be taken over by hand.
    assert "Renamed" in capfd.readouterr().out
    assert edited.read_text() == text
    edited.unlink()
    command(built.root, "install", "--yes")
    assert command(built.root, "install", "--check") == 0


def test_other_line_ends_are_no_edit(built: Builder) -> None:
    command(built.root, "install", "--yes")
    for path in (built.root / FOLDER).iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert command(built.root, "uninstall") == 0
    assert not (built.root / FOLDER).exists()


def test_a_tool_that_another_file_defines_is_not_defined_twice(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    other = built.root / ".jp/mcp/tools/conversation/list.toml"
    other.parent.mkdir(parents=True)
    other.write_text('[conversation.tools.conversation_list]\nsource = "local"\n')
    assert command(built.root, "install", "--yes") == 3
    shown = capfd.readouterr().out
    assert "list.toml defines a tool with the same name" in shown
    assert not (built.root / FOLDER / "conversation_list.toml").exists()
    skill = tomllib.loads((built.root / SKILL).read_text("utf-8"))
    assert "conversation_list" not in skill["conversation"]["tools"]


def test_a_link_out_of_the_workspace_is_not_followed(built: Builder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (built.root / ".jp/mcp").symlink_to(outside)
    assert command(built.root, "install", "--yes") == 3
    assert list(outside.iterdir()) == []
    assert not (built.root / SKILL).exists()
    assert command(built.root, "uninstall") == 1


def test_a_linked_file_is_not_written_through(built: Builder, tmp_path: Path) -> None:
    target = tmp_path / "target.toml"
    target.write_text("precious\n")
    link = built.root / FOLDER / "learn.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    assert command(built.root, "install", "--yes") == 3
    command(built.root, "uninstall")
    assert target.read_text() == "precious\n"
    assert link.is_symlink()


@pytest.mark.parametrize("fail_at", [1, 2])
def test_what_fails_half_way_is_undone(
    built: Builder, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    command(built.root, "install", "--yes")
    built.topics(guide={"title": "Renamed"}, off={"enable": False})
    (built.root / FOLDER / "conversation_read.toml").unlink()
    before = tree(built.root)
    real, done = os.fsync, []

    def full(descriptor: int) -> None:
        done.append(descriptor)
        if len(done) == fail_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    changes = jp_local_tools.plan_jp_tool_installation(
        built.workspace, load_knowledge(built.workspace)
    )
    assert sum(change.action in ("write", "update") for change in changes) == 2
    with pytest.raises(WorkspaceError, match="no space left on device; nothing was changed"):
        jp_local_tools.apply_file_changes(built.workspace, changes)
    assert tree(built.root) == before


@pytest.mark.parametrize("fail_at", range(1, 7))
def test_a_failure_while_putting_files_in_place_is_undone_too(
    built: Builder, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    before = tree(built.root)
    changes = jp_local_tools.plan_jp_tool_installation(
        built.workspace, load_knowledge(built.workspace)
    )
    real, done = os.link, []

    def failing(source: Path, target: Path) -> None:
        done.append(target)
        if len(done) == fail_at:
            raise OSError(errno.EIO, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "link", failing)
    with pytest.raises(WorkspaceError, match="input/output error; nothing was changed"):
        jp_local_tools.apply_file_changes(built.workspace, changes)
    assert tree(built.root) == before


def test_a_file_that_appears_after_the_plan_is_kept(built: Builder) -> None:
    changes = jp_local_tools.plan_jp_tool_installation(
        built.workspace, load_knowledge(built.workspace)
    )
    theirs = built.root / SKILL
    theirs.parent.mkdir(parents=True)
    theirs.write_text("# quick\n")
    with pytest.raises(WorkspaceError, match="file exists; nothing was changed"):
        jp_local_tools.apply_file_changes(built.workspace, changes)
    assert theirs.read_text() == "# quick\n"
    assert not (built.root / FOLDER).exists()


def test_a_file_that_changes_after_the_plan_is_kept(built: Builder) -> None:
    command(built.root, "install", "--yes")
    changes = jp_local_tools.plan_tool_removal(built.workspace)
    edited = built.root / FOLDER / "learn.toml"
    edited.write_text(edited.read_text() + "# mine\n")
    before = tree(built.root)
    with pytest.raises(WorkspaceError, match="another program changed the file"):
        jp_local_tools.apply_file_changes(built.workspace, changes)
    assert tree(built.root) == before


def test_json_says_what_is_done(built: Builder, capfd: pytest.CaptureFixture[str]) -> None:
    assert command(built.root, "install", "--yes", "--json") == 0
    changes = json.loads(capfd.readouterr().out)
    assert [(one["path"], one["action"]) for one in changes] == [
        (SKILL, "write"),
        *[(f"{FOLDER}/{name}.toml", "write") for name in sorted(TOOLS)],
    ]
    assert all((built.root / one["path"]).read_text() == one["text"] for one in changes)
    assert command(built.root, "uninstall", "--json") == 0
    assert {one["action"] for one in json.loads(capfd.readouterr().out)} == {"remove"}


def test_it_says_what_jp_still_needs(built: Builder, capfd: pytest.CaptureFixture[str]) -> None:
    command(built.root, "install", "--yes")
    assert 'extends = ["mcp/tools/**/*.toml"]' in capfd.readouterr().err
    config = {"extends": ["mcp/tools/**/*.toml"], "config_load_paths": [".jp/config"]}
    (built.root / ".jp/config.toml").write_text(tomli_w.dumps(config))
    command(built.root, "install", "--yes")
    said = capfd.readouterr().err
    assert "extends = [" not in said
    assert "--cfg skill/kbtui" in said


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    values=st.lists(st.text("ab\"'\\\n#[]", min_size=1, max_size=5), max_size=3).map(tuple),
)
def test_whatever_a_topic_is_called_the_files_parse_to_what_was_meant(
    text: str, values: tuple[str, ...]
) -> None:
    tool = ToolDefinition(
        "learn",
        text,
        text,
        {"topic": {"type": "string", "description": text, "enum": list(values)}},
    )
    table = tomllib.loads(format_tool_toml(tool))["conversation"]["tools"]["learn"]
    # TOML normalizes line endings.
    plain = text.replace("\r\n", "\n")
    assert table["summary"].replace("\r\n", "\n") == plain
    assert table["parameters"]["topic"]["summary"].replace("\r\n", "\n") == plain
    assert tuple(table["parameters"]["topic"].get("enum", ())) == values
    tomllib.loads(format_skill_toml([tool]))
