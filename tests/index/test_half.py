"""bf16 is used where it is quicker, whatever the processor says that it has."""

import pytest
import torch


@pytest.mark.parametrize("quicker", ["float32", "bfloat16"])
def test_it_is_tried_which_is_quicker(quicker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kbtui.index import embedding_model

    now = 0.0

    def linear(left: object, right: object) -> None:
        nonlocal now
        now += 1.0 if left.dtype == getattr(torch, quicker) else 2.0  # type: ignore[attr-defined]

    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    monkeypatch.setattr(embedding_model.time, "perf_counter", lambda: now)
    assert embedding_model._half_pays(torch) == (quicker == "bfloat16")
