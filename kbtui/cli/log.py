"""Print the logs of engine and screen for a report, with private text left out.

Left out are names of files, quoted text and what follows it in a message, ids and addresses; --whole
keeps everything, for your own eyes. The first lines say which versions run on what.
"""

from __future__ import annotations

from kbtui.cli.output import emit, note, save

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator
    from pathlib import Path

LINES = 200
BYTES_MOST = 1_000_000
"""So much of the end of a log is looked at."""
PACKAGES = ("textual", "tantivy", "lancedb", "onnxruntime", "sentence-transformers", "torch")


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui log`."""
    add = parser.add_argument
    add("--lines", type=int, default=LINES, metavar="N", help=f"the last N of each ({LINES})")
    add("--whole", action="store_true", help="with private text; not for a report")
    add("-o", "--output", metavar="FILE", help="where to (default: stdout)")


def run(args: Namespace) -> int:
    """Print them, after the versions of what runs."""
    from pathlib import Path

    from kbtui.errors import UsageError
    from kbtui.workspace import find_workspace

    if args.lines < 1:
        raise UsageError("must be 1 or more", where="--lines")
    workspace = find_workspace(Path(args.workspace) if args.workspace else None)
    logs = {"engine": workspace.log_file, "screen": workspace.log_file.with_name("tui.log")}
    parts = ["\n".join(_about()) + "\n"]
    for name, path in logs.items():
        lines = _lines(path)
        if not args.whole:
            from kbtui.cli.redaction import Redaction

            # Before the last lines are taken: a line can only be judged within its record.
            lines = Redaction(workspace.root).lines(lines)
        lines = lines[-args.lines :]
        parts.append(f"{name}: {len(lines)} lines\n" + "".join(f"  {line}\n" for line in lines))
    text = "\n".join(parts)
    if args.output is None:
        emit(text)
    else:
        save(workspace, args.output, text)
        note(f"written to {args.output}; look through it before you send it")
    return 0


def _about() -> Iterator[str]:
    """Versions and surroundings, nothing of the workspace."""
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from kbtui.errors import ConfigError
    from kbtui.version import __version__
    from kbtui.workspace.settings import explain_settings

    yield f"kbtui {__version__}, Python {platform.python_version()}, {platform.platform()}"
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} missing")
    yield ", ".join(found)
    names = ("TERM", "COLORTERM", "TERM_PROGRAM", "LANG", "NO_COLOR")
    yield ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    try:
        keys = [one.key.name for one in explain_settings() if one.origin != "default"]
        yield f"settings that are not the defaults: {', '.join(keys) or 'none'}"
    except ConfigError as error:
        yield f"settings: {type(error).__name__}"


def _lines(path: Path) -> list[str]:
    """The lines of a log, of a long one those at its end."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - BYTES_MOST))
            text = file.read(BYTES_MOST).decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        note(f"{path}: {(error.strerror or str(error)).lower()}")
        return []
    from kbtui.text import safe

    return safe(text).splitlines()
