"""How each role of text looks: a colour, a ground and a style of letters.

They are not in the styles file, because finding the rules for each of them would
take a part of the time to the first paint that one notices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style
from textual.color import Color

if TYPE_CHECKING:
    from collections.abc import Mapping


class TextStyle(NamedTuple):
    """Names of a theme's colours (`kb-dim`), "" for none; `letters` as Rich writes styles."""

    text: str = ""
    letters: str = ""
    ground: str = ""


LOOKS: dict[str, TextStyle] = {
    "dim": TextStyle("kb-dim"),
    "strong": TextStyle(letters="bold"),
    "emph": TextStyle(letters="italic"),
    "struck": TextStyle(letters="strike"),
    "accent": TextStyle("kb-accent"),
    "error": TextStyle("kb-error"),
    "warning": TextStyle("kb-warning"),
    "key": TextStyle("kb-primary", "bold"),
    "section": TextStyle("kb-dim", "bold"),
    "day": TextStyle("kb-dim", "italic"),
    "rule": TextStyle("kb-line"),
    "marker": TextStyle("kb-primary"),
    "turn": TextStyle("kb-primary", "bold"),
    "user": TextStyle("kb-secondary"),
    "assistant": TextStyle("kb-primary"),
    "tool": TextStyle("kb-text"),
    "note": TextStyle("kb-accent", "bold"),
    "cursor": TextStyle(ground="kb-cursor"),
    "cursor-off": TextStyle(ground="kb-cursor-off"),
    "found": TextStyle("kb-found-text", "bold", "kb-found"),
    "found-here": TextStyle("kb-here-text", "bold", "kb-accent"),
    "h1": TextStyle("kb-primary", "bold"),
    "h2": TextStyle("kb-primary", "bold"),
    "h3": TextStyle("kb-text", "bold"),
    "h4": TextStyle("kb-text", "bold italic"),
    "h5": TextStyle("kb-text", "bold italic"),
    "h6": TextStyle("kb-text", "bold italic"),
    "link": TextStyle("kb-primary", "underline"),
    "quote": TextStyle("kb-dim"),
    "html": TextStyle("kb-dim"),
    "code": TextStyle(ground="kb-surface"),
    "code-inline": TextStyle("kb-accent"),
    "comment": TextStyle("kb-dim", "italic"),
    "keyword": TextStyle("kb-primary"),
    "string": TextStyle("kb-secondary"),
    "number": TextStyle("kb-accent"),
    "function": TextStyle("kb-text", "bold"),
    "type": TextStyle("kb-accent"),
    "inserted": TextStyle("kb-success"),
    "deleted": TextStyle("kb-error"),
}


def styled(roles: str, colours: Mapping[str, str]) -> Style:
    """The style of one role or several, later ones winning; what is no role says nothing.

    What was found stands out in whatever it was found, so its roles win over all.

    `colours` are a theme's variables, as `KbApp.get_css_variables` gives them.
    """
    style = Style()
    for role in sorted(roles.split(), key=lambda role: role.startswith("found")):
        if look := LOOKS.get(role):
            text, ground = (
                Color.parse(colours[name]).rich_color if name else None
                for name in (look.text, look.ground)
            )
            letters = dict.fromkeys(look.letters.split(), True)
            style += Style(color=text, bgcolor=ground, **letters)  # type: ignore[arg-type]
    return style
