"""The reader pane: turns, folds, finding, views, and keeping the current line."""

import pytest
from support import Builder, asked, said
from tui_support import Tui, running

TALK = "jp-c17800000001"


def line(tui: Tui) -> str:
    found = tui.main.reader_pane.document_view.viewport.current_styled_line
    return found.plain.strip() if found else ""


async def test_a_conversation_shows_turns_speakers_and_folded_calls(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(TALK)
        text = tui.text
        assert "─ turn 1 ─" in text
        assert "─ turn 2 ─" in text
        assert "You" in text
        assert "JP" in text
        assert "How do I start?" in text
        assert "▸ reasoning The user is new here." in text
        assert "▸ learn  project/start" in text
        assert "▸ fs_read_file  Makefile" in text
        assert "▸ ✗ shell  make hepl" in text
        assert "error, 14 chars" in text
        # Folded: neither the result nor the full reasoning is shown.
        assert "no such target" not in text
        assert "Run make, then read style." in text


async def test_enter_unfolds_and_folds_at_the_cursor(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(TALK)
        while "shell" not in line(tui):
            await tui.press("j")
        await tui.press("enter")
        assert "no such target" in tui.text
        assert "command: make hepl" in tui.text
        assert "all:" not in tui.text
        await tui.press("j", "j", "enter")
        assert "no such target" not in tui.text
        assert "shell" in line(tui)


async def test_all_tool_calls_and_all_reasoning_unfold_by_kind(book: Builder) -> None:
    async with running(book.root, size=(120, 60)) as tui:
        await tui.open(TALK)
        await tui.press("t")
        assert "no such target" in tui.text
        assert "all:" in tui.text
        assert "Look it up." in tui.text  # in the folded line
        await tui.press("r")
        assert tui.text.count("The user is new here. Look it up.") == 2
        await tui.press("t", "r")
        assert "no such target" not in tui.text


async def test_a_key_for_folds_does_nothing_where_there_are_none(book: Builder) -> None:
    async with running(book.root, size=(120, 24)) as tui:
        await tui.press("2")
        assert tui.text.split("\n")[-1].startswith(" Enter open ")
        await tui.press("t")
        await tui.until("No tool calls here.")
        await tui.press("r")
        await tui.until("No reasoning here.")
        await tui.open(TALK)
        assert "no such target" not in tui.text
        assert "Enter" not in tui.text.split("\n")[-1]
        await tui.open(f"{TALK}:1.3")
        assert tui.text.split("\n")[-1].startswith(" Enter unfold ")


async def test_n_goes_from_turn_to_turn_and_the_header_says_which(book: Builder) -> None:
    async with running(book.root, size=(120, 24)) as tui:
        await tui.open(TALK)
        await tui.press("n")
        assert "turn 1 of 3" in tui.text
        await tui.press("n")
        assert "turn 2 of 3  And the tests?" in tui.text
        assert tui.main.reader_pane.border_subtitle is not None
        assert f"{TALK}:2" in str(tui.main.reader_pane.border_subtitle)
        await tui.press("n", "n", "n")
        assert "turn 3 of 3  Thanks." in tui.text
        await tui.press("N")
        assert "turn 2 of 3" in tui.text


async def test_the_header_shows_a_request_as_plain_text(book: Builder) -> None:
    talk = [[asked("With `2c1f006` merged, *why* #3 of a_b?"), said("So.")]]
    book.conversation(6, talk, title="Marks")
    async with running(book.root, size=(120, 24)) as tui:
        await tui.open("jp-c17800000006")
        await tui.press("n")
        await tui.until("turn 1 of 1  With 2c1f006 merged, why #3 of a_b?")


async def test_finding_counts_walks_and_unfolds(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(TALK)
        await tui.press("f")
        await tui.type("make")
        await tui.until("1 of 6")
        assert tui.app.focused is tui.main.query_one("#find")
        await tui.press("enter", "n")
        await tui.until("2 of 6")
        assert "make" in line(tui).lower()
        # The second match is in a folded tool call, which is open now.
        await tui.press("n", "n", "n", "n")
        await tui.until("6 of 6")
        await tui.press("n")
        await tui.until("1 of 6")
        await tui.press("N")
        await tui.until("6 of 6")
        await tui.press("escape")
        assert " of 6" not in tui.text
        assert "turn 2 of 3" in tui.text
        await tui.press("f")
        assert "no match" not in tui.text
        await tui.type("zzz")
        await tui.until("no match")
        assert "then n/N" not in tui.text
        await tui.press("enter")
        await tui.until("n next turn")
        assert "next match" not in tui.text


async def test_a_subject_shows_rendered_with_its_facts_and_its_size(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/start")
        text = tui.text
        assert "title  Getting started" in text
        assert "tags   first, steps" in text
        assert "---" not in text
        assert "**run**" not in text
        assert "run. See make help." in text
        assert "step  │ command" in text
        assert "build │ make" in text
        assert "characters ≈" in text
        assert "tokens" in text
        assert "1. Read the style." in text
        assert "def main() -> int:" in text
        assert "```" not in text


async def test_the_names_of_views_are_not_cut_in_a_narrow_reader(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        await tui.open("project/start")
        (header,) = (row for row in tui.text.split("\n") if "read source" in row)
        assert "read source learn" in header
        assert header.endswith("≈ 70 tokens │")
        await tui.pilot.resize_terminal(120, 24)
        await tui.until("281 characters ≈ 70 tokens")


async def test_a_key_cycles_through_the_views(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("snippets/retry")
        assert "1  [retry]" in tui.text
        await tui.press("v", "v")
        await tui.until("```toml")
        assert tui.main.reader_pane.document_view.document.view == "learn"
        await tui.press("v")
        await tui.until(lambda: "```toml" not in tui.text)
        await tui.open("project/start")
        await tui.press("v")
        await tui.until("**run**")
        assert "tags: [first, steps]" in tui.text
        expected = tui.app.library.load_knowledge().learn("project", ["start"]).text
        await tui.press("v")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.view == "learn")
        shown = tui.main.reader_pane.document_view.document
        assert "".join(block.get_searchable_text() for block in shown.blocks) == expected


async def test_the_whole_prompt_shows_with_its_cost(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("p")
        await tui.until("<knowledge>")
        prompt = tui.app.library.load_knowledge().format_knowledge_section()
        assert prompt
        assert f"{len(prompt):,} characters" in tui.text
        shown = tui.main.reader_pane.document_view.document
        assert "".join(block.get_searchable_text() for block in shown.blocks) == prompt


async def test_badges_name_hidden_preloaded_and_disabled_subjects(book: Builder) -> None:
    async with running(book.root) as tui:
        for ref, word in (
            ("project/secret", "hidden"),
            ("project/style", "pre-loaded"),
            ("project/old", "disabled"),
        ):
            await tui.open(ref)
            assert f"● {word}" in tui.text


async def test_a_topic_page_shows_what_learn_lists(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project")
        text = tui.text
        assert "what everybody here should know" in text
        assert "Available subjects" in text
        page = "".join(
            b.get_searchable_text() for b in tui.main.reader_pane.document_view.document.blocks
        )
        assert "style" in page, "what is pre-loaded is listed, as for an assistant"
        assert "4 subjects, 1 hidden, 1 pre-loaded, 1 disabled" in page


async def test_back_and_forward_return_to_the_current_line(book: Builder) -> None:
    async with running(book.root, size=(100, 24)) as tui:
        await tui.open(TALK)
        await tui.press("n", "n")
        at = line(tui)
        await tui.open("project/start")
        await tui.press("left_square_bracket")
        await tui.until("First steps")
        await tui.until(lambda: line(tui) == at)
        await tui.press("right_square_bracket")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == "project/start")
        await tui.press("right_square_bracket")
        assert "Nothing to go forward to" in tui.text


async def test_y_copies_the_reference_of_the_current_line(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(TALK)
        while "shell" not in line(tui):
            await tui.press("j")
        await tui.press("y")
        assert tui.app.clipboard == f"{TALK}:1.3"
        assert f"Copied {TALK}:1.3" in tui.text
        await tui.open("project/start")
        while "Getting started" not in line(tui) or "title" in line(tui):
            await tui.press("j")
        await tui.press("y")
        assert tui.app.clipboard == "project/start:6"


async def test_a_new_width_keeps_the_current_line(book: Builder) -> None:
    words = " ".join(f"word{n}" for n in range(3000))
    book.conversation(6, [[asked("Long?"), said(words)]], title="Long talk")
    async with running(book.root, size=(120, 30)) as tui:
        await tui.open("jp-c17800000006")
        for _ in range(12):
            await tui.press("ctrl+d")
        first = line(tui).split()[0]
        for width, height in ((80, 24), (140, 50), (50, 16), (120, 30)):
            await tui.pilot.resize_terminal(width, height)
            await tui.until(lambda: first in line(tui).split() and first in tui.text)


async def test_a_deleted_document_says_so(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("f")
        await tui.press("escape")
        (book.root / "docs" / "project" / "start.md").unlink()
        tui.main.library_pane.list.select_row("project/start")
        await tui.press("enter")
        await tui.until("there is no subject 'project/start'")
        await tui.open("jp-c17800000099")
        await tui.until("! ")


async def test_a_text_stays_while_its_file_is_gone_and_the_position_when_it_returns(
    book: Builder,
) -> None:
    text = "# Long\n\n" + "".join(f"Paragraph {number}.\n\n" for number in range(200))
    path = book.subject("project/long.md", text)
    async with running(book.root, size=(120, 30)) as tui:
        await tui.open("project/long")
        await tui.press("2", "ctrl+d", "ctrl+d", "ctrl+d", "j")
        here = line(tui)
        assert "Paragraph" in here
        for _ in range(2):
            path.unlink()
            await tui.press("ctrl+r")
            await tui.until("project/long was deleted or renamed. This is its last")
            assert line(tui) == here
            path.write_text(text)
            await tui.press("ctrl+r")
            await tui.until(lambda: "was deleted or renamed" not in tui.text)
            assert line(tui) == here


@pytest.mark.parametrize("view", ["read", "source"])
async def test_an_edit_above_keeps_the_current_line(book: Builder, view: str) -> None:
    words = "many words that take several lines of a narrow column"
    rows = "".join(f"| row {n} | {words} {n} | {words} |\n" for n in range(9))
    start, end = ("".join(f"{word} {n}\n\n" for n in range(30)) for word in ("start", "end"))
    text = f"# Long\n\n{start}| a | b | c |\n|---|---|---|\n{rows}\n{end}"
    async with running(book.root, size=(80, 24)) as tui:
        viewport = tui.main.reader_pane.viewport
        for wanted in ("start 7", "row 5", "end 3", "end 20"):
            path = book.subject("project/long.md", text)
            await tui.open("project/long")
            if view == "source":
                await tui.press("v")
                await tui.until(lambda: viewport.document.view == "source")
            number = next(n for n, row in enumerate(text.split("\n"), 1) if wanted in row)
            tui.main.reader_pane.go_to_turn_or_line_number(str(number))
            if "row" in wanted:
                await tui.press("down")
            here = line(tui).lstrip("0123456789 ")
            path.write_text(
                "New.\n\n" * 4 + text.replace("end 9", "changed").replace("end 0\n", "")
            )
            before = viewport.document
            await tui.press("ctrl+r")
            await tui.until(lambda before=before: viewport.document is not before)
            assert here
            assert line(tui).lstrip("0123456789 ") == here
            await tui.open("project/style")


async def test_the_last_text_of_a_deleted_file_is_not_lost_by_asking_for_another_view(
    book: Builder,
) -> None:
    path = book.subject("project/short.md", "# Short\n\nThe last text.\n")
    talk = book.conversation(7, [[asked("Keep me?"), said("Yes, kept.")]], title="Kept")
    async with running(book.root, size=(120, 30)) as tui:
        for ref, text in (("project/short", "The last text."), ("jp-c17800000007", "Yes, kept.")):
            await tui.open(ref)
            await tui.until(text)
            if ref == "project/short":
                path.unlink()
            else:
                for file in talk.iterdir():
                    file.unlink()
                talk.rmdir()
            await tui.press("2", "ctrl+r")
            await tui.until(f"{ref} was deleted or renamed. This is its")
            await tui.press("C")
            await tui.until("Only this text is left, so there is no other view.")
            assert text in tui.text
        await tui.press("left_square_bracket")
        await tui.until("there is no subject 'project/short'")


async def test_the_cursor_on_the_home_page_stops_at_lines_that_open_something(
    book: Builder,
) -> None:
    async with running(book.root, size=(120, 40)) as tui:
        await tui.press("2")
        await tui.until("Recent conversations")
        view = tui.main.reader_pane.document_view
        links = [block for block in view.document.blocks if block.link]
        seen = []
        for _ in links:
            here = view.document.blocks[view.viewport.cursor.block]
            assert here.link is not None, line(tui)
            seen.append(here.key)
            await tui.press("j")
        assert seen == [block.key for block in links]
        for key in ("g", "G", "ctrl+d", "ctrl+u", "k"):
            await tui.press(key)
            assert view.document.blocks[view.viewport.cursor.block].link is not None, key


async def test_all_lines_of_the_home_page_can_be_read_in_a_low_terminal(book: Builder) -> None:
    (book.root / ".jp" / "kb.toml").write_text("no TOML")
    async with running(book.root, size=(80, 14)) as tui:
        await tui.press("2")
        await tui.until("None of the topics can be read")
        seen = tui.text
        for _ in range(40):
            await tui.press("j")
            seen += tui.text
        assert "kb.toml" in seen
        for _ in range(40):
            await tui.press("k")
        assert "search everything" in tui.text


async def test_home_leads_to_topics_and_conversations(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("2")
        while "Retries" not in line(tui):
            await tui.press("j")
        await tui.press("enter")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.title == "Retries")


async def test_home_counts_disabled_subjects_as_the_doctor_does(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("H")
        await tui.until(" 5 subjects, 1 hidden, 1 disabled")
