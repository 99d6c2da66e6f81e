"""A team with object storage: a real S3 server, and a proxy that makes it slow, hostile or dead."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from kbtui.errors import KbtuiError
from kbtui.index.chunk_embedder import ChunkEmbedder, combine_title_text_and_neighbour_vectors
from kbtui.index.embedding_cache import EmbeddingCache, PulledVectorLookup
from kbtui.index.entry_and_chunk_data_types import hash_embedded_text
from kbtui.index.published_vector_table_search import (
    PublishedVectorTableSearcher,
    find_published_vector_table_of_mirror,
)
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.publishing import library_publisher, published_vector_table_update
from kbtui.publishing.published_library_pull import delete_mirror
from kbtui.publishing.published_library_store import (
    LibraryStore,
    LibraryStoreError,
    ManifestReplacedError,
)
from kbtui.workspace import Settings
from kbtui.workspace.published_library_settings import find_mirror_of_subscribed_library
from tests.publishing.s3_server import (
    VARIABLES,
    Answer,
    Proxy,
    create_bucket,
    format_error,
    serve_s3,
)
from tests.publishing.team_workspaces import (
    make_team_workspace,
    mirrored_files,
    publish,
    pull,
    subscribe,
    vector_of,
)
from tests.support import Builder, asked, said

BUCKETS = iter(f"team-{number}" for number in range(1000))


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with serve_s3() as port:
        yield port


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    proxy = Proxy(server)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    yield proxy
    proxy.close()


@pytest.fixture(autouse=True)
def small_libraries_have_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_vector_table_update, "MAX_PASSAGES_MISSING_FROM_TABLE", 5)


@pytest.fixture
def uri(server: int) -> str:
    bucket = next(BUCKETS)
    create_bucket(server, bucket)
    return f"s3://{bucket}/kb/main"


def refuse(status: int, code: str, message: str = "") -> Callable[[str, str, int], Answer]:
    return lambda method, path, number: (status, format_error(code, message))


def test_what_the_store_refuses_is_said_in_words_and_the_library_stays(
    tmp_path: Path, proxy: Proxy, uri: str, server: int
) -> None:
    ours = make_team_workspace(tmp_path / "ours")
    publish(ours, uri)
    reader = Builder(tmp_path / "reader")
    subscribe(reader, uri)
    pull(reader)
    before = mirrored_files(uri)
    ours.subject("notes/note0.md", "Changed.\n")
    for refused, message in (
        (refuse(400, "ExpiredToken", "The provided token has expired."), "the credentials have expired"),
        (refuse(403, "AccessDenied", "Access Denied"), "permission denied"),
        (refuse(403, "RequestTimeTooSkewed", "The difference is too large."), "clock of this machine"),
        (refuse(404, "NoSuchBucket", "The specified bucket does not exist"), "no such bucket"),
    ):  # fmt: skip
        proxy.decide = refused
        for work in (lambda: publish(ours, uri), lambda: pull(reader)):
            with pytest.raises(KbtuiError, match=message) as raised:
                work()
            assert raised.value.hint
            assert uri in str(raised.value)
        assert mirrored_files(uri) == before
    # A store that ignores conditions, and one that does not know them.
    proxy.decide = lambda method, path, number: None
    proxy.drops = (b"if-none-match", b"if-match")
    with pytest.raises(KbtuiError, match="ignores conditions"):
        publish(ours, uri)
    proxy.drops = ()
    puts = []

    def lack_conditions(method: str, path: str, number: int) -> Answer | None:
        puts.append(path)
        is_second = method == "PUT" and puts.count(path) > 2
        return (501, format_error("NotImplemented", "A header is not known")) if is_second else None

    proxy.decide = lack_conditions
    with pytest.raises(KbtuiError, match="lacks an operation"):
        publish(ours, uri)
    # Throttling: two of three requests are refused, and all succeed in the end.
    proxy.decide = lambda method, path, number: (
        (503, format_error("SlowDown", "Please reduce your request rate.")) if number % 3 else None
    )
    assert publish(ours, uri).version == 2
    pull(reader)
    assert mirrored_files(uri)["notes/note0.md"] == "Changed.\n"


def test_a_table_of_vectors_that_the_store_refuses_is_an_error_in_words(
    tmp_path: Path, proxy: Proxy, uri: str
) -> None:
    ours, reader = make_team_workspace(tmp_path / "ours"), Builder(tmp_path / "reader")
    subscribe(reader, uri, "mirror_megabytes = 0\n")
    refused = refuse(403, "AccessDenied", "Access Denied")
    proxy.decide = lambda *request: refused(*request) if "/vectors/" in request[1] else None
    with pytest.raises(LibraryStoreError, match="permission denied") as raised:
        publish(ours, uri, has_table=True)
    assert f"{uri}/vectors" in str(raised.value)
    proxy.decide = lambda method, path, number: None
    publish(ours, uri, has_table=True)
    proxy.decide = lambda *request: refused(*request) if "/vectors/" in request[1] else None
    with pytest.raises(LibraryStoreError, match="permission denied") as raised:
        pull(reader)
    assert f"{uri}/vectors" in str(raised.value)


def test_of_two_writers_one_is_told_that_the_other_was_faster(
    tmp_path: Path, proxy: Proxy, uri: str
) -> None:
    ours = make_team_workspace(tmp_path / "ours")
    publish(ours, uri)
    for place in (uri, str(tmp_path / "share")):
        store = LibraryStore(place, create=True)
        first = store.read_object("manifest.json", 1 << 20)
        tag = first.tag if first else None
        store.replace_manifest(b"theirs", tag)
        with pytest.raises(ManifestReplacedError, match="another publish"):
            store.replace_manifest(b"ours", tag)
        found = store.read_object("manifest.json", 1 << 20)
        assert found is not None
        assert found.data == b"theirs"


def test_a_pull_costs_few_requests(tmp_path: Path, proxy: Proxy, uri: str) -> None:
    ours = make_team_workspace(tmp_path / "ours", subjects=50)
    publish(ours, uri)
    proxy.requests = 0
    assert publish(ours, uri).is_unchanged
    unchanged = proxy.requests
    reader = Builder(tmp_path / "reader")
    subscribe(reader, uri)
    proxy.requests = 0
    result = pull(reader)
    assert proxy.requests == result.requests == 5
    proxy.requests = 0
    assert pull(reader).is_unchanged
    assert (proxy.requests, unchanged) == (1, 7)


def start_publish(builder: Builder, uri: str) -> subprocess.Popen[bytes]:
    """Publish in a process of its own, which imports as little as it can."""
    code = (
        "import sys; from pathlib import Path; from tests.support import Builder; "
        "from tests.publishing.team_workspaces import publish; publish(Builder(Path(sys.argv[1])), sys.argv[2])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(builder.root), uri],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.DEVNULL,
    )


class KillAtRequest:
    """Kills a process when it sends its n-th request."""

    def __init__(self, process: subprocess.Popen[bytes], number: int) -> None:
        self.process, self.number, self.has_killed = process, number, False

    def decide(self, method: str, path: str, number: int) -> Answer | None:
        if number == self.number:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(60)
            self.has_killed = True
        return None


def test_a_writer_killed_at_any_request_leaves_a_whole_version(
    tmp_path: Path, proxy: Proxy, uri: str
) -> None:
    ours = make_team_workspace(tmp_path / "ours")
    publish(ours, uri)
    reader = Builder(tmp_path / "reader")
    subscribe(reader, uri)
    seen = []
    for step in range(1, 40):
        publish(ours, uri)
        pull(reader)
        before = mirrored_files(uri)
        for number in range(3):
            ours.subject(f"notes/note{number}.md", f"step {step}, note {number}\n")
        proxy.requests = 0
        process = start_publish(ours, uri)
        # The process needs much longer to start than this assignment takes.
        killer = KillAtRequest(process, step)
        proxy.decide = killer.decide
        process.wait(240)
        proxy.decide = lambda method, path, number: None
        proxy.wait_until_answered()
        pull(reader)
        now = mirrored_files(uri)
        is_new = all(text.startswith(f"step {step},") for text in now.values())
        assert now == before or is_new, step
        assert len(now) == 3
        seen.append(is_new)
        if not killer.has_killed:
            break
    assert not killer.has_killed, "the publish never ended by itself"
    assert (False in seen, seen[-1]) == (True, True)
    # The next publish uses what the killed ones sent, or deletes it.
    assert publish(ours, uri, grace_seconds=-10.0).is_unchanged
    parts = LibraryStore(uri).list_objects("parts")
    manifest = pull(reader).manifest
    assert {part.name.rpartition("/")[2] for part in parts} == {
        part.name for part in manifest.parts
    }


def start_readers(uri: str, homes: Sequence[Path]) -> subprocess.Popen[bytes]:
    """Start a process whose readers pull until its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.publishing.reader_process", uri, *map(str, homes)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_ten_readers_see_whole_versions_while_a_writer_publishes_fifty_times(
    tmp_path: Path, proxy: Proxy, uri: str
) -> None:
    ours = make_team_workspace(tmp_path / "ours", subjects=0)

    def publish_version(version: int) -> None:
        for number in range(3):
            ours.subject(f"notes/note{number}.md", f"Note {number} in {version}\n")
        publish(ours, uri)

    publish_version(0)
    homes = [tmp_path / f"reader{number}" for number in range(10)]
    processes = [start_readers(uri, homes[:5]), start_readers(uri, homes[5:])]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for version in range(1, 51):
            publish_version(version)
        answers = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    outcomes = [outcome for answer in answers for outcome in json.loads(answer)]
    assert [problems for _, problems in outcomes] == [[]] * 10
    for versions, _ in outcomes:
        numbers = list(map(int, versions))
        assert numbers == sorted(numbers), "no reader sees an earlier version again"
        assert len(numbers) > 2, "the readers read while the writer wrote"


def test_large_libraries_keep_their_vectors_in_the_store_and_are_queried_by_uri(
    tmp_path: Path, proxy: Proxy, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.index.vector_store import VectorStore, make_vector_filter_sql

    # Each change writes the table.
    monkeypatch.setattr(published_vector_table_update, "MAX_PASSAGES_MISSING_FROM_TABLE", 0)
    ours = make_team_workspace(tmp_path / "ours", subjects=6)
    for place in (uri, str(tmp_path / "share")):
        publish(ours, place, has_table=True)
        reader = make_team_workspace(tmp_path / f"reader of {place[:2]}", subjects=0)
        subscribe(reader, place, "mirror_megabytes = 0\n")
        reader.subject("notes/note3.md", "# Note 3\n\nOur own plan.\n")
        result = pull(reader)
        assert (result.are_vectors_remote, result.vectors, result.entries) == (True, 0, 6)
        writer = WorkspaceIndexWriter(reader.workspace, Settings())
        writer.refresh_index()
        mirror = find_mirror_of_subscribed_library(reader.workspace)
        assert mirror is not None
        table = find_published_vector_table_of_mirror(mirror)
        assert table is not None
        remote = PublishedVectorTableSearcher(table, writer.folder)
        store = VectorStore(writer.folder / "vectors", "m", 32)
        cache = EmbeddingCache(tmp_path / "cache.sqlite", "m")
        asked: list[str] = []

        class Model:
            def embed_texts(self, texts: Sequence[str], asked: list[str] = asked) -> np.ndarray:
                asked += texts
                return np.vstack([vector_of(hash_embedded_text(text)) for text in texts])

        embedder = ChunkEmbedder(writer.catalog, store, cache, remote=remote)
        assert embedder.embed_missing_chunks(lambda is_bulk: Model()) == 0
        assert sorted(asked) in ([], ["# Note 3\n\nOur own plan.", "Note 3"]), (
            "only what differs is embedded"
        )
        assert store.count_vector_rows() == 1
        # Each published passage is its own nearest neighbour, by its number in the reader's index.
        title, text = (
            vector_of(hash_embedded_text(part))
            for part in ("Note 4", "# Note 4\n\nThe plan of service 4.")
        )
        vector = combine_title_text_and_neighbour_vectors("subject", title, text, []).tolist()
        ranked = remote.search_nearest_chunks(vector, make_vector_filter_sql(), 10)
        assert len(ranked) == 5, "the passage that differs here is not taken from the library"
        chunks = writer.catalog.get_chunks_by_number([ranked[0][0]])
        assert [chunk.text for chunk, _ in chunks.values()] == [
            "# Note 4\n\nThe plan of service 4."
        ]
        assert ranked[0][1] > 0.999
        # A reader of the version before goes on reading it, whatever is published meanwhile.
        ours.subject("notes/note4.md", "# Note 4\n\nSomething else.\n")
        publish(ours, place, has_table=True)
        older = VectorStore(table.place, "m", 32, is_published=True, version=table.version)
        assert (
            older.find_nearest_ranked_chunks(vector, make_vector_filter_sql(), 10)[0].score > 0.999
        )
        pull(reader)
        writer.refresh_index()
        newer = find_published_vector_table_of_mirror(mirror)
        assert newer is not None
        assert newer.version > table.version
        fresh = PublishedVectorTableSearcher(newer, writer.folder)
        assert (
            ChunkEmbedder(writer.catalog, store, cache, remote=fresh).embed_missing_chunks(
                lambda is_bulk: Model()
            )
            == 0
        )
        assert store.count_vector_rows() == 1
        ours.subject("notes/note4.md", "# Note 4\n\nThe plan of service 4.\n")
        cache.close()
        writer.close()


def embed_like_the_engine(writer: WorkspaceIndexWriter) -> PublishedVectorTableSearcher | None:
    """Make the vectors of a reader from the table and from what was pulled; the model must not be needed."""
    from kbtui.index.vector_store import VectorStore

    writer.refresh_index()
    mirror = find_mirror_of_subscribed_library(writer.workspace)
    assert mirror is not None
    table = find_published_vector_table_of_mirror(mirror)
    remote = PublishedVectorTableSearcher(table, writer.folder) if table else None
    pulled = PulledVectorLookup(lambda: mirror.database)
    # Without vectors of earlier pulls.
    (writer.cache_dir / "embeddings.sqlite").unlink(missing_ok=True)
    cache = EmbeddingCache(writer.cache_dir / "embeddings.sqlite", "m", pulled)

    def refuse(is_bulk: bool) -> NoReturn:
        raise AssertionError("the model was needed")

    store = VectorStore(writer.folder / "vectors", "m", 32)
    embedder = ChunkEmbedder(writer.catalog, store, cache, remote=remote)
    assert embedder.embed_missing_chunks(refuse) == 0
    cache.close()
    return remote


def list_passages(
    writer: WorkspaceIndexWriter, remote: PublishedVectorTableSearcher
) -> dict[str, int]:
    """The texts of all passages that a search by meaning finds, with the number of times each is found."""
    from kbtui.index.vector_store import VectorStore, make_vector_filter_sql

    store = VectorStore(writer.folder / "vectors", "m", 32)
    question = [1.0] * 32
    numbers = [
        number
        for table in (remote, store)
        for number, _ in table.search_nearest_chunks(question, make_vector_filter_sql(), 500)
    ]
    texts = {
        number: chunk.text
        for number, (chunk, _) in writer.catalog.get_chunks_by_number(numbers).items()
    }
    return Counter(texts[number] for number in numbers)


def test_a_small_update_of_a_large_library_leaves_the_table_as_it_is(
    tmp_path: Path, proxy: Proxy, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.index import vector_store
    from kbtui.index.vector_store import VectorStore, make_vector_filter_sql

    ours = make_team_workspace(tmp_path / "ours", subjects=160)
    sections = [f"## Part {number}\n\n" + f"Step {number}. " * 60 for number in range(9)]
    ours.subject("notes/long.md", "# Long\n\n" + "\n\n".join(sections))
    publish(ours, uri, has_table=True)
    reader = Builder(tmp_path / "reader")
    subscribe(reader, uri, "mirror_megabytes = 0\n")
    assert pull(reader).manifest.table
    writer = WorkspaceIndexWriter(reader.workspace, Settings())
    first = embed_like_the_engine(writer)
    assert first
    before = list_passages(writer, first)
    assert len(before) > 165

    # One passage changes: its own vector, those of its neighbours, and the removed one.
    sections[4] = "## Part 4\n\n" + "Something else. " * 40
    ours.subject("notes/long.md", "# Long\n\n" + "\n\n".join(sections))
    (ours.root / "docs/notes/note7.md").unlink()
    puts: list[str] = []
    proxy.decide = lambda method, path, number: puts.append(f"{method} {path}")  # type: ignore[func-returns-value]
    publish(ours, uri, has_table=True)
    assert [one for one in puts if one.startswith("PUT") and "/vectors/" in one] == []
    assert publish(ours, uri, has_table=True).is_unchanged
    puts.clear()
    result = pull(reader)
    assert result.manifest.table
    assert result.manifest.table.version == first.table.version
    assert 0 < result.vectors < 20
    assert [one for one in puts if "/vectors/" in one] == [], "the ids are not fetched again"
    second = embed_like_the_engine(writer)
    assert second
    now = list_passages(writer, second)
    assert set(now.values()) == {1}, "no passage is found twice"
    assert before.keys() - now.keys() == {
        "# Note 7\n\nThe plan of service 7.",
        ("## Part 4\n\n" + "Step 4. " * 60).strip(),
    }
    assert now.keys() - before.keys() == {("## Part 4\n\n" + "Something else. " * 40).strip()}

    # Many changes: the table is written, and the parts beside it are not needed any more.
    # The versions must differ by more than the margin that is set below.
    time.sleep(2.5)
    for number in range(10, 20):
        ours.subject(f"notes/note{number}.md", f"# Note {number}\n\nAnother plan, {number}.\n")
    publish(ours, uri, has_table=True)
    result = pull(reader)
    assert result.manifest.table
    assert result.manifest.table.version > first.table.version
    assert result.manifest.table.later_parts == []
    third = embed_like_the_engine(writer)
    assert third
    newest = list_passages(writer, third)
    assert len(newest) == len(now)
    assert sum("Another plan" in text for text in newest) == 10
    # A reader that has not pulled yet goes on with the version before, during the grace period.
    place, version = first.table.place, first.table.version
    older = VectorStore(place, "m", 32, is_published=True, version=version)
    assert older.find_nearest_row_ids([1.0] * 32, make_vector_filter_sql(), 5)[0]
    # Until the engine opens the new version, no row of the old one is taken for one of the new.
    assert first.search_nearest_chunks([1.0] * 32, make_vector_filter_sql(), 5) == []

    # After it, the next writing of the table deletes what no reader needs, but not what the manifest names meanwhile.
    monkeypatch.setattr(vector_store, "VERSION_MARGIN", timedelta(seconds=2))
    for number in range(20, 40):
        ours.subject(f"notes/note{number}.md", f"# Note {number}\n\nYet another plan, {number}.\n")
    publish(ours, uri, has_table=True, grace_seconds=-10.0)
    versions: Any = VectorStore(third.table.place, "m", 32, is_published=True).table
    left = {version["version"] for version in versions.list_versions()}
    assert first.table.version not in left
    assert third.table.version in left
    writer.close()


def test_later_queries_of_an_indexed_table_make_no_requests(
    tmp_path: Path, proxy: Proxy, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.index import vector_store
    from kbtui.index.vector_store import make_vector_filter_sql

    monkeypatch.setattr(vector_store, "EXACT_ROWS", 100)
    publish(make_team_workspace(tmp_path / "ours", subjects=160), uri, has_table=True)
    reader = Builder(tmp_path / "reader")
    subscribe(reader, uri, "mirror_megabytes = 0\n")
    pull(reader)
    writer = WorkspaceIndexWriter(reader.workspace, Settings())
    remote = embed_like_the_engine(writer)
    assert remote
    first = remote.search_nearest_chunks([1.0] * 32, make_vector_filter_sql(), 10)
    assert len(first) == 10
    requests = proxy.requests
    other = remote.search_nearest_chunks([-1.0, 1.0] * 16, make_vector_filter_sql(), 10)
    assert len(other) == 10
    assert other != first
    assert proxy.requests == requests
    writer.close()


def test_a_library_with_few_passages_is_mirrored_and_its_table_stays_empty(
    tmp_path: Path, proxy: Proxy, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_vector_table_update, "MAX_PASSAGES_MISSING_FROM_TABLE", 100)
    ours = make_team_workspace(tmp_path / "ours", subjects=30)
    # The table is added to a library that has parts of vectors.
    publish(ours, uri)
    assert publish(ours, uri, has_table=True).sent_parts == 0
    reader = Builder(tmp_path / "reader")
    subscribe(reader, uri, "mirror_megabytes = 0\n")
    assert pull(reader).vectors == 60, "of texts and titles"
    writer = WorkspaceIndexWriter(reader.workspace, Settings())
    remote = embed_like_the_engine(writer)
    assert remote
    assert len(list_passages(writer, remote)) == 30

    for number in range(20):
        ours.subject(f"notes/note{number}.md", f"# Note {number}\n\nAnother plan, {number}.\n")
    publish(ours, uri, has_table=True)
    result = pull(reader)
    assert (result.vectors, result.is_table_new) == (20, False)
    remote = embed_like_the_engine(writer)
    assert remote
    assert sum("Another plan" in text for text in list_passages(writer, remote)) == 20

    # It grows beyond the limit, so the table gets all passages.
    for number in range(30, 110):
        ours.subject(f"notes/note{number}.md", f"# Note {number}\n\nA plan, {number}.\n")
    publish(ours, uri, has_table=True)
    result = pull(reader)
    assert (result.vectors, result.is_table_new) == (0, True)
    remote = embed_like_the_engine(writer)
    assert remote
    assert set(list_passages(writer, remote).values()) == {1}
    assert len(list_passages(writer, remote)) == 110
    writer.close()


def test_writing_the_table_writes_only_new_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.index import vector_store

    # LanceDB joins files that no index covers.
    monkeypatch.setattr(vector_store, "EXACT_ROWS", 100)
    share = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours", subjects=160)
    reader = Builder(tmp_path / "reader")
    subscribe(reader, str(share), "mirror_megabytes = 0\n")
    writer = WorkspaceIndexWriter(reader.workspace, Settings())
    seen = set[Path]()

    def publish_and_measure() -> int:
        """Publish, check what a reader finds, and return the bytes of new rows in the table."""
        publish(ours, str(share), has_table=True)
        pull(reader)
        remote = embed_like_the_engine(writer)
        assert remote
        found = list_passages(writer, remote)
        assert set(found.values()) == {1}
        texts = {path.read_text().strip() for path in (ours.root / "docs/notes").iterdir()}
        assert found.keys() == texts
        files = set((share / "vectors").glob("*/data/*")) - seen
        seen.update(files)
        return sum(file.stat().st_size for file in files)

    everything = publish_and_measure()
    # LanceDB by itself would write a file again when more than a tenth of its rows is deleted.
    for change in range(3):
        for number in range(change * 30, change * 30 + 30):
            ours.subject(
                f"notes/note{number % 60}.md", f"# Note {number}\n\nPlan {change} of {number}.\n"
            )
        assert publish_and_measure() < everything / 2
    # An earlier text returns with its row.
    for number in range(90, 120):
        text = f"# Note {number}\n\nThe plan of service {number}.\n"
        ours.subject(f"notes/note{number}.md", f"{text}Shorter.\n")
    assert 0 < publish_and_measure() < everything / 2
    for number in range(90, 120):
        ours.subject(
            f"notes/note{number}.md", f"# Note {number}\n\nThe plan of service {number}.\n"
        )
    assert publish_and_measure() == 0
    # More rows are obsolete than in use, so the table is written again without them.
    for number in range(40):
        ours.subject(f"notes/note{number}.md", f"# Note {number}\n\nThe last plan, {number}.\n")
    assert publish_and_measure() > everything / 2
    writer.close()


def test_a_table_that_was_deleted_is_written_again(tmp_path: Path) -> None:
    share = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours", subjects=30)
    first = publish(ours, str(share), has_table=True)
    modes = [(share / name).stat().st_mode for name in ("vectors", "parts")]
    assert modes[0] == modes[1], "who can read the parts can read the table"
    reader = Builder(tmp_path / "reader")
    subscribe(reader, str(share), "mirror_megabytes = 0\n")
    table = pull(reader).manifest.table
    assert table
    shutil.rmtree(share / "vectors")
    forget = find_mirror_of_subscribed_library(reader.workspace)
    assert forget is not None
    delete_mirror(forget)
    with pytest.raises(LibraryStoreError, match="the table of vectors is missing") as raised:
        pull(reader)
    assert "publish the library again" in str(raised.value)
    ours.subject("notes/note3.md", "# Note 3\n\nAnother plan.\n")
    assert publish(ours, str(share), has_table=True).version == first.version + 1
    result = pull(reader)
    assert result.is_table_new
    assert result.manifest.table
    # Only the time distinguishes it from the table before.
    assert result.manifest.table.version == table.version
    assert result.manifest.table.written_at > table.written_at
    writer = WorkspaceIndexWriter(reader.workspace, Settings())
    remote = embed_like_the_engine(writer)
    assert remote
    passages = list_passages(writer, remote)
    assert "# Note 3\n\nAnother plan." in passages
    assert len(passages) == 30
    writer.close()


def test_the_table_has_the_vectors_that_a_reader_would_make(tmp_path: Path) -> None:
    from kbtui.index.vector_store import VectorStore

    share = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours")
    ours.subject(
        "notes/long.md", "".join(f"## Part {n}\n\n" + f"Step {n}. " * 60 for n in range(4))
    )
    ours.conversation(1, [[asked(f"Why {n}?"), said(f"So {n}. " * 20)] for n in range(3)])
    settings = ours.workspace.config_directory / "kb-library.toml"
    settings.write_text('[publish]\nconversations = ["*"]\n')
    publish(ours, str(share), has_table=True)
    reader = Builder(tmp_path / "reader")
    subscribe(reader, str(share))
    assert pull(reader).manifest.counts["conversations"] == 1
    writer = WorkspaceIndexWriter(reader.workspace, Settings())
    assert embed_like_the_engine(writer) is None
    tables = (
        VectorStore(share / "vectors", "m", 32, is_published=True),
        VectorStore(writer.folder / "vectors", "m", 32),
    )
    published, local = (
        {row["tie"]: (row["kind"], row["vector"]) for row in store.table.to_arrow().to_pylist()}
        for store in tables
    )
    assert published.keys() == local.keys()
    assert {kind for kind, _ in published.values()} == {"subject", "conversation"}
    for tie, (kind, vector) in published.items():
        assert np.allclose(vector, local[tie][1], atol=0.002), kind
    writer.close()


def test_a_publisher_with_a_wrong_clock_deletes_nothing_and_readers_follow(
    tmp_path: Path, proxy: Proxy, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, reader = make_team_workspace(tmp_path / "ours"), Builder(tmp_path / "reader")
    subscribe(reader, uri)
    publish(ours, uri)
    pull(reader)
    store = LibraryStore(uri)
    for at, year in enumerate((2036, 1999, 2036)):

        class WrongClock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None, year: int = year) -> "WrongClock":
                return cls(year, 1, 1, tzinfo=tz)

        monkeypatch.setattr(library_publisher, "datetime", WrongClock)
        parts = {part.name for part in store.list_objects("parts")}
        ours.subject("notes/note1.md", f"# Note 1\n\nThe plan of {year}, {at}.\n")
        result = publish(ours, uri, grace_seconds=3600.0)
        assert (result.version, result.deleted) == (at + 2, 0)
        assert parts <= {part.name for part in store.list_objects("parts")}
        manifest = pull(reader).manifest
        assert manifest.published_at.startswith(str(year))
        assert mirrored_files(uri)["notes/note1.md"].endswith(f"The plan of {year}, {at}.\n")
        now = time.time()
        assert all(abs(retired - now) < 600 for retired in manifest.retired.values())
    assert manifest.retired
