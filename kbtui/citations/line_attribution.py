"""Finds out which edit wrote each line of a text.

The edits are undone from the newest to the oldest, beginning with the current text. If the text
contains an edit's new text, the edit wrote the lines in which the new text differs from the old
one. Undoing the edit then restores the text before the edit. If the text contains only some lines
of the edit's new text, the edit wrote these lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.citations.turn_file_actions_and_commands import (
    MAX_COMPARED_PLACES,
    apply_edit_to_text,
    list_substring_offsets,
)
from kbtui.conversations.patch_parser import MAX_COMPARED_LINES, split_lines
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kbtui.citations.turn_file_actions_and_commands import FileEdit

MIN_LETTERS = 12
"""If only some lines of an edit are found, these lines must have at least this many letters and digits in total.

Without this limit, a line such as `return None` would belong to every edit with the same line.
"""


class _LineRangeContainingText(NamedTuple):
    """The range of lines, `first` to `end` (exclusive), that contains a text.

    `before` is the part of the first line before the text, and `after` is the part of the last line
    after the text.
    """

    first: int
    end: int
    before: str
    after: str


def attribute_lines_to_edits(
    lines: Sequence[str], wanted: Iterable[int], edits: Sequence[FileEdit]
) -> dict[int, int]:
    """Map the index of each line to the index of the edit that wrote the line.

    `edits` begins with the oldest edit. Only the lines with the indices `wanted` are attributed. Lines
    that no edit wrote are left out.
    """
    edits = _add_missing_old_texts(edits)
    state = list(lines)
    origins: list[int | None] = list(range(len(lines)))
    missing = set(wanted)
    found: dict[int, int] = {}
    for number in range(len(edits) - 1, -1, -1):
        if not missing:
            break
        edit = edits[number]
        new = split_lines(edit.new)
        written: list[int | None]
        place = _find_lines_with_new_text(state, edit, origins, missing)
        if place is not None:
            part = state[place.first : place.end]
            before = _list_old_lines(edit, place)
            steps = _compare_lines(before, part)
            kept: list[int | None] = [None] * len(before)
            written = []
            for kind, old_from, old_to, new_from, new_to in steps:
                ids = origins[place.first + new_from : place.first + new_to]
                if kind == "equal":
                    kept[old_from:old_to] = ids
                else:
                    written += ids
            state[place.first : place.end] = before
            origins[place.first : place.end] = kept
        else:
            written = _find_edit_lines_still_in_text(state, origins, edit, new)
        for line in written:
            if line is not None and line in missing:
                missing.discard(line)
                found[line] = number
    return found


def _list_old_lines(edit: FileEdit, place: _LineRangeContainingText) -> list[str]:
    if edit.old is None:
        return []
    if edit.is_whole_file:
        return split_lines(edit.old)
    text = f"{place.before}{edit.old}{place.after}".replace("\r\n", "\n")
    return split_lines(text)


def _compare_lines(old: list[str], new: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    if len(old) + len(new) > MAX_COMPARED_LINES:
        return [("replace", 0, len(old), 0, len(new))]
    from difflib import SequenceMatcher

    return SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _add_missing_old_texts(edits: Sequence[FileEdit]) -> list[FileEdit]:
    """Return `edits`, with the old text added to edits that replace a whole file.

    The old text is added only if it follows from earlier edits.
    """
    completed: list[FileEdit] = []
    text: str | None = None
    for edit in edits:
        if edit.is_whole_file:
            completed.append(edit if text is None else edit._replace(old=text))
            text = edit.new
            continue
        completed.append(edit)
        if text is not None:
            text = apply_edit_to_text(text, edit)
    return completed


def _find_lines_with_new_text(
    state: list[str], edit: FileEdit, origins: list[int | None], missing: set[int]
) -> _LineRangeContainingText | None:
    """Return the lines of `state` that contain an edit's new text; None if there are no such lines.

    If the text occurs several times, the place nearest to the edit's line is chosen. If the edit
    has no line number, the first place with a line in `missing` is chosen. `missing` contains the
    lines whose edit is still unknown.
    """
    new = edit.new.replace("\r\n", "\n")
    if not new.strip():
        return None
    if edit.is_whole_file:
        return (
            _LineRangeContainingText(0, len(state), "", "") if state == split_lines(new) else None
        )
    text = "".join(f"{line}\n" for line in state)
    offsets = list_substring_offsets(text, new)
    if not offsets and new.endswith("\n") and text.endswith(new[:-1]):
        offsets = [len(text) - len(new) + 1]
    if new.endswith("\n"):
        offsets = [at for at in offsets if at == 0 or text[at - 1] == "\n"]
    if not offsets:
        return None
    places = []
    for at in offsets:
        first = text.count("\n", 0, at)
        start = text.rfind("\n", 0, at) + 1
        after = at + len(new)
        if new.endswith("\n"):
            places.append(
                _LineRangeContainingText(first, first + new.count("\n"), text[start:at], "")
            )
            continue
        end = text.find("\n", after)
        end = len(text) if end < 0 else end
        rest = text[after:end]
        places.append(
            _LineRangeContainingText(first, first + new.count("\n") + 1, text[start:at], rest)
        )

    def rank_place_by_distance(place: _LineRangeContainingText) -> tuple[int, bool]:
        distance = abs(place.first + 1 - edit.line) if edit.line is not None else 0
        ids = origins[place.first : place.end]
        return distance, not any(one in missing for one in ids)

    return min(places, key=rank_place_by_distance)


def _find_edit_lines_still_in_text(
    state: list[str], origins: list[int | None], edit: FileEdit, new: list[str]
) -> list[int | None]:
    """Find the lines of an edit that are still in the text, even if the lines around them differ.

    Returns the original indices of these lines.
    """
    old = split_lines(edit.old or "")
    added = [False] * len(new)
    for kind, _, _, new_from, new_to in _compare_lines(old, new):
        if kind != "equal":
            added[new_from:new_to] = [True] * (new_to - new_from)
    places: dict[str, list[int]] = {}
    for index, line in enumerate(state):
        if line.strip():
            places.setdefault(line, []).append(index)
    written: list[int | None] = []
    at = 0
    while at < len(new):
        if not added[at] or new[at] not in places:
            at += 1
            continue
        blocks = [
            _extend_equal_line_run(state, new, index, at)
            for index in places[new[at]][:MAX_COMPARED_PLACES]
        ]
        start, new_start, length = max(blocks, key=lambda block: (block[2], -block[0]))
        letters = sum(sum(map(str.isalnum, new[new_start + step])) for step in range(length))
        if letters >= MIN_LETTERS:
            written += [origins[start + step] for step in range(length) if added[new_start + step]]
        at = new_start + length
    return written


def _extend_equal_line_run(
    state: list[str], new: list[str], index: int, at: int
) -> tuple[int, int, int]:
    """Extend a pair of equal lines to the longest run of equal lines.

    Returns the start of the run in `state`, its start in `new`, and its length.
    """
    up = 0
    while index > up and at > up and state[index - up - 1] == new[at - up - 1]:
        up += 1
    down = 1
    while (
        index + down < len(state) and at + down < len(new) and state[index + down] == new[at + down]
    ):
        down += 1
    return index - up, at - up, up + down
