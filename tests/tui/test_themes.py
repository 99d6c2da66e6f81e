"""Themes: every text is readable in every theme, the user's themes, the terminal's background."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
import textual.containers
import textual.widgets
from hypothesis import given
from hypothesis import strategies as st
from support import Builder
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme
from tui_support import running

from kbtui.tui.framework.base_screens_and_widgets import TEXT_STYLES, resolve_style_roles
from kbtui.tui.terminal_setup import is_terminal_color_dark
from kbtui.tui.theme import (
    READABLE_CONTRAST,
    THEMES,
    compute_contrast_ratio,
    derive_readable_colors,
    get_light_or_dark_counterpart,
    load_user_themes,
)

STYLES = Path(__file__).parents[2] / "kbtui" / "tui"


def _read_style_sheets() -> str:
    return "\n".join(path.read_text() for path in STYLES.glob("*.tcss"))


ALL = {theme.name: theme for theme in (*THEMES, *BUILTIN_THEMES.values())}
OF_COLOURS = [name for name in ALL if not name.startswith("ansi")]
GROUNDS = ("kb-surface", "kb-cursor", "kb-cursor-off", "background")


def pairs() -> set[tuple[str, str]]:
    """Return text and background of every role and rule; text without a background is on each."""
    found: set[tuple[str, str]] = set()
    for look in TEXT_STYLES.values():
        if look.color and look.color != "kb-line":
            found |= {
                (look.color, ground)
                for ground in ([look.background] if look.background else GROUNDS)
            }
    for body in re.findall(r"\{([^}]*)\}", _read_style_sheets()):
        facts = dict(
            re.findall(
                r"(?<![-\w])(color|background|border-title-color|border-subtitle-color): \$([\w-]+)",
                body,
            )
        )
        grounds = [facts["background"]] if "background" in facts else list(GROUNDS)
        for name in ("color", "border-title-color", "border-subtitle-color"):
            if name in facts and facts[name] != "kb-line":
                found |= {(facts[name], ground) for ground in grounds}
        if "background" in facts and "color" not in facts and facts["background"] in GROUNDS:
            found.add(("kb-text", facts["background"]))
    return found


def unreadable(theme: Theme) -> list[tuple[str, str, float]]:
    variables = theme.to_color_system().generate()
    made = {**derive_readable_colors(variables), "background": variables["background"]}
    colors = {name: Color.parse(value) for name, value in made.items()}
    ratios = [
        (text, ground, compute_contrast_ratio(colors[text], colors[ground]))
        for text, ground in pairs()
    ]
    return [
        (text, ground, round(ratio, 2))
        for text, ground, ratio in ratios
        if ratio < READABLE_CONTRAST
    ]


def test_the_styles_have_the_pairs_that_are_looked_at() -> None:
    found = pairs()
    assert {
        ("kb-dim", "kb-cursor"),
        ("kb-found-text", "kb-found"),
        ("kb-here-text", "kb-accent"),
        ("kb-text", "kb-surface"),
    } <= found
    assert len(found) > 30
    # The colours of a user's theme were checked by nobody.
    assert (
        not {text for text, _ in found}
        - set(derive_readable_colors(THEMES[0].to_color_system().generate()))
        - {"background"}
    )


@pytest.mark.parametrize("name", OF_COLOURS)
def test_every_text_can_be_read_in_every_theme(name: str) -> None:
    assert unreadable(ALL[name]) == []


colors = st.tuples(*[st.integers(0, 255)] * 3).map(lambda rgb: "#{:02x}{:02x}{:02x}".format(*rgb))


@given(colors, colors, colors, colors)
def test_whatever_colours_somebody_chooses(primary: str, accent: str, fore: str, back: str) -> None:
    theme = Theme(name="own", primary=primary, accent=accent, foreground=fore, background=back)
    assert unreadable(theme) == []


async def test_every_theme_draws_with_the_colours_that_were_tested(book: Builder) -> None:
    async with running(book.root) as tui:
        for name in (*(theme.name for theme in THEMES), "nord", "ansi-dark", "ansi-light"):
            tui.app.theme = name
            await tui.pilot.pause()
            screen = tui.main
            for role in ("dim", "accent", "error", "key", "found", "code-inline"):
                color = screen.get_role_style(role).color
                assert color is not None, (name, role)
                if name in OF_COLOURS:
                    variables = tui.app.get_css_variables()
                    wanted = {
                        "key": "kb-primary",
                        "found": "kb-found-text",
                        "code-inline": "kb-accent",
                    }
                    shown = Color.from_rich_color(color)
                    assert shown == Color.parse(variables[wanted.get(role, f"kb-{role}")]), role


def test_what_was_found_can_be_read_in_whatever_text_it_was_found() -> None:
    colours = derive_readable_colors(THEMES[0].to_color_system().generate())
    for found in ("found", "found-here"):
        alone = resolve_style_roles(found, colours)
        for role in TEXT_STYLES:
            for both in (f"{found} {role}", f"{role} {found}"):
                if not role.startswith("found"):
                    style = resolve_style_roles(both, colours)
                    assert (style.color, style.bgcolor) == (alone.color, alone.bgcolor), both


def test_dark_and_light_are_partners() -> None:
    for theme in THEMES:
        other = get_light_or_dark_counterpart(theme.name, theme.dark)
        assert ALL[other].dark is not theme.dark
        assert get_light_or_dark_counterpart(other, ALL[other].dark) == theme.name
    assert get_light_or_dark_counterpart("nord", True) == "kbtui-light"
    assert get_light_or_dark_counterpart("solarized-light", False) == "kbtui-dark"


def test_a_theme_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "paper.toml").write_text(
        'dark = false\nprimary = "#1f5fa8"\nbackground = "white"\n'
    )
    (tmp_path / "a.toml").write_text('primary = "#zzz"\n')
    (tmp_path / "b.toml").write_text('primray = "#ffffff"\n')
    (tmp_path / "c.toml").write_text('dark = "no"\nprimary = "#ffffff"\n')
    (tmp_path / "d.toml").write_text("= broken")
    (tmp_path / "e.toml").write_text("dark = true\n")
    (tmp_path / "f.toml").write_bytes(b"\xff\xfe")
    themes, problems = load_user_themes(tmp_path)
    assert [(theme.name, theme.dark) for theme in themes] == [("paper", False)]
    assert [problem.split(":")[0] for problem in problems] == [
        f"theme {name}.toml" for name in "abcdef"
    ]
    assert "did you mean 'primary'?" in problems[1]
    assert load_user_themes(tmp_path / "none") == ([], [])


async def test_it_is_chosen_in_the_palette_and_mistakes_are_said(
    book: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    directory = tmp_path / "kbtui" / "themes"
    directory.mkdir(parents=True)
    (directory / "paper.toml").write_text('dark = false\nprimary = "#1f5fa8"\n')
    (directory / "bad.toml").write_text('primary = "no colour"\n')
    async with running(book.root, size=(160, 40)) as tui:
        await tui.until("! theme bad.toml: primary: invalid colour 'no colour'")
        await tui.press("ctrl+p")
        await tui.until(lambda: getattr(tui.app.focused, "id", "") == "palette-input")
        await tui.type("theme paper")
        await tui.until("Theme: paper")
        await tui.press("enter")
        await tui.until(lambda: tui.app.theme == "paper")


@pytest.mark.parametrize(
    ("color", "dark"),
    [
        ("0000/0000/0000", True),
        ("ffff/ffff/ffff", False),
        ("1e1e/1e1e/2e2e", True),
        ("fd/f6/e3", False),
        ("f/f/f", False),
        ("0/0/0/ffff", True),
        ("", None),
        ("12/34", None),
        ("gg/00/00", None),
    ],
)
def test_a_colour_that_a_terminal_names(color: str, dark: bool | None) -> None:
    assert is_terminal_color_dark(color) is dark


ASK = """
import json, sys
from kbtui.tui.terminal_setup import TerminalBackgroundQuery
query = TerminalBackgroundQuery()
import textual.app  # what the user types during imports is not lost
found = query.read_answer()
print("FOUND", json.dumps(found), flush=True)
"""


@pytest.mark.parametrize(
    ("answer", "environment", "found"),
    [
        ("\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62;c", {}, [False, ""]),
        ("\x1b]11;rgb:0000/0000/0000\x07\x1b[?1;2c", {}, [True, ""]),
        # What the user typed meanwhile is not lost.
        ("/a\x1b]11;rgb:ffff/ffff/ffff\x07b\x1b[?1;2c", {}, [False, "/ab"]),
        ("\x1b[?1;2c", {"COLORFGBG": "0;15"}, [False, ""]),
        ("\x1b[?1;2c", {"COLORFGBG": "15;default;0"}, [True, ""]),
        ("\x1b[?1;2c", {}, [None, ""]),
    ],
)
def test_the_terminal_is_asked_for_its_background(
    answer: str, environment: dict[str, str], found: list[object]
) -> None:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLORFGBG", "SSH_CONNECTION")
    }
    kept |= {
        "TERM": "xterm-256color",
        "SSH_CONNECTION": "far away, so that it waits",
        **environment,
    }
    child = pexpect.spawn(
        sys.executable, ["-c", ASK], env=kept, timeout=60, encoding="utf-8", echo=False
    )
    child.expect_exact("\x1b]11;?\x1b\\\x1b[c")
    child.send(answer)
    child.expect("FOUND (.*)\r\n")
    assert json.loads(child.match[1]) == found
    child.close()


def test_without_a_terminal_or_an_answering_one_nothing_is_asked() -> None:
    for term in ("xterm", "dumb", "linux"):
        done = subprocess.run(
            [sys.executable, "-c", ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TERM": term, "COLORFGBG": ""},
        )
        assert done.stdout == 'FOUND [null, ""]\n'


async def test_a_light_terminal_begins_light(book: Builder) -> None:
    from kbtui.tui.app import TuiStartOptions

    for dark, theme in ((False, "kbtui-light"), (True, "kbtui-dark"), (None, "kbtui-dark")):
        async with running(book.root, start=TuiStartOptions(fresh=True, dark=dark)) as tui:
            assert tui.app.theme == theme


async def test_what_was_typed_early_is_handed_out(book: Builder) -> None:
    from kbtui.tui.app import TuiStartOptions

    async with running(book.root, start=TuiStartOptions(fresh=True, typed="/make")) as tui:
        await tui.until(lambda: tui.main.query_one("#search").value == "make")  # type: ignore[attr-defined]


def test_every_style_rule_names_a_widget_that_exists() -> None:
    """A rule for a class that was renamed would silently apply to nothing."""
    sources = [path.read_text() for path in STYLES.rglob("*.py")]
    widgets = set(re.findall(r"^\s*class (\w+)", "\n".join(sources), re.M)) | {
        *textual.widgets.__all__,
        *vars(textual.containers),
    }
    sheets = [_read_style_sheets()]
    for text in sources:
        sheets += [
            "".join(found) for found in re.findall(r'CSS = (?:"""(.*?)"""|"(.*?)")', text, re.S)
        ]
    for sheet in sheets:
        rules = re.sub(r"/\*.*?\*/", "", sheet, flags=re.S)
        for selector in re.findall(r"([^{};]+)\{", rules):
            named = set(re.findall(r"(?<![\w#.$:-])[A-Z]\w+", selector))
            assert named <= widgets, selector.strip()
