"""Embeds passages and queries in threads of the engine."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import IndexUnavailable, KbtuiError
from kbtui.index.catalog import Catalog
from kbtui.index.integrity import is_panic
from kbtui.notices import Notice, keywords_only

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from kbtui.index.embedding_model import Embedder, Matrix, Model
    from kbtui.index.embedding_queue import EmbeddingQueue, Encoder
    from kbtui.index.indexer import IndexProgress
    from kbtui.index.onnx_model import FastEmbedder
    from kbtui.index.vectors import VectorStore
    from kbtui.workspace import Settings


LOOK_SECONDS = 5.0
"""How often the machine is looked at."""
BUSY, OURS = 0.75, 1.0
"""Load a core from which the machine is busy with other things, and what embedding itself adds."""


class EmbeddingThrottle:
    """`pause` is the setting: never, battery, load or either. The rest is replaced in tests."""

    def __init__(
        self,
        pause: str,
        *,
        on_battery: Callable[[], bool] | None = None,
        load: Callable[[], float] = lambda: os.getloadavg()[0],
        cores: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pause = pause
        self._on_battery, self._load, self._clock = on_battery or is_on_battery, load, clock
        self._cores = cores or os.cpu_count() or 1
        self._looked = -LOOK_SECONDS
        self._reason: str | None = None

    def reason(self) -> str | None:
        """Why work waits, in a phrase; None when it need not."""
        if self._pause == "never":
            return None
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            self._looked, self._reason = now, self._look()
        return self._reason

    def _look(self) -> str | None:
        if self._pause in {"battery", "either"} and self._on_battery():
            return "the computer runs on battery"
        if self._pause in {"load", "either"}:
            # While we work, our own load is in the figure.
            most = self._cores * (BUSY if self._reason else BUSY + OURS)
            if self._load() > most:
                return "the computer is busy"
        return None


def is_on_battery(supplies: Path = Path("/sys/class/power_supply")) -> bool:
    """Whether a battery is what the computer runs on; False where that cannot be told."""
    if sys.platform == "darwin":
        import subprocess

        said = subprocess.run(["pmset", "-g", "batt"], capture_output=True, text=True, check=False)
        return "'Battery Power'" in said.stdout
    try:
        found = [(_fact(place, "type"), place) for place in sorted(supplies.iterdir())]
    except OSError:
        return False
    if any(kind != "Battery" and _fact(place, "online") == "1" for kind, place in found):
        return False
    return any(
        kind == "Battery" and _fact(place, "status") == "Discharging" for kind, place in found
    )


def _fact(place: Path, name: str) -> str:
    try:
        return (place / name).read_text("ascii", errors="replace").strip()
    except OSError:
        return ""


def import_lance() -> None:
    """Import what the vectors are kept with: a second or two."""
    import kbtui.index.vectors  # noqa: F401


WAITING_MOST = 8
"""So many questions are held that were told of and not asked; of more, the oldest go."""


class QueryEmbedder:
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


MANY_CHUNKS = 300
"""From this many chunks on they are embedded on all cores, by a second session of the model."""
AGAIN_SECONDS = 60.0
"""How long after a failure the next question makes the engine load the model again."""
LOADING = keywords_only("model_loading")


def _be_nice() -> None:
    """Lowest priority for this thread on Linux; elsewhere the process keeps its own."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


class EmbeddingWorker:
    """Loads the model, keeps the vectors up with the catalog, and answers questions.

    `missing` is the notice that there is no semantic leg; None when there is one.
    `left` counts the chunks without a vector, None when not known yet.
    `asleep` says that the model is not loaded because nobody asked and nothing waits for it.
    """

    def __init__(
        self,
        settings: Settings,
        cache_dir: Path,
        say: Callable[[IndexProgress], None],
        changed: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._settings, self._cache_dir = settings, cache_dir
        self._say, self._changed, self._log = say, changed, log
        self.missing: Notice | None = LOADING
        self.left: int | None = None
        self.busy = False
        self._folder: Path | None = None
        self._store: VectorStore | None = None
        self._embedder: Embedder | FastEmbedder | None = None
        self._questions = QueryEmbedder(self._encode_query)
        self._bulk_embedder: FastEmbedder | None = None
        self._exporting: subprocess.Popen[bytes] | None = None
        self._wake = threading.Event()
        self._stop = threading.Event()
        self.warm = threading.Event()
        self.settled = threading.Event()
        self._moved = False
        self._failed_at: float | None = None
        self._wanted = threading.Event()
        self.asleep = False
        self._conditions = EmbeddingThrottle(settings.embed_pause)
        self._thread = threading.Thread(target=self._run, name="semantic", daemon=True)
        self._niced = ThreadPoolExecutor(1, thread_name_prefix="backlog", initializer=_be_nice)

    def start(self) -> None:
        """Begin loading."""
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """End after the batch at hand; neither that nor loading the model is waited for.

        Ended in the middle of a write, the table is as it was before (tests/engine kills it).
        """
        self._stop.set()
        self._wake.set()
        self._niced.shutdown(wait=False, cancel_futures=True)

    def follow(self, folder: Path) -> None:
        """The catalog of the generation at `folder` has moved on."""
        self._folder = folder
        self._moved = True
        self.settled.clear()
        self._wake.set()

    @property
    def generation(self) -> str | None:
        """The generation whose vectors are open."""
        return self._open.name if self._open else None

    _open: Path | None = None

    def expect(self, text: str) -> None:
        """A question that will be asked: it is embedded meanwhile. From any thread."""
        self.want()
        if self._embedder is not None:
            self._questions.begin(text)

    def ask(
        self,
        text: str,
        narrowing: dict[str, Any],
        limit: int,
        per_entry: int,
        worded: Sequence[int] = (),
    ) -> list[tuple[int, float]]:
        """The nearest chunks; call only when `missing` is None. From any thread.

        The question leans towards the first of the best keyword hits in `worded` that has a
        vector.
        """
        from kbtui.index.vectors import LEAN_ON, condition, leaning

        store = self._store
        if self._embedder is None or store is None:
            return []
        near = self._questions.vector(text)[0].tolist()
        vector = leaning(near, store.vector(worded[:LEAN_ON]))
        return store.search(vector, condition(**narrowing), limit, per_entry)

    def _encode_query(self, text: str) -> Matrix:
        assert self._embedder is not None
        return self._embedder.encode_query(text)

    def reply(
        self,
        text: str,
        narrowing: dict[str, Any],
        limit: int,
        per_entry: int,
        worded: Sequence[int] = (),
    ) -> dict[str, Any]:
        """The semantic leg as clients get it: `ranked`, `left` and `total` of what the question may
        see, and which of `worded` are `pending`; or the `cause` why there is none."""
        store = self._store
        try:
            ranked = self.ask(text, narrowing, limit, per_entry, worded)
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            self._log(f"the vectors cannot be searched: {type(error).__name__}: {error}")
            if store is self._store and self._open != self._mended:
                self._hurt = True
                self._wake.set()
            return {"cause": "vectors_replaced"}
        left, total = self._counts(hidden=bool(narrowing.get("hidden")))
        return {
            "ranked": ranked,
            "left": left,
            "total": total,
            "pending": self.without_vector(worded),
        }

    def _counts(self, *, hidden: bool) -> tuple[int, int]:
        backlog = self._backlog
        return backlog.counts(hidden=hidden) if backlog is not None else (0, 0)

    def without_vector(self, numbers: Sequence[int]) -> list[int]:
        """Those of the chunks `numbers` that wait for their vector."""
        backlog = self._backlog
        return backlog.lacking(numbers) if backlog is not None and self.left else []

    def want(self) -> None:
        """Somebody will ask: load the model, whether or not there is something to embed."""
        failed_at = self._failed_at
        if failed_at is not None and time.monotonic() - failed_at > AGAIN_SECONDS:
            self.retry()
        if not self._wanted.is_set():
            self._wanted.set()
            self._wake.set()

    def retry(self) -> None:
        """Load the model and open the vectors again, if either failed."""
        if self._failed_at is None:
            return
        self.missing = LOADING
        self.warm.clear()
        self.settled.clear()
        self._failed_at = None
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            if self._failed_at is not None:
                # Nothing will be embedded for what has changed.
                self.settled.set()
                continue
            try:
                self._keep_up()
            except KbtuiError as error:
                self._fail(error.message, str(error))
            except Exception as error:
                self._fail(f"the vectors failed: {type(error).__name__}", traceback.format_exc())
        self.warm.set()
        self.settled.set()

    def _keep_up(self) -> None:
        """Load the model where somebody needs it, and embed what has no vector."""
        from kbtui.index.embedding_model import find_model

        if self._embedder is None:
            self._model = find_model(self._settings.model)
        if self._stop.is_set() or self._may_rest():
            return
        if self._embedder is None:
            self._load()
        if self._folder is not None and not self._stop.is_set():
            self._catch_up(self._folder)

    def _fail(self, reason: str, details: str) -> None:
        self.missing = keywords_only(
            "model_off" if self._settings.model == "off" else "error", reason
        )
        self._log(f"no semantic search: {details}")
        self._store = self._open = self._backlog = None
        self._failed_at = time.monotonic()
        self.left = 0 if self.left is None else self.left
        self.busy = False
        self.warm.set()
        self.settled.set()
        self._changed()

    def _may_rest(self) -> bool:
        """Whether nobody wants the model, and nothing waits for it."""
        from kbtui.index.embedding_status import nothing_lacks

        if self._embedder is not None or self._wanted.is_set():
            self.asleep = False
            return False
        if self._folder is None:
            return True
        self._moved = False
        self.asleep = nothing_lacks(self._folder, self._model.key)
        if self.asleep:
            self.left = 0
            if not self._moved:
                self.settled.set()
            self._changed()
        return self.asleep

    def _load(self) -> None:
        """Load the model: from its ONNX export in a second, without one under torch in several."""
        from kbtui.index.embedding_model import Embedder, ModelUnavailable
        from kbtui.index.onnx_model import FastEmbedder, export_in_background

        began = time.monotonic()
        # Both sides import numpy, which fails in either thread when they do so at the same time.
        import numpy  # noqa: F401

        # Lance is loaded meanwhile, so that the first question does not pay for it.
        lance = threading.Thread(target=import_lance, name="lance", daemon=True)
        lance.start()
        try:
            if not self._model.packaged:
                raise ModelUnavailable("only the packaged model has an export")
            self._embedder = FastEmbedder(self._model)
            self._log(f"model loaded from its export in {time.monotonic() - began:.1f} s")
        except ModelUnavailable:
            self._embedder = Embedder(self._model)
            self._log(f"model loaded in {time.monotonic() - began:.1f} s")
            self._exporting = export_in_background(self._model)
        finally:
            lance.join()

    def _take_export(self) -> None:
        """Replace torch by the export as soon as that is made."""
        from kbtui.index.embedding_model import ModelUnavailable
        from kbtui.index.onnx_model import FastEmbedder

        if self._exporting is None or self._exporting.poll() is None:
            return
        self._exporting = None
        with contextlib.suppress(ModelUnavailable):
            self._embedder = FastEmbedder(self._model)
            self._log("the model's export is made and used from now on")

    def _encoder(self, missing: int) -> Encoder:
        """The model that embeds the next of `missing` chunks. Called in the niced thread."""
        from kbtui.index.onnx_model import FastEmbedder

        self._take_export()
        assert self._embedder is not None
        if missing < MANY_CHUNKS or not isinstance(self._embedder, FastEmbedder):
            return self._embedder
        if self._bulk_embedder is None:
            # Its threads are niced, because the thread that starts them is.
            self._bulk_embedder = FastEmbedder(self._model, threads=os.cpu_count() or 1)
        return self._bulk_embedder

    def _catch_up(self, folder: Path) -> None:
        """Bring the vectors up to date; those that cannot be read or written are made anew, once."""
        if self._embedder is None:
            return
        self.busy = True
        if self._hurt:
            self._begin_anew(folder)
        try:
            self._bring_up(folder)
        except BaseException as error:
            mendable = isinstance(error, IndexUnavailable) or (
                isinstance(error, Exception) and not isinstance(error, KbtuiError | sqlite3.Error)
            )
            if self._folder != folder and not self._stop.is_set():
                # Another generation took over, and this one was removed under our hands.
                self._wake.set()
                return
            # What fails while the engine ends says nothing of the files.
            if folder == self._mended or self._stop.is_set() or not (is_panic(error) or mendable):
                raise
            self._log(f"{error}; making the vectors anew")
            self._begin_anew(folder)
            self._bring_up(folder)
        self.busy = False
        if not self._moved:
            self.settled.set()
            self._bulk_embedder = None
            self._take_export()
        self._changed()

    def _begin_anew(self, folder: Path) -> None:
        from kbtui.index.vectors import remove_vectors

        self.missing = keywords_only("vectors_replaced")
        self._store = self._open = self._backlog = None
        self._hurt, self._mended = False, folder
        remove_vectors(folder / "vectors")

    def _bring_up(self, folder: Path) -> None:
        from kbtui.index.embedding_cache import EmbeddingCache
        from kbtui.index.embedding_queue import EmbeddingQueue
        from kbtui.index.vectors import VectorStore

        assert self._embedder is not None
        catalog = Catalog(folder / "catalog.sqlite")
        model = self._model.key
        remembered = EmbeddingCache(self._cache_dir / "embeddings.sqlite", model)
        try:
            if self._open != folder or self._backlog is None:
                store = VectorStore(folder / "vectors", model, self._embedder.dimension)
                self._store, self._open = store, folder
                self._backlog = EmbeddingQueue(
                    catalog, store, remembered,
                    say=self._note, stop=self._stop, hold=self._conditions.reason,
                )  # fmt: skip
            else:
                self._backlog.continue_with(catalog, remembered)
            self.missing = None
            self.warm.set()
            self._changed()
            while not self._stop.is_set():
                self._moved = False
                work = self._niced.submit(self._backlog.run, self._encoder, self._interrupted)
                self.left = work.result()
                if not self._moved or self._folder != folder:
                    break
        finally:
            catalog.close()
            remembered.close()

    def _interrupted(self) -> bool:
        return self._moved or self._hurt

    _hurt = False
    _mended: Path | None = None
    _backlog: EmbeddingQueue | None = None
    _model: Model

    def _note(self, progress: IndexProgress) -> None:
        self.left = progress.total - progress.done
        self._say(progress)
