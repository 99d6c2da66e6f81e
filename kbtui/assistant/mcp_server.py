"""The MCP server over stdio, on the official SDK."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from kbtui.assistant.tools import (
    DATA_WARNING,
    SURROGATES,
    ToolReply,
    UnknownTool,
    answer_tool_call,
    list_offered_tools,
    should_mask_secrets,
)
from kbtui.secrets import mask
from kbtui.version import __version__

if TYPE_CHECKING:
    from typing import Self

    from mcp.shared._stream_protocols import ReadStream

    Item = SessionMessage | Exception
    from collections.abc import Callable

    from mcp.server.context import ServerRequestContext

    from kbtui.library import Library


def repair_surrogates(item: Item) -> Item:
    """Parse a line again that the SDK refused for unpaired surrogates; other items are returned."""
    errors = getattr(item, "errors", None)
    line = errors()[0]["input"] if errors else None
    if not isinstance(line, str) or "\\u" not in line:
        return item
    try:
        # This joins the pairs of surrogates; the unpaired ones that remain are replaced below.
        whole = json.dumps(json.loads(line), ensure_ascii=False)
        message = types.jsonrpc_message_adapter.validate_json(
            SURROGATES.sub("\ufffd", whole), by_name=False
        )
    except (ValueError, RecursionError):
        return item
    return SessionMessage(message)


class SurrogateRepairStream:
    """A transport's stream of messages that repairs unpaired surrogates."""

    def __init__(self, inner: ReadStream[Item]) -> None:
        self._inner = inner

    async def receive(self) -> Item:
        """Return the next message; raises `anyio.EndOfStream`."""
        return repair_surrogates(await self._inner.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    def __aiter__(self) -> SurrogateRepairStream:
        return self

    async def __anext__(self) -> Item:
        return repair_surrogates(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._inner.__aexit__(*error)


T = TypeVar("T")

CONCURRENT_CALLS = 8
"""Calls that run at the same time; others wait, which limits the number of threads."""
IDLE_SECONDS = 60.0
"""After this time without calls the index is closed, and the engine may end."""
CLOSE_SECONDS = 2.0
UNREAD_SECONDS = 5.0
"""How long answers wait for the client to read them after the end of the input."""

INSTRUCTIONS = (
    "What this workspace knows (topics of subject files) and what was said in its past "
    f"conversations. Look here before asking what was decided or discussed. {DATA_WARNING}"
)


def serve(library: Library, current: str | None = None) -> int:
    """Serve until the input ends, and return the exit code.

    `current` is the id of the calling conversation, None if it is not known. Raises `ConfigError`
    for an invalid setting.
    """
    calls = _RequestHandler(library, current, masked=should_mask_secrets(library.settings, "mcp"))
    server = Server(
        "kbtui",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=calls.list_tools,
        on_call_tool=calls.call_tool,
        on_subscriptions_listen=ListenHandler(calls.changes),
    )
    anyio.run(_serve_stdio, server, library)
    if calls.running:
        _exit_without_waiting(library, 0)
    library.close()
    return 0


async def _serve_stdio(server: Server[Any], library: Library) -> None:
    """Serve until the end of the input or a signal."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # The SDK reads stdin in a thread that cannot be interrupted.
        loop.add_signal_handler(number, _exit_without_waiting, library, 128 + number)
    with contextlib.suppress(OSError):
        threading.Thread(
            target=_exit_when_output_closes, args=(os.dup(1), library), daemon=True
        ).start()
    try:
        async with stdio_server() as (reading, writing):
            options = server.create_initialization_options(NotificationOptions(tools_changed=True))
            await server.run(SurrogateRepairStream(reading), writing, options)
            # The input has ended. A client that no longer reads would block this process for ever.
            loop.call_later(UNREAD_SECONDS, _exit_without_waiting, library, 0)
    except* (BrokenPipeError, ConnectionError):
        # The client no longer reads, so that it cannot get an error.
        pass


def _exit_when_output_closes(output: int, library: Library) -> None:
    """Exit when the client closes the output, even if the input stays open."""
    poll = select.poll()
    poll.register(output, 0)
    poll.poll()
    _exit_without_waiting(library, 0)


def _exit_without_waiting(library: Library, code: int) -> NoReturn:
    """Exit without waiting for running calls.

    A normal exit would stop their threads in the middle of native code.
    """
    closing = threading.Thread(target=library.close, daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


class _RequestHandler:
    """Handles the requests of MCP, each in a thread, a limited number at a time."""

    def __init__(self, library: Library, current: str | None, *, masked: bool) -> None:
        self._library, self._current, self._masked = library, current, masked
        self._call_slots = asyncio.Semaphore(CONCURRENT_CALLS)
        self._list_slots = asyncio.Semaphore(1)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._announced_tools: list[types.Tool] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.changes = InMemorySubscriptionBus()
        self.running = 0

    async def list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Return the tools that are offered now; `learn` names the present topics."""
        self._announced_tools = await self._run_in_thread(self._list_mcp_tools, self._list_slots)
        return types.ListToolsResult(tools=self._announced_tools)

    async def call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Answer a call; only an unknown tool is a protocol error."""

        def run() -> ToolReply:
            return answer_tool_call(
                params.name,
                params.arguments or {},
                self._library,
                self._current,
                masked=self._masked,
            )

        try:
            reply = await self._run_in_thread(run, self._call_slots)
        except UnknownTool as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        task = asyncio.ensure_future(self._announce_tool_changes(context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return types.CallToolResult(
            content=[types.TextContent(text=reply.text)], is_error=reply.is_error
        )

    async def _announce_tool_changes(self, context: ServerRequestContext[Any]) -> None:
        """Notify the client if the tools differ from those that it has listed.

        This is checked after each call, so that an idle server reads no files.
        """
        known = self._announced_tools
        if known is None:
            return
        tools = await self._run_in_thread(self._list_mcp_tools, self._list_slots)
        if tools == known or self._announced_tools is not known:
            return
        self._announced_tools = tools
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self.changes.publish(ToolsListChanged())
            # For clients of protocol versions before 2026-07-28; the SDK drops it for others.
            await context.session.send_tool_list_changed()

    def _list_mcp_tools(self) -> list[types.Tool]:
        return [
            types.Tool(
                name=tool.name,
                description=mask(tool.description) if self._masked else tool.description,
                input_schema=tool.schema(),
                annotations=types.ToolAnnotations(
                    read_only_hint=True, idempotent_hint=True, open_world_hint=False
                ),
            )
            for tool in list_offered_tools(self._library.load_knowledge())
        ]

    async def _run_in_thread(self, work: Callable[[], T], slots: asyncio.Semaphore) -> T:
        """Run `work` in a thread; if cancelled it still finishes, and keeps its slot until then."""
        loop = asyncio.get_running_loop()
        await slots.acquire()
        self.running += 1
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        done: asyncio.Future[T] = loop.create_future()

        def finish(set_outcome: Callable[[], None]) -> None:
            self.running -= 1
            slots.release()
            if not self.running:
                self._idle_timer = loop.call_later(IDLE_SECONDS, self._library.close)
            if not done.cancelled():
                set_outcome()

        def run() -> None:
            set_outcome: Callable[[], None]
            try:
                set_outcome = partial(done.set_result, work())
            except BaseException as error:
                set_outcome = partial(done.set_exception, error)
            with contextlib.suppress(RuntimeError):
                # The loop is closed if nobody waits for the result.
                loop.call_soon_threadsafe(finish, set_outcome)

        threading.Thread(target=run, name="call", daemon=True).start()
        return await done
