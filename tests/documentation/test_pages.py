"""Every page is reachable from `docs/index.md`, and every link and reference leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import pytest

from kbtui.library.diagnostics import FindingCode
from kbtui.notices import RankReasonCode

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("assets/comparison/*.md")]
LINK = re.compile(r"\]\(([^)#]+)[#)]")
REFERENCE = re.compile(r"`(guide/[a-z/-]+)(?:#\d+)?`")
"""A reference to a page of the guide, which kbtui's reader makes a link."""


def find_links(page: Path) -> set[Path]:
    """Return the files that a page links or refers to; they need not exist."""
    text = page.read_text("utf-8")
    links = {page.parent / link for link in LINK.findall(text) if not urlsplit(link).scheme}
    references = {DOCS / f"{reference}.md" for reference in REFERENCE.findall(text)}
    return {path.resolve() for path in links | references}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    assert {str(path) for path in find_links(page) if not path.exists()} == set()


def test_every_page_is_reachable_from_the_index() -> None:
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page.suffix == ".md" and page not in reached:
            reached.add(page)
            waiting.extend(find_links(page))
    assert sorted(str(page) for page in DOCS.rglob("*.md") if page not in reached) == []


def test_the_codes_in_json_are_documented() -> None:
    documented = set(re.findall(r"`(\w+)`", (DOCS / "guide/json.md").read_text("utf-8")))
    assert {*get_args(FindingCode), *get_args(RankReasonCode)} <= documented
