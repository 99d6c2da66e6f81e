"""List topics and their subjects, and JP's own prompt fragments.

Hidden subjects are counted, and listed with --hidden.
"""

from __future__ import annotations

from kbtui.cli.knowledge_options import configure_knowledge, open_knowledge
from kbtui.cli.output import emit, emit_json, note
from kbtui.cli.progress import working

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.models import Fragment, Subject, Topic


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui topics` (decisions D)."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="only this one, by id or title")
    parser.add_argument("--hidden", action="store_true", help="hidden subjects too")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    configure_knowledge(parser)


def run(args: Namespace) -> int:
    """List them; 1 when there are none, 2 when there are none but mistakes."""
    knowledge = open_knowledge(args)
    if args.topic is None:
        topics, fragments = list(knowledge.topics.values()), knowledge.fragments()
    else:
        named = knowledge.topics.get(args.topic)
        topics, fragments = [named or knowledge.resolve_topic(args.topic)], []
    with working("listing subjects"):
        subjects = {topic.id: knowledge.subjects(topic.id) for topic in topics}
    if args.json:
        emit_json(_as_json(knowledge, topics, subjects, fragments, hidden=args.hidden))
    else:
        blocks = [_topic(topic, subjects[topic.id], hidden=args.hidden) for topic in topics]
        if fragments:
            blocks.append(_fragments(knowledge, fragments))
        if blocks:
            emit("\n\n".join(blocks) + "\n")
    if topics or fragments:
        return 0
    if not args.json:
        note("no topics are configured; declare one in .jp/kb.toml as [kb.topic.ID]")
    return 2 if knowledge.problems else 1


def _topic(topic: Topic, subjects: list[Subject], *, hidden: bool) -> str:
    from kbtui.text import one_line

    title = f"  {one_line(topic.title)}" if topic.title else ""
    lines = [f"{topic.id}{title}{'' if topic.enable else '  (switched off)'}"]
    if topic.introduction:
        lines.append(f"  {one_line(topic.introduction)}")
    lines += [
        f"  {topic.id}/{subject.slug}{_flags(subject)}"
        for subject in subjects
        if hidden or not subject.hidden
    ]
    count = 0 if hidden else sum(subject.hidden for subject in subjects)
    if count:
        lines.append(f"  and {count} hidden (--hidden lists them)")
    if not subjects:
        lines.append("  no subjects")
    return "\n".join(lines)


def _flags(subject: Subject) -> str:
    flags = [flag for flag in ("hidden", "disabled", "learned") if getattr(subject, flag)]
    if subject.shadowed:
        flags.append("its slug is another file's")
    return f"  ({', '.join(flags)})" if flags else ""


def _fragments(knowledge: Knowledge, fragments: list[Fragment]) -> str:
    from kbtui.text import one_line

    lines = ["JP's prompt fragments (read-only)"]
    for fragment in fragments:
        loaded = ", ".join(fragment.loaded_by) or "nothing"
        lines.append(f"  {_path(knowledge, fragment)}: {one_line(fragment.name)}")
        lines.append(f"    loaded by {loaded}")
    return "\n".join(lines)


def _path(knowledge: Knowledge, thing: Subject | Fragment) -> str:
    from kbtui.knowledge.topic_config import shown

    return shown(knowledge.workspace.root, thing.path)


def _as_json(
    knowledge: Knowledge,
    topics: list[Topic],
    subjects: dict[str, list[Subject]],
    fragments: list[Fragment],
    *,
    hidden: bool,
) -> dict[str, Any]:
    return {
        "topics": [
            {
                "id": topic.id,
                "title": topic.title,
                "introduction": topic.introduction,
                "description": topic.description,
                "enable": topic.enable,
                "directory": topic.subjects,
                "learned": list(topic.learned),
                "disabled": list(topic.disabled),
                "hidden_count": sum(subject.hidden for subject in subjects[topic.id]),
                "subjects": [
                    {
                        "ref": f"{topic.id}/{subject.slug}",
                        "slug": subject.slug,
                        "path": _path(knowledge, subject),
                        "size": subject.size,
                        "hidden": subject.hidden,
                        "disabled": subject.disabled,
                        "learned": subject.learned,
                        "shadowed": subject.shadowed,
                    }
                    for subject in subjects[topic.id]
                    if hidden or not subject.hidden
                ],
            }
            for topic in topics
        ],
        "fragments": [
            {
                "path": _path(knowledge, fragment),
                "tag": fragment.tag,
                "title": fragment.title,
                "content": fragment.content,
                "loaded_by": list(fragment.loaded_by),
            }
            for fragment in fragments
        ],
        "problems": [
            {
                "message": problem.message,
                "where": problem.where,
                "key": problem.key,
                "topic": problem.topic,
                "hint": problem.hint,
            }
            for problem in knowledge.problems
        ],
    }
