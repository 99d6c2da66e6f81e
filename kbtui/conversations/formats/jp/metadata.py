"""A conversation's entry in a list: from its metadata, the state of its files and its last event."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from kbtui.conversations.formats.jp.json_reader import (
    read_events,
    read_file,
    read_object,
    read_tail,
)
from kbtui.conversations.formats.jp.locations import (
    BASE_CONFIG,
    EVENTS,
    METADATA,
    ConversationLocation,
)
from kbtui.conversations.models import ConversationInfo
from kbtui.dates import parse_timestamp
from kbtui.errors import UsageError, WorkspaceError
from kbtui.refs import parse_conversation_id

_TAIL = 16 << 10
_LARGEST_METADATA = 1 << 20


def with_activity(info: ConversationInfo) -> ConversationInfo:
    """The entry with `last_event_at`, for which the end of the file is enough."""
    if info.events_path is None or info.last_event_at is not None:
        return info
    try:
        element = _last_element(str(info.events_path))
    except WorkspaceError as error:
        return _blamed(info, f"{EVENTS}: {error.message}")
    if element is None:
        return with_counts(info)
    return info.counted(info.events_count, parse_timestamp(element.get("timestamp")))


def with_counts(info: ConversationInfo) -> ConversationInfo:
    """The entry with `events_count` and `last_event_at`, for which the file is parsed."""
    if info.events_path is None or info.events_count is not None:
        return info
    problems: list[str] = []
    count, last = 0, None
    try:
        for batch in read_events(str(info.events_path), problems):
            count += len(batch)
            last = batch[-1] if batch else last
    except WorkspaceError as error:
        return _blamed(info, f"{EVENTS}: {error.message}")
    time = parse_timestamp(last.get("timestamp")) if isinstance(last, dict) else None
    info = info.counted(count, time)
    return _blamed(info, f"{EVENTS}: {'; '.join(problems)}") if problems else info


def examined(info: ConversationInfo) -> ConversationInfo:
    """The entry with counts, and in `problem` all that is wrong with the conversation.

    It is decoded for that: a wrong type or a missing time shows nowhere else.
    """
    from kbtui.conversations.formats.jp.loader import load_conversation, problems_of

    conversation = load_conversation(info)
    return replace(conversation.info, problem=problems_of(conversation))


def read_title(place: ConversationLocation) -> str | None:
    """The title in the metadata; None where there is none or it cannot be read."""
    if METADATA not in place.metadata.times:
        return None
    try:
        data = read_file(f"{place.metadata.path}/{METADATA}", _LARGEST_METADATA)
        return _title(read_object(data, []))
    except (WorkspaceError, ValueError):
        return None


def _title(metadata: dict[str, Any]) -> str | None:
    title = metadata.get("title")
    return title if isinstance(title, str) and title.strip() else None


def _blamed(info: ConversationInfo, problem: str) -> ConversationInfo:
    return replace(info, problem=f"{info.problem}; {problem}" if info.problem else problem)


def describe(place: ConversationLocation) -> ConversationInfo:
    """The list's entry for a place, from metadata and file states: no events."""
    stream, source = place.stream, place.metadata
    problems = [text for text in (place.clash, stream.failure) if text]
    metadata: dict[str, Any] = {}
    if METADATA in source.times:
        found: list[str] = []
        try:
            data = read_file(f"{source.path}/{METADATA}", _LARGEST_METADATA)
            metadata = read_object(data, found)
            found += _wrong_values(metadata)
        except (WorkspaceError, ValueError) as error:
            found.append(getattr(error, "message", str(error)))
        problems += [f"{METADATA}: {problem}" for problem in found]
    elif source.failure is None:
        problems.append(f"there is no {METADATA}")
    if EVENTS not in stream.times and stream.failure is None:
        old = os.path.exists(f"{stream.path}/messages.json")  # noqa: PTH110
        only = ", only messages.json of JP before December 2025" if old else ""
        problems.append(f"there is no {EVENTS}{only}")
    directory = Path(stream.path)
    newest = max((time for copy in place.copies for time in copy.times.values()), default=None)
    return ConversationInfo(
        id=place.id,
        title=_title(metadata),
        directory=directory,
        events_path=directory / EVENTS if EVENTS in stream.times else None,
        base_config_path=directory / BASE_CONFIG if BASE_CONFIG in stream.times else None,
        archived=place.archived,
        presence=place.presence,
        created_at=place.created_at,
        updated_at=None if newest is None else datetime.fromtimestamp(newest / 1e9, UTC),
        last_activated_at=parse_timestamp(metadata.get("last_activated_at")),
        pinned_at=parse_timestamp(metadata.get("pinned_at")),
        archived_at=parse_timestamp(metadata.get("archived_at")),
        expires_at=parse_timestamp(metadata.get("expires_at")),
        labels=_labels(metadata.get("labels")),
        size=sum(stream.sizes.values()),
        signature=place.signature,
        problem="; ".join(problems) or None,
        parent=stream.parent or _parent(metadata.get("parent_id")),
    )


def _wrong_values(metadata: dict[str, Any]) -> list[str]:
    """The values of the metadata that JP would not read, or that it misses."""
    wrong = []
    if not isinstance(metadata.get("title"), str | None):
        wrong.append("its title is no text")
    if "last_activated_at" not in metadata:
        wrong.append("it has no last_activated_at")
    wrong += [
        f"its {name} is no time"
        for name in ("last_activated_at", "pinned_at", "archived_at", "expires_at")
        if metadata.get(name) is not None and parse_timestamp(metadata[name]) is None
    ]
    labels = metadata.get("labels")
    if labels is not None and _labels(labels) != labels:
        wrong.append("its labels are not all texts")
    return wrong


def _parent(value: Any) -> str | None:
    """The conversation that the metadata name as the parent."""
    try:
        return parse_conversation_id(str(value)) if isinstance(value, str | int) else None
    except UsageError:
        return None


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {key: text for key, text in value.items() if isinstance(text, str)}


def _last_element(path: str) -> dict[str, Any] | None:
    """The last element of an array written as JP writes it, None where it takes more to know."""
    tail = read_tail(path, _TAIL).rstrip()
    start = tail.rfind(b"\n  {")
    if start < 0 or not tail.endswith(b"\n  }\n]"):
        return None
    try:
        element = orjson.loads(tail[start:-1])
    except orjson.JSONDecodeError:
        return None
    return element if isinstance(element, dict) else None
