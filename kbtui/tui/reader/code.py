"""Source text to spans: pygments' tokens as a handful of roles."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kbtui.text import safe

if TYPE_CHECKING:
    from typing import Any

    from kbtui.tui.framework.styled_text import Spans

TAB = 4
HIGHLIGHT_MOST = 60_000
"""Characters; more than this in one piece is shown without colours, so that it does not stall."""


def source_lines(text: str, language: str | None) -> list[Spans]:
    """`text` line by line, safe, tabs expanded, highlighted where pygments knows `language`."""
    text = safe(text).expandtabs(TAB)
    lexer = _lexer(language) if language and len(text) <= HIGHLIGHT_MOST else None
    if lexer is None:
        return [[(line, "")] if line else [] for line in text.split("\n")]
    lines: list[Spans] = [[]]
    for kind, value in lexer.get_tokens(text):
        role = _role(kind)
        first, *others = value.split("\n")
        if first:
            line = lines[-1]
            if line and line[-1][1] == role:
                line[-1] = (line[-1][0] + first, role)
            else:
                line.append((first, role))
        lines += [[(part, role)] if part else [] for part in others]
    # Lexers end a text with a newline that it may not have had.
    wanted = text.count("\n") + 1
    del lines[wanted:]
    lines += [[] for _ in range(wanted - len(lines))]
    return lines


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


_ROLES = (
    ("Comment", "comment"),
    ("Keyword", "keyword"),
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
    ("Literal.Date", "number"),
    ("Name.Function", "function"),
    ("Name.Class", "type"),
    ("Name.Tag", "keyword"),
    ("Name.Attribute", "function"),
    ("Name.Builtin", "type"),
    ("Name.Decorator", "function"),
    ("Name.Namespace", "type"),
    ("Operator.Word", "keyword"),
    ("Generic.Heading", "h3"),
    ("Generic.Subheading", "h3"),
    ("Generic.Strong", "strong"),
    ("Generic.Emph", "emph"),
    ("Generic.Inserted", "inserted"),
    ("Generic.Deleted", "deleted"),
)


@lru_cache(maxsize=512)
def _role(kind: Any) -> str:
    name = ".".join(kind)
    return next(
        (role for prefix, role in _ROLES if name == prefix or name.startswith(f"{prefix}.")), ""
    )
