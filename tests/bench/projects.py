"""The ranking of a search of all projects, against one index over everything."""

import os
from collections.abc import Iterator
from pathlib import Path

from tests.bench.measure import Row
from tests.eval.indexed_corpus import Vectors, cache_folder
from tests.eval.split_collection import FIRST, MODES, PARTS, WAYS_TO_SPLIT, measure_split

_EVALUATION_CACHE = cache_folder()
"""Where `make eval` keeps embeddings. The benchmarks later get a cache of their own."""


def projects(base: Path, times: int) -> Iterator[Row]:
    """Print how many of the first hits in Cranfield, split into five workspaces, are those of one index.

    Meaning and fusion are measured only if `make eval` has embedded Cranfield, which takes minutes.
    """
    folder = Path(os.environ.get("KBTUI_EVAL_COLLECTIONS", ".")) / "cranfield"
    if not folder.is_dir():
        print("projects: skipped, because KBTUI_EVAL_COLLECTIONS names no directory with cranfield")
        return
    is_embedded = (_EVALUATION_CACHE / "cranfield-index").is_dir()
    names = list(MODES) if is_embedded else ["keywords"]
    before = os.environ["XDG_CACHE_HOME"]
    if is_embedded:
        os.environ["XDG_CACHE_HOME"] = str(_EVALUATION_CACHE.parent)
    try:
        for way in WAYS_TO_SPLIT:
            shares = measure_split(folder, Vectors(), way, names)
            for name, share in shares.items():
                print(
                    f"the first {FIRST} in {PARTS} workspaces, split {way}, that one index has,"
                    f" {name}: {share:.3f}   (target >= .9)",
                    flush=True,
                )
    finally:
        os.environ["XDG_CACHE_HOME"] = before
    if not is_embedded:
        print(
            "projects: meaning and fusion are skipped, because `make eval` has not embedded Cranfield"
        )
    yield from ()


BENCHES = {"projects": projects}
