"""A session that is read while it grows has the turns that it has when it is read whole."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_parts import describe_turns, read_in_parts

from kbtui.conversations.conversation_data_types import ConversationInfo, ParsingResumePoint, Turn
from kbtui.conversations.formats import jsonl_conversation_format
from kbtui.conversations.formats.claude_code_format import ClaudeCodeFormat
from kbtui.conversations.formats.codex_format import CodexFormat
from kbtui.conversations.formats.jsonl_conversation_format import JsonlConversationFormat
from kbtui.dates import parse_timestamp

SAMPLES = Path(__file__).parents[1] / "data/agent_sessions"
SESSIONS = sorted(path for path in SAMPLES.glob("c*/*.jsonl*"))
FORMATS = {"claude": ClaudeCodeFormat(), "codex": CodexFormat()}


def read_lines(sample: Path) -> list[bytes]:
    data = sample.read_bytes()
    return (lzma.decompress(data) if sample.suffix == ".xz" else data).splitlines(keepends=True)


def make_info(path: Path, agent: str = "claude-code") -> ConversationInfo:
    time = parse_timestamp("2026-05-01T10:00:00Z")
    assert time is not None
    return ConversationInfo(
        "x", None, path.parent, path, None, False, None, time, size=path.stat().st_size, agent=agent
    )


def keep(mark: ParsingResumePoint | None) -> ParsingResumePoint | None:
    """Return a mark as it comes back from the catalog."""
    return mark and ParsingResumePoint(**json.loads(json.dumps(mark._asdict())))


def check_growth(
    reader: JsonlConversationFormat, path: Path, lines: list[bytes], cuts: list[int], size: int
) -> ParsingResumePoint | None:
    """Write the lines up to each cut, and compare what is read further with what is read whole."""
    turns: list[Turn] = []
    mark = None
    for cut in [*sorted({cut for cut in cuts if cut < len(lines)}), len(lines)]:
        path.write_bytes(b"".join(lines[:cut]))
        info = make_info(path)
        turns, mark = read_in_parts(reader, info, size, keep(mark), turns)
        assert describe_turns(turns) == describe_turns(reader.load_conversation(info).turns)
    return mark


@pytest.mark.parametrize("sample", SESSIONS, ids=lambda path: path.name[:20])
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_real_session_grows_by_any_lines(sample: Path, tmp_path: Path, data: Any) -> None:
    lines = read_lines(sample)
    cuts = data.draw(st.lists(st.integers(0, len(lines)), max_size=5))
    size = data.draw(st.sampled_from([1 if len(lines) < 300 else 50_000, 3000, 100_000]))
    check_growth(FORMATS[sample.parent.name], tmp_path / "x.jsonl", lines, cuts, size)


def record(kind: str, number: int, parent: int | None, content: Any, **more: Any) -> bytes:
    message = {"role": kind, "content": content, **more}
    values = {
        "type": kind,
        "uuid": f"u{number}",
        "parentUuid": None if parent is None else f"u{parent}",
        "timestamp": f"2026-02-10T21:{number // 60 % 60:02}:{number % 60:02}.000Z",
        "message": message,
    }
    return json.dumps(values).encode() + b"\n"


def used(tokens: int, message: str) -> dict[str, Any]:
    return {"id": message, "model": "claude-opus-4-6", "usage": {"output_tokens": tokens}}


def make_line(number: int, kind: str, back: int) -> bytes:
    parent = number - 1 - back if number > back else None
    if kind == "ask":
        return record("user", number, parent, f"request {number}")
    if kind == "call":
        block = {"type": "tool_use", "id": f"t{number % 3}", "name": "Read", "input": {"n": number}}
        return record("assistant", number, number - 1, [block], **used(number, "m1"))
    if kind == "result":
        block = {"type": "tool_result", "tool_use_id": f"t{back % 3}", "content": f"{number}"}
        return record("user", number, number - 1, [block])
    if kind == "compaction":
        return json.dumps(json.loads(record("user", number, parent, "so far")) | {"isCompactSummary": True}).encode() + b"\n"  # fmt: skip
    return {
        "say": record("assistant", number, number - 1, f"answer {number}", **used(9, f"m{back}")),
        "again": record("assistant", 1, 0, "the same"),
        "empty": b"\n",
        "damaged": b"{\n",
        "unknown": b'{"type": "of-later"}\n',
    }[kind]


KINDS = [
    "ask",
    "say",
    "say",
    "call",
    "result",
    "call",
    "result",
    "compaction",
    "again",
    "empty",
    "damaged",
    "unknown",
]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kinds=st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from([0, 0, 0, 1, 2, 9])), max_size=25
    ),
    cuts=st.lists(st.integers(0, 25), max_size=5),
    size=st.sampled_from([1, 300, 100_000]),
)
def test_any_session_of_claude_code_grows(
    tmp_path: Path, kinds: list[tuple[str, int]], cuts: list[int], size: int
) -> None:
    lines = [make_line(number, kind, back) for number, (kind, back) in enumerate(kinds)]
    check_growth(ClaudeCodeFormat(), tmp_path / "x.jsonl", lines, cuts, size)


def test_a_line_after_a_long_turn_costs_what_was_added(tmp_path: Path) -> None:
    lines = [record("user", 0, None, "request")]
    lines += [record("assistant", number, number - 1, "answer " * 100) for number in range(1, 900)]
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"".join(lines))
    reader = ClaudeCodeFormat()
    _, mark = read_in_parts(reader, make_info(path), 100_000)
    with path.open("ab") as file:
        file.write(record("assistant", 900, 899, "the last answer"))
    part = reader.load_conversation_segment(make_info(path), keep(mark), 100_000)
    assert part is not None
    assert part.start == keep(mark)
    (turn,) = part.conversation.turns
    assert (turn.number, turn.events[-1].text) == (1, "the last answer")
    read = path.stat().st_size - part.start.offset
    assert read <= jsonl_conversation_format.RESUME_POINT_DISTANCE_BYTES + len(lines[-1]) * 2


def test_a_call_and_its_result_are_read_together(tmp_path: Path) -> None:
    kinds = [("ask", 0), ("call", 0), ("say", 0), ("say", 0)]
    lines = [make_line(number, kind, back) for number, (kind, back) in enumerate(kinds)]
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"".join(lines))
    mark = read_in_parts(ClaudeCodeFormat(), make_info(path), 1)[1]
    assert mark is not None
    assert mark.elements == 1
