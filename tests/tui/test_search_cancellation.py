"""Queries that are replaced by newer ones while the engine is slow."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from support import Builder
from tui_support import running

from kbtui.engine import engine_protocol
from kbtui.engine.engine_launcher import get_engine_socket_path
from kbtui.index.index_generations import compute_index_schema_hash
from kbtui.library import Library
from kbtui.version import __version__
from kbtui.workspace import load_settings

MOST = engine_protocol.REQUEST_BYTES_MAX


class SlowEngine:
    """An engine that greets its clients and never answers.

    `asked` counts the questions, `waiting` those of which the client still waits for an answer.
    """

    def __init__(self, builder: Builder) -> None:
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(str(get_engine_socket_path()))
        self._door.listen()
        self.asked = self.waiting = 0
        self._lock = threading.Lock()
        self._guests: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                guest, _ = self._door.accept()
                self._guests.append(guest)
                threading.Thread(target=self._meet, args=(guest,), daemon=True).start()

    def _meet(self, guest: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, engine_protocol.InvalidProtocolFrameError),
            guest.makefile("rb") as frames,
        ):
            frames.read(
                engine_protocol.parse_frame_length(
                    frames.read(engine_protocol.FRAME_HEADER_BYTES), MOST
                )
            )
            guest.sendall(
                engine_protocol.encode_message_as_frame(
                    engine_protocol.make_hello_message(
                        version=__version__, schema=compute_index_schema_hash()
                    )
                )
            )
            size = frames.read(engine_protocol.FRAME_HEADER_BYTES)
            if (
                engine_protocol.decode_frame_body(
                    frames.read(engine_protocol.parse_frame_length(size, MOST))
                ).get("op")
                != "search"
            ):
                frames.read(1)
                return
            self._count(1, 1)
            try:
                frames.read(1)
            finally:
                self._count(0, -1)

    def _count(self, asked: int, waiting: int) -> None:
        with self._lock:
            self.asked += asked
            self.waiting += waiting

    def close(self) -> None:
        self._door.close()
        for guest in self._guests:
            guest.close()


@pytest.fixture
def slow(book: Builder) -> Iterator[SlowEngine]:
    engine = SlowEngine(book)
    yield engine
    engine.close()


async def test_only_the_newest_question_waits_for_a_slow_engine(
    book: Builder, slow: SlowEngine
) -> None:
    library = Library(book.workspace, load_settings())
    async with running(book.root, library=library) as tui:
        await tui.press("slash")
        for asked, letter in enumerate("retry", 1):
            await tui.type(letter)
            await tui.until(lambda asked=asked: slow.asked == asked)  # type: ignore[misc]
            await tui.until(lambda: slow.waiting == 1)
        await tui.press("ctrl+u")
        await tui.until(lambda: slow.waiting == 0)
