"""A crawl of a real server: what it fetches, what it skips, and what a second run does."""

import gzip
import time
from itertools import pairwise

import pytest
from web_support import FAST, Site, SourceWorkspace, page_with_links

from kbtui.sources.http_fetcher import SourceRunLimits
from kbtui.userdata.user_data_store import UserData

pytestmark = pytest.mark.usefixtures("read_in_this_process")


def test_a_page_becomes_a_subject_with_front_matter_and_its_main_text(
    project: SourceWorkspace, site: Site
) -> None:
    site.pages["/docs/"] = page_with_links("Retries", text="A failed request is tried again. ")
    project.crawl(site.url("/docs/"), depth=0)
    run = project.run()
    assert (run.status, run.entries, run.added) == ("ok", 1, 1)
    (text,) = project.documents().values()
    head, body = text.split("---\n", 2)[1:]
    assert "title: Retries\n" in head
    assert "type: url_crawl\n" in head
    assert "source: docs\n" in head
    assert f"source_url: {site.url('/docs/')}\n" in head
    assert "fetched_at: " in head
    assert "A failed request is tried again." in body
    assert "<p>" not in body
    knowledge = project.builder.workspace
    from kbtui.knowledge import load_knowledge

    assert "tried again" in load_knowledge(knowledge).learn("guide", "docs/index").text


def test_links_are_followed_as_deep_as_asked_and_inside_the_prefix(
    project: SourceWorkspace, site: Site
) -> None:
    site.pages |= {
        "/docs/": page_with_links("Start", "a.html", "/docs/b", "/private/", "#here", "mailto:x@y"),
        "/docs/a.html": page_with_links("A", "deep/c.html", "/docs/"),
        "/docs/b": page_with_links("B", "a.html"),
        "/docs/deep/c.html": page_with_links("C", "d.html"),
        "/docs/deep/d.html": page_with_links("D"),
        "/private/": page_with_links("Private"),
    }
    project.crawl(site.url("/docs/"), depth=2)
    run = project.run()
    assert run.status == "ok"
    assert set(project.documents()) == {"index.md", "a.md", "b.md", "deep/c.md"}
    assert "/private/" not in site.paths
    assert len(site.paths) == len(set(site.paths)), "a page was fetched twice"


def test_more_prefixes_widen_and_lookalikes_do_not(project: SourceWorkspace, site: Site) -> None:
    site.pages |= {
        "/docs/": page_with_links(
            "Start", "/api/x", "/docs/../private/", "/docs/%2e%2e/private/", "/docsx/"
        ),
        "/api/x": page_with_links("X"),
        "/private/": page_with_links("Private"),
        "/docsx/": page_with_links("Lookalike"),
    }
    project.crawl(site.url("/docs/"), prefixes=[site.url("/docs/"), site.url("/api/")])
    project.run()
    assert set(project.documents()) == {"index.md", "api/x.md"}
    assert not any("private" in path or "docsx" in path for path in site.paths)


def test_robots_txt_is_obeyed(project: SourceWorkspace, site: Site) -> None:
    site.pages |= {
        "/robots.txt": (
            200, {}, b"User-agent: other\nDisallow: /\n\nUser-agent: *\nDisallow: /secret*\nAllow: /secret-ok\n",
        ),
        "/": page_with_links("Start", "/secret1", "/secret-ok", "/open"),
        "/secret1": page_with_links("No"),
        "/secret-ok": page_with_links("Yes"),
        "/open": page_with_links("Open"),
    }  # fmt: skip
    project.crawl(site.url())
    assert project.run().status == "ok"
    assert set(project.documents()) == {"index.md", "secret-ok.md", "open.md"}
    assert "/secret1" not in site.paths


def test_a_site_that_forbids_us_or_whose_rules_fail_is_left_alone(
    project: SourceWorkspace, site: Site
) -> None:
    site.pages |= {
        "/robots.txt": (200, {}, b"User-agent: kbtui\nDisallow: /\n"),
        "/": page_with_links("Start"),
    }
    project.crawl(site.url())
    run = project.run()
    assert run.status == "error"
    assert "robots.txt" in (run.error or "")
    site.pages["/robots.txt"] = (503, {}, b"")
    run = project.run()
    assert run.status == "error"
    assert "robots.txt" in (run.error or "")
    assert site.paths == []


def test_noindex_and_nofollow_are_obeyed(project: SourceWorkspace, site: Site) -> None:
    def marked(robots: str, page: str) -> str:
        return page.replace("<head>", f'<head><meta name="robots" content="{robots}">')

    site.pages |= {
        "/": page_with_links("Start", "/hidden", "/end"),
        "/hidden": marked("noindex", page_with_links("Hidden", "/found")),
        "/end": marked("nofollow", page_with_links("End", "/lost")),
        "/found": page_with_links("Found"),
        "/lost": page_with_links("Lost"),
    }
    project.crawl(site.url(), depth=2)
    project.run()
    assert set(project.documents()) == {"index.md", "end.md", "found.md"}


def test_sitemaps_count_as_links_packed_and_nested(project: SourceWorkspace, site: Site) -> None:
    inner = f"<urlset><url><loc>{site.url('/docs/b')}</loc></url><url><loc>{site.url('/else')}</loc></url></urlset>"
    outer = (
        f"<sitemapindex><sitemap><loc>{site.url('/inner.xml.gz')}</loc></sitemap>"
        "<sitemap><loc>http://10.0.0.1/map.xml</loc></sitemap></sitemapindex>"
    )
    site.pages |= {
        "/robots.txt": (200, {}, f"Sitemap: {site.url('/outer.xml')}\n".encode()),
        "/outer.xml": (200, {"Content-Type": "application/xml"}, outer.encode()),
        "/inner.xml.gz": (200, {"Content-Type": "application/gzip"}, gzip.compress(inner.encode())),
        "/docs/": page_with_links("Start"),
        "/docs/b": page_with_links("B"),
        "/else": page_with_links("Else"),
    }
    project.crawl(site.url("/docs/"))
    assert project.run().status == "ok"
    assert set(project.documents()) == {"index.md", "b.md"}


def test_a_second_run_changes_only_what_changed(project: SourceWorkspace, site: Site) -> None:
    def page(title: str, tag: str, *links: str) -> tuple[int, dict[str, str], bytes]:
        headers = {"Content-Type": "text/html", "ETag": tag}
        return 200, headers, page_with_links(title, *links).encode()

    site.pages |= {
        "/": page("Start", '"1"', "/same", "/changed", "/goes"),
        "/same": page("Same", '"1"', "/below"),
        "/below": page("Below", '"1"'),
        "/changed": page("Old words", '"1"'),
        "/goes": page("Goes", '"1"'),
    }
    project.crawl(site.url(), depth=2)
    first = project.run()
    assert (first.added, first.entries) == (5, 5)
    before = project.documents()
    folder = project.root / "docs/guide/docs"
    times = {name: (folder / name).stat().st_mtime_ns for name in before}
    site.pages["/"] = page("Start", '"2"', "/same", "/changed", "/new")
    site.pages["/changed"] = page("New words", '"2"')
    site.pages["/new"] = page("New", '"1"')
    del site.pages["/goes"]
    site.asked.clear()
    second = project.run()
    assert (second.added, second.updated, second.removed) == (1, 2, 1)
    assert second.status == "ok"
    after = project.documents()
    assert set(after) == {"index.md", "same.md", "below.md", "changed.md", "new.md"}
    assert "New words" in after["changed.md"]
    for name in ("same.md", "below.md"):
        assert (folder / name).stat().st_mtime_ns == times[name]
    # Links of an unchanged page are still followed, and the request was conditional.
    asked = dict(site.asked)
    assert asked["/same"]["if-none-match"] == '"1"'
    assert "/below" in asked


def test_a_page_that_fails_keeps_its_document_and_makes_the_run_partial(
    project: SourceWorkspace, site: Site
) -> None:
    site.pages |= {
        "/": page_with_links("Start", "/a", "/b"),
        "/a": page_with_links("A"),
        "/b": page_with_links("B"),
    }
    project.crawl(site.url())
    project.run()
    site.pages["/a"] = (500, {}, b"")
    site.pages["/"] = page_with_links("Start", "/a")
    run = project.run()
    assert run.status == "partial"
    assert "/a: the server answered 500" in (run.error or "")
    # Pages that the run did not find may be linked from the page that failed.
    assert set(project.documents()) == {"index.md", "a.md", "b.md"}
    site.pages["/a"] = page_with_links("A")
    assert project.run().removed == 1
    assert set(project.documents()) == {"index.md", "a.md"}


def test_a_page_that_is_gone_goes(project: SourceWorkspace, site: Site) -> None:
    site.pages |= {"/": page_with_links("Start", "/a"), "/a": page_with_links("A")}
    project.crawl(site.url())
    project.run()
    site.pages["/a"] = (410, {}, b"")
    run = project.run()
    assert (run.status, run.removed) == ("ok", 1)
    assert set(project.documents()) == {"index.md"}


@pytest.mark.slow
def test_when_the_network_goes_half_way_nothing_is_lost(
    project: SourceWorkspace, site: Site
) -> None:
    names = [f"/p{number}" for number in range(30)]
    site.pages |= {
        "/": page_with_links("Start", *names),
        **{name: page_with_links(name) for name in names},
    }
    project.crawl(site.url())
    assert project.run().entries == 31
    before = project.documents()

    def dead(handler: object) -> None:
        handler.connection.close()  # type: ignore[attr-defined]

    site.pages |= dict.fromkeys(names[5:], dead)
    site.asked.clear()
    run = project.run()
    assert run.status == "partial"
    assert any("failures in a row" in problem for problem in run.problems)
    assert len(site.paths) < 25, "it went on asking a network that is gone"
    assert project.documents() == before
    site.close()
    run = project.run()
    assert run.status == "error"
    assert project.documents() == before
    assert UserData(project.builder.workspace).load_last_source_runs()["docs"] == run


def test_types_that_are_not_read_are_left_out_without_complaint(
    project: SourceWorkspace, site: Site
) -> None:
    site.pages |= {
        "/": page_with_links("Start", "/logo.png", "/data", "/notes.md", "/plain.txt"),
        "/data": (200, {"Content-Type": "application/octet-stream"}, b"\0\1"),
        "/notes.md": b"---\ntitle: My notes\ntags: [x]\n---\n# Notes\n\nMarkdown stays *as it is*.\n",
        "/plain.txt": (200, {"Content-Type": "text/plain"}, "Größe".encode("latin-1")),
    }
    project.crawl(site.url())
    assert project.run().status == "ok"
    found = project.documents()
    assert set(found) == {"index.md", "notes.md", "plain.md"}
    assert "Markdown stays *as it is*." in found["notes.md"]
    assert "title: My notes" in found["notes.md"]
    assert "Größe" in found["plain.md"]
    assert "/logo.png" not in site.paths


def test_relative_links_in_the_text_lead_where_they_led_on_the_page(
    project: SourceWorkspace, site: Site
) -> None:
    text = 'A failed request is tried again, as <a href="../b.html">the policy</a> says in full. '
    site.pages["/docs/a/page.html"] = page_with_links("Page", text=text)
    project.crawl(site.url("/docs/a/page.html"), depth=0)
    project.run()
    assert f"]({site.url('/docs/b.html')})" in project.documents()["page.md"]


@pytest.mark.slow
def test_a_newer_reader_reads_again_what_did_not_change(
    project: SourceWorkspace, site: Site
) -> None:
    page = page_with_links("Start").encode()
    site.pages["/"] = (200, {"Content-Type": "text/html", "ETag": '"1"'}, page)
    project.crawl(site.url())
    project.run()
    userdata = UserData(project.builder.workspace)
    facts = userdata.load_fetched_address_facts("docs")
    for one in facts.values():
        del one["reader"]
    userdata.save_fetched_address_facts("docs", facts)
    site.asked.clear()
    assert project.run().unchanged == 1
    [headers] = [headers for path, headers in site.asked if path == "/"]
    assert "if-none-match" not in headers
    project.run()
    assert [headers for path, headers in site.asked if path == "/"][1]["if-none-match"] == '"1"'


def test_two_addresses_never_share_a_file(project: SourceWorkspace, site: Site) -> None:
    links = ["/a", "/a/", "/a.html", "/A", "/a?x=1", "/a?x=2"]
    site.pages |= {
        "/": page_with_links("Start", *links),
        **{link: page_with_links(f"Page {link}") for link in links},
    }
    project.crawl(site.url())
    first = project.run()
    assert (first.status, first.entries) == ("ok", 7)
    names = list(project.documents())
    assert len(names) == 7
    assert len({name.casefold() for name in names}) == 7
    second = project.run()
    assert (second.added, second.updated, second.removed) == (0, 0, 0)
    assert list(project.documents()) == names


def test_pages_and_time_are_limited_and_it_is_said(project: SourceWorkspace, site: Site) -> None:
    names = [f"/p{number}" for number in range(10)]
    site.pages |= {
        "/": page_with_links("Start", *names),
        **{name: page_with_links(name) for name in names},
    }
    project.crawl(site.url())
    run = project.run(limits=SourceRunLimits(pages=4, delay=0.0))
    assert (run.status, run.entries) == ("partial", 4)
    assert "stopped after 4 pages" in (run.error or "")
    run = project.run(limits=SourceRunLimits(run_seconds=0.0, delay=0.0))
    assert len(project.documents()) == 4, "what was not met is not gone"
    site.pages["/"] = page_with_links("Start", "/p0")
    run = project.run(limits=SourceRunLimits(pages=1, delay=0.0))
    assert "stopped after 1 page with 1 more to fetch" in (run.error or "")


def test_a_host_is_not_asked_faster_than_it_wants(project: SourceWorkspace, site: Site) -> None:
    times: list[float] = []

    def page(title: str, *links: str) -> object:
        def answer(handler: object) -> None:
            times.append(time.monotonic())
            body = page_with_links(title, *links).encode()
            handler.send_response(200)  # type: ignore[attr-defined]
            handler.send_header("Content-Type", "text/html")  # type: ignore[attr-defined]
            handler.send_header("Content-Length", str(len(body)))  # type: ignore[attr-defined]
            handler.end_headers()  # type: ignore[attr-defined]
            handler.wfile.write(body)  # type: ignore[attr-defined]

        return answer

    site.pages |= {
        "/robots.txt": (200, {}, b"User-agent: *\nCrawl-delay: 0.15\n"),
        "/": page("Start", "/a", "/b"),  # type: ignore[dict-item]
        "/a": page("A"),  # type: ignore[dict-item]
        "/b": page("B"),  # type: ignore[dict-item]
    }
    project.crawl(site.url())
    project.run(limits=SourceRunLimits(delay=0.0, max_delay=1.0))
    assert len(times) == 3
    assert all(later - earlier >= 0.15 for earlier, later in pairwise(times))


def test_a_busy_server_is_asked_once_more_when_it_says_when(
    project: SourceWorkspace, site: Site
) -> None:
    answers = [(429, {"Retry-After": "0"}, b""), (429, {"Retry-After": "100000"}, b"")]

    def busy(handler: object) -> None:
        status, headers, _ = answers.pop(0) if answers else (404, {}, b"")
        handler.send_response(status)  # type: ignore[attr-defined]
        for name, value in headers.items():
            handler.send_header(name, value)  # type: ignore[attr-defined]
        handler.end_headers()  # type: ignore[attr-defined]

    site.pages |= {"/": page_with_links("Start", "/busy"), "/busy": busy}
    project.crawl(site.url())
    run = project.run()
    assert run.status == "partial"
    assert site.paths.count("/busy") == 2
    assert "429" in (run.error or "")


@pytest.mark.parametrize("topic", ["gone", "off"])
def test_a_topic_that_vanished_is_an_error_of_the_source(
    project: SourceWorkspace, site: Site, topic: str
) -> None:
    site.pages["/"] = page_with_links("Start")
    project.add(kind="url_crawl", url=site.url(), allow_hosts=["127.0.0.1"], topic=topic)
    run = project.run(limits=FAST)
    assert run.status == "error"
    assert topic in (run.error or "")
