"""Panes are folded, unfolded, resized by key and mouse, and zoomed."""

import itertools

import pytest
from support import Builder
from textual.events import MouseDown, MouseMove, MouseUp
from tui_support import Tui, running

from kbtui.library import index_and_engine_access
from kbtui.references import parse_ref

WIDTHS = (60, 80, 120, 160, 200)


def shown(tui: Tui) -> list[str]:
    names = ("library", "results", "reader", "citations")
    return [name for name in names if tui.main.query_one(f"#{name}").region.width > 0]


def fills(tui: Tui) -> bool:
    """Return whether the panes are adjacent; only a reader of maximum width may have a gap."""
    regions = sorted(
        (tui.main.query_one(f"#{name}").region for name in shown(tui)), key=lambda r: r.x
    )
    beside = all(one.right == other.x for one, other in itertools.pairwise(regions))
    return beside and regions[0].x == 0 and regions[-1].right <= tui.app.size.width


async def test_every_side_pane_folds_and_its_number_brings_it_back(book: Builder) -> None:
    async with running(book.root, size=(40, 30)) as tui:
        for width in (60, 80, 160):
            await tui.pilot.resize_terminal(width, 30)
            for key, name in (("1", "library"), ("3", "citations")):
                await tui.press("2", key)
                await tui.until(lambda name=name: tui.main.panes.focused_pane_id == name)
                await tui.press("underscore")
                await tui.until(lambda name=name: name not in shown(tui))
                assert tui.main.panes.focused_pane_id == "reader"
                assert fills(tui)
                await tui.press(key)
                await tui.until(
                    lambda name=name: name in shown(tui) and tui.main.panes.focused_pane_id == name
                )
                assert fills(tui)


async def test_panes_are_made_wider_and_narrower_within_bounds(book: Builder) -> None:
    async with running(book.root, size=(80, 30)) as tui:
        pane = tui.main.library_pane
        for width, usual in ((80, 30), (120, 34), (200, 42)):
            await tui.pilot.resize_terminal(width, 30)
            tui.main.panes.focus_widget("#library-list")
            await tui.until(lambda usual=usual: pane.outer_size.width == usual)
            await tui.press("greater_than_sign")
            await tui.until(lambda usual=usual: pane.outer_size.width == usual + 2)
            assert fills(tui)
            tui.main.action_widen(-300)
            await tui.until(lambda: pane.outer_size.width == 16)
            # Going back takes as many steps as were within the bounds.
            await tui.press("greater_than_sign")
            await tui.until(lambda: pane.outer_size.width == 18)
            tui.main.panes.widen_pane("library", 300)
            await tui.pilot.pause()
            assert tui.main.reader_pane.outer_size.width >= 16
            assert fills(tui)
            await tui.press("equals_sign")
            await tui.until(lambda usual=usual: pane.outer_size.width == usual)
            # From the reader, the border moves in the opposite direction.
            await tui.press("2", "greater_than_sign")
            await tui.until(lambda usual=usual: pane.outer_size.width == usual - 2)
            await tui.press("equals_sign")


async def test_another_terminal_size_keeps_what_was_changed_within_reason(book: Builder) -> None:
    async with running(book.root, size=(160, 30)) as tui:
        await tui.press(*["greater_than_sign"] * 10)
        await tui.until(lambda: tui.main.library_pane.outer_size.width == 62)
        await tui.pilot.resize_terminal(80, 30)
        await tui.until(lambda: tui.main.library_pane.outer_size.width == 48)
        await tui.pilot.resize_terminal(60, 30)
        await tui.until(lambda: tui.main.library_pane.outer_size.width == 60)
        await tui.pilot.resize_terminal(160, 30)
        await tui.until(lambda: tui.main.library_pane.outer_size.width == 62)


async def test_the_border_between_two_panes_can_be_dragged(book: Builder) -> None:
    async with running(book.root, size=(120, 30)) as tui:
        pane = tui.main.library_pane
        edge = pane.region.right - 1

        def mouse(kind: type, x: int) -> None:
            event = kind(None, x, 10, 0, 0, 1, False, False, False, screen_x=x, screen_y=10)
            tui.app.post_message(event)

        mouse(MouseDown, edge)
        mouse(MouseMove, edge + 7)
        mouse(MouseUp, edge + 7)
        await tui.until(lambda: pane.region.right - 1 == edge + 7)
        # Elsewhere, a mouse press works as usual.
        mouse(MouseMove, edge + 20)
        await tui.pilot.pause()
        assert pane.region.right - 1 == edge + 7
        left = tui.main.citations_pane.region.x
        mouse(MouseDown, left)
        mouse(MouseMove, left - 5)
        mouse(MouseUp, left - 5)
        await tui.until(lambda: tui.main.citations_pane.region.x == left - 5)
        assert fills(tui)


async def test_a_pane_can_be_alone(book: Builder) -> None:
    async with running(book.root, size=(60, 30)) as tui:
        for width in WIDTHS:
            await tui.pilot.resize_terminal(width, 30)
            await tui.press("2")
            before = shown(tui)
            await tui.press("z")
            await tui.until(lambda: shown(tui) == ["reader"])
            tui.main.action_focus_pane("library")
            await tui.until(lambda: shown(tui) == ["library"])
            assert tui.main.library_pane.outer_size.width == width
            await tui.press("2", "z")
            await tui.until(lambda before=before: shown(tui) == before)
        await tui.press("z", "slash", "m", "a", "k", "e")
        await tui.until_hits()
        await tui.press("escape")
        await tui.until(lambda: shown(tui) == ["results"])


async def test_the_reader_is_alone_also_after_the_citations_or_the_outline(book: Builder) -> None:
    async with running(book.root, size=(80, 30)) as tui:
        for width in WIDTHS:
            await tui.pilot.resize_terminal(width, 30)
            for keys in (("3", "escape"), ("O", "enter", "3", "escape")):
                await tui.press("2", *keys)
                await tui.until(lambda: tui.main.panes.focused_pane_id == "reader")
                before = shown(tui)
                await tui.press("z")
                await tui.until(lambda: shown(tui) == ["reader"])
                assert not any(outline.region.width for outline in tui.main.query("#outline"))
                await tui.press("z")
                await tui.until(lambda before=before: shown(tui) == before)


async def test_what_an_empty_search_offers_is_shown_also_during_a_zoom(book: Builder) -> None:
    async with running(book.root, size=(80, 30)) as tui:
        for width in WIDTHS:
            await tui.pilot.resize_terminal(width, 30)
            await tui.press("2", "z", "slash")
            await tui.until(lambda: shown(tui) == ["results"])
            await tui.press("escape")
            await tui.until(lambda: shown(tui) == ["reader"])
            await tui.press("z")


async def test_nothing_jumps_while_lists_and_documents_are_read(book: Builder) -> None:
    async with running(book.root, size=(120, 30)) as tui:
        places = {
            name: tui.main.query_one(f"#{name}").region
            for name in ("library", "reader", "citations", "status")
        }
        tui.main.action_reload()
        await tui.open("project/start")
        await tui.until("CITING TURNS")
        assert places == {name: tui.main.query_one(f"#{name}").region for name in places}


async def test_the_status_line_says_the_short_thing_where_there_is_no_room(book: Builder) -> None:
    async with running(book.root, size=(120, 30)) as tui:
        status = tui.main.status
        status.show_engine_event({"event": "ready", "lexical": True, "semantic": True})
        await tui.until("● index ready · keywords and meaning")
        assert tui.text.split("\n")[-2].startswith(" ws ")
        status.show_engine_event(
            {"event": "progress", "phase": "vectors", "done": 5, "total": 500, "seconds_left": 130}
        )
        await tui.until("embedding 5 of 500, 2 min left")
        await tui.pilot.resize_terminal(60, 20)
        status.flash_message("A sentence that takes more than half of the line")
        await tui.until("A sentence that takes more than half of the line")
        await tui.pilot.resize_terminal(70, 20)

        def ready() -> bool:
            # Again, because the listener also reports that there is no engine.
            status.show_engine_event({"event": "ready", "lexical": True, "semantic": True})
            return "● index ready" in tui.text

        await tui.until(ready)


async def test_the_keys_of_an_input_are_whole_ones_too(book: Builder) -> None:
    async with running(book.root, size=(44, 20)) as tui:
        await tui.press("slash")
        await tui.type("make")
        last = tui.text.split("\n")[-1]
        assert last == " Enter open  Esc to results"


async def test_the_status_line_says_once_how_many_passages_are_left(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The listener reports once that there is no engine.
    monkeypatch.setattr(index_and_engine_access, "RECONNECT_SECONDS", (600.0,))
    async with running(book.root, size=(120, 30)) as tui:
        status = tui.main.status
        await tui.until("keywords only: not in this test")
        status.show_engine_event({"event": "ready", "lexical": True, "semantic": True, "left": 500})
        await tui.until("index ready · 500 passages not embedded yet")
        told = {"event": "progress", "phase": "vectors", "done": 5, "total": 500}
        status.show_engine_event({**told, "per_second": 7.1, "seconds_left": 70})
        await tui.until("embedding 5 of 500, 7/s, 70 s left")
        assert "index ready" in tui.text
        assert "not embedded yet" not in tui.text
        status.show_engine_event({**told, "parts": {"subjects": (5, 6), "conversations": (0, 494)}})
        await tui.until("index ready · embedded: subjects 83 %, conversations 0 %")
        status.show_engine_event({**told, "seconds_left": 70, "waits": "busy"})
        await tui.until("embedding 5 of 500; paused because the computer is busy")


async def test_a_pause_of_embedding_is_shown_with_the_key_that_ends_it(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_and_engine_access, "RECONNECT_SECONDS", (600.0,))
    async with running(book.root, size=(120, 30)) as tui:
        listener = tui.main.change_listener
        await tui.until("keywords only: not in this test")
        state = {"event": "ready", "lexical": True, "semantic": True}
        told = {"event": "progress", "phase": "vectors", "done": 5, "total": 500}
        listener.handle_engine_event({**state, "left": None})
        listener.handle_engine_event(told)
        await tui.until("V pause embedding")
        listener.handle_engine_event({**state, "left": 495, "paused": True})
        await tui.until("index ready · embedding paused, 495 passages left")
        await tui.until("V continue embedding")
        # The batch that was running ends, and then the queue says that it waits.
        listener.handle_engine_event({**told, "done": 8})
        await tui.until("index ready · embedding paused, 492 passages left")
        assert "embedding 8 of 500" not in tui.text
        listener.handle_engine_event({**state, "left": 492, "paused": False})
        await tui.until("V pause embedding")
        await tui.press("V")
        await tui.until("Cannot reach the engine")


async def test_a_workspace_that_is_moved_away_is_said_and_what_was_read_stays(
    book: Builder,
) -> None:
    async with running(book.root) as tui:
        away = book.root.with_name("elsewhere")
        book.root.rename(away)
        await tui.until("was moved or deleted")
        tui.main.action_reload()
        await tui.pilot.pause(0.2)
        assert "Project Handbook" in tui.text
        away.rename(book.root)
        await tui.until(lambda: "was moved or deleted" not in tui.text)


async def test_plain_draws_text_alone_and_names_the_command(book: Builder) -> None:
    from kbtui.tui.app import TuiStartOptions

    async with running(
        book.root, size=(80, 24), start=TuiStartOptions(fresh=True, plain=True)
    ) as tui:
        await tui.until("To print this: kbtui topics; kbtui conversation ls")
        assert not set("╭╮╰╯│▄▆") & set(tui.text)
        await tui.open("project/start")
        await tui.until("To print this: kbtui show project/start")
        assert shown(tui) == ["reader"]
        assert not set("╭╮╰╯▄▆") & set(tui.text)
        await tui.press("slash")
        await tui.type("make")
        await tui.until("To print this: kbtui search make")
        assert tui.app.animation_level == "none"


@pytest.mark.parametrize("width", [60, 120, 200])
async def test_what_was_asked_for_is_in_sight_and_has_the_keys(book: Builder, width: int) -> None:
    async with running(book.root, size=(width, 30), open_ref=parse_ref("guide")) as tui:
        await tui.until(lambda: tui.main.panes.focused_pane_id == "reader")
        assert "reader" in shown(tui)


async def test_a_wide_terminal_is_filled(book: Builder) -> None:
    async with running(book.root, size=(200, 30)) as tui:
        await tui.until(lambda: tui.main.query_one("#citations").region.right == 200)
        assert fills(tui)
        assert tui.main.query_one("#reader").region.width == 110


async def test_the_headers_use_the_room_there_is(book: Builder) -> None:
    book.subject("project/style.md", "# Style\n\n" + "Short sentences. No tabs.\n" * 300)
    async with running(book.root, size=(80, 24)) as tui:
        await tui.open("project/style")
        for size, header in (
            ((80, 24), "read source learn ● pre-loaded  ≈ 1,952 tokens"),
            ((76, 24), "read source learn             ● pre-loaded"),
            ((160, 40), "● pre-loaded  7,809 characters ≈ 1,952 tokens"),
        ):
            await tui.pilot.resize_terminal(*size)
            await tui.until(header)
        # The summary of the results is made for the width of the list, too.
        await tui.press("slash")
        await tui.type("sentences")
        await tui.until("a temporary index; keywords only: not in this test")
        for size, summary in (
            ((110, 24), "1 hit · 8 passages   a temporary index; keywords o"),
            ((160, 40), "a temporary index; keywords only: not in this test"),
        ):
            await tui.pilot.resize_terminal(*size)
            await tui.until(summary)
