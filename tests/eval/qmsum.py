"""QMSum: questions about meetings. Each meeting is a conversation, and each utterance a turn."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "meetings.jsonl"
FIRST_ID = 17_400_000_000
"""The first meeting has this conversation id (tenths of a second); each next one is a day later."""


def _read_meetings(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each meeting with the number of its conversation."""
    for at, line in enumerate((folder / FILE).read_text("utf-8").splitlines()):
        yield FIRST_ID + at * 864_000, json.loads(line)


def read_questions(folder: Path) -> list[tuple[str, str, dict[str, float]]]:
    """Return each question's name and text, and the gain of each turn that helps to answer it.

    A turn is written `jp-cNUMBER:TURN`. All turns in the spans of the answer have the gain 1.
    """
    return [
        (
            f"{number}.{at}",
            " ".join(question["query"].split()),
            {
                f"jp-c{number}:{turn + 1}": 1.0
                for first, last in question["relevant_text_span"]
                for turn in range(int(first), int(last) + 1)
            },
        )
        for number, meeting in _read_meetings(folder)
        for at, question in enumerate(meeting["specific_query_list"], 1)
    ]


def read_turn_questions(name: str, folder: Path) -> list[tuple[str, str, dict[str, float]]]:
    """Return the questions of `turns.toml`, `utterances.toml` or `exchanges.toml`.

    Each question has a name (the places of its turns), its text, and its turns with their gains. `name` has
    no extension.
    """
    numbers = [number for number, _ in _read_meetings(folder)]
    questions = tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text("utf-8"))
    return [
        (
            places,
            text,
            {
                f"jp-c{numbers[int(meeting)]}:{turn}": 1.0
                for meeting, turn in (place.split(":") for place in places.split())
            },
        )
        for text, places in questions.items()
    ]


def write_workspace(folder: Path, root: Path) -> None:
    """Write the meetings as JP conversations. A turn is one request, which names its speaker."""
    for number, meeting in _read_meetings(folder):
        place = root / ".jp" / "conversations" / str(number)
        if place.exists():
            continue
        place.mkdir(parents=True)
        moment = datetime.fromtimestamp(number / 10, UTC)
        events: list[dict[str, Any]] = []
        for one in meeting["meeting_transcripts"]:
            moment += timedelta(seconds=5)
            stamp = moment.strftime("%Y-%m-%d %H:%M:%S.0")
            said = f"{one['speaker']}: {one['content']}"
            events += [
                {"timestamp": stamp, "type": "turn_start"},
                {"timestamp": stamp, "type": "chat_request", "content": said},
            ]
        (place / "metadata.json").write_text(json.dumps({"last_activated_at": stamp}))
        (place / "base_config.json").write_text("{}")
        (place / "events.json").write_text(json.dumps(events))
