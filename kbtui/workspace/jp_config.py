"""JP's configuration files in the order in which they count, with `extends` and `inherit`.

Only what kbtui needs is looked at: `extends`, `inherit`,
`config_load_paths`, and whatever table the caller asks the layers for. Environment and
conversation configuration are no files and no layers here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError, UsageError
from kbtui.files import parse_toml, read_regular
from kbtui.workspace.paths import jp_config_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.workspace.workspace import Workspace

EXTENSIONS = ("toml", "json", "json5", "yaml", "yml")
"""Tried in this order; the first file there is, is the layer."""
MAX_SLOW_CHARACTERS = 100_000
"""Characters of the largest YAML and JSON5 file: their readers, in Python, take a second for it.
The one in C is no way out: it ends the process over deep nesting."""
MAX_LAYERS = 1_000
"""More files under one are a mistake (a tower of `extends`), and reading them all would hang."""
MAX_DEPTH = 50
"""So many files that extend one another, each the next, are a mistake too."""

_TOO_MANY = "too many files are extended"


@dataclass(frozen=True)
class ConfigLayer:
    """One configuration file, parsed."""

    path: Path
    data: dict[str, Any]


@dataclass
class ConfigLayers:
    """The layers, later ones winning, and what was met on the way.

    `files` has every file that was read or would have been had it been there,
    and the directories that globs looked into, so that a change of any of them
    can be noticed. `errors` has what could not be read; the rest was. `budget`
    is how many more files may be read under the present one.
    """

    layers: list[ConfigLayer] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    errors: list[ConfigError] = field(default_factory=list)
    load_paths: list[str] = field(default_factory=list)
    inherit: bool = True
    budget: int = MAX_LAYERS


def read_layers(workspace: Workspace, cwd: Path | None = None) -> ConfigLayers:
    """The workspace's file layers: JP's own, then `.jp/kb.toml`.

    `cwd` is where `.jp.{ext}` files are looked for, from the root down; it
    counts only inside the workspace and is the process's own by default.
    Mistakes are in `errors`; nothing is raised.
    """
    found = ConfigLayers()
    for stem in _list_layer_stems(workspace, cwd):
        path = _find_layer_file(stem, found.files)
        if path is not None:
            _load_layer(path, found)
        if not found.inherit:
            break
    kb = workspace.jp / "kb.toml"
    found.files.append(kb)
    if _path_exists(kb):
        _load_layer(kb, found)
    return found


def read_named_layers(workspace: Workspace, found: ConfigLayers, name: str) -> None:
    """Add the layers that `--cfg NAME` names to `found`.

     A path of an existing file is that file; else NAME is searched in the
     `config_load_paths` under the user-global, the workspace's and the
     user-local root, first match within a root, all roots merged in this order
    . Raises `UsageError` where nothing is found.
    """
    direct = Path(name).absolute()
    if direct.suffix[1:] in EXTENSIONS and direct.is_file():
        found.files.append(direct)
        _load_layer(direct, found)
        return
    if not Path(name).name:
        raise UsageError("an empty name", where="--cfg")
    roots = [Path(jp_config_home(), "config"), workspace.root]
    if workspace.user_dir is not None:
        roots.append(workspace.user_dir / "config")
    matches, tried = [], []
    for root in roots:
        for load_path in found.load_paths:
            tried.append(root / load_path)
            path = _find_layer_file(root / load_path / name, found.files)
            if path is not None:
                matches.append(path)
                break
    if not matches:
        where = ", ".join(map(str, tried)) or "no `config_load_paths` are configured"
        raise UsageError(
            f"no configuration named {name!r}", where="--cfg", hint=f"searched: {where}"
        )
    for path in matches:
        _load_layer(path, found)


def extended_files(path: Path) -> list[Path]:
    """The files that a configuration file extends, directly or through others.

    Unreadable ones are left out; used to say which configuration loads what.
    """
    found = ConfigLayers()
    _load_layer(path, found)
    return [layer.path for layer in found.layers if layer.path != path]


def parse_config(path: Path) -> dict[str, Any]:
    """Parse one configuration file by its extension; raises `ConfigError` naming it."""
    try:
        text = read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 (byte {error.start})", where=str(path)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot be read: {reason}", where=str(path)) from error
    kind = path.suffix[1:].lower()
    if kind in _SLOW_FORMATS and len(text) > MAX_SLOW_CHARACTERS:
        raise ConfigError(
            f"has {len(text):,} characters; of {_FORMAT_NAMES[kind]} at most {MAX_SLOW_CHARACTERS:,} are read",
            where=str(path),
            hint="write it as TOML",
        )
    try:
        data = _make_parsers()[kind](text) if kind in EXTENSIONS else None
    except RecursionError as error:
        raise ConfigError("is nested too deeply", where=str(path)) from error
    except Exception as error:
        # yaml and json5 raise kinds of their own, which are not imported here.
        raise ConfigError(
            f"is not valid {_FORMAT_NAMES[kind]}: {_format_parse_error(error)}", where=str(path)
        ) from error
    if data is None and kind in ("yaml", "yml"):
        return {}
    if not isinstance(data, dict):
        raise ConfigError("is not a table of keys and values", where=str(path))
    return data


_FORMAT_NAMES = {"toml": "TOML", "json": "JSON", "json5": "JSON5", "yaml": "YAML", "yml": "YAML"}
_SLOW_FORMATS = frozenset({"json5", "yaml", "yml"})


def _make_parsers() -> dict[str, Any]:
    def json(text: str) -> Any:
        import json

        return json.loads(text)

    def json5(text: str) -> Any:
        import json5

        return json5.loads(text)

    def yaml(text: str) -> Any:
        import yaml

        return yaml.safe_load(text)

    return {"toml": parse_toml, "json": json, "json5": json5, "yaml": yaml, "yml": yaml}


def _format_parse_error(error: Exception) -> str:
    return " ".join(str(error).split())


def _list_layer_stems(workspace: Workspace, cwd: Path | None) -> Iterator[Path]:
    """Where JP's layers lie, in order, without their extension."""
    yield Path(jp_config_home(), "config")
    yield workspace.jp / "config"
    for folder in _list_directories(workspace.root, cwd):
        yield folder / ".jp"
    if workspace.user_dir is not None:
        yield workspace.user_dir / "config"


def _list_directories(root: Path, cwd: Path | None) -> Iterator[Path]:
    yield root
    try:
        parts = (cwd or Path.cwd()).resolve().relative_to(root).parts
    except (OSError, ValueError, RuntimeError):
        return
    folder = root
    for part in parts:
        folder = folder / part
        yield folder


def _find_layer_file(stem: Path, files: list[Path]) -> Path | None:
    """The first existing file of this name, with or without an extension of ours."""
    names = [stem] if stem.suffix[1:] in EXTENSIONS else []
    names += [stem.with_name(f"{stem.name}.{extension}") for extension in EXTENSIONS]
    for path in names:
        files.append(path)
        if _path_exists(path):
            return path
    return None


def _path_exists(path: Path) -> bool:
    # Broken links, directories and unreadable ones exist too: parsing them says what is wrong.
    try:
        return os.path.lexists(path)
    except ValueError:
        return False


def _load_layer(path: Path, found: ConfigLayers, above: tuple[Path, ...] = ()) -> None:
    """Add a file and what it extends to the layers, in the order of merging."""
    if not above:
        found.budget = MAX_LAYERS
    found.budget -= 1
    if found.budget < 0 or len(above) > MAX_DEPTH:
        if not any(error.message == _TOO_MANY for error in found.errors):
            found.errors.append(ConfigError(_TOO_MANY, where=str(path)))
        return
    try:
        data = parse_config(path)
    except ConfigError as error:
        found.errors.append(error)
        return
    before, after = _find_extended(path, data.get("extends"), found)
    stack = (*above, Path(os.path.realpath(path)))
    for other in before:
        _load_extended(other, path, found, stack)
    found.layers.append(ConfigLayer(path, data))
    if isinstance(data.get("inherit"), bool):
        found.inherit = data["inherit"]
    load_paths = data.get("config_load_paths")
    if isinstance(load_paths, list):
        new = [item for item in load_paths if isinstance(item, str)]
        found.load_paths += [item for item in new if item not in found.load_paths]
    for other in after:
        _load_extended(other, path, found, stack)


def _load_extended(other: Path, path: Path, found: ConfigLayers, stack: tuple[Path, ...]) -> None:
    if Path(os.path.realpath(other)) in stack:
        message = f"extends {os.path.normpath(other)}, which leads back to it"
        found.errors.append(ConfigError(message, where=str(path), hint="break the cycle"))
        return
    _load_layer(other, found, stack)


def _find_extended(path: Path, value: Any, found: ConfigLayers) -> tuple[list[Path], list[Path]]:
    """The files to merge under and over this one."""
    before: list[Path] = []
    after: list[Path] = []
    if value is None:
        return before, after
    for item in value if isinstance(value, list) else [value]:
        strategy = "before"
        if isinstance(item, dict):
            strategy, item = item.get("strategy", "before"), item.get("path")
        if not isinstance(item, str) or strategy not in ("before", "after"):
            message = "`extends` takes paths, or {path, strategy = before or after}"
            found.errors.append(ConfigError(message, where=str(path)))
            continue
        try:
            files = list(_expand_extends(path, item, found))
        except ConfigError as error:
            found.errors.append(error)
            continue
        (before if strategy == "before" else after).extend(files)
    return before, after


def _expand_extends(path: Path, item: str, found: ConfigLayers) -> Iterable[Path]:
    if not item or "\0" in item or Path(item).is_absolute():
        message = f"`extends` {item!r} is not a path relative to this file"
        raise ConfigError(message, where=str(path))
    if not any(sign in item for sign in "*?["):
        target = path.parent / item
        found.files.append(target)
        if not _path_exists(target):
            raise ConfigError(f"extends {item}, which does not exist", where=str(path))
        return [target]
    try:
        matches = sorted(path.parent.glob(item))
    except (ValueError, NotImplementedError, OSError) as error:
        message = f"`extends` {item!r} is not a pattern: {_format_parse_error(error)}"
        raise ConfigError(message, where=str(path)) from error
    fixed = Path(*_split_before_glob(Path(item).parts))
    found.files += sorted({path.parent / fixed} | {match.parent for match in matches})
    files = [match for match in matches if match.suffix[1:] in EXTENSIONS and match.is_file()]
    found.files += files
    return files


def _split_before_glob(parts: tuple[str, ...]) -> list[str]:
    kept = []
    for part in parts[:-1]:
        if any(sign in part for sign in "*?["):
            break
        kept.append(part)
    return kept
