"""The keys of a search: explanations, similar items, earlier queries, completion, pasting, waiting."""

import random
import time
from typing import Any

import pytest
from support import Builder
from textual import events
from textual.widgets import Input
from tui_support import Tui, WithoutEngine, running

from kbtui.library import regex_line_search
from kbtui.userdata.query_log import OpenedHit
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace import load_settings

TALK = "jp-c17800000001"


async def search(tui: Tui, words: str) -> None:
    await tui.press("slash")
    await tui.type(words)
    await tui.until(lambda: tui.main.results_pane.answer is not None)
    await tui.until(lambda: "by meaning …" not in tui.main.results_pane.query_one("#answer").text)  # type: ignore[attr-defined]


def asked(tui: Tui) -> str:
    return str(tui.main.query_one("#search").value)  # type: ignore[attr-defined]


def times(book: Builder, query: str) -> int:
    found = UserData(book.workspace).query_log.compute_search_statistics(days=7, limit=20)
    return sum(one.times for one in found.top if one.query == query)


async def test_a_hit_is_explained(book: Builder) -> None:
    async with running(book.root, size=(120, 50)) as tui:
        await search(tui, "make tests")
        await tui.press("escape", "a")
        await tui.until("Ranks by keywords and by meaning")
        for wanted in ("Rank 1", "keywords  rank 1", "Words"):
            assert wanted in tui.text
        assert "Embedded text" not in tui.text  # There is no model in this test.
        await tui.press("escape")
        await tui.until(lambda: tui.main.panes.focused_pane_id == "results")


async def test_what_was_not_found_is_explained(book: Builder) -> None:
    async with running(book.root, size=(120, 50)) as tui:
        await search(tui, "program")
        await tui.press("escape", "minus")
        await tui.until("Which subject or turn is missing")
        await tui.type("project/old")
        await tui.press("enter")
        await tui.until("✕ ")
        assert "project/old" in tui.text
        await tui.press("escape", "minus")
        await tui.until("Which subject or turn is missing")
        await tui.type("no ref")
        await tui.press("enter")
        await tui.until("is not a reference")


async def test_why_can_be_asked_when_nothing_was_found(book: Builder) -> None:
    async with running(book.root) as tui:
        await search(tui, "xyzzyplugh")
        await tui.until("-: explain")
        await tui.press("escape", "minus")
        await tui.until("Which subject or turn is missing")
        await tui.type("project/style")
        await tui.press("enter")
        await tui.until("Not in the passage: xyzzyplugh")


async def test_an_explanation_says_which_words_are_absent_and_which_are_only_apart(
    book: Builder,
) -> None:
    book.subject("project/engine.md", "# Engine\n\nThe lock is beside the socket, in a file.\n")
    async with running(book.root, size=(120, 50)) as tui:
        await search(tui, "lock file xyzzyplugh")
        await tui.press("escape", "a")
        await tui.until("Not in the passage: xyzzyplugh")
        assert "Not side by side: lock file" in tui.text
        assert "file xyzzyplugh" not in tui.text.replace("lock file xyzzyplugh", "")
        assert "missing" not in tui.text


async def test_more_like_what_is_read_or_selected(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(f"{TALK}:1")
        await tui.press("s")
        await tui.until("Similar to “First steps”, turn 1")
        refs = [row.data.ref for row in tui.main.results_pane.list.rows]
        assert not any(ref.startswith(TALK) for ref in refs)
        # It is not a search: it cannot be explained or logged, and a new search replaces it.
        await tui.press("a")
        await tui.until("Search first: only search results can be explained.")
        await search(tui, "make")
        await tui.until("─ Results ─")
    assert UserData(book.workspace).query_log.list_recent_tui_queries() in (["make"], [])


async def test_a_topic_has_nothing_like_it(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("s")
        await tui.until("Select a subject or conversation")


async def test_earlier_searches_come_back_newest_first(book: Builder) -> None:
    userdata = UserData(book.workspace)
    for query in ("first thing", "second thing", "First  Thing"):
        userdata.query_log.log_search(query, "hybrid", 1, "dashboard")
    userdata.query_log.log_search("from a shell", "hybrid", 1, "cli")
    async with running(book.root) as tui:
        await tui.press("slash", "up")
        await tui.until(lambda: asked(tui) == "First  Thing")
        await tui.press("up")
        await tui.until(lambda: asked(tui) == "second thing")
        await tui.press("up", "up")
        await tui.pilot.pause()
        assert asked(tui) == "second thing"
        # What was typed comes back after the newest search, as in a shell.
        await tui.type("s")
        await tui.press("up")
        await tui.until(lambda: asked(tui) == "First  Thing")
        await tui.press("up", "down")
        await tui.until(lambda: asked(tui) == "First  Thing")
        await tui.press("down")
        await tui.until(lambda: asked(tui) == "second things")
    userdata.query_log.delete_all_logged_searches()
    assert userdata.query_log.list_recent_tui_queries() == []


async def test_after_another_hit_was_selected_up_goes_back_in_the_results(book: Builder) -> None:
    UserData(book.workspace).query_log.log_search("first thing", "hybrid", 1, "dashboard")
    async with running(book.root) as tui:
        await tui.press("slash")
        await tui.type("the")
        await tui.until_hits()
        await tui.press("down", "down", "up", "up")
        assert asked(tui) == "the"
        await tui.press("up")
        await tui.until(lambda: asked(tui) == "first thing")
        await tui.press("down")
        await tui.until(lambda: asked(tui) == "the")


async def test_a_mistyped_filter_is_named_above_the_results_while_it_is_typed(
    book: Builder,
) -> None:
    async with running(book.root) as tui:
        await tui.press("slash")
        await tui.type("the tilte:x")
        await tui.until("There is no filter 'tilte:'; did you mean 'title:'?")
        await tui.press("ctrl+u")
        await tui.type("the tiel:x")
        await tui.until("There is no filter 'tiel:'; the nearest is 'title:'. It")
        await tui.press("ctrl+u")
        await tui.type("the")
        await tui.until(lambda: "There is no filter" not in tui.text)


async def test_a_number_or_the_end_of_the_list_leads_to_any_hit_of_a_broad_query(
    book: Builder,
) -> None:
    for number in range(45):
        book.subject(f"project/page-{number:02}.md", f"# Page {number}\n\nlighthouse\n")
    async with running(book.root) as tui:
        await tui.press("slash")
        await tui.type("lighthouse")
        await tui.until("of 45")
        # While the user types, # is text.
        await tui.until("hit 1 of 45 · ^g goes to a hit")
        await tui.press("ctrl+g")
        await tui.until("Go to hit")
        await tui.type("12")
        await tui.press("enter")
        await tui.until("hit 12 of 45 · ^g goes to a hit")
        await tui.press("escape")
        await tui.until("hit 12 of 45 · # goes to a hit")
        await tui.press("number_sign")
        await tui.type("30")
        await tui.press("enter")
        await tui.until("hit 30 of 45")
        assert "▎30 ◆ " in tui.text
        await tui.press("g", "G")
        await tui.until("hit 45 of 45")
        await tui.press("number_sign")
        await tui.type("77")
        await tui.press("enter")
        await tui.until("There is no hit 77; this is the last one.")


async def test_an_empty_search_offers_earlier_and_saved_searches_bookmarks_and_filters(
    book: Builder,
) -> None:
    userdata = UserData(book.workspace)
    userdata.query_log.log_search("make tests", "hybrid", 1, "dashboard")
    userdata.save_bookmark("project/style", "Style")
    async with running(book.root, size=(120, 50)) as tui:
        await tui.press("slash")
        await tui.until("FILTERS")
        for wanted in ("EARLIER SEARCHES", "BOOKMARKS", "project/style", "after:2w", "file:reader"):
            assert wanted in tui.text
        await tui.press("enter")
        await tui.until(lambda: asked(tui) == "make tests")
        await tui.until(lambda: bool(tui.main.results_pane.answer))
        await tui.press("escape", "at")
        await tui.until("Save the search as")
        await tui.type("my tests")
        await tui.press("enter")
        await tui.until("Saved as my tests.")
        await tui.press("slash", "backspace")
        await tui.until("SAVED SEARCHES")
        await tui.press("down", "enter")
        await tui.until(lambda: asked(tui) == "make tests")
        await tui.until(lambda: bool(tui.main.results_pane.answer))
        await tui.press("escape", "slash", "backspace", "down", "down", "enter")
        await tui.until(lambda: tui.main.document_controller.shown.key == "project/style")  # type: ignore[union-attr]
    (saved,) = userdata.list_saved_searches()
    assert (saved.name, saved.query, saved.mode) == ("my tests", "make tests", "hybrid")


async def test_an_empty_search_says_which_file_of_the_user_is_damaged(book: Builder) -> None:
    userdata = UserData(book.workspace)
    userdata.query_log.log_search("make tests", "hybrid", 1, "dashboard")
    userdata.save_bookmark("project/style", "Style")
    for file in userdata.directory.glob("journal.sqlite*"):
        file.write_bytes(b"not a database, " * 500)
    async with running(book.root, size=(120, 50)) as tui:
        await tui.press("slash")
        await tui.until("Saved searches and bookmarks cannot be read")
        await tui.until("EARLIER SEARCHES")  # this file is intact


async def test_an_expression_between_slashes_finds_lines(book: Builder) -> None:
    async with running(book.root, size=(120, 50)) as tui:
        await tui.press("slash")
        await tui.type("/mak.\\s+tests?|^you are/")
        await tui.until("matching lines")
        found = [hit.text for hit in tui.main.results_pane.answer.hits]  # type: ignore[union-attr]
        assert "You are welcome." in found
        assert all("make test" in text.lower() or text.startswith("You are") for text in found)
        await tui.until(lambda: "turn 2 · 28 May" in tui.text)
        await tui.press("backspace")
        await tui.type(")/")
        await tui.until("invalid regular expression")


async def test_hits_of_an_expression_have_the_titles_of_other_hits(book: Builder) -> None:
    book.subject("project/boat.md", "# The lighthouse keeper\n\nHe has a zeppelin.\n")
    book.subject("project/plain.md", "A zeppelin without a heading.\n")
    async with running(book.root, size=(120, 50)) as tui:
        await search(tui, "zeppelin")
        words = {row.split("project/")[0][2:] for row in tui.rows("results-list")}
        await tui.press("escape", "slash")
        await tui.type("/zeppelin/")
        await tui.until("matching lines")
        lines = {row.split("project/")[0][2:] for row in tui.rows("results-list")}
        assert words == lines == {"◆ The lighthouse keeper", "◆ plain"}


async def test_a_slow_expression_ends_at_its_time_limit(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # RE2 needs the same time for each character, so `(a+)+$` is fast. A large repetition makes it slow:
    # this text takes 6 seconds on a fast machine.
    draw = random.Random(17)
    lines = ["".join(draw.choices("ab", k=1000)) for _ in range(2000)]
    book.subject("project/slow.md", "\n".join(["# Slow", *lines]))
    monkeypatch.setattr(regex_line_search, "PATTERN_SEARCH_SECONDS", 2)
    async with running(book.root, size=(120, 50)) as tui:
        await tui.press("slash")
        await tui.type("/(a+)+$/")
        await tui.until("matching lines")
        assert not tui.main.results_pane.answer.has_notice("pattern_out_of_time")  # type: ignore[union-attr]
        tui.main.query_one("#search").value = ""  # type: ignore[attr-defined]
        monkeypatch.setattr(regex_line_search, "PATTERN_SEARCH_SECONDS", 1)
        began = time.monotonic()
        await tui.type("/(a[ab]{0,900}){1}c$/")
        await tui.until("The search ran out of time")
        assert "the search stopped after 1 " in tui.text
        assert time.monotonic() - began < 10
        monkeypatch.setattr(regex_line_search, "PATTERN_SEARCH_SECONDS", 2)
        # The thread that searched is free again.
        tui.main.query_one("#search").value = ""  # type: ignore[attr-defined]
        await tui.type("/^you are/")
        await tui.until("You are welcome.")


async def test_what_was_opened_is_an_earlier_search_though_nothing_is_logged(book: Builder) -> None:
    library = WithoutEngine(book.workspace, load_settings()._replace(query_log=False))
    async with running(book.root, library=library) as tui:
        await search(tui, "program")
        await tui.until_hits()
        await answered(tui)
        await tui.press("enter")
        await tui.press("slash")
        tui.main.query_one("#search").value = ""  # type: ignore[attr-defined]
        await tui.press("up")
        await tui.until(lambda: asked(tui) == "program")
    log = UserData(book.workspace).query_log
    assert log.list_recent_tui_queries() == []
    assert log.list_opened_hits() == []


async def test_an_opened_hit_is_logged_with_its_query_and_rank(book: Builder) -> None:
    log = UserData(book.workspace).query_log
    async with running(book.root) as tui:
        await search(tui, "program")
        await tui.until(lambda: bool(tui.main.results_pane.list.rows))
        await answered(tui)
        hit = tui.main.results_pane.answer.hits[0]  # type: ignore[union-attr]
        await tui.press("enter")
        await tui.until(lambda: bool(log.list_opened_hits()))
    assert log.list_opened_hits() == [OpenedHit("program", hit.ref, hit.chunk_id, 1)]


@pytest.mark.parametrize("pasted", ["make\r\n  tests\n", "make\rtests"])
async def test_pasted_lines_become_one(book: Builder, pasted: str) -> None:
    async with running(book.root) as tui:
        await tui.press("slash")
        tui.app.post_message(events.Paste(pasted))
        await tui.until(lambda: asked(tui) == "make tests")
        await tui.until_hits()


async def test_filters_and_their_values_are_completed(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("slash")
        await tui.type("make top")
        await tui.until("Tab completes: topic:")
        await tui.press("tab")
        await tui.until(lambda: asked(tui) == "make topic:")
        await tui.until("project Project Handbook")
        await tui.type("sn")
        await tui.until("Tab completes: snippets")
        await tui.press("tab")
        await tui.until(lambda: asked(tui) == "make topic:snippets")
        # With nothing to complete, Tab does not take the following letters from the input.
        await tui.until(lambda: "Tab completes" not in tui.text)
        await tui.press("tab")
        assert "There is nothing to complete." in tui.text
        await tui.type(" :")
        assert asked(tui) == "make topic:snippets :"


async def test_tab_leaves_an_empty_input(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("slash")
        await tui.until("FILTERS")
        await tui.press("tab")
        assert tui.app.focused is tui.main.results_pane.list


async def test_tab_takes_a_value_that_contains_the_typed_letters(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("slash")
        await tui.type("topic:ojec")
        await tui.press("tab")
        assert asked(tui) == "topic:project"
        await tui.press("escape", "1", "f")
        entry = tui.main.library_pane.filter.input
        await tui.type("agent:p")
        await tui.press("tab")
        assert entry.value == "agent:jp"
        await tui.press("tab", "tab")
        assert tui.app.focused is entry


async def test_tab_in_the_palette_takes_no_letter_from_its_input(book: Builder) -> None:
    from kbtui.tui.command_palette import CommandPaletteScreen

    async with running(book.root) as tui:
        await tui.press("ctrl+p")
        palette = tui.app.screen
        assert isinstance(palette, CommandPaletteScreen)
        await tui.type("the")
        await tui.press("tab")
        await tui.type("me")
        assert palette.input.value == "theme"


async def test_a_wrong_filter_is_pointed_at(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("slash")
        await tui.type("make topic:nosuch")
        await tui.until("unknown topic 'nosuch'")
        # Nothing was searched, neither by keywords nor by meaning.
        assert "0 hits" not in tui.text
        assert "keywords and meaning" not in tui.text
        assert not tui.main.results_pane.list.rows


async def test_an_unfinished_filter_is_ignored_and_a_wrong_one_shows_no_hits(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("slash")
        await tui.type("make agent:open")
        await tui.until("No results.")
        await tui.press("backspace", "backspace", "backspace", "backspace")
        await tui.type("nonsense")
        await tui.until("unknown agent 'nonsense'")
        assert not tui.main.results_pane.list.rows
        await tui.press(*["backspace"] * len("agent:nonsense"))
        await tui.type("topic:sn")
        await tui.until_hits()


async def test_while_the_first_index_is_made_a_search_says_so_and_how_far_it_is(
    book: Builder,
) -> None:
    async with running(book.root) as tui:
        await tui.until("keywords only: not in this test")
        tui.main.change_listener.stop_listening_to_engine()
        status: Any = tui.main.status
        status.show_engine_event({"event": "ready", "lexical": False})
        tui.main.change_listener.handle_engine_event(
            {"event": "progress", "phase": "keywords", "done": 5, "total": 80}
        )
        await tui.press("slash")
        await tui.type("xyzzyplugh")
        await tui.until("indexing 5 of 80")
        tui.main.change_listener.handle_engine_event(
            {"event": "progress", "phase": "keywords", "done": 60, "total": 80}
        )
        await tui.until("indexing 60 of 80")
        # The engine is killed, so the search waits for it no longer.
        tui.main.change_listener.handle_engine_event(
            {"event": "gone", "reason": "the engine went away"}
        )
        tui.main.search.query = ""
        tui.main.search.search_new_query("xyzzyplug")
        await tui.until("No results.")
        assert "looking" not in tui.text


async def test_a_question_asked_again_for_another_index_is_logged_once(book: Builder) -> None:
    async with running(book.root) as tui:
        asker = tui.main.search
        await search(tui, "make")
        before = await answered(tui)
        asker.log_current_query()
        for _ in range(2):
            asker.repeat_search()
            before = await answered(tui, before)
            asker.log_current_query()
        await tui.until(lambda: times(book, "make") > 0)
        await tui.pilot.pause(0.2)
        assert times(book, "make") == 1
        # After another query it is a new search.
        await tui.type("x")
        await tui.press("backspace")
        await answered(tui)
        asker.log_current_query()
        await tui.until(lambda: times(book, "make") == 2)


async def answered(tui: Tui, before: object = None) -> object:
    """Wait until the search by keywords and meaning has answered the query, other than with `before`."""
    pane, asker = tui.main.results_pane, tui.main.search

    def is_answered() -> bool:
        answer = pane.answer
        is_new = answer is not None and answer is not before and answer.query == asker.query
        return is_new and answer.mode == asker.mode  # type: ignore[union-attr]

    await tui.until(is_answered)
    return pane.answer


async def settle(tui: Tui) -> None:
    """Wait until the query is fully answered and nothing more is about to be logged."""
    await answered(tui)
    await tui.pilot.pause(0.2)


async def test_what_was_typed_on_the_way_to_a_query_is_not_logged(book: Builder) -> None:
    log = UserData(book.workspace).query_log
    async with running(book.root, size=(160, 40)) as tui:
        asker = tui.main.search
        await search(tui, "mak")
        await tui.until_hits()
        await settle(tui)
        assert log.list_recent_tui_queries() == [], "a short pause is no search"
        await tui.type("e")
        await settle(tui)
        asker.log_current_query()  # the user has paused
        await settle(tui)
        assert log.list_recent_tui_queries() == ["make"]
        # The user has only paused: the longer query takes the place of its beginning.
        await tui.type(" tests")
        await settle(tui)
        asker.log_current_query()
        await settle(tui)
        assert log.list_recent_tui_queries() == ["make tests"]
        # After its results were used, a longer query is another search.
        await tui.press("enter")
        await tui.until(lambda: tui.main.panes.focused_pane_id == "reader")
        await tui.press("slash", "end")
        await tui.type(" start")
        await settle(tui)
        asker.log_current_query()
        await settle(tui)
        assert log.list_recent_tui_queries() == ["make tests start", "make tests"]
        # Several hits are selected, one after the other: that alone is no search either.
        await tui.press("escape", "slash")
        await tui.type("program")
        await settle(tui)
        await tui.press("down")
        await settle(tui)
        assert "program" not in log.list_recent_tui_queries()
        await tui.press("enter")
        await tui.until(lambda: "program" in log.list_recent_tui_queries())


async def test_a_query_with_a_wrong_filter_is_no_earlier_search_until_a_hit_is_opened(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbtui.tui.main.search_controller.LOG_DELAY_SECONDS", 0.01)
    log = UserData(book.workspace).query_log
    async with running(book.root, size=(160, 40)) as tui:

        async def type_query(query: str) -> None:
            await tui.press("slash")
            tui.main.query_one("#search", Input).value = query
            await tui.pilot.pause()

        for query in ("topik:p", "make topic:nosuch", "make topic:"):
            await type_query(query)
            await settle(tui)
            assert log.list_recent_tui_queries() == [], query
        await type_query("make")
        await tui.until(lambda: log.list_recent_tui_queries() == ["make"])
        await type_query("make topik:p")
        await settle(tui)
        await tui.press("enter")
        await tui.until(lambda: log.list_recent_tui_queries()[0] == "make topik:p")


async def test_a_line_that_an_expression_finds_opens_at_its_number(book: Builder) -> None:
    text = "# Rules\n\n1. **Lock before** you take the `flock` first.\n\nfirst line\nsecond line of it\nthird\n"
    book.subject("project/rules.md", text)
    async with running(book.root, size=(80, 24)) as tui:
        # The first expression matches Markdown marks, which the reader does not show.
        for expression, line in (("/the .flock. first/", 3), ("/second line of/", 6)):
            await tui.press("slash", "ctrl+u")
            await tui.type(expression)
            await tui.until(f"{line}  │")
            await tui.press("enter")
            await tui.until(lambda: tui.main.panes.focused_pane_id == "reader")
            await tui.until(f" project/rules:{line} ─╯")


async def test_an_expression_has_no_mode_and_no_rank_to_explain(book: Builder) -> None:
    async with running(book.root, size=(120, 30)) as tui:
        await search(tui, "make")
        await tui.press("escape")
        await tui.until("m mode: both")
        await tui.press("slash", "ctrl+u")
        await tui.type("/make t/")
        await tui.until("matching lines")
        await tui.press("escape")
        await tui.until("Esc close")
        assert "mode" not in tui.text
        await tui.press("m")
        await tui.until(
            "Search modes do not apply to regular expressions: they only find matching lines."
        )
        assert tui.main.search.mode == "hybrid"
        await tui.press("a")
        await tui.until("have no rank to explain")


async def test_a_quotation_mark_that_is_not_closed_is_pointed_out(book: Builder) -> None:
    async with running(book.root, size=(120, 30)) as tui:
        await tui.press("slash", "quotation_mark")
        await tui.type("make tests")
        await tui.until('The last " is not closed')
        await tui.press("quotation_mark")
        await tui.until(lambda: "is not closed" not in tui.text)


async def test_typing_replaces_the_last_query_and_deleting_it_lists_earlier_searches(
    book: Builder,
) -> None:
    async with running(book.root, size=(120, 30)) as tui:
        await search(tui, "make")
        assert "earlier searches" not in tui.text
        await tui.press("escape", "slash")
        await tui.until("⌫ clear: earlier searches")
        await tui.type("st")
        assert asked(tui) == "st"
        await tui.until(lambda: "earlier searches" not in tui.text)
        await tui.press("escape", "slash", "backspace")
        await tui.until("FILTERS")
        assert asked(tui) == ""


async def test_the_outline_is_that_of_the_selected_hit(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        await tui.open("project/style")
        await search(tui, "welcome in:conversations")
        await tui.until_hits()
        await tui.press("escape", "O")
        await tui.until(lambda: tui.main.panes.is_outline_open)
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == TALK)
        await tui.until(lambda: any("Thanks." in row for row in tui.rows("outline-list")))
        here = tui.main.reader_pane.viewport.current_reference
        await tui.press("down", "escape")
        await tui.until(lambda: not tui.main.panes.is_outline_open)
        assert tui.main.reader_pane.viewport.current_reference == here == f"{TALK}:3"


async def test_without_a_hit_there_is_no_outline_of_the_results(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        await search(tui, "xyzzyplugh")
        await tui.press("escape", "O")
        await tui.until("No hit is selected, so there is no outline.")
        assert not tui.main.panes.is_outline_open


async def test_filters_say_where_a_regular_expression_looks(book: Builder) -> None:
    book.subject("snippets/two.md", "# Two\n\nRetries are two.\n")
    async with running(book.root, size=(120, 40)) as tui:

        async def list_hits(query: str) -> set[str]:
            await tui.press("slash")
            tui.main.query_one("#search", Input).value = query
            pane = tui.main.results_pane
            await tui.until(lambda: pane.answer is not None and pane.answer.query == query)
            answer = pane.answer
            assert answer is not None
            assert answer.has_notice("regular_expression"), query
            return {hit.title for hit in answer.hits}

        assert {"Two", "Retries"} <= await list_hits("/retr(y|ies)/")
        assert await list_hits("/retr(y|ies)/ topic:snippets title:two") == {"Two"}
        assert "Two" not in await list_hits("-topic:snippets /retr(y|ies)/")
        assert await list_hits("in:conversations /retr(y|ies)/") == {"Retries"}
        assert await list_hits("/^old$/ is:archived") == {"Old talk"}
        for wrong, said in (
            ("/retr/ topic:nosuch", "unknown topic 'nosuch'"),
            ("/retr/ role:user", "role: cannot be combined with a regular"),
        ):
            await tui.press("slash")
            tui.main.query_one("#search", Input).value = wrong
            await tui.until(said)
