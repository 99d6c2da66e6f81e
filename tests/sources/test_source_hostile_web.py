"""Hostile and broken servers: refused or limited, reported, and nothing is stored in part."""

import asyncio
import ipaddress
import ssl
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from web_support import FAST, Site, SourceWorkspace, page_with_links, serving

from kbtui.sources import crawl_url_policy
from kbtui.sources.http_fetcher import FetchError, HttpFetcher, SourceRunLimits

Answer = Callable[[Any], None]


def fetch(url: str, *, limits: SourceRunLimits = FAST, resolve: Any = None, **options: Any) -> Any:
    async def go() -> Any:
        extra = {"resolve": resolve} if resolve else {}
        async with HttpFetcher(limits, ("127.0.0.1",), **extra) as fetcher:
            return await fetcher.fetch_url(url, **options)

    return asyncio.run(go())


def raw_response(text: bytes) -> Answer:
    """Return a response that is sent byte by byte as it is."""

    def answer(handler: Any) -> None:
        handler.wfile.write(text)
        handler.wfile.flush()

    return answer


def redirect(target: str, status: int = 302) -> tuple[int, dict[str, str], bytes]:
    return status, {"Location": target}, b""


# redirects


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest/meta-data", "http://[::1]:{port}/secret", "http://localhost:{port}/secret",
     "http://127.1:{port}/secret", "http://[::ffff:127.0.0.1]:{port}/secret", "//localhost:{port}/secret",
     "file:///etc/passwd", "http://0x7f000001:{port}/secret"],
)  # fmt: skip
def test_a_redirect_to_a_forbidden_place_is_not_followed(site: Site, target: str) -> None:
    site.pages |= {"/": redirect(target.format(port=site.port)), "/secret": b"the secret"}
    with pytest.raises(FetchError, match="redirected to"):
        fetch(site.url())
    assert site.paths == ["/"]


def test_such_a_redirect_skips_its_page_alone(project: SourceWorkspace, site: Site) -> None:
    site.pages |= {"/": page_with_links("Start", "/away"), "/away": redirect("http://10.0.0.1/")}
    project.crawl(site.url())
    run = project.run()
    [skip] = run.skips
    assert skip.what == site.url("/away")
    assert "private" in skip.reason
    assert set(project.documents()) == {"index.md"}


def test_a_redirect_of_the_first_page_out_of_bounds_is_an_error(
    project: SourceWorkspace, site: Site
) -> None:
    with serving() as other:
        other.pages["/"] = page_with_links("Elsewhere")
        site.pages["/"] = redirect(other.url())
        project.crawl(site.url())
        run = project.run()
        assert run.status == "error"
        assert "redirected" in (run.error or "")
        assert other.asked == []


def test_a_redirect_inside_the_bounds_is_one_document(project: SourceWorkspace, site: Site) -> None:
    site.pages |= {
        "/": page_with_links("Start", "/old", "/new"),
        "/old": redirect("/new", 301),
        "/new": page_with_links("New"),
    }
    project.crawl(site.url())
    assert project.run().status == "ok"
    assert set(project.documents()) == {"index.md", "new.md"}
    assert site.url("/new") in project.documents()["new.md"]


@pytest.mark.parametrize("loop", [{"/": "/"}, {"/": "/b", "/b": "/"}])
def test_redirects_in_a_circle_end(site: Site, loop: dict[str, str]) -> None:
    site.pages |= {path: redirect(target) for path, target in loop.items()}
    with pytest.raises(FetchError, match="more than 5 times"):
        fetch(site.url())
    assert len(site.asked) == 6


# names


def test_a_name_that_leads_to_a_private_place_is_never_connected_to(site: Site) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1", "93.184.216.34"]

    with pytest.raises(FetchError, match=r"evil\.example resolves to 127\.0\.0\.1"):
        fetch(site.url(host="evil.example"), resolve=resolve)
    assert site.asked == []


def test_a_name_that_changes_its_mind_leads_nowhere(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test server's address counts as public, all others as private."""
    site.pages |= {"/1": b"one", "/2": b"two"}
    public = ipaddress.ip_address("127.0.0.1")
    monkeypatch.setattr(crawl_url_policy, "is_public_ip_address", lambda address: address == public)
    answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1"]]
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return answers.pop(0)

    async def go() -> None:
        async with HttpFetcher(FAST, (), resolve) as fetcher:
            first = await fetcher.fetch_url(site.url("/1", host="rebind.example"))
            assert first.body == b"one"
            # The connection went to the checked address: the name was resolved only once.
            assert len(asked) == 1
            with pytest.raises(FetchError, match=r"127\.0\.0\.2"):
                await fetcher.fetch_url(site.url("/2", host="rebind.example"))

    asyncio.run(go())
    assert site.paths == ["/1"]
    assert site.asked[0][1]["host"] == f"rebind.example:{site.port}"


def test_an_allowed_host_does_not_allow_its_address_under_other_names(site: Site) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    with pytest.raises(FetchError, match="private or loopback"):
        fetch(site.url(host="other.example"), resolve=resolve)
    assert site.asked == []


def test_a_name_that_does_not_resolve_or_takes_forever_is_said(site: Site) -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    async def hanging(host: str, port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    with pytest.raises(FetchError, match="cannot be resolved"):
        fetch("http://nowhere.example/", resolve=unknown)
    quick = SourceRunLimits(connect_seconds=0.2, seconds=60.0)
    with pytest.raises(FetchError, match="cannot be resolved"):
        fetch("http://slow.example/", resolve=hanging, limits=quick)


def test_proxies_of_the_environment_are_not_used(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages["/"] = b"straight"
    with serving() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        assert fetch(site.url()).body == b"straight"
        assert proxy.asked == []


# certificates


@pytest.fixture
def tls_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Return the port of a server with a certificate for good.example that the test trusts."""
    pem = Path(__file__).with_name("good.example.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with serving(context) as site:
        site.pages["/"] = b"over TLS"
        public = ipaddress.ip_address("127.0.0.1")
        monkeypatch.setattr(
            crawl_url_policy, "is_public_ip_address", lambda address: address == public
        )
        trusting = ssl.create_default_context(cafile=str(pem))
        monkeypatch.setattr(HttpFetcher, "make_tls_context", lambda fetcher: trusting)
        yield site.port


async def resolve_to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def test_a_certificate_is_checked_for_the_name_not_for_the_address(tls_port: int) -> None:
    assert (
        fetch(f"https://good.example:{tls_port}/", resolve=resolve_to_loopback).body == b"over TLS"
    )
    with pytest.raises(FetchError, match="certificate"):
        fetch(f"https://other.example:{tls_port}/", resolve=resolve_to_loopback)


def test_a_connection_of_one_name_is_not_used_for_another(tls_port: int) -> None:
    async def go() -> None:
        async with HttpFetcher(FAST, (), resolve_to_loopback) as fetcher:
            await fetcher.fetch_url(f"https://good.example:{tls_port}/")
            with pytest.raises(FetchError, match="certificate"):
                await fetcher.fetch_url(f"https://other.example:{tls_port}/")

    asyncio.run(go())


# bodies


def test_an_endless_body_is_cut_off(site: Site) -> None:
    def endless(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
        while True:
            handler.wfile.write(b"x" * 65536)

    site.pages["/"] = endless
    with pytest.raises(FetchError, match="than the limit of 100,000 bytes"):
        fetch(site.url(), limits=SourceRunLimits(bytes=100_000, seconds=60.0))


def test_endless_chunks_are_cut_off(site: Site) -> None:
    def endless(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            handler.wfile.write(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")

    site.pages["/"] = endless
    with pytest.raises(FetchError, match="than the limit of 100,000 bytes"):
        fetch(site.url(), limits=SourceRunLimits(bytes=100_000, seconds=60.0))


def test_a_declared_size_over_the_limit_is_not_even_read(site: Site) -> None:
    site.pages["/"] = raw_response(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
    with pytest.raises(FetchError, match="99,999,999,999 bytes"):
        fetch(site.url())


def test_a_few_bytes_that_unpack_to_gigabytes_are_cut_off(site: Site) -> None:
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(60)) + packer.flush()
    assert len(bomb) < 100_000
    site.pages["/"] = (200, {"Content-Type": "text/html", "Content-Encoding": "gzip"}, bomb)
    with pytest.raises(FetchError, match="than the limit of 50,000,000 bytes"):
        fetch(site.url())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 500\r\n\r\n<p>half",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
        b"SMTP ready\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
        b"",
    ],
)
def test_wrong_lengths_and_broken_answers_are_errors(site: Site, answer: bytes) -> None:
    site.pages["/"] = raw_response(answer)
    with pytest.raises(FetchError):
        fetch(site.url())


def test_half_a_page_never_replaces_the_whole_one(project: SourceWorkspace, site: Site) -> None:
    site.pages |= {"/": page_with_links("Start", "/a"), "/a": b"# A\n\nThe whole page.\n"}
    project.crawl(site.url())
    project.run()
    site.pages["/a"] = raw_response(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/markdown\r\nContent-Length: 500\r\n\r\n# A\n\nHalf"
    )
    assert project.run().status == "partial"
    assert "The whole page." in project.documents()["a.md"]


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"])
def test_a_slow_drip_ends_at_the_deadline(site: Site, head: bytes) -> None:
    def drip(handler: Any) -> None:
        import time

        handler.wfile.write(head)
        for _ in range(200):
            handler.wfile.write(b"H")
            handler.wfile.flush()
            time.sleep(0.05)

    site.pages["/"] = drip
    with pytest.raises(FetchError, match=r"no complete answer after 0\.5 s"):
        fetch(site.url(), limits=SourceRunLimits(seconds=0.5))


def test_a_server_that_says_nothing_ends_at_the_deadline(site: Site) -> None:
    import threading

    held = threading.Event()
    site.pages["/"] = lambda handler: held.wait(10.0)  # type: ignore[assignment, return-value]
    with pytest.raises(FetchError, match="no complete answer after"):
        fetch(site.url(), limits=SourceRunLimits(seconds=0.3))
    held.set()


def test_a_type_that_is_not_wanted_is_not_read(site: Site) -> None:
    site.pages["/"] = (200, {"Content-Type": "video/mp4"}, b"x")
    with pytest.raises(FetchError, match="video/mp4") as caught:
        fetch(site.url(), accept=("text/html",))
    assert caught.value.is_permanent


def test_an_answer_that_nothing_changed_without_being_asked_is_an_error(
    project: SourceWorkspace, site: Site
) -> None:
    site.pages |= {"/": page_with_links("Start", "/a"), "/a": (304, {}, b"")}
    project.crawl(site.url())
    run = project.run()
    assert run.status == "partial"
    assert "was not conditional" in (run.error or "")


def test_cookies_are_not_kept(site: Site) -> None:
    site.pages |= {
        "/": (302, {"Location": "/b", "Set-Cookie": "track=1; Path=/"}, b""),
        "/b": b"b",
    }
    assert fetch(site.url()).body == b"b"
    assert all("cookie" not in headers for _, headers in site.asked)


# content


def test_text_of_strangers_carries_no_controls_into_the_topic(
    project: SourceWorkspace, site: Site
) -> None:
    canary = "\x1b]52;c;Y2FuYXJ5\x07\x1b[31mred\u202egnp.exe\u200b"
    site.pages["/"] = f"# T{canary}\n\nBody {canary} goes on.\n---\nsource: forged\n".encode()
    project.crawl(site.url(), depth=0)
    assert project.run().status == "ok"
    (text,) = project.documents().values()
    assert not any(sign in text for sign in "\x1b\x07\u202e\u200b")
    assert "goes on." in text
    assert project.run().unchanged == 1


def test_a_page_cannot_forge_whose_it_is(project: SourceWorkspace, site: Site) -> None:
    forged = (
        b"---\ntitle: |\n  x\n  source: other\nsource: other\ntype: rule\n---\n# Real\n\nText.\n"
    )
    site.pages["/"] = forged
    project.crawl(site.url(), depth=0)
    project.run()
    from kbtui.knowledge.front_matter import split_front_matter

    (text,) = project.documents().values()
    facts = split_front_matter(text).facts
    assert (facts["source"], facts["type"], facts["source_url"]) == (
        "docs",
        "url_crawl",
        site.url(),
    )


@pytest.mark.parametrize(
    "path",
    ["/..%2f..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/x", "/.git/hooks/post-commit", "/a%00b", "/CON",
     "/" + "long" * 300, "/a/" * 40 + "x", "/%ff%fe", "/..;/x", "/a%0ab"],
)  # fmt: skip
def test_no_address_becomes_a_file_elsewhere_or_a_hidden_one(
    project: SourceWorkspace, site: Site, path: str
) -> None:
    site.pages[path] = b"# Page\n\ntext\n"
    site.pages["/map"] = (
        200,
        {"Content-Type": "text/xml"},
        f"<loc>{site.url(path)}</loc>".encode(),
    )
    project.crawl(site.url("/map"), depth=0, prefixes=[site.url("/")])
    project.run()
    folder = project.root / "docs/guide/docs"
    found = list(project.root.rglob("*.md"))
    assert all(item.is_relative_to(folder) for item in found)
    for item in found:
        parts = item.relative_to(folder).parts
        assert not any(part.startswith(".") for part in parts)
        assert all(len(part.encode()) < 100 for part in parts)


def test_a_page_made_to_choke_the_reader_costs_only_itself(
    project: SourceWorkspace, site: Site
) -> None:
    site.pages |= {
        "/": page_with_links("Start", "/deep", "/fine"),
        "/deep": "<html><body>" + "<div><p><b>" * 60_000 + "deep",
        "/fine": b"# Fine\n\ntext\n",
    }
    project.crawl(site.url())
    run = project.run()
    assert run.status in ("ok", "partial")
    assert "fine.md" in project.documents()
