"""Haste loses nothing: what searching leaves out, plain reading does not find either."""

import os
import subprocess
import sys
import threading
from json import dumps, loads
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jp_files import BASE, ID, Stream, dump, standard, url_safe, workspace_at, write

from kbtui.assistant.conversation_tools import grep_answer
from kbtui.conversations import parallel_grep
from kbtui.conversations.formats.jp.event_parser import EventParser
from kbtui.conversations.formats.jp.json_reader import read_array
from kbtui.conversations.grep import (
    SCOPE_OF,
    SCOPES,
    GrepQuery,
    GrepSearch,
    LinePattern,
    from_row,
    searched_text,
)
from kbtui.conversations.grep_prefilter import Prefilter
from kbtui.conversations.parallel_grep import search_all

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


def plainly(data: bytes, query: GrepQuery) -> list[tuple[str, int, str]]:
    """Every line that matches: all events are made, and every line is looked at by itself."""
    needle = LinePattern(query.pattern, query.ignore_case)
    builder = EventParser()
    for batch in read_array(data, []):
        builder.add(batch)
    builder.finish()
    return [
        (SCOPE_OF[event.kind], turn.number, line.removesuffix("\r"))
        for turn in builder.turns
        for event in turn.events
        if SCOPE_OF[event.kind] in query.scopes
        for line in searched_text(event).split("\n")
        if needle.spans(line)
    ]


def hastily(
    path: Path, query: GrepQuery, room: int = 1000
) -> tuple[int, list[tuple[str, Any, str]]]:
    found = GrepSearch(query).file(str(path), room)
    return found.count, [(line.scope, line.turn, line.text) for line in found.lines]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=500, deadline=None
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
    query = GrepQuery(pattern, ignore_case, frozenset(scopes))
    expected = plainly(text.encode(), query)
    assert hastily(path, query) == (len(expected), expected)
    assert hastily(path, query, 1) == (len(expected), expected[:1])
    around = GrepSearch(GrepQuery(pattern, ignore_case, frozenset(scopes), context=1)).file(
        str(path), 1000
    )
    lines = [(line.scope, line.turn, line.text) for line in around.lines if line.is_match]
    assert (around.count, lines) == (len(expected), expected)


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
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
@given(text=st.text(min_size=1, max_size=20), data=st.data())
def test_any_piece_of_any_text_is_found(
    jp: Path, where: str, text: str, data: st.DataObject
) -> None:
    """Whatever letters: a piece of what is there is found, in either case."""
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
    assert hastily(path, GrepQuery(piece, ignore_case=False))[0] >= 1
    assert hastily(path, GrepQuery(piece))[0] >= 1


@settings(max_examples=400, deadline=None)
@given(
    text=st.text(
        st.one_of(st.sampled_from("kKsSiIıİſ\u212aåÅ\u212bßẞéÉжЖωΩ\u2126aA"), st.characters())
    ),
    pattern=st.text(
        st.sampled_from("kKsSiIıİſ\u212aåÅ\u212bßẞéÉжЖωΩ\u2126aA"), min_size=1, max_size=3
    ),
    ignore_case=st.booleans(),
)
def test_the_sieve_lets_every_match_through(text: str, pattern: str, ignore_case: bool) -> None:
    if LinePattern(pattern, ignore_case).spans(text):
        sieve = Prefilter(pattern, ignore_case)
        assert sieve.may_text(text)
        assert sieve.may(text.encode("utf-8", "replace"))


@settings(deadline=None)
@given(
    pattern=st.text(st.sampled_from("qQzjXxab é"), min_size=1, max_size=4),
    parts=st.lists(
        st.sampled_from(["q", "Q", "xa", "Z", "j b", "a", " ", "é", "b" * 700, "qx" * 20])
    ),
)
def test_rare_letters_make_the_sieve_faster_not_another(pattern: str, parts: list[str]) -> None:
    """Whether it looks at rare letters or at everything, and whether it begins with the one."""
    text = "".join(parts)
    sieve = Prefilter(pattern, True)
    matches = bool(LinePattern(pattern).spans(text))
    if pattern.isascii():
        assert sieve.may_text(text) is matches
    else:
        assert sieve.may_text(text) or not matches


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [("größe", "grö"), ("ЖУЖА", "жужа"), ("kéké", "é"), ("日本語", "日本語"), ("ſ", "")],
)
def test_the_sieve_keeps_what_tells_other_scripts_apart(pattern: str, literal: str) -> None:
    sieve = Prefilter(pattern, True)
    assert len(sieve.literal) == len(literal.encode())
    assert sieve.may_text(pattern)
    assert sieve.may_text("nothing of it") is not bool(literal)


def test_events_are_not_made_of_what_jp_writes(jp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The point of it: on JP's own files the short way is enough, with matches and without."""
    stream = Stream().delta(**BASE).turn().ask("question").think("hm").say("answer")
    stream.used("tool", "1", "some result", path="a/b.rs", deep={"k": ["v"]})
    stream.used("ls", "2", "file_names_without_any_blank_or_newline.txt/and/more")
    path = write(jp, stream, base=None, title=None) / "events.json"
    from kbtui.conversations.formats.jp import event_parser

    def never() -> EventParser:
        raise AssertionError("events were made")

    monkeypatch.setattr(event_parser, "EventParser", never)
    assert hastily(path, GrepQuery("absent")) == (0, [])
    assert hastily(path, GrepQuery("result"))[1] == [("tool-result", 1, "some result")]
    assert hastily(path, GrepQuery("b.rs"))[1] == [("tool-call", 1, '  "path": "a/b.rs",')]
    assert hastily(path, GrepQuery("more"))[0] == 1


def test_a_match_over_two_pieces_of_one_message_is_found(jp: Path) -> None:
    path = write(jp, Stream().turn().say("the nee").say("dle"), base=None) / "events.json"
    assert hastily(path, GrepQuery("needle")) == (1, [("assistant", 1, "the needle")])


def test_a_damaged_file_is_searched_and_named(jp: Path) -> None:
    whole = dump(Stream().turn().ask("hit before").say("hit after").elements)
    for text in (
        whole[:-40],
        whole.replace('"type": "turn_start"', '"type": turn_start'),
        "\ufeff" + whole,
    ):
        folder = write(jp, text, title=None)
        found = GrepSearch(GrepQuery("hit before")).file(str(folder / "events.json"))
        assert found.count == 1
        assert found.problem
        answer = grep_answer(workspace_at(jp.parent), pattern="absent")
        assert answer["hits"] == []
        assert f"jp-c{ID}: {found.problem}" in answer["hint"]


def test_many_matches_in_one_conversation_are_all_given_in_order(jp: Path) -> None:
    """The first round keeps a few of each; the rest is fetched once it is known to be wanted."""
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


@pytest.fixture
def not_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there is a second thread: programs instead of copies."""
    monkeypatch.setattr(parallel_grep, "is_alone", lambda: False)


@pytest.mark.usefixtures("not_alone")
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_answer_is_the_same_with_any_number_of_processes(jp: Path, processes: int) -> None:
    files = several(jp)
    query = GrepQuery("hit", context=1, limit=100)
    assert search_all(files, query, processes) == search_all(files, query, 1)
    assert [found.count for found in search_all(files, query, processes)] == [
        2, 3, 4, 5, 6, 7, 8, 0,
    ]  # fmt: skip


def several(jp: Path) -> list[tuple[str, int]]:
    files = []
    for number in range(7):
        stream = Stream().turn().ask(f"hit {number}\nmiss\nhit again")
        stream.used("x", "1", "line\nhit in a result\n" * number)
        folder = write(jp, stream, number=ID + number)
        files.append((str(folder / "events.json"), (folder / "events.json").stat().st_size))
    files.append((str(jp / "nothing.json"), 0))
    return files


_COPIES = """
import os, sys, json
from kbtui.conversations import parallel_grep as helping; from kbtui.conversations import parallel_grep as workers
from kbtui.conversations.grep import GrepQuery as Query

files, failing = json.loads(sys.argv[1]), sys.argv[2]
assert helping.is_alone() or sys.platform != "linux"
query = Query("HIT", context=1, limit=100)
expected = workers.search_all(files, query, 1)
first, made = os.getpid(), []
real, copy = workers._answer, helping.Copy

def answer(*rest):
    if failing == "dies":
        os.kill(os.getpid(), 9)
    if failing == "raises":
        raise ValueError
    return real(*rest)

def making(work):
    if failing == "cannot start":
        raise OSError
    made.append(copy(work))
    return made[-1]

workers._answer, helping.Copy = answer, making
for processes in (2, 3):
    assert workers.search_all(files, query, processes) == expected
    assert os.getpid() == first
if sys.platform == "linux":
    assert len(made) == (0 if failing == "cannot start" else 3)
    try:
        os.waitpid(-1, os.WNOHANG)
        raise SystemExit("a child is left")
    except ChildProcessError:
        pass
print("the same")
"""


@pytest.mark.parametrize("failing", ["nothing", "dies", "raises", "cannot start"])
def test_copies_of_a_process_answer_what_it_would_and_may_fail(jp: Path, failing: str) -> None:
    words = [sys.executable, "-c", _COPIES, dumps(several(jp)), failing]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "the same\n", done.stderr


def test_a_process_with_a_second_thread_is_not_copied() -> None:
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    try:
        assert not parallel_grep.is_alone()
    finally:
        waiting.set()
        thread.join()


def test_a_worker_answers_what_this_process_would(jp: Path) -> None:
    folder = write(jp, Stream().turn().ask("ein Treffer für é\n" * 9))
    query = GrepQuery("TREFFER FÜR É", scopes=frozenset({"user"}), context=1)
    paths = [str(folder / "events.json"), str(folder / "nothing.json")]
    task = {
        "paths": paths,
        "batch": 1,
        "pattern": query.pattern,
        "ignore_case": True,
        "scopes": ["user"],
        "context": 1,
    }
    source, sink = os.pipe()
    os.write(sink, b"\0\0\0\0" + b"\1\0\0\0")
    os.close(sink)
    program = parallel_grep._START.format(path=sys.path, module=parallel_grep.__name__, pipe=source)
    worker = parallel_grep.SpawnedWorker(program, task, source)
    answer = loads(worker.answer() or b"")
    worker.end()
    os.close(source)
    found = {number: from_row(row) for number, row in answer}
    assert found == {number: GrepSearch(query).file(path) for number, path in enumerate(paths)}
    assert [found[0].count, found[1].problem] == [9, "there is no such file"]


@pytest.mark.usefixtures("not_alone")
def test_a_worker_that_cannot_start_or_dies_costs_nothing_but_time(
    jp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(jp, Stream().turn().ask("hit"))
    files = [(str(folder / "events.json"), 10)] * 50
    expected = search_all(files, GrepQuery("hit"), 1)
    for program in ("exit(", "import os; os.read({pipe}, 40); os._exit(1)", "import sys"):
        with monkeypatch.context() as patch:
            patch.setattr(parallel_grep, "_START", program)
            assert search_all(files, GrepQuery("hit"), 2) == expected
    for executable in ("/nowhere/python", "/bin/false", ""):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", executable)
            assert search_all(files, GrepQuery("hit"), 2) == expected


def test_more_files_than_a_pipe_holds_numbers_for(
    jp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_grep, "_TOKENS_MOST", 3)
    monkeypatch.setattr(parallel_grep, "is_alone", lambda: False)
    folder = write(jp, Stream().turn().ask("hit"))
    files = [(str(folder / "events.json"), number) for number in range(11)]
    assert [found.count for found in search_all(files, GrepQuery("hit"), 2)] == [1] * 11


@pytest.mark.parametrize(
    ("processors", "busy", "expected"),
    [(2, 0, 2), (2, 1, 1), (2, 19, 1), (1, 0, 1), (16, 0, 4), (4, 1, 3), (2, 0.7, 2)],
)
def test_a_busy_machine_gets_no_more_processes(
    monkeypatch: pytest.MonkeyPatch, processors: int, busy: float, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    monkeypatch.setattr(parallel_grep, "_busy", lambda: busy)
    assert parallel_grep._spare() == expected


def test_small_work_is_not_shared_out_and_what_lacks_a_copy_only_when_it_is_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel_grep, "_spare", lambda: 2)
    for alone, expected in ((True, [1, 2, 2]), (False, [1, 1, 2])):
        monkeypatch.setattr(parallel_grep, "is_alone", lambda alone=alone: alone)
        sizes = (
            parallel_grep.WORTH - 1,
            parallel_grep.WORTH_PROGRAM - 1,
            parallel_grep.WORTH_PROGRAM,
        )
        assert [parallel_grep._processes(size) for size in sizes] == expected


def test_without_a_load_average_the_processors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unknown)
    monkeypatch.setattr("builtins.open", unknown)
    busy = parallel_grep._busy()
    monkeypatch.undo()
    assert busy == 0.0


def test_an_entry_with_counts_is_what_dataclasses_would_make(jp: Path) -> None:
    from dataclasses import replace
    from datetime import UTC, datetime

    from kbtui.conversations import list_conversations

    write(jp, Stream().turn().ask("hit"))
    (info,) = list_conversations(workspace_at(jp.parent), counts=False)
    last = datetime(2026, 1, 1, tzinfo=UTC)
    counted = info.counted(7, last)
    assert counted == replace(info, events_count=7, last_event_at=last)
    assert info.events_count is None
