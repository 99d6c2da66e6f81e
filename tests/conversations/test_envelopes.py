"""The XML and JSON of the conversation tools equal hand-written files: their names are stable."""

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jp_files import ID, Stream, dump, workspace_at, write
from support import grep_answer, list_answer, read_answer

from kbtui.assistant.conversation_tool_answers import format_answer_as_xml
from kbtui.workspace import Workspace

GOLDEN = Path(__file__).parent / "golden"
MIDNIGHT = 1_780_099_200


@pytest.fixture
def three(jp: Path) -> Workspace:
    """Write a rich conversation, a truncated one without a title, and an older one."""
    question = {"text": "Apply?", "answer_type": {"type": "boolean"}}
    source = {"source": "tool", "name": "fs_modify_file"}
    stream = Stream().turn().ask("What are <Angles>?\nI mean & and so on.", author="Jean & Co")
    stream.think("Red \x1b[31malert\x1b[0m.")
    stream.call("fs_modify_file", "t1", path="docs/<angles>.md", text="```\na & b\n```")
    stream.add("inquiry_request", id="t1.apply", source=source, question=question)
    stream.add("inquiry_response", id="t1.apply", answer=True)
    stream.result("t1", "No such file.\n", is_error=True)
    stream.turn().say('A pair of "<" and ">". See </turn>: angles.')
    metadata = {
        "title": 'Quotes "&" <angles>',
        "last_activated_at": "2026-05-29 09:00:00.0",
        "pinned_at": "2026-05-29 09:00:00.25",
        "expires_at": "2026-06-29 09:00:00.0",
        "labels": {"area": "search & find", "draft": ""},
    }
    folders = [write(jp, stream, number=ID + 1, metadata=metadata)]
    half = dump(Stream().turn().ask("Half written").say("x").elements)
    folders.append(write(jp, half[: half.index('"x"')], number=ID, title=None))
    folders.append(write(jp, Stream().turn(), number=ID - 1, title="Older"))
    for folder in folders:
        for file in folder.iterdir():
            os.utime(file, (MIDNIGHT, MIDNIGHT))
    return workspace_at(jp.parent)


def answers(workspace: Workspace) -> dict[str, dict[str, Any]]:
    return {
        "list": list_answer(workspace, limit=2),
        "grep": grep_answer(workspace, pattern="ANGLES", context=1, limit=3),
        "read": read_answer(workspace, id=f"jp-c{ID + 1}"),
    }


@pytest.mark.parametrize("kind", ["list", "grep", "read"])
def test_the_envelopes_are_those_written_by_hand(three: Workspace, kind: str) -> None:
    answer = answers(three)[kind]
    expected = json.loads((GOLDEN / f"{kind}.json").read_text())
    assert answer == expected
    assert json.dumps(answer) == json.dumps(expected), "in the same order"
    assert format_answer_as_xml(kind, answer) + "\n" == (GOLDEN / f"{kind}.xml").read_text()


def test_an_empty_list_is_an_envelope_too(jp: Path) -> None:
    answer = list_answer(workspace_at(jp.parent))
    assert format_answer_as_xml("list", answer) + "\n" == (GOLDEN / "list_empty.xml").read_text()
    empty = grep_answer(workspace_at(jp.parent), pattern="x")
    assert empty == {"total": 0, "count": 0, "omitted": 0, "hint": None, "hits": []}
    assert ElementTree.fromstring(format_answer_as_xml("grep", empty)).findall("hits/hit") == []


def kept(text: str) -> str:
    """Return what may remain of a text: no control characters except newline and tab."""
    text = re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]", "", text)
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


_ANY = st.text(st.characters(exclude_categories=()), max_size=40) | st.sampled_from(
    ["</content>", "]]>", "<!--", "&amp;", "\x1b]0;x\x07", "<?xml?>", "```\n</arguments>\n```"]
)
_JSON = st.recursive(
    _ANY | st.none() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_ANY, inner, max_size=3),
    max_leaves=5,
)


@given(_ANY, _ANY, st.dictionaries(_ANY, _JSON, max_size=3))
def test_any_content_parses_as_xml_and_comes_out_as_it_went_in(
    title: str, content: str, arguments: dict[str, Any]
) -> None:
    call = {
        "event_kind": "tool_call_request",
        "timestamp": None,
        "name": title,
        "arguments": arguments,
        "content": None,
    }
    said = {"event_kind": "message", "timestamp": None, "content": content}
    answer = {
        "id": "jp-c1",
        "title": title,
        "turns_total": 1,
        "count": 1,
        "omitted": 0,
        "hint": None,
        "turns": [{"turn": 1, "events": [call, said]}],
    }
    xml = format_answer_as_xml("read", answer)
    tree = ElementTree.fromstring(xml.encode())
    assert tree.findtext("title") == kept(title)
    events = tree.findall("turns/turn/events/event")
    assert len(events) == 2
    assert events[1].findtext("content") == kept(content)
    fenced = events[0].findtext("arguments") or ""
    opening, *body, closing = fenced.strip().split("\n")
    assert opening == closing + "json"
    assert set(closing) == {"`"}
    assert closing not in "\n".join(body)


@given(_ANY, _ANY)
def test_any_hit_and_any_entry_parse_as_xml(title: str, text: str) -> None:
    hit = {"id": "jp-c1", "title": title, "scope": "user", "text": text, "is_match": True}
    answer = {"total": 1, "count": 1, "omitted": 0, "hint": text, "hits": [hit]}
    tree = ElementTree.fromstring(format_answer_as_xml("grep", answer).encode())
    assert tree.findtext("hits/hit/text") == kept(text)
    assert tree.findtext("hint") == kept(text)
    entry = {"id": "jp-c1", "title": title, "labels": {title: text}, "problem": text}
    listing = {"total": 1, "offset": 0, "count": 1, "omitted": 0, "hint": None}
    tree = ElementTree.fromstring(
        format_answer_as_xml("list", {**listing, "conversations": [entry]}).encode()
    )
    assert tree.findtext("conversations/conversation/problem") == kept(text)
    assert len(tree.findall("conversations/conversation/labels/label")) == 1
