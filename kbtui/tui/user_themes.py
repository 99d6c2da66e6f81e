"""Themes of one's own: TOML files in the directory `themes` beside the configuration file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

from kbtui.workspace.regular import read_regular

if TYPE_CHECKING:
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

    values: dict[str, Any] = tomllib.loads(read_regular(path).decode("utf-8-sig"))
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
