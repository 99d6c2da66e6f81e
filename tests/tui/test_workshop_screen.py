"""The workshop screen: exact previews, marks, writing in two steps, undo."""

import threading
from pathlib import Path

import pytest
from support import Builder, tree_hash
from textual.widgets import Input
from tui_support import running
from workshop_support import knowledge_of, workshop

from kbtui.knowledge.knowledge_data_types import PreloadOrDisableChange
from kbtui.knowledge.system_prompt_and_learn_tool import estimate_token_count
from kbtui.tui.prompt_workshop import prompt_workshop_screen

WRITTEN = """\
# My topics. Keep this comment.

[kb.topic.project]   # the project
title = "Project Handbook"
subjects = "docs/project" # where they are
learned = [
  "style", # always
]
disabled = ["old"]

# What follows are snippets.
[kb.topic.snippets]
subjects = "docs/snippets"
"""


@pytest.fixture
def kb(book: Builder) -> Path:
    """The handbook's `kb.toml` with comments and formatting of its author."""
    path = book.root / ".jp" / "kb.toml"
    path.write_text(WRITTEN)
    return path


def format_size(text: str | None) -> str:
    return f"{len(text or ''):,} characters ≈ {estimate_token_count(text or ''):,} tokens"


# what is shown


async def test_it_opens_at_the_subject_one_reads_with_what_learn_returns(book: Builder) -> None:
    learned = knowledge_of(book.root).learn("project", "people/ada", has_prompt=True).text
    async with workshop(book.root, at="project/people/ada") as shop:
        assert shop.screen.list.selected_row
        assert shop.screen.list.selected_row.key == "project/people/ada"
        await shop.tui.until("learn project people/ada")
        assert shop.given == learned
        assert format_size(learned) in shop.tui.text


async def test_topics_folders_and_subjects_show_their_size_and_their_sign(book: Builder) -> None:
    knowledge = knowledge_of(book.root)
    async with workshop(book.root) as shop:
        text = knowledge.learn("project", "start", has_prompt=True).text
        assert shop.entry("start") == f"start {len(text)} ≈ {estimate_token_count(text)}"
        assert shop.entry("style").startswith("◆ style ")
        assert shop.entry("old").startswith("✕ old ")
        texts = [
            knowledge.learn("project", slug, has_prompt=True).text
            for slug in ("start", "people/ada")
        ]
        texts.append("# Style\n\nShort sentences. No tabs.\n")
        total = sum(map(len, texts))
        tokens = sum(map(estimate_token_count, texts))
        # Of what may be seen: neither the hidden nor the disabled subject counts.
        assert shop.entry("Project Handbook") == f"▾ Project Handbook ◆1/3 {total} ≈ {tokens}"
        assert "secret" not in " ".join(shop.entries)
        await shop.press("full_stop")
        await shop.tui.until(lambda: any("◌ secret" in entry for entry in shop.entries))


async def test_the_whole_section_is_the_commands_and_v_changes_between_both(book: Builder) -> None:
    prompt = knowledge_of(book.root).format_knowledge_section()
    async with workshop(book.root) as shop:
        await shop.select("whole")
        await shop.tui.until(lambda: shop.given == prompt)
        assert format_size(prompt) in shop.tui.text
        await shop.select("snippets/retry")
        listing = knowledge_of(book.root).learn("snippets", "retry", has_prompt=True).text
        assert listing.startswith("```toml\n")
        await shop.tui.until(lambda: shop.given == listing)
        await shop.press("v")
        await shop.tui.until(lambda: shop.given == prompt)
        await shop.press("v")
        await shop.tui.until(lambda: shop.given == listing)


async def test_the_section_shows_from_where_the_selected_subject_stands(book: Builder) -> None:
    book.topics(long={"learned": ["a", "b"]})
    book.subject("long/a.md", "line of a\n" * 200)
    book.subject("long/b.md", "line of b\n" * 200)
    async with workshop(book.root, size=(100, 24)) as shop:
        await shop.select("long/b")
        await shop.press("v")
        await shop.tui.until('<subject "b">')
        assert "line of b" in shop.tui.text
        assert "line of a" not in shop.tui.text


async def test_a_folder_shows_what_a_glob_over_it_returns(book: Builder) -> None:
    book.subject("project/a[1]/x.md", "in brackets\n")
    book.subject("project/a1/y.md", "not that\n")
    async with workshop(book.root) as shop:
        await shop.select("folder:project/a[1]")
        await shop.tui.until(lambda: '<subject "a[1]/x">' in shop.given)
        assert "not that" not in shop.given


# marks


async def test_marks_are_previewed_counted_and_change_no_file(book: Builder, kb: Path) -> None:
    before = tree_hash(book.root)
    marks = [
        PreloadOrDisableChange("project", "start", "learned"),
        PreloadOrDisableChange("project", "people/ada", "disabled"),
    ]
    wanted = knowledge_of(book.root).copy_with_preload_or_disable_changes(marks)
    grown = len(wanted.format_knowledge_section() or "") - len(
        knowledge_of(book.root).format_knowledge_section() or ""
    )
    async with workshop(book.root) as shop:
        await shop.select("project/start")
        await shop.marked("space")
        assert shop.entry("start").startswith("◆*start ")
        await shop.select("folder:project/people")
        await shop.press("right")
        await shop.tui.until(lambda: any("ada" in entry for entry in shop.entries))
        await shop.select("project/people/ada")
        await shop.marked("x")
        assert shop.entry("ada").startswith("✕*ada ")
        await shop.tui.until(
            lambda: shop.given == wanted.learn("project", "people/ada", has_prompt=True).text
        )
        assert "Nothing in topic" in shop.given
        await shop.tui.until(
            f"{format_size(wanted.format_knowledge_section())}, +{grown:,} characters ≈ "
        )
        assert "2 unwritten changes" in shop.tui.text
        await shop.press("v")
        await shop.tui.until(lambda: shop.given == wanted.format_knowledge_section())
        # The same keys take the marks back.
        await shop.marked("x")
        await shop.select("project/start")
        await shop.marked("space")
        assert "unwritten change" not in shop.tui.text
        assert "+" not in shop.tui.text
    assert tree_hash(book.root) == before


async def test_a_topic_is_switched_off_and_on_again(book: Builder) -> None:
    async with workshop(book.root) as shop:
        await shop.select("project/start")
        await shop.marked("tilde")
        assert "off*" in shop.entry("Project Handbook")
        await shop.tui.until(lambda: shop.given.startswith('Unknown topic "project"'))
        await shop.tui.until("−")
        await shop.marked("tilde")
        assert "off" not in shop.entry("Project Handbook")
        assert not shop.screen.marks.pending_marks_in_order


async def test_a_mark_that_a_pattern_forbids_is_refused_with_what_to_do(book: Builder) -> None:
    book.topics(project={"title": "Project Handbook", "disabled": ["o*"]})
    async with workshop(book.root, size=(80, 24)) as shop:
        await shop.select("project/old")
        await shop.press("space")
        await shop.tui.until("matches the pattern 'o*'")
        assert "change that pattern in .jp/kb.toml" in " ".join(
            shop.screen.message_line.text.split()
        )
        assert "kb.toml" in shop.tui.text
        assert not shop.screen.marks.pending_marks_in_order
        assert shop.entry("old").startswith("✕ old")


async def test_folders_topics_and_fragments_say_why_they_take_no_mark(book: Builder) -> None:
    async with workshop(book.root) as shop:
        for key, words in (("topic:project", "press ~"), ("folder:project/people", "subjects")):
            await shop.select(key)
            await shop.press("space")
            assert words in shop.screen.message_line.text
        assert not shop.screen.marks.pending_marks_in_order


async def test_all_marks_are_dropped_at_once(book: Builder) -> None:
    async with workshop(book.root) as shop:
        await shop.select("project/start")
        await shop.marked("x", "tilde")
        assert len(shop.screen.marks) == 2
        await shop.marked("U")
        assert not shop.screen.marks.pending_marks_in_order
        await shop.tui.until(lambda: "unwritten change" not in shop.tui.text)


async def test_marks_outlive_a_reload_and_one_whose_subject_is_gone_is_dropped(
    book: Builder,
) -> None:
    async with workshop(book.root) as shop:
        await shop.select("project/start")
        await shop.marked("space")
        await shop.select("snippets/retry")
        await shop.marked("space")
        (book.root / "docs" / "snippets" / "retry.toml").unlink()
        book.subject("project/start.md", "much shorter\n")
        await shop.press("ctrl+r")
        await shop.tui.until("unknown subject")
        assert [mark.slug for mark in shop.screen.marks.pending_marks_in_order] == ["start"]
        await shop.tui.until(lambda: "start 13 ≈ 4" in shop.entry("start"))


async def test_files_that_change_meanwhile_are_seen_and_marks_stay(book: Builder) -> None:
    async with workshop(book.root) as shop:
        await shop.select("project/start")
        await shop.marked("space")
        book.subject("project/new.md", "brand new\n")
        shop.screen.handle_files_changed({"event": "changed", "knowledge": True})
        await shop.tui.until(lambda: any("new 10 ≈ 3" in entry for entry in shop.entries))
        assert [mark.slug for mark in shop.screen.marks.pending_marks_in_order] == ["start"]
        # While a change is shown, what is shown stays.
        await shop.shown()
        shop.screen.handle_files_changed({"event": "changed", "knowledge": True})
        await shop.tui.pilot.pause()
        assert "This will be written" in shop.tui.text


# writing


async def test_only_the_second_w_writes_exactly_what_was_shown(book: Builder, kb: Path) -> None:
    before = tree_hash(book.root)
    async with workshop(book.root) as shop:
        await shop.select("project/start")
        await shop.marked("space")
        await shop.select("snippets/retry")
        await shop.marked("x")
        await shop.shown()
        for line in ('-disabled = ["old"]', '+disabled = ["retry"]', '+  "start",'):
            assert (line in shop.tui.text) == (not line.startswith("-")), shop.tui.text
        assert "Nothing has been written yet." in shop.tui.text
        assert tree_hash(book.root) == before
        await shop.press("ctrl+s")
        await shop.tui.until("Written to .jp/kb.toml")
        text = kb.read_text()
        assert "# My topics. Keep this comment." in text
        assert "# always" in text
        assert text.replace('  "start",\n', "", 1).replace('disabled = ["retry"]\n', "") == WRITTEN
        await shop.tui.until(lambda: not shop.screen.marks.pending_marks_in_order)
        await shop.tui.until(lambda: shop.entry("start").startswith("◆ start"))
        assert knowledge_of(book.root).topics["project"].learned == ("style", "start")


async def test_u_takes_back_what_was_written_byte_for_byte(book: Builder, kb: Path) -> None:
    kb.write_bytes(WRITTEN.replace("\n", "\r\n").encode())
    before = kb.read_bytes()
    async with workshop(book.root) as shop:
        await shop.press("u")
        assert "Nothing to undo" in shop.screen.message_line.text
        await shop.select("project/start")
        await shop.marked("x")
        await shop.shown()
        await shop.press("enter")
        await shop.tui.until("Written to .jp/kb.toml")
        assert kb.read_bytes() != before
        await shop.press("u")
        await shop.tui.until("Restored the previous .jp/kb.toml")
        assert kb.read_bytes() == before
        await shop.tui.until(lambda: not shop.entry("start").startswith("✕"))


async def test_what_was_written_can_be_taken_back_after_coming_again(
    book: Builder, kb: Path
) -> None:
    async with workshop(book.root) as shop:
        await shop.select("project/start")
        await shop.marked("x")
        await shop.shown()
        await shop.press("ctrl+s")
        await shop.tui.until("Written to .jp/kb.toml")
        await shop.press("q")
        await shop.tui.until(lambda: not shop.is_open)
        # The library shows it too.
        await shop.tui.until(lambda: "✕ start" in shop.tui.rows("library-list"))
        await shop.press("P")
        await shop.tui.until(lambda: shop.is_open and shop.screen.list.rows)
        await shop.press("u")
        await shop.tui.until("Restored the previous .jp/kb.toml")
        assert kb.read_text() == WRITTEN


async def test_a_file_that_changed_meanwhile_is_left_alone_and_said(
    book: Builder, kb: Path
) -> None:
    async with workshop(book.root, size=(80, 24)) as shop:
        await shop.select("project/start")
        await shop.marked("space")
        await shop.shown()
        kb.write_text(WRITTEN + "# another hand\n")
        await shop.press("ctrl+s")
        await shop.tui.until("changed by another program")
        assert "review the change and try again" in " ".join(shop.screen.message_line.text.split())
        assert kb.read_text() == WRITTEN + "# another hand\n"
        # Asked again, the change is shown anew, on what the file says now.
        assert shop.screen.marks.pending_marks_in_order
        await shop.shown()
        await shop.press("ctrl+s")
        await shop.tui.until("Written to .jp/kb.toml")
        assert kb.read_text().endswith("# another hand\n")
        kb.write_text("# all gone\n")
        await shop.press("u")
        await shop.tui.until("changed by another program")
        assert kb.read_text() == "# all gone\n"


async def test_keys_typed_ahead_do_not_write_what_nobody_saw(book: Builder, kb: Path) -> None:
    async with workshop(book.root) as shop:
        await shop.select("project/start")
        await shop.marked("space")
        shop.screen.action_review_or_write_marks()
        shop.screen.action_review_or_write_marks()
        shop.screen.action_open_row_or_write()
        await shop.tui.until("This will be written")
        assert kb.read_text() == WRITTEN


async def test_going_on_withdraws_the_change_so_that_w_shows_it_again(
    book: Builder, kb: Path
) -> None:
    async with workshop(book.root) as shop:
        await shop.select("project/start")
        await shop.marked("space")
        for leave in ("escape", "v", "k"):
            await shop.shown()
            await shop.press(leave)
            await shop.tui.until(lambda: "This will be written" not in shop.tui.text)
            assert "w or Enter: write" not in shop.tui.text
        await shop.shown()
        await shop.marked("x")
        assert shop.is_open
        await shop.shown()
        assert kb.read_text() == WRITTEN


async def test_without_kb_toml_one_is_made_and_undoing_removes_it(book: Builder) -> None:
    kb = book.root / ".jp" / "kb.toml"
    kb.rename(book.root / ".jp" / "config.toml")
    async with workshop(book.root) as shop:
        await shop.select("snippets/retry")
        await shop.marked("space")
        await shop.shown()
        assert "/dev/null" in shop.tui.text
        assert not kb.exists()
        await shop.press("ctrl+s")
        await shop.tui.until("Written to .jp/kb.toml")
        assert kb.read_text() == '[kb.topic.snippets]\nlearned = [\n    "retry",\n]\n'
        await shop.press("u")
        await shop.tui.until("Restored the previous .jp/kb.toml")
        assert not kb.exists()


async def test_a_broken_kb_toml_is_shown_and_never_written_over(book: Builder) -> None:
    kb = book.root / ".jp" / "kb.toml"
    kb.rename(book.root / ".jp" / "config.toml")
    kb.write_text("[kb.topic.x\n")
    async with workshop(book.root) as shop:
        assert any(entry.startswith("! ") and "kb.toml" in entry for entry in shop.entries)
        await shop.select("snippets/retry")
        await shop.marked("space")
        await shop.press("ctrl+s")
        await shop.tui.until("Not written.")
        assert "fix it first" in shop.screen.message_line.text
        assert kb.read_text() == "[kb.topic.x\n"


# leaving


async def test_leaving_with_marks_asks_first(book: Builder, kb: Path) -> None:
    before = tree_hash(book.root)
    async with workshop(book.root) as shop:
        await shop.select("project/start")
        await shop.marked("space")
        for key in ("escape", "q", "ctrl+q"):
            await shop.press(key)
            assert shop.is_open
            assert "1 unwritten change · q: discard" in shop.tui.text
            await shop.press("escape")
            assert "q: discard" not in shop.tui.text
        # From under the help too.
        await shop.press("question_mark", "ctrl+q")
        await shop.tui.until("1 unwritten change · q: discard")
        assert shop.tui.app.is_running
        await shop.press("q")
        await shop.tui.until(lambda: not shop.is_open)
    assert tree_hash(book.root) == before


async def test_escape_goes_back_step_by_step(book: Builder) -> None:
    async with workshop(book.root) as shop:
        everything = len(shop.screen.list.rows)
        await shop.press("f")
        await shop.tui.type("ada")
        await shop.tui.until(lambda: any("people/ada" in entry for entry in shop.entries))
        await shop.press("escape")
        await shop.tui.until(lambda: len(shop.screen.list.rows) == everything)
        await shop.tried("people/*")
        await shop.press("escape")
        await shop.tui.until(lambda: len(shop.screen.list.rows) == everything)
        await shop.press("tab")
        assert shop.tui.app.focused is shop.screen.reader
        await shop.press("escape")
        assert shop.tui.app.focused is shop.screen.list
        await shop.press("escape")
        await shop.tui.until(lambda: not shop.is_open)


# patterns


async def test_a_glob_lists_what_it_matches_and_what_learn_would_return(book: Builder) -> None:
    text = knowledge_of(book.root).learn("project", ["p*/*", "start"], has_prompt=True).text
    async with workshop(book.root) as shop:
        await shop.select("topic:project")
        await shop.tried("p*/* start")
        assert [row.key for row in shop.screen.list.rows[1:]] == [
            "project/people/ada",
            "project/start",
        ]
        assert shop.given == text
        assert f"2 subjects, {format_size(text)}" in shop.tui.text
        assert "kbtui learn project 'p*/*' start" in shop.tui.text
        # From any other topic by its name, and to the matches with Enter.
        await shop.tried("snippets/**")
        assert shop.given == knowledge_of(book.root).learn("snippets", ["**"], has_prompt=True).text
        await shop.press("enter")
        assert shop.tui.app.focused is shop.screen.list
        await shop.marked("space")
        assert [mark.slug for mark in shop.screen.marks.pending_marks_in_order] == ["retry"]


async def test_a_k_shows_how_the_prompt_would_grow_and_keeps_nothing(book: Builder) -> None:
    before = tree_hash(book.root)
    plain = knowledge_of(book.root).format_knowledge_section() or ""
    tried = (
        knowledge_of(
            book.root, knowledge=["project/p*/*", "snippets/retry"]
        ).format_knowledge_section()
        or ""
    )
    async with workshop(book.root) as shop:
        await shop.tried("-k 'project/p*/*' -k snippets/retry")
        assert shop.given == tried
        tokens = estimate_token_count(tried) - estimate_token_count(plain)
        grown = f"+{len(tried) - len(plain):,} characters ≈ {tokens:,} tokens"
        assert f"2 subjects, {grown}" in shop.tui.text
        await shop.tried("-k project/style")
        assert "all matches are already pre-loaded" in shop.tui.text
        await shop.press("escape")
        await shop.tui.until(lambda: shop.screen.query_one("#problem").display is False)
    assert tree_hash(book.root) == before


MISTAKES = [
    ("-k", 0, "-k needs a value"),
    ("-k project", 3, "expected a topic and a pattern"),
    ("-k projcet/*", 3, "did you mean project?"),
    ("-k project/* start", 13, "this pattern needs -k too"),
    ('start "peo', 6, "unclosed quote"),
    ("peop[le/*", 4, "a [ without ] matches only the character ["),
    ("start.md", 0, "slugs have no extension: write 'start'"),
    ("start sty", 6, "nothing matches"),
    (".secret", 0, "a slug cannot start with a dot"),
    ("old", 0, "the matching subjects are disabled"),
    ("project/start snippets/retry", 14, "one topic at a time"),
    ("../*", 0, "nothing matches"),
    ("x" * 5000, 0, "no slug is that long"),
]


async def test_mistakes_are_pointed_at_and_the_rest_goes_on(book: Builder) -> None:
    async with workshop(book.root) as shop:
        await shop.select("topic:project")
        for typed, at, words in MISTAKES:
            await shop.tried(typed)
            problem = shop.screen.pattern_result.problem
            assert problem is not None, typed
            assert (problem.at, words in f"{problem.message}; {problem.hint}") == (at, True), (
                problem
            )
            lines = shop.tui.text.split("\n")
            below = next(n for n, line in enumerate(lines) if line.startswith("  / ")) + 1
            if len(typed) < 100:
                assert lines[below].index("^") == 4 + at
            assert words in lines[below]
        await shop.tried("start")
        assert shop.given == knowledge_of(book.root).learn("project", "start", has_prompt=True).text


async def test_a_pattern_is_tried_again_when_the_marks_change(book: Builder) -> None:
    async with workshop(book.root) as shop:
        await shop.select("topic:project")
        await shop.tried("*")
        assert "project/start" in [row.key for row in shop.screen.list.rows]
        await shop.press("enter")
        await shop.select("project/start")
        await shop.marked("x")
        await shop.tui.until(
            lambda: "project/start" not in [row.key for row in shop.screen.list.rows]
        )


# JP's fragments


async def test_jps_fragments_are_a_read_only_group_with_who_loads_them(book: Builder) -> None:
    folder = book.root / ".jp" / "config"
    (folder / "knowledge").mkdir(parents=True)
    (folder / "personas").mkdir()
    (folder / "knowledge" / "house.toml").write_text(
        '[[assistant.system_prompt_sections]]\ntag = "house"\ntitle = "House rules"\n'
        'content = "Wipe your \\u001b[31mfeet[/b]."\n'
    )
    (folder / "personas" / "dev.toml").write_text('extends = ["../knowledge/house.toml"]\n')
    before = tree_hash(book.root)
    async with workshop(book.root) as shop:
        assert "JP'S PROMPT SECTIONS, read-only" in shop.entries
        await shop.select("fragment:0")
        await shop.tui.until("Wipe your feet[/b].")
        assert ".jp/config/personas/dev.toml" in shop.tui.text
        assert shop.entry("House rules").startswith("House rules 24 ≈ 6")
        await shop.press("space", "x", "tilde")
        assert "Select a topic" in shop.screen.message_line.text
        assert not shop.screen.marks.pending_marks_in_order
    assert tree_hash(book.root) == before


# what files may hold


async def test_hostile_titles_and_names_are_only_text(book: Builder) -> None:
    book.topics(
        **{
            "[red]": {
                "title": "\x1b[31mEvil[/b] \u202egnp",
                "introduction": "[@click=app.quit]x[/]",
                "subjects": "docs/evil",
            }
        }
    )
    book.subject("evil/re[a-z]+ [b].md", "\x1b]0;owned\x07[/b] \x9b2J done\n")
    book.subject("evil/a\u202eb.md", "x\n")
    async with workshop(book.root, size=(80, 24)) as shop:
        await shop.select("topic:[red]")
        await shop.press("right")
        await shop.select("[red]/re[a-z]+ [b]")
        await shop.tui.until("done")
        await shop.marked("space")
        await shop.press("v")
        await shop.shown()
        text = shop.tui.text
        assert not any(sign in text for sign in "\x1b\x07\x9b\u202e")
        assert "Evil[/b] gnp" in text
        await shop.press("ctrl+s")
        await shop.tui.until("Written to")
        assert knowledge_of(book.root).topics["[red]"].learned == ("re[a-z]+ [b]",)
        await shop.press("v")
        await shop.tried("re[")
        assert shop.is_open


async def test_what_cannot_be_learned_says_so_in_place_of_its_size(book: Builder) -> None:
    (book.root / "docs" / "snippets" / "blob.bin").write_bytes(b"\0\1\2")
    (book.root / "docs" / "snippets" / "latin.txt").write_bytes(b"caf\xe9")
    async with workshop(book.root) as shop:
        assert "it is a binary file" in shop.entry("blob")
        assert "it is not UTF-8 text" in shop.entry("latin")
        await shop.select("snippets/blob")
        await shop.tui.until(lambda: shop.given == 'Skipped "blob": it is a binary file.')


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (160, 50)])
async def test_it_is_usable_at_any_size(book: Builder, size: tuple[int, int]) -> None:
    async with workshop(book.root, size=size) as shop:
        assert "Prompt workshop" in shop.tui.text
        await shop.select("project/start")
        await shop.marked("space")
        await shop.tui.until("+")
        await shop.shown()
        await shop.press("escape", "question_mark")
        await shop.tui.until("In the prompt workshop")
        await shop.press("escape", "q", "q")
        await shop.tui.until(lambda: not shop.is_open)


async def test_an_empty_workspace_says_what_to_do(workspace_root: Path) -> None:
    async with workshop(workspace_root) as shop:
        assert "declare one in .jp/kb.toml" in shop.tui.text
        await shop.tui.until("There is no <knowledge> section")
        await shop.press("space", "x", "tilde", "ctrl+s", "u", "v", "enter", "left", "right")
        assert shop.is_open


# many


async def test_slow_work_is_done_in_threads_and_only_rows_in_sight_are_made(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.topics(bulk={})
    for number in range(1200):
        folder = book.root / "docs" / "bulk" / f"d{number % 120:03}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"s{number:04}.md").write_text(f"# Subject {number}\n")
    names = (
        "load_prompt_with_changes",
        "make_prompt_with_pending_marks",
        "make_subject_tree_rows",
        "find_subject_pattern_matches",
        "make_workshop_preview",
        "make_running_subject_size_sums_by_topic",
    )
    called: dict[str, set[bool]] = {name: set() for name in names}
    main = threading.get_ident()

    def noted(name: str) -> None:
        real = getattr(prompt_workshop_screen, name)

        def call(*args: object, **options: object) -> object:
            called[name].add(threading.get_ident() == main)
            return real(*args, **options)

        monkeypatch.setattr(prompt_workshop_screen, name, call)

    for name in names:
        noted(name)
    async with workshop(book.root, size=(100, 30)) as shop:
        drawn: list[str] = []
        real = shop.screen.list.format_tree_row
        monkeypatch.setattr(
            shop.screen.list, "format_tree_row", lambda node: drawn.append(node.name) or real(node)
        )
        await shop.select("topic:bulk")
        await shop.press("right")
        await shop.tui.until(lambda: len(shop.screen.list.rows) > 120)
        await shop.tried("**")
        assert len(shop.screen.list.rows) == 1201
        assert "1,200 subjects" in shop.tui.text
        await shop.press("enter")
        drawn.clear()
        await shop.press("G")
        assert "s1199" in shop.tui.text
        assert 0 < len(drawn) <= 3 * 30
        await shop.marked("space")
        await shop.press("escape")
        await shop.press("f")
        shop.screen.query_one("#choose", Input).value = "s010 d1"
        await shop.tui.until(lambda: len(shop.screen.list.rows) == 13)
        found = [row.key for row in shop.screen.list.rows if row.key.startswith("bulk/")]
        assert found == [f"bulk/d{number}/s0{number}" for number in range(100, 110)]
    assert all(threads == {False} for threads in called.values()), called


async def test_leaving_kbtui_does_not_wait_for_the_counting(book: Builder) -> None:
    book.topics(bulk={})
    for number in range(900):
        book.subject(f"bulk/s{number}.md", "x\n")
    async with running(book.root) as tui:
        await tui.press("P")
        await tui.press("ctrl+q")
        await tui.until(lambda: not tui.app.is_running)


async def test_a_refusal_goes_with_the_next_key(book: Builder) -> None:
    async with workshop(book.root) as shop:
        await shop.tui.press("ctrl+s")
        await shop.tui.until("No changes to write")
        await shop.tui.press("j")
        assert "No changes to write" not in shop.tui.text


async def test_a_topic_says_how_many_of_its_subjects_it_lists(book: Builder) -> None:
    async with workshop(book.root) as shop:
        await shop.select("topic:project")
        # The hidden and the disabled subject are missing.
        await shop.tui.until("listing 3 of 5: ")
        await shop.select("topic:snippets")
        await shop.tui.until("listing: ")
