"""An environment that lacks a package or has a broken one: kbtui says so, and does what it can without."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Builder, kill_engine

LACKED = ("lxml_html_clean", "tomlkit")


def make_environment(place: Path, is_left_out: Callable[[str], bool]) -> Path:
    """Make an environment with all packages of this one except some; return its directory of packages."""
    venv.create(place, with_pip=False)
    site = next((place / "lib").glob("python*/site-packages"))
    here = Path(next(path for path in sys.path if path.endswith("site-packages")))
    for entry in here.iterdir():
        if not is_left_out(entry.name):
            (site / entry.name).symlink_to(entry)
    return site


@pytest.fixture
def lacking(tmp_path: Path) -> Path:
    """The interpreter of an environment with every package of this one but `LACKED`."""
    make_environment(tmp_path / "env", lambda name: name.startswith(LACKED))
    return tmp_path / "env/bin/python"


def break_package(place: Path, package: str) -> Path:
    """Return the interpreter of an environment in which a package is broken."""
    site = make_environment(place, package.__eq__)
    (site / package).mkdir()
    (site / package / "__init__.py").write_text('raise ImportError("libgone.so: not found")\n')
    return place / "bin/python"


@pytest.fixture
def builder(workspace_root: Path) -> Builder:
    built = Builder(workspace_root)
    built.topics(guide={})
    return built


def run(
    python: Path, builder: Builder, *words: str, model: str = "off"
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python, "-m", "kbtui.cli.main", *words, "-w", builder.root],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KBTUI_MODEL": model},
        timeout=60,
    )


def test_the_doctor_names_it_and_how_to_get_it(lacking: Path, builder: Builder) -> None:
    done = run(lacking, builder, "doctor", "--json")
    found = [one for one in json.loads(done.stdout) if one["area"] == "packages"]
    assert done.returncode == 1
    assert [one["state"] for one in found] == ["wrong", "wrong"]
    for name, one in zip(LACKED, sorted(found, key=lambda one: one["message"]), strict=True):
        assert f"{name} is not installed" in one["message"]
        assert f"{lacking} -m pip install '{name}" in one["message"]


def test_a_command_that_needs_it_names_it(lacking: Path, builder: Builder) -> None:
    done = run(lacking, builder, "source", "add", "file_upload", "x", "--topic", "guide")
    assert done.returncode == 3
    assert "the package tomlkit cannot be imported" in done.stderr
    assert "kbtui doctor" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_needs_it_says_so_once_and_takes_nothing_away(
    lacking: Path, builder: Builder
) -> None:
    inbox = builder.root / "inbox"
    inbox.mkdir()
    for name in ("a", "b"):
        (inbox / f"{name}.html").write_text(f"<html><body><p>The wombat {name}.</p></body></html>")
    assert run(Path(sys.executable), builder, "source", "add", "file_upload", "inbox", "--topic", "guide", "--name", "in").returncode == 0  # fmt: skip
    assert run(Path(sys.executable), builder, "source", "run", "in").returncode == 0
    (inbox / "a.html").write_text("<html><body><p>The wombat changed.</p></body></html>")
    done = run(lacking, builder, "source", "run", "in")
    assert done.returncode == 1
    assert done.stderr.count("cannot be imported") == 1
    assert "lxml_html_clean" in done.stderr
    assert "kbtui doctor" in done.stderr
    folder = builder.root / "docs/guide/in"
    assert sorted(path.name for path in folder.iterdir()) == ["a.md", "b.md"]


@pytest.mark.parametrize(
    "package",
    [
        "torch",
        pytest.param("sentence_transformers", marks=pytest.mark.slow),
        pytest.param("lancedb", marks=pytest.mark.slow),
        pytest.param("pyarrow", marks=pytest.mark.slow),
        pytest.param("numpy", marks=pytest.mark.slow),
    ],
)
def test_if_search_by_meaning_cannot_be_imported_keywords_work_and_it_is_said_once(
    package: str,
    tmp_path: Path,
    builder: Builder,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The engine must outlive the start of each command, also on a busy machine.
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    python = break_package(tmp_path / "env", package)
    builder.subject("guide/start.md", "# Start\n\nThe aardvark is awake.\n")
    request.addfinalizer(lambda: kill_engine(builder))
    named = f"the package {package.replace('_', '-')} cannot be imported: ImportError: libgone.so"
    done = run(python, builder, "index", model="")
    assert done.returncode == 0
    assert done.stderr.count(named) == 1
    assert "`kbtui doctor` says what to do" in done.stderr
    done = run(python, builder, "search", "aardvark", model="")
    assert done.returncode == 0
    assert "guide/start" in done.stdout
    assert done.stderr.count(named) == 1
    assert "Traceback" not in done.stderr
    done = run(python, builder, "doctor", "--json", model="")
    (found,) = (one for one in json.loads(done.stdout) if one["code"] == "keywords_only")
    assert found["message"].count(named) == 1
    wanted = f"{python} -m pip install --force-reinstall --no-deps {package.replace('_', '-')}=="
    assert wanted in found["message"]


@pytest.mark.slow
def test_without_onnxruntime_the_model_runs_in_torch(
    tmp_path: Path, builder: Builder, request: pytest.FixtureRequest
) -> None:
    python = break_package(tmp_path / "env", "onnxruntime")
    builder.subject("guide/start.md", "# Pets\n\nThe kitten sleeps on the sofa.\n")
    request.addfinalizer(lambda: kill_engine(builder))
    done = run(python, builder, "index", model="")
    assert (done.returncode, done.stderr) == (0, "")
    done = run(python, builder, "search", "a feline naps", "--mode", "semantic", model="")
    assert "guide/start" in done.stdout
    assert done.stderr == ""
