"""The wheel: built, installed elsewhere, and run from there."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from needs import all_needed
from packaging.utils import canonicalize_name

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
        ["git", "ls-files", "-z", "assets/demo", "docs/guide"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    # The guide is a link inside of the demo; the wheel has its files.
    paths = [name.decode().replace("docs/guide/", "assets/demo/docs/guide/") for name in tracked]
    wanted = {f"kbtui/{path}" for path in paths if path and path != "assets/demo/docs/guide"}
    assert wanted - names == set()


def test_it_brings_the_manual_page_and_the_completions(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        page = next(name for name in archive.namelist() if name.endswith("share/man/man1/kbtui.1"))
        text = archive.read(page).decode()
        assert {"kbtui/serve/static/page.html"} <= set(archive.namelist())
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


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of an environment with the pip that Python ships, which may be an old one."""
    place = tmp_path_factory.mktemp("stock") / "env"
    venv.create(place, with_pip=True)
    yield place / "bin" / "python"
    # With everything installed it has over a gigabyte.
    shutil.rmtree(place)


@pytest.mark.slow
def test_the_stock_pip_chooses_every_package(wheel: Path, stock: Path, tmp_path: Path) -> None:
    # Each installed package as a wheel of nothing but its metadata: pip needs no more to choose.
    shelf = tmp_path / "wheels"
    shelf.mkdir()
    for one in distributions():
        name = re.sub(r"[-_.]+", "_", one.name)
        inside = f"{name}-{one.version}.dist-info"
        with zipfile.ZipFile(shelf / f"{name}-{one.version}-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{inside}/METADATA", one.read_text("METADATA") or "")
            archive.writestr(f"{inside}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr(f"{inside}/RECORD", "")
    done = subprocess.run(
        [
            stock, "-m", "pip", "install", "--dry-run", "--no-index", "--isolated", "--quiet",
            "--find-links", shelf, "--report", tmp_path / "report.json", wheel,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    chosen = {canonicalize_name(one["metadata"]["name"]) for one in report["install"]}
    assert set(all_needed()) - chosen == set()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_installation_by_the_stock_pip_reads_pages(
    wheel: Path, stock: Path, tmp_path: Path, workspace_root: Path
) -> None:
    subprocess.run(
        [stock, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel],
        check=True,
        timeout=1700,
    )
    kbtui = stock.parent / "kbtui"
    (workspace_root / ".jp/kb.toml").write_text('[kb.topic.guide]\nsubjects = "docs"\n')
    (workspace_root / "docs").mkdir()
    (workspace_root / "inbox").mkdir()
    (workspace_root / "inbox/page.html").write_text(
        "<html><head><title>Wombats</title></head><body><main><h1>Wombats</h1>"
        "<p>The wombat digs at night, and sleeps when the sun is up.</p></main></body></html>"
    )

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [kbtui, *words, "-w", workspace_root],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    assert run("source", "add", "file_upload", "inbox", "--topic", "guide").returncode == 0
    done = run("source", "run", "--all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wombat digs" in run("learn", "guide", "inbox/page").stdout
    looked = json.loads(run("doctor", "--json").stdout)
    assert [one["state"] for one in looked if one["area"] == "packages"] == ["ok"]
    run("engine", "stop")
