"""An environment that lacks a package: the doctor names it, and what needs it says so."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from support import Builder

LACKED = ("lxml_html_clean", "tomlkit")


@pytest.fixture
def lacking(tmp_path: Path) -> Path:
    """The interpreter of an environment with every package of this one but `LACKED`."""
    place = tmp_path / "env"
    venv.create(place, with_pip=False)
    site = next((place / "lib").glob("python*/site-packages"))
    here = Path(next(path for path in sys.path if path.endswith("site-packages")))
    for entry in here.iterdir():
        if not entry.name.startswith(LACKED):
            (site / entry.name).symlink_to(entry)
    return place / "bin" / "python"


@pytest.fixture
def builder(workspace_root: Path) -> Builder:
    built = Builder(workspace_root)
    built.topics(guide={})
    return built


def run(python: Path, builder: Builder, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python, "-m", "kbtui.cli.main", *words, "-w", builder.root],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KBTUI_MODEL": "off"},
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
