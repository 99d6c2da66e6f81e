"""Finds out which files a tool call read, and extracts a file's text from the call's result.

Also splits shell scripts into commands, to find the files that the commands read or change.

One table of tools serves all agents. Tools with the same name are assumed to work alike, even in
formats that other packages add. Each agent's tools return a file in their own form: with line numbers,
in tags or fences, or below a header. A result in an unknown form is not used, because a wrongly extracted
text would look like a change of the file.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kbtui.conversations.conversation_data_types import ConversationEvent


_READING_TOOLS = frozenset(
    {"NotebookRead", "Read", "fs_read_file", "read", "read_file", "read_many_files", "view_file"}
)
_GREP_TOOLS = frozenset({"Grep", "grep", "grep_files", "grep_search", "search_file_content"})
SHELL_TOOLS = frozenset(
    {
        "Bash",
        "bash",
        "container.exec",
        "exec_command",
        "local_shell",
        "run_shell_command",
        "shell",
        "shell_command",
    }
)
"""The tools that run a command in a shell."""
_PATH_ARGUMENTS = (
    "path", "file_path", "filePath", "absolute_path", "notebook_path", "paths", "include",
)  # fmt: skip
_SEARCHED_PATH_ARGUMENTS = ("path", "file_path", "dir_path")
_COMMAND_ARGUMENTS = ("command", "cmd", "script")
DIRECTORY_ARGUMENTS = ("workdir", "working_directory", "cwd", "directory", "dir_path")
_READING_COMMANDS = re.compile(r"\b(?:bat|cat|head|less|more|nl|sed|tail)\b")
_COMMAND_CHARACTERS_MAX = 10_000
"""If a script has more than this many characters, it is not searched for the files that it reads."""
_OPTIONS_WITH_VALUE = frozenset({"-n", "-c", "--lines", "--bytes", "-r", "--line-range", "-l"})
_PRINTED_LINES = re.compile(r"(?:\d+|\$)(?:,(?:\d+|\$))?p(?:;(?:\d+|\$)(?:,(?:\d+|\$))?p)*;?")
"""Matches a script for `sed -n` that only prints lines by their numbers, such as `1,200p`."""
NOT_A_PATH = re.compile(r"[$`*?{}\n]|^~|^-|^$|^/dev/|^&")
"""Matches a word that is not the plain path of a file.

Such a word is empty, an option, a device, a file descriptor (`&1`), or a word that a shell expands.
"""
_SHELLS = re.compile(r"(?:.*/)?(?:ba|z|da|k|fi)?sh")
_PUNCTUATION = ";<>|&\n()"


class PathReadByCall(NamedTuple):
    """The path of a file that a tool call read, as the call's arguments spell it.

    `path` is relative to `directory` or, if `directory` is None, to the directory in which the agent
    ran. `may_be_directory` means that the call searched the path, which may be a directory.
    """

    path: str
    directory: str | None = None
    may_be_directory: bool = False


class SimpleShellCommand(NamedTuple):
    """A command of a shell script: its words, and where its output goes.

    * `target` is the file that the output goes to, or `&` followed by a file descriptor.
    * `is_appended`: whether the output is appended to the file.
    * `has_here_document`: whether the command has a here-document.
    * `is_whole`: whether the command is not inside parentheses and contains none. If it is false,
      `words` may be incomplete.
    """

    words: list[str]
    target: str | None = None
    is_appended: bool = False
    has_here_document: bool = False
    is_whole: bool = True


def list_files_read_by_call(call: ConversationEvent) -> list[PathReadByCall]:
    """Return the files that a tool call is known to have read. Doubtful cases are left out."""
    name, arguments = call.name or "", call.arguments or {}
    if name in _READING_TOOLS:
        return [PathReadByCall(path) for path in _list_path_arguments(arguments, _PATH_ARGUMENTS)]
    if name in _GREP_TOOLS:
        paths = _list_path_arguments(arguments, _SEARCHED_PATH_ARGUMENTS)
        return [PathReadByCall(path, may_be_directory=True) for path in paths]
    if name in SHELL_TOOLS:
        return list(_iterate_files_read_by_command(arguments))
    return []


def find_path_of_file_returned_by_call(call: ConversationEvent) -> str | None:
    """If a call returned one file and nothing else, return the path of the file, else None."""
    if call.name in SHELL_TOOLS:
        if find_command_that_only_prints_file(call) is None:
            return None
    elif call.name not in _READING_TOOLS:
        return None
    found = list_files_read_by_call(call)
    return found[0].path if len(found) == 1 else None


def find_command_that_only_prints_file(call: ConversationEvent) -> list[str] | None:
    """Return the words of a call's shell command if the command only prints one file, else None.

    `cd` commands do not count.
    """
    arguments = call.arguments or {}
    script = get_shell_script(arguments)
    commands = list(_iterate_commands_not_redirected_to_files(arguments))
    if (isinstance(script, str) and "<<" in script) or not all(one.is_whole for one in commands):
        return None
    printing = [one.words for one in commands if one.words[0] != "cd"]
    if len(printing) != 1 or len(_list_paths_of_printed_files(printing[0])) != 1:
        return None
    return printing[0]


def get_shell_script(arguments: dict[str, Any]) -> str | list[str] | None:
    """Return the script in a shell tool's arguments; None if there is none.

    If the arguments contain a command as a list of words, and its program is not a shell, the result
    is this list. Operators such as `>` have no meaning in these words.
    """
    script = next((arguments[key] for key in _COMMAND_ARGUMENTS if key in arguments), None)
    if isinstance(script, list):
        words = [word for word in script if isinstance(word, str)]
        is_shell = len(words) == 3 and _SHELLS.fullmatch(words[0]) is not None
        return words[2] if is_shell and words[1] in {"-c", "-lc", "-ic"} else words or None
    return script if isinstance(script, str) else None


def iterate_commands_of_script(script: str) -> Iterator[SimpleShellCommand]:
    """Yield the simple commands of a script. Reading stops at text that cannot be parsed."""
    lexer = shlex.shlex(script, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    command = SimpleShellCommand([])
    expected: Literal["", "target", "number", "skipped"] = ""
    depth = 0
    try:
        for token in chain(lexer, ";"):
            if not token or token.strip(_PUNCTUATION):
                if expected in {"target", "number"}:
                    target = token if expected == "target" else f"&{token}"
                    command = command._replace(target=target)
                elif not expected:
                    command.words.append(token)
                expected = ""
                continue
            for sign in re.findall(r"[()]|[^()]+", token):
                if sign == "<<":
                    command, expected = command._replace(has_here_document=True), "skipped"
                elif ">" in sign:
                    is_error_output = command.words[-1:] == ["2"]
                    if is_error_output:
                        command.words.pop()
                        expected = "skipped"
                    else:
                        expected = "number" if sign.endswith("&") else "target"
                        command = command._replace(is_appended=">>" in sign)
                elif "<" in sign:
                    expected = "skipped"
                else:
                    is_parenthesis = sign in {"(", ")"}
                    if command.words or command.target is not None:
                        is_whole = command.is_whole and not is_parenthesis
                        yield command._replace(is_whole=is_whole)
                    if is_parenthesis:
                        depth = max(0, depth + (1 if sign == "(" else -1))
                    is_whole = depth == 0 and not is_parenthesis
                    command, expected = SimpleShellCommand([], is_whole=is_whole), ""
    except ValueError:
        return


def _iterate_commands_not_redirected_to_files(
    arguments: dict[str, Any],
) -> Iterator[SimpleShellCommand]:
    """Yield the commands in the arguments of a shell tool, without those that write to a file.

    Reading stops at a here-document. Nothing is yielded for a script without a command that reads files.
    """
    script = get_shell_script(arguments)
    if isinstance(script, list):
        yield SimpleShellCommand(script)
    elif script and len(script) <= _COMMAND_CHARACTERS_MAX and _READING_COMMANDS.search(script):
        for command in iterate_commands_of_script(script):
            if command.has_here_document:
                return
            if command.target is None:
                yield command


def _list_path_arguments(arguments: dict[str, Any], keys: tuple[str, ...]) -> list[str]:
    """Return the paths in one argument: the first of `keys` that `arguments` contains.

    The argument is a string or a list of strings. Patterns and options in a list are left out,
    because they are not paths.
    """
    value = next((arguments[key] for key in keys if key in arguments), None)
    if isinstance(value, list):
        return [text for text in value if isinstance(text, str) and not NOT_A_PATH.search(text)]
    return [value] if isinstance(value, str) and value.strip() else []


def _iterate_files_read_by_command(arguments: dict[str, Any]) -> Iterator[PathReadByCall]:
    """Yield the files that the commands in `arguments` print."""
    directory = next(iter(_list_path_arguments(arguments, DIRECTORY_ARGUMENTS)), None)
    for command in _iterate_commands_not_redirected_to_files(arguments):
        words = command.words
        if not command.is_whole:
            continue
        if words[0] == "cd" and len(words) == 2 and not NOT_A_PATH.search(words[1]):
            directory = posixpath.join(directory or "", words[1])
        elif words[0] in {"cd", "popd", "pushd"}:
            return  # the directory of the following commands is unknown
        else:
            paths = _list_paths_of_printed_files(words)
            yield from (PathReadByCall(path, directory) for path in paths)


def _list_paths_of_printed_files(words: list[str]) -> list[str]:
    """Return the paths of the files that a command prints."""
    name = words[0].rpartition("/")[2] if words else ""
    if not _READING_COMMANDS.fullmatch(name):
        return []
    options: list[str] = []
    others: list[str] = []
    is_value = False
    for word in words[1:]:
        if is_value:
            is_value = False
        elif word.startswith("-") and word != "-":
            options.append(word)
            is_value = word in _OPTIONS_WITH_VALUE and name != "sed" and name != "cat"
        else:
            others.append(word)
    if name == "sed":
        if options != ["-n"] or not others or not _PRINTED_LINES.fullmatch(others[0].strip()):
            return []
        others = others[1:]
    return [path for path in others if not NOT_A_PATH.search(path)]


class FileTextInToolResult(NamedTuple):
    """The text of a file that a call returned.

    `is_part` says whether the text may be only part of the file.
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
"""Matches the line that JP puts above a part of a file."""
_MAX_NUMBERED_LINES = 2_000
"""The tools of Claude Code, Codex, Gemini CLI and opencode return at most this many lines of a file."""
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
"""Matches the errors that a shell's start-up scripts print in a sandbox, before the output of the command."""


def extract_text_of_file_read_by_call(call: ConversationEvent) -> FileTextInToolResult | None:
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

A call with any other argument may have read only part of the file.
"""


def _extract_fenced_text(text: str) -> FileTextInToolResult | None:
    first, _, rest = text.strip().partition("\n")
    if not re.fullmatch(r"`{3,}[^`\s]*", first) or not rest.endswith("```"):
        return None
    text = rest.rpartition("\n")[0]
    if note := _START_NOTE.match(text):
        return FileTextInToolResult(text[note.end() :], is_part=True)
    return FileTextInToolResult(text)


def _extract_numbered_lines(text: str) -> FileTextInToolResult | None:
    """Return consecutively numbered lines without their numbers; None if the lines are not numbered.

    Lines after the numbered ones are left out.
    """
    rows = text.rstrip("\n").split("\n")
    for form in _NUMBERED_LINES:
        lines = list(map(form.fullmatch, rows))
        numbered = [line for line in lines if line]
        if numbered and all(
            line and int(line[1]) == int(numbered[0][1]) + at
            for at, line in enumerate(lines[: len(numbered)])
        ):
            is_part = int(numbered[0][1]) != 1 or len(numbered) >= _MAX_NUMBERED_LINES
            return FileTextInToolResult("\n".join(line[2] for line in numbered), is_part)
    return None


def _extract_text_of_opencode_read(text: str) -> FileTextInToolResult | None:
    match = _OPENCODE_RESULT.match(text)
    if match is None:
        return _extract_numbered_lines(text)
    found = _extract_numbered_lines(match["lines"])
    if found is None:
        return None
    is_cut = match["end"] != "End of file" or _OPENCODE_CUT_LINE.search(found.text) is not None
    return found._replace(is_part=found.is_part or is_cut)


def _extract_text_of_read_file(text: str) -> FileTextInToolResult | None:
    """Return the file text in a result of `read_file`. Codex numbers the lines; Gemini CLI does not."""
    if part := _GEMINI_PART.match(text):
        return FileTextInToolResult(text[part.end() :], is_part=True)
    if re.match(r"L\d+: ", text):
        return _extract_numbered_lines(text)
    return _extract_fenced_text(text) or FileTextInToolResult(text)


def _extract_only_text_of_read_many_files(text: str) -> FileTextInToolResult | None:
    match = _ONE_OF_MANY_FILES.fullmatch(text)
    return FileTextInToolResult(match["text"]) if match else None


def _extract_printed_text(call: ConversationEvent, text: str) -> FileTextInToolResult | None:
    """Return the file text that a shell command printed; None if the command did more than print file text."""
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
        return FileTextInToolResult(text)
    if (program == "cat" and options == ["-n"]) or (program == "nl" and options == ["-ba"]):
        return _extract_numbered_lines(text)
    most = _find_printed_line_range(program, words)
    if most is None:
        return None
    # If a command asked for more lines than it printed, it printed the whole file.
    first, last = most
    is_part = first != 1 or text.count("\n") + (not text.endswith("\n")) >= last
    return FileTextInToolResult(text, is_part)


def _find_printed_line_range(program: str, words: Sequence[str]) -> tuple[int, int] | None:
    """Return the numbers of the first and the last line that `sed -n` or `head` may print; None if unknown."""
    if program == "sed" and len(words) == 4 and words[1] == "-n":
        lines = re.fullmatch(r"(\d+),(\d+)p", words[2].strip())
        return (int(lines[1]), int(lines[2])) if lines else None
    if program == "head":
        count = re.fullmatch(r"-(?:n ?|-lines=)?(\d+)", " ".join(words[1:-1]))
        return (1, int(count[1]) if count else 10) if count or len(words) == 2 else None
    return None


_FORMS: dict[str, Callable[[str], FileTextInToolResult | None]] = {
    "Read": _extract_numbered_lines,
    "fs_read_file": _extract_fenced_text,
    "read": _extract_text_of_opencode_read,
    "read_file": _extract_text_of_read_file,
    "read_many_files": _extract_only_text_of_read_many_files,
}
"""Maps the name of each tool that reads files to the function that extracts a file's text from the result."""
