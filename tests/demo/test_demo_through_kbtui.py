"""kbtui reads the demo without problems, and finds its citations."""

import hashlib
import shutil
from collections import Counter
from pathlib import Path

import pytest
from demo_files import DEMO, TOPICS, conversation_folders, subject_files

from kbtui.citations.tool_call_citations import (
    CitationTargetLookup,
    extract_citations_from_tool_calls,
)
from kbtui.conversations.conversation_data_types import Conversation
from kbtui.conversations.conversation_repository import list_conversations, load_conversation
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.knowledge import KnowledgeBase, load_knowledge, read_subject_for_assistant
from kbtui.library import open_workspace
from kbtui.library.file_turn_history import LineRange, find_turns_touching_file
from kbtui.workspace import Workspace, open_workspace_at_root


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("workspace") / "demo"
    shutil.copytree(DEMO, root)
    return open_workspace_at_root(root)


@pytest.fixture
def knowledge(workspace: Workspace) -> KnowledgeBase:
    return load_knowledge(workspace)


@pytest.fixture
def conversations(workspace: Workspace) -> dict[str, Conversation]:
    return {info.id: load_conversation(info) for info in list_conversations(workspace)}


def _hashes(root: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_every_subject_is_found_and_can_be_read(knowledge: KnowledgeBase) -> None:
    found = {
        f"{topic}/{subject.slug}": subject
        for topic in knowledge.topics
        for subject in knowledge.list_subjects(topic)
    }
    assert list(knowledge.topics) == list(TOPICS)
    assert set(found) == set(subject_files())
    assert all(read_subject_for_assistant(subject).strip() for subject in found.values())
    assert not any(subject.shadowed for subject in found.values())
    assert not knowledge.problems


def test_the_prompt_holds_what_is_learned_and_offers_every_topic(knowledge: KnowledgeBase) -> None:
    prompt = knowledge.format_knowledge_section()
    assert prompt is not None
    assert '<subject "conventions/words">' in prompt
    for topic, table in TOPICS.items():
        assert f"- {topic} (**{table['title']}**)" in prompt


def test_hidden_subjects_are_learned_by_exact_slug_only(knowledge: KnowledgeBase) -> None:
    assert "# The engine's protocol" in knowledge.learn("engineering", "engine-wire").text
    assert "# The engine's protocol" not in knowledge.learn("engineering", "**").text
    assert knowledge.learn("engineering", "retired/line-chunker").is_error


def test_every_conversation_is_read_without_a_problem(
    conversations: dict[str, Conversation],
) -> None:
    assert set(conversations) == {f"jp-c{number}" for number in conversation_folders()}
    for conversation in conversations.values():
        assert conversation.info.problem is None
        assert not conversation.problems
        assert conversation.assistant == "Workbench"
        assert conversation.model


def test_old_ones_are_one_turn_and_new_ones_several(conversations: dict[str, Conversation]) -> None:
    turns = {number: len(found.turns) for number, found in conversations.items()}
    assert [turns[number] for number in sorted(turns)][:4] == [1, 1, 1, 1]
    assert all(count >= 2 for number, count in turns.items() if number > "jp-c17727000000")


def test_repeated_ids_are_paired_in_order(conversations: dict[str, Conversation]) -> None:
    (turn,) = conversations["jp-c17660665758"].turns
    reads = [event for event in turn.events if event.name == "fs_read_file" and event.result]
    assert [event.arguments["path"] for event in reads if event.arguments] == [
        "src/reader.py",
        "fixtures/README.md",
    ]
    first, second = (event.result for event in reads)
    assert first is not None
    assert second is not None
    assert "Reads JP's events" in first.text
    assert "# Fixtures" in second.text


def test_a_message_in_two_pieces_is_one(conversations: dict[str, Conversation]) -> None:
    last = conversations["jp-c17949084100"].turns[3].events[-1]
    assert "80×24 and 200×50" in last.text


def test_citations_reach_existing_subjects_and_conversations(
    conversations: dict[str, Conversation], knowledge: KnowledgeBase
) -> None:
    titles = {number: found.info.name for number, found in conversations.items()}
    targets = CitationTargetLookup(knowledge, titles, make_subject_id)
    citations = [
        citation
        for conversation in conversations.values()
        for citation in extract_citations_from_tool_calls(conversation, targets)
    ]
    assert {"learn", "search", "file"} <= {citation.how for citation in citations}
    assert {citation.how for citation in citations} & {"read", "grep"}
    assert [one.target for one in citations if one.gone] == ["operations/runbooks/cache-grows"]
    cited = [one.target for one in citations if one.kind == "subject" and not one.gone]
    assert set(cited) <= set(subject_files())
    assert cited.count("engineering/engine-rules") >= 2


def test_reading_changes_nothing(workspace: Workspace) -> None:
    before = _hashes(workspace.root)
    for info in list_conversations(workspace):
        load_conversation(info)
    load_knowledge(workspace).format_knowledge_section()
    assert _hashes(workspace.root) == before
    assert not list(workspace.root.rglob("*.tmp"))


def test_a_turn_that_was_given_an_earlier_version_is_marked_and_others_are_not(
    workspace: Workspace, conversations: dict[str, Conversation]
) -> None:
    library = open_workspace(workspace.root)

    cites = [
        cite
        for conversation in conversations.values()
        for cite in library.extract_citations_from_tool_calls(conversation)
        if cite.kind == "subject"
    ]
    outdated = {(cite.source, cite.target): cite.state for cite in cites}
    assert {key: state for key, state in outdated.items() if state in ("changed", "gone")} == {
        ("jp-c17707996539:1", "engineering/chunking"): "changed",
        ("jp-c17707996539:1", "engineering/embeddings"): "changed",
        ("jp-c17757622345:1", "engineering/embeddings"): "changed",
        ("jp-c17757622345:1", "operations/runbooks/cache-grows"): "gone",
        ("jp-c17864351433:1", "engineering/embeddings"): "changed",
        ("jp-c17894716009:1", "engineering/index-and-recovery"): "changed",
        ("jp-c17949084100:1", "engineering/release-checklist"): "changed",
    }
    states = Counter(cite.state for cite in cites)
    assert states == {"unchanged": 15, "changed": 6, "gone": 1, "unknown": 4}
    assert {cite.state_reason for cite in cites if cite.state == "unknown"} == {"part"}
    (cite,) = (
        cite
        for cite in library.extract_citations_from_tool_calls(conversations["jp-c17864351433"])
        if cite.target == "engineering/embeddings"
    )
    lines = library.read_given_and_current_text(cite).format_as_unified_difference().split("\n")
    assert any(line.startswith("-bf16 is the default since August.") for line in lines)
    assert any(line.startswith("+So the processor is checked first.") for line in lines)


@pytest.mark.parametrize(
    ("path", "beginning", "turn"),
    [
        ("docs/decisions/015-generations.md", "**Decision.**", "jp-c17894716009:4.1"),
        ("docs/decisions/015-generations.md", "**Consequences.**", "jp-c17949084100:5.1"),
        (".jp/kb/engineering/release-checklist.md", "- [ ] Has the schema", "jp-c17949084100:5.2"),
        (".jp/kb/engineering/embeddings.md", "So the processor is", "jp-c17864351433:4.1"),
        (".jp/kb/engineering/embeddings.md", "| fp32, batches of eight", None),
        (
            "docs/decisions/014-bf16-where-the-processor-has-it.md",
            "**Considered.**",
            "jp-c17864351433:4.2",
        ),
    ],
)
def test_blame_names_the_turn_that_wrote_a_line(
    workspace: Workspace, path: str, beginning: str, turn: str | None
) -> None:
    lines = (workspace.root / path).read_text("utf-8").split("\n")
    (number,) = (n for n, line in enumerate(lines, 1) if line.startswith(beginning))
    found = find_turns_touching_file(workspace, path, LineRange(number, number))
    assert [one.ref for one in found.turns] == ([turn] if turn else [])
    assert bool(found.unexplained) == (turn is None)


def test_blame_names_the_turn_that_changed_a_line_before_the_one_that_wrote_it(
    workspace: Workspace,
) -> None:
    created, changed = (
        find_turns_touching_file(workspace, "docs/decisions/015-generations.md")
        .turns[at]
        .actions[0]
        for at in (-1, 0)
    )
    line = next(line for line in changed.format_diff().split("\n") if line.startswith("-**"))
    assert f"+{line[1:]}" in created.format_diff().split("\n")
