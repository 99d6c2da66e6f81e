"""The document of a conversation shows everything that JP writes."""

import json
from pathlib import Path

import pytest
from support import Builder, asked, called, said
from tui_support import PRESENT

from kbtui.conversations.conversation_repository import find_conversation, load_conversation
from kbtui.library import open_workspace
from kbtui.terminal_text import format_counted_noun
from kbtui.tui.reader.conversation_document_builder import (
    build_conversation_document,
    find_argument_that_describes_tool_call,
)
from kbtui.tui.reader.document_view import DocumentViewport
from kbtui.tui.reader.reader_blocks import FoldHeadingBlock
from kbtui.tui.reader.reader_document import (
    ReaderDocument,
    format_abbreviated_count,
    format_characters_and_tokens,
)
from kbtui.tui.reader.tool_call_blocks import format_json_value_as_text
from kbtui.userdata.turn_mark_store import MarkStore


def build(root: Path, turns: list, **more: object) -> ReaderDocument:  # type: ignore[type-arg]
    builder = Builder(root)
    builder.conversation(1, turns, **more)  # type: ignore[arg-type]
    info = find_conversation(builder.workspace, "jp-c17800000001")
    return build_conversation_document(load_conversation(info), PRESENT)


def shown(document: ReaderDocument, *kinds: str, width: int = 90) -> str:
    viewport = DocumentViewport()
    viewport.resize(width, 400)
    viewport.show_document(document)
    for kind in kinds:
        viewport.toggle_folds_of_kind(kind)
    return "\n".join(line.plain.rstrip() for _, line in viewport.rows)


def test_reasoning_tools_and_structured_answers(workspace_root: Path) -> None:
    document = build(
        workspace_root,
        [
            [
                {**asked("Do it"), "author": "Ada"},
                {"type": "chat_response", "reasoning": "Let me think.\nHard."},
                *called("a", "fs_modify_file", "done", path="x.py", patterns=[{"old": "a\nb"}]),
                {"type": "chat_response", "data": {"answer": 42}},
            ]
        ],
    )
    text = shown(document)
    assert "▌ Ada" in text
    assert "▌ Do it" in text
    assert "▸ reasoning Let me think. Hard." in text
    assert "▸ fs_modify_file  x.py" in text
    assert '"answer": 42' in text
    opened = shown(document, "tool", "reasoning")
    assert "▾ fs_modify_file" in opened
    assert "│ path: x.py" in opened
    assert "│   -\n" in opened
    assert "│     old:\n" in opened
    assert "│       a\n" in opened
    assert "│ result" in opened
    assert "│ done" in opened


def test_orphans_inquiries_and_empty_turns(workspace_root: Path) -> None:
    request, response = called("a", "shell", "late")
    document = build(
        workspace_root,
        [
            [asked("One"), request],
            [],
            [asked("Three"), {**response, "id": "zzz"}],
            [
                asked("Four"),
                {
                    "type": "inquiry_request",
                    "id": "q",
                    "source": {"source": "assistant"},
                    "question": {"text": "Apply changes?", "answer_type": {"type": "boolean"}},
                },
                {"type": "inquiry_response", "id": "q", "answer": True},
            ],
        ],
    )
    text = shown(document)
    assert "no result" in text
    assert "Empty turn" in text
    assert "─ turn 2 ─" in text
    assert "result without a call  late" in text
    assert "Apply changes?" in text
    assert document.turns_total == 4


def test_unknown_events_of_a_later_jp_are_shown_and_counted(workspace_root: Path) -> None:
    document = build(
        workspace_root,
        [
            [
                {**asked("Look"), "resources": [{"uri": "file://a.rs", "text": "fn main() {}"}]},
                {"type": "voice_memo", "url": "file://memo.ogg"},
                said("Seen."),
            ]
        ],
    )
    text = shown(document)
    assert "1 attachment" in text
    assert "▸ attachment  file://a.rs" in text
    assert "fn main() {}" not in text
    assert "fn main() {}" in shown(document, "tool")
    assert "▸ unknown event  voice_memo" in text
    assert "1 event of an unknown kind (voice_memo 1)" in text
    assert '"url": "file://memo.ogg"' not in text
    assert '"url": "file://memo.ogg"' in shown(document, "tool")


def test_unknown_events_before_the_first_turn_are_above_it(workspace_root: Path) -> None:
    folder = Builder(workspace_root).conversation(1, [[asked("Look")]])
    elements = json.loads((folder / "events.json").read_text())
    elements.insert(0, {"timestamp": "2026-05-29 10:00:00.0", "type": "participants"})
    (folder / "events.json").write_text(json.dumps(elements))
    info = find_conversation(Builder(workspace_root).workspace, "jp-c17800000001")
    text = shown(build_conversation_document(load_conversation(info), PRESENT))
    assert text.index("unknown event  participants") < text.index("turn 1") < text.index("Look")


def test_compactions_are_noted_where_they_begin(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    folder = builder.conversation(1, [[asked(f"Q{n}"), said(f"A{n}")] for n in range(3)])
    import json

    events = json.loads((folder / "events.json").read_text())
    events += [
        {
            "type": "compaction",
            "timestamp": "2026-06-01 10:00:00.0",
            "from_turn": 0,
            "to_turn": 1,
            "summary": {"summary": "They talked about **letters**."},
        },
        {
            "type": "compaction",
            "timestamp": "2026-06-01 11:00:00.0",
            "from_turn": 2,
            "to_turn": 2,
            "reasoning": "strip",
        },
    ]
    (folder / "events.json").write_text(json.dumps(events))
    info = find_conversation(builder.workspace, "jp-c17800000001")
    document = build_conversation_document(load_conversation(info), PRESENT)
    text = shown(document)
    assert "▸ compacted for the model: turns 1–2, replaced by a summary" in text
    assert text.index("turns 1–2") < text.index("─ turn 1 ─")
    assert "compacted for the model: turn 3, reasoning removed" in text
    assert "They talked about letters." not in text
    assert "They talked about letters." in shown(document, "compaction")
    # The original messages are still there.
    assert "A0" in text


def test_damage_is_reported_and_the_rest_is_shown(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    folder = builder.conversation(1, [[asked("Fine"), said("Also fine")]])
    import json

    events = json.loads((folder / "events.json").read_text())
    events.insert(2, {"type": "chat_response", "timestamp": "never"})
    (folder / "events.json").write_text(json.dumps(events))
    info = find_conversation(builder.workspace, "jp-c17800000001")
    text = shown(build_conversation_document(load_conversation(info), PRESENT))
    assert "! " in text
    assert "Fine" in text
    assert "Also fine" in text


def test_a_speaker_is_named_once_until_the_speaker_changes(workspace_root: Path) -> None:
    document = build(
        workspace_root,
        [
            [
                asked("Go"),
                said("First."),
                *called("a", "shell", "x"),
                said("Then."),
                asked("Stop"),
                said("Ok."),
            ]
        ],
    )
    assert shown(document).count("\nJP") == 2


def test_a_result_of_many_megabytes_is_many_small_blocks(workspace_root: Path) -> None:
    big = "\n".join(f"line {n} " + "x" * 60 for n in range(60_000))
    document = build(
        workspace_root, [[asked("Read"), *called("a", "fs_read_file", big, path="big")]]
    )
    viewport = DocumentViewport()
    viewport.resize(80, 40)
    viewport.show_document(document)
    viewport.toggle_folds_of_kind("tool")
    viewport.go_to_last_line()
    assert viewport.layout_count < 40
    assert viewport.current_styled_line is not None
    assert "line 59999" in viewport.current_styled_line.plain
    assert max(len(block.get_searchable_text()) for block in document.blocks) < 13_000


def test_calls_can_be_found_and_numbered(workspace_root: Path) -> None:
    document = build(
        workspace_root,
        [[asked("x"), *called("a", "one", "1"), *called("b", "two", "2"), said("y")]],
    )
    position = document.find_block_index_by_key("call:1.2")
    assert position is not None
    block = document.blocks[position]
    assert isinstance(block, FoldHeadingBlock)
    viewport = DocumentViewport()
    viewport.resize(60, 30)
    viewport.show_document(document)
    assert viewport.set_citation_numbers_of_calls({"call:1.2": 7, "call:9.9": 1})
    assert not viewport.set_citation_numbers_of_calls({"call:1.2": 7})
    assert any(line.plain.rstrip().endswith("[7]") for _, line in viewport.rows)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (None, ""),
        ({}, ""),
        ({"path": "a/b.rs", "content": "x"}, "a/b.rs"),
        ({"topic": "skills", "subjects": ["a", "b"]}, "skills/a, b"),
        ({"topic": "skills"}, "skills"),
        ({"flag": True, "count": 3}, "3"),
        ({"files": ["one", "two"]}, "one, two"),
        ({"command": "a\n  b\x1b[31m"}, "a b"),
        ({"nested": {"x": 1}}, ""),
    ],
)
def test_a_call_is_summarized_by_its_main_argument(arguments: dict | None, wanted: str) -> None:  # type: ignore[type-arg]
    assert find_argument_that_describes_tool_call(arguments) == wanted


def test_a_call_whose_arguments_are_free_text_shows_the_text(workspace_root: Path) -> None:
    request, response = called("a", "apply_patch", "done")
    document = build(
        workspace_root, [[asked("Fix it"), {**request, "arguments": ["+ turquoise"]}, response]]
    )
    assert '▸ apply_patch  [ "+ turquoise" ]' in shown(document)
    assert '│   "+ turquoise"\n' in shown(document, "tool")


def test_arguments_read_as_text() -> None:
    value = {"a": 1, "text": "x\ny", "list": ["p", {"q": None}], "empty": []}
    assert (
        format_json_value_as_text(value)
        == "a: 1\ntext:\n  x\n  y\nlist:\n  - p\n  -\n    q: null\nempty: []"
    )


def test_sizes_are_short_and_costs_exact() -> None:
    assert [format_abbreviated_count(n) for n in (0, 999, 1000, 12_345, 99_949, 99_950, 999_499, 1_200_000)] == [
        "0", "999", "1.0k", "12.3k", "99.9k", "100k", "999k", "1.2M",
    ]  # fmt: skip
    assert format_characters_and_tokens(4000) == "4,000 characters ≈ 1,000 tokens"
    assert [format_counted_noun(n, "turn") for n in (0, 1, 2)] == ["0 turns", "1 turn", "2 turns"]


def test_escape_sequences_in_a_tools_output_are_removed_wherever_it_is_split(
    workspace_root: Path,
) -> None:
    # Long enough to be split into sections, with an escape sequence at every place.
    coloured = "\x1b[31mred\x1b[0m\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\" * 600
    document = build(workspace_root, [[asked("Colours?"), *called("a", "shell", coloured)]])
    text = shown(document, "tool", width=200)
    assert "redlink" in text
    assert all(rest not in text for rest in ("31m", "[0m", "\x1b", "8;;", "example.org"))
    assert not any("31m" in block.get_searchable_text() for block in document.blocks)


def test_marks_that_cannot_be_read_are_reported(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.conversation(1, [[asked("Do it"), said("Done")]])
    builder.workspace.user_data_directory.mkdir(parents=True, exist_ok=True)
    (builder.workspace.user_data_directory / "marks.sqlite").write_bytes(b"no database" * 100)
    found = load_conversation(find_conversation(builder.workspace, "jp-c17800000001"))
    marks = MarkStore(builder.workspace).map_marks_by_turn(found)
    document = build_conversation_document(found, PRESENT, marks=marks)
    assert "! marks are not shown: the file is damaged" in shown(document)
    assert ("marks unreadable", "error") in document.badges


def test_each_outdated_subject_of_a_turn_leads_to_its_difference(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/a.md", "Now.\n")
    calls = [
        *called("a", "learn", "Then.", topic="guide", subjects="a"),
        *called("b", "learn", "Gone.", topic="guide", subjects="b"),
    ]
    builder.conversation(1, [[asked("What?"), *calls, said("That.")]])
    with open_workspace(workspace_root) as library:
        found = library.load_conversation("jp-c17800000001")
        outdated = library.map_outdated_citations_by_turn(found)
    document = build_conversation_document(found, PRESENT, outdated=outdated)
    lines = [block for block in document.blocks if block.cite is not None]
    assert [block.get_searchable_text() for block in lines] == [
        "≠ knowledge changed since:", "guide/a", "guide/b (no longer there)",
    ]  # fmt: skip
    assert [block.cite.target for block in lines if block.cite] == ["guide/a", "guide/a", "guide/b"]
