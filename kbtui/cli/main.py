"""The entry point of `kbtui`: finds the command and imports only its module.

Short commands spend most of their time on imports, so a table names the module of each command. A
module has two functions for each command: `declare_NAME_command_arguments(parser)`, and
`run_NAME_command(args) -> int`, whose docstring is the text of `--help`.
"""

import atexit
import errno
import gc
import io
import os
import sys

from kbtui.cli.cli_output import apply_terminal_text_setting, print_error, print_to_stderr
from kbtui.errors import KbtuiError, RequiredPackageUnavailableError, UsageError
from kbtui.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Any

    from kbtui.cli.argument_parser_base_class import CliArgumentParser


# For each command, its module in kbtui.cli and its description. `kbtui` without a command runs `tui`.
COMMANDS: dict[str, tuple[str, str]] = {
    "tui": ("tui_start_commands", "browse the workspace in the terminal (the default)"),
    "demo": ("tui_start_commands", "browse a fresh copy of the bundled demo workspace"),
    "search": ("search_command", "search subjects and conversations"),
    "index": ("engine_index_and_workspaces_commands", "bring the index up to date"),
    "topics": ("topics_learn_and_prompt_commands", "list topics and their subjects"),
    "learn": ("topics_learn_and_prompt_commands", "print exactly what the tool `learn` returns"),
    "prompt": (
        "topics_learn_and_prompt_commands",
        "print the <knowledge> section of the system prompt",
    ),
    "conversation": ("conversation_commands", "list, grep, read and export conversations"),
    "export": (
        "conversation_commands",
        "write a conversation as HTML, Markdown or JSON for other people",
    ),
    "keep": ("keep_sessions_command", "keep copies of sessions before their agent deletes them"),
    "mark": ("turn_mark_command", "mark turns and passages as decided, rejected or superseded"),
    "data": ("user_data_command", "move your bookmarks, marks and other data to another machine"),
    "show": ("entry_commands", "print what a reference points to"),
    "open": ("tui_start_commands", "open a reference in the TUI"),
    "cites": ("entry_commands", "list what a reference cites, and what cites it"),
    "blame": (
        "blame_and_conversation_changes_commands",
        "list the turns that changed or read a file, or that wrote certain lines",
    ),
    "entries": ("entry_commands", "list entries with type, status, size and citations"),
    "entry": ("entry_commands", "create, edit or remove a subject; inspect an entry"),
    "insights": (
        "insights_command",
        "show frequent queries, queries without a good match, citations and activity",
    ),
    "source": ("document_source_command", "fetch pages, files and MCP resources into topics"),
    "tools": ("assistant_tool_commands", "print, install or uninstall the tools for assistants"),
    "tool": ("assistant_tool_commands", "answer one call to a JP local tool"),
    "mcp": ("assistant_tool_commands", "serve the tools over MCP on stdio"),
    "serve": ("tui_start_commands", "show the TUI in a browser on this machine"),
    "publish": ("published_library_commands", "publish subjects and their vectors for a team"),
    "library": (
        "published_library_commands",
        "show or fetch the published library that this workspace subscribes to",
    ),
    "engine": ("engine_index_and_workspaces_commands", "show or stop the engine"),
    "workspaces": (
        "engine_index_and_workspaces_commands",
        "list the workspaces that you have opened, or remove some from the list",
    ),
    "doctor": ("diagnostic_and_settings_commands", "find and explain problems"),
    "paths": ("diagnostic_and_settings_commands", "print the directories in use"),
    "model": ("diagnostic_and_settings_commands", "show the embedding model"),
    "log": (
        "diagnostic_and_settings_commands",
        "print the logs for a bug report, without private text",
    ),
    "config": ("diagnostic_and_settings_commands", "show the settings and where they come from"),
    "completion": ("shell_completion", "print a completion script for a shell"),
    "man": ("man_page_command", "print the manual page"),
}
ALIASES = {"c": "conversation"}


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run a command and return its exit code."""
    if sys.platform == "win32":
        print("kbtui: Windows is not supported yet; use Linux or macOS", file=sys.stderr)
        return 3
    global _exit_code
    if argv is None:
        gc.set_threshold(50_000)  # Imports leave no garbage, but would trigger fifty collections.
        sys.excepthook = _print_crash_traceback
        # Exit functions run in reverse order. This one is registered first, so it runs last, after all
        # threads have ended and all libraries have cleaned up.
        atexit.register(_exit_at_once)
    _repair_standard_streams()
    _exit_code = _run_command_or_print_error(list(sys.argv[1:] if argv is None else argv))
    return _exit_code


_exit_code: int | None = None
"""The exit code. It is None while the command runs, and after a crash."""


def _exit_at_once() -> None:
    """End the process at once, without spending time on freeing objects."""
    if _exit_code is None:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # The interpreter reports this error when it exits.
    os._exit(_exit_code)


def _run_command_or_print_error(words: list[str]) -> int:
    """Run a command and return its exit code; print errors that are not caused by a bug."""
    try:
        return _dispatch_command(words)
    except KbtuiError as error:
        print_error(error)
        return error.exit_code
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "kbtui":
            raise
        missing = RequiredPackageUnavailableError(error)
        print_error(missing)
        return missing.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The program that reads the output, such as `head`, has exited.
        _discard_buffered_output()
        return 0
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF}:
            raise
        where = f"{os.fsdecode(error.filename)}: " if error.filename else "the output "
        is_closed = error.errno == errno.EBADF
        reason = "it is closed" if is_closed else (error.strerror or str(error)).lower()
        print_to_stderr(f"{where}cannot be written: {reason}")
        _discard_buffered_output()
        return 3


def load_command_parser_and_runner(
    name: str,
) -> "tuple[CliArgumentParser, Callable[[Namespace], int]]":
    """Import a command's module, and return its parser and its function `run_NAME_command`.

    Raises `KeyError` for an unknown command.
    """
    from kbtui.cli.argument_parser_base_class import CliArgumentParser

    module = _import_command_module(name)
    run = getattr(module, f"run_{name}_command")
    description = (run.__doc__ or "").replace("\n    ", "\n").strip()
    parser = CliArgumentParser(prog=f"kbtui {name}", description=description)
    getattr(module, f"declare_{name}_command_arguments")(parser)
    return parser, run


def _import_command_module(name: str) -> "Any":
    # `importlib` is not used, because it would have to be imported for this alone.
    return getattr(__import__("kbtui.cli", fromlist=[COMMANDS[name][0]]), COMMANDS[name][0])


def _print_crash_traceback(
    kind: type[BaseException], error: BaseException, trace: "TracebackType | None"
) -> None:
    """Print the traceback of a bug, without the control characters that quoted files may contain."""
    from traceback import format_exception

    from kbtui.terminal_text import sanitize

    sys.stderr.write(sanitize("".join(format_exception(kind, error, trace)), "strip"))


def _repair_standard_streams() -> None:
    """Reopen standard streams that are closed (`>&-`), and set the encoding of the open output streams."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # Discard messages, but make it an error to write a result. Otherwise, a script could take the
            # missing output for an empty result.
            null = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_WRONLY)
            setattr(sys, name, os.fdopen(null, "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            # On a terminal, replace characters that its encoding lacks. A pipe gets UTF-8, whatever
            # the locale is.
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def _discard_buffered_output() -> None:
    """Discard the buffered output, so that Python does not try to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch_command(words: list[str]) -> int:
    if "_ARGCOMPLETE" in os.environ:
        from kbtui.cli.shell_completion import print_completions_of_command_line

        return print_completions_of_command_line(_find_parser_to_complete)
    workspace, words = _split_off_workspace_option(words)
    if words and words[0] in {"-h", "--help", "help"}:
        print(_format_command_overview(), end="")
        return 0
    if words and words[0] in {"-V", "--version"}:
        print(f"kbtui {__version__}")
        return 0
    if not words and workspace != "":
        # Plain `kbtui` needs no parser.
        from kbtui.cli.tui_start_commands import open_tui

        apply_terminal_text_setting()
        return open_tui(_convert_library_uri_to_mirror_path(workspace))
    if words and words[0] in {"--fresh", "--plain"}:
        words = ["tui", *words]
    name = ALIASES.get(words[0], words[0]) if words else "tui"
    if name not in COMMANDS:
        from difflib import get_close_matches

        if name in {"-w", "--workspace"}:
            raise UsageError("a path is missing", where=name, hint="write `kbtui -w PATH`")
        if name.startswith("-"):
            raise UsageError(
                f"unknown option {words[0]!r} before a command",
                hint="only -w PATH can precede a command; `kbtui --help` lists the commands",
            )
        near = get_close_matches(name, COMMANDS, n=1)
        raise UsageError(
            f"unknown command {words[0]!r}",
            hint=f"did you mean `kbtui {near[0]}`?"
            if near
            else "`kbtui --help` lists the commands",
        )
    apply_terminal_text_setting()
    args, run = _parse_command_arguments_and_load_runner(name, workspace, words[1:])
    if args.workspace == "":
        raise UsageError("the path is empty", where="-w", hint="write `-w PATH`, or omit `-w`")
    args.workspace = _convert_library_uri_to_mirror_path(args.workspace)
    try:
        return run(args)
    finally:
        sys.stdout.flush()


def _parse_command_arguments_and_load_runner(
    name: str, workspace: str | None, words: list[str]
) -> "tuple[Any, Callable[[Any], int]]":
    """Return the parsed arguments of a command, and the command's function `run_NAME_command`."""
    if name == "search":
        from kbtui.cli.fast_argument_parser import SimpleArgumentParser

        module = _import_command_module(name)
        simple = SimpleArgumentParser(workspace)
        module.declare_search_command_arguments(simple)
        if (args := simple.parse_words(words)) is not None:
            return args, module.run_search_command
    parser, run = load_command_parser_and_runner(name)
    parser.set_defaults(workspace=workspace)
    # Options may appear between the words of a query, and between `rm` and the ids in `kbtui keep
    # rm --yes ID`.
    is_mixed = name in ("search", "keep") and "--" not in words
    return (parser.parse_intermixed_args if is_mixed else parser.parse_args)(words), run


def _convert_library_uri_to_mirror_path(workspace: str | None) -> str | None:
    """Return the path that the option `-w` specifies.

    If the option specifies the URI of a published library, the path is the root of the library's
    mirror.
    """
    if workspace is None or "://" not in workspace:
        return workspace
    from kbtui.cli.published_library_commands import find_or_fetch_library_mirror

    return find_or_fetch_library_mirror(workspace)


def _split_off_workspace_option(words: list[str]) -> tuple[str | None, list[str]]:
    """Split `-w PATH` off the beginning of a command line.

    Returns PATH (None without the option) and the remaining words.
    """
    if len(words) >= 2 and words[0] in {"-w", "--workspace"}:
        return words[1], words[2:]
    if words and words[0].startswith("--workspace="):
        return words[0].partition("=")[2], words[1:]
    return None, words


def _find_parser_to_complete(words: list[str]) -> "tuple[CliArgumentParser, int]":
    """Return the parser for completing a command line, and how many words precede the parser's own arguments."""
    from kbtui.cli.argument_parser_base_class import CliArgumentParser

    workspace, rest = _split_off_workspace_option(words)
    name = ALIASES.get(rest[0], rest[0]) if rest else ""
    if name in COMMANDS:
        parser, skipped = load_command_parser_and_runner(name)[0], 1 + len(words) - len(rest)
    else:
        parser, skipped = CliArgumentParser(prog="kbtui"), 0
        parser.add_argument("-V", "--version", action="store_true", help="print the version")
        texts = {name: text for name, (_, text) in COMMANDS.items()}
        parser.add_argument("command").completer = lambda **_: texts  # type: ignore[attr-defined]
    parser.set_defaults(workspace=workspace)
    return parser, skipped


def _format_command_overview() -> str:
    lines = [
        "kbtui: browse, search and read what a workspace knows and remembers",
        "",
        "usage: kbtui [-w PATH] [COMMAND] [ARGUMENTS]",
        "",
        "  kbtui                      browse the nearest workspace",
        "  kbtui demo                 look around in the bundled example",
        "  kbtui search retry policy  search subjects and conversations",
        "",
        "commands:",
    ]
    lines += [f"  {name:<14}{what}" for name, (_, what) in COMMANDS.items()]
    lines += [
        "",
        "`kbtui COMMAND --help` explains a command. Exit codes: 0 done, 1 nothing found,",
        "2 wrong usage or configuration, 3 unusable workspace or index, 130 interrupted.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
