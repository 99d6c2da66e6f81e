"""Marks stay with their texts: after appends, rewrites and on another machine."""

import json
import random
import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import Builder, asked, called, encoded, said, stamp, write_json

from kbtui.assistant.conversation_tools import answer_conversation_read
from kbtui.cli.main import main
from kbtui.conversations.conversation_repository import find_conversation, load_conversation
from kbtui.engine.search_service import answer_search_request
from kbtui.errors import NothingFound, UsageError
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.library import open_workspace
from kbtui.library.diagnostics import run_diagnostics
from kbtui.references import parse_ref
from kbtui.search.search_request_and_answer import SearchAnswer, SearchRequest, SemanticRanking
from kbtui.userdata.turn_mark_store import MarkStore
from kbtui.workspace import Settings

ID = "jp-c17800000001"
START = datetime(2026, 5, 1, tzinfo=UTC)


class Talk:
    """A conversation whose turns a test adds, removes, edits and rewrites. Many texts are equal."""

    def __init__(self, builder: Builder, has_ids: bool) -> None:
        self.folder = builder.conversation(1, [])
        self.has_ids = has_ids
        self.turns: list[list[dict[str, Any]]] = []
        self.events = 0

    def make_event(self, element: dict[str, Any]) -> dict[str, Any]:
        self.events += 1
        when = stamp(START + timedelta(minutes=self.events))
        return {"timestamp": when, "id_": f"e{self.events}", **element}

    def add_turn(self, words: str) -> None:
        path = encoded(f"{words}.md")
        self.turns.append([
            self.make_event(one)
            for one in (
                {"type": "turn_start"},
                asked(words),
                {"type": "tool_call_request", "id": "1", "name": "fs", "arguments": {"path": path, "n": 1}},
                {"type": "tool_call_response", "id": "1", "content": encoded("ok"), "is_error": False},
                said(f"We do {words},\nas always."),
            )
        ])  # fmt: skip

    def write(self) -> None:
        elements = []
        for event in (event for turn in self.turns for event in turn):
            own = {name: value for name, value in event.items() if name != "id_"}
            elements.append({"event_id": event["id_"], **own} if self.has_ids else own)
        write_json(self.folder / "events.json", elements)

    def list_requests(self) -> list[str]:
        """The identity of each turn: that of its request."""
        return [turn[1]["id_"] for turn in self.turns]


_WORDS = st.sampled_from(["go on", "go on ", "why?", "use a lock"])
_CHANGE = st.one_of(
    st.tuples(st.just("append"), _WORDS),
    st.tuples(st.just("answer"), _WORDS),
    st.tuples(st.just("remove"), st.integers(0, 9)),
    st.tuples(st.just("edit"), st.integers(0, 9)),
    st.tuples(st.just("edit call"), st.integers(0, 9)),
    st.tuples(st.just("edit answer"), st.integers(0, 9)),
    st.tuples(st.just("rewrite"), st.none()),
    st.tuples(st.just("reorder keys"), st.none()),
    st.tuples(st.just("configure"), st.integers(0, 9)),
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None
)
@given(
    words=st.lists(_WORDS, min_size=1, max_size=5),
    has_ids=st.booleans(),
    kinds=st.lists(st.sampled_from(["turn", "call", "passage"]), min_size=5, max_size=5),
    changes=st.lists(_CHANGE, max_size=6),
)
def test_appends_and_rewrites_neither_lose_nor_move_a_mark(
    tmp_path_factory: pytest.TempPathFactory,
    words: list[str],
    has_ids: bool,
    kinds: list[str],
    changes: list[tuple[str, Any]],
) -> None:
    builder = Builder(tmp_path_factory.mktemp("marks"))
    talk = Talk(builder, has_ids)
    for text in words:
        talk.add_turn(text)
    talk.write()
    store = MarkStore(builder.workspace)
    owners: dict[str, tuple[str, str]] = {}
    for number, (kind, owner) in enumerate(zip(kinds, talk.list_requests(), strict=False), 1):
        ref = parse_ref(f"{ID}:{number}" + (".1" if kind == "call" else ""))
        passage = "We do" if kind == "passage" else None
        target = f"{ID}:{len(words)}" if kind == "passage" or number < len(words) else None
        mark = store.mark_turn(ref, "superseded", note=owner, passage=passage, superseded_by=target)
        owners[mark.id] = (owner, kind)
    assert len(owners) == min(len(words), 5)
    last = talk.list_requests()[-1]
    edited: set[tuple[str, str]] = set()
    keeps_ids = has_ids  # A mark knows the ids that existed when it was set.
    for change, value in changes:
        turns = talk.turns
        if change == "append":
            talk.add_turn(value)
        elif change == "answer" and turns:
            turns[-1].append(talk.make_event(said(value)))
        elif change == "remove" and turns:
            del turns[value % len(turns)]
        elif change.startswith("edit") and turns:
            turn = turns[value % len(turns)]
            at, name, kind = {
                "edit": (1, "content", "turn"),
                "edit call": (2, "name", "call"),
                "edit answer": (4, "message", "passage"),
            }[change]
            turn[at] = {**turn[at], name: f"changed {value}"}
            edited.add((turn[1]["id_"], kind))
        elif change == "rewrite":
            talk.has_ids = True
        elif change == "reorder keys":
            talk.turns = [[dict(reversed(event.items())) for event in turn] for turn in turns]
        elif change == "configure" and turns:
            turns[value % len(turns)].insert(
                1 + 4, talk.make_event({"type": "config_delta", "delta": {}})
            )
        talk.write()
        present = talk.list_requests()
        for placed in MarkStore(builder.workspace).list_placed_marks():
            owner, kind = owners[placed.mark.id]
            assert placed.mark.note == owner
            if owner in present and (keeps_ids or (owner, kind) not in edited):
                assert placed.place is not None
                assert placed.place.is_text_changed == ((owner, kind) in edited)
                assert ("(edited since)" in placed.label.partition(" by ")[0]) == (
                    (owner, kind) in edited
                )
                assert present[placed.place.turn - 1] == owner
                assert placed.ref == f"{ID}:{placed.place.turn}" + (".1" if kind == "call" else "")
            else:
                assert (placed.place, placed.problem) == (None, "text")
            if placed.mark.superseded_by is None:
                continue
            if last in present and (keeps_ids or (last, "turn") not in edited):
                assert placed.mark.superseded_by == f"{ID}:{present.index(last) + 1}"
                assert placed.target_problem == ("changed" if (last, "turn") in edited else "")
            else:
                assert placed.target_problem == "gone"
        assert len(store.list_marks()) == len(owners)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(tmp_path / "ws")
    monkeypatch.chdir(builder.root)
    builder.conversation(
        1,
        [
            [asked("Which lock?"), *called("a", "fs_read_file", "text", path="a.md"), said("A file\nlock.")],
            [asked("Go on"), said("Done.")],
            [asked("Go on"), said("Done again.")],
        ],
        title="Locks",
    )  # fmt: skip
    return builder


def kbtui(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["mark", *words]) == code
    return capsys.readouterr().out


def test_the_command_sets_lists_replaces_and_removes(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    out = kbtui(capsys, "add", f"{ID}:2", "decided", "--note", "a\x1b[31m note")
    assert out.startswith(f"{ID}:2  decided: a")
    assert "\x1b" not in out
    assert kbtui(capsys, "add", f"{ID}:2", "superseded", "--by", f"{ID}:3").startswith(
        f"{ID}:2  superseded by {ID}:3"
    )
    kbtui(capsys, "add", f"{ID}:1.1", "rejected")
    out = kbtui(capsys, "add", f"{ID}:1", "decided", "--passage", "A  file lock")
    assert "decided “A file lock”" in out
    shape = json.loads(kbtui(capsys, "ls", "--json"))
    assert shape["total"] == 3
    assert [(one["ref"], one["state"], one["matches"]) for one in shape["marks"]] == [
        (f"{ID}:1", "decided", True),
        (f"{ID}:1.1", "rejected", True),
        (f"{ID}:2", "superseded", True),
    ]
    assert kbtui(capsys, "ls", "--state", "rejected").startswith(f"{ID}:1.1  rejected")
    for ref, count in ((ID, 3), (f"{ID}:1", 2), (f"{ID}:1.1", 1), (f"{ID}:2", 1)):
        assert len(kbtui(capsys, "ls", ref).splitlines()) == count
    kbtui(capsys, "ls", f"{ID}:3", code=1)
    kbtui(capsys, "rm", shape["marks"][1]["id"], f"{ID}:2")
    assert len(kbtui(capsys, "ls", ID).splitlines()) == 1
    for words in (
        ["add", ID, "decided"],
        ["add", f"{ID}:1", "decided", "--by", ID],
        ["add", f"{ID}:1", "superseded", "--by", ""],
        ["add", f"{ID}:1", "superseded", "--by", "banana"],
        ["add", f"{ID}:1", "superseded", "--by", "no reference"],
        ["add", f"{ID}:1", "superseded", "--by", f"{ID}:1"],
        ["add", f"{ID}:1", "superseded", "--by", f"jp://{ID}?select=a:1"],
        ["add", f"{ID}:1", "superseded", "--by", f"jp://{ID}?select=a:-1"],
        ["add", f"{ID}:1", "superseded"],
        ["add", "topic/slug", "decided"],
        ["import", "nowhere.json"],
    ):
        assert main(["mark", *words]) == 2
    for words in (["add", f"{ID}:9", "decided"], ["rm", f"{ID}:3"], ["ls", "--unmatched"]):
        assert main(["mark", *words]) == 1
    assert main(["mark", "add", f"{ID}:1.9", "decided"]) == 1
    for option, size in (("--note", 2001), ("--passage", 10_001)):
        assert main(["mark", "add", f"{ID}:1", "decided", option, "x" * size]) == 2
    for gone in (f"{ID}:9", "jp-c17811111111:1", "topic/slug", "chunk:00"):
        assert main(["mark", "add", f"{ID}:1", "superseded", "--by", gone]) == 1, gone
    assert main(["mark", "add", f"{ID}:2", "decided", "--passage", "not there"]) == 1


def test_a_passage_is_found_as_the_reader_shows_it(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built.conversation(2, [[asked("Which?"), said("Use **a `file` lock**,\n*always*.")]])
    turn = "jp-c17800000002:1"
    for passage in ("Use a file lock, always.", "**a `file` lock**"):
        assert kbtui(capsys, "add", turn, "decided", "--passage", passage).startswith(turn)
    assert main(["mark", "add", turn, "decided", "--passage", "a database lock"]) == 1
    # A long note does not hide the other rows.
    capsys.readouterr()
    kbtui(capsys, "add", f"{ID}:1.1", "rejected", "--note", "ü" * 2000)
    assert max(map(len, kbtui(capsys, "ls").splitlines())) < 300
    assert main(["show", f"{ID}:1.1"]) == 0
    assert f"Mark: call 1 rejected: {'ü' * 2000}" in capsys.readouterr().out


def test_a_mark_is_shown_wherever_its_turn_is_printed(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    kbtui(capsys, "add", f"{ID}:2", "decided", "--note", "use *RRF*")
    kbtui(
        capsys,
        "add",
        f"{ID}:1.1",
        "rejected",
        "--note",
        "sk-ant-api03-" + "a1B2" * 23 + "-abcdefAA",
    )
    commands = {
        ("conversation", "read", ID): ["mark: decided: use *RRF*", "mark: call 1 rejected: sk-"],
        ("show", f"{ID}:2"): ["Mark: decided: use *RRF*"],
        ("conversation", "export", ID): ["> **Mark:** decided: use \\*RRF\\*", "call 1 rejected"],
        ("conversation", "read", ID, "--format", "xml"): ["<mark>", "<state>decided</state>"],
    }
    for words, shown in commands.items():
        assert main([*words]) == 0
        out = capsys.readouterr().out
        assert all(text in out for text in shown), (words, out)
    assert main(["conversation", "read", f"{ID}:2", "--json"]) == 0
    (turn,) = json.loads(capsys.readouterr().out)["turns"]
    assert [(mark["state"], mark["note"]) for mark in turn["marks"]] == [("decided", "use *RRF*")]
    given = answer_conversation_read(built.workspace, id=ID, masked=True).as_json()
    assert "sk-ant" not in json.dumps(given)
    assert "use *RRF*" in json.dumps(given)
    assert main(["conversation", "grep", "Done.", "--json"]) == 0
    (hit,) = json.loads(capsys.readouterr().out)["hits"]
    assert [mark["label"] for mark in hit["marks"]] == ["decided: use *RRF*"]
    # Damaged marks hide no conversation.
    (built.workspace.user_data_directory / "marks.sqlite").write_bytes(b"no database" * 100)
    assert main(["conversation", "read", ID]) == 0
    assert "mark:" not in capsys.readouterr().out
    for words in (["grep", "Done."], ["read", ID]):
        assert main(["conversation", *words, "--json"]) == 0
        hint = json.loads(capsys.readouterr().out)["hint"]
        assert "marks are not shown" in hint
        assert "`kbtui doctor` says" in hint
    given = answer_conversation_read(built.workspace, id=ID, masked=True).as_json()
    assert str(given["hint"]).endswith("file is not a database: tell the user")
    assert (
        open_workspace(built.root)
        .map_marks_by_turn(load_conversation(find_conversation(built.workspace, ID)))
        .notice
    )
    for words in (
        ["show", f"{ID}:1"],
        ["conversation", "read", ID],
        ["conversation", "export", ID],
    ):
        assert main(words) == 0
        assert "marks are not shown" in capsys.readouterr().err
    assert main(["mark", "ls"]) == 3
    err = capsys.readouterr().err
    assert "the file is damaged" in err
    assert "kbtui mark import" in err
    findings = {one.code for one in run_diagnostics(open_workspace(built.root))}
    assert "marks_unusable" in findings


def test_hits_have_their_marks_and_are_filtered_by_them(built: Builder, tmp_path: Path) -> None:
    built.conversation(2, [[asked("Which lock now?"), said("A lock in the database.")]])
    index = WorkspaceIndexWriter(built.workspace, Settings(), cache_dir=tmp_path / "index")
    index.refresh_index()
    index.close()
    store = MarkStore(built.workspace)
    reader = IndexReader(tmp_path / "index")

    def search(query: str, **options: Any) -> list[tuple[str, list[str]]]:
        everything = [
            (number, 1.0 / number)
            for number in range(1, 30)
            if reader.get_chunks_by_number([number])
        ]

        def rank(question: SearchRequest, generation: str) -> SemanticRanking:
            chosen = question.chunks
            kept = [pair for pair in everything if not chosen or pair[0] in chosen]
            return SemanticRanking(kept)

        request = SearchRequest(query, per_entry=9, **options)
        answer = answer_search_request(built.workspace, reader, request, lambda text: rank)
        assert not answer.mistakes
        copy = SearchAnswer.from_engine_message(answer.as_engine_message())
        return [(hit.ref, [mark["label"] for mark in hit.marks]) for hit in copy.hits]

    with closing(reader):
        for mode in ("lexical", "hybrid"):
            plain = search("lock", mode=mode)
            ranking = [ref for ref, _ in plain]
            assert {ref.partition(".")[0] for ref in ranking} >= {f"{ID}:1", "jp-c17800000002:1"}
            assert all(labels == [] for _, labels in plain)
            assert search("lock mark:decided", mode=mode) == []
            store.mark_turn(parse_ref(f"{ID}:1"), "decided", note="file")
            store.mark_turn(parse_ref("jp-c17800000002:1"), "rejected")
            marked = search("lock", mode=mode)
            assert [ref for ref, _ in marked] == ranking
            assert dict(marked)[f"{ID}:1"] == ["decided: file"]
            for text, options in (
                ("lock mark:decided", {}),
                ("lock", {"marks": ("decided",)}),
                ("lock -mark:rejected", {}),
                ("lock mark:any -mark:rejected", {}),
            ):
                found = {ref.partition(".")[0] for ref, _ in search(text, mode=mode, **options)}
                assert f"{ID}:1" in found, text
                assert "jp-c17800000002:1" not in found
                if text[5:] != "-mark:rejected":
                    assert found == {f"{ID}:1"}
            assert search("mark:rejected", mode=mode)
            for mark in store.list_marks():
                store.remove_mark(mark.id)
        (built.workspace.user_data_directory / "marks.sqlite").write_bytes(b"no database" * 100)
        for text in ("lock", "lock -mark:rejected", "mark:rejected"):
            request = SearchRequest(text, per_entry=9, mode="lexical")
            answer = answer_search_request(built.workspace, reader, request)
            assert "marks are not shown: the file is damaged" in str(answer.degraded)
            assert bool(answer.hits) == (text != "mark:rejected")


def test_marks_without_their_text_are_listed_and_move_to_another_machine(
    built: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ref in (f"{ID}:1", f"{ID}:3"):
        kbtui(capsys, "add", ref, "decided", "--note", ref)
    exported = kbtui(capsys, "export")
    file = tmp_path / "marks.json"
    file.write_text(exported)
    events = json.loads((built.root / ".jp/conversations/17800000001/events.json").read_text())
    for ref in (f"{ID}:1", f"{ID}:3"):
        kbtui(capsys, "rm", ref)
    assert kbtui(capsys, "import", str(file)) == "2 marks, 2 new or newer than here\n"
    assert kbtui(capsys, "import", str(file)) == "2 marks, 0 new or newer than here\n"
    assert kbtui(capsys, "export") == exported
    older = json.loads(exported)
    for mark in older["marks"]:
        # Earlier versions wrote Unix seconds.
        mark["changed"] = datetime.fromisoformat(mark["changed"]).timestamp() - 1
        mark["note"] = "older"
    file.write_text(json.dumps(older))
    kbtui(capsys, "import", str(file))
    assert kbtui(capsys, "export") == exported
    # The first turn goes, and with it the text of its mark.
    starts = [at for at, event in enumerate(events) if event["type"] == "turn_start"]
    write_json(built.root / ".jp/conversations/17800000001/events.json", events[starts[1] :])
    out = kbtui(capsys, "ls")
    assert f"{ID}:2  decided: {ID}:3" in out
    assert "no turn has the marked text any more" in out
    assert "    the marked text was: Which lock?" in kbtui(capsys, "ls", "--unmatched").splitlines()
    file.write_text('{"marks": [{"id": 1}]}')
    assert main(["mark", "import", str(file)]) == 2
    # A reference removes only marks that are on its turn now. The lost mark was set on turn 1.
    kbtui(capsys, "rm", f"{ID}:1", code=1)
    kbtui(capsys, "add", f"{ID}:1", "rejected")
    kbtui(capsys, "rm", f"{ID}:1")
    lost = kbtui(capsys, "ls", "--unmatched")
    assert len(lost.splitlines()) == 3
    kbtui(capsys, "rm", lost.splitlines()[0].rpartition("; ")[2].rstrip(")"))
    kbtui(capsys, "ls", "--unmatched", code=1)
    (built.root / ".jp/conversations/17800000001/events.json").write_text("[{")
    assert "the conversation or a part of it cannot be read" in kbtui(capsys, "ls")
    shutil.rmtree(built.root / ".jp/conversations/17800000001")
    assert "the conversation no longer exists" in kbtui(capsys, "ls")


@pytest.mark.parametrize(
    "changes",
    [
        {"changed": float("nan")},
        {"changed": float("inf")},
        {"created": 253402300800},
        {"turn": 0},
        {"turn": 10**9 + 1},
        {"call": -1},
        {"conversation": "no id"},
        {"conversation": f"{ID}:1"},
        {"superseded_by": f"{ID}:2"},
        {"state": "superseded", "superseded_by": "no reference"},
        {"changed": "yesterday"},
        {"id": "a" * 11},
        {"note": "\ud800"},
    ],
)
def test_an_import_refuses_values_that_no_mark_has(
    built: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object]
) -> None:
    kbtui(capsys, "add", f"{ID}:1", "decided")
    shape = json.loads(kbtui(capsys, "export"))
    kbtui(capsys, "rm", f"{ID}:1")
    file = tmp_path / "marks.json"
    file.write_text(json.dumps({"marks": [*shape["marks"], {**shape["marks"][0], **changes}]}))
    kbtui(capsys, "import", str(file), code=2)
    kbtui(capsys, "ls", code=1)


def test_python_sets_and_lists_marks(built: Builder) -> None:
    with open_workspace(built.root) as library:
        mark = library.mark(f"{ID}:1", "rejected", note="no")
        (placed,) = library.marks(ID)
        assert (placed.mark, placed.ref) == (mark, f"{ID}:1")
        with pytest.raises(UsageError, match="unknown state"):
            library.mark(f"{ID}:1", "maybe")  # type: ignore[arg-type]
        with pytest.raises(NothingFound):
            library.mark(f"{ID}:8", "decided")
        assert library.unmark(mark.id)
        assert not library.unmark(mark.id)
        assert library.marks() == []


def test_equal_events_without_id_and_time_are_told_apart_or_not_at_all(built: Builder) -> None:
    info = find_conversation(built.workspace, ID)
    conversation = load_conversation(info)
    for turn in conversation.turns:
        for event in turn.events:
            event.timestamp = None
    from kbtui.conversations.turn_decision_marks import (
        make_mark_on_turn_call_or_passage,
        map_marks_to_current_places,
    )

    mark = make_mark_on_turn_call_or_passage(conversation, parse_ref(f"{ID}:3"), "decided", now=1.0)
    assert map_marks_to_current_places(conversation, [mark])[mark.id].turn == 3
    del conversation.turns[0]
    for number, turn in enumerate(conversation.turns, 1):
        turn.number = number
    assert map_marks_to_current_places(conversation, [mark]) == {}
    del conversation.turns[0]
    conversation.turns[0].number = 1
    assert map_marks_to_current_places(conversation, [mark])[mark.id].turn == 1


def test_random_bytes_are_no_marks(built: Builder, tmp_path: Path) -> None:
    file = tmp_path / "hurt.json"
    chance = random.Random(18)
    for _ in range(20):
        file.write_bytes(chance.randbytes(50))
        assert main(["mark", "import", str(file)]) == 2
