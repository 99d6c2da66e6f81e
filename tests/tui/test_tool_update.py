"""The installed tools for JP are offered to be written again when the topics have changed."""

import tomllib

from support import Builder
from tui_support import running

from kbtui.cli.main import main

LEARN = ".jp/mcp/tools/kbtui/learn.toml"


def read_summary(book: Builder) -> str:
    table = tomllib.loads((book.root / LEARN).read_text("utf-8"))
    return str(table["conversation"]["tools"]["learn"]["summary"])


async def test_changed_topics_are_noticed_and_written_after_a_yes(book: Builder) -> None:
    main(["-w", str(book.root), "tools", "install", "--yes"])
    before = (book.root / LEARN).read_bytes()
    async with running(book.root) as tui:
        await tui.press("L")
        await tui.until("The tools for JP are up to date")
        book.topics(project={"title": "Renamed Handbook"})
        await tui.press("ctrl+r")
        await tui.until("The topics have changed since the tools for JP were installed: press L")
        for answer in ("n", "y"):
            await tui.press("L")
            await tui.until("Write it?")
            assert "Renamed Handbook" in tui.text
            assert (book.root / LEARN).read_bytes() == before
            await tui.press(answer)
        await tui.until("Updated the tools for JP: 1 file changed")
        assert "Renamed Handbook" in read_summary(book)
        await tui.until(lambda: "press L to update" not in tui.text)


async def test_the_doctor_offers_it_too(book: Builder) -> None:
    main(["-w", str(book.root), "tools", "install", "--yes"])
    book.topics(project={"title": "Renamed Handbook"})
    async with running(book.root) as tui:
        await tui.until("press L to update the tools")
        await tui.press("D")
        await tui.until("learn.toml is out of date")
        await tui.until("update tools for JP")
        await tui.press("L")
        await tui.until("Write it?")
        await tui.press("y")
        await tui.until(lambda: "Renamed Handbook" in read_summary(book))
        await tui.until(lambda: "learn.toml is out of date" not in tui.text)


async def test_without_installed_tools_nothing_is_offered(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.until("Project Handbook")
        assert "tools for JP" not in tui.text
        await tui.press("L")
        await tui.until("The tools for JP are not installed")
        assert not (book.root / LEARN).exists()
