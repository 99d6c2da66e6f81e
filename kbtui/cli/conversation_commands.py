"""The commands `conversation ls`, `grep`, `read`, `info`, `changes` and `resume`, and `export`."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from kbtui.assistant.conversation_tool_answers import (
    format_answer_as_xml,
    format_tool_notices,
)
from kbtui.cli.argument_parser_base_class import reword_errors_for_command, split_values_at_commas
from kbtui.cli.blame_and_conversation_changes_commands import print_conversation_changes
from kbtui.cli.cli_output import (
    StderrWaitIndicator,
    are_colors_off,
    ask_for_confirmation,
    get_terminal_width,
    print_json_result,
    print_result,
    print_text_or_json,
    print_through_pager,
    print_to_stderr,
    write_output_file,
)
from kbtui.cli.turn_mark_command import cut_mark_label
from kbtui.conversations.conversation_event_kinds import (
    EVENT_KINDS,
    map_include_groups_to_event_kinds,
)
from kbtui.errors import KbtuiError, NothingFound, UsageError, WorkspaceError
from kbtui.terminal_text import (
    cut_to_width,
    format_counted_noun,
    format_outdated_subjects_of_turn,
    measure_text_width,
    sanitize,
    sanitize_to_one_line,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from kbtui.assistant.conversation_tool_answers import (
        ConversationGrepAnswer,
        ConversationGrepLine,
        ConversationInfoJson,
        ConversationListPage,
        ConversationReadAnswer,
    )
    from kbtui.conversations.conversation_data_types import (
        Conversation,
        ConversationEventJson,
        ConversationInfo,
        TokenUsage,
        Turn,
    )
    from kbtui.library import Library
    from kbtui.references import Ref
    from kbtui.workspace import Workspace


def declare_conversation_command_arguments(parser: ArgumentParser) -> None:
    from kbtui.conversations.conversation_data_types import TIME_SORTS

    metavar = "ls|grep|read|info|changes|resume|export"
    commands = parser.add_subparsers(dest="action", required=True, metavar=metavar)
    ls = commands.add_parser("ls", aliases=["list"], help="list conversations, newest first")
    text = "list at most N conversations (default: 20)"
    ls.add_argument("--limit", type=int, default=20, metavar="N", help=text)
    text = "skip the first N conversations (default: 0)"
    ls.add_argument("--offset", type=int, default=0, metavar="N", help=text)
    ls.add_argument(
        "--sort",
        choices=TIME_SORTS,
        default="activity",
        help="sort by this time (default: activity)",
    )
    ls.add_argument("--ascending", action="store_true", help="list the oldest first")
    ls.add_argument("--title", metavar="TEXT", help="only titles that contain TEXT")
    text = "only conversations with a turn that changed or read this file, or wrote these lines"
    ls.add_argument("--file", metavar="PATH[:LINES]", help=text)
    grep = commands.add_parser("grep", aliases=["g"], help="search conversations line by line")
    text = "the text to find in a line; - reads it from standard input"
    grep.add_argument("pattern", nargs="+", metavar="PATTERN", help=text)
    text = "PATTERN is a regular expression in RE2's syntax"
    grep.add_argument("-r", "--regex", action="store_true", help=text)
    text = "list conversations instead of matching lines"
    grep.add_argument("-l", "--list", dest="lists_conversations", action="store_true", help=text)
    grep.add_argument("--case-sensitive", action="store_true", help="match case")
    text = "search all workspaces that you have opened (`kbtui workspaces` lists them)"
    grep.add_argument("--all", action="store_true", help=text)
    _add_repeatable_option(
        grep,
        "-i",
        "--id",
        dest="ids",
        metavar="ID",
        what="only the conversation with this id, such as jp-c17457886043 or claude-258c7280; - reads ids from standard input",
    )
    text = "where to search: chat, tool, title, user, assistant, …"
    _add_repeatable_option(grep, "-s", "--scope", dest="scopes", metavar="SCOPE", what=text)
    text = "print N lines of context (default: 1 on a terminal, otherwise 0)"
    grep.add_argument("-C", "--context", type=int, metavar="N", help=text)
    text = "print at most N matches (default: 50), or with --list, N conversations (default: all)"
    grep.add_argument("--limit", type=int, metavar="N", help=text)
    read = commands.add_parser("read", aliases=["print"], help="print a conversation")
    text = "print at most N characters of XML; a single turn is shortened, but several turns that do not fit are an error"
    read.add_argument("--max-chars", type=int, metavar="N", help=text)
    info = commands.add_parser(
        "info", help="show what a conversation contains, which tools it used, and how many tokens"
    )
    changes = commands.add_parser(
        "changes", help="print the changes that a conversation made to files, as a diff"
    )
    changes.set_defaults(run_action=print_conversation_changes)
    text = "a conversation, turn or call: jp-c17457886043, claude-258c7280, …:3 or …:3.2"
    changes.add_argument("id", metavar="ID", help=text)
    changes.add_argument("--file", metavar="PATH", help="only changes to this file")
    text = "group the changes by file, instead of listing them in the order of the calls"
    changes.add_argument("--by-file", action="store_true", help=text)
    changes.add_argument("--stat", action="store_true", help="list the files, without their diffs")
    changes.add_argument("--json", action="store_true", help="print one JSON document")
    text = "write a conversation as HTML, Markdown or JSON, with its citations; the same as `kbtui export`"
    export = commands.add_parser("export", help=text)
    declare_export_command_arguments(export)
    ls.set_defaults(run_action=_print_conversation_list)
    grep.set_defaults(run_action=_grep_conversations)
    read.set_defaults(run_action=_print_conversation)
    info.set_defaults(run_action=_show_conversation_info)
    info.add_argument("ref", metavar="ID", help="jp-c17457886043, claude-258c7280, …")
    info.add_argument("--json", action="store_true", help="print one JSON document")
    export.set_defaults(run_action=_export_conversation)
    resume = commands.add_parser(
        "resume", help="print or run the agent's command that continues a conversation"
    )
    resume.set_defaults(run_action=_print_or_run_resume_command, purpose="resume")
    text = "a conversation or turn: jp-c17457886043, claude-258c7280, …:3"
    resume.add_argument("ref", metavar="ID", help=text)
    purposes = resume.add_mutually_exclusive_group()
    text = (
        "continue a copy of the conversation; if ID names a turn, JP ends the copy with that turn"
    )
    purposes.add_argument("--fork", dest="purpose", action="store_const", const="fork", help=text)
    text = "start a new conversation that has the turn as an attachment (JP only)"
    purposes.add_argument(
        "--attach", dest="purpose", action="store_const", const="attach", help=text
    )
    text = "run the command in the conversation's directory (asks first)"
    resume.add_argument("--run", action="store_true", help=text)
    text = "with --run, do not ask for confirmation"
    resume.add_argument("--yes", "-y", action="store_true", help=text)
    resume.add_argument("--json", action="store_true", help="print one JSON document")
    for command in (ls, grep):
        text = "only conversations with this agent: jp, claude-code, … or a prefix"
        _add_repeatable_option(command, "--agent", dest="agents", metavar="AGENT", what=text)
        text = "only conversations with this label (repeatable; all labels must match)"
        command.add_argument(
            "--label", dest="labels", action="append", metavar="KEY[=VALUE]", help=text
        )
        text = "use archived conversations instead of live ones"
        command.add_argument("--archived", action="store_true", help=text)
    text = (
        "a conversation, turn or call: jp-c17457886043, 17457886043, claude-258c7280, …:3 or …:3.2"
    )
    read.add_argument("id", metavar="ID", help=text)
    read.add_argument("--turn", type=int, metavar="N", help="only this turn")
    read.add_argument("--last", type=int, metavar="N", help="only the last N turns")
    text = f"only these kinds of events: {', '.join(map_include_groups_to_event_kinds())}"
    _add_repeatable_option(read, "--include", metavar="KIND", what=text)
    for command in (ls, grep, read):
        formats, text = ["text", "xml", "json"], "the output format (default: text)"
        command.add_argument("--format", choices=formats, default="text", help=text)
        text = "the same as --format json"
        command.add_argument("--json", dest="format", action="store_const", const="json", help=text)


def _add_repeatable_option(parser: ArgumentParser, *names: str, what: str, **keys: str) -> None:
    text = f"{what} (repeatable, or comma-separated)"
    parser.add_argument(*names, action="append", help=text, **keys)  # type: ignore[arg-type]


def run_conversation_command(args: Namespace) -> int:
    """List, search, read and export conversations.

    kbtui conversation ls --title retry      list conversations with "retry" in the title
    kbtui conversation ls --agent codex      list conversations with this agent
    kbtui conversation grep retry policy     find lines that contain "retry policy"
    kbtui conversation grep -r 'retr(y|ies)' find lines that match a regular expression
    kbtui conversation grep --all retry      find lines in all projects
    kbtui conversation read jp-c17457886043  print a conversation, or one turn (…:3)
    kbtui conversation info claude-258c7280  count turns, calls and tokens
    kbtui conversation changes ID --stat     list the files that a conversation changed
    kbtui conversation resume ID --fork      print the agent's command that continues a copy
    kbtui conversation export ID -o FILE     write Markdown with the citations of each turn
    """
    from kbtui.library import open_workspace

    with open_workspace(args.workspace) as library, reword_errors_for_command():
        code: int = args.run_action(library, args)
    return code


def _print_conversation_list(library: Library, args: Namespace) -> int:
    from kbtui.assistant.conversation_tools import answer_conversation_list
    from kbtui.conversations.conversation_repository import find_skipped_conversation_paths

    agents = split_values_at_commas(args.agents)
    with StderrWaitIndicator("listing conversations"):
        answer = answer_conversation_list(
            library.workspace,
            limit=args.limit,
            offset=args.offset,
            sort=args.sort,
            descending=not args.ascending,
            archived=args.archived,
            title_contains=args.title,
            agents=agents,
            labels=args.labels,
            file=args.file,
        )
    found = find_skipped_conversation_paths(library.workspace, agents)
    strays = [stray for stray in found if not stray.has_no_turn]
    if len(strays) == 1:
        print_to_stderr(f"{strays[0].path}: skipped: {strays[0].reason}")
    elif strays:
        print_to_stderr(
            f"{len(strays)} conversations skipped; `kbtui doctor` lists them with the reasons"
        )
    _print_conversation_tool_answer(
        "list", answer, args.format, lambda writer: writer.format_conversation_list(answer)
    )
    if args.format == "text" and not (answer.conversations or answer.notices):
        print_to_stderr("no conversation matches")
    return 0 if answer.conversations else 1


def _grep_conversations(library: Library, args: Namespace) -> int:
    from kbtui.assistant.conversation_tools import (
        answer_conversation_grep,
        grep_conversations_of_all_projects,
    )
    from kbtui.conversations.conversation_grep import make_grep_pattern
    from kbtui.conversations.conversation_repository import list_conversation_change_signatures
    from kbtui.references import shorten_conversation_ids

    pattern, ids = _read_grep_pattern_and_ids_from_options_or_stdin(args)
    context, limit = args.context, args.limit
    if context is None:
        context = 1 if args.format == "text" and sys.stdout.isatty() else 0
    if limit is not None and limit < 1:
        raise UsageError(f"must be at least 1, not {limit}", where="--limit")
    if args.all and ids is not None:
        raise UsageError("cannot be combined with --all", where="--id")
    if args.lists_conversations and args.context is not None:
        raise UsageError("cannot be combined with --list", where="--context")
    if any(":" in one.removeprefix("jp://") for one in split_values_at_commas(args.ids) or ()):
        print_to_stderr("--id: the turn is ignored; grep always searches whole conversations")

    def grep_conversations_of_workspace(workspace: Workspace) -> ConversationGrepAnswer:
        short_ids.update(shorten_conversation_ids(list_conversation_change_signatures(workspace)))
        return answer_conversation_grep(
            workspace,
            pattern=pattern,
            ignore_case=not args.case_sensitive,
            regex=args.regex,
            ids=ids,
            scopes=split_values_at_commas(args.scopes),
            agents=split_values_at_commas(args.agents),
            labels=args.labels,
            context=context,
            limit=1 if args.lists_conversations else limit or 50,
            archived=args.archived,
        )

    short_ids: dict[str, str] = {}
    with StderrWaitIndicator("searching conversations"):
        if args.all:
            from kbtui.userdata.workspace_registry import list_registered_workspaces

            registered = list_registered_workspaces(library.settings, library.workspace)
            answer = grep_conversations_of_all_projects(
                registered, grep_conversations_of_workspace, limit or 50
            )
        else:
            answer = grep_conversations_of_workspace(library.workspace)
    if args.lists_conversations:
        _print_conversations_with_matches(answer, short_ids, limit, args.format)
    else:
        compiled = make_grep_pattern(
            pattern, ignore_case=not args.case_sensitive, is_regex=args.regex
        )
        _print_conversation_tool_answer(
            "grep",
            answer,
            args.format,
            lambda writer: writer.format_grep_matches(
                answer, short_ids, compiled.find_match_spans, separate=context > 0
            ),
        )
    if args.format == "text" and sys.stdout.isatty() and not (answer.count or answer.notices):
        advice = "" if args.archived else "; --archived searches archived conversations"
        print_to_stderr(f"no matches{advice}")
    last = args.pattern[-1]
    if not answer.count and len(args.pattern) > 1 and _ID_OR_STANDARD_INPUT.fullmatch(last):
        print_to_stderr(
            f"no line contains {pattern!r}; to search one conversation, write `-i {last}`"
        )
    return 0 if answer.count else 1


_ID_OR_STANDARD_INPUT = re.compile(r"-|[a-z]+-[0-9A-Za-z-]{8,}(?::\S*)?")


def _read_grep_pattern_and_ids_from_options_or_stdin(
    args: Namespace,
) -> tuple[str, list[str] | None]:
    """Return the pattern to search for, and the ids of the conversations to search (None: all conversations).

    If the pattern or an id is `-`, it is read from standard input. Ids on standard input are separated
    by white space or commas; lines printed by `conversation ls` or `grep` are also accepted. The final
    line break of a pattern is removed. Raises `UsageError` if both the pattern and an id are `-`.
    """
    pattern, ids = " ".join(args.pattern), split_values_at_commas(args.ids)
    reads_ids = ids is not None and "-" in ids
    if not reads_ids and pattern != "-":
        return pattern, ids
    if reads_ids and pattern == "-":
        raise UsageError("PATTERN and --id cannot both be '-'", where="PATTERN")
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not reads_ids:
        return text.removesuffix("\n").removesuffix("\r"), ids
    # A line consists of ids, or begins with an id, as in the output of `conversation ls` and `grep`.
    lines = (line.replace(",", " ").split() for line in text.splitlines())
    read = [
        word
        for words in lines
        for word in (words if _are_all_conversation_ids(words) else words[:1])
    ]
    named = [id_ for id_ in ids or () if id_ != "-"] + read
    if not named:
        raise NothingFound("standard input does not contain the id of a conversation", where="--id")
    return pattern, named


def _are_all_conversation_ids(words: list[str]) -> bool:
    from kbtui.references import parse_conversation_ref

    try:
        return all(map(parse_conversation_ref, words))
    except KbtuiError:
        return False


def _print_conversations_with_matches(
    answer: ConversationGrepAnswer, short_ids: Mapping[str, str], limit: int | None, form: str
) -> None:
    """Print the ids of conversations with matches; on a terminal, also print match counts and titles."""

    found = answer.conversations[:limit]
    notices = [notice for notice in answer.notices if notice is not answer.omitted_matches_notice]
    hint = format_tool_notices(notices, for_command=True)
    shape = {
        "total": len(answer.conversations),
        "count": len(found),
        "omitted": len(answer.conversations) - len(found),
        "hint": hint or None,
        "conversations": [one.as_json() for one in found],
    }
    if form == "json":
        print_json_result(shape)
        return
    if form == "xml":
        print_result(format_answer_as_xml("grep", shape) + "\n")
        return
    if sys.stdout.isatty():
        ids = [short_ids.get(one.id, one.id) for one in found]
        wide = max(map(len, ids), default=0)
        rows = zip(ids, found, strict=True)
        lines = [
            f"{id_:<{wide}}  {one.matches:>6,}  "
            f"{format_project_label(one.project)}{sanitize_to_one_line(one.title or 'Untitled')}"
            for id_, one in rows
        ]
        print_through_pager("".join(f"{line}\n" for line in lines))
    else:
        print_result("".join(f"{one.id}\n" for one in found))
    if hint:
        print_to_stderr(hint)


def _print_conversation(library: Library, args: Namespace) -> int:
    from kbtui.assistant.conversation_tools import answer_conversation_read

    with StderrWaitIndicator("reading"):
        answer = answer_conversation_read(
            library.workspace,
            id=args.id,
            turn=args.turn,
            last=args.last,
            include=split_values_at_commas(args.include),
            max_chars=args.max_chars,
            extract_citations_from_tool_calls=library.extract_citations_from_tool_calls,
        )
    _print_conversation_tool_answer(
        "read", answer, args.format, lambda writer: writer.format_conversation_turns(answer)
    )
    has_events = any(turn["events"] for turn in answer.turns)
    return 0 if has_events or (answer.turns and not args.include) else 1


def _find_conversation_of_reference(library: Library, text: str) -> tuple[Ref, ConversationInfo]:
    """Parse a reference to a conversation, turn or call, and check that its target exists."""
    from kbtui.conversations.conversation_repository import (
        check_turn_and_call_exist,
        parse_entered_conversation_reference,
    )

    ref = parse_entered_conversation_reference(library.workspace, text)
    info = library.find_conversation(ref.conversation or "")
    if ref.turn is not None:
        check_turn_and_call_exist(library.load_conversation(info.id), ref)
    return ref, info


def _print_or_run_resume_command(library: Library, args: Namespace) -> int:
    from shlex import join

    from kbtui.conversations.agent_commands_for_conversations import (
        make_agent_command_for_conversation,
        run_agent_command,
    )

    if args.run and args.json:
        raise UsageError("cannot be combined with --run", where="--json")
    ref, info = _find_conversation_of_reference(library, args.ref)
    command = make_agent_command_for_conversation(library.workspace, info, ref.turn, args.purpose)
    if args.purpose == "fork" and command.last_turn != ref.turn:
        print_to_stderr(
            f"{command.words[0]} can only copy whole conversations, so the copy has all turns"
        )
    if args.purpose == "resume" and ref.turn is not None:
        print_to_stderr(
            f"turn {ref.turn} is ignored: a conversation can only be resumed at its end;"
            " to continue a copy, use --fork; to attach the turn, use --attach"
        )
    if not args.run and not command.does_directory_exist:
        print_to_stderr(
            f"{command.directory}: the directory no longer exists, so the command would fail; create it again, or move the project back"
        )
    if args.run:
        question = f"run {join(command.words)} in {command.directory}?"
        if not args.yes and not ask_for_confirmation(question):
            print_to_stderr("nothing was run")
            return 0
        return run_agent_command(command)
    facts = {
        "ref": str(ref),
        "purpose": command.purpose,
        "words": list(command.words),
        "directory": command.directory,
        "command": command.shell_command,
        "last_turn": command.last_turn,
    }
    print_text_or_json(f"{command.shell_command}\n", facts, args.json)
    return 0


def _show_conversation_info(library: Library, args: Namespace) -> int:
    from kbtui.conversations.conversation_statistics import (
        PricesByModel,
        compute_conversation_statistics,
    )

    with StderrWaitIndicator("reading"):
        ref, found = _find_conversation_of_reference(library, args.ref)
        statistics = compute_conversation_statistics(library.workspace, found)
    prices = PricesByModel(library.settings)
    cost, unpriced = prices.compute_total_cost(statistics.usage_by_model)
    subagent_cost, unpriced_subagents = prices.compute_total_cost(
        statistics.subagent_usage_by_model
    )
    unpriced = sorted({*unpriced, *unpriced_subagents})
    facts = {
        **statistics.as_json(),
        "cost": cost,
        "subagent_cost": subagent_cost,
        "models_without_price": unpriced,
    }
    lines = _format_conversation_facts(facts)
    print_text_or_json("".join(f"{line}\n" for line in lines), facts, args.json)
    if ref.turn is not None:
        print_to_stderr(f"these facts are about the whole conversation, not only about {args.ref}")
    for problem in statistics.problems:
        print_to_stderr(f"{found.ref}: {problem}")
    if unpriced and prices and not args.json:
        names = ", ".join(map(sanitize_to_one_line, unpriced))
        print_to_stderr(
            f"the cost does not include models without a price in the table [prices] of config.toml: {names}"
        )
    return 0


def _format_conversation_facts(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each fact about a conversation. `-` stands for a fact that its files do not contain."""
    from kbtui.conversations.conversation_data_types import TokenUsage
    from kbtui.conversations.conversation_statistics import format_cost

    for name, value in facts.items():
        label = name.replace("_", " ")
        if name.startswith("subagent_") and not facts["subagents"]:
            continue
        if name == "parent_id" and value is None:
            continue
        if name == "usage":
            mark = "  (estimated)" if value["is_estimate"] else ""
            for key, count in value.items():
                if key != "is_estimate":
                    number = "-" if count is None else f"{count:,}{mark}"
                    yield f"{key.replace('_', ' '):<20} {number}"
        elif name == "subagent_usage":
            yield f"{'subagent tokens':<20} {_format_token_usage(TokenUsage(**value))}"
        elif name in {"cost", "subagent_cost"}:
            yield f"{label:<20} {'-' if value is None else format_cost(value)}"
        elif name == "models":
            yield f"{label:<20} {', '.join(map(sanitize_to_one_line, value)) or '-'}"
        elif name != "models_without_price":
            text = f"{value:,}" if isinstance(value, int) else sanitize_to_one_line(value or "-")
            yield f"{label:<20} {text}"


def _format_token_usage(usage: TokenUsage) -> str:
    """Format token counts as one line, such as `3,047  (37 input, 10 output, 2,500 cache read, 500 cache write)`."""
    total = "-" if usage.total_tokens is None else f"{usage.total_tokens:,}"
    counts = {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cache read": usage.cache_read_tokens,
        "cache write": usage.cache_write_tokens,
    }
    parts = ", ".join(f"{n:,} {name}" for name, n in counts.items() if n is not None)
    mark = "  (estimated)" if usage.is_estimate else ""
    return total + (f"  ({parts})" if parts else "") + mark


def _print_conversation_tool_answer(
    kind: str,
    answer: ConversationListPage | ConversationGrepAnswer | ConversationReadAnswer,
    form: str,
    text: Callable[[ConversationCommandOutputFormatter], Iterable[str]],
) -> None:
    """Print an answer as JSON, as XML, or as the lines that `text` yields.

    `form` is "json" or "xml"; any other value means text, with the notices on standard error. In
    XML, the notices refer to tool arguments, not to options, because assistants receive the same
    XML.
    """
    hint = format_tool_notices(answer.notices, for_command=True)
    if form == "json":
        print_json_result({**answer.as_json(), "hint": hint or None})
        return
    if form == "xml":
        print_result(format_answer_as_xml(kind, answer.as_json()) + "\n")
        return
    terminal = sys.stdout.isatty()
    writer = ConversationCommandOutputFormatter(
        terminal=terminal,
        colours=not are_colors_off(),
        width=get_terminal_width(),
        now=datetime.now(UTC),
    )
    with StderrWaitIndicator("formatting"):
        shown = "".join(f"{line}\n" for line in text(writer))
    if terminal and shown:
        print_through_pager(shown)
    else:
        print_result(shown)
    if hint:
        print_to_stderr(hint)


def format_project_label(project: str | None) -> str:
    """Return the label at the start of a match line, such as `[website] `; "" if `project` is None."""
    return f"[{sanitize_to_one_line(project)}] " if project is not None else ""


_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}
"""Maps styles and colours to their numbers in an escape sequence."""


@dataclass
class ConversationCommandOutputFormatter:
    """Formats conversations for a terminal or, if the output is a pipe, as plain text."""

    terminal: bool
    colours: bool
    width: int
    now: datetime

    def style_text(self, text: str, *styles: str) -> str:
        """Return `text` in `styles` (keys of `_STYLES`) or, if colours are off, unchanged."""
        codes = ";".join(str(_STYLES[style]) for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m" if self.colours and text else text

    def make_text_safe_for_terminal(self, text: str) -> str:
        """Make text from files safe for a terminal. If the output is a pipe, return the text unchanged."""
        return sanitize(text) if self.terminal else text

    def put_on_one_safe_line(self, text: str) -> str:
        """Put text from files on one line, and make it safe for a terminal."""
        return sanitize_to_one_line(text) if self.terminal else " ".join(text.splitlines())

    def format_conversation_list(self, answer: ConversationListPage) -> Iterator[str]:
        """Yield a line for each conversation. On a terminal, the first line contains the column headings."""
        entries = answer.conversations
        ids = [answer.short_ids.get(e["id"], e["id"]) for e in entries]
        wide_id = max(map(len, ids), default=0)
        counts = ["?" if e["events_count"] is None else str(e["events_count"]) for e in entries]
        times = [self._format_time(e["last_event_at"] or e["created_at"]) for e in entries]
        wide, late = max(map(len, counts), default=0), max(map(len, times), default=0)
        if self.terminal and entries:
            late = max(late, len("Activity"))
            wide = max(wide, len("Events"))
            names = f"{'ID':<{wide_id}}  {'Events':>{wide}}  {'Activity':<{late}}  Title"
            yield self.style_text(names, "dim")
        for entry, id_, count, time in zip(entries, ids, counts, times, strict=True):
            flags = _list_conversation_flags(entry, answer.short_ids)
            marks = self.put_on_one_safe_line(" ".join(flags))
            title = self.put_on_one_safe_line(entry["title"] or "Untitled")
            if self.terminal:
                room = self.width - wide_id - wide - late - 6
                room -= measure_text_width(marks) + 2 if marks else 0
                title = cut_to_width(title, max(20, room))
            head = f"{self.style_text(f'{id_:<{wide_id}}', 'cyan')}  {count:>{wide}}"
            time = self.style_text(f"{time:<{late}}", "dim")
            end = f"  {self.style_text(marks, 'yellow')}" if marks else ""
            yield f"{head}  {time}  {title}{end}"
            for turn in entry.get("file_turns", ()):
                time = self._format_time(turn["time"]) if turn["time"] else "-"
                rewound = ", rewound" if turn.get("rewound") else ""
                noun = "line" if (turn["lines"] or "").isdecimal() else "lines"
                wrote = f"wrote {noun} {turn['lines']}: " if turn["lines"] else ""
                yield f"    turn {turn['turn']}{rewound}, {time}: {wrote}{turn['actions']}"
                for mark in turn.get("marks", ()):
                    text = f"mark: {cut_mark_label(mark['label'])}"
                    yield f"        {self.style_text(text, 'yellow')}"
                if request := self.put_on_one_safe_line(turn["request"]):
                    if self.terminal:
                        request = cut_to_width(request, max(40, self.width - 16))
                    yield self.style_text(f"        asked: {request}", "dim")
            if entry["problem"]:
                yield "    " + self.style_text(self.put_on_one_safe_line(entry["problem"]), "red")

    def _format_time(self, text: str) -> str:
        return format_age_or_date(datetime.fromisoformat(text), self.now) if self.terminal else text

    def _format_conversation_heading(self, ref: str, title: str | None, parent: str | None) -> str:
        title = self.put_on_one_safe_line(title or "Untitled")
        part = f" (part of {self.put_on_one_safe_line(parent)})" if parent else ""
        if self.terminal:
            title = cut_to_width(title, max(20, self.width - len(ref) - len(part) - 2))
        return f"{self.style_text(ref, 'cyan')}  {self.style_text(title, 'bold')}{part}"

    def format_grep_matches(
        self,
        answer: ConversationGrepAnswer,
        short_ids: dict[str, str],
        spans: Callable[[str], list[tuple[int, int]]],
        *,
        separate: bool,
    ) -> Iterator[str]:
        """Yield a line for each match and each line of context.

        On a terminal, the lines are grouped by conversation. Elsewhere, they have JP's format:
        `ID:TURN:SCOPE:m:TEXT` for a match, and `ID:TURN:SCOPE:c:TEXT` for context. A turn's marks
        come before its lines, formatted as context with the scope `mark`. If `separate` is true,
        `--` separates blocks of lines.
        """
        previous = None
        for hit in answer.hits:
            opens_heading = self.terminal and (
                previous is None or (hit.id, hit.workspace) != (previous.id, previous.workspace)
            )
            if opens_heading:
                if previous is not None:
                    yield ""
                id_ = short_ids.get(hit.id, hit.id)
                parent = short_ids.get(hit.parent_id or "", hit.parent_id)
                heading = self._format_conversation_heading(id_, hit.title, parent)
                yield f"{self.style_text(format_project_label(hit.project), 'dim')}{heading}"
            elif separate and previous is not None and hit.block != previous.block:
                yield self.style_text("--", "dim")
            if hit.marks and (
                opens_heading or previous is None or previous.turn_key != hit.turn_key
            ):
                yield from self._format_marks_of_match(hit, short_ids.get(hit.id, hit.id))
            previous = hit
            yield self._format_grep_line(hit, short_ids.get(hit.id, hit.id), spans)

    def _format_marks_of_match(self, hit: ConversationGrepLine, id_: str) -> Iterator[str]:
        turn = hit.line.turn
        for mark in hit.marks:
            label = cut_mark_label(mark["label"])
            if self.terminal:
                head = f" {f':{turn}':>4} {'mark':<11} "
                text = cut_to_width(label, max(20, self.width - measure_text_width(head)))
                yield self.style_text(head, "dim") + self.style_text(text, "yellow")
            else:
                yield f"{format_project_label(hit.project)}{id_}:{turn}:mark:c:{label}"

    def _format_grep_line(
        self, hit: ConversationGrepLine, id_: str, spans: Callable[[str], list[tuple[int, int]]]
    ) -> str:
        line = hit.line
        turn = ".." if line.turn is None else str(line.turn)
        if not self.terminal:
            kind = "m" if line.is_match else "c"
            label = format_project_label(hit.project)
            return f"{label}{id_}:{turn}:{line.scope}:{kind}:{line.text}"
        # The user can copy the id from the heading and append `:turn` to get a reference.
        head = f" {turn if turn == '..' else f':{turn}':>4} {line.scope:<11} "
        head += "rewound  " if line.is_rewound else ""
        room = self.width - measure_text_width(head)
        text = sanitize(line.text).expandtabs(4)
        found = spans(text) if line.is_match else []
        if measure_text_width(text) > room and found and (start := max(0, found[0][0] - room // 3)):
            # Cut the line so that the match stays visible.
            text = "…" + text[start:]
            found = spans(text)
        text = cut_to_width(text, max(20, room))
        if not line.is_match:
            return self.style_text(head + text, "dim")
        parts, at = [], 0
        for start, end in found:
            if end <= len(text):
                parts += [text[at:start], self.style_text(text[start:end], "bold", "red")]
                at = end
        return self.style_text(head, "dim") + "".join([*parts, text[at:]])

    def format_conversation_turns(self, answer: ConversationReadAnswer) -> Iterator[str]:
        """Yield the lines of a conversation's turns: for each event, a heading (author and time) and the text."""
        yield self._format_conversation_heading(answer.id, answer.title, answer.parent_id)
        for turn in answer.turns:
            yield ""
            state = ", rewound" if turn.get("rewound") else ""
            yield self.style_text(f"── {answer.id}:{turn['turn']}{state} ──", "bold")
            if subjects := turn.get("outdated_subjects"):
                changes = format_outdated_subjects_of_turn(
                    (one["ref"], one["state"]) for one in subjects
                )
                yield self.style_text(self.put_on_one_safe_line(changes), "yellow")
            for mark in turn.get("marks", ()):
                text = self.put_on_one_safe_line(f"mark: {mark['label']}")
                yield self.style_text(text, "yellow")
            for event in turn["events"]:
                yield ""
                yield self._format_event_heading(event)
                if problem := event.get("problem"):
                    yield self.style_text(self.put_on_one_safe_line(problem), "red")
                if values := event.get("arguments") or event.get("fields"):
                    lines = json.dumps(values, indent=2, ensure_ascii=False)
                    yield self.make_text_safe_for_terminal(lines)
                if event["content"]:
                    text = self.make_text_safe_for_terminal(event["content"]).rstrip("\n")
                    is_dim = EVENT_KINDS[event["event_kind"]].is_subdued
                    yield self.style_text(text, "dim") if is_dim else text

    def _format_event_heading(self, event: ConversationEventJson) -> str:
        kind = EVENT_KINDS[event["event_kind"]]
        author, name = event.get("author"), event.get("name")
        parts = [self.put_on_one_safe_line(author) if author else kind.label]
        if name:
            parts.append(self.put_on_one_safe_line(name))
        if event.get("call"):
            parts.append(f"#{event['call']}")
        if event.get("is_error"):
            parts.append("error")
        if outcome := event.get("outcome"):
            parts.append(self.put_on_one_safe_line(outcome))
        if subagent := event.get("subagent"):
            parts.append(f"by {self.put_on_one_safe_line(subagent)}")
        colour = "red" if event.get("is_error") else kind.colour
        time = event["timestamp"]
        shown = f"  {self.style_text(self._format_time(time), 'dim')}" if time else ""
        return self.style_text(" ".join(parts), "bold", colour) + shown


def _list_conversation_flags(
    entry: ConversationInfoJson, short_ids: dict[str, str]
) -> Iterator[str]:
    if entry["pinned_at"]:
        yield "pinned"
    if entry["archived_at"]:
        yield "archived"
    if "kept_from" in entry:
        yield "kept"
    if entry["parent_id"]:
        yield f"in {short_ids.get(entry['parent_id'], entry['parent_id'])}"
    if entry["worktree"]:
        yield f"worktree {entry['worktree']}"
    for key, value in entry["labels"].items():
        yield f"[{key}={value}]" if value else f"[{key}]"


def format_age_or_date(time: datetime, now: datetime) -> str:
    """Format a time as an age such as `3 hours ago` or, if it is at least 30 days ago, as a date."""
    seconds = (now - time).total_seconds()
    if seconds < 60:
        return "just now" if seconds > -60 else time.astimezone(UTC).strftime("%Y-%m-%d")
    for unit, size, most in (("minute", 60, 60), ("hour", 3600, 24), ("day", 86400, 30)):
        count = int(seconds // size)
        if count < most:
            return f"{format_counted_noun(count, unit)} ago"
    return time.astimezone(UTC).strftime("%Y-%m-%d")


def declare_export_command_arguments(parser: ArgumentParser) -> None:
    from kbtui.citations.shared_conversation_export import EXPORT_FORMATS
    from kbtui.conversations.conversation_event_kinds import map_include_groups_to_event_kinds

    text = "a conversation, turn or call: jp-c17457886043, claude-258c7280, …:3 or …:3.2"
    parser.add_argument("id", metavar="ID", help=text)
    text = "the output format (default: from the extension of FILE, else markdown)"
    parser.add_argument("--format", choices=EXPORT_FORMATS, help=text)
    text = "write to FILE (default: standard output)"
    parser.add_argument("-o", "--output", metavar="FILE", help=text)
    parser.add_argument("--turn", type=int, metavar="N", help="only this turn")
    parser.add_argument("--last", type=int, metavar="N", help="only the last N turns")
    text = "only these turns, such as 2-5 or 1,4,7-9"
    parser.add_argument("--turns", metavar="RANGES", help=text)
    groups = ", ".join(map_include_groups_to_event_kinds())
    text = f"only these kinds of events: {groups} (repeatable, or comma-separated)"
    parser.add_argument("--include", metavar="KIND", action="append", help=text)
    text = "do not mask secrets"
    parser.add_argument("--no-mask", action="store_true", help=text)
    text = "overwrite FILE without asking"
    parser.add_argument("--force", action="store_true", help=text)


def run_export_command(args: Namespace) -> int:
    """Write a conversation, or some of its turns, as one file for other people.

    Secrets that kbtui recognizes are masked, and standard error says which ones. The HTML file
    needs no other file and no network. An existing file is overwritten only with --force, or if you
    agree.

    kbtui export jp-c17457886043 -o talk.html            write one HTML file
    kbtui export claude-258c7280 --turns 2-5 -o talk.md  write some turns as Markdown
    kbtui export jp-c17457886043 --include chat --format jsonl
    """
    from kbtui.library import open_workspace

    with open_workspace(args.workspace) as library, reword_errors_for_command():
        return _export_conversation(library, args)


def _export_conversation(library: Library, args: Namespace) -> int:
    """Write the conversation that `args` describes; return the exit code."""
    from kbtui.assistant.conversation_tools import resolve_included_event_kinds
    from kbtui.citations.shared_conversation_export import (
        describe_masked_secrets_by_place,
        format_shared_conversation,
        get_export_format_of_path,
        prepare_shared_conversation,
    )
    from kbtui.cli.turn_mark_command import warn_if_marks_cannot_be_read
    from kbtui.conversations.conversation_repository import (
        find_conversation,
        load_conversation,
        parse_entered_conversation_reference,
    )

    ref = parse_entered_conversation_reference(library.workspace, args.id)
    kinds = resolve_included_event_kinds(split_values_at_commas(args.include))
    if args.output and not args.force and not _confirm_file_may_be_written(library, args.output):
        print_to_stderr("nothing was written")
        return 1
    with StderrWaitIndicator("reading"):
        conversation = load_conversation(
            find_conversation(library.workspace, ref.conversation or "")
        )
        if not conversation.turns and conversation.problems:
            reason = "; ".join(map(str, conversation.problems[:3]))
            raise WorkspaceError(
                f"the conversation is damaged: {reason}", where=conversation.info.ref
            )
        turns = _select_turns_to_export(conversation, ref, args)
        citations = [
            cite
            for cite in library.extract_citations_from_tool_calls(conversation)
            if ref.call in (None, cite.call)
        ]
        shared = prepare_shared_conversation(
            conversation,
            turns,
            kinds,
            citations,
            library.map_marks_by_turn(conversation),
            masks_secrets=not args.no_mask,
        )
        form = args.format or get_export_format_of_path(args.output or "")
        text = format_shared_conversation(shared, form)
    if args.output is None:
        print_result(text)
    else:
        write_output_file(library.workspace, args.output, text)
    for line in describe_masked_secrets_by_place(shared):
        print_to_stderr(f"masked: {line}")
    warn_if_marks_cannot_be_read(library)
    for problem in conversation.problems:
        print_to_stderr(f"{conversation.info.ref}: {problem}")
    return 0 if turns else 1


def _confirm_file_may_be_written(library: Library, path: str) -> bool:
    """Return whether the file does not exist yet or the user agrees to overwrite it.

    Raises `UsageError` for JP's files, and for an existing file if there is no terminal on which to ask.
    """
    from pathlib import Path

    from kbtui.workspace.workspace import check_export_path_is_outside_jp_directories

    check_export_path_is_outside_jp_directories(library.workspace, Path(path))
    if not os.path.isfile(path):  # noqa: PTH113  (never raises)
        return True
    if not sys.stdin.isatty():
        hint = "add --force to overwrite it, or choose another file"
        raise UsageError("the file exists already", where=path, hint=hint)
    return ask_for_confirmation(f"{path} exists already. Overwrite it?")


def _select_turns_to_export(conversation: Conversation, ref: Ref, args: Namespace) -> list[Turn]:
    from kbtui.assistant.conversation_tools import get_requested_turn_number, select_requested_turns
    from kbtui.citations.shared_conversation_export import parse_turn_ranges

    if args.turns is None:
        turn = get_requested_turn_number(ref, args.turn, args.last)
        return select_requested_turns(conversation, ref, turn, args.last)
    if args.turn is not None or args.last is not None or ref.turn is not None:
        raise UsageError("cannot be combined with --turn, --last or a turn in ID", where="--turns")
    try:
        numbers = parse_turn_ranges(args.turns)
    except UsageError as error:
        raise UsageError(error.message, where="--turns", hint=error.hint) from error
    turns = [turn for turn in conversation.turns if turn.number in numbers]
    if not turns:
        total = len(conversation.turns)
        raise NothingFound(f"{ref} has no such turn", hint=f"it has turns 1 to {total}")
    return turns
