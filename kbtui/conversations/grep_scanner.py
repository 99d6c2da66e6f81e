"""Finding the events of a conversation that may match, without making events of its elements.

What is not as JP writes it is `Unexpected`: then the events are made and searched. Results are
looked at as the bytes that base64 gives, and all arguments of a batch as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from kbtui.conversations.formats.jp.base64_fields import (
    content_behind,
    decode_bytes,
    decode_value,
    is_text,
    pretty,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.conversations.grep_prefilter import Prefilter


class Unexpected(Exception):
    """An element is not as JP writes it, or continues the one before."""


class GrepText(NamedTuple):
    """What is searched of one event that may match; `time` is its timestamp as it is written."""

    turn: int
    scope: str
    time: Any
    text: str


def scan(
    batches: Iterable[list[Any]], sieve: Prefilter, scopes: frozenset[str], whole: bool = True
) -> tuple[list[GrepText], Any]:
    """The pieces that may match, in their order, and the last element.

    Raises `Unexpected`. The texts are those that `events.Builder` and `grep.searched_text` give;
    unless they are to be `whole`, lines without a match may be missing at their ends.
    """
    scanner = _Scanner(sieve, scopes, whole)
    try:
        for batch in batches:
            scanner.take(batch)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Unexpected from error
    return scanner.pieces, scanner.last


class _Scanner:
    def __init__(self, sieve: Prefilter, scopes: frozenset[str], whole: bool) -> None:
        self.pieces: list[GrepText] = []
        self.last: Any = None
        self._sieve = sieve
        self._scopes = scopes
        self._whole = whole
        self._turn = 0
        self._said = ""
        self._names: dict[str, bool] = {}

    def take(self, elements: list[Any]) -> None:
        """Look through the next elements."""
        calls: list[tuple[int, int, dict[str, Any]]] = []
        wants_calls = "tool-call" in self._scopes
        wants_results = "tool-result" in self._scopes
        decoded: list[Any] = []
        for element in elements:
            kind = element["type"]
            if kind == "tool_call_response":
                self._said = ""
                if wants_results:
                    self._result(element)
            elif kind == "tool_call_request":
                self._said = ""
                if wants_calls:
                    # Its place is kept until all are looked at together.
                    calls.append((len(self.pieces), self._turn or 1, element))
                    decoded.append(decode_value(_of(dict, element["arguments"])))
            elif kind == "chat_response":
                self._response(element)
            elif kind == "chat_request":
                self._said = ""
                if element.get("resources"):
                    # They are a part of what is searched.
                    raise Unexpected
                self._text("user", element, element["content"])
            elif kind == "inquiry_request":
                self._said = ""
                self._text("inquiry", element, element["question"]["text"])
            elif kind == "inquiry_response":
                self._said = ""
                if type(answer := element["answer"]) is str:
                    self._text("inquiry", element, answer)
            elif kind == "turn_start":
                self._said = ""
                self._turn += 1
                continue
            elif kind == "config_delta" or kind == "compaction":
                continue
            elif type(kind) is str:
                # Of a kind that is not known; before the first turn it is in no turn.
                if self._turn and "unknown" in self._scopes:
                    self._text("unknown", element, pretty(element))
                continue
            if not self._turn:
                # What comes before any marker is a turn of its own (jp-format 2.7).
                self._turn = 1
        self._calls(calls, decoded)
        if elements:
            self.last = elements[-1]

    def _keep(self, scope: str, element: dict[str, Any], text: str) -> None:
        self.pieces.append(GrepText(self._turn or 1, scope, element.get("timestamp"), text))

    def _text(self, scope: str, element: dict[str, Any], text: Any) -> None:
        if scope in self._scopes and self._sieve.may_text(_of(str, text)):
            self._keep(scope, element, text)

    def _response(self, element: dict[str, Any]) -> None:
        if "message" in element:
            said, text = "assistant", element["message"]
        elif "reasoning" in element:
            said, text = "reasoning", element["reasoning"]
        else:
            said, text = "", element["data"]
            if type(text) is not str and "structured" in self._scopes:
                text = orjson.dumps(text, option=orjson.OPT_INDENT_2).decode()
        # Pieces of one message, or of one thought, may hold a match together.
        if said and said == self._said:
            raise Unexpected
        self._said = said
        if said or "structured" in self._scopes:
            self._text(said or "structured", element, text)

    def _result(self, element: dict[str, Any]) -> None:
        encoded, sieve = element["content"], self._sieve
        data = decode_bytes(_of(str, encoded))
        if data is None:
            if sieve.may_text(encoded):
                self._keep("tool-result", element, encoded)
        elif sieve.may(data):
            self._keep("tool-result", element, content_behind(data, encoded))
        elif b" " not in data or (sieve.may_be_base64(encoded) and not is_text(data)):
            # One word may be encoded once more, and what is no text was never decoded.
            text = content_behind(data, encoded)
            if sieve.may_text(text):
                self._keep("tool-result", element, text)

    def _calls(self, calls: list[tuple[int, int, dict[str, Any]]], decoded: list[Any]) -> None:
        """Written as they are searched, only indented more, which no match can miss."""
        if not calls:
            return
        all_may = self._sieve.may(orjson.dumps(decoded, option=orjson.OPT_INDENT_2))
        added = 0
        for (place, turn, element), arguments in zip(calls, decoded, strict=True):
            name = element["name"]
            if name not in self._names:
                self._names[name] = self._sieve.may_text(_of(str, name))
            if not all_may and not self._names[name]:
                continue
            if all_may or self._whole:
                shown = pretty(arguments)
                text = f"{name}\n{shown}" if name else shown
            else:
                # Nothing in any arguments can match.
                text = name
            if self._names[name] or self._sieve.may_text(text):
                piece = GrepText(turn, "tool-call", element.get("timestamp"), text)
                self.pieces.insert(place + added, piece)
                added += 1


def _of(kind: type, value: Any) -> Any:
    """The value, when it is of this kind."""
    if type(value) is not kind:
        raise Unexpected
    return value
