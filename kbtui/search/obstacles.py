"""What keeps a chunk from being a hit, whatever its rank: filters, demands, hiding, freshness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.search.freshness import Freshness

if TYPE_CHECKING:
    from kbtui.index import IndexReader
    from kbtui.index.records import Chunk, Entry
    from kbtui.refs import Ref
    from kbtui.search.answer import Asked
    from kbtui.search.records import Question
    from kbtui.workspace import Workspace


def missing_entry(workspace: Workspace, ref: Ref) -> str:
    """Why the index has nothing of what a reference names."""
    from kbtui.errors import NothingFound
    from kbtui.knowledge import load_knowledge

    if ref.kind == "chunk":
        return "there is no such chunk any more"
    if ref.kind == "conversation":
        from kbtui.conversations import find_conversation

        try:
            problem = find_conversation(workspace, ref.conversation or 0).problem
        except NothingFound as error:
            return error.message
        return problem or "it is not indexed yet: `kbtui index` brings the index up to date"
    knowledge = load_knowledge(workspace)
    topic = knowledge.topics.get(ref.topic or "")
    if topic is None:
        return f"there is no topic {ref.topic!r}"
    if not topic.enable:
        return f"the topic {topic.id} is switched off"
    if ref.slug is None:
        return "a topic has no text of its own: name one of its subjects"
    subject = knowledge.find(topic.id, ref.slug)
    if subject is None:
        return f"the topic {topic.id} has no subject {ref.slug!r}"
    if subject.disabled:
        return "the subject is disabled, and so never searched"
    return "it is not indexed yet: `kbtui index` brings the index up to date"


def obstacles(
    workspace: Workspace, reader: IndexReader, asked: Asked, entry: Entry, chunk: Chunk
) -> list[str]:
    """The reasons that hold whatever the rank, in words; [] where there is none."""
    if asked.mistakes:
        return [f"the query has a mistake: {asked.mistakes[0]}"]
    found = list(_filtered(asked.question, entry, chunk))
    if not asked.narrowing.allows(entry, chunk):
        found.append("a filter of the query leaves it out")
    says = asked.lexical.saying(f"{chunk.text}\n{entry.title}")
    found += [f"it does not say “{text}”" for text in asked.query.phrases if not says(text)]
    found += [f"it says “{text}”, which must not be" for text in asked.query.excluded if says(text)]
    if not found and Freshness(workspace, reader).check(entry, chunk) is None:
        found.append("its text is not in its file any more, or it is disabled since")
    return found


def _filtered(question: Question, entry: Entry, chunk: Chunk) -> list[str]:
    found = []
    if entry.hidden and not question.hidden:
        found.append("it is hidden, and hidden subjects were not asked for")
    if entry.archived and not question.archived:
        found.append("it is archived, and archived conversations were not asked for")
    if question.exclude is not None and entry.conversation == question.exclude:
        found.append("it is the current conversation")
    for name, value, wanted in (
        ("kind", entry.kind, question.kinds),
        ("topic", entry.topic, question.topics),
        ("type", entry.type or entry.kind, question.types),
        ("role", chunk.role, question.roles),
        ("tool", chunk.tool, question.tools),
    ):
        if wanted and value not in wanted:
            found.append(f"its {name} is {value or 'none'}, searched is {', '.join(wanted)}")
    if question.entries and entry.id not in question.entries:
        found.append("its title has not the words asked for")
    time = chunk.timestamp or entry.changed
    if question.since and time < question.since.timestamp():
        found.append("it is older than what is searched")
    if question.until and time >= question.until.timestamp():
        found.append("it is newer than what is searched")
    return found
