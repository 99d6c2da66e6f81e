"""The MCP server over stdio, based on the official SDK."""

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

from kbtui.assistant.assistant_tools import (
    DATA_WARNING,
    SURROGATES,
    UnknownToolError,
    answer_tool_call,
    list_offered_tools,
    should_mask_secrets,
)
from kbtui.secret_detection import mask_secrets, mask_secrets_in_json
from kbtui.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server.context import ServerRequestContext
    from mcp.shared._stream_protocols import ReadStream, WriteStream

    from kbtui.library import Library

    Item = SessionMessage | Exception


async def _forward_valid_messages(
    reading: ReadStream[Item],
    checked: MemoryObjectSendStream[Item],
    output: WriteStream[SessionMessage],
) -> None:
    """Forward the client's valid messages, with unpaired surrogates replaced.

    An invalid line, which the SDK would drop, is answered with an error.
    """
    with contextlib.suppress(anyio.BrokenResourceError):
        async with reading, checked:
            async for item in reading:
                item = reparse_line_with_surrogates(item)
                refusal = make_invalid_line_response(item)
                if refusal is None:
                    await checked.send(item)
                    continue
                # Wait only briefly: a client that has closed the input may not read the error.
                with (
                    anyio.move_on_after(FINAL_READ_SECONDS),
                    contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError),
                ):
                    await output.send(SessionMessage(refusal))


async def _forward_messages_to_client_with_masked_errors(
    messages: MemoryObjectReceiveStream[SessionMessage], writing: WriteStream[SessionMessage]
) -> None:
    """Forward messages to the client. Mask secrets in protocol errors, because these errors quote requests."""
    async with messages, writing:
        async for item in messages:
            message = item.message
            if isinstance(message, types.JSONRPCError):
                error = message.error
                changes = {"message": mask_secrets(error.message)}
                if "data" in error.model_fields_set:
                    changes["data"] = mask_secrets_in_json(error.data)
                masked = message.model_copy(update={"error": error.model_copy(update=changes)})
                item = SessionMessage(masked, item.metadata)
            await writing.send(item)


def reparse_line_with_surrogates(item: Item) -> Item:
    """Parse a line that the MCP SDK refused because of unpaired surrogates; return its message.

    In the message, U+FFFD replaces the surrogates. Any other `item` is returned unchanged.
    """
    errors = getattr(item, "errors", None)
    line = errors()[0]["input"] if errors else None
    if not isinstance(line, str) or "\\u" not in line:
        return item
    try:
        # Loading joins pairs of surrogates. The unpaired ones that remain are replaced next.
        whole = json.dumps(json.loads(line), ensure_ascii=False)
        message = types.jsonrpc_message_adapter.validate_json(
            SURROGATES.sub("\ufffd", whole), by_name=False
        )
    except (ValueError, RecursionError):
        return item
    return SessionMessage(message)


def make_invalid_line_response(item: Item) -> types.JSONRPCError | None:
    """Return the error response to a line that is not a valid message, or None if it needs no response."""
    errors = getattr(item, "errors", None)
    if errors is None:
        return None
    number: Any = None
    code, text = types.INVALID_REQUEST, "the line is not a JSON-RPC message"
    found = errors()
    if found[0]["type"] == "json_invalid":
        line = found[0]["input"]
        if isinstance(line, str) and not line.strip():
            return None
        code, text = types.PARSE_ERROR, "the line is not valid JSON"
    # The SDK checks a line against every kind of message and reports the fields that each kind
    # lacks. Each such report contains the whole message.
    whole = next((fault["input"] for fault in found if fault["type"] == "missing"), None)
    if isinstance(whole, dict):
        number = whole.get("id")
        if (number is None and "method" in whole) or "result" in whole or "error" in whole:
            return None  # notifications and responses need no response
        if isinstance(number, bool) or not isinstance(number, (int, str)):
            number = None
        if isinstance(whole.get("method"), str) and not isinstance(whole.get("params", {}), dict):
            code, text = types.INVALID_PARAMS, "`params` must be an object"
    error = types.ErrorData(code=code, message=text)
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=error)


T = TypeVar("T")

MAX_CONCURRENT_CALLS = 8
"""At most this many tool calls run at the same time, each in a thread. Additional calls wait."""
IDLE_SECONDS = 60.0
"""The server closes the index and disconnects from the engine this many seconds after the last call."""
CLOSE_SECONDS = 2.0
FINAL_READ_SECONDS = 5.0
"""After the input has ended, the client has this many seconds to read the last answers."""

INSTRUCTIONS = (
    "What this workspace knows (topics of subject files) and what was said in its past "
    f"conversations. Look here before asking what was decided or discussed. {DATA_WARNING}"
)


def serve_mcp(library: Library, current: str | None = None) -> int:
    """Serve the tools over MCP until the input ends; return the exit code.

    `current` is the id of the calling conversation, or None if it is unknown. Raises `ConfigError`
    if a setting is invalid.
    """
    masked = should_mask_secrets(library.settings, "mcp")
    calls = _ThreadedMcpToolProvider(library, current, masked=masked)
    server = Server(
        "kbtui",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=calls.list_tools,
        on_call_tool=calls.call_tool,
        on_subscriptions_listen=ListenHandler(calls.changes),
    )
    anyio.run(partial(_serve_stdio, masked=masked), server, library)
    if calls.running:
        _exit_without_waiting(library, 0)
    library.close()
    return 0


async def _serve_stdio(server: Server[Any], library: Library, *, masked: bool) -> None:
    """Serve over stdin and stdout until the input ends or a signal arrives."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # The SDK reads stdin in a thread that cannot be interrupted.
        loop.add_signal_handler(number, _exit_without_waiting, library, 128 + number)
    with contextlib.suppress(OSError):
        threading.Thread(
            target=_exit_when_output_closes, args=(os.dup(1), library), daemon=True
        ).start()
    try:
        async with stdio_server() as (reading, writing), anyio.create_task_group() as tasks:
            options = server.create_initialization_options(NotificationOptions(tools_changed=True))
            output: WriteStream[SessionMessage] = writing
            if masked:
                output, messages = anyio.create_memory_object_stream[SessionMessage]()
                tasks.start_soon(_forward_messages_to_client_with_masked_errors, messages, writing)
            checked, requests = anyio.create_memory_object_stream["Item"]()
            tasks.start_soon(_forward_valid_messages, reading, checked, output)
            await server.run(requests, output, options)
            # The input has ended. If the client no longer reads the output, writing would block forever.
            loop.call_later(FINAL_READ_SECONDS, _exit_without_waiting, library, 0)
    except* (BrokenPipeError, ConnectionError):
        # The client no longer reads the output, so the server cannot report an error to the client.
        pass


def _exit_when_output_closes(output: int, library: Library) -> None:
    """Wait until the client closes the output, then exit, even if the input is still open."""
    poll = select.poll()
    poll.register(output, 0)
    poll.poll()
    _exit_without_waiting(library, 0)


def _exit_without_waiting(library: Library, code: int) -> NoReturn:
    """Exit without waiting for running calls.

    Closes the library first, which may take at most `CLOSE_SECONDS`.
    """
    closing = threading.Thread(target=library.close, daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    # A normal exit would stop the threads of the calls in native code.
    os._exit(code)


class _ThreadedMcpToolProvider:
    """Lists and runs the tools for the MCP server, each request in a thread of its own."""

    def __init__(self, library: Library, current: str | None, *, masked: bool) -> None:
        self._library, self._current, self._masked = library, current, masked
        self._call_slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._list_slots = asyncio.Semaphore(1)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._announced_tools: list[types.Tool] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.changes = InMemorySubscriptionBus()
        self.running = 0

    async def list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Return the tools that are available now. The description of `learn` lists the topics."""
        self._announced_tools = await self._run_in_thread(self._list_mcp_tools, self._list_slots)
        return types.ListToolsResult(tools=self._announced_tools)

    async def call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Answer a tool call. Only a call to an unknown tool is answered with a protocol error."""
        call = params.name, params.arguments or {}, self._library, self._current
        answer_call = partial(answer_tool_call, *call, masked=self._masked)
        try:
            reply = await self._run_in_thread(answer_call, self._call_slots)
        except UnknownToolError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        task = asyncio.ensure_future(self._announce_tool_changes(context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        text = types.TextContent(text=reply.text)
        return types.CallToolResult(content=[text], is_error=reply.is_error)

    async def _announce_tool_changes(self, context: ServerRequestContext[Any]) -> None:
        """Notify the client if the tools have changed since the client listed them.

        The tools are checked after each call and not periodically, so that an idle server reads no
        files.
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
            # Clients with protocol versions before 2026-07-28 need this notification. The SDK does
            # not send it to newer clients.
            await context.session.send_tool_list_changed()

    def _list_mcp_tools(self) -> list[types.Tool]:
        hints = types.ToolAnnotations(
            read_only_hint=True, idempotent_hint=True, open_world_hint=False
        )
        return [
            types.Tool(
                name=tool.name,
                description=mask_secrets(tool.description) if self._masked else tool.description,
                input_schema=dict(tool.make_arguments_schema()),
                annotations=hints,
            )
            for tool in list_offered_tools(self._library.load_knowledge())
        ]

    async def _run_in_thread(self, work: Callable[[], T], slots: asyncio.Semaphore) -> T:
        """Run `work` in a thread that occupies one of the `slots`.

        If the request is cancelled, the slot becomes free only when `work` ends.
        """
        loop = asyncio.get_running_loop()
        await slots.acquire()
        self.running += 1
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        done: asyncio.Future[T] = loop.create_future()

        def deliver_call_outcome(set_outcome: Callable[[], None]) -> None:
            self.running -= 1
            slots.release()
            if not self.running:
                self._idle_timer = loop.call_later(IDLE_SECONDS, self._library.close)
            if not done.cancelled():
                set_outcome()

        def run_work_and_deliver_outcome() -> None:
            set_outcome: Callable[[], None]
            try:
                set_outcome = partial(done.set_result, work())
            except BaseException as error:
                set_outcome = partial(done.set_exception, error)
            with contextlib.suppress(RuntimeError):
                # If the event loop is closed, nobody is waiting for the result.
                loop.call_soon_threadsafe(deliver_call_outcome, set_outcome)

        threading.Thread(target=run_work_and_deliver_outcome, name="call", daemon=True).start()
        return await done
