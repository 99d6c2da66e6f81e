"""The command `search`: declares options, sends the request to the engine, prints the answer."""

from __future__ import annotations

import os
import sys

from kbtui.cli.cli_output import (
    StderrWaitIndicator,
    are_colors_off,
    print_json_result,
    print_to_stderr,
)
from kbtui.cli.filter_options import (
    add_filter_options,
    iterate_filters_from_options,
    parse_filter_options,
)
from kbtui.errors import UsageError
from kbtui.search.filter_definitions import split_regex_query
from kbtui.terminal_text import (
    KNOWLEDGE_CHANGED,
    LEG_NAMES,
    cut_to_width,
    describe_query_words_missing_from_passage,
    find_excerpt_start,
    format_counted_noun,
    format_parent_title_suffix,
    remove_heading_and_bold_marks,
    remove_repeated_title,
    sanitize,
    sanitize_text_and_move_ranges,
    sanitize_to_one_line,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any

    from kbtui.cli.argument_parser_base_class import CliArgumentParser
    from kbtui.engine.engine_protocol import EngineSearchArguments


def declare_search_command_arguments(parser: CliArgumentParser) -> None:
    # A usage line with all options would hide the error message.
    parser.usage = "%(prog)s [-h] [-w PATH] [OPTION ...] QUERY ..."
    parser.hint = (
        "write words that begin with a dash after `--`; "
        "`kbtui search --help` explains the arguments"
    )
    add = parser.add_argument
    add("query", nargs="*", metavar="QUERY", help="what to look for")
    add("--mode", choices=["hybrid", "lexical", "semantic"], help="search mode (default: hybrid)")
    add_filter_options(parser, "search")
    add("--archived", action="store_true", help="include archived conversations")
    add("--hidden", action="store_true", help="include hidden subjects")
    text = "search all workspaces that you have opened (`kbtui workspaces` lists them)"
    add("--all", action="store_true", help=text)
    add("--limit", type=int, metavar="N", help="number of hits, 1 to 100 (default: 20)")
    add(
        "--per-entry",
        type=int,
        metavar="N",
        help="number of passages of each subject or conversation; 0 means all (default: 1; with --json: 0)",
    )
    add("--wait", type=float, metavar="S", help="seconds to wait for the model (default: 10)")
    add("--explain", action="store_true", help="explain the rank of each hit")
    add("--why", metavar="REF", help="explain why a subject or a turn is not a hit")
    add("--like", metavar="REF", help="find passages that are similar to a subject or a turn")
    add("--save", metavar="NAME", help="save the search under a name, then run it")
    text = "run the search that is saved under a name; without a name, list the saved searches"
    add("--saved", nargs="?", const="", metavar="NAME", help=text)
    add("--remove-saved", metavar="NAME", help="remove a saved search")
    add("--json", action="store_true", help="print one JSON document")


def run_search_command(args: Namespace) -> int:
    """Search subjects and conversations.

    Passages that contain most of the words come first. Every hit contains each "phrase in quotes";
    -word excludes passages that contain the word.
    If a query begins with a dash, write `--` before it.
    """
    if args.saved is not None or args.remove_saved is not None:
        from kbtui.cli import saved_search_commands

        _check_no_query_is_given(args)
        if args.remove_saved is not None:
            return saved_search_commands.remove_saved_search(args)
        if not args.saved:
            return saved_search_commands.print_saved_searches(args)
        saved_search_commands.load_search_into_arguments(args)
    _check_search_arguments(args)
    is_regex = split_regex_query(" ".join(args.query)) is not None
    if is_regex:
        _check_options_allow_regex(args)
    # Explanations and "more like this" do not count as searches in the query log.
    is_plain_search = not (args.explain or args.why or args.like)
    request: EngineSearchArguments = {
        "question": _serialize_search_request(args),
        "origin": "cli" if is_plain_search else None,
    }
    if args.wait is not None:
        request["wait"] = args.wait

    with StderrWaitIndicator("searching"):
        if is_regex:
            answer = _search_lines_by_regex(args)
        else:
            found_by_engine = _search_with_running_engine(args.workspace, request)
            answer = found_by_engine or _search_with_library_which_may_start_engine(
                args.workspace, request
            )
    _raise_first_query_mistake(answer)
    if args.save is not None:
        from kbtui.cli.saved_search_commands import save_search_of_arguments

        save_search_of_arguments(args)
    found = bool(answer["hits"] or answer.get("why"))
    if args.json:
        print_json_result({name: value for name, value in answer.items() if name != "details"})
        return 0 if found else 1

    for text in format_search_messages(answer, args.like or answer["query"]):
        print_to_stderr(text)
    if args.why and not args.explain:
        answer["hits"] = []
    sys.stdout.write(format_hits_with_explanations(answer, plain=are_colors_off()))
    return 0 if found else 1


def _search_with_running_engine(
    start: str | None, request: EngineSearchArguments
) -> dict[str, Any] | None:
    """Search with the running engine; return None if the library must search instead.

    The library is not imported, because the import takes longer than the whole search.
    """
    from kbtui.engine import engine_protocol
    from kbtui.engine.engine_client import EngineClient
    from kbtui.errors import EngineUnavailableError
    from kbtui.version import __version__
    from kbtui.workspace import paths

    try:
        here = os.path.realpath(start or os.getcwd(), strict=True)  # noqa: PTH109
        if not os.path.isdir(here):  # noqa: PTH112
            return None
        root = paths.find_workspace_root(here)
        if not paths.is_config_directory_readable(root):
            return None
        place = paths.make_engine_socket_path()
        folder = os.lstat(os.path.dirname(place))  # noqa: PTH120
    except (OSError, ValueError):
        return None
    if folder.st_uid != os.getuid() or folder.st_mode & 0o077:
        return None
    try:
        # Wait only briefly: if the engine does not answer, the library waits for it.
        client = EngineClient(place, root, timeout=0.5)
    except EngineUnavailableError:
        return None
    try:
        if client.hello.get("version") != __version__:
            return None
        arguments = engine_protocol.make_engine_search_arguments(request)
        arguments["client_environment"] = paths.make_fingerprint_of_settings_affecting_search()
        reply = client.send_request("search", **arguments)
    except EngineUnavailableError:
        return None
    finally:
        client.close()
    return None if reply.get("suspect") else reply.get("answer")


def _search_with_library_which_may_start_engine(
    start: str | None, request: EngineSearchArguments
) -> dict[str, Any]:
    """Search with the library, which starts an engine or searches in this process."""
    from kbtui.library import open_workspace
    from kbtui.search.search_request_and_answer import parse_search_request_json

    question = parse_search_request_json(request["question"])
    with open_workspace(start) as library:
        answer = library.search(question, request.get("wait"), origin=request["origin"])
        return answer.as_engine_message()


def _search_lines_by_regex(args: Namespace) -> dict[str, Any]:
    """Find the lines that match a regular expression, in this process."""
    from kbtui.library import open_workspace
    from kbtui.library.regex_line_search import search_lines_by_pattern

    with open_workspace(args.workspace) as library:
        answer = search_lines_by_pattern(
            library,
            " ".join(args.query),
            hidden=args.hidden,
            limit=args.limit or DEFAULT_LIMIT,
            per_entry=args.per_entry or 0,
        )
        library.log_search(answer, "cli")
        return answer.as_engine_message()


def _check_options_allow_regex(args: Namespace) -> None:
    given = next(iter(iterate_filters_from_options(args, "search")), None)
    if given is not None:
        where = given[0].joined_command_line_options
    elif args.explain or args.why:
        where = "--explain" if args.explain else "--why"
    else:
        # A saved search has a mode, even if its query is a regular expression.
        is_typed = args.saved is None
        options = (("--all", args.all), ("--archived", args.archived), ("--mode", args.mode))
        where = next((name for name, is_set in options if is_set and is_typed), "")
    if where:
        raise UsageError(
            "cannot be combined with a regular expression between slashes",
            where=where,
            hint="to search for the words, leave out one of the slashes",
        )


def _check_no_query_is_given(args: Namespace) -> None:
    where = "--saved" if args.saved is not None else "--remove-saved"
    if args.query or args.like or args.save is not None:
        hint = "a saved search has its own query" if args.saved else None
        raise UsageError(
            "cannot be combined with a query, --like or --save", where=where, hint=hint
        )
    if args.saved is not None and args.remove_saved is not None:
        raise UsageError("cannot be combined with --remove-saved", where=where)


def _check_search_arguments(args: Namespace) -> None:
    if args.save is not None and args.like:
        raise UsageError("cannot be combined with --like", where="--save")
    if not args.query and not args.like:
        raise UsageError(
            "the following arguments are required: QUERY", hint="enter words to search for"
        )
    if args.like and (args.query or args.explain or args.why):
        raise UsageError("cannot be combined with a query, --explain or --why", where="--like")
    if args.all and (args.like or args.explain or args.why):
        raise UsageError("cannot be combined with --explain, --why or --like", where="--all")
    if args.limit is not None and not 1 <= args.limit <= 100:
        raise UsageError(f"must be from 1 to 100, not {args.limit}", where="--limit")
    if args.per_entry is not None and args.per_entry < 0:
        raise UsageError(f"must be at least 0, not {args.per_entry}", where="--per-entry")
    if args.wait is not None:
        from kbtui.engine.engine_protocol import validate_wait_seconds

        validate_wait_seconds(args.wait, "--wait")


def _serialize_search_request(args: Namespace) -> dict[str, Any]:
    """Return the search request as JSON. `parse_search_request_json` later parses dates and adds defaults."""
    request = {
        **parse_filter_options(args),
        "query": " ".join(args.query),
        "archived": args.archived,
        "hidden": args.hidden,
        "explain": args.explain,
        "why": args.why,
        "like": args.like,
        "per_entry": args.per_entry if args.per_entry is not None else int(not args.json),
    }
    if args.all:
        request["all_projects"] = True
    if args.mode:
        request["mode"] = args.mode
    if args.limit:
        request["limit"] = args.limit
    return request


def _raise_first_query_mistake(answer: dict[str, Any]) -> None:
    """If the query has mistakes, raise `UsageError` for the first mistake, with its position."""
    for start, end, message, hint in answer["details"]["mistakes"][:1]:
        where = None
        if start >= 0:
            where = f"{answer['query'][start:end]!r} at character {start + 1}"
        raise UsageError(message, where=where, hint=hint)


DEFAULT_LIMIT = 20
EXCERPT_CHARACTERS = 240
"""At most this many characters of a hit's text are shown."""
MAX_TERMS_SHOWN = 12


def format_hits_with_explanations(answer: dict[str, Any], *, plain: bool) -> str:
    """Format each hit in two lines, followed by its explanation.

    The last hit of an entry says how many other passages of the entry are left out.
    """
    parts: list[str] = []
    short_refs = answer["details"]["short_refs"]
    # Entries of two workspaces can have the same id.
    entries = [(hit.get("workspace"), hit["entry_id"]) for hit in answer["hits"]]
    last = {entry: at for at, entry in enumerate(entries)}
    shown = dict.fromkeys(entries, 0)
    for at, hit in enumerate(answer["hits"]):
        entry = entries[at]
        shown[entry] += 1
        more = 0
        if answer["left_out"] and last[entry] == at:
            more = hit["entry_passages"] - shown[entry]
        ref = short_refs.get(hit["ref"], hit["ref"])
        parts.append(format_search_hit(hit, ref, plain=plain, more=more))
        if explained := hit.get("explanation"):
            parts.append(format_hit_explanation(explained))
    if why := answer.get("why"):
        heading = f"{why['ref']}  {why['title']}".rstrip()
        parts.append(f"{sanitize(heading)}\n{format_hit_explanation(why)}")
    return "".join(f"{part}\n" for part in parts)


def format_search_messages(answer: dict[str, Any], query: str) -> list[str]:
    """Return the messages for stderr: the notices and, if there are no hits, the reason."""
    lines = [answer["degraded"]] if answer["degraded"] else []
    for notice in answer["notices"]:
        values = notice["values"]
        # Only this command prints `where` and `hint`; other front ends have too little space.
        if values.get("hint"):
            lines.append(": ".join(filter(None, [values.get("where"), values["hint"]])))
    if answer["hits"] or answer.get("why"):
        return lines
    details = answer["details"]
    if details["empty"]:
        from kbtui.notices import NOTHING_INDEXED

        lines.append(NOTHING_INDEXED)
    elif not any(one["code"] == "nothing_to_look_for" for one in answer["notices"]):
        lines.append(f"nothing found for {cut_to_width(query, 60)!r}")
    return lines


def format_search_hit(hit: dict[str, Any], ref: str, *, plain: bool, more: int = 0) -> str:
    """Format a hit: the reference `ref`, the title, and the part of the text with the most distinct matches.

    `more` is the number of other passages of the same entry that are left out.
    """
    text, matches = sanitize_text_and_move_ranges(
        hit["text"], [(first, last) for first, last in hit["matches"]]
    )
    bold, mark, dim, off = (
        ("", "", "", "") if plain else ("\x1b[1m", "\x1b[33m", "\x1b[2m", "\x1b[0m")
    )
    role = f" · {hit['role']}" if hit.get("role") else ""
    parent = format_parent_title_suffix(hit.get("parent_title"), hit.get("parent_id"))
    rewound = " · rewound" if hit.get("rewound") else ""
    outdated = f" · {KNOWLEDGE_CHANGED}" if hit.get("outdated_subjects") else ""
    # In a list of hits, a long note would hide the texts of the hits.
    labels = (cut_to_width(sanitize_to_one_line(one["label"]), 200) for one in hit.get("marks", ()))
    marks = "".join(f" · {label}" for label in labels)
    later = f" · again in turn {turn}" if (turn := hit.get("later_turn")) else ""
    others = f" · {format_counted_noun(more, 'more passage')}" if more > 0 else ""
    facts = f"{dim}{parent}{role}{rewound}{outdated}{marks}{later}{others}{off}"
    project = f"{dim}[{_format_project_of_hit(hit)}]{off} " if "project" in hit else ""
    head = f"{project}{bold}{sanitize(ref)}{off}  {sanitize_to_one_line(hit['title'])}{facts}"
    text, matches = remove_repeated_title(text, matches, hit["title"])
    text, matches = remove_heading_and_bold_marks(text, matches)
    start = find_excerpt_start(text, matches, EXCERPT_CHARACTERS)
    end = start + EXCERPT_CHARACTERS
    parts, at = [], start
    for first, last in matches:
        if first >= end or first < at:
            continue
        parts += [
            _join_lines_without_markup_lines(text[at:first]),
            mark,
            _join_lines_without_markup_lines(text[first:last]),
            off,
        ]
        at = last
    parts.append(_join_lines_without_markup_lines(text[at:end]))
    body = "".join(parts).strip()
    lines = [head, f"    {'…' if start else ''}{body}{'…' if len(text) > end else ''}"]
    if answer := hit.get("answer"):
        answer, _ = remove_heading_and_bold_marks(answer, ())
        shown = sanitize_to_one_line(_join_lines_without_markup_lines(answer))
        cut = f"{shown[:EXCERPT_CHARACTERS]}…" if len(shown) > EXCERPT_CHARACTERS else shown
        lines.append(f"    {dim}answer:{off} {cut}")
    return "\n".join(lines)


def _format_project_of_hit(hit: dict[str, Any]) -> str:
    """Return a hit's project, followed by the name of the workspace's directory if the two names differ."""
    directory = os.path.basename(hit["workspace"])  # noqa: PTH119
    name = hit["project"]
    shown = name if name.rpartition("/")[2] == directory else f"{name} · {directory}"
    return sanitize_to_one_line(shown)


def _join_lines_without_markup_lines(text: str) -> str:
    """Return a text on one line, without its empty lines, code fences and table rules."""
    first, *others = text.replace("\t", " ").split("\n")
    kept = [line for line in others[:-1] if not _is_markup_line(line.strip())]
    return " ".join([first, *kept, *others[-1:]])


def _is_markup_line(line: str) -> bool:
    return not line or line.startswith("```") or ("--" in line and not line.strip("|-: "))


def format_hit_explanation(explained: dict[str, Any]) -> str:
    """Format an explanation: why a passage has its rank, or why the passage is not a hit."""
    # Only the values in these lines are sanitized. The words around them are kbtui's own, and some contain
    # “ or ×, for which `sanitize` takes longer than for ASCII.
    return "\n".join(_iterate_explanation_lines(explained))


def _iterate_explanation_lines(explained: dict[str, Any]) -> Iterator[str]:
    if explained["rank"] is not None:
        yield f"    rank {explained['rank']}, score {explained['score']:.4f}"
    for leg, name in LEG_NAMES.items():
        reason = explained[leg]["reason"]
        is_asked = reason is None or reason["code"] != "leg_not_asked"
        if explained["chunk_id"] is not None and is_asked:
            yield f"    {name}: {_format_contribution_of_one_ranking(explained[leg])}"
    matches = explained["matches"]
    terms = [
        f"{match['term']} in {match['field']} (score {match['score']:.2f}, weight {match['weight']:g})"
        for match in matches[:MAX_TERMS_SHOWN]
    ]
    if terms:
        more = len(matches) - len(terms)
        yield f"    terms: {sanitize(', '.join(terms))}{f', {more} more' if more else ''}"
    if title := explained["title_gives"]:
        yield f"    the title contains words from the query; adds {title:.4f} to the score"
    if length := explained["length_gives"]:
        yield f"    the length of the passage adds {length:.4f} to the score"
    among_turns = [
        f"{gives:.4f} for {what}"
        for what, gives in (
            ("query words in the passage", explained["words_gives"]),
            ("a matching question before the passage", explained["reply_gives"]),
            ("other matches in the conversation", explained["conversation_gives"]),
            ("reasoning of the assistant", explained["role_gives"]),
        )
        if gives
    ]
    if among_turns:
        yield f"    among the turns: {', '.join(among_turns)}"
        yield f"    the passage's new rank among the turns changes the score by {explained['place_gives']:+.4f}"
    for line in describe_query_words_missing_from_passage(explained["missing"]):
        yield f"    {sanitize(line)}"
    if explained["embedded"] is not None:
        yield from _iterate_lines_about_embedded_texts(explained["embedded"])
    for text in explained["kept_out"]:
        yield f"    not a hit: {sanitize(text)}"


def _format_contribution_of_one_ranking(leg: dict[str, Any]) -> str:
    if leg["rank"] is None:
        found = sanitize(leg["note"] or "not found")
    else:
        found = f"rank {leg['rank']}, score {leg['score']:.4f}"
    return f"{found}; adds {leg['gives']:.4f} to the score" if leg["gives"] else found


def _iterate_lines_about_embedded_texts(embedded: dict[str, Any]) -> Iterator[str]:
    parts = [f"the text ({format_counted_noun(len(embedded['text']), 'character')})"]
    if count := len(embedded["neighbours"]):
        passages = format_counted_noun(count, "neighbouring passage")
        parts.append(f"{passages} (weight {embedded['neighbour_weight']:g})")
    title = sanitize_to_one_line(embedded["title"])
    parts.append(f"the title “{title}” (weight {embedded['title_weight']:g})")
    yield f"    the vector was computed from: {', '.join(parts)}"
    yield f"      {sanitize_to_one_line(embedded['text'])}"
    for text in embedded["neighbours"]:
        yield f"      + {sanitize_to_one_line(text)}"
