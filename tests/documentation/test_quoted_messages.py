"""Messages that the guide quotes exist in the program."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guide/troubleshooting.md"
SOURCES = "\n".join(
    path.read_text("utf-8") for path in [ROOT / "Makefile", *sorted(ROOT.glob("kbtui/**/*.py"))]
)
TABLE = PAGE.read_text("utf-8").split("## kbtui does not start")[1].split("\n## ")[0]
MESSAGES = re.findall(r"^\| `(.*?)` \|", TABLE, re.MULTILINE)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_one_of_the_program(message: str) -> None:
    fixed, _, _ = message.partition("'dumb'")
    assert fixed in SOURCES


def test_messages_are_quoted() -> None:
    assert len(MESSAGES) >= 5
