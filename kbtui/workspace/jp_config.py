"""Reads the layers of JP's configuration, with `extends` and `inherit`.

Only `extends`, `inherit`, `config_load_paths` and the tables that callers ask for are interpreted.
JP also takes configuration from environment variables and conversations, which this module ignores.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError, UsageError
from kbtui.files import parse_toml, read_regular_file
from kbtui.workspace.paths import get_jp_config_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.workspace.workspace import Workspace

EXTENSIONS = ("toml", "json", "json5", "yaml", "yml")
"""The extensions of a layer's file, in the order in which they are tried."""
MAX_SLOW_CHARACTERS = 100_000
"""The maximum length of a YAML or JSON5 file in characters; parsing that many takes a second.

The parsers are written in pure Python. libyaml is no alternative for YAML, because deep nesting in a
file would crash the process.
"""
MAX_LAYERS = 1_000
"""The maximum number of files that one layer may load. A longer chain of `extends` is a mistake."""
MAX_DEPTH = 50
"""The maximum length of a chain of files that extend one another."""

_TOO_MANY = "`extends` loads too many files"


@dataclass(frozen=True)
class ConfigLayer:
    """One configuration file, parsed."""

    path: Path
    data: dict[str, Any]


@dataclass
class ConfigLayers:
    """The layers in the order of merging, in which later layers override earlier ones.

    `files` has every file that was read or would be read if it existed, and every directory
    that a glob listed, so that changes can be watched. `errors` describes the files that could not be
    read. `budget` is the number of files that the current layer may still load.
    """

    layers: list[ConfigLayer] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    errors: list[ConfigError] = field(default_factory=list)
    load_paths: list[str] = field(default_factory=list)
    inherit: bool = True
    budget: int = MAX_LAYERS


def read_config_layers(workspace: Workspace, cwd: Path | None = None) -> ConfigLayers:
    """Return the workspace's layers: those of JP, then `.jp/kb.toml`.

    `.jp.{ext}` files are searched from the root down to `cwd`, by default the current directory. A
    `cwd` outside the workspace is ignored. Never raises; errors are in `ConfigLayers.errors`.
    """
    found = ConfigLayers()
    for stem in _list_layer_stems(workspace, cwd):
        path = _find_layer_file(stem, found.files)
        if path is not None:
            _load_config_layer(path, found)
        if not found.inherit:
            break
    kb = workspace.jp / "kb.toml"
    found.files.append(kb)
    if _does_path_exist(kb):
        _load_config_layer(kb, found)
    return found


def read_named_config_layers(workspace: Workspace, found: ConfigLayers, name: str) -> None:
    """Add to `found` the layers that `--cfg NAME` means; raises `UsageError` if there is none.

    NAME is the path of a file, or a file in one of `config_load_paths`. These paths are tried
    below three roots in this order: user-global, workspace, user-local. The first match below each
    root is added.
    """
    direct = Path(name).absolute()
    if direct.suffix[1:] in EXTENSIONS and direct.is_file():
        found.files.append(direct)
        _load_config_layer(direct, found)
        return
    if not Path(name).name:
        raise UsageError("the name is empty", where="--cfg")
    roots = [Path(get_jp_config_home(), "config"), workspace.root]
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
        where = ", ".join(map(str, tried)) or "nowhere, `config_load_paths` is not configured"
        raise UsageError(
            f"no configuration named {name!r}", where="--cfg", hint=f"searched: {where}"
        )
    for path in matches:
        _load_config_layer(path, found)


def find_extended_files(path: Path) -> list[Path]:
    """Return the readable files that a configuration file extends, directly or indirectly."""
    found = ConfigLayers()
    _load_config_layer(path, found)
    return [layer.path for layer in found.layers if layer.path != path]


def parse_config(path: Path) -> dict[str, Any]:
    """Return a configuration file parsed by its extension; raises `ConfigError` with its path."""
    try:
        text = read_regular_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start})", where=str(path)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"the file cannot be read: {reason}", where=str(path)) from error
    kind = path.suffix[1:].lower()
    if kind in _SLOW_FORMATS and len(text) > MAX_SLOW_CHARACTERS:
        raise ConfigError(
            f"the file has {len(text):,} characters; kbtui reads {_FORMAT_NAMES[kind]} "
            f"only up to {MAX_SLOW_CHARACTERS:,}",
            where=str(path),
            hint="write it as TOML",
        )
    try:
        data = _parse_config_text(kind, text) if kind in EXTENSIONS else None
    except RecursionError as error:
        raise ConfigError("the file is nested too deeply", where=str(path)) from error
    except Exception as error:
        # yaml and json5 have exceptions of their own; they are imported only when needed.
        raise ConfigError(
            f"not valid {_FORMAT_NAMES[kind]}: {_format_parse_error(error)}", where=str(path)
        ) from error
    if data is None and kind in ("yaml", "yml"):
        return {}
    if not isinstance(data, dict):
        raise ConfigError("must contain a table of keys and values", where=str(path))
    return data


_FORMAT_NAMES = {"toml": "TOML", "json": "JSON", "json5": "JSON5", "yaml": "YAML", "yml": "YAML"}
_SLOW_FORMATS = frozenset({"json5", "yaml", "yml"})


def _parse_config_text(kind: str, text: str) -> Any:
    """Parse the text of a file with the extension `kind`; raises what the parser raises."""
    if kind == "toml":
        return parse_toml(text)
    if kind == "json":
        import json

        return json.loads(text)
    if kind == "json5":
        import json5

        return json5.loads(text)
    import yaml

    return yaml.safe_load(text)


def _format_parse_error(error: Exception) -> str:
    return " ".join(str(error).split())


def _list_layer_stems(workspace: Workspace, cwd: Path | None) -> Iterator[Path]:
    """Yield the paths of JP's layers without their extensions, in order."""
    yield Path(get_jp_config_home(), "config")
    yield workspace.jp / "config"
    for folder in _list_layer_directories(workspace.root, cwd):
        yield folder / ".jp"
    if workspace.user_dir is not None:
        yield workspace.user_dir / "config"


def _list_layer_directories(root: Path, cwd: Path | None) -> Iterator[Path]:
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
    """Return the first existing file of this name, as it is or with a known extension, or None.

    Every path that is tried is added to `files`.
    """
    names = [stem] if stem.suffix[1:] in EXTENSIONS else []
    names += [stem.with_name(f"{stem.name}.{extension}") for extension in EXTENSIONS]
    for path in names:
        files.append(path)
        if _does_path_exist(path):
            return path
    return None


def _does_path_exist(path: Path) -> bool:
    # Broken links, directories and unreadable files count: parsing them gives an error message.
    try:
        return os.path.lexists(path)
    except ValueError:
        return False


def _load_config_layer(path: Path, found: ConfigLayers, above: tuple[Path, ...] = ()) -> None:
    """Add a file and the files that it extends to the layers, in the order of merging."""
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
    before, after = _resolve_extends_value(path, data.get("extends"), found)
    stack = (*above, Path(os.path.realpath(path)))
    for other in before:
        _load_extended_file(other, path, found, stack)
    found.layers.append(ConfigLayer(path, data))
    if isinstance(data.get("inherit"), bool):
        found.inherit = data["inherit"]
    load_paths = data.get("config_load_paths")
    if isinstance(load_paths, list):
        new = [item for item in load_paths if isinstance(item, str)]
        found.load_paths += [item for item in new if item not in found.load_paths]
    for other in after:
        _load_extended_file(other, path, found, stack)


def _load_extended_file(
    other: Path, path: Path, found: ConfigLayers, stack: tuple[Path, ...]
) -> None:
    if Path(os.path.realpath(other)) in stack:
        message = f"`extends` forms a cycle with {os.path.normpath(other)}"
        found.errors.append(ConfigError(message, where=str(path), hint="remove one `extends`"))
        return
    _load_config_layer(other, found, stack)


def _resolve_extends_value(
    path: Path, value: Any, found: ConfigLayers
) -> tuple[list[Path], list[Path]]:
    """Return the files to merge before and after this one."""
    before: list[Path] = []
    after: list[Path] = []
    if value is None:
        return before, after
    for item in value if isinstance(value, list) else [value]:
        strategy = "before"
        if isinstance(item, dict):
            strategy, item = item.get("strategy", "before"), item.get("path")
        if not isinstance(item, str) or strategy not in ("before", "after"):
            message = '`extends` takes paths or tables {path = …, strategy = "before" or "after"}'
            found.errors.append(ConfigError(message, where=str(path)))
            continue
        try:
            files = list(_expand_extends_item(path, item, found))
        except ConfigError as error:
            found.errors.append(error)
            continue
        (before if strategy == "before" else after).extend(files)
    return before, after


def _expand_extends_item(path: Path, item: str, found: ConfigLayers) -> Iterable[Path]:
    if not item or "\0" in item or Path(item).is_absolute():
        message = f"`extends`: {item!r} is not a path relative to this file"
        raise ConfigError(message, where=str(path))
    if not any(sign in item for sign in "*?["):
        target = path.parent / item
        found.files.append(target)
        if not _does_path_exist(target):
            raise ConfigError(f"`extends` names {item}, which does not exist", where=str(path))
        return [target]
    try:
        matches = sorted(path.parent.glob(item))
    except (ValueError, NotImplementedError, OSError) as error:
        message = f"`extends`: {item!r} is not a glob pattern: {_format_parse_error(error)}"
        raise ConfigError(message, where=str(path)) from error
    fixed = takewhile(lambda part: not any(sign in part for sign in "*?["), Path(item).parts[:-1])
    found.files += sorted({path.parent.joinpath(*fixed)} | {match.parent for match in matches})
    files = [match for match in matches if match.suffix[1:] in EXTENSIONS and match.is_file()]
    found.files += files
    return files
