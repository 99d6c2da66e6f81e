"""Print exactly the <knowledge> section that the system prompt would have."""

from __future__ import annotations

from kbtui.cli.knowledge_options import configure_knowledge, open_knowledge
from kbtui.cli.output import emit, note
from kbtui.cli.progress import working

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui prompt` (decisions D)."""
    configure_knowledge(parser)


def run(args: Namespace) -> int:
    """Print the section; 1 when there is none."""
    knowledge = open_knowledge(args)
    with working("reading subjects"):
        text = knowledge.prompt()
    if text is None:
        note("there is nothing to list or pre-load, so there is no <knowledge> section")
        return 1
    emit(text)
    return 0
