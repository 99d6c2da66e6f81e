"""Damaged files: the damage is reported, and everything else is listed, searched and read."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jp_files import (
    BASE,
    ID,
    Stream,
    dump,
    events_of,
    jp_id,
    load,
    standard,
    texts,
    workspace_at,
    write,
)
from support import grep_answer

from kbtui.conversations.conversation_repository import list_conversations, load_conversation
from kbtui.conversations.formats import damage_tolerant_file_reader
from kbtui.conversations.formats.damage_tolerant_file_reader import (
    DAMAGED,
    parse_json_array_and_mark_damaged_elements,
)
from kbtui.errors import WorkspaceError


@pytest.fixture
def good(jp: Path) -> Path:
    """Write a sound conversation; a test adds a damaged one."""
    write(jp, Stream().turn().ask("sound as a bell").say("ding"), number=ID + 1, title="Sound")
    return jp


def check_the_rest(jp: Path) -> None:
    """Check that the sound conversation is listed, searched and read."""
    workspace = workspace_at(jp.parent)
    sound = [info for info in list_conversations(workspace) if info.id == jp_id(ID + 1)]
    assert [info.problem for info in sound] == [None]
    assert grep_answer(workspace, pattern="as a bell")["total"] == 1
    assert texts(load_conversation(sound[0])) == ["sound as a bell", "ding"]


def broken(jp: Path) -> tuple[str, list[str], list[str]]:
    """Return the problems of the damaged conversation that list and reader report, and the texts read."""
    info = next(i for i in list_conversations(workspace_at(jp.parent)) if i.id == jp_id())
    conversation = load_conversation(info)
    check_the_rest(jp)
    return info.problem or "", conversation.problems, texts(conversation)


SOUND = Stream().turn().ask("one").say("two").turn().ask("three").elements


# Whole files that JP moves to the trash or drops silently.


def test_no_metadata(good: Path) -> None:
    write(good, SOUND, metadata="missing")
    problem, problems, saved = broken(good)
    assert problem == "there is no metadata.json"
    assert (problems, saved) == ([], ["one", "two", "three"])


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"title": "A" "b"}', "\0\0\0", "7"])
def test_broken_metadata(good: Path, text: str) -> None:
    write(good, SOUND, metadata=text)
    problem, problems, saved = broken(good)
    assert problem.startswith("metadata.json: it ")
    assert (problems, saved) == ([], ["one", "two", "three"])


def test_metadata_without_events(good: Path) -> None:
    write(good, None)
    problem, problems, saved = broken(good)
    assert problem == problems[0] == "there is no events.json"
    assert saved == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "[1]", "not json", '{"assistant": {"model": {"id": "m"}'.strip()],
)
def test_a_broken_base_configuration_hurts_nothing_else(good: Path, text: str) -> None:
    write(good, SOUND, base=text)
    problem, problems, saved = broken(good)
    assert problem == ""
    assert problems[0].startswith("base_config.json: it ")
    assert saved == ["one", "two", "three"]


def test_a_huge_base_configuration_is_not_read(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kbtui.conversations.formats.jp import jp_conversation_loader as loader

    monkeypatch.setattr(loader, "MAX_CONFIG_BYTES", 1000)
    write(good, SOUND, base={**BASE, "filler": "x" * 2000})
    _, problems, saved = broken(good)
    assert "bytes" in problems[0]
    assert saved == ["one", "two", "three"]


@pytest.mark.parametrize(
    "config",
    [
        {"assistant": "x", "conversation": 7},
        {"assistant": {"model": 1, "name": {}}, "conversation": {"attachments": [[]]}},
        {"assistant": {"model": {"id": {"name": 4}}}},
    ],
)
def test_a_configuration_of_another_shape_says_nothing(
    good: Path, config: dict[str, object]
) -> None:
    write(good, SOUND, base=config)
    conversation = load(good.parent)
    assert (conversation.model, conversation.assistant, conversation.attachments) == (
        None,
        None,
        [],
    )
    assert conversation.problems == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("\n \n", "it is empty"),
        ("\0" * 5000, "it contains only NUL characters"),
        ('{"timestamp": 1}', "it is not a JSON array"),
        ("null", "it is not a JSON array"),
        ("hello", "it does not begin with a JSON array"),
    ],
)
def test_events_that_are_no_array(good: Path, text: str, said: str) -> None:
    write(good, text)
    problem, problems, saved = broken(good)
    assert said in problem
    assert any(said in line for line in problems)
    assert saved == []


def test_a_byte_order_mark(good: Path) -> None:
    write(
        good, b"\xef\xbb\xbf" + dump(SOUND).encode(), metadata="\ufeff" + dump({"title": "Marked"})
    )
    problem, problems, saved = broken(good)
    assert "byte order mark" in problem
    assert "byte order mark" in problems[0]
    assert saved == ["one", "two", "three"]
    assert (
        next(i for i in list_conversations(workspace_at(good.parent)) if i.id == jp_id()).title
        == "Marked"
    )


@pytest.mark.parametrize("junk", ["garbage", "]", "[]", '{"a": 1}', "\0\0\0"])
def test_junk_after_the_array(good: Path, junk: str) -> None:
    write(good, dump(SOUND) + junk)
    problem, _, saved = broken(good)
    assert "extra data after the end" in problem
    assert saved == ["one", "two", "three"]


@pytest.mark.parametrize("indent", [2, None])
def test_a_half_written_file_keeps_its_whole_elements(good: Path, indent: int | None) -> None:
    text = json.dumps(SOUND, indent=indent)
    write(good, text[: text.index("three")])
    problem, problems, saved = broken(good)
    assert problem.startswith("events.json: element 4 is not valid JSON")
    assert problems == [problem]
    assert saved == ["one", "two"]


def test_a_file_cut_between_elements_says_so(good: Path) -> None:
    text = dump(SOUND)
    write(good, text[: text.index('  },\n  {\n    "timestamp": "2026-05-29 10:00:04') + 4])
    problem, _, saved = broken(good)
    assert "it ends after element 4" in problem
    assert saved == ["one", "two"]


def test_damage_in_the_middle_costs_one_element(good: Path) -> None:
    text = dump(SOUND).replace('"two"', '"tw\no" oops')
    write(good, text)
    problem, _, saved = broken(good)
    assert problem == "events.json: element 2 is not valid JSON"
    assert saved == ["one", "three"]
    conversation = load(good.parent)
    assert [event.index for event in events_of(conversation)] == [1, 4], "positions hold"
    assert conversation.info.events_count == 5


def test_conflict_markers_leave_both_sides_readable(good: Path) -> None:
    text = dump(SOUND).replace(
        '  {\n    "timestamp": "2026-05-29 10:00:02',
        '<<<<<<< HEAD\n  {\n    "timestamp": "2026-05-29 10:00:02',
    )
    write(good, text)
    _, problems, saved = broken(good)
    assert saved == ["one", "two", "three"]
    assert problems


def test_trailing_commas_do_not_lose_a_conversation(good: Path) -> None:
    write(good, dump(SOUND).replace("\n]", ",\n]"))
    _, _, saved = broken(good)
    assert saved == ["one", "two", "three"]


def test_invalid_utf8_is_replaced(good: Path) -> None:
    write(good, dump(SOUND).encode().replace(b"two", b"t\xffo"))
    _, _, saved = broken(good)
    assert saved == ["one", "t\ufffdo", "three"]


def test_nuls_and_unpaired_surrogates_in_text(good: Path) -> None:
    text = dump(SOUND).replace("two", "t\\u0000w\\ud800o \\ud83d\\ude00")
    write(good, text)
    _, _, saved = broken(good)
    assert saved == ["one", "t\0w\ufffdo 😀", "three"]
    for line in saved:
        line.encode()


def test_deep_nesting_costs_its_element(good: Path) -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    elements = [*SOUND, {"timestamp": "2026-01-01 00:00:00.0", "type": "novelty", "x": "DEEP"}]
    write(good, dump([*elements, *Stream().ask("after").elements]).replace('"DEEP"', deep))
    problem, _, saved = broken(good)
    assert "nested too deeply" in problem
    assert saved == ["one", "two", "three", "after"]


@pytest.mark.parametrize("depth", [200, 900])
def test_arguments_nested_deeper_than_code_goes_are_still_read_or_named(
    good: Path, depth: int
) -> None:
    arguments: object = standard("core")
    for _ in range(depth):
        arguments = [arguments]
    stream = Stream().turn()
    stream.add("tool_call_request", id="1", name="x", arguments={"a": arguments})
    stream.ask("after")
    write(good, json.dumps(stream.elements))
    _, _, saved = broken(good)
    assert saved[-1] == "after"


def test_the_largest_numbers_do_no_harm(good: Path) -> None:
    stream = Stream().turn().add("chat_response", data={"n": 7}).ask("after")
    write(good, dump(stream.elements).replace("7", "9" * 5000))
    _, _, saved = broken(good)
    assert saved[-1] == "after"


# Elements that make JP refuse the whole file.


@pytest.mark.parametrize(
    ("element", "kind"),
    [
        ({"type": "chat_request"}, "chat_request"),
        ({"type": "chat_request", "content": 7}, "chat_request"),
        ({"type": "chat_response"}, "message"),
        ({"type": "chat_response", "message": None}, "message"),
        ({"type": "chat_response", "reasoning": ["x"]}, "reasoning"),
        ({"type": "tool_call_request", "name": "x"}, "tool_call_request"),
        ({"type": "tool_call_request", "id": "1"}, "tool_call_request"),
        ({"type": "tool_call_request", "id": "1", "name": "x", "arguments": 3}, "tool_call_request"),
        ({"type": "tool_call_response", "id": "9", "content": "eA==", "is_error": False}, "tool_call_response"),
        ({"type": "tool_call_response", "content": None, "is_error": "no"}, "tool_call_response"),
        ({"type": "inquiry_request", "id": "1", "question": "?"}, "inquiry_request"),
        ({"type": "inquiry_response"}, "inquiry_response"),
        ({"type": "chat_request", "content": "x", "timestamp": "soon"}, "chat_request"),
    ],
)  # fmt: skip
def test_a_malformed_event_is_there_with_its_problem(
    good: Path, element: dict[str, object], kind: str
) -> None:
    element = {"timestamp": "2026-05-29 10:00:09.0", **element}
    write(good, [*SOUND, element])
    problem, problems, saved = broken(good)
    assert problem == ""
    assert problems[0].startswith(f"events.json: element 5 ({kind}): ")
    assert saved[:3] == ["one", "two", "three"]
    damaged = events_of(load(good.parent))[3]
    assert damaged.kind == kind
    assert damaged.problem is not None


@pytest.mark.parametrize("element", [None, 7, "text", [], {}, {"type": 3}, {"timestamp": "x"}])
def test_an_element_that_is_no_event_is_passed_over(good: Path, element: object) -> None:
    write(good, [SOUND[0], element, *SOUND[1:]])
    _, problems, saved = broken(good)
    assert len(problems) == 1
    assert "element 1 " in problems[0]
    assert saved == ["one", "two", "three"]


def test_very_many_damaged_elements_are_counted(good: Path) -> None:
    write(good, [*SOUND, *[None] * 250])
    _, problems, saved = broken(good)
    assert saved == ["one", "two", "three"]
    assert len(problems) == 101
    assert problems[-1] == "events.json: 150 more damaged elements"


# Files that cannot be read.


@pytest.mark.parametrize("name", ["events.json", "metadata.json", "base_config.json"])
def test_a_directory_or_a_loop_in_a_files_place(good: Path, name: str) -> None:
    folder = write(good, SOUND)
    (folder / name).unlink()
    (folder / name).mkdir()
    problem, problems, _ = broken(good)
    assert "it is not a regular file" in problem + " ".join(problems)
    (folder / name).rmdir()
    (folder / name).symlink_to(folder / name)
    broken(good)


def test_a_pipe_is_never_waited_for(good: Path) -> None:
    folder = write(good, SOUND)
    for name in ("events.json", "metadata.json", "base_config.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    problem, _, saved = broken(good)
    assert "it is not a regular file" in problem
    assert saved == []


def test_permission_denied_says_so(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(good, SOUND)
    denied = str(folder / "events.json")
    real = os.open

    def guarded(path, *more, **named):  # type: ignore[no-untyped-def]
        # On some test machines the tests run as root, who may read everything.
        if str(path) == denied:
            raise PermissionError(13, "Permission denied", path)
        return real(path, *more, **named)

    monkeypatch.setattr(os, "open", guarded)
    problem, problems, saved = broken(good)
    assert problem == problems[0] == "events.json: permission denied"
    assert saved == []


def test_a_directory_that_may_not_be_entered_stays_listed(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(good, SOUND)
    real = os.stat

    def guarded(path, *more, **named):  # type: ignore[no-untyped-def]
        if str(path).startswith(str(folder) + "/"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *more, **named)

    monkeypatch.setattr(os, "stat", guarded)
    problem, _, _ = broken(good)
    assert "permission denied" in problem


def test_a_conversation_that_vanishes_after_it_was_listed(good: Path) -> None:
    folder = write(good, SOUND)
    info = next(
        i for i in list_conversations(workspace_at(good.parent), counts=False) if i.id == jp_id()
    )
    shutil.rmtree(folder)
    conversation = load_conversation(info)
    assert conversation.turns == []
    assert "events.json: there is no such file" in conversation.problems
    check_the_rest(good)


def test_a_directory_that_vanishes_while_it_is_listed(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(good, SOUND)
    from kbtui.conversations.formats.jp import jp_conversation_finder

    real = jp_conversation_finder.stat_conversation_directory

    def slow(
        path: str, local: bool, archived: bool, parent: int | None
    ) -> jp_conversation_finder.JpConversationDirectory:
        if path == str(folder):
            shutil.rmtree(folder)
        return real(path, local, archived, parent)

    monkeypatch.setattr(jp_conversation_finder, "stat_conversation_directory", slow)
    check_the_rest(good)


def test_a_gigabyte_is_listed_and_not_read(good: Path) -> None:
    folder = write(good, SOUND)
    with (folder / "events.json").open("r+b") as file:
        file.truncate(1 << 30)  # sparse: it takes no room
    problem, _, saved = broken(good)
    assert "1,073,741,824 bytes" in problem
    assert saved == []
    answer = grep_answer(workspace_at(good.parent), pattern="bell")
    assert answer["total"] == 1
    assert f"jp-c{ID}" in answer["hint"]


def test_reading_a_file_tells_the_reason(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="no such file"):
        damage_tolerant_file_reader.read_file(str(tmp_path / "nothing"), 4)
    (tmp_path / "x").write_text("12345")
    assert damage_tolerant_file_reader.read_file(str(tmp_path / "x"), 5) == b"12345"
    with pytest.raises(WorkspaceError, match="5 bytes"):
        damage_tolerant_file_reader.read_file(str(tmp_path / "x"), 4)


# Properties.

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(_VALUES, max_size=6), st.sampled_from([None, 2]), st.data())
def test_what_is_whole_survives_any_cut(
    elements: list[object], indent: int | None, data: st.DataObject
) -> None:
    """A file that is cut anywhere has the elements of the whole file before the cut."""
    text = json.dumps(elements, indent=indent)
    end = data.draw(st.integers(0, len(text)))
    problems: list[str] = []
    saved = parse_json_array_and_mark_damaged_elements(text[:end].encode(), problems)
    whole = [item for item in saved if item is not DAMAGED]
    assert _same(whole, elements[: len(whole)]) or _same(whole[:-1], elements[: len(whole) - 1]), (
        "only a number can be cut and still be one"
    )
    assert problems or text[:end].rstrip() == text.rstrip()


def _same(left: object, right: object) -> bool:
    return json.dumps(left) == json.dumps(right)


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_no_bytes_at_all_raise(data: bytes) -> None:
    problems: list[str] = []
    parse_json_array_and_mark_damaged_elements(data, problems)
    parse_json_array_and_mark_damaged_elements(b"[" + data, problems)
    parse_json_array_and_mark_damaged_elements(b"[\n  {\n" + data + b"\n  }\n]\n", problems)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["type", "timestamp", "id", "name", "content", "arguments", "message", "reasoning",
                 "data", "is_error", "metadata", "question", "source", "answer", "delta",
                 "from_turn", "to_turn", "summary", "tool_calls", "author"]
            ),
            _VALUES
            | st.sampled_from(
                ["turn_start", "chat_request", "chat_response", "tool_call_request",
                 "tool_call_response", "inquiry_request", "inquiry_response", "config_delta",
                 "compaction"]
            ),
            max_size=8,
        )
        | _VALUES,
        max_size=8,
    )
)  # fmt: skip
@settings(max_examples=400)
@pytest.mark.slow
def test_no_elements_at_all_raise(elements: list[object]) -> None:
    from kbtui.conversations.formats.jp.jp_event_parser import JpEventParser

    builder = JpEventParser()
    builder.parse_elements(elements)
    assert builder.count == len(elements)
    for turn in builder.turns:
        for event in turn.events:
            assert isinstance(event.text, str)
