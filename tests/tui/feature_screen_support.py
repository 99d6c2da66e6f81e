"""Helpers for tests of feature screens: a library without an engine, an open screen, an editor."""

import shlex
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from support import Builder
from tui_support import Tui, WithoutEngine, clock, running

from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.tui.app import KbtuiApp
from kbtui.workspace import Settings, open_workspace_at_root

NOW = clock().timestamp()


class Indexed(WithoutEngine):
    """A library without an engine; `refresh()` updates its index in this process."""

    def __init__(self, root: Path) -> None:
        super().__init__(open_workspace_at_root(root), Settings(model="off"))
        self._index = WorkspaceIndexWriter(self.workspace, self.settings)
        self.refresh()

    def refresh(self) -> None:
        """Update the index from the files."""
        self._index.refresh_index()

    def retry_failed_files_and_passages(self, wait: float = 30.0) -> None:
        """Retry failed entries, as the engine does."""
        self._index.refresh_index(retry=True)

    def close(self) -> None:
        """Close the library and its index."""
        super().close()
        self._index.close()


@asynccontextmanager
async def paged(
    builder: Builder, key: str, kind: type[Any], size: tuple[int, int] = (160, 40)
) -> AsyncIterator[tuple[Tui, Any, Indexed]]:
    """Run the application and open the screen of a key."""
    library = Indexed(builder.root)
    async with running(builder.root, size=size, library=library) as tui:
        await tui.press(key)
        await tui.until(lambda: isinstance(tui.app.screen, kind))
        yield tui, tui.app.screen, library


@contextmanager
def editor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
) -> Iterator[Callable[[], int]]:
    """Set $EDITOR to a shell script that edits `$1`; yield a counter of its runs."""
    program = tmp_path / "my-editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", shlex.quote(str(program)))
    monkeypatch.delenv("VISUAL", raising=False)
    lent = []

    def suspend(self: KbtuiApp) -> Any:
        # The tests' terminal cannot be lent; a real one is in tests/terminal.
        lent.append(self)
        return nullcontext()

    monkeypatch.setattr(KbtuiApp, "suspend", suspend)
    yield lambda: len(lent)
