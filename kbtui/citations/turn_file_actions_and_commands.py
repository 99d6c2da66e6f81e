"""Finds out which files a turn read, changed, created, moved and deleted, and which commands it ran.

The evidence is in the turn's tool calls: the names and arguments of the tools. For aider, the edits
in messages count, too. One table of tools serves all agents, as in `files_read_by_tool_calls`. Calls
that failed or have no result do not count.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

from kbtui.citations.files_read_by_tool_calls import (
    DIRECTORY_ARGUMENTS,
    NOT_A_PATH,
    SHELL_TOOLS,
    get_shell_script,
    iterate_commands_of_script,
    list_files_read_by_call,
)
from kbtui.conversations.patch_parser import (
    FilePatch,
    PatchHunk,
    count_lines_with_prefix,
    find_unified_diffs,
    format_file_patch,
    make_hunks_from_texts,
    parse_apply_patch,
    split_lines,
)
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime
    from typing import TypedDict

    from kbtui.conversations.conversation_data_types import ConversationEvent, Turn

    FindEarlierText = Callable[[str, datetime | None], str | None]

    class TurnFileActionJson(TypedDict):
        """A `TurnFileAction` as JSON."""

        kind: FileActionKind
        path: str
        old_path: str | None
        call: int | None
        added: int
        removed: int
        diff: str | None


FileActionKind = Literal["read", "changed", "created", "moved", "deleted"]


class FileEdit(NamedTuple):
    """A replacement of text in a file, as a tool call describes it.

    `old` and `new` need not be whole lines. `old` is None if the call does not say which text was
    replaced. `line` is the number of the edit's first line in the new file, counted from 1; None if
    it is unknown.
    """

    old: str | None
    new: str
    line: int | None = None
    is_whole_file: bool = False


MAX_COMPARED_PLACES = 200
"""`list_substring_offsets` returns at most this many offsets."""


def apply_edit_to_text(text: str, edit: FileEdit) -> str | None:
    """Return the text after an edit, or None if it is unclear which part of `text` the edit replaces."""
    if not edit.old or text.count(edit.old) == 0:
        return None
    if text.count(edit.old) == 1:
        return text.replace(edit.old, edit.new, 1)
    line = edit.line
    if line is None:
        return None
    offsets = list_substring_offsets(text, edit.old)
    start = min(offsets, key=lambda at: abs(text.count("\n", 0, at) + 1 - line))
    return text[:start] + edit.new + text[start + len(edit.old) :]


def list_substring_offsets(text: str, part: str) -> list[int]:
    """Return the offsets, in characters, at which `text` contains `part`; at most `MAX_COMPARED_PLACES`."""
    offsets: list[int] = []
    at = text.find(part)
    while at >= 0 and len(offsets) < MAX_COMPARED_PLACES:
        offsets.append(at)
        at = text.find(part, at + 1)
    return offsets


class TurnFileAction(NamedTuple):
    """What one event did to one file: read, change, create, move or delete it.

    - `path` is shortened for display by the function `shorten_path`, which is an argument of
      `list_file_actions`. After a move, `path` is the new path, and `old_path` is the earlier one.
    - `call` is the number of the tool call in its turn. It is None for agents that change files
      without calls. `event` is the index of the event in the conversation's file.
    - `edits` are the changes in order; empty if the call does not contain them.
    - `hunks` are the same changes as a diff, for display.
    - `time` is when the call ended or, for agents that do not store this time, when the turn started.
    - `directory` is the directory that a relative `path` starts from. It is set until `path` is resolved.
    """

    kind: FileActionKind
    path: str
    call: int | None = None
    event: int = 0
    edits: tuple[FileEdit, ...] = ()
    hunks: tuple[PatchHunk, ...] = ()
    old_path: str | None = None
    time: datetime | None = None
    directory: str | None = None

    @property
    def added_line_count(self) -> int:
        """The number of added lines."""
        return count_lines_with_prefix(self.hunks, "+")

    @property
    def removed_line_count(self) -> int:
        """The number of removed lines."""
        return count_lines_with_prefix(self.hunks, "-")

    def as_json(self) -> TurnFileActionJson:
        """Return the action as JSON; `diff` is None if the call does not show the change."""
        return {
            "kind": self.kind,
            "path": self.path,
            "old_path": self.old_path,
            "call": self.call,
            "added": self.added_line_count,
            "removed": self.removed_line_count,
            "diff": self.format_diff() if self.hunks else None,
        }

    def format_diff(self) -> str:
        """Return the changes as a unified diff."""
        action = "changed" if self.kind == "read" else self.kind
        return format_file_patch(FilePatch(self.path, action, self.hunks, self.old_path))


class ShellCommandRun(NamedTuple):
    """A command that a turn ran, the call that ran it, and whether it failed."""

    text: str
    call: int | None
    event: int
    has_failed: bool


class TurnActionsAndCommands(NamedTuple):
    """What a turn did: its actions on files, its commands, and its failed calls.

    Actions, commands and failed calls are in the order in which they occurred.
    """

    files: tuple[TurnFileAction, ...]
    commands: tuple[ShellCommandRun, ...]
    failures: tuple[ConversationEvent, ...]

    def list_paths(self, kind: FileActionKind) -> list[str]:
        """Return the distinct paths of the files with an action of this kind."""
        return list(dict.fromkeys(one.path for one in self.files if one.kind == kind))

    def group_changes_by_path(self) -> dict[str, list[TurnFileAction]]:
        """Map each file path to the actions that changed the file. Reads do not count."""
        by_path: dict[str, list[TurnFileAction]] = {}
        for one in self.files:
            if one.kind != "read":
                by_path.setdefault(one.path, []).append(one)
        return by_path


_EDIT_TOOLS = frozenset(
    {
        "Edit", "MultiEdit", "edit", "edit_file", "fs_modify_file", "multiedit", "replace",
        "str_replace", "str_replace_based_edit_tool", "str_replace_editor",
    }
)  # fmt: skip
_WRITE_TOOLS = frozenset({"Write", "create_file", "fs_create_file", "write", "write_file"})
_MOVE_TOOLS = frozenset({"fs_move_file", "move_file"})
_DELETE_TOOLS = frozenset({"delete_file", "fs_delete_file"})
_PATCH_TOOLS = frozenset({"apply_patch", "patch"})
_PROGRAM_TOOL = re.compile(r"(?:cargo|git|go|just|make|npm|pytest|uv)(?:_\w+)?")
"""Matches the names of JP's tools that run a program. `cargo_test` stands for the command `cargo test`."""
_TOOL_OF_SERVER = re.compile(
    r"(?:mcp__)?\w+?__(?P<tool>edit_file|write_file|create_file|move_file|delete_file)"
)
_PATHS = ("path", "file_path", "filePath", "notebook_path", "absolute_path")
_OLD_TEXTS = ("old", "old_string", "oldString", "old_str", "oldText")
_NEW_TEXTS = ("new", "new_string", "newString", "new_str", "newText")
_CONTENTS = ("content", "file_text", "text", "contents")
_SOURCES, _TARGETS = ("source", "old_path", "from"), ("target", "destination", "new_path", "to")
_PATCH_TEXTS = ("input", "patch", "patchText", "patch_text")
CHANGE_ARGUMENTS = frozenset(
    (
        *_OLD_TEXTS,
        *_NEW_TEXTS,
        *_CONTENTS,
        *_PATCH_TEXTS,
        "edits",
        "new_source",
        "patterns",
        "command",
        "cmd",
    )
)
"""The names of arguments that contain what the call changes."""
_NOTHING_CHANGED = re.compile(
    r"0/\d+ patterns applied|(?:The )?[Tt]ool (?:execution |call )?(?:was )?(?:skipped|rejected)"
)
_CREATED = re.compile(r"\bcreated?\b", re.IGNORECASE)
_OVERWRITTEN = re.compile(r"\b(?:updated|overwr\w+|modified)\b", re.IGNORECASE)
_RESULT_BEGINNING = 300
"""At the beginning of a result, this many characters are searched for words such as "created" or "updated"."""


def collect_turn_actions_and_commands(
    turn: Turn,
    working_directory: str | None,
    shorten_path: Callable[[str], str],
    known_texts: dict[str, str | None] | None = None,
    find_earlier_text: FindEarlierText | None = None,
) -> TurnActionsAndCommands:
    """Return the activity of a turn: its actions on files, its commands, and its failed calls.

    Relative paths of calls are joined to `working_directory`, in which the agent ran. `shorten_path`
    returns the path to show, such as the path relative to the workspace. See `list_file_actions` for
    `known_texts` and `find_earlier_text`.
    """
    files = list(
        list_file_actions([turn], working_directory, shorten_path, known_texts, find_earlier_text)
    )
    commands, failures = [], []
    for event in turn.events:
        if event.kind != "tool_call_request":
            continue
        has_failed = event.result is not None and bool(event.result.is_error)
        if has_failed:
            failures.append(event)
        if (text := extract_command_of_call(event)) is not None:
            commands.append(ShellCommandRun(text, event.call, event.index, has_failed))
    return TurnActionsAndCommands(
        tuple(action for _, action in files), tuple(commands), tuple(failures)
    )


def list_file_actions(
    turns: Iterable[Turn],
    working_directory: str | None,
    shorten_path: Callable[[str], str],
    known_texts: dict[str, str | None] | None = None,
    find_earlier_text: FindEarlierText | None = None,
) -> Iterator[tuple[Turn, TurnFileAction]]:
    """Yield the file actions of turns in order, each with the turn that performed it.

    `known_texts` maps the path of each existing file to its text, or to None if the text is
    unknown. Each action updates `known_texts`. For a file whose text does not follow from earlier
    actions, `find_earlier_text(path, time)` returns the text that the file had before `time`, or
    None. See `collect_turn_actions_and_commands` for the other parameters.

    JP reports a replaced file as created. Such an action counts as a change if `known_texts` has
    the path, or if `find_earlier_text` finds a text. If the replaced text is known, the action
    shows how the new text differs from it.
    """
    known = {} if known_texts is None else known_texts
    for turn in turns:
        applied = _find_files_that_aider_edited(turn)
        for event in turn.events:
            found = (
                _iterate_file_actions_of_tool_call(event)
                if event.kind == "tool_call_request"
                else _iterate_applied_aider_edits(event.text, applied)
                if applied and event.kind == "message"
                else ()
            )
            for raw in found:
                path = _join_and_shorten_path(
                    raw.path, raw.directory, working_directory, shorten_path
                )
                old_path = raw.old_path and _join_and_shorten_path(
                    raw.old_path, raw.directory, working_directory, shorten_path
                )
                time = _get_event_end_time(event) or turn.started_at
                action = raw._replace(
                    path=path,
                    call=event.call,
                    event=event.index,
                    old_path=old_path or None,
                    time=time,
                    directory=None,
                )
                if any(edit.is_whole_file for edit in action.edits):
                    action = _add_changes_to_whole_file_write(action, known, find_earlier_text)
                _update_known_file_text(known, action, event)
                yield turn, action
        for path in applied:  # the edits have a form that kbtui cannot read, such as whole files
            name = _join_and_shorten_path(path, None, working_directory, shorten_path)
            if applied[path] is False:
                known[name] = None
                last = turn.events[-1].index
                yield turn, TurnFileAction("changed", name, None, last, time=turn.started_at)


def _add_changes_to_whole_file_write(
    action: TurnFileAction,
    known: Mapping[str, str | None],
    find_earlier_text: FindEarlierText | None,
) -> TurnFileAction:
    """Add the changes to an action that writes a whole file, if the file's earlier text is known."""
    text, edit = known.get(action.path), action.edits[0]
    if text is None and edit.old is None and find_earlier_text is not None:
        text = find_earlier_text(action.path, action.time)
    if text is None and action.path not in known:
        return action
    kind = "changed" if action.kind == "created" else action.kind
    hunks = action.hunks if text is None else make_hunks_from_texts(text, edit.new, 1)
    return action._replace(kind=kind, edits=(edit._replace(old=text),), hunks=hunks)


def _update_known_file_text(
    known: dict[str, str | None], action: TurnFileAction, event: ConversationEvent
) -> None:
    """Store in `known` the text that the file has after the action."""
    from kbtui.citations.cited_text_comparison import find_text_given_by_file_tool

    text = known.pop(action.old_path or action.path, None)
    if action.kind == "deleted":
        return
    if action.kind == "read":
        given = find_text_given_by_file_tool(event)
        if given is not None and given.extent == "whole":
            is_only_file = len(list_files_read_by_call(event)) == 1
            end = "" if given.text.endswith("\n") or not given.text else "\n"
            text = f"{given.text}{end}" if is_only_file else text
    elif not action.edits and action.kind != "moved":
        text = None
    for edit in action.edits:
        if edit.is_whole_file:
            text = edit.new
        else:
            text = None if text is None else apply_edit_to_text(text, edit)
    known[action.path] = text


def _get_event_end_time(event: ConversationEvent) -> datetime | None:
    return (event.result.timestamp if event.result else None) or event.timestamp


def _join_and_shorten_path(
    path: str,
    directory: str | None,
    working_directory: str | None,
    shorten_path: Callable[[str], str],
) -> str:
    joined = posixpath.join(
        working_directory or "", directory or "", path.strip().removeprefix("file://")
    )
    return shorten_path(posixpath.normpath(joined))


def extract_command_of_call(call: ConversationEvent) -> str | None:
    """Return the command that a tool call ran, as one string; None if the call ran no command."""
    name, arguments = call.name or "", call.arguments or {}
    if name in SHELL_TOOLS:
        script = get_shell_script(arguments)
        return shlex.join(script) if isinstance(script, list) else script
    if _PROGRAM_TOOL.fullmatch(name):
        # A number or a switch says nothing without the name of its argument.
        words = [
            word
            for value in arguments.values()
            for word in (value if isinstance(value, list) else [value])
            if isinstance(word, str)
        ]
        return " ".join([name.replace("_", " ", 1), *words])
    return None


def _iterate_file_actions_of_tool_call(call: ConversationEvent) -> Iterator[TurnFileAction]:
    if call.result is None or call.result.is_error:
        return
    for read in list_files_read_by_call(call):
        if not read.may_be_directory:
            yield TurnFileAction("read", read.path, directory=read.directory)
    if _NOTHING_CHANGED.match(call.result.text):
        return
    if call.name in SHELL_TOOLS:
        yield from _iterate_file_actions_of_shell_call(call.arguments or {})
    else:
        yield from _iterate_file_changes_of_tool_call(call, call.result.text)


def list_requested_file_changes(call: ConversationEvent) -> list[TurnFileAction]:
    """Return the changes that a tool call asked for, even if the call failed. Paths are as in the call.

    In a shell command, only an apply-patch text is recognized.
    """
    said = call.result.text if call.result is not None and not call.result.is_error else ""
    if call.name in SHELL_TOOLS:
        found = _iterate_patches_of_shell_call(call.arguments or {})
    else:
        found = _iterate_file_changes_of_tool_call(call, said)
    return [one._replace(call=call.call, event=call.index) for one in found]


def _iterate_file_changes_of_tool_call(
    call: ConversationEvent, said: str
) -> Iterator[TurnFileAction]:
    """Yield the changes that a tool call asked for. The tool must not be a shell.

    `said` is the text of the call's result; "" if the call failed or has no result.
    """
    arguments = call.arguments or {}
    name = call.name or ""
    if match := _TOOL_OF_SERVER.fullmatch(name):
        name = match["tool"]
    if name in _PATCH_TOOLS:
        text = call.text or next(iter(_list_string_arguments(arguments, _PATCH_TEXTS)), "")
        yield from _iterate_file_changes_in_patches(parse_apply_patch(text), None)
    elif name in _MOVE_TOOLS:
        sources, targets = (
            _list_string_arguments(arguments, _SOURCES),
            _list_string_arguments(arguments, _TARGETS),
        )
        if sources and targets:
            yield TurnFileAction("moved", targets[0], old_path=sources[0])
    elif name in _DELETE_TOOLS:
        yield from (
            TurnFileAction("deleted", path) for path in _list_string_arguments(arguments, _PATHS)
        )
    elif name == "NotebookEdit":
        yield from _iterate_notebook_edits(arguments)
    elif name in _EDIT_TOOLS or name in _WRITE_TOOLS:
        yield from _iterate_edits_of_tool_call(name, arguments, said)


def _iterate_edits_of_tool_call(
    name: str, arguments: dict[str, Any], said: str
) -> Iterator[TurnFileAction]:
    """Yield the edits of a tool that replaces texts or writes whole files.

    If the result contains a diff, the edits come from the diff, which has line numbers and shows
    what was really applied.
    """
    path = next(iter(_list_string_arguments(arguments, _PATHS)), None)
    contents = _list_string_arguments(arguments, _CONTENTS, allow_empty=True)
    is_write = name in _WRITE_TOOLS or (arguments.get("command") == "create" and bool(contents))
    patches = [found.patch for found in find_unified_diffs(said)]
    if is_write and path is not None and contents:
        edit = FileEdit(None, contents[0], 1, is_whole_file=True)
        beginning = said[:_RESULT_BEGINNING]
        if patches:
            yield from _iterate_file_changes_in_patches(patches[:1], None, path)
        elif _OVERWRITTEN.search(beginning) and not _CREATED.search(beginning):
            yield TurnFileAction(
                "changed", path, edits=(edit,), hunks=_make_hunks_of_added_text(contents[0])
            )
        else:
            # JP reports a file as created even if the call replaced an existing file.
            if _CREATED.search(beginning) and name != "fs_create_file":
                edit = edit._replace(old="")
            yield TurnFileAction(
                "created", path, edits=(edit,), hunks=_make_hunks_of_added_text(contents[0])
            )
        return
    if patches:
        yield from _iterate_file_changes_in_patches(patches, None, path)
        return
    edits = tuple(_iterate_text_replacement_edits(arguments))
    if path is not None and edits:
        hunks = tuple(
            hunk for edit in edits for hunk in make_hunks_from_texts(edit.old or "", edit.new)
        )
        is_new = len(edits) == 1 and edits[0].old == ""
        yield TurnFileAction("created" if is_new else "changed", path, edits=edits, hunks=hunks)


def _iterate_text_replacement_edits(arguments: dict[str, Any]) -> Iterator[FileEdit]:
    listed = next((arguments[key] for key in ("edits", "patterns") if key in arguments), None)
    for one in listed if isinstance(listed, list) else [arguments]:
        if isinstance(one, dict):
            old = _list_string_arguments(one, _OLD_TEXTS, allow_empty=True)
            new = _list_string_arguments(one, _NEW_TEXTS, allow_empty=True)
            if old and new:
                yield FileEdit(old[0], new[0], is_whole_file=old[0] == "")


def _iterate_notebook_edits(arguments: dict[str, Any]) -> Iterator[TurnFileAction]:
    path = next(iter(_list_string_arguments(arguments, _PATHS)), None)
    source = _list_string_arguments(arguments, ("new_source",), allow_empty=True)
    if path is not None and source:
        edits = (FileEdit(None, source[0]),) if source[0] else ()
        yield TurnFileAction(
            "changed", path, edits=edits, hunks=_make_hunks_of_added_text(source[0], None)
        )


def _iterate_file_changes_in_patches(
    patches: Iterable[FilePatch], directory: str | None, path: str | None = None
) -> Iterator[TurnFileAction]:
    """Yield the changes in `patches`. If there is only one patch, `path` replaces the path in the patch."""
    found = list(patches)
    for patch in found:
        if patch.action == "created":
            text = "\n".join(line for hunk in patch.hunks for line in hunk.new_lines)
            edits = [FileEdit("", f"{text}\n", 1, is_whole_file=True)]
        else:
            edits = list(map(_make_edit_of_hunk, patch.hunks))
        name = path if path is not None and len(found) == 1 else patch.path
        yield TurnFileAction(
            patch.action,
            name,
            edits=tuple(edits),
            hunks=patch.hunks,
            old_path=patch.old_path,
            directory=directory,
        )


def _make_edit_of_hunk(hunk: PatchHunk) -> FileEdit:
    old, new = ("".join(f"{line}\n" for line in one) for one in (hunk.old_lines, hunk.new_lines))
    return FileEdit(old, new, hunk.new_start)


def _make_hunks_of_added_text(text: str, first: int | None = 1) -> tuple[PatchHunk, ...]:
    """Return a tuple with one hunk, which adds all lines of a text; () for an empty text."""
    lines = tuple(f"+{line}" for line in split_lines(text))
    return (PatchHunk(lines, 0 if first else None, first),) if lines else ()


def _list_string_arguments(
    arguments: dict[str, Any], keys: tuple[str, ...], *, allow_empty: bool = False
) -> list[str]:
    values = (arguments[key] for key in keys if key in arguments)
    return [text for text in values if isinstance(text, str) and (allow_empty or text.strip())]


# changes by shell commands

_COMMAND_CHARACTERS_MAX = 100_000
_LEADING_CD = re.compile(r"\s*cd\s+(?P<path>'[^'\n]+'|\"[^\"\n$`]+\"|[\w./@+-]+)\s*(?:&&|;|\n)\s*")
_HEREDOC = re.compile(
    r"<<-?[ \t]*(?P<quote>['\"]?)(?P<mark>\w+)(?P=quote)(?P<rest>[^\n]*)\n"
    r"(?P<body>.*?)^[ \t]*(?P=mark)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_PATCH_BEGINNING = "*** Begin Patch"
_CHANGING_WORD = re.compile(r"\b(?:mv|rm|touch|tee|cp|sed|perl|apply_patch|applypatch)\b|>")


def _iterate_file_actions_of_shell_call(arguments: dict[str, Any]) -> Iterator[TurnFileAction]:
    if patched := list(_iterate_patches_of_shell_call(arguments)):
        yield from patched
        return
    script = get_shell_script(arguments)
    if script is None:
        return
    if isinstance(script, list):
        directory = _get_directory_argument(arguments)
        for action in _list_file_actions_of_command(script):
            yield action._replace(directory=directory)
        return
    if len(script) > _COMMAND_CHARACTERS_MAX or not _CHANGING_WORD.search(script):
        return
    directory, script = _follow_leading_cd(arguments, script)
    bodies: list[str | None] = []

    def collect_heredoc_body(match: re.Match[str]) -> str:
        is_literal = bool(match["quote"]) or not re.search(r"[$`\\]", match["body"])
        bodies.append(match["body"] if is_literal else None)
        return f" <<HEREDOC {match['rest']}\n"

    for words, target, is_appended, has_body, _ in iterate_commands_of_script(
        _HEREDOC.sub(collect_heredoc_body, script)
    ):
        body = bodies.pop(0) if has_body and bodies else None
        if words and words[0] in {"cd", "pushd", "popd"}:
            return  # the directory of the following commands is unknown
        if words and words[0] == "tee" and has_body:
            paths = [word for word in words[1:] if not word.startswith("-")]
            target = paths[0] if paths and target is None else target
            is_appended = "-a" in words
        if target is not None and not NOT_A_PATH.search(target):
            text = body if words and words[0] in {"cat", "tee"} else None
            yield _make_file_action_of_output_redirection(
                target, directory, text, is_appended=is_appended
            )
        yield from (
            one._replace(directory=directory) for one in _list_file_actions_of_command(words)
        )


def _iterate_patches_of_shell_call(arguments: dict[str, Any]) -> Iterator[TurnFileAction]:
    """Yield the file changes of an apply-patch text in a shell command, if the command contains one."""
    script = get_shell_script(arguments)
    directory = _get_directory_argument(arguments)
    if isinstance(script, list):
        text = next((word for word in script if word.lstrip().startswith(_PATCH_BEGINNING)), "")
    elif script is not None and _PATCH_BEGINNING in script:
        directory, script = _follow_leading_cd(arguments, script)
        text = script if "apply_patch" in script or "applypatch" in script else ""
    else:
        return
    yield from _iterate_file_changes_in_patches(parse_apply_patch(text), directory)


def _get_directory_argument(arguments: dict[str, Any]) -> str | None:
    return next(iter(_list_string_arguments(arguments, DIRECTORY_ARGUMENTS)), None)


def _follow_leading_cd(arguments: dict[str, Any], script: str) -> tuple[str | None, str]:
    """Return the directory to which a script's leading `cd` commands change, and the rest of the script."""
    directory = _get_directory_argument(arguments)
    while (change := _LEADING_CD.match(script)) is not None:
        directory = posixpath.join(directory or "", change["path"].strip("'\""))
        script = script[change.end() :]
    return directory, script


def _make_file_action_of_output_redirection(
    target: str, directory: str | None, text: str | None, *, is_appended: bool
) -> TurnFileAction:
    kind: FileActionKind = "changed" if is_appended else "created"
    action = TurnFileAction(kind, target, directory=directory)
    if text is None:
        return action
    line = None if is_appended else 1
    edit = FileEdit(None, text, line, is_whole_file=not is_appended)
    return action._replace(edits=(edit,), hunks=_make_hunks_of_added_text(text, line))


def _list_file_actions_of_command(words: list[str]) -> list[TurnFileAction]:
    """Return the actions of a command on the files that it names."""
    names = list(takewhile(lambda word: "=" in word and word[:1].isalpha(), words))
    words = words[len(names) :]
    if words[:2] in (["git", "mv"], ["git", "rm"]):
        words = words[1:]
    if not words:
        return []
    program, options = words[0], [word for word in words[1:] if word.startswith("-")]
    paths = [word for word in words[1:] if not word.startswith("-")]
    if any(NOT_A_PATH.search(path) for path in paths) and program != "sed":
        return []
    if program == "mv" and len(paths) == 2:
        source, target = paths
        if target.endswith("/"):
            target = posixpath.join(target, posixpath.basename(source))
        return [TurnFileAction("moved", target, old_path=source)]
    is_recursive = any("r" in option.lower() for option in options if option[:2] != "--")
    if program == "rm" and not is_recursive:
        return [TurnFileAction("deleted", path) for path in paths]
    if program == "touch":
        return [TurnFileAction("created", path) for path in paths]
    if program == "cp" and len(paths) == 2 and not is_recursive and not paths[1].endswith("/"):
        return [TurnFileAction("created", paths[1])]
    if program == "sed" and any(option.startswith("-i") for option in options):
        files = paths if any(option.startswith("-e") for option in options) else paths[1:]
        return [TurnFileAction("changed", path) for path in files if not NOT_A_PATH.search(path)]
    return []


# aider's edits

_APPLIED = re.compile(r"^Applied edit to (.+)$", re.MULTILINE)
_SEARCH_REPLACE = re.compile(
    r"^<{5,9} SEARCH[^\n]*\n(?P<old>.*?)^={5,9}[ \t]*\n(?P<new>.*?)^>{5,9} REPLACE",
    re.MULTILINE | re.DOTALL,
)


def _find_files_that_aider_edited(turn: Turn) -> dict[str, bool]:
    """Return the files that aider reports as edited, as the keys of a mapping.

    Each value is False, which means that no edit of the file has been found yet.
    """
    return {
        path.strip(): False
        for event in turn.events
        if event.kind == "tool_call_response" and event.name == "aider"
        for path in _APPLIED.findall(event.text)
    }


def _iterate_applied_aider_edits(text: str, applied: dict[str, bool]) -> Iterator[TurnFileAction]:
    """Yield the SEARCH/REPLACE blocks that aider applied.

    In `applied`, the value of each changed file is set to True.
    """
    path: str | None = None
    position = 0
    for block in _SEARCH_REPLACE.finditer(text):
        path = _find_path_before_edit_block(text[position : block.start()], applied, path)
        position = block.end()
        if path is None:
            continue
        applied[path] = True
        old, new = block["old"], block["new"]
        edit = FileEdit(old, new, is_whole_file=not old)
        hunks = make_hunks_from_texts(old, new)
        yield TurnFileAction("changed" if old else "created", path, edits=(edit,), hunks=hunks)


def _find_path_before_edit_block(
    before: str, applied: dict[str, bool], previous: str | None
) -> str | None:
    """Return the file named in the text before a block, or `previous` if the text names no file.

    `previous` is the file of the preceding block. The result is None if aider did not edit the
    named file.
    """
    for line in reversed(before.split("\n")[-4:]):
        name = line.strip().strip("*`#: ")
        for path in applied if name else ():
            if path == name or path.endswith(f"/{name}") or name.endswith(f"/{path}"):
                return path
        if re.fullmatch(r"\S*[./]\S*", name):
            return None  # a file whose edits were not applied
    return previous
