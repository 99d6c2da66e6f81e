"""The library pane: what it lists, marks, filters and opens."""

from support import Builder
from tui_support import running


async def test_topics_come_first_then_conversations_pinned_by_day_archived(book: Builder) -> None:
    async with running(book.root) as tui:
        rows = tui.rows("library-list")
        order = [
            "TOPICS",
            "▾ Project Handbook4",
            "start",
            "◆ style",
            "✕ old",
            "▸ people/",
            "▾ Snippets1",
            "CONVERSATIONS",
            "Pinned",
            "By day",
            "Archived",
        ]
        assert set(order) <= set(rows), rows
        places = [
            rows.index(row) for row in ("TOPICS", "CONVERSATIONS", "Pinned", "By day", "Archived")
        ]
        assert places == sorted(places)
        assert rows.index("Pinned talkYesterday") == rows.index("Pinned") + 1
        assert any(row.startswith("▫ Old talk") for row in rows[rows.index("Archived") :])


async def test_an_unreadable_conversation_stays_listed_with_its_reason(book: Builder) -> None:
    async with running(book.root) as tui:
        row = next(r for r in tui.main.library_pane.list.rows if r.key == "jp-c17800000005")
        assert row.left[0][0] == "! "
        reason = "".join(text for text, _ in row.below[0])
        assert "JSON" in reason or "json" in reason
        assert tui.main.library_pane.list.select(row.key)
        await tui.press("enter")
        await tui.until(lambda: tui.main.reader_pane.reader.document.key == row.key)
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
        assert "RetriesYesterday" in rows
        assert not any("First steps" in row for row in rows)
        # The letters were text: nothing was opened, nobody left.
        assert tui.app.is_running
        await tui.type("qqq")
        assert tui.rows("library-list").count("nothing matches") == 2
        await tui.press("escape")
        assert tui.rows("library-list") == everything
        await tui.press("j")
        assert tui.app.focused is tui.main.library_pane.list


async def test_letters_expand_and_collapse_like_in_a_tree(book: Builder) -> None:
    async with running(book.root) as tui:
        listed = tui.main.library_pane.list
        listed.select("folder:project/people")
        await tui.press("l")
        assert "ada" in tui.rows("library-list")
        listed.select("project/people/ada")
        await tui.press("h")
        assert listed.selected
        assert listed.selected.key == "folder:project/people"
        await tui.press("h")
        assert "ada" not in tui.rows("library-list")
        await tui.press("h")
        assert listed.selected.key == "topic:project"
        await tui.press("h")
        assert "start" not in tui.rows("library-list")


async def test_enter_opens_and_the_keys_walk(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("g", "j", "enter")
        await tui.until(lambda: tui.main.reader_pane.reader.document.key == "project/old")
        assert tui.app.focused is tui.main.reader_pane.reader
        await tui.press("1", "G", "enter")
        await tui.until("Old talk")
        await tui.until(lambda: tui.main.reader_pane.reader.document.title == "Old talk")


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
        tui.main.library_pane.list.select(
            next(r.key for r in tui.main.library_pane.list.rows if r.key.startswith("problem:"))
        )
        await tui.press("enter")
        await tui.until(lambda: tui.main.reader_pane.reader.document.title == "A problem")


async def test_a_broken_kb_toml_leaves_the_conversations(book: Builder) -> None:
    (book.root / ".jp" / "kb.toml").write_text("[kb.topic\n")
    async with running(book.root) as tui:
        rows = tui.rows("library-list")
        assert any("kb.toml" in row for row in rows if row.startswith("! "))
        assert "First stepsYesterday" in rows or "First steps" in rows


async def test_an_empty_workspace_says_what_to_add(workspace_root) -> None:  # type: ignore[no-untyped-def]
    async with running(workspace_root) as tui:
        assert "none yet" in tui.text
        assert "[kb.topic.project]" in tui.text
        assert "jp query" in tui.text
