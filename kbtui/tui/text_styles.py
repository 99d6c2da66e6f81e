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


class Look(NamedTuple):
    """Names of a theme's colours (`kb-dim`), "" for none; `letters` as Rich writes styles."""

    text: str = ""
    letters: str = ""
    ground: str = ""


LOOKS: dict[str, Look] = {
    "dim": Look("kb-dim"),
    "strong": Look(letters="bold"),
    "emph": Look(letters="italic"),
    "struck": Look(letters="strike"),
    "accent": Look("kb-accent"),
    "error": Look("kb-error"),
    "warning": Look("kb-warning"),
    "key": Look("kb-primary", "bold"),
    "section": Look("kb-dim", "bold"),
    "day": Look("kb-dim", "italic"),
    "rule": Look("kb-line"),
    "marker": Look("kb-primary"),
    "turn": Look("kb-primary", "bold"),
    "user": Look("kb-secondary"),
    "assistant": Look("kb-primary"),
    "tool": Look("kb-text"),
    "note": Look("kb-accent", "bold"),
    "cursor": Look(ground="kb-cursor"),
    "cursor-off": Look(ground="kb-cursor-off"),
    "found": Look("kb-found-text", "bold", "kb-found"),
    "found-here": Look("kb-here-text", "bold", "kb-accent"),
    "h1": Look("kb-primary", "bold"),
    "h2": Look("kb-primary", "bold"),
    "h3": Look("kb-text", "bold"),
    "h4": Look("kb-text", "bold italic"),
    "h5": Look("kb-text", "bold italic"),
    "h6": Look("kb-text", "bold italic"),
    "link": Look("kb-primary", "underline"),
    "quote": Look("kb-dim"),
    "html": Look("kb-dim"),
    "code": Look(ground="kb-surface"),
    "code-inline": Look("kb-accent"),
    "comment": Look("kb-dim", "italic"),
    "keyword": Look("kb-primary"),
    "string": Look("kb-secondary"),
    "number": Look("kb-accent"),
    "function": Look("kb-text", "bold"),
    "type": Look("kb-accent"),
    "inserted": Look("kb-success"),
    "deleted": Look("kb-error"),
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
