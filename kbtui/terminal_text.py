"""Sanitizes, measures and cuts text for terminals.

Text from files, conversations and queries is untrusted. `sanitize` makes it safe for a terminal or
a pane, as JP does. Printable text, newlines and tabs stay. Escape sequences, other
control characters and bidirectional overrides are removed. Colours are also removed, because kbtui
shows only its own colours.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Sequence
    from typing import Literal

    Policy = Literal["strip", "visualize", "off"]

# A search prints its answer without `re`, whose import takes a third of the command's own time. So
# functions import it where they need it, and patterns are strings, which `re` compiles on first use.
# The alternatives: OSC and other control strings up to their terminator; CSI; charset and two-byte
# escapes; a lone ESC. An unterminated control string ends with its line, so that the rest stays.
_SEQUENCES = (
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\n]*?(?:\x1b\\|\x07|\x9c|(?=\n)|\Z)"
    r"|\x1bk[^\n\x1b]*\x1b\\"  # a window title in screen and tmux
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_INTRODUCERS = r"[\x90\x98\x9b\x9d-\x9f]"
_ABSOLUTE_PATH = r"(?<![^\s'\"(=])~?/(?:[^\s'\":;]| (?=[^/'\":;\n]*[^\s/'\":;]/))+"
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
# Overrides and isolates reorder text; zero-width characters, other invisible format characters and
# fillers hide text. ZWJ and ZWNJ stay, because scripts need them.
_INVISIBLE_RANGES = (
    r"\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_INVISIBLE = f"[{_INVISIBLE_RANGES}]"
_SURROGATES = r"[\ud800-\udfff]"
_SUSPECT = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE_RANGES}]"
# Latin letters, usual punctuation, arrows and symbols. Most texts have no other characters.
_USUAL_RANGES = (
    ("\t", "\n"), (" ", "~"), ("\xa0", "\xac"), ("\xae", "\u02ff"), ("\u2010", "\u2027"), ("\u2030", "\u205e"),
    ("\u2190", "\u2bff"),
)  # fmt: skip
_USUAL = f"[{''.join(f'{first}-{last}' for first, last in _USUAL_RANGES)}]*"
# Scripts and symbols that can have marks: most texts have none, and testing for them is quick.
_MAY_HAVE_MARKS = (
    r"[\u0300-\u036f\u0483-\u0489\u0591-\u1dff\u200c\u200d\u20d0-\u20f0\u2cef-\u2cf1\u2d7f\u2de0-\u2dff\u302a-\u302f\u3099\u309a"
    r"\ua66f-\ua6f1\ua802-\uabff\ud7b0-\ud7ff\ufb1e\ufe00-\ufe2f\U000101fd-\U0001efff\U000e0100-\U000e01ef]"
)
# Runs of characters that may contain too many marks: runs without letters and common punctuation,
# and runs of the vowels and finals of old Hangul, which have no width.
_MARK_RUN = (
    r"[^\w\s\x21-\x7e\u2010-\u205e\u2190-\u2bff\u3001-\u303f]{5,}|[\u1161-\u11ff\ud7b0-\ud7ff]{5,}"
)
MARKS_PER_CHARACTER = 4
"""The maximum number of zero-width marks that a character keeps. More marks would cover neighbouring lines."""

_current_policy: Policy = "strip"
_usual_characters = ""


def set_sanitize_policy(policy: str) -> None:
    """Set the policy of `sanitize` and `sanitize_to_one_line` for this process.

    Raises `ValueError` if the policy is unknown.
    """
    global _current_policy
    if policy not in {"strip", "visualize", "off"}:
        raise ValueError(f"unknown policy {policy!r}")
    _current_policy = policy  # type: ignore[assignment]


def sanitize(text: str, policy: Policy | None = None) -> str:
    r"""Make a text safe to show on a terminal, so that no part of it acts as a control sequence.

    * The policy `strip` removes dangerous characters. Callers pass it for text that does not go to
      the user's terminal.
    * The policy `visualize` replaces dangerous characters with visible ones, such as `␛` or
      `<U+202E>`.
    * The policy `off` replaces only lone surrogates, because they cannot be encoded. The text is
      then not safe.
    * If `policy` is None, the user's setting `terminal_text` applies.

    `\r\n` becomes `\n` unless the policy is `off`.
    """
    policy = policy or _current_policy
    if _has_only_usual_characters(text):
        return text

    import re

    if policy == "off":
        return re.sub(_SURROGATES, "\ufffd", text)
    if not re.search(_SUSPECT, text):
        return _limit_combining_marks(text)
    text = text.replace("\r\n", "\n")
    if policy == "visualize":
        text = re.sub(_CONTROLS, _visualize_control_character, text)
        text = re.sub(_INVISIBLE, lambda match: f"<U+{ord(match[0]):04X}>", text)
    else:
        text = re.sub(_SEQUENCES, "", text)
        text = re.sub(_CONTROLS, "", text)
        text = re.sub(_INVISIBLE, "", text)
    return re.sub(_SURROGATES, "\ufffd", _limit_combining_marks(text))


def _has_only_usual_characters(text: str) -> bool:
    """Return whether a text contains only characters in `_USUAL_RANGES`."""
    global _usual_characters
    if text.isascii():
        return text.replace("\n", "").replace("\t", "").isprintable()
    if re := sys.modules.get("re"):
        # This takes a tenth of the time of `strip`, but is not worth an import of `re`.
        return re.fullmatch(_USUAL, text) is not None
    if not _usual_characters:
        _usual_characters = "".join(
            chr(code) for first, last in _USUAL_RANGES for code in range(ord(first), ord(last) + 1)
        )
    return not text.strip(_usual_characters)


def strip_escape_sequences(text: str) -> str:
    """Remove escape sequences from a text.

    If they stayed, parts of them, such as `31m`, would be indexed as words.
    """
    if "\x1b" not in text and text.isascii():
        return text

    import re

    if "\x1b" not in text and not re.search(_INTRODUCERS, text):
        return text
    return re.sub(_SEQUENCES, "", text)


def find_invisible_characters(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each escape sequence and each control or invisible character."""
    if text.isascii() and _has_only_usual_characters(text):
        return []

    import re

    pattern = rf"{_SEQUENCES}|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|{_INVISIBLE}"
    return [match.span() for match in re.finditer(pattern, text)]


def is_sanitize_policy_strip() -> bool:
    """Return whether the policy of `sanitize` is "strip", which removes escape sequences."""
    return _current_policy == "strip"


def strip_escape_sequences_before_cutting(text: str) -> str:
    """If the policy is "strip", remove the escape sequences from a text that is about to be cut.

    A cut can divide a sequence, and `sanitize` does not recognize a part of a sequence.
    """
    return strip_escape_sequences(text) if _current_policy == "strip" else text


def sanitize_text_and_move_ranges(
    text: str, marks: list[tuple[int, int]]
) -> tuple[str, list[tuple[int, int]]]:
    """Sanitize a text, and move the ranges in `marks` so that they still cover the same text.

    `marks` are ranges of characters. Ranges that become empty are left out.
    """
    clean = sanitize(text)
    if clean == text:
        return text, marks
    moved = [(len(sanitize(text[:start])), len(sanitize(text[:end]))) for start, end in marks]
    return clean, [(start, min(end, len(clean))) for start, end in moved if start < end]


def _limit_combining_marks(text: str) -> str:
    import re

    if not re.search(_MAY_HAVE_MARKS, text):
        return text
    return re.sub(_MARK_RUN, _drop_excess_combining_marks, text)


def _drop_excess_combining_marks(match: re.Match[str]) -> str:
    from unicodedata import category

    kept, marks = [], 0
    for character in match[0]:
        mark = (
            category(character) in {"Mn", "Me", "Mc"}
            or character in "\u200c\u200d"
            or "\u1161" <= character <= "\u11ff"
            or "\ud7b0" <= character <= "\ud7ff"
        )
        marks = marks + 1 if mark else 0
        if marks <= MARKS_PER_CHARACTER:
            kept.append(character)
    return "".join(kept)


def _visualize_control_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def sanitize_to_one_line(text: str, policy: Policy | None = None) -> str:
    """Sanitize a text and put it on one line, with one space for each run of white space."""
    return " ".join(sanitize(text, policy).split())


def format_added_and_removed_counts(added: int, removed: int) -> str:
    """Format how many lines were added and removed: `+3 −1`, `+3`, `−1`, or "" if both counts are 0."""
    return " ".join([*([f"+{added:,}"] if added else []), *([f"−{removed:,}"] if removed else [])])


def format_outdated_subjects_of_turn(subjects: Iterable[tuple[str, str | None]]) -> str:
    """Return a phrase that names a turn's outdated subjects.

    An example is `knowledge changed since: guide/start, guide/old (no longer there)`. `subjects`
    are the references of the turn's outdated subjects, each with the state of its citation.
    """
    names = (format_reference_of_outdated_subject(ref, state) for ref, state in subjects)
    return f"{KNOWLEDGE_CHANGED}: {', '.join(names)}"


def format_reference_of_outdated_subject(ref: str, state: str | None) -> str:
    """Return the reference of an outdated subject, with a remark if the subject no longer exists."""
    return f"{ref} ({NO_LONGER_THERE})" if state == "gone" else ref


def format_parent_title_suffix(
    parent_title: str | None, parent_id: str | None, policy: Policy | None = None
) -> str:
    """Return the words that follow a conversation's title and say which conversation is its parent.

    Returns "" if there is no parent. A parent without a title is referred to by its id.
    """
    parent = parent_title or parent_id
    return f" (part of “{sanitize_to_one_line(parent, policy)}”)" if parent else ""


def format_counted_noun(number: int, noun: str, plural: str | None = None) -> str:
    """Format a number with a noun: "1 turn", "2 turns". By default, `plural` is `noun` with "s"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def measure_text_width(text: str) -> int:
    """Return how many columns a text occupies in a terminal."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    width = wcswidth(text)
    return width if width >= 0 else len(text)


MAX_COMPARED_MATCHES = 100
"""At most this many matches of a passage, the first ones, are compared.

The time grows with the square of their number.
"""


def remove_repeated_title(
    text: str, matches: Sequence[tuple[int, int]], title: str
) -> tuple[str, list[tuple[int, int]]]:
    """Remove the first line of a passage if the line only repeats the title.

    Returns the passage and its matches, whose offsets are adjusted.
    """
    start = len(text) - len(text.lstrip("# "))
    end = start + len(title)
    if (
        not title
        or text[start:end] != title
        or text[end : end + 1] != "\n"
        or not text[end:].strip()
    ):
        return text, list(matches)
    end = len(text) - len(text[end:].lstrip())
    return text[end:], [(first - end, last - end) for first, last in matches if first >= end]


def remove_heading_and_bold_marks(
    text: str, matches: Sequence[tuple[int, int]]
) -> tuple[str, list[tuple[int, int]]]:
    """Remove the marks of Markdown headings and bold text.

    Returns the new text, and the matches with their positions adjusted to it.

    The heading `## Hidden` becomes `Hidden:`, and `**C1** is missing` becomes `C1 is missing`. A
    line with a single `#` is a heading only at the start of the text; elsewhere, it may be a
    comment in code.
    """
    # A search calls this for each hit, and must not wait for `re` to compile patterns.
    edits: list[tuple[int, int, str]] = []
    at = 0
    for line in text.split("\n") if "#" in text else ():
        level = len(line) - len(line.lstrip("#"))
        if (2 <= level <= 6 or (level == 1 and at == 0)) and line[level : level + 1] == " ":
            end = at + len(line)
            edits.append((at, at + level + 1, ""))
            if line[-1].isalnum() and text[end:].strip():
                edits.append((end, end, ":"))
        at += len(line) + 1
    first = text.find("**")
    while first >= 0 and (last := text.find("**", first + 2)) >= 0:
        inside = text[first + 2 : last]
        if inside and inside == inside.strip() and "\n\n" not in inside:
            edits += [(first, first + 2, ""), (last, last + 2, "")]
            last = text.find("**", last + 2)
        first = last
    edits.sort()
    parts, begin = [], 0
    for start, end, new in edits:
        parts += [text[begin:start], new]
        begin = end
    parts.append(text[begin:])

    def move_offset(offset: int) -> int:
        return offset + sum(
            len(new) + start - min(end, offset) for start, end, new in edits if start < offset
        )

    return "".join(parts), [(move_offset(first), move_offset(last)) for first, last in matches]


def find_start_of_densest_matches(
    text: str, matches: Sequence[tuple[int, int]], length: int
) -> int:
    """Return the start of the part of `text` with the most distinct matches.

    The part has `length` characters and begins with a match. If several parts have the same number
    of matches, the first of them is chosen. Returns 0 if there are no matches.
    """
    best, found = 0, 0
    for at, (start, _) in enumerate(matches[:MAX_COMPARED_MATCHES]):
        inside = {text[a:b].lower() for a, b in matches[at:] if b <= start + length}
        if len(inside) > best:
            best, found = len(inside), start
    return found


SENTENCE_CHARACTERS = 120
"""If at most this many characters of a sentence come before its match, the excerpt starts with the sentence."""
_SENTENCE_ENDS = (". ", "? ", "! ", ".\n", "\n\n")


def find_excerpt_start(text: str, matches: Sequence[tuple[int, int]], length: int) -> int:
    """Return the offset at which an excerpt of `length` characters starts.

    The excerpt shows the part of the text with the most distinct matches. It begins with the sentence or
    paragraph of the first match in this part, or with a word if that sentence begins too far before the
    match. If the text ends soon after the match, the excerpt begins with an earlier sentence.
    """
    if len(text) <= length:
        return 0
    before, context = min(SENTENCE_CHARACTERS, length * 3 // 4), length // 4
    match = find_start_of_densest_matches(text, matches, length // 2)
    # An excerpt that starts later than this does not use its whole length.
    full = len(text) - length
    starts = {
        at + len(end)
        for end in _SENTENCE_ENDS
        if (at := text.rfind(end, max(0, min(match - before, full)), match)) >= 0
    }
    if starts:
        start = max(starts)
    elif match <= before:
        start = 0
    else:
        start = text.find(" ", min(match - context, full), match) + 1 or match - context
    if start > full:
        start = min(
            (at for at in range(full, start) if text[at - 2 : at] in _SENTENCE_ENDS), default=start
        )
    return start


def cut_to_width(text: str, width: int) -> str:
    """Cut a text to at most `width` columns; a text that was cut ends with `…`."""
    if measure_text_width(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    from wcwidth import iter_graphemes

    kept, used = [], 0
    for grapheme in iter_graphemes(text):
        used += measure_text_width(grapheme)
        if used > width - 1:
            break
        kept.append(grapheme)
    return "".join(kept) + "…"


def shorten_paths_to_width(text: str, width: int) -> str:
    """Shorten the absolute paths in a text until the text fits into `width` columns.

    `…` replaces the first directories of a path. The longest path is shortened first. The last name
    of a path always stays, so the text may remain wider than `width`.

    A path ends at white space, a quote, a colon or a semicolon. A space does not end the path if a
    later `/` shows that the space is part of a directory's name.
    """
    import re

    for path in sorted(re.findall(_ABSOLUTE_PATH, text), key=len, reverse=True):
        excess = measure_text_width(text) - width
        if excess <= 0:
            break
        cut = path.find("/", min(excess + 1, len(path)))
        cut = path.rstrip("/").rfind("/") if cut < 0 or cut == len(path) - 1 else cut
        if cut > 0:
            text = text.replace(path, "…" + path[cut:], 1)
    return text


def format_readable_json(value: object) -> str:
    """Format a JSON value readably: indented by two spaces, with one member on each line."""
    import orjson

    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except (TypeError, RecursionError):
        pass
    # orjson refuses integers over 64 bits and nesting over 254, which JSON allows.
    from json import dumps

    try:
        return dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to show)"


def format_json_unless_text(value: object) -> str:
    """Return a string unchanged. Format any other JSON value with `format_readable_json`."""
    return value if isinstance(value, str) else format_readable_json(value)


def format_json_value_on_one_line(value: object) -> str:
    """Return a string unchanged. Format any other JSON value as JSON on one line."""
    if isinstance(value, str):
        return value
    from json import dumps

    return dumps(value, ensure_ascii=False)


KNOWLEDGE_CHANGED = "knowledge changed since"
"""The words with which front ends mark an outdated turn."""
NO_LONGER_THERE = "no longer there"
"""What the TUI and the commands say about a cited subject that was deleted, renamed or disabled."""
LEG_NAMES: dict[Literal["lexical", "semantic"], str] = {
    "lexical": "keywords",
    "semantic": "meaning",
}
"""The name of each leg of the search (lexical or semantic) in messages for people."""


def describe_query_words_missing_from_passage(missing: Sequence[str]) -> list[str]:
    """Return lines about the words of a query that are missing from a passage.

    An element of `missing` is a word, or two words that are not side by side in the passage. The
    result has at most one line for each of these two cases.
    """
    words = [word for word in missing if " " not in word]
    # Leave out a pair if one of its words is missing: the first line already says so.
    pairs = [pair for pair in missing if " " in pair and not set(pair.split()) & set(words)]
    lines = [f"not in the passage: {', '.join(words)}"] if words else []
    return lines + ([f"not side by side: {', '.join(pairs)}"] if pairs else [])


def make_backtick_fence(text: str, minimum: int = 3) -> str:
    """Return a run of at least `minimum` backticks that is longer than any run in the text."""
    import re

    return "`" * max([minimum, *(len(run) + 1 for run in re.findall("`+", text))])


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates.

    File names and JSON can contain them, but SQLite and the models reject them.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
