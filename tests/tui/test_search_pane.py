"""Searching in the TUI: typing, hits, opening at the match, leaving."""

import re
from pathlib import Path
from typing import Any

import pytest
from support import Builder, asked, called, said
from tui_support import Tui, running

from kbtui.search.search_request_and_answer import Hit, SearchAnswer, SearchRequest


def hits(tui: Tui) -> list[str]:
    rows = tui.main.results_pane.list.rows
    return [row.data.ref for row in rows if isinstance(row.data, Hit)]


async def search(tui: Tui, words: str) -> None:
    await tui.press("slash")
    await tui.type(words)
    await tui.until(lambda: tui.main.results_pane.answer is not None)
    await tui.until(lambda: "by meaning …" not in tui.main.results_pane.query_one("#answer").text)  # type: ignore[attr-defined]


async def test_hits_show_while_typing_before_a_word_is_whole(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("slash")
        await tui.press(*"Clon")
        await tui.until(lambda: "project/start" in " ".join(hits(tui)))
        assert "Getting started" in tui.text


async def test_letters_in_the_input_are_text_and_escape_gives_them_back(book: Builder) -> None:
    async with running(book.root) as tui:
        await search(tui, "q ? [ 1 first/program")
        assert tui.main.query_one("#search").value == "q ? [ 1 first/program"  # type: ignore[attr-defined]
        await tui.until(lambda: bool(hits(tui)))
        await tui.press("escape")
        assert tui.app.focused is tui.main.results_pane.list
        await tui.press("j", "k", "escape")
        assert tui.app.focused is tui.main.library_pane.list
        assert "Results" not in tui.text


async def test_enter_opens_a_conversation_at_the_turn_with_the_match_marked(book: Builder) -> None:
    book.conversation(
        8,
        [[asked(f"Question {n}?"), said(f"Plain answer {n}. " * 30)] for n in range(20)]
        + [[asked("The odd one?"), said("Beware of the jabberwock, my son.")]],
        title="Many turns",
    )
    async with running(book.root, size=(80, 24)) as tui:
        await search(tui, "jabberwock")
        await tui.press("enter")
        await tui.until("Beware of the jabberwock")
        viewport = tui.main.reader_pane.document_view.viewport
        assert viewport.current_turn_number == 21
        assert viewport.current_styled_line is not None
        assert "jabberwock" in viewport.current_styled_line.plain
        assert any(
            "found" in role
            for text, role in viewport.current_styled_line.spans
            if text == "jabberwock"
        )
        assert tui.app.focused is tui.main.reader_pane.document_view


async def test_enter_opens_the_call_whose_result_has_the_match(book: Builder) -> None:
    calls = [called(f"c{n}", "shell", "the snark was here") for n in range(2)]
    calls.append(called("c2", "shell", "the snark was here", command="look"))
    talk = [asked("Where is it?"), *(event for call in calls for event in call), said("Gone.")]
    book.conversation(8, [talk], title="The hunt")
    async with running(book.root, size=(80, 24)) as tui:
        await search(tui, "snark arg:command=look ")
        await tui.until(lambda: hits(tui) == ["jp-c17800000008:1.3"])
        await tui.press("enter")
        await tui.until(
            lambda: tui.main.reader_pane.document_view.document.key == "jp-c17800000008"
        )
        reader = tui.main.reader_pane.document_view
        assert reader.viewport.current_reference == "jp-c17800000008:1.3"
        assert reader.viewport.current_styled_line is not None
        assert "snark" in reader.viewport.current_styled_line.plain


async def test_enter_opens_a_subject_at_the_lines(book: Builder) -> None:
    filler = "\n\n".join(f"## Part {n}\n\nNothing to see in part {n}." for n in range(200))
    book.subject("project/long.md", f"# Long\n\n{filler}\n\n## Odd\n\nA **quokka** smiles.\n")
    async with running(book.root, size=(80, 24)) as tui:
        await search(tui, "quokka")
        await tui.press("enter")
        await tui.until("A quokka smiles.")
        line = tui.main.reader_pane.document_view.viewport.current_styled_line
        assert line is not None
        assert "quokka" in line.plain


async def test_wide_screens_preview_and_leaving_returns_to_what_was_read(book: Builder) -> None:
    async with running(book.root, size=(140, 40)) as tui:
        await tui.open("project/people/ada")
        await search(tui, "three times")
        await tui.until("Retry how often?")
        assert tui.main.reader_pane.document_view.document.title == "Retries"
        await tui.press("escape", "escape")
        await tui.until(
            lambda: tui.main.reader_pane.document_view.document.key == "project/people/ada"
        )
        # A preview is not added to the history.
        await tui.press("2", "left_square_bracket")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == "home")


async def test_escape_goes_from_an_opened_hit_to_the_results_and_then_to_what_was_read(
    book: Builder,
) -> None:
    book.subject("project/two.md", "# Two\n\nThree times, or [retry](../snippets/retry.toml).\n")
    async with running(book.root, size=(140, 40)) as tui:
        await tui.open("project/people/ada")
        shown = tui.main.reader_pane.document_view
        await search(tui, "three times")
        await tui.press("down", "enter")
        await tui.until(lambda: tui.main.panes.focused_pane_id == "reader")
        opened = shown.document.key
        await tui.until("Esc to results")
        # What was opened after the hit is left first.
        await tui.press("H")
        await tui.until(lambda: shown.document.key == "home")
        await tui.press("escape")
        await tui.until(lambda: shown.document.key == opened)
        await tui.press("escape")
        await tui.until(lambda: tui.main.panes.focused_pane_id == "results")
        await tui.until("hit 2 of 3")
        await tui.until(lambda: shown.document.key == opened)
        await tui.press("escape")
        await tui.until(lambda: shown.document.key == "project/people/ada")
        assert not tui.main.search.is_results_pane_open
        await tui.press("right_square_bracket")
        await tui.until(lambda: shown.document.key == opened)


async def test_the_hints_say_that_escape_goes_from_a_hit_to_the_results(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        for query in ("tell me", "short sentences"):  # in a conversation, and in a subject
            await tui.press("slash")
            await search(tui, query)
            await tui.press("enter")
            await tui.until("Esc to results")


async def test_escape_ends_a_find_before_it_returns_to_the_results(book: Builder) -> None:
    async with running(book.root, size=(140, 40)) as tui:
        await search(tui, "three times")
        await tui.press("enter")
        await tui.until("Esc to results")
        await tui.press("f")
        await tui.type("how")
        await tui.press("enter")
        await tui.until("Esc clear find")
        await tui.press("escape")
        await tui.until("Esc to results")
        await tui.press("escape")
        await tui.until(lambda: tui.main.panes.focused_pane_id == "results")


async def test_after_another_query_escape_no_longer_returns_to_the_results(book: Builder) -> None:
    async with running(book.root, size=(140, 40)) as tui:
        await search(tui, "three times")
        await tui.press("enter")
        await tui.until("Esc to results")
        await tui.press("slash")
        await tui.type("short sentences")
        await tui.until_hits()
        await tui.press("escape", "escape")
        await tui.until(lambda: tui.main.panes.focused_pane_id == "reader")
        await tui.press("escape")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == "home")


@pytest.mark.parametrize(
    ("query", "reason"),
    [("xyzzyplugh", "No results. Try fewer words"), ("/mak(/", "invalid regular expression")],
    ids=["no hits", "a mistake"],
)
async def test_without_hits_the_preview_of_the_query_before_goes_away(
    query: str, reason: str, book: Builder
) -> None:
    async with running(book.root, size=(140, 40)) as tui:
        await tui.open("project/people/ada")
        reader = tui.main.reader_pane
        await search(tui, "three times")
        await tui.until(lambda: reader.document_view.document.title == "Retries")
        await tui.press("escape", "slash")
        await tui.type(query)
        await tui.until(lambda: reader.document_view.document.title == "No hits")
        await tui.until(lambda: tui.text.count(reason) == 2)
        assert "Retry how often?" not in tui.text
        # The next hit is previewed again, and leaving returns to what was read before.
        await tui.press("escape", "slash")
        await tui.type("three times")
        await tui.until(lambda: reader.document_view.document.title == "Retries")
        await tui.press("escape", "slash")
        await tui.type(query)
        await tui.until(lambda: reader.document_view.document.title == "No hits")
        await tui.press("escape", "escape")
        await tui.until(lambda: reader.document_view.document.key == "project/people/ada")


@pytest.mark.parametrize("query", ["Clone", "word"], ids=["another document", "the same document"])
async def test_leaving_the_results_returns_to_the_line_that_was_read(
    query: str, book: Builder
) -> None:
    lines = "\n\n".join(f"line {n}" for n in range(200))
    book.subject("project/long.md", f"# Long\n\nword\n\n{lines}\n")
    async with running(book.root, size=(140, 40)) as tui:
        await tui.open("project/long")
        reader = tui.main.reader_pane
        await tui.press("2", *["pagedown"] * 4)
        before = re.findall(r"line \d+", tui.text)
        assert before
        assert "line 0" not in before
        await search(tui, query)
        await tui.until(
            lambda: tui.main.document_controller.shown and tui.main.document_controller.shown.words
        )
        await tui.press("escape", "escape")
        await tui.until(lambda: reader.document_view.document.key == "project/long")
        await tui.until(lambda: re.findall(r"line \d+", tui.text) == before)


async def test_a_terminal_that_becomes_wide_previews_the_selected_hit(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        await tui.open("project/people/ada")
        await search(tui, "Clone")
        await tui.until(lambda: bool(hits(tui)))
        await tui.press("escape")
        hit = hits(tui)[0]
        assert hit.startswith("project/start")
        await tui.pilot.resize_terminal(120, 35)
        await tui.until("Clone, build")
        await tui.until(
            lambda: tui.main.document_controller.shown and tui.main.document_controller.shown.words
        )
        assert tui.main.reader_pane.document_view.document.key == "project/start"
        # It is a preview: leaving the results returns to what was read.
        await tui.press("escape")
        await tui.until("Wrote the first program.")


async def test_the_library_marks_a_hit_that_was_previewed_before_it_was_opened(
    book: Builder,
) -> None:
    async with running(book.root, size=(140, 40)) as tui:
        await tui.open("project/people/ada")
        library = tui.main.library_pane.list
        await search(tui, "three times")
        await tui.until("Retry how often?")
        assert library.selected_row
        assert library.selected_row.key == "project/people/ada"
        await tui.press("enter")
        await tui.until(lambda: not tui.main.has_class("searching"))
        assert library.selected_row.key == "jp-c17800000002"
        await tui.press("left_square_bracket")
        await tui.until(
            lambda: library.selected_row and library.selected_row.key == "project/people/ada"
        )


async def test_the_mode_and_what_is_missing_are_said_in_one_phrase(book: Builder) -> None:
    async with running(book.root) as tui:
        await search(tui, "sentences")
        assert "keywords only: not in this test" in tui.text
        await tui.press("escape", "m")
        await tui.until("Search mode: keywords")


async def test_nothing_found_says_what_to_try(book: Builder) -> None:
    async with running(book.root) as tui:
        await search(tui, "xyzzyplugh")
        await tui.until("No results.")
        assert "fewer words" in tui.text


async def test_hidden_subjects_are_found_only_while_they_are_shown(book: Builder) -> None:
    async with running(book.root) as tui:
        await search(tui, "hippopotamus")
        await tui.until("No results.")
        await tui.press("escape", "full_stop", "slash")
        await tui.until(lambda: any("project/secret" in ref for ref in hits(tui)))


async def test_a_refined_answer_keeps_the_selected_row(book: Builder) -> None:
    def hit(chunk: str) -> Hit:
        return Hit(
            f"project/{chunk}", "subject", f"e{chunk}", chunk, chunk.title(), f"text {chunk}", 1.0
        )

    async with running(book.root) as tui:
        await search(tui, "start")
        pane = tui.main.results_pane
        pane.show_search_answer(
            SearchAnswer("start", "hybrid", [hit("a"), hit("b"), hit("c")]), True, False
        )
        await tui.press("down")
        assert pane.list.selected_row
        assert pane.list.selected_row.key == "b"
        pane.show_search_answer(
            SearchAnswer("start", "hybrid", [hit("x"), hit("c"), hit("a"), hit("b")]), False, True
        )
        assert pane.list.selected_row.key == "b"
        pane.show_search_answer(SearchAnswer("start", "hybrid", [hit("x"), hit("c")]), False, True)
        assert pane.list.selected_row is not None


async def test_a_refined_answer_begins_with_the_best_hit_where_nobody_selected_one(
    book: Builder,
) -> None:
    def hit(chunk: str) -> Hit:
        return Hit(
            f"project/{chunk}", "subject", f"e{chunk}", chunk, chunk.title(), f"text {chunk}", 1.0
        )

    worded = [hit(f"w{number}") for number in range(20)]
    meant = [hit(f"m{number}") for number in range(19)]
    async with running(book.root, size=(80, 24)) as tui:
        await search(tui, "start")
        pane = tui.main.results_pane
        pane.show_search_answer(SearchAnswer("start", "hybrid", worded), True, False)
        await tui.pilot.pause()
        pane.show_search_answer(SearchAnswer("start", "hybrid", [*meant, worded[0]]), False, True)
        await tui.pilot.pause()
        assert pane.list.selected_row
        assert pane.list.selected_row.key == "m0"
        assert "M0" in tui.text


async def test_more_hits_come_as_one_goes_down_until_all_are_there(book: Builder) -> None:
    for number in range(75):
        book.subject(f"project/n{number:02}.md", f"# Note {number}\n\nA platypus, {number}.\n")
    async with running(book.root, size=(120, 35)) as tui:
        await search(tui, "platypus")
        await tui.until("Top 20 of 75 · ↓ for more")
        first = hits(tui)
        assert len(first) == 20
        for _ in range(19):
            await tui.press("down")
        await tui.until(lambda: len(hits(tui)) == 40)
        assert hits(tui)[:20] == first
        selected = tui.main.results_pane.list.selected_row
        assert selected
        assert selected.data.ref == first[19]
        await tui.press("escape", "G")
        await tui.until("75 hits")
        await tui.press("G", "enter")
        await tui.until(lambda: not tui.main.has_class("searching"))
        await tui.press("4")
        await tui.until("75 hits")
        question = SearchRequest("platypus", limit=100)
        assert hits(tui) == [found.ref for found in tui.app.library.search(question).hits]
        # Another query starts at its best hits again.
        await search(tui, "note platypus")
        await tui.until("Top 20 of 75")


async def test_the_last_of_many_long_documents_can_be_reached(book: Builder) -> None:
    for number in range(60):
        parts = [f"## S{part}\n\nA platypus, {part}. {'It swims. ' * 60}" for part in range(5)]
        text = "\n\n".join([f"# Note {number}", *parts])
        book.subject(f"project/n{number:02}.md", f"{text}\n")
    async with running(book.root, size=(120, 35)) as tui:
        await search(tui, "platypus")
        await tui.until(lambda: re.search(r"Top 20 of \d+\+ · ↓ for more", tui.text))
        await tui.press("escape", "G")
        await tui.until("hit 60 of 60")
        assert len(hits(tui)) == 60


async def test_the_wheel_brings_more_hits_too(book: Builder) -> None:
    for number in range(30):
        book.subject(f"project/n{number:02}.md", f"# Note {number}\n\nA platypus, {number}.\n")
    async with running(book.root, size=(120, 35)) as tui:
        await search(tui, "platypus")
        await tui.until("Top 20 of 30")
        found = tui.main.results_pane.list
        found.scroll_to(y=20, animate=False)
        await tui.until("30 hits")
        assert len(hits(tui)) == 30
        assert found.index == 0


async def test_all_that_is_similar_is_listed(book: Builder) -> None:
    for number in range(30):
        book.subject(
            f"project/n{number:02}.md", f"# Note {number}\n\nA platypus swims, {number}.\n"
        )
    async with running(book.root, size=(120, 35)) as tui:
        await tui.open("project/n00")
        await tui.press("s")
        await tui.until("Similar to ")
        answer = tui.main.results_pane.answer
        assert answer
        assert len(hits(tui)) == answer.total > 20
        assert "for more" not in tui.text


async def test_the_same_question_ranks_as_it_does_for_the_command(book: Builder) -> None:
    async with running(book.root) as tui:
        await search(tui, "make tests")
        answer = tui.app.library.search(SearchRequest("make tests", per_entry=1))
        assert answer.hits
        await tui.until(lambda: hits(tui) == [found.ref for found in answer.hits])


async def test_space_shows_all_passages_of_the_entry(book: Builder) -> None:
    async with running(book.root) as tui:
        await search(tui, "make tests")
        await tui.until("hits · ")
        every = tui.app.library.search(SearchRequest("make tests", limit=400)).hits
        first = [found.ref for found in every if found.entry_id == every[0].entry_id]
        assert len(first) > 2
        await tui.until(f"+{len(first) - 1}  ")
        folded = hits(tui)
        await tui.press("escape", "space")
        await tui.until(lambda: hits(tui) == [*first, *folded[1:]])
        await tui.press("space")
        await tui.until(lambda: hits(tui) == folded)


async def test_an_unfolded_entry_does_not_change_how_many_hits_there_are(book: Builder) -> None:
    """An answer with all passages has too few entries if the search finds more than 400 passages."""
    for name in ("long", "longer", "longest"):
        parts = (f"## Part {n}\n\nA platypus swims to {n}.\n" for n in range(200))
        book.subject(f"project/{name}.md", f"# All {name}\n\n" + "\n".join(parts))
    async with running(book.root, size=(120, 35)) as tui:
        await search(tui, "platypus")
        await tui.until("hit 1 of 3 ")
        assert "3 hits · 600 passages" in tui.text
        assert hits(tui)
        await tui.press("escape", "space")
        await tui.until(lambda: len(hits(tui)) > 100)
        # Beside the counts, a remark about the index may have come or gone.
        assert "3 hits · 600 passages" in tui.text
        await tui.press("G")
        await tui.until("hit 3 of 3 ")
        assert "The list ends" not in tui.text
        await tui.press("g", "space")
        await tui.until(lambda: len(hits(tui)) == 3)
        assert "3 hits · 600 passages" in tui.text


async def test_similar_entries_are_counted_as_entries(book: Builder) -> None:
    for number in range(4):
        parts = (f"## Part {n}\n\nA platypus swims to {n}.\n" for n in range(200))
        book.subject(f"project/n{number}.md", f"# Note {number}\n\n" + "\n".join(parts))
    async with running(book.root, size=(120, 35)) as tui:
        await tui.open("project/n0")
        await tui.press("s")
        await tui.until("Similar to ")
        await tui.until_hits()
        found = len(hits(tui))
        assert found < 20
        await tui.press("G")
        await tui.until(f"hit {found} of {found} ")
        await tui.press("g", "space")
        await tui.until(lambda: len(hits(tui)) > 100)
        await tui.until(f"hit 1 of {found} ")
        assert "Add words" not in tui.text


async def test_four_comes_back_to_the_results(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        await search(tui, "make")
        await tui.press("enter")
        await tui.until(lambda: not tui.main.has_class("searching"))
        await tui.press("4")
        assert tui.main.has_class("searching")
        assert tui.app.focused is tui.main.results_pane.list


async def test_enter_before_the_hits_are_there_opens_the_first_of_them(book: Builder) -> None:
    from threading import Event

    from tui_support import WithoutEngine

    from kbtui.workspace import load_settings

    released = Event()

    class Slow(WithoutEngine):
        def search_by_keywords(self, question: SearchRequest) -> SearchAnswer:
            released.wait(30)
            return super().search_by_keywords(question)

        def search(
            self,
            question: SearchRequest,
            wait: float = 10.0,
            *,
            origin: str | None = None,
            caller: str | None = None,
        ) -> SearchAnswer:
            return self.search_by_keywords(question)

    async with running(book.root, library=Slow(book.workspace, load_settings())) as tui:
        await tui.press("slash")
        await tui.type("program")
        await tui.until(lambda: "Searching …" in tui.text or "No index yet" in tui.text)
        await tui.press("enter")
        assert tui.main.has_class("searching")
        released.set()
        await tui.until(
            lambda: tui.main.reader_pane.document_view.document.key == "project/people/ada"
        )
        assert not tui.main.has_class("searching")


async def test_hits_come_by_themselves_when_a_private_index_is_complete(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threading import Event

    from tui_support import WithoutEngine

    from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
    from kbtui.workspace import load_settings

    released, refresh = Event(), WorkspaceIndexWriter.refresh_index

    def slowly(self: WorkspaceIndexWriter, **more: Any) -> Any:
        released.wait(30)
        return refresh(self, **more)

    monkeypatch.setattr(WorkspaceIndexWriter, "refresh_index", slowly)
    monkeypatch.setattr("kbtui.library.index_and_engine_access.PATIENCE_SECONDS", 0.0)
    library = WithoutEngine(book.workspace, load_settings())
    async with running(book.root, library=library) as tui:
        await tui.press("slash")
        await tui.type("program")
        await tui.until(lambda: tui.main.results_pane.answer is not None)
        assert not hits(tui)
        released.set()
        await tui.until(lambda: bool(hits(tui)))
        assert "still being built" not in tui.text


async def test_a_failing_search_says_why_and_the_next_one_works(book: Builder) -> None:
    from tui_support import WithoutEngine

    from kbtui.errors import IndexUnavailable
    from kbtui.workspace import load_settings

    class Broken(WithoutEngine):
        broken = True

        def search_by_keywords(self, question: SearchRequest) -> SearchAnswer:
            if self.broken:
                raise IndexUnavailable("[/b] the disk is full", hint="make room")
            return super().search_by_keywords(question)

        def search(self, question: SearchRequest, wait: float = 10.0, **more: Any) -> SearchAnswer:
            return self.search_by_keywords(question)

    library = Broken(book.workspace, load_settings())
    async with running(book.root, library=library) as tui:
        await tui.press("slash")
        await tui.type("program")
        await tui.until("The search failed: [/b] the disk is full (make room)")
        library.broken = False
        await tui.type(" first")
        await tui.until(lambda: bool(hits(tui)))


async def test_where_there_is_nothing_to_search_that_is_said_once(workspace_root: Path) -> None:
    async with running(workspace_root, size=(80, 24)) as tui:
        await tui.press("slash")
        await tui.type("word")
        await tui.until("Nothing to search: there are no subjects or conversations")
        assert tui.text.casefold().count("nothing to search") == 1
        assert "fewer words" not in tui.text
