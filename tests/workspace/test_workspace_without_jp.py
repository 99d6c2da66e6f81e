"""kbtui in a directory without `.jp`: which directory it opens, what it shows, what it writes."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_sessions import answered, session_id, typed, write_session
from running import complete_line, run_command
from support import Builder, asked, kill_engine, said, tree_hash

from kbtui.assistant.jp_local_tools import answer_jp_tool_call
from kbtui.cli.main import main
from kbtui.conversations.conversation_repository import list_conversations
from kbtui.engine.engine_launcher import connect_or_start_engine, get_index_lock_path
from kbtui.engine.file_watcher import FileWatcher
from kbtui.errors import ConfigError, WorkspaceError
from kbtui.knowledge import load_knowledge
from kbtui.knowledge.knowledge_data_types import Topic
from kbtui.knowledge.toml_config_editor import (
    plan_toml_change_that_declares_topic,
    undo_toml_change,
    write_toml_file_change,
)
from kbtui.library import Library, open_workspace
from kbtui.sources.document_source_definitions import (
    add_source_definition,
    load_source_definitions,
    remove_source_definition,
)
from kbtui.workspace import Workspace, find_workspace

SESSION = f"claude-{session_id(1)}"
TOPIC = '[kb.topic.notes]\ntitle = "Notes"\nsubjects = "notes"\n'


class Project(Builder):
    """A directory that no JP was used in; `Builder` makes a `.jp`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A Git repository with a session of Claude Code."""
    monkeypatch.setenv("KBTUI_MODEL", "off")
    project = Project(tmp_path / "project")
    (project.root / ".git").mkdir()
    (project.root / "src/deep").mkdir(parents=True)
    (project.root / "notes").mkdir()
    (project.root / "notes/plan.md").write_text("# Plan\n\nThe walrus comes first.\n")
    records = [typed("Where is the narwhal?"), answered("In the northern bay.")]
    write_session(home, project.root / "src", session_id(1), records)
    yield project
    kill_engine(project)


def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
    return value


def find(project: Builder, *words: str, inside: str = ".") -> list[str]:
    done = run_command("search", "--json", *words, cwd=project.root / inside)
    assert done.returncode in (0, 1), done.stderr
    return [hit["ref"] for hit in json.loads(done.stdout)["hits"]]


def find_entries(project: Builder, *words: str, inside: str = ".") -> set[str]:
    return {ref.partition(":")[0] for ref in find(project, *words, inside=inside)}


# which directory


@pytest.mark.parametrize(
    ("made", "start", "root"),
    [
        ([], "a/b", "a/b"),
        (["a/.git/"], "a/b/c", "a"),
        (["a/.git"], "a/b", "a"),  # a worktree or a submodule
        (["a/.git/", "a/b/.git"], "a/b/c", "a/b"),
        (["a/.git/", "a/b/.kbtui/"], "a/b/c", "a/b"),
        (["a/.git/", "a/b/.jp/"], "a/b/c", "a/b"),
        (["a/.jp/", "a/b/.git/"], "a/b/c", "a"),
        (["a/.kbtui/", "a/b/.git/"], "a/b/c", "a"),
        (["a/.jp/", "a/b/.kbtui/"], "a/b/c", "a/b"),
        (["a/.kbtui/", "a/b/.jp/"], "a/b/c", "a/b"),
        (["a/.jp", "a/.kbtui", "a/b/.git/"], "a/b", "a/b"),  # files, not directories
    ],
)  # fmt: skip
def test_the_nearest_configuration_is_opened_then_the_repository_then_the_directory(
    tmp_path: Path, made: list[str], start: str, root: str
) -> None:
    (tmp_path / start).mkdir(parents=True)
    for name in made:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_text("gitdir: /elsewhere\n")
    assert find_workspace(tmp_path / start).root == tmp_path / root


def test_a_file_is_no_workspace_and_the_error_names_its_directory(tmp_path: Path) -> None:
    file = tmp_path / "my notes" / "file.txt"
    file.parent.mkdir()
    file.touch()
    with pytest.raises(WorkspaceError, match="a file, not a directory") as raised:
        find_workspace(file)
    assert raised.value.where == str(file)
    assert raised.value.hint == f"give its directory: -w '{file.parent}'"


def test_a_jp_workspace_in_the_home_directory_is_used_in_repositories_as_by_jp(home: Path) -> None:
    user = home / "home"
    (user / ".jp").mkdir()
    (user / "work/code/.git").mkdir(parents=True)
    assert find_workspace(user / "work/code").root == user


def test_the_configuration_of_the_home_directory_does_not_claim_the_repositories_in_it(
    home: Path,
) -> None:
    user = home / "home"
    (user / ".kbtui").mkdir()
    (user / "work/code/.git").mkdir(parents=True)
    (user / "work/code/src").mkdir()
    for number, place in enumerate(("work/code/src", "work"), 1):
        records = [typed("Where?"), answered("There.")]
        write_session(home, user / place, session_id(number), records)
    assert find_workspace(user / "work").root == user
    assert find_workspace(user).root == user
    assert find_workspace(user / "work/code/src").root == user / "work/code"
    for place, number in (("work/code", 1), ("", 2)):
        found = list_conversations(find_workspace(user / place))
        assert [one.id for one in found] == [f"claude-{session_id(number)}"]
    (user / "work/code/.kbtui").mkdir()
    assert find_workspace(user / "work/code/src").root == user / "work/code"


def test_a_configuration_that_cannot_be_read_is_an_error(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.root / ".kbtui").mkdir()
    monkeypatch.setattr("kbtui.workspace.paths.os.access", lambda path, mode: False)
    done = run_command("topics", cwd=project.root)
    assert done.returncode == 3
    assert done.stderr == f"kbtui: {project.root}/.kbtui: permission denied\n"


# what is shown


def test_the_sessions_of_a_repository_are_listed_searched_and_read(project: Project) -> None:
    before = tree_hash(project.root)
    done = run_command("conversation", "ls", "--json", cwd=project.root / "src/deep")
    assert [one["id"] for one in json.loads(done.stdout)["conversations"]] == [SESSION]
    # The first search starts the engine, the second is answered by it without the library.
    for inside in ("src/deep", ".", "src"):
        assert find_entries(project, "narwhal", inside=inside) == {SESSION}
    assert "northern bay" in run_command("show", f"{SESSION}:1", cwd=project.root).stdout
    state = json.loads(run_command("engine", "status", "--json", cwd=project.root / "src").stdout)
    assert [one["root"] for one in state["workspaces"]] == [str(project.root)]
    assert tree_hash(project.root) == before


LOOKING = [
    ("topics",), ("prompt",), ("learn", "guide"), ("conversation", "ls"), ("doctor",), ("paths",),
    ("source", "ls"), ("entries",), ("insights",), ("tools", "schema"), ("tools", "uninstall"),
    ("cites", "README.md"), ("search", "narwhal"), ("search", "in:subjects walrus"), ("index",),
    ("conversation", "ls", "--archived"), ("source", "run", "--all"), ("source", "approve", "x"),
]  # fmt: skip


def test_looking_writes_nothing_and_is_no_error(project: Project) -> None:
    before = tree_hash(project.root)
    for words in LOOKING:
        done = run_command(*words, cwd=project.root / "src")
        assert done.returncode in (0, 1), (words, done.stderr)
        assert "Traceback" not in done.stderr
    assert tree_hash(project.root) == before


def test_messages_name_the_file_that_is_read(project: Project) -> None:
    done = run_command("topics", cwd=project.root)
    assert done.stderr == (
        "kbtui: no topics are configured; declare one in .kbtui/kb.toml as [kb.topic.ID]\n"
    )
    (project.root / ".kbtui").mkdir()
    (project.root / ".kbtui/kb.toml").write_text("[kb.topic.notes]\nsubject = 'notes'\n")
    (project.root / ".kbtui/kb-sources.toml").write_text("[source.x]\n")
    told = run_command("doctor", cwd=project.root).stdout
    assert ".kbtui/kb.toml: kb.topic.notes.subject: unknown key 'subject'" in told
    assert ".kbtui/kb-sources.toml: source.x.kind: must be one of" in told
    assert "no JP workspace; topics and sources are declared in .kbtui" in told
    assert ".jp" not in told


def test_jps_configuration_is_not_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project.root.parent / "jp-config"
    folder.mkdir()
    (folder / "config.toml").write_text(TOPIC)
    monkeypatch.setenv("JP_GLOBAL_CONFIG_DIR", str(folder))
    (project.root / ".jp.toml").write_text(TOPIC)
    assert load_knowledge(project.workspace).topics == {}
    (project.root / ".jp").mkdir()
    assert list(load_knowledge(project.workspace).topics) == ["notes"]


def test_the_python_api_and_the_tools_open_it(project: Project) -> None:
    with open_workspace(project.root / "src") as library:
        assert library.workspace.root == project.root
        assert [one.id for one in library.list_conversations()] == [SESSION]
        assert library.search("narwhal", mode="lexical").hits
        assert library.topics() == []
    assert complete_line("kbtui source run ", cwd=project.root) == ""


def test_tab_offers_the_sessions_of_the_project(project: Project) -> None:
    for line in ("kbtui show claude-", "kbtui c read claude-1"):
        offered = complete_line(line, cwd=project.root / "src")
        assert offered.strip() == f"{SESSION[:15]}\tWhere is the narwhal?"
    assert complete_line("kbtui show jp-c", cwd=project.root) == ""


def test_only_what_is_for_jp_needs_a_jp_workspace(project: Project) -> None:
    before = tree_hash(project.root)
    done = run_command("tools", "install", "--yes", cwd=project.root)
    assert done.returncode == 3
    assert "no JP workspace here: there is no .jp directory to install the tools in" in done.stderr
    assert "kbtui mcp" in done.stderr
    context = json.dumps({"root": str(project.root), "action": "run"})
    outcome = answer_jp_tool_call(context, '{"name": "conversation_list", "arguments": {}}')
    assert outcome["type"] == "error"
    assert "no JP workspace here" in outcome["message"]
    assert tree_hash(project.root) == before


# whose sessions


def test_a_session_belongs_to_the_nearest_project(tmp_path: Path, home: Path) -> None:
    """The plain directory shows all that was held below it, except in configured projects."""
    for number, name in enumerate(("top", "top/repo/src", "top/repo/sub", "top/own/x"), 1):
        (tmp_path / name).mkdir(parents=True)
        write_session(home, tmp_path / name, session_id(number), [typed("Hello")])
    for name in ("top/repo/.git", "top/repo/sub/.git", "top/own/.kbtui"):
        (tmp_path / name).mkdir()

    def numbers(name: str) -> set[int]:
        found = list_conversations(find_workspace(tmp_path / name))
        return {int(one.id.removeprefix("claude-")[0]) for one in found}

    assert numbers("top") == {1, 2, 3}
    assert numbers("top/repo") == numbers("top/repo/src") == {2}
    assert numbers("top/repo/sub") == {3}
    assert numbers("top/own/x") == {4}
    assert list_conversations(Workspace(Path("/")))


def test_the_home_directory_is_opened_without_reading_what_is_in_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    place = home / "home"
    for number in range(20):
        (place / f"code/{number}").mkdir(parents=True)
    (place / "code/1/README.md").write_text("The walrus is not declared.\n")
    write_session(home, place / "code/1", session_id(1), [typed("Where is the narwhal?")])
    project = Project(home / "unused")
    project.root = place
    try:
        assert find(project, "narwhal") == [f"{SESSION}:1"]
        assert find(project, "walrus") == []
        assert not (place / ".kbtui").exists()
    finally:
        kill_engine(project)


# what is written


def test_declaring_a_topic_makes_the_directory_and_undoing_it_removes_it(project: Project) -> None:
    topic = Topic(id="notes", subjects="notes", title="Notes")
    change = plan_toml_change_that_declares_topic(load_knowledge(project.workspace), topic)
    assert not (project.root / ".kbtui").exists()
    assert change.diff.startswith("--- /dev/null\n+++ .kbtui/kb.toml\n")
    write_toml_file_change(change)
    assert (project.root / ".kbtui/kb.toml").is_file()
    assert run_command("learn", "notes", "plan", cwd=project.root / "src").returncode == 0
    undo_toml_change(change)
    assert not (project.root / ".kbtui").exists()


def test_sources_are_declared_in_the_same_directory(project: Project) -> None:
    workspace = project.workspace
    add_source_definition(
        workspace, "readme", {"kind": "file_upload", "topic": "notes", "file": "README"}
    )
    assert (project.root / ".kbtui/kb-sources.toml").is_file()
    assert list(load_source_definitions(workspace).sources) == ["readme"]
    assert complete_line("kbtui source run ", cwd=project.root).strip() == "readme"
    remove_source_definition(workspace, "readme")
    assert load_source_definitions(workspace).sources == {}


def test_a_file_in_the_way_of_the_directory_is_named(project: Project) -> None:
    (project.root / ".kbtui").write_text("in the way")
    topic = Topic(id="notes", subjects="notes")
    with pytest.raises(
        ConfigError, match=r"\.kbtui/kb\.toml: the file cannot be read: Not a directory"
    ):
        plan_toml_change_that_declares_topic(load_knowledge(project.workspace), topic)


# what changes while the engine runs


def test_the_index_follows_topics_and_a_jp_directory_that_appear_later(
    project: Project, request: pytest.FixtureRequest
) -> None:
    library = Library(project.workspace, open_workspace(project.root).settings)
    heard: list[Any] = []
    request.addfinalizer(library.listen_to_engine_events(heard.append))
    until(lambda: any(event.get("lexical") for event in heard))
    assert get_index_lock_path(project.workspace).exists()
    pid = connect_or_start_engine(project.workspace).pid

    def hears_of(reference: str) -> bool:
        changes = [event for event in heard if event["event"] == "changed"]
        return any(
            reference in [*event.get("subjects", []), *event.get("conversations", [])]
            for event in changes
        )

    (project.root / ".kbtui").mkdir()
    (project.root / ".kbtui/kb.toml").write_text(TOPIC)
    until(lambda: hears_of("notes/plan"))
    assert find(project, "walrus") == ["notes/plan:1-3"]
    (project.root / "notes/second.md").write_text("# Second\n\nThe orca.\n")
    until(lambda: hears_of("notes/second"))

    Builder(project.root)  # as `jp init` does
    until(lambda: find(project, "walrus") == [])
    (project.root / "docs").mkdir()
    (project.root / "docs/page.md").write_text("# Page\n\nThe penguin.\n")
    (project.root / ".jp/kb.toml").write_text(TOPIC.replace('"notes"', '"docs"'))
    until(lambda: hears_of("notes/page"))
    assert find(project, "penguin") == ["notes/page:1-3"]
    project.conversation(1, [[asked("Where is the puffin?"), said("On the cliff.")]])
    until(lambda: hears_of("jp-c17800000001"))
    assert find_entries(project, "puffin") == {"jp-c17800000001"}
    assert find_entries(project, "narwhal") == {SESSION}
    assert connect_or_start_engine(project.workspace).pid == pid
    told = run_command("doctor", cwd=project.root)
    assert told.returncode == 1
    assert ".kbtui/kb.toml: not read, because this is a JP workspace now" in told.stdout
    assert "move what you need to .jp/kb.toml" in told.stdout


def test_the_file_of_aider_is_followed_but_not_the_directory_it_is_in(project: Project) -> None:
    seen: list[float] = []
    watcher = FileWatcher(project.workspace, lambda: seen.append(time.monotonic()), print)
    watcher.start_thread()
    try:
        until(lambda: seen)
        time.sleep(1)
        for number in range(3):
            before = len(seen)
            with (project.root / ".aider.chat.history.md").open("a") as file:
                file.write(
                    f"# aider chat started at 2026-01-0{number + 1} 10:00:00\n\n#### Hello\n"
                )
            until(lambda count=before: len(seen) > count)
        before = len(seen)
        (project.root / "src/main.py").write_text("print()\n")
        time.sleep(3)
        assert len(seen) == before
    finally:
        watcher.stop_thread()


def test_the_id_that_jp_writes_later_is_found(project: Project, home: Path) -> None:
    workspace = project.workspace
    assert (workspace.id, workspace.jp_user_directory) == (None, None)
    Builder(project.root)
    (project.root / ".jp/.id").write_text("ab1cd\n")
    (home / "jp/workspace/project-ab1cd").mkdir(parents=True)
    assert workspace.id == "ab1cd"
    assert workspace.jp_user_directory == home / "jp/workspace/project-ab1cd"


def test_without_inotify_a_directory_without_files_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package `watchfiles` watches nothing at first, and what appears later."""
    monkeypatch.setattr("kbtui.engine.file_watcher.sys.platform", "darwin")
    project = Project(tmp_path / "empty")
    seen: list[float] = []
    said_by_watcher: list[str] = []
    watcher = FileWatcher(
        project.workspace, lambda: seen.append(time.monotonic()), said_by_watcher.append
    )
    watcher.start_thread()
    try:
        until(lambda: seen)
        time.sleep(3)
        before = len(seen)
        (project.root / ".kbtui").mkdir()
        until(lambda: len(seen) > before)
        time.sleep(1)
        before = len(seen)
        (project.root / ".kbtui/kb.toml").write_text(TOPIC)
        until(lambda: len(seen) > before)
        assert not said_by_watcher
    finally:
        watcher.stop_thread()


def test_main_opens_the_directory_that_is_named(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-w", str(project.root / "src"), "paths", "--json"]) == 0
    places = json.loads(capsys.readouterr().out)
    assert places["workspace"] == str(project.root)
    assert places["configuration"] == str(project.root / ".kbtui")
