"""Checks a workspace and its environment for `kbtui doctor` and the doctor screen."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from kbtui.errors import EngineUnavailable, KbtuiError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution

    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.models import Problem
    from kbtui.library.library import Library


FindingState = Literal["ok", "note", "wrong"]


class DiagnosticFinding(NamedTuple):
    """One result of a check. `ref` is the subject or conversation that it is about, if any."""

    area: str
    state: FindingState
    message: str
    ref: str | None = None


MIN_TERMINAL_SIZE = (60, 15)
"""The smallest size, in columns and rows, in which all panes of the TUI have enough space."""
MIN_FREE_BYTES = 300_000_000
"""The minimum number of bytes that should be free on the disk of the index."""


def check_terminal(library: Library | None) -> Iterator[DiagnosticFinding]:
    """Check the terminal's type (TERM), size, colours, locale and clipboard."""
    import locale
    import shutil

    name = os.environ.get("TERM", "")
    if sys.__stdout__ is None or not sys.__stdout__.isatty():
        text = (
            "standard output is not a terminal: commands print plain text, and the TUI cannot start"
        )
        yield DiagnosticFinding("terminal", "note", text)
    elif name in {"", "dumb", "unknown"}:
        text = (
            f"TERM is {name or 'not set'}: the TUI cannot start; a common value is xterm-256color"
        )
        yield DiagnosticFinding("terminal", "wrong", text)
    else:
        columns, rows = shutil.get_terminal_size()
        yield DiagnosticFinding("terminal", "ok", f"{name}, {columns} columns, {rows} rows")
        if columns < MIN_TERMINAL_SIZE[0] or rows < MIN_TERMINAL_SIZE[1]:
            text = f"the terminal is small: the panes need {MIN_TERMINAL_SIZE[0]} columns and {MIN_TERMINAL_SIZE[1]} rows"
            yield DiagnosticFinding("terminal", "note", text)
    if os.environ.get("NO_COLOR"):
        yield DiagnosticFinding("terminal", "note", "NO_COLOR is set: no colours")
    elif os.environ.get("COLORTERM") not in {"truecolor", "24bit"}:
        text = "the terminal does not announce 24-bit colour (COLORTERM=truecolor): kbtui uses the nearest of 256 colours"
        yield DiagnosticFinding("terminal", "note", text)
    encoding = locale.getencoding()
    if encoding.lower().replace("-", "") != "utf8":
        text = f"the locale's encoding is {encoding}: some characters cannot be shown; try LANG=C.UTF-8"
        yield DiagnosticFinding("terminal", "wrong", text)
    if os.environ.get("TMUX"):
        text = "copying needs this tmux setting: set -g set-clipboard on"
        yield DiagnosticFinding("terminal", "note", text)


def check_settings(library: Library | None) -> Iterator[DiagnosticFinding]:
    """List the settings that differ from their defaults; raises `ConfigError`."""
    from kbtui.workspace.settings import explain_settings, get_settings_path

    found = [one.key.name for one in explain_settings() if one.origin != "default"]
    where = get_settings_path() if get_settings_path().exists() else "no file"
    named = f"changed: {', '.join(found)}" if found else "all settings are at their defaults"
    yield DiagnosticFinding("settings", "ok", f"{where}; {named}")


def check_packages(library: Library | None) -> Iterator[DiagnosticFinding]:
    """Check that every required package is installed, complete and of a suitable version."""
    from importlib.metadata import PackageNotFoundError, distribution, requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    try:
        waiting = [(Requirement(text), "", "kbtui") for text in requires("kbtui") or []]
    except PackageNotFoundError:
        yield DiagnosticFinding(
            "packages",
            "note",
            "kbtui is not installed as a package, so its requirements are unknown",
        )
        return
    seen: dict[str, set[str]] = {}
    problems = []
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
                problems.append(_check_package(wanted.name, "wrong", "is not installed", by, exact))
            continue
        if fresh:
            needs = [Requirement(text) for text in found.requires or []]
            waiting += [(one, each, wanted.name) for one in needs for each in sorted(fresh)]
        if not wanted.specifier.contains(found.version, prereleases=True):
            text = f"has version {found.version}, not {wanted.specifier}"
            problems.append(_check_package(wanted.name, "note", text, by, exact))
        if "" in fresh and (gone := _find_missing_module_file(found)):
            how = f"--force-reinstall --no-deps {wanted.name}=={found.version}"
            problems.append(_check_package(wanted.name, "wrong", f"lacks its file {gone}", by, how))
    yield from problems
    if not problems:
        yield DiagnosticFinding(
            "packages", "ok", f"all {len(seen)} required packages are installed"
        )


def _check_package(
    name: str, state: FindingState, problem: str, by: str, how: str
) -> DiagnosticFinding:
    text = f"{name} {problem}; {by} needs it: {sys.executable} -m pip install {how}"
    return DiagnosticFinding("packages", state, text)


def _find_missing_module_file(found: Distribution) -> str | None:
    """Return the first module of a distribution whose file is missing.

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


def check_workspace(library: Library) -> Iterator[DiagnosticFinding]:
    """Check the workspace's directory and id, kbtui's directories, free space and query log."""
    from kbtui.userdata import UserData
    from kbtui.workspace import paths

    workspace = library.workspace
    if not workspace.jp.is_dir():
        yield DiagnosticFinding("workspace", "wrong", f"{workspace.root} was moved or deleted")
        return
    yield DiagnosticFinding("workspace", "ok", str(workspace.root))
    if workspace.id is None:
        text = (
            ".jp/.id is missing or invalid, so conversations in JP's user directory are not found"
        )
        yield DiagnosticFinding("workspace", "note", text)
    for name, folder in {
        "index": workspace.cache_dir,
        "query log": workspace.data_dir,
        "log": Path(paths.get_state_home()),
    }.items():
        there = _find_nearest_existing_directory(folder)
        if not os.access(there, os.W_OK | os.X_OK):
            yield DiagnosticFinding(
                "workspace", "wrong", f"the directory of the {name} is not writable: {there}"
            )
    yield from _check_free_space(workspace.cache_dir)
    try:
        if library.settings.query_log:
            UserData(workspace).query_log.check_query_log_file()
    except WorkspaceError as error:
        yield DiagnosticFinding("workspace", "wrong", f"searches are not logged: {error}")


def _find_nearest_existing_directory(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())


def _check_free_space(folder: Path) -> Iterator[DiagnosticFinding]:
    import shutil

    free = shutil.disk_usage(_find_nearest_existing_directory(folder)).free
    if free < MIN_FREE_BYTES:
        text = f"only {free // 1_000_000} MB free for the index in {_find_nearest_existing_directory(folder)}"
        yield DiagnosticFinding("workspace", "note", text)


TOOLS_DIRECTORY = ".jp/mcp/tools/kbtui"
"""The directory of the tool definitions that are installed for JP."""
_MAX_DEFINITION_BYTES = 1 << 20


def run_diagnostics(library: Library | None) -> Iterator[DiagnosticFinding]:
    """Run the checks of all areas and yield their findings. Does not start an engine.

    Without a library, run only the checks that need no workspace. The checks read every visible
    subject and every conversation, which takes seconds in a large workspace.
    """
    for area, look in (_WORKSPACE_CHECKS if library is not None else _ENVIRONMENT_CHECKS).items():
        try:
            yield from look(library)  # type: ignore[arg-type]
        except (KbtuiError, OSError) as error:
            yield DiagnosticFinding(area, "wrong", f"the check failed: {error}")


def _check_knowledge_topics(library: Library) -> Iterator[DiagnosticFinding]:
    from kbtui.knowledge import lint

    knowledge = library.load_knowledge()
    found = [subject for topic in knowledge.topics for subject in knowledge.list_subjects(topic)]
    hidden = sum(subject.hidden for subject in found)
    disabled = sum(subject.disabled for subject in found)
    count = len(found) - hidden
    counts = [
        "1 topic" if len(knowledge.topics) == 1 else f"{len(knowledge.topics):,} topics",
        "1 subject" if count == 1 else f"{count:,} subjects",
        *([f"{hidden:,} hidden"] if hidden else []),
        *([f"{disabled:,} disabled"] if disabled else []),
    ]
    yield DiagnosticFinding("knowledge", "ok", ", ".join(counts))
    for problem in knowledge.problems:
        yield DiagnosticFinding("knowledge", "wrong", str(problem))
    for problem in lint.lint_knowledge(knowledge):
        yield DiagnosticFinding(
            "knowledge", "note", str(problem), _find_problem_subject_ref(knowledge, problem)
        )
    yield from _check_hard_links(knowledge)
    yield from _check_installed_learn(library, knowledge)


def _check_installed_learn(library: Library, knowledge: Knowledge) -> Iterator[DiagnosticFinding]:
    """Check that the installed definition of `learn` describes the current topics."""
    from kbtui.files import parse_toml, read_regular_file

    name = f"{TOOLS_DIRECTORY}/learn.toml"
    try:
        data = read_regular_file(library.workspace.root / name, _MAX_DEFINITION_BYTES)
        installed = parse_toml(data.decode("utf-8"))["conversation"]["tools"]["learn"]["summary"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    definition = knowledge.tool_definition()
    if definition is None:
        text = f"{name} offers `learn`, but no topic has a subject to learn"
    elif installed != definition["description"]:
        text = f"{name} is out of date: the topics that it describes have changed"
    else:
        return
    yield DiagnosticFinding("knowledge", "note", f"{text}; `kbtui tools install` updates it")


def _check_hard_links(knowledge: Knowledge) -> Iterator[DiagnosticFinding]:
    """Find subjects whose file has other hard links, which may be outside the workspace."""
    found = []
    for topic in knowledge.topics:
        for subject in knowledge.list_subjects(topic):
            try:
                links = subject.path.stat().st_nlink
            except OSError:
                continue
            if links > 1 and not subject.disabled:
                found.append(f"{topic}/{subject.slug}")
    for ref in found:
        text = (
            f"{ref}: the file has further hard links, perhaps outside of the workspace; "
            "an editor that replaces the file when it saves breaks them"
        )
        yield DiagnosticFinding("knowledge", "note", text, ref)


def _find_problem_subject_ref(knowledge: Knowledge, problem: Problem) -> str | None:
    """Return the reference of the subject that a problem is about, None if there is none."""
    topic, place = problem.topic, problem.where or ""
    if topic is None or not place.startswith(f"{topic}/"):
        return None
    return place if knowledge.find(topic, place[len(topic) + 1 :]) else None


def _check_conversations(library: Library) -> Iterator[DiagnosticFinding]:
    from kbtui.conversations.repository import (
        count_trashed_conversations,
        find_unusable_conversation_directories,
        load_conversation,
    )

    infos, strays = (
        library.list_conversations_quickly(),
        find_unusable_conversation_directories(library.workspace),
    )
    archived = sum(info.archived for info in infos)
    # If a directory could not be read, "ok, 0" would wrongly say that there are none.
    state: FindingState = "note" if any(stray.is_unreadable for stray in strays) else "ok"
    nested = sum(info.parent is not None for info in infos)
    parts = f", {nested} part of another conversation" if nested else ""
    yield DiagnosticFinding("conversations", state, f"{len(infos)}, {archived} archived{parts}")
    for path, reason, is_unreadable in strays:
        if is_unreadable:
            yield DiagnosticFinding("conversations", "wrong", f"{path}: unreadable: {reason}")
        else:
            yield DiagnosticFinding("conversations", "note", f"{path}: skipped: {reason}")
    for place, count in count_trashed_conversations(library.workspace).items():
        moved = "1 conversation" if count == 1 else f"{count} conversations"
        words = f"{place}: skipped: {moved} that JP could not read; TRASHED.md in each says why"
        yield DiagnosticFinding("conversations", "note", words)
    for info in infos:
        conversation = load_conversation(info)
        if problem := conversation.describe_problems():
            yield DiagnosticFinding("conversations", "wrong", f"{info.ref}: {problem}", info.ref)
        if extras := conversation.describe_unknown_content():
            words = f"{info.ref}: the conversation also has {' and '.join(extras)}"
            yield DiagnosticFinding("conversations", "note", words, info.ref)


def _check_sources(library: Library) -> Iterator[DiagnosticFinding]:
    from kbtui.sources import load_sources
    from kbtui.sources.config import find_approval_time
    from kbtui.userdata import UserData

    found = load_sources(library.workspace)
    count = len(found.sources)
    if count or not found.problems:
        # If the file could not be read, "ok, 0" would wrongly say that there are none.
        yield DiagnosticFinding("sources", "ok", "1 source" if count == 1 else f"{count} sources")
    for problem in found.problems:
        yield DiagnosticFinding("sources", "wrong", str(problem))
    if not found.sources:
        return
    userdata = UserData(library.workspace)
    topics, runs = library.load_knowledge().topics, userdata.load_last_source_runs()
    for name, source in found.sources.items():
        if source.topic not in topics:
            yield DiagnosticFinding("sources", "wrong", f"{name}: unknown topic {source.topic!r}")
        if find_approval_time(library.workspace, userdata, source) is None:
            hint = f"`kbtui source approve {name}` shows it and asks for approval"
            yield DiagnosticFinding(
                "sources", "note", f"{name}: not approved, so it never runs; {hint}"
            )
        run = runs.get(name)
        if run is not None and run.status != "ok":
            state = "wrong" if run.status == "error" else "note"
            text = f"{name}: the last run ended with status {run.status}: {run.error}"
            yield DiagnosticFinding("sources", state, text)  # type: ignore[arg-type]


def _check_index(library: Library) -> Iterator[DiagnosticFinding]:
    from kbtui.index import IndexReader
    from kbtui.index.index_generations import find_damage

    try:
        reader = IndexReader(library.workspace.cache_dir)
    except KbtuiError as error:
        yield DiagnosticFinding("index", "note", str(error))
        return
    try:
        # The index also has hidden subjects but no disabled ones, unlike the library pane.
        named = {"chunks": "passages", "subjects": "subjects (with hidden, without disabled)"}
        counts = ", ".join(
            f"{number} {named.get(name, name)}" for name, number in reader.count_rows().items()
        )
        if found := find_damage(reader.folder):
            yield DiagnosticFinding("index", "wrong", f"{found}; `kbtui index` rebuilds it")
        else:
            yield DiagnosticFinding("index", "ok", counts)
    finally:
        reader.close()


def _check_engine(library: Library) -> Iterator[DiagnosticFinding]:
    from kbtui.engine import EngineNotRunning
    from kbtui.engine.find_or_start import get_engine_socket_path

    try:
        client = library.connect_engine(start=False)
    except EngineNotRunning:
        try:
            get_engine_socket_path(library.workspace)
        except WorkspaceError as error:
            yield DiagnosticFinding("engine", "wrong", f"the engine cannot start: {error}")
        else:
            yield DiagnosticFinding("engine", "note", "not running; a search or the TUI starts it")
        return
    except EngineUnavailable as error:
        yield DiagnosticFinding("engine", "wrong", str(error))
        return
    try:
        state = client.request("status")
    except EngineUnavailable as error:
        yield DiagnosticFinding("engine", "note", f"the engine does not answer: {error.message}")
        return
    finally:
        client.close()
    yield DiagnosticFinding("engine", "ok", f"running as process {state.get('pid')}")
    if state.get("error"):
        yield DiagnosticFinding("engine", "wrong", f"the last refresh failed: {state['error']}")
    if state.get("polling"):
        yield DiagnosticFinding(
            "engine", "note", f"the engine polls the files every second: {state['polling']}"
        )
    if state.get("reason"):
        yield DiagnosticFinding("engine", "note", f"no semantic search: {state['reason']}")


def _check_model(library: Library) -> Iterator[DiagnosticFinding]:
    from kbtui.index.embedding_model import (
        EmbeddingModelUnavailable,
        find_embedding_model,
        verify_packaged_model,
    )

    if library.settings.model == "off":
        yield DiagnosticFinding(
            "model", "note", "switched off in the settings: only keyword search"
        )
        return
    try:
        verify_packaged_model(find_embedding_model(library.settings.model))
    except EmbeddingModelUnavailable as error:
        yield DiagnosticFinding("model", "wrong", f"only keyword search: {error}")
        return
    name = library.settings.model or "all-MiniLM-L6-v2, packaged, verified"
    yield DiagnosticFinding("model", "ok", name)


_ENVIRONMENT_CHECKS = {
    "terminal": check_terminal,
    "settings": check_settings,
    "packages": check_packages,
}
_WORKSPACE_CHECKS = {
    **_ENVIRONMENT_CHECKS,
    "workspace": check_workspace,
    "knowledge": _check_knowledge_topics,
    "conversations": _check_conversations,
    "sources": _check_sources,
    "index": _check_index,
    "engine": _check_engine,
    "model": _check_model,
}
AREAS = tuple(_WORKSPACE_CHECKS)
"""The names of the areas in the order of their checks."""
