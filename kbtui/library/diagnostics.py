"""Checks a workspace and its environment for `kbtui doctor` and the doctor screen."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from kbtui.errors import EngineUnavailable, KbtuiError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution

    from kbtui.conversations.models import ConversationInfo
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.models import KnowledgeProblem, Subject
    from kbtui.library.library import Library


FindingState = Literal["ok", "note", "wrong"]


class DiagnosticFinding(NamedTuple):
    """One finding of a check. `ref` names the subject or conversation that it is about, if any."""

    area: str
    state: FindingState
    message: str
    ref: str | None = None


FindingWithoutArea = tuple[FindingState, str] | tuple[FindingState, str, str | None]
"""A finding without its area: state, message and, if there is one, reference."""
MIN_TERMINAL_SIZE = (60, 15)
"""The smallest size, in columns and rows, in which all panes of the TUI have enough space."""
READING_SECONDS = 1.0
"""The time limit, in seconds, for reading conversations. The index says whether the others are damaged."""
READING_BYTES = 8 << 20
"""The maximum size in bytes of a conversation that is read although it is indexed."""
_ENTRIES_AT_ONCE = 10_000
MIN_FREE_BYTES = 300_000_000
"""The minimum number of bytes that should be free on the disk of the index."""


def _diagnose_terminal(library: Library | None) -> Iterator[FindingWithoutArea]:
    import locale
    import shutil

    name = os.environ.get("TERM", "")
    if sys.__stdout__ is None or not sys.__stdout__.isatty():
        text = (
            "standard output is not a terminal: commands print plain text, and the TUI cannot start"
        )
        yield "note", text
    elif name in {"", "dumb", "unknown"}:
        text = "the TUI cannot start; a common value is xterm-256color"
        yield "wrong", f"TERM is {name or 'not set'}: {text}"
    else:
        columns, rows = shutil.get_terminal_size()
        yield "ok", f"{name}, {columns} columns, {rows} rows"
        wide, high = MIN_TERMINAL_SIZE
        if columns < wide or rows < high:
            yield (
                "note",
                f"the terminal is too small: the panes need {wide} columns and {high} rows",
            )
    if os.environ.get("NO_COLOR"):
        yield "note", "NO_COLOR is set, so kbtui shows no colours"
    elif os.environ.get("COLORTERM") not in {"truecolor", "24bit"}:
        text = "the terminal does not announce 24-bit colour (COLORTERM=truecolor): "
        yield "note", text + "kbtui uses the nearest of 256 colours"
    encoding = locale.getencoding()
    if encoding.lower().replace("-", "") != "utf8":
        text = f"the locale's encoding is {encoding}: some characters cannot be shown; "
        yield "wrong", text + "try LANG=C.UTF-8"
    if os.environ.get("TMUX"):
        yield "note", "copying needs this tmux setting: set -g set-clipboard on"


def _diagnose_settings(library: Library | None) -> Iterator[FindingWithoutArea]:
    from kbtui.workspace.settings import get_settings_path, list_settings_with_origins

    changed = ", ".join(
        one.key.name for one in list_settings_with_origins() if one.origin != "default"
    )
    where = get_settings_path() if get_settings_path().exists() else "no file"
    state = f"changed: {changed}" if changed else "all settings are at their defaults"
    yield "ok", f"{where}; {state}"


def _diagnose_packages(library: Library | None) -> Iterator[FindingWithoutArea]:
    """Check that every required package is installed, complete and of a suitable version."""
    from importlib.metadata import PackageNotFoundError, distribution, requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    try:
        waiting = [(Requirement(text), "", "kbtui") for text in requires("kbtui") or []]
    except PackageNotFoundError:
        yield "note", "kbtui is not installed as a package, so its requirements are unknown"
        return
    seen: dict[str, set[str]] = {}
    is_complete = True

    def describe_package_problem(problem: str, install: str) -> str:
        return f"{wanted.name} {problem}: {sys.executable} -m pip install {install}"

    while waiting:
        wanted, extra, by = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        fresh = {"", *map(canonicalize_name, wanted.extras)} - seen.setdefault(name, set())
        seen[name] |= fresh
        exact = f"'{wanted.name}{wanted.specifier}'"
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            if fresh:
                is_complete = False
                text = f"is not installed, but {by} needs it"
                yield "wrong", describe_package_problem(text, exact)
            continue
        if fresh:
            needs = [Requirement(text) for text in found.requires or []]
            waiting += [(one, each, wanted.name) for one in needs for each in sorted(fresh)]
        if not wanted.specifier.contains(found.version, prereleases=True):
            is_complete = False
            text = f"{found.version} is installed, but {by} needs {wanted.specifier}"
            yield "note", describe_package_problem(text, exact)
        if "" in fresh and (gone := _find_missing_module_file(found)):
            is_complete = False
            install = f"--force-reinstall --no-deps {wanted.name}=={found.version}"
            yield "wrong", describe_package_problem(f"is incomplete ({gone} is missing)", install)
    if is_complete:
        yield "ok", f"all {len(seen)} required packages are installed"


def _find_missing_module_file(found: Distribution) -> str | None:
    """Return the name of the first missing module file of a distribution, or None.

    Reads the list of files as text, because `Distribution.files` takes 0.3 s for torch.
    """
    for line in (found.read_text("RECORD") or "").splitlines():
        name = line.partition(",")[0]
        folder, _, file = name.rpartition("/")
        is_package = folder and "/" not in folder and file == "__init__.py"
        is_module = not folder and file.endswith((".py", ".so"))
        if (is_package or is_module) and not Path(str(found.locate_file(name))).exists():
            return name
    return None


def _diagnose_workspace(library: Library) -> Iterator[FindingWithoutArea]:
    import shutil

    from kbtui.userdata.user_data_store import UserData
    from kbtui.workspace import paths

    workspace = library.workspace
    if not workspace.root.is_dir():
        yield "wrong", f"{workspace.root} was moved or deleted"
        return
    if not workspace.is_jp_workspace:
        config = f"topics and sources are declared in {workspace.kbtui_directory.name}"
        yield "ok", f"{workspace.root}, no JP workspace; {config}"
    else:
        yield "ok", str(workspace.root)
    if workspace.is_jp_workspace and workspace.id is None:
        text = "so conversations in JP's user directory are not found"
        yield "note", f".jp/.id is missing or invalid, {text}"
    directories = {
        "index": workspace.cache_dir,
        "query log": workspace.data_dir,
        "log": Path(paths.get_state_home()),
    }
    for name, folder in directories.items():
        existing = _find_nearest_existing_directory(folder)
        if not os.access(existing, os.W_OK | os.X_OK):
            yield "wrong", f"the directory of the {name} is not writable: {existing}"
    existing = _find_nearest_existing_directory(workspace.cache_dir)
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_BYTES:
        yield "note", f"only {free // 1_000_000} MB free for the index in {existing}"
    try:
        if library.settings.query_log:
            UserData(workspace).query_log.check_query_log_file()
    except WorkspaceError as error:
        yield "wrong", f"searches are not logged: {error}"


def _find_nearest_existing_directory(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())


TOOLS_DIRECTORY = ".jp/mcp/tools/kbtui"
"""The directory of the tool definitions that are installed for JP."""
_MAX_DEFINITION_BYTES = 1 << 20


def run_diagnostics(library: Library | None) -> Iterator[DiagnosticFinding]:
    """Run the checks of all areas and yield their findings. Does not start an engine.

    Without a library, run only the checks that need no workspace. The checks read every visible
    subject, and conversations for `READING_SECONDS`.
    """
    for area, check in (_WORKSPACE_CHECKS if library is not None else _ENVIRONMENT_CHECKS).items():
        try:
            for finding in check(library):  # type: ignore[arg-type]
                yield DiagnosticFinding(area, *finding)
        except (KbtuiError, OSError) as error:
            yield DiagnosticFinding(area, "wrong", f"the check failed: {error}")


def _diagnose_knowledge(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.knowledge import knowledge_lint

    knowledge = library.load_knowledge()
    subjects = [one for topic in knowledge.topics for one in knowledge.list_subjects(topic)]
    hidden = sum(subject.hidden for subject in subjects)
    disabled = sum(subject.disabled for subject in subjects)
    counts = [_format_count_with_noun(len(knowledge.topics), "topic")]
    counts.append(_format_count_with_noun(len(subjects) - hidden, "subject"))
    counts += [f"{hidden:,} hidden"] if hidden else []
    counts += [f"{disabled:,} disabled"] if disabled else []
    yield "ok", ", ".join(counts)
    for problem in knowledge.problems:
        yield "wrong", str(problem)
    for problem in knowledge_lint.lint_knowledge(knowledge):
        yield "note", str(problem), _find_subject_ref_of_problem(knowledge, problem)
    for subject in subjects:
        if not subject.disabled and _has_hard_links(subject):
            ref = f"{subject.topic}/{subject.slug}"
            text = (
                f"{ref}: the file has other hard links, perhaps outside the workspace; "
                "an editor that replaces the file on saving breaks them"
            )
            yield "note", text, ref
    yield from _diagnose_installed_learn_tool(library, knowledge)


def _format_count_with_noun(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _has_hard_links(subject: Subject) -> bool:
    try:
        return subject.path.stat().st_nlink > 1
    except OSError:
        return False


def _diagnose_installed_learn_tool(
    library: Library, knowledge: KnowledgeBase
) -> Iterator[FindingWithoutArea]:
    """Check that the installed definition of `learn` describes the current topics."""
    from kbtui.files import parse_toml, read_regular_file

    name = f"{TOOLS_DIRECTORY}/learn.toml"
    try:
        data = read_regular_file(library.workspace.root / name, _MAX_DEFINITION_BYTES)
        installed = parse_toml(data.decode("utf-8"))["conversation"]["tools"]["learn"]["summary"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    definition = knowledge.make_learn_tool_definition()
    if definition is None:
        text = f"{name} offers `learn`, but no topic has a subject to learn"
    elif installed != definition["description"]:
        text = f"{name} is out of date: the topics that it describes have changed"
    else:
        return
    yield "note", f"{text}; `kbtui tools install` updates it"


def _find_subject_ref_of_problem(knowledge: KnowledgeBase, problem: KnowledgeProblem) -> str | None:
    topic, place = problem.topic, problem.where or ""
    if topic is None or not place.startswith(f"{topic}/"):
        return None
    return place if knowledge.find_subject(topic, place[len(topic) + 1 :]) else None


def _diagnose_conversations(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.conversations.conversation_repository import (
        count_trashed_conversations,
        find_unusable_conversation_directories,
    )

    infos = library.list_conversations_without_counts()
    strays = find_unusable_conversation_directories(library.workspace)
    archived = sum(info.archived for info in infos)
    nested = sum(info.parent is not None for info in infos)
    parts = f", {nested} within other conversations" if nested else ""
    # If a directory could not be read, "ok, 0" would wrongly say that there are none.
    state: FindingState = "note" if any(stray.is_unreadable for stray in strays) else "ok"
    yield state, f"{len(infos)} in all, {archived} archived{parts}"
    for path, reason, is_unreadable, _ in strays:
        if is_unreadable:
            yield "wrong", f"{path}: unreadable: {reason}"
        else:
            yield "note", f"{path}: skipped: {reason}"
    for folder, count in count_trashed_conversations(library.workspace).items():
        moved = f"{_format_count_with_noun(count, 'conversation')} that JP could not read"
        yield "note", f"{folder}: skipped: {moved}; TRASHED.md in each says why"
    yield from _diagnose_texts_of_conversations(library, infos)


def _diagnose_texts_of_conversations(
    library: Library, infos: list[ConversationInfo]
) -> Iterator[FindingWithoutArea]:
    """Read conversations for `READING_SECONDS`; for the others, report the errors that the index knows.

    Conversations that are not indexed, or that the index describes as damaged, are read first.
    """
    from kbtui.conversations.conversation_repository import load_conversation

    errors = _find_errors_in_index(library, infos)
    end = time.monotonic() + READING_SECONDS
    indexed = unknown = 0
    for info in sorted(infos, key=lambda info: info.id in errors and errors[info.id] is None):
        is_in_time = time.monotonic() < end and info.size <= READING_BYTES
        if info.id in errors and not is_in_time:
            indexed += 1
            if error := errors[info.id]:
                yield "wrong", f"{info.ref}: {error}", info.ref
            continue
        if time.monotonic() >= end:
            unknown += 1
            continue
        conversation = load_conversation(info)
        if problem := conversation.describe_problems():
            yield "wrong", f"{info.ref}: {problem}", info.ref
        if extras := conversation.describe_unknown_content():
            text = f"{info.ref}: the conversation contains {' and '.join(extras)}"
            yield "note", text, info.ref
    if indexed:
        yield "ok", f"{indexed:,} of them were only checked when they were indexed"
    if unknown:
        yield (
            "note",
            f"{unknown:,} of them were not checked, because they are not indexed yet; "
            "run `kbtui index`, then `kbtui doctor` again",
        )


def _find_errors_in_index(library: Library, infos: list[ConversationInfo]) -> dict[str, str | None]:
    """Return the error that the index has for each conversation, by id; None means no error.

    Conversations that have changed since they were indexed are left out.
    """
    from kbtui.index import IndexReader

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
    """Report which agents' conversations are read, where they are, and why some are left out."""
    from kbtui.conversations.agent_overview import list_agent_overviews, list_unknown_agents
    from kbtui.conversations.conversation_repository import unusable_formats

    found = list_agent_overviews(library.workspace)
    if not found:
        yield "note", "no agent has conversations on this machine"
    for one in found:
        places = ", ".join(map(str, one.directories)) or "no directory"
        state: FindingState = "ok" if one.off is None else "note"
        yield state, f"{one.label} ({one.name}), {places}: {one.describe_conversations()}"
    for name, hint in list_unknown_agents():
        yield (
            "wrong",
            f"`agents` in [conversations] names {name!r}, which kbtui cannot read; {hint}",
        )
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "LLM_USER_PATH"):
        if (directory := os.environ.get(name)) and not Path(directory).is_dir():
            yield "wrong", f"{name} names {directory}, which is not an existing directory"
    for name, reason in unusable_formats.items():
        what = f"the format {name!r}, which an installed package provides,"
        yield "wrong", f"{what} cannot be loaded: {reason}"


def _diagnose_sources(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.sources.source_definitions import find_source_approval_time, load_source_definitions
    from kbtui.userdata.user_data_store import UserData

    found = load_source_definitions(library.workspace)
    count = len(found.sources)
    if count or not found.problems:
        # If the file could not be read, "ok, 0" would wrongly say that there are none.
        yield "ok", _format_count_with_noun(count, "source")
    for problem in found.problems:
        yield "wrong", str(problem)
    if not found.sources:
        return
    userdata = UserData(library.workspace)
    topics, runs = library.load_knowledge().topics, userdata.load_last_source_runs()
    for name, source in found.sources.items():
        if source.topic not in topics:
            yield "wrong", f"{name}: unknown topic {source.topic!r}"
        if find_source_approval_time(library.workspace, userdata, source) is None:
            hint = f"`kbtui source approve {name}` shows it and asks for approval"
            yield "note", f"{name}: not approved, so it never runs; {hint}"
        run = runs.get(name)
        if run is not None and run.status != "ok":
            state: FindingState = "wrong" if run.status == "error" else "note"
            text = f"{name}: the last run ended with status {run.status}: {run.error}"
            yield state, text


def _diagnose_index(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.index import IndexReader
    from kbtui.index.index_generations import find_index_damage

    try:
        reader = IndexReader(library.workspace.cache_dir)
    except KbtuiError as error:
        yield "note", str(error)
        return
    try:
        # The index also has hidden subjects but no disabled ones, unlike the library pane.
        labels = {"chunks": "passages", "subjects": "subjects that are not disabled"}
        counts = [
            f"{count} {labels.get(name, name)}"
            for name, count in reader.count_catalog_rows().items()
        ]
        if found := find_index_damage(reader.folder):
            yield "wrong", f"{found}; `kbtui index` rebuilds it"
        else:
            yield "ok", ", ".join(counts)
    finally:
        reader.close()


def _diagnose_engine(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.engine import EngineNotRunning
    from kbtui.engine.engine_launcher import get_engine_socket_path

    try:
        client = library.connect_engine(start=False)
    except EngineNotRunning:
        try:
            get_engine_socket_path(library.workspace)
        except WorkspaceError as error:
            yield "wrong", f"the engine cannot start: {error}"
        else:
            yield "note", "not running; a search or the TUI starts it"
        return
    except EngineUnavailable as error:
        yield "wrong", str(error)
        return
    try:
        state = client.send_request("status")
    except EngineUnavailable as error:
        yield "note", f"the engine does not answer: {error.message}"
        return
    finally:
        client.close()
    yield "ok", f"running as process {state.get('pid')}"
    if state.get("error"):
        yield "wrong", f"the last refresh failed: {state['error']}"
    if state.get("polling"):
        yield "note", f"the engine polls the files every second: {state['polling']}"
    if state.get("reason"):
        yield "note", f"no semantic search: {state['reason']}"


def _diagnose_model(library: Library) -> Iterator[FindingWithoutArea]:
    from kbtui.index.embedding_model import (
        EmbeddingModelUnavailable,
        find_embedding_model,
        verify_packaged_model,
    )

    if library.settings.model == "off":
        yield "note", "switched off in the settings, so search uses keywords only"
        return
    try:
        verify_packaged_model(find_embedding_model(library.settings.model))
    except EmbeddingModelUnavailable as error:
        yield "wrong", f"only keyword search: {error}"
        return
    name = library.settings.model or "all-MiniLM-L6-v2, packaged, verified"
    yield "ok", name


_ENVIRONMENT_CHECKS = {
    "terminal": _diagnose_terminal,
    "settings": _diagnose_settings,
    "packages": _diagnose_packages,
}
_WORKSPACE_CHECKS = {
    **_ENVIRONMENT_CHECKS,
    "workspace": _diagnose_workspace,
    "knowledge": _diagnose_knowledge,
    "agents": _diagnose_agents,
    "conversations": _diagnose_conversations,
    "sources": _diagnose_sources,
    "index": _diagnose_index,
    "engine": _diagnose_engine,
    "model": _diagnose_model,
}
AREAS = tuple(_WORKSPACE_CHECKS)
"""The names of the areas in the order of their checks."""
