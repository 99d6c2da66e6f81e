"""Embeds a question as soon as it is told of, while its words are looked for elsewhere."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kbtui.index.embedding import Matrix

WAITING_MOST = 8
"""So many questions are held that were told of and not asked; of more, the oldest go."""


class Questions:
    """The vectors of questions to come. From any thread."""

    def __init__(self, encode: Callable[[str], Matrix]) -> None:
        self._encode = encode
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="questions")
        self._lock = threading.Lock()
        self._begun: dict[str, Future[Matrix]] = {}

    def begin(self, text: str) -> None:
        """`text` will be asked."""
        with self._lock:
            if text not in self._begun:
                self._begun[text] = self._pool.submit(self._encode, text)
            while len(self._begun) > WAITING_MOST:
                self._begun.pop(next(iter(self._begun))).cancel()

    def vector(self, text: str) -> Matrix:
        """The vector of `text`, as one row."""
        with self._lock:
            begun = self._begun.pop(text, None)
        # Behind others, whose askers may be gone, it does not wait for its turn.
        return self._encode(text) if begun is None or begun.cancel() else begun.result()
