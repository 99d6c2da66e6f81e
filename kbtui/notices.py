"""Notices: messages about an answer or about the index, as codes with typed values.

Modules pass `Notice` objects. Front ends for people turn them into text with `format_notice`. For
assistants, `kbtui/assistant/assistant_tools.py` words them without counts and paths.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypedDict

NoticeCode = Literal[
    "configuration_invalid",
    "filter_without_value",
    "index_behind",
    "index_mended",
    "keywords_only",
    "meaning_only",
    "newest_first",
    "other_directories",
    "nothing_to_look_for",
    "passages_pending",
    "private_index",
    "query_cut",
    "query_mistake",
    "search_not_logged",
    "unknown_filter",
]
Cause = Literal[
    "changes_pending",
    "comparing",
    "engine",
    "error",
    "index_replaced",
    "model_loading",
    "model_off",
    "vectors_replaced",
]
MODEL_CAUSES: dict[str, str] = {
    "index_replaced": "the index is being replaced",
    "model_loading": "the model is loading",
    "model_off": 'the model is switched off (setting model = "off")',
    "vectors_replaced": "the vectors are being rebuilt",
}
"""Maps a cause to the text that says why semantic search is unavailable; other causes have a `detail`."""


class NoticeValues(TypedDict, total=False):
    """The values of a notice. `detail`, `where` and `hint` come from the error that caused it."""

    cause: Cause
    detail: str
    where: str | None
    hint: str | None
    word: str
    suggestion: str
    done: int
    total: int
    characters: int
    is_complete: bool


class Notice(NamedTuple):
    """A message about an answer or an index: a code and its values."""

    code: NoticeCode
    values: NoticeValues = {}  # noqa: RUF012  (nobody changes it)


NOTHING_INDEXED = (
    "nothing to search: there are no subjects or conversations, or none is indexed yet"
)
"""The message that front ends show if the index is empty."""


def make_keywords_only_notice(cause: Cause, detail: str = "") -> Notice:
    """Return the notice that only keyword search was possible, with the reason."""
    return Notice("keywords_only", {"cause": cause, "detail": detail})


def get_keywords_only_reason(notice: Notice) -> str:
    """Return why a search used only keywords, from a `keywords_only` notice; "" if it gives no reason."""
    values = notice.values
    return values.get("detail") or MODEL_CAUSES.get(values.get("cause", ""), "")


def format_notice(notice: Notice) -> str:
    """Return the text of a notice for people."""
    values: Any = notice.values
    match notice.code:
        case "configuration_invalid":
            return f"topics may be missing: {values['detail']}"
        case "filter_without_value":
            return f"{values['word']} needs a value; it was searched for as a word"
        case "index_behind":
            return _format_index_behind(values)
        case "index_mended":
            return f"{values['detail']}; the index was rebuilt"
        case "keywords_only":
            reason = get_keywords_only_reason(notice)
            return f"keywords only: {reason}" if reason else "keywords only"
        case "meaning_only":
            return "no keyword hits; showing the closest in meaning"
        case "newest_first":
            return "no words to search for; showing the newest hits first"
        case "other_directories":
            return (
                "conversations may be missing, because the engine was started with a different "
                f"{values['detail']} and cannot restart while other clients use it; "
                "`kbtui engine stop` stops it"
            )
        case "nothing_to_look_for":
            return "nothing to search for: add a word"
        case "passages_pending":
            return f"{values['total']:,} passages are not searchable by meaning yet"
        case "private_index":
            state = "" if values["is_complete"] else ", still being built"
            if values.get("detail"):
                state = f", out of date ({values['detail']})"
            return f"a temporary index{state}"
        case "query_cut":
            return f"the query was cut at {values['characters']} characters"
        case "query_mistake":
            return str(values["detail"])
        case "search_not_logged":
            return f"the search is not logged: {values['detail']}"
        case "unknown_filter":
            return f"unknown filter {values['word']}:; did you mean {values['suggestion']}:?"


def _format_index_behind(values: Any) -> str:
    match values["cause"]:
        case "engine":
            return f"the index may be out of date: {values['detail']}"
        case "changes_pending":
            done, total = values["done"], values["total"]
            state = f"{done:,} of {total:,} changed entries are indexed"
        case "error":
            state = values["detail"]
        case _:
            state = "files are still being compared"
    return f"the index is not up to date: {state}"


def format_notices(notices: Iterable[Notice]) -> str | None:
    """Return the text of all notices for people, joined by `; `; None without notices."""
    return "; ".join(map(format_notice, notices)) or None
