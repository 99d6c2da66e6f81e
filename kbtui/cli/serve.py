"""The command `serve`."""

from __future__ import annotations

from kbtui.cli.output import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from argparse import ArgumentParser, Namespace

PORT = 8000


def configure_serve(parser: ArgumentParser) -> None:
    """The arguments of `kbtui serve`."""
    add = parser.add_argument
    add(
        "--port", type=int, default=PORT, metavar="N", help=f"the port ({PORT}); 0 picks a free one"
    )
    add(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="the address to listen on (127.0.0.1)",
    )
    add(
        "--allow-network",
        action="store_true",
        help="allow an address that other machines can reach",
    )
    add("--font-size", type=int, default=16, metavar="N", help="font size in pixels, 6 to 72 (16)")


def run_serve(args: Namespace) -> int:
    """Show the TUI in a browser on this machine.

    Prints the address to open. It contains a token: anyone who has it can read the workspace.
    Other machines cannot connect unless --host names another address and --allow-network is given.
    """
    import asyncio
    import secrets
    import signal

    from kbtui.errors import UsageError
    from kbtui.library import open_workspace
    from kbtui.serve.access_control import address

    if not 6 <= args.font_size <= 72:
        raise UsageError("must be from 6 to 72", where="--font-size")
    library = open_workspace(args.workspace)
    host = address(args.host, args.allow_network)
    listening = _listen(host, args.port)
    from kbtui.serve.server import BrowserServer, serve

    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    server = BrowserServer(library.workspace.root, host, port, token, args.font_size)
    shown = f"[{host}]" if ":" in host else host

    def ready() -> None:
        print(f"http://{shown}:{port}/?token={token}", flush=True)
        note("open this address in a browser; whoever has it reads the workspace. Ctrl+C ends")

    return 130 if asyncio.run(serve(server, listening, ready)) == signal.SIGINT else 0


def _listen(host: str, port: int) -> socket.socket:
    import socket

    from kbtui.errors import UsageError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen there: {reason.lower()}",
            where=f"{host}:{port}",
            hint="--port 0 takes a free port",
        ) from error
    return listening
