"""`conversation_list` and `conversation_read`: parameters, defaults, limits, refusals."""

import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jp_files import ID, Stream, jp_id, workspace_at, write
from support import list_answer, read_answer

from kbtui.assistant.conversation_tool_answers import format_answer_as_xml
from kbtui.assistant.conversation_tools import MAX_READ_LENGTH, answer_conversation_read
from kbtui.errors import NothingFound, UsageError


def hello(text: str = "Hi") -> Stream:
    return Stream().turn().ask(text)


# list


@pytest.fixture
def thirty(jp: Path) -> Path:
    for number in range(30):
        write(
            jp,
            hello(),
            number=ID + number,
            title=f"Talk {number} about {'Locks' if number % 3 else 'keys'}",
        )
    return jp


def ids(jp: Path, **options: Any) -> list[int]:
    answer = list_answer(workspace_at(jp.parent), **options)
    return [int(entry["id"].removeprefix("jp-c")) - ID for entry in answer["conversations"]]


def test_the_list_gives_the_twenty_newest_and_how_to_get_the_rest(thirty: Path) -> None:
    answer = list_answer(workspace_at(thirty.parent))
    assert (answer["total"], answer["offset"], answer["count"], answer["omitted"]) == (
        30,
        0,
        20,
        10,
    )
    assert answer["hint"] == "10 more: use offset=20"
    assert ids(thirty) == list(range(29, 9, -1))
    assert ids(thirty, offset=20) == list(range(9, -1, -1))
    assert list_answer(workspace_at(thirty.parent), offset=20)["hint"] is None


def test_pages_together_are_the_whole_list(thirty: Path) -> None:
    pages = [ids(thirty, limit=7, offset=start, descending=False) for start in range(0, 30, 7)]
    assert [number for page in pages for number in page] == list(range(30))


def test_a_page_behind_the_end_says_so(thirty: Path) -> None:
    answer = list_answer(workspace_at(thirty.parent), offset=99)
    assert (answer["count"], answer["omitted"], answer["total"]) == (0, 0, 30)
    assert "30" in answer["hint"]


def test_created_activity_and_updated_are_three_orders(jp: Path) -> None:
    folders = [
        write(jp, Stream().turn().ask("a").say("b").say("c"), number=ID),
        write(jp, Stream().turn().ask("a").say("b"), number=ID + 1),
        write(jp, Stream().turn().ask("a"), number=ID + 2),
    ]
    for folder, moment in zip(folders, (2000, 3000, 1000), strict=True):
        for file in folder.iterdir():
            os.utime(file, (moment, moment))
    os.utime(folders[2] / "metadata.json", (9000, 9000))
    assert ids(jp, sort="created") == [2, 1, 0]
    assert ids(jp, sort="activity") == ids(jp) == [0, 1, 2]
    assert ids(jp, sort="updated") == [2, 1, 0]
    os.utime(folders[0] / "events.json", (9999, 9999))
    assert ids(jp, sort="updated") == [0, 2, 1]
    assert ids(jp, sort="activity", descending=False) == [2, 1, 0]


def test_activity_without_an_element_is_the_creation(jp: Path) -> None:
    write(jp, [], number=ID + 5)
    write(jp, hello(), number=ID + 4)
    assert ids(jp) == [5, 4]


def test_titles_are_filtered_without_case(thirty: Path) -> None:
    write(thirty, hello(), number=ID + 99, title=None)
    answer = list_answer(workspace_at(thirty.parent), title_contains="KEYS")
    assert answer["total"] == 10
    assert ids(thirty, title_contains="talk 7 about") == [7]
    assert ids(thirty, title_contains="absent") == []
    assert list_answer(workspace_at(thirty.parent), title_contains="")["total"] == 31


def test_archived_ones_are_listed_instead(thirty: Path) -> None:
    write(thirty, hello(), number=ID + 50, archived=True)
    assert ids(thirty, archived=True) == [50]
    assert list_answer(workspace_at(thirty.parent))["total"] == 30


def test_counts_are_those_of_the_page_whatever_state_a_file_is_in(jp: Path) -> None:
    write(jp, hello().add("novelty"), number=ID)
    write(jp, None, number=ID - 1)
    entries = list_answer(workspace_at(jp.parent))["conversations"]
    counts = {entry["id"]: (entry["events_count"], entry["problem"]) for entry in entries}
    assert counts == {
        f"jp-c{ID}": (3, None),
        f"jp-c{ID - 1}": (None, "there is no events.json"),
    }


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": "many"},
        {"limit": 2.5},
        {"offset": -1},
        {"offset": True},
        {"sort": "title"},
        {"descending": "no"},
        {"archived": "no"},
    ],
)
def test_list_arguments_that_are_not_of_their_form_are_refused(
    thirty: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError) as caught:
        list_answer(workspace_at(thirty.parent), **options)
    assert next(iter(options)) in str(caught.value)


def test_a_number_that_json_wrote_as_a_fraction_is_whole(thirty: Path) -> None:
    assert len(ids(thirty, limit=3.0)) == 3


# read


@pytest.fixture
def four(jp: Path) -> Path:
    question = {"text": "Apply?"}
    stream = Stream()
    for number in range(1, 5):
        stream.turn().ask(f"question {number}").think(f"thought {number}")
        stream.used("tool", f"t{number}", f"result {number}", n=number).say(f"answer {number}")
    stream.add("inquiry_request", id="q", source={"source": "user"}, question=question)
    stream.add("inquiry_response", id="q", answer=True)
    stream.add("chat_response", data={"n": 1})
    write(jp, stream, title="Four turns")
    return jp


def read(jp: Path, **options: Any) -> dict[str, Any]:
    return read_answer(workspace_at(jp.parent), **{"id": f"jp-c{ID}", **options})


def kinds(answer: dict[str, Any]) -> list[str]:
    return [event["event_kind"] for turn in answer["turns"] for event in turn["events"]]


def test_a_whole_conversation_is_read_by_default(four: Path) -> None:
    answer = read(four)
    assert (answer["turns_total"], answer["count"], answer["omitted"]) == (4, 4, 0)
    assert answer["hint"] is None
    assert [turn["turn"] for turn in answer["turns"]] == [1, 2, 3, 4]
    assert kinds(answer)[:5] == [
        "chat_request",
        "reasoning",
        "tool_call_request",
        "tool_call_response",
        "message",
    ]


@pytest.mark.parametrize("name", [f"{ID}", f"jp://jp-c{ID}", ID, f"jp-c{ID}-otvo8"])
def test_the_id_is_taken_in_every_form(four: Path, name: str | int) -> None:
    assert read(four, id=name)["id"] == f"jp-c{ID}"


def test_one_turn_or_the_last_ones(four: Path) -> None:
    one = read(four, turn=2)
    assert [turn["turn"] for turn in one["turns"]] == [2]
    assert (one["count"], one["omitted"]) == (1, 3)
    assert one["hint"] == "turn 2 of 4: pass another `turn`, or use `last`"
    assert [turn["turn"] for turn in read(four, last=2)["turns"]] == [3, 4]
    assert "turns 1 to 2" in read(four, last=2)["hint"]
    assert read(four, last=99)["count"] == 4
    assert [turn["turn"] for turn in read(four, id=f"jp-c{ID}:3")["turns"]] == [3]
    same = read(four, id=f"jp-c{ID}:3", turn=3)
    assert [turn["turn"] for turn in same["turns"]] == [3]
    for other in ({"turn": 2}, {"last": 1}):
        with pytest.raises(UsageError, match="the id selects turn 3"):
            read(four, id=f"jp-c{ID}:3", **other)


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        (["chat"], {"chat_request", "message", "structured"}),
        (["reasoning"], {"reasoning"}),
        (["tool_calls"], {"tool_call_request", "inquiry_request"}),
        (["tool_results", "reasoning"], {"tool_call_response", "inquiry_response", "reasoning"}),
        ("chat", {"chat_request", "message", "structured"}),
    ],
)
def test_include_chooses_kinds_of_event(four: Path, include: object, expected: set[str]) -> None:
    answer = read(four, include=include)
    assert set(kinds(answer)) == expected
    assert answer["count"] == 4, "a turn without such events is still there"


@pytest.mark.parametrize(
    "options",
    [
        {"turn": 0},
        {"turn": "1"},
        {"last": 0},
        {"turn": 1, "last": 1},
        {"include": ["chats"]},
        {"include": [1]},
        {"include_current": "x", "current": jp_id()},
        {"max_chars": 10},
        {"id": "the one about locks"},
        {"id": ["x"]},
        {"id": True},
    ],
)
def test_read_arguments_that_are_not_of_their_form_are_refused(
    four: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        read(four, **options)


def test_a_turn_or_conversation_that_does_not_exist(four: Path) -> None:
    with pytest.raises(NothingFound) as caught:
        read(four, turn=5)
    assert caught.value.hint == "it has turns 1 to 4"
    with pytest.raises(NothingFound):
        read(four, id=f"jp-c{ID + 1}")


def test_the_current_conversation_is_refused_unless_asked_for(four: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(four, current=jp_id())
    assert caught.value.hint == "use include_current=true"
    assert read(four, current=jp_id(), include_current=True)["count"] == 4
    assert read(four, current=jp_id(ID + 1))["count"] == 4


def test_archived_ones_are_read_like_live_ones(jp: Path) -> None:
    write(jp, hello("archived words"), archived=True)
    assert read(jp)["turns"][0]["events"][0]["content"] == "archived words"


def test_damage_is_named_and_the_rest_is_read(jp: Path) -> None:
    write(jp, [*hello("whole").elements, None, 7])
    answer = read(jp)
    assert answer["turns"][0]["events"][0]["content"] == "whole"
    assert "the conversation is damaged: " in answer["hint"]
    assert "1 more problem" in answer["hint"]
    write(jp, None, number=ID + 1)
    assert "there is no events.json" in read(jp, id=f"jp-c{ID + 1}")["hint"]


def size(answer: dict[str, Any]) -> int:
    return len(format_answer_as_xml("read", answer))


@pytest.fixture
def heavy(jp: Path) -> Path:
    """Write ten turns of about 15,000 characters, which escapes make even longer."""
    stream = Stream()
    for number in range(10):
        stream.turn().ask(f"question {number}").used("t", str(number), "<&>" * 1000 + "y" * 3000)
    write(jp, stream)
    return jp


def test_an_answer_over_the_limit_is_refused_with_what_would_fit(heavy: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(heavy)
    assert "10 turns" in caught.value.message
    assert f"{MAX_READ_LENGTH:,}" in caught.value.message
    hint = caught.value.hint or ""
    fitting = int(hint.partition("last=")[2].partition(",")[0])
    assert fitting >= 2
    assert size(read(heavy, last=fitting)) <= MAX_READ_LENGTH
    with pytest.raises(UsageError):
        read(heavy, last=fitting + 1)
    assert size(read(heavy, include=["chat"])) < MAX_READ_LENGTH, "measured after include"
    everything = answer_conversation_read(
        workspace_at(heavy.parent), id=f"jp-c{ID}", max_chars=None
    ).as_json()
    assert everything["count"] == 10, "a person has no limit"
    assert size(everything) > MAX_READ_LENGTH


def test_where_not_even_the_last_turn_fits_one_turn_is_offered(jp: Path) -> None:
    write(jp, Stream().turn().ask("a").turn().used("t", "1", "y" * 70_000))
    for options in ({}, {"last": 1}):
        with pytest.raises(UsageError) as caught:
            read(jp, **options)
        assert "turn=2" in (caught.value.hint or "")
    assert size(read(jp, turn=2)) <= MAX_READ_LENGTH


def test_a_single_turn_is_shortened_in_the_middle_of_its_longest_texts(jp: Path) -> None:
    long, longer = "A" + "a" * 50_000 + "Z", "B" + "<" * 90_000 + "Y"
    stream = Stream().turn().ask("short question").used("t", "1", long, path="p", text=longer)
    stream.say("short answer").turn().ask("next")
    write(jp, stream)
    answer = read(jp, turn=1)
    assert MAX_READ_LENGTH * 0.9 < size(answer) <= MAX_READ_LENGTH
    request, call, result, said = answer["turns"][0]["events"]
    assert (request["content"], said["content"]) == ("short question", "short answer")
    assert call["arguments"]["path"] == "p"
    for text, first, last, whole in (
        (result["content"], "A", "Z", long),
        (call["arguments"]["text"], "B", "Y", longer),
    ):
        head, notice, tail = text.split("\n")
        assert (head[0], tail[-1]) == (first, last)
        left = int(notice.replace(",", "").removeprefix("[… ").partition(" ")[0])
        assert len(head) + len(tail) + left == len(whole)
    assert "shortened" in answer["hint"]


def test_a_turn_of_very_many_events_loses_some_in_its_middle(jp: Path) -> None:
    stream = Stream().turn().ask("first")
    for number in range(2000):
        stream.used("t", str(number), f"result {number}", n=number)
    write(jp, stream.say("last"))
    answer = read(jp, turn=1)
    assert MAX_READ_LENGTH * 0.8 < size(answer) <= MAX_READ_LENGTH
    events = answer["turns"][0]["events"]
    assert events[0]["content"] == "first"
    assert events[-1]["content"] == "last"
    left = int(answer["hint"].split(" ")[4])
    assert len(events) + left == 4002


@given(
    st.lists(st.text(st.sampled_from('ab<&"\n`\x1bé😀'), max_size=3000), min_size=1, max_size=12),
    st.integers(1000, 6000),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_no_single_turn_is_ever_over_its_limit(
    tmp_path: Path, results: list[str], limit: int
) -> None:
    stream = Stream().turn()
    for number, text in enumerate(results):
        stream.used("t", str(number), text * 3, argument=text, nested={"deep": [text]})
    write(tmp_path / ".jp", stream)
    answer = read(tmp_path / ".jp", turn=1, max_chars=limit)
    xml = format_answer_as_xml("read", answer)
    assert len(xml) <= limit
    ElementTree.fromstring(xml)


def test_a_conversation_without_turns_says_so(jp: Path) -> None:
    write(jp, [])
    answer = read(jp)
    assert (answer["turns_total"], answer["count"], answer["turns"]) == (0, 0, [])
    assert answer["hint"]
