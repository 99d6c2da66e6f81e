"""The labelled questions over `corpus`, a frozen copy of the demo workspace."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.search.search_request_and_answer import Hit

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
"""The demo workspace as it was on 2026-11-22: documentation that changes must not move a figure."""


@dataclass(frozen=True)
class Answer:
    """A passage that answers a question: in this entry or turn, with these words if any are given."""

    ref: str
    words: str = ""

    def __str__(self) -> str:
        return f"{self.ref} # {self.words}" if self.words else self.ref

    def is_in(self, hit: Hit) -> bool:
        """Return whether a hit is this answer."""
        place = hit.ref if hit.kind == "conversation" else f"{hit.topic}/{hit.slug}"
        if place.partition(".")[0] != self.ref and place != self.ref:
            return False
        return squeeze_space(self.words) in squeeze_space(hit.text)


@dataclass(frozen=True)
class LabelledQuestion:
    """A question with its kind and its answers."""

    kind: str
    text: str
    answers: tuple[Answer, ...]

    def rank_answers(self, hits: Iterable[Hit]) -> list[str]:
        """Return the hits in order: answers by name at their first rank, other hits by chunk id."""
        found: dict[str, None] = {}
        for hit in hits:
            named = [str(answer) for answer in self.answers if answer.is_in(hit)]
            for name in named or [hit.chunk_id]:
                found.setdefault(name)
        return list(found)

    @property
    def gains(self) -> dict[str, float]:
        """The gain of each answer, which is the same for all."""
        return {str(answer): 1.0 for answer in self.answers}


def squeeze_space(text: str) -> str:
    """Return text with every run of white space as one space."""
    return " ".join(text.split())


def read_questions(name: str) -> list[LabelledQuestion]:
    """Read the questions of `questions.toml` or `sealed.toml`; `name` has no extension."""
    data = tomllib.loads((HERE / f"{name}.toml").read_text("utf-8"))
    return [
        LabelledQuestion(kind, text, tuple(Answer(*one.split(" # ", 1)) for one in answers))
        for kind, questions in data.items()
        for text, answers in questions.items()
    ]


def read_decisions() -> dict[str, str]:
    """Return the questions of `decisions.toml`, each with words of the decision that it asks for."""
    return tomllib.loads((HERE / "decisions.toml").read_text("utf-8"))
