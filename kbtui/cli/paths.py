"""Print the directories and files that kbtui uses for this workspace."""

from __future__ import annotations

from kbtui.cli.output import emit, emit_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui paths`."""
    parser.add_argument("--json", action="store_true", help="as a JSON object")


def run(args: Namespace) -> int:
    """Print them; makes none of them but the runtime directory."""
    from pathlib import Path

    from kbtui.engine.places import socket_path
    from kbtui.workspace import find_workspace
    from kbtui.workspace.paths import config_home

    workspace = find_workspace(Path(args.workspace) if args.workspace else None)
    places = {
        "workspace": workspace.root,
        "user_local": workspace.user_dir,
        "index": workspace.cache_dir,
        "journal": workspace.data_dir,
        "settings": config_home() / "config.toml",
        "engine_log": workspace.log_file,
        "engine_socket": socket_path(workspace),
    }
    if args.json:
        emit_json({name: str(path) if path else None for name, path in places.items()})
    else:
        emit("".join(f"{name:<14} {path or '-'}\n" for name, path in places.items()))
    return 0
