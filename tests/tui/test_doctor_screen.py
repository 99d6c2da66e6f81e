"""The doctor screen: the same findings as `kbtui doctor`, shown while the checks run, and opened."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from feature_screen_support import paged
from support import Builder, tree_hash
from tui_support import Tui, running

from kbtui.library import Library
from kbtui.library.diagnostics import AREAS, run_diagnostics
from kbtui.tui.doctor_screen import DoctorScreen
from kbtui.workspace import load_settings, open_workspace_at_root


@pytest.fixture
def ailing(book: Builder) -> Builder:
    """Return a workspace with problems in several areas."""
    book.topics(
        project={"title": "Project Handbook", "learned": ["style", "nobody-*"]},
        snippets={"title": "Snippets"},
        gone={"subjects": "docs/nowhere"},
    )
    (book.root / "docs" / "nowhere").rmdir()
    book.subject("project/start.md", "# Start\n\nSee `people/eve` and learn.\n")
    (book.root / "docs" / "snippets" / "blob.bin").write_bytes(b"\0\1")
    return book


def doctor(tui: Tui) -> DoctorScreen:
    screen = tui.app.screen
    assert isinstance(screen, DoctorScreen)
    return screen


async def opened(tui: Tui) -> DoctorScreen:
    await tui.press("D")
    await tui.until(lambda: isinstance(tui.app.screen, DoctorScreen))
    screen = doctor(tui)
    await tui.until(lambda: screen.checking is None)
    await tui.pilot.pause()
    return screen


async def test_it_finds_what_the_command_finds_and_changes_nothing(ailing: Builder) -> None:
    before = tree_hash(ailing.root)
    async with running(ailing.root, size=(140, 50)) as tui:
        screen = await opened(tui)
        for words in (
            "docs/nowhere does not exist",
            "'nobody-*' matches no subject",
            "mentions `people/eve`, which does not exist",
            "cannot be learned: it is a binary file",
            "jp-c17800000005: ",
            "there is no index yet",
        ):
            assert words in tui.text, tui.text
        shown = [(found.area, found.state, found.message) for found in screen.findings]
        wrong = sum(state == "wrong" for _, state, _ in shown)
        assert f"! {wrong} wrong" in tui.text
    command = [
        str(Path(sys.executable).with_name("kbtui")),
        "-w",
        str(ailing.root),
        "doctor",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, env=os.environ, check=False)
    assert done.returncode == 1
    told = [(row["area"], row["state"], row["message"]) for row in json.loads(done.stdout)]
    assert told == shown
    assert tree_hash(ailing.root) == before


async def test_enter_opens_what_a_finding_is_about(ailing: Builder) -> None:
    async with running(ailing.root, size=(120, 40)) as tui:
        for key in ("project/start", "jp-c17800000005"):
            viewport = (await opened(tui)).reader.viewport
            blocks = viewport.document.blocks
            viewport.go_to_block_line(
                next(n for n, block in enumerate(blocks) if block.link == key)
            )
            await tui.press("enter")
            await tui.until(lambda: tui.app.screen is tui.main)
            reader = tui.main.reader_pane.document_view
            while reader.document.key != key:
                await tui.pilot.pause(0.01)


async def test_n_goes_from_finding_to_finding_past_what_is_well(ailing: Builder) -> None:
    async with running(ailing.root, size=(120, 40)) as tui:
        screen = await opened(tui)
        viewport = screen.reader.viewport
        seen = []
        while not seen or viewport.cursor != seen[-1][0]:
            seen.append(
                (
                    viewport.cursor,
                    viewport.current_styled_line.plain if viewport.current_styled_line else "",
                )
            )
            await tui.press("n")
        assert len(seen) > 4
        assert all(line.startswith(("! ", "· ")) for _, line in seen[1:])
        await tui.press("N")
        assert viewport.cursor == seen[-2][0]


async def test_a_finding_of_several_lines_has_one_sign(ailing: Builder) -> None:
    async with running(ailing.root, size=(60, 50)) as tui:
        await opened(tui)
        lines = [line.strip("│▎ ") for line in tui.text.split("\n")]
        at = next(n for n, line in enumerate(lines) if line.startswith("· standard output is no"))
        # In a narrow page, findings need two lines or more.
        assert lines[at + 1]
        assert lines[at + 1][0] not in "✓·!"


async def test_looking_again_sees_what_was_mended(ailing: Builder) -> None:
    async with running(ailing.root, size=(120, 40)) as tui:
        await opened(tui)
        assert "docs/nowhere does not exist" in tui.text
        (ailing.root / "docs" / "nowhere").mkdir()
        await tui.press("ctrl+r")
        await tui.until(lambda: doctor(tui).checking is None)
        await tui.until(lambda: "docs/nowhere does not exist" not in tui.text)
        assert "docs/nowhere has no subjects" in tui.text
        await tui.press("escape")
        assert tui.app.screen is tui.main


async def test_what_one_area_cannot_tell_leaves_the_others(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Library) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Library, "list_conversations_without_counts", broken)
    found = list(run_diagnostics(Library(open_workspace_at_root(book.root), load_settings())))
    assert [f.area for f in found if f.state == "wrong"][:1] == ["conversations"]
    assert [area for area in AREAS if any(f.area == area for f in found)] == list(AREAS)


async def test_findings_about_hostile_names_are_only_text(book: Builder) -> None:
    book.topics(project={"title": "\x1b[2J[/b]", "learned": ["[x", "\x1b[31m*", "a\u202eb"]})
    async with running(book.root, size=(80, 60)) as tui:
        await opened(tui)
        assert "'[x' matches no subject" in tui.text
        assert not any(sign in tui.text for sign in "\x1b\u202e")


@pytest.mark.slow
async def test_thousands_of_findings_are_laid_out_only_in_sight(book: Builder) -> None:
    book.topics(project={"learned": [f"nothing-{n}" for n in range(20_000)]})
    async with running(book.root, size=(80, 24)) as tui:
        screen = await opened(tui)
        assert "20,000 notes" in tui.text
        assert screen.reader.viewport.layout_count < 1000
        await tui.press("G")
        await tui.until("Model")


def test_a_workspace_that_was_deleted_meanwhile_is_wrong(book: Builder) -> None:
    library = Library(open_workspace_at_root(book.root), load_settings())
    shutil.rmtree(book.root)
    [found] = [found for found in run_diagnostics(library) if found.area == "workspace"]
    assert (found.state, "moved or deleted" in found.message) == ("wrong", True)


async def test_enter_on_a_finding_about_nothing_to_open_says_so(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running(book.root, size=(120, 40)) as tui:
        screen = await opened(tui)
        viewport = screen.reader.viewport
        number = next(
            n
            for n, block in enumerate(viewport.document.blocks)
            if "NO_COLOR is set" in block.get_searchable_text()
        )
        viewport.go_to_block_line(number)
        await tui.press("enter")
        await tui.until("There is nothing to open for this finding.")
        # The message goes when everything is checked again.
        await tui.press("ctrl+r")
        await tui.until(lambda: "nothing to open" not in tui.text)


async def test_home_topics_doctor_and_entries_agree_on_the_subjects(book: Builder) -> None:
    async with paged(book, "D", DoctorScreen, (120, 40)) as (tui, screen, _):
        await tui.until(lambda: screen.checking is None)
        await tui.until("2 topics, 5 subjects, 1 hidden, 1 disabled")
        # The index has the hidden subject, but not the disabled one.
        await tui.until("5 subjects (without disabled ones)")
        await tui.press("q")
        await tui.until("5 subjects, 1 hidden, 1 disabled")
        await tui.open("project")
        await tui.until("4 subjects, 1 hidden, 1 pre-loaded")
        await tui.press("E")
        await tui.until("· without hidden, archived and disabled")
        await tui.until("4 notes")
        await tui.press("full_stop")
        await tui.until("· with hidden · without archived and disabled")
        await tui.until("5 notes")
