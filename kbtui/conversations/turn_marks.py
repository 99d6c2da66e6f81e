"""Sets marks on turns and passages (decided, rejected, superseded), and finds where a marked text is now.

A mark stores its text, and the id and the time of the event that contains this text. So the mark stays
with its text if turns are added or if the conversation is rewritten, and never moves to another text.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from kbtui.errors import NothingFound, UsageError
from kbtui.refs import make_conversation_ref, parse_conversation_ref
from kbtui.text import replace_surrogates, sanitize_to_one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from kbtui.conversations.models import Conversation, ConversationEvent, Turn
    from kbtui.refs import Ref

if TYPE_CHECKING:
    from typing import TypedDict

    class MarkFactsJson(TypedDict):
        """A mark in the JSON of search hits and turns. `label` is the whole mark on one line, with its call."""

        id: str
        state: MarkState
        label: str
        call: int | None
        note: str
        superseded_by: str | None
        passage: str | None


MarkState = Literal["decided", "rejected", "superseded"]
MARK_STATES: tuple[MarkState, ...] = get_args(MarkState)
MARK_SIGNS: dict[MarkState, str] = {"decided": "✓", "rejected": "✗", "superseded": "↷"}
MAX_PASSAGE_CHARACTERS, MAX_NOTE_CHARACTERS = 10_000, 2_000
"""Longer passages and notes are cut to this many characters."""
MAX_SHORT_CHARACTERS = 400
"""In answers to assistants, texts of a mark are cut to this many characters."""
_ID_CHARACTERS = 10
_LARGEST_NUMBER = 10**9
"""The largest number of a turn or call that an exported mark may have."""
_LATEST_TIME = 253402300799
"""The last second of the year 9999 in Unix time, the latest that `datetime` supports."""


class MarkAnchor(NamedTuple):
    """Identifies the event that a mark is attached to.

    * `digest` is a hash of the event's content. It is "" for a mark on a passage, because any
      event that contains the passage may match.
    * `event_id` is the id that JP writes since RFD 097, and `timestamp` the event's time in ISO 8601.
    * `history` is a hash of how all turns up to the event's turn begin. It distinguishes equal
      events that have neither id nor time.
    """

    digest: str
    event_id: str | None
    timestamp: str | None
    history: str


class Mark(NamedTuple):
    """A person's mark on a turn, a tool call or a passage.

    `turn` and `call` are the numbers of the turn and the call when the mark was set. `superseded_by` is a
    reference. `title` was the conversation's title. Times are in Unix seconds.
    """

    id: str
    conversation: str
    turn: int
    call: int | None
    passage: str | None
    state: MarkState
    note: str
    superseded_by: str | None
    title: str
    created: float
    changed: float
    anchor: MarkAnchor

    def as_json(self) -> dict[str, object]:
        """Return all fields as JSON, from which `from_json` makes the same mark."""
        return self._asdict() | {"anchor": self.anchor._asdict()}

    @classmethod
    def from_json(cls, shape: Any) -> Mark:
        """Parse the JSON of `as_json`. Raises `ValueError` if this is not the JSON of a mark."""
        if not isinstance(shape, dict) or not isinstance(shape.get("anchor"), dict):
            raise ValueError("a mark is an object with an anchor")
        try:
            values: Any = {name: shape[name] for name in cls._fields}
            values["anchor"] = MarkAnchor(*(shape["anchor"][name] for name in MarkAnchor._fields))
        except KeyError as error:
            raise ValueError(f"a mark lacks the key {error}") from None
        mark = cls(**values)
        texts = (mark.id, mark.conversation, mark.note, mark.title, *mark.anchor[::3])
        optional = (mark.passage, mark.superseded_by, *mark.anchor[1:3])
        is_valid = (
            all(type(text) is str for text in texts)
            and all(text is None or type(text) is str for text in optional)
            and all(type(time) in (int, float) for time in (mark.created, mark.changed))
            and type(mark.turn) is int
            and (mark.call is None or type(mark.call) is int)
            and mark.state in MARK_STATES
        )
        if not is_valid:
            raise ValueError(f"the mark {mark.id!r} has a value of the wrong type")
        return mark

    @property
    def label(self) -> str:
        """The mark on one line, safe for a terminal: the state, the passage, the reference and the note."""
        passage = sanitize_to_one_line(self.passage or "")
        passage = f" “{passage[:60]}{'…' if len(passage) > 60 else ''}”" if passage else ""
        by = f" by {sanitize_to_one_line(self.superseded_by)}" if self.superseded_by else ""
        note = f": {sanitize_to_one_line(self.note)}" if self.note else ""
        return f"{self.state}{passage}{by}{note}"

    def make_facts(self, *, is_short: bool = False) -> MarkFactsJson:
        """Return the mark as JSON for search hits and turns. If `is_short` is true, cut its texts."""
        longest = MAX_SHORT_CHARACTERS if is_short else None
        call = f"call {self.call} " if self.call and self.passage is None else ""
        return {
            "id": self.id,
            "state": self.state,
            "label": f"{call}{self.label}"[:longest],
            "call": self.call,
            "note": self.note[:longest],
            "superseded_by": self.superseded_by,
            "passage": self.passage[:longest] if self.passage else None,
        }


def parse_exported_mark(shape: Any) -> Mark:
    """Parse a mark of an exported file, which anyone may have edited.

    Raises `ValueError` for all that `Mark.from_json` refuses, and for values that no mark can have.
    """
    mark = Mark.from_json(shape)
    exported = json.dumps(mark.as_json(), ensure_ascii=False)
    if replace_surrogates(exported) != exported:
        raise ValueError("a mark contains half of a character (a lone surrogate)")
    by_state = mark.superseded_by is None or mark.state == "superseded"
    checks = {
        "id": re.fullmatch(rf"[0-9a-f]{{{_ID_CHARACTERS}}}", mark.id) is not None,
        "conversation": _is_whole_conversation_id(mark.conversation),
        "turn": 1 <= mark.turn <= _LARGEST_NUMBER,
        "call": mark.call is None or 1 <= mark.call <= _LARGEST_NUMBER,
        "superseded_by": by_state and mark.superseded_by != "",
        # NaN, which Python reads in JSON, is in no range.
        "created": 0 <= mark.created <= _LATEST_TIME,
        "changed": 0 <= mark.changed <= _LATEST_TIME,
    }
    if wrong := [name for name, is_valid in checks.items() if not is_valid]:
        raise ValueError(f"the mark {mark.id[:40]!r} has an invalid {wrong[0]}")
    return mark


def _is_whole_conversation_id(text: str) -> bool:
    try:
        return parse_conversation_ref(text) == make_conversation_ref(text)
    except UsageError:
        return False


class MarkPlace(NamedTuple):
    """Where a marked text is now: its turn, and its tool call if it is in one."""

    turn: int
    call: int | None = None


def make_mark(
    conversation: Conversation,
    ref: Ref,
    state: MarkState,
    *,
    note: str = "",
    superseded_by: str | None = None,
    passage: str | None = None,
    now: float,
) -> Mark:
    """Make a mark on the turn or call of a reference, or on a passage of it.

    Raises `UsageError` if there is nothing to mark, and `NothingFound` if the turn does not exist or
    does not contain the passage.
    """
    if ref.turn is None:
        raise UsageError("only a turn can be marked", where=str(ref), hint=f"write {ref}:TURN")
    turn = conversation.find_turn(ref.turn)
    if turn is None:
        raise NothingFound(f"{ref.conversation} has no turn {ref.turn}")
    passage = _join_words(passage)[:MAX_PASSAGE_CHARACTERS] if passage else None
    if passage:
        inside = (one for one in turn.events if ref.call in (None, one.call))
        event = next((one for one in inside if passage in _join_words(one.text)), None)
        if event is None:
            hint = "copy a part of one message, result or reasoning"
            raise NothingFound(f"{ref} does not contain this passage", hint=hint)
    else:
        passage, event = None, _find_event_to_mark(turn, ref.call)
        if event is None:
            raise UsageError(f"{ref} has no text to mark", where=str(ref))
    openings = _hash_openings(conversation.turns[: turn.number])
    anchor = MarkAnchor(
        "" if passage else _hash_event(event),
        event.event_id,
        event.timestamp.isoformat() if event.timestamp else None,
        list(openings)[-1],
    )
    identity = anchor.timestamp or anchor.event_id or anchor.history
    parts = (conversation.info.id, anchor.digest, passage or "", identity)
    mark_id = sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:_ID_CHARACTERS]
    by = superseded_by if state == "superseded" else None
    call = ref.call if passage is None else event.call
    title = conversation.info.title or ""
    return Mark(
        mark_id, conversation.info.id, turn.number, call, passage, state, note[:MAX_NOTE_CHARACTERS], by, title, now, now, anchor
    )  # fmt: skip


def find_mark_places(conversation: Conversation, marks: Iterable[Mark]) -> dict[str, MarkPlace]:
    """Map the id of each mark to the current place of its text. Marks without a place are left out."""
    marks = list(marks)
    histories = list(_hash_openings(conversation.turns)) if marks else []
    found = {}
    for mark in marks:
        candidates = _find_candidates(conversation.turns, mark)
        if place := _choose_candidate(list(candidates), mark, histories):
            found[mark.id] = place
    return found


def _find_candidates(turns: Sequence[Turn], mark: Mark) -> Iterator[tuple[Turn, ConversationEvent]]:
    """Yield the events that have the content of a mark, each with its turn."""
    for turn in turns:
        if mark.passage is not None:
            events = [one for one in turn.events if mark.passage in _join_words(one.text)]
        elif mark.call is not None:
            events = [one for one in turn.events if one.arguments is not None]
        else:
            event = _find_event_to_mark(turn, None)
            events = [event] if event else []
        for event in events:
            if mark.passage is not None or _hash_event(event) == mark.anchor.digest:
                yield turn, event


def _choose_candidate(
    candidates: list[tuple[Turn, ConversationEvent]], mark: Mark, histories: list[str]
) -> MarkPlace | None:
    """Return the place of the marked event, or None if it is not clear which candidate this is."""
    anchor = mark.anchor
    # An event with another id or time is another event, even if its text is the same.
    if anchor.event_id is not None:
        same = [one for one in candidates if one[1].event_id == anchor.event_id]
        candidates = same or [one for one in candidates if one[1].event_id is None]
    if anchor.timestamp is not None:
        times = {id(event): event.timestamp for _, event in candidates}
        same = [
            one
            for one in candidates
            if (time := times[id(one[1])]) and time.isoformat() == anchor.timestamp
        ]
        candidates = same or [one for one in candidates if times[id(one[1])] is None]
    places = dict.fromkeys(
        MarkPlace(turn.number, None if mark.call is None else event.call)
        for turn, event in candidates
    )
    if len(places) > 1:
        places = {place: None for place in places if histories[place.turn - 1] == anchor.history}
    if len(places) > 1:
        places = {place: None for place in places if place.call == mark.call}
    return next(iter(places)) if len(places) == 1 else None


def _find_event_to_mark(turn: Turn, call: int | None) -> ConversationEvent | None:
    """Return the event to which a mark on a turn or call is attached.

    For a turn, this is its request, else its first event with a text or values.
    """
    if call is not None:
        calls = (one for one in turn.events if one.call == call and one.arguments is not None)
        return next(calls, None)
    requests = (one for one in turn.events if one.kind == "chat_request" and one.text.strip())
    texts = (one for one in turn.events if one.text.strip() or one.values)
    return next(requests, None) or next(texts, None)


def _hash_event(event: ConversationEvent) -> str:
    """Return a hash of an event's content. The order of keys in its values does not matter."""
    values = json.dumps(event.values, sort_keys=True, default=str) if event.values else ""
    content = "\0".join((event.kind, event.name or "", event.text, values))
    return sha256(content.encode("utf-8", "replace")).hexdigest()[:32]


def _hash_openings(turns: Iterable[Turn]) -> Iterator[str]:
    """Yield a hash for each turn. It covers one event of this turn and one of each earlier turn."""
    history = sha256()
    for turn in turns:
        event = _find_event_to_mark(turn, None)
        history.update((_hash_event(event) if event else "-").encode())
        yield history.hexdigest()[:32]


def _join_words(text: str) -> str:
    """Return a text with single spaces as its only white space, so that wrapped lines compare equal."""
    return " ".join(text.split())


def make_mark_ref(mark: Mark, place: MarkPlace | None) -> str:
    """Return the current reference of the marked turn or call, or the old one if its text is gone."""
    turn, call = place or (mark.turn, mark.call)
    return str(make_conversation_ref(mark.conversation, turn, call))
