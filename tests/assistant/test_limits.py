"""No answer exceeds the limit, and each answer that is cut says how to continue."""

import re
from typing import Any

import pytest
from assistant_support import LIVE
from support import Builder, asked, said

from kbtui.assistant.assistant_tools import ANSWER_LIMIT, answer_tool_call
from kbtui.cli.main import main
from kbtui.library import Library

TITLE = "& so on " + "&" * 4_000


@pytest.fixture
def big(built: Builder) -> Builder:
    """Write a workspace in which the answer of every tool exceeds the limit."""
    for number in range(200):
        built.subject(f"guide/heap/s{number:03}.md", f"# Heap {number}\n\n" + "ermine stoat\n" * 60)
    built.subject("guide/long.md", "".join(f"line {n} of a long text\n" for n in range(9_000)))
    built.subject("guide/wide.md", "x" * 200_000 + "\nend\n")
    line = "The ermine met " + "a stoat " * 45
    for number in range(20, 50):
        turns = [[asked(f"{line}{turn}"), said("\n".join([line] * 40))] for turn in range(4)]
        built.conversation(number, turns, title=f"{number} {TITLE}")
    return built


@pytest.mark.parametrize(
    ("name", "arguments", "how"),
    [
        ("conversation_grep", {"pattern": "e", "limit": 1_000_000}, r'continue with ids=\["jp-c\d+"'),
        ("conversation_grep", {"pattern": "e", "limit": 10**6, "context": 10**6}, "continue with ids="),
        ("conversation_list", {"limit": 10**6}, r"\d+ more: use offset=\d+"),
        ("learn", {"topic": "guide", "subjects": "**"}, "call `learn` again with a few of these names in `subjects`"),
        ("learn", {"topic": "guide", "subjects": "long"}, r'topic "guide", subjects "long:\d+-9000"'),
        ("learn", {"topic": "guide", "subjects": "wide"}, 'topic "guide", subjects "wide:2"'),
        ("learn", {"topic": "guide", "subjects": ["x" * 400] * 2_000}, "Nothing in topic"),
        ("learn", {"topic": "x" * 10**6}, 'Unknown topic "xxx'),
        ("conversation_read", {"id": f"jp-c{LIVE + 30}"}, r"use last=\d+"),
        ("conversation_read", {"id": f"jp-c{LIVE + 30}:1"}, "turn 1 of 4"),
        ("conversation_grep", {"pattern": "e", **{f"x{n}": 1 for n in range(9_000)}}, "ask for less"),
    ],
)  # fmt: skip
def test_an_answer_has_an_end_and_says_how_to_go_on(
    big: Builder, library: Library, name: str, arguments: dict[str, Any], how: str
) -> None:
    for masked in (False, True):
        reply = answer_tool_call(name, arguments, library, masked=masked)
        assert len(reply.text) <= ANSWER_LIMIT
        assert re.search(how, reply.text), reply.text[-500:]
        assert "kbtui conversation" not in reply.text


def test_a_search_gives_the_best_passages_that_fit(big: Builder, library: Library) -> None:
    few = answer_tool_call("knowledge_search", {"query": "ermine stoat", "limit": 5}, library).text
    many = answer_tool_call(
        "knowledge_search", {"query": "ermine stoat", "limit": 100}, library
    ).text
    assert len(many) <= ANSWER_LIMIT
    assert many.count("\n[entry ") > 20
    assert few.split("\n[entry ")[1:3] == many.split("\n[entry ")[1:3]
    assert (
        "more passages do not fit into 60,000 characters: narrow the search with more words" in many
    )
    assert "do not fit" not in few


def test_a_list_is_complete_page_by_page(big: Builder, library: Library) -> None:
    found: list[str] = []
    arguments = {"limit": 1_000}
    for _ in range(40):
        text = answer_tool_call("conversation_list", arguments, library).text
        assert len(text) <= ANSWER_LIMIT
        found += re.findall(r"<id>(jp-c\d+)</id>", text)
        offset = re.search(r"use offset=(\d+)", text)
        if offset is None:
            break
        arguments["offset"] = int(offset[1])
    assert len(found) == len(set(found)) == 32


def test_grep_goes_on_with_the_conversations_that_it_names(big: Builder, library: Library) -> None:
    arguments: dict[str, Any] = {"pattern": "ermine", "limit": 10**6, "scopes": ["user"]}
    seen: set[str] = set()
    for _ in range(40):
        text = answer_tool_call("conversation_grep", arguments, library).text
        seen |= set(re.findall(r"<id>(jp-c\d+)</id>", text))
        named = re.findall(r'"(jp-c\d+)"', text.partition("</hint>")[0])
        if not named:
            break
        arguments["ids"] = named
    assert len(seen) > 10


def test_a_person_has_no_limit(big: Builder, capfd: pytest.CaptureFixture[str]) -> None:
    root = str(big.root)
    assert main(["-w", root, "c", "grep", "e", "--limit", "1000000", "--format", "xml"]) == 0
    assert len(capfd.readouterr().out) > 1_000_000
    assert main(["-w", root, "learn", "guide", "long"]) == 0
    assert capfd.readouterr().out.endswith("line 8999 of a long text\n")


def test_the_refusal_names_the_size_that_the_answer_would_have(
    big: Builder, library: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    refused = answer_tool_call("conversation_read", {"id": f"jp-c{LIVE + 30}"}, library)
    assert refused.is_error
    named = re.search(r"would have ([\d,]+) characters; the limit is 60,000", refused.text)
    assert named
    main(["-w", str(big.root), "c", "read", f"jp-c{LIVE + 30}", "--format", "xml"])
    whole = capfd.readouterr().out.rstrip("\n")
    # People get a longer title.
    cut = len(re.search("<title>(.*)</title>", whole)[1]) - len("30 ") if "<title>" in whole else 0  # type: ignore[index]
    assert int(named[1].replace(",", "")) <= len(whole)
    assert len(whole) - int(named[1].replace(",", "")) <= cut


def test_what_a_source_names_can_be_learned(built: Builder, library: Library) -> None:
    found = answer_tool_call("knowledge_search", {"query": "aardvark dusk"}, library).text
    source = re.findall(r"Sources: ([^,\n]+)", found)[0]
    assert source == "guide/start:1-3"
    learned = answer_tool_call("learn", {"topic": source}, library)
    assert learned.text == "# Getting started\n\nFeed the aardvark at dusk.\n"
    assert answer_tool_call("learn", {"topic": "guide", "subjects": "start:3"}, library).text == (
        "Feed the aardvark at dusk.\n"
    )


def test_the_same_lines_come_on_the_command_line(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in (["guide", "start:3"], ["guide/start:3"]):
        assert main(["-w", str(built.root), "learn", *words]) == 0
        assert capfd.readouterr().out == "Feed the aardvark at dusk.\n"


def test_scope_all_is_accepted_and_is_the_default(built: Builder, library: Library) -> None:
    everywhere = answer_tool_call("conversation_grep", {"pattern": "badger"}, library)
    named = answer_tool_call("conversation_grep", {"pattern": "badger", "scopes": ["all"]}, library)
    assert named == everywhere
    assert not named.is_error


@pytest.mark.parametrize("other", [{"turn": 1}, {"last": 1}])
def test_two_turns_at_once_are_refused(library: Library, other: dict[str, int]) -> None:
    reply = answer_tool_call("conversation_read", {"id": f"jp-c{LIVE}:2", **other}, library)
    assert reply.is_error
    assert "the id selects turn 2" in reply.text
    same = answer_tool_call("conversation_read", {"id": f"jp-c{LIVE}:2", "turn": 2}, library)
    assert not same.is_error


def test_a_wrong_type_is_answered_with_the_types_that_there_are(
    built: Builder, library: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    reply = answer_tool_call("knowledge_search", {"query": "badger", "types": ["subject"]}, library)
    assert reply.is_error
    assert "unknown type 'subject'" in reply.text
    assert "note" in reply.text
    assert "conversation" in reply.text
    right = answer_tool_call(
        "knowledge_search", {"query": "badger", "types": ["conversation"]}, library
    )
    assert not right.is_error
    one = {"query": "badger", "types": ["conversation", "recipe"]}
    assert answer_tool_call("knowledge_search", one, library).text == right.text, "types are open"
    assert main(["-w", str(built.root), "search", "badger", "--type", "subject"]) == 2
    assert "unknown type 'subject'" in capfd.readouterr().err


def test_a_hint_for_an_assistant_names_the_tool(library: Library) -> None:
    reply = answer_tool_call("conversation_read", {"id": "jp-c1"}, library)
    assert reply.is_error
    assert "`conversation_list` lists the ids" in reply.text
    assert "kbtui" not in reply.text
