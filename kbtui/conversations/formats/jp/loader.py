"""One whole conversation, read as far as it can be read."""

from collections import Counter
from collections.abc import Callable

from kbtui.conversations.formats.jp.config_state import ConversationFacts
from kbtui.conversations.formats.jp.event_parser import EventParser
from kbtui.conversations.formats.jp.json_reader import (
    LARGEST_CONFIG,
    read_array,
    read_events,
    read_file,
    read_head,
    read_object,
    whole_elements,
)
from kbtui.conversations.formats.jp.locations import BASE_CONFIG, EVENTS
from kbtui.conversations.models import Conversation, ConversationInfo
from kbtui.errors import WorkspaceError

PROBLEMS_NAMED = 10
"""Problems of one conversation that a list names; its own page names a hundred."""
KINDS_MOST = 5
"""Unknown kinds of event that are named."""


def load_conversation(
    info: ConversationInfo, progress: Callable[[Conversation], None] | None = None
) -> Conversation:
    """Read a conversation; never raises for what is wrong with it, which is in `problems`.

    A big one is read in batches of about a megabyte; `progress` is called after
    each with the conversation so far, whose last turn may still grow. The
    result's `info` has the count and the time of the last element.
    """
    problems: list[str] = []
    facts = ConversationFacts()
    if info.base_config_path is not None:
        read_base(str(info.base_config_path), facts, problems)
    builder = EventParser(facts)
    conversation = Conversation(
        info,
        builder.turns,
        compactions=builder.compactions,
        problems=problems,
        leading=builder.leading,
    )
    if info.events_path is None:
        problems.append(f"there is no {EVENTS}")
        return conversation
    damage: list[str] = []
    try:
        for batch in read_events(str(info.events_path), damage):
            builder.add(batch)
            if progress is not None:
                builder.finish()
                _settle(conversation, builder)
                progress(conversation)
        builder.finish()
        conversation.info = info.counted(builder.count, builder.last_time)
    except WorkspaceError as error:
        damage.append(error.message)
    if info.base_config_path is None and not builder.configured and not damage:
        problems.append("there is no base configuration: JP itself refuses this conversation")
    problems += [f"{EVENTS}: {text}" for text in (*damage, *builder.problems)]
    if builder.more_problems:
        problems.append(f"{EVENTS}: {builder.more_problems} more damaged elements")
    _settle(conversation, builder)
    return conversation


def problems_of(conversation: Conversation) -> str | None:
    """What is wrong with a conversation, each thing once; None for a sound one."""
    own = conversation.info.problem
    new = [problem for problem in conversation.problems if problem not in (own or "")]
    named = [*([own] if own else []), *new[:PROBLEMS_NAMED]]
    if (left := len(new) - PROBLEMS_NAMED) > 0:
        # The line that counts the rest is no problem of its own.
        left += max(0, conversation.more_problems - 1)
        named.append(f"{left} more problems")
    return "; ".join(named) or None


def name_extras(conversation: Conversation) -> list[str]:
    """What a conversation has besides JP's kinds of event, each counted."""
    extras = []
    if unknown := conversation.unknown:
        kinds = Counter(event.name for event in unknown)
        named = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(KINDS_MOST))
        more = f", {len(kinds) - KINDS_MOST} more kinds" if len(kinds) > KINDS_MOST else ""
        before = len(conversation.leading)
        place = f", {before} of them before the first turn" if before else ""
        events = (
            "1 event of an unknown kind"
            if len(unknown) == 1
            else (f"{len(unknown)} events of unknown kinds")
        )
        extras.append(f"{events} ({named}{more}){place}")
    if count := conversation.resources:
        extras.append("1 resource" if count == 1 else f"{count} resources")
    return extras


def load_beginning(info: ConversationInfo, length: int = 1 << 20) -> Conversation | None:
    """A conversation as far as the first `length` bytes of its events go.

    For showing a big one before it is read. None where that is not possible, or where
    it takes all of the file.
    """
    if info.events_path is None or info.size <= length:
        return None
    facts = ConversationFacts()
    builder = EventParser(facts)
    try:
        if info.base_config_path is not None:
            read_base(str(info.base_config_path), facts, [])
        data = whole_elements(read_head(str(info.events_path), length))
        for batch in read_array(data, []) if data else ():
            builder.add(batch)
    except WorkspaceError:
        return None
    builder.finish()
    if not builder.turns:
        return None
    conversation = Conversation(
        info, builder.turns, compactions=builder.compactions, leading=builder.leading
    )
    _settle(conversation, builder)
    return conversation


def _settle(conversation: Conversation, builder: EventParser) -> None:
    conversation.assistant = builder.facts.assistant
    conversation.model = builder.facts.model
    conversation.attachments = builder.facts.attachments
    conversation.resources = builder.resources
    conversation.more_problems = builder.more_problems


def read_base(path: str, facts: ConversationFacts, problems: list[str]) -> None:
    """Take in a base configuration; what is wrong with it goes to `problems`."""
    found: list[str] = []
    try:
        facts.apply(read_object(read_file(path, LARGEST_CONFIG), found))
    except (WorkspaceError, ValueError) as error:
        found.append(getattr(error, "message", str(error)))
    problems += [f"{BASE_CONFIG}: {problem}" for problem in found]
