"""Print the directories and files that kbtui uses for this workspace."""

from __future__ import annotations

from kbtui.cli.output import emit, emit_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from pathlib import Path


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui paths`."""
    parser.add_argument(
        "--looked", action="store_true", help="every configuration file, also those not there"
    )
    parser.add_argument("--json", action="store_true", help="as a JSON object")


def run(args: Namespace) -> int:
    """Print them; makes none of them."""
    from pathlib import Path

    from kbtui.workspace import find_workspace
    from kbtui.workspace.path_strings import socket_path
    from kbtui.workspace.settings import settings_path

    workspace = find_workspace(Path(args.workspace) if args.workspace else None)
    places = {
        "workspace": workspace.root,
        "user_local": workspace.user_dir,
        "index": workspace.cache_dir,
        "journal": workspace.data_dir,
        "settings": settings_path(),
        "engine_log": workspace.log_file,
        "screen_log": workspace.log_file.with_name("tui.log"),
        "engine_socket": Path(socket_path(str(workspace.root))),
    }
    if args.looked:
        from kbtui.workspace.jp_config import read_layers

        looked = [settings_path(), *dict.fromkeys(read_layers(workspace).files)]
        if args.json:
            emit_json([{"path": str(path), "exists": path.exists()} for path in looked])
        else:
            emit("".join(f"{_shown(path)}\n" for path in looked))
    elif args.json:
        emit_json({name: str(path) if path else None for name, path in places.items()})
    else:
        emit("".join(f"{name:<14} {_shown(path)}\n" for name, path in places.items()))
    return 0


def _shown(path: Path | None) -> str:
    """The place, and whether kbtui looked there in vain."""
    if path is None:
        return "-"
    return str(path) if path.exists() else f"{path}  (not there yet)"
