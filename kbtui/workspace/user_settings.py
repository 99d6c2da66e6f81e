"""kbtui's own settings: `config.toml` in the XDG configuration directory.

`Settings` declares the settings. Validation, `kbtui config`, the commented example and the guide's
table use this declaration.
"""

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kbtui.errors import ConfigError, suggest_similar_key
from kbtui.workspace.paths import (
    expand_user,
    get_kbtui_config_directory,
    read_client_environment_variable,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Settings(NamedTuple):
    """All settings with their defaults.

    Each annotation contains the type, the explanation, the allowed values, and the environment
    variable that overrides the file.
    """

    model: Annotated[
        str,
        'the embedding model: a name or path for sentence-transformers, "" for the one '
        'installed with kbtui, "off" for keyword search only',
        (),
        "KBTUI_MODEL",
    ] = ""
    language: Annotated[
        str,
        "the language of the texts: a search for a word also finds its other forms in this language",
    ] = "english"
    engine_idle: Annotated[
        float,
        "seconds after which the engine closes a workspace without clients; the engine exits when no workspace is open",
        (),
        "KBTUI_ENGINE_IDLE",
    ] = 600.0
    subject_megabytes: Annotated[
        int,
        "the size in megabytes above which a subject is not learned, read or indexed; 0 for no limit",
    ] = 32
    embed_tool_results: Annotated[bool, "whether tool results are also searched by meaning"] = False
    embed_pause: Annotated[
        str,
        "when embedding pauses: never, on battery, while other programs are busy, or in either case",
        ("never", "battery", "load", "either"),
    ] = "never"
    query_log: Annotated[bool, "whether searches are logged (only on this machine)"] = True
    query_log_days: Annotated[int, "for how many days logged searches are kept"] = 90
    theme: Annotated[str, 'the name of a theme; "" for one that matches the terminal'] = ""
    mask_secrets: Annotated[
        str,
        "when secrets are masked in answers to an assistant: only in answers over MCP; always, "
        "including answers of JP's local tools; or never",
        ("mcp", "always", "never"),
    ] = "mcp"
    terminal_text: Annotated[
        str,
        "what happens to escape sequences and other hidden characters on a terminal: they are removed, "
        "made visible, or printed as they are",
        ("strip", "visualize", "off"),
    ] = "strip"
    session: Annotated[bool, "whether the TUI restores the last session"] = True
    plain: Annotated[bool, "whether the TUI is drawn for a screen reader"] = False
    source_pages: Annotated[
        int,
        "the maximum number of pages that one run of a crawl fetches",
    ] = 1000
    source_files: Annotated[
        int, "the maximum number of files or resources that one run of a source reads"
    ] = 5000
    source_bytes: Annotated[
        int,
        "the maximum size in bytes of a page, file or resource that a source reads",
    ] = 50_000_000
    source_seconds: Annotated[
        float,
        "the maximum duration in seconds of one run of a source",
    ] = 3600.0
    source_delay: Annotated[
        float,
        "seconds between two requests of a crawl to the same host; robots.txt can ask for more",
    ] = 0.5
    keys: Annotated[
        dict[str, Any],
        "a table that maps the id of a command to its keys in the TUI",
    ] = {}  # noqa: RUF012  (nobody changes it)
    conversations: Annotated[
        dict[str, Any],
        "a table with two keys: `agents` lists the agents whose conversations are read, such as "
        '["jp", "claude-code"], by default all except llm; `keep` lists agents whose sessions the engine '
        'copies, such as ["claude-code"], so that the copies stay when the agent deletes the sessions',
    ] = {}  # noqa: RUF012  (nobody changes it)
    workspaces: Annotated[
        dict[str, Any],
        'a table whose key `exclude` lists directories, such as ["~/private"]: searches of all '
        "workspaces leave out the workspaces in these directories, and kbtui does not record such workspaces",
    ] = {}  # noqa: RUF012  (nobody changes it)
    prices: Annotated[
        dict[str, Any],
        'a table [prices."MODEL"] for each model, or for all models that match a pattern such as '
        '"claude-opus-*", with the prices of a million tokens: `input`, `output`, `cache_read` and '
        "`cache_write`; if one of the last two is missing, the price of `input` applies",
    ] = {}  # noqa: RUF012  (nobody changes it)


class SettingDefinition(NamedTuple):
    """A setting with its type, its default and its description (`text`).

    The environment variable `variable`, if there is one, overrides the value in `config.toml`.
    """

    name: str
    kind: type
    default: Any
    text: str
    choices: tuple[str, ...] = ()
    variable: str = ""


class SettingValue(NamedTuple):
    """The current value of a setting.

    `origin` says where the value comes from: "default", `file:line` or the name of an environment
    variable.
    """

    key: SettingDefinition
    value: Any
    origin: str


SETTING_KEYS = tuple(
    SettingDefinition(name, type(default), default, *Settings.__annotations__[name].__metadata__)
    for name, default in Settings._field_defaults.items()
)
TYPE_NAMES: dict[type, str] = {
    str: "a string",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    dict: "a table",
}


def get_settings_path() -> Path:
    """Return the path of the settings file, which may not exist."""
    return Path(get_kbtui_config_directory(), "config.toml")


def load_settings(path: Path | None = None) -> Settings:
    """Read the settings from the file and from environment variables, which override the file. Raises `ConfigError`."""
    return Settings(**{found.key.name: found.value for found in list_settings_with_origins(path)})


def list_settings_with_origins(path: Path | None = None) -> list[SettingValue]:
    """Return every setting with its value and origin; raises `ConfigError`."""
    path = path or get_settings_path()
    text, values = "", dict[str, Any]()
    if os.path.lexists(path):
        # Import this only here: every command reads the settings, but few users have the file.
        from kbtui.workspace.jp_config import parse_config_text, read_config_file_text

        text = read_config_file_text(path)
        values = parse_config_text(path, text)
    known = {key.name for key in SETTING_KEYS}
    if unknown := [name for name in values if name not in known]:
        name = unknown[0]
        where, hint = (
            _locate_setting_line(path, text, name),
            suggest_similar_key(name, Settings._fields),
        )
        raise ConfigError(f"unknown key {name!r}", where=where, hint=hint)
    found = []
    for key in SETTING_KEYS:
        value, origin = key.default, "default"
        if given := key.variable and read_client_environment_variable(key.variable):
            value, origin = _parse_environment_variable(key, given), key.variable
        elif key.name in values:
            origin = _locate_setting_line(path, text, key.name)
            value = _check_and_convert_setting_value(key, values[key.name], origin)
            if key.name in _TABLE_CHECKS:
                _TABLE_CHECKS[key.name](value, partial(_locate_setting_line, path, text, key.name))
        found.append(SettingValue(key, value, origin))
    return found


def get_chosen_agents(settings: Settings) -> list[str] | None:
    """Return the names of the agents in the setting `agents`, or None if the setting is missing."""
    agents: list[str] | None = settings.conversations.get("agents")
    return agents


def get_agents_chosen_for_keeping_sessions(settings: Settings) -> list[str]:
    """Return the names of the agents in the setting `keep`."""
    agents: list[str] = settings.conversations.get("keep", [])
    return agents


def locate_agent_names_in_settings(key: str = "agents") -> str:
    """Return where the settings file sets `key` (`agents` or `keep`), as `path:line`; raises `ConfigError`."""
    from kbtui.workspace.jp_config import read_config_file_text

    path = get_settings_path()
    return _locate_setting_line(path, read_config_file_text(path), "conversations", key)


def _check_agents_and_keep_settings(table: dict[str, Any], locate: "Callable[..., str]") -> None:
    """Raise `ConfigError` unless all keys are `agents` or `keep`, each a list of names."""
    for key, agents in table.items():
        if key not in ("agents", "keep"):
            hint = "the keys are `agents` and `keep`"
            message = f"unknown key {key!r} in the table [conversations]"
            raise ConfigError(message, where=locate(key), hint=hint)
        if not isinstance(agents, list) or not all(isinstance(name, str) for name in agents):
            message = f"`{key}` in the table [conversations] must be a list of names"
            raise ConfigError(message, where=locate(key))


def get_directories_excluded_from_registry(settings: Settings) -> list[str]:
    """Return the directories in the setting `exclude` of the table [workspaces], as absolute paths."""
    found: list[str] = settings.workspaces.get("exclude", [])
    return [os.path.realpath(expand_user(path)) for path in found]


def _check_excluded_workspaces_setting(table: dict[str, Any], locate: "Callable[..., str]") -> None:
    """Raise `ConfigError` unless the only key is `exclude`, a list of absolute paths."""
    if unknown := [key for key in table if key != "exclude"]:
        message = f"unknown key {unknown[0]!r} in the table [workspaces]"
        raise ConfigError(message, where=locate(unknown[0]), hint="the only key is `exclude`")
    excluded = table.get("exclude", [])
    if not isinstance(excluded, list) or not all(
        isinstance(path, str) and path.startswith(("/", "~")) for path in excluded
    ):
        message = "`exclude` in the table [workspaces] must be a list of directories"
        hint = 'use absolute paths: start each with "/" or "~"'
        raise ConfigError(message, where=locate("exclude"), hint=hint)


def format_example_settings() -> str:
    """Return a settings file in which every key is commented out and has its default."""
    import textwrap

    blocks = ["# kbtui's settings. The values below are the defaults."]
    for key in SETTING_KEYS:
        text = key.text
        if key.choices:
            text += f" ({', '.join(map(format_toml_value, key.choices))})"
        if key.variable:
            text += f"; the environment variable {key.variable} overrides it"
        comment = textwrap.fill(text[0].upper() + text[1:] + ".", 90, break_long_words=False)
        setting = (
            f"[{key.name}]"
            if key.kind is dict
            else f"{key.name} = {format_toml_value(key.default)}"
        )
        blocks.append(textwrap.indent(f"{comment}\n{setting}", "# "))
    return "\n\n".join(blocks) + "\n"


def format_toml_value(value: Any) -> str:
    """Format a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        items = [
            f"{format_toml_value(str(key))} = {format_toml_value(one)}"
            for key, one in value.items()
        ]
        return f"{{ {', '.join(items)} }}" if items else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(format_toml_value, value))}]"
    if isinstance(value, str):
        import json

        return json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check_and_convert_setting_value(key: SettingDefinition, value: Any, where: str) -> Any:
    if key.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, key.kind) or (key.kind is int and isinstance(value, bool)):
        raise ConfigError(f"{key.name} must be {TYPE_NAMES[key.kind]}", where=where)
    if key.choices and value not in key.choices:
        raise ConfigError(f"{key.name} must be one of {', '.join(key.choices)}", where=where)
    return value


_PRICE_KEYS = ("input", "output", "cache_read", "cache_write")
_MAX_PRICE = 1_000_000_000


def _check_model_prices(table: dict[str, Any], locate: "Callable[..., str]") -> None:
    """Raise `ConfigError` if a model's prices are incomplete, or if a key or price is invalid."""
    for model, prices in table.items():
        name = f"prices.{format_toml_value(model)}"
        if not isinstance(prices, dict):
            hint = f"write a table: [{name}] with the keys {', '.join(_PRICE_KEYS)}"
            raise ConfigError(f"{name} must be a table", where=locate(model), hint=hint)
        if unknown := [key for key in prices if key not in _PRICE_KEYS]:
            hint = f"the keys are {', '.join(_PRICE_KEYS)}"
            message = f"unknown key {unknown[0]!r} in the table [{name}]"
            raise ConfigError(message, where=locate(model, unknown[0]), hint=hint)
        for key in _PRICE_KEYS:
            price = prices.get(key)
            if price is None and key in ("input", "output"):
                raise ConfigError(f"the table [{name}] has no key {key!r}", where=locate(model))
            is_number = isinstance(price, int | float) and not isinstance(price, bool)
            if price is not None and not (is_number and 0 <= price <= _MAX_PRICE):
                message = f"{name}.{key} must be a number from 0 to {_MAX_PRICE:,}"
                raise ConfigError(message, where=locate(model, key))


_TABLE_CHECKS = {
    "conversations": _check_agents_and_keep_settings,
    "prices": _check_model_prices,
    "workspaces": _check_excluded_workspaces_setting,
}


def _parse_environment_variable(key: SettingDefinition, given: str) -> Any:
    if key.kind is str:
        return given
    try:
        return key.kind(given)
    except ValueError:
        raise ConfigError(f"must be {TYPE_NAMES[key.kind]}", where=key.variable) from None


def _locate_setting_line(path: Path, text: str, *names: str) -> str:
    """Return where the file sets a key, as `path:line`.

    `names` are the names of the tables around the key, then the key's own name. If the file does
    not set the key, the line of the innermost table that exists is returned. If none of the tables
    exists, only the path is returned.
    """
    table: tuple[str, ...] = ()
    found, depth = str(path), 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[(.+)\]\s*(?:#.*)?$", line):
            table = key = _split_dotted_key(header[1])
        elif "=" in line and not line.lstrip().startswith("#"):
            key = (*table, *_split_dotted_key(line.partition("=")[0]))
        else:
            continue
        key = key[: len(names)]
        if key == names[: len(key)] and len(key) > depth:
            found, depth = f"{path}:{number}", len(key)
    return found


def _split_dotted_key(text: str) -> tuple[str, ...]:
    """Split a dotted key of TOML, such as `prices."a.b".input`, into names."""
    names = re.findall(r'"([^"]*)"|\'([^\']*)\'|([\w-]+)', text)
    return tuple(max(name) for name in names)
