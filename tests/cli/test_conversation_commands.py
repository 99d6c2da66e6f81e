"""Tests of `kbtui conversation`: text, XML, JSON, on a terminal and through a pager."""

import base64
import io
import json
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pexpect
import pytest
from support import grep_answer, list_answer, read_answer

from kbtui.assistant.conversation_tool_answers import ConversationListPage, format_answer_as_xml
from kbtui.cli.conversation_commands import ConversationCommandOutputFormatter, format_age_or_date
from kbtui.cli.main import main
from kbtui.workspace import open_workspace_at_root

ID = 17_800_836_875
ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write(root: Path, number: int, elements: list[dict[str, Any]] | str, title: str | None) -> Path:
    folder = root / ".jp/conversations" / str(number)
    folder.mkdir(parents=True)
    facts = {"last_activated_at": "2026-05-29 10:00:00.0", **({"title": title} if title else {})}
    (folder / "metadata.json").write_text(json.dumps(facts))
    (folder / "base_config.json").write_text("{}")
    text = elements if isinstance(elements, str) else json.dumps(elements, indent=2)
    (folder / "events.json").write_text(text)
    return folder


def element(kind: str, second: int, **fields: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-05-29 10:00:{second:02}.0", "type": kind, **fields}


TALK = [
    element("turn_start", 0),
    element("chat_request", 1, content="Where is the needle?\nIn which haystack?", author="Jean"),
    element("tool_call_request", 2, id="1", name="fs_read_file", arguments={"path": encoded("hay.txt")}),
    element("tool_call_response", 3, id="1", content=encoded("straw\n\x1b[31mneedle\x1b[0m\n"), is_error=False),
    element("turn_start", 4),
    element("chat_response", 5, message="The needle is in hay.txt.\x1b]0;pwned\x07"),
]  # fmt: skip


@pytest.fixture
def root(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    write(workspace_root, ID, TALK, "Needles\x1b[2J in hay")
    write(workspace_root, ID - 10, [element("turn_start", 0)], None)
    monkeypatch.chdir(workspace_root)
    return workspace_root


def kbtui(*words: str) -> int:
    return main(["conversation", *words])


# lists


def test_ls_prints_a_line_a_conversation(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kbtui("ls") == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"jp-c{ID}  6  2026-05-29T10:00:05.000Z  Needles\x1b[2J in hay",
        f"jp-c{ID - 10}  1  2026-05-29T10:00:00.000Z  Untitled",
    ]
    assert err == ""


def test_ls_tells_how_to_get_the_rest(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kbtui("ls", "--limit", "1") == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert "1 more: use --offset 1" in err
    assert kbtui("ls", "--limit", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["hint"] == "1 more: use --offset 1"


def test_ls_names_what_is_broken_and_what_is_no_conversation(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, ID + 1, '[\n  {"a": ', "Half")
    (root / ".jp/conversations/notes").mkdir()
    assert kbtui("ls") == 0
    out, err = capsys.readouterr()
    assert "Half" in out
    assert "    events.json: element 0 is not valid JSON" in out
    assert "notes: skipped: the name" in err


def test_nothing_to_list_is_exit_code_one(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kbtui("ls", "--archived") == 1
    assert kbtui("ls", "--title", "absent", "--json") == 1
    out, _ = capsys.readouterr()
    assert json.loads(out)["conversations"] == []


# one answer on every face


@pytest.mark.parametrize("form", ["json", "xml"])
def test_the_formats_are_the_answers_of_the_room(
    root: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    workspace = open_workspace_at_root(root)
    expected = {
        ("ls",): ("list", list_answer(workspace)),
        ("grep", "NEEDLE", "-C", "1"): (
            "grep",
            grep_answer(workspace, pattern="needle", context=1),
        ),
        ("read", str(ID)): ("read", read_answer(workspace, id=str(ID))),
    }
    for words, (kind, answer) in expected.items():
        assert kbtui(*words, "--format", form) == 0
        out, _ = capsys.readouterr()
        if form == "json":
            assert json.loads(out) == answer
            assert kbtui(*words, "--json") == 0
            assert capsys.readouterr().out == out
        else:
            assert out == format_answer_as_xml(kind, answer) + "\n"


# grep


def test_grep_prints_coordinates_in_jps_own_line_form(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbtui("grep", "needle") == 0
    out, _ = capsys.readouterr()
    assert out.splitlines() == [
        f"jp-c{ID}:..:title:m:Needles\x1b[2J in hay",
        f"jp-c{ID}:1:user:m:Where is the needle?",
        f"jp-c{ID}:1:tool-result:m:\x1b[31mneedle\x1b[0m",
        f"jp-c{ID}:2:assistant:m:The needle is in hay.txt.\x1b]0;pwned\x07",
    ]


def test_grep_takes_words_scopes_ids_context_and_case(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbtui("grep", "in", "which", "-s", "user,title", "-i", f"jp-c{ID}", "-C", "1") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"jp-c{ID}:1:user:c:Where is the needle?",
        f"jp-c{ID}:1:user:m:In which haystack?",
    ]
    assert kbtui("grep", "--case-sensitive", "NEEDLE") == 1
    assert kbtui("grep", "needle", "--limit", "1") == 0
    assert "more matches" in capsys.readouterr().err
    assert kbtui("grep", "--", "-not there") == 1


def test_finding_nothing_prints_nothing_and_is_exit_code_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbtui("grep", "absent") == 1
    assert capsys.readouterr().out == ""
    assert kbtui("grep", "absent", "--json") == 1
    assert json.loads(capsys.readouterr().out)["hits"] == []


# read


def test_read_prints_turns_with_who_said_what(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbtui("read", f"jp-c{ID}:1") == 0
    out, _ = capsys.readouterr()
    assert f"── jp-c{ID}:1 ──" in out
    assert "Jean  2026-05-29T10:00:01.000Z\nWhere is the needle?\nIn which haystack?\n" in out
    assert 'Call fs_read_file #1  2026-05-29T10:00:02.000Z\n{\n  "path": "hay.txt"\n}\n' in out
    assert "Result fs_read_file #1" in out
    assert "Assistant" not in out


def test_read_has_no_limit_for_a_person_but_takes_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, ID + 5, [element("chat_request", 0, content="y" * 200_000)], "Long")
    assert kbtui("read", str(ID + 5)) == 0
    assert "y" * 200_000 in capsys.readouterr().out
    assert kbtui("read", str(ID + 5), "--max-chars", "60000") == 2
    err = capsys.readouterr().err
    assert "--turn 1 shows it shortened" in err
    assert "with --include" in err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["read", "17800000000"], 1),
        (["read", f"jp-c{ID}:9"], 1),
        (["read", "the one about locks"], 2),
        (["read", str(ID), "--turn", "1", "--last", "1"], 2),
        (["read", str(ID), "--include", "chats"], 2),
        (["read"], 2),
        (["write"], 2),
        ([], 2),
        (["grep"], 2),
        (["grep", "x", "-i", "17800000000"], 1),
        (["grep", "x", "-s", "chats"], 2),
        (["ls", "--limit", "0"], 2),
        (["ls", "--sort", "title"], 2),
        (["export", "17800000000"], 1),
    ],
)
def test_errors_have_their_exit_codes_and_say_what_to_do(
    root: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int
) -> None:
    assert kbtui(*words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kbtui: ")


@pytest.mark.parametrize(
    "words",
    [("grep", "otter", "-i", ""), ("grep", "otter", "-i", ","), ("grep", "otter", "-s", ""),
     ("read", str(ID), "--include", "")],
)  # fmt: skip
def test_an_option_that_names_nothing_is_refused_and_does_not_mean_all(
    root: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbtui(*words) == 2
    said = capsys.readouterr()
    assert (said.out, "''" in said.err) == ("", True)


def test_hints_name_options_and_no_tool(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hints of the tools name JSON arguments; the command must name its options."""
    write(
        root,
        ID + 9,
        [element("turn_start", 0), element("chat_request", 1, content="needle")],
        "Old",
    )
    archive = root / ".jp/conversations/.archive"
    archive.mkdir()
    (root / f".jp/conversations/{ID + 9}").rename(archive / str(ID + 9))
    for words, said in (
        (
            ["grep", "x", "-i", str(ID + 9)],
            "kbtui: --id: jp-c17800836884 is archived\n  hint: add --archived",
        ),
        (["grep", "x", "--archived", "-i", str(ID)], "hint: leave out --archived"),
        (["grep", "x", "-i", "17800000000"], "`kbtui conversation ls` lists all conversations"),
        (
            ["grep", "needle", "--limit", "1"],
            "more matches: use a longer pattern, --id or --scope to find fewer, or --limit to show more",
        ),
        (["grep", "x", "--limit", "0"], "kbtui: --limit: must be at least 1"),
        (["read", str(ID), "--turn", "1", "--last", "1"], "--turn and --last cannot be combined"),
        (
            ["read", str(ID), "--turn", "1"],
            "--turn N shows another turn, --last N the last N turns",
        ),
        (
            ["read", str(ID), "--last", "1"],
            "--turn N shows one of them, a larger --last shows more",
        ),
        (["read", str(ID), "--include", "chats"], "kbtui: --include: must be one of"),
        (["read", str(ID), "--max-chars", "5"], "kbtui: --max-chars: "),
        (["ls", "--offset", "40"], "there are only 2 conversations: use a smaller --offset"),
    ):
        kbtui(*words)
        err = capsys.readouterr().err
        assert said in err
        assert not re.search(
            r"use (turn|last|include|offset)|=true|conversation_|\b(turn|last|offset)=", err
        )


def test_a_coordinate_or_link_can_be_pasted_into_read_and_show(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = ("The needle is in hay.txt.", "Where is the needle?")
    first = second[::-1]
    for pasted, (there, not_there) in {
        f"jp-c{ID}:2": second,
        f"jp-c{ID}:1": first,
        f"jp://jp-c{ID}?select=*:2": second,
        f"jp-c{ID}?a:2": second,
    }.items():
        for command in (["conversation", "read"], ["show"]):
            assert main([*command, pasted]) == 0
            out, _ = capsys.readouterr()
            assert there in out
            assert not_there not in out
    assert main(["show", f"jp-c{ID}:1.1"]) == 0
    assert "path: hay.txt" in capsys.readouterr().out
    # A line that grep prints is a reference, and so is its beginning.
    assert kbtui("grep", "hay.txt", "-s", "assistant,title") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"jp-c{ID}:2:assistant:m:")
    for pasted in (line, f"jp-c{ID}:2:assistant", f"jp-c{ID}:2:assistant:c"):
        assert main(["show", pasted]) == 0
        assert "The needle is in hay.txt." in capsys.readouterr().out
    assert kbtui("info", f"jp-c{ID}:..:title:m:Needles: in hay", "--json") == 0
    assert json.loads(capsys.readouterr().out)["id"] == f"jp-c{ID}"


def test_grep_lists_conversations_and_reads_ids_or_the_pattern_from_standard_input(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pipe(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    write(
        root,
        ID + 7,
        [element("turn_start", 0), element("chat_request", 1, content="hay, needle")],
        "Other",
    )
    assert kbtui("grep", "-r", "^(the|hay).*need", "--list") == 0
    listed = capsys.readouterr().out
    assert listed.split() == [f"jp-c{ID}", f"jp-c{ID + 7}"]
    assert kbtui("grep", "needle", "-l", "--limit", "1", "--json") == 0
    shape = json.loads(capsys.readouterr().out)
    assert (shape["total"], shape["omitted"]) == (2, 1)
    assert shape["conversations"] == [
        {"id": f"jp-c{ID}", "agent": "jp", "title": "Needles\x1b[2J in hay", "matches": 4}
    ]
    pipe(listed)
    assert kbtui("grep", "hay, needle", "-i", "-", "-l") == 0
    assert capsys.readouterr().out.split() == [f"jp-c{ID + 7}"]
    pipe(f"jp-c{ID + 7}:1:user:m:hay, needle\njp-c{ID}:1:user:m:Where is it\n")
    assert kbtui("grep", "needle", "-i", "-", "-l") == 0
    assert len(capsys.readouterr().out.split()) == 2
    pipe("hay, needle\n")
    assert kbtui("grep", "-") == 0
    assert capsys.readouterr().out == f"jp-c{ID + 7}:1:user:m:hay, needle\n"
    pipe("\n")
    assert kbtui("grep", "needle", "-i", "-") == 1
    assert kbtui("grep", "-", "-i", "-") == 2


def test_what_only_a_later_jp_knows_is_read_shown_found_and_exported(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elements = [
        element("participants", 0, names=["Jean"]),
        element("turn_start", 1),
        element("chat_request", 2, content="See", resources=[{"uri": "file://a.rs", "text": "fn needle()"}]),
        element("voice_memo", 3, url="file://needle.ogg"),
        element("tool_call_request", 4, id="1", name="look", arguments={}),
        element("tool_call_response", 5, id="1", isError=True,
                content=[{"type": "text", "text": encoded("a needle")}, {"type": "image", "data": "AAAA"}]),
    ]  # fmt: skip
    write(root, ID + 10, elements, "Later")
    ref = f"jp-c{ID + 10}"
    for command in (["conversation", "read", ref], ["show", ref], ["conversation", "export", ref]):
        assert main(command) == 0
        out, err = capsys.readouterr()
        for said in (
            "[resource: file://a.rs]\nfn needle()",
            "voice_memo",
            "file://needle.ogg",
            "a needle\n[image: 3 bytes]",
        ):
            assert said in out, (command, said)
        if command[1] == "read":
            assert "Unknown event voice_memo" in out
            assert "Result look #1 error" in out
            assert "the conversation contains 2 events of unknown kinds (participants 1, voice_memo 1), 1 of them before the first turn" in err  # fmt: skip
    assert kbtui("grep", "needle", "-i", ref) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[2] for line in lines] == ["attachment", "unknown", "tool-result"]
    answer = read_answer(open_workspace_at_root(root), id=ref)
    event = answer["turns"][0]["events"][2]
    assert (event["event_kind"], event["name"]) == ("unknown", "voice_memo")
    assert json.loads(event["content"]) == elements[3]
    assert "<event_kind>unknown</event_kind>" in format_answer_as_xml("read", answer)
    # Kinds that are asked for are given, and no other.
    answer = read_answer(open_workspace_at_root(root), id=ref, include=["chat"])
    kinds = [event["event_kind"] for event in answer["turns"][0]["events"]]
    assert kinds == ["chat_request", "attachment"]


BASE_TIME = "2026-05-29 10:00:00.0"
METADATA = {"last_activated_at": BASE_TIME}


def damage() -> dict[str, tuple[dict[str, bytes], list[str]]]:
    """The files of a damaged conversation, and the expected message."""
    events = [
        element("turn_start", 0),
        element("chat_request", 1, content="Where?"),
        element("chat_response", 2, message="There."),
    ]
    good = json.dumps(events, indent=2)
    facts = json.dumps(METADATA)

    def with_element(**changed: Any) -> bytes:
        value = {**events[1], **changed}
        left = {key: item for key, item in value.items() if item is not ...}
        return json.dumps([events[0], left, events[2]], indent=2).encode()

    def metadata(**changed: Any) -> bytes:
        return json.dumps({**METADATA, **changed}).encode()

    return {
        "invalid UTF-8": ({"events.json": good.encode().replace(b"There", b"Th\xffre")},
                          ["events.json: 1 place is not UTF-8 and shown as \ufffd"]),
        "a comma at the end": ({"events.json": good.replace("\n]", ",\n]").encode()},
                               ["events.json: there is an extra comma after element 2"]),
        "two commas": ({"events.json": good.replace("},\n", "},,\n", 1).encode()},
                       ["events.json: there is an extra comma after element 0"]),
        "no comma": ({"events.json": good.replace("},\n", "}\n", 1).encode()},
                     ["events.json: a comma is missing after element 0"]),
        "an unpaired surrogate": ({"events.json": good.replace("Where", "\\ud800").encode()},
                             ["events.json: element 1 has an unpaired surrogate"]),
        "control characters": ({"events.json": good.replace("Where", "\a").encode()},
                               ["events.json: element 1 has control characters in a string"]),
        "no number": ({"events.json": with_element(schema=float("nan"))},
                      ["events.json: element 1 has the number NaN"]),
        "a wrong type": ({"events.json": with_element(content=7)},
                         ["events.json: element 1 (chat_request): the field content is not a string"]),
        "a wrong author": ({"events.json": with_element(author=7)},
                           ["events.json: element 1 (chat_request): the author is not a string"]),
        "wrong metadata of an event": ({"events.json": with_element(metadata=[])},
                                       ["events.json: element 1 (chat_request): the metadata is not an object"]),
        "no time": ({"events.json": with_element(timestamp=...)},
                    ["events.json: element 1 (chat_request): the timestamp cannot be read"]),
        "a turn without a time": ({"events.json": json.dumps([{"type": "turn_start"}, *events[1:]]).encode()},
                                  ["events.json: element 0 (turn_start): the timestamp cannot be read"]),
        "several": ({"events.json": with_element(timestamp="soon", content=None).replace(b"There", b"\xff"),
                     "metadata.json": metadata(title=["x"], pinned_at="never")},
                    ["metadata.json: the title is not a string", "metadata.json: the field pinned_at is not a time",
                     "1 place is not UTF-8", "the timestamp cannot be read", "the field content is not a string"]),
        "no activity": ({"metadata.json": b"{}"}, ["metadata.json: the field last_activated_at is missing"]),
        "labels": ({"metadata.json": metadata(labels={"a": 1})}, ["metadata.json: some labels are not strings"]),
        "metadata in Latin-1": ({"metadata.json": facts.replace("}", ', "title": "\xe9"}').encode("latin-1")},
                                ["metadata.json: 1 place is not UTF-8 and shown as \ufffd"]),
        "a byte order mark": ({"metadata.json": b"\xef\xbb\xbf" + facts.encode()},
                              ["metadata.json: it starts with a byte order mark"]),
        "the base": ({"base_config.json": b'{"assistant": {"name": "\xff"}}'},
                     ["base_config.json: 1 place is not UTF-8 and shown as \ufffd"]),
    }  # fmt: skip


def test_each_damage_is_named_once_by_ls_and_by_doctor(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = damage()
    wanted = {}
    for number, (files, said) in enumerate(cases.values(), 100):
        folder = write(root, ID + number, TALK, None)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        wanted[f"jp-c{ID + number}"] = said
    (root / ".jp/conversations/notes").mkdir()
    (root / ".jp/conversations/elsewhere").symlink_to("/")
    (root / f".jp/conversations/.trash/{ID + 1}").mkdir(parents=True)
    assert main(["doctor"]) == 1
    doctor = capsys.readouterr().out
    assert kbtui("ls", "--limit", "50") == 0
    listed, noted = capsys.readouterr()
    entries = dict(zip(*[iter(re.split(r"(?m)^(jp-c\d+)", listed)[1:])] * 2, strict=True))
    for (name, _), (ref, said) in zip(cases.items(), wanted.items(), strict=True):
        (finding,) = re.findall(rf"(?m)^wrong +conversations +{ref}: (.*)$", doctor)
        for where in (finding, entries[ref]):
            assert [where.count(words) for words in said] == [1] * len(said), (name, where)
            assert where.count(";") == len(said) - 1, (name, where)
    assert doctor.count("conversations/.trash: skipped: 1 conversation that JP could not read") == 1
    sound = f"jp-c{ID}"
    assert sound not in doctor
    assert "json" not in entries[sound]
    assert doctor.count("conversations/notes: skipped: the name") == 1
    assert doctor.count("conversations/elsewhere: skipped: it is a link") == 1
    # The list of several would hide the conversations.
    assert noted == "kbtui: 2 conversations skipped; `kbtui doctor` lists them with the reasons\n"


def test_very_much_damage_is_counted(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root, ID + 1, [element("turn_start", 0), *[element("chat_request", 1)] * 500], None)
    assert main(["doctor"]) == 1
    (finding,) = re.findall(rf"jp-c{ID + 1}: (.*)", capsys.readouterr().out)
    assert finding.count("the field content is missing") == 10
    assert finding.endswith("; 490 more problems")


def test_a_nested_conversation_is_one_of_its_own(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = root / ".jp/conversations" / str(ID)
    below_first = parent / f"{ID + 1}-child/conversations"
    for number, below in ((ID + 1, parent), (ID + 2, below_first)):
        folder = write(
            root,
            number,
            [element("turn_start", 0), element("chat_request", 1, content="nested needle")],
            "Child",
        )
        below.mkdir(exist_ok=True)
        folder.rename(below / (f"{number}-child"))
    (parent / "attachments").mkdir()
    (parent / "attachments/a.txt").write_text("no conversation")
    (parent / "drafts").mkdir()
    (parent / "drafts/events.json").write_text("[]")
    (parent / "again").symlink_to(parent)
    assert kbtui("ls", "--json") == 0
    out, err = capsys.readouterr()
    assert {entry["id"]: entry["parent_id"] for entry in json.loads(out)["conversations"]} == {
        f"jp-c{ID}": None,
        f"jp-c{ID - 10}": None,
        f"jp-c{ID + 1}": f"jp-c{ID}",
        f"jp-c{ID + 2}": f"jp-c{ID + 1}",
    }
    assert err.count("skipped") == 1
    assert "drafts: skipped: the name does not begin" in err
    assert kbtui("ls") == 0
    assert f"Child  in jp-c{ID + 1}" in capsys.readouterr().out
    for ref in (f"jp-c{ID + 1}", f"jp-c{ID + 2}"):
        assert main(["show", ref]) == 0
        assert "nested needle" in capsys.readouterr().out
    assert kbtui("grep", "nested needle") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    main(["doctor"])
    assert "  4 conversations, 0 archived, 2 within other conversations" in capsys.readouterr().out


def test_an_id_with_the_suffix_of_another_workspace_names_no_conversation_here(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = (["show", "{}"], ["cites", "{}"], ["conversation", "read", "{}"],
                ["conversation", "export", "{}"], ["conversation", "grep", "needle", "-i", "{}"])  # fmt: skip
    for written, suffix, code in (
        (None, "abcde", 0), ("abcde", "abcde", 0), ("abcde", "zzzzz", 1),
    ):  # fmt: skip
        if written:
            (root / ".jp/.id").write_text(f"a preamble\n{written}\n")
        for command in commands:
            for form in (f"jp-c{ID}-{suffix}", f"jp://jp-c{ID}-{suffix}"):
                assert main([word.format(form) for word in command]) == code, (command, form)
                said = capsys.readouterr().err
                assert ("of another workspace" in said) is bool(code)
                assert ("abcde" in said) is bool(code)


# export


def test_export_writes_one_markdown_file_with_sources(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "talk.md"
    assert kbtui("export", str(ID), "-o", str(target)) == 0
    assert capsys.readouterr().out == ""
    text = target.read_text()
    assert "### Jean\n\nWhere is the needle?" in text
    assert "- `hay.txt` (read from its file, call 1, deleted since)" in text
    assert text.rstrip().endswith("- `hay.txt`: turn 1")
    assert kbtui("export", f"jp-c{ID}:2") == 0
    assert "Where is the needle" not in capsys.readouterr().out


@pytest.mark.parametrize("command", [["conversation", "export", str(ID)], ["log"]])
def test_an_output_file_that_cannot_be_written_ends_with_3(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    for target in (Path("/dev/full"), tmp_path / "missing/talk.md", tmp_path):
        assert main([*command, "-o", str(target)]) == 3, target
        assert f"kbtui: {target}: the file cannot be written: " in capsys.readouterr().err
    assert main([*command, "-o", ""]) == 2
    assert "kbtui: -o: the path is empty" in capsys.readouterr().err


def test_no_export_is_written_under_the_jp_directory(
    root: Path, home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (root / ".jp/.id").write_text("preamble\nabcde\n")
    local = home / f"jp/workspace/ws-abcde/conversations/{ID}"
    local.mkdir(parents=True)
    for folder in (root / ".jp/conversations" / str(ID), local):
        (folder / "events.json").write_text(json.dumps(TALK))
    (root / ".jp/kb.toml").write_text("# mine\n")
    link, hard, folder_link = root / "link.md", root / "hard.md", root / "talks"
    link.symlink_to(root / ".jp/kb.toml")
    folder_link.symlink_to(root / ".jp/conversations")
    events = root / ".jp/conversations" / str(ID) / "events.json"
    before = {
        path: path.read_bytes()
        for path in [*(root / ".jp").rglob("*.*"), *local.iterdir()]
        if path.is_file()
    }
    other = tmp_path / "other/.jp/kb.toml"
    other.parent.mkdir(parents=True)
    for command in (["conversation", "export", str(ID)], ["log"]):
        for target in (
            events, root / ".jp/kb.toml", root / ".jp/new.md", root / "docs/../.jp/new.md", link,
            folder_link / str(ID) / "events.json", local / "events.json", other, Path(".jp/new.md"),
        ):  # fmt: skip
            assert main([*command, "-o", str(target)]) == 2, target
            assert "cannot export into one of JP's directories" in capsys.readouterr().err
    # A file with another name outside is replaced, and the one that JP has stays.
    os.link(events, hard)
    assert kbtui("export", str(ID), "-o", str(hard), "--force") == 0
    assert "Where is the needle?" in hard.read_text()
    assert {path: path.read_bytes() for path in before} == before
    assert not other.exists()
    assert not (root / ".jp/new.md").exists()
    # What is no regular file is written to as it is.
    assert kbtui("export", str(ID), "-o", "/dev/null") == 0


# the whole command


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kbtui.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_the_workspace_is_named_anywhere_and_the_alias_works(root: Path, tmp_path: Path) -> None:
    for words in (
        ["-w", str(root), "c", "ls"],
        ["c", "-w", str(root), "ls"],
        ["conversation", "ls", "-w", str(root)],
    ):
        done = run(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout.count("jp-c")) == (0, 2), done.stderr
    assert run("c", "ls", cwd=tmp_path.parent).returncode in (1, 3)


def test_reading_into_a_closed_pipe_is_no_error(root: Path) -> None:
    write(root, ID + 5, [element("chat_request", 0, content="y\n" * 500_000)], "Long")
    command = f"{sys.executable} -m kbtui.cli.main c read {ID + 5} | head -n 1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith(f"jp-c{ID + 5}")
    assert done.stderr == ""


def terminal(*words: str, command: str = "conversation", **environment: str) -> str:
    """Return the output on a terminal of 80 columns."""
    env = {**os.environ, "TERM": "xterm-256color", "PAGER": "", **environment}
    line = [sys.executable, "-m", "kbtui.cli.main", command, *words]
    child = pexpect.spawn(line[0], line[1:], env=env, dimensions=(24, 80), timeout=60)
    child.expect(pexpect.EOF)
    child.close()
    text: str = child.before.decode()
    return text


def test_a_person_is_told_when_nothing_is_found(root: Path) -> None:
    assert "no matches; --archived searches archived conversations" in terminal("grep", "absent")


def test_a_terminal_gets_colours_relative_times_and_nothing_dangerous(root: Path) -> None:
    shown = terminal("grep", "needle")
    assert "\x1b[1;31mneedle\x1b[0m" in shown, "the match stands out"
    assert "\x1b[2J" not in shown
    assert "\x1b]0" not in shown
    plain = ESCAPES.sub("", shown).replace("\r\n", "\n")
    assert f"jp-c{ID}  Needles in hay" in plain
    assert "   :1 user        Where is the needle?\n" in plain
    assert "   :1 user        In which haystack?\n" in plain, "one line of context"
    listed = ESCAPES.sub("", terminal("ls"))
    assert re.match(r"ID +Events  Activity +Title\r\n", listed), (
        "a stranger sees what the numbers are"
    )
    assert "2026-05-29  Needles in hay" in listed or "ago  Needles in hay" in listed
    read = terminal("read", str(ID))
    assert "\x1b]0" not in read
    assert "The needle is in hay.txt." in read


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_means_none(root: Path, environment: dict[str, str]) -> None:
    for words in (["ls"], ["grep", "needle"], ["read", str(ID)]):
        assert "\x1b" not in terminal(*words, **environment)


def test_long_lines_fit_the_terminal_with_their_match_in_sight(root: Path) -> None:
    text = "a" * 300 + " needle " + "b" * 300
    write(root, ID + 7, [element("chat_request", 0, content=text)], "x" * 200)
    for line in ESCAPES.sub("", terminal("grep", "needle", "-i", str(ID + 7))).splitlines():
        assert len(line) <= 80
        if " user " in line:
            assert "needle" in line
    assert all(len(line) <= 80 for line in ESCAPES.sub("", terminal("ls")).splitlines())


def test_a_pager_is_used_on_a_terminal_and_never_in_a_pipe(root: Path, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "[paged $LESS]"\ncat\ntouch "$(dirname "$0")/used"\n')
    pager.chmod(0o755)
    quoted = shlex.quote(str(pager))
    shown = terminal("read", str(ID), PAGER=f"{quoted} --flag")
    assert "[paged FRX]" in shown
    assert "Where is the needle?" in shown
    (tmp_path / "used").unlink()
    done = run("conversation", "read", str(ID), env={**os.environ, "PAGER": quoted}, cwd=root)
    assert done.returncode == 0
    assert not (tmp_path / "used").exists()
    assert "Where is the needle?" in terminal("read", str(ID), PAGER="/nowhere/pager")
    assert "[paged FRX]" in terminal(f"jp-c{ID}:1", command="show", PAGER=f"{quoted} --flag")


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(seconds=-5), "just now"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(minutes=59), "59 minutes ago"),
        (timedelta(hours=23), "23 hours ago"),
        (timedelta(days=1), "1 day ago"),
        (timedelta(days=29), "29 days ago"),
        (timedelta(days=31), "2026-04-30"),
        (timedelta(days=-2), "2026-06-02"),
    ],
)
def test_how_long_ago(before: timedelta, expected: str) -> None:
    now = datetime(2026, 5, 31, 12, tzinfo=UTC)
    assert format_age_or_date(now - before, now) == expected


def test_marks_of_a_conversation_are_words(root: Path) -> None:
    entry: dict[str, Any] = {
        "id": "jp-c1",
        "title": None,
        "events_count": None,
        "created_at": "2026-05-29T10:00:00.000Z",
        "last_event_at": None,
        "archived_at": "2026-05-29T10:00:00.000Z",
        "expires_at": None,
        "updated_at": None,
        "pinned_at": "2026-05-29T10:00:00.000Z",
        "parent_id": "jp-c7",
        "worktree": None,
        "labels": {"area": "search", "draft": ""},
        "problem": None,
    }
    writer = ConversationCommandOutputFormatter(
        terminal=False, colours=False, width=80, now=datetime.now(UTC)
    )
    assert list(writer.format_conversation_list(ConversationListPage(1, 0, [entry]))) == [
        "jp-c1  ?  2026-05-29T10:00:00.000Z  Untitled  pinned archived in jp-c7 [area=search] [draft]"
    ]
