"""The two themes of our own, and the colours that every theme is given besides its own."""

from __future__ import annotations

from textual.color import Color
from textual.theme import Theme

DARK, LIGHT = "kbtui-dark", "kbtui-light"

THEMES = (
    Theme(
        name=DARK,
        primary="#7aa2d6",
        secondary="#8fb38f",
        accent="#d9a86c",
        warning="#d9b36c",
        error="#e08080",
        success="#8fb38f",
        foreground="#d4d7dc",
        background="#16181d",
        surface="#1c1f26",
        panel="#252932",
        dark=True,
    ),
    Theme(
        name=LIGHT,
        primary="#1f5fa8",
        secondary="#2f6b3a",
        accent="#8a5200",
        warning="#855800",
        error="#b02a2a",
        success="#2f6b3a",
        foreground="#22262e",
        background="#fbfaf7",
        surface="#f3f1ec",
        panel="#e6e3db",
        dark=False,
    ),
)


def blended(variables: dict[str, str]) -> dict[str, str]:
    """Solid colours made of a theme's own, so that any theme has them.

    `kb-dim` is for what matters less, `kb-line` for rules and quiet borders,
    `kb-cursor` and `kb-cursor-off` for the line one is at, `kb-found` for matches.
    """
    foreground = Color.parse(variables["foreground"])
    background = Color.parse(variables["background"])
    primary = Color.parse(variables["primary"])
    accent = Color.parse(variables["accent"])
    return {
        "kb-dim": foreground.blend(background, 0.27).hex,
        "kb-line": foreground.blend(background, 0.76).hex,
        "kb-cursor": background.blend(primary, 0.17).hex,
        "kb-cursor-off": background.blend(foreground, 0.08).hex,
        "kb-found": background.blend(accent, 0.32).hex,
    }
