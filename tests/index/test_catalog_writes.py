"""The catalog's checksums match its rows after any sequence of writes."""

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
from kbtui.index.indexable_entry_reader import complete_chunks

TEXTS = st.text(
    alphabet=st.one_of(st.characters(), st.sampled_from("\0\ud800é日\n'")), min_size=1, max_size=30
)
CHUNKS = st.lists(
    st.builds(
        lambda text, **values: Chunk("", text, 0, **values),
        TEXTS,
        lines=st.none() | st.tuples(st.integers(1, 9), st.integers(1, 9)),
        turn=st.none() | st.integers(1, 9),
        role=st.sampled_from([None, "user", "tool-result"]),
        tool=st.none() | TEXTS,
        timestamp=st.none() | st.integers(0, 2**33) | st.floats(0, 2**33),
        embed=st.booleans(),
        vector_hash=st.none() | st.binary(min_size=16, max_size=16),
        call=st.none() | st.integers(1, 9),
        args=st.none() | st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=2),
    ),
    max_size=6,
)
ENTRIES = st.builds(
    lambda title, **values: CatalogEntry(
        "s1", "subject", title, "sign", "/there", "note", **values
    ),
    TEXTS,
    slug=TEXTS,
    tags=st.lists(TEXTS, max_size=2),
    source_url=st.none() | TEXTS,
    created=st.integers(0, 2**33) | st.floats(0, 2**33),
    hidden=st.booleans(),
    archived=st.booleans(),
)
STATES = st.lists(
    st.tuples(ENTRIES, CHUNKS, st.none() | st.text("marked", max_size=5)), min_size=1, max_size=4
)


@given(STATES)
@settings(max_examples=25, deadline=None)
def test_a_catalog_that_was_only_written_to_is_not_damaged(
    states: list[tuple[CatalogEntry, list[Chunk], str | None]],
) -> None:
    with (
        TemporaryDirectory() as folder,
        closing(CatalogDatabase(Path(folder, "c"), write=True)) as catalog,
    ):
        for entry, chunks, mark in states:
            chunks = complete_chunks(entry, chunks)
            with catalog.open_write_transaction() as seq:
                written = catalog.write_entry_and_chunks(entry, chunks, seq, mark=mark)
            assert catalog.find_catalog_damage() is None
            held = [chunk.number for chunk in catalog.list_entry_chunks("s1")]
            assert held == written.numbers


def test_the_number_of_a_chunk_that_is_gone_is_given_to_no_other(tmp_path: Path) -> None:
    numbers: list[int] = []
    for text in ("one", "two", "three"):
        # Opened again, so that only the file can know the numbers.
        catalog = CatalogDatabase(tmp_path / "catalog.sqlite", write=True)
        entry = CatalogEntry("s1", "subject", "Title", "sign", "/there", "note")
        chunks = complete_chunks(entry, [Chunk("", text, 0), Chunk("", f"{text} more", 0)])
        with catalog.open_write_transaction() as seq:
            written = catalog.write_entry_and_chunks(entry, chunks, seq)
        numbers += written.numbers
        with catalog.open_write_transaction() as seq:
            catalog.remove_entry("s1", seq)
        assert catalog.find_catalog_damage() is None
        catalog.close()
    assert len(set(numbers)) == 6
