"""`docs/architecture.md` lists the modules that there are, and names no file that is gone."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/architecture.md"
NAMED = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|toml|md))`")
MODULE_NAMED_ALONE = re.compile(r"`([a-z_]+\.py)`")
NOT_LISTED = {"__init__.py", "__main__.py"}


def listed() -> set[str]:
    """The paths that the tables of modules name, relative to `kbtui/`."""
    found = set()
    folder = ""
    for line in PAGE.read_text().partition("\n## Modules\n")[2].splitlines():
        if heading := re.fullmatch(r"### (?:`(.+)`|Top level)", line):
            folder = heading[1] or ""
        elif row := re.match(r"\| `(\w+\.py)` \| .{5,}", line):
            found.add(folder + row[1])
    return found


def test_every_module_is_listed_and_no_other() -> None:
    package = ROOT / "kbtui"
    there = {str(p.relative_to(package)) for p in package.rglob("*.py")}
    assert listed() == {path for path in there if Path(path).name not in NOT_LISTED}


def test_every_file_that_the_developers_pages_name_exists() -> None:
    places = ("", "kbtui", "docs")
    gone = [
        f"{page.name}: {name}"
        for page in sorted(ROOT.glob("docs/*.md"))
        for name in NAMED.findall(page.read_text().partition("\n## Modules\n")[0])
        if not any((ROOT / place / name).exists() for place in places)
    ]
    assert gone == []


def test_every_module_that_the_architecture_page_names_alone_exists() -> None:
    modules = {path.name for folder in ("kbtui", "tests") for path in (ROOT / folder).rglob("*.py")}
    named = MODULE_NAMED_ALONE.findall(PAGE.read_text())
    assert [name for name in named if name not in modules] == []
