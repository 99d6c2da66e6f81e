"""Older formats and peculiarities of JP's files (docs/jp-format.md), also in damaged files."""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from jp_files import BASE, ID, Stream, dump, jp_id, load, texts, time, workspace_at, write
from support import grep_answer, list_answer, read_answer

from kbtui.conversations.conversation_data_types import ConversationInfo
from kbtui.conversations.conversation_repository import find_conversation, list_conversations

SOUND = Stream().turn().ask("one hit").say("two").elements


def listed_ids(jp: Path, **options: object) -> list[str]:
    answer = list_answer(workspace_at(jp.parent), **options)  # type: ignore[arg-type]
    return [entry["id"] for entry in answer["conversations"]]


def test_the_format_before_december_2025_is_named(jp: Path) -> None:
    """JP no longer reads `messages.json`."""
    folder = write(jp, None, base=None)
    (folder / "messages.json").write_text(
        dump([{"timestamp": time(0), "message": "Hi", "reply": {"provider": "x", "content": "Ho"}}])
    )
    info = find_conversation(workspace_at(jp.parent), jp_id())
    assert (
        info.problem
        == "there is no events.json, only a messages.json, which JP wrote before December 2025"
    )
    assert listed_ids(jp) == [f"jp-c{ID}"]


def test_old_metadata_and_old_forms_of_configuration_are_accepted(jp: Path) -> None:
    """Old files have `local`, `typewriter`, `enable` as a string, and an alias of the model."""
    old = {
        "assistant": {"name": "Old", "model": {"id": "opus"}, "tool_choice": "auto"},
        "conversation": {"attachments": ["file://a.md"], "tools": {"*": {"enable": "explicit"}}},
        "style": {"typewriter": {"text_delay": {"secs": 0, "nanos": 3_000_000}}},
    }
    metadata = {"title": "Old", "last_activated_at": time(0), "local": True}
    write(jp, Stream().delta(**old).ask("Hi").say("Ho"), base=None, metadata=metadata)
    conversation = load(jp.parent)
    assert (conversation.assistant, conversation.model) == ("Old", "opus")
    assert conversation.attachments == ["file://a.md"]
    assert conversation.problems == []
    assert conversation.info.problem is None


def test_activity_is_the_last_elements_even_where_metadata_stayed_behind(jp: Path) -> None:
    """`last_activated_at` may be hours earlier than the last event."""
    behind = {"title": "Behind", "last_activated_at": "2026-05-29 08:00:00.0"}
    write(jp, Stream().turn().ask("a").say("much later"), number=ID, metadata=behind)
    ahead = {"title": "Ahead", "last_activated_at": "2026-06-01 08:00:00.0"}
    write(jp, Stream().turn().ask("a"), number=ID - 7, metadata=ahead)
    assert listed_ids(jp) == [f"jp-c{ID}", f"jp-c{ID - 7}"]
    assert listed_ids(jp, descending=False) == [f"jp-c{ID - 7}", f"jp-c{ID}"]


def test_a_locked_conversation_is_read_and_its_lock_left_alone(jp: Path, silo: Path) -> None:
    """JP skips conversations that another process has locked; kbtui needs no lock to read."""
    write(silo, SOUND)
    (silo / "locks").mkdir()
    lock = silo / "locks" / f"jp-c{ID}.lock"
    lock.write_text('{"pid": 1, "acquired_at": "2026-05-29T10:00:00Z"}')
    before = lock.stat().st_mtime_ns
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert texts(load(jp.parent)) == ["one hit", "two"]
        assert grep_answer(workspace_at(jp.parent), pattern="hit")["total"] == 1
    assert lock.stat().st_mtime_ns == before


def test_a_broken_archived_conversation_stays_listed_with_its_reason(jp: Path) -> None:
    """JP never checks archived conversations; kbtui also reports their damage."""
    write(jp, "[", archived=True, metadata="{")
    write(jp, SOUND, number=ID + 1, archived=True)
    answer = list_answer(workspace_at(jp.parent), archived=True)
    problems = {entry["id"]: entry["problem"] for entry in answer["conversations"]}
    assert problems[f"jp-c{ID + 1}"] is None
    assert "metadata.json" in problems[f"jp-c{ID}"]
    assert "events.json" in problems[f"jp-c{ID}"]
    found = grep_answer(workspace_at(jp.parent), pattern="hit", archived=True)
    assert found["total"] == 1
    assert f"jp-c{ID}: " in found["hint"]


def test_what_leads_before_any_request_is_kept(jp: Path) -> None:
    """JP drops answers before the first request; kbtui shows them."""
    stream = (
        Stream()
        .say("an answer to nothing")
        .turn()
        .ask("q")
        .add("tool_call_response", id="7", content="eA==", is_error=False)
    )
    write(jp, stream)
    conversation = load(jp.parent)
    assert [turn.number for turn in conversation.turns] == [1, 2]
    assert texts(conversation) == ["an answer to nothing", "q", "x"]
    assert "no earlier event has the same id" in conversation.problems[0]


@pytest.mark.parametrize(
    ("text", "total", "said"),
    [
        (dump(SOUND)[:-30], 1, "element 2 is not valid JSON"),
        ("\ufeff" + dump(SOUND), 1, "byte order mark"),
        (dump(SOUND).replace('"two"', "[" * 100_000 + "]" * 100_000), 1, "nested too deeply"),
        (dump(SOUND).replace('"two"', '"\\ud800 hit"'), 2, None),
        (dump(SOUND).replace('"two"', '"a\\u0000 hit\\u0000"'), 2, None),
        (dump(SOUND) + "\0" * 5000, 1, "after the end of the array"),
        ("\0" * 5000, 0, "only NUL characters"),
        ("", 0, "it is empty"),
        ("{}", 0, "is not a JSON array"),
    ],
)  # fmt: skip
def test_what_is_broken_is_searched_as_far_as_it_goes_and_named(
    jp: Path, text: str, total: int, said: str | None
) -> None:
    write(jp, text, title=None)
    write(jp, SOUND, number=ID + 1, title=None)
    answer = grep_answer(workspace_at(jp.parent), pattern="hit")
    assert answer["total"] == total + 1
    if said is None:
        assert answer["hint"] is None
    else:
        assert f"not be searched completely: jp-c{ID}: " in answer["hint"]
        assert said in answer["hint"]
    assert set(listed_ids(jp)) == {f"jp-c{ID}", f"jp-c{ID + 1}"}


def test_a_conversation_that_vanishes_while_all_are_searched(
    jp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(jp, SOUND)
    write(jp, SOUND, number=ID + 1)
    from kbtui.assistant import conversation_tools

    def list_then_remove(*arguments: Any, **options: Any) -> list[ConversationInfo]:
        infos = list_conversations(*arguments, **options)
        shutil.rmtree(folder)
        return infos

    monkeypatch.setattr(conversation_tools, "list_conversations", list_then_remove)
    answer = grep_answer(workspace_at(jp.parent), pattern="hit")
    assert [hit["id"] for hit in answer["hits"]] == [f"jp-c{ID + 1}"]
    assert (
        answer["hint"]
        == f"1 conversation could not be searched completely: jp-c{ID}: there is no such file"
    )


def test_a_directory_whose_name_is_no_utf8_is_like_any_other(jp: Path) -> None:
    folder = write(jp, SOUND)
    name = os.fsencode(folder.parent) + b"/%d-\xff\xfe" % ID
    try:
        folder.rename(os.fsdecode(name))
    except OSError:
        return  # a file system that has no such names has no such conversations
    write(jp, SOUND, number=ID + 1)
    workspace = workspace_at(jp.parent)
    assert grep_answer(workspace, pattern="hit")["total"] == 2
    assert read_answer(workspace, id=str(ID))["count"] == 1
    assert len(list_conversations(workspace)) == 2


def test_the_base_configuration_is_never_searched(jp: Path) -> None:
    secret = {**BASE, "assistant": {"instructions": [{"title": "a hidden hit"}]}}
    write(jp, Stream().delta(**secret).turn().ask("x"), base=secret, title=None)
    answer = grep_answer(workspace_at(jp.parent), pattern="hidden hit")
    assert (answer["total"], answer["hits"], answer["hint"]) == (0, [], None)
