"""A source's directory: only changed documents are written, and the user's edits are never lost."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from web_support import SourceWorkspace

from kbtui.errors import KbtuiError
from kbtui.sources.document_source_definitions import (
    DocumentSourceDefinition,
    change_source_definition_keys,
)
from kbtui.sources.document_source_runner import (
    SourceAlreadyRunningError,
    count_source_documents,
    lock_document_source,
    remove_source_and_fetched_files,
    run_document_source,
)
from kbtui.sources.source_document_store import (
    FetchedDocument,
    SourceDocumentStore,
    read_stored_document,
)

SOURCE = DocumentSourceDefinition("docs", "file_upload", "guide", file="x")


def open_directory(root: Path) -> SourceDocumentStore:
    folder = root / "topic"
    folder.mkdir(exist_ok=True)
    return SourceDocumentStore(root, folder, SOURCE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


def write_documents(root: Path, *names: str, text: str = "text") -> SourceDocumentStore:
    found = open_directory(root)
    for name in names:
        found.write_document(FetchedDocument(f"x/{name}", name, name.title(), text))
    return found


def test_the_same_again_touches_nothing(root: Path) -> None:
    write_documents(root, "a", "b/c")
    files = {path: path.stat().st_mtime_ns for path in (root / "topic").rglob("*.md")}
    again = write_documents(root, "a", "b/c")
    again.remove_unseen_documents()
    assert again.counts["unchanged"] == 2
    assert {path: path.stat().st_mtime_ns for path in (root / "topic").rglob("*.md")} == files


def test_what_a_person_changed_is_left_alone_and_said(root: Path) -> None:
    write_documents(root, "a", "b", "c")
    for name, change in (("a", "\nMy remark.\n"), ("b", "\nMine too.\n")):
        path = root / "topic/docs" / f"{name}.md"
        path.write_text(path.read_text() + change)
    # Unchanged at the source: no message.
    same = write_documents(root, "a", "b", "c")
    same.remove_unseen_documents()
    assert (same.problems, same.edited) == ([], [])
    # Changed or deleted at the source: kept here, with a message.
    found = write_documents(root, "a", text="other text")
    found.remove_unseen_documents()
    assert found.problems == []
    assert sorted(found.edited) == [
        "a.md: changed at its source, but kept because you have edited it",
        "b.md: deleted at its source, but kept because you have edited it",
    ]
    assert "My remark." in (root / "topic/docs/a.md").read_text()
    assert "Mine too." in (root / "topic/docs/b.md").read_text()
    assert not (root / "topic/docs/c.md").exists()


def test_front_matter_that_a_person_changed_counts_as_theirs(root: Path) -> None:
    write_documents(root, "a")
    path = root / "topic/docs/a.md"
    path.write_text(path.read_text().replace("title: A\n", "title: A\ntags: [mine]\n"))
    write_documents(root, "a", text="other")
    assert "tags: [mine]" in path.read_text()


def test_other_line_ends_are_no_change_of_hand(root: Path) -> None:
    write_documents(root, "a", text="one\ntwo")
    path = root / "topic/docs/a.md"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    found = write_documents(root, "a", text="three")
    assert found.counts["updated"] == 1


def test_files_of_others_in_the_directory_are_never_touched(root: Path) -> None:
    folder = root / "topic/docs"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("# Mine\n")
    (folder / "b.txt").write_text("mine")
    (folder / "c.md").write_text("---\nsource: other\nsource_url: x/c\n---\nanother source's\n")
    found = write_documents(root, "a", "b", "c")
    assert found.counts["added"] == 3
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 6
    gone = open_directory(root)
    gone.remove_unseen_documents()
    assert sorted(path.name for path in folder.iterdir()) == ["a.md", "b.txt", "c.md"]
    assert (folder / "a.md").read_text() == "# Mine\n"


def test_empty_directories_go_with_their_last_document(root: Path) -> None:
    write_documents(root, "deep/er/a", "b")
    write_documents(root, "b").remove_unseen_documents()
    assert sorted(path.name for path in (root / "topic/docs").iterdir()) == ["b.md"]


def test_a_document_that_moved_is_found_by_its_address(root: Path) -> None:
    write_documents(root, "a")
    (root / "topic/docs/a.md").rename(root / "topic/docs/renamed.md")
    found = write_documents(root, "a", text="new text")
    assert found.counts["updated"] == 1
    assert "new text" in (root / "topic/docs/renamed.md").read_text()


def test_a_directory_that_is_a_link_is_refused(root: Path, tmp_path: Path) -> None:
    (root / "topic").mkdir()
    (root / "elsewhere").mkdir()
    (root / "topic/docs").symlink_to(root / "elsewhere")
    with pytest.raises(KbtuiError, match="link"):
        open_directory(root)


def test_a_link_inside_leads_nothing_out(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (root / "topic/docs").mkdir(parents=True)
    (root / "topic/docs/sub").symlink_to(outside)
    found = open_directory(root)
    with pytest.raises(KbtuiError, match="outside the workspace"):
        found.write_document(FetchedDocument("x/sub/a", "sub/a", "A", "text"))
    assert list(outside.iterdir()) == []


def test_a_full_disk_leaves_what_was_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_documents(root, "a")
    before = (root / "topic/docs/a.md").read_text()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KbtuiError, match="No space left"):
        write_documents(root, "a", text="much more text")
    monkeypatch.undo()
    assert (root / "topic/docs/a.md").read_text() == before
    assert [path.name for path in (root / "topic/docs").iterdir()] == ["a.md"]


def test_letting_go_makes_documents_ordinary_subjects(root: Path) -> None:
    found = write_documents(root, "a")
    found.detach_documents_from_source()
    text = (root / "topic/docs/a.md").read_text()
    assert "source_url: x/a" in text
    assert "type: reference" in text
    assert "\nsource: " not in text
    assert "\ndigest: " not in text
    assert open_directory(root).documents == {}


def test_removing_all_keeps_what_a_person_changed(root: Path) -> None:
    write_documents(root, "a", "b")
    path = root / "topic/docs/a.md"
    path.write_text(path.read_text() + "mine\n")
    found = open_directory(root)
    found.remove_all_unedited_documents()
    assert [item.name for item in (root / "topic/docs").iterdir()] == ["a.md"]
    assert len(found.edited) == 1


@settings(max_examples=60, deadline=None)
@given(
    title=st.text(max_size=40),
    text=st.text(max_size=200),
    tags=st.lists(st.text(max_size=8), max_size=3),
)
def test_what_is_written_is_recognised_as_untouched(
    tmp_path_factory: pytest.TempPathFactory, title: str, text: str, tags: list[str]
) -> None:
    root = Path(os.path.realpath(tmp_path_factory.mktemp("shelf")))
    found = open_directory(root)
    found.write_document(FetchedDocument("https://example.org/a", "a", title, text, tuple(tags)))
    held = read_stored_document(root / "topic/docs/a.md", "docs")
    assert held is not None
    assert not held.is_edited
    again = open_directory(root)
    again.write_document(FetchedDocument("https://example.org/a", "a", title, text, tuple(tags)))
    assert again.counts["unchanged"] == 1


def test_two_runs_at_once_are_one(project: SourceWorkspace) -> None:
    (project.root / "x.md").write_text("# X\n\ntext\n")
    project.add(kind="file_upload", file="x.md")
    workspace = project.builder.workspace
    with (
        lock_document_source(workspace, "docs"),
        pytest.raises(SourceAlreadyRunningError, match="already running"),
    ):
        run_document_source(workspace, "docs")
    assert project.run().status == "ok"
    outcomes: list[str] = []

    def go() -> None:
        try:
            outcomes.append(project.run().status)
        except SourceAlreadyRunningError:
            outcomes.append("busy")

    threads = [threading.Thread(target=go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "ok" in outcomes
    assert set(outcomes) <= {"ok", "busy"}
    assert list(project.documents()) == ["x.md"]


@pytest.mark.parametrize("keep", [True, False])
def test_counting_and_removing_create_no_directory(project: SourceWorkspace, keep: bool) -> None:
    workspace = project.builder.workspace
    project.builder.topics(new={}, far={})
    for name in ("new", "far"):
        (project.root / "docs" / name).rmdir()
    (project.root / "docs/far").symlink_to(project.root.parent)
    project.add(kind="file_upload", file="x.md", topic="far")
    with pytest.raises(KbtuiError, match="outside the workspace"):
        count_source_documents(workspace, project.source())
    change_source_definition_keys(workspace, "docs", {"topic": "new"})
    assert count_source_documents(workspace, project.source()) == 0
    assert remove_source_and_fetched_files(workspace, "docs", keep=keep) == []
    assert not (project.root / "docs/new").exists()
