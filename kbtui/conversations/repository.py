"""The list of conversations: from metadata and file states, and no events unless asked."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from kbtui.conversations.formats.jp import (
    ConversationLocation,
    describe,
    find_places,
    with_counts,
)
from kbtui.conversations.models import ConversationInfo
from kbtui.errors import NothingFound
from kbtui.workspace import Workspace


def list_conversations(
    workspace: Workspace,
    archived: bool | None = None,
    *,
    counts: bool = True,
    known: Mapping[str, ConversationInfo] | None = None,
) -> list[ConversationInfo]:
    """Live and archived conversations (None), or one of the two; newest activity first.

    Those that cannot be read are there with their `problem`. With `counts`
    every `events.json` is parsed for `events_count` and `last_event_at`;
    without, neither is known and the order is that of `last_activated_at`.
    `known` are entries by id of an earlier call: those of which no file has
    changed are given back as they are.
    """
    places, _ = find_places(workspace)
    infos = [
        _known(place, known) or describe(place)
        for place in places
        if archived is None or place.archived is archived
    ]
    if counts:
        infos = [with_counts(info) for info in infos]
    return sorted(infos, key=_newest, reverse=True)


def conversation_signatures(workspace: Workspace) -> dict[str, str]:
    """The signature of every conversation by id, from file states alone: nothing is read."""
    return {place.id: place.signature for place in find_places(workspace)[0]}


def find_conversation(
    workspace: Workspace,
    id: str,  # noqa: A002
    *,
    counts: bool = False,
) -> ConversationInfo:
    """The conversation with this id, live or archived; raises `NothingFound`.

    `counts` as in `list_conversations`; `load_conversation` knows them anyway.
    """
    places, _ = find_places(workspace, id)
    if places:
        info = describe(places[0])
        return with_counts(info) if counts else info
    raise ConversationNotFound(workspace, id)


class ConversationNotFound(NothingFound):
    """There is no conversation with this id; `nearest` is the id most like it, if any is."""

    def __init__(self, workspace: Workspace, id: str) -> None:  # noqa: A002
        from difflib import get_close_matches

        known = [place.id for place in find_places(workspace)[0]]
        near = get_close_matches(id, known, n=1, cutoff=0.78)
        self.nearest = near[0] if near else None
        hint = f"did you mean {self.nearest}?" if near else "`kbtui conversation ls` lists them"
        super().__init__(f"there is no conversation {id}", where=str(workspace.root), hint=hint)


def strays(workspace: Workspace) -> list[tuple[Path, str]]:
    """Directories among the conversations that are none, each with the reason."""
    return [(Path(path), reason) for path, reason in find_places(workspace)[1]]


def activity(info: ConversationInfo) -> datetime:
    """When something last happened: the last element's time, else what else is known."""
    return info.last_event_at or info.created_at


def _newest(info: ConversationInfo) -> tuple[datetime, datetime, str]:
    return (
        info.last_event_at or info.last_activated_at or info.created_at,
        info.created_at,
        info.id,
    )


def _known(
    place: ConversationLocation, known: Mapping[str, ConversationInfo] | None
) -> ConversationInfo | None:
    """The entry of an earlier call, while it holds; what was wrong may have become right."""
    info = known.get(place.id) if known else None
    good = info is not None and info.problem is None and info.signature == place.signature
    return info if good else None
