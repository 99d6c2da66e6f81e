"""A driver of the prompt workshop for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tui_support import Tui, running

from kbtui.knowledge import KnowledgeBase, load_knowledge
from kbtui.tui.prompt_workshop.prompt_workshop_screen import PromptWorkshopScreen
from kbtui.tui.reader.reader_blocks import TextRangeReaderBlock
from kbtui.workspace import open_workspace_at_root


class Shop:
    """The open workshop, with methods to press keys and read the screen."""

    def __init__(self, tui: Tui) -> None:
        self.tui = tui

    @property
    def screen(self) -> PromptWorkshopScreen:
        screen = next(s for s in self.tui.app.screen_stack if isinstance(s, PromptWorkshopScreen))
        return screen

    @property
    def is_open(self) -> bool:
        return any(isinstance(screen, PromptWorkshopScreen) for screen in self.tui.app.screen_stack)

    @property
    def entries(self) -> list[str]:
        """The text of all rows of the list, visible or not."""
        found = []
        for row in self.screen.list.rows:
            left, right = (row.left, row.right)
            if row.selectable:
                left, right = self.screen.list.format_tree_row(row.data)
            found.append(" ".join("".join(text for text, _ in [*left, (" ", ""), *right]).split()))
        return found

    def entry(self, words: str) -> str:
        """Return the only row that contains `words`."""
        found = [entry for entry in self.entries if words in entry]
        assert len(found) == 1, (words, self.entries)
        return found[0]

    @property
    def given(self) -> str:
        """The whole text of the right pane."""
        blocks = self.screen.reader.document.blocks
        return "".join(
            b.get_searchable_text() for b in blocks if isinstance(b, TextRangeReaderBlock)
        )

    async def select(self, key: str) -> None:
        assert self.screen.list.select_row(key), (key, [row.key for row in self.screen.list.rows])
        await self.tui.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.tui.press(*keys)

    async def marked(self, *keys: str) -> None:
        """Press keys that set marks, and wait until the prompt with the marks is made."""
        await self.press(*keys)
        screen = self.screen
        await self.tui.until(
            lambda: (
                screen.prompt_with_changes is not None
                and screen.prompt_with_changes.marks == screen.marks.pending_marks_in_order
            )
        )

    async def shown(self) -> None:
        """Press w and wait until the change is shown."""
        await self.press("ctrl+s")
        await self.tui.until("This will be written")

    async def tried(self, text: str) -> None:
        """Enter a pattern and wait for its result."""
        screen = self.screen
        if self.tui.app.focused is not screen.pattern_bar.input:
            await self.press("slash")
        screen.pattern_bar.input.value = text
        await self.tui.until(lambda: screen.pattern_result.text == text)
        await self.tui.until(lambda: not screen.pattern_worker.has_running_call)
        await self.tui.pilot.pause()
        if screen.pattern_result.is_valid_pattern:
            title = screen.pattern_result.kbtui_command_arguments
            await self.tui.until(lambda: screen.preview and screen.preview.document.title == title)
            await self.tui.pilot.pause()


@asynccontextmanager
async def workshop(
    root: Path, size: tuple[int, int] = (140, 40), at: str | None = None
) -> AsyncIterator[Shop]:
    """Open the workshop from the main screen and wait until all subjects are counted."""
    async with running(root, size=size) as tui:
        if at is not None:
            await tui.open(at)
        await tui.press("P")
        shop = Shop(tui)
        await tui.until(lambda: shop.is_open)
        screen = shop.screen
        await tui.until(lambda: screen.list.rows)
        await tui.until(lambda: not screen.count_worker.has_running_call)
        await tui.until(lambda: screen.preview is not None)
        yield shop


def knowledge_of(root: Path, **options: list[str]) -> KnowledgeBase:
    """Return the knowledge as the files declare it, read without the screen."""
    return load_knowledge(open_workspace_at_root(root), **options)
