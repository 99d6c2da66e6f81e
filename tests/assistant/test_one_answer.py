"""The command line, JP's local tools and MCP give the same answers."""

import json
import re
from typing import Any

import pytest
from assistant_support import LIVE
from support import Builder

from kbtui.assistant.assistant_tools import answer_tool_call
from kbtui.assistant.jp_local_tools import answer_jp_tool_call
from kbtui.cli.main import main
from kbtui.library import Library

SAME: list[tuple[list[str], str, dict[str, Any]]] = [
    (["learn", "guide"], "learn", {"topic": "guide"}),
    (["learn", "guide", "start"], "learn", {"topic": "guide", "subjects": "start"}),
    (["learn", "guide", "*"], "learn", {"topic": "guide", "subjects": ["*"]}),
    (["learn", "guide", "retired"], "learn", {"topic": "guide", "subjects": ["retired"]}),
    (["conversation", "ls", "--format", "xml"], "conversation_list", {}),
    (
        ["c", "ls", "--sort", "created", "--ascending", "--limit", "1", "--format", "xml"],
        "conversation_list",
        {"sort": "created", "descending": False, "limit": 1},
    ),
    (["c", "grep", "badger", "--format", "xml"], "conversation_grep", {"pattern": "badger"}),
    (
        ["c", "grep", "AARDVARK", "-s", "tool", "-C", "1", "--format", "xml"],
        "conversation_grep",
        {"pattern": "AARDVARK", "scopes": ["tool"], "context": 1},
    ),
    (["c", "read", str(LIVE), "--format", "xml"], "conversation_read", {"id": f"jp-c{LIVE}"}),
    (
        ["c", "read", f"jp-c{LIVE}", "--last", "1", "--include", "chat", "--format", "xml"],
        "conversation_read",
        {"id": LIVE, "last": 1, "include": ["chat"]},
    ),
]


@pytest.mark.parametrize(("words", "name", "arguments"), SAME, ids=lambda value: str(value)[:40])
def test_command_and_tool_say_the_same(
    library: Library,
    capfdbinary: pytest.CaptureFixture[bytes],
    words: list[str],
    name: str,
    arguments: dict[str, Any],
) -> None:
    root = str(library.workspace.root)
    main(["-w", root, *words])
    printed = capfdbinary.readouterr().out.decode()
    reply = answer_tool_call(name, arguments, library)
    assert printed.rstrip("\n") == reply.text.rstrip("\n")
    context = json.dumps({"action": "run", "root": root})
    local = answer_jp_tool_call(context, json.dumps({"name": name, "arguments": arguments}))
    assert local.get("content", local.get("message")) == reply.text
    assert (local["type"] == "error") is reply.is_error


@pytest.mark.parametrize(
    "words", [["guide"], ["guide", "start"], ["guide", "basics"], ["guide", "start:3"], ["off"]]
)
@pytest.mark.parametrize("broken", ["", "[[[ no TOML", "[kb.topic.guide]\nsubject = 1\n"])
def test_learn_says_the_same_when_the_topics_have_mistakes(
    built: Builder,
    library: Library,
    capfdbinary: pytest.CaptureFixture[bytes],
    words: list[str],
    broken: str,
) -> None:
    (built.root / ".jp" / "kb.toml").write_text(broken)
    main(["-w", str(built.root), "learn", *words])
    printed = capfdbinary.readouterr().out.decode()
    arguments = {"topic": words[0], "subjects": words[1:]}
    reply = answer_tool_call("learn", arguments, library)
    context = json.dumps({"action": "run", "root": str(built.root)})
    local = answer_jp_tool_call(context, json.dumps({"name": "learn", "arguments": arguments}))
    assert printed == reply.text == local.get("content", local.get("message"))


def test_search_ranks_the_same_for_people_and_for_assistants(
    built: Builder, library: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    main(["-w", str(built.root), "search", "aardvark", "badger", "--json"])
    printed = json.loads(capfd.readouterr().out)
    text = answer_tool_call("knowledge_search", {"query": "aardvark badger"}, library).text
    refs = re.findall(r"Sources: (.*)", text)[0].split(", ")
    assert refs == [hit["ref"] for hit in printed["hits"]]
