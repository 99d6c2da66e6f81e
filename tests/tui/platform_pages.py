"""What the tests of entries, sources and insights share: an index without an engine, an editor."""

import shlex
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from support import Builder
from tui_support import Tui, WithoutEngine, clock, running

from kbtui.index import Index
from kbtui.tui.app import KbApp
from kbtui.workspace import Settings, open_root

NOW = clock().timestamp()


class Indexed(WithoutEngine):
    """A library without an engine whose index this process keeps: `refresh()` is the engine's part."""

    def __init__(self, root: Path) -> None:
        super().__init__(open_root(root), Settings(model="off"))
        self._index = Index(self.workspace, self.settings)
        self.refresh()

    def refresh(self) -> None:
        """Take in what changed."""
        self._index.refresh()

    def retry_embedding(self, wait: float = 30.0) -> None:
        """As the engine does."""
        self._index.refresh(retry=True)

    def close(self) -> None:
        """Let go of both."""
        super().close()
        self._index.close()


@asynccontextmanager
async def paged(
    builder: Builder, key: str, kind: type[Any], size: tuple[int, int] = (160, 40)
) -> AsyncIterator[tuple[Tui, Any, Indexed]]:
    """The application with one of the screens open."""
    library = Indexed(builder.root)
    async with running(builder.root, size=size, library=library) as tui:
        await tui.press(key)
        await tui.until(lambda: isinstance(tui.app.screen, kind))
        yield tui, tui.app.screen, library


@contextmanager
def editor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
) -> Iterator[Callable[[], int]]:
    """$EDITOR is a program that does `script` to the file in `$1`; gives how often the terminal was lent."""
    program = tmp_path / "my-editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", shlex.quote(str(program)))
    monkeypatch.delenv("VISUAL", raising=False)
    lent = []

    def suspend(self: KbApp) -> Any:
        # The tests' terminal cannot be lent; a real one is in tests/terminal.
        lent.append(self)
        return nullcontext()

    monkeypatch.setattr(KbApp, "suspend", suspend)
    yield lambda: len(lent)
