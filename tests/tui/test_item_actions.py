"""Commands on the selected or open item: copy, bookmark, jump, follow links, edit, first topic."""

import json
import shlex
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder, asked, said, write_json
from tui_support import Tui, running

from kbtui.knowledge.subject_editing import build_editor_command
from kbtui.library import open_workspace
from kbtui.tui.command_palette import find_command_palette_items, list_palette_commands
from kbtui.tui.external_programs_and_clipboard import find_clipboard_command
from kbtui.tui.main.jump_labels import LETTERS, JumpLabelScreen
from kbtui.tui.reader.links_and_copyable_texts import (
    DocumentLink,
    find_markdown_links,
    resolve_subject_link,
)
from kbtui.tui.tui_command_table import SCOPES, list_commands_of_scopes
from kbtui.userdata.turn_mark_store import MarkStore
from kbtui.userdata.user_data_store import UserData

TALK = "jp-c17800000001"


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("doctor", "doctor"),
        ("workshop", "workshop"),
        ("insights", "insights"),
        ("explain missing", "results.why"),
        ("export", "export"),
        ("open link", "reader.link"),
        ("quit", "quit"),
    ],
)
def test_the_palette_finds_a_command_by_its_label_first(typed: str, name: str) -> None:
    found = find_command_palette_items(list_palette_commands(SCOPES), typed)
    assert getattr(found[0].value, "id", "") == name


@pytest.fixture
def make_workspace(workspace_root: Path) -> Builder:
    return Builder(workspace_root)


@pytest.fixture(autouse=True)
def _no_clipboard(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


async def copied(tui: Tui, letter: str) -> str:
    before = tui.app.clipboard
    await tui.press("Y")
    await tui.until("kbtui command")
    await tui.press(letter)
    await tui.until(lambda: tui.app.clipboard != before)
    return tui.app.clipboard


async def test_line_block_turn_all_reference_and_command_are_copied(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(f"{TALK}:2")
        await tui.press("j", "j")
        assert await copied(tui, "t") == "You\n\nAnd the tests?\n\nJP\n\n`make test`."
        await tui.until("Copied turn 2 (7 lines)")
        assert await copied(tui, "r") == f"{TALK}:2"
        assert await copied(tui, "c") == f"kbtui show {TALK}:2"
        await tui.open("project/style")
        assert await copied(tui, "l") == "Style"
        assert await copied(tui, "b") == "# Style"
        assert await copied(tui, "a") == "# Style\n\nShort sentences. No tabs.\n"
        for view in ("source", "learn"):
            await tui.press("v")
            await tui.until(
                lambda view=view: tui.main.reader_pane.document_view.document.view == view
            )
        assert await copied(tui, "c") == "kbtui learn project style"
        await tui.press("1", "y")
        await tui.until(lambda: tui.app.clipboard == "project/style")
        await tui.until("Copied project/style")


async def test_what_the_mouse_selected_is_copied_by_ctrl_c(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/style")
        await tui.pilot.mouse_down("#document", offset=(1, 3))
        await tui.pilot.hover("#document", offset=(6, 3))
        await tui.pilot.mouse_up("#document", offset=(6, 3))
        await tui.press("ctrl+c")
        assert "Short".startswith(tui.app.clipboard[:5])
        assert tui.app.clipboard
        await tui.until("Copied the selection")


def test_the_local_clipboard_is_that_of_the_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("wl-copy", "xclip"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert find_clipboard_command() is None
    monkeypatch.setenv("DISPLAY", ":0")
    assert find_clipboard_command() == ["xclip", "-selection", "clipboard"]
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert find_clipboard_command() == ["wl-copy"]
    monkeypatch.setenv("SSH_CONNECTION", "a b")
    assert find_clipboard_command() is None


async def test_a_local_clipboard_gets_the_text(
    book: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program, got = tmp_path / "wl-copy", tmp_path / "got"
    program.write_text(
        f"#!/bin/sh\ncd {shlex.quote(str(tmp_path))}\n/bin/cat > part && /bin/mv part got\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    async with running(book.root) as tui:
        await tui.open("project/start")
        await tui.press("y")
        await tui.until(got.exists)
        assert got.read_text() == tui.app.clipboard
        assert got.read_text().startswith("project/start")


# bookmarks


async def test_a_bookmark_is_made_changed_opened_removed_and_brought_back(book: Builder) -> None:
    userdata = UserData(book.workspace)
    async with running(book.root) as tui:
        await tui.open(f"{TALK}:2")
        await tui.press("B")
        await tui.until(f"Bookmark {TALK}:2")
        await tui.type("how to test")
        await tui.press("enter")
        await tui.until(f"Bookmarked {TALK}:2")
        assert [(mark.ref, mark.title, mark.note) for mark in userdata.list_bookmarks()] == [
            (f"{TALK}:2", "First steps", "how to test")
        ]
        # A second time: its note can be changed.
        await tui.press("B")
        await tui.until("how to test")
        await tui.type("s")
        await tui.press("enter")
        await tui.until("Changed the bookmark")
        await tui.open("project/start")
        await tui.press("apostrophe")
        await tui.until("how to tests")
        await tui.press("d")
        await tui.until("No bookmarks yet")
        assert userdata.list_bookmarks() == []
        await tui.press("u")
        await tui.until("how to tests")
        await tui.press("enter")
        await tui.until("turn 2 of 3")
    assert len(userdata.list_bookmarks()) == 1


async def test_what_has_no_reference_is_not_marked(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("2", "B")
        await tui.until("The selected or open item has no reference")
        await tui.press("apostrophe")
        await tui.until("No bookmarks yet. Press B")


# marks


async def test_a_turn_is_marked_shown_changed_listed_and_unmarked(book: Builder) -> None:
    store = MarkStore(book.workspace)
    async with running(book.root) as tui:
        await tui.open(f"{TALK}:2")
        await tui.press("M")
        await tui.until(f"Mark {TALK}:2 as")
        await tui.press("d")
        await tui.until(f"Mark {TALK}:2 as decided")
        assert "Enter save  Tab next" in tui.text
        await tui.type("with a lock")
        await tui.press("enter")
        await tui.until("✓ decided: with a lock")
        # A second time: the state is changed, and what applies instead is a link.
        await tui.press("M", "s")
        await tui.until("superseded by")
        await tui.type("project/gone")
        await tui.press("ctrl+s")
        await tui.until("has no subject 'gone'")
        await tui.press("ctrl+u")
        await tui.type("project/start")
        await tui.press("enter")
        await tui.until("Marked")
        await tui.until("↷ superseded by project/start: with a lock")
        assert "✓ decided" not in tui.text
        await tui.open("project/start")
        await tui.press("quotation_mark")
        await tui.until("↷ superseded by project/start")
        await tui.press("e", "r")
        await tui.until(f"Mark {TALK}:2 as rejected")
        await tui.press("ctrl+s")
        await tui.until("✗ rejected: with a lock")
        await tui.press("d")
        await tui.until("No marks yet")
        await tui.press("u")
        await tui.until("✗ rejected: with a lock")
        await tui.press("enter")
        await tui.until("turn 2 of 3")
        await tui.until("✗ rejected: with a lock")
        await tui.press("M", "x")
        await tui.until("Removed the mark")
        await tui.until(lambda: "✗ rejected" not in tui.text)
    assert store.list_marks() == []


async def test_a_mark_whose_text_is_gone_says_what_it_was(book: Builder) -> None:
    with open_workspace(book.root) as library:
        library.mark(f"{TALK}:2", "rejected", note="too slow")
    file = book.root / ".jp/conversations" / TALK.removeprefix("jp-c") / "events.json"
    events = json.loads(file.read_text())
    starts = [at for at, event in enumerate(events) if event["type"] == "turn_start"]
    text = next(one["content"] for one in events[starts[1] :] if one["type"] == "chat_request")
    write_json(file, events[: starts[1]] + events[starts[2] :])
    async with running(book.root) as tui:
        await tui.press("quotation_mark")
        await tui.until("no turn has the marked text any more")
        await tui.press("enter")
        await tui.until(f"{TALK}:2: no turn has the marked text")
        assert f"the text was: {text}" in tui.text
        assert "the note: too slow" in tui.text
        await tui.press("o")
        await tui.until("You are welcome.")
        await tui.press("quotation_mark", "e", "x")
        await tui.until("No marks yet")


async def test_only_turns_are_marked(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/start")
        await tui.press("M")
        await tui.until("Only a turn of a conversation can be marked")
        await tui.press("quotation_mark")
        await tui.until("No marks yet. Press M")


# jumping


async def test_a_letter_leads_to_the_row_or_line_it_stands_on(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("semicolon")
        await tui.until(lambda: isinstance(tui.app.screen, JumpLabelScreen))
        line = next(line for line in tui.text.split("\n") if " style" in line)
        letter = line.split("│")[1][0]
        assert letter in LETTERS
        await tui.press(letter)
        await tui.until("Short sentences. No tabs.")
        await tui.press("semicolon")
        await tui.until(lambda: isinstance(tui.app.screen, JumpLabelScreen))
        await tui.press("3")
        await tui.until(lambda: tui.main.panes.focused_pane_id == "citations")
        await tui.press("semicolon")
        await tui.until(lambda: isinstance(tui.app.screen, JumpLabelScreen))
        await tui.press("escape")
        await tui.until(lambda: tui.app.screen is tui.main)


async def test_folds_and_links_of_the_reader_have_letters(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(f"{TALK}:1")
        await tui.press("semicolon")
        await tui.until(lambda: isinstance(tui.app.screen, JumpLabelScreen))
        line = next(line for line in tui.text.split("\n") if "shell" in line)
        await tui.press(line.split("│")[3][0])
        await tui.until("no such target")


async def test_many_rows_have_two_letters_each(make_workspace: Builder) -> None:
    make_workspace.topics(many={"title": "Many"})
    for number in range(40):
        make_workspace.subject(f"many/s{number:02}.md", f"# Subject {number}\n")
    async with running(make_workspace.root, size=(120, 60)) as tui:
        await tui.press("semicolon")
        await tui.until(lambda: isinstance(tui.app.screen, JumpLabelScreen))
        labels = [one.label for one in tui.app.screen.labels if not one.label.isdigit()]  # type: ignore[attr-defined]
        assert len(labels) == len(set(labels)) > 40
        line = next(line for line in tui.text.split("\n") if " s33" in line)
        await tui.press(*line.split("│")[1][:2])
        await tui.until("Subject 33")


# links


def test_links_are_found_where_they_are_meant_and_nowhere_else() -> None:
    text = (
        "See [the style](style.md) and [it][ref], ![a picture](pic.png), <https://a.example/x>.\n"
        "Bare https://b.example/y(1). And `https://not.example`\n\n```\ncurl https://c.example/z\n```\n\n[ref]: https://d.example\n"
    )
    assert [link.href for link in find_markdown_links(text)] == [
        "style.md",
        "https://d.example",
        "pic.png",
        "https://a.example/x",
        "https://b.example/y(1",
        "https://not.example",
        "https://c.example/z",
    ]
    assert find_markdown_links(text)[0].text == "the style"


def test_addresses_that_only_a_terminal_would_obey_are_no_links() -> None:
    hidden = "\x1b]8;;https://hidden.example/\x1b\\a link\x1b]8;;\x1b\\"
    found = find_markdown_links(
        f"{hidden} and https://seen.example/ \x1b]0;https://title.example/\x07"
    )
    assert [link.href for link in found] == ["https://seen.example/"]


@pytest.mark.parametrize(
    "href",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "ssh://h",
        "HTTP:/x",
        "//h/x",
    ],
)
def test_only_the_web_is_for_a_browser(href: str) -> None:
    assert not DocumentLink("x", href).is_web_link
    assert DocumentLink("x", "https://x").is_web_link


@pytest.mark.parametrize(
    ("href", "slug", "found"),
    [
        ("style.md", "start", "t/style"),
        ("../a/b.md#part", "x/y", "t/a/b"),
        ("people/ada", "start", "t/people/ada"),
        ("../../x.md", "a/b", None),
        ("/etc/passwd", "a", None),
        ("mailto:a@b", "a", None),
        ("#part", "a", None),
    ],
)
def test_a_relative_address_is_a_subject_of_the_same_topic(
    href: str, slug: str, found: str | None
) -> None:
    ref = resolve_subject_link(href, "t", slug)
    assert (str(ref) if ref else None) == found


@given(st.text(max_size=200))
def test_no_text_makes_finding_links_fail(text: str) -> None:
    for link in find_markdown_links(text):
        assert link.href or link.text


async def test_a_link_to_a_subject_is_opened_and_one_to_the_web_only_after_yes(
    make_workspace: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_workspace.topics(t={})
    make_workspace.subject(
        "t/a.md", "# A\n\nGo to [the other](b.md) page.\n\nOr [out](https://x.example/p?q=1).\n"
    )
    make_workspace.subject("t/b.md", "# B\n\nHere.\n")
    opened: list[str] = []

    def open_web_address_in_browser(app: object, url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(
        "kbtui.tui.external_programs_and_clipboard.open_web_address_in_browser",
        open_web_address_in_browser,
    )
    async with running(make_workspace.root) as tui:
        await tui.open("t/a")
        await tui.press("2", "o")
        await tui.until("No link on this line")
        await tui.press("G", "o")
        await tui.until("https://x.example/p?q=1")
        assert opened == []
        await tui.press("escape", "o")
        await tui.until("open it in the browser")
        await tui.press("o")
        await tui.until(lambda: opened == ["https://x.example/p?q=1"])
        await tui.press("k", "k", "o")
        await tui.until("Here.")


# editing


@pytest.mark.parametrize(
    ("editor", "command"),
    [
        (["vim"], ["vim", "+7", "/x"]),
        (["/usr/bin/nano", "-w"], ["/usr/bin/nano", "-w", "+7", "/x"]),
        (["code", "--wait"], ["code", "--wait", "--goto", "/x:7"]),
        (["hx"], ["hx", "/x:7"]),
        (["ed"], ["ed", "/x"]),
    ],
)
def test_an_editor_is_told_the_line_in_its_own_way(editor: list[str], command: list[str]) -> None:
    assert build_editor_command(editor, Path("/x"), 7) == command
    assert build_editor_command(editor, Path("/x"), 0) == [*editor, "/x"]


async def test_without_an_editor_that_is_said(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    async with running(book.root) as tui:
        await tui.open("project/style")
        await tui.press("e")
        await tui.until("No editor is set")
        await tui.open(TALK)
        await tui.press("e")
        await tui.until("To edit a file, go to the tool call or change first.")


# the first topic


async def test_a_first_topic_is_shown_and_written_only_on_yes(make_workspace: Builder) -> None:
    root = make_workspace.root
    (root / "notes").mkdir()
    (root / "notes/one.md").write_text("# One\n\nThe first text.\n")
    file = root / ".jp/kb.toml"
    file.unlink(missing_ok=True)
    async with running(root, size=(100, 40)) as tui:
        await tui.until("No topics yet")
        await tui.press("i")
        await tui.until('+subjects = "notes"')
        assert "notes/ has 1 text file" in tui.text
        await tui.press("escape")
        assert not file.exists()
        await tui.press("i")
        await tui.until("Write it?")
        await tui.press("n")
        await tui.until(lambda: tui.app.screen is tui.main)
        assert not file.exists()
        await tui.press("i")
        await tui.until("Write it?")
        await tui.press("y")
        await tui.until(file.exists)  # the page behind the question has the same words
        await tui.until("Project Knowledge")
        assert 'subjects = "notes"' in file.read_text()
        await tui.press("i")
        await tui.until("The workspace already has topics")


async def test_broken_topics_are_not_none_yet(make_workspace: Builder) -> None:
    (make_workspace.root / ".jp/kb.toml").write_text("[kb.topic.x")
    async with running(make_workspace.root) as tui:
        await tui.until("None of the topics can be read")
        assert "none yet" not in "\n".join(tui.rows("library-list")[:4])
        assert "No topics yet" not in tui.text
        await tui.press("i")
        await tui.until(".jp/kb.toml cannot be read")
        assert (make_workspace.root / ".jp/kb.toml").read_text() == "[kb.topic.x"


async def test_a_choice_has_its_whole_name_however_narrow_the_terminal_is(book: Builder) -> None:
    async with running(book.root, size=(60, 20)) as tui:
        await tui.open("jp-c17800000001:1")
        await tui.press("Y")
        for name in ("the line", "the block", "JP link", "kbtui command"):
            await tui.until(name)


@pytest.mark.parametrize("opened", ["apostrophe", "plus"])
async def test_the_keys_of_a_dialog_fit_into_sixty_columns(book: Builder, opened: str) -> None:
    async with running(book.root, size=(60, 20)) as tui:
        await tui.press(opened)
        await tui.until(lambda: tui.app.screen is not tui.main)
        await tui.until("Esc ")
        (keys,) = (line for line in tui.text.split("\n") if "Esc " in line)
        assert "…" not in keys


def test_no_two_commands_of_a_place_say_the_same() -> None:
    for scope in SCOPES:
        said = [command.help for command in list_commands_of_scopes(scope) if command.palette]
        assert len(said) == len(set(said))


async def test_jump_labels_leave_titles_and_dates_readable(book: Builder) -> None:
    async with running(book.root, size=(120, 40)) as tui:
        await tui.until("First steps")

        def list_rows() -> list[list[str]]:
            rows = [
                row.split("│")[1].split() for row in tui.text.split("\n") if row.startswith("│")
            ]
            return [row for row in rows if "First" in row]

        (before,) = list_rows()
        await tui.press("semicolon")
        await tui.until(lambda: isinstance(tui.app.screen, JumpLabelScreen))
        ((label, *title),) = list_rows()
        assert (set(label) <= set(LETTERS), title) == (True, before)


async def test_while_labels_are_shown_the_hints_say_what_keys_do(book: Builder) -> None:
    for size in ((120, 40), (80, 24)):
        async with running(book.root, size=size) as tui:
            before = tui.text.split("\n")[-1]
            await tui.press("semicolon")
            await tui.until(lambda: isinstance(tui.app.screen, JumpLabelScreen))
            hints = tui.text.split("\n")[-1]
            assert hints.split("  ")[0].strip() == "letters open what they label"
            assert "Esc leave" in hints
            await tui.press("escape")
            assert tui.text.split("\n")[-1] == before


async def test_a_jump_label_shortens_a_title_that_is_cut_and_not_the_date(book: Builder) -> None:
    title = "A title that is much too long for the library"
    book.conversation(8, [[asked("Go on."), said("Yes.")]], title=title)
    async with running(book.root, size=(80, 24)) as tui:
        await tui.until(lambda: any("1t 28 May" in row for row in tui.text.split("\n")))
        await tui.press("semicolon")
        await tui.until(lambda: isinstance(tui.app.screen, JumpLabelScreen))
        (row,) = [row for row in tui.text.split("\n") if "A title" in row]
        assert row.split("│")[1].rstrip().endswith("… 1t 28 May")
