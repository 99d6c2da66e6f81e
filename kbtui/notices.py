"""Notices: messages about an answer, a hit or the index, as codes with typed values.

Modules pass `Notice` objects. Front ends for people turn them into text with `format_notice`. For
assistants, `kbtui/assistant/assistant_tools.py` turns them into text without counts and paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import LEG_NAMES, format_counted_noun

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypedDict

NoticeCode = Literal[
    "configuration_invalid", "filter_of_other_input",
    "filter_without_value", "filters_leave_nothing", "index_behind",
    "index_mended", "keywords_only", "marks_unreadable", "meaning_only", "near_spellings",
    "newest_first", "no_other_workspaces", "other_directories", "nothing_to_look_for",
    "passages_pending", "pattern_hits_cut", "pattern_out_of_time", "private_index",
    "regular_expression", "query_cut", "query_mistake", "search_not_logged",
    "unknown_filter", "workspace_left_out", "workspaces_unwatched",
]  # fmt: skip
RankReasonCode = Literal[
    "archived", "below_best_passages", "below_depth", "below_limit", "current_conversation",
    "entry_error", "excluded_word", "field_differs", "filter_excludes", "hidden", "leg_not_asked",
    "missing_phrase", "never_embedded", "no_text", "no_words", "not_embedded_yet",
    "not_indexed_yet", "not_ranked", "passage_gone", "query_invalid", "subject_disabled",
    "text_changed", "title_differs", "too_new", "too_old", "topic_disabled", "topic_has_no_text",
    "unknown_subject", "unknown_topic", "words_but_excluded",
]  # fmt: skip
"""A reason why a passage is not a hit, or why it has no rank by keywords or by meaning."""
Cause = Literal[
    "changes_pending", "comparing", "engine", "error", "index_replaced", "model_loading",
    "model_off", "other_time_zone", "vectors_replaced",
]  # fmt: skip
MODEL_CAUSES: dict[str, str] = {
    "index_replaced": "the index is being replaced",
    "model_loading": "the model is loading",
    "model_off": 'the model is switched off (setting model = "off")',
    "other_time_zone": "the engine uses another time zone",
    "vectors_replaced": "the vectors are being rebuilt",
}
"""For each cause, the reason why semantic search is unavailable.

For a cause that is missing here, the notice contains the reason in `detail`.
"""
PauseReason = Literal["battery", "busy", "user"]
PAUSE_TEXTS: dict[PauseReason, str] = {
    "battery": "paused because the computer is running on battery",
    "busy": "paused because the computer is busy",
    "user": "paused",
}
"""For each reason why embedding is paused, its text for users."""
EmbeddedParts = dict[str, tuple[int, int]]
"""Maps each kind of entry (in the plural) to two counts of passages: those with a vector, and all that need one."""
NOTICE_TEXTS: dict[NoticeCode | RankReasonCode, str] = {
    "configuration_invalid": "topics may be missing: {detail}",
    "filter_of_other_input": "{word}: this filter works only in the {inputs}; here, it was searched for as a word",
    "filter_without_value": "{word} needs a value; it was searched for as a word",
    "index_mended": "{detail}; the index was rebuilt",
    "marks_unreadable": "marks are not shown: {detail}; `kbtui doctor` says what to do",
    "meaning_only": "no text contains these words; closest by meaning",
    "newest_first": "no words to search for; showing the newest hits first",
    "no_other_workspaces": "this is the only workspace that you have opened",
    "other_directories": "conversations may be missing, because the engine was started with another value of {variables}, and cannot restart while other clients are using it; to stop the engine, run `kbtui engine stop`",
    "nothing_to_look_for": "nothing to search for; add a word",
    "pattern_hits_cut": "only the first {limit:,} matching lines are shown",
    "pattern_out_of_time": "the search stopped after {total} seconds; not everything was searched",
    "regular_expression": "matching lines",
    "passages_pending": "{passages} not searchable by meaning yet",
    "query_cut": "the query was cut at {characters} characters",
    "query_mistake": "{detail}",
    "search_not_logged": "the search is not logged: {detail}",
    "unknown_filter": "there is no filter '{word}:'; did you mean '{suggestion}:'?",
    "workspace_left_out": "{workspace} was not searched: {detail}",
    "workspaces_unwatched": "the index of {workspaces} may be out of date, because no engine is updating it",
    "archived": "the conversation is archived; --archived searches archived conversations, too",
    "below_best_passages": "better passages of the same entry are shown; raise --per-entry to show more",
    "below_depth": "the passage has rank {rank} by {leg}, and only the best {limit} count",
    "below_limit": "the passage has rank {rank}, and only {limit} hits are shown; raise --limit, or make the query more precise",
    "current_conversation": "this is the current conversation",
    "entry_error": "{detail}",
    "excluded_word": "the passage or its title contains “{word}”, which the query excludes",
    "field_differs": "the {field} is {value}, not {wanted}",
    "filter_excludes": "a filter of the query excludes the passage",
    "hidden": "the subject is hidden; --hidden searches hidden subjects, too",
    "leg_not_asked": "not requested",
    "missing_phrase": "the passage does not contain “{word}”",
    "never_embedded": "tool calls and their results have no vectors, only keywords",
    "no_text": "no text is indexed for this reference",
    "no_words": "the passage contains none of the words",
    "not_embedded_yet": "not embedded yet, so its rank by keywords counts twice",
    "not_indexed_yet": "the entry is not indexed yet; `kbtui index` brings the index up to date",
    "not_ranked": "not among the best {limit}, or not embedded yet",
    "passage_gone": "this passage no longer exists",
    "query_invalid": "the query has a mistake: {detail}",
    "subject_disabled": "the subject is disabled, so it is not searched",
    "text_changed": "the file no longer contains this passage, or the subject was disabled",
    "title_differs": "the title or the labels do not match a filter",
    "too_new": "the passage is newer than the period that was searched",
    "too_old": "the passage is older than the period that was searched",
    "topic_disabled": "the topic {topic} is disabled",
    "topic_has_no_text": "a topic has no text of its own; name one of its subjects",
    "unknown_subject": "the topic {topic} has no subject {slug!r}",
    "unknown_topic": "unknown topic {topic!r}",
    "words_but_excluded": "the passage contains words from the query, but lacks a phrase, contains an excluded word or does not match a filter",
}
"""For each code of a notice or reason, the template of its message. `{name}` stands for a value.

`format_notice` makes the messages of the codes that are missing here.
"""


if TYPE_CHECKING:

    class NoticeValues(TypedDict, total=False):
        """The values of a notice.

        `detail`, `where` and `hint` come from the error that caused the notice. `workspace` is the path
        of a workspace, and `workspaces` are names of projects.
        """

        cause: Cause
        detail: str
        where: str | None
        hint: str | None
        word: str
        words: list[str]
        near: list[str]
        filters: list[str]
        inputs: list[Literal["search", "library", "entries"]]
        suggestion: str
        nearest: str
        done: int
        total: int
        characters: int
        is_complete: bool
        variables: list[str]
        leg: str
        rank: int
        limit: int
        field: str
        value: str | None
        wanted: list[str]
        topic: str
        slug: str
        workspace: str
        workspaces: list[str]


class Notice(NamedTuple):
    """A message about an answer, a hit or an index: a code and its values."""

    code: NoticeCode | RankReasonCode
    values: NoticeValues = {}  # noqa: RUF012  (nobody changes it)


NOTHING_INDEXED = (
    "nothing to search: there are no subjects or conversations, or none is indexed yet"
)
"""The message that front ends show if the index is empty."""


def make_keywords_only_notice(cause: Cause, detail: str = "", hint: str | None = None) -> Notice:
    """Return a notice that only keyword search was possible. `cause` is the reason."""
    values: NoticeValues = {"cause": cause, "detail": detail}
    return Notice("keywords_only", {**values, "hint": hint} if hint else values)


def format_embedded_percentages(parts: EmbeddedParts) -> str:
    """Return how much of each kind of entry is embedded: `subjects 100 %, conversations 12 %`."""
    shares = {kind: 100 * done // total for kind, (done, total) in parts.items() if total}
    return ", ".join(f"{kind} {percent} %" for kind, percent in shares.items())


def format_keywords_only_reason(values: NoticeValues) -> str:
    """Return the reason why only keyword search is possible; "" if the notice has no reason."""
    reason = _get_keywords_only_reason(values)
    if values.get("cause") == "error" and values.get("hint"):
        return f"{reason}; `kbtui doctor` says what to do"
    return reason


def _get_keywords_only_reason(values: NoticeValues) -> str:
    return values.get("detail") or MODEL_CAUSES.get(values.get("cause", ""), "")


def format_notice(notice: Notice) -> str:
    """Return the text of a notice that front ends show to people."""
    values: Any = notice.values
    match notice.code:
        case "index_behind":
            return _format_index_behind_notice(values)
        case "keywords_only":
            reason = _get_keywords_only_reason(values)  # front ends show the hint themselves
            return f"keywords only: {reason}" if reason else "keywords only"
        case "filter_of_other_input":
            values = {**values, "inputs": " and the ".join(values["inputs"])}
        case "unknown_filter" if not values["suggestion"]:
            nearest = values.get("nearest")
            near = f"; the nearest is '{nearest}:'" if nearest else ""
            if inputs := values.get("inputs"):
                near = f"; '{nearest}:' is a filter of the {' and the '.join(inputs)}"
            return f"there is no filter '{values['word']}:'{near}. It is searched for as a word."
        case "near_spellings":
            return _format_near_spellings_notice(values)
        case "filters_leave_nothing":
            return _format_excluding_filters_notice(values)
        case "passages_pending":
            values = {"passages": format_counted_noun(values["total"], "passage")}
        case "private_index":
            state = "" if values["is_complete"] else ", still being built"
            if values.get("detail"):
                state = f", out of date ({values['detail']})"
            return f"a temporary index{state}"
        case "other_directories":
            values = {"variables": " and ".join(values["variables"])}
        case "workspaces_unwatched":
            values = {"workspaces": ", ".join(values["workspaces"])}
        case "field_differs":
            wanted = " or ".join(values["wanted"])
            values = {**values, "value": values["value"] or "none", "wanted": wanted}
        case "below_depth":
            values = {**values, "leg": LEG_NAMES[values["leg"]]}
        case _ if "leg" in values:
            leg, text = LEG_NAMES[values["leg"]], NOTICE_TEXTS[notice.code]
            return f"by {leg}: {text.format_map(values)}"
    return NOTICE_TEXTS[notice.code].format_map(values)


def _format_near_spellings_notice(values: NoticeValues) -> str:
    words = " and ".join(f"“{word}”" for word in values["words"])
    near = " and ".join(f"“{word}”" for word in values["near"])
    if values["total"]:
        return f"few texts contain {words}; also showing {near}"
    return f"no text contains {words}; showing {near}"


def _format_excluding_filters_notice(values: NoticeValues) -> str:
    filters = values["filters"]
    noun, pronoun = ("filter", "it") if len(filters) == 1 else ("filters", "them")
    passages = format_counted_noun(values["total"], "passage matches", "passages match")
    return f"nothing matches with the {noun} {' '.join(filters)}; without {pronoun}, {passages}"


def _format_index_behind_notice(values: Any) -> str:
    match values["cause"]:
        case "engine":
            return f"the index may be out of date: {values['detail']}"
        case "changes_pending":
            done, total = values["done"], values["total"]
            entries = format_counted_noun(total, "changed entry is", "changed entries are")
            state = f"{done:,} of {entries} indexed"
        case "error":
            state = values["detail"]
        case _:
            state = "kbtui is still comparing it with the files"
    return f"the index is not up to date: {state}"


def join_notice_texts_with_semicolons(notices: Iterable[Notice]) -> str | None:
    """Join the texts of all notices with `; `. Return None if there are no notices."""
    return "; ".join(map(format_notice, notices)) or None
