"""The other end of `extract`: a process that is started when needed, and ended when it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

from kbtui.errors import PackageUnavailable
from kbtui.sources.extraction import SIZE

SECONDS = 60.0
ANSWER_MOST = 64_000_000


class ExtractError(Exception):
    """Why a document gave no text."""


class Extractor:
    """Extracts documents one after the other. Use as an asynchronous context manager.

    `seconds`: how long one document may take.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Extractor:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self._end()

    async def extract(
        self, content: bytes, kind: str, url: str, charset: str | None = None
    ) -> dict[str, Any]:
        """What `extract.extract` gives; raises `ExtractError`, and `PackageUnavailable` where what
        reads this kind of document is not installed.
        """
        request = json.dumps({"kind": kind, "url": url, "charset": charset}).encode()
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._ask(request, content)
        except (TimeoutError, OSError, EOFError, ValueError) as error:
            late = isinstance(error, TimeoutError)
            await self._end()
            reason = f"reading it took over {self._seconds:g} s" if late else "reading it failed"
            raise ExtractError(reason) from error
        except BaseException:
            # Half a question is no state to go on from.
            await self._end()
            raise
        if "import" in found:
            raise PackageUnavailable(ImportError(found["import"], name=found["name"]))
        if "error" in found:
            raise ExtractError(str(found["error"]))
        return found

    async def _ask(self, request: bytes, content: bytes) -> dict[str, Any]:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "kbtui.sources.extraction",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
            )  # fmt: skip
        pipe, answers = self._process.stdin, self._process.stdout
        if pipe is None or answers is None:
            raise EOFError
        for part in (request, content):
            pipe.write(SIZE.pack(len(part)))
            pipe.write(part)
        await pipe.drain()
        (size,) = SIZE.unpack(await answers.readexactly(SIZE.size))
        if size > ANSWER_MOST:
            raise ValueError("the answer is too large")
        found = json.loads(await answers.readexactly(size))
        if not isinstance(found, dict):
            raise ValueError("the answer is no table")
        return found

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _environment() -> dict[str, str]:
    """What the process needs of ours: where modules are, and no more."""
    kept = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "HOME")
    return {name: os.environ[name] for name in kept if name in os.environ}
