"""Keys that the user chose: what the settings may contain, which mistakes are reported, and that the keys work."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder
from tui_support import WithoutEngine, running, with_keys

from kbtui.tui.framework.tui_command_definition import (
    DIALOG_COMMANDS,
    apply_keymap_to_commands,
    format_key_label,
)
from kbtui.tui.tui_command_table import (
    ALL_COMMANDS,
    NO_KEY,
    SCOPES,
    SCREEN_COMMANDS,
    SCREENS,
    group_commands_by_task,
    parse_keymap_settings,
)
from kbtui.workspace import load_settings


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        ("F", "F"),
        ("/", "slash"),
        ("?", "question_mark"),
        (",", "comma"),
        ("j, down", "j,down"),
        (["f5", "ctrl+f"], "f5,ctrl+f"),
        ("^k", "ctrl+k"),
        ("Enter", "enter"),
        ("esc", "escape"),
        ("PgDn", "pagedown"),
        ("shift+Tab", "shift+tab"),
        ("semicolon", "semicolon"),
        ("é", "é"),
        ("F7,F7", "f7"),
        ("", ""),
        ([], ""),
    ],
)
def test_keys_are_written_as_people_see_them(value: Any, keys: str) -> None:
    found = parse_keymap_settings({"citations.open": value})
    assert found.keys == {"citations.open": keys}
    assert found.textual_keymap == {"citations.open": keys or NO_KEY}


@pytest.mark.parametrize("value", ["hyper+x", "nokey", "ctrl+", 3, True, ["a", 1], "ctrl+q", "^c"])
def test_what_is_no_key_is_said_and_changes_nothing(value: Any) -> None:
    found = parse_keymap_settings({"doctor": value})
    assert found.keys == {}
    assert len(found.problems) == 1
    assert found.problems[0].startswith("doctor: ")


def test_an_unknown_command_is_said_with_the_nearest() -> None:
    (problem,) = parse_keymap_settings({"serch": "f3"}).problems
    assert problem == "unknown command 'serch'; did you mean 'search'?"
    # Without quotation marks, TOML reads a name with a dot as nested tables.
    assert parse_keymap_settings({"reader": {"find": "f3"}}).keys == {"reader.find": "f3"}
    (problem,) = parse_keymap_settings({"reader": {"fnid": "f3"}}).problems
    assert "'reader.find'" in problem


def test_a_key_that_a_command_of_the_same_place_has_is_refused() -> None:
    found = parse_keymap_settings({"reader.find": "n"})
    assert found.keys == {}
    assert found.problems == [
        "reader.find: n is already the key of reader.next (next turn), so reader.find keeps f ^f"
    ]
    # If two commands get the same key, the second one keeps its default.
    found = parse_keymap_settings({"doctor": "f9", "prompt": "f9"})
    assert len(found.keys) == 1
    assert "f9 is already" in found.problems[0]


def test_a_key_twice_in_a_screen_is_refused() -> None:
    found = parse_keymap_settings(
        {"workshop.try": "x", "doctor.next": "ctrl+r", "entries.new": "f"}
    )
    assert found.keys == {}
    assert found.problems == [
        "workshop.try: x is already the key of workshop.disable (disable), so workshop.try keeps /",
        "doctor.next: ^r is already the key of doctor.look (re-check), so doctor.next keeps n",
        "entries.new: f is already the key of entries.filter (filter), so entries.new keeps +",
    ]
    (problem,) = parse_keymap_settings({"workshop.wirte": "f3"}).problems
    assert problem == "unknown command 'workshop.wirte'; did you mean 'workshop.write'?"


def test_two_commands_can_change_keys() -> None:
    found = parse_keymap_settings({"reader.find": "n", "reader.next": "f"})
    assert found.keys == {"reader.find": "n", "reader.next": "f"}
    assert found.problems == []


def test_a_key_that_means_something_else_in_a_pane_is_said_and_kept() -> None:
    found = parse_keymap_settings({"doctor": "n"})
    assert found.keys == {"doctor": "n"}
    assert found.problems == ["doctor: n runs reader.next (next turn) in the reader instead"]
    # Search is immediate: it comes before the commands of a pane.
    (problem,) = parse_keymap_settings({"search": "n"}).problems
    assert problem == "reader.next: n runs search (search) in the reader instead"
    (problem,) = parse_keymap_settings({"doctor": "j"}).problems
    assert problem == "doctor: j runs move.down (down) in every pane instead"
    (problem,) = parse_keymap_settings({"doctor.next": "j"}).problems
    assert problem == "doctor.next: j runs move.down (down) in every pane instead"
    # Commands of "everywhere" do not apply to other screens.
    assert parse_keymap_settings({"doctor.next": "P", "workshop.write": "y"}).problems == []


def test_the_usual_keys_have_nothing_to_say() -> None:
    found = parse_keymap_settings({command.id: command.keys for command in ALL_COMMANDS})
    assert found.problems == []


ids = st.sampled_from([command.id for command in ALL_COMMANDS])
keys = st.sampled_from([*"abcdefgnxyzN/?;", "f5", "ctrl+f", "Enter", "", "nokey"])


@given(st.dictionaries(ids, keys, max_size=8))
def test_whatever_is_asked_no_place_has_a_key_twice(table: dict[str, str]) -> None:
    found = parse_keymap_settings(table)
    for scope in (*SCOPES, *SCREENS):
        commands = apply_keymap_to_commands(
            (one for one in ALL_COMMANDS if one.scope == scope), found.keys
        )
        used = [key for command in commands for key in command.keys.split(",") if key]
        assert len(used) == len(set(used))
    assert set(found.keys) <= set(table)


def test_keys_are_shown_as_they_can_be_written() -> None:
    for command in ALL_COMMANDS:
        for key in command.keys.split(","):
            written = format_key_label(key).replace("⇧", "shift+")
            found = parse_keymap_settings({"citations.open": written})
            assert found.keys == {"citations.open": key} or "is already" in found.problems[0]


async def test_the_keys_work_and_hints_and_help_show_them(book: Builder) -> None:
    settings = load_settings()._replace(keys={"search": "f3", "help": ["ctrl+h", "f1"]})
    library = WithoutEngine(book.workspace, settings)
    async with running(book.root, size=(120, 130), library=library) as tui:
        await tui.until("f3 search")
        await tui.press("slash")
        assert getattr(tui.app.focused, "id", "") == "library-list"
        await tui.press("f3")
        assert getattr(tui.app.focused, "id", "") == "search"
        await tui.press("escape", "f1")
        await tui.until("In the library")
        await tui.until("Search everything")
        assert any("f3" in line and "Search everything" in line for line in tui.text.split("\n"))
        await tui.press("escape", "ctrl+p")
        await tui.until(lambda: getattr(tui.app.focused, "id", "") == "palette-input")
        await tui.type("id: search")
        await tui.until("id: search")
        assert any("id: search" in line and "f3" in line for line in tui.text.split("\n"))


async def test_with_mistakes_it_starts_and_says_them(book: Builder) -> None:
    table = {"serch": "f3", "doctor": "hyper+x", "reader.find": "n"}
    library = with_keys(book, table)
    async with running(book.root, size=(160, 50), library=library) as tui:
        await tui.until("did you mean 'search'?")
        assert "! keys: doctor: unknown key 'hyper+x'" in tui.text
        assert "! keys: reader.find: n is already the key of reader.next" in tui.text
        await tui.press("slash")
        assert getattr(tui.app.focused, "id", "") == "search"


async def test_a_key_of_the_workshop_can_be_changed(book: Builder) -> None:
    library = with_keys(book, {"workshop.write": "f4", "workshop.help": "f1", "workshop.undo": ""})
    async with running(book.root, size=(140, 50), library=library) as tui:
        await tui.press("P")
        await tui.until("f4 write")
        await tui.press("w")
        assert "No changes to write" not in tui.text
        await tui.press("f4")
        await tui.until("No changes to write")
        await tui.press("question_mark")
        assert "In the prompt workshop" not in tui.text
        await tui.press("f1")
        await tui.until("In the prompt workshop")
        assert any("f4" in line and "Review the changes" in line for line in tui.text.split("\n"))
        assert "f4 shows the change to .jp/kb.toml" in tui.text


async def test_a_key_of_the_doctor_can_be_changed(book: Builder) -> None:
    library = with_keys(book, {"doctor.look": "Z", "doctor.leave": ["f8", "escape"]})
    async with running(book.root, size=(140, 50), library=library) as tui:
        await tui.press("D")
        await tui.until("Z re-check")
        await tui.until(lambda: tui.app.screen.checking is None)
        (book.root / ".jp/kb.toml").write_text("x = = 1\n")
        for key in ("r", "ctrl+r", "q", "D"):
            await tui.press(key)
            assert tui.app.screen.is_current
        await tui.until(lambda: tui.app.screen.checking is None)
        assert "not valid TOML" not in tui.text
        await tui.press("Z")
        await tui.until("not valid TOML")
        await tui.press("question_mark")
        await tui.until("In the doctor")
        assert any("Z" in line and "Check everything" in line for line in tui.text.split("\n"))
        await tui.press("escape", "f8")
        await tui.until(lambda: tui.app.screen is tui.main)


async def test_a_key_of_the_other_screens_can_be_changed(book: Builder) -> None:
    screens = {"entries": "E", "sources": "S", "insights": "I"}
    library = with_keys(book, {f"{screen}.leave": "f8" for screen in screens})
    async with running(book.root, size=(140, 50), library=library) as tui:
        for screen, open_it in screens.items():
            await tui.press(open_it)
            await tui.until(lambda: tui.app.screen is not tui.main)
            await tui.press("q", open_it)
            assert tui.app.screen is not tui.main, screen
            await tui.press("f8")
            await tui.until(lambda: tui.app.screen is tui.main)


async def test_the_palette_has_the_ids_of_all_screens(book: Builder) -> None:
    from kbtui.tui.command_palette import find_command_palette_items

    names = {choice.name for choice in find_command_palette_items([], "id:")}
    assert names == {f"id: {command.id}" for command in ALL_COMMANDS}
    library = with_keys(book, {"workshop.write": "f4"})
    async with running(book.root, size=(140, 50), library=library) as tui:
        await tui.press("ctrl+p")
        await tui.until(lambda: getattr(tui.app.focused, "id", "") == "palette-input")
        await tui.type("id: workshop.write")
        await tui.until("id: workshop.write")
        await tui.press("enter")
        await tui.until("workshop.write works only in the prompt workshop; its key is f4")


def test_every_command_of_a_screen_has_its_action_and_is_bound_there() -> None:
    from kbtui.tui.app import KbtuiApp
    from kbtui.tui.bookmarks_and_marks_screens import BookmarksScreen, TurnMarksScreen
    from kbtui.tui.doctor_screen import DoctorScreen
    from kbtui.tui.entries_screen import EntriesScreen
    from kbtui.tui.insights_screen import InsightsScreen
    from kbtui.tui.prompt_workshop.prompt_workshop_screen import PromptWorkshopScreen
    from kbtui.tui.secondary_screen import HelpScreen
    from kbtui.tui.sources_screen import SourcesScreen

    owners: dict[str, Any] = {
        "workshop": PromptWorkshopScreen,
        "doctor": DoctorScreen,
        "entries": EntriesScreen,
        "sources": SourcesScreen,
        "insights": InsightsScreen,
        "bookmarks": BookmarksScreen,
        "marks": TurnMarksScreen,
        "help": HelpScreen,
    }
    assert set(owners) == set(SCREENS)
    assert len({command.id for command in ALL_COMMANDS}) == len(ALL_COMMANDS)
    for command in SCREEN_COMMANDS:
        place, _, name = command.action.partition("(")[0].rpartition(".")
        owner = KbtuiApp if place == "app" else owners[command.scope]
        assert hasattr(owner, f"action_{name}"), command.id
        bound = {one.key: one.id for one in owners[command.scope].BINDINGS}
        assert bound[command.keys] == command.id
    for scope in SCREENS:
        scopes = {scope, "moving"}
        keys = [key for c in ALL_COMMANDS if c.scope in scopes for key in c.keys.split(",")]
        assert len(keys) == len(set(keys)), (scope, sorted(keys))


def focused(tui: Any) -> str:
    return getattr(tui.app.focused, "id", "") or ""


async def test_a_command_whose_usual_key_is_a_letter_works_in_an_input_by_its_own_key(
    book: Builder,
) -> None:
    library = with_keys(book, {"help": "f1", "doctor": "f6", "search": "f3", "reader.tools": "f7"})
    async with running(book.root, size=(140, 50), library=library) as tui:
        await tui.press("f")
        await tui.until(lambda: focused(tui) == "filter")
        await tui.press("f6")
        await tui.until("re-check")
        await tui.press("escape", "f1")
        await tui.until("In the library")
        await tui.press("escape", "f3")
        assert focused(tui) == "search"
        await tui.open("jp-c17800000001")
        await tui.press("f")
        await tui.until(lambda: focused(tui) == "find")
        await tui.press("f7")
        await tui.until("make hepl")


async def test_a_letter_given_to_a_command_is_a_letter_in_every_input(book: Builder) -> None:
    library = with_keys(
        book, {"search": "s", "similar": "f2", "entries.filter": "v", "doctor": "Q"}
    )
    async with running(book.root, size=(140, 50), library=library) as tui:
        await tui.press("f")
        await tui.type("sQ")
        assert (focused(tui), tui.main.library_pane.filter.input.value) == ("filter", "sQ")
        await tui.press("escape", "s")
        await tui.type("sQ")
        assert focused(tui) == "search"
        assert tui.app.focused.value == "sQ"
        await tui.press("escape", "E")
        await tui.until(lambda: focused(tui) == "entries")
        await tui.press("v")
        await tui.type("v")
        assert (focused(tui), tui.app.focused.value) == ("entry-filter", "v")


async def test_esc_leaves_an_input_also_where_the_panes_command_has_another_key(
    book: Builder,
) -> None:
    moved = ("library.clear", "reader.clear", "workshop.back", "entries.back")
    library = with_keys(book, dict.fromkeys(moved, "f12"))
    async with running(book.root, size=(140, 50), library=library) as tui:
        for ways, named in (
            (["f"], "filter"),
            (["2", "f"], "find"),
            (["P", "/"], "pattern"),
            (["P", "f"], "choose"),
            (["E", "f"], "entry-filter"),
        ):
            for number, key in enumerate(ways):
                await tui.type(key)
                if number == 0 and len(ways) > 1:
                    wanted = {"2": "document", "P": "entries", "E": "entries"}[key]
                    await tui.until(lambda wanted=wanted: focused(tui) == wanted)
            await tui.until(lambda named=named: focused(tui) == named)
            await tui.press("escape")
            await tui.until(lambda named=named: focused(tui) != named)
            if tui.app.screen is not tui.main:
                await tui.press("q")
                await tui.until(lambda: tui.app.screen is tui.main)


KEY_NAMES = {
    "enter": {"open", "fold", "enter", "choose"},
    "escape": {"clear", "close", "return", "back", "leave", "cancel"},
    "space": {"toggle", "unfold", "learn"},
    "tab": {"next"}, "shift+tab": {"previous", "next"},
    "h": {"fold", "code_left"}, "left": {"fold", "code_left"},
    "l": {"unfold", "code_right"}, "right": {"unfold", "code_right"},
    "slash": {"search", "try", "filter"}, "f": {"filter", "find"},
    "n": {"next", "cancel"}, "N": {"previous"}, "e": {"edit"}, "plus": {"new"}, "x": {"disable", "stop"},
    "d": {"remove", "delete"}, "delete": {"remove", "delete"}, "exclamation_mark": {"run", "retry"},
    "o": {"link", "address"}, "m": {"mode", "sort", "days", "type"}, "v": {"view", "approve"},
    "a": {"facts", "explain"}, "C": {"changes", "difference"},
    "y": {"copy", "agree"}, "2": {"reader", "read"}, "L": {"tools"}, "full_stop": {"hidden"},
    "D": {"doctor", "leave"}, "E": {"entries", "leave"}, "I": {"insights", "leave"},
    "S": {"sources", "leave"}, "q": {"quit", "leave", "cancel"}, "T": {"theme"},
    "apostrophe": {"bookmarks", "leave"}, "quotation_mark": {"marks", "leave"},
    "question_mark": {"help", "leave", "cancel"}, "ctrl+r": {"reload", "look"},
}  # fmt: skip
"""Key -> the names of the commands that it may run: one meaning in the words of each screen.

`y` and `n` answer a question where one is asked: `y` approves a source, `n` declines. The key that
opens a screen leaves it again.
"""


def test_every_command_of_a_dialog_has_an_action() -> None:
    from kbtui.tui.app import KbtuiApp
    from kbtui.tui.framework.dialogs import ChoiceField, FormDialog, OptionsDialog, TextInputDialog
    from kbtui.tui.secondary_screen import DocumentOverlayScreen

    owners: dict[str, Any] = {
        "dialog": TextInputDialog,
        "options": OptionsDialog,
        "form": FormDialog,
        "choice": ChoiceField,
        "page": DocumentOverlayScreen,
    }
    for command in DIALOG_COMMANDS:
        place, _, name = command.action.partition("(")[0].rpartition(".")
        owner = KbtuiApp if place == "app" else owners[command.scope]
        assert hasattr(owner, f"action_{name}"), command.id


def test_a_key_means_the_same_in_every_screen_and_dialog() -> None:
    names: dict[str, set[str]] = {}
    for command in (*ALL_COMMANDS, *DIALOG_COMMANDS):
        for key in command.keys.split(","):
            names.setdefault(key, set()).add(command.id.rpartition(".")[2])
    shared = {key: found for key, found in names.items() if len(found) > 1}
    assert {key: sorted(found - KEY_NAMES.get(key, set())) for key, found in shared.items()} == {
        key: [] for key in shared
    }
    # Esc goes back everywhere; a value that is chosen is a part of its form.
    scopes = {command.scope for command in (*SCREEN_COMMANDS, *DIALOG_COMMANDS)} - {"choice"}
    back = {
        one.scope for one in (*SCREEN_COMMANDS, *DIALOG_COMMANDS) if "escape" in one.keys.split(",")
    }
    assert back == scopes


def test_every_command_is_in_one_group_of_the_help() -> None:
    commands = [command for command in ALL_COMMANDS if command.scope == "everywhere"]
    groups = group_commands_by_task(commands)
    assert sorted(one.id for group in groups.values() for one in group) == sorted(
        one.id for one in commands
    )
    assert len(groups["kbtui itself"]) < 10
    for scope in {one.scope for one in ALL_COMMANDS} - {"everywhere", "moving"}:
        commands = [command for command in ALL_COMMANDS if command.scope == scope]
        groups = group_commands_by_task(commands)
        assert sorted(one.id for group in groups.values() for one in group) == sorted(
            one.id for one in commands
        )
        # A command without a task of its own would be among those of kbtui itself.
        assert "kbtui itself" not in groups


async def test_the_help_is_filtered_and_the_hints_can_be_clicked(book: Builder) -> None:
    async with running(book.root, size=(120, 40)) as tui:
        x = tui.text.split("\n")[-1].index("? help")
        await tui.pilot.click(offset=(x + 3, 39))
        await tui.until("f: filter")
        await tui.press("f")
        await tui.type("wider")
        await tui.until(lambda: "Make the pane wider" in tui.text)
        assert "Panes" in tui.text
        assert "Quit kbtui" not in tui.text
        await tui.press("escape")
        await tui.until(lambda: "Make the pane wider" not in tui.text)
        await tui.press("escape")
        await tui.until(lambda: tui.app.screen is tui.main)


async def test_escape_goes_back_one_step(book: Builder) -> None:
    async with running(book.root, size=(120, 40)) as tui:
        await tui.open("project/start")
        await tui.open("jp-c17800000001")
        await tui.press("3", "z", "escape")
        assert not tui.main.has_class("zoomed")
        assert tui.main.panes.focused_pane_id == "citations"
        await tui.press("escape")
        assert tui.main.panes.focused_pane_id == "reader"
        await tui.press("escape")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == "project/start")
