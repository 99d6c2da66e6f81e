"""Reads the layers of JP's configuration, with `extends` and `inherit`.

Only `extends`, `inherit`, `config_load_paths` and the tables that callers ask for are interpreted.
JP also reads configuration from environment variables and conversations, which this module ignores.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError, UsageError
from kbtui.file_reading_and_writing import parse_toml_with_limited_key_depth, read_regular_file
from kbtui.workspace.paths import TOPICS_FILE, get_jp_config_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.workspace.workspace import Workspace

EXTENSIONS = ("toml", "json", "json5", "yaml", "yml")
"""The extensions that a configuration file can have. They are tried in this order."""
# The parsers are pure Python. Libyaml is faster, but a deeply nested file would crash the process.
MAX_SLOW_CHARACTERS = 100_000
"""A YAML or JSON5 file with more than this many characters is refused, because parsing it would take over a second."""
MAX_LAYERS = 1_000
"""The maximum number of files in a layer: its own file, and those that it loads through `extends`."""
MAX_DEPTH = 50
"""A chain of files in which each file extends the next can have at most this many steps."""


@dataclass(frozen=True)
class ParsedConfigFile:
    """A parsed configuration file."""

    path: Path
    data: dict[str, Any]


@dataclass
class LoadedConfigLayers:
    """The layers of the configuration; each layer overrides the layers before it.

    * `files` contains the paths to watch for changes: files that were read, files that would be
      read if they existed, and directories that a glob searched.
    * `files_left` is the number of files that can still be read for the layer that is being read.
    * `is_cut` is true if a layer has more files than the limit, so that some were not read.
    """

    layers: list[ParsedConfigFile] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    errors: list[ConfigError] = field(default_factory=list)
    load_paths: list[str] = field(default_factory=list)
    inherit: bool = True
    files_left: int = MAX_LAYERS
    is_cut: bool = False


def read_config_layers(workspace: Workspace, cwd: Path | None = None) -> LoadedConfigLayers:
    """Return the configuration of a workspace as layers, one for each file that applies.

    A JP workspace has JP's own layers first. The last layer is always `kb.toml`. `.jp.{ext}` files are
    read in every directory from the root down to `cwd` (by default the current directory). A `cwd`
    outside the workspace is ignored. Never raises; errors are in `LoadedConfigLayers.errors`.
    """
    found = LoadedConfigLayers()
    stems = (
        _iterate_jp_layer_paths_without_extension(workspace, cwd)
        if workspace.is_jp_workspace
        else ()
    )
    for stem in stems:
        path = _find_config_layer_file(stem, found.files)
        if path is not None:
            _load_config_layer_with_extended_files(path, found)
        if not found.inherit:
            break
    kb = workspace.config_directory / TOPICS_FILE
    found.files.append(kb)
    if _does_path_exist(kb):
        _load_config_layer_with_extended_files(kb, found)
    return found


def add_named_config_layers(workspace: Workspace, found: LoadedConfigLayers, name: str) -> None:
    """Add to `found` the configuration files that `--cfg NAME` selects. Raises `UsageError` if it selects no file.

    NAME is the path of a file, or the name of a file in a directory that `config_load_paths` lists. These
    directories are looked up under three roots: user-global, workspace and user-local. Under each
    root, only the first match is used.
    """
    direct = Path(name).absolute()
    if direct.suffix[1:] in EXTENSIONS and direct.is_file():
        found.files.append(direct)
        _load_config_layer_with_extended_files(direct, found)
        return
    if not Path(name).name:
        raise UsageError("the name is empty", where="--cfg")
    roots = [Path(get_jp_config_home(), "config"), workspace.root]
    if workspace.jp_user_directory is not None:
        roots.append(workspace.jp_user_directory / "config")
    matches, tried = [], []
    for root in roots:
        for load_path in found.load_paths:
            tried.append(root / load_path)
            path = _find_config_layer_file(root / load_path / name, found.files)
            if path is not None:
                matches.append(path)
                break
    if not matches:
        where = ", ".join(map(str, tried))
        hint = f"searched: {where}" if where else "`config_load_paths` is not configured"
        raise UsageError(f"no configuration named {name!r}", where="--cfg", hint=hint)
    for path in matches:
        _load_config_layer_with_extended_files(path, found)


def find_extended_config_files(path: Path) -> list[Path]:
    """Return the readable files that a configuration file extends, directly or through other files."""
    found = LoadedConfigLayers()
    _load_config_layer_with_extended_files(path, found)
    return [layer.path for layer in found.layers if layer.path != path]


def load_config_file(path: Path) -> dict[str, Any]:
    """Read and parse a configuration file. Raises `ConfigError` with the path of the file."""
    return parse_config_text(path, read_config_file_text(path))


def read_config_file_text(path: Path) -> str:
    """Return the text of a configuration file. Raises `ConfigError` with the path of the file."""
    try:
        return read_regular_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start})", where=str(path)) from error
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"the file cannot be read: {reason}", where=str(path)) from error


def parse_config_text(path: Path, text: str) -> dict[str, Any]:
    """Parse the text of the file at `path`, whose extension determines the format.

    Raises `ConfigError` with the path.
    """
    extension = path.suffix[1:].lower()
    language = "YAML" if extension == "yml" else extension.upper()
    if language in ("JSON5", "YAML") and len(text) > MAX_SLOW_CHARACTERS:
        raise ConfigError(
            f"the file has {len(text):,} characters; kbtui reads {language} "
            f"only up to {MAX_SLOW_CHARACTERS:,}",
            where=str(path),
            hint="write it as TOML",
        )
    data: Any = None
    try:
        if language == "TOML":
            data = parse_toml_with_limited_key_depth(text)
        elif language == "JSON":
            data = json.loads(text)
        elif language == "JSON5":
            import json5

            data = json5.loads(text)
        elif language == "YAML":
            import yaml

            data = yaml.safe_load(text)
            data = {} if data is None else data
    except RecursionError as error:
        raise ConfigError("the file is nested too deeply", where=str(path)) from error
    except Exception as error:
        # `except` cannot name the exceptions of yaml and json5, which are imported only when needed.
        message = f"not valid {language}: {_format_parse_error_on_one_line(error)}"
        raise ConfigError(message, where=str(path)) from error
    if not isinstance(data, dict):
        raise ConfigError("must contain a table of keys and values", where=str(path))
    return data


def _format_parse_error_on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _iterate_jp_layer_paths_without_extension(
    workspace: Workspace, cwd: Path | None
) -> Iterator[Path]:
    """Yield the paths of JP's configuration layers, without extensions, in merging order."""
    yield Path(get_jp_config_home(), "config")
    yield workspace.jp_directory / "config"
    yield workspace.root / ".jp"
    folder = workspace.root
    with suppress(OSError, ValueError, RuntimeError):
        for part in (cwd or Path.cwd()).resolve().relative_to(folder).parts:
            folder = folder / part
            yield folder / ".jp"
    if workspace.jp_user_directory is not None:
        yield workspace.jp_user_directory / "config"


def _find_config_layer_file(stem: Path, files: list[Path]) -> Path | None:
    """Return the first existing file with this stem. All tried paths are appended to `files`."""
    names = [stem] if stem.suffix[1:] in EXTENSIONS else []
    names += [stem.with_name(f"{stem.name}.{extension}") for extension in EXTENSIONS]
    for path in names:
        files.append(path)
        if _does_path_exist(path):
            return path
    return None


def _does_path_exist(path: Path) -> bool:
    # Broken links, directories and unreadable files exist, too: parsing them reports an error.
    with suppress(ValueError):
        return os.path.lexists(path)
    return False


def _load_config_layer_with_extended_files(
    path: Path, found: LoadedConfigLayers, above: tuple[Path, ...] = ()
) -> None:
    """Append to `found` the layers of a file and of all files that it extends, in merging order."""
    if not above:
        found.files_left = MAX_LAYERS
    found.files_left -= 1
    if found.files_left < 0 or len(above) > MAX_DEPTH:
        if not found.is_cut:
            found.is_cut = True
            found.errors.append(ConfigError("`extends` loads too many files", where=str(path)))
        return
    try:
        data = load_config_file(path)
    except ConfigError as error:
        found.errors.append(error)
        return
    before, after = _resolve_extended_files(path, data.get("extends"), found)
    stack = (*above, Path(os.path.realpath(path)))

    def load_extended_layers(others: list[Path]) -> None:
        for other in others:
            if Path(os.path.realpath(other)) not in stack:
                _load_config_layer_with_extended_files(other, found, stack)
                continue
            message = f"`extends` forms a cycle with {os.path.normpath(other)}"
            found.errors.append(ConfigError(message, where=str(path), hint="remove one `extends`"))

    load_extended_layers(before)
    found.layers.append(ParsedConfigFile(path, data))
    if isinstance(data.get("inherit"), bool):
        found.inherit = data["inherit"]
    load_paths = data.get("config_load_paths")
    for item in load_paths if isinstance(load_paths, list) else ():
        if isinstance(item, str) and item not in found.load_paths:
            found.load_paths.append(item)
    load_extended_layers(after)


def _resolve_extended_files(
    path: Path, value: Any, found: LoadedConfigLayers
) -> tuple[list[Path], list[Path]]:
    """Return two lists of extended files: those merged before the file at `path`, and those merged after it."""
    files: dict[str, list[Path]] = {"before": [], "after": []}
    items = value if isinstance(value, list) else [] if value is None else [value]
    for item in items:
        strategy = "before"
        if isinstance(item, dict):
            strategy, item = item.get("strategy", "before"), item.get("path")
        try:
            if not isinstance(item, str) or strategy not in ("before", "after"):
                message = (
                    '`extends` takes paths or tables {path = …, strategy = "before" or "after"}'
                )
                raise ConfigError(message, where=str(path))
            files[strategy] += _expand_extends_pattern(path, item, found)
        except ConfigError as error:
            found.errors.append(error)
    return files["before"], files["after"]


def _expand_extends_pattern(path: Path, item: str, found: LoadedConfigLayers) -> Iterable[Path]:
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
        message = (
            f"`extends`: {item!r} is not a glob pattern: {_format_parse_error_on_one_line(error)}"
        )
        raise ConfigError(message, where=str(path)) from error
    fixed = takewhile(lambda part: not any(sign in part for sign in "*?["), Path(item).parts[:-1])
    found.files += sorted({path.parent.joinpath(*fixed)} | {match.parent for match in matches})
    files = [match for match in matches if match.suffix[1:] in EXTENSIONS and match.is_file()]
    found.files += files
    return files
