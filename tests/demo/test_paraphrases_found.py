"""The fusion finds answers in other words, which keywords miss."""

import shutil
import tomllib
from pathlib import Path

import pytest
from demo_files import CORPUS

from kbtui import open_workspace
from kbtui.search.search_request_and_answer import SearchRequest

FILE = tomllib.loads((Path(__file__).parent / "paraphrases.toml").read_text("utf-8"))
TEN = 10


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_fusion_finds_what_keywords_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    root = tmp_path / "demo"
    shutil.copytree(CORPUS, root)
    library = open_workspace(root)
    engine = library.connect_engine()
    while not engine.send_request("settle", wait=5.0)["done"]:
        pass

    def place(query: str, target: str, mode: str) -> int | None:
        question = SearchRequest(query, mode=mode, archived=True, per_entry=1, limit=100)  # type: ignore[arg-type]
        entries = [hit.ref.partition(":")[0] for hit in library.search(question, wait=60).hits]
        return entries.index(target) + 1 if target in entries else None

    asked = FILE["demo"]
    rows = []
    for item in asked:
        places = {
            mode: place(item["question"], item["ref"], mode)
            for mode in ("lexical", "semantic", "hybrid")
        }
        rows.append((item["question"], item["ref"], places))
    engine.stop_engine()
    with capsys.disabled():
        for question, target, places in rows:
            print(f"\n{question} -> {target}: {places}", end="")
    missed = [row for row in rows if row[2]["lexical"] is None or row[2]["lexical"] > TEN]
    found = [row for row in missed if (row[2]["hybrid"] or TEN + 1) <= TEN]
    with capsys.disabled():
        print(
            f"\nkeywords miss {len(missed)} of {len(rows)}; the fusion finds {len(found)} of them"
        )
    assert len(missed) >= TEN
    assert len(found) >= 0.8 * len(missed)
