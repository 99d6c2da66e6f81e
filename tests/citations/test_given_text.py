"""A turn that was given text A of a subject that now says B is marked if and only if A and B differ."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import Builder
from test_citing import make_call, make_conversation

from kbtui.assistant.assistant_tools import indent_lines_that_look_like_citation_headers
from kbtui.citations.cited_text_comparison import (
    ComparableSubjectText,
    find_citation_state,
    find_current_part_of_given_text,
)
from kbtui.citations.tool_call_citations import (
    CitationTargetLookup,
    extract_citations_from_tool_calls,
)
from kbtui.index.chunk_splitter import split_subject_into_chunks
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.knowledge import KnowledgeBase, load_knowledge
from kbtui.knowledge.front_matter import split_front_matter

texts = st.lists(
    st.sampled_from(
        ["# Head", "one two", "three", "```sh\nls\n```", "- a\n  b", "x" * 90, "Ähre 漢字", "````"]
    ),
    min_size=1,
    max_size=12,
).map("\n\n".join)
names = st.sampled_from(["a.md", "a.txt", "a.py", "a.toml"])
line_ends = st.sampled_from(["\n", "\r\n", "\r"])
byte_order_marks = st.sampled_from(["", "\ufeff"])


def load(root: Path, name: str, text: str) -> KnowledgeBase:
    builder = Builder(root)
    builder.topics(guide={})
    for old in (root / "docs" / "guide").glob("a.*"):
        old.unlink()
    path = builder.subject(f"guide/{name}", "")
    path.write_bytes(text.encode())
    builder.subject("guide/b.md", "Another subject.\n")
    return load_knowledge(builder.workspace)


def find_state(knowledge: KnowledgeBase, now: str, tool: str, result: str, **arguments: Any) -> Any:
    targets = CitationTargetLookup(knowledge, {}, make_subject_id)
    cites = extract_citations_from_tool_calls(
        make_conversation([make_call(tool, result, **arguments)]), targets
    )
    (found,) = (cite.given for cite in cites if cite.target == "guide/a")
    assert found is not None
    subject = knowledge.find_subject("guide", "a")
    assert subject is not None
    text = ComparableSubjectText(now, subject.relative)
    return find_citation_state(found.extent, found.make_hash_and_text_for_catalog(), text)


@settings(max_examples=60, deadline=None)
@given(
    texts, texts, names, line_ends, byte_order_marks, byte_order_marks,
    st.sampled_from(["a", "*", ["b", "a"]]), st.booleans(),
)  # fmt: skip
def test_what_learn_returned_is_compared_with_the_text_and_not_with_its_form(
    then: str,
    now: str,
    name: str,
    line_end: str,
    mark_then: str,
    mark_now: str,
    subjects: Any,
    stripped: bool,
) -> None:
    with TemporaryDirectory() as root:
        knowledge = load(Path(root), name, mark_then + then.replace("\n", line_end))
        result = knowledge.learn("guide", subjects).text
        result = result.strip() if stripped else result
        current = mark_now + now
        state = find_state(knowledge, current, "learn", result, topic="guide", subjects=subjects)
    assert state.state == ("unchanged" if then == now else "changed")


@settings(max_examples=60, deadline=None)
@given(texts, texts)
def test_a_passage_of_a_search_is_only_marked_if_the_subject_no_longer_has_its_text(
    then: str, now: str
) -> None:
    with TemporaryDirectory() as root:
        knowledge = load(Path(root), "a.md", then)
        for chunk in split_subject_into_chunks(split_front_matter(then)):
            header = f"[entry {make_subject_id('guide', 'a')} · chunk c · score 1.0] A"
            result = f"Sources: guide/a\n\n{header}\n{indent_lines_that_look_like_citation_headers(chunk.text)}"
            states = [
                find_state(knowledge, text, "knowledge_search", result).state
                for text in (then, now)
            ]
            passage, subject = ("".join(text.split()) for text in (chunk.text, now))
            assert states[0] in ("unchanged", "unknown")
            if "```" not in passage:  # a fence around a passage is not compared
                assert (states[1] == "changed") == (passage not in subject)


SECRET = "password = hunter2-Kx81qPz\n"


@pytest.mark.parametrize(
    ("options", "subjects", "reason"),
    [
        ({"max_chars": 6_000}, "a", "cut"),
        ({"masked": True}, "a", "masked"),
        ({}, "a:1-2", "part"),
    ],
)
def test_a_text_that_is_not_whole_is_marked_only_where_it_differs(
    tmp_path: Path, options: Any, subjects: str, reason: str
) -> None:
    text = "# Long\n\n" + SECRET + "".join(f"Line {number}.\n" for number in range(900))
    knowledge = load(tmp_path, "a.md", text)
    result = knowledge.learn("guide", subjects, **options).text
    arguments = {"topic": "guide", "subjects": subjects}
    assert result.strip() != text.strip()

    def find(now: str) -> tuple[str, str | None]:
        return find_state(knowledge, now, "learn", result, **arguments)

    assert find(text) == ("unknown", reason)
    assert find(text.replace("# Long", "# Short")) == ("changed", None)


def test_a_file_that_a_tool_returned_in_a_fence_or_with_line_numbers_is_compared(
    tmp_path: Path,
) -> None:
    text = "# Long\n\n```sh\nls\n```\n"
    knowledge = load(tmp_path, "a.md", text)

    def number(form: str) -> str:
        return "".join(f"{form.format(at)}{line}\n" for at, line in enumerate(text.splitlines(), 1))

    file = "docs/guide/a.md"
    codex = {"command": ["bash", "-lc", f"cd . && sed -n '1,200p' {file}"]}
    tabbed = number("{:6}\t")
    ended = "\n(End of file - total 5 lines)\n"
    for tool, arguments, result in (
        ("fs_read_file", {"path": file}, f"```md\n{text}```\n"),
        ("Read", {"file_path": file}, f"{number('{:6}→')}\n<system-reminder>\nBe good.\n</system-reminder>\n"),
        # Gemini CLI
        ("read_file", {"absolute_path": file}, text),
        ("read_many_files", {"paths": [file]}, f"--- /w/{file} ---\n\n{text}\n\n--- End of content ---"),
        ("run_shell_command", {"command": f"cat {file}"}, f"Command: cat {file}\nDirectory: (root)\nOutput: {text}\nError: (none)\nExit Code: 0\nSignal: 0\nProcess Group PGID: 88\n"),
        ("run_shell_command", {"command": f"cat {file}"}, f"Output: {text}\nProcess Group PGID: 88"),
        # Codex
        ("shell", codex, text),
        ("shell", codex, f"/opt/brew.sh: line 60: cannot create temp file: Operation not permitted\n{text}"),
        ("exec_command", {"cmd": f"nl -ba {file}"}, f"Chunk ID: 1a\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n{tabbed}"),
        ("shell_command", {"command": f"head -n 80 {file}"}, f"Exit code: 0\nWall time: 0 seconds\nOutput:\n{text}"),
        ("read_file", {"file_path": file}, number("L{}: ")),
        # opencode
        ("read", {"filePath": file}, f"<file>\n{number('{:05}| ')}{ended}</file>"),
        ("read", {"filePath": file}, f"<path>/w/{file}</path>\n<type>file</type>\n<content>\n{number('{}: ')}{ended}</content>\n\n<system-reminder>\nNo.\n</system-reminder>"),
    ):  # fmt: skip
        now = find_state(knowledge, text, tool, result, **arguments)
        assert now.state == "unchanged", result
        assert find_state(knowledge, text + "More.", tool, result, **arguments).state == "changed"


def test_a_part_of_a_file_that_a_tool_returned_is_compared_as_a_part(tmp_path: Path) -> None:
    text = "# Long\n\none\n\ntwo\n"
    knowledge = load(tmp_path, "a.md", text)
    file = "docs/guide/a.md"
    for tool, arguments, result in (
        ("shell", {"command": f"sed -n '1,3p' {file}"}, "# Long\n\none\n"),
        ("read_file", {"absolute_path": file}, "\nIMPORTANT: The file content has been truncated.\nStatus: Showing lines 1-3 of 5 total lines.\nAction: no\n\n--- FILE CONTENT (truncated) ---\n# Long\n\none"),
        ("read_file", {"file_path": file, "offset": 3, "limit": 1}, "L3: one"),
        ("read", {"filePath": file, "offset": 1}, "<file>\n00002| \n00003| one\n\n(File has more lines. Use 'offset' parameter to read beyond line 3)\n</file>"),
        ("shell", {"command": f"cat {file}"}, "# Long\n[... omitted 4 of 5 lines ...]\n"),
        ("fs_read_file", {"path": file, "start_line": 3, "end_line": 3}, "```md\n... (starting from line #3) ...\none\n... (truncated after line #3) ...\n```\n"),
    ):  # fmt: skip
        now = find_state(knowledge, text, tool, result, **arguments)
        assert now.state == "unknown", result
        other = text.replace("one", "1").replace("Long", "Short")
        assert find_state(knowledge, other, tool, result, **arguments).state == "changed"


def test_each_part_that_a_turn_was_given_is_compared(tmp_path: Path) -> None:
    knowledge = load(tmp_path, "a.md", "one\ntwo\nthree\n")
    targets = CitationTargetLookup(knowledge, {}, make_subject_id)
    file = "docs/guide/a.md"
    calls = [
        make_call("Read", result, file_path=file, **arguments)
        for result, arguments in (
            ("1\tone", {"limit": 1}),
            ("2\ttwo", {"offset": 2, "limit": 1}),
            ("1\tone", {"limit": 1}),
            ("1\tone\n2\ttwo\n3\tthree", {}),
            ("1\tone\n2\ttwo\n3\tthree", {}),
        )
    ]
    cites = extract_citations_from_tool_calls(make_conversation(calls), targets)
    now = ComparableSubjectText("one\n2\nthree\n", "a.md")
    states = [
        find_citation_state(
            cite.given.extent, cite.given.make_hash_and_text_for_catalog(), now
        ).state
        for cite in cites
        if cite.given
    ]
    assert states == ["unknown", "changed", "changed"]


def test_the_error_message_of_a_command_is_not_a_text_that_the_turn_was_given(
    tmp_path: Path,
) -> None:
    targets = CitationTargetLookup(load(tmp_path, "a.md", "Text.\n"), {}, make_subject_id)
    for path, kind in (("docs/guide/a.md", "subject"), ("docs/guide/never.md", "file")):
        message = f"cat: {path}: No such file or directory\n"
        call = make_call("bash", message, command=f"cat {path}")
        [cite] = extract_citations_from_tool_calls(make_conversation([call]), targets)
        assert (cite.kind, cite.given) == (kind, None)


@given(texts)
def test_a_note_about_a_cut_that_is_part_of_the_subject_itself_changes_nothing(text: str) -> None:
    assume("\n" in text)
    then = f"{text}\n\n[Lines 1 to 2 of 9.]\n"
    with TemporaryDirectory() as root:
        knowledge = load(Path(root), "a.md", then)
        result = knowledge.learn("guide", "a").text
        state = find_state(knowledge, then, "learn", result, topic="guide", subjects="a")
    assert state.state == "unchanged"


def test_the_difference_of_a_part_has_no_paragraphs_from_outside_the_part() -> None:
    now = "# Head\n\nBefore it.\n\nOne two three.\n\nAfter it."
    for part, expected in (
        ("Gone with the rest.\n\nOne two three.", "One two three."),
        ("One two four.", "One two three."),
        ("Nothing alike here.", ""),
    ):
        assert find_current_part_of_given_text(part, "part", now) == expected
    assert find_current_part_of_given_text("Nothing alike here.", "whole", now) == now
