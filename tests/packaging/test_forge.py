"""The files for the forge agree with `.ci/run`, the Makefile and the package's metadata."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
TARGETS = re.compile(r"^([a-z-]+):.*##", re.MULTILINE)


def load_yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def test_the_workflow_runs_what_ci_runs() -> None:
    steps = load_yaml(".github/workflows/ci.yml")["jobs"]["test"]["steps"]
    targets = [step["run"].removeprefix("make ") for step in steps if "run" in step]
    assert targets == re.findall(
        r"^(?:make|run_tests) (\S+)$", (ROOT / ".ci/run").read_text(), re.MULTILINE
    )
    assert set(targets) <= set(TARGETS.findall((ROOT / "Makefile").read_text()))


def test_a_nightly_workflow_runs_the_slow_tests() -> None:
    workflow = load_yaml(".github/workflows/nightly.yml")
    assert workflow[True]["schedule"]  # YAML 1.1 reads `on` as true.
    steps = workflow["jobs"]["test-slow"]["steps"]
    assert [step["run"] for step in steps if "run" in step][-1] == "make test-slow"


def test_the_workflow_covers_every_supported_python_and_system() -> None:
    matrix = load_yaml(".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={matrix['python'][0]}"
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert [name.partition("-")[0] for name in matrix["system"]] == ["ubuntu", "macos"]


def test_the_hooks_run_what_make_check_runs() -> None:
    (repository,) = load_yaml(".pre-commit-config.yaml")["repos"]
    hooks = "\n".join(hook["entry"] for hook in repository["hooks"])
    check = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    for tool in re.findall(r"\$\(BIN\)/(ruff \w+|\S+)", check):
        assert f".venv/bin/{tool}" in hooks


def test_a_bug_report_asks_for_the_doctor() -> None:
    form = load_yaml(".github/ISSUE_TEMPLATE/bug.yml")
    fields = {field["id"]: field for field in form["body"]}
    assert "`kbtui doctor --json`" in fields["doctor"]["attributes"]["description"]
    assert fields["doctor"]["validations"] == {"required": True}
