"""Events are decoded, paired, joined and counted as JP does."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jp_files import BASE, Stream, dump, events_of, load, standard, texts, url_safe, write

from kbtui.conversations.conversation_data_types import ConversationEvent, Turn
from kbtui.conversations.formats.jp.jp_event_parser import JpEventParser
from kbtui.dates import format_time_as_rfc3339_utc, parse_timestamp
from kbtui.references import decode_jp_id_creation_time


def test_a_conversation_of_today_reads_as_it_was_said(jp: Path) -> None:
    stream = Stream().turn().ask("How does init work?", author="Jean")
    stream.think("Let me look.", metadata={"anthropic_thinking_signature": standard("xyz")})
    stream.used("fs_read_file", "toolu_1", "fn main() {}\n", path="src/main.rs", lines=[1, 20])
    stream.say("It makes a directory.").turn().ask("Thanks")
    write(jp, stream)
    conversation = load(jp.parent)
    assert conversation.problems == []
    assert [turn.number for turn in conversation.turns] == [1, 2]
    request, thought, call, result, answer = conversation.turns[0].events
    assert (request.kind, request.text, request.author) == (
        "chat_request",
        "How does init work?",
        "Jean",
    )
    assert (thought.kind, thought.text) == ("reasoning", "Let me look.")
    assert (call.name, call.arguments) == (
        "fs_read_file",
        {"path": "src/main.rs", "lines": [1, 20]},
    )
    assert (result.text, result.is_error, result.name) == ("fn main() {}\n", False, "fs_read_file")
    assert call.result is result
    assert result.request is call
    assert (call.call, result.call) == (1, 1)
    assert (answer.kind, answer.text) == ("message", "It makes a directory.")
    assert request.timestamp == datetime(2026, 5, 29, 10, 0, 1, 500_000, UTC)
    assert conversation.assistant == "Architect"
    assert conversation.model == "anthropic/claude-opus-4-8"
    assert conversation.attachments == ["file://a.md"]
    assert conversation.info.events_count == 8
    assert conversation.info.last_event_at == datetime(2026, 5, 29, 10, 0, 7, 500_000, UTC)


def test_an_event_that_was_read_is_as_one_that_was_made(jp: Path) -> None:
    write(jp, Stream().turn().ask("Hello").think("Hm").say("Hello"))
    (turn,) = load(jp.parent).turns
    for event in turn.events:
        assert event == ConversationEvent(event.kind, event.timestamp, event.text, event.index)


def test_the_inlined_base_configuration_of_2025_is_no_content(jp: Path) -> None:
    """An element has configuration keys next to its type, which JP itself cannot load."""
    stream = Stream().add("config_delta", inherit=True, **BASE).ask("First").say("Yes")
    stream.ask("Second").say("No")
    write(jp, stream, base=None)
    conversation = load(jp.parent)
    assert texts(conversation) == ["First", "Yes", "Second", "No"]
    assert conversation.assistant == "Architect"
    assert conversation.model == "anthropic/claude-opus-4-8"
    assert conversation.turns[0].model == "anthropic/claude-opus-4-8"
    assert conversation.problems == []
    assert len(conversation.turns) == 1, "without turn_start all requests are one turn"


def test_a_base_configuration_as_first_delta_is_read_as_one(jp: Path) -> None:
    write(jp, Stream().delta(**BASE).turn().ask("Hi"), base=None)
    conversation = load(jp.parent)
    assert conversation.model == "anthropic/claude-opus-4-8"
    assert conversation.turns[0].model == "anthropic/claude-opus-4-8"
    assert texts(conversation) == ["Hi"]
    assert conversation.problems == []


def test_after_an_interrupted_upgrade_the_first_delta_counts_over_the_base(jp: Path) -> None:
    stream = Stream().delta(assistant={"model": {"id": "flash"}}).ask("Hi")
    write(jp, stream, base=BASE)
    conversation = load(jp.parent)
    assert conversation.model == "flash"
    assert conversation.assistant == "Architect"
    assert conversation.problems == []


@pytest.mark.parametrize("events", [[], Stream().turn().ask("Hi").elements])
def test_events_without_any_base_configuration_are_shown_with_a_warning(
    jp: Path, events: list[object]
) -> None:
    write(jp, events, base=None)
    conversation = load(jp.parent)
    assert texts(conversation) == (["Hi"] if events else [])
    assert any("base configuration" in problem for problem in conversation.problems)


def test_results_in_the_old_alphabet_and_tool_ids_that_repeat(jp: Path) -> None:
    """A response belongs to the oldest request without one."""
    text = "ﬁne ~~~ öäü ??? >>>"
    assert url_safe(text) != standard(text)
    stream = Stream().delta(**BASE).ask("Change it")
    stream.call("fs_modify_file", "fs_modify_file_0", path="a")
    stream.add("tool_call_response", id="fs_modify_file_0", content=url_safe(text), is_error=False)
    stream.call("fs_modify_file", "fs_modify_file_0", path="b")
    stream.call("fs_modify_file", "fs_modify_file_0", path="c")
    stream.result("fs_modify_file_0", "for b").result("fs_modify_file_0", "for c", is_error=True)
    write(jp, stream, base=None)
    calls = [event for event in events_of(load(jp.parent)) if event.kind == "tool_call_request"]
    paths = {event.arguments["path"]: event for event in calls if event.arguments}
    results = {path: event.result for path, event in paths.items()}
    assert results["a"] is not None
    assert results["a"].text == text
    assert results["b"] is not None
    assert results["b"].text == "for b"
    assert results["c"] is not None
    assert (results["c"].text, results["c"].is_error) == ("for c", True)
    assert [event.call for event in calls] == [1, 2, 3]


def test_a_result_that_a_later_jp_encoded_again_is_still_readable(jp: Path) -> None:
    text = "line one\nline two ~~~ ??? and some more to be long enough"
    stream = Stream().turn().call("x", "1")
    stream.add("tool_call_response", id="1", content=standard(url_safe(text)), is_error=False)
    write(jp, stream)
    assert events_of(load(jp.parent))[1].text == text


def test_rendered_arguments_are_decoded_twice_and_signatures_left_alone(jp: Path) -> None:
    stream = Stream().turn()
    stream.add(
        "tool_call_request",
        id="1",
        name="x",
        arguments={},
        metadata={
            "rendered_arguments": standard(standard("\x1b[1mbold\x1b[0m")),
            "note": standard("kept"),
        },
    )
    signature = standard(standard("opaque"))
    stream.think("", metadata={"anthropic_thinking_signature": signature})
    write(jp, stream)
    call, thought = events_of(load(jp.parent))
    assert call.metadata == {"rendered_arguments": "\x1b[1mbold\x1b[0m", "note": "kept"}
    assert thought.metadata == {"anthropic_thinking_signature": signature}
    assert thought.text == ""


def test_what_was_never_encoded_stays_as_it_is(jp: Path) -> None:
    stream = Stream().turn().ask(standard("chat text is never decoded"))
    stream.add("tool_call_request", id="1", name="x", arguments={"path": "plain path.txt", "n": 3})
    stream.add("tool_call_response", id="1", content="not encoded at all", is_error=False)
    write(jp, stream)
    request, call, result = events_of(load(jp.parent))
    assert request.text == standard("chat text is never decoded")
    assert call.arguments == {"path": "plain path.txt", "n": 3}
    assert result.text == "not encoded at all"


def test_a_leading_configuration_may_be_later_than_what_follows(jp: Path) -> None:
    """Times are not monotonic: the order of the file counts."""
    stream = Stream().delta(**BASE).ask("Hi").say("Hello")
    stream.elements[0]["timestamp"] = "2026-06-05 10:00:00.0"
    write(jp, stream, base=None)
    conversation = load(jp.parent)
    assert texts(conversation) == ["Hi", "Hello"]
    assert conversation.turns[0].started_at == datetime(2026, 5, 29, 10, 0, 1, 500_000, UTC)


def test_an_empty_turn_counts_and_an_unanswered_inquiry_stays_open(jp: Path) -> None:
    """The file has an empty turn in the middle, and an inquiry without a response."""
    question = {"text": "Apply?", "answer_type": {"type": "boolean"}, "default": True}
    source = {"source": "tool", "name": "fs_modify_file"}
    stream = Stream().turn().ask("One")
    stream.add("inquiry_request", id="t1.apply_changes", source=source, question=question)
    stream.add("inquiry_response", id="t1.apply_changes", answer=True)
    stream.add("inquiry_request", id="t2.apply_changes", source=source, question=question)
    stream.turn().turn().ask("Three")
    write(jp, stream)
    conversation = load(jp.parent)
    assert [len(turn.events) for turn in conversation.turns] == [4, 0, 1]
    _, first, answer, second = conversation.turns[0].events
    assert (first.text, first.name) == ("Apply?", "fs_modify_file")
    assert first.result is answer
    assert (answer.data, answer.text) == (True, "true")
    assert second.result is None
    assert conversation.problems == []


def test_an_archived_conversation_without_turn_start_has_one_turn(jp: Path) -> None:
    """The file has no turn marks; the base configuration is another file."""
    metadata = {
        "title": "Old",
        "last_activated_at": "2025-12-17 13:15:21.788991",
        "archived_at": "2026-04-17 17:02:57.242782",
    }
    stream = Stream().ask("One").say("1").ask("Two").say("2")
    write(jp, stream, archived=True, metadata=metadata)
    conversation = load(jp.parent)
    assert conversation.info.archived
    assert conversation.info.archived_at == datetime(2026, 4, 17, 17, 2, 57, 242782, UTC)
    assert len(conversation.turns) == 1
    assert texts(conversation) == ["One", "1", "Two", "2"]


def test_a_delta_at_the_end_is_the_last_element_but_no_event(jp: Path) -> None:
    """The last activity is the time of the last element of any type."""
    stream = Stream().turn().ask("Hi").delta(assistant={"name": "Other"})
    metadata = {"title": "T", "last_activated_at": "2026-05-29 09:00:00.0"}
    write(jp, stream, metadata=metadata)
    conversation = load(jp.parent)
    assert conversation.info.last_event_at == parse_timestamp("2026-05-29T10:00:02.5Z")
    assert conversation.info.last_activated_at == parse_timestamp("2026-05-29T09:00:00Z")
    assert conversation.assistant == "Other"
    assert conversation.turns[0].model == "anthropic/claude-opus-4-8"


def test_a_model_holds_from_the_turn_after_its_delta(jp: Path) -> None:
    stream = Stream().turn().ask("a").delta(assistant={"model": {"id": "flash"}}).turn().ask("b")
    write(jp, stream)
    conversation = load(jp.parent)
    assert [turn.model for turn in conversation.turns] == ["anthropic/claude-opus-4-8", "flash"]
    assert conversation.model == "flash"


@pytest.mark.parametrize(
    ("attachments", "expected"),
    [
        (["file://b.md"], ["file://a.md", "file://b.md"]),
        ({"value": ["file://b.md"], "strategy": "replace"}, ["file://b.md"]),
        ({"value": ["file://b.md"]}, ["file://a.md", "file://b.md"]),
        (
            [{"type": "cmd", "path": "rg", "params": {"args": ["--files", "a b"]}}],
            ["file://a.md", "cmd://rg?arg=--files&arg=a%20b"],
        ),
        ([{"type": "file"}, 7, None, {"path": "x"}], ["file://a.md", "file://"]),
        ("nonsense", ["file://a.md"]),
    ],
)
def test_attachments_of_any_form_are_named(
    jp: Path, attachments: object, expected: list[str]
) -> None:
    write(jp, Stream().turn().ask("a").delta(conversation={"attachments": attachments}))
    assert load(jp.parent).attachments == expected


def test_pieces_of_one_message_are_one_text_at_the_first_ones_time(jp: Path) -> None:
    """Adjacent parts of a message are joined without a separator, up to the next other event."""
    stream = Stream().turn().ask("Hi").think("let ").think("me", metadata={"k": standard("v")})
    stream.say("```py\npri").delta(style={}).say("nt(1)\n").say("```").used("x", "1", "r").say(
        "End"
    )
    write(jp, stream)
    events = events_of(load(jp.parent))
    assert [(event.kind, event.text) for event in events] == [
        ("chat_request", "Hi"),
        ("reasoning", "let me"),
        ("message", "```py\nprint(1)\n```"),
        ("tool_call_request", ""),
        ("tool_call_response", "r"),
        ("message", "End"),
    ]
    assert events[1].metadata == {"k": "v"}
    assert events[2].index == 4
    assert events[2].timestamp == parse_timestamp("2026-05-29 10:00:04.5")


def test_pieces_in_two_turns_are_two_texts(jp: Path) -> None:
    write(jp, Stream().turn().say("one").turn().say("two"))
    assert texts(load(jp.parent)) == ["one", "two"]


def test_structured_answers_keep_their_data(jp: Path) -> None:
    schema = {"type": "object"}
    stream = Stream().turn().ask("Give me JSON", schema=schema)
    stream.add("chat_response", data={"answer": [1, {"deep": "ü"}]})
    stream.add("chat_response", data="fragment")
    write(jp, stream)
    request, answer, fragment = events_of(load(jp.parent))
    assert request.text == "Give me JSON"
    assert answer.kind == "structured"
    assert answer.data == {"answer": [1, {"deep": "ü"}]}
    assert '"deep": "ü"' in answer.text
    assert fragment.text == "fragment"


def test_compactions_are_overlays_counted_from_one(jp: Path) -> None:
    stream = Stream().turn().ask("a").turn().ask("b").turn().ask("c")
    stream.add("compaction", from_turn=0, to_turn=1, summary={"summary": "They said a and b."})
    stream.add(
        "compaction",
        from_turn=1,
        to_turn=1,
        reasoning="strip",
        tool_calls={"policy": "strip", "request": False, "response": True},
    )
    stream.add("compaction", from_turn=0, to_turn=0, tool_calls={"policy": "omit"})
    stream.add("compaction", from_turn=3, to_turn=1)
    write(jp, stream)
    conversation = load(jp.parent)
    assert texts(conversation) == ["a", "b", "c"], "originals are untouched"
    shapes = [
        (c.first, c.last, c.summary, c.reasoning, c.tool_calls) for c in conversation.compactions
    ]
    assert shapes == [
        (1, 2, "They said a and b.", False, None),
        (2, 2, None, True, "strip-response"),
        (1, 1, None, False, "omit"),
    ]
    assert any("compaction" in problem for problem in conversation.problems)


def test_events_of_a_later_jp_are_shown_as_they_are_and_change_nothing_else(jp: Path) -> None:
    stream = Stream().add("participants", names=["Jean"]).turn().ask("a", event_id="x1y2z3a")
    stream.say("b").add("voice_memo", url="file://memo.ogg").say("c").add("voice_memo", url="…")
    write(jp, stream)
    conversation = load(jp.parent)
    events = events_of(conversation)
    assert [event.kind for event in events] == ["chat_request", "message", "unknown", "unknown"]
    assert events[1].text == "bc", "what JP does not know ends no message"
    assert [event.name for event in events[2:]] == ["voice_memo", "voice_memo"]
    assert json.loads(events[2].text) == stream.elements[4]
    assert [event.name for event in conversation.leading] == ["participants"]
    assert [event.name for event in conversation.unknown_events] == [
        "participants",
        *["voice_memo"] * 2,
    ]
    assert conversation.problems == []


def test_the_resources_of_a_request_are_its_attachments(jp: Path) -> None:
    resources = [
        {"uri": "file://src/main.rs", "mimeType": "text/x-rust", "text": standard("fn main() {}")},
        {"uri": "file://logo.png", "mimeType": "image/png", "blob": standard(b"\x89PNG" * 3)},
        {"uri": "file://big.log", "content": {"$blob": "ab12", "size": 1234567}},
        {"digest": "zz9"},
        "https://example.com/a",
    ]
    write(jp, Stream().turn().ask("Look at this", resources=resources).ask("", resources=["x"]))
    conversation = load(jp.parent)
    assert texts(conversation) == [
        "Look at this",
        "[resource: file://src/main.rs, text/x-rust]\nfn main() {}",
        "[resource: file://logo.png, image/png, 12 bytes]",
        "[resource: file://big.log, 1,234,567 bytes, stored elsewhere]",
        '[resource]\n{\n  "digest": "zz9"\n}',
        "[resource: https://example.com/a]",
        "",
        "[resource: x]",
    ]
    assert conversation.turns[0].attachment_count == 6
    assert conversation.problems == []


def test_typed_content_gives_its_text_and_names_the_rest(jp: Path) -> None:
    blocks = [
        {"type": "text", "text": standard("first line")},
        {"type": "text", "text": "written plainly"},
        {"type": "image", "data": standard(b"\x89PNG" * 100), "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file://a.md", "text": "# A"}},
        {"type": "resource_link", "uri": "file://b.md", "name": "b"},
        {"$blob": "sha256:ab12", "size": 5000},
        {"type": "hologram", "depth": 3},
    ]
    stream = Stream().turn().ask("x").call("see", "1").call("see", "2")
    stream.add("tool_call_response", id="1", content=blocks, isError=False)
    stream.add("tool_call_response", id="2", content=[{"type": "text", "text": "no"}], isError=True)
    stream.add("tool_call_response", id="3", content={"$blob": "cd34"}, is_error=False)
    stream.add("chat_response", message=[{"type": "text", "text": "Seen."}])
    write(jp, stream)
    conversation = load(jp.parent)
    results = [e for e in events_of(conversation) if e.kind == "tool_call_response"]
    assert results[0].text.split("\n") == [
        "first line",
        "written plainly",
        "[image: image/png, 400 bytes]",
        "[resource: file://a.md]",
        "# A",
        "[resource: file://b.md]",
        "[text: sha256:ab12, 5,000 bytes, stored elsewhere]",
        "[hologram]",
        "{",
        '  "type": "hologram",',
        '  "depth": 3',
        "}",
    ]
    assert [result.is_error for result in results] == [False, True, False]
    assert results[1].request is not None
    assert results[2].text == "[text: cd34, stored elsewhere]"
    assert texts(conversation)[-1] == "Seen."
    assert conversation.problems == [
        "events.json: element 6 (tool_call_response): no earlier event has the same id"
    ]


def test_requests_that_still_wait_and_answers_in_a_later_turn(jp: Path) -> None:
    stream = Stream().turn().call("slow", "1").call("slow", "2").turn().result("1", "late")
    write(jp, stream)
    conversation = load(jp.parent)
    first, second = conversation.turns[0].events
    late = conversation.turns[1].events[0]
    assert first.result is late
    assert late.call is None, "the number belongs to the other turn"
    assert second.result is None
    assert conversation.problems == []


# Numbering and pairing, compared with a simple implementation of the rules.

_KINDS = st.sampled_from(
    ["turn_start", "chat_request", "chat_response", "config_delta", "compaction", "novel"]
)


def _element(kind: str, number: int) -> dict[str, object]:
    fields: dict[str, dict[str, object]] = {
        "chat_request": {"content": f"q{number}"},
        "chat_response": {"message": f"a{number} "},
        "config_delta": {"delta": {}},
        "compaction": {"from_turn": 0, "to_turn": 0},
    }
    return {"timestamp": "2026-01-01 00:00:00.0", "type": kind, **fields.get(kind, {})}


@given(st.lists(_KINDS, max_size=30), st.integers(1, 7))
def test_turns_are_numbered_as_jp_numbers_them(kinds: list[str], size: int) -> None:
    elements = [_element(kind, number) for number, kind in enumerate(kinds)]
    builder = JpEventParser()
    for start in range(0, len(elements), size):
        builder.parse_elements(elements[start : start + size])
    counted = [kind for kind in kinds if kind in {"turn_start", "chat_request", "chat_response"}]
    # A marker starts a turn; so does an event before the first marker.
    expected = 0
    for number, kind in enumerate(counted):
        expected += kind == "turn_start" or number == 0
    assert [turn.number for turn in builder.turns] == list(range(1, expected + 1))
    events = [event for turn in builder.turns for event in turn.events]
    said = "".join(event.text for event in events if event.kind != "unknown")
    assert len(builder.leading) + sum(e.kind == "unknown" for e in events) == kinds.count("novel")
    assert said == "".join(
        f"q{n}" if kind == "chat_request" else f"a{n} "
        for n, kind in enumerate(kinds)
        if kind.startswith("chat")
    ), "joining loses nothing and keeps the order"
    assert builder.count == len(elements)


def test_a_message_split_over_many_elements_is_joined_in_linear_time() -> None:
    text = "x" * 1_000
    element = {**_element("chat_response", 0), "message": text}
    builder = JpEventParser()
    # In quadratic time this would take minutes and exceed the test's timeout.
    for _ in range(40):
        builder.parse_elements([element] * 1_000)
    assert [event.text for event in _flat(builder.turns)] == [text * 40_000]
    builder.parse_elements([{**element, "message": " end"}])
    assert _flat(builder.turns)[0].text.endswith("x end"), "also after the turns were used"


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("xyz")), max_size=40))
def test_each_answer_goes_to_the_oldest_request_of_its_id(moves: list[tuple[bool, str]]) -> None:
    stream = Stream()
    waiting: dict[str, list[int]] = {}
    expected: dict[int, int | None] = {}
    for number, (is_request, name) in enumerate(moves):
        if is_request:
            stream.call("tool", name)
            waiting.setdefault(name, []).append(number)
        else:
            stream.result(name, "r")
            queue = waiting.get(name, [])
            expected[number] = queue.pop(0) if queue else None
    builder = JpEventParser()
    builder.parse_elements(stream.elements)
    found = {
        event.index: event.request.index if event.request else None
        for event in _flat(builder.turns)
        if event.kind == "tool_call_response"
    }
    assert found == expected


def _flat(turns: list[Turn]):  # type: ignore[no-untyped-def]
    return [event for turn in turns for event in turn.events]


# Times.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-29 19:42:36.46732", "2026-05-29T19:42:36.467320+00:00"),
        ("2026-03-18 13:19:06.8", "2026-03-18T13:19:06.800000+00:00"),
        ("2026-03-18 13:19:06", "2026-03-18T13:19:06+00:00"),
        ("2026-03-18 13:19:06.123456789", "2026-03-18T13:19:06.123456+00:00"),
        ("2026-03-18T13:19:06Z", "2026-03-18T13:19:06+00:00"),
        ("2026-03-18t13:19:06.5z", "2026-03-18T13:19:06.500000+00:00"),
        ("2026-03-18T13:19:06.5+02:30", "2026-03-18T10:49:06.500000+00:00"),
        ("2026-03-18T23:59:60Z", "2026-03-18T23:59:59+00:00"),
        ("2026-03-18 23:59:60", "2026-03-18T23:59:59+00:00"),
        ("2026-03-18", "2026-03-18T00:00:00+00:00"),
        ("20260318", "2026-03-18T00:00:00+00:00"),
        ("2026-03-18T13", "2026-03-18T13:00:00+00:00"),
        ("yesterday", None),
        ("", None),
        (17, None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_times_are_utc_in_either_form(text: object, expected: str | None) -> None:
    time = parse_timestamp(text)
    assert (time.isoformat() if time else None) == expected


@given(st.integers(0, 999_999_999))
def test_a_fraction_of_any_length_keeps_its_microseconds(nanoseconds: int) -> None:
    fraction = f"{nanoseconds:09}".rstrip("0") or "0"
    time = parse_timestamp(f"2026-03-18 13:19:06.{fraction}")
    assert time is not None
    assert time.microsecond == nanoseconds // 1000


def test_an_id_is_its_time_and_shown_times_sort_as_text() -> None:
    assert (
        format_time_as_rfc3339_utc(decode_jp_id_creation_time("jp-c17648402467"))
        == "2025-12-04T09:24:06.700Z"
    )
    times = [parse_timestamp("2026-01-01T00:00:00Z"), parse_timestamp("2026-01-01T00:00:00.5Z")]
    assert format_time_as_rfc3339_utc(times[0]) < format_time_as_rfc3339_utc(times[1])  # type: ignore[operator]
    assert format_time_as_rfc3339_utc(None) is None


def test_a_big_file_is_read_in_batches(jp: Path) -> None:
    stream = Stream()
    for number in range(1500):
        stream.turn().ask(f"question {number}").say("part one, ").say("x" * 4000)
    write(jp, dump(stream.elements))
    from kbtui.conversations.conversation_repository import find_conversation, load_conversation
    from kbtui.workspace import open_workspace_at_root

    conversation = load_conversation(
        find_conversation(open_workspace_at_root(jp.parent), "jp-c17800836875")
    )
    assert len(conversation.turns) == 1500
    assert all(len(turn.events) == 2 for turn in conversation.turns), "pieces join over batches"
    assert conversation.info.events_count == 6000
    assert conversation.problems == []
