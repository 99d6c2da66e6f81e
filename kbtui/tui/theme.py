"""Built-in and user themes, and the colours that kbtui derives from a theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.color import BLACK, WHITE, Color, ColorParseError
from textual.theme import Theme

from kbtui.file_reading_and_writing import read_regular_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


COLORS = (
    "primary", "secondary", "accent", "warning", "error", "success",
    "foreground", "background", "surface", "panel",
)  # fmt: skip
"""The names of the colours that a theme file may set."""

DARK, LIGHT = "kbtui-dark", "kbtui-light"
READABLE_CONTRAST = 4.5
"""The minimum contrast ratio of readable text to its background (WCAG 2, level AA)."""

# Each theme has one line, with its colours in the order of COLORS.
_BUILTIN = {
    DARK: "7aa2d6 8fb38f d9a86c d9b36c e08080 8fb38f d4d7dc 16181d 1c1f26 252932",
    LIGHT: "1f5fa8 2f6b3a 8a5200 855800 b02a2a 2f6b3a 22262e fbfaf7 f3f1ec e6e3db",
    "kbtui-contrast-dark": "8cd3ff 9dff9d ffd75f ffd75f ff9a9a 9dff9d ffffff 000000 141414 262626",
    "kbtui-contrast-light": "003a80 00471b 5c2f00 5c3a00 8a0000 00471b 000000 ffffff f2f2f2 dedede",
    # These themes use blue, orange and yellow, which people with any kind of colour blindness can tell apart.
    "kbtui-safe-dark": "56b4e9 f0e442 e69f00 f0e442 ff8f5a 56b4e9 dcdcdc 14171c 1b1f26 272c35",
    "kbtui-safe-light": "00558c 6b5000 8f4a00 6b5000 a33c00 00558c 1e2228 fbfbf9 f1f1ee e2e2dd",
}


def _make_builtin_theme(name: str, colors: str) -> Theme:
    values = {key: f"#{value}" for key, value in zip(COLORS, colors.split(), strict=True)}
    return Theme(name=name, dark=name.endswith("-dark"), **values)  # type: ignore[arg-type]


THEMES = tuple(_make_builtin_theme(name, colors) for name, colors in _BUILTIN.items())


def load_user_themes(directory: Path) -> tuple[list[Theme], list[str]]:
    """Return the themes in the `.toml` files in a directory, and a message about each invalid file."""
    themes: list[Theme] = []
    problems: list[str] = []
    try:
        paths = sorted(directory.glob("*.toml"))
    except OSError as error:
        return [], [f"{directory}: {error.strerror}"]
    for path in paths:
        try:
            themes.append(_load_theme_file(path))
        except (OSError, ValueError) as error:
            problems.append(f"theme {path.name}: {error}")
    return themes, problems


def _load_theme_file(path: Path) -> Theme:
    """Read a theme file. Raises `OSError`, or `ValueError` if the content is invalid."""
    import tomllib

    values: dict[str, Any] = tomllib.loads(read_regular_file(path).decode("utf-8-sig"))
    dark = values.pop("dark", True)
    if not isinstance(dark, bool):
        raise ValueError("'dark' must be true or false")
    for key, value in values.items():
        if key not in COLORS:
            from difflib import get_close_matches

            near = get_close_matches(key, [*COLORS, "dark"], n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: dark, {', '.join(COLORS)}"
            raise ValueError(f"unknown key {key!r}; {hint}")
        try:
            Color.parse(value if isinstance(value, str) else "")
        except ColorParseError as error:
            raise ValueError(f"{key}: invalid colour {value!r}; write it like '#7aa2d6'") from error
    if "primary" not in values:
        raise ValueError("the colour 'primary' is missing")
    return Theme(name=path.stem, dark=dark, **values)


def get_light_or_dark_counterpart(name: str, dark: bool) -> str:
    """Return the light variant of a dark theme, or the dark variant of a light theme.

    `dark` says whether the theme `name` is dark. Only kbtui's own themes have variants. For any
    other theme, return kbtui's light or dark default theme.
    """
    brightness, default = ("light", LIGHT) if dark else ("dark", DARK)
    other = f"{name.rpartition('-')[0]}-{brightness}"
    return other if name in _BUILTIN else default


def derive_readable_colors(variables: dict[str, str]) -> dict[str, str]:
    """Return the `kb-…` colours, which are a theme's colours adjusted so that all text is readable.

    * `kb-cursor` is the background of the current line in the focused pane. `kb-cursor-off` is the
      background of the current line in other panes.
    * `kb-found` is the background of matches, and `kb-found-text` is the colour of their text.
    * `kb-here-text` is the colour of text on `kb-accent`.
    * `kb-line` is the colour of rules and borders.
    * `kb-surface` is the background of code, the search bar and the key hints.

    All other `kb-…` colours are text colours. Each one is blended with black or white until it is
    readable on all backgrounds except `kb-found`.
    """
    foreground = Color.parse(variables["foreground"])
    background = Color.parse(variables["background"])
    if foreground.ansi is not None or background.ansi is not None:
        return _derive_kb_colors_of_ansi_theme(variables)
    text = max((WHITE, BLACK), key=lambda color: compute_contrast_ratio(color, background))

    def tint_background_color(color: Color, amount: float) -> Color:
        # Keep a contrast of at least 6 to white or black text, so that dimmer text is readable too.
        while amount > 0.01 and compute_contrast_ratio(text, background.blend(color, amount)) < 6:
            amount *= 0.8
        return background.blend(color, amount)

    colors = {name: Color.parse(variables[name]) for name in _TEXT_COLORS}
    surface = tint_background_color(Color.parse(variables["surface"]), 1.0)
    cursor = tint_background_color(colors["primary"], 0.17)
    cursor_off = tint_background_color(foreground, 0.08)
    grounds = (background, surface, cursor, cursor_off)
    found = tint_background_color(colors["accent"], 0.32)
    derived = {f"kb-{name}": make_color_readable(color, grounds) for name, color in colors.items()}
    derived |= {
        "kb-text": make_color_readable(foreground, grounds),
        "kb-dim": make_color_readable(foreground.blend(background, 0.27), grounds),
        "kb-line": foreground.blend(background, 0.76),
        "kb-surface": surface,
        "kb-cursor": cursor,
        "kb-cursor-off": cursor_off,
        "kb-found": found,
        "kb-found-text": make_color_readable(foreground, [found]),
        "kb-here-text": make_color_readable(background, [derived["kb-accent"]]),
    }
    return {name: color.hex6 for name, color in derived.items()}


_TEXT_COLORS = ("primary", "secondary", "accent", "warning", "error", "success")


def compute_contrast_ratio(one: Color, other: Color) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2)."""
    light, dark = sorted((_compute_luminance(one), _compute_luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _compute_luminance(color: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
        for part in color.normalized
    )
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue)


def make_color_readable(color: Color, grounds: Sequence[Color]) -> Color:
    """Blend a colour with black or white until it is readable on all backgrounds in `grounds`."""

    def get_lowest_contrast_ratio(one: Color) -> float:
        return min(compute_contrast_ratio(one, ground) for ground in grounds)

    end = max((WHITE, BLACK), key=get_lowest_contrast_ratio)
    blends = (color.blend(end, step / 20) for step in range(21))
    # Require slightly more contrast, because rounding to 8 bits may lower it.
    enough = READABLE_CONTRAST + 0.05
    return next((blend for blend in blends if get_lowest_contrast_ratio(blend) >= enough), end)


def _derive_kb_colors_of_ansi_theme(variables: dict[str, str]) -> dict[str, str]:
    """Return the `kb-…` colours of a theme that uses the terminal's palette.

    The colours of this palette are unknown. So only matches get a background of their own, and the
    current line is marked by a sign instead.
    """
    plain = ("kb-text", "kb-dim", "kb-line", "kb-surface", "kb-cursor", "kb-cursor-off")
    return {
        **{f"kb-{name}": variables[name] for name in _TEXT_COLORS},
        **dict.fromkeys(plain, "ansi_default"),
        "kb-found": "ansi_yellow",
        "kb-found-text": "ansi_black",
        "kb-accent": "ansi_yellow",
        "kb-here-text": "ansi_black",
    }
