"""Conversations of other agents in the reader: notices, rewound turns, subagents, diffs, images, following."""

import json
from pathlib import Path
from typing import Any

from claude_sessions import answered, call, result, session_id, typed, write_session
from support import Builder
from tui_support import Tui, running

SESSION = f"claude-{session_id(1)}"
SUBAGENT = f"{SESSION}~a1b2c3d"
PATCH = {
    "filePath": "/src/a.py",
    "structuredPatch": [
        {
            "oldStart": 1,
            "oldLines": 1,
            "newStart": 1,
            "newLines": 1,
            "lines": ["-old = 1", "+new = 2"],
        }
    ],
}


def linked(*records: dict[str, Any]) -> list[dict[str, Any]]:
    """Records, each of which answers the one before, as `write_session` numbers them."""
    start = session_id(1)[:8]
    return [
        {"parentUuid": f"{start}-None-{number - 1}" if number else None, **record}
        for number, record in enumerate(records)
    ]


def append(path: Path, record: dict[str, Any], number: int) -> str:
    """The line of a further record of a session."""
    common = {"uuid": f"later-{number}", "timestamp": f"2026-05-29T11:00:{number:02}.000Z"}
    return json.dumps({**common, "sessionId": path.stem, **record}) + "\n"


async def select_line(tui: Tui, words: str) -> None:
    """Move the reader's cursor to the first line that contains the words."""
    view = tui.main.reader_pane.document_view
    view.focus()
    await tui.press("g")
    for _ in range(200):
        line = view.viewport.current_styled_line
        if line is not None and words in line.plain:
            return
        await tui.press("down")
    raise AssertionError(f"no line with {words!r}\n{tui.text}")


async def test_short_notices_are_lines_and_long_ones_fold(workspace_root: Path, home: Path) -> None:
    expansion = "# A skill\n" + "Do it like this.\n" * 20
    records = [
        typed("Start"),
        answered("Starting."),
        typed("[Request interrupted by user]"),
        typed("<local-command-stdout>Kept \x1b[1mmodel\x1b[22m\x1b]0;x\x07</local-command-stdout>"),
        {**typed(expansion), "isMeta": True},
    ]
    write_session(home, workspace_root, session_id(1), records)
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(SESSION)
        assert "┊ [Request interrupted by user]" in tui.text
        assert "┊ Kept model" in tui.text
        assert "\x1b" not in tui.text
        assert "▸ notice  # A skill Do it like this." in tui.text
        # Notices are not turns.
        assert tui.main.reader_pane.document_view.document.turns_total == 1
        await select_line(tui, "notice")
        await tui.press("enter")
        assert tui.text.count("Do it like this.") > 10


async def test_a_folded_call_shows_its_outcome(workspace_root: Path, home: Path) -> None:
    details = {"bytes": 274_387, "code": 200, "codeText": "O\x1b[2JK"}
    records = [
        typed("Look it up"),
        answered(call(1, "WebFetch", url="https://example.org/a")),
        {**result(1, "A page"), "toolUseResult": details},
    ]
    write_session(home, workspace_root, session_id(1), records)
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(SESSION)
        assert "Received 268KB (200 OK), 6" in tui.text


async def test_the_names_of_files_outside_the_project_stay_visible(
    workspace_root: Path, home: Path
) -> None:
    folder = f"/srv/{'deep/' * 40}"
    records = [
        typed("Compare"),
        answered(*(call(n, "Read", file_path=f"{folder}part{n}.md") for n in (1, 2))),
    ]
    write_session(home, workspace_root, session_id(1), records)
    async with running(workspace_root, size=(100, 30)) as tui:
        await tui.open(SESSION)
        for n in (1, 2):
            assert f"deep/part{n}.md" in tui.text
        assert "Read  …" in tui.text


async def test_rewound_turns_are_folded_and_not_counted(workspace_root: Path, home: Path) -> None:
    start = session_id(1)[:8]
    records = linked(
        typed("Write a poem"),
        answered("Roses are red."),
        typed("Make it longer"),
        answered(call(1, "Bash", command="wc poem")),
        result(1, "3 lines"),
        typed("Make it shorter"),
        answered("Roses."),
    )
    records[5]["parentUuid"] = f"{start}-None-1"
    write_session(home, workspace_root, session_id(1), records)
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(SESSION)
        assert "2 turns, 1 rewound" in tui.text
        assert "▸ turn 2 rewound  Make it longer" in tui.text
        assert "wc poem" not in tui.text
        assert "turn 3" in tui.text
        await select_line(tui, "rewound  ")
        await tui.press("enter")
        assert "The user went back to an earlier turn" in tui.text
        assert "wc poem" in tui.text
        assert "3 lines" not in tui.text
        await select_line(tui, "wc poem")
        await tui.press("enter")
        assert "3 lines" in tui.text
        # Closing the turn also hides what is open in it.
        await select_line(tui, "rewound  ")
        await tui.press("enter")
        assert "3 lines" not in tui.text
        # The next request is one that counts.
        await tui.press("g", "right_curly_bracket", "right_curly_bracket")
        assert tui.main.reader_pane.document_view.viewport.current_turn_number == 3


async def test_the_model_no_longer_sees_rewound_turns(workspace_root: Path, home: Path) -> None:
    records = linked(typed("One"), answered("1"), typed("Two"), answered("2"), typed("Three"))
    records[4]["parentUuid"] = f"{session_id(1)[:8]}-None-1"
    write_session(home, workspace_root, session_id(1), records)
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(SESSION)
        await tui.press("c")
        assert "rewound" not in tui.text.split("Citations")[1].replace("1 rewound", "")
        assert "Three" in tui.text


async def test_a_reference_to_a_rewound_turn_opens_it(workspace_root: Path, home: Path) -> None:
    records = linked(typed("One"), answered("1"), typed("Two"), answered("Second"), typed("Three"))
    records[4]["parentUuid"] = f"{session_id(1)[:8]}-None-1"
    write_session(home, workspace_root, session_id(1), records)
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(f"{SESSION}:2")
        await tui.until("Second")


async def test_a_call_links_to_its_subagent_and_the_subagent_back(
    workspace_root: Path, home: Path
) -> None:
    records = [
        typed("Tidy up"),
        answered(call(1, "Task", subagent_type="Explore", description="Find the mess")),
        {**result(1, "All tidy."), "toolUseResult": {"agentId": "a1b2c3d"}},
    ]
    write_session(home, workspace_root, session_id(1), records)
    asked = [typed("Look around"), answered("I see nothing.")]
    write_session(home, workspace_root, session_id(1), asked, subagent="a1b2c3d")
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(SESSION)
        assert "▸ Task  Find the mess" in tui.text
        assert "↳ subagent Look around" in tui.text
        await select_line(tui, "↳ subagent")
        await tui.press("enter")
        document_view = tui.main.reader_pane.document_view
        await tui.until(lambda: document_view.document.key == SUBAGENT)
        assert "I see nothing." in tui.text
        assert "↑ part of Tidy up" in tui.text
        # No person asked the subagent.
        assert "▌ Agent" in tui.text
        assert "▌ You" not in tui.text
        await select_line(tui, "↑ part of")
        await tui.press("enter")
        await tui.until(lambda: document_view.document.key == SESSION)


async def test_hostile_metadata_is_harmless(workspace_root: Path, home: Path) -> None:
    hostile = "../\x1b]0;owned\x07 x\ny"
    details = {"agentId": hostile, "answers": {hostile: hostile}, "filePath": hostile}
    records = [
        typed("Go"),
        answered(call(1, hostile, path=hostile)),
        {**result(1, f"--- {hostile}\n+++ b\n@@ {hostile}"), "toolUseResult": details},
        {**typed(f"<task-notification>{hostile}</task-notification>")},
    ]
    write_session(home, workspace_root, session_id(1), records)
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(SESSION)
        await tui.press("2", "t")
        assert "\x1b" not in tui.text
        assert "\x07" not in tui.text
        # An id that is none opens nothing.
        await select_line(tui, "↳ subagent")
        await tui.press("enter")
        assert tui.main.reader_pane.document_view.document.key == SESSION


async def test_answers_to_questions_and_results_of_tasks_are_visible(
    workspace_root: Path, home: Path
) -> None:
    answers = {"Which colour?": "Green", "How many?": "Two"}
    task = "<task-notification>\n<task-id>b7</task-id>\n<summary>Tests passed</summary>\n</task-notification>\nRead it."
    records = [
        typed("Paint it"),
        answered(call(1, "AskUserQuestion", questions=[{"question": "Which colour?"}])),
        {**result(1, "The user has answered."), "toolUseResult": {"answers": answers}},
        typed(task),
    ]
    write_session(home, workspace_root, session_id(1), records)
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(SESSION)
        assert "▸ AskUserQuestion  Which colour?" in tui.text
        assert "▌ Which colour? Green" in tui.text
        assert "▌ How many? Two" in tui.text
        assert "▸ notice  Tests passed task-id: b7" in tui.text


async def test_a_changed_file_is_shown_as_a_diff(workspace_root: Path, home: Path) -> None:
    records = [
        typed("Rename it"),
        answered(call(1, "Edit", file_path=f"{workspace_root}/src/a.py")),
        {**result(1, "The file was updated."), "toolUseResult": PATCH},
    ]
    write_session(home, workspace_root, session_id(1), records)
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(SESSION)
        # A path in the agent's directory is relative to it.
        assert "▸ Edit  src/a.py" in tui.text
        await tui.press("2", "t")
        assert "The file was updated." in tui.text
        assert "▾ Edit  src/a.py" in tui.text
        assert "+1 −1" in tui.text
        assert "1   -old" in tui.text
        assert "  1 +new" in tui.text


async def test_an_image_is_named_with_type_and_size(workspace_root: Path, home: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    image["source"]["data"] = "A" * 4000  # type: ignore[index]
    content = [{"type": "text", "text": "What is this?"}, image]
    record = {"type": "user", "message": {"role": "user", "content": content}}
    write_session(home, workspace_root, session_id(1), [record])
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(SESSION)
        assert "[image: image/png, 3,000 bytes]" in tui.text


async def test_a_turn_that_was_compacted_in_its_middle_goes_on(
    workspace_root: Path, home: Path
) -> None:
    records = [
        typed("Build it"),
        answered("Before the summary."),
        {"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted"},
        {**typed("What was done so far"), "isCompactSummary": True},
        answered("After the summary."),
        typed("Go on"),
        answered("Done."),
    ]
    write_session(home, workspace_root, session_id(1), records)
    async with running(workspace_root, size=(160, 40)) as tui:
        await tui.open(SESSION)
        assert "compacted for the model: the beginning of turn 1, repl" in tui.text
        assert tui.text.index("Before the summary") < tui.text.index("▸ compacted here  What was")
        assert tui.text.index("▸ compacted here") < tui.text.index("After the summary")
        await tui.press("c")
        assert "Before the summary" not in tui.text
        assert tui.text.index("What was done so far") < tui.text.index("After the summary")


async def test_a_session_is_followed_and_a_half_line_is_waited_for(
    workspace_root: Path, home: Path
) -> None:
    records = [record for n in range(12) for record in (typed(f"Question {n}"), answered(f"{n}!"))]
    path = write_session(home, workspace_root, session_id(1), records)

    async with running(workspace_root, size=(100, 24)) as tui:
        view = tui.main.reader_pane.document_view

        async def reload() -> None:
            before = view.document
            tui.main.handle_files_changed({"event": "changed", "conversations": [SESSION]})
            await tui.until(lambda: view.document is not before)

        await tui.open(SESSION)
        await tui.press("F")
        line = append(path, answered("The last word.", message="msg_2"), 1)
        half = len(line) // 2
        with path.open("a") as file:
            file.write(line[:half])
            file.flush()
            await reload()
            assert "The last word." not in tui.text
            # An incomplete line is no damage.
            assert "!" not in "".join(text for text, _ in view.document.badges)
            assert "damaged" not in tui.text
            file.write(line[half:])
            file.flush()
            await reload()
            assert "The last word." in tui.text
        assert view.viewport.cursor == view.viewport.document_end_position


async def test_short_ids_are_references_everywhere(book: Builder, home: Path) -> None:
    write_session(home, book.root, session_id(1), [typed("Hello"), answered("Hi."), typed("Bye")])
    async with running(book.root) as tui:
        view = tui.main.reader_pane.document_view
        # The search input opens a reference.
        await tui.press("slash")
        await tui.type(f"claude-{session_id(1)[:8]}:2")
        await tui.press("enter")
        await tui.until(lambda: view.document.key == SESSION)
        assert view.viewport.current_turn_number == 2
        # So does "go to".
        await tui.press("H")
        await tui.until(lambda: view.document.key == "home")
        await tui.press("number_sign")
        await tui.type(f"claude-{session_id(1)[:8]}")
        await tui.press("enter")
        await tui.until(lambda: view.document.key == SESSION)
        # And the palette.
        await tui.press("H")
        await tui.until(lambda: view.document.key == "home")
        await tui.press("ctrl+p")
        await tui.type(f"claude-{session_id(1)[:8]}:2")
        await tui.until("reference ")
        await tui.press("enter")
        await tui.until(lambda: view.document.key == SESSION)
        # The screen shows the short form, with which the turn is visible in a narrow pane.
        assert f" claude-{session_id(1)[:8]}:2 " in tui.text


async def test_a_turn_can_be_bookmarked_and_copied(book: Builder, home: Path) -> None:
    write_session(home, book.root, session_id(1), [typed("Hello"), answered("Hi.")])
    async with running(book.root) as tui:
        await tui.open(f"{SESSION}:1")
        await tui.press("2", "B")
        await tui.type("good")
        await tui.press("enter")
        await tui.until("Bookmarked")
        await tui.press("Y")
        # There is no `jp://` link to another agent's conversation.
        assert "JP link" not in tui.text
        assert "the reference" in tui.text
        await tui.press("escape", "H")
        view = tui.main.reader_pane.document_view
        await tui.until(lambda: view.document.key == "home")
        await tui.press("apostrophe")
        await tui.until("good")
        await tui.press("enter")
        await tui.until(lambda: view.document.key == SESSION)
