"""Finds the file changes made in a conversation, and the turns that changed or read a file."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from kbtui.citations.turn_file_actions_and_commands import TurnFileAction
from kbtui.conversations.patch_parser import split_lines
from kbtui.errors import KbtuiError, NothingFound, UsageError
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import make_conversation_ref, split_slug_and_line_range
from kbtui.terminal_text import (
    format_added_and_removed_counts,
    format_counted_noun,
    sanitize_to_one_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from kbtui.citations.tool_call_citations import CitationTargetLookup
    from kbtui.citations.turn_file_actions_and_commands import (
        FileEdit,
        FindEarlierText,
        TurnActionsAndCommands,
    )
    from kbtui.conversations.conversation_data_types import Conversation, ConversationInfo, Turn
    from kbtui.references import Ref
    from kbtui.workspace import Workspace
    from kbtui.workspace.git_history import GitHistory, LineOrigin


FILE_BYTES_MAX = 8 << 20
"""Lines are attributed to turns only in files of at most this many bytes."""
CLOCK_SECONDS = 60
"""An edit may seem to be up to this many seconds later than the commit that contains the edit."""
SCANNED_AGENTS = frozenset({"jp", "claude-code", "codex", "gemini-cli", "aider"})
SCANNED_SUFFIXES = frozenset({".json", ".jsonl", ".md"})
"""Before a conversation file with one of these suffixes is parsed, it is searched for the names of a file.

A conversation file that contains none of the names is not parsed. This applies only to the agents in
`SCANNED_AGENTS`.
"""


class LineRange(NamedTuple):
    """A range of lines in a file, counted from 1. Both ends are included."""

    first: int
    last: int


class FileUsedByCall(NamedTuple):
    """A file that a call read or changed: its path, the name to show, and the line to open.

    `line` is counted from 1; 0 if it is unknown.
    """

    path: str
    name: str
    line: int


class TurnTouchingFile(NamedTuple):
    """A turn that changed or read a file.

    * `request` is the text of the turn's request; "" if the turn has no request.
    * `actions` are the turn's actions on the file, in order. If the user asked for lines, `actions`
      contains only the actions that wrote some of these lines, and `lines` contains the ranges that
      they wrote.
    * `time` is the time of the last action; None if the agent stores no times.
    """

    conversation: str
    title: str
    agent: str
    turn: int
    request: str
    rewound: bool
    time: datetime | None
    actions: tuple[TurnFileAction, ...]
    lines: tuple[LineRange, ...] = ()

    @property
    def ref(self) -> str:
        """The reference of the first action's call, or of the turn if there is no call."""
        call = self.actions[0].call if self.actions else None
        return str(make_conversation_ref(self.conversation, self.turn, call))

    def as_json(self) -> dict[str, Any]:
        """Return the turn in the documented JSON format."""
        return {
            "ref": self.ref,
            "conversation": self.conversation,
            "title": self.title,
            "agent": self.agent,
            "turn": self.turn,
            "rewound": self.rewound,
            "time": self.time.isoformat() if self.time else None,
            "request": self.request,
            "lines": list(map(list, self.lines)),
            "actions": [one.as_json() for one in self.actions],
        }

    def describe_actions(self, *, with_calls: bool = True) -> str:
        """Describe the turn's actions on the file, such as `changed +8 −2 (calls 4, 6), read (call 1)`."""
        parts = []
        for kind in dict.fromkeys(one.kind for one in self.actions):
            found = [one for one in self.actions if one.kind == kind]
            moved = f"from {found[0].old_path}" if found[0].old_path else ""
            calls = [str(one.call) for one in found if one.call and with_calls]
            calls = list(dict.fromkeys(calls))
            noun = "call" if len(calls) == 1 else "calls"
            where = f"({noun} {', '.join(calls)})" if calls else ""
            counts = format_added_and_removed_counts(
                sum(one.added_line_count for one in found),
                sum(one.removed_line_count for one in found),
            )
            parts.append(" ".join(filter(None, (kind, moved, counts, where))))
        return sanitize_to_one_line(", ".join(parts))

    def describe_written_lines_and_file_actions(self) -> str:
        """Describe the lines that the turn wrote, then its actions: `wrote lines 3-5: changed +8 −2 (call 4)`."""
        wrote = f"wrote {format_line_ranges(self.lines)}: " if self.lines else ""
        return wrote + self.describe_actions()

    def format_written_lines(self) -> str:
        """Return the numbers of the lines that the turn wrote, such as `3-5, 9`."""
        return ", ".join(map(_format_line_range, self.lines))


class LinesNotWrittenByTurns(NamedTuple):
    """Lines that no turn wrote, and the commit that they come from. `commit` is None if no commit is known."""

    lines: LineRange
    commit: LineOrigin | None

    def as_json(self) -> dict[str, Any]:
        """Return the lines in the documented JSON format."""
        commit = self.commit
        return {
            "lines": list(self.lines),
            "commit": commit.commit if commit else None,
            "time": datetime.fromtimestamp(commit.time, UTC).isoformat() if commit else None,
            "author": commit.author if commit else None,
            "summary": commit.summary if commit else None,
        }


class FileTurnHistory(NamedTuple):
    """The turns that changed or read a file, newest first.

    If lines were requested, only the turns that wrote these lines are included.

    * `path` is relative to the workspace if the file is in it.
    * `earlier_names` are the file's paths before it was moved.
    * `problems` maps the id of each conversation that cannot be read completely to the reason.
      Turns that could not be read may also have changed or read the file.
    """

    path: str
    lines: LineRange | None
    turns: list[TurnTouchingFile]
    unexplained: list[LinesNotWrittenByTurns]
    earlier_names: list[str]
    problems: dict[str, str]

    def format_requested_line_range(self) -> str:
        """Return the numbers of the requested lines, such as `3` or `3-5`; "" if no lines were requested."""
        return _format_line_range(self.lines) if self.lines else ""

    def as_json(self) -> dict[str, Any]:
        """Return the history in the documented JSON format."""
        return {
            "path": self.path,
            "lines": list(self.lines) if self.lines else None,
            "earlier_names": self.earlier_names,
            "turns": [turn.as_json() for turn in self.turns],
            "unexplained": [one.as_json() for one in self.unexplained],
            "problems": [
                {"conversation": id_, "problem": problem} for id_, problem in self.problems.items()
            ],
        }


def format_line_ranges(ranges: Sequence[LineRange]) -> str:
    """Return ranges of lines as text, such as `line 3` or `lines 3-5, 9`."""
    is_single = len(ranges) == 1 and ranges[0].first == ranges[0].last
    return f"{'line' if is_single else 'lines'} {', '.join(map(_format_line_range, ranges))}"


def _format_line_range(lines: LineRange) -> str:
    return str(lines.first) if lines.first == lines.last else f"{lines.first}-{lines.last}"


_UNEXPLAINED_MAX = 5


def describe_lines_not_written_by_turns(unexplained: list[LinesNotWrittenByTurns]) -> Iterator[str]:
    """Yield messages about lines that no turn wrote: one for each commit, and one for uncommitted lines."""
    by_commit: dict[str | None, list[LinesNotWrittenByTurns]] = {}
    for one in unexplained:
        by_commit.setdefault(one.commit.commit if one.commit else None, []).append(one)
    for found in list(by_commit.values())[:_UNEXPLAINED_MAX]:
        lines = format_line_ranges([one.lines for one in found])
        verb = "comes" if lines.startswith("line ") else "come"
        commit = found[0].commit
        if commit is None:
            yield f"no turn wrote {lines}"
            continue
        date = datetime.fromtimestamp(commit.time, UTC).strftime("%Y-%m-%d")
        summary = sanitize_to_one_line(commit.summary)
        yield f"no turn wrote {lines}, which {verb} from commit {commit.commit[:8]} of {date}: {summary}"
    if (more := len(by_commit) - _UNEXPLAINED_MAX) > 0:
        yield f"no turn wrote the lines of {format_counted_noun(more, 'more commit')}"


def map_turns_to_actions_and_commands(
    workspace: Workspace, conversation: Conversation
) -> dict[int, TurnActionsAndCommands]:
    """Map the number of each turn to the turn's file actions and commands."""
    from kbtui.citations.turn_file_actions_and_commands import collect_turn_actions_and_commands

    known_texts: dict[str, str | None] = {}
    shorten_path = make_path_shortener(workspace)
    find_earlier_text = _make_finder_of_committed_text_at_time(workspace)
    return {
        turn.number: collect_turn_actions_and_commands(
            turn,
            conversation.info.working_directory,
            shorten_path,
            known_texts,
            find_earlier_text,
        )
        for turn in conversation.turns
    }


def _make_finder_of_committed_text_at_time(workspace: Workspace) -> FindEarlierText | None:
    """Return a function that finds a file's text in Git at a given time; None if there is no repository.

    The function takes a path relative to the workspace.
    """
    from kbtui.workspace.git_history import find_git_history

    history = find_git_history(str(workspace.root))
    if history is None:
        return None
    prefix = os.path.relpath(str(workspace.root), history.root)

    def find_committed_text(path: str, time: datetime | None) -> str | None:
        if time is None or os.path.isabs(path):  # noqa: PTH117
            return None
        commit = history.find_commit_before(int(time.timestamp()))
        return commit and history.read_file(
            commit,
            os.path.normpath(os.path.join(prefix, path)),  # noqa: PTH118
        )

    return find_committed_text


def list_files_used_by_call_or_turn(
    workspace: Workspace, conversation: Conversation, ref: Ref, line: int = 0
) -> list[FileUsedByCall]:
    """Return the existing files that a call or a whole turn read or changed.

    Changed files come first. The argument `line` is the number that a line had right after the change
    (0: the first changed line). The field `line` of a result is the current number of that line.
    """
    activity = map_turns_to_actions_and_commands(workspace, conversation).get(ref.turn or 0)
    actions = [one for one in activity.files if ref.call in (None, one.call)] if activity else []
    found: dict[str, FileUsedByCall] = {}
    for action in sorted(actions, key=lambda one: one.kind == "read"):
        path = os.path.join(str(workspace.root), action.path)  # noqa: PTH118
        if path not in found and os.path.isfile(path):  # noqa: PTH113
            found[path] = FileUsedByCall(
                path, action.path, _find_current_line_number(path, action, line)
            )
    return list(found.values())


def _find_current_line_number(path: str, action: TurnFileAction, line: int) -> int:
    """Return the current number of a changed line in a file.

    If the text of the line no longer exists, return its old number.
    """
    text, number = "", 0
    for hunk in action.hunks:
        at = hunk.new_start or 0
        for marked in hunk.lines:
            is_wanted = at == line if line else marked[0] == "+" and bool(marked[1:].strip())
            if is_wanted and marked[0] != "-":
                text, number = marked[1:], at
                break
            at += marked[0] != "-"
        if text:
            break
    try:
        lines = _read_file_lines(path, action.path)
    except NothingFound:
        return number or line
    places = [n for n, one in enumerate(lines, 1) if one == text] if text.strip() else []
    return min(places, key=lambda n: abs(n - number), default=number or line)


def make_path_shortener(workspace: Workspace) -> Callable[[str], str]:
    """Return a function that makes paths relative to a workspace or to one of its worktrees."""
    from kbtui.conversations.workspace_and_worktree_directories import (
        list_workspace_and_worktree_paths,
        make_path_relative_to_project,
    )

    directories = list_workspace_and_worktree_paths(workspace)
    return lru_cache(maxsize=10_000)(lambda path: make_path_relative_to_project(path, directories))


def find_turns_touching_file(
    workspace: Workspace, name: str, lines: LineRange | None = None, directory: str | None = None
) -> FileTurnHistory:
    """Find the turns that changed or read a file, under any of its names, newest first.

    `name` is relative to `directory` or to the workspace. If `lines` are given, only find the turns
    whose edits wrote these lines of the current file. Raises `NothingFound` for a directory, for a
    missing file that no turn has read or changed, and for lines after the end of the file.
    Raises `UsageError` for an invalid path or range.
    """
    from kbtui.workspace.git_history import find_git_history

    shorten_path = make_path_shortener(workspace)
    root = str(workspace.root)
    path = _resolve_path_entered_by_user(root, name, directory, shorten_path)
    history = find_git_history(root)
    names = _FileNameHistory(path)
    prefix = os.path.relpath(root, history.root) if history else "."
    prefix = "" if prefix == "." else prefix
    committed = os.path.join(prefix, path)  # noqa: PTH118
    if history is not None and not os.path.isabs(path):  # noqa: PTH117
        committed = history.find_committed_path(committed)
        if (known := _make_path_relative_to_directory(committed, prefix)) is not None:
            names.add_earlier_name(known, None)
        for earlier in history.list_earlier_paths(committed):
            if (known := _make_path_relative_to_directory(earlier.path, prefix)) is not None:
                names.add_earlier_name(known, earlier.until)
    found, problems = _find_turns_with_actions_on_file(workspace, names, shorten_path)
    if not found and os.path.isdir(os.path.join(root, path)):  # noqa: PTH112, PTH118
        raise NothingFound("this is a directory", where=name, hint="name one of its files")
    if not found and not os.path.exists(os.path.join(root, path)):  # noqa: PTH110, PTH118
        message = "no turn has read or changed this file"
        if problems:
            message += f"; {describe_incompletely_read_conversations(problems)}"
        hint = "name a file that exists, or that a turn has read or changed"
        raise NothingFound(message, where=name, hint=hint)
    earlier_names = [one for one in names.until if one != path]
    if lines is None:
        return FileTurnHistory(path, None, found, [], earlier_names, problems)
    text_lines = _read_file_lines(os.path.join(root, path), name)  # noqa: PTH118
    lines = _cut_line_range_at_end_of_file(lines, len(text_lines), name)
    wanted = range(lines.first - 1, lines.last)
    edits = _LineWriterFinder(found)
    origins = _map_lines_to_origin_commits(history, committed, text_lines)
    writers = edits.find_edits_that_wrote_lines(history, text_lines, wanted, origins)
    return FileTurnHistory(
        path,
        lines,
        edits.group_written_lines_by_turn(writers),
        _group_lines_not_written_by_turns([n for n in wanted if n not in writers], origins),
        earlier_names,
        problems,
    )


def find_turns_touching_file_or_subject(
    workspace: Workspace,
    name: str,
    directory: str | None = None,
    *,
    is_limited_to_workspace: bool = False,
) -> FileTurnHistory:
    """Find the turns that changed or read a file, newest first.

    `name` is a path relative to `directory` or to the workspace, or else the reference of a subject. If it
    ends with a range of lines (`src/main.py:12-20`), find only the turns that wrote these lines. Raises the
    same errors as `find_turns_touching_file`. If `is_limited_to_workspace` is true, a path outside the workspace raises
    `UsageError`.
    """
    path, lines = split_file_name_and_line_range(workspace, name, directory)
    root = os.path.realpath(workspace.root)
    is_inside = os.path.realpath(os.path.join(root, path)).startswith(f"{root}/")  # noqa: PTH118
    if is_limited_to_workspace and not is_inside:
        raise UsageError("the file is outside the workspace", where=name)
    try:
        return find_turns_touching_file(workspace, path, lines, directory)
    except NothingFound as error:
        file = _find_subject_file(workspace, path, has_disabled=not is_limited_to_workspace)
        if file is None:
            raise
        try:
            return find_turns_touching_file(workspace, file, lines)
        except NothingFound as other:
            # An error about a missing subject must quote what the user entered, not the subject's
            # path.
            raise (other if os.path.exists(file) else error) from None  # noqa: PTH110


def _find_subject_file(workspace: Workspace, name: str, *, has_disabled: bool) -> str | None:
    """Return the path of a subject's file; None if `name` is not the reference of a subject.

    For a missing subject, return the path that its file probably had. A disabled subject counts as
    missing unless `has_disabled` is true.
    """
    from kbtui.knowledge import load_knowledge
    from kbtui.references import parse_ref

    try:
        ref = parse_ref(name)
        knowledge = load_knowledge(workspace)
        topic = knowledge.resolve_topic(ref.topic or "")
    except KbtuiError:
        return None
    subject = knowledge.find_subject(topic.id, ref.slug or "") if ref.slug else None
    if subject is not None and (has_disabled or not subject.disabled):
        return subject.file
    path = os.path.join(str(workspace.root), topic.subjects, f"{ref.slug}.md")  # noqa: PTH118
    return os.path.normpath(path) if ref.slug and subject is None else None


def split_file_name_and_line_range(
    workspace: Workspace, name: str, directory: str | None = None
) -> tuple[str, LineRange | None]:
    """Split text such as `src/a.py:12-20` into the name of the file and the lines (None if no lines are given).

    If the text before the last colon is the name of an existing file, relative to `directory` or to
    the workspace, the text after the colon counts as a range. Raises `UsageError` for an invalid
    range.
    """
    bases = [base for base in (directory, str(workspace.root)) if base]

    def is_file(name: str) -> bool:
        if "\0" in name:
            return False
        return any(os.path.isfile(os.path.join(base, name)) for base in bases)  # noqa: PTH113, PTH118

    path, lines = split_slug_and_line_range(name)
    before, colon, after = name.rpartition(":")
    if lines is None and colon and is_file(before) and not is_file(name):
        hint = "write FILE:12 for a line or FILE:12-20 for several; the first line is 1"
        raise UsageError(f"{after!r} is not a valid range of lines", where=name, hint=hint)
    return path, LineRange(*lines) if lines else None


_PROBLEMS_NAMED_MAX = 3


def describe_incompletely_read_conversations(problems: Mapping[str, str]) -> str:
    """Return a sentence about the conversations that cannot be read completely, with the reasons."""
    count = format_counted_noun(len(problems), "conversation")
    parts = [f"{id_}: {problem}" for id_, problem in problems.items()]
    more = len(parts) - _PROBLEMS_NAMED_MAX
    named = parts[:_PROBLEMS_NAMED_MAX] + ([f"and {more:,} more"] if more > 0 else [])
    return f"{count} could not be read completely: {'; '.join(named)}"


def resolve_file_name(workspace: Workspace, name: str, directory: str | None = None) -> str:
    """Return the path of the file that a user entered as `name`, in the form that turn actions use.

    `name` is relative to `directory` or to the workspace. Raises `UsageError` if it is not a path.
    """
    shorten_path = make_path_shortener(workspace)
    return _resolve_path_entered_by_user(str(workspace.root), name, directory, shorten_path)


class _FileNameHistory:
    """The paths that a file has had, each with the time when the next path replaced it (None for the current path)."""

    def __init__(self, path: str) -> None:
        self.until: dict[str, float | None] = {path: None}

    def add_earlier_name(self, name: str, until: float | None) -> None:
        """Add a name that the file had until the time `until`, unless the name is known."""
        self.until.setdefault(name, until)

    def had_name_at(self, name: str | None, time: datetime | None) -> bool:
        """Return whether the file had this name at this time."""
        if name is None or name not in self.until:
            return False
        until = self.until[name]
        return until is None or time is None or time.timestamp() <= until + CLOCK_SECONDS


def _resolve_path_entered_by_user(
    root: str, name: str, directory: str | None, shorten_path: Callable[[str], str]
) -> str:
    """Return the path of the file that a user entered as `name`.

    The path is relative to the workspace if the file is in the workspace.
    """
    name = name.removeprefix("file://")
    if not name.strip() or "\0" in name:
        raise UsageError("this is not the path of a file", where=name)
    candidates = [os.path.join(base, name) for base in (directory, root) if base]  # noqa: PTH118
    # A name such as ../a.py can only be relative to the directory, even if the file no longer exists.
    default = candidates[0] if name.startswith(("./", "../")) else candidates[-1]
    checks = (os.path.isfile, os.path.exists)
    existing = (one for is_there in checks for one in candidates if is_there(one))
    return shorten_path(os.path.normpath(next(existing, default)))


def _make_path_relative_to_directory(path: str, prefix: str) -> str | None:
    if not prefix:
        return path
    return path[len(prefix) + 1 :] if path.startswith(f"{prefix}/") else None


def _find_turns_with_actions_on_file(
    workspace: Workspace, names: _FileNameHistory, shorten_path: Callable[[str], str]
) -> tuple[list[TurnTouchingFile], dict[str, str]]:
    """Return the turns that acted on a file, newest first, and a mapping from conversation ids to problems.

    If a turn moved the file, the file's earlier path is added to `names`.
    """
    from kbtui.conversations.conversation_repository import list_conversations

    infos = list_conversations(workspace, counts=False)
    find_committed_text = _make_finder_of_committed_text_at_time(workspace)

    learned = _LearnToolReadFinder(workspace, shorten_path)

    def find_committed_text_of_file(path: str, time: datetime | None) -> str | None:
        is_named = find_committed_text is not None and names.had_name_at(path, time)
        return find_committed_text(path, time) if find_committed_text and is_named else None

    read: dict[str, list[tuple[Turn, TurnFileAction]]] = {}
    conversations: dict[str, Conversation] = {}
    before: set[str] = set()
    while (wanted := set(names.until)) != before:
        before = wanted
        scan = _ConversationsNamingFileFilter(
            wanted | learned.add_possible_subject_paths_and_list_their_names(wanted)
        )
        for info in infos:
            if info.id not in read and scan.may_conversation_contain_name(info):
                conversations[info.id], read[info.id] = _load_conversation_with_file_actions(
                    info,
                    shorten_path,
                    find_committed_text_of_file,
                    learned.iterate_learned_file_reads,
                )
        for actions in read.values():
            for _, action in reversed(actions):
                if (
                    action.kind == "moved"
                    and action.old_path
                    and names.had_name_at(action.path, action.time)
                ):
                    names.add_earlier_name(
                        action.old_path, action.time.timestamp() if action.time else None
                    )
    turns = [
        turn
        for id_, actions in read.items()
        for turn in _group_file_actions_by_turn(conversations[id_], actions, names)
    ]
    problems = {
        info.id: problem
        for info in infos
        if (
            problem := conversations[info.id].describe_problems()
            if info.id in read
            else info.problem
        )
    }

    def make_sort_key(turn: TurnTouchingFile) -> tuple[float, str, int]:
        return turn.time.timestamp() if turn.time else 0.0, turn.conversation, turn.turn

    return sorted(turns, key=make_sort_key, reverse=True), problems


def _load_conversation_with_file_actions(
    info: ConversationInfo,
    shorten_path: Callable[[str], str],
    find_earlier_text: FindEarlierText,
    iterate_learned_files: Callable[[Turn], Iterable[TurnFileAction]],
) -> tuple[Conversation, list[tuple[Turn, TurnFileAction]]]:
    from kbtui.citations.turn_file_actions_and_commands import list_file_actions
    from kbtui.conversations.conversation_repository import load_conversation

    conversation = load_conversation(info)
    actions = list_file_actions(
        conversation.turns,
        info.working_directory,
        shorten_path,
        find_earlier_text=find_earlier_text,
    )
    found = list(actions)
    found += ((turn, one) for turn in conversation.turns for one in iterate_learned_files(turn))
    return conversation, sorted(found, key=lambda one: (one[0].number, one[1].event))


class _LearnToolReadFinder:
    """Finds the subject files that turns read with the tool `learn`."""

    def __init__(self, workspace: Workspace, shorten_path: Callable[[str], str]) -> None:
        self._workspace, self._shorten_path = workspace, shorten_path
        self._path_of_stem: dict[str, str] = {}

    @cached_property
    def _citation_target_lookup(self) -> CitationTargetLookup | None:
        from kbtui.citations.tool_call_citations import CitationTargetLookup
        from kbtui.index.entry_and_chunk_data_types import make_subject_id
        from kbtui.knowledge import load_knowledge

        try:
            return CitationTargetLookup(load_knowledge(self._workspace), {}, make_subject_id)
        except KbtuiError:  # the configuration of the topics is invalid
            return None

    def add_possible_subject_paths_and_list_their_names(self, paths: Iterable[str]) -> set[str]:
        """Add the paths that may belong to subjects, and return the names by which `learn` calls can refer to these subjects.

        A name is the last part of a subject's slug. Paths are relative to the workspace. Call this method
        before `iterate_learned_file_reads`, which uses the added paths.
        """
        topics = (
            self._citation_target_lookup.knowledge.topics.values()
            if self._citation_target_lookup
            else ()
        )
        slugs = set()
        for path in paths:
            stem = os.path.splitext(path)[0]  # noqa: PTH122
            if any(
                _make_path_relative_to_directory(path, os.path.normpath(one.subjects))
                for one in topics
            ):
                self._path_of_stem[stem] = path
                slugs.add(os.path.basename(stem).removeprefix("."))  # noqa: PTH119
        return slugs

    def iterate_learned_file_reads(self, turn: Turn) -> Iterator[TurnFileAction]:
        """Yield a "read" action for each file whose text was returned by a `learn` call in `turn`."""
        from kbtui.citations.tool_call_citations import list_subjects_learned_by_call

        if not self._path_of_stem or self._citation_target_lookup is None:
            return
        for event in turn.events:
            for topic, slug in list_subjects_learned_by_call(event, self._citation_target_lookup):
                if (path := self._find_learned_subject_path(topic, slug)) is not None:
                    time = event.timestamp or turn.started_at
                    yield TurnFileAction("read", path, event.call, event.index, time=time)

    def _find_learned_subject_path(self, topic: str, slug: str) -> str | None:
        assert self._citation_target_lookup is not None
        if (subject := self._citation_target_lookup.find_subject(topic, slug)) is not None:
            return self._shorten_path(subject.file)
        known = self._citation_target_lookup.knowledge.topics.get(topic)
        stem = os.path.normpath(os.path.join(known.subjects, slug)) if known else ""  # noqa: PTH118
        return self._path_of_stem.get(stem)


def _group_file_actions_by_turn(
    conversation: Conversation,
    actions: Iterable[tuple[Turn, TurnFileAction]],
    names: _FileNameHistory,
) -> Iterator[TurnTouchingFile]:
    info = conversation.info
    by_turn: dict[int, tuple[Turn, list[TurnFileAction]]] = {}
    for turn, action in actions:
        if names.had_name_at(action.path, action.time) or names.had_name_at(
            action.old_path, action.time
        ):
            by_turn.setdefault(turn.number, (turn, []))[1].append(action)
    for number, (turn, found) in by_turn.items():
        requests = (event.text for event in turn.events if event.kind == "chat_request")
        times = [action.time for action in found if action.time is not None]
        yield TurnTouchingFile(
            info.id,
            info.name,
            info.agent,
            number,
            next(requests, ""),
            turn.is_rewound,
            max(times) if times else turn.started_at or info.last_event_at,
            tuple(found),
        )


class _ConversationsNamingFileFilter:
    """Finds the conversations that may contain the name of a file, without parsing them.

    Searching the bytes of a conversation's file is faster than parsing the file. JP stores the
    arguments of calls in base64, where a name takes one of three forms, depending on its position
    in a group of three bytes.
    """

    def __init__(self, names: Iterable[str]) -> None:
        import base64
        import json

        plain: set[bytes] = set()
        coded_texts: set[bytes] = set()
        for name in {os.path.basename(name) for name in names}:  # noqa: PTH119
            data = name.encode("utf-8", "surrogateescape")
            escaped = (json.dumps(name, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
            plain |= {text.encode("utf-8", "surrogatepass") for text in escaped}
            for shift in range(3):
                coded = base64.b64encode(b"\0" * shift + data)
                # The outer groups also contain bits of the neighbouring characters.
                first, left_out = (0, 2, 3)[shift], (0, 3, 2)[(len(data) + shift) % 3]
                coded_texts.add(coded[first : len(coded) - left_out])
        self._plain = sorted(plain)
        self._plain_and_coded = [*self._plain, *sorted(coded_texts)]
        self._is_too_short = any(len(needle) < 3 for needle in self._plain_and_coded)

    def may_conversation_contain_name(self, info: ConversationInfo) -> bool:
        """Return whether a conversation may contain one of the names.

        The result is also True if the conversation's file cannot be searched, or if its end seems to
        be missing, because the rest of the conversation could contain a name.
        """
        from kbtui.file_reading_and_writing import iterate_regular_file_blocks

        path = info.events_path
        suffix = path.suffix if path else ""
        is_scanned = info.agent in SCANNED_AGENTS and suffix in SCANNED_SUFFIXES
        if not is_scanned or self._is_too_short:
            return True
        needles = self._plain_and_coded if info.agent == "jp" else self._plain
        overlap = max(map(len, needles)) - 1
        try:
            rest = b""
            for block in iterate_regular_file_blocks(str(path)):
                data = rest + block
                if any(needle in data for needle in needles):
                    return True
                rest = data[-overlap:]
        except OSError:
            return True
        is_cut_off = bool(rest) and not rest.rstrip().endswith((b"]", b"}"))
        return is_cut_off and suffix != ".md"


class _LineWriterFinder:
    """Finds out which of the edits that turns made to one file wrote given lines."""

    def __init__(self, turns: list[TurnTouchingFile]) -> None:
        self._turns = turns
        self._edits: list[tuple[FileEdit, TurnTouchingFile, TurnFileAction]] = [
            (edit, turn, action)
            for turn in reversed(turns)
            for action in turn.actions
            for edit in action.edits
        ]
        # Two conversations can change a file at the same time.
        self._edits.sort(key=lambda one: self._get_action_time(one[2]))

    @staticmethod
    def _get_action_time(action: TurnFileAction) -> float:
        return action.time.timestamp() if action.time else 0.0

    def find_edits_that_wrote_lines(
        self,
        history: GitHistory | None,
        lines: list[str],
        wanted: Iterable[int],
        origins: dict[int, LineOrigin],
    ) -> dict[int, int]:
        """Map the index of each wanted line to the index of the edit that wrote it.

        Lines that no turn wrote are left out. For a line from a commit, the committed text is
        compared with the edits before the commit. For any other line, the current text is compared
        with all edits.
        """
        from kbtui.citations.line_attribution import attribute_lines_to_edits

        edits = [edit for edit, _, _ in self._edits]
        wanted = list(wanted)
        found = attribute_lines_to_edits(
            lines, [one for one in wanted if one not in origins], edits
        )
        by_commit: dict[tuple[str, str, int], dict[int, int]] = {}
        for index in wanted:
            if (origin := origins.get(index)) is not None:
                key = origin.commit, origin.path, origin.time
                by_commit.setdefault(key, {})[origin.line - 1] = index
        for (commit, path, time), places in by_commit.items():
            text = history.read_file(commit, path) if history is not None else None
            if text is None:
                continue
            committed = split_lines(text)
            limit = time + CLOCK_SECONDS
            count = sum(self._get_action_time(action) <= limit for _, _, action in self._edits)
            # Later edits cannot be in the commit, even if they wrote the same text.
            written = attribute_lines_to_edits(committed, places, edits[:count])
            found |= {places[line]: edit for line, edit in written.items()}
        return found

    def group_written_lines_by_turn(self, writers: dict[int, int]) -> list[TurnTouchingFile]:
        """Return the turns that wrote lines, newest first, each with these lines and the actions that wrote them."""
        lines: dict[tuple[str, int], list[int]] = {}
        actions: dict[tuple[str, int], list[TurnFileAction]] = {}
        for line, number in sorted(writers.items()):
            _, turn, action = self._edits[number]
            key = turn.conversation, turn.turn
            lines.setdefault(key, []).append(line)
            if action not in actions.setdefault(key, []):
                actions[key].append(action)
        return [
            turn._replace(
                actions=tuple(one for one in turn.actions if one in actions[key]),
                lines=tuple(_group_lines_into_ranges(lines[key])),
            )
            for turn in self._turns
            if (key := (turn.conversation, turn.turn)) in lines
        ]


def _group_lines_into_ranges(indices: Iterable[int]) -> list[LineRange]:
    """Return the ranges of lines with these indices, which are zero-based and in ascending order."""
    found: list[LineRange] = []
    for index in indices:
        if found and found[-1].last == index:
            found[-1] = LineRange(found[-1].first, index + 1)
        else:
            found.append(LineRange(index + 1, index + 1))
    return found


def _read_file_lines(path: str, name: str) -> list[str]:
    from kbtui.file_reading_and_writing import read_regular_file

    try:
        return split_lines(read_regular_file(path, FILE_BYTES_MAX).decode("utf-8", "replace"))
    except FileNotFoundError as error:
        hint = "without line numbers, kbtui lists the turns that read or changed the file"
        raise NothingFound("there is no such file", where=name, hint=hint) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise NothingFound(f"cannot be read: {reason.lower()}", where=name) from error


def _cut_line_range_at_end_of_file(lines: LineRange, count: int, name: str) -> LineRange:
    """Return a range of lines, cut at the end of the file.

    Raises `UsageError` for an invalid range, and `NothingFound` if the file contains none of the
    lines.
    """
    if not 1 <= lines.first <= lines.last:
        raise UsageError("lines are written as 12 or 12-20", where=name)
    if lines.first > count:
        noun = "line" if count == 1 else "lines"
        raise NothingFound(f"the file has {count:,} {noun}", where=name)
    return LineRange(lines.first, min(lines.last, count))


def _map_lines_to_origin_commits(
    history: GitHistory | None, path: str, lines: list[str]
) -> dict[int, LineOrigin]:
    """Map the index of each line to the commit that it comes from. Lines that differ from the current commit are left out."""
    from difflib import SequenceMatcher

    origins = history.list_line_origins(path) if history is not None else []
    if history is None or not origins:
        return {}
    committed = split_lines(history.read_file("HEAD", path) or "")
    if committed == lines:
        return dict(enumerate(origins[: len(lines)]))
    matcher = SequenceMatcher(None, committed, lines, autojunk=False)
    return {
        block.b + step: origins[block.a + step]
        for block in matcher.get_matching_blocks()
        for step in range(block.size)
        if block.a + step < len(origins)
    }


def _group_lines_not_written_by_turns(
    indices: list[int], origins: dict[int, LineOrigin]
) -> list[LinesNotWrittenByTurns]:
    """Group the lines with these indices, which no turn wrote: each range comes from a single commit.

    The indices are zero-based and in ascending order.
    """
    found: list[LinesNotWrittenByTurns] = []
    for index in indices:
        origin = origins.get(index)
        commit = origin.commit if origin else None
        if found:
            lines, last = found[-1]
            if lines.last == index and (last.commit if last else None) == commit:
                found[-1] = LinesNotWrittenByTurns(LineRange(lines.first, index + 1), last)
                continue
        found.append(LinesNotWrittenByTurns(LineRange(index + 1, index + 1), origin))
    return found
