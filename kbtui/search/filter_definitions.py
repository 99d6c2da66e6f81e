"""The table of filters (`key:value`) for searches, the library pane and the list of entries.

The query parser, the completion of queries and the options of `kbtui search` and `kbtui entries` all read
`FILTERS`. To add a filter, add a row.
"""

from __future__ import annotations

from kbtui.conversations import conversation_event_kinds

TYPE_CHECKING = False  # `kbtui search` must not wait for `typing`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, tzinfo
    from typing import Any, Literal

    from kbtui.conversations.conversation_data_types import (
        ConversationInfo,
        ConversationToolsAndModels,
    )

    LibraryCondition = Callable[[ConversationInfo, ConversationToolsAndModels, Any], bool]
    """A function that returns whether a conversation matches a value: case-folded text or a time."""
    FilterInput = Literal["search", "library", "entries"]
    """The input field for a filter: the search, the library's filter or the entries' filter."""
    ValueKind = Literal[
        "topic",
        "choice",
        "term",
        "title",
        "argument",
        "date",
        "text",
        "agent",
        "label",
        "file",
        "project",
    ]

VALUE_PATTERN = r'(?:"[^"]*(?:"|$)|[^\s",]+)'
"""A regular expression that matches one value of a filter, with or without quotation marks."""


class FilterValueError(Exception):
    """A filter has an invalid value. `hint` tells the user how to correct it.

    `is_beginning` says whether more characters could make the value valid.
    """

    def __init__(self, message: str, hint: str, *, is_beginning: bool = True) -> None:
        super().__init__(message)
        self.message, self.hint, self.is_beginning = message, hint, is_beginning


class FilterDefinition:
    """A filter such as `after:`.

    The attributes `search`, `library` and `entries` say how a search, the library pane and the list
    of entries apply the filter. If one of these attributes is empty, the input field there does not
    accept the filter, with one exception: the library pane also accepts every search filter, which the
    index then applies.
    """

    def __init__(
        self,
        key: str,
        about: str,
        kind: ValueKind,
        aliases: tuple[str, ...] = (),
        *,
        search: str = "",
        term: str = "",
        entries: str = "",
        library: LibraryCondition | None = None,
        needs_summary: bool = False,
        choices: Mapping[str, tuple[str, ...]] | None = None,
        offered: tuple[str, ...] = (),
        noun: str = "",
        options: tuple[str, ...] = (),
        metavar: str = "TEXT",
        includes_day: bool = False,
        example: str = "",
    ) -> None:
        self.key, self.kind, self.aliases = key, kind, aliases
        self.about = about
        """A description of the filter for help texts and completions."""
        self.search = search
        """The field of `SearchRequest` that stores the filter's values; equal to `key` if there is no such field."""
        self.term = term
        """The field of the keyword index that contains the filter's values; "" if no field does."""
        self.entries = entries
        """The field of `EntryFilter` that stores the filter's values; "" if no field does."""
        self.library = library
        """The function with which the library pane checks a conversation; None if only the index can check it."""
        self.needs_summary = needs_summary
        """Whether the function in `library` needs the tools or models that a conversation used."""
        self.choices = choices or {}
        """The indexed terms that each valid value stands for. Empty if there is no fixed list of values."""
        self.shown_choices = offered or tuple(self.choices)
        """The valid values that completions and hints show. `choices` may contain other spellings."""
        self.noun = noun or key
        """The word for a value of the filter in error messages, such as "topic" or "status"."""
        self.options = options
        """The names of the filter's options on the command line."""
        self.metavar = metavar
        self.includes_day = includes_day
        """Whether a date without a time stands for the end of the day, not for its start."""
        self.example = example
        """An example of the filter with a value, for users who do not know the filter yet."""

    @property
    def joined_command_line_options(self) -> str:
        """The options of the filter on the command line, joined by `/` for error messages."""
        return "/".join(self.options)

    def parse_choice_value(self, value: str) -> tuple[str, ...]:
        """Return the indexed terms for a value. Raises `FilterValueError` if the value is not in `choices`."""
        if value.lower() not in self.choices:
            raise self.make_unknown_value_error(value, self.shown_choices, tuple(self.choices))
        return self.choices[value.lower()]

    def parse_date_value(
        self, value: str, now: datetime | None = None, zone: tzinfo | None = None
    ) -> datetime:
        """Parse a value of this filter as a date or a time.

        Raises `FilterValueError` if the value is neither.
        """
        from kbtui.dates import DATE_HINT, can_begin_date_or_age, parse_date_or_age

        moment = parse_date_or_age(value, now, zone, to_end_of_day=self.includes_day)
        if moment is None:
            begins = can_begin_date_or_age(value)
            raise FilterValueError(f"{value!r} is not a date", DATE_HINT, is_beginning=begins)
        return moment

    def list_agents_matching_value(self, value: str) -> list[str]:
        """Return the agents whose names begin with `value`.

        Agents that the settings exclude are left out. Raises `FilterValueError` if no agent is
        left.
        """
        from kbtui.conversations.conversation_repository import find_agent_names_with_prefixes
        from kbtui.errors import NothingFound, UsageError

        try:
            return sorted(find_agent_names_with_prefixes([value]))
        except (UsageError, NothingFound) as error:
            raise FilterValueError(
                error.message, error.hint or "", is_beginning=not value
            ) from error

    def make_unknown_value_error(
        self, value: str, known: Sequence[str], other_names: Sequence[str] = ()
    ) -> FilterValueError:
        """Return the error for an unknown value.

        Its hint suggests similar values from `known`. If there are none, it lists the first values
        of `known`. `other_names` are other valid values, which the hint does not contain.
        """
        from difflib import get_close_matches

        near = get_close_matches(value.lower(), known, n=3, cutoff=0.6)
        more = ", …" if len(known) > 12 else ""
        hint = f"known values: {', '.join(known[:12])}{more}" if known else "no values exist yet"
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        begun = value.casefold()
        begins = any(one.casefold().startswith(begun) for one in (*known, *other_names))
        return FilterValueError(f"unknown {self.noun} {value!r}", hint, is_beginning=begins)


def _is_conversation_active_since(
    info: ConversationInfo, _: ConversationToolsAndModels, moment: datetime
) -> bool:
    return info.last_activity_at >= moment


def _is_conversation_inactive_since(
    info: ConversationInfo, _: ConversationToolsAndModels, moment: datetime
) -> bool:
    return info.last_activity_at < moment


def _has_conversation_label(
    info: ConversationInfo, _: ConversationToolsAndModels, wanted: str
) -> bool:
    return any(
        wanted in (key.casefold(), value.casefold(), f"{key}={value}".casefold())
        for key, value in info.labels.items()
    )


def _is_conversation_in_state(
    info: ConversationInfo, _: ConversationToolsAndModels, state: str
) -> bool:
    return {
        "pinned": info.pinned_at is not None,
        "archived": info.archived,
        "live": not info.archived,
        "local": info.presence == "user_local",
        "external": info.presence == "external",
        "damaged": info.problem is not None,
        "kept": info.kept_from is not None,
    }[state]


MARK_STATES = ("decided", "rejected", "superseded")
STATES = ("pinned", "archived", "live", "local", "external", "damaged", "kept")
ENTRY_STATUSES = ("ready", "pending", "error")


def _map_names_to_themselves(*names: str) -> dict[str, tuple[str, ...]]:
    return {name: (name,) for name in names}


FILTERS: tuple[FilterDefinition, ...] = (
    FilterDefinition(
        "topic", "only the topic with this id or title", "topic", ("topics",), example="topic:guide",
        search="topics", term="topic", entries="topics", options=("--topic",), metavar="ID",
    ),
    FilterDefinition(
        "in", "only subjects or only conversations", "choice", ("kind",), example="in:subjects",
        search="kinds", term="kind", noun="kind", options=("--in",), metavar="KIND", offered=("subjects", "conversations"),
        choices={
            "subjects": ("subject",), "subject": ("subject",),
            "conversations": ("conversation",), "conversation": ("conversation",),
        },
    ),
    FilterDefinition(
        "type", "only entries of these types: note, rule, …, conversation", "term", example="type:decision",
        search="types", term="type", entries="types", options=("--type",), metavar="T,…",
    ),
    FilterDefinition("title", "only entries whose title contains this text", "title", example="title:cache", search="title", term="entry"),
    FilterDefinition(
        "role", "only text of this role: user, assistant, reasoning, tool, …", "choice", example="role:user",
        search="roles", term="role", options=("--role",), metavar="ROLE",
        choices=conversation_event_kinds.map_names_to_search_roles(),
    ),
    FilterDefinition(
        "tool", "only calls of this tool and their results", "term", ("tools",), example="tool:fs_read_file",
        search="tools", term="tool", options=("--tool",), metavar="NAME",
        library=lambda _, summary, name: any(name in tool.casefold() for tool in summary.tools),
        needs_summary=True,
    ),
    FilterDefinition("arg", "only calls with this argument: arg:topic=guide", "argument", example="arg:topic=guide", search="arg", term="arg"),
    FilterDefinition(
        "after", "only at or after this day or time: 2026-11-01, 2w", "date", ("since",), example="after:2w",
        search="since", entries="since", library=_is_conversation_active_since,
        options=("--after", "--since"), metavar="DATE",
    ),
    FilterDefinition(
        "before", "only before this day or time: 2026-11-01, yesterday", "date", ("until",), example="before:2026-11-01",
        search="until", entries="until", library=_is_conversation_inactive_since,
        options=("--before", "--until"), metavar="DATE",
    ),
    FilterDefinition("from", "only at or after this day or time (same as the filter after:)", "date", entries="since", options=("--from",), metavar="DATE"),
    FilterDefinition(
        "to", "only up to the end of this day, or up to this time", "date",
        entries="until", options=("--to",), metavar="DATE", includes_day=True,
    ),
    FilterDefinition(
        "label", "only conversations with this label: label:area, label:area=search", "label", ("labels",), example="label:area=search",
        search="label", term="entry", library=_has_conversation_label,
    ),
    FilterDefinition(
        "file", "only turns with a call that names this file: file:src/reader.py, file:reader.py", "file", ("files",), example="file:reader.py",
        search="file",
    ),
    FilterDefinition(
        "project", "only projects with this text in their name, or only this worktree", "project", ("projects",), example="project:demo",
        search="project",
    ),
    FilterDefinition(
        "mark", "only turns to which you gave this mark: decided, rejected, superseded, any", "choice", ("marked",), example="mark:decided",
        search="marks", options=("--mark",), metavar="STATE",
        choices={**_map_names_to_themselves(*MARK_STATES), "any": MARK_STATES},
    ),
    FilterDefinition(
        "model", "only conversations with a model whose name contains this text", "text", ("models",),
        library=lambda _, summary, name: any(name in model.casefold() for model in summary.models),
        needs_summary=True,
    ),
    FilterDefinition(
        "agent", "only conversations with this agent: jp, claude-code, … or a prefix", "agent", ("agents",), example="agent:jp",
        search="agents", term="agent", entries="agents", options=("--agent",), metavar="NAME",
        library=lambda info, _, name: info.agent == name,
    ),
    FilterDefinition(
        "is", f"only conversations that are {', '.join(STATES[:-1])} or {STATES[-1]}", "choice",
        ("status",), search="is", term="entry", example="is:pinned",
        library=_is_conversation_in_state, noun="state", choices=_map_names_to_themselves(*STATES),
    ),
    FilterDefinition(
        "is", f"only entries with this status: {', '.join(ENTRY_STATUSES)}", "choice", ("status",),
        entries="statuses", choices=_map_names_to_themselves(*ENTRY_STATUSES), noun="status", options=("--status",), metavar="S,…",
    ),
)  # fmt: skip


def list_filters_accepted_by_input_field(filter_input: FilterInput) -> list[FilterDefinition]:
    """Return the filters that an input field accepts."""
    is_library = filter_input == "library"
    return [row for row in FILTERS if getattr(row, filter_input) or (is_library and row.search)]


def format_filter_keys(filter_input: FilterInput, *, without: Sequence[str] = ()) -> str:
    """Return the keys of an input field's filters as a phrase, such as `topic:, after: and before:`."""
    keys = [
        f"{row.key}:"
        for row in list_filters_accepted_by_input_field(filter_input)
        if row.key not in without
    ]
    return f"{', '.join(keys[:-1])} and {keys[-1]}"


def map_filter_keys_and_aliases_to_definitions(
    filter_input: FilterInput,
) -> dict[str, FilterDefinition]:
    """Map the key and the aliases of each filter to its definition, for the filters that `filter_input` accepts."""
    return {
        name: row
        for row in list_filters_accepted_by_input_field(filter_input)
        for name in (row.key, *row.aliases)
    }


def list_input_fields_accepting_filter(key: str) -> list[FilterInput]:
    """Return the input fields that accept the filter `key:`."""
    inputs: tuple[FilterInput, ...] = ("search", "library", "entries")
    return [one for one in inputs if key in map_filter_keys_and_aliases_to_definitions(one)]


def quote_filter_value(value: str) -> str:
    """Return a value in the syntax of queries: in quotation marks if it contains white space or a comma."""
    is_divided = "," in value or any(map(str.isspace, value))
    return f'"{value}"' if is_divided else value


def split_regex_query(query: str) -> tuple[str, str] | None:
    """Split a query such as `topic:guide /retr(y|ies)/` into the regular expression and the filters.

    In the text with the filters, spaces replace the expression, so that all offsets are those in
    the query. Returns None for any other query.
    """
    if query.count("/") < 2:
        return None

    import re  # imported here because most searches do not need it

    value = rf"{VALUE_PATTERN}(?:,{VALUE_PATTERN})*"
    one = rf"-?(?:{'|'.join(map_filter_keys_and_aliases_to_definitions('search'))}):{value}"
    pattern = rf"\s*(?:{one}\s+)*/(.+)/(?:\s+{one})*\s*"
    match = re.fullmatch(pattern, query, re.IGNORECASE)
    if match is None:
        return None
    start, end = match.start(1) - 1, match.end(1) + 1
    return match[1], f"{query[:start]}{' ' * (end - start)}{query[end:]}"


def split_filter_values(text: str, *, at_spaces: bool = True) -> tuple[str, ...]:
    """Split `value,"another value"` into its values.

    In a query (`at_spaces`), a value without quotation marks ends at a space. In an option, such a value
    can contain spaces.
    """
    if text.isalnum():
        return (text,)

    import re  # imported here because most searches do not need it

    plain_value = r'[^\s",]+' if at_spaces else r'[^",]+'
    found = re.finditer(rf'"([^"]*)(?:"|$)|({plain_value})', text)
    return tuple(
        " ".join((quoted or plain or "").split()) for quoted, plain in map(re.Match.groups, found)
    )
