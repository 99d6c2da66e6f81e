"""What is wrong with workspace, knowledge, conversations, index, engine and model: one look for every face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from kbtui.errors import EngineUnavailable, KbtuiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.records import Problem
    from kbtui.library.library import Library

State = Literal["ok", "note", "wrong"]


class Finding(NamedTuple):
    """One thing that was looked at: `ref` is the reference of what it is about, if it has one."""

    area: str
    state: State
    message: str
    ref: str | None = None


def examine(library: Library) -> Iterator[Finding]:
    """Look at everything, one area after the other; starts no engine, never raises for a finding.

    Reads every subject that may be seen and the head of every conversation, so
    it takes seconds where there are many.
    """
    for area, look in _AREAS.items():
        try:
            yield from look(library)
        except (KbtuiError, OSError) as error:
            yield Finding(area, "wrong", f"cannot be looked at: {error}")


def _knowledge(library: Library) -> Iterator[Finding]:
    from kbtui.knowledge import hygiene

    knowledge = library.knowledge()
    count = sum(len(knowledge.subjects(topic)) for topic in knowledge.topics)
    topics = "1 topic" if len(knowledge.topics) == 1 else f"{len(knowledge.topics)} topics"
    subjects = "1 subject" if count == 1 else f"{count} subjects"
    yield Finding("knowledge", "ok", f"{topics}, {subjects}")
    for problem in knowledge.problems:
        yield Finding("knowledge", "wrong", str(problem))
    for problem in hygiene.check(knowledge):
        yield Finding("knowledge", "note", str(problem), _subject(knowledge, problem))


def _subject(knowledge: Knowledge, problem: Problem) -> str | None:
    """The reference of the subject that a problem names as its place."""
    topic, place = problem.topic, problem.where or ""
    if topic is None or not place.startswith(f"{topic}/"):
        return None
    return place if knowledge.find(topic, place[len(topic) + 1 :]) else None


def _conversations(library: Library) -> Iterator[Finding]:
    infos = library.conversations()
    archived = sum(info.archived for info in infos)
    yield Finding("conversations", "ok", f"{len(infos)}, {archived} archived")
    for info in infos:
        if info.problem:
            yield Finding("conversations", "wrong", f"{info.ref}: {info.problem}", info.ref)


def _sources(library: Library) -> Iterator[Finding]:
    from kbtui.journal import Journal
    from kbtui.sources import load_sources
    from kbtui.sources.approval import approved_at

    found = load_sources(library.workspace)
    count = len(found.sources)
    yield Finding("sources", "ok", "1 source" if count == 1 else f"{count} sources")
    for problem in found.problems:
        yield Finding("sources", "wrong", str(problem))
    if not found.sources:
        return
    journal = Journal(library.workspace)
    topics, runs = library.knowledge().topics, journal.runs()
    for name, source in found.sources.items():
        if source.topic not in topics:
            yield Finding("sources", "wrong", f"{name}: there is no topic {source.topic!r}")
        if approved_at(library.workspace, journal, source) is None:
            hint = f"`kbtui source approve {name}` shows it and asks"
            yield Finding("sources", "note", f"{name}: not approved, so it never runs; {hint}")
        run = runs.get(name)
        if run is not None and run.status != "ok":
            state = "wrong" if run.status == "error" else "note"
            yield Finding("sources", state, f"{name}: the last run was {run.status}: {run.error}")  # type: ignore[arg-type]


def _index(library: Library) -> Iterator[Finding]:
    from kbtui.index import IndexReader

    try:
        reader = IndexReader(library.workspace.cache_dir)
    except KbtuiError as error:
        yield Finding("index", "note", str(error))
        return
    try:
        counts = ", ".join(f"{number} {name}" for name, number in reader.counts().items())
        yield Finding("index", "ok", counts)
    finally:
        reader.close()


def _engine(library: Library) -> Iterator[Finding]:
    try:
        client = library.engine(start=False)
    except EngineUnavailable:
        yield Finding("engine", "note", "not running; a search or the TUI starts it")
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
    if state.get("reason"):
        yield Finding("engine", "note", f"no semantic search: {state['reason']}")


def _model(library: Library) -> Iterator[Finding]:
    from kbtui.index.embedding import ModelUnavailable, find_model, verify

    if library.settings.model == "off":
        yield Finding("model", "note", "switched off in the settings: keyword search only")
        return
    try:
        verify(find_model(library.settings.model))
    except ModelUnavailable as error:
        yield Finding("model", "wrong", f"keyword search only: {error}")
        return
    name = library.settings.model or "all-MiniLM-L6-v2, packaged, verified"
    yield Finding("model", "ok", name)


_AREAS = {
    "knowledge": _knowledge,
    "conversations": _conversations,
    "sources": _sources,
    "index": _index,
    "engine": _engine,
    "model": _model,
}
AREAS = tuple(_AREAS)
"""The areas, in the order in which they are looked at."""
