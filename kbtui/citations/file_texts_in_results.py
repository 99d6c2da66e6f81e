"""Extracts the text of a file from the result of the tool call that read the file.

The tools of each agent return a file in their own form: with line numbers, in tags or fences, or
below a header. A result in an unknown form is not used, because a wrongly extracted text would look
like a change of the file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kbtui.citations.files_read_by_calls import SHELL_TOOLS, find_command_that_only_prints_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbtui.conversations.models import ConversationEvent


class FileTextInResult(NamedTuple):
    """The text of a file that a call returned.

    `is_part` says whether the text may be only a part of the file.
    """

    text: str
    is_part: bool = False


_NUMBERED_LINES = (
    re.compile(r" *(\d+)[→\t](.*)"),  # Claude Code, `cat -n` and `nl -ba`
    re.compile(r"L(\d+): (.*)"),  # Codex
    re.compile(r"(\d{5,})\| (.*)"),  # opencode
    re.compile(r"(\d+): (.*)"),  # opencode since 2026
)
_START_NOTE = re.compile(r"\.\.\. \(starting from line #\d+\) \.\.\.(?:\n|\Z)")
"""Matches the line that JP puts before the first line of a part of a file."""
_MAX_NUMBERED_LINES = 2_000
"""The tools of Claude Code, Codex, Gemini CLI and opencode return at most this many lines of a file.
"""
_OPENCODE_RESULT = re.compile(
    r"(?:<path>[^\n]*</path>\n<type>file</type>\n<content>|<file>)\n+(?P<lines>.*?)\n*"
    r"\n\((?P<end>End of file|File has more lines|Showing lines|Output capped|Output truncated)[^\n]*\)"
    r"\n</(?:content|file)>(?P<after>.*)",
    re.DOTALL,
)
_OPENCODE_CUT_LINE = re.compile(
    r"\.\.\. \(line truncated to \d+ chars\)$|(?<=.{2000})\.\.\.$", re.M
)
_GEMINI_PART = re.compile(
    r"\s*IMPORTANT: The file content has been truncated\.\n.*?\n--- FILE CONTENT \(truncated\) ---\n",
    re.DOTALL,
)
_ONE_OF_MANY_FILES = re.compile(
    r"\s*--- [^\n]+ ---\n\n(?P<text>.*?)\n\n--- End of content ---\s*", re.DOTALL
)
_CODEX_COMMAND_OUTPUT = re.compile(
    r"(?:(?:Chunk ID|Exit code|Wall time|Process exited with code|Original token count"
    r"|Total output lines)\b[^\n]*\n)+Output:\n"
)
_GEMINI_COMMAND_OUTPUT = re.compile(
    r"(?:Command: [^\n]*\n)?(?:Directory: [^\n]*\n)?Output: (?P<text>.*?)"
    r"(?:\nError: \(none\)\nExit Code: 0\n(?:[^\n]*\n?){0,4}|\nProcess Group PGID: \d+\s*)",
    re.DOTALL,
)
_SHELL_COMPLAINTS = re.compile(
    r"(?:/[^\s:]+: [^\n]*(?:Operation not permitted|Permission denied)\n)+"
)
"""Matches what the start-up scripts of a shell print in a sandbox, before the output of the command."""


def extract_file_text(call: ConversationEvent) -> FileTextInResult | None:
    """Return the text of the file that a call read.

    Returns None if the call read several files, or if the form of the result is unknown.
    """
    if call.result is None:
        return None
    text = call.result.text.replace("\r\n", "\n")
    if call.name in SHELL_TOOLS:
        return _extract_printed_text(call, text)
    extract = _FORMS.get(call.name or "")
    if extract is None:
        return None
    arguments = call.arguments or {}
    names = {name for name, value in arguments.items() if value is not None}
    found = extract(text)
    if found is not None and names - _ARGUMENTS_OF_WHOLE_FILES:
        return found._replace(is_part=True)
    return found


_ARGUMENTS_OF_WHOLE_FILES = {"path", "file_path", "filePath", "absolute_path", "paths", "include"}
"""The arguments of calls that read whole files.

A call with any other argument may have read only a part of the file.
"""


def _extract_fenced_text(text: str) -> FileTextInResult | None:
    first, _, rest = text.strip().partition("\n")
    if not re.fullmatch(r"`{3,}[^`\s]*", first) or not rest.endswith("```"):
        return None
    text = rest.rpartition("\n")[0]
    if note := _START_NOTE.match(text):
        return FileTextInResult(text[note.end() :], is_part=True)
    return FileTextInResult(text)


def _extract_numbered_lines(text: str) -> FileTextInResult | None:
    """Return the text of lines with ascending numbers, without what follows the last numbered line."""
    rows = text.rstrip("\n").split("\n")
    for form in _NUMBERED_LINES:
        lines = list(map(form.fullmatch, rows))
        numbered = [line for line in lines if line]
        if numbered and all(
            line and int(line[1]) == int(numbered[0][1]) + at
            for at, line in enumerate(lines[: len(numbered)])
        ):
            is_part = int(numbered[0][1]) != 1 or len(numbered) >= _MAX_NUMBERED_LINES
            return FileTextInResult("\n".join(line[2] for line in numbered), is_part)
    return None


def _extract_opencode_text(text: str) -> FileTextInResult | None:
    match = _OPENCODE_RESULT.match(text)
    if match is None:
        return _extract_numbered_lines(text)
    found = _extract_numbered_lines(match["lines"])
    if found is None:
        return None
    is_cut = match["end"] != "End of file" or _OPENCODE_CUT_LINE.search(found.text) is not None
    return found._replace(is_part=found.is_part or is_cut)


def _extract_text_of_read_file(text: str) -> FileTextInResult | None:
    """Return the text that a tool `read_file` returned. Codex numbers the lines, Gemini CLI does not."""
    if part := _GEMINI_PART.match(text):
        return FileTextInResult(text[part.end() :], is_part=True)
    if re.match(r"L\d+: ", text):
        return _extract_numbered_lines(text)
    return _extract_fenced_text(text) or FileTextInResult(text)


def _extract_text_of_one_of_many_files(text: str) -> FileTextInResult | None:
    match = _ONE_OF_MANY_FILES.fullmatch(text)
    return FileTextInResult(match["text"]) if match else None


def _extract_printed_text(call: ConversationEvent, text: str) -> FileTextInResult | None:
    """Return the text that a shell command printed if the command does nothing but print one file, otherwise None."""
    words = find_command_that_only_prints_file(call)
    if words is None:
        return None
    if header := _CODEX_COMMAND_OUTPUT.match(text):
        text = text[header.end() :]
    elif output := _GEMINI_COMMAND_OUTPUT.fullmatch(text):
        text = output["text"]
    elif text.startswith(("Command: ", "Output: ", "Exit code: ")) or "<bash_metadata>" in text:
        return None
    if complaints := _SHELL_COMPLAINTS.match(text):
        text = text[complaints.end() :]
    program = words[0].rpartition("/")[2]
    if re.fullmatch(rf"(?:\S*/)?{re.escape(program)}: [^\n]+\n?", text):
        return None  # An error message: not every agent records the exit code.
    options = [word for word in words[1:] if word.startswith("-")]
    if program == "cat" and not options:
        return FileTextInResult(text)
    if (program == "cat" and options == ["-n"]) or (program == "nl" and options == ["-ba"]):
        return _extract_numbered_lines(text)
    most = _find_printed_lines_max(program, words)
    if most is None:
        return None
    # If a command asked for more lines than it printed, it printed the whole file.
    first, last = most
    is_part = first != 1 or text.count("\n") + (not text.endswith("\n")) >= last
    return FileTextInResult(text, is_part)


def _find_printed_lines_max(program: str, words: Sequence[str]) -> tuple[int, int] | None:
    """Return the first and the last line number that `sed -n` or `head` can print; None if unknown."""
    if program == "sed" and len(words) == 4 and words[1] == "-n":
        lines = re.fullmatch(r"(\d+),(\d+)p", words[2].strip())
        return (int(lines[1]), int(lines[2])) if lines else None
    if program == "head":
        count = re.fullmatch(r"-(?:n ?|-lines=)?(\d+)", " ".join(words[1:-1]))
        return (1, int(count[1]) if count else 10) if count or len(words) == 2 else None
    return None


_FORMS: dict[str, Callable[[str], FileTextInResult | None]] = {
    "Read": _extract_numbered_lines,
    "fs_read_file": _extract_fenced_text,
    "read": _extract_opencode_text,
    "read_file": _extract_text_of_read_file,
    "read_many_files": _extract_text_of_one_of_many_files,
}
"""Name of a tool that reads files -> the function that extracts the text from its result."""
