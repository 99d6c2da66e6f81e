"""Full collections run only while the user is idle."""

import gc
import weakref
from typing import Any
from unittest import mock

from support import Builder
from tui_support import running


class Ring:
    """An object that only the garbage collector frees."""

    def __init__(self) -> None:
        self.itself = self


async def test_old_garbage_is_freed_when_the_user_is_idle(book: Builder) -> None:
    async with running(book.root) as tui:
        ring = Ring()
        gone = weakref.ref(ring)
        gc.collect()  # now it is in the oldest generation
        del ring
        await tui.press("j")
        await tui.until(lambda: gone() is None)


async def test_no_full_collection_runs_while_the_user_types(book: Builder) -> None:
    whole: list[dict[str, Any]] = []

    def noted(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            whole.append(info)

    with mock.patch("kbtui.tui.framework.idle_garbage_collection.IDLE_SECONDS", 3600.0):
        async with running(book.root) as tui:
            gc.collect()
            gc.callbacks.append(noted)
            try:
                await tui.press("j")
                kept = [[number] for number in range(300_000)]  # as many objects as thirty paints
                await tui.press("k")
                assert whole == []
                assert len(kept) == 300_000
            finally:
                gc.callbacks.remove(noted)
