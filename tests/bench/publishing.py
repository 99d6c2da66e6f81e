"""A team's library in object storage: what publishing, fetching, updating and remote vectors cost.

A real S3 server on the loopback, behind a proxy that delays each request by a link of 20 ms and counts bytes
and requests. Subjects are real files; their vectors are made up, so no figure includes the model.
`make bench ARGS="publish --size 100000"` takes more passages than the usual 10,000. `publish-series` publishes
many updates; `--beside 10000` lets it write the table when 10,000 passages lack in it.
"""

import contextlib
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kbtui.index.chunk_embedder import ChunkEmbedder
from kbtui.index.embedding_cache import EmbeddingCache, PulledVectorLookup
from kbtui.index.embedding_model import EmbeddingModelKeyAndSource
from kbtui.index.entry_and_chunk_data_types import (
    select_best_chunks_and_best_of_further_entries,
    sort_ranked_chunks,
)
from kbtui.index.published_vector_table_search import (
    PublishedVectorTableSearcher,
    find_published_vector_table_of_mirror,
)
from kbtui.index.vector_store import VectorStore, make_vector_filter_sql
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.publishing.caching_text_embedder import CachingTextEmbedder
from kbtui.publishing.library_publisher import LibraryPublisher, LibraryPublishResult
from kbtui.publishing.publishable_entries import collect_publishable_entries
from kbtui.publishing.published_library_pull import pull_subscribed_library
from kbtui.publishing.published_library_store import LibraryStore
from kbtui.workspace import Settings, Workspace, open_workspace_at_root
from kbtui.workspace.published_library_settings import (
    PublishSettings,
    find_mirror_of_subscribed_library,
)
from tests.bench import clusters, scale
from tests.bench.measure import Row
from tests.publishing.s3_server import VARIABLES, Proxy, create_bucket, serve_s3

USUAL_PASSAGES = 10_000
LINK_SECONDS = 0.020
QUERIES, WARM_UP, EXACT_QUERIES = 120, 20, 24
URI = "s3://team-bench/kb"
CHANGED_SUBJECTS = 20
MOST_INDEXED_PASSAGES = 300_000
"""The member of a larger library builds no index: for a million passages, this takes more than twenty minutes."""
MODEL = EmbeddingModelKeyAndSource("made_up", "/no/model", packaged=False)
passages = USUAL_PASSAGES
updates = 20
"""The number of updates of a series."""


@contextlib.contextmanager
def _serve_empty_bucket(base: Path) -> Iterator[Proxy]:
    """Run an S3 server, and give the proxy in front of it. Mirrors are below `base`, so each benchmark has its own."""
    with serve_s3() as port:
        create_bucket(port, "team-bench")
        proxy = Proxy(port, keeps_objects=True)
        endpoint = f"http://127.0.0.1:{proxy.port}"
        os.environ |= {
            **VARIABLES,
            "AWS_ENDPOINT_URL": endpoint,
            "XDG_DATA_HOME": str(base / "data"),
        }
        yield proxy
        proxy.close()


def publish_and_subscribe(base: Path, times: int) -> Iterator[Row]:
    """Publish, subscribe over a link of 20 ms with remote and with mirrored vectors, and update 1,000 passages."""
    with _serve_empty_bucket(base) as proxy:
        author, member = base / "author", base / "member"
        scale.write_subjects(author, passages // scale.SECTIONS)
        what = "publish, with a table of vectors"
        result = _report(proxy, what, lambda: _publish(author))
        count = result.entries.passages
        print(f"  {count:,} passages in {len(result.entries.texts):,} subjects")
        workspace = _subscribe(member, mirror_megabytes=0)
        proxy.delay = LINK_SECONDS
        _report(proxy, "fetch without vectors, 20 ms", lambda: pull_subscribed_library(workspace))
        _report(proxy, "look for a version, 20 ms", lambda: pull_subscribed_library(workspace))
        _measure_queries_by_uri(proxy, "by URI, 20 ms", workspace)
        _measure_update(proxy, author, workspace)
        _measure_queries_by_uri(proxy, "by URI, after it", workspace)
        proxy.delay = 0.0
        _report(proxy, "publish again, nothing changed", lambda: _publish(author))
        if passages <= MOST_INDEXED_PASSAGES:
            proxy.delay = LINK_SECONDS
            _measure_indexes(proxy, member)
    yield from ()


def publish_series(base: Path, times: int) -> Iterator[Row]:
    """Publish many updates of 1,000 passages each, and print what each moves, and the mean."""
    with _serve_empty_bucket(base) as proxy:
        author, member = base / "author", base / "member"
        scale.write_subjects(author, passages // scale.SECTIONS)
        _report(proxy, "publish, with a table of vectors", lambda: _publish(author))
        workspace = _subscribe(member, mirror_megabytes=0)
        _report(proxy, "fetch without vectors", lambda: pull_subscribed_library(workspace))
        proxy.delay = LINK_SECONDS
        _measure_queries_by_uri(proxy, "by URI, before", workspace)
        proxy.delay = 0.0
        moved = [_measure_update_in_series(proxy, author, workspace, at) for at in range(updates)]
        texts, sent, fetched = map(sum, zip(*moved, strict=True))
        print(
            f"{len(moved)} updates, bytes sent: {sent / texts:.2f} times their text,"
            f" fetched: {fetched / texts:.2f} times   (target < 3)"
        )
        proxy.delay = LINK_SECONDS
        _measure_queries_by_uri(proxy, "by URI, after them", workspace)
    yield from ()


def _measure_update_in_series(
    proxy: Proxy, author: Path, workspace: Workspace, number: int
) -> tuple[int, int, int]:
    """Change 1,000 passages, publish and fetch them; gives the size of their texts, and the bytes sent and fetched."""
    own = _change_subjects(author, number)
    began, before = time.perf_counter(), proxy.received
    _publish(author, is_quiet=True)
    took, sent, before = time.perf_counter() - began, proxy.received - before, proxy.sent
    pulled = pull_subscribed_library(workspace)
    fetched = proxy.sent - before
    print(
        f"update {number + 1}: sent {sent:,} bytes, {sent / own:.2f} times their text, in {took:.1f} s;"
        f" fetched {fetched:,}, {fetched / own:.2f} times; {len(pulled.manifest.parts)} parts"
        f"{', a new version of the table' if pulled.is_table_new else ''}",
        flush=True,
    )
    return own, sent, fetched


def _measure_update(proxy: Proxy, author: Path, workspace: Workspace) -> None:
    """Change 1,000 passages, publish them, and fetch them without vectors."""
    proxy.delay = 0.0
    own = _change_subjects(author, 0)
    before = proxy.received
    update = _report(proxy, "publish 1,000 changed passages", lambda: _publish(author))
    _report_update("sent, parts alone", update.sent_bytes, own)
    _report_update("sent, with the table", proxy.received - before, own)
    proxy.delay, before = LINK_SECONDS, proxy.sent
    _report(proxy, "fetch them without vectors, 20 ms", lambda: pull_subscribed_library(workspace))
    _report_update("fetched, vectors remote", proxy.sent - before, own)


def _measure_indexes(proxy: Proxy, member: Path) -> None:
    """Index what was fetched, mirror the vectors, too, and compare what both tables find."""
    workspace = _subscribe(member, mirror_megabytes=0)
    index = WorkspaceIndexWriter(workspace, Settings(model="off"))
    _report(proxy, "keyword index of the member", index.refresh_index)
    found = []
    if _open_table(workspace).count_vector_rows():
        remote = _report(proxy, "find chunks with a published vector", lambda: _open_remote(index))
        found = _measure_queries(proxy, "by URI, by chunk", remote.search_nearest_chunks)
    workspace = _subscribe(member, mirror_megabytes=100_000)
    _report(proxy, "fetch all vectors, 20 ms", lambda: pull_subscribed_library(workspace))
    store = _report(proxy, "vectors of the member, no model runs", lambda: _embed(index))
    local = _measure_queries(proxy, "local table", store.search_nearest_chunks)
    _report_recall(store, found, local)
    index.close()


def _subscribe(member: Path, *, mirror_megabytes: int) -> Workspace:
    (member / ".jp").mkdir(parents=True, exist_ok=True)
    (member / ".jp/kb-library.toml").write_text(
        f'[library]\nremote = "{URI}"\nmirror_megabytes = {mirror_megabytes}\n'
    )
    return open_workspace_at_root(member)


def _report_update(what: str, moved: int, own: int) -> None:
    print(
        f"1,000 changed passages, bytes {what}: {moved:,}, {moved / own:.2f} times their text"
        f" of {own:,} bytes   (target < 3)",
        flush=True,
    )


def _report(proxy: Proxy, what: str, work: Callable[[], Any]) -> Any:
    """Do something, and print how long it takes, what it moves, and how much memory the process has had."""
    requests, received, sent = proxy.requests, proxy.received, proxy.sent
    began = time.perf_counter()
    result = work()
    took = time.perf_counter() - began
    print(
        f"{what:<42} {took:8.2f} s, {proxy.requests - requests:5,} requests,"
        f" {(proxy.received - received) / 1e6:8.2f} MB up, {(proxy.sent - sent) / 1e6:8.2f} MB down,"
        f" peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB",
        flush=True,
    )
    return result


def _publish(root: Path, *, is_quiet: bool = False) -> LibraryPublishResult:
    workspace = open_workspace_at_root(root)
    entries = collect_publishable_entries(workspace, Settings(), PublishSettings())
    embedder = CachingTextEmbedder(workspace, MODEL, print)
    began = time.perf_counter()
    cache = EmbeddingCache(workspace.cache_dir / "embeddings.sqlite", MODEL.key)
    hashes = sorted(entries.embedded)
    made = clusters.Clusters(len(hashes), 2)
    for at in range(0, len(hashes), 5000):
        some = hashes[at : at + 5000]
        known = cache.get_cached_vectors(some)
        missing = [key for key in some if key not in known]
        cache.store_cached_vectors(dict(zip(missing, made.some(len(missing)), strict=True)))
    cache.close()
    if not is_quiet:
        print(
            f"  of the next time, {time.perf_counter() - began:.0f} s make up vectors", flush=True
        )
    try:
        store = LibraryStore(URI)
        return LibraryPublisher(workspace, store, entries, embedder, has_table=True).publish()
    finally:
        embedder.close()


def _embed(index: WorkspaceIndexWriter) -> VectorStore:
    """Fill the member's table of vectors from the mirror; asking for the model is an error."""
    mirror = find_mirror_of_subscribed_library(index.workspace)
    assert mirror is not None
    published = PulledVectorLookup(lambda: mirror.database)
    cache = EmbeddingCache(index.cache_dir / "embeddings.sqlite", MODEL.key, published)
    store = VectorStore(index.folder / "vectors", MODEL.key, clusters.DIMENSION)

    def refuse(is_bulk: bool) -> Any:
        raise AssertionError("the model was needed")

    left = ChunkEmbedder(index.catalog, store, cache).embed_missing_chunks(refuse)
    assert left == 0
    store.compact_vector_table(force=True)
    cache.close()
    return store


def _change_subjects(root: Path, update_number: int) -> int:
    """Write other texts into twenty random subjects of fifty passages; gives their size in bytes.

    Passages have about 550 bytes, as those of the guide have.
    """
    made = random.Random(5 + update_number)
    lines = scale.natural_lines(made, 2000)
    own = 0
    for path in made.sample(sorted((root / "docs").rglob("*.md")), CHANGED_SUBJECTS):
        parts = [f"# {path.stem}\n"]
        parts += [
            f"## Part {section}, changed\n\n" + "\n".join(made.choices(lines, k=6)) + "\n"
            for section in range(scale.SECTIONS)
        ]
        text = "\n".join(parts)
        own += len(text.encode())
        path.write_text(text)
    return own


def _open_table(workspace: Workspace) -> VectorStore:
    """Open the published table by its URI, in the version of the mirror."""
    mirror = find_mirror_of_subscribed_library(workspace)
    assert mirror is not None
    table = find_published_vector_table_of_mirror(mirror)
    assert table is not None
    return VectorStore(
        table.place, table.model, table.dimension, is_published=True, version=table.version
    )


def _measure_queries_by_uri(proxy: Proxy, name: str, workspace: Workspace) -> None:
    """Measure queries of the published table, unless it is empty."""
    table = _open_table(workspace)
    if table.count_vector_rows():
        _measure_queries(proxy, name, lambda *query: table.find_nearest_row_ids(*query)[0])
    else:
        print("the table is empty, so its passages are queried in a local table")


def _open_remote(index: WorkspaceIndexWriter) -> PublishedVectorTableSearcher:
    """Open the published table as the engine does, and print how many chunks have their vectors beside it."""
    mirror = find_mirror_of_subscribed_library(index.workspace)
    assert mirror is not None
    table = find_published_vector_table_of_mirror(mirror)
    assert table is not None
    remote = PublishedVectorTableSearcher(table, index.folder)
    missing: dict[str, set[int]] = {}
    for number, entry_id, _ in index.catalog.iterate_chunks_to_embed():
        missing.setdefault(entry_id, set()).add(number)
    left = remote.update_coverage_and_list_uncovered_chunks(index.catalog, missing)
    print(f"  {sum(map(len, left.values())):,} passages lack in the table")
    return remote


def _measure_queries(
    proxy: Proxy,
    name: str,
    search: Callable[[list[float], str, int], list[tuple[int, float]]],
) -> list[set[int]]:
    """Ask for the nearest 100 passages of made-up vectors, and count what this moves; gives what was found."""
    questions = clusters.Clusters(passages, 4).some(QUERIES)
    where = make_vector_filter_sql()
    requests, sent = proxy.requests, proxy.sent
    took, found = [], []
    for at, question in enumerate(questions):
        began = time.perf_counter()
        ranked = search(question.tolist(), where, 100)
        took.append((time.perf_counter() - began) * 1000)
        found.append({number for number, _ in ranked})
        if at == 0 or at == WARM_UP - 1:
            print(
                f"  after {at + 1} queries: {proxy.requests - requests:,} requests,"
                f" {(proxy.sent - sent) / 1e6:.1f} MB",
                flush=True,
            )
        if at == WARM_UP - 1:
            warm_requests, warm_sent = proxy.requests, proxy.sent
    cold, warm = took[:WARM_UP], sorted(took[WARM_UP:])
    print(
        f"nearest 100 passages, {name:<16} first {took[0]:.0f} ms,"
        f" first {WARM_UP} median {statistics.median(cold):.0f} ms,"
        f" then median {statistics.median(warm):.0f} ms, p95 {warm[int(len(warm) * 0.95)]:.0f} ms",
        flush=True,
    )
    per_thousand = 1000 / len(warm)
    print(
        f"a thousand later queries: {(proxy.requests - warm_requests) * per_thousand:,.0f} requests,"
        f" {(proxy.sent - warm_sent) * per_thousand / 1e6:,.0f} MB",
        flush=True,
    )
    return found


def _report_recall(store: VectorStore, remote: list[set[int]], local: list[set[int]]) -> None:
    """Compare what both tables found with an exact search of the local one."""
    questions = clusters.Clusters(passages, 4).some(QUERIES)[:EXACT_QUERIES]
    best = []
    for one in questions:
        rows = store.find_nearest_vector_rows(one.tolist(), make_vector_filter_sql(), 300, 0)
        ranked = select_best_chunks_and_best_of_further_entries(
            sort_ranked_chunks(rows, least=1.0, cut=True), 100
        )
        best.append({row.number for row in ranked[:10]})
    for name, found in (("by URI", remote), ("local table", local)):
        if not found:
            continue
        shares = [len(one & exact) / 10 for one, exact in zip(found, best, strict=False)]
        print(
            f"of the first 10 passages of an exact search, {name} among the first 100: {statistics.mean(shares):.3f}",
            flush=True,
        )


BENCHES = {"publish": publish_and_subscribe, "publish-series": publish_series}
