"""The commands `topics`, `learn` and `prompt`, which show what assistants know."""

from __future__ import annotations

from dataclasses import asdict

from kbtui.cli.cli_output import (
    StderrWaitIndicator,
    print_json_result,
    print_result,
    print_to_stderr,
)
from kbtui.terminal_text import sanitize_to_one_line
from kbtui.workspace.paths import format_path_relative_to_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import JpPromptSection, Subject, Topic


def declare_topics_command_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="list only this topic")
    parser.add_argument("--hidden", action="store_true", help="include hidden subjects")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    _add_options_to_preload_subjects_and_set_config(parser)


def run_topics_command(args: Namespace) -> int:
    """List topics and their subjects, and JP's own prompt sections.

    Hidden subjects are counted but not listed, unless --hidden is given.
    """
    knowledge = _load_knowledge_with_options(args)
    if args.topic is None:
        topics, sections = list(knowledge.topics.values()), knowledge.read_jp_prompt_sections()
    else:
        named = knowledge.topics.get(args.topic)
        topics, sections = [named or knowledge.resolve_topic(args.topic)], []
    with StderrWaitIndicator("listing subjects"):
        subjects = {topic.id: knowledge.list_subjects(topic.id) for topic in topics}
    if args.json:
        print_json_result(
            _serialize_topics(knowledge, topics, subjects, sections, hidden=args.hidden)
        )
    else:
        blocks = [
            _format_topic_with_subjects(topic, subjects[topic.id], hidden=args.hidden)
            for topic in topics
        ]
        if sections:
            blocks.append(_format_list_of_jp_prompt_sections(knowledge, sections))
        if blocks:
            print_result("\n\n".join(blocks) + "\n")
    if topics or sections:
        return 0
    if not args.json:
        print_to_stderr(f"no topics are configured; {knowledge.hint_to_declare_topic}")
    return 2 if knowledge.problems else 1


def _format_topic_with_subjects(topic: Topic, subjects: list[Subject], *, hidden: bool) -> str:
    title = f"  {sanitize_to_one_line(topic.title)}" if topic.title else ""
    lines = [f"{topic.id}{title}{'' if topic.enable else '  (disabled)'}"]
    if topic.introduction:
        lines.append(f"  {sanitize_to_one_line(topic.introduction)}")
    lines += [
        f"  {topic.id}/{subject.slug}{_format_hidden_disabled_and_preloaded_flags(subject)}"
        for subject in subjects
        if hidden or not subject.hidden
    ]
    count = 0 if hidden else sum(subject.hidden for subject in subjects)
    if count:
        lines.append(f"  and {count} hidden (--hidden lists them)")
    if not subjects:
        lines.append("  no subjects")
    return "\n".join(lines)


def _format_hidden_disabled_and_preloaded_flags(subject: Subject) -> str:
    flags = [
        name
        for name, value in _convert_fields_to_dict(subject, "hidden disabled learned").items()
        if value
    ]
    if subject.shadowed:
        flags.append("another file has the same slug")
    return f"  ({', '.join(flags)})" if flags else ""


def _format_list_of_jp_prompt_sections(
    knowledge: KnowledgeBase, sections: list[JpPromptSection]
) -> str:
    lines = ["JP's prompt sections (read-only)"]
    for section in sections:
        loaded = ", ".join(section.loaded_by) or "nothing"
        lines.append(
            f"  {_get_path_relative_to_workspace(knowledge, section)}: {sanitize_to_one_line(section.name)}"
        )
        lines.append(f"    loaded by {loaded}")
    return "\n".join(lines)


def _get_path_relative_to_workspace(
    knowledge: KnowledgeBase, thing: Subject | JpPromptSection
) -> str:
    return format_path_relative_to_root(knowledge.workspace.root, thing.path)


def _serialize_topics(
    knowledge: KnowledgeBase,
    topics: list[Topic],
    subjects: dict[str, list[Subject]],
    sections: list[JpPromptSection],
    *,
    hidden: bool,
) -> dict[str, object]:
    topic_fields = "id title introduction description enable learned disabled"
    return {
        "topics": [
            {
                **_convert_fields_to_dict(topic, topic_fields),
                "directory": topic.subjects,
                "hidden_count": sum(subject.hidden for subject in subjects[topic.id]),
                "subjects": [
                    {
                        "ref": f"{topic.id}/{subject.slug}",
                        "path": _get_path_relative_to_workspace(knowledge, subject),
                        **_convert_fields_to_dict(
                            subject, "slug size hidden disabled learned shadowed"
                        ),
                    }
                    for subject in subjects[topic.id]
                    if hidden or not subject.hidden
                ],
            }
            for topic in topics
        ],
        "fragments": [
            {
                "path": _get_path_relative_to_workspace(knowledge, section),
                **_convert_fields_to_dict(section, "tag title content loaded_by"),
            }
            for section in sections
        ],
        "problems": [asdict(problem) for problem in knowledge.problems],
    }


def _convert_fields_to_dict(
    record: Topic | Subject | JpPromptSection, names: str
) -> dict[str, object]:
    return {name: getattr(record, name) for name in names.split()}


def declare_learn_command_arguments(parser: ArgumentParser) -> None:
    add, text = parser.add_argument, "a slug, lines of a subject (SLUG:12-18), or a glob"
    add("topic", metavar="TOPIC", help="a topic's id or title")
    add("subjects", nargs="*", default=[], metavar="SUBJECT", help=text)
    _add_options_to_preload_subjects_and_set_config(parser)


def run_learn_command(args: Namespace) -> int:
    """Print exactly what the `learn` tool returns for a topic or its subjects.

    Without SUBJECT it prints the topic's listing. With one slug it prints the text of
    the subject. With several slugs or a glob (* for one level, ** for any depth) it prints
    each text in <subject> tags. SLUG:12-18 prints lines 12 to 18. With -k, subjects that are
    already in the output of `kbtui prompt -k` are named but not printed.
    """
    knowledge = _load_knowledge_with_options(args)
    with StderrWaitIndicator("reading subjects"):
        learned = knowledge.learn(args.topic, args.subjects, has_prompt=bool(args.knowledge))
    print_result(learned.text)
    return 1 if learned.is_error else 0


def declare_prompt_command_arguments(parser: ArgumentParser) -> None:
    _add_options_to_preload_subjects_and_set_config(parser)


def run_prompt_command(args: Namespace) -> int:
    """Print the <knowledge> section exactly as the system prompt contains it."""
    knowledge = _load_knowledge_with_options(args)
    with StderrWaitIndicator("reading subjects"):
        text = knowledge.format_knowledge_section()
    if text is None:
        print_to_stderr("no <knowledge> section: there is nothing to list or pre-load")
        return 1
    print_result(text)
    return 0


def _add_options_to_preload_subjects_and_set_config(parser: ArgumentParser) -> None:
    add, text = parser.add_argument, "also pre-load these subjects (repeatable)"
    add("-k", "--knowledge", action="append", default=[], metavar="TOPIC/GLOB", help=text)
    text = "load a named configuration, or set kb.topic.ID.KEY=VALUE; += appends (repeatable)"
    add("--cfg", action="append", default=[], metavar="NAME|KEY=VALUE", help=text)


def _load_knowledge_with_options(args: Namespace) -> KnowledgeBase:
    """Load the topics and subjects with the options `--cfg` and `-k` applied, and print problems on stderr."""
    from kbtui.library import open_workspace

    with StderrWaitIndicator("reading the topics"):
        library = open_workspace(args.workspace)
        knowledge = library.load_knowledge(cfg=args.cfg, knowledge=args.knowledge)
    for problem in knowledge.problems:
        print_to_stderr(str(problem))
    for value in args.knowledge:
        topic, _, pattern = value.partition("/")
        resolved = knowledge.get_topic_slugs_by_visibility(topic)
        if not resolved.list_matching_slugs([pattern]):
            from kbtui.knowledge.knowledge_lint import explain_pattern_without_match

            why = explain_pattern_without_match(resolved, pattern)
            print_to_stderr(f"-k {value} matches no subject" + (f" ({why})" if why else ""))
    return knowledge
