"""References by the ids that JP gives to events since its RFD 097."""

import json
from pathlib import Path

import pytest
from jp_files import ID, Stream, jp_id, load, workspace_at, write

from kbtui.cli.main import main
from kbtui.conversations.conversation_repository import parse_entered_reference
from kbtui.errors import NothingFound
from kbtui.references import parse_ref

NAME = jp_id()


def make_stream(*turns: int) -> Stream:
    """Turns that ask, call a tool and answer; the ids of their events contain the number of the turn."""
    stream = Stream()
    for turn in turns:
        stream.add("turn_start", event_id=f"start{turn}")
        stream.ask(f"Question {turn}", event_id=f"ask{turn}")
        stream.add("tool_call_request", id="1", name="look", arguments={}, event_id=f"call{turn}")
        stream.add("chat_response", message=f"Answer {turn}", event_id=f"say{turn}")
    return stream


@pytest.mark.parametrize(
    "text",
    [
        f"{NAME}#k3m9x2a",
        f"jp://{NAME}#k3m9x2a",
        f"jp://{NAME}?select=a:-1#k3m9x2a",
        f"{NAME}#k3m9x2a@/content:t=Y2hva2Vz",
        f"jp://{NAME}#k3m9x2a@/content:o=42..z4n8v6c@/content:t=ZW1wdHkgbWFw",
        f"{NAME}#k3m9x2a..z4n8v6c",
    ],
)
def test_an_address_of_jp_names_an_event(text: str) -> None:
    ref = parse_ref(text)
    assert (ref.conversation, ref.event, ref.turn) == (NAME, "k3m9x2a", None)
    assert parse_ref(str(ref)) == ref


def test_an_event_is_found_wherever_its_turn_moves(jp: Path) -> None:
    write(jp, make_stream(1, 2, 3))
    workspace = workspace_at(jp.parent)

    def find(event: str) -> str:
        return str(parse_entered_reference(workspace, f"{NAME}#{event}"))

    assert [find(f"{kind}3") for kind in ("start", "ask", "call", "say")] == [
        f"{NAME}:3",
        f"{NAME}:3",
        f"{NAME}:3.1",
        f"{NAME}:3",
    ]
    write(jp, make_stream(1, 3))
    assert find("call3") == f"{NAME}:2.1"
    with pytest.raises(NothingFound, match="has no event 'ask2'"):
        find("ask2")


def test_commands_accept_the_id_of_an_event(
    jp: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(jp, make_stream(1, 2))
    monkeypatch.chdir(jp.parent)
    for command in (["show"], ["c", "read"], ["export"]):
        assert main([*command, f"{NAME}#ask2"]) == 0
        out = capsys.readouterr().out
        assert "Question 2" in out, command
        assert "Question 1" not in out, command
    assert main(["c", "read", f"jp-c{ID}#gone"]) == 1
    capsys.readouterr()
    assert main(["c", "read", f"{NAME}:2", "--json"]) == 0
    [turn] = json.loads(capsys.readouterr().out)["turns"]
    assert [event["event_id"] for event in turn["events"]] == ["ask2", "call2", "say2"]


def test_a_turn_and_a_call_have_lasting_names_if_the_file_has_ids(jp: Path) -> None:
    write(jp, make_stream(1).elements[1:] + Stream().turn().ask("No id").elements)
    first, second = load(jp.parent).turns
    assert (
        first.find_jp_event_id_of_turn_or_call(),
        first.find_jp_event_id_of_turn_or_call(1),
    ) == ("ask1", "call1")
    assert (
        second.find_jp_event_id_of_turn_or_call(),
        second.find_jp_event_id_of_turn_or_call(1),
    ) == (None, None)
