"""The Cranfield collection as a topic with one subject per abstract."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE = "cran.all.1400"
GAINS = {1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0, -1: 4.0}
"""The gain of each grade: 1 is a complete answer, 4 slight interest; -1 counts as 1."""


def _read_records(path: Path) -> list[dict[str, str]]:
    """Read records that start with `.I`, followed by fields with a letter each."""
    found: list[dict[str, str]] = []
    field = ""
    for line in path.read_text("ascii", errors="replace").splitlines():
        if match := re.match(r"\.I (\d+)", line):
            found.append(defaultdict(str, I=match[1]))
        elif re.fullmatch(r"\.[TABW]", line):
            field = line[1]
        elif found:
            found[-1][field] += line + "\n"
    return found


def read_questions(folder: Path) -> list[tuple[str, str, dict[str, float]]]:
    """Return each question's number (its position), text, and the gain of each relevant subject."""
    gains: dict[int, dict[str, float]] = defaultdict(dict)
    for line in (folder / "cranqrel").read_text("ascii").splitlines():
        number, document, grade = map(int, line.split()[:3])
        slug = f"{document:04d}"
        gains[number][slug] = max(gains[number].get(slug, 0.0), GAINS[grade])
    return [
        (str(at), " ".join(record["W"].split()), gains[at])
        for at, record in enumerate(_read_records(folder / "cran.qry"), 1)
    ]


def write_workspace(folder: Path, root: Path) -> None:
    """Write the abstracts that do not exist yet, with their titles as headings."""
    subjects = root / "abstracts"
    subjects.mkdir(parents=True, exist_ok=True)
    (root / ".jp").mkdir(exist_ok=True)
    config = root / ".jp" / "kb.toml"
    if not config.exists():
        config.write_text('[kb.topic.cranfield]\nsubjects = "abstracts"\n')
    for record in _read_records(folder / FILE):
        path = subjects / f"{int(record['I']):04d}.md"
        if path.exists():
            continue
        title = " ".join(record["T"].split()).removesuffix(".").strip()
        text = record["W"].strip()
        flat = " ".join(text.split())
        # The abstract repeats its title.
        repeated = " ".join(record["T"].split())
        if repeated and flat.startswith(repeated):
            lines, skipped = text.split("\n"), len(record["T"].split())
            while lines and skipped >= len(lines[0].split()):
                skipped -= len(lines.pop(0).split())
            text = "\n".join([" ".join(lines[0].split()[skipped:]), *lines[1:]]) if lines else ""
        path.write_text(f"# {title}\n\n{text}\n")
