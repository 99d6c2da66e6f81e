"""Navigation in a conversation: requests, errors, turns by number, references, details."""

from pathlib import Path

from support import Builder, asked, called, said
from textual.widgets import Input
from tui_support import Tui, handbook, running

from kbtui.references import parse_ref

TALK = "jp-c17800000001"


def line(tui: Tui) -> str:
    found = tui.main.reader_pane.document_view.viewport.current_styled_line
    return found.plain if found else ""


async def go(tui: Tui, text: str) -> None:
    """Type into the dialog that asks where to go."""
    await tui.press("number_sign")
    await tui.until(lambda: tui.app.screen is not tui.main)
    tui.app.screen.query_one(Input).value = text
    await tui.press("enter")
    await tui.until(lambda: tui.app.screen is tui.main)


async def test_u_goes_from_request_to_request_and_w_from_error_to_error(book: Builder) -> None:
    book.conversation(
        8,
        [
            [asked("One"), *called("a", "shell", "bad", error=True), asked("Wait, also this")],
            [asked("Two"), *called("b", "shell", "fine"), *called("c", "rm", "no", error=True)],
        ],
        title="Errors",
    )
    async with running(book.root, size=(100, 30)) as tui:
        await tui.open("jp-c17800000008")
        viewport = tui.main.reader_pane.document_view.viewport
        for words in ("One", "Wait, also this", "Two"):
            await tui.press("right_curly_bracket")
            at = viewport.cursor.block
            assert words in [
                block.get_searchable_text() for block in viewport.document.blocks[at : at + 2]
            ]
        await tui.press("left_curly_bracket", "left_curly_bracket")
        assert "turn 1 of 2" in tui.text
        await tui.press("g", "w")
        assert "✗ shell" in line(tui)
        await tui.press("w")
        assert "✗ rm" in line(tui)
        await tui.press("w")
        await tui.until("No more failed tool calls below.")
        await tui.press("W")
        assert "✗ shell" in line(tui)
        assert "No more failed" not in tui.text


async def test_a_turn_is_reached_by_its_number(book: Builder) -> None:
    async with running(book.root, size=(100, 24)) as tui:
        await tui.open(TALK)
        await go(tui, "3")
        assert "turn 3 of 3" in tui.text
        await go(tui, "-2")
        assert "turn 2 of 3" in tui.text
        await go(tui, "1.3")
        assert "shell" in line(tui)
        assert "no such target" in tui.text  # the call is unfolded
        await go(tui, "99")
        await tui.until("No turn 99: the conversation has 3 turns")
        assert "turn 3 of 3" in tui.text
        await go(tui, "2")
        assert "turn 2 of 3" in tui.text
        assert "No turn 99" not in tui.text
        await go(tui, "-9")
        await tui.until("No turn -9: the conversation has 3 turns")
        assert "turn 1 of 3" in tui.text
        await go(tui, "1.9")
        await tui.until("No tool call 9: turn 1 has 3 tool calls")


def long_subject(book: Builder) -> None:
    """Add a subject of 120 lines, whose last one says "the end"."""
    lines = [f"Line {number} of the list.\n" for number in range(3, 120)]
    book.subject("project/long.md", "".join(["# Long\n", "\n", *lines, "This is the end.\n"]))


async def test_a_line_is_reached_by_its_number(book: Builder) -> None:
    long_subject(book)
    async with running(book.root, size=(100, 24)) as tui:
        await tui.open("project/long")
        viewport = tui.main.reader_pane.document_view.viewport
        await tui.press("v")
        await tui.until(lambda: viewport.document.view == "source")
        await go(tui, "60")
        assert "Line 60" in line(tui)
        assert viewport.current_reference == "project/long:60"
        await go(tui, "9999")
        await tui.until("No line 9999: the subject has 120 lines")
        assert "This is the end." in line(tui)
        await go(tui, "-2")
        assert "Line 119" in line(tui)
        assert "no line" not in tui.text
        await tui.press("v", "v")
        await tui.until(lambda: viewport.document.view == "read")
        await go(tui, "3")
        assert "Line 3" in line(tui)  # not the empty line above it
        await tui.press("H")
        await tui.until(lambda: viewport.document.key == "home")
        await go(tui, "7")
        await tui.until("This page has no turns or lines to go to.")


async def test_the_history_of_a_subject_lacks_no_line(book: Builder) -> None:
    long_subject(book)
    async with running(book.root, size=(100, 24)) as tui:
        viewport = tui.main.reader_pane.document_view.viewport
        await tui.open("project/long:5")
        await tui.press("C")
        await tui.until(lambda: viewport.document.view == "history")
        await tui.until(lambda: viewport.document.find_block_index_by_key("loading") is None)
        assert "No line" not in tui.text


async def test_a_reference_to_what_does_not_exist_goes_to_the_last_one_and_says_so(
    book: Builder,
) -> None:
    long_subject(book)
    said_of_turn, said_of_line = (
        "No turn 9: the conversation has 3 turns",
        "No line 9999: the subject has 120 lines",
    )
    async with running(book.root, size=(100, 24)) as tui:
        viewport = tui.main.reader_pane.document_view.viewport
        await tui.open(f"{TALK}:9")
        await tui.until(said_of_turn)
        assert "turn 3 of 3" in tui.text
        await go(tui, "project/long:9999")
        await tui.until(said_of_line)
        # The line that says so takes a row from the document, which is then scrolled again.
        await tui.until(lambda: viewport.is_last_line_visible)
        await go(tui, "project/long:2")
        await tui.until(
            lambda: viewport.current_styled_line and "Long" in viewport.current_styled_line.plain
        )
        assert "no line" not in tui.text
        # In the document that is already shown.
        await tui.open(f"{TALK}:1")
        await go(tui, f"{TALK}:9")
        await tui.until(said_of_turn)
        assert "turn 3 of 3" in tui.text
        # From the palette, which finds nothing of that name.
        for ref, message in (
            ("project/long:9999", said_of_line),
            (f"{TALK}:9", said_of_turn),
            ("project/nothing:1", "The topic 'project' has no subject 'nothing'"),
        ):
            await tui.press("ctrl+p")
            await tui.until(lambda: getattr(tui.app.focused, "id", "") == "palette-input")
            tui.app.screen.query_one(Input).value = ref
            await tui.until(f"reference    {ref}")
            await tui.press("enter")
            await tui.until(message)
    for ref, message in ((f"{TALK}:9", said_of_turn), ("project/long:9999", said_of_line)):
        async with running(book.root, open_ref=parse_ref(ref)) as tui:
            await tui.until(message)


async def test_a_reference_opens_from_the_dialog_and_from_the_search_input(
    book: Builder,
) -> None:
    async with running(book.root) as tui:
        pane = tui.main.reader_pane
        for text, key, words in (
            (f"{TALK}:2", TALK, "turn 2 of 3"),
            ("project/start:8", "project/start", "Clone, build"),
            ("jp://jp-c17800000002", "jp-c17800000002", "Retry how often?"),
            (f"jp://{TALK}?select=*:3", TALK, "turn 3 of 3"),
            ("snippets", "topic:snippets", "Snippets"),
        ):
            await go(tui, text)
            await tui.until(lambda key=key: pane.document_view.document.key == key)
            await tui.until(words)
        await go(tui, "jp-c17800000099")
        await tui.until("There is no conversation jp-c17800000099")
        for text, key in ((f"{TALK}:1.2", TALK), ("project/people/ada", "project/people/ada")):
            await tui.press("slash")
            tui.main.query_one("#search", Input).value = text
            await tui.press("enter")
            await tui.until(lambda key=key: pane.document_view.document.key == key)
            await tui.until(lambda: tui.main.panes.focused_pane_id == "reader")
        assert pane.document_view.viewport.current_reference is not None


async def test_an_error_in_a_reference_is_shown_in_a_workspace_with_a_long_path(
    tmp_path: Path,
) -> None:
    root = tmp_path / ("long-" * 40)
    async with running(handbook(Builder(root)).root) as tui:
        await go(tui, "jp-c17800000099")
        await tui.until("There is no conversation jp-c17800000099")


async def test_the_reference_of_a_turn_and_a_call_is_what_kbtui_show_takes(book: Builder) -> None:
    async with running(book.root, size=(100, 40)) as tui:
        await tui.open(TALK)
        for where, words in (("2", "And the tests?"), ("1.2", "Makefile")):
            tui.main.reader_pane.go_to_turn_or_line_number(where)
            await tui.press("y")
            assert tui.app.clipboard == f"{TALK}:{where}"
            assert words in tui.app.library.read(tui.app.clipboard)


async def test_jps_own_link_can_be_copied_and_leads_back(book: Builder) -> None:
    async with running(book.root, size=(100, 40)) as tui:
        await tui.open(TALK)
        tui.main.reader_pane.go_to_turn_or_line_number("2")
        await tui.press("Y")
        await tui.until("JP link")
        await tui.press("j")
        await tui.until(lambda: tui.app.clipboard == f"jp://{TALK}?select=*:2")
        assert str(tui.app.library.parse_entered_reference(tui.app.clipboard)) == f"{TALK}:2"


async def test_a_key_shows_and_hides_the_details(book: Builder) -> None:
    book.conversation(
        9,
        [[asked("Hm?"), *called("a", "shell", "x", error=True), said("So.")]],
        title="Labelled",
        metadata={"labels": {"area": "ui"}, "pinned_at": "2026-05-01 10:00:00.0"},
    )
    async with running(book.root, size=(100, 40)) as tui:
        await tui.open("jp-c17800000009")
        await tui.press("G")
        await tui.press("a")
        for words in (
            "labels        area=ui",
            "1 tool call, 1 error",
            "tools         shell 1",
            "pinned        2026-05-01 10:00",
            "1 turn, 5 events",
            "workspace only",
        ):
            await tui.until(words)
        # The path depends on the temporary directory and may wrap.
        rows = [row.rpartition("││")[2].strip(" │") for row in tui.text.splitlines()]
        assert "conversations/17800000009" in "".join(rows)
        await tui.press("a")
        await tui.until(lambda: "1 tool call, 1 error" not in tui.text)
        await tui.open("project/start")
        await tui.press("a")
        assert not tui.main.reader_pane.facts_bar.display


async def test_showing_the_details_keeps_the_current_line(book: Builder) -> None:
    turns = [[asked(f"Question {n}"), said(f"Answer {n}")] for n in range(30)]
    book.conversation(9, turns, title="Long")
    async with running(book.root, size=(100, 30)) as tui:
        await tui.open("jp-c17800000009")
        tui.main.reader_pane.go_to_turn_or_line_number("15")
        before = line(tui)
        for _ in range(2):
            await tui.press("a")
            assert line(tui) == before
            assert "turn 15 of 30" in tui.text


async def test_an_unreadable_conversation_says_why_and_where(book: Builder) -> None:
    folder = book.conversation(10, [[asked("Hello")]], title="Empty file")
    (folder / "events.json").write_bytes(b"\0" * 100)
    async with running(book.root) as tui:
        await tui.open("jp-c17800000010")
        for words in (
            "! events.json: it contains only NUL characters",
            "This conversation cannot be read.",
        ):
            assert words in tui.text
        facts = dict(tui.main.reader_pane.document_view.document.facts)
        assert facts["directory"][0][0].endswith("conversations/17800000010")
        await tui.open("jp-c17800000005")
        assert "! events.json: element 0 is not valid JSON" in tui.text


async def test_the_footer_says_next_match_while_finding(book: Builder) -> None:
    async with running(book.root, size=(120, 24)) as tui:

        def footer() -> str:
            return tui.text.splitlines()[-1]

        await tui.open(TALK)
        assert "n next turn" in footer()
        await tui.press("f")
        await tui.type("make")
        await tui.press("enter")
        await tui.until("n next match")
        assert "next turn" not in footer()
        # Esc ends the find, and `n` is for turns again.
        await tui.press("escape")
        await tui.until("n next turn")
        # A subject has no turns, but `n` goes to its next match.
        await tui.open("project/start")
        assert "n next" not in footer()
        await tui.press("f")
        await tui.type("make")
        await tui.press("enter")
        await tui.until("n next match")


async def test_v_says_that_there_is_no_other_view(book: Builder) -> None:
    async with running(book.root, size=(120, 24)) as tui:
        await tui.open(TALK)
        await tui.press("v")
        await tui.until("This document has only one view.")


async def test_an_unknown_topic_is_answered_with_the_nearest_ones(book: Builder) -> None:
    names = ("alpha", "beta", "gamma", "delta", "epsilon")
    book.topics(project={"title": "Project Handbook"}, **{name: {} for name in names})
    async with running(book.root, size=(120, 24)) as tui:
        await go(tui, "projct/something-else")
        await tui.until("did you mean project?")
        assert "alpha" not in tui.text.splitlines()[-2]
        await go(tui, "zzz/x")
        await tui.until("topics: project, alpha, beta and 3 more")
        await go(tui, "projct/style")
        await tui.until("did you mean project/style?")
        assert "topics:" not in tui.text.splitlines()[-2]


async def test_escape_removes_a_warning_before_it_leaves_the_document(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/style")
        await tui.open(TALK)
        await tui.until("Esc back")
        await go(tui, "99")
        await tui.until("conversation has 3 turns")
        await tui.press("escape")
        await tui.until(lambda: "conversation has 3 turns" not in tui.text)
        assert tui.main.document_controller.shown.key == TALK  # type: ignore[union-attr]
        await tui.press("escape")
        await tui.until("Back to project/style:1. ] goes forward again.")
        assert tui.main.document_controller.shown.key == "project/style"  # type: ignore[union-attr]


async def test_the_hint_of_enter_says_what_it_does_at_the_current_line(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        await tui.open(TALK)
        await go(tui, "2")
        assert "turn 2" in line(tui)
        assert "Enter" not in tui.text.split("\n")[-1]
        await go(tui, "1.1")
        await tui.until("Enter unfold")


async def test_changes_have_no_numbers_to_go_to(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/style")
        await tui.press("C")
        await tui.until(lambda: tui.main.reader_pane.viewport.document.view == "history")
        await go(tui, "3")
        await tui.until("Changes have no numbers: n goes to the next one, v shows the text")


async def test_the_key_of_the_changes_pressed_twice_leaves_no_step(book: Builder) -> None:
    book.conversation(
        6, [[asked("x"), *called("a", "fs_create_file", "File created.", path="x", content="1")]]
    )
    async with running(book.root) as tui:
        shown = tui.main.reader_pane.document_view
        await tui.open("project/people/ada")
        for ref, views in (("project/style", "vvvCvCC"), ("jp-c17800000006", "CCCvC")):
            await tui.open(ref)
            for key in views:
                before = shown.document
                await tui.press(key)
                await tui.until(lambda before=before: shown.document is not before)
            assert shown.document.view == "read"
            await tui.press("escape")
            await tui.until(lambda: shown.document.key == "project/people/ada")
        # The changes themselves are a step.
        await tui.press("right_square_bracket", "C")
        await tui.until("1 file changed")
        await tui.press("escape")
        await tui.until(lambda: shown.document.key == "jp-c17800000006")
        assert shown.document.view == "read"


async def test_going_back_names_the_place_that_is_shown(book: Builder) -> None:
    book.conversation(
        6,
        [
            [asked("x"), *called("a", "fs_create_file", "File created.", path=f"{n}", content="1")]
            for n in range(3)
        ],
    )
    async with running(book.root) as tui:
        await tui.open("jp-c17800000006:3")
        await go(tui, "1")
        await tui.press("C")
        await tui.until("3 files changed")
        await tui.press("n", "n")
        await tui.until("jp-c17800000006:3.1")
        await tui.open("project/start")
        await go(tui, "13")
        await tui.open("project/style")
        await tui.press("escape")
        await tui.until("Back to project/start:13.")
        await tui.press("escape")
        await tui.until("Back to the changes of jp-c17800000006:3.1.")
        await tui.press("escape")
        await tui.until("Back to jp-c17800000006:1.")
