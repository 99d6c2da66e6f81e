"""What kbtui needs: what pyproject.toml declares, and every package that comes of it."""

import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DECLARED = [Requirement(text) for text in PROJECT["project"]["dependencies"]]


def all_needed() -> list[str]:
    """Every package that an installation brings, extras of packages included."""
    found: dict[str, set[str]] = {}
    waiting = [(requirement, "") for requirement in DECLARED]
    while waiting:
        wanted, extra = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        for one in {"", *map(canonicalize_name, wanted.extras)} - found.setdefault(name, set()):
            found[name].add(one)
            waiting += [(Requirement(text), one) for text in distribution(name).requires or []]
    return list(found)
