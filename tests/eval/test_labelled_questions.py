"""There are enough labelled questions, and every answer is in the corpus."""

import re

import pytest

from eval.labelled_questions import (
    CORPUS,
    LabelledQuestion,
    read_decisions,
    read_questions,
    squeeze_space,
)
from kbtui.conversations.conversation_data_types import format_event_text
from kbtui.conversations.conversation_repository import (
    find_conversation,
    list_conversations,
    load_conversation,
)
from kbtui.knowledge import load_knowledge, read_subject_text
from kbtui.workspace import open_workspace_at_root

OPEN, SEALED = read_questions("questions"), read_questions("sealed")


def test_there_are_enough_questions_and_a_third_of_them_is_sealed() -> None:
    assert len(OPEN) + len(SEALED) >= 120
    assert len(SEALED) >= (len(OPEN) + len(SEALED)) / 3
    assert not {question.text for question in OPEN} & {question.text for question in SEALED}
    kinds = {"names", "errors", "paraphrases", "decisions", "languages"}
    assert {question.kind for question in OPEN} == {question.kind for question in SEALED} == kinds


def read_answer_text(ref: str) -> str:
    workspace = open_workspace_at_root(CORPUS)
    if match := re.fullmatch(r"jp-c(\d+):(\d+)", ref):
        turn = load_conversation(find_conversation(workspace, f"jp-c{match[1]}")).find_turn(
            int(match[2])
        )
        assert turn, ref
        return "\n".join(format_event_text(event) for event in turn.events)
    topic, _, slug = ref.partition("/")
    subject = load_knowledge(workspace).find_subject(topic, slug)
    assert subject is not None, ref
    assert {subject.hidden, subject.disabled} == {False}, ref
    return read_subject_text(subject)


@pytest.mark.parametrize("question", [*OPEN, *SEALED], ids=lambda question: question.text)
def test_every_answer_is_there(question: LabelledQuestion) -> None:
    for answer in question.answers:
        assert squeeze_space(answer.words) in squeeze_space(read_answer_text(answer.ref)), answer


def test_every_decision_is_in_an_answer_of_the_conversations() -> None:
    workspace = open_workspace_at_root(CORPUS)
    answers = " ".join(
        squeeze_space(format_event_text(event))
        for info in list_conversations(workspace)
        for turn in load_conversation(info).turns
        for event in turn.events
        if event.kind == "message"
    )
    decisions = read_decisions()
    assert len(decisions) >= 40
    for question, words in decisions.items():
        assert squeeze_space(words) in answers, question
