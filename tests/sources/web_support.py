"""A real server on loopback with pages that a test defines, and workspaces with sources."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support import Builder

from kbtui.sources.document_source_definitions import (
    add_source_definition,
    load_source_definitions,
    record_source_approval,
)
from kbtui.sources.document_source_runner import run_document_source
from kbtui.sources.http_fetcher import SourceRunLimits
from kbtui.userdata.user_data_store import SourceRunRecord, UserData

Handler = BaseHTTPRequestHandler
Page = str | bytes | tuple[int, dict[str, str], bytes] | Callable[[Handler], None]

FAST = SourceRunLimits(delay=0.0, max_delay=0.2, seconds=30.0, connect_seconds=20.0)


class Site:
    """Pages by path: HTML text, Markdown bytes, (status, headers, body), or a function."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        site = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                page = site.pages.get(self.path, (404, {}, b"no such page"))
                if callable(page):
                    self.close_connection = True
                    page(self)
                    return
                if isinstance(page, str):
                    page = (200, {"Content-Type": "text/html; charset=utf-8"}, page.encode())
                elif isinstance(page, bytes):
                    page = (200, {"Content-Type": "text/markdown"}, page)
                status, headers, body = page
                tag = headers.get("ETag")
                if tag and self.headers.get("If-None-Match") == tag:
                    status, body = 304, b""
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 304:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                """Ignore clients that disconnect: some tests do that on purpose."""

        self._server = Quiet(("127.0.0.1", 0), Answering)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    @property
    def paths(self) -> list[str]:
        """Return the requested paths in order, without robots.txt and sitemaps."""
        return [path for path, _ in self.asked if path not in ("/robots.txt", "/sitemap.xml")]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    site = Site(tls)
    try:
        yield site
    finally:
        site.close()


def page_with_links(title: str, *links: str, text: str = "") -> str:
    """Return a page with links and enough text to have a main part."""
    anchors = " ".join(f'<a href="{link}">to {link}</a>' for link in links)
    body = (
        text or f"This page is about {title}. It says what there is to say of {title}, at length. "
    )
    return (
        f"<html><head><title>{title}</title></head><body><main><h1>{title}</h1>"
        f"<p>{body * 3}</p><p>{anchors}</p></main></body></html>"
    )


class SourceWorkspace:
    """A workspace with a topic `guide` and one approved source."""

    def __init__(self, root: Path) -> None:
        self.builder = Builder(root)
        self.builder.topics(guide={})
        self.root = root

    def add(self, name: str = "docs", **block: Any) -> None:
        workspace = self.builder.workspace
        source = add_source_definition(workspace, name, {"topic": "guide", **block})
        record_source_approval(workspace, UserData(workspace), source)

    def crawl(self, url: str, **options: Any) -> None:
        self.add(kind="url_crawl", url=url, **{"allow_hosts": ["127.0.0.1"], **options})

    def run(self, name: str = "docs", **options: Any) -> SourceRunRecord:
        return run_document_source(self.builder.workspace, name, **{"limits": FAST, **options})

    def documents(self, name: str = "docs") -> dict[str, str]:
        """Return the source's files: relative path to content."""
        folder = self.root / "docs" / "guide" / name
        return {
            str(path.relative_to(folder)): path.read_text("utf-8")
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    def source(self, name: str = "docs") -> Any:
        return load_source_definitions(self.builder.workspace).find_source(name)
