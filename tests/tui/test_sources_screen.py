"""The sources screen: approving, running with progress, stopping, adding, changing, removing."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from feature_screen_support import paged
from support import Builder
from textual.widgets import Input
from tui_support import Tui, matches_snapshot

from kbtui.sources.document_source_definitions import (
    find_source_approval_time,
    load_source_definitions,
    record_source_approval,
)
from kbtui.tui.framework.dialogs import ChoiceField, FormDialog
from kbtui.tui.sources_screen import SourcesScreen
from kbtui.userdata.user_data_store import UserData

PAPERS = '[source.papers]\nkind = "file_upload"\ntopic = "project"\nfile = "papers"\n'


@pytest.fixture
def papers(book: Builder) -> Builder:
    """A directory of documents, and a source for it that is not approved."""
    (book.root / "papers").mkdir()
    for name in ("one", "two"):
        (book.root / "papers" / f"{name}.md").write_text(f"# Paper {name}\n\nOn pangolins.\n")
    (book.root / ".jp" / "kb-sources.toml").write_text(PAPERS)
    return book


async def read(tui: Tui, screen: SourcesScreen) -> None:
    await tui.until(lambda: screen.states is not None)
    await tui.pilot.pause()


async def fill(tui: Tui, **values: str) -> None:
    await tui.until(lambda: isinstance(tui.app.screen, FormDialog))
    form = tui.app.screen
    assert isinstance(form, FormDialog)
    for name, value in values.items():
        widget = form.query_one(f"#field-{name}")
        if isinstance(widget, ChoiceField):
            while widget.value != value:
                widget.action_step_choice(1)
        else:
            assert isinstance(widget, Input)
            widget.value = value
    await tui.press("ctrl+s")


def documents(builder: Builder) -> list[str]:
    folder = builder.root / "docs/project/papers"
    return sorted(path.name for path in folder.glob("*")) if folder.exists() else []


async def test_what_somebody_else_declared_is_looked_at_before_it_runs(papers: Builder) -> None:
    async with paged(papers, "S", SourcesScreen) as (tui, screen, _):
        await read(tui, screen)
        assert "not approved" in tui.text
        await tui.press("exclamation_mark")
        await tui.until("Source papers is not approved: press v to review what it would do")
        assert documents(papers) == []
        await tui.press("v")
        await tui.until("Approve papers?")
        drawn = " ".join(line.plain for _, line in screen.reader.viewport.rows)
        shown = " ".join(drawn.split())
        for words in (
            "read papers",
            "below docs/project/papers/",
            "only manually",
            'file = "papers"',
        ):
            assert words in shown
        matches_snapshot("sources_approve", tui.text)
        await tui.press("escape")
        source = load_source_definitions(papers.workspace).find_source("papers")
        assert (
            find_source_approval_time(papers.workspace, UserData(papers.workspace), source) is None
        )
        await tui.press("v", "y")
        await tui.until("Approved papers")
        assert (
            find_source_approval_time(papers.workspace, UserData(papers.workspace), source)
            is not None
        )
        await tui.press("exclamation_mark")
        await tui.until("papers: ok, 2 documents (2 new, 0 changed, 0 removed)")
    assert documents(papers) == ["one.md", "two.md"]


async def test_what_changed_while_it_was_looked_at_is_not_approved(papers: Builder) -> None:
    async with paged(papers, "S", SourcesScreen) as (tui, screen, _):
        await read(tui, screen)
        await tui.press("v")
        await tui.until("Approve papers?")
        (papers.root / ".jp/kb-sources.toml").write_text(PAPERS.replace('"papers"', '"/etc"'))
        await tui.press("y")
        await tui.until("Approved papers")
        now = load_source_definitions(papers.workspace).find_source("papers")
        assert find_source_approval_time(papers.workspace, UserData(papers.workspace), now) is None
        await tui.until("not approved – v to review")


async def test_adding_changing_and_removing(papers: Builder) -> None:
    (papers.root / ".jp/kb-sources.toml").unlink()
    async with paged(papers, "S", SourcesScreen) as (tui, screen, _):
        await read(tui, screen)
        assert "No sources yet." in tui.text
        await tui.press("plus")
        await fill(tui, kind="file_upload", file="papers", topic="project", cron="at noon")
        await tui.until("cron")
        await tui.until("at noon")
        assert not (papers.root / ".jp/kb-sources.toml").exists()
        await fill(tui, cron="0 4 * * 1")
        await tui.until("Added papers")
        await tui.until(
            lambda: (
                screen.selected_source is not None and screen.selected_source.approved is not None
            )
        )
        assert "next" in tui.text
        await tui.press("exclamation_mark")
        await tui.until("papers: ok, 2 documents")
        await tui.press("e")
        await fill(tui, cron="")
        await tui.until("Changed papers")
        await tui.until("only manually")
        assert load_source_definitions(papers.workspace).find_source("papers").cron is None
        await tui.press("d")
        await tui.until("remove it, but keep its 2 documents")
        await tui.press("escape")
        await tui.until(lambda: tui.app.screen is screen)
        await tui.press("d")
        await tui.until("remove it, but keep its 2 documents")
        await tui.press("k")
        await tui.until("Removed papers")
        await tui.until("No sources yet.")
    assert documents(papers) == ["one.md", "two.md"]
    assert "source:" not in (papers.root / "docs/project/papers/one.md").read_text()


async def test_changing_what_was_not_approved_approves_nothing(papers: Builder) -> None:
    async with paged(papers, "S", SourcesScreen) as (tui, screen, _):
        await read(tui, screen)
        await tui.press("e")
        await fill(tui, cron="0 4 * * 1")
        await tui.until("Changed papers; the source is not approved yet")
        source = load_source_definitions(papers.workspace).find_source("papers")
        assert (
            find_source_approval_time(papers.workspace, UserData(papers.workspace), source) is None
        )


class _Slow(BaseHTTPRequestHandler):
    gate = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/next":
            self.gate.wait(60)
            self.close_connection = True
            return
        body = b"<h1>Start</h1><p>Words enough to be read as a page.</p><a href=/next>next</a>"
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def slow_site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    _Slow.gate.set()
    server.shutdown()
    server.server_close()


async def test_a_run_shows_how_far_it_is_and_is_stopped_on_a_key(
    book: Builder, slow_site: str
) -> None:
    async with paged(book, "S", SourcesScreen) as (tui, screen, _):
        await read(tui, screen)
        await tui.press("plus")
        await fill(tui, url=slow_site, topic="project", allow_hosts="127.0.0.1", name="web")
        await tui.until("Added web")
        await tui.press("exclamation_mark")
        await tui.until(f"{slow_site}next", 60)
        assert "1 of 2" in tui.text
        assert "1 running" in tui.text
        await tui.press("q")
        await tui.until("web is running.")
        await tui.press("escape")
        await tui.press("x")
        await tui.until("web: partial, 1 document (1 new, 0 changed, 0 removed)", 60)
        assert "stopped; the documents fetched so far are kept" in tui.text
    assert [path.name for path in (book.root / "docs/project/web").iterdir()] == ["index.md"]


async def test_a_broken_block_is_shown_and_the_others_work(papers: Builder) -> None:
    path = papers.root / ".jp/kb-sources.toml"
    path.write_text(PAPERS + '[source.bad]\nkind = "ftp"\ntopic = "project"\n')
    async with paged(papers, "S", SourcesScreen) as (tui, screen, _):
        await read(tui, screen)
        assert "1 declaration cannot be read" in tui.text
        await tui.press("G")
        await tui.until("Correct .jp/kb-sources.toml")
        assert "must be one of url_crawl, file_upload, mcp" in tui.text
        path.write_text("[[[")
        await tui.press("ctrl+r")
        await tui.until("0 sources")
        assert "! " in tui.text


async def test_a_topic_that_vanished_fails_the_run_and_loses_nothing(papers: Builder) -> None:
    async with paged(papers, "S", SourcesScreen) as (tui, screen, _):
        await read(tui, screen)
        await tui.press("v", "y")
        await tui.until("Approved papers")
        await tui.press("exclamation_mark")
        await tui.until("papers: ok")
        (papers.root / ".jp/kb.toml").write_text(
            '[kb.topic.snippets]\nsubjects = "docs/snippets"\n'
        )
        await tui.press("exclamation_mark")
        await tui.until("papers: error")
        assert "project" in tui.text
    assert documents(papers) == ["one.md", "two.md"]


def test_what_an_approval_agrees_to_is_spelt_out(tmp_path: Path) -> None:
    from kbtui.sources.document_source_definitions import parse_source_table
    from kbtui.tui.sources_screen import SourceWithLastRun, describe_what_approved_source_may_do

    block = {"kind": "mcp", "topic": "t", "server": "npx -y 'a b'", "env": ["TOKEN"], "pattern": "docs://*",
             "cron": "* * * * *"}  # fmt: skip
    words = "\n".join(
        describe_what_approved_source_may_do(
            SourceWithLastRun(parse_source_table("x", block), "docs/t/x/", "", None, None, None)
        )
    )
    for part in (
        "npx -y 'a b'",
        "$TOKEN",
        "docs://*",
        "automatically on the cron schedule * * * * *",
        "docs/t/x/",
    ):
        assert part in words
    block = {"kind": "url_crawl", "topic": "t", "url": "https://a.example/d/i.html", "depth": 2,
             "allow_hosts": ["in.example"]}  # fmt: skip
    words = "\n".join(
        describe_what_approved_source_may_do(
            SourceWithLastRun(parse_source_table("x", block), "docs/t/x/", "", None, None, None)
        )
    )
    for part in (
        "https://a.example/d/i.html",
        "2 links away",
        "below https://a.example/d/",
        "in.example",
    ):
        assert part in words


async def test_what_a_run_skipped_and_left_alone_is_on_its_page(papers: Builder) -> None:
    (papers.root / "papers/photo.png").write_bytes(b"\x89PNG\0")
    record_source_approval(papers.workspace, UserData(papers.workspace), load_source_definitions(papers.workspace).find_source("papers"))  # fmt: skip
    async with paged(papers, "S", SourcesScreen) as (tui, screen, _):
        await read(tui, screen)
        await tui.press("exclamation_mark")
        await tui.until("papers: ok, 2 documents (2 new, 0 changed, 0 removed, 1 skipped)")
        path = papers.root / "docs/project/papers/one.md"
        path.write_text(path.read_text() + "\nMine.\n")
        (papers.root / "papers/one.md").unlink()
        await tui.press("exclamation_mark")
        await tui.until("1 edited by you and left alone")

        def drawn() -> str:
            return " ".join(" ".join(line.plain for _, line in screen.reader.viewport.rows).split())

        await tui.until(lambda: "left alone" in drawn())
        assert "skipped, content type image/png is not supported: papers/photo.png" in drawn()
        assert "one.md: deleted at its source, but kept because you have edited it" in drawn()
