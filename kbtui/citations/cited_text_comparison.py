"""Compares the text that a tool call once returned from a subject with the subject's current text.

The returned text is taken from the stored result of the call, so the comparison does not depend on
how the index splits subjects into passages. The comparison ignores what `learn` and file tools add
around a text: tags, code fences, line numbers and notes. It also ignores the kind of line endings,
byte order marks, and white space around the text.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from kbtui.errors import KbtuiError
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import replace_surrogates, strip_escape_sequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.conversations.conversation_data_types import ConversationEvent

CitationState = Literal["unchanged", "changed", "gone", "unknown"]
"""The state of a cited subject: whether it still has the text that the turn was given.

* "unchanged": the subject still has exactly this text.
* "changed": the subject now has a different text.
* "gone": the subject no longer exists, or it is disabled.
* "unknown": kbtui cannot tell; an `UnknownStateReason` says why.
"""

UnknownStateReason = Literal["cut", "masked", "part", "tool", "unreadable"]
"""Why kbtui cannot tell whether a subject has changed.

* "cut", "masked", "part": the turn was given a shortened text, a text with masked secrets, or only a
  part of the subject. The given text is still in the subject, but the rest may have changed.
* "tool": kbtui does not know how the tool formats the text that it returns.
* "unreadable": the subject cannot be read now.
"""

GivenTextExtent = Literal["whole", "cut", "masked", "part"]

# The patterns are strings, which `re` compiles on first use: a search imports this module, but needs none of them.
_CUT_NOTE = (
    r"\n\[(?:Lines [\d,]+ to [\d,]+ of [\d,]+\."
    r"|Line [\d,]+ of [\d,]+, cut after [\d,]+ of its [\d,]+ characters\."
    r"|… [\d,]+ characters are left out;)[^\n]*\]\s*\Z"
)
"""Matches the note that kbtui's tools add below a shortened text.

If the wording of the note changes, keep the old wording here, because stored conversations contain
it.
"""
_TRUNCATED = r"(?mi)^[^\n]*[\[(<…][^\n]*\b(?:truncated|omitted \d+ of \d+ lines)\b[^\n]*$"
"""Matches a line in which an agent says that it shortened a result."""
_MASK = r"\[masked: [^\]\n]{1,60}\]"
_COMPACT_MASK = r"\[masked:[^\]]{1,60}\]"
"""Matches a mask in a text from which the white space was removed."""
_FENCED = r"(?s)(`{3,})[^`\n]*\n(.*?)\n?(`{3,})\Z"
_WHITE_SPACE = r"\s+"


DIGEST_LENGTH = 32
"""The number of hex digits in the hash of a text."""


class GivenSubjectText(NamedTuple):
    """The text of a subject in the result of a tool call.

    `result` is the returned text. `text` is the part of `result` that comes from the subject.
    """

    result: str
    text: str
    extent: GivenTextExtent

    def make_hash_and_text_for_catalog(self) -> str:
        """Return the text as the catalog stores it: a hash and, unless `extent` is "whole", the text without white space."""
        digest = _hash_text(normalize_text(self.result))
        return (
            digest
            if self.extent == "whole"
            else digest + _remove_white_space_and_escape_sequences(self.text_without_code_fence)
        )

    @property
    def text_without_code_fence(self) -> str:
        """The text without the code fence that may surround it."""
        normalized_text = normalize_text(self.text)
        fenced = re.fullmatch(_FENCED, normalized_text)
        return fenced[2] if fenced and fenced[1] == fenced[3] else normalized_text


class CitationStateAndReason(NamedTuple):
    """The state of a citation of a subject; `reason` is set if the state is "unknown"."""

    state: CitationState
    reason: UnknownStateReason | None = None


class ComparableSubjectText:
    """The text of a subject, in the forms that comparisons need.

    `text` can be a function that reads the text; the function is called only if the text is needed.
    `relative` is the path of the subject, which determines the form in which `learn` returns the
    text. `digests` is the value of the property `digests`, if it is known already.
    """

    def __init__(
        self, text: str | Callable[[], str], relative: str = "", digests: str | None = None
    ) -> None:
        self._text, self._relative, self._digests = text, relative, digests

    @cached_property
    def _text_with_lf(self) -> str:
        text = self._text if isinstance(self._text, str) else self._text()
        return _normalize_line_ends(text)

    @property
    def normalized_text(self) -> str:
        """The text with LF line endings, and without byte order marks or surrounding white space."""
        return normalize_text(self._text_with_lf)

    @cached_property
    def digests(self) -> str:
        """The hash of the text itself, a space, and the hash of the text as `learn` returns it.

        If the two hashes are equal, the value contains only one of them.
        """
        if self._digests is not None:
            return self._digests
        # A search compares only hashes from the catalog, and must not import `kbtui.knowledge`.
        from kbtui.knowledge.subject_files import fence_file_text_unless_prose

        learned = normalize_text(fence_file_text_unless_prose(self._text_with_lf, self._relative))
        return " ".join(map(_hash_text, dict.fromkeys((self.normalized_text, learned))))

    @property
    def is_returned_without_code_fence(self) -> bool:
        """Whether `learn` returns the text as it is, without a code fence."""
        return " " not in self.digests

    @cached_property
    def text_without_white_space(self) -> str:
        """The text without white space and escape sequences, for the comparison with parts of a subject."""
        return _remove_white_space_and_escape_sequences(self.normalized_text)


def normalize_text(text: str) -> str:
    """Return `text` with LF line endings, and without byte order marks or surrounding white space."""
    return replace_surrogates(_normalize_line_ends(text).strip())


def _normalize_line_ends(text: str) -> str:
    # A byte order mark can also follow the first line of a code fence.
    return text.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")


def _remove_white_space_and_escape_sequences(text: str) -> str:
    return re.sub(_WHITE_SPACE, "", strip_escape_sequences(text))


def _hash_text(text: str) -> str:
    # A search compares hashes from the catalog, and does not need OpenSSL.
    from hashlib import sha256

    return sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def find_citation_state(
    extent: GivenTextExtent | None, stored: str | None, now: ComparableSubjectText | None
) -> CitationStateAndReason:
    """Return the state of a citation of a subject.

    `now` is the subject's text; None if the subject no longer exists.

    `extent` and `stored` describe the text that the turn was given; both are None if this text is
    unknown. The state is "unknown" if the text of `now` is needed but cannot be read.
    """
    if now is None:
        return CitationStateAndReason("gone")
    if extent is None or stored is None:
        return CitationStateAndReason("unknown", "tool")
    try:
        return derive_citation_state_from_texts(extent, stored, now)
    except KbtuiError:
        return CitationStateAndReason("unknown", "unreadable")


def derive_citation_state_from_texts(
    extent: GivenTextExtent, stored: str, now: ComparableSubjectText
) -> CitationStateAndReason:
    """Derive a citation's state by comparing the text that the turn was given with the current text.

    `stored` is the text that the turn was given, in the form in which the catalog stores it; see
    `GivenSubjectText.make_hash_and_text_for_catalog`.
    """
    digest, given = stored[:DIGEST_LENGTH], stored[DIGEST_LENGTH:]
    # What looks like a note may be part of the subject, and what looks like a part may be all of
    # it.
    if digest in now.digests or (extent == "part" and given == now.text_without_white_space):
        return CitationStateAndReason("unchanged")
    if extent != "whole" and _contains_text_given_by_call(now.text_without_white_space, given):
        return CitationStateAndReason("unknown", extent)
    return CitationStateAndReason("changed")


def _contains_text_given_by_call(text: str, given: str) -> bool:
    """Return whether `text` contains `given`. A mask in `given` stands for any text."""
    if given in text:
        return True
    at = 0
    for part in re.split(_COMPACT_MASK, given):
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def make_given_text_of_tool_result(result: str, *, is_part: bool = False) -> GivenSubjectText:
    """Return the `GivenSubjectText` of a tool result. If a note says that the result was cut, `text` ends before the note."""
    extent: GivenTextExtent = "part" if is_part else "whole"
    if cut := re.search(_CUT_NOTE, result) or re.search(_TRUNCATED, result):
        return GivenSubjectText(result, result[: cut.start()], "cut")
    if not is_part and re.search(_MASK, result):
        extent = "masked"
    return GivenSubjectText(result, result, extent)


def find_text_given_by_file_tool(call: ConversationEvent) -> GivenSubjectText | None:
    """Return the text of the file that a call read.

    Returns None if the call read several files, or if the form of the result is unknown.
    """
    # Searches, which need only the comparison, do not wait for this import.
    from kbtui.citations.files_read_by_tool_calls import extract_text_of_file_read_by_call

    found = extract_text_of_file_read_by_call(call)
    return (
        None if found is None else make_given_text_of_tool_result(found.text, is_part=found.is_part)
    )


def find_current_part_of_given_text(given: str, extent: GivenTextExtent, now: str) -> str:
    """Return the part of a subject's current text that corresponds to the text that a turn was given.

    `now` is the current text, and `given` is the text that the turn was given. If `extent` is "part"
    or "cut", the result extends from the first to the last paragraph of `now` that corresponds to a
    paragraph of `given`, and is "" if there is no such paragraph. In all other cases, it is all of `now`.
    """
    if extent not in ("part", "cut"):
        return now
    from kbtui.text_difference import compare_paragraphs

    compared = compare_paragraphs(given, now)
    pairs = [n for n, one in enumerate(compared) if one.old is not None and one.new is not None]
    if not pairs:
        return ""
    within = compared[pairs[0] : pairs[-1] + 1]
    return "\n\n".join(one.new for one in within if one.new is not None)
