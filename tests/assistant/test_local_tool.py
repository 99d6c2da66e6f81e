"""JP's protocol for local tools (docs/jp-format.md), tested in a process as JP starts it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from assistant_support import LIVE
from support import Builder, tree_hash

from kbtui.assistant.assistant_tools import answer_tool_call
from kbtui.assistant.jp_local_tools import answer_jp_tool_call
from kbtui.library import Library


def call(root: Path, name: str, arguments: Any = None, **context: Any) -> dict[str, Any]:
    where = {"action": "run", "root": str(root), "workspace_id": "otvo8", "access": None, **context}
    tool = {"name": name, "arguments": arguments or {}, "answers": {}, "options": {}}
    return answer_jp_tool_call(json.dumps(where), json.dumps(tool))


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbtui.cli.main", "tool", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_a_call_succeeds_with_the_text_that_every_face_gives(
    built: Builder, library: Library
) -> None:
    context = {"action": "run", "root": str(built.root)}
    tool = {"name": "learn", "arguments": {"topic": "guide"}}
    ended = run(json.dumps(context), json.dumps(tool), cwd=Path("/"))
    assert ended.returncode == 0
    assert ended.stderr == ""
    assert json.loads(ended.stdout) == {
        "type": "success",
        "content": answer_tool_call("learn", {"topic": "guide"}, library).text,
    }


def test_an_error_has_the_shape_that_jp_reads(built: Builder) -> None:
    context = {"action": "run", "root": str(built.root)}
    tool = {"name": "conversation_list", "arguments": {"limit": 0}}
    ended = run(json.dumps(context), json.dumps(tool), cwd=built.root)
    assert ended.returncode == 1
    assert ended.stderr == ""
    assert json.loads(ended.stdout) == {
        "type": "error",
        "message": "`limit` must be at least 1, not 0 "
        "(arguments: limit, offset, sort, descending, archived, title_contains, agents, labels, file, "
        "max_chars)",
        "trace": [],
        "transient": False,
    }


@pytest.mark.parametrize(
    ("context", "tool", "says"),
    [
        ("{", "{}", "the context is not JSON"),
        ("[]", "{}", "the context is not a JSON object"),
        ("{}", '"learn"', "the tool is not a JSON object"),
        ("{}", '{"arguments": {}}', "the tool's `name` is missing"),
        ("{}", '{"name": "learn", "arguments": []}', "the tool's `arguments` is not an object"),
        ('{"action": "dance"}', '{"name": "learn"}', "unknown action 'dance'"),
        ("{}", '{"name": "learn"}', "the context's `root` is missing"),
        ('{"root": "relative"}', '{"name": "learn"}', "no JP workspace here"),
        ('{"root": "/"}', '{"name": "learn"}', "no JP workspace here"),
        ('{"root": "/\\u0000"}', '{"name": "learn"}', "the context's `root` is missing"),
        ("[" * 100_000, "{}", "the context is not JSON"),
    ],
)
def test_what_is_not_a_call_is_an_error_in_words(context: str, tool: str, says: str) -> None:
    found = answer_jp_tool_call(context, tool)
    assert found["type"] == "error"
    assert says in found["message"]


def test_an_unknown_tool_is_an_error_that_lists_the_tools(built: Builder) -> None:
    found = call(built.root, "forget")
    assert found["type"] == "error"
    assert "no tool 'forget' (tools: learn, knowledge_search" in found["message"]


def test_the_workspace_is_the_root_itself_and_never_one_above_it(built: Builder) -> None:
    below = built.root / "docs"
    assert call(below, "learn", {"topic": "guide"})["message"].endswith("no JP workspace here")
    assert call(built.root, "learn", {"topic": "guide"})["type"] == "success"


@pytest.mark.parametrize("identity", [LIVE, str(LIVE), f"jp-c{LIVE}"])
def test_the_conversation_that_asks_is_known_from_the_context(
    built: Builder, identity: object
) -> None:
    grep = call(built.root, "conversation_grep", {"pattern": "badger"}, conversation_id=identity)
    assert f"jp-c{LIVE}<" not in grep["content"]
    assert f"jp-c{LIVE + 1}<" in grep["content"]
    read = call(built.root, "conversation_read", {"id": str(LIVE)}, conversation_id=identity)
    assert read["type"] == "error"


@pytest.mark.parametrize("identity", [None, "", "?", True, [], "jp-c"])
def test_an_unknown_conversation_excludes_nothing(built: Builder, identity: object) -> None:
    grep = call(built.root, "conversation_grep", {"pattern": "badger"}, conversation_id=identity)
    assert f"jp-c{LIVE}<" in grep["content"]


def test_arguments_are_formatted_on_one_safe_line_without_running_anything() -> None:
    arguments = {"pattern": "a\x1b[31mb\n", "limit": 5, "ids": None, "long": "x" * 900}
    context = {"action": "format_arguments", "root": "/nowhere"}
    tool = {"name": "conversation_grep", "arguments": arguments}
    found = answer_jp_tool_call(json.dumps(context), json.dumps(tool))
    assert found["type"] == "success"
    text = found["content"]
    assert text.startswith('conversation_grep(pattern: "a\\u001b[31mb\\n", limit: 5, long: "xxx')
    assert text.endswith("…)")
    assert len(text) < 400
    assert text.isprintable()


def test_calls_write_nothing_in_the_workspace(built: Builder) -> None:
    before = tree_hash(built.root)
    for name, arguments in [
        ("learn", {"topic": "guide", "subjects": "**"}),
        ("conversation_list", {}),
        ("conversation_grep", {"pattern": "badger"}),
        ("conversation_read", {"id": str(LIVE)}),
        ("knowledge_search", {"query": "badger"}),
    ]:
        assert call(built.root, name, arguments)["type"] == "success"
    assert tree_hash(built.root) == before


def test_a_setting_masks_secrets_here_too(built: Builder, home: Path) -> None:
    built.subject("guide/keys.md", "API_KEY=9f86d081884c7d65\n")
    arguments = {"topic": "guide", "subjects": "keys"}
    assert "9f86d081884c7d65" in call(built.root, "learn", arguments)["content"]
    settings = home / "config" / "kbtui" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('mask_secrets = "always"\n')
    assert "9f86d081884c7d65" not in call(built.root, "learn", arguments)["content"]
    settings.write_text('mask_secrets = "perhaps"\n')
    assert "mask_secrets must be one of" in call(built.root, "learn", arguments)["message"]


def test_the_command_imports_nothing_heavy(built: Builder) -> None:
    code = (
        "import json, sys\n"
        "from kbtui.assistant.jp_local_tools import answer_jp_tool_call as outcome\n"
        f"context = json.dumps({{'action': 'run', 'root': {str(built.root)!r}}})\n"
        "for name, arguments in [('learn', {'topic': 'guide'}), ('conversation_list', {}),\n"
        "                        ('knowledge_search', {'query': 'badger'})]:\n"
        "    found = outcome(context, json.dumps({'name': name, 'arguments': arguments}))\n"
        "    assert found['type'] == 'success', found\n"
        "heavy = {'mcp', 'pydantic', 'asyncio', 'anyio', 'textual', 'lancedb', 'torch', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "[]\n"
