"""Marks turns and passages as decided, rejected or superseded, and finds marked texts again later.

A mark stores a hash of the marked text, and the id and the time of the event that contains the
text. Therefore the mark stays with its text if turns are added or if the conversation is rewritten.
If JP wrote an id for the event, the mark stays even if the text is edited;
`MarkedTurnOrCall.is_text_changed` is then true.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, get_args

from kbtui.dates import convert_unix_time_to_datetime
from kbtui.errors import NothingFound, UsageError
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import make_conversation_ref, parse_conversation_ref, parse_ref
from kbtui.terminal_text import replace_surrogates, sanitize_to_one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, NotRequired, TypedDict

    from kbtui.conversations.conversation_data_types import Conversation, ConversationEvent, Turn
    from kbtui.notices import Notice
    from kbtui.references import Ref

    class MarkFactsJson(TypedDict):
        """A mark in the JSON of search hits and turns.

        * `label` is a one-line description of the mark. If the mark is on a call, the label begins with
          the call's number.
        * `text_changed` is present, and true, if the marked text was edited after it was marked.
        * `superseded_by` is the current reference of the text that applies instead.
        """

        id: str
        state: MarkState
        label: str
        call: int | None
        note: str
        superseded_by: str | None
        passage: str | None
        text_changed: NotRequired[bool]


MarkState = Literal["decided", "rejected", "superseded"]
MarkProblem = Literal["", "conversation", "unreadable", "text"]
TargetProblem = Literal["", "changed", "gone"]
MARK_STATES: tuple[MarkState, ...] = get_args(MarkState)
MARK_SIGNS: dict[MarkState, str] = {"decided": "✓", "rejected": "✗", "superseded": "↷"}
MAX_PASSAGE_CHARACTERS, MAX_NOTE_CHARACTERS = 10_000, 2_000
"""The maximum lengths, in characters, of a passage and of a note."""
MAX_LISTED_CHARACTERS = 200
"""In a list of marks, each label is cut to this many columns of the terminal."""
MAX_SHORT_CHARACTERS = 400
"""In answers to assistants, each text of a mark is cut to this many characters."""
_MAX_KEPT_CHARACTERS = 500
"""A mark stores at most this many characters of the marked text, to show them if the text cannot be found."""
_TIMES = ("created", "changed")
_EMPHASIS = dict.fromkeys(map(ord, "*_`"))
_ID_CHARACTERS = 10
_LARGEST_NUMBER = 10**9
"""The largest turn or call number that an exported mark may contain."""
LATEST_TIME = 253402300799
"""The last second of the year 9999 in Unix time, the latest that `datetime` supports."""


class MarkedEventIdentity(NamedTuple):
    """Identifies the event that a mark is attached to.

    * `digest` is a hash of the event's content. It is "" for a mark on a passage, because any event
      that contains the passage may match.
    * `event_id` is the event's id. Only versions of JP that implement RFD 097 write such ids.
    * `timestamp` is the event's time in ISO 8601.
    * `history` is a hash of all turns up to and including the event's turn, as
      `_hash_turns_cumulatively` returns it. It distinguishes equal events that have neither id nor
      time.
    """

    digest: str
    event_id: str | None
    timestamp: str | None
    history: str


class Mark(NamedTuple):
    """A person's mark on a turn, a tool call or a passage.

    * `turn` and `call` are the numbers that the turn and the call had when the mark was set.
      `title` is the title that the conversation had then.
    * `superseded_by` is a reference to the *target*, the text that applies instead of the marked
      text. `target_anchor` identifies the target if it is a turn or call that existed when the mark
      was set.
    * `text` is the beginning of the marked text on one line. It is "" in marks from earlier
      versions of kbtui.

    Times are in Unix seconds.
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
    anchor: MarkedEventIdentity
    target_anchor: MarkedEventIdentity | None = None
    text: str = ""

    def as_json(self) -> dict[str, object]:
        """Return all fields as JSON, from which `from_json` restores the mark."""
        target = self.target_anchor
        return self._asdict() | {
            "anchor": self.anchor._asdict(),
            "target_anchor": target._asdict() if target else None,
        }

    @classmethod
    def from_json(cls, shape: Any) -> Mark:
        """Restore a mark from the result of `as_json`. Raises `ValueError` for any other value.

        Marks from earlier versions of kbtui have neither `target_anchor` nor `text`.
        """
        if not isinstance(shape, dict) or not isinstance(shape.get("anchor"), dict):
            raise ValueError("a mark must be an object with an anchor")
        target = shape.get("target_anchor")
        if target is not None and not isinstance(target, dict):
            raise ValueError("the target's anchor is not an object")
        try:
            optional_fields = ("target_anchor", "text")
            values: Any = {name: shape[name] for name in cls._fields if name not in optional_fields}
            values["text"] = shape.get("text", "")
            values["anchor"] = MarkedEventIdentity(
                *(shape["anchor"][name] for name in MarkedEventIdentity._fields)
            )
            if target is not None:
                values["target_anchor"] = MarkedEventIdentity(
                    *(target[one] for one in MarkedEventIdentity._fields)
                )
        except KeyError as error:
            raise ValueError(f"a mark lacks the key {error}") from None
        mark = cls(**values)
        anchors = [one for one in (mark.anchor, mark.target_anchor) if one]
        hashes = [text for one in anchors for text in one[::3]]
        texts = (mark.id, mark.conversation, mark.note, mark.title, mark.text, *hashes)
        optional = (
            mark.passage,
            mark.superseded_by,
            *(text for one in anchors for text in one[1:3]),
        )
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


def parse_exported_mark(shape: Any) -> Mark:
    """Parse a mark from an exported file, which anyone may have edited.

    The mark's times are in ISO 8601, or in Unix seconds if an earlier version of kbtui wrote the
    file. Raises `ValueError` if `Mark.from_json` rejects the mark, or if one of its values is
    invalid.
    """
    if isinstance(shape, dict):
        times = {name: _parse_exported_mark_time(shape[name]) for name in _TIMES if name in shape}
        shape = {**shape, **times}
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
        "superseded_by": by_state and _is_reference_or_none(mark.superseded_by, of_turn=False),
        "target_anchor": mark.target_anchor is None
        or _is_reference_or_none(mark.superseded_by, of_turn=True),
        "note": len(mark.note) <= MAX_NOTE_CHARACTERS,
        "passage": len(mark.passage or "") <= MAX_PASSAGE_CHARACTERS,
        "text": len(mark.text) <= MAX_PASSAGE_CHARACTERS,
        # NaN, which Python accepts in JSON, is outside every range.
        "created": 0 <= mark.created <= LATEST_TIME,
        "changed": 0 <= mark.changed <= LATEST_TIME,
    }
    if wrong := [name for name, is_valid in checks.items() if not is_valid]:
        raise ValueError(f"the mark {mark.id[:40]!r} has an invalid {wrong[0]}")
    return mark


def _parse_exported_mark_time(value: object) -> object:
    """Convert a time in ISO 8601 to Unix seconds. Raises `ValueError`.

    A value that is not a string is returned unchanged.
    """
    if not isinstance(value, str):
        return value
    time = datetime.fromisoformat(value)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _format_exported_mark_time(seconds: float) -> str | None:
    """Format Unix seconds as ISO 8601 in UTC, with microseconds.

    An import compares these times, so they must be exact.
    """
    time = convert_unix_time_to_datetime(seconds)  # None only in a damaged file
    return time.isoformat() if time else None


def _is_reference_or_none(text: str | None, *, of_turn: bool) -> bool:
    """Return whether `text` is either a reference or None.

    If `of_turn` is true, only references to turns and calls are accepted, and None is not.
    """
    try:
        ref = None if text is None else parse_ref(text)
    except UsageError:
        return False
    return not of_turn or (ref is not None and ref.turn is not None)


def _is_whole_conversation_id(text: str) -> bool:
    try:
        return parse_conversation_ref(text) == make_conversation_ref(text)
    except UsageError:
        return False


class MarkedTurnOrCall(NamedTuple):
    """The current place of a marked text: a turn, and a tool call if the text is in one.

    `is_text_changed` is true if the marked event was found by its id, but its text has changed.
    """

    turn: int
    call: int | None = None
    is_text_changed: bool = False


class PlacedMark(NamedTuple):
    """A mark, and the current place of its text.

    If the text cannot be found, `place` is None, and `problem` is the reason:

    * "conversation": the conversation no longer exists.
    * "unreadable": at least a part of the conversation cannot be read.
    * "text": no turn contains this text any longer.

    `mark.superseded_by` is the current reference of the target, which is the text that applies
    instead. `target_problem` is "changed" if the target was edited after the mark was set, and
    "gone" if the target cannot be found.
    """

    mark: Mark
    place: MarkedTurnOrCall | None
    problem: MarkProblem = ""
    target_problem: TargetProblem = ""

    @property
    def ref(self) -> str:
        """The current reference of the marked turn or call, or the old one if the text cannot be found."""
        turn, call = self.place[:2] if self.place else (self.mark.turn, self.mark.call)
        return str(make_conversation_ref(self.mark.conversation, turn, call))

    @property
    def label(self) -> str:
        """A one-line description of the mark: its state, its passage, the superseding reference and its note.

        The line is safe for a terminal.
        """
        mark = self.mark
        passage = sanitize_to_one_line(mark.passage or "")
        passage = f" “{passage[:60]}{'…' if len(passage) > 60 else ''}”" if passage else ""
        by = f" by {sanitize_to_one_line(mark.superseded_by)}" if mark.superseded_by else ""
        by += {"": "", "changed": " (edited since)", "gone": " (not found)"}[self.target_problem]
        edited = " (edited since)" if self.place and self.place.is_text_changed else ""
        note = f": {sanitize_to_one_line(mark.note)}" if mark.note else ""
        return f"{mark.state}{passage}{edited}{by}{note}"

    @property
    def label_in_turn(self) -> str:
        """A one-line description of the mark, as shown next to its turn.

        If a call is marked, the line begins with the call's number.
        """
        call = self.place.call if self.place else self.mark.call
        return f"call {call} {self.label}" if call and self.mark.passage is None else self.label

    def make_json_for_hit_or_turn(self, *, is_short: bool = False) -> MarkFactsJson:
        """Return the mark as JSON for search hits and turns.

        If `is_short` is true, the texts of the mark are cut.
        """
        longest = MAX_SHORT_CHARACTERS if is_short else None
        mark, call = self.mark, self.place.call if self.place else self.mark.call
        facts: MarkFactsJson = {
            "id": mark.id,
            "state": mark.state,
            "label": self.label_in_turn[:longest],
            "call": call,
            "note": mark.note[:longest],
            "superseded_by": mark.superseded_by,
            "passage": mark.passage[:longest] if mark.passage else None,
        }
        if self.place and self.place.is_text_changed:
            facts["text_changed"] = True
        return facts

    def as_json(self) -> dict[str, object]:
        """Return the mark as a JSON object with the documented keys. Times are in ISO 8601.

        The key `matches` is false if the marked text cannot be found.
        """
        return {
            "ref": self.ref,
            "matches": self.place is not None,
            "text_changed": self.place is not None and self.place.is_text_changed,
            "target_problem": self.target_problem,
            **self.mark.as_json(),
            "created": _format_exported_mark_time(self.mark.created),
            "changed": _format_exported_mark_time(self.mark.changed),
        }


class ConversationMarks(NamedTuple):
    """The marks on the turns of a conversation.

    `by_turn` maps the number of a turn to the marks on the turn, oldest first. If the marks cannot
    be read, `by_turn` is empty, and `notice` says so.
    """

    by_turn: Mapping[int, Sequence[PlacedMark]] = {}
    notice: Notice | None = None

    def get_mark_labels_of_turn(self, turn: int) -> list[str]:
        """Return a one-line description of each mark on a turn.

        The lines are safe for a terminal.
        """
        return [mark.label_in_turn for mark in self.by_turn.get(turn, ())]


def make_marks_json_field_of_turn(
    marks: Iterable[PlacedMark], *, is_short: bool = False
) -> dict[str, list[MarkFactsJson]]:
    """Return the field `marks` of a turn's JSON; {} if there are no marks.

    If `is_short` is true, the texts of the marks are cut.
    """
    facts = [mark.make_json_for_hit_or_turn(is_short=is_short) for mark in marks]
    return {"marks": facts} if facts else {}


def make_mark_on_turn_call_or_passage(
    conversation: Conversation,
    ref: Ref,
    state: MarkState,
    *,
    note: str = "",
    superseded_by: str | None = None,
    target_anchor: MarkedEventIdentity | None = None,
    passage: str | None = None,
    now: float,
) -> Mark:
    """Make a mark on the turn or call that `ref` refers to, or on a passage in it.

    `superseded_by` and `target_anchor` are stored only if `state` is "superseded". Raises
    `UsageError` if there is no text to mark, or if the note or the passage is too long. Raises
    `NothingFound` if the turn does not exist or does not contain the passage.
    """
    for name, text, longest in (
        ("note", note, MAX_NOTE_CHARACTERS),
        ("passage", passage or "", MAX_PASSAGE_CHARACTERS),
    ):
        if len(text) > longest:
            message = f"the {name} has {len(text):,} characters; the maximum is {longest:,}"
            raise UsageError(message, where=name)
    if ref.turn is None:
        message = "the reference must name a turn or a call"
        raise UsageError(message, where=str(ref), hint=f"write {ref}:TURN")
    turn = conversation.find_turn(ref.turn)
    if turn is None:
        raise NothingFound(f"{ref.conversation} has no turn {ref.turn}")
    passage = _collapse_white_space(passage) if passage else None
    if passage:
        inside = (one for one in turn.events if ref.call in (None, one.call))
        event = next((one for one in inside if _contains_passage(one.text, passage)), None)
        if event is None:
            hint = "copy the passage from a single message, result or piece of reasoning"
            raise NothingFound(f"{ref} does not contain this passage", hint=hint)
    else:
        passage, event = None, _find_event_to_mark(turn, ref.call)
        if event is None:
            raise UsageError(f"{ref} has no text to mark", where=str(ref))
    anchor = _make_marked_event_identity(
        conversation, turn, event, "" if passage else _hash_event(event)
    )
    identity = anchor.timestamp or anchor.event_id or anchor.history
    parts = (conversation.info.id, anchor.digest, passage or "", identity)
    from hashlib import sha256  # the first paint does not need it

    mark_id = sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:_ID_CHARACTERS]
    if state != "superseded":
        superseded_by = target_anchor = None
    call = ref.call if passage is None else event.call
    text = passage or _format_event_on_one_line(event)
    title = conversation.info.title or ""
    return Mark(
        mark_id, conversation.info.id, turn.number, call, passage, state, note, superseded_by,
        title, now, now, anchor, target_anchor, replace_surrogates(text[:_MAX_KEPT_CHARACTERS]),
    )  # fmt: skip


def make_identity_of_turn_or_call(
    conversation: Conversation, target: Ref
) -> MarkedEventIdentity | None:
    """Return what identifies a turn or call even if its number changes.

    The result is None if the turn or call does not exist or has no text.
    """
    turn = None if target.turn is None else conversation.find_turn(target.turn)
    event = _find_event_to_mark(turn, target.call) if turn else None
    return (
        _make_marked_event_identity(conversation, turn, event, _hash_event(event))
        if turn and event
        else None
    )


def _make_marked_event_identity(
    conversation: Conversation, turn: Turn, event: ConversationEvent, digest: str
) -> MarkedEventIdentity:
    openings = _hash_turns_cumulatively(conversation.turns[: turn.number])
    timestamp = event.timestamp.isoformat() if event.timestamp else None
    return MarkedEventIdentity(digest, event.event_id, timestamp, list(openings)[-1])


def map_marks_to_current_places(
    conversation: Conversation, marks: Iterable[Mark]
) -> dict[str, MarkedTurnOrCall]:
    """Map the id of each mark to the current place of the marked text.

    Marks whose text cannot be found are left out.
    """
    wanted = [(one.id, _MarkedTextIdentity(one.anchor, one.call, one.passage)) for one in marks]
    return _map_names_to_places_of_marked_texts(conversation, wanted)


def map_bookmarks_to_current_places(
    conversation: Conversation, anchors: Mapping[str, MarkedEventIdentity]
) -> dict[str, MarkedTurnOrCall]:
    """Map the name of each anchor to the current place of the bookmarked turn or call.

    An anchor identifies this turn or call, and its name is the reference that the turn or call had
    when the anchor was made. Anchors whose turn or call cannot be found are left out.
    """
    wanted = [
        (name, _MarkedTextIdentity(anchor, parse_conversation_ref(name).call))
        for name, anchor in anchors.items()
    ]
    return _map_names_to_places_of_marked_texts(conversation, wanted)


def map_marks_to_current_places_of_superseding_texts(
    conversation: Conversation, marks: Iterable[Mark]
) -> dict[str, MarkedTurnOrCall]:
    """Map the id of each mark to the current place of its target, the text that applies instead.

    Marks without a target anchor, or whose target is not found in this conversation, are left out.
    """
    wanted = [
        (
            one.id,
            _MarkedTextIdentity(one.target_anchor, parse_conversation_ref(one.superseded_by).call),
        )
        for one in marks
        if one.target_anchor and one.superseded_by
    ]
    return _map_names_to_places_of_marked_texts(conversation, wanted)


class _MarkedTextIdentity(NamedTuple):
    """Identifies a marked text by its event, its call number and, for a mark on a passage, the passage."""

    anchor: MarkedEventIdentity
    call: int | None
    passage: str | None = None

    def is_text_of_event(self, event: ConversationEvent) -> bool:
        """Return whether an event contains this text."""
        if self.passage is not None:
            return _contains_passage(event.text, self.passage)
        return _hash_event(event) == self.anchor.digest


def _map_names_to_places_of_marked_texts(
    conversation: Conversation, wanted: Sequence[tuple[str, _MarkedTextIdentity]]
) -> dict[str, MarkedTurnOrCall]:
    turns = conversation.turns
    histories = list(_hash_turns_cumulatively(turns)) if wanted else []
    found = {}
    for mark_id, text in wanted:
        if place := _find_place_of_marked_text(turns, text, histories):
            found[mark_id] = place
    return found


def _find_place_of_marked_text(
    turns: Sequence[Turn], text: _MarkedTextIdentity, histories: list[str]
) -> MarkedTurnOrCall | None:
    """Return the turn or call that contains a marked text.

    Returns None if no event contains the text, or if several events could be the marked one.
    """
    anchor = text.anchor
    candidates = list(_list_possibly_marked_events(turns, text))
    if anchor.event_id is not None:
        # Compare only the id, so that a mark stays with an event that was edited.
        own = [
            (turn, event)
            for turn in turns
            for event in turn.events
            if event.event_id == anchor.event_id and (text.call is None or event.call is not None)
        ]
        if own:
            same = [pair for pair in own if text.is_text_of_event(pair[1])]
            place = _choose_place_of_marked_text(same or own, text, histories)
            return place._replace(is_text_changed=not same) if place else None
        # An event with another id is another event, even if its text is the same.
        candidates = [pair for pair in candidates if pair[1].event_id is None]
    candidates = [pair for pair in candidates if text.is_text_of_event(pair[1])]
    if anchor.timestamp is not None:
        times = {id(event): event.timestamp for _, event in candidates}
        same = [
            one
            for one in candidates
            if (time := times[id(one[1])]) and time.isoformat() == anchor.timestamp
        ]
        candidates = same or [one for one in candidates if times[id(one[1])] is None]
    return _choose_place_of_marked_text(candidates, text, histories)


def _list_possibly_marked_events(
    turns: Iterable[Turn], text: _MarkedTextIdentity
) -> Iterator[tuple[Turn, ConversationEvent]]:
    """Yield the events that may be the marked event, each with its turn."""
    for turn in turns:
        if text.passage is not None:
            events = turn.events
        elif text.call is not None:
            events = [one for one in turn.events if one.arguments is not None]
        else:
            event = _find_event_to_mark(turn, None)
            events = [event] if event else []
        yield from ((turn, event) for event in events)


def _choose_place_of_marked_text(
    candidates: Iterable[tuple[Turn, ConversationEvent]],
    text: _MarkedTextIdentity,
    histories: list[str],
) -> MarkedTurnOrCall | None:
    """Return the place of the marked text, or None if the place is unclear.

    If there are several candidates, those with a different history are excluded. If there are still
    several, those with another call number are excluded.
    """
    places = dict.fromkeys(
        MarkedTurnOrCall(turn.number, None if text.call is None else event.call)
        for turn, event in candidates
    )
    if len(places) > 1:
        places = {one: None for one in places if histories[one.turn - 1] == text.anchor.history}
    if len(places) > 1:
        places = {one: None for one in places if one.call == text.call}
    return next(iter(places)) if len(places) == 1 else None


def _find_event_to_mark(turn: Turn, call: int | None) -> ConversationEvent | None:
    """Return the event to which a mark on a turn or call is attached.

    A mark on a turn is attached to the turn's request. If there is no request, it is attached to
    the turn's first event with text or values.
    """
    if call is not None:
        calls = (one for one in turn.events if one.call == call and one.arguments is not None)
        return next(calls, None)
    requests = (one for one in turn.events if one.kind == "chat_request" and one.text.strip())
    texts = (one for one in turn.events if one.text.strip() or one.arguments_or_fields)
    return next(requests, None) or next(texts, None)


def _format_event_on_one_line(event: ConversationEvent) -> str:
    """Return an event's text on one line. If the event has no text, return its name and values."""
    values = (
        json.dumps(event.arguments_or_fields, ensure_ascii=False, default=str)
        if event.arguments_or_fields
        else ""
    )
    return _collapse_white_space(event.text) or " ".join(
        filter(None, (event.name, _collapse_white_space(values)))
    )


def _hash_event(event: ConversationEvent) -> str:
    """Return a hash of an event's content.

    The order of keys in the event's values does not matter.
    """
    values = (
        json.dumps(event.arguments_or_fields, sort_keys=True, default=str)
        if event.arguments_or_fields
        else ""
    )
    from hashlib import sha256

    content = "\0".join((event.kind, event.name or "", event.text, values))
    return sha256(content.encode("utf-8", "replace")).hexdigest()[:32]


def _hash_turns_cumulatively(turns: Iterable[Turn]) -> Iterator[str]:
    """For each turn, yield a hash that covers this turn and all earlier turns.

    Each turn is represented by the event to which a mark on the turn would be attached.
    """
    from hashlib import sha256

    history = sha256()
    for turn in turns:
        event = _find_event_to_mark(turn, None)
        history.update((_hash_event(event) if event else "-").encode())
        yield history.hexdigest()[:32]


def _contains_passage(text: str, passage: str) -> bool:
    """Return whether `text` contains `passage`.

    White space and Markdown's characters `*`, `_` and backquote are ignored, because a passage that
    was copied from the reader does not contain Markdown's characters, and can have other line
    breaks.
    """
    wanted = _collapse_white_space(passage.translate(_EMPHASIS)) or passage
    return wanted in _collapse_white_space(
        text.translate(_EMPHASIS)
    ) or passage in _collapse_white_space(text)


def _collapse_white_space(text: str) -> str:
    """Replace each run of white space with one space.

    Line breaks then do not matter in comparisons.
    """
    return " ".join(text.split())
