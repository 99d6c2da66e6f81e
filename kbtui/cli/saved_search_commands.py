"""Saves, loads, lists and removes named searches for the command `search`."""

from __future__ import annotations

from kbtui.cli.cli_output import print_json_result, print_result, print_to_stderr
from kbtui.cli.filter_options import iterate_filters_from_options
from kbtui.dates import format_unix_time_as_iso
from kbtui.errors import NothingFound, UsageError
from kbtui.search.filter_definitions import quote_filter_value
from kbtui.terminal_text import sanitize_to_one_line
from kbtui.userdata.user_data_store import SavedSearch, UserData
from kbtui.workspace import find_workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

MAX_NAME_CHARACTERS = 60


def save_search_of_arguments(args: Namespace) -> None:
    """Save the search that `args` describes under the name given with `--save`.

    Filters that options set become part of the query. Raises `UsageError` for an invalid name.
    """
    name = " ".join(args.save.split())
    if not name or len(name) > MAX_NAME_CHARACTERS or sanitize_to_one_line(name) != name:
        raise UsageError(
            "this cannot be the name of a search",
            where="--save",
            hint=f"use 1 to {MAX_NAME_CHARACTERS} characters, and no control characters",
        )
    filters = [
        f"{row.key}:{','.join(map(quote_filter_value, values))}"
        for row, values in iterate_filters_from_options(args, "search")
    ]
    search = SavedSearch(
        name,
        " ".join([*args.query, *filters]),
        args.mode or "hybrid",
        args.archived,
        args.hidden,
        args.all,
    )
    replaced = _open_user_data(args).save_search(search)
    print_to_stderr(f"saved as {name!r}{', in place of the earlier search' if replaced else ''}")


def load_search_into_arguments(args: Namespace) -> None:
    """Set the query and the options in `args` to those of the search that `--saved` names.

    Raises `NothingFound` if there is no such search.
    """
    found = _open_user_data(args).list_saved_searches()
    search = next((one for one in found if one.name == args.saved), None)
    if search is None:
        raise _make_unknown_saved_search_error(args.saved, found)
    args.query = [search.query]
    args.mode = args.mode or search.mode
    args.archived, args.hidden = args.archived or search.archived, args.hidden or search.hidden
    args.all = args.all or search.all_projects


def print_saved_searches(args: Namespace) -> int:
    """Print the saved searches; return the exit code."""
    found = _open_user_data(args).list_saved_searches()
    if args.json:
        rows = [{**one._asdict(), "created": format_unix_time_as_iso(one.created)} for one in found]
        print_json_result({"saved_searches": rows})
        return 0
    for one in found:
        options = [
            f"--{option}"
            for option, is_set in (
                (f"mode {one.mode}", one.mode != "hybrid"),
                ("archived", one.archived),
                ("hidden", one.hidden),
                ("all", one.all_projects),
            )
            if is_set
        ]
        print_result("  ".join(map(sanitize_to_one_line, [one.name, one.query, *options])) + "\n")
    if not found:
        print_to_stderr("there are no saved searches; `kbtui search --save NAME QUERY` saves one")
    return 0


def remove_saved_search(args: Namespace) -> int:
    """Remove the search that is named in `--remove-saved`; return the exit code."""
    data = _open_user_data(args)
    if not data.remove_saved_search(args.remove_saved):
        raise _make_unknown_saved_search_error(args.remove_saved, data.list_saved_searches())
    print_to_stderr(f"removed the saved search {sanitize_to_one_line(args.remove_saved)!r}")
    return 0


def _make_unknown_saved_search_error(name: str, known: list[SavedSearch]) -> NothingFound:
    names = ", ".join(one.name for one in known)
    hint = f"saved searches: {names}" if known else "there are no saved searches"
    return NothingFound(f"there is no saved search {name!r}", hint=hint)


def _open_user_data(args: Namespace) -> UserData:
    return UserData(find_workspace(args.workspace))
