"""The demo's conversations have JP's real form, in every variety that a reader must know."""

import base64
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import make_conversations
import pytest
from demo_files import (
    CONVERSATIONS,
    argument,
    calls,
    conversation_folders,
    decoded,
    events,
    metadata,
    subject_files,
)

FOLDERS = conversation_folders()
SUBJECTS = subject_files()
BEFORE_TURNS, BEFORE_SPLIT = datetime(2026, 3, 5), datetime(2026, 4, 5)

every = pytest.mark.parametrize("number", sorted(FOLDERS))


def created(number: int) -> datetime:
    return datetime.fromtimestamp(number / 10, UTC).replace(tzinfo=None)


def when(stamp: str) -> datetime:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.(0|\d{0,8}[1-9])", stamp), stamp
    return datetime.fromisoformat(stamp[:26])


def test_regenerating_gives_the_same_bytes() -> None:
    made = make_conversations.build_all_files()
    there = {
        path.relative_to(CONVERSATIONS).as_posix(): path.read_bytes()
        for path in CONVERSATIONS.rglob("*")
        if path.is_file()
    }
    assert sorted(made) == sorted(there)
    changed = [name for name, data in made.items() if there[name] != data]
    assert not changed, "run: python tests/demo/make_conversations.py"


def test_there_are_at_least_twelve_over_a_year() -> None:
    assert len(FOLDERS) >= 12
    dates = [created(number) for number in sorted(FOLDERS)]
    assert dates[0] < datetime(2026, 1, 1)
    assert dates[-1] >= datetime(2026, 11, 1)


@every
def test_files_are_json_as_jp_prints_it(number: int) -> None:
    import json

    for path in FOLDERS[number].iterdir():
        assert path.name in {"events.json", "metadata.json", "base_config.json"}
        text = path.read_text("utf-8")
        assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"


@every
def test_the_directory_is_named_by_jps_rule(number: int) -> None:
    title = metadata(FOLDERS[number]).get("title", "")
    slug = re.sub(r"[\W_]", "-", title[:60]).rstrip("-").lower()
    expected = f"{number}-{slug}".rstrip("-")
    if len(title.encode()) > 60:
        expected = expected[: expected.rindex("-")]
    assert FOLDERS[number].name == expected


@every
def test_times_are_in_jps_form_and_agree_with_the_id(number: int) -> None:
    told = [when(event["timestamp"]) for event in events(FOLDERS[number])]
    spoken = [
        when(event["timestamp"])
        for event in events(FOLDERS[number])
        if event["type"] != "config_delta"
    ]
    assert all(moment >= created(number) for moment in told)
    assert all(before <= after for before, after in pairwise(spoken))
    for key, value in metadata(FOLDERS[number]).items():
        if key.endswith("_at"):
            assert when(value) >= created(number)


@every
def test_five_to_forty_events_and_something_to_read(number: int) -> None:
    found = events(FOLDERS[number])
    assert 5 <= len(found) <= 40
    said = sum(len(event.get("message", "")) for event in found)
    assert said > 700
    assert sum(event["type"] == "chat_request" for event in found) >= 2


@every
def test_the_layout_is_that_of_its_time(number: int) -> None:
    found = events(FOLDERS[number])
    split = (FOLDERS[number] / "base_config.json").exists()
    archived = ".archive" in FOLDERS[number].parts
    assert split == (created(number) >= BEFORE_SPLIT or archived)
    assert (found[0]["type"] == "config_delta") == (not split)
    turns = [event for event in found if event["type"] == "turn_start"]
    assert bool(turns) == (created(number) >= BEFORE_TURNS)


@every
def test_what_jp_encodes_is_encoded_and_nothing_else(number: int) -> None:
    for call, result in calls(FOLDERS[number]):
        for value in call["arguments"].values():
            for text in _strings(value):
                assert base64.b64decode(text, validate=True).decode() is not None
        if result is not None:
            assert decoded(result["content"])
    for event in events(FOLDERS[number]):
        for key in ("message", "reasoning"):
            assert event.get(key) is None or " " in event[key]
        for text in _strings(event.get("metadata", {})):
            base64.b64decode(base64.b64decode(text, validate=True), validate=True)


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for part in value.values() for text in _strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in _strings(part)]
    return []


def test_the_oldest_has_its_configuration_flat_in_the_first_event() -> None:
    first = events(FOLDERS[min(FOLDERS)])[0]
    assert first["type"] == "config_delta"
    assert "delta" not in first
    assert {"assistant", "conversation", "providers"} <= set(first)


def test_a_leading_configuration_can_be_later_than_what_was_said() -> None:
    leading = [events(folder)[:2] for folder in FOLDERS.values()]
    assert any(
        first["type"] == "config_delta" and first["timestamp"] > second["timestamp"]
        for first, second in leading
    )


def test_old_results_are_in_the_other_alphabet_and_ids_repeat() -> None:
    results = {
        number: [
            event["content"] for event in events(folder) if event["type"] == "tool_call_response"
        ]
        for number, folder in FOLDERS.items()
    }
    other = [number for number, found in results.items() if re.search(r"[-_]", "".join(found))]
    assert other
    assert all(created(number) < BEFORE_TURNS for number in other)
    ids = {
        number: Counter(call["id"] for call, _ in calls(folder))
        for number, folder in FOLDERS.items()
    }
    assert any(max(counts.values(), default=0) > 1 for counts in ids.values())


def test_parallel_calls_are_answered_out_of_order() -> None:
    assert any(_out_of_order(folder) for folder in FOLDERS.values())


def _out_of_order(folder: Path) -> bool:
    found = events(folder)
    asked = [event["id"] for event in found if event["type"] == "tool_call_request"]
    answered = [event["id"] for event in found if event["type"] == "tool_call_response"]
    return len(set(asked)) == len(asked) and asked != answered


def test_every_kind_of_event_occurs() -> None:
    found = [event for folder in FOLDERS.values() for event in events(folder)]
    kinds = Counter(event["type"] for event in found)
    assert set(kinds) == {
        "turn_start",
        "chat_request",
        "chat_response",
        "tool_call_request",
        "tool_call_response",
        "inquiry_request",
        "inquiry_response",
        "config_delta",
        "compaction",
    }
    for key in ("message", "reasoning", "data"):
        assert any(key in event for event in found if event["type"] == "chat_response"), key
    assert any("schema" in event for event in found)
    assert any("author" in event for event in found)
    assert any(event.get("is_error") for event in found)
    assert any("rendered_arguments" in event.get("metadata", {}) for event in found)
    assert any(event.get("summary", {}).get("summary") for event in found)
    assert any(
        event["type"] == "config_delta" and at
        for folder in FOLDERS.values()
        for at, event in enumerate(events(folder))
    )


def test_a_message_that_was_cut_anywhere_is_in_two_events() -> None:
    pairs = [pair for folder in FOLDERS.values() for pair in pairwise(events(folder))]
    assert any("message" in first and "message" in second for first, second in pairs)


def test_a_result_has_real_escape_characters() -> None:
    results = [
        decoded(result["content"])
        for folder in FOLDERS.values()
        for _, result in calls(folder)
        if result
    ]
    assert any("\x1b]0;" in text and "\x1b[8m" in text for text in results)


def test_one_is_archived_one_pinned_one_untitled_and_some_have_labels() -> None:
    archived = [number for number, folder in FOLDERS.items() if ".archive" in folder.parts]
    found = {number: metadata(folder) for number, folder in FOLDERS.items()}
    assert archived == [number for number, facts in found.items() if "archived_at" in facts]
    assert len(archived) == 1
    assert sum("pinned_at" in facts for facts in found.values()) == 1
    assert sum("title" not in facts for facts in found.values()) == 1
    labelled = [facts["labels"] for facts in found.values() if "labels" in facts]
    assert len(labelled) >= 3
    for labels in labelled:
        for key, value in labels.items():
            assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", key)
            assert isinstance(value, str)


def test_several_learn_subjects_and_read_their_files() -> None:
    files = {path.as_posix(): ref for ref, path in SUBJECTS.items()}
    learned, read = set(), set()
    for number, folder in FOLDERS.items():
        for call, result in calls(folder):
            if result is None or result["is_error"]:
                continue
            if call["name"] == "learn" and argument(call, "subjects"):
                learned.add(number)
            if call["name"] == "fs_read_file":
                (path,) = argument(call, "path")
                if any(name.endswith(f"/assets/demo/{path}") for name in files):
                    read.add(number)
    assert len(learned) >= 6
    assert len(read) >= 4


def test_what_is_learned_by_its_exact_slug_exists() -> None:
    for folder in FOLDERS.values():
        for call, _ in calls(folder):
            if call["name"] == "learn":
                (topic,) = argument(call, "topic")
                for slug in argument(call, "subjects"):
                    name = f"{topic.lower()}/{slug.partition(':')[0]}"
                    # One turn learned a page that was replaced later.
                    if "*" not in slug and name != "operations/runbooks/cache-grows":
                        assert name in SUBJECTS


def test_a_search_result_quotes_passages_under_their_headers() -> None:
    texts = [
        decoded(result["content"])
        for folder in FOLDERS.values()
        for call, result in calls(folder)
        if call["name"] == "knowledge_search" and result
    ]
    (text,) = texts
    header = re.compile(
        r"^\[entry (\S+) · chunk [0-9a-f]{16} · score \d\.\d{4}\] (.+)$", re.MULTILINE
    )
    passages = [passage.strip() for passage in header.split(text)[3::3]]
    everything = [path.read_text() for path in SUBJECTS.values()] + [
        event["message"]
        for folder in FOLDERS.values()
        for event in events(folder)
        if "message" in event
    ]
    assert len(passages) >= 3
    for passage in passages:
        assert any(passage in source for source in everything), passage


def test_one_recalls_another_by_grep_and_read() -> None:
    found = {
        call["name"]: (call, result)
        for folder in FOLDERS.values()
        for call, result in calls(folder)
        if call["name"].startswith("conversation_")
    }
    (other,) = argument(found["conversation_read"][0], "id")
    folder = FOLDERS[int(other.removeprefix("jp-c"))]
    hits = found["conversation_grep"][1]
    assert hits is not None
    lines = re.findall(r"<text>(.*)</text>", decoded(hits["content"]))
    said = [
        line
        for event in events(folder)
        for line in str(event.get("message") or event.get("reasoning")).splitlines()
    ]
    assert len(lines) >= 2
    assert set(lines) <= set(said)
