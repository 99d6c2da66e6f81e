from collections.abc import Iterator
from pathlib import Path

import pytest
from web_support import Site, SourceWorkspace, serving

from kbtui.sources.document_text_extraction import TextExtractorProcess, extract_document_text


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as started:
        yield started


@pytest.fixture
def project(workspace_root: Path) -> SourceWorkspace:
    return SourceWorkspace(workspace_root)


@pytest.fixture
def read_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert documents without a child process: it imports for half a second.

    For tests of what a run keeps and says. Those of hostile pages and of uploads have the child.
    """

    async def extract(
        extractor: object, content: bytes, kind: str, url: str, charset: str | None = None
    ) -> object:
        return extract_document_text(content, kind, url, charset)

    monkeypatch.setattr(TextExtractorProcess, "extract_in_child_process", extract)
