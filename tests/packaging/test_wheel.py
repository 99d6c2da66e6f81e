"""The wheel: built, installed elsewhere, and run from there."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without isolation: the build backend is among the development packages."""
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(target),
            str(ROOT),
        ],
        check=True,
        capture_output=True,
        timeout=100,
    )
    return next(target.glob("*.whl"))


def test_it_carries_styles_demo_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "kbtui/py.typed" in names
    assert any(name.startswith("kbtui/tui/") and name.endswith(".tcss") for name in names)
    assert "kbtui/assets/demo/.jp/kb.toml" in names
    assert "kbtui/assets/demo/.jp/.id" in names
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "assets/demo"], cwd=ROOT, capture_output=True, check=True
    ).stdout.split(b"\0")
    wanted = {f"kbtui/{name.decode()}" for name in tracked if name}
    assert wanted - names == set()


def test_it_brings_the_manual_page_and_the_completions(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        page = next(name for name in archive.namelist() if name.endswith("share/man/man1/kbtui.1"))
        text = archive.read(page).decode()
        assert {"kbtui/cli/scripts/completion.bash", "kbtui/serve/static/page.html"} <= set(
            archive.namelist()
        )
    assert text.startswith(".TH KBTUI 1")
    assert ".SS kbtui conversation" in text


def test_it_runs_from_a_place_of_its_own(wheel: Path, tmp_path: Path, home: Path) -> None:
    place = tmp_path / "env"
    venv.create(place, with_pip=False)
    site = next((place / "lib").glob("python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    # What it depends on comes from the environment of the tests, after the wheel's own files.
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "zz-dependencies.pth").write_text(here + "\n")
    python = place / "bin" / "python"
    environment = {**os.environ, "KBTUI_MODEL": "off"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [
                python,
                "-P",
                "-c",
                "import sys; from kbtui.cli.main import main; sys.exit(main())",
                *words,
            ],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    found = subprocess.run(
        [python, "-P", "-c", "import kbtui; print(kbtui.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout
    assert found.startswith(str(place))
    root = run("demo", "--path").strip()
    assert "guide" in run("topics", "-w", root)
    assert run("search", "-w", root, "--mode", "lexical", "engine")
    run("engine", "stop", "-w", root)
