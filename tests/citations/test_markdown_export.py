"""A conversation as Markdown: all messages in order, with the sources of each turn."""

from datetime import UTC, datetime
from pathlib import Path

from kbtui.assistant.conversation_tools import resolve_included_event_kinds
from kbtui.citations.citation_formatting_and_markdown_export import format_conversation_markdown
from kbtui.citations.shared_conversation_export import prepare_shared_conversation
from kbtui.citations.tool_call_citations import Citation
from kbtui.conversations.conversation_data_types import (
    Conversation,
    ConversationEvent,
    ConversationInfo,
    Turn,
)

ID = "jp-c17800836875"
NOW = datetime(2026, 5, 29, 10, tzinfo=UTC)
INFO = ConversationInfo(ID, "A *starred* title", Path("/w"), None, None, False, "external", NOW)


def conversation() -> Conversation:
    call = ConversationEvent(
        "tool_call_request", NOW, "", 2, name="learn", arguments={"topic": "guide"}, call=1
    )
    result = ConversationEvent(
        "tool_call_response", NOW, "```\ncode\n```\n", 3, name="learn", call=1
    )
    first = Turn(
        1,
        [
            ConversationEvent("chat_request", NOW, "# My question\n", 0, author="Jean"),
            ConversationEvent("reasoning", NOW, "First.\n\nThen.", 1),
            call,
            result,
            ConversationEvent("message", NOW, "The *answer*.", 4),
        ],
        started_at=NOW,
    )
    second = Turn(2, [ConversationEvent("structured", None, '{"n": 1}', 5, data={"n": 1})])
    return Conversation(INFO, [first, second], assistant="Architect", model="anthropic/opus")


CITES = [
    Citation(ID, 1, 1, "learn", "subject", "guide/start", "start", "learn"),
    Citation(ID, 2, None, "read", "conversation", "jp-c17457886043", "Old | talk", "conversation_read", gone=True),
    Citation(ID, 2, 2, "learn", "subject", "guide/start", "start", "learn"),
]  # fmt: skip


def write(
    talk: Conversation,
    cites: list[Citation],
    turns: list[Turn] | None = None,
    groups: list[str] | None = None,
) -> str:
    kinds = resolve_included_event_kinds(groups)
    shared = prepare_shared_conversation(
        talk, turns or talk.turns, kinds, cites, masks_secrets=False
    )
    return format_conversation_markdown(talk, shared.turns, shared.citations_by_turn, {}, ())


def test_the_document_has_all_turns_and_their_sources() -> None:
    talk = conversation()
    assert write(talk, CITES) == (
        r"""# A \*starred\* title

- Conversation: `jp-c17800836875`
- Created: 2026-05-29T19:41:27.500Z
- Assistant: Architect
- Model: anthropic/opus
- Turns: 2

## Turn 1 · 2026-05-29T10:00:00.000Z

### Jean

# My question

### Reasoning

> First.
>
> Then.

### Call 1: `learn`

```json
{
  "topic": "guide"
}
```

### Result 1: `learn`

````
```
code
```
````

### Assistant

The *answer*.

### Citations of this turn

- `guide/start` start (learned, call 1)

## Turn 2

### Structured answer

```json
{"n": 1}
```

### Citations of this turn

- `jp-c17457886043` Old \| talk (read, deleted since)
- `guide/start` start (learned, call 2)

## Citations

- `guide/start` start: turns 1, 2
- `jp-c17457886043` Old \| talk: turn 2
""".replace("2026-05-29T19:41:27.500Z", "2026-05-29T10:00:00.000Z")
    )


def test_chosen_turns_and_kinds_alone_are_written() -> None:
    talk = conversation()
    text = write(talk, CITES, talk.turns[:1], ["chat"])
    assert "### Jean" in text
    assert "### Assistant" in text
    assert "### Call" not in text
    assert "### Reasoning" not in text
    assert "Turn 2" not in text
    assert "jp-c17457886043" not in text


def test_a_conversation_without_sources_says_so() -> None:
    talk = conversation()
    assert write(talk, []).endswith("## Citations\n\nNo turn cites anything.\n")
