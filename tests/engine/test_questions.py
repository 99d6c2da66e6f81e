"""A question that was told of is embedded once, before it is asked."""

import threading
from typing import Any

import numpy as np
import pytest

from kbtui.engine.embedding_worker import WAITING_MOST, QueryEmbedder


class Model:
    """Notes what it embeds; `go` lets it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.go = threading.Event()
        self.begun = threading.Event()

    def encode(self, text: str) -> Any:
        self.texts.append(text)
        self.begun.set()
        assert self.go.wait(30)
        if text == "bad":
            raise ValueError(text)
        return np.full((1, 4), len(text), dtype=np.float32)


def test_it_is_embedded_when_it_is_told_of_and_not_again() -> None:
    model = Model()
    questions = QueryEmbedder(model.encode)
    questions.begin("four")
    questions.begin("four")
    assert model.begun.wait(30)
    model.go.set()
    assert questions.vector("four")[0][0] == 4
    assert model.texts == ["four"]
    assert questions.vector("other")[0][0] == 5
    assert model.texts == ["four", "other"]


def test_of_many_that_nobody_asks_the_oldest_go_and_all_can_still_be_asked() -> None:
    model = Model()
    questions = QueryEmbedder(model.encode)
    told = ["x" * length for length in range(1, 3 * WAITING_MOST)]
    for text in told:
        questions.begin(text)
    model.go.set()
    assert [questions.vector(text)[0][0] for text in told] == [len(text) for text in told]
    # The first was at work when it went, the others never began.
    assert len(model.texts) <= len(told) + 1


def test_what_goes_wrong_is_told_to_who_asks() -> None:
    model = Model()
    model.go.set()
    questions = QueryEmbedder(model.encode)
    questions.begin("bad")
    with pytest.raises(ValueError, match="bad"):
        questions.vector("bad")


def test_who_asks_does_not_wait_for_questions_that_others_gave_up() -> None:
    go, begun = threading.Event(), threading.Event()
    done: list[str] = []

    def encode(text: str) -> Any:
        if text == "given up":
            begun.set()
            go.wait(10)
        done.append(text)
        return np.zeros((1, 4), dtype=np.float32)

    questions = QueryEmbedder(encode)
    questions.begin("given up")
    assert begun.wait(30)
    questions.begin("asked")
    questions.vector("asked")
    assert done == ["asked"]
    go.set()
