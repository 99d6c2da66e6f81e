"""`.jp/kb-sources.toml`: a mistake affects one source only, and editing loses nothing."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_support import SourceWorkspace

from kbtui.errors import ConfigError, KbtuiError, NothingFound, UsageError
from kbtui.sources.document_source_definitions import (
    add_source_definition,
    change_source_definition_keys,
    load_source_definitions,
    parse_source_table,
    remove_source_definition,
    suggest_source_name,
)

GOOD = {"kind": "url_crawl", "topic": "guide", "url": "https://example.org/docs/"}


def declare(project: SourceWorkspace, text: str) -> Any:
    (project.root / ".jp" / "kb-sources.toml").write_text(text)
    return load_source_definitions(project.builder.workspace)


def test_no_file_is_no_sources(project: SourceWorkspace) -> None:
    found = load_source_definitions(project.builder.workspace)
    assert (found.sources, found.problems) == ({}, [])
    with pytest.raises(NothingFound, match="unknown source 'docs'"):
        found.find_source("docs")


def test_the_three_kinds_are_read(project: SourceWorkspace) -> None:
    found = declare(
        project,
        """
        [source.docs]
        kind = "url_crawl"
        topic = "guide"
        url = "https://example.org/docs/"
        depth = 3
        prefixes = ["https://example.org/docs/", "https://example.org/api/"]
        cron = "0 4 * * 1"
        [source.manual]
        kind = "file_upload"
        topic = "guide"
        file = "manual.pdf"
        [source.notes]
        kind = "mcp"
        topic = "guide"
        server = "notes-mcp --root 'my notes'"
        pattern = "note://*"
        """,
    )
    assert found.problems == []
    assert found.find_source("docs").depth == 3
    assert found.find_source("manual").url_path_or_command == "manual.pdf"
    assert found.find_source("notes").server == ("notes-mcp", "--root", "my notes")


@pytest.mark.parametrize(
    ("block", "key", "words"),
    [
        ({"url": None}, "url", "missing"),
        ({"topic": None}, "topic", "missing"),
        ({"kind": "ftp"}, "kind", "one of"),
        ({"dept": 1}, "dept", "unknown key"),
        ({"depth": "2"}, "depth", "whole number"),
        ({"depth": True}, "depth", "whole number"),
        ({"depth": -1}, "depth", "from 0 to"),
        ({"depth": 999}, "depth", "from 0 to"),
        ({"prefixes": "https://example.org/"}, "prefixes", "list"),
        ({"prefixes": ["http://10.0.0.1/"]}, "prefixes", "private"),
        ({"url": "http://localhost/"}, "url", "private"),
        ({"url": "file:///etc/passwd"}, "url", "not an http"),
        ({"cron": "every day"}, "cron", "cron expression"),
        ({"cron": "0 0 30 2 *"}, "cron", "cron expression"),
        ({"cron": "* * * * * *"}, "cron", "five fields"),
        ({"kind": "mcp", "url": None, "server": "unclosed '"}, "server", "command line"),
        ({"kind": "mcp", "url": None, "server": "  "}, "server", "missing"),
        ({"kind": "file_upload"}, "url", "unknown key"),
    ],
)
def test_a_mistake_names_file_key_and_reason_and_leaves_the_others(
    project: SourceWorkspace, block: dict[str, Any], key: str, words: str
) -> None:
    import tomli_w

    broken = {name: value for name, value in {**GOOD, **block}.items() if value is not None}
    found = declare(project, tomli_w.dumps({"source": {"broken": broken, "good": GOOD}}))
    assert list(found.sources) == ["good"]
    (problem,) = found.problems
    assert problem.where == ".jp/kb-sources.toml"
    assert problem.key == f"source.broken.{key}"
    assert words in problem.message
    with pytest.raises(ConfigError, match=words):
        found.find_source("broken")


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "A", "x..y", "", "x" * 65, "a b", "ä"])
def test_a_name_that_would_be_no_plain_directory_is_refused(
    project: SourceWorkspace, name: str
) -> None:
    with pytest.raises(ConfigError):
        add_source_definition(project.builder.workspace, name, GOOD)
    assert not (project.root / ".jp" / "kb-sources.toml").exists()


WHAT = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["http://[x", "https://[::1]/", "http://a..b/", "http:///", " ", "/", "..", "a" * 300]),
)  # fmt: skip


@given(kind=st.sampled_from(["url_crawl", "file_upload", "mcp_resource"]), what=WHAT)
def test_whatever_is_to_be_fetched_has_a_name_that_is_one(kind: str, what: str) -> None:
    parse_source_table(suggest_source_name(kind, what), GOOD)


@pytest.mark.parametrize(
    "text", ["[source", "source = 3", "source = []", "\x00", "[[source]]\nkind='mcp'"]
)
def test_a_file_that_is_no_table_of_sources_is_said(project: SourceWorkspace, text: str) -> None:
    found = declare(project, text)
    assert found.sources == {}
    assert len(found.problems) == 1


def test_editing_keeps_comments_and_order(project: SourceWorkspace) -> None:
    workspace = project.builder.workspace
    declare(
        project,
        "# Sources of ours.\n\n[source.docs] # the manual\nkind = \"url_crawl\"\ntopic = \"guide\"\n"
        "url = \"https://example.org/docs/\" # not the wiki\n\n[source.other]\nkind = \"file_upload\"\n"
        'topic = "guide"\nfile = "x.md"\n',
    )  # fmt: skip
    change_source_definition_keys(workspace, "docs", {"depth": 2, "cron": "0 4 * * *"})
    text = (project.root / ".jp" / "kb-sources.toml").read_text()
    for words in ("# Sources of ours.", "# the manual", "# not the wiki", "depth = 2"):
        assert words in text
    change_source_definition_keys(workspace, "docs", {"cron": None})
    add_source_definition(workspace, "third", GOOD)
    remove_source_definition(workspace, "other")
    found = load_source_definitions(workspace)
    assert list(found.sources) == ["docs", "third"]
    assert found.find_source("docs").depth == 2
    assert found.find_source("docs").cron is None
    remove_source_definition(workspace, "docs")
    remove_source_definition(workspace, "third")
    assert load_source_definitions(workspace).sources == {}
    add_source_definition(workspace, "again", GOOD)
    assert list(load_source_definitions(workspace).sources) == ["again"]


def test_a_name_is_taken_once_and_mistakes_write_nothing(project: SourceWorkspace) -> None:
    workspace = project.builder.workspace
    add_source_definition(workspace, "docs", GOOD)
    before = (project.root / ".jp" / "kb-sources.toml").read_bytes()
    with pytest.raises(UsageError, match="already"):
        add_source_definition(workspace, "docs", GOOD)
    with pytest.raises(ConfigError, match="private"):
        change_source_definition_keys(workspace, "docs", {"url": "http://192.168.0.1/"})
    with pytest.raises(NothingFound):
        remove_source_definition(workspace, "none")
    assert (project.root / ".jp" / "kb-sources.toml").read_bytes() == before


def test_a_file_that_is_no_toml_is_left_as_it_is(project: SourceWorkspace) -> None:
    declare(project, "[source.docs\nkind = 1")
    with pytest.raises(ConfigError, match="not valid TOML"):
        add_source_definition(project.builder.workspace, "docs", GOOD)
    assert (project.root / ".jp" / "kb-sources.toml").read_text() == "[source.docs\nkind = 1"


def test_a_link_is_not_written_through(project: SourceWorkspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside.toml"
    outside.write_text("")
    (project.root / ".jp" / "kb-sources.toml").symlink_to(outside)
    with pytest.raises(KbtuiError, match="link"):
        add_source_definition(project.builder.workspace, "docs", GOOD)
    assert outside.read_text() == ""
