"""Mends messages in which half of a character stands alone, which the SDK would leave unanswered.

A client that cuts a text after so many UTF-16 units may cut a character in two. JavaScript then
writes `\\ud83d`, which is JSON; the SDK's parser takes it for none, and drops the message.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import mcp_types as types
from mcp.shared.message import SessionMessage

from kbtui.assistant.calls import SURROGATES

if TYPE_CHECKING:
    from typing import Any, Self

    from mcp.shared._stream_protocols import ReadStream

    Item = SessionMessage | Exception


def mended(item: Item) -> Item:
    """The message that stands in a line that could not be read, the item itself where none does."""
    errors = getattr(item, "errors", None)
    line = errors()[0]["input"] if errors else None
    if not isinstance(line, str) or "\\u" not in line:
        return item
    try:
        # Whole characters come out of this as such; halves are left as they are.
        whole = json.dumps(json.loads(line), ensure_ascii=False)
        message = types.jsonrpc_message_adapter.validate_json(
            SURROGATES.sub("\ufffd", whole), by_name=False
        )
    except (ValueError, RecursionError):
        return item
    return SessionMessage(message)


class Mended:
    """A transport's stream of messages, each mended."""

    def __init__(self, inner: ReadStream[Item]) -> None:
        self._inner = inner

    async def receive(self) -> Item:
        """The next message; raises `anyio.EndOfStream`."""
        return mended(await self._inner.receive())

    async def aclose(self) -> None:
        """End it."""
        await self._inner.aclose()

    def __aiter__(self) -> Mended:
        return self

    async def __anext__(self) -> Item:
        return mended(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._inner.__aexit__(*error)
