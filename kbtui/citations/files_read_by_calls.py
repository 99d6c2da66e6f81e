"""Finds out which files a tool call read, from the name and the arguments of the tool.

One table of tools serves all agents. Tools with the same name are assumed to do the same, even in
formats that other packages add.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.conversations.models import ConversationEvent

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
_COMMAND_ARGUMENTS = ("command", "cmd")
_DIRECTORY_ARGUMENTS = ("workdir", "working_directory", "cwd", "directory", "dir_path")
_READING_COMMANDS = re.compile(r"\b(?:bat|cat|head|less|more|nl|sed|tail)\b")
_COMMAND_CHARACTERS_MAX = 10_000
"""A command with more characters than this is not searched for the files that it reads."""
_OPTIONS_WITH_VALUE = frozenset({"-n", "-c", "--lines", "--bytes", "-r", "--line-range", "-l"})
_PRINTED_LINES = re.compile(r"(?:\d+|\$)(?:,(?:\d+|\$))?p(?:;(?:\d+|\$)(?:,(?:\d+|\$))?p)*;?")
"""Matches a script for `sed -n` that only prints lines by their numbers, such as `1,200p`."""
_NOT_A_PATH = re.compile(r"[$`*?{}\n]|^~|^-|^$")
"""Matches a word that is not a plain path: an empty word, an option, or a word that a shell expands."""
_SHELLS = re.compile(r"(?:.*/)?(?:ba|z|da|k)?sh")


class FileRead(NamedTuple):
    """A file that a tool call read, with the path from the arguments of the call.

    The path is relative to `directory`. If `directory` is None, it is relative to the directory in
    which the agent ran. `may_be_directory` means that the call searched the path, so that the path
    can be a directory.
    """

    path: str
    directory: str | None = None
    may_be_directory: bool = False


def list_files_read_by_call(call: ConversationEvent) -> list[FileRead]:
    """Return the files that a tool call certainly read."""
    name, arguments = call.name or "", call.arguments or {}
    if name in _READING_TOOLS:
        return [FileRead(path) for path in _list_argument_texts(arguments, _PATH_ARGUMENTS)]
    if name in _GREP_TOOLS:
        paths = _list_argument_texts(arguments, _SEARCHED_PATH_ARGUMENTS)
        return [FileRead(path, may_be_directory=True) for path in paths]
    if name in SHELL_TOOLS:
        directory = next(iter(_list_argument_texts(arguments, _DIRECTORY_ARGUMENTS)), None)
        found = next((arguments[key] for key in _COMMAND_ARGUMENTS if key in arguments), None)
        return list(_iterate_files_read_by_command(found, directory))
    return []


def find_path_of_content(call: ConversationEvent) -> str | None:
    """Return the path of the file whose content a call returned; None if it returned something else."""
    if call.name in SHELL_TOOLS:
        if find_command_that_only_prints_file(call) is None:
            return None
    elif call.name not in _READING_TOOLS:
        return None
    found = list_files_read_by_call(call)
    return found[0].path if len(found) == 1 else None


def find_command_that_only_prints_file(call: ConversationEvent) -> list[str] | None:
    """Return the words of the shell command in a call if the command only prints one file, otherwise None.

    `cd` commands before this command are ignored.
    """
    arguments = call.arguments or {}
    script = next((arguments[key] for key in _COMMAND_ARGUMENTS if key in arguments), None)
    if isinstance(script, list):
        words = [word for word in script if isinstance(word, str)]
        if not _is_shell_with_script(words):
            return words if len(_list_printed_paths(words)) == 1 else None
        script = words[2]
    if not isinstance(script, str) or len(script) > _COMMAND_CHARACTERS_MAX or "<<" in script:
        return None
    commands = [words for words in _iterate_simple_commands(script) if words[0] != "cd"]
    if len(commands) != 1 or len(_list_printed_paths(commands[0])) != 1:
        return None
    return commands[0]


def _is_shell_with_script(words: list[str]) -> bool:
    return (
        len(words) == 3
        and _SHELLS.fullmatch(words[0]) is not None
        and words[1] in {"-c", "-lc", "-ic"}
    )


def _list_argument_texts(arguments: dict[str, Any], keys: tuple[str, ...]) -> list[str]:
    """Return the texts in the first argument that has one of the names `keys`.

    The argument is a text or a list of texts. From a list, texts that are patterns or options instead
    of paths are left out.
    """
    value = next((arguments[key] for key in keys if key in arguments), None)
    if isinstance(value, list):
        return [text for text in value if isinstance(text, str) and not _NOT_A_PATH.search(text)]
    return [value] if isinstance(value, str) and value.strip() else []


def _iterate_files_read_by_command(command: Any, directory: str | None) -> Iterator[FileRead]:
    """Yield the files that a command line prints; `command` is its text or the list of its words."""
    if isinstance(command, list):
        words = [word for word in command if isinstance(word, str)]
        if _is_shell_with_script(words):
            command = words[2]
        else:
            yield from (FileRead(path, directory) for path in _list_printed_paths(words))
            return
    if not isinstance(command, str) or len(command) > _COMMAND_CHARACTERS_MAX:
        return
    if not _READING_COMMANDS.search(command):
        return
    for words in _iterate_simple_commands(command):
        if words[0] == "cd" and len(words) == 2 and not _NOT_A_PATH.search(words[1]):
            directory = posixpath.join(directory or "", words[1])
        elif words[0] in {"cd", "popd", "pushd"} or words[0].startswith("("):
            return  # the directory of the following commands is unknown
        else:
            yield from (FileRead(path, directory) for path in _list_printed_paths(words))


def _iterate_simple_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a command line.

    Commands that write to a file are left out. Reading stops at a here-document, and at text that
    cannot be parsed.
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    is_writing = is_target = False
    try:
        for token in lexer:
            if not token or token.strip(";<>|&\n"):
                if not is_target:
                    words.append(token)
                is_target = False
            elif "<<" in token:
                return
            elif "<" in token or ">" in token:
                is_target = not token.endswith("&")
                is_error_output = bool(words) and words[-1] == "2"
                is_writing = is_writing or (">" in token and not is_error_output)
                if is_error_output:
                    words.pop()
                    is_target = True
            else:
                if words and not is_writing:
                    yield words
                words, is_writing, is_target = [], False, False
    except ValueError:
        return
    if words and not is_writing:
        yield words


def _list_printed_paths(words: list[str]) -> list[str]:
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
    return [path for path in others if not _NOT_A_PATH.search(path)]
