"""A team's library in object storage: what publishing, fetching, updating and remote vectors cost.

A real S3 server on the loopback, behind a proxy that delays each request by a link of 20 ms and counts bytes
and requests. Subjects are real files; their vectors are made up, so no figure includes the model.
`make bench ARGS="publish --size 100000"` takes more passages than the usual 10,000.
"""

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kbtui.index.embedding_cache import EmbeddingCache
from kbtui.index.embedding_model import EmbeddingModelSource
from kbtui.index.embedding_queue import EmbeddingQueue, make_vector_row
from kbtui.index.indexer import WorkspaceIndexWriter
from kbtui.index.published_vectors import PublishedVectors
from kbtui.index.vector_store import VectorStore, make_vector_filter_sql
from kbtui.publishing.library_publisher import LibraryPublisher, LibraryPublishResult, TextEmbedder
from kbtui.publishing.library_store import LibraryStore
from kbtui.publishing.publishable_entries import collect_publishable_entries
from kbtui.publishing.published_library_pull import pull_subscribed_library
from kbtui.workspace import Settings, open_workspace_at_root
from kbtui.workspace.library_settings import PublishSettings
from kbtui.workspace.published_mirror import get_subscribed_mirror
from tests.bench import clusters, scale
from tests.bench.measure import Row
from tests.publishing.s3_server import VARIABLES, Proxy, create_bucket, serve_s3

USUAL_PASSAGES = 10_000
LINK_SECONDS = 0.020
QUERIES = 24
CHANGED_SUBJECTS = 20
MODEL = EmbeddingModelSource("made_up", "/no/model", packaged=False)
passages = USUAL_PASSAGES


def publish_and_subscribe(base: Path, times: int) -> Iterator[Row]:
    """Publish, fetch over a link of 20 ms, update 1,000 passages, and query vectors by URI."""
    with serve_s3() as port:
        create_bucket(port, "team-bench")
        proxy = Proxy(port)
        os.environ |= {**VARIABLES, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        uri = "s3://team-bench/kb"
        author, member = base / "author", base / "member"
        scale.write_subjects(author, passages // scale.SECTIONS)
        result = _report(proxy, "publish", lambda: _publish(author, uri))
        count = result.entries.passages
        print(f"  {count:,} passages in {len(result.entries.texts):,} subjects")
        _report(proxy, "publish again, nothing changed", lambda: _publish(author, uri))
        (member / ".jp").mkdir(parents=True, exist_ok=True)
        (member / ".jp/kb-library.toml").write_text(f'[library]\nremote = "{uri}"\n')
        workspace = open_workspace_at_root(member)
        proxy.delay = LINK_SECONDS
        _report(
            proxy, "fetch into an empty mirror, 20 ms", lambda: pull_subscribed_library(workspace)
        )
        _report(proxy, "look for a new version, 20 ms", lambda: pull_subscribed_library(workspace))
        index = WorkspaceIndexWriter(workspace, Settings(model="off"))
        _report(proxy, "keyword index of the member", index.refresh_index)
        store = _report(proxy, "vectors of the member, no model runs", lambda: _embed(index))
        proxy.delay = 0.0
        own = _change_subjects(author)
        update = _report(proxy, "publish 1,000 changed passages", lambda: _publish(author, uri))
        proxy.delay = LINK_SECONDS
        pulled = _report(
            proxy, "fetch 1,000 changed passages, 20 ms", lambda: pull_subscribed_library(workspace)
        )
        changed = update.vectors
        for what, moved in (("sent", update.sent_bytes), ("fetched", pulled.fetched_bytes)):
            print(
                f"1,000 changed passages, bytes {what}: {moved:,} for {changed:,} texts,"
                f" {moved / own:.2f} times their text of {own:,} bytes   (target < 3)",
                flush=True,
            )
        proxy.delay = 0.0
        vectors = _report(proxy, "write a LanceDB table by URI", lambda: _write_table(index))
        proxy.delay = LINK_SECONDS
        _measure_queries(proxy, store, vectors)
        index.close()
        proxy.close()
    yield from ()


def _report(proxy: Proxy, what: str, work: Callable[[], Any]) -> Any:
    """Do something, and print how long it takes, what it moves, and how much memory the process has had."""
    requests, received, sent = proxy.requests, proxy.received, proxy.sent
    began = time.perf_counter()
    result = work()
    took = time.perf_counter() - began
    print(
        f"{what:<42} {took:8.2f} s, {proxy.requests - requests:5,} requests,"
        f" {(proxy.received - received) / 1e6:8.2f} MB up, {(proxy.sent - sent) / 1e6:8.2f} MB down",
        flush=True,
    )
    return result


def _publish(root: Path, uri: str) -> LibraryPublishResult:
    workspace = open_workspace_at_root(root)
    entries = collect_publishable_entries(workspace, Settings(), PublishSettings())
    embedder = TextEmbedder(workspace, MODEL, print)
    cache = EmbeddingCache(workspace.cache_dir / "embeddings.sqlite", MODEL.key)
    hashes = sorted(entries.embedded)
    made = clusters.Clusters(len(hashes), 2)
    for at in range(0, len(hashes), 5000):
        some = hashes[at : at + 5000]
        known = _get_known(cache, some)
        missing = [key for key in some if key not in known]
        cache.store_cached_vectors(dict(zip(missing, made.some(len(missing)), strict=True)))
    cache.close()
    try:
        return LibraryPublisher(workspace, LibraryStore(uri), entries, embedder).publish()
    finally:
        embedder.close()


def _get_known(cache: EmbeddingCache, hashes: list[bytes]) -> set[bytes]:
    found = set[bytes]()
    for at in range(0, len(hashes), 500):
        found |= cache.get_cached_vectors(hashes[at : at + 500]).keys()
    return found


def _embed(index: WorkspaceIndexWriter) -> VectorStore:
    """Fill the member's table of vectors from the mirror; asking for the model is an error."""
    mirror = get_subscribed_mirror(index.workspace)
    assert mirror is not None
    published = PublishedVectors(lambda: mirror.database)
    cache = EmbeddingCache(index.cache_dir / "embeddings.sqlite", MODEL.key, published)
    store = VectorStore(index.folder / "vectors", MODEL.key, clusters.DIMENSION)

    def refuse(is_bulk: bool) -> Any:
        raise AssertionError("the model was needed")

    left = EmbeddingQueue(index.catalog, store, cache).embed_missing_chunks(refuse)
    assert left == 0
    store.compact_vector_table(force=True)
    cache.close()
    return store


def _change_subjects(root: Path) -> int:
    """Write other texts into twenty subjects of fifty passages; gives their size in bytes.

    Passages have about 550 bytes, as those of the guide have.
    """
    made = random.Random(5)
    lines = scale.natural_lines(made, 2000)
    own = 0
    for path in sorted((root / "docs").rglob("*.md"))[:CHANGED_SUBJECTS]:
        parts = [f"# {path.stem}\n"]
        parts += [
            f"## Part {section}, changed\n\n" + "\n".join(made.choices(lines, k=6)) + "\n"
            for section in range(scale.SECTIONS)
        ]
        text = "\n".join(parts)
        own += len(text.encode())
        path.write_text(text)
    return own


def _write_table(index: WorkspaceIndexWriter) -> dict[int, Any]:
    """Write made-up vectors into a table in object storage, with the index that kbtui uses; gives them by number."""
    remote = VectorStore("s3://team-bench/vectors", MODEL.key, clusters.DIMENSION)
    made = clusters.Clusters(passages, 3)
    rows: list[Any] = []
    held: dict[int, Any] = {}
    for entry in index.catalog.iterate_entries():
        rows += [
            make_vector_row(entry, chunk) for chunk in index.catalog.list_entry_chunks(entry.id)
        ]
    for at in range(0, len(rows), 20_000):
        some = rows[at : at + 20_000]
        vectors = made.some(len(some))
        remote.add_vectors(some, vectors)
        held |= {row["number"]: vector for row, vector in zip(some, vectors, strict=True)}
    remote.compact_vector_table(force=True)
    return held


def _measure_queries(proxy: Proxy, local: VectorStore, vectors: dict[int, Any]) -> None:
    """Compare queries by URI over the link with queries of the local table."""
    questions = clusters.Clusters(passages, 4).some(QUERIES)
    where = make_vector_filter_sql()
    remote = VectorStore("s3://team-bench/vectors", MODEL.key, clusters.DIMENSION)
    requests, sent = proxy.requests, proxy.sent
    for name, store in (("local table", local), ("by URI, 20 ms", remote)):
        took = []
        for question in questions:
            began = time.perf_counter()
            store.search_nearest_chunks(question.tolist(), where, 100)
            took.append((time.perf_counter() - began) * 1000)
        cold, warm = took[: QUERIES // 4], sorted(took[QUERIES // 4 :])
        print(
            f"nearest 100 passages, {name:<16} first {took[0]:.0f} ms,"
            f" first quarter median {statistics.median(cold):.0f} ms,"
            f" then median {statistics.median(warm):.0f} ms, p95 {warm[int(len(warm) * 0.95)]:.0f} ms",
            flush=True,
        )
    numbers, matrix = np.array(list(vectors)), np.vstack(list(vectors.values()))
    found = 0
    for question in questions:
        best = numbers[np.argsort(matrix @ question)[-10:]].tolist()
        ranked = remote.search_nearest_chunks(question.tolist(), where, 100)
        found += len({number for number, _ in ranked} & set(best))
    print(
        f"of the nearest 10 passages, by URI among the first 100: {found / QUERIES / 10:.3f}",
        flush=True,
    )
    per_thousand = 1000 / QUERIES / 2
    print(
        f"a thousand queries by URI: {(proxy.requests - requests) * per_thousand:,.0f} requests,"
        f" {(proxy.sent - sent) * per_thousand / 1e6:,.0f} MB",
        flush=True,
    )


BENCHES = {"publish": publish_and_subscribe}
