"""Messages and hints name the keys that the user chose."""

from pathlib import Path

from support import Builder
from tui_support import PRESENT, Tui, running, with_keys

from kbtui.userdata.user_data_store import UserData


async def test_the_home_page_and_the_search_line_name_ones_own_keys(book: Builder) -> None:
    library = with_keys(book, {"search": "alt+s", "help": "f1", "library.open": ["f5", "enter"]})
    async with running(book.root, size=(120, 40), library=library) as tui:
        await tui.press("H")
        await tui.until("alt+s  search everything")
        assert "f5     open the selected item" in tui.text
        assert "f1     help for the current pane" in tui.text
        assert tui.text.startswith("  alt+s Search topics and conversations")


async def search_in_vain(tui: Tui) -> None:
    await tui.press("slash")
    await tui.type("xyzzyx")


async def find_in_a_subject(tui: Tui) -> None:
    await tui.press("escape", "escape")
    await tui.open("project/start")
    await tui.press("2", "f")
    await tui.type("run")


async def test_a_command_without_a_key_is_not_promised_one(book: Builder) -> None:
    library = with_keys(book, {"library.open": "", "results.why": "", "reader.previous": ""})
    async with running(book.root, size=(120, 40), library=library) as tui:
        await tui.press("H")
        await tui.until("search everything")
        assert "open the selected item" not in tui.text
        await search_in_vain(tui)
        await tui.until("No results.")
        assert "is X missing" not in tui.text
        await find_in_a_subject(tui)
        await tui.until("Esc clear")
        assert "accept, then" not in tui.text


async def test_what_to_do_about_no_hit_and_no_match_names_ones_own_keys(book: Builder) -> None:
    library = with_keys(book, {"results.why": "f6", "reader.next": "f7", "reader.previous": "f8"})
    async with running(book.root, size=(120, 40), library=library) as tui:
        await search_in_vain(tui)
        await tui.until("f6: ")
        await find_in_a_subject(tui)
        await tui.until("accept, then f7/f8")


async def test_a_workspace_without_topics_offers_one_by_ones_own_key(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    library = with_keys(builder, {"first": "f9", "home": "f2", "serch": "x", "hom": "y"})
    async with running(builder.root, size=(160, 50), library=library) as tui:
        await tui.until("press f2 to see all")
        await tui.until("Press f9 to create one")


async def test_the_workshop_shows_ones_own_key_before_a_pattern(book: Builder) -> None:
    library = with_keys(book, {"workshop.try": "alt+t"})
    async with running(book.root, size=(140, 40), library=library) as tui:
        await tui.press("P")
        await tui.until("  alt+t try a pattern: TOPIC/GLOB")
        await tui.press("alt+t")
        await tui.type("st*")
        await tui.until("        kbtui ")


async def test_folded_panes_and_no_bookmarks_name_ones_own_keys(book: Builder) -> None:
    library = with_keys(book, {"pane.library": "f4", "bookmark": "f5"})
    async with running(book.root, size=(120, 40), library=library) as tui:
        await tui.until("CONVERSATIONS")
        await tui.press("f4", "underscore")
        await tui.until("The library pane is folded. Press f4 to go to it again.")
        await tui.press("f4", "apostrophe")
        await tui.until("No bookmarks yet. Press f5")


async def test_the_insights_name_ones_own_key_that_writes_an_entry(book: Builder) -> None:
    log = UserData(book.workspace).query_log
    log.log_search("how do I deploy?", "hybrid", 0, "mcp", at=PRESENT.timestamp())
    library = with_keys(book, {"insights.open": ["f6", "enter"]})
    async with running(book.root, size=(140, 50), library=library) as tui:
        await tui.press("I")
        await tui.until("f6 creates the entry")
