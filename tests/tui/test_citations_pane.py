"""The citations pane: both directions, numbers, and why it is empty."""

from pathlib import Path

from claude_sessions import answered, call, result, session_id, typed, write_session
from support import Builder, asked, called, said
from tui_support import running

TALK = "jp-c17800000001"


async def test_a_turn_lists_what_it_used_with_footnotes_in_the_text(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(TALK)
        await tui.until(lambda: any("[1]" in row for row in tui.rows("citations-list")))
        rows = tui.rows("citations-list")
        assert rows[0] == "CITED IN TURN 1"
        assert rows[1].startswith("[1] Getting started")
        assert rows[2:4] == ["read with file tools", "[2] Makefile"]
        assert "learned · " in tui.text
        assert "ect/start" in tui.text, "the start of a path is cut, not its end"
        assert "gone" not in tui.text
        call = next(row for row in tui.text.split("\n") if "▸ learn" in row)
        assert "[1]" in call


async def test_the_hints_are_those_of_the_selected_row(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(TALK)
        await tui.until(lambda: any("[2]" in row for row in tui.rows("citations-list")))
        await tui.press("3")
        await tui.until("C what has changed")
        await tui.press("j")
        await tui.until("e edit")
        assert "C what has changed" not in tui.text


async def test_without_the_pane_a_line_of_the_reader_says_what_the_turn_used(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        await tui.open(TALK)
        await tui.until("turn 1 cited: learned ≠ start · read Makefile")
        await tui.press("n")
        await tui.until(" cited: learned ≠ project/start · read Makefile")
        assert "turn 1 cited" not in tui.text, "the header names the turn"
    async with running(book.root, size=(103, 24)) as tui:
        await tui.open(TALK)
        await tui.until("learned project/start (changed since) · read Makefile")
        await tui.press("n", "n")
        await tui.until("cited nothing: no tool calls")
        await tui.press("3")
        await tui.until("CITED IN TURN 2")
        assert "cited nothing" not in tui.text, "the pane says it"
        await tui.press("2", "1")
        await tui.until("cited nothing")
        await tui.open("project/style")
        await tui.until(lambda: "cited nothing" not in tui.text)


async def test_the_line_names_subjects_first_and_counts_what_has_no_room(book: Builder) -> None:
    paths = ["a/lib.rs", "b/lib.rs", *(f"src/module_{n}.rs" for n in range(9))]
    calls = [
        call
        for n, path in enumerate(paths)
        for call in called(f"f{n}", "fs_read_file", "x", path=path)
    ]
    subjects = [
        *called("s", "learn", "# Style", topic="project", subjects="style"),
        *called("t", "fs_read_file", "# Ada", path="docs/project/people/ada.md"),
    ]
    book.conversation(9, [[asked("Read"), *calls, *subjects]], title="Many")
    async with running(book.root, size=(80, 24)) as tui:
        await tui.open("jp-c17800000009:1")
        await tui.until("cited: learned ≠ style · read ")
        await tui.until("· read ada +11")
        await tui.pilot.resize_terminal(82, 24)
        await tui.until("· read ada, lib.rs ×2 +9")


async def test_a_conversation_that_cannot_be_read_has_no_turn_that_cites(book: Builder) -> None:
    for size in ((80, 24), (160, 40)):
        async with running(book.root, size=size) as tui:
            await tui.open("jp-c17800000005")
            await tui.until(lambda: not tui.main.citations_pane.is_loading_citations)
            await tui.until("This conversation cannot be read.")
            assert "turn 0" not in tui.text.lower()


async def test_beside_the_pane_and_in_a_low_terminal_the_reader_has_no_line_of_citations(
    book: Builder,
) -> None:
    for size in ((120, 40), (80, 13)):
        async with running(book.root, size=size) as tui:
            await tui.open(TALK)
            await tui.until(lambda: not tui.main.citations_pane.is_loading_citations)
            assert "cited: learned" not in tui.text


async def test_it_follows_the_turn_one_reads_and_says_why_it_is_empty(book: Builder) -> None:
    async with running(book.root, size=(120, 24)) as tui:
        await tui.open(TALK)
        await tui.press("n", "n")
        await tui.until(lambda: tui.rows("citations-list")[0] == "CITED IN TURN 2")
        await tui.until(lambda: "No tool calls in" in " ".join(tui.rows("citations-list")))


async def test_a_turn_that_looked_and_found_nothing_says_that(book: Builder) -> None:
    book.conversation(
        7,
        [
            [
                asked("Know it?"),
                *called("s", "knowledge_search", "nothing", query="xyzzy"),
                said("No."),
            ],
            [asked("List?"), *called("l", "shell", "a b", command="ls"), said("a, b")],
        ],
        title="In vain",
    )
    async with running(book.root) as tui:
        await tui.open("jp-c17800000007")
        await tui.until("The tool calls in")
        await tui.press("n", "n")
        await tui.until("The tool call in this")


async def test_opening_a_citation_follows_it_and_back_returns(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(TALK)
        await tui.until(lambda: any("[1]" in row for row in tui.rows("citations-list")))
        await tui.press("3", "enter")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == "project/start")
        # The other direction: the turn that used this subject, by its conversation's name.
        await tui.until(lambda: any("First steps" in row for row in tui.rows("citations-list")))
        assert "turn 1 · 28 May" in tui.text
        await tui.press("3", "enter")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == TALK)
        await tui.press("left_square_bracket")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == "project/start")


async def test_a_file_that_is_no_subject_opens_where_it_was_read(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(TALK)
        await tui.until(lambda: any("Makefile" in row for row in tui.rows("citations-list")))
        await tui.press("3", "j", "enter")
        await tui.until("all:")
        assert tui.main.reader_pane.document_view.viewport.current_reference == f"{TALK}:1.2"


async def test_a_subject_that_nobody_used_says_so(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/people/ada")
        await tui.until("No turn cites this")


async def test_what_is_gone_shows_as_gone(book: Builder) -> None:
    (book.root / "docs" / "project" / "start.md").unlink()
    async with running(book.root) as tui:
        await tui.open(TALK)
        await tui.until(lambda: any("[1]" in row for row in tui.rows("citations-list")))
        assert "no longer there" in tui.text
        await tui.press("3", "enter")
        assert tui.main.reader_pane.document_view.document.key == TALK


async def test_a_file_that_is_gone_says_so_and_opens_where_it_was_read(book: Builder) -> None:
    (book.root / "Makefile").unlink()
    async with running(book.root) as tui:
        await tui.open(TALK)
        await tui.until(lambda: "[2] Makefile" in tui.rows("citations-list"))
        assert "no longer there" in tui.text
        await tui.press("3", "j", "enter")
        await tui.until(
            lambda: tui.main.reader_pane.document_view.viewport.current_reference == f"{TALK}:1.2"
        )


async def test_used_by_has_the_whole_title_and_the_date(book: Builder) -> None:
    async with running(book.root, size=(120, 40)) as tui:
        await tui.open("project/start")
        await tui.until(lambda: any("First steps" in row for row in tui.rows("citations-list")))
        assert "turn 1 · 28 May · l" in tui.text


async def test_a_session_of_another_agent_lists_the_subjects_whose_files_it_read(
    book: Builder, home: Path
) -> None:
    session = f"claude-{session_id(1)}"
    path = book.root / "docs/project/start.md"
    look = {"id": TALK, "include": ["chat"]}
    records = [
        typed("How do I start?"),
        answered(
            call(1, "Read", file_path=str(path)), call(2, "mcp__kbtui__conversation_read", **look)
        ),
        result(1, "1→# Getting started"),
        result(2, "<conversation_read>"),
        answered("Like this."),
    ]
    write_session(home, book.root, session_id(1), records)
    async with running(book.root) as tui:
        await tui.open(session)
        await tui.until(lambda: any("[2]" in row for row in tui.rows("citations-list")))
        rows = tui.rows("citations-list")
        assert rows[1].startswith("[1] First steps")
        assert rows[2:4] == ["read with file tools", "[2] Getting started"]
        await tui.press("3", "j", "enter")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == "project/start")
        await tui.until(lambda: any("How do I start?" in row for row in tui.rows("citations-list")))


async def test_the_difference_to_what_the_turn_was_given_opens_and_follows_the_file(
    book: Builder,
) -> None:
    then = "# Limits\n\nAt most ten.\n\nOne.\n\nTwo.\n\nThree.\n\nThe end of it.\n"
    path = book.subject("project/limits.md", then)
    call = called("l", "learn", then, topic="project", subjects="limits")
    book.conversation(8, [[asked("How many?"), *call, said("Ten.")]], title="Limits")
    async with running(book.root, size=(160, 40)) as tui:
        await tui.open("project/limits")
        await tui.press("2", "C")
        await tui.until("No earlier version is known")
        await tui.open("jp-c17800000008")
        await tui.until("unchanged")
        assert "knowledge changed since" not in tui.text
        await tui.press("3", "C")
        await tui.until("Nothing has changed.")
        path.write_text(then.replace("ten", "twelve").replace("The end", "The real end"))
        await tui.press("ctrl+r")
        await tui.until("2 changes")
        await tui.until("changed since")
        (line,) = (row for row in tui.text.split("\n") if "At most ten." in row)
        assert "- At most ten." in line
        assert "│ + At most twelve." in line
        assert "⋯ 1 unchanged paragraph" in tui.text
        await tui.press("2", "n", "n")
        await tui.press("n")
        await tui.until("No more changes below.")
        await tui.open("jp-c17800000008")
        await tui.until("≠ knowledge changed since: project/limits")
        await tui.press("2", "n", "down", "enter")
        await tui.until("- At most ten.")
        await tui.press("[")
        path.write_text(then)
        await tui.press("ctrl+r")
        await tui.until(lambda: "knowledge changed since" not in tui.text)
        path.write_text(then.replace("ten", "twelve").replace("The end", "The real end"))
    async with running(book.root, size=(80, 24)) as tui:
        await tui.open("jp-c17800000008")
        await tui.press("3")
        await tui.until("changed since")
        await tui.press("C")
        await tui.until("2 changes")
        rows = [row.strip("│▎ ▁▂▃▄▅▆▇█") for row in tui.text.split("\n")]
        assert rows.index("+ At most twelve.") == rows.index("- At most ten.") + 1
        await tui.open("project/limits")
        await tui.press("2", "C")
        await tui.until("2 versions")
        await tui.until("found in a conversation")
        await tui.until("given to jp-c17800000008:1")
