"""The targets of the paraphrases exist and share no word with them."""

import re
import tomllib
from pathlib import Path

import pytest
from demo_files import CORPUS, conversation_folders, events, metadata, subject_files

FILE = tomllib.loads((Path(__file__).parent / "paraphrases.toml").read_text("utf-8"))
SUBJECTS = subject_files(CORPUS)
FUNCTION_WORDS = {"a", "an", "and", "for", "in", "is", "it", "of", "on", "or", "the", "to", "with"}


def words(text: str) -> set[str]:
    """Return words cut to six letters, which is coarser than any stemmer."""
    found = re.findall(r"[a-z]+", text.lower())
    return {word[:6] for word in found if word not in FUNCTION_WORDS}


def text_of(ref: str) -> str:
    """Return the text of a subject, or everything said in a conversation with its title."""
    if not ref.startswith("jp-c"):
        return SUBJECTS[ref].read_text("utf-8")
    folder = conversation_folders(CORPUS)[int(ref.removeprefix("jp-c"))]
    keys = ("content", "message", "reasoning")
    spoken = [
        event[key]
        for event in events(folder)
        for key in keys
        if key in event and event["type"] != "tool_call_response"
    ]
    return "\n".join([metadata(folder).get("title", ""), *spoken])


def test_there_are_enough_of_both_and_none_twice() -> None:
    assert len(FILE["demo"]) >= 8
    questions = [item["question"] for table in FILE.values() for item in table]
    assert len(questions) >= 12
    assert len(set(questions)) == len(questions)
    assert len({item["ref"] for item in FILE["demo"]}) >= 8
    assert sum(item["ref"].startswith("jp-c") for item in FILE["demo"]) >= 3


@pytest.mark.parametrize("item", FILE["demo"], ids=lambda item: str(item["question"]))
def test_a_question_shares_no_word_with_its_target(item: dict[str, str]) -> None:
    shared = words(item["question"]) & words(text_of(item["ref"]))
    assert not shared
