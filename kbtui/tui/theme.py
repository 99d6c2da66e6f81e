"""Themes: built-in ones, user themes, and the colours that kbtui adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.color import BLACK, WHITE, Color, ColorParseError
from textual.theme import Theme

from kbtui.files import read_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


COLORS = (
    "primary", "secondary", "accent", "warning", "error", "success",
    "foreground", "background", "surface", "panel",
)  # fmt: skip


def user_themes(directory: Path) -> tuple[list[Theme], list[str]]:
    """The themes that can be read, by the files' names, and what is wrong with the others."""
    themes: list[Theme] = []
    problems: list[str] = []
    try:
        paths = sorted(directory.glob("*.toml"))
    except OSError as error:
        return [], [f"{directory}: {error.strerror}"]
    for path in paths:
        try:
            themes.append(_theme(path))
        except (OSError, ValueError) as error:
            problems.append(f"theme {path.name}: {error}")
    return themes, problems


def _theme(path: Path) -> Theme:
    """Read one; raises `ValueError` (which TOML's errors are) with the reason, or `OSError`."""
    import tomllib

    values: dict[str, Any] = tomllib.loads(read_regular_file(path).decode("utf-8-sig"))
    dark = values.pop("dark", True)
    if not isinstance(dark, bool):
        raise ValueError("dark must be true or false")
    for key, value in values.items():
        if key not in COLORS:
            from difflib import get_close_matches

            near = get_close_matches(key, [*COLORS, "dark"], n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: dark, {', '.join(COLORS)}"
            raise ValueError(f"unknown key {key!r}; {hint}")
        try:
            Color.parse(value if isinstance(value, str) else "")
        except ColorParseError as error:
            raise ValueError(f"{key}: {value!r} is no colour; write '#7aa2d6'") from error
    if "primary" not in values:
        raise ValueError("primary is missing")
    return Theme(name=path.stem, dark=dark, **values)


DARK, LIGHT = "kbtui-dark", "kbtui-light"
READABLE = 4.5
"""The contrast that text has at least (WCAG 2, AA)."""

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
    Theme(
        name="kbtui-contrast-dark",
        primary="#8cd3ff",
        secondary="#9dff9d",
        accent="#ffd75f",
        warning="#ffd75f",
        error="#ff9a9a",
        success="#9dff9d",
        foreground="#ffffff",
        background="#000000",
        surface="#141414",
        panel="#262626",
        dark=True,
    ),
    Theme(
        name="kbtui-contrast-light",
        primary="#003a80",
        secondary="#00471b",
        accent="#5c2f00",
        warning="#5c3a00",
        error="#8a0000",
        success="#00471b",
        foreground="#000000",
        background="#ffffff",
        surface="#f2f2f2",
        panel="#dedede",
        dark=False,
    ),
    # Blue against orange and yellow, which every kind of colour vision keeps apart.
    Theme(
        name="kbtui-safe-dark",
        primary="#56b4e9",
        secondary="#f0e442",
        accent="#e69f00",
        warning="#f0e442",
        error="#ff8f5a",
        success="#56b4e9",
        foreground="#dcdcdc",
        background="#14171c",
        surface="#1b1f26",
        panel="#272c35",
        dark=True,
    ),
    Theme(
        name="kbtui-safe-light",
        primary="#00558c",
        secondary="#6b5000",
        accent="#8f4a00",
        warning="#6b5000",
        error="#a33c00",
        success="#00558c",
        foreground="#1e2228",
        background="#fbfbf9",
        surface="#f1f1ee",
        panel="#e2e2dd",
        dark=False,
    ),
)
NAMES = tuple(theme.name for theme in THEMES)


def partner(name: str, dark: bool) -> str:
    """The theme that shows the same in the other brightness."""
    if name.startswith("kbtui-") and name.endswith(("-dark", "-light")):
        stem, _, brightness = name.rpartition("-")
        other = f"{stem}-{'light' if brightness == 'dark' else 'dark'}"
        if other in NAMES:
            return other
    return LIGHT if dark else DARK


def blended(variables: dict[str, str]) -> dict[str, str]:
    """Solid colours made of a theme's own, so that any theme has them and any text is readable.

    Grounds: `kb-surface`, `kb-cursor` and `kb-cursor-off` for the line one is at, `kb-found`
    for matches. Text, moved towards black or white where it would not be readable on one of
    these: `kb-primary`, `kb-secondary`, `kb-accent`, `kb-warning`, `kb-error`, `kb-success`,
    and `kb-dim` for what matters less. `kb-line` is for rules and quiet borders,
    `kb-found-text` and `kb-here-text` stand on `kb-found` and `kb-accent`.
    """
    foreground = Color.parse(variables["foreground"])
    background = Color.parse(variables["background"])
    if foreground.ansi is not None or background.ansi is not None:
        return _of_the_terminal(variables)
    text = max((WHITE, BLACK), key=lambda color: contrast(color, background))

    def ground(color: Color, amount: float) -> Color:
        # As much of it as leaves room for text that differs from the strongest.
        while amount > 0.01 and contrast(text, background.blend(color, amount)) < 6:
            amount *= 0.8
        return background.blend(color, amount)

    colors = {name: Color.parse(variables[name]) for name in _TEXT}
    surface = ground(Color.parse(variables["surface"]), 1.0)
    cursor = ground(colors["primary"], 0.17)
    off = ground(foreground, 0.08)
    grounds = (background, surface, cursor, off)
    found = ground(colors["accent"], 0.32)
    made = {f"kb-{name}": readable(color, grounds) for name, color in colors.items()}
    made["kb-text"] = readable(foreground, grounds)
    made["kb-dim"] = readable(foreground.blend(background, 0.27), grounds)
    made["kb-line"] = foreground.blend(background, 0.76)
    made |= {"kb-surface": surface, "kb-cursor": cursor, "kb-cursor-off": off, "kb-found": found}
    made["kb-found-text"] = readable(foreground, [found])
    made["kb-here-text"] = readable(background, [made["kb-accent"]])
    return {name: color.hex6 for name, color in made.items()}


_TEXT = ("primary", "secondary", "accent", "warning", "error", "success")


def contrast(one: Color, other: Color) -> float:
    """The contrast of two colours, 1 to 21 (WCAG 2)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
        for part in color.normalized
    )
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue)


def readable(color: Color, grounds: Iterable[Color]) -> Color:
    """The colour, moved towards black or white until it is readable on all grounds."""
    grounds = list(grounds)

    def worst(one: Color) -> float:
        return min(contrast(one, ground) for ground in grounds)

    # A little more than the least, for what rounding takes away.
    if worst(color) >= READABLE + 0.05:
        return color
    end = max((WHITE, BLACK), key=worst)
    for step in range(1, 21):
        moved = color.blend(end, step / 20)
        if worst(moved) >= READABLE + 0.05:
            return moved
    return end


def _of_the_terminal(variables: dict[str, str]) -> dict[str, str]:
    """For a theme of the terminal's own colours, of which nobody knows how they look.

    Grounds are the terminal's own then; what is selected or found has its signs.
    """
    made = {f"kb-{name}": variables[name] for name in _TEXT}
    made |= dict.fromkeys(
        ("kb-text", "kb-dim", "kb-line", "kb-surface", "kb-cursor", "kb-cursor-off"), "ansi_default"
    )
    return made | {
        "kb-found": "ansi_yellow",
        "kb-found-text": "ansi_black",
        "kb-accent": "ansi_yellow",
        "kb-here-text": "ansi_black",
    }
