"""Citations in the sessions of other agents: files that tools and commands read, and tools over MCP."""

import json
import posixpath
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_sessions import answered, call, result, session_id, typed, write_session
from support import Builder, asked, kill_engine, said

from kbtui.citations.files_read_by_tool_calls import list_files_read_by_call
from kbtui.cli.main import main
from kbtui.conversations.conversation_data_types import ConversationEvent
from kbtui.library import open_workspace

SESSION = f"claude-{session_id(1)}"
OTHER = "jp-c17800000001"


def read_by(name: str, **arguments: Any) -> list[str]:
    event = ConversationEvent("tool_call_request", None, "", 0, name=name, arguments=arguments)
    return [posixpath.join(one.directory or "", one.path) for one in list_files_read_by_call(event)]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Read", {"file_path": "/ws/a.md", "offset": 3}),
        ("read_file", {"absolute_path": "/ws/a.md"}),
        ("read", {"filePath": "/ws/a.md"}),
        ("fs_read_file", {"path": "/ws/a.md"}),
        ("read_many_files", {"paths": ["/ws/a.md", "src/**/*.md", 7]}),
        ("Bash", {"command": "cat /ws/a.md"}),
        ("Bash", {"command": "cd /tmp && ls; cat -n '/ws/a.md' 2>/dev/null | head -3"}),
        ("shell", {"command": ["bash", "-lc", "sed -n '1,200p' /ws/a.md"]}),
        ("shell", {"command": ["cat", "/ws/a.md"]}),
        ("shell_command", {"command": "head -n 20 /ws/a.md"}),
        ("exec_command", {"cmd": "nl -ba /ws/a.md | sed -n '1,9p'"}),
        ("run_shell_command", {"command": "grep -c x b.md; tail -5 /ws/a.md"}),
    ],
)
def test_a_file_read_by_a_tool_of_any_agent_is_known(name: str, arguments: dict[str, Any]) -> None:
    assert read_by(name, **arguments) == ["/ws/a.md"]


@pytest.mark.parametrize(
    "command",
    [
        "cat > a.md <<'EOF'\ncat b.md\nEOF",
        "cat a.md > b.md",
        "sed -i s/x/y/ a.md",
        "sed s/x/y/ a.md",
        "cat $FILE",
        "cat *.md",
        "cat ~/a.md",
        "cat 'a.md",
        "echo cat a.md",
        "concat a.md",
        "(cd b && cat a.md)",
        "cat a.md >&2",
        "cat <(sort a.md)",
        "echo $(date) cat a.md",
        "cat " + "a" * 20_000,
    ],
)
def test_a_command_that_may_not_print_a_file_cites_nothing(command: str) -> None:
    assert read_by("Bash", command=command) == []


def test_a_command_runs_in_its_directory() -> None:
    assert read_by("shell", command=["zsh", "-lc", "cat a.md"], workdir="docs") == ["docs/a.md"]
    assert read_by("Bash", command="cd docs && cat a.md b.md") == ["docs/a.md", "docs/b.md"]
    assert read_by("Bash", command="cd docs\ncd /etc; cat a.md") == ["/etc/a.md"]
    assert read_by("Bash", command="cd - && cat a.md") == []


def test_strange_arguments_do_no_harm() -> None:
    for value in (None, 7, "", [], {}, [["a"]], "\0"):
        for name, key in (("Read", "file_path"), ("shell", "command"), ("Grep", "path")):
            assert read_by(name, **{key: value}) in ([], ["\0"])


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(tmp_path / "ws")
    builder.topics(guide={}, notes={})
    builder.subject("guide/start.md", "# Start\n\nThe engine starts.\n")
    builder.subject("notes/end.md", "# End\n\nThe engine ends.\n")
    builder.conversation(1, [[asked("Which engine?"), said("That.")]], title="JP talk")
    yield builder
    kill_engine(builder)


def hold_session(home: Path, directory: Path, *calls: tuple[str, dict[str, Any], str]) -> None:
    records = [typed("Read it")]
    for number, (name, arguments, text) in enumerate(calls, 1):
        records += [answered(call(number, name, **arguments)), result(number, text)]
    write_session(home, directory, session_id(1), records)


def list_uses(built: Builder) -> list[tuple[str, str, str]]:
    with open_workspace(built.root) as library:
        return [(one.how, one.kind, one.target) for one in library.cites(SESSION).uses]


def test_a_subject_read_by_claude_code_lists_the_turn_as_a_user(
    built: Builder, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = next(built.root.rglob("start.md"))
    hold_session(
        home,
        built.root,
        ("Read", {"file_path": str(path)}, "The engine starts."),
        ("Read", {"file_path": str(built.root / "main.py")}, "code"),
        ("Edit", {"file_path": str(next(built.root.rglob("end.md")))}, "done"),
    )
    assert list_uses(built) == [("file", "subject", "guide/start"), ("file", "file", "main.py")]
    for name in ("guide/start", "main.py"):
        assert main(["-w", str(built.root), "cites", name]) == 0
        out = capfd.readouterr().out
        assert out.startswith(f"cited by {SESSION[:15]}:1  2026-05-29"), out
        assert "Read it" in out
    assert main(["-w", str(built.root), "cites", "notes/end"]) == 1, "an edit is not a use"


def test_a_search_in_a_file_is_a_use_of_a_subject_but_of_nothing_else(
    built: Builder, home: Path
) -> None:
    paths = [str(next(built.root.rglob("start.md"))), str(built.root), "main.py"]
    hold_session(home, built.root, *(("Grep", {"path": path}, "x") for path in paths))
    assert list_uses(built) == [("file", "subject", "guide/start")]


def test_paths_in_another_worktree_and_from_a_directory_inside_are_those_of_the_workspace(
    built: Builder, home: Path, tmp_path: Path
) -> None:
    def git(*words: str) -> None:
        user = ("-c", "user.name=A", "-c", "user.email=a@b")
        subprocess.run(["git", *user, *words], cwd=built.root, check=True, capture_output=True)

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "all")
    other = tmp_path / "other"
    git("worktree", "add", "-q", str(other))
    subject = next(built.root.rglob("start.md")).relative_to(built.root)
    end = next(built.root.rglob("end.md")).relative_to(built.root)
    hold_session(
        home,
        other / end.parent,
        ("Read", {"file_path": str(other / subject)}, "The engine starts."),
        ("Bash", {"command": "cat end.md"}, "The engine ends."),
    )
    assert list_uses(built) == [
        ("file", "subject", "guide/start"),
        ("file", "subject", "notes/end"),
    ]


def test_tools_of_kbtui_count_under_every_name_of_its_server(built: Builder, home: Path) -> None:
    learned = [{"type": "text", "text": "The engine starts."}]
    hits = f"<hit>\n  <id>{SESSION}</id>\n  <is_match>true</is_match>\n</hit>"
    hold_session(
        home,
        built.root,
        ("mcp__kbtui__learn", {"topic": "guide", "subjects": ["start"]}, json.dumps(learned)),
        ("mcp__our-notes__learn", {"topic": "notes", "subjects": ["end"]}, "The engine ends."),
        ("mcp__our-notes__learn", {"topic": "verbs", "subjects": ["be"]}, "Lesson 1"),
        ("mcp__memory__conversation_read", {"id": OTHER}, "<conversation_read>"),
        ("mcp__memory__conversation_grep", {"pattern": "x"}, hits),
        ("mcp__chat__conversation_read", {"id": "17"}, "Hello"),
    )
    assert list_uses(built) == [
        ("learn", "subject", "guide/start"),
        ("learn", "subject", "notes/end"),
        ("read", "conversation", OTHER),
        ("grep", "conversation", SESSION),
    ]


def test_a_session_is_cited_by_the_beginning_of_its_id(built: Builder, home: Path) -> None:
    arguments = {"id": f"{SESSION[:15]}:1"}
    hold_session(
        home, built.root, ("mcp__kbtui__conversation_read", arguments, "<conversation_read>")
    )
    assert list_uses(built) == [("read", "conversation", SESSION)]


def test_a_hit_in_a_session_cites_the_session(built: Builder, home: Path) -> None:
    hold_session(home, built.root, ("Read", {"file_path": "main.py"}, "code"))
    text = f"[entry {SESSION} · chunk 00ff · score 0.5] Read it\nWords\n"
    listed = json.dumps({"total": 1, "hits": [{"id": SESSION, "is_match": True}]})
    grep = {"content": [{"type": "text", "text": listed}]}
    hold_session(
        home,
        built.root,
        (
            "mcp__kbtui__knowledge_search",
            {"query": "x"},
            json.dumps([{"type": "text", "text": text}]),
        ),
        ("mcp__kbtui__conversation_grep", {"pattern": "x"}, json.dumps(grep)),
        ("mcp__kbtui__conversation_read", {"id": f"{SESSION}:1"}, "<conversation_read>"),
    )
    with open_workspace(built.root) as library:
        [hit, found] = library.cites(SESSION).uses
    assert (hit.how, hit.kind, hit.target, hit.title, hit.chunk, hit.quote) == (
        "search", "conversation", SESSION, "Read it", "00ff", "Words",
    )  # fmt: skip
    assert (found.how, found.target, found.gone) == ("grep", SESSION, False)


def test_codex_reads_files_with_commands(built: Builder, home: Path) -> None:
    def line(kind: str, **payload: Any) -> str:
        return json.dumps({"timestamp": "2026-05-01T10:00:00Z", "type": kind, "payload": payload})

    uuid = "01990000-0000-7000-8000-000000000001"
    command = {"command": ["bash", "-lc", "sed -n '1,9p' start.md"], "workdir": "docs/guide"}
    path = next(built.root.rglob("start.md"))
    command["workdir"] = str(path.parent.relative_to(built.root))
    output = json.dumps({"output": "# Start", "metadata": {"exit_code": 0}})
    call_id = {"call_id": "call_1"}
    folder = home / "home/.codex/sessions/2026/05/01"
    folder.mkdir(parents=True)
    (folder / f"rollout-2026-05-01T10-00-00-{uuid}.jsonl").write_text(
        "\n".join(
            [
                line("session_meta", id=uuid, cwd=str(built.root)),
                line("event_msg", type="user_message", message="Start it"),
                line("response_item", type="function_call", name="shell",
                     arguments=json.dumps(command), **call_id),
                line("response_item", type="function_call_output", output=output, **call_id),
                "",
            ]
        )
    )  # fmt: skip
    with open_workspace(built.root) as library:
        [used] = library.cites("guide/start").used_by
    assert (used.source, used.tool, used.call) == (f"codex-{uuid}:1", "shell", 1)


def test_files_that_were_added_to_a_chat_with_aider_are_used(built: Builder) -> None:
    path = next(built.root.rglob("start.md")).relative_to(built.root)
    (built.root / ".aider.chat.history.md").write_text(
        "\n# aider chat started at 2026-05-01 10:00:00\n\n> Aider v0.86.1  \n"
        f"\n#### How does it start?  \n> Added {path} to the chat  \n\nIt starts.\n"
    )
    with open_workspace(built.root) as library:
        [used] = library.cites("guide/start").used_by
    assert used.source.startswith("aider-")
    assert (used.turn, used.call, used.how, used.tool) == (1, None, "file", "aider")
