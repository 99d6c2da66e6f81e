"""A model in a directory is used with its own prompts, pooling and dimension, and can be compared."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from support import Builder

from kbtui.errors import UsageError
from kbtui.index.embedding_model import (
    EmbeddingModelUnavailableError,
    TorchEmbeddingModel,
    find_embedding_model,
)
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.library.embedding_model_comparison import compare_models
from kbtui.userdata.query_log import OpenedHit
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace import Settings

PROMPT = "Represent this sentence for searching relevant passages: "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged model with another pooling, a prompt for queries and 64 dimensions."""
    from sentence_transformers.sentence_transformer.modules import Dense

    made = tmp_path_factory.mktemp("model")
    source = Path(find_embedding_model("").source)
    for path in source.iterdir():
        if path.is_file():
            (made / path.name).symlink_to(path)
    for name in ("modules.json", "config_sentence_transformers.json"):
        (made / name).unlink()
    modules = json.loads((source / "modules.json").read_text())
    dense = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    modules[2:] = [dense, {**modules[2], "idx": 3, "name": "3", "path": "3_Normalize"}]
    (made / "modules.json").write_text(json.dumps(modules))
    (made / "1_Pooling").mkdir()
    pooling = json.loads((source / "1_Pooling/config.json").read_text())
    pooling |= {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (made / "1_Pooling/config.json").write_text(json.dumps(pooling))
    (made / "2_Dense").mkdir()
    Dense(384, 64, bias=False).save(str(made / "2_Dense"))
    facts = {"prompts": {"query": PROMPT}, "default_prompt_name": None}
    (made / "config_sentence_transformers.json").write_text(json.dumps(facts))
    return made


def test_a_directory_without_a_model_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingModelUnavailableError, match="no model in this directory"):
        find_embedding_model(str(tmp_path))


@pytest.mark.slow
def test_prompts_pooling_and_dimension_of_a_folder_are_used(folder: Path) -> None:
    source = find_embedding_model(str(folder))
    model = TorchEmbeddingModel(source)
    assert model.dimension == 64
    question = model.embed_query("how do herons wade")
    assert np.allclose(question, model.embed_batch([f"{PROMPT}how do herons wade"]), atol=1e-5)
    assert not np.allclose(question, model.embed_batch(["how do herons wade"]), atol=1e-2)
    # Other prompts make other vectors, so they get a table of their own.
    facts = folder / "config_sentence_transformers.json"
    before = facts.read_text()
    facts.write_text(before.replace("Represent", "Encode"))
    assert find_embedding_model(str(folder)).key != source.key
    facts.write_text(before)
    assert find_embedding_model(str(folder)).key == source.key


@pytest.mark.slow
def test_a_model_is_compared_on_the_logged_queries(folder: Path, workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(notes={})
    for number, text in enumerate(("Herons wade at dusk.", "Locks guard the index.", "Tea cools.")):
        builder.subject(f"notes/n{number}.md", f"# Note {number}\n\n{text * 3}\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    for query in ("wading birds", "concurrency topic:notes"):
        UserData(builder.workspace).query_log.log_search(query, "hybrid", 1, "cli")
    with closing(IndexReader(builder.workspace.cache_dir)) as reader:
        (chunk,) = reader.list_entry_chunks(make_subject_id("notes", "n1"))
        for chunk_id in (chunk.id, "gone"):
            opened = OpenedHit("concurrency topic:notes", "notes/n1", chunk_id, 2)
            UserData(builder.workspace).query_log.log_opened_hit(opened)
        found = compare_models(
            builder.workspace, reader, "", str(folder), max_queries=9, max_passages=9, report=print
        )
        assert (found["current"]["dimension"], found["other"]["dimension"]) == (384, 64)
        assert found["passages"] == found["all_passages"] == 3
        assert {one["query"] for one in found["queries"]} == {"wading birds", "concurrency"}
        assert found["agreement"] == 1.0
        # One opened passage still exists. Each model ranks it first, second or third.
        # The vectors are kept, so a second comparison embeds nothing again.
        steps: list[str] = []
        again = compare_models(
            builder.workspace, reader, "", str(folder), max_queries=9, max_passages=9, report=steps.append
        )  # fmt: skip
        assert again["queries"] == found["queries"]
        assert sum("0 of 3 passages to embed" in step for step in steps) == 2
        assert found["quality"] is not None
        assert (found["quality"]["queries"], found["quality"]["current"]["hit_rate"]) == (1, 1.0)
        assert 0.5 <= found["quality"]["current"]["ndcg"] <= 1.0
        with pytest.raises(UsageError, match="there is no such directory"):
            compare_models(
                builder.workspace,
                reader,
                "",
                "/none/at all",
                max_queries=9,
                max_passages=9,
                report=print,
            )
