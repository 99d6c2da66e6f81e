"""One key searches all projects; opening a hit goes to its workspace, and the way back returns."""

import shutil
from pathlib import Path

import pytest
from support import Builder, asked, index_without_engine, said
from tui_support import Tui, running

from kbtui.tui.main.main_screen import MainScreen


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    built = {}
    for name, text in (("alps", "The ibex climbs."), ("coast", "The heron sees an ibex.")):
        one = built[name] = Builder(tmp_path / name)
        one.topics(notes={})
        one.subject("notes/animal.md", f"# Animal of the {name}\n\n{text}\n")
        one.conversation(1, [[asked(f"Which animal of the {name}?"), said("An ibex.")]])
        index_without_engine(one)
    return built


def top(tui: Tui) -> MainScreen:
    screen = tui.app.screen
    assert isinstance(screen, MainScreen)
    return screen


async def search_all(tui: Tui, words: str) -> None:
    await tui.press("asterisk")
    await tui.type(words)
    results = tui.main.results_pane.list
    await tui.until(
        lambda: {"head:project:alps", "head:project:coast"} <= {r.key for r in results.rows}
    )


async def select_hit_of(tui: Tui, project: str) -> str:
    """Select the first hit of a project with the keys; return its reference."""
    await tui.press("escape", "g")
    results = tui.main.results_pane.list
    while (hit := results.selected_row.data).project != project:
        await tui.press("down")
    return str(hit.ref)


async def test_hits_of_all_projects_are_grouped_under_the_name_of_their_project(
    projects: dict[str, Builder],
) -> None:
    async with running(projects["alps"].root) as tui:
        await search_all(tui, "ibex")
        await tui.until(lambda: len(tui.rows("results-list")) == 6)
        heads = [row for row in top(tui).results_pane.list.rows if not row.selectable]
        assert sorted(row.left[0][0] for row in heads) == ["alps", "coast"]
        assert "* all projects" in tui.text
        await tui.press("escape", "slash")
        await tui.until(lambda: len(tui.rows("results-list")) == 2)
        assert "coast" not in "".join(tui.rows("results-list")), "the slash searches here"


async def test_a_hit_opens_its_workspace_and_esc_returns_to_list_and_position(
    projects: dict[str, Builder],
) -> None:
    async with running(projects["alps"].root) as tui:
        await search_all(tui, "ibex heron")
        first = top(tui)
        await select_hit_of(tui, "coast")
        await tui.until("Open the hit to read the whole text in its workspace.")
        row = first.results_pane.list.index
        await tui.press("enter")
        await tui.until(
            lambda: top(tui) is not first and top(tui).document_controller.shown is not None
        )
        visited = top(tui)
        await tui.until(lambda: visited.reader_pane.document_view.document.ref == "notes/animal")
        await tui.until("The heron sees an ibex.")
        assert "alps › coast" in tui.text
        assert "Esc back" in tui.text
        assert visited.library.workspace.root == projects["coast"].root
        await tui.press("escape")
        await tui.until(lambda: top(tui) is first)
        assert first.results_pane.list.has_focus
        assert first.results_pane.list.index == row
        await tui.press("enter")
        await tui.until(
            lambda: top(tui) is not first and top(tui).document_controller.shown is not None
        )
        await tui.press("left_square_bracket")
        await tui.until(lambda: top(tui) is first)
        await tui.press("escape")
        assert first.library_pane.list.has_focus, "Esc in the first workspace only closes the list"


async def test_a_hit_opened_from_the_input_leads_back_to_the_results(
    projects: dict[str, Builder],
) -> None:
    async with running(projects["alps"].root) as tui:
        await tui.press("asterisk")
        await tui.type("heron")
        await tui.until_hits()
        first = top(tui)
        await tui.press("enter")
        await tui.until(
            lambda: top(tui) is not first and top(tui).document_controller.shown is not None
        )
        await tui.press("escape")
        await tui.until(lambda: top(tui) is first)
        await tui.press("right_square_bracket")
        await tui.until(lambda: top(tui) is not first)
        await tui.until("The heron sees an ibex.")
        assert first.search.query == "heron"


async def test_a_workspace_that_was_not_searched_is_named_on_a_narrow_screen(
    projects: dict[str, Builder],
) -> None:
    """The notice about the model comes first, and fills the line above the hits."""
    shutil.rmtree(projects["coast"].root)
    async with running(projects["alps"].root, size=(80, 24)) as tui:
        await tui.press("asterisk")
        await tui.type("ibex")
        await tui.until_hits()
        await tui.until("was not searched")


async def test_keys_about_one_workspace_refuse_a_hit_of_another_project(
    projects: dict[str, Builder],
) -> None:
    async with running(projects["alps"].root) as tui:
        await search_all(tui, "ibex heron")
        await select_hit_of(tui, "coast")
        for key in ("y", "e", "s", "M", "B"):
            await tui.press(key)
            await tui.until("This hit is in the project coast. Open the hit first.")
        await tui.press("a")
        await tui.until("Ranks can be explained only in a search of one workspace (/ starts one).")


async def test_a_workspace_that_is_gone_is_said_and_nothing_is_opened(
    projects: dict[str, Builder],
) -> None:
    async with running(projects["alps"].root) as tui:
        await search_all(tui, "ibex heron")
        first = top(tui)
        await select_hit_of(tui, "coast")
        projects["coast"].root.rename(projects["coast"].root.with_name("moved"))
        await tui.press("enter")
        await tui.until("irectory does not exist")
        assert top(tui) is first
