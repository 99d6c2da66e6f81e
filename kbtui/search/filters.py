"""What a query's filters leave of the workspace, and what is wrong with them.

Filters and the options of a `Question` hold together: a query can narrow what
it was allowed to see, never widen it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtui.conversations import event_kinds
from kbtui.search.query_parser import KEYS, QueryError, QueryFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from kbtui.index import IndexReader
    from kbtui.index.models import Chunk, Entry
    from kbtui.search.models import Question
    from kbtui.search.query_parser import ParsedQuery
    from kbtui.workspace import Workspace

ROLES = event_kinds.search_roles()
ROLE_GROUPS = event_kinds.search_role_groups()
KINDS = {
    "subjects": "subject",
    "subject": "subject",
    "conversations": "conversation",
    "conversation": "conversation",
}
ENTRIES_MOST = 2000
"""So many entries a title may name; the rest is left out."""


class ExtraFilters(NamedTuple):
    """What no field of a `Question` holds: arguments of calls, and what is left out.

    `args` has for each `arg:` the terms of which one must be there; `without`
    has fields of the lexical index with values that must not.
    """

    args: tuple[tuple[str, ...], ...] = ()
    without: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def allows(self, entry: Entry, chunk: Chunk) -> bool:
        """Whether a chunk passes; for the leg whose store cannot be asked."""
        return all(set(terms) & _argument_terms(chunk) for terms in self.args) and not any(
            set(values) & _values(name, entry, chunk) for name, values in self.without
        )


def _values(name: str, entry: Entry, chunk: Chunk) -> set[str | None]:
    if name == "arg":
        return {*_argument_terms(chunk)}
    return {
        {
            "topic": entry.topic,
            "kind": entry.kind,
            "type": entry.type or entry.kind,
            "role": chunk.role,
            "tool": chunk.tool,
            "entry": entry.id,
        }[name]
    }


def _argument_terms(chunk: Chunk) -> set[str]:
    from kbtui.index.keyword_index import argument_terms

    return {
        term for key, value in (chunk.args or {}).items() for term in argument_terms(key, value)
    }


def narrow(
    workspace: Workspace,
    reader: IndexReader,
    query: ParsedQuery,
    question: Question,
    now: datetime | None = None,
) -> tuple[Question, ExtraFilters, list[QueryError]]:
    """The question with the query's filters in it; a mistake for each that cannot be obeyed."""
    if not (query.filters or question.topics or question.roles or question.types):
        return question, ExtraFilters(), []
    return _Narrower(workspace, reader, question, now).narrow(query)


class _Wrong(Exception):
    """Says what is wrong with a value, and what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class _Narrower:
    def __init__(
        self,
        workspace: Workspace,
        reader: IndexReader,
        question: Question,
        now: datetime | None,
    ) -> None:
        self._workspace, self._reader, self._now = workspace, reader, now
        self._question = question
        self._mistakes: list[QueryError] = []
        self._wanted: dict[str, list[str]] = {}
        self._places: dict[str, QueryFilter] = {}
        self._args: list[tuple[str, ...]] = []
        self._without: list[tuple[str, tuple[str, ...]]] = []
        self._entries: set[str] | None = None

    def narrow(self, query: ParsedQuery) -> tuple[Question, ExtraFilters, list[QueryError]]:
        self._options()
        for part in query.filters:
            try:
                self._take(part)
            except _Wrong as wrong:
                if not part.unfinished:
                    self._mistakes.append(
                        QueryError(part.start, part.end, f"{part.key}: {wrong.message}", wrong.hint)
                    )
        for field in ("topics", "kinds", "types", "roles", "tools"):
            self._merge(field)
        if self._entries is not None:
            held = self._question.entries
            entries = self._entries & set(held) if held else self._entries
            self._question = replace(self._question, entries=tuple(sorted(entries)) or ("",))
        return (
            self._question,
            ExtraFilters(tuple(self._args), tuple(self._without)),
            self._mistakes,
        )

    def _options(self) -> None:
        """Topics of the question may be named by title; unknown values are mistakes too."""
        readers = (
            ("topics", self._topic),
            ("roles", self._role),
            ("types", lambda value: self._indexed("type", value)),
        )
        for field, read in readers:
            values: list[str] = []
            mistakes: list[QueryError] = []
            for value in getattr(self._question, field):
                try:
                    values += read(value)
                except _Wrong as wrong:
                    mistakes.append(QueryError(-1, -1, wrong.message, wrong.hint))
            # Types are open: a program may ask for some that only other workspaces have.
            if field != "types" or not values:
                self._mistakes += mistakes
            self._set(field, tuple(dict.fromkeys(values)))

    def _set(self, field: str, values: tuple[str, ...]) -> None:
        changed: dict[str, Any] = {field: values}
        self._question = replace(self._question, **changed)

    def _take(self, part: QueryFilter) -> None:
        values = [value for value in part.values if value]
        if not values:
            raise _Wrong("has no value", f"it takes {KEYS[part.key]}")
        if part.key in {"after", "before"}:
            for value in values:
                self._date(part, value)
        elif part.key == "title":
            found = set().union(*(self._titled(value) for value in values))
            if part.excluded:
                self._without.append(("entry", tuple(sorted(found))))
            else:
                self._entries = found if self._entries is None else self._entries & found
        elif part.key == "arg":
            terms = tuple(_argument(value) for value in values)
            if part.excluded:
                self._without.append(("arg", terms))
            else:
                self._args.append(terms)
        else:
            self._attribute(part, values)

    def _attribute(self, part: QueryFilter, values: list[str]) -> None:
        field, name, read = {
            "topic": ("topics", "topic", self._topic),
            "in": ("kinds", "kind", self._kind),
            "type": ("types", "type", lambda value: self._indexed("type", value)),
            "role": ("roles", "role", self._role),
            "tool": ("tools", "tool", lambda value: self._indexed("tool", value)),
        }[part.key]
        found = [one for value in values for one in read(value)]
        if part.excluded:
            self._without.append((name, tuple(found)))
        else:
            self._wanted.setdefault(field, []).extend(found)
            self._places[field] = part

    def _merge(self, field: str) -> None:
        """Hold what was typed together with the question's own options."""
        if field not in self._wanted:
            return
        wanted = tuple(dict.fromkeys(self._wanted[field]))
        held: Sequence[str] = getattr(self._question, field)
        if held:
            both = tuple(value for value in wanted if value in held)
            if not both:
                part = self._places[field]
                self._mistakes.append(
                    QueryError(
                        part.start,
                        part.end,
                        f"{part.key}: {', '.join(wanted)} is outside of what is searched",
                        f"searched is {', '.join(held)}",
                    )
                )
            wanted = both
        self._set(field, wanted)

    # one value each

    def _date(self, part: QueryFilter, value: str) -> None:
        from kbtui.dates import HINT, parse_moment

        moment = parse_moment(value, self._now)
        if moment is None:
            raise _Wrong(f"{value!r} is not a date", HINT)
        question = self._question
        # Not before a day is after it.
        if (part.key == "after") != part.excluded:
            since = max(moment, question.since) if question.since else moment
            self._question = replace(question, since=since)
        else:
            until = min(moment, question.until) if question.until else moment
            self._question = replace(question, until=until)

    def _topic(self, value: str) -> list[str]:
        if self._known("topic", value):
            return [value]
        from kbtui.errors import NothingFound
        from kbtui.knowledge import load_knowledge

        knowledge = load_knowledge(self._workspace)
        try:
            return [knowledge.resolve_topic(value).id]
        except NothingFound:
            topics = [topic.id for topic in knowledge.topics.values() if topic.enable]
            raise _Wrong(f"there is no topic {value!r}", _choice(value, topics)) from None

    def _kind(self, value: str) -> list[str]:
        if value.lower() not in KINDS:
            raise _Wrong(f"{value!r} is neither subjects nor conversations", _QUOTE)
        return [KINDS[value.lower()]]

    def _role(self, value: str) -> list[str]:
        name = value.lower()
        if name in ROLE_GROUPS:
            return list(ROLE_GROUPS[name])
        if name not in ROLES:
            raise _Wrong(f"there is no role {value!r}", _choice(value, [*ROLES, *ROLE_GROUPS]))
        return [name]

    def _indexed(self, field: str, value: str) -> list[str]:
        """A value that the index has; otherwise the nearest are named."""
        if self._known(field, value):
            return [value]
        known = self._terms(field)
        for term in known:
            if term.lower() == value.lower():
                return [term]
        what = "entry of type" if field == "type" else "call of the tool"
        raise _Wrong(f"there is no {what} {value!r}", _choice(value, known))

    def _known(self, field: str, value: str) -> bool:
        return any(searcher.doc_freq(field, value) for searcher in self._searchers() if value)

    def _terms(self, field: str) -> list[str]:
        found: dict[str, int] = {}
        for searcher in self._searchers():
            for term, count in searcher.terms_with_prefix(field, "", limit=200):
                found[term] = found.get(term, 0) + count
        return sorted(found, key=lambda term: (-found[term], term))

    def _searchers(self) -> Iterable[Any]:
        for hidden in (False, True) if self._question.hidden else (False,):
            yield self._reader.lexical(hidden=hidden).searcher()

    def _titled(self, value: str) -> set[str]:
        """The entries whose title has all words of `value`."""
        from kbtui.search.lexical import titled

        return titled(self._reader, value, hidden=self._question.hidden, most=ENTRIES_MOST)


_QUOTE = "write in:subjects or in:conversations; in quotation marks it is looked for as text"


def _argument(value: str) -> str:
    from kbtui.index.tokenizer import plain

    key, sign, wanted = plain(value).partition("=")
    wanted = " ".join(wanted.lower().split())
    if len(wanted) > 1:
        wanted = wanted.rstrip("/")
    return f"{key.lower()}={wanted}" if sign and wanted else key.lower()


def _choice(value: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(value.lower(), known, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not known:
        return "there is none yet"
    more = ", …" if len(known) > 12 else ""
    return f"there is {', '.join(known[:12])}{more}"
