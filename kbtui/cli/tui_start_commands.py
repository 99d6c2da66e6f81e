"""The commands `tui`, `demo`, `open` and `serve`, which show the TUI in a terminal or a browser."""

from __future__ import annotations

import gc
import os
import sys

from kbtui.cli.cli_output import print_result, print_to_stderr
from kbtui.errors import UsageError, WorkspaceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from argparse import ArgumentParser, Namespace
    from pathlib import Path


def declare_tui_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--fresh", action="store_true", help="do not restore the last session")
    add("--plain", action="store_true", help="show one pane without frames, for screen readers")


def run_tui_command(args: Namespace) -> int:
    """Browse the workspace in the terminal."""
    return open_tui(args.workspace, fresh=args.fresh, plain=args.plain)


def open_tui(
    workspace: str | None,
    reference: str | None = None,
    *,
    default_reference: str | None = None,
    fresh: bool = False,
    plain: bool = False,
) -> int:
    """Open the TUI at `reference`. If `reference` is None, restore the last session.

    If there is no last session, open `default_reference`.
    """
    hint = "`kbtui search WORDS` prints hits; `kbtui --help` lists the commands"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "the TUI needs a terminal, but input or output is a pipe or a file"
        raise UsageError(message, hint=hint)
    terminal = os.environ.get("TERM", "")
    if terminal.lower() in {"dumb", "unknown"}:
        message = f"the TUI needs a terminal that can move the cursor, but TERM is {terminal!r}"
        raise UsageError(message, hint=hint)
    # Garbage collections during the imports would delay the first paint. The main screen enables
    # them again.
    gc.disable()
    from kbtui.library import open_workspace
    from kbtui.tui.terminal_setup import TerminalBackgroundQuery

    library = open_workspace(workspace)
    try:
        ref = library.resolve_reference(reference) if reference else None
        begin = library.resolve_reference(default_reference) if default_reference else None
        dark, typed = None, ""
        query = None if library.settings.theme else TerminalBackgroundQuery()
        try:
            from kbtui.tui.app import TuiStartOptions, run_tui
        finally:  # also if the import fails, because this restores the terminal's mode
            if query:
                dark, typed = query.read_answer()
        return run_tui(library, ref, TuiStartOptions(begin, fresh, plain, dark, typed))
    finally:
        gc.enable()
        library.close()


def declare_demo_command_arguments(parser: ArgumentParser) -> None:
    text = "print the path of the copy instead of opening it"
    parser.add_argument("--path", action="store_true", help=text)


def run_demo_command(args: Namespace) -> int:
    """Browse a fresh copy of the bundled demo workspace; your own files are not changed."""
    root = copy_demo_workspace()
    if args.path:
        print_result(f"{root}\n")
        return 0
    return open_tui(str(root), default_reference="guide/about")


def copy_demo_workspace() -> Path:
    """Copy the bundled demo to a fixed place in the cache, so that its index can be reused."""
    import filecmp
    import shutil
    from pathlib import Path

    from kbtui.workspace.paths import get_kbtui_cache_directory, make_private_directory

    source, target = find_demo_workspace(), Path(get_kbtui_cache_directory(), "demo")
    try:
        make_private_directory(target)
        # In the source tree the guide is a link to docs/guide, which `Path.rglob` does not follow.
        wanted = {
            Path(folder, name).relative_to(source)
            for folder, folders, files in os.walk(source, followlinks=True)
            for name in (*folders, *files)
        }
        for path in sorted(target.rglob("*"), reverse=True):
            if path.relative_to(target) not in wanted:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for name in sorted(wanted):
            here, there = source / name, target / name
            if here.is_dir():
                make_private_directory(there)
            elif not there.exists() or not filecmp.cmp(here, there, shallow=False):
                shutil.copyfile(here, there)
                there.chmod(0o600)
    except OSError as error:
        raise WorkspaceError(
            f"the demo cannot be copied: {error.strerror}",
            where=str(error.filename or target),
            hint="set XDG_CACHE_HOME to a writable directory",
        ) from error
    return target


def find_demo_workspace() -> Path:
    """Return the bundled demo workspace, from the installation or the source tree."""
    from pathlib import Path

    package = Path(__file__).resolve().parent.parent
    for place in (package / "assets" / "demo", package.parent / "assets" / "demo"):
        if (place / ".jp").is_dir():
            return place
    raise WorkspaceError("this installation has no demo workspace", where=str(package))


def declare_open_command_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "ref", metavar="REF", help="topic/slug, topic/slug:12-18, jp-c…:3, claude-…:3 or chunk:ID"
    )


def run_open_command(args: Namespace) -> int:
    """Open a reference in the TUI."""
    return open_tui(args.workspace, args.ref)


def declare_serve_command_arguments(parser: ArgumentParser) -> None:
    add, text = parser.add_argument, "the port (default: 8000); 0 uses any free port"
    add("--port", type=int, default=8000, metavar="N", help=text)
    text = "the address to listen on (default: 127.0.0.1)"
    add("--host", default="127.0.0.1", metavar="ADDRESS", help=text)
    text = "allow an address that other machines can reach"
    add("--allow-network", action="store_true", help=text)
    add("--font-size", type=int, default=16, metavar="N", help="font size in pixels (default: 16)")


def run_serve_command(args: Namespace) -> int:
    """Show the TUI in a browser on this machine.

    Prints the address to open. The address contains a token: anyone who has it can read the
    workspace. Other machines can connect only if --host names another address and --allow-network
    is given.
    """
    import asyncio
    import secrets
    import signal

    from kbtui.library import open_workspace
    from kbtui.serve.web_access_control import choose_web_server_listen_address

    if not 6 <= args.font_size <= 72:
        raise UsageError("must be from 6 to 72", where="--font-size")
    library = open_workspace(args.workspace)
    host = choose_web_server_listen_address(args.host, args.allow_network)
    listening = _open_http_listening_socket(host, args.port)
    from kbtui.serve.tui_web_server import TuiWebServer, run_tui_web_server

    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    server = TuiWebServer(library.workspace.root, host, port, token, args.font_size)
    shown = f"[{host}]" if ":" in host else host

    def print_server_address() -> None:
        print(f"http://{shown}:{port}/?token={token}", flush=True)
        print_to_stderr(
            "open this address in a browser; anyone who has the address can read the workspace. Ctrl+C stops the server"
        )

    ended_by = asyncio.run(run_tui_web_server(server, listening, print_server_address))
    return 130 if ended_by == signal.SIGINT else 0


def _open_http_listening_socket(host: str, port: int) -> socket.socket:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen on this address: {reason.lower()}",
            where=f"{host}:{port}",
            hint="--port 0 uses any free port",
        ) from error
    return listening
