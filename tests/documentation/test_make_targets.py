"""Every `make` target and every benchmark in the documentation exists."""

import argparse
import re
from pathlib import Path

import pytest

from tests.arguments import make_name_parser

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md")]


@pytest.fixture
def benchmarks() -> list[str]:
    """Return the names of all benchmarks. Importing them takes seconds."""
    from tests.bench.__main__ import ALL

    return list(ALL)


def test_every_named_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    missing = [
        f"{page.name}: make {name}"
        for page in PAGES
        for name in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE)
        if name not in targets
    ]
    assert missing == []


def test_every_named_benchmark_exists(benchmarks: list[str]) -> None:
    named = {
        name
        for page in PAGES
        for arguments in re.findall(r"make bench ARGS=\"?([^`\"]+)", page.read_text("utf-8"))
        for name in re.findall(r"^[a-z]+", arguments)
    }
    assert named
    assert named - set(benchmarks) == set()


def test_a_tool_runs_without_names_and_rejects_an_unknown_one(
    capsys: pytest.CaptureFixture[str], benchmarks: list[str]
) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", type=make_name_parser(benchmarks))
    assert parser.parse_args([]).names == []
    with pytest.raises(SystemExit):
        parser.parse_args(["search", "nosuch"])
    assert "unknown name 'nosuch'; known: " in capsys.readouterr().err
