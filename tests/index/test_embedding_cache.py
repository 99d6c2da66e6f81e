"""A cached embedding is correct or missing, whatever happened to the file."""

import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from kbtui.index.embedding_cache import EmbeddingCache

MANY = {
    number.to_bytes(16, "big"): np.random.default_rng(number).random(48, dtype=np.float32)
    for number in range(60)
}


def kept(path: Path) -> dict[bytes, bytes]:
    remembered = EmbeddingCache(path, "m")
    found = remembered.get_cached_vectors(MANY)
    remembered.close()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    remembered = EmbeddingCache(tmp_path / "embeddings.sqlite", "m")
    remembered.store_cached_vectors(MANY)
    remembered.close()
    return tmp_path / "embeddings.sqlite"


def test_no_flipped_bit_gives_another_vector_and_all_can_be_written_again(path: Path) -> None:
    good = path.read_bytes()
    random_ = random.Random(3)
    seen = 0
    for _ in range(150):
        data = bytearray(good)
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
        path.write_bytes(data)
        remembered = EmbeddingCache(path, "m")
        found = remembered.get_cached_vectors(MANY)
        assert all(MANY[key].tobytes() == vector for key, vector in found.items())
        seen += len(found) < len(MANY)
        remembered.store_cached_vectors(MANY)
        assert remembered.get_cached_vectors(MANY) == {
            key: one.tobytes() for key, one in MANY.items()
        }
        remembered.close()
    assert seen > 30


@pytest.mark.parametrize("length", [0, 1, 100, 4096, 5000, -1])
def test_a_file_cut_short_is_begun_anew(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    assert all(MANY[key].tobytes() == vector for key, vector in kept(path).items())
    remembered = EmbeddingCache(path, "m")
    remembered.store_cached_vectors(MANY)
    assert len(remembered.get_cached_vectors(MANY)) == len(MANY)
    remembered.close()


def test_a_file_of_an_earlier_version_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "embeddings.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE embeddings (model TEXT, hash BLOB, vector BLOB, "
            "PRIMARY KEY (model, hash)) WITHOUT ROWID"
        )
        db.executemany(
            "INSERT INTO embeddings VALUES ('m', ?, ?)",
            [(key, vector.tobytes()) for key, vector in MANY.items()],
        )
    db.close()
    assert kept(path) == {}
    remembered = EmbeddingCache(path, "m")
    remembered.store_cached_vectors(MANY)
    remembered.close()
    assert len(kept(path)) == len(MANY)
