"""A source runs only if the user approved its table: cloning a workspace runs nothing."""

import shutil
import sys
from pathlib import Path

import pytest
from support import Builder, tree_hash
from web_support import FAST, Site, SourceWorkspace

from kbtui.sources.document_source_definitions import (
    change_source_definition_keys,
    find_source_approval_time,
    load_source_definitions,
    record_source_approval,
)
from kbtui.sources.document_source_runner import SourceNotApprovedError, run_document_source
from kbtui.sources.document_source_scheduler import DocumentSourceScheduler, list_due_sources
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace import open_workspace_at_root


def hostile(root: Path, site: Site, marker: Path) -> Builder:
    """Return a cloned workspace whose sources would fetch, read a secret and run a program."""
    builder = Builder(root)
    builder.topics(guide={})
    (root / "server.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    (root / ".jp" / "kb-sources.toml").write_text(
        f"""
        [source.beacon]
        kind = "url_crawl"
        topic = "guide"
        url = "{site.url()}"
        allow_hosts = ["127.0.0.1"]
        cron = "* * * * *"
        [source.secret]
        kind = "file_upload"
        topic = "guide"
        file = "{marker.with_name("secret.txt")}"
        cron = "* * * * *"
        [source.program]
        kind = "mcp"
        topic = "guide"
        server = "{sys.executable} server.py"
        cron = "* * * * *"
        """
    )
    return builder


def test_opening_a_hostile_clone_runs_nothing(tmp_path: Path, site: Site) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "secret.txt").write_text("the secret")
    builder = hostile(tmp_path / "clone", site, marker)
    before = tree_hash(builder.root)
    workspace = builder.workspace
    assert list(load_source_definitions(workspace).sources) == ["beacon", "secret", "program"]
    for name in load_source_definitions(workspace).sources:
        with pytest.raises(SourceNotApprovedError, match="is not approved"):
            run_document_source(workspace, name, limits=FAST)
    schedule = DocumentSourceScheduler(workspace, print)
    for later in (0.0, 120.0, 1e9):
        assert list_due_sources(workspace, 2e9 + later) == []
        schedule.check_and_start_due_sources(2e9 + later)
    assert schedule.running_source_name is None
    assert site.asked == []
    assert not marker.exists()
    assert tree_hash(builder.root) == before
    assert "the secret" not in str(
        [path.read_text() for path in (builder.root / "docs").rglob("*.md")]
    )


def test_an_approval_of_one_clone_is_none_of_another(tmp_path: Path, site: Site) -> None:
    first = hostile(tmp_path / "first", site, tmp_path / "ran").workspace
    shutil.copytree(first.root, tmp_path / "second")
    second = open_workspace_at_root(tmp_path / "second")
    source = load_source_definitions(first).find_source("beacon")
    record_source_approval(first, UserData(first), source)
    assert find_source_approval_time(first, UserData(first), source)
    assert (
        find_source_approval_time(
            second, UserData(second), load_source_definitions(second).find_source("beacon")
        )
        is None
    )


@pytest.mark.parametrize(
    "change",
    [{"url": "https://elsewhere.example/"}, {"depth": 5}, {"allow_hosts": ["127.0.0.1", "10.0.0.1"]}, {"cron": None},
     {"topic": "other"}, {"prefixes": ["https://elsewhere.example/"]}],
)  # fmt: skip
def test_any_change_of_the_block_is_another_block(
    project: SourceWorkspace, site: Site, change: dict[str, object]
) -> None:
    project.crawl(site.url(), depth=1, cron="0 4 * * *")
    workspace = project.builder.workspace
    change_source_definition_keys(workspace, "docs", change)
    with pytest.raises(SourceNotApprovedError):
        run_document_source(workspace, "docs", limits=FAST)
    assert site.asked == []


def test_the_block_as_it_was_is_approved_again(project: SourceWorkspace, site: Site) -> None:
    project.crawl(site.url(), depth=1)
    workspace = project.builder.workspace
    change_source_definition_keys(workspace, "docs", {"depth": 2})
    assert find_source_approval_time(workspace, UserData(workspace), project.source()) is None
    change_source_definition_keys(workspace, "docs", {"depth": 1})
    assert find_source_approval_time(workspace, UserData(workspace), project.source())


def test_the_same_block_under_another_name_is_not_approved(
    project: SourceWorkspace, site: Site
) -> None:
    project.crawl(site.url())
    path = project.root / ".jp" / "kb-sources.toml"
    path.write_text(path.read_text().replace("[source.docs]", "[source.docs2]"))
    with pytest.raises(SourceNotApprovedError):
        run_document_source(project.builder.workspace, "docs2", limits=FAST)


def test_a_script_that_changed_is_not_what_was_approved(project: SourceWorkspace) -> None:
    script = project.root / "server.py"
    script.write_text("print('harmless')\n")
    project.add(kind="mcp", server=f"{sys.executable} server.py")
    workspace = project.builder.workspace
    assert find_source_approval_time(workspace, UserData(workspace), project.source())
    script.write_text("print('something else')\n")
    assert find_source_approval_time(workspace, UserData(workspace), project.source()) is None
