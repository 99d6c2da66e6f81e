"""Diagnoses a workspace and its surroundings for `kbtui doctor`."""

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


class Finding(NamedTuple):
    """One thing that was looked at: `ref` is the reference of what it is about, if it has one."""

    area: str
    state: FindingState
    message: str
    ref: str | None = None


MIN_TERMINAL_SIZE = (60, 15)
"""Columns and rows below which the screen is cramped."""
MIN_FREE_BYTES = 300_000_000
"""Bytes that should be free where the index lies."""


def check_terminal(library: Library | None) -> Iterator[Finding]:
    """TERM, colours, locale and size, as a program sees them here."""
    import locale
    import shutil

    name = os.environ.get("TERM", "")
    if sys.__stdout__ is None or not sys.__stdout__.isatty():
        text = "standard output is no terminal: commands print plain text, and the screen cannot be drawn"
        yield Finding("terminal", "note", text)
    elif name in {"", "dumb", "unknown"}:
        text = f"TERM is {name or 'not set'}: the screen cannot be drawn; a common value is xterm-256color"
        yield Finding("terminal", "wrong", text)
    else:
        columns, rows = shutil.get_terminal_size()
        yield Finding("terminal", "ok", f"{name}, {columns} columns, {rows} rows")
        if columns < MIN_TERMINAL_SIZE[0] or rows < MIN_TERMINAL_SIZE[1]:
            text = f"it is small: the panes need {MIN_TERMINAL_SIZE[0]} columns and {MIN_TERMINAL_SIZE[1]} rows"
            yield Finding("terminal", "note", text)
    if os.environ.get("NO_COLOR"):
        yield Finding("terminal", "note", "NO_COLOR is set: no colours")
    elif os.environ.get("COLORTERM") not in {"truecolor", "24bit"}:
        text = "the terminal does not say that it has all colours (COLORTERM=truecolor): the nearest of 256 are used"
        yield Finding("terminal", "note", text)
    encoding = locale.getencoding()
    if encoding.lower().replace("-", "") != "utf8":
        text = f"the locale's encoding is {encoding}: lines and letters are lost; try LANG=C.UTF-8"
        yield Finding("terminal", "wrong", text)
    if os.environ.get("TMUX"):
        text = "in tmux, copying needs: set -g set-clipboard on"
        yield Finding("terminal", "note", text)


def check_settings(library: Library | None) -> Iterator[Finding]:
    """Mistakes in the file, and what is set; a mistake is raised as `ConfigError`."""
    from kbtui.workspace.settings import explain_settings, settings_path

    found = [one.key.name for one in explain_settings() if one.origin != "default"]
    where = settings_path() if settings_path().exists() else "there is no file"
    named = f"not the defaults: {', '.join(found)}" if found else "every key has its default"
    yield Finding("settings", "ok", f"{where}; {named}")


def check_packages(library: Library | None) -> Iterator[Finding]:
    """Whether every package that kbtui needs is installed, complete and of a version that fits."""
    from importlib.metadata import PackageNotFoundError, distribution, requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    try:
        waiting = [(Requirement(text), "", "kbtui") for text in requires("kbtui") or []]
    except PackageNotFoundError:
        yield Finding(
            "packages", "note", "kbtui runs without being installed: nobody says what it needs"
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
        if "" in fresh and (gone := _find_missing_module(found)):
            how = f"--force-reinstall --no-deps {wanted.name}=={found.version}"
            problems.append(_check_package(wanted.name, "wrong", f"lacks its file {gone}", by, how))
    yield from problems
    if not problems:
        yield Finding("packages", "ok", f"all {len(seen)} that kbtui needs are installed")


def _check_package(name: str, state: FindingState, problem: str, by: str, how: str) -> Finding:
    text = f"{name} {problem}; {by} needs it: {sys.executable} -m pip install {how}"
    return Finding("packages", state, text)


def _find_missing_module(found: Distribution) -> str | None:
    """The first module of a distribution whose file is gone.

    The list of files is read as text: as `Distribution.files`, torch's takes a third of a second.
    """
    for line in (found.read_text("RECORD") or "").splitlines():
        name = line.partition(",")[0]
        folder, _, file = name.rpartition("/")
        is_package = folder and "/" not in folder and file == "__init__.py"
        is_module = not folder and file.endswith((".py", ".so"))
        if (is_package or is_module) and not Path(str(found.locate_file(name))).exists():
            return name
    return None


def check_workspace(library: Library) -> Iterator[Finding]:
    """The root, JP's id, and whether what kbtui keeps can be written."""
    from kbtui.workspace import paths

    workspace = library.workspace
    if not workspace.jp.is_dir():
        yield Finding("workspace", "wrong", f"it is gone: {workspace.root} was moved or deleted")
        return
    yield Finding("workspace", "ok", str(workspace.root))
    if workspace.id is None:
        text = ".jp/.id is missing or not an id: conversations that JP keeps outside are not found"
        yield Finding("workspace", "note", text)
    for name, folder in {
        "index": workspace.cache_dir,
        "query log": workspace.data_dir,
        "log": Path(paths.state_home()),
    }.items():
        there = _nearest_existing(folder)
        if not os.access(there, os.W_OK | os.X_OK):
            yield Finding("workspace", "wrong", f"the {name} cannot be written: {there}")
    yield from _check_free_space(workspace.cache_dir)


def _nearest_existing(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())


def _check_free_space(folder: Path) -> Iterator[Finding]:
    import shutil

    free = shutil.disk_usage(_nearest_existing(folder)).free
    if free < MIN_FREE_BYTES:
        text = f"only {free // 1_000_000} MB are free where the index lies: {_nearest_existing(folder)}"
        yield Finding("workspace", "note", text)


TOOLS_DIRECTORY = ".jp/mcp/tools/kbtui"
"""Where the definitions of the tools for JP are installed."""
_MAX_DEFINITION_BYTES = 1 << 20


def run_diagnostics(library: Library | None) -> Iterator[Finding]:
    """Look at everything, one area after the other; starts no engine, never raises for a finding.

    Without a library, at what needs none. Reads every subject that may be seen and the head of
    every conversation, so it takes seconds where there are many.
    """
    for area, look in (_WORKSPACE_CHECKS if library is not None else _ENVIRONMENT_CHECKS).items():
        try:
            yield from look(library)  # type: ignore[arg-type]
        except (KbtuiError, OSError) as error:
            yield Finding(area, "wrong", f"cannot be looked at: {error}")


def _check_knowledge(library: Library) -> Iterator[Finding]:
    from kbtui.knowledge import lint

    knowledge = library.load_knowledge()
    count = sum(len(knowledge.subjects(topic)) for topic in knowledge.topics)
    topics = "1 topic" if len(knowledge.topics) == 1 else f"{len(knowledge.topics)} topics"
    subjects = "1 subject" if count == 1 else f"{count} subjects"
    yield Finding("knowledge", "ok", f"{topics}, {subjects}")
    for problem in knowledge.problems:
        yield Finding("knowledge", "wrong", str(problem))
    for problem in lint.lint_knowledge(knowledge):
        yield Finding("knowledge", "note", str(problem), _describe_subject(knowledge, problem))
    yield from _list_further_names(knowledge)
    yield from _check_installed_learn(library, knowledge)


def _check_installed_learn(library: Library, knowledge: Knowledge) -> Iterator[Finding]:
    """Whether the definition of `learn` that JP was given names the topics that there are now."""
    from kbtui.files import parse_toml, read_regular_file

    name = f"{TOOLS_DIRECTORY}/learn.toml"
    try:
        data = read_regular_file(library.workspace.root / name, _MAX_DEFINITION_BYTES)
        installed = parse_toml(data.decode("utf-8"))["conversation"]["tools"]["learn"]["summary"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    definition = knowledge.tool_definition()
    if definition is None:
        text = f"{name}: offers `learn` where no topic has anything to learn"
    elif installed != definition["description"]:
        text = f"{name}: describes other topics than there are now"
    else:
        return
    yield Finding("knowledge", "note", f"{text}; `kbtui tools install` renews it")


def _list_further_names(knowledge: Knowledge) -> Iterator[Finding]:
    """Subjects whose file has other names too, which may lie anywhere."""
    found = []
    for topic in knowledge.topics:
        for subject in knowledge.subjects(topic):
            try:
                links = subject.path.stat().st_nlink
            except OSError:
                continue
            if links > 1 and not subject.disabled:
                found.append(f"{topic}/{subject.slug}")
    for ref in found:
        text = (
            f"{ref}: the file has further names (hard links), perhaps outside the workspace; "
            "an editor that saves a new file parts them"
        )
        yield Finding("knowledge", "note", text, ref)


def _describe_subject(knowledge: Knowledge, problem: Problem) -> str | None:
    """The reference of the subject that a problem names as its place."""
    topic, place = problem.topic, problem.where or ""
    if topic is None or not place.startswith(f"{topic}/"):
        return None
    return place if knowledge.find(topic, place[len(topic) + 1 :]) else None


def _check_conversations(library: Library) -> Iterator[Finding]:
    from kbtui.conversations.repository import find_strays, find_trash, load_conversation

    infos, strays = library.list_conversations_quickly(), find_strays(library.workspace)
    archived = sum(info.archived for info in infos)
    # "ok, 0" would say that there are none, where nobody could look.
    state: FindingState = "note" if any(stray.is_unreadable for stray in strays) else "ok"
    nested = sum(info.parent is not None for info in infos)
    parts = f", {nested} part of another" if nested else ""
    yield Finding("conversations", state, f"{len(infos)}, {archived} archived{parts}")
    for path, reason, is_unreadable in strays:
        if is_unreadable:
            yield Finding("conversations", "wrong", f"{path}: cannot be read: {reason}")
        else:
            yield Finding("conversations", "note", f"{path}: left out: {reason}")
    for place, count in find_trash(library.workspace).items():
        moved = "1 conversation" if count == 1 else f"{count} conversations"
        words = f"{place}: left out: {moved} that JP could not read; TRASHED.md in each says why"
        yield Finding("conversations", "note", words)
    for info in infos:
        conversation = load_conversation(info)
        if problem := conversation.describe_problems():
            yield Finding("conversations", "wrong", f"{info.ref}: {problem}", info.ref)
        if extras := conversation.describe_extras():
            words = f"{info.ref}: it also has {' and '.join(extras)}"
            yield Finding("conversations", "note", words, info.ref)


def _check_sources(library: Library) -> Iterator[Finding]:
    from kbtui.sources import load_sources
    from kbtui.sources.config import find_approval_time
    from kbtui.userdata import UserData

    found = load_sources(library.workspace)
    count = len(found.sources)
    yield Finding("sources", "ok", "1 source" if count == 1 else f"{count} sources")
    for problem in found.problems:
        yield Finding("sources", "wrong", str(problem))
    if not found.sources:
        return
    journal = UserData(library.workspace)
    topics, runs = library.load_knowledge().topics, journal.last_runs()
    for name, source in found.sources.items():
        if source.topic not in topics:
            yield Finding("sources", "wrong", f"{name}: there is no topic {source.topic!r}")
        if find_approval_time(library.workspace, journal, source) is None:
            hint = f"`kbtui source approve {name}` shows it and asks"
            yield Finding("sources", "note", f"{name}: not approved, so it never runs; {hint}")
        run = runs.get(name)
        if run is not None and run.status != "ok":
            state = "wrong" if run.status == "error" else "note"
            yield Finding("sources", state, f"{name}: the last run was {run.status}: {run.error}")  # type: ignore[arg-type]


def _check_index(library: Library) -> Iterator[Finding]:
    from kbtui.index import IndexReader
    from kbtui.index.generations import find_damage

    try:
        reader = IndexReader(library.workspace.cache_dir)
    except KbtuiError as error:
        yield Finding("index", "note", str(error))
        return
    try:
        named = {"chunks": "passages"}
        counts = ", ".join(
            f"{number} {named.get(name, name)}" for name, number in reader.count_rows().items()
        )
        if found := find_damage(reader.folder):
            yield Finding("index", "wrong", f"{found}; `kbtui index` builds it again")
        else:
            yield Finding("index", "ok", counts)
    finally:
        reader.close()


def _check_engine(library: Library) -> Iterator[Finding]:
    from kbtui.engine import NoEngine
    from kbtui.engine.client import get_socket_path

    try:
        client = library.connect_engine(start=False)
    except NoEngine:
        try:
            get_socket_path(library.workspace)
        except WorkspaceError as error:
            yield Finding("engine", "wrong", f"it cannot be started: {error}")
        else:
            yield Finding("engine", "note", "not running; a search or the TUI starts it")
        return
    except EngineUnavailable as error:
        yield Finding("engine", "wrong", str(error))
        return
    try:
        state = client.request("status")
    except EngineUnavailable as error:
        yield Finding("engine", "note", f"it does not answer: {error.message}")
        return
    finally:
        client.close()
    yield Finding("engine", "ok", f"running as process {state.get('pid')}")
    if state.get("error"):
        yield Finding("engine", "wrong", f"the last refresh failed: {state['error']}")
    if state.get("polling"):
        yield Finding(
            "engine", "note", f"it looks for changed files each second: {state['polling']}"
        )
    if state.get("reason"):
        yield Finding("engine", "note", f"no semantic search: {state['reason']}")


def _check_model(library: Library) -> Iterator[Finding]:
    from kbtui.index.embedding_model import ModelUnavailable, find_model, verify_model

    if library.settings.model == "off":
        yield Finding("model", "note", "switched off in the settings: keyword search only")
        return
    try:
        verify_model(find_model(library.settings.model))
    except ModelUnavailable as error:
        yield Finding("model", "wrong", f"keyword search only: {error}")
        return
    name = library.settings.model or "all-MiniLM-L6-v2, packaged, verified"
    yield Finding("model", "ok", name)


_ENVIRONMENT_CHECKS = {
    "terminal": check_terminal,
    "settings": check_settings,
    "packages": check_packages,
}
_WORKSPACE_CHECKS = {
    **_ENVIRONMENT_CHECKS,
    "workspace": check_workspace,
    "knowledge": _check_knowledge,
    "conversations": _check_conversations,
    "sources": _check_sources,
    "index": _check_index,
    "engine": _check_engine,
    "model": _check_model,
}
AREAS = tuple(_WORKSPACE_CHECKS)
"""The areas, in the order in which they are looked at."""
