"""Grep finds the same lines as a simple search of every line of every event."""

import re
import time
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jp_files import ID, Stream, dump, standard, url_safe, workspace_at, write
from support import grep_answer

from kbtui.conversations.conversation_data_types import ConversationInfo, format_event_text
from kbtui.conversations.conversation_event_kinds import EVENT_KINDS
from kbtui.conversations.conversation_grep import (
    SCOPES,
    GrepQuery,
    LiteralGrepPattern,
    RegexGrepPattern,
    grep_turns,
)
from kbtui.conversations.formats.conversation_format import TurnsForSearching
from kbtui.conversations.formats.damage_tolerant_file_reader import (
    parse_json_array_and_mark_damaged_elements,
)
from kbtui.conversations.formats.jp.jp_conversation_loader import (
    load_turns_of_jp_conversation_for_searching,
)
from kbtui.conversations.formats.jp.jp_event_parser import JpEventParser
from kbtui.terminal_text import format_readable_json

_WORD = st.text(st.sampled_from('abAB kKsİſ\u212aéÉ"\\/\n\t.…😀'), max_size=12)
_ELEMENT = st.one_of(
    st.builds(lambda t: {"type": "chat_request", "content": t}, _WORD),
    st.builds(lambda t: {"type": "chat_response", "message": t}, _WORD),
    st.builds(lambda t: {"type": "chat_response", "reasoning": t}, _WORD),
    st.builds(lambda a, b: {"type": "chat_response", "data": {a: b}}, _WORD, _WORD),
    st.builds(lambda t: {"type": "chat_response", "data": t}, _WORD),
    st.builds(
        lambda n, k, v: {
            "type": "tool_call_request",
            "id": "1",
            "name": n,
            "arguments": {k: standard(v), "n": [1.5, {"x": v}]},
        },
        _WORD, _WORD, _WORD,
    ),
    st.builds(
        lambda t, e: {"type": "tool_call_response", "id": "1", "content": e(t), "is_error": False},
        _WORD, st.sampled_from([standard, url_safe, str, lambda t: standard(url_safe(t * 5))]),
    ),
    st.builds(
        lambda t: {"type": "inquiry_request", "id": "q", "source": {}, "question": {"text": t}},
        _WORD,
    ),
    st.builds(lambda t: {"type": "inquiry_response", "id": "q", "answer": t}, _WORD),
    st.builds(lambda t: {"type": "novelty", "said": t}, _WORD),
    st.builds(
        lambda t, u: {"type": "chat_request", "content": t, "resources": [{"uri": u, "text": t}]},
        _WORD, _WORD,
    ),
    st.builds(
        lambda t, k: {"type": "tool_call_response", "id": "1", "content": [{"type": k, "text": t}]},
        _WORD, st.sampled_from(["text", "novelty"]),
    ),
    st.sampled_from(
        [{"type": "turn_start"}, {"type": "config_delta", "delta": {}}, {"type": "novelty"}, None,
         {"type": "chat_request"}, {"type": "tool_call_response", "content": None}]
    ),
)  # fmt: skip


_PATTERN = st.text(st.sampled_from('abAB ks"\\/.éÉKİſ\u212a{:,1'), min_size=1, max_size=4)


def search_every_line(data: bytes, query: GrepQuery) -> list[tuple[str, int, str]]:
    """Return every matching line, by decoding all events and testing each line alone."""
    builder = JpEventParser()
    builder.parse_elements(parse_json_array_and_mark_damaged_elements(data, []))
    return [
        (EVENT_KINDS[event.kind].role, turn.number, line.removesuffix("\r"))
        for turn in builder.turns
        for event in turn.events
        if EVENT_KINDS[event.kind].role in query.scopes
        for line in format_event_text(event, format_readable_json).split("\n")
        if query.pattern.find_match_spans(line)
    ]


def decode(path: Path) -> TurnsForSearching:
    """Decode the events in a file that is in no workspace."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    info = ConversationInfo("jp-c1", None, path.parent, path, None, False, "external", at)
    return load_turns_of_jp_conversation_for_searching(info)


def search(path: Path, query: GrepQuery) -> tuple[int, list[tuple[str, Any, str]]]:
    found = grep_turns(decode(path).turns, query)
    return found.count, [(line.scope, line.turn, line.text) for line in found.lines]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None
)
@given(
    elements=st.lists(_ELEMENT, max_size=7),
    pattern=_PATTERN,
    ignore_case=st.booleans(),
    scopes=st.sets(st.sampled_from(SCOPES), min_size=1),
    ascii_only=st.booleans(),
)
def test_what_is_found_is_what_plain_reading_finds(
    tmp_path: Path,
    elements: list[Any],
    pattern: str,
    ignore_case: bool,
    scopes: set[str],
    ascii_only: bool,
) -> None:
    elements = [
        {"timestamp": "2026-01-01 00:00:00.0", **element} if element else element
        for element in elements
    ]
    text = dumps(elements, indent=2, ensure_ascii=ascii_only) + "\n"
    path = tmp_path / "events.json"
    path.write_text(text)
    needle = LiteralGrepPattern(pattern, ignore_case)
    query = GrepQuery(needle, frozenset(scopes), limit=1000)
    expected = search_every_line(text.encode(), query)
    assert search(path, query) == (len(expected), expected)
    first = GrepQuery(needle, frozenset(scopes), limit=1)
    assert search(path, first) == (len(expected), expected[:1])
    with_context = GrepQuery(needle, frozenset(scopes), context=1, limit=1000)
    around = grep_turns(decode(path).turns, with_context)
    lines = [(line.scope, line.turn, line.text) for line in around.lines if line.is_match]
    assert (around.count, lines) == (len(expected), expected)


_LETTERS = st.sampled_from([*"abAB1 _é😀."])
_ATOM = st.one_of(
    _LETTERS.map(re.escape),
    st.sampled_from([".", "[ab]", "[^a]", r"\d", r"\w", r"\b", "^", "$", r"\A", r"\z", r"(?-m:^)"]),
)
_EXPRESSION = st.recursive(
    _ATOM,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.builds(lambda a, b: f"(?:{a}|{b})", inner, inner),
        st.builds(lambda a, sign: f"(?:{a}){sign}", inner, st.sampled_from(["*", "+", "?", "{1,2}"])),
    ),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(
    text=st.lists(st.sampled_from([*"abAB1 _é😀.\n\n", "\r", "\r\n", "\ud800"]), max_size=30).map(
        "".join
    ),
    expression=_EXPRESSION,
    ignore_case=st.booleans(),
)
def test_an_expression_matches_the_lines_that_python_matches_one_by_one(
    text: str, expression: str, ignore_case: bool
) -> None:
    same = expression.replace(r"\z", r"\Z").replace("(?-m:^)", "^")
    plain = re.compile(same, re.ASCII | (re.IGNORECASE if ignore_case else 0))
    expected, start = [], 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        shown = re.sub(r"\r?\n", "", line).replace("\ud800", "?")
        if match := plain.search(shown):
            end = start + len(line.removesuffix("\n"))
            expected.append((start, end, start + match.start()))
        start += len(line)
    pattern = RegexGrepPattern(expression, ignore_case)
    assert list(pattern.find_matching_lines(text)) == expected
    for start, end, _ in expected:
        for first, last in pattern.find_match_spans(text[start:end]):
            assert start <= start + first < start + last <= end


def test_no_expression_backtracks() -> None:
    text = "a" * 100_000 + "\n" + "ab" * 50_000
    began = time.monotonic()
    for expression in ("(a+)+$x", "(a|aa)+c", "(a*)*b{2}", "(.*a){10}x"):
        assert list(RegexGrepPattern(expression).find_matching_lines(text)) == []
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "where",
    [
        "message",
        "reasoning",
        "content",
        "data",
        "question",
        "encoded",
        "url_safe",
        "argument",
        "name",
    ],
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None
)
@given(text=st.text(min_size=1, max_size=20), data=st.data())
def test_any_piece_of_any_text_is_found(
    jp: Path, where: str, text: str, data: st.DataObject
) -> None:
    """Any part of any text is found, in either case."""
    stream = Stream().turn().ask("q")
    if where in {"message", "reasoning"}:
        stream.add("chat_response", **{where: text})
    elif where == "content":
        stream.ask(text)
    elif where == "data":
        stream.add("chat_response", data=text)
    elif where == "question":
        stream.add("inquiry_request", id="i", source={"source": "user"}, question={"text": text})
    elif where == "argument":
        text = text.translate({**dict.fromkeys(range(32)), 34: None, 92: None}) or "x"
        stream.call("tool", "1", key=text)
    elif where == "name":
        stream.call(text, "1")
    else:
        encoded = standard(text) if where == "encoded" else url_safe(text)
        stream.add("tool_call_response", id="1", content=encoded, is_error=False)
    path = write(jp, stream, base=None) / "events.json"
    lines = [line for line in text.split("\n") if line]
    if not lines:
        return
    line = data.draw(st.sampled_from(lines))
    start = data.draw(st.integers(0, len(line) - 1))
    piece = line[start : data.draw(st.integers(start + 1, len(line)))]
    assert search(path, GrepQuery(LiteralGrepPattern(piece, ignore_case=False)))[0] >= 1
    assert search(path, GrepQuery(LiteralGrepPattern(piece)))[0] >= 1


@settings(max_examples=50, deadline=None)
@given(
    text=st.text(st.sampled_from("kKsSiIıİſ\u212aåÅ\u212bßẞéÉжЖωΩ\u2126aA\U00010400\U00010428")),
    pattern=st.text(
        st.sampled_from("kKsSiIıİſ\u212aåÅ\u212bßẞéÉжЖωΩ\u2126aA\U00010400"), min_size=1, max_size=3
    ),
    ignore_case=st.booleans(),
)
def test_a_line_that_has_the_pattern_in_either_case_matches(
    text: str, pattern: str, ignore_case: bool
) -> None:
    needle = LiteralGrepPattern(pattern, ignore_case)
    assert len(list(needle.find_matching_lines(text))) == bool(needle.find_match_spans(text))


def test_a_match_over_two_pieces_of_one_message_is_found(jp: Path) -> None:
    path = write(jp, Stream().turn().say("the nee").say("dle"), base=None) / "events.json"
    assert search(path, GrepQuery(LiteralGrepPattern("needle"))) == (
        1,
        [("assistant", 1, "the needle")],
    )


def test_a_damaged_file_is_searched_and_named(jp: Path) -> None:
    whole = dump(Stream().turn().ask("hit before").say("hit after").elements)
    for text in (
        whole[:-40],
        whole.replace('"type": "turn_start"', '"type": turn_start'),
        "\ufeff" + whole,
    ):
        folder = write(jp, text, title=None)
        problem = decode(folder / "events.json").problem
        assert search(folder / "events.json", GrepQuery(LiteralGrepPattern("hit before")))[0] == 1
        assert problem
        answer = grep_answer(workspace_at(jp.parent), pattern="absent")
        assert answer["hits"] == []
        assert f"jp-c{ID}: {problem}" in answer["hint"]


def test_many_matches_in_one_conversation_are_all_given_in_order(jp: Path) -> None:
    stream = Stream().turn()
    for number in range(20):
        stream.ask(f"hit {number}").used("x", str(number), f"a hit\nhit in result {number}")
    write(jp, stream, number=ID, title="hit")
    write(jp, Stream().turn().ask("hit of old"), number=ID - 10_000)
    answer = grep_answer(workspace_at(jp.parent), pattern="hit", limit=45)
    texts = [hit["text"] for hit in answer["hits"]]
    expected = [text for n in range(20) for text in (f"hit {n}", "a hit", f"hit in result {n}")]
    assert texts == ["hit", *expected][:45]
    assert (answer["total"], answer["omitted"]) == (62, 17)
    everything = grep_answer(workspace_at(jp.parent), pattern="hit", limit=1000, context=1)
    assert [hit["text"] for hit in everything["hits"] if hit["is_match"]] == [
        "hit", *expected, "hit of old"
    ]  # fmt: skip
