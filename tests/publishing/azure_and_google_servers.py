"""Servers that speak the protocols of Azure Blob Storage and Google Cloud Storage, each in a process of its own.

Azurite comes from npm, and is used if it is installed. fake-gcs-server comes from PyPI. It lacks the XML requests with
which obstore and LanceDB write, so a server in front of it sends each write as the JSON request
that Google documents as its equal. The conditions of writes are checked by fake-gcs-server.
"""

import base64
import contextlib
import datetime
import hashlib
import hmac
import http.client
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

AZURITE = os.environ.get("KBTUI_AZURITE") or shutil.which("azurite-blob")
"""The program of Azurite, or None."""
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The account and the key that every Azurite has, as its documentation says."""


def _find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def _run_server(words: list[str], port: int) -> Iterator[None]:
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            assert server.poll() is None, "the server did not start"
            assert time.monotonic() < end, "the server did not start in time"
            time.sleep(0.05)
        yield
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def serve_azure(container: str) -> Iterator[dict[str, str]]:
    """Run Azurite with a container; give the variables that lead to it."""
    assert AZURITE is not None
    port = _find_free_port()
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with _run_server([AZURITE, "--blobPort", str(port), *options], port):
        _create_container(port, container)
        yield {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
            "AZURE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
            "NO_PROXY": "127.0.0.1",
        }


def _create_container(port: int, name: str) -> None:
    date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    signed = "PUT" + 12 * "\n" + "".join(f"{key}:{value}\n" for key, value in headers.items())
    signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    url = f"http://127.0.0.1:{port}/{ACCOUNT}/{name}?restype=container"
    request = urllib.request.Request(url, method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=30).read()


@contextlib.contextmanager
def serve_google(program: Path, bucket: str, directory: Path) -> Iterator[dict[str, str]]:
    """Run fake-gcs-server with a bucket; give the variables that lead to it."""
    port = _find_free_port()
    words = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    words += ["-public-host", f"127.0.0.1:{port}", "-backend", "memory"]
    with _run_server(words, port):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/storage/v1/b?project=test",
            data=json.dumps({"name": bucket}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=30).read()

        class Handler(_XmlRequestHandler):
            emulator_port = port

        front = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=front.serve_forever, daemon=True).start()
        account = directory / "account.json"
        values = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        url = f"http://127.0.0.1:{front.server_port}"
        account.write_text(json.dumps({"gcs_base_url": url, "disable_oauth": True, **values}))
        try:
            yield {
                "GOOGLE_SERVICE_ACCOUNT": str(account),
                "GOOGLE_ALLOW_HTTP": "true",
                "NO_PROXY": "127.0.0.1",
            }
        finally:
            front.shutdown()
            front.server_close()


_BOUNDARY = b"a-boundary-that-no-part-contains"


class _XmlRequestHandler(BaseHTTPRequestHandler):
    """Forwards reads, listings and deletions, and sends writes in the form of the JSON interface."""

    protocol_version = "HTTP/1.1"
    emulator_port = 0

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._forward(self.command, self.path, None)

    do_HEAD = do_DELETE = do_GET

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        bucket, _, name = self.path.lstrip("/").partition("/")
        query = {"uploadType": "multipart"}
        if (generation := self.headers.get("x-goog-if-generation-match")) is not None:
            query["ifGenerationMatch"] = generation
        facts = json.dumps({"name": urllib.parse.unquote(name)}).encode()
        parts = [b"application/json\r\n\r\n" + facts, b"application/octet-stream\r\n\r\n" + body]
        data = b"".join(b"--%b\r\nContent-Type: %b\r\n" % (_BOUNDARY, part) for part in parts)
        path = f"/upload/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(query)}"
        self._forward("POST", path, data + b"--%b--\r\n" % _BOUNDARY)

    def _forward(self, method: str, path: str, body: bytes | None) -> None:
        server = http.client.HTTPConnection("127.0.0.1", self.emulator_port, timeout=30)
        headers = {"Range": self.headers["Range"]} if self.headers["Range"] else {}
        if body is not None:
            headers["Content-Type"] = f"multipart/related; boundary={_BOUNDARY.decode()}"
        server.request(method, path, body, headers)
        answer = server.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date"):
                self.send_header(name, value)
        if method == "POST" and answer.status == 200:
            facts = json.loads(data)
            self.send_header("ETag", facts["etag"])
            self.send_header("x-goog-generation", facts["generation"])
        length = answer.getheader("Content-Length") if method == "HEAD" else None
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        server.close()
