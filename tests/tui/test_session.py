"""A session is restored as it was left, unless the settings disable it; what is saved and what is not."""

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder
from tui_support import Tui, WithoutEngine, running

from kbtui.references import parse_ref
from kbtui.tui.app import TuiStartOptions
from kbtui.tui.main.document_controller import NavigationHistory
from kbtui.tui.main.saved_tui_state import (
    MAX_TARGETS,
    SavedTuiState,
    load_tui_state,
    save_tui_state,
)
from kbtui.tui.navigation_target import NavigationTarget, make_navigation_target
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace import load_settings

AGAIN = TuiStartOptions()


async def read_something(tui: Tui) -> None:
    await tui.open("project/style")
    await tui.open("jp-c17800000001:2")
    await tui.press("G")


async def test_it_reopens_as_it_was_left(book: Builder) -> None:
    async with running(book.root, start=AGAIN) as tui:
        await read_something(tui)
        await tui.press(
            "1", "greater_than_sign", "greater_than_sign", "full_stop", "3", "underscore", "2"
        )
        tui.app.theme = "kbtui-safe-dark"
        unfolded = set(tui.main.library_pane.state.unfolded)
        wide = tui.main.library_pane.outer_size.width
        line = tui.main.reader_pane.document_view.viewport.current_reference
    async with running(book.root, start=AGAIN) as tui:
        await tui.until(
            lambda: (
                tui.main.document_controller.shown
                and tui.main.document_controller.shown.key == "jp-c17800000001"
            )
        )
        await tui.until(
            lambda: tui.main.reader_pane.document_view.viewport.current_reference == line
        )
        assert tui.app.theme == "kbtui-safe-dark"
        assert tui.main.library_pane.state.unfolded == unfolded
        assert tui.main.library_pane.state.hidden
        await tui.until(lambda: tui.main.library_pane.outer_size.width == wide)
        assert tui.main.panes.folded_pane_ids == ["citations"]
        await tui.press("left_square_bracket")
        await tui.until("Short sentences. No tabs.")


async def test_keys_reach_the_reader_where_the_library_was_left_folded(book: Builder) -> None:
    async with running(book.root, start=AGAIN) as tui:
        await tui.open("jp-c17800000001")
        await tui.press("1", "underscore")
        assert tui.main.panes.folded_pane_ids == ["library"]
    async with running(book.root, start=AGAIN) as tui:
        reader = tui.main.reader_pane.document_view
        await tui.until(lambda: reader.document.key == "jp-c17800000001")
        await tui.press("n")
        await tui.until(lambda: reader.viewport.current_turn_number == 1)
        assert tui.main.panes.folded_pane_ids == ["library"]
        await tui.press("slash", "escape")
        assert tui.main.panes.focused_pane_id == "reader"
    # With one pane at a time, the library is the first pane.
    async with running(book.root, size=(60, 24), start=AGAIN) as tui:
        await tui.until(lambda: tui.main.library_pane.region.width > 0)
        await tui.press("j")
        assert tui.main.panes.focused_pane_id == "library"


async def test_fresh_begins_anew_and_is_remembered_then(book: Builder) -> None:
    async with running(book.root, start=AGAIN) as tui:
        await read_something(tui)
    async with running(book.root, start=TuiStartOptions(fresh=True)) as tui:
        assert tui.main.document_controller.shown == NavigationTarget("home")
        await tui.open("project/start")
    async with running(book.root, start=AGAIN) as tui:
        await tui.until(
            lambda: (
                tui.main.document_controller.shown
                and tui.main.document_controller.shown.key == "project/start"
            )
        )


async def test_a_reference_that_is_named_is_opened_instead(book: Builder) -> None:
    async with running(book.root, start=AGAIN) as tui:
        await read_something(tui)
    async with running(book.root, open_ref=parse_ref("project/start"), start=AGAIN) as tui:
        await tui.until("Clone, build")
        assert len(tui.main.document_controller.history.targets) == 1


async def test_the_first_page_is_only_for_the_first_time(book: Builder) -> None:
    start = TuiStartOptions(first=parse_ref("project/start"))
    async with running(book.root, start=start) as tui:
        await tui.until("Clone, build")
        await tui.open("project/style")
    async with running(book.root, start=start) as tui:
        await tui.until("Short sentences. No tabs.")


async def test_the_setting_forbids_it(book: Builder) -> None:
    library = WithoutEngine(book.workspace, load_settings()._replace(session=False))
    async with running(book.root, library=library, start=AGAIN) as tui:
        await read_something(tui)
    assert load_tui_state(library) is None


async def test_who_only_looked_at_the_home_page_leaves_nothing(book: Builder) -> None:
    async with running(book.root, start=AGAIN) as tui:
        await tui.press("j")
    assert load_tui_state(tui.app.library) is None


async def test_the_home_page_replaces_what_is_gone_since(book: Builder) -> None:
    async with running(book.root, start=AGAIN) as tui:
        await tui.open("project/start")
        await tui.open("project/style")
    (book.root / "docs/project/style.md").unlink()
    async with running(book.root, start=AGAIN) as tui:
        await tui.until("project/style no longer exists; it was open last time.")
        await tui.until("what everybody here should know")
        assert "here is no subject" not in tui.text
        assert tui.main.document_controller.shown == NavigationTarget("home")
        await tui.press("left_square_bracket")
        await tui.until("Clone, build")
        await tui.press("right_square_bracket")
        await tui.until("what everybody here should know")
        assert "no longer exists" not in tui.text
    # A reference that is named is not replaced.
    async with running(book.root, open_ref=parse_ref("project/style"), start=AGAIN) as tui:
        await tui.until("there is no subject 'project/style'")


async def test_the_home_page_replaces_a_conversation_that_is_gone_since(book: Builder) -> None:
    async with running(book.root, start=AGAIN) as tui:
        await tui.open("jp-c17800000001:2")
        await tui.press("G")
    for folder in (book.root / ".jp" / "conversations").glob("17800000001*"):
        shutil.rmtree(folder)
    async with running(book.root, start=AGAIN) as tui:
        await tui.until("jp-c17800000001 no longer exists; it was open")


async def test_what_was_searched_for_is_not_in_the_session(book: Builder) -> None:
    async with running(book.root, start=AGAIN) as tui:
        await tui.press("slash")
        await tui.type("hereabouts tests")
        await tui.until_hits()
        await tui.press("enter")
        await tui.until(lambda: len(tui.main.document_controller.history.targets) > 1)
        await tui.until(
            lambda: tui.main.document_controller.shown and tui.main.document_controller.shown.words
        )
    state = UserData(book.workspace).load_front_end_state("tui")
    assert state is not None
    assert "hereabouts" not in json.dumps(state)
    assert "tests" not in json.dumps(state)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"places": 3, "at": 0},
        {"places": [{}], "at": 0},
        {"places": [], "at": "x"},
        {"places": [{"key": "a", "ref": "x y"}], "at": 9},
    ],
)
def test_a_state_that_cannot_be_read_is_no_session_or_an_empty_one(
    book: Builder, state: dict[str, object]
) -> None:
    library = WithoutEngine(book.workspace, load_settings())
    UserData(book.workspace).save_front_end_state("tui", state)
    found = load_tui_state(library)
    assert found is None or found.history.current_target is None


refs = st.sampled_from(
    ["home", "project", "project/start", "project/start:3-4", "jp-c17800000001:2", "a/b:c"]
)


@given(st.lists(refs, min_size=1, max_size=3 * MAX_TARGETS), st.integers(0, 400))
def test_the_way_back_comes_back_around_where_one_was(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], at: int
) -> None:
    root = tmp_path_factory.getbasetemp() / "kept"
    (root / ".jp").mkdir(parents=True, exist_ok=True)
    from kbtui.workspace import open_workspace_at_root

    library = WithoutEngine(open_workspace_at_root(root), load_settings())
    places = [
        NavigationTarget("home") if name == "home" else make_navigation_target(parse_ref(name))
        for name in names
    ]
    trail = NavigationHistory(places, at % len(places))
    save_tui_state(library, SavedTuiState(history=trail))
    found = load_tui_state(library)
    assert found is not None
    assert found.history.current_target == trail.current_target
    assert len(found.history.targets) == min(len(places), MAX_TARGETS)
