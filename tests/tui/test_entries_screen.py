"""The entries screen: filters, totals, paging, an entry's page, and writing."""

import os
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from feature_screen_support import editor, paged
from support import Builder, asked, called, said
from tui_support import Tui, matches_snapshot, running

from kbtui.errors import UsageError
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.search.query_parsing_and_filter_application import parse_entry_filter
from kbtui.tui.entries_screen import (
    EntriesScreen,
    get_last_filter_value,
    replace_filter_value,
)


@pytest.fixture
def shelf(book: Builder) -> Builder:
    """The small workspace with fixed file times."""
    for number, path in enumerate(sorted(book.root.rglob("*"))):
        os.utime(path, (1_760_000_000 + number, 1_760_000_000 + number))
    return book


def refs(screen: EntriesScreen) -> list[str]:
    return [row.data.ref for row in screen.list.rows]


async def read(tui: Tui, screen: EntriesScreen) -> None:
    await tui.until(lambda: screen.loaded is not None and bool(screen.list.rows))


async def filtered(tui: Tui, screen: EntriesScreen, text: str) -> list[str]:
    await tui.press("f")
    screen.filter.input.value = text
    await tui.until(lambda: screen.loaded.wanted == parse_entry_filter(text))  # type: ignore[union-attr]
    await tui.press("enter")
    return refs(screen)


async def detailed(tui: Tui, screen: EntriesScreen, ref: str) -> None:
    entry = next(row.data for row in screen.list.rows if row.data.ref == ref)
    screen.list.select_row(entry.id)
    await tui.until(lambda: screen.reader.document.key == f"entry:{entry.id}")


async def test_it_looks_as_it_should(shelf: Builder) -> None:
    for size in ((160, 40), (80, 24)):
        async with paged(shelf, "E", EntriesScreen, size) as (tui, screen, _):
            await read(tui, screen)
            await detailed(tui, screen, "project/start")
            matches_snapshot(f"entries_{size[0]}x{size[1]}", tui.text)


async def test_filters_combine_and_totals_follow(shelf: Builder) -> None:
    async with paged(shelf, "E", EntriesScreen) as (tui, screen, _):
        await read(tui, screen)
        every = refs(screen)
        assert "8 entries" in tui.text
        assert await filtered(tui, screen, "type:conversation") == [r for r in every if "jp-c" in r]
        assert "4 entries" in tui.text
        assert await filtered(tui, screen, "CLONE type:note") == ["project/start"]
        assert "1 entry" in tui.text
        day = datetime.fromtimestamp(1_760_000_000).date().isoformat()
        found = await filtered(tui, screen, f"topic:project from:{day} to:{day}")
        assert set(found) == {"project/start", "project/style", "project/people/ada"}
        assert await filtered(tui, screen, f"topic:project from:{day} status:pending") == []
        assert "No entries match." in tui.text
        assert "0 entries" in tui.text


async def test_letters_of_a_filter_do_not_wait_for_the_list(
    shelf: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbtui.tui.framework.key_press_queue.MAX_WAIT_SECONDS", 60.0)
    async with paged(shelf, "E", EntriesScreen) as (tui, screen, library):
        await read(tui, screen)
        is_read = threading.Event()
        reader = library.open_index_reader

        def read_slowly() -> Any:
            is_read.wait(60)
            return reader()

        library.open_index_reader = read_slowly  # type: ignore[method-assign]
        try:
            await tui.press("f")
            await tui.press("c")
            await tui.until(lambda: screen.is_reading_filtered_rows)
            for key in "lone":
                tui.app.simulate_key(key)
            await tui.until(lambda: screen.filter.input.value == "clone", 10)
        finally:
            is_read.set()
        await tui.until(lambda: refs(screen) == ["project/start"])


async def test_a_title_of_usual_length_is_shown_whole(book: Builder) -> None:
    title = "The engine will not start, or will not answer"
    book.subject("project/start.md", f"# {title}\n")
    sizes = ((80, 24), (120, 30), (160, 40))
    async with paged(book, "E", EntriesScreen, sizes[0]) as (tui, screen, _):
        for size in sizes:
            await tui.pilot.resize_terminal(*size)
            await tui.until(lambda size=size: len(tui.text.split("\n")) == size[1])
            await read(tui, screen)
            assert f"● {title}" in tui.text, size
            assert "changed" in tui.text, size
            assert "cited 30d" in tui.text, size


async def test_a_mistake_in_a_filter_is_said_and_what_was_shown_stays(shelf: Builder) -> None:
    async with paged(shelf, "E", EntriesScreen) as (tui, screen, _):
        await read(tui, screen)
        before = refs(screen)
        await tui.press("f")
        for text, words in (
            ("status:red", "unknown status 'red'"),
            ("from:soonish", "is not a date"),
        ):
            screen.filter.input.value = text
            await tui.until(words)
        assert refs(screen) == before


async def test_keys_go_through_types_and_status_and_show_hidden_and_archived(
    shelf: Builder,
) -> None:
    async with paged(shelf, "E", EntriesScreen) as (tui, screen, _):
        await read(tui, screen)
        await tui.press("m")
        await tui.until(lambda: screen.filter.input.value == "type:conversation")
        await tui.until(lambda: all("jp-c" in ref for ref in refs(screen)))
        await tui.press("comma")
        await tui.until(lambda: "jp-c17800000004" in refs(screen))
        await tui.press("m", "m")
        await tui.until(lambda: screen.filter.input.value == "")
        await tui.press("full_stop")
        await tui.until(lambda: "project/secret" in refs(screen))
        assert "project/old" not in refs(screen), "disabled subjects are in no index"
        await tui.press("ampersand", "ampersand", "ampersand")
        await tui.until(lambda: screen.filter.input.value == "is:error")
        await tui.until(lambda: refs(screen) == ["jp-c17800000005"])


async def test_ten_thousand_rows_are_read_as_one_goes(book: Builder) -> None:
    for number in range(1200):
        book.subject(f"snippets/s{number:04}.md", f"# Snippet {number}\n")
    async with paged(book, "E", EntriesScreen, (120, 30)) as (tui, screen, library):
        await read(tui, screen)
        assert len(screen.list.rows) < 500
        await tui.press("G")
        await tui.until(lambda: len(screen.list.rows) == 1208)
        await tui.until("1,208 of 1,208")
        at_end = screen.list.selected_entry.ref
        # A new entry comes in above: what is selected stays selected, and nothing is read twice.
        book.subject("snippets/fresh.md", "# Fresh\n")
        library.refresh()
        screen.handle_files_changed({})
        await tui.until(lambda: len(screen.list.rows) == 1209)
        assert screen.list.selected_entry.ref == at_end
        assert len(set(refs(screen))) == 1209


async def test_the_details_show_chunks_that_unfold_and_the_turns_that_used_it(
    book: Builder,
) -> None:
    book.subject("project/style.md", "# Style\n\n" + "word " * 100 + "END\n")
    lately = [
        asked("Style?"),
        *called("z", "learn", "…", topic="project", subjects="style"),
        said("."),
    ]
    book.conversation(9, [lately], title="On style")
    async with paged(book, "E", EntriesScreen, (160, 50)) as (tui, screen, _):
        await read(tui, screen)
        await detailed(tui, screen, "project/style")
        assert "Cited in the last 30 days" in tui.text
        assert "jp-c17800000009:1  On style  learn" in tui.text
        assert "characters" in tui.text
        assert "no vector" in tui.text
        assert "END" not in tui.text
        await tui.press("enter")
        viewport = screen.reader.viewport
        chunk = next(
            n for n, b in enumerate(viewport.document.blocks) if b.key.startswith("chunk:")
        )
        viewport.go_to_block_line(chunk)
        await tui.press("enter")
        await tui.until("END")
        cite = next(n for n, b in enumerate(viewport.document.blocks) if b.key.startswith("cite:"))
        viewport.go_to_block_line(cite)
        await tui.press("enter")
        await tui.until(lambda: tui.app.screen is tui.main)
        await tui.until(
            lambda: tui.main.reader_pane.document_view.document.key == "jp-c17800000009"
        )


async def test_r_opens_it_in_the_reader(shelf: Builder) -> None:
    async with paged(shelf, "E", EntriesScreen) as (tui, screen, _):
        await read(tui, screen)
        await detailed(tui, screen, "project/people/ada")
        await tui.press("2")
        await tui.until(lambda: tui.app.screen is tui.main)
        await tui.until(
            lambda: tui.main.reader_pane.document_view.document.key == "project/people/ada"
        )


@pytest.mark.parametrize("url", ["https://example.org/a", "file:///etc/passwd", "javascript:1"])
async def test_an_address_is_copied_where_nothing_can_open_it(
    book: Builder, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    book.subject("project/web.md", f"---\nsource: web\nsource_url: '{url}'\n---\n# Web\n")
    async with paged(book, "E", EntriesScreen) as (tui, screen, _):
        await read(tui, screen)
        await detailed(tui, screen, "project/web")
        await tui.press("o")
        await tui.until(f"No browser found; copied {url}")
        assert tui.app.clipboard == url


# writing


async def form(tui: Tui, **values: str) -> None:
    from textual.widgets import Input

    from kbtui.tui.framework.dialogs import FormDialog

    await tui.until(lambda: isinstance(tui.app.screen, FormDialog))
    for name, value in values.items():
        tui.app.screen.query_one(f"#field-{name}", Input).value = value
    await tui.press("ctrl+s")


async def test_a_new_entry_is_written_in_the_editor_and_selected(
    book: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with editor(monkeypatch, tmp_path, 'echo "Back off." >> "$1"') as lent:
        async with paged(book, "E", EntriesScreen) as (tui, screen, library):
            await read(tui, screen)
            await tui.press("plus")
            await form(tui, title="Retry policy", type="rule", tags="net, http")
            await tui.until("Created ")
            library.refresh()
            screen.handle_files_changed({})
            await tui.until(
                lambda: (e := screen.list.selected_entry) is not None and "retry-policy" in e.ref
            )
            assert screen.list.selected_entry.type == "rule"
            assert screen.list.selected_entry.tags == ["net", "http"]
            assert lent() == 1
    [path] = book.root.rglob("retry-policy.md")
    text = path.read_text()
    assert text.startswith("---\ntitle: Retry policy\ntype: rule\n")
    assert text.endswith("Back off.\n")


async def test_an_editor_that_fails_leaves_what_was_typed_and_the_screen_says_where(
    book: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with editor(monkeypatch, tmp_path, 'echo "Back off." >> "$1"; exit 3'):
        async with paged(book, "E", EntriesScreen) as (tui, screen, _):
            await read(tui, screen)
            await tui.press("plus")
            await form(tui, title="Retry policy")
            await tui.until("the editor failed with exit code 3")
            said, shown = screen.message_line.text, "".join(tui.text.split())
    kept = Path(said.partition("your text is in ")[2].removesuffix(")"))
    assert kept.read_text().endswith("Back off.\n")
    assert kept.name in shown
    kept.unlink()
    assert not [*book.root.rglob("retry-policy.md")]


@pytest.mark.parametrize("chosen", ["", "vim"])
async def test_without_a_title_or_an_editor_the_form_says_so_and_keeps_what_was_typed(
    book: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: str
) -> None:
    before = {path.name for path in book.root.rglob("*.md")}
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", chosen)
    monkeypatch.setattr(os, "isatty", lambda number: False)
    async with paged(book, "E", EntriesScreen) as (tui, screen, _):
        await read(tui, screen)
        await tui.press("plus")
        await form(tui, title="  ")
        await tui.until("A subject needs a title")
        await form(tui, title="A title")
        await tui.until("The editor vim needs a terminal" if chosen else "No editor is set")
        assert "A title" in tui.text
    assert {path.name for path in book.root.rglob("*.md")} == before


async def test_editing_keeps_id_and_citations_and_says_what_front_matter_lost(
    book: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = "printf -- '---\\ntitle: [unclosed\\n---\\n# Anew\\n' > \"$1\""
    with editor(monkeypatch, tmp_path, script):
        async with paged(book, "E", EntriesScreen) as (tui, screen, library):
            await read(tui, screen)
            await detailed(tui, screen, "project/start")
            before = screen.list.selected_entry
            assert before.cites_30d == 1
            await tui.press("e")
            await tui.until("its front matter is ignored")
            library.refresh()
            screen.handle_files_changed({})
            await tui.until(lambda: screen.list.selected_entry.title == "Anew")
            after = screen.list.selected_entry
            assert (after.id, after.cites_30d) == (before.id, 1)
            await tui.until("! front matter ignored")


async def test_deleting_asks_and_moves_to_the_trash(book: Builder) -> None:
    path = book.root / "docs/project/style.md"
    text = path.read_bytes()
    async with paged(book, "E", EntriesScreen) as (tui, screen, library):
        await read(tui, screen)
        await detailed(tui, screen, "project/style")
        await tui.press("d")
        await tui.until("y move it")
        await tui.press("enter", "escape")
        assert path.exists(), "only y moves it"
        await tui.press("d")
        await tui.until("y move it")
        await tui.press("y")
        await tui.until(lambda: not path.exists())
        await tui.until("Moved to the trash: project/style")
        library.refresh()
        screen.handle_files_changed({})
        await tui.until(lambda: "project/style" not in refs(screen))
        # A key brings it back, and does nothing more when pressed again.
        await tui.press("u")
        await tui.until(path.exists)
        await tui.until("Moved back: project/style")
        assert path.read_bytes() == text
        library.refresh()
        screen.handle_files_changed({})
        await tui.until(lambda: "project/style" in refs(screen))
        await tui.press("u")
        await tui.until("Nothing to undo")


async def test_a_deleted_subject_comes_back_after_the_screen_was_closed(book: Builder) -> None:
    path = book.root / "docs/project/style.md"
    async with paged(book, "E", EntriesScreen) as (tui, screen, _):
        await read(tui, screen)
        await detailed(tui, screen, "project/style")
        await tui.press("d")
        await tui.until("y move it")
        await tui.press("y")
        await tui.until(lambda: not path.exists())
        await tui.press("q")
        await tui.until(lambda: tui.app.screen is tui.main)
        await tui.press("E")
        await tui.until(lambda: isinstance(tui.app.screen, EntriesScreen))
        await tui.press("u")
        await tui.until(path.exists)


async def test_what_was_deleted_does_not_replace_a_new_file(book: Builder) -> None:
    path = book.root / "docs/project/style.md"
    async with paged(book, "E", EntriesScreen) as (tui, screen, _):
        await read(tui, screen)
        await detailed(tui, screen, "project/style")
        await tui.press("d")
        await tui.until("y move it")
        await tui.press("y")
        await tui.until("Moved to the trash: project/style")
        path.write_text("# New")
        await tui.press("u")
        await tui.until("another file now has this name")
        assert path.read_text() == "# New"


async def test_where_there_is_no_trash_another_question_is_asked(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("send2trash.send2trash", refuse)
    path = book.root / "docs/project/style.md"
    async with paged(book, "E", EntriesScreen) as (tui, screen, _):
        await read(tui, screen)
        await detailed(tui, screen, "project/style")
        for answer in ("escape", "D"):
            assert path.exists()
            await tui.press("d")
            await tui.until("y move it")
            await tui.press("y")
            await tui.until("delete it permanently")
            await tui.press(answer)
        await tui.until(lambda: not path.exists())


async def test_what_failed_is_tried_again_on_a_key(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.knowledge import subject_files

    text_of, broken = subject_files.read_subject_text, [True]

    def unreadable(subject: Any) -> str:
        if broken and subject.slug == "style":
            from kbtui.errors import KbtuiError

            raise KbtuiError("the disk is tired")
        return text_of(subject)

    monkeypatch.setattr(subject_files, "read_subject_text", unreadable)
    async with paged(book, "E", EntriesScreen) as (tui, screen, _):
        await read(tui, screen)
        await detailed(tui, screen, "project/style")
        assert screen.list.selected_entry.status == "error"
        await tui.until("! the disk is tired")
        broken.clear()
        await tui.press("exclamation_mark")
        await tui.until(lambda: screen.list.selected_entry.status == "ready")
        assert screen.list.selected_entry.id == make_subject_id("project", "style")


async def test_hostile_titles_are_only_text(book: Builder) -> None:
    book.subject(
        "project/bad.md", '---\ntitle: "\\e[2J[/b] \\u202e x"\ntags: ["\\e[31m"]\n---\nx\n'
    )
    async with paged(book, "E", EntriesScreen, (160, 30)) as (tui, screen, _):
        await read(tui, screen)
        await detailed(tui, screen, "project/bad")
        assert "[/b]" in tui.text
        assert not any(sign in tui.text for sign in "\x1b\u202e")


# the filter's words


@pytest.mark.parametrize(
    ("text", "q", "types", "statuses"),
    [("deploy now", "deploy now", (), ()), ("type:a,b x", "x", ("a", "b"), ()),
     ('x type:"two words" y', "x y", ("two words",), ()), ("STATUS:ready type: http://a.b", "http://a.b", (), ("ready",)),
     ("mytype:x", "mytype:x", (), ())],
)  # fmt: skip
def test_a_filter_is_read_as_it_is_typed(
    text: str, q: str, types: tuple[str, ...], statuses: tuple[str, ...]
) -> None:
    wanted = parse_entry_filter(text)
    assert (wanted.q, wanted.types, wanted.statuses) == (q, types, statuses)


def test_a_key_changes_its_part_of_the_filter_alone() -> None:
    text = replace_filter_value("deploy type:rule from:2026", "type", "two words")
    assert text == 'deploy from:2026 type:"two words"'
    assert get_last_filter_value(text, "type") == "two words"
    assert parse_entry_filter(text).types == ("two words",)
    assert replace_filter_value(text, "type", None) == "deploy from:2026"
    with pytest.raises(UsageError, match="to:"):
        parse_entry_filter("to:2026-99-99")


async def test_without_any_entry_it_says_how_there_comes_to_be_one(
    workspace_root: Path,
) -> None:
    async with running(Builder(workspace_root).root) as tui:
        tui.app.library.open_index_reader()
        await tui.press("E")
        await tui.until("No entries yet. Declare a topic, then press +")
        await tui.press("f")
        await tui.type("x")
        await tui.until("No entries match.")


async def test_what_has_the_focus_is_visible_and_its_keys_are_named(shelf: Builder) -> None:
    def background(tui: Tui, y: int) -> object:
        strip = tui.app.screen._compositor.render_strips()[y]
        segment = next(segment for segment in strip if "filter" in segment.text)
        return segment.style and segment.style.bgcolor

    async with paged(shelf, "E", EntriesScreen, (120, 35)) as (tui, screen, _):
        await read(tui, screen)
        assert "Enter details" in tui.text
        unfocused = background(tui, 1)
        await tui.press("tab")
        await tui.until("Enter unfold / open")
        await tui.press("tab")
        await tui.until("Enter accept  Esc leave the input")
        assert screen.focused is screen.filter.input
        assert "n new" not in tui.text
        assert background(tui, 1) != unfocused
        await tui.press("tab")
        await tui.until("Enter details")
        assert background(tui, 1) == unfocused


async def test_a_narrow_table_has_whole_headings_and_tags_without_separators(
    book: Builder,
) -> None:
    book.subject("project/tagged.md", "---\ntitle: Tagged\ntags: first; second\n---\nText.\n")
    async with paged(book, "E", EntriesScreen, (120, 30)) as (tui, screen, _):
        await read(tui, screen)
        assert "project/tagged  #first #second" in tui.text
        for width, heading in (
            (80, "title, reference, #tags"),
            (40, "title, reference"),
            (30, "title"),
        ):
            await tui.pilot.resize_terminal(width, 24)

            def has_heading(heading: str = heading) -> bool:
                [line] = [line for line in tui.text.splitlines() if "cited 30d" in line]
                return "…" not in line and line.strip("│ ").split("  ")[0] == heading

            await tui.until(has_heading)
