"""Checks a workspace and its environment for `kbtui doctor` and the doctor screen."""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbtui.errors import EngineUnavailableError, KbtuiError, WorkspaceError
from kbtui.light_named_tuple import NamedTuple
from kbtui.notices import Notice, format_embedded_percentages, format_notice
from kbtui.terminal_text import format_counted_noun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.metadata import Distribution

    from packaging.requirements import Requirement

    from kbtui.conversations.conversation_data_types import ConversationInfo
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import KnowledgeProblem, Subject
    from kbtui.knowledge.knowledge_lint import LearnToolProblem
    from kbtui.library.workspace_library import Library


FindingState = Literal["ok", "note", "wrong"]
FindingCode = Literal[
    "agent", "agents_missing", "archive_counted", "archive_damaged", "check_failed", "colours_limited", "colours_off",
    "conversation_damaged", "conversation_with_unknown_events", "conversations_checked_when_indexed",
    "conversations_counted", "conversations_trashed", "conversations_unchecked",
    "directory_not_writable", "directory_skipped", "directory_unreadable", "disk_full",
    "embedding_paused", "embedding_unfinished",
    "engine_cannot_start", "engine_not_running", "engine_polling", "engine_running", "engine_silent",
    "engine_without_workspace",
    "environment_directory_missing", "format_unusable", "hard_links", "index_counted",
    "index_damaged", "keywords_only", "knowledge_counted", "learn_tool_missing", "learn_tool_outdated",
    "learn_tool_unneeded", "library_mirrored", "library_problem", "locale_not_utf8", "marks_unusable", "model_off", "model_ready", "model_unavailable",
    "not_installed", "package_incomplete", "package_missing", "package_version",
    "packages_installed", "problem", "query_log_unusable", "refresh_failed", "settings",
    "source_not_approved", "source_run_failed", "source_topic_unknown", "sources_counted",
    "user_data_unusable",
    "standard_output_not_terminal", "term_not_set", "term_unusable", "terminal",
    "terminal_too_small", "tmux_clipboard", "unavailable", "unknown_agent", "workspace",
    "workspace_gone", "workspace_id_missing", "workspace_pointer_broken", "workspace_without_jp",
]  # fmt: skip
FindingValues = Mapping[str, str | int | list[str] | None]
"""Maps the name of each fact in a finding's message to its value."""


def _format_knowledge_counts(values: Any) -> str:
    counts = [_format_count_finding(values, "topic"), _format_count_finding(values, "subject")]
    counts += [f"{values[name]:,} {name}" for name in ("hidden", "disabled") if values[name]]
    return ", ".join(counts)


def _format_conversation_counts(values: Any) -> str:
    nested = f", {values['nested']:,} within other conversations" if values["nested"] else ""
    return (
        f"{_format_count_finding(values, 'conversation')}, {values['archived']:,} archived{nested}"
    )


def _format_agent_finding(values: Any) -> str:
    from kbtui.conversations.conversation_repository import AgentDirectoriesAndConversationCounts

    places = ", ".join(values["directories"]) or "no directory"
    conversations = AgentDirectoriesAndConversationCounts(**values).describe_conversation_counts()
    return f"{values['label']} ({values['name']}), {places}: {conversations}"


def _format_kept_session_counts(values: Any) -> str:
    kept = format_counted_noun(values["kept"], "kept session")
    return (
        f"{kept} (originals deleted by the agent: {values['only_kept']:,}); "
        f"{values['bytes']:,} bytes on disk in {values['directory']}"
    )


def _format_count_finding(values: Any, noun: str) -> str:
    return format_counted_noun(values[f"{noun}s"], noun)


def _format_index_counts(values: Any) -> str:
    subjects = _format_count_finding(values, "subject")
    conversations = _format_count_finding(values, "conversation")
    passages = format_counted_noun(values["chunks"], "passage")
    citations = _format_count_finding(values, "citation")
    return f"{subjects} (without disabled ones), {conversations}, {passages}, {citations}"


def _format_keywords_only_finding(values: Any) -> str:
    text = format_notice(Notice("keywords_only", values)).removeprefix("keywords only: ")
    return f"no search by meaning: {text}" + (f"; {values['hint']}" if values.get("hint") else "")


def _format_settings_file_and_non_default_settings(values: Any) -> str:
    changed = ", ".join(values["changed"])
    state = (
        f"changed from the default: {changed}" if changed else "all settings are at their defaults"
    )
    return f"{values['file'] or 'no file'}; {state}"


FINDING_TEXTS: dict[FindingCode, str | Callable[[Any], str]] = {
    "agent": _format_agent_finding,
    "agents_missing": "no agent has conversations on this machine",
    "archive_counted": _format_kept_session_counts,
    "archive_damaged": "{file}: skipped: {detail}",
    "check_failed": "the check failed: {detail}",
    "colours_limited": "the terminal does not announce 24-bit colour (COLORTERM=truecolor): kbtui uses the nearest of 256 colours",
    "colours_off": "NO_COLOR is set, so kbtui shows no colours",
    "conversation_damaged": "{ref}: {detail}",
    "conversation_with_unknown_events": "{ref}: the conversation contains {detail}",
    "conversations_checked_when_indexed": lambda values: (
        f"already checked during indexing: {_format_count_finding(values, 'conversation')}"
    ),
    "conversations_counted": _format_conversation_counts,
    "conversations_trashed": lambda values: (
        f"{values['directory']}: skipped: {_format_count_finding(values, 'conversation')} that JP could not read; the file TRASHED.md in each conversation's directory says why"
    ),
    "conversations_unchecked": lambda values: (
        f"{_format_count_finding(values, 'conversation')} not indexed yet and not checked; run `kbtui index`, then `kbtui doctor` again"
    ),
    "directory_not_writable": "the directory of the {name} is not writable: {directory}",
    "directory_skipped": "{directory}: skipped: {detail}",
    "directory_unreadable": "{directory}: unreadable: {detail}",
    "disk_full": "only {megabytes} MB free for the index in {directory}",
    "embedding_paused": lambda values: (
        f"embedding is paused, with {_format_count_finding(values, 'passage')} left; `kbtui engine continue` continues it"
    ),
    "embedding_unfinished": lambda values: (
        f"{_format_count_finding(values, 'passage')} not embedded yet"
        + (f" ({values['detail']} done)" if values["detail"] else "")
    ),
    "engine_cannot_start": "the engine cannot start: {detail}",
    "engine_not_running": "not running; a search or the TUI starts it",
    "engine_polling": "the engine polls the files every second: {detail}",
    "engine_running": "running as process {process}",
    "engine_without_workspace": "running as process {process}; this workspace is not open yet; the next search, or starting the TUI, will open it",
    "engine_silent": "the engine does not answer: {detail}",
    "environment_directory_missing": "{variable} names {directory}, which is not an existing directory",
    "format_unusable": "the format {name!r}, which an installed package provides, cannot be loaded: {detail}",
    "hard_links": "{ref}: the file has other hard links, perhaps outside the workspace; an editor breaks these links if it replaces the file on saving",
    "index_counted": _format_index_counts,
    "index_damaged": "{detail}; `kbtui index` rebuilds the index",
    "keywords_only": _format_keywords_only_finding,
    "knowledge_counted": _format_knowledge_counts,
    "learn_tool_missing": "{file} is missing, but topics have subjects to learn; `kbtui tools install` writes it",
    "learn_tool_outdated": "{file} is out of date: the topics that it describes have changed; `kbtui tools install` updates it, or shows what is new if you have edited it",
    "learn_tool_unneeded": "{file} offers `learn`, but no topic has a subject to learn; `kbtui tools install` updates it",
    "library_mirrored": lambda values: _format_published_library_finding(values),
    "library_problem": "{remote}: {detail}",
    "locale_not_utf8": "the locale's encoding is {encoding}: some characters cannot be shown; try LANG=C.UTF-8",
    "marks_unusable": "marks are not shown: {detail}",
    "model_off": "switched off in the settings, so search uses keywords only",
    "model_ready": lambda values: (
        values["model"] or "all-MiniLM-L6-v2, installed with kbtui; its files are intact"
    ),
    "model_unavailable": "search uses keywords only: {detail}",
    "not_installed": "kbtui is not installed as a package, so its requirements are unknown",
    "package_incomplete": "{package} is incomplete ({file} is missing); run: {command}",
    "package_missing": "{package} is not installed, but {needed_by} needs it; run: {command}",
    "package_version": "{package} {version} is installed, but {needed_by} needs {wanted}; run: {command}",
    "packages_installed": "all {packages} required packages are installed",
    "problem": "{detail}",
    "query_log_unusable": "searches are not logged: {detail}",
    "refresh_failed": "the last refresh failed: {detail}",
    "settings": _format_settings_file_and_non_default_settings,
    "source_not_approved": "{name}: not approved, so it never runs; `kbtui source approve {name}` shows it and asks for approval",
    "source_run_failed": "{name}: the last run ended with status {status}: {detail}",
    "source_topic_unknown": "{name}: unknown topic {topic!r}",
    "sources_counted": lambda values: _format_count_finding(values, "source"),
    "standard_output_not_terminal": "standard output is not a terminal: commands print plain text, and the TUI cannot start",
    "term_not_set": "TERM is not set: the TUI cannot start; a common value is xterm-256color",
    "term_unusable": "TERM is {name}: the TUI cannot start; a common value is xterm-256color",
    "terminal": "{name}, {columns} columns, {rows} rows",
    "terminal_too_small": "the terminal is too small: the panes need {columns} columns and {rows} rows",
    "tmux_clipboard": "copying needs this tmux setting: set -g set-clipboard on",
    "unavailable": "{detail}",
    "unknown_agent": "`agents` in the table [conversations] names {name!r}, which kbtui cannot read; {detail}",
    "workspace": "{directory}",
    "workspace_gone": "{directory} was moved or deleted",
    "user_data_unusable": "bookmarks, saved searches and approvals of sources cannot be read: {detail}",
    "workspace_id_missing": ".jp/.id is missing or invalid, so conversations in JP's user directory are not found",
    "workspace_pointer_broken": "the file {file} names {directory} as JP's directory, but there is no such directory; write the correct path into the file",
    "workspace_without_jp": "{directory}, no JP workspace; topics and sources are declared in {configuration}",
}
"""Maps each finding's code to a message with placeholders, or to a function that makes the message from the values."""


class DiagnosticFinding(NamedTuple):
    """One finding of a check. `ref` is the reference of the subject or conversation that the finding is about, if any."""

    area: str
    state: FindingState
    code: FindingCode
    values: FindingValues = {}  # noqa: RUF012  (nobody changes it)
    ref: str | None = None

    @property
    def message(self) -> str:
        """The human-readable text of the finding."""
        text = FINDING_TEXTS[self.code]
        if not isinstance(text, str):
            return text(self.values)
        return text.format(**self.values, ref=self.ref)


FindingWithoutArea = (
    tuple[FindingState, FindingCode]
    | tuple[FindingState, FindingCode, FindingValues]
    | tuple[FindingState, FindingCode, FindingValues, str | None]
)
"""The fields of a `DiagnosticFinding` after `area`. `values` and `ref` may be left out."""
MIN_TERMINAL_SIZE = (60, 15)
"""The smallest terminal, as (columns, rows), in which all panes of the TUI have enough space."""
READING_SECONDS = 1.0
"""The doctor spends at most this many seconds reading conversations.

For the remaining conversations, the doctor reports the errors that are recorded in the index.
"""
READING_BYTES = 8 << 20
"""If an indexed conversation has more than this many bytes, the doctor does not read it.

Instead, the doctor reports the error that is recorded in the index.
"""
_ENTRIES_AT_ONCE = 10_000
MIN_FREE_BYTES = 300_000_000
"""If fewer than this many bytes are free on the index's disk, the doctor reports a problem."""


def _diagnose_terminal(library: Library | None) -> Iterator[FindingWithoutArea]:
    import locale
    import shutil

    name = os.environ.get("TERM", "")
    if sys.__stdout__ is None or not sys.__stdout__.isatty():
        yield "note", "standard_output_not_terminal"
    elif not name:
        yield "wrong", "term_not_set"
    elif name in {"dumb", "unknown"}:
        yield "wrong", "term_unusable", {"name": name}
    else:
        columns, rows = shutil.get_terminal_size()
        values: FindingValues = {"name": name, "columns": columns, "rows": rows}
        yield "ok", "terminal", values
        wide, high = MIN_TERMINAL_SIZE
        if columns < wide or rows < high:
            yield "note", "terminal_too_small", {"columns": wide, "rows": high}
    if os.environ.get("NO_COLOR"):
        yield "note", "colours_off"
    elif os.environ.get("COLORTERM") not in {"truecolor", "24bit"}:
        yield "note", "colours_limited"
    encoding = locale.getencoding()
    if encoding.lower().replace("-", "") != "utf8":
        yield "wrong", "locale_not_utf8", {"encoding": encoding}
    if os.environ.get("TMUX"):
        yield "note", "tmux_clipboard"


def _report_settings_file_and_non_default_settings(
    library: Library | None,
) -> Iterator[FindingWithoutArea]:
    from kbtui.workspace.user_settings import get_settings_path, list_settings_with_origins

    changed = [one.key.name for one in list_settings_with_origins() if one.origin != "default"]
    file = str(get_settings_path()) if get_settings_path().exists() else None
    yield "ok", "settings", {"file": file, "changed": changed}


def _diagnose_packages(library: Library | None) -> Iterator[FindingWithoutArea]:
    """Check that every required package is installed and complete, and has a suitable version."""
    from email.parser import HeaderParser
    from importlib.metadata import PackageNotFoundError, distribution, requires

    from packaging.utils import canonicalize_name

    try:
        waiting = [(_parse_requirement(text), "", "kbtui") for text in requires("kbtui") or []]
    except PackageNotFoundError:
        yield "note", "not_installed"
        return
    seen: dict[str, set[str]] = {}
    is_complete = True

    def make_package_finding_values(install: str, **values: str) -> FindingValues:
        command = f"{sys.executable} -m pip install {install}"
        return {"package": wanted.name, "needed_by": by, "command": command, **values}

    @functools.cache
    def find_distribution(name: str) -> tuple[Distribution, str, list[str]] | None:
        """Return an installed distribution with its version and requirements, or None."""
        try:
            found = distribution(name)
        except PackageNotFoundError:
            return None
        # `Distribution.version` and `Distribution.requires` would each also parse the README after the fields.
        if text := found.read_text("METADATA"):
            fields = HeaderParser().parsestr(text.partition("\n\n")[0])
            return found, fields["Version"] or "", fields.get_all("Requires-Dist") or []
        return found, found.version, found.requires or []

    while waiting:
        wanted, extra, by = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        fresh = {"", *map(canonicalize_name, wanted.extras)} - seen.setdefault(name, set())
        seen[name] |= fresh
        exact = f"'{wanted.name}{wanted.specifier}'"
        installed = find_distribution(wanted.name)
        if installed is None:
            if fresh:
                is_complete = False
                yield "wrong", "package_missing", make_package_finding_values(exact)
            continue
        found, version, requirements = installed
        if fresh:
            needs = [_parse_requirement(text) for text in requirements]
            waiting += [(one, each, wanted.name) for one in needs for each in sorted(fresh)]
        if not wanted.specifier.contains(version, prereleases=True):
            is_complete = False
            values = make_package_finding_values(
                exact, version=version, wanted=str(wanted.specifier)
            )
            yield "note", "package_version", values
        if "" in fresh and (gone := _find_missing_module_file_of_distribution(found)):
            is_complete = False
            install = f"--force-reinstall --no-deps {wanted.name}=={version}"
            yield "wrong", "package_incomplete", make_package_finding_values(install, file=gone)
    if is_complete:
        yield "ok", "packages_installed", {"packages": len(seen)}


@functools.cache
def _parse_requirement(text: str) -> Requirement:
    """Parse a package requirement. The result is cached for the lifetime of the process."""
    from packaging.requirements import Requirement

    return Requirement(text)


def _find_missing_module_file_of_distribution(found: Distribution) -> str | None:
    """Return the name of the first missing module file of a distribution, or None."""
    # `Distribution.files` would take 0.3 s for torch, and a loop over all lines 0.02 s.
    record = found.read_text("RECORD") or ""
    for line in re.finditer(r"^([^/,\n]+(?:/__init__\.py|\.py|\.so))(?:,|$)", record, re.MULTILINE):
        if not Path(str(found.locate_file(line[1]))).exists():
            return line[1]
    return None


def _diagnose_workspace(library: Library) -> Iterator[FindingWithoutArea]:
    import shutil

    from kbtui.userdata.turn_mark_store import MarkStore
    from kbtui.userdata.user_data_store import UserData
    from kbtui.workspace import paths

    workspace = library.workspace
    directory = str(workspace.root)
    if not workspace.root.is_dir():
        yield "wrong", "workspace_gone", {"directory": directory}
        return
    if not workspace.is_jp_workspace:
        configuration = workspace.kbtui_directory.name
        values: FindingValues = {"directory": directory, "configuration": configuration}
        yield "ok", "workspace_without_jp", values
        if target := paths.read_jp_pointer_file(directory):
            file = str(workspace.root / paths.JP_DIRECTORY)
            yield "wrong", "workspace_pointer_broken", {"file": file, "directory": target}
    else:
        yield "ok", "workspace", {"directory": directory}
    if workspace.is_jp_workspace and workspace.id is None:
        yield "note", "workspace_id_missing"
    directories = {
        "index": workspace.cache_dir,
        "query log": workspace.user_data_directory,
        "log": Path(paths.get_kbtui_state_directory()),
    }
    for name, folder in directories.items():
        existing = _find_nearest_existing_directory(folder)
        if not os.access(existing, os.W_OK | os.X_OK):
            yield "wrong", "directory_not_writable", {"name": name, "directory": str(existing)}
    existing = _find_nearest_existing_directory(workspace.cache_dir)
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_BYTES:
        values = {"megabytes": free // 1_000_000, "directory": str(existing)}
        yield "note", "disk_full", values
    try:
        if library.settings.query_log:
            UserData(workspace).query_log.file.check_database_file()
    except WorkspaceError as error:
        yield "wrong", "query_log_unusable", {"detail": str(error)}
    try:
        UserData(workspace).file.check_database_file()
    except WorkspaceError as error:
        yield "wrong", "user_data_unusable", {"detail": str(error)}
    try:
        MarkStore(workspace).check_marks_are_readable()
    except WorkspaceError as error:
        yield "wrong", "marks_unusable", {"detail": str(error)}


def _find_nearest_existing_directory(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())


def run_diagnostics(library: Library | None) -> Iterator[DiagnosticFinding]:
    """Run the checks of all areas and yield their findings. Does not start an engine.

    If `library` is None, only the checks that need no workspace are run. The other checks read every
    visible subject, and read conversations for at most `READING_SECONDS` seconds.
    """
    for area, check in (_WORKSPACE_CHECKS if library is not None else _ENVIRONMENT_CHECKS).items():
        try:
            for finding in check(library):  # type: ignore[arg-type]
                yield DiagnosticFinding(area, *finding)
        except (KbtuiError, OSError) as error:
            yield DiagnosticFinding(area, "wrong", "check_failed", {"detail": str(error)})


def _diagnose_knowledge(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.knowledge import knowledge_lint

    knowledge = library.load_knowledge()
    subjects = [one for topic in knowledge.topics for one in knowledge.list_subjects(topic)]
    hidden = sum(subject.hidden for subject in subjects)
    counts = {
        "topics": len(knowledge.topics),
        "subjects": len(subjects) - hidden,
        "hidden": hidden,
        "disabled": sum(subject.disabled for subject in subjects),
    }
    yield "ok", "knowledge_counted", counts
    for problem in knowledge.problems:
        yield "wrong", "problem", {"detail": str(problem)}
    for problem in knowledge_lint.lint_knowledge(knowledge):
        ref = _find_subject_ref_of_knowledge_problem(knowledge, problem)
        yield "note", "problem", {"detail": str(problem)}, ref
    for subject in subjects:
        if not subject.disabled and _has_hard_links(subject):
            yield "note", "hard_links", {}, subject.ref
    yield from _diagnose_installed_learn_tool(library, knowledge)


def _has_hard_links(subject: Subject) -> bool:
    try:
        return subject.path.stat().st_nlink > 1
    except OSError:
        return False


def _diagnose_installed_learn_tool(
    library: Library, knowledge: KnowledgeBase
) -> Iterator[FindingWithoutArea]:
    """Check that the installed definition of `learn` describes the current topics."""
    from kbtui.knowledge.knowledge_lint import LEARN_TOOL_FILE, find_installed_learn_tool_problem

    codes: dict[LearnToolProblem, FindingCode] = {
        "missing": "learn_tool_missing",
        "outdated": "learn_tool_outdated",
        "unneeded": "learn_tool_unneeded",
    }
    if problem := find_installed_learn_tool_problem(library.workspace.root, knowledge):
        yield "note", codes[problem], {"file": LEARN_TOOL_FILE}


def _find_subject_ref_of_knowledge_problem(
    knowledge: KnowledgeBase, problem: KnowledgeProblem
) -> str | None:
    topic, place = problem.topic, problem.where or ""
    if topic is None or not place.startswith(f"{topic}/"):
        return None
    return place if knowledge.find_subject(topic, place[len(topic) + 1 :]) else None


def _diagnose_conversations(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.conversations.conversation_repository import (
        count_conversations_in_agent_trash_directories,
        find_skipped_conversation_paths,
    )

    infos = library.list_conversations_without_counts()
    strays = find_skipped_conversation_paths(library.workspace)
    counts = {
        "conversations": len(infos),
        "archived": sum(info.archived for info in infos),
        "nested": sum(info.parent is not None for info in infos),
    }
    # If a directory could not be read, "ok, 0" would wrongly say that there are no conversations.
    state: FindingState = "note" if any(stray.is_unreadable for stray in strays) else "ok"
    yield state, "conversations_counted", counts
    for path, reason, is_unreadable, _ in strays:
        values: FindingValues = {"directory": str(path), "detail": reason}
        if is_unreadable:
            yield "wrong", "directory_unreadable", values
        else:
            yield "note", "directory_skipped", values
    for folder, count in count_conversations_in_agent_trash_directories(library.workspace).items():
        values = {"directory": str(folder), "conversations": count}
        yield "note", "conversations_trashed", values
    yield from _diagnose_texts_of_conversations(library, infos)


def _diagnose_texts_of_conversations(
    library: Library, infos: list[ConversationInfo]
) -> Iterator[FindingWithoutArea]:
    """Report conversations that cannot be read completely.

    The function stops reading after `READING_SECONDS`. For the remaining conversations, it reports
    the errors recorded in the index.
    """
    from kbtui.conversations.conversation_repository import load_conversation

    errors = _read_recorded_indexing_errors(library, infos)
    end = time.monotonic() + READING_SECONDS
    indexed = unknown = 0
    # First check the conversations that are not indexed, and those for which the index records an error.
    for info in sorted(infos, key=lambda info: info.id in errors and errors[info.id] is None):
        is_in_time = time.monotonic() < end and info.size <= READING_BYTES
        if info.id in errors and not is_in_time:
            indexed += 1
            if error := errors[info.id]:
                yield "wrong", "conversation_damaged", {"detail": error}, info.ref
            continue
        if time.monotonic() >= end:
            unknown += 1
            continue
        conversation = load_conversation(info)
        if problem := conversation.describe_problems():
            yield "wrong", "conversation_damaged", {"detail": problem}, info.ref
        if unknown_events := conversation.describe_unknown_events():
            values: FindingValues = {
                "events": len(conversation.unknown_events),
                "detail": unknown_events,
            }
            yield "note", "conversation_with_unknown_events", values, info.ref
    if indexed:
        yield "ok", "conversations_checked_when_indexed", {"conversations": indexed}
    if unknown:
        yield "note", "conversations_unchecked", {"conversations": unknown}


def _read_recorded_indexing_errors(
    library: Library, infos: list[ConversationInfo]
) -> dict[str, str | None]:
    """Map the id of each indexed conversation to its indexing error, or to None if indexing succeeded.

    Conversations that have changed since they were indexed are left out.
    """
    from kbtui.index.index_reader import IndexReader

    signatures = {info.id: info.signature for info in infos}
    ids = list(signatures)
    found: dict[str, str | None] = {}
    with suppress(KbtuiError), closing(IndexReader(library.workspace.cache_dir)) as reader:
        for start in range(0, len(ids), _ENTRIES_AT_ONCE):
            entries = reader.get_entries_by_id(ids[start : start + _ENTRIES_AT_ONCE])
            for entry in entries.values():
                if entry.signature == signatures[entry.id]:
                    found[entry.id] = entry.error
    return found


def _diagnose_agents(library: Library) -> Iterator[FindingWithoutArea]:
    """Report the agents that have conversations in this workspace, and problems with the agents' settings and formats."""
    from kbtui.conversations.conversation_repository import (
        list_agent_directories_and_conversation_counts,
        list_unknown_agents_in_settings,
        unusable_formats,
    )

    found = list_agent_directories_and_conversation_counts(library.workspace)
    if not found:
        yield "note", "agents_missing"
    for one in found:
        state: FindingState = "ok" if one.off is None else "note"
        yield state, "agent", one.as_json()
    for name, hint in list_unknown_agents_in_settings():
        yield "wrong", "unknown_agent", {"name": name, "detail": hint}
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "LLM_USER_PATH"):
        if (directory := os.environ.get(name)) and not Path(directory).is_dir():
            values = {"variable": name, "directory": directory}
            yield "wrong", "environment_directory_missing", values
    for name, reason in unusable_formats.items():
        yield "wrong", "format_unusable", {"name": name, "detail": reason}
    yield from _diagnose_kept_sessions()


def _diagnose_kept_sessions() -> Iterator[FindingWithoutArea]:
    """Report the archive's contents, its size on disk, and its unusable files."""
    from kbtui.conversations.session_archive import (
        compute_session_archive_size_in_bytes,
        find_session_copy_damage,
        get_session_archive_directory,
        list_kept_sessions,
    )

    kept, damaged = list_kept_sessions()
    if not kept and not damaged:
        return
    values: FindingValues = {
        "kept": len(kept),
        "only_kept": sum(one.is_original_missing for one in kept),
        "bytes": compute_session_archive_size_in_bytes(),
        "directory": str(get_session_archive_directory()),
    }
    yield "ok", "archive_counted", values
    # Reading all copies would take too long here; `kbtui keep check` reads them.
    damaged += [one for each in kept if (one := find_session_copy_damage(each, verified=False))]
    for one in damaged:
        yield "wrong", "archive_damaged", {"file": str(one.path), "detail": one.reason}


def _diagnose_published_library(library: Library) -> Iterator[FindingWithoutArea]:
    """Report how the workspace differs from its published library, if it subscribes to one."""
    from kbtui.index.embedding_model import find_embedding_model_key
    from kbtui.publishing.library_subscription_status import PROBLEM_TEXTS, read_subscription_status

    status = read_subscription_status(
        library.workspace, find_embedding_model_key(library.settings.model)
    )
    if status is None:
        return
    if status.is_mirrored:
        facts = {
            "remote": status.remote,
            "published_at": status.published_at,
            "commit": status.commit,
            "differing": status.differing,
            "only_published": status.only_published,
            "only_here": status.only_here,
        }
        yield "ok", "library_mirrored", facts
    if status.problem:
        detail = PROBLEM_TEXTS[status.problem].format(detail=status.detail)
        state: FindingState = "wrong" if status.problem == "error" else "note"
        values = {"remote": status.remote, "problem": status.problem, "detail": detail}
        yield state, "library_problem", values


def _format_published_library_finding(values: Mapping[str, Any]) -> str:
    commit = f" from commit {values['commit'][:12]}" if values["commit"] else ""
    return (
        f"{values['remote']} was published on {values['published_at']}{commit}; "
        f"your files: {format_counted_noun(values['differing'], 'subject')} in another version, "
        f"{values['only_here']:,} not published; "
        f"{format_counted_noun(values['only_published'], 'entry', 'entries')} only in the library"
    )


def _diagnose_document_sources(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.sources.document_source_definitions import (
        find_source_approval_time,
        load_source_definitions,
    )
    from kbtui.userdata.user_data_store import UserData

    found = load_source_definitions(library.workspace)
    count = len(found.sources)
    if count or not found.problems:
        # If the file could not be read, "ok, 0" would wrongly say that there are no sources.
        yield "ok", "sources_counted", {"sources": count}
    for problem in found.problems:
        yield "wrong", "problem", {"detail": str(problem)}
    yield from _diagnose_published_library(library)
    if not found.sources:
        return
    userdata = UserData(library.workspace)
    topics, runs = library.load_knowledge().topics, userdata.load_last_source_runs()
    for name, source in found.sources.items():
        if source.topic not in topics:
            yield "wrong", "source_topic_unknown", {"name": name, "topic": source.topic}
        if find_source_approval_time(library.workspace, userdata, source) is None:
            yield "note", "source_not_approved", {"name": name}
        run = runs.get(name)
        if run is not None and run.status != "ok":
            state: FindingState = "wrong" if run.status == "error" else "note"
            values = {"name": name, "status": run.status, "detail": run.error}
            yield state, "source_run_failed", values


def _diagnose_index(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.index.index_generations import find_catalog_or_keyword_index_damage
    from kbtui.index.index_reader import IndexReader

    try:
        reader = IndexReader(library.workspace.cache_dir)
    except KbtuiError as error:
        yield "note", "unavailable", {"detail": str(error)}
        return
    try:
        # Unlike the library pane, the index contains hidden subjects. It contains no disabled
        # subjects.
        counts = reader.count_catalog_rows()
        if found := find_catalog_or_keyword_index_damage(reader.folder):
            yield "wrong", "index_damaged", {"detail": found}
        else:
            yield "ok", "index_counted", counts
    finally:
        reader.close()


def _diagnose_engine(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.engine.engine_launcher import EngineNotRunningError, get_engine_socket_path

    try:
        client = library.connect_engine(start=False)
    except EngineNotRunningError:
        try:
            get_engine_socket_path()
        except WorkspaceError as error:
            yield "wrong", "engine_cannot_start", {"detail": str(error)}
        else:
            yield "note", "engine_not_running"
        return
    except EngineUnavailableError as error:
        yield "wrong", "unavailable", {"detail": str(error)}
        return
    try:
        if not client.hello.get("is_open"):
            yield "note", "engine_without_workspace", {"process": client.pid}
            return
        state = client.send_request("status")
    except EngineUnavailableError as error:
        yield "note", "engine_silent", {"detail": error.message}
        return
    finally:
        client.close()
    yield "ok", "engine_running", {"process": state.get("pid")}
    if state.get("error"):
        yield "wrong", "refresh_failed", {"detail": state["error"]}
    if state.get("polling"):
        yield "note", "engine_polling", {"detail": state["polling"]}
    left, progress = state.get("left") or 0, state.get("progress")
    if state.get("paused"):
        yield "note", "embedding_paused", {"passages": left}
    elif left:
        parts = format_embedded_percentages(progress["parts"]) if progress else ""
        counts: FindingValues = {"passages": left, "detail": parts}
        yield "note", "embedding_unfinished", counts
    if values := state.get("keywords_only"):
        finding = {"cause": values["cause"], "detail": values.get("detail")}
        hint = values.get("hint")
        yield "note", "keywords_only", {**finding, "hint": hint} if hint else finding


def _diagnose_model(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.index.embedding_model import (
        EmbeddingModelUnavailableError,
        find_embedding_model,
        verify_packaged_model,
    )

    if library.settings.model == "off":
        yield "note", "model_off"
        return
    try:
        verify_packaged_model(find_embedding_model(library.settings.model))
    except EmbeddingModelUnavailableError as error:
        yield "wrong", "model_unavailable", {"detail": str(error)}
        return
    yield "ok", "model_ready", {"model": library.settings.model}


_ENVIRONMENT_CHECKS = {
    "terminal": _diagnose_terminal,
    "settings": _report_settings_file_and_non_default_settings,
    "packages": _diagnose_packages,
}
_WORKSPACE_CHECKS = {
    **_ENVIRONMENT_CHECKS,
    "workspace": _diagnose_workspace,
    "knowledge": _diagnose_knowledge,
    "agents": _diagnose_agents,
    "conversations": _diagnose_conversations,
    "sources": _diagnose_document_sources,
    "index": _diagnose_index,
    "engine": _diagnose_engine,
    "model": _diagnose_model,
}
AREAS = tuple(_WORKSPACE_CHECKS)
"""The areas that the doctor checks, in this order."""
