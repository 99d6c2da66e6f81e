"""Deleted documents stay deleted, whichever segments tantivy merges."""

import time
from pathlib import Path

import tantivy

from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
from kbtui.index.keyword_index_writer import KeywordIndexWriter, open_tantivy_index


def entry(number: int) -> tuple[CatalogEntry, list[Chunk], list[int]]:
    made = CatalogEntry(f"s{number}", "subject", f"S{number}", "", "")
    return made, [Chunk(f"c{number}", f"otter {number}", 0)], [number]


def held(folder: Path) -> tuple[int, list[int]]:
    """Return the number of segments and the chunk numbers."""
    searcher = open_tantivy_index(folder, "english").searcher()
    hits = searcher.search(tantivy.Query.all_query(), limit=1000).hits
    numbers = searcher.fast_field_values("chunk", [address for _, address in hits])
    return searcher.num_segments, sorted(number for number in numbers if number is not None)


def test_what_is_removed_first_after_opening_does_not_come_back(tmp_path: Path) -> None:
    writer = KeywordIndexWriter(tmp_path, "english")
    for number in range(1, 9):
        for other in (number, number + 10, number + 20):
            writer.replace_entry_documents(*entry(other))
        if number == 8:
            # After this, the last deletion in an older segment has the number of the last commit.
            writer.remove_entry("s26")
        writer.commit_with_watermark(number)
    # Closed at once, like a killed writer, before tantivy has merged the eight segments.
    writer.close()
    writer = KeywordIndexWriter(tmp_path, "english")
    writer.remove_entry("s6")
    writer.remove_entry("s17")
    writer.replace_entry_documents(*entry(30))
    writer.commit_with_watermark(9)
    end = time.monotonic() + 60
    while held(tmp_path)[0] >= 8 and time.monotonic() < end:
        time.sleep(0.02)
    segments, chunks = held(tmp_path)
    assert segments < 8, "nothing was joined: the test shows nothing"
    assert chunks == sorted({*range(1, 9), *range(11, 19), *range(21, 29), 30} - {6, 17, 26})
    writer.close()
