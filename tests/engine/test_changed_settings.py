"""An engine applies settings that change while it runs."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Builder, kill_engine

from kbtui.cli.main import main
from kbtui.engine.engine_launcher import connect_or_start_engine
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import load_settings
from kbtui.workspace.user_settings import get_settings_path


@pytest.fixture
def empty(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """A workspace with nothing to embed, so that the packaged model is not loaded."""
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    get_settings_path().parent.mkdir(parents=True)
    builder = Builder(workspace_root)
    builder.topics(guide={})
    yield builder
    kill_engine(builder)


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_the_engine_uses_the_model_that_is_set_now(
    empty: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model, reason in [
        ("off", "the model is switched off"),
        ("", None),
        (str(tmp_path / "none"), "no such model directory"),
        ("off", "the model is switched off"),
    ]:
        get_settings_path().write_text(f'model = "{model}"\n')
        assert main(["-w", str(empty.root), "index"]) == 0
        said = capsys.readouterr().err
        assert (reason in said) if reason else ("keywords only" not in said), said


def test_whoever_is_connected_goes_on_with_the_changed_settings(
    empty: Builder, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    empty.subject("guide/one.md", "# One\n\nThe badger is in its sett.\n")
    none = tmp_path / "none"
    get_settings_path().write_text(f'model = "{none}"\n')
    library = Library(empty.workspace, load_settings())
    heard: list[dict[str, Any]] = []
    request.addfinalizer(library.listen_to_engine_events(heard.append))
    until(
        lambda: any(
            "no such model" in (event.get("keywords_only") or {}).get("detail", "")
            for event in heard
        )
    )
    get_settings_path().write_text('model = "off"\n')
    # Without any request, the engine notices it.
    until(
        lambda: any(
            (event.get("keywords_only") or {}).get("cause") == "model_off" for event in heard
        )
    )
    answer = library.search(SearchRequest("badger"), wait=30)
    assert [hit.ref for hit in answer.hits] == ["guide/one:1-3"]
    assert "switched off" in (answer.degraded or "")
    library.close()


def test_a_mistake_in_the_settings_does_not_end_the_engine(empty: Builder) -> None:
    get_settings_path().write_text('model = "off"\n')
    engine = connect_or_start_engine(empty.workspace)
    assert engine.send_request("refresh", wait=30)["done"]
    get_settings_path().write_text("model = off\n")
    time.sleep(1.5)
    assert engine.send_request("refresh", wait=30)["done"]
    get_settings_path().write_text('# The same, with a remark.\nmodel = "off"\n')
    assert engine.send_request("refresh", wait=30)["done"]
    assert engine.send_request("status")["pid"] == engine.pid
    engine.close()


def test_a_model_of_one_commands_environment_is_not_that_of_the_next(
    empty: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["-w", str(empty.root), "index"]
    with monkeypatch.context() as once:
        once.setenv("KBTUI_MODEL", "off")
        assert main(command) == 0
        assert "switched off" in capsys.readouterr().err
    # The engine keeps the first client's model until it notices that this client is gone.
    until(lambda: main(command) == 0 and "switched off" not in capsys.readouterr().err)


def test_a_model_of_one_commands_environment_does_not_end_the_engine_of_others(
    empty: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = connect_or_start_engine(empty.workspace)
    monkeypatch.setenv("KBTUI_MODEL", "another/model")
    second = connect_or_start_engine(empty.workspace)
    assert second.pid == first.pid
    assert first.send_request("status")["pid"] == first.pid
    first.close()
    second.close()
