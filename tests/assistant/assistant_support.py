"""What the assistants' tests share: a small workspace, and an end to its engine."""

from collections.abc import Sequence

from support import Builder, asked, called, said

LIVE, OTHER, ARCHIVED = 17_800_000_001, 17_800_000_002, 17_800_000_003


def fill(builder: Builder) -> None:
    """A topic with all kinds of subjects, two live conversations and an archived one."""
    builder.topics(
        guide={
            "title": "User Guide",
            "description": "How to use it.",
            "learned": ["basics"],
            "disabled": ["retired"],
        },
        off={"enable": False},
    )
    builder.subject("guide/start.md", "# Getting started\n\nFeed the aardvark at dusk.\n")
    builder.subject("guide/basics.md", "# Basics\n\nAn aardvark is not a badger.\n")
    builder.subject("guide/.inner.md", "# Inner\n\nThe hidden aardvark has a zebra.\n")
    builder.subject("guide/retired.md", "# Retired\n\nThe disabled aardvark has a walrus.\n")
    builder.subject("off/other.md", "# Other\n\nThe switched off aardvark has a narwhal.\n")
    builder.conversation(
        1,
        [
            [asked("Where does the badger live?"), said("In its sett.")],
            [
                asked("And the aardvark?"),
                *called("a", "learn", "Feed it.", topic="guide", subjects="start"),
                said("In a <burrow> & nowhere else."),
            ],
        ],
        title="Badgers & friends",
    )
    builder.conversation(2, [[asked("Only a badger."), said("Yes.")]], title="More badgers")
    builder.conversation(3, [[asked("An old badger."), said("Gone.")]], title="Old", archived=True)


def without_lines(text: str, beginnings: Sequence[str]) -> str:
    """A text without the lines that begin so: times of files differ from run to run."""
    kept = [line for line in text.split("\n") if not line.strip().startswith(tuple(beginnings))]
    return "\n".join(kept)
