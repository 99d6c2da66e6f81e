"""What the conversation tools say, in the words of the command line.

The tools speak to assistants, whose arguments are `turn=3` and `include_current=true`; a person
has options.
"""

import re

from kbtui.errors import KbtuiError

_OPTIONS = {
    "ids": "--id",
    "scopes": "--scope",
    "include": "--include",
    "max_chars": "--max-chars",
    "pattern": "PATTERN",
    "id": "ID",
    **{name: f"--{name}" for name in ("limit", "offset", "sort", "context", "turn", "last")},
}
_WORDS = [
    (r"ask with archived=true", "add --archived"),
    (r"ask with archived=false", "leave out --archived"),
    (r"`conversation_list` gives the ids", "`kbtui conversation ls` lists them"),
    (
        r"ask with a longer pattern, ids or scopes, or a larger limit",
        "a longer pattern, -i or -s narrows, --limit gives more",
    ),
    (r"ask with another turn, or with last", "--turn N gives another, --last N the last ones"),
    (r"ask with turn, or a larger last", "--turn N gives one, a larger --last more"),
    (r"ask with a smaller offset", "give a smaller --offset"),
    (r"ask for one turn with", "give one turn with"),
    (r"ask with include for fewer kinds of event", "--include gives fewer kinds of event"),
    (r"fewer kinds of event with include", "fewer kinds of event with --include"),
    (r"turn and last exclude each other", "--turn and --last exclude each other"),
    (r"\bask with (offset|turn|last)=(\d+)", r"--\1 \2"),
    (r"\b(turn|last)=(\d+)", r"--\1 \2"),
]


def for_people(text: str) -> str:
    """A remark or hint with options in place of arguments."""
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text


def reworded(error: KbtuiError) -> KbtuiError:
    """The same error, of the same kind, in those words."""
    where = _OPTIONS.get(error.where, error.where) if error.where else None
    hint = for_people(error.hint) if error.hint else None
    return type(error)(for_people(error.message), where=where, hint=hint)
