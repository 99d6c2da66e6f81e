"""Whole answers for `kbtui search`: that command spends its time on imports, and the engine has made them.

The reply is text, so that the client needs no JSON either: the exit code as one digit, what goes
to stdout, and after a NUL what goes to stderr; or `DECLINED`, and the command does it all itself.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import IndexUnavailable, KbtuiError
from kbtui.index.integrity import damage_behind
from kbtui.version import __version__
from kbtui.workspace.path_strings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kbtui.engine.embedding_worker import EmbeddingWorker
    from kbtui.index import IndexReader
    from kbtui.search.models import Answer, Question, Ranking
    from kbtui.search.pipeline import Begun
    from kbtui.workspace import Settings, Workspace

DECLINED = b"-"
ROOMS = ("workspace", "knowledge", "conversations", "index", "search", "journal", "engine")
"""Where the code of an answer lies, besides the package itself."""
CODE_SECONDS = 1.0
"""How often the engine looks whether the code that it runs was replaced."""
REST_SECONDS = 5.0
"""How long after a question the index stays open; while it is, tantivy looks for changed files."""


class SearchService:
    """Answers questions as the command would. From any thread.

    `surroundings` are those in which the engine's settings hold.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        semantic: EmbeddingWorker,
        is_checked: Callable[[], bool],
    ) -> None:
        """`is_checked` says whether the index was looked at for damage a moment ago."""
        self._workspace, self._settings, self._semantic = workspace, settings, semantic
        self._is_checked = is_checked
        self.surroundings = surroundings()
        self._code, self._looked = _code_state(), time.monotonic()
        self._same_code = True
        self._lock = threading.Lock()
        self._reader: IndexReader | None = None
        self._readers, self._asked = 0, 0.0
        """How many questions are being answered, and when the last one ended."""

    def reply(self, request: dict[str, Any]) -> bytes:
        """The answer to `query` in `mode` with `limit` hits, as `form` (json, ascii, plain, colour).

        Declined where the client's `version` or `surroundings` are not this engine's, where the
        query has a mistake, where the semantic leg has to be waited for, and where the index may be
        damaged.
        """
        if request["version"] != __version__ or request["surroundings"] != self.surroundings:
            return DECLINED
        if not self._code_is_current():
            return DECLINED
        from kbtui.search.models import Question
        from kbtui.search.pipeline import answer

        mode = request["mode"]
        if mode != "lexical" and self._semantic.missing is not None:
            return DECLINED
        began = time.perf_counter()
        question = Question(str(request["query"]), mode=mode, limit=int(request["limit"]))
        folder = self._workspace.cache_dir
        try:
            with self._opened() as reader:
                folder = reader.folder
                answered = answer(self._workspace, reader, question, self._leg)
        except (KbtuiError, OSError):
            return DECLINED
        except BaseException as error:
            if damage_behind(error, folder) is None:
                raise
            return DECLINED
        if answered.mistakes or (not answered.hits and not self._is_checked()):
            return DECLINED
        self._log(answered, (time.perf_counter() - began) * 1000)
        return _printed(answered, str(request["form"]))

    def _leg(self, text: str) -> Begun:
        self._semantic.expect(text)
        return partial(self._ranking, text)

    def _ranking(self, text: str, question: Question, generation: str) -> Ranking:
        from kbtui.search.semantic import narrowed, ranking

        if generation != self._semantic.generation:
            raise IndexUnavailable("the index is being replaced")
        depth, worded = question.depth, list(question.worded)
        return ranking(
            self._semantic.reply(text, narrowed(question), depth, question.per_entry, worded)
        )

    def rest(self) -> None:
        """Close the index when nobody has asked for a while."""
        with self._lock:
            idle = not self._readers and time.monotonic() - self._asked > REST_SECONDS
            if self._reader is not None and idle:
                self._reader.close()
                self._reader = None

    @contextmanager
    def _opened(self) -> Iterator[IndexReader]:
        from kbtui.index import IndexReader

        with self._lock:
            if self._reader is None or self._reader.moved():
                self._reader = IndexReader(self._workspace.cache_dir)
            reader = self._reader
            self._readers += 1
        try:
            yield reader
        finally:
            with self._lock:
                self._readers -= 1
                self._asked = time.monotonic()

    def _log(self, answered: Answer, milliseconds: float) -> None:
        from kbtui.userdata.query_log import log_answer

        log_answer(self._workspace, self._settings, answered, "cli", None, milliseconds)

    def _code_is_current(self) -> bool:
        """Whether the command would run the code that this engine runs."""
        now = time.monotonic()
        if self._same_code and now - self._looked > CODE_SECONDS:
            self._looked = now
            self._same_code = _code_state() == self._code
        return self._same_code


def _code_state() -> dict[str, int]:
    """When each module that has a part in an answer was last changed."""
    package = Path(__file__).parents[1]
    folders = [package, *(package / room for room in ROOMS)]
    return {str(path): path.stat().st_mtime_ns for where in folders for path in where.glob("*.py")}


def _printed(answered: Answer, form: str) -> bytes:
    from kbtui.search.format import as_document, as_lines, remarks
    from kbtui.text import safe

    said = "".join(safe(f"kbtui: {text}") + "\n" for text in remarks(answered, answered.query))
    if form in {"json", "ascii"}:
        shown, said = as_document(answered, ascii_only=form == "ascii"), ""
    else:
        shown = as_lines(answered, plain=form == "plain")
    code = "0" if answered.hits else "1"
    return f"{code}{shown}\0{said}".encode("utf-8", "surrogateescape")
