"""Notices: what an answer has to say besides its hits, as codes with typed values.

Modules hand each other a `Notice`. Front ends for people word it with `phrase`; assistants have a
wording of their own, which repeats no count or path.
"""

from typing import Any, Literal, NamedTuple, TypedDict

NoticeCode = Literal[
    "filter_without_value",
    "index_behind",
    "index_mended",
    "keywords_only",
    "meaning_only",
    "newest_first",
    "nothing_to_look_for",
    "passages_pending",
    "private_index",
    "query_cut",
    "query_mistake",
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
    "vectors_replaced": "the vectors are being made again",
}
"""Why there is no semantic search; with any other cause the notice has a `detail`."""


class NoticeValues(TypedDict, total=False):
    """The values of a notice: `detail` is the message of the error behind it."""

    cause: Cause
    detail: str
    word: str
    suggestion: str
    done: int
    total: int
    characters: int
    is_complete: bool


class Notice(NamedTuple):
    """One thing to say about an answer or an index."""

    code: NoticeCode
    values: NoticeValues = {}  # noqa: RUF012  (nobody changes it)


NOTHING_INDEXED = "nothing to search: no subjects and no conversations, or none read yet"
"""What an answer says where there was nothing to search."""


def make_keywords_only_notice(cause: Cause, detail: str = "") -> Notice:
    """Hits are found by keywords alone, for this reason."""
    return Notice("keywords_only", {"cause": cause, "detail": detail})


def get_keywords_only_reason(notice: Notice) -> str:
    """Why a `keywords_only` notice is given, in one phrase; "" where another notice says why."""
    values = notice.values
    return values.get("detail") or MODEL_CAUSES.get(values.get("cause", ""), "")


def format_notice(notice: Notice) -> str:
    """A notice for a person."""
    values: Any = notice.values
    match notice.code:
        case "filter_without_value":
            return f"{values['word']} needs a value; searched as a word"
        case "index_behind":
            return _format_index_behind(values)
        case "index_mended":
            return f"{values['detail']}; the index was built again"
        case "keywords_only":
            reason = get_keywords_only_reason(notice)
            return f"keywords only: {reason}" if reason else "keywords only"
        case "meaning_only":
            return "no text contains these words; closest by meaning"
        case "newest_first":
            return "no words to look for: the newest first"
        case "nothing_to_look_for":
            return "nothing to look for: add a word"
        case "passages_pending":
            return f"{values['total']:,} passages are not embedded yet"
        case "private_index":
            state = "" if values["is_complete"] else ", still being made"
            if values.get("detail"):
                state = f", behind the files ({values['detail']})"
            return f"a private index{state}"
        case "query_cut":
            return f"the query was cut at {values['characters']} characters"
        case "query_mistake":
            return str(values["detail"])
        case "unknown_filter":
            return f"unknown filter {values['word']}:; did you mean {values['suggestion']}:?"


def _format_index_behind(values: Any) -> str:
    match values["cause"]:
        case "engine":
            return f"the index may be behind: {values['detail']}"
        case "changes_pending":
            done, total = values["done"], values["total"]
            state = f"{done:,} of {total:,} changed entries are in it"
        case "error":
            state = values["detail"]
        case _:
            state = "they are still being compared"
    return f"the index is behind the files: {state}"


def format_notices(notices: "list[Notice]") -> str | None:
    """All notices as one phrase for a person, None where there is none."""
    return "; ".join(map(format_notice, notices)) or None
