"""A search of all projects answers as one index of everything would, and no workspace can spoil it."""

import gc
import json
import shlex
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from running import on_pipe
from support import Builder, asked, index_without_engine, kill_engine, said

from kbtui.engine.all_projects_search import AllProjectsSearch
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.library import open_workspace
from kbtui.search.multi_index_search import SearchedIndex, search_indexes
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.userdata.workspace_registry import register_workspace
from kbtui.workspace import Settings


def make_workspace(root: Path, **subjects: str) -> Builder:
    built = Builder(root)
    built.topics(notes={})
    for slug, text in subjects.items():
        built.subject(f"notes/{slug}.md", text)
    return built


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Builder]]:
    """Three indexed workspaces; the engine of the first one answers."""
    monkeypatch.setenv("KBTUI_MODEL", "off")
    built = {
        "alps": make_workspace(tmp_path / "alps", goat="# Goat\n\nThe ibex climbs.\n"),
        "coast": make_workspace(tmp_path / "coast", bird="# Bird\n\nThe heron and the ibex.\n"),
        "woods": make_workspace(tmp_path / "woods", cat="# Cat\n\nThe lynx sleeps.\n"),
    }
    for one in built.values():
        index_without_engine(one)
    yield built
    kill_engine(built["alps"])


def search_all(at: Builder, *words: str) -> dict[str, Any]:
    out, err, code = on_pipe(["search", "--all", "--json", *words], cwd=at.root)
    assert code in (0, 1), err
    found: dict[str, Any] = json.loads(out)
    return found


def test_hits_of_all_projects_are_labelled_and_the_default_stays_here(
    three: dict[str, Builder],
) -> None:
    found = search_all(three["alps"], "ibex")
    assert {(hit["project"], hit["ref"]) for hit in found["hits"]} == {
        ("alps", "notes/goat:1-3"),
        ("coast", "notes/bird:1-3"),
    }
    assert {hit["workspace"] for hit in found["hits"]} == {
        str(three[name].root) for name in ("alps", "coast")
    }
    assert "coast, woods may be out of date" in found["degraded"]
    out, _, _ = on_pipe(["search", "--all", "ibex"], cwd=three["alps"].root)
    assert "[coast] notes/bird:1-3" in out.decode()
    here = json.loads(on_pipe(["search", "--json", "ibex"], cwd=three["alps"].root)[0])
    assert [hit["ref"] for hit in here["hits"]] == ["notes/goat:1-3"]
    assert "project" not in here["hits"][0]


def test_a_workspace_that_cannot_be_searched_is_named_and_the_others_answer(
    three: dict[str, Builder],
) -> None:
    shutil.rmtree(three["woods"].root)
    catalog = next(three["coast"].workspace.cache_dir.glob("gen-*/catalog.sqlite"))
    catalog.write_bytes(b"no database" * 100)
    found = search_all(three["alps"], "ibex")
    assert [hit["project"] for hit in found["hits"]] == ["alps"]
    for name in ("woods", "coast"):
        assert f"{three[name].root} was not searched: " in found["degraded"]


def test_hidden_disabled_and_excluded_subjects_stay_out(
    three: dict[str, Builder], home: Path
) -> None:
    three["coast"].subject("notes/.nest.md", "# Nest\n\nWhere the ibex sleeps.\n")
    three["woods"].subject("notes/den.md", "# Den\n\nThe den of the ibex.\n")
    three["woods"].topics(notes={"disabled": ["den"]})
    for name in ("coast", "woods"):
        index_without_engine(three[name])
    assert {hit["ref"] for hit in search_all(three["alps"], "ibex")["hits"]} == {
        "notes/goat:1-3",
        "notes/bird:1-3",
    }
    found = search_all(three["alps"], "ibex", "--hidden")
    assert "notes/nest:1-3" in {hit["ref"] for hit in found["hits"]}
    assert "notes/den:1-3" not in {hit["ref"] for hit in found["hits"]}
    folder = home / "config" / "kbtui"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'[workspaces]\nexclude = ["{three["coast"].root}"]\n')
    found = search_all(three["alps"], "ibex", "--hidden")
    assert [hit["project"] for hit in found["hits"]] == ["alps"]


def test_a_passage_of_several_workspaces_is_one_hit(three: dict[str, Builder]) -> None:
    three["coast"].subject("notes/goat.md", "# Goat\n\nThe ibex climbs.\n")
    index_without_engine(three["coast"])
    hits = search_all(three["alps"], "climbs")["hits"]
    assert [(hit["project"], hit["also_in"]) for hit in hits] == [
        ("alps", [str(three["coast"].root)])
    ]
    (three["alps"].root / "docs" / "notes" / "goat.md").write_text("# Goat\n\nIt sleeps now.\n")
    hits = search_all(three["alps"], "climbs")["hits"]
    assert [hit["project"] for hit in hits] == ["coast"], "its file still has the passage"


def test_a_filter_that_only_one_workspace_knows_selects_it(three: dict[str, Builder]) -> None:
    three["woods"].topics(notes={}, rare={})
    three["woods"].subject("rare/ibex.md", "# Rare\n\nAn ibex in the woods.\n")
    index_without_engine(three["woods"])
    found = search_all(three["alps"], "ibex", "topic:rare")
    assert [hit["project"] for hit in found["hits"]] == ["woods"]
    found = search_all(three["alps"], "ibex", "project:coa")
    assert [hit["project"] for hit in found["hits"]] == ["coast"]
    found = search_all(three["alps"], "--", "ibex", "-project:coast,woods")
    assert [hit["project"] for hit in found["hits"]] == ["alps"]
    _, err, code = on_pipe(["search", "--all", "ibex", "topic:nowhere"], cwd=three["alps"].root)
    assert code == 2
    assert b"nowhere" in err
    _, err, code = on_pipe(["search", "--all", "ibex", "--explain"], cwd=three["alps"].root)
    assert code == 2
    assert b"--all" in err


def test_without_an_engine_the_client_answers(
    three: dict[str, Builder], monkeypatch: pytest.MonkeyPatch
) -> None:
    three["coast"].conversation(1, [[asked("Where is the ibex?"), said("On the coast.")]])
    index_without_engine(three["coast"])
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    with open_workspace(three["alps"].root) as library:
        found = library.search_by_keywords(SearchRequest("ibex", all_projects=True))
    assert {(hit.project, hit.kind) for hit in found.hits} == {
        ("alps", "subject"),
        ("coast", "subject"),
        ("coast", "conversation"),
    }


def test_a_word_is_as_rare_as_in_all_projects_together(tmp_path: Path) -> None:
    """In its own workspace, `ibex` is the rarer word; in all together, `lynx` is."""
    from kbtui.index.index_reader import IndexReader

    zoo = {f"z{at}": f"# Z{at}\n\nThe ibex in enclosure {at}.\n" for at in range(12)}
    field = {f"f{at}": f"# F{at}\n\nThe lynx in field {at}.\n" for at in range(4)}
    groups = {"zoo": zoo, "field": {**field, "f9": "# F9\n\nThe ibex in field 9.\n"}}
    indexes = []
    for name, group in groups.items():
        built = make_workspace(tmp_path / name, **group)
        index_without_engine(built)
        reader = IndexReader(built.workspace.cache_dir)
        indexes.append(SearchedIndex(built.workspace, reader, name, name))
    request = SearchRequest("ibex lynx", mode="lexical")
    alone = [hit.slug for hit in search_indexes(indexes[1:], request).hits]
    together = [hit.slug for hit in search_indexes(indexes, request).hits]
    for index in indexes:
        index.reader.close()
    assert alone[0] == "f9"
    assert set(together[:4]) == set(field)


def test_each_workspace_has_its_own_marks(three: dict[str, Builder]) -> None:
    for name in ("alps", "coast"):
        three[name].conversation(1, [[asked("Which ibex?"), said("The grey ibex.")]])
        index_without_engine(three[name])
    with open_workspace(three["coast"].root) as library:
        library.mark("jp-c17800000001:1", "decided", note="grey")
    # The turn of both workspaces is one hit.
    (hit,) = search_all(three["alps"], "ibex", "in:conversations", "role:assistant")["hits"]
    assert [mark["label"] for mark in hit["marks"]] == ["decided: grey"]
    found = search_all(three["alps"], "ibex", "mark:decided")["hits"]
    assert {hit["project"] for hit in found} == {"coast"}
    assert search_all(three["alps"], "ibex", "mark:rejected")["hits"] == []


def test_grep_finds_lines_of_all_projects_and_each_conversation_of_a_project_once(
    three: dict[str, Builder],
) -> None:
    for number, name in enumerate(("alps", "coast", "woods"), 1):
        words = [asked(f"Where is the badger of the {name}?"), said("Below the badger tree.")]
        three[name].conversation(number, [words])
    clone = shutil.copytree(three["coast"].root, three["coast"].root.parent / "clone")
    for root in (three["coast"].root, clone):
        (root / ".git").mkdir()
        (root / ".git" / "config").write_text('[remote "origin"]\n\turl = git@host.org:a/sea.git\n')
        register_workspace(Builder(root).workspace, Settings())
    shutil.rmtree(three["woods"].root)
    grep = ["conversation", "grep", "--all"]
    out, _, code = on_pipe([*grep, "badger", "--json"], cwd=three["alps"].root)
    found = json.loads(out)
    assert code == 0
    assert (found["total"], found["count"]) == (4, 4)
    assert [hit["project"] for hit in found["hits"]] == ["alps", "alps", "sea", "sea"]
    assert f"{three['woods'].root} was not searched" in found["hint"]
    out, _, _ = on_pipe([*grep, "badger of"], cwd=three["alps"].root)
    assert [line.split(" ")[0] for line in out.decode().splitlines()] == ["[alps]", "[sea]"]
    out, _, _ = on_pipe([*grep, "badger", "--limit", "3", "--json"], cwd=three["alps"].root)
    assert (json.loads(out)["count"], json.loads(out)["omitted"]) == (3, 1)
    out, _, _ = on_pipe([*grep, "badger", "--list", "--json"], cwd=three["alps"].root)
    assert [one["project"] for one in json.loads(out)["conversations"]] == ["alps", "sea"]
    out, _, _ = on_pipe(["conversation", "grep", "badger of"], cwd=three["alps"].root)
    assert len(out.splitlines()) == 1
    assert not out.startswith(b"[")


def test_hits_on_requests_have_their_answers_and_later_turns(three: dict[str, Builder]) -> None:
    turns = [
        [asked("Where does the heron nest?"), said("In the reeds.")],
        [asked("Thanks."), said("Welcome.")],
        [asked("Does the heron nest in trees?"), said("Yes, too.")],
    ]
    three["coast"].conversation(1, turns)
    index_without_engine(three["coast"])
    hits = search_all(three["alps"], "heron", "nest", "--in", "conversations")["hits"]
    first = next(hit for hit in hits if hit["turn"] == 1)
    assert (first["project"], first["answer"], first["later_turn"]) == (
        "coast",
        "In the reeds.",
        3,
    )


def test_the_hint_for_an_unknown_value_names_what_each_project_has(
    three: dict[str, Builder],
) -> None:
    three["woods"].topics(notes={}, rare={})
    three["woods"].subject("rare/ibex.md", "# Rare\n\nAn ibex.\n")
    index_without_engine(three["woods"])
    _, err, code = on_pipe(["search", "--all", "--topic", "x", "ibex"], cwd=three["alps"].root)
    assert code == 2
    assert b"in alps: known values: notes; in" in err
    assert b"in woods: known values: notes, rare" in err


def test_an_index_of_another_version_is_named_with_the_command_that_makes_it_anew(
    three: dict[str, Builder],
) -> None:
    cache = three["coast"].workspace.cache_dir
    folder = next(cache.glob("gen-*"))
    (cache / "current").unlink()
    folder.rename(cache / "gen-0-0")
    (cache / "current").symlink_to("gen-0-0")
    _, err, code = on_pipe(["search", "--all", "ibex"], cwd=three["alps"].root)
    assert code == 0
    root = three["coast"].root
    assert f"{root} was not searched: the index was made by another version" in err.decode()
    assert f"`kbtui -w {shlex.quote(str(root))} index`" in err.decode()


def test_a_near_spelling_is_found_in_all_projects_and_said(three: dict[str, Builder]) -> None:
    found = search_all(three["alps"], "herron")
    assert [hit["project"] for hit in found["hits"]] == ["coast"]
    assert "heron" in found["degraded"]


def test_the_vectors_of_replaced_indexes_are_let_go(three: dict[str, Builder]) -> None:
    class Vectors:
        def reload(self) -> None:
            pass

    class Worker:
        def open_vector_store_of_generation(self, folder: Path) -> Vectors:
            return Vectors()

    projects, worker = AllProjectsSearch(three["alps"].workspace, Settings()), cast("Any", Worker())
    here = IndexReader(three["alps"].workspace.cache_dir)

    def open_vectors() -> weakref.ref[Any]:
        reader = IndexReader(three["coast"].workspace.cache_dir)
        index = SearchedIndex(three["coast"].workspace, reader, "coast", "coast")
        store = projects.open_vector_store_of_generation(index, worker)
        assert projects.open_vector_store_of_generation(index, worker) is store, "they stay open"
        reader.close()
        return weakref.ref(store)

    vectors = open_vectors()
    assert len(projects.search_all_projects(here, SearchRequest("ibex")).hits) == 2
    assert vectors() is not None
    rebuilt = WorkspaceIndexWriter(three["coast"].workspace, Settings(), rebuild=True)
    rebuilt.refresh_index()
    rebuilt.close()
    assert len(projects.search_all_projects(here, SearchRequest("ibex")).hits) == 2
    gc.collect()
    assert vectors() is None
    projects.close()
    here.close()
