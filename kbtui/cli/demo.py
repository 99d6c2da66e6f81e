"""Browse a fresh copy of the bundled demo workspace; nothing of yours is touched."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from pathlib import Path


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui demo`."""
    parser.add_argument(
        "--path", action="store_true", help="print where the copy lies instead of opening it"
    )


def run(args: Namespace) -> int:
    """Copy the demo and open the TUI on it."""
    root = fresh_copy()
    if args.path:
        from kbtui.cli.output import emit

        emit(f"{root}\n")
        return 0
    from kbtui.cli.tui import browse

    return browse(str(root), first="guide/about")


def fresh_copy() -> Path:
    """The demo workspace in the cache, brought to the state of the bundled one.

    Always the same place, so that its index is kept from one time to the next;
    files that are as bundled are left alone, others are replaced or removed.
    """
    import filecmp
    import shutil

    from kbtui.errors import WorkspaceError
    from kbtui.workspace.paths import cache_home, make_private

    source, target = bundled(), cache_home() / "demo"
    try:
        make_private(target)
        wanted = {path.relative_to(source) for path in source.rglob("*")}
        for path in sorted(target.rglob("*"), reverse=True):
            if path.relative_to(target) not in wanted:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for name in sorted(wanted):
            here, there = source / name, target / name
            if here.is_dir():
                make_private(there)
            elif not there.exists() or not filecmp.cmp(here, there, shallow=False):
                shutil.copyfile(here, there)
                there.chmod(0o600)
    except OSError as error:
        raise WorkspaceError(
            f"the demo cannot be copied: {error.strerror}",
            where=str(error.filename or target),
            hint="set XDG_CACHE_HOME to a directory that can be written",
        ) from error
    return target


def bundled() -> Path:
    """The demo workspace as it was installed, or in the source tree."""
    from pathlib import Path

    from kbtui.errors import WorkspaceError

    package = Path(__file__).resolve().parent.parent
    for place in (package / "assets" / "demo", package.parent / "assets" / "demo"):
        if (place / ".jp").is_dir():
            return place
    raise WorkspaceError("the demo workspace is missing from this installation", where=str(package))
