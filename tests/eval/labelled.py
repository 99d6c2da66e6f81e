"""The labelled questions over `corpus`, a frozen copy of the demo workspace."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.search import Hit

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
"""The demo workspace as it was on 2026-11-22: documentation that changes must not move a figure."""


@dataclass(frozen=True)
class Answer:
    """One passage that answers: in this entry or turn, holding these words where some are given."""

    ref: str
    words: str = ""

    def __str__(self) -> str:
        return f"{self.ref} # {self.words}" if self.words else self.ref

    def is_in(self, hit: Hit) -> bool:
        """Whether a hit is this answer."""
        place = hit.ref if hit.kind == "conversation" else f"{hit.topic}/{hit.slug}"
        if place.partition(".")[0] != self.ref and place != self.ref:
            return False
        return squeezed(self.words) in squeezed(hit.text)


@dataclass(frozen=True)
class Labelled:
    """A question with its kind and answers."""

    kind: str
    text: str
    answers: tuple[Answer, ...]

    def ranking(self, hits: Iterable[Hit]) -> list[str]:
        """The hits as answers by name, others by passage; an answer counts where it comes first."""
        found: dict[str, None] = {}
        for hit in hits:
            named = [str(answer) for answer in self.answers if answer.is_in(hit)]
            for name in named or [hit.chunk_id]:
                found.setdefault(name)
        return list(found)

    @property
    def gains(self) -> dict[str, float]:
        """Every answer is worth the same."""
        return {str(answer): 1.0 for answer in self.answers}


def squeezed(text: str) -> str:
    """Text without regard to white space."""
    return " ".join(text.split())


def read(name: str) -> list[Labelled]:
    """The questions of `questions` or `sealed`."""
    data = tomllib.loads((HERE / f"{name}.toml").read_text("utf-8"))
    return [
        Labelled(kind, text, tuple(Answer(*one.split(" # ", 1)) for one in answers))
        for kind, questions in data.items()
        for text, answers in questions.items()
    ]
