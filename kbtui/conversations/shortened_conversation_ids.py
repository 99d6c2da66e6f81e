"""Shortens the ids of conversations to beginnings that still identify them.

JP's ids are not shortened. In the id of a subagent (`claude-258c7280-…~a2898e3`), both the part
before `~` and the part after it can be shortened.
"""

from __future__ import annotations

import re
from itertools import pairwise
from os.path import commonprefix
from typing import TYPE_CHECKING

from kbtui.references import get_agent_prefix_of_id, is_other_agents_conversation_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SHORT_ID_CHARACTERS = 8
"""The minimum number of characters of a shortened id after the prefix that names the agent."""


def find_ids_with_beginning(ids: Iterable[str], beginning: str) -> list[str]:
    """Return the ids for which `beginning` is a short form.

    In an id with `~`, both the part before `~` and the part after it can be shortened.
    """
    beginnings = beginning.split("~")
    found = [
        id
        for id in ids  # noqa: A001
        if all(map(str.startswith, id.split("~"), beginnings))
        and id.count("~") >= len(beginnings) - 1
    ]
    if len(beginnings) == 1:
        # The ids of a session's subagents begin with the id of the session.
        return [id for id in found if "~" not in id] or found  # noqa: A001
    return found


def shorten_references(
    references: Iterable[str], find_ids: Callable[[set[str]], Iterable[str]]
) -> dict[str, str]:
    """Map each reference that has a short form to this form.

    `find_ids` is called with a set of texts. It returns all conversation ids that begin with one of
    these texts.
    """
    wanted = {ref for ref in references if is_other_agents_conversation_ref(ref)}
    short = shorten_conversation_ids(find_ids(set(map(_get_common_beginning_of_short_ids, wanted))))
    return {ref: shorten_reference(ref, short) for ref in wanted}


def shorten_reference(reference: str, short_ids: Mapping[str, str]) -> str:
    """Return a reference in which the id of the conversation is in its short form."""
    conversation, colon, position = reference.partition(":")
    return f"{short_ids.get(conversation, conversation)}{colon}{position}"


def shorten_conversation_ids(ids: Iterable[str]) -> dict[str, str]:
    """Map each id to its short form. No two ids have the same short form."""
    parents: set[str] = set()
    parts: dict[str, set[str]] = {}
    for id in ids:  # noqa: A001
        parent, sign, part = id.partition("~")
        parents.add(parent)
        if sign:
            parts.setdefault(parent, set()).add(part)
    others = {one for one in parents if get_agent_prefix_of_id(one)}
    short = {one: one for one in parents - others} | _find_unique_beginnings(others)
    for parent, names in parts.items():
        for name, start in _find_unique_beginnings(names).items():
            short[f"{parent}~{name}"] = f"{short[parent]}~{start}"
    return short


def _get_common_beginning_of_short_ids(reference: str) -> str:
    """Return the beginning that all short forms of a session's id share."""
    prefix = get_agent_prefix_of_id(reference)
    return reference.partition("~")[0][: len(prefix) + SHORT_ID_CHARACTERS]


def _find_unique_beginnings(names: Iterable[str]) -> dict[str, str]:
    """Map each name to its shortest beginning that is a valid id and is unique.

    A beginning is unique if no other name begins with it.
    """
    ordered = sorted(names)
    if not ordered:
        return {}
    common = [len(commonprefix(pair)) for pair in pairwise(ordered)]  # noqa: RUF071
    found = {}
    for name, before, after in zip(ordered, [0, *common], [*common, 0], strict=True):
        own = len(get_agent_prefix_of_id(name))
        length = max(own + SHORT_ID_CHARACTERS, before + 1, after + 1)
        # An id without a digit would be read as the name of a topic.
        while length < len(name) and not re.search(r"[0-9_]", name[own:length]):
            length += 1
        found[name] = name[:length]
    return found
