"""The collector looks at everything only while nobody types."""

import gc
import weakref
from typing import Any
from unittest import mock

from support import Builder
from tui_support import running


class Ring:
    """Something that only the collector gives back."""

    def __init__(self) -> None:
        self.itself = self


async def test_garbage_goes_when_nobody_types_any_more(book: Builder) -> None:
    async with running(book.root) as tui:
        ring = Ring()
        gone = weakref.ref(ring)
        gc.collect()  # now it is so old that nothing but a collection of everything finds it
        del ring
        await tui.press("j")
        await tui.until(lambda: gone() is None)


async def test_nothing_old_is_looked_at_while_one_types(book: Builder) -> None:
    whole: list[dict[str, Any]] = []

    def noted(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            whole.append(info)

    with mock.patch("kbtui.tui.framework.gc_tuning.IDLE_SECONDS", 3600.0):
        async with running(book.root) as tui:
            gc.collect()
            gc.callbacks.append(noted)
            try:
                await tui.press("j")
                kept = [[number] for number in range(300_000)]  # as much as thirty paints make
                await tui.press("k")
                assert whole == []
                assert len(kept) == 300_000
            finally:
                gc.callbacks.remove(noted)
