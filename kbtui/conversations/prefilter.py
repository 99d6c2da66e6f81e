"""Whether a conversation can have a match, before anything is made of its elements.

Most conversations have none. Results are looked at as the bytes that base64
gives, without making text of them, and everything else as parsing left it.
Whatever is not as JP writes it means "it can": then the events are made and decide.
"""

import re
from typing import Any

import orjson

from kbtui.conversations.encoding import decode_bytes, decode_content, decode_value, is_text

_FOREIGN = re.compile("[^A-Za-z0-9+/=_-]")
_SAID = {
    "message": "assistant",
    "reasoning": "reasoning",
    "data": "structured",
}


class _Unexpected(Exception):
    """An element is not as JP writes it."""


class Prefilter:
    """Takes the elements of one conversation in batches, until one may match.

    `needle` is the pattern, in small letters when case does not count; then it is all ASCII.
    """

    def __init__(self, needle: str, ignore_case: bool, scopes: frozenset[str]) -> None:
        self._needle = needle
        self._bytes = needle.encode("utf-8", "replace")
        self._fold = ignore_case
        # What has a sign that base64 has not is never found in what was not decoded.
        self._decoded_only = bool(_FOREIGN.search(needle))
        self._calls = "tool-call" in scopes
        self._results = "tool-result" in scopes
        self._requests = "user" in scopes
        self._inquiries = "inquiry" in scopes
        self._scopes = scopes
        self._said = ""

    def can_match(self, elements: list[Any]) -> bool:
        """Whether the pattern may stand in these elements; never False where it does."""
        try:
            return self._any(elements)
        except (_Unexpected, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return True

    def _any(self, elements: list[Any]) -> bool:
        calls: list[tuple[str, Any]] = []
        for element in elements:
            kind = element["type"]
            if kind == "tool_call_response":
                self._said = ""
                if self._results and self._in_result(element["content"]):
                    return True
            elif kind == "tool_call_request":
                self._said = ""
                if self._calls:
                    calls.append((element["name"], decode_value(element["arguments"])))
            elif kind == "chat_response":
                if self._in_response(element):
                    return True
            elif kind == "chat_request":
                self._said = ""
                if self._requests and self._in_text(element["content"]):
                    return True
            elif kind == "inquiry_request" or kind == "inquiry_response":
                self._said = ""
                if self._inquiries and self._in_value(element):
                    return True
            elif kind == "turn_start":
                self._said = ""
        return bool(calls) and self._in_value(calls)

    def _in_response(self, element: dict[str, Any]) -> bool:
        said = next((key for key in _SAID if key in element), "")
        # Pieces of one message, or of one thought, may hold a match together.
        if said == self._said:
            raise _Unexpected
        self._said = said if said != "data" else ""
        if _SAID[said] not in self._scopes:
            return False
        return self._in_value(element[said]) if said == "data" else self._in_text(element[said])

    def _in_text(self, text: str) -> bool:
        if not self._fold:
            return self._needle in text
        if text.isascii():
            return self._needle in text.lower()
        # Small letters of other scripts take ten times as long, for nothing.
        return self._bytes in text.encode("utf-8", "replace").lower()

    def _in_result(self, encoded: str) -> bool:
        data = decode_bytes(encoded)
        if data is None:
            return self._in_text(encoded)
        if self._bytes in (data.lower() if self._fold else data):
            return True
        if b" " in data and (self._decoded_only or is_text(data)):
            return False
        # One word may be encoded once more, and what is no text was never decoded.
        return self._in_text(decode_content(encoded))

    def _in_value(self, value: Any) -> bool:
        """Written as it is searched, only indented more; strings also as they are."""
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2)
        if self._bytes in (text.lower() if self._fold else text):
            return True
        escaped = orjson.dumps(self._needle)[1:-1]
        return escaped != self._bytes and escaped in (text.lower() if self._fold else text)
