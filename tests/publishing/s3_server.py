"""A real S3 server in a process of its own, and a proxy in front of it that can delay, refuse and count requests."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

Answer = tuple[int, str]
"""A status, and the body of an error as S3 writes it."""

VARIABLES = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
    "NO_PROXY": "127.0.0.1",
}


@contextlib.contextmanager
def serve_s3() -> Iterator[int]:
    """Run a server on the loopback, and give its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        sys.executable,
        "-m",
        "tests.publishing.moto_server",
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            assert server.poll() is None, "the server did not start"
            assert time.monotonic() < end, "the server did not start in time"
            time.sleep(0.02)
        yield port
    finally:
        server.kill()
        server.wait()


def create_bucket(port: int, name: str) -> None:
    import datetime

    day = datetime.datetime.now(datetime.UTC)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{name}",
        method="PUT",
        headers={
            "Host": "s3.amazonaws.com",
            "Authorization": f"AWS4-HMAC-SHA256 Credential=tester/{day:%Y%m%d}/us-east-1/s3/aws4_request, "
            "SignedHeaders=host, Signature=0",
        },
    )
    urllib.request.urlopen(request, timeout=30).read()


def format_error(code: str, message: str = "") -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'


class Proxy:
    """Forwards requests to a server. `decide` sees each request first, and can answer it or change it.

    If `keeps_objects` is true, the proxy answers requests for a range from a copy of the object. The server itself
    reads the whole object for each of them: with an object of 256 MB, this takes 0.6 s.
    """

    def __init__(self, port: int, *, delay: float = 0.0, keeps_objects: bool = False) -> None:
        self._target, self.delay = port, delay
        self._objects: dict[bytes, tuple[list[bytes], bytes]] | None = {} if keeps_objects else None
        self.decide: Callable[[str, str, int], Answer | None] = lambda method, path, number: None
        self.drops: tuple[bytes, ...] = ()
        """Headers that the server never sees."""
        self.requests = self.unanswered = 0
        self.received = self.sent = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, ValueError, EOFError), client:
            reader = client.makefile("rb")
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                answers = server.makefile("rb")
                while self._answer(reader, client, answers, server):
                    pass

    def _answer(
        self, reader: Any, client: socket.socket, answers: Any, server: socket.socket
    ) -> bool:
        head, body = _read_message(reader)
        if not head:
            return False
        method, path = head[0].split()[:2]
        with self._lock:
            self.requests += 1
            self.unanswered += 1
            number = self.requests
            self.received += len(body)
        try:
            return self._forward(method, path, number, head, body, client, answers, server)
        finally:
            with self._lock:
                self.unanswered -= 1

    def wait_until_answered(self) -> None:
        """Wait until the server has answered all requests, also those of processes that have ended."""
        while self.unanswered:
            time.sleep(0.01)

    def _forward(
        self,
        method: bytes,
        path: bytes,
        number: int,
        head: list[bytes],
        body: bytes,
        client: socket.socket,
        answers: Any,
        server: socket.socket,
    ) -> bool:
        if self.delay:
            time.sleep(self.delay / 2)
        refused = self.decide(method.decode(), path.decode(), number)
        if refused is not None:
            status, text = refused
            data = text.encode()
            client.sendall(
                b"HTTP/1.1 %d Refused\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n%b"
                % (status, len(data), data)
            )
            return True
        kept = [line for line in head if not line.lower().startswith(self.drops or (b"\0",))]
        wanted = next((line for line in kept if line.lower().startswith(b"range:")), None)
        key = path.partition(b"?")[0]
        if self._objects is not None and method not in (b"GET", b"HEAD"):
            self._objects.pop(key, None)
        if self._objects is not None and wanted is not None and method == b"GET":
            kept.remove(wanted)
            if key not in self._objects:
                server.sendall(b"\r\n".join(kept) + b"\r\n\r\n")
                self._objects[key] = _read_message(answers)
            head, body = _cut_range(*self._objects[key], wanted)
        else:
            server.sendall(b"\r\n".join(kept) + b"\r\n\r\n" + body)
            head, body = _read_message(answers, has_body=method != b"HEAD")
        if not head:
            return False
        if self.delay:
            time.sleep(self.delay / 2)
        with self._lock:
            self.sent += len(body)
        client.sendall(b"\r\n".join(head) + b"\r\n\r\n" + body)
        return not any(line.lower() == b"connection: close" for line in head)


def _cut_range(head: list[bytes], body: bytes, wanted: bytes) -> tuple[list[bytes], bytes]:
    """Return the answer to a request for a range, from the answer with the whole object."""
    if not head or head[0].split()[1] != b"200":
        return head, body
    first, _, last = wanted.partition(b"=")[2].strip().partition(b"-")
    start = int(first) if first else max(0, len(body) - int(last))
    end = min(int(last), len(body) - 1) if first and last else len(body) - 1
    part = body[start : end + 1]
    kept = [line for line in head[1:] if not line.lower().startswith(b"content-length:")]
    return [
        b"HTTP/1.1 206 Partial Content",
        *kept,
        b"Content-Length: %d" % len(part),
        b"Content-Range: bytes %d-%d/%d" % (start, end, len(body)),
    ], part


def _read_message(stream: Any, *, has_body: bool = True) -> tuple[list[bytes], bytes]:
    head = []
    while (line := stream.readline().rstrip(b"\r\n")) or not head:
        if not line:
            return [], b""
        head.append(line)
    facts = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head[1:])
    }
    if facts.get(b"expect"):
        raise ValueError("100-continue is not supported")
    body = b""
    if facts.get(b"transfer-encoding") == b"chunked" and has_body:
        while size := int(stream.readline(), 16):
            body += stream.read(size)
            stream.readline()
        stream.readline()
        head = [line for line in head if not line.lower().startswith(b"transfer-encoding")]
        head.append(b"Content-Length: %d" % len(body))
    elif has_body:
        body = stream.read(int(facts.get(b"content-length", 0)))
    return head, body


def set_store_variables(port: int, **more: str) -> None:
    os.environ.update(VARIABLES, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", **more)
