"""The library pane: what it lists, marks, filters and opens."""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from support import FIRST_ID, Builder, asked, said, stamp, write_json
from tui_support import running

from kbtui.conversations.conversation_data_types import ConversationInfo
from kbtui.conversations.conversation_repository import (
    add_event_count_and_problems_to_info,
    find_conversation,
)
from kbtui.tui.framework.row_list import ListRow
from kbtui.tui.library_pane import LibraryPaneChoices, make_library_rows
from kbtui.tui.topics_and_conversations_snapshot import TopicsAndConversations

# The day of the conversations that `Builder` writes, as a row shows it.
DAY_OF_TALKS = f"{datetime.fromtimestamp(FIRST_ID / 10, UTC):%d %b}"


async def test_topics_come_first_then_conversations_pinned_by_day_archived(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.until(lambda: f"Pinned talk1t {DAY_OF_TALKS}" in tui.rows("library-list"))
        rows = tui.rows("library-list")
        order = [
            "TOPICS",
            "▾ Project Handbook4",
            "start",
            "◆ style",
            "✕ old",
            "▸ people/",
            "▾ Snippets1",
            "CONVERSATIONSby activity",
            "Pinned",
            "By day",
            "Archived",
        ]
        assert set(order) <= set(rows), rows
        sections = ("TOPICS", "CONVERSATIONSby activity", "Pinned", "By day", "Archived")
        places = [rows.index(row) for row in sections]
        assert places == sorted(places)
        assert rows.index(f"Pinned talk1t {DAY_OF_TALKS}") == rows.index("Pinned") + 1
        assert any(row.startswith("▫ Old talk") for row in rows[rows.index("Archived") :])


async def test_each_conversation_shows_how_many_turns_it_has(book: Builder) -> None:
    book.conversation(8, [[asked("Go on."), said("Yes.")]] * 21, title="Long talk")
    for size in ((80, 24), (160, 50)):
        async with running(book.root, size=size) as tui:
            await tui.until(lambda: f"Long talk21t {DAY_OF_TALKS}" in tui.rows("library-list"))
            await tui.until(f"21t {DAY_OF_TALKS}")
            await tui.until("21 turns")  # on the home page
            await tui.press("?")
            await tui.press("G")
            await tui.until("number of turns in a conversation")


async def test_the_home_page_lists_recent_conversations_in_the_order_of_the_library(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    days = {number: datetime(2026, 5, 10 + number, tzinfo=UTC) for number in range(1, 8)}

    def talk(number: int, *times: datetime) -> None:
        events = [{"timestamp": stamp(time), **said("Yes.")} for time in times]
        opened = {"last_activated_at": stamp(days[number])}
        builder.conversation(number, [events], title=f"Talk {number}", metadata=opened)

    for number, day in days.items():
        talk(number, day)
    async with running(workspace_root) as tui:

        def recent() -> list[str]:
            blocks = tui.main.reader_pane.document_view.document.blocks
            return [block.link for block in blocks if block.key.startswith("talk:")]

        def listed() -> list[str]:
            keys = [row.key for row in tui.main.library_pane.list.rows]
            return [key for key in keys if key.startswith("jp-c")][:5]

        numbers = [7, 6, 5, 4, 3]
        assert recent() == listed() == [f"jp-c{FIRST_ID + number}" for number in numbers]
        talk(1, days[1], days[7] + timedelta(hours=1))
        await tui.press("ctrl+r")
        await tui.until(lambda: listed()[0] == f"jp-c{FIRST_ID + 1}")
        await tui.until(lambda: recent() == listed())


async def test_an_unreadable_conversation_stays_listed_with_its_reason(book: Builder) -> None:
    async with running(book.root) as tui:
        row = next(r for r in tui.main.library_pane.list.rows if r.key == "jp-c17800000005")
        assert row.left[0][0] == "! "
        reason = "".join(text for text, _ in row.below[0])
        assert "JSON" in reason or "json" in reason
        assert tui.main.library_pane.list.select_row(row.key)
        await tui.press("enter")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == row.key)
        await tui.until("! ")


async def test_hidden_subjects_show_on_a_key_with_a_mark_and_go_again(book: Builder) -> None:
    async with running(book.root) as tui:
        assert not any("secret" in row for row in tui.rows("library-list"))
        await tui.press("full_stop")
        assert "◌ secret" in tui.rows("library-list")
        await tui.press("full_stop")
        assert not any("secret" in row for row in tui.rows("library-list"))


async def test_typing_filters_by_title_and_escape_brings_everything_back(book: Builder) -> None:
    async with running(book.root) as tui:
        everything = tui.rows("library-list")
        await tui.press("f")
        await tui.type("retr")
        rows = tui.rows("library-list")
        assert "retry" in rows
        assert any(row.startswith("Retries") for row in rows)
        assert not any("First steps" in row for row in rows)
        # The letters were text, not commands.
        assert tui.app.is_running
        await tui.type("qqq")
        assert tui.rows("library-list").count("nothing matches") == 2
        await tui.press("escape")
        assert tui.rows("library-list") == everything
        await tui.press("j")
        assert tui.app.focused is tui.main.library_pane.list


async def test_letters_unfold_and_fold_like_in_a_tree(book: Builder) -> None:
    async with running(book.root) as tui:
        listed = tui.main.library_pane.list
        listed.select_row("folder:project/people")
        await tui.press("l")
        assert "ada" in tui.rows("library-list")
        listed.select_row("project/people/ada")
        await tui.press("h")
        assert listed.selected_row
        assert listed.selected_row.key == "folder:project/people"
        await tui.press("h")
        assert "ada" not in tui.rows("library-list")
        await tui.press("h")
        assert listed.selected_row.key == "topic:project"
        await tui.press("h")
        assert "start" not in tui.rows("library-list")


async def test_enter_opens_and_the_keys_walk(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("g", "j", "enter")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == "project/old")
        assert tui.app.focused is tui.main.reader_pane.document_view
        await tui.press("1", "G", "enter")
        await tui.until("Old talk")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.title == "Old talk")


async def test_a_narrow_library_says_what_is_wrong_before_where(book: Builder) -> None:
    (book.root / ".jp" / "kb.toml").write_text('[kb.topic.x]\nsubjects = "docs"\ntitel = "a"\n')
    async with running(book.root, size=(80, 24)) as tui:
        rows = tui.text.split("\n")
        at = next(n for n, row in enumerate(rows) if "! unknown key 'titel'" in row)
        assert "kb.topic.x.titel" in rows[at + 1][:30]
        await tui.press("enter")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.title == "A problem")
        await tui.until("did you mean 'title'?")


async def test_a_missing_directory_is_said_at_its_topic(workspace_root) -> None:  # type: ignore[no-untyped-def]
    builder = Builder(workspace_root)
    builder.topics(gone={"title": "Gone"}, here={"title": "Here"})
    builder.subject("here/a.md", "# A\n")
    (builder.root / "docs" / "gone").rmdir()
    async with running(builder.root) as tui:
        rows = tui.rows("library-list")
        assert any(row.startswith(("▾ Gone!", "▸ Gone!")) for row in rows)
        problem = next(row for row in rows if row.startswith("! "))
        assert "docs/gone does not exist" in problem
        assert "a" in rows
        tui.main.library_pane.list.select_row(
            next(r.key for r in tui.main.library_pane.list.rows if r.key.startswith("problem:"))
        )
        await tui.press("enter")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.title == "A problem")


async def test_a_broken_kb_toml_leaves_the_conversations(book: Builder) -> None:
    (book.root / ".jp" / "kb.toml").write_text("[kb.topic\n")
    async with running(book.root) as tui:
        rows = tui.rows("library-list")
        assert any("kb.toml" in row for row in rows if row.startswith("! "))
        assert any(row.startswith("First steps") for row in rows)


async def test_an_empty_workspace_says_what_to_add(workspace_root) -> None:  # type: ignore[no-untyped-def]
    async with running(workspace_root) as tui:
        assert "none yet" in tui.text
        assert "[kb.topic.project]" in tui.text
        assert "jp query" in tui.text


async def test_conversations_filter_by_label_tool_model_and_date_and_a_mistake_is_said(
    book: Builder,
) -> None:
    book.conversation(7, [[asked("Hm?")]], title="Labelled", metadata={"labels": {"area": "ui"}})
    async with running(book.root) as tui:
        pane = tui.main.library_pane

        def shown() -> set[str]:
            return {row.key for row in pane.list.rows if row.key.startswith("jp-c")}

        def listed() -> set[str]:
            starts = ("jp-c", "project/")
            return {row.key for row in pane.list.rows if row.key.startswith(starts)}

        await tui.press("f")
        await tui.type("tool:shell")
        await tui.until(lambda: shown() == {"jp-c17800000001"})
        assert not any("TOPICS" in row for row in tui.rows("library-list"))
        for text, expected in (
            ("label:area", {"jp-c17800000007"}),
            ("is:archived", {"jp-c17800000004"}),
            ("before:2026-05-01", set()),
            ("after:2026-05-01 pinned", {"jp-c17800000003"}),
        ):
            pane.filter.input.value = text
            await tui.until(lambda expected=expected: shown() == expected)
        # These conditions are looked up in the index, and apply to subjects, too.
        for text, subjects, expected in (
            ("topic:project style", {"project/style"}, set()),
            ("-topic:project in:conversations tool:shell", set(), {"jp-c17800000001"}),
            ("role:tool-call ", set(), {"jp-c17800000001"}),
        ):
            pane.filter.input.value = text
            wanted = subjects | expected
            await tui.until(lambda wanted=wanted: listed() == wanted)
        pane.filter.input.value = "topic:nosuch "
        await tui.until("unknown topic")
        pane.filter.input.value = "after:never"
        await tui.press("enter")
        await tui.until("is not a ")
        assert tui.app.focused is pane.filter.input
        await tui.press("escape")
        await tui.until(lambda: "is not a " not in tui.text and len(shown()) == 6)


async def test_a_key_changes_what_conversations_are_sorted_by_and_the_heading_says_it(
    book: Builder,
) -> None:
    async with running(book.root) as tui:
        pane = tui.main.library_pane

        def order() -> list[str]:
            rows = tui.rows("library-list")
            first = next(n for n, row in enumerate(rows) if row.startswith("CONVERSATIONS"))
            return rows[first:]

        for key in ("created", "updated", "title"):
            await tui.press("m", {"title": "n"}.get(key, key[0]))
            await tui.until(lambda key=key: order()[0] == f"CONVERSATIONSby {key}")
        talks = [row for row in order() if row.endswith(DAY_OF_TALKS)]
        titles = ("! Broken talk", "First steps", "Retries")
        for talk, title in zip(talks[1:4], titles, strict=True):
            assert talk.startswith(title)
        await tui.press("m")
        await tui.until("most turns first")
        assert "name, A to Z · now" in tui.text
        await tui.press("t")
        await tui.until(lambda: "First steps3 turns" in order())
        turns = [row for row in order() if row.endswith(("turn", "turns"))]
        assert turns[1:4] == ["Pinned talk1 turn", "By number of turns", "First steps3 turns"]
        await tui.press("m", "a")
        await tui.until(lambda: order()[0] == "CONVERSATIONSby activity")
        assert pane.state.sort == "activity"


async def test_rows_say_the_time_of_today_and_the_date_of_other_days(book: Builder) -> None:
    start = present = datetime.fromtimestamp(FIRST_ID / 10, UTC)
    date = f"{start.day} {start:%b}"
    async with running(book.root, now=lambda: present) as tui:
        for passed, said in (
            (timedelta(seconds=30), f"{start:%H:%M}"),
            (timedelta(days=1), date),
            (timedelta(days=400), f"{date} {start.year}"),
        ):
            present = start + passed
            tui.main.library_pane.rebuild_rows_if_day_changed()
            await tui.until(lambda said=said: f"Pinned talk1t {said}" in tui.rows("library-list"))


async def test_five_thousand_conversations_are_listed_filtered_and_sorted_in_threads(
    workspace_root: Path,
) -> None:
    infos = [
        ConversationInfo(
            id=f"jp-c{FIRST_ID + n}",
            title=f"Talk {n}",
            directory=workspace_root,
            events_path=None,
            base_config_path=None,
            archived=n % 7 == 0,
            presence="projected",
            created_at=datetime.fromtimestamp((FIRST_ID - n * 9000) / 10, UTC),
        )
        for n in range(5_000)
    ]
    made_in = set()

    def remembered(*args: Any) -> list[ListRow]:
        made_in.add(threading.current_thread())
        return make_library_rows(*args)

    async with running(workspace_root) as tui:
        pane = tui.main.library_pane
        with mock.patch("kbtui.tui.library_pane.make_library_rows", remembered):
            pane.show_library_contents(TopicsAndConversations([], infos))
            await tui.until(lambda: len(pane.list.rows) > 5_000)
            pane.list.focus()
            await tui.press("f")
            await tui.type("talk 499")
            await tui.until(lambda: 11 <= len(pane.list.rows) < 40)
        assert made_in
        assert threading.current_thread() not in made_in


async def test_a_subject_that_cannot_be_read_is_marked_like_a_damaged_conversation(
    book: Builder,
) -> None:
    blob = book.root / "docs" / "project" / "blob.md"
    blob.write_bytes(b"\0\1\2")
    (book.root / "docs" / "project" / "latin.md").write_bytes("# Grüße\n".encode("latin-1"))
    async with running(book.root) as tui:
        await tui.until("! blob")
        await tui.until("! latin")
        assert "it is a binary file" in tui.text
        assert "it is not UTF-8 text" in tui.text
        # Once the file is repaired, the mark goes.
        blob.write_text("# Blob\n")
        await tui.press("ctrl+r")
        await tui.until(lambda: "! blob" not in tui.text)
        assert "! latin" in tui.text
        await tui.press("question_mark")
        await tui.until("Find and open")
        await tui.press("G")
        await tui.until("damaged or unreadable")


async def test_every_conversation_with_a_problem_is_marked_and_keeps_its_turns(
    book: Builder,
) -> None:
    wrong_element = book.conversation(6, [[asked("a"), said("b")]], title="Wrong element")
    events = json.loads((wrong_element / "events.json").read_text())
    write_json(wrong_element / "events.json", [*events, 7, {"type": "chat_request"}])
    surrogates = book.conversation(7, [[asked("a"), said("b")]], title="Surrogates")
    text = (surrogates / "events.json").read_text().rstrip()
    text = text[:-1] + ', {"type": "x", "a": "\\ud800"}, {"type": "x", "a": "\\ud800"}]'
    (surrogates / "events.json").write_text(text)
    async with running(book.root) as tui:
        pane = tui.main.library_pane
        await tui.until("! Wrong element")
        await tui.until("! Surrogates")
        rows = tui.rows("library-list")
        assert all(
            any(f"! {name}1t " in row for row in rows) for name in ("Wrong element", "Surrogates")
        ), rows
        assert "events.json: element 3" in tui.text
        await tui.press("f")
        await tui.type("is:damaged")
        await tui.press("enter")
        await tui.until(lambda: len([row for row in pane.list.rows if row.selectable]) == 3)
        found = tui.app.library.search("is:damaged a")
    assert {hit.title for hit in found.hits} == {"Wrong element", "Surrogates"}
    shown = add_event_count_and_problems_to_info(
        find_conversation(book.workspace, "jp-c17800000007", counts=True)
    )
    assert shown.problem is not None
    assert shown.problem.count("surrogate") == 2, "each problem is named once"


async def test_the_home_page_names_the_key_that_creates_what_is_lacking(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    async with running(workspace_root, size=(80, 24)) as tui:
        await tui.until("i      create a first topic")
    builder.topics(project={"title": "Project Handbook"})
    async with running(workspace_root, size=(80, 24)) as tui:
        await tui.until("+      create an entry")
    builder.subject("project/start.md", "# Start\n")
    async with running(workspace_root, size=(80, 24)) as tui:
        await tui.until("search everything")
        assert "create a" not in tui.text


async def test_each_row_shows_its_own_date(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    for number in (1, 2, 3):
        builder.conversation(number, [[asked("Hi"), said("Hello.")]], title=f"Talk {number}")
    async with running(builder.root) as tui:
        rows = [row for row in tui.rows("library-list") if row.startswith("Talk")]
        assert len(rows) == 3
        assert all(row.endswith(DAY_OF_TALKS) for row in rows)


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
async def test_a_wrong_filter_is_explained_at_once_and_esc_restores_the_selection(
    book: Builder, size: tuple[int, int]
) -> None:
    for number in range(10, 40):
        book.conversation(number, [[asked("a"), said("b")]], title=f"Talk {number}")
    async with running(book.root, size=size) as tui:
        pane = tui.main.library_pane
        await tui.press("1", "G", "k", "k", "k")
        row = pane.list.selected_row
        assert row is not None
        await tui.press("f")
        await tui.type("is:foo")
        await tui.until("unknown state 'foo'")
        await tui.press("escape")
        await tui.until(lambda: not pane.filter.display)
        assert pane.list.selected_row is not None
        assert pane.list.selected_row.key == row.key
        # What is chosen in the filtered list stays selected.
        await tui.press("f")
        await tui.type("talk 12")
        await tui.press("enter", "escape")
        await tui.until(lambda: len(pane.list.rows) > 30)
        assert pane.list.selected_row.left[-1][0] == "Talk 12"


@pytest.mark.parametrize(
    ("unread", "text"),
    [(1, "reading 1 more conversation …"), (2, "reading 2 more conversations …")],
)
def test_rows_sorted_by_turns_say_how_many_are_not_read_yet(unread: int, text: str) -> None:
    contents = TopicsAndConversations(unread=unread)
    rows = make_library_rows(contents, LibraryPaneChoices(sort="turns"), datetime.now(UTC))
    assert [(text, "dim")] in [row.left for row in rows]
