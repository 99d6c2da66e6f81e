"""The command `search`."""

from __future__ import annotations

import os
import sys

from kbtui.cli.filter_options import add_filter_options, question_fields
from kbtui.cli.output import emit_json, is_plain, note
from kbtui.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from kbtui.cli.parser import Parser


def configure_search(parser: Parser) -> None:
    """The arguments of `kbtui search`."""
    parser.hint = "a word that begins with a dash goes after `--`; `kbtui search --help` explains"
    add = parser.add_argument
    add("query", nargs="*", metavar="QUERY", help="what to look for")
    add("--mode", choices=["hybrid", "lexical", "semantic"], help="hybrid if not said")
    add_filter_options(parser, "search")
    add("--archived", action="store_true", help="archived conversations too")
    add("--hidden", action="store_true", help="hidden subjects too")
    add("--limit", type=int, metavar="N", help="how many hits, 1 to 100 (20)")
    add("--wait", type=float, metavar="S", help="seconds to wait for the model (10)")
    add("--explain", action="store_true", help="say of each hit why it stands where it stands")
    add("--why", metavar="REF", help="say what kept a subject or a turn out")
    add("--like", metavar="REF", help="more like a subject or a turn, instead of a query")
    add("--json", action="store_true", help="one JSON document")


def run_search(args: Namespace) -> int:
    """Search subjects and conversations.

    Words find what has most of them; "a phrase" must be there; -word must not. topic:, in:, type:,
    title:, role:, tool:, arg:, after: and before: narrow: topic:guide after:2w.
    A query that begins with a dash goes after `--`.
    """
    _check(args)
    question = _serialize_question(args)
    # What is explained or only like something is nobody's search.
    is_plain_search = not (args.explain or args.why or args.like)
    request: dict[str, Any] = {"question": question, "origin": "cli" if is_plain_search else None}
    if args.wait is not None:
        request["wait"] = args.wait
    if sys.stderr.isatty():
        from kbtui.cli.output import working

        with working("searching"):
            answer = _ask(args.workspace, request)
    else:
        answer = _ask(args.workspace, request)
    _refuse_mistakes(answer)
    found = bool(answer["hits"] or answer.get("why"))
    if args.json:
        del answer["details"]
        emit_json(answer)
        return 0 if found else 1
    from kbtui.cli.search_format import format_answer, format_notices

    for text in format_notices(answer, args.like or answer["query"]):
        note(text)
    if args.why and not args.explain:
        answer["hits"] = []
    sys.stdout.write(format_answer(answer, plain=is_plain()))
    return 0 if found else 1


def _ask(start: str | None, request: dict[str, Any]) -> dict[str, Any]:
    answer = _ask_running_engine(start, request)
    return _ask_library(start, request) if answer is None else answer


def _ask_running_engine(start: str | None, request: dict[str, Any]) -> dict[str, Any] | None:
    """The answer of the workspace's engine; None where the library has to find out what is wrong.

    Knows the workspace and the socket by their paths alone, because imports take most of the time
    of a short command.
    """
    from kbtui.engine import protocol
    from kbtui.engine.protocol import EngineClient
    from kbtui.errors import EngineUnavailable
    from kbtui.version import __version__
    from kbtui.workspace import paths

    try:
        root = paths.find_root(os.path.realpath(start or os.getcwd()))  # noqa: PTH109
        if root is None or not os.access(f"{root}/.jp", os.R_OK | os.X_OK):
            return None
        place = paths.socket_path(root)
        folder = os.lstat(os.path.dirname(place))  # noqa: PTH120
    except (OSError, ValueError):
        return None
    if folder.st_uid != os.getuid() or folder.st_mode & 0o077:
        return None
    try:
        client = EngineClient(place)
    except EngineUnavailable:
        return None
    try:
        if client.hello.get("version") != __version__:
            return None
        question = {"zone": paths.read_time_zone(), **request["question"]}
        reply = client.request(
            "search",
            **request | {"question": question},
            surroundings=paths.read_environment_state(),
            timeout=request.get("wait", protocol.WAIT_SECONDS) + protocol.SEARCH_SECONDS,
        )
    except EngineUnavailable:
        return None
    finally:
        client.close()
    answer: dict[str, Any] | None = reply.get("answer")
    return None if reply.get("suspect") else answer


def _ask_library(start: str | None, request: dict[str, Any]) -> dict[str, Any]:
    """The answer of an engine that the library starts, or of the library itself."""
    from kbtui.engine import protocol
    from kbtui.library import open_workspace
    from kbtui.search.models import question_from_json

    question = question_from_json(request["question"])
    with open_workspace(start) as library:
        wait = request.get("wait", protocol.WAIT_SECONDS)
        return library.search(question, wait, origin=request["origin"]).as_message()


def _check(args: Namespace) -> None:
    if not args.query and not args.like:
        raise UsageError("the following arguments are required: QUERY", hint="say what to look for")
    if args.like and (args.query or args.explain or args.why):
        raise UsageError("--like stands alone: it takes the place of a query", where="--like")
    if args.limit is not None and not 1 <= args.limit <= 100:
        raise UsageError(f"it must be 1 to 100, not {args.limit}", where="--limit")
    if args.wait is not None and not args.wait >= 0:
        raise UsageError(f"it must be 0 or more seconds, not {args.wait:g}", where="--wait")


def _serialize_question(args: Namespace) -> dict[str, Any]:
    """What the options ask for; `search.models.question_from_json` has the defaults."""
    values = question_fields(args) | {
        "query": " ".join(args.query),
        "mode": args.mode,
        "archived": args.archived,
        "hidden": args.hidden,
        "limit": args.limit,
        "explain": args.explain,
        "why": args.why,
        "like": args.like,
    }
    for name in {"since", "until"} & values.keys():
        values[name] = values[name].isoformat()
    return {name: value for name, value in values.items() if value}


def _refuse_mistakes(answer: dict[str, Any]) -> None:
    """Point at what is wrong with the query."""
    for start, end, message, hint in answer["details"]["mistakes"][:1]:
        where = None
        if start >= 0:
            where = f"{answer['query'][start:end]!r}, from character {start + 1}"
        raise UsageError(message, where=where, hint=hint)
