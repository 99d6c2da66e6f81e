"""A large `events.json` has the same elements, read in blocks or at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbtui.conversations.formats import damage_tolerant_file_reader

TEXTS = st.text(st.sampled_from('ab é"\\{}[],:\n  '), max_size=30)
ELEMENTS = st.lists(
    st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(-99, 99), st.lists(TEXTS)), min_size=1),
    min_size=1,
    max_size=8,
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage_tolerant_file_reader, "MIN_BYTES_FOR_BLOCKS", 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(elements=ELEMENTS, piece=st.integers(1, 60), newline=st.booleans())
def test_pieces_of_any_size_hold_the_elements_that_the_file_holds(
    tmp_path: Path, elements: list[dict[str, Any]], piece: int, newline: bool
) -> None:
    path = tmp_path / "events.json"
    path.write_text(json.dumps(elements, indent=2, ensure_ascii=False) + "\n" * newline)
    before, damage_tolerant_file_reader.BLOCK_BYTES = damage_tolerant_file_reader.BLOCK_BYTES, piece
    problems: list[str] = []
    try:
        read = [
            one
            for batch in damage_tolerant_file_reader.read_event_batches(str(path), problems)
            for one in batch
        ]
    finally:
        damage_tolerant_file_reader.BLOCK_BYTES = before
    assert read == elements
    assert problems == []


def test_a_damaged_element_between_pieces_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage_tolerant_file_reader, "BLOCK_BYTES", 30)
    path = tmp_path / "events.json"
    path.write_text(
        json.dumps([{"n": number} for number in range(20)], indent=2).replace('"n": 7', '"n" 7')
    )
    problems: list[str] = []
    read = [
        one
        for batch in damage_tolerant_file_reader.read_event_batches(str(path), problems)
        for one in batch
    ]
    assert [one["n"] for one in read if one is not damage_tolerant_file_reader.DAMAGED] == [
        *range(7),
        *range(8, 20),
    ]
    assert read.count(damage_tolerant_file_reader.DAMAGED) == 1
    assert problems == ["element 7 is not valid JSON"]
