"""Parses file changes in unified diffs and apply-patch texts, and computes the changes between two texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONTEXT_LINES = 3
"""If kbtui makes a hunk, the hunk has at most this many unchanged lines before and after its changes."""
MAX_COMPARED_LINES = 20_000
"""Two texts are compared only if they have at most this many lines together.

In longer texts, all lines count as replaced.
"""

PatchAction = Literal["changed", "created", "moved", "deleted"]


class PatchHunk(NamedTuple):
    """Consecutive lines of a patch.

    Each line begins with " " (unchanged), "-" (removed) or "+" (added). `old_start` and `new_start`
    are the numbers of the hunk's first line in the old and in the new file, counted from 1; None if
    they are unknown.
    """

    lines: tuple[str, ...]
    old_start: int | None = None
    new_start: int | None = None

    @property
    def old_lines(self) -> list[str]:
        """The hunk's lines in the old file, without their prefixes."""
        return [line[1:] for line in self.lines if line[0] != "+"]

    @property
    def new_lines(self) -> list[str]:
        """The hunk's lines in the new file, without their prefixes."""
        return [line[1:] for line in self.lines if line[0] != "-"]


class FilePatch(NamedTuple):
    """The changes to one file. `old_path` is the path before the change if the file was moved."""

    path: str
    action: PatchAction
    hunks: tuple[PatchHunk, ...]
    old_path: str | None = None

    @property
    def added_line_count(self) -> int:
        """The number of added lines."""
        return count_lines_with_prefix(self.hunks, "+")

    @property
    def removed_line_count(self) -> int:
        """The number of removed lines."""
        return count_lines_with_prefix(self.hunks, "-")


class PatchInText(NamedTuple):
    """A patch, and the range of characters that it occupies in a text.

    If there is a code fence around the patch, the range includes the fence.
    """

    start: int
    end: int
    patch: FilePatch


def count_lines_with_prefix(hunks: Sequence[PatchHunk], mark: str) -> int:
    """Return the number of lines in `hunks` that begin with `mark`."""
    return sum(line[0] == mark for hunk in hunks for line in hunk.lines)


_FILE_HEADER = re.compile(
    r"^(?:```diff\n)?(?:diff --git [^\n]*\n(?:(?!diff --git|---|@@)[a-z][^\n]*\n){0,8})?"
    r"--- (?P<old>[^\n]+)\n\+\+\+ (?P<new>[^\n]+)\n(?=@@ )",
    re.MULTILINE,
)
_HUNK_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@[^\n]*\n?")
_FENCE_END = re.compile(r"```[ \t]*(?:\n|\Z)")


def find_unified_diffs(text: str) -> Iterator[PatchInText]:
    """Yield the unified diffs in a text, such as a tool result.

    A diff that was cut off ends at the cut.
    """
    position = 0
    while (header := _FILE_HEADER.search(text, position)) is not None:
        position = header.end()
        hunks: list[PatchHunk] = []
        while (found := _HUNK_HEADER.match(text, position)) is not None:
            hunk, position = _read_hunk(text, found)
            hunks.append(hunk)
        if text.startswith("```diff", header.start()) and (
            fence := _FENCE_END.match(text, position)
        ):
            position = fence.end()
        if hunks:
            yield PatchInText(
                header.start(),
                position,
                _make_patch_of_diff(header["old"], header["new"], tuple(hunks)),
            )


def _read_hunk(text: str, header: re.Match[str]) -> tuple[PatchHunk, int]:
    """Return the hunk that follows a header, and the position where the hunk ends."""
    old_left = int(header[2]) if header[2] is not None else 1
    new_left = int(header[4]) if header[4] is not None else 1
    position, lines = header.end(), []
    while position < len(text):
        after = text.find("\n", position) + 1 or len(text)
        line = text[position:after].removesuffix("\n").removesuffix("\r")
        if line.startswith("\\"):
            position = after
            continue
        if old_left <= 0 and new_left <= 0:
            break
        mark = line[:1] or " "
        if mark not in " +-" or line == "```":
            break
        old_left -= mark != "+"
        new_left -= mark != "-"
        lines.append(line or " ")
        position = after
    return PatchHunk(tuple(lines), int(header[1]), int(header[3])), position


def _make_patch_of_diff(old: str, new: str, hunks: tuple[PatchHunk, ...]) -> FilePatch:
    old, new = old.partition("\t")[0].strip(), new.partition("\t")[0].strip()
    if old == "/dev/null":
        return FilePatch(new.removeprefix("b/"), "created", hunks)
    if new == "/dev/null":
        return FilePatch(old.removeprefix("a/"), "deleted", hunks)
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    return FilePatch(new, "changed" if old == new else "moved", hunks, old if old != new else None)


_APPLY_PATCH = re.compile(r"^\*\*\* Begin Patch[ \t]*\n", re.MULTILINE)
_APPLY_PATCH_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_APPLY_PATCH_ACTIONS: dict[str, PatchAction] = {
    "Add": "created",
    "Update": "changed",
    "Delete": "deleted",
}


def parse_apply_patch(text: str) -> list[FilePatch]:
    """Return the changes that an apply-patch text (`*** Begin Patch`) inside `text` describes.

    Codex and other agents write such texts. The result is [] if `text` contains none.
    """
    start = _APPLY_PATCH.search(text)
    if start is None:
        return []
    patches: list[FilePatch] = []
    path = moved_to = ""
    action: PatchAction | None = None
    hunks: list[PatchHunk] = []
    lines: list[str] = []

    def append_finished_hunk() -> None:
        if lines:
            first = 1 if action == "created" else None
            hunks.append(PatchHunk(tuple(lines), 0 if first else None, first))
            lines.clear()

    def append_finished_patch() -> None:
        append_finished_hunk()
        if action is not None:
            moved = bool(moved_to) and action == "changed"
            patches.append(
                FilePatch(
                    moved_to if moved else path,
                    "moved" if moved else action,
                    tuple(hunks),
                    path if moved else None,
                )
            )
        hunks.clear()

    for row in text[start.end() :].split("\n"):
        line = row.removesuffix("\r")
        if header := _APPLY_PATCH_FILE.fullmatch(line):
            append_finished_patch()
            action, path, moved_to = _APPLY_PATCH_ACTIONS[header[1]], header[2].strip(), ""
        elif line.startswith("*** Move to: "):
            moved_to = line[13:].strip()
        elif line.startswith("*** End Patch"):
            break
        elif line.startswith(("@@", "***")):
            append_finished_hunk()
        elif action is not None and (line[:1] or " ") in " +-":
            lines.append(line or " ")
        else:
            break
    append_finished_patch()
    return patches


def make_hunks_from_texts(
    old: str, new: str, old_start: int | None = None
) -> tuple[PatchHunk, ...]:
    """Compare two texts line by line, and return the changed lines with their context.

    `old_start` is the number of the old text's first line in its file, if known.
    """
    old_lines, new_lines = split_lines(old), split_lines(new)
    if len(old_lines) + len(new_lines) > MAX_COMPARED_LINES:
        marked = [f"-{line}" for line in old_lines] + [f"+{line}" for line in new_lines]
        return (PatchHunk(tuple(marked), old_start, old_start),)
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    hunks = []
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        marked = []
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                marked += [f" {line}" for line in old_lines[old_from:old_to]]
                continue
            marked += [f"-{line}" for line in old_lines[old_from:old_to]]
            marked += [f"+{line}" for line in new_lines[new_from:new_to]]
        if old_start is None:
            hunks.append(PatchHunk(tuple(marked)))
        else:
            first = group[0]
            hunks.append(PatchHunk(tuple(marked), old_start + first[1], old_start + first[3]))
    return tuple(hunks)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text without their line breaks. A final line break adds no line."""
    if not text:
        return []
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def format_file_patch(patch: FilePatch) -> str:
    """Format a patch as a unified diff. A hunk without line numbers begins with `@@ @@`."""
    old = "/dev/null" if patch.action == "created" else f"a/{patch.old_path or patch.path}"
    new = "/dev/null" if patch.action == "deleted" else f"b/{patch.path}"
    lines = [f"--- {old}", f"+++ {new}"]
    for hunk in patch.hunks:
        lines += [_format_hunk_header(hunk), *hunk.lines]
    return "".join(f"{line}\n" for line in lines)


def _format_hunk_header(hunk: PatchHunk) -> str:
    if hunk.old_start is None or hunk.new_start is None:
        return "@@ @@"
    old, new = len(hunk.old_lines), len(hunk.new_lines)
    return f"@@ -{hunk.old_start},{old} +{hunk.new_start},{new} @@"
