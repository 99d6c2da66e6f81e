"""The commands `doctor`, `paths`, `config`, `model` and `log`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kbtui.cli.cli_output import (
    ProgressLine,
    StderrWaitIndicator,
    print_json_result,
    print_result,
    print_text_or_json,
    print_to_stderr,
    write_output_file,
)
from kbtui.errors import ConfigError, UsageError, WorkspaceError, suggest_similar_key
from kbtui.references import CONVERSATION_ID
from kbtui.terminal_text import format_counted_noun, sanitize
from kbtui.version import __version__
from kbtui.workspace import Settings, find_workspace, load_settings, paths, user_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator

    from kbtui.library.diagnostics import DiagnosticFinding


def declare_doctor_command_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_doctor_command(args: Namespace) -> int:
    """Check terminal, settings, packages, workspace, topics, sources, conversations, index, engine and model.

    Each line shows the state (ok, note or wrong), the area and the finding. The command does not
    start an engine.
    """
    findings = []
    with ProgressLine() as progress:
        for finding in _run_doctor_checks(args.workspace):
            findings.append(finding)
            progress.show_progress(f"checking {finding.area}")
    print_text_or_json(
        "".join(f"{f.state:<6} {f.area:<14} {f.message}\n" for f in findings),
        [finding._asdict() | {"message": finding.message} for finding in findings],
        args.json,
    )
    return 1 if any(finding.state == "wrong" for finding in findings) else 0


def _run_doctor_checks(path: str | None) -> Iterator[DiagnosticFinding]:
    """Run the checks, even without a workspace or with invalid settings."""
    from kbtui.library import open_workspace
    from kbtui.library.diagnostics import DiagnosticFinding, run_diagnostics

    try:
        yield from run_diagnostics(open_workspace(path))
    except ConfigError:
        yield from run_diagnostics(open_workspace(path, Settings()))
    except WorkspaceError as error:
        yield from run_diagnostics(None)
        yield DiagnosticFinding("workspace", "wrong", "unavailable", {"detail": str(error)})


def declare_paths_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--looked",
        action="store_true",
        help="list every configuration file, including missing ones",
    )
    add("--json", action="store_true", help="print one JSON document")


def run_paths_command(args: Namespace) -> int:
    """Print the directories and files that kbtui uses for this workspace."""
    workspace = find_workspace(args.workspace)
    settings_file = user_settings.get_settings_path()
    if args.looked:
        from kbtui.workspace.jp_config import read_config_layers

        looked = [settings_file, *dict.fromkeys(read_config_layers(workspace).files)]
        lines = [_format_path_and_existence(path) for path in looked]
        facts: object = [{"path": str(path), "exists": path.exists()} for path in looked]
    else:
        places = {
            "workspace": workspace.root,
            "configuration": workspace.config_directory,
            "user_local": workspace.jp_user_directory,
            "index": workspace.cache_dir,
            "user_data": workspace.user_data_directory,
            "settings": settings_file,
            "engine_log": workspace.engine_log_file,
            "tui_log": workspace.engine_log_file.with_name("tui.log"),
            "engine_socket": Path(paths.make_engine_socket_path()),
        }
        lines = [f"{name:<14} {_format_path_and_existence(path)}" for name, path in places.items()]
        from kbtui.conversations.conversation_repository import (
            list_agent_directories_and_conversation_counts,
        )

        agents = list_agent_directories_and_conversation_counts(workspace)
        lines += [
            f"{agent.name:<14} {path}  ({agent.describe_conversation_counts()})"
            for agent in agents
            for path in agent.directories or "-"
        ]
        facts = {
            **{name: str(path) if path else None for name, path in places.items()},
            "agents": [agent.as_json() for agent in agents],
        }
    print_text_or_json("".join(f"{line}\n" for line in lines), facts, args.json)
    return 0


def _format_path_and_existence(path: Path | None) -> str:
    if path is None:
        return "-"
    return str(path) if path.exists() else f"{path}  (does not exist)"


def declare_model_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    text = "show the model (default), or compare it with another one"
    add("action", choices=["show", "compare"], nargs="?", default="show", help=text)
    add("path", nargs="?", metavar="PATH", help="with `compare`: the directory of the other model")
    text = "with `compare`: use at most N logged queries (default: 50)"
    add("--queries", type=int, default=50, metavar="N", help=text)
    text = "with `compare`: use at most N passages (default: 500)"
    add("--passages", type=int, default=500, metavar="N", help=text)
    add("--json", action="store_true", help="print one JSON document")


def _compare_embedding_models(args: Namespace) -> int:
    """Compare the configured model with another one, using the queries in the query log."""
    from kbtui.library import open_workspace
    from kbtui.library.embedding_model_comparison import compare_models

    for name in ("queries", "passages"):
        if getattr(args, name) < 1:
            raise UsageError("must be at least 1", where=f"--{name}")
    with open_workspace(args.workspace) as library:
        try:
            found = compare_models(
                library.workspace,
                library.open_index_reader(),
                load_settings().model,
                args.path,
                max_queries=args.queries,
                max_passages=args.passages,
                report=print_to_stderr,
            )
        except KeyboardInterrupt:
            print_to_stderr("stopped; the vectors made so far are kept for the next comparison")
            raise
    columns = [
        {
            "size": f"{one['size'] / 1e6:,.0f} MB",
            "dimension": f"{one['dimension']:,}",
            "load": f"{one['load_seconds']:.1f} s",
            "passages per second": f"{one['passages_per_second']:,.0f}",
            "one query": f"{one['query_milliseconds']:.0f} ms",
            "embed all again": f"{one['seconds_for_all'] / 60:,.1f} min",
        }
        for one in (found["current"], found["other"])
    ]
    lines = [f"{'':20}  {'current':>12}  {'other':>12}"]
    lines += [f"{name:20}  {text:>12}  {columns[1][name]:>12}" for name, text in columns[0].items()]
    if quality := found["quality"]:
        kinds = (quality["current"], quality["other"])
        count = format_counted_noun(quality["queries"], "query", "queries")
        lines += [
            "",
            f"hits that you opened after {count}:",
            f"{'nDCG@10':20}  {kinds[0]['ndcg']:>12.3f}  {kinds[1]['ndcg']:>12.3f}",
            f"{'hit rate@10':20}  {kinds[0]['hit_rate']:>12.0%}  {kinds[1]['hit_rate']:>12.0%}",
        ]
    queries = format_counted_noun(len(found["queries"]), "query", "queries")
    passages = format_counted_noun(found["all_passages"], "passage")
    lines += [
        "",
        f"{queries} over {found['passages']:,} of {passages}: on average, the models share {found['agreement']:.0%} of "
        f"the 10 best hits; for {found['same_best']:.0%} of the queries, they have the same best hit",
    ]
    for query in found["queries"][:10]:
        lines.append(f"{query['agreement']:4.0%}  {query['query']}")
        for label, refs in (("current: ", query["current"]), ("other:   ", query["other"])):
            lines += [f"      only {label}{', '.join(refs[:3])}"] if refs else []
    print_text_or_json("\n".join([*lines, ""]), {**found}, args.json)
    return 0


def run_model_command(args: Namespace) -> int:
    """Show the embedding model: its name, its path, and whether its files are intact.

    `compare PATH` compares this model with the one in the directory PATH. Both models embed your logged
    queries and a sample of the indexed passages. The command prints how many hits the two models share, and
    the speed and the size of each model.
    """
    if args.action == "compare":
        if not args.path:
            raise UsageError("`compare` needs the directory of a model", where="PATH")
        return _compare_embedding_models(args)
    if args.path:
        raise UsageError("only `compare` takes a path", where="PATH")
    from kbtui.index.embedding_model import (
        EmbeddingModelUnavailableError,
        find_embedding_model,
        verify_packaged_model,
    )

    setting = load_settings().model
    facts: dict[str, object] = {"setting": setting, "source": None, "usable": False, "reason": None}
    try:
        model = find_embedding_model(setting)
        facts["source"] = model.source
        with StderrWaitIndicator("checking the model's files"):
            verify_packaged_model(model)
        facts["usable"] = True
    except EmbeddingModelUnavailableError as error:
        facts["reason"] = str(error)
    name = setting or "all-MiniLM-L6-v2, packaged"
    # kbtui knows the checksums of its own model only.
    known = (
        "usable, checksums verified" if not setting else "found; the engine loads it when needed"
    )
    state = known if facts["usable"] else facts["reason"]
    text = f"model   {name}\nsource  {facts['source'] or '-'}\nstate   {state}\n"
    print_text_or_json(text, facts, args.json)
    return 0 if facts["usable"] or setting == "off" else 3


_LOG_LINES = 200
_LOG_BYTES = 1_000_000
"""At most this many bytes are read from the end of each log."""
_PACKAGES = ("textual", "tantivy", "lancedb", "onnxruntime", "sentence-transformers", "torch")


def declare_log_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    text = f"print the last N lines of each log (default: {_LOG_LINES})"
    add("--lines", type=int, default=_LOG_LINES, metavar="N", help=text)
    add("--whole", action="store_true", help="include private text; do not publish the output")
    add("-o", "--output", metavar="FILE", help="write to FILE (default: standard output)")


def run_log_command(args: Namespace) -> int:
    """Print the logs of the engine and the TUI for a bug report, without private text.

    The output leaves out file names, ids, addresses, and everything after a message's first quotation
    mark. With --whole, nothing is left out. The first lines show the versions of kbtui, Python,
    packages and system.
    """
    if args.lines < 1:
        raise UsageError("must be 1 or more", where="--lines")
    workspace = find_workspace(args.workspace)
    logs = {
        "engine": workspace.engine_log_file,
        "TUI": workspace.engine_log_file.with_name("tui.log"),
    }
    parts = ["\n".join(_list_versions_and_environment()) + "\n"]
    for name, path in logs.items():
        lines = _read_last_log_lines(path)
        if not args.whole:
            # Redact before cutting: whether a line is private depends on the start of its record.
            lines = list(DiagnosticLogRedactor(workspace.root).redact_log(lines))
        lines = lines[-args.lines :]
        size = format_counted_noun(len(lines), "line")
        parts.append(f"{name}: {size}\n" + "".join(f"  {line}\n" for line in lines))
    text = "\n".join(parts)
    if args.output is None:
        print_result(text)
    else:
        write_output_file(workspace, args.output, text)
        print_to_stderr(f"wrote {args.output}; check the file for private text before you send it")
    return 0


def _list_versions_and_environment() -> Iterator[str]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    yield f"kbtui {__version__}, Python {platform.python_version()}, {platform.platform()}"
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} missing")
    yield ", ".join(found)
    names = ("TERM", "COLORTERM", "TERM_PROGRAM", "LANG", "NO_COLOR")
    yield ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    try:
        keys = [
            row.key.name
            for row in user_settings.list_settings_with_origins()
            if row.origin != "default"
        ]
        yield f"changed settings: {', '.join(keys) or 'none'}"
    except ConfigError as error:
        yield f"settings: {type(error).__name__}"


def _read_last_log_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LOG_BYTES))
            text = file.read(_LOG_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        print_to_stderr(f"{path}: {(error.strerror or str(error)).lower()}")
        return []
    return sanitize(text).splitlines()


_RECORD_HEADER = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[\d+\] ")
"""Matches the beginning of a log record: the time and the process id.

The other lines of a record are indented.
"""
_INDENT = "  "
_TRACEBACK = "Traceback (most recent call last):"
_CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_FRAME_LINE = re.compile(
    r' *File "/(?:[^/\s\'"]+/)*?(?:site-packages|lib/python[\d.]+|kbtui)/(?P<file>[\w./<>-]+)"'
    r", line (?P<line>\d+)(?:, in (?P<name>[\w<>.]+)$)?",
    re.ASCII,
)
"""Matches a traceback line that names a file of Python, of kbtui or of an installed package.

The path of such a file is not private.
"""
_EXCEPTION_LINE = re.compile(
    r"(?:kbtui\.[\w.]+|[\w.]*(?:Error|Exception|Exit|Group|Interrupt|Warning))(?=:|$)", re.ASCII
)
_QUOTATION_MARK = re.compile(
    r"\b[bBrRuUfF]{1,2}'(?=\W)|(?<!\w)'|'(?!\w)|(?<!\w)[bBrRuUfF]{1,2}'|[\"`‘“”„«»]"
)
"""Matches a quotation mark, but not an apostrophe between letters.

In a log message, the first quotation mark and everything after it are left out.
"""
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+")
_FILE_PATH = re.compile(r"(?<![\w…])(WORKSPACE|~)?/(?!…)[^:;,)]*")
_CONVERSATION_ID = re.compile(rf"\b{CONVERSATION_ID}|\b\d{{10,12}}\b")
_SOURCE_NAME = re.compile(r"\bsource (?!…)[^\s:]+(?=:)")
_REFERENCE = re.compile(r"(?<![\w/~.])(?!WORKSPACE/)[\w.-]+/[^\s:,;)]+")
_OMISSION = "…"


class DiagnosticLogRedactor:
    """Removes private text from logs, but keeps the places in the code at which errors occurred."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._home = paths.get_user_home()

    def redact_log(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines of a log without file names, quoted text, ids and addresses."""
        # `state` is `frames` in the part of a traceback before the exception, `text` in private
        # text, which extends to the next record, and `between` everywhere else.
        state, indented, is_traceback = "between", False, False
        for line in lines:
            if header := _RECORD_HEADER.match(line):
                message = line[header.end() :]
                indented, is_traceback = True, message.endswith(_TRACEBACK)
                state = "frames" if is_traceback else "between"
                yield header[0] + self._redact_log_message(message)
                continue
            if indented and line and not line.startswith(_INDENT):
                # This line is not part of a record: Python itself wrote it.
                state, indented, is_traceback = "between", False, False
            if indented:
                line = line.removeprefix(_INDENT)
            if state == "text":
                continue
            if state == "frames" and (not line or line.startswith(" ")):
                if found := _FRAME_LINE.match(line):
                    name = f", in {found['name']}" if found["name"] else ""
                    yield f'  File "…/{found["file"]}", line {found["line"]}{name}'
                elif line.lstrip().startswith('File "'):
                    yield '  File "…"'
            elif state == "frames" and _EXCEPTION_LINE.match(line):
                state = "between"
                yield self._redact_log_message(line)
            elif line in _CHAINS and is_traceback:
                yield line
            elif line == _TRACEBACK and (is_traceback or not indented):
                state, is_traceback = "frames", True
                yield line
            elif line and not line.startswith("Exception in thread "):
                state = "text"
                yield _OMISSION

    def _redact_log_message(self, text: str) -> str:
        if quote := _QUOTATION_MARK.search(text):
            text = f"{text[: quote.start()]}'…'"
        text = text.replace(self._root, "WORKSPACE")
        if self._home:
            text = text.replace(self._home, "~")
        text = _URL.sub("…://…", text)
        text = _FILE_PATH.sub(_redact_all_names_in_path, text)
        text = _SOURCE_NAME.sub("source …", text)
        text = _REFERENCE.sub("…/…", text)
        return _CONVERSATION_ID.sub("…", text)


def _redact_all_names_in_path(match: re.Match[str]) -> str:
    """Redact a matched path: keep only `WORKSPACE` or `~` at its start, and its extension."""
    ending = Path(match[0]).suffix
    return f"{match[1] or ''}/…{ending if re.fullmatch(r'[.][a-z0-9]{1,6}', ending) else ''}"


def declare_config_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("key", nargs="?", metavar="KEY", help="print only the value of this key")
    add("--example", action="store_true", help="print an example file that explains every key")
    add("--json", action="store_true", help="print one JSON document")


def run_config_command(args: Namespace) -> int:
    """Show the settings: each key, its value and its origin.

    kbtui config                 show every key
    kbtui config theme           print the value of one key
    kbtui config --example       print a commented file to begin with
    """
    if args.example:
        print_result(user_settings.format_example_settings())
        return 0
    if args.key is not None and args.key not in {key.name for key in user_settings.SETTING_KEYS}:
        hint = suggest_similar_key(args.key, user_settings.Settings._fields)
        raise UsageError(f"unknown key {args.key!r}", hint=hint)
    found = [
        row
        for row in user_settings.list_settings_with_origins()
        if args.key in (None, row.key.name)
    ]
    path = user_settings.get_settings_path()
    if args.json:
        keys = [
            {
                "key": row.key.name,
                "value": row.value,
                "default": row.key.default,
                "origin": row.origin,
                "text": row.key.text,
            }
            for row in found
        ]
        print_json_result({"file": str(path), "exists": path.exists(), "keys": keys})
        return 0
    values = [user_settings.format_toml_value(row.value) for row in found]
    if args.key is not None:
        print_result((found[0].value if isinstance(found[0].value, str) else values[0]) + "\n")
        return 0
    width = min(max(map(len, values)), 40)
    lines = [
        f"{row.key.name:<19} {value:<{width}}  {row.origin}"
        for row, value in zip(found, values, strict=True)
    ]
    missing = "  (does not exist: all settings are at their defaults)"
    lines += ["", f"file: {path}{'' if path.exists() else missing}"]
    print_result("\n".join(lines) + "\n")
    return 0
