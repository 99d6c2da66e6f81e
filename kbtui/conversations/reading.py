"""One whole conversation, read as far as it can be read."""

from collections.abc import Callable

from kbtui.conversations.configuration import Facts
from kbtui.conversations.events import Builder
from kbtui.conversations.files import LARGEST_CONFIG, read_array, read_file, read_object
from kbtui.conversations.records import Conversation, ConversationInfo
from kbtui.errors import WorkspaceError


def load_conversation(
    info: ConversationInfo, progress: Callable[[Conversation], None] | None = None
) -> Conversation:
    """Read a conversation; never raises for what is wrong with it, which is in `problems`.

    A big one is read in batches of about a megabyte; `progress` is called after
    each with the conversation so far, whose last turn may still grow.
    """
    facts = Facts()
    conversation = Conversation(info, [])
    problems = conversation.problems
    if info.base_config_path is not None:
        try:
            facts.apply(read_object(read_file(str(info.base_config_path), LARGEST_CONFIG)))
        except (WorkspaceError, ValueError) as error:
            problems.append(f"base_config.json: {getattr(error, 'message', error)}")
    builder = Builder(facts)
    damage: list[str] = []
    if info.events_path is None:
        problems.append("there is no events.json")
        return conversation
    conversation.turns = builder.turns
    conversation.compactions = builder.compactions
    conversation.unknown = builder.unknown
    try:
        for batch in read_array(read_file(str(info.events_path)), damage):
            builder.add(batch)
            builder.finish()
            if progress is not None:
                progress(conversation)
    except WorkspaceError as error:
        damage.append(error.message)
    if info.base_config_path is None and not builder.configured and not damage:
        problems.append("there is no base configuration: JP itself refuses this conversation")
    problems += [f"events.json: {text}" for text in (*damage, *builder.problems)]
    conversation.assistant = facts.assistant
    conversation.model = facts.model
    conversation.attachments = facts.attachments
    return conversation
