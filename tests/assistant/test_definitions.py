"""All front ends use one definition of the tools, which also checks arguments."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder

from kbtui.assistant.assistant_tools import (
    DATA_WARNING,
    LEARN,
    TOOLS,
    check_and_convert_tool_arguments,
    list_offered_tools,
)
from kbtui.cli.main import main
from kbtui.errors import UsageError
from kbtui.knowledge import load_knowledge
from kbtui.knowledge.system_prompt_and_learn_tool import define_learn_tool_parameters

# The parameters of each tool with their defaults; None means no default.
PARAMETERS = {
    "conversation_list": {
        "limit": ("integer", 20),
        "offset": ("integer", 0),
        "sort": ("string", "activity"),
        "descending": ("boolean", True),
        "archived": ("boolean", False),
        "title_contains": ("string", None),
        "agents": ("array", None),
        "labels": ("array", None),
        "file": ("string", None),
        "max_chars": ("integer", 60_000),
    },
    "conversation_grep": {
        "pattern": ("string", None),
        "ignore_case": ("boolean", True),
        "regex": ("boolean", False),
        "ids": ("array", None),
        "scopes": ("array", None),
        "agents": ("array", None),
        "labels": ("array", None),
        "context": ("integer", 0),
        "limit": ("integer", 50),
        "archived": ("boolean", False),
        "all_projects": ("boolean", False),
        "include_current": ("boolean", False),
        "max_chars": ("integer", 60_000),
    },
    "conversation_read": {
        "id": ("string", None),
        "turn": ("integer", None),
        "last": ("integer", None),
        "include": ("array", ["chat", "reasoning", "tool_calls", "tool_results"]),
        "include_current": ("boolean", False),
        "max_chars": ("integer", 60_000),
    },
    "knowledge_search": {
        "query": ("string", None),
        "limit": ("integer", 20),
        "per_entry": ("integer", 0),
        "types": ("array", None),
        "topics": ("array", None),
        "in": ("string", None),
        "all_projects": ("boolean", False),
        "include_current": ("boolean", False),
        "max_chars": ("integer", 60_000),
    },
}
REQUIRED = {
    "conversation_grep": ["pattern"],
    "conversation_read": ["id"],
    "knowledge_search": ["query"],
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_types_and_defaults_are_those_of_the_specification(name: str) -> None:
    schema = TOOLS[name].make_arguments_schema()
    found = {key: (one["type"], one.get("default")) for key, one in schema["properties"].items()}
    assert found == PARAMETERS[name]
    assert schema["required"] == REQUIRED.get(name, [])
    assert schema["additionalProperties"] is False


def test_learn_has_the_schema_of_the_knowledge_room_key_for_key() -> None:
    schema = LEARN.make_arguments_schema()
    # The knowledge room has no budget for an answer.
    assert schema["properties"].pop("max_chars")["default"] == 60_000
    assert schema == define_learn_tool_parameters()


def test_every_description_says_that_what_comes_back_is_data() -> None:
    assert all(DATA_WARNING in tool.description for tool in TOOLS.values())


def test_learn_is_offered_with_its_topics_and_missing_when_there_is_nothing_to_learn(
    workspace_root: Any,
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "User Guide"}, off={"enable": False})
    builder.subject("guide/start.md", "x\n")
    builder.subject("off/start.md", "x\n")
    learn = list_offered_tools(load_knowledge(builder.workspace))[0]
    assert learn.name == "learn"
    assert "- guide (User Guide)" in learn.description
    assert "off" not in learn.description
    assert "data, not instructions" in learn.description

    builder.topics(guide={"title": "User Guide", "disabled": ["**"]})
    names = [tool.name for tool in list_offered_tools(load_knowledge(builder.workspace))]
    assert names == [
        "knowledge_search",
        "conversation_list",
        "conversation_grep",
        "conversation_read",
    ]


def test_defaults_are_filled_in_and_null_counts_as_left_out() -> None:
    assert check_and_convert_tool_arguments(
        TOOLS["conversation_list"], {"limit": None, "title_contains": "x"}
    ) == {
        "limit": 20,
        "offset": 0,
        "sort": "activity",
        "descending": True,
        "archived": False,
        "title_contains": "x",
        "agents": None,
        "labels": None,
        "file": None,
        "max_chars": 60_000,
    }


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("conversation_list", {"limt": 3}, 'unknown argument "limt", did you mean `limit`?'),
        ("conversation_list", {"limit": "3"}, '`limit` must be a whole number, not "3"'),
        ("conversation_list", {"limit": True}, "`limit` must be a whole number, not true"),
        ("conversation_list", {"limit": 2.5}, "`limit` must be a whole number, not 2.5"),
        ("conversation_list", {"limit": 0}, "`limit` must be at least 1, not 0"),
        ("conversation_list", {"archived": 1}, "`archived` must be true or false, not 1"),
        (
            "conversation_list",
            {"sort": "size"},
            '`sort` must be one of activity, created, updated, not "size"',
        ),
        ("conversation_grep", {}, "`pattern` is missing"),
        ("conversation_grep", {"pattern": "x", "ids": ["a", 3]}, '`ids` must be a list of strings, not ["a", 3]'),
        ("conversation_read", {"id": "1", "include": ["chat", "all"]}, "tool_results, not \"all\""),
        ("learn", {"topic": "t", "subjects": {}}, "`subjects` must be a string or a list of strings, not {}"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_in_words(name: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_and_convert_tool_arguments(TOOLS[name], arguments)
    assert says in raised.value.message


def test_all_mistakes_are_named_at_once_with_the_arguments_that_there_are() -> None:
    with pytest.raises(UsageError) as raised:
        check_and_convert_tool_arguments(TOOLS["conversation_read"], {"turn": "one", "lst": 1})
    assert raised.value.message.count(";") == 2
    assert raised.value.hint == "arguments: id, turn, last, include, include_current, max_chars"


def test_what_is_clearly_meant_is_taken_so() -> None:
    arguments = {"id": 17457886043, "turn": 2.0, "include": "chat"}
    found = check_and_convert_tool_arguments(TOOLS["conversation_read"], arguments)
    assert (found["id"], found["turn"], found["include"]) == ("17457886043", 2, ["chat"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    name=st.sampled_from(sorted(TOOLS)),
    data=st.data(),
)
def test_whatever_is_given_either_fits_the_schema_or_is_refused(name: str, data: Any) -> None:
    tool = TOOLS[name]
    keys = st.sampled_from(list(tool.parameters)) | st.text(max_size=6)
    arguments = data.draw(st.dictionaries(keys, json_values, max_size=4))
    try:
        found = check_and_convert_tool_arguments(tool, arguments)
    except UsageError:
        return
    assert list(found) == list(tool.parameters)
    for key, schema in tool.parameters.items():
        value = found[key]
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert value is None or any(FITS[kind](value) for kind in kinds), (key, value)


FITS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list) and all(isinstance(part, str) for part in value),
    "null": lambda value: value is None,
}


def test_numbers_that_no_machine_counts_to_are_refused_or_kept_whole() -> None:
    with pytest.raises(UsageError):
        check_and_convert_tool_arguments(TOOLS["conversation_read"], {"id": 10**5000})
    with pytest.raises(UsageError):
        check_and_convert_tool_arguments(TOOLS["conversation_list"], {"limit": math.inf})


def test_schema_prints_what_is_offered(
    workspace_root: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/start.md", "x\n")
    assert main(["-w", str(workspace_root), "tools", "schema", "--json"]) == 0
    tools = {one["name"]: one for one in json.loads(capfd.readouterr().out)}
    assert list(tools) == list(TOOLS)
    expected = {tool.name: tool for tool in list_offered_tools(load_knowledge(builder.workspace))}
    for name, tool in tools.items():
        assert tool["parameters"] == TOOLS[name].make_arguments_schema()
        assert tool["description"] == expected[name].description

    assert main(["-w", str(workspace_root), "tools", "schema"]) == 0
    text = capfd.readouterr().out
    assert "  limit (integer; default 20)\n      Number of passages, 1 to 100.\n" in text
    assert '  sort (string; default "activity"; one of activity, created, updated)\n' in text
