"""One run over one source, as its runner sees it: what it found, what failed, how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError
from kbtui.sources.extraction import VERSION
from kbtui.sources.models import SourceProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.sources.models import Source
    from kbtui.sources.source_directory import FetchedDocument, SourceDirectory

NAMED_MOST = 500
"""Failures and skips that a run names; it counts the rest."""


@dataclass
class RunContext:
    """What a runner reports to. `memory` is what the last run remembered of each address,
    `remember` what the next one will; `complete` says that what was not met is gone.
    """

    source: Source
    shelf: SourceDirectory
    memory: dict[str, dict[str, Any]]
    say: Callable[[SourceProgress], None]
    remember: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    skips: dict[str, str] = field(default_factory=dict)
    complete: bool = True

    def __post_init__(self) -> None:
        self.memory = {
            url: facts for url, facts in self.memory.items() if facts.get("reader") == VERSION
        }

    def doing(self, done: int, total: int, now: str) -> None:
        """Say how far it is."""
        self.say(SourceProgress(self.source.name, done, total, now))

    def put(self, document: FetchedDocument, facts: dict[str, Any]) -> None:
        """A document as it is now; one that cannot be written is a failure."""
        if not document.text.strip():
            self.skip(document.url, "it has no text")
            return
        try:
            self.shelf.put(document)
            self.remember[document.url] = {**facts, "reader": VERSION}
        except KbtuiError as error:
            self.fail(document.url, str(error), lasting=False)

    def keep(self, url: str) -> None:
        """A document that is as it was."""
        self.shelf.keep(url)
        self.remember[url] = self.memory.get(url, {})

    def skip(self, what: str, reason: str) -> None:
        """One thing is not taken, and that is as it should be: it is no document, or is not there."""
        self.skips.setdefault(what, reason)

    def fail(self, what: str, reason: str, *, lasting: bool = True) -> None:
        """One thing went wrong. One that may pass leaves open what else there is: nothing is
        taken for gone then."""
        self.problems.append(f"{what}: {reason}")
        if not lasting:
            self.complete = False
            if what in self.memory:
                self.remember[what] = self.memory[what]
