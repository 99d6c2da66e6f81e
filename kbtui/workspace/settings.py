"""kbtui's own settings: `config.toml` under the XDG configuration directory.

Every key has a default; the guide lists them. An unknown key is an error that
names the nearest known one (issue "a pleasure to use", 8).
"""

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kbtui.errors import ConfigError
from kbtui.workspace.paths import config_home


@dataclass(frozen=True)
class Settings:
    """What a person can set. Times are seconds unless the name says otherwise.

    `model`: name or path of a sentence-transformers model, "" for the packaged
    one, "off" for keyword search alone. `language`: what words are stemmed for.
    `engine_idle`: how long the engine stays without clients. `embed_tool_results`:
    whether tool results get vectors. `query_log`: whether searches are logged.
    `theme`: a Textual theme's name, "" for the default. `mask_secrets`: on which
    assistants' faces secrets are masked: "mcp", "always" (JP's tools too), "never".
    `terminal_text`: what happens to escape sequences and other hidden characters on a terminal:
    "strip" removes them, "visualize" shows them, "off" leaves them to what commands print (RFD 096).
    `keys`: command id -> its keys in the TUI, which checks them. `session`: whether the
    TUI reopens as it was left. `plain`: whether it is drawn for a screen reader.
    """

    model: str = ""
    language: str = "english"
    engine_idle: float = 600.0
    embed_tool_results: bool = False
    query_log: bool = True
    query_log_days: int = 90
    theme: str = ""
    mask_secrets: str = "mcp"
    terminal_text: str = "strip"
    keys: dict[str, Any] = field(default_factory=dict)
    session: bool = True
    plain: bool = False


def load_settings(path: Path | None = None) -> Settings:
    """Read the settings; a missing file means the defaults.

    `KBTUI_MODEL` and `KBTUI_ENGINE_IDLE` in the environment win over the file.
    Raises `ConfigError` with file and key.
    """
    path = path or config_home() / "config.toml"
    values = _read(path)
    defaults = Settings()
    known = {field.name: type(getattr(defaults, field.name)) for field in fields(Settings)}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"unknown key {key!r}", where=str(path), hint=_nearest(key, known))
        wanted: type = known[key]
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            values[key] = float(value)
        elif not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise ConfigError(f"{key} must be {_NAMES[wanted]}", where=str(path))
    if values.get("terminal_text", "strip") not in _POLICIES:
        raise ConfigError(f"terminal_text must be one of {', '.join(_POLICIES)}", where=str(path))
    if model := os.environ.get("KBTUI_MODEL"):
        values["model"] = model
    if idle := os.environ.get("KBTUI_ENGINE_IDLE"):
        try:
            values["engine_idle"] = float(idle)
        except ValueError:
            raise ConfigError("must be a number of seconds", where="KBTUI_ENGINE_IDLE") from None
    return Settings(**values)


_POLICIES = ("strip", "visualize", "off")
_NAMES: dict[type, str] = {
    str: "a string",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    dict: "a table",
}


def _read(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not valid TOML: {error}", where=str(path)) from error


def _nearest(key: str, known: dict[str, Any]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "known keys: " + ", ".join(sorted(known))
