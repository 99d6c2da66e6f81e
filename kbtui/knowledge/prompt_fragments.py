"""JP's own prompt fragments, `.jp/config/knowledge/*.toml`, and who loads them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError
from kbtui.knowledge.models import Fragment

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.workspace import Workspace


def read_fragments(workspace: Workspace) -> list[Fragment]:
    """The sections of every readable fragment file, in the order of files and sections."""
    from kbtui.workspace.jp_config import parse_config

    folder = workspace.jp / "config" / "knowledge"
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError:
        return []
    loaders = _loaders(workspace) if paths else {}
    found = []
    for path in paths:
        try:
            data = parse_config(path)
        except ConfigError:
            continue
        loaded_by = tuple(loaders.get(os.path.realpath(path), ()))
        found += [_fragment(path, section, loaded_by) for section in _sections(data)]
    return found


def _sections(data: dict[str, Any]) -> list[dict[str, Any]]:
    assistant = data.get("assistant")
    sections = assistant.get("system_prompt_sections") if isinstance(assistant, dict) else None
    if isinstance(sections, dict):  # {value = […], strategy = …}
        sections = sections.get("value")
    if not isinstance(sections, list):
        return []
    return [section for section in sections if isinstance(section, dict)]


def _fragment(path: Path, section: dict[str, Any], loaded_by: tuple[str, ...]) -> Fragment:
    content = section.get("content", "")
    if isinstance(content, dict):
        content = content.get("value", "")
    position = section.get("position")
    return Fragment(
        path=path,
        tag=_text(section.get("tag")),
        title=_text(section.get("title")),
        content=content if isinstance(content, str) else "",
        position=position if isinstance(position, int) else None,
        loaded_by=loaded_by,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _loaders(workspace: Workspace) -> dict[str, list[str]]:
    """For every file that something extends: the configuration files that bring it in."""
    from kbtui.knowledge.topic_config import shown
    from kbtui.workspace.jp_config import EXTENSIONS, extended_files

    candidates = [workspace.jp / f"config.{extension}" for extension in EXTENSIONS]
    for folder, folders, names in os.walk(workspace.jp / "config"):
        folders.sort()
        candidates += [workspace.jp / folder / name for name in sorted(names)]
    loaders: dict[str, list[str]] = {}
    for path in candidates:
        if path.suffix[1:] not in EXTENSIONS or not path.is_file():
            continue
        for target in dict.fromkeys(os.path.realpath(other) for other in extended_files(path)):
            loaders.setdefault(target, []).append(shown(workspace.root, path))
    return loaders
