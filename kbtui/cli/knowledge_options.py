"""What `topics`, `learn` and `prompt` share: their options, and opening the knowledge."""

from __future__ import annotations

from kbtui.cli.output import note
from kbtui.cli.progress import working

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.knowledge import Knowledge


def configure_knowledge(parser: ArgumentParser) -> None:
    """The options that change the configuration for this call (decisions A1, A12)."""
    parser.add_argument(
        "-k",
        "--knowledge",
        action="append",
        default=[],
        metavar="TOPIC/GLOB",
        help="pre-load these subjects too (repeatable)",
    )
    parser.add_argument(
        "--cfg",
        action="append",
        default=[],
        metavar="NAME|KEY=VALUE",
        help="a configuration by name, or kb.topic.ID.KEY=VALUE, += to add (repeatable)",
    )


def open_knowledge(args: Namespace) -> Knowledge:
    """The knowledge that the arguments ask for; says on stderr what is wrong with it."""
    from kbtui.library import open_workspace

    with working("reading the topics"):
        knowledge = open_workspace(args.workspace).knowledge(cfg=args.cfg, knowledge=args.knowledge)
    for problem in knowledge.problems:
        note(str(problem))
    for value in args.knowledge:
        topic, _, pattern = value.partition("/")
        resolved = knowledge.resolved(topic)
        if not resolved.match([pattern]):
            from kbtui.knowledge.lint import why_dead

            why = why_dead(resolved, pattern)
            note(f"-k {value}: nothing matches" + (f" ({why})" if why else ""))
    return knowledge
