"""A workspace with its index and vectors in this process, to be asked without an engine."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.index import Index, IndexReader
from kbtui.search.answer import answer
from kbtui.workspace import Settings, Workspace, open_root

if TYPE_CHECKING:
    from kbtui.search import Answer, Question

Ranked = list[tuple[int, float]]


def cache_folder() -> Path:
    """Where workspaces for measuring and their indexes lie between runs."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return home / "kbtui-eval"


@dataclass
class Bed:
    """One collection, indexed and embedded."""

    workspace: Workspace
    reader: IndexReader
    chunks: int

    def ask(self, question: Question) -> Answer:
        """The same answer that every face gives, with the vectors asked in this process."""
        return answer(self.workspace, self.reader, question, self.semantic)

    def semantic(
        self, text: str, question: Question, generation: str
    ) -> tuple[Ranked | None, str | None]:
        """The semantic leg as the engine has it."""
        from kbtui.index.vectors import condition

        vector = self._vector(text)
        where = condition(
            hidden=question.hidden,
            archived=question.archived,
            kinds=[] if len(question.kinds) == 2 else list(question.kinds),
            topics=list(question.topics),
            types=list(question.types),
            roles=list(question.roles),
            entries=list(question.entries),
        )
        return self._store.search(vector, where, question.depth, question.per_entry), None

    def _vector(self, text: str) -> list[float]:
        if text not in self._asked:
            self._asked[text] = self._embedder.encode_query(text)[0].tolist()
        return self._asked[text]

    def close(self) -> None:
        """Let go of the index."""
        self.reader.close()


def open_bed(root: Path, settings: Settings | None = None, *, embedder: object = None) -> Bed:
    """Bring index and vectors of the workspace at `root` up to date; texts once embedded stay so."""
    from kbtui.index.backlog import Backlog
    from kbtui.index.catalog import Catalog
    from kbtui.index.embedding import Embedder
    from kbtui.index.remembered import Remembered
    from kbtui.index.vectors import VectorStore

    workspace = open_root(root)
    cache = cache_folder() / f"{root.name}-index"
    cache.mkdir(parents=True, exist_ok=True)
    index = Index(workspace, replace(settings or Settings(), model=""), cache_dir=cache)
    index.refresh()
    index.close()
    reader = IndexReader(cache)
    assert isinstance(embedder, Embedder)
    store = VectorStore(reader.folder / "vectors", embedder.model.key, embedder.dimension)
    catalog = Catalog(reader.folder / "catalog.sqlite")
    remembered = Remembered(cache_folder() / "embeddings.sqlite", embedder.model.key)
    left = Backlog(catalog, store, remembered, embedder).run()
    assert left == 0, f"{left} chunks have no vector"
    catalog.close()
    remembered.close()
    bed = Bed(workspace, reader, store.count())
    bed._store, bed._embedder, bed._asked = store, embedder, {}  # type: ignore[attr-defined]
    return bed
