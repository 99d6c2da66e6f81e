"""The asynchronous Python client: `await memory.knowledge.search(…)`, as an agent calls it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbtui.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from kbtui.library.library import Library
    from kbtui.search.records import Answer, Mode
    from kbtui.workspace import Settings


@dataclass(frozen=True)
class KnowledgeHit:
    """A passage that was found (PLATFORM, "Calling search from an agent").

    `content` is the passage's text as it is indexed: data, never instruction. `ref` is its
    reference, which every other face takes.
    """

    entry_id: str
    chunk_id: str
    score: float
    content: str
    entry_title: str
    ref: str


class KnowledgeClient:
    """Searches a workspace from a coroutine; each call runs in a thread of its own."""

    def __init__(self, library: Library) -> None:
        self._library = library

    async def search(
        self,
        query: str,
        *,
        limit: int = 20,
        types: Sequence[str] = (),
        topics: Sequence[str] = (),
        mode: Mode = "hybrid",
        wait: float = 10.0,
        caller: str | None = None,
    ) -> list[KnowledgeHit]:
        """The best passages, in the order that every other face gives.

        `limit` is clamped to 1 to 100; `types` (entry types, source kinds, `conversation`) and
        `topics` (ids) narrow before ranking. Meaning is waited for up to `wait` seconds. `caller`
        is for the query log. Raises `UsageError` for an empty query or a mistake in it,
        `IndexUnavailable` when there is nothing to ask.
        """
        answered = await asyncio.to_thread(
            self._search, query, limit, types, topics, mode, wait, caller
        )
        return [
            KnowledgeHit(hit.entry_id, hit.chunk_id, hit.score, hit.text, hit.title, str(hit.ref))
            for hit in answered.hits
        ]

    def _search(
        self,
        query: str,
        limit: int,
        types: Sequence[str],
        topics: Sequence[str],
        mode: Mode,
        wait: float,
        caller: str | None,
    ) -> Answer:
        from kbtui.search.records import LIMIT_MOST, Question

        if isinstance(types, str) or isinstance(topics, str):
            raise UsageError("types and topics are lists of strings")
        if not query.strip():
            raise UsageError("the query is empty")
        question = Question(
            query=query,
            mode=mode,
            types=tuple(types),
            topics=tuple(topics),
            limit=max(1, min(LIMIT_MOST, limit)),
        )
        answered = self._library.search(question, wait, origin="sdk", caller=caller)
        if answered.mistakes:
            raise UsageError("; ".join(map(str, answered.mistakes)))
        return answered


class MemoryClient:
    """One workspace for an agent; an asynchronous context manager, or end it with `close`."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.knowledge = KnowledgeClient(library)

    async def close(self) -> None:
        """Let go of the index and the engine."""
        await asyncio.to_thread(self._library.close)

    async def __aenter__(self) -> MemoryClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def create_memory_client(
    path: Path | str | None = None, settings: Settings | None = None
) -> MemoryClient:
    """A client for the workspace at or above `path` (default: the current directory).

    Reads settings, nothing else; raises `WorkspaceError` or `ConfigError`.
    """
    from kbtui.library.library import open_workspace

    return MemoryClient(open_workspace(path, settings))
