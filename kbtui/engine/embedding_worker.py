"""Embeds passages and queries, in threads of the engine."""

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
from typing import TYPE_CHECKING, Generic, TypeVar

from kbtui.errors import IndexUnavailable, KbtuiError
from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.embedding_model import (
    EmbeddingModelUnavailableError,
    OnnxEmbeddingModel,
    check_onnx_packages,
    check_package_import,
    find_embedding_model,
    start_onnx_export_process,
)
from kbtui.index.embedding_process import (
    EmbeddingProcess,
    EmbeddingProcessEndedError,
    lower_thread_priority,
)
from kbtui.index.index_generations import is_rust_panic
from kbtui.notices import Notice, make_keywords_only_notice
from kbtui.search.search_request_and_answer import SemanticRanking

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kbtui.index.chunk_embedder import ChunkEmbedder
    from kbtui.index.embedding_model import EmbeddingModelKeyAndSource, Matrix
    from kbtui.index.published_vector_table_search import PublishedVectorTableSearcher
    from kbtui.index.vector_store import VectorStore
    from kbtui.index.workspace_index_writer import IndexProgress
    from kbtui.notices import PauseReason
    from kbtui.search.search_request_and_answer import SearchRequest
    from kbtui.workspace import Settings
    from kbtui.workspace.published_library_settings import PublishedLibraryMirrorPaths


LOAD_CHECK_SECONDS = 5.0
"""The minimum interval in seconds between two checks of the computer's load and power supply."""
BUSY_LOAD, OWN_LOAD = 0.75, 1.0
"""The computer is busy if its load per core is above `BUSY_LOAD`.

While embedding is running, `OWN_LOAD` is added to this limit, because embedding itself causes load.
"""


PAUSE_FILE = "embedding-paused"
"""While a file with this name is in a workspace's cache directory, the workspace's passages are not embedded.

The file stays when the engine ends, so the pause outlasts a restart of the engine.
"""


class EmbeddingPausePolicy:
    """Decides when embedding pauses, according to the setting `embed_pause`.

    The values of the setting are "never", "battery", "load" and "either" (battery or load).
    """

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
        self._on_battery = on_battery or is_computer_on_battery
        self._load, self._clock = load, clock
        self._cores = cores or os.cpu_count() or 1
        self._checked_at = -LOAD_CHECK_SECONDS
        self._pause_reason: PauseReason | None = None

    def find_embedding_pause_reason(self) -> PauseReason | None:
        """Return why embedding must pause, or None if it can continue."""
        if self._pause == "never":
            return None
        now = self._clock()
        if now - self._checked_at >= LOAD_CHECK_SECONDS:
            self._checked_at, self._pause_reason = now, self._find_battery_or_load_pause_reason()
        return self._pause_reason

    def _find_battery_or_load_pause_reason(self) -> PauseReason | None:
        if self._pause in {"battery", "either"} and self._on_battery():
            return "battery"
        if self._pause in {"load", "either"}:
            # While embedding is running, it adds to the measured load.
            most = self._cores * (BUSY_LOAD if self._pause_reason else BUSY_LOAD + OWN_LOAD)
            if self._load() > most:
                return "busy"
        return None


def is_computer_on_battery(supplies: Path = Path("/sys/class/power_supply")) -> bool:
    """Return whether the computer is running on battery; False if the system does not report this."""
    if sys.platform == "darwin":
        import subprocess

        said = subprocess.run(["pmset", "-g", "batt"], capture_output=True, text=True, check=False)
        return "'Battery Power'" in said.stdout
    try:
        found = [
            (_read_power_supply_file(place, "type"), place) for place in sorted(supplies.iterdir())
        ]
    except OSError:
        return False
    if any(
        kind != "Battery" and _read_power_supply_file(place, "online") == "1"
        for kind, place in found
    ):
        return False
    return any(
        kind == "Battery" and _read_power_supply_file(place, "status") == "Discharging"
        for kind, place in found
    )


def _read_power_supply_file(place: Path, name: str) -> str:
    try:
        return (place / name).read_text("ascii", errors="replace").strip()
    except OSError:
        return ""


PREFERRED_HITS = 20
"""The entries of this many best keyword hits of a search are embedded before all other entries."""
RETRY_SECONDS, RETRY_SECONDS_MAX = 60.0, 3600.0
"""After a failure to load the model, queries start no new attempt for `RETRY_SECONDS`.

Each additional failure doubles this time, up to `RETRY_SECONDS_MAX`.
"""
MODEL_LOADING = make_keywords_only_notice("model_loading")


_NUMPY_IMPORT = threading.Lock()


def import_lancedb_module() -> None:
    """Import LanceDB. Raises `EmbeddingModelUnavailableError` if LanceDB or one of its dependencies is broken."""
    for package in ("pyarrow", "lancedb"):
        check_package_import(package)
    import kbtui.index.vector_store  # noqa: F401


def return_freed_memory_to_system() -> None:
    """Give the memory that libraries have freed back to the operating system.

    The GNU C library keeps such memory until it is told to give it back. With other C libraries, this
    function does nothing.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


Shared = TypeVar("Shared")


class ReferenceCountedObjects(Generic[Shared]):
    """A thread-safe collection that holds one shared object for each key, and records the users of each object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._make_locks: dict[str, threading.Lock] = {}
        self._objects: dict[str, tuple[Shared, set[object]]] = {}

    def acquire(self, key: str, user: object, make: Callable[[], Shared]) -> Shared:
        """Add a user to a key's object, and return the object. If there is none yet, `make` creates it.

        Other threads that request the same object wait until it has been created.
        """
        with self._lock:
            making = self._make_locks.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if found := self._objects.get(key):
                    found[1].add(user)
                    return found[0]
            made = make()
            with self._lock:
                self._objects[key] = (made, {user})
            return made

    def release_and_return_if_unused(self, key: str, user: object) -> Shared | None:
        """Remove a user of an object. Return the object if it has no users left, otherwise None."""
        with self._lock:
            found = self._objects.get(key)
            if found is None or user not in found[1]:
                return None
            found[1].remove(user)
            if found[1]:
                return None
            del self._objects[key]
            return found[0]

    @property
    def is_empty(self) -> bool:
        """Whether no object has a user."""
        return not self._objects


class SharedEmbeddingModels:
    """The models that an engine has loaded, and the engine's processes that embed many passages.

    Workspaces with the same model share the model and its process, so no model is in memory twice.
    `last_used` is the value of `time.monotonic` when a query or a passage last needed a model.
    """

    def __init__(self) -> None:
        self.embedders: ReferenceCountedObjects[OnnxEmbeddingModel | EmbeddingProcess] = (
            ReferenceCountedObjects()
        )
        self.bulk_processes: ReferenceCountedObjects[EmbeddingProcess] = ReferenceCountedObjects()
        self.last_used = time.monotonic()
        self.has_embedded_many = False
        """Whether many passages have been embedded. Some of the memory used for this cannot be freed."""

    def has_loaded_model_unused_for(self, seconds: float) -> bool:
        """Return whether a model is loaded and nothing has needed it for `seconds` seconds."""
        return not self.embedders.is_empty and time.monotonic() - self.last_used > seconds


class WorkspaceEmbeddingModel:
    """The embedding model of a workspace. Workspaces with the same model share it.

    The engine runs the packaged model itself, with onnxruntime, and starts a process to embed many
    passages. Other models need torch, so they always run in a separate process. Only one thread may
    load the model and embed passages; any thread may call `embed_query` and `close`.
    """

    def __init__(
        self,
        setting: str,
        log: Callable[[str], None],
        shared: SharedEmbeddingModels | None = None,
    ) -> None:
        self._setting, self._log = setting, log
        self._shared = shared or SharedEmbeddingModels()
        self._model: EmbeddingModelKeyAndSource | None = None
        self._embedder: OnnxEmbeddingModel | EmbeddingProcess | None = None
        self._bulk_process: EmbeddingProcess | None = None
        self._dimension = 0
        self._is_closed = False

    @property
    def is_model_loaded(self) -> bool:
        """Whether the model is loaded."""
        return self._embedder is not None

    @property
    def vector_dimension(self) -> int:
        """The length of the model's vectors."""
        return self._dimension

    def find_embedding_model_key(self) -> str:
        """Return the key of the configured model. Raises `EmbeddingModelUnavailableError`."""
        if self._model is None or self._embedder is None:
            self._model = find_embedding_model(self._setting)
        return self._model.key

    def load_model(self) -> None:
        """Load the model, unless another workspace has already loaded it.

        Loading the packaged model takes a second, or longer the first time, when it is exported to
        ONNX. Other models take several seconds. Raises `EmbeddingModelUnavailableError`.
        """
        model = self._model
        assert model is not None
        began = time.monotonic()
        # Both the model and LanceDB import numpy. Importing it in two threads at once fails.
        with _NUMPY_IMPORT:
            check_package_import("numpy")
        # Importing LanceDB takes a second or two. Do so in parallel, so that the first query does
        # not wait for it.
        with ThreadPoolExecutor(1, thread_name_prefix="lance") as pool:
            lance = pool.submit(import_lancedb_module)
            embedder = self._shared.embedders.acquire(
                self._shared_model_key, self, lambda: self._load_embedder(model)
            )
            try:
                self._dimension = embedder.embed_query("size").shape[1]
                lance.result()
            except BaseException:
                self._release_embedder()
                raise
            self._embedder = embedder
            if self._is_closed:
                self._release_embedder()
        self._log(f"model loaded in {time.monotonic() - began:.1f} s")

    @property
    def _shared_model_key(self) -> str:
        assert self._model is not None
        return f"{self._model.key} {self._model.source}"

    def _load_embedder(
        self, model: EmbeddingModelKeyAndSource
    ) -> OnnxEmbeddingModel | EmbeddingProcess:
        return self._load_onnx_export(model) or EmbeddingProcess(model, self._log)

    def _load_onnx_export(self, model: EmbeddingModelKeyAndSource) -> OnnxEmbeddingModel | None:
        """Load the model's ONNX export; create the export first if necessary.

        Returns None if the model cannot run as an ONNX export.
        """
        if not model.packaged:
            return None
        try:
            check_onnx_packages()
        except EmbeddingModelUnavailableError as error:
            self._log(f"{error}; the model runs with torch instead")
            return None
        with contextlib.suppress(EmbeddingModelUnavailableError):
            return OnnxEmbeddingModel(model)
        if export := start_onnx_export_process(model):
            self._log("exporting the model to ONNX; until this is done, search uses keywords only")
            export.wait()
            with contextlib.suppress(EmbeddingModelUnavailableError):
                return OnnxEmbeddingModel(model)
        return None

    def get_or_start_passage_embedder(self, is_bulk: bool) -> OnnxEmbeddingModel | EmbeddingProcess:
        """Return the embedder for passages; call this only in the thread with low priority.

        If `is_bulk` is true, a process that uses all cores is started, unless another workspace has
        already started one. From then on, the process embeds all passages until `end_bulk_embedding_process` is
        called.
        """
        embedder, model = self._embedder, self._model
        assert embedder is not None
        assert model is not None
        if isinstance(embedder, EmbeddingProcess):
            return embedder
        self._shared.last_used = time.monotonic()
        process = self._bulk_process
        if is_bulk and process is None:
            self._log("many passages have no vector; a new process is embedding them on all cores")
            self._shared.has_embedded_many = True
            process = self._bulk_process = self._shared.bulk_processes.acquire(
                self._shared_model_key, self, lambda: EmbeddingProcess(model, self._log)
            )
            if self._is_closed:
                self.end_bulk_embedding_process()
        return embedder if process is None or process.has_failed else process

    def end_bulk_embedding_process(self) -> None:
        """End the process that embeds many passages, unless another workspace is using it.

        This frees the memory of the process.
        """
        if self._bulk_process is not None:
            self._bulk_process = None
            if process := self._shared.bulk_processes.release_and_return_if_unused(
                self._shared_model_key, self
            ):
                process.close()

    def _release_embedder(self) -> None:
        embedder = self._shared.embedders.release_and_return_if_unused(self._shared_model_key, self)
        if isinstance(embedder, EmbeddingProcess):
            embedder.close()

    def close(self) -> None:
        """Stop using the model, without waiting. The model's processes exit if no other workspace uses them."""
        self._is_closed = True
        self.end_bulk_embedding_process()
        if self._embedder is not None:
            self._release_embedder()

    def embed_query(self, text: str) -> Matrix:
        """Return the vector of a query as a matrix with one row."""
        assert self._embedder is not None
        self._shared.last_used = time.monotonic()
        return self._embedder.embed_query(text)


class EmbeddingWorker:
    """Loads the model, keeps the vectors up to date with the catalog, and ranks chunks by meaning.

    * `keywords_only_notice` says why semantic search is unavailable; None if it is available.
    * `left` is the number of chunks without a vector, or None while it is unknown.
    * `is_paused_by_user` means that the user has paused the embedding of passages.
    * `is_asleep` means that the model is not loaded because neither a query nor a chunk needs it.
    * `model_ready` is set when the model is loaded or loading has failed.
    * `caught_up` is set when every chunk has its vector, or when an error prevents embedding.
    """

    def __init__(
        self,
        settings: Settings,
        cache_dir: Path,
        on_progress: Callable[[IndexProgress], None],
        on_change: Callable[[], None],
        log: Callable[[str], None],
        model: WorkspaceEmbeddingModel | None = None,
        find_existing_mirror_of_subscribed_library: Callable[
            [], PublishedLibraryMirrorPaths | None
        ] = lambda: None,
    ) -> None:
        """Create the worker.

        `find_existing_mirror_of_subscribed_library` returns the mirror of the published library, or None.
        `on_change` is called when `keywords_only_notice`, `left`, `is_asleep` or `is_paused_by_user`
        may have changed.
        """
        self._settings, self._cache_dir = settings, cache_dir
        self._on_progress, self._on_change, self._log = on_progress, on_change, log
        self._find_existing_library_mirror = find_existing_mirror_of_subscribed_library
        self._remote: PublishedVectorTableSearcher | None = None
        """The vectors of a large published library, which stay in object storage."""
        self._model = model or WorkspaceEmbeddingModel(settings.model, log)
        self._model_key = ""
        self.keywords_only_notice: Notice | None = MODEL_LOADING
        self.left: int | None = None
        self.is_busy = False
        self.is_paused_by_user = (cache_dir / PAUSE_FILE).exists()
        self.is_asleep = False
        self.model_ready = threading.Event()
        self.caught_up = threading.Event()
        self._folder: Path | None = None
        """The directory of the index generation whose passages must be embedded."""
        self._open_folder: Path | None = None
        """The directory of the index generation whose vectors are open."""
        self._store: VectorStore | None = None
        self._chunk_embedder: ChunkEmbedder | None = None
        self._entry_to_embed_first = ""
        self._has_catalog_changed = False
        """Whether the catalog has changed since the vectors and the catalog were last compared."""
        self._is_damaged = False
        self._rebuilt_folder: Path | None = None
        """The directory of the index generation whose vectors have been rebuilt.

        The vectors of a generation are rebuilt only once.
        """
        self._failed_at: float | None = None
        self._failures = 0
        """The number of failed attempts to load the model since the last successful attempt."""
        self._is_wanted = threading.Event()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._pause_policy = EmbeddingPausePolicy(settings.embed_pause)
        self._query_pool = ThreadPoolExecutor(1, thread_name_prefix="queries")
        self._passage_pool = ThreadPoolExecutor(
            1, thread_name_prefix="passages", initializer=lower_thread_priority
        )
        self._thread = threading.Thread(
            target=self._embed_chunks_until_stopped, name="embedding", daemon=True
        )

    def start_thread(self) -> None:
        """Start the thread."""
        self._wake.set()
        self._thread.start()

    def stop_thread_without_waiting(self) -> None:
        """Ask the thread to stop after the current batch, without waiting for it to end.

        An interrupted write leaves the table of vectors unchanged.
        """
        self._stop.set()
        self._wake.set()
        self._model.close()
        self._passage_pool.shutdown(wait=False, cancel_futures=True)
        self._query_pool.shutdown(wait=False)

    @property
    def may_still_write_files(self) -> bool:
        """Whether the thread may still be writing vectors.

        False if the thread was stopped while loading the model.
        """
        return self.is_busy and self._thread.is_alive()

    def set_index_generation_to_embed(self, folder: Path) -> None:
        """Switch to the index generation at `folder`, and embed its chunks that lack a vector."""
        self._folder = folder
        self._has_catalog_changed = True
        self.caught_up.clear()
        self._wake.set()

    def prefer_entry_for_embedding(self, entry_id: str) -> None:
        """Embed the chunks of this entry before all others, because the user is reading it."""
        self._entry_to_embed_first = entry_id
        if (chunk_embedder := self._chunk_embedder) is not None:
            chunk_embedder.prefer_entries_for_embedding([entry_id])

    def set_embedding_paused(self, is_paused: bool) -> None:
        """Pause or continue the embedding of passages. Raises `OSError` if the change cannot be recorded.

        Passages whose vectors are in the cache are not affected. Queries are always embedded.
        """
        path = self._cache_dir / PAUSE_FILE
        if is_paused:
            path.touch()
        else:
            path.unlink(missing_ok=True)
        self.is_paused_by_user = is_paused
        self._on_change()

    def _find_embedding_pause_reason(self) -> PauseReason | None:
        """Return why the next batch must wait, or None if it need not wait.

        If the user has paused embedding, the process that embeds many passages is stopped.
        """
        if self.is_paused_by_user:
            self._model.end_bulk_embedding_process()
            return "user"
        return self._pause_policy.find_embedding_pause_reason()

    @property
    def name_of_generation_with_open_vectors(self) -> str | None:
        """The name of the index generation whose vectors are open."""
        return self._open_folder.name if self._open_folder else None

    def request_model_loading(self) -> None:
        """Ask the thread to load the model for a query, even if there is no passage to embed."""
        failed_at = self._failed_at
        pause = min(RETRY_SECONDS * 2 ** max(0, self._failures - 1), RETRY_SECONDS_MAX)
        if failed_at is not None and time.monotonic() - failed_at > pause:
            self.retry_failed_model_loading()
        if not self._is_wanted.is_set():
            self._is_wanted.set()
            self._wake.set()

    def retry_failed_model_loading(self) -> None:
        """Make the thread try again if it could not load the model or open the vectors."""
        if self._failed_at is None:
            return
        self.keywords_only_notice = MODEL_LOADING
        self.model_ready.clear()
        self.caught_up.clear()
        self._failed_at = None
        self._wake.set()

    # queries, from any thread

    def start_computing_query_vector(self, text: str) -> Future[Matrix] | None:
        """Start embedding a query. Return None if the model is not loaded yet."""
        self.request_model_loading()
        if not self._model.is_model_loaded:
            return None
        return self._query_pool.submit(self._model.embed_query, text)

    def rank_chunks_by_meaning(
        self,
        text: str,
        pending: Future[Matrix] | None,
        question: SearchRequest,
    ) -> SemanticRanking:
        """Rank chunks by meaning. Call this only while `keywords_only_notice` is None.

        `pending` is the result of `start_computing_query_vector` for `text`.
        """
        from kbtui.index.vector_store import LEAN_CANDIDATES, move_vector_towards

        store = self._store
        ranked: list[tuple[int, float]] = []
        try:
            if store is not None and self._model.is_model_loaded:
                towards = store.get_vector_of_first_given_chunk_with_vector(
                    question.worded[:LEAN_CANDIDATES]
                )
                vector = move_vector_towards(
                    self.wait_for_or_compute_query_vector(text, pending), towards
                )
                where = make_vector_filter_of_request(question)
                ranked = store.search_nearest_chunks(vector, where, question.depth)
                ranked = self._merge_ranking_of_published_vectors(ranked, vector, where, question)
        except BaseException as error:
            if not isinstance(error, Exception) and not is_rust_panic(error):
                raise
            if isinstance(error, EmbeddingModelUnavailableError | EmbeddingProcessEndedError):
                self._log(f"the query cannot be embedded: {error}")
                return SemanticRanking(None, make_keywords_only_notice("error", str(error)))
            self._log(f"the vectors cannot be searched: {type(error).__name__}: {error}")
            if store is self._store and self._open_folder != self._rebuilt_folder:
                self._is_damaged = True
                self._wake.set()
            return SemanticRanking(None, make_keywords_only_notice("vectors_replaced"))
        chunk_embedder = self._chunk_embedder
        if chunk_embedder is None:
            return SemanticRanking(ranked)
        left, total = chunk_embedder.count_missing_and_required_vectors(hidden=question.hidden)
        if not left:
            return SemanticRanking(ranked)
        chunk_embedder.prefer_entries_of_chunks_for_embedding(question.worded[:PREFERRED_HITS])
        return SemanticRanking(
            ranked,
            Notice("passages_pending", {"total": left}),
            max(1, total - left) / max(1, total),
            frozenset(chunk_embedder.select_chunks_without_vector(question.worded)),
        )

    def _merge_ranking_of_published_vectors(
        self,
        ranked: list[tuple[int, float]],
        vector: list[float],
        where: str,
        question: SearchRequest,
    ) -> list[tuple[int, float]]:
        """Merge `ranked` with the ranking from the published vectors. If the object store fails, return `ranked` unchanged."""
        from kbtui.index.published_vector_table_search import join_disjoint_rankings

        # The filter `chunks` contains numbers of this index, which the published table does not know.
        if self._remote is None or question.chunks:
            return ranked
        try:
            remote = self._remote.search_nearest_chunks(vector, where, question.depth)
        except BaseException as error:
            if not isinstance(error, Exception) and not is_rust_panic(error):
                raise
            self._log(f"the published vectors cannot be searched: {error}")
            return ranked
        return join_disjoint_rankings(ranked, remote)

    def wait_for_or_compute_query_vector(
        self, text: str, pending: Future[Matrix] | None
    ) -> list[float]:
        """Return the vector of a query. `pending` is the result of `start_computing_query_vector` for `text`."""
        # If the pool has not started on this query, this thread embeds it. Waiting for the pool's
        # other queries would take longer.
        has_begun = pending is not None and not pending.cancel()
        rows = pending.result() if pending and has_begun else self._model.embed_query(text)
        vector: list[float] = rows[0].tolist()
        return vector

    def open_vector_store_of_generation(self, folder: Path) -> VectorStore | None:
        """Return the vectors of the index generation at `folder`.

        The generation can belong to another workspace. Returns None if the generation has no vectors of
        this model. Call this only while `keywords_only_notice` is None. Raises `IndexUnavailable`.
        """
        from kbtui.index.vector_store import VectorStore, has_vectors_of_model

        if folder == self._open_folder and self._store is not None:
            return self._store
        if not has_vectors_of_model(folder / "vectors", self._model_key):
            return None
        return VectorStore(folder / "vectors", self._model_key, self._model.vector_dimension)

    # the thread

    def _embed_chunks_until_stopped(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            if self._failed_at is not None:
                # After a failure, nothing more is embedded, so wake the callers that wait for vectors.
                self.caught_up.set()
                continue
            try:
                self._load_model_and_embed_chunks()
            except KbtuiError as error:
                self._report_model_failure(error.message, str(error), error.hint)
            except Exception as error:
                reason = f"search by meaning failed: {type(error).__name__}"
                self._report_model_failure(reason, traceback.format_exc())
        self.model_ready.set()
        self.caught_up.set()

    def _load_model_and_embed_chunks(self) -> None:
        """Load the model if it is needed, and embed the chunks that have no vector."""
        self._model_key = self._model.find_embedding_model_key()
        if self._stop.is_set() or self._can_skip_model_loading():
            return
        if not self._model.is_model_loaded:
            self._model.load_model()
        self._failures = 0
        if self._folder is not None and not self._stop.is_set():
            self._add_missing_vectors_or_repair_store(self._folder)

    def _report_model_failure(self, reason: str, details: str, hint: str | None = None) -> None:
        """Record and log why semantic search is unavailable, and wake waiting callers."""
        self.keywords_only_notice = make_keywords_only_notice(
            "model_off" if self._settings.model == "off" else "error", reason, hint
        )
        self._log(f"no search by meaning: {details}")
        self._store = self._open_folder = self._chunk_embedder = None
        self._model.end_bulk_embedding_process()
        self._failed_at = time.monotonic()
        self._failures += 1
        self.left = 0 if self.left is None else self.left
        self.is_busy = False
        self.model_ready.set()
        self.caught_up.set()
        self._on_change()

    def _can_skip_model_loading(self) -> bool:
        """Return whether the model can stay unloaded, because no query needs it and no chunk lacks a vector.

        Updates `is_asleep`.
        """
        from kbtui.index.unembedded_entries_file import is_index_fully_embedded

        if self._model.is_model_loaded or self._is_wanted.is_set():
            self.is_asleep = False
            return False
        if self._folder is None:
            return True
        self._has_catalog_changed = False
        self.is_asleep = is_index_fully_embedded(self._folder, self._model_key)
        if self.is_asleep:
            self.left = 0
            if not self._has_catalog_changed:
                self.caught_up.set()
            self._on_change()
        return self.is_asleep

    def _add_missing_vectors_or_repair_store(self, folder: Path) -> None:
        """Embed all passages that have no vector.

        If the vector files are unusable, rebuild them.
        """
        self.is_busy = True
        if self._is_damaged:
            self._discard_vector_store(folder)
        try:
            self._embed_passages_without_vector(folder)
        except BaseException as error:
            is_repairable = isinstance(error, IndexUnavailable) or (
                isinstance(error, Exception) and not isinstance(error, KbtuiError | sqlite3.Error)
            )
            if self._folder != folder and not self._stop.is_set():
                # A new generation has replaced this one, whose files have been removed.
                self._wake.set()
                return
            # If the engine is ending, the failure does not mean that the files are unusable.
            is_final = folder == self._rebuilt_folder or self._stop.is_set()
            if is_final or not (is_rust_panic(error) or is_repairable):
                raise
            self._log(f"{error}; rebuilding the vectors")
            self._discard_vector_store(folder)
            self._embed_passages_without_vector(folder)
        self.is_busy = False
        if not self._has_catalog_changed:
            self._model.end_bulk_embedding_process()
            self.caught_up.set()
        self._on_change()
        return_freed_memory_to_system()

    def _discard_vector_store(self, folder: Path) -> None:
        from kbtui.index.vector_store import remove_vector_directory

        self.keywords_only_notice = make_keywords_only_notice("vectors_replaced")
        self._store = self._open_folder = self._chunk_embedder = None
        self._is_damaged, self._rebuilt_folder = False, folder
        remove_vector_directory(folder / "vectors")

    def _embed_passages_without_vector(self, folder: Path) -> None:
        """Open the vectors of an index generation, and add those that are missing."""
        from kbtui.index.chunk_embedder import ChunkEmbedder
        from kbtui.index.embedding_cache import EmbeddingCache, PulledVectorLookup
        from kbtui.index.unembedded_entries_file import is_index_fully_embedded
        from kbtui.index.vector_store import VectorStore

        catalog = CatalogDatabase(folder / "catalog.sqlite")
        published = PulledVectorLookup(
            lambda: mirror.database if (mirror := self._find_existing_library_mirror()) else None
        )
        cache = EmbeddingCache(self._cache_dir / "embeddings.sqlite", self._model_key, published)
        try:
            remote = self._get_searcher_of_vectors_in_object_storage(folder)
            if (
                self._open_folder != folder
                or self._chunk_embedder is None
                or remote is not self._remote
            ):
                self._remote = remote
                store = VectorStore(
                    folder / "vectors", self._model_key, self._model.vector_dimension
                )
                self._store, self._open_folder = store, folder
                chunk_embedder = ChunkEmbedder(
                    catalog, store, cache,
                    on_progress=self._report_embedding_progress, stop=self._stop,
                    find_embedding_pause_reason=self._find_embedding_pause_reason, remote=remote,
                )  # fmt: skip
                chunk_embedder.prefer_entries_for_embedding([self._entry_to_embed_first])
                self._chunk_embedder = chunk_embedder
            else:
                self._chunk_embedder.replace_catalog_and_cache(catalog, cache)
            if is_index_fully_embedded(folder, self._model_key):
                self._allow_search_by_meaning()
            while not self._stop.is_set():
                self._has_catalog_changed = False
                work = self._passage_pool.submit(
                    self._chunk_embedder.embed_missing_chunks,
                    self._model.get_or_start_passage_embedder,
                    lambda: self._has_catalog_changed or self._is_damaged,
                    # This is called as soon as the missing vectors have been counted. Before then,
                    # an answer could not say how many passages have no vector yet.
                    self._allow_search_by_meaning,
                )
                self.left = work.result()
                if not self._has_catalog_changed or self._folder != folder:
                    break
        finally:
            catalog.close()
            cache.close()

    def _allow_search_by_meaning(self) -> None:
        self.keywords_only_notice = None
        self.model_ready.set()
        self._on_change()

    def _get_searcher_of_vectors_in_object_storage(
        self, folder: Path
    ) -> PublishedVectorTableSearcher | None:
        """Return a searcher for the published vectors that stay in object storage, or None if there are none.

        If neither the published table nor the index generation has changed, returns the same object as before.
        """
        from kbtui.index.published_vector_table_search import (
            PublishedVectorTableSearcher,
            find_published_vector_table_of_mirror,
        )

        mirror = self._find_existing_library_mirror()
        table = find_published_vector_table_of_mirror(mirror) if mirror is not None else None
        if table is None or table.model != self._model_key:
            return None
        if self._remote is not None and self._open_folder == folder and self._remote.table == table:
            return self._remote
        return PublishedVectorTableSearcher(table, folder)

    def _report_embedding_progress(self, progress: IndexProgress) -> None:
        self.left = progress.total - progress.done
        self._on_progress(progress)


def make_vector_filter_of_request(request: SearchRequest) -> str:
    """Return the filters of a search request as an SQL condition on the table of vectors."""
    from kbtui.index.vector_store import make_vector_filter_sql

    return make_vector_filter_sql(
        hidden=request.hidden,
        archived=request.archived,
        kinds=() if len(request.kinds) == 2 else request.kinds,
        topics=request.topics,
        types=request.types,
        agents=request.agents,
        roles=request.roles,
        since=request.since.timestamp() if request.since else None,
        until=request.until.timestamp() if request.until else None,
        exclude=request.exclude,
        entries=request.entries,
        chunks=request.chunks,
    )
