"""Print exactly what `learn` returns for a topic, or for subjects of it.

Without SUBJECT the topic's listing; with one slug that subject's text; with a
glob (* one level, ** any depth) or several, each in <subject> tags. SLUG:12-18
prints these lines. With -k it is what `learn` returns beside the prompt that
`kbtui prompt -k` prints: what stands there already is named and not printed.
"""

from __future__ import annotations

from kbtui.cli.knowledge_options import configure_knowledge, open_knowledge
from kbtui.cli.output import emit
from kbtui.cli.progress import working

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui learn` (decisions D)."""
    parser.add_argument("topic", metavar="TOPIC", help="a topic's id or title")
    parser.add_argument(
        "subjects",
        nargs="*",
        default=[],
        metavar="SUBJECT",
        help="a slug, lines of one (SLUG:12-18), or a glob",
    )
    configure_knowledge(parser)


def run(args: Namespace) -> int:
    """Print the bytes and nothing else; 1 when what they say is that nothing was found."""
    knowledge = open_knowledge(args)
    with working("reading subjects"):
        learned = knowledge.learn(args.topic, args.subjects, has_prompt=bool(args.knowledge))
    emit(learned.text)
    return 1 if learned.is_error else 0
